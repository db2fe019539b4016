/* Readers of tokenizer files, and texts through what they read: any bytes as each kind of file,
 * with the last of them as the text. What is accepted encodes and decodes without harm. */
#include "runtime/tokenizer/ttt_tokenizer.h"

#include <stdlib.h>
#include <string.h>

static void check_ids(const ttt_tokenizer *tokenizer, const ttt_ids *ids)
{
    size_t size;
    for (size_t i = 0; i < ids->count; i++) {
        if (ttt_tokenizer_token(tokenizer, ids->list[i], &size) == NULL)
            abort();
    }
}

/* Token by token, all texts together are the whole. */
static void stream(const ttt_tokenizer *tokenizer, const ttt_ids *ids)
{
    ttt_decoder *decoder;
    const char *part;
    size_t size;
    if (ttt_decoder_new(tokenizer, 0, &decoder) != NULL)
        abort();
    for (size_t i = 0; i < ids->count; i++)
        pjrt_status_free(ttt_decoder_next(decoder, ids->list[i], &part, &size));
    pjrt_status_free(ttt_decoder_finish(decoder, &part, &size));
    ttt_decoder_free(decoder);
}

static void use(const ttt_tokenizer *tokenizer, const char *text, size_t size)
{
    ttt_encoder *encoder;
    ttt_ids ids = {0};
    char *back;
    size_t back_size;
    if (ttt_encoder_new(tokenizer, &encoder) != NULL)
        abort();
    for (int round = 0; round < 2; round++) { /* the second finds words of the first */
        pjrt_status *st = ttt_encode(encoder, text, size, round == 0 ? 0 : TTT_SPECIALS, &ids);
        pjrt_status_free(st);
    }
    check_ids(tokenizer, &ids);
    pjrt_status *st = ttt_decode(tokenizer, ids.list, ids.count, 0, &back, &back_size);
    if (st != NULL)
        abort();
    free(back);
    stream(tokenizer, &ids);
    free(ids.list);
    ttt_encoder_free(encoder);
}

static void try_file(const char *name, const char *bytes, size_t size, const char *text,
                     size_t text_size)
{
    ttt_tokenizer *tokenizer;
    pjrt_status *st = ttt_tokenizer_parse(name, bytes, size, &tokenizer);
    if (st != NULL) {
        const char *message = pjrt_status_message(st);
        if (tokenizer != NULL || message[0] == '\0')
            abort();
        pjrt_status_free(st);
        return;
    }
    use(tokenizer, text, text_size);
    ttt_tokenizer_free(tokenizer);
}

/* A tokenizer.json with the input as its steps: these few words no mutation would find. */
static void try_steps(const char *bytes, size_t size, const char *text, size_t text_size)
{
    static const char before[] =
        "{\"model\":{\"type\":\"BPE\",\"unk_token\":\"a\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,"
        "\"\xe2\x96\x81\":3,\"\xe2\x96\x81"
        "a\":4,\"<0x41>\":5},\"merges\":[\"a b\",[\"\xe2\x96\x81\","
        "\"a\"]]},";
    char *file = malloc(sizeof before + size);
    if (file == NULL)
        return;
    memcpy(file, before, sizeof before - 1);
    memcpy(file + sizeof before - 1, bytes, size);
    try_file("steps.json", file, sizeof before - 1 + size, text, text_size);
    free(file);
}

/* A table with all bytes, and the input behind it. */
static void try_table(const char *bytes, size_t size, const char *text, size_t text_size)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t at = 0, room = 256 * 16;
    char *file = malloc(room + size);
    if (file == NULL)
        return;
    for (int i = 0; i < 256; i++) {
        file[at++] = digits[i >> 2];
        file[at++] = digits[(i & 3) << 4];
        memcpy(file + at, "== ", 3);
        at += 3;
        file[at++] = (char)('0' + i / 100);
        file[at++] = (char)('0' + i / 10 % 10);
        file[at++] = (char)('0' + i % 10);
        file[at++] = '\n';
    }
    memcpy(file + at, bytes, size);
    try_file("o200k_base.tiktoken", file, at + size, text, text_size);
    free(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *bytes = (const char *)data;
    size_t text_size = size < 64 ? size / 2 : 64;
    const char *text = bytes + size - text_size;
    if (size == 0)
        return 0;
    try_file("x.json", bytes, size, text, text_size);
    try_file("cl100k_base.tiktoken", bytes, size - text_size, text, text_size);
    try_steps(bytes, size - text_size, text, text_size);
    try_table(bytes, size - text_size, text, text_size);
    return 0;
}
