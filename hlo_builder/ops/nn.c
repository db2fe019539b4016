/*
 * What networks are made of, out of the operations below.
 *
 * All of it is computed in f32 when x is shorter (f64 stays f64), and comes back in x's type: the
 * conversions fuse with what is around them, and cost no memory. Where a rule of its own keeps less
 * for the backward pass than the derived one, there is one: the outputs or inputs alone.
 */
#include "hlo_builder/dims.h"

#include <math.h>

/* x in the type to compute in. */
static hlo_val widen(hlo_graph *g, hlo_val x)
{
    return hlo_convert(g, x, hlo__wide_type(hlo_type_of(g, x)));
}

/* Opens the function's scope, under which its operations and errors appear, and looks at its
 * operands; x, the first, has to be of floats. */
static bool enter(hlo_graph *g, const char *name, const hlo_val *in, int n)
{
    hlo_value *values[4];
    if (hlo__failed(g))
        return false;
    hlo_scope_push(g, "%s", name);
    if (!hlo__values(g, HLO_OP_NONE, in, n, values))
        return false;
    if (!hlo_type_is_float(values[0]->shape.type)) {
        hlo_fail(g, HLO_ERROR_SHAPE, "%s is not of floats",
                 hlo_shape_text(&values[0]->shape, (char[HLO_SHAPE_TEXT]){0}));
        return false;
    }
    return true;
}

static hlo_val leave(hlo_graph *g, hlo_val result)
{
    hlo_scope_pop(g);
    return hlo__failed(g) ? (hlo_val){0} : result;
}

/* ---- norms ---- */

/* A scale or bias: of x's type or the wide one, and x's shape when broadcast. */
static hlo_val coefficient(hlo_graph *g, hlo_val x, hlo_val c, const char *name)
{
    const hlo_shape *xs = hlo_shape_of(g, x), *cs = hlo_shape_of(g, c);
    bool ok =
        cs->rank <= xs->rank && (cs->type == xs->type || cs->type == hlo__wide_type(xs->type));
    for (int i = 1; i <= cs->rank && ok; i++)
        ok = cs->dims[cs->rank - i] == 1 || cs->dims[cs->rank - i] == xs->dims[xs->rank - i];
    if (!ok) {
        char text[2][HLO_SHAPE_TEXT];
        hlo_fail(g, HLO_ERROR_SHAPE, "%s %s does not go with %s", name, hlo_shape_text(cs, text[0]),
                 hlo_shape_text(xs, text[1]));
    }
    return widen(g, c);
}

/* The mean along the last dimension, which stays, of size 1. */
static hlo_val mean_keep(hlo_graph *g, hlo_val x)
{
    if (hlo__failed(g)) /* then x has no shape to look at */
        return (hlo_val){0};
    hlo_dims kept = hlo__dims_of(hlo_shape_of(g, x)), last = HLO_DIMS(kept.n - 1);
    kept.d[last.d[0]] = 1;
    return hlo_reshape(g, hlo_mean(g, x, last), kept);
}

/* x with a root mean square of 1 along its last dimension. */
static hlo_val unit_rms(hlo_graph *g, hlo_val x, double epsilon)
{
    hlo_val square = mean_keep(g, hlo_mul(g, x, x));
    return hlo_mul(g, x, hlo_rsqrt(g, hlo_add(g, square, hlo_like(g, square, epsilon))));
}

static bool check_norm(hlo_graph *g, hlo_val x)
{
    if (hlo_rank(g, x) < 1)
        hlo_fail(g, HLO_ERROR_SHAPE, "a norm of a scalar");
    return !hlo__failed(g);
}

hlo_val hlo_layer_norm(hlo_graph *g, hlo_val x, hlo_val scale, hlo_val bias, double epsilon)
{
    const hlo_val in[3] = {x, scale, bias};
    if (!enter(g, "layer_norm", in, 3) || !check_norm(g, x))
        return (hlo_val){0};
    hlo_type type = hlo_type_of(g, x);
    scale = coefficient(g, x, scale, "scale");
    bias = coefficient(g, x, bias, "bias");
    x = widen(g, x);
    if (hlo__failed(g))
        return (hlo_val){0};
    hlo_val centred = hlo_sub(g, x, mean_keep(g, x));
    hlo_val y = hlo_add(g, hlo_mul(g, unit_rms(g, centred, epsilon), scale), bias);
    return leave(g, hlo_convert(g, y, type));
}

hlo_val hlo_rms_norm(hlo_graph *g, hlo_val x, hlo_val scale, double epsilon)
{
    const hlo_val in[2] = {x, scale};
    if (!enter(g, "rms_norm", in, 2) || !check_norm(g, x))
        return (hlo_val){0};
    hlo_type type = hlo_type_of(g, x);
    scale = coefficient(g, x, scale, "scale");
    if (hlo__failed(g))
        return (hlo_val){0};
    hlo_val y = hlo_mul(g, unit_rms(g, widen(g, x), epsilon), scale);
    return leave(g, hlo_convert(g, y, type));
}

/* ---- softmax ---- */

/* x less its maximum along `dims`, so that no exponential overflows. Softmaxes do not depend on
 * what is subtracted, so no gradient flows through it. */
static hlo_val less_max(hlo_graph *g, hlo_val x, hlo_dims dims)
{
    hlo_val most = hlo_reduce_keep(g, HLO_REDUCE_MAX, x, dims);
    return hlo_sub(g, x, hlo_stop_gradient(g, most));
}

static hlo_val sum_keep(hlo_graph *g, hlo_val x, hlo_dims dims)
{
    return hlo_reduce_keep(g, HLO_REDUCE_ADD, x, dims);
}

static void softmax_body(hlo_graph *g, void *ctx, const hlo_val *in, hlo_val *out)
{
    const hlo_dims *dims = ctx;
    hlo_val e = hlo_exp(g, less_max(g, widen(g, in[0]), *dims));
    out[0] = hlo_convert(g, hlo_div(g, e, sum_keep(g, e, *dims)), hlo_type_of(g, in[0]));
}

/* dx = y (d - sum(y d)): of the forward pass only y is needed. */
static void softmax_rule(hlo_graph *g, void *ctx, const hlo_val *in, int n_in, const hlo_val *out,
                         const hlo_val *d_out, int n_out, hlo_val *d_in)
{
    (void)n_in, (void)n_out;
    const hlo_dims *dims = ctx;
    hlo_val y = widen(g, out[0]), d = widen(g, d_out[0]);
    hlo_val inner = sum_keep(g, hlo_mul(g, y, d), *dims);
    d_in[0] = hlo_convert(g, hlo_mul(g, y, hlo_sub(g, d, inner)), hlo_type_of(g, in[0]));
}

static void log_softmax_body(hlo_graph *g, void *ctx, const hlo_val *in, hlo_val *out)
{
    const hlo_dims *dims = ctx;
    hlo_val x = less_max(g, widen(g, in[0]), *dims);
    hlo_val log_sum = hlo_log(g, sum_keep(g, hlo_exp(g, x), *dims));
    out[0] = hlo_convert(g, hlo_sub(g, x, log_sum), hlo_type_of(g, in[0]));
}

/* dx = d - exp(y) sum(d). */
static void log_softmax_rule(hlo_graph *g, void *ctx, const hlo_val *in, int n_in,
                             const hlo_val *out, const hlo_val *d_out, int n_out, hlo_val *d_in)
{
    (void)n_in, (void)n_out;
    const hlo_dims *dims = ctx;
    hlo_val d = widen(g, d_out[0]), p = hlo_exp(g, widen(g, out[0]));
    hlo_val dx = hlo_sub(g, d, hlo_mul(g, p, sum_keep(g, d, *dims)));
    d_in[0] = hlo_convert(g, dx, hlo_type_of(g, in[0]));
}

static hlo_val along(hlo_graph *g, const char *name, hlo_val x, int dim, hlo_body body,
                     hlo_vjp_rule rule)
{
    if (!enter(g, name, &x, 1))
        return (hlo_val){0};
    int rank = hlo_rank(g, x);
    hlo_dims dims = HLO_DIMS(dim < 0 ? dim + rank : dim);
    if (dims.d[0] < 0 || dims.d[0] >= rank) {
        hlo_fail(g, HLO_ERROR_SHAPE, "%s has no dimension %d",
                 hlo_shape_text(hlo_shape_of(g, x), (char[HLO_SHAPE_TEXT]){0}), dim);
        return (hlo_val){0};
    }
    hlo_val y = {0};
    void *ctx = hlo__copy(g, &dims, sizeof dims);
    if (ctx != NULL)
        hlo_custom_vjp(g, body, rule, ctx, &x, 1, &y, 1);
    return leave(g, y);
}

hlo_val hlo_softmax(hlo_graph *g, hlo_val x, int dim)
{
    return along(g, "softmax", x, dim, softmax_body, softmax_rule);
}

hlo_val hlo_log_softmax(hlo_graph *g, hlo_val x, int dim)
{
    return along(g, "log_softmax", x, dim, log_softmax_body, log_softmax_rule);
}

/* ---- cross entropy ---- */

/* A value of each row, ready to broadcast against the logits. */
static hlo_val column(hlo_graph *g, hlo_val x)
{
    hlo_dims dims = hlo__dims_of(hlo_shape_of(g, x));
    hlo__dims_push(&dims, 1);
    return hlo_reshape(g, x, dims);
}

/* Where the logits are their row's label. A comparison of counters, which fuses into its use. */
static hlo_val is_label(hlo_graph *g, hlo_val logits, hlo_val labels)
{
    hlo_shape classes = *hlo_shape_of(g, logits);
    classes.type = hlo_type_of(g, labels);
    return hlo_compare(g, HLO_EQ, hlo_iota(g, classes, classes.rank - 1), column(g, labels));
}

/*
 * Results: the loss; log(sum(exp(logits - max))); max. The last two are for the backward pass alone
 * and small. The label's logit is picked by a masked sum, which shares its pass over the logits
 * with the sum of exponentials; a gather would be another one, and slow on TPUs.
 */
static void entropy_body(hlo_graph *g, void *ctx, const hlo_val *in, hlo_val *out)
{
    (void)ctx;
    hlo_val logits = widen(g, in[0]);
    hlo_dims last = HLO_DIMS(hlo_rank(g, logits) - 1);
    hlo_val most = hlo_reduce(g, HLO_REDUCE_MAX, logits, last);
    hlo_val x = hlo_sub(g, logits, column(g, most));
    hlo_val log_sum = hlo_log(g, hlo_sum(g, hlo_exp(g, x), last));
    hlo_val picked = hlo_select(g, is_label(g, in[0], in[1]), x, hlo_like(g, x, 0));
    out[0] = hlo_sub(g, log_sum, hlo_sum(g, picked, last));
    out[1] = log_sum;
    out[2] = most;
}

/*
 * With p = exp(logits - max - log_sum), d logits = p (d loss + d log_sum) - (label ? d loss : 0).
 * The gradient of log_sum comes up when this rule itself is differentiated; max is a constant
 * there, for nothing depends on what is subtracted.
 */
static void entropy_rule(hlo_graph *g, void *ctx, const hlo_val *in, int n_in, const hlo_val *out,
                         const hlo_val *d_out, int n_out, hlo_val *d_in)
{
    (void)ctx, (void)n_in, (void)n_out;
    hlo_val x = hlo_sub(g, widen(g, in[0]), column(g, hlo_stop_gradient(g, out[2])));
    hlo_val p = hlo_exp(g, hlo_sub(g, x, column(g, out[1])));
    hlo_val d = d_out[0], both = d;
    double zero;
    if (d_out[1].id != 0 && !(hlo__is_splat(g, d_out[1], &zero) && zero == 0))
        both = hlo_add(g, d, d_out[1]);
    hlo_val at_label = hlo_select(g, is_label(g, in[0], in[1]), column(g, d), hlo_like(g, d, 0));
    hlo_val dx = hlo_sub(g, hlo_mul(g, p, column(g, both)), at_label);
    d_in[0] = hlo_convert(g, dx, hlo_type_of(g, in[0]));
}

/* A label that is no class picks nothing: the row's loss is then log(sum(exp(logits - max))), to be
 * masked out by the caller. */
hlo_val hlo_cross_entropy(hlo_graph *g, hlo_val logits, hlo_val labels)
{
    const hlo_val in[2] = {logits, labels};
    if (!enter(g, "cross_entropy", in, 2))
        return (hlo_val){0};
    const hlo_shape *xs = hlo_shape_of(g, logits), *ls = hlo_shape_of(g, labels);
    char text[2][HLO_SHAPE_TEXT];
    if (!hlo__is_integer(ls->type) || xs->rank != ls->rank + 1 ||
        memcmp(xs->dims, ls->dims, (size_t)ls->rank * sizeof *ls->dims) != 0) {
        hlo_fail(g, HLO_ERROR_SHAPE,
                 "labels are an integer for each row of the logits; %s does not go with %s",
                 hlo_shape_text(ls, text[0]), hlo_shape_text(xs, text[1]));
        return (hlo_val){0};
    }
    /* Counting classes needs a type that holds them all. */
    hlo_type wide = hlo_type_bits(ls->type) < 32 ? HLO_S32 : ls->type;
    const hlo_val args[2] = {logits, hlo_convert(g, labels, wide)};
    hlo_val out[3] = {0};
    hlo_custom_vjp(g, entropy_body, entropy_rule, NULL, args, 2, out, 3);
    return leave(g, out[0]);
}

/* ---- activations ---- */

/* Both keep nothing but x, and compute the rest again backwards. */

/* tanh(sqrt(2 / pi) (x + 0.044715 x^3)), and the derivative of its argument by x. */
static hlo_val gelu_tanh(hlo_graph *g, hlo_val x, hlo_val *slope)
{
    const double root = 0.79788456080286535588, cubic = 0.044715;
    hlo_val square = hlo_mul(g, x, x);
    hlo_val one = hlo_like(g, x, 1);
    hlo_val inner = hlo_add(g, one, hlo_mul(g, hlo_like(g, x, cubic), square));
    if (slope != NULL)
        *slope = hlo_mul(g, hlo_like(g, x, root),
                         hlo_add(g, one, hlo_mul(g, hlo_like(g, x, 3 * cubic), square)));
    return hlo_tanh(g, hlo_mul(g, hlo_mul(g, hlo_like(g, x, root), x), inner));
}

static void gelu_body(hlo_graph *g, void *ctx, const hlo_val *in, hlo_val *out)
{
    (void)ctx;
    hlo_val x = widen(g, in[0]);
    hlo_val t = hlo_add(g, gelu_tanh(g, x, NULL), hlo_like(g, x, 1));
    out[0] =
        hlo_convert(g, hlo_mul(g, hlo_mul(g, hlo_like(g, x, 0.5), x), t), hlo_type_of(g, in[0]));
}

/* With t the tanh and s the slope of its argument: y' = (1 + t + x (1 - t^2) s) / 2. */
static void gelu_rule(hlo_graph *g, void *ctx, const hlo_val *in, int n_in, const hlo_val *out,
                      const hlo_val *d_out, int n_out, hlo_val *d_in)
{
    (void)ctx, (void)n_in, (void)out, (void)n_out;
    hlo_val x = widen(g, in[0]), one = hlo_like(g, x, 1), slope;
    hlo_val t = gelu_tanh(g, x, &slope);
    hlo_val bend = hlo_mul(g, hlo_mul(g, x, hlo_sub(g, one, hlo_mul(g, t, t))), slope);
    hlo_val dy = hlo_mul(g, hlo_like(g, x, 0.5), hlo_add(g, hlo_add(g, one, t), bend));
    d_in[0] = hlo_convert(g, hlo_mul(g, widen(g, d_out[0]), dy), hlo_type_of(g, in[0]));
}

static void silu_body(hlo_graph *g, void *ctx, const hlo_val *in, hlo_val *out)
{
    (void)ctx;
    hlo_val x = widen(g, in[0]);
    out[0] = hlo_convert(g, hlo_mul(g, x, hlo_logistic(g, x)), hlo_type_of(g, in[0]));
}

/* With s the logistic function: y' = s (1 + x (1 - s)). */
static void silu_rule(hlo_graph *g, void *ctx, const hlo_val *in, int n_in, const hlo_val *out,
                      const hlo_val *d_out, int n_out, hlo_val *d_in)
{
    (void)ctx, (void)n_in, (void)out, (void)n_out;
    hlo_val x = widen(g, in[0]), one = hlo_like(g, x, 1), s = hlo_logistic(g, x);
    hlo_val dy = hlo_mul(g, s, hlo_add(g, one, hlo_mul(g, x, hlo_sub(g, one, s))));
    d_in[0] = hlo_convert(g, hlo_mul(g, widen(g, d_out[0]), dy), hlo_type_of(g, in[0]));
}

static hlo_val activation(hlo_graph *g, const char *name, hlo_val x, hlo_body body,
                          hlo_vjp_rule rule)
{
    hlo_val y = {0};
    if (!enter(g, name, &x, 1))
        return y;
    hlo_custom_vjp(g, body, rule, NULL, &x, 1, &y, 1);
    return leave(g, y);
}

hlo_val hlo_gelu(hlo_graph *g, hlo_val x)
{
    return activation(g, "gelu", x, gelu_body, gelu_rule);
}

hlo_val hlo_silu(hlo_graph *g, hlo_val x)
{
    return activation(g, "silu", x, silu_body, silu_rule);
}

/* ---- rotary embedding ---- */

/* Whether positions are [time] or [..., time] for x [..., time, heads, dim]. */
static bool positions_fit(const hlo_shape *x, const hlo_shape *p)
{
    if (p->type == HLO_PRED || x->rank < 3)
        return false;
    if (p->rank == 1)
        return p->dims[0] == x->dims[x->rank - 3];
    return p->rank == x->rank - 2 &&
           memcmp(p->dims, x->dims, (size_t)p->rank * sizeof *p->dims) == 0;
}

/* theta^(-2 i / dim) for each pair. */
static hlo_val frequencies(hlo_graph *g, hlo_type type, int64_t pairs, double theta)
{
    hlo_shape shape = HLO_SHAPE(type, pairs);
    void *data = hlo__alloc(g, (size_t)pairs * sizeof(double));
    if (data == NULL)
        return (hlo_val){0};
    for (int64_t i = 0; i < pairs; i++) {
        double f = pow(theta, -(double)i / (double)pairs);
        if (type == HLO_F64)
            ((double *)data)[i] = f;
        else
            ((float *)data)[i] = (float)f;
    }
    return hlo_constant(g, shape, data);
}

/* The angles [..., time, 1, pairs]. */
static hlo_val angles(hlo_graph *g, hlo_val positions, hlo_type type, int64_t pairs, double theta)
{
    hlo_dims dims = hlo__dims_of(hlo_shape_of(g, positions));
    hlo__dims_push(&dims, 1);
    hlo__dims_push(&dims, 1);
    hlo_val p = hlo_reshape(g, hlo_convert(g, positions, type), dims);
    return hlo_mul(g, p, frequencies(g, type, pairs, theta));
}

/* Turns the pairs (a, b), each [..., time, heads, pairs], in place. */
static void turn(hlo_graph *g, hlo_val *a, hlo_val *b, hlo_val angle)
{
    hlo_val c = hlo_cos(g, angle), s = hlo_sin(g, angle), x = *a, y = *b;
    *a = hlo_sub(g, hlo_mul(g, x, c), hlo_mul(g, y, s));
    *b = hlo_add(g, hlo_mul(g, y, c), hlo_mul(g, x, s));
}

/* (2 i, 2 i + 1): x is seen as [..., pairs, 2] in between. */
static hlo_val rope_interleaved(hlo_graph *g, hlo_val x, hlo_val angle)
{
    hlo_dims whole = hlo__dims_of(hlo_shape_of(g, x)), split = whole, half = whole;
    int last = (int)whole.n - 1;
    half.d[last] = split.d[last] = whole.d[last] / 2;
    hlo__dims_push(&split, 2);
    x = hlo_reshape(g, x, split);
    hlo_val parts[2] = {hlo_reshape(g, hlo_slice_dim(g, x, last + 1, 0, 1), half),
                        hlo_reshape(g, hlo_slice_dim(g, x, last + 1, 1, 2), half)};
    turn(g, &parts[0], &parts[1], angle);
    return hlo_reshape(g, hlo_stack(g, parts, 2, last + 1), whole);
}

static hlo_val rope_halves(hlo_graph *g, hlo_val x, hlo_val angle)
{
    int last = hlo_rank(g, x) - 1;
    int64_t dim = hlo_dim(g, x, last);
    hlo_val parts[2] = {hlo_slice_dim(g, x, last, 0, dim / 2),
                        hlo_slice_dim(g, x, last, dim / 2, dim)};
    turn(g, &parts[0], &parts[1], angle);
    return hlo_concat(g, parts, 2, last);
}

hlo_val hlo_rope(hlo_graph *g, hlo_val x, hlo_val positions, double theta, bool interleaved)
{
    const hlo_val in[2] = {x, positions};
    if (!enter(g, "rope", in, 2))
        return (hlo_val){0};
    const hlo_shape *xs = hlo_shape_of(g, x), *ps = hlo_shape_of(g, positions);
    char text[2][HLO_SHAPE_TEXT];
    if (!positions_fit(xs, ps))
        hlo_fail(g, HLO_ERROR_SHAPE,
                 "x is [..., time, heads, dim] and positions [time] or [..., time], not %s and %s",
                 hlo_shape_text(xs, text[0]), hlo_shape_text(ps, text[1]));
    else if (xs->dims[xs->rank - 1] % 2 != 0 || !(theta > 0) ||
             (interleaved && xs->rank == HLO_MAX_RANK))
        hlo_fail(g, HLO_ERROR_SHAPE, "pairs of %s with theta %g", hlo_shape_text(xs, text[0]),
                 theta);
    if (hlo__failed(g))
        return (hlo_val){0};
    hlo_type type = xs->type, wide = hlo__wide_type(type);
    hlo_val angle = angles(g, positions, wide, xs->dims[xs->rank - 1] / 2, theta);
    x = hlo_convert(g, x, wide);
    if (hlo__failed(g))
        return (hlo_val){0};
    x = interleaved ? rope_interleaved(g, x, angle) : rope_halves(g, x, angle);
    return leave(g, hlo_convert(g, x, type));
}
