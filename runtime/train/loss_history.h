/*
 * Private to the runtime room: the losses and norms of the last steps, and what counts as a spike.
 *
 * What is allowed to a step depends on the steps up to a given one alone, however many more are
 * known: so a run that was cut decides as the uncut one, which queues a step before it knows the
 * result of the one before.
 */
#ifndef RUNTIME_TRAIN_LOSS_HISTORY_H
#define RUNTIME_TRAIN_LOSS_HISTORY_H

#include "pjrt/pjrt_status.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum { TTT__LOSS, TTT__NORM, TTT__FIGURES };

typedef struct ttt__loss_history {
    int64_t window;
    int64_t last;  /* the newest step, from 1 on; 0: none */
    int64_t kept;  /* how many up to it are known, at most window + 2 */
    float *values; /* [window + 2, TTT__FIGURES], step s at s mod (window + 2) */
} ttt__loss_history;

PJRT_MUST_CHECK pjrt_status *ttt__loss_history_new(int64_t window, ttt__loss_history *out);
void ttt__loss_history_free(ttt__loss_history *history);
/* Appends step `last` + 1. A skipped step is stored as NaN: it takes a slot but enters no mean, so
 * spikes do not raise the limit for later spikes. NaN survives a checkpoint: a resumed run makes
 * the same decisions. */
void ttt__loss_history_add(ttt__loss_history *history, float loss, float norm, bool skipped);

/* Mean and standard deviation of the finite values of the `window` steps up to `step`; false while
 * there are not that many steps, or hardly any finite ones. */
bool ttt__loss_history_about(const ttt__loss_history *history, int64_t step, int which,
                             double *mean, double *deviation);
/* The largest loss and norm that are no spike, from the steps up to `step`; infinite where nothing
 * is known, or `spike` is 0. */
void ttt__loss_history_limits(const ttt__loss_history *history, int64_t step, double spike,
                              float limits[TTT__FIGURES]);
/* How many deviations a value is from the mean of the steps up to `step`; NaN when not known. */
double ttt__loss_history_z(const ttt__loss_history *history, int64_t step, int which, double value);

/* As JSON, exactly, and back. Another window than the one it was kept for is refused. */
json_t *ttt__loss_history_json(const ttt__loss_history *history);
PJRT_MUST_CHECK pjrt_status *ttt__loss_history_parse(ttt__loss_history *history,
                                                     const json_t *json);

#endif
