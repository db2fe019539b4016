/* One token at a time: the table of what a sequence carries, and the network over one token. */
#include "model/network_internal.h"
#include "model/records.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the table ------------------------------------------------------------------------------- */

enum { STATE_NAME = 40 };

/* Walks over the table; the first walk only counts. */
struct net_state_table {
    const ttt_config *config;
    ttt_state_table *states; /* list is NULL while counting */
    char (*names)[STATE_NAME];
    int64_t context, layer;
    hlo_type type;
};

int64_t net_state_context(const net_state_table *table)
{
    return table->context;
}

hlo_type net_state_type(const net_state_table *table)
{
    return table->type;
}

void net_state_array(net_state_table *t, const char *name, hlo_shape shape)
{
    ttt_state_table *states = t->states;
    int index = states->count++, lead = states->layout == TTT_STACKED ? 2 : 1;
    if (states->list == NULL)
        return;
    hlo_shape full = {.type = shape.type, .rank = shape.rank + lead};
    full.dims[0] = t->config->n_layers;
    full.dims[lead - 1] = states->batch;
    memcpy(full.dims + lead, shape.dims, (size_t)shape.rank * sizeof *shape.dims);
    if (lead == 2)
        snprintf(t->names[index], STATE_NAME, "layers.*.%s", name);
    else
        snprintf(t->names[index], STATE_NAME, "layers.%lld.%s", (long long)t->layer, name);
    states->list[index] = (ttt_state_entry){t->names[index], full};
}

static void mixer_state(net_state_table *t, const ttt_config *c)
{
    switch (c->mixer) {
    case TTT_MIXER_LINEAR:
    case TTT_MIXER_MLP:
        mixer_ttt_state(t, c);
        break;
    case TTT_MIXER_ATTENTION:
        mixer_attention_state(t, c);
        break;
    case TTT_MIXER_LINEAR_ATTENTION:
        mixer_linear_attention_state(t, c);
        break;
    case TTT_MIXER_MAMBA:
        mixer_mamba_state(t, c);
        break;
    }
}

/* Parts that all layers share: the position, and of learners the place within the mini-batch. */
static int shared_parts(const ttt_config *c)
{
    return ttt_mixer_learns(c->mixer) ? 2 : 1;
}

/* The order is net_block's: what a block looks back on, then what its mixer does. */
static void walk(net_state_table *t)
{
    const ttt_config *c = t->config;
    ttt_state_table *states = t->states;
    static const char *const names[] = {"position", "place"};
    for (states->count = 0; states->count < shared_parts(c); states->count++) {
        if (states->list != NULL)
            states->list[states->count] =
                (ttt_state_entry){names[states->count], HLO_SHAPE(HLO_S32, states->batch)};
    }
    int64_t walks = states->layout == TTT_STACKED ? 1 : c->n_layers;
    for (t->layer = 0; t->layer < walks; t->layer++) {
        if (c->pre_conv)
            net_state_array(t, "conv_tail", HLO_SHAPE(t->type, c->conv_width - 1, c->hidden_size));
        mixer_state(t, c);
    }
}

ttt_state_table *ttt_state_table_new(const ttt_config *config, ttt_layout layout, int64_t batch,
                                     int64_t context, hlo_type type, ttt_error *error)
{
    if (!ttt_config_check(config, error))
        return NULL;
    if (batch < 1 || context < 1) {
        ttt__fail(error, "a state for %lld sequences of up to %lld tokens", (long long)batch,
                  (long long)context);
        return NULL;
    }
    ttt_state_table *states = calloc(1, sizeof *states);
    net_state_table t = {.config = config, .states = states, .context = context, .type = type};
    if (states != NULL) {
        states->batch = batch;
        states->layout = layout;
        walk(&t);
        size_t count = (size_t)states->count; /* names stand behind the list */
        ttt_state_entry *list = calloc(count, sizeof *list + STATE_NAME);
        if (list != NULL) {
            states->list = list;
            t.names = (char(*)[STATE_NAME])(list + count);
            walk(&t);
            return states;
        }
    }
    free(states);
    ttt__no_memory(error);
    return NULL;
}

void ttt_state_table_free(ttt_state_table *states)
{
    if (states == NULL)
        return;
    free(states->list);
    free(states);
}

void ttt_state_table_bind(hlo_graph *g, const ttt_state_table *states, hlo_val *values)
{
    for (int i = 0; i < states->count; i++)
        values[i] = hlo_param(g, states->list[i].name, states->list[i].shape);
}

/* ---- starting -------------------------------------------------------------------------------- */

/* Parts of one layer. */
static int parts_of(const ttt_net *net, const ttt_state_table *states)
{
    int n = states->count - shared_parts(net->config);
    return states->layout == TTT_STACKED ? n : n / (int)net->config->n_layers;
}

/* Fills in what does not start as zero; `state` is the layer's. */
static void start_layer(hlo_graph *g, const net_layer *l, int64_t batch, hlo_val *state)
{
    const ttt_config *c = l->net->config;
    if (ttt_mixer_learns(c->mixer))
        mixer_ttt_start(g, l, batch, state + (c->pre_conv ? 1 : 0));
}

/* A loop over layers that hands a callback the layer and its state. */
typedef struct layer_loop {
    net_layer layer;
    hlo_val *values, *state;
    int n_params, n_state;
    int64_t batch;
    hlo_val position;
} layer_loop;

static void start_in_loop(hlo_graph *g, void *ctx, hlo_val step, const hlo_val *carry,
                          const hlo_val *in, hlo_val *next, hlo_val *out)
{
    layer_loop *loop = ctx;
    (void)step, (void)carry, (void)next;
    net_layer_slices(loop->layer.net->params, in, loop->values);
    for (int i = 0; i < loop->n_state; i++)
        out[i] = in[loop->n_params + i];
    start_layer(g, &loop->layer, loop->batch, out);
}

static void step_in_loop(hlo_graph *g, void *ctx, hlo_val step, const hlo_val *carry,
                         const hlo_val *in, hlo_val *next, hlo_val *out)
{
    layer_loop *loop = ctx;
    (void)step;
    net_layer_slices(loop->layer.net->params, in, loop->values);
    for (int i = 0; i < loop->n_state; i++)
        out[i] = in[loop->n_params + i];
    next[0] = net_block(g, &loop->layer, carry[0], loop->position, out);
}

/* Runs `body` over the layers, whose states `state` are given and replaced; x is carried, or null.
 */
static void over_layers(hlo_graph *g, const ttt_net *net, const ttt_state_table *states,
                        hlo_scan_body body, const hlo_val *shared, hlo_val *x, hlo_val *state)
{
    int count = net->params->count, n_state = parts_of(net, states);
    hlo_val *lists = calloc((size_t)(2 * count + 2 * n_state), sizeof *lists);
    if (lists == NULL) {
        hlo_fail(g, HLO_ERROR_MEMORY, "out of memory");
        return;
    }
    layer_loop loop = {.layer = {.net = net, .index = -1},
                       .values = lists,
                       .n_state = n_state,
                       .batch = states->batch,
                       .position = shared[0]};
    if (ttt_mixer_learns(net->config->mixer))
        loop.layer.place = shared[1];
    hlo_val *in = lists + count, *out = in + count + n_state;
    loop.layer.values = lists;
    loop.n_params = net_stacked(net->params, net->values, in);
    memcpy(in + loop.n_params, state, (size_t)n_state * sizeof *state);
    hlo_scan(g, body, &loop, x, x == NULL ? 0 : 1, in, loop.n_params + n_state, out, n_state, NULL);
    memcpy(state, out, (size_t)n_state * sizeof *state);
    free(lists);
}

void ttt_state_table_start(hlo_graph *g, const ttt_net *net, const ttt_state_table *states,
                           hlo_val *values)
{
    int shared = shared_parts(net->config);
    for (int i = 0; i < states->count; i++)
        values[i] = hlo_full(g, states->list[i].shape, 0);
    if (states->layout == TTT_STACKED) {
        over_layers(g, net, states, start_in_loop, values, NULL, values + shared);
        return;
    }
    for (int i = 0; i < (int)net->config->n_layers; i++)
        start_layer(g, &(net_layer){.net = net, .index = i, .values = net->values}, states->batch,
                    values + shared + i * parts_of(net, states));
}

/* ---- one token ------------------------------------------------------------------------------- */

/* Through all blocks: one token x [batch, hidden], or several [batch, time, hidden]. */
static hlo_val through_blocks(hlo_graph *g, const ttt_net *net, const ttt_state_table *states,
                              hlo_val x, hlo_val *values)
{
    int shared = shared_parts(net->config);
    if (net->params->layout != states->layout) {
        hlo_fail(g, HLO_ERROR_VALUE, "parameters and states are laid out differently");
        return (hlo_val){0};
    }
    if (states->layout == TTT_STACKED) {
        hlo_scope_push(g, "block");
        over_layers(g, net, states, step_in_loop, values, &x, values + shared);
        hlo_scope_pop(g);
    }
    for (int i = 0; i < (int)net->config->n_layers && states->layout == TTT_SEPARATE; i++) {
        net_layer l = {.net = net, .index = i, .values = net->values};
        if (ttt_mixer_learns(net->config->mixer))
            l.place = values[1];
        hlo_scope_push(g, "block.%d", i);
        x = net_block(g, &l, x, values[0], values + shared + i * parts_of(net, states));
        hlo_scope_pop(g);
    }
    return net_last_norm(g, net, x);
}

/* The position and, of learners, the place that come after these. Mini-batches end where the
 * position says, wherever documents started. */
static void count_on(hlo_graph *g, const ttt_config *c, hlo_val *shared)
{
    hlo_val one = hlo_scalar_int(g, HLO_S32, 1);
    if (ttt_mixer_learns(c->mixer)) {
        hlo_val last = mixer_ttt_ends(g, c, shared[0]);
        shared[1] = hlo_select(g, last, hlo_like(g, shared[1], 0), hlo_add(g, shared[1], one));
    }
    shared[0] = hlo_add(g, shared[0], one);
}

hlo_val ttt_decode_step(hlo_graph *g, const ttt_net *net, const ttt_state_table *states,
                        hlo_val tokens, hlo_val *values)
{
    hlo_val x = through_blocks(g, net, states, net_embed(g, net, tokens), values);
    count_on(g, net->config, values);
    return net_logits(g, net, x);
}

/* ---- many tokens ----------------------------------------------------------------------------- */

/* Whole mini-batches: the place after them is the one before. */
static hlo_val go_on(hlo_graph *g, const ttt_net *net, const ttt_state_table *states,
                     hlo_val tokens, hlo_val *values)
{
    hlo_val x = through_blocks(g, net, states, net_embed(g, net, tokens), values);
    hlo_val time = hlo_scalar_int(g, HLO_S32, hlo_dim(g, tokens, 1));
    values[0] = hlo_add(g, values[0], time);
    return x;
}

hlo_val ttt_prefill(hlo_graph *g, const ttt_net *net, const ttt_state_table *states, hlo_val tokens,
                    hlo_val *values)
{
    hlo_val x = go_on(g, net, states, tokens, values);
    int64_t batch = hlo_dim(g, x, 0), time = hlo_dim(g, x, 1);
    x = hlo_slice_dim(g, x, 1, time - 1, time);
    return net_logits(g, net, hlo_reshape(g, x, HLO_DIMS(batch, net->config->hidden_size)));
}

hlo_val ttt_prefill_losses(hlo_graph *g, const ttt_net *net, const ttt_state_table *states,
                           hlo_val tokens, hlo_val labels, hlo_val *values)
{
    return net_losses(g, net, go_on(g, net, states, tokens, values), labels);
}
