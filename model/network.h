/* Private to the model room: how a layer finds its parameters, and the mixers. */
#ifndef MODEL_NETWORK_H
#define MODEL_NETWORK_H

#include "model/ttt_model.h"

/* One block of a network. */
typedef struct net_layer {
    const ttt_net *net;
    int index;
} net_layer;

/* The value of "model.layers.INDEX.NAME"; an error of the graph when the table has none. */
hlo_val net_layer_param(hlo_graph *g, const net_layer *l, const char *name);
hlo_val net_param(hlo_graph *g, const ttt_net *net, const char *name);

/* x [batch, time, hidden] through a depthwise causal convolution with bias; names NAME.weight,
 * .bias. */
hlo_val net_causal_conv(hlo_graph *g, const net_layer *l, const char *name, hlo_val x);

/* The mixer's own parameter "seq_modeling_block.NAME". */
hlo_val mixer_param(hlo_graph *g, const net_layer *l, const char *name);
/* Queries, keys and values of x, by head: [batch, time, heads, lanes]. */
typedef struct mixer_heads {
    hlo_val q, k, v;
} mixer_heads;
mixer_heads mixer_project(hlo_graph *g, const net_layer *l, hlo_val x);
/* From what the heads made, z [batch, time, hidden], to the layer's result: norm, gate, projection.
 */
hlo_val mixer_output(hlo_graph *g, const net_layer *l, hlo_val x, hlo_val z);

/* Mixers over time: x [batch, time, hidden], normed already, to the same. */
hlo_val mixer_ttt(hlo_graph *g, const net_layer *l, hlo_val x);
hlo_val mixer_attention(hlo_graph *g, const net_layer *l, hlo_val x);

#endif
