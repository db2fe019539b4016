/* A small training state whose every number follows from its step, for tests of checkpoints. It
 * asserts nothing, so that it can be used in forked processes and where memory fails. */
#ifndef TESTS_SNAPSHOT_H
#define TESTS_SNAPSHOT_H

#include "runtime/checkpoint/checkpoints.h"

typedef struct support_snapshot {
    ttt_config config;
    ttt_params *params;
    float **sets[TTT__SETS];
    json_t *training;
    ttt__snapshot snapshot;
} support_snapshot;

/* A network of two layers, some kB; false when out of memory. */
bool support_snapshot_new(support_snapshot *s, ttt_layout layout);
void support_snapshot_free(support_snapshot *s);
/* The state of that step. */
void support_snapshot_step(support_snapshot *s, int64_t step);
/* Whether a checkpoint has the content of its step. */
bool support_snapshot_same(support_snapshot *s, const ttt__checkpoint *checkpoint);

#endif
