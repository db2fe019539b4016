/* FFI registration and the profiler, as extensions of the fake plugin. */
#include "tests/support/support.h"

#include "xla/ffi/api/c_api.h"

#include <stdlib.h>

static support_fake fake;

static int open_fake(void **state)
{
    (void)state;
    support_fake_open(&fake);
    support_fake_load(&fake);
    return 0;
}

static int close_fake(void **state)
{
    (void)state;
    support_fake_remove(&fake);
    return 0;
}

/* ---- FFI ---- */

static int kernel_runs;

static XLA_FFI_Error *good_handler(XLA_FFI_CallFrame *frame)
{
    if (pjrt_ffi_answer_metadata(frame, true))
        return NULL;
    kernel_runs++;
    return NULL;
}

static XLA_FFI_Error *other_handler(XLA_FFI_CallFrame *frame)
{
    return pjrt_ffi_answer_metadata(frame, false) ? NULL : (XLA_FFI_Error *)frame;
}

/* It would go on to its arguments, which are not there when it is asked what it is. */
static XLA_FFI_Error *silent_handler(XLA_FFI_CallFrame *frame)
{
    (void)frame;
    return NULL;
}

static XLA_FFI_Error *failing_handler(XLA_FFI_CallFrame *frame)
{
    return (XLA_FFI_Error *)frame;
}

static void *pointer_to(XLA_FFI_Handler *handler)
{
    void *pointer;
    memcpy(&pointer, &handler, sizeof pointer);
    return pointer;
}

/* T32: asked with a metadata extension, wherever it stands in the chain, and else not. */
static void the_metadata_question_is_answered(void **state)
{
    (void)state;
    XLA_FFI_Metadata metadata = {.struct_size = XLA_FFI_Metadata_STRUCT_SIZE};
    XLA_FFI_Metadata_Extension question = {.metadata = &metadata};
    question.extension_base.struct_size = XLA_FFI_Metadata_Extension_STRUCT_SIZE;
    question.extension_base.type = XLA_FFI_Extension_Metadata;
    XLA_FFI_Extension_Base unknown = {.struct_size = sizeof unknown,
                                      .type = (XLA_FFI_Extension_Type)4711,
                                      .next = &question.extension_base};
    XLA_FFI_CallFrame frame = {.struct_size = XLA_FFI_CallFrame_STRUCT_SIZE,
                               .extension_start = &unknown};
    metadata.api_version.major_version = metadata.api_version.minor_version = 99;
    assert_true(pjrt_ffi_answer_metadata(&frame, false));
    assert_int_equal(metadata.api_version.major_version, 0);
    assert_int_equal(metadata.api_version.minor_version, 1); /* what every plugin accepts */
    assert_int_equal(metadata.traits, 0);
    assert_true(pjrt_ffi_answer_metadata(&frame, true));
    assert_int_equal(metadata.traits, XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE);
    unknown.next = NULL;
    assert_false(pjrt_ffi_answer_metadata(&frame, true));
    frame.extension_start = NULL;
    assert_false(pjrt_ffi_answer_metadata(&frame, true));
}

static void a_handler_is_registered_and_proved(void **state)
{
    (void)state;
    support_fake_client(&fake);
    kernel_runs = 0;
    ASSERT_FAILS(pjrt_ffi_probe(fake.client, NULL, "ttt_good"), UNIMPLEMENTED,
                 "No FFI handler registered");
    ASSERT_OK(pjrt_ffi_register(fake.plugin, "ttt_good", "cuda", pointer_to(good_handler), true));
    assert_int_equal(fake.control->seen.ffi_traits,
                     PJRT_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE);
    assert_string_equal(fake.control->seen.ffi_platform, "cuda"); /* T34: the plugin maps names */
    ASSERT_OK(pjrt_ffi_probe(fake.client, NULL, "ttt_good"));
    pjrt_topology *topology;
    ASSERT_OK(pjrt_topology_create(fake.plugin, "chip", NULL, 0, &topology));
    ASSERT_OK(pjrt_ffi_probe(NULL, topology, "ttt_good"));
    pjrt_topology_free(topology);
    assert_int_equal(kernel_runs, 0); /* it was only asked */
    support_fake_finish(&fake);
}

/* T32: a handler that does not answer is refused by us; the plugin would say nothing. */
static void a_handler_that_does_not_answer_is_refused(void **state)
{
    (void)state;
    fake.control->reset();
    ASSERT_FAILS(
        pjrt_ffi_register(fake.plugin, "ttt_silent", "cpu", pointer_to(silent_handler), false),
        INVALID_ARGUMENT, "ttt_silent does not answer");
    ASSERT_FAILS(
        pjrt_ffi_register(fake.plugin, "ttt_failing", "cpu", pointer_to(failing_handler), false),
        INVALID_ARGUMENT, "ttt_failing failed to tell");
    assert_int_equal(fake.control->calls("PJRT_FFI_Register_Handler"), 0);
    support_assert_balanced(fake.control);
}

/* T33: the plugin answers OK and forgets; only the compiler tells. */
static void a_dropped_registration_shows_in_the_probe(void **state)
{
    (void)state;
    support_fake_client(&fake);
    fake.control->drop_register = true;
    ASSERT_OK(
        pjrt_ffi_register(fake.plugin, "ttt_dropped", "cpu", pointer_to(good_handler), false));
    ASSERT_FAILS(pjrt_ffi_probe(fake.client, NULL, "ttt_dropped"), UNIMPLEMENTED,
                 "No FFI handler registered");
    support_fake_finish(&fake);
}

static void a_registration_error_is_told_when_there_is_one(void **state)
{
    (void)state;
    fake.control->reset();
    fake.control->fail = "PJRT_FFI_Register_Handler";
    fake.control->fail_at = 1;
    fake.control->fail_code = PJRT_Error_Code_ALREADY_EXISTS;
    pjrt_status *st =
        pjrt_ffi_register(fake.plugin, "ttt_other", "cpu", pointer_to(other_handler), false);
    assert_string_equal(pjrt_status_call(st), "PJRT_FFI_Register_Handler");
    ASSERT_FAILS(st, ALREADY_EXISTS, "scripted");
    support_assert_balanced(fake.control);
}

/* T3: register_handler is the last member; an extension that ends before it has none. */
static void a_short_ffi_extension_is_refused(void **state)
{
    (void)state;
    static const char part[] = "no FFI extension";
    void *handler = pointer_to(good_handler);
    fake.control->reset();
    fake.control->ffi->base.struct_size = PJRT_FFI_Extension_STRUCT_SIZE - 1;
    ASSERT_FAILS(pjrt_ffi_register(fake.plugin, "ttt_x", "cpu", handler, false), UNIMPLEMENTED,
                 part);
    fake.control->reset();
    fake.control->ffi->register_handler = NULL;
    ASSERT_FAILS(pjrt_ffi_register(fake.plugin, "ttt_x", "cpu", handler, false), UNIMPLEMENTED,
                 part);
    fake.control->reset();
    fake.control->api->extension_start = NULL;
    ASSERT_FAILS(pjrt_ffi_register(fake.plugin, "ttt_x", "cpu", handler, false), UNIMPLEMENTED,
                 part);
    fake.control->reset();
    fake.control->ffi->base.struct_size = PJRT_FFI_Extension_STRUCT_SIZE + 64; /* a newer one */
    ASSERT_OK(pjrt_ffi_register(fake.plugin, "ttt_x", "cpu", handler, false));
    support_assert_balanced(fake.control);
}

/* T6: this struct has no extension_start; the fake checks that its size is exact. */
static void a_newer_plugin_gets_a_longer_registration(void **state)
{
    (void)state;
    support_fake newer;
    support_fake_open(&newer);
    newer.control->api->pjrt_api_version.minor_version = PJRT_API_MINOR + 1;
    newer.control->newer = 32;
    support_fake_load(&newer);
    ASSERT_OK(pjrt_ffi_register(newer.plugin, "ttt_x", "cpu", pointer_to(good_handler), false));
    support_assert_balanced(newer.control);
    support_fake_remove(&newer);
}

/* ---- profiler ---- */

static void a_trace_is_written(void **state)
{
    (void)state;
    pjrt_profile *profile;
    size_t size;
    fake.control->reset();
    ASSERT_OK(pjrt_profile_start(fake.plugin, &profile));
    const char *path = support_path(fake.folder, "trace.pb");
    ASSERT_OK(pjrt_profile_stop(profile, path));
    unsigned char *trace = support_read_file(path, &size);
    assert_string_equal((char *)trace, "trace of nothing");
    free(trace);
    ASSERT_OK(pjrt_profile_start(fake.plugin, &profile));
    ASSERT_OK(pjrt_profile_stop(profile, NULL)); /* only dropped */
    assert_int_equal(fake.control->calls("PLUGIN_Profiler_CollectData"), 2);
    support_assert_balanced(fake.control);
}

static void a_profiler_fails_at_every_step(void **state)
{
    (void)state;
    static const char *const steps[] = {"PLUGIN_Profiler_Create", "PLUGIN_Profiler_Start",
                                        "PLUGIN_Profiler_Stop", "PLUGIN_Profiler_CollectData",
                                        "PLUGIN_Profiler_CollectData"};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        pjrt_profile *profile = (pjrt_profile *)state;
        fake.control->reset();
        fake.control->fail = steps[i];
        fake.control->fail_at = i == 4 ? 2 : 1;
        fake.control->fail_code = PJRT_Error_Code_ABORTED;
        pjrt_status *st = pjrt_profile_start(fake.plugin, &profile);
        if (i < 2)
            assert_null(profile);
        else
            st = pjrt_profile_stop(profile, support_path(fake.folder, "t.pb"));
        assert_string_equal(pjrt_status_call(st), steps[i]);
        ASSERT_FAILS(st, ABORTED, "scripted");
        support_assert_balanced(fake.control);
    }
    pjrt_profile *profile;
    fake.control->reset();
    ASSERT_OK(pjrt_profile_start(fake.plugin, &profile));
    ASSERT_FAILS(pjrt_profile_stop(profile, "/no/such/folder/t.pb"), UNAVAILABLE, "/no/such");
    support_assert_balanced(fake.control);
}

static void without_a_profiler_it_says_so(void **state)
{
    (void)state;
    pjrt_profile *profile;
    fake.control->reset();
    fake.control->profiler->profiler_api->struct_size -= 1;
    ASSERT_FAILS(pjrt_profile_start(fake.plugin, &profile), UNIMPLEMENTED, "no profiler");
    fake.control->reset();
    fake.control->profiler->profiler_api = NULL;
    ASSERT_FAILS(pjrt_profile_start(fake.plugin, &profile), UNIMPLEMENTED, "no profiler");
    fake.control->reset();
    fake.control->profiler->base.struct_size = sizeof(PJRT_Extension_Base);
    ASSERT_FAILS(pjrt_profile_start(fake.plugin, &profile), UNIMPLEMENTED, "no profiler");
    assert_null(profile);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_metadata_question_is_answered),
        cmocka_unit_test(a_handler_is_registered_and_proved),
        cmocka_unit_test(a_handler_that_does_not_answer_is_refused),
        cmocka_unit_test(a_dropped_registration_shows_in_the_probe),
        cmocka_unit_test(a_registration_error_is_told_when_there_is_one),
        cmocka_unit_test(a_short_ffi_extension_is_refused),
        cmocka_unit_test(a_newer_plugin_gets_a_longer_registration),
        cmocka_unit_test(a_trace_is_written),
        cmocka_unit_test(a_profiler_fails_at_every_step),
        cmocka_unit_test(without_a_profiler_it_says_so),
    };
    return cmocka_run_group_tests_name("pjrt extensions", tests, open_fake, close_fake);
}
