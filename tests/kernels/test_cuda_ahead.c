/*
 * Programs that call the CUDA handlers, compiled ahead of time by the real CUDA plugin for GPUs
 * that are not here: the handlers are asked what they are, calls reach the executable with their
 * operands in place, and nothing needs a driver. Skipped where the plugin is not installed.
 */
#include "kernels/ttt_kernels.h"
#include "pjrt/hlo/pjrt_hlo.h"
#include "tests/support/support.h"

#include <stdio.h>
#include <stdlib.h>

static void find_existing(const char *path, bool exists, const char *why, void *user)
{
    (void)path, (void)why;
    *(bool *)user = *(bool *)user || exists;
}

/* All handlers, registered with the plugin; false where either is missing. */
static bool registered(void)
{
    bool here = false;
    size_t count;
    const char *why;
    const ttt_kernel *list = ttt_kernels_cuda(&count, &why);
    pjrt_plugin *plugin;
    ASSERT_OK(pjrt_plugin_search("cuda", find_existing, &here));
    if (list == NULL || !here) {
        print_message("%s\n", list == NULL ? why : "the cuda plugin is not installed here");
        return false;
    }
    ASSERT_OK(pjrt_plugin_load("cuda", &plugin));
    for (size_t i = 0; i < count; i++)
        ASSERT_OK(pjrt_ffi_register(plugin, list[i].target, "CUDA", list[i].handler,
                                    list[i].command_buffer));
    return true;
}

#define STATE "tensor<2x4x64x64xf32>"
#define BIAS "tensor<2x4x1x64xf32>"
#define ROW "tensor<2x256xbf16>"

/* One token of ttt_step. The state goes in and out of the program in place. */
static const char step[] =
    "func.func @main(%x: " ROW ", %y: " ROW ", %v: " ROW ", %rate: tensor<2x4xf32>,\n"
    "    %pos: tensor<2xi32>, %place: tensor<2xi32>, %moves: tensor<16xf32>,\n"
    "    %ns: tensor<4x64xf32>, %nb: tensor<4x64xf32>,\n"
    "    %w: " STATE " {tf.aliasing_output = 1 : i32},\n"
    "    %b: " BIAS " {tf.aliasing_output = 2 : i32},\n"
    "    %ws: " STATE " {tf.aliasing_output = 3 : i32},\n"
    "    %bs: " BIAS " {tf.aliasing_output = 4 : i32})\n"
    "    -> (" ROW ", " STATE ", " BIAS ", " STATE ", " BIAS ") {\n"
    "  %q = stablehlo.reshape %x : (" ROW ") -> tensor<2x4x64xbf16>\n"
    "  %k = stablehlo.reshape %y : (" ROW ") -> tensor<2x4x64xbf16>\n"
    "  %vh = stablehlo.reshape %v : (" ROW ") -> tensor<2x4x64xbf16>\n"
    "  %s:5 = stablehlo.custom_call @ttt_step(%q, %k, %vh, %rate, %pos, %place, %moves, %ns, %nb,\n"
    "      %w, %b, %ws, %bs) {api_version = 4 : i32,\n"
    "      backend_config = {layers = 1 : i64, mini_batch = 16 : i64, theta = 1.0e4 : f32,\n"
    "                        epsilon = 1.0e-6 : f32, rate = 1.5625e-2 : f32},\n"
    "      output_operand_aliases = [\n"
    "      #stablehlo.output_operand_alias<output_tuple_indices = [1], operand_index = 9,\n"
    "        operand_tuple_indices = []>,\n"
    "      #stablehlo.output_operand_alias<output_tuple_indices = [2], operand_index = 10,\n"
    "        operand_tuple_indices = []>,\n"
    "      #stablehlo.output_operand_alias<output_tuple_indices = [3], operand_index = 11,\n"
    "        operand_tuple_indices = []>,\n"
    "      #stablehlo.output_operand_alias<output_tuple_indices = [4], operand_index = 12,\n"
    "        operand_tuple_indices = []>]}\n"
    "    : (tensor<2x4x64xbf16>, tensor<2x4x64xbf16>, tensor<2x4x64xbf16>, tensor<2x4xf32>,\n"
    "       tensor<2xi32>, tensor<2xi32>, tensor<16xf32>, tensor<4x64xf32>, tensor<4x64xf32>,\n"
    "       " STATE ", " BIAS ", " STATE ", " BIAS ")\n"
    "    -> (" ROW ", " STATE ", " BIAS ", " STATE ", " BIAS ")\n"
    "  return %s#0, %s#1, %s#2, %s#3, %s#4\n"
    "    : " ROW ", " STATE ", " BIAS ", " STATE ", " BIAS "\n"
    "}\n";

#define TOKENS "tensor<8x2x4x16x64xf32>"
#define RATES "tensor<8x2x4x16x16xf32>"

static const char scan[] =
    "func.func @main(%k: " TOKENS ", %t: " TOKENS ", %q: " TOKENS ", %e: " RATES ",\n"
    "    %ns: tensor<4x64xf32>, %nb: tensor<4x64xf32>, %w: " STATE ", %b: " BIAS ")\n"
    "    -> (" TOKENS ", " STATE ", " BIAS ") {\n"
    "  %a:3 = stablehlo.custom_call @ttt_scan(%k, %t, %q, %e, %ns, %nb, %w, %b)\n"
    "    {api_version = 4 : i32, backend_config = {layers = 1 : i64, epsilon = 1.0e-6 : f32}}\n"
    "    : (" TOKENS ", " TOKENS ", " TOKENS ", " RATES ", tensor<4x64xf32>, tensor<4x64xf32>,\n"
    "       " STATE ", " BIAS ") -> (" TOKENS ", " STATE ", " BIAS ")\n"
    "  return %a#0, %a#1, %a#2 : " TOKENS ", " STATE ", " BIAS "\n"
    "}\n";

static bool calls(const pjrt_executable *exe, const char *target)
{
    char *bytes;
    size_t size;
    const char *format;
    pjrt_hlo_report *report;
    bool found = false;
    ASSERT_OK(pjrt_executable_optimized(exe, &bytes, &size, &format));
    ASSERT_OK(pjrt_hlo_report_create(format, bytes, size, &report));
    free(bytes);
    for (size_t i = 0; i < report->custom_call_count; i++)
        found = found || strcmp(report->custom_calls[i].name, target) == 0;
    pjrt_hlo_report_free(report);
    return found;
}

static const char *const gpus[] = {"cuda:a100-sxm-80gb", "cuda:h100-sxm", "cuda:b200"};

static pjrt_executable *compiled(const char *gpu, const char *program)
{
    const pjrt_target *target;
    pjrt_topology *topology;
    pjrt_executable *exe;
    ASSERT_OK(pjrt_target_open(gpu, &target, &topology));
    ASSERT_OK(pjrt_compile_ahead(topology, pjrt_program_text(program), NULL, &exe));
    pjrt_topology_free(topology);
    return exe;
}

static void a_step_compiles_for_gpus_that_are_not_here(void **state)
{
    (void)state;
    if (!registered())
        skip();
    for (size_t i = 0; i < sizeof gpus / sizeof *gpus; i++) {
        pjrt_executable *exe = compiled(gpus[i], step);
        pjrt_memory_stats memory;
        assert_true(calls(exe, "ttt_step"));
        ASSERT_OK(pjrt_executable_memory(exe, &memory));
        /* All of the state is updated where it lies, without a copy beside it. */
        int64_t kept = 2 * 2 * 4 * (64 * 64 + 64) * 4;
        assert_in_range(memory.alias, kept, kept + 4096);
        assert_in_range(memory.temp, 0, kept / 2);
        pjrt_executable_free(exe);
    }
}

static void a_scan_compiles_for_gpus_that_are_not_here(void **state)
{
    (void)state;
    if (!registered())
        skip();
    for (size_t i = 0; i < sizeof gpus / sizeof *gpus; i++) {
        pjrt_executable *exe = compiled(gpus[i], scan);
        assert_true(calls(exe, "ttt_scan"));
        pjrt_executable_free(exe);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_compiles_for_gpus_that_are_not_here),
        cmocka_unit_test(a_scan_compiles_for_gpus_that_are_not_here),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
