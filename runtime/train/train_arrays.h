/* Private to the runtime room: what training changes, on devices, on the host, and on its way to
 * disk. */
#ifndef RUNTIME_TRAIN_TRAIN_ARRAYS_H
#define RUNTIME_TRAIN_TRAIN_ARRAYS_H

#include "runtime/checkpoint/checkpoints.h"

/* ---- on devices --------------------------------------------------------------------------------
 */

typedef struct ttt__train_arrays {
    const ttt_devices *devices;
    const ttt_params *params;
    ttt_array **arrays; /* parameters, first and second moments, the count of steps */
    int n;
} ttt__train_arrays;

/* As a seed makes it, or a model's weights (NULL: the seed's) with nothing learnt of moments; and
 * as a checkpoint has it. On failure what was made is freed. */
PJRT_MUST_CHECK pjrt_status *ttt__train_arrays_start(const ttt_devices *devs,
                                                     const ttt_params *params, uint64_t seed,
                                                     const ttt_tensors *weights,
                                                     ttt__train_arrays *out);
PJRT_MUST_CHECK pjrt_status *ttt__train_arrays_load(const ttt_devices *devs,
                                                    const ttt_params *params,
                                                    const ttt__checkpoint *checkpoint,
                                                    ttt__train_arrays *out);
void ttt__train_arrays_free(ttt__train_arrays *state);

/* ---- on the way to disk ------------------------------------------------------------------------
 */

/* Who saves what of a state in a job: the pieces of all processes, without values, the same list in
 * each; and the device of the mesh that each is copied from. */
typedef struct ttt__checkpoint_shards {
    ttt__checkpoint_shard *list;
    int *devices;
    int count;
} ttt__checkpoint_shards;
PJRT_MUST_CHECK pjrt_status *ttt__checkpoint_shards_new(const ttt_devices *devs,
                                                        const ttt_params *params,
                                                        ttt__checkpoint_shards *out);
void ttt__checkpoint_shards_free(ttt__checkpoint_shards *pieces); /* not the values */

/* One that ended, or why it did not. */
typedef struct ttt__saved {
    int64_t step;
    double seconds;      /* of writing */
    pjrt_status *failed; /* the receiver frees it */
    /* Why older ones that are no longer kept could not be removed, or NULL; as above. */
    pjrt_status *trouble;
} ttt__saved;

/* A thread that writes checkpoints from a copy of the state on the host; of several processes each
 * has one, and copies its own share. */
typedef struct ttt__saver ttt__saver;
PJRT_MUST_CHECK pjrt_status *ttt__saver_new(ttt__checkpoint_dir *store, const ttt_config *config,
                                            const ttt_params *params, const ttt_devices *devs,
                                            ttt__saver **out);
/* Waits for what is under way. */
void ttt__saver_free(ttt__saver *saver);
/* Copies the state, which may move on when this returns, and has it written. Waits for the one
 * before first. `training` is taken over. */
PJRT_MUST_CHECK pjrt_status *ttt__saver_put(ttt__saver *saver, const ttt__train_arrays *state,
                                            int64_t step, json_t *training);
/* The outcome of the last one, once: false when it was told already or is not known yet; `wait`
 * for it. */
bool ttt__saver_done(ttt__saver *saver, bool wait, ttt__saved *saved);

#endif
