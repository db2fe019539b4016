/*
 * Private to the runtime room: what the processes of a job decide together, step by step. Every
 * process casts its wishes with a step and reads those of all with the step's result, so that all
 * act on the same wishes at the same step. It is a program on the devices, queued as the step is:
 * nobody waits for it.
 */
#ifndef RUNTIME_TRAIN_STOP_AND_SAVE_H
#define RUNTIME_TRAIN_STOP_AND_SAVE_H

#include "runtime/device/ttt_device.h"

enum { TTT__AGREE_STOP, TTT__AGREE_SAVE, TTT__AGREE_COUNT };

typedef struct ttt__wishes {
    int32_t of[TTT__AGREE_COUNT]; /* not 0: wished for */
} ttt__wishes;

typedef struct ttt__stop_and_save ttt__stop_and_save;
PJRT_MUST_CHECK pjrt_status *ttt__stop_and_save_new(const ttt_devices *devices,
                                                    ttt__stop_and_save **out);
void ttt__stop_and_save_free(ttt__stop_and_save *votes);
PJRT_MUST_CHECK pjrt_status *ttt__stop_and_save_cast(const ttt__stop_and_save *votes,
                                                     const ttt__wishes *mine, ttt_array **cast);
/* What anyone wished. */
PJRT_MUST_CHECK pjrt_status *ttt__stop_and_save_read(const ttt_array *cast, ttt__wishes *all);

#endif
