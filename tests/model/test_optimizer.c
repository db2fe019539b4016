/*
 * The optimiser: the schedule, AdamW and the clip against float64, steps that must change nothing,
 * the memory of an update, and whole training steps: in parts, in both layouts, on a mesh.
 */
#include "model/ttt_train.h"
#include "tests/support/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static ttt_recipe preset(const char *name, const char *mixer)
{
    ttt_recipe recipe;
    ttt_error error;
    if (!ttt_recipe_preset(&recipe, name, mixer, &error) || !ttt_recipe_check(&recipe, &error))
        fail_msg("%s %s: %s", name, mixer, error.message);
    return recipe;
}

/* ---- running --------------------------------------------------------------------------------- */

enum { DEVICES = 4 };
static pjrt_client *client;

static int open_client(void **state)
{
    pjrt_plugin *plugin;
    (void)state;
    ASSERT_OK(pjrt_plugin_load("cpu", &plugin));
    ASSERT_OK(pjrt_client_create(plugin, &(pjrt_client_options){.cpu_devices = DEVICES}, &client));
    return 0;
}

static int close_client(void **state)
{
    (void)state;
    pjrt_client_free(client);
    return 0;
}

/* Takes the graph over. Quick to compile, unless the memory of the result is what counts. */
static pjrt_executable *compile(hlo_graph *g, int partitions, bool optimized)
{
    pjrt_executable *exe;
    const pjrt_option quick = PJRT_OPT_INT("xla_backend_optimization_level", 0);
    pjrt_compile_options options = {
        .overrides = &quick, .n_overrides = optimized ? 0 : 1, .partitions = partitions};
    char *text = hlo_write_text(g, NULL);
    if (text == NULL)
        fail_msg("%s", hlo_graph_error(g)->message);
    ASSERT_OK(pjrt_compile(client, pjrt_program_text(text), &options, &exe));
    free(text);
    hlo_graph_free(g);
    return exe;
}

static pjrt_buffer *upload(int device, pjrt_type type, const hlo_shape *shape, const void *data)
{
    pjrt_buffer *buffer;
    ASSERT_OK(pjrt_buffer_from_host(pjrt_client_device(client, (size_t)device), type, shape->dims,
                                    shape->rank, data, NULL, NULL, &buffer));
    return buffer;
}

static pjrt_buffer *upload_step(int device, int32_t step)
{
    return upload(device, PJRT_S32, &HLO_SCALAR(HLO_S32), &step);
}

static double scalar(pjrt_buffer *buffer)
{
    float value;
    ASSERT_OK(pjrt_buffer_to_host(buffer, &value, sizeof value, NULL));
    return value;
}

static int32_t whole_scalar(pjrt_buffer *buffer)
{
    int32_t value;
    ASSERT_OK(pjrt_buffer_to_host(buffer, &value, sizeof value, NULL));
    return value;
}

static bool flag(pjrt_buffer *buffer)
{
    uint8_t value;
    ASSERT_OK(pjrt_buffer_to_host(buffer, &value, sizeof value, NULL));
    return value != 0;
}

static void free_buffers(pjrt_buffer **buffers, int n)
{
    for (int i = 0; i < n; i++) {
        pjrt_buffer_free(buffers[i]);
        buffers[i] = NULL;
    }
}

/* ---- schedules ------------------------------------------------------------------------------- */

/* Programs from the step count to one number. */
typedef hlo_val (*of_step)(hlo_graph *g, const ttt_recipe *recipe, hlo_val step);

static hlo_val scale_to_tenth(hlo_graph *g, const ttt_recipe *recipe, hlo_val step)
{
    return ttt_base_rate_scale(g, recipe, 0.1, step);
}

static void values_at(of_step make, const ttt_recipe *recipe, const int32_t *steps, int n,
                      double *out)
{
    hlo_graph *g = hlo_graph_new("schedule");
    hlo_val step = hlo_param(g, "step", HLO_SCALAR(HLO_S32));
    hlo_result(g, "value", make(g, recipe, step));
    pjrt_executable *exe = compile(g, 1, true);
    for (int i = 0; i < n; i++) {
        pjrt_buffer *in = upload_step(0, steps[i]), *result;
        ASSERT_OK(pjrt_execute(exe, &in, 1, NULL, &result, 1, NULL));
        out[i] = scalar(result);
        free_buffers(&in, 1);
        free_buffers(&result, 1);
    }
    pjrt_executable_free(exe);
}

static double rate_at(const ttt_recipe *r, double s)
{
    double warm = (double)r->warmup_steps, end = (double)r->steps;
    if (s < warm)
        return r->peak_lr * s / warm;
    double progress = fmin(1, (s - warm) / (end - warm));
    return r->end_lr + (r->peak_lr - r->end_lr) * (1 + cos(acos(-1) * progress)) / 2;
}

static void rates_follow_the_schedule(void **state)
{
    static const int32_t steps[] = {0,    1,    479,  480,  481,     2000,
                                    2640, 4799, 4800, 4801, 1000000, INT32_MAX};
    enum { N = sizeof steps / sizeof *steps };
    double have[N];
    ttt_recipe recipe = preset("125m", "ttt_linear");
    (void)state;
    for (int warm = 1; warm >= 0; warm--) {
        if (warm == 0)
            recipe.warmup_steps = 0;
        values_at(ttt_learning_rate, &recipe, steps, N, have);
        for (int i = 0; i < N; i++) {
            double want = rate_at(&recipe, steps[i]);
            /* Seen: 8.5e-8. An f32 cosine that is not squared loses 1e-5 at step 4799. */
            if (!(fabs(have[i] - want) <= 4e-7 * want))
                fail_msg("rate %d is %.9g, not %.9g", (int)steps[i], have[i], want);
        }
    }
}

/* To the nearest, ties to even. */
static double to_bf16(double x)
{
    float f = (float)x;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static void base_rate_grows(void **state)
{
    static const int32_t steps[] = {0, 1, 2, 3, 7, 50, 99, 100, 239, 240, 241, 479, 480, 481, 4800};
    enum { N = sizeof steps / sizeof *steps };
    double have[N];
    ttt_recipe recipe = preset("125m", "ttt_mlp");
    (void)state;
    values_at(scale_to_tenth, &recipe, steps, N, have);
    for (int i = 0; i < N; i++) {
        double grown = 0.01 + fmin(1, steps[i] / 480.0) * (0.1 - 0.01);
        assert_true(have[i] == to_bf16(grown / 0.1));
    }
    assert_true(have[0] == to_bf16(0.1) && have[N - 1] == 1);
    recipe.ttt_base_lr_warmup = 0;
    values_at(scale_to_tenth, &recipe, steps, 2, have);
    assert_true(have[0] == 1 && have[1] == 1);
}

/* ---- the update, on plain arrays ------------------------------------------------------------- */

enum { ARRAYS = 3, MOST = 6 };
static ttt_param plain_list[ARRAYS] = {
    {.name = "matrix", .shape = {HLO_F32, 2, {2, 3}}, .decay = true},
    {.name = "vector", .shape = {HLO_F32, 1, {4}}, .decay = false},
    {.name = "scalar", .shape = {HLO_F32, 0, {0}}, .decay = true},
};
static const ttt_params plain = {.list = plain_list, .count = ARRAYS};
static const int sizes[ARRAYS] = {6, 4, 1};

/* Of each array: the parameter and its moments. */
typedef struct plain_state {
    float arrays[3][ARRAYS][MOST];
    int32_t step;
} plain_state;

typedef struct plain_report {
    double norm, rate;
    bool skipped;
} plain_report;

/* Arguments: the state, gradients, loss, limits. */
static pjrt_executable *plain_program(const ttt_recipe *recipe, bool with_limits)
{
    hlo_graph *g = hlo_graph_new("optimize");
    hlo_val arrays[3 * ARRAYS], old[3 * ARRAYS], gradients[ARRAYS], limits = {0};
    for (int i = 0; i < 3 * ARRAYS; i++)
        old[i] = arrays[i] = hlo_param(g, "state", plain_list[i % ARRAYS].shape);
    ttt_train_state state = {arrays, arrays + ARRAYS, arrays + 2 * ARRAYS,
                             hlo_param(g, "step", HLO_SCALAR(HLO_S32))};
    for (int i = 0; i < ARRAYS; i++)
        gradients[i] = hlo_param(g, "gradient", plain_list[i].shape);
    hlo_val loss = hlo_param(g, "loss", HLO_SCALAR(HLO_F32));
    hlo_val given = hlo_param(g, "limits", HLO_SHAPE(HLO_F32, 2));
    if (with_limits)
        limits = given;
    ttt_train_report report = ttt_optimize(g, recipe, &plain, gradients, loss, limits, &state);
    for (int i = 0; i < 3 * ARRAYS; i++) {
        hlo_result(g, "state", arrays[i]);
        hlo_donate(g, old[i], i);
    }
    hlo_result(g, "step", state.step);
    hlo_result(g, "norm", report.norm);
    hlo_result(g, "rate", report.rate);
    hlo_result(g, "skipped", report.skipped);
    return compile(g, 1, false);
}

static plain_report plain_step(pjrt_executable *exe, plain_state *s, float gradients[ARRAYS][MOST],
                               float loss, const float limits[2])
{
    static const float none[2] = {0, 0};
    enum { N_ARGS = 4 * ARRAYS + 3, N_RESULTS = 3 * ARRAYS + 4 };
    pjrt_buffer *args[N_ARGS], *results[N_RESULTS];
    int n = 0;
    for (int i = 0; i < 3 * ARRAYS; i++)
        args[n++] =
            upload(0, PJRT_F32, &plain_list[i % ARRAYS].shape, s->arrays[i / ARRAYS][i % ARRAYS]);
    args[n++] = upload_step(0, s->step);
    for (int i = 0; i < ARRAYS; i++)
        args[n++] = upload(0, PJRT_F32, &plain_list[i].shape, gradients[i]);
    args[n++] = upload(0, PJRT_F32, &HLO_SCALAR(HLO_F32), &loss);
    args[n++] = upload(0, PJRT_F32, &HLO_SHAPE(HLO_F32, 2), limits != NULL ? limits : none);
    ASSERT_OK(pjrt_execute(exe, args, N_ARGS, NULL, results, N_RESULTS, NULL));
    for (int i = 0; i < 3 * ARRAYS; i++)
        ASSERT_OK(pjrt_buffer_to_host(results[i], s->arrays[i / ARRAYS][i % ARRAYS],
                                      (size_t)sizes[i % ARRAYS] * sizeof(float), NULL));
    s->step = whole_scalar(results[3 * ARRAYS]);
    plain_report report = {scalar(results[3 * ARRAYS + 1]), scalar(results[3 * ARRAYS + 2]),
                           flag(results[3 * ARRAYS + 3])};
    free_buffers(args, N_ARGS);
    free_buffers(results, N_RESULTS);
    return report;
}

static void fill(float arrays[ARRAYS][MOST], double scale, double phase)
{
    memset(arrays, 0, sizeof(float[ARRAYS][MOST]));
    for (int i = 0; i < ARRAYS; i++) {
        for (int k = 0; k < sizes[i]; k++)
            arrays[i][k] = (float)(scale * sin(phase + 1.7 * i + 0.9 * k));
    }
}

static double norm_of(float arrays[ARRAYS][MOST])
{
    double sum = 0;
    for (int i = 0; i < ARRAYS; i++) {
        for (int k = 0; k < sizes[i]; k++)
            sum += (double)arrays[i][k] * arrays[i][k];
    }
    return sqrt(sum);
}

/* The recipe's step in float64. */
static void exact_step(const ttt_recipe *r, double state[3][ARRAYS][MOST], int step,
                       float gradients[ARRAYS][MOST])
{
    double norm = norm_of(gradients), rate = rate_at(r, step);
    double scale = r->clip_norm > 0 && norm >= r->clip_norm ? r->clip_norm / norm : 1;
    for (int i = 0; i < ARRAYS; i++) {
        for (int k = 0; k < sizes[i]; k++) {
            double g = gradients[i][k] * scale;
            double *p = &state[0][i][k], *m = &state[1][i][k], *v = &state[2][i][k];
            *m = r->b1 * *m + (1 - r->b1) * g;
            *v = r->b2 * *v + (1 - r->b2) * g * g;
            double mean = *m / (1 - pow(r->b1, step + 1)), square = *v / (1 - pow(r->b2, step + 1));
            double decay = plain_list[i].decay ? r->decay : 0;
            *p -= rate * (mean / (sqrt(square) + r->epsilon) + decay * *p);
        }
    }
}

static ttt_recipe plain_recipe(void)
{
    ttt_recipe recipe = preset("tiny", "ttt_linear");
    recipe.warmup_steps = 0;
    recipe.peak_lr = 0.05;
    return recipe;
}

static void follow_exactly(const ttt_recipe *recipe, double scale)
{
    plain_state have = {{{{0}}}, 0};
    double want[3][ARRAYS][MOST] = {{{0}}}, worst = 0;
    float gradients[ARRAYS][MOST];
    pjrt_executable *exe = plain_program(recipe, false);
    fill(have.arrays[0], 1, 0.3);
    for (int i = 0; i < ARRAYS; i++) {
        for (int k = 0; k < sizes[i]; k++)
            want[0][i][k] = have.arrays[0][i][k];
    }
    for (int step = 0; step < 5; step++) {
        fill(gradients, scale, 1.1 * step);
        exact_step(recipe, want, step, gradients);
        plain_report report = plain_step(exe, &have, gradients, 1, NULL);
        assert_false(report.skipped);
        assert_int_equal(have.step, step + 1);
        assert_true(fabs(report.norm - norm_of(gradients)) <= 3e-7 * report.norm);
        assert_true(fabs(report.rate - rate_at(recipe, step)) <= 4e-7 * report.rate);
        for (int i = 0; i < 3 * ARRAYS * MOST; i++) {
            double x = (&have.arrays[0][0][0])[i], y = (&want[0][0][0])[i];
            worst = fmax(worst, fabs(x - y) / (fabs(y) + 0.01));
        }
    }
    pjrt_executable_free(exe);
    /* Seen: 3.3e-7. A bias correction by one step too few would make 1e-2. */
    if (!(worst <= 2e-6))
        fail_msg("the worst relative error is %g", worst);
}

static void updates_are_adamw(void **state)
{
    ttt_recipe recipe = plain_recipe();
    (void)state;
    follow_exactly(&recipe, 0.1); /* below the bound */
    follow_exactly(&recipe, 30);  /* above it */
    recipe.clip_norm = recipe.decay = recipe.b1 = 0;
    follow_exactly(&recipe, 30);
}

/* Gradients of norm 5 against a bound; the first moment shows what they were scaled by. */
static void check_clip(double bound, double want)
{
    ttt_recipe recipe = plain_recipe();
    plain_state have = {{{{0}}}, 0};
    float gradients[ARRAYS][MOST] = {{3}, {0}, {4}};
    recipe.clip_norm = bound;
    recipe.b1 = 0.5;
    pjrt_executable *exe = plain_program(&recipe, false);
    plain_report report = plain_step(exe, &have, gradients, 1, NULL);
    pjrt_executable_free(exe);
    assert_true(report.norm == 5);
    assert_true(fabs(have.arrays[1][0][0] - 1.5 * want) <= 1e-7);
    assert_true(fabs(have.arrays[1][2][0] - 2 * want) <= 1e-7);
}

static void gradients_are_clipped(void **state)
{
    (void)state;
    check_clip(5, 1);
    check_clip(5.0001, 1);
    check_clip(4.9, 0.98);
    check_clip(1, 0.2);
    check_clip(0, 1);
}

static void skipped_step(pjrt_executable *exe, float bad, float loss, const float limits[2],
                         bool skipped)
{
    plain_state have = {{{{0}}}, 41}, before;
    float gradients[ARRAYS][MOST];
    fill(have.arrays[0], 1, 0);
    fill(have.arrays[1], 0.1, 1);
    fill(have.arrays[2], 0, 0);
    fill(gradients, 1, 2);
    gradients[1][2] = bad;
    before = have;
    plain_report report = plain_step(exe, &have, gradients, loss, limits);
    assert_int_equal(report.skipped, skipped);
    assert_int_equal(have.step, 42);
    assert_int_equal(memcmp(have.arrays, before.arrays, sizeof have.arrays) == 0, skipped);
}

static void bad_steps_change_nothing(void **state)
{
    const float wide[2] = {INFINITY, INFINITY}, loss[2] = {2, INFINITY}, norm[2] = {INFINITY, 3};
    ttt_recipe recipe = plain_recipe();
    pjrt_executable *exe = plain_program(&recipe, false), *limited = plain_program(&recipe, true);
    (void)state;
    skipped_step(exe, 1, 1, NULL, false);
    skipped_step(exe, NAN, 1, NULL, true);
    skipped_step(exe, INFINITY, 1, NULL, true);
    skipped_step(exe, 1e30f, 1, NULL, true); /* its square is not finite */
    skipped_step(exe, 1, NAN, NULL, true);
    skipped_step(exe, 1, INFINITY, NULL, true);
    skipped_step(exe, 1, -INFINITY, NULL, true);
    skipped_step(limited, 1, INFINITY, wide, true);
    skipped_step(limited, 1, 2, loss, false);
    skipped_step(limited, 1, 2.1f, loss, true);
    skipped_step(limited, NAN, 1, norm, true);
    skipped_step(limited, 1, 1, norm, false); /* about 2.5 */
    skipped_step(limited, 2.5f, 1, norm, true);
    pjrt_executable_free(exe);
    pjrt_executable_free(limited);
}

/* The state is updated where it is: nothing of its size is made beside gradients. */
static void updates_are_in_place(void **state)
{
    enum { ROWS = 1024, COLUMNS = 512, BYTES = 4 * ROWS * COLUMNS };
    ttt_recipe recipe = plain_recipe();
    ttt_param list[] = {{.name = "w", .shape = HLO_SHAPE(HLO_F32, ROWS, COLUMNS), .decay = true}};
    ttt_params params = {.list = list, .count = 1};
    pjrt_memory_stats stats;
    hlo_graph *g = hlo_graph_new("in_place");
    hlo_val values[3], old[3], x = hlo_param(g, "x", HLO_SHAPE(HLO_F32, 4, ROWS)), gradient;
    (void)state;
    for (int i = 0; i < 3; i++)
        old[i] = values[i] = hlo_param(g, "state", list[0].shape);
    ttt_train_state s = {values, values + 1, values + 2, hlo_scalar_int(g, HLO_S32, 7)};
    hlo_val y = hlo_tanh(g, hlo_matmul(g, x, old[0]));
    hlo_val loss = hlo_mean(g, y, HLO_DIMS(0, 1));
    hlo_grad(g, loss, old, 1, &gradient);
    ttt_optimize(g, &recipe, &params, &gradient, loss, (hlo_val){0}, &s);
    for (int i = 0; i < 3; i++) {
        hlo_result(g, "state", values[i]);
        hlo_donate(g, old[i], i);
    }
    pjrt_executable *exe = compile(g, 1, true);
    ASSERT_OK(pjrt_executable_memory(exe, &stats));
    pjrt_executable_free(exe);
    printf("  temporaries %.3f of the parameters\n", (double)stats.temp / BYTES);
    assert_true(stats.alias >= 3 * BYTES);
    /* Seen: 1.004, the gradient. With copies of the moments it was 3. */
    assert_true((double)stats.temp < 1.2 * BYTES);
}

/* ---- whole steps ----------------------------------------------------------------------------- */

enum { VOCAB = 11, TIME = 8, SEQUENCES = 8, BATCH = SEQUENCES * TIME, STEPS = 3, MASKED = 5 };

/* A way to build and run the same training. */
typedef struct way {
    const char *name;
    ttt_layout layout;
    hlo_type compute;
    bool mesh;      /* data = 2, fsdp = 2, time = 1, model = 1 */
    bool host_mask; /* masked labels as weights from the host, not by the recipe */
    ttt_train_options options;
} way;

typedef struct trainer {
    const way *way;
    ttt_config config;
    ttt_recipe recipe;
    ttt_params *params;
    ttt_train_args at;
    pjrt_executable *exe;
    int devices, n_state;
    pjrt_buffer **state; /* [devices][n_state] */
} trainer;

enum { AXES = 4 };
static const char *const axes[AXES] = {"data", "fsdp", "time", "model"};
static const int64_t axis_sizes[AXES] = {2, 2, 1, 1};

/* The piece of an array that a device has. */
static void piece(const trainer *t, const hlo_shape *shape, const hlo_spec *spec, int device,
                  int64_t start[HLO_MAX_RANK], int64_t limit[HLO_MAX_RANK])
{
    const int64_t at[AXES] = {device / 2, device % 2};
    for (int d = 0; d < shape->rank; d++) {
        int64_t parts = 1, index = 0;
        for (int a = 0; a < AXES && t->devices > 1 && spec->axes[d] != NULL; a++) {
            if (strstr(spec->axes[d], axes[a]) == NULL)
                continue;
            parts *= axis_sizes[a];
            index = index * axis_sizes[a] + at[a];
        }
        start[d] = shape->dims[d] / parts * index;
        limit[d] = shape->dims[d] / parts * (index + 1);
    }
}

static hlo_shape piece_shape(const hlo_shape *whole, const int64_t *start, const int64_t *limit)
{
    hlo_shape shape = *whole;
    for (int d = 0; d < shape.rank; d++)
        shape.dims[d] = limit[d] - start[d];
    return shape;
}

/* Copies between an array and a piece of it, both of 4-byte elements; one call an element will do
 * for arrays of this size. */
static void move_piece(const hlo_shape *whole, const int64_t *start, const int64_t *limit,
                       uint32_t *array, uint32_t *part, bool out)
{
    hlo_shape shape = piece_shape(whole, start, limit);
    int64_t n = hlo_shape_elements(&shape);
    for (int64_t i = 0; i < n; i++) {
        int64_t rest = i, place = 0, stride = 1;
        for (int d = shape.rank - 1; d >= 0; d--) {
            place += (rest % shape.dims[d] + start[d]) * stride;
            rest /= shape.dims[d];
            stride *= whole->dims[d];
        }
        if (out)
            part[i] = array[place];
        else
            array[place] = part[i];
    }
}

static void start_training(trainer *t, const way *w)
{
    static const char *const fields[][2] = {
        {"vocab_size", "11"},        {"hidden_size", "8"}, {"n_heads", "2"},
        {"intermediate_size", "12"}, {"n_layers", "2"},    {"mini_batch_size", "4"},
    };
    ttt_error error;
    *t = (trainer){.way = w, .devices = w->mesh ? DEVICES : 1};
    if (!ttt_config_preset(&t->config, "tiny", "ttt_mlp", "mamba", &error))
        fail_msg("%s", error.message);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        assert_true(ttt_config_set(&t->config, fields[i][0], fields[i][1], &error));
    t->recipe = preset("tiny", "ttt_mlp");
    t->recipe.steps = 50;
    t->recipe.warmup_steps = t->recipe.ttt_base_lr_warmup = 2;
    t->recipe.peak_lr = 0.02;
    t->recipe.clip_norm = 0.1;
    t->recipe.epsilon = 1e-3; /* else rounding of gradients near zero decides over whole steps */
    t->recipe.batch_tokens = BATCH;
    t->recipe.sequence_length = TIME;
    t->recipe.z_loss = 1e-3;
    t->recipe.masked_label = w->host_mask ? -1 : MASKED;
    t->params = ttt_params_new(&t->config, w->layout, &error);
    if (t->params == NULL)
        fail_msg("%s", error.message);
    hlo_graph *g = hlo_graph_new("train_step");
    if (w->mesh)
        hlo_mesh(g, axes, axis_sizes, AXES);
    ttt_net net = {.config = &t->config, .params = t->params, .compute = w->compute};
    ttt_train_step(g, &net, &t->recipe, &w->options, &t->at);
    t->exe = compile(g, t->devices, false);
    assert_int_equal(pjrt_executable_num_results(t->exe), t->at.n_results);
    t->n_state = t->at.step + 1;
    t->state = calloc((size_t)(t->devices * t->n_state), sizeof *t->state);
    assert_non_null(t->state);
}

/* Initial parameters, zero moments, no steps done. */
static void fresh_state(trainer *t)
{
    for (int i = 0; i < t->devices * t->n_state; i++) {
        int device = i / t->n_state, index = i % t->n_state;
        pjrt_buffer_free(t->state[i]);
        if (index == t->at.step) {
            t->state[i] = upload_step(device, 0);
            continue;
        }
        const ttt_param *p = &t->params->list[index % t->params->count];
        int64_t start[HLO_MAX_RANK], limit[HLO_MAX_RANK];
        piece(t, &p->shape, &p->spec, device, start, limit);
        hlo_shape shape = piece_shape(&p->shape, start, limit);
        float *values = calloc((size_t)hlo_shape_elements(&shape) + 1, sizeof *values);
        assert_non_null(values);
        if (index < t->params->count)
            ttt_init_block(p, 1, start, limit, values);
        t->state[i] = upload(device, PJRT_F32, &shape, values);
        free(values);
    }
}

/* A whole array of the state; the caller frees it. */
static float *state_array(const trainer *t, int index, int64_t *elements)
{
    const ttt_param *p = &t->params->list[index % t->params->count];
    *elements = hlo_shape_elements(&p->shape);
    float *whole = calloc((size_t)*elements + 1, sizeof *whole);
    float *part = calloc((size_t)*elements + 1, sizeof *part);
    assert_true(whole != NULL && part != NULL);
    for (int d = 0; d < t->devices; d++) {
        int64_t start[HLO_MAX_RANK], limit[HLO_MAX_RANK];
        piece(t, &p->shape, &p->spec, d, start, limit);
        hlo_shape shape = piece_shape(&p->shape, start, limit);
        ASSERT_OK(pjrt_buffer_to_host(t->state[d * t->n_state + index], part,
                                      (size_t)hlo_shape_elements(&shape) * 4, NULL));
        move_piece(&p->shape, start, limit, (uint32_t *)whole, (uint32_t *)part, false);
    }
    free(part);
    return whole;
}

/* An argument of the batch's shape. */
static pjrt_buffer *batch_piece(const trainer *t, int device, hlo_type type, uint32_t *data)
{
    int64_t start[HLO_MAX_RANK], limit[HLO_MAX_RANK], parts = t->way->options.accumulation;
    parts = parts == 0 ? 1 : parts;
    hlo_shape whole = HLO_SHAPE(type, parts, SEQUENCES / parts, TIME);
    uint32_t part[BATCH];
    piece(t, &whole, &HLO_SPEC(NULL, "data+fsdp"), device, start, limit);
    hlo_shape shape = piece_shape(&whole, start, limit);
    move_piece(&whole, start, limit, data, part, true);
    return upload(device, type == HLO_S32 ? PJRT_S32 : PJRT_F32, &shape, part);
}

static void batch_arguments(const trainer *t, int device, int number, pjrt_buffer **args)
{
    const ttt_train_args *at = &t->at;
    int32_t tokens[BATCH], labels[BATCH];
    float weights[BATCH];
    for (int i = 0; i < BATCH; i++) {
        int b = i / TIME, k = i % TIME;
        tokens[i] = (7 * number + 3 * b + 5 * k + b * k) % VOCAB;
        labels[i] = (7 * number + 3 * b + 5 * (k + 1) + b * (k + 1)) % VOCAB;
        weights[i] = labels[i] != MASKED;
    }
    args[at->tokens] = batch_piece(t, device, HLO_S32, (uint32_t *)tokens);
    args[at->labels] = batch_piece(t, device, HLO_S32, (uint32_t *)labels);
    if (at->weights >= 0)
        args[at->weights] = batch_piece(t, device, HLO_F32, (uint32_t *)weights);
    if (at->resets >= 0) { /* none; one device only */
        const uint8_t resets[BATCH] = {0};
        int64_t parts = t->way->options.accumulation;
        args[at->resets] =
            upload(device, PJRT_PRED, &HLO_SHAPE(HLO_PRED, parts, SEQUENCES / parts, TIME), resets);
    }
    if (at->limits >= 0)
        args[at->limits] =
            upload(device, PJRT_F32, &HLO_SHAPE(HLO_F32, 2), (const float[]){INFINITY, INFINITY});
}

typedef struct figures {
    double loss, norm, rate;
    bool skipped;
    float inner_loss[2][4][TIME], inner_rate[2][3], state_norm[2][2];
} figures;

/* Figures of every device are the same. */
static void read_figures(const trainer *t, pjrt_buffer **results, figures *f)
{
    const ttt_train_args *at = &t->at;
    for (int d = 0; d < t->devices; d++) {
        pjrt_buffer **own = results + d * at->n_results;
        assert_true(d == 0 || scalar(own[at->loss]) == f->loss);
        assert_true(d == 0 || scalar(own[at->norm]) == f->norm);
        f->loss = scalar(own[at->loss]);
        f->norm = scalar(own[at->norm]);
        f->rate = scalar(own[at->rate]);
        f->skipped = flag(own[at->skipped]);
        if (at->inner_loss < 0)
            continue;
        ASSERT_OK(
            pjrt_buffer_to_host(own[at->inner_loss], f->inner_loss, sizeof f->inner_loss, NULL));
        ASSERT_OK(
            pjrt_buffer_to_host(own[at->inner_rate], f->inner_rate, sizeof f->inner_rate, NULL));
        ASSERT_OK(
            pjrt_buffer_to_host(own[at->state_norm], f->state_norm, sizeof f->state_norm, NULL));
    }
}

/* One step on batch `number`; the old state is dead behind it. */
static figures train(trainer *t, int number)
{
    int n_args = t->at.n_arguments, n_results = t->at.n_results;
    pjrt_buffer **args = calloc((size_t)(t->devices * n_args), sizeof *args);
    pjrt_buffer **results = calloc((size_t)(t->devices * n_results), sizeof *results);
    assert_true(args != NULL && results != NULL);
    for (int d = 0; d < t->devices; d++) {
        memcpy(args + d * n_args, t->state + d * t->n_state, (size_t)t->n_state * sizeof *args);
        batch_arguments(t, d, number, args + d * n_args);
    }
    ASSERT_OK(pjrt_execute(t->exe, args, (size_t)n_args, NULL, results, (size_t)n_results, NULL));
    figures f = {0};
    read_figures(t, results, &f);
    for (int d = 0; d < t->devices; d++) {
        for (int i = 0; i < t->n_state; i++)
            assert_true(pjrt_buffer_is_dead(args[d * n_args + i]));
        memcpy(t->state + d * t->n_state, results + d * n_results,
               (size_t)t->n_state * sizeof *args);
        free_buffers(results + d * n_results + t->n_state, n_results - t->n_state);
    }
    free_buffers(args, t->devices * n_args);
    free(args);
    free(results);
    return f;
}

static void end_training(trainer *t)
{
    free_buffers(t->state, t->devices * t->n_state);
    free(t->state);
    pjrt_executable_free(t->exe);
    ttt_params_free(t->params);
}

/* ---- all ways are the same ------------------------------------------------------------------- */

/* The array of `t` that has the separate parameter `name`, and where in it: of a stacked one the
 * layer's place. */
static int find_array(const trainer *t, const char *name, int64_t *layer)
{
    char stacked[160];
    int used = 0;
    *layer = 0;
    if (t->params->layout == TTT_STACKED && sscanf(name, "model.layers.%*d.%n", &used) == 0 &&
        used > 0) {
        *layer = atoi(name + strlen("model.layers."));
        snprintf(stacked, sizeof stacked, "model.layers.*.%s", name + used);
        name = stacked;
    }
    int index = ttt_params_find(t->params, name);
    if (index < 0)
        fail_msg("there is no %s", name);
    return index;
}

/* Largest distance of all parameters and moments. */
static double state_distance(const trainer *a, const trainer *b)
{
    double worst = 0;
    int n = a->params->count, m = b->params->count;
    for (int i = 0; i < 3 * n; i++) {
        int64_t size, other_size, layer;
        int index = find_array(b, a->params->list[i % n].name, &layer) + i / n * m;
        float *x = state_array(a, i, &size), *y = state_array(b, index, &other_size);
        for (int64_t k = 0; k < size; k++)
            worst = fmax(worst, fabs((double)x[k] - (double)y[layer * size + k]));
        free(x);
        free(y);
    }
    return worst;
}

/* The first way, compiled once. */
static trainer base;

static trainer *base_training(void)
{
    static const way separate = {.name = "separate"};
    if (base.exe == NULL)
        start_training(&base, &separate);
    fresh_state(&base);
    return &base;
}

/* What is known of any learner: before it learns its three errors are one, and rates have an order;
 * means over parts must keep that. */
static void check_diagnostics(const figures *f)
{
    for (int layer = 0; layer < 2; layer++) {
        const float *rate = f->inner_rate[layer];
        for (int k = 0; k < TIME; k++)
            assert_true(f->inner_loss[layer][0][k] > 0 && f->inner_loss[layer][3][k] > 0);
        assert_true(f->inner_loss[layer][0][0] == f->inner_loss[layer][1][0]);
        assert_true(f->inner_loss[layer][0][0] == f->inner_loss[layer][2][0]);
        assert_true(f->inner_loss[layer][0][0] != f->inner_loss[layer][3][0]);
        assert_true(rate[1] > 0 && rate[1] < rate[0] && rate[0] < rate[2]);
        assert_true(f->state_norm[layer][0] > 0 && f->state_norm[layer][1] > 0);
    }
}

static double diagnostics_distance(const figures *a, const figures *b)
{
    const float *x = &a->inner_loss[0][0][0], *y = &b->inner_loss[0][0][0];
    double worst = 0;
    for (size_t i = 0; i < sizeof a->inner_loss / sizeof *x; i++)
        worst = fmax(worst, fabs((double)x[i] - (double)y[i]));
    for (int i = 0; i < 6; i++)
        worst =
            fmax(worst, fabs((double)a->inner_rate[i / 3][i % 3] - b->inner_rate[i / 3][i % 3]));
    for (int i = 0; i < 4; i++)
        worst =
            fmax(worst, fabs((double)a->state_norm[i / 2][i % 2] - b->state_norm[i / 2][i % 2]));
    return worst;
}

/* Returns the last figures. */
static figures check_way(const way *w, const figures want[STEPS], double tolerance)
{
    trainer t;
    figures f = {0};
    double figure = 0;
    start_training(&t, w);
    fresh_state(&t);
    for (int i = 0; i < STEPS; i++) {
        f = train(&t, i);
        assert_true(f.rate == want[i].rate && !f.skipped);
        figure = fmax(figure, fabs(f.loss - want[i].loss) / want[i].loss);
        figure = fmax(figure, fabs(f.norm - want[i].norm) / want[i].norm);
        if (w->options.diagnostics)
            check_diagnostics(&f);
    }
    double distance = state_distance(&base, &t);
    printf("  %-28s loss and norm %.1e, state %.1e\n", w->name, figure, distance);
    assert_true(figure <= tolerance && distance <= tolerance);
    assert_int_equal(whole_scalar(t.state[t.at.step]), STEPS);
    end_training(&t);
    return f;
}

static void all_ways_train_alike(void **state)
{
    static const way ways[] = {
        {.name = "stacked", .layout = TTT_STACKED},
        {.name = "stacked, 4 parts", .layout = TTT_STACKED, .options = {.accumulation = 4}},
        {.name = "separate, 2 parts, all given",
         .host_mask = true,
         .options = {2, .weights = true, .resets = true, .limits = true, .diagnostics = true}},
        {.name = "stacked, 2 parts, 4 devices",
         .layout = TTT_STACKED,
         .mesh = true,
         .options = {.accumulation = 2, .diagnostics = true}},
    };
    enum { N = sizeof ways / sizeof *ways };
    figures want[STEPS], last[N];
    trainer *t = base_training();
    (void)state;
    for (int i = 0; i < STEPS; i++) {
        want[i] = train(t, i);
        assert_true(fabs(want[i].rate - 0.02 * fmin(1, i / 2.0)) < 1e-8 && !want[i].skipped);
        assert_true(want[i].norm > t->recipe.clip_norm); /* it is clipped */
    }
    /* Seen: 3e-7. A mask forgotten makes 1e-1, a wrong share of each part 2e-1, the warm-up of the
     * base rate left out of the loop 9e-2. */
    for (int i = 0; i < N; i++)
        last[i] = check_way(&ways[i], want, 5e-6);
    double distance = diagnostics_distance(&last[2], &last[3]);
    printf("  diagnostics of the last two  %.1e\n", distance);
    assert_true(distance <= 1e-4);
    /* Seen: 1e-2, of the norm. */
    check_way(&(way){.name = "stacked, bf16", .layout = TTT_STACKED, .compute = HLO_BF16}, want,
              5e-2);
}

static void nan_in_the_network_changes_nothing(void **state)
{
    trainer *t = base_training();
    int64_t size;
    float *poisoned = state_array(t, 0, &size);
    (void)state;
    train(t, 0);
    train(t, 1);
    pjrt_buffer_free(t->state[0]);
    poisoned[3] = NAN;
    t->state[0] = upload(0, PJRT_F32, &t->params->list[0].shape, poisoned);
    float **before = calloc((size_t)t->at.step, sizeof *before);
    assert_non_null(before);
    for (int i = 0; i < t->at.step; i++)
        before[i] = state_array(t, i, &size);
    figures f = train(t, 2);
    assert_true(f.skipped && isnan(f.loss));
    assert_int_equal(whole_scalar(t->state[t->at.step]), 3);
    for (int i = 0; i < t->at.step; i++) {
        float *after = state_array(t, i, &size);
        assert_memory_equal(before[i], after, (size_t)size * sizeof *after);
        free(before[i]);
        free(after);
    }
    free(before);
    free(poisoned);
}

static void it_learns(void **state)
{
    trainer *t = base_training();
    double first = 0, last = 0;
    (void)state;
    for (int i = 0; i < 50; i++) {
        last = train(t, 0).loss;
        first = i == 0 ? last : first;
    }
    printf("  loss %.3f, after 50 steps on one batch %.3f\n", first, last);
    /* Seen: 2.41 and 1.13. Without labels to learn from it stays at log 11, which is 2.4. */
    assert_true(first > 2.3 && last < 1.6);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void refused_step(const char *mixer, const ttt_recipe *recipe, int64_t accumulation,
                         const char *part)
{
    ttt_config config;
    ttt_error error;
    ttt_train_args at;
    assert_true(ttt_config_preset(&config, "tiny", mixer, "transformer", &error));
    ttt_params *params = ttt_params_new(&config, TTT_STACKED, &error);
    assert_non_null(params);
    hlo_graph *g = hlo_graph_new("refused");
    ttt_train_step(g, &(ttt_net){.config = &config, .params = params}, recipe,
                   &(ttt_train_options){.accumulation = accumulation}, &at);
    assert_non_null(hlo_graph_error(g));
    ASSERT_CONTAINS(hlo_graph_error(g)->message, part);
    hlo_graph_free(g);
    ttt_params_free(params);
}

static void wrong_steps(void **state)
{
    ttt_recipe recipe = preset("tiny", "ttt_mlp");
    (void)state;
    refused_step("attention", &recipe, 1, "ttt_base_lr_warmup");
    refused_step("ttt_mlp", &recipe, 3, "accumulation");
    refused_step("ttt_mlp", &recipe, -1, "accumulation");
    recipe.b2 = 7;
    refused_step("ttt_mlp", &recipe, 1, "b2");
}

static int close_all(void **state)
{
    if (base.exe != NULL)
        end_training(&base);
    return close_client(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rates_follow_the_schedule),
        cmocka_unit_test(base_rate_grows),
        cmocka_unit_test(updates_are_adamw),
        cmocka_unit_test(gradients_are_clipped),
        cmocka_unit_test(bad_steps_change_nothing),
        cmocka_unit_test(updates_are_in_place),
        cmocka_unit_test(all_ways_train_alike),
        cmocka_unit_test(nan_in_the_network_changes_nothing),
        cmocka_unit_test(it_learns),
        cmocka_unit_test(wrong_steps),
    };
    return cmocka_run_group_tests_name("model_optimizer", tests, open_client, close_all);
}
