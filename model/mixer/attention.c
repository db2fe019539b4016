/*
 * Causal softmax attention with rotary embeddings: the Transformer that TTT is measured against.
 *
 * Scores of all times with all times are never held at once: queries go through in blocks, and
 * backwards each block's scores are computed again. All blocks of a loop see as many keys, for
 * shapes are fixed; so there is not one loop but a few, one after another in time, each with the
 * keys up to its own end. With four of them 5/8 of the square is computed instead of all of it.
 *
 * One token at a time it is written as what the paper calls it: a learner without weights, the
 * Nadaraya-Watson estimator. Training is to store the keys and values; an answer is the average of
 * the stored values, weighted by a kernel of query and key. With the kernel exp(q.k / sqrt(lanes))
 * that equals softmax attention (theorem 2), and tests hold the two forms against each other.
 */
#include "model/network.h"

#include <math.h>

enum { QUERY_BLOCK = 256, BANDS = 4 };

static int64_t groups_of(const ttt_config *c)
{
    return c->n_kv_heads > 0 ? c->n_kv_heads : c->n_heads;
}

/* In the wide type, and scaled there: a scaled query might not fit the type of products. */
static hlo_val scaled_scores(hlo_graph *g, const net_layer *l, const char *spec, hlo_val q,
                             hlo_val k)
{
    double lanes = (double)hlo_dim(g, q, -1);
    hlo_val scores = hlo_einsum_as(g, spec, q, k, net_wide(l->net), HLO_PRECISION_DEFAULT);
    return hlo_mul(g, scores, hlo_like(g, scores, 1 / sqrt(lanes)));
}

static hlo_val masked(hlo_graph *g, hlo_val seen, hlo_val scores)
{
    return hlo_select(g, seen, scores, hlo_like(g, scores, -1e30));
}

/* ---- a sequence ------------------------------------------------------------------------------ */

/* Everything of a layer over time. A group is a key with its value and all queries that share it.
 */
typedef struct attention {
    const net_layer *layer;
    hlo_val q;    /* [batch, groups, heads / groups, time, lanes] */
    hlo_val k, v; /* [batch, groups, time, lanes] */
} attention;

/* n blocks of `size` queries from time `start` on, with the keys up to their end. */
typedef struct band {
    const attention *all;
    int64_t start, n, size;
    hlo_val k, v;
} band;

static int64_t end_of(const band *b)
{
    return b->start + b->n * b->size;
}

/* Which keys a block's queries see: [block, keys], or [batch, 1, 1, block, keys] where documents
 * keep to themselves; `segment` are then the queries', [batch, block]. */
static hlo_val seen_by(hlo_graph *g, const band *b, hlo_val number, hlo_val segment)
{
    int64_t keys = end_of(b);
    hlo_shape square = HLO_SHAPE(HLO_S32, b->size, keys);
    hlo_val first = hlo_add(g, hlo_mul(g, number, hlo_scalar_int(g, HLO_S32, b->size)),
                            hlo_scalar_int(g, HLO_S32, b->start));
    hlo_val query_time = hlo_add(g, hlo_iota(g, square, 0), first);
    hlo_val seen = hlo_compare(g, HLO_GE, query_time, hlo_iota(g, square, 1));
    if (segment.id == 0)
        return seen;
    int64_t batch = hlo_dim(g, segment, 0);
    hlo_val own = hlo_slice_dim(g, b->all->layer->resets.segment, 1, 0, keys);
    own = hlo_compare(g, HLO_EQ, hlo_reshape(g, segment, HLO_DIMS(batch, 1, 1, b->size, 1)),
                      hlo_reshape(g, own, HLO_DIMS(batch, 1, 1, 1, keys)));
    return hlo_and(g, own, seen);
}

/* in[0]: a block of queries [batch, groups, heads / groups, block, lanes]; in[1], with resets:
 * their segments [batch, block]. `number` is the block's in its band. */
static void attend(hlo_graph *g, void *ctx, hlo_val number, const hlo_val *carry, const hlo_val *in,
                   hlo_val *next, hlo_val *out)
{
    const band *b = ctx;
    const net_layer *l = b->all->layer;
    (void)carry, (void)next;
    hlo_val segment = l->resets.segment.id != 0 ? in[1] : (hlo_val){0};
    hlo_val scores = scaled_scores(g, l, "bgrqd,bgkd->bgrqk", in[0], b->k);
    hlo_val weights = hlo_softmax(g, masked(g, seen_by(g, b, number, segment), scores), -1);
    weights = hlo_convert(g, weights, net_compute(l->net));
    out[0] = hlo_einsum(g, "bgrqk,bgkd->bgrqd", weights, b->v);
}

/* The band's queries as [n, batch, groups, heads / groups, size, lanes]. */
static hlo_val query_blocks(hlo_graph *g, const band *b)
{
    hlo_val q = hlo_slice_dim(g, b->all->q, 3, b->start, end_of(b));
    const hlo_shape *s = hlo_shape_of(g, q);
    q = hlo_reshape(g, q, HLO_DIMS(s->dims[0], s->dims[1], s->dims[2], b->n, b->size, s->dims[4]));
    return hlo_transpose(g, q, HLO_DIMS(3, 0, 1, 2, 4, 5));
}

/* Their segments as [n, batch, size]. */
static hlo_val segment_blocks(hlo_graph *g, const band *b)
{
    hlo_val segment = b->all->layer->resets.segment;
    segment = hlo_slice_dim(g, segment, 1, b->start, end_of(b));
    segment = hlo_reshape(g, segment, HLO_DIMS(hlo_dim(g, segment, 0), b->n, b->size));
    return hlo_transpose(g, segment, HLO_DIMS(1, 0, 2));
}

/* Returns [batch, n * size, hidden]. */
static hlo_val attend_band(hlo_graph *g, band *b)
{
    bool resets = b->all->layer->resets.segment.id != 0;
    hlo_val in[2] = {query_blocks(g, b)}, out;
    if (resets)
        in[1] = segment_blocks(g, b);
    b->k = hlo_slice_dim(g, b->all->k, 2, 0, end_of(b));
    b->v = hlo_slice_dim(g, b->all->v, 2, 0, end_of(b));
    hlo_scan(g, attend, b, NULL, 0, in, resets ? 2 : 1, &out, 1,
             &(hlo_scan_options){.save = HLO_SAVE_MARKED});
    const hlo_shape *s = hlo_shape_of(g, out);
    int64_t batch = s->dims[1], hidden = s->dims[2] * s->dims[3] * s->dims[5];
    return hlo_reshape(g, hlo_transpose(g, out, HLO_DIMS(1, 0, 4, 2, 3, 5)),
                       HLO_DIMS(batch, b->n * b->size, hidden));
}

/* Whole blocks in bands of about as many, then what is left over as a shorter block. */
static hlo_val attend_all(hlo_graph *g, const attention *a)
{
    int64_t time = hlo_dim(g, a->q, 3), n = time / QUERY_BLOCK, rest = time % QUERY_BLOCK;
    int64_t bands = n < BANDS ? n : BANDS;
    hlo_val parts[BANDS + 1];
    int count = 0;
    for (int64_t i = 0; i < bands; i++) {
        int64_t first = n * i / bands, last = n * (i + 1) / bands;
        band b = {.all = a, .start = first * QUERY_BLOCK, .n = last - first, .size = QUERY_BLOCK};
        parts[count++] = attend_band(g, &b);
    }
    if (rest > 0) {
        band b = {.all = a, .start = n * QUERY_BLOCK, .n = 1, .size = rest};
        parts[count++] = attend_band(g, &b);
    }
    return count == 1 ? parts[0] : hlo_concat(g, parts, count, 1);
}

/* Heads [batch, …, heads, lanes] as [batch, …, groups, heads / groups, lanes]. */
static hlo_val grouped(hlo_graph *g, const ttt_config *c, hlo_val q)
{
    const hlo_shape *s = hlo_shape_of(g, q);
    int64_t groups = groups_of(c), share = c->n_heads / groups, lanes = hlo_dim(g, q, -1);
    return hlo_reshape(g, q,
                       s->rank == 4 ? HLO_DIMS(s->dims[0], s->dims[1], groups, share, lanes)
                                    : HLO_DIMS(s->dims[0], groups, share, lanes));
}

static hlo_val from_the_start(hlo_graph *g, const net_layer *l, const mixer_heads *h)
{
    hlo_val q = grouped(g, l->net->config, h->q);
    attention a = {
        .layer = l,
        .q = hlo_transpose(g, q, HLO_DIMS(0, 2, 3, 1, 4)),
        .k = hlo_transpose(g, h->k, HLO_DIMS(0, 2, 1, 3)),
        .v = hlo_transpose(g, h->v, HLO_DIMS(0, 2, 1, 3)),
    };
    return net_dear(g, l->net, attend_all(g, &a));
}

/* ---- a sequence that goes on ----------------------------------------------------------------- */

/* Each sequence's `now` [batch, times, groups, lanes] goes to its own position in `stored` [batch,
 * context, groups, lanes]: updates in place, one a sequence, where a select would write all of it
 * anew. */
static hlo_val with_stored(hlo_graph *g, hlo_val stored, hlo_val position, hlo_val now)
{
    int64_t batch = hlo_dim(g, now, 0);
    hlo_val zero = hlo_scalar_int(g, HLO_S32, 0);
    now = hlo_convert(g, now, hlo_type_of(g, stored));
    for (int64_t i = 0; i < batch; i++) {
        hlo_val place = hlo_reshape(g, hlo_slice_dim(g, position, 0, i, i + 1), HLO_NO_DIMS);
        hlo_val starts[] = {hlo_scalar_int(g, HLO_S32, i), place, zero, zero};
        stored = hlo_dynamic_update(g, stored, hlo_slice_dim(g, now, 0, i, i + 1), starts);
    }
    return stored;
}

/* All keys and values so far; as products take them. */
typedef struct memory {
    const net_layer *layer;
    hlo_val keys, values; /* [batch, context, groups, lanes] */
} memory;

/* in[0]: a block of queries [batch, groups, share, block, lanes]; in[1]: their positions [batch,
 * block]. */
static void attend_memory(hlo_graph *g, void *ctx, hlo_val number, const hlo_val *carry,
                          const hlo_val *in, hlo_val *next, hlo_val *out)
{
    const memory *m = ctx;
    int64_t batch = hlo_dim(g, in[1], 0), size = hlo_dim(g, in[1], 1);
    int64_t context = hlo_dim(g, m->keys, 1);
    (void)number, (void)carry, (void)next;
    hlo_val scores = scaled_scores(g, m->layer, "bgrqd,bkgd->bgrqk", in[0], m->keys);
    hlo_val time = hlo_iota(g, HLO_SHAPE(HLO_S32, batch, 1, 1, size, context), 4);
    hlo_val seen =
        hlo_compare(g, HLO_LE, time, hlo_reshape(g, in[1], HLO_DIMS(batch, 1, 1, size, 1)));
    hlo_val weights = hlo_softmax(g, masked(g, seen, scores), -1);
    weights = hlo_convert(g, weights, net_compute(m->layer->net));
    out[0] = hlo_einsum(g, "bgrqk,bkgd->bqgrd", weights, m->values);
}

enum { MEMORY_BLOCK = 64 }; /* queries at once: they see the whole memory */

/* q [batch, time, groups, share, lanes] at `times` [batch, time]; returns [batch, time, hidden]. */
static hlo_val from_memory(hlo_graph *g, memory *m, hlo_val q, hlo_val times)
{
    const hlo_shape *s = hlo_shape_of(g, q);
    int64_t batch = s->dims[0], time = s->dims[1], groups = s->dims[2], share = s->dims[3];
    int64_t lanes = s->dims[4], hidden = groups * share * lanes;
    hlo_val parts[2];
    int count = 0;
    for (int rest = 0; rest < 2; rest++) {
        int64_t start = rest ? time / MEMORY_BLOCK * MEMORY_BLOCK : 0;
        int64_t size = rest ? time % MEMORY_BLOCK : MEMORY_BLOCK, n = rest ? 1 : time / size;
        if (size == 0 || n == 0)
            continue;
        hlo_val in[2] = {hlo_slice_dim(g, q, 1, start, start + n * size),
                         hlo_slice_dim(g, times, 1, start, start + n * size)};
        in[0] = hlo_reshape(g, in[0], HLO_DIMS(batch, n, size, groups, share, lanes));
        in[0] = hlo_transpose(g, in[0], HLO_DIMS(1, 0, 3, 4, 2, 5));
        in[1] =
            hlo_transpose(g, hlo_reshape(g, in[1], HLO_DIMS(batch, n, size)), HLO_DIMS(1, 0, 2));
        hlo_val z; /* [n, batch, size, groups, share, lanes] */
        hlo_scan(g, attend_memory, m, NULL, 0, in, 2, &z, 1, NULL);
        parts[count++] = hlo_reshape(g, hlo_transpose(g, z, HLO_DIMS(1, 0, 2, 3, 4, 5)),
                                     HLO_DIMS(batch, n * size, hidden));
    }
    return count == 1 ? parts[0] : hlo_concat(g, parts, count, 1);
}

static hlo_val going_on(hlo_graph *g, const net_layer *l, const mixer_heads *h, hlo_val position,
                        hlo_val times, hlo_val *state)
{
    hlo_type compute = net_compute(l->net);
    state[0] = with_stored(g, state[0], position, h->k);
    state[1] = with_stored(g, state[1], position, h->v);
    memory m = {l, hlo_convert(g, state[0], compute), hlo_convert(g, state[1], compute)};
    return from_memory(g, &m, grouped(g, l->net->config, h->q), times);
}

hlo_val mixer_attention(hlo_graph *g, const net_layer *l, hlo_val x, hlo_val position,
                        hlo_val *state)
{
    bool tail = state != NULL && l->net->config->share_qk;
    mixer_heads h = mixer_project(g, l, x, tail ? state++ : NULL);
    hlo_val times = mixer_times(g, hlo_dim(g, x, 1), position);
    h.q = mixer_rotate(g, l, h.q, times);
    h.k = mixer_rotate(g, l, h.k, times);
    hlo_scope_push(g, "attend");
    hlo_val z =
        state == NULL ? from_the_start(g, l, &h) : going_on(g, l, &h, position, times, state);
    hlo_scope_pop(g);
    return mixer_output(g, l, x, z);
}

/* ---- one token ------------------------------------------------------------------------------- */

/* The state: what the shared projection's convolutions look back on, if they are there; keys and
 * values of all tokens so far. */
void mixer_attention_state(net_state_table *table, const ttt_config *c)
{
    hlo_type type = net_state_type(table);
    hlo_shape stored =
        HLO_SHAPE(type, net_state_context(table), groups_of(c), c->hidden_size / c->n_heads);
    if (c->share_qk)
        net_state_array(table, "qk_tail", HLO_SHAPE(type, c->conv_width - 1, c->hidden_size));
    net_state_array(table, "keys", stored);
    net_state_array(table, "values", stored);
}

/* The kernel between q [batch, groups, share, lanes] and all stored keys, up to a factor that all
 * of a query's have and that keeps it from overflowing: [batch, groups, share, context]. */
static hlo_val kernel(hlo_graph *g, const net_layer *l, hlo_val q, hlo_val keys, hlo_val position)
{
    int64_t batch = hlo_dim(g, keys, 0), context = hlo_dim(g, keys, 1);
    hlo_val scores = scaled_scores(g, l, "bgrd,bkgd->bgrk", q, keys);
    hlo_val seen = hlo_compare(g, HLO_LE, hlo_iota(g, HLO_SHAPE(HLO_S32, batch, context), 1),
                               hlo_reshape(g, position, HLO_DIMS(batch, 1)));
    scores = masked(g, hlo_reshape(g, seen, HLO_DIMS(batch, 1, 1, context)), scores);
    return hlo_exp(g, hlo_sub(g, scores, hlo_reduce_keep(g, HLO_REDUCE_MAX, scores, HLO_DIMS(3))));
}

/* [batch, groups, lanes] as [batch, 1, groups, lanes]. */
static hlo_val one_time(hlo_graph *g, hlo_val x)
{
    const hlo_shape *s = hlo_shape_of(g, x);
    return hlo_reshape(g, x, HLO_DIMS(s->dims[0], 1, s->dims[1], s->dims[2]));
}

hlo_val mixer_attention_step(hlo_graph *g, const net_layer *l, hlo_val x, hlo_val position,
                             hlo_val *state)
{
    const ttt_config *c = l->net->config;
    hlo_type compute = net_compute(l->net), wide = net_wide(l->net);
    mixer_heads h = mixer_project_step(g, l, x, c->share_qk ? state++ : NULL);
    hlo_val q = grouped(g, c, mixer_rotate(g, l, h.q, position));
    hlo_scope_push(g, "attend");
    state[0] = with_stored(g, state[0], position, one_time(g, mixer_rotate(g, l, h.k, position)));
    state[1] = with_stored(g, state[1], position, one_time(g, h.v));
    hlo_val near = kernel(g, l, q, hlo_convert(g, state[0], compute), position);
    hlo_val sum = hlo_einsum_as(g, "bgrk,bkgd->bgrd", hlo_convert(g, near, compute),
                                hlo_convert(g, state[1], compute), wide, HLO_PRECISION_DEFAULT);
    hlo_val z = hlo_div(g, sum, hlo_reduce_keep(g, HLO_REDUCE_ADD, near, HLO_DIMS(3)));
    hlo_scope_pop(g);
    z = hlo_reshape(g, z, HLO_DIMS(hlo_dim(g, x, 0), c->hidden_size));
    return mixer_output(g, l, x, hlo_convert(g, z, compute));
}
