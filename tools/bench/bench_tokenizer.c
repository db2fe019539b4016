/*
 * How fast a tokenizer is: bench_tokenizer MODEL DOCUMENTS ROUNDS. DOCUMENTS is a file of texts,
 * each after its length in 32 bits. Prints the best seconds of encoding and of decoding all of
 * them, and how many tokens they are.
 */
#include "runtime/tokenizer/ttt_tokenizer.h"
#include "tools/cli/cmd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Of the processor, not of the clock: others may be at work on the machine. */
static double processor_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void check(pjrt_status *st)
{
    if (st == NULL)
        return;
    fprintf(stderr, "bench_tokenizer: %s\n", pjrt_status_text(st));
    pjrt_status_free(st);
    exit(1);
}

/* Encodes all documents; ends[i] is where the numbers of the i-th end. */
static double encode_all(const ttt_tokenizer *tokenizer, const char *bytes, size_t size,
                         ttt_ids *ids, size_t *ends)
{
    ttt_encoder *encoder;
    size_t n = 0;
    double start = processor_seconds();
    ids->count = 0;
    check(ttt_encoder_new(tokenizer, &encoder));
    for (size_t at = 0; at + 4 <= size; n++) {
        uint32_t length;
        memcpy(&length, bytes + at, 4);
        check(ttt_encode(encoder, bytes + at + 4, length, 0, ids));
        ends[n] = ids->count;
        at += 4 + length;
    }
    ttt_encoder_free(encoder);
    return processor_seconds() - start;
}

static double decode_all(const ttt_tokenizer *tokenizer, const ttt_ids *ids, const size_t *ends)
{
    double start = processor_seconds();
    for (size_t n = 0, at = 0; at < ids->count; at = ends[n++]) {
        char *text;
        size_t size;
        check(ttt_decode(tokenizer, ids->list + at, ends[n] - at, 0, &text, &size));
        free(text);
    }
    return processor_seconds() - start;
}

int main(int argc, char **argv)
{
    ttt_tokenizer *tokenizer;
    ttt_ids ids = {0};
    char *bytes;
    size_t size;
    if (argc != 4) {
        fputs("usage: bench_tokenizer MODEL DOCUMENTS ROUNDS\n", stderr);
        return CMD_WRONG_USE;
    }
    check(cmd_read_file(argv[2], &bytes, &size));
    double opened = processor_seconds();
    check(ttt_tokenizer_open(argv[1], &tokenizer));
    opened = processor_seconds() - opened;
    size_t *ends = malloc((size / 4 + 1) * sizeof *ends);
    if (ends == NULL)
        return CMD_FAILED;
    double encoded = 1e9, decoded = 1e9;
    for (int i = 0; i < atoi(argv[3]); i++) {
        double seconds = encode_all(tokenizer, bytes, size, &ids, ends);
        encoded = seconds < encoded ? seconds : encoded;
        seconds = decode_all(tokenizer, &ids, ends);
        decoded = seconds < decoded ? seconds : decoded;
    }
    printf("%.6f %.6f %zu %.6f\n", encoded, decoded, ids.count, opened);
    free(ends);
    free(ids.list);
    free(bytes);
    ttt_tokenizer_free(tokenizer);
    return CMD_OK;
}
