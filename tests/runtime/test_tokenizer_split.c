/* The splits that are written out in C cut every text where PCRE2 cuts it by the regular
 * expression. */
#include "tests/support/support.h"

#include "runtime/tokenizer/internal.h"

#include <stdlib.h>
#include <utf8proc.h>

static ttt_tokenizer *tokenizer;
static ttt_encoder *encoder;

/* The same numbers on every machine. */
static uint32_t next_random(void)
{
    static uint64_t state = 20261116;
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(state >> 33);
}

/* Characters that PCRE2's tables and utf8proc's both know; the versions of Unicode may differ. */
static bool both_know(const ttt__pattern *assigned, const char *text, size_t size, int32_t code)
{
    ttt__search search = {.pattern = assigned, .text = text, .size = size};
    ASSERT_OK(ttt__search_next(&search, encoder));
    return search.found == (utf8proc_category(code) != UTF8PROC_CATEGORY_CN);
}

static size_t random_text(const ttt__pattern *assigned, char *out)
{
    static const char *const parts[] = {
        " ",  "  ", "\n",  "\r\n", "\t", "'s",      "'S",     "'\xc5\xbf",    "'ll",
        "'",  "/",  "a",   "Bc",   "12", "3456",    "!",      "\xc2\xa0",     "\xc2\x85",
        "Ab", "É",  "ǅ",   "漢",   "ʰ",  "e\u0301", "\u0301", "\xe3\x80\x80", "²",
        "–",  "😀",  "'Re", "'vE",  "--", "\x1c",    "\x0b",   "\xe1\xa0\x8e", "_"};
    size_t size = 0;
    for (uint32_t n = next_random() % 12; n > 0; n--) {
        char text[8];
        const char *part = parts[next_random() % (sizeof parts / sizeof *parts)];
        size_t length = strlen(part);
        if (next_random() % 4 == 0) {
            int32_t code = (int32_t)(next_random() % (next_random() % 4 == 0 ? 0x110000 : 0x3100));
            if (code >= 0xd800 && code < 0xe000)
                continue;
            length = (size_t)ttt__utf8_put(code, text);
            part = text;
            if (!both_know(assigned, text, length, code))
                continue;
        }
        memcpy(out + size, part, length);
        size += length;
    }
    return size;
}

static void same_words(ttt__rule rule, const ttt__pattern *pattern, const char *text, size_t size)
{
    ttt__search search = {.pattern = pattern, .text = text, .size = size};
    for (const char *at = text, *end = text + size; at < end;) {
        const char *stop = ttt__rule_next(rule, at, end);
        ASSERT_OK(ttt__search_next(&search, encoder));
        if (!search.found || text + search.start != at || text + search.stop != stop)
            fail_msg("rule %d, \"%.*s\": ours from %zu to %zu, PCRE2's from %zu to %zu", rule,
                     (int)size, text, (size_t)(at - text), (size_t)(stop - text), search.start,
                     search.stop);
        at = stop;
    }
}

/* tiktoken's spelling of GPT-2's split, the second that is known. */
static const char second_gpt2[] =
    "'(?:[sdmt]|ll|ve|re)| ?\\p{L}++| ?\\p{N}++| ?[^\\s\\p{L}\\p{N}]++|\\s++$|\\s+(?!\\S)|\\s";

static void rules_are_their_expressions(void **state)
{
    static const ttt__rule rules[] = {TTT__GPT2,        TTT__GPT2,  TTT__CL100K,
                                      TTT__CL100K_TAIL, TTT__QWEN2, TTT__O200K};
    static const char any[] = "\\P{Cn}";
    char text[256];
    ttt__pattern assigned = {0};
    (void)state;
    ASSERT_OK(ttt_tokenizer_open("bytes", &tokenizer));
    ASSERT_OK(ttt_encoder_new(tokenizer, &encoder));
    ASSERT_OK(ttt__pattern_compile(&assigned, any, sizeof any - 1, 0));
    for (size_t r = 0; r < sizeof rules / sizeof *rules; r++) {
        const char *expression = r == 1 ? second_gpt2 : ttt__rule_expression(rules[r]);
        ttt__pattern pattern = {0};
        assert_int_equal(ttt__rule_of(expression), rules[r]);
        ASSERT_OK(ttt__pattern_compile(&pattern, expression, strlen(expression), TTT__ONLY_PCRE));
        for (int i = 0; i < 20000; i++) {
            size_t size = random_text(&assigned, text);
            same_words(rules[r], &pattern, text, size);
        }
        ttt__pattern_free(&pattern);
    }
    ttt__pattern_free(&assigned);
    ttt_encoder_free(encoder);
    ttt_tokenizer_free(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rules_are_their_expressions)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
