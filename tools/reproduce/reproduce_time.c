/* How long programs of a network take. */
#include "tools/cli/stop_signals.h"
#include "tools/reproduce/reproduce.h"

#include <stdlib.h>

enum { LEAST_RUNS = 5, MOST_RUNS = 15 };
#define ENOUGH_SECONDS 4.0

pjrt_status *reproduce_place(reproduce *r)
{
    char path[PATH_MAX];
    if (r->devices != NULL)
        return NULL;
    PJRT_TRY(ttt_devices_open(r->common->plugin, NULL, &r->devices));
    const char *cache = cmd_program_cache(r->options->cache, path);
    return cache == NULL ? NULL : ttt_devices_cache(r->devices, cache);
}

/* Tokens and labels: any numbers of the vocabulary will do. */
static pjrt_status *make_inputs(const reproduce_timing *t, const ttt_devices *devices,
                                ttt_array *inputs[2])
{
    int64_t count = t->batch * t->time;
    int32_t *ids = malloc((size_t)count * sizeof *ids);
    if (ids == NULL)
        return PJRT_NO_MEMORY("ttt");
    for (int64_t i = 0; i < count; i++)
        ids[i] = (int32_t)(i * 7919 % t->config.vocab_size);
    pjrt_status *st = NULL;
    for (int i = 0; st == NULL && i < 2; i++)
        st = ttt_array_upload(devices, HLO_SHAPE(HLO_S32, t->batch, t->time), HLO_SPEC(NULL), ids,
                              &inputs[i]);
    free(ids);
    return st;
}

/* One run, until all is there. */
static pjrt_status *run_once(const ttt_model *model, const ttt_program *program,
                             ttt_array *const *inputs, double *seconds)
{
    ttt_array **results = calloc((size_t)program->n_results, sizeof(ttt_array *));
    if (results == NULL)
        return PJRT_NO_MEMORY("ttt");
    double start = cmd_seconds();
    pjrt_status *st = ttt_model_run(model, program, inputs, 2, results);
    for (int i = 0; st == NULL && i < program->n_results; i++)
        st = ttt_array_wait(results[i]);
    *seconds = cmd_seconds() - start;
    for (int i = 0; i < program->n_results; i++)
        ttt_array_free(results[i]);
    free(results);
    return st;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static pjrt_status *run_often(const ttt_model *model, const ttt_program *program,
                              ttt_array *const *inputs, double *median)
{
    double seconds[MOST_RUNS], all = 0;
    int n = 0;
    PJRT_TRY(run_once(model, program, inputs, &seconds[0])); /* does not count */
    while (n < LEAST_RUNS || (n < MOST_RUNS && all < ENOUGH_SECONDS)) {
        if (stopping != 0)
            return PJRT_FAIL(CANCELLED, "ttt", "stopped");
        PJRT_TRY(run_once(model, program, inputs, &seconds[n]));
        all += seconds[n++];
    }
    qsort(seconds, (size_t)n, sizeof *seconds, by_size);
    *median = seconds[n / 2];
    return NULL;
}

pjrt_status *reproduce_time(reproduce *r, const reproduce_timing *t, double *seconds)
{
    ttt_model *model = NULL;
    ttt_program *program = NULL;
    ttt_array *inputs[2] = {NULL, NULL};
    PJRT_TRY(reproduce_place(r));
    ttt_program_desc desc = {.kind = t->kind,
                             .batch = t->batch,
                             .time = t->time,
                             .form = t->form,
                             .compute = r->options->dtype,
                             .calls =
                                 t->kernels ? ttt_devices_kernels(r->devices) : TTT_KERNEL_NONE};
    reproduce_show(r, 0, "compiling");
    pjrt_status *st = ttt_model_start(r->devices, &t->config, TTT_STACKED, HLO_F32, 0, &model);
    if (st == NULL)
        st = make_inputs(t, r->devices, inputs);
    if (st == NULL)
        st = ttt_compile_program(&desc, model, &program);
    if (st == NULL)
        st = run_often(model, program, inputs, seconds);
    for (int i = 0; i < 2; i++)
        ttt_array_free(inputs[i]);
    ttt_program_free(program);
    ttt_model_free(model);
    r->done++;
    r->fresh++;
    return st;
}
