/* Every allocation of the tokenizers is made to fail, one run each: nothing crashes, nothing leaks
 * (the sanitizers' word), no file is left behind, numbers stay as they were, and what failed says
 * so. jansson's parser has its own memory here: it does not survive failures. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/tokenizer/ttt_tokenizer.h"
#include "tests/support/torture.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool writing;

static void *json_malloc(size_t size)
{
    return writing ? malloc(size) : __real_malloc(size);
}

static char path[] = "/tmp/ttt_torture_tokenizer.XXXXXX", part[64];

/* ---- files ---- */

static const char llama[] =
    "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":"
    "\"Prepend\",\"prepend\":\"_\"},{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"q+\"},"
    "\"content\":\"_\"},{\"type\":\"Strip\",\"strip_left\":true,\"strip_right\":true}]},"
    "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"always\"}"
    ","
    "\"added_tokens\":[{\"id\":6,\"content\":\"Z\",\"normalized\":true},{\"id\":7,\"content\":"
    "\"<s>\",\"special\":true}],\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":"
    "\"Replace\",\"pattern\":{\"String\":\"_\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},"
    "{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]},"
    "\"model\":{\"type\":\"BPE\",\"unk_token\":\"?\",\"vocab\":{\"?\":0,\"a\":1,\"b\":2,\"_\":3,"
    "\"ab\":4,\"_ab\":5},\"merges\":[\"a b\",[\"_\",\"ab\"]]}}";

static const char byte_level[] =
    "{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true},\"decoder\":null,"
    "\"model\":{\"type\":\"BPE\",\"ignore_merges\":true,\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,"
    "\"\xc4\xa0\":3},\"merges\":[\"a b\"]}}";

/* <unk>, <s>, a user's piece and three others; type 1 is unigram, 2 BPE. */
static size_t sentencepiece_file(int type, char *out)
{
    static const struct {
        const char *text;
        float score;
        int type;
    } pieces[] = {{"<unk>", 0, 2}, {"<s>", 0, 3},           {"[U]", 0, 4},
                  {"ab", -1, 1},   {"\xe2\x96\x81", -2, 1}, {"a", -3, 1}};
    size_t at = 0;
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        size_t length = strlen(pieces[i].text);
        out[at++] = '\n';
        out[at++] = (char)(length + 9);
        out[at++] = '\n';
        out[at++] = (char)length;
        memcpy(out + at, pieces[i].text, length);
        at += length;
        out[at++] = 0x15;
        memcpy(out + at, &pieces[i].score, 4);
        at += 4;
        out[at++] = 0x18;
        out[at++] = (char)pieces[i].type;
    }
    static const char trainer[] = {0x12, 2, 0x18};
    memcpy(out + at, trainer, sizeof trainer);
    at += sizeof trainer;
    out[at++] = (char)type;
    return at;
}

static size_t tiktoken_file(char *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t at = 0;
    for (int i = 0; i < 256; i++)
        at += (size_t)sprintf(out + at, "%c%c== %d\n", digits[i >> 2], digits[(i & 3) << 4], i);
    return at + (size_t)sprintf(out + at, "YWI= 256\n");
}

/* ---- what is tortured ---- */

static const char *name;
static const char *file;
static size_t file_size;

static pjrt_status *decode(const ttt_tokenizer *tokenizer, const ttt_ids *ids)
{
    ttt_decoder *decoder = NULL;
    char *text = NULL;
    const char *piece;
    size_t size;
    pjrt_status *st = ttt_decode(tokenizer, ids->list, ids->count, 0, &text, &size);
    if (st == NULL)
        st = ttt_decoder_new(tokenizer, 0, &decoder);
    for (size_t i = 0; st == NULL && i < ids->count; i++)
        st = ttt_decoder_next(decoder, ids->list[i], &piece, &size);
    if (st == NULL)
        st = ttt_decoder_finish(decoder, &piece, &size);
    ttt_decoder_free(decoder);
    free(text);
    return st;
}

static pjrt_status *there_and_back(void)
{
    static const char text[] = "ab [U]<s>abab\xff qqa\xcc\x81\xcc\xa3Z ab";
    static char long_text[2000];
    ttt_tokenizer *tokenizer;
    ttt_encoder *encoder = NULL;
    ttt_ids ids = {0};
    memset(long_text, 'a', sizeof long_text);
    pjrt_status *st = ttt_tokenizer_parse(name, file, file_size, &tokenizer);
    if (st == NULL)
        st = ttt_encoder_new(tokenizer, &encoder);
    if (st == NULL)
        st = ttt_encode(encoder, text, sizeof text - 1, TTT_SPECIALS, &ids);
    if (st == NULL) {
        size_t before = ids.count;
        st = ttt_encode(encoder, long_text, sizeof long_text, 0, &ids);
        if (st != NULL)
            assert_int_equal(ids.count, before);
    }
    if (st == NULL)
        st = decode(tokenizer, &ids);
    free(ids.list);
    ttt_encoder_free(encoder);
    ttt_tokenizer_free(tokenizer);
    return st;
}

static pjrt_status *train(void)
{
    static const char text[] = "the theme of these\xff themes there";
    ttt_bpe_trainer *trainer;
    writing = true;
    pjrt_status *st = ttt_bpe_trainer_new(&trainer);
    if (st == NULL)
        st = ttt_bpe_trainer_add(trainer, text, sizeof text - 1);
    if (st == NULL)
        st = ttt_bpe_trainer_write(trainer, 264, path, NULL, NULL);
    ttt_bpe_trainer_free(trainer);
    writing = false;
    return st;
}

static void torture(pjrt_status *(*run)(void))
{
    int n = 1;
    for (bool hit = true; hit; n++) {
        allocations = 0;
        fail_at = n;
        pjrt_status *st = run();
        hit = allocations >= n;
        fail_at = 0;
        if (st != NULL) {
            assert_true(pjrt_status_message(st)[0] != '\0');
            if (!hit)
                fail_msg("with all its memory: %s", pjrt_status_text(st));
        }
        pjrt_status_free(st);
        assert_int_not_equal(access(part, F_OK), 0);
    }
    assert_true(n > 10); /* something was there to fail */
}

static void everything(void **state)
{
    static char bytes[8192];
    (void)state;
    json_set_alloc_funcs(json_malloc, free);
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    snprintf(part, sizeof part, "%s.part", path);
    const struct {
        const char *name, *bytes;
        size_t size;
    } files[] = {{"llama.json", llama, sizeof llama - 1},
                 {"gpt2.json", byte_level, sizeof byte_level - 1},
                 {"u.model", bytes, sentencepiece_file(1, bytes)},
                 {"b.model", bytes + 2048, sentencepiece_file(2, bytes + 2048)},
                 {"gpt2.tiktoken", bytes + 4096, tiktoken_file(bytes + 4096)},
                 {"bytes", NULL, 0}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        name = files[i].name;
        file = files[i].bytes;
        file_size = files[i].size;
        torture(there_and_back);
    }
    torture(train);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(everything)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
