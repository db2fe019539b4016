/* Bundles as they are found: a folder, its manifest, and whether they agree. */
#include "runtime/bundle/bundle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

static const char call[] = "bundle";
static const char manifest_name[] = "manifest.json";

/* ---- opening -----------------------------------------------------------------------------------
 */

static pjrt_status *read_manifest(const char *path, ttt_bundle **out)
{
    char file[PATH_MAX], *text;
    size_t size;
    *out = NULL;
    PJRT_TRY(ttt__path_join(path, manifest_name, file));
    pjrt_status *st = ttt__file_read(file, TTT__MOST_MANIFEST, &text, &size);
    if (pjrt_status_code(st) == PJRT_CODE_NOT_FOUND) {
        pjrt_status_free(st);
        return PJRT_FAIL(NOT_FOUND, call, "%s is no bundle: it has no %s", path, manifest_name);
    }
    if (st == NULL)
        st = ttt__bundle_parse(text, size, out);
    free(text);
    return ttt__manifest_in(st, file);
}

/* What the manifest does not know must not be there: weights and tokenizers are found by name. */
static pjrt_status *check_folder(const ttt_bundle *b)
{
    ttt__names names;
    pjrt_status *st = NULL;
    PJRT_TRY(ttt__folder_list(b->path, &names));
    for (int i = 0; i < names.count && st == NULL; i++) {
        if (strcmp(names.list[i], manifest_name) != 0 &&
            ttt__manifest_find(&b->files, names.list[i]) < 0)
            st = PJRT_FAIL(DATA_LOSS, call, "%s/%s is not in the manifest: take it away", b->path,
                           names.list[i]);
    }
    for (int i = 0; i < b->files.count && st == NULL; i++) {
        bool found = false;
        for (int k = 0; k < names.count && !found; k++)
            found = strcmp(names.list[k], b->files.list[i].name) == 0;
        if (!found)
            st = PJRT_FAIL(DATA_LOSS, call, "%s/%s is missing", b->path, b->files.list[i].name);
    }
    ttt__names_free(&names);
    return st;
}

pjrt_status *ttt_bundle_open(const char *path, ttt_bundle **out)
{
    ttt_bundle *b;
    *out = NULL;
    PJRT_TRY(read_manifest(path, &b));
    b->path = strdup(path);
    pjrt_status *st = b->path == NULL ? PJRT_NO_MEMORY(call) : check_folder(b);
    if (st != NULL)
        ttt_bundle_free(b);
    else
        *out = b;
    return st;
}

void ttt_bundle_free(ttt_bundle *b)
{
    if (b == NULL)
        return;
    for (int i = 0; i < b->n_kept; i++)
        free(b->kept[i]);
    free(b->kept);
    ttt__manifest_files_free(&b->files);
    json_decref(b->root);
    free(b->path);
    free(b);
}

const ttt_bundle_about *ttt_bundle_info(const ttt_bundle *b)
{
    return &b->about;
}

const char *ttt_bundle_path(const ttt_bundle *b)
{
    return b->path;
}

bool ttt_bundle_is(const char *path)
{
    static const char other[] = "\"format\": \"ttt-checkpoint\"";
    char file[PATH_MAX], *text = NULL;
    size_t size;
    pjrt_status *st = ttt__path_join(path, manifest_name, file);
    if (st == NULL)
        st = ttt__file_read(file, TTT__MOST_MANIFEST, &text, &size);
    bool is = st == NULL && strstr(text, other) == NULL;
    pjrt_status_free(st);
    free(text);
    return is;
}

/* ---- reading -----------------------------------------------------------------------------------
 */

pjrt_status *ttt_bundle_verify(ttt_bundle *b)
{
    if (b->verified)
        return NULL;
    PJRT_TRY(ttt__manifest_verify(b->path, &b->files, 0, 1));
    b->verified = true;
    return NULL;
}

pjrt_status *ttt__bundle_read(const ttt_bundle *b, const char *name, char **bytes, size_t *size)
{
    char file[PATH_MAX];
    int at = ttt__manifest_find(&b->files, name);
    *bytes = NULL;
    if (at < 0)
        return PJRT_FAIL(NOT_FOUND, call, "%s has no %s", b->path, name);
    const ttt__digest *digest = &b->files.list[at].digest;
    PJRT_TRY(ttt__path_join(b->path, name, file));
    PJRT_TRY(ttt__file_read(file, (size_t)digest->size, bytes, size));
    XXH128_hash_t hash = XXH3_128bits(*bytes, *size);
    if (*size == (size_t)digest->size && hash.high64 == digest->whole[0] &&
        hash.low64 == digest->whole[1])
        return NULL;
    free(*bytes);
    *bytes = NULL;
    return PJRT_FAIL(DATA_LOSS, call, "%s: changed since it was verified", file);
}

pjrt_status *ttt_bundle_tokenizer(ttt_bundle *b, ttt_tokenizer **out)
{
    char *bytes;
    size_t size;
    *out = NULL;
    PJRT_TRY(ttt_bundle_verify(b));
    if (strcmp(b->about.tokenizer, "bytes") == 0)
        return ttt_tokenizer_open("bytes", out);
    PJRT_TRY(ttt__bundle_read(b, b->about.tokenizer, &bytes, &size));
    pjrt_status *st = ttt_tokenizer_parse(b->about.tokenizer, bytes, size, out);
    free(bytes);
    return st;
}
