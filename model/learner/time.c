/*
 * The learner over sequences whose times are cut into spans, each with a device of its own. Nothing
 * but the state goes from span to span, so sequences follow one another as in a pipeline: at tick u
 * device p works on span p of sequence u - p, from the state that device p - 1 ended tick u - 1
 * with. Of S sequences and P spans there are S + P - 1 ticks, in S of which a device has work.
 *
 * This is written for all devices at once: arrays have a dimension of spans, split over the mesh.
 * Before the loop the sequences of span p are moved p places round, so that what all devices need
 * at a tick stands in one place. How far differs from device to device, but each of them moves by
 * powers of two, which is the same for all but for a mask, and needs no other device's data.
 *
 * Letters, with those of learner.h: P spans, m mini-batches of one, D groups of sequences that have
 * devices of their own, S sequences of one, U ticks; n is P m, and B is D S.
 */
#include "model/learner/learner.h"

#include <stdio.h>

enum { FIELDS = 8 };

typedef struct pipeline {
    const learner *l;
    const learner_mesh *mesh;
    int64_t spans, groups, sequences, ticks, checkpoint;
    learner_state start; /* [D P, H, in, out] */
    bool resets, keys;
    learner_data data; /* by ticks: see to_ticks; rates are [S, m, D P, H, b, 1] */
} pipeline;

/* The parts of what a learner is given; those of resets come last. */
static void list_fields(learner_data *data, hlo_val *fields[FIELDS])
{
    hlo_val *const all[FIELDS] = {
        &data->k,     &data->target,        &data->q,        &data->rate, &data->reach,
        &data->fresh, &data->fresh_answers, &data->fresh_end};
    for (int i = 0; i < FIELDS; i++)
        fields[i] = all[i];
}

static int fields_of(const pipeline *p)
{
    return p->resets ? FIELDS : FIELDS - 4;
}

/* ---- to ticks and back ----------------------------------------------------------------------- */

/* Arrays [·, m, D, P, H, …]: each device has its own group, span and heads. */
static hlo_val placed(hlo_graph *g, const pipeline *p, hlo_val x)
{
    const char *heads = hlo_dim(g, x, 4) == 1 ? NULL : "model";
    return hlo_shard(g, x, HLO_SPEC(NULL, NULL, p->mesh->batch_axes, p->mesh->time_axis, heads));
}

/* Where bit `by` of a number of each span is set: pred [P, 1, 1, 1]. */
static hlo_val has_bit(hlo_graph *g, hlo_val number, int64_t by)
{
    hlo_val bit = hlo_and(g, number, hlo_scalar_int(g, HLO_S32, by));
    return hlo_compare(g, HLO_NE, bit, hlo_scalar_int(g, HLO_S32, 0));
}

static hlo_val span_numbers(hlo_graph *g, const pipeline *p)
{
    return hlo_iota(g, HLO_SHAPE(HLO_S32, p->spans, 1, 1, 1), 0);
}

/* [n, B, H, ·, ·] to [S, m, D P, H, ·, ·], where place u % S has what a device needs at tick u:
 * the sequences of span p later by p places, the last ones in front. */
static hlo_val to_ticks(hlo_graph *g, const pipeline *p, hlo_val x)
{
    const hlo_shape *s = hlo_shape_of(g, x);
    int64_t m = s->dims[0] / p->spans, count = p->sequences;
    hlo_dims merged = HLO_DIMS(count, m, p->groups * p->spans, s->dims[2], s->dims[3], s->dims[4]);
    x = hlo_reshape(g, x,
                    HLO_DIMS(p->spans, m, p->groups, count, merged.d[3], merged.d[4], merged.d[5]));
    x = placed(g, p, hlo_transpose(g, x, HLO_DIMS(3, 1, 2, 0, 4, 5, 6)));
    hlo_val places = hlo_rem(g, span_numbers(g, p), hlo_scalar_int(g, HLO_S32, count));
    for (int64_t by = 1; by < count && by < p->spans; by *= 2) {
        hlo_val parts[2] = {hlo_slice_dim(g, x, 0, count - by, count),
                            hlo_slice_dim(g, x, 0, 0, count - by)};
        x = hlo_select(g, has_bit(g, places, by), hlo_concat(g, parts, 2, 0), x);
    }
    return hlo_reshape(g, placed(g, p, x), merged);
}

/* What ticks made, [U, m, D P, H, ·, ·], back to [n, B, H, ·, ·]: span p earlier by p ticks. */
static hlo_val from_ticks(hlo_graph *g, const pipeline *p, hlo_val x)
{
    const hlo_shape *s = hlo_shape_of(g, x);
    int64_t m = s->dims[1];
    hlo_dims whole =
        HLO_DIMS(p->spans * m, p->groups * p->sequences, s->dims[3], s->dims[4], s->dims[5]);
    x = hlo_reshape(g, x,
                    HLO_DIMS(p->ticks, m, p->groups, p->spans, whole.d[2], whole.d[3], whole.d[4]));
    x = placed(g, p, x);
    for (int64_t by = 1; by < p->spans; by *= 2)
        x = hlo_select(g, has_bit(g, span_numbers(g, p), by), hlo_shift(g, x, 0, -by), x);
    x = placed(g, p, hlo_slice_dim(g, x, 0, 0, p->sequences));
    return hlo_reshape(g, hlo_transpose(g, x, HLO_DIMS(3, 1, 2, 0, 4, 5, 6)), whole);
}

/* States [U, D P, H, ·, ·] as ticks left them, to those of sequences after their last span. */
static hlo_val ends_of(hlo_graph *g, const pipeline *p, hlo_val x)
{
    const hlo_shape *s = hlo_shape_of(g, x);
    int64_t heads = s->dims[2], in = s->dims[3], out = s->dims[4];
    x = hlo_slice_dim(g, x, 0, p->spans - 1, p->ticks);
    x = hlo_reshape(g, x, HLO_DIMS(p->sequences, p->groups, p->spans, heads, in, out));
    x = hlo_slice_dim(g, x, 2, p->spans - 1, p->spans);
    x = hlo_transpose(g, x, HLO_DIMS(1, 0, 2, 3, 4, 5));
    return hlo_reshape(g, x, HLO_DIMS(p->groups * p->sequences, heads, in, out));
}

/* ---- ticks ----------------------------------------------------------------------------------- */

/* Where states [D P, H, …] live. */
static hlo_val placed_state(hlo_graph *g, const pipeline *p, hlo_val x)
{
    const char *batch = p->mesh->batch_axes;
    char axes[64];
    snprintf(axes, sizeof axes, "%s%s%s", batch == NULL ? "" : batch, batch == NULL ? "" : "+",
             p->mesh->time_axis);
    return hlo_shard(g, x, HLO_SPEC(axes, "model"));
}

/* Each span has the state of the one before it; the first starts anew. */
static hlo_val handed_on(hlo_graph *g, const pipeline *p, hlo_val x, hlo_val start)
{
    const hlo_shape *s = hlo_shape_of(g, x);
    hlo_dims flat = HLO_DIMS(s->dims[0], s->dims[1], s->dims[2], s->dims[3]);
    hlo_dims by_span = HLO_DIMS(p->groups, p->spans, flat.d[1], flat.d[2], flat.d[3]);
    hlo_spec spec = HLO_SPEC(p->mesh->batch_axes, p->mesh->time_axis, "model");
    x = hlo_shift(g, hlo_shard(g, hlo_reshape(g, x, by_span), spec), 1, 1);
    hlo_val span = hlo_iota(g, HLO_SHAPE(HLO_S32, p->spans, 1, 1, 1), 0);
    hlo_val first = hlo_compare(g, HLO_EQ, span, hlo_scalar_int(g, HLO_S32, 0));
    x = hlo_select(g, first, hlo_reshape(g, start, by_span), x);
    return placed_state(g, p, hlo_reshape(g, x, flat));
}

/* What devices work on at a tick. Those without a sequence have that of another tick, at rates of
 * zero: their state stays what it is. */
static learner_data data_of(hlo_graph *g, const pipeline *p, hlo_val step)
{
    learner_data data = p->data;
    hlo_val *fields[FIELDS], zero = hlo_scalar_int(g, HLO_S32, 0);
    hlo_val count = hlo_scalar_int(g, HLO_S32, p->sequences), place = hlo_rem(g, step, count);
    list_fields(&data, fields);
    for (int i = 0; i < fields_of(p); i++)
        *fields[i] = hlo_index(g, *fields[i], 0, place);
    hlo_val span = hlo_rem(g, hlo_iota(g, HLO_SHAPE(HLO_S32, p->groups * p->spans, 1, 1, 1), 0),
                           hlo_scalar_int(g, HLO_S32, p->spans));
    hlo_val sequence = hlo_sub(g, step, span); /* [D P, 1, 1, 1] */
    hlo_val works =
        hlo_and(g, hlo_compare(g, HLO_GE, sequence, zero), hlo_compare(g, HLO_LT, sequence, count));
    const hlo_shape *s = hlo_shape_of(g, data.rate); /* [m, D P, H, b, 1] */
    data.rate = hlo_select(g, works, data.rate, hlo_like(g, data.rate, 0));
    data.rate = hlo_reshape(g, data.rate, HLO_DIMS(s->dims[0], s->dims[1], s->dims[2], s->dims[3]));
    return data;
}

/* out: answers, the states, and residuals of keys where there are any. */
static void tick(hlo_graph *g, void *ctx, hlo_val step, const hlo_val *carry, const hlo_val *given,
                 hlo_val *next, hlo_val *out)
{
    const pipeline *p = ctx;
    learner_data data = data_of(g, p, step);
    learner_state state;
    hlo_val list[LEARNER_MAX_STATE], start[LEARNER_MAX_STATE];
    (void)given;
    int n = learner_pack_state(p->l, &p->start, start);
    for (int i = 0; i < n; i++)
        list[i] = handed_on(g, p, carry[i], start[i]);
    learner_unpack_state(p->l, list, &state);
    learner_result r = learner_dual(g, p->l, &data, &state, p->checkpoint);
    learner_pack_state(p->l, &state, next);
    out[0] = r.answers;
    for (int i = 0; i < n; i++)
        out[1 + i] = next[i] = placed_state(g, p, next[i]);
    if (p->keys)
        out[1 + n] = r.keys;
}

learner_result learner_over_spans(hlo_graph *g, const learner *l, const learner_data *data,
                                  const learner_mesh *mesh, learner_state *state, int64_t group)
{
    pipeline p = {.l = l,
                  .mesh = mesh,
                  .spans = hlo_axes_size(g, mesh->time_axis),
                  .groups = hlo_axes_size(g, mesh->batch_axes),
                  .checkpoint = group,
                  .resets = data->fresh.id != 0,
                  .keys = hlo_dim(g, data->k, 3) == data->mini, /* pieces of several have none */
                  .data = *data};
    hlo_val *fields[FIELDS], carry[LEARNER_MAX_STATE], out[2 + LEARNER_MAX_STATE];
    p.sequences = hlo_dim(g, data->k, 1) / p.groups;
    p.ticks = p.sequences + p.spans - 1;
    const hlo_shape *s = hlo_shape_of(g, data->rate);
    p.data.rate =
        hlo_reshape(g, data->rate, HLO_DIMS(s->dims[0], s->dims[1], s->dims[2], s->dims[3], 1));
    list_fields(&p.data, fields);
    for (int i = 0; i < fields_of(&p); i++)
        *fields[i] = to_ticks(g, &p, *fields[i]);
    p.start = learner_start(g, l, p.groups * p.spans);
    int n = learner_pack_state(l, &p.start, carry);
    for (int i = 0; i < n; i++)
        carry[i] = placed_state(g, &p, carry[i]);
    /* Mixing matrices and weighted keys of a tick are soon made again. */
    hlo_scan_options options = {.length = p.ticks, .save = HLO_SAVE_LOOPS};
    hlo_scan(g, tick, &p, carry, n, NULL, 0, out, 1 + n + (p.keys ? 1 : 0), &options);
    for (int i = 0; i < n; i++)
        carry[i] = ends_of(g, &p, out[1 + i]);
    learner_unpack_state(l, carry, state);
    learner_result r = {.answers = from_ticks(g, &p, out[0])};
    if (p.keys)
        r.keys = from_ticks(g, &p, out[1 + n]);
    return r;
}
