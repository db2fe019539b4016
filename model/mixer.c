/* What the mixers with heads share: the way in and the way out. */
#include "model/network.h"

#include <stdio.h>

hlo_val mixer_param(hlo_graph *g, const net_layer *l, const char *name)
{
    char full[96];
    snprintf(full, sizeof full, "seq_modeling_block.%s", name);
    return net_layer_param(g, l, full);
}

static hlo_val heads_of(hlo_graph *g, hlo_val x, int64_t lanes)
{
    return hlo_reshape(
        g, x, HLO_DIMS(hlo_dim(g, x, 0), hlo_dim(g, x, 1), hlo_dim(g, x, 2) / lanes, lanes));
}

mixer_heads mixer_project(hlo_graph *g, const net_layer *l, hlo_val x)
{
    const ttt_config *c = l->net->config;
    int64_t lanes = c->hidden_size / c->n_heads;
    hlo_val q = hlo_matmul(g, x, mixer_param(g, l, "q_proj.weight")), k;
    if (c->share_qk) {
        k = net_causal_conv(g, l, "seq_modeling_block.conv_k", q);
        q = net_causal_conv(g, l, "seq_modeling_block.conv_q", q);
    } else {
        k = hlo_matmul(g, x, mixer_param(g, l, "k_proj.weight"));
    }
    hlo_val v = hlo_matmul(g, x, mixer_param(g, l, "v_proj.weight"));
    return (mixer_heads){heads_of(g, q, lanes), heads_of(g, k, lanes), heads_of(g, v, lanes)};
}

hlo_val mixer_output(hlo_graph *g, const net_layer *l, hlo_val x, hlo_val z)
{
    const ttt_config *c = l->net->config;
    if (c->post_norm)
        z = hlo_layer_norm(g, z, mixer_param(g, l, "post_norm.weight"),
                           mixer_param(g, l, "post_norm.bias"), 1e-6);
    if (c->use_gate)
        z = hlo_mul(g, hlo_gelu(g, hlo_matmul(g, x, mixer_param(g, l, "g_proj.weight"))), z);
    return hlo_matmul(g, z, mixer_param(g, l, "o_proj.weight"));
}
