/*
 * What kernels move to and from global memory, against the least that is possible: the weights read
 * once, the sums read and written once, the weights written where a mini-batch ends. With an
 * argument it prints the table of docs/kernels.md instead.
 */
#include "tests/kernels/cuda_test.h"

#include "tests/kernels/cuda_scan.h"
#include "tests/kernels/cuda_step.h"

#include <cstdio>

/* A GPU's public figures: bytes a second of its memory, operations a second in f32 and, on tensor
 * cores, in bf16. */
struct gpu {
    const char *name;
    double bandwidth, flops, tensor_flops;
};
static const gpu gpus[] = {{"A100 80 GB", 2.039e12, 19.5e12, 312e12},
                           {"H100 SXM", 3.35e12, 66.9e12, 989e12}};

struct moved {
    double bytes, least, flops;
};

/* A token of one head, the mean over a mini-batch of 16. */
static moved measure(const step_case &c)
{
    step_bench bench(c);
    double n = (double)(c.batch * c.heads * c.mini_batch);
    for (int i = 0; i < c.mini_batch; i++)
        bench.step(true);
    assert_string_equal(bench.machine.error().c_str(), "");
    host::bytes_moved all = bench.machine.traffic();
    double state = 0, act = c.act_bf16 ? 2 : 4;
    for (int i = 0; i < c.layers; i++)
        state += (double)(bench.w[i].bytes() + bench.b[i].bytes()) / (c.batch * c.heads);
    double least = (3 + 1.0 / c.mini_batch) * state + 4 * c.d * act + 2 * c.d * 4 + 3 * 4;
    return {(double)(all.read + all.written) / n, least, (double)bench.machine.flops() / n};
}

/* A token of one head of a scan, the mean over 16 mini-batches. */
static moved measure_scan(const scan_case &c)
{
    scan_bench bench(c);
    double n = (double)(c.batch * c.heads * c.tokens * c.count), state = 0;
    bench.run_kernel(false);
    assert_string_equal(bench.machine.error().c_str(), "");
    host::bytes_moved all = bench.machine.traffic();
    for (int i = 0; i < c.layers; i++)
        state += (double)(bench.w[i].bytes() + bench.b[i].bytes());
    double least = 4.0 * (4 * c.d + c.tokens) + (2 * state + 8 * c.d) / n;
    return {(double)(all.read + all.written) / n, least, (double)bench.machine.flops() / n};
}

static step_case mean_case(int layers, int d, bool bf16_state, bool cluster)
{
    return {layers, d, 16, 1, 1, true, bf16_state, cluster, 10000};
}

static void little_more_than_the_least_is_moved(void **)
{
    for (int d : {64, 96, 128}) {
        if (LONG_RUN == 1 && d != 64)
            continue;
        for (int kind = 0; kind < 3; kind++) {
            for (bool narrow : {false, true}) {
                moved m = measure(mean_case(kind == 0 ? 1 : 2, d, narrow, kind == 2));
                if (m.bytes > 1.15 * m.least || m.bytes < m.least)
                    fail_msg("kind %d, d %d: %g bytes, %g are enough", kind, d, m.bytes, m.least);
            }
        }
    }
}

/* A part of a cluster reads all keys and queries, as the others do: mostly from the L2 cache, which
 * is not counted here. */
static void scans_read_their_tokens_once(void **)
{
    for (int d : {64, 96, 128}) {
        for (int tokens : {16, 64}) {
            moved m = measure_scan({1, d, tokens, 4, 1, 1, false, false});
            assert_true(m.bytes <= 1.15 * m.least && m.bytes >= m.least);
        }
    }
    moved one_block = measure_scan({2, 64, 16, 4, 1, 1, false, false});
    assert_true(one_block.bytes <= 1.15 * one_block.least);
}

/* Within a mini-batch weights are only read, sums read and written, each once. */
static void the_state_is_touched_once(void **)
{
    for (int kind = 0; kind < 3; kind++) {
        step_bench bench(mean_case(kind == 0 ? 1 : 2, 64, false, kind == 2));
        uint64_t bytes = 0;
        for (int i = 0; i < bench.c.layers; i++)
            bytes += bench.w[i].bytes();
        for (int token = 0; token < 16; token++) {
            bench.machine.clear_counts();
            bench.step(true);
            host::bytes_moved w = bench.machine.traffic("W"), s = bench.machine.traffic("W_sum");
            assert_int_equal(w.read, bytes);
            assert_int_equal(w.written, token == 15 ? bytes : 0);
            assert_int_equal(s.read, bytes);
            assert_int_equal(s.written, bytes);
        }
    }
}

static void print_steps()
{
    static const char *const kinds[] = {"Linear", "MLP, one block", "MLP, a cluster"};
    printf("| learner | d | state | kB a token and head | of the least | flops | flops a byte |");
    for (const gpu &g : gpus)
        printf(" %s: M tokens and heads a second at most |", g.name);
    printf("\n|---|---|---|---|---|---|---|---|---|\n");
    for (int kind = 0; kind < 3; kind++) {
        for (int d : {64, 96, 128}) {
            for (bool narrow : {false, true}) {
                moved m = measure(mean_case(kind == 0 ? 1 : 2, d, narrow, kind == 2));
                printf("| %s | %d | %s | %.1f | %.3f | %.0f k | %.2f |", kinds[kind], d,
                       narrow ? "bf16" : "f32", m.bytes / 1e3, m.bytes / m.least, m.flops / 1e3,
                       m.flops / m.bytes);
                for (const gpu &g : gpus)
                    printf(" %.1f |", std::min(g.bandwidth / m.bytes, g.flops / m.flops) / 1e6);
                printf("\n");
            }
        }
    }
}

static void print_scans()
{
    static const char *const kinds[] = {"Linear", "MLP, one block", "MLP, a cluster"};
    printf("\n| scan of 16 mini-batches of 16 | d | products | bytes a token and head | of the "
           "least | "
           "flops | flops a byte |");
    for (const gpu &g : gpus)
        printf(" %s: M tokens and heads a second at most |", g.name);
    printf("\n|---|---|---|---|---|---|---|---|---|\n");
    for (int kind = 0; kind < 3; kind++) {
        for (int d : {64, 96, 128}) {
            for (bool exact : {false, true}) {
                if (kind == 1 && d != 64)
                    continue;
                moved m = measure_scan({kind == 0 ? 1 : 2, d, 16, 16, 1, 1, exact, kind == 2});
                printf("| %s | %d | %s | %.0f | %.2f | %.0f k | %.0f |", kinds[kind], d,
                       exact ? "exact" : "bf16", m.bytes, m.bytes / m.least, m.flops / 1e3,
                       m.flops / m.bytes);
                for (const gpu &g : gpus)
                    printf(" %.0f |",
                           std::min(g.bandwidth / m.least, g.tensor_flops / m.flops) / 1e6);
                printf("\n");
            }
        }
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(little_more_than_the_least_is_moved),
        cmocka_unit_test(the_state_is_touched_once),
        cmocka_unit_test(scans_read_their_tokens_once),
    };
    (void)argv;
    if (argc > 1) {
        print_steps();
        print_scans();
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
