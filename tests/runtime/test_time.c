/*
 * Sequences whose times are shared out over devices, on virtual ones of the CPU: logits, inner
 * losses, gradients and training are those of one device. Every check prints the largest error it
 * saw, beside the one allowed.
 */
#include "runtime/train/train_arrays.h"
#include "tests/support/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { VOCAB = 24, TIME = 64, SEQUENCES = 4, PARTS = 2, STEPS = 2 };

static const char *const meshes[] = {"time=2", "time=4", "data=2,time=2", "time=2,fsdp=2",
                                     "time=2,model=2"};
enum { MESHES = sizeof meshes / sizeof *meshes, FEW = 2 };

static int32_t tokens[SEQUENCES][TIME], labels[SEQUENCES][TIME];
static unsigned char resets[SEQUENCES][TIME];

static ttt_config config_of(const char *mixer, const char *backbone)
{
    static const char *const small[][2] = {{"vocab_size", "24"},        {"hidden_size", "16"},
                                           {"n_layers", "2"},           {"n_heads", "2"},
                                           {"mini_batch_size", "8"},    {"intermediate_size", "24"},
                                           {"initializer_range", "0.2"}};
    ttt_config config;
    ttt_error error;
    assert_true(ttt_config_preset(&config, "tiny", mixer, backbone, &error));
    for (size_t i = 0; i < sizeof small / sizeof *small; i++)
        assert_true(ttt_config_set(&config, small[i][0], small[i][1], &error));
    return config;
}

/* Documents start at every kind of place: of a span, of a mini-batch, and between. */
static int set_up(void **state)
{
    static const int starts[SEQUENCES][3] = {{0, 32, 37}, {3, 16, 63}, {1, 33, 48}, {31, 32, 33}};
    (void)state;
    /* Many programs that run once: compiling is all the time there is to save. */
    setenv("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false",
           1);
    for (int i = 0; i < SEQUENCES * TIME; i++) {
        tokens[i / TIME][i % TIME] = (i * i * 7 + i * 13 + i / TIME) % VOCAB;
        labels[i / TIME][i % TIME] = (i * 11 + i * i * 3 + 5) % VOCAB;
    }
    for (int i = 0; i < SEQUENCES * 3; i++)
        resets[i / 3][starts[i / 3][i % 3]] = 1;
    return 0;
}

/* ---- one program on one mesh -------------------------------------------------------------------
 */

/* All results of a run, one after another, each with its number of elements. */
typedef struct outcome {
    double *values;
    int64_t *counts;
    int n;
} outcome;

static void free_outcome(outcome *o)
{
    free(o->values);
    free(o->counts);
}

/* An array of f32 or f64 as doubles. */
static void read_array(const ttt_array *array, int64_t count, double *out)
{
    ASSERT_OK(ttt_array_download(array, out, ttt_array_bytes(array)));
    if (array->shape.type == HLO_F64)
        return;
    assert_int_equal(array->shape.type, HLO_F32);
    const float *narrow = (const float *)out;
    for (int64_t i = count - 1; i >= 0; i--) { /* in place, from the end */
        float value;
        memcpy(&value, narrow + i, sizeof value);
        out[i] = (double)value;
    }
}

/* Results of a run, which are freed. */
static outcome download(ttt_array **results, int n)
{
    int64_t all = 0;
    outcome o = {.counts = calloc((size_t)n, sizeof *o.counts), .n = n};
    assert_non_null(o.counts);
    for (int i = 0; i < n; i++)
        all += o.counts[i] = hlo_shape_elements(&results[i]->shape);
    o.values = calloc((size_t)all, sizeof *o.values);
    assert_non_null(o.values);
    for (int64_t i = 0, at = 0; i < n; at += o.counts[i++]) {
        read_array(results[i], o.counts[i], o.values + at);
        ttt_array_free(results[i]);
    }
    return o;
}

static ttt_array *upload(const ttt_devices *devices, hlo_type type, hlo_spec spec, const void *data)
{
    ttt_array *array;
    ASSERT_OK(ttt_array_upload(devices, HLO_SHAPE(type, SEQUENCES, TIME), spec, data, &array));
    return array;
}

static outcome run(const ttt_config *config, const ttt_program_desc *desc, const char *mesh_text)
{
    ttt_mesh mesh;
    ttt_devices *devices;
    ttt_model *model;
    ttt_program *program;
    hlo_spec spec;
    ttt_array *inputs[3];
    int n = 0;
    ASSERT_OK(ttt_mesh_parse(mesh_text, &mesh));
    ASSERT_OK(ttt_devices_open("cpu", &mesh, &devices));
    ASSERT_OK(
        ttt_model_start(devices, config, TTT_STACKED, ttt_wide_type(desc->compute), 1, &model));
    ASSERT_OK(ttt_compile_program(desc, model, &program));
    ASSERT_OK(ttt_program_batch_spec(desc, &mesh, &spec));
    inputs[n++] = upload(devices, HLO_S32, spec, tokens);
    if (desc->kind != TTT_PROGRAM_LOGITS)
        inputs[n++] = upload(devices, HLO_S32, spec, labels);
    if (desc->resets)
        inputs[n++] = upload(devices, HLO_PRED, spec, resets);
    ttt_array **results = calloc((size_t)program->n_results, sizeof(ttt_array *));
    assert_non_null(results);
    ASSERT_OK(ttt_model_run(model, program, inputs, n, results));
    outcome o = download(results, program->n_results);
    free(results);
    for (int i = 0; i < n; i++)
        ttt_array_free(inputs[i]);
    ttt_program_free(program);
    ttt_model_free(model);
    ttt_devices_free(devices);
    return o;
}

/* The largest difference of any result, relative to its own largest number. */
static double distance(const outcome *found, const outcome *right)
{
    double worst = 0;
    assert_int_equal(found->n, right->n);
    for (int64_t i = 0, at = 0; i < right->n; at += right->counts[i++]) {
        double most = 0, off = 0;
        assert_int_equal(found->counts[i], right->counts[i]);
        for (int64_t k = at; k < at + right->counts[i]; k++) {
            most = fmax(most, fabs(right->values[k]));
            double d = fabs(found->values[k] - right->values[k]);
            off = d >= 0 ? fmax(off, d) : INFINITY;
        }
        worst = fmax(worst, off / fmax(most, 1e-30));
    }
    return worst;
}

static void compare(const char *name, const ttt_config *config, const ttt_program_desc *desc,
                    int n_meshes, double allowed)
{
    outcome one = run(config, desc, NULL);
    for (int i = 0; i < n_meshes; i++) {
        outcome many = run(config, desc, meshes[i]);
        double error = distance(&many, &one);
        printf("  %s, %s%s, %s: %.1e of %.0e\n", ttt_mixer_name(config->mixer), name,
               desc->resets ? ", resets" : "", meshes[i], error, allowed);
        free_outcome(&many);
        assert_true(error < allowed);
    }
    free_outcome(&one);
}

/* ---- networks ----------------------------------------------------------------------------------
 */

static ttt_program_desc task_of(ttt_program_kind kind, hlo_type compute, bool with_resets)
{
    return (ttt_program_desc){
        .kind = kind, .batch = SEQUENCES, .time = TIME, .compute = compute, .resets = with_resets};
}

/* In f64, where nothing but a mistake is larger than the tolerance. */
static void agrees(const char *mixer, const char *backbone, int n_meshes)
{
    ttt_config config = config_of(mixer, backbone);
    for (int with = 0; with < 2; with++) {
        ttt_program_desc logits = task_of(TTT_PROGRAM_LOGITS, HLO_F64, with);
        ttt_program_desc grads = task_of(TTT_PROGRAM_GRADS, HLO_F64, with);
        compare("logits", &config, &logits, n_meshes, 1e-10);
        compare("gradients", &config, &grads, n_meshes, 1e-9);
    }
}

static void ttt_linear_agrees(void **state)
{
    (void)state;
    agrees("ttt_linear", "mamba", MESHES);
}

static void ttt_mlp_agrees(void **state)
{
    (void)state;
    agrees("ttt_mlp", "transformer", MESHES);
}

/* The form for TPUs, in which chunks of mini-batches end where spans do. */
static void chunks_agree(void **state)
{
    static const char *const mixers[] = {"ttt_linear", "ttt_mlp"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        ttt_config config = config_of(mixers[i], "mamba");
        ttt_program_desc desc = task_of(TTT_PROGRAM_GRADS, HLO_F64, false);
        desc.form = TTT_FORM_MATRIX;
        compare("gradients in chunks", &config, &desc, FEW, 1e-9);
    }
}

/* These need all times on every device; the compiler brings them there. */
static void attention_agrees(void **state)
{
    (void)state;
    agrees("attention", "transformer", FEW);
}

static void linear_attention_agrees(void **state)
{
    (void)state;
    agrees("linear_attention", "mamba", FEW);
}

static void mamba_agrees(void **state)
{
    (void)state;
    agrees("mamba", "mamba", FEW);
}

/* Errors before and after learning, rates, and how far states moved: in f32. */
static void diagnostics_agree(void **state)
{
    ttt_config config = config_of("ttt_mlp", "mamba");
    ttt_program_desc desc = task_of(TTT_PROGRAM_LOSSES, HLO_F32, true);
    (void)state;
    desc.diagnostics = true;
    compare("losses and diagnostics", &config, &desc, MESHES, 1e-5);
}

/* ---- training ----------------------------------------------------------------------------------
 */

/* A training under way on a mesh. */
typedef struct training {
    ttt_devices *devices;
    ttt_params *params;
    ttt_program *program;
    ttt_train_args at;
    ttt__train_arrays state;
    ttt_array **args, **results;
} training;

static void compile_step(training *t, const ttt_config *config)
{
    ttt_error error;
    ttt_recipe recipe;
    assert_true(ttt_recipe_preset(&recipe, "tiny", ttt_mixer_name(config->mixer), &error));
    recipe.sequence_length = TIME;
    recipe.batch_tokens = SEQUENCES * TIME;
    recipe.epsilon = 1e-3; /* else rounding of gradients near zero decides over whole steps */
    recipe.warmup_steps = recipe.ttt_base_lr_warmup = 1;
    ttt_program_desc desc = task_of(TTT_PROGRAM_TRAIN, HLO_F32, true);
    desc.recipe = &recipe;
    desc.train.accumulation = PARTS;
    desc.places = &t->at;
    ASSERT_OK(ttt_compile_program_for(&desc, t->devices, config, t->params, &t->program));
}

static void start_training(training *t, const ttt_config *config, const char *mesh_text)
{
    ttt_mesh mesh;
    ttt_error error;
    hlo_shape ids = HLO_SHAPE(HLO_S32, PARTS, SEQUENCES / PARTS, TIME), marks = ids;
    hlo_spec rows = HLO_SPEC(NULL, "data+fsdp", "time");
    marks.type = HLO_PRED;
    t->params = ttt_params_new(config, TTT_STACKED, &error);
    assert_non_null(t->params);
    ASSERT_OK(ttt_mesh_parse(mesh_text, &mesh));
    ASSERT_OK(ttt_devices_open("cpu", &mesh, &t->devices));
    compile_step(t, config);
    ASSERT_OK(ttt__train_arrays_start(t->devices, t->params, 1, NULL, &t->state));
    t->args = calloc((size_t)t->at.n_arguments, sizeof(ttt_array *));
    t->results = calloc((size_t)t->at.n_results, sizeof(ttt_array *));
    assert_true(t->args != NULL && t->results != NULL);
    ASSERT_OK(ttt_array_upload(t->devices, ids, rows, tokens, &t->args[t->at.tokens]));
    ASSERT_OK(ttt_array_upload(t->devices, ids, rows, labels, &t->args[t->at.labels]));
    ASSERT_OK(ttt_array_upload(t->devices, marks, rows, resets, &t->args[t->at.resets]));
}

/* The state moves on; returns the loss. */
static ttt_array *one_step(training *t)
{
    memcpy(t->args, t->state.arrays, (size_t)t->state.n * sizeof *t->args);
    ASSERT_OK(ttt_program_run(t->program, t->args, t->at.n_arguments, t->results));
    for (int i = 0; i < t->at.n_results; i++) {
        if (i < t->state.n) {
            ttt_array_free(t->state.arrays[i]);
            t->state.arrays[i] = t->results[i];
        } else if (i != t->at.loss) {
            ttt_array_free(t->results[i]);
        }
    }
    return t->results[t->at.loss];
}

static void end_training(training *t)
{
    for (int i = t->state.n; i < t->at.n_arguments; i++)
        ttt_array_free(t->args[i]);
    free(t->args);
    free(t->results);
    ttt__train_arrays_free(&t->state);
    ttt_program_free(t->program);
    ttt_params_free(t->params);
    ttt_devices_free(t->devices);
}

/* Losses of some steps, and the parameters after them. */
static outcome train(const ttt_config *config, const char *mesh_text)
{
    training t = {0};
    start_training(&t, config, mesh_text);
    int n = STEPS + t.params->count;
    ttt_array **kept = calloc((size_t)n, sizeof(ttt_array *));
    assert_non_null(kept);
    for (int i = 0; i < STEPS; i++)
        kept[i] = one_step(&t);
    for (int i = 0; i < t.params->count; i++) {
        kept[STEPS + i] = t.state.arrays[i];
        t.state.arrays[i] = NULL;
    }
    outcome o = download(kept, n);
    free(kept);
    end_training(&t);
    return o;
}

static void training_agrees(void **state)
{
    ttt_config config = config_of("ttt_linear", "mamba");
    outcome one = train(&config, NULL);
    (void)state;
    for (int i = 0; i < MESHES; i++) {
        outcome many = train(&config, meshes[i]);
        double error = distance(&many, &one);
        printf("  training, %s: %.1e of 1e-4\n", meshes[i], error);
        free_outcome(&many);
        assert_true(error < 1e-4);
    }
    free_outcome(&one);
}

/* ---- what is refused ---------------------------------------------------------------------------
 */

static pjrt_status *build(const ttt_config *config, const ttt_program_desc *desc,
                          const char *mesh_text)
{
    ttt_mesh mesh;
    ttt_graph graph;
    ttt_error error;
    ASSERT_OK(ttt_mesh_parse(mesh_text, &mesh));
    ttt_params *params = ttt_params_new(config, TTT_STACKED, &error);
    assert_non_null(params);
    pjrt_status *st = ttt_build_graph(desc, config, params, &mesh, &graph);
    if (st == NULL)
        ttt_graph_free(&graph);
    ttt_params_free(params);
    return st;
}

static void what_cannot_be_split_is_refused(void **state)
{
    static const ttt_program_kind with_states[] = {TTT_PROGRAM_START,  TTT_PROGRAM_DECODE,
                                                   TTT_PROGRAM_EXTEND, TTT_PROGRAM_STREAM,
                                                   TTT_PROGRAM_PUT,    TTT_PROGRAM_TAKE};
    ttt_config config = config_of("ttt_linear", "mamba"), whole = config;
    ttt_program_desc desc = task_of(TTT_PROGRAM_LOGITS, HLO_F32, false);
    (void)state;
    ASSERT_OK(build(&config, &desc, "time=4"));
    ASSERT_FAILS(build(&config, &desc, "time=16"), INVALID_ARGUMENT,
                 "64 tokens are not 16 spans of whole mini-batches of 8");
    desc.time = 72; /* nine mini-batches */
    ASSERT_FAILS(build(&config, &desc, "time=4"), INVALID_ARGUMENT, "a multiple of 32");
    desc.time = 63;
    ASSERT_FAILS(build(&config, &desc, "time=4"), INVALID_ARGUMENT, "63 tokens do not divide by 4");
    desc.time = TIME;
    desc.form = TTT_FORM_PRIMAL;
    ASSERT_FAILS(build(&config, &desc, "time=4"), INVALID_ARGUMENT, "dual form");
    desc.form = TTT_FORM_DUAL;
    whole.mini_batch_size = 0;
    whole.learnable_token_idx = false;
    ASSERT_FAILS(build(&whole, &desc, "time=4"), INVALID_ARGUMENT, "set mini_batch_size");
    for (size_t i = 0; i < sizeof with_states / sizeof *with_states; i++) {
        desc.kind = with_states[i];
        ASSERT_FAILS(build(&config, &desc, "time=4"), INVALID_ARGUMENT, "from a state");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_cannot_be_split_is_refused),
        cmocka_unit_test(training_agrees),
        cmocka_unit_test(diagnostics_agree),
        cmocka_unit_test(ttt_linear_agrees),
        cmocka_unit_test(ttt_mlp_agrees),
        cmocka_unit_test(chunks_agree),
        cmocka_unit_test(attention_agrees),
        cmocka_unit_test(linear_attention_agrees),
        cmocka_unit_test(mamba_agrees),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
