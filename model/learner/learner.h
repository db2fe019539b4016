/*
 * Private to the model room: learners, the models that a TTT layer trains at test time.
 *
 * A learner is f(z) = z + LN(res(z)) for each head, res being K linear layers with GELU between
 * them: K = 1 is TTT-Linear, K = 2 TTT-MLP. Without the norm it is f(z) = res(z). It learns by
 * descent on half the squared error of f(key) against the value; gradients are taken at the weights
 * that a mini-batch starts with. That is the paper's. Activation and loss may be others, weights
 * may decay and gradients have momentum (learner_gates.c), layers in front may not learn at all,
 * and rules other than descent move weights once a mini-batch (learner_rule.c). It is described
 * once and has two forms that compute the same:
 *
 *  - dual: a mini-batch of tokens at once, by matrix products alone; no weights but those at the
 *    ends of mini-batches ever exist;
 *  - primal: one token, with the gradients of the mini-batch so far summed up in the state.
 *
 * Letters: B batch, H heads, n mini-batches, b tokens of one, r answers of one, d lanes of a head.
 */
#ifndef MODEL_LEARNER_LEARNER_H
#define MODEL_LEARNER_LEARNER_H

#include "hlo_builder/hlo.h"

enum { LEARNER_MAX_LAYERS = 4 };

/* How gradients move the weights: each as it comes, or all of a mini-batch at its end. */
typedef enum learner_rule { LEARNER_DESCENT, LEARNER_MUON, LEARNER_ADAM } learner_rule;

typedef struct learner {
    int n_layers;
    hlo_val w[LEARNER_MAX_LAYERS]; /* where learning starts: [H, in, out] */
    hlo_val b[LEARNER_MAX_LAYERS]; /* [H, 1, out]; null: there are no biases */
    /* Layers in front of them that do not learn: what goes through those is a learner's input. */
    int n_fixed;
    hlo_val fixed_w[LEARNER_MAX_LAYERS], fixed_b[LEARNER_MAX_LAYERS];
    /* [H, d], not trained at test time; null: no norm, no residual */
    hlo_val norm_scale, norm_bias;
    /* Between layers, in place of GELU: layers before the last give two halves, of which one's
     * width goes on. */
    bool swiglu;
    learner_rule rule;
    double step;       /* what a rule other than descent multiplies its step by */
    int64_t mini;      /* tokens of a mini-batch; only those rules need it here */
    bool momentum;     /* there are gates of momentum, and what they keep */
    bool dot_loss;     /* minus the product of f(key) with the value, not half a squared error */
    hlo_type products; /* what operands of products may be rounded to; none: nothing */
    bool published;    /* the paper's, but for ablations: what kernels and chunks are made for */
    bool row_sums_as_matmul; /* sums over lanes as products with a matrix of ones */
    bool use_scan_kernel;    /* the kernel "ttt_scan" in place of the dual form, where it can be */
} learner;

#define LEARNER_EPSILON 1e-6 /* of norms */

/* What the learner changes, for each sequence: weights [B, H, in, out], biases [B, H, 1, out]. */
typedef struct learner_weights {
    hlo_val w[LEARNER_MAX_LAYERS], b[LEARNER_MAX_LAYERS];
} learner_weights;

typedef struct learner_state {
    learner_weights now;
    learner_weights first;  /* the momentum, or Adam's first moments, or null */
    learner_weights second; /* Adam's second moments, or null */
    hlo_val steps;          /* that Adam has done [B, H, 1, 1], or null */
    /* Of one token at a time, Muon and momentum: the sum of the mini-batch's gates so far, each
     * times 1 / mini [B, H, 1, 1], or null. */
    hlo_val gates;
} learner_state;

enum { LEARNER_MAX_STATE = 6 * LEARNER_MAX_LAYERS + 1 };

/* The start, for `batch` sequences. */
learner_state learner_start(hlo_graph *g, const learner *l, int64_t batch);
/* As a list, and back: weights, then biases if there are any; returns their number. */
int learner_pack(const learner *l, const learner_weights *weights, hlo_val *list);
int learner_unpack(const learner *l, const hlo_val *list, learner_weights *weights);
/* The same of all a state has, the weights first. */
int learner_pack_state(const learner *l, const learner_state *state, hlo_val *list);
int learner_unpack_state(const learner *l, const hlo_val *list, learner_state *state);

/* Queries or keys [(n,) B, H, rows, d] as what the first layer that learns takes in. */
hlo_val learner_features(hlo_graph *g, const learner *l, hlo_val x);
/* [n, B, H, b] as rows or as columns of matrices. */
hlo_val learner_as_rows(hlo_graph *g, hlo_val x);
hlo_val learner_as_columns(hlo_graph *g, hlo_val x);

/* What keys are trained towards: the value, less the key where f adds it back. */
hlo_val learner_target(hlo_graph *g, const learner *l, hlo_val k, hlo_val v);
/* From what res(z) made to f(z). */
hlo_val learner_answer(hlo_graph *g, const learner *l, hlo_val z, hlo_val res);
/* Mean over lanes of the squared error, given res(key), or of minus the product with the value,
 * but for what f adds to res: [..., d] to [...]. */
hlo_val learner_error(hlo_graph *g, const learner *l, hlo_val res, hlo_val target);
/* res with the start's weights: features [n, B, H, b, in] to [n, B, H, b, d]. */
hlo_val learner_res_at_start(hlo_graph *g, const learner *l, hlo_val x);

/* How many mini-batches the dual form takes as one piece where documents start nowhere within them,
 * of n of that size. */
int64_t learner_chunk(const learner *l, int64_t n, int64_t size);

/* A sequence of mini-batches, or of pieces of several (then n and b are those of pieces, and all
 * without documents or further queries); all of the state's type. */
typedef struct learner_data {
    int64_t mini;      /* tokens of a mini-batch, m */
    hlo_val k, target; /* [n, B, H, b, d]; with layers that do not learn, keys and queries are
                          features */
    hlo_val q;         /* [n, B, H, r, d] */
    hlo_val rate;      /* of each token as a source: [n, B, H, b] */
    /* How far each answer's weights are moved by each token of its mini-batch, but for the rate:
     * [r, m], or [n, B, 1 or H, r, b] where documents start. Row m - 1 is that of the weights that
     * go on. */
    hlo_val reach;
    /* With gates, see learner_gates.c: how much is left of a mini-batch's first weights where
     * tokens are and where answers are, [n, B, H, ·, 1]; how much of the momentum it started with
     * has moved answers, [n, B, H, r, 1], and how much of it and of each token's gradient goes on,
     * [n, B, H, 1, 1] and [n, B, H, b]. Null without. Rules that move weights once a mini-batch
     * need but one of them, pass_end: the mean gate of momentum. */
    hlo_val keep, keep_answers;
    hlo_val carried, pass_end, pass;
    /* Where documents start within mini-batches; null: nowhere. pred [n, B, 1, ·, 1]: tokens and
     * answers that see the start's weights instead of the state, and whether any does. */
    hlo_val fresh, fresh_answers, fresh_end;
} learner_data;

typedef struct learner_result {
    hlo_val answers; /* res of the queries [n, B, H, r, d] */
    hlo_val keys;    /* res of the keys, at the weights their mini-batch started with */
} learner_result;

/* Fills in what gates change in data that has been filled in else; `decay` and `momentum` are their
 * logarithms [n, B, H, b], or null, and `seen` is where tokens are not after answers, nor of
 * another document: pred of the shape of `reach`. */
void learner_gate(hlo_graph *g, const learner *l, learner_data *data, hlo_val decay,
                  hlo_val momentum, hlo_val seen);

/* Goes through all mini-batches; `state` moves on. States are kept for the backward pass only every
 * `group` mini-batches, or every square root of their number if that is more (of very many, in
 * groups of groups); 0 keeps all. */
learner_result learner_dual(hlo_graph *g, const learner *l, const learner_data *data,
                            learner_state *state, int64_t group);

/* Axes of a mesh: of sequences, or NULL, and of times. */
typedef struct learner_mesh {
    const char *batch_axes, *time_axis;
} learner_mesh;

/* The same for sequences whose mini-batches are split over the axis of times, an equal number for
 * each device of it. They start anew, and `state` receives their ends. */
learner_result learner_over_spans(hlo_graph *g, const learner *l, const learner_data *data,
                                  const learner_mesh *mesh, learner_state *state, int64_t group);

/* One token of each sequence: q, k, target [B, H, 1, d], or features. */
typedef struct learner_token {
    hlo_val q, k, target;
    hlo_val rate;            /* [B, H, 1, 1]: of the token as a source */
    hlo_val decay, momentum; /* the gates, [B, H, 1, 1]; null without */
    hlo_val move;            /* [B, 1, 1, 1]: of its place as an answer */
    hlo_val last;            /* pred [B, 1, 1, 1]: the mini-batch ends here */
} learner_token;

/* `state` has the weights the mini-batch started with, `sums` its gradients so far, times their
 * rates. Returns res of the query. */
hlo_val learner_primal(hlo_graph *g, const learner *l, const learner_token *token,
                       learner_state *state, learner_weights *sums);

#endif
