/* What keeper.c and keeper_keys.c share, and nobody else. */
#ifndef RUNTIME_CLUSTER_COORDINATOR_INTERNAL_H
#define RUNTIME_CLUSTER_COORDINATOR_INTERNAL_H

#include "runtime/cluster/coordinator.h"

enum { KEEPER_BUCKETS = 4096 };

typedef enum member_state { MEMBER_ABSENT, MEMBER_HERE, MEMBER_LEFT, MEMBER_LOST } member_state;

typedef struct keeper_member {
    member_state state;
    char *name, *host;
    keeper_peer *peer; /* while it is here */
} keeper_member;

typedef struct keeper_key keeper_key;
typedef struct keeper_wait keeper_wait;
typedef struct keeper_gathering keeper_gathering;

struct ttt__coordinator {
    char *token;
    int processes;
    double timeout, silence, started, last_beat;
    keeper_member *members;
    keeper_peer *peers;
    bool welcomed, failed; /* all joined; they did not in time */
    char lost[512];        /* the first loss, in words */
    keeper_key *keys[KEEPER_BUCKETS];
    size_t kept; /* bytes in keys and gatherings */
    keeper_wait *waits;
    keeper_gathering *gatherings;
};

void ttt__coordinator_reply(keeper_peer *peer, uint32_t id, pjrt_code code, const void *body,
                            size_t size);
/* "process 3 (host-d) did not join within 60 s: there were 0, 1, 2". `came`: of every process
 * whether it did; NULL: whether it is here. */
void ttt__coordinator_missing(const ttt__coordinator *k, const bool *came, const char *doing,
                              double seconds, char *text, size_t size);

/* Requests; false when the frame is not one. */
bool ttt__coordinator_put(ttt__coordinator *k, keeper_peer *peer, store_frame *frame);
bool ttt__coordinator_get(ttt__coordinator *k, keeper_peer *peer, store_frame *frame, double now);
bool ttt__coordinator_gather(ttt__coordinator *k, keeper_peer *peer, store_frame *frame,
                             double now);
/* Those who wait hear `why`. `rank` -1: all; else who wait for that one, which has not come. */
void ttt__coordinator_fail_waits(ttt__coordinator *k, int rank, const char *why);
/* Requests of a peer that is gone. */
void ttt__coordinator_forget(ttt__coordinator *k, const keeper_peer *peer);
void ttt__coordinator_expire(ttt__coordinator *k, double now);
void ttt__coordinator_free_keys(ttt__coordinator *k);

#endif
