/* TCP: listening, connecting again and again, sending until a deadline. */
#include "runtime/cluster/sockets.h"

#include "runtime/base/threads.h"

#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static const char call[] = "processes";

bool ttt__socket_prepare(int fd)
{
    int on = 1, flags = fcntl(fd, F_GETFL);
    /* These fail on a pair of this process, which needs neither. */
    (void)!setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)!setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    return flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0;
}

/* ---- listening ---------------------------------------------------------------------------------
 */

static int listen_at(int family, int port)
{
    int on = 1, off = 0, fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct sockaddr *address =
        family == AF_INET6 ? (struct sockaddr *)&six : (struct sockaddr *)&four;
    socklen_t size = family == AF_INET6 ? sizeof six : sizeof four;
    (void)!setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (family == AF_INET6) /* IPv4 as well */
        (void)!setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (bind(fd, address, size) != 0 || listen(fd, 1024) != 0) {
        int error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

pjrt_status *ttt__socket_listen(int *port, int *fd)
{
    *fd = listen_at(AF_INET6, *port);
    if (*fd < 0 && errno != EADDRINUSE)
        *fd = listen_at(AF_INET, *port);
    if (*fd < 0)
        return PJRT_FAIL(UNAVAILABLE, call, "process 0 cannot listen at port %d: %s", *port,
                         strerror(errno));
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    if (getsockname(*fd, (struct sockaddr *)&address, &size) != 0)
        return PJRT_FAIL(INTERNAL, call, "a port has no number: %s", strerror(errno));
    *port = ntohs(address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&address)->sin6_port
                                                : ((struct sockaddr_in *)&address)->sin_port);
    return NULL;
}

/* These mean something else on every host. */
static bool is_link_local(const struct sockaddr *address)
{
    return address->sa_family == AF_INET6 &&
           IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)address)->sin6_addr);
}

pjrt_status *ttt__socket_addresses(int port, char **text)
{
    struct ifaddrs *list, *i;
    size_t size = 0;
    FILE *out = open_memstream(text, &size);
    if (out == NULL || getifaddrs(&list) != 0) {
        if (out != NULL)
            fclose(out);
        return PJRT_FAIL(UNAVAILABLE, call, "this machine's addresses are not known: %s",
                         strerror(errno));
    }
    for (int loop = 0; loop < 2; loop++) {
        for (i = list; i != NULL; i = i->ifa_next) {
            char host[NI_MAXHOST];
            int family = i->ifa_addr == NULL ? AF_UNSPEC : i->ifa_addr->sa_family;
            if ((family != AF_INET && family != AF_INET6) || is_link_local(i->ifa_addr) ||
                ((i->ifa_flags & IFF_LOOPBACK) != 0) != loop || (i->ifa_flags & IFF_UP) == 0)
                continue;
            socklen_t length =
                family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
            if (getnameinfo(i->ifa_addr, length, host, sizeof host, NULL, 0, NI_NUMERICHOST) == 0)
                fprintf(out, family == AF_INET ? "%s%s:%d" : "%s[%s]:%d", ftell(out) > 0 ? "," : "",
                        host, port);
        }
    }
    freeifaddrs(list);
    if (fclose(out) != 0) {
        free(*text);
        *text = NULL;
        return PJRT_NO_MEMORY(call);
    }
    return NULL;
}

/* ---- connecting --------------------------------------------------------------------------------
 */

/* "HOST:PORT" up to the next comma, cut into two. */
static bool split(const char *text, size_t length, char host[NI_MAXHOST], char port[NI_MAXSERV])
{
    const char *end = text + length, *colon = end;
    while (colon > text && *--colon != ':')
        ;
    if (length == 0 || *colon != ':')
        return false;
    const char *from = text, *to = colon;
    if (to - from >= 2 && *from == '[' && to[-1] == ']')
        from++, to--;
    return to > from && end - colon > 1 &&
           snprintf(host, NI_MAXHOST, "%.*s", (int)(to - from), from) < NI_MAXHOST &&
           snprintf(port, NI_MAXSERV, "%.*s", (int)(end - colon - 1), colon + 1) < NI_MAXSERV;
}

/* A connection, or -1 with a reason in words. */
static int try_address(const struct addrinfo *at, int ms, const char **why)
{
    int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        *why = strerror(errno);
        return -1;
    }
    int failed = connect(fd, at->ai_addr, at->ai_addrlen) == 0 ? 0 : errno;
    if (failed == EINPROGRESS) {
        struct pollfd wait = {fd, POLLOUT, 0};
        socklen_t size = sizeof failed;
        if (poll(&wait, 1, ms) <= 0)
            failed = ETIMEDOUT;
        else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &size) != 0)
            failed = errno;
    }
    if (failed == 0 && ttt__socket_prepare(fd))
        return fd;
    close(fd);
    *why = strerror(failed);
    return -1;
}

static int try_host(const char *text, size_t length, int ms, const char **why)
{
    char host[NI_MAXHOST], port[NI_MAXSERV];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    int fd = -1;
    if (!split(text, length, host, port)) {
        *why = "it is not HOST:PORT";
        return -1;
    }
    int failed = getaddrinfo(host, port, &hints, &list);
    if (failed != 0) {
        *why = gai_strerror(failed);
        return -1;
    }
    for (const struct addrinfo *at = list; at != NULL && fd < 0; at = at->ai_next)
        fd = try_address(at, ms, why);
    freeaddrinfo(list);
    return fd;
}

pjrt_status *ttt__socket_connect(const char *addresses, double deadline, int *fd)
{
    const char *why = "no address is given";
    *fd = -1;
    for (;;) {
        for (const char *at = addresses; at != NULL && *fd < 0;) {
            size_t length = strcspn(at, ",");
            double left = deadline - ttt__seconds();
            *fd = try_host(at, length, left > 2 ? 2000 : left > 0 ? (int)(1000 * left) : 0, &why);
            at = at[length] == ',' ? at + length + 1 : NULL;
        }
        if (*fd >= 0)
            return NULL;
        if (ttt__seconds() > deadline)
            return PJRT_FAIL(UNAVAILABLE, call, "process 0 cannot be reached at %s: %s", addresses,
                             why);
        nanosleep(&(struct timespec){0, 100000000}, NULL);
    }
}

bool ttt__socket_push(int fd, const char **from, size_t *size)
{
    while (*size > 0) {
        ssize_t n = send(fd, *from, *size, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n <= 0)
            return n == 0 || errno == EAGAIN || errno == EINTR;
        *from += n;
        *size -= (size_t)n;
    }
    return true;
}

pjrt_status *ttt__socket_send(int fd, const void *bytes, size_t size, double deadline)
{
    const char *from = bytes;
    while (ttt__socket_push(fd, &from, &size) && size > 0) {
        double left = deadline - ttt__seconds();
        if (left <= 0)
            return PJRT_FAIL(DEADLINE_EXCEEDED, call, "nothing is taken at the other end");
        struct pollfd wait = {fd, POLLOUT, 0};
        poll(&wait, 1, left > 1 ? 1000 : (int)(1000 * left) + 1);
    }
    return size == 0 ? NULL : PJRT_FAIL(UNAVAILABLE, call, "%s", strerror(errno));
}
