/* A process's connection to the keeper: a thread reads answers and sends heartbeats, any other
 * asks.
 */
#include "runtime/cluster/coordinator_client.h"

#include "runtime/base/threads.h"
#include "runtime/cluster/coordinator_wire.h"
#include "runtime/cluster/sockets.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static const char call[] = "processes";

/* Keepers answer in time; this is for what is on the way. */
static const double slack = 5;

typedef struct request {
    struct request *next;
    uint32_t id;
    bool done;
    pjrt_status *failure;
    char *value;
    size_t size;
} request;

struct store_client {
    int fd, processes;
    double timeout, silence;
    char *hosts;       /* each with a NUL behind it */
    const char **host; /* by rank */
    store_bytes in;
    double heard;
    pthread_t thread;
    bool running;
    pthread_mutex_t sending; /* one frame at a time */
    pthread_mutex_t lock;    /* guards what follows */
    pthread_cond_t answered;
    request *requests;
    uint32_t next_id;
    pjrt_status *lost;
    bool leaving;
    atomic_bool has_lost;
};

/* ---- joining -----------------------------------------------------------------------------------
 */

static pjrt_status *closed(void)
{
    return PJRT_FAIL(ABORTED, call, "process 0 closed the connection while joining");
}

static pjrt_status *status_of_reply(store_frame *frame)
{
    uint32_t code;
    if (!ttt__take_u32(frame, &code) || code > PJRT_CODE_UNAUTHENTICATED)
        return PJRT_FAIL(INTERNAL, call, "process 0 gave an answer that is none");
    if (code == PJRT_CODE_OK)
        return NULL;
    int size = frame->size > 2000 ? 2000 : (int)frame->size;
    return pjrt_status_make((pjrt_code)code, call, __FILE__, __LINE__, "%.*s", size,
                            size == 0 ? "" : frame->body);
}

/* The next frame that is no heartbeat. Its bytes stay in `in` until the next call. */
static pjrt_status *read_frame(store_client *c, double deadline, store_frame *frame, size_t *used)
{
    ttt__bytes_drop(&c->in, *used);
    *used = 0;
    for (;;) {
        int there = ttt__frame_read(c->in.data, c->in.size, STORE_FRAME, frame, used);
        if (there < 0 || c->in.failed)
            return closed();
        if (there > 0 && frame->kind != STORE_BEAT)
            return frame->kind == STORE_REPLY ? status_of_reply(frame) : NULL;
        if (there > 0) {
            ttt__bytes_drop(&c->in, *used);
            continue;
        }
        char bytes[4096];
        struct pollfd wait = {c->fd, POLLIN, 0};
        double left = deadline - ttt__seconds();
        if (left <= 0)
            return PJRT_FAIL(DEADLINE_EXCEEDED, call, "process 0 does not answer");
        poll(&wait, 1, left > 1 ? 1000 : (int)(1000 * left) + 1);
        ssize_t n = recv(c->fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            return closed();
        if (n > 0)
            ttt__bytes_add(&c->in, bytes, (size_t)n);
    }
}

static pjrt_status *send_bytes(store_client *c, store_bytes *out, double deadline)
{
    pjrt_status *st = out->failed ? PJRT_NO_MEMORY(call) : NULL;
    if (st == NULL)
        st = ttt__socket_send(c->fd, out->data, out->size, deadline);
    ttt__bytes_free(out);
    return st;
}

static pjrt_status *expect(store_client *c, double deadline, store_kind kind, size_t size,
                           store_frame *frame, size_t *used)
{
    PJRT_TRY(read_frame(c, deadline, frame, used));
    return frame->kind == kind && (size == 0 || frame->size == size) ? NULL : closed();
}

static pjrt_status *shake_hands(store_client *c, const store_join *j, double deadline,
                                store_frame *frame, size_t *used)
{
    unsigned char nonces[2][TTT_NONCE], proof[TTT_PROOF];
    uint32_t rank = (uint32_t)j->rank, processes = (uint32_t)j->processes;
    store_bytes out = {0};
    if (!ttt__random(nonces[0], TTT_NONCE))
        return PJRT_FAIL(UNAVAILABLE, call, "the system has no random numbers");
    size_t start = ttt__frame_start(&out, STORE_HELLO, 0);
    ttt__bytes_add(&out, "ttt1", 4);
    ttt__bytes_add(&out, nonces[0], TTT_NONCE);
    ttt__frame_end(&out, start);
    PJRT_TRY(send_bytes(c, &out, deadline));
    PJRT_TRY(expect(c, deadline, STORE_CHALLENGE, TTT_NONCE, frame, used));
    memcpy(nonces[1], frame->body, TTT_NONCE);

    size_t host = strnlen(j->host, STORE_HOST);
    ttt__job_kv_proof(j->token, "process", nonces[0], nonces[1], rank, processes, j->host, host,
                      proof);
    start = ttt__frame_start(&out, STORE_PROOF, 0);
    ttt__bytes_add(&out, proof, sizeof proof);
    ttt__bytes_add_u32(&out, rank);
    ttt__bytes_add_u32(&out, processes);
    ttt__bytes_add(&out, j->host, host);
    ttt__frame_end(&out, start);
    PJRT_TRY(send_bytes(c, &out, deadline));
    PJRT_TRY(expect(c, deadline, STORE_ACCEPTED, TTT_PROOF, frame, used));
    ttt__job_kv_proof(j->token, "keeper", nonces[0], nonces[1], rank, processes, j->host, host,
                      proof);
    if (!ttt__same_proof(proof, (const unsigned char *)frame->body))
        return PJRT_FAIL(UNAUTHENTICATED, call,
                         "what answers at %s is not process 0 of this job: it does not know the "
                         "token",
                         j->addresses);
    return NULL;
}

static pjrt_status *take_hosts(store_client *c, const store_frame *frame)
{
    c->hosts = malloc(frame->size + 1);
    c->host = calloc((size_t)c->processes, sizeof *c->host);
    if (c->hosts == NULL || c->host == NULL)
        return PJRT_NO_MEMORY(call);
    memcpy(c->hosts, frame->body, frame->size);
    const char *at = c->hosts, *end = c->hosts + frame->size;
    for (int i = 0; i < c->processes; i++) {
        const char *nul = at == end ? NULL : memchr(at, '\0', (size_t)(end - at));
        if (nul == NULL)
            return closed();
        c->host[i] = at;
        at = nul + 1;
    }
    return NULL;
}

static pjrt_status *join_once(store_client *c, const store_join *j, double deadline)
{
    store_frame frame;
    size_t used = 0;
    if (j->fd < 0)
        PJRT_TRY(ttt__socket_connect(j->addresses, deadline, &c->fd));
    PJRT_TRY(shake_hands(c, j, deadline, &frame, &used));
    PJRT_TRY(expect(c, deadline, STORE_WELCOME, 0, &frame, &used));
    pjrt_status *st = take_hosts(c, &frame);
    ttt__bytes_drop(&c->in, used);
    return st;
}

/* ---- the thread --------------------------------------------------------------------------------
 */

/* Nothing will be answered any more. Takes `why`. */
static void lose(store_client *c, pjrt_status *why)
{
    pthread_mutex_lock(&c->lock);
    for (request *r = c->requests; r != NULL; r = r->next) {
        r->done = true;
        r->failure = pjrt_status_copy(why);
    }
    c->requests = NULL;
    if (c->lost == NULL && !c->leaving) {
        c->lost = why;
        atomic_store(&c->has_lost, true);
    } else {
        pjrt_status_free(why);
    }
    pthread_cond_broadcast(&c->answered);
    pthread_mutex_unlock(&c->lock);
}

static void take_loss(store_client *c, store_frame *frame)
{
    uint32_t rank;
    if (!ttt__take_u32(frame, &rank))
        return;
    int size = frame->size > 1000 ? 1000 : (int)frame->size;
    pthread_mutex_lock(&c->lock);
    if (c->lost == NULL) {
        c->lost = PJRT_FAIL(UNAVAILABLE, call, "%.*s", size, frame->body);
        atomic_store(&c->has_lost, true);
    }
    pthread_mutex_unlock(&c->lock);
}

static void take_reply(store_client *c, store_frame *frame)
{
    pthread_mutex_lock(&c->lock);
    request **at = &c->requests;
    while (*at != NULL && (*at)->id != frame->id)
        at = &(*at)->next;
    request *r = *at;
    if (r != NULL) {
        *at = r->next;
        r->failure = status_of_reply(frame);
        if (r->failure == NULL) {
            r->value = malloc(frame->size + 1);
            r->size = frame->size;
            if (r->value == NULL)
                r->failure = PJRT_NO_MEMORY(call);
            else
                memcpy(r->value, frame->body, frame->size), r->value[frame->size] = '\0';
        }
        r->done = true;
        pthread_cond_broadcast(&c->answered);
    }
    pthread_mutex_unlock(&c->lock);
}

/* False when the connection has ended. */
static bool receive(store_client *c)
{
    char bytes[65536];
    store_frame frame;
    size_t used;
    ssize_t n = recv(c->fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        return false;
    if (n > 0) {
        c->heard = ttt__seconds();
        ttt__bytes_add(&c->in, bytes, (size_t)n);
    }
    for (;;) {
        int there = ttt__frame_read(c->in.data, c->in.size, STORE_FRAME, &frame, &used);
        if (there < 0 || c->in.failed)
            return false;
        if (there == 0)
            return true;
        if (frame.kind == STORE_REPLY)
            take_reply(c, &frame);
        else if (frame.kind == STORE_LOST)
            take_loss(c, &frame);
        ttt__bytes_drop(&c->in, used);
    }
}

/* Whoever is sending is heard as well. */
static void beat(store_client *c)
{
    store_bytes out = {0};
    if (pthread_mutex_trylock(&c->sending) != 0)
        return;
    ttt__frame_add(&out, STORE_BEAT, 0, NULL, 0);
    pjrt_status_free(send_bytes(c, &out, ttt__seconds() + c->silence));
    pthread_mutex_unlock(&c->sending);
}

static void *listen_and_beat(void *arg)
{
    store_client *c = arg;
    double last = ttt__seconds();
    const char *why = "its connection was closed";
    for (;;) {
        struct pollfd wait = {c->fd, POLLIN, 0};
        int ready = poll(&wait, 1, (int)(c->silence * 100) + 1);
        if (ready > 0 && !receive(c))
            break;
        double now = ttt__seconds();
        if (now - c->heard > c->silence) {
            why = "nothing was heard of it";
            break;
        }
        if (now - last > c->silence / 5) {
            beat(c);
            last = now;
        }
    }
    lose(c, PJRT_FAIL(UNAVAILABLE, call, "process 0 (%s) was lost: %s", c->host[0], why));
    return NULL;
}

/* ---- opening and closing -----------------------------------------------------------------------
 */

static void free_client(store_client *c)
{
    if (c->fd >= 0)
        close(c->fd);
    pthread_mutex_destroy(&c->sending);
    pthread_mutex_destroy(&c->lock);
    pthread_cond_destroy(&c->answered);
    ttt__bytes_free(&c->in);
    pjrt_status_free(c->lost);
    free(c->hosts);
    free(c->host);
    free(c);
}

static void start_over(store_client *c)
{
    close(c->fd);
    free(c->hosts);
    free(c->host);
    c->fd = -1;
    c->hosts = NULL;
    c->host = NULL;
    c->in.size = 0;
    nanosleep(&(struct timespec){0, 100000000}, NULL);
}

/* A connection that ends before anything was said is tried again: process 0 may just be starting.
 */
static pjrt_status *join_until(store_client *c, const store_join *j)
{
    double deadline = ttt__seconds() + j->timeout + slack;
    for (;;) {
        pjrt_status *st = join_once(c, j, deadline);
        if (pjrt_status_code(st) != PJRT_CODE_ABORTED || j->fd >= 0 || ttt__seconds() > deadline)
            return st;
        pjrt_status_free(st);
        start_over(c);
    }
}

pjrt_status *ttt__job_kv_join(const store_join *j, store_client **out)
{
    *out = NULL;
    store_client *c = calloc(1, sizeof *c);
    if (c == NULL) {
        if (j->fd >= 0)
            close(j->fd);
        return PJRT_NO_MEMORY(call);
    }
    c->fd = j->fd;
    c->processes = j->processes;
    c->timeout = j->timeout;
    c->silence = j->silence;
    pthread_mutex_init(&c->sending, NULL);
    pthread_mutex_init(&c->lock, NULL);
    ttt__condition_start(&c->answered);
    pjrt_status *st = join_until(c, j);
    c->heard = ttt__seconds();
    if (st == NULL)
        st = ttt__thread_start(&c->thread, listen_and_beat, c);
    if (st != NULL) {
        free_client(c);
        return st;
    }
    *out = c;
    return NULL;
}

void ttt__job_kv_leave(store_client *c)
{
    if (c == NULL)
        return;
    store_bytes out = {0};
    pthread_mutex_lock(&c->lock);
    c->leaving = true;
    pthread_mutex_unlock(&c->lock);
    ttt__frame_add(&out, STORE_BYE, 0, NULL, 0);
    pthread_mutex_lock(&c->sending);
    pjrt_status_free(send_bytes(c, &out, ttt__seconds() + slack));
    shutdown(c->fd, SHUT_WR); /* the keeper closes, which ends the thread */
    pthread_mutex_unlock(&c->sending);
    pthread_join(c->thread, NULL);
    free_client(c);
}

const char *ttt__job_kv_host(const store_client *c, int rank)
{
    return c->host[rank];
}

/* ---- asking ------------------------------------------------------------------------------------
 */

/* Waits for the answer, or until the connection has ended, or far beyond what the keeper may take.
 */
static pjrt_status *await(store_client *c, request *r, double seconds)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)(seconds + c->silence + slack) + 1;
    pthread_mutex_lock(&c->lock);
    while (!r->done && pthread_cond_timedwait(&c->answered, &c->lock, &until) != ETIMEDOUT)
        ;
    if (!r->done) { /* nobody will fill it in any more */
        request **at = &c->requests;
        while (*at != r)
            at = &(*at)->next;
        *at = r->next;
        r->failure =
            PJRT_FAIL(DEADLINE_EXCEEDED, call, "process 0 (%s) does not answer", c->host[0]);
    }
    pthread_mutex_unlock(&c->lock);
    return r->failure;
}

/* Sends `out`, a frame of number `r->id`, and waits. */
static pjrt_status *ask(store_client *c, request *r, store_bytes *out, double seconds)
{
    pthread_mutex_lock(&c->lock);
    pjrt_status *st = c->lost != NULL ? pjrt_status_copy(c->lost) : NULL;
    if (st == NULL) {
        r->next = c->requests;
        c->requests = r;
    }
    pthread_mutex_unlock(&c->lock);
    if (st != NULL) {
        ttt__bytes_free(out);
        return st;
    }
    pthread_mutex_lock(&c->sending);
    st = send_bytes(c, out, ttt__seconds() + c->silence + slack);
    pthread_mutex_unlock(&c->sending);
    if (st != NULL)
        lose(c, PJRT_FAIL(UNAVAILABLE, call, "process 0 (%s) was lost: %s", c->host[0],
                          pjrt_status_message(st)));
    pjrt_status_free(st);
    return await(c, r, seconds);
}

static uint32_t next_id(store_client *c)
{
    pthread_mutex_lock(&c->lock);
    uint32_t id = ++c->next_id;
    pthread_mutex_unlock(&c->lock);
    return id;
}

static uint32_t milliseconds(double seconds)
{
    return seconds <= 0 ? 0 : seconds > 1e6 ? 1000000000 : (uint32_t)(seconds * 1000) + 1;
}

static pjrt_status *check_sizes(size_t key, size_t value)
{
    if (key == 0 || key > STORE_KEY || value > STORE_FRAME - STORE_KEY - 16)
        return PJRT_FAIL(INVALID_ARGUMENT, call,
                         "a key has 1 to %d bytes and a value at most %d: these are %zu and %zu",
                         STORE_KEY, STORE_FRAME - STORE_KEY - 16, key, value);
    return NULL;
}

pjrt_status *ttt__job_kv_put(store_client *c, const char *key, size_t key_size, const char *value,
                             size_t value_size)
{
    PJRT_TRY(check_sizes(key_size, value_size));
    request r = {.id = next_id(c)};
    store_bytes out = {0};
    size_t start = ttt__frame_start(&out, STORE_PUT, r.id);
    ttt__bytes_add_u32(&out, (uint32_t)key_size);
    ttt__bytes_add(&out, key, key_size);
    ttt__bytes_add(&out, value, value_size);
    ttt__frame_end(&out, start);
    pjrt_status *st = ask(c, &r, &out, 0);
    free(r.value);
    return st;
}

pjrt_status *ttt__job_kv_get(store_client *c, const char *key, size_t key_size, double seconds,
                             char **value, size_t *value_size)
{
    *value = NULL;
    *value_size = 0;
    PJRT_TRY(check_sizes(key_size, 0));
    if (seconds > c->timeout)
        seconds = c->timeout;
    request r = {.id = next_id(c)};
    store_bytes out = {0};
    size_t start = ttt__frame_start(&out, STORE_GET, r.id);
    ttt__bytes_add_u32(&out, milliseconds(seconds));
    ttt__bytes_add(&out, key, key_size);
    ttt__frame_end(&out, start);
    PJRT_TRY(ask(c, &r, &out, seconds));
    *value = r.value;
    *value_size = r.size;
    return NULL;
}

pjrt_status *ttt__job_kv_gather(store_client *c, const char *name, const void *mine, size_t size,
                                void **all)
{
    *all = NULL;
    PJRT_TRY(check_sizes(strlen(name), size));
    request r = {.id = next_id(c)};
    store_bytes out = {0};
    size_t start = ttt__frame_start(&out, STORE_GATHER, r.id);
    ttt__bytes_add_u32(&out, milliseconds(c->timeout));
    ttt__bytes_add_u32(&out, (uint32_t)strlen(name));
    ttt__bytes_add(&out, name, strlen(name));
    ttt__bytes_add(&out, mine, size);
    ttt__frame_end(&out, start);
    PJRT_TRY(ask(c, &r, &out, c->timeout));
    if (r.size != size * (size_t)c->processes) {
        free(r.value);
        return PJRT_FAIL(INTERNAL, call, "process 0 gathered %zu bytes of %zu", r.size,
                         size * (size_t)c->processes);
    }
    *all = r.value;
    return NULL;
}

pjrt_status *ttt__job_kv_check(store_client *c)
{
    if (!atomic_load(&c->has_lost))
        return NULL;
    pthread_mutex_lock(&c->lock);
    pjrt_status *st = pjrt_status_copy(c->lost);
    pthread_mutex_unlock(&c->lock);
    return st;
}
