/* Private to lower.c and lower_prune.c. */
#ifndef HLO_BUILDER_WRITE_LOWER_H
#define HLO_BUILDER_WRITE_LOWER_H

#include "hlo_builder/graph.h"

typedef struct hlo_lowered_function {
    hlo_block *block;
    bool effect;
} hlo_lowered_function;

typedef struct hlo_lowering {
    hlo_graph *g;
    uint32_t first; /* id of the first value of the copy */
    hlo_value **to; /* by a value's id, what it has become */
    bool layouts;   /* wishes for them stay */
    bool effect;    /* what was lowered into the current region has a side effect */
    hlo_node **effects;
    size_t n_effects, cap_effects;
    hlo_lowered_function *functions; /* that CALL nodes share */
    size_t n_functions, cap_functions;
    hlo_map function_of; /* from a region's first result to its place among them plus one */
} hlo_lowering;

/* Takes out of the copy what neither its results nor a side effect needs: nodes, and in loops and
 * branches operands and results. */
void hlo__prune(hlo_lowering *l, hlo_block *main_block);

#endif
