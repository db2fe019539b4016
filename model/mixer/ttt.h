/* Private to the files of the TTT layer: what tokens say of how to learn from them. x is what goes
 * into the layer, [batch, (time,) hidden], and results are [batch, (time,) heads]. */
#ifndef MODEL_MIXER_TTT_H
#define MODEL_MIXER_TTT_H

#include "model/network.h"

/* The rate of each token as a source; what its gate is taken of, and what the gate is multiplied
 * by. */
hlo_val mixer_ttt_source_rate(hlo_graph *g, const net_layer *l, hlo_val x);
hlo_val mixer_ttt_rate_score(hlo_graph *g, const net_layer *l, hlo_val x);
double mixer_ttt_rate_factor(const ttt_config *c);
/* The rate of each place of a mini-batch as an answer, [mini]: about 1 / (i + 1), learnt, never
 * negative. Where nothing is learnt, the paper's own: a plain sum. */
hlo_val mixer_ttt_answer_rate(hlo_graph *g, const net_layer *l, int64_t mini);
/* Logarithms of the gates, null where there are none: -exp(A) softplus(score) of decay, as in
 * Mamba-2 and the gated delta rule, and log(sigmoid(score)) of momentum, as in Titans. */
hlo_val mixer_ttt_log_decay(hlo_graph *g, const net_layer *l, hlo_val x);
hlo_val mixer_ttt_log_momentum(hlo_graph *g, const net_layer *l, hlo_val x);

#endif
