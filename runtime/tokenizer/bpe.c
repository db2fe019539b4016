/*
 * Byte-pair merging: repeatedly merges the adjacent pair of lowest rank, leftmost first. Short
 * words scan all pairs; long words use a heap, so n bytes without a space cost O(n log n).
 */
#include "runtime/tokenizer/internal.h"

#include <stdlib.h>

static const char where[] = "tokenizer";

enum { SHORT_WORD = 48 };

/* ---- pairs ---- */

static size_t slot_of(const ttt__pairs *pairs, int32_t left, int32_t right)
{
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    return (key * UINT64_C(0x9e3779b97f4a7c15) >> 30) & pairs->mask;
}

/* The slot of the pair, or a free slot (rank TTT__NO_RANK). */
static ttt__pair *find_slot(const ttt__pairs *pairs, int32_t left, int32_t right)
{
    size_t slot = slot_of(pairs, left, right);
    for (;; slot = (slot + 1) & pairs->mask) {
        ttt__pair *pair = &pairs->table[slot];
        if (pair->rank == TTT__NO_RANK || (pair->left == left && pair->right == right))
            return pair;
    }
}

static bool pairs_room(ttt__pairs *pairs)
{
    size_t slots = pairs->table == NULL ? 0 : pairs->mask + 1;
    if (pairs->count + 1 <= slots / 2)
        return true;
    ttt__pairs larger = {.mask = (slots == 0 ? 1024 : slots * 2) - 1};
    larger.table = malloc((larger.mask + 1) * sizeof *larger.table);
    if (larger.table == NULL)
        return false;
    for (size_t i = 0; i <= larger.mask; i++)
        larger.table[i] = (ttt__pair){-1, -1, -1, TTT__NO_RANK};
    for (size_t i = 0; i < slots; i++) {
        const ttt__pair *pair = &pairs->table[i];
        if (pair->rank != TTT__NO_RANK)
            *find_slot(&larger, pair->left, pair->right) = *pair;
    }
    free(pairs->table);
    larger.count = pairs->count;
    *pairs = larger;
    return true;
}

pjrt_status *ttt__pairs_add(ttt__pairs *pairs, ttt__pair pair)
{
    if (!pairs_room(pairs))
        return PJRT_NO_MEMORY(where);
    ttt__pair *slot = find_slot(pairs, pair.left, pair.right);
    pairs->count += slot->rank == TTT__NO_RANK;
    *slot = pair;
    return NULL;
}

static bool may_take_part(const uint32_t *ranks, int32_t id)
{
    return id >= 0 && ranks[id] != TTT__NO_RANK;
}

pjrt_status *ttt__pairs_of_texts(ttt__pairs *pairs, const ttt__vocab *vocab, const uint32_t *ranks,
                                 bool characters)
{
    for (int32_t id = 0; id < vocab->count; id++) {
        if (ranks[id] == TTT__NO_RANK || vocab->flags[id] & TTT__GHOST)
            continue;
        const char *text = ttt__vocab_text(vocab, id);
        size_t size = vocab->tokens[id].size;
        for (size_t cut = 1; cut < size; cut++) {
            if (characters && ((unsigned char)text[cut] & 0xc0) == 0x80)
                continue;
            int32_t left = ttt__vocab_find(vocab, text, cut);
            if (!may_take_part(ranks, left))
                continue;
            int32_t right = ttt__vocab_find(vocab, text + cut, size - cut);
            if (may_take_part(ranks, right))
                PJRT_TRY(ttt__pairs_add(pairs, (ttt__pair){left, right, id, ranks[id]}));
        }
    }
    return NULL;
}

void ttt__pairs_free(ttt__pairs *pairs)
{
    free(pairs->table);
}

/* ---- merging ---- */

struct ttt__node {
    int32_t id, previous, next; /* -1: none; id -1: merged into its neighbour */
    int32_t merged;             /* id after merging with the next node, */
    uint32_t rank;              /* at this rank */
};

pjrt_status *ttt__symbols_room(ttt__symbols *symbols, size_t count)
{
    if (count <= symbols->room)
        return NULL;
    size_t room = count + count / 2 + 64;
    int32_t *list = realloc(symbols->list, room * sizeof *list);
    if (list == NULL)
        return PJRT_NO_MEMORY(where);
    symbols->list = list;
    symbols->room = room;
    return NULL;
}

void ttt__symbols_free(ttt__symbols *symbols)
{
    free(symbols->list);
    free(symbols->nodes);
    free(symbols->heap);
}

static void merge_short(const ttt__pairs *pairs, ttt__symbols *symbols)
{
    int32_t *list = symbols->list;
    const ttt__pair *with_next[SHORT_WORD];
    size_t count = symbols->count;
    for (size_t i = 0; i + 1 < count; i++)
        with_next[i] = find_slot(pairs, list[i], list[i + 1]);
    for (;;) {
        size_t best = 0;
        uint32_t rank = TTT__NO_RANK;
        for (size_t i = 0; i + 1 < count; i++) {
            if (with_next[i]->rank < rank) {
                rank = with_next[i]->rank;
                best = i;
            }
        }
        if (rank == TTT__NO_RANK)
            break;
        list[best] = with_next[best]->merged;
        count--;
        for (size_t i = best + 1; i < count; i++) {
            list[i] = list[i + 1];
            with_next[i - 1] = with_next[i];
        }
        if (best + 1 < count)
            with_next[best] = find_slot(pairs, list[best], list[best + 1]);
        if (best > 0)
            with_next[best - 1] = find_slot(pairs, list[best - 1], list[best]);
    }
    symbols->count = count;
}

static bool push(ttt__symbols *symbols, uint64_t entry)
{
    if (symbols->heap_count == symbols->heap_room) {
        size_t room = symbols->heap_room * 2 + 1024;
        uint64_t *heap = realloc(symbols->heap, room * sizeof *heap);
        if (heap == NULL)
            return false;
        symbols->heap = heap;
        symbols->heap_room = room;
    }
    size_t at = symbols->heap_count++;
    while (at > 0 && symbols->heap[(at - 1) / 2] > entry) {
        symbols->heap[at] = symbols->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    symbols->heap[at] = entry;
    return true;
}

static uint64_t pop(ttt__symbols *symbols)
{
    uint64_t *heap = symbols->heap, top = heap[0], last = heap[--symbols->heap_count];
    size_t at = 0, count = symbols->heap_count;
    for (size_t child = 1; child < count; child = 2 * at + 1) {
        child += child + 1 < count && heap[child + 1] < heap[child];
        if (heap[child] >= last)
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = last;
    return top;
}

/* Looks up the merge of a node with its successor and pushes it on the heap. */
static bool look(const ttt__pairs *pairs, ttt__symbols *symbols, int32_t at)
{
    struct ttt__node *node = &symbols->nodes[at];
    node->rank = TTT__NO_RANK;
    if (node->next < 0)
        return true;
    const ttt__pair *pair = find_slot(pairs, node->id, symbols->nodes[node->next].id);
    if (pair->rank == TTT__NO_RANK)
        return true;
    node->rank = pair->rank;
    node->merged = pair->merged;
    return push(symbols, (uint64_t)pair->rank << 32 | (uint32_t)at);
}

/* Merges a node with its successor. */
static bool join(const ttt__pairs *pairs, ttt__symbols *symbols, int32_t at)
{
    struct ttt__node *nodes = symbols->nodes, *node = &nodes[at];
    nodes[node->next].id = -1;
    node->id = node->merged;
    node->next = nodes[node->next].next;
    if (node->next >= 0)
        nodes[node->next].previous = at;
    return look(pairs, symbols, at) && (node->previous < 0 || look(pairs, symbols, node->previous));
}

static pjrt_status *merge_long(const ttt__pairs *pairs, ttt__symbols *symbols)
{
    size_t count = symbols->count;
    if (count > symbols->nodes_room) {
        struct ttt__node *nodes = realloc(symbols->nodes, count * sizeof *nodes);
        if (nodes == NULL)
            return PJRT_NO_MEMORY(where);
        symbols->nodes = nodes;
        symbols->nodes_room = count;
    }
    struct ttt__node *nodes = symbols->nodes;
    symbols->heap_count = 0;
    for (size_t i = 0; i < count; i++)
        nodes[i] = (struct ttt__node){.id = symbols->list[i],
                                      .previous = (int32_t)i - 1,
                                      .next = i + 1 < count ? (int32_t)i + 1 : -1};
    bool ok = true;
    for (size_t i = 0; ok && i < count; i++)
        ok = look(pairs, symbols, (int32_t)i);
    while (ok && symbols->heap_count > 0) {
        uint64_t top = pop(symbols);
        int32_t at = (int32_t)(uint32_t)top;
        if (nodes[at].id >= 0 && nodes[at].rank == top >> 32) /* else the entry is stale */
            ok = join(pairs, symbols, at);
    }
    symbols->count = 0;
    for (int32_t at = 0; ok && at >= 0; at = nodes[at].next)
        symbols->list[symbols->count++] = nodes[at].id;
    return ok ? NULL : PJRT_NO_MEMORY(where);
}

pjrt_status *ttt__merge(const ttt__pairs *pairs, ttt__symbols *symbols)
{
    if (pairs->count == 0 || symbols->count < 2)
        return NULL;
    if (symbols->count > SHORT_WORD)
        return merge_long(pairs, symbols);
    merge_short(pairs, symbols);
    return NULL;
}
