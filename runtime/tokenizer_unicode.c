/* UTF-8, classes of characters, and Unicode's normal forms. */
#include "runtime/tokenizer_inside.h"

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
    /* The second byte rules out long forms, surrogates and what is past the last code point. */
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

size_t ttt__utf8_valid(const char *text, size_t size)
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
        size_t valid = ttt__utf8_valid(text, size);
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
           (code >= 0x24b6 && code <= 0x24e9); /* circled letters are letters too */
}
