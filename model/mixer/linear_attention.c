/*
 * Causal linear attention: what TTT becomes when its learner is linear and takes one step of batch
 * gradient descent from zero (theorem 1).
 *
 *     z_t = sum over s <= t of (phi(q_t) . phi(k_s)) v_s
 *
 * with phi the identity, or elu(x) + 1, whose answers are divided by the sum of the weights. The
 * sum of the k_s v_s^T is all that a sequence needs of its past, so time goes through in chunks:
 * scores within a chunk, and the sum for all before it.
 */
#include "model/network.h"

enum { CHUNK = 64 };

static bool normalised(const net_layer *l)
{
    return l->net->config->features == TTT_FEATURES_ELU;
}

/* phi of x, rotated. elu(x) + 1 = max(x, 0) + exp(min(x, 0)), which overflows nowhere. */
static hlo_val features(hlo_graph *g, const net_layer *l, hlo_val x, hlo_val position)
{
    x = mixer_rotate(g, l, x, position);
    if (!normalised(l))
        return x;
    hlo_val wide = hlo_convert(g, x, net_wide(l->net)), zero = hlo_like(g, wide, 0);
    hlo_val phi = hlo_add(g, hlo_max(g, wide, zero), hlo_exp(g, hlo_min(g, wide, zero)));
    return hlo_convert(g, phi, net_compute(l->net));
}

/* ---- a sequence ------------------------------------------------------------------------------ */

/* A product whose operands are as products take them, and whose result is not rounded. */
static hlo_val product(hlo_graph *g, const net_layer *l, const char *spec, hlo_val a, hlo_val b)
{
    hlo_type compute = net_compute(l->net);
    return hlo_einsum_as(g, spec, hlo_convert(g, a, compute), hlo_convert(g, b, compute),
                         net_wide(l->net), HLO_PRECISION_DEFAULT);
}

/* x itself when pred is null. */
static hlo_val zero_unless(hlo_graph *g, hlo_val pred, hlo_val x)
{
    return pred.id == 0 ? x : hlo_select(g, pred, x, hlo_like(g, x, 0));
}

/* Which part of a chunk sees which. Without resets: the scores are causal, and the rest is null. */
typedef struct sight {
    hlo_val scores; /* a query a key: [size, size], or [batch, 1, size, size] */
    hlo_val past;   /* a query what was before the chunk: [batch, 1, size, 1] */
    hlo_val key;    /* a key is of the chunk's last document: [batch, 1, size, 1] */
    hlo_val state;  /* that document started before the chunk: [batch, 1, 1, 1] */
} sight;

/* `here` [batch, size] has where documents start in the chunk, or is null. */
static sight sight_of(hlo_graph *g, int64_t size, hlo_val here)
{
    hlo_shape square = HLO_SHAPE(HLO_S32, size, size);
    sight s = {.scores = hlo_compare(g, HLO_GE, hlo_iota(g, square, 0), hlo_iota(g, square, 1))};
    if (here.id == 0)
        return s;
    int64_t batch = hlo_dim(g, here, 0);
    hlo_val since = hlo_cumsum(g, hlo_convert(g, here, HLO_S32), 1), zero = hlo_like(g, since, 0);
    hlo_val row = hlo_reshape(g, since, HLO_DIMS(batch, 1, size, 1));
    hlo_val column = hlo_reshape(g, since, HLO_DIMS(batch, 1, 1, size));
    hlo_val last = hlo_slice_dim(g, row, 2, size - 1, size);
    s.scores = hlo_and(g, hlo_compare(g, HLO_EQ, row, column), s.scores);
    s.past = hlo_compare(g, HLO_EQ, row, zero);
    s.key = hlo_compare(g, HLO_EQ, row, last);
    s.state = hlo_compare(g, HLO_EQ, last, zero);
    return s;
}

static hlo_val row_sums(hlo_graph *g, hlo_val x)
{
    return hlo_reduce_keep(g, HLO_REDUCE_ADD, x, HLO_DIMS(3));
}

/* carry[0]: the sum of k v^T [batch, heads, lanes, lanes]; carry[1], when normalised: the sum of k
 * [batch, heads, 1, lanes]. in: q, k, v [batch, heads, size, lanes] and, with resets, where
 * documents start [batch, size]. out[0]: the answers. */
static void chunk(hlo_graph *g, void *ctx, hlo_val number, const hlo_val *carry, const hlo_val *in,
                  hlo_val *next, hlo_val *out)
{
    const net_layer *l = ctx;
    int n_sums = normalised(l) ? 2 : 1;
    hlo_val q = in[0], k = in[1], v = in[2], sums[2];
    (void)number;
    sight s = sight_of(g, hlo_dim(g, q, 2), l->resets.here.id != 0 ? in[3] : (hlo_val){0});
    hlo_val scores = zero_unless(g, s.scores, product(g, l, "bhqd,bhkd->bhqk", q, k));
    for (int i = 0; i < n_sums; i++)
        sums[i] = zero_unless(g, s.state, carry[i]);
    q = zero_unless(g, s.past, q);
    k = zero_unless(g, s.key, k);
    hlo_val z = hlo_add(g, product(g, l, "bhqk,bhkd->bhqd", scores, v),
                        product(g, l, "bhqi,bhio->bhqo", q, carry[0]));
    next[0] = hlo_add(g, sums[0], product(g, l, "bhki,bhko->bhio", k, v));
    if (normalised(l)) {
        hlo_type wide = net_wide(l->net);
        hlo_val past = hlo_mul(g, hlo_convert(g, q, wide), carry[1]);
        z = hlo_div(g, z, hlo_add(g, row_sums(g, scores), row_sums(g, past)));
        hlo_val keys = hlo_reduce_keep(g, HLO_REDUCE_ADD, hlo_convert(g, k, wide), HLO_DIMS(2));
        next[1] = hlo_add(g, sums[1], keys);
    }
    out[0] = hlo_convert(g, z, net_compute(l->net));
}

/* Returns [batch, n * size, hidden]; the state moves on. */
static hlo_val attend_part(hlo_graph *g, const net_layer *l, const mixer_pieces *p,
                           const mixer_heads *h, hlo_val *state)
{
    bool resets = l->resets.here.id != 0;
    hlo_val in[4] = {mixer_cut(g, p, h->q), mixer_cut(g, p, h->k), mixer_cut(g, p, h->v)}, z;
    if (resets)
        in[3] = mixer_cut_marks(g, p, l->resets.here);
    hlo_scan(g, chunk, (void *)l, state, normalised(l) ? 2 : 1, in, resets ? 4 : 3, &z, 1,
             &(hlo_scan_options){.save = HLO_SAVE_MARKED});
    return mixer_join(g, p, z);
}

/* Whole chunks, then what is left over as a shorter one; the sums move on. */
static hlo_val attend(hlo_graph *g, const net_layer *l, const mixer_heads *h, hlo_val sums[2])
{
    int64_t time = hlo_dim(g, h->q, 1);
    mixer_pieces whole = {0, time / CHUNK, CHUNK}, rest = {time / CHUNK * CHUNK, 1, time % CHUNK};
    hlo_val parts[2];
    int count = 0;
    if (whole.n > 0)
        parts[count++] = attend_part(g, l, &whole, h, sums);
    if (rest.size > 0)
        parts[count++] = attend_part(g, l, &rest, h, sums);
    return count == 1 ? parts[0] : hlo_concat(g, parts, count, 1);
}

/* Sums of a state, of which the second lacks a dimension, as the chunks carry them; of a NULL one,
 * zeros. */
static void get_sums(hlo_graph *g, const net_layer *l, int64_t batch, const hlo_val *state,
                     hlo_val sums[2])
{
    const ttt_config *c = l->net->config;
    int64_t heads = c->n_heads, lanes = c->hidden_size / heads;
    hlo_shape shapes[2] = {HLO_SHAPE(net_wide(l->net), batch, heads, lanes, lanes),
                           HLO_SHAPE(net_wide(l->net), batch, heads, 1, lanes)};
    for (int i = 0; i < (normalised(l) ? 2 : 1); i++)
        sums[i] = state == NULL ? hlo_full(g, shapes[i], 0)
                                : hlo_reshape(g, hlo_convert(g, state[i], shapes[i].type),
                                              HLO_DIMS(batch, heads, i == 0 ? lanes : 1, lanes));
}

static void put_sums(hlo_graph *g, const net_layer *l, const hlo_val sums[2], hlo_val *state)
{
    for (int i = 0; i < (normalised(l) ? 2 : 1); i++) {
        const hlo_shape *s = hlo_shape_of(g, state[i]);
        hlo_dims dims = {.n = s->rank};
        for (int d = 0; d < s->rank; d++)
            dims.d[d] = s->dims[d];
        state[i] = hlo_convert(g, hlo_reshape(g, sums[i], dims), s->type);
    }
}

hlo_val mixer_linear_attention(hlo_graph *g, const net_layer *l, hlo_val x, hlo_val position,
                               hlo_val *state)
{
    bool tail = state != NULL && l->net->config->share_qk;
    mixer_heads h = mixer_project(g, l, x, tail ? state++ : NULL);
    hlo_val time = mixer_times(g, hlo_dim(g, x, 1), position), sums[2];
    h.q = features(g, l, h.q, time);
    h.k = features(g, l, h.k, time);
    get_sums(g, l, hlo_dim(g, x, 0), state, sums);
    hlo_scope_push(g, "attend");
    hlo_val z = net_dear(g, l->net, attend(g, l, &h, sums));
    hlo_scope_pop(g);
    if (state != NULL)
        put_sums(g, l, sums, state);
    return mixer_output(g, l, x, z);
}

/* ---- one token ------------------------------------------------------------------------------- */

/* The state: what the shared projection's convolutions look back on, if they are there; the sum of
 * k v^T; the sum of k, when normalised. */
void mixer_linear_attention_state(net_state_table *table, const ttt_config *c)
{
    hlo_type type = net_state_type(table);
    int64_t heads = c->n_heads, lanes = c->hidden_size / heads;
    if (c->share_qk)
        net_state_array(table, "qk_tail", HLO_SHAPE(type, c->conv_width - 1, c->hidden_size));
    net_state_array(table, "sum", HLO_SHAPE(type, heads, lanes, lanes));
    if (c->features == TTT_FEATURES_ELU)
        net_state_array(table, "key_sum", HLO_SHAPE(type, heads, lanes));
}

/* *sum + x, in the wide type; *sum keeps its own. */
static hlo_val added(hlo_graph *g, hlo_val *sum, hlo_val x)
{
    hlo_val now = hlo_add(g, hlo_convert(g, *sum, hlo_type_of(g, x)), x);
    *sum = hlo_convert(g, now, hlo_type_of(g, *sum));
    return now;
}

hlo_val mixer_linear_attention_step(hlo_graph *g, const net_layer *l, hlo_val x, hlo_val position,
                                    hlo_val *state)
{
    const ttt_config *c = l->net->config;
    hlo_type wide = net_wide(l->net);
    mixer_heads h = mixer_project_step(g, l, x, c->share_qk ? state++ : NULL);
    hlo_val q = hlo_convert(g, features(g, l, h.q, position), wide);
    hlo_val k = hlo_convert(g, features(g, l, h.k, position), wide);
    hlo_scope_push(g, "attend");
    hlo_val outer = hlo_einsum(g, "bhi,bho->bhio", k, hlo_convert(g, h.v, wide));
    hlo_val z = hlo_einsum(g, "bhi,bhio->bho", q, added(g, &state[0], outer));
    if (normalised(l)) {
        hlo_val weight = hlo_mul(g, q, added(g, &state[1], k));
        z = hlo_div(g, z, hlo_reduce_keep(g, HLO_REDUCE_ADD, weight, HLO_DIMS(2)));
    }
    hlo_scope_pop(g);
    z = hlo_reshape(g, z, HLO_DIMS(hlo_dim(g, x, 0), c->hidden_size));
    return mixer_output(g, l, x, hlo_convert(g, z, net_compute(l->net)));
}
