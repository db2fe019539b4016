/*
 * Files that were cut or changed after they were written: every cut and every flipped bit is found,
 * with the file's name and, for a flip, where it is; the checkpoint before is taken instead.
 *
 * Some hundreds of each; with TTT_LONG=1 1,000 cuts, and 10,000 flips.
 */
#include "runtime/checkpoint/checkpoints.h"
#include "tests/support/snapshot.h"
#include "tests/support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char folder[PATH_MAX];
static support_snapshot state;

enum { FILES = 8 };
static const char *const names[FILES] = {"manifest.json",
                                         "config.json",
                                         "model.safetensors.index.json",
                                         "model-00001-of-00002.safetensors",
                                         "model-00002-of-00002.safetensors",
                                         "first-00001-of-00002.safetensors",
                                         "second-00002-of-00002.safetensors",
                                         "second.safetensors.index.json"};
static unsigned char *bytes[FILES];
static size_t sizes[FILES];

static const char *path_of(int file)
{
    return support_path(support_path(folder, "step-00000002"), names[file]);
}

static int set_up(void **unused)
{
    ttt__checkpoint_dir *store;
    (void)unused;
    if (access("/dev/shm", W_OK) == 0)
        setenv("TMPDIR", "/dev/shm", 0);
    support_new_folder(folder);
    assert_true(support_snapshot_new(&state, TTT_STACKED));
    ASSERT_OK(ttt__checkpoint_dir_open(folder, &(ttt__checkpoint_dir_options){.shard_bytes = 6000},
                                       &store));
    for (int64_t step = 1; step <= 2; step++) {
        support_snapshot_step(&state, step);
        ASSERT_OK(ttt__checkpoint_dir_write(store, &state.snapshot));
    }
    ttt__checkpoint_dir_free(store);
    for (int i = 0; i < FILES; i++)
        bytes[i] = support_read_file(path_of(i), &sizes[i]);
    return 0;
}

static int tear_down(void **unused)
{
    (void)unused;
    for (int i = 0; i < FILES; i++)
        free(bytes[i]);
    support_snapshot_free(&state);
    support_remove_folder(folder);
    return 0;
}

static int told;
static char why[1024];

static void hear(void *ctx, const pjrt_status *st)
{
    (void)ctx;
    told++;
    snprintf(why, sizeof why, "%s", pjrt_status_text(st));
}

/* The damaged step 2 is found out, by file, and step 1 taken. */
static void check_found_out(int file, bool offset, const char *how, size_t at)
{
    ttt__checkpoint *found;
    told = 0;
    ASSERT_OK(ttt__checkpoint_latest(folder, NULL, hear, NULL, &found));
    if (found->step != 1 || told != 1)
        fail_msg("%s %s at %zu: not noticed", names[file], how, at);
    assert_true(support_snapshot_same(&state, found));
    ttt__checkpoint_free(found);
    ASSERT_CONTAINS(why, names[file]);
    if (offset && file != 0) /* the manifest is read as a whole */
        ASSERT_CONTAINS(why, "at offset 0");
}

static void cut(int file, size_t size)
{
    support_write_file(path_of(file), bytes[file], size);
    check_found_out(file, false, "cut", size);
}

static void restore(int file)
{
    support_write_file(path_of(file), bytes[file], sizes[file]);
}

static bool is_long(void)
{
    return getenv("TTT_LONG") != NULL;
}

static size_t any(size_t below)
{
    return ((size_t)rand() << 16 ^ (size_t)rand()) % below;
}

static void truncation(void **unused)
{
    int runs = 0;
    (void)unused;
    srand(1);
    for (int file = 0; file < FILES; file++) {
        /* Every byte of the manifest, of the configuration and of a header. */
        size_t region = file < 2 || sizes[file] < 1500 ? sizes[file] : 1500;
        for (size_t size = 0; size < region; size += is_long() ? 1 : 7, runs++)
            cut(file, size);
        restore(file);
    }
    for (int i = 0; i < (is_long() ? 1000 : 200); i++, runs++) {
        int file = rand() % FILES;
        cut(file, any(sizes[file]));
        restore(file);
    }
    for (int file = 0; file < FILES; file++, runs++) { /* the other way: a byte too many */
        support_write_file(path_of(file), bytes[file], sizes[file] + 1);
        check_found_out(file, false, "longer", sizes[file]);
        restore(file);
    }
    print_message("truncation: %d runs, 0 failures\n", runs);
}

static void flips(void **unused)
{
    int runs = is_long() ? 10000 : 500;
    (void)unused;
    srand(2);
    for (int i = 0; i < runs; i++) {
        int file = rand() % FILES;
        size_t at = any(sizes[file]);
        unsigned char bit = (unsigned char)(1 << rand() % 8);
        bytes[file][at] ^= bit;
        restore(file);
        check_found_out(file, true, "changed", at);
        bytes[file][at] ^= bit;
        restore(file);
    }
    print_message("flipped bits: %d runs, 0 failures\n", runs);
}

/* Any two files of a checkpoint swapped, and any file of the other one. */
static void mixed_up(void **unused)
{
    int runs = 0;
    (void)unused;
    for (int a = 0; a < FILES; a++) {
        for (int b = a + 1; b < FILES; b++, runs++) {
            support_write_file(path_of(a), bytes[b], sizes[b]);
            support_write_file(path_of(b), bytes[a], sizes[a]);
            ttt__checkpoint *found;
            told = 0;
            ASSERT_OK(ttt__checkpoint_latest(folder, NULL, hear, NULL, &found));
            assert_int_equal(found->step, 1);
            assert_true(strstr(why, names[a]) != NULL || strstr(why, names[b]) != NULL);
            ttt__checkpoint_free(found);
            restore(a);
            restore(b);
        }
    }
    for (int file = 0; file < FILES; file++) {
        if (file == 1 || strstr(names[file], "index") != NULL) /* the same in both */
            continue;
        support_copy_file(support_path(support_path(folder, "step-00000001"), names[file]),
                          path_of(file));
        check_found_out(file, true, "of another step", 0);
        restore(file);
        runs++;
    }
    print_message("mixed up: %d runs, 0 failures\n", runs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(truncation, set_up, tear_down),
        cmocka_unit_test_setup_teardown(flips, set_up, tear_down),
        cmocka_unit_test_setup_teardown(mixed_up, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
