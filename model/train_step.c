/* One training step as a program: the state and a batch in, the next state and figures out. */
#include "model/ttt_train.h"

#include <stdio.h>
#include <stdlib.h>

/* What goes through the network together, and what of it is there. */
enum { TOKENS, LABELS, WEIGHTS, RESETS, N_INPUTS };
/* What comes out of one part beside gradients; all but the first with diagnostics only. */
enum { LOSS, INNER_LOSS, INNER_RATE, STATE_NORM, N_FIGURES };

typedef struct builder {
    ttt_net net; /* with values */
    const ttt_recipe *recipe;
    const ttt_train_options *options;
    int64_t parts;
    hlo_val rate_scale;
    hlo_val *gradients; /* room for one of each parameter */
} builder;

/* ---- arguments ------------------------------------------------------------------------------- */

static void lay_out(int n, const ttt_train_options *o, ttt_train_args *at)
{
    int next = 3 * n;
    *at = (ttt_train_args){.first = n, .second = 2 * n, .step = next++};
    at->tokens = next++;
    at->labels = next++;
    at->weights = o->weights ? next++ : -1;
    at->resets = o->resets ? next++ : -1;
    at->limits = o->limits ? next++ : -1;
    at->n_arguments = next;
    next = at->step + 1;
    at->loss = next++;
    at->norm = next++;
    at->rate = next++;
    at->skipped = next++;
    at->inner_loss = o->diagnostics ? next++ : -1;
    at->inner_rate = o->diagnostics ? next++ : -1;
    at->state_norm = o->diagnostics ? next++ : -1;
    at->n_results = next;
}

static bool check(hlo_graph *g, const ttt_net *net, const ttt_recipe *recipe, int64_t parts)
{
    ttt_error error;
    const ttt_config *c = net->config;
    bool ttt = ttt_mixer_learns(c->mixer);
    if (!ttt_recipe_check(recipe, &error)) {
        hlo_fail(g, HLO_ERROR_VALUE, "train_step: %s", error.message);
        return false;
    }
    int64_t sequences = recipe->batch_tokens / recipe->sequence_length;
    if (parts < 1 || sequences % parts != 0)
        hlo_fail(g, HLO_ERROR_VALUE,
                 "train_step: batch_tokens / sequence_length, %lld sequences, are no multiple of "
                 "accumulation %lld",
                 (long long)sequences, (long long)parts);
    else if (recipe->ttt_base_lr_warmup > 0 && (!ttt || c->ttt_base_lr == 0))
        hlo_fail(g, HLO_ERROR_VALUE,
                 "train_step: ttt_base_lr_warmup is %lld, but the network has no inner rate",
                 (long long)recipe->ttt_base_lr_warmup);
    else
        return true;
    return false;
}

static void bind_moments(hlo_graph *g, const ttt_params *params, const char *which, hlo_type type,
                         hlo_val *moments)
{
    for (int i = 0; i < params->count; i++) {
        const ttt_param *p = &params->list[i];
        hlo_shape shape = p->shape;
        char name[160];
        shape.type = type;
        snprintf(name, sizeof name, "%s:%s", which, p->name);
        moments[i] = hlo_param(g, name, shape);
        hlo_shard_param(g, moments[i], p->spec);
    }
}

static hlo_val batch_argument(hlo_graph *g, const builder *b, const char *name, hlo_type type)
{
    int64_t time = b->recipe->sequence_length, sequences = b->recipe->batch_tokens / time;
    hlo_val v = hlo_param(g, name, HLO_SHAPE(type, b->parts, sequences / b->parts, time));
    hlo_shard_param(g, v, HLO_SPEC(NULL, b->net.batch_axes, b->net.time_axis));
    return v;
}

static hlo_val whole_argument(hlo_graph *g, const char *name, hlo_shape shape)
{
    hlo_val v = hlo_param(g, name, shape);
    hlo_shard_param(g, v, HLO_SPEC(NULL));
    return v;
}

/* ---- loss and gradients ---------------------------------------------------------------------- */

/* Weights with those of masked labels set to 0; null when all count alike. */
static hlo_val label_weights(hlo_graph *g, const ttt_recipe *recipe, hlo_val labels,
                             hlo_val weights)
{
    if (recipe->masked_label < 0)
        return weights;
    hlo_val masked = hlo_scalar_int(g, HLO_S32, recipe->masked_label);
    hlo_val counts = hlo_compare(g, HLO_NE, labels, masked);
    hlo_val one = weights.id != 0 ? weights : hlo_scalar(g, HLO_F32, 1);
    return hlo_select(g, counts, one, hlo_scalar(g, HLO_F32, 0));
}

/* The loss of one part of the batch, its gradients into b->gradients, and its figures. */
static void one_part(hlo_graph *g, const builder *b, const hlo_val in[N_INPUTS],
                     hlo_val out[N_FIGURES])
{
    const ttt_params *params = b->net.params;
    ttt_diagnostics seen = {{0}};
    ttt_input input = {.tokens = in[TOKENS], .resets = in[RESETS], .rate_scale = b->rate_scale};
    ttt_target target = {.labels = in[LABELS],
                         .weights = label_weights(g, b->recipe, in[LABELS], in[WEIGHTS]),
                         .z_loss = b->recipe->z_loss};
    out[LOSS] = ttt_loss(g, &b->net, &input, &target, b->options->diagnostics ? &seen : NULL);
    out[INNER_LOSS] = seen.inner_loss;
    out[INNER_RATE] = seen.rate;
    out[STATE_NORM] = seen.state_norm;
    hlo_grad(g, out[LOSS], b->net.values, params->count, b->gradients);
    /* Split as the parameters are, so that devices exchange no more than their pieces. */
    for (int i = 0; i < params->count; i++)
        b->gradients[i] = hlo_shard(g, b->gradients[i], params->list[i].spec);
}

/* A step of the loop over parts: the carry is the mean of gradients so far, over all parts. */
static void accumulate(hlo_graph *g, void *ctx, hlo_val step, const hlo_val *carry,
                       const hlo_val *x, hlo_val *next, hlo_val *y)
{
    const builder *b = ctx;
    hlo_val in[N_INPUTS] = {x[0], x[1]}, out[N_FIGURES];
    const hlo_val *more = x + 2;
    (void)step;
    if (b->options->weights)
        in[WEIGHTS] = *more++;
    if (b->options->resets)
        in[RESETS] = *more;
    one_part(g, b, in, out);
    for (int i = 0; i < b->net.params->count; i++) {
        hlo_val d = b->gradients[i];
        next[i] = hlo_add(g, carry[i], hlo_mul(g, d, hlo_like(g, d, 1 / (double)b->parts)));
    }
    for (int i = 0; i < (b->options->diagnostics ? N_FIGURES : 1); i++)
        y[i] = out[i];
}

/* Figures of all parts, stacked, to those of the batch. Of rates there are mean, least, largest. */
static void join_figures(hlo_graph *g, const builder *b, hlo_val figures[N_FIGURES])
{
    static const hlo_reduce_kind kinds[] = {HLO_REDUCE_ADD, HLO_REDUCE_MIN, HLO_REDUCE_MAX};
    hlo_val columns[3];
    figures[LOSS] = hlo_mean(g, figures[LOSS], HLO_DIMS(0));
    if (!b->options->diagnostics)
        return;
    figures[INNER_LOSS] = hlo_mean(g, figures[INNER_LOSS], HLO_DIMS(0));
    figures[STATE_NORM] = hlo_mean(g, figures[STATE_NORM], HLO_DIMS(0));
    for (int i = 0; i < 3; i++) {
        hlo_val column = hlo_slice_dim(g, figures[INNER_RATE], 2, i, i + 1);
        columns[i] = hlo_reduce(g, kinds[i], column, HLO_DIMS(0));
    }
    columns[0] = hlo_mul(g, columns[0], hlo_like(g, columns[0], 1 / (double)b->parts));
    figures[INNER_RATE] = hlo_concat(g, columns, 3, 1);
}

/* The same for the whole batch. With several parts, a loop over them. */
static void all_parts(hlo_graph *g, const builder *b, const hlo_val in[N_INPUTS],
                      hlo_val figures[N_FIGURES])
{
    const ttt_params *params = b->net.params;
    hlo_val list[N_INPUTS];
    int count = 0;
    for (int i = 0; i < N_INPUTS; i++) {
        if (in[i].id != 0)
            list[count++] = in[i];
    }
    if (b->parts > 1) {
        hlo_val *carry = calloc((size_t)params->count, sizeof *carry);
        if (carry == NULL) {
            hlo_fail(g, HLO_ERROR_MEMORY, "train_step: out of memory");
            return;
        }
        for (int i = 0; i < params->count; i++)
            carry[i] = hlo_shard(g, hlo_zeros_like(g, b->net.values[i]), params->list[i].spec);
        hlo_scan(g, accumulate, (void *)b, carry, params->count, list, count, figures,
                 b->options->diagnostics ? N_FIGURES : 1, NULL);
        for (int i = 0; i < params->count; i++)
            b->gradients[i] = carry[i];
        free(carry);
        join_figures(g, b, figures);
        return;
    }
    hlo_val flat[N_INPUTS] = {0};
    for (int i = 0; i < N_INPUTS; i++) {
        if (in[i].id != 0)
            flat[i] = hlo_reshape(g, in[i], HLO_DIMS(hlo_dim(g, in[i], 1), hlo_dim(g, in[i], 2)));
    }
    one_part(g, b, flat, figures);
}

/* ---- the program ----------------------------------------------------------------------------- */

/* Results that every device has whole. */
static void whole_result(hlo_graph *g, const char *name, hlo_val v, int place)
{
    if (place < 0)
        return;
    hlo_result(g, name, v);
    hlo_shard_result(g, place, HLO_SPEC(NULL));
}

/* The next state in the old one's memory; being there, it is also split as the old one is. */
static void state_results(hlo_graph *g, const ttt_params *params, const hlo_val *old,
                          const ttt_train_state *next)
{
    static const char *const prefix[] = {"", "first:", "second:"};
    const hlo_val *const lists[] = {next->values, next->first, next->second};
    int n = params->count;
    for (int i = 0; i < 3 * n; i++) {
        char name[160];
        snprintf(name, sizeof name, "%s%s", prefix[i / n], params->list[i % n].name);
        hlo_result(g, name, lists[i / n][i % n]);
        hlo_donate(g, old[i], i);
    }
    hlo_result(g, "step", next->step);
    hlo_donate(g, old[3 * n], 3 * n);
}

/* `room`: for each parameter three old and three new values and a gradient, then the old count. */
static void build(hlo_graph *g, builder *b, hlo_val *room, const ttt_train_args *at)
{
    const ttt_params *params = b->net.params;
    const ttt_train_options *o = b->options;
    int n = params->count;
    hlo_val *old = room, in[N_INPUTS] = {0}, limits = {0}, figures[N_FIGURES] = {0};
    hlo_type wide = ttt_wide_type(b->net.compute);
    ttt_params_bind(g, params, wide, old);
    bind_moments(g, params, "first", wide, old + n);
    bind_moments(g, params, "second", wide, old + 2 * n);
    hlo_val step = old[3 * n] = whole_argument(g, "step", HLO_SCALAR(HLO_S32));
    in[TOKENS] = batch_argument(g, b, "tokens", HLO_S32);
    in[LABELS] = batch_argument(g, b, "labels", HLO_S32);
    if (o->weights)
        in[WEIGHTS] = batch_argument(g, b, "weights", HLO_F32);
    if (o->resets)
        in[RESETS] = batch_argument(g, b, "resets", HLO_PRED);
    if (o->limits)
        limits = whole_argument(g, "limits", HLO_SHAPE(HLO_F32, 2));
    b->net.values = old;
    b->gradients = room + 3 * n + 1;
    if (b->recipe->ttt_base_lr_warmup > 0)
        b->rate_scale = hlo_convert(
            g, ttt_base_rate_scale(g, b->recipe, b->net.config->ttt_base_lr, step), wide);
    all_parts(g, b, in, figures);
    ttt_train_state state = {.values = b->gradients + n,
                             .first = b->gradients + 2 * n,
                             .second = b->gradients + 3 * n,
                             .step = step};
    for (int i = 0; i < 3 * n; i++)
        state.values[i] = old[i];
    ttt_train_report report =
        ttt_optimize(g, b->recipe, params, b->gradients, figures[LOSS], limits, &state);
    state_results(g, params, old, &state);
    whole_result(g, "loss", figures[LOSS], at->loss);
    whole_result(g, "norm", report.norm, at->norm);
    whole_result(g, "rate", report.rate, at->rate);
    whole_result(g, "skipped", report.skipped, at->skipped);
    whole_result(g, "inner_loss", figures[INNER_LOSS], at->inner_loss);
    whole_result(g, "inner_rate", figures[INNER_RATE], at->inner_rate);
    whole_result(g, "state_norm", figures[STATE_NORM], at->state_norm);
}

void ttt_train_step(hlo_graph *g, const ttt_net *net, const ttt_recipe *recipe,
                    const ttt_train_options *options, ttt_train_args *places)
{
    builder b = {.net = *net, .recipe = recipe, .options = options};
    b.net.batch_axes = "data+fsdp";
    b.net.time_axis = "time";
    b.parts = options->accumulation == 0 ? 1 : options->accumulation;
    lay_out(net->params->count, options, places);
    if (!check(g, net, recipe, b.parts))
        return;
    hlo_val *room = calloc(7 * (size_t)net->params->count + 1, sizeof *room);
    if (room == NULL) {
        hlo_fail(g, HLO_ERROR_MEMORY, "train_step: out of memory");
        return;
    }
    hlo_set_f32_gradient_sums(g, true);
    build(g, &b, room, places);
    free(room);
}
