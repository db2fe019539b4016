/*
 * One token after another on the CPU plugin: milliseconds a step, and reading a prompt; one JSON
 * line. bench_decode.py is the rival; bench_decode.sh runs both.
 *
 *     bench_decode MODEL BATCH TOKENS WEIGHTS [PROMPT]
 *
 * WEIGHTS: f32, bf16 or s8 with kernels; graph: f32 without. PROMPT tokens are read first by the
 * dual form, in spans of up to 512.
 */
#include "runtime/device/ttt_device.h"
#include "tools/cli/cmd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TOKENS = 4096 };

typedef struct bench {
    int64_t batch, tokens, prompt;
    hlo_type products; /* none: without kernels */
    ttt_devices *devices;
    ttt_model *model;
    ttt_program *start, *extend, *decode;
    ttt_array **args, **results;
    int n_states;
    double seconds[MOST_TOKENS], read_seconds, load_seconds;
} bench;

static pjrt_status *compile(bench *b, ttt_program_kind kind, int64_t time, ttt_program **out)
{
    ttt_program_desc desc = {
        .kind = kind,
        .batch = b->batch,
        .time = time,
        .context = 2048,
        .calls = b->products == HLO_TYPE_NONE ? TTT_KERNEL_NONE : ttt_devices_kernels(b->devices)};
    return ttt_compile_program(&desc, b->model, out);
}

static pjrt_status *open_model(bench *b, const char *folder)
{
    double start = cmd_seconds();
    PJRT_TRY(ttt_devices_open("cpu", NULL, &b->devices));
    PJRT_TRY(b->products == HLO_TYPE_NONE
                 ? ttt_model_load(b->devices, folder, TTT_SEPARATE, HLO_F32, &b->model)
                 : ttt_model_load_packed(b->devices, folder, b->products, &b->model));
    b->load_seconds = cmd_seconds() - start;
    PJRT_TRY(compile(b, TTT_PROGRAM_START, 1, &b->start));
    PJRT_TRY(compile(b, TTT_PROGRAM_DECODE, 1, &b->decode));
    if (b->prompt > 0)
        PJRT_TRY(compile(b, TTT_PROGRAM_EXTEND, b->prompt < 512 ? b->prompt : 512, &b->extend));
    b->n_states = b->start->n_results;
    int count = b->model->params->count;
    b->args = calloc((size_t)(count + b->n_states + 1), sizeof(ttt_array *));
    b->results = calloc((size_t)b->n_states + 1, sizeof(ttt_array *));
    if (b->args == NULL || b->results == NULL)
        return PJRT_NO_MEMORY("bench_decode");
    memcpy(b->args, b->model->weights, (size_t)count * sizeof(ttt_array *));
    return ttt_program_run(b->start, b->args, count, b->args + count);
}

/* Runs a program on some tokens and takes over the states that it leaves. */
static pjrt_status *go_on(bench *b, const ttt_program *program, hlo_shape shape, int32_t *ids)
{
    int count = b->model->params->count, last = count + b->n_states;
    PJRT_TRY(ttt_array_upload(b->devices, shape, HLO_SPEC(NULL), ids, &b->args[last]));
    PJRT_TRY(ttt_program_run(program, b->args, last + 1, b->results));
    for (int i = 0; i < b->n_states; i++) {
        ttt_array_free(b->args[count + i]);
        b->args[count + i] = b->results[1 + i];
    }
    ttt_array_free(b->args[last]);
    b->args[last] = NULL;
    float *logits = malloc(ttt_array_bytes(b->results[0]));
    pjrt_status *st =
        logits == NULL ? PJRT_NO_MEMORY("bench_decode")
                       : ttt_array_download(b->results[0], logits, ttt_array_bytes(b->results[0]));
    int64_t vocab = b->model->config.vocab_size;
    for (int64_t r = 0; r < b->batch && st == NULL; r++) { /* the next ones are the likeliest */
        ids[r] = 0;
        for (int64_t i = 1; i < vocab; i++) {
            if (logits[r * vocab + i] > logits[r * vocab + ids[r]])
                ids[r] = (int32_t)i;
        }
    }
    free(logits);
    ttt_array_free(b->results[0]);
    b->results[0] = NULL;
    return st;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static pjrt_status *read_prompt(bench *b, int32_t *ids)
{
    int64_t span = b->prompt < 512 ? b->prompt : 512;
    double start = cmd_seconds();
    for (int64_t at = 0; at + span <= b->prompt; at += span) {
        for (int64_t i = 0; i < b->batch * span; i++)
            ids[i] = (int32_t)((at + i) * 7919 % b->model->config.vocab_size);
        PJRT_TRY(go_on(b, b->extend, HLO_SHAPE(HLO_S32, b->batch, span), ids));
        if (at == 0 && b->prompt > span) /* the first one only warms up */
            start = cmd_seconds();
    }
    b->read_seconds = cmd_seconds() - start;
    return NULL;
}

static pjrt_status *measure(bench *b, const char *folder, int32_t *ids)
{
    PJRT_TRY(open_model(b, folder));
    if (b->prompt > 0)
        PJRT_TRY(read_prompt(b, ids));
    for (int64_t i = 0; i < b->batch; i++)
        ids[i] = (int32_t)(i + 1);
    for (int64_t i = -3; i < b->tokens; i++) { /* some to warm up */
        double start = cmd_seconds();
        PJRT_TRY(go_on(b, b->decode, HLO_SHAPE(HLO_S32, b->batch), ids));
        if (i >= 0)
            b->seconds[i] = cmd_seconds() - start;
    }
    qsort(b->seconds, (size_t)b->tokens, sizeof *b->seconds, compare);
    int64_t span = b->prompt < 512 ? b->prompt : 512, timed = b->prompt / (span + !span) * span;
    timed = b->prompt > span ? timed - span : timed;
    printf("{\"step_ms\": %.3f, \"step_ms_least\": %.3f, \"read_tokens_per_second\": %.1f, "
           "\"load_seconds\": %.2f, \"parameters\": %lld}\n",
           1e3 * b->seconds[b->tokens / 2], 1e3 * b->seconds[0],
           b->prompt > 0 ? (double)(timed * b->batch) / b->read_seconds : 0, b->load_seconds,
           (long long)b->model->params->elements);
    return NULL;
}

static bool choose(bench *b, char **argv, int argc)
{
    static const hlo_type types[] = {HLO_F32, HLO_BF16, HLO_S8};
    static const char *const names[] = {"f32", "bf16", "s8", "graph"};
    b->batch = atoi(argv[2]);
    b->tokens = atoi(argv[3]);
    b->prompt = argc > 5 ? atoi(argv[5]) : 0;
    int which = 0;
    while (which < 4 && strcmp(argv[4], names[which]) != 0)
        which++;
    b->products = which < 3 ? types[which] : HLO_TYPE_NONE;
    return which < 4 && b->batch > 0 && b->tokens > 0 && b->tokens <= MOST_TOKENS && b->prompt >= 0;
}

int main(int argc, char **argv)
{
    bench b = {0};
    if (argc < 5 || !choose(&b, argv, argc)) {
        fprintf(stderr, "usage: bench_decode MODEL BATCH TOKENS f32|bf16|s8|graph [PROMPT]\n");
        return CMD_WRONG_USE;
    }
    int32_t *ids = calloc((size_t)(b.batch * 512), sizeof *ids);
    pjrt_status *st = ids == NULL ? PJRT_NO_MEMORY("bench_decode") : measure(&b, argv[1], ids);
    if (st != NULL)
        fprintf(stderr, "bench_decode: %s\n", pjrt_status_message(st));
    int code = st == NULL ? CMD_OK : CMD_FAILED;
    pjrt_status_free(st);
    for (int i = 0; b.args != NULL && i < b.n_states; i++)
        ttt_array_free(b.args[b.model->params->count + i]);
    free(b.args);
    free(b.results);
    free(ids);
    ttt_program_free(b.start);
    ttt_program_free(b.extend);
    ttt_program_free(b.decode);
    ttt_model_free(b.model);
    ttt_devices_free(b.devices);
    return code;
}
