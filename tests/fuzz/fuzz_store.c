/* The keeper of keys and what it is told: strangers, members and those who were members, whatever
 * they send and whenever they go. What it answers must be frames. */
#include "tests/support/store_talk.h"

#include <stdlib.h>
#include <string.h>

enum { PROCESSES = 3, LINES = 4 };

typedef struct game {
    ttt__coordinator *keeper;
    keeper_peer *lines[LINES];
    double now;
} game;

/* All that was answered must be whole frames that a process would take. */
static void read_answers(keeper_peer *peer)
{
    store_frame frame;
    size_t used, at = 0;
    int there;
    while ((there = ttt__frame_read(peer->out.data + at, peer->out.size - at, STORE_FRAME, &frame,
                                    &used)) > 0)
        at += used;
    if (there < 0 || at != peer->out.size)
        abort();
    peer->out.size = 0;
}

static void settle(game *g)
{
    for (int i = 0; i < LINES; i++) {
        if (g->lines[i] == NULL)
            continue;
        read_answers(g->lines[i]);
        if (g->lines[i]->closing) {
            ttt__coordinator_disconnect(g->keeper, g->lines[i], "it was told to go", g->now);
            g->lines[i] = NULL;
        }
    }
}

static void say(game *g, int line, const void *bytes, size_t size)
{
    if (g->lines[line] == NULL)
        return;
    ttt__bytes_add(&g->lines[line]->in, bytes, size);
    ttt__coordinator_receive(g->keeper, g->lines[line], g->now);
    settle(g);
}

/* Few inputs would come to know the token. */
static void join(game *g, int line, uint32_t rank)
{
    keeper_peer *peer = g->lines[line];
    if (peer == NULL || peer->stage != PEER_STRANGER || peer->in.size > 0)
        return;
    talk_hello(g->keeper, peer, 7, g->now);
    if (peer->stage != PEER_CHALLENGED)
        abort();
    talk_prove(g->keeper, peer, peer, "a secret", rank, PROCESSES, "h", g->now);
    settle(g);
}

/* Two bytes say what to do, then what with: lengths of frames need not be guessed. */
static size_t play(game *g, const uint8_t *data, size_t size)
{
    int line = data[0] % LINES;
    size_t length = data[1] < size - 2 ? data[1] : size - 2;
    const uint8_t *body = data + 2;
    store_bytes frame = {0};
    switch (data[0] / LINES % 8) {
    case 0:
        if (g->lines[line] == NULL)
            g->lines[line] = ttt__coordinator_connect(g->keeper, g->now);
        join(g, line, data[1] % (PROCESSES + 1));
        return 2;
    case 1:
        say(g, line, body, length);
        break;
    case 2:
        if (g->lines[line] != NULL)
            ttt__coordinator_disconnect(g->keeper, g->lines[line], "it went", g->now);
        g->lines[line] = NULL;
        return 2;
    case 3:
        g->now += data[1] * 0.1;
        ttt__coordinator_tick(g->keeper, g->now);
        settle(g);
        return 2;
    default:
        ttt__frame_add(&frame, (store_kind)(STORE_PUT + data[0] / LINES % 4), data[1], body,
                       length);
        say(g, line, frame.data, frame.size);
        ttt__bytes_free(&frame);
    }
    return 2 + length;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    game g = {0};
    keeper_options options = {"a secret", PROCESSES, NULL, 10, 5};
    pjrt_status_free(ttt__coordinator_new(&options, 0, &g.keeper));
    if (g.keeper == NULL)
        return 0;
    while (size >= 2) {
        size_t used = play(&g, data, size);
        data += used;
        size -= used;
    }
    (void)ttt__coordinator_done(g.keeper);
    ttt__coordinator_free(g.keeper);
    return 0;
}
