/*
 * The text that graphs become: goldens of small ones, how control flow and scans are lowered, what
 * dead code removal takes away, both spellings of shardings, and misuse that must be an error. What
 * the programs compute is tested elsewhere, by running them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "hlo_builder/hlo.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const hlo_write_options no_locations = {.no_locations = true};

/* The text, which must exist. */
static char *write_text(hlo_graph *g, const hlo_write_options *options)
{
    char *text = hlo_write_text(g, options);
    if (text == NULL)
        fail_msg("%s", hlo_graph_error(g)->message);
    return text;
}

/* Writes without locations, frees the graph, and compares what stands in @main's braces. */
static void assert_main(hlo_graph *g, const char *expected)
{
    char *text = write_text(g, &no_locations);
    char *begin = strstr(text, ") {\n"), *end = begin == NULL ? NULL : strstr(begin, "\n  }\n");
    assert_non_null(end);
    end[1] = '\0';
    assert_string_equal(begin + 4, expected);
    free(text);
    hlo_graph_free(g);
}

static int count(const char *text, const char *part)
{
    int n = 0;
    while ((text = strstr(text, part)) != NULL) {
        text += strlen(part);
        n++;
    }
    return n;
}

static void assert_has(const char *text, const char *part)
{
    if (strstr(text, part) == NULL)
        fail_msg("\"%s\" is not in:\n%s", part, text);
}

/* The graph failed, and its message has `part`. It is freed. */
static void assert_error(hlo_graph *g, hlo_error_code code, const char *part)
{
    const hlo_error *error = hlo_graph_error(g);
    assert_non_null(error);
    assert_has(error->message, part);
    assert_int_equal(error->code, code);
    assert_null(hlo_write_text(g, NULL));
    hlo_graph_free(g);
}

static hlo_val vector(hlo_graph *g, const char *name)
{
    return hlo_param(g, name, HLO_SHAPE(HLO_F32, 4));
}

/* ---- modules ---- */

static hlo_graph *small_graph(void)
{
    hlo_graph *g = hlo_graph_new("small");
    hlo_val x = hlo_param(g, "x", HLO_SHAPE(HLO_F32, 2, 3));
    hlo_val w = hlo_param(g, "w", HLO_SHAPE(HLO_F32, 3));
    hlo_scope_push(g, "block.%d", 0);
    hlo_val y = hlo_tanh(g, hlo_mul(g, x, w));
    hlo_scope_push(g, "norm");
    y = hlo_sub(g, y, hlo_reduce_keep(g, HLO_REDUCE_MAX, y, HLO_DIMS(1)));
    hlo_scope_pop(g);
    hlo_scope_pop(g);
    hlo_result(g, "y", hlo_neg(g, y));
    return g;
}

static const char small_golden[] =
    "module @small {\n"
    "  func.func public @main(\n"
    "      %arg0: tensor<2x3xf32> loc(\"x\"),\n"
    "      %arg1: tensor<3xf32> loc(\"w\")) -> (\n"
    "      tensor<2x3xf32> {jax.result_info = \"y\"}) {\n"
    "    // block.0\n"
    "    %0 = stablehlo.broadcast_in_dim %arg1, dims = [1] : (tensor<3xf32>) -> tensor<2x3xf32> "
    "loc(#loc1)\n"
    "    %1 = stablehlo.multiply %arg0, %0 : tensor<2x3xf32> loc(#loc1)\n"
    "    %2 = stablehlo.tanh %1 : tensor<2x3xf32> loc(#loc1)\n"
    "    %3 = stablehlo.constant dense<0xFF800000> : tensor<f32> loc(#loc2)\n"
    "    // block.0/norm\n"
    "    %4 = stablehlo.reduce(%2 init: %3) applies stablehlo.maximum across dimensions = [1] : "
    "(tensor<2x3xf32>, tensor<f32>) -> tensor<2xf32> loc(#loc2)\n"
    "    %5 = stablehlo.reshape %4 : (tensor<2xf32>) -> tensor<2x1xf32> loc(#loc2)\n"
    "    %6 = stablehlo.broadcast_in_dim %5, dims = [0, 1] : (tensor<2x1xf32>) -> tensor<2x3xf32> "
    "loc(#loc2)\n"
    "    %7 = stablehlo.subtract %2, %6 : tensor<2x3xf32> loc(#loc2)\n"
    "    // (top)\n"
    "    %8 = stablehlo.negate %7 : tensor<2x3xf32>\n"
    "    return %8 : tensor<2x3xf32>\n"
    "  }\n"
    "}\n"
    "#loc1 = loc(\"block.0\")\n"
    "#loc2 = loc(\"block.0/norm\")\n";

static void test_golden(void **state)
{
    (void)state;
    hlo_graph *g = small_graph();
    char *text = write_text(g, NULL);
    assert_string_equal(text, small_golden);
    free(text);
    hlo_graph_free(g);
}

/* The same bytes for the same calls, and for the same graph written again. */
static void test_deterministic(void **state)
{
    (void)state;
    hlo_graph *a = small_graph(), *b = small_graph();
    size_t ops = hlo_graph_num_ops(a);
    char *first = write_text(a, NULL), *second = write_text(a, NULL), *other = write_text(b, NULL);
    assert_string_equal(first, second);
    assert_string_equal(first, other);
    assert_int_equal(hlo_graph_num_ops(a), ops);
    free(first);
    free(second);
    free(other);
    hlo_graph_free(a);
    hlo_graph_free(b);
}

static void test_no_locations(void **state)
{
    (void)state;
    hlo_graph *g = small_graph();
    char *text = write_text(g, &no_locations);
    assert_null(strstr(text, "loc("));
    assert_has(text, "// block.0/norm\n");
    free(text);
    hlo_graph_free(g);
}

/* Names are the caller's own; whatever is in them must not end a string or a comment. */
static void test_odd_names(void **state)
{
    (void)state;
    hlo_graph *g = hlo_graph_new("my graph");
    hlo_val x = vector(g, "a \"b\" \\ \xc3\xa9");
    hlo_scope_push(g, "line\nend");
    hlo_result(g, "r\"", hlo_neg(g, x));
    char *text = write_text(g, NULL);
    assert_has(text, "module @\"my graph\" {");
    assert_has(text, "loc(\"a \\22b\\22 \\5C \\C3\\A9\")");
    assert_has(text, "jax.result_info = \"r\\22\"");
    assert_has(text, "    // line end\n    %0");
    assert_has(text, "loc(\"line\\0Aend\")");
    free(text);
    hlo_graph_free(g);
}

static void test_dead_code(void **state)
{
    (void)state;
    hlo_graph *g = hlo_graph_new("dead");
    hlo_val x = vector(g, "x"), unused = vector(g, "unused");
    hlo_exp(g, hlo_add(g, x, unused));
    hlo_result(g, "y", hlo_stop_gradient(g, hlo_keep(g, hlo_tanh(g, x))));
    char *text = write_text(g, NULL);
    assert_has(text, "%arg1: tensor<4xf32> loc(\"unused\")");
    free(text);
    assert_main(g, "    %0 = stablehlo.tanh %arg0 : tensor<4xf32>\n"
                   "    return %0 : tensor<4xf32>\n");
}

/* ---- numbers ---- */

static void assert_number(hlo_type type, double value, const char *expected)
{
    hlo_graph *g = hlo_graph_new("number");
    char part[64];
    hlo_result(g, "x", hlo_scalar(g, type, value));
    char *text = write_text(g, NULL);
    snprintf(part, sizeof part, "dense<%s> : ", expected);
    assert_has(text, part);
    free(text);
    hlo_graph_free(g);
}

static void test_numbers(void **state)
{
    (void)state;
    assert_number(HLO_F32, 0.1, "0.1");
    assert_number(HLO_F32, 1, "1.0");
    assert_number(HLO_F32, -0.0, "-0.0");
    assert_number(HLO_F32, 16777217, "16777216.0");
    assert_number(HLO_F32, 1e30, "1.0e+30");
    assert_number(HLO_F32, 1.0 / 3, "0.33333334");
    assert_number(HLO_F64, 1.0 / 3, "0.3333333333333333");
    assert_number(HLO_F64, 0x1p-1074, "5.0e-324");
    assert_number(HLO_BF16, 0.1, "0.1");
    assert_number(HLO_F16, 65504, "6.55e+04");
    assert_number(HLO_F32, INFINITY, "0x7F800000");
    assert_number(HLO_F32, -INFINITY, "0xFF800000");
    assert_number(HLO_F64, NAN, "0x7FF8000000000000");
    assert_number(HLO_BF16, INFINITY, "0x7F80");
    assert_number(HLO_F16, -INFINITY, "0xFC00");
    assert_number(HLO_S64, -3, "-3");
    assert_number(HLO_U64, 0x1p63, "9223372036854775808");
    assert_number(HLO_PRED, 1, "true");
}

static void assert_array(hlo_shape shape, const void *data, const char *expected)
{
    hlo_graph *g = hlo_graph_new("array");
    hlo_result(g, "x", hlo_constant(g, shape, data));
    char *text = write_text(g, NULL);
    assert_has(text, expected);
    free(text);
    hlo_graph_free(g);
}

static void test_arrays(void **state)
{
    (void)state;
    float f[4] = {1, -0.5f, 0, INFINITY};
    int32_t s[20];
    bool p[20] = {[3] = true};
    uint16_t half[2] = {0x3c00, 0x7e01};
    for (int i = 0; i < 20; i++)
        s[i] = i - 1;
    assert_array(HLO_SHAPE(HLO_F32, 2, 2), f,
                 "dense<[[1.0, -0.5], [0.0, 0x7F800000]]> : tensor<2x2xf32>");
    assert_array(HLO_SHAPE(HLO_F32, 1, 2, 2), f, "dense<[[[1.0, -0.5], [0.0, 0x7F800000]]]>");
    assert_array(HLO_SHAPE(HLO_F16, 2), half, "dense<[1.0, 0x7E01]> : tensor<2xf16>");
    assert_array(HLO_SHAPE(HLO_S32, 20), s, "dense<\"0xFFFFFFFF0000000001000000");
    assert_array(HLO_SHAPE(HLO_PRED, 20), p, "dense<[false, false, false, true, false");
    assert_array(HLO_SHAPE(HLO_F32, 0, 2), NULL, "dense<> : tensor<0x2xf32>");
}

/* ---- control ---- */

static hlo_val below_ten(hlo_graph *g, void *ctx, const hlo_val *in)
{
    (void)ctx;
    return hlo_compare(g, HLO_LT, in[0], hlo_like(g, in[0], 10));
}

/* Carries: a counter, what is wanted, and one that feeds only itself. ctx: a value from outside. */
static void count_and_multiply(hlo_graph *g, void *ctx, const hlo_val *in, hlo_val *out)
{
    out[0] = hlo_add(g, in[0], hlo_like(g, in[0], 1));
    out[1] = hlo_mul(g, in[1], *(const hlo_val *)ctx);
    out[2] = hlo_exp(g, in[2]);
}

static void test_while(void **state)
{
    (void)state;
    hlo_graph *g = hlo_graph_new("loop");
    hlo_val x = vector(g, "x"), w = vector(g, "w");
    hlo_val carry[3] = {hlo_scalar(g, HLO_S32, 0), x, x};
    hlo_while(g, below_ten, count_and_multiply, &w, carry, 3);
    hlo_result(g, "y", carry[1]);
    assert_main(
        g,
        "    %0 = stablehlo.constant dense<0> : tensor<i32>\n"
        "    %1:3 = stablehlo.while(%2 = %0, %3 = %arg0, %4 = %arg1) : tensor<i32>, tensor<4xf32>, "
        "tensor<4xf32>\n"
        "    cond {\n"
        "      %5 = stablehlo.constant dense<10> : tensor<i32>\n"
        "      %6 = stablehlo.compare LT, %2, %5, SIGNED : (tensor<i32>, tensor<i32>) -> "
        "tensor<i1>\n"
        "      stablehlo.return %6 : tensor<i1>\n"
        "    } do {\n"
        "      %7 = stablehlo.constant dense<1> : tensor<i32>\n"
        "      %8 = stablehlo.add %2, %7 : tensor<i32>\n"
        "      %9 = stablehlo.multiply %3, %4 : tensor<4xf32>\n"
        "      stablehlo.return %8, %9, %4 : tensor<i32>, tensor<4xf32>, tensor<4xf32>\n"
        "    }\n"
        "    return %1#1 : tensor<4xf32>\n");
}

/* ctx: two values from outside. */
static void take_first(hlo_graph *g, void *ctx, const hlo_val *in, hlo_val *out)
{
    (void)in;
    out[0] = hlo_tanh(g, ((const hlo_val *)ctx)[0]);
    out[1] = hlo_like(g, out[0], 1);
}

static void take_both(hlo_graph *g, void *ctx, const hlo_val *in, hlo_val *out)
{
    (void)in;
    const hlo_val *values = ctx;
    out[0] = hlo_mul(g, values[1], values[0]);
    out[1] = hlo_like(g, out[0], 2);
}

static void test_if(void **state)
{
    (void)state;
    hlo_graph *g = hlo_graph_new("branch");
    hlo_val values[2] = {vector(g, "x"), vector(g, "w")};
    hlo_val out[2], p = hlo_param(g, "p", HLO_SCALAR(HLO_PRED));
    hlo_if(g, p, take_first, take_both, values, out, 2);
    hlo_result(g, "y", out[0]); /* the other is dead in both branches */
    assert_main(g, "    %0 = \"stablehlo.if\"(%arg2) ({\n"
                   "      %1 = stablehlo.tanh %arg0 : tensor<4xf32>\n"
                   "      stablehlo.return %1 : tensor<4xf32>\n"
                   "    }, {\n"
                   "      %2 = stablehlo.multiply %arg1, %arg0 : tensor<4xf32>\n"
                   "      stablehlo.return %2 : tensor<4xf32>\n"
                   "    }) : (tensor<i1>) -> tensor<4xf32>\n"
                   "    return %0 : tensor<4xf32>\n");
}

static void test_case_and_its_gradient(void **state)
{
    (void)state;
    hlo_graph *g = hlo_graph_new("case");
    hlo_val values[2] = {vector(g, "x"), vector(g, "w")};
    hlo_val out[2], d[2], k = hlo_param(g, "k", HLO_SCALAR(HLO_S32));
    hlo_body branches[3] = {take_first, take_both, take_first};
    hlo_case(g, k, branches, 3, values, out, 2);
    hlo_grad(g, hlo_sum(g, out[0], HLO_DIMS(0)), values, 2, d);
    hlo_result(g, "dx", d[0]);
    hlo_result(g, "dw", d[1]);
    char *text = write_text(g, NULL);
    assert_int_equal(count(text, "\"stablehlo.case\"(%arg2) ({"), 1); /* the first one is dead */
    assert_has(text, ") : (tensor<i32>) -> (tensor<4xf32>, tensor<4xf32>)");
    free(text);
    hlo_graph_free(g);
}

static void sine_times(hlo_graph *g, void *ctx, const hlo_val *in, hlo_val *out)
{
    out[0] = hlo_mul(g, hlo_sin(g, in[0]), hlo_scalar(g, HLO_F32, *(const double *)ctx));
}

static void test_calls(void **state)
{
    (void)state;
    hlo_graph *g = hlo_graph_new("calls");
    hlo_val x = vector(g, "x"), y;
    double two = 2, three = 3;
    hlo_call(g, "f", sine_times, &two, &x, 1, &y, 1);
    hlo_call(g, "f", sine_times, &two, &y, 1, &y, 1);   /* shares the first */
    hlo_call(g, "f", sine_times, &three, &y, 1, &y, 1); /* does not */
    hlo_composite(g, "my.op", sine_times, &two, &y, 1, &y, 1);
    hlo_result(g, "y", y);
    char *text = write_text(g, &no_locations);
    assert_has(text, "    %0 = func.call @f(%arg0) : (tensor<4xf32>) -> tensor<4xf32>\n"
                     "    %1 = func.call @f(%0) : (tensor<4xf32>) -> tensor<4xf32>\n"
                     "    %2 = func.call @f_1(%1) : (tensor<4xf32>) -> tensor<4xf32>\n"
                     "    %3 = stablehlo.composite \"my.op\" %2 {decomposition = @my.op.impl} : "
                     "(tensor<4xf32>) -> tensor<4xf32>\n"
                     "    return %3 : tensor<4xf32>\n");
    assert_int_equal(count(text, "func.func private @"), 3);
    assert_has(text, "  func.func private @f_1(%arg0: tensor<4xf32>) -> tensor<4xf32> {\n"
                     "    %0 = stablehlo.sine %arg0 : tensor<4xf32>\n"
                     "    %1 = stablehlo.constant dense<3.0> : tensor<4xf32>\n"
                     "    %2 = stablehlo.multiply %0, %1 : tensor<4xf32>\n"
                     "    return %2 : tensor<4xf32>\n"
                     "  }\n");
    free(text);
    hlo_graph_free(g);
}

/* The gradients of equal calls share a function too. */
static void test_call_gradient(void **state)
{
    (void)state;
    hlo_graph *g = hlo_graph_new("calls");
    hlo_val x = vector(g, "x"), y, dx;
    double two = 2;
    hlo_call(g, "f", sine_times, &two, &x, 1, &y, 1);
    hlo_call(g, "f", sine_times, &two, &y, 1, &y, 1);
    hlo_grad(g, hlo_sum(g, y, HLO_DIMS(0)), &x, 1, &dx);
    hlo_result(g, "dx", dx);
    char *text = write_text(g, NULL);
    assert_int_equal(count(text, "func.call @f.vjp("), 2);
    assert_int_equal(count(text, "func.func private @f.vjp("), 1);
    free(text);
    hlo_graph_free(g);
}

static void call_twice(hlo_graph *g, void *ctx, const hlo_val *in, hlo_val *out)
{
    hlo_val y;
    hlo_call(g, "inner", sine_times, ctx, in, 1, &y, 1);
    hlo_call(g, "inner", sine_times, ctx, &y, 1, out, 1);
}

static void test_nested_calls(void **state)
{
    (void)state;
    hlo_graph *g = hlo_graph_new("calls");
    hlo_val x = vector(g, "x"), y;
    double two = 2;
    hlo_call(g, "main", call_twice, &two, &x, 1, &y, 1); /* a name that is taken */
    hlo_call(g, "main", call_twice, &two, &y, 1, &y, 1);
    hlo_result(g, "y", y);
    char *text = write_text(g, NULL);
    assert_int_equal(count(text, "func.call @main_1("), 2);
    assert_int_equal(count(text, "func.call @inner("), 2);
    assert_int_equal(count(text, "func.func private @"), 2);
    free(text);
    hlo_graph_free(g);
}

/* ---- custom calls ---- */

static void custom_rule(hlo_graph *g, void *ctx, const hlo_val *in, int n_in, const hlo_val *out,
                        const hlo_val *d_out, int n_out, hlo_val *d_in)
{
    assert_int_equal(n_in, 2);
    assert_int_equal(n_out, 2);
    assert_true(hlo_rank(g, d_out[1]) == 1); /* zeros, not nothing */
    (void)out;
    d_in[0] = hlo_mul(g, d_out[0], in[1]);
    *(int *)ctx += 1;
}

static void test_custom_call(void **state)
{
    (void)state;
    hlo_graph *g = hlo_graph_new("ffi");
    hlo_val in[2] = {vector(g, "x"), vector(g, "w")}, out[2], dx;
    hlo_shape shapes[2] = {HLO_SHAPE(HLO_F32, 4), HLO_SHAPE(HLO_F32, 4)};
    hlo_attr attrs[] = {{.name = "text", .kind = HLO_ATTR_STRING, .string = "a\"b"},
                        {.name = "eps", .kind = HLO_ATTR_FLOAT, .real = 1e-5},
                        {.name = "n", .kind = HLO_ATTR_INT, .integer = -7},
                        {.name = "on", .kind = HLO_ATTR_BOOL, .integer = 1}};
    int aliases[][2] = {{1, 0}}, calls = 0;
    hlo_custom_call_options options = {.target = "ttt.f",
                                       .attrs = attrs,
                                       .n_attrs = 4,
                                       .aliases = aliases,
                                       .n_aliases = 1,
                                       .vjp = custom_rule,
                                       .vjp_ctx = &calls};
    hlo_custom_call(g, &options, in, 2, shapes, out, 2);
    hlo_grad(g, hlo_sum(g, out[0], HLO_DIMS(0)), in, 1, &dx);
    assert_int_equal(calls, 1);
    hlo_result(g, "y", out[0]);
    hlo_result(g, "dx", dx);
    /* One without results stays for what it does, also inside a loop. */
    hlo_custom_call(g, &(hlo_custom_call_options){.target = "ttt.log", .has_side_effect = true}, in,
                    1, NULL, NULL, 0);
    assert_main(g,
                "    %0:2 = stablehlo.custom_call @ttt.f(%arg0, %arg1) {api_version = 4 : i32, "
                "backend_config = {\"eps\" = 1.0e-05 : f32, \"n\" = -7 : i64, \"on\" = true, "
                "\"text\" = \"a\\22b\"}, operand_layouts = [dense<[0]> : tensor<1xindex>, "
                "dense<[0]> : tensor<1xindex>], output_operand_aliases = "
                "[#stablehlo.output_operand_alias<output_tuple_indices = [1], operand_index = 0, "
                "operand_tuple_indices = []>], result_layouts = [dense<[0]> : tensor<1xindex>, "
                "dense<[0]> : tensor<1xindex>]} : (tensor<4xf32>, tensor<4xf32>) -> "
                "(tensor<4xf32>, tensor<4xf32>)\n"
                "    stablehlo.custom_call @ttt.log(%arg0) {api_version = 4 : i32, backend_config "
                "= {}, has_side_effect = true, operand_layouts = [dense<[0]> : tensor<1xindex>], "
                "result_layouts = []} : (tensor<4xf32>) -> ()\n"
                "    return %0#0, %arg1 : tensor<4xf32>, tensor<4xf32>\n");
}

/* FFI kernels index row-major arrays: every operand and result says so, whatever its rank. */
static void test_custom_call_layouts(void **state)
{
    (void)state;
    hlo_graph *g = hlo_graph_new("layouts");
    hlo_val in[2] = {hlo_param(g, "x", HLO_SHAPE(HLO_F32, 2, 3, 4)),
                     hlo_param(g, "n", HLO_SCALAR(HLO_S32))};
    hlo_val out[2];
    hlo_shape shapes[2] = {HLO_SCALAR(HLO_F32), HLO_SHAPE(HLO_BF16, 5, 6)};
    hlo_custom_call(g, &(hlo_custom_call_options){.target = "f"}, in, 2, shapes, out, 2);
    hlo_result(g, "a", out[0]);
    hlo_result(g, "b", out[1]);
    char *text = write_text(g, NULL);
    assert_has(text, "operand_layouts = [dense<[2, 1, 0]> : tensor<3xindex>, "
                     "dense<> : tensor<0xindex>]");
    assert_has(text, "result_layouts = [dense<> : tensor<0xindex>, "
                     "dense<[1, 0]> : tensor<2xindex>]");
    free(text);
    hlo_graph_free(g);
}

static void log_step(hlo_graph *g, void *ctx, hlo_val step, const hlo_val *carry, const hlo_val *x,
                     hlo_val *next, hlo_val *y)
{
    (void)ctx, (void)x, (void)y;
    hlo_custom_call(g, &(hlo_custom_call_options){.target = "ttt.log", .has_side_effect = true},
                    &step, 1, NULL, NULL, 0);
    next[0] = hlo_exp(g, carry[0]);
}

static void test_effect_in_a_dead_loop(void **state)
{
    (void)state;
    hlo_graph *g = hlo_graph_new("effect");
    hlo_val x = vector(g, "x"), carry = x;
    hlo_scan(g, log_step, NULL, &carry, 1, NULL, 0, NULL, 0, &(hlo_scan_options){.length = 5});
    hlo_result(g, "x", x);
    char *text = write_text(g, NULL);
    assert_has(text, "%1 = stablehlo.while(%2 = %0) : tensor<i32>\n"); /* the counter alone */
    assert_int_equal(count(text, "custom_call @ttt.log"), 1);
    assert_null(strstr(text, "exponential"));
    free(text);
    hlo_graph_free(g);
}

static void test_barrier(void **state)
{
    (void)state;
    hlo_graph *g = hlo_graph_new("barrier");
    hlo_val in[2] = {vector(g, "x"), vector(g, "w")}, out[2];
    hlo_barrier(g, in, 2, out);
    hlo_result(g, "y", out[1]); /* kept whole: it is there for the order */
    assert_main(g, "    %0:2 = stablehlo.optimization_barrier %arg0, %arg1 : tensor<4xf32>, "
                   "tensor<4xf32>\n"
                   "    return %0#1 : tensor<4xf32>\n");
}

/* ---- scans ---- */

/* Two carries, the second of which nothing needs; two outputs. ctx: a value from outside. */
static void scan_step(hlo_graph *g, void *ctx, hlo_val step, const hlo_val *carry, const hlo_val *x,
                      hlo_val *next, hlo_val *y)
{
    next[0] = hlo_add(g, hlo_mul(g, carry[0], *(const hlo_val *)ctx), x[0]);
    next[1] = hlo_exp(g, carry[1]);
    y[0] = hlo_tanh(g, next[0]);
    y[1] = hlo_convert(g, step, HLO_F32);
}

/* A graph whose results are the first carry and, when asked for, the first output. */
static hlo_graph *scan_graph(int64_t length, int unroll, bool reverse, bool with_output)
{
    hlo_graph *g = hlo_graph_new("scan");
    hlo_val x = vector(g, "x"), w = vector(g, "w");
    hlo_val xs = hlo_param(g, "xs", HLO_SHAPE(HLO_F32, length, 4));
    hlo_val carry[2] = {x, x}, outputs[2];
    hlo_scan(g, scan_step, &w, carry, 2, &xs, 1, outputs, 2,
             &(hlo_scan_options){.unroll = unroll, .reverse = reverse});
    hlo_result(g, "carry", carry[0]);
    if (with_output)
        hlo_result(g, "output", outputs[0]);
    return g;
}

static void test_scan(void **state)
{
    (void)state;
    assert_main(
        scan_graph(5, 0, true, true),
        "    %0 = stablehlo.constant dense<0> : tensor<i32>\n"
        "    %1 = stablehlo.constant dense<0.0> : tensor<5x4xf32>\n"
        "    %2:5 = stablehlo.while(%3 = %0, %4 = %arg0, %5 = %1, %6 = %arg2, %7 = %arg1) : "
        "tensor<i32>, tensor<4xf32>, tensor<5x4xf32>, tensor<5x4xf32>, tensor<4xf32>\n"
        "    cond {\n"
        "      %8 = stablehlo.constant dense<5> : tensor<i32>\n"
        "      %9 = stablehlo.compare LT, %3, %8, SIGNED : (tensor<i32>, tensor<i32>) -> "
        "tensor<i1>\n"
        "      stablehlo.return %9 : tensor<i1>\n"
        "    } do {\n"
        "      %10 = stablehlo.constant dense<4> : tensor<i32>\n"
        "      %11 = stablehlo.subtract %10, %3 : tensor<i32>\n"
        "      %12 = stablehlo.constant dense<0> : tensor<i32>\n"
        "      %13 = stablehlo.dynamic_slice %6, %11, %12, sizes = [1, 4] : (tensor<5x4xf32>, "
        "tensor<i32>, tensor<i32>) -> tensor<1x4xf32>\n"
        "      %14 = stablehlo.reshape %13 : (tensor<1x4xf32>) -> tensor<4xf32>\n"
        "      %15 = stablehlo.multiply %4, %7 : tensor<4xf32>\n"
        "      %16 = stablehlo.add %15, %14 : tensor<4xf32>\n"
        "      %17 = stablehlo.tanh %16 : tensor<4xf32>\n"
        "      %18 = stablehlo.reshape %17 : (tensor<4xf32>) -> tensor<1x4xf32>\n"
        "      %19 = stablehlo.dynamic_update_slice %5, %18, %11, %12 : (tensor<5x4xf32>, "
        "tensor<1x4xf32>, tensor<i32>, tensor<i32>) -> tensor<5x4xf32>\n"
        "      %20 = stablehlo.constant dense<1> : tensor<i32>\n"
        "      %21 = stablehlo.add %3, %20 : tensor<i32>\n"
        "      stablehlo.return %21, %16, %19, %6, %7 : tensor<i32>, tensor<4xf32>, "
        "tensor<5x4xf32>, tensor<5x4xf32>, tensor<4xf32>\n"
        "    }\n"
        "    return %2#1, %2#2 : tensor<4xf32>, tensor<5x4xf32>\n");
}

/* Outputs that nobody reads are neither computed nor stored. */
static void test_scan_unused_output(void **state)
{
    (void)state;
    hlo_graph *g = scan_graph(5, 0, false, false);
    char *text = write_text(g, NULL);
    assert_null(strstr(text, "dynamic_update_slice"));
    assert_null(strstr(text, "tanh"));
    assert_has(text, "%1:4 = stablehlo.while(");
    free(text);
    hlo_graph_free(g);
}

static void test_scan_without_a_loop(void **state)
{
    (void)state;
    assert_main(scan_graph(0, 0, false, true),
                "    %0 = stablehlo.constant dense<> : tensor<0x4xf32>\n"
                "    return %arg0, %0 : tensor<4xf32>, tensor<0x4xf32>\n");
    assert_main(scan_graph(1, 0, false, true),
                "    %0 = stablehlo.reshape %arg2 : (tensor<1x4xf32>) -> tensor<4xf32>\n"
                "    %1 = stablehlo.multiply %arg0, %arg1 : tensor<4xf32>\n"
                "    %2 = stablehlo.add %1, %0 : tensor<4xf32>\n"
                "    %3 = stablehlo.tanh %2 : tensor<4xf32>\n"
                "    %4 = stablehlo.reshape %3 : (tensor<4xf32>) -> tensor<1x4xf32>\n"
                "    return %2, %4 : tensor<4xf32>, tensor<1x4xf32>\n");
    hlo_graph *g = scan_graph(3, 8, true, true); /* fewer steps than one iteration would take */
    char *text = write_text(g, NULL);
    assert_null(strstr(text, "while"));
    assert_int_equal(count(text, "stablehlo.tanh"), 3);
    assert_has(text, "stablehlo.slice %arg2 [2:3, 0:4]");
    assert_has(text, "stablehlo.concatenate");
    free(text);
    hlo_graph_free(g);
}

static void test_scan_unroll(void **state)
{
    (void)state;
    hlo_graph *g = scan_graph(8, 3, false, true); /* two iterations of three, and two steps */
    char *text = write_text(g, NULL), *loop = strstr(text, "stablehlo.while");
    assert_non_null(loop);
    char *after = strstr(loop, "\n    }\n");
    assert_non_null(after);
    *after = '\0';
    assert_has(loop, "dense<6> : tensor<i32>");
    assert_int_equal(count(loop, "stablehlo.tanh"), 3);
    assert_int_equal(count(after + 1, "stablehlo.tanh"), 2);
    assert_has(after + 1, "stablehlo.slice %arg2 [7:8, 0:4]");
    free(text);
    hlo_graph_free(g);
}

/* ---- shardings and donation ---- */

static hlo_graph *sharded_graph(bool with_mesh)
{
    hlo_graph *g = hlo_graph_new("sharded");
    if (with_mesh)
        hlo_mesh(g, (const char *const[]){"data", "model"}, (const int64_t[]){2, 4}, 2);
    hlo_val x = hlo_param(g, "x", HLO_SHAPE(HLO_F32, 16, 8));
    hlo_val w = hlo_param(g, "w", HLO_SHAPE(HLO_F32, 8, 8));
    hlo_shard_param(g, x, HLO_SPEC("data+model"));
    hlo_shard_param(g, w, HLO_SPEC(NULL, "model"));
    hlo_val y = hlo_shard(g, hlo_matmul(g, x, w), HLO_SPEC("model", "data"));
    hlo_result(g, "y", hlo_neg(g, y));
    hlo_donate(g, x, 0);
    return g;
}

static void test_shardy(void **state)
{
    (void)state;
    hlo_graph *g = sharded_graph(true);
    char *text = write_text(g, NULL);
    assert_has(text, "module @sharded attributes {mhlo.num_partitions = 8 : i32, "
                     "mhlo.num_replicas = 1 : i32} {\n"
                     "  sdy.mesh @mesh = <[\"data\"=2, \"model\"=4]>\n");
    assert_has(text, "%arg0: tensor<16x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{\"data\", "
                     "\"model\"}, {}]>, tf.aliasing_output = 0 : i32} loc(\"x\"),\n");
    assert_has(text, "%arg1: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, "
                     "{\"model\"}]>} loc(\"w\")");
    assert_has(text, "%1 = sdy.sharding_constraint %0 <@mesh, [{\"model\"}, {\"data\"}]> : "
                     "tensor<16x8xf32>\n");
    /* A donated argument and its result are in one place, so they are split alike. */
    assert_has(text, "{jax.result_info = \"y\", sdy.sharding = #sdy.sharding<@mesh, [{\"data\", "
                     "\"model\"}, {}]>}");
    free(text);
    hlo_graph_free(g);
}

static void test_gspmd(void **state)
{
    (void)state;
    hlo_graph *g = sharded_graph(true);
    char *text = write_text(g, &(hlo_write_options){.gspmd = true});
    assert_null(strstr(text, "sdy"));
    assert_has(text, "{mhlo.sharding = \"{devices=[8,1]<=[8]}\", tf.aliasing_output = 0 : i32}");
    assert_has(text,
               "{mhlo.sharding = \"{devices=[1,4,2]<=[2,4]T(1,0) last_tile_dim_replicate}\"}");
    assert_has(text, "%1 = stablehlo.custom_call @Sharding(%0) {mhlo.sharding = "
                     "\"{devices=[4,2]<=[2,4]T(1,0)}\"} : ");
    free(text);
    hlo_graph_free(g);
}

static void test_no_mesh(void **state)
{
    (void)state;
    hlo_graph *g = sharded_graph(false);
    char *text = write_text(g, NULL);
    assert_null(strstr(text, "sdy"));
    assert_null(strstr(text, "mhlo"));
    assert_has(text, "%arg0: tensor<16x8xf32> {tf.aliasing_output = 0 : i32} loc(\"x\")");
    free(text);
    hlo_graph_free(g);
}

/* ctx: a value from outside, whole on every device. */
static void sum_of_pieces(hlo_graph *g, void *ctx, const hlo_val *in, hlo_val *out)
{
    const int64_t ids[] = {0, 1, 2, 3};
    hlo_val sum = hlo_sum(g, in[0], HLO_DIMS(0));
    sum = hlo_all_reduce(g, HLO_REDUCE_ADD, sum, (hlo_groups){ids, 2, 2});
    out[0] = hlo_mul(g, sum, *(const hlo_val *)ctx);
}

static void test_manual(void **state)
{
    (void)state;
    hlo_graph *g = hlo_graph_new("manual");
    hlo_mesh(g, (const char *const[]){"data", "model"}, (const int64_t[]){2, 2}, 2);
    assert_int_equal(hlo_axes_size(g, NULL), 1);
    assert_int_equal(hlo_axes_size(g, "model"), 2);
    assert_int_equal(hlo_axes_size(g, "model+data"), 4);
    hlo_val x = hlo_param(g, "x", HLO_SHAPE(HLO_F32, 8, 4)), w = vector(g, "w"), y;
    hlo_manual(g, sum_of_pieces, &w, &x, &HLO_SPEC("model", NULL), 1, &y, &HLO_SPEC("data"), 1);
    assert_int_equal(hlo_dim(g, y, 0), 8);
    hlo_result(g, "y", y);
    assert_main(
        g, "    %0 = sdy.manual_computation(%arg0, %arg1) in_shardings=[<@mesh, [{\"model\"}, "
           "{}]>, <@mesh, [{}]>] out_shardings=[<@mesh, [{\"data\"}]>] manual_axes={\"data\", "
           "\"model\"} (%1: tensor<4x4xf32>, %2: tensor<4xf32>) {\n"
           "      %3 = stablehlo.constant dense<0.0> : tensor<f32>\n"
           "      %4 = stablehlo.reduce(%1 init: %3) applies stablehlo.add across dimensions = "
           "[0] : (tensor<4x4xf32>, tensor<f32>) -> tensor<4xf32>\n"
           "      %5 = \"stablehlo.all_reduce\"(%4) <{channel_handle = "
           "#stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1], [2, "
           "3]]> : tensor<2x2xi64>, use_global_device_ids}> ({\n"
           "      ^bb0(%6: tensor<f32>, %7: tensor<f32>):\n"
           "        %8 = stablehlo.add %6, %7 : tensor<f32>\n"
           "        stablehlo.return %8 : tensor<f32>\n"
           "      }) : (tensor<4xf32>) -> tensor<4xf32>\n"
           "      %9 = stablehlo.multiply %5, %2 : tensor<4xf32>\n"
           "      sdy.return %9 : tensor<4xf32>\n"
           "    } : (tensor<8x4xf32>, tensor<4xf32>) -> tensor<8xf32>\n"
           "    return %0 : tensor<8xf32>\n");
}

static void test_shard_gradient(void **state)
{
    (void)state;
    hlo_graph *g = hlo_graph_new("sharded");
    hlo_mesh(g, (const char *const[]){"data"}, (const int64_t[]){2}, 1);
    hlo_val x = vector(g, "x"), dx;
    hlo_val y = hlo_exp(g, hlo_shard(g, x, HLO_SPEC("data")));
    hlo_grad(g, hlo_sum(g, y, HLO_DIMS(0)), &x, 1, &dx);
    hlo_result(g, "dx", dx);
    char *text = write_text(g, NULL);
    assert_int_equal(count(text, "sdy.sharding_constraint"), 2);
    free(text);
    hlo_graph_free(g);
}

/* ---- misuse ---- */

static void test_nothing_to_write(void **state)
{
    (void)state;
    hlo_graph *g = hlo_graph_new("empty");
    assert_null(hlo_write_text(g, NULL));
    assert_error(g, HLO_ERROR_VALUE, "@main has no results");
}

static void write_inside(hlo_graph *g, void *ctx, const hlo_val *in, hlo_val *out)
{
    (void)ctx;
    assert_null(hlo_write_text(g, NULL));
    out[0] = in[0];
}

static void test_write_inside_a_body(void **state)
{
    (void)state;
    hlo_graph *g = hlo_graph_new("inside");
    hlo_val x = vector(g, "x"), y;
    hlo_result(g, "x", x);
    hlo_call(g, "f", write_inside, NULL, &x, 1, &y, 1);
    assert_error(g, HLO_ERROR_VALUE, "a body is still being built");
}

static hlo_val not_a_condition(hlo_graph *g, void *ctx, const hlo_val *in)
{
    (void)g, (void)ctx;
    return in[0];
}

static void wrong_shape(hlo_graph *g, void *ctx, const hlo_val *in, hlo_val *out)
{
    (void)ctx;
    out[0] = hlo_sum(g, in == NULL ? hlo_full(g, HLO_SHAPE(HLO_F32, 2), 0) : in[0], HLO_DIMS(0));
}

static void sets_nothing(hlo_graph *g, void *ctx, const hlo_val *in, hlo_val *out)
{
    (void)g, (void)ctx, (void)in, (void)out;
}

static void vector_of_ones(hlo_graph *g, void *ctx, const hlo_val *in, hlo_val *out)
{
    (void)ctx, (void)in;
    out[0] = hlo_full(g, HLO_SHAPE(HLO_F32, 4), 1);
}

static hlo_val always(hlo_graph *g, void *ctx, const hlo_val *in)
{
    (void)ctx, (void)in;
    return hlo_scalar(g, HLO_PRED, 1);
}

static void test_control_errors(void **state)
{
    (void)state;
    hlo_graph *g = hlo_graph_new("errors");
    hlo_val x = vector(g, "x");
    hlo_while(g, not_a_condition, vector_of_ones, NULL, &x, 1);
    assert_int_equal(x.id, 0);
    assert_error(g, HLO_ERROR_SHAPE, "while: the condition is f32[4]; it must be i1[]");

    g = hlo_graph_new("errors");
    x = vector(g, "x");
    hlo_while(g, always, wrong_shape, NULL, &x, 1);
    assert_error(g, HLO_ERROR_SHAPE, "while: carry 0 is f32[4], the body makes it f32[]");

    g = hlo_graph_new("errors");
    x = vector(g, "x");
    hlo_while(g, always, sets_nothing, NULL, &x, 1);
    assert_error(g, HLO_ERROR_VALUE, "while: operand 0 is null");

    g = hlo_graph_new("errors");
    x = (hlo_val){0};
    hlo_while(g, always, vector_of_ones, NULL, &x, 1);
    assert_error(g, HLO_ERROR_VALUE, "while: operand 0 is null");

    hlo_val out;
    g = hlo_graph_new("errors");
    hlo_if(g, hlo_scalar(g, HLO_S32, 0), vector_of_ones, vector_of_ones, NULL, &out, 1);
    assert_error(g, HLO_ERROR_SHAPE, "case: the predicate must be i1[] (i32[])");

    g = hlo_graph_new("errors");
    hlo_if(g, hlo_param(g, "p", HLO_SCALAR(HLO_PRED)), vector_of_ones, wrong_shape, NULL, &out, 1);
    assert_error(g, HLO_ERROR_SHAPE, "case: result 0 is f32[4] in branch 0 and f32[] in branch 1");

    g = hlo_graph_new("errors");
    hlo_case(g, hlo_scalar(g, HLO_S32, 0), NULL, 0, NULL, &out, 1);
    assert_error(g, HLO_ERROR_VALUE, "case: no body");

    g = hlo_graph_new("errors");
    hlo_call(g, "", vector_of_ones, NULL, NULL, 0, &out, 1);
    assert_error(g, HLO_ERROR_VALUE, "call: a function needs a name");

    g = hlo_graph_new("errors");
    hlo_barrier(g, NULL, 0, NULL);
    assert_error(g, HLO_ERROR_VALUE, "optimization_barrier: 0 inputs");
}

static void leak(hlo_graph *g, void *ctx, const hlo_val *in, hlo_val *out)
{
    (void)in;
    *(hlo_val *)ctx = out[0] = hlo_full(g, HLO_SHAPE(HLO_F32, 4), 1);
}

static void test_value_from_inside(void **state)
{
    (void)state;
    hlo_graph *g = hlo_graph_new("errors");
    hlo_val inner, out;
    hlo_call(g, "f", leak, &inner, NULL, 0, &out, 1);
    hlo_result(g, "y", inner);
    assert_error(g, HLO_ERROR_VALUE, "from inside a body");
}

static void test_custom_call_errors(void **state)
{
    (void)state;
    hlo_shape shape = HLO_SHAPE(HLO_F32, 4);
    hlo_attr twice[] = {{.name = "a", .kind = HLO_ATTR_INT}, {.name = "a", .kind = HLO_ATTR_BOOL}};
    int alias[][2] = {{0, 1}};
    hlo_val out, dx;

    hlo_graph *g = hlo_graph_new("errors");
    hlo_custom_call(g, &(hlo_custom_call_options){.target = "f", .attrs = twice, .n_attrs = 2},
                    NULL, 0, &shape, &out, 1);
    assert_error(g, HLO_ERROR_VALUE, "custom_call @f: attribute \"a\" is given twice");

    g = hlo_graph_new("errors");
    hlo_val x = vector(g, "x");
    hlo_custom_call(g, &(hlo_custom_call_options){.target = "f", .aliases = alias, .n_aliases = 1},
                    &x, 1, &shape, &out, 1);
    assert_error(g, HLO_ERROR_SHAPE, "alias of result 0 and operand 1, of 1 and 1");

    g = hlo_graph_new("errors");
    x = vector(g, "x");
    hlo_custom_call(g, &(hlo_custom_call_options){.target = "f"}, &x, 1, &shape, &out, 1);
    hlo_grad(g, hlo_sum(g, out, HLO_DIMS(0)), &x, 1, &dx);
    assert_error(g, HLO_ERROR_UNSUPPORTED, "custom_call @f has no gradient");

    g = hlo_graph_new("errors");
    hlo_custom_call(g, &(hlo_custom_call_options){0}, NULL, 0, &shape, &out, 1);
    assert_error(g, HLO_ERROR_VALUE, "custom_call: no target");
}

static hlo_graph *graph_on_mesh(void)
{
    hlo_graph *g = hlo_graph_new("errors");
    hlo_mesh(g, (const char *const[]){"data", "model"}, (const int64_t[]){2, 4}, 2);
    return g;
}

static void test_sharding_errors(void **state)
{
    (void)state;
    static const struct {
        hlo_spec spec;
        const char *message;
        hlo_error_code code;
    } cases[] = {
        {{{"time"}}, "shard: \"time\" names an axis that the mesh does not have", HLO_ERROR_VALUE},
        {{{"data+"}}, "names an axis that the mesh does not have", HLO_ERROR_VALUE},
        {{{"data", "data"}}, "shard: axis \"data\" is used twice", HLO_ERROR_VALUE},
        {{{NULL, "model"}}, "dimension 1 of 6 does not divide by 4", HLO_ERROR_SHAPE},
        {{{NULL, NULL, "data"}}, "for dimension 2 of a rank of 2", HLO_ERROR_SHAPE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hlo_graph *g = graph_on_mesh();
        hlo_val x = hlo_param(g, "x", HLO_SHAPE(HLO_F32, 4, 6));
        assert_int_equal(hlo_shard(g, x, cases[i].spec).id, 0);
        assert_error(g, cases[i].code, cases[i].message);
    }
    hlo_graph *g = graph_on_mesh();
    hlo_mesh(g, (const char *const[]){"x"}, (const int64_t[]){2}, 1);
    assert_error(g, HLO_ERROR_VALUE, "mesh: there is one already");

    g = sharded_graph(false);
    hlo_mesh(g, (const char *const[]){"x"}, (const int64_t[]){2}, 1);
    assert_error(g, HLO_ERROR_VALUE, "mesh: it must be set before the first spec");

    g = hlo_graph_new("errors");
    hlo_mesh(g, (const char *const[]){"x", "x"}, (const int64_t[]){2, 2}, 2);
    assert_error(g, HLO_ERROR_VALUE, "two axes are called \"x\"");

    g = hlo_graph_new("errors");
    hlo_mesh(g, (const char *const[]){"x"}, (const int64_t[]){0}, 1);
    assert_error(g, HLO_ERROR_SHAPE, "axis \"x\" of size 0");

    g = graph_on_mesh();
    hlo_shard_result(g, 0, HLO_SPEC("data"));
    assert_error(g, HLO_ERROR_VALUE, "shard_result: there is no result 0 yet");

    g = graph_on_mesh();
    hlo_val y, x = vector(g, "x");
    hlo_manual(g, vector_of_ones, NULL, &x, &HLO_SPEC("data"), 1, &y, &HLO_SPEC("data"), 1);
    hlo_result(g, "y", y);
    assert_null(hlo_write_text(g, &(hlo_write_options){.gspmd = true}));
    assert_error(g, HLO_ERROR_UNSUPPORTED, "manual regions have no GSPMD form");
}

static void test_donation_errors(void **state)
{
    (void)state;
    hlo_graph *g = hlo_graph_new("errors");
    hlo_val x = vector(g, "x"), w = vector(g, "w");
    hlo_result(g, "y", hlo_add(g, x, w));
    hlo_donate(g, x, 0);
    hlo_donate(g, w, 0);
    assert_null(hlo_write_text(g, NULL));
    assert_error(g, HLO_ERROR_VALUE, "two parameters are donated to result \"y\"");

    g = graph_on_mesh();
    x = vector(g, "x");
    hlo_result(g, "y", hlo_neg(g, x));
    hlo_shard_param(g, x, HLO_SPEC("data"));
    hlo_shard_result(g, 0, HLO_SPEC("model"));
    hlo_donate(g, x, 0);
    assert_null(hlo_write_text(g, NULL));
    assert_error(g, HLO_ERROR_SHAPE, "which has another spec");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_deterministic),
        cmocka_unit_test(test_no_locations),
        cmocka_unit_test(test_odd_names),
        cmocka_unit_test(test_dead_code),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_arrays),
        cmocka_unit_test(test_while),
        cmocka_unit_test(test_if),
        cmocka_unit_test(test_case_and_its_gradient),
        cmocka_unit_test(test_calls),
        cmocka_unit_test(test_call_gradient),
        cmocka_unit_test(test_nested_calls),
        cmocka_unit_test(test_custom_call),
        cmocka_unit_test(test_custom_call_layouts),
        cmocka_unit_test(test_effect_in_a_dead_loop),
        cmocka_unit_test(test_barrier),
        cmocka_unit_test(test_scan),
        cmocka_unit_test(test_scan_unused_output),
        cmocka_unit_test(test_scan_without_a_loop),
        cmocka_unit_test(test_scan_unroll),
        cmocka_unit_test(test_shardy),
        cmocka_unit_test(test_gspmd),
        cmocka_unit_test(test_no_mesh),
        cmocka_unit_test(test_manual),
        cmocka_unit_test(test_shard_gradient),
        cmocka_unit_test(test_nothing_to_write),
        cmocka_unit_test(test_write_inside_a_body),
        cmocka_unit_test(test_control_errors),
        cmocka_unit_test(test_value_from_inside),
        cmocka_unit_test(test_custom_call_errors),
        cmocka_unit_test(test_sharding_errors),
        cmocka_unit_test(test_donation_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
