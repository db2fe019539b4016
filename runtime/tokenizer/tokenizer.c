/* Opens tokenizers, detects their kind, and answers queries. */
#include "runtime/tokenizer/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

static const char where[] = "tokenizer";

/* ---- decoded bytes of tokens ---- */

pjrt_status *ttt__plain_start(ttt_tokenizer *tokenizer)
{
    tokenizer->plain_at = calloc((size_t)tokenizer->vocab.count + 1, sizeof(uint32_t));
    return tokenizer->plain_at == NULL ? PJRT_NO_MEMORY(where) : NULL;
}

pjrt_status *ttt__plain_add(ttt_tokenizer *tokenizer, uint32_t *at, int32_t id, const char *bytes,
                            size_t size)
{
    if (tokenizer->plain.size + size > UINT32_MAX)
        return PJRT_FAIL(INVALID_ARGUMENT, where, "the vocabulary is too large");
    if (!ttt__text_add(&tokenizer->plain, bytes, size))
        return PJRT_NO_MEMORY(where);
    at[id + 1] = (uint32_t)tokenizer->plain.size;
    return NULL;
}

/* ---- BOS and EOS ---- */

static int32_t find_first(const ttt_tokenizer *tokenizer, const char *const *names)
{
    int32_t id = -1;
    for (; id < 0 && *names != NULL; names++)
        id = ttt__vocab_find(&tokenizer->vocab, *names, strlen(*names));
    return id;
}

void ttt__set_specials_by_name(ttt_tokenizer *tokenizer)
{
    static const char *const begins[] = {"<s>",   "<|begin_of_text|>", "<bos>", "<|startoftext|>",
                                         "[BOS]", "<|endoftext|>",     NULL};
    static const char *const ends[] = {"</s>",  "<|end_of_text|>", "<|endoftext|>",
                                       "<eos>", "[EOS]",           NULL};
    static const char *const pads[] = {"<pad>", "[PAD]", "<|pad|>", "<|finetune_right_pad_id|>",
                                       NULL};
    ttt_tokenizer_about *about = &tokenizer->about;
    if (about->bos < 0)
        about->bos = find_first(tokenizer, begins);
    if (about->eos < 0)
        about->eos = find_first(tokenizer, ends);
    if (about->pad < 0)
        about->pad = find_first(tokenizer, pads);
}

/* ---- bytes ---- */

static pjrt_status *encode_bytes(ttt_encoder *encoder, const char *text, size_t size, bool first,
                                 ttt_ids *ids)
{
    (void)encoder;
    (void)first;
    if (!ttt__ids_room(ids, size))
        return PJRT_NO_MEMORY(where);
    for (size_t i = 0; i < size; i++)
        ids->list[ids->count++] = (unsigned char)text[i];
    return NULL;
}

static pjrt_status *make_bytes(ttt_tokenizer *tokenizer)
{
    static const char *const specials[] = {"<s>", "</s>"};
    for (int i = 0; i < 256; i++) {
        char byte = (char)i;
        PJRT_TRY(ttt__vocab_set(&tokenizer->vocab, i, &byte, 1, TTT__BYTE));
    }
    for (int i = 0; i < 2; i++) {
        const char *text = specials[i];
        PJRT_TRY(ttt__vocab_set(&tokenizer->vocab, 256 + i, text, strlen(text), TTT__SPECIAL));
        PJRT_TRY(
            ttt__added_add(&tokenizer->added, text, strlen(text), 256 + i, TTT__ADDED_SPECIAL));
    }
    PJRT_TRY(ttt__plain_start(tokenizer));
    for (int i = 0; i < tokenizer->vocab.count; i++)
        PJRT_TRY(ttt__plain_add(tokenizer, tokenizer->plain_at, i,
                                ttt__vocab_text(&tokenizer->vocab, i),
                                tokenizer->vocab.tokens[i].size));
    tokenizer->about.kind = "bytes";
    tokenizer->about.bos = 256;
    tokenizer->about.eos = 257;
    tokenizer->takes_broken = true;
    tokenizer->encode = encode_bytes;
    return NULL;
}

/* ---- opening ---- */

static pjrt_status *make(ttt_tokenizer *tokenizer, const char *name, const char *bytes, size_t size)
{
    size_t at = 0;
    if (bytes == NULL)
        return make_bytes(tokenizer);
    while (at < size && strchr(" \t\r\n", bytes[at]) != NULL && bytes[at] != '\0')
        at++;
    if (at == size)
        return PJRT_FAIL(INVALID_ARGUMENT, where, "%s: the file is empty", name);
    if (bytes[at] == '{')
        return ttt__json_make(tokenizer, name, bytes, size);
    /* A sentencepiece protobuf starts with the tag of its first piece; a tiktoken table with
     * base64. */
    if (bytes[0] == '\n')
        return ttt__sentencepiece_make(tokenizer, name, bytes, size);
    return ttt__tiktoken_make(tokenizer, name, bytes, size);
}

pjrt_status *ttt_tokenizer_parse(const char *name, const void *bytes, size_t size,
                                 ttt_tokenizer **out)
{
    *out = NULL;
    ttt_tokenizer *tokenizer = calloc(1, sizeof *tokenizer);
    if (tokenizer == NULL)
        return PJRT_NO_MEMORY(where);
    ttt_tokenizer_about *about = &tokenizer->about;
    about->bos = about->eos = about->unknown = about->pad = -1;
    tokenizer->word = ttt__encode_word;
    pjrt_status *st = make(tokenizer, name, bytes, size);
    if (st != NULL) {
        ttt_tokenizer_free(tokenizer);
        return st;
    }
    if (about->vocab == 0)
        about->vocab = tokenizer->vocab.count;
    XXH128_hash_t hash = bytes == NULL ? XXH3_128bits("bytes", 5) : XXH3_128bits(bytes, size);
    about->hash[0] = hash.low64;
    about->hash[1] = hash.high64;
    *out = tokenizer;
    return NULL;
}

static pjrt_status *read_file(const char *path, ttt__text *out)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return PJRT_FAIL(NOT_FOUND, where,
                         "%s: %s (a tokenizer is \"bytes\", a tokenizer.json, a sentencepiece "
                         ".model or a .tiktoken file)",
                         path, strerror(errno));
    pjrt_status *st = NULL;
    for (size_t got = 1; st == NULL && got > 0;) {
        if (!ttt__text_room(out, 1 << 16)) {
            st = PJRT_NO_MEMORY(where);
            break;
        }
        got = fread(out->data + out->size, 1, out->room - out->size, file);
        out->size += got;
    }
    if (st == NULL && ferror(file))
        st = PJRT_FAIL(DATA_LOSS, where, "%s: %s", path, strerror(errno));
    fclose(file);
    return st;
}

pjrt_status *ttt_tokenizer_open(const char *name, ttt_tokenizer **out)
{
    ttt__text file = {0};
    *out = NULL;
    if (strcmp(name, "bytes") == 0)
        return ttt_tokenizer_parse(name, NULL, 0, out);
    pjrt_status *st = read_file(name, &file);
    if (st == NULL)
        st = ttt_tokenizer_parse(name, file.data, file.size, out);
    free(file.data);
    return st;
}

void ttt_tokenizer_free(ttt_tokenizer *tokenizer)
{
    if (tokenizer == NULL)
        return;
    ttt__vocab_free(&tokenizer->vocab);
    ttt__added_free(&tokenizer->added);
    ttt__added_free(&tokenizer->normalized);
    ttt__steps_free(&tokenizer->normalizers);
    ttt__steps_free(&tokenizer->steps);
    ttt__pairs_free(&tokenizer->bpe.pairs);
    ttt__sentencepiece_free(tokenizer->sp);
    free(tokenizer->plain.data);
    free(tokenizer->plain_at);
    free(tokenizer->first_at);
    free(tokenizer->stripped.data);
    free(tokenizer->joint.data);
    free(tokenizer);
}

/* ---- queries ---- */

const ttt_tokenizer_about *ttt_tokenizer_info(const ttt_tokenizer *tokenizer)
{
    return &tokenizer->about;
}

static bool is_token(const ttt_tokenizer *tokenizer, int32_t id)
{
    return id >= 0 && id < tokenizer->about.vocab && tokenizer->vocab.flags[id] & TTT__THERE;
}

const char *ttt_tokenizer_token(const ttt_tokenizer *tokenizer, int32_t id, size_t *size)
{
    if (!is_token(tokenizer, id))
        return NULL;
    *size = tokenizer->vocab.tokens[id].size;
    return ttt__vocab_text(&tokenizer->vocab, id);
}

int32_t ttt_tokenizer_find(const ttt_tokenizer *tokenizer, const char *token, size_t size)
{
    int32_t id = ttt__vocab_find(&tokenizer->vocab, token, size);
    return id < tokenizer->about.vocab ? id : -1;
}

bool ttt_tokenizer_is_special(const ttt_tokenizer *tokenizer, int32_t id)
{
    return is_token(tokenizer, id) && tokenizer->vocab.flags[id] & TTT__SPECIAL;
}
