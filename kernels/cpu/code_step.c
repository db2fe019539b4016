/*
 * One token of a head. The weights and the sums of gradients are large and the token small, so what
 * counts is how often memory is passed over: each array of the state comes from memory once, and
 * the sums go back once. The second layer's weights are needed three times in a row (forwards,
 * backwards, for the answer) and stay in the cache between.
 */
#include "kernels/cpu/code.h"
#include "kernels/cpu/learner.h"
#include "kernels/cpu/products.h"

/* Rows that are passed over at once. Where a row does not fit into registers they are few, so that
 * memory is still read nearly in order, which is what it is fast at. */
INLINE int64_t strip_of(int64_t k, int64_t n)
{
    return n <= 4 * LANES ? k : 8;
}

/* y [rows, n] = x [rows, k] times w, for one or two rows: enough columns at once to keep the units
 * busy. */
INLINE void through(int rows, int64_t k, int64_t n, const float *x, const float *w, float *y)
{
    int64_t strip = strip_of(k, n);
    for (int64_t i = 0; i < k; i += strip) {
        int64_t m = k - i < strip ? k - i : strip, j = 0;
        product_mode mode = i == 0 ? SET : ADD;
        for (; j + 4 * LANES <= n; j += 4 * LANES)
            tile(rows, 4, m, plain(x + i, k), w + i * n + j, n, y + j, n, mode);
        for (; j < n; j += LANES)
            tile(rows, 1, m, plain(x + i, k), w + i * n + j, n, y + j, n, mode);
    }
}

/* y[i] = w[i, :] g for k rows of n. */
INLINE void backwards(int64_t k, int64_t n, const float *g, const float *w, float *y)
{
    for (int64_t i = 0; i < k; i += 8) {
        vec sum[8] = {{0}};
        for (int64_t j = 0; j < n; j += LANES) {
            vec at = load(g + j);
            UNROLLED
            for (int l = 0; l < 8; l++)
                sum[l] += at * load(w + (i + l) * n + j);
        }
        store8(y + i, sums8(sum));
    }
}

/* A layer while it learns: what goes in (times the rate), the gradient of what comes out. */
typedef struct lesson {
    int64_t k, n;
    const float *x, *g;
    const float *asked; /* what the query puts into the layer */
    float move;
    float *w, *sum;
    float *y; /* what the moved weights, or with `sums_only` the sums alone, make of `asked` */
} lesson;

/* Rows [first, end), columns [j, j + vecs LANES). At the end of a mini-batch the moved weights
 * stay.
 */
INLINE void learn_block(int vecs, const lesson *t, int64_t first, int64_t end, int64_t j,
                        bool sums_only, bool last)
{
    vec g[4], y[4];
    UNROLLED
    for (int c = 0; c < vecs; c++) {
        g[c] = load(t->g + j + c * LANES);
        y[c] = (vec){0};
        if (first > 0)
            y[c] = load(t->y + j + c * LANES);
    }
    for (int64_t i = first; i < end; i++) {
        float *w = t->w + i * t->n + j, *sum = t->sum + i * t->n + j;
        vec x = all(t->x[i]), asked = all(t->asked[i]);
        UNROLLED
        for (int c = 0; c < vecs; c++) {
            vec now = load(sum + c * LANES) + x * g[c], moved = now;
            if (!sums_only || last)
                moved = load(w + c * LANES) - t->move * now;
            y[c] += asked * (sums_only ? now : moved);
            store(sum + c * LANES, last ? (vec){0} : now);
            if (last)
                store(w + c * LANES, moved);
        }
    }
    UNROLLED
    for (int c = 0; c < vecs; c++)
        store(t->y + j + c * LANES, y[c]);
}

INLINE void learn_all(const lesson *t, bool sums_only, bool last)
{
    int64_t strip = strip_of(t->k, t->n);
    for (int64_t i = 0; i < t->k; i += strip) {
        int64_t end = i + strip < t->k ? i + strip : t->k, j = 0;
        for (; j + 4 * LANES <= t->n; j += 4 * LANES)
            learn_block(4, t, i, end, j, sums_only, last);
        for (; j < t->n; j += LANES)
            learn_block(1, t, i, end, j, sums_only, last);
    }
}

static void learn(const lesson *t, bool sums_only, bool last)
{
    if (sums_only && last)
        learn_all(t, true, true);
    else if (sums_only)
        learn_all(t, true, false);
    else if (last)
        learn_all(t, false, true);
    else
        learn_all(t, false, false);
}

/* The same of a bias, a weight whose input is 1; what it adds to the answer goes onto y. */
INLINE void learn_bias(int64_t n, float rate, float move, bool last, const float *g, float *b,
                       float *sum, float *y)
{
    for (int64_t j = 0; j < n; j += LANES) {
        vec now = load(sum + j) + rate * load(g + j), moved = load(b + j) - move * now;
        store(y + j, load(y + j) + moved);
        store(sum + j, last ? (vec){0} : now);
        if (last)
            store(b + j, moved);
    }
}

INLINE void scaled(int64_t n, float by, const float *x, float *y)
{
    for (int64_t i = 0; i < n; i += LANES)
        store(y + i, by * load(x + i));
}

/* The first layer learns; y becomes what it makes of the query, `start` being what the weights made
 * of it before. */
static void learn_first(const step_head *t, const float *g, const float *start, float *x, float *y)
{
    int64_t n = layer_out(&t->learner, 0), d = t->learner.d;
    scaled(d, t->rate, t->kq, x);
    lesson first = {d, n, x, g, t->kq + d, t->move, t->w[0], t->w_sum[0], y};
    learn(&first, true, t->last);
    for (int64_t j = 0; j < n; j += LANES)
        store(y + j, load(start + j) - t->move * load(y + j));
    learn_bias(n, t->rate, t->move, t->last, g, t->b[0], t->b_sum[0], y);
}

/* query + norm(z). */
static void answer(const step_head *t, const float *z, float *h)
{
    int64_t d = t->learner.d;
    normalise(d, t->learner.epsilon, z, h);
    for (int64_t i = 0; i < d; i += LANES)
        store(t->answer + i,
              load(t->kq + d + i) + load(t->scale + i) * load(h + i) + load(t->bias + i));
}

static void add_to(int64_t n, const float *x, float *y)
{
    for (int64_t i = 0; i < n; i += LANES)
        store(y + i, load(y + i) + load(x + i));
}

static void step_linear(const step_head *t)
{
    int64_t d = t->learner.d;
    float *z = t->scratch, *g = z + 2 * d, *h = g + d, *x = h + d, *y = x + d;
    through(2, d, d, t->kq, t->w[0], z); /* key, query */
    add_to(d, t->b[0], z);
    loss_gradient(d, t->learner.epsilon, t->scale, t->bias, z, t->target, h, g);
    learn_first(t, g, z + d, x, y);
    answer(t, y, h);
}

static void step_mlp(const step_head *t)
{
    int64_t d = t->learner.d, w = t->learner.w;
    float *z = t->scratch, *x2 = z + 2 * w, *slope = x2 + w, *g1 = slope + w, *y = g1 + w;
    float *z2 = y + w, *g2 = z2 + d, *h = g2 + d, *x = h + d;
    through(2, d, w, t->kq, t->w[0], z);
    add_to(w, t->b[0], z);
    gelu(w, z, x2, slope);
    through(1, w, d, x2, t->w[1], z2);
    add_to(d, t->b[1], z2);
    loss_gradient(d, t->learner.epsilon, t->scale, t->bias, z2, t->target, h, g2);
    backwards(w, d, g2, t->w[1], g1);
    for (int64_t i = 0; i < w; i += LANES)
        store(g1 + i, load(g1 + i) * load(slope + i));
    learn_first(t, g1, z + w, x, y);
    gelu(w, y, y, NULL);
    scaled(w, t->rate, x2, x2);
    lesson second = {w, d, x2, g2, y, t->move, t->w[1], t->w_sum[1], z2};
    learn(&second, false, t->last);
    learn_bias(d, t->rate, t->move, t->last, g2, t->b[1], t->b_sum[1], z2);
    answer(t, z2, h);
}

void CODE(step)(const step_head *head);
void CODE(step)(const step_head *head)
{
    if (head->learner.layers == 1)
        step_linear(head);
    else
        step_mlp(head);
}
