/* Tokenizers by hand: what small ones do with small texts, and what bad files are told. */
#include "tests/support/support.h"

#include "runtime/tokenizer/ttt_tokenizer.h"

#include <pthread.h>
#include <stdlib.h>

static ttt_tokenizer *tokenizer;
static ttt_encoder *encoder;

static void open_one(const char *name)
{
    ASSERT_OK(ttt_tokenizer_open(name, &tokenizer));
    ASSERT_OK(ttt_encoder_new(tokenizer, &encoder));
}

static void close_one(void)
{
    ttt_encoder_free(encoder);
    ttt_tokenizer_free(tokenizer);
}

/* The text becomes these numbers. */
static void assert_ids(const char *text, size_t size, unsigned flags, const int32_t *want,
                       size_t count)
{
    ttt_ids ids = {0};
    ASSERT_OK(ttt_encode(encoder, text, size, flags, &ids));
    assert_int_equal(ids.count, count);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(ids.list[i], want[i]);
    free(ids.list);
}
#define ASSERT_IDS(text, flags, ...)                                          \
    assert_ids(text, sizeof(text) - 1, flags, (const int32_t[]){__VA_ARGS__}, \
               sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

/* The numbers become this text, at once and, with what is broken replaced, token by token. */
static void assert_text(const int32_t *ids, size_t count, unsigned flags, const char *want,
                        const char *want_streamed)
{
    char *text, streamed[256] = "";
    const char *part;
    size_t size;
    ttt_decoder *decoder;
    ASSERT_OK(ttt_decode(tokenizer, ids, count, flags, &text, &size));
    assert_string_equal(text, want);
    assert_int_equal(size, strlen(want));
    free(text);
    ASSERT_OK(ttt_decoder_new(tokenizer, flags, &decoder));
    for (size_t i = 0; i <= count; i++) {
        ASSERT_OK(i < count ? ttt_decoder_next(decoder, ids[i], &part, &size)
                            : ttt_decoder_finish(decoder, &part, &size));
        strncat(streamed, part, size);
    }
    assert_string_equal(streamed, want_streamed);
    ttt_decoder_free(decoder);
}
#define ASSERT_TEXT(flags, want, streamed, ...) \
    assert_text((const int32_t[]){__VA_ARGS__}, \
                sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t), flags, want, streamed)

static void bytes(void **state)
{
    (void)state;
    open_one("bytes");
    const ttt_tokenizer_about *about = ttt_tokenizer_info(tokenizer);
    assert_string_equal(about->kind, "bytes");
    assert_int_equal(about->vocab, 258);
    assert_int_equal(about->bos, 256);
    assert_int_equal(about->eos, 257);
    assert_int_equal(about->unknown, -1);
    ASSERT_IDS("a\xff\0z", 0, 'a', 255, 0, 'z');
    ASSERT_IDS("a", TTT_ADD_BOS | TTT_ADD_EOS, 256, 'a', 257);
    ASSERT_IDS("<s>a", TTT_SPECIALS, 256, 'a');
    ASSERT_IDS("<s>", 0, '<', 's', '>');
    ASSERT_TEXT(0, "h\xc3\xa9\xff", "hé\xef\xbf\xbd", 'h', 0xc3, 0xa9, 0xff);
    ASSERT_TEXT(0, "\xe2\x82", "\xef\xbf\xbd", 0xe2, 0x82);
    ASSERT_TEXT(0, "<s>a", "<s>a", 256, 'a');
    ASSERT_TEXT(TTT_SKIP_SPECIALS, "a", "a", 256, 'a', 257);
    char *text;
    size_t size;
    ASSERT_FAILS(ttt_decode(tokenizer, (const int32_t[]){258}, 1, 0, &text, &size),
                 INVALID_ARGUMENT, "258 is not a token");
    assert_true(ttt_tokenizer_is_special(tokenizer, 257));
    assert_false(ttt_tokenizer_is_special(tokenizer, 0));
    assert_int_equal(ttt_tokenizer_find(tokenizer, "</s>", 4), 257);
    close_one();
}

static void parse_one(const char *name, const char *file)
{
    ASSERT_OK(ttt_tokenizer_parse(name, file, strlen(file), &tokenizer));
    ASSERT_OK(ttt_encoder_new(tokenizer, &encoder));
}

#define MODEL                                                                             \
    "\"model\":{\"type\":\"BPE\",\"unk_token\":\"?\",\"vocab\":{\"?\":0,\"a\":1,\"b\":2," \
    "\"c\":3,\"ab\":4,\"bc\":5,\"abc\":6},\"merges\":[\"b c\",\"a b\",[\"ab\",\"c\"]]}"

/* The lowest rank merges first, not the leftmost pair; and so in a word that is long. */
static void ranks_decide(void **state)
{
    char text[301];
    int32_t want[200];
    (void)state;
    parse_one("x.json", "{" MODEL "}");
    ASSERT_IDS("abc", 0, 1, 5);
    ASSERT_IDS("abx", 0, 4, 0);
    for (int i = 0; i < 100; i++) {
        memcpy(text + 3 * i, "abc", 3);
        want[2 * i] = 1;
        want[2 * i + 1] = 5;
    }
    assert_ids(text, 300, 0, want, 200);
    ASSERT_TEXT(0, "a bc ab", "a bc ab", 1, 5, 4); /* no decoder: spaces between */
    close_one();
}

/* Marks come from the template, then from names. */
static void marks(void **state)
{
    (void)state;
    parse_one("x.json",
              "{" MODEL ",\"added_tokens\":[{\"id\":7,\"content\":\"</s>\",\"special\":true},"
              "{\"id\":8,\"content\":\"go\",\"special\":true},{\"id\":9,\"content\":\"<s>\"}],"
              "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":"
              "{\"id\":\"go\"}},{\"Sequence\":{\"id\":\"A\"}}],\"special_tokens\":{\"go\":{\"ids\":"
              "[8]}}}}");
    ASSERT_IDS("a", TTT_ADD_BOS | TTT_ADD_EOS, 8, 1, 7);
    ASSERT_IDS("goa<s>", TTT_SPECIALS, 8, 1, 9);
    ASSERT_IDS("<s>a", 0, 9, 1); /* added, but not special */
    ttt_ids ids = {0};
    close_one();
    parse_one("x.json", "{" MODEL "}");
    ASSERT_FAILS(ttt_encode(encoder, "a", 1, TTT_ADD_EOS, &ids), FAILED_PRECONDITION,
                 "no token for the end");
    assert_int_equal(ids.count, 0);
    free(ids.list);
    close_one();
}

/* Unsupported features are refused by name; damage is reported. */
static void refused(void **state)
{
    static const struct {
        const char *file, *part;
    } cases[] = {
        {"{" MODEL ",\"normalizer\":{\"type\":\"BertNormalizer\"}}", "\"BertNormalizer\""},
        {"{" MODEL ",\"pre_tokenizer\":{\"type\":\"UnicodeScripts\"}}", "\"UnicodeScripts\""},
        {"{" MODEL ",\"decoder\":{\"type\":\"CTC\"}}", "\"CTC\""},
        {"{\"model\":{\"type\":\"WordPiece\"}}", "\"WordPiece\""},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a b\"]}}",
         "not in the vocabulary"},
        {"{\"model\":{\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}}", "two tokens have the number"},
        {"{\"model\":{\"vocab\":{\"a\":2000000000},\"merges\":[]}}", "far from the others"},
        {"{\"model\":{\"vocab\":{},\"merges\":[],\"dropout\":0.5}}", "dropout"},
        {"{" MODEL ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(\"},"
         "\"behavior\":\"Isolated\"}}",
         "is not understood"},
        {"{" MODEL ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[a\\\\W]\"},"
         "\"behavior\":\"Isolated\"}}",
         "\\W within brackets"},
        {"{\"model\":", "line 1"},
        {"   ", "the file is empty"},
        {"YQ== 0\nYQ 1\n", "line 2 is not a token"},
        {"YQ== 0\n", "no token is the byte 0x00"},
        {"\n\x05\n\x03"
         "abc",
         "no piece is the unknown one"},
        {"\nxyz", "not a sentencepiece model"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pjrt_status *st =
            ttt_tokenizer_parse("x", cases[i].file, strlen(cases[i].file), &tokenizer);
        assert_non_null(st);
        assert_null(tokenizer);
        ASSERT_CONTAINS(pjrt_status_message(st), cases[i].part);
        pjrt_status_free(st);
    }
}

/* A pattern that goes back and forth for ever is stopped. */
static void patience_ends(void **state)
{
    char text[40];
    ttt_ids ids = {0};
    (void)state;
    memset(text, 'a', sizeof text);
    text[39] = '!';
    parse_one("x.json", "{" MODEL ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":"
                        "\"(a|aa|a?a)+$\"},\"behavior\":\"Isolated\"}}");
    ASSERT_FAILS(ttt_encode(encoder, text, sizeof text, 0, &ids), RESOURCE_EXHAUSTED, "too long");
    free(ids.list);
    close_one();
}

static void *encode_often(void *arg)
{
    ttt_encoder *own;
    ttt_ids *ids = arg;
    ASSERT_OK(ttt_encoder_new(tokenizer, &own));
    for (int i = 0; i < 200; i++)
        ASSERT_OK(ttt_encode(own, "abc 12 cab abcabc", 17, 0, ids));
    ttt_encoder_free(own);
    return NULL;
}

/* A tokenizer is shared, with its compiled pattern; encoders are not. */
static void threads(void **state)
{
    enum { THREADS = 4 };
    pthread_t list[THREADS];
    ttt_ids ids[THREADS] = {0};
    (void)state;
    parse_one("x.json", "{" MODEL ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":"
                        "\"\\\\d+| \"},\"behavior\":\"Isolated\"}}");
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&list[i], NULL, encode_often, &ids[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(list[i], NULL);
        assert_int_equal(ids[i].count, ids[0].count);
        assert_memory_equal(ids[i].list, ids[0].list, ids[0].count * sizeof *ids[0].list);
    }
    for (int i = 0; i < THREADS; i++)
        free(ids[i].list);
    close_one();
}

static void too_little_text(void **state)
{
    ttt_bpe_trainer *trainer;
    (void)state;
    ASSERT_OK(ttt_bpe_trainer_new(&trainer));
    ASSERT_OK(ttt_bpe_trainer_add(trainer, "abab abab", 9));
    ASSERT_FAILS(ttt_bpe_trainer_write(trainer, 300, "/nonexistent/x", NULL, NULL), OUT_OF_RANGE,
                 "only enough pairs for a vocabulary of 261");
    ASSERT_FAILS(ttt_bpe_trainer_write(trainer, 257, "/nonexistent/x", NULL, NULL),
                 INVALID_ARGUMENT, "from 258");
    ASSERT_FAILS(ttt_bpe_trainer_write(trainer, 260, "/nonexistent/x", NULL, NULL), UNKNOWN,
                 "No such file");
    ttt_bpe_trainer_free(trainer);
}

static void missing(void **state)
{
    (void)state;
    ASSERT_FAILS(ttt_tokenizer_open("/nonexistent/x.json", &tokenizer), NOT_FOUND,
                 "a tokenizer is \"bytes\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes),        cmocka_unit_test(missing),
        cmocka_unit_test(ranks_decide), cmocka_unit_test(marks),
        cmocka_unit_test(refused),      cmocka_unit_test(patience_ends),
        cmocka_unit_test(threads),      cmocka_unit_test(too_little_text)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
