/* Where plugins are looked for, in which order, and what is said when there is none. */
#include "pjrt/internal.h"
#include "tests/support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct seen {
    struct {
        char path[PATH_MAX], why[64];
        bool exists;
    } places[64];
    int count;
} seen;

static void visit(const char *path, bool exists, const char *why, void *user)
{
    seen *s = user;
    assert_in_range(s->count, 0, 63);
    snprintf(s->places[s->count].path, PATH_MAX, "%s", path);
    snprintf(s->places[s->count].why, sizeof s->places->why, "%s", why);
    s->places[s->count++].exists = exists;
}

static void search(const char *name, seen *s)
{
    s->count = 0;
    ASSERT_OK(pjrt_plugin_search(name, visit, s));
}

/* Index of the place whose path ends so, or -1. */
static int find(const seen *s, const char *end)
{
    for (int i = 0; i < s->count; i++) {
        size_t have = strlen(s->places[i].path), want = strlen(end);
        if (have >= want && strcmp(s->places[i].path + have - want, end) == 0)
            return i;
    }
    return -1;
}

static void make(const char *folder, const char *path)
{
    char whole[PATH_MAX];
    snprintf(whole, sizeof whole, "%s", support_path(folder, path));
    for (char *slash = whole + strlen(folder) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        mkdir(whole, 0755);
        *slash = '/';
    }
    support_write_file(whole, "", 0);
}

static char folder[PATH_MAX];

static int start(void **state)
{
    (void)state;
    static const char *const variables[] = {"TTT_PLUGIN_CPU",   "TTT_PLUGIN_TPU", "TTT_PLUGIN_CUDA",
                                            "TPU_LIBRARY_PATH", "TTT_CACHE",      "XDG_CACHE_HOME",
                                            "VIRTUAL_ENV"};
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        unsetenv(variables[i]);
    support_new_folder(folder);
    return setenv("HOME", folder, 1);
}

static int end(void **state)
{
    (void)state;
    support_remove_folder(folder);
    return 0;
}

static void the_environment_comes_first(void **state)
{
    (void)state;
    static seen s;
    setenv("TTT_PLUGIN_TPU", "/first/libtpu.so", 1);
    setenv("TPU_LIBRARY_PATH", "/second/libtpu.so", 1);
    search("tpu", &s);
    assert_string_equal(s.places[0].path, "/first/libtpu.so");
    assert_string_equal(s.places[0].why, "TTT_PLUGIN_TPU");
    assert_false(s.places[0].exists);
    assert_string_equal(s.places[1].path, "/second/libtpu.so");
    assert_string_equal(s.places[1].why, "TPU_LIBRARY_PATH");
    setenv("TTT_PLUGIN_TPU", "", 1); /* empty is as good as unset */
    search("tpu", &s);
    assert_string_equal(s.places[0].path, "/second/libtpu.so");
}

static void then_the_program_the_cache_and_site_packages(void **state)
{
    (void)state;
    static seen s;
    setenv("VIRTUAL_ENV", support_path(folder, "venv"), 1);
    make(folder, "venv/lib/python3.11/site-packages/libtpu/libtpu.so");
    make(folder, ".local/lib/python3.9/site-packages/libtpu/libtpu.so");
    make(folder, ".cache/ttt/libtpu-0.0.51/libtpu/libtpu.so");
    search("tpu", &s);
    int lib = find(&s, "/../lib/ttt/libtpu.so");
    int cache = find(&s, ".cache/ttt/libtpu-0.0.51/libtpu/libtpu.so");
    int venv = find(&s, "venv/lib/python3.11/site-packages/libtpu/libtpu.so");
    int user = find(&s, ".local/lib/python3.9/site-packages/libtpu/libtpu.so");
    assert_int_equal(lib, 1);
    assert_string_equal(s.places[0].why, "beside the program");
    assert_int_equal(cache, 2);
    assert_int_equal(venv, 3);
    assert_int_equal(user, 4);
    assert_true(s.places[cache].exists && s.places[venv].exists && s.places[user].exists);
    assert_int_equal(find(&s, "/usr/lib/python3*/*-packages/libtpu/libtpu.so"), s.count - 1);
}

static void the_cache_may_be_elsewhere(void **state)
{
    (void)state;
    static seen s;
    setenv("XDG_CACHE_HOME", support_path(folder, "xdg"), 1);
    search("cpu", &s);
    assert_int_not_equal(find(&s, "xdg/ttt/pjrt-cpu-*/pjrt_cpu_plugin.so"), -1);
    setenv("TTT_CACHE", support_path(folder, "mine"), 1);
    search("cpu", &s);
    assert_int_equal(find(&s, "xdg/ttt/pjrt-cpu-*/pjrt_cpu_plugin.so"), -1);
    assert_int_not_equal(find(&s, "mine/pjrt-cpu-*/pjrt_cpu_plugin.so"), -1);
}

/* Sorted by bytes, 0.0.9 would be newer than 0.0.51. */
static void of_several_versions_the_newest_comes_first(void **state)
{
    (void)state;
    static seen s;
    setenv("TTT_CACHE", folder, 1);
    make(folder, "libtpu-0.0.9/libtpu/libtpu.so");
    make(folder, "libtpu-0.0.51/libtpu/libtpu.so");
    make(folder, "libtpu-0.0.10/libtpu/libtpu.so");
    search("tpu", &s);
    assert_int_equal(find(&s, "libtpu-0.0.51/libtpu/libtpu.so"), 2);
    assert_int_equal(find(&s, "libtpu-0.0.10/libtpu/libtpu.so"), 3);
    assert_int_equal(find(&s, "libtpu-0.0.9/libtpu/libtpu.so"), 4);
    make(folder, "jax-cuda12-pjrt-0.12.0/jax_plugins/xla_cuda12/xla_cuda_plugin.so");
    make(folder, "jax-cuda13-pjrt-0.12.0.1/jax_plugins/xla_cuda13/xla_cuda_plugin.so");
    search("cuda", &s);
    assert_int_equal(find(&s, "jax-cuda13-pjrt-0.12.0.1/jax_plugins/xla_cuda13/xla_cuda_plugin.so"),
                     2);
}

/* A folder's name is a name, not a pattern. */
static void folders_may_have_odd_names(void **state)
{
    (void)state;
    static seen s;
    make(folder, "odd [1]*/libtpu-0.0.51/libtpu/libtpu.so");
    setenv("TTT_CACHE", support_path(folder, "odd [1]*"), 1);
    search("tpu", &s);
    int place = find(&s, "odd [1]*/libtpu-0.0.51/libtpu/libtpu.so");
    assert_int_not_equal(place, -1);
    assert_true(s.places[place].exists);
}

static void the_first_that_exists_is_taken(void **state)
{
    (void)state;
    char *path;
    setenv("TTT_PLUGIN_CPU", support_path(folder, "not there.so"), 1);
    setenv("TTT_CACHE", folder, 1);
    make(folder, "pjrt-cpu-1.0/pjrt_cpu_plugin.so");
    ASSERT_OK(pjrt__find("cpu", &path));
    ASSERT_CONTAINS(path, "pjrt-cpu-1.0/pjrt_cpu_plugin.so");
    free(path);
    ASSERT_OK(pjrt__find("./any/path", &path)); /* a path is not looked for */
    assert_string_equal(path, "./any/path");
    free(path);
}

static void nothing_found_says_what_to_do(void **state)
{
    (void)state;
    pjrt_plugin *plugin;
    setenv("TTT_CACHE", folder, 1);
    setenv("VIRTUAL_ENV", folder, 1);
    ASSERT_FAILS(pjrt_plugin_load("cuda", &plugin), NOT_FOUND, "tools/dev/setup.sh");
    assert_null(plugin);
    static seen s;
    ASSERT_FAILS(pjrt_plugin_search("npu", visit, &s), NOT_FOUND, "\"npu\"");
}

static void a_very_long_name_is_no_overflow(void **state)
{
    (void)state;
    static seen s;
    char *name = malloc(3 * PATH_MAX);
    assert_non_null(name);
    memset(name, 'a', 3 * PATH_MAX);
    name[3 * PATH_MAX - 1] = '\0';
    setenv("TTT_CACHE", name, 1);
    search("tpu", &s);
    assert_int_equal(find(&s, "libtpu-*/libtpu/libtpu.so"), -1);
    free(name);
}

int main(void)
{
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, start, end)
    const struct CMUnitTest tests[] = {
        IN_FOLDER(the_environment_comes_first),
        IN_FOLDER(then_the_program_the_cache_and_site_packages),
        IN_FOLDER(the_cache_may_be_elsewhere),
        IN_FOLDER(of_several_versions_the_newest_comes_first),
        IN_FOLDER(folders_may_have_odd_names),
        IN_FOLDER(the_first_that_exists_is_taken),
        IN_FOLDER(nothing_found_says_what_to_do),
        IN_FOLDER(a_very_long_name_is_no_overflow),
    };
    return cmocka_run_group_tests_name("pjrt search", tests, NULL, NULL);
}
