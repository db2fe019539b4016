/* The processes of a job as one world: who they are and what they tell each other. */
#include "runtime/cluster/ttt_processes.h"

#include "runtime/base/threads.h"
#include "runtime/cluster/coordinator_client.h"
#include "runtime/cluster/coordinator_server.h"
#include "runtime/cluster/launch.h"
#include "runtime/cluster/sockets.h"
#include "runtime/cluster/transport.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char call[] = "processes";

struct ttt_job {
    int rank, size;
    double timeout;
    char **names;
    keeper_server *server; /* of process 0 */
    store_client *client;
    atomic_bool mpi_failed;
    const ttt_mpi_api *mpi; /* or NULL, then: */
    pthread_mutex_t mail_lock;
    ttt__transport *mail; /* opened when it is first needed: only CPUs do */
    char *token;
    pjrt_store store;
    pjrt_messenger messenger;
};

/* ---- the keys, as plugins ask for them ---------------------------------------------------------
 */

static pjrt_code code_of(pjrt_status *st)
{
    pjrt_code code = pjrt_status_code(st);
    pjrt_status_free(st);
    return code;
}

static pjrt_code get_key(void *user, const char *key, size_t key_size, int timeout_ms, char **value,
                         size_t *value_size)
{
    ttt_job *job = user;
    double seconds = timeout_ms < 1 ? 1e-3 : 1e-3 * timeout_ms;
    return code_of(ttt__job_kv_get(job->client, key, key_size, seconds, value, value_size));
}

static pjrt_code try_get_key(void *user, const char *key, size_t key_size, char **value,
                             size_t *value_size)
{
    ttt_job *job = user;
    return code_of(ttt__job_kv_get(job->client, key, key_size, 0, value, value_size));
}

static pjrt_code put_key(void *user, const char *key, size_t key_size, const char *value,
                         size_t value_size)
{
    ttt_job *job = user;
    return code_of(ttt__job_kv_put(job->client, key, key_size, value, value_size));
}

/* ---- messages ----------------------------------------------------------------------------------
 */

static int tell(pjrt_status *st, char error[PJRT_MESSENGER_ERROR])
{
    if (st == NULL)
        return 0;
    snprintf(error, PJRT_MESSENGER_ERROR, "%s", pjrt_status_message(st));
    pjrt_status_free(st);
    return -1;
}

static int somebody_lost(void *user, char error[PJRT_MESSENGER_ERROR])
{
    ttt_job *job = user;
    return tell(ttt__job_kv_check(job->client), error);
}

/* Of one who waits for messages. */
typedef struct patience {
    ttt_job *job;
    double look, deadline; /* when to look next for those who are leaving; when to give up */
} patience;

static patience start_waiting(ttt_job *job)
{
    double now = ttt__seconds();
    return (patience){job, now + 2, now + job->timeout};
}

static int leaving_key(int rank, char key[32])
{
    return snprintf(key, 32, "leaving/%d", rank);
}

/* The first to leave told its name: the others may leave because of it. */
static const char first_key[] = "leaving/first";

static void say_leaving(ttt_job *job)
{
    char key[32];
    int n = leaving_key(job->rank, key);
    pjrt_status_free(ttt__job_kv_put(job->client, first_key, strlen(first_key),
                                     job->names[job->rank], strlen(job->names[job->rank])));
    pjrt_status_free(ttt__job_kv_put(job->client, key, (size_t)n, "", 0));
}

static bool has_key(ttt_job *job, const char *key, size_t key_size, char **value)
{
    size_t size;
    pjrt_status *st = ttt__job_kv_get(job->client, key, key_size, 0, value, &size);
    pjrt_status_free(st);
    return *value != NULL;
}

/* One who failed, and closes what it has opened, says nothing more. What it said last arrives
 * within the seconds before somebody looks here. */
static int somebody_leaving(const patience *p, const int *pending, size_t n_pending, char *error)
{
    char key[32], *value = NULL;
    bool leaving = false;
    for (size_t i = 0; i < n_pending && !leaving; i++) {
        leaving = has_key(p->job, key, (size_t)leaving_key(pending[i], key), &value);
        free(value);
    }
    if (!leaving || !has_key(p->job, first_key, strlen(first_key), &value))
        return 0;
    snprintf(error, PJRT_MESSENGER_ERROR, "%s left the job before a collective was done", value);
    free(value);
    return -1;
}

static int go_on_waiting(void *user, const int *pending, size_t n_pending,
                         char error[PJRT_MESSENGER_ERROR])
{
    patience *p = user;
    if (somebody_lost(p->job, error) != 0)
        return -1;
    double now = ttt__seconds();
    if (now > p->look) {
        p->look = now + 2;
        if (somebody_leaving(p, pending, n_pending, error) != 0)
            return -1;
    }
    if (now < p->deadline)
        return 0;
    snprintf(error, PJRT_MESSENGER_ERROR, "%s did not come to a collective within %g s",
             n_pending == 0 ? "another process" : p->job->names[pending[0]], p->job->timeout);
    return -1;
}

static int exchange_by_mpi(void *user, int tag, const pjrt_message *sends, size_t n_sends,
                           const pjrt_message *receives, size_t n_receives,
                           char error[PJRT_MESSENGER_ERROR])
{
    ttt_job *job = user;
    patience p = start_waiting(job);
    int failed =
        job->mpi->exchange(tag, sends, n_sends, receives, n_receives, go_on_waiting, &p, error);
    if (failed != 0)
        atomic_store(&job->mpi_failed, true);
    return failed;
}

static pjrt_status *open_mail(ttt_job *job)
{
    pthread_mutex_lock(&job->mail_lock);
    pjrt_status *st = job->mail != NULL ? NULL
                                        : ttt__transport_open(job->client, job->rank, job->size,
                                                              job->token, &job->mail);
    pthread_mutex_unlock(&job->mail_lock);
    return st;
}

static int exchange_by_tcp(void *user, int tag, const pjrt_message *sends, size_t n_sends,
                           const pjrt_message *receives, size_t n_receives,
                           char error[PJRT_MESSENGER_ERROR])
{
    ttt_job *job = user;
    patience p = start_waiting(job);
    if (tell(open_mail(job), error) != 0)
        return -1;
    return ttt__transport_exchange(job->mail, tag, sends, n_sends, receives, n_receives,
                                   go_on_waiting, &p, error);
}

/* ---- opening -----------------------------------------------------------------------------------
 */

static pjrt_status *fresh_token(char **token)
{
    unsigned char bytes[16];
    *token = calloc(2 * sizeof bytes + 1, 1);
    if (*token == NULL)
        return PJRT_NO_MEMORY(call);
    if (!ttt__random(bytes, sizeof bytes))
        return PJRT_FAIL(UNAVAILABLE, call, "the system has no random numbers");
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(*token + 2 * i, 3, "%02x", bytes[i]);
    return NULL;
}

/* Process 0 keeps the keys; `*inside` is its own connection to them. */
static pjrt_status *serve(ttt_job *job, launch_plan *plan, double silence, int *inside)
{
    if (plan->token == NULL)
        PJRT_TRY(fresh_token(&plan->token));
    keeper_options options = {plan->token, plan->processes, (const char *const *)plan->hosts,
                              job->timeout, silence};
    PJRT_TRY(ttt__coordinator_serve(&options, &plan->port, inside, &job->server));
    return plan->addresses != NULL ? NULL : ttt__socket_addresses(plan->port, &plan->addresses);
}

/* What process 0 tells the others by MPI; `failure` is all there is when it could not start. */
typedef struct announcement {
    char token[64], addresses[8192], failure[512];
} announcement;

static pjrt_status *announce(launch_plan *plan, pjrt_status *st)
{
    char error[PJRT_MESSENGER_ERROR] = "";
    announcement *a = calloc(1, sizeof *a);
    if (a == NULL) {
        pjrt_status_free(st);
        return PJRT_NO_MEMORY(call);
    }
    if (plan->rank == 0 && st == NULL) {
        snprintf(a->token, sizeof a->token, "%s", plan->token);
        snprintf(a->addresses, sizeof a->addresses, "%s", plan->addresses);
    } else if (plan->rank == 0) {
        snprintf(a->failure, sizeof a->failure, "%s", pjrt_status_message(st));
    }
    if (plan->mpi->broadcast(a, sizeof *a, error) != 0 && st == NULL)
        st = PJRT_FAIL(UNAVAILABLE, call, "%s", error);
    if (plan->rank != 0 && st == NULL && a->failure[0] != '\0')
        st = PJRT_FAIL(UNAVAILABLE, call, "process 0: %s", a->failure);
    if (plan->rank != 0 && st == NULL) {
        plan->token = strdup(a->token);
        plan->addresses = strdup(a->addresses);
        st = plan->token == NULL || plan->addresses == NULL ? PJRT_NO_MEMORY(call) : NULL;
    }
    free(a);
    return st;
}

static pjrt_status *name_all(ttt_job *job)
{
    job->names = calloc((size_t)job->size, sizeof *job->names);
    if (job->names == NULL)
        return PJRT_NO_MEMORY(call);
    for (int i = 0; i < job->size; i++) {
        if (asprintf(&job->names[i], "process %d (%s)", i, ttt__job_kv_host(job->client, i)) < 0)
            return job->names[i] = NULL, PJRT_NO_MEMORY(call);
    }
    return NULL;
}

static pjrt_status *join(ttt_job *job, launch_plan *plan, double silence)
{
    char host[256] = "";
    int inside = -1;
    pjrt_status *st = plan->rank == 0 ? serve(job, plan, silence, &inside) : NULL;
    if (plan->launch == TTT_LAUNCH_MPI)
        st = announce(plan, st);
    if (st != NULL) {
        if (inside >= 0)
            close(inside);
        return st;
    }
    if (gethostname(host, sizeof host - 1) != 0)
        snprintf(host, sizeof host, "unknown host");
    store_join options = {inside,     plan->addresses, plan->token,  host,
                          plan->rank, plan->processes, job->timeout, silence};
    PJRT_TRY(ttt__job_kv_join(&options, &job->client));
    PJRT_TRY(name_all(job));
    job->store = (pjrt_store){get_key, try_get_key, put_key, job};
    job->messenger =
        (pjrt_messenger){job->mpi != NULL ? exchange_by_mpi : exchange_by_tcp, somebody_lost, job};
    job->token = plan->token;
    plan->token = NULL;
    return NULL;
}

pjrt_status *ttt_job_open(const ttt_job_options *options, ttt_job **out)
{
    launch_plan plan;
    *out = NULL;
    PJRT_TRY(ttt__launch_find(options, &plan));
    ttt_job *job = plan.processes == 1 ? NULL : calloc(1, sizeof *job);
    pjrt_status *st = plan.processes > 1 && job == NULL ? PJRT_NO_MEMORY(call) : NULL;
    if (job != NULL) {
        job->rank = plan.rank;
        job->size = plan.processes;
        job->mpi = plan.mpi;
        pthread_mutex_init(&job->mail_lock, NULL);
        job->timeout = options->timeout > 0 ? options->timeout : 300;
        st = join(job, &plan, options->silence > 0 ? options->silence : 30);
    } else if (plan.mpi != NULL) {
        plan.mpi->close(0);
    }
    ttt__launch_free(&plan);
    if (st != NULL) {
        ttt_job_free(job);
        return st;
    }
    *out = job;
    return NULL;
}

/* All leave MPI together, or none: one who waits there for somebody who does not come waits for
 * good. */
static void leave_mpi(ttt_job *job)
{
    bool well = !atomic_load(&job->mpi_failed);
    void *all = NULL;
    if (job->client == NULL)
        well = false;
    else
        pjrt_status_free(
            ttt__job_kv_gather(job->client, "leaving the job", &well, sizeof well, &all));
    for (int i = 0; i < job->size && well; i++)
        well = all != NULL && ((bool *)all)[i];
    free(all);
    job->mpi->close(!well);
}

void ttt_job_free(ttt_job *job)
{
    if (job == NULL)
        return;
    if (job->client != NULL && job->names != NULL)
        say_leaving(job);
    if (job->mpi != NULL)
        leave_mpi(job);
    ttt__transport_close(job->mail);
    ttt__job_kv_leave(job->client);
    ttt__coordinator_stop(job->server, job->client == NULL ? 0 : job->timeout);
    for (int i = 0; job->names != NULL && i < job->size; i++)
        free(job->names[i]);
    pthread_mutex_destroy(&job->mail_lock);
    free(job->names);
    free(job->token);
    free(job);
}

/* ---- what all may ask --------------------------------------------------------------------------
 */

int ttt_job_rank(const ttt_job *job)
{
    return job == NULL ? 0 : job->rank;
}

int ttt_job_size(const ttt_job *job)
{
    return job == NULL ? 1 : job->size;
}

const char *ttt_job_name(const ttt_job *job, int rank)
{
    return job == NULL || rank < 0 || rank >= job->size ? "process 0" : job->names[rank];
}

pjrt_status *ttt_job_gather(ttt_job *job, const char *name, const void *mine, size_t size,
                            void **all)
{
    if (job != NULL)
        return ttt__job_kv_gather(job->client, name, mine, size, all);
    *all = malloc(size + 1);
    if (*all == NULL)
        return PJRT_NO_MEMORY(call);
    if (size > 0)
        memcpy(*all, mine, size);
    return NULL;
}

pjrt_status *ttt_job_barrier(ttt_job *job, const char *name)
{
    void *none = NULL;
    pjrt_status *st = job == NULL ? NULL : ttt__job_kv_gather(job->client, name, NULL, 0, &none);
    free(none);
    return st;
}

pjrt_status *ttt_job_broadcast(ttt_job *job, const char *name, void *bytes, size_t size)
{
    char key[4096], *value = NULL;
    size_t there = 0;
    if (job == NULL)
        return NULL;
    int n = snprintf(key, sizeof key, "broadcast/%s", name);
    if (n >= (int)sizeof key)
        return PJRT_FAIL(INVALID_ARGUMENT, call, "the name of a broadcast is too long");
    if (job->rank == 0)
        return ttt__job_kv_put(job->client, key, (size_t)n, bytes, size);
    PJRT_TRY(ttt__job_kv_get(job->client, key, (size_t)n, job->timeout, &value, &there));
    pjrt_status *st = there == size ? NULL
                                    : PJRT_FAIL(INVALID_ARGUMENT, call,
                                                "%s told %zu bytes as \"%s\", expected were %zu",
                                                job->names[0], there, name, size);
    if (st == NULL && size > 0)
        memcpy(bytes, value, size);
    free(value);
    return st;
}

pjrt_status *ttt_job_check(ttt_job *job)
{
    return job == NULL ? NULL : ttt__job_kv_check(job->client);
}

const pjrt_store *ttt_job_kv(ttt_job *job)
{
    return job == NULL ? NULL : &job->store;
}

const pjrt_messenger *ttt_job_messenger(ttt_job *job)
{
    return job == NULL ? NULL : &job->messenger;
}
