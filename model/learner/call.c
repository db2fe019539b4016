/* The dual form by the kernels "ttt_scan" and "ttt_scan_backward", where their handlers are. */
#include "model/learner/internal.h"

enum { MOST = 6 + 4, BACK = MOST + 5 }; /* operands of both, for learners of two layers */

bool learner_can_call(hlo_graph *g, const learner *l, const learner_data *data)
{
    return l->use_scan_kernel && l->published && l->norm_scale.id != 0 && l->b[0].id != 0 &&
           data->fresh.id == 0 && hlo_type_of(g, data->k) == HLO_F32 &&
           hlo_dim(g, data->q, 3) == hlo_dim(g, data->k, 3);
}

/* The gradients of all operands, which are ttt_scan's; `ctx` is the number of mini-batches between
 * states that are kept. */
static void backward(hlo_graph *g, void *ctx, const hlo_val *in, int n_in, const hlo_val *out,
                     const hlo_val *d_out, int n_out, hlo_val *d_in)
{
    hlo_val operands[BACK];
    hlo_shape shapes[MOST];
    for (int i = 0; i < n_in; i++) {
        operands[i] = in[i];
        shapes[i] = *hlo_shape_of(g, in[i]);
    }
    for (int i = 0; i < n_out; i++)
        operands[n_in + i] = d_out[i].id != 0 ? d_out[i] : hlo_zeros_like(g, out[i]);
    hlo_attr attributes[] = {
        {"layers", HLO_ATTR_INT, .integer = (n_out - 1) / 2},
        {"epsilon", HLO_ATTR_FLOAT, .real = LEARNER_EPSILON},
        {"group", HLO_ATTR_INT, .integer = (int64_t)(intptr_t)ctx},
    };
    hlo_custom_call(g,
                    &(hlo_custom_call_options){
                        .target = "ttt_scan_backward", .attrs = attributes, .n_attrs = 3},
                    operands, n_in + n_out, shapes, d_in, n_in);
}

hlo_val learner_called(hlo_graph *g, const learner *l, const learner_data *data, hlo_val eta,
                       learner_weights *state, int64_t group)
{
    hlo_val in[MOST] = {data->k, data->target, data->q, eta, l->norm_scale, l->norm_bias};
    hlo_val out[1 + 4];
    hlo_shape shapes[1 + 4] = {*hlo_shape_of(g, data->q)};
    int n = learner_pack(l, state, in + 6);
    for (int i = 0; i < n; i++)
        shapes[1 + i] = *hlo_shape_of(g, in[6 + i]);
    hlo_attr attributes[] = {
        {"layers", HLO_ATTR_INT, .integer = l->n_layers},
        {"epsilon", HLO_ATTR_FLOAT, .real = LEARNER_EPSILON},
    };
    hlo_custom_call(g,
                    &(hlo_custom_call_options){.target = "ttt_scan",
                                               .attrs = attributes,
                                               .n_attrs = 2,
                                               .vjp = backward,
                                               .vjp_ctx = (void *)(intptr_t)group},
                    in, 6 + n, shapes, out, 1 + n);
    learner_unpack(l, out + 1, state);
    return hlo_keep(g, out[0]); /* backwards the states are computed again, but not the answers */
}
