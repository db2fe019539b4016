/* Private to the runtime room: what the files that write checkpoints share. */
#ifndef RUNTIME_CHECKPOINT_CHECKPOINTS_INTERNAL_H
#define RUNTIME_CHECKPOINT_CHECKPOINTS_INTERNAL_H

#include "runtime/base/files.h"
#include "runtime/checkpoint/checkpoint_manifest.h"
#include "runtime/checkpoint/checkpoints.h"

struct ttt__checkpoint_dir {
    char folder[PATH_MAX];
    ttt__checkpoint_dir_options options;
    pjrt_status *trouble;
    ttt__agreements meetings;
};

extern const char *const ttt__set_names[TTT__SETS];

/* FOLDER/step-00001000END */
PJRT_MUST_CHECK pjrt_status *ttt__step_path(const char *folder, int64_t step, const char *end,
                                            char path[PATH_MAX]);
/* Whether a checkpoint is there already, and whether that one is any good. */
PJRT_MUST_CHECK pjrt_status *ttt__checkpoint_look(const char *path, bool *there, bool *whole);
/* manifest.json of the files that are in a folder now; and the text of one that is known. */
PJRT_MUST_CHECK pjrt_status *ttt__checkpoint_describe(const char *folder,
                                                      const ttt__snapshot *snapshot);
PJRT_MUST_CHECK pjrt_status *ttt__checkpoint_declare(const char *folder,
                                                     const ttt__manifest *manifest);
PJRT_MUST_CHECK pjrt_status *ttt__checkpoint_manifest(const char *folder, ttt__manifest *out);
/* What is in step-….writing becomes a checkpoint, in place of one that is no good; then those that
 * are no longer kept go. */
PJRT_MUST_CHECK pjrt_status *ttt__checkpoint_dir_publish(ttt__checkpoint_dir *store, int64_t step,
                                                         bool replace);
/* The way of several processes. */
PJRT_MUST_CHECK pjrt_status *ttt__checkpoint_dir_write_multi(ttt__checkpoint_dir *store,
                                                             const ttt__snapshot *snapshot);

#endif
