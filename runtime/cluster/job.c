/* The processes of a job as one world: who they are and what they tell each other. */
#include "runtime/cluster/ttt_processes.h"

#include "runtime/cluster/coordinator_server.h"
#include "runtime/cluster/launch.h"
#include "runtime/cluster/transport.h"
#include "runtime/cluster/sockets.h"
#include "runtime/cluster/coordinator_client.h"
#include "runtime/base/threads.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char call[] = "processes";

struct ttt_world {
    int rank, size;
    double timeout;
    char **names;
    keeper_server *server; /* of process 0 */
    store_client *client;
    atomic_bool mpi_failed;
    const ttt_mpi_api *mpi; /* or NULL, then: */
    pthread_mutex_t mail_lock;
    ttt_mail *mail; /* opened when it is first needed: only CPUs do */
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
    ttt_world *world = user;
    double seconds = timeout_ms < 1 ? 1e-3 : 1e-3 * timeout_ms;
    return code_of(ttt__store_get(world->client, key, key_size, seconds, value, value_size));
}

static pjrt_code try_get_key(void *user, const char *key, size_t key_size, char **value,
                             size_t *value_size)
{
    ttt_world *world = user;
    return code_of(ttt__store_get(world->client, key, key_size, 0, value, value_size));
}

static pjrt_code put_key(void *user, const char *key, size_t key_size, const char *value,
                         size_t value_size)
{
    ttt_world *world = user;
    return code_of(ttt__store_put(world->client, key, key_size, value, value_size));
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
    ttt_world *world = user;
    return tell(ttt__store_check(world->client), error);
}

/* Of one who waits for messages. */
typedef struct patience {
    ttt_world *world;
    double look, deadline; /* when to look next for those who are leaving; when to give up */
} patience;

static patience start_waiting(ttt_world *world)
{
    double now = ttt__seconds();
    return (patience){world, now + 2, now + world->timeout};
}

static int leaving_key(int rank, char key[32])
{
    return snprintf(key, 32, "leaving/%d", rank);
}

/* The first to leave told its name: the others may leave because of it. */
static const char first_key[] = "leaving/first";

static void say_leaving(ttt_world *world)
{
    char key[32];
    int n = leaving_key(world->rank, key);
    pjrt_status_free(ttt__store_put(world->client, first_key, strlen(first_key),
                                    world->names[world->rank], strlen(world->names[world->rank])));
    pjrt_status_free(ttt__store_put(world->client, key, (size_t)n, "", 0));
}

static bool has_key(ttt_world *world, const char *key, size_t key_size, char **value)
{
    size_t size;
    pjrt_status *st = ttt__store_get(world->client, key, key_size, 0, value, &size);
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
        leaving = has_key(p->world, key, (size_t)leaving_key(pending[i], key), &value);
        free(value);
    }
    if (!leaving || !has_key(p->world, first_key, strlen(first_key), &value))
        return 0;
    snprintf(error, PJRT_MESSENGER_ERROR, "%s left the job before a collective was done", value);
    free(value);
    return -1;
}

static int go_on_waiting(void *user, const int *pending, size_t n_pending,
                         char error[PJRT_MESSENGER_ERROR])
{
    patience *p = user;
    if (somebody_lost(p->world, error) != 0)
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
             n_pending == 0 ? "another process" : p->world->names[pending[0]], p->world->timeout);
    return -1;
}

static int exchange_by_mpi(void *user, int tag, const pjrt_message *sends, size_t n_sends,
                           const pjrt_message *receives, size_t n_receives,
                           char error[PJRT_MESSENGER_ERROR])
{
    ttt_world *world = user;
    patience p = start_waiting(world);
    int failed =
        world->mpi->exchange(tag, sends, n_sends, receives, n_receives, go_on_waiting, &p, error);
    if (failed != 0)
        atomic_store(&world->mpi_failed, true);
    return failed;
}

static pjrt_status *open_mail(ttt_world *world)
{
    pthread_mutex_lock(&world->mail_lock);
    pjrt_status *st = world->mail != NULL ? NULL
                                          : ttt__mail_open(world->client, world->rank, world->size,
                                                           world->token, &world->mail);
    pthread_mutex_unlock(&world->mail_lock);
    return st;
}

static int exchange_by_tcp(void *user, int tag, const pjrt_message *sends, size_t n_sends,
                           const pjrt_message *receives, size_t n_receives,
                           char error[PJRT_MESSENGER_ERROR])
{
    ttt_world *world = user;
    patience p = start_waiting(world);
    if (tell(open_mail(world), error) != 0)
        return -1;
    return ttt__mail_exchange(world->mail, tag, sends, n_sends, receives, n_receives, go_on_waiting,
                              &p, error);
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
static pjrt_status *serve(ttt_world *world, launch_plan *plan, double silence, int *inside)
{
    if (plan->token == NULL)
        PJRT_TRY(fresh_token(&plan->token));
    keeper_options options = {plan->token, plan->processes, (const char *const *)plan->hosts,
                              world->timeout, silence};
    PJRT_TRY(ttt__keeper_serve(&options, &plan->port, inside, &world->server));
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

static pjrt_status *name_all(ttt_world *world)
{
    world->names = calloc((size_t)world->size, sizeof *world->names);
    if (world->names == NULL)
        return PJRT_NO_MEMORY(call);
    for (int i = 0; i < world->size; i++) {
        if (asprintf(&world->names[i], "process %d (%s)", i, ttt__store_host(world->client, i)) < 0)
            return world->names[i] = NULL, PJRT_NO_MEMORY(call);
    }
    return NULL;
}

static pjrt_status *join(ttt_world *world, launch_plan *plan, double silence)
{
    char host[256] = "";
    int inside = -1;
    pjrt_status *st = plan->rank == 0 ? serve(world, plan, silence, &inside) : NULL;
    if (plan->launch == TTT_LAUNCH_MPI)
        st = announce(plan, st);
    if (st != NULL) {
        if (inside >= 0)
            close(inside);
        return st;
    }
    if (gethostname(host, sizeof host - 1) != 0)
        snprintf(host, sizeof host, "unknown host");
    store_join options = {inside,     plan->addresses, plan->token,    host,
                          plan->rank, plan->processes, world->timeout, silence};
    PJRT_TRY(ttt__store_join(&options, &world->client));
    PJRT_TRY(name_all(world));
    world->store = (pjrt_store){get_key, try_get_key, put_key, world};
    world->messenger = (pjrt_messenger){world->mpi != NULL ? exchange_by_mpi : exchange_by_tcp,
                                        somebody_lost, world};
    world->token = plan->token;
    plan->token = NULL;
    return NULL;
}

pjrt_status *ttt_world_open(const ttt_world_options *options, ttt_world **out)
{
    launch_plan plan;
    *out = NULL;
    PJRT_TRY(ttt__launch_find(options, &plan));
    ttt_world *world = plan.processes == 1 ? NULL : calloc(1, sizeof *world);
    pjrt_status *st = plan.processes > 1 && world == NULL ? PJRT_NO_MEMORY(call) : NULL;
    if (world != NULL) {
        world->rank = plan.rank;
        world->size = plan.processes;
        world->mpi = plan.mpi;
        pthread_mutex_init(&world->mail_lock, NULL);
        world->timeout = options->timeout > 0 ? options->timeout : 300;
        st = join(world, &plan, options->silence > 0 ? options->silence : 30);
    } else if (plan.mpi != NULL) {
        plan.mpi->close(0);
    }
    ttt__launch_free(&plan);
    if (st != NULL) {
        ttt_world_free(world);
        return st;
    }
    *out = world;
    return NULL;
}

/* All leave MPI together, or none: one who waits there for somebody who does not come waits for
 * good. */
static void leave_mpi(ttt_world *world)
{
    bool well = !atomic_load(&world->mpi_failed);
    void *all = NULL;
    if (world->client == NULL)
        well = false;
    else
        pjrt_status_free(
            ttt__store_gather(world->client, "leaving the job", &well, sizeof well, &all));
    for (int i = 0; i < world->size && well; i++)
        well = all != NULL && ((bool *)all)[i];
    free(all);
    world->mpi->close(!well);
}

void ttt_world_free(ttt_world *world)
{
    if (world == NULL)
        return;
    if (world->client != NULL && world->names != NULL)
        say_leaving(world);
    if (world->mpi != NULL)
        leave_mpi(world);
    ttt__mail_close(world->mail);
    ttt__store_leave(world->client);
    ttt__keeper_stop(world->server, world->client == NULL ? 0 : world->timeout);
    for (int i = 0; world->names != NULL && i < world->size; i++)
        free(world->names[i]);
    pthread_mutex_destroy(&world->mail_lock);
    free(world->names);
    free(world->token);
    free(world);
}

/* ---- what all may ask --------------------------------------------------------------------------
 */

int ttt_world_rank(const ttt_world *world)
{
    return world == NULL ? 0 : world->rank;
}

int ttt_world_size(const ttt_world *world)
{
    return world == NULL ? 1 : world->size;
}

const char *ttt_world_name(const ttt_world *world, int rank)
{
    return world == NULL || rank < 0 || rank >= world->size ? "process 0" : world->names[rank];
}

pjrt_status *ttt_world_gather(ttt_world *world, const char *name, const void *mine, size_t size,
                              void **all)
{
    if (world != NULL)
        return ttt__store_gather(world->client, name, mine, size, all);
    *all = malloc(size + 1);
    if (*all == NULL)
        return PJRT_NO_MEMORY(call);
    if (size > 0)
        memcpy(*all, mine, size);
    return NULL;
}

pjrt_status *ttt_world_barrier(ttt_world *world, const char *name)
{
    void *none = NULL;
    pjrt_status *st = world == NULL ? NULL : ttt__store_gather(world->client, name, NULL, 0, &none);
    free(none);
    return st;
}

pjrt_status *ttt_world_broadcast(ttt_world *world, const char *name, void *bytes, size_t size)
{
    char key[4096], *value = NULL;
    size_t there = 0;
    if (world == NULL)
        return NULL;
    int n = snprintf(key, sizeof key, "broadcast/%s", name);
    if (n >= (int)sizeof key)
        return PJRT_FAIL(INVALID_ARGUMENT, call, "the name of a broadcast is too long");
    if (world->rank == 0)
        return ttt__store_put(world->client, key, (size_t)n, bytes, size);
    PJRT_TRY(ttt__store_get(world->client, key, (size_t)n, world->timeout, &value, &there));
    pjrt_status *st = there == size ? NULL
                                    : PJRT_FAIL(INVALID_ARGUMENT, call,
                                                "%s told %zu bytes as \"%s\", expected were %zu",
                                                world->names[0], there, name, size);
    if (st == NULL && size > 0)
        memcpy(bytes, value, size);
    free(value);
    return st;
}

pjrt_status *ttt_world_check(ttt_world *world)
{
    return world == NULL ? NULL : ttt__store_check(world->client);
}

const pjrt_store *ttt_world_store(ttt_world *world)
{
    return world == NULL ? NULL : &world->store;
}

const pjrt_messenger *ttt_world_messenger(ttt_world *world)
{
    return world == NULL ? NULL : &world->messenger;
}
