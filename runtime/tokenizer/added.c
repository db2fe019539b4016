/* Added tokens: matched in the raw text before anything else, leftmost first, then longest,
 * including surrounding white space where lstrip or rstrip is set. */
#include "runtime/tokenizer/internal.h"

#include <stdlib.h>

static const char where[] = "tokenizer";

pjrt_status *ttt__added_add(ttt__added *added, const char *text, size_t size, int32_t id,
                            unsigned flags)
{
    struct ttt__added_token *list = realloc(added->list, ((size_t)added->count + 1) * sizeof *list);
    if (list == NULL)
        return PJRT_NO_MEMORY(where);
    added->list = list;
    if (size == 0)
        return PJRT_FAIL(INVALID_ARGUMENT, where, "added token %d has no text", id);
    PJRT_TRY(ttt__trie_add(&added->trie, text, size, added->count));
    list[added->count++] = (struct ttt__added_token){id, (uint8_t)flags};
    added->plain += (flags & TTT__ADDED_SPECIAL) == 0;
    added->starts[(unsigned char)text[0]] = true;
    return NULL;
}

void ttt__added_free(ttt__added *added)
{
    ttt__trie_free(&added->trie);
    free(added->list);
}

/* The code point that ends at `at`. */
static int32_t code_before(const char *start, const char *at)
{
    int size;
    const char *p = at - 1;
    while (p > start && ((unsigned char)*p & 0xc0) == 0x80)
        p--;
    return ttt__utf8_next(p, at, &size);
}

static const char *skip_spaces(const char *at, const char *end)
{
    int size;
    while (at < end && ttt__is_space(ttt__utf8_next(at, end, &size)))
        at += size;
    return at;
}

static const char *skip_spaces_back(const char *start, const char *at)
{
    while (at > start && ttt__is_space(code_before(start, at))) {
        do {
            at--;
        } while (at > start && ((unsigned char)*at & 0xc0) == 0x80);
    }
    return at;
}

static bool stands_alone(const char *start, const char *at, const char *stop, const char *end)
{
    int size;
    return (at == start || !ttt__is_word(code_before(start, at))) &&
           (stop == end || !ttt__is_word(ttt__utf8_next(stop, end, &size)));
}

static bool wanted(const struct ttt__added_token *token, unsigned flags, const char *start,
                   const char *at, const char *stop, const char *end)
{
    if (token->flags & TTT__ADDED_SPECIAL && !(flags & TTT_SPECIALS))
        return false;
    return !(token->flags & TTT__SINGLE_WORD) || stands_alone(start, at, stop, end);
}

pjrt_status *ttt__added_cut(const ttt__added *added, ttt_encoder *encoder, const char *text,
                            size_t size, bool first, ttt__rest rest, ttt_ids *ids)
{
    const char *end = text + size, *done = text, *at = text;
    if (added->plain == 0 && (added->count == 0 || !(encoder->flags & TTT_SPECIALS)))
        at = end;
    while (at < end) {
        int32_t which = 0;
        size_t length = added->starts[(unsigned char)*at]
                            ? ttt__trie_longest(&added->trie, at, end, &which)
                            : 0;
        if (length == 0) {
            at++;
            continue;
        }
        const struct ttt__added_token *token = &added->list[which];
        const char *from = at, *stop = at + length;
        at = stop;
        if (!wanted(token, encoder->flags, text, from, stop, end))
            continue;
        if (token->flags & TTT__LSTRIP)
            from = skip_spaces_back(done < from ? done : from, from);
        if (token->flags & TTT__RSTRIP)
            stop = skip_spaces(stop, end);
        if (done < from)
            PJRT_TRY(rest(encoder, done, (size_t)(from - done), first && done == text, ids));
        if (!ttt__ids_add(ids, token->id))
            return PJRT_NO_MEMORY(where);
        done = stop;
    }
    if (done < end)
        return rest(encoder, done, (size_t)(end - done), first && done == text, ids);
    return NULL;
}
