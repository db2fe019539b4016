/* ttt logits: what a model says of some tokens. */
#include "tools/cli/npy.h"
#include "tools/cli/values.h"
#include "tools/commands/model_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct logits_options {
    model_run_options run;
    const char *diagnostics;
} logits_options;

static const cmd_option options[] = {
    MODEL_RUN_OPTIONS(logits_options, run, "the .npy file to write"),
    {"diagnostics", "FILE", CMD_FILE, offsetof(logits_options, diagnostics),
     "write what the learners did to a .npy file: [layers, 4, tokens], the error of a token's "
     "reconstruction by the learner as it started, as it was at the start of the mini-batch, "
     "before and after learning from that token; and print rates and norms of states. Of TTT "
     "layers, in the dual form"},
};
static int logits_command(int argc, char **argv);
const cmd_spec cmd_logits = {
    .name = "logits",
    .summary = "what a model says of some tokens",
    .usage = "--model DIR --tokens 1,4,7 --out logits.npy [options]",
    .about = "Writes the logits of the token after each of those given: a NumPy array [tokens, "
             "vocabulary], f32 (f64 with --dtype f64).",
    CMD_OPTIONS(options),
    .example = "ttt init --preset tiny model\n"
               "ttt logits --model model --tokens 1,4,7,10,2 --out logits.npy",
    .json = "times, shapes, rates and norms as JSON",
    .plugin = CMD_PLUGIN,
    .run = logits_command,
};

static pjrt_shape host_shape(const hlo_shape *shape, int skip)
{
    pjrt_shape out = {.type = ttt_pjrt_type(shape->type), .rank = shape->rank - skip};
    memcpy(out.dims, shape->dims + skip, (size_t)out.rank * sizeof *out.dims);
    return out;
}

/* Result `index` without its first `skip` dimensions, which are 1, into a file. */
static pjrt_status *write_result(const model_run *run, int index, int skip, const char *path)
{
    void *data;
    pjrt_shape shape = host_shape(&run->results[index]->shape, skip);
    PJRT_TRY(model_run_result(run, index, &data));
    pjrt_status *st = npy_write(path, &shape, data);
    free(data);
    return st;
}

/* A result [layers, columns], printed by its columns' names or given as a list of lists. */
static pjrt_status *show_rows(const model_run *run, int index, const char *title, json_t *json)
{
    void *data;
    pjrt_shape shape = host_shape(&run->results[index]->shape, 0);
    PJRT_TRY(model_run_result(run, index, &data));
    if (json == NULL)
        printf("%s\n", title);
    for (int64_t i = 0; i < shape.dims[0]; i++) {
        json_t *row = json_array();
        if (json == NULL)
            printf("  layer %-4lld", (long long)i);
        for (int64_t k = 0; k < shape.dims[1]; k++) {
            double value = value_get(shape.type, data, (size_t)(i * shape.dims[1] + k));
            json_array_append_new(row, cmd_json_number(value));
            if (json == NULL)
                printf(" %12.6g", value);
        }
        if (json == NULL)
            putchar('\n');
        json_array_append_new(json, row);
    }
    free(data);
    return NULL;
}

static pjrt_status *show_diagnostics(const model_run *run, const char *path, json_t *json)
{
    json_t *rate = json == NULL ? NULL : json_array(), *norm = json == NULL ? NULL : json_array();
    pjrt_status *st = write_result(run, 1, 0, path);
    if (st == NULL)
        st = show_rows(run, 2, "rates of the learners: mean, least, largest", rate);
    if (st == NULL)
        st = show_rows(run, 3, "norm of their weights at the start, and of how far they moved",
                       norm);
    if (json != NULL)
        json_object_set_new(
            json, "diagnostics",
            json_pack("{s:s, s:o, s:o}", "out", path, "rate", rate, "state_norm", norm));
    return st;
}

static pjrt_status *report(const cmd_common *common, const logits_options *chosen,
                           const model_run *run, json_t **json)
{
    pjrt_shape shape = host_shape(&run->results[0]->shape, 1);
    char text[PJRT_SHAPE_TEXT];
    PJRT_TRY(write_result(run, 0, 1, chosen->run.out));
    pjrt_shape_text(&shape, text);
    if (common->json) {
        *json = model_run_json(run);
        json_object_set_new(*json, "shape", json_string(text));
    } else {
        printf("%s: %s, loaded in %.2f s, compiled in %.2f s, ran in %.4f s\n", chosen->run.out,
               text, run->load_seconds, run->compile_seconds, run->run_seconds);
    }
    return run->desc.diagnostics ? show_diagnostics(run, chosen->diagnostics, *json) : NULL;
}

static int logits_command(int argc, char **argv)
{
    cmd_common common;
    cmd_operands operands;
    logits_options chosen = {.run.program = PROGRAM_DEFAULTS};
    int code = cmd_parse(&cmd_logits, argc, argv, &common, &chosen, &operands);
    if (code < 0)
        code = model_run_check(&cmd_logits, &operands, &chosen.run);
    if (code < 0) {
        model_run run = {
            .desc = {.kind = TTT_PROGRAM_LOGITS, .diagnostics = chosen.diagnostics != NULL}};
        json_t *json = NULL;
        pjrt_status *st = model_run_go(&run, &common, &chosen.run);
        if (st == NULL)
            st = report(&common, &chosen, &run, &json);
        if (st != NULL)
            code = cmd_fail(&common, st);
        else
            code = json == NULL ? CMD_OK : cmd_print_json(json_incref(json));
        json_decref(json);
        model_run_free(&run);
    }
    model_run_options_free(&chosen.run);
    return code;
}
