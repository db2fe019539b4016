/* Private to learner.c and the files of the two forms: tokens going through a state. */
#ifndef MODEL_LEARNER_INTERNAL_H
#define MODEL_LEARNER_INTERNAL_H

#include "model/learner/learner.h"

/* A learner at a state; the start is needed where documents begin, and null otherwise. */
typedef struct learner_at {
    const learner *l;
    learner_weights now, start;
} learner_at;

/* What rows of tokens or answers see of it, each null for all alike: pred [B, 1, rows, 1], those
 * that see the start instead, and [B, H, rows, 1], how much is left of the weights. */
typedef struct learner_rows {
    hlo_val fresh, keep;
} learner_rows;

/* [H, d] in front of arrays [..., H, rows, d]. */
hlo_val learner_per_head(hlo_graph *g, hlo_val v);
/* How exact a sum by a product is to be where operands of products may be rounded to that type. */
hlo_precision learner_precision(hlo_type products);
/* The mean along lanes of [(n,) B, H, rows, d], in every lane, as a product with a matrix of ones.
 */
hlo_val learner_mean(hlo_graph *g, hlo_val x, hlo_precision precision);

/* x [B, H, rows, in] through layer i. */
hlo_val learner_layer(hlo_graph *g, const learner_at *at, int i, hlo_val x,
                      const learner_rows *rows);

/* What follows a layer: made of its result z, and the derivative of that. */
typedef struct learner_active {
    hlo_val value, derivative;
} learner_active;
learner_active learner_active_of(hlo_graph *g, const learner *l, hlo_val z);
learner_active learner_gelu_of(hlo_graph *g, hlo_val z); /* GELU, the tanh form */
/* The value alone; and the gradient of z, given that of the value. */
hlo_val learner_activate(hlo_graph *g, const learner *l, hlo_val z);
hlo_val learner_pull(hlo_graph *g, const learner *l, const learner_active *active, hlo_val d);

/* What tokens are to each layer: what went in, and the gradient of what came out. */
typedef struct learner_tokens {
    hlo_val x[LEARNER_MAX_LAYERS]; /* [B, H, tokens, in] */
    hlo_val d[LEARNER_MAX_LAYERS]; /* [B, H, tokens, out] */
    hlo_val res;
} learner_tokens;

/* The kernel computes what is asked for; then the answers by it, in place of the loop, `eta` being
 * reach times rate, [n, B, H, r, b]. States are kept every `group` mini-batches. */
bool learner_can_call(hlo_graph *g, const learner *l, const learner_data *data);
hlo_val learner_called(hlo_graph *g, const learner *l, const learner_data *data, hlo_val eta,
                       learner_weights *state, int64_t group);

/* The answers where pieces are several mini-batches: of one layer, and of two. */
hlo_val learner_chunked(hlo_graph *g, const learner *l, const learner_data *data,
                        learner_weights *state);
hlo_val learner_chunked_mlp(hlo_graph *g, const learner *l, const learner_data *data,
                            learner_weights *state);

/* Forwards and backwards; `first` is k through layer 0 already. */
learner_tokens learner_train(hlo_graph *g, const learner_at *at, hlo_val first, hlo_val k,
                             hlo_val target, const learner_rows *rows);

/* The state after a mini-batch, by a rule that moves weights once: `sums` are its gradients times
 * their rates, `momentum` [B, H, 1, 1] its gate, or null. */
void learner_move(hlo_graph *g, const learner *l, const learner_weights *sums, hlo_val momentum,
                  learner_state *state);
/* The dual form of such rules; `rate` [n, B, H, b, 1] is 0 where tokens are not of the document
 * that a mini-batch ends with. */
learner_result learner_moving_once(hlo_graph *g, const learner *l, const learner_data *data,
                                   hlo_val rate, learner_state *state,
                                   const hlo_scan_options *options);

#endif
