/*
 * Private to the runtime room: what the processes of a job decide together, step by step. Every
 * process casts its wishes with a step and reads those of all with the step's result, so that all
 * act on the same wishes at the same step. It is a program on the devices, queued as the step is:
 * nobody waits for it.
 */
#ifndef RUNTIME_TRAIN_STOP_AND_SAVE_H
#define RUNTIME_TRAIN_STOP_AND_SAVE_H

#include "runtime/device/ttt_device.h"

enum { TTT__VOTE_STOP, TTT__VOTE_SAVE, TTT__VOTE_COUNT };

typedef struct ttt__wishes {
    int32_t of[TTT__VOTE_COUNT]; /* not 0: wished for */
} ttt__wishes;

typedef struct ttt__votes ttt__votes;
PJRT_MUST_CHECK pjrt_status *ttt__votes_new(const ttt_place *place, ttt__votes **out);
void ttt__votes_free(ttt__votes *votes);
PJRT_MUST_CHECK pjrt_status *ttt__votes_cast(const ttt__votes *votes, const ttt__wishes *mine,
                                             ttt_array **cast);
/* What anyone wished. */
PJRT_MUST_CHECK pjrt_status *ttt__votes_read(const ttt_array *cast, ttt__wishes *all);

#endif
