/* Private to the runtime room: a process's connection to the keeper of the keys. */
#ifndef RUNTIME_CLUSTER_COORDINATOR_CLIENT_H
#define RUNTIME_CLUSTER_COORDINATOR_CLIENT_H

#include "pjrt/pjrt_status.h"

#include <stdbool.h>

typedef struct store_client store_client;

typedef struct store_join {
    int fd;                /* a connection that is there already, which is taken over; -1: none */
    const char *addresses; /* else: of process 0, as ttt__socket_connect takes them */
    const char *token, *host;
    int rank, processes;
    double timeout, silence;
} store_join;

/* Returns when all have joined. */
PJRT_MUST_CHECK pjrt_status *ttt__job_kv_join(const store_join *join, store_client **out);
/* Says goodbye. */
void ttt__job_kv_leave(store_client *client);
/* Where a process runs. */
const char *ttt__job_kv_host(const store_client *client, int rank);

/* From any thread. A value is malloc'ed, with a NUL behind it. `seconds` 0: now or NOT_FOUND. */
PJRT_MUST_CHECK pjrt_status *ttt__job_kv_put(store_client *client, const char *key, size_t key_size,
                                             const char *value, size_t value_size);
PJRT_MUST_CHECK pjrt_status *ttt__job_kv_get(store_client *client, const char *key, size_t key_size,
                                             double seconds, char **value, size_t *value_size);
PJRT_MUST_CHECK pjrt_status *ttt__job_kv_gather(store_client *client, const char *name,
                                                const void *mine, size_t size, void **all);
/* The first loss, or NULL; quick. */
PJRT_MUST_CHECK pjrt_status *ttt__job_kv_check(store_client *client);

#endif
