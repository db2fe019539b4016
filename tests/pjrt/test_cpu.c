/* The real CPU plugin through pjrt.h: what is compiled is computed, and refused when it is wrong.
 */
#include "pjrt/hlo/pjrt_hlo.h"
#include "tests/support/support.h"

#include "xla/ffi/api/c_api.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static pjrt_plugin *plugin; /* NULL: not built, and every test is skipped */
static pjrt_client *client;

#define NEED_PLUGIN()                                       \
    do {                                                    \
        if (plugin == NULL) {                               \
            print_message("there is no CPU plugin here\n"); \
            skip();                                         \
        }                                                   \
    } while (0)

static int open_plugin(void **state)
{
    (void)state;
    const char *path = getenv("TTT_PLUGIN_CPU");
    if (path == NULL || access(path, R_OK) != 0)
        return 0;
    ASSERT_OK(pjrt_plugin_load("cpu", &plugin));
    ASSERT_OK(pjrt_client_create(plugin, &(pjrt_client_options){.cpu_devices = 4}, &client));
    return 0;
}

static int close_plugin(void **state)
{
    (void)state;
    pjrt_client_free(client);
    return 0;
}

static pjrt_device *device(size_t index)
{
    return pjrt_client_device(client, index);
}

static pjrt_executable *compile(const char *text, const pjrt_compile_options *options)
{
    pjrt_executable *exe;
    ASSERT_OK(pjrt_compile(client, pjrt_program_text(text), options, &exe));
    return exe;
}

static pjrt_buffer *upload(size_t index, pjrt_type type, const int64_t *dims, int rank,
                           const void *data)
{
    pjrt_buffer *buffer;
    ASSERT_OK(pjrt_buffer_from_host(device(index), type, dims, rank, data, NULL, NULL, &buffer));
    return buffer;
}

static const char matmul[] =
    "module @matmul {\n"
    "  func.func public @main(%a: tensor<2x3xf32>, %b: tensor<3x2xf32>) -> tensor<2x2xf32> {\n"
    "    %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]\n"
    "         : (tensor<2x3xf32>, tensor<3x2xf32>) -> tensor<2x2xf32>\n"
    "    return %0 : tensor<2x2xf32>\n"
    "  }\n"
    "}\n";

static const char add_one[] =
    "module @add_one {\n"
    "  func.func public @main(%a: tensor<4xf32> {tf.aliasing_output = 0 : i32})\n"
    "      -> tensor<4xf32> {\n"
    "    %one = stablehlo.constant dense<1.0> : tensor<4xf32>\n"
    "    %0 = stablehlo.add %a, %one : tensor<4xf32>\n"
    "    return %0 : tensor<4xf32>\n"
    "  }\n"
    "}\n";

/* Uploads the two matrices, multiplies, and checks the four numbers. */
static void check_matmul(pjrt_executable *exe)
{
    static const float a[] = {1, 2, 3, 4, 5, 6}, b[] = {1, 0, 0, 1, 1, 1};
    static const float wanted[] = {4, 5, 10, 11};
    float c[4] = {0};
    pjrt_buffer *in[] = {upload(0, PJRT_F32, (int64_t[]){2, 3}, 2, a),
                         upload(0, PJRT_F32, (int64_t[]){3, 2}, 2, b)};
    pjrt_buffer *out;
    ASSERT_OK(pjrt_execute(exe, in, 2, NULL, &out, 1, NULL));
    ASSERT_OK(pjrt_buffer_to_host(out, c, sizeof c, NULL));
    assert_memory_equal(c, wanted, sizeof c);
    pjrt_buffer_free(in[0]);
    pjrt_buffer_free(in[1]);
    pjrt_buffer_free(out);
}

/* ---- computing ---- */

static void it_is_the_cpu(void **state)
{
    (void)state;
    NEED_PLUGIN();
    assert_string_equal(pjrt_client_platform(client), "cpu");
    assert_int_equal(pjrt_client_num_devices(client), 4);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(pjrt_device_id(device(i)), (int)i);
    assert_true(pjrt_plugin_has(plugin, "PJRT_Client_Compile"));
}

static void a_matmul_multiplies(void **state)
{
    (void)state;
    NEED_PLUGIN();
    pjrt_executable *exe = compile(matmul, NULL);
    assert_string_equal(pjrt_executable_name(exe), "matmul");
    check_matmul(exe);
    check_matmul(exe);
    pjrt_executable_free(exe);
}

/* The example that opens pjrt.h, as it stands there. */
static pjrt_status *square(const char *program, float x[4])
{
    pjrt_plugin *cpu;
    pjrt_client *own = NULL;
    pjrt_executable *exe = NULL;
    pjrt_buffer *in = NULL, *out = NULL;
    pjrt_status *st = pjrt_plugin_load("cpu", &cpu);
    if (!st)
        st = pjrt_client_create(cpu, NULL, &own);
    if (!st)
        st = pjrt_compile(own, pjrt_program_text(program), NULL, &exe);
    if (!st)
        st = pjrt_buffer_from_host(pjrt_client_device(own, 0), PJRT_F32, (int64_t[]){4}, 1, x, NULL,
                                   NULL, &in);
    if (!st)
        st = pjrt_execute(exe, &in, 1, NULL, &out, 1, NULL);
    if (!st)
        st = pjrt_buffer_to_host(out, x, 4 * sizeof(float), NULL);
    pjrt_buffer_free(out);
    pjrt_buffer_free(in);
    pjrt_executable_free(exe);
    pjrt_client_free(own);
    return st;
}

static void the_example_of_the_header_works(void **state)
{
    (void)state;
    NEED_PLUGIN();
    float x[] = {1, 2, 3, 4};
    ASSERT_OK(square("func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {\n"
                     "  %0 = stablehlo.multiply %a, %a : tensor<4xf32>\n"
                     "  return %0 : tensor<4xf32>\n}",
                     x));
    assert_true(x[0] == 1 && x[3] == 16);
    pjrt_status *st = square("no program", x);
    assert_string_equal(pjrt_status_call(st), "PJRT_Client_Compile");
    pjrt_status_free(st);
}

static void every_type_goes_through_a_program(void **state)
{
    (void)state;
    NEED_PLUGIN();
#define THROUGH(name, number, bits, mlir)                                               \
    {                                                                                   \
        unsigned char up[6 * bits / 8], down[6 * bits / 8] = {0};                       \
        for (size_t i = 0; i < sizeof up; i++)                                          \
            up[i] = PJRT_##name == PJRT_PRED ? i % 2 : (unsigned char)(i + 1);          \
        pjrt_executable *exe =                                                          \
            compile("func.func @main(%a: tensor<2x3x" mlir ">) -> tensor<2x3x" mlir ">" \
                    " { return %a : tensor<2x3x" mlir "> }",                            \
                    NULL);                                                              \
        pjrt_buffer *out, *in = upload(0, PJRT_##name, (int64_t[]){2, 3}, 2, up);       \
        ASSERT_OK(pjrt_execute(exe, &in, 1, NULL, &out, 1, NULL));                      \
        assert_true(pjrt_shape_equal(pjrt_buffer_shape(out), pjrt_buffer_shape(in)));   \
        ASSERT_OK(pjrt_buffer_to_host(out, down, sizeof down, NULL));                   \
        assert_memory_equal(up, down, sizeof up);                                       \
        pjrt_buffer_free(in);                                                           \
        pjrt_buffer_free(out);                                                          \
        pjrt_executable_free(exe);                                                      \
    }
    PJRT_TYPES(THROUGH)
}

static void empty_arrays_scalars_and_strides(void **state)
{
    (void)state;
    NEED_PLUGIN();
    float scalar = 7, back[6] = {0};
    pjrt_buffer *buffer = upload(0, PJRT_F32, NULL, 0, &scalar);
    ASSERT_OK(pjrt_buffer_to_host(buffer, back, 4, NULL));
    assert_true(back[0] == 7);
    pjrt_buffer_free(buffer);
    buffer = upload(0, PJRT_F32, (int64_t[]){3, 0}, 2, NULL);
    ASSERT_OK(pjrt_buffer_to_host(buffer, NULL, 0, NULL));
    pjrt_buffer_free(buffer);
    static const float column_major[] = {1, 4, 2, 5, 3, 6};
    pjrt_upload_options options = {.byte_strides = (int64_t[]){4, 8}};
    ASSERT_OK(pjrt_buffer_from_host(device(0), PJRT_F32, (int64_t[]){2, 3}, 2, column_major,
                                    &options, NULL, &buffer));
    ASSERT_OK(pjrt_buffer_to_host(buffer, back, sizeof back, NULL));
    for (int i = 0; i < 6; i++)
        assert_true(back[i] == (float)(i + 1));
    pjrt_buffer_free(buffer);
}

/* T21: a transposed result arrives in row-major order, whatever layout the compiler chose. */
static void a_transposed_result_arrives_row_major(void **state)
{
    (void)state;
    NEED_PLUGIN();
    static const float a[] = {1, 2, 3, 4, 5, 6}, wanted[] = {1, 4, 2, 5, 3, 6};
    float back[6] = {0};
    pjrt_executable *exe = compile("func.func @main(%a: tensor<2x3xf32>) -> tensor<3x2xf32> {\n"
                                   "  %0 = stablehlo.transpose %a, dims = [1, 0]\n"
                                   "       : (tensor<2x3xf32>) -> tensor<3x2xf32>\n"
                                   "  return %0 : tensor<3x2xf32>\n}",
                                   NULL);
    pjrt_buffer *out, *in = upload(0, PJRT_F32, (int64_t[]){2, 3}, 2, a);
    ASSERT_OK(pjrt_execute(exe, &in, 1, NULL, &out, 1, NULL));
    ASSERT_OK(pjrt_buffer_to_host(out, back, sizeof back, NULL));
    assert_memory_equal(back, wanted, sizeof back);
    pjrt_buffer_free(in);
    pjrt_buffer_free(out);
    pjrt_executable_free(exe);
}

/* ---- transfers ---- */

static void note_end(pjrt_status *st, void *user)
{
    atomic_store((atomic_int *)user, st == NULL ? 1 : -1);
    pjrt_status_free(st);
}

static void transfers_may_be_asynchronous(void **state)
{
    (void)state;
    NEED_PLUGIN();
    enum { N = 1 << 20 };
    float *data = malloc(N * sizeof *data), *back = calloc(N, sizeof *back);
    assert_true(data != NULL && back != NULL);
    for (int i = 0; i < N; i++)
        data[i] = (float)i;
    pjrt_upload_options options = {.host_memory = PJRT_HOST_UNTIL_DONE};
    pjrt_buffer *buffer;
    pjrt_event *done, *ready;
    atomic_int ended = 0;
    ASSERT_OK(pjrt_buffer_from_host(device(0), PJRT_F32, (int64_t[]){N}, 1, data, &options, &done,
                                    &buffer));
    ASSERT_OK(pjrt_event_wait(done));
    pjrt_event_free(done);
    memset(data, 0, N * sizeof *data); /* ours again */
    ASSERT_OK(pjrt_buffer_ready(buffer, &ready));
    ASSERT_OK(pjrt_event_on_ready(ready, note_end, &ended));
    ASSERT_OK(pjrt_event_wait(ready));
    pjrt_event_free(ready);
    ASSERT_OK(pjrt_buffer_to_host(buffer, back, N * sizeof *back, &done));
    ASSERT_OK(pjrt_event_wait(done));
    pjrt_event_free(done);
    assert_true(back[N - 1] == N - 1);
    for (int i = 0; i < 1000 && ended == 0; i++)
        usleep(1000);
    assert_int_equal(ended, 1);
    pjrt_buffer_free(buffer);
    free(data);
    free(back);
}

/* T16: aligned memory may become the buffer itself; it is ours again when the event fires. */
static void zero_copy_gives_the_memory_back(void **state)
{
    (void)state;
    NEED_PLUGIN();
    enum { BYTES = 4096 };
    float *data = aligned_alloc(64, BYTES), back[BYTES / 4];
    assert_non_null(data);
    for (int i = 0; i < BYTES / 4; i++)
        data[i] = (float)i;
    pjrt_upload_options options = {.host_memory = PJRT_HOST_ZERO_COPY};
    pjrt_buffer *buffer;
    pjrt_event *done;
    ASSERT_OK(pjrt_buffer_from_host(device(0), PJRT_F32, (int64_t[]){BYTES / 4}, 1, data, &options,
                                    &done, &buffer));
    ASSERT_OK(pjrt_buffer_to_host(buffer, back, sizeof back, NULL));
    assert_memory_equal(data, back, sizeof back);
    pjrt_buffer_free(buffer);
    ASSERT_OK(pjrt_event_wait(done));
    pjrt_event_free(done);
    free(data);
}

static void buffers_move_between_devices(void **state)
{
    (void)state;
    NEED_PLUGIN();
    float back[4];
    pjrt_shape shape = {PJRT_BF16, 2, {3, 5}};
    pjrt_buffer *copy, *fresh, *buffer = support_upload4(device(0), 1, 2, 3, 4);
    ASSERT_OK(pjrt_buffer_copy_to(buffer, device(3), &copy));
    pjrt_buffer_free(buffer);
    assert_ptr_equal(pjrt_buffer_device(copy), device(3));
    ASSERT_OK(pjrt_buffer_to_host(copy, back, sizeof back, NULL));
    assert_true(back[3] == 4);
    size_t bytes;
    ASSERT_OK(pjrt_buffer_device_bytes(copy, &bytes));
    assert_in_range(bytes, 16, 64);
    pjrt_buffer_free(copy);
    unsigned char any[30];
    ASSERT_OK(pjrt_buffer_uninitialized(device(1), &shape, &fresh));
    ASSERT_OK(pjrt_buffer_to_host(fresh, any, sizeof any, NULL));
    pjrt_buffer_free(fresh);
}

/* ---- donation ---- */

static void a_donated_buffer_is_dead_and_its_memory_used(void **state)
{
    (void)state;
    NEED_PLUGIN();
    enum { STEPS = 1000 };
    int64_t taken, refused;
    float back[4];
    pjrt_memory_stats memory;
    pjrt_executable *exe = compile(add_one, NULL);
    ASSERT_OK(pjrt_executable_memory(exe, &memory));
    assert_int_equal(memory.alias, 16);
    pjrt_buffer *x = support_upload4(device(0), 0, 1, 2, 3);
    for (int i = 0; i < STEPS; i++) {
        pjrt_buffer *next;
        ASSERT_OK(pjrt_execute(exe, &x, 1, NULL, &next, 1, NULL));
        assert_true(pjrt_buffer_is_dead(x));
        ASSERT_FAILS(pjrt_buffer_to_host(x, back, sizeof back, NULL), FAILED_PRECONDITION, "");
        pjrt_buffer_free(x);
        x = next;
    }
    ASSERT_OK(pjrt_buffer_to_host(x, back, sizeof back, NULL));
    assert_true(back[3] == 3 + STEPS);
    pjrt_executable_donations(exe, &taken, &refused);
    assert_int_equal(taken, STEPS);
    assert_int_equal(refused, 0);
    /* Kept for one call, it stays as it is. */
    pjrt_buffer *out;
    pjrt_execute_options options = {.keep = (int64_t[]){0}, .n_keep = 1};
    ASSERT_OK(pjrt_execute(exe, &x, 1, &options, &out, 1, NULL));
    assert_false(pjrt_buffer_is_dead(x));
    ASSERT_OK(pjrt_buffer_to_host(x, back, sizeof back, NULL));
    assert_true(back[0] == STEPS);
    ASSERT_OK(pjrt_buffer_to_host(out, back, sizeof back, NULL));
    assert_true(back[0] == STEPS + 1);
    pjrt_buffer_free(out);
    pjrt_buffer_free(x);
    pjrt_executable_free(exe);
}

/* T19: one buffer as two arguments, of which one is donated, cannot be right. */
static void a_buffer_is_not_donated_and_read_at_once(void **state)
{
    (void)state;
    NEED_PLUGIN();
    pjrt_executable *exe =
        compile("func.func @main(%a: tensor<4xf32> {tf.aliasing_output = 0 : i32},\n"
                "                %b: tensor<4xf32>) -> tensor<4xf32> {\n"
                "  %0 = stablehlo.add %a, %b : tensor<4xf32>\n"
                "  return %0 : tensor<4xf32>\n}",
                NULL);
    pjrt_buffer *x = support_upload4(device(0), 1, 2, 3, 4), *out;
    pjrt_buffer *const twice[] = {x, x};
    pjrt_status *st = pjrt_execute(exe, twice, 2, NULL, &out, 1, NULL);
    assert_non_null(st);
    assert_string_equal(pjrt_status_call(st), "PJRT_LoadedExecutable_Execute");
    pjrt_status_free(st);
    pjrt_buffer_free(x);
    pjrt_executable_free(exe);
}

/* ---- several devices ---- */

static void replicas_sum_over_four_devices(void **state)
{
    (void)state;
    NEED_PLUGIN();
    pjrt_executable *exe =
        compile("module @sum attributes {mhlo.num_replicas = 4 : i32} {\n"
                "func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {\n"
                "  %0 = \"stablehlo.all_reduce\"(%a) ({\n"
                "  ^bb0(%x: tensor<f32>, %y: tensor<f32>):\n"
                "    %s = stablehlo.add %x, %y : tensor<f32>\n"
                "    stablehlo.return %s : tensor<f32>\n"
                "  }) {replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>}\n"
                "     : (tensor<4xf32>) -> tensor<4xf32>\n"
                "  return %0 : tensor<4xf32>\n}}",
                &(pjrt_compile_options){.replicas = 4});
    assert_int_equal(pjrt_executable_num_devices(exe), 4);
    pjrt_buffer *in[4], *out[4];
    pjrt_event *done[4];
    for (size_t i = 0; i < 4; i++)
        in[i] = support_upload4(device(i), (float)i, 10 * (float)i, 1, 0);
    ASSERT_OK(pjrt_execute(exe, in, 1, NULL, out, 1, done));
    for (size_t i = 0; i < 4; i++) {
        float back[4];
        ASSERT_OK(pjrt_event_wait(done[i]));
        pjrt_event_free(done[i]);
        assert_ptr_equal(pjrt_buffer_device(out[i]), device(i));
        ASSERT_OK(pjrt_buffer_to_host(out[i], back, sizeof back, NULL));
        assert_true(back[0] == 6 && back[1] == 60 && back[2] == 4 && back[3] == 0);
        pjrt_buffer_free(in[i]);
        pjrt_buffer_free(out[i]);
    }
    pjrt_executable_free(exe);
}

/* Rows of the left matrix on four devices: arguments and results are a device's own part. */
static void partitions_share_one_array(void **state)
{
    (void)state;
    NEED_PLUGIN();
    pjrt_executable *exe =
        compile("module @rows attributes {mhlo.num_partitions = 4 : i32} {\n"
                "func.func @main(%a: tensor<8x2xf32> {mhlo.sharding = \"{devices=[4,1]<=[4]}\"})\n"
                "    -> (tensor<8x2xf32> {mhlo.sharding = \"{devices=[4,1]<=[4]}\"}) {\n"
                "  %0 = stablehlo.add %a, %a : tensor<8x2xf32>\n"
                "  return %0 : tensor<8x2xf32>\n}}",
                &(pjrt_compile_options){.partitions = 4});
    const pjrt_shape *shapes;
    int count;
    ASSERT_OK(pjrt_executable_arguments(exe, &shapes, &count));
    assert_int_equal(count, 1);
    assert_true(pjrt_shape_equal(&shapes[0], &(pjrt_shape){PJRT_F32, 2, {2, 2}}));
    assert_true(
        pjrt_shape_equal(pjrt_executable_result(exe, 0), &(pjrt_shape){PJRT_F32, 2, {2, 2}}));
    pjrt_buffer *in[4], *out[4];
    for (size_t i = 0; i < 4; i++) {
        float part[] = {(float)i, 1, 2, 3};
        in[i] = upload(i, PJRT_F32, (int64_t[]){2, 2}, 2, part);
    }
    ASSERT_OK(pjrt_execute(exe, in, 1, NULL, out, 1, NULL));
    for (size_t i = 0; i < 4; i++) {
        float back[4];
        ASSERT_OK(pjrt_buffer_to_host(out[i], back, sizeof back, NULL));
        assert_true(back[0] == 2 * (float)i && back[3] == 6);
        pjrt_buffer_free(in[i]);
        pjrt_buffer_free(out[i]);
    }
    pjrt_executable_free(exe);
}

static void a_portable_executable_runs_anywhere(void **state)
{
    (void)state;
    NEED_PLUGIN();
    pjrt_executable *exe = compile(add_one, &(pjrt_compile_options){.portable = true});
    for (size_t i = 1; i < 4; i += 2) {
        float back[4];
        pjrt_execute_options options = {.device = device(i)};
        pjrt_buffer *out, *in = support_upload4(device(i), 1, 2, 3, (float)i);
        ASSERT_OK(pjrt_execute(exe, &in, 1, &options, &out, 1, NULL));
        assert_ptr_equal(pjrt_buffer_device(out), device(i));
        ASSERT_OK(pjrt_buffer_to_host(out, back, sizeof back, NULL));
        assert_true(back[3] == (float)i + 1);
        pjrt_buffer_free(in);
        pjrt_buffer_free(out);
    }
    pjrt_executable_free(exe);
}

static void an_assignment_chooses_the_device(void **state)
{
    (void)state;
    NEED_PLUGIN();
    pjrt_executable *exe = compile(add_one, &(pjrt_compile_options){.devices = (int[]){2}});
    pjrt_buffer *out, *in = support_upload4(device(2), 1, 2, 3, 4);
    pjrt_buffer *elsewhere = support_upload4(device(0), 1, 2, 3, 4);
    ASSERT_FAILS(pjrt_execute(exe, &elsewhere, 1, NULL, &out, 1, NULL), INVALID_ARGUMENT,
                 "on device 0, the program runs on device 2");
    ASSERT_OK(pjrt_execute(exe, &in, 1, NULL, &out, 1, NULL));
    assert_ptr_equal(pjrt_buffer_device(out), device(2));
    pjrt_buffer_free(in);
    pjrt_buffer_free(elsewhere);
    pjrt_buffer_free(out);
    pjrt_executable_free(exe);
}

/* ---- errors ---- */

static void bad_programs_are_told_with_reasons(void **state)
{
    (void)state;
    NEED_PLUGIN();
    static const char *const bad[] = {
        "",
        "this is no program",
        "func.func @other() { return }",
        "func.func @main(%a: tensor<2xf32>) -> tensor<3xf32> { return %a : tensor<3xf32> }",
        "func.func @main(%a: tensor<2xf32>) { %0 = stablehlo.nothing %a : tensor<2xf32> return }",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pjrt_executable *exe = (pjrt_executable *)state;
        pjrt_status *st = pjrt_compile(client, pjrt_program_text(bad[i]), NULL, &exe);
        assert_non_null(st);
        assert_null(exe);
        assert_string_equal(pjrt_status_call(st), "PJRT_Client_Compile");
        assert_true(strlen(pjrt_status_message(st)) > 10);
        pjrt_status_free(st);
    }
    pjrt_executable *exe;
    pjrt_option unknown = PJRT_OPT_BOOL("xla_no_such_option", true);
    pjrt_compile_options options = {.overrides = &unknown, .n_overrides = 1};
    pjrt_status *st = pjrt_compile(client, pjrt_program_text(matmul), &options, &exe);
    ASSERT_CONTAINS(pjrt_status_message(st), "xla_no_such_option");
    pjrt_status_free(st);
}

/* T26: known overrides of each kind are taken. */
static void overrides_reach_the_compiler(void **state)
{
    (void)state;
    NEED_PLUGIN();
    pjrt_option overrides[] = {
        PJRT_OPT_BOOL("xla_cpu_enable_fast_math", false),
        PJRT_OPT_INT("xla_backend_optimization_level", 1),
        PJRT_OPT_STRING("xla_dump_hlo_as_text", "False"),
    };
    pjrt_executable *exe =
        compile(matmul, &(pjrt_compile_options){.overrides = overrides, .n_overrides = 3});
    check_matmul(exe);
    pjrt_executable_free(exe);
}

/* T17: the same bytes in another shape would run. */
static void wrong_arguments_are_refused(void **state)
{
    (void)state;
    NEED_PLUGIN();
    static const float x[6] = {0};
    pjrt_executable *exe = compile(matmul, NULL);
    pjrt_buffer *in[] = {upload(0, PJRT_F32, (int64_t[]){3, 2}, 2, x),
                         upload(0, PJRT_F32, (int64_t[]){3, 2}, 2, x)};
    pjrt_buffer *out;
    ASSERT_FAILS(pjrt_execute(exe, in, 2, NULL, &out, 1, NULL), INVALID_ARGUMENT,
                 "argument 0 is f32[3,2], the program takes f32[2,3]");
    ASSERT_FAILS(pjrt_execute(exe, in, 1, NULL, &out, 1, NULL), INVALID_ARGUMENT, "1 arguments");
    pjrt_buffer_free(in[0]);
    pjrt_buffer_free(in[1]);
    pjrt_executable_free(exe);
}

/* T11 */
static void unknown_client_options_are_refused(void **state)
{
    (void)state;
    NEED_PLUGIN();
    pjrt_client *none = (pjrt_client *)state;
    pjrt_option extra = PJRT_OPT_INT("no_such_option", 1);
    ASSERT_FAILS(
        pjrt_client_create(plugin, &(pjrt_client_options){.extra = &extra, .n_extra = 1}, &none),
        INVALID_ARGUMENT, "no_such_option");
    assert_null(none);
    extra = PJRT_OPT_STRING("cpu_device_count", "four");
    ASSERT_FAILS(
        pjrt_client_create(plugin, &(pjrt_client_options){.extra = &extra, .n_extra = 1}, &none),
        INVALID_ARGUMENT, "cpu_device_count");
}

/* ---- what a program tells ---- */

static void a_program_tells_its_costs(void **state)
{
    (void)state;
    NEED_PLUGIN();
    pjrt_executable *exe = compile(matmul, NULL);
    pjrt_memory_stats memory;
    ASSERT_OK(pjrt_executable_memory(exe, &memory));
    assert_int_equal(memory.arguments, 48);
    assert_int_equal(memory.results, 16);
    const pjrt_option *costs;
    size_t count, size;
    bool told = false;
    ASSERT_OK(pjrt_executable_costs(exe, &costs, &count));
    for (size_t i = 0; i < count; i++)
        told = told || (strcmp(costs[i].name, "flops") == 0 && costs[i].real == 24);
    assert_true(told);
    char *bytes;
    const char *format;
    pjrt_hlo_report *report;
    ASSERT_OK(pjrt_executable_optimized(exe, &bytes, &size, &format));
    ASSERT_OK(pjrt_hlo_report_create(format, bytes, size, &report));
    free(bytes);
    assert_string_equal(report->module_name, "matmul");
    assert_true(report->total.flops == 24);
    pjrt_hlo_report_free(report);
    pjrt_executable_free(exe);
}

static void executables_are_saved_and_loaded(void **state)
{
    (void)state;
    NEED_PLUGIN();
    char folder[PATH_MAX];
    pjrt_executable *exe = compile(matmul, NULL), *loaded;
    pjrt_status *why;
    support_new_folder(folder);
    const char *path = support_path(folder, "matmul.exe"), *cache = support_path(folder, "cache");
    ASSERT_OK(pjrt_executable_save(exe, path));
    ASSERT_OK(pjrt_executable_load(client, path, pjrt_program_text(matmul), NULL, &loaded));
    check_matmul(loaded);
    pjrt_executable_free(loaded);
    ASSERT_FAILS(pjrt_executable_load(client, path, pjrt_program_text(add_one), NULL, &loaded),
                 FAILED_PRECONDITION, "program_hash");
    for (int i = 0; i < 2; i++) {
        ASSERT_OK(
            pjrt_compile_cached(client, pjrt_program_text(matmul), NULL, cache, &loaded, &why));
        assert_true((why == NULL) == (i == 1));
        pjrt_status_free(why);
        check_matmul(loaded);
        pjrt_executable_free(loaded);
    }
    pjrt_executable_free(exe);
    support_remove_folder(folder);
}

static void a_trace_can_be_taken(void **state)
{
    (void)state;
    NEED_PLUGIN();
    char folder[PATH_MAX];
    pjrt_profile *profile;
    pjrt_status *st = pjrt_profile_start(plugin, &profile);
    if (pjrt_status_code(st) == PJRT_CODE_UNIMPLEMENTED) {
        pjrt_status_free(st);
        print_message("the CPU plugin has no profiler\n");
        skip();
    }
    ASSERT_OK(st);
    pjrt_executable *exe = compile(matmul, NULL);
    check_matmul(exe);
    pjrt_executable_free(exe);
    const char *path = support_path(support_new_folder(folder), "t.xplane.pb");
    ASSERT_OK(pjrt_profile_stop(profile, path));
    size_t size;
    unsigned char *trace = support_read_file(path, &size);
    assert_in_range(size, 10, 1 << 30);
    assert_int_equal(trace[0], 0x0a); /* XSpace.planes */
    free(trace);
    support_remove_folder(folder);
}

/* ---- FFI ---- */

/* y = 2 x, after a look at what XLA hands over. */
static XLA_FFI_Error *twice(XLA_FFI_CallFrame *frame)
{
    if (pjrt_ffi_answer_metadata(frame, false))
        return NULL;
    const XLA_FFI_Buffer *x = frame->args.args[0], *y = frame->rets.rets[0];
    if (frame->args.size != 1 || frame->rets.size != 1 || x->rank != 1 ||
        (int)x->dtype != pjrt_type_ffi(PJRT_F32)) {
        XLA_FFI_Error_Create_Args error = {.struct_size = XLA_FFI_Error_Create_Args_STRUCT_SIZE,
                                           .message = "twice takes one f32 vector",
                                           .errc = XLA_FFI_Error_Code_INVALID_ARGUMENT};
        return frame->api->XLA_FFI_Error_Create(&error);
    }
    for (int64_t i = 0; i < x->dims[0]; i++)
        ((float *)y->data)[i] = 2 * ((const float *)x->data)[i];
    return NULL;
}

static void *pointer_to(XLA_FFI_Handler *handler)
{
    void *pointer;
    memcpy(&pointer, &handler, sizeof pointer);
    return pointer;
}

static void a_c_function_runs_inside_a_program(void **state)
{
    (void)state;
    NEED_PLUGIN();
    float back[4];
    pjrt_status *st = pjrt_ffi_probe(client, NULL, "ttt_test_nobody");
    ASSERT_CONTAINS(pjrt_status_message(st), "ttt_test_nobody");
    pjrt_status_free(st);
    ASSERT_OK(pjrt_ffi_register(plugin, "ttt_test_twice", "cpu", pointer_to(twice), false));
    ASSERT_OK(pjrt_ffi_probe(client, NULL, "ttt_test_twice"));
    pjrt_executable *exe =
        compile("func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {\n"
                "  %0 = stablehlo.custom_call @ttt_test_twice(%a) {api_version = 4 : i32}\n"
                "       : (tensor<4xf32>) -> tensor<4xf32>\n"
                "  return %0 : tensor<4xf32>\n}",
                NULL);
    pjrt_buffer *out, *in = support_upload4(device(0), 1, 2, 3, 4);
    ASSERT_OK(pjrt_execute(exe, &in, 1, NULL, &out, 1, NULL));
    ASSERT_OK(pjrt_buffer_to_host(out, back, sizeof back, NULL));
    assert_true(back[0] == 2 && back[3] == 8);
    pjrt_buffer_free(in);
    pjrt_buffer_free(out);
    pjrt_executable_free(exe);
}

static XLA_FFI_Error *impostor(XLA_FFI_CallFrame *frame)
{
    if (!pjrt_ffi_answer_metadata(frame, false))
        memset(((XLA_FFI_Buffer *)frame->rets.rets[0])->data, 0, 16);
    return NULL;
}

/* T34: a name belongs to the function that had it first, whether the plugin says so or not. */
static void a_name_is_registered_once(void **state)
{
    (void)state;
    NEED_PLUGIN();
    float back[4];
    ASSERT_OK(pjrt_ffi_register(plugin, "ttt_test_twice", "cpu", pointer_to(twice), false));
    pjrt_status_free(
        pjrt_ffi_register(plugin, "ttt_test_twice", "cpu", pointer_to(impostor), false));
    pjrt_executable *exe =
        compile("func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {\n"
                "  %0 = stablehlo.custom_call @ttt_test_twice(%a) {api_version = 4 : i32}\n"
                "       : (tensor<4xf32>) -> tensor<4xf32>\n"
                "  return %0 : tensor<4xf32>\n}",
                NULL);
    pjrt_buffer *out, *in = support_upload4(device(0), 1, 2, 3, 4);
    ASSERT_OK(pjrt_execute(exe, &in, 1, NULL, &out, 1, NULL));
    ASSERT_OK(pjrt_buffer_to_host(out, back, sizeof back, NULL));
    assert_true(back[3] == 8);
    pjrt_buffer_free(in);
    pjrt_buffer_free(out);
    pjrt_executable_free(exe);
}

/* What goes wrong while a program runs arrives with the handler's words, not as zeros. */
static void an_error_of_a_handler_arrives(void **state)
{
    (void)state;
    NEED_PLUGIN();
    float x = 1;
    ASSERT_OK(pjrt_ffi_register(plugin, "ttt_test_twice", "cpu", pointer_to(twice), false));
    pjrt_executable *exe =
        compile("func.func @main(%a: tensor<f32>) -> tensor<f32> {\n"
                "  %0 = stablehlo.custom_call @ttt_test_twice(%a) {api_version = 4 : i32}\n"
                "       : (tensor<f32>) -> tensor<f32>\n"
                "  return %0 : tensor<f32>\n}",
                NULL);
    pjrt_buffer *out = NULL, *in = upload(0, PJRT_F32, NULL, 0, &x);
    pjrt_event *done = NULL;
    pjrt_status *st = pjrt_execute(exe, &in, 1, NULL, &out, 1, &done);
    if (st == NULL)
        st = pjrt_event_wait(done);
    ASSERT_FAILS(st, INVALID_ARGUMENT, "twice takes one f32 vector");
    if (out != NULL) {
        st = pjrt_buffer_to_host(out, &x, sizeof x, NULL);
        assert_non_null(st);
        pjrt_status_free(st);
    }
    pjrt_event_free(done);
    pjrt_buffer_free(in);
    pjrt_buffer_free(out);
    pjrt_executable_free(exe);
}

/* ---- lives ---- */

static void clients_live_side_by_side_and_go_in_any_order(void **state)
{
    (void)state;
    NEED_PLUGIN();
    pjrt_client *first, *second;
    pjrt_executable *exe;
    pjrt_buffer *out;
    float back[4];
    ASSERT_OK(pjrt_client_create(plugin, &(pjrt_client_options){.cpu_devices = 1}, &first));
    ASSERT_OK(pjrt_client_create(plugin, &(pjrt_client_options){.cpu_devices = 2}, &second));
    assert_int_equal(pjrt_client_num_devices(second), 2);
    ASSERT_OK(pjrt_compile(first, pjrt_program_text(add_one), NULL, &exe));
    pjrt_buffer *foreign = support_upload4(pjrt_client_device(second, 0), 1, 2, 3, 4);
    ASSERT_FAILS(pjrt_execute(exe, &foreign, 1, NULL, &out, 1, NULL), INVALID_ARGUMENT, "device");
    pjrt_buffer *in = support_upload4(pjrt_client_device(first, 0), 1, 2, 3, 4);
    pjrt_client_free(second);
    pjrt_client_free(first);
    pjrt_buffer_free(foreign);
    ASSERT_OK(pjrt_execute(exe, &in, 1, NULL, &out, 1, NULL));
    pjrt_executable_free(exe);
    pjrt_buffer_free(in);
    ASSERT_OK(pjrt_buffer_to_host(out, back, sizeof back, NULL));
    assert_true(back[0] == 2);
    pjrt_buffer_free(out);
}

static pjrt_executable *shared;
static atomic_int wrong;

static void *count_up(void *unused)
{
    (void)unused;
    for (int i = 0; i < 50; i++) {
        float values[4] = {1, 2, 3, (float)i}, back[4] = {0};
        pjrt_buffer *in = NULL, *out = NULL;
        pjrt_status *st =
            pjrt_buffer_from_host(device(0), PJRT_F32, (int64_t[]){4}, 1, values, NULL, NULL, &in);
        if (st == NULL)
            st = pjrt_execute(shared, &in, 1, NULL, &out, 1, NULL);
        if (st == NULL)
            st = pjrt_buffer_to_host(out, back, sizeof back, NULL);
        if (st != NULL || back[3] != (float)i + 1)
            atomic_fetch_add(&wrong, 1);
        pjrt_status_free(st);
        pjrt_buffer_free(in);
        pjrt_buffer_free(out);
    }
    return NULL;
}

static void threads_share_an_executable(void **state)
{
    (void)state;
    NEED_PLUGIN();
    pthread_t threads[3];
    shared = compile(add_one, NULL);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, count_up, NULL), 0);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(wrong, 0);
    pjrt_executable_free(shared);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_the_cpu),
        cmocka_unit_test(a_matmul_multiplies),
        cmocka_unit_test(the_example_of_the_header_works),
        cmocka_unit_test(every_type_goes_through_a_program),
        cmocka_unit_test(empty_arrays_scalars_and_strides),
        cmocka_unit_test(a_transposed_result_arrives_row_major),
        cmocka_unit_test(transfers_may_be_asynchronous),
        cmocka_unit_test(zero_copy_gives_the_memory_back),
        cmocka_unit_test(buffers_move_between_devices),
        cmocka_unit_test(a_donated_buffer_is_dead_and_its_memory_used),
        cmocka_unit_test(a_buffer_is_not_donated_and_read_at_once),
        cmocka_unit_test(replicas_sum_over_four_devices),
        cmocka_unit_test(partitions_share_one_array),
        cmocka_unit_test(a_portable_executable_runs_anywhere),
        cmocka_unit_test(an_assignment_chooses_the_device),
        cmocka_unit_test(bad_programs_are_told_with_reasons),
        cmocka_unit_test(overrides_reach_the_compiler),
        cmocka_unit_test(wrong_arguments_are_refused),
        cmocka_unit_test(unknown_client_options_are_refused),
        cmocka_unit_test(a_program_tells_its_costs),
        cmocka_unit_test(executables_are_saved_and_loaded),
        cmocka_unit_test(a_trace_can_be_taken),
        cmocka_unit_test(a_c_function_runs_inside_a_program),
        cmocka_unit_test(a_name_is_registered_once),
        cmocka_unit_test(an_error_of_a_handler_arrives),
        cmocka_unit_test(clients_live_side_by_side_and_go_in_any_order),
        cmocka_unit_test(threads_share_an_executable),
    };
    return cmocka_run_group_tests_name("pjrt cpu", tests, open_plugin, close_plugin);
}
