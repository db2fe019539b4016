/* Private to the files that keep the graph itself: its struct and the tables under it. */
#ifndef HLO_BUILDER_GRAPH_H
#define HLO_BUILDER_GRAPH_H

#include "hlo_builder/internal.h"

typedef struct hlo_chunk hlo_chunk;

/* A hash table of pointers; the entries belong to somebody else. */
typedef struct hlo_table {
    struct {
        uint64_t hash;
        void *entry;
    } * slots;
    size_t size, count;
} hlo_table;

/* A body built by hlo_call or hlo_composite, for later calls to share. */
typedef struct hlo_function {
    struct hlo_function *next;
    const char *name; /* interned */
    bool composite;
    hlo_block *block;
} hlo_function;

struct hlo_graph {
    uint32_t serial;
    hlo_error error;
    const char *name;
    hlo_chunk *chunks;
    hlo_table texts, nodes; /* interned texts; nodes by operation, operands and attributes */

    hlo_value **values; /* by id - 1 */
    size_t n_values, cap_values;
    size_t n_nodes;
    uint32_t mark;

    hlo_block *main, *current;
    hlo_block *blocks; /* all others */

    const char *scope;
    const char **scopes; /* the ones around it */
    size_t n_scopes, cap_scopes;

    hlo_io *params, *results;
    size_t n_params, cap_params, n_results, cap_results;
    hlo_mesh_info mesh;
    bool spec_ignored; /* there was no mesh yet */
    hlo_function *functions;
    bool f32_gradient_sums;
};

/* Makes room for `needed` items in a malloc'ed list; false, and an error, when it cannot. */
bool hlo__grow(hlo_graph *g, void **items, size_t *capacity, size_t item_size, size_t needed);
uint64_t hlo__hash(const void *bytes, size_t size, uint64_t seed);
void **hlo__table_slot(hlo_graph *g, hlo_table *table, uint64_t hash,
                       bool (*equal)(const void *entry, const void *key), const void *key);
hlo_value *hlo__new_value(hlo_graph *g, hlo_node *node, int index, const hlo_shape *shape);
bool hlo__block_append(hlo_graph *g, hlo_block *block, hlo_node *node);
void hlo__set_param_spec(hlo_graph *g, hlo_val param, const hlo_spec *spec);
void hlo__set_result_spec(hlo_graph *g, int result, const hlo_spec *spec);

#endif
