/*
 * Causal softmax attention with rotary embeddings: the Transformer that TTT is measured against.
 *
 * Scores of all times with all times are never held at once: queries go through in blocks, each
 * against all keys, and backwards each block's scores are computed again.
 */
#include "model/network.h"

#include <math.h>

enum { QUERY_BLOCK = 256 };

/* What a block of queries sees from outside the loop: keys and values [batch, time, heads, lanes].
 */
typedef struct attention_context {
    hlo_val k, v;
    int64_t block;
} attention_context;

/* in[0]: a block of queries [batch, block, heads, lanes]; `number` is the block's. */
static void attend(hlo_graph *g, void *ctx, hlo_val number, const hlo_val *carry, const hlo_val *in,
                   hlo_val *next, hlo_val *out)
{
    const attention_context *a = ctx;
    int64_t block = hlo_dim(g, in[0], 1), time = hlo_dim(g, a->k, 1);
    (void)carry, (void)next;
    double scale = 1 / sqrt((double)hlo_dim(g, in[0], 3));
    hlo_val q = hlo_mul(g, in[0], hlo_like(g, in[0], scale));
    hlo_val scores = hlo_convert(g, hlo_einsum(g, "bqhd,bkhd->bhqk", q, a->k), HLO_F32);
    hlo_shape square = HLO_SHAPE(HLO_S32, block, time);
    hlo_val first = hlo_mul(g, number, hlo_scalar_int(g, HLO_S32, a->block));
    hlo_val query_time = hlo_add(g, hlo_iota(g, square, 0), first);
    hlo_val seen = hlo_compare(g, HLO_GE, query_time, hlo_iota(g, square, 1));
    hlo_val masked = hlo_select(g, seen, scores, hlo_like(g, scores, -1e30));
    hlo_val weights = hlo_convert(g, hlo_softmax(g, masked, -1), hlo_type_of(g, a->v));
    out[0] = hlo_einsum(g, "bhqk,bkhd->bqhd", weights, a->v);
}

/* Queries in blocks along a new first dimension; what is left over is a block of its own. */
static hlo_val attend_all(hlo_graph *g, hlo_val q, attention_context *a)
{
    const hlo_shape *s = hlo_shape_of(g, q);
    int64_t batch = s->dims[0], time = s->dims[1], heads = s->dims[2], lanes = s->dims[3];
    int64_t n = time / QUERY_BLOCK, rest = time % QUERY_BLOCK;
    hlo_val parts[2];
    int count = 0;
    a->block = QUERY_BLOCK;
    if (n > 0) {
        hlo_val blocks = hlo_reshape(g, hlo_slice_dim(g, q, 1, 0, n * QUERY_BLOCK),
                                     HLO_DIMS(batch, n, QUERY_BLOCK, heads, lanes));
        blocks = hlo_transpose(g, blocks, HLO_DIMS(1, 0, 2, 3, 4));
        hlo_scan(g, attend, a, NULL, 0, &blocks, 1, &parts[0], 1,
                 &(hlo_scan_options){.save = HLO_SAVE_MARKED});
        parts[0] = hlo_reshape(g, hlo_transpose(g, parts[0], HLO_DIMS(1, 0, 2, 3, 4)),
                               HLO_DIMS(batch, n * QUERY_BLOCK, heads, lanes));
        count = 1;
    }
    if (rest > 0) {
        hlo_val tail = hlo_slice_dim(g, q, 1, n * QUERY_BLOCK, time);
        attend(g, a, hlo_scalar_int(g, HLO_S32, n), NULL, &tail, NULL, &parts[count]);
        count++;
    }
    return count == 1 ? parts[0] : hlo_concat(g, parts, 2, 1);
}

/* Keys or values of grouped heads, repeated for each head of their group. */
static hlo_val repeated(hlo_graph *g, hlo_val x, int64_t heads)
{
    const hlo_shape *s = hlo_shape_of(g, x);
    int64_t batch = s->dims[0], time = s->dims[1], groups = s->dims[2], lanes = s->dims[3];
    if (groups == heads)
        return x;
    hlo_val wide = hlo_broadcast(g, x, HLO_DIMS(batch, time, groups, heads / groups, lanes),
                                 HLO_DIMS(0, 1, 2, 4));
    return hlo_reshape(g, wide, HLO_DIMS(batch, time, heads, lanes));
}

hlo_val mixer_attention(hlo_graph *g, const net_layer *l, hlo_val x)
{
    const ttt_config *c = l->net->config;
    mixer_heads h = mixer_project(g, l, x);
    hlo_val time = hlo_iota(g, HLO_SHAPE(HLO_S32, hlo_dim(g, x, 1)), 0);
    hlo_val q = hlo_rope(g, h.q, time, c->rope_theta, true);
    attention_context a = {
        .k = repeated(g, hlo_rope(g, h.k, time, c->rope_theta, true), c->n_heads),
        .v = repeated(g, h.v, c->n_heads),
    };
    hlo_val z = attend_all(g, q, &a);
    z = hlo_reshape(g, z, HLO_DIMS(hlo_dim(g, x, 0), hlo_dim(g, x, 1), c->hidden_size));
    return mixer_output(g, l, x, z);
}
