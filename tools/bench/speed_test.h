/*
 * How fast a model reads and makes tokens: what `ttt bench` and `ttt reproduce latency` measure.
 *
 * Tokens before a test are not read: a fresh state is set to that position, which costs the same
 * from there on.
 */
#ifndef TOOLS_BENCH_SPEED_TEST_H
#define TOOLS_BENCH_SPEED_TEST_H

#include "tools/commands/generate_options.h"
#include "tools/commands/model_run.h"

typedef struct speed_tests {
    engine_choice engine;
    int_list prompts; /* lengths to read, at each depth, of one sequence; may be empty */
    int_list depths, batches;
    int generate, repetitions;
} speed_tests;

/* One line of the report. */
typedef struct speed_row {
    const char *test; /* "read", "make", "save", "restore" */
    int64_t batch, tokens, depth;
    double mean, deviation; /* tokens a second; seconds of a state */
    int64_t bytes;          /* of a state */
} speed_row;

/* Rows in the order they were measured; the caller frees them. */
PJRT_MUST_CHECK pjrt_status *speed_run(const speed_tests *tests, const cmd_common *common,
                                       speed_row **rows, int *count);

#endif
