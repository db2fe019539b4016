/*
 * The pre-tokenizer patterns of GPT-2, cl100k, Qwen 2 and o200k in one pass each. Every character
 * of the text belongs to some word. A test compares them with PCRE2.
 */
#include "runtime/tokenizer/internal.h"

#include <utf8proc.h>

/* Classes of characters; every character is in exactly one. */
enum {
    UPPER = 1, /* Lu, Lt */
    LOWER = 2,
    BOTH = 4, /* Lm, Lo: letters without case */
    MARK = 8,
    DIGIT = 16,
    BLANK = 32, /* white space */
    NEWLINE = 64,
    OTHER = 128,
    LETTER = UPPER | LOWER | BOTH,
    SPACE = BLANK | NEWLINE,
};

static const uint8_t of_category[] = {
    [UTF8PROC_CATEGORY_CN] = OTHER, [UTF8PROC_CATEGORY_LU] = UPPER, [UTF8PROC_CATEGORY_LL] = LOWER,
    [UTF8PROC_CATEGORY_LT] = UPPER, [UTF8PROC_CATEGORY_LM] = BOTH,  [UTF8PROC_CATEGORY_LO] = BOTH,
    [UTF8PROC_CATEGORY_MN] = MARK,  [UTF8PROC_CATEGORY_MC] = MARK,  [UTF8PROC_CATEGORY_ME] = MARK,
    [UTF8PROC_CATEGORY_ND] = DIGIT, [UTF8PROC_CATEGORY_NL] = DIGIT, [UTF8PROC_CATEGORY_NO] = DIGIT,
    [UTF8PROC_CATEGORY_PC] = OTHER, [UTF8PROC_CATEGORY_PD] = OTHER, [UTF8PROC_CATEGORY_PS] = OTHER,
    [UTF8PROC_CATEGORY_PE] = OTHER, [UTF8PROC_CATEGORY_PI] = OTHER, [UTF8PROC_CATEGORY_PF] = OTHER,
    [UTF8PROC_CATEGORY_PO] = OTHER, [UTF8PROC_CATEGORY_SM] = OTHER, [UTF8PROC_CATEGORY_SC] = OTHER,
    [UTF8PROC_CATEGORY_SK] = OTHER, [UTF8PROC_CATEGORY_SO] = OTHER, [UTF8PROC_CATEGORY_ZS] = BLANK,
    [UTF8PROC_CATEGORY_ZL] = BLANK, [UTF8PROC_CATEGORY_ZP] = BLANK, [UTF8PROC_CATEGORY_CC] = OTHER,
    [UTF8PROC_CATEGORY_CF] = OTHER, [UTF8PROC_CATEGORY_CS] = OTHER, [UTF8PROC_CATEGORY_CO] = OTHER,
};

/* clang-format off */
static const uint8_t of_ascii[128] = {
    OTHER, OTHER, OTHER, OTHER, OTHER, OTHER, OTHER, OTHER,
    OTHER, BLANK, NEWLINE, BLANK, BLANK, NEWLINE, OTHER, OTHER,
    OTHER, OTHER, OTHER, OTHER, OTHER, OTHER, OTHER, OTHER,
    OTHER, OTHER, OTHER, OTHER, OTHER, OTHER, OTHER, OTHER,
    BLANK, OTHER, OTHER, OTHER, OTHER, OTHER, OTHER, OTHER,
    OTHER, OTHER, OTHER, OTHER, OTHER, OTHER, OTHER, OTHER,
    DIGIT, DIGIT, DIGIT, DIGIT, DIGIT, DIGIT, DIGIT, DIGIT,
    DIGIT, DIGIT, OTHER, OTHER, OTHER, OTHER, OTHER, OTHER,
    OTHER, UPPER, UPPER, UPPER, UPPER, UPPER, UPPER, UPPER,
    UPPER, UPPER, UPPER, UPPER, UPPER, UPPER, UPPER, UPPER,
    UPPER, UPPER, UPPER, UPPER, UPPER, UPPER, UPPER, UPPER,
    UPPER, UPPER, UPPER, OTHER, OTHER, OTHER, OTHER, OTHER,
    OTHER, LOWER, LOWER, LOWER, LOWER, LOWER, LOWER, LOWER,
    LOWER, LOWER, LOWER, LOWER, LOWER, LOWER, LOWER, LOWER,
    LOWER, LOWER, LOWER, LOWER, LOWER, LOWER, LOWER, LOWER,
    LOWER, LOWER, LOWER, OTHER, OTHER, OTHER, OTHER, OTHER,
};
/* clang-format on */

/* The class of the character at `at`, and where the next one starts; 0 at the end. */
static inline unsigned class_at(const char *at, const char *end, const char **next)
{
    *next = end;
    if (at >= end)
        return 0;
    unsigned char byte = (unsigned char)*at;
    *next = at + 1;
    if (byte < 0x80)
        return of_ascii[byte];
    int size;
    int32_t code = ttt__utf8_next(at, end, &size);
    *next = at + size;
    return code == 0x85 ? BLANK : of_category[utf8proc_category(code)];
}

/* The end of a run of characters of these classes. */
static inline const char *skip(const char *at, const char *end, unsigned classes)
{
    const char *next;
    while (class_at(at, end, &next) & classes)
        at = next;
    return at;
}

/* The end of 's, 't, 're, 've, 'm, 'll or 'd (any case if `caseless`); NULL: none. U+017F (long
 * s) matches s caselessly. */
static const char *contraction(const char *at, const char *end, bool caseless)
{
    if (end - at < 2 || *at != '\'')
        return NULL;
    int fold = caseless ? 0x20 : 0;
    int first = at[1] | fold, second = end - at < 3 ? 0 : at[2] | fold;
    if (first == 's' || first == 't' || first == 'm' || first == 'd')
        return at + 2;
    if ((first == 'r' && second == 'e') || (first == 'v' && second == 'e') ||
        (first == 'l' && second == 'l'))
        return at + 3;
    return caseless && end - at >= 3 && memcmp(at + 1, "\xc5\xbf", 2) == 0 ? at + 3 : NULL;
}

/* \s+(?!\S)|\s+: all white space at the end of the text; else all but the last character, which
 * the next word may take; or that character alone. */
static const char *blanks(const char *at, const char *end)
{
    const char *last = at, *next;
    for (const char *p = at; class_at(p, end, &next) & SPACE; p = next) {
        last = p;
        if (next == end)
            return end;
    }
    if (last > at)
        return last;
    class_at(at, end, &next);
    return next;
}

/* The same with \s*[\r\n]+ before it: up to the last line end in the run. */
static const char *lines(const char *at, const char *end, bool tail)
{
    const char *newline = NULL, *next, *p = at;
    for (unsigned c; (c = class_at(p, end, &next)) & SPACE; p = next) {
        if (c == NEWLINE)
            newline = next;
    }
    if (tail && p == end)
        return end;
    return newline != NULL ? newline : blanks(at, end);
}

static const char *gpt2_next(const char *at, const char *end)
{
    const char *next, *stop = contraction(at, end, false);
    if (stop != NULL)
        return stop;
    const char *body = *at == ' ' ? at + 1 : at;
    unsigned c = class_at(body, end, &next);
    if (c & LETTER)
        return skip(next, end, LETTER);
    if (c & DIGIT)
        return skip(next, end, DIGIT);
    if (c & (OTHER | MARK))
        return skip(next, end, OTHER | MARK);
    return blanks(at, end);
}

/* Up to `most` digits. */
static const char *digits(const char *at, const char *end, int most)
{
    const char *next;
    for (int i = 0; i < most && class_at(at, end, &next) & DIGIT; i++)
        at = next;
    return at;
}

/* Other characters with an optional leading space and trailing line ends; NULL: none. */
static const char *others(const char *at, const char *end, bool slashes)
{
    const char *body = *at == ' ' ? at + 1 : at;
    const char *stop = skip(body, end, OTHER | MARK);
    if (stop == body)
        return NULL;
    while (stop < end && (*stop == '\r' || *stop == '\n' || (slashes && *stop == '/')))
        stop++;
    return stop;
}

static const char *cl100k_next(const char *at, const char *end, int most_digits, bool tail)
{
    const char *next, *after, *stop = contraction(at, end, true);
    if (stop != NULL)
        return stop;
    unsigned c = class_at(at, end, &next);
    if (c & LETTER)
        return skip(next, end, LETTER);
    if (c & DIGIT)
        return digits(at, end, most_digits);
    if (c != NEWLINE && class_at(next, end, &after) & LETTER)
        return skip(after, end, LETTER);
    stop = others(at, end, false);
    return stop != NULL ? stop : lines(at, end, tail);
}

/* [upper]*[lower]+ of o200k: NULL if there is no such run. */
static const char *lower_word(const char *at, const char *end)
{
    const char *caseless_end = NULL, *next;
    for (unsigned c; (c = class_at(at, end, &next)) & (UPPER | BOTH | MARK); at = next) {
        if (c != UPPER)
            caseless_end = next;
    }
    const char *stop = skip(at, end, LOWER | BOTH | MARK);
    return stop > at ? stop : caseless_end;
}

static const char *o200k_word(const char *at, const char *end)
{
    const char *next, *body = at, *stop;
    unsigned c = class_at(at, end, &next);
    if (!(c & (LETTER | DIGIT | NEWLINE)))
        body = next;
    stop = lower_word(body, end);
    if (stop == NULL && c == MARK)
        stop = lower_word(at, end);
    if (stop == NULL) {
        stop = skip(body, end, UPPER | BOTH | MARK);
        if (stop == body)
            return NULL;
    }
    const char *longer = contraction(stop, end, true);
    return longer != NULL ? longer : stop;
}

static const char *o200k_next(const char *at, const char *end)
{
    const char *next, *stop = o200k_word(at, end);
    if (stop != NULL)
        return stop;
    if (class_at(at, end, &next) & DIGIT)
        return digits(at, end, 3);
    stop = others(at, end, true);
    return stop != NULL ? stop : lines(at, end, false);
}

const char *ttt__rule_next(ttt__rule rule, const char *at, const char *end)
{
    switch (rule) {
    case TTT__GPT2:
        return gpt2_next(at, end);
    case TTT__CL100K:
        return cl100k_next(at, end, 3, false);
    case TTT__CL100K_TAIL:
        return cl100k_next(at, end, 3, true);
    case TTT__QWEN2:
        return cl100k_next(at, end, 1, false);
    case TTT__O200K:
        return o200k_next(at, end);
    case TTT__NO_RULE:
        break;
    }
    return end;
}

#define CASELESS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define REST "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define WORD "[^\\r\\n\\p{L}\\p{N}]?"
#define UPPERS "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWERS "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"

static const struct {
    const char *expression;
    ttt__rule rule;
} known[] = {
    {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
     TTT__GPT2},
    {"'(?:[sdmt]|ll|ve|re)| ?\\p{L}++| ?\\p{N}++| ?[^\\s\\p{L}\\p{N}]++|\\s++$|\\s+(?!\\S)|\\s",
     TTT__GPT2},
    {CASELESS "|" WORD "\\p{L}+|\\p{N}{1,3}" REST, TTT__CL100K},
    {"'(?i:[sdmt]|ll|ve|re)|" WORD "+\\p{L}++|\\p{N}{1,3}+| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*+"
     "|\\s++$|\\s*[\\r\\n]|\\s+(?!\\S)|\\s",
     TTT__CL100K_TAIL},
    {CASELESS "|" WORD "\\p{L}+|\\p{N}" REST, TTT__QWEN2},
    {WORD UPPERS "*" LOWERS "+" CASELESS "?|" WORD UPPERS "+" LOWERS "*" CASELESS
                 "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     TTT__O200K},
};

ttt__rule ttt__rule_of(const char *expression)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(known[i].expression, expression) == 0)
            return known[i].rule;
    }
    return TTT__NO_RULE;
}

const char *ttt__rule_expression(ttt__rule rule)
{
    size_t i = 0;
    while (known[i].rule != rule)
        i++;
    return known[i].expression;
}
