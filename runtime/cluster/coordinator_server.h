/* Private to the runtime room: the keeper in a thread of its own, at a port. */
#ifndef RUNTIME_CLUSTER_COORDINATOR_SERVER_H
#define RUNTIME_CLUSTER_COORDINATOR_SERVER_H

#include "runtime/cluster/coordinator.h"

typedef struct keeper_server keeper_server;

/* Listens at `port`, 0: any that is free, `*port` then tells which; and at one end of a pair, the
 * other of which is `*inside`, for the process itself. */
PJRT_MUST_CHECK pjrt_status *ttt__coordinator_serve(const keeper_options *options, int *port,
                                                    int *inside, keeper_server **out);
/* Waits until nobody needs it any more, or `seconds` have passed. */
void ttt__coordinator_stop(keeper_server *server, double seconds);

#endif
