/* The small CUDA kernels on the host, against the reference. */
#include "tests/kernels/cuda_test.h"

#include "tests/kernels/cuda_small.h"

/* Both filters look back on the same window, each with its own weights; steps follow each other. */
static void convolutions(void **)
{
    for (int width : {2, 3, 4}) {
        for (int filters : {1, 2}) {
            for (int types = 0; types < 4; types++) {
                conv_bench bench(filters, 11, 200, width, types % 2 != 0, types / 2 != 0);
                for (int step = 0; step < 3; step++) {
                    stored before = bench.tail;
                    bench.x.fill(bench.random, 1);
                    bench.run_kernel();
                    assert_string_equal(bench.machine.error().c_str(), "");
                    assert_true(bench.check(before) < (types % 2 != 0 ? 5e-3 : 1e-6));
                }
            }
        }
    }
}

static void norm_and_gate(void **)
{
    for (int channels : {64, 768, 2048, 2080, 8192}) {
        for (bool narrow : {false, true}) {
            gate_bench bench(3, channels, narrow);
            bench.run_kernel();
            assert_string_equal(bench.machine.error().c_str(), "");
            assert_true(bench.check() < (narrow ? 5e-3 : 3e-6));
        }
    }
}

/* Everything is read once and written once. */
static void nothing_is_moved_twice(void **)
{
    conv_bench conv(2, 8, 256, 4, false, false);
    conv.run_kernel();
    assert_int_equal(conv.machine.traffic("tail").read, conv.tail.bytes());
    assert_int_equal(conv.machine.traffic("tail").written, conv.tail.bytes());
    assert_int_equal(conv.machine.traffic("weight").read, 2 * conv.weight[0].bytes());
    assert_int_equal(conv.machine.traffic("y").written, 2 * conv.y[0].bytes());
    gate_bench gate(2, 768, false);
    gate.run_kernel();
    assert_int_equal(gate.machine.traffic("z").read, gate.z.bytes());
    assert_int_equal(gate.machine.traffic("gate").read, gate.gate.bytes());
    assert_int_equal(gate.machine.traffic("y").written, gate.y.bytes());
}

int main()
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convolutions),
        cmocka_unit_test(norm_and_gate),
        cmocka_unit_test(nothing_is_moved_twice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
