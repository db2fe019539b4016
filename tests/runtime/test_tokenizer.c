/* Tokenizers by hand: what small ones do with small texts, and what bad files are told. */
#include "tests/support/support.h"

#include "runtime/ttt_tokenizer.h"

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
                 INVALID_ARGUMENT, "258 is no token");
    assert_true(ttt_tokenizer_is_special(tokenizer, 257));
    assert_false(ttt_tokenizer_is_special(tokenizer, 0));
    assert_int_equal(ttt_tokenizer_find(tokenizer, "</s>", 4), 257);
    close_one();
}

static void missing(void **state)
{
    (void)state;
    ASSERT_FAILS(ttt_tokenizer_open("/nonexistent/x.json", &tokenizer), NOT_FOUND,
                 "a tokenizer is \"bytes\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(bytes), cmocka_unit_test(missing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
