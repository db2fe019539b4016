/*
 * Private to the runtime room: who is at the other end of a connection for messages. The one that
 * was connected to sends a nonce; the other its own, its rank and a proof; the first its proof.
 */
#ifndef RUNTIME_CLUSTER_TRANSPORT_HANDSHAKE_H
#define RUNTIME_CLUSTER_TRANSPORT_HANDSHAKE_H

#include <stdbool.h>

/* False: the other did not prove that it belongs to this job, in time. */
bool ttt__hello_expect(int fd, const char *token, int rank, int processes, double deadline,
                       int *other);
bool ttt__hello_say(int fd, const char *token, int rank, int other, int processes, double deadline);

#endif
