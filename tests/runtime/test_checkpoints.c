/* Checkpoints on disk: what is written is what is read, what is kept, who holds the lock. */
#include "runtime/base/files.h"
#include "runtime/checkpoint/checkpoint_manifest.h"
#include "runtime/checkpoint/checkpoints.h"
#include "tests/support/snapshot.h"
#include "tests/support/support.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[PATH_MAX];
static support_snapshot state;

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
    support_remove_folder(folder);
    return 0;
}

static ttt__checkpoint_dir *open_store(const ttt__checkpoint_dir_options *options)
{
    ttt__checkpoint_dir *store;
    ASSERT_OK(ttt__checkpoint_dir_open(folder, options, &store));
    return store;
}

static void write_step(ttt__checkpoint_dir *store, int64_t step)
{
    support_snapshot_step(&state, step);
    ASSERT_OK(ttt__checkpoint_dir_write(store, &state.snapshot));
    assert_null(ttt__checkpoint_dir_trouble(store));
}

/* The folder of a step. */
static const char *step_folder(int64_t step)
{
    char name[40];
    snprintf(name, sizeof name, "step-%08lld", (long long)step);
    return support_path(folder, name);
}

static void check_whole(const char *path, int64_t step)
{
    ttt__checkpoint *found;
    ASSERT_OK(ttt__checkpoint_open(path, &found));
    assert_int_equal(found->step, step);
    assert_true(support_snapshot_same(&state, found));
    assert_int_equal(found->config.hidden_size, 8);
    ttt__checkpoint_free(found);
}

static void check_latest(int64_t step)
{
    ttt__checkpoint *found;
    ASSERT_OK(ttt__checkpoint_latest(folder, NULL, NULL, NULL, &found));
    assert_non_null(found);
    assert_int_equal(found->step, step);
    assert_true(support_snapshot_same(&state, found));
    ttt__checkpoint_free(found);
}

/* The steps that are there, as text: "1 2 30". */
static void check_steps(const char *wanted)
{
    int64_t *steps;
    int count;
    char text[256] = "";
    ASSERT_OK(ttt__checkpoint_list(folder, &steps, &count));
    for (int i = 0; i < count; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%lld", i == 0 ? "" : " ",
                 (long long)steps[i]);
    free(steps);
    assert_string_equal(text, wanted);
}

/* ---- there and back ----------------------------------------------------------------------------
 */

static void there_and_back(void **unused)
{
    ttt__checkpoint *none;
    (void)unused;
    ASSERT_OK(ttt__checkpoint_latest(support_path(folder, "nothing"), NULL, NULL, NULL, &none));
    assert_null(none);
    ttt__checkpoint_dir *store = open_store(&(ttt__checkpoint_dir_options){0});
    ASSERT_OK(ttt__checkpoint_latest(folder, NULL, NULL, NULL, &none));
    assert_null(none);
    write_step(store, 0);
    write_step(store, 7);
    write_step(store, INT64_C(123456789012));
    check_steps("0 7 123456789012");
    check_whole(step_folder(0), 0);
    check_whole(step_folder(7), 7);
    check_latest(INT64_C(123456789012));
    assert_int_equal(support_count_files(folder), 3);
    assert_int_equal(support_count_files(step_folder(7)), 5);
    /* It is a model that anything that reads such folders can read, under any name. */
    assert_int_equal(rename(step_folder(7), support_path(folder, "best")), 0);
    check_whole(support_path(folder, "best"), 7);
    ttt_error error;
    ttt_tensors *model = ttt_tensors_open(support_path(folder, "best"), &error);
    assert_non_null(model);
    assert_true(ttt_params_match(state.params, model, &error));
    ttt_tensors_free(model);
    ttt__checkpoint_dir_free(store);
}

/* Facts of the training come back as they were, to the last bit. */
static void training_facts(void **unused)
{
    ttt__checkpoint *found;
    (void)unused;
    ttt__checkpoint_dir *store = open_store(&(ttt__checkpoint_dir_options){0});
    json_t *facts = json_pack("{s:I, s:f, s:[i,n,b], s:s}", "seed", (json_int_t)INT64_MAX, "rate",
                              0.1 + 0.2, "list", -1, 1, "text", "\xc3\xa9 \"\n\" }\n");
    support_snapshot_step(&state, 5);
    state.snapshot.training = facts;
    ASSERT_OK(ttt__checkpoint_dir_write(store, &state.snapshot));
    ASSERT_OK(ttt__checkpoint_open(step_folder(5), &found));
    assert_true(json_equal(found->training, facts));
    ttt__checkpoint_free(found);
    state.snapshot.training = json_object_get(facts, "list");
    state.snapshot.step = 6;
    ASSERT_FAILS(ttt__checkpoint_dir_write(store, &state.snapshot), INVALID_ARGUMENT, "object");
    json_decref(facts);
    ttt__checkpoint_dir_free(store);
}

static void shards(void **unused)
{
    (void)unused;
    ttt__checkpoint_dir *store = open_store(&(ttt__checkpoint_dir_options){.shard_bytes = 1000});
    write_step(store, 3);
    assert_true(support_count_files(step_folder(3)) > 10);
    size_t size;
    char *index = (char *)support_read_file(
        support_path(step_folder(3), "second.safetensors.index.json"), &size);
    ASSERT_CONTAINS(index, "\"second-00001-of-0000");
    ASSERT_CONTAINS(index, "total_size");
    free(index);
    check_latest(3);
    ttt__checkpoint_dir_free(store);
    /* With one file a tensor, and with layers in arrays of their own. */
    support_snapshot_free(&state);
    assert_true(support_snapshot_new(&state, TTT_SEPARATE));
    store = open_store(&(ttt__checkpoint_dir_options){.shard_bytes = 1});
    write_step(store, 4);
    assert_int_equal(support_count_files(step_folder(4)), 3 * (state.params->count + 1) + 2);
    check_latest(4);
    ttt__checkpoint_dir_free(store);
}

/* ---- what is kept ------------------------------------------------------------------------------
 */

static void keeps(void **unused)
{
    (void)unused;
    ttt__checkpoint_dir *store =
        open_store(&(ttt__checkpoint_dir_options){.keep = 2, .milestone = 4});
    for (int64_t step = 1; step <= 10; step++)
        write_step(store, step);
    check_steps("4 8 9 10");
    ttt__checkpoint_dir_free(store);
    store = open_store(&(ttt__checkpoint_dir_options){.keep = 1});
    write_step(store, 11);
    check_steps("11");
    ttt__checkpoint_dir_free(store);
    ttt__checkpoint_dir *none;
    ASSERT_FAILS(
        ttt__checkpoint_dir_open(folder, &(ttt__checkpoint_dir_options){.keep = -1}, &none),
        INVALID_ARGUMENT, "0 or more");
    assert_null(none);
}

/* After going back, later ones do not push out the new ones, and the new one is never pruned. */
static void going_back(void **unused)
{
    (void)unused;
    ttt__checkpoint_dir *store = open_store(&(ttt__checkpoint_dir_options){.keep = 1});
    write_step(store, 30);
    ttt__checkpoint_dir_free(store);
    store = open_store(&(ttt__checkpoint_dir_options){.keep = 2});
    write_step(store, 10);
    write_step(store, 20);
    write_step(store, 25);
    check_steps("20 25 30");
    write_step(store, 40);
    check_steps("30 40");
    ttt__checkpoint_dir_free(store);
}

/* The same step once more: whole, it is left alone; broken, it is replaced. */
static void same_step(void **unused)
{
    struct stat before, after;
    (void)unused;
    ttt__checkpoint_dir *store = open_store(&(ttt__checkpoint_dir_options){0});
    write_step(store, 5);
    assert_int_equal(stat(support_path(step_folder(5), "manifest.json"), &before), 0);
    write_step(store, 5);
    assert_int_equal(stat(support_path(step_folder(5), "manifest.json"), &after), 0);
    assert_int_equal(before.st_ino, after.st_ino);
    assert_int_equal(truncate(support_path(step_folder(5), "second.safetensors"), 100), 0);
    write_step(store, 5);
    check_whole(step_folder(5), 5);
    assert_int_equal(support_count_files(folder), 1);
    ttt__checkpoint_dir_free(store);
}

/* Leavings of a writer that was killed go; what is not ours stays. */
static void leavings(void **unused)
{
    (void)unused;
    static const char *const ours[] = {"step-00000005.writing", "step-00000003.removing"};
    static const char *const others[] = {"notes.txt",
                                         "step-5",
                                         "step-00000005.old",
                                         "step-x",
                                         "step-99999999999999999999",
                                         "step-000000005.writing"};
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) {
        const char *inside = support_path(folder, ours[i]);
        assert_int_equal(mkdir(inside, 0777), 0);
        assert_int_equal(mkdir(support_path(inside, "deep"), 0777), 0);
        support_write_file(support_path(support_path(inside, "deep"), "file"), "x", 1);
        assert_int_equal(symlink(folder, support_path(inside, "link")), 0);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        support_write_file(support_path(folder, others[i]), "x", 1);
    ttt__checkpoint_dir *store = open_store(&(ttt__checkpoint_dir_options){.keep = 1});
    assert_int_equal(support_count_files(folder), sizeof others / sizeof *others);
    check_steps("");
    write_step(store, 1);
    write_step(store, 2);
    assert_int_equal(support_count_files(folder), sizeof others / sizeof *others + 1);
    ttt__checkpoint_dir_free(store);
}

/* ---- what is broken ----------------------------------------------------------------------------
 */

static char heard[1024];

static void hear(void *ctx, const pjrt_status *why)
{
    ++*(int *)ctx;
    snprintf(heard, sizeof heard, "%s", pjrt_status_text(why));
}

static void write_manifest(const char *object)
{
    char *text = ttt__manifest_seal(object, strlen(object));
    assert_non_null(text);
    support_write_file(support_path(step_folder(2), "manifest.json"), text, strlen(text));
    free(text);
}

static void passed_over(const char *part)
{
    int count = 0;
    ttt__checkpoint *found;
    ASSERT_FAILS(ttt__checkpoint_open(step_folder(2), &found), DATA_LOSS, part);
    assert_null(found);
    ASSERT_OK(ttt__checkpoint_latest(folder, NULL, hear, &count, &found));
    assert_int_equal(found->step, 1);
    assert_int_equal(count, 1);
    ASSERT_CONTAINS(heard, part);
    ASSERT_CONTAINS(heard, "step-00000002");
    ttt__checkpoint_free(found);
}

static void broken_ones(void **unused)
{
    ttt__checkpoint *found;
    int count = 0;
    static const char *const files[] = {"config.json", "model.safetensors", "first.safetensors",
                                        "second.safetensors", "manifest.json"};
    (void)unused;
    ttt__checkpoint_dir *store = open_store(&(ttt__checkpoint_dir_options){0});
    write_step(store, 1);
    write_step(store, 2);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) { /* missing */
        const char *path = support_path(step_folder(2), files[i]);
        assert_int_equal(rename(path, support_path(folder, "kept")), 0);
        passed_over(files[i]);
        assert_int_equal(mkdir(path, 0777), 0); /* not a file */
        passed_over(files[i]);
        assert_int_equal(rmdir(path), 0);
        assert_int_equal(rename(support_path(folder, "kept"), path), 0);
    }
    support_write_file(support_path(step_folder(2), "notes.txt"), "mine", 4);
    check_whole(step_folder(2), 2); /* more files do no harm */
    /* Swapped moments, and the manifest of another step. */
    const char *first = support_path(step_folder(2), files[2]),
               *second = support_path(step_folder(2), files[3]);
    assert_int_equal(rename(first, support_path(folder, "kept")), 0);
    assert_int_equal(rename(second, first), 0);
    assert_int_equal(rename(support_path(folder, "kept"), second), 0);
    passed_over("first.safetensors: changed since it was written, in the MiB at offset 0");
    support_copy_file(support_path(step_folder(1), "manifest.json"),
                      support_path(step_folder(2), "manifest.json"));
    passed_over("it is of step 1");
    /* All broken. */
    support_remove_folder(step_folder(1));
    assert_int_equal(mkdir(step_folder(1), 0777), 0);
    ASSERT_FAILS(ttt__checkpoint_latest(folder, NULL, hear, &count, &found), DATA_LOSS,
                 "no checkpoint");
    assert_int_equal(count, 2);
    ttt__checkpoint_dir_free(store);
}

#define ENTRY(name, size, pieces)                                                    \
    "\"" name "\": {\"size\": " size ", \"xxh3_128\": \"0123456789abcdef0123456789a" \
    "bcdef\", \"xxh3_64_of_each_mib\": \"" pieces "\"}"
#define MANIFEST(version, step, files, training)                                 \
    "{\"format\": \"ttt-checkpoint\", \"version\": " version ", \"step\": " step \
    ", \"files\": {" files "}, \"training\": " training "}"

/* Manifests whose hash is right and whose words are not. */
static void hostile_manifests(void **unused)
{
    static const struct {
        const char *text, *part;
    } list[] = {
        {"{\"a\": 1}", "format"},
        {"{}", "manifest"},
        {"[1]", "manifest"},
        {"", "manifest"},
        {MANIFEST("0", "2", "", "{}"), "version"},
        {MANIFEST("\"1\"", "2", "", "{}"), "version"},
        {MANIFEST("1", "-2", "", "{}"), "step"},
        {MANIFEST("1", "2.0", "", "{}"), "step"},
        {MANIFEST("1", "99999999999999999999", "", "{}"), "too big"},
        {MANIFEST("1", "2", "", "[]"), "training"},
        {MANIFEST("1", "2", "", "{}"), "config.json"},
        {MANIFEST("1", "2", ENTRY("../x", "0", ""), "{}"), "plain"},
        {MANIFEST("1", "2", ENTRY("/etc/passwd", "0", ""), "{}"), "plain"},
        {MANIFEST("1", "2", ENTRY("..", "0", ""), "{}"), "plain"},
        {MANIFEST("1", "2", ENTRY("", "0", ""), "{}"), "plain"},
        {MANIFEST("1", "2", ENTRY("a", "-1", ""), "{}"), "size"},
        {MANIFEST("1", "2", ENTRY("a", "1", ""), "{}"), "one hash a MiB"},
        {MANIFEST("1", "2", ENTRY("a", "9223372036854775807", ""), "{}"), "one hash a MiB"},
        {MANIFEST("1", "2", ENTRY("a", "0", "0123456789abcdef"), "{}"), "one hash a MiB"},
        {MANIFEST("1", "2", ENTRY("a", "1", "0123456789abcdeg"), "{}"), "hexadecimal"},
        {MANIFEST("1", "2", ENTRY("a", "1", "0123456789ABCDEF"), "{}"), "hexadecimal"},
        {MANIFEST("1", "2", ENTRY("a", "0", "") "," ENTRY("a", "0", ""), "{}"), "duplicate"},
        {MANIFEST("1", "2", ENTRY("config.json", "0", ""), "{}"), "config.json"},
        {MANIFEST("1", "2", ENTRY("gone", "0", ""), "{}"), "gone"},
        {MANIFEST("1", "3", "", "{}"), "of step 3"},
    };
    ttt__checkpoint *found;
    (void)unused;
    ttt__checkpoint_dir *store = open_store(&(ttt__checkpoint_dir_options){0});
    write_step(store, 1);
    write_step(store, 2);
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        write_manifest(list[i].text);
        passed_over(list[i].part);
    }
    /* A newer version is no damage: nothing goes back behind it. */
    write_manifest(MANIFEST("2", "2", "", "{}"));
    ASSERT_FAILS(ttt__checkpoint_open(step_folder(2), &found), UNIMPLEMENTED, "newer");
    ASSERT_FAILS(ttt__checkpoint_latest(folder, NULL, NULL, NULL, &found), UNIMPLEMENTED, "newer");
    ttt__checkpoint_dir_free(store);
}

/* A file of more than a MiB: the offset is that of the MiB. */
static void offsets(void **unused)
{
    size_t size = 3 * TTT__CHECKPOINT_SHARD + 5;
    ttt__digest known, found;
    unsigned char *bytes = calloc(size, 1);
    const char *path = support_path(folder, "large");
    (void)unused;
    assert_non_null(bytes);
    support_write_file(path, bytes, size);
    ASSERT_OK(ttt__digest_file(path, NULL, &known));
    assert_int_equal(ttt__digest_chunks(known.size), 4);
    ASSERT_OK(ttt__digest_file(path, &known, &found));
    ttt__digest_free(&found);
    bytes[2 * TTT__CHECKPOINT_SHARD] = 1;
    support_write_file(path, bytes, size);
    ASSERT_FAILS(ttt__digest_file(path, &known, &found), DATA_LOSS, "offset 2097152");
    bytes[0] = 1;
    support_write_file(path, bytes, size);
    ASSERT_FAILS(ttt__digest_file(path, &known, &found), DATA_LOSS, "offset 0");
    support_write_file(path, bytes, size - 1);
    ASSERT_FAILS(ttt__digest_file(path, &known, &found), DATA_LOSS, "3145732 bytes, and there");
    ttt__digest_free(&known);
    free(bytes);
}

/* ---- the lock ----------------------------------------------------------------------------------
 */

/* A process that takes the lock, says so, and waits to be killed. */
static pid_t start_holder(const char *run)
{
    int told[2];
    char byte = 0;
    assert_int_equal(pipe(told), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        ttt__lock *lock;
        pjrt_status *st = ttt__lock_take(run, &lock);
        byte = st == NULL ? 'y' : 'n';
        if (write(told[1], &byte, 1) == 1)
            pause();
        _exit(0);
    }
    close(told[1]);
    assert_int_equal(read(told[0], &byte, 1), 1);
    close(told[0]);
    assert_int_equal(byte, 'y');
    return pid;
}

static void one_holder(void **unused)
{
    ttt__lock *lock, *second;
    char who[64];
    (void)unused;
    const char *run = support_path(folder, "new/run");
    pid_t pid = start_holder(run);
    snprintf(who, sizeof who, "in use by process %ld on ", (long)pid);
    ASSERT_FAILS(ttt__lock_take(run, &lock), FAILED_PRECONDITION, who);
    assert_null(lock);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    ASSERT_OK(ttt__lock_take(run, &lock));
    snprintf(who, sizeof who, "in use by process %ld on ", (long)getpid());
    ASSERT_FAILS(ttt__lock_take(run, &second), FAILED_PRECONDITION, who);
    ttt__lock_free(lock);
    ASSERT_OK(ttt__lock_take(run, &lock));
    ttt__lock_free(lock);
    support_write_file(support_path(folder, "file"), "", 0);
    ASSERT_FAILS(ttt__lock_take(support_path(folder, "file/run"), &lock), ALREADY_EXISTS,
                 "make the folder");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(there_and_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(training_facts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(shards, set_up, tear_down),
        cmocka_unit_test_setup_teardown(keeps, set_up, tear_down),
        cmocka_unit_test_setup_teardown(going_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(same_step, set_up, tear_down),
        cmocka_unit_test_setup_teardown(leavings, set_up, tear_down),
        cmocka_unit_test_setup_teardown(broken_ones, set_up, tear_down),
        cmocka_unit_test_setup_teardown(hostile_manifests, set_up, tear_down),
        cmocka_unit_test_setup_teardown(offsets, set_up, tear_down),
        cmocka_unit_test_setup_teardown(one_holder, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
