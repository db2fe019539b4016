/*
 * Private to the runtime room: manifest.json of a checkpoint, as text and as what it says.
 *
 * It ends with a line of its own hash, of all the bytes before that line: what was changed in it
 * shows as well as in the files it speaks of.
 */
#ifndef RUNTIME_MANIFEST_H
#define RUNTIME_MANIFEST_H

#include "runtime/files.h"

#include <jansson.h>

enum { TTT__MOST_MANIFEST = 64 << 20, TTT__MOST_FILES = 16384 };

typedef struct ttt__manifest_file {
    char *name; /* plain: no folders in it */
    ttt__digest digest;
} ttt__manifest_file;

typedef struct ttt__manifest {
    int64_t step;
    json_t *training; /* an object */
    ttt__manifest_file *files;
    int count;
} ttt__manifest;

/* The caller frees the text. */
PJRT_MUST_CHECK pjrt_status *ttt__manifest_write(const ttt__manifest *manifest, char **text);
/* What is no manifest is DATA_LOSS; one of a newer version UNIMPLEMENTED. */
PJRT_MUST_CHECK pjrt_status *ttt__manifest_parse(const char *text, size_t size, ttt__manifest *out);
void ttt__manifest_free(ttt__manifest *manifest);

/* A JSON object's text, with its last brace replaced by the line of the hash; NULL when out of
 * memory. For ttt__manifest_write, and for tests that write other ones. */
char *ttt__manifest_seal(const char *object, size_t size);

#endif
