/*
 * AdamW in the graph: the schedule, the clip by the norm of all gradients, the update, and the rule
 * that a step which went wrong changes nothing.
 *
 * Every array of the state goes through elementwise operations alone, from the old to the new, so
 * that a compiler may fuse them and write each new one over the old; scaled gradients and corrected
 * moments are never arrays of their own.
 */
#include "model/ttt_train.h"

#include <math.h>

static hlo_val scaled(hlo_graph *g, hlo_val v, double by)
{
    return hlo_mul(g, v, hlo_like(g, v, by));
}

static hlo_val plus(hlo_graph *g, hlo_val v, double what)
{
    return hlo_add(g, v, hlo_like(g, v, what));
}

/* ---- schedules ------------------------------------------------------------------------------- */

hlo_val ttt_learning_rate(hlo_graph *g, const ttt_recipe *recipe, hlo_val step)
{
    double warm = (double)recipe->warmup_steps, rest = (double)recipe->steps - warm;
    hlo_val s = hlo_convert(g, step, HLO_F32), one = hlo_like(g, s, 1);
    hlo_val progress = hlo_min(g, hlo_div(g, plus(g, s, -warm), hlo_like(g, s, rest)), one);
    /* (1 + cos x) / 2 as the square of cos(x / 2), which keeps its digits where it goes to 0. */
    hlo_val wave = hlo_cos(g, scaled(g, progress, acos(-1) / 2));
    hlo_val rate = scaled(g, hlo_mul(g, wave, wave), recipe->peak_lr - recipe->end_lr);
    rate = plus(g, rate, recipe->end_lr);
    if (recipe->warmup_steps == 0)
        return rate;
    hlo_val rising = hlo_div(g, scaled(g, s, recipe->peak_lr), hlo_like(g, s, warm));
    return hlo_select(g, hlo_compare(g, HLO_LT, s, hlo_like(g, s, warm)), rising, rate);
}

/* Rounded to bf16, by its bits: compilers may leave out a conversion there and back. */
static hlo_val rounded(hlo_graph *g, hlo_val x)
{
    hlo_val bits = hlo_bitcast(g, x, HLO_U32), one = hlo_scalar_int(g, HLO_U32, 1);
    hlo_val odd = hlo_and(g, hlo_shift_right(g, bits, hlo_scalar_int(g, HLO_U32, 16)), one);
    bits = hlo_add(g, bits, hlo_add(g, odd, hlo_scalar_int(g, HLO_U32, 0x7fff)));
    bits = hlo_and(g, bits, hlo_scalar_int(g, HLO_U32, 0xffff0000));
    return hlo_bitcast(g, bits, HLO_F32);
}

hlo_val ttt_base_rate_scale(hlo_graph *g, const ttt_recipe *recipe, double base, hlo_val step)
{
    double init = recipe->ttt_base_lr_init, warm = (double)recipe->ttt_base_lr_warmup;
    hlo_val s = hlo_convert(g, step, HLO_F32), one = hlo_like(g, s, 1);
    if (recipe->ttt_base_lr_warmup == 0)
        return one;
    hlo_val progress = hlo_min(g, one, hlo_div(g, s, hlo_like(g, s, warm)));
    hlo_val rate = plus(g, scaled(g, progress, base - init), init);
    return rounded(g, hlo_div(g, rate, hlo_like(g, rate, base)));
}

/* ---- the update ------------------------------------------------------------------------------ */

/* Scalars that all parameters share, of their type. */
typedef struct adam {
    const ttt_recipe *recipe;
    hlo_val keep;          /* pred: the step counts */
    hlo_val clip;          /* what gradients are multiplied by; null: nothing */
    hlo_val first, second; /* what moments are multiplied by: the bias correction */
    hlo_val rate;
} adam;

/*
 * Of all gradients together. Rows are squared and summed by a product: where a compiler sums in a
 * tree, as XLA's for CPUs does, squares would be an array of their own, and three times slower.
 */
static hlo_val global_norm(hlo_graph *g, const hlo_val *gradients, int n)
{
    hlo_val sum = {0};
    for (int i = 0; i < n; i++) {
        int rank = hlo_rank(g, gradients[i]);
        hlo_dims rows = {0};
        for (int d = 0; d < rank - 1; d++)
            rows.d[rows.n++] = d;
        hlo_dims last = {.n = rank > 0, .d = {rank - 1}};
        hlo_val square = hlo_dot(g, gradients[i], gradients[i],
                                 &(hlo_dot_options){.lhs_batch = rows,
                                                    .rhs_batch = rows,
                                                    .lhs_contract = last,
                                                    .rhs_contract = last,
                                                    .precision = HLO_PRECISION_HIGHEST});
        square = hlo_sum(g, square, rows);
        sum = i == 0 ? square : hlo_add(g, sum, square);
    }
    return hlo_sqrt(g, sum);
}

/* Finite, and not above the limit number `index`, when there are limits. False for NaN. */
static hlo_val is_fine(hlo_graph *g, hlo_val x, hlo_val limits, int index)
{
    hlo_val fine = hlo_compare(g, HLO_LT, hlo_abs(g, x), hlo_like(g, x, INFINITY));
    if (limits.id == 0)
        return fine;
    hlo_val limit = hlo_reshape(g, hlo_slice_dim(g, limits, 0, index, index + 1), HLO_NO_DIMS);
    limit = hlo_convert(g, limit, hlo_type_of(g, x));
    return hlo_and(g, fine, hlo_compare(g, HLO_LE, x, limit));
}

/* 1 / (1 - b^t); the difference by way of expm1, which loses no digits where b^t is near 1. */
static hlo_val correction(hlo_graph *g, double b, hlo_val t)
{
    hlo_val one = hlo_like(g, t, 1);
    if (b == 0)
        return one;
    return hlo_div(g, one, hlo_neg(g, hlo_expm1(g, scaled(g, t, log(b)))));
}

/* b old + (1 - b) now */
static hlo_val moved(hlo_graph *g, double b, hlo_val old, hlo_val now)
{
    return hlo_add(g, scaled(g, old, b), scaled(g, now, 1 - b));
}

/*
 * The parameter moves by the moments as they are kept, not by ones of its own: made from the old
 * moments it would need them while the new ones are written over them, which on CPUs costs a copy
 * of each through the whole program.
 */
static void update(hlo_graph *g, const adam *a, bool decay, hlo_val gradient, hlo_val *value,
                   hlo_val *first, hlo_val *second)
{
    const ttt_recipe *r = a->recipe;
    if (a->clip.id != 0)
        gradient = hlo_mul(g, gradient, a->clip);
    hlo_val square = hlo_mul(g, gradient, gradient);
    *first = hlo_select(g, a->keep, moved(g, r->b1, *first, gradient), *first);
    *second = hlo_select(g, a->keep, moved(g, r->b2, *second, square), *second);
    hlo_val root = hlo_sqrt(g, hlo_mul(g, *second, a->second));
    hlo_val change = hlo_div(g, hlo_mul(g, *first, a->first), plus(g, root, r->epsilon));
    if (decay && r->decay != 0)
        change = hlo_add(g, change, scaled(g, *value, r->decay));
    hlo_val next = hlo_sub(g, *value, hlo_mul(g, change, a->rate));
    *value = hlo_select(g, a->keep, next, *value);
}

ttt_train_report ttt_optimize(hlo_graph *g, const ttt_recipe *recipe, const ttt_params *params,
                              const hlo_val *gradients, hlo_val loss, hlo_val limits,
                              ttt_train_state *state)
{
    hlo_scope_push(g, "optimizer");
    ttt_train_report report = {.norm = global_norm(g, gradients, params->count),
                               .rate = ttt_learning_rate(g, recipe, state->step)};
    hlo_type type = hlo_type_of(g, report.norm);
    hlo_val next = hlo_add(g, state->step, hlo_like(g, state->step, 1));
    hlo_val t = hlo_convert(g, next, type);
    adam a = {
        .recipe = recipe,
        .keep = hlo_and(g, is_fine(g, loss, limits, 0), is_fine(g, report.norm, limits, 1)),
        .first = correction(g, recipe->b1, t),
        .second = correction(g, recipe->b2, t),
        .rate = hlo_convert(g, report.rate, type),
    };
    if (recipe->clip_norm > 0) {
        hlo_val bound = hlo_like(g, report.norm, recipe->clip_norm);
        a.clip = hlo_select(g, hlo_compare(g, HLO_GE, report.norm, bound),
                            hlo_div(g, bound, report.norm), hlo_like(g, report.norm, 1));
    }
    for (int i = 0; i < params->count; i++)
        update(g, &a, params->list[i].decay, gradients[i], &state->values[i], &state->first[i],
               &state->second[i]);
    report.skipped = hlo_not(g, a.keep);
    state->step = next;
    hlo_scope_pop(g);
    return report;
}
