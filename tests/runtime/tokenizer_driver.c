/*
 * One tokenizer, many texts, for the judges in Python. Records come on standard input and go to
 * standard output: a count in 32 bits, then that many bytes of text or numbers of 32 bits.
 *
 *     tokenizer_driver MODEL encode FLAGS    texts to numbers
 *     tokenizer_driver MODEL decode FLAGS    numbers to text
 *     tokenizer_driver MODEL stream FLAGS    the same token by token
 *     tokenizer_driver bytes categories 0    one byte for each code point: its category here
 */
#include "runtime/tokenizer/ttt_tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

static _Noreturn void give_up(pjrt_status *st)
{
    fprintf(stderr, "tokenizer_driver: %s\n", pjrt_status_text(st));
    pjrt_status_free(st);
    exit(1);
}

static void check(pjrt_status *st)
{
    if (st != NULL)
        give_up(st);
}

/* The next record; NULL at the end. */
static void *read_record(size_t element, uint32_t *count)
{
    if (fread(count, 4, 1, stdin) != 1)
        return NULL;
    void *data = malloc(*count * element + 1);
    if (data == NULL || fread(data, element, *count, stdin) != *count)
        give_up(PJRT_FAIL(DATA_LOSS, "driver", "half a record"));
    return data;
}

static void write_record(const void *data, size_t element, size_t count)
{
    uint32_t header = (uint32_t)count;
    fwrite(&header, 4, 1, stdout);
    if (count > 0)
        fwrite(data, element, count, stdout);
}

static void encode(const ttt_tokenizer *tokenizer, unsigned flags)
{
    ttt_encoder *encoder;
    ttt_ids ids = {0};
    uint32_t size;
    check(ttt_encoder_new(tokenizer, &encoder));
    for (char *text; (text = read_record(1, &size)) != NULL; free(text)) {
        ids.count = 0;
        check(ttt_encode(encoder, text, size, flags, &ids));
        write_record(ids.list, 4, ids.count);
    }
    free(ids.list);
    ttt_encoder_free(encoder);
}

static void decode(const ttt_tokenizer *tokenizer, unsigned flags)
{
    uint32_t count;
    for (int32_t *ids; (ids = read_record(4, &count)) != NULL; free(ids)) {
        char *text;
        size_t size;
        check(ttt_decode(tokenizer, ids, count, flags, &text, &size));
        write_record(text, 1, size);
        free(text);
    }
}

static void stream(const ttt_tokenizer *tokenizer, unsigned flags)
{
    uint32_t count;
    for (int32_t *ids; (ids = read_record(4, &count)) != NULL; free(ids)) {
        ttt_decoder *decoder;
        char *whole = malloc(count * 4096 + 64);
        size_t size = 0, part_size;
        const char *part;
        check(ttt_decoder_new(tokenizer, flags, &decoder));
        for (uint32_t i = 0; whole != NULL && i <= count; i++) {
            check(i < count ? ttt_decoder_next(decoder, ids[i], &part, &part_size)
                            : ttt_decoder_finish(decoder, &part, &part_size));
            memcpy(whole + size, part, part_size);
            size += part_size;
        }
        write_record(whole, 1, size);
        free(whole);
        ttt_decoder_free(decoder);
    }
}

int main(int argc, char **argv)
{
    ttt_tokenizer *tokenizer;
    if (argc != 4)
        return 2;
    unsigned flags = (unsigned)atoi(argv[3]);
    check(ttt_tokenizer_open(argv[1], &tokenizer));
    if (strcmp(argv[2], "encode") == 0)
        encode(tokenizer, flags);
    else if (strcmp(argv[2], "decode") == 0)
        decode(tokenizer, flags);
    else if (strcmp(argv[2], "stream") == 0)
        stream(tokenizer, flags);
    else
        for (int code = 0; code < 0x110000; code++)
            putchar(utf8proc_category(code));
    ttt_tokenizer_free(tokenizer);
    return fflush(stdout) == 0 ? 0 : 1;
}
