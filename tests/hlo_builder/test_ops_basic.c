/*
 * Constants, elementwise and shape operations as they are added: shape rules, the words of errors,
 * folding of splats, merging of equal nodes, bad handles. What they compute is tested elsewhere.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "hlo_builder/fold.h"

#include <math.h>
#include <stdio.h>

static const hlo_val null_value;

static int open_graph(void **state)
{
    *state = hlo_graph_new("test");
    return *state == NULL;
}

static int close_graph(void **state)
{
    hlo_graph_free(*state);
    return 0;
}

static void check_shape(hlo_graph *g, hlo_val v, const char *shape, int line)
{
    char text[HLO_SHAPE_TEXT];
    const hlo_error *error = hlo_graph_error(g);
    if (error != NULL || strcmp(hlo_shape_text(hlo_shape_of(g, v), text), shape) != 0)
        fail_msg("line %d: %s", line, error != NULL ? error->message : text);
}
#define ASSERT_SHAPE(v, shape) check_shape(g, v, shape, __LINE__)

/* Each wrong call has a graph of its own, for errors stick. These values are in it. */
static struct {
    hlo_graph *g;
    hlo_val x, y, p, i, u;
} w;

static void open_wrong(void)
{
    w.g = hlo_graph_new("wrong");
    hlo_scope_push(w.g, "here");
    w.x = hlo_param(w.g, "x", HLO_SHAPE(HLO_F32, 2, 3));
    w.y = hlo_param(w.g, "y", HLO_SHAPE(HLO_BF16, 4));
    w.p = hlo_param(w.g, "p", HLO_SHAPE(HLO_PRED, 3));
    w.i = hlo_param(w.g, "i", HLO_SCALAR(HLO_S32));
    w.u = hlo_param(w.g, "u", HLO_SCALAR(HLO_U32));
}

static void check_refused(hlo_val made, hlo_error_code code, const char *words, int line)
{
    const hlo_error *error = hlo_graph_error(w.g);
    if (error == NULL || error->code != code || strncmp(error->message, "here: ", 6) != 0 ||
        strstr(error->message, words) == NULL)
        fail_msg("line %d: %s", line, error == NULL ? "no error" : error->message);
    assert_int_equal(made.id, 0);
    assert_int_equal(hlo_scalar(w.g, HLO_F32, 1).id, 0); /* later calls do nothing */
    hlo_graph_free(w.g);
}
#define ASSERT_REFUSED(call, code, words) \
    (open_wrong(), check_refused(call, HLO_ERROR_##code, words, __LINE__))

static void check_splat(hlo_graph *g, hlo_val v, double value, int line)
{
    double is = -12345;
    bool same = hlo__is_splat(g, v, &is) &&
                (isnan(value) ? isnan(is) : is == value && signbit(is) == signbit(value));
    if (!same)
        fail_msg("line %d: %.17g, not %.17g", line, is, value);
}
#define ASSERT_SPLAT(v, value) check_splat(g, v, value, __LINE__)

static void assert_same(hlo_val a, hlo_val b)
{
    assert_int_not_equal(a.id, 0);
    assert_int_equal(a.id, b.id);
}

/* The node behind a handle. */
static const hlo_node *node_of(hlo_graph *g, hlo_val v)
{
    const hlo_value *value = hlo__value(g, v);
    assert_non_null(value);
    return value->node;
}

/* ---- constants ---- */

static void numbers_are_rounded_to_their_type(void **state)
{
    hlo_graph *g = *state;
    ASSERT_SPLAT(hlo_scalar(g, HLO_F64, 0.1), 0.1);
    ASSERT_SPLAT(hlo_scalar(g, HLO_F32, 0.1), (double)0.1f);
    ASSERT_SPLAT(hlo_scalar(g, HLO_F32, 1e39), INFINITY);
    ASSERT_SPLAT(hlo_scalar(g, HLO_F32, 0x1p-149), 0x1p-149);
    ASSERT_SPLAT(hlo_scalar(g, HLO_F32, 0x1p-151), 0);
    ASSERT_SPLAT(hlo_scalar(g, HLO_BF16, 1 + 0x1p-8), 1); /* halfway, to even */
    ASSERT_SPLAT(hlo_scalar(g, HLO_BF16, 1 + 3 * 0x1p-8), 1 + 0x1p-6);
    ASSERT_SPLAT(hlo_scalar(g, HLO_BF16, 1 + 0x1p-8 + 0x1p-40), 1 + 0x1p-7); /* not via f32 */
    ASSERT_SPLAT(hlo_scalar(g, HLO_F16, 65519), 65504);
    ASSERT_SPLAT(hlo_scalar(g, HLO_F16, -65520), -INFINITY);
    ASSERT_SPLAT(hlo_scalar(g, HLO_F16, 0x1p-25), 0);
    ASSERT_SPLAT(hlo_scalar(g, HLO_F16, 3 * 0x1p-26), 0x1p-24);
    ASSERT_SPLAT(hlo_scalar(g, HLO_F32, -0.0), -0.0);
    ASSERT_SPLAT(hlo_scalar(g, HLO_F32, NAN), NAN);
    /* f32 agrees with the compiler's own rounding. */
    for (int i = 0; i < 1000; i++) {
        double value = sin(i) * pow(2, (i % 300) - 160.0);
        assert_true(hlo__float_number(HLO_F32, value).real == (double)(float)value);
    }
}

static void integers_are_exact_or_refused(void **state)
{
    hlo_graph *g = *state;
    hlo_number n;
    assert_true(hlo__splat_of(g, hlo_scalar_int(g, HLO_S64, INT64_MAX - 1), &n));
    assert_true(n.integer == INT64_MAX - 1);
    assert_true(hlo__splat_of(g, hlo_scalar(g, HLO_U64, 0x1p63), &n));
    assert_true(n.integer == INT64_MIN && n.real == 0x1p63);
    ASSERT_SPLAT(hlo_scalar_int(g, HLO_U64, -1), 0x1p64); /* its 64 bits */
    ASSERT_SPLAT(hlo_scalar(g, HLO_U8, 255), 255);
    ASSERT_SPLAT(hlo_scalar(g, HLO_S32, -0x1p31), -0x1p31);
    ASSERT_SPLAT(hlo_scalar(g, HLO_PRED, 1), 1);
    ASSERT_SPLAT(hlo_scalar_int(g, HLO_F32, 3), 3);
    ASSERT_REFUSED(hlo_scalar(w.g, HLO_S32, 0.5), SHAPE, "constant: 0.5 is no number of type i32");
    ASSERT_REFUSED(hlo_scalar(w.g, HLO_S32, NAN), SHAPE, "constant: nan is no number");
    ASSERT_REFUSED(hlo_scalar(w.g, HLO_S64, 0x1p63), SHAPE, "constant: 9.2");
    ASSERT_REFUSED(hlo_scalar(w.g, HLO_U32, -1), SHAPE, "constant: -1 is no number of type ui32");
    ASSERT_REFUSED(hlo_scalar(w.g, HLO_PRED, 2), SHAPE, "constant: 2 is no number of type i1");
    ASSERT_REFUSED(hlo_scalar_int(w.g, HLO_U8, 256), SHAPE, "constant: 256 is no number");
    ASSERT_REFUSED(hlo_scalar(w.g, (hlo_type)77, 0), SHAPE, "constant: not a shape");
}

static void arrays_are_kept_or_found_to_be_splats(void **state)
{
    hlo_graph *g = *state;
    float numbers[4] = {1, 2, 3, 4};
    hlo_val v = hlo_constant(g, HLO_SHAPE(HLO_F32, 2, 2), numbers);
    ASSERT_SHAPE(v, "f32[2,2]");
    numbers[0] = 9; /* it is a copy */
    const hlo_constant_attrs *attrs = node_of(g, v)->attrs;
    assert_int_equal(attrs->splat, 0);
    assert_true(((const float *)attrs->data)[0] == 1);
    const uint16_t halves[2] = {0xC0A0, 0xC0A0};
    ASSERT_SPLAT(hlo_constant(g, HLO_SHAPE(HLO_BF16, 2), halves), -5);
    const uint16_t tiny = 0x0001, infinite = 0xFC00, nan = 0x7E01;
    ASSERT_SPLAT(hlo_constant(g, HLO_SCALAR(HLO_F16), &tiny), 0x1p-24);
    ASSERT_SPLAT(hlo_constant(g, HLO_SCALAR(HLO_F16), &infinite), -INFINITY);
    ASSERT_SPLAT(hlo_constant(g, HLO_SCALAR(HLO_F16), &nan), NAN);
    const int32_t minus = -7;
    assert_same(hlo_constant(g, HLO_SCALAR(HLO_S32), &minus), hlo_scalar(g, HLO_S32, -7));
    const unsigned char bools[3] = {2, 0, 255};
    attrs = node_of(g, hlo_constant(g, HLO_SHAPE(HLO_PRED, 3), bools))->attrs;
    assert_memory_equal(attrs->data, ((unsigned char[]){1, 0, 1}), 3);
    ASSERT_SHAPE(hlo_constant(g, HLO_SHAPE(HLO_F32, 0, 4), NULL), "f32[0,4]");
    ASSERT_REFUSED(hlo_constant(w.g, HLO_SHAPE(HLO_F32, 4), NULL), SHAPE, "constant: no data");
    ASSERT_REFUSED(hlo_constant(w.g, HLO_SHAPE(HLO_F64, INT64_MAX), &minus), SHAPE,
                   "constant: too large");
    ASSERT_REFUSED(hlo_full(w.g, HLO_SHAPE(HLO_F32, 2, -1), 0), SHAPE, "constant: not a shape");
}

static void iota_counts_along_a_dimension(void **state)
{
    hlo_graph *g = *state;
    hlo_val v = hlo_iota(g, HLO_SHAPE(HLO_S32, 2, 3), -1);
    ASSERT_SHAPE(v, "i32[2,3]");
    assert_int_equal(((const hlo_dim_attrs *)node_of(g, v)->attrs)->dim, 1);
    assert_same(v, hlo_iota(g, HLO_SHAPE(HLO_S32, 2, 3), 1));
    ASSERT_REFUSED(hlo_iota(w.g, HLO_SHAPE(HLO_S32, 2), 1), SHAPE, "iota: dimension 1 of a shape");
    ASSERT_REFUSED(hlo_iota(w.g, HLO_SCALAR(HLO_S32), 0), SHAPE, "iota: dimension 0 of a shape");
    ASSERT_REFUSED(hlo_iota(w.g, HLO_SHAPE(HLO_PRED, 2), 0), SHAPE, "iota: it counts in numbers");
}

/* ---- elementwise ---- */

static void operands_broadcast_as_numpy_does(void **state)
{
    hlo_graph *g = *state;
    hlo_val a = hlo_param(g, "a", HLO_SHAPE(HLO_F32, 4, 1, 3));
    hlo_val b = hlo_param(g, "b", HLO_SHAPE(HLO_F32, 5, 1));
    hlo_val s = hlo_param(g, "s", HLO_SCALAR(HLO_F32));
    hlo_val none = hlo_param(g, "none", HLO_SHAPE(HLO_F32, 0, 1));
    hlo_val sum = hlo_add(g, a, b);
    ASSERT_SHAPE(sum, "f32[4,5,3]");
    const hlo_node *node = node_of(g, sum);
    assert_true(hlo_shape_equal(&node->in[0]->shape, &node->in[1]->shape));
    ASSERT_SHAPE(hlo_mul(g, s, b), "f32[5,1]");
    ASSERT_SHAPE(hlo_max(g, none, a), "f32[4,0,3]");
    ASSERT_SHAPE(hlo_compare(g, HLO_LT, a, s), "i1[4,1,3]");
    ASSERT_SHAPE(hlo_select(g, hlo_compare(g, HLO_LT, b, s), a, s), "f32[4,5,3]");
    ASSERT_SHAPE(hlo_clamp(g, b, s, a), "f32[4,5,3]");
    ASSERT_REFUSED(hlo_add(w.g, w.x, hlo_param(w.g, "z", HLO_SHAPE(HLO_F32, 2))), SHAPE,
                   "add: shapes do not broadcast: 3 and 2 in a dimension (f32[2,3], f32[2])");
    ASSERT_REFUSED(hlo_add(w.g, hlo_param(w.g, "v", HLO_SHAPE(HLO_F32, INT64_C(1) << 40, 1)),
                           hlo_param(w.g, "w", HLO_SHAPE(HLO_F32, INT64_C(1) << 40))),
                   SHAPE, "add: too many elements");
}

static void element_types_are_checked(void **state)
{
    (void)state;
    ASSERT_REFUSED(hlo_mul(w.g, w.x, w.y), SHAPE,
                   "multiply: operands are of different types (f32[2,3], bf16[4])");
    ASSERT_REFUSED(hlo_exp(w.g, w.i), SHAPE, "exponential: takes floats, not i32 (i32[])");
    ASSERT_REFUSED(hlo_erf(w.g, w.i), SHAPE, "erf: takes floats");
    ASSERT_REFUSED(hlo_neg(w.g, w.u), SHAPE, "negate: takes floats and signed integers, not ui32");
    ASSERT_REFUSED(hlo_add(w.g, w.p, w.p), SHAPE, "add: takes numbers, not i1");
    ASSERT_REFUSED(hlo_not(w.g, w.x), SHAPE, "not: takes integers and predicates, not f32");
    ASSERT_REFUSED(hlo_and(w.g, w.x, w.x), SHAPE, "and: takes integers and predicates, not f32");
    ASSERT_REFUSED(hlo_shift_left(w.g, w.p, w.p), SHAPE, "shift_left: takes integers, not i1");
    ASSERT_REFUSED(hlo_compare(w.g, HLO_EQ, w.i, w.u), SHAPE, "compare: operands are of different");
    ASSERT_REFUSED(hlo_compare(w.g, (hlo_compare_kind)9, w.i, w.i), SHAPE, "compare: there is no");
    ASSERT_REFUSED(hlo_select(w.g, w.x, w.x, w.x), SHAPE,
                   "select: the first operand is not a predicate");
    ASSERT_REFUSED(hlo_select(w.g, w.p, w.x, w.y), SHAPE,
                   "select: operands are of different types");
    ASSERT_REFUSED(hlo_clamp(w.g, w.p, w.p, w.p), SHAPE, "clamp: takes numbers, not i1");
    ASSERT_REFUSED(hlo_convert(w.g, w.x, HLO_TYPE_NONE), SHAPE, "convert: there is no type 0");
    ASSERT_REFUSED(hlo_bitcast(w.g, w.x, HLO_F64), SHAPE,
                   "bitcast_convert: to f64, which has another");
    ASSERT_REFUSED(hlo_bitcast(w.g, w.p, HLO_U8), SHAPE,
                   "bitcast_convert: to ui8, which has another");
}

static void converting_to_the_same_type_does_nothing(void **state)
{
    hlo_graph *g = *state;
    hlo_val x = hlo_param(g, "x", HLO_SHAPE(HLO_F32, 2));
    assert_same(hlo_convert(g, x, HLO_F32), x);
    assert_same(hlo_bitcast(g, x, HLO_F32), x);
    ASSERT_SHAPE(hlo_convert(g, x, HLO_BF16), "bf16[2]");
    ASSERT_SHAPE(hlo_convert(g, x, HLO_PRED), "i1[2]");
    ASSERT_SHAPE(hlo_bitcast(g, x, HLO_U32), "ui32[2]");
}

/* ---- folding ---- */

static void floats_are_folded(void **state)
{
    hlo_graph *g = *state;
    hlo_val two = hlo_scalar(g, HLO_F32, 2), three = hlo_full(g, HLO_SHAPE(HLO_F32, 4), 3);
    hlo_val nan = hlo_scalar(g, HLO_F32, NAN), zero = hlo_scalar(g, HLO_F32, 0);
    hlo_val minus_zero = hlo_neg(g, zero);
    size_t before = hlo_graph_num_ops(g);
    hlo_val sum = hlo_add(g, two, three);
    ASSERT_SPLAT(sum, 5);
    ASSERT_SHAPE(sum, "f32[4]");
    assert_int_equal(hlo_graph_num_ops(g), before + 1); /* no broadcast, no sum: one constant */
    ASSERT_SPLAT(hlo_div(g, two, three), (double)(2.0f / 3.0f));
    ASSERT_SPLAT(hlo_rem(g, hlo_neg(g, three), two), -1);
    ASSERT_SPLAT(hlo_pow(g, two, three), 8);
    ASSERT_SPLAT(hlo_exp(g, two), (double)(float)exp(2));
    ASSERT_SPLAT(hlo_erf(g, two), (double)(float)erf(2));
    ASSERT_SPLAT(hlo_logistic(g, zero), 0.5);
    ASSERT_SPLAT(hlo_rsqrt(g, hlo_scalar(g, HLO_F32, 4)), 0.5);
    ASSERT_SPLAT(hlo_log(g, zero), -INFINITY);
    ASSERT_SPLAT(hlo_sign(g, minus_zero), -0.0);
    ASSERT_SPLAT(hlo_sign(g, nan), NAN);
    ASSERT_SPLAT(hlo_max(g, nan, two), NAN);
    ASSERT_SPLAT(hlo_min(g, two, nan), NAN);
    ASSERT_SPLAT(hlo_max(g, minus_zero, zero), 0);
    ASSERT_SPLAT(hlo_max(g, zero, minus_zero), 0);
    ASSERT_SPLAT(hlo_min(g, zero, minus_zero), -0.0);
    ASSERT_SPLAT(hlo_min(g, minus_zero, zero), -0.0);
    ASSERT_SPLAT(hlo_compare(g, HLO_NE, nan, nan), 1);
    ASSERT_SPLAT(hlo_compare(g, HLO_GE, nan, nan), 0);
    ASSERT_SPLAT(hlo_compare(g, HLO_EQ, zero, minus_zero), 1);
    ASSERT_SPLAT(hlo_clamp(g, zero, three, two), 2);
    hlo_val half = hlo_scalar(g, HLO_BF16, 1);
    ASSERT_SPLAT(hlo_add(g, half, hlo_scalar(g, HLO_BF16, 0x1p-8)), 1);
}

static void integers_are_folded_and_wrap(void **state)
{
    hlo_graph *g = *state;
    hlo_val most = hlo_scalar(g, HLO_S32, INT32_MAX), one = hlo_scalar(g, HLO_S32, 1);
    hlo_val minus = hlo_scalar(g, HLO_S32, -7), two = hlo_scalar(g, HLO_S32, 2);
    ASSERT_SPLAT(hlo_add(g, most, one), INT32_MIN);
    ASSERT_SPLAT(hlo_mul(g, most, two), -2);
    ASSERT_SPLAT(hlo_div(g, minus, two), -3);
    ASSERT_SPLAT(hlo_rem(g, minus, two), -1);
    ASSERT_SPLAT(hlo_abs(g, hlo_scalar(g, HLO_S32, INT32_MIN)), INT32_MIN);
    ASSERT_SPLAT(hlo_sign(g, minus), -1);
    ASSERT_SPLAT(hlo_not(g, minus), 6);
    ASSERT_SPLAT(hlo_shift_right(g, minus, two), (double)(UINT32_C(0xFFFFFFF9) >> 2));
    ASSERT_SPLAT(hlo_shift_left(g, one, hlo_scalar(g, HLO_S32, 31)), INT32_MIN);
    ASSERT_SPLAT(hlo_shift_left(g, one, hlo_scalar(g, HLO_S32, 32)), 0);
    hlo_val big = hlo_scalar_int(g, HLO_U64, -2), small = hlo_scalar_int(g, HLO_U64, 2);
    ASSERT_SPLAT(hlo_compare(g, HLO_GT, big, small), 1);
    assert_same(hlo_max(g, small, big), big);
    assert_same(hlo_div(g, big, small), hlo_scalar_int(g, HLO_U64, INT64_MAX));
    hlo_val yes = hlo_scalar(g, HLO_PRED, 1), no = hlo_not(g, yes);
    ASSERT_SPLAT(no, 0);
    ASSERT_SPLAT(hlo_xor(g, yes, yes), 0);
    ASSERT_SPLAT(hlo_or(g, no, yes), 1);
    /* What the backends may answer differently is left to them. */
    double value;
    assert_false(hlo__is_splat(g, hlo_div(g, one, hlo_scalar(g, HLO_S32, 0)), &value));
    assert_false(hlo__is_splat(g, hlo_div(g, minus, hlo_scalar(g, HLO_S32, -1)), &value));
    assert_null(hlo_graph_error(g));
}

static void conversions_are_folded_where_they_are_certain(void **state)
{
    hlo_graph *g = *state;
    double value;
    ASSERT_SPLAT(hlo_convert(g, hlo_scalar(g, HLO_F64, 0.1), HLO_F32), (double)0.1f);
    ASSERT_SPLAT(hlo_convert(g, hlo_scalar(g, HLO_F32, -2.7), HLO_S32), -2);
    ASSERT_SPLAT(hlo_convert(g, hlo_scalar(g, HLO_F32, 0.25), HLO_PRED), 1);
    ASSERT_SPLAT(hlo_convert(g, hlo_scalar(g, HLO_S32, -1), HLO_U8), 255);
    ASSERT_SPLAT(hlo_convert(g, hlo_scalar(g, HLO_PRED, 1), HLO_F32), 1);
    ASSERT_SHAPE(hlo_convert(g, hlo_full(g, HLO_SHAPE(HLO_F32, 3), 1), HLO_S32), "i32[3]");
    assert_false(hlo__is_splat(g, hlo_convert(g, hlo_scalar(g, HLO_F32, 300), HLO_U8), &value));
    assert_false(hlo__is_splat(g, hlo_convert(g, hlo_scalar(g, HLO_F32, NAN), HLO_S32), &value));
    hlo_val odd = hlo_scalar_int(g, HLO_S64, INT64_MAX);
    assert_false(hlo__is_splat(g, hlo_convert(g, odd, HLO_BF16), &value));
}

static void neutral_constants_go_away(void **state)
{
    hlo_graph *g = *state;
    hlo_val x = hlo_param(g, "x", HLO_SHAPE(HLO_F32, 3));
    hlo_val n = hlo_param(g, "n", HLO_SHAPE(HLO_S32, 3));
    hlo_val p = hlo_param(g, "p", HLO_SHAPE(HLO_PRED, 3));
    hlo_val zero = hlo_like(g, x, 0), one = hlo_like(g, x, 1);
    hlo_val yes = hlo_scalar(g, HLO_PRED, 1), no = hlo_scalar(g, HLO_PRED, 0);
    assert_same(hlo_add(g, x, zero), x);
    assert_same(hlo_add(g, zero, x), x);
    assert_same(hlo_sub(g, x, zero), x);
    assert_same(hlo_mul(g, x, one), x);
    assert_same(hlo_mul(g, one, x), x);
    assert_same(hlo_div(g, x, one), x);
    assert_same(hlo_pow(g, x, one), x);
    assert_same(hlo_and(g, p, yes), p);
    assert_same(hlo_or(g, no, p), p);
    assert_same(hlo_and(g, n, hlo_like(g, n, -1)), n);
    assert_same(hlo_select(g, yes, x, zero), x);
    assert_same(hlo_select(g, p, x, x), x);
    /* The shape stays that of the operation. */
    hlo_val wide = hlo_mul(g, x, hlo_full(g, HLO_SHAPE(HLO_F32, 2, 1), 1));
    ASSERT_SHAPE(wide, "f32[2,3]");
    assert_int_equal(node_of(g, wide)->op, HLO_OP_BROADCAST);
    ASSERT_SHAPE(hlo_select(g, hlo_full(g, HLO_SHAPE(HLO_PRED, 2, 1), 0), zero, x), "f32[2,3]");
    /* These are not what they look like: NaN, signs, and the other side. */
    assert_int_equal(node_of(g, hlo_mul(g, x, zero))->op, HLO_OP_mul);
    assert_int_equal(node_of(g, hlo_sub(g, zero, x))->op, HLO_OP_sub);
    assert_int_equal(node_of(g, hlo_div(g, one, x))->op, HLO_OP_div);
    assert_int_equal(node_of(g, hlo_sub(g, x, x))->op, HLO_OP_sub);
    assert_int_equal(node_of(g, hlo_compare(g, HLO_EQ, x, x))->op, HLO_OP_COMPARE);
}

static void shapes_of_splats_are_splats(void **state)
{
    hlo_graph *g = *state;
    hlo_val s = hlo_full(g, HLO_SHAPE(HLO_F32, 2, 3), 7), seven = hlo_scalar(g, HLO_F32, 7);
    hlo_val at = hlo_param(g, "at", HLO_SCALAR(HLO_S32));
    hlo_val made[] = {
        hlo_broadcast_to(g, s, HLO_DIMS(4, 2, 3)),
        hlo_reshape(g, s, HLO_DIMS(6)),
        hlo_transpose(g, s, HLO_DIMS(1, 0)),
        hlo_reverse(g, s, HLO_DIMS(0)),
        hlo_slice_dim(g, s, 1, 0, 2),
        hlo_index(g, s, 0, at),
        hlo_pad(g, s, seven, HLO_DIMS(1, 1), HLO_DIMS(0, 0), HLO_DIMS(0, 0)),
        hlo_concat(g, (hlo_val[]){s, s}, 2, 0),
        hlo_stack(g, (hlo_val[]){s, s}, 2, 0),
    };
    const char *shapes[] = {"f32[4,2,3]", "f32[6]",   "f32[3,2]", "f32[2,3]",  "f32[2,2]",
                            "f32[3]",     "f32[3,4]", "f32[4,3]", "f32[2,2,3]"};
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) {
        ASSERT_SPLAT(made[i], 7);
        ASSERT_SHAPE(made[i], shapes[i]);
        assert_int_equal(node_of(g, made[i])->op, HLO_OP_CONSTANT);
    }
    double value;
    hlo_val edge =
        hlo_pad(g, s, hlo_scalar(g, HLO_F32, -7), HLO_DIMS(1, 1), HLO_DIMS(0, 0), HLO_DIMS(0, 0));
    assert_false(hlo__is_splat(g, edge, &value));
    hlo_val zeros[2] = {hlo_scalar(g, HLO_F32, 0), hlo_scalar(g, HLO_F32, -0.0)};
    assert_false(hlo__is_splat(g, hlo_stack(g, zeros, 2, 0), &value));
}

/* ---- merging ---- */

static void equal_operations_are_one(void **state)
{
    hlo_graph *g = *state;
    hlo_val x = hlo_param(g, "x", HLO_SHAPE(HLO_F32, 2, 3));
    hlo_val y = hlo_param(g, "y", HLO_SHAPE(HLO_F32, 2, 3));
    assert_same(hlo_tanh(g, x), hlo_tanh(g, x));
    assert_int_not_equal(hlo_tanh(g, x).id, hlo_tanh(g, y).id);
    assert_int_not_equal(hlo_sub(g, x, y).id, hlo_sub(g, y, x).id);
    assert_same(hlo_full(g, HLO_SHAPE(HLO_F32, 2), 1), hlo_full(g, HLO_SHAPE(HLO_F32, 2), 1));
    assert_int_not_equal(hlo_scalar(g, HLO_F32, 0).id, hlo_scalar(g, HLO_F32, -0.0).id);
    assert_int_not_equal(hlo_scalar(g, HLO_F32, 1).id, hlo_scalar(g, HLO_F64, 1).id);
    assert_same(hlo_scalar(g, HLO_F32, NAN), hlo_div(g, hlo_like(g, x, 0), hlo_like(g, x, 0)));
    assert_int_not_equal(hlo_compare(g, HLO_LT, x, y).id, hlo_compare(g, HLO_LE, x, y).id);
    assert_int_not_equal(hlo_reshape(g, x, HLO_DIMS(6)).id, hlo_reshape(g, x, HLO_DIMS(6, 1)).id);
    assert_int_not_equal(hlo_convert(g, x, HLO_F64).id, hlo_convert(g, x, HLO_F16).id);
    /* What stands behind the end of a list of dimensions does not count. */
    hlo_dims clean = HLO_DIMS(1, 0), dirty = {2, {1, 0, 77, 78}};
    assert_same(hlo_transpose(g, x, clean), hlo_transpose(g, x, dirty));
    assert_same(hlo_reverse(g, x, clean), hlo_reverse(g, x, dirty));
    hlo_dims low = HLO_DIMS(0, 1), limit = HLO_DIMS(2, 2), stride = HLO_DIMS(1, 1);
    hlo_dims low_dirty = {2, {0, 1, 5}}, limit_dirty = {2, {2, 2, 5}};
    assert_same(hlo_slice(g, x, low, limit, stride),
                hlo_slice(g, x, low_dirty, limit_dirty, stride));
    hlo_val zero = hlo_like(g, x, 0);
    assert_same(hlo_pad(g, x, zero, low, limit, stride),
                hlo_pad(g, x, zero, low_dirty, limit_dirty, stride));
}

/* The value in between may be one that a gradient is asked for. */
static void no_operation_looks_through_another(void **state)
{
    hlo_graph *g = *state;
    hlo_val x = hlo_param(g, "x", HLO_SHAPE(HLO_F32, 2, 3));
    hlo_val turned = hlo_transpose(g, x, HLO_DIMS(1, 0)), flat = hlo_reshape(g, x, HLO_DIMS(6));
    hlo_val minus = hlo_neg(g, x), wide = hlo_convert(g, x, HLO_F64);
    assert_int_equal(node_of(g, hlo_transpose(g, turned, HLO_DIMS(1, 0)))->in[0]->id, turned.id);
    assert_int_equal(node_of(g, hlo_reshape(g, flat, HLO_DIMS(3, 2)))->in[0]->id, flat.id);
    assert_int_equal(node_of(g, hlo_neg(g, minus))->in[0]->id, minus.id);
    assert_int_equal(node_of(g, hlo_convert(g, wide, HLO_F32))->in[0]->id, wide.id);
}

static void lowering_may_look_through(void **state)
{
    hlo_graph *g = *state;
    hlo_val x = hlo_param(g, "x", HLO_SHAPE(HLO_F32, 2, 3, 4));
    hlo_val made[] = {
        hlo_transpose(g, hlo_transpose(g, x, HLO_DIMS(1, 2, 0)), HLO_DIMS(2, 0, 1)),
        hlo_neg(g, hlo_neg(g, x)),
        hlo_reshape(g, hlo_reshape(g, x, HLO_DIMS(24)), HLO_DIMS(2, 3, 4)),
        hlo_convert(g, hlo_convert(g, x, HLO_F64), HLO_F32),
    };
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) {
        const hlo_node *node = node_of(g, made[i]);
        hlo_val in = hlo__handle(g, node->in[0]);
        assert_same(hlo__simplify(g, node, &in), x);
    }
    hlo_val turned = hlo_transpose(g, hlo_transpose(g, x, HLO_DIMS(1, 2, 0)), HLO_DIMS(0, 2, 1));
    hlo_val in = hlo__handle(g, node_of(g, turned)->in[0]);
    assert_same(hlo__simplify(g, node_of(g, turned), &in), hlo_transpose(g, x, HLO_DIMS(1, 0, 2)));
    hlo_val low = hlo_param(g, "low", HLO_SHAPE(HLO_F32, 3, 1));
    hlo_val repeated = hlo_broadcast(g, hlo_broadcast(g, low, HLO_DIMS(1, 5, 3), HLO_DIMS(2, 0)),
                                     HLO_DIMS(3, 5, 6, 7), HLO_DIMS(2, 1, 0));
    in = hlo__handle(g, node_of(g, repeated)->in[0]);
    assert_same(hlo__simplify(g, node_of(g, repeated), &in),
                hlo_broadcast(g, low, HLO_DIMS(3, 5, 6, 7), HLO_DIMS(0, 2)));
    /* Narrowing loses something, and the operand has to be of the same kind. */
    hlo_val narrow = hlo_convert(g, hlo_convert(g, x, HLO_BF16), HLO_F32);
    in = hlo__handle(g, node_of(g, narrow)->in[0]);
    assert_int_equal(hlo__simplify(g, node_of(g, narrow), &in).id, 0);
    hlo_val other = hlo_neg(g, hlo_abs(g, x));
    in = hlo__handle(g, node_of(g, other)->in[0]);
    assert_int_equal(hlo__simplify(g, node_of(g, other), &in).id, 0);
    assert_null(hlo_graph_error(g));
}

/* ---- shape ---- */

static void broadcasts_and_reshapes(void **state)
{
    hlo_graph *g = *state;
    hlo_val x = hlo_param(g, "x", HLO_SHAPE(HLO_F32, 2, 3));
    hlo_val s = hlo_param(g, "s", HLO_SCALAR(HLO_F32));
    ASSERT_SHAPE(hlo_broadcast(g, x, HLO_DIMS(3, 5, 2), HLO_DIMS(2, 0)), "f32[3,5,2]");
    ASSERT_SHAPE(hlo_broadcast_to(g, x, HLO_DIMS(4, 2, 3)), "f32[4,2,3]");
    ASSERT_SHAPE(hlo_broadcast_to(g, s, HLO_DIMS(0, 2)), "f32[0,2]");
    assert_same(hlo_broadcast_to(g, x, HLO_DIMS(2, 3)), x);
    assert_same(hlo_broadcast_to(g, s, HLO_NO_DIMS), s);
    ASSERT_SHAPE(hlo_reshape(g, x, HLO_DIMS(3, -1)), "f32[3,2]");
    ASSERT_SHAPE(hlo_reshape(g, s, HLO_DIMS(1, -1)), "f32[1,1]");
    assert_same(hlo_reshape(g, x, HLO_DIMS(-1, 3)), x);
    ASSERT_SHAPE(hlo_transpose(g, x, HLO_DIMS(1, 0)), "f32[3,2]");
    assert_same(hlo_transpose(g, x, HLO_DIMS(0, 1)), x);
    assert_same(hlo_transpose(g, s, HLO_NO_DIMS), s);
    assert_same(hlo_reverse(g, x, HLO_NO_DIMS), x);
    ASSERT_REFUSED(hlo_broadcast_to(w.g, w.x, HLO_DIMS(2, 4)), SHAPE,
                   "broadcast_in_dim: dimension 1 of size 3 does not repeat to 4 (f32[2,3])");
    ASSERT_REFUSED(hlo_broadcast_to(w.g, w.x, HLO_DIMS(3)), SHAPE, "broadcast_in_dim: to fewer");
    ASSERT_REFUSED(hlo_broadcast(w.g, w.x, HLO_DIMS(2, 3), HLO_DIMS(0, 0)), SHAPE,
                   "broadcast_in_dim: needs a different dimension of the result's 2");
    ASSERT_REFUSED(hlo_broadcast(w.g, w.x, HLO_DIMS(2, 3), HLO_DIMS(0)), SHAPE,
                   "broadcast_in_dim: needs a different dimension");
    ASSERT_REFUSED(hlo_broadcast_to(w.g, w.i, HLO_DIMS(2, -1)), SHAPE,
                   "broadcast_in_dim: the result has a negative dimension");
    ASSERT_REFUSED(hlo_broadcast_to(w.g, w.i, ((hlo_dims){.n = 9})), SHAPE,
                   "broadcast_in_dim: a list of 9 dimensions");
    ASSERT_REFUSED(hlo_reshape(w.g, w.x, HLO_DIMS(4, 2)), SHAPE, "reshape: 6 elements into 8");
    ASSERT_REFUSED(hlo_reshape(w.g, w.x, HLO_DIMS(-1, -1)), SHAPE, "reshape: only one dimension");
    ASSERT_REFUSED(hlo_reshape(w.g, w.x, HLO_DIMS(4, -1)), SHAPE,
                   "reshape: no size for the dimension");
    ASSERT_REFUSED(hlo_reshape(w.g, w.x, HLO_DIMS(0, -1)), SHAPE,
                   "reshape: no size for the dimension");
    ASSERT_REFUSED(hlo_reshape(w.g, w.x, HLO_DIMS(-2)), SHAPE, "reshape: a dimension is negative");
    ASSERT_REFUSED(hlo_transpose(w.g, w.x, HLO_DIMS(0)), SHAPE,
                   "transpose: that is no permutation");
    ASSERT_REFUSED(hlo_transpose(w.g, w.x, HLO_DIMS(0, 2)), SHAPE,
                   "transpose: that is no permutation");
    ASSERT_REFUSED(hlo_reverse(w.g, w.x, HLO_DIMS(1, 1)), SHAPE,
                   "reverse: those are not different");
}

static void slices(void **state)
{
    hlo_graph *g = *state;
    hlo_val x = hlo_param(g, "x", HLO_SHAPE(HLO_F32, 7, 9));
    ASSERT_SHAPE(hlo_slice(g, x, HLO_DIMS(1, 2), HLO_DIMS(7, 8), HLO_DIMS(2, 4)), "f32[3,2]");
    ASSERT_SHAPE(hlo_slice(g, x, HLO_DIMS(7, 0), HLO_DIMS(7, 9), HLO_DIMS(1, 99)), "f32[0,1]");
    assert_same(hlo_slice(g, x, HLO_DIMS(0, 0), HLO_DIMS(7, 9), HLO_DIMS(1, 1)), x);
    hlo_val last = hlo_slice_dim(g, x, -1, -3, 9);
    ASSERT_SHAPE(last, "f32[7,3]");
    const hlo_slice_attrs *attrs = node_of(g, last)->attrs;
    assert_int_equal(attrs->start.d[1], 6);
    ASSERT_SHAPE(hlo_slice_dim(g, x, 0, 2, -1), "f32[4,9]");
    ASSERT_REFUSED(hlo_slice_dim(w.g, w.x, 1, 0, 4), SHAPE, "slice: [0, 4) by 1 in dimension 1");
    ASSERT_REFUSED(hlo_slice_dim(w.g, w.x, 1, -4, 3), SHAPE, "slice: [-1, 3) by 1 in dimension 1");
    ASSERT_REFUSED(hlo_slice_dim(w.g, w.x, 1, 2, 1), SHAPE, "slice: [2, 1) by 1 in dimension 1");
    ASSERT_REFUSED(hlo_slice_dim(w.g, w.x, 2, 0, 1), SHAPE, "slice: there is no dimension 2");
    ASSERT_REFUSED(hlo_slice_dim(w.g, w.x, INT32_MIN, 0, 1), SHAPE, "slice: there is no dimension");
    ASSERT_REFUSED(hlo_slice_dim(w.g, w.x, 0, INT64_MIN, INT64_MAX), SHAPE, "slice: [");
    ASSERT_REFUSED(hlo_slice(w.g, w.x, HLO_DIMS(0, 0), HLO_DIMS(2, 3), HLO_DIMS(1, 0)), SHAPE,
                   "slice: [0, 3) by 0 in dimension 1");
    ASSERT_REFUSED(hlo_slice(w.g, w.x, HLO_DIMS(0), HLO_DIMS(2, 3), HLO_DIMS(1, 1)), SHAPE,
                   "slice: needs a start, a limit and a stride for every dimension");
}

static void dynamic_slices(void **state)
{
    hlo_graph *g = *state;
    hlo_val x = hlo_param(g, "x", HLO_SHAPE(HLO_F32, 7, 9));
    hlo_val row = hlo_param(g, "row", HLO_SHAPE(HLO_F32, 9));
    hlo_val at = hlo_param(g, "at", HLO_SCALAR(HLO_S32));
    hlo_val starts[2] = {at, hlo_scalar(g, HLO_S32, 4)};
    ASSERT_SHAPE(hlo_dynamic_slice(g, x, starts, HLO_DIMS(2, 0)), "f32[2,0]");
    assert_same(hlo_dynamic_slice(g, x, starts, HLO_DIMS(7, 9)), x);
    hlo_val picked = hlo_index(g, x, 0, at);
    ASSERT_SHAPE(picked, "f32[9]");
    assert_int_equal(node_of(g, picked)->in[0]->node->op, HLO_OP_DYNAMIC_SLICE);
    ASSERT_SHAPE(hlo_index(g, row, -1, at), "f32[]");
    ASSERT_SHAPE(hlo_update_index(g, x, 0, at, row), "f32[7,9]");
    /* Starts that are known make a slice, moved inside as a backend would move it. */
    hlo_val far[2] = {hlo_scalar(g, HLO_S32, -5), hlo_scalar(g, HLO_S32, 8)};
    hlo_val moved = hlo_dynamic_slice(g, x, far, HLO_DIMS(3, 4));
    assert_same(moved, hlo_slice(g, x, HLO_DIMS(0, 5), HLO_DIMS(3, 9), HLO_DIMS(1, 1)));
    hlo_val huge[2] = {hlo_scalar_int(g, HLO_U64, -1), hlo_scalar_int(g, HLO_U64, 1)};
    assert_same(hlo_dynamic_slice(g, x, huge, HLO_DIMS(3, 4)),
                hlo_slice(g, x, HLO_DIMS(4, 1), HLO_DIMS(7, 5), HLO_DIMS(1, 1)));
    /* Updates of everything and of nothing. */
    hlo_val y = hlo_tanh(g, x), none = hlo_slice_dim(g, x, 0, 0, 0);
    assert_same(hlo_dynamic_update(g, x, y, starts), y);
    assert_same(hlo_dynamic_update(g, x, none, starts), x);
    hlo_val s = hlo_index(g, row, 0, at);
    assert_same(hlo_dynamic_slice(g, s, NULL, HLO_NO_DIMS), s);

    ASSERT_REFUSED(hlo_dynamic_slice(w.g, w.x, ((hlo_val[]){w.i, w.u}), HLO_DIMS(1, 1)), SHAPE,
                   "dynamic_slice: the starts are of different types");
    ASSERT_REFUSED(hlo_dynamic_slice(w.g, w.x, ((hlo_val[]){w.i, w.x}), HLO_DIMS(1, 1)), SHAPE,
                   "dynamic_slice: start 1 is f32[2,3], not an integer scalar");
    ASSERT_REFUSED(hlo_dynamic_slice(w.g, w.x, ((hlo_val[]){w.i, w.i}), HLO_DIMS(1, 4)), SHAPE,
                   "dynamic_slice: a size of 4 in dimension 1");
    ASSERT_REFUSED(hlo_dynamic_slice(w.g, w.x, ((hlo_val[]){w.i, w.i}), HLO_DIMS(1)), SHAPE,
                   "dynamic_slice: needs a size for every dimension");
    ASSERT_REFUSED(hlo_dynamic_slice(w.g, w.x, NULL, HLO_DIMS(1, 1)), SHAPE,
                   "dynamic_slice: no starts");
    ASSERT_REFUSED(hlo_dynamic_slice(w.g, w.x, ((hlo_val[]){w.i, null_value}), HLO_DIMS(1, 1)),
                   VALUE, "dynamic_slice: operand 2 is null");
    ASSERT_REFUSED(hlo_dynamic_update(w.g, w.x, w.y, ((hlo_val[]){w.i, w.i})), SHAPE,
                   "dynamic_update_slice: the update does not fit into the array (f32[2,3], bf16");
    ASSERT_REFUSED(hlo_update_index(w.g, w.x, 0, w.i, w.y), SHAPE,
                   "dynamic_update_slice: the update is not an element along dimension 0");
    ASSERT_REFUSED(hlo_index(w.g, w.i, 0, w.i), SHAPE, "dynamic_slice: there is no dimension 0");
}

static void pads(void **state)
{
    hlo_graph *g = *state;
    hlo_val x = hlo_param(g, "x", HLO_SHAPE(HLO_F32, 3, 4));
    hlo_val none = hlo_param(g, "none", HLO_SHAPE(HLO_F32, 0));
    hlo_val zero = hlo_like(g, x, 0);
    ASSERT_SHAPE(hlo_pad(g, x, zero, HLO_DIMS(1, -1), HLO_DIMS(2, -2), HLO_DIMS(0, 3)),
                 "f32[6,10]");
    ASSERT_SHAPE(hlo_pad(g, none, zero, HLO_DIMS(1), HLO_DIMS(1), HLO_DIMS(5)), "f32[2]");
    assert_same(hlo_pad(g, x, zero, HLO_DIMS(0, 0), HLO_DIMS(0, 0), HLO_DIMS(0, 0)), x);
    /* As many elements as before, but others. */
    assert_int_not_equal(hlo_pad(g, x, zero, HLO_DIMS(1, 0), HLO_DIMS(-1, 0), HLO_DIMS(0, 0)).id,
                         x.id);
    hlo_dims z = HLO_DIMS(0, 0);
    ASSERT_REFUSED(hlo_pad(w.g, w.x, w.y, z, z, z), SHAPE,
                   "pad: it is padded with a scalar of its type");
    ASSERT_REFUSED(hlo_pad(w.g, w.x, hlo_like(w.g, w.x, 0), z, HLO_DIMS(-3, 0), z), SHAPE,
                   "pad: by 0, -3, between 0 in dimension 0");
    ASSERT_REFUSED(hlo_pad(w.g, w.x, hlo_like(w.g, w.x, 0), z, z, HLO_DIMS(0, -1)), SHAPE,
                   "pad: by 0, 0, between -1 in dimension 1");
    ASSERT_REFUSED(hlo_pad(w.g, w.x, hlo_like(w.g, w.x, 0), z, z, HLO_DIMS(0)), SHAPE,
                   "pad: needs a low, high and interior");
    ASSERT_REFUSED(hlo_pad(w.g, w.x, hlo_like(w.g, w.x, 0), HLO_DIMS(INT64_MIN, 0),
                           HLO_DIMS(INT64_MAX, 0), HLO_DIMS(INT64_MAX, INT64_MAX)),
                   SHAPE, "pad: by -9223372036854775808");
    ASSERT_REFUSED(hlo_pad(w.g, w.x, hlo_like(w.g, w.x, 0),
                           HLO_DIMS(INT64_C(1) << 40, INT64_C(1) << 40), z, z),
                   SHAPE, "pad: the result has a negative dimension or too many elements");
}

static void joins(void **state)
{
    hlo_graph *g = *state;
    hlo_val a = hlo_param(g, "a", HLO_SHAPE(HLO_F32, 2, 3));
    hlo_val b = hlo_param(g, "b", HLO_SHAPE(HLO_F32, 2, 0));
    hlo_val s = hlo_param(g, "s", HLO_SCALAR(HLO_F32));
    ASSERT_SHAPE(hlo_concat(g, (hlo_val[]){a, b, a}, 3, -1), "f32[2,6]");
    assert_same(hlo_concat(g, &a, 1, 0), a);
    ASSERT_SHAPE(hlo_stack(g, (hlo_val[]){a, a}, 2, 2), "f32[2,3,2]");
    ASSERT_SHAPE(hlo_stack(g, (hlo_val[]){a, a}, 2, -3), "f32[2,2,3]");
    ASSERT_SHAPE(hlo_stack(g, (hlo_val[]){s, s, s}, 3, 0), "f32[3]");
    ASSERT_REFUSED(
        hlo_concat(w.g, ((hlo_val[]){w.x, w.y}), 2, 0), SHAPE,
        "concatenate: part 1 does not go with part 0 in dimension 0 (f32[2,3], bf16[4])");
    ASSERT_REFUSED(hlo_concat(w.g, &w.x, 0, 0), SHAPE, "concatenate: there are no parts");
    ASSERT_REFUSED(hlo_concat(w.g, &w.x, -5, 0), SHAPE, "concatenate: there are no parts");
    ASSERT_REFUSED(hlo_stack(w.g, NULL, 1, 0), SHAPE, "concatenate: there are no parts");
    ASSERT_REFUSED(hlo_concat(w.g, &w.x, 1, 2), SHAPE, "concatenate: there is no dimension 2");
    ASSERT_REFUSED(hlo_concat(w.g, &w.i, 1, 0), SHAPE, "concatenate: there is no dimension 0");
    ASSERT_REFUSED(hlo_stack(w.g, &w.x, 1, 3), SHAPE,
                   "concatenate: there is no dimension 3 in a rank");
    ASSERT_REFUSED(hlo_stack(w.g, ((hlo_val[]){w.x, w.y}), 2, 0), SHAPE,
                   "concatenate: part 1 has another shape than part 0");
    ASSERT_REFUSED(hlo_concat(w.g, ((hlo_val[]){w.x, null_value}), 2, 0), VALUE,
                   "concatenate: operand 1 is null");
    ASSERT_REFUSED(hlo_stack(w.g, ((hlo_val[]){w.x, null_value}), 2, 0), VALUE,
                   "concatenate: operand 1 is null");
}

/* ---- bad handles ---- */

/* Each operation with `bad` as one of its operands; false after the last. */
static bool call_with(hlo_graph *g, int which, hlo_val bad, hlo_val *made)
{
    hlo_val x = hlo_param(g, "x", HLO_SHAPE(HLO_F32, 2, 3));
    hlo_val p = hlo_param(g, "p", HLO_SHAPE(HLO_PRED, 3));
    hlo_val at = hlo_scalar(g, HLO_S32, 0);
    hlo_dims two = HLO_DIMS(1, 1), zero = HLO_DIMS(0, 0);
    int next = 0;
#define CALL(call)         \
    if (which == next++) { \
        *made = call;      \
        return true;       \
    }
#define CALL_UNARY(name, spelling) CALL(hlo_##name(g, bad))
#define CALL_BINARY(name, spelling) CALL(hlo_##name(g, bad, x)) CALL(hlo_##name(g, x, bad))
    HLO_UNARY_OPS(CALL_UNARY)
    HLO_BINARY_OPS(CALL_BINARY)
    CALL(hlo_like(g, bad, 1))
    CALL(hlo_zeros_like(g, bad))
    CALL(hlo_erf(g, bad))
    CALL(hlo_compare(g, HLO_EQ, x, bad))
    CALL(hlo_select(g, bad, x, x))
    CALL(hlo_select(g, p, bad, x))
    CALL(hlo_select(g, p, x, bad))
    CALL(hlo_clamp(g, bad, x, x))
    CALL(hlo_clamp(g, x, bad, x))
    CALL(hlo_clamp(g, x, x, bad))
    CALL(hlo_convert(g, bad, HLO_F32))
    CALL(hlo_bitcast(g, bad, HLO_F32))
    CALL(hlo_broadcast(g, bad, two, two))
    CALL(hlo_broadcast_to(g, bad, two))
    CALL(hlo_reshape(g, bad, two))
    CALL(hlo_transpose(g, bad, two))
    CALL(hlo_reverse(g, bad, HLO_NO_DIMS))
    CALL(hlo_slice(g, bad, zero, two, two))
    CALL(hlo_slice_dim(g, bad, 0, 0, 1))
    CALL(hlo_dynamic_slice(g, bad, &at, two))
    CALL(hlo_dynamic_slice(g, x, ((hlo_val[]){at, bad}), two))
    CALL(hlo_dynamic_update(g, bad, x, &at))
    CALL(hlo_dynamic_update(g, x, bad, ((hlo_val[]){at, at})))
    CALL(hlo_dynamic_update(g, x, x, ((hlo_val[]){bad, at})))
    CALL(hlo_index(g, bad, 0, at))
    CALL(hlo_index(g, x, 0, bad))
    CALL(hlo_update_index(g, bad, 0, at, x))
    CALL(hlo_update_index(g, x, 0, at, bad))
    CALL(hlo_update_index(g, x, 0, bad, hlo_index(g, x, 0, at)))
    CALL(hlo_pad(g, bad, at, zero, zero, zero))
    CALL(hlo_pad(g, x, bad, zero, zero, zero))
    CALL(hlo_concat(g, &bad, 1, 0))
    CALL(hlo_stack(g, ((hlo_val[]){x, bad}), 2, 0))
    return false;
#undef CALL
#undef CALL_UNARY
#undef CALL_BINARY
}

static void bad_handles_are_errors(void **state)
{
    hlo_graph *other = *state;
    hlo_val foreign = hlo_param(other, "foreign", HLO_SHAPE(HLO_F32, 2, 3));
    hlo_val bad[] = {null_value, foreign, {UINT32_MAX, foreign.graph}, {0, foreign.graph}};
    int calls = 0;
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        for (int which = 0;; which++) {
            hlo_graph *g = hlo_graph_new("bad");
            hlo_val made = foreign;
            bool called = call_with(g, which, bad[k], &made);
            const hlo_error *error = hlo_graph_error(g);
            if (called && (error == NULL || error->code != HLO_ERROR_VALUE || made.id != 0))
                fail_msg("call %d: %s", which, error == NULL ? "no error" : error->message);
            hlo_graph_free(g);
            if (!called)
                break;
            calls++;
        }
    }
    assert_int_equal(calls % 4, 0);
    assert_true(calls > 4 * 60);
    assert_null(hlo_graph_error(other));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_graph, close_graph)
    const struct CMUnitTest tests[] = {
        TEST(numbers_are_rounded_to_their_type),
        TEST(integers_are_exact_or_refused),
        TEST(arrays_are_kept_or_found_to_be_splats),
        TEST(iota_counts_along_a_dimension),
        TEST(operands_broadcast_as_numpy_does),
        TEST(element_types_are_checked),
        TEST(converting_to_the_same_type_does_nothing),
        TEST(floats_are_folded),
        TEST(integers_are_folded_and_wrap),
        TEST(conversions_are_folded_where_they_are_certain),
        TEST(neutral_constants_go_away),
        TEST(shapes_of_splats_are_splats),
        TEST(equal_operations_are_one),
        TEST(no_operation_looks_through_another),
        TEST(lowering_may_look_through),
        TEST(broadcasts_and_reshapes),
        TEST(slices),
        TEST(dynamic_slices),
        TEST(pads),
        TEST(joins),
        TEST(bad_handles_are_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
