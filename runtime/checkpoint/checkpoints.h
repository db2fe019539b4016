/*
 * Private to the runtime room: the state of a training run on disk.
 *
 * A checkpoint is a folder step-00001000 that is also a model in Hugging Face's form:
 *
 *     config.json, model.safetensors     the network and its parameters, f32
 *     first.safetensors, second.safetensors      the optimiser's moments, under the same names
 *     manifest.json      version, step, the training's own facts, of every other file its size, its
 *                        XXH3-128 and XXH3-64 of each MiB, and its own hash
 *
 * Large sets are cut into NAME-00001-of-00003.safetensors and NAME.safetensors.index.json.
 *
 * It is written under another name, every file and folder is synced, and renamed: a folder of that
 * name is whole, whenever the writer was killed. Only the holder of the run's lock writes.
 *
 * The processes of a job write one together: each what it has into a file of its own, and from all
 * of these every process some of the checkpoint's files; process 0 renames when all are done. So a
 * file has one writer, and is read by others only after that one has closed it.
 */
#ifndef RUNTIME_CHECKPOINT_CHECKPOINTS_H
#define RUNTIME_CHECKPOINT_CHECKPOINTS_H

#include "model/files/ttt_model_files.h"
#include "runtime/cluster/agree.h"
#include "runtime/device/ttt_device.h"

#include <jansson.h>

enum { TTT__SETS = 3 }; /* parameters, first moments, second moments */

/* A block of a parameter of a set, in the memory of one process of a job. */
typedef struct ttt__checkpoint_shard {
    int set, param, process;
    ttt_block block;
    int64_t offset; /* in floats: how much that process has before it */
    float *values;  /* dense; NULL in other processes */
} ttt__checkpoint_shard;

/* A training state in the host's memory. */
typedef struct ttt__snapshot {
    int64_t step;
    const ttt_config *config;
    const ttt_params *params;
    const float *const *sets[TTT__SETS]; /* one array a parameter, in the graph's order */
    /* Of several processes, instead of the sets: all pieces, set by set and parameter by parameter,
     * the same list in each. */
    const ttt__checkpoint_shard *pieces;
    int n_pieces;
    const json_t *training; /* an object; kept in the manifest as it is */
} ttt__snapshot;

typedef struct ttt__checkpoint_dir_options {
    int keep;            /* the newest so many stay; 0: all */
    int64_t milestone;   /* steps that are multiples of it stay for ever; 0: none do */
    int64_t shard_bytes; /* files are cut at; 0: 4 GB */
    ttt_job *job;        /* NULL: one process */
} ttt__checkpoint_dir_options;

typedef struct ttt__checkpoint_dir ttt__checkpoint_dir;
/* The folder is made when it is not there. Leavings of a killed writer are removed. Of several
 * processes the first does that. */
PJRT_MUST_CHECK pjrt_status *ttt__checkpoint_dir_open(const char *folder,
                                                      const ttt__checkpoint_dir_options *options,
                                                      ttt__checkpoint_dir **out);
void ttt__checkpoint_dir_free(ttt__checkpoint_dir *store);
/*
 * Writes step's checkpoint, then removes those before it that are no longer kept. When it fails the
 * older ones are as they were and nothing of the new one is left behind. One that is already there
 * and whole is left as it is, which is a success; a broken one is replaced. Of several processes
 * all call it, and it fails in all or in none.
 */
PJRT_MUST_CHECK pjrt_status *ttt__checkpoint_dir_write(ttt__checkpoint_dir *store,
                                                       const ttt__snapshot *snapshot);
/* Why the last write could not remove all that is no longer kept; NULL when it could. The next one
 * tries again. */
const pjrt_status *ttt__checkpoint_dir_trouble(const ttt__checkpoint_dir *store);

/* One that was found whole. */
typedef struct ttt__checkpoint {
    char *path;
    int64_t step;
    ttt_config config;
    json_t *training;
    ttt_tensors *sets[TTT__SETS];
} ttt__checkpoint;

/* Opens and verifies one folder: what is missing, cut or changed is DATA_LOSS, with the file and
 * the offset of the first MiB that is not what was written. A newer version is refused as such. */
PJRT_MUST_CHECK pjrt_status *ttt__checkpoint_open(const char *folder, ttt__checkpoint **out);
void ttt__checkpoint_free(ttt__checkpoint *checkpoint);
/* The newest whole one of a folder of checkpoints; NULL when there is none at all. Those of which
 * data is lost are passed over, and `broken`, when not NULL, hears why; when all are, that is an
 * error, and so is any other failure (a newer version, no memory, no right to read). With `all`,
 * which may be NULL, the processes share the reading and find the same. */
PJRT_MUST_CHECK pjrt_status *ttt__checkpoint_latest(const char *folder, ttt__agreements *all,
                                                    void (*broken)(void *ctx,
                                                                   const pjrt_status *why),
                                                    void *ctx, ttt__checkpoint **out);
/* Steps of the folders there are, ascending; the caller frees the list. Nothing is opened. */
PJRT_MUST_CHECK pjrt_status *ttt__checkpoint_list(const char *folder, int64_t **steps, int *count);

/* One holder of a run's folder, which is made when it is not there: FAILED_PRECONDITION that names
 * the process that has it. Gone with the process, however it ends. */
typedef struct ttt__lock ttt__lock;
PJRT_MUST_CHECK pjrt_status *ttt__lock_take(const char *folder, ttt__lock **out);
void ttt__lock_free(ttt__lock *lock);

#endif
