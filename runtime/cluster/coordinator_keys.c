/* Keys that are put once, those who wait for them, and gatherings where everyone brings something.
 */
#include "runtime/cluster/coordinator_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct keeper_key {
    keeper_key *next;
    size_t key_size, value_size;
    char bytes[]; /* key, then value */
};

struct keeper_wait {
    keeper_wait *next;
    keeper_peer *peer;
    uint32_t id;
    double deadline, seconds;
    size_t key_size;
    char key[];
};

struct keeper_gathering {
    keeper_gathering *next;
    char *name;
    double deadline, seconds;
    size_t each; /* bytes of everyone */
    int n_came;
    bool *came;
    uint32_t *ids; /* of their requests */
    char *all;
};

static const size_t most_kept = (size_t)1 << 30;

static void reply_text(keeper_peer *peer, uint32_t id, pjrt_code code, const char *text)
{
    ttt__coordinator_reply(peer, id, code, text, strlen(text));
}

/* ---- keys --------------------------------------------------------------------------------------
 */

static keeper_key **bucket(ttt__coordinator *k, const char *key, size_t size)
{
    uint64_t hash = 0xcbf29ce484222325;
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ (unsigned char)key[i]) * 0x100000001b3;
    return &k->keys[hash % KEEPER_BUCKETS];
}

static const keeper_key *find(ttt__coordinator *k, const char *key, size_t size)
{
    for (const keeper_key *e = *bucket(k, key, size); e != NULL; e = e->next) {
        if (e->key_size == size && memcmp(e->bytes, key, size) == 0)
            return e;
    }
    return NULL;
}

static pjrt_code keep(ttt__coordinator *k, const char *key, size_t key_size, const char *value,
                      size_t value_size)
{
    if (find(k, key, key_size) != NULL)
        return PJRT_CODE_ALREADY_EXISTS;
    size_t size = sizeof(keeper_key) + key_size + value_size;
    keeper_key *e = size > most_kept - k->kept ? NULL : malloc(size);
    if (e == NULL)
        return PJRT_CODE_RESOURCE_EXHAUSTED;
    keeper_key **at = bucket(k, key, key_size);
    e->next = *at;
    e->key_size = key_size;
    e->value_size = value_size;
    memcpy(e->bytes, key, key_size);
    if (value_size > 0)
        memcpy(e->bytes + key_size, value, value_size);
    *at = e;
    k->kept += size;
    return PJRT_CODE_OK;
}

bool ttt__coordinator_put(ttt__coordinator *k, keeper_peer *peer, store_frame *frame)
{
    uint32_t key_size;
    const char *key;
    if (!ttt__take_u32(frame, &key_size) || key_size == 0 || key_size > STORE_KEY ||
        !ttt__take(frame, key_size, &key))
        return false;
    pjrt_code code = keep(k, key, key_size, frame->body, frame->size);
    ttt__coordinator_reply(peer, frame->id, code, NULL, 0);
    for (keeper_wait **at = &k->waits; *at != NULL && code == PJRT_CODE_OK;) {
        keeper_wait *wait = *at;
        if (wait->key_size != key_size || memcmp(wait->key, key, key_size) != 0) {
            at = &wait->next;
            continue;
        }
        ttt__coordinator_reply(wait->peer, wait->id, PJRT_CODE_OK, frame->body, frame->size);
        *at = wait->next;
        free(wait);
    }
    return true;
}

bool ttt__coordinator_get(ttt__coordinator *k, keeper_peer *peer, store_frame *frame, double now)
{
    uint32_t ms;
    if (!ttt__take_u32(frame, &ms) || frame->size == 0 || frame->size > STORE_KEY)
        return false;
    const keeper_key *e = find(k, frame->body, frame->size);
    if (e != NULL) {
        ttt__coordinator_reply(peer, frame->id, PJRT_CODE_OK, e->bytes + e->key_size,
                               e->value_size);
        return true;
    }
    if (ms == 0) {
        ttt__coordinator_reply(peer, frame->id, PJRT_CODE_NOT_FOUND, NULL, 0);
        return true;
    }
    if (k->lost[0] != '\0') {
        reply_text(peer, frame->id, PJRT_CODE_UNAVAILABLE, k->lost);
        return true;
    }
    keeper_wait *wait = malloc(sizeof *wait + frame->size);
    if (wait == NULL) {
        ttt__coordinator_reply(peer, frame->id, PJRT_CODE_RESOURCE_EXHAUSTED, NULL, 0);
        return true;
    }
    *wait = (keeper_wait){k->waits, peer, frame->id, now + 1e-3 * ms, 1e-3 * ms, frame->size};
    memcpy(wait->key, frame->body, frame->size);
    k->waits = wait;
    return true;
}

/* ---- gatherings --------------------------------------------------------------------------------
 */

static void free_gathering(ttt__coordinator *k, keeper_gathering *g)
{
    k->kept -= g->each * (size_t)k->processes;
    free(g->name);
    free(g->came);
    free(g->ids);
    free(g->all);
    free(g);
}

/* Answers all who came, and takes the gathering out of the list. */
static void conclude(ttt__coordinator *k, keeper_gathering **at, pjrt_code code, const void *body,
                     size_t size)
{
    keeper_gathering *g = *at;
    for (int i = 0; i < k->processes; i++) {
        if (g->came[i] && k->members[i].peer != NULL)
            ttt__coordinator_reply(k->members[i].peer, g->ids[i], code, body, size);
    }
    *at = g->next;
    free_gathering(k, g);
}

static keeper_gathering *start_gathering(ttt__coordinator *k, const char *name, size_t name_size,
                                         size_t each)
{
    size_t n = (size_t)k->processes;
    if (each > (most_kept - k->kept) / n || each > (STORE_FRAME - 4) / n)
        return NULL;
    keeper_gathering *g = calloc(1, sizeof *g);
    if (g == NULL)
        return NULL;
    g->each = each;
    k->kept += each * n;
    g->name = strndup(name, name_size);
    g->came = calloc(n, sizeof *g->came);
    g->ids = calloc(n, sizeof *g->ids);
    g->all = malloc(n * each + 1);
    if (g->name == NULL || g->came == NULL || g->ids == NULL || g->all == NULL) {
        free_gathering(k, g);
        return NULL;
    }
    g->next = k->gatherings;
    k->gatherings = g;
    return g;
}

/* Why it cannot be, or NULL. */
static const char *hopeless(const ttt__coordinator *k, char *text, size_t size)
{
    if (k->lost[0] != '\0')
        return k->lost;
    for (int i = 0; i < k->processes; i++) {
        if (k->members[i].state == MEMBER_LEFT) {
            snprintf(text, size, "%s has left the job", k->members[i].name);
            return text;
        }
    }
    return NULL;
}

/* One more has come, with `size` bytes. */
static void come(ttt__coordinator *k, keeper_gathering **at, keeper_peer *peer, uint32_t id,
                 const char *bytes, size_t size)
{
    char text[512];
    keeper_gathering *g = *at;
    size_t rank = (size_t)peer->rank;
    if (g->came[rank] || size != g->each) {
        snprintf(text, sizeof text,
                 g->came[rank] ? "%s came to \"%.100s\" twice"
                               : "%s gave another number of bytes to \"%.100s\" than the others",
                 k->members[rank].name, g->name);
        reply_text(peer, id, PJRT_CODE_INVALID_ARGUMENT, text);
        conclude(k, at, PJRT_CODE_INVALID_ARGUMENT, text, strlen(text));
        return;
    }
    g->came[rank] = true;
    g->ids[rank] = id;
    if (size > 0)
        memcpy(g->all + rank * size, bytes, size);
    if (++g->n_came == k->processes)
        conclude(k, at, PJRT_CODE_OK, g->all, size * (size_t)k->processes);
}

bool ttt__coordinator_gather(ttt__coordinator *k, keeper_peer *peer, store_frame *frame, double now)
{
    uint32_t ms, name_size;
    const char *name;
    char text[512];
    if (!ttt__take_u32(frame, &ms) || !ttt__take_u32(frame, &name_size) || name_size > STORE_KEY ||
        !ttt__take(frame, name_size, &name) || memchr(name, '\0', name_size) != NULL)
        return false;
    const char *why = hopeless(k, text, sizeof text);
    if (why != NULL) {
        reply_text(peer, frame->id, PJRT_CODE_UNAVAILABLE, why);
        return true;
    }
    keeper_gathering **at = &k->gatherings;
    while (*at != NULL &&
           (strlen((*at)->name) != name_size || memcmp((*at)->name, name, name_size) != 0))
        at = &(*at)->next;
    if (*at == NULL) {
        keeper_gathering *g = start_gathering(k, name, name_size, frame->size);
        if (g == NULL) {
            reply_text(peer, frame->id, PJRT_CODE_RESOURCE_EXHAUSTED,
                       "too many bytes for the keeper of the keys");
            return true;
        }
        g->seconds = 1e-3 * ms;
        g->deadline = now + g->seconds;
        at = &k->gatherings;
    }
    come(k, at, peer, frame->id, frame->body, frame->size);
    return true;
}

/* ---- ends of waits -----------------------------------------------------------------------------
 */

void ttt__coordinator_fail_waits(ttt__coordinator *k, int rank, const char *why)
{
    while (k->waits != NULL && rank < 0) {
        keeper_wait *wait = k->waits;
        reply_text(wait->peer, wait->id, PJRT_CODE_UNAVAILABLE, why);
        k->waits = wait->next;
        free(wait);
    }
    for (keeper_gathering **at = &k->gatherings; *at != NULL;) {
        if (rank < 0 || !(*at)->came[rank])
            conclude(k, at, PJRT_CODE_UNAVAILABLE, why, strlen(why));
        else
            at = &(*at)->next;
    }
}

void ttt__coordinator_forget(ttt__coordinator *k, const keeper_peer *peer)
{
    for (keeper_wait **at = &k->waits; *at != NULL;) {
        keeper_wait *wait = *at;
        if (wait->peer != peer) {
            at = &wait->next;
            continue;
        }
        *at = wait->next;
        free(wait);
    }
}

void ttt__coordinator_expire(ttt__coordinator *k, double now)
{
    char text[1024];
    for (keeper_wait **at = &k->waits; *at != NULL;) {
        keeper_wait *wait = *at;
        if (now < wait->deadline) {
            at = &wait->next;
            continue;
        }
        snprintf(text, sizeof text, "nobody put the key \"%.*s\" within %g s",
                 wait->key_size > 200 ? 200 : (int)wait->key_size, wait->key, wait->seconds);
        reply_text(wait->peer, wait->id, PJRT_CODE_DEADLINE_EXCEEDED, text);
        *at = wait->next;
        free(wait);
    }
    for (keeper_gathering **at = &k->gatherings; *at != NULL;) {
        if (now < (*at)->deadline) {
            at = &(*at)->next;
            continue;
        }
        char doing[160];
        snprintf(doing, sizeof doing, "come to \"%.100s\"", (*at)->name);
        ttt__coordinator_missing(k, (*at)->came, doing, (*at)->seconds, text, sizeof text);
        conclude(k, at, PJRT_CODE_DEADLINE_EXCEEDED, text, strlen(text));
    }
}

void ttt__coordinator_free_keys(ttt__coordinator *k)
{
    for (int i = 0; i < KEEPER_BUCKETS; i++) {
        while (k->keys[i] != NULL) {
            keeper_key *next = k->keys[i]->next;
            free(k->keys[i]);
            k->keys[i] = next;
        }
    }
    while (k->waits != NULL) {
        keeper_wait *next = k->waits->next;
        free(k->waits);
        k->waits = next;
    }
    while (k->gatherings != NULL) {
        keeper_gathering *next = k->gatherings->next;
        free_gathering(k, k->gatherings);
        k->gatherings = next;
    }
}
