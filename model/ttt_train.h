/*
 * model: the optimiser, and a whole training step as one program.
 *
 *     #include "model/ttt_train.h"
 *
 *     ttt_recipe recipe;
 *     if (!ttt_recipe_preset(&recipe, "tiny", "ttt_linear", &error) ||
 *         !ttt_recipe_set(&recipe, "steps", "500", &error) || !ttt_recipe_check(&recipe, &error))
 *         fprintf(stderr, "%s\n", error.message);
 *     else {
 *         hlo_graph *g = hlo_graph_new("train_step");
 *         ttt_net net = {.config = &config, .params = params, .compute = HLO_BF16};
 *         ttt_train_args at; // which argument is what
 *         ttt_train_step(g, &net, &recipe, &(ttt_train_options){.accumulation = 4}, &at);
 *         char *text = hlo_write_text(g, NULL); // NULL when anything above went wrong
 *         …
 *     }
 *
 * A recipe is plain data, as a configuration is. Everything that depends on the step is computed in
 * the graph from the step count alone: the host passes no rates and keeps no schedule.
 */
#ifndef MODEL_TTT_TRAIN_H
#define MODEL_TTT_TRAIN_H

#include "model/ttt_model.h"

/* ---- recipes --------------------------------------------------------------------------------- */

/* How a network is trained. Names are those of --set and of JSON. */
typedef struct ttt_recipe {
    /*
     * The rate of update s (from 0) is peak_lr s / warmup_steps in the warm-up, then a half cosine
     * from peak_lr down to end_lr at `steps`, and end_lr from there on. The first update of a
     * warm-up has rate 0, as in the reference.
     */
    int64_t steps, warmup_steps;
    double peak_lr, end_lr;
    /* AdamW: p -= rate (mean / (sqrt(square) + epsilon) + decay p), both moments bias-corrected */
    double b1, b2, epsilon, decay;
    double clip_norm; /* longer gradients are scaled down to it; 0: none are */
    int64_t batch_tokens, sequence_length;
    /* The base rate of the inner learners grows from here to the configuration's ttt_base_lr;
     * 0 steps: it is there from the start. */
    double ttt_base_lr_init;
    int64_t ttt_base_lr_warmup;
    double z_loss;        /* 0: none */
    int64_t masked_label; /* targets that do not count: BOS, in the reference; -1: all count */
    int64_t seed;         /* of initial values and of the order of data */
} ttt_recipe;

/*
 * The paper's recipe for its sizes (1.3b-matched: that of 1.3b), half a million tokens a batch, BOS
 * of its tokenizer masked; for small and tiny a thousand steps of a laptop's size. ttt_mlp has the
 * warm-up of the base rate.
 */
bool ttt_recipe_preset(ttt_recipe *recipe, const char *preset, const char *mixer, ttt_error *error);
/* One field by name: "peak_lr", "1e-3". Unknown fields and values out of range are refused by name.
 */
bool ttt_recipe_set(ttt_recipe *recipe, const char *field, const char *value, ttt_error *error);
/* Ranges, and contradictions between fields, by name. */
bool ttt_recipe_check(const ttt_recipe *recipe, ttt_error *error);
/* All fields as a JSON object; the caller frees it. */
char *ttt_recipe_text(const ttt_recipe *recipe, ttt_error *error);
/* Fields of a JSON object over those of `recipe`, which stays as it was on error. What is not named
 * is not changed; unknown fields are refused by name. */
bool ttt_recipe_parse(ttt_recipe *recipe, const char *json, size_t size, ttt_error *error);

/* ---- the optimiser, for gradients from anywhere ---------------------------------------------- */

/* f32 scalars from the number of steps done, an s32 scalar: the learning rate; and what the inner
 * rates are multiplied by so that the base rate grows to `base`, rounded to bf16 as in the
 * reference. */
hlo_val ttt_learning_rate(hlo_graph *g, const ttt_recipe *recipe, hlo_val step);
hlo_val ttt_base_rate_scale(hlo_graph *g, const ttt_recipe *recipe, double base, hlo_val step);

/* What training changes: arrays of one value a parameter, in the table's order. Moments have the
 * parameters' types and start as zeros. */
typedef struct ttt_train_state {
    hlo_val *values, *first, *second;
    hlo_val step; /* s32: steps done */
} ttt_train_state;

/* What one step did. */
typedef struct ttt_train_report {
    hlo_val norm;    /* of all gradients together, before clipping */
    hlo_val rate;    /* f32 */
    hlo_val skipped; /* pred */
} ttt_train_report;

/*
 * One step by given gradients: clips, updates, counts; `state` receives the new values.
 *
 * When the loss or the norm is not finite, or above its limit, nothing is updated: parameters and
 * moments stay as they are, bit for bit, and only the count goes on (and with it the schedule, and
 * the moments' bias correction, which is thus a little weaker after skipped steps).
 *
 * `limits` is f32 [2], the largest loss and the largest norm that are taken; null: any finite one.
 */
ttt_train_report ttt_optimize(hlo_graph *g, const ttt_recipe *recipe, const ttt_params *params,
                              const hlo_val *gradients, hlo_val loss, hlo_val limits,
                              ttt_train_state *state);

/* ---- the training step ----------------------------------------------------------------------- */

typedef struct ttt_train_options {
    /* The batch is cut into so many parts, which go through the network one after another; the
     * result is the same. 0: 1. */
    int64_t accumulation;
    /* Arguments that are there only when asked for. */
    bool weights, resets, limits;
    bool diagnostics; /* results that are */
} ttt_train_options;

/*
 * Numbers of arguments and results; -1 for what is not there. Both start with the state: parameters
 * from 0 on, first moments from `first`, second ones from `second`, each in the table's order, then
 * the count of steps.
 */
typedef struct ttt_train_args {
    int first, second, step;
    /* arguments */
    int tokens, labels; /* s32 [accumulation, batch, time] */
    int weights;        /* f32 of that shape: 0 for labels that do not count */
    int resets;         /* pred of that shape: where documents start */
    int limits;         /* f32 [2], as in ttt_optimize */
    int n_arguments;
    /* results */
    int loss, norm;                         /* f32; of all parts, the norm before clipping */
    int rate;                               /* f32: the learning rate */
    int skipped;                            /* pred: the state was not updated */
    int inner_loss, inner_rate, state_norm; /* ttt_diagnostics, over all parts */
    int n_results;
} ttt_train_args;

/*
 * Builds the whole program into a new graph: loss, gradients, update. Of `net` the values are not
 * read; the rest says how the network computes. The batch is batch_tokens / sequence_length
 * sequences, cut into `accumulation` parts.
 *
 * Arguments and results are named as in ttt_train_args, parameters by their own names, and the
 * moments "first:NAME" and "second:NAME". The whole state is donated. When the graph has a mesh, of
 * axes "data", "fsdp", "time" and "model", sequences are split over "data+fsdp", their times over
 * "time", and the state as its table says; the other results are whole on every device.
 *
 * What is wrong is an error of the graph.
 */
void ttt_train_step(hlo_graph *g, const ttt_net *net, const ttt_recipe *recipe,
                    const ttt_train_options *options, ttt_train_args *places);

#endif
