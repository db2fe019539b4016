/*
 * Every call of the C API that the room makes is made to fail, one run of the scenario each: the
 * status must name the call and carry the plugin's code and words, and nothing may be left behind.
 */
#include "tests/support/scenario.h"

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

static bool ends_with(const char *whole, const char *end)
{
    size_t n = strlen(whole), m = strlen(end);
    return n >= m && strcmp(whole + n - m, end) == 0;
}

/* Failures that nobody could act on: what was to be destroyed is gone, and whether a donation was
 * taken stays unknown. */
static bool is_swallowed(const char *entry)
{
    return ends_with(entry, "_Destroy") || ends_with(entry, "_IsDeleted");
}

static void the_scenario_passes(void **state)
{
    (void)state;
    for (int backwards = 0; backwards < 2; backwards++) {
        for (int deferred = 0; deferred < 2; deferred++) {
            scenario s = {.fake = &fake, .backwards = backwards};
            fake.control->reset();
            fake.control->deferred = deferred;
            ASSERT_OK(scenario_run(&s));
            assert_null(s.why[1]); /* the second cached compile was none */
            scenario_forget(&s);
            fake.control->complete();
            support_assert_balanced(fake.control);
            assert_int_equal(s.abandoned, 0);
        }
    }
}

static void sweep(bool backwards, bool newer)
{
    int n = 1;
    for (;; n++) {
        scenario s = {.fake = &fake, .backwards = backwards};
        fake.control->reset();
        fake.control->with_config = newer;
        fake.control->deferred = backwards;
        fake.control->fail_at = n;
        fake.control->fail_code = PJRT_Error_Code_OUT_OF_RANGE;
        fake.control->fail_message = "one call too many";
        pjrt_status *st = scenario_run(&s);
        const char *failed = fake.control->failed;
        fake.control->complete();
        support_assert_balanced(fake.control);
        if (failed == NULL) {
            ASSERT_OK(st);
            scenario_forget(&s);
            break;
        }
        if (is_swallowed(failed)) {
            ASSERT_OK(st);
        } else if (st == NULL) { /* only a cache may make up for it, and says so */
            assert_true(scenario_tells(&s, failed, PJRT_CODE_OUT_OF_RANGE));
        } else {
            assert_string_equal(pjrt_status_call(st), failed);
            ASSERT_FAILS(st, OUT_OF_RANGE, "one call too many");
        }
        scenario_forget(&s);
        assert_int_equal(s.abandoned, 0);
    }
    print_message("%d calls failed in turn\n", n - 1);
    assert_in_range(n, 400, 100000);
}

static void each_call_fails_once(void **state)
{
    (void)state;
    sweep(false, false);
}

static void each_call_fails_once_when_the_client_goes_first(void **state)
{
    (void)state;
    sweep(true, true);
}

/* And every event that is waited for may tell of a failure. */
static void each_event_fails_once(void **state)
{
    (void)state;
    int failures = 0;
    for (int n = 1; n < 200; n++) {
        scenario s = {.fake = &fake};
        fake.control->reset();
        fake.control->fail_event_at = n;
        fake.control->fail_code = PJRT_Error_Code_ABORTED;
        pjrt_status *st = scenario_run(&s);
        support_assert_balanced(fake.control);
        scenario_forget(&s);
        if (st == NULL)
            continue; /* nobody waited for that one, or there are not as many */
        failures++;
        ASSERT_FAILS(st, ABORTED, "scripted");
    }
    assert_in_range(failures, 20, 199);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_scenario_passes),
        cmocka_unit_test(each_call_fails_once),
        cmocka_unit_test(each_call_fails_once_when_the_client_goes_first),
        cmocka_unit_test(each_event_fails_once),
    };
    return cmocka_run_group_tests_name("pjrt sweep", tests, open_fake, close_fake);
}
