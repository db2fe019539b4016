/* ttt_scan of the CUDA source, run on the host, against the reference. */
#include "tests/kernels/cuda_test.h"

#include "tests/kernels/cuda_scan.h"

static void run(const scan_case &c, bool backwards)
{
    scan_bench bench(c);
    bench.run(backwards);
    assert_string_equal(bench.machine.error().c_str(), "");
    double allowed = c.exact ? 3e-5 : 1e-2;
    if (!(bench.worst_answer <= allowed) || !(bench.worst_state <= allowed))
        fail_msg("layers %d, d %d, %d tokens, exact %d: %g and %g off", c.layers, c.d, c.tokens,
                 c.exact, bench.worst_answer, bench.worst_state);
}

static void linear_in_every_shape(void **)
{
    for (int d : {64, 96, 128}) {
        for (int tokens : {1, 3, 16, 20, 64}) {
            run({1, d, tokens, 3, 2, 1, true, false}, false);
            run({1, d, tokens, 2, 1, 2, false, false}, true);
        }
    }
}

static void mlp_in_every_shape(void **)
{
    for (int d : {64, 96, 128}) {
        for (int tokens : {1, 3, 16}) {
            run({2, d, tokens, 3, 1, 2, true, true}, false);
            run({2, d, tokens, 2, 2, 1, false, true}, true);
        }
    }
    for (int tokens : {20, 64})
        run({2, 64, tokens, 2, 1, 1, tokens == 20, true}, false);
}

static void mlp_in_one_block(void **)
{
    for (int tokens : {1, 3, 16}) {
        run({2, 64, tokens, 3, 1, 1, true, false}, false);
        run({2, 64, tokens, 2, 1, 1, false, false}, true);
    }
}

/* Errors do not add up over a long sequence: 128 mini-batches. */
static void linear_over_a_long_sequence(void **)
{
    run({1, 64, 16, 128, 1, 1, true, false}, false);
    run({1, 64, 16, 128, 1, 1, false, false}, false);
}

int main()
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_in_every_shape),
        cmocka_unit_test(mlp_in_every_shape),
        cmocka_unit_test(mlp_in_one_block),
        cmocka_unit_test(linear_over_a_long_sequence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
