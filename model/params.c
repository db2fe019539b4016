/*
 * The table of parameters: names, shapes, starts and places on a mesh, in the order in which the
 * network uses them. Names are Hugging Face's for the TTT model; the baselines' are made alike.
 */
#include "model/records.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = TTT__NAME };

/* Walks over the table; the first walk only counts. */
typedef struct table {
    const ttt_config *config;
    ttt_params *params; /* list is NULL while counting */
    char (*names)[NAME_BYTES];
    int64_t layer; /* -1 outside */
} table;

/* The same in all layers, as one array. */
static void stack(ttt_param *p, int64_t layers)
{
    p->layers = layers;
    memmove(p->shape.dims + 1, p->shape.dims, (size_t)p->shape.rank * sizeof *p->shape.dims);
    memmove(p->spec.axes + 1, p->spec.axes, (size_t)p->shape.rank * sizeof *p->spec.axes);
    p->shape.dims[0] = layers;
    p->shape.rank++;
    p->spec.axes[0] = NULL;
}

static void add(table *t, const char *name, ttt_param what)
{
    ttt_params *p = t->params;
    bool stacked = t->layer >= 0 && p->layout == TTT_STACKED;
    if (stacked)
        stack(&what, t->config->n_layers);
    if (p->list != NULL) {
        char *full = t->names[p->count];
        if (t->layer < 0)
            snprintf(full, NAME_BYTES, "%s", name);
        else if (stacked)
            snprintf(full, NAME_BYTES, "model.layers.*.%s", name);
        else
            snprintf(full, NAME_BYTES, "model.layers.%lld.%s", (long long)t->layer, name);
        what.name = full;
        what.decay = true;
        p->list[p->count] = what;
    }
    p->count++;
    p->elements += what.scales ? 0 : hlo_shape_elements(&what.shape);
}

/* As products written by hand take it; `what` has the shape [out, in]. */
static void add_packed(table *t, const char *name, ttt_param what)
{
    char scale[NAME_BYTES];
    what.shape.type = t->params->weight_dtype;
    what.transposed = false;
    what.packed = true;
    add(t, name, what);
    if (what.shape.type != HLO_S8)
        return;
    snprintf(scale, sizeof scale, "%s_scale", name);
    add(t, scale, (ttt_param){.shape = HLO_SHAPE(HLO_F32, what.shape.dims[0]), .scales = true});
}

/* A matrix [in, out], stored the other way round. */
static void add_matrix(table *t, const char *name, ttt_param what)
{
    what.transposed = true;
    if (t->params->weight_dtype == HLO_TYPE_NONE) {
        add(t, name, what);
        return;
    }
    what.shape = HLO_SHAPE(HLO_F32, what.shape.dims[1], what.shape.dims[0]);
    add_packed(t, name, what);
}

static void matrix(table *t, const char *name, int64_t in, int64_t out, hlo_spec spec)
{
    add_matrix(t, name,
               (ttt_param){.shape = HLO_SHAPE(HLO_F32, in, out),
                           .init = TTT_INIT_NORMAL,
                           .scale = t->config->initializer_range,
                           .spec = spec});
}

static void filled(table *t, const char *name, hlo_shape shape, ttt_init init, hlo_spec spec)
{
    add(t, name, (ttt_param){.shape = shape, .init = init, .spec = spec});
}

static void normal(table *t, const char *name, hlo_shape shape, hlo_spec spec)
{
    add(t, name,
        (ttt_param){.shape = shape,
                    .init = TTT_INIT_NORMAL,
                    .scale = t->config->initializer_range,
                    .spec = spec});
}

static void norm(table *t, const char *name)
{
    filled(t, name, HLO_SHAPE(HLO_F32, t->config->hidden_size), TTT_INIT_ONES, HLO_SPEC(NULL));
}

/* NAME.weight and NAME.bias of a depthwise convolution. */
static void conv(table *t, const char *name, int64_t channels, const char *axis)
{
    int64_t width = t->config->conv_width;
    char full[NAME_BYTES];
    snprintf(full, sizeof full, "%s.weight", name);
    add(t, full,
        (ttt_param){.shape = HLO_SHAPE(HLO_F32, channels, 1, width),
                    .init = TTT_INIT_LECUN_NORMAL,
                    .scale = (double)width,
                    .spec = HLO_SPEC(axis)});
    snprintf(full, sizeof full, "%s.bias", name);
    filled(t, full, HLO_SHAPE(HLO_F32, channels), TTT_INIT_ZEROS, HLO_SPEC(axis));
}

#define MIXER "seq_modeling_block."
/* Devices that share out sequences or their times share out parameters too. */
#define FSDP "fsdp+time"
#define IN_SPEC HLO_SPEC(FSDP, "model")  /* of a matrix into heads or wider than the stream */
#define OUT_SPEC HLO_SPEC("model", FSDP) /* of the matrix back */

/* What the TTT layer has beside projections: the learner's start, its norm and its rates. */
static void learner(table *t)
{
    const ttt_config *c = t->config;
    int64_t heads = c->n_heads, d = c->hidden_size / heads;
    hlo_spec by_head = HLO_SPEC("model");
    if (c->learnable_token_idx)
        filled(t, MIXER "learnable_token_idx", HLO_SHAPE(HLO_F32, c->mini_batch_size),
               TTT_INIT_ZEROS, HLO_SPEC(NULL));
    if (c->learnable_lr) {
        normal(t, MIXER "learnable_ttt_lr_weight", HLO_SHAPE(HLO_F32, heads, 1, c->hidden_size),
               by_head);
        filled(t, MIXER "learnable_ttt_lr_bias", HLO_SHAPE(HLO_F32, heads, 1), TTT_INIT_ZEROS,
               by_head);
    }
    if (c->inner_decay) { /* gates near 1: what is learnt stays for ten to a thousand tokens */
        normal(t, MIXER "decay_weight", HLO_SHAPE(HLO_F32, heads, 1, c->hidden_size), by_head);
        filled(t, MIXER "decay_bias", HLO_SHAPE(HLO_F32, heads, 1), TTT_INIT_STEP_BIAS, by_head);
        filled(t, MIXER "decay_log", HLO_SHAPE(HLO_F32, heads, 1), TTT_INIT_ZEROS, by_head);
    }
    if (c->inner_momentum) {
        normal(t, MIXER "momentum_weight", HLO_SHAPE(HLO_F32, heads, 1, c->hidden_size), by_head);
        filled(t, MIXER "momentum_bias", HLO_SHAPE(HLO_F32, heads, 1), TTT_INIT_ZEROS, by_head);
    }
    if (c->inner_norm) {
        filled(t, MIXER "ttt_norm_weight", HLO_SHAPE(HLO_F32, heads, d), TTT_INIT_ONES, by_head);
        filled(t, MIXER "ttt_norm_bias", HLO_SHAPE(HLO_F32, heads, d), TTT_INIT_ZEROS, by_head);
    }
    for (int i = 0; i < ttt_learner_layers(c); i++) {
        static const char *const weights[] = {MIXER "W1", MIXER "W2", MIXER "W3", MIXER "W4"};
        static const char *const biases[] = {MIXER "b1", MIXER "b2", MIXER "b3", MIXER "b4"};
        int64_t in = ttt_learner_in(c, i), out = ttt_learner_out(c, i);
        if (c->learnable_w0 || i < ttt_learner_first(c))
            add(t, weights[i],
                (ttt_param){.shape = HLO_SHAPE(HLO_F32, heads, in, out),
                            .init = TTT_INIT_NORMAL,
                            .scale = c->inner_range > 0 ? c->inner_range : c->initializer_range,
                            .spec = by_head});
        if (c->inner_bias)
            filled(t, biases[i], HLO_SHAPE(HLO_F32, heads, 1, out), TTT_INIT_ZEROS, by_head);
    }
}

/* Every mixer that has queries, keys and values. */
static void mixer_heads(table *t)
{
    const ttt_config *c = t->config;
    int64_t hidden = c->hidden_size;
    int64_t kv = c->n_kv_heads > 0 ? hidden / c->n_heads * c->n_kv_heads : hidden;
    matrix(t, MIXER "q_proj.weight", hidden, hidden, IN_SPEC);
    if (!c->share_qk)
        matrix(t, MIXER "k_proj.weight", hidden, kv, IN_SPEC);
    matrix(t, MIXER "v_proj.weight", hidden, kv, IN_SPEC);
    if (c->share_qk) {
        conv(t, MIXER "conv_q", hidden, "model");
        conv(t, MIXER "conv_k", hidden, "model");
    }
    if (ttt_mixer_learns(c->mixer))
        learner(t);
    if (c->post_norm) {
        filled(t, MIXER "post_norm.weight", HLO_SHAPE(HLO_F32, hidden), TTT_INIT_ONES,
               HLO_SPEC("model"));
        filled(t, MIXER "post_norm.bias", HLO_SHAPE(HLO_F32, hidden), TTT_INIT_ZEROS,
               HLO_SPEC("model"));
    }
    if (c->use_gate)
        matrix(t, MIXER "g_proj.weight", hidden, hidden, IN_SPEC);
    matrix(t, MIXER "o_proj.weight", hidden, hidden, OUT_SPEC);
}

/* The selective scan, with the sizes of its authors: steps of rank hidden / 16, rounded up. */
static void mixer_mamba(table *t)
{
    const ttt_config *c = t->config;
    int64_t hidden = c->hidden_size, inner = hidden * c->mamba_expand, rank = (hidden + 15) / 16;
    matrix(t, MIXER "in_proj.weight", hidden, 2 * inner, IN_SPEC);
    conv(t, MIXER "conv1d", inner, "model");
    matrix(t, MIXER "x_proj.weight", inner, rank + 2 * c->mamba_state, HLO_SPEC("model"));
    add_matrix(t, MIXER "dt_proj.weight",
               (ttt_param){.shape = HLO_SHAPE(HLO_F32, rank, inner),
                           .init = TTT_INIT_UNIFORM,
                           .scale = 1 / sqrt((double)rank),
                           .spec = HLO_SPEC(NULL, "model")});
    filled(t, MIXER "dt_proj.bias", HLO_SHAPE(HLO_F32, inner), TTT_INIT_STEP_BIAS,
           HLO_SPEC("model"));
    filled(t, MIXER "A_log", HLO_SHAPE(HLO_F32, inner, c->mamba_state), TTT_INIT_LOG_COUNT,
           HLO_SPEC("model"));
    filled(t, MIXER "D", HLO_SHAPE(HLO_F32, inner), TTT_INIT_ONES, HLO_SPEC("model"));
    matrix(t, MIXER "out_proj.weight", inner, hidden, OUT_SPEC);
}

static void block(table *t)
{
    const ttt_config *c = t->config;
    int64_t hidden = c->hidden_size;
    if (c->pre_conv) {
        norm(t, "conv.norm.weight");
        conv(t, "conv.conv", hidden, NULL);
    }
    norm(t, "seq_norm.weight");
    if (c->mixer == TTT_MIXER_MAMBA)
        mixer_mamba(t);
    else
        mixer_heads(t);
    if (c->intermediate_size == 0)
        return;
    norm(t, "ffn_norm.weight");
    matrix(t, "mlp.gate_proj.weight", hidden, c->intermediate_size, IN_SPEC);
    matrix(t, "mlp.up_proj.weight", hidden, c->intermediate_size, IN_SPEC);
    matrix(t, "mlp.down_proj.weight", c->intermediate_size, hidden, OUT_SPEC);
}

static void walk(table *t)
{
    const ttt_config *c = t->config;
    t->params->count = 0;
    t->params->elements = 0;
    t->layer = -1;
    (t->params->weight_dtype == HLO_TYPE_NONE ? add : add_packed)(
        t, "model.embed_tokens.weight",
        (ttt_param){.shape = HLO_SHAPE(HLO_F32, c->vocab_size, c->hidden_size),
                    .init = TTT_INIT_NORMAL,
                    .scale = c->initializer_range,
                    .spec = OUT_SPEC});
    int64_t walks = t->params->layout == TTT_STACKED ? 1 : c->n_layers;
    for (t->layer = 0; t->layer < walks; t->layer++)
        block(t);
    t->layer = -1;
    norm(t, "model.norm.weight");
    if (!c->tie_embeddings)
        matrix(t, "lm_head.weight", c->hidden_size, c->vocab_size, IN_SPEC);
}

static ttt_params *make_table(const ttt_config *config, ttt_layout layout, hlo_type weight_dtype,
                              ttt_error *error)
{
    if (!ttt_config_check(config, error))
        return NULL;
    ttt_params *params = calloc(1, sizeof *params);
    table t = {config, params, NULL, -1};
    if (params != NULL) {
        params->layout = layout;
        params->weight_dtype = weight_dtype;
        walk(&t);
        size_t count = (size_t)params->count; /* names stand behind the list */
        ttt_param *list = calloc(count, sizeof *list + NAME_BYTES);
        if (list != NULL) {
            params->list = list;
            t.names = (char(*)[NAME_BYTES])(list + count);
            walk(&t);
            return params;
        }
    }
    free(params);
    ttt__no_memory(error);
    return NULL;
}

ttt_params *ttt_params_new(const ttt_config *config, ttt_layout layout, ttt_error *error)
{
    return make_table(config, layout, HLO_TYPE_NONE, error);
}

ttt_params *ttt_params_packed(const ttt_config *config, hlo_type weight_dtype, ttt_error *error)
{
    if (weight_dtype != HLO_F32 && weight_dtype != HLO_BF16 && weight_dtype != HLO_S8) {
        ttt__fail(error, "weights are packed as f32, bf16 or s8, not %s",
                  hlo_type_name(weight_dtype));
        return NULL;
    }
    return make_table(config, TTT_SEPARATE, weight_dtype, error);
}

void ttt_params_free(ttt_params *params)
{
    if (params == NULL)
        return;
    free(params->list);
    free(params);
}

int ttt_params_find(const ttt_params *params, const char *name)
{
    for (int i = 0; i < params->count; i++) {
        if (strcmp(params->list[i].name, name) == 0)
            return i;
    }
    return -1;
}

ttt_param ttt__param_layer(const ttt_param *param, int64_t layer, char name[TTT__NAME])
{
    ttt_param one = *param;
    const char *star = strstr(param->name, ".*.");
    if (param->layers == 0 || star == NULL)
        return one;
    snprintf(name, TTT__NAME, "%.*s.%lld.%s", (int)(star - param->name), param->name,
             (long long)layer, star + 3);
    one.name = name;
    one.layers = 0;
    one.shape.rank--;
    memmove(one.shape.dims, one.shape.dims + 1, (size_t)one.shape.rank * sizeof *one.shape.dims);
    return one;
}
