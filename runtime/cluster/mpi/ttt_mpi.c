/*
 * MPI behind a small table. Calls come from several threads; a lock lets one at a time in, and
 * nobody stays in: messages are started, then asked after now and then. So it cannot happen that
 * two processes wait for each other within MPI, in whatever order their threads come.
 */
#include "runtime/cluster/mpi/ttt_mpi.h"

#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static MPI_Comm job = MPI_COMM_NULL;
static bool broken;
static char broken_why[PJRT_MESSENGER_ERROR]; /* what the first failure was */

/* One call of MPI takes at most this much. */
enum { PIECE = 1 << 30 };

static int explain(int code, const char *doing, char error[PJRT_MESSENGER_ERROR])
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int size = 0;
    if (code == MPI_SUCCESS)
        return 0;
    MPI_Error_string(code, text, &size);
    snprintf(error, PJRT_MESSENGER_ERROR, "MPI cannot %s: %.180s", doing, text);
    return -1;
}

static int open_job(int *rank, int *processes, char error[PJRT_MESSENGER_ERROR])
{
    int threads = MPI_THREAD_SINGLE, started = 0;
    MPI_Initialized(&started);
    if (started) {
        snprintf(error, PJRT_MESSENGER_ERROR, "MPI can be started once in the life of a process");
        return -1;
    }
    if (explain(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &threads), "start", error) != 0)
        return -1;
    if (threads < MPI_THREAD_SERIALIZED) {
        snprintf(error, PJRT_MESSENGER_ERROR, "this MPI was built for programs of one thread");
        return -1;
    }
    if (explain(MPI_Comm_dup(MPI_COMM_WORLD, &job), "make a communicator", error) != 0)
        return -1;
    MPI_Comm_set_errhandler(job, MPI_ERRORS_RETURN);
    MPI_Comm_rank(job, rank);
    MPI_Comm_size(job, processes);
    return 0;
}

static int broadcast(void *bytes, size_t size, char error[PJRT_MESSENGER_ERROR])
{
    return explain(MPI_Bcast(bytes, (int)size, MPI_BYTE, 0, job), "tell all", error);
}

/* ---- messages ----------------------------------------------------------------------------------
 */

typedef struct transfer {
    MPI_Request *requests;
    MPI_Status *statuses;
    int *processes, *sizes; /* of each; the size of one that is sent is -1 */
    int count;
} transfer;

static size_t pieces(const pjrt_message *messages, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += messages[i].size / PIECE + (messages[i].size % PIECE != 0);
    return count;
}

static int start_all(transfer *t, int tag, const pjrt_message *messages, size_t n, bool send)
{
    for (size_t i = 0; i < n; i++) {
        for (size_t at = 0; at < messages[i].size; at += PIECE) {
            size_t left = messages[i].size - at;
            int size = left < PIECE ? (int)left : PIECE, other = messages[i].process;
            char *data = (char *)messages[i].data + at;
            MPI_Request *request = &t->requests[t->count];
            int code = send ? MPI_Isend(data, size, MPI_BYTE, other, tag, job, request)
                            : MPI_Irecv(data, size, MPI_BYTE, other, tag, job, request);
            if (code != MPI_SUCCESS)
                return code;
            t->processes[t->count] = other;
            t->sizes[t->count++] = send ? -1 : size;
        }
    }
    return MPI_SUCCESS;
}

static bool all_whole(const transfer *t)
{
    for (int i = 0; i < t->count; i++) {
        int size = 0;
        if (t->sizes[i] >= 0)
            MPI_Get_count(&t->statuses[i], MPI_BYTE, &size);
        if (t->sizes[i] >= 0 && size != t->sizes[i])
            return false;
    }
    return true;
}

/* -1 failed, -2 it was MPI that did, 0 not yet, 1 done. */
static int look(transfer *t, char error[PJRT_MESSENGER_ERROR])
{
    int done = 0, code = MPI_SUCCESS;
    bool whole = true;
    pthread_mutex_lock(&lock);
    bool failed_before = broken;
    if (broken)
        memcpy(error, broken_why, PJRT_MESSENGER_ERROR);
    else
        code = MPI_Testall(t->count, t->requests, &done, t->statuses);
    if (code == MPI_SUCCESS && done)
        whole = all_whole(t);
    pthread_mutex_unlock(&lock);
    if (failed_before)
        return -1;
    if (explain(code, "carry a message", error) != 0)
        return -2;
    if (!whole) {
        snprintf(error, PJRT_MESSENGER_ERROR,
                 "a message was shorter than expected: the processes run different programs");
        return -1;
    }
    return done;
}

static size_t list_pending(const transfer *t, int *pending)
{
    size_t n = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < t->count && !broken; i++) {
        int done = 0;
        if (MPI_Request_get_status(t->requests[i], &done, MPI_STATUS_IGNORE) == MPI_SUCCESS &&
            !done)
            pending[n++] = t->processes[i];
    }
    pthread_mutex_unlock(&lock);
    return n;
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Busy at first, for what is quick; then slower and slower, for what is not. */
static int await(transfer *t, ttt_mpi_wait wait, void *user, int *pending,
                 char error[PJRT_MESSENGER_ERROR])
{
    double asked = seconds();
    long pause = 0;
    for (;;) {
        int done = look(t, error);
        if (done != 0)
            return done < 0 ? done : 0;
        if (pause < 200000)
            pause += 1000;
        if (pause <= 20000)
            sched_yield();
        else
            nanosleep(&(struct timespec){0, pause}, NULL);
        double now = seconds();
        if (now - asked > 0.1) {
            asked = now;
            if (wait(user, pending, list_pending(t, pending), error) != 0)
                return -1;
        }
    }
}

/* MPI says what went wrong, but not whose fault it was: that may become known in a moment. */
static void find_culprit(ttt_mpi_wait wait, void *user, char error[PJRT_MESSENGER_ERROR])
{
    char better[PJRT_MESSENGER_ERROR];
    for (int i = 0; i < 10; i++) {
        if (wait(user, NULL, 0, better) != 0) {
            memcpy(error, better, PJRT_MESSENGER_ERROR);
            return;
        }
        nanosleep(&(struct timespec){0, 100000000}, NULL);
    }
}

/* Receives must not write into memory that the caller has back. */
static void abandon(transfer *t, const char error[PJRT_MESSENGER_ERROR])
{
    pthread_mutex_lock(&lock);
    if (!broken)
        memcpy(broken_why, error, PJRT_MESSENGER_ERROR);
    broken = true;
    for (int i = 0; i < t->count; i++) {
        if (t->sizes[i] >= 0 && t->requests[i] != MPI_REQUEST_NULL)
            MPI_Cancel(&t->requests[i]);
    }
    pthread_mutex_unlock(&lock);
}

static int run(transfer *t, int tag, const pjrt_message *sends, size_t n_sends,
               const pjrt_message *receives, size_t n_receives, ttt_mpi_wait wait, void *user,
               char error[PJRT_MESSENGER_ERROR])
{
    pthread_mutex_lock(&lock);
    int code = broken ? MPI_SUCCESS : start_all(t, tag, receives, n_receives, false);
    if (code == MPI_SUCCESS && !broken)
        code = start_all(t, tag, sends, n_sends, true);
    pthread_mutex_unlock(&lock);
    int *pending = malloc(((size_t)t->count + 1) * sizeof *pending);
    int failed = pending == NULL ? explain(MPI_ERR_NO_MEM, "wait", error)
                                 : explain(code, "start a message", error);
    failed = failed == 0 ? await(t, wait, user, pending, error) : -2;
    if (failed == -2)
        find_culprit(wait, user, error);
    if (failed != 0)
        abandon(t, error);
    free(pending);
    return failed == 0 ? 0 : -1;
}

static int exchange(int tag, const pjrt_message *sends, size_t n_sends,
                    const pjrt_message *receives, size_t n_receives, ttt_mpi_wait wait, void *user,
                    char error[PJRT_MESSENGER_ERROR])
{
    size_t count = pieces(sends, n_sends) + pieces(receives, n_receives) + 1;
    transfer t = {.requests = malloc(count * sizeof *t.requests),
                  .statuses = malloc(count * sizeof *t.statuses),
                  .processes = malloc(count * sizeof *t.processes),
                  .sizes = malloc(count * sizeof *t.sizes)};
    int failed;
    if (t.requests == NULL || t.statuses == NULL || t.processes == NULL || t.sizes == NULL)
        failed = explain(MPI_ERR_NO_MEM, "start a message", error);
    else
        failed = run(&t, tag, sends, n_sends, receives, n_receives, wait, user, error);
    free(t.requests);
    free(t.statuses);
    free(t.processes);
    free(t.sizes);
    return failed;
}

static void close_job(int lost)
{
    if (lost)
        return;
    MPI_Comm_free(&job);
    MPI_Finalize();
}

__attribute__((visibility("default"))) const ttt_mpi_api *ttt_mpi(void)
{
    static const ttt_mpi_api api = {TTT_MPI_VERSION, open_job, broadcast, exchange, close_job};
    return &api;
}
