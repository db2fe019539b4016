/*
 * sentencepiece normalization: at each position the longest matching rule replaces its match. The
 * model stores the rules as a double-array trie of 32-bit units: label, has-value flag, offset of
 * the children.
 */
#include "runtime/tokenizer/sentencepiece.h"

#include <stdlib.h>

static const char where[] = "tokenizer";

static const char space_symbol[] = "\xe2\x96\x81"; /* U+2581 */

static uint32_t children_of(uint32_t unit)
{
    return (unit >> 10) << ((unit & 1U << 9) >> 6);
}

/* Follows one byte from a node. False if there is no child. */
static bool walk(const ttt__sentencepiece *sp, uint32_t *node, unsigned char byte, uint32_t *unit)
{
    uint32_t at = *node ^ byte;
    if (at >= sp->n_units)
        return false;
    *unit = sp->units[at];
    if ((*unit & (1U << 31 | 0xff)) != byte)
        return false;
    *node = at ^ children_of(*unit);
    return true;
}

/* Bytes matched by the longest rule, 0 for none; *value is the offset of the replacement. */
static size_t longest_rule(const ttt__sentencepiece *sp, const char *at, const char *end,
                           uint32_t *value)
{
    size_t longest = 0;
    if (sp->n_units == 0)
        return 0;
    uint32_t node = children_of(sp->units[0]), unit;
    for (const char *p = at; p < end && walk(sp, &node, (unsigned char)*p, &unit); p++) {
        if (unit & 1U << 8 && node < sp->n_units) {
            longest = (size_t)(p + 1 - at);
            *value = sp->units[node] & ~(1U << 31);
        }
    }
    return longest;
}

static bool is_plain(const ttt__sentencepiece *sp, unsigned char letter)
{
    if (sp->n_units == 0)
        return true;
    uint32_t node = children_of(sp->units[0]), unit;
    if (!walk(sp, &node, letter, &unit))
        return true;
    for (unsigned char next = 1; next < 0x80; next++) {
        uint32_t child = node, other;
        if (walk(sp, &child, next, &other))
            return false;
    }
    return (unit & 1U << 8) == 0;
}

pjrt_status *ttt__charsmap_read(ttt__sentencepiece *sp, const uint8_t *bytes, size_t size)
{
    uint32_t trie_size = 0;
    if (size > 0) {
        if (size > 4)
            memcpy(&trie_size, bytes, 4);
        if (size <= 4 || trie_size % 4 != 0 || trie_size == 0 || trie_size > size - 4)
            return PJRT_FAIL(INVALID_ARGUMENT, where, "the precompiled_charsmap is broken");
        sp->n_units = trie_size / 4;
        sp->replacements_size = size - 4 - trie_size;
        sp->units = malloc(trie_size);
        sp->replacements = malloc(sp->replacements_size + 1);
        if (sp->units == NULL || sp->replacements == NULL)
            return PJRT_NO_MEMORY(where);
        memcpy(sp->units, bytes + 4, trie_size);
        memcpy(sp->replacements, bytes + 4 + trie_size, sp->replacements_size);
        sp->replacements[sp->replacements_size] = '\0';
    }
    for (int i = 0; i < 128; i++)
        sp->plain_ascii[i] =
            is_plain(sp, (unsigned char)i) &&
            (sp->user.nodes == 0 || ttt__trie_step(&sp->user, 0, (unsigned char)i) == 0);
    return NULL;
}

/* Normalizes the first match or character into `out`; returns the bytes consumed. */
static size_t next_part(const ttt__sentencepiece *sp, const char *at, const char *end,
                        const char **out, size_t *out_size)
{
    int32_t which;
    uint32_t value = 0;
    int length;
    *out = at;
    if ((unsigned char)*at < 0x80 && sp->plain_ascii[(unsigned char)*at] &&
        (end - at == 1 || (unsigned char)at[1] < 0x80))
        return *out_size = 1;
    size_t taken = ttt__trie_longest(&sp->user, at, end, &which);
    if (taken > 0)
        return *out_size = taken;
    taken = longest_rule(sp, at, end, &value);
    if (taken > 0) {
        *out = value <= sp->replacements_size ? sp->replacements + value : "";
        *out_size = strlen(*out);
        return taken;
    }
    if (ttt__utf8_next(at, end, &length) < 0) { /* one U+FFFD per invalid byte */
        *out = "\xef\xbf\xbd";
        *out_size = 3;
        return 1;
    }
    return *out_size = (size_t)length;
}

static bool add_part(const ttt__sentencepiece *sp, const char *part, size_t size, ttt__text *out)
{
    if (!sp->escape)
        return ttt__text_add(out, part, size);
    if (!ttt__text_room(out, 3 * size))
        return false;
    for (size_t i = 0; i < size; i++) {
        if (part[i] == ' ') {
            memcpy(out->data + out->size, space_symbol, 3);
            out->size += 3;
        } else {
            out->data[out->size++] = part[i];
        }
    }
    return true;
}

static const char *skip_heading(const ttt__sentencepiece *sp, const char *at, const char *end)
{
    const char *part;
    size_t size, taken;
    while (at < end) {
        taken = next_part(sp, at, end, &part, &size);
        if (size != 1 || *part != ' ')
            break;
        at += taken;
    }
    return at;
}

/* Length of the run of ASCII that no rule changes and that has no space. The byte after the run
 * must be ASCII as well. */
static size_t plain_run(const ttt__sentencepiece *sp, const char *at, const char *end)
{
    const char *p = at;
    while (p < end && (unsigned char)*p < 0x80 && *p != ' ' && sp->plain_ascii[(unsigned char)*p])
        p++;
    bool followed = p < end && (unsigned char)*p >= 0x80;
    return (size_t)(p - at) - (followed && p > at);
}

static void cut_trailing(const ttt__sentencepiece *sp, ttt__text *out)
{
    const char *space = sp->escape ? space_symbol : " ";
    size_t size = strlen(space);
    while (out->size >= size && memcmp(out->data + out->size - size, space, size) == 0)
        out->size -= size;
}

pjrt_status *ttt__charsmap_apply(const ttt__sentencepiece *sp, const char *text, size_t size,
                                 ttt__text *out)
{
    const char *at = text, *end = text + size;
    bool after_space = sp->remove_extra;
    out->size = 0;
    if (sp->remove_extra)
        at = skip_heading(sp, at, end);
    if (at == end)
        return NULL;
    if (!sp->as_suffix && sp->add_prefix && !add_part(sp, " ", 1, out))
        return PJRT_NO_MEMORY(where);
    while (at < end) {
        const char *part;
        size_t part_size = plain_run(sp, at, end);
        if (part_size > 0) {
            if (!ttt__text_add(out, at, part_size))
                return PJRT_NO_MEMORY(where);
            at += part_size;
            after_space = false;
            continue;
        }
        at += next_part(sp, at, end, &part, &part_size);
        while (after_space && part_size > 0 && *part == ' ') {
            part++;
            part_size--;
        }
        if (part_size > 0) {
            if (!add_part(sp, part, part_size, out))
                return PJRT_NO_MEMORY(where);
            after_space = sp->remove_extra && part[part_size - 1] == ' ';
        }
    }
    if (sp->remove_extra)
        cut_trailing(sp, out);
    if (sp->as_suffix && sp->add_prefix && !add_part(sp, " ", 1, out))
        return PJRT_NO_MEMORY(where);
    return NULL;
}
