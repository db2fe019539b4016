/*
 * Every allocation of checkpoints, locks and metrics is made to fail, one run each (of a save,
 * which makes thousands alike for its JSON, every seventh but with TTT_LONG=1): nothing
 * crashes, nothing leaks (the sanitizers' word), what failed says so, and no older checkpoint is
 * taken for want of memory. Allocations of jansson count where JSON is written; its parser does not
 * survive them, which is not ours to test.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/base/files.h"
#include "runtime/checkpoint/checkpoints.h"
#include "runtime/train/metrics.h"
#include "tests/support/snapshot.h"
#include "tests/support/torture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <xxhash.h>

static bool writing;

static void *json_malloc(size_t size)
{
    return writing ? malloc(size) : __real_malloc(size);
}

static char folder[PATH_MAX];
static support_snapshot state;
static const ttt__checkpoint_dir_options options = {.keep = 1, .shard_bytes = 6000};

static pjrt_status *save(void)
{
    ttt__checkpoint_dir *store;
    PJRT_TRY(ttt__checkpoint_dir_open(folder, &options, &store));
    pjrt_status *st = ttt__checkpoint_dir_write(store, &state.snapshot);
    if (st == NULL &&
        ttt__checkpoint_dir_trouble(store) != NULL) { /* saved, but not pruned: once more */
        fail_at = 0;
        st = ttt__checkpoint_dir_write(store, &state.snapshot);
        assert_null(ttt__checkpoint_dir_trouble(store));
    }
    ttt__checkpoint_dir_free(store);
    return st;
}

/* Each run saves a step of its own: what fails leaves none. */
static pjrt_status *save_next(void)
{
    support_snapshot_step(&state, state.snapshot.step + 1);
    writing = true;
    pjrt_status *st = save();
    writing = false;
    if (st != NULL)
        state.snapshot.step--;
    return st;
}

static pjrt_status *load_latest(void)
{
    ttt__checkpoint *found;
    pjrt_status *st = ttt__checkpoint_latest(folder, NULL, NULL, NULL, &found);
    if (st == NULL) {
        assert_non_null(found);
        assert_int_equal(found->step, state.snapshot.step);
    }
    ttt__checkpoint_free(found);
    return st;
}

static pjrt_status *take_lock(void)
{
    ttt__lock *lock;
    pjrt_status *st = ttt__lock_take(folder, &lock);
    ttt__lock_free(lock);
    return st;
}

static pjrt_status *log_some(void)
{
    ttt__metrics *metrics;
    float list[] = {1, 2};
    ttt__figure figures[] = {{.name = "loss", .value = 1},
                             {.name = "list", .list = list, .count = 2}};
    PJRT_TRY(ttt__metrics_open(folder, 0, &metrics));
    writing = true;
    pjrt_status *st = ttt__metrics_put(metrics, "train", 1, figures, 2);
    writing = false;
    ttt__metrics_free(metrics);
    return st;
}

static pjrt_status *log_anew(void)
{
    char path[PATH_MAX + 16];
    int number = fail_at; /* taking away the last run's files is not what is tried */
    fail_at = 0;
    snprintf(path, sizeof path, "%s/tensorboard", folder);
    assert_null(ttt__tree_remove(path));
    fail_at = number;
    return log_some();
}

static void torture(const char *what, pjrt_status *(*run)(void), int stride)
{
    int failed = 0, runs = 0;
    bool hit = true;
    for (int n = 1; hit; n += stride, runs++) {
        assert_true(n < 100000); /* each run makes as many as the one before */
        allocations = 0;
        fail_at = n;
        pjrt_status *st = run();
        hit = allocations >= n;
        fail_at = 0;
        if (st != NULL)
            assert_true(hit && pjrt_status_text(st)[0] != '\0');
        failed += st != NULL;
        pjrt_status_free(st);
    }
    print_message("%s: %d runs, %d without memory for it\n", what, runs, failed);
    assert_true(failed > 0);
}

static void everything(void **unused)
{
    (void)unused;
    /* Thousands of syncs, none of which matters here. */
    snprintf(folder, sizeof folder, "%s/ttt_torture.XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    assert_non_null(mkdtemp(folder));
    json_set_alloc_funcs(json_malloc, free);
    assert_true(support_snapshot_new(&state, TTT_STACKED));
    torture("saving", save_next, getenv("TTT_LONG") != NULL ? 1 : 7);
    torture("loading", load_latest, 1);
    torture("locking", take_lock, 1);
    torture("logging", log_anew, 1);
    support_snapshot_free(&state);
    pjrt_status *st = ttt__tree_remove(folder);
    assert_null(st);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(everything)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
