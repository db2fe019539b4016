/* The keeper of a job's keys: who is there, what they put, who waits for what. */
#include "runtime/cluster/coordinator.h"

#include "runtime/cluster/coordinator_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char call[] = "processes";

/* ---- those who are there -----------------------------------------------------------------------
 */

static pjrt_status *name_member(keeper_member *member, int rank, const char *host, size_t size)
{
    char name[STORE_HOST + 32];
    if (size == 0)
        snprintf(name, sizeof name, "process %d", rank);
    else
        snprintf(name, sizeof name, "process %d (%.*s)", rank, (int)size, host);
    char *copy = strdup(name), *place = strndup(host, size);
    if (copy == NULL || place == NULL) {
        free(copy);
        free(place);
        return PJRT_NO_MEMORY(call);
    }
    free(member->name);
    free(member->host);
    member->name = copy;
    member->host = place;
    return NULL;
}

pjrt_status *ttt__coordinator_new(const keeper_options *options, double now, ttt__coordinator **out)
{
    *out = NULL;
    ttt__coordinator *k = calloc(1, sizeof *k);
    if (k == NULL)
        return PJRT_NO_MEMORY(call);
    k->processes = options->processes;
    k->silence = options->silence;
    k->timeout = options->timeout;
    k->started = k->last_beat = now;
    k->token = strdup(options->token);
    k->members = calloc((size_t)options->processes, sizeof *k->members);
    pjrt_status *st = k->token == NULL || k->members == NULL ? PJRT_NO_MEMORY(call) : NULL;
    for (int i = 0; i < options->processes && st == NULL; i++) {
        const char *host = options->hosts == NULL ? "" : options->hosts[i];
        st = name_member(&k->members[i], i, host, strnlen(host, STORE_HOST));
    }
    if (st != NULL) {
        ttt__coordinator_free(k);
        return st;
    }
    *out = k;
    return NULL;
}

static void free_peer(keeper_peer *peer)
{
    ttt__bytes_free(&peer->in);
    ttt__bytes_free(&peer->out);
    free(peer);
}

void ttt__coordinator_free(ttt__coordinator *k)
{
    if (k == NULL)
        return;
    for (int i = 0; k->members != NULL && i < k->processes; i++) {
        free(k->members[i].name);
        free(k->members[i].host);
    }
    while (k->peers != NULL) {
        keeper_peer *next = k->peers->next;
        free_peer(k->peers);
        k->peers = next;
    }
    ttt__coordinator_free_keys(k);
    free(k->members);
    free(k->token);
    free(k);
}

keeper_peer *ttt__coordinator_peers(ttt__coordinator *k)
{
    return k->peers;
}

bool ttt__coordinator_done(const ttt__coordinator *k)
{
    if (!k->welcomed)
        return k->failed;
    for (int i = 0; i < k->processes; i++) {
        if (k->members[i].state == MEMBER_HERE)
            return false;
    }
    return true;
}

/* "0, 1, 2" of those whose state is `state`, or with `came` of those that came there. */
static void list_members(const ttt__coordinator *k, member_state state, const bool *came,
                         bool names, char *text, size_t size)
{
    int listed = 0;
    size_t at = 0;
    text[0] = '\0';
    for (int i = 0; i < k->processes && at + 1 < size; i++) {
        if (came != NULL ? came[i] != (state == MEMBER_HERE) : k->members[i].state != state)
            continue;
        const char *comma = listed == 0 ? "" : ", ";
        if (listed++ == 16) {
            snprintf(text + at, size - at, ", …");
            return;
        }
        at += (size_t)(names ? snprintf(text + at, size - at, "%s%s", comma, k->members[i].name)
                             : snprintf(text + at, size - at, "%s%d", comma, i));
    }
    if (listed == 0)
        snprintf(text, size, "none");
}

void ttt__coordinator_missing(const ttt__coordinator *k, const bool *came, const char *doing,
                              double seconds, char *text, size_t size)
{
    char missing[512], there[128];
    list_members(k, MEMBER_ABSENT, came, true, missing, sizeof missing);
    list_members(k, MEMBER_HERE, came, false, there, sizeof there);
    snprintf(text, size, "%s did not %s within %g s: there were %s", missing, doing, seconds,
             there);
}

void ttt__coordinator_reply(keeper_peer *peer, uint32_t id, pjrt_code code, const void *body,
                            size_t size)
{
    size_t start = ttt__frame_start(&peer->out, STORE_REPLY, id);
    ttt__bytes_add_u32(&peer->out, (uint32_t)code);
    ttt__bytes_add(&peer->out, body, size);
    ttt__frame_end(&peer->out, start);
}

/* The last word to somebody. */
static void refuse(keeper_peer *peer, pjrt_code code, const char *why)
{
    ttt__coordinator_reply(peer, 0, code, why, strlen(why));
    peer->closing = true;
}

/* All hear that one is lost, and whoever waits stops waiting. */
static void lose(ttt__coordinator *k, int rank, const char *why)
{
    char text[512];
    k->members[rank].state = MEMBER_LOST;
    k->members[rank].peer = NULL;
    snprintf(text, sizeof text, "%s was lost: %s", k->members[rank].name, why);
    if (k->lost[0] == '\0')
        snprintf(k->lost, sizeof k->lost, "%s", text);
    for (int i = 0; i < k->processes; i++) {
        keeper_peer *peer = k->members[i].peer;
        if (peer == NULL)
            continue;
        size_t start = ttt__frame_start(&peer->out, STORE_LOST, 0);
        ttt__bytes_add_u32(&peer->out, (uint32_t)rank);
        ttt__bytes_add(&peer->out, text, strlen(text));
        ttt__frame_end(&peer->out, start);
    }
    ttt__coordinator_fail_waits(k, -1, text);
}

/* ---- joining -----------------------------------------------------------------------------------
 */

keeper_peer *ttt__coordinator_connect(ttt__coordinator *k, double now)
{
    enum { MOST_STRANGERS = 256 };
    int strangers = 0;
    for (keeper_peer *p = k->peers; p != NULL; p = p->next)
        strangers += p->stage != PEER_MEMBER;
    keeper_peer *peer = strangers >= MOST_STRANGERS ? NULL : calloc(1, sizeof *peer);
    if (peer == NULL)
        return NULL;
    peer->rank = -1;
    peer->since = peer->heard = now;
    peer->next = k->peers;
    k->peers = peer;
    return peer;
}

static bool take_hello(keeper_peer *peer, store_frame *frame)
{
    const char *magic, *nonce;
    if (!ttt__take(frame, 4, &magic) || memcmp(magic, "ttt1", 4) != 0 ||
        !ttt__take(frame, TTT_NONCE, &nonce) || frame->size != 0 ||
        !ttt__random(peer->keeper_nonce, TTT_NONCE))
        return false;
    memcpy(peer->process_nonce, nonce, TTT_NONCE);
    peer->stage = PEER_CHALLENGED;
    ttt__frame_add(&peer->out, STORE_CHALLENGE, 0, peer->keeper_nonce, TTT_NONCE);
    return true;
}

static void welcome_all(ttt__coordinator *k)
{
    for (int i = 0; i < k->processes; i++) {
        if (k->members[i].state != MEMBER_HERE)
            return;
    }
    k->welcomed = true;
    for (int i = 0; i < k->processes; i++) {
        store_bytes *out = &k->members[i].peer->out;
        size_t start = ttt__frame_start(out, STORE_WELCOME, 0);
        for (int j = 0; j < k->processes; j++)
            ttt__bytes_add(out, k->members[j].host, strlen(k->members[j].host) + 1);
        ttt__frame_end(out, start);
    }
}

/* The proof was right: may it have this rank? */
static void admit(ttt__coordinator *k, keeper_peer *peer, uint32_t rank, uint32_t processes,
                  const char *host, size_t host_size)
{
    char why[768];
    if (processes != (uint32_t)k->processes || rank >= processes) {
        snprintf(why, sizeof why, "process %u of %u came to a job of %d", rank, processes,
                 k->processes);
        refuse(peer, PJRT_CODE_INVALID_ARGUMENT, why);
        return;
    }
    keeper_member *member = &k->members[rank];
    if (member->state != MEMBER_ABSENT) {
        snprintf(why, sizeof why, "there are two of rank %u: %s, and one on %.*s", rank,
                 member->name, (int)host_size, host);
        refuse(peer, PJRT_CODE_ALREADY_EXISTS, why);
        return;
    }
    pjrt_status *st = name_member(member, (int)rank, host, host_size);
    if (st != NULL) {
        refuse(peer, pjrt_status_code(st), pjrt_status_message(st));
        pjrt_status_free(st);
        return;
    }
    unsigned char proof[TTT_PROOF];
    ttt__job_kv_proof(k->token, "keeper", peer->process_nonce, peer->keeper_nonce, rank, processes,
                      host, host_size, proof);
    ttt__frame_add(&peer->out, STORE_ACCEPTED, 0, proof, sizeof proof);
    member->state = MEMBER_HERE;
    member->peer = peer;
    peer->stage = PEER_MEMBER;
    peer->rank = (int)rank;
    welcome_all(k);
}

static bool take_proof(ttt__coordinator *k, keeper_peer *peer, store_frame *frame)
{
    const char *given;
    uint32_t rank, processes;
    unsigned char proof[TTT_PROOF];
    if (!ttt__take(frame, TTT_PROOF, &given) || !ttt__take_u32(frame, &rank) ||
        !ttt__take_u32(frame, &processes) || frame->size > STORE_HOST ||
        memchr(frame->body, '\0', frame->size) != NULL)
        return false;
    ttt__job_kv_proof(k->token, "process", peer->process_nonce, peer->keeper_nonce, rank, processes,
                      frame->body, frame->size, proof);
    if (!ttt__same_proof(proof, (const unsigned char *)given))
        refuse(peer, PJRT_CODE_UNAUTHENTICATED,
               "the token is not that of process 0: all need the same TTT_TOKEN");
    else
        admit(k, peer, rank, processes, frame->body, frame->size);
    return true;
}

/* ---- what comes in -----------------------------------------------------------------------------
 */

static void leave(ttt__coordinator *k, keeper_peer *peer)
{
    char text[512];
    keeper_member *member = &k->members[peer->rank];
    if (!k->welcomed) { /* it may come again */
        member->state = MEMBER_ABSENT;
    } else {
        member->state = MEMBER_LEFT;
        snprintf(text, sizeof text, "%s has left the job", member->name);
        ttt__coordinator_fail_waits(k, peer->rank, text);
    }
    member->peer = NULL;
    peer->stage = PEER_LEFT;
    peer->closing = true;
}

/* False: it does not keep to the rules. */
static bool take_frame(ttt__coordinator *k, keeper_peer *peer, store_frame *frame, double now)
{
    if (peer->stage == PEER_STRANGER)
        return frame->kind == STORE_HELLO && take_hello(peer, frame);
    if (peer->stage == PEER_CHALLENGED)
        return frame->kind == STORE_PROOF && take_proof(k, peer, frame);
    switch (frame->kind) {
    case STORE_PUT:
        return ttt__coordinator_put(k, peer, frame);
    case STORE_GET:
        return ttt__coordinator_get(k, peer, frame, now);
    case STORE_GATHER:
        return ttt__coordinator_gather(k, peer, frame, now);
    case STORE_BEAT:
        return frame->size == 0;
    case STORE_BYE:
        leave(k, peer);
        return true;
    default:
        return false;
    }
}

void ttt__coordinator_receive(ttt__coordinator *k, keeper_peer *peer, double now)
{
    peer->heard = now;
    while (!peer->closing) {
        store_frame frame;
        size_t used, longest = peer->stage == PEER_MEMBER ? STORE_FRAME : STORE_STRANGER_FRAME;
        int there = ttt__frame_read(peer->in.data, peer->in.size, longest, &frame, &used);
        if (there == 0)
            break;
        if (there < 0 || !take_frame(k, peer, &frame, now)) {
            if (peer->stage == PEER_MEMBER)
                lose(k, peer->rank, "it sent what no process of this version sends");
            peer->stage = PEER_LEFT;
            peer->closing = true;
            break;
        }
        ttt__bytes_drop(&peer->in, used);
    }
    if (peer->in.failed)
        peer->closing = true;
}

void ttt__coordinator_disconnect(ttt__coordinator *k, keeper_peer *peer, const char *why,
                                 double now)
{
    (void)now;
    ttt__coordinator_forget(k, peer);
    if (peer->stage == PEER_MEMBER && k->welcomed) {
        lose(k, peer->rank, why);
    } else if (peer->stage == PEER_MEMBER) { /* it may come again */
        k->members[peer->rank].state = MEMBER_ABSENT;
        k->members[peer->rank].peer = NULL;
    }
    keeper_peer **at = &k->peers;
    while (*at != peer)
        at = &(*at)->next;
    *at = peer->next;
    free_peer(peer);
}

/* ---- time --------------------------------------------------------------------------------------
 */

static void give_up_joining(ttt__coordinator *k)
{
    char text[1024];
    ttt__coordinator_missing(k, NULL, "join", k->timeout, text, sizeof text);
    for (int i = 0; i < k->processes; i++) {
        if (k->members[i].peer != NULL)
            refuse(k->members[i].peer, PJRT_CODE_DEADLINE_EXCEEDED, text);
    }
    k->failed = true;
}

void ttt__coordinator_tick(ttt__coordinator *k, double now)
{
    enum { HANDSHAKE_SECONDS = 10 };
    const size_t most_unsent = (size_t)1 << 30;
    bool beat = now - k->last_beat > k->silence / 5;
    if (beat)
        k->last_beat = now;
    if (!k->welcomed && !k->failed && now - k->started > k->timeout)
        give_up_joining(k);
    ttt__coordinator_expire(k, now);
    for (keeper_peer *p = k->peers; p != NULL; p = p->next) {
        if (p->stage != PEER_MEMBER) {
            p->closing = p->closing || p->out.failed || now - p->since > HANDSHAKE_SECONDS;
            continue;
        }
        char why[128] = "";
        if (p->out.failed || p->out.size > most_unsent)
            snprintf(why, sizeof why, "it does not take what is sent to it");
        else if (now - p->heard > k->silence)
            snprintf(why, sizeof why, "nothing was heard of it for %g s", k->silence);
        if (why[0] != '\0' && k->welcomed) {
            p->stage = PEER_LEFT;
            lose(k, p->rank, why);
            p->closing = true;
        } else if (p->out.failed) { /* it may come again */
            p->closing = true;
        } else if (beat) {
            ttt__frame_add(&p->out, STORE_BEAT, 0, NULL, 0);
        }
    }
}
