/*
 * Private to the runtime room: messages between processes over TCP, for jobs without MPI. Two
 * processes connect when they first have something to say to each other, the one of the higher rank
 * to the other, and prove to each other that they know the token.
 */
#ifndef RUNTIME_CLUSTER_TRANSPORT_H
#define RUNTIME_CLUSTER_TRANSPORT_H

#include "runtime/cluster/coordinator_client.h"
#include "runtime/cluster/mpi/ttt_mpi.h"

typedef struct ttt__transport ttt__transport;

/* `store` outlives it: addresses are told there. */
PJRT_MUST_CHECK pjrt_status *ttt__transport_open(store_client *store, int rank, int processes,
                                                 const char *token, ttt__transport **out);
void ttt__transport_close(ttt__transport *mail);
/* As in ttt_mpi_api. */
int ttt__transport_exchange(ttt__transport *mail, int tag, const pjrt_message *sends,
                            size_t n_sends, const pjrt_message *receives, size_t n_receives,
                            ttt_mpi_wait wait, void *user, char error[PJRT_MESSENGER_ERROR]);

#endif
