/* What the chunked forms of one layer and two share. */
#include "model/learner/chunk.h"

int64_t learner_chunk(const learner *l, int64_t n, int64_t size)
{
    int64_t best = 1;
    if (!l->row_sums_as_matmul || !l->published || l->norm_scale.id == 0)
        return best;
    for (int64_t i = 2; i <= CHUNK_MAX_STEPS && i * size <= CHUNK_MAX_TOKENS; i++)
        best = n % i == 0 ? i : best;
    return best;
}

/* ---- small pieces ---------------------------------------------------------------------------- */

hlo_val chunk_rows(hlo_graph *g, hlo_val x, int64_t from, int64_t to)
{
    return hlo_slice_dim(g, x, 2, from, to);
}

/* For what is made of it and rounded to `narrow` then. */
static hlo_val rough_mean(hlo_graph *g, hlo_val x, hlo_type narrow)
{
    return learner_mean(g, x, learner_precision(narrow));
}

hlo_val chunk_centred(hlo_graph *g, hlo_val x)
{
    return hlo_sub(g, x, learner_mean(g, x, HLO_PRECISION_HIGH));
}

hlo_val chunk_roughly_centred(hlo_graph *g, hlo_val x, hlo_type narrow)
{
    return hlo_sub(g, x, rough_mean(g, x, narrow));
}

hlo_val chunk_product(hlo_graph *g, const char *spec, hlo_val a, hlo_val b, hlo_type wide)
{
    hlo_type narrow = hlo_type_of(g, a);
    return hlo_einsum_as(g, spec, a, hlo_convert(g, b, narrow), wide, HLO_PRECISION_DEFAULT);
}

hlo_val chunk_concat(hlo_graph *g, const hlo_val *parts, int n)
{
    return n == 1 ? parts[0] : hlo_concat(g, parts, n, 2);
}

hlo_val chunk_after(hlo_graph *g, hlo_val z, hlo_val between, int64_t at, hlo_val part)
{
    int64_t tokens = hlo_dim(g, between, 2), mini = hlo_dim(g, part, 2), end = at + mini;
    hlo_val by = hlo_slice_dim(g, chunk_rows(g, between, end, tokens), 3, at, end);
    return hlo_sub(g, chunk_rows(g, z, mini, tokens - at),
                   chunk_product(g, "bhts,bhso->bhto", by, part, hlo_type_of(g, z)));
}

hlo_val chunk_before(hlo_graph *g, hlo_val a, hlo_val between, int64_t at, hlo_val part)
{
    int64_t end = at + hlo_dim(g, part, 2);
    hlo_val by = hlo_slice_dim(g, chunk_rows(g, between, at, end), 3, 0, at);
    return hlo_sub(g, chunk_rows(g, a, 0, at),
                   chunk_product(g, "bhts,bhto->bhso", by, part, hlo_type_of(g, a)));
}

/* ---- the norm -------------------------------------------------------------------------------- */

hlo_val chunk_pull(hlo_graph *g, const learner *l, hlo_val target)
{
    hlo_val scale = learner_per_head(g, l->norm_scale), bias = learner_per_head(g, l->norm_bias);
    return chunk_centred(g, hlo_mul(g, scale, hlo_sub(g, bias, target)));
}

hlo_val chunk_square(hlo_graph *g, const learner *l)
{
    hlo_val scale = learner_per_head(g, l->norm_scale);
    return hlo_mul(g, scale, scale);
}

chunk_norm chunk_norm_of(hlo_graph *g, hlo_val z, hlo_val square, hlo_val pull, hlo_type narrow)
{
    chunk_norm p;
    hlo_val z2 = hlo_mul(g, z, z), variance = rough_mean(g, z2, narrow);
    p.inverse = hlo_rsqrt(g, hlo_add(g, variance, hlo_like(g, variance, LEARNER_EPSILON)));
    p.h = hlo_mul(g, z, p.inverse);
    p.bent = hlo_mul(g, p.inverse, rough_mean(g, hlo_mul(g, z, square), narrow));
    p.bent2 =
        hlo_mul(g, hlo_mul(g, p.inverse, p.inverse), rough_mean(g, hlo_mul(g, z2, square), narrow));
    p.along =
        hlo_add(g, p.bent2, hlo_mul(g, p.inverse, rough_mean(g, hlo_mul(g, z, pull), narrow)));
    return p;
}

hlo_val chunk_gradient(hlo_graph *g, const chunk_norm *p, hlo_val square, hlo_val pull)
{
    hlo_val bend = hlo_sub(g, hlo_mul(g, square, p->h), p->bent);
    hlo_val rest = hlo_sub(g, pull, hlo_mul(g, p->h, p->along));
    return hlo_mul(g, p->inverse, hlo_add(g, bend, rest));
}

static hlo_val doubled(hlo_graph *g, hlo_val x)
{
    return hlo_add(g, x, x);
}

void chunk_slopes(hlo_graph *g, const chunk_norm *p, hlo_val square, hlo_val pull, hlo_type narrow,
                  hlo_val slopes[CHUNK_SLOPES])
{
    hlo_val lean = hlo_mul(g, p->inverse, p->h), bend = hlo_mul(g, square, p->h);
    hlo_val inverse2 = hlo_mul(g, p->inverse, p->inverse);
    hlo_val by = hlo_add(g, doubled(g, p->along), p->bent2);
    hlo_val first = hlo_sub(g, hlo_mul(g, p->h, by), hlo_add(g, doubled(g, bend), pull));
    hlo_val list[CHUNK_SLOPES] = {
        hlo_mul(g, inverse2, hlo_sub(g, square, p->along)),
        hlo_mul(g, p->inverse, chunk_roughly_centred(g, first, narrow)),
        lean,
        hlo_add(g, hlo_mul(g, p->inverse, bend), chunk_gradient(g, p, square, pull)),
    };
    for (int i = 0; i < CHUNK_SLOPES; i++)
        slopes[i] = hlo_convert(g, list[i], narrow);
}

hlo_val chunk_through(hlo_graph *g, const hlo_val slopes[CHUNK_SLOPES], int64_t at, int64_t end,
                      hlo_val a)
{
    hlo_val own[CHUNK_SLOPES];
    for (int k = 0; k < CHUNK_SLOPES; k++)
        own[k] = hlo_convert(g, chunk_rows(g, slopes[k], at, end), hlo_type_of(g, a));
    hlo_type narrow = hlo_type_of(g, slopes[0]);
    hlo_val first = rough_mean(g, hlo_mul(g, own[2], a), narrow);
    hlo_val second = rough_mean(g, hlo_mul(g, own[3], a), narrow);
    return hlo_add(g, chunk_roughly_centred(g, hlo_mul(g, own[0], a), narrow),
                   hlo_sub(g, hlo_mul(g, first, own[1]), hlo_mul(g, second, own[2])));
}

void chunk_norm_inputs(hlo_graph *g, const chunk_norm *p, hlo_val a, hlo_val *d_pull,
                       hlo_val *d_square)
{
    hlo_val lean = hlo_mul(g, p->inverse, p->h);
    *d_pull = hlo_sub(g, hlo_mul(g, p->inverse, a),
                      hlo_mul(g, p->h, learner_mean(g, hlo_mul(g, lean, a), HLO_PRECISION_HIGH)));
    hlo_val sum = hlo_sum(g, hlo_mul(g, p->h, *d_pull), HLO_DIMS(0, 1, 3));
    *d_square = hlo_reshape(g, sum, HLO_DIMS(hlo_dim(g, sum, 0), 1, hlo_dim(g, sum, 1)));
}

/* ---- what goes in ---------------------------------------------------------------------------- */

/* By a product with a matrix that has one 1 a lane, which is exact: it fuses, and padding does not.
 */
hlo_val chunk_with_one(hlo_graph *g, const learner *l, hlo_val x)
{
    if (l->b[0].id == 0)
        return x;
    int64_t d = hlo_dim(g, x, -1);
    hlo_type type = hlo_type_of(g, x);
    hlo_shape wider = HLO_SHAPE(HLO_S32, d, d + 1), lanes = HLO_SHAPE(HLO_S32, d + 1);
    hlo_val same = hlo_compare(g, HLO_EQ, hlo_iota(g, wider, 0), hlo_iota(g, wider, 1));
    hlo_val last = hlo_compare(g, HLO_EQ, hlo_iota(g, lanes, 0), hlo_scalar_int(g, HLO_S32, d));
    x = hlo_einsum_as(g, "nbhti,io->nbhto", x, hlo_convert(g, same, type), type,
                      type == HLO_BF16 ? HLO_PRECISION_DEFAULT : HLO_PRECISION_HIGHEST);
    return hlo_add(g, x, hlo_convert(g, last, type));
}

/* How far each token of a chunk moves the weights, but for its rate: [minis, b]. */
static hlo_val ends_of(hlo_graph *g, hlo_val reach, int64_t minis)
{
    int64_t size = hlo_dim(g, reach, 1);
    hlo_val last = hlo_reshape(g, hlo_slice_dim(g, reach, 0, size - 1, size), HLO_DIMS(size));
    return hlo_broadcast(g, last, HLO_DIMS(minis, size), HLO_DIMS(1));
}

hlo_val chunk_rate(hlo_graph *g, const learner_data *data)
{
    const hlo_shape *s = hlo_shape_of(g, data->rate); /* [N, B, H, S] */
    return hlo_reshape(g, data->rate, HLO_DIMS(s->dims[0], s->dims[1], s->dims[2], s->dims[3], 1));
}

hlo_val chunk_last(hlo_graph *g, const learner_data *data)
{
    int64_t tokens = hlo_dim(g, data->rate, 3);
    hlo_val ends = ends_of(g, data->reach, tokens / data->mini);
    return hlo_mul(g, chunk_rate(g, data), hlo_reshape(g, ends, HLO_DIMS(tokens, 1)));
}

hlo_val chunk_reach(hlo_graph *g, hlo_val reach, int64_t minis, bool own)
{
    int64_t size = hlo_dim(g, reach, 1), tokens = minis * size;
    hlo_dims four = HLO_DIMS(minis, size, minis, size);
    hlo_shape shape = HLO_SHAPE(HLO_S32, minis, size, minis, size);
    hlo_val to = hlo_iota(g, shape, 0), from = hlo_iota(g, shape, 2);
    hlo_val moved = hlo_broadcast(g, ends_of(g, reach, minis), four, HLO_DIMS(2, 3));
    hlo_val zero = hlo_like(g, reach, 0);
    hlo_val same = own ? hlo_broadcast(g, reach, four, HLO_DIMS(1, 3)) : zero;
    same = hlo_select(g, hlo_compare(g, HLO_EQ, to, from), same, zero);
    moved = hlo_select(g, hlo_compare(g, HLO_GT, to, from), moved, same);
    return hlo_reshape(g, moved, HLO_DIMS(tokens, tokens));
}

hlo_val chunk_mix(hlo_graph *g, hlo_val x, hlo_val keys, double one, hlo_val rate, hlo_val reach)
{
    hlo_val mix = chunk_product(g, "nbhti,nbhsi->nbhts", x, keys, hlo_type_of(g, rate));
    const hlo_shape *s = hlo_shape_of(g, rate); /* [N, B, H, S, 1] */
    hlo_val columns =
        hlo_reshape(g, rate, HLO_DIMS(s->dims[0], s->dims[1], s->dims[2], 1, s->dims[3]));
    if (one != 0)
        mix = hlo_add(g, mix, hlo_like(g, mix, one));
    return hlo_convert(g, hlo_mul(g, hlo_mul(g, mix, columns), reach), hlo_type_of(g, keys));
}

hlo_val chunk_joined(hlo_graph *g, const learner_weights *state)
{
    if (state->b[0].id == 0)
        return state->w[0];
    return hlo_concat(g, (hlo_val[]){state->w[0], state->b[0]}, 2, 2);
}

void chunk_split(hlo_graph *g, hlo_val weights, learner_weights *state)
{
    int64_t rows = hlo_dim(g, state->w[0], 2);
    state->w[0] = chunk_rows(g, weights, 0, rows);
    if (state->b[0].id != 0)
        state->b[0] = chunk_rows(g, weights, rows, rows + 1);
}
