/*
 * Patterns: the rules written out in C where a regular expression is one of them, else PCRE2. The
 * expressions were written for other engines, whose white space and words are Unicode's: \s and \w
 * are spelt out for PCRE2, which has its own.
 */
#include "runtime/tokenizer/internal.h"

#include <stdlib.h>
#include <utf8proc.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

static const char where[] = "tokenizer";

bool ttt__is_numeric(int32_t code)
{
    utf8proc_category_t category = utf8proc_category(code);
    return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}

bool ttt__is_punctuation(int32_t code)
{
    if (code < 0x80)
        return (code >= '!' && code <= '/') || (code >= ':' && code <= '@') ||
               (code >= '[' && code <= '`') || (code >= '{' && code <= '~');
    utf8proc_category_t category = utf8proc_category(code);
    return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

/* Oniguruma's word characters: letters, marks, digits, underscores, and six of Latin-1's numbers.
 */
#define WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}"

static const char not_in_class[] = "";

/* The PCRE2 equivalent of an escape; NULL: unchanged. */
static const char *meaning(char escape, bool in_class)
{
    switch (escape) {
    case 's':
        return "\\p{White_Space}";
    case 'S':
        return "\\P{White_Space}";
    case 'w':
        return in_class ? WORD : "[" WORD "]";
    case 'W':
        return in_class ? not_in_class : "[^" WORD "]";
    default:
        return NULL;
    }
}

static pjrt_status *translate(const char *expression, size_t size, ttt__text *out)
{
    bool in_class = false;
    for (size_t i = 0; i < size; i++) {
        if (expression[i] == '\\' && i + 1 < size) {
            const char *other = meaning(expression[i + 1], in_class);
            if (other == not_in_class)
                return PJRT_FAIL(UNIMPLEMENTED, where, "\\W within brackets of a pattern");
            if (!ttt__text_add(out, other != NULL ? other : expression + i,
                               other != NULL ? strlen(other) : 2))
                return PJRT_NO_MEMORY(where);
            i++;
            continue;
        }
        in_class = expression[i] == '[' || (in_class && expression[i] != ']');
        if (!ttt__text_add(out, expression + i, 1))
            return PJRT_NO_MEMORY(where);
    }
    return NULL;
}

pjrt_status *ttt__pattern_compile(ttt__pattern *pattern, const char *expression, size_t size,
                                  unsigned flags)
{
    int code;
    PCRE2_SIZE offset;
    PCRE2_UCHAR why[120];
    ttt__text own = {0};
    bool rule_fits = !(flags & TTT__ONLY_PCRE) && strlen(expression) == size &&
                     (!(flags & TTT__LINES) || memchr(expression, '$', size) == NULL);
    if (rule_fits)
        pattern->rule = ttt__rule_of(expression);
    if (pattern->rule != TTT__NO_RULE)
        return NULL;
    if (size > 1 << 16)
        return PJRT_FAIL(INVALID_ARGUMENT, where, "a pattern of %zu bytes is too long", size);
    pjrt_status *st = translate(expression, size, &own);
    if (st != NULL) {
        free(own.data);
        return st;
    }
    uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C | PCRE2_DOLLAR_ENDONLY |
                       (flags & TTT__LINES ? PCRE2_MULTILINE : 0);
    pattern->code = pcre2_compile((PCRE2_SPTR)own.data, own.size, options, &code, &offset, NULL);
    free(own.data);
    if (pattern->code == NULL) {
        pcre2_get_error_message(code, why, sizeof why);
        return PJRT_FAIL(INVALID_ARGUMENT, where, "the pattern \"%.80s\" is not understood: %s",
                         expression, (const char *)why);
    }
    pcre2_jit_compile(pattern->code, PCRE2_JIT_COMPLETE); /* JIT failure is harmless: matching is
                                                           * only slower */
    return NULL;
}

void ttt__pattern_free(ttt__pattern *pattern)
{
    pcre2_code_free(pattern->code);
    free(pattern->literal.data);
}

/* ---- searching ---- */

static void found_at(ttt__search *search, size_t start, size_t stop)
{
    search->found = true;
    search->start = start;
    search->stop = stop;
    search->from = stop;
}

static void search_class(ttt__search *search)
{
    const char *end = search->text + search->size;
    int size;
    for (size_t at = search->from; at < search->size; at += (size_t)size) {
        if (search->pattern->class(ttt__utf8_next(search->text + at, end, &size))) {
            found_at(search, at, at + (size_t)size);
            return;
        }
    }
}

static void search_literal(ttt__search *search)
{
    const ttt__text *literal = &search->pattern->literal;
    const char *from = search->text + search->from;
    size_t left = search->size - search->from;
    const char *at = literal->size == 1 ? memchr(from, literal->data[0], left)
                                        : memmem(from, left, literal->data, literal->size);
    if (at != NULL)
        found_at(search, (size_t)(at - search->text), (size_t)(at - search->text) + literal->size);
}

/* Match context with limits: a pattern from a file must not run forever. */
static pjrt_status *match_memory(ttt_encoder *encoder, size_t size)
{
    if (encoder->match == NULL)
        encoder->match = pcre2_match_data_create(1, NULL);
    if (encoder->match_context == NULL)
        encoder->match_context = pcre2_match_context_create(NULL);
    if (encoder->match == NULL || encoder->match_context == NULL)
        return PJRT_NO_MEMORY(where);
    /* Real patterns backtrack at most through the white space of the whole text. */
    uint32_t limit = 100000 + 64 * (uint32_t)size;
    pcre2_set_match_limit(encoder->match_context, limit);
    pcre2_set_depth_limit(encoder->match_context, limit);
    pcre2_set_heap_limit(encoder->match_context, 64 * 1024); /* kibibytes */
    return NULL;
}

static pjrt_status *search_code(ttt__search *search, ttt_encoder *encoder)
{
    PJRT_TRY(match_memory(encoder, search->size < 1 << 24 ? search->size : 1 << 24));
    PCRE2_SPTR text = (PCRE2_SPTR)search->text;
    const pcre2_code *code = search->pattern->code;
    int got = pcre2_match(code, text, search->size, search->from, PCRE2_NO_UTF_CHECK,
                          encoder->match, encoder->match_context);
    if (got == PCRE2_ERROR_JIT_STACKLIMIT) /* the interpreter uses its own memory */
        got = pcre2_match(code, text, search->size, search->from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                          encoder->match, encoder->match_context);
    if (got == PCRE2_ERROR_NOMATCH)
        return NULL;
    if (got < 0)
        return PJRT_FAIL(RESOURCE_EXHAUSTED, where,
                         "a pattern of the tokenizer takes too long on this text (PCRE2 says %d)",
                         got);
    const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(encoder->match);
    if (ends[0] > ends[1])
        return PJRT_FAIL(INVALID_ARGUMENT, where, "a pattern of the tokenizer matches backwards");
    found_at(search, ends[0], ends[1]);
    if (ends[0] == ends[1]) { /* after an empty match, start one character later or stop */
        int size = 1;
        if (ends[1] < search->size)
            ttt__utf8_next(search->text + ends[1], search->text + search->size, &size);
        search->from = ends[1] + (size_t)size;
    }
    return NULL;
}

pjrt_status *ttt__search_next(ttt__search *search, ttt_encoder *encoder)
{
    const ttt__pattern *pattern = search->pattern;
    const char *end = search->text + search->size;
    search->found = false;
    if (search->from >= search->size)
        return NULL;
    if (pattern->rule != TTT__NO_RULE) {
        const char *at = search->text + search->from;
        found_at(search, search->from,
                 (size_t)(ttt__rule_next(pattern->rule, at, end) - search->text));
        return NULL;
    }
    if (pattern->code != NULL)
        return search_code(search, encoder);
    if (pattern->class != NULL)
        search_class(search);
    else
        search_literal(search);
    return NULL;
}
