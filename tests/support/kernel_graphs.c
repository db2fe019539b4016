#include "tests/support/kernel_graphs.h"

#include "kernels/ttt_kernels.h"
#include "model/learner/learner.h"

#include <stdio.h>
#include <string.h>

pjrt_status *kernel_graphs_register(pjrt_plugin *plugin)
{
    size_t count;
    const ttt_kernel *list = ttt_kernels_cpu(&count);
    for (size_t i = 0; i < count; i++)
        PJRT_TRY(pjrt_ffi_register(plugin, list[i].target, "cpu", list[i].handler,
                                   list[i].command_buffer));
    return NULL;
}

static void params_of(hlo_graph *g, const char *kind, const hlo_shape *shapes, int n, hlo_val *to)
{
    for (int i = 0; i < n; i++) {
        char name[24];
        snprintf(name, sizeof name, "%s%d", kind, i);
        to[i] = hlo_param(g, name, shapes[i]);
    }
}

static void results_of(hlo_graph *g, const char *kind, const hlo_val *list, int n)
{
    for (int i = 0; i < n; i++) {
        char name[24];
        snprintf(name, sizeof name, "%s%d", kind, i);
        hlo_result(g, name, list[i]);
    }
}

/* The learner that a state belongs to; of its own weights only that they are there matters. */
static learner learner_of(int layers, hlo_val scale, hlo_val bias, const hlo_val *state)
{
    learner l = {.n_layers = layers, .norm_scale = scale, .norm_bias = bias};
    for (int i = 0; i < layers; i++) {
        l.w[i] = state[i];
        l.b[i] = state[layers + i];
    }
    return l;
}

static hlo_shape state_shape(int i, int layers, int64_t batch, int64_t heads, int64_t d, int64_t w)
{
    int layer = i % layers;
    bool bias = i / layers % 2 == 1;
    return HLO_SHAPE(HLO_F32, batch, heads, bias ? 1 : (layer == 0 ? d : w),
                     layer == layers - 1 ? d : w);
}

/* ---- a step ------------------------------------------------------------------------------------
 */

int step_graph_state(const step_graph *s, hlo_shape shapes[STEP_MAX_STATE])
{
    for (int i = 0; i < 4 * s->layers; i++)
        shapes[i] = state_shape(i, s->layers, s->batch, s->heads, s->d, s->w);
    return 4 * s->layers;
}

static hlo_type act_of(const step_graph *s)
{
    return s->bf16 ? HLO_BF16 : HLO_F32;
}

static void step_by_kernel(hlo_graph *g, const step_graph *s, const hlo_val *in, int n_state,
                           hlo_val *out)
{
    hlo_shape shapes[1 + STEP_MAX_STATE];
    int aliases[STEP_MAX_STATE][2];
    shapes[0] = HLO_SHAPE(act_of(s), s->batch, s->heads * s->d);
    step_graph_state(s, shapes + 1);
    for (int i = 0; i < n_state; i++) {
        aliases[i][0] = 1 + i;
        aliases[i][1] = STEP_GIVEN + i;
    }
    const hlo_attr attrs[] = {
        {.name = "layers", .kind = HLO_ATTR_INT, .integer = s->layers},
        {.name = "mini_batch", .kind = HLO_ATTR_INT, .integer = s->mini},
        {.name = "theta", .kind = HLO_ATTR_FLOAT, .real = s->theta},
        {.name = "epsilon", .kind = HLO_ATTR_FLOAT, .real = 1e-6},
        {.name = "rate", .kind = HLO_ATTR_FLOAT, .real = 1.0 / (double)s->d},
    };
    hlo_custom_call_options options = {.target = "ttt_step",
                                       .attrs = attrs,
                                       .n_attrs = sizeof attrs / sizeof *attrs,
                                       .aliases = (const int(*)[2])aliases,
                                       .n_aliases = n_state};
    hlo_custom_call(g, &options, in, STEP_GIVEN + n_state, shapes, out, 1 + n_state);
}

/* x [B, H, d] as [B, H, 1, d], f32. */
static hlo_val one_row(hlo_graph *g, const step_graph *s, hlo_val x)
{
    return hlo_convert(g, hlo_reshape(g, x, HLO_DIMS(s->batch, s->heads, 1, s->d)), HLO_F32);
}

static void step_by_network(hlo_graph *g, const step_graph *s, const hlo_val *in, hlo_val *out)
{
    hlo_val gate = hlo_logistic(g, in[3]), q = in[0], k = in[1], place = in[5];
    hlo_val rate = hlo_mul(g, gate, hlo_like(g, gate, 1.0 / (double)s->d));
    learner l = learner_of(s->layers, in[7], in[8], in + STEP_GIVEN);
    if (s->theta > 0) {
        q = hlo_rope(g, q, place, s->theta, true);
        k = hlo_rope(g, k, place, s->theta, true);
    }
    hlo_val key = one_row(g, s, k);
    hlo_val last = hlo_compare(g, HLO_EQ, hlo_rem(g, in[4], hlo_scalar_int(g, HLO_S32, s->mini)),
                               hlo_scalar_int(g, HLO_S32, s->mini - 1));
    learner_token token = {
        .q = one_row(g, s, q),
        .k = key,
        .target = learner_target(g, &l, key, one_row(g, s, in[2])),
        .rate = hlo_reshape(g, rate, HLO_DIMS(s->batch, s->heads, 1, 1)),
        .move = hlo_reshape(g, hlo_take(g, in[6], place), HLO_DIMS(s->batch, 1, 1, 1)),
        .last = hlo_reshape(g, last, HLO_DIMS(s->batch, 1, 1, 1)),
    };
    learner_state weights;
    learner_weights sums;
    int n = learner_unpack_state(&l, in + STEP_GIVEN, &weights);
    learner_unpack(&l, in + STEP_GIVEN + n, &sums);
    hlo_val res = learner_primal(g, &l, &token, &weights, &sums);
    hlo_val z =
        hlo_reshape(g, learner_answer(g, &l, token.q, res), HLO_DIMS(s->batch, s->heads * s->d));
    out[0] = hlo_convert(g, z, act_of(s));
    learner_pack_state(&l, &weights, out + 1);
    learner_pack(&l, &sums, out + 1 + n);
}

void step_graph_build(hlo_graph *g, const step_graph *s, bool kernels)
{
    hlo_shape heads = HLO_SHAPE(act_of(s), s->batch, s->heads, s->d);
    hlo_shape norm = HLO_SHAPE(HLO_F32, s->heads, s->d), line = HLO_SHAPE(HLO_S32, s->batch);
    hlo_shape given[STEP_GIVEN] = {heads,
                                   heads,
                                   heads,
                                   HLO_SHAPE(HLO_F32, s->batch, s->heads),
                                   line,
                                   line,
                                   HLO_SHAPE(HLO_F32, s->mini),
                                   norm,
                                   norm};
    hlo_shape state[STEP_MAX_STATE];
    hlo_val in[STEP_GIVEN + STEP_MAX_STATE], out[1 + STEP_MAX_STATE];
    int n = step_graph_state(s, state);
    params_of(g, "given", given, STEP_GIVEN, in);
    params_of(g, "state", state, n, in + STEP_GIVEN);
    if (kernels)
        step_by_kernel(g, s, in, n, out);
    else
        step_by_network(g, s, in, out);
    results_of(g, "result", out, 1 + n);
    for (int i = 0; i < n; i++)
        hlo_donate(g, in[STEP_GIVEN + i], 1 + i);
}

/* ---- a scan ------------------------------------------------------------------------------------
 */

int scan_graph_operands(const scan_graph *s, hlo_shape shapes[SCAN_MAX_IN])
{
    hlo_shape tokens = HLO_SHAPE(HLO_F32, s->count, s->batch, s->heads, s->size, s->d);
    shapes[0] = shapes[1] = shapes[2] = tokens;
    shapes[3] = HLO_SHAPE(HLO_F32, s->count, s->batch, s->heads, s->size, s->size);
    shapes[4] = shapes[5] = HLO_SHAPE(HLO_F32, s->heads, s->d);
    for (int i = 0; i < 2 * s->layers; i++)
        shapes[SCAN_GIVEN + i] = state_shape(i, s->layers, s->batch, s->heads, s->d, s->w);
    return SCAN_GIVEN + 2 * s->layers;
}

int scan_graph_results(const scan_graph *s, hlo_shape shapes[SCAN_MAX_OUT])
{
    hlo_shape operands[SCAN_MAX_IN];
    int n = scan_graph_operands(s, operands);
    shapes[0] = operands[0];
    memcpy(shapes + 1, operands + SCAN_GIVEN, (size_t)(n - SCAN_GIVEN) * sizeof *shapes);
    return 1 + n - SCAN_GIVEN;
}

static void scan_by_kernel(hlo_graph *g, const scan_graph *s, const hlo_val *in, int n_in,
                           hlo_val *out, bool backward)
{
    hlo_shape shapes[SCAN_MAX_IN];
    int n_out = backward ? scan_graph_operands(s, shapes) : scan_graph_results(s, shapes);
    const hlo_attr attrs[] = {{.name = "layers", .kind = HLO_ATTR_INT, .integer = s->layers},
                              {.name = "epsilon", .kind = HLO_ATTR_FLOAT, .real = 1e-6},
                              {.name = "group", .kind = HLO_ATTR_INT, .integer = s->group}};
    hlo_custom_call_options options = {.target = backward ? "ttt_scan_backward" : "ttt_scan",
                                       .attrs = attrs,
                                       .n_attrs = backward ? 3 : 2};
    hlo_custom_call(g, &options, in, n_in, shapes, out, n_out);
}

static void scan_by_network(hlo_graph *g, const scan_graph *s, const hlo_val *in, hlo_val *out)
{
    learner l = learner_of(s->layers, in[4], in[5], in + SCAN_GIVEN);
    learner_data data = {
        .mini = s->size,
        .k = in[0],
        .target = in[1],
        .q = in[2],
        .rate = hlo_full(g, HLO_SHAPE(HLO_F32, s->count, s->batch, s->heads, s->size), 1),
        .reach = in[3],
    };
    learner_state state;
    learner_unpack_state(&l, in + SCAN_GIVEN, &state);
    out[0] = learner_dual(g, &l, &data, &state, s->group).answers;
    learner_pack_state(&l, &state, out + 1);
}

void scan_graph_build(hlo_graph *g, const scan_graph *s, bool kernels, bool gradients)
{
    hlo_shape operands[SCAN_MAX_IN], results[SCAN_MAX_OUT];
    hlo_val in[SCAN_MAX_IN + SCAN_MAX_OUT], out[SCAN_MAX_OUT], d_in[SCAN_MAX_IN];
    int n_in = scan_graph_operands(s, operands), n_out = scan_graph_results(s, results);
    params_of(g, "in", operands, n_in, in);
    if (gradients)
        params_of(g, "d_out", results, n_out, in + n_in);
    if (kernels)
        scan_by_kernel(g, s, in, n_in, out, false);
    else
        scan_by_network(g, s, in, out);
    results_of(g, "out", out, n_out);
    if (!gradients)
        return;
    if (kernels)
        scan_by_kernel(g, s, in, n_in + n_out, d_in, true);
    else
        hlo_vjp(g, out, in + n_in, n_out, in, n_in, d_in);
    results_of(g, "d_in", d_in, n_in);
}
