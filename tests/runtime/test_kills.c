/*
 * kill -9 at any moment of saving and pruning: the latest checkpoint is whole, has the content of
 * its step, and is none before the last that was reported. And a disk that is full.
 *
 * 200 kills; 2,000 with TTT_LONG=1.
 */
#include "runtime/checkpoint/checkpoints.h"
#include "tests/support/snapshot.h"
#include "tests/support/support.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char folder[PATH_MAX];
static support_snapshot state;
static const ttt__checkpoint_dir_options options = {.keep = 2, .shard_bytes = 6000};

static int set_up(void **unused)
{
    (void)unused;
    support_new_folder(folder);
    return support_snapshot_new(&state, TTT_STACKED) ? 0 : -1;
}

static int tear_down(void **unused)
{
    (void)unused;
    support_snapshot_free(&state);
    umount2(folder, MNT_DETACH); /* where a test failed with its disk mounted */
    support_remove_folder(folder);
    return 0;
}

/* Goes on from the latest until it is killed; tells each step that is saved. */
static void train(int tell)
{
    ttt__checkpoint_dir *store;
    ttt__checkpoint *latest;
    pjrt_status *st = ttt__checkpoint_dir_open(folder, &options, &store);
    if (st == NULL)
        st = ttt__checkpoint_latest(folder, NULL, NULL, NULL, &latest);
    int64_t step = st != NULL || latest == NULL ? 0 : latest->step;
    while (st == NULL) {
        support_snapshot_step(&state, ++step);
        st = ttt__checkpoint_dir_write(store, &state.snapshot);
        if (st == NULL && (ttt__checkpoint_dir_trouble(store) != NULL ||
                           write(tell, &step, sizeof step) != sizeof step))
            _exit(3);
    }
    fprintf(stderr, "%s\n", pjrt_status_text(st));
    _exit(2);
}

/* A process that trains, and where it tells. */
typedef struct trainer {
    pid_t pid;
    int told;
} trainer;

static trainer start(void)
{
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(pipes[0]);
        train(pipes[1]);
    }
    close(pipes[1]);
    return (trainer){pid, pipes[0]};
}

/* Kills it; returns the last step that it told of, or `before`. */
static int64_t finish(trainer t, int64_t before, int *commits)
{
    int status;
    int64_t step, last = before;
    kill(t.pid, SIGKILL);
    while (read(t.told, &step, sizeof step) == (ssize_t)sizeof step) {
        last = step;
        ++*commits;
    }
    close(t.told);
    assert_int_equal(waitpid(t.pid, &status, 0), t.pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    return last;
}

/* Nanoseconds in which a process saves four checkpoints, here and today: kills come within that. */
static int64_t time_of_four(void)
{
    struct timespec from, to;
    int64_t step;
    int commits = 0;
    clock_gettime(CLOCK_MONOTONIC, &from);
    trainer t = start();
    for (int i = 0; i < 4; i++)
        assert_int_equal(read(t.told, &step, sizeof step), sizeof step);
    clock_gettime(CLOCK_MONOTONIC, &to);
    finish(t, 0, &commits);
    return (to.tv_sec - from.tv_sec) * INT64_C(1000000000) + to.tv_nsec - from.tv_nsec;
}

/* How many names in the folder end so. */
static int count_ends(const char *end)
{
    int count = 0;
    DIR *entries = opendir(folder);
    assert_non_null(entries);
    for (struct dirent *entry; (entry = readdir(entries)) != NULL;) {
        size_t length = strlen(entry->d_name), short_length = strlen(end);
        count += length > short_length && strcmp(entry->d_name + length - short_length, end) == 0;
    }
    closedir(entries);
    return count;
}

/* All that have a checkpoint's name are whole; returns the latest step, 0 when there is none. */
static int64_t check_all_whole(void)
{
    int64_t *steps, latest = 0;
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

static void kills(void **unused)
{
    int count = getenv("TTT_LONG") != NULL ? 2000 : 200, commits = 0, saving = 0, removing = 0;
    int64_t span = time_of_four(), latest = check_all_whole();
    (void)unused;
    srand(1);
    for (int i = 0; i < count; i++) {
        int64_t delay = (int64_t)((double)rand() / RAND_MAX * (double)span);
        trainer t = start();
        nanosleep(&(struct timespec){delay / 1000000000, delay % 1000000000}, NULL);
        int64_t told = finish(t, latest, &commits);
        saving += count_ends(".writing") > 0;
        removing += count_ends(".removing") > 0;
        latest = check_all_whole();
        if (latest < told)
            fail_msg("step %lld was saved, and the latest is %lld", (long long)told,
                     (long long)latest);
    }
    print_message("kills: %d runs, 0 failures; %d checkpoints saved, %d kills within a save, %d "
                  "within a removal\n",
                  count, commits, saving, removing);
    assert_true(commits > 0 && saving > 0); /* else nothing was tried */
}

/* ---- a full disk -------------------------------------------------------------------------------
 */

/* Saves until there is no room: that fails clearly, and what was saved stays. */
static void fill_up(void)
{
    ttt__checkpoint_dir *store;
    pjrt_status *st = NULL;
    int64_t step = 0;
    ASSERT_OK(ttt__checkpoint_dir_open(folder, &(ttt__checkpoint_dir_options){0}, &store));
    while (st == NULL && step < 1000) {
        support_snapshot_step(&state, ++step);
        st = ttt__checkpoint_dir_write(store, &state.snapshot);
    }
    ASSERT_CONTAINS(pjrt_status_text(st), "No space left");
    pjrt_status_free(st);
    assert_int_equal(check_all_whole(), step - 1);
    assert_int_equal(support_count_files(folder), step - 1);
    ttt__checkpoint_dir_free(store);
    /* With fewer kept there is room again. */
    char name[40];
    snprintf(name, sizeof name, "step-%08d", 1);
    support_remove_folder(support_path(folder, name));
    ASSERT_OK(ttt__checkpoint_dir_open(folder, &(ttt__checkpoint_dir_options){.keep = 2}, &store));
    ASSERT_OK(ttt__checkpoint_dir_write(store, &state.snapshot));
    assert_int_equal(check_all_whole(), step);
    assert_int_equal(support_count_files(folder), 2);
    ttt__checkpoint_dir_free(store);
    print_message("full disk: 1 run, 0 failures; full after %lld checkpoints\n",
                  (long long)step - 1);
}

static void full_disk(void **unused)
{
    (void)unused;
    for (int pages = 48; pages < 64; pages += 3) { /* so that it is full at several places */
        char size[32];
        snprintf(size, sizeof size, "size=%dk", pages * 4);
        if (mount("ttt-test", folder, "tmpfs", 0, size) != 0) {
            print_message("full disk: skipped, no right to mount\n");
            skip();
        }
        fill_up();
        assert_int_equal(umount2(folder, MNT_DETACH), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(kills, set_up, tear_down),
        cmocka_unit_test_setup_teardown(full_disk, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
