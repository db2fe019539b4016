/* UTF-8, character classes and Unicode normal forms. */
#include "runtime/tokenizer/internal.h"

#include <stdlib.h>
#include <utf8proc.h>

int32_t ttt__utf8_next(const char *at, const char *end, int *size)
{
    const unsigned char *p = (const unsigned char *)at;
    size_t left = (size_t)(end - at);
    *size = 1;
    if (p[0] < 0x80)
        return p[0];
    int n = p[0] < 0xc2 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : p[0] < 0xf5 ? 4 : 0;
    if (n == 0)
        return -1;
    /* The range of the second byte excludes overlong forms, surrogates and code points past
     * U+10FFFF. */
    unsigned low = p[0] == 0xe0 ? 0xa0 : p[0] == 0xf0 ? 0x90 : 0x80;
    unsigned high = p[0] == 0xed ? 0x9f : p[0] == 0xf4 ? 0x8f : 0xbf;
    int32_t code = p[0] & (0xff >> (n + 1));
    for (int i = 1; i < n; i++) {
        if ((size_t)i == left || p[i] < low || p[i] > high)
            return -1;
        code = code << 6 | (p[i] & 0x3f);
        low = 0x80;
        high = 0xbf;
        *size = i + 1;
    }
    return code;
}

int ttt__utf8_put(int32_t code, char *to)
{
    return (int)utf8proc_encode_char(code, (utf8proc_uint8_t *)to);
}

size_t ttt_utf8_valid(const char *text, size_t size)
{
    const char *at = text, *end = text + size;
    while (at < end) {
        uint64_t eight;
        if (end - at >= 8 && (memcpy(&eight, at, 8), (eight & UINT64_C(0x8080808080808080)) == 0)) {
            at += 8;
            continue;
        }
        int length;
        if (ttt__utf8_next(at, end, &length) < 0)
            break;
        at += length;
    }
    return (size_t)(at - text);
}

bool ttt__utf8_repair(const char *text, size_t size, ttt__text *out)
{
    while (size > 0) {
        size_t valid = ttt_utf8_valid(text, size);
        if (!ttt__text_add(out, text, valid))
            return false;
        text += valid;
        size -= valid;
        if (size > 0) {
            int broken;
            ttt__utf8_next(text, text + size, &broken);
            if (!ttt__text_add(out, "\xef\xbf\xbd", 3))
                return false;
            text += broken;
            size -= (size_t)broken;
        }
    }
    return true;
}

bool ttt__is_space(int32_t code)
{
    if (code < 0x80)
        return code == ' ' || (code >= '\t' && code <= '\r');
    return code == 0x85 || code == 0xa0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200a) ||
           code == 0x2028 || code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

bool ttt__is_word(int32_t code)
{
    utf8proc_category_t category = utf8proc_category(code);
    return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NL) ||
           category == UTF8PROC_CATEGORY_PC || code == 0x200c || code == 0x200d ||
           (code >= 0x24b6 && code <= 0x24e9) || /* circled and squared letters */
           (code >= 0x1f130 && code <= 0x1f149) || (code >= 0x1f150 && code <= 0x1f169) ||
           (code >= 0x1f170 && code <= 0x1f189);
}

/* ---- normal forms ---- */

typedef struct codes {
    int32_t *list;
    size_t count, room;
} codes;

static bool codes_room(codes *c, size_t more)
{
    if (c->room - c->count >= more)
        return true;
    size_t room = c->room + c->room / 2 + more + 64;
    int32_t *list = realloc(c->list, room * sizeof *list);
    if (list == NULL)
        return false;
    c->list = list;
    c->room = room;
    return true;
}

static int mark_class(int32_t code)
{
    return code < 0x300 ? 0 : utf8proc_get_property(code)->combining_class;
}

/* Stable merge sort of combining marks by class: a text may consist of marks only. */
static void sort_marks(int32_t *marks, int32_t *spare, size_t count)
{
    if (count < 2)
        return;
    size_t half = count / 2, left = 0, right = half;
    sort_marks(marks, spare, half);
    sort_marks(marks + half, spare, count - half);
    memcpy(spare, marks, count * sizeof *marks);
    for (size_t i = 0; i < count; i++) {
        bool take_left =
            left < half && (right == count || mark_class(spare[left]) <= mark_class(spare[right]));
        marks[i] = take_left ? spare[left++] : spare[right++];
    }
}

/* Puts runs of combining marks into canonical order. */
static bool order_marks(codes *c)
{
    int32_t *spare = NULL;
    for (size_t i = 0; i < c->count;) {
        size_t start = i;
        while (i < c->count && mark_class(c->list[i]) != 0)
            i++;
        if (i - start > 1) {
            if (spare == NULL && (spare = malloc(c->count * sizeof *spare)) == NULL)
                return false;
            sort_marks(c->list + start, spare, i - start);
        }
        i += i == start;
    }
    free(spare);
    return true;
}

static bool decompose(const char *text, size_t size, bool compatible, codes *c)
{
    int length, boundary = 0;
    for (const char *at = text, *end = text + size; at < end; at += length) {
        int32_t code = ttt__utf8_next(at, end, &length);
        if (!codes_room(c, 32))
            return false;
        if (code < 0xa0) {
            c->list[c->count++] = code;
            continue;
        }
        utf8proc_option_t options = UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0);
        utf8proc_ssize_t got =
            utf8proc_decompose_char(code, c->list + c->count, 32, options, &boundary);
        if (got < 0 || got > 32)
            return false;
        c->count += (size_t)got;
    }
    return true;
}

static bool write_codes(const codes *c, ttt__text *out)
{
    if (!ttt__text_room(out, 4 * c->count))
        return false;
    for (size_t i = 0; i < c->count; i++)
        out->size += (size_t)ttt__utf8_put(c->list[i], out->data + out->size);
    return true;
}

static bool to_lower(const char *text, size_t size, codes *c)
{
    int length;
    for (const char *at = text, *end = text + size; at < end; at += length) {
        int32_t code = ttt__utf8_next(at, end, &length);
        if (!codes_room(c, 2))
            return false;
        if (code == 0x130) { /* U+0130 is the only letter whose lower case is two characters */
            c->list[c->count++] = 'i';
            code = 0x307;
        } else {
            code = utf8proc_tolower(code);
        }
        c->list[c->count++] = code;
    }
    return true;
}

bool ttt__to_form(ttt__form form, const char *text, size_t size, ttt__text *out)
{
    codes c = {0};
    bool ok;
    if (form == TTT__LOWER) {
        ok = to_lower(text, size, &c);
    } else {
        ok = decompose(text, size, form == TTT__NFKC || form == TTT__NFKD, &c) && order_marks(&c);
        if (ok && (form == TTT__NFC || form == TTT__NFKC)) {
            utf8proc_ssize_t left = utf8proc_normalize_utf32(c.list, (utf8proc_ssize_t)c.count,
                                                             UTF8PROC_COMPOSE | UTF8PROC_STABLE);
            ok = left >= 0;
            c.count = ok ? (size_t)left : 0;
        }
    }
    ok = ok && write_codes(&c, out);
    free(c.list);
    return ok;
}
