/* A learner over mini-batches, forwards: matrix products of a few rows with weights that stay in
 * the cache from the first token to the last. */
#include "kernels/cpu/scan_inside.h"

/* ---- memory ------------------------------------------------------------------------------------
 */

typedef struct layout {
    float *base;
    size_t used;
} layout;

static float *room(layout *l, int64_t floats)
{
    float *at = l->base == NULL ? NULL : l->base + l->used;
    l->used += ((size_t)floats + 15) / 16 * 16;
    return at;
}

static void state_room(layout *l, const scan_work *s, scan_state *state)
{
    for (int i = 0; i < s->learner.layers; i++) {
        state->w[i] = room(l, layer_in(&s->learner, i) * s->row[i]);
        state->b[i] = room(l, layer_out(&s->learner, i));
    }
}

/* With one layer there are only z1 and g1. */
static void trained_room(layout *l, scan_work *s)
{
    float **wide[] = {&s->z1, &s->g1, &s->x, &s->slope, &s->r}, **slim[] = {&s->z2, &s->g2};
    for (int i = 0; i < (s->learner.layers == 1 ? 2 : 5); i++)
        *wide[i] = room(l, s->b * s->n);
    for (int i = 0; i < (s->learner.layers == 1 ? 0 : 2); i++)
        *slim[i] = room(l, s->b * s->d);
}

void CODE(scan_train_into)(scan_work *s, float *trained)
{
    layout l = {trained, 0};
    trained_room(&l, s);
}

static void gradients_room(layout *l, const scan_work *s, scan_gradients *g)
{
    int64_t b = s->b, n = s->n, d = s->d, groups;
    float **wide[] = {&g->u1, &g->dg1, &g->dxb, &g->dx, &g->dz1, &g->weighed, &g->slope_b};
    float **slim[] = {&g->u2, &g->dg2, &g->dz2}, **row[] = {&g->h, &g->u, &g->du, &g->dh};
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
        *wide[i] = room(l, b * n);
    for (size_t i = 0; i < sizeof slim / sizeof *slim; i++)
        *slim[i] = room(l, b * d);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        *row[i] = room(l, d);
    g->dp = room(l, b * s->bp);
    g->dm = room(l, b * s->bp);
    g->de = room(l, s->bp);
    state_room(l, s, &g->state);
    groups = (s->job->count + s->job->group - 1) / s->job->group;
    g->kept = room(l, groups * s->state_size);
    g->inner = room(l, s->job->group * s->state_size);
    g->trained = room(l, s->job->group * s->trained_size);
}

size_t CODE(scan_lay_out)(const scan_job *job, bool backward, float *base, scan_work *s)
{
    layout l = {base, 0};
    *s = (scan_work){.job = job, .learner = job->learner, .b = job->size, .d = job->learner.d};
    s->bp = (s->b + LANES - 1) / LANES * LANES;
    s->n = layer_out(&s->learner, 0);
    for (int i = 0; i < s->learner.layers; i++)
        s->row[i] = layer_out(&s->learner, i) + GAP;
    state_room(&l, s, &s->state);
    s->state_size = (int64_t)l.used;
    trained_room(&l, s);
    s->trained_size = (int64_t)l.used - s->state_size;
    float **square[] = {&s->eta, &s->p1, &s->m1, &s->p2, &s->m2};
    float **wide[] = {&s->y, &s->xb, &s->weighed};
    for (size_t i = 0; i < sizeof square / sizeof *square; i++)
        *square[i] = room(&l, s->b * s->bp);
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
        *wide[i] = room(&l, s->b * s->n);
    s->h = room(&l, s->d);
    s->turned = room(&l, s->n * s->bp);
    s->scratch = room(&l, (s->n + s->d) * s->bp);
    if (backward)
        gradients_room(&l, s, &s->back);
    return l.used;
}

void CODE(scan_read_state)(const scan_work *s, int64_t unit, const float *const w[2],
                           const float *const b[2], const scan_state *to)
{
    for (int i = 0; i < s->learner.layers; i++) {
        int64_t in = layer_in(&s->learner, i), out = layer_out(&s->learner, i);
        for (int64_t j = 0; j < in; j++)
            memcpy(to->w[i] + j * s->row[i], w[i] + (unit * in + j) * out,
                   (size_t)out * sizeof(float));
        memcpy(to->b[i], b[i] + unit * out, (size_t)out * sizeof(float));
    }
}

void CODE(scan_write_state)(const scan_work *s, int64_t unit, const scan_state *from,
                            float *const w[2], float *const b[2])
{
    for (int i = 0; i < s->learner.layers; i++) {
        int64_t in = layer_in(&s->learner, i), out = layer_out(&s->learner, i);
        for (int64_t j = 0; j < in; j++)
            memcpy(w[i] + (unit * in + j) * out, from->w[i] + j * s->row[i],
                   (size_t)out * sizeof(float));
        memcpy(b[i] + unit * out, from->b[i], (size_t)out * sizeof(float));
    }
}

/* ---- a mini-batch ------------------------------------------------------------------------------
 */

/* p = a c^T + 1 and m = eta p, a and c [b, n]. */
static void mix(scan_work *s, int64_t n, const float *a, const float *c, float *p, float *m)
{
    turn(s->b, n, c, n, s->turned, s->bp, s->bp);
    product(s->b, s->bp, n, plain(a, n), s->turned, s->bp, p, s->bp, SET);
    for (int64_t i = 0; i < s->b * s->bp; i += LANES) {
        vec one = load(p + i) + 1.0f;
        store(p + i, one);
        store(m + i, load(s->eta + i) * one);
    }
}

void CODE(scan_open)(scan_work *s, int64_t unit, int64_t i)
{
    const scan_job *job = s->job;
    int64_t at = i * job->units + unit, b = s->b;
    s->k = job->k + at * b * s->d;
    s->q = job->q + at * b * s->d;
    s->target = job->target + at * b * s->d;
    for (int64_t j = 0; j < b; j++) {
        memcpy(s->eta + j * s->bp, job->eta + (at * b + j) * b, (size_t)b * sizeof(float));
        memset(s->eta + j * s->bp + b, 0, (size_t)(s->bp - b) * sizeof(float));
    }
    s->e = s->eta + (b - 1) * s->bp;
}

void CODE(scan_train)(scan_work *s, const scan_state *state)
{
    const learner_shape *l = &s->learner;
    int64_t b = s->b, d = s->d, n = s->n, head = 0;
    rows_fill(b, n, state->b[0], s->z1);
    product(b, n, d, plain(s->k, d), state->w[0], s->row[0], s->z1, n, ADD);
    float *z = s->z1, *g = s->g1;
    if (l->layers == 2) {
        gelu(b * n, s->z1, s->x, s->slope);
        rows_fill(b, d, state->b[1], s->z2);
        product(b, d, n, plain(s->x, n), state->w[1], s->row[1], s->z2, d, ADD);
        z = s->z2;
        g = s->g2;
    }
    head = (s->k - s->job->k) / (b * d) % s->job->heads; /* units of all mini-batches in a row */
    for (int64_t i = 0; i < b; i++)
        loss_gradient(d, l->epsilon, s->job->scale + head * d, s->job->bias + head * d, z + i * d,
                      s->target + i * d, s->h, g + i * d);
    if (l->layers == 1)
        return;
    product_turned(b, n, d, s->g2, d, state->w[1], s->row[1], s->r, n, SET, s->bp, s->scratch);
    for (int64_t i = 0; i < b * n; i += LANES)
        store(s->g1 + i, load(s->r + i) * load(s->slope + i));
}

void CODE(scan_answer_first)(scan_work *s, const scan_state *state, float *y, float *slope)
{
    int64_t b = s->b, d = s->d, n = s->n;
    mix(s, d, s->q, s->k, s->p1, s->m1);
    rows_fill(b, n, state->b[0], y);
    product(b, n, d, plain(s->q, d), state->w[0], s->row[0], y, n, ADD);
    product(b, n, b, plain(s->m1, s->bp), s->g1, n, y, n, SUBTRACT);
    if (s->learner.layers == 2)
        gelu(b * n, y, s->xb, slope);
}

void CODE(scan_mix_second)(scan_work *s)
{
    mix(s, s->n, s->xb, s->x, s->p2, s->m2);
}

static void answer_second(scan_work *s, const scan_state *state, float *y)
{
    int64_t b = s->b, d = s->d, n = s->n;
    CODE(scan_mix_second)(s);
    rows_fill(b, d, state->b[1], y);
    product(b, d, n, plain(s->xb, n), state->w[1], s->row[1], y, d, ADD);
    product(b, d, b, plain(s->m2, s->bp), s->g2, d, y, d, SUBTRACT);
}

void CODE(scan_move)(scan_work *s, const scan_state *state)
{
    for (int i = 0; i < s->learner.layers; i++) {
        int64_t b = s->b, in = layer_in(&s->learner, i), out = layer_out(&s->learner, i);
        const float *g = i == 0 ? s->g1 : s->g2;
        rows_weigh(b, in, s->e, i == 0 ? s->k : s->x, s->weighed);
        product(in, out, b, turned(s->weighed, in), g, out, state->w[i], s->row[i], SUBTRACT);
        rows_weigh(b, out, s->e, g, s->weighed);
        rows_sum(b, out, s->weighed, state->b[i], SUBTRACT);
    }
}

size_t CODE(scan_scratch)(const scan_job *job, bool backward);
size_t CODE(scan_scratch)(const scan_job *job, bool backward)
{
    scan_work s;
    return CODE(scan_lay_out)(job, backward, NULL, &s);
}

void CODE(scan)(const scan_job *job, int64_t unit, float *scratch);
void CODE(scan)(const scan_job *job, int64_t unit, float *scratch)
{
    scan_work s;
    CODE(scan_lay_out)(job, false, scratch, &s);
    CODE(scan_read_state)(&s, unit, job->w, job->b, &s.state);
    for (int64_t i = 0; i < job->count; i++) {
        float *answers = job->answers + (i * job->units + unit) * s.b * s.d;
        bool linear = s.learner.layers == 1;
        CODE(scan_open)(&s, unit, i);
        CODE(scan_train)(&s, &s.state);
        CODE(scan_answer_first)(&s, &s.state, linear ? answers : s.y, NULL);
        if (!linear)
            answer_second(&s, &s.state, answers);
        CODE(scan_move)(&s, &s.state);
    }
    CODE(scan_write_state)(&s, unit, &s.state, job->w_end, job->b_end);
}
