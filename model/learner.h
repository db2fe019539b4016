/*
 * Private to the model room: learners, the models that a TTT layer trains at test time.
 *
 * A learner is f(z) = z + LN(res(z)) for each head, res being K linear layers with GELU between
 * them: K = 1 is TTT-Linear, K = 2 TTT-MLP. It is described once; the dual form trains it on a
 * mini-batch and answers its queries at once, by matrix products alone.
 *
 * Letters: B batch, H heads, n mini-batches, b tokens of one, d lanes of a head.
 */
#ifndef MODEL_LEARNER_H
#define MODEL_LEARNER_H

#include "hlo_builder/hlo.h"

enum { LEARNER_MAX_LAYERS = 4 };

typedef struct learner {
    int n_layers;
    hlo_val w[LEARNER_MAX_LAYERS]; /* where learning starts: [H, in, out] */
    hlo_val b[LEARNER_MAX_LAYERS]; /* [H, 1, out] */
    hlo_val norm_scale, norm_bias; /* [H, d]; not trained at test time */
    double epsilon;
} learner;

/* What a sequence of mini-batches is learnt from; all f32. */
typedef struct learner_data {
    hlo_val q, k, v; /* [n, B, H, b, d] */
    hlo_val rate;    /* [n, B, H, b]: of each token as a source */
    hlo_val token;   /* [b]: of each token as an answer */
} learner_data;

/* State of a learner: weights and biases for each sequence, [B, H, in, out] and [B, H, 1, out]. */
typedef struct learner_state {
    hlo_val w[LEARNER_MAX_LAYERS], b[LEARNER_MAX_LAYERS];
} learner_state;

learner_state learner_start(hlo_graph *g, const learner *l, int64_t batch);
/* Goes through all mini-batches; `state` moves on. Returns the answers [n, B, H, b, d]. `group` is
 * the number of mini-batches between kept states; 0 keeps all. */
hlo_val learner_dual(hlo_graph *g, const learner *l, const learner_data *data, learner_state *state,
                     int64_t group);

#endif
