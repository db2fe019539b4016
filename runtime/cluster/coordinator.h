/*
 * Private to the runtime room: the keeper of a job's keys, which also knows who is there. It does
 * no input or output and has no thread and no clock: whoever runs it (keeper_server.c, a fuzzer)
 * hands it what came from a connection and sends what it left in `out`.
 */
#ifndef RUNTIME_CLUSTER_COORDINATOR_H
#define RUNTIME_CLUSTER_COORDINATOR_H

#include "pjrt/pjrt_status.h"
#include "runtime/cluster/coordinator_wire.h"

typedef struct ttt__coordinator ttt__coordinator;

/* One at the other end of a connection. */
typedef struct keeper_peer {
    struct keeper_peer *next;
    store_bytes in, out;
    bool closing; /* send `out`, then close */
    /* the keeper's own */
    enum { PEER_STRANGER, PEER_CHALLENGED, PEER_MEMBER, PEER_LEFT } stage;
    int rank;
    double since, heard;
    unsigned char process_nonce[TTT_NONCE], keeper_nonce[TTT_NONCE];
} keeper_peer;

typedef struct keeper_options {
    const char *token;
    int processes;
    const char *const *hosts; /* where they are thought to be, or NULL */
    double timeout;           /* seconds to wait for all to join */
    double silence;           /* seconds after which a silent process is lost */
} keeper_options;

PJRT_MUST_CHECK pjrt_status *ttt__coordinator_new(const keeper_options *options, double now,
                                                  ttt__coordinator **out);
void ttt__coordinator_free(ttt__coordinator *keeper);

/* A new connection; NULL when there are too many strangers, or no memory. */
keeper_peer *ttt__coordinator_connect(ttt__coordinator *keeper, double now);
/* Takes what was added to peer->in. */
void ttt__coordinator_receive(ttt__coordinator *keeper, keeper_peer *peer, double now);
/* The connection is gone; `why` as in "its connection was closed". Frees the peer. */
void ttt__coordinator_disconnect(ttt__coordinator *keeper, keeper_peer *peer, const char *why,
                                 double now);
/* Deadlines and heartbeats; to be called a few times within `silence`. */
void ttt__coordinator_tick(ttt__coordinator *keeper, double now);
keeper_peer *ttt__coordinator_peers(ttt__coordinator *keeper);
/* All have left or are lost, or they never came together: nobody needs the keeper any more. */
bool ttt__coordinator_done(const ttt__coordinator *keeper);

#endif
