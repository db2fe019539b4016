/* manifest.json: written once, trusted never. */
#include "runtime/manifest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

static const char call[] = "checkpoint";
static const char format[] = "ttt-checkpoint";

enum { VERSION = 1, DIGITS = 16 };

/* ---- hashes as text ----------------------------------------------------------------------------
 */

static void put_hex(char out[DIGITS + 1], uint64_t value)
{
    snprintf(out, DIGITS + 1, "%016llx", (unsigned long long)value);
}

/* Sixteen digits, as put_hex writes them. */
static bool get_hex(const char *text, uint64_t *value)
{
    *value = 0;
    for (int i = 0; i < DIGITS; i++) {
        char c = text[i];
        if (!(c >= '0' && c <= '9') && !(c >= 'a' && c <= 'f'))
            return false;
        *value = *value << 4 | (uint64_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    return true;
}

/* ---- the last line -----------------------------------------------------------------------------
 */

static const char tail_start[] = ",\n \"xxh3_128\": \"", tail_end[] = "\"\n}\n";

enum { TAIL = sizeof tail_start - 1 + 2 * DIGITS + sizeof tail_end - 1 };

static void tail_of(const char *text, size_t size, char out[TAIL + 1])
{
    XXH128_hash_t hash = XXH3_128bits(text, size);
    snprintf(out, TAIL + 1, "%s%016llx%016llx%s", tail_start, (unsigned long long)hash.high64,
             (unsigned long long)hash.low64, tail_end);
}

char *ttt__manifest_seal(const char *object, size_t size)
{
    if (size > 0 && object[size - 1] == '}')
        size--;
    if (size > 0 && object[size - 1] == '\n')
        size--;
    char *text = malloc(size + TAIL + 1);
    if (text == NULL)
        return NULL;
    memcpy(text, object, size);
    tail_of(text, size, text + size);
    return text;
}

static bool sealed(const char *text, size_t size)
{
    char tail[TAIL + 1];
    if (size < TAIL)
        return false;
    tail_of(text, size - TAIL, tail);
    return memcmp(text + size - TAIL, tail, TAIL) == 0;
}

/* ---- writing -----------------------------------------------------------------------------------
 */

static json_t *file_json(const ttt__digest *digest)
{
    char whole[2 * DIGITS + 1];
    int64_t count = ttt__digest_pieces(digest->size);
    char *pieces = malloc((size_t)count * DIGITS + 1);
    if (pieces == NULL)
        return NULL;
    pieces[0] = '\0';
    for (int64_t i = 0; i < count; i++)
        put_hex(pieces + i * DIGITS, digest->pieces[i]);
    put_hex(whole, digest->whole[0]);
    put_hex(whole + DIGITS, digest->whole[1]);
    json_t *object = json_pack("{s:I, s:s, s:s}", "size", (json_int_t)digest->size, "xxh3_128",
                               whole, "xxh3_64_of_each_mib", pieces);
    free(pieces);
    return object;
}

/* NULL when out of memory, or when a name is not UTF-8. */
static json_t *manifest_json(const ttt__manifest *manifest)
{
    json_t *root = json_pack("{s:s, s:i, s:I, s:{}}", "format", format, "version", VERSION, "step",
                             (json_int_t)manifest->step, "files");
    json_t *files = json_object_get(root, "files");
    bool ok = files != NULL;
    for (int i = 0; ok && i < manifest->count; i++)
        ok = json_object_set_new(files, manifest->files[i].name,
                                 file_json(&manifest->files[i].digest)) == 0;
    ok = ok && json_object_set_new(root, "training", json_deep_copy(manifest->training)) == 0;
    if (ok)
        return root;
    json_decref(root);
    return NULL;
}

pjrt_status *ttt__manifest_write(const ttt__manifest *manifest, char **text)
{
    *text = NULL;
    json_t *root = manifest_json(manifest);
    char *object = root == NULL ? NULL : json_dumps(root, JSON_INDENT(1));
    json_decref(root);
    size_t size = object == NULL ? 0 : strlen(object);
    if (object != NULL && size <= TTT__MOST_MANIFEST - TAIL)
        *text = ttt__manifest_seal(object, size);
    free(object);
    if (size > TTT__MOST_MANIFEST - TAIL)
        return PJRT_FAIL(RESOURCE_EXHAUSTED, call, "a manifest of %zu bytes is too large", size);
    return *text != NULL ? NULL : PJRT_NO_MEMORY(call);
}

/* ---- reading -----------------------------------------------------------------------------------
 */

static pjrt_status *bad(const char *why)
{
    return PJRT_FAIL(DATA_LOSS, call, "not a manifest: %s", why);
}

/* A name in the folder, and nothing else. */
static bool plain_name(const char *name)
{
    return name[0] != '\0' && name[0] != '.' && strchr(name, '/') == NULL &&
           strlen(name) <= NAME_MAX;
}

static pjrt_status *parse_digest(const json_t *entry, ttt__digest *out)
{
    const json_t *size = json_object_get(entry, "size");
    const json_t *whole = json_object_get(entry, "xxh3_128");
    const json_t *pieces = json_object_get(entry, "xxh3_64_of_each_mib");
    if (!json_is_integer(size) || json_integer_value(size) < 0)
        return bad("a file has no size");
    out->size = json_integer_value(size);
    if (!json_is_string(whole) || json_string_length(whole) != 2 * DIGITS ||
        !get_hex(json_string_value(whole), &out->whole[0]) ||
        !get_hex(json_string_value(whole) + DIGITS, &out->whole[1]))
        return bad("a file has no xxh3_128");
    int64_t count = ttt__digest_pieces(out->size);
    if (!json_is_string(pieces) || json_string_length(pieces) % DIGITS != 0 ||
        json_string_length(pieces) / DIGITS != (size_t)count)
        return bad("a file has not one hash a MiB");
    out->pieces = calloc((size_t)count + 1, sizeof *out->pieces);
    if (out->pieces == NULL)
        return PJRT_NO_MEMORY(call);
    for (int64_t i = 0; i < count; i++) {
        if (!get_hex(json_string_value(pieces) + i * DIGITS, &out->pieces[i]))
            return bad("a hash is not hexadecimal");
    }
    return NULL;
}

static pjrt_status *parse_files(json_t *files, ttt__manifest *out)
{
    const char *name;
    json_t *entry;
    if (!json_is_object(files) || json_object_size(files) > TTT__MOST_FILES)
        return bad("it names no files, or too many");
    out->files = calloc(json_object_size(files) + 1, sizeof *out->files);
    if (out->files == NULL)
        return PJRT_NO_MEMORY(call);
    json_object_foreach(files, name, entry)
    {
        ttt__manifest_file *file = &out->files[out->count++];
        if (!plain_name(name))
            return bad("a file's name is not plain");
        file->name = strdup(name);
        if (file->name == NULL)
            return PJRT_NO_MEMORY(call);
        PJRT_TRY(parse_digest(entry, &file->digest));
    }
    return NULL;
}

static pjrt_status *parse_object(json_t *root, ttt__manifest *out)
{
    const json_t *kind = json_object_get(root, "format"), *step = json_object_get(root, "step");
    const json_t *version = json_object_get(root, "version");
    json_t *training = json_object_get(root, "training");
    if (!json_is_string(kind) || strcmp(json_string_value(kind), format) != 0)
        return bad("its format is not \"ttt-checkpoint\"");
    if (!json_is_integer(version) || json_integer_value(version) < 1)
        return bad("it has no version");
    if (json_integer_value(version) > VERSION)
        return PJRT_FAIL(UNIMPLEMENTED, call,
                         "version %lld is newer than this program, which reads up to %d",
                         (long long)json_integer_value(version), VERSION);
    if (!json_is_integer(step) || json_integer_value(step) < 0)
        return bad("it has no step");
    if (!json_is_object(training))
        return bad("it has no training");
    out->step = json_integer_value(step);
    out->training = json_incref(training);
    return parse_files(json_object_get(root, "files"), out);
}

pjrt_status *ttt__manifest_parse(const char *text, size_t size, ttt__manifest *out)
{
    json_error_t error;
    *out = (ttt__manifest){0};
    if (!sealed(text, size))
        return PJRT_FAIL(DATA_LOSS, call, "changed or cut since it was written");
    json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL)
        return json_error_code(&error) == json_error_out_of_memory ? PJRT_NO_MEMORY(call)
                                                                   : bad(error.text);
    pjrt_status *st = parse_object(root, out);
    json_decref(root);
    if (st != NULL)
        ttt__manifest_free(out);
    return st;
}

void ttt__manifest_free(ttt__manifest *manifest)
{
    for (int i = 0; i < manifest->count; i++) {
        free(manifest->files[i].name);
        ttt__digest_free(&manifest->files[i].digest);
    }
    free(manifest->files);
    json_decref(manifest->training);
    *manifest = (ttt__manifest){0};
}
