/*
 * The real compilers of hardware that is not here: libtpu for a pod of 256 chips, the CUDA plugin
 * for an A100. Both are newer than the header compiled in. Skipped where they are not installed.
 */
#include "pjrt/hlo/pjrt_hlo.h"
#include "tests/support/support.h"

#include "xla/ffi/api/c_api.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void find_existing(const char *path, bool exists, const char *why, void *user)
{
    (void)path, (void)why;
    *(bool *)user = *(bool *)user || exists;
}

static bool installed(const char *plugin)
{
    bool here = false;
    ASSERT_OK(pjrt_plugin_search(plugin, find_existing, &here));
    if (!here)
        print_message("the %s plugin is not installed here\n", plugin);
    return here;
}

/* The library's own search looks beside the program; the tests' plugins are in the cache. */
#define NEED(plugin)            \
    do {                        \
        if (!installed(plugin)) \
            skip();             \
    } while (0)

static const pjrt_hlo_collective *find_collective(const pjrt_hlo_report *report, const char *kind)
{
    for (size_t i = 0; i < report->collective_count; i++) {
        if (strstr(report->collectives[i].kind, kind) != NULL)
            return &report->collectives[i];
    }
    return NULL;
}

static pjrt_hlo_report *report_of(const pjrt_executable *exe)
{
    char *bytes;
    size_t size;
    const char *format;
    pjrt_hlo_report *report;
    ASSERT_OK(pjrt_executable_optimized(exe, &bytes, &size, &format));
    ASSERT_OK(pjrt_hlo_report_create(format, bytes, size, &report));
    free(bytes);
    return report;
}

/* ---- TPU ---- */

/* Both shard the contraction over 256 chips, so that each holds a part of the sum. */
static const char gspmd[] =
    "module @gspmd attributes {mhlo.num_partitions = 256 : i32, mhlo.num_replicas = 1 : i32} {\n"
    "  func.func public @main(\n"
    "      %a: tensor<512x4096xbf16> {mhlo.sharding = \"{devices=[1,256]<=[256]}\"},\n"
    "      %b: tensor<4096x512xbf16> {mhlo.sharding = \"{devices=[256,1]<=[256]}\"})\n"
    "      -> (tensor<512x512xbf16> {mhlo.sharding = \"{replicated}\"}) {\n"
    "    %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]\n"
    "         : (tensor<512x4096xbf16>, tensor<4096x512xbf16>) -> tensor<512x512xbf16>\n"
    "    return %0 : tensor<512x512xbf16>\n"
    "  }\n"
    "}\n";
static const char shardy[] =
    "module @shardy attributes {mhlo.num_partitions = 256 : i32, mhlo.num_replicas = 1 : i32} {\n"
    "  sdy.mesh @mesh = <[\"x\"=256]>\n"
    "  func.func public @main(\n"
    "      %a: tensor<512x4096xbf16> {sdy.sharding = #sdy.sharding<@mesh, [{}, {\"x\"}]>},\n"
    "      %b: tensor<4096x512xbf16> {sdy.sharding = #sdy.sharding<@mesh, [{\"x\"}, {}]>})\n"
    "      -> (tensor<512x512xbf16> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}) {\n"
    "    %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]\n"
    "         : (tensor<512x4096xbf16>, tensor<4096x512xbf16>) -> tensor<512x512xbf16>\n"
    "    return %0 : tensor<512x512xbf16>\n"
    "  }\n"
    "}\n";

static const char four[] =
    "module @four attributes {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32} {\n"
    "  sdy.mesh @mesh = <[\"x\"=4]>\n"
    "  func.func public @main(\n"
    "      %a: tensor<64x256xbf16> {sdy.sharding = #sdy.sharding<@mesh, [{}, {\"x\"}]>},\n"
    "      %b: tensor<256x64xbf16> {sdy.sharding = #sdy.sharding<@mesh, [{\"x\"}, {}]>})\n"
    "      -> (tensor<64x64xbf16> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}) {\n"
    "    %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]\n"
    "         : (tensor<64x256xbf16>, tensor<256x64xbf16>) -> tensor<64x64xbf16>\n"
    "    return %0 : tensor<64x64xbf16>\n"
    "  }\n"
    "}\n";

static void check_sharded(pjrt_topology *topology, const char *text)
{
    pjrt_executable *exe;
    const pjrt_shape *shapes;
    pjrt_memory_stats memory;
    int count;
    ASSERT_OK(pjrt_compile_ahead(topology, pjrt_program_text(text),
                                 &(pjrt_compile_options){.partitions = 256}, &exe));
    assert_int_equal(pjrt_executable_num_devices(exe), 256);
    ASSERT_OK(pjrt_executable_arguments(exe, &shapes, &count));
    assert_int_equal(count, 2);
    assert_true(pjrt_shape_equal(&shapes[0], &(pjrt_shape){PJRT_BF16, 2, {512, 16}}));
    assert_true(pjrt_shape_equal(&shapes[1], &(pjrt_shape){PJRT_BF16, 2, {16, 512}}));
    assert_true(
        pjrt_shape_equal(pjrt_executable_result(exe, 0), &(pjrt_shape){PJRT_BF16, 2, {512, 512}}));
    ASSERT_OK(pjrt_executable_memory(exe, &memory));
    assert_true(memory.arguments > 0 && memory.results > 0 && memory.code > 0);
    pjrt_hlo_report *report = report_of(exe);
    const pjrt_hlo_collective *sum = find_collective(report, "all-reduce");
    if (sum == NULL)
        sum = find_collective(report, "reduce-scatter");
    assert_non_null(sum); /* the parts of the sum must meet */
    assert_true(sum->bytes > 0);
    assert_true(report->total.flops >= 2.0 * 512 * 16 * 512);
    assert_true(report->total.cycles > 0);
    pjrt_hlo_report_free(report);
    pjrt_executable_free(exe);
}

static void a_pod_of_256_chips(void **state)
{
    (void)state;
    NEED("tpu");
    const pjrt_target *target;
    pjrt_topology *topology;
    ASSERT_OK(pjrt_target_open("tpu:v5e:16x16", &target, &topology));
    assert_int_equal(pjrt_topology_num_devices(topology), 256);
    assert_string_equal(pjrt_topology_platform(topology), "tpu");
    assert_string_equal(pjrt_topology_device_kind(topology), "TPU v5 lite");
    check_sharded(topology, gspmd);
    check_sharded(topology, shardy);
    pjrt_topology_free(topology);
}

/* T1: it reports a version newer than the header and checks sizes; and loading it asked nobody. */
static void libtpu_is_newer_and_calm(void **state)
{
    (void)state;
    NEED("tpu");
    static const char *const set[] = {"TPU_SKIP_MDS_QUERY", "TPU_ACCELERATOR_TYPE",
                                      "TPU_WORKER_HOSTNAMES", "TPU_WORKER_ID",
                                      "ALLOW_MULTIPLE_LIBTPU_LOAD"};
    pjrt_plugin *plugin;
    int major, minor;
    ASSERT_OK(pjrt_plugin_load("tpu", &plugin));
    for (size_t i = 0; i < sizeof set / sizeof *set; i++)
        assert_non_null(getenv(set[i]));
    pjrt_plugin_version(plugin, &major, &minor);
    assert_int_equal(major, PJRT_API_MAJOR);
    assert_in_range(minor, PJRT_API_MINOR + 1, 10000);
}

/* A matrix product that is split over four devices, for every chip in the table. */
static void every_target_compiles(void **state)
{
    (void)state;
    NEED("tpu");
    NEED("cuda");
    size_t count;
    const pjrt_target *targets = pjrt_targets(&count);
    for (size_t i = 0; i < count; i++) {
        const pjrt_target *target;
        pjrt_topology *topology;
        pjrt_executable *exe;
        size_t size;
        char name[64];
        bool gpu = strcmp(targets[i].plugin, "cuda") == 0;
        if (strcmp(targets[i].plugin, "cpu") == 0)
            continue;
        snprintf(name, sizeof name, "%s%s", targets[i].name, gpu ? ":4" : "");
        ASSERT_OK(pjrt_target_open(name, &target, &topology));
        assert_ptr_equal(target, &targets[i]);
        /* A TPU chip is one device: its figures are those of a chip. */
        assert_int_equal(pjrt_topology_num_devices(topology), 4);
        ASSERT_OK(pjrt_compile_ahead(topology, pjrt_program_text(four),
                                     &(pjrt_compile_options){.partitions = 4}, &exe));
        ASSERT_OK(pjrt_executable_size(exe, &size));
        assert_in_range(size, 1000, 1 << 30);
        pjrt_hlo_report *report = report_of(exe);
        assert_true(report->collective_count > 0);
        pjrt_hlo_report_free(report);
        pjrt_executable_free(exe);
        pjrt_topology_free(topology);
        assert_true(target->bf16_flops > 0 && target->bytes_per_second > 0);
        assert_true(target->memory_bytes > 0 && target->link_bytes_per_second > 0);
        /* Links are slower than memory, and that than arithmetic, on every chip there is. */
        assert_true(target->link_bytes_per_second < target->bytes_per_second);
    }
}

static void what_libtpu_compiled_can_be_saved(void **state)
{
    (void)state;
    NEED("tpu");
    char folder[PATH_MAX];
    const pjrt_target *target;
    pjrt_topology *topology;
    pjrt_executable *exe;
    size_t size;
    ASSERT_OK(pjrt_target_open("tpu:v5e:2x2", &target, &topology));
    ASSERT_OK(pjrt_compile_ahead(topology,
                                 pjrt_program_text("func.func @main(%a: tensor<8x128xf32>) -> "
                                                   "tensor<8x128xf32> { %0 = stablehlo.add %a, %a "
                                                   ": tensor<8x128xf32> return %0 : "
                                                   "tensor<8x128xf32> }"),
                                 NULL, &exe));
    const char *path = support_path(support_new_folder(folder), "add.exe");
    ASSERT_OK(pjrt_executable_save(exe, path));
    unsigned char *bytes = support_read_file(path, &size);
    assert_in_range(size, 1000, 1 << 30);
    free(bytes);
    pjrt_buffer *none;
    ASSERT_FAILS(pjrt_execute(exe, NULL, 0, NULL, &none, 1, NULL), FAILED_PRECONDITION,
                 "ahead of time");
    pjrt_executable_free(exe);
    pjrt_topology_free(topology);
    support_remove_folder(folder);
}

static void a_compilers_refusal_is_a_status(void **state)
{
    (void)state;
    NEED("tpu");
    const pjrt_target *target;
    pjrt_topology *topology = (pjrt_topology *)state;
    pjrt_status *st = pjrt_target_open("tpu:v5e:nonsense", &target, &topology);
    assert_non_null(st);
    assert_null(topology);
    assert_string_equal(pjrt_status_call(st), "PJRT_TopologyDescription_Create");
    pjrt_status_free(st);
    pjrt_executable *exe;
    ASSERT_OK(pjrt_target_open("tpu:v5e:2x2", &target, &topology));
    st = pjrt_compile_ahead(topology, pjrt_program_text("no program"), NULL, &exe);
    assert_string_equal(pjrt_status_call(st), "PJRT_Compile");
    assert_null(exe);
    pjrt_status_free(st);
    pjrt_topology_free(topology);
}

/* Two processes compile at once: libtpu's lock would let only one of them in. The children are new
 * programs, because a child of fork alone must not touch a plugin that was loaded before. */
static void two_processes_load_libtpu_at_once(void **state)
{
    (void)state;
    NEED("tpu");
    pid_t children[2];
    for (int i = 0; i < 2; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] == 0) {
            setenv("TTT_AHEAD_CHILD", "1", 1);
            execl("/proc/self/exe", "test_ahead", (char *)NULL);
            _exit(127);
        }
    }
    for (int i = 0; i < 2; i++) {
        int status = -1;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
}

static int child(void)
{
    const pjrt_target *target;
    pjrt_topology *topology;
    pjrt_status *st = pjrt_target_open("tpu:v5e:2x2", &target, &topology);
    if (st != NULL)
        fprintf(stderr, "%s\n", pjrt_status_text(st));
    pjrt_topology_free(topology);
    pjrt_status_free(st);
    return st == NULL ? 0 : 1;
}

/* ---- CUDA ---- */

static XLA_FFI_Error *handler(XLA_FFI_CallFrame *frame)
{
    return pjrt_ffi_answer_metadata(frame, true) ? NULL : (XLA_FFI_Error *)frame;
}

/* T1, T32, T33: our handler compiles into a program for a GPU that is not here; others do not. */
static void an_a100_with_a_custom_call(void **state)
{
    (void)state;
    NEED("cuda");
    const pjrt_target *target;
    pjrt_topology *topology;
    pjrt_plugin *plugin;
    int major, minor;
    ASSERT_OK(pjrt_target_open("cuda:a100-sxm-40gb", &target, &topology));
    ASSERT_OK(pjrt_plugin_load("cuda", &plugin));
    pjrt_plugin_version(plugin, &major, &minor);
    assert_in_range(minor, PJRT_API_MINOR + 1, 10000);
    assert_int_equal(pjrt_topology_num_devices(topology), 1);
    pjrt_status *st = pjrt_ffi_probe(NULL, topology, "ttt_test_nobody");
    ASSERT_CONTAINS(pjrt_status_message(st), "ttt_test_nobody");
    pjrt_status_free(st);
    XLA_FFI_Handler *function = handler;
    void *pointer;
    memcpy(&pointer, &function, sizeof pointer);
    ASSERT_OK(pjrt_ffi_register(plugin, "ttt_test_cuda", "CUDA", pointer, true));
    ASSERT_OK(pjrt_ffi_probe(NULL, topology, "ttt_test_cuda"));
    pjrt_executable *exe;
    pjrt_memory_stats memory;
    ASSERT_OK(pjrt_compile_ahead(
        topology,
        pjrt_program_text("func.func @main(%a: tensor<64x64xf32>) -> tensor<64x64xf32> {\n"
                          "  %0 = stablehlo.custom_call @ttt_test_cuda(%a) {api_version = 4 : i32}"
                          " : (tensor<64x64xf32>) -> tensor<64x64xf32>\n"
                          "  %1 = stablehlo.add %0, %a : tensor<64x64xf32>\n"
                          "  return %1 : tensor<64x64xf32>\n}"),
        NULL, &exe));
    ASSERT_OK(pjrt_executable_memory(exe, &memory));
    assert_int_equal(memory.arguments, 64 * 64 * 4);
    pjrt_hlo_report *report = report_of(exe);
    bool called = false;
    for (size_t i = 0; i < report->custom_call_count; i++)
        called = called || strcmp(report->custom_calls[i].name, "ttt_test_cuda") == 0;
    assert_true(called);
    pjrt_hlo_report_free(report);
    char folder[PATH_MAX];
    ASSERT_OK(pjrt_executable_save(exe, support_path(support_new_folder(folder), "a100.exe")));
    support_remove_folder(folder);
    pjrt_executable_free(exe);
    pjrt_topology_free(topology);
}

static void a_machine_without_gpus_says_so(void **state)
{
    (void)state;
    NEED("cuda");
    pjrt_plugin *plugin;
    pjrt_client *client = (pjrt_client *)state;
    if (access("/dev/nvidiactl", F_OK) == 0) {
        print_message("there is a GPU here\n");
        skip();
    }
    ASSERT_OK(pjrt_plugin_load("cuda", &plugin));
    pjrt_status *st = pjrt_client_create(plugin, NULL, &client);
    assert_non_null(st);
    assert_null(client);
    assert_string_equal(pjrt_status_call(st), "PJRT_Client_Create");
    pjrt_status_free(st);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pod_of_256_chips),
        cmocka_unit_test(libtpu_is_newer_and_calm),
        cmocka_unit_test(every_target_compiles),
        cmocka_unit_test(what_libtpu_compiled_can_be_saved),
        cmocka_unit_test(a_compilers_refusal_is_a_status),
        cmocka_unit_test(two_processes_load_libtpu_at_once),
        cmocka_unit_test(an_a100_with_a_custom_call),
        cmocka_unit_test(a_machine_without_gpus_says_so),
    };
    if (getenv("TTT_AHEAD_CHILD") != NULL)
        return child();
    return cmocka_run_group_tests_name("pjrt ahead", tests, NULL, NULL);
}
