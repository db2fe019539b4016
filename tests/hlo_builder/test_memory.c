/*
 * Proof of memory: the gradient of a long scan with a 256 KB carry, compiled and not run. The
 * compilers' own figures must grow with the length T without checkpoints, and as T / k + k with
 * them, on XLA:CPU and for a TPU v5e.
 */
#include "hlo_builder/hlo.h"
#include "tests/support/support.h"

#include <stdio.h>
#include <stdlib.h>

enum { CARRY_BYTES = 256 * 1024 };

static void step(hlo_graph *g, void *ctx, hlo_val number, const hlo_val *carry, const hlo_val *x,
                 hlo_val *next, hlo_val *y)
{
    const hlo_val *w = ctx;
    (void)number, (void)x, (void)y;
    next[0] = hlo_tanh(g, hlo_matmul(g, carry[0], *w));
}

static char *program(int64_t length, const int64_t checkpoint[2])
{
    hlo_graph *g = hlo_graph_new("long_scan");
    assert_non_null(g);
    hlo_val w = hlo_param(g, "w", HLO_SHAPE(HLO_F32, 256, 256)), d;
    hlo_val carry = hlo_param(g, "start", HLO_SHAPE(HLO_F32, 256, 256));
    hlo_scan_options options = {.length = length};
    options.checkpoint[0] = checkpoint[0];
    options.checkpoint[1] = checkpoint[1];
    hlo_scan(g, step, &w, &carry, 1, NULL, 0, NULL, 0, &options);
    hlo_grad(g, hlo_sum(g, carry, HLO_DIMS(0, 1)), &w, 1, &d);
    hlo_result(g, "d_w", d);
    char *text = hlo_write_text(g, NULL);
    if (text == NULL)
        fail_msg("%s", hlo_graph_error(g)->message);
    hlo_graph_free(g);
    return text;
}

/* Temporary bytes, in carries, of the program on the target. */
static double temporaries(const char *target_name, int64_t length, int64_t k, int64_t k2)
{
    const pjrt_target *target;
    pjrt_topology *topology;
    pjrt_client *client = NULL;
    pjrt_executable *exe;
    pjrt_memory_stats stats;
    char *text = program(length, (const int64_t[]){k, k2});
    ASSERT_OK(pjrt_target_open(target_name, &target, &topology));
    if (topology == NULL) {
        pjrt_plugin *plugin;
        ASSERT_OK(pjrt_plugin_load("cpu", &plugin));
        ASSERT_OK(pjrt_client_create(plugin, NULL, &client));
        ASSERT_OK(pjrt_compile(client, pjrt_program_text(text), NULL, &exe));
    } else {
        ASSERT_OK(pjrt_compile_ahead(topology, pjrt_program_text(text), NULL, &exe));
    }
    ASSERT_OK(pjrt_executable_memory(exe, &stats));
    free(text);
    pjrt_executable_free(exe);
    pjrt_topology_free(topology);
    pjrt_client_free(client);
    /* The TPU compiler counts only HBM as temporary: what fits on the chip, as all of it does with
     * checkpoints, shows in the peak alone. */
    int64_t bytes = stats.temp > 0 ? stats.temp : stats.peak - stats.arguments;
    double carries = (double)bytes / CARRY_BYTES;
    printf("  %-12s T = %4d, groups of %2d x %2d: %7.1f carries\n", target_name, (int)length,
           (int)k, (int)k2, carries);
    return carries;
}

static void check_growth(const char *target)
{
    static const struct {
        int64_t length, k;
    } cases[] = {{512, 16}, {2048, 32}, {8192, 64}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double groups = (double)cases[i].length / (double)cases[i].k + (double)cases[i].k;
        double kept = temporaries(target, cases[i].length, cases[i].k, 0);
        /* Seen: T / k + 2 k + 5 on the CPU (a group keeps its carries as they go in and as they
         * come out of tanh), T / k + k + 12 to 36 on the TPU. */
        assert_in_range((uintmax_t)kept, (uintmax_t)(0.9 * groups), (uintmax_t)(2 * groups + 16));
        if (cases[i].length == 512)
            assert_true(temporaries(target, cases[i].length, 0, 0) > 0.95 * 512);
    }
    /* Two levels: 8192 = 16 * 16 * 32 needs a carry for each of 32 + 16 + 16. */
    assert_true(temporaries(target, 8192, 16, 16) < 2 * (32 + 16 + 16) + 16);
}

static void memory_grows_with_groups_on_cpu(void **state)
{
    (void)state;
    check_growth("cpu");
}

static void memory_grows_with_groups_on_tpu(void **state)
{
    (void)state;
    check_growth("tpu:v5e:2x2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_grows_with_groups_on_cpu),
        cmocka_unit_test(memory_grows_with_groups_on_tpu),
    };
    return cmocka_run_group_tests_name("hlo_builder_memory", tests, NULL, NULL);
}
