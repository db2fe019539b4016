/* Blocks around the mixers, from tokens to what goes into the head, and the logits. */
#include "model/network_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- types and parameters -------------------------------------------------------------------- */

hlo_type net_compute(const ttt_net *net)
{
    return net->compute == HLO_TYPE_NONE ? HLO_F32 : net->compute;
}

hlo_type ttt_wide_type(hlo_type compute)
{
    return compute == HLO_F64 ? HLO_F64 : HLO_F32;
}

hlo_type net_wide(const ttt_net *net)
{
    return ttt_wide_type(net->compute);
}

void ttt_params_bind(hlo_graph *g, const ttt_params *params, hlo_type type, hlo_val *values)
{
    for (int i = 0; i < params->count; i++) {
        hlo_shape shape = params->list[i].shape;
        if (!params->list[i].packed && !params->list[i].scales)
            shape.type = type;
        values[i] = hlo_param(g, params->list[i].name, shape);
        hlo_shard_param(g, values[i], params->list[i].spec);
    }
}

static hlo_val found(hlo_graph *g, const ttt_net *net, const hlo_val *values, const char *name)
{
    int index = ttt_params_find(net->params, name);
    if (index < 0) {
        hlo_fail(g, HLO_ERROR_VALUE, "the network has no parameter \"%s\"", name);
        return (hlo_val){0};
    }
    return values[index];
}

hlo_val net_param(hlo_graph *g, const ttt_net *net, const char *name)
{
    return found(g, net, net->values, name);
}

hlo_val net_layer_param(hlo_graph *g, const net_layer *l, const char *name)
{
    char full[160];
    if (l->index < 0)
        snprintf(full, sizeof full, "model.layers.*.%s", name);
    else
        snprintf(full, sizeof full, "model.layers.%d.%s", l->index, name);
    return found(g, l->net, l->values, full);
}

hlo_val net_layer_weight(hlo_graph *g, const net_layer *l, const char *name)
{
    return hlo_convert(g, net_layer_param(g, l, name), net_compute(l->net));
}

/* ---- products -------------------------------------------------------------------------------- */

/* Rows of a packed matrix, as numbers: w [out, in], scale [out] or null. */
static hlo_val unpacked(hlo_graph *g, hlo_val w, hlo_val scale, hlo_type type)
{
    w = hlo_convert(g, w, type);
    if (scale.id == 0)
        return w;
    return hlo_mul(g, w,
                   hlo_reshape(g, hlo_convert(g, scale, type), HLO_DIMS(hlo_dim(g, w, 0), 1)));
}

/* x [batch, (time,) in] times a packed matrix, in the type `out`. */
static hlo_val packed_product(hlo_graph *g, const ttt_net *net, hlo_val x, hlo_val w, hlo_val scale,
                              hlo_type out)
{
    bool one = hlo_rank(g, x) == 2;
    if (!one || !net->use_product_kernel)
        return hlo_einsum_as(g, one ? "bi,oi->bo" : "bti,oi->bto", x,
                             unpacked(g, w, scale, net_compute(net)), out, HLO_PRECISION_DEFAULT);
    hlo_val in[3] = {x, w, scale}, y;
    hlo_shape shape = HLO_SHAPE(out, hlo_dim(g, x, 0), hlo_dim(g, w, 0));
    hlo_custom_call(g, &(hlo_custom_call_options){.target = "ttt_product"}, in,
                    scale.id == 0 ? 2 : 3, &shape, &y, 1);
    return y;
}

/* The factors of a packed matrix's rows; null where it has none. */
static hlo_val scale_of(hlo_graph *g, const ttt_net *net, const hlo_val *values, const char *name)
{
    char full[168];
    if (net->params->weight_dtype != HLO_S8)
        return (hlo_val){0};
    snprintf(full, sizeof full, "%s_scale", name);
    return found(g, net, values, full);
}

hlo_val net_layer_product(hlo_graph *g, const net_layer *l, hlo_val x, const char *name,
                          hlo_type out)
{
    char full[160];
    hlo_val w = net_layer_param(g, l, name);
    if (l->net->params->weight_dtype == HLO_TYPE_NONE) {
        w = hlo_convert(g, w, net_compute(l->net));
        /* It makes rows of all times; those of devices that share them do not stand in a row. */
        if (out == net_compute(l->net) && hlo_axes_size(g, l->net->time_axis) == 1)
            return hlo_matmul(g, x, w);
        return hlo_einsum_as(g, hlo_rank(g, x) == 3 ? "bti,io->bto" : "bi,io->bo", x, w, out,
                             HLO_PRECISION_DEFAULT);
    }
    snprintf(full, sizeof full, "model.layers.%d.%s", l->index, name);
    return packed_product(g, l->net, x, w, scale_of(g, l->net, l->values, full), out);
}

hlo_val net_dear(hlo_graph *g, const ttt_net *net, hlo_val v)
{
    return net->remat == TTT_REMAT_SOME ? hlo_keep(g, v) : v;
}

hlo_val net_softplus(hlo_graph *g, hlo_val x)
{
    hlo_val small = hlo_log1p(g, hlo_exp(g, hlo_neg(g, hlo_abs(g, x))));
    return hlo_add(g, hlo_max(g, x, hlo_like(g, x, 0)), small);
}

hlo_val net_shard(hlo_graph *g, const ttt_net *net, hlo_val v, int dim)
{
    hlo_spec spec = HLO_SPEC(net->batch_axes);
    if (dim != 1 && hlo_rank(g, v) >= 3)
        spec.axes[1] = net->time_axis;
    if (dim > 0)
        spec.axes[dim] = "model";
    return net->batch_axes == NULL && net->time_axis == NULL ? v : hlo_shard(g, v, spec);
}

/* ---- causal convolutions --------------------------------------------------------------------- */

typedef struct conv_params {
    hlo_val weight; /* [width, channels] */
    hlo_val bias;
} conv_params;

static conv_params conv_of(hlo_graph *g, const net_layer *l, const char *name)
{
    char full[96];
    snprintf(full, sizeof full, "%s.weight", name);
    hlo_val w = net_layer_weight(g, l, full); /* [channels, 1, width] */
    w = hlo_reshape(g, w, HLO_DIMS(hlo_dim(g, w, 0), hlo_dim(g, w, 2)));
    snprintf(full, sizeof full, "%s.bias", name);
    return (conv_params){hlo_transpose(g, w, HLO_DIMS(1, 0)), net_layer_param(g, l, full)};
}

/* Taps that reach back into another document count as zero. */
static hlo_val conv_within_documents(hlo_graph *g, const net_layer *l, hlo_val x, hlo_val w)
{
    int64_t width = hlo_dim(g, w, 0), batch = hlo_dim(g, x, 0), time = hlo_dim(g, x, 1);
    hlo_val sum = hlo_mul(g, x, hlo_slice_dim(g, w, 0, width - 1, width));
    for (int64_t by = 1; by < width && by < time; by++) {
        hlo_val same =
            hlo_compare(g, HLO_EQ, l->resets.segment, hlo_shift(g, l->resets.segment, 1, by));
        same = hlo_reshape(g, same, HLO_DIMS(batch, time, 1));
        hlo_val tap = hlo_select(g, same, hlo_shift(g, x, 1, by), hlo_like(g, x, 0));
        sum = hlo_add(g, sum, hlo_mul(g, tap, hlo_slice_dim(g, w, 0, width - 1 - by, width - by)));
    }
    return sum;
}

/* The times of `tail` before those of x; the last of them all are the next tail. */
static hlo_val after_tail(hlo_graph *g, hlo_val x, hlo_val *tail)
{
    hlo_val before = hlo_convert(g, *tail, hlo_type_of(g, x));
    hlo_val all = hlo_concat(g, (hlo_val[]){before, x}, 2, 1);
    int64_t time = hlo_dim(g, all, 1), length = hlo_dim(g, before, 1);
    *tail = hlo_convert(g, hlo_slice_dim(g, all, 1, time - length, time), hlo_type_of(g, *tail));
    return all;
}

hlo_val net_causal_conv(hlo_graph *g, const net_layer *l, const char *name, hlo_val x,
                        hlo_val *tail)
{
    conv_params p = conv_of(g, l, name);
    hlo_val y;
    if (tail != NULL) {
        int64_t length = hlo_dim(g, *tail, 1), time = hlo_dim(g, x, 1);
        y = hlo_causal_conv(g, after_tail(g, x, tail), p.weight);
        y = hlo_slice_dim(g, y, 1, length, length + time);
    } else if (l->resets.here.id == 0) {
        y = hlo_causal_conv(g, x, p.weight);
    } else {
        y = conv_within_documents(g, l, x, p.weight);
    }
    /* In the wide type, in which the gradient of the bias is summed up along with the weight's. */
    hlo_type wide = net_wide(l->net), type = hlo_type_of(g, y);
    y = hlo_add(g, hlo_convert(g, y, wide), p.bias);
    return hlo_convert(g, y, type);
}

hlo_val net_causal_conv_step(hlo_graph *g, const net_layer *l, const char *name, hlo_val x,
                             hlo_val *tail)
{
    conv_params p = conv_of(g, l, name);
    int64_t width = hlo_dim(g, p.weight, 0);
    hlo_val now = hlo_reshape(g, hlo_convert(g, x, hlo_type_of(g, *tail)),
                              HLO_DIMS(hlo_dim(g, x, 0), 1, hlo_dim(g, x, 1)));
    hlo_val window = hlo_concat(g, (hlo_val[]){*tail, now}, 2, 1);
    hlo_val taps = hlo_mul(g, hlo_convert(g, window, hlo_type_of(g, x)), p.weight);
    *tail = hlo_slice_dim(g, window, 1, 1, width);
    return hlo_add(g, hlo_sum(g, taps, HLO_DIMS(1)), hlo_convert(g, p.bias, hlo_type_of(g, x)));
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static hlo_val normed(hlo_graph *g, const net_layer *l, const char *name, hlo_val x)
{
    return hlo_rms_norm(g, x, net_layer_param(g, l, name), l->net->config->norm_epsilon);
}

/* Over a sequence or one token, as x has it. */
static hlo_val mix(hlo_graph *g, const net_layer *l, hlo_val x, hlo_val position, hlo_val *state)
{
    bool one = hlo_rank(g, x) == 2;
    switch (l->net->config->mixer) {
    case TTT_MIXER_LINEAR:
    case TTT_MIXER_MLP:
        return (one ? mixer_ttt_step : mixer_ttt)(g, l, x, position, state);
    case TTT_MIXER_ATTENTION:
        return (one ? mixer_attention_step : mixer_attention)(g, l, x, position, state);
    case TTT_MIXER_LINEAR_ATTENTION:
        return (one ? mixer_linear_attention_step : mixer_linear_attention)(g, l, x, position,
                                                                            state);
    case TTT_MIXER_MAMBA:
        return (one ? mixer_mamba_step : mixer_mamba)(g, l, x, position, state);
    }
    return x;
}

static hlo_val feed_forward(hlo_graph *g, const net_layer *l, hlo_val x)
{
    const ttt_net *net = l->net;
    hlo_type type = net_compute(net);
    hlo_val gate = net_layer_product(g, l, x, "mlp.gate_proj.weight", type);
    hlo_val up = net_layer_product(g, l, x, "mlp.up_proj.weight", type);
    hlo_val wide = hlo_mul(g, hlo_silu(g, net_dear(g, net, gate)), net_dear(g, net, up));
    return net_layer_product(g, l, wide, "mlp.down_proj.weight", type);
}

hlo_val net_block(hlo_graph *g, const net_layer *l, hlo_val x, hlo_val position, hlo_val *state)
{
    if (l->net->config->pre_conv) {
        hlo_val *tail = state == NULL ? NULL : state++;
        hlo_scope_push(g, "conv");
        hlo_val in = normed(g, l, "conv.norm.weight", x);
        x = hlo_add(g, x,
                    (hlo_rank(g, x) == 2 ? net_causal_conv_step
                                         : net_causal_conv)(g, l, "conv.conv", in, tail));
        hlo_scope_pop(g);
    }
    hlo_scope_push(g, "mixer");
    x = hlo_add(g, x, mix(g, l, normed(g, l, "seq_norm.weight", x), position, state));
    hlo_scope_pop(g);
    if (l->net->config->intermediate_size > 0) {
        hlo_scope_push(g, "mlp");
        x = hlo_add(g, x, feed_forward(g, l, normed(g, l, "ffn_norm.weight", x)));
        hlo_scope_pop(g);
    }
    return net_shard(g, l->net, x, 0);
}

/* ---- the trunk over a sequence --------------------------------------------------------------- */

static hlo_save save_of(const ttt_net *net)
{
    switch (net->remat) {
    case TTT_REMAT_SOME:
        return HLO_SAVE_LOOPS;
    case TTT_REMAT_ALL:
        return HLO_SAVE_MARKED;
    case TTT_REMAT_NONE:
        break;
    }
    return HLO_SAVE_ALL;
}

enum { N_DIAGNOSTICS = 3 };

static void put_diagnostics(const ttt_diagnostics *d, hlo_val out[N_DIAGNOSTICS])
{
    out[0] = d->inner_loss;
    out[1] = d->rate;
    out[2] = d->state_norm;
}

/* One block as the body of a loop over layers, or of a remat: x first, then diagnostics. */
typedef struct block_call {
    net_layer layer;
    hlo_val *values; /* room for the parameters of one layer */
} block_call;

static void run_block(hlo_graph *g, const block_call *call, hlo_val x, hlo_val *next,
                      hlo_val *diagnostics)
{
    net_layer l = call->layer;
    ttt_diagnostics filled = {0};
    if (l.diagnostics != NULL)
        l.diagnostics = &filled;
    *next = net_block(g, &l, x, (hlo_val){0}, NULL);
    if (l.diagnostics != NULL)
        put_diagnostics(&filled, diagnostics);
}

static void block_in_loop(hlo_graph *g, void *ctx, hlo_val step, const hlo_val *carry,
                          const hlo_val *slices, hlo_val *next, hlo_val *out)
{
    block_call *call = ctx;
    net_layer_slices(call->layer.net->params, slices, call->values);
    (void)step;
    run_block(g, call, carry[0], next, out);
}

static void block_in_remat(hlo_graph *g, void *ctx, const hlo_val *in, hlo_val *out)
{
    run_block(g, ctx, in[0], out, out + 1);
}

int net_stacked(const ttt_params *params, const hlo_val *values, hlo_val *list)
{
    int n = 0;
    for (int i = 0; i < params->count; i++) {
        if (params->list[i].layers > 0)
            list[n++] = values[i];
    }
    return n;
}

void net_layer_slices(const ttt_params *params, const hlo_val *slices, hlo_val *values)
{
    for (int i = 0, n = 0; i < params->count; i++) {
        if (params->list[i].layers > 0)
            values[i] = slices[n++];
    }
}

/* A loop over layers whose parameters are stacked. */
static hlo_val looped(hlo_graph *g, block_call *call, hlo_val x, hlo_val *diagnostics)
{
    const ttt_net *net = call->layer.net;
    int count = net->params->count;
    hlo_val *lists = calloc((size_t)(2 * count), sizeof *lists);
    if (lists == NULL) {
        hlo_fail(g, HLO_ERROR_MEMORY, "out of memory");
        return x;
    }
    call->values = lists + count;
    call->layer.values = call->values;
    call->layer.index = -1;
    int n = net_stacked(net->params, net->values, lists);
    hlo_scope_push(g, "block");
    hlo_scan(g, block_in_loop, call, &x, 1, lists, n, diagnostics,
             call->layer.diagnostics == NULL ? 0 : N_DIAGNOSTICS,
             &(hlo_scan_options){.save = save_of(net)});
    hlo_scope_pop(g);
    free(lists);
    return x;
}

/* One block after another. */
static hlo_val in_a_row(hlo_graph *g, block_call *call, hlo_val x, hlo_val *diagnostics)
{
    const ttt_net *net = call->layer.net;
    int layers = (int)net->config->n_layers,
        n = call->layer.diagnostics == NULL ? 0 : N_DIAGNOSTICS;
    hlo_val *found_here = calloc((size_t)(layers * N_DIAGNOSTICS), sizeof *found_here);
    if (found_here == NULL) {
        hlo_fail(g, HLO_ERROR_MEMORY, "out of memory");
        return x;
    }
    call->layer.values = net->values;
    for (int i = 0; i < layers; i++) {
        hlo_val out[1 + N_DIAGNOSTICS];
        call->layer.index = i;
        hlo_scope_push(g, "block.%d", i);
        hlo_remat(g, block_in_remat, call, save_of(net), &x, 1, out, 1 + n);
        hlo_scope_pop(g);
        x = out[0];
        for (int k = 0; k < n; k++)
            found_here[k * layers + i] = out[1 + k];
    }
    for (int k = 0; k < n; k++)
        diagnostics[k] = hlo_stack(g, found_here + k * layers, layers, 0);
    free(found_here);
    return x;
}

static net_resets resets_of(hlo_graph *g, hlo_val here)
{
    if (here.id == 0)
        return (net_resets){0};
    return (net_resets){here, hlo_cumsum(g, hlo_convert(g, here, HLO_S32), 1)};
}

hlo_val net_trunk(hlo_graph *g, const ttt_net *net, const ttt_input *in,
                  ttt_diagnostics *diagnostics)
{
    ttt_mixer mixer = net->config->mixer;
    hlo_val out[N_DIAGNOSTICS];
    if (diagnostics != NULL && !ttt_mixer_learns(mixer))
        hlo_fail(g, HLO_ERROR_UNSUPPORTED, "diagnostics are of TTT layers; the mixer is %s",
                 ttt_mixer_name(mixer));
    hlo_val x = net_embed(g, net, in->tokens);
    block_call call = {.layer = {.net = net,
                                 .resets = resets_of(g, in->resets),
                                 .rate_scale = in->rate_scale,
                                 .diagnostics = diagnostics}};
    x = net->params->layout == TTT_STACKED ? looped(g, &call, x, out) : in_a_row(g, &call, x, out);
    if (diagnostics != NULL)
        *diagnostics =
            (ttt_diagnostics){.inner_loss = out[0], .rate = out[1], .state_norm = out[2]};
    return net_last_norm(g, net, x);
}

/* ---- in and out ------------------------------------------------------------------------------ */

static const char embedding[] = "model.embed_tokens.weight";

hlo_val net_embed(hlo_graph *g, const ttt_net *net, hlo_val tokens)
{
    hlo_type type = net_compute(net);
    hlo_val scale = scale_of(g, net, net->values, embedding);
    hlo_scope_push(g, "embedding");
    hlo_val x = hlo_convert(g, hlo_take(g, net_param(g, net, embedding), tokens), type);
    if (scale.id != 0) {
        hlo_val factor = hlo_convert(g, hlo_take(g, scale, tokens), type);
        const hlo_shape *s = hlo_shape_of(g, factor);
        x = hlo_mul(g, x,
                    hlo_reshape(g, factor,
                                s->rank == 1 ? HLO_DIMS(s->dims[0], 1)
                                             : HLO_DIMS(s->dims[0], s->dims[1], 1)));
    }
    hlo_scope_pop(g);
    return net_shard(g, net, x, 0);
}

hlo_val net_last_norm(hlo_graph *g, const ttt_net *net, hlo_val x)
{
    hlo_scope_push(g, "head");
    x = hlo_rms_norm(g, x, net_param(g, net, "model.norm.weight"), net->config->norm_epsilon);
    hlo_scope_pop(g);
    return x;
}

hlo_val net_head(hlo_graph *g, const ttt_net *net)
{
    const char *name = net->config->tie_embeddings ? embedding : "lm_head.weight";
    hlo_val w = net_param(g, net, name);
    if (net->params->weight_dtype != HLO_TYPE_NONE)
        return unpacked(g, w, scale_of(g, net, net->values, name), net_wide(net));
    return net->config->tie_embeddings ? w : hlo_transpose(g, w, HLO_DIMS(1, 0));
}

hlo_val net_logits(hlo_graph *g, const ttt_net *net, hlo_val x)
{
    const char *name = net->config->tie_embeddings ? embedding : "lm_head.weight";
    hlo_val logits;
    hlo_scope_push(g, "head");
    if (net->params->weight_dtype != HLO_TYPE_NONE) {
        logits = packed_product(g, net, x, net_param(g, net, name),
                                scale_of(g, net, net->values, name), net_wide(net));
    } else {
        hlo_val table = hlo_convert(g, net_head(g, net), net_compute(net));
        logits = hlo_einsum_as(g, hlo_rank(g, x) == 3 ? "btc,vc->btv" : "bc,vc->bv", x, table,
                               net_wide(net), HLO_PRECISION_DEFAULT);
    }
    hlo_scope_pop(g);
    return logits;
}

hlo_val ttt_logits(hlo_graph *g, const ttt_net *net, const ttt_input *in,
                   ttt_diagnostics *diagnostics)
{
    return net_logits(g, net, net_trunk(g, net, in, diagnostics));
}
