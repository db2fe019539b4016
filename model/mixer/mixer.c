/* What the mixers with heads share: the way in and the way out. */
#include "model/network.h"

#include <math.h>
#include <stdio.h>

hlo_val mixer_param(hlo_graph *g, const net_layer *l, const char *name)
{
    char full[96];
    snprintf(full, sizeof full, "seq_modeling_block.%s", name);
    return net_layer_param(g, l, full);
}

hlo_val mixer_weight(hlo_graph *g, const net_layer *l, const char *name)
{
    return hlo_convert(g, mixer_param(g, l, name), net_compute(l->net));
}

/* x [..., hidden] as [..., heads, lanes]. */
static hlo_val heads_of(hlo_graph *g, const net_layer *l, hlo_val x)
{
    const hlo_shape *s = hlo_shape_of(g, x);
    const ttt_config *c = l->net->config;
    int64_t lanes = c->hidden_size / c->n_heads;
    hlo_dims dims = {.n = s->rank + 1};
    if (s->rank == 0) /* of a graph that has failed */
        return x;
    for (int i = 0; i < s->rank - 1; i++)
        dims.d[i] = s->dims[i];
    dims.d[dims.n - 2] = hlo_dim(g, x, -1) / lanes;
    dims.d[dims.n - 1] = lanes;
    return net_shard(g, l->net, hlo_reshape(g, x, dims), (int)dims.n - 2);
}

hlo_val mixer_product(hlo_graph *g, const net_layer *l, hlo_val x, const char *name, hlo_type out)
{
    char full[96];
    snprintf(full, sizeof full, "seq_modeling_block.%s", name);
    return net_layer_product(g, l, x, full, out);
}

static hlo_val projected(hlo_graph *g, const net_layer *l, const char *name, hlo_val x)
{
    return net_dear(g, l->net, mixer_product(g, l, x, name, net_compute(l->net)));
}

/* The convolutions' names, of what the shared projection becomes. */
static const char conv_q[] = "seq_modeling_block.conv_q", conv_k[] = "seq_modeling_block.conv_k";

mixer_heads mixer_project(hlo_graph *g, const net_layer *l, hlo_val x, hlo_val *tail)
{
    bool shared = l->net->config->share_qk;
    hlo_val q = projected(g, l, "q_proj.weight", x);
    hlo_val same = tail == NULL ? (hlo_val){0} : *tail; /* both look back on the same */
    hlo_val k = shared ? net_causal_conv(g, l, conv_k, q, tail == NULL ? NULL : &same)
                       : projected(g, l, "k_proj.weight", x);
    if (shared)
        q = net_causal_conv(g, l, conv_q, q, tail);
    if (shared &&
        l->net->row_sums_as_matmul) { /* convolutions by rows, whatever comes after takes */
        q = hlo_row_major(g, q);
        k = hlo_row_major(g, k);
    }
    /* Not kept, as the gate in mixer_output is not. */
    hlo_val v = mixer_product(g, l, x, "v_proj.weight", net_compute(l->net));
    return (mixer_heads){heads_of(g, l, q), heads_of(g, l, k), heads_of(g, l, v)};
}

mixer_heads mixer_project_step(hlo_graph *g, const net_layer *l, hlo_val x, hlo_val *tail)
{
    bool shared = l->net->config->share_qk;
    hlo_val q = projected(g, l, "q_proj.weight", x), k;
    if (shared) { /* both look back on the same */
        hlo_val same = *tail;
        k = net_causal_conv_step(g, l, conv_k, q, &same);
        q = net_causal_conv_step(g, l, conv_q, q, tail);
    } else {
        k = projected(g, l, "k_proj.weight", x);
    }
    hlo_val v = projected(g, l, "v_proj.weight", x);
    return (mixer_heads){heads_of(g, l, q), heads_of(g, l, k), heads_of(g, l, v)};
}

hlo_val mixer_angles(hlo_graph *g, const net_layer *l, hlo_val position)
{
    const ttt_config *c = l->net->config;
    const hlo_shape *s = hlo_shape_of(g, position);
    hlo_type wide = net_wide(l->net);
    int64_t lanes = c->hidden_size / c->n_heads;
    hlo_dims column = {.n = s->rank + 1};
    for (int i = 0; i < s->rank; i++)
        column.d[i] = s->dims[i];
    column.d[s->rank] = 1;
    hlo_val pair = hlo_iota(g, HLO_SHAPE(wide, lanes), 0);
    pair = hlo_floor(g, hlo_mul(g, pair, hlo_like(g, pair, 0.5)));
    double slower = -2 * log(c->rope_theta) / (double)lanes; /* from pair to pair */
    hlo_val frequency = hlo_exp(g, hlo_mul(g, pair, hlo_like(g, pair, slower)));
    return hlo_mul(g, hlo_reshape(g, hlo_convert(g, position, wide), column), frequency);
}

/* The matrix that makes (-b, a) of every pair of lanes (a, b). */
static hlo_val quarter_turn(hlo_graph *g, int64_t lanes, hlo_type type)
{
    hlo_shape square = HLO_SHAPE(HLO_S32, lanes, lanes);
    hlo_val from = hlo_iota(g, square, 0), to = hlo_iota(g, square, 1), one = hlo_like(g, from, 1);
    hlo_val partners = hlo_compare(g, HLO_EQ, to, hlo_xor(g, from, one));
    hlo_val sign = hlo_select(g, hlo_compare(g, HLO_GT, to, from), one, hlo_like(g, one, -1));
    return hlo_convert(g, hlo_select(g, partners, sign, hlo_like(g, sign, 0)), type);
}

/* Lanes change places by a product, which has one term a lane and is exact. */
hlo_val mixer_turn(hlo_graph *g, const net_layer *l, hlo_val x, hlo_val angle)
{
    hlo_type type = hlo_type_of(g, x), wide = net_wide(l->net);
    hlo_val turned =
        hlo_einsum_as(g, hlo_rank(g, x) == 5 ? "nbhti,io->nbhto" : "bthi,io->btho", x,
                      quarter_turn(g, hlo_dim(g, x, -1), type), wide,
                      type == HLO_BF16 ? HLO_PRECISION_DEFAULT : HLO_PRECISION_HIGHEST);
    hlo_val y = hlo_add(g, hlo_mul(g, hlo_convert(g, x, wide), hlo_cos(g, angle)),
                        hlo_mul(g, turned, hlo_sin(g, angle)));
    return hlo_convert(g, y, type);
}

hlo_val mixer_rotate(hlo_graph *g, const net_layer *l, hlo_val x, hlo_val position)
{
    double theta = l->net->config->rope_theta;
    if (theta == 0)
        return x;
    if (!l->net->row_sums_as_matmul || hlo_rank(g, x) != 4)
        return hlo_rope(g, x, position, theta, true);
    hlo_val angle = mixer_angles(g, l, position); /* [(batch,) time, lanes] */
    const hlo_shape *s = hlo_shape_of(g, angle);
    return mixer_turn(g, l, x,
                      s->rank == 2
                          ? hlo_reshape(g, angle, HLO_DIMS(s->dims[0], 1, s->dims[1]))
                          : hlo_reshape(g, angle, HLO_DIMS(s->dims[0], s->dims[1], 1, s->dims[2])));
}

hlo_val mixer_times(hlo_graph *g, int64_t time, hlo_val position)
{
    if (position.id == 0)
        return hlo_iota(g, HLO_SHAPE(HLO_S32, time), 0);
    int64_t batch = hlo_dim(g, position, 0);
    return hlo_add(g, hlo_iota(g, HLO_SHAPE(HLO_S32, batch, time), 1),
                   hlo_reshape(g, position, HLO_DIMS(batch, 1)));
}

static hlo_val stretch(hlo_graph *g, const mixer_pieces *p, hlo_val x)
{
    return hlo_slice_dim(g, x, 1, p->start, p->start + p->n * p->size);
}

hlo_val mixer_cut(hlo_graph *g, const mixer_pieces *p, hlo_val x)
{
    const hlo_shape *s = hlo_shape_of(g, x);
    hlo_val pieces = hlo_reshape(g, stretch(g, p, x),
                                 HLO_DIMS(s->dims[0], p->n, p->size, s->dims[2], s->dims[3]));
    return hlo_transpose(g, pieces, HLO_DIMS(1, 0, 3, 2, 4));
}

hlo_val mixer_cut_marks(hlo_graph *g, const mixer_pieces *p, hlo_val marks)
{
    hlo_val pieces =
        hlo_reshape(g, stretch(g, p, marks), HLO_DIMS(hlo_dim(g, marks, 0), p->n, p->size));
    return hlo_transpose(g, pieces, HLO_DIMS(1, 0, 2));
}

hlo_val mixer_join(hlo_graph *g, const mixer_pieces *p, hlo_val x)
{
    const hlo_shape *s = hlo_shape_of(g, x);
    return hlo_reshape(g, hlo_transpose(g, x, HLO_DIMS(1, 0, 3, 2, 4)),
                       HLO_DIMS(s->dims[1], p->n * p->size, s->dims[2] * s->dims[4]));
}

hlo_val mixer_output(hlo_graph *g, const net_layer *l, hlo_val x, hlo_val z)
{
    const ttt_config *c = l->net->config;
    hlo_type type = net_compute(l->net);
    if (c->post_norm)
        z = hlo_layer_norm(g, z, mixer_param(g, l, "post_norm.weight"),
                           mixer_param(g, l, "post_norm.bias"), 1e-6);
    if (c->use_gate) /* computed again backwards: a hundredth of a step, for a tenth of its memory
                      */
        z = hlo_mul(g, hlo_gelu(g, mixer_product(g, l, x, "g_proj.weight", type)), z);
    return mixer_product(g, l, z, "o_proj.weight", type);
}
