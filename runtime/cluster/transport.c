/*
 * Messages over TCP. Every connection has a thread that reads: into the memory of whoever waits for
 * the message, or aside until somebody does. So what is sent is always taken, and two processes
 * that send to each other at once do not wait for each other.
 */
#include "runtime/cluster/transport.h"

#include "runtime/base/threads.h"
#include "runtime/cluster/sockets.h"
#include "runtime/cluster/transport_handshake.h"

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static const char call[] = "processes";

enum { HEAD = 16, HELLO_SECONDS = 5, MOST_UNKNOWN = 64 };

/* A message that is waited for, or one that came before it was. */
typedef struct parcel {
    struct parcel *next;
    int process, tag;
    char *data;
    size_t size;
    bool filling, done, wrong_size;
} parcel;

typedef struct route {
    int fd; /* -1: none yet */
    bool ended;
    pthread_mutex_t sending;
} route;

typedef struct reader {
    struct reader *next;
    ttt__transport *mail;
    int fd, process; /* -1: it has yet to say who it is */
    bool finished;
    pthread_t thread;
} reader;

struct ttt__transport {
    store_client *store;
    char *token;
    int rank, processes, listener;
    pthread_t accepting;
    bool accepts;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    bool closing, broken;
    char why[PJRT_MESSENGER_ERROR]; /* of the first failure */
    route *routes;
    reader *readers;
    parcel *waited, *early, *early_last;
};

/* ---- reading -----------------------------------------------------------------------------------
 */

static bool read_all(int fd, void *data, size_t size)
{
    char *to = data;
    while (size > 0) {
        ssize_t n = recv(fd, to, size, MSG_DONTWAIT);
        if (n > 0) {
            to += n;
            size -= (size_t)n;
        } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
            return false;
        } else {
            struct pollfd wait = {fd, POLLIN, 0};
            poll(&wait, 1, -1);
        }
    }
    return true;
}

static uint64_t number(const unsigned char *bytes, int size)
{
    uint64_t value = 0;
    for (int i = 0; i < size; i++)
        value |= (uint64_t)bytes[i] << 8 * i;
    return value;
}

static void write_number(unsigned char *bytes, int size, uint64_t value)
{
    for (int i = 0; i < size; i++)
        bytes[i] = (unsigned char)(value >> 8 * i);
}

/* Whoever waits for this message, or a place aside; NULL when it cannot be taken. */
static parcel *place_for(ttt__transport *m, int process, int tag, size_t size)
{
    for (parcel *p = m->waited; p != NULL; p = p->next) {
        if (p->process != process || p->tag != tag || p->filling || p->done)
            continue;
        p->wrong_size = p->size != size;
        p->done = p->wrong_size;
        p->filling = !p->done;
        return p->done ? NULL : p;
    }
    parcel *p = calloc(1, sizeof *p);
    char *data = p == NULL ? NULL : malloc(size + 1);
    if (data == NULL) {
        free(p);
        return NULL;
    }
    *p = (parcel){.process = process, .tag = tag, .data = data, .size = size, .filling = true};
    if (m->early == NULL)
        m->early = p;
    else
        m->early_last->next = p;
    m->early_last = p;
    return p;
}

static bool read_message(reader *r)
{
    ttt__transport *m = r->mail;
    unsigned char head[HEAD];
    if (!read_all(r->fd, head, HEAD))
        return false;
    int tag = (int)number(head, 4);
    size_t size = number(head + 8, 8);
    pthread_mutex_lock(&m->lock);
    parcel *p = m->broken ? NULL : place_for(m, r->process, tag, size);
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->lock);
    bool whole = p != NULL && read_all(r->fd, p->data, size);
    if (p != NULL) {
        pthread_mutex_lock(&m->lock);
        p->filling = false;
        p->done = whole;
        pthread_cond_broadcast(&m->changed);
        pthread_mutex_unlock(&m->lock);
    }
    return whole;
}

/* The first connection of two processes counts. */
static bool register_route(reader *r, int process)
{
    ttt__transport *m = r->mail;
    pthread_mutex_lock(&m->lock);
    bool ok = !m->closing && process >= 0 && process != m->rank && m->routes[process].fd < 0;
    if (ok) {
        m->routes[process].fd = r->fd;
        r->process = process;
        pthread_cond_broadcast(&m->changed);
    }
    pthread_mutex_unlock(&m->lock);
    return ok;
}

static void *read_on(void *arg)
{
    reader *r = arg;
    ttt__transport *m = r->mail;
    bool known = r->process >= 0;
    if (!known) {
        int process = -1;
        double deadline = ttt__seconds() + HELLO_SECONDS;
        known = ttt__hello_expect(r->fd, m->token, m->rank, m->processes, deadline, &process) &&
                register_route(r, process);
    }
    while (known && read_message(r))
        ;
    pthread_mutex_lock(&m->lock);
    if (known)
        m->routes[r->process].ended = true;
    r->finished = true;
    shutdown(r->fd, SHUT_RDWR);
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->lock);
    return NULL;
}

/* ---- connections -------------------------------------------------------------------------------
 */

/* Strangers that are done with; those of routes stay until the end. */
static int sweep_readers(ttt__transport *m)
{
    int unknown = 0;
    for (reader **at = &m->readers; *at != NULL;) {
        reader *r = *at;
        unknown += r->process < 0 && !r->finished;
        if (r->process >= 0 || !r->finished) {
            at = &r->next;
            continue;
        }
        *at = r->next;
        pthread_join(r->thread, NULL); /* all it has left to do is to return */
        close(r->fd);
        free(r);
    }
    return unknown;
}

/* Takes over `fd`. With the lock held. */
static pjrt_status *add_reader(ttt__transport *m, int fd, int process)
{
    reader *r = calloc(1, sizeof *r);
    pjrt_status *st = r == NULL ? PJRT_NO_MEMORY(call) : NULL;
    if (st == NULL) {
        *r = (reader){.mail = m, .fd = fd, .process = process};
        st = ttt__thread_start(&r->thread, read_on, r);
    }
    if (st != NULL) {
        close(fd);
        free(r);
        return st;
    }
    r->next = m->readers;
    m->readers = r;
    return NULL;
}

static void *accept_all(void *arg)
{
    ttt__transport *m = arg;
    for (;;) {
        struct pollfd wait = {m->listener, POLLIN, 0};
        int ready = poll(&wait, 1, 200);
        int fd = ready > 0 ? accept4(m->listener, NULL, NULL, SOCK_CLOEXEC) : -1;
        pthread_mutex_lock(&m->lock);
        bool closing = m->closing;
        int unknown = sweep_readers(m);
        if (fd >= 0 && (closing || unknown >= MOST_UNKNOWN || !ttt__socket_prepare(fd)))
            close(fd);
        else if (fd >= 0)
            pjrt_status_free(add_reader(m, fd, -1));
        pthread_mutex_unlock(&m->lock);
        if (closing)
            return NULL;
    }
}

static pjrt_status *connect_to(ttt__transport *m, int process, double deadline)
{
    char key[32], *addresses;
    size_t size;
    int fd;
    int n = snprintf(key, sizeof key, "mail/%d", process);
    PJRT_TRY(
        ttt__job_kv_get(m->store, key, (size_t)n, deadline - ttt__seconds(), &addresses, &size));
    pjrt_status *st = ttt__socket_connect(addresses, deadline, &fd);
    free(addresses);
    if (st != NULL)
        return st;
    if (!ttt__hello_say(fd, m->token, m->rank, process, m->processes, deadline)) {
        close(fd);
        return PJRT_FAIL(UNAVAILABLE, call, "process %d (%s) does not take messages", process,
                         ttt__job_kv_host(m->store, process));
    }
    pthread_mutex_lock(&m->lock);
    st = add_reader(m, fd, process);
    if (st == NULL)
        m->routes[process].fd = fd;
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->lock);
    return st;
}

static void pause_lock(ttt__transport *m)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += 100000000;
    if (until.tv_nsec >= 1000000000)
        until.tv_sec++, until.tv_nsec -= 1000000000;
    pthread_cond_timedwait(&m->changed, &m->lock, &until);
}

/* What an exchange waits with. */
typedef struct waiting {
    ttt_mpi_wait wait;
    void *user;
    char *error;
} waiting;

static int complain(const waiting *w, const char *text)
{
    snprintf(w->error, PJRT_MESSENGER_ERROR, "%s", text);
    return -1;
}

/* A connection has ended. That may be because its other end lost somebody and gave up, which the
 * keeper knows, or will in a moment. */
static int lost(ttt__transport *m, const waiting *w, int process)
{
    for (int i = 0; i < 30; i++) {
        pthread_mutex_lock(&m->lock);
        bool known = m->broken;
        if (known)
            memcpy(w->error, m->why, PJRT_MESSENGER_ERROR);
        pthread_mutex_unlock(&m->lock);
        if (known || w->wait(w->user, &process, 1, w->error) != 0)
            return -1;
        nanosleep(&(struct timespec){0, 100000000}, NULL);
    }
    snprintf(w->error, PJRT_MESSENGER_ERROR, "process %d (%s) was lost: its connection was closed",
             process, ttt__job_kv_host(m->store, process));
    return -1;
}

/* Returns with a connection to `process`. */
static int reach(ttt__transport *m, int process, const waiting *w)
{
    route *to = &m->routes[process];
    int failed = 0;
    if (process < m->rank) {
        pthread_mutex_lock(&to->sending); /* one connects, the others find it */
        pthread_mutex_lock(&m->lock);
        bool there = to->fd >= 0;
        pthread_mutex_unlock(&m->lock);
        pjrt_status *st = there ? NULL : connect_to(m, process, ttt__seconds() + 60);
        pthread_mutex_unlock(&to->sending);
        if (st != NULL)
            failed = complain(w, pjrt_status_message(st));
        pjrt_status_free(st);
        return failed;
    }
    pthread_mutex_lock(&m->lock);
    while (to->fd < 0 && failed == 0) {
        pause_lock(m);
        pthread_mutex_unlock(&m->lock);
        failed = w->wait(w->user, &process, 1, w->error);
        pthread_mutex_lock(&m->lock);
    }
    pthread_mutex_unlock(&m->lock);
    return failed;
}

/* ---- exchanging --------------------------------------------------------------------------------
 */

static int send_bytes(ttt__transport *m, int process, const void *bytes, size_t size,
                      const waiting *w)
{
    const char *from = bytes;
    int fd = m->routes[process].fd;
    while (ttt__socket_push(fd, &from, &size) && size > 0) {
        struct pollfd wait = {fd, POLLOUT, 0};
        if (poll(&wait, 1, 100) == 0 && w->wait(w->user, &process, 1, w->error) != 0)
            return -1;
    }
    return size == 0 ? 0 : lost(m, w, process);
}

static int send_message(ttt__transport *m, int tag, const pjrt_message *message, const waiting *w)
{
    unsigned char head[HEAD] = {0};
    write_number(head, 4, (uint64_t)tag);
    write_number(head + 8, 8, message->size);
    if (reach(m, message->process, w) != 0)
        return -1;
    pthread_mutex_lock(&m->routes[message->process].sending);
    int failed = send_bytes(m, message->process, head, HEAD, w);
    if (failed == 0)
        failed = send_bytes(m, message->process, message->data, message->size, w);
    pthread_mutex_unlock(&m->routes[message->process].sending);
    return failed;
}

/* Takes the first that came early out of the list, waiting until it is whole; NULL: there is none.
 * With the lock held. */
static parcel *take_early(ttt__transport *m, int process, int tag)
{
    parcel **at = &m->early, *before = NULL;
    while (*at != NULL && ((*at)->process != process || (*at)->tag != tag)) {
        before = *at;
        at = &(*at)->next;
    }
    parcel *p = *at;
    if (p == NULL)
        return NULL;
    *at = p->next;
    if (m->early_last == p)
        m->early_last = before;
    while (p->filling)
        pause_lock(m);
    return p;
}

/* Tells what is to come where to go, or finds what came. */
static void post(ttt__transport *m, int tag, const pjrt_message *message, parcel *p)
{
    *p = (parcel){
        .process = message->process, .tag = tag, .data = message->data, .size = message->size};
    pthread_mutex_lock(&m->lock);
    parcel *early = take_early(m, message->process, tag);
    if (early != NULL) {
        p->wrong_size = early->size != p->size;
        p->done = true;
        if (!early->done)
            p->done = false; /* its connection ended within it, as will be seen */
        else if (!p->wrong_size && p->size > 0)
            memcpy(p->data, early->data, p->size);
        free(early->data);
        free(early);
    }
    p->next = m->waited;
    m->waited = p;
    pthread_mutex_unlock(&m->lock);
}

static void withdraw(ttt__transport *m, parcel *p)
{
    pthread_mutex_lock(&m->lock);
    while (p->filling)
        pause_lock(m);
    parcel **at = &m->waited;
    while (*at != p)
        at = &(*at)->next;
    *at = p->next;
    pthread_mutex_unlock(&m->lock);
}

static int await(ttt__transport *m, parcel *p, const waiting *w)
{
    int failed = 0;
    pthread_mutex_lock(&m->lock);
    while (!p->done && failed == 0) {
        bool ended = m->broken || (m->routes[p->process].ended && !p->filling);
        if (!ended)
            pause_lock(m);
        if (p->done)
            break;
        pthread_mutex_unlock(&m->lock);
        failed = ended ? lost(m, w, p->process) : w->wait(w->user, &p->process, 1, w->error);
        pthread_mutex_lock(&m->lock);
    }
    if (failed == 0 && p->wrong_size)
        failed = complain(w, "a message has another size than expected: the processes run "
                             "different programs");
    pthread_mutex_unlock(&m->lock);
    return failed;
}

/* Nobody writes into the caller's memory any more, and nobody waits. */
static void give_up(ttt__transport *m, const char *why)
{
    pthread_mutex_lock(&m->lock);
    if (!m->broken)
        snprintf(m->why, sizeof m->why, "%s", why);
    m->broken = true;
    for (reader *r = m->readers; r != NULL; r = r->next)
        shutdown(r->fd, SHUT_RDWR);
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->lock);
}

int ttt__transport_exchange(ttt__transport *m, int tag, const pjrt_message *sends, size_t n_sends,
                            const pjrt_message *receives, size_t n_receives, ttt_mpi_wait wait,
                            void *user, char error[PJRT_MESSENGER_ERROR])
{
    waiting w = {wait, user, error};
    parcel *parcels = calloc(n_receives + 1, sizeof *parcels);
    if (parcels == NULL)
        return complain(&w, "no memory for messages");
    int failed = 0;
    for (size_t i = 0; i < n_receives; i++)
        post(m, tag, &receives[i], &parcels[i]);
    for (size_t i = 0; i < n_sends && failed == 0; i++)
        failed = send_message(m, tag, &sends[i], &w);
    for (size_t i = 0; i < n_receives && failed == 0; i++) {
        failed = reach(m, receives[i].process, &w);
        if (failed == 0)
            failed = await(m, &parcels[i], &w);
    }
    if (failed != 0)
        give_up(m, error);
    for (size_t i = 0; i < n_receives; i++)
        withdraw(m, &parcels[i]);
    free(parcels);
    return failed;
}

/* ---- opening and closing -----------------------------------------------------------------------
 */

static pjrt_status *start(ttt__transport *m)
{
    int port = 0;
    char key[32], *addresses;
    PJRT_TRY(ttt__socket_listen(&port, &m->listener));
    PJRT_TRY(ttt__socket_addresses(port, &addresses));
    int n = snprintf(key, sizeof key, "mail/%d", m->rank);
    pjrt_status *st = ttt__job_kv_put(m->store, key, (size_t)n, addresses, strlen(addresses) + 1);
    free(addresses);
    if (st == NULL)
        st = ttt__thread_start(&m->accepting, accept_all, m);
    m->accepts = st == NULL;
    return st;
}

pjrt_status *ttt__transport_open(store_client *store, int rank, int processes, const char *token,
                                 ttt__transport **out)
{
    *out = NULL;
    ttt__transport *m = calloc(1, sizeof *m);
    if (m == NULL)
        return PJRT_NO_MEMORY(call);
    m->store = store;
    m->rank = rank;
    m->processes = processes;
    m->listener = -1;
    pthread_mutex_init(&m->lock, NULL);
    ttt__condition_start(&m->changed);
    m->token = strdup(token);
    m->routes = calloc((size_t)processes, sizeof *m->routes);
    for (int i = 0; m->routes != NULL && i < processes; i++) {
        m->routes[i].fd = -1;
        pthread_mutex_init(&m->routes[i].sending, NULL);
    }
    pjrt_status *st = m->token == NULL || m->routes == NULL ? PJRT_NO_MEMORY(call) : start(m);
    if (st != NULL) {
        ttt__transport_close(m);
        return st;
    }
    *out = m;
    return NULL;
}

static void free_parcels(parcel *p)
{
    while (p != NULL) {
        parcel *next = p->next;
        free(p->data);
        free(p);
        p = next;
    }
}

void ttt__transport_close(ttt__transport *m)
{
    if (m == NULL)
        return;
    pthread_mutex_lock(&m->lock);
    m->closing = true;
    pthread_mutex_unlock(&m->lock);
    if (m->accepts)
        pthread_join(m->accepting, NULL);
    give_up(m, "this process has left the job");
    while (m->readers != NULL) {
        reader *next = m->readers->next;
        pthread_join(m->readers->thread, NULL);
        close(m->readers->fd);
        free(m->readers);
        m->readers = next;
    }
    if (m->listener >= 0)
        close(m->listener);
    for (int i = 0; m->routes != NULL && i < m->processes; i++)
        pthread_mutex_destroy(&m->routes[i].sending);
    pthread_mutex_destroy(&m->lock);
    pthread_cond_destroy(&m->changed);
    free_parcels(m->early);
    free(m->routes);
    free(m->token);
    free(m);
}
