/* The keeper at a port: one thread, all connections by poll. */
#include "runtime/cluster/coordinator_server.h"

#include "runtime/base/threads.h"
#include "runtime/cluster/sockets.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const char call[] = "processes";

/* A connection and who is at its other end. */
typedef struct line {
    int fd;
    keeper_peer *peer;
} line;

struct keeper_server {
    ttt__coordinator *keeper;
    int listener, wake[2]; /* a byte in wake[1] makes the thread look at `stop` */
    pthread_t thread;
    bool running;
    atomic_bool stop;
    _Atomic double stop_at; /* however many are still there */
    line *lines;
    struct pollfd *polls; /* the listener, the wake, then the lines */
    size_t n_lines, room;
};

/* ---- connections -------------------------------------------------------------------------------
 */

static void drop(keeper_server *s, size_t i, const char *why)
{
    ttt__coordinator_disconnect(s->keeper, s->lines[i].peer, why, ttt__seconds());
    close(s->lines[i].fd);
    s->lines[i] = s->lines[--s->n_lines];
}

/* Takes over `fd`; it is closed where there is no room for it. */
static void add_line(keeper_server *s, int fd)
{
    if (s->n_lines == s->room) {
        size_t room = s->room * 2 + 16;
        line *lines = realloc(s->lines, room * sizeof *lines);
        if (lines != NULL)
            s->lines = lines;
        struct pollfd *polls = realloc(s->polls, (room + 2) * sizeof *polls);
        if (polls != NULL)
            s->polls = polls;
        if (lines == NULL || polls == NULL) {
            close(fd);
            return;
        }
        s->room = room;
    }
    keeper_peer *peer = ttt__coordinator_connect(s->keeper, ttt__seconds());
    if (peer == NULL || !ttt__socket_prepare(fd)) {
        if (peer != NULL)
            ttt__coordinator_disconnect(s->keeper, peer, "", ttt__seconds());
        close(fd);
        return;
    }
    s->lines[s->n_lines++] = (line){fd, peer};
}

/* False when the connection has ended. */
static bool receive(keeper_server *s, const line *l)
{
    char bytes[65536];
    ssize_t n = recv(l->fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (n > 0) {
        ttt__bytes_add(&l->peer->in, bytes, (size_t)n);
        ttt__coordinator_receive(s->keeper, l->peer, ttt__seconds());
        return true;
    }
    return n < 0 && (errno == EAGAIN || errno == EINTR);
}

static bool transmit(const line *l)
{
    store_bytes *out = &l->peer->out;
    if (out->size == 0)
        return true;
    ssize_t n = send(l->fd, out->data, out->size, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0)
        ttt__bytes_drop(out, (size_t)n);
    return n >= 0 || errno == EAGAIN || errno == EINTR;
}

/* ---- the thread --------------------------------------------------------------------------------
 */

static void serve_lines(keeper_server *s, size_t polled)
{
    for (size_t i = polled; i-- > 0;) {
        short events = s->polls[i + 2].revents;
        bool open = (events & (POLLIN | POLLHUP | POLLERR)) == 0 || receive(s, &s->lines[i]);
        if (open)
            open = transmit(&s->lines[i]);
        if (!open)
            drop(s, i, "its connection was closed");
    }
    for (size_t i = s->n_lines; i-- > 0;) {
        if (s->lines[i].peer->closing && s->lines[i].peer->out.size == 0)
            drop(s, i, "its connection was closed");
    }
}

static bool wanted(const keeper_server *s)
{
    return !atomic_load(&s->stop) ||
           (!ttt__coordinator_done(s->keeper) && ttt__seconds() < atomic_load(&s->stop_at));
}

/* What was said last is still sent. */
static bool unsent(const keeper_server *s)
{
    for (size_t i = 0; i < s->n_lines; i++) {
        if (s->lines[i].peer->out.size > 0)
            return true;
    }
    return false;
}

static void *serve(void *arg)
{
    keeper_server *s = arg;
    double last = ttt__seconds();
    while (wanted(s) || (unsent(s) && ttt__seconds() - last < 2)) {
        if (wanted(s))
            last = ttt__seconds();
        s->polls[0] = (struct pollfd){s->listener, POLLIN, 0};
        s->polls[1] = (struct pollfd){s->wake[0], POLLIN, 0};
        for (size_t i = 0; i < s->n_lines; i++) {
            short out = s->lines[i].peer->out.size > 0 ? POLLOUT : 0;
            s->polls[i + 2] = (struct pollfd){s->lines[i].fd, (short)(POLLIN | out), 0};
        }
        size_t polled = s->n_lines;
        if (poll(s->polls, polled + 2, 50) > 0) {
            char byte;
            serve_lines(s, polled);
            if ((s->polls[1].revents & POLLIN) != 0 && read(s->wake[0], &byte, 1) < 0)
                break;
            int fd = (s->polls[0].revents & POLLIN) != 0
                         ? accept4(s->listener, NULL, NULL, SOCK_CLOEXEC)
                         : -1;
            if (fd >= 0)
                add_line(s, fd);
        }
        ttt__coordinator_tick(s->keeper, ttt__seconds());
        for (size_t i = s->n_lines; i-- > 0;) {
            if (!transmit(&s->lines[i]))
                drop(s, i, "its connection was closed");
        }
    }
    return NULL;
}

/* ---- starting and stopping ---------------------------------------------------------------------
 */

static void free_server(keeper_server *s)
{
    while (s->n_lines > 0)
        drop(s, s->n_lines - 1, "");
    for (int i = 0; i < 2; i++) {
        if (s->wake[i] >= 0)
            close(s->wake[i]);
    }
    if (s->listener >= 0)
        close(s->listener);
    ttt__coordinator_free(s->keeper);
    free(s->lines);
    free(s->polls);
    free(s);
}

static pjrt_status *start(keeper_server *s, const keeper_options *options, int *port, int *inside)
{
    int pair[2];
    PJRT_TRY(ttt__coordinator_new(options, ttt__seconds(), &s->keeper));
    PJRT_TRY(ttt__socket_listen(port, &s->listener));
    s->polls = calloc(2, sizeof *s->polls);
    if (s->polls == NULL)
        return PJRT_NO_MEMORY(call);
    if (pipe2(s->wake, O_CLOEXEC) != 0 ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return PJRT_FAIL(RESOURCE_EXHAUSTED, call, "no more files can be opened: %s",
                         strerror(errno));
    add_line(s, pair[0]);
    pjrt_status *st = s->n_lines == 1 ? NULL : PJRT_NO_MEMORY(call);
    if (st == NULL)
        st = ttt__thread_start(&s->thread, serve, s);
    if (st != NULL)
        close(pair[1]);
    else
        *inside = pair[1];
    s->running = st == NULL;
    return st;
}

pjrt_status *ttt__coordinator_serve(const keeper_options *options, int *port, int *inside,
                                    keeper_server **out)
{
    *out = NULL;
    *inside = -1;
    keeper_server *s = calloc(1, sizeof *s);
    if (s == NULL)
        return PJRT_NO_MEMORY(call);
    s->listener = s->wake[0] = s->wake[1] = -1;
    pjrt_status *st = start(s, options, port, inside);
    if (st != NULL) {
        free_server(s);
        return st;
    }
    *out = s;
    return NULL;
}

void ttt__coordinator_stop(keeper_server *s, double seconds)
{
    if (s == NULL)
        return;
    atomic_store(&s->stop_at, ttt__seconds() + seconds);
    atomic_store(&s->stop, true);
    if (s->running) {
        ssize_t told = write(s->wake[1], "", 1); /* else it looks within 50 ms */
        (void)told;
        pthread_join(s->thread, NULL);
    }
    free_server(s);
}
