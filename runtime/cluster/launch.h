/* Private to the runtime room: how a job was started, and what that tells. */
#ifndef RUNTIME_CLUSTER_LAUNCH_H
#define RUNTIME_CLUSTER_LAUNCH_H

#include "runtime/cluster/mpi/ttt_mpi.h"
#include "runtime/cluster/ttt_processes.h"

typedef struct launch_plan {
    ttt_launch launch;
    int rank, processes;
    int port;        /* where process 0 listens */
    char *addresses; /* of process 0, as ttt__socket_connect takes them */
    char *token;
    char **hosts; /* of all processes, where they are known before they join; or NULL */
    const ttt_mpi_api *mpi;
} launch_plan;

/* What the options, else the environment, say; `processes` 1: there is nobody else. Of MPI, which
 * is started, address and token are still to be told. */
PJRT_MUST_CHECK pjrt_status *ttt__launch_find(const ttt_job_options *options, launch_plan *plan);
void ttt__launch_free(launch_plan *plan);

/* Loads libttt_mpi.so: $TTT_MPI_LIBRARY, or beside the program, or in ../lib/ttt from there. */
PJRT_MUST_CHECK pjrt_status *ttt__mpi_load(const ttt_mpi_api **out);

#endif
