/*
 * The operations of the kernels as graphs, twice: as calls of the kernels, and as the network
 * computes them without. For tests that compare the two, and for the benchmark.
 */
#ifndef TESTS_KERNEL_GRAPHS_H
#define TESTS_KERNEL_GRAPHS_H

#include "hlo_builder/hlo.h"
#include "pjrt/pjrt.h"

enum {
    STEP_GIVEN = 9, /* operands before the state */
    STEP_MAX_STATE = 8,
    SCAN_GIVEN = 6,
    SCAN_MAX_IN = SCAN_GIVEN + 4,
    SCAN_MAX_OUT = 5,
};

typedef struct step_graph {
    int layers;
    int64_t batch, heads, d, w, mini;
    float theta;
    bool bf16;
} step_graph;

/* Arrays of the state, in order; returns their number, 4 for each layer. */
int step_graph_state(const step_graph *s, hlo_shape shapes[STEP_MAX_STATE]);
/* Takes ttt_step's operands and gives its results; the state is donated. */
void step_graph_build(hlo_graph *g, const step_graph *s, bool kernels);

typedef struct scan_graph {
    int layers;
    int64_t count, batch, heads, size, d, w, group;
} scan_graph;

/* Shapes of ttt_scan's operands and results, and how many there are. */
int scan_graph_operands(const scan_graph *s, hlo_shape shapes[SCAN_MAX_IN]);
int scan_graph_results(const scan_graph *s, hlo_shape shapes[SCAN_MAX_OUT]);
/* Takes the operands, and with `gradients` those of the results; gives the results, and those of
 * the operands. */
void scan_graph_build(hlo_graph *g, const scan_graph *s, bool kernels, bool gradients);

/* Tells the CPU plugin of the kernels. */
pjrt_status *kernel_graphs_register(pjrt_plugin *plugin);

#endif
