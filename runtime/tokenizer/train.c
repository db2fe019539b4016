/*
 * Trains a byte-level BPE. Words are counted once. Each round merges the most frequent pair (ties:
 * lowest ids) in the words that contain it and updates the counts of its neighbours. The heap holds
 * each pair with its count at insertion; a stale entry is pushed back with its current count.
 */
#include "runtime/tokenizer/train.h"

#include <stdlib.h>
#include <xxhash.h>

static const char where[] = "tokenizer";

enum { LONGEST = TTT__MAX_TOKEN / 2 }; /* a byte takes up to two bytes in the file */

/* ---- counting words ---- */

typedef struct word {
    uint64_t hash;
    size_t at; /* offset in `texts`; later in `symbols` */
    uint32_t size;
    int64_t count;
} word;

/* Linked list of the words that contain a pair; some may have lost it since. */
typedef struct word_ref {
    uint32_t word, next; /* next 0: end of the list */
} word_ref;

typedef struct pair {
    int32_t left, right;
    int64_t count;
    uint32_t word_refs; /* 0: none */
    bool used, grown;
} pair;

typedef struct waiting {
    int64_t count;
    int32_t left, right;
} waiting;

struct ttt_bpe_trainer {
    word *words;
    size_t n_words, words_room;
    uint32_t *table; /* hash table of word + 1 */
    size_t mask;
    ttt__text texts, repaired;
    /* Used while merging. */
    int32_t *symbols;
    pair *pairs;
    size_t n_pairs, pairs_mask;
    word_ref *word_refs;
    size_t n_word_refs, word_refs_room;
    waiting *heap;
    size_t n_heap, heap_room;
    waiting *grown; /* pairs whose counts grew in this round */
    size_t n_grown, grown_room;
};

pjrt_status *ttt_bpe_trainer_new(ttt_bpe_trainer **out)
{
    *out = calloc(1, sizeof **out);
    return *out == NULL ? PJRT_NO_MEMORY(where) : NULL;
}

/* Frees the memory used for merging. */
static void free_work(ttt_bpe_trainer *trainer)
{
    free(trainer->symbols);
    free(trainer->pairs);
    free(trainer->word_refs);
    free(trainer->heap);
    free(trainer->grown);
    trainer->symbols = NULL;
    trainer->pairs = NULL;
    trainer->word_refs = NULL;
    trainer->heap = trainer->grown = NULL;
    trainer->n_pairs = trainer->pairs_mask = trainer->n_word_refs = trainer->word_refs_room = 0;
    trainer->n_heap = trainer->heap_room = trainer->n_grown = trainer->grown_room = 0;
}

void ttt_bpe_trainer_free(ttt_bpe_trainer *trainer)
{
    if (trainer == NULL)
        return;
    free_work(trainer);
    free(trainer->words);
    free(trainer->table);
    free(trainer->texts.data);
    free(trainer->repaired.data);
    free(trainer);
}

/* Grows a list by one element. */
static bool grow(void **list, size_t *room, size_t count, size_t element)
{
    if (count < *room)
        return true;
    size_t wanted = *room * 2 + 1024;
    void *larger = realloc(*list, wanted * element);
    if (larger == NULL)
        return false;
    *list = larger;
    *room = wanted;
    return true;
}

static bool table_room(ttt_bpe_trainer *trainer)
{
    size_t slots = trainer->table == NULL ? 0 : trainer->mask + 1;
    if (trainer->n_words + 1 <= slots / 2)
        return true;
    slots = slots == 0 ? 4096 : slots * 2;
    uint32_t *table = calloc(slots, sizeof *table);
    if (table == NULL)
        return false;
    free(trainer->table);
    trainer->table = table;
    trainer->mask = slots - 1;
    for (size_t i = 0; i < trainer->n_words; i++) {
        size_t slot = trainer->words[i].hash & trainer->mask;
        while (table[slot] != 0)
            slot = (slot + 1) & trainer->mask;
        table[slot] = (uint32_t)i + 1;
    }
    return true;
}

static pjrt_status *count_word(ttt_bpe_trainer *trainer, const char *text, size_t size)
{
    if (!table_room(trainer))
        return PJRT_NO_MEMORY(where);
    uint64_t hash = XXH3_64bits(text, size);
    size_t slot = hash & trainer->mask;
    for (; trainer->table[slot] != 0; slot = (slot + 1) & trainer->mask) {
        word *w = &trainer->words[trainer->table[slot] - 1];
        if (w->hash == hash && w->size == size &&
            memcmp(trainer->texts.data + w->at, text, size) == 0) {
            w->count++;
            return NULL;
        }
    }
    if (trainer->n_words >= UINT32_MAX - 1)
        return PJRT_FAIL(RESOURCE_EXHAUSTED, where, "too many different words");
    size_t at = trainer->texts.size;
    if (!grow((void **)&trainer->words, &trainer->words_room, trainer->n_words,
              sizeof *trainer->words) ||
        !ttt__text_add(&trainer->texts, text, size))
        return PJRT_NO_MEMORY(where);
    trainer->words[trainer->n_words] = (word){hash, at, (uint32_t)size, 1};
    trainer->table[slot] = (uint32_t)++trainer->n_words;
    return NULL;
}

pjrt_status *ttt_bpe_trainer_add(ttt_bpe_trainer *trainer, const char *text, size_t size)
{
    if (size > INT32_MAX)
        return PJRT_FAIL(INVALID_ARGUMENT, where, "a text of %zu bytes: encode it in parts", size);
    if (ttt_utf8_valid(text, size) < size) {
        trainer->repaired.size = 0;
        if (!ttt__utf8_repair(text, size, &trainer->repaired))
            return PJRT_NO_MEMORY(where);
        text = trainer->repaired.data;
        size = trainer->repaired.size;
    }
    for (const char *at = text, *end = text + size; at < end;) {
        const char *stop = ttt__rule_next(ttt__trained_rule, at, end);
        PJRT_TRY(count_word(trainer, at, (size_t)(stop - at)));
        at = stop;
    }
    return NULL;
}

/* ---- pairs ---- */

static pair *find_pair(const ttt_bpe_trainer *trainer, int32_t left, int32_t right)
{
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    size_t slot = (key * UINT64_C(0x9e3779b97f4a7c15) >> 30) & trainer->pairs_mask;
    for (;; slot = (slot + 1) & trainer->pairs_mask) {
        pair *p = &trainer->pairs[slot];
        if (!p->used || (p->left == left && p->right == right))
            return p;
    }
}

static bool pairs_room(ttt_bpe_trainer *trainer)
{
    size_t slots = trainer->pairs == NULL ? 0 : trainer->pairs_mask + 1;
    pair *old = trainer->pairs;
    if (trainer->n_pairs + 1 <= slots / 2)
        return true;
    pair *larger = calloc(slots == 0 ? 65536 : slots * 2, sizeof *larger);
    if (larger == NULL)
        return false;
    trainer->pairs = larger;
    trainer->pairs_mask = (slots == 0 ? 65536 : slots * 2) - 1;
    for (size_t i = 0; i < slots; i++) {
        if (old[i].used)
            *find_pair(trainer, old[i].left, old[i].right) = old[i];
    }
    free(old);
    return true;
}

/* Heap order: whether `a` comes out before `b`. */
static bool before(const waiting *a, const waiting *b)
{
    if (a->count != b->count)
        return a->count > b->count;
    return a->left != b->left ? a->left < b->left : a->right < b->right;
}

static bool push(ttt_bpe_trainer *trainer, waiting entry)
{
    if (!grow((void **)&trainer->heap, &trainer->heap_room, trainer->n_heap, sizeof *trainer->heap))
        return false;
    size_t at = trainer->n_heap++;
    while (at > 0 && before(&entry, &trainer->heap[(at - 1) / 2])) {
        trainer->heap[at] = trainer->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    trainer->heap[at] = entry;
    return true;
}

static waiting pop(ttt_bpe_trainer *trainer)
{
    waiting *heap = trainer->heap, top = heap[0], last = heap[--trainer->n_heap];
    size_t at = 0, count = trainer->n_heap;
    for (size_t child = 1; child < count; child = 2 * at + 1) {
        child += child + 1 < count && before(&heap[child + 1], &heap[child]);
        if (!before(&heap[child], &last))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = last;
    return top;
}

/* Adds to the count of a pair and records the word. */
static bool count_up(ttt_bpe_trainer *trainer, int32_t left, int32_t right, uint32_t in)
{
    if (!pairs_room(trainer) ||
        !grow((void **)&trainer->word_refs, &trainer->word_refs_room, trainer->n_word_refs + 1,
              sizeof *trainer->word_refs) ||
        !grow((void **)&trainer->grown, &trainer->grown_room, trainer->n_grown,
              sizeof *trainer->grown))
        return false;
    pair *p = find_pair(trainer, left, right);
    trainer->n_word_refs += trainer->n_word_refs == 0; /* index 0 means none */
    if (!p->used) {
        *p = (pair){.left = left, .right = right, .used = true};
        trainer->n_pairs++;
    }
    p->count += trainer->words[in].count;
    if (p->word_refs == 0 || trainer->word_refs[p->word_refs].word != in) {
        trainer->word_refs[trainer->n_word_refs] = (word_ref){in, p->word_refs};
        p->word_refs = (uint32_t)trainer->n_word_refs++;
    }
    if (!p->grown)
        trainer->grown[trainer->n_grown++] = (waiting){0, left, right};
    p->grown = true;
    return trainer->n_word_refs < UINT32_MAX;
}

static void count_down(ttt_bpe_trainer *trainer, int32_t left, int32_t right, uint32_t in)
{
    pair *p = find_pair(trainer, left, right);
    if (p->used)
        p->count -= trainer->words[in].count;
}

/* Pushes the pairs that grew, with their current counts. */
static bool push_grown(ttt_bpe_trainer *trainer)
{
    for (size_t i = 0; i < trainer->n_grown; i++) {
        pair *p = find_pair(trainer, trainer->grown[i].left, trainer->grown[i].right);
        p->grown = false;
        if (p->count > 0 && !push(trainer, (waiting){p->count, p->left, p->right}))
            return false;
    }
    trainer->n_grown = 0;
    return true;
}

/* ---- merging ---- */

/* Turns words into symbols and counts their pairs. */
static bool start(ttt_bpe_trainer *trainer)
{
    int32_t numbers[256];
    for (int i = 0; i < 256; i++)
        numbers[i] = ttt__trained_byte((unsigned char)i);
    trainer->symbols = malloc((trainer->texts.size + 1) * sizeof *trainer->symbols);
    if (trainer->symbols == NULL || !pairs_room(trainer))
        return false;
    for (size_t i = 0; i < trainer->texts.size; i++)
        trainer->symbols[i] = numbers[(unsigned char)trainer->texts.data[i]];
    for (uint32_t i = 0; i < trainer->n_words; i++) {
        const int32_t *s = trainer->symbols + trainer->words[i].at;
        for (uint32_t k = 0; k + 1 < trainer->words[i].size; k++) {
            if (!count_up(trainer, s[k], s[k + 1], i))
                return false;
        }
    }
    return push_grown(trainer);
}

/* Merges a pair in one word and shrinks *size. */
static bool merge_in(ttt_bpe_trainer *trainer, uint32_t in, uint32_t *size, waiting old,
                     int32_t merged)
{
    int32_t *s = trainer->symbols + trainer->words[in].at;
    uint32_t n = *size, to = 0;
    bool ok = true;
    for (uint32_t i = 0; ok && i < n; i++) {
        if (i + 1 == n || s[i] != old.left || s[i + 1] != old.right) {
            s[to++] = s[i];
            continue;
        }
        if (to > 0) {
            count_down(trainer, s[to - 1], old.left, in);
            ok = count_up(trainer, s[to - 1], merged, in);
        }
        if (ok && i + 2 < n) {
            count_down(trainer, old.right, s[i + 2], in);
            ok = count_up(trainer, merged, s[i + 2], in);
        }
        s[to++] = merged;
        i++;
    }
    *size = to;
    return ok;
}

/* Pops the most frequent pair. False if none is left. */
static bool next_pair(ttt_bpe_trainer *trainer, waiting *out, bool *memory)
{
    while (trainer->n_heap > 0) {
        *out = pop(trainer);
        const pair *p = find_pair(trainer, out->left, out->right);
        if (p->count == out->count)
            return true;
        waiting now = {p->count, out->left, out->right};
        if (p->count > 0 && !push(trainer, now)) {
            *memory = false;
            return false;
        }
    }
    return false;
}

/* One round; `sizes` are the words' lengths in symbols. */
static bool merge_pair(ttt_bpe_trainer *trainer, uint32_t *sizes, waiting chosen, int32_t merged)
{
    pair *p = find_pair(trainer, chosen.left, chosen.right);
    uint32_t at = p->word_refs;
    p->word_refs = 0;
    p->count = 0;
    while (at != 0) {
        word_ref here = trainer->word_refs[at]; /* copy: the list may move */
        if (!merge_in(trainer, here.word, &sizes[here.word], chosen, merged))
            return false;
        at = here.next;
    }
    find_pair(trainer, chosen.left, chosen.right)->count = 0;
    return push_grown(trainer);
}

/* The id of a merged token: new, unless another merge produced the same text. */
static pjrt_status *name_token(ttt__vocab *vocab, waiting chosen, int32_t *id)
{
    char text[2 * LONGEST];
    const ttt__token *left = &vocab->tokens[chosen.left], *right = &vocab->tokens[chosen.right];
    size_t size = left->size + right->size;
    *id = -1;
    if (size > LONGEST)
        return NULL;
    memcpy(text, ttt__vocab_text(vocab, chosen.left), left->size);
    memcpy(text + left->size, ttt__vocab_text(vocab, chosen.right), right->size);
    *id = ttt__vocab_find(vocab, text, size);
    if (*id >= 0)
        return NULL;
    *id = vocab->count;
    return ttt__vocab_set(vocab, *id, text, size, 0);
}

static pjrt_status *merge_all(ttt_bpe_trainer *trainer, uint32_t *sizes, ttt__trained *trained,
                              int64_t wanted, void (*progress)(void *, int64_t, int64_t), void *ctx)
{
    ttt__vocab *vocab = &trained->vocab;
    int32_t first = vocab->count, merged;
    waiting chosen;
    bool memory = start(trainer);
    while (memory && vocab->count < wanted && next_pair(trainer, &chosen, &memory)) {
        PJRT_TRY(name_token(vocab, chosen, &merged));
        if (merged < 0)
            continue;
        memory = ttt__ids_add(&trained->merges, chosen.left) &&
                 ttt__ids_add(&trained->merges, chosen.right) &&
                 merge_pair(trainer, sizes, chosen, merged);
        if (progress != NULL)
            progress(ctx, vocab->count - first, wanted - first);
    }
    if (!memory)
        return PJRT_NO_MEMORY(where);
    if (vocab->count < wanted)
        return PJRT_FAIL(OUT_OF_RANGE, where,
                         "the text has only enough pairs for a vocabulary of %d, not %lld: give "
                         "more text or ask for less",
                         vocab->count, (long long)wanted);
    return NULL;
}

pjrt_status *ttt_bpe_trainer_write(ttt_bpe_trainer *trainer, int64_t vocab, const char *path,
                                   void (*progress)(void *ctx, int64_t done, int64_t all),
                                   void *ctx)
{
    ttt__trained trained = {0};
    if (vocab < TTT__LEAST_TRAINED || vocab > 1 << 20)
        return PJRT_FAIL(INVALID_ARGUMENT, where, "a vocabulary has from %d to %d tokens",
                         TTT__LEAST_TRAINED, 1 << 20);
    pjrt_status *st = ttt__trained_start(&trained);
    uint32_t *sizes = st == NULL ? malloc((trainer->n_words + 1) * sizeof *sizes) : NULL;
    if (st == NULL && sizes == NULL)
        st = PJRT_NO_MEMORY(where);
    for (size_t i = 0; st == NULL && i < trainer->n_words; i++)
        sizes[i] = trainer->words[i].size;
    if (st == NULL)
        st = merge_all(trainer, sizes, &trained, vocab, progress, ctx);
    free(sizes);
    free_work(trainer);
    if (st == NULL)
        st = ttt__trained_write(&trained, path);
    ttt__vocab_free(&trained.vocab);
    free(trained.merges.list);
    return st;
}
