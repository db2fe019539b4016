/*
 * One training step on the CPU plugin, built, compiled and run: one JSON line. bench_train.py is
 * the rival; bench_train.sh runs both.
 *
 *     bench_train SIZE MIXER TOKENS [STEPS [FIELD=VALUE …]]
 *
 * TTT_NO_KERNELS=1: the learners' loops are left to the compiler.
 * `small` has a vocabulary of 512 here, as the rival's has. f32, Mamba backbone, one sequence.
 */
#include "runtime/device/ttt_device.h"
#include "tools/cli/cmd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_STEPS = 64 };

typedef struct bench {
    ttt_config config;
    ttt_recipe recipe;
    ttt_program_desc desc;
    ttt_train_args at;
    ttt_mesh mesh;
    ttt_devices *devices;
    ttt_model *model;
    ttt_program *program;
    ttt_array **args, **results;
    int steps;
    double build_seconds, compile_seconds, seconds[MOST_STEPS];
    float loss;
} bench;

static pjrt_status *configure(bench *b, int argc, char **argv)
{
    ttt_error error;
    b->steps = argc > 4 ? atoi(argv[4]) : 3;
    b->steps = b->steps < 0 ? 0 : b->steps > MOST_STEPS ? MOST_STEPS : b->steps;
    if (!ttt_config_preset(&b->config, argv[1], argv[2], "mamba", &error) ||
        !ttt_recipe_preset(&b->recipe, argv[1], argv[2], &error))
        return ttt_failed(&error);
    if (strcmp(argv[1], "small") == 0)
        b->config.vocab_size = 512;
    for (int i = 5; i < argc; i++) {
        char *equals = strchr(argv[i], '=');
        if (equals != NULL)
            *equals = '\0';
        if (!ttt_config_set(&b->config, argv[i], equals == NULL ? "" : equals + 1, &error))
            return ttt_failed(&error);
    }
    b->recipe.sequence_length = b->recipe.batch_tokens = atoi(argv[3]);
    b->desc = (ttt_program_desc){.kind = TTT_PROGRAM_TRAIN,
                                 .batch = 1,
                                 .time = atoi(argv[3]),
                                 .recipe = &b->recipe,
                                 .places = &b->at};
    return NULL;
}

static pjrt_status *compile(bench *b)
{
    ttt_graph graph;
    PJRT_TRY(ttt_devices_open("cpu", NULL, &b->devices));
    PJRT_TRY(ttt_model_start(b->devices, &b->config, TTT_STACKED, HLO_F32, 0, &b->model));
    if (getenv("TTT_NO_KERNELS") == NULL)
        b->desc.calls = ttt_devices_kernels(b->devices);
    double start = cmd_seconds();
    PJRT_TRY(ttt_build_graph(&b->desc, &b->config, b->model->params, &b->mesh, &graph));
    b->build_seconds = cmd_seconds() - start;
    start = cmd_seconds();
    pjrt_status *st = ttt_program_compile(b->devices, &graph, &b->program);
    b->compile_seconds = cmd_seconds() - start;
    ttt_graph_free(&graph);
    return st;
}

/* Parameters as they start, moments and count zero, and some tokens. */
static pjrt_status *fill(bench *b)
{
    const ttt_params *params = b->model->params;
    int64_t time = b->desc.time;
    int32_t *ids = calloc((size_t)time, sizeof *ids);
    b->args = calloc((size_t)b->at.n_arguments, sizeof(ttt_array *));
    b->results = calloc((size_t)b->at.n_results, sizeof(ttt_array *));
    if (ids == NULL || b->args == NULL || b->results == NULL) {
        free(ids);
        return PJRT_NO_MEMORY("bench_train");
    }
    pjrt_status *st = NULL;
    for (int i = 0; i < params->count; i++) {
        b->args[i] = b->model->weights[i];
        b->model->weights[i] = NULL;
    }
    for (int i = params->count; st == NULL && i < b->at.step; i++) {
        hlo_shape shape = params->list[i % params->count].shape;
        float *zeros = calloc((size_t)hlo_shape_elements(&shape), sizeof *zeros);
        st = zeros == NULL
                 ? PJRT_NO_MEMORY("bench_train")
                 : ttt_array_upload(b->devices, shape, HLO_SPEC(NULL), zeros, &b->args[i]);
        free(zeros);
    }
    if (st == NULL)
        st = ttt_array_upload(b->devices, HLO_SCALAR(HLO_S32), HLO_SPEC(NULL), ids,
                              &b->args[b->at.step]);
    for (int64_t i = 0; i < time; i++)
        ids[i] = (int32_t)(i * 7919 % b->config.vocab_size);
    hlo_shape shape = HLO_SHAPE(HLO_S32, 1, 1, time);
    for (int i = b->at.tokens; st == NULL && i <= b->at.labels; i++)
        st = ttt_array_upload(b->devices, shape, HLO_SPEC(NULL), ids, &b->args[i]);
    free(ids);
    return st;
}

/* One step; the new state takes the old one's place. */
static pjrt_status *step(bench *b)
{
    PJRT_TRY(ttt_program_run(b->program, b->args, b->at.n_arguments, b->results));
    pjrt_status *st = ttt_array_download(b->results[b->at.loss], &b->loss, sizeof b->loss);
    if (st == NULL)
        st = ttt_array_wait(b->results[0]);
    for (int i = 0; i < b->at.n_results; i++) {
        if (i <= b->at.step) {
            ttt_array_free(b->args[i]);
            b->args[i] = b->results[i];
        } else {
            ttt_array_free(b->results[i]);
        }
    }
    return st;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static pjrt_status *measure(bench *b)
{
    pjrt_memory_stats memory;
    PJRT_TRY(compile(b));
    PJRT_TRY(pjrt_executable_memory(b->program->exe, &memory));
    if (b->steps > 0) {
        PJRT_TRY(fill(b));
        PJRT_TRY(step(b)); /* the first is slower, and not counted */
    }
    for (int i = 0; i < b->steps; i++) {
        double start = cmd_seconds();
        PJRT_TRY(step(b));
        b->seconds[i] = cmd_seconds() - start;
    }
    qsort(b->seconds, (size_t)b->steps, sizeof *b->seconds, compare);
    printf("{\"build_seconds\": %.4f, \"compile_seconds\": %.3f, \"step_seconds\": %.4f, "
           "\"temp_bytes\": %lld, \"argument_bytes\": %lld, \"loss\": %.6f}\n",
           b->build_seconds, b->compile_seconds, b->seconds[b->steps / 2], (long long)memory.temp,
           (long long)memory.arguments, (double)b->loss);
    return NULL;
}

int main(int argc, char **argv)
{
    bench b = {0};
    if (argc < 4) {
        fprintf(stderr, "usage: bench_train SIZE MIXER TOKENS [STEPS [FIELD=VALUE …]]\n");
        return CMD_WRONG_USE;
    }
    pjrt_status *st = configure(&b, argc, argv);
    if (st == NULL)
        st = measure(&b);
    if (st != NULL)
        fprintf(stderr, "bench_train: %s\n", pjrt_status_message(st));
    int code = st == NULL ? CMD_OK : CMD_FAILED;
    pjrt_status_free(st);
    for (int i = 0; b.args != NULL && i < b.at.n_arguments; i++)
        ttt_array_free(b.args[i]);
    free(b.args);
    free(b.results);
    ttt_program_free(b.program);
    ttt_model_free(b.model);
    ttt_devices_free(b.devices);
    return code;
}
