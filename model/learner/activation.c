/*
 * What stands between the layers of a learner, each as a pair: what it makes of a layer's result,
 * and how a gradient goes back through it. Both forms of a learner take it from here.
 */
#include "model/learner/internal.h"

static hlo_val scaled(hlo_graph *g, hlo_val v, double by)
{
    return hlo_mul(g, v, hlo_like(g, v, by));
}

/* The reference takes truncated constants in the derivative alone; one tanh serves both, for the
 * two arguments differ by 1e-9. */
learner_active learner_gelu_of(hlo_graph *g, hlo_val x)
{
    hlo_val square = hlo_mul(g, x, x), one = hlo_like(g, x, 1), half = scaled(g, x, 0.5);
    hlo_val inside = hlo_mul(g, scaled(g, x, 0.79788456080286535588),
                             hlo_add(g, one, scaled(g, square, 0.044715)));
    hlo_val t = hlo_tanh(g, inside), up = hlo_add(g, one, t);
    hlo_val slope = hlo_add(g, hlo_like(g, x, 0.79788456), scaled(g, square, 0.1070322243));
    hlo_val bend = hlo_mul(g, hlo_mul(g, half, hlo_sub(g, one, hlo_mul(g, t, t))), slope);
    return (learner_active){hlo_mul(g, half, up), hlo_add(g, bend, scaled(g, up, 0.5))};
}

/* The halves of a layer's result: gates, and what they let through. */
static hlo_val half_of(hlo_graph *g, hlo_val z, int which)
{
    int64_t width = hlo_dim(g, z, -1) / 2;
    return hlo_slice_dim(g, z, hlo_rank(g, z) - 1, which * width, (which + 1) * width);
}

/* silu(a) u of halves (a, u). The derivative has a place for each of them. */
static learner_active swiglu_of(hlo_graph *g, hlo_val z)
{
    hlo_val a = half_of(g, z, 0), u = half_of(g, z, 1), one = hlo_like(g, a, 1);
    hlo_val gate = hlo_logistic(g, a), open = hlo_mul(g, a, gate);
    hlo_val bend = hlo_add(g, gate, hlo_mul(g, open, hlo_sub(g, one, gate)));
    hlo_val both[2] = {hlo_mul(g, u, bend), open};
    return (learner_active){hlo_mul(g, open, u), hlo_concat(g, both, 2, hlo_rank(g, z) - 1)};
}

static void active_body(hlo_graph *g, void *ctx, const hlo_val *in, hlo_val *out)
{
    const learner *l = ctx;
    learner_active made = l->swiglu ? swiglu_of(g, in[0]) : learner_gelu_of(g, in[0]);
    out[0] = made.value;
    out[1] = made.derivative;
}

/* Backwards it is computed again: a dozen arrays to keep are slower than one hyperbola. */
learner_active learner_active_of(hlo_graph *g, const learner *l, hlo_val z)
{
    hlo_val out[2];
    hlo_remat(g, active_body, (void *)l, HLO_SAVE_MARKED, &z, 1, out, 2);
    return (learner_active){out[0], out[1]};
}

hlo_val learner_activate(hlo_graph *g, const learner *l, hlo_val z)
{
    if (!l->swiglu)
        return hlo_gelu(g, z);
    return hlo_mul(g, hlo_silu(g, half_of(g, z, 0)), half_of(g, z, 1));
}

hlo_val learner_pull(hlo_graph *g, const learner *l, const learner_active *active, hlo_val d)
{
    if (l->swiglu) /* both halves are pulled at by the same */
        d = hlo_concat(g, (hlo_val[]){d, d}, 2, hlo_rank(g, d) - 1);
    return hlo_mul(g, d, active->derivative);
}
