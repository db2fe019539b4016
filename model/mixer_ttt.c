/* The TTT layer: projections, the learner over mini-batches, output. */
#include "model/learner.h"
#include "model/network.h"

/* Queries and keys turned by their place within the mini-batch. */
static hlo_val rotated(hlo_graph *g, const ttt_config *c, hlo_val x, int64_t mini)
{
    hlo_val place = hlo_iota(g, HLO_SHAPE(HLO_S32, hlo_dim(g, x, 1)), 0);
    place = hlo_rem(g, place, hlo_scalar_int(g, HLO_S32, mini));
    return hlo_rope(g, x, place, c->rope_theta, true);
}

/* The rate of each token as a source: [batch, time, heads]. */
static hlo_val source_rate(hlo_graph *g, const net_layer *l, hlo_val x)
{
    const ttt_config *c = l->net->config;
    hlo_val weight = mixer_param(g, l, "learnable_ttt_lr_weight"); /* [heads, 1, hidden] */
    weight = hlo_reshape(g, weight, HLO_DIMS(c->n_heads, c->hidden_size));
    hlo_val bias = hlo_reshape(g, mixer_param(g, l, "learnable_ttt_lr_bias"), HLO_DIMS(c->n_heads));
    hlo_val gate = hlo_logistic(g, hlo_add(g, hlo_einsum(g, "btc,hc->bth", x, weight), bias));
    double scale = c->ttt_base_lr / (double)(c->hidden_size / c->n_heads);
    return hlo_mul(g, gate, hlo_like(g, gate, scale));
}

/* The rate of each place as an answer: about 1 / (i + 1), learnt, never negative. */
static hlo_val answer_rate(hlo_graph *g, const net_layer *l, int64_t mini)
{
    hlo_val place = hlo_iota(g, HLO_SHAPE(HLO_F32, mini), 0), one = hlo_like(g, place, 1);
    hlo_val mean = hlo_div(g, one, hlo_add(g, place, one));
    hlo_val learnt = hlo_add(g, mean, mixer_param(g, l, "learnable_token_idx"));
    return hlo_max(g, learnt, hlo_like(g, learnt, 0));
}

static learner learner_of(hlo_graph *g, const net_layer *l)
{
    static const char *const w[] = {"W1", "W2"}, *const b[] = {"b1", "b2"};
    learner made = {.n_layers = l->net->config->mixer == TTT_MIXER_MLP ? 2 : 1, .epsilon = 1e-6};
    for (int i = 0; i < made.n_layers; i++) {
        made.w[i] = mixer_param(g, l, w[i]);
        made.b[i] = mixer_param(g, l, b[i]);
    }
    made.norm_scale = mixer_param(g, l, "ttt_norm_weight");
    made.norm_bias = mixer_param(g, l, "ttt_norm_bias");
    return made;
}

/* Times [start, start + n * size) of x [batch, time, heads, lanes] as [n, batch, heads, size,
 * lanes]. */
static hlo_val mini_batches(hlo_graph *g, hlo_val x, int64_t start, int64_t n, int64_t size)
{
    const hlo_shape *s = hlo_shape_of(g, x);
    int64_t batch = s->dims[0], heads = s->dims[2], lanes = s->dims[3];
    hlo_val part = hlo_slice_dim(g, x, 1, start, start + n * size);
    part = hlo_reshape(g, part, HLO_DIMS(batch, n, size, heads, lanes));
    return hlo_transpose(g, part, HLO_DIMS(1, 0, 3, 2, 4));
}

typedef struct layer_data {
    hlo_val q, k, v; /* [batch, time, heads, lanes] */
    hlo_val rate;    /* [batch, time, heads, 1] */
    hlo_val token;   /* [mini-batch] */
} layer_data;

/* n mini-batches of `size` tokens from `start` on; returns [batch, n * size, hidden]. */
static hlo_val learn_part(hlo_graph *g, const learner *l, const layer_data *d, int64_t start,
                          int64_t n, int64_t size, int64_t group, learner_state *state)
{
    hlo_val rate = mini_batches(g, d->rate, start, n, size);
    const hlo_shape *s = hlo_shape_of(g, rate);
    learner_data data = {
        .q = mini_batches(g, d->q, start, n, size),
        .k = mini_batches(g, d->k, start, n, size),
        .v = mini_batches(g, d->v, start, n, size),
        .rate = hlo_reshape(g, rate, HLO_DIMS(n, s->dims[1], s->dims[2], size)),
        .token = hlo_slice_dim(g, d->token, 0, 0, size),
    };
    hlo_val out =
        hlo_transpose(g, learner_dual(g, l, &data, state, group), HLO_DIMS(1, 0, 3, 2, 4));
    s = hlo_shape_of(g, out);
    return hlo_reshape(g, out, HLO_DIMS(s->dims[0], n * size, s->dims[3] * s->dims[4]));
}

/* Whole mini-batches, then what is left over as a shorter one. */
static hlo_val learn(hlo_graph *g, const net_layer *l, const layer_data *data)
{
    learner made = learner_of(g, l);
    int64_t time = hlo_dim(g, data->q, 1), size = hlo_dim(g, data->token, 0), n = time / size;
    learner_state state = learner_start(g, &made, hlo_dim(g, data->q, 0));
    hlo_val parts[2];
    int count = 0;
    if (n > 0)
        parts[count++] =
            learn_part(g, &made, data, 0, n, size, l->net->config->checkpoint_group, &state);
    if (time % size != 0)
        parts[count++] = learn_part(g, &made, data, n * size, 1, time % size, 0, &state);
    return count == 1 ? parts[0] : hlo_concat(g, parts, 2, 1);
}

hlo_val mixer_ttt(hlo_graph *g, const net_layer *l, hlo_val x)
{
    const ttt_config *c = l->net->config;
    int64_t mini = c->mini_batch_size > 0 ? c->mini_batch_size : hlo_dim(g, x, 1);
    mixer_heads h = mixer_project(g, l, x);
    hlo_val rate = source_rate(g, l, x);
    layer_data data = {
        .q = rotated(g, c, h.q, mini),
        .k = rotated(g, c, h.k, mini),
        .v = h.v,
        .rate = hlo_reshape(g, rate, HLO_DIMS(hlo_dim(g, x, 0), hlo_dim(g, x, 1), c->n_heads, 1)),
        .token = answer_rate(g, l, mini),
    };
    hlo_scope_push(g, "learn");
    hlo_val z = learn(g, l, &data);
    hlo_scope_pop(g);
    return mixer_output(g, l, x, z);
}
