/*
 * Private to the runtime room: what the manifests of checkpoints and of bundles have in common.
 *
 * Such a folder has a manifest.json that says what its other files must be. It ends with a line of
 * its own hash, of all the bytes before that line: what was changed in it shows as well as in the
 * files it speaks of.
 */
#ifndef RUNTIME_BASE_HASHED_MANIFEST_H
#define RUNTIME_BASE_HASHED_MANIFEST_H

#include "runtime/base/files.h"

#include <jansson.h>

enum { TTT__MOST_MANIFEST = 64 << 20, TTT__MOST_FILES = 16384 };

typedef struct ttt__manifest_file {
    char *name; /* plain: no folders in it */
    ttt__digest digest;
} ttt__manifest_file;

typedef struct ttt__manifest_files {
    ttt__manifest_file *list;
    int count;
} ttt__manifest_files;

/* ---- files -------------------------------------------------------------------------------------
 */

/* A name in the folder, and nothing else. */
bool ttt__plain_name(const char *name);
/* Digests of those files of a folder, as they are read. */
PJRT_MUST_CHECK pjrt_status *ttt__manifest_digest(const char *folder, const ttt__names *names,
                                                  ttt__manifest_files *out);
/* Every `step`th of them from number `first` on is in the folder, byte for byte; else DATA_LOSS
 * that names it. */
PJRT_MUST_CHECK pjrt_status *
ttt__manifest_verify(const char *folder, const ttt__manifest_files *files, int first, int step);
/* -1: there is none of that name. */
int ttt__manifest_find(const ttt__manifest_files *files, const char *name);
/* As the object "files" of a manifest, and back. NULL when out of memory. */
json_t *ttt__manifest_files_json(const ttt__manifest_files *files);
PJRT_MUST_CHECK pjrt_status *ttt__manifest_files_parse(json_t *object, ttt__manifest_files *out);
void ttt__manifest_files_free(ttt__manifest_files *files);

/* ---- the whole ---------------------------------------------------------------------------------
 */

/* A JSON object's text, with its last brace replaced by the line of the hash; NULL when out of
 * memory. */
char *ttt__manifest_seal(const char *object, size_t size);
/* The text of a manifest, sealed; the caller frees it. Takes `root` over; NULL: out of memory. */
PJRT_MUST_CHECK pjrt_status *ttt__manifest_text(json_t *root, char **text);
/* The object of a text that is sealed, of that format, and no newer than `version`: UNIMPLEMENTED
 * when it is, DATA_LOSS for everything else. */
PJRT_MUST_CHECK pjrt_status *ttt__manifest_root(const char *text, size_t size, const char *format,
                                                int version, json_t **root);
/* DATA_LOSS: "not a manifest: WHY". */
PJRT_MUST_CHECK pjrt_status *ttt__manifest_bad(const char *why);
/* The same failure with the file's name in front; what is not there is lost. */
PJRT_MUST_CHECK pjrt_status *ttt__manifest_in(pjrt_status *st, const char *path);

#endif
