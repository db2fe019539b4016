/* Clients, devices, memories, the shared store, topologies and targets, on the fake plugin. */
#include "pjrt/internal.h"
#include "tests/support/support.h"

#include <stdlib.h>

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

/* ---- clients ---- */

static void a_client_tells_what_the_plugin_tells(void **state)
{
    (void)state;
    fake.control->reset();
    fake.control->remote_devices = 2;
    ASSERT_OK(pjrt_client_create(fake.plugin, NULL, &fake.client));
    pjrt_client *client = fake.client;
    assert_ptr_equal(pjrt_client_plugin(client), fake.plugin);
    assert_string_equal(pjrt_client_platform(client), "fake"); /* cut where its size says */
    assert_string_equal(pjrt_client_platform_version(client), "fake 1.0");
    assert_int_equal(pjrt_client_process(client), 0);
    assert_int_equal(pjrt_client_num_devices(client), 4);
    assert_int_equal(pjrt_client_num_global_devices(client), 6);
    assert_null(pjrt_client_device(client, 4)); /* a remote one is nobody's to use here */
    pjrt_device *device = pjrt_client_device(client, 3);
    assert_int_equal(pjrt_device_id(device), 3);
    assert_int_equal(pjrt_device_local_id(device), 103);
    assert_int_equal(pjrt_device_process(device), 0);
    assert_string_equal(pjrt_device_kind(device), "fake chip");
    assert_string_equal(pjrt_device_text(device), "FakeDevice(id=3)");
    size_t count;
    const pjrt_option *attributes = pjrt_device_attributes(device, &count);
    assert_int_equal(count, 6);
    assert_string_equal(attributes[2].name, "cores");
    support_fake_finish(&fake);
}

/* The plugin lists the default memory last; index 0 must be the default all the same. */
static void the_default_memory_is_first(void **state)
{
    (void)state;
    support_fake_client(&fake);
    pjrt_device *device = pjrt_client_device(fake.client, 0);
    assert_int_equal(pjrt_device_num_memories(device), 2);
    assert_string_equal(pjrt_device_memory_kind(device, 0), "device");
    assert_string_equal(pjrt_device_memory_kind(device, 1), "pinned_host");
    assert_null(pjrt_device_memory_kind(device, 2));
    support_fake_finish(&fake);
}

static void memory_figures_that_are_not_told_are_minus_one(void **state)
{
    (void)state;
    pjrt_device_memory memory;
    support_fake_client(&fake);
    ASSERT_OK(pjrt_device_memory_stats(pjrt_client_device(fake.client, 0), &memory));
    assert_int_equal(memory.in_use, 1000);
    assert_int_equal(memory.limit, 5000);
    assert_int_equal(memory.peak, -1);
    assert_int_equal(memory.largest_free_block, -1);
    support_fake_finish(&fake);
}

static void options_reach_the_plugin_under_its_names(void **state)
{
    (void)state;
    int64_t visible[] = {0, 1};
    pjrt_option extra[] = {PJRT_OPT_INTS("visible_devices", visible, 2),
                           PJRT_OPT_STRING("platform_name", "cuda")};
    pjrt_store store = {0};
    pjrt_client_options options = {.cpu_devices = 8,
                                   .gpu_memory_fraction = 0.5,
                                   .gpu_no_preallocate = true,
                                   .gpu_allocator = "bfc",
                                   .node_id = 1,
                                   .num_nodes = 2,
                                   .store = &store,
                                   .extra = extra,
                                   .n_extra = 2};
    fake.control->reset();
    ASSERT_OK(pjrt_client_create(fake.plugin, &options, &fake.client));
    assert_string_equal(fake.control->seen.create_options,
                        "cpu_device_count=8;memory_fraction=0.5;preallocate=false;allocator=bfc;"
                        "node_id=1;num_nodes=2;visible_devices=2 integers;platform_name=cuda;");
    support_fake_finish(&fake);
    fake.control->reset();
    ASSERT_OK(pjrt_client_create(fake.plugin, &(pjrt_client_options){0}, &fake.client));
    assert_string_equal(fake.control->seen.create_options, "");
    support_fake_finish(&fake);
}

/* ---- the shared store ---- */

typedef struct one_key {
    char key[32], value[32];
} one_key;

static bool is_key(const one_key *k, const char *key, size_t size)
{
    return strlen(k->key) == size && memcmp(k->key, key, size) == 0;
}

static pjrt_code try_get(void *user, const char *key, size_t size, char **value, size_t *value_size)
{
    one_key *k = user;
    if (!is_key(k, key, size))
        return PJRT_CODE_NOT_FOUND;
    *value = strdup(k->value);
    *value_size = strlen(k->value);
    return PJRT_CODE_OK;
}

static pjrt_code get(void *user, const char *key, size_t size, int timeout_ms, char **value,
                     size_t *value_size)
{
    assert_int_equal(timeout_ms, 10);
    return try_get(user, key, size, value, value_size);
}

static pjrt_code put(void *user, const char *key, size_t size, const char *value, size_t value_size)
{
    one_key *k = user;
    if (is_key(k, key, size))
        return PJRT_CODE_ALREADY_EXISTS;
    memcpy(k->key, key, size);
    memcpy(k->value, value, value_size);
    return PJRT_CODE_OK;
}

/* The plugin sees values, codes and, for a second put, ALREADY_EXISTS (6); missing is 5. */
static void the_store_answers_with_values_and_codes(void **state)
{
    (void)state;
    one_key key = {0};
    pjrt_store store = {.get = get, .try_get = try_get, .put = put, .user = &key};
    pjrt_client_options options = {.num_nodes = 2, .store = &store};
    fake.control->reset();
    fake.control->use_store = true;
    ASSERT_OK(pjrt_client_create(fake.plugin, &options, &fake.client));
    assert_string_equal(fake.control->seen.store, "put 0 ;put 6 ;get 0 value;try 5 ;");
    support_fake_finish(&fake);
}

/* ---- free in any order ---- */

/* T15: the plugin's client goes last, whatever the caller frees first. */
static void a_client_outlives_what_it_made(void **state)
{
    (void)state;
    pjrt_executable *exe;
    pjrt_buffer *out;
    pjrt_event *ready, *done;
    support_fake_client(&fake);
    ASSERT_OK(pjrt_compile(fake.client, pjrt_program_text("module"), NULL, &exe));
    pjrt_buffer *in = support_upload4(pjrt_client_device(fake.client, 0), 1, 2, 3, 4);
    ASSERT_OK(pjrt_buffer_ready(in, &ready));
    pjrt_client_free(fake.client);
    fake.client = NULL;
    assert_int_equal(fake.control->destroyed[FAKE_CLIENT], 0);
    ASSERT_OK(pjrt_execute(exe, &in, 1, NULL, &out, 1, &done));
    pjrt_executable_free(exe);
    pjrt_buffer_free(in);
    ASSERT_OK(pjrt_event_wait(ready));
    pjrt_event_free(ready);
    pjrt_buffer_free(out);
    assert_int_equal(fake.control->destroyed[FAKE_CLIENT], 0);
    pjrt_event_free(done);
    assert_int_equal(fake.control->destroyed[FAKE_CLIENT], 1);
    support_assert_balanced(fake.control);
}

static void nothing_may_be_freed(void **state)
{
    (void)state;
    pjrt_client_free(NULL);
    pjrt_buffer_free(NULL);
    pjrt_executable_free(NULL);
    pjrt_event_free(NULL);
    pjrt_topology_free(NULL);
    ASSERT_OK(pjrt_profile_stop(NULL, NULL));
}

/* ---- topologies and targets ---- */

static void a_topology_compiles_ahead_of_time(void **state)
{
    (void)state;
    pjrt_topology *topology;
    pjrt_executable *exe;
    pjrt_option option = PJRT_OPT_STRING("target_config", "chip");
    fake.control->reset();
    ASSERT_OK(pjrt_topology_create(fake.plugin, "v5e:2x2", &option, 1, &topology));
    assert_string_equal(fake.control->seen.topology, "v5e:2x2");
    assert_string_equal(fake.control->seen.create_options, "target_config=chip;");
    assert_int_equal(pjrt_topology_num_devices(topology), 4);
    assert_string_equal(pjrt_topology_platform(topology), "fake");
    assert_string_equal(pjrt_topology_platform_version(topology), "ahead 1.0");
    assert_string_equal(pjrt_topology_device_kind(topology), "fake chip");
    ASSERT_OK(pjrt_compile_ahead(topology, pjrt_program_text("module"), NULL, &exe));
    pjrt_topology_free(topology); /* the executable does not need it */
    assert_int_equal(pjrt_executable_num_results(exe), 1);
    pjrt_buffer *result = (pjrt_buffer *)&fake;
    ASSERT_FAILS(pjrt_execute(exe, NULL, 0, NULL, &result, 1, NULL), FAILED_PRECONDITION,
                 "ahead of time");
    assert_null(result);
    pjrt_executable_free(exe);
    support_assert_balanced(fake.control);
}

static void a_topology_without_devices_has_no_kind(void **state)
{
    (void)state;
    pjrt_topology *topology;
    fake.control->reset();
    fake.control->devices = 0;
    ASSERT_OK(pjrt_topology_create(fake.plugin, "none", NULL, 0, &topology));
    assert_string_equal(pjrt_topology_device_kind(topology), "");
    pjrt_topology_free(topology);
    support_assert_balanced(fake.control);
}

/* The fake stands in for the CUDA plugin: what a GPU is, is told by the option's text alone. */
static void targets_become_topologies(void **state)
{
    (void)state;
    const pjrt_target *target;
    pjrt_topology *topology;
    setenv("TTT_PLUGIN_CUDA", fake.path, 1);
    setenv("TTT_PLUGIN_TPU", fake.path, 1);
    fake.control->reset();
    ASSERT_OK(pjrt_target_open("cuda:h100-sxm:2x8", &target, &topology));
    assert_string_equal(target->name, "cuda:h100-sxm");
    ASSERT_CONTAINS(fake.control->seen.create_options, "core_count: 132");
    pjrt_topology_free(topology);
    fake.control->reset();
    ASSERT_OK(pjrt_target_open("tpu:v5e:16x16", &target, &topology));
    assert_string_equal(target->name, "tpu:v5e:2x2");
    assert_string_equal(fake.control->seen.topology, "v5e:16x16");
    pjrt_topology_free(topology);
    ASSERT_OK(pjrt_target_open("cpu", &target, &topology));
    assert_null(topology);
    assert_string_equal(target->plugin, "cpu");
    support_assert_balanced(fake.control);
}

static void names_that_are_no_targets_are_refused(void **state)
{
    (void)state;
    static const char *const unknown[] = {
        "",     "tpu",       "tpu:v5e",  "tpu:v5e:", "tpu:v9:1",      "cpu:2",
        "cuda", "cuda:h100", "cuda:l4:", "cuda:l4x", "cuda:h100-sxmX"};
    static const char *const uncounted[] = {"cuda:l4:0",   "cuda:l4:-1",   "cuda:l4:2x",
                                            "cuda:l4:x8",  "cuda:l4:8 ",   "cuda:l4:2x0",
                                            "cuda:l4:two", "cuda:l4:9999", "cuda:l4:1x2x3"};
    const pjrt_target *target;
    pjrt_topology *topology;
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        ASSERT_FAILS(pjrt_target_open(unknown[i], &target, &topology), NOT_FOUND, unknown[i]);
        assert_null(target);
        assert_null(topology);
    }
    setenv("TTT_PLUGIN_CUDA", fake.path, 1);
    for (size_t i = 0; i < sizeof uncounted / sizeof *uncounted; i++) {
        ASSERT_FAILS(pjrt_target_open(uncounted[i], &target, &topology), INVALID_ARGUMENT,
                     "is no number of GPUs");
        assert_null(topology);
    }
}

/* Each row can be opened under its own name, and none hides another. */
static void every_target_is_found_by_its_name(void **state)
{
    (void)state;
    size_t count;
    const pjrt_target *targets = pjrt_targets(&count);
    setenv("TTT_PLUGIN_CUDA", fake.path, 1);
    setenv("TTT_PLUGIN_TPU", fake.path, 1);
    assert_in_range(count, 8, 100);
    for (size_t i = 0; i < count; i++) {
        const pjrt_target *found;
        pjrt_topology *topology;
        ASSERT_OK(pjrt_target_open(targets[i].name, &found, &topology));
        assert_ptr_equal(found, &targets[i]);
        pjrt_topology_free(topology);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_client_tells_what_the_plugin_tells),
        cmocka_unit_test(the_default_memory_is_first),
        cmocka_unit_test(memory_figures_that_are_not_told_are_minus_one),
        cmocka_unit_test(options_reach_the_plugin_under_its_names),
        cmocka_unit_test(the_store_answers_with_values_and_codes),
        cmocka_unit_test(a_client_outlives_what_it_made),
        cmocka_unit_test(nothing_may_be_freed),
        cmocka_unit_test(a_topology_compiles_ahead_of_time),
        cmocka_unit_test(a_topology_without_devices_has_no_kind),
        cmocka_unit_test(targets_become_topologies),
        cmocka_unit_test(names_that_are_no_targets_are_refused),
        cmocka_unit_test(every_target_is_found_by_its_name),
    };
    return cmocka_run_group_tests_name("pjrt client", tests, open_fake, close_fake);
}
