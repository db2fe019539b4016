/*
 * The golden numbers of the reference implementation: a two-layer network of width 8 whose
 * parameters are sines, ten tokens (two mini-batches of four and two tokens left over), logits,
 * loss and norms of gradients for all four variants, run on the CPU plugin.
 */
#include "model/ttt_model.h"
#include "tests/support/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { VOCAB = 11, TIME = 10 };
static const int32_t ids[TIME] = {1, 4, 7, 10, 2, 5, 8, 0, 3, 6};

typedef struct golden {
    const char *mixer, *backbone;
    int tensors;
    double logits[4][3]; /* vocabulary 0, 1, 2 at t = 0, 3, 7, 9 */
    double loss;
    double norms[5]; /* of all gradients; of layer 0's W1, token index, rate weight, norm weight */
} golden;

static const golden goldens[] = {
    {"ttt_linear",
     "transformer",
     38,
     {{1.369019, 0.341583, -0.839178},
      {-0.654266, 0.420391, 1.306348},
      {-0.347731, -1.248837, -1.589380},
      {-1.574877, -1.542050, -0.817046}},
     3.925571,
     {2.60405, 0.883983, 0.134638, 0.036353, 0.144979}},
    {"ttt_mlp",
     "transformer",
     42,
     {{-1.288669, -1.494852, -1.030043},
      {-0.965602, -0.860279, -0.368803},
      {-0.923426, -1.276491, -1.056579},
      {-1.448564, -1.041244, -0.166543}},
     2.458644,
     {2.71768, 0.934516, 0.023671, 0.057509, 0.338958}},
    {"ttt_linear",
     "mamba",
     52,
     {{-0.102131, -0.842522, -1.204732},
      {0.207328, -0.143153, -0.429377},
      {0.803905, -0.131266, -1.007516},
      {0.315145, -0.547164, -1.163869}},
     2.882829,
     {6.80720, 2.095208, 0.090025, 0.046025, 0.475841}},
    {"ttt_mlp",
     "mamba",
     56,
     {{0.410619, -0.260686, -0.814978},
      {-0.849564, -0.497914, 0.077234},
      {-0.176714, -0.453189, -0.526241},
      {0.204512, -0.664691, -1.235535}},
     2.435527,
     {4.07825, 0.222433, 2.223199, 0.050580, 0.182495}},
};

static ttt_config golden_config(const golden *want)
{
    static const char *const fields[][2] = {
        {"vocab_size", "11"},        {"hidden_size", "8"}, {"n_heads", "2"},
        {"intermediate_size", "12"}, {"n_layers", "2"},    {"mini_batch_size", "4"},
        {"ttt_base_lr", "1.0"},
    };
    ttt_config config;
    ttt_error error;
    if (!ttt_config_preset(&config, "tiny", want->mixer, want->backbone, &error))
        fail_msg("%s", error.message);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (!ttt_config_set(&config, fields[i][0], fields[i][1], &error))
            fail_msg("%s", error.message);
    }
    return config;
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* The rank of a name among all, in byte order. */
static int rank_of(const ttt_params *params, int index)
{
    int rank = 0;
    for (int i = 0; i < params->count; i++)
        rank += strcmp(params->list[i].name, params->list[index].name) < 0;
    return rank;
}

/* Element m of the stored array, row-major, is 0.3 sin(0.7 m + 1.3 rank), plus 1 for norms'
 * weights. */
static float *golden_values(const ttt_params *params, int index)
{
    const ttt_param *p = &params->list[index];
    int64_t n = hlo_shape_elements(&p->shape);
    float *values = calloc((size_t)n + 1, sizeof *values);
    assert_non_null(values);
    bool norm = ends_with(p->name, "norm.weight") || ends_with(p->name, "norm_weight");
    int rank = rank_of(params, index);
    int64_t rows = p->shape.dims[0], columns = p->shape.rank == 2 ? p->shape.dims[1] : 1;
    for (int64_t m = 0; m < n; m++) {
        double value = 0.3 * sin(0.7 * (double)m + 1.3 * rank) + (norm ? 1 : 0);
        /* Stored [out, in], used [in, out]: stored element m is at (m mod in, m div in) here. */
        int64_t place = p->transposed ? m % rows * columns + m / rows : m;
        values[place] = (float)value;
    }
    return values;
}

/* The same of a table whose layers are stacked: each layer's after the other's, by the names that
 * files have. */
static float *stacked_values(const ttt_params *separate, const ttt_param *p)
{
    const char *star = strchr(p->name, '*');
    int64_t n = hlo_shape_elements(&p->shape), layers = star == NULL ? 1 : p->layers;
    float *values = calloc((size_t)n + 1, sizeof *values);
    assert_non_null(values);
    for (int64_t layer = 0; layer < layers; layer++) {
        char name[128];
        snprintf(name, sizeof name, "%s", p->name);
        if (star != NULL)
            snprintf(name, sizeof name, "%.*s%lld%s", (int)(star - p->name), p->name,
                     (long long)layer, star + 1);
        int index = ttt_params_find(separate, name);
        assert_true(index >= 0);
        float *one = golden_values(separate, index);
        memcpy(values + layer * (n / layers), one, (size_t)(n / layers) * sizeof *one);
        free(one);
    }
    return values;
}

/* ---- running --------------------------------------------------------------------------------- */

typedef struct run {
    ttt_params *params, *separate;
    pjrt_client *client;
    pjrt_executable *exe;
    pjrt_buffer **args, **results;
    int n_args, n_results;
} run;

static void start_run(run *r, const ttt_config *config, ttt_layout layout)
{
    ttt_error error;
    pjrt_plugin *plugin;
    r->params = ttt_params_new(config, layout, &error);
    r->separate = ttt_params_new(config, TTT_SEPARATE, &error);
    if (r->params == NULL || r->separate == NULL)
        fail_msg("%s", error.message);
    int n = r->params->count;
    hlo_graph *g = hlo_graph_new("golden");
    hlo_val *values = calloc((size_t)(2 * n), sizeof *values), *grads = values + n;
    hlo_val tokens = hlo_param(g, "tokens", HLO_SHAPE(HLO_S32, 1, TIME));
    ttt_params_bind(g, r->params, HLO_F32, values);
    ttt_net net = {.config = config, .params = r->params, .values = values};
    ttt_input all = {.tokens = tokens};
    ttt_input seen = {.tokens = hlo_slice_dim(g, tokens, 1, 0, TIME - 1)};
    ttt_target next = {.labels = hlo_slice_dim(g, tokens, 1, 1, TIME)};
    hlo_val logits = ttt_logits(g, &net, &all, NULL);
    hlo_val loss = ttt_loss(g, &net, &seen, &next, NULL);
    hlo_grad(g, loss, values, n, grads);
    hlo_result(g, "logits", logits);
    hlo_result(g, "loss", loss);
    for (int i = 0; i < n; i++)
        hlo_result(g, "gradient", grads[i]);
    char *text = hlo_write_text(g, NULL);
    if (text == NULL)
        fail_msg("%s", hlo_graph_error(g)->message);
    ASSERT_OK(pjrt_plugin_load("cpu", &plugin));
    ASSERT_OK(pjrt_client_create(plugin, NULL, &r->client));
    /* Compiled without LLVM's optimisations: the program runs once, and compiling is what takes
     * time. */
    const pjrt_option fast = PJRT_OPT_INT("xla_backend_optimization_level", 0);
    pjrt_compile_options options = {.overrides = &fast, .n_overrides = 1};
    ASSERT_OK(pjrt_compile(r->client, pjrt_program_text(text), &options, &r->exe));
    free(text);
    free(values);
    hlo_graph_free(g);
}

static void execute(run *r)
{
    pjrt_device *device = pjrt_client_device(r->client, 0);
    r->n_args = r->params->count + 1;
    r->n_results = r->params->count + 2;
    r->args = calloc((size_t)r->n_args, sizeof *r->args);
    r->results = calloc((size_t)r->n_results, sizeof *r->results);
    ASSERT_OK(pjrt_buffer_from_host(device, PJRT_S32, (int64_t[]){1, TIME}, 2, ids, NULL, NULL,
                                    &r->args[0]));
    for (int i = 0; i < r->params->count; i++) {
        const hlo_shape *shape = &r->params->list[i].shape;
        float *values = stacked_values(r->separate, &r->params->list[i]);
        ASSERT_OK(pjrt_buffer_from_host(device, PJRT_F32, shape->dims, shape->rank, values, NULL,
                                        NULL, &r->args[i + 1]));
        free(values);
    }
    ASSERT_OK(pjrt_execute(r->exe, r->args, (size_t)r->n_args, NULL, r->results,
                           (size_t)r->n_results, NULL));
}

static void end_run(run *r)
{
    for (int i = 0; i < r->n_args; i++)
        pjrt_buffer_free(r->args[i]);
    for (int i = 0; i < r->n_results; i++)
        pjrt_buffer_free(r->results[i]);
    free(r->args);
    free(r->results);
    pjrt_executable_free(r->exe);
    pjrt_client_free(r->client);
    ttt_params_free(r->params);
    ttt_params_free(r->separate);
}

/* Of the first 1 / parts of a result. */
static double squared_norm(run *r, int result, int64_t parts)
{
    int64_t bytes = pjrt_shape_bytes(pjrt_buffer_shape(r->results[result]));
    float *values = malloc((size_t)bytes + 1);
    double sum = 0;
    ASSERT_OK(pjrt_buffer_to_host(r->results[result], values, (size_t)bytes, NULL));
    for (int64_t i = 0; i < bytes / 4 / parts; i++)
        sum += (double)values[i] * values[i];
    free(values);
    return sum;
}

/* The figures are given to six digits; f32 adds up to 5e-6 in the reference, 3e-6 seen here. */
static void check_near(const char *what, double have, double want, double tolerance)
{
    if (!(fabs(have - want) <= tolerance))
        fail_msg("%s is %.7f, not %.7f", what, have, want);
}

static void check_variant(const golden *want, ttt_layout layout)
{
    static const int times[4] = {0, 3, 7, 9};
    static const char *const named[4] = {"W1", "learnable_token_idx", "learnable_ttt_lr_weight",
                                         "ttt_norm_weight"};
    float logits[TIME][VOCAB], loss;
    ttt_config config = golden_config(want);
    run r = {0};
    start_run(&r, &config, layout);
    assert_int_equal(r.separate->count, want->tensors);
    execute(&r);
    ASSERT_OK(pjrt_buffer_to_host(r.results[0], logits, sizeof logits, NULL));
    ASSERT_OK(pjrt_buffer_to_host(r.results[1], &loss, sizeof loss, NULL));
    for (int t = 0; t < 4; t++) {
        for (int v = 0; v < 3; v++)
            check_near("a logit", logits[times[t]][v], want->logits[t][v], 1e-5);
    }
    check_near("the loss", loss, want->loss, 5e-6);
    double total = 0;
    for (int i = 0; i < r.params->count; i++)
        total += squared_norm(&r, i + 2, 1);
    check_near("the gradient's norm", sqrt(total), want->norms[0], 2e-5 * want->norms[0]);
    for (int i = 0; i < 4; i++) {
        char name[128];
        snprintf(name, sizeof name, "model.layers.%s.seq_modeling_block.%s",
                 layout == TTT_STACKED ? "*" : "0", named[i]);
        int index = ttt_params_find(r.params, name);
        assert_true(index >= 0);
        int64_t layers = layout == TTT_STACKED ? r.params->list[index].layers : 1;
        check_near(name, sqrt(squared_norm(&r, index + 2, layers)), want->norms[i + 1],
                   1e-6 + 2e-5 * want->norms[i + 1]);
    }
    end_run(&r);
}

static void blocks_in_a_row_give_the_golden_numbers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof goldens / sizeof *goldens; i++)
        check_variant(&goldens[i], TTT_SEPARATE);
}

static void a_loop_over_layers_gives_the_golden_numbers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof goldens / sizeof *goldens; i++)
        check_variant(&goldens[i], TTT_STACKED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_in_a_row_give_the_golden_numbers),
        cmocka_unit_test(a_loop_over_layers_gives_the_golden_numbers),
    };
    return cmocka_run_group_tests_name("model_golden", tests, NULL, NULL);
}
