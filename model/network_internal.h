/* Private to network.c, loss.c and state.c: the trunk and its ends. */
#ifndef MODEL_NETWORK_INTERNAL_H
#define MODEL_NETWORK_INTERNAL_H

#include "model/network.h"

/* Rows of the embedding [..., hidden], as activations. */
hlo_val net_embed(hlo_graph *g, const ttt_net *net, hlo_val tokens);
/* A block over a sequence, x [batch, time, hidden], from its start or, with `state`, which moves
 * on, from `position` on; or with it over one token, x [batch, hidden]. */
hlo_val net_block(hlo_graph *g, const net_layer *l, hlo_val x, hlo_val position, hlo_val *state);
/* Tokens to what goes into the head: [batch, time, hidden]. */
hlo_val net_trunk(hlo_graph *g, const ttt_net *net, const ttt_input *in,
                  ttt_diagnostics *diagnostics);
hlo_val net_last_norm(hlo_graph *g, const ttt_net *net, hlo_val x);
/* The head's matrix [vocab, hidden] as it is stored; and logits of x [batch, (time,) hidden]. */
hlo_val net_head(hlo_graph *g, const ttt_net *net);
hlo_val net_logits(hlo_graph *g, const ttt_net *net, hlo_val x);
/* The cross-entropy of each token, from what goes into the head. */
hlo_val net_losses(hlo_graph *g, const ttt_net *net, hlo_val x, hlo_val labels);

/* The values of the stacked parameters as a list, in the table's order; returns their number. And
 * what a loop over them gives for one layer, back into its places. */
int net_stacked(const ttt_params *params, const hlo_val *values, hlo_val *list);
void net_layer_slices(const ttt_params *params, const hlo_val *slices, hlo_val *values);

#endif
