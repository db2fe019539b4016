/*
 * pjrt_hlo: what a compiled program does, read from the optimized program a plugin hands back.
 *
 *     pjrt_hlo_report *r;
 *     pjrt_status *st = pjrt_hlo_report_create("hlo_with_config", bytes, size, &r);
 *     if (st == NULL) {
 *         printf("%s: %.3g flops, %.3g bytes, %.3g cycles (%.0f%% in loops)\n", r->module_name,
 *                r->total.flops, r->total.bytes, r->total.cycles,
 *                100 * r->cycles_in_loops / r->total.cycles);
 *         for (size_t i = 0; i < r->loop_count; i++)
 *             printf("%*s%s x %lld\n", 2 * r->loops[i].depth, "", r->loops[i].name,
 *                    (long long)r->loops[i].trip_count);
 *         pjrt_hlo_report_free(r);
 *     }
 *
 * Costs are over trip counts: the body of a loop that runs nine times counts nine times, where
 * XLA's own cost analysis counts it once. Otherwise they follow its rules: without loops the flops
 * are the same, and the bytes too but for what bytes.c leaves out on purpose.
 *
 * The cycles are the TPU compiler's own estimates, good for comparing programs with each other and
 * for finding where the time goes. They are not a time, and other backends give none.
 *
 * It does not run, verify or change programs. Invalid bytes give an error.
 */
#ifndef PJRT_HLO_H
#define PJRT_HLO_H

#include "pjrt/pjrt_status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct pjrt_hlo_cost {
    /* Dots and convolutions count 2 per multiply-add, elementwise operations 1 per element of the
     * result, reductions the work of their function. Custom calls count 0, except cuBLAS and cuDNN,
     * whose calls say what they multiply. */
    double flops;
    /* exp, log, tanh, power, random numbers …: 1 per element, and not part of flops. */
    double transcendentals;
    /* Read and written by each instruction, a fusion being one instruction: what stays inside it is
     * not counted, and slices count what they touch. Sizes are as laid out, TPU tile padding
     * included. */
    double bytes;
    /* Of these, in the chip's main memory (HBM) as far as layouts tell: the TPU compiler keeps much
     * in on-chip memory, others do not say and all bytes count. */
    double main_bytes;
    /* estimated_cycles of the TPU compiler; 0 elsewhere. */
    double cycles;
} pjrt_hlo_cost;

/* One line of a table of things that have a name. */
typedef struct pjrt_hlo_tally {
    const char *name;
    int64_t count;   /* instructions in the program */
    int64_t fused;   /* of these, inside fusions */
    double executed; /* times executed in one run of the program, fused ones included */
    /* Of one run of the program. What is fused costs its fusion, not itself. */
    pjrt_hlo_cost cost;
} pjrt_hlo_tally;

typedef struct pjrt_hlo_loop {
    const char *name;
    const char *origin;      /* what the program's source called it, in full; "" when forgotten */
    int64_t trip_count;      /* iterations of one entry; -1 unknown, and then costed as 1 */
    int depth;               /* 0 for a loop in no other */
    ptrdiff_t parent;        /* index of the loop around it, always a smaller one; -1 for none */
    double entered;          /* times the loop is entered in one run of the program */
    pjrt_hlo_cost iteration; /* one iteration, inner loops included */
    pjrt_hlo_cost total;     /* one run of the program */
} pjrt_hlo_loop;

typedef struct pjrt_hlo_collective {
    const char *kind;   /* "all-reduce", "all-gather" …; asynchronous pairs count as one */
    double bytes;       /* of one call on one device, unpadded: the larger of operand and result */
    int64_t group_size; /* devices in a group; 0 when the program does not say */
    bool asynchronous;  /* starts at one instruction and ends at a later one: work may go on */
    int64_t count;      /* instructions in the program */
    double executed;    /* calls in one run of the program */
    double total_bytes; /* bytes * executed */
} pjrt_hlo_collective;

typedef struct pjrt_hlo_report {
    const char *module_name;
    size_t computation_count;
    size_t instruction_count;

    /* One run of the program. Of a conditional the costliest branch is taken, every time: the most
     * cycles, then flops, then bytes. */
    pjrt_hlo_cost total;
    double cycles_in_loops; /* the part of total.cycles that is inside loops */
    double collective_bytes;

    size_t unknown_trip_counts; /* loops */
    size_t conditionals;
    /* Executed instructions that handle arrays (not scalars) and carry no cycles of their own:
     * collectives, copies in flight, kernels of others. All where there are no estimates. */
    size_t without_cycles;
    /* Arrays of an element type newer than this code: their bytes count 0. */
    size_t unknown_types;

    /* Tables stand with the costliest line first; loops in program order, outer before inner.
     *
     * By opcode. Here flops stand with the instructions that do them, fused or not; bytes and
     * cycles stand with the fusion. */
    const pjrt_hlo_tally *ops;
    size_t op_count;
    const pjrt_hlo_tally *fusions; /* by fusion kind: "kLoop", "kOutput" … */
    size_t fusion_count;
    const pjrt_hlo_tally *custom_calls; /* by target */
    size_t custom_call_count;
    /* By the source scope in the instructions' metadata: "step/block/ttt" for an operation named
     * "step/block/ttt/dot". Instructions without one are under "". */
    const pjrt_hlo_tally *scopes;
    size_t scope_count;
    const pjrt_hlo_loop *loops;
    size_t loop_count;
    const pjrt_hlo_collective *collectives; /* one line per kind, size and group size */
    size_t collective_count;
} pjrt_hlo_report;

/* Reads an optimized program. format is what PJRT_Executable_OptimizedProgram called it: "hlo" (an
 * HloModuleProto) or "hlo_with_config"; others are UNIMPLEMENTED. The bytes may come from anywhere:
 * bad ones are INVALID_ARGUMENT, and memory is bounded by their size, of at most 2 GiB. They are
 * not needed afterwards. Names in the report are the program's own bytes, not always UTF-8. */
PJRT_MUST_CHECK pjrt_status *pjrt_hlo_report_create(const char *format, const void *bytes,
                                                    size_t size, pjrt_hlo_report **out);
void pjrt_hlo_report_free(pjrt_hlo_report *report);

/* ---- time, by the makers' figures ---- */

/* Bytes that one device sends over its links in one call: of an all-gather, a reduce-scatter or an
 * all-to-all bytes x (n - 1) / n, of an all-reduce twice that (a ring does both), of a permutation
 * all bytes. n is the group's size; where it is not known the last factor is left out. */
double pjrt_hlo_link_bytes(const pjrt_hlo_collective *collective);

/* What one chip can do a second at best. */
typedef struct pjrt_hlo_peaks {
    double flops;      /* of the matrix units */
    double bytes;      /* of its main memory */
    double link_bytes; /* of all its links together, one way; 0: links are not counted */
} pjrt_hlo_peaks;

/*
 * The least seconds that one run can take on a chip of these peaks. Each operation (a fusion is
 * one) that is no transfer takes
 *
 *     t = max(flops / peaks.flops, main_bytes / peaks.bytes)
 *
 * and operations follow each other in the program's own order, loops as often as they run. A
 * collective has the links for link_bytes / peaks.link_bytes; the program waits for it at once when
 * it is synchronous, else where it ends. Copies in flight take no time of their own, but all bytes
 * must pass through memory. It is a bound, and no prediction: real operations are slower, and only
 * a cache in front of the memory (GPUs) can be faster.
 */
typedef struct pjrt_hlo_times {
    double arithmetic;  /* all flops / peaks.flops */
    double memory;      /* all main_bytes / peaks.bytes */
    double operations;  /* the sum of all t */
    double links;       /* of all collectives, as if nothing else was done */
    double links_async; /* of these, of asynchronous ones */
    double exposed;     /* what waiting for links adds to `operations` */
    double step;        /* max(operations + exposed, memory) */
} pjrt_hlo_times;

/* Bytes as for pjrt_hlo_report_create. Peaks must be above 0, but for link_bytes. */
PJRT_MUST_CHECK pjrt_status *pjrt_hlo_replay(const char *format, const void *bytes, size_t size,
                                             const pjrt_hlo_peaks *peaks, pjrt_hlo_times *out);

/* ---- memory over the step ---- */

typedef struct pjrt_hlo_live_point {
    const char *name;  /* of the instruction of the entry computation */
    const char *scope; /* where it comes from in the source; "" when forgotten */
    double bytes;      /* live while it runs, arguments included */
} pjrt_hlo_live_point;

/* An array that is live where most is. */
typedef struct pjrt_hlo_live_array {
    const char *name, *scope; /* of the instruction that makes it */
    double bytes;
} pjrt_hlo_live_array;

/*
 * Bytes of main memory that are in use while each instruction of the entry computation runs, in the
 * program's order: arguments, results, and what later instructions still need, where a loop adds
 * the most that one of its iterations has at a time. An estimate: the compiler's own assignment of
 * buffers, which also packs and reuses, is not in the program.
 */
typedef struct pjrt_hlo_live {
    double argument_bytes; /* live all the time */
    double peak_bytes;
    size_t peak; /* index of the point */
    const pjrt_hlo_live_point *points;
    size_t point_count;
    const pjrt_hlo_live_array *arrays; /* at the peak, arguments left out, the largest first */
    size_t array_count;
} pjrt_hlo_live;

PJRT_MUST_CHECK pjrt_status *pjrt_hlo_live_create(const char *format, const void *bytes,
                                                  size_t size, pjrt_hlo_live **out);
void pjrt_hlo_live_free(pjrt_hlo_live *live);

/* ---- programs before they are compiled ---- */

/* An argument or a result of @main. */
typedef struct pjrt_hlo_text_value {
    const char *name; /* as the source called it, else as the text does; "" for results */
    const char *type; /* "tensor<4x128xf32>" */
    double bytes;     /* 0 where the type is not an array of known size */
} pjrt_hlo_text_value;

typedef struct pjrt_hlo_text_loop {
    size_t line;
    int depth;         /* 0 for a loop in no other */
    ptrdiff_t parent;  /* index of the loop around it; -1 for none */
    size_t operations; /* that stand in it, inner loops included */
    int64_t below;     /* it goes on while a counter is below this; -1: not told so simply */
} pjrt_hlo_text_loop;

typedef struct pjrt_hlo_text {
    const char *module; /* "" without a name */
    size_t lines, functions, operations;
    const pjrt_hlo_tally *ops; /* names and counts alone, the most frequent first */
    size_t op_count;
    const pjrt_hlo_text_value *arguments, *results;
    size_t argument_count, result_count;
    const pjrt_hlo_text_loop *loops; /* as they stand */
    size_t loop_count;
} pjrt_hlo_text;

/*
 * What stands in the text of a StableHLO module. It is no parser: it tells operations, loops and
 * the arguments of @main by how MLIR writes them and passes over the rest. Text without any
 * operation is INVALID_ARGUMENT; memory is bounded by the text's size.
 */
PJRT_MUST_CHECK pjrt_status *pjrt_hlo_text_create(const char *text, size_t size,
                                                  pjrt_hlo_text **out);
void pjrt_hlo_text_free(pjrt_hlo_text *summary);

#endif
