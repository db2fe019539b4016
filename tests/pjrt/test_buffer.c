/* Buffers and events on the fake plugin: who owns host memory when, layouts, dead handles. */
#include "tests/support/support.h"

#include <stdlib.h>

static support_fake fake;

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

/* ---- up and down ---- */

static void every_type_goes_up_and_down(void **state)
{
    (void)state;
    support_fake_client(&fake);
#define ROUND_TRIP(name, number, bits, mlir)                                                    \
    {                                                                                           \
        unsigned char up[6 * bits / 8], down[6 * bits / 8] = {0};                               \
        pjrt_buffer *buffer;                                                                    \
        for (size_t i = 0; i < sizeof up; i++)                                                  \
            up[i] = (unsigned char)(i * 37 + number);                                           \
        ASSERT_OK(pjrt_buffer_from_host(device(1), PJRT_##name, (int64_t[]){2, 3}, 2, up, NULL, \
                                        NULL, &buffer));                                        \
        assert_int_equal(pjrt_buffer_shape(buffer)->type, PJRT_##name);                         \
        assert_ptr_equal(pjrt_buffer_device(buffer), device(1));                                \
        ASSERT_OK(pjrt_buffer_to_host(buffer, down, sizeof down, NULL));                        \
        assert_memory_equal(up, down, sizeof up);                                               \
        pjrt_buffer_free(buffer);                                                               \
    }
    PJRT_TYPES(ROUND_TRIP)
    support_fake_finish(&fake);
}

/* T13: with dst NULL a plugin only tells the size and gives no event; an empty array has no data.
 */
static void empty_arrays_and_scalars_are_arrays(void **state)
{
    (void)state;
    pjrt_buffer *buffer;
    double one = 1, back = 0;
    support_fake_client(&fake);
    ASSERT_OK(pjrt_buffer_from_host(device(0), PJRT_F32, (int64_t[]){3, 0}, 2, NULL, NULL, NULL,
                                    &buffer));
    ASSERT_OK(pjrt_buffer_to_host(buffer, NULL, 0, NULL));
    pjrt_event *done;
    ASSERT_OK(pjrt_buffer_to_host(buffer, NULL, 0, &done));
    ASSERT_OK(pjrt_event_wait(done));
    pjrt_event_free(done);
    pjrt_buffer_free(buffer);
    ASSERT_OK(pjrt_buffer_from_host(device(0), PJRT_F64, NULL, 0, &one, NULL, NULL, &buffer));
    ASSERT_OK(pjrt_buffer_to_host(buffer, &back, sizeof back, NULL));
    assert_true(back == 1);
    pjrt_buffer_free(buffer);
    support_fake_finish(&fake);
}

/* T21: without a layout the plugin answers in the device's own order. */
static void read_back_asks_for_row_major(void **state)
{
    (void)state;
    pjrt_buffer *buffer;
    char data[24];
    support_fake_client(&fake);
    memset(data, 0, sizeof data);
    ASSERT_OK(pjrt_buffer_from_host(device(0), PJRT_U8, (int64_t[]){2, 3, 4}, 3, data, NULL, NULL,
                                    &buffer));
    ASSERT_OK(pjrt_buffer_to_host(buffer, data, sizeof data, NULL));
    const fake_seen *seen = &fake.control->seen;
    assert_true(seen->host_layout_given);
    assert_int_equal(seen->n_minor_to_major, 3);
    assert_int_equal(seen->n_tiles, 0);
    assert_int_equal(seen->minor_to_major[0], 2);
    assert_int_equal(seen->minor_to_major[1], 1);
    assert_int_equal(seen->minor_to_major[2], 0);
    pjrt_buffer_free(buffer);
    support_fake_finish(&fake);
}

static void strides_and_memories_are_passed_on(void **state)
{
    (void)state;
    float column_major[] = {1, 4, 2, 5, 3, 6}, back[6];
    int64_t strides[] = {4, 8};
    pjrt_upload_options options = {.byte_strides = strides, .memory = 1};
    pjrt_buffer *buffer;
    support_fake_client(&fake);
    ASSERT_OK(pjrt_buffer_from_host(device(0), PJRT_F32, (int64_t[]){2, 3}, 2, column_major,
                                    &options, NULL, &buffer));
    assert_int_equal(fake.control->seen.n_byte_strides, 2);
    assert_int_equal(fake.control->seen.byte_strides[1], 8);
    assert_int_equal(fake.control->seen.memory, 0); /* "pinned_host", which the plugin has first */
    ASSERT_OK(pjrt_buffer_to_host(buffer, back, sizeof back, NULL));
    for (int i = 0; i < 6; i++)
        assert_true(back[i] == (float)(i + 1));
    pjrt_buffer_free(buffer);
    float one = 1;
    options = (pjrt_upload_options){0};
    ASSERT_OK(pjrt_buffer_from_host(device(0), PJRT_F32, NULL, 0, &one, &options, NULL, &buffer));
    assert_int_equal(fake.control->seen.n_byte_strides, 0);
    assert_int_equal(fake.control->seen.memory, -1);
    pjrt_buffer_free(buffer);
    support_fake_finish(&fake);
}

static void wrong_arrays_are_refused_before_the_plugin(void **state)
{
    (void)state;
    float x[4] = {0};
    pjrt_buffer *buffer = (pjrt_buffer *)x;
    pjrt_event *done = (pjrt_event *)x;
    support_fake_client(&fake);
#define REFUSED(type, dims, rank, options, part)                                                 \
    ASSERT_FAILS(pjrt_buffer_from_host(device(0), type, dims, rank, x, options, &done, &buffer), \
                 INVALID_ARGUMENT, part);                                                        \
    assert_null(buffer);                                                                         \
    assert_null(done)
    int64_t four[9] = {4, 1, 1, 1, 1, 1, 1, 1, 1}, minus[] = {-1};
    REFUSED(PJRT_F32, four, 9, NULL, "rank 9");
    REFUSED(PJRT_F32, four, -1, NULL, "rank -1");
    REFUSED(PJRT_F32, minus, 1, NULL, "f32[-1]");
    REFUSED(PJRT_TYPE_INVALID, four, 1, NULL, "?[4]");
    REFUSED(PJRT_F32, four, 1, &(pjrt_upload_options){.memory = 2}, "memory 2");
    REFUSED(PJRT_F32, four, 1, &(pjrt_upload_options){.memory = -1}, "memory -1");
    ASSERT_FAILS(pjrt_buffer_from_host(device(0), PJRT_F32, four, 1, x,
                                       &(pjrt_upload_options){.host_memory = PJRT_HOST_ZERO_COPY},
                                       NULL, &buffer),
                 INVALID_ARGUMENT, "needs `done`");
    pjrt_shape shape = {PJRT_F32, 1, {-2}};
    ASSERT_FAILS(pjrt_buffer_uninitialized(device(0), &shape, &buffer), INVALID_ARGUMENT,
                 "f32[-2]");
    assert_int_equal(fake.control->calls("PJRT_Client_BufferFromHostBuffer"), 0);
    assert_int_equal(fake.control->calls("PJRT_Client_CreateUninitializedBuffer"), 0);
    buffer = support_upload4(device(0), 1, 2, 3, 4);
    ASSERT_FAILS(pjrt_buffer_to_host(buffer, x, 15, NULL), INVALID_ARGUMENT, "16 bytes, not 15");
    assert_int_equal(fake.control->calls("PJRT_Buffer_ToHostBuffer"), 0);
    pjrt_buffer_free(buffer);
    support_fake_finish(&fake);
}

/* ---- host memory ---- */

/* T16: the three promises are told to the plugin, and the default one is the safe one. */
static void host_memory_promises_are_passed_on(void **state)
{
    (void)state;
    float x = 1;
    pjrt_buffer *buffer;
    pjrt_event *done;
    support_fake_client(&fake);
    static const PJRT_HostBufferSemantics wanted[] = {
        PJRT_HostBufferSemantics_kImmutableOnlyDuringCall,
        PJRT_HostBufferSemantics_kImmutableUntilTransferCompletes,
        PJRT_HostBufferSemantics_kImmutableZeroCopy,
    };
    for (int i = 0; i < 3; i++) {
        pjrt_upload_options options = {.host_memory = (pjrt_host_memory)i};
        ASSERT_OK(
            pjrt_buffer_from_host(device(0), PJRT_F32, NULL, 0, &x, &options, &done, &buffer));
        assert_int_equal(fake.control->seen.semantics, wanted[i]);
        pjrt_buffer_free(buffer);
        ASSERT_OK(pjrt_event_wait(done));
        pjrt_event_free(done);
    }
    buffer = support_upload4(device(0), 1, 2, 3, 4);
    assert_int_equal(fake.control->seen.semantics, wanted[0]);
    pjrt_buffer_free(buffer);
    support_fake_finish(&fake);
}

/* The plugin reads the memory only when it gets to it: until then the event is not ready. */
static void until_done_tells_when_the_data_may_go(void **state)
{
    (void)state;
    float x[4] = {1, 2, 3, 4}, back[4] = {0};
    pjrt_upload_options options = {.host_memory = PJRT_HOST_UNTIL_DONE};
    pjrt_buffer *buffer;
    pjrt_event *done;
    bool ready;
    support_fake_client(&fake);
    fake.control->deferred = true;
    ASSERT_OK(
        pjrt_buffer_from_host(device(0), PJRT_F32, (int64_t[]){4}, 1, x, &options, &done, &buffer));
    ASSERT_OK(pjrt_event_is_ready(done, &ready));
    assert_false(ready);
    ASSERT_OK(pjrt_event_wait(done));
    ASSERT_OK(pjrt_event_is_ready(done, &ready));
    assert_true(ready);
    memset(x, 0, sizeof x);
    ASSERT_OK(pjrt_buffer_to_host(buffer, back, sizeof back, NULL));
    assert_true(back[3] == 4);
    pjrt_event_free(done);
    pjrt_buffer_free(buffer);
    /* Without `done` the call itself waits. */
    float y[4] = {5, 6, 7, 8};
    ASSERT_OK(
        pjrt_buffer_from_host(device(0), PJRT_F32, (int64_t[]){4}, 1, y, &options, NULL, &buffer));
    memset(y, 0, sizeof y);
    ASSERT_OK(pjrt_buffer_to_host(buffer, back, sizeof back, NULL));
    assert_true(back[0] == 5);
    pjrt_buffer_free(buffer);
    assert_int_equal(fake.control->abandoned, 0);
    support_fake_finish(&fake);
}

static void zero_copy_holds_the_data_until_the_buffer_goes(void **state)
{
    (void)state;
    static float x[4] = {1, 2, 3, 4};
    pjrt_upload_options options = {.host_memory = PJRT_HOST_ZERO_COPY};
    pjrt_buffer *buffer;
    pjrt_event *done;
    float back[4];
    bool ready;
    support_fake_client(&fake);
    ASSERT_OK(
        pjrt_buffer_from_host(device(0), PJRT_F32, (int64_t[]){4}, 1, x, &options, &done, &buffer));
    x[0] = 9; /* it is the data itself */
    ASSERT_OK(pjrt_buffer_to_host(buffer, back, sizeof back, NULL));
    assert_true(back[0] == 9);
    ASSERT_OK(pjrt_event_is_ready(done, &ready));
    assert_false(ready);
    pjrt_buffer_free(buffer);
    ASSERT_OK(pjrt_event_is_ready(done, &ready));
    assert_true(ready);
    pjrt_event_free(done);
    support_fake_finish(&fake);
}

static void a_download_waits_or_tells_when(void **state)
{
    (void)state;
    float back[4] = {0};
    pjrt_event *done;
    support_fake_client(&fake);
    pjrt_buffer *buffer = support_upload4(device(0), 1, 2, 3, 4);
    fake.control->deferred = true;
    ASSERT_OK(pjrt_buffer_to_host(buffer, back, sizeof back, NULL));
    assert_true(back[3] == 4);
    memset(back, 0, sizeof back);
    ASSERT_OK(pjrt_buffer_to_host(buffer, back, sizeof back, &done));
    assert_true(back[3] == 0);
    ASSERT_OK(pjrt_event_wait(done));
    assert_true(back[3] == 4);
    ASSERT_OK(pjrt_event_wait(done)); /* again, with the same answer */
    pjrt_event_free(done);
    pjrt_buffer_free(buffer);
    assert_int_equal(fake.control->abandoned, 0);
    support_fake_finish(&fake);
}

/* A transfer that fails after the call returned: no buffer, and the plugin's own is given back. */
static void a_failing_transfer_is_told(void **state)
{
    (void)state;
    float x[4] = {0};
    pjrt_buffer *buffer = (pjrt_buffer *)x;
    pjrt_event *done;
    support_fake_client(&fake);
    fake.control->fail_event_at = 1;
    fake.control->fail_message = "the wire broke";
    ASSERT_FAILS(
        pjrt_buffer_from_host(device(0), PJRT_F32, (int64_t[]){4}, 1, x, NULL, NULL, &buffer),
        INTERNAL, "the wire broke");
    assert_null(buffer);
    buffer = support_upload4(device(0), 1, 2, 3, 4);
    fake.control->fail_event_at = 3;
    ASSERT_FAILS(pjrt_buffer_to_host(buffer, x, sizeof x, NULL), INTERNAL, "the wire broke");
    fake.control->fail_event_at = 4;
    ASSERT_OK(pjrt_buffer_to_host(buffer, x, sizeof x, &done));
    ASSERT_FAILS(pjrt_event_wait(done), INTERNAL, "the wire broke");
    ASSERT_FAILS(pjrt_event_wait(done), INTERNAL, "the wire broke");
    pjrt_event_free(done);
    pjrt_buffer_free(buffer);
    support_fake_finish(&fake);
}

/* ---- events ---- */

static void note_end(pjrt_status *st, void *user)
{
    pjrt_code *code = user;
    *code = pjrt_status_code(st);
    pjrt_status_free(st);
}

/* T12: the callback gets the outcome once, now or later, even when the event is gone by then. */
static void callbacks_come_once_with_the_outcome(void **state)
{
    (void)state;
    const pjrt_code none = (pjrt_code)-1;
    pjrt_code code = none;
    pjrt_event *ready;
    support_fake_client(&fake);
    pjrt_buffer *buffer = support_upload4(device(0), 1, 2, 3, 4);
    ASSERT_OK(pjrt_buffer_ready(buffer, &ready));
    ASSERT_OK(pjrt_event_on_ready(ready, note_end, &code));
    assert_int_equal(code, PJRT_CODE_OK);
    pjrt_event_free(ready);

    code = none;
    fake.control->deferred = true;
    fake.control->fail_event_at = 3;
    ASSERT_OK(pjrt_buffer_ready(buffer, &ready));
    ASSERT_OK(pjrt_event_on_ready(ready, note_end, &code));
    pjrt_event_free(ready);
    assert_int_equal(code, none);
    fake.control->complete();
    assert_int_equal(code, PJRT_CODE_INTERNAL);
    code = none;
    fake.control->complete();
    assert_int_equal(code, none);

    fake.control->fail = "PJRT_Event_OnReady";
    fake.control->fail_at = 3;
    ASSERT_OK(pjrt_buffer_ready(buffer, &ready));
    ASSERT_FAILS(pjrt_event_on_ready(ready, note_end, &code), INTERNAL, "scripted");
    assert_int_equal(code, none); /* the call failed: no callback besides */
    pjrt_event_free(ready);
    pjrt_buffer_free(buffer);
    support_fake_finish(&fake);
}

/* ---- other ways ---- */

static void copies_and_fresh_memory(void **state)
{
    (void)state;
    pjrt_shape shape = {PJRT_BF16, 2, {3, 5}};
    pjrt_buffer *fresh, *copy;
    pjrt_client *other;
    float back[4];
    size_t bytes;
    support_fake_client(&fake);
    ASSERT_OK(pjrt_buffer_uninitialized(device(2), &shape, &fresh));
    assert_true(pjrt_shape_equal(pjrt_buffer_shape(fresh), &shape));
    ASSERT_OK(pjrt_buffer_device_bytes(fresh, &bytes));
    assert_int_equal(bytes, 512); /* what the device pads it to, not 30 */
    pjrt_buffer *buffer = support_upload4(device(0), 1, 2, 3, 4);
    ASSERT_OK(pjrt_buffer_copy_to(buffer, device(3), &copy));
    pjrt_buffer_free(buffer);
    assert_ptr_equal(pjrt_buffer_device(copy), device(3));
    ASSERT_OK(pjrt_buffer_to_host(copy, back, sizeof back, NULL));
    assert_true(back[1] == 2);
    ASSERT_OK(pjrt_client_create(fake.plugin, NULL, &other));
    ASSERT_FAILS(pjrt_buffer_copy_to(copy, pjrt_client_device(other, 0), &buffer), INVALID_ARGUMENT,
                 "another client");
    assert_null(buffer);
    pjrt_client_free(other);
    pjrt_buffer_free(copy);
    pjrt_buffer_free(fresh);
    support_fake_finish(&fake);
}

/* T20: a dead buffer is never shown to the plugin again, except to be destroyed, once. */
static void dead_buffers_are_only_freed(void **state)
{
    (void)state;
    float back[4];
    pjrt_buffer *copy = (pjrt_buffer *)back;
    pjrt_event *event = (pjrt_event *)back;
    size_t bytes;
    support_fake_client(&fake);
    pjrt_buffer *buffer = support_upload4(device(0), 1, 2, 3, 4);
    assert_false(pjrt_buffer_is_dead(buffer));
    ASSERT_OK(pjrt_buffer_delete(buffer));
    assert_true(pjrt_buffer_is_dead(buffer));
    ASSERT_OK(pjrt_buffer_delete(buffer));
    assert_int_equal(fake.control->calls("PJRT_Buffer_Delete"), 1);
    ASSERT_FAILS(pjrt_buffer_to_host(buffer, back, sizeof back, &event), FAILED_PRECONDITION,
                 "f32[4]");
    assert_null(event);
    ASSERT_FAILS(pjrt_buffer_copy_to(buffer, device(1), &copy), FAILED_PRECONDITION, "deleted");
    assert_null(copy);
    ASSERT_FAILS(pjrt_buffer_ready(buffer, &event), FAILED_PRECONDITION, "deleted");
    ASSERT_FAILS(pjrt_buffer_device_bytes(buffer, &bytes), FAILED_PRECONDITION, "deleted");
    pjrt_buffer_free(buffer);
    assert_int_equal(fake.control->calls("PJRT_Buffer_Destroy"), 1);
    support_fake_finish(&fake);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_goes_up_and_down),
        cmocka_unit_test(empty_arrays_and_scalars_are_arrays),
        cmocka_unit_test(read_back_asks_for_row_major),
        cmocka_unit_test(strides_and_memories_are_passed_on),
        cmocka_unit_test(wrong_arrays_are_refused_before_the_plugin),
        cmocka_unit_test(host_memory_promises_are_passed_on),
        cmocka_unit_test(until_done_tells_when_the_data_may_go),
        cmocka_unit_test(zero_copy_holds_the_data_until_the_buffer_goes),
        cmocka_unit_test(a_download_waits_or_tells_when),
        cmocka_unit_test(a_failing_transfer_is_told),
        cmocka_unit_test(callbacks_come_once_with_the_outcome),
        cmocka_unit_test(copies_and_fresh_memory),
        cmocka_unit_test(dead_buffers_are_only_freed),
    };
    return cmocka_run_group_tests_name("pjrt buffer", tests, open_fake, close_fake);
}
