/* Private to learner.c and the files of the two forms: tokens going through a state. */
#ifndef MODEL_LEARNER_INSIDE_H
#define MODEL_LEARNER_INSIDE_H

#include "model/learner.h"

/* A learner at a state; the start is needed where documents begin, and null otherwise. */
typedef struct learner_at {
    const learner *l;
    learner_state state, start;
} learner_at;

/* [H, d] in front of arrays [..., H, rows, d]. */
hlo_val learner_per_head(hlo_graph *g, hlo_val v);
/* How exact a sum by a product is to be where operands of products may be rounded to that type. */
hlo_precision learner_precision(hlo_type products);
/* The mean along lanes of [(n,) B, H, rows, d], in every lane, as a product with a matrix of ones.
 */
hlo_val learner_mean(hlo_graph *g, hlo_val x, hlo_precision precision);

/* a times w; rows that are fresh times the start instead. `fresh` is null for none. */
hlo_val learner_product(hlo_graph *g, hlo_val a, const char *spec, hlo_val w, hlo_val start,
                        hlo_val fresh);
/* x [B, H, rows, in] through layer i. */
hlo_val learner_layer(hlo_graph *g, const learner_at *at, int i, hlo_val x, hlo_val fresh);

/* GELU (the tanh form) and its derivative. */
typedef struct learner_gelu {
    hlo_val value, derivative;
} learner_gelu;
learner_gelu learner_gelu_of(hlo_graph *g, hlo_val x);

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
                       learner_state *state, int64_t group);

/* The answers where pieces are several mini-batches: of one layer, and of two. */
hlo_val learner_chunked(hlo_graph *g, const learner *l, const learner_data *data,
                        learner_state *state);
hlo_val learner_chunked_mlp(hlo_graph *g, const learner *l, const learner_data *data,
                            learner_state *state);

/* Forwards and backwards; `first` is k through layer 0 already. */
learner_tokens learner_train(hlo_graph *g, const learner_at *at, hlo_val first, hlo_val k,
                             hlo_val target, hlo_val fresh);

#endif
