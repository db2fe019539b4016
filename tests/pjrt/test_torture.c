/*
 * Every allocation of the room is made to fail, one run of the scenario each. The build wraps the
 * allocating functions of this program, so that the n-th call can say no; plugins are not touched.
 */
#include "tests/support/scenario.h"
#include "tests/support/torture.h"

#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <xxhash.h>

TORTURE_WRAP(char *, realpath, (const char *path, char *out), (path, out), NULL)
TORTURE_WRAP(int, glob, (const char *p, int f, int (*e)(const char *, int), glob_t *g),
             (p, f, e, g), GLOB_NOSPACE)
TORTURE_WRAP(int, setenv, (const char *name, const char *value, int over), (name, value, over), -1)

static void arm(int n)
{
    allocations = 0;
    fail_at = n;
}

/* How many allocations there were since arm. */
static bool disarm(int n)
{
    bool hit = allocations >= n;
    fail_at = 0;
    return hit;
}

static support_fake fake;

static int open_fake(void **state)
{
    (void)state;
    support_fake_open(&fake);
    support_fake_load(&fake);
    return 0;
}

static int close_fake(void **state)
{
    (void)state;
    support_fake_remove(&fake);
    return 0;
}

static void torture(bool backwards, bool deferred)
{
    int n = 1;
    for (bool hit = true; hit; n++) {
        scenario s = {.fake = &fake, .backwards = backwards};
        fake.control->reset();
        fake.control->deferred = deferred;
        arm(n);
        pjrt_status *st = scenario_run(&s);
        hit = disarm(n);
        fake.control->complete();
        support_assert_balanced(fake.control);
        assert_int_equal(s.abandoned, 0);
        if (!hit) {
            ASSERT_OK(st);
            assert_null(s.why[1]);
        } else if (st == NULL) { /* a cache that could not be used costs a compile, no more */
            if (!scenario_tells(&s, NULL, PJRT_CODE_RESOURCE_EXHAUSTED))
                fail_msg("nobody told that allocation %d failed", n);
        } else {
            ASSERT_FAILS(st, RESOURCE_EXHAUSTED, "out of memory");
        }
        scenario_forget(&s);
    }
    print_message("%d allocations failed in turn\n", n - 2);
    assert_in_range(n, 300, 100000);
}

static void each_allocation_fails_once(void **state)
{
    (void)state;
    torture(false, false);
}

/* Transfers are under way when the memory runs out: the plugin must be through with the host's. */
static void each_allocation_fails_once_with_transfers_under_way(void **state)
{
    (void)state;
    torture(true, true);
}

/* A new file each time, because a plugin is loaded once. Its name makes it pass for libtpu, whose
 * environment is then set first. */
static void each_allocation_of_a_load_fails_once(void **state)
{
    (void)state;
    int n = 1;
    for (bool hit = true; hit; n++) {
        support_fake fresh;
        pjrt_plugin *plugin = (pjrt_plugin *)state;
        char path[PATH_MAX];
        support_fake_open(&fresh);
        snprintf(path, sizeof path, "%s", support_path(fresh.folder, "libtpu.so"));
        assert_int_equal(rename(fresh.path, path), 0);
        setenv("TTT_PLUGIN_TPU", path, 1);
        arm(n);
        pjrt_status *st = pjrt_plugin_load("tpu", &plugin);
        hit = disarm(n);
        if (st != NULL) {
            assert_null(plugin);
            assert_true(hit);
            ASSERT_FAILS(st, RESOURCE_EXHAUSTED, "out of memory");
        } else {
            assert_non_null(plugin);
        }
        support_assert_balanced(fresh.control);
        support_fake_remove(&fresh);
    }
    print_message("%d allocations of a load failed in turn\n", n - 2);
    assert_in_range(n, 15, 1000);
}

static void a_status_without_memory_is_still_a_status(void **state)
{
    (void)state;
    arm(1);
    pjrt_status *st = PJRT_FAIL(NOT_FOUND, "call", "message");
    disarm(1);
    assert_int_equal(pjrt_status_code(st), PJRT_CODE_RESOURCE_EXHAUSTED);
    ASSERT_CONTAINS(pjrt_status_text(st), "out of memory");
    pjrt_status_free(st); /* harmless, as often as one likes */
    pjrt_status *copy = pjrt_status_copy(st);
    assert_int_equal(pjrt_status_code(copy), PJRT_CODE_RESOURCE_EXHAUSTED);
    pjrt_status_free(copy);
    pjrt_status_free(st);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_status_without_memory_is_still_a_status),
        cmocka_unit_test(each_allocation_of_a_load_fails_once),
        cmocka_unit_test(each_allocation_fails_once),
        cmocka_unit_test(each_allocation_fails_once_with_transfers_under_way),
    };
    return cmocka_run_group_tests_name("pjrt torture", tests, open_fake, close_fake);
}
