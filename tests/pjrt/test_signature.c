/* What a program takes and gives up: the scanner of @main's text, and shapes of a module's bytes.
 */
#include "pjrt/internal.h"
#include "tests/support/support.h"

#include <stdlib.h>

/* ---- donation wishes ---- */

/* `wanted`: one '1' or '0' an argument; "" none asks; "?" not known. */
static void check(const char *text, const char *wanted)
{
    pjrt_program program = pjrt_program_text(text);
    /* A copy that ends where the text ends, so that reading past it is noticed. */
    char *exact = malloc(program.size);
    assert_non_null(exact);
    memcpy(exact, text, program.size);
    program.code = exact;
    unsigned char *flags;
    int count;
    ASSERT_OK(pjrt__donations_of_text(&program, &flags, &count));
    free(exact);
    char got[32] = "?";
    if (count >= 0) {
        assert_in_range(count, 0, 31);
        for (int i = 0; i < count; i++)
            got[i] = flags[i] ? '1' : '0';
        got[count] = '\0';
    }
    free(flags);
    if (strcmp(got, wanted) != 0)
        fail_msg("donations \"%s\" instead of \"%s\" of\n%s", got, wanted, text);
}

static void no_wishes(void **state)
{
    (void)state;
    check("module { func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> }", "");
    check("", "");
}

static void both_spellings_are_wishes(void **state)
{
    (void)state;
    check("module @m { func.func public @main(%arg0: tensor<4xf32> {tf.aliasing_output = 0 : i32}, "
          "%arg1: tensor<2xi32>, %arg2: tensor<f32> {jax.buffer_donor = true}) -> tensor<4xf32> {",
          "101");
    check("func.func @main (%a: tensor<1xf32>,%b: tensor<1xf32> {tf.aliasing_output=0:i32})", "01");
    check("func.func @main(%a: tensor<1xf32> {\"tf.aliasing_output\" = 0 : i32}, %b: i1)", "10");
}

static void brackets_and_strings_nest(void **state)
{
    (void)state;
    check("func.func @main(%a: tensor<4xf32> {mhlo.sharding = \"{devices=[2,1]<=[2]}, (a\"}, "
          "%b: tensor<4xf32> {jax.buffer_donor = true, n = {x = [1, 2], y = #f<a, (b)>}}, "
          "%c: (tensor<f32>) -> tensor<f32>, %d: f32 {s = \"quote \\\" , ) here\"})",
          "0100");
    check("func.func @main(%a: tensor<4xf32> {jax.arg_info = \"x->y>\", tf.aliasing_output = 0 : "
          "i32}, %b: tensor<4xf32>)",
          "10");
}

/* Words about donation are no wish for it. */
static void mentions_are_no_wishes(void **state)
{
    (void)state;
    check("func.func @main(%a: f32 {info = \"tf.aliasing_output = 0\"}, %b: f32 {jax.buffer_donor "
          "= true})",
          "01");
    check("func.func @main(%a: f32 {my.tf.aliasing_output_not = 0 : i32}, %b: f32 "
          "{jax.buffer_donor = true})",
          "01");
    check("func.func @main(%a: f32, %b: f32 {jax.buffer_donor = false}, %c: f32 {jax.buffer_donor "
          "= true})",
          "001");
}

static void comments_are_skipped(void **state)
{
    (void)state;
    check("// func.func @main(%x: f32 {jax.buffer_donor = true})\n"
          "func.func @main(%a: f32, // the (first, \"one\n"
          "  %b: f32 {tf.aliasing_output = 0 : i32} // }) jax.buffer_donor = true\n"
          "  , %c: f32 // jax.buffer_donor = true\n)",
          "010");
}

static void only_main_counts(void **state)
{
    (void)state;
    check("module { func.func private @helper(%a: f32 {jax.buffer_donor = true}) "
          "func.func private @main_of_old(%a: f32 {jax.buffer_donor = true}, %b: f32) "
          "func.func public @main(%a: f32, %b: f32, %c: f32 {tf.aliasing_output = 0 : i32}) }",
          "001");
    check("module attributes {entry = @main , s = \"@main(%q\"} { func.func @other(%z: f32) "
          "func.func @main(%a: f32 {jax.buffer_donor = true}) }",
          "1");
    check("func.func @main(%a: f32, %b: f32) func.func private @next(%a: f32 {jax.buffer_donor = "
          "true})",
          "00");
}

/* The generic form and bytecode name the arguments elsewhere: every argument is then looked at. */
static void what_cannot_be_read_is_not_known(void **state)
{
    (void)state;
    check("\"func.func\"() <{arg_attrs = [{tf.aliasing_output = 0 : i32}], sym_name = \"main\"}> "
          "({ ^bb0(%a: tensor<4xf32>):",
          "?");
    pjrt_program hlo = {"\x0a\x01", 2, "hlo"};
    unsigned char *flags;
    int count;
    ASSERT_OK(pjrt__donations_of_text(&hlo, &flags, &count));
    assert_int_equal(count, -1);
    assert_null(flags);
}

static void text_that_breaks_off_is_no_danger(void **state)
{
    (void)state;
    static const char whole[] = "// c\nmodule @m attributes {s = \"a\\\"b\"} { func.func public "
                                "@main(%a: tensor<4xf32> {tf.aliasing_output = 0 : i32, s = \"(\"}"
                                ", // c\n %b: f32) -> tensor<4xf32>";
    for (size_t n = 0; n < sizeof whole; n++) {
        char *part = malloc(n + 1);
        assert_non_null(part);
        memcpy(part, whole, n);
        pjrt_program program = {part, n, "mlir"};
        unsigned char *flags;
        int count;
        part = realloc(part, n == 0 ? 1 : n);
        program.code = part;
        ASSERT_OK(pjrt__donations_of_text(&program, &flags, &count));
        free(flags);
        free(part);
    }
}

/* ---- argument shapes ---- */

static pjrt_status *arguments(const char *bytes, size_t size, bool with_config, pjrt_shape **shapes,
                              int *count)
{
    char *exact = malloc(size == 0 ? 1 : size);
    assert_non_null(exact);
    memcpy(exact, bytes, size);
    pjrt_status *st = pjrt__arguments_of_module(exact, size, with_config, shapes, count);
    free(exact);
    return st;
}
#define ARGUMENTS(literal, config, shapes, count) \
    arguments(literal, sizeof(literal) - 1, config, shapes, count)

/* f32[4,300], bf16[] and a type that has no name here, after fields that are to be skipped. */
#define PARAMETERS "\x0a\x07\x10\x0b\x1a\x03\x04\xac\x02\x0a\x02\x10\x10\x0a\x02\x10\x14"
#define MODULE "\x0a\x01m\x30\x05\x39\1\2\3\4\5\6\7\x08\x45\1\2\3\4\x22\x11" PARAMETERS

static void shapes_are_found_among_other_fields(void **state)
{
    (void)state;
    pjrt_shape *shapes;
    int count;
    for (int config = 0; config < 2; config++) {
        if (config)
            ASSERT_OK(ARGUMENTS("\x12\x01x\x0a\x26" MODULE, true, &shapes, &count));
        else
            ASSERT_OK(ARGUMENTS(MODULE, false, &shapes, &count));
        assert_int_equal(count, 3);
        assert_true(pjrt_shape_equal(&shapes[0], &(pjrt_shape){PJRT_F32, 2, {4, 300}}));
        assert_true(pjrt_shape_equal(&shapes[1], &(pjrt_shape){.type = PJRT_BF16}));
        assert_int_equal(shapes[2].type, PJRT_TYPE_INVALID);
        free(shapes);
    }
}

static void a_program_may_take_nothing(void **state)
{
    (void)state;
    pjrt_shape *shapes;
    int count = 7;
    ASSERT_OK(ARGUMENTS("\x22\x02\x12\x00", false, &shapes, &count));
    assert_int_equal(count, 0);
    free(shapes);
}

static void too_many_dimensions_are_not_checked(void **state)
{
    (void)state;
    pjrt_shape *shapes;
    int count;
    ASSERT_OK(
        ARGUMENTS("\x22\x0f\x0a\x0d\x10\x0b\x1a\x09\1\1\1\1\1\1\1\1\1", false, &shapes, &count));
    assert_int_equal(count, 1);
    assert_int_equal(shapes[0].type, PJRT_TYPE_INVALID);
    free(shapes);
}

static void bad_bytes_are_told(void **state)
{
    (void)state;
    pjrt_shape *shapes = (pjrt_shape *)state;
    int count = 7;
    ASSERT_FAILS(ARGUMENTS("", false, &shapes, &count), DATA_LOSS, "does not tell");
    assert_null(shapes);
    assert_int_equal(count, 0);
    ASSERT_FAILS(ARGUMENTS("", true, &shapes, &count), DATA_LOSS, "no module");
    ASSERT_FAILS(ARGUMENTS("\x22\x7f", false, &shapes, &count), DATA_LOSS, "does not tell");
    ASSERT_FAILS(ARGUMENTS("\x23\x22\x02\x12\x00", false, &shapes, &count), DATA_LOSS, "");
    ASSERT_FAILS(
        ARGUMENTS("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", false, &shapes, &count),
        DATA_LOSS, "");
    ASSERT_FAILS(ARGUMENTS("\x22\x04\x0a\x02\x10\xff", false, &shapes, &count), DATA_LOSS,
                 "argument 0");
    assert_null(shapes);
    for (size_t n = 0; n + 1 < sizeof MODULE; n++) {
        pjrt_status *st = arguments(MODULE, n, false, &shapes, &count);
        free(shapes);
        pjrt_status_free(st);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_wishes),
        cmocka_unit_test(both_spellings_are_wishes),
        cmocka_unit_test(brackets_and_strings_nest),
        cmocka_unit_test(mentions_are_no_wishes),
        cmocka_unit_test(comments_are_skipped),
        cmocka_unit_test(only_main_counts),
        cmocka_unit_test(what_cannot_be_read_is_not_known),
        cmocka_unit_test(text_that_breaks_off_is_no_danger),
        cmocka_unit_test(shapes_are_found_among_other_fields),
        cmocka_unit_test(a_program_may_take_nothing),
        cmocka_unit_test(too_many_dimensions_are_not_checked),
        cmocka_unit_test(bad_bytes_are_told),
    };
    return cmocka_run_group_tests_name("pjrt signature", tests, NULL, NULL);
}
