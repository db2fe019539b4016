/*
 * Gradients of the elementwise operations. Operands have the result's shape. Where a function has
 * no derivative (ties of max, ends of clamp, abs at 0), the rules are JAX's.
 */
#include "hlo_builder/dims.h"

#include <math.h>

static const hlo_val null_value;

/* d where the predicate holds, and nothing elsewhere, not even 0 times an infinite d. */
static hlo_val d_where(hlo_graph *g, hlo_val pred, hlo_val d)
{
    return hlo_select(g, pred, d, hlo_like(g, d, 0));
}

/* ---- unary ---- */

/* Those whose derivative is best had from the result y. */
static hlo_val d_by_result(hlo_graph *g, hlo_op op, hlo_val x, hlo_val y, hlo_val d)
{
    hlo_val one = hlo_like(g, y, 1);
    switch (op) {
    case HLO_OP_exp:
        return hlo_mul(g, d, y);
    case HLO_OP_expm1:
        return hlo_mul(g, d, hlo_add(g, y, one));
    case HLO_OP_tanh:
        return hlo_mul(g, d, hlo_sub(g, one, hlo_mul(g, y, y)));
    case HLO_OP_logistic:
        return hlo_mul(g, d, hlo_mul(g, y, hlo_sub(g, one, y)));
    case HLO_OP_sqrt:
        return hlo_div(g, hlo_mul(g, d, hlo_like(g, d, 0.5)), y);
    case HLO_OP_rsqrt:
        return hlo_mul(g, d, hlo_div(g, hlo_mul(g, y, hlo_like(g, y, -0.5)), x));
    default:
        return null_value;
    }
}

static hlo_val d_unary(hlo_graph *g, hlo_op op, hlo_val x, hlo_val y, hlo_val d)
{
    switch (op) {
    case HLO_OP_neg:
        return hlo_neg(g, d);
    case HLO_OP_abs:
        return hlo_select(g, hlo_compare(g, HLO_GE, x, hlo_like(g, x, 0)), d, hlo_neg(g, d));
    case HLO_OP_log:
        return hlo_div(g, d, x);
    case HLO_OP_log1p:
        return hlo_div(g, d, hlo_add(g, x, hlo_like(g, x, 1)));
    case HLO_OP_sin:
        return hlo_mul(g, d, hlo_cos(g, x));
    case HLO_OP_cos:
        return hlo_neg(g, hlo_mul(g, d, hlo_sin(g, x)));
    case HLO_OP_sign:
    case HLO_OP_floor:
    case HLO_OP_ceil:
    case HLO_OP_not:
        return null_value; /* flat wherever it has a derivative */
    default:
        return d_by_result(g, op, x, y, d);
    }
}

void hlo__vjp_unary(hlo_graph *g, const hlo_node *node, const hlo_val *d_out, const bool *wanted,
                    hlo_val *d_in)
{
    if (wanted[0])
        d_in[0] = d_unary(g, node->op, hlo__in(g, node, 0), hlo__out(node, 0), d_out[0]);
}

void hlo__vjp_erf(hlo_graph *g, const hlo_node *node, const hlo_val *d_out, const bool *wanted,
                  hlo_val *d_in)
{
    if (!wanted[0])
        return;
    hlo_val x = hlo__in(g, node, 0);
    hlo_val bell = hlo_exp(g, hlo_neg(g, hlo_mul(g, x, x)));
    d_in[0] = hlo_mul(g, d_out[0], hlo_mul(g, bell, hlo_like(g, x, M_2_SQRTPI)));
}

/* ---- binary ---- */

/* d to `a` where it is chosen over `b`, half of it where they are equal. */
static hlo_val d_extreme(hlo_graph *g, hlo_compare_kind chosen, hlo_val a, hlo_val b, hlo_val d)
{
    hlo_val half = hlo_mul(g, d, hlo_like(g, d, 0.5));
    hlo_val otherwise = d_where(g, hlo_compare(g, HLO_EQ, a, b), half);
    return hlo_select(g, hlo_compare(g, chosen, a, b), d, otherwise);
}

static hlo_val d_pow_base(hlo_graph *g, hlo_val a, hlo_val b, hlo_val d)
{
    double exponent;
    if (hlo__is_splat(g, b, &exponent) && exponent == 0)
        return null_value;
    hlo_val lower = hlo_pow(g, a, hlo_sub(g, b, hlo_like(g, b, 1)));
    return hlo_mul(g, d, hlo_mul(g, b, lower));
}

/* At a base of 0 the logarithm is left out: there the power is flat in its exponent. */
static hlo_val d_pow_exponent(hlo_graph *g, hlo_val a, hlo_val y, hlo_val d)
{
    hlo_val zero = hlo_compare(g, HLO_EQ, a, hlo_like(g, a, 0));
    hlo_val base = hlo_select(g, zero, hlo_like(g, a, 1), a);
    return hlo_mul(g, d, hlo_mul(g, hlo_log(g, base), y));
}

/* The quotient without its fraction. */
static hlo_val whole_quotient(hlo_graph *g, hlo_val a, hlo_val b)
{
    hlo_val quotient = hlo_div(g, a, b);
    return hlo_mul(g, hlo_sign(g, quotient), hlo_floor(g, hlo_abs(g, quotient)));
}

static hlo_val d_left(hlo_graph *g, hlo_op op, hlo_val a, hlo_val b, hlo_val d)
{
    switch (op) {
    case HLO_OP_add:
    case HLO_OP_sub:
    case HLO_OP_rem:
        return d;
    case HLO_OP_mul:
        return hlo_mul(g, d, b);
    case HLO_OP_div:
        return hlo_div(g, d, b);
    case HLO_OP_pow:
        return d_pow_base(g, a, b, d);
    case HLO_OP_max:
        return d_extreme(g, HLO_GT, a, b, d);
    case HLO_OP_min:
        return d_extreme(g, HLO_LT, a, b, d);
    default:
        return null_value;
    }
}

static hlo_val d_right(hlo_graph *g, hlo_op op, hlo_val a, hlo_val b, hlo_val y, hlo_val d)
{
    switch (op) {
    case HLO_OP_add:
        return d;
    case HLO_OP_sub:
        return hlo_neg(g, d);
    case HLO_OP_mul:
        return hlo_mul(g, d, a);
    case HLO_OP_div:
        return hlo_neg(g, hlo_mul(g, hlo_div(g, d, b), y));
    case HLO_OP_rem:
        return hlo_neg(g, hlo_mul(g, d, whole_quotient(g, a, b)));
    case HLO_OP_pow:
        return d_pow_exponent(g, a, y, d);
    case HLO_OP_max:
        return d_extreme(g, HLO_GT, b, a, d);
    case HLO_OP_min:
        return d_extreme(g, HLO_LT, b, a, d);
    default:
        return null_value;
    }
}

void hlo__vjp_binary(hlo_graph *g, const hlo_node *node, const hlo_val *d_out, const bool *wanted,
                     hlo_val *d_in)
{
    hlo_val a = hlo__in(g, node, 0), b = hlo__in(g, node, 1);
    if (wanted[0])
        d_in[0] = d_left(g, node->op, a, b, d_out[0]);
    if (wanted[1])
        d_in[1] = d_right(g, node->op, a, b, hlo__out(node, 0), d_out[0]);
}

/* ---- the others ---- */

void hlo__vjp_select(hlo_graph *g, const hlo_node *node, const hlo_val *d_out, const bool *wanted,
                     hlo_val *d_in)
{
    hlo_val pred = hlo__in(g, node, 0);
    if (wanted[1])
        d_in[1] = d_where(g, pred, d_out[0]);
    if (wanted[2])
        d_in[2] = hlo_select(g, pred, hlo_like(g, d_out[0], 0), d_out[0]);
}

void hlo__vjp_clamp(hlo_graph *g, const hlo_node *node, const hlo_val *d_out, const bool *wanted,
                    hlo_val *d_in)
{
    hlo_val low = hlo__in(g, node, 0), x = hlo__in(g, node, 1), high = hlo__in(g, node, 2);
    hlo_val d = d_out[0];
    if (wanted[0])
        d_in[0] = d_where(
            g, hlo_and(g, hlo_compare(g, HLO_GT, low, x), hlo_compare(g, HLO_LT, low, high)), d);
    if (wanted[1])
        d_in[1] = d_where(
            g, hlo_and(g, hlo_compare(g, HLO_GT, x, low), hlo_compare(g, HLO_LT, x, high)), d);
    if (wanted[2])
        d_in[2] = d_where(g, hlo_compare(g, HLO_LT, high, x), d);
}

void hlo__vjp_convert(hlo_graph *g, const hlo_node *node, const hlo_val *d_out, const bool *wanted,
                      hlo_val *d_in)
{
    if (wanted[0])
        d_in[0] = hlo_convert(g, d_out[0], node->in[0]->shape.type);
}
