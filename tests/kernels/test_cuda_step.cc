/* ttt_step of the CUDA source, run on the host, against the reference. */
#include "tests/kernels/cuda_test.h"

#include "tests/kernels/cuda_step.h"

/* Runs a case and holds its errors against what its types allow. */
static void run(const step_case &c, int steps)
{
    step_bench bench(c);
    for (int i = 0; i < steps; i++)
        bench.step(c.state_bf16, i % 2 == 1);
    assert_string_equal(bench.machine.error().c_str(), "");
    double answers = c.act_bf16 ? 5e-3 : 3e-5, state = c.state_bf16 ? 5e-3 : 3e-5;
    if (!(bench.worst_answer <= answers) || !(bench.worst_state <= state))
        fail_msg("layers %d, d %d, mini-batch %d, act %d, state %d: %g and %g off", c.layers, c.d,
                 c.mini_batch, c.act_bf16, c.state_bf16, bench.worst_answer, bench.worst_state);
}

static void every_shape(int layers, bool cluster)
{
    for (int d : {64, 96, 128}) {
        for (int mini : {0, 1, 3, 16, 64}) {
            bool narrow = mini == 3 || mini == 16;
            if (LONG_RUN == 1 && mini != 3 && mini != 0)
                continue;
            run({layers, d, mini, 2, 2, narrow, false, cluster, 10000}, mini < 16 ? 5 : 3);
            run({layers, d, mini, 2, 1, !narrow, true, cluster, 10000}, 3);
        }
    }
}

static void linear_in_every_shape(void **)
{
    every_shape(1, false);
}

static void mlp_in_every_shape_in_one_block(void **)
{
    every_shape(2, false);
}

static void mlp_in_every_shape_in_a_cluster(void **)
{
    every_shape(2, true);
}

static void mlp_over_many_tokens(void **)
{
    run({2, 64, 16, 1, 1, false, false, true, 10000}, 50 * LONG_RUN);
}

static void without_rotation(void **)
{
    run({1, 64, 3, 1, 2, false, false, false, 0}, 4);
}

/* The reference never looks at the kernel's state: errors would add up. */
static void linear_over_thousands_of_tokens(void **)
{
    run({1, 64, 16, 2, 1, false, false, false, 10000}, 200 * LONG_RUN);
}

/* ---- positions ---------------------------------------------------------------------------------
 */

/* What a graph captured once does when it is replayed: the same arguments, another place. */
static void the_place_is_read_in_every_launch(void **)
{
    step_bench bench({1, 64, 4, 3, 1, false, false, false, 10000});
    ttt_step_args captured = bench.args();
    step_launch l = step_launch_of(bench.c);
    std::vector<float> first;
    bench.q.fill(bench.random, 1);
    bench.k.fill(bench.random, 1);
    for (int place = 0; place < 2; place++) {
        bench.place.assign(3, place);
        bench.position.assign(3, place);
        bench.machine.launch(l.shape, [&] { l.kernel(captured); });
        if (place == 0)
            first = bench.z.wide;
    }
    assert_string_equal(bench.machine.error().c_str(), "");
    assert_memory_not_equal(first.data(), bench.z.wide.data(), first.size() * sizeof(float));
}

/* A place that is no index must not read outside of the moves. */
static void a_place_out_of_range_is_moved_into_it(void **)
{
    for (int32_t place : {-5, 4, 1 << 30}) {
        step_bench bench({1, 64, 4, 1, 1, false, false, false, 0});
        bench.place[0] = place;
        bench.run_kernel(false);
        assert_string_equal(bench.machine.error().c_str(), "");
    }
}

/* A sequence that is at its end turns over; its neighbours do not. */
static void sequences_end_each_at_its_own_place(void **)
{
    step_bench bench({1, 64, 4, 3, 1, false, false, false, 10000});
    bench.position = {3, 4, 5};
    bench.place = {3, 0, 1};
    stored before = bench.w[0];
    bench.step(false);
    size_t each = before.size() / 3;
    for (size_t i = 0; i < 3; i++) {
        bool same = before.slice(i * each, each) == bench.w[0].slice(i * each, each);
        assert_int_equal(same, i != 0);
    }
    assert_true(bench.worst_answer < 1e-5 && bench.worst_state < 1e-5);
}

int main()
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_in_every_shape),
        cmocka_unit_test(mlp_in_every_shape_in_one_block),
        cmocka_unit_test(mlp_in_every_shape_in_a_cluster),
        cmocka_unit_test(mlp_over_many_tokens),
        cmocka_unit_test(without_rotation),
        cmocka_unit_test(linear_over_thousands_of_tokens),
        cmocka_unit_test(the_place_is_read_in_every_launch),
        cmocka_unit_test(a_place_out_of_range_is_moved_into_it),
        cmocka_unit_test(sequences_end_each_at_its_own_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
