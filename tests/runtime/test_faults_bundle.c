/*
 * Every call of the system that writing and opening a bundle make is made to fail, one run each and
 * in several ways. Afterwards there is no bundle or a whole one, the error is a clear one, and the
 * next export works.
 */
#include "tests/support/faults.h"
#include "tests/support/small_model.h"
#include "tests/support/support.h"

static char folder[PATH_MAX];

static const char *at(const char *name)
{
    return support_path(folder, name);
}

static int setup(void **unused)
{
    ttt_devices *devices;
    (void)unused;
    support_new_folder(folder);
    ASSERT_OK(ttt_devices_open("cpu", NULL, &devices));
    small_model_write(devices, at("model"), "ttt_linear", 1);
    ttt_devices_free(devices);
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    support_remove_folder(folder);
    return 0;
}

static pjrt_status *write_bundle(void)
{
    ttt_export_options o = {.model = at("model"), .engine = {.span = 8}};
    return ttt_bundle_write(at("bundle"), &o);
}

static pjrt_status *read_bundle(void)
{
    ttt_bundle *bundle;
    pjrt_status *st = ttt_bundle_open(at("bundle"), &bundle);
    if (st == NULL)
        st = ttt_bundle_verify(bundle);
    ttt_bundle_free(bundle);
    return st;
}

/* The n-th call fails; true while there was one. */
static bool try_fault(int n, pjrt_status *(*run)(void), pjrt_status **st)
{
    fail_at = n;
    calls = 0;
    armed = true;
    *st = run();
    armed = false;
    return calls >= n;
}

static void writing(void **unused)
{
    (void)unused;
    for (int i = 0; i < N_FAULTS; i++) {
        pjrt_status *st;
        int lost = 0;
        fault_now = &faults[i];
        for (int n = 1; try_fault(n, write_bundle, &st); n += 1 + n / 40) {
            bool there = access(at("bundle"), F_OK) == 0;
            if (st == NULL)
                assert_true(there);
            else
                assert_true(strlen(pjrt_status_message(st)) > 0);
            if (there)
                ASSERT_OK(read_bundle()); /* whatever became of the call, what is there is whole */
            lost += st != NULL;
            pjrt_status_free(st);
            support_remove_folder(at("bundle"));
        }
        ASSERT_OK(st);
        ASSERT_OK(read_bundle());
        support_remove_folder(at("bundle"));
        assert_int_equal(support_count_files(folder), 1);
        print_message("%s: %d exports failed\n", fault_now->name, lost);
    }
}

/* What cannot be read is not taken for what it should be. */
static void reading(void **unused)
{
    (void)unused;
    ASSERT_OK(write_bundle());
    for (int i = 0; i < N_FAULTS; i++) {
        pjrt_status *st;
        fault_now = &faults[i];
        for (int n = 1; try_fault(n, read_bundle, &st); n++) {
            if (st != NULL)
                assert_true(strlen(pjrt_status_message(st)) > 0);
            pjrt_status_free(st);
        }
        ASSERT_OK(st);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writing),
        cmocka_unit_test(reading),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
