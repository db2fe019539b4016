/*
 * Processes of one job: who I am, how many there are, and what they tell each other.
 *
 *     #include "runtime/cluster/ttt_processes.h"
 *
 *     ttt_job_options options = TTT_JOB_DEFAULTS; // launch "auto"
 *     ttt_job *world = NULL;
 *     pjrt_status *st = ttt_job_open(&options, &world);
 *     if (!st) st = ttt_devices_open_job("cpu", &mesh, world, &place);
 *     …
 *     ttt_job_free(world);
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

typedef struct ttt_job_options {
    ttt_launch launch;
    int rank, processes;     /* tcp */
    const char *coordinator; /* tcp: HOST:PORT of process 0; HOST as the others reach it */
    const char *token;       /* tcp, tpu: a secret that all know; NULL: $TTT_TOKEN */
    double timeout;          /* seconds to wait for others: to join, for a key, at a barrier */
    double silence;          /* seconds after which a process that says nothing is lost; 0: 30 */
} ttt_job_options;

#define TTT_JOB_DEFAULTS ((ttt_job_options){.timeout = 300})

typedef struct ttt_job ttt_job;

/* Returns when all have joined; `*out` is NULL where there is one process alone. */
PJRT_MUST_CHECK pjrt_status *ttt_job_open(const ttt_job_options *options, ttt_job **out);
/* Says goodbye: those who wait for this process hear of it. */
void ttt_job_free(ttt_job *job);

int ttt_job_rank(const ttt_job *job); /* 0 of NULL */
int ttt_job_size(const ttt_job *job); /* 1 of NULL */
/* "process 2 (host-c)"; lives as long as the world. */
const char *ttt_job_name(const ttt_job *job, int rank);

/* All come here, or the failure names who did not. `name` must be new each time. */
PJRT_MUST_CHECK pjrt_status *ttt_job_barrier(ttt_job *job, const char *name);
/*
 * Everyone gives some bytes and gets those of all, in the order of ranks: `all` is malloc'ed,
 * `size` bytes each. Also a barrier. Of one process it is a copy.
 */
PJRT_MUST_CHECK pjrt_status *ttt_job_gather(ttt_job *job, const char *name, const void *mine,
                                            size_t size, void **all);
/* Everyone gets what rank 0 gave; `bytes` has room for `size`. `name` must be new each time, and
 * what was told is kept until the job ends: for the start of a run, not for every step. */
PJRT_MUST_CHECK pjrt_status *ttt_job_broadcast(ttt_job *job, const char *name, void *bytes,
                                               size_t size);
/* NULL while all live; else who is lost. Quick: for every step. */
PJRT_MUST_CHECK pjrt_status *ttt_job_check(ttt_job *job);
/* The keys, for clients that exchange addresses by them; NULL of one process. */
const pjrt_store *ttt_job_kv(ttt_job *job);
/* Messages from process to process, for collectives on CPUs; NULL of one process. */
const pjrt_messenger *ttt_job_messenger(ttt_job *job);

#endif
