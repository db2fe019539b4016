/*
 * Every call of the system that saving, pruning, opening, locking and logging make is made to fail,
 * one run each and in several ways. Afterwards older checkpoints are whole, the error is a clear
 * one, nothing temporary is there after the next open, and the next save works.
 */
#include "runtime/base/files.h"
#include "runtime/checkpoint/checkpoints.h"
#include "runtime/train/metrics.h"
#include "tests/support/faults.h"
#include "tests/support/snapshot.h"
#include "tests/support/support.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- a run that goes on ------------------------------------------------------------------------
 */

static char folder[PATH_MAX];
static support_snapshot state;
static const ttt__checkpoint_dir_options keep_two = {.keep = 2, .shard_bytes = 6000};
static int64_t last; /* step of the last checkpoint that was written without faults */

static int set_up(void **unused)
{
    (void)unused;
    last = 0;
    support_new_folder(folder);
    return support_snapshot_new(&state, TTT_STACKED) ? 0 : -1;
}

static int tear_down(void **unused)
{
    (void)unused;
    support_snapshot_free(&state);
    support_remove_folder(folder);
    return 0;
}

static pjrt_status *open_and_write(int64_t step)
{
    ttt__checkpoint_dir *store;
    support_snapshot_step(&state, step);
    PJRT_TRY(ttt__checkpoint_dir_open(folder, &keep_two, &store));
    pjrt_status *st = ttt__checkpoint_dir_write(store, &state.snapshot);
    ttt__checkpoint_dir_free(store);
    return st;
}

/* All that have a checkpoint's name are whole. Returns the latest step. */
static int64_t check_all_whole(void)
{
    int64_t *steps, latest = -1;
    int count;
    ASSERT_OK(ttt__checkpoint_list(folder, &steps, &count));
    for (int i = 0; i < count; i++) {
        char name[40];
        ttt__checkpoint *found;
        snprintf(name, sizeof name, "step-%08lld", (long long)steps[i]);
        ASSERT_OK(ttt__checkpoint_open(support_path(folder, name), &found));
        assert_true(support_snapshot_same(&state, found));
        ttt__checkpoint_free(found);
        latest = steps[i];
    }
    free(steps);
    return latest;
}

/* Says what was done wrongly with which fault. */
static void check(bool right, const char *what)
{
    if (!right)
        fail_msg("call %d fails with %s: %s", fail_at, fault_now->name, what);
}

/* What is only interrupted or cut short succeeds; what fails says why. */
static void check_failure(const pjrt_status *st)
{
    const char *text = pjrt_status_message(st);
    check(fault_now->error != EINTR && !fault_now->partly, text);
    check(text[0] != '\0' && strchr(text, '\n') == NULL, "not a clear message");
    if (fault_now->error == ENOSPC && fault_now->forever)
        ASSERT_CONTAINS(text, "No space left");
}

/* Runs `work` with each of its calls failing, in each way, until it makes no more calls. `after`
 * looks at what it left. */
static void for_all_faults(const char *what, pjrt_status *(*work)(void), void (*before)(void),
                           void (*after)(pjrt_status *st))
{
    int runs = 0, failed = 0;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        bool more = true;
        for (int n = 1; more; n++) {
            before();
            calls = 0;
            fail_at = n;
            fault_now = &faults[i];
            armed = true;
            pjrt_status *st = work();
            armed = false;
            more = calls >= n;
            failed += st != NULL;
            runs++;
            check(more || st == NULL, "a failure without a fault");
            if (st != NULL)
                check_failure(st);
            after(st);
            pjrt_status_free(st);
        }
    }
    print_message("%s: %d runs with a fault, %d of them failed, 0 did harm\n", what, runs, failed);
}

/* ---- saving and pruning ------------------------------------------------------------------------
 */

static void two_are_there(void)
{
    while (last < 2)
        ASSERT_OK(open_and_write(++last));
}

static pjrt_status *save_next(void)
{
    return open_and_write(last + 1);
}

static void saved_or_not(pjrt_status *st)
{
    int64_t latest = check_all_whole();
    check(st != NULL || latest == last + 1, "a checkpoint that was reported is not there");
    /* A disk that refuses all that comes after cannot be tidied up either. */
    check(st == NULL || latest == last || (fault_now->forever && latest == last + 1),
          "a checkpoint that failed is there");
    ASSERT_OK(open_and_write(last + 1)); /* again, or for the first time */
    last++;
    assert_int_equal(check_all_whole(), last);
    assert_int_equal(support_count_files(folder), 2);
}

static void saving(void **unused)
{
    (void)unused;
    for_all_faults("saving and pruning", save_next, two_are_there, saved_or_not);
}

/* ---- cleaning up -------------------------------------------------------------------------------
 */

static void plant(const char *name)
{
    const char *path = support_path(folder, name);
    struct stat info;
    if (stat(path, &info) != 0)
        assert_int_equal(mkdir(path, 0777), 0);
    support_write_file(support_path(path, "model.safetensors"), "half", 4);
}

static void leave(void)
{
    two_are_there();
    plant("step-00000003.writing");
    plant("step-00000001.removing");
}

static pjrt_status *open_only(void)
{
    ttt__checkpoint_dir *store;
    pjrt_status *st = ttt__checkpoint_dir_open(folder, &keep_two, &store);
    ttt__checkpoint_dir_free(store);
    return st;
}

static void cleaned(pjrt_status *st)
{
    if (st != NULL)
        ASSERT_OK(open_only());
    assert_int_equal(support_count_files(folder), 2);
    assert_int_equal(check_all_whole(), 2);
}

static void cleaning(void **unused)
{
    (void)unused;
    for_all_faults("opening after a kill", open_only, leave, cleaned);
}

/* ---- reading -----------------------------------------------------------------------------------
 */

static ttt__checkpoint *loaded;

static pjrt_status *load_latest(void)
{
    return ttt__checkpoint_latest(folder, NULL, NULL, NULL, &loaded);
}

/* Never a wrong one; an older one only when the newer cannot be read, never for want of room. */
static void loaded_right(pjrt_status *st)
{
    assert_true((st == NULL) == (loaded != NULL));
    if (loaded != NULL)
        assert_true(support_snapshot_same(&state, loaded));
    ttt__checkpoint_free(loaded);
    loaded = NULL;
    assert_int_equal(check_all_whole(), 2);
}

static void loading(void **unused)
{
    (void)unused;
    for_all_faults("loading", load_latest, two_are_there, loaded_right);
}

/* ---- locks and metrics -------------------------------------------------------------------------
 */

static ttt__lock *lock;

static void nothing(void)
{
}

static pjrt_status *take_lock(void)
{
    return ttt__lock_take(support_path(folder, "run"), &lock);
}

static void lock_is_free(pjrt_status *st)
{
    assert_true((st == NULL) == (lock != NULL));
    ttt__lock_free(lock);
    ASSERT_OK(take_lock());
    ttt__lock_free(lock);
}

static void locking(void **unused)
{
    (void)unused;
    for_all_faults("locking", take_lock, nothing, lock_is_free);
}

/* Going on from step 1, which drops a line, and two new ones. */
static pjrt_status *log_some(void)
{
    ttt__metrics *metrics;
    ttt__figure figure = {.name = "loss", .value = 1};
    PJRT_TRY(ttt__metrics_open(folder, 1, &metrics));
    pjrt_status *st = ttt__metrics_put(metrics, "train", 2, &figure, 1);
    if (st == NULL)
        st = ttt__metrics_put(metrics, "train", 3, &figure, 1);
    if (st == NULL)
        st = ttt__metrics_sync(metrics);
    ttt__metrics_free(metrics);
    return st;
}

static void lines_are_there(void)
{
    static const char text[] = "{\"kind\": \"x\", \"step\": 1}\n{\"kind\": \"x\", \"step\": 9}\n{";
    support_write_file(support_path(folder, "metrics.jsonl"), text, sizeof text - 1);
    support_remove_folder(support_path(folder, "tensorboard"));
}

/* Whole lines, of which the first is never lost. */
static void lines_are_whole(pjrt_status *st)
{
    size_t size;
    if (st != NULL)
        ASSERT_OK(log_some());
    char *text = (char *)support_read_file(support_path(folder, "metrics.jsonl"), &size);
    assert_string_equal(text, "{\"kind\": \"x\", \"step\": 1}\n"
                              "{\"kind\": \"train\", \"step\": 2, \"loss\": 1.0}\n"
                              "{\"kind\": \"train\", \"step\": 3, \"loss\": 1.0}\n");
    free(text);
    assert_int_equal(support_count_files(folder), 2);
}

static void logging(void **unused)
{
    (void)unused;
    for_all_faults("logging", log_some, lines_are_there, lines_are_whole);
}

int main(void)
{
    if (access("/dev/shm", W_OK) == 0) /* thousands of syncs, none of which matters here */
        setenv("TMPDIR", "/dev/shm", 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(saving, set_up, tear_down),
        cmocka_unit_test_setup_teardown(cleaning, set_up, tear_down),
        cmocka_unit_test_setup_teardown(loading, set_up, tear_down),
        cmocka_unit_test_setup_teardown(locking, set_up, tear_down),
        cmocka_unit_test_setup_teardown(logging, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
