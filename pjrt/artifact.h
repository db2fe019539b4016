/* Private to pjrt/: parser of saved executables; its input is untrusted. */
#ifndef PJRT_ARTIFACT_H
#define PJRT_ARTIFACT_H

#include "pjrt/pjrt_status.h"

#include <stdbool.h>

typedef struct pjrt_artifact {
    const unsigned char *stamp, *payload; /* into the bytes that were parsed */
    size_t stamp_size, payload_size;
} pjrt_artifact;

typedef struct pjrt_artifact_field {
    const char *name, *value; /* not NUL-terminated */
    size_t name_size, value_size;
} pjrt_artifact_field;

/* Checks sizes and both hashes; DATA_LOSS with the reason when anything is off. */
pjrt_status *pjrt__artifact_parse(const unsigned char *bytes, size_t size, pjrt_artifact *out);
/* The field at `*offset` of the stamp, which moves on; false at the end. */
bool pjrt__artifact_next(pjrt_artifact *artifact, size_t *offset, pjrt_artifact_field *field);

#endif
