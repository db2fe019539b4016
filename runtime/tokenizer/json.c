/* Hugging Face tokenizer.json: vocabulary, merges and added tokens. */
#include "runtime/tokenizer/json.h"

#include <stdlib.h>

static const char where[] = "tokenizer";

/* ---- model ---- */

static pjrt_status *read_vocab(const json_t *json, ttt__vocab *vocab)
{
    const char *text;
    json_t *id, *entries = json_object_get(json, "vocab");
    if (!json_is_object(entries))
        return PJRT_FAIL(INVALID_ARGUMENT, where, "the model has no vocab");
    json_object_foreach(entries, text, id)
    {
        if (!json_is_integer(id))
            return PJRT_FAIL(INVALID_ARGUMENT, where, "the number of \"%.60s\" is none", text);
        PJRT_TRY(ttt__vocab_set(vocab, json_integer_value(id), text, strlen(text), 0));
    }
    return NULL;
}

/* The two parts of a merge: "a b", or ["a", "b"]. */
static bool parts_of(const json_t *merge, const char *part[2], size_t size[2])
{
    if (json_is_array(merge) && json_array_size(merge) == 2) {
        for (size_t i = 0; i < 2; i++) {
            part[i] = json_string_value(json_array_get(merge, i));
            size[i] = json_string_length(json_array_get(merge, i));
        }
        return part[0] != NULL && part[1] != NULL;
    }
    const char *text = json_string_value(merge), *space = text == NULL ? NULL : strchr(text, ' ');
    if (space == NULL || strchr(space + 1, ' ') != NULL)
        return false;
    part[0] = text;
    size[0] = (size_t)(space - text);
    part[1] = space + 1;
    size[1] = strlen(space + 1);
    return true;
}

static pjrt_status *read_merge(const json_t *merge, size_t rank, ttt_tokenizer *tokenizer)
{
    const ttt__vocab *vocab = &tokenizer->vocab;
    const char *part[2];
    size_t size[2];
    char whole[2 * TTT__MAX_TOKEN];
    if (!parts_of(merge, part, size) || size[0] > TTT__MAX_TOKEN || size[1] > TTT__MAX_TOKEN)
        return PJRT_FAIL(INVALID_ARGUMENT, where, "merge %zu is not two texts", rank);
    memcpy(whole, part[0], size[0]);
    memcpy(whole + size[0], part[1], size[1]);
    ttt__pair pair = {.left = ttt__vocab_find(vocab, part[0], size[0]),
                      .right = ttt__vocab_find(vocab, part[1], size[1]),
                      .merged = ttt__vocab_find(vocab, whole, size[0] + size[1]),
                      .rank = (uint32_t)rank};
    if (pair.left < 0 || pair.right < 0 || pair.merged < 0)
        return PJRT_FAIL(INVALID_ARGUMENT, where,
                         "merge %zu, \"%.60s\" and \"%.60s\": not in the vocabulary", rank, part[0],
                         part[1]);
    return ttt__pairs_add(&tokenizer->bpe.pairs, pair);
}

static bool is_empty_text(const json_t *json)
{
    return json == NULL || json_is_null(json) ||
           (json_is_string(json) && json_string_length(json) == 0);
}

/* Refuses model features that are not supported. */
static pjrt_status *check_model(const json_t *json)
{
    const json_t *type = json_object_get(json, "type");
    if (type != NULL && strcmp(ttt__json_type(json), "BPE") != 0)
        return PJRT_FAIL(UNIMPLEMENTED, where,
                         "the model \"%.60s\" of a tokenizer.json is not supported: only BPE",
                         ttt__json_type(json));
    static const char *const texts[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (int i = 0; i < 2; i++) {
        if (!is_empty_text(json_object_get(json, texts[i])))
            return PJRT_FAIL(UNIMPLEMENTED, where, "%s of a BPE is not supported", texts[i]);
    }
    const json_t *dropout = json_object_get(json, "dropout");
    if (json_is_number(dropout) && json_number_value(dropout) > 0)
        return PJRT_FAIL(UNIMPLEMENTED, where, "dropout of a BPE is not supported");
    return NULL;
}

static void find_bytes(ttt_tokenizer *tokenizer)
{
    static const char digits[] = "0123456789ABCDEF";
    ttt__bpe *bpe = &tokenizer->bpe;
    for (int i = 0; i < 256; i++) {
        char text[6] = {'<', '0', 'x', digits[i >> 4], digits[i & 15], '>'};
        int size = 6;
        if (bpe->byte_level)
            size = ttt__utf8_put(ttt__char_of_byte((unsigned char)i), text);
        bpe->byte_ids[i] = ttt__vocab_find(&tokenizer->vocab, text, (size_t)size);
    }
}

static pjrt_status *read_model(const json_t *json, ttt_tokenizer *tokenizer)
{
    ttt__bpe *bpe = &tokenizer->bpe;
    PJRT_TRY(check_model(json));
    PJRT_TRY(read_vocab(json, &tokenizer->vocab));
    const json_t *merges = json_object_get(json, "merges");
    if (!json_is_array(merges))
        return PJRT_FAIL(INVALID_ARGUMENT, where, "the model has no merges");
    for (size_t i = 0; i < json_array_size(merges); i++)
        PJRT_TRY(read_merge(json_array_get(merges, i), i, tokenizer));
    const json_t *unknown = json_object_get(json, "unk_token");
    bpe->unknown = -1;
    if (json_is_string(unknown)) {
        bpe->unknown = ttt__vocab_find(&tokenizer->vocab, json_string_value(unknown),
                                       json_string_length(unknown));
        if (bpe->unknown < 0)
            return PJRT_FAIL(INVALID_ARGUMENT, where, "the unk_token is not in the vocabulary");
    }
    tokenizer->about.unknown = bpe->unknown;
    bpe->byte_fallback = ttt__json_bool(json, "byte_fallback", false);
    bpe->fuse_unknown = ttt__json_bool(json, "fuse_unk", false);
    bpe->whole_words = ttt__json_bool(json, "ignore_merges", false);
    bpe->mapped = bpe->byte_level;
    find_bytes(tokenizer);
    ttt__bpe_finish(tokenizer, !bpe->byte_level && !bpe->whole_words);
    return NULL;
}

/* ---- added tokens ---- */

static pjrt_status *keep_normal(ttt_tokenizer *tokenizer, ttt__normal_texts *normal, int32_t id,
                                const char *text, size_t size)
{
    if (normal->at == NULL) {
        normal->at = calloc((size_t)tokenizer->vocab.room, sizeof *normal->at);
        if (normal->at == NULL || !ttt__text_add(&normal->texts, "", 1))
            return PJRT_NO_MEMORY(where);
    }
    normal->at[id] = (uint32_t)normal->texts.size;
    if (!ttt__text_add(&normal->texts, text, size) || !ttt__text_add(&normal->texts, "", 1))
        return PJRT_NO_MEMORY(where);
    return NULL;
}

/* The id of a token in the vocabulary, or a new one. */
static pjrt_status *number_token(const json_t *json, ttt_tokenizer *tokenizer, int32_t *id)
{
    const json_t *content = json_object_get(json, "content");
    const json_t *number = json_object_get(json, "id");
    if (!json_is_string(content) || !json_is_integer(number))
        return PJRT_FAIL(INVALID_ARGUMENT, where, "an added token has no content or no id");
    const char *text = json_string_value(content);
    size_t size = json_string_length(content);
    unsigned flags = ttt__json_bool(json, "special", false) ? TTT__SPECIAL : 0;
    *id = ttt__vocab_find(&tokenizer->vocab, text, size);
    int64_t wanted = *id >= 0 ? *id : json_integer_value(number);
    PJRT_TRY(ttt__vocab_set(&tokenizer->vocab, wanted, text, size, flags));
    *id = (int32_t)wanted;
    return NULL;
}

static pjrt_status *add_token(const json_t *json, ttt_tokenizer *tokenizer, ttt_encoder *encoder,
                              ttt__normal_texts *normal)
{
    const json_t *content = json_object_get(json, "content");
    int32_t id =
        ttt__vocab_find(&tokenizer->vocab, json_string_value(content), json_string_length(content));
    bool special = ttt__json_bool(json, "special", false);
    unsigned flags = (ttt__json_bool(json, "lstrip", false) ? TTT__LSTRIP : 0) |
                     (ttt__json_bool(json, "rstrip", false) ? TTT__RSTRIP : 0) |
                     (ttt__json_bool(json, "single_word", false) ? TTT__SINGLE_WORD : 0) |
                     (special ? TTT__ADDED_SPECIAL : 0);
    const char *text = json_string_value(content);
    size_t size = json_string_length(content);
    if (size == 0)
        return NULL;
    if (!ttt__json_bool(json, "normalized", !special))
        return ttt__added_add(&tokenizer->added, text, size, id, flags);
    PJRT_TRY(ttt__normalize(&tokenizer->normalizers, encoder, &text, &size));
    if (size != json_string_length(content) || memcmp(text, json_string_value(content), size) != 0)
        PJRT_TRY(keep_normal(tokenizer, normal, id, text, size));
    return size == 0 ? NULL : ttt__added_add(&tokenizer->normalized, text, size, id, flags);
}

static pjrt_status *read_added(const json_t *list, ttt_tokenizer *tokenizer,
                               ttt__normal_texts *normal)
{
    ttt_encoder *encoder;
    int32_t id;
    for (size_t i = 0; i < json_array_size(list); i++)
        PJRT_TRY(number_token(json_array_get(list, i), tokenizer, &id));
    PJRT_TRY(ttt_encoder_new(tokenizer, &encoder));
    pjrt_status *st = NULL;
    for (size_t i = 0; st == NULL && i < json_array_size(list); i++)
        st = add_token(json_array_get(list, i), tokenizer, encoder, normal);
    ttt_encoder_free(encoder);
    return st;
}

/* ---- BOS and EOS ---- */

static int32_t id_of_special(const json_t *template, const json_t *item)
{
    const char *name =
        json_string_value(json_object_get(json_object_get(item, "SpecialToken"), "id"));
    const json_t *tokens = json_object_get(template, "special_tokens");
    const json_t *ids = name == NULL ? NULL : json_object_get(json_object_get(tokens, name), "ids");
    const json_t *id = json_array_get(ids, 0);
    return json_is_integer(id) && json_integer_value(id) >= 0 && json_integer_value(id) < INT32_MAX
               ? (int32_t)json_integer_value(id)
               : -1;
}

static bool is_token(const ttt_tokenizer *tokenizer, int32_t id)
{
    return id >= 0 && id < tokenizer->vocab.count && tokenizer->vocab.flags[id] & TTT__THERE;
}

/* The single-sequence template: what precedes the text is BOS, what follows it is EOS. */
static void read_bos_eos(const json_t *json, ttt_tokenizer *tokenizer)
{
    if (strcmp(ttt__json_type(json), "Sequence") == 0) {
        const json_t *list = json_object_get(json, "processors");
        for (size_t i = 0; i < json_array_size(list); i++)
            read_bos_eos(json_array_get(list, i), tokenizer);
        return;
    }
    if (strcmp(ttt__json_type(json), "TemplateProcessing") != 0)
        return;
    const json_t *items = json_object_get(json, "single");
    bool after = false;
    for (size_t i = 0; i < json_array_size(items); i++) {
        const json_t *item = json_array_get(items, i);
        int32_t id = id_of_special(json, item),
                *mark = after ? &tokenizer->about.eos : &tokenizer->about.bos;
        if (json_object_get(item, "Sequence") != NULL)
            after = true;
        else if (is_token(tokenizer, id) && *mark < 0)
            *mark = id;
    }
}

/* ---- entry point ---- */

static pjrt_status *read_json(const json_t *json, ttt_tokenizer *tokenizer)
{
    ttt__normal_texts normal = {0};
    if (!json_is_object(json_object_get(json, "model")))
        return PJRT_FAIL(INVALID_ARGUMENT, where, "there is no model in it");
    PJRT_TRY(ttt__json_normalizer(json_object_get(json, "normalizer"), &tokenizer->normalizers));
    PJRT_TRY(ttt__json_pre_tokenizer(json_object_get(json, "pre_tokenizer"), tokenizer));
    PJRT_TRY(read_model(json_object_get(json, "model"), tokenizer));
    pjrt_status *st = read_added(json_object_get(json, "added_tokens"), tokenizer, &normal);
    if (st == NULL)
        st = ttt__json_decoder(json_object_get(json, "decoder"), tokenizer, &normal);
    free(normal.at);
    free(normal.texts.data);
    PJRT_TRY(st);
    const json_t *pad = json_object_get(json_object_get(json, "padding"), "pad_id");
    if (json_is_integer(pad) && json_integer_value(pad) >= 0 &&
        json_integer_value(pad) < tokenizer->vocab.count)
        tokenizer->about.pad = (int32_t)json_integer_value(pad);
    read_bos_eos(json_object_get(json, "post_processor"), tokenizer);
    ttt__set_specials_by_name(tokenizer);
    tokenizer->about.kind = "bpe";
    tokenizer->encode = ttt__encode_piece;
    return NULL;
}

pjrt_status *ttt__json_make(ttt_tokenizer *tokenizer, const char *name, const char *bytes,
                            size_t size)
{
    json_error_t error;
    json_t *json = json_loadb(bytes, size, 0, &error);
    if (json == NULL)
        return PJRT_FAIL(INVALID_ARGUMENT, where, "%s: line %d: %.100s", name, error.line,
                         error.text);
    pjrt_status *st = read_json(json, tokenizer);
    json_decref(json);
    return st;
}
