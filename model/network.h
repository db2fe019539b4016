/* Private to the model room: how a layer finds its parameters, and the mixers. */
#ifndef MODEL_NETWORK_H
#define MODEL_NETWORK_H

#include "model/ttt_model.h"

/* Where documents start, as the parts of a network need it. All null without resets. */
typedef struct net_resets {
    hlo_val here;    /* pred [batch, time] */
    hlo_val segment; /* s32 [batch, time]: how many documents started up to here */
} net_resets;

/* One block of a network. */
typedef struct net_layer {
    const ttt_net *net;
    int index;             /* -1 in a loop over layers */
    const hlo_val *values; /* in a loop over layers: the parameters of this one */
    net_resets resets;
    hlo_val place; /* of one token: s32 [batch], within its mini-batch; null for other mixers */
    hlo_val rate_scale;           /* or null */
    ttt_diagnostics *diagnostics; /* or NULL: the learner fills in its own layer's */
} net_layer;

/*
 * The value of "model.layers.INDEX.NAME"; an error of the graph when the table has none. As it is
 * stored (f32, or f64), or as products take it, in the type of activations.
 */
hlo_val net_layer_param(hlo_graph *g, const net_layer *l, const char *name);
hlo_val net_layer_weight(hlo_graph *g, const net_layer *l, const char *name);
hlo_val net_param(hlo_graph *g, const ttt_net *net, const char *name);
/* x [batch, (time,) in] times the layer's matrix of that name, packed or not; `out` is the type of
 * activations, or the wide one. */
hlo_val net_layer_product(hlo_graph *g, const net_layer *l, hlo_val x, const char *name,
                          hlo_type out);

/* Types: of activations and products, and of what must not be rounded (state, norms, rates). */
hlo_type net_compute(const ttt_net *net);
hlo_type net_wide(const ttt_net *net);
/* Where activations live on a mesh: dimension 0 is split over sequences, `dim` (0: none) over
 * "model", and dimension 1 of [batch, time, …], three dimensions at least, over times. */
hlo_val net_shard(hlo_graph *g, const ttt_net *net, hlo_val v, int dim);
/* Marks a product as dear: kept for the backward pass unless the net keeps nothing. */
hlo_val net_dear(hlo_graph *g, const ttt_net *net, hlo_val v);

/* log(1 + exp(x)), which overflows nowhere. */
hlo_val net_softplus(hlo_graph *g, hlo_val x);

/* x [batch, time, channels] through a depthwise causal convolution with bias, which does not see
 * earlier documents; names NAME.weight, .bias. `tail`, when not NULL, has the times before, [batch,
 * width - 1, channels], and moves on; then there are no documents. */
hlo_val net_causal_conv(hlo_graph *g, const net_layer *l, const char *name, hlo_val x,
                        hlo_val *tail);
/* The same for one token, x [batch, channels]. */
hlo_val net_causal_conv_step(hlo_graph *g, const net_layer *l, const char *name, hlo_val x,
                             hlo_val *tail);

/* The mixer's own parameter "seq_modeling_block.NAME". */
hlo_val mixer_param(hlo_graph *g, const net_layer *l, const char *name);
hlo_val mixer_weight(hlo_graph *g, const net_layer *l, const char *name);
hlo_val mixer_product(hlo_graph *g, const net_layer *l, hlo_val x, const char *name, hlo_type out);
/* Queries, keys and values of x, by head: [batch, time, heads, lanes]. `tail` of the shared
 * projection, with share_qk, as in net_causal_conv. */
typedef struct mixer_heads {
    hlo_val q, k, v;
} mixer_heads;
mixer_heads mixer_project(hlo_graph *g, const net_layer *l, hlo_val x, hlo_val *tail);
/* The same for one token x [batch, hidden]: [batch, heads, lanes]. `tail` is needed with share_qk.
 */
mixer_heads mixer_project_step(hlo_graph *g, const net_layer *l, hlo_val x, hlo_val *tail);
/* Queries or keys [batch, (time,) heads, lanes] turned by their positions, s32 [time], [batch,
 * time] or of one token [batch]; not at all when rope_theta is 0. */
hlo_val mixer_rotate(hlo_graph *g, const net_layer *l, hlo_val x, hlo_val position);
/* The same in two steps, by a product: positions as angles of all lanes [..., lanes], and x [batch,
 * time, heads, lanes] or pieces [n, batch, heads, size, lanes] turned by angles in front of it. */
hlo_val mixer_angles(hlo_graph *g, const net_layer *l, hlo_val position);
hlo_val mixer_turn(hlo_graph *g, const net_layer *l, hlo_val x, hlo_val angle);
/* Positions of `time` tokens: s32 [time] from 0 on, or [batch, time] from `position` [batch] on,
 * when that is not null. */
hlo_val mixer_times(hlo_graph *g, int64_t time, hlo_val position);
/*
 * A stretch of a sequence in equal pieces: n of `size` tokens from `start` on. Those times of x
 * [batch, time, heads, lanes] as [n, batch, heads, size, lanes]; of marks [batch, time] as [n,
 * batch, size]; and what was made of the pieces back as [batch, n * size, heads * lanes].
 */
typedef struct mixer_pieces {
    int64_t start, n, size;
} mixer_pieces;
hlo_val mixer_cut(hlo_graph *g, const mixer_pieces *p, hlo_val x);
hlo_val mixer_cut_marks(hlo_graph *g, const mixer_pieces *p, hlo_val marks);
hlo_val mixer_join(hlo_graph *g, const mixer_pieces *p, hlo_val x);
/* From what the heads made, z [batch, (time,) hidden], to the layer's result: norm, gate,
 * projection. */
hlo_val mixer_output(hlo_graph *g, const net_layer *l, hlo_val x, hlo_val z);

/*
 * Mixers over time. Each has three functions:
 *  - over a sequence: x [batch, time, hidden], normed already, to the same; either from its start
 *    (`position` null, `state` NULL), or from position [batch] on with the layer's state, which
 *    moves on; learners then take whole mini-batches, from the start of one;
 *  - over one token: x [batch, hidden] at positions s32 [batch], with the layer's state, which
 *    moves on;
 *  - the table of that state: calls net_state_array for each part, in the order in which the second
 *    finds them. Shapes are one sequence's, without the batch.
 */
typedef struct net_state_table net_state_table;
void net_state_array(net_state_table *table, const char *name, hlo_shape shape);
/* The longest sequence that attention is to remember, and the type of state. */
int64_t net_state_context(const net_state_table *table);
hlo_type net_state_type(const net_state_table *table);

#define MIXER(name)                                                                            \
    hlo_val mixer_##name(hlo_graph *g, const net_layer *l, hlo_val x, hlo_val position,        \
                         hlo_val *state);                                                      \
    hlo_val mixer_##name##_step(hlo_graph *g, const net_layer *l, hlo_val x, hlo_val position, \
                                hlo_val *state);                                               \
    void mixer_##name##_state(net_state_table *table, const ttt_config *config)
MIXER(ttt);
MIXER(attention);
MIXER(linear_attention);
MIXER(mamba);
#undef MIXER
/* State starts as zeros, but for learners: `state` is the mixer's part. */
void mixer_ttt_start(hlo_graph *g, const net_layer *l, int64_t batch, hlo_val *state);
/* Whether a mini-batch ends with the token at that position: pred of its shape. */
hlo_val mixer_ttt_ends(hlo_graph *g, const ttt_config *config, hlo_val position);

#endif
