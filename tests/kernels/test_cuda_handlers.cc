/* The CUDA handlers: call frames in, launches out, on a driver that runs them on the host. */
#include "tests/kernels/cuda_test.h"

#include "tests/kernels/cuda_frame.h"
#include "tests/kernels/cuda_scan.h"
#include "tests/kernels/cuda_step.h"
#include "tests/kernels/fake_cuda.h"

extern "C" {
#include "kernels/ttt_kernels.h"
}

#include <dlfcn.h>
#include <stdlib.h>

static fake_cuda *gpu;

static void *handler_of(const char *target)
{
    size_t count;
    const char *why;
    const ttt_kernel *list = ttt_kernels_cuda(&count, &why);
    assert_non_null(list);
    for (size_t i = 0; i < count; i++) {
        assert_true(list[i].command_buffer);
        if (strcmp(list[i].target, target) == 0)
            return list[i].handler;
    }
    fail_msg("no %s", target);
    return nullptr;
}

static XLA_FFI_DataType type_of(const stored &s)
{
    return s.is_bf16 ? XLA_FFI_DataType_BF16 : XLA_FFI_DataType_F32;
}

/* The call that a step is, with the bench's arrays. */
static test_frame frame_of(step_bench &b)
{
    const step_case &c = b.c;
    int64_t batch = c.batch, heads = c.heads, d = c.d;
    test_frame f;
    for (stored *s : {&b.q, &b.k, &b.v})
        f.operand(type_of(*s), s->data(), {batch, heads, d});
    f.operand(XLA_FFI_DataType_F32, b.gate.data(), {batch, heads});
    f.operand(XLA_FFI_DataType_S32, b.position.data(), {batch});
    f.operand(XLA_FFI_DataType_S32, b.place.data(), {batch});
    f.operand(XLA_FFI_DataType_F32, b.moves.data(), {(int64_t)b.moves.size()});
    f.operand(XLA_FFI_DataType_F32, b.scale.data(), {heads, d});
    f.operand(XLA_FFI_DataType_F32, b.bias.data(), {heads, d});
    f.result(type_of(b.z), b.z.data(), {batch, heads * d});
    stored *parts[] = {b.w, b.b, b.w_sum, b.b_sum};
    for (int kind = 0; kind < 4; kind++) {
        for (int i = 0; i < c.layers; i++) {
            int64_t in = i == 0 ? d : 4 * d, out = i == c.layers - 1 ? d : 4 * d;
            stored &s = parts[kind][i];
            std::vector<int64_t> dims = {batch, heads, kind % 2 == 0 ? in : 1, out};
            f.operand(type_of(s), s.data(), dims);
            f.result(type_of(s), s.data(), dims);
        }
    }
    f.attr("epsilon", (float)b.epsilon);
    f.attr("layers", (int64_t)c.layers);
    f.attr("mini_batch", (int64_t)c.mini_batch);
    f.attr("rate", (float)b.rate);
    f.attr("theta", (float)c.theta);
    return f;
}

/* Through the handler, as many steps; the machine of the driver knows the same arrays. */
static void run_steps(const step_case &c, const char *kernel, int cluster)
{
    step_bench bench(c);
    void *handler = handler_of("ttt_step");
    gpu->forget();
    bench.name_arrays(gpu->array);
    test_frame f = frame_of(bench);
    bench.runner = [&] { assert_string_equal(f.call(handler).c_str(), ""); };
    for (int i = 0; i < 4; i++)
        bench.step(c.state_bf16);
    assert_string_equal(gpu->error(), "");
    assert_string_equal(gpu->kernel, kernel);
    assert_int_equal(gpu->launches, 4);
    assert_int_equal(gpu->cluster, cluster);
    assert_ptr_equal(gpu->stream, f.stream);
    assert_true(bench.worst_answer < (c.act_bf16 ? 5e-3 : 3e-5));
    assert_true(bench.worst_state < (c.state_bf16 ? 5e-3 : 3e-5));
}

static void steps_go_to_their_kernels(void **)
{
    gpu->major = 9;
    run_steps({1, 64, 3, 2, 2, false, false, false, 10000}, "ttt_step_linear_f32_64", 1);
    run_steps({1, 96, 3, 2, 1, true, true, false, 10000}, "ttt_step_linear_bf16_96", 1);
    run_steps({2, 64, 3, 1, 2, true, false, false, 10000}, "ttt_step_mlp_cluster_f32_64", 4);
    gpu->major = 8;
    run_steps({2, 64, 3, 1, 2, false, false, false, 10000}, "ttt_step_mlp_block_f32_64", 1);
}

/* ---- the other operations ----------------------------------------------------------------------
 */

static test_frame frame_of(scan_bench &b)
{
    const scan_case &c = b.c;
    int64_t n = c.count, batch = c.batch, heads = c.heads, t = c.tokens, d = c.d;
    test_frame f;
    for (stored *s : {&b.k, &b.target, &b.q})
        f.operand(XLA_FFI_DataType_F32, s->data(), {n, batch, heads, t, d});
    f.operand(XLA_FFI_DataType_F32, b.eta.data(), {n, batch, heads, t, t});
    f.operand(XLA_FFI_DataType_F32, b.scale.data(), {heads, d});
    f.operand(XLA_FFI_DataType_F32, b.bias.data(), {heads, d});
    f.result(XLA_FFI_DataType_F32, b.answers.data(), {n, batch, heads, t, d});
    for (int kind = 0; kind < 2; kind++) {
        for (int i = 0; i < c.layers; i++) {
            int64_t in = i == 0 ? d : 4 * d, out = i == c.layers - 1 ? d : 4 * d;
            std::vector<int64_t> dims = {batch, heads, kind == 0 ? in : 1, out};
            f.operand(XLA_FFI_DataType_F32, (kind == 0 ? b.w : b.b)[i].data(), dims);
            f.result(XLA_FFI_DataType_F32, (kind == 0 ? b.w_out : b.b_out)[i].data(), dims);
        }
    }
    f.attr("epsilon", (float)b.epsilon);
    f.attr("layers", (int64_t)c.layers);
    return f;
}

static void run_scan(const scan_case &c, const char *kernel, int cluster)
{
    scan_bench bench(c);
    gpu->forget();
    bench.name_arrays(gpu->array);
    test_frame f = frame_of(bench);
    if (!c.exact)
        f.attr("exact", (int64_t)0);
    bench.runner = [&] { assert_string_equal(f.call(handler_of("ttt_scan")).c_str(), ""); };
    bench.run();
    assert_string_equal(gpu->error(), "");
    assert_string_equal(gpu->kernel, kernel);
    assert_int_equal(gpu->cluster, cluster);
    assert_true(bench.worst_answer < (c.exact ? 3e-5 : 1e-2));
    assert_true(bench.worst_state < (c.exact ? 3e-5 : 1e-2));
}

static void scans_go_to_their_kernels(void **)
{
    gpu->major = 9;
    run_scan({1, 64, 16, 2, 2, 1, true, false}, "ttt_scan_linear_exact_64_16", 1);
    run_scan({1, 96, 17, 2, 1, 2, false, false}, "ttt_scan_linear_bf16_96_64", 1);
    run_scan({2, 64, 16, 2, 1, 1, false, false}, "ttt_scan_mlp_cluster_bf16_64_16", 4);
    gpu->major = 8;
    run_scan({2, 64, 16, 2, 1, 1, true, false}, "ttt_scan_mlp_block_exact_64_16", 1);
    scan_bench large({2, 128, 16, 1, 1, 1, true, false});
    test_frame f = frame_of(large);
    std::string said = f.call(handler_of("ttt_scan"));
    assert_true(said.find("heads of 64 lanes and mini-batches of up to 16 tokens") !=
                std::string::npos);
}

/* ---- what is wrong is said ---------------------------------------------------------------------
 */

static step_bench &small()
{
    static step_bench bench({1, 64, 4, 1, 1, false, false, false, 10000});
    return bench;
}

static void refuses(test_frame &f, const char *words)
{
    gpu->forget();
    std::string said = f.call(handler_of("ttt_step"));
    if (said.find(words) == std::string::npos)
        fail_msg("expected \"%s\", got \"%s\"", words, said.c_str());
    assert_int_equal(gpu->launches, 0);
}

static void wrong_calls_are_refused(void **)
{
    test_frame f = frame_of(small());
    f.operands.pop_back();
    refuses(f, "12 operands and 5 results instead of 13 and 5");
    f = frame_of(small());
    f.operands[3].dims = {1, 2};
    refuses(f, "the shape of gate");
    f = frame_of(small());
    f.operands[4].buffer.dtype = XLA_FFI_DataType_F32;
    refuses(f, "the type of position");
    f = frame_of(small());
    f.operands[1].buffer.data = (char *)f.operands[1].buffer.data + 4;
    refuses(f, "k is not aligned");
    f = frame_of(small());
    f.results[1].buffer.data = small().w_sum[0].data();
    refuses(f, "W1 does not alias");
    f = frame_of(small());
    f.attributes.pop_front();
    refuses(f, "attribute epsilon is missing");
    f = frame_of(small());
    f.attributes[1].whole = 3;
    refuses(f, "1 or 2 layers, not 3");
    f = frame_of(small());
    f.attributes[2].whole = 5;
    refuses(f, "4 moves for a mini-batch of 5");
    f = frame_of(small());
    f.attributes[2].scalar.dtype = XLA_FFI_DataType_S32;
    refuses(f, "mini_batch has another type");
    f = frame_of(small());
    f.has_stream = false;
    refuses(f, "no stream");
}

static void other_heads_have_no_kernel(void **)
{
    step_bench bench({1, 32, 4, 1, 1, false, false, false, 10000});
    test_frame f = frame_of(bench);
    refuses(f, "there are kernels for heads of 64, 96 and 128 lanes alone");
}

static void nothing_is_launched_for_nobody(void **)
{
    test_frame f = frame_of(small());
    for (std::deque<test_frame::array> *side : {&f.operands, &f.results})
        for (test_frame::array &a : *side)
            if (a.dims[0] == 1 && !(a.dims.size() == 2 && a.dims[1] == 64 && side == &f.operands))
                a.dims[0] = 0;
    gpu->forget();
    assert_string_equal(f.call(handler_of("ttt_step")).c_str(), "");
    assert_int_equal(gpu->launches, 0);
}

static void the_drivers_errors_arrive(void **)
{
    test_frame f = frame_of(small());
    gpu->forget();
    gpu->fail = 201;
    std::string said = f.call(handler_of("ttt_step"));
    gpu->fail = 0;
    assert_true(said.find("a fake error (201)") != std::string::npos);
}

int main()
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_go_to_their_kernels),
        cmocka_unit_test(scans_go_to_their_kernels),
        cmocka_unit_test(wrong_calls_are_refused),
        cmocka_unit_test(other_heads_have_no_kernel),
        cmocka_unit_test(nothing_is_launched_for_nobody),
        cmocka_unit_test(the_drivers_errors_arrive),
    };
    const char *path = getenv("TTT_CUDA_DRIVER");
    /* Without a driver the handlers are there, and say what is missing. */
    setenv("TTT_CUDA_DRIVER", "libcuda_of_nobody.so", 1);
    const char *why = ttt_kernels_cuda_driver();
    if (why == nullptr || strstr(why, "CUDA's driver is not there") == nullptr)
        return 1;
    setenv("TTT_CUDA_DRIVER", path, 1);
    void *fake = dlopen(path, RTLD_NOW);
    gpu = reinterpret_cast<fake_cuda_control_function *>(dlsym(fake, "fake_cuda_control"))();
    if (ttt_kernels_cuda_driver() != nullptr)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
