/* Manifests: sealed JSON with a list of files; written once, trusted never. */
#include "runtime/base/hashed_manifest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

static const char call[] = "manifest";

enum { DIGITS = 16 };

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

pjrt_status *ttt__manifest_text(json_t *root, char **text)
{
    *text = NULL;
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

pjrt_status *ttt__manifest_bad(const char *why)
{
    return PJRT_FAIL(DATA_LOSS, call, "not a manifest: %s", why);
}

static pjrt_status *check_format(const json_t *root, const char *format, int version)
{
    const json_t *kind = json_object_get(root, "format");
    const json_t *number = json_object_get(root, "version");
    if (!json_is_string(kind) || strcmp(json_string_value(kind), format) != 0)
        return PJRT_FAIL(DATA_LOSS, call, "not a manifest: its format is not \"%s\"", format);
    if (!json_is_integer(number) || json_integer_value(number) < 1)
        return ttt__manifest_bad("it has no version");
    if (json_integer_value(number) > version)
        return PJRT_FAIL(UNIMPLEMENTED, call,
                         "version %lld is newer than this program, which reads up to %d",
                         (long long)json_integer_value(number), version);
    return NULL;
}

pjrt_status *ttt__manifest_root(const char *text, size_t size, const char *format, int version,
                                json_t **root)
{
    json_error_t error;
    *root = NULL;
    if (!sealed(text, size))
        return PJRT_FAIL(DATA_LOSS, call, "changed or cut since it was written");
    json_t *found = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
    if (found == NULL)
        return json_error_code(&error) == json_error_out_of_memory ? PJRT_NO_MEMORY(call)
                                                                   : ttt__manifest_bad(error.text);
    pjrt_status *st = check_format(found, format, version);
    if (st != NULL)
        json_decref(found);
    else
        *root = found;
    return st;
}

pjrt_status *ttt__manifest_in(pjrt_status *st, const char *path)
{
    pjrt_code code = pjrt_status_code(st);
    if (st == NULL)
        return NULL;
    if (code == PJRT_CODE_NOT_FOUND)
        code = PJRT_CODE_DATA_LOSS;
    const char *message = pjrt_status_message(st);
    bool named = strncmp(message, path, strlen(path)) == 0;
    pjrt_status *more = pjrt_status_make(code, call, __FILE__, __LINE__, "%s%s%s",
                                         named ? "" : path, named ? "" : ": ", message);
    pjrt_status_free(st);
    return more;
}

/* ---- files -------------------------------------------------------------------------------------
 */

bool ttt__plain_name(const char *name)
{
    return name[0] != '\0' && name[0] != '.' && strchr(name, '/') == NULL &&
           strlen(name) <= NAME_MAX;
}

pjrt_status *ttt__manifest_digest(const char *folder, const ttt__names *names,
                                  ttt__manifest_files *out)
{
    char path[PATH_MAX];
    if (names->count > TTT__MOST_FILES)
        return PJRT_FAIL(RESOURCE_EXHAUSTED, call, "%d files are too many: let shards be larger",
                         names->count);
    out->list = calloc((size_t)names->count + 1, sizeof *out->list);
    if (out->list == NULL)
        return PJRT_NO_MEMORY(call);
    for (int i = 0; i < names->count; i++) {
        ttt__manifest_file *file = &out->list[out->count++];
        file->name = strdup(names->list[i]);
        if (file->name == NULL)
            return PJRT_NO_MEMORY(call);
        PJRT_TRY(ttt__path_join(folder, file->name, path));
        PJRT_TRY(ttt__digest_file(path, NULL, &file->digest));
    }
    return NULL;
}

pjrt_status *ttt__manifest_verify(const char *folder, const ttt__manifest_files *files, int first,
                                  int step)
{
    char path[PATH_MAX];
    for (int i = first; i < files->count; i += step) {
        ttt__digest found;
        PJRT_TRY(ttt__path_join(folder, files->list[i].name, path));
        PJRT_TRY(ttt__digest_file(path, &files->list[i].digest, &found));
        ttt__digest_free(&found);
    }
    return NULL;
}

int ttt__manifest_find(const ttt__manifest_files *files, const char *name)
{
    for (int i = 0; i < files->count; i++) {
        if (strcmp(files->list[i].name, name) == 0)
            return i;
    }
    return -1;
}

void ttt__manifest_files_free(ttt__manifest_files *files)
{
    for (int i = 0; i < files->count; i++) {
        free(files->list[i].name);
        ttt__digest_free(&files->list[i].digest);
    }
    free(files->list);
    *files = (ttt__manifest_files){0};
}

/* ---- files in JSON -----------------------------------------------------------------------------
 */

static json_t *file_json(const ttt__digest *digest)
{
    char whole[2 * DIGITS + 1];
    int64_t count = ttt__digest_chunks(digest->size);
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

json_t *ttt__manifest_files_json(const ttt__manifest_files *files)
{
    json_t *object = json_object();
    for (int i = 0; object != NULL && i < files->count; i++) {
        if (json_object_set_new(object, files->list[i].name, file_json(&files->list[i].digest)) !=
            0) {
            json_decref(object);
            object = NULL;
        }
    }
    return object;
}

static pjrt_status *parse_digest(const json_t *entry, ttt__digest *out)
{
    const json_t *size = json_object_get(entry, "size");
    const json_t *whole = json_object_get(entry, "xxh3_128");
    const json_t *pieces = json_object_get(entry, "xxh3_64_of_each_mib");
    if (!json_is_integer(size) || json_integer_value(size) < 0)
        return ttt__manifest_bad("a file has no size");
    out->size = json_integer_value(size);
    if (!json_is_string(whole) || json_string_length(whole) != 2 * DIGITS ||
        !get_hex(json_string_value(whole), &out->whole[0]) ||
        !get_hex(json_string_value(whole) + DIGITS, &out->whole[1]))
        return ttt__manifest_bad("a file has no xxh3_128");
    int64_t count = ttt__digest_chunks(out->size);
    if (!json_is_string(pieces) || json_string_length(pieces) % DIGITS != 0 ||
        json_string_length(pieces) / DIGITS != (size_t)count)
        return ttt__manifest_bad("a file has not one hash a MiB");
    out->pieces = calloc((size_t)count + 1, sizeof *out->pieces);
    if (out->pieces == NULL)
        return PJRT_NO_MEMORY(call);
    for (int64_t i = 0; i < count; i++) {
        if (!get_hex(json_string_value(pieces) + i * DIGITS, &out->pieces[i]))
            return ttt__manifest_bad("a hash is not hexadecimal");
    }
    return NULL;
}

static pjrt_status *parse_files(json_t *object, ttt__manifest_files *out)
{
    const char *name;
    json_t *entry;
    if (!json_is_object(object) || json_object_size(object) > TTT__MOST_FILES)
        return ttt__manifest_bad("it names no files, or too many");
    out->list = calloc(json_object_size(object) + 1, sizeof *out->list);
    if (out->list == NULL)
        return PJRT_NO_MEMORY(call);
    json_object_foreach(object, name, entry)
    {
        ttt__manifest_file *file = &out->list[out->count++];
        if (!ttt__plain_name(name))
            return ttt__manifest_bad("a file's name is not plain");
        file->name = strdup(name);
        if (file->name == NULL)
            return PJRT_NO_MEMORY(call);
        PJRT_TRY(parse_digest(entry, &file->digest));
    }
    return NULL;
}

pjrt_status *ttt__manifest_files_parse(json_t *object, ttt__manifest_files *out)
{
    *out = (ttt__manifest_files){0};
    pjrt_status *st = parse_files(object, out);
    if (st != NULL)
        ttt__manifest_files_free(out);
    return st;
}
