/* What lies at a path: told by content, not by name. */
#include "runtime/bundle/ttt_bundle.h"
#include "tools/report/inspect.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool has(const char *folder, const char *name)
{
    char path[PATH_MAX];
    struct stat info;
    return snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path &&
           stat(path, &info) == 0;
}

static void kind_is(json_t *about, const char *kind)
{
    json_object_set_new(about, "kind", json_string(kind));
}

/* ---- folders ---- */

static pjrt_status *inspect_folder(const char *path, bool verify, json_t *about)
{
    if (ttt_bundle_is(path)) {
        kind_is(about, "bundle");
        return inspect_bundle(path, verify, about);
    }
    if (has(path, "checkpoints")) {
        kind_is(about, "run");
        return inspect_run(path, verify, about);
    }
    if (has(path, "config.json")) {
        kind_is(about, has(path, "manifest.json") ? "checkpoint" : "model");
        return inspect_model(path, verify, about);
    }
    if (has(path, "index.json") || has(path, "journal.json")) {
        kind_is(about, "prepared data");
        return inspect_data(path, verify, about);
    }
    return PJRT_FAIL(INVALID_ARGUMENT, "ttt",
                     "%s is no bundle, checkpoint, model, run or prepared data: it has neither "
                     "manifest.json, config.json, index.json nor checkpoints",
                     path);
}

/* ---- files ---- */

enum { HEAD = 16 };

/* The beginning of a file, and how large it is. */
typedef struct file_head {
    unsigned char bytes[HEAD]; /* zeros behind the end */
    uint64_t size;
} file_head;

static bool starts(const file_head *head, const char *magic, size_t length)
{
    return head->size >= length && memcmp(head->bytes, magic, length) == 0;
}

static bool ends(const char *path, const char *tail)
{
    size_t length = strlen(path), more = strlen(tail);
    return length >= more && strcmp(path + length - more, tail) == 0;
}

/* The size of a header of JSON comes first, in eight bytes. */
static bool is_safetensors(const char *path, const file_head *head)
{
    uint64_t header = 0;
    for (size_t i = 0; i < 8; i++)
        header |= (uint64_t)head->bytes[i] << (8 * i);
    return (head->size > 8 && header >= 2 && header <= head->size - 8 && head->bytes[8] == '{') ||
           ends(path, ".safetensors") || ends(path, ".safetensors.index.json");
}

/* Text, or an optimized program, which has no magic: it is one when it can be read as one. */
static pjrt_status *inspect_unmarked(const char *path, const char *bytes, size_t size,
                                     json_t *about)
{
    pjrt_status *st;
    if (memchr(bytes, '\0', size) == NULL) {
        kind_is(about, "StableHLO text");
        st = inspect_text(bytes, size, about);
    } else {
        kind_is(about, "optimized program");
        st = inspect_optimized(bytes, size, about);
    }
    if (st == NULL)
        return NULL;
    pjrt_status *told = PJRT_FAIL(
        INVALID_ARGUMENT, "ttt",
        "%s is no file of ttt: no bundle, executable, state, safetensors, StableHLO or optimized "
        "program (%s)",
        path, size == 0 ? "it is empty" : pjrt_status_message(st));
    pjrt_status_free(st);
    return told;
}

/* What has to be read as a whole. */
static pjrt_status *inspect_whole(const char *path, bool bytecode, json_t *about)
{
    char *bytes;
    size_t size;
    PJRT_TRY(cmd_read_file(path, &bytes, &size));
    if (bytecode)
        kind_is(about, "StableHLO bytecode");
    pjrt_status *st = bytecode ? inspect_bytecode(bytes, size, about)
                               : inspect_unmarked(path, bytes, size, about);
    free(bytes);
    return st;
}

static pjrt_status *read_head(const char *path, file_head *head)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return PJRT_FAIL(NOT_FOUND, "ttt", "cannot open %s: %s", path, strerror(errno));
    size_t read = fread(head->bytes, 1, HEAD, file);
    bool failed = ferror(file) != 0;
    fclose(file);
    if (failed || read < (head->size < HEAD ? head->size : HEAD))
        return PJRT_FAIL(DATA_LOSS, "ttt", "cannot read %s", path);
    return NULL;
}

/* Weights may be larger than memory: files that have a reader of their own are left to it. */
static pjrt_status *inspect_file(const char *path, uint64_t size, json_t *about)
{
    file_head head = {.size = size};
    PJRT_TRY(read_head(path, &head));
    json_object_set_new(about, "bytes", json_integer((json_int_t)size));
    if (starts(&head, "TTTEXE\n", 7)) {
        kind_is(about, "executable");
        return inspect_executable(path, about);
    }
    if (starts(&head, "TTTSTATE", 8)) {
        kind_is(about, "state");
        return inspect_state(path, about);
    }
    if (is_safetensors(path, &head)) {
        kind_is(about, "safetensors");
        return inspect_tensors(path, about);
    }
    return inspect_whole(path, starts(&head, "ML\xefR", 4), about);
}

pjrt_status *inspect(const char *path, const inspect_options *options, json_t **about)
{
    struct stat info;
    *about = NULL;
    if (stat(path, &info) != 0)
        return PJRT_FAIL(NOT_FOUND, "ttt", "cannot open %s: %s", path, strerror(errno));
    json_t *found = json_pack("{s:s, s:s}", "kind", "", "path", path);
    if (found == NULL)
        return PJRT_FAIL(INVALID_ARGUMENT, "ttt", "the path is not UTF-8");
    pjrt_status *st;
    if (S_ISDIR(info.st_mode))
        st = inspect_folder(path, options->verify, found);
    else if (S_ISREG(info.st_mode))
        st = inspect_file(path, (uint64_t)info.st_size, found);
    else
        st = PJRT_FAIL(INVALID_ARGUMENT, "ttt", "%s is neither a file nor a folder", path);
    if (st == NULL)
        *about = found;
    else
        json_decref(found);
    return st;
}
