/* Private to the runtime room: a bundle in memory, and its manifest as text. */
#ifndef RUNTIME_BUNDLE_BUNDLE_H
#define RUNTIME_BUNDLE_BUNDLE_H

#include "runtime/base/hashed_manifest.h"
#include "runtime/bundle/ttt_bundle.h"

struct ttt_bundle {
    char *path;
    json_t *root; /* the manifest, which has the texts */
    void **kept;  /* what `about` points to beside that */
    int n_kept;
    ttt__manifest_files files;
    ttt_bundle_about about;
    bool verified;
};

/* From a manifest's text; there is no folder, and `path` is empty. */
PJRT_MUST_CHECK pjrt_status *ttt__bundle_parse(const char *text, size_t size, ttt_bundle **out);
/* The text of a manifest that says the same; the caller frees it. */
PJRT_MUST_CHECK pjrt_status *ttt__bundle_text(const ttt_bundle_about *about,
                                              const ttt__manifest_files *files, char **text);

/* "decode-4" of a program, and "decode" of what it does; NULL of a kind that bundles have not. */
enum { TTT__PROGRAM_NAME = 64 };
void ttt__bundle_program_name(const ttt_program_desc *desc, char name[TTT__PROGRAM_NAME]);
const char *ttt__bundle_kind_name(ttt_program_kind kind);
/* A whole file of the bundle, which must be what the manifest says; the caller frees it. */
PJRT_MUST_CHECK pjrt_status *ttt__bundle_read(const ttt_bundle *bundle, const char *name,
                                              char **bytes, size_t *size);

#endif
