/*
 * What `ttt inspect` finds out, and how it is shown. Everything found is one JSON object, `kind`
 * first; words, tables and pictures are made from that object and nothing else, so that --json,
 * text and HTML cannot tell different things.
 *
 * Names with a meaning for pictures: "blocks" (the network), "program" (loops of an optimized
 * program), "loops" (of a text), "memory_over_step".
 */
#ifndef TOOLS_REPORT_INSPECT_H
#define TOOLS_REPORT_INSPECT_H

#include "tools/cli/cmd.h"
#include "tools/cli/text_buffer.h"

typedef struct inspect_options {
    const char *html, *svg;
    bool verify; /* read every file of which a hash is recorded */
    int top;
} inspect_options;

/* Finds out what lies at `path` and all about it; the caller frees the object. What is no file of
 * ttt, or damaged, is a status that says so. */
PJRT_MUST_CHECK pjrt_status *inspect(const char *path, const inspect_options *options,
                                     json_t **about);

/* One kind each. They add to `about`. */
PJRT_MUST_CHECK pjrt_status *inspect_bundle(const char *path, bool verify, json_t *about);
PJRT_MUST_CHECK pjrt_status *inspect_model(const char *path, bool verify, json_t *about);
PJRT_MUST_CHECK pjrt_status *inspect_run(const char *path, bool verify, json_t *about);
PJRT_MUST_CHECK pjrt_status *inspect_tensors(const char *path, json_t *about);
PJRT_MUST_CHECK pjrt_status *inspect_data(const char *path, bool verify, json_t *about);
PJRT_MUST_CHECK pjrt_status *inspect_state(const char *path, json_t *about);
PJRT_MUST_CHECK pjrt_status *inspect_executable(const char *path, json_t *about);
PJRT_MUST_CHECK pjrt_status *inspect_optimized(const char *bytes, size_t size, json_t *about);
PJRT_MUST_CHECK pjrt_status *inspect_text(const char *bytes, size_t size, json_t *about);
PJRT_MUST_CHECK pjrt_status *inspect_bytecode(const char *bytes, size_t size, json_t *about);

/* The network of a config.json: its fields that matter, and "blocks" with shapes and sizes. */
PJRT_MUST_CHECK pjrt_status *inspect_network(const char *config, json_t *about);
/* Compares the files of a list {"name", "bytes", "xxh3_128"} in a folder with what is recorded. */
PJRT_MUST_CHECK pjrt_status *inspect_verify_files(const char *folder, const json_t *files);

/* ---- showing ---- */

/* A value in a few words: quantities by their names, lists joined; into one of a few static places.
 */
const char *inspect_value_text(const char *name, const json_t *value);
void inspect_print(const json_t *about, int top);
/* A page that needs nothing else, and its picture alone; `out` is empty when there is none. */
PJRT_MUST_CHECK pjrt_status *inspect_html(const json_t *about, text_buffer *out);
PJRT_MUST_CHECK pjrt_status *inspect_svg(const json_t *about, text_buffer *out);

#endif
