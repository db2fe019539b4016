/* What processes say to the keeper of the keys, for tests that have no network. */
#ifndef TESTS_SUPPORT_STORE_TALK_H
#define TESTS_SUPPORT_STORE_TALK_H

#include "runtime/cluster/coordinator.h"

#include <string.h>

/* Hands `bytes` over, which are then empty. */
static inline void talk_say(ttt__coordinator *keeper, keeper_peer *peer, store_bytes *bytes,
                            double now)
{
    ttt__bytes_add(&peer->in, bytes->data, bytes->size);
    ttt__bytes_free(bytes);
    ttt__coordinator_receive(keeper, peer, now);
}

static inline void talk_hello(ttt__coordinator *keeper, keeper_peer *peer, unsigned char first,
                              double now)
{
    unsigned char nonce[TTT_NONCE] = {first};
    store_bytes out = {0};
    size_t start = ttt__frame_start(&out, STORE_HELLO, 0);
    ttt__bytes_add(&out, "ttt1", 4);
    ttt__bytes_add(&out, nonce, TTT_NONCE);
    ttt__frame_end(&out, start);
    talk_say(keeper, peer, &out, now);
}

/* A proof for the nonces of `overheard`, which is the peer itself unless somebody cheats. */
static inline void talk_prove(ttt__coordinator *keeper, keeper_peer *peer,
                              const keeper_peer *overheard, const char *token, uint32_t rank,
                              uint32_t processes, const char *host, double now)
{
    unsigned char proof[TTT_PROOF];
    store_bytes out = {0};
    ttt__job_kv_proof(token, "process", overheard->process_nonce, overheard->keeper_nonce, rank,
                      processes, host, strlen(host), proof);
    size_t start = ttt__frame_start(&out, STORE_PROOF, 0);
    ttt__bytes_add(&out, proof, sizeof proof);
    ttt__bytes_add_u32(&out, rank);
    ttt__bytes_add_u32(&out, processes);
    ttt__bytes_add(&out, host, strlen(host));
    ttt__frame_end(&out, start);
    talk_say(keeper, peer, &out, now);
}

/* A put, get or gathering of number 5, with milliseconds where it has some. */
static inline void talk_request(ttt__coordinator *keeper, keeper_peer *peer, store_kind kind,
                                uint32_t ms, const char *name, const char *value, double now)
{
    store_bytes out = {0};
    size_t start = ttt__frame_start(&out, kind, 5);
    if (kind != STORE_PUT)
        ttt__bytes_add_u32(&out, ms);
    if (kind != STORE_GET)
        ttt__bytes_add_u32(&out, (uint32_t)strlen(name));
    ttt__bytes_add(&out, name, strlen(name));
    ttt__bytes_add(&out, value, strlen(value));
    ttt__frame_end(&out, start);
    talk_say(keeper, peer, &out, now);
}

#endif
