/* Loading plugins: versions, tables cut short, extensions, failures that are final, the search. */
#include "pjrt/internal.h"
#include "tests/support/support.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static pjrt_status *load(support_fake *fake)
{
    pjrt_plugin *plugin = (pjrt_plugin *)fake;
    pjrt_status *st = pjrt_plugin_load(fake->path, &plugin);
    assert_true(st == NULL ? plugin != NULL : plugin == NULL);
    fake->plugin = plugin;
    return st;
}

/* ---- versions ---- */

static void a_plugin_is_loaded_once_per_file(void **state)
{
    (void)state;
    support_fake fake;
    pjrt_plugin *again;
    int major, minor;
    support_fake_open(&fake);
    ASSERT_OK(load(&fake));
    ASSERT_OK(pjrt_plugin_load(fake.path, &again));
    assert_ptr_equal(again, fake.plugin);
    const char *link = support_path(fake.folder, "link.so");
    assert_int_equal(symlink(fake.path, link), 0);
    ASSERT_OK(pjrt_plugin_load(link, &again));
    assert_ptr_equal(again, fake.plugin);
    assert_int_equal(fake.control->calls("PJRT_Plugin_Initialize"), 1);
    assert_int_equal(fake.control->calls("PJRT_Plugin_Attributes"), 1);
    pjrt_plugin_version(fake.plugin, &major, &minor);
    assert_int_equal(major, PJRT_API_MAJOR);
    assert_int_equal(minor, PJRT_API_MINOR);
    assert_string_equal(pjrt_plugin_path(fake.plugin), fake.path);
    support_assert_balanced(fake.control);
    support_fake_remove(&fake);
}

/* T3: another major version, and one so old that basic entries are missing. Neither is called. */
static void wrong_versions_are_refused_before_any_call(void **state)
{
    (void)state;
    static const struct {
        int major, minor;
        const char *advice;
    } cases[] = {
        {PJRT_API_MAJOR + 1, 0, "less recent"},
        {PJRT_API_MAJOR, 28, "more recent"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        support_fake fake;
        support_fake_open(&fake);
        fake.control->api->pjrt_api_version.major_version = cases[i].major;
        fake.control->api->pjrt_api_version.minor_version = cases[i].minor;
        ASSERT_FAILS(load(&fake), FAILED_PRECONDITION, cases[i].advice);
        assert_int_equal(fake.control->calls("PJRT_Plugin_Initialize"), 0);
        support_fake_remove(&fake);
    }
}

static void the_oldest_version_is_accepted(void **state)
{
    (void)state;
    support_fake fake;
    support_fake_open(&fake);
    fake.control->api->pjrt_api_version.minor_version = 29;
    ASSERT_OK(load(&fake));
    support_fake_remove(&fake);
}

static void a_table_without_a_version_is_refused(void **state)
{
    (void)state;
    support_fake fake;
    support_fake_open(&fake);
    fake.control->api->struct_size = offsetof(PJRT_Api, PJRT_Error_Destroy) - 1;
    ASSERT_FAILS(load(&fake), FAILED_PRECONDITION, "no version");
    assert_int_equal(fake.control->calls("PJRT_Plugin_Initialize"), 0);
    support_fake_remove(&fake);
}

/* T1: a newer plugin refuses structs that are shorter than its own; ours grow with it. */
static void a_newer_plugin_gets_longer_structs(void **state)
{
    (void)state;
    support_fake fake;
    support_fake_open(&fake);
    fake.control->api->pjrt_api_version.minor_version = PJRT_API_MINOR + 26;
    fake.control->newer = 64;
    ASSERT_OK(load(&fake));
    ASSERT_OK(pjrt_client_create(fake.plugin, NULL, &fake.client));
    pjrt_executable *exe;
    pjrt_buffer *out;
    ASSERT_OK(pjrt_compile(fake.client, pjrt_program_text("module"), NULL, &exe));
    pjrt_buffer *in = support_upload4(pjrt_client_device(fake.client, 0), 1, 2, 3, 4);
    ASSERT_OK(pjrt_execute(exe, &in, 1, NULL, &out, 1, NULL));
    pjrt_buffer_free(in);
    pjrt_buffer_free(out);
    pjrt_executable_free(exe);
    support_fake_finish(&fake);
    support_fake_remove(&fake);
}

/* The counterpart: without a newer version number the same plugin refuses us, in words. */
static void the_fake_does_refuse_short_structs(void **state)
{
    (void)state;
    support_fake fake;
    support_fake_open(&fake);
    fake.control->newer = 64;
    ASSERT_FAILS(load(&fake), INVALID_ARGUMENT, "Unexpected PJRT_Plugin_Initialize args size");
    support_fake_remove(&fake);
}

/* ---- tables ---- */

/* T2: the last slot that the table reaches exists, the next one does not, even by one byte. */
static void entries_past_the_table_do_not_exist(void **state)
{
    (void)state;
    support_fake fake;
    support_fake_open(&fake);
    ASSERT_OK(load(&fake));
    size_t end = offsetof(PJRT_Api, PJRT_Client_CreateUninitializedBuffer) + sizeof(void *);
    pjrt_shape shape = {PJRT_F32, 1, {4}};
    pjrt_buffer *buffer;
    support_fake_client(&fake);
    fake.control->api->struct_size = end;
    assert_true(pjrt_plugin_has(fake.plugin, "PJRT_Client_CreateUninitializedBuffer"));
    assert_false(pjrt_plugin_has(fake.plugin, "PJRT_Client_UpdateGlobalProcessInfo"));
    ASSERT_OK(pjrt_buffer_uninitialized(pjrt_client_device(fake.client, 0), &shape, &buffer));
    pjrt_buffer_free(buffer);
    for (size_t cut = 1; cut <= sizeof(void *); cut += sizeof(void *) - 1) {
        fake.control->api->struct_size = end - cut;
        assert_false(pjrt_plugin_has(fake.plugin, "PJRT_Client_CreateUninitializedBuffer"));
        pjrt_status *st =
            pjrt_buffer_uninitialized(pjrt_client_device(fake.client, 0), &shape, &buffer);
        assert_string_equal(pjrt_status_call(st), "PJRT_Client_CreateUninitializedBuffer");
        ASSERT_CONTAINS(pjrt_status_message(st), fake.path);
        ASSERT_FAILS(st, UNIMPLEMENTED, "does not have this entry");
        assert_null(buffer);
    }
    support_fake_finish(&fake);
    support_fake_remove(&fake);
}

static void missing_slots_are_told(void **state)
{
    (void)state;
    support_fake fake;
    support_fake_open(&fake);
    ASSERT_OK(load(&fake));
    support_fake_client(&fake);
    pjrt_executable *exe;
    fake.control->api->PJRT_Client_Compile = NULL;
    assert_false(pjrt_plugin_has(fake.plugin, "PJRT_Client_Compile"));
    assert_false(pjrt_plugin_has(fake.plugin, "PJRT_No_Such_Entry"));
    ASSERT_FAILS(pjrt_compile(fake.client, pjrt_program_text("module"), NULL, &exe), UNIMPLEMENTED,
                 "does not have this entry");
    assert_null(exe);
    support_fake_finish(&fake);

    /* What a client can do without: memories and hardware numbers. */
    fake.control->api->PJRT_Device_AddressableMemories = NULL;
    fake.control->api->PJRT_Device_LocalHardwareId = NULL;
    ASSERT_OK(pjrt_client_create(fake.plugin, NULL, &fake.client));
    assert_int_equal(pjrt_device_num_memories(pjrt_client_device(fake.client, 0)), 0);
    assert_int_equal(pjrt_device_local_id(pjrt_client_device(fake.client, 0)), -1);
    support_fake_finish(&fake);
    support_fake_remove(&fake);
}

static void a_plugin_may_lack_initialisation_and_attributes(void **state)
{
    (void)state;
    support_fake fake;
    size_t count;
    support_fake_open(&fake);
    fake.control->api->PJRT_Plugin_Initialize = NULL;
    fake.control->api->PJRT_Plugin_Attributes = NULL;
    ASSERT_OK(load(&fake));
    pjrt_plugin_attributes(fake.plugin, &count);
    assert_int_equal(count, 0);
    support_fake_remove(&fake);
}

/* An error that cannot be asked for its message or code is still an error. */
static void errors_survive_missing_error_entries(void **state)
{
    (void)state;
    support_fake fake;
    support_fake_open(&fake);
    ASSERT_OK(load(&fake));
    fake.control->reset();
    fake.control->fail = "PJRT_Client_Create";
    fake.control->fail_at = 1;
    fake.control->api->PJRT_Error_Message = NULL;
    fake.control->api->PJRT_Error_GetCode = NULL;
    fake.control->api->PJRT_Error_Destroy = NULL;
    ASSERT_FAILS(pjrt_client_create(fake.plugin, NULL, &fake.client), UNKNOWN, "");
    assert_null(fake.client);
    fake.control->reset();
    fake.control->fail = "PJRT_Client_Create";
    fake.control->fail_at = 1;
    fake.control->fail_code = PJRT_Error_Code_OK; /* an error that says it is none */
    ASSERT_FAILS(pjrt_client_create(fake.plugin, NULL, &fake.client), UNKNOWN, "scripted failure");
    support_assert_balanced(fake.control);
    support_fake_remove(&fake);
}

/* T12: code, message and call come from the plugin, and its error is destroyed. */
static void the_plugins_own_words_arrive(void **state)
{
    (void)state;
    support_fake fake;
    support_fake_open(&fake);
    ASSERT_OK(load(&fake));
    fake.control->reset();
    fake.control->fail = "PJRT_Client_Create";
    fake.control->fail_at = 1;
    fake.control->fail_code = PJRT_Error_Code_PERMISSION_DENIED;
    fake.control->fail_message = "the chip is\nsomebody else's";
    pjrt_status *st = pjrt_client_create(fake.plugin, NULL, &fake.client);
    assert_string_equal(pjrt_status_call(st), "PJRT_Client_Create");
    assert_string_equal(pjrt_status_message(st), "the chip is\nsomebody else's");
    assert_string_equal(pjrt_status_text(st), "PJRT_Client_Create: PERMISSION_DENIED: the chip is");
    ASSERT_FAILS(st, PERMISSION_DENIED, "");
    assert_int_equal(fake.control->created[FAKE_ERROR], 1);
    support_assert_balanced(fake.control);
    support_fake_remove(&fake);
}

static void visit_function(const char *function, bool present, void *user)
{
    int *count = user;
    count[0]++;
    count[1] += present;
    if (strcmp(function, "PJRT_Event_Set") == 0)
        assert_false(present);
}

static void all_entries_are_visited(void **state)
{
    (void)state;
    support_fake fake;
    int count[2] = {0};
    support_fake_open(&fake);
    ASSERT_OK(load(&fake));
    pjrt_plugin_functions(fake.plugin, visit_function, count);
    assert_int_equal(count[0],
                     (sizeof(PJRT_Api) - offsetof(PJRT_Api, PJRT_Error_Destroy)) / sizeof(void *));
    assert_in_range(count[1], 50, count[0] - 1);
    support_fake_remove(&fake);
}

static void attributes_of_every_kind_arrive(void **state)
{
    (void)state;
    support_fake fake;
    size_t count;
    support_fake_open(&fake);
    ASSERT_OK(load(&fake));
    const pjrt_option *a = pjrt_plugin_attributes(fake.plugin, &count);
    assert_int_equal(count, 6);
    assert_string_equal(a[0].name, "name");
    assert_int_equal(a[0].kind, PJRT_OPTION_STRING);
    assert_string_equal(a[0].string, "fake"); /* cut where its size says */
    assert_string_equal(a[1].name, "stablehlo_current_version");
    assert_int_equal(a[1].kind, PJRT_OPTION_INTS);
    assert_int_equal(a[1].n_integers, 3);
    assert_int_equal(a[1].integers[1], 13);
    assert_int_equal(a[2].kind, PJRT_OPTION_INT);
    assert_int_equal(a[2].integer, -7);
    assert_int_equal(a[3].kind, PJRT_OPTION_FLOAT);
    assert_true(a[3].real == 1.5);
    assert_int_equal(a[4].kind, PJRT_OPTION_BOOL);
    assert_true(a[4].boolean);
    assert_string_equal(a[5].name, "new"); /* of a kind we do not know: named all the same */
    support_fake_remove(&fake);
}

/* ---- extensions ---- */

typedef struct extensions_seen {
    int count, unknown;
    bool ffi;
} extensions_seen;

static void visit_extension(int type, const char *name, size_t size, void *user)
{
    extensions_seen *seen = user;
    seen->count++;
    if (type == 7777) {
        assert_null(name);
        assert_int_equal(size, sizeof(PJRT_Extension_Base));
        seen->unknown++;
    }
    if (type == PJRT_Extension_Type_FFI) {
        assert_string_equal(name, "FFI");
        seen->ffi = true;
    }
}

/* T3: an unknown extension stands in the way of nothing, and is told. */
static void unknown_extensions_are_kept_and_passed(void **state)
{
    (void)state;
    support_fake fake;
    extensions_seen seen = {0};
    support_fake_open(&fake);
    ASSERT_OK(load(&fake));
    pjrt_plugin_extensions(fake.plugin, visit_extension, &seen);
    assert_int_equal(seen.count, 3);
    assert_int_equal(seen.unknown, 1);
    assert_true(seen.ffi);
    fake.control->unknown->type = (PJRT_Extension_Type)-1;
    seen = (extensions_seen){0};
    pjrt_plugin_extensions(fake.plugin, visit_extension, &seen);
    assert_int_equal(seen.count, 3);
    fake.control->api->extension_start = NULL;
    seen = (extensions_seen){0};
    pjrt_plugin_extensions(fake.plugin, visit_extension, &seen);
    assert_int_equal(seen.count, 0);
    support_fake_remove(&fake);
}

/* ---- failures ---- */

/* libtpu aborts the process when it is called after it failed to start. */
static void a_failed_start_is_final(void **state)
{
    (void)state;
    support_fake fake;
    support_fake_open(&fake);
    fake.control->fail = "PJRT_Plugin_Initialize";
    fake.control->fail_at = 1;
    fake.control->fail_code = PJRT_Error_Code_UNAVAILABLE;
    fake.control->fail_message = "no chip";
    for (int i = 0; i < 3; i++) {
        pjrt_status *st = load(&fake);
        assert_string_equal(pjrt_status_call(st), "PJRT_Plugin_Initialize");
        ASSERT_FAILS(st, UNAVAILABLE, "no chip");
    }
    assert_int_equal(fake.control->calls("PJRT_Plugin_Initialize"), 1);
    assert_int_equal(fake.control->calls("PJRT_Plugin_Attributes"), 0);
    support_assert_balanced(fake.control);
    support_fake_remove(&fake);
}

/* ---- machines with and without TPU chips ---- */

static const char *const topology_variables[] = {"TPU_SKIP_MDS_QUERY", "TPU_ACCELERATOR_TYPE",
                                                 "TPU_WORKER_HOSTNAMES", "TPU_WORKER_ID",
                                                 "ALLOW_MULTIPLE_LIBTPU_LOAD"};
enum { TOPOLOGY_VARIABLES = sizeof topology_variables / sizeof *topology_variables };

static void unset_topology(void)
{
    for (int i = 0; i < TOPOLOGY_VARIABLES; i++)
        unsetenv(topology_variables[i]);
    unsetenv("TPU_NAME");
}

/* Writes `text` to a file below `root`, with the folders on the way. */
static void write_below(const char *root, const char *path, const char *text)
{
    char whole[PATH_MAX];
    snprintf(whole, sizeof whole, "%s", support_path(root, path));
    for (char *slash = whole + strlen(root) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        mkdir(whole, 0755);
        *slash = '/';
    }
    support_write_file(whole, text, strlen(text));
}

static void write_pci_device(const char *root, int slot, const char *vendor, const char *device)
{
    char path[128];
    snprintf(path, sizeof path, "sys/bus/pci/devices/0000:00:%02x.0/vendor", slot);
    write_below(root, path, vendor);
    snprintf(path, sizeof path, "sys/bus/pci/devices/0000:00:%02x.0/device", slot);
    write_below(root, path, device);
}

typedef struct machine {
    const char *name;
    const char *vendor, *device; /* of 4 PCI devices; NULL: /sys is not visible */
    const char *node;            /* 4 device nodes, a format; or NULL */
    const char *tpu_name;        /* TPU_NAME, or NULL */
    bool has_tpu;
} machine;

static const machine machines[] = {
    {"v3", "0x1ae0\n", "0x0027\n", "dev/accel%d", NULL, true},
    {"v4", "0x1ae0\n", "0x005e\n", "dev/accel%d", NULL, true},
    {"v5p", "0x1ae0\n", "0x0062\n", "dev/vfio/%d", NULL, true},
    {"v5e", "0x1ae0\n", "0x0063\n", "dev/vfio/%d", NULL, true},
    {"v6e", "0x1ae0\n", "0x006f\n", "dev/vfio/%d", NULL, true},
    {"TPU7x", "0x1ae0\n", "0x0076\n", "dev/vfio/%d", NULL, true},
    {"v5e, container without /dev/vfio", "0x1ae0\n", "0x0063\n", NULL, NULL, true},
    {"v4, container without /sys", NULL, NULL, "dev/accel%d", NULL, true},
    {"v5e, container without /sys", NULL, NULL, "dev/vfio/%d", NULL, true},
    {"TPU of unknown id, named by the user", "0x1ae0\n", "0x0fff\n", "dev/vfio/%d", "mine", true},
    {"plain machine", "0x8086\n", "0x1237\n", NULL, NULL, false},
    {"plain machine, TPU_NAME set", "0x8086\n", "0x1237\n", NULL, "remote", false},
    {"NVIDIA GPUs bound to vfio", "0x10de\n", "0x20b0\n", "dev/vfio/%d", NULL, false},
    {"vfio, a v5e's device id of another vendor", "0x10de\n", "0x0063\n", "dev/vfio/%d", NULL,
     false},
    {"GCE machine with gVNIC", "0x1ae0\n", "0x0042\n", NULL, NULL, false},
    {"Linux accel subsystem", "0x1da3\n", "0x1020\n", "dev/accel/accel%d", NULL, false},
    {"no /sys and no /dev", NULL, NULL, NULL, NULL, false},
};

static void write_machine(const char *root, const machine *m)
{
    write_below(root, "dev/vfio/vfio", ""); /* the VFIO driver's own node says nothing */
    if (m->vendor != NULL)
        write_pci_device(root, 1, "0x8086\n", "0x1237\n");
    for (int i = 0; i < 4; i++) {
        char path[64];
        if (m->vendor != NULL)
            write_pci_device(root, 4 + i, m->vendor, m->device);
        /* NOLINTNEXTLINE(clang-diagnostic-format-nonliteral) */
        if (m->node != NULL && snprintf(path, sizeof path, m->node, i) > 0)
            write_below(root, path, "");
    }
}

/* With chips libtpu sees the environment as it is; without, a topology to compile for. */
static void a_topology_is_faked_only_without_chips(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof machines / sizeof *machines; i++) {
        const machine *m = &machines[i];
        char root[PATH_MAX];
        support_fake fake;
        support_new_folder(root);
        write_machine(root, m);
        unset_topology();
        setenv("TTT_SYSFS_ROOT", root, 1);
        if (m->tpu_name != NULL)
            setenv("TPU_NAME", m->tpu_name, 1);
        if (pjrt__on_tpu_machine() != m->has_tpu)
            fail_msg("%s: %s", m->name, m->has_tpu ? "no TPU found" : "taken for a TPU machine");
        support_fake_open(&fake);
        const char *path = support_path(fake.folder, "libtpu.so");
        assert_int_equal(rename(fake.path, path), 0);
        ASSERT_OK(pjrt_plugin_load(path, &fake.plugin));
        for (int j = 0; j < TOPOLOGY_VARIABLES; j++) {
            if ((getenv(topology_variables[j]) == NULL) != m->has_tpu)
                fail_msg("%s: %s is %s", m->name, topology_variables[j],
                         m->has_tpu ? "set" : "not set");
        }
        support_fake_remove(&fake);
        support_remove_folder(root);
    }
    unset_topology();
    unsetenv("TTT_SYSFS_ROOT");
}

static void a_faked_topology_keeps_what_the_user_set(void **state)
{
    (void)state;
    char root[PATH_MAX];
    support_fake fake, other;
    support_new_folder(root);
    setenv("TTT_SYSFS_ROOT", root, 1);
    unset_topology();
    support_fake_open(&other);
    ASSERT_OK(load(&other));
    for (int i = 0; i < TOPOLOGY_VARIABLES; i++)
        assert_null(getenv(topology_variables[i])); /* only libtpu needs a topology */
    support_fake_remove(&other);
    support_fake_open(&fake);
    const char *path = support_path(fake.folder, "libtpu.so");
    assert_int_equal(rename(fake.path, path), 0);
    setenv("TPU_WORKER_ID", "7", 1);
    ASSERT_OK(pjrt_plugin_load(path, &fake.plugin));
    for (int i = 0; i < TOPOLOGY_VARIABLES; i++)
        assert_non_null(getenv(topology_variables[i]));
    assert_string_equal(getenv("TPU_SKIP_MDS_QUERY"), "1");
    assert_string_equal(getenv("ALLOW_MULTIPLE_LIBTPU_LOAD"), "1");
    assert_string_equal(getenv("TPU_WORKER_ID"), "7");
    support_fake_remove(&fake);
    support_remove_folder(root);
    unset_topology();
    unsetenv("TTT_SYSFS_ROOT");
}

static void files_that_are_no_plugins_are_refused(void **state)
{
    (void)state;
    char folder[PATH_MAX];
    pjrt_plugin *plugin;
    support_new_folder(folder);
    ASSERT_FAILS(pjrt_plugin_load(support_path(folder, "nothing.so"), &plugin), NOT_FOUND,
                 "nothing.so");
    assert_null(plugin);
    const char *text = support_path(folder, "text.so");
    support_write_file(text, "no library\n", 11);
    ASSERT_FAILS(pjrt_plugin_load(text, &plugin), UNAVAILABLE, "text.so");
    assert_null(plugin);
    ASSERT_FAILS(pjrt_plugin_load(folder, &plugin), UNAVAILABLE, folder);
    /* A library, but of something else. */
    Dl_info info;
    assert_int_not_equal(dladdr((void *)&cmocka_set_message_output, &info), 0);
    ASSERT_FAILS(pjrt_plugin_load(info.dli_fname, &plugin), FAILED_PRECONDITION,
                 "does not export GetPjrtApi");
    ASSERT_FAILS(pjrt_plugin_load("no_such_name", &plugin), NOT_FOUND, "use cpu, tpu, cuda");
    assert_null(plugin);
    support_remove_folder(folder);
}

static void the_hash_is_that_of_the_file(void **state)
{
    (void)state;
    support_fake a, b;
    const char *first, *again, *other;
    support_fake_open(&a);
    support_fake_open(&b);
    ASSERT_OK(load(&a));
    ASSERT_OK(load(&b));
    ASSERT_OK(pjrt_plugin_hash(a.plugin, &first));
    assert_int_equal(strlen(first), 32);
    support_fake_remove(&a); /* read once: the file is not needed again */
    ASSERT_OK(pjrt_plugin_hash(a.plugin, &again));
    assert_ptr_equal(first, again);
    ASSERT_OK(pjrt_plugin_hash(b.plugin, &other));
    assert_string_equal(first, other);
    support_fake_remove(&b);
}

static void a_file_that_is_gone_has_no_hash(void **state)
{
    (void)state;
    support_fake fake;
    const char *hash = "something";
    support_fake_open(&fake);
    ASSERT_OK(load(&fake));
    support_fake_remove(&fake);
    ASSERT_FAILS(pjrt_plugin_hash(fake.plugin, &hash), UNAVAILABLE, fake.path);
    assert_null(hash);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plugin_is_loaded_once_per_file),
        cmocka_unit_test(wrong_versions_are_refused_before_any_call),
        cmocka_unit_test(the_oldest_version_is_accepted),
        cmocka_unit_test(a_table_without_a_version_is_refused),
        cmocka_unit_test(a_newer_plugin_gets_longer_structs),
        cmocka_unit_test(the_fake_does_refuse_short_structs),
        cmocka_unit_test(entries_past_the_table_do_not_exist),
        cmocka_unit_test(missing_slots_are_told),
        cmocka_unit_test(a_plugin_may_lack_initialisation_and_attributes),
        cmocka_unit_test(errors_survive_missing_error_entries),
        cmocka_unit_test(the_plugins_own_words_arrive),
        cmocka_unit_test(all_entries_are_visited),
        cmocka_unit_test(attributes_of_every_kind_arrive),
        cmocka_unit_test(unknown_extensions_are_kept_and_passed),
        cmocka_unit_test(a_failed_start_is_final),
        cmocka_unit_test(a_topology_is_faked_only_without_chips),
        cmocka_unit_test(a_faked_topology_keeps_what_the_user_set),
        cmocka_unit_test(files_that_are_no_plugins_are_refused),
        cmocka_unit_test(the_hash_is_that_of_the_file),
        cmocka_unit_test(a_file_that_is_gone_has_no_hash),
    };
    return cmocka_run_group_tests_name("pjrt plugin", tests, NULL, NULL);
}
