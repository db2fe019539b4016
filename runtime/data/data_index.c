/*
 * Reads and writes index.json of a prepared folder. Nothing in the file is trusted: sums are
 * checked for overflow, names must be files beside the index, and errors name the missing or
 * mistyped field.
 */
#include "runtime/base/ttt_hash.h"
#include "runtime/data/data.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char where[] = "data";

enum { VERSION = 1, MOST_INDEX = 64 << 20, MOST_SHARDS = 1 << 20 };
#define MOST_TOKENS (INT64_C(1) << 56)

/* ---- hashes ---- */

void ttt__hash_hex(const uint64_t hash[2], char hex[TTT__HEX])
{
    ttt_hash_hex(hash[1], hash[0], hex);
}

bool ttt__hash_parse(const char *hex, uint64_t hash[2])
{
    hash[0] = hash[1] = 0;
    for (int i = 0; i < TTT__HEX - 1; i++) {
        static const char digits[] = "0123456789abcdef";
        const char *digit = hex[i] == '\0' ? NULL : strchr(digits, hex[i]);
        if (digit == NULL)
            return false;
        hash[1 - i / 16] = hash[1 - i / 16] << 4 | (uint64_t)(digit - digits);
    }
    return hex[TTT__HEX - 1] == '\0';
}

/* ---- reading ---- */

typedef struct source {
    const char *what; /* the file, for errors */
    const char *part; /* the object being read, for errors */
} source;

static pjrt_status *bad(const source *from, const char *key, const char *wants)
{
    return PJRT_FAIL(DATA_LOSS, where, "%s: \"%s\" of %s is not %s: prepare the data again",
                     from->what, key, from->part, wants);
}

static pjrt_status *get_number(const source *from, const json_t *object, const char *key,
                               int64_t low, int64_t high, int64_t *out)
{
    const json_t *value = json_object_get(object, key);
    *out = json_integer_value(value);
    if (!json_is_integer(value) || *out < low || *out > high)
        return bad(from, key, "a number that may stand there");
    return NULL;
}

static pjrt_status *get_text(const source *from, const json_t *object, const char *key,
                             char out[TTT__DATA_NAME])
{
    const json_t *value = json_object_get(object, key);
    size_t length = json_string_length(value);
    out[0] = '\0';
    if (!json_is_string(value) || length >= TTT__DATA_NAME)
        return bad(from, key, "a short text");
    memcpy(out, json_string_value(value), length + 1);
    return NULL;
}

/* A file name without a folder. */
static pjrt_status *get_name(const source *from, const json_t *object, const char *key,
                             char out[TTT__DATA_NAME])
{
    PJRT_TRY(get_text(from, object, key, out));
    if (out[0] == '\0' || out[0] == '.' || strchr(out, '/') != NULL)
        return bad(from, key, "the name of a file beside it");
    return NULL;
}

static pjrt_status *get_hash(const source *from, const json_t *object, uint64_t hash[2])
{
    const char *hex = json_string_value(json_object_get(object, "xxh3_128"));
    return hex != NULL && ttt__hash_parse(hex, hash) ? NULL : bad(from, "xxh3_128", "a hash");
}

static pjrt_status *read_tokenizer(const source *from, const json_t *object, ttt__data_index *index)
{
    int64_t bos = 0, eos = 0;
    if (!json_is_object(object))
        return bad(from, "tokenizer", "an object");
    const source here = {from->what, "the tokenizer"};
    PJRT_TRY(get_text(&here, object, "kind", index->kind));
    if (json_object_get(object, "file") != NULL)
        PJRT_TRY(get_name(&here, object, "file", index->file));
    else if (strcmp(index->kind, "bytes") != 0)
        return bad(&here, "file", "there");
    PJRT_TRY(get_hash(&here, object, index->hash));
    PJRT_TRY(get_number(&here, object, "vocab", 1, INT32_MAX, &index->vocab));
    PJRT_TRY(get_number(&here, object, "bos", -1, index->vocab - 1, &bos));
    PJRT_TRY(get_number(&here, object, "eos", -1, index->vocab - 1, &eos));
    index->bos = (int32_t)bos;
    index->eos = (int32_t)eos;
    return NULL;
}

static pjrt_status *read_shards(const source *from, const json_t *list, ttt__split *split)
{
    size_t count = json_array_size(list);
    if (count == 0 || count > MOST_SHARDS)
        return bad(from, "shards", "a list of shards");
    split->shards = calloc(count, sizeof *split->shards);
    if (split->shards == NULL)
        return PJRT_NO_MEMORY(where);
    for (split->count = 0; split->count < (int)count; split->count++) {
        const json_t *object = json_array_get(list, (size_t)split->count);
        ttt__shard *shard = &split->shards[split->count];
        PJRT_TRY(get_name(from, object, "name", shard->name));
        PJRT_TRY(get_number(from, object, "tokens", 1, MOST_TOKENS, &shard->tokens));
        PJRT_TRY(get_number(from, object, "documents", 0, shard->tokens, &shard->documents));
        PJRT_TRY(get_hash(from, object, shard->hash));
        split->tokens += shard->tokens;
        split->documents += shard->documents;
        if (split->tokens > MOST_TOKENS)
            return bad(from, "tokens", "a number that may stand there");
    }
    return NULL;
}

static pjrt_status *read_splits(const source *from, json_t *object, ttt__data_index *index)
{
    const char *name;
    json_t *value;
    if (!json_is_object(object) || json_object_size(object) > TTT__DATA_SPLITS)
        return bad(from, "splits", "an object of a few splits");
    json_object_foreach(object, name, value)
    {
        ttt__split *split = &index->splits[index->n_splits++];
        const source here = {from->what, "a split"};
        if (strlen(name) >= TTT__DATA_NAME)
            return bad(from, "splits", "of short names");
        memcpy(split->name, name, strlen(name) + 1);
        PJRT_TRY(read_shards(&here, json_object_get(value, "shards"), split));
    }
    return NULL;
}

static pjrt_status *read_all(const source *from, const json_t *root, ttt__data_index *index)
{
    char type[TTT__DATA_NAME];
    int64_t version;
    json_t *made = json_object_get(root, "made");
    PJRT_TRY(get_number(from, root, "version", 1, INT32_MAX, &version));
    if (version != VERSION)
        return PJRT_FAIL(UNIMPLEMENTED, where,
                         "%s: version %lld, but this program reads only version %d", from->what,
                         (long long)version, VERSION);
    PJRT_TRY(read_tokenizer(from, json_object_get(root, "tokenizer"), index));
    PJRT_TRY(get_text(from, root, "type", type));
    index->width = strcmp(type, "u16") == 0 ? 2 : strcmp(type, "u32") == 0 ? 4 : 0;
    if (index->width == 0)
        return bad(from, "type", "u16 or u32");
    if (!json_is_object(made))
        return bad(from, "made", "an object");
    index->made = json_incref(made);
    return read_splits(from, json_object_get(root, "splits"), index);
}

pjrt_status *ttt__data_index_parse(const char *what, const char *text, size_t size,
                                   ttt__data_index **out)
{
    json_error_t error;
    *out = NULL;
    json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL)
        return PJRT_FAIL(DATA_LOSS, where, "%s: line %d: %s", what, error.line, error.text);
    ttt__data_index *index = calloc(1, sizeof *index);
    pjrt_status *st =
        index == NULL ? PJRT_NO_MEMORY(where) : read_all(&(source){what, "the index"}, root, index);
    json_decref(root);
    if (st != NULL)
        ttt__data_index_free(index);
    else
        *out = index;
    return st;
}

pjrt_status *ttt__data_index_read(const char *folder, const char *name, ttt__data_index **out)
{
    char *text;
    size_t size;
    char *path = ttt__path_new(folder, name);
    *out = NULL;
    if (path == NULL)
        return PJRT_NO_MEMORY(where);
    pjrt_status *st = ttt__file_read(path, MOST_INDEX, &text, &size);
    if (st == NULL) {
        st = ttt__data_index_parse(path, text, size, out);
        free(text);
    }
    free(path);
    return st;
}

void ttt__data_index_free(ttt__data_index *index)
{
    if (index == NULL)
        return;
    for (int i = 0; i < index->n_splits; i++)
        free(index->splits[i].shards);
    json_decref(index->made);
    free(index);
}

/* ---- writing ---- */

/* An allocation failure gives NULL or an incomplete list or object; then `ok` is false. */
static json_t *shards_json(const ttt__split *split, bool *ok)
{
    json_t *list = json_array();
    for (int i = 0; i < split->count; i++) {
        const ttt__shard *shard = &split->shards[i];
        char hex[TTT__HEX];
        ttt__hash_hex(shard->hash, hex);
        *ok = json_array_append_new(list, json_pack("{s:s, s:I, s:I, s:s}", "name", shard->name,
                                                    "tokens", (json_int_t)shard->tokens,
                                                    "documents", (json_int_t)shard->documents,
                                                    "xxh3_128", hex)) == 0 &&
              *ok;
    }
    return list;
}

char *ttt__data_index_text(const ttt__data_index *index)
{
    char hex[TTT__HEX];
    bool ok = true;
    ttt__hash_hex(index->hash, hex);
    json_t *tokenizer =
        json_pack("{s:s, s:s*, s:s, s:I, s:i, s:i}", "kind", index->kind, "file",
                  index->file[0] == '\0' ? NULL : index->file, "xxh3_128", hex, "vocab",
                  (json_int_t)index->vocab, "bos", (int)index->bos, "eos", (int)index->eos);
    json_t *splits = json_object();
    for (int i = 0; i < index->n_splits; i++) {
        const ttt__split *split = &index->splits[i];
        if (split->count == 0)
            continue; /* no document fell into this split */
        json_t *value =
            json_pack("{s:I, s:I, s:o}", "tokens", (json_int_t)split->tokens, "documents",
                      (json_int_t)split->documents, "shards", shards_json(split, &ok));
        ok = json_object_set_new(splits, split->name, value) == 0 && ok;
    }
    json_t *root = json_pack("{s:i, s:s, s:o, s:o, s:O}", "version", VERSION, "type",
                             index->width == 2 ? "u16" : "u32", "tokenizer", tokenizer, "splits",
                             splits, "made", index->made);
    char *text = ok && root != NULL ? json_dumps(root, JSON_INDENT(1)) : NULL;
    json_decref(root);
    return text;
}
