/*
 * Cross-entropy of the head, a part of the times after another: the logits of a vocabulary of
 * 32,000 are larger than all else together, and nothing needs them after their own gradient. The
 * gradients are linear in that of the loss, so they are made on the way forward, where the logits
 * are, and only scaled on the way back; what does not ask for gradients does not compute them.
 */
#include "model/network_internal.h"

/* Times at once, of each span where times are split over devices. A TPU's memory has room for more,
 * and the gradient of the table, which is added up part by part, goes over its links each time. */
enum { LOSS_TIMES = 512, LOSS_TIMES_OF_TPUS = 2048 };

typedef struct head {
    hlo_type compute, wide;
    hlo_val table; /* [vocab, hidden], in the type of activations */
    double z_loss;
    int64_t spans; /* that times are cut into, each with a device of its own */
    int64_t times; /* of a part, in each span */
} head;

/* Sums over a part: x [batch, times, hidden], labels and weights [batch, times]. */
typedef struct head_part {
    hlo_val loss;    /* scalar */
    hlo_val d_x;     /* [batch, times, hidden] */
    hlo_val d_table; /* [vocab, hidden] */
} head_part;

/* A number for each row in front of the logits. */
static hlo_val column(hlo_graph *g, hlo_val v)
{
    return hlo_reshape(g, v, HLO_DIMS(hlo_dim(g, v, 0), hlo_dim(g, v, 1), 1));
}

static head_part part_of(hlo_graph *g, const head *h, hlo_val x, hlo_val labels, hlo_val weights)
{
    hlo_val logits = hlo_einsum_as(g, "btc,vc->btv", x, h->table, h->wide, HLO_PRECISION_DEFAULT);
    const hlo_shape *s = hlo_shape_of(g, logits);
    hlo_shape classes = *s;
    classes.type = HLO_S32;
    hlo_val is_label = hlo_compare(g, HLO_EQ, hlo_iota(g, classes, 2), column(g, labels));
    hlo_val most = hlo_reduce_keep(g, HLO_REDUCE_MAX, logits, HLO_DIMS(2));
    hlo_val e = hlo_exp(g, hlo_sub(g, logits, most));
    hlo_val sum = hlo_reduce_keep(g, HLO_REDUCE_ADD, e, HLO_DIMS(2));
    hlo_val log_sum = hlo_add(g, most, hlo_log(g, sum)); /* [batch, times, 1] */
    hlo_val labelled = hlo_select(g, is_label, logits, hlo_like(g, logits, 0));
    labelled = hlo_reduce_keep(g, HLO_REDUCE_ADD, labelled, HLO_DIMS(2));
    hlo_val loss = hlo_sub(g, log_sum, labelled), slope = column(g, weights);
    if (h->z_loss != 0) {
        hlo_val z = hlo_mul(g, log_sum, hlo_like(g, log_sum, h->z_loss));
        loss = hlo_add(g, loss, hlo_mul(g, z, log_sum));
        slope = hlo_mul(g, slope, hlo_add(g, hlo_add(g, z, z), hlo_like(g, z, 1)));
    }
    hlo_val d = hlo_mul(g, e, hlo_div(g, slope, sum));
    d = hlo_sub(g, d, hlo_select(g, is_label, column(g, weights), hlo_like(g, d, 0)));
    d = hlo_convert(g, d, h->compute);
    return (head_part){
        hlo_sum(g, hlo_mul(g, loss, column(g, weights)), HLO_DIMS(0, 1, 2)),
        hlo_einsum(g, "btv,vc->btc", d, h->table),
        hlo_einsum_as(g, "btv,btc->vc", d, x, h->wide, HLO_PRECISION_DEFAULT),
    };
}

static void one_part(hlo_graph *g, void *ctx, hlo_val step, const hlo_val *carry, const hlo_val *in,
                     hlo_val *next, hlo_val *out)
{
    head_part p = part_of(g, ctx, in[0], in[1], in[2]);
    (void)step;
    next[0] = hlo_add(g, carry[0], p.loss);
    next[1] = hlo_add(g, carry[1], p.d_table);
    out[0] = p.d_x;
}

/* Times as spans, the first `whole` of each of which are parts of so many `times`. */
typedef struct cutting {
    int64_t batch, spans, span, times, whole, parts;
} cutting;

static cutting cut(hlo_graph *g, hlo_val labels, const head *h)
{
    cutting c = {.batch = hlo_dim(g, labels, 0), .spans = h->spans, .times = h->times};
    c.span = hlo_dim(g, labels, 1) / c.spans;
    c.parts = c.span / c.times;
    c.whole = c.parts * c.times;
    return c;
}

/* x [batch, time, (width)]: the times [start, limit) of each span, [batch, …, width]. */
static hlo_val of_spans(hlo_graph *g, const cutting *c, hlo_val x, int64_t start, int64_t limit)
{
    int64_t width = hlo_rank(g, x) == 3 ? hlo_dim(g, x, 2) : 1;
    x = hlo_reshape(g, x, HLO_DIMS(c->batch, c->spans, c->span, width));
    return hlo_slice_dim(g, x, 2, start, limit);
}

/* The parts, [parts, batch, spans * times, (width)]; and what is left, [batch, times,
 * (width)].
 */
static hlo_val in_parts(hlo_graph *g, const cutting *c, hlo_val x)
{
    int64_t rank = hlo_rank(g, x), times = c->spans * c->times;
    hlo_val y = of_spans(g, c, x, 0, c->whole);
    int64_t width = hlo_dim(g, y, 3);
    y = hlo_reshape(g, y, HLO_DIMS(c->batch, c->spans, c->parts, c->times, width));
    y = hlo_transpose(g, y, HLO_DIMS(2, 0, 1, 3, 4));
    return hlo_reshape(g, y,
                       rank == 3 ? HLO_DIMS(c->parts, c->batch, times, width)
                                 : HLO_DIMS(c->parts, c->batch, times));
}

static hlo_val left_over(hlo_graph *g, const cutting *c, hlo_val x)
{
    int64_t rank = hlo_rank(g, x), times = c->spans * (c->span - c->whole);
    hlo_val y = of_spans(g, c, x, c->whole, c->span);
    return hlo_reshape(
        g, y, rank == 3 ? HLO_DIMS(c->batch, times, hlo_dim(g, y, 3)) : HLO_DIMS(c->batch, times));
}

/* What was made of the parts and of what is left, either of which may be null, in the order of
 * times: [batch, time, width]. */
static hlo_val rejoin(hlo_graph *g, const cutting *c, hlo_val parts, hlo_val rest, int64_t width)
{
    hlo_val both[2];
    int n = 0;
    if (parts.id != 0) {
        parts = hlo_reshape(g, parts, HLO_DIMS(c->parts, c->batch, c->spans, c->times, width));
        parts = hlo_transpose(g, parts, HLO_DIMS(1, 2, 0, 3, 4));
        both[n++] = hlo_reshape(g, parts, HLO_DIMS(c->batch, c->spans, c->whole, width));
    }
    if (rest.id != 0)
        both[n++] = hlo_reshape(g, rest, HLO_DIMS(c->batch, c->spans, c->span - c->whole, width));
    hlo_val all = n == 1 ? both[0] : hlo_concat(g, both, 2, 2);
    return hlo_reshape(g, all, HLO_DIMS(c->batch, c->spans * c->span, width));
}

/* in: x, table, labels, weights; out: loss, and the gradients of x and the table. */
static void body(hlo_graph *g, void *ctx, const hlo_val *in, hlo_val *out)
{
    head h = *(const head *)ctx;
    cutting c = cut(g, in[2], &h);
    hlo_val d_parts = {0}, d_rest = {0},
            sums[2] = {hlo_scalar(g, h.wide, 0), hlo_convert(g, hlo_zeros_like(g, in[1]), h.wide)};
    h.table = hlo_convert(g, in[1], h.compute);
    if (c.parts > 0) {
        hlo_val pieces[3] = {in_parts(g, &c, in[0]), in_parts(g, &c, in[2]),
                             in_parts(g, &c, in[3])};
        hlo_scan(g, one_part, &h, sums, 2, pieces, 3, &d_parts, 1, NULL);
    }
    if (c.whole < c.span) {
        head_part rest = part_of(g, &h, left_over(g, &c, in[0]), left_over(g, &c, in[2]),
                                 left_over(g, &c, in[3]));
        sums[0] = hlo_add(g, sums[0], rest.loss);
        sums[1] = hlo_add(g, sums[1], rest.d_table);
        d_rest = rest.d_x;
    }
    out[0] = sums[0];
    out[1] = rejoin(g, &c, d_parts, d_rest, hlo_dim(g, in[0], 2));
    out[2] = hlo_convert(g, sums[1], hlo_type_of(g, in[1]));
}

static void rule(hlo_graph *g, void *ctx, const hlo_val *in, int n_in, const hlo_val *out,
                 const hlo_val *d_out, int n_out, hlo_val *d_in)
{
    (void)ctx, (void)in, (void)n_in, (void)n_out;
    for (int i = 0; i < 2; i++)
        d_in[i] = hlo_mul(g, out[1 + i], hlo_convert(g, d_out[0], hlo_type_of(g, out[1 + i])));
}

/* Weights that make the sum over all tokens the mean over each sequence, then over sequences. */
static hlo_val shares(hlo_graph *g, const ttt_net *net, const ttt_target *target)
{
    const hlo_shape *s = hlo_shape_of(g, target->labels);
    hlo_type wide = net_wide(net);
    int64_t batch = s->dims[0], time = s->dims[1];
    if (target->weights.id == 0)
        return hlo_full(g, HLO_SHAPE(wide, batch, time), 1.0 / (double)(batch * time));
    hlo_val weights = hlo_convert(g, target->weights, wide);
    hlo_val sum = hlo_reduce_keep(g, HLO_REDUCE_ADD, weights, HLO_DIMS(1));
    sum = hlo_max(g, sum, hlo_like(g, sum, 1e-10));
    return hlo_div(g, weights, hlo_mul(g, sum, hlo_like(g, sum, (double)batch)));
}

/* Into how many spans times are cut. */
static int64_t spans_of(hlo_graph *g, const ttt_net *net, hlo_val labels)
{
    int64_t spans = hlo_axes_size(g, net->time_axis), time = hlo_dim(g, labels, 1);
    if (time % spans != 0)
        hlo_fail(g, HLO_ERROR_SHAPE, "%lld tokens do not divide by %lld, the mesh's axis of times",
                 (long long)time, (long long)spans);
    return spans;
}

static head head_of(hlo_graph *g, const ttt_net *net, hlo_val labels)
{
    return (head){.compute = net_compute(net),
                  .wide = net_wide(net),
                  .spans = spans_of(g, net, labels),
                  .times = net->row_sums_as_matmul ? LOSS_TIMES_OF_TPUS : LOSS_TIMES};
}

hlo_val ttt_loss(hlo_graph *g, const ttt_net *net, const ttt_input *in, const ttt_target *target,
                 ttt_diagnostics *diagnostics)
{
    head h = head_of(g, net, target->labels);
    h.z_loss = target->z_loss;
    hlo_val x = net_trunk(g, net, in, diagnostics), out[3];
    hlo_scope_push(g, "loss");
    hlo_val args[4] = {x, net_head(g, net), target->labels, shares(g, net, target)};
    hlo_custom_vjp(g, body, rule, &h, args, 4, out, 3);
    hlo_scope_pop(g);
    return out[0];
}

/* ---- one loss a token ------------------------------------------------------------------------ */

static hlo_val losses_of(hlo_graph *g, const head *h, hlo_val x, hlo_val labels)
{
    return hlo_cross_entropy(
        g, hlo_einsum_as(g, "btc,vc->btv", x, h->table, h->wide, HLO_PRECISION_DEFAULT), labels);
}

static void losses_of_part(hlo_graph *g, void *ctx, hlo_val step, const hlo_val *carry,
                           const hlo_val *in, hlo_val *next, hlo_val *out)
{
    (void)step, (void)carry, (void)next;
    out[0] = losses_of(g, ctx, in[0], in[1]);
}

hlo_val net_losses(hlo_graph *g, const ttt_net *net, hlo_val x, hlo_val labels)
{
    head h = head_of(g, net, labels);
    hlo_val losses = {0}, rest = {0};
    cutting c = cut(g, labels, &h);
    hlo_scope_push(g, "loss");
    h.table = hlo_convert(g, net_head(g, net), h.compute);
    if (c.parts > 0) {
        hlo_val pieces[2] = {in_parts(g, &c, x), in_parts(g, &c, labels)};
        hlo_scan(g, losses_of_part, &h, NULL, 0, pieces, 2, &losses, 1, NULL);
    }
    if (c.whole < c.span)
        rest = losses_of(g, &h, left_over(g, &c, x), left_over(g, &c, labels));
    losses = rejoin(g, &c, losses, rest, 1);
    hlo_scope_pop(g);
    return hlo_reshape(g, losses, HLO_DIMS(c.batch, c.spans * c.span));
}

hlo_val ttt_losses(hlo_graph *g, const ttt_net *net, const ttt_input *in, hlo_val labels,
                   ttt_diagnostics *diagnostics)
{
    return net_losses(g, net, net_trunk(g, net, in, diagnostics), labels);
}
