/* Compiling and running on the fake plugin: what is checked before a run, donation after it. */
#include "pjrt/hlo/pjrt_hlo.h"
#include "tests/support/support.h"

#include <stdlib.h>

static support_fake fake;
static const char text[] = "module { func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> }";
static const char donating[] = "module { func.func @main(%a: tensor<4xf32> {jax.buffer_donor = "
                               "true}, %b: tensor<4xf32>) -> tensor<4xf32> }";

static int open_fake(void **state)
{
    (void)state;
    support_fake_open(&fake);
    return 0;
}

static int close_fake(void **state)
{
    (void)state;
    support_fake_remove(&fake);
    return 0;
}

static pjrt_device *device(size_t index)
{
    return pjrt_client_device(fake.client, index);
}

static pjrt_executable *compile(const char *program)
{
    pjrt_executable *exe;
    ASSERT_OK(pjrt_compile(fake.client, pjrt_program_text(program), NULL, &exe));
    return exe;
}

static int executions(void)
{
    return fake.control->calls("PJRT_LoadedExecutable_Execute");
}

/* ---- compiling ---- */

static void an_executable_tells_what_it_is(void **state)
{
    (void)state;
    const pjrt_shape *shapes;
    pjrt_memory_stats memory;
    const pjrt_option *costs;
    int count;
    size_t n_costs;
    support_fake_client(&fake);
    fake.control->program.results[0] = (fake_shape){PJRT_Buffer_Type_BF16, 2, {2, 3}};
    fake.control->program.results[1] = (fake_shape){.type = PJRT_Buffer_Type_PRED};
    fake.control->program.n_results = 2;
    pjrt_executable *exe = compile(text);
    assert_string_equal(pjrt_executable_name(exe), "fake_module");
    assert_int_equal(pjrt_executable_num_devices(exe), 1);
    assert_int_equal(pjrt_executable_num_results(exe), 2);
    assert_true(
        pjrt_shape_equal(pjrt_executable_result(exe, 0), &(pjrt_shape){PJRT_BF16, 2, {2, 3}}));
    assert_true(pjrt_shape_equal(pjrt_executable_result(exe, 1), &(pjrt_shape){.type = PJRT_PRED}));
    assert_null(pjrt_executable_result(exe, 2));
    assert_null(pjrt_executable_result(exe, -1));
    ASSERT_OK(pjrt_executable_arguments(exe, &shapes, &count));
    assert_int_equal(count, 1);
    assert_true(pjrt_shape_equal(&shapes[0], &(pjrt_shape){PJRT_F32, 1, {4}}));
    ASSERT_OK(pjrt_executable_memory(exe, &memory));
    assert_int_equal(memory.temp, 5);
    assert_int_equal(memory.host_temp, 8);
    assert_int_equal(memory.peak, -1); /* a plugin that does not know it leaves it alone */
    ASSERT_OK(pjrt_executable_costs(exe, &costs, &n_costs));
    assert_int_equal(n_costs, 2);
    assert_string_equal(costs[0].name, "flops");
    assert_true(costs[0].real == 8);
    /* T14: an executable got from a loaded one is ours to destroy. */
    assert_int_equal(fake.control->created[FAKE_EXECUTABLE], 1);
    pjrt_executable_free(exe);
    assert_int_equal(fake.control->destroyed[FAKE_EXECUTABLE], 1);
    support_fake_finish(&fake);
}

static void the_plugin_gets_the_encoded_options(void **state)
{
    (void)state;
    pjrt_executable *exe;
    char *bytes;
    size_t size;
    pjrt_option override = PJRT_OPT_BOOL("xla_flag", true);
    pjrt_compile_options options = {.overrides = &override, .n_overrides = 1};
    pjrt_program program = pjrt_program_text(text);
    support_fake_client(&fake);
    ASSERT_OK(pjrt_compile(fake.client, program, &options, &exe));
    ASSERT_OK(pjrt_compile_options_encode(&options, &program, &bytes, &size));
    assert_int_equal(fake.control->seen.compile_options_size, size);
    assert_memory_equal(fake.control->seen.compile_options, bytes, size);
    free(bytes);
    pjrt_executable_free(exe);
    support_fake_finish(&fake);
}

static void a_compilers_complaint_arrives_whole(void **state)
{
    (void)state;
    pjrt_executable *exe = (pjrt_executable *)state;
    support_fake_client(&fake);
    pjrt_status *st = pjrt_compile(fake.client, pjrt_program_text("fake.bad"), NULL, &exe);
    assert_null(exe);
    assert_string_equal(pjrt_status_text(st), "PJRT_Client_Compile: INVALID_ARGUMENT: 3:7: error: "
                                              "unknown op fake.bad");
    ASSERT_FAILS(st, INVALID_ARGUMENT, "see the second line");
    support_fake_finish(&fake);
}

static void results_of_too_many_dimensions_are_refused(void **state)
{
    (void)state;
    pjrt_executable *exe;
    support_fake_client(&fake);
    fake.control->program.results[0].rank = 9;
    ASSERT_FAILS(pjrt_compile(fake.client, pjrt_program_text(text), NULL, &exe), UNIMPLEMENTED,
                 "9 dimensions");
    assert_null(exe);
    support_fake_finish(&fake);
}

static void optimized_programs_come_in_two_formats(void **state)
{
    (void)state;
    for (int config = 0; config < 2; config++) {
        char *bytes;
        size_t size;
        const char *format;
        pjrt_hlo_report *report;
        support_fake_client(&fake);
        fake.control->with_config = config == 1;
        pjrt_executable *exe = compile(text);
        ASSERT_OK(pjrt_executable_optimized(exe, &bytes, &size, &format));
        assert_string_equal(format, config ? "hlo_with_config" : "hlo");
        ASSERT_OK(pjrt_hlo_report_create(format, bytes, size, &report));
        assert_string_equal(report->module_name, "fake_module");
        assert_int_equal(report->instruction_count, 2);
        pjrt_hlo_report_free(report);
        free(bytes);
        pjrt_executable_free(exe);
        support_fake_finish(&fake);
    }
}

/* ---- T17: what a plugin would run without a word ---- */

static void wrong_arguments_never_reach_the_plugin(void **state)
{
    (void)state;
    float values[4] = {0};
    support_fake_client(&fake);
    pjrt_executable *exe = compile(text);
    pjrt_buffer *good = support_upload4(device(0), 1, 2, 3, 4);
    pjrt_buffer *elsewhere = support_upload4(device(1), 1, 2, 3, 4);
    pjrt_buffer *dead = support_upload4(device(0), 1, 2, 3, 4), *shape, *type;
    ASSERT_OK(pjrt_buffer_delete(dead));
    /* Both have the right number of bytes. */
    ASSERT_OK(pjrt_buffer_from_host(device(0), PJRT_F32, (int64_t[]){2, 2}, 2, values, NULL, NULL,
                                    &shape));
    ASSERT_OK(
        pjrt_buffer_from_host(device(0), PJRT_S32, (int64_t[]){4}, 1, values, NULL, NULL, &type));
    pjrt_buffer *const two[] = {good, good}, *const nothing[] = {NULL};
    pjrt_buffer *out[2];
    pjrt_event *done[2];
#define REFUSED(args, n, options, n_results, code, part)                                 \
    memset(out, 1, sizeof out);                                                          \
    memset(done, 1, sizeof done);                                                        \
    ASSERT_FAILS(pjrt_execute(exe, args, n, options, out, n_results, done), code, part); \
    assert_null(out[0]);                                                                 \
    assert_null(done[0])
    REFUSED(&shape, 1, NULL, 1, INVALID_ARGUMENT,
            "argument 0 is f32[2,2], the program takes f32[4]");
    REFUSED(&type, 1, NULL, 1, INVALID_ARGUMENT, "argument 0 is i32[4]");
    REFUSED(&elsewhere, 1, NULL, 1, INVALID_ARGUMENT, "on device 1, the program runs on device 0");
    REFUSED(&dead, 1, NULL, 1, FAILED_PRECONDITION, "dead");
    REFUSED(nothing, 1, NULL, 1, INVALID_ARGUMENT, "is NULL");
    REFUSED(two, 2, NULL, 1, INVALID_ARGUMENT, "2 arguments, the program takes 1");
    REFUSED(two, 0, NULL, 1, INVALID_ARGUMENT, "0 arguments");
    REFUSED(&good, 1, NULL, 2, INVALID_ARGUMENT, "room for 2 results");
    pjrt_execute_options options = {.num_devices = 2};
    REFUSED(two, 1, &options, 1, INVALID_ARGUMENT, "2 devices");
    options.num_devices = -1;
    ASSERT_FAILS(pjrt_execute(exe, &good, 1, &options, out, 1, NULL), INVALID_ARGUMENT,
                 "-1 devices");
    assert_int_equal(executions(), 0);
    ASSERT_OK(pjrt_execute(exe, &good, 1, NULL, out, 1, NULL));
    assert_int_equal(executions(), 1);
    pjrt_buffer *all[] = {good, elsewhere, dead, shape, type, out[0]};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        pjrt_buffer_free(all[i]);
    pjrt_executable_free(exe);
    support_fake_finish(&fake);
}

/* A plugin that hides its programs leaves shapes unchecked, not devices and dead buffers. */
static void a_plugin_may_hide_its_programs(void **state)
{
    (void)state;
    const pjrt_shape *shapes = (const pjrt_shape *)state;
    int count = 7;
    pjrt_buffer *out;
    support_fake_client(&fake);
    fake.control->hide_program = true;
    pjrt_executable *exe = compile(text);
    ASSERT_FAILS(pjrt_executable_arguments(exe, &shapes, &count), UNIMPLEMENTED, "secret");
    assert_null(shapes);
    assert_int_equal(count, 0);
    pjrt_buffer *good = support_upload4(device(0), 1, 2, 3, 4);
    pjrt_buffer *elsewhere = support_upload4(device(1), 1, 2, 3, 4);
    ASSERT_FAILS(pjrt_execute(exe, &elsewhere, 1, NULL, &out, 1, NULL), INVALID_ARGUMENT,
                 "device 1");
    ASSERT_OK(pjrt_execute(exe, &good, 1, NULL, &out, 1, NULL));
    /* What was learnt once is not asked again. */
    assert_int_equal(fake.control->calls("PJRT_Executable_OptimizedProgram"), 1);
    pjrt_buffer_free(out);
    pjrt_buffer_free(good);
    pjrt_buffer_free(elsewhere);
    pjrt_executable_free(exe);
    support_fake_finish(&fake);
}

static void a_damaged_program_is_no_licence(void **state)
{
    (void)state;
    pjrt_buffer *out;
    support_fake_client(&fake);
    fake.control->optimized = "\x22\x7f";
    fake.control->optimized_size = 2;
    pjrt_executable *exe = compile(text);
    pjrt_buffer *in = support_upload4(device(0), 1, 2, 3, 4);
    ASSERT_FAILS(pjrt_execute(exe, &in, 1, NULL, &out, 1, NULL), DATA_LOSS, "arguments");
    assert_int_equal(executions(), 0);
    pjrt_buffer_free(in);
    pjrt_executable_free(exe);
    support_fake_finish(&fake);
}

/* ---- running ---- */

static void a_run_makes_results_and_events(void **state)
{
    (void)state;
    pjrt_buffer *out;
    pjrt_event *done;
    unsigned char back[16];
    bool ready;
    pjrt_execute_options options = {.launch_id = 5};
    support_fake_client(&fake);
    fake.control->deferred = true;
    pjrt_executable *exe = compile(text);
    pjrt_buffer *in = support_upload4(device(0), 0, 0, 0, 0);
    ASSERT_OK(pjrt_execute(exe, &in, 1, &options, &out, 1, &done));
    assert_int_equal(fake.control->seen.launch_id, 5);
    assert_int_equal(fake.control->seen.n_keep, 0);
    assert_true(fake.control->seen.events_wanted);
    assert_int_equal(fake.control->seen.execute_device, -1);
    ASSERT_OK(pjrt_event_is_ready(done, &ready));
    assert_false(ready);
    ASSERT_OK(pjrt_event_wait(done));
    assert_ptr_equal(pjrt_buffer_device(out), device(0));
    ASSERT_OK(pjrt_buffer_to_host(out, back, sizeof back, NULL));
    assert_int_equal(back[7], 1);
    pjrt_event_free(done);
    pjrt_buffer_free(out);
    ASSERT_OK(pjrt_execute(exe, &in, 1, NULL, &out, 1, NULL));
    assert_false(fake.control->seen.events_wanted);
    pjrt_buffer_free(out);
    pjrt_buffer_free(in);
    pjrt_executable_free(exe);
    support_fake_finish(&fake);
}

/* T13: a run that fails writes no events, and what was in the array is nobody's event. */
static void a_failing_run_leaves_nothing(void **state)
{
    (void)state;
    pjrt_buffer *out = (pjrt_buffer *)state;
    pjrt_event *done = (pjrt_event *)state;
    support_fake_client(&fake);
    pjrt_executable *exe = compile(text);
    pjrt_buffer *in = support_upload4(device(0), 0, 0, 0, 0);
    fake.control->fail = "PJRT_LoadedExecutable_Execute";
    fake.control->fail_at = 1;
    fake.control->fail_code = PJRT_Error_Code_RESOURCE_EXHAUSTED;
    pjrt_status *st = pjrt_execute(exe, &in, 1, NULL, &out, 1, &done);
    assert_string_equal(pjrt_status_call(st), "PJRT_LoadedExecutable_Execute");
    ASSERT_FAILS(st, RESOURCE_EXHAUSTED, "scripted");
    assert_null(out);
    assert_null(done);
    pjrt_buffer_free(in);
    pjrt_executable_free(exe);
    support_fake_finish(&fake);
}

static void four_devices_get_their_own_lists(void **state)
{
    (void)state;
    enum { N = 4 };
    pjrt_buffer *in[N], *out[2 * N];
    pjrt_event *done[N];
    support_fake_client(&fake);
    fake.control->program.replicas = 2;
    fake.control->program.partitions = 2;
    fake.control->program.n_results = 2;
    fake.control->program.results[1] = fake.control->program.results[0];
    pjrt_executable *exe = compile(text);
    assert_int_equal(pjrt_executable_num_devices(exe), N);
    for (size_t i = 0; i < N; i++) {
        unsigned char value[16];
        memset(value, (int)(10 * i), sizeof value);
        ASSERT_OK(pjrt_buffer_from_host(device(i), PJRT_F32, (int64_t[]){4}, 1, value, NULL, NULL,
                                        &in[i]));
    }
    ASSERT_OK(pjrt_execute(exe, in, 1, &(pjrt_execute_options){.num_devices = N}, out, 2, done));
    for (size_t i = 0; i < N; i++) {
        ASSERT_OK(pjrt_event_wait(done[i]));
        pjrt_event_free(done[i]);
        for (size_t r = 0; r < 2; r++) {
            unsigned char back[16];
            assert_ptr_equal(pjrt_buffer_device(out[2 * i + r]), device(i));
            ASSERT_OK(pjrt_buffer_to_host(out[2 * i + r], back, sizeof back, NULL));
            assert_int_equal(back[0], 10 * i + 1);
        }
    }
    pjrt_buffer *swapped[N] = {in[1], in[0], in[2], in[3]}, *none[2 * N];
    ASSERT_FAILS(pjrt_execute(exe, swapped, 1, NULL, none, 2, NULL), INVALID_ARGUMENT,
                 "on device 1, the program runs on device 0");
    for (int i = 0; i < N; i++)
        pjrt_buffer_free(in[i]);
    for (int i = 0; i < 2 * N; i++)
        pjrt_buffer_free(out[i]);
    pjrt_executable_free(exe);
    support_fake_finish(&fake);
}

/* T25: a portable executable runs where the call says. */
static void a_portable_executable_needs_a_device(void **state)
{
    (void)state;
    pjrt_buffer *out;
    support_fake_client(&fake);
    fake.control->program.portable = true;
    pjrt_executable *exe = compile(text);
    pjrt_buffer *in = support_upload4(device(2), 1, 2, 3, 4);
    ASSERT_FAILS(pjrt_execute(exe, &in, 1, NULL, &out, 1, NULL), INVALID_ARGUMENT,
                 "options.device");
    pjrt_execute_options options = {.device = device(1)};
    ASSERT_FAILS(pjrt_execute(exe, &in, 1, &options, &out, 1, NULL), INVALID_ARGUMENT, "device 2");
    options.device = device(2);
    ASSERT_OK(pjrt_execute(exe, &in, 1, &options, &out, 1, NULL));
    assert_int_equal(fake.control->seen.execute_device, 2);
    assert_ptr_equal(pjrt_buffer_device(out), device(2));
    pjrt_buffer_free(out);
    pjrt_buffer_free(in);
    pjrt_executable_free(exe);
    support_fake_finish(&fake);
}

/* More than fits the lists on the stack. */
static void many_devices_and_arguments(void **state)
{
    (void)state;
    enum { N = 16, ARGS = 4 };
    pjrt_buffer *in[N * ARGS], *out[N];
    if (fake.plugin == NULL)
        support_fake_load(&fake);
    fake.control->reset();
    fake.control->devices = N;
    fake.control->program.replicas = N;
    fake.control->program.n_args = ARGS;
    for (int i = 1; i < ARGS; i++)
        fake.control->program.args[i] = fake.control->program.args[0];
    ASSERT_OK(pjrt_client_create(fake.plugin, NULL, &fake.client));
    pjrt_executable *exe = compile(text);
    for (size_t i = 0; i < N * ARGS; i++)
        in[i] = support_upload4(device(i / ARGS), 1, 2, 3, 4);
    ASSERT_OK(pjrt_execute(exe, in, ARGS, NULL, out, 1, NULL));
    for (int i = 0; i < N * ARGS; i++)
        pjrt_buffer_free(in[i]);
    for (int i = 0; i < N; i++)
        pjrt_buffer_free(out[i]);
    pjrt_executable_free(exe);
    support_fake_finish(&fake);
}

/* ---- donation ---- */

static pjrt_executable *compile_donating(bool taken)
{
    fake.control->program.n_args = 2;
    fake.control->program.args[1] = fake.control->program.args[0];
    fake.control->program.takes[0] = taken;
    return compile(donating);
}

/* T18, T20: a taken donation is counted and its handle dead; it is destroyed once, no more. */
static void a_taken_donation_kills_the_handle(void **state)
{
    (void)state;
    int64_t taken, refused;
    pjrt_buffer *out;
    support_fake_client(&fake);
    pjrt_executable *exe = compile_donating(true);
    pjrt_buffer *in[] = {support_upload4(device(0), 1, 2, 3, 4),
                         support_upload4(device(0), 1, 2, 3, 4)};
    ASSERT_OK(pjrt_execute(exe, in, 2, NULL, &out, 1, NULL));
    assert_true(pjrt_buffer_is_dead(in[0]));
    assert_false(pjrt_buffer_is_dead(in[1]));
    pjrt_executable_donations(exe, &taken, &refused);
    assert_int_equal(taken, 1);
    assert_int_equal(refused, 0);
    pjrt_buffer *none;
    ASSERT_FAILS(pjrt_execute(exe, in, 2, NULL, &none, 1, NULL), FAILED_PRECONDITION, "dead");
    assert_int_equal(executions(), 1);
    pjrt_buffer_free(in[0]);
    pjrt_buffer_free(in[1]);
    pjrt_buffer_free(out);
    assert_int_equal(fake.control->calls("PJRT_Buffer_Destroy"), 3);
    pjrt_executable_free(exe);
    support_fake_finish(&fake);
}

/* T18: may-alias lets the compiler decline; nobody would notice but for the memory. */
static void a_refused_donation_is_counted(void **state)
{
    (void)state;
    int64_t taken, refused;
    pjrt_buffer *out;
    support_fake_client(&fake);
    pjrt_executable *exe = compile_donating(false);
    pjrt_buffer *in[] = {support_upload4(device(0), 1, 2, 3, 4),
                         support_upload4(device(0), 1, 2, 3, 4)};
    for (int i = 0; i < 2; i++) {
        ASSERT_OK(pjrt_execute(exe, in, 2, NULL, &out, 1, NULL));
        pjrt_buffer_free(out);
    }
    assert_false(pjrt_buffer_is_dead(in[0]));
    pjrt_executable_donations(exe, &taken, &refused);
    assert_int_equal(taken, 0);
    assert_int_equal(refused, 2);
    assert_int_equal(fake.control->calls("PJRT_Buffer_IsDeleted"), 2); /* not of the other */
    pjrt_buffer_free(in[0]);
    pjrt_buffer_free(in[1]);
    pjrt_executable_free(exe);
    support_fake_finish(&fake);
}

/* T19 */
static void a_kept_argument_is_not_donated(void **state)
{
    (void)state;
    int64_t taken, refused, keep[] = {0};
    pjrt_execute_options options = {.keep = keep, .n_keep = 1};
    pjrt_buffer *out;
    support_fake_client(&fake);
    pjrt_executable *exe = compile_donating(true);
    pjrt_buffer *in[] = {support_upload4(device(0), 1, 2, 3, 4),
                         support_upload4(device(0), 1, 2, 3, 4)};
    ASSERT_OK(pjrt_execute(exe, in, 2, &options, &out, 1, NULL));
    assert_int_equal(fake.control->seen.n_keep, 1);
    assert_int_equal(fake.control->seen.keep[0], 0);
    assert_false(pjrt_buffer_is_dead(in[0]));
    pjrt_executable_donations(exe, &taken, &refused);
    assert_int_equal(taken, 0);
    assert_int_equal(refused, 0);
    pjrt_buffer_free(in[0]);
    pjrt_buffer_free(in[1]);
    pjrt_buffer_free(out);
    pjrt_executable_free(exe);
    support_fake_finish(&fake);
}

/* A program whose text cannot be read (bytecode) may donate anything: all arguments are asked. */
static void donations_of_bytecode_are_noticed(void **state)
{
    (void)state;
    int64_t taken, refused;
    pjrt_buffer *out;
    support_fake_client(&fake);
    fake.control->program.takes[0] = true;
    pjrt_executable *exe;
    pjrt_program bytecode = {"ML\xefR jax.buffer_donor", 21, "mlir"};
    ASSERT_OK(pjrt_compile(fake.client, bytecode, NULL, &exe));
    pjrt_buffer *in = support_upload4(device(0), 1, 2, 3, 4);
    ASSERT_OK(pjrt_execute(exe, &in, 1, NULL, &out, 1, NULL));
    assert_true(pjrt_buffer_is_dead(in));
    pjrt_executable_donations(exe, &taken, &refused);
    assert_int_equal(taken, 1);
    pjrt_buffer_free(in);
    pjrt_buffer_free(out);
    pjrt_executable_free(exe);
    support_fake_finish(&fake);
}

/* A run may take its donations and fail after that: the handles are dead all the same. */
static void a_failed_run_may_have_taken_donations(void **state)
{
    (void)state;
    int64_t taken, refused;
    pjrt_buffer *out;
    float back[4];
    support_fake_client(&fake);
    pjrt_executable *exe = compile_donating(true);
    pjrt_buffer *in[] = {support_upload4(device(0), 1, 2, 3, 4),
                         support_upload4(device(0), 1, 2, 3, 4)};
    fake.control->fail_after = true;
    ASSERT_FAILS(pjrt_execute(exe, in, 2, NULL, &out, 1, NULL), INTERNAL, "scripted");
    assert_true(pjrt_buffer_is_dead(in[0]));
    assert_false(pjrt_buffer_is_dead(in[1]));
    ASSERT_FAILS(pjrt_buffer_to_host(in[0], back, sizeof back, NULL), FAILED_PRECONDITION, "");
    pjrt_executable_donations(exe, &taken, &refused);
    assert_int_equal(taken, 0);
    assert_int_equal(refused, 0);
    pjrt_buffer_free(in[0]);
    pjrt_buffer_free(in[1]);
    pjrt_executable_free(exe);
    support_fake_finish(&fake);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_executable_tells_what_it_is),
        cmocka_unit_test(the_plugin_gets_the_encoded_options),
        cmocka_unit_test(a_compilers_complaint_arrives_whole),
        cmocka_unit_test(results_of_too_many_dimensions_are_refused),
        cmocka_unit_test(optimized_programs_come_in_two_formats),
        cmocka_unit_test(wrong_arguments_never_reach_the_plugin),
        cmocka_unit_test(a_plugin_may_hide_its_programs),
        cmocka_unit_test(a_damaged_program_is_no_licence),
        cmocka_unit_test(a_run_makes_results_and_events),
        cmocka_unit_test(a_failing_run_leaves_nothing),
        cmocka_unit_test(four_devices_get_their_own_lists),
        cmocka_unit_test(a_portable_executable_needs_a_device),
        cmocka_unit_test(many_devices_and_arguments),
        cmocka_unit_test(a_taken_donation_kills_the_handle),
        cmocka_unit_test(a_refused_donation_is_counted),
        cmocka_unit_test(a_kept_argument_is_not_donated),
        cmocka_unit_test(donations_of_bytecode_are_noticed),
        cmocka_unit_test(a_failed_run_may_have_taken_donations),
    };
    return cmocka_run_group_tests_name("pjrt execute", tests, open_fake, close_fake);
}
