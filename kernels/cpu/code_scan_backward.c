/*
 * The gradients of a scan. The way forward is gone once, keeping the state every so many
 * mini-batches; then, group by group from the last, the states within are computed again, and kept
 * with the gradients that moved them, and the mini-batches gone through backwards.
 */
#include "kernels/cpu/scan_inside.h"

static void times(int64_t n, const float *a, const float *b, float *c)
{
    for (int64_t i = 0; i < n; i += LANES)
        store(c + i, load(a + i) * load(b + i));
}

/* The state at place i of a list of them. */
static scan_state state_at(const scan_work *s, float *list, int64_t i)
{
    scan_state at = s->state;
    for (int l = 0; l < s->learner.layers; l++) {
        at.w[l] = list + i * s->state_size + (s->state.w[l] - s->state.w[0]);
        at.b[l] = list + i * s->state_size + (s->state.b[l] - s->state.w[0]);
    }
    return at;
}

static void copy_state(const scan_work *s, const scan_state *from, const scan_state *to)
{
    memcpy(to->w[0], from->w[0], (size_t)s->state_size * sizeof(float));
}

/* ---- the norm and the loss ---------------------------------------------------------------------
 */

typedef struct norm_sums {
    float *scale, *bias; /* gradients, summed up: [d] */
} norm_sums;

/* From the gradient `v` of what loss_gradient gave for z to those of z, target, scale and bias. */
static void loss_backward(const scan_work *s, const float *scale, const float *bias, const float *z,
                          const float *target, const float *v, float *dz, float *d_target,
                          norm_sums sums)
{
    int64_t d = s->d;
    float *h = s->back.h, *u = s->back.u, *du = s->back.du, *dh = s->back.dh;
    float inverse = normalise(d, s->learner.epsilon, z, h), per = 1 / (float)d;
    vec su = {0}, suh = {0}, sa = {0}, sah = {0}, sau = {0};
    for (int64_t i = 0; i < d; i += LANES) {
        vec at = load(h + i), by = load(scale + i), a = inverse * load(v + i);
        vec one = (by * at + load(bias + i) - load(target + i)) * by;
        store(u + i, one);
        su += one;
        suh += one * at;
        sa += a;
        sah += a * at;
        sau += a * one;
    }
    float mean_u = sum_of(su) * per, along = sum_of(suh) * per, mean_a = sum_of(sa) * per;
    float a_along = sum_of(sah) * per;
    float explicitly = sum_of(sau) * per - mean_u * mean_a - along * a_along;
    vec sdh = {0}, sdhh = {0};
    for (int64_t i = 0; i < d; i += LANES) {
        vec at = load(h + i), by = load(scale + i), a = inverse * load(v + i);
        vec one = a - mean_a - at * a_along;
        vec of_h = by * by * one - along * a - a_along * load(u + i);
        store(du + i, one);
        store(dh + i, of_h);
        sdh += of_h;
        sdhh += of_h * at;
    }
    float mean_dh = sum_of(sdh) * per, dh_along = sum_of(sdhh) * per + explicitly;
    for (int64_t i = 0; i < d; i += LANES) {
        vec at = load(h + i), by = load(scale + i), one = load(du + i);
        vec off = by * at + load(bias + i) - load(target + i);
        store(dz + i, inverse * (load(dh + i) - mean_dh - at * dh_along));
        store(d_target + i, -by * one);
        store(sums.scale + i, load(sums.scale + i) + one * (off + by * at));
        store(sums.bias + i, load(sums.bias + i) + by * one);
    }
}

/* ---- what both layers share --------------------------------------------------------------------
 */

/* Gradients of the operands, of one mini-batch. */
typedef struct given {
    float *k, *target, *q, *eta; /* eta [b, b]; the others [b, d] */
} given;

/*
 * The way from answers y = (what the weights made) - M G, and from weights that moved on by (e x)^T
 * G, to G and e, into dg and de, and to P through M, into dp and eta's gradient. `dy` is the
 * gradient of y [b, n], g the layer's G, `u` what x made of the gradients of the weights.
 */
static void mixed_backward(scan_work *s, int64_t n, const float *dy, const float *g, const float *p,
                           const float *m, const float *u, float *dg)
{
    scan_gradients *t = &s->back;
    int64_t b = s->b, bp = s->bp;
    for (int64_t i = 0; i < b; i++) {
        vec sum = {0};
        for (int64_t j = 0; j < n; j += LANES) {
            vec one = load(u + i * n + j);
            sum += one * load(g + i * n + j);
            store(dg + i * n + j, -s->e[i] * one);
        }
        t->de[i] -= sum_of(sum);
    }
    product(b, n, b, turned(m, bp), dy, n, dg, n, SUBTRACT);
    turn(b, n, g, n, s->turned, bp, bp);
    product(b, bp, n, plain(dy, n), s->turned, bp, t->dp, bp, SET);
    for (int64_t i = 0; i < b * bp; i += LANES) {
        vec dm = -load(t->dp + i);
        store(t->dm + i, load(t->dm + i) + dm * load(p + i));
        store(t->dp + i, dm * load(s->eta + i));
    }
}

/* u = x times the gradients of weights and bias. */
static void through_gradients(const scan_work *s, int layer, const float *x, float *u)
{
    const scan_state *d_state = &s->back.state;
    int64_t in = layer_in(&s->learner, layer), out = layer_out(&s->learner, layer);
    rows_fill(s->b, out, d_state->b[layer], u);
    product(s->b, out, in, plain(x, in), d_state->w[layer], s->row[layer], u, out, ADD);
}

/* Gradients of a layer's weights from rows that went in and gradients of what came out. */
static void weights_backward(const scan_work *s, int layer, const float *x, const float *dy,
                             bool bias)
{
    const scan_state *d_state = &s->back.state;
    int64_t in = layer_in(&s->learner, layer), out = layer_out(&s->learner, layer);
    product(in, out, s->b, turned(x, in), dy, out, d_state->w[layer], s->row[layer], ADD);
    if (bias)
        rows_sum(s->b, out, dy, d_state->b[layer], ADD);
}

/* From gradients dy of what comes out of a layer to those of what went in. */
static void inputs_backward(const scan_work *s, int layer, const float *dy, const scan_state *with,
                            float *dx, product_mode mode)
{
    int64_t in = layer_in(&s->learner, layer), out = layer_out(&s->learner, layer);
    product_turned(s->b, in, out, dy, out, with->w[layer], s->row[layer], dx, in, mode, s->bp,
                   s->scratch);
}

/* ---- a mini-batch ------------------------------------------------------------------------------
 */

/* The second layer, from the gradient of the answers: dxb, dx and dg2. */
static void second_backward(scan_work *s, const scan_state *state, const float *d_answers)
{
    scan_gradients *t = &s->back;
    int64_t b = s->b, n = s->n, d = s->d;
    CODE(scan_mix_second)(s);
    through_gradients(s, 1, s->x, t->u2);
    mixed_backward(s, d, d_answers, s->g2, s->p2, s->m2, t->u2, t->dg2);
    inputs_backward(s, 1, d_answers, state, t->dxb, SET);
    product(b, n, b, plain(t->dp, s->bp), s->x, n, t->dxb, n, ADD);
    product(b, n, b, turned(t->dp, s->bp), s->xb, n, t->dx, n, SET);
    rows_weigh(b, d, s->e, s->g2, t->weighed);
    inputs_backward(s, 1, t->weighed, &t->state, t->dx, SUBTRACT);
    weights_backward(s, 1, s->xb, d_answers, true);
    times(b * n, t->dxb, t->slope_b, t->dxb);
}

/* The first layer, from the gradient of what it answered: dg1. */
static void first_backward(scan_work *s, const scan_state *state, const float *dy, given to)
{
    scan_gradients *t = &s->back;
    int64_t b = s->b, n = s->n, d = s->d;
    through_gradients(s, 0, s->k, t->u1);
    mixed_backward(s, n, dy, s->g1, s->p1, s->m1, t->u1, t->dg1);
    inputs_backward(s, 0, dy, state, to.q, SET);
    product(b, d, b, plain(t->dp, s->bp), s->k, d, to.q, d, ADD);
    product(b, d, b, turned(t->dp, s->bp), s->q, d, to.k, d, SET);
    rows_weigh(b, n, s->e, s->g1, t->weighed);
    inputs_backward(s, 0, t->weighed, &t->state, to.k, SUBTRACT);
    weights_backward(s, 0, s->q, dy, true);
}

/* G1 = (G2 W2^T) slope, backwards: onto dg2 and the second layer's weights. dg1 is used up. */
static void inner_backward(scan_work *s, const scan_state *state)
{
    scan_gradients *t = &s->back;
    int64_t b = s->b, n = s->n, d = s->d;
    for (int64_t i = 0; i < b * n; i += LANES) {
        vec z = load(s->z1 + i), dg = load(t->dg1 + i);
        store(t->dz1 + i, dg * load(s->r + i) * gelu_curve_at(z, gelu_gate(z)));
        store(t->dg1 + i, dg * load(s->slope + i));
    }
    product(b, d, n, plain(t->dg1, n), state->w[1], s->row[1], t->dg2, d, ADD);
    weights_backward(s, 1, t->dg1, s->g2, false);
}

/* What is given to the loss: z of the last layer. */
static void losses_backward(scan_work *s, int64_t unit, const float *z, const float *dg, float *dz,
                            given to)
{
    const scan_job *job = s->job;
    int64_t d = s->d, head = unit % job->heads;
    norm_sums sums = {job->d_scale + unit * d, job->d_bias + unit * d};
    for (int64_t i = 0; i < s->b; i++)
        loss_backward(s, job->scale + head * d, job->bias + head * d, z + i * d, s->target + i * d,
                      dg + i * d, dz + i * d, to.target + i * d, sums);
}

static void mini_batch_backward(scan_work *s, const scan_state *state, int64_t unit, int64_t i)
{
    const scan_job *job = s->job;
    scan_gradients *t = &s->back;
    int64_t b = s->b, n = s->n, d = s->d, at = i * job->units + unit;
    given to = {job->d_k + at * b * d, job->d_target + at * b * d, job->d_q + at * b * d,
                job->d_eta + at * b * b};
    const float *d_answers = job->d_answers + at * b * d, *dy = d_answers;
    CODE(scan_open)(s, unit, i);
    CODE(scan_answer_first)(s, state, s->y, t->slope_b);
    memset(t->dm, 0, (size_t)(b * s->bp) * sizeof(float));
    memset(t->de, 0, (size_t)b * sizeof(float));
    if (s->learner.layers == 2) {
        second_backward(s, state, d_answers);
        dy = t->dxb;
    }
    first_backward(s, state, dy, to);
    if (s->learner.layers == 2) {
        inner_backward(s, state);
        losses_backward(s, unit, s->z2, t->dg2, t->dz2, to);
        inputs_backward(s, 1, t->dz2, state, t->dx, ADD);
        weights_backward(s, 1, s->x, t->dz2, true);
        for (int64_t j = 0; j < b * n; j += LANES)
            store(t->dz1 + j, load(t->dz1 + j) + load(t->dx + j) * load(s->slope + j));
    } else {
        losses_backward(s, unit, s->z1, t->dg1, t->dz1, to);
    }
    inputs_backward(s, 0, t->dz1, state, to.k, ADD);
    weights_backward(s, 0, s->k, t->dz1, true);
    for (int64_t j = 0; j < b; j++)
        memcpy(to.eta + j * b, t->dm + j * s->bp, (size_t)b * sizeof(float));
    for (int64_t j = 0; j < b; j++)
        to.eta[(b - 1) * b + j] += t->de[j];
}

/* ---- the whole ---------------------------------------------------------------------------------
 */

/* The state after mini-batch i, in place. */
static void forwards(scan_work *s, const scan_state *state, int64_t unit, int64_t i)
{
    CODE(scan_open)(s, unit, i);
    CODE(scan_train)(s, state);
    CODE(scan_move)(s, state);
}

/* Mini-batches [first, end), from the state kept before them. */
static void group_backward(scan_work *s, int64_t unit, int64_t first, int64_t end)
{
    scan_gradients *t = &s->back;
    scan_state at = state_at(s, t->kept, first / s->job->group);
    copy_state(s, &at, &s->state);
    for (int64_t i = first; i < end; i++) {
        at = state_at(s, t->inner, i - first);
        copy_state(s, &s->state, &at);
        CODE(scan_train_into)(s, t->trained + (i - first) * s->trained_size);
        forwards(s, &s->state, unit, i);
    }
    for (int64_t i = end - 1; i >= first; i--) {
        at = state_at(s, t->inner, i - first);
        CODE(scan_train_into)(s, t->trained + (i - first) * s->trained_size);
        mini_batch_backward(s, &at, unit, i);
    }
}

void CODE(scan_backward)(const scan_job *job, int64_t unit, float *scratch);
void CODE(scan_backward)(const scan_job *job, int64_t unit, float *scratch)
{
    scan_work s;
    int64_t group = job->group, last = (job->count - 1) / group * group, d = job->learner.d;
    CODE(scan_lay_out)(job, true, scratch, &s);
    CODE(scan_read_state)(&s, unit, job->w, job->b, &s.state);
    CODE(scan_read_state)(&s, unit, job->d_w_end, job->d_b_end, &s.back.state);
    memset(job->d_scale + unit * d, 0, (size_t)d * sizeof(float));
    memset(job->d_bias + unit * d, 0, (size_t)d * sizeof(float));
    for (int64_t i = 0; i <= last && i < job->count; i++) {
        scan_state kept = state_at(&s, s.back.kept, i / group);
        if (i % group == 0)
            copy_state(&s, &s.state, &kept);
        if (i < last)
            forwards(&s, &s.state, unit, i);
    }
    for (int64_t first = last; first >= 0 && job->count > 0; first -= group)
        group_backward(&s, unit, first, first + group < job->count ? first + group : job->count);
    CODE(scan_write_state)(&s, unit, &s.back.state, job->d_w, job->d_b);
}
