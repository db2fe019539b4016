/* Private to the runtime room: manifest.json of a checkpoint, as text and as what it says. */
#ifndef RUNTIME_CHECKPOINT_CHECKPOINT_MANIFEST_H
#define RUNTIME_CHECKPOINT_CHECKPOINT_MANIFEST_H

#include "runtime/base/hashed_manifest.h"

typedef struct ttt__manifest {
    int64_t step;
    json_t *training; /* an object */
    ttt__manifest_files files;
} ttt__manifest;

/* The caller frees the text. */
PJRT_MUST_CHECK pjrt_status *ttt__manifest_write(const ttt__manifest *manifest, char **text);
/* What is no manifest is DATA_LOSS; one of a newer version UNIMPLEMENTED. */
PJRT_MUST_CHECK pjrt_status *ttt__manifest_parse(const char *text, size_t size, ttt__manifest *out);
void ttt__manifest_free(ttt__manifest *manifest);

#endif
