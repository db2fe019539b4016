/* The programs that a network is run by, as graphs. */
#include "runtime/device/ttt_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char call[] = "runtime";
static const char sequences[] = "data+fsdp"; /* the axes that sequences are split over */
static const char times[] = "time";          /* and their tokens */

/* A graph in the making. */
typedef struct building {
    const ttt_program_desc *desc;
    ttt_graph *graph;
    ttt_net net;
    hlo_val *values; /* of the parameters */
    hlo_spec batch;  /* of [batch, …] */
    ttt_input in;
} building;

/* Of whole sequences in the dual form alone do devices share out the times. */
static pjrt_status *check_times(const ttt_program_desc *desc, const ttt_mesh *mesh)
{
    bool whole = desc->kind == TTT_PROGRAM_LOGITS || desc->kind == TTT_PROGRAM_LOSS ||
                 desc->kind == TTT_PROGRAM_LOSSES || desc->kind == TTT_PROGRAM_GRADS ||
                 desc->kind == TTT_PROGRAM_TRAIN;
    if (!whole || desc->form == TTT_FORM_PRIMAL)
        return PJRT_FAIL(INVALID_ARGUMENT, call,
                         "the mesh's axis time is for whole sequences in the dual form, as in "
                         "training: leave it out where tokens come one by one or from a state");
    if (desc->time % ttt_mesh_size(mesh, times) != 0)
        return PJRT_FAIL(INVALID_ARGUMENT, call,
                         "%lld tokens do not divide by %lld, the mesh's axis time",
                         (long long)desc->time, (long long)ttt_mesh_size(mesh, times));
    return NULL;
}

pjrt_status *ttt_program_batch_spec(const ttt_program_desc *desc, const ttt_mesh *mesh,
                                    hlo_spec *spec)
{
    int64_t pieces = ttt_mesh_size(mesh, "data") * ttt_mesh_size(mesh, "fsdp");
    *spec = (hlo_spec){{0}};
    if (ttt_mesh_size(mesh, times) > 1) {
        PJRT_TRY(check_times(desc, mesh));
        spec->axes[1] = times;
    }
    if (desc->batch == 1 && desc->kind != TTT_PROGRAM_TRAIN)
        return NULL; /* every device has it */
    if (desc->batch % pieces != 0)
        return PJRT_FAIL(INVALID_ARGUMENT, call,
                         "%lld sequences do not divide by %lld, the mesh's data x fsdp",
                         (long long)desc->batch, (long long)pieces);
    spec->axes[0] = sequences;
    return NULL;
}

static hlo_val sequence_param(building *b, const char *name, hlo_type type)
{
    return ttt_graph_param(b->graph, name, HLO_SHAPE(type, b->desc->batch, b->desc->time),
                           b->batch);
}

/* ---- token by token ----------------------------------------------------------------------------
 */

/* What one step of the scan over tokens needs from outside. */
typedef struct stepping {
    building *b;
    const ttt_state_table *states;
    const hlo_val *start;
} stepping;

/* Which dimension of a state counts sequences. */
static int batch_dim(const ttt_state_table *states, int index)
{
    const char *name = states->list[index].name;
    return states->layout == TTT_STACKED && strncmp(name, "layers.", 7) == 0 ? 1 : 0;
}

/*
 * What state a sequence has where a document starts. The position goes on: mini-batches end where
 * they would have ended. But attention has none, and must forget what stands before the position.
 */
static void reset_states(hlo_graph *g, const stepping *s, hlo_val resets, hlo_val *state)
{
    bool forget = s->b->net.config->mixer == TTT_MIXER_ATTENTION;
    for (int i = 0; i < s->states->count; i++) {
        const hlo_shape *shape = &s->states->list[i].shape;
        if (strcmp(s->states->list[i].name, "position") == 0 && !forget)
            continue;
        hlo_dims dims = {.n = shape->rank};
        memcpy(dims.d, shape->dims, sizeof dims.d);
        hlo_val here = hlo_broadcast(g, resets, dims, HLO_DIMS(batch_dim(s->states, i)));
        state[i] = hlo_select(g, here, s->start[i], state[i]);
    }
}

static void step(hlo_graph *g, void *ctx, hlo_val time, const hlo_val *carry, const hlo_val *x,
                 hlo_val *next, hlo_val *y)
{
    const stepping *s = ctx;
    (void)time;
    for (int i = 0; i < s->states->count; i++)
        next[i] = carry[i];
    if (s->b->desc->resets)
        reset_states(g, s, x[1], next);
    y[0] = ttt_decode_step(g, &s->b->net, s->states, x[0], next);
}

static hlo_val scan_tokens(building *b, const ttt_state_table *states, hlo_val *values)
{
    hlo_graph *g = b->graph->g;
    hlo_val *start = values + states->count;
    ttt_state_table_start(g, &b->net, states, values);
    memcpy(start, values, (size_t)states->count * sizeof *start);
    hlo_val inputs[2] = {hlo_transpose(g, b->in.tokens, HLO_DIMS(1, 0))}, logits;
    if (b->desc->resets)
        inputs[1] = hlo_transpose(g, b->in.resets, HLO_DIMS(1, 0));
    stepping s = {b, states, start};
    hlo_scan(g, step, &s, values, states->count, inputs, b->desc->resets ? 2 : 1, &logits, 1, NULL);
    return hlo_transpose(g, logits, HLO_DIMS(1, 0, 2));
}

static int64_t context_of(const ttt_program_desc *desc)
{
    return desc->context > 0 ? desc->context : desc->time;
}

/* The states of this task's sequences, and room for two sets of their values. */
static pjrt_status *new_states(const building *b, ttt_state_table **states, hlo_val **values)
{
    ttt_error error;
    *values = NULL;
    *states = ttt_state_table_new(b->net.config, b->net.params->layout, b->desc->batch,
                                  context_of(b->desc), ttt_wide_type(b->desc->compute), &error);
    if (*states == NULL)
        return ttt_failed(&error);
    *values = calloc(2 * (size_t)(*states)->count, sizeof **values);
    return *values == NULL ? PJRT_NO_MEMORY(call) : NULL;
}

static pjrt_status *primal_logits(building *b, hlo_val *logits)
{
    ttt_state_table *states;
    hlo_val *values;
    pjrt_status *st = new_states(b, &states, &values);
    if (st == NULL)
        *logits = scan_tokens(b, states, values);
    free(values);
    ttt_state_table_free(states);
    return st;
}

/* ---- tasks -------------------------------------------------------------------------------------
 */

static void put_diagnostics(building *b, const ttt_diagnostics *d)
{
    if (!b->desc->diagnostics)
        return;
    ttt_graph_result(b->graph, "inner_loss", d->inner_loss, HLO_SPEC(NULL));
    ttt_graph_result(b->graph, "rate", d->rate, HLO_SPEC(NULL));
    ttt_graph_result(b->graph, "state_norm", d->state_norm, HLO_SPEC(NULL));
}

static pjrt_status *build_logits(building *b)
{
    ttt_diagnostics diagnostics;
    hlo_val logits;
    if (b->desc->form == TTT_FORM_PRIMAL)
        PJRT_TRY(primal_logits(b, &logits));
    else
        logits =
            ttt_logits(b->graph->g, &b->net, &b->in, b->desc->diagnostics ? &diagnostics : NULL);
    ttt_graph_result(b->graph, "logits", logits,
                     HLO_SPEC(b->batch.axes[0], b->batch.axes[1], "model"));
    put_diagnostics(b, &diagnostics);
    return NULL;
}

static pjrt_status *loss_of(building *b, hlo_val labels, ttt_diagnostics *diagnostics,
                            hlo_val *loss)
{
    hlo_graph *g = b->graph->g;
    if (b->desc->form != TTT_FORM_PRIMAL) {
        ttt_target target = {.labels = labels};
        *loss = ttt_loss(g, &b->net, &b->in, &target, b->desc->diagnostics ? diagnostics : NULL);
        return NULL;
    }
    hlo_val logits;
    PJRT_TRY(primal_logits(b, &logits));
    *loss = hlo_mean(g, hlo_cross_entropy(g, logits, labels), HLO_DIMS(0, 1));
    return NULL;
}

static pjrt_status *build_loss(building *b, hlo_val labels)
{
    ttt_diagnostics diagnostics;
    hlo_val loss;
    PJRT_TRY(loss_of(b, labels, &diagnostics, &loss));
    ttt_graph_result(b->graph, "loss", loss, HLO_SPEC(NULL));
    put_diagnostics(b, &diagnostics);
    return NULL;
}

static pjrt_status *build_losses(building *b, hlo_val labels)
{
    hlo_graph *g = b->graph->g;
    ttt_diagnostics diagnostics;
    hlo_val losses;
    if (b->desc->form == TTT_FORM_PRIMAL) {
        hlo_val logits;
        PJRT_TRY(primal_logits(b, &logits));
        losses = hlo_cross_entropy(g, logits, labels);
    } else {
        losses = ttt_losses(g, &b->net, &b->in, labels, b->desc->diagnostics ? &diagnostics : NULL);
    }
    ttt_graph_result(b->graph, "losses", losses, HLO_SPEC(NULL)); /* for all processes */
    put_diagnostics(b, &diagnostics);
    return NULL;
}

static pjrt_status *build_grads(building *b, hlo_val labels)
{
    const ttt_params *params = b->net.params;
    hlo_val loss, *grads = b->values + params->count;
    PJRT_TRY(loss_of(b, labels, NULL, &loss));
    hlo_grad(b->graph->g, loss, b->values, params->count, grads);
    ttt_graph_result(b->graph, "loss", loss, HLO_SPEC(NULL));
    for (int i = 0; i < params->count; i++)
        ttt_graph_result(b->graph, params->list[i].name, grads[i], params->list[i].spec);
    return NULL;
}

/* Where a state lives on the mesh: split by sequences. */
static hlo_spec state_spec(const building *b, const ttt_state_table *states, int index)
{
    hlo_spec spec = {{0}};
    spec.axes[batch_dim(states, index)] = b->batch.axes[0];
    return spec;
}

static void put_states(building *b, const ttt_state_table *states, const hlo_val *values)
{
    for (int i = 0; i < states->count; i++)
        ttt_graph_result(b->graph, states->list[i].name, values[i], state_spec(b, states, i));
}

/* Where sequences are, and what comes next: one token, several, or several with their labels. */
static void go_on(building *b, const ttt_state_table *states, hlo_val *values)
{
    hlo_graph *g = b->graph->g;
    const ttt_program_desc *desc = b->desc;
    hlo_val *moved = values + states->count, labels = {0}, result;
    ttt_state_table_bind(g, states, values);
    for (int i = 0; i < states->count; i++)
        hlo_shard_param(g, values[i], state_spec(b, states, i));
    hlo_val tokens =
        desc->kind == TTT_PROGRAM_DECODE
            ? ttt_graph_param(b->graph, "tokens", HLO_SHAPE(HLO_S32, desc->batch), b->batch)
            : sequence_param(b, "tokens", HLO_S32);
    if (desc->kind == TTT_PROGRAM_STREAM)
        labels = sequence_param(b, "labels", HLO_S32);
    memcpy(moved, values, (size_t)states->count * sizeof *moved);
    if (desc->kind == TTT_PROGRAM_DECODE)
        result = ttt_decode_step(g, &b->net, states, tokens, moved);
    else if (desc->kind == TTT_PROGRAM_EXTEND)
        result = ttt_prefill(g, &b->net, states, tokens, moved);
    else
        result = ttt_prefill_losses(g, &b->net, states, tokens, labels, moved);
    if (desc->kind == TTT_PROGRAM_STREAM)
        ttt_graph_result(b->graph, "losses", result, HLO_SPEC(NULL));
    else
        ttt_graph_result(b->graph, "logits", result, HLO_SPEC(b->batch.axes[0], "model"));
    int first = b->graph->n_results;
    put_states(b, states, moved);
    for (int i = 0; i < states->count; i++)
        hlo_donate(g, values[i], first + i);
}

/* ---- sequences in and out of a batch -----------------------------------------------------------
 */

/* Names of the parts of one sequence, which stand beside those of the batch. */
static hlo_val one_param(building *b, const ttt_state_table *one, int index)
{
    char name[64];
    snprintf(name, sizeof name, "one.%s", one->list[index].name);
    return ttt_graph_param(b->graph, name, one->list[index].shape, HLO_SPEC(NULL));
}

/* The place of sequence `slot` in a part of the batch. */
static void slot_start(hlo_graph *g, const ttt_state_table *states, int index, hlo_val slot,
                       hlo_val start[HLO_MAX_RANK])
{
    for (int i = 0; i < states->list[index].shape.rank; i++)
        start[i] = i == batch_dim(states, index) ? slot : hlo_scalar_int(g, HLO_S32, 0);
}

/* values: the batch's parts, then those of one sequence. */
static void exchange(building *b, const ttt_state_table *states, const ttt_state_table *one,
                     hlo_val *values)
{
    hlo_graph *g = b->graph->g;
    bool put = b->desc->kind == TTT_PROGRAM_PUT;
    int count = states->count;
    ttt_state_table_bind(g, states, values);
    for (int i = 0; i < count; i++)
        hlo_shard_param(g, values[i], state_spec(b, states, i));
    for (int i = 0; i < count && put; i++)
        values[count + i] = one_param(b, one, i);
    hlo_val start[HLO_MAX_RANK];
    hlo_val slot = ttt_graph_param(b->graph, "slot", HLO_SCALAR(HLO_S32), HLO_SPEC(NULL));
    for (int i = 0; i < count; i++) {
        slot_start(g, states, i, slot, start);
        const hlo_shape *shape = &one->list[i].shape;
        hlo_dims sizes = {.n = shape->rank};
        memcpy(sizes.d, shape->dims, sizeof sizes.d);
        hlo_val moved = put ? hlo_dynamic_update(g, values[i], values[count + i], start)
                            : hlo_dynamic_slice(g, values[i], start, sizes);
        ttt_graph_result(b->graph, states->list[i].name, moved,
                         put ? state_spec(b, states, i) : HLO_SPEC(NULL));
    }
    for (int i = 0; i < count && put; i++)
        hlo_donate(g, values[i], i);
}

static pjrt_status *build_exchange(building *b)
{
    ttt_state_table *states, *one = NULL;
    hlo_val *values;
    ttt_error error;
    pjrt_status *st = new_states(b, &states, &values);
    if (st == NULL) {
        one = ttt_state_table_new(b->net.config, states->layout, 1, context_of(b->desc),
                                  ttt_wide_type(b->desc->compute), &error);
        st = one == NULL ? ttt_failed(&error) : NULL;
    }
    if (st == NULL)
        exchange(b, states, one, values);
    free(values);
    ttt_state_table_free(one);
    ttt_state_table_free(states);
    return st;
}

/* ---- one of them -------------------------------------------------------------------------------
 */

static pjrt_status *build_with_states(building *b)
{
    ttt_state_table *states;
    hlo_val *values;
    pjrt_status *st = new_states(b, &states, &values);
    if (st == NULL && b->desc->kind == TTT_PROGRAM_START) {
        ttt_state_table_start(b->graph->g, &b->net, states, values);
        put_states(b, states, values);
    } else if (st == NULL) {
        go_on(b, states, values);
    }
    free(values);
    ttt_state_table_free(states);
    return st;
}

/* What ttt_train_step gives back: the state, then figures, of which `skipped` is a predicate. */
static void train_results(building *b, const ttt_train_args *at)
{
    const ttt_params *params = b->net.params;
    ttt_sharded *results = calloc((size_t)at->n_results, sizeof *results);
    if (results == NULL) {
        hlo_fail(b->graph->g, HLO_ERROR_MEMORY, "out of memory");
        return;
    }
    for (int i = 0; i < at->step; i++) {
        const ttt_param *p = &params->list[i % params->count];
        results[i] = (ttt_sharded){p->shape, p->spec};
        results[i].shape.type = ttt_wide_type(b->desc->compute);
    }
    for (int i = at->step; i < at->n_results; i++)
        results[i].shape = HLO_SCALAR(HLO_F32);
    int64_t layers = b->net.config->n_layers;
    results[at->step].shape.type = HLO_S32;
    results[at->skipped].shape.type = HLO_PRED;
    if (b->desc->diagnostics) {
        results[at->inner_loss].shape = HLO_SHAPE(HLO_F32, layers, 4, b->desc->time);
        results[at->inner_rate].shape = HLO_SHAPE(HLO_F32, layers, 3);
        results[at->state_norm].shape = HLO_SHAPE(HLO_F32, layers, 2);
    }
    b->graph->results = results;
    b->graph->n_results = at->n_results;
}

static pjrt_status *build_train(building *b)
{
    const ttt_recipe *recipe = b->desc->recipe;
    ttt_train_options options = b->desc->train;
    ttt_train_args at;
    if (recipe == NULL || recipe->sequence_length != b->desc->time ||
        recipe->batch_tokens != b->desc->batch * b->desc->time)
        return PJRT_FAIL(INVALID_ARGUMENT, call, "training needs a recipe for %lld x %lld tokens",
                         (long long)b->desc->batch, (long long)b->desc->time);
    options.resets = b->desc->resets;
    options.diagnostics = b->desc->diagnostics;
    ttt_train_step(b->graph->g, &b->net, recipe, &options, &at);
    if (hlo_graph_error(b->graph->g) == NULL)
        train_results(b, &at);
    if (b->desc->places != NULL)
        *b->desc->places = at;
    return NULL;
}

static pjrt_status *build(building *b)
{
    const ttt_program_desc *desc = b->desc;
    if (desc->kind == TTT_PROGRAM_TRAIN)
        return build_train(b);
    if (desc->kind == TTT_PROGRAM_PUT || desc->kind == TTT_PROGRAM_TAKE)
        return build_exchange(b);
    ttt_params_bind(b->graph->g, b->net.params, ttt_wide_type(desc->compute), b->values);
    if (desc->kind == TTT_PROGRAM_START || desc->kind == TTT_PROGRAM_DECODE ||
        desc->kind == TTT_PROGRAM_EXTEND || desc->kind == TTT_PROGRAM_STREAM)
        return build_with_states(b);
    hlo_val labels = {0};
    b->in.tokens = sequence_param(b, "tokens", HLO_S32);
    if (desc->kind != TTT_PROGRAM_LOGITS)
        labels = sequence_param(b, "labels", HLO_S32);
    if (desc->resets)
        b->in.resets = sequence_param(b, "resets", HLO_PRED);
    if (desc->kind == TTT_PROGRAM_LOGITS)
        return build_logits(b);
    if (desc->kind == TTT_PROGRAM_LOSSES)
        return build_losses(b, labels);
    return desc->kind == TTT_PROGRAM_LOSS ? build_loss(b, labels) : build_grads(b, labels);
}

static pjrt_status *check(const ttt_program_desc *desc, const ttt_config *config)
{
    bool learner = ttt_mixer_learns(config->mixer);
    if (desc->batch < 1 || desc->time < 1)
        return PJRT_FAIL(INVALID_ARGUMENT, call, "%lld sequences of %lld tokens",
                         (long long)desc->batch, (long long)desc->time);
    if (desc->kind == TTT_PROGRAM_TRAIN && desc->form == TTT_FORM_PRIMAL)
        return PJRT_FAIL(INVALID_ARGUMENT, call, "training is in the dual form alone");
    if (desc->diagnostics && desc->form == TTT_FORM_PRIMAL)
        return PJRT_FAIL(INVALID_ARGUMENT, call, "diagnostics are of the dual form alone");
    if (desc->diagnostics && !learner)
        return PJRT_FAIL(INVALID_ARGUMENT, call,
                         "diagnostics are of learners, and the mixer %s has none",
                         ttt_mixer_name(config->mixer));
    return NULL;
}

/* Where gradients are asked for, only with the kernel for those. */
static bool calls_scan(const ttt_program_desc *desc)
{
    bool backwards = desc->kind == TTT_PROGRAM_TRAIN || desc->kind == TTT_PROGRAM_GRADS;
    unsigned needed = TTT_KERNEL_SCAN | (backwards ? TTT_KERNEL_GRADIENT : 0);
    return (desc->calls & needed) == needed;
}

pjrt_status *ttt_build_graph(const ttt_program_desc *desc, const ttt_config *config,
                             const ttt_params *params, const ttt_mesh *mesh, ttt_graph *out)
{
    static const char *const names[] = {"logits", "loss",   "losses", "grads", "start", "decode",
                                        "extend", "stream", "put",    "take",  "train"};
    building b = {.desc = desc, .graph = out};
    *out = (ttt_graph){0};
    PJRT_TRY(check(desc, config));
    PJRT_TRY(ttt_mesh_check(mesh, params));
    PJRT_TRY(ttt_program_batch_spec(desc, mesh, &b.batch));
    PJRT_TRY(ttt_graph_new(names[desc->kind], mesh, out));
    b.values = calloc(2 * (size_t)params->count, sizeof *b.values);
    b.net = (ttt_net){.config = config,
                      .params = params,
                      .values = b.values,
                      .compute = desc->compute,
                      .remat = desc->remat,
                      .row_sums_as_matmul = desc->form == TTT_FORM_MATRIX,
                      .use_step_kernel = (desc->calls & TTT_KERNEL_STEP) != 0,
                      .use_scan_kernel = calls_scan(desc),
                      .use_product_kernel = (desc->calls & TTT_KERNEL_PRODUCT) != 0,
                      .batch_axes = b.batch.axes[0],
                      .time_axis = b.batch.axes[1]};
    pjrt_status *st = b.values == NULL ? PJRT_NO_MEMORY(call) : build(&b);
    if (st == NULL && hlo_graph_error(out->g) != NULL)
        st = ttt_graph_failed(out->g);
    if (st != NULL)
        ttt_graph_free(out);
    free(b.values);
    return st;
}

void ttt_program_desc_fit(ttt_program_desc *desc, const char *platform)
{
    if (desc->form == TTT_FORM_DUAL && strcmp(platform, "tpu") == 0)
        desc->form = TTT_FORM_MATRIX;
}

pjrt_status *ttt_compile_program_for(const ttt_program_desc *desc, const ttt_devices *devices,
                                     const ttt_config *config, const ttt_params *params,
                                     ttt_program **out)
{
    ttt_graph graph;
    ttt_program_desc fitted = *desc;
    *out = NULL;
    ttt_program_desc_fit(&fitted, pjrt_client_platform(devices->client));
    PJRT_TRY(ttt_build_graph(&fitted, config, params, &devices->mesh, &graph));
    pjrt_status *st = ttt_program_compile(devices, &graph, out);
    ttt_graph_free(&graph);
    return st;
}

pjrt_status *ttt_compile_program(const ttt_program_desc *desc, const ttt_model *model,
                                 ttt_program **out)
{
    return ttt_compile_program_for(desc, model->devices, &model->config, model->params, out);
}
