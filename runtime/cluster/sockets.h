/* Private to the runtime room: TCP connections. */
#ifndef RUNTIME_CLUSTER_SOCKETS_H
#define RUNTIME_CLUSTER_SOCKETS_H

#include "pjrt/pjrt_status.h"

#include <stdbool.h>

/* Small messages at once, a lost other end noticed by the system too; false: it cannot be used. */
bool ttt__socket_prepare(int fd);
/* At all addresses of this machine. `*port` 0: any that is free; tells which it became. */
PJRT_MUST_CHECK pjrt_status *ttt__socket_listen(int *port, int *fd);
/* To the first of "HOST:PORT,[HOST]:PORT,…" that answers, tried again and again until `deadline`
 * (of ttt__seconds). */
PJRT_MUST_CHECK pjrt_status *ttt__socket_connect(const char *addresses, double deadline, int *fd);
/* As much as goes without waiting; what is left moves on. False, with errno, when the other end is
 * gone.
 */
bool ttt__socket_push(int fd, const char **from, size_t *size);
/* All of the bytes, or why not; waits at most until `deadline`. */
PJRT_MUST_CHECK pjrt_status *ttt__socket_send(int fd, const void *bytes, size_t size,
                                              double deadline);
/* "10.0.0.7:4000,[fe80::1]:4000,…": this machine's addresses, others' first; malloc'ed. */
PJRT_MUST_CHECK pjrt_status *ttt__socket_addresses(int port, char **text);

#endif
