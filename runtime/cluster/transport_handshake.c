/* Two processes prove to each other that they are of one job. */
#include "runtime/cluster/transport_handshake.h"

#include "runtime/base/threads.h"
#include "runtime/cluster/coordinator_wire.h"
#include "runtime/cluster/sockets.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

typedef struct hello {
    unsigned char nonce[TTT_NONCE], rank[4], proof[TTT_PROOF];
} hello;

static bool read_until(int fd, void *data, size_t size, double deadline)
{
    char *to = data;
    while (size > 0) {
        ssize_t n = recv(fd, to, size, MSG_DONTWAIT);
        double left = deadline - ttt__seconds();
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR) || left <= 0)
            return false;
        if (n > 0) {
            to += n;
            size -= (size_t)n;
        } else {
            struct pollfd wait = {fd, POLLIN, 0};
            poll(&wait, 1, left > 1 ? 1000 : (int)(1000 * left) + 1);
        }
    }
    return true;
}

static bool write_until(int fd, const void *data, size_t size, double deadline)
{
    pjrt_status *st = ttt__socket_send(fd, data, size, deadline);
    bool ok = st == NULL;
    pjrt_status_free(st);
    return ok;
}

/* Of the connection from rank `from` to rank `to`. */
static void prove(const char *token, const char *who, const unsigned char *asked,
                  const unsigned char *own, uint32_t from, int to, int processes,
                  unsigned char out[TTT_PROOF])
{
    char text[16];
    snprintf(text, sizeof text, "%d", to);
    ttt__job_kv_proof(token, who, own, asked, from, (uint32_t)processes, text, strlen(text), out);
}

bool ttt__hello_expect(int fd, const char *token, int rank, int processes, double deadline,
                       int *other)
{
    unsigned char nonce[TTT_NONCE], proof[TTT_PROOF];
    hello h;
    if (!ttt__random(nonce, sizeof nonce) || !write_until(fd, nonce, sizeof nonce, deadline) ||
        !read_until(fd, &h, sizeof h, deadline))
        return false;
    uint32_t from = (uint32_t)h.rank[0] | (uint32_t)h.rank[1] << 8 | (uint32_t)h.rank[2] << 16 |
                    (uint32_t)h.rank[3] << 24;
    prove(token, "mail from", nonce, h.nonce, from, rank, processes, proof);
    if (!ttt__same_proof(proof, h.proof) || from >= (uint32_t)processes)
        return false;
    prove(token, "mail to", nonce, h.nonce, from, rank, processes, proof);
    *other = (int)from;
    return write_until(fd, proof, sizeof proof, deadline);
}

bool ttt__hello_say(int fd, const char *token, int rank, int other, int processes, double deadline)
{
    unsigned char asked[TTT_NONCE], answer[TTT_PROOF], proof[TTT_PROOF];
    hello h;
    if (!read_until(fd, asked, sizeof asked, deadline) || !ttt__random(h.nonce, sizeof h.nonce))
        return false;
    for (int i = 0; i < 4; i++)
        h.rank[i] = (unsigned char)((uint32_t)rank >> 8 * i);
    prove(token, "mail from", asked, h.nonce, (uint32_t)rank, other, processes, h.proof);
    if (!write_until(fd, &h, sizeof h, deadline) ||
        !read_until(fd, answer, sizeof answer, deadline))
        return false;
    prove(token, "mail to", asked, h.nonce, (uint32_t)rank, other, processes, proof);
    return ttt__same_proof(proof, answer);
}
