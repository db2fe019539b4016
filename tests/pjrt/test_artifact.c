/* Executables on disk: round trips, every way a file can be damaged, stale stamps, the cache. */
#include "pjrt/artifact.h"
#include "tests/support/support.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

static support_fake fake;
static char folder[PATH_MAX];
static const char text[] =
    "module { func.func @main(%a: tensor<4xf32> {jax.buffer_donor = true}) }";
static const pjrt_program any = {0};

static int start(void **state)
{
    (void)state;
    if (fake.control == NULL)
        support_fake_open(&fake);
    support_new_folder(folder);
    support_fake_client(&fake);
    fake.control->program.takes[0] = true;
    return 0;
}

static int finish(void **state)
{
    (void)state;
    support_remove_folder(folder);
    support_fake_finish(&fake);
    return 0;
}

static int close_fake(void **state)
{
    (void)state;
    support_fake_remove(&fake);
    return 0;
}

/* Compiles and saves; the path. */
static const char *save(const char *name)
{
    pjrt_executable *exe;
    const char *path = support_path(folder, name);
    ASSERT_OK(pjrt_compile(fake.client, pjrt_program_text(text), NULL, &exe));
    ASSERT_OK(pjrt_executable_save(exe, path));
    pjrt_executable_free(exe);
    return path;
}

/* ---- round trips ---- */

static void what_is_saved_is_loaded(void **state)
{
    (void)state;
    pjrt_executable *exe;
    pjrt_buffer *out;
    int64_t taken, refused;
    const char *path = save("a.exe");
    assert_int_equal(support_count_files(folder), 1);
    ASSERT_OK(pjrt_executable_load(fake.client, path, pjrt_program_text(text), NULL, &exe));
    assert_int_equal(fake.control->calls("PJRT_Client_Compile"), 1);
    pjrt_buffer *in = support_upload4(pjrt_client_device(fake.client, 0), 1, 2, 3, 4);
    ASSERT_OK(pjrt_execute(exe, &in, 1, NULL, &out, 1, NULL));
    assert_true(pjrt_buffer_is_dead(in)); /* which arguments it donates is kept as well */
    pjrt_executable_donations(exe, &taken, &refused);
    assert_int_equal(taken, 1);
    pjrt_buffer_free(in);
    pjrt_buffer_free(out);
    /* Saved again it is the same file, byte for byte. */
    const char *again = support_path(folder, "b.exe");
    ASSERT_OK(pjrt_executable_save(exe, again));
    size_t size, size_again;
    unsigned char *bytes = support_read_file(path, &size);
    unsigned char *bytes_again = support_read_file(again, &size_again);
    assert_int_equal(size, size_again);
    assert_memory_equal(bytes, bytes_again, size);
    free(bytes);
    free(bytes_again);
    pjrt_executable_free(exe);
    ASSERT_OK(pjrt_executable_load(fake.client, path, any, NULL, &exe)); /* whatever it holds */
    pjrt_executable_free(exe);
}

typedef struct fields {
    char text[1024];
    int count;
} fields;

static void note_field(const char *field, const char *value, void *user)
{
    fields *f = user;
    size_t n = strlen(f->text);
    snprintf(f->text + n, sizeof f->text - n, "%s=%s;", field, value);
    f->count++;
}

static void the_stamp_can_be_read(void **state)
{
    (void)state;
    fields f = {0};
    const char *hash;
    ASSERT_OK(pjrt_stamp_read(save("a.exe"), note_field, &f));
    assert_int_equal(f.count, 8);
    ASSERT_OK(pjrt_plugin_hash(fake.plugin, &hash));
    ASSERT_CONTAINS(f.text, hash);
    ASSERT_CONTAINS(f.text, "platform=fake;platform_version=fake 1.0;device_kind=fake chip;");
    ASSERT_CONTAINS(f.text, "donated_arguments=1;");
    ASSERT_FAILS(pjrt_stamp_read(support_path(folder, "none"), note_field, &f), NOT_FOUND, "none");
    ASSERT_FAILS(pjrt_stamp_read(folder, note_field, &f), UNAVAILABLE, "");
}

/* Compiled ahead of time, for a machine whose platform version nobody can know here. */
static void ahead_of_time_runs_elsewhere(void **state)
{
    (void)state;
    pjrt_topology *topology;
    pjrt_executable *exe;
    const char *path = support_path(folder, "a.exe");
    ASSERT_OK(pjrt_topology_create(fake.plugin, "chip", NULL, 0, &topology));
    ASSERT_OK(pjrt_compile_ahead(topology, pjrt_program_text(text), NULL, &exe));
    ASSERT_OK(pjrt_executable_save(exe, path));
    pjrt_executable_free(exe);
    pjrt_topology_free(topology);
    fields f = {0};
    ASSERT_OK(pjrt_stamp_read(path, note_field, &f));
    ASSERT_CONTAINS(f.text, ";platform_version=;");
    ASSERT_OK(pjrt_executable_load(fake.client, path, pjrt_program_text(text), NULL, &exe));
    pjrt_executable_free(exe);
}

/* ---- damage ---- */

static void every_flipped_byte_is_noticed(void **state)
{
    (void)state;
    size_t size;
    const char *path = save("a.exe"), *damaged = support_path(folder, "d.exe");
    unsigned char *bytes = support_read_file(path, &size);
    for (size_t i = 0; i < size; i++) {
        pjrt_executable *exe = (pjrt_executable *)state;
        bytes[i] ^= (unsigned char)(1 << (i % 8));
        support_write_file(damaged, bytes, size);
        ASSERT_FAILS(pjrt_executable_load(fake.client, damaged, any, NULL, &exe), DATA_LOSS, "");
        assert_null(exe);
        bytes[i] ^= (unsigned char)(1 << (i % 8));
    }
    free(bytes);
    assert_int_equal(fake.control->calls("PJRT_Executable_DeserializeAndLoad"), 0);
}

static void every_cut_and_every_addition_is_noticed(void **state)
{
    (void)state;
    size_t size;
    const char *path = save("a.exe"), *damaged = support_path(folder, "d.exe");
    unsigned char *bytes = support_read_file(path, &size);
    for (size_t n = 0; n <= size + 1; n++) {
        pjrt_executable *exe;
        if (n == size)
            continue;
        support_write_file(damaged, bytes, n); /* one more than the file: its final NUL */
        ASSERT_FAILS(pjrt_executable_load(fake.client, damaged, any, NULL, &exe), DATA_LOSS, "");
        assert_null(exe);
    }
    free(bytes);
    assert_int_equal(fake.control->calls("PJRT_Executable_DeserializeAndLoad"), 0);
}

/* Signs the head again, as somebody would who edits a stamp; the payload is left as it is. */
static void sign(unsigned char *bytes, size_t stamp_size)
{
    XXH128_hash_t hash = XXH3_128bits(bytes, 20 + stamp_size);
    XXH128_canonicalFromHash((XXH128_canonical_t *)(bytes + 20 + stamp_size), hash);
}

static size_t stamp_size_of(const unsigned char *bytes)
{
    return bytes[8] | (size_t)bytes[9] << 8 | (size_t)bytes[10] << 16;
}

/* A stamp that is whole but says something else: refused, and the field is named. */
static void a_stale_stamp_is_refused_by_name(void **state)
{
    (void)state;
    static const char *const names[] = {"plugin_hash",      "api_version", "platform",
                                        "platform_version", "device_kind", "options_hash",
                                        "program_hash"};
    size_t size;
    const char *path = save("a.exe"), *stale = support_path(folder, "s.exe");
    unsigned char *bytes = support_read_file(path, &size);
    size_t stamp_size = stamp_size_of(bytes);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        pjrt_executable *exe;
        pjrt_artifact artifact;
        pjrt_artifact_field field;
        size_t offset = 0;
        ASSERT_OK(pjrt__artifact_parse(bytes, size, &artifact));
        do
            assert_true(pjrt__artifact_next(&artifact, &offset, &field));
        while (field.name_size != strlen(names[i]) ||
               memcmp(field.name, names[i], field.name_size) != 0);
        unsigned char *value = bytes + (field.value - (const char *)bytes);
        value[0] ^= 1;
        sign(bytes, stamp_size);
        support_write_file(stale, bytes, size);
        char part[64];
        snprintf(part, sizeof part, "another %s: ", names[i]);
        ASSERT_FAILS(pjrt_executable_load(fake.client, stale, pjrt_program_text(text), NULL, &exe),
                     FAILED_PRECONDITION, part);
        assert_null(exe);
        value[0] ^= 1;
        /* A field that is missing is damage: its name was changed. */
        unsigned char *name = bytes + (field.name - (const char *)bytes);
        name[0] ^= 1;
        sign(bytes, stamp_size);
        support_write_file(stale, bytes, size);
        snprintf(part, sizeof part, "the stamp has no %s", names[i]);
        ASSERT_FAILS(pjrt_executable_load(fake.client, stale, pjrt_program_text(text), NULL, &exe),
                     DATA_LOSS, part);
        name[0] ^= 1;
        sign(bytes, stamp_size);
    }
    free(bytes);
    assert_int_equal(fake.control->calls("PJRT_Executable_DeserializeAndLoad"), 0);
}

static void another_program_or_other_options_are_refused(void **state)
{
    (void)state;
    pjrt_executable *exe;
    const char *path = save("a.exe");
    pjrt_compile_options options = {.replicas = 2};
    ASSERT_FAILS(pjrt_executable_load(fake.client, path, pjrt_program_text("other"), NULL, &exe),
                 FAILED_PRECONDITION, "another program_hash");
    ASSERT_FAILS(pjrt_executable_load(fake.client, path, pjrt_program_text(text), &options, &exe),
                 FAILED_PRECONDITION, "another options_hash");
    ASSERT_FAILS(pjrt_executable_load(fake.client, support_path(folder, "none"), any, NULL, &exe),
                 NOT_FOUND, "none");
    assert_null(exe);
}

/* Fields whose sizes point outside, in a stamp that is signed all the same. */
static void sizes_that_lie_are_the_end_of_the_stamp(void **state)
{
    (void)state;
    size_t size, offset = 0;
    unsigned char *bytes = support_read_file(save("a.exe"), &size);
    bytes[20] = bytes[21] = 0xff; /* the first name's size */
    sign(bytes, stamp_size_of(bytes));
    pjrt_artifact artifact;
    pjrt_artifact_field field;
    ASSERT_OK(pjrt__artifact_parse(bytes, size, &artifact));
    assert_false(pjrt__artifact_next(&artifact, &offset, &field));
    bytes[20] = 11, bytes[21] = 0;
    memset(bytes + 22 + 11, 0xff, 4); /* the first value's size */
    sign(bytes, stamp_size_of(bytes));
    ASSERT_OK(pjrt__artifact_parse(bytes, size, &artifact));
    assert_false(pjrt__artifact_next(&artifact, &offset, &field));
    free(bytes);
}

/* ---- writing ---- */

static void a_failed_save_leaves_no_file(void **state)
{
    (void)state;
    pjrt_executable *exe;
    struct rlimit old, small = {64, 64};
    ASSERT_OK(pjrt_compile(fake.client, pjrt_program_text(text), NULL, &exe));
    ASSERT_FAILS(pjrt_executable_save(exe, "/no/such/folder/a.exe"), UNAVAILABLE, "/no/such");

    /* A disk that is full after 64 bytes. */
    getrlimit(RLIMIT_FSIZE, &old);
    small.rlim_max = old.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    pjrt_status *st = pjrt_executable_save(exe, support_path(folder, "a.exe"));
    setrlimit(RLIMIT_FSIZE, &old);
    ASSERT_FAILS(st, UNAVAILABLE, "File too large");
    assert_int_equal(support_count_files(folder), 0);

    /* The name is taken by a folder: the finished file cannot go there. */
    const char *taken = support_path(folder, "taken");
    assert_int_equal(mkdir(taken, 0755), 0);
    ASSERT_FAILS(pjrt_executable_save(exe, taken), UNAVAILABLE, "taken");
    assert_int_equal(support_count_files(folder), 1);

    fake.control->fail = "PJRT_Executable_Serialize";
    fake.control->fail_at = fake.control->calls(fake.control->fail) + 1;
    ASSERT_FAILS(pjrt_executable_save(exe, support_path(folder, "b.exe")), INTERNAL, "scripted");
    assert_int_equal(support_count_files(folder), 1);
    pjrt_executable_free(exe);
}

/* What was there stays whole when the new file cannot be written. */
static void a_failed_save_keeps_the_old_file(void **state)
{
    (void)state;
    pjrt_executable *exe;
    const char *path = save("a.exe");
    struct rlimit old, small = {64, 64};
    ASSERT_OK(pjrt_compile(fake.client, pjrt_program_text(text), NULL, &exe));
    getrlimit(RLIMIT_FSIZE, &old);
    small.rlim_max = old.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    pjrt_status *st = pjrt_executable_save(exe, path);
    setrlimit(RLIMIT_FSIZE, &old);
    ASSERT_FAILS(st, UNAVAILABLE, "");
    pjrt_executable_free(exe);
    ASSERT_OK(pjrt_executable_load(fake.client, path, pjrt_program_text(text), NULL, &exe));
    pjrt_executable_free(exe);
}

/* ---- the cache ---- */

static void compile_cached(const char *dir, pjrt_status **why)
{
    pjrt_executable *exe;
    ASSERT_OK(pjrt_compile_cached(fake.client, pjrt_program_text(text), NULL, dir, &exe, why));
    assert_int_equal(pjrt_executable_num_results(exe), 1);
    pjrt_executable_free(exe);
}

static void the_second_time_nothing_is_compiled(void **state)
{
    (void)state;
    pjrt_status *why;
    const char *dir = support_path(folder, "cache"); /* made when it is needed */
    compile_cached(dir, &why);
    ASSERT_FAILS(why, NOT_FOUND, "cache/");
    assert_int_equal(support_count_files(dir), 1);
    compile_cached(dir, &why);
    ASSERT_OK(why);
    compile_cached(dir, NULL);
    assert_int_equal(fake.control->calls("PJRT_Client_Compile"), 1);
    /* Other options are another file. */
    pjrt_executable *exe;
    pjrt_compile_options options = {.replicas = 2};
    ASSERT_OK(pjrt_compile_cached(fake.client, pjrt_program_text(text), &options, dir, &exe, &why));
    ASSERT_FAILS(why, NOT_FOUND, "");
    pjrt_executable_free(exe);
    assert_int_equal(support_count_files(dir), 2);
}

static void a_damaged_file_is_replaced(void **state)
{
    (void)state;
    pjrt_status *why;
    compile_cached(folder, &why);
    pjrt_status_free(why);
    support_write_file(support_first_file(folder), "TTTEXE\n1 damaged", 16);
    compile_cached(folder, &why);
    ASSERT_FAILS(why, DATA_LOSS, "");
    compile_cached(folder, &why);
    ASSERT_OK(why);
    assert_int_equal(support_count_files(folder), 1);
}

/* A file that the plugin itself refuses is compiled anew as well. */
static void a_refused_file_is_replaced(void **state)
{
    (void)state;
    pjrt_status *why;
    compile_cached(folder, &why);
    pjrt_status_free(why);
    fake.control->fail = "PJRT_Executable_DeserializeAndLoad";
    fake.control->fail_at = fake.control->calls(fake.control->fail) + 1;
    compile_cached(folder, &why);
    assert_string_equal(pjrt_status_call(why), "PJRT_Executable_DeserializeAndLoad");
    ASSERT_FAILS(why, INTERNAL, "scripted");
    compile_cached(folder, &why);
    ASSERT_OK(why);
}

static void a_cache_that_cannot_be_written_costs_a_compile(void **state)
{
    (void)state;
    pjrt_status *why;
    compile_cached("/no/such/folder/cache", &why);
    assert_non_null(why);
    pjrt_status_free(why);
    const char *file = support_path(folder, "file");
    support_write_file(file, "", 0);
    compile_cached(file, &why);
    assert_non_null(why);
    pjrt_status_free(why);
    assert_int_equal(fake.control->calls("PJRT_Client_Compile"), 2);
    if (geteuid() == 0) /* nothing is read-only to root */
        return;
    const char *locked = support_path(folder, "locked");
    assert_int_equal(mkdir(locked, 0555), 0);
    compile_cached(locked, &why);
    ASSERT_FAILS(why, UNAVAILABLE, "Permission denied");
    assert_int_equal(support_count_files(locked), 0);
}

static void a_program_that_does_not_compile_is_no_cache_matter(void **state)
{
    (void)state;
    pjrt_executable *exe = (pjrt_executable *)state;
    pjrt_status *why = (pjrt_status *)state;
    ASSERT_FAILS(
        pjrt_compile_cached(fake.client, pjrt_program_text("fake.bad"), NULL, folder, &exe, &why),
        INVALID_ARGUMENT, "fake.bad");
    assert_null(exe);
    assert_null(why);
    assert_int_equal(support_count_files(folder), 0);
}

int main(void)
{
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, start, finish)
    const struct CMUnitTest tests[] = {
        IN_FOLDER(what_is_saved_is_loaded),
        IN_FOLDER(the_stamp_can_be_read),
        IN_FOLDER(ahead_of_time_runs_elsewhere),
        IN_FOLDER(every_flipped_byte_is_noticed),
        IN_FOLDER(every_cut_and_every_addition_is_noticed),
        IN_FOLDER(a_stale_stamp_is_refused_by_name),
        IN_FOLDER(another_program_or_other_options_are_refused),
        IN_FOLDER(sizes_that_lie_are_the_end_of_the_stamp),
        IN_FOLDER(a_failed_save_leaves_no_file),
        IN_FOLDER(a_failed_save_keeps_the_old_file),
        IN_FOLDER(the_second_time_nothing_is_compiled),
        IN_FOLDER(a_damaged_file_is_replaced),
        IN_FOLDER(a_refused_file_is_replaced),
        IN_FOLDER(a_cache_that_cannot_be_written_costs_a_compile),
        IN_FOLDER(a_program_that_does_not_compile_is_no_cache_matter),
    };
    return cmocka_run_group_tests_name("pjrt artifact", tests, NULL, close_fake);
}
