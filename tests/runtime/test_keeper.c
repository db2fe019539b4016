/* The keeper of the keys, without a network: who may join, who waits for what, who is missing. */
#include "tests/support/store_talk.h"
#include "tests/support/support.h"

#include <stdlib.h>
#include <string.h>

enum { PROCESSES = 3 };
static const char token[] = "a secret of this test";

static ttt__coordinator *new_keeper(void)
{
    ttt__coordinator *keeper;
    static const char *const hosts[] = {"host-a", "host-b", "host-c"};
    keeper_options options = {token, PROCESSES, hosts, 60, 15};
    assert_null(ttt__coordinator_new(&options, 0, &keeper));
    return keeper;
}

static keeper_peer *join(ttt__coordinator *keeper, const char *secret, uint32_t rank,
                         const char *host)
{
    keeper_peer *peer = ttt__coordinator_connect(keeper, 0);
    assert_non_null(peer);
    talk_hello(keeper, peer, 1, 0);
    talk_prove(keeper, peer, peer, secret, rank, PROCESSES, host, 0);
    return peer;
}

/* The last answer of that kind; the others are dropped. */
static bool answer(keeper_peer *peer, store_kind kind, store_frame *frame)
{
    static char kept[65536];
    bool found = false;
    store_frame next;
    size_t used, at = 0;
    while (ttt__frame_read(peer->out.data + at, peer->out.size - at, STORE_FRAME, &next, &used) >
           0) {
        at += used;
        if (next.kind != kind)
            continue;
        found = true;
        assert_true(next.size < sizeof kept);
        memcpy(kept, next.body, next.size);
        kept[next.size] = '\0';
        *frame = next;
        frame->body = kept;
    }
    assert_int_equal(at, peer->out.size);
    peer->out.size = 0;
    return found;
}

static void expect_reply(keeper_peer *peer, pjrt_code code, const char *text)
{
    store_frame frame = {0};
    uint32_t got;
    assert_true(answer(peer, STORE_REPLY, &frame));
    assert_true(ttt__take_u32(&frame, &got));
    assert_int_equal(got, code);
    assert_non_null(strstr(frame.body, text));
}

static void join_all(ttt__coordinator *keeper, keeper_peer *peers[PROCESSES])
{
    static const char *const names[] = {"host-a", "host-b", "host-c"};
    store_frame frame;
    for (uint32_t i = 0; i < PROCESSES; i++)
        peers[i] = join(keeper, token, i, names[i]);
    for (int i = 0; i < PROCESSES; i++) {
        assert_true(answer(peers[i], STORE_WELCOME, &frame));
        assert_memory_equal(frame.body, "host-a\0host-b\0host-c", 21);
    }
}

/* RFC 4231's second case, and the usual first of SHA-256. */
static void hashes_are_those_of_the_standards(void **state)
{
    (void)state;
    unsigned char out[TTT_PROOF];
    ttt__sha256("abc", 3, out);
    assert_memory_equal(out, "\xba\x78\x16\xbf\x8f\x01\xcf\xea\x41\x41\x40\xde\x5d\xae\x22\x23",
                        16);
    ttt__hmac("Jefe", 4, "what do ya want for nothing?", 28, out);
    assert_memory_equal(out, "\x5b\xdc\xc1\x46\xbf\x60\x75\x4e\x6a\x04\x24\x26\x08\x95\x75\xc7",
                        16);
    char key[131];
    memset(key, 0xaa, sizeof key);
    ttt__hmac(key, sizeof key, "Test Using Larger Than Block-Size Key - Hash Key First", 54, out);
    assert_memory_equal(out, "\x60\xe4\x31\x59\x1e\xe0\xb6\x7f\x0d\x8a\x26\xaa\xcb\xf5\xb7\x7f",
                        16);
}

static void a_wrong_token_is_refused(void **state)
{
    (void)state;
    ttt__coordinator *keeper = new_keeper();
    keeper_peer *peer = join(keeper, "another secret", 1, "host-b");
    assert_true(peer->closing);
    expect_reply(peer, PJRT_CODE_UNAUTHENTICATED, "TTT_TOKEN");
    ttt__coordinator_free(keeper);
}

/* What was overheard is worth nothing: the keeper asks something else each time. */
static void an_old_proof_is_refused(void **state)
{
    (void)state;
    ttt__coordinator *keeper = new_keeper();
    keeper_peer *first = join(keeper, token, 1, "host-b");
    keeper_peer *second = ttt__coordinator_connect(keeper, 0);
    talk_hello(keeper, second, 1, 0);
    assert_memory_equal(second->process_nonce, first->process_nonce, TTT_NONCE);
    talk_prove(keeper, second, first, token, 2, PROCESSES, "host-c", 0);
    assert_true(second->closing);
    assert_false(first->closing);
    ttt__coordinator_free(keeper);
}

static void a_rank_is_given_once(void **state)
{
    (void)state;
    ttt__coordinator *keeper = new_keeper();
    join(keeper, token, 1, "host-b");
    keeper_peer *peer = join(keeper, token, 1, "host-x");
    expect_reply(peer, PJRT_CODE_ALREADY_EXISTS,
                 "two of rank 1: process 1 (host-b), and one on host-x");
    expect_reply(join(keeper, token, 3, "host-d"), PJRT_CODE_INVALID_ARGUMENT, "process 3 of 3");
    ttt__coordinator_free(keeper);
}

static void strangers_must_keep_to_the_rules(void **state)
{
    (void)state;
    static const char *const wrong[] = {"\xff\xff\xff\x7f\x01\x00\x00\x00\x00",
                                        "\x00\x00\x00\x00\x01\x00\x00\x00\x00",
                                        "\x05\x00\x00\x00\x63\x00\x00\x00\x00",
                                        "\x05\x00\x00\x00\x06\x00\x00\x00\x00", "GET / HTTP/1.1"};
    ttt__coordinator *keeper = new_keeper();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        keeper_peer *peer = ttt__coordinator_connect(keeper, 0);
        ttt__bytes_add(&peer->in, wrong[i], i == 4 ? strlen(wrong[i]) : 9);
        ttt__coordinator_receive(keeper, peer, 0);
        assert_true(peer->closing);
    }
    keeper_peer *silent = ttt__coordinator_connect(keeper, 0);
    ttt__coordinator_tick(keeper, 9);
    assert_false(silent->closing);
    ttt__coordinator_tick(keeper, 11);
    assert_true(silent->closing);
    int more = 0;
    while (ttt__coordinator_connect(keeper, 11) != NULL && more < 10000)
        more++;
    assert_true(more < 1000);
    ttt__coordinator_free(keeper);
}

static void who_did_not_join_is_named(void **state)
{
    (void)state;
    ttt__coordinator *keeper = new_keeper();
    keeper_peer *first = join(keeper, token, 0, "host-a");
    join(keeper, token, 1, "host-b");
    ttt__coordinator_tick(keeper, 59);
    assert_false(ttt__coordinator_done(keeper));
    ttt__coordinator_tick(keeper, 61);
    expect_reply(first, PJRT_CODE_DEADLINE_EXCEEDED,
                 "process 2 (host-c) did not join within 60 s: there were 0, 1");
    assert_true(ttt__coordinator_done(keeper));
    ttt__coordinator_free(keeper);
}

static void keys_are_put_once_and_waited_for(void **state)
{
    (void)state;
    ttt__coordinator *keeper = new_keeper();
    keeper_peer *p[PROCESSES];
    join_all(keeper, p);
    talk_request(keeper, p[1], STORE_GET, 0, "key", "", 1);
    expect_reply(p[1], PJRT_CODE_NOT_FOUND, "");
    talk_request(keeper, p[1], STORE_GET, 5000, "key", "", 1);
    talk_request(keeper, p[2], STORE_GET, 5000, "other", "", 1);
    assert_int_equal(p[1]->out.size, 0);
    talk_request(keeper, p[0], STORE_PUT, 0, "key", "value", 2);
    expect_reply(p[0], PJRT_CODE_OK, "");
    expect_reply(p[1], PJRT_CODE_OK, "value");
    talk_request(keeper, p[2], STORE_PUT, 0, "key", "another", 2);
    expect_reply(p[2], PJRT_CODE_ALREADY_EXISTS, "");
    talk_request(keeper, p[2], STORE_GET, 0, "key", "", 2);
    expect_reply(p[2], PJRT_CODE_OK, "value");
    ttt__coordinator_tick(keeper, 7);
    expect_reply(p[2], PJRT_CODE_DEADLINE_EXCEEDED, "nobody put the key \"other\" within 5 s");
    ttt__coordinator_free(keeper);
}

static void who_does_not_come_is_named(void **state)
{
    (void)state;
    ttt__coordinator *keeper = new_keeper();
    keeper_peer *p[PROCESSES];
    join_all(keeper, p);
    for (int i = 0; i < PROCESSES; i++)
        talk_request(keeper, p[i], STORE_GATHER, 9000, "all", i == 0 ? "x" : i == 1 ? "y" : "z", 1);
    for (int i = 0; i < PROCESSES; i++)
        expect_reply(p[i], PJRT_CODE_OK, "xyz");
    talk_request(keeper, p[0], STORE_GATHER, 9000, "step 7", "", 1);
    talk_request(keeper, p[2], STORE_GATHER, 9000, "step 7", "", 2);
    for (int i = 0; i < PROCESSES; i++) /* they are alive */
        talk_request(keeper, p[i], STORE_GET, 0, "none", "", 9), p[i]->out.size = 0;
    ttt__coordinator_tick(keeper, 11);
    expect_reply(p[2], PJRT_CODE_DEADLINE_EXCEEDED,
                 "process 1 (host-b) did not come to \"step 7\" within 9 s: there were 0, 2");
    talk_request(keeper, p[0], STORE_GATHER, 9000, "sizes", "four", 11);
    talk_request(keeper, p[1], STORE_GATHER, 9000, "sizes", "seven77", 11);
    expect_reply(p[0], PJRT_CODE_INVALID_ARGUMENT, "process 1 (host-b) gave another number");
    ttt__coordinator_free(keeper);
}

/* A closed connection and silence: all hear it, and those who wait stop. */
static void who_is_lost_is_named(void **state)
{
    (void)state;
    for (int silent = 0; silent < 2; silent++) {
        ttt__coordinator *keeper = new_keeper();
        keeper_peer *p[PROCESSES];
        store_frame frame;
        join_all(keeper, p);
        talk_request(keeper, p[0], STORE_GET, 90000, "key", "", 14);
        talk_request(keeper, p[1], STORE_GATHER, 90000, "step", "", 14);
        if (silent)
            ttt__coordinator_tick(keeper, 16);
        else
            ttt__coordinator_disconnect(keeper, p[2], "its connection was closed", 15);
        const char *text = silent ? "process 2 (host-c) was lost: nothing was heard of it for 15 s"
                                  : "process 2 (host-c) was lost: its connection was closed";
        expect_reply(p[1], PJRT_CODE_UNAVAILABLE, text);
        assert_true(answer(p[0], STORE_LOST, &frame));
        assert_non_null(strstr(frame.body + 4, text));
        talk_request(keeper, p[0], STORE_GATHER, 1000, "later", "", 16);
        expect_reply(p[0], PJRT_CODE_UNAVAILABLE, text);
        ttt__coordinator_free(keeper);
    }
}

static void goodbyes_are_no_losses(void **state)
{
    (void)state;
    ttt__coordinator *keeper = new_keeper();
    keeper_peer *p[PROCESSES];
    store_frame frame;
    join_all(keeper, p);
    talk_request(keeper, p[0], STORE_GATHER, 90000, "step", "", 1);
    for (int i = PROCESSES - 1; i >= 0; i--) {
        store_bytes out = {0};
        assert_false(ttt__coordinator_done(keeper));
        ttt__frame_add(&out, STORE_BYE, 0, NULL, 0);
        talk_say(keeper, p[i], &out, 2);
        assert_true(p[i]->closing);
        if (i == PROCESSES - 1)
            expect_reply(p[0], PJRT_CODE_UNAVAILABLE, "process 2 (host-c) has left the job");
        ttt__coordinator_disconnect(keeper, p[i], "its connection was closed", 3);
        if (i > 0)
            assert_false(answer(p[0], STORE_LOST, &frame));
    }
    assert_true(ttt__coordinator_done(keeper));
    ttt__coordinator_free(keeper);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hashes_are_those_of_the_standards),
        cmocka_unit_test(a_wrong_token_is_refused),
        cmocka_unit_test(an_old_proof_is_refused),
        cmocka_unit_test(a_rank_is_given_once),
        cmocka_unit_test(strangers_must_keep_to_the_rules),
        cmocka_unit_test(who_did_not_join_is_named),
        cmocka_unit_test(keys_are_put_once_and_waited_for),
        cmocka_unit_test(who_does_not_come_is_named),
        cmocka_unit_test(who_is_lost_is_named),
        cmocka_unit_test(goodbyes_are_no_losses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
