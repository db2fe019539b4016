/* Private to the runtime room: TensorBoard's event files. */
#ifndef RUNTIME_TRAIN_TENSORBOARD_H
#define RUNTIME_TRAIN_TENSORBOARD_H

#include "runtime/train/metrics.h"

typedef struct ttt__events ttt__events;
/* A new file, behind all that are in the folder by its name. It begins with word that the training
 * goes on after `step`: what others say of later steps no longer holds. */
PJRT_MUST_CHECK pjrt_status *ttt__events_open(const char *folder, int64_t step, ttt__events **out);
/* Numbers as scalars KIND/NAME; lists are passed over. */
PJRT_MUST_CHECK pjrt_status *ttt__events_put(ttt__events *events, const char *kind, int64_t step,
                                             const ttt__figure *figures, int count);
PJRT_MUST_CHECK pjrt_status *ttt__events_sync(ttt__events *events);
void ttt__events_free(ttt__events *events);

#endif
