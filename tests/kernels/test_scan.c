/*
 * ttt_scan and its gradients. Forwards: against the learner in double precision, whose moved
 * weights exist one by one, and against the network's dual form, compiled. Backwards: against the
 * compiled gradients of that form, and against finite differences of the one in double precision.
 */
#include "kernels/cpu/code.h"
#include "tests/support/kernel_graphs.h"
#include "tests/support/kernels.h"
#include "tests/support/support.h"

#include <math.h>
#include <stdlib.h>

enum { GIVEN = SCAN_GIVEN, MAX_IN = SCAN_MAX_IN, MAX_OUT = SCAN_MAX_OUT };

typedef scan_graph variant;

/* Operands, results, gradients of the results, gradients of the operands. */
typedef struct scan_data {
    variant v;
    int n_in, n_out;
    kernels_array in[MAX_IN], out[MAX_OUT], d_out[MAX_OUT], d_in[MAX_IN];
} scan_data;

static int64_t elements(const kernels_array *a)
{
    int64_t n = 1;
    for (int64_t i = 0; i < a->rank; i++)
        n *= a->dims[i];
    return n;
}

static kernels_array array(uint64_t *seed, float scale, float shift, int rank, const int64_t *dims)
{
    kernels_array a = {.type = XLA_FFI_DataType_F32, .rank = rank};
    memcpy(a.dims, dims, (size_t)rank * sizeof *dims);
    float *data = kernels_floats(elements(&a));
    kernels_numbers(data, elements(&a), scale, seed);
    for (int64_t i = 0; i < elements(&a); i++)
        data[i] += shift;
    a.data = data;
    return a;
}

/* Rates between 0.02 and 0.06 for tokens up to the answer's own, like those of a network. */
static void make_eta(const variant *v, float *eta)
{
    for (int64_t i = 0; i < v->count * v->batch * v->heads * v->size; i++) {
        int64_t row = i % v->size;
        for (int64_t j = 0; j < v->size; j++) {
            float *one = &eta[i * v->size + j];
            *one = j > row ? 0 : (0.3f + 0.1f * *one) / (float)(row + 1);
        }
    }
}

static scan_data *data_new(variant v)
{
    uint64_t seed = 11;
    scan_data *s = calloc(1, sizeof *s);
    assert_non_null(s);
    s->v = v;
    const int64_t tokens[] = {v.count, v.batch, v.heads, v.size, v.d};
    const int64_t eta[] = {v.count, v.batch, v.heads, v.size, v.size}, norm[] = {v.heads, v.d};
    for (int i = 0; i < 3; i++)
        s->in[i] = array(&seed, 1, 0, 5, tokens);
    s->in[3] = array(&seed, 1, 0, 5, eta);
    make_eta(&v, s->in[3].data);
    s->in[4] = array(&seed, 0.2f, 1, 2, norm);
    s->in[5] = array(&seed, 0.2f, 0, 2, norm);
    s->n_in = GIVEN;
    s->out[0] = array(&seed, 0, 0, 5, tokens);
    s->d_out[0] = array(&seed, 1, 0, 5, tokens);
    s->n_out = 1;
    for (int i = 0; i < 2 * v.layers; i++) {
        int layer = i % v.layers;
        const int64_t dims[] = {v.batch, v.heads, i >= v.layers ? 1 : (layer == 0 ? v.d : v.w),
                                layer == v.layers - 1 ? v.d : v.w};
        s->in[s->n_in++] = array(&seed, 0.1f, 0, 4, dims);
        s->out[s->n_out] = array(&seed, 0, 0, 4, dims);
        s->d_out[s->n_out++] = array(&seed, 1, 0, 4, dims);
    }
    for (int i = 0; i < s->n_in; i++)
        s->d_in[i] = array(&seed, 0, 0, (int)s->in[i].rank, s->in[i].dims);
    return s;
}

static void data_free(scan_data *s)
{
    for (int i = 0; i < s->n_in; i++) {
        free(s->in[i].data);
        free(s->d_in[i].data);
    }
    for (int i = 0; i < s->n_out; i++) {
        free(s->out[i].data);
        free(s->d_out[i].data);
    }
    free(s);
}

static kernels_call call_of(const scan_data *s, bool backward)
{
    kernels_call c = {.target = backward ? "ttt_scan_backward" : "ttt_scan",
                      .n_in = s->n_in,
                      .n_out = backward ? s->n_in : s->n_out,
                      .n_attrs = backward ? 3 : 2,
                      .threads = 2};
    memcpy(c.in, s->in, (size_t)s->n_in * sizeof *s->in);
    memcpy(c.out, backward ? s->d_in : s->out, (size_t)c.n_out * sizeof *s->out);
    for (int i = 0; i < s->n_out && backward; i++)
        c.in[c.n_in++] = s->d_out[i];
    c.attrs[0] = KERNELS_INT("layers", s->v.layers);
    c.attrs[1] = KERNELS_REAL("epsilon", 1e-6f);
    c.attrs[2] = KERNELS_INT("group", s->v.group);
    return c;
}

static void run(const scan_data *s, bool backward)
{
    kernels_call c = call_of(s, backward);
    const char *error = kernels_run(&c);
    if (error != NULL)
        fail_msg("%s", error);
}

/* ---- in double precision -----------------------------------------------------------------------
 */

static void read_part(const kernels_array *a, int64_t at, int64_t n, double *to)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = ((const float *)a->data)[at * n + i];
}

static double_learner *learner_at(const scan_data *s, int64_t unit)
{
    const variant *v = &s->v;
    double_learner *l = double_learner_new(v->layers, v->d, v->w, 1e-6);
    read_part(&s->in[4], unit % v->heads, v->d, l->scale);
    read_part(&s->in[5], unit % v->heads, v->d, l->bias);
    for (int i = 0; i < v->layers; i++) {
        const kernels_array *w = &s->in[GIVEN + i], *b = &s->in[GIVEN + v->layers + i];
        read_part(w, unit, w->dims[2] * w->dims[3], l->weights[i]);
        read_part(b, unit, b->dims[3], l->biases[i]);
    }
    return l;
}

/* One unit in double precision. `nudged` is an operand one element of which is `by` larger. */
typedef struct double_run {
    double *answers, *k, *q, *target, *eta;
    double_learner *l;
} double_run;

static double_run double_scan(const scan_data *s, int64_t unit, int nudged, int64_t element,
                              double by)
{
    const variant *v = &s->v;
    int64_t tokens = v->size * v->d, square = v->size * v->size, units = v->batch * v->heads;
    double_run r = {.l = learner_at(s, unit)};
    double **list[5] = {&r.k, &r.target, &r.q, &r.eta, &r.answers};
    for (int i = 0; i < 5; i++) {
        *list[i] = calloc((size_t)(v->count * (i == 3 ? square : tokens)), sizeof(double));
        assert_non_null(*list[i]);
    }
    for (int64_t i = 0; i < v->count; i++) {
        for (int j = 0; j < 4; j++) {
            int64_t n = j == 3 ? square : tokens;
            read_part(&s->in[j], i * units + unit, n, *list[j] + i * n);
        }
    }
    double *places[MAX_IN] = {r.k, r.target, r.q, r.eta, r.l->scale, r.l->bias};
    for (int i = 0; i < v->layers; i++) {
        places[GIVEN + i] = r.l->weights[i];
        places[GIVEN + v->layers + i] = r.l->biases[i];
    }
    if (nudged >= 0)
        places[nudged][element] += by;
    for (int64_t i = 0; i < v->count; i++)
        double_mini_batch(r.l, v->size, r.k + i * tokens, r.q + i * tokens, r.target + i * tokens,
                          r.eta + i * square, r.answers + i * tokens);
    return r;
}

static void double_run_free(double_run *r)
{
    free(r->answers);
    free(r->k);
    free(r->q);
    free(r->target);
    free(r->eta);
    double_learner_free(r->l);
}

/* Visits a unit's part of every result: fn(ctx, float of the array at its place, double). */
typedef void (*visitor)(void *ctx, double kernel, double reference);

static void visit(const scan_data *s, const kernels_array *arrays, int64_t unit,
                  const double_run *r, visitor fn, void *ctx)
{
    const variant *v = &s->v;
    int64_t tokens = v->size * v->d, units = v->batch * v->heads;
    const float *answers = arrays[0].data;
    for (int64_t i = 0; i < v->count * tokens; i++)
        fn(ctx, answers[(i / tokens * units + unit) * tokens + i % tokens], r->answers[i]);
    for (int i = 0; i < 2 * v->layers; i++) {
        const kernels_array *a = &arrays[1 + i];
        const double *made = i < v->layers ? r->l->weights[i] : r->l->biases[i - v->layers];
        int64_t n = a->dims[2] * a->dims[3];
        for (int64_t j = 0; j < n; j++)
            fn(ctx, ((const float *)a->data)[unit * n + j], made[j]);
    }
}

static void see_distance(void *ctx, double kernel, double reference)
{
    double *worst = ctx;
    *worst = fmax(*worst, fabs(kernel - reference));
}

static void see_product(void *ctx, double kernel, double reference)
{
    double *sum = ctx;
    *sum += kernel * reference;
}

static const char *const paths[] = {"portable", "avx2", "avx512"};

static void scans_agree_with_double_precision(void **state)
{
    static const struct {
        variant v;
        double near;
    } cases[] = {/* 1.3e-5 was seen with two layers, else 3e-6 */
                 {{1, 8, 2, 2, 16, 64, 64, 4}, 2e-5},  {{2, 3, 1, 2, 16, 64, 256, 4}, 5e-5},
                 {{1, 5, 2, 3, 5, 8, 8, 2}, 2e-5},     {{2, 4, 2, 1, 7, 24, 40, 3}, 2e-5},
                 {{1, 3, 1, 1, 16, 96, 96, 4}, 2e-5},  {{1, 2, 1, 1, 17, 128, 128, 4}, 2e-5},
                 {{2, 2, 1, 1, 1, 128, 512, 4}, 5e-5}, {{2, 1, 1, 2, 33, 16, 64, 4}, 2e-5},
                 {{1, 0, 1, 2, 4, 16, 16, 4}, 2e-5}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases * 3; i++) {
        if (!cpu_code_force(paths[i % 3]))
            continue;
        scan_data *s = data_new(cases[i / 3].v);
        double off = 0;
        run(s, false);
        for (int64_t unit = 0; unit < s->v.batch * s->v.heads; unit++) {
            double_run r = double_scan(s, unit, -1, 0, 0);
            visit(s, s->out, unit, &r, see_distance, &off);
            double_run_free(&r);
        }
        if (getenv("TTT_TEST_SHOW") != NULL)
            print_message("case %zu, %s: %g\n", i / 3, paths[i % 3], off);
        if (!(off < cases[i / 3].near))
            fail_msg("case %zu, %s: %g from double precision", i / 3, paths[i % 3], off);
        data_free(s);
    }
    cpu_code_force(NULL);
}

/* Where element `at` of a unit's part of operand i stands in the whole array. */
static int64_t place_of(const scan_data *s, int i, int64_t unit, int64_t at)
{
    const variant *v = &s->v;
    int64_t units = v->batch * v->heads, n = v->size * (i == 3 ? v->size : v->d);
    if (i < 4)
        return (at / n * units + unit) * n + at % n;
    if (i < GIVEN)
        return unit % v->heads * v->d + at;
    return unit * s->in[i].dims[2] * s->in[i].dims[3] + at;
}

/* The slope of sum(d_out results) in one element, by a step to either side. */
static double slope_of(const scan_data *s, int i, int64_t unit, int64_t at)
{
    const double step = 1e-5;
    double sum[2] = {0, 0};
    int64_t same = i == 4 || i == 5 ? s->v.batch : 1; /* sequences share the norm */
    for (int64_t b = 0; b < same; b++) {
        int64_t of = same == 1 ? unit : b * s->v.heads + unit % s->v.heads;
        for (int side = 0; side < 2; side++) {
            double_run r = double_scan(s, of, i, at, side == 0 ? -step : step);
            visit(s, s->d_out, of, &r, see_product, &sum[side]);
            double_run_free(&r);
        }
    }
    return (sum[1] - sum[0]) / (2 * step);
}

static void check_slopes(variant v, const char *path)
{
    scan_data *s = data_new(v);
    uint64_t seed = 5;
    run(s, true);
    double worst = 0;
    for (int i = 0; i < s->n_in; i++) {
        const float *made = s->d_in[i].data;
        int64_t unit = v.batch * v.heads - 1, n = elements(&s->in[i]);
        n = i == 4 || i == 5 ? v.d : n / (v.batch * v.heads);
        double size = 0;
        for (int64_t j = 0; j < elements(&s->in[i]); j++)
            size = fmax(size, fabsf(made[j]));
        for (int tries = 0; tries < 12; tries++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            int64_t at = (int64_t)((seed >> 33) % (uint64_t)n);
            double slope = slope_of(s, i, unit, at);
            double off = fabs(slope - made[place_of(s, i, unit, at)]) / (size + 1e-3);
            worst = fmax(worst, off);
            if (!(off < 1e-5)) /* 7e-7 was seen */
                fail_msg("%s, operand %d, element %lld: %g, by differences %g", path, i,
                         (long long)at, (double)made[place_of(s, i, unit, at)], slope);
        }
    }
    if (getenv("TTT_TEST_SHOW") != NULL)
        print_message("%s: %g from finite differences\n", path, worst);
    data_free(s);
}

static void gradients_are_slopes(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        if (!cpu_code_force(paths[i]))
            continue;
        check_slopes((variant){1, 5, 2, 2, 5, 8, 8, 2}, paths[i]);
        check_slopes((variant){2, 4, 2, 2, 4, 16, 32, 3}, paths[i]);
    }
    cpu_code_force(NULL);
}

/* However states are kept, the gradients are the same bits. */
static void groups_change_nothing(void **state)
{
    static const int64_t groups[] = {1, 2, 3, 7, 100};
    (void)state;
    for (int layers = 1; layers <= 2; layers++) {
        float *first = NULL;
        for (int i = 0; i < 5; i++) {
            scan_data *s = data_new((variant){layers, 7, 2, 2, 4, 16, 32, groups[i]});
            size_t size = (size_t)elements(&s->d_in[GIVEN]) * sizeof(float);
            run(s, true);
            if (first == NULL) {
                first = kernels_floats(elements(&s->d_in[GIVEN]));
                memcpy(first, s->d_in[GIVEN].data, size);
            }
            assert_memory_equal(first, s->d_in[GIVEN].data, size);
            data_free(s);
        }
        free(first);
    }
}

/* ---- what is refused ---------------------------------------------------------------------------
 */

static void assert_refused(const kernels_call *c, const char *part)
{
    const char *error = kernels_run(c);
    if (error == NULL)
        fail_msg("accepted, though: %s", part);
    ASSERT_CONTAINS(error, part);
}

static void wrong_calls_are_refused(void **state)
{
    scan_data *s = data_new((variant){2, 3, 2, 2, 4, 16, 32, 2});
    const kernels_call good = call_of(s, false), back = call_of(s, true);
    kernels_call c;
    (void)state;
    c = good, c.n_out--;
    assert_refused(&c, "ttt_scan: takes 10 operands and gives 5 results, not 10 and 4");
    c = good, c.in[1].dims[0] = 2;
    assert_refused(&c, "target has to be [3, 2, 2, 4, 16], not [2, 2, 2, 4, 16]");
    c = good, c.in[3].dims[4] = 5;
    assert_refused(&c, "eta has to be [3, 2, 2, 4, 4], not [3, 2, 2, 4, 5]");
    c = good, c.in[2].type = XLA_FFI_DataType_BF16;
    assert_refused(&c, "q has to be f32");
    c = good, c.in[GIVEN + 1].dims[2] = 33;
    assert_refused(&c, "W2 has to be [2, 2, 32, 16], not [2, 2, 33, 16]");
    c = good, c.out[1].dims[3] = 8;
    assert_refused(&c, "W1 has to be");
    c = good, c.attrs[0].integer = 0;
    assert_refused(&c, "attribute layers");
    c = back, c.attrs[2].integer = 0;
    assert_refused(&c, "ttt_scan_backward: attribute group has to be from 1");
    c = back, c.n_attrs = 2;
    assert_refused(&c, "attribute group (i64) is missing");
    c = back, c.n_in--;
    assert_refused(&c, "takes 15 operands and gives 10 results, not 14 and 10");
    c = back, c.out[5].dims[0] = 1;
    assert_refused(&c, "the gradient of norm_bias has to be [2, 16], not [1, 16]");
    data_free(s);
}

/* ---- against the network's form, through the plugin ---------------------------------------------
 */

static void plugin_run(pjrt_client *client, const scan_data *s, bool kernels, float **to)
{
    hlo_graph *g = hlo_graph_new("scan");
    scan_graph_build(g, &s->v, kernels, true);
    char *text = hlo_write_text(g, NULL);
    if (text == NULL)
        fail_msg("%s", hlo_graph_error(g)->message);
    pjrt_executable *exe;
    ASSERT_OK(pjrt_compile(client, pjrt_program_text(text), NULL, &exe));
    pjrt_buffer *in[MAX_IN + MAX_OUT], *out[MAX_IN + MAX_OUT];
    int n = s->n_in + s->n_out;
    for (int i = 0; i < n; i++) {
        const kernels_array *a = i < s->n_in ? &s->in[i] : &s->d_out[i - s->n_in];
        ASSERT_OK(pjrt_buffer_from_host(pjrt_client_device(client, 0), PJRT_F32, a->dims,
                                        (int)a->rank, a->data, NULL, NULL, &in[i]));
    }
    ASSERT_OK(pjrt_execute(exe, in, (size_t)n, NULL, out, (size_t)n, NULL));
    for (int i = 0; i < n; i++) {
        int64_t size = elements(i < s->n_out ? &s->out[i] : &s->in[i - s->n_out]);
        to[i] = kernels_floats(size);
        ASSERT_OK(pjrt_buffer_to_host(out[i], to[i], (size_t)size * sizeof(float), NULL));
        pjrt_buffer_free(in[i]);
        pjrt_buffer_free(out[i]);
    }
    pjrt_executable_free(exe);
    hlo_graph_free(g);
    free(text);
}

static void plugin_case(pjrt_client *client, variant v)
{
    scan_data *s = data_new(v);
    float *made[2][MAX_IN + MAX_OUT];
    plugin_run(client, s, true, made[0]);
    plugin_run(client, s, false, made[1]);
    for (int i = 0; i < s->n_in + s->n_out; i++) {
        int64_t n = elements(i < s->n_out ? &s->out[i] : &s->in[i - s->n_out]);
        double size = 1e-3, worst = 0;
        for (int64_t j = 0; j < n; j++) {
            size = fmax(size, fabsf(made[1][i][j]));
            worst = fmax(worst, fabsf(made[0][i][j] - made[1][i][j]));
        }
        if (getenv("TTT_TEST_SHOW") != NULL)
            print_message("%d layers, array %d: %g of %g\n", v.layers, i, worst, size);
        if (!(worst / size < 2e-5)) /* 3e-6 was seen */
            fail_msg("%d layers, array %d: %g of %g from the network", v.layers, i, worst, size);
        free(made[0][i]);
        free(made[1][i]);
    }
    data_free(s);
}

static void scans_agree_with_the_network(void **state)
{
    pjrt_plugin *plugin;
    pjrt_client *client;
    (void)state;
    ASSERT_OK(pjrt_plugin_load("cpu", &plugin));
    ASSERT_OK(kernel_graphs_register(plugin));
    ASSERT_OK(pjrt_client_create(plugin, NULL, &client));
    plugin_case(client, (variant){1, 8, 2, 2, 16, 64, 64, 4});
    plugin_case(client, (variant){2, 6, 2, 2, 16, 64, 256, 4});
    plugin_case(client, (variant){2, 3, 1, 1, 5, 96, 384, 2});
    pjrt_client_free(client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scans_agree_with_double_precision),
        cmocka_unit_test(gradients_are_slopes),
        cmocka_unit_test(groups_change_nothing),
        cmocka_unit_test(wrong_calls_are_refused),
        cmocka_unit_test(scans_agree_with_the_network),
    };
#if defined(__SANITIZE_THREAD__) /* the plugin's library is not built for it */
    size_t count = sizeof tests / sizeof *tests - 1;
#else
    size_t count = sizeof tests / sizeof *tests;
#endif
    return _cmocka_run_group_tests("kernels_scan", tests, count, NULL, NULL);
}
