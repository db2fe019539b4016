/*
 * Processes of one job: who I am, how many there are, and what they tell each other.
 *
 *     #include "runtime/cluster/ttt_processes.h"
 *
 *     ttt_world_options options = TTT_WORLD_DEFAULTS; // launch "auto"
 *     ttt_world *world = NULL;
 *     pjrt_status *st = ttt_world_open(&options, &world);
 *     if (!st) st = ttt_place_open_world("cpu", &mesh, world, &place);
 *     …
 *     ttt_world_free(world);
 *
 * One process a host. How a job was started is found out, or told:
 *
 *     mpi    mpirun, srun: MPI knows rank and size, where process 0 is, and tells a fresh token
 *     tpu    a slice of a TPU pod: TPU_WORKER_ID, TPU_WORKER_HOSTNAMES
 *     tcp    --rank, --processes, --coordinator HOST:PORT
 *     none   one process
 *
 * However it was started, process 0 keeps the keys and watches over the others by TCP: MPI has no
 * keys that are put once, and would not say who is lost.
 *
 * A world of NULL is one process: every function below takes it, so that nobody has to ask.
 * Failures name the process that is missing, and its host where that is known.
 */
#ifndef RUNTIME_CLUSTER_TTT_PROCESSES_H
#define RUNTIME_CLUSTER_TTT_PROCESSES_H

#include "pjrt/pjrt.h"

typedef enum ttt_launch {
    TTT_LAUNCH_AUTO,
    TTT_LAUNCH_NONE,
    TTT_LAUNCH_MPI,
    TTT_LAUNCH_TPU,
    TTT_LAUNCH_TCP,
} ttt_launch;

typedef struct ttt_world_options {
    ttt_launch launch;
    int rank, processes;     /* tcp */
    const char *coordinator; /* tcp: HOST:PORT of process 0; HOST as the others reach it */
    const char *token;       /* tcp, tpu: a secret that all know; NULL: $TTT_TOKEN */
    double timeout;          /* seconds to wait for others: to join, for a key, at a barrier */
    double silence;          /* seconds after which a process that says nothing is lost; 0: 30 */
} ttt_world_options;

#define TTT_WORLD_DEFAULTS ((ttt_world_options){.timeout = 300})

typedef struct ttt_world ttt_world;

/* Returns when all have joined; `*out` is NULL where there is one process alone. */
PJRT_MUST_CHECK pjrt_status *ttt_world_open(const ttt_world_options *options, ttt_world **out);
/* Says goodbye: those who wait for this process hear of it. */
void ttt_world_free(ttt_world *world);

int ttt_world_rank(const ttt_world *world); /* 0 of NULL */
int ttt_world_size(const ttt_world *world); /* 1 of NULL */
/* "process 2 (host-c)"; lives as long as the world. */
const char *ttt_world_name(const ttt_world *world, int rank);

/* All come here, or the failure names who did not. `name` must be new each time. */
PJRT_MUST_CHECK pjrt_status *ttt_world_barrier(ttt_world *world, const char *name);
/*
 * Everyone gives some bytes and gets those of all, in the order of ranks: `all` is malloc'ed,
 * `size` bytes each. Also a barrier. Of one process it is a copy.
 */
PJRT_MUST_CHECK pjrt_status *ttt_world_gather(ttt_world *world, const char *name, const void *mine,
                                              size_t size, void **all);
/* Everyone gets what rank 0 gave; `bytes` has room for `size`. `name` must be new each time, and
 * what was told is kept until the job ends: for the start of a run, not for every step. */
PJRT_MUST_CHECK pjrt_status *ttt_world_broadcast(ttt_world *world, const char *name, void *bytes,
                                                 size_t size);
/* NULL while all live; else who is lost. Quick: for every step. */
PJRT_MUST_CHECK pjrt_status *ttt_world_check(ttt_world *world);
/* The keys, for clients that exchange addresses by them; NULL of one process. */
const pjrt_store *ttt_world_store(ttt_world *world);
/* Messages from process to process, for collectives on CPUs; NULL of one process. */
const pjrt_messenger *ttt_world_messenger(ttt_world *world);

#endif
