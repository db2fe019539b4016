/*
 * Learners by themselves, in f64: the dual form and the primal form agree for one, two and three
 * layers, with and without biases and norm, any size of mini-batch, what is left over included. The
 * networks' learners have one and two layers; the paper's derivation is for any number.
 */
#include "model/learner/learner.h"
#include "tests/support/support.h"

#include <math.h>
#include <stdlib.h>

enum { BATCH = 2, HEADS = 2, LANES = 4, WIDE = 6 };

typedef struct variant {
    int layers;
    bool biases, norm;
    int64_t mini, count; /* tokens of a mini-batch, and how many mini-batches */
} variant;

/* Numbers that are neither alike nor large. */
static hlo_val numbers(hlo_graph *g, hlo_shape shape, double scale, double phase)
{
    int64_t n = hlo_shape_elements(&shape);
    double *values = malloc((size_t)n * sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; i < n; i++)
        values[i] = scale * sin(0.7 * (double)i * (1 + 0.013 * (double)i) + phase);
    hlo_val v = hlo_constant(g, shape, values);
    free(values);
    return v;
}

static learner learner_of(hlo_graph *g, const variant *v)
{
    learner l = {.n_layers = v->layers};
    for (int i = 0; i < v->layers; i++) {
        int64_t in = i == 0 ? LANES : WIDE, out = i == v->layers - 1 ? LANES : WIDE;
        l.w[i] = numbers(g, HLO_SHAPE(HLO_F64, HEADS, in, out), 0.5, i);
        if (v->biases)
            l.b[i] = numbers(g, HLO_SHAPE(HLO_F64, HEADS, 1, out), 0.3, 10 + i);
    }
    if (v->norm) {
        hlo_val ones = hlo_full(g, HLO_SHAPE(HLO_F64, HEADS, LANES), 1);
        l.norm_scale = hlo_add(g, ones, numbers(g, HLO_SHAPE(HLO_F64, HEADS, LANES), 0.2, 20));
        l.norm_bias = numbers(g, HLO_SHAPE(HLO_F64, HEADS, LANES), 0.2, 21);
    }
    return l;
}

/* Everything the learner is given, as mini-batches [count, batch, heads, mini, …]. */
typedef struct given {
    hlo_val q, k, target, rate, move;
} given;

static given data_of(hlo_graph *g, const variant *v)
{
    hlo_shape shape = HLO_SHAPE(HLO_F64, v->count, BATCH, HEADS, v->mini, LANES);
    hlo_shape rates = HLO_SHAPE(HLO_F64, v->count, BATCH, HEADS, v->mini);
    hlo_val rate = numbers(g, rates, 0.1, 5), place = hlo_iota(g, HLO_SHAPE(HLO_F64, v->mini), 0);
    hlo_val one = hlo_like(g, place, 1);
    return (given){
        .q = numbers(g, shape, 1, 1),
        .k = numbers(g, shape, 1, 2),
        .target = numbers(g, shape, 1, 3),
        .rate = hlo_add(g, hlo_mul(g, rate, rate), hlo_like(g, rate, 0.05)),
        .move = hlo_div(g, one, hlo_add(g, place, one)),
    };
}

static hlo_val dual(hlo_graph *g, const variant *v, const learner *l, const given *d)
{
    hlo_shape square = HLO_SHAPE(HLO_S32, v->mini, v->mini);
    hlo_val seen = hlo_compare(g, HLO_GE, hlo_iota(g, square, 0), hlo_iota(g, square, 1));
    hlo_val move = hlo_reshape(g, d->move, HLO_DIMS(v->mini, 1));
    learner_data data = {
        .mini = v->mini,
        .k = d->k,
        .target = d->target,
        .q = d->q,
        .rate = hlo_reshape(g, d->rate, HLO_DIMS(v->count, BATCH, HEADS, v->mini)),
        .reach = hlo_select(g, seen, move, hlo_like(g, move, 0)),
    };
    learner_state state = learner_start(g, l, BATCH);
    return learner_dual(g, l, &data, &state, 2).answers;
}

/* Token `t` of mini-batch `n` of x [count, batch, heads, mini, …] as [batch, heads, 1, rest]. */
static hlo_val token_of(hlo_graph *g, hlo_val x, int64_t n, int64_t t, int64_t rest)
{
    hlo_val one = hlo_slice_dim(g, hlo_slice_dim(g, x, 0, n, n + 1), 3, t, t + 1);
    return hlo_reshape(g, one, HLO_DIMS(BATCH, HEADS, 1, rest));
}

static hlo_val primal(hlo_graph *g, const variant *v, const learner *l, const given *d)
{
    hlo_val answers[64], list[2 * LEARNER_MAX_LAYERS];
    learner_state state = learner_start(g, l, BATCH);
    learner_weights sums;
    int n = learner_pack(l, &state.now, list), count = 0;
    for (int i = 0; i < n; i++)
        list[i] = hlo_zeros_like(g, list[i]);
    learner_unpack(l, list, &sums);
    for (int64_t i = 0; i < v->count; i++) {
        for (int64_t t = 0; t < v->mini; t++) {
            hlo_val move = hlo_reshape(g, hlo_slice_dim(g, d->move, 0, t, t + 1), HLO_NO_DIMS);
            hlo_shape ends = HLO_SHAPE(HLO_PRED, BATCH, 1, 1, 1);
            learner_token token = {
                .q = token_of(g, d->q, i, t, LANES),
                .k = token_of(g, d->k, i, t, LANES),
                .target = token_of(g, d->target, i, t, LANES),
                .rate = token_of(g, d->rate, i, t, 1),
                .move = hlo_broadcast(g, move, HLO_DIMS(BATCH, 1, 1, 1), HLO_NO_DIMS),
                .last = hlo_full(g, ends, t == v->mini - 1),
            };
            assert_true(count < 64);
            answers[count++] = learner_primal(g, l, &token, &state, &sums);
        }
    }
    hlo_val all = hlo_stack(g, answers, count, 0); /* [tokens, batch, heads, 1, lanes] */
    all = hlo_reshape(g, all, HLO_DIMS(v->count, v->mini, BATCH, HEADS, LANES));
    return hlo_transpose(g, all, HLO_DIMS(0, 2, 3, 1, 4));
}

/* The largest difference between the two forms, computed by the program itself. */
static double distance(pjrt_client *client, const variant *v)
{
    hlo_graph *g = hlo_graph_new("learner");
    learner l = learner_of(g, v);
    given d = data_of(g, v);
    hlo_val off = hlo_abs(g, hlo_sub(g, dual(g, v, &l, &d), primal(g, v, &l, &d)));
    hlo_result(g, "distance", hlo_reduce(g, HLO_REDUCE_MAX, off, HLO_DIMS(0, 1, 2, 3, 4)));
    char *text = hlo_write_text(g, NULL);
    if (text == NULL)
        fail_msg("%s", hlo_graph_error(g)->message);
    const pjrt_option fast = PJRT_OPT_INT("xla_backend_optimization_level", 0);
    pjrt_compile_options options = {.overrides = &fast, .n_overrides = 1};
    pjrt_executable *exe;
    pjrt_buffer *out;
    double result;
    ASSERT_OK(pjrt_compile(client, pjrt_program_text(text), &options, &exe));
    ASSERT_OK(pjrt_execute(exe, NULL, 0, NULL, &out, 1, NULL));
    ASSERT_OK(pjrt_buffer_to_host(out, &result, sizeof result, NULL));
    pjrt_buffer_free(out);
    pjrt_executable_free(exe);
    hlo_graph_free(g);
    free(text);
    return result;
}

static void both_forms_agree(void **state)
{
    static const variant variants[] = {
        {1, true, true, 4, 3},  {1, false, false, 5, 2}, {2, true, true, 4, 3},
        {2, false, true, 3, 2}, {3, true, true, 4, 2},   {3, true, false, 2, 3},
        {3, true, true, 1, 5},
    };
    pjrt_plugin *plugin;
    pjrt_client *client;
    (void)state;
    ASSERT_OK(pjrt_plugin_load("cpu", &plugin));
    ASSERT_OK(pjrt_client_create(plugin, NULL, &client));
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        double off = distance(client, &variants[i]);
        if (!(off < 1e-12)) /* 6e-15 was seen */
            fail_msg("variant %zu: the forms are %g apart", i, off);
    }
    pjrt_client_free(client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(both_forms_agree)};
    return cmocka_run_group_tests_name("model_learner", tests, NULL, NULL);
}
