/* What lies at a path: told by content, not by name. */
#include "runtime/ttt_bundle.h"
#include "tools/inspect.h"

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

/* ---- folders -----------------------------------------------------------------------------------
 */

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

/* ---- files -------------------------------------------------------------------------------------
 */

static bool starts(const char *bytes, size_t size, const char *magic, size_t length)
{
    return size >= length && memcmp(bytes, magic, length) == 0;
}

/* The size of a header of JSON comes first, in eight bytes. */
static bool is_safetensors(const char *bytes, size_t size)
{
    uint64_t header = 0;
    for (size_t i = 0; size > 8 && i < 8; i++)
        header |= (uint64_t)(unsigned char)bytes[i] << (8 * i);
    return size > 8 && header >= 2 && header <= size - 8 && bytes[8] == '{';
}

static bool ends(const char *path, const char *tail)
{
    size_t length = strlen(path), more = strlen(tail);
    return length >= more && strcmp(path + length - more, tail) == 0;
}

static bool looks_like_text(const char *bytes, size_t size)
{
    return size > 0 && memchr(bytes, '\0', size) == NULL;
}

/* An optimized program has no magic: it is one when it can be read as one. */
static pjrt_status *inspect_unmarked(const char *path, const char *bytes, size_t size,
                                     json_t *about)
{
    pjrt_status *st;
    if (looks_like_text(bytes, size)) {
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

static pjrt_status *inspect_bytes(const char *path, const char *bytes, size_t size, json_t *about)
{
    if (starts(bytes, size, "TTTEXE\n", 7)) {
        kind_is(about, "executable");
        return inspect_executable(path, about);
    }
    if (starts(bytes, size, "TTTSTATE", 8)) {
        kind_is(about, "state");
        return inspect_state(path, about);
    }
    if (starts(bytes, size, "ML\xefR", 4)) {
        kind_is(about, "StableHLO bytecode");
        return inspect_bytecode(bytes, size, about);
    }
    if (is_safetensors(bytes, size) || ends(path, ".safetensors") ||
        ends(path, ".safetensors.index.json")) {
        kind_is(about, "safetensors");
        return inspect_tensors(path, about);
    }
    return inspect_unmarked(path, bytes, size, about);
}

/* Weights may be larger than memory: of files with a magic the reader of their kind takes what it
 * needs, and only what has to be read as a whole is. */
static pjrt_status *inspect_file(const char *path, const struct stat *info, json_t *about)
{
    char head[16];
    char *bytes = NULL;
    size_t size = 0;
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return PJRT_FAIL(NOT_FOUND, "ttt", "cannot open %s: %s", path, strerror(errno));
    size_t read = fread(head, 1, sizeof head, file);
    fclose(file);
    json_object_set_new(about, "bytes", json_integer(info->st_size));
    if (starts(head, read, "TTT", 3) || ends(path, ".safetensors") ||
        (read > 8 && head[8] == '{' && head[7] == '\0'))
        return inspect_bytes(path, head, read < 16 ? read : (size_t)info->st_size, about);
    PJRT_TRY(cmd_read_file(path, &bytes, &size));
    pjrt_status *st = inspect_bytes(path, bytes, size, about);
    free(bytes);
    return st;
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
        st = inspect_file(path, &info, found);
    else
        st = PJRT_FAIL(INVALID_ARGUMENT, "ttt", "%s is neither a file nor a folder", path);
    if (st == NULL)
        *about = found;
    else
        json_decref(found);
    return st;
}
