/* Numbers that must be the C API's own, shapes, and statuses. Nothing here loads a plugin. */
#include "pjrt/functions.h"
#include "pjrt/internal.h"
#include "tests/support/support.h"

#include "xla/ffi/api/c_api.h"

/* Two numberings that differ from bf16 on: mixing them up gives wrong results, not errors. */
static void types_are_numbered_as_the_headers_number_them(void **state)
{
    (void)state;
#define CHECK_TYPE(name, number, bits, mlir)                               \
    assert_int_equal(PJRT_##name, PJRT_Buffer_Type_##name);                \
    assert_int_equal(pjrt_type_ffi(PJRT_##name), XLA_FFI_DataType_##name); \
    assert_int_equal(pjrt_type_size(PJRT_##name), bits / 8);               \
    assert_string_equal(pjrt_type_name(PJRT_##name), mlir);                \
    assert_int_equal(pjrt_type_parse(mlir, strlen(mlir)), PJRT_##name);
    PJRT_TYPES(CHECK_TYPE)
#undef CHECK_TYPE
    assert_int_not_equal(pjrt_type_ffi(PJRT_BF16), PJRT_BF16);
    assert_int_equal(pjrt_type_size(PJRT_TYPE_INVALID), 0);
    assert_int_equal(pjrt_type_size((pjrt_type)PJRT_Buffer_Type_F8E5M2), 0);
    assert_int_equal(pjrt_type_ffi((pjrt_type)99), 0);
    assert_string_equal(pjrt_type_name((pjrt_type)99), "?");
    assert_int_equal(pjrt_type_parse("f3", 2), PJRT_TYPE_INVALID);
    assert_int_equal(pjrt_type_parse("f32x", 4), PJRT_TYPE_INVALID);
    assert_int_equal(pjrt_type_parse("f32x", 3), PJRT_F32);
    assert_int_equal(pjrt_type_parse("", 0), PJRT_TYPE_INVALID);
}

static void codes_are_numbered_as_the_header_numbers_them(void **state)
{
    (void)state;
#define CHECK_CODE(name, number)                                \
    assert_int_equal(PJRT_CODE_##name, PJRT_Error_Code_##name); \
    assert_string_equal(pjrt_code_name(PJRT_CODE_##name), #name);
    PJRT_CODES(CHECK_CODE)
#undef CHECK_CODE
    assert_string_equal(pjrt_code_name((pjrt_code)99), "UNKNOWN");
}

/* A name that stands at the wrong place in the list would ask for another entry. */
static void entries_are_listed_in_the_headers_order(void **state)
{
    (void)state;
    size_t expected = offsetof(PJRT_Api, PJRT_Error_Destroy);
#define CHECK_ENTRY(name)                                 \
    assert_int_equal(offsetof(PJRT_Api, name), expected); \
    expected += sizeof(void *);
    PJRT_FUNCTIONS(CHECK_ENTRY)
#undef CHECK_ENTRY
    assert_int_equal(expected, PJRT_Api_STRUCT_SIZE);
}

/* T4: a field that a later header puts into the padding must be within what we say we sent. */
static void sizes_end_at_the_last_field(void **state)
{
    (void)state;
    pjrt_plugin same = {.tail = 0}, newer = {.tail = ABI_TAIL};
    ARGS(PJRT_Event_IsReady_Args, a, &same);
    assert_int_equal(a.a.struct_size, PJRT_Event_IsReady_Args_STRUCT_SIZE);
    assert_true(a.a.struct_size < sizeof(PJRT_Event_IsReady_Args));
    ARGS(PJRT_Event_IsReady_Args, b, &newer);
    assert_int_equal(b.a.struct_size, PJRT_Event_IsReady_Args_STRUCT_SIZE + ABI_TAIL);
    assert_true(b.a.struct_size <= sizeof b);
    const unsigned char *bytes = (const unsigned char *)&b;
    for (size_t i = sizeof b.a.struct_size; i < sizeof b; i++)
        assert_int_equal(bytes[i], 0);
}

static void shapes_know_their_size(void **state)
{
    (void)state;
    char text[PJRT_SHAPE_TEXT];
    pjrt_shape scalar = {.type = PJRT_F64};
    assert_int_equal(pjrt_shape_bytes(&scalar), 8);
    assert_string_equal(pjrt_shape_text(&scalar, text), "f64[]");
    pjrt_shape matrix = {PJRT_BF16, 2, {2, 3}};
    assert_int_equal(pjrt_shape_bytes(&matrix), 12);
    assert_string_equal(pjrt_shape_text(&matrix, text), "bf16[2,3]");
    pjrt_shape empty = {PJRT_S32, 3, {INT64_MAX, 0, INT64_MAX}};
    assert_int_equal(pjrt_shape_bytes(&empty), 0);
    pjrt_shape huge = {PJRT_F32, 2, {INT64_MAX / 8, 3}};
    assert_int_equal(pjrt_shape_bytes(&huge), -1);
    pjrt_shape negative = {PJRT_F32, 2, {0, -1}};
    assert_int_equal(pjrt_shape_bytes(&negative), -1);
    pjrt_shape ranks[] = {{PJRT_F32, -1, {0}}, {PJRT_F32, PJRT_MAX_RANK + 1, {0}}};
    assert_int_equal(pjrt_shape_bytes(&ranks[0]), -1);
    assert_int_equal(pjrt_shape_bytes(&ranks[1]), -1);
    pjrt_shape longest = {.type = PJRT_C128, .rank = PJRT_MAX_RANK};
    for (int i = 0; i < PJRT_MAX_RANK; i++)
        longest.dims[i] = INT64_MIN;
    ASSERT_CONTAINS(pjrt_shape_text(&longest, text), "-9223372036854775808]");
}

static void shapes_compare_by_type_rank_and_dimensions(void **state)
{
    (void)state;
    pjrt_shape a = {PJRT_F32, 2, {2, 3}}, b = a;
    b.dims[5] = 9; /* beyond the rank: no part of the shape */
    assert_true(pjrt_shape_equal(&a, &b));
    b.dims[1] = 4;
    assert_false(pjrt_shape_equal(&a, &b));
    b = a, b.type = PJRT_S32;
    assert_false(pjrt_shape_equal(&a, &b));
    b = a, b.rank = 1;
    assert_false(pjrt_shape_equal(&a, &b));
}

static void a_status_tells_all_it_knows(void **state)
{
    (void)state;
    pjrt_status *st = pjrt_status_make(PJRT_CODE_NOT_FOUND, "some_call", "a/b/file.c", 12,
                                       "first %s\nsecond line", "line");
    assert_int_equal(pjrt_status_code(st), PJRT_CODE_NOT_FOUND);
    assert_string_equal(pjrt_status_message(st), "first line\nsecond line");
    assert_string_equal(pjrt_status_call(st), "some_call");
    assert_string_equal(pjrt_status_where(st), "file.c:12");
    assert_string_equal(pjrt_status_text(st), "first line");
    pjrt_status *copy = pjrt_status_copy(st);
    pjrt_status_free(st);
    assert_string_equal(pjrt_status_message(copy), "first line\nsecond line");
    assert_string_equal(pjrt_status_text(copy), "first line");
    assert_string_equal(pjrt_status_where(copy), "file.c:12");
    pjrt_status_free(copy);
    /* A plugin's words need saying whose they are. */
    st = pjrt_status_make(PJRT_CODE_ABORTED, "PJRT_Client_Compile", "f.c", 1, "no\nmore");
    assert_string_equal(pjrt_status_text(st), "PJRT_Client_Compile: ABORTED: no");
    pjrt_status_free(st);
}

static void no_status_is_success(void **state)
{
    (void)state;
    assert_int_equal(pjrt_status_code(NULL), PJRT_CODE_OK);
    assert_string_equal(pjrt_status_message(NULL), "");
    assert_string_equal(pjrt_status_call(NULL), "");
    assert_string_equal(pjrt_status_where(NULL), "");
    assert_string_equal(pjrt_status_text(NULL), "ok");
    assert_null(pjrt_status_copy(NULL));
    pjrt_status_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(types_are_numbered_as_the_headers_number_them),
        cmocka_unit_test(codes_are_numbered_as_the_header_numbers_them),
        cmocka_unit_test(entries_are_listed_in_the_headers_order),
        cmocka_unit_test(sizes_end_at_the_last_field),
        cmocka_unit_test(shapes_know_their_size),
        cmocka_unit_test(shapes_compare_by_type_rank_and_dimensions),
        cmocka_unit_test(a_status_tells_all_it_knows),
        cmocka_unit_test(no_status_is_success),
    };
    return cmocka_run_group_tests_name("pjrt types", tests, NULL, NULL);
}
