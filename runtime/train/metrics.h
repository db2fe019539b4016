/*
 * Private to the runtime room: the figures of a run, as lines of JSON and for TensorBoard.
 *
 * RUN/metrics.jsonl has one object a line: {"kind": "train", "step": 12, "loss": 2.5, …}. Reals
 * have the nine digits that tell any two floats apart; what is not finite is null.
 * RUN/tensorboard/events.out.tfevents.… has the same numbers as scalars KIND/NAME; lists are in the
 * lines alone.
 */
#ifndef RUNTIME_TRAIN_METRICS_H
#define RUNTIME_TRAIN_METRICS_H

#include "pjrt/pjrt_status.h"

#include <stdbool.h>
#include <stdint.h>

/* A number, or a list of them. */
typedef struct ttt__figure {
    const char *name;
    double value;
    const float *list; /* NULL: `value` */
    int64_t count;
    bool whole; /* written as an integer */
} ttt__figure;

/* NULL in processes that keep none: everything below takes it and does nothing. */
typedef struct ttt__metrics ttt__metrics;
/* Lines of steps above `step`, which the run will do again, are dropped, and so is a half line at
 * the end; TensorBoard is told to forget them too. A run begins with step 0. */
PJRT_MUST_CHECK pjrt_status *ttt__metrics_open(const char *run, int64_t step, ttt__metrics **out);
/* One line; it is in the file when this returns, and on the disk after ttt__metrics_sync. */
PJRT_MUST_CHECK pjrt_status *ttt__metrics_put(ttt__metrics *metrics, const char *kind, int64_t step,
                                              const ttt__figure *figures, int count);
PJRT_MUST_CHECK pjrt_status *ttt__metrics_sync(ttt__metrics *metrics);
/* Syncs, closes, frees. */
void ttt__metrics_free(ttt__metrics *metrics);

#endif
