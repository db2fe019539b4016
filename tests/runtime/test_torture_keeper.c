/*
 * Every allocation of the keeper of the keys is made to fail, one run each: nothing crashes,
 * nothing leaks (the sanitizers' word), and whoever is not answered because of it is sent away, so
 * that nobody waits for an answer that was never written.
 */
#include "tests/support/store_talk.h"
#include "tests/support/support.h"
#include "tests/support/torture.h"

enum { PROCESSES = 2 };

/* Answers of one connection: whole frames, or it is to be closed. */
static int answers(keeper_peer *peer)
{
    store_frame frame;
    size_t used, at = 0;
    int count = 0;
    if (peer == NULL)
        return 0;
    while (ttt__frame_read(peer->out.data + at, peer->out.size - at, STORE_FRAME, &frame, &used) >
           0) {
        at += used;
        count += frame.kind == STORE_REPLY;
    }
    return count;
}

/* How many requests of a small job were answered. */
static int job(ttt__coordinator *keeper)
{
    keeper_peer *p[PROCESSES];
    int answered = 0;
    for (uint32_t i = 0; i < PROCESSES; i++) {
        p[i] = ttt__coordinator_connect(keeper, 0);
        if (p[i] == NULL)
            continue;
        talk_hello(keeper, p[i], 1, 0);
        talk_prove(keeper, p[i], p[i], "a secret", i, PROCESSES, "host", 0);
    }
    for (int i = 0; i < PROCESSES; i++) {
        if (p[i] == NULL || p[i]->stage != PEER_MEMBER)
            continue;
        talk_request(keeper, p[i], STORE_GET, 1000, "key", "", 1);
        talk_request(keeper, p[i], STORE_PUT, 0, i == 0 ? "other" : "key", "value", 1);
        talk_request(keeper, p[i], STORE_GATHER, 1000, "all", "bytes", 1);
    }
    ttt__coordinator_tick(keeper, 5); /* sends heartbeats, */
    ttt__coordinator_tick(keeper, 6); /* and those that could not be written show */
    for (int i = 0; i < PROCESSES; i++)
        answered += answers(p[i]);
    for (int i = 0; i < PROCESSES; i++) {
        if (p[i] != NULL && (p[i]->out.failed || p[i]->in.failed))
            assert_true(p[i]->closing);
    }
    for (int i = 0; i < PROCESSES; i++) {
        if (p[i] != NULL)
            ttt__coordinator_disconnect(keeper, p[i], "it went", 7);
    }
    return answered;
}

static void every_allocation(void **state)
{
    (void)state;
    const keeper_options options = {"a secret", PROCESSES, NULL, 60, 15};
    int n = 1;
    for (bool hit = true; hit; n++) {
        ttt__coordinator *keeper;
        atomic_store(&allocations, 0);
        fail_at = n;
        pjrt_status *st = ttt__coordinator_new(&options, 0, &keeper);
        int answered = st == NULL ? job(keeper) : 0;
        fail_at = 0;
        hit = atomic_load(&allocations) >= n;
        assert_true(hit || answered == 3 * PROCESSES);
        assert_true((st == NULL) == (keeper != NULL));
        pjrt_status_free(st);
        ttt__coordinator_free(keeper);
    }
    assert_true(n > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_allocation)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
