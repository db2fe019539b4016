/* Growing buffers, vocabularies and tries. */
#include "runtime/tokenizer/internal.h"

#include <stdlib.h>
#include <xxhash.h>

static const char where[] = "tokenizer";

/* New capacity for `need` elements; 0 on overflow. */
static size_t larger(size_t room, size_t need, size_t element)
{
    size_t wanted = room + room / 2 > need ? room + room / 2 : need;
    wanted = wanted < 16 ? 16 : wanted;
    return wanted > SIZE_MAX / 2 / element ? 0 : wanted;
}

bool ttt__text_room(ttt__text *text, size_t more)
{
    if (text->room - text->size >= more)
        return true;
    size_t room = more > SIZE_MAX / 4 ? 0 : larger(text->room, text->size + more, 1);
    char *data = room == 0 ? NULL : realloc(text->data, room);
    if (data == NULL)
        return false;
    text->data = data;
    text->room = room;
    return true;
}

bool ttt__text_add(ttt__text *text, const char *data, size_t size)
{
    if (!ttt__text_room(text, size))
        return false;
    if (size > 0)
        memcpy(text->data + text->size, data, size);
    text->size += size;
    return true;
}

bool ttt__ids_room(ttt_ids *ids, size_t more)
{
    if (ids->room - ids->count >= more)
        return true;
    size_t room =
        more > SIZE_MAX / 16 ? 0 : larger(ids->room, ids->count + more, sizeof *ids->list);
    int32_t *list = room == 0 ? NULL : realloc(ids->list, room * sizeof *list);
    if (list == NULL)
        return false;
    ids->list = list;
    ids->room = room;
    return true;
}

/* ---- vocabularies ---- */

static size_t slot_of(const ttt__vocab *vocab, const char *text, size_t size)
{
    return XXH3_64bits(text, size) & vocab->mask;
}

int32_t ttt__vocab_find(const ttt__vocab *vocab, const char *text, size_t size)
{
    if (vocab->table == NULL)
        return -1;
    size_t slot = slot_of(vocab, text, size);
    for (; vocab->table[slot] != 0; slot = (slot + 1) & vocab->mask) {
        int32_t id = (int32_t)(vocab->table[slot] - 1);
        if (vocab->tokens[id].size == size && memcmp(ttt__vocab_text(vocab, id), text, size) == 0)
            return id;
    }
    return -1;
}

static void enter(ttt__vocab *vocab, int32_t id)
{
    const char *text = ttt__vocab_text(vocab, id);
    size_t size = vocab->tokens[id].size;
    if (ttt__vocab_find(vocab, text, size) >= 0)
        return;
    size_t slot = slot_of(vocab, text, size);
    while (vocab->table[slot] != 0)
        slot = (slot + 1) & vocab->mask;
    vocab->table[slot] = (uint32_t)id + 1;
}

/* Makes room for one more entry; the table stays at most half full. */
static bool table_room(ttt__vocab *vocab)
{
    size_t slots = vocab->table == NULL ? 0 : vocab->mask + 1;
    if ((size_t)vocab->known + 1 <= slots / 2)
        return true;
    slots = slots == 0 ? 1024 : slots * 2;
    uint32_t *table = calloc(slots, sizeof *table);
    if (table == NULL)
        return false;
    free(vocab->table);
    vocab->table = table;
    vocab->mask = slots - 1;
    for (int32_t id = 0; id < vocab->count; id++) {
        if (vocab->flags[id] & TTT__THERE)
            enter(vocab, id);
    }
    return true;
}

static bool numbers_room(ttt__vocab *vocab, int32_t id)
{
    if (id < vocab->room)
        return true;
    int32_t room = vocab->room + vocab->room / 2 > id ? vocab->room + vocab->room / 2 : id + 256;
    ttt__token *tokens = realloc(vocab->tokens, (size_t)room * sizeof *tokens);
    if (tokens == NULL)
        return false;
    vocab->tokens = tokens;
    uint8_t *flags = realloc(vocab->flags, (size_t)room);
    if (flags == NULL)
        return false;
    memset(flags + vocab->room, 0, (size_t)(room - vocab->room));
    vocab->flags = flags;
    vocab->room = room;
    return true;
}

pjrt_status *ttt__vocab_set(ttt__vocab *vocab, int64_t id, const char *text, size_t size,
                            unsigned flags)
{
    if (size > TTT__MAX_TOKEN)
        return PJRT_FAIL(INVALID_ARGUMENT, where, "a token has %zu bytes: more than %d", size,
                         TTT__MAX_TOKEN);
    /* A small file must not cause gigabytes of allocation. */
    if (id < 0 || id > 1000000 + 16 * (int64_t)vocab->known)
        return PJRT_FAIL(INVALID_ARGUMENT, where, "token %lld: a number far from the others",
                         (long long)id);
    int32_t i = (int32_t)id;
    if (i < vocab->count && vocab->flags[i] & TTT__THERE) {
        if (vocab->tokens[i].size != size || memcmp(ttt__vocab_text(vocab, i), text, size) != 0)
            return PJRT_FAIL(INVALID_ARGUMENT, where, "two tokens have the number %d", i);
        vocab->flags[i] |= (uint8_t)flags;
        return NULL;
    }
    if (vocab->texts.size > UINT32_MAX / 2)
        return PJRT_FAIL(INVALID_ARGUMENT, where, "the vocabulary is too large");
    if (!numbers_room(vocab, i) || !table_room(vocab))
        return PJRT_NO_MEMORY(where);
    uint32_t at = (uint32_t)vocab->texts.size;
    if (!ttt__text_add(&vocab->texts, text, size) || !ttt__text_add(&vocab->texts, "", 1))
        return PJRT_NO_MEMORY(where);
    vocab->tokens[i] = (ttt__token){at, (uint32_t)size};
    vocab->flags[i] = (uint8_t)(flags | TTT__THERE);
    vocab->known++;
    if (i >= vocab->count)
        vocab->count = i + 1;
    enter(vocab, i);
    return NULL;
}

void ttt__vocab_free(ttt__vocab *vocab)
{
    free(vocab->tokens);
    free(vocab->flags);
    free(vocab->texts.data);
    free(vocab->table);
}

/* ---- tries ---- */

static void link_edge(ttt__trie *trie, uint32_t key, uint32_t child)
{
    size_t slot = (key * UINT64_C(0x9e3779b97f4a7c15) >> 32) & trie->mask;
    while (trie->edges[slot].child != 0)
        slot = (slot + 1) & trie->mask;
    trie->edges[slot].key = key;
    trie->edges[slot].child = child;
}

static bool trie_room(ttt__trie *trie)
{
    if (trie->nodes < trie->room)
        return true;
    size_t room = trie->room == 0 ? 64 : trie->room * 2;
    struct ttt__edge *old = trie->edges, *edges = calloc(room * 2, sizeof *edges);
    int32_t *values = edges == NULL ? NULL : realloc(trie->values, room * sizeof *values);
    if (values == NULL) {
        free(edges);
        return false;
    }
    size_t slots = old == NULL ? 0 : trie->mask + 1;
    trie->edges = edges;
    trie->mask = room * 2 - 1;
    trie->values = values;
    trie->room = room;
    for (size_t i = 0; i < slots; i++) {
        if (old[i].child != 0)
            link_edge(trie, old[i].key, old[i].child);
    }
    free(old);
    if (trie->nodes == 0)
        values[trie->nodes++] = -1; /* the root */
    return true;
}

pjrt_status *ttt__trie_add(ttt__trie *trie, const char *text, size_t size, int32_t value)
{
    uint32_t node = 0;
    if (!trie_room(trie))
        return PJRT_NO_MEMORY(where);
    for (size_t i = 0; i < size; i++) {
        uint32_t child = ttt__trie_step(trie, node, (unsigned char)text[i]);
        if (child == 0) {
            if (!trie_room(trie))
                return PJRT_NO_MEMORY(where);
            if (trie->nodes >= 1 << 24)
                return PJRT_FAIL(INVALID_ARGUMENT, where, "the vocabulary is too large");
            child = (uint32_t)trie->nodes++;
            trie->values[child] = -1;
            link_edge(trie, node << 8 | (unsigned char)text[i], child);
        }
        node = child;
    }
    trie->values[node] = value;
    return NULL;
}

size_t ttt__trie_longest(const ttt__trie *trie, const char *at, const char *end, int32_t *value)
{
    size_t longest = 0;
    uint32_t node = 0;
    for (const char *p = at; trie->nodes > 0 && p < end; p++) {
        node = ttt__trie_step(trie, node, (unsigned char)*p);
        if (node == 0)
            break;
        if (trie->values[node] >= 0) {
            longest = (size_t)(p + 1 - at);
            *value = trie->values[node];
        }
    }
    return longest;
}

void ttt__trie_free(ttt__trie *trie)
{
    free(trie->edges);
    free(trie->values);
}
