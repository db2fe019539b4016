/* ttt grads: how the loss on some tokens depends on each parameter. */
#include "tools/cli/values.h"
#include "tools/commands/model_run.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct grads_options {
    model_run_options run;
} grads_options;

static const cmd_option options[] = {
    MODEL_RUN_OPTIONS(grads_options, run, "the .safetensors file to write"),
    PROGRAM_OPTION_REMAT(grads_options, run.program),
};
static int grads_command(int argc, char **argv);
const cmd_spec cmd_grads = {
    .name = "grads",
    .summary = "how a model's loss on tokens depends on each parameter",
    .usage = "--model DIR --tokens 1,4,7 --out grads.safetensors [options]",
    .about = "Writes the gradients of the mean cross-entropy of saying each next token, with "
             "respect to all parameters: F32, under the names and in the layouts of "
             "model.safetensors. Prints the loss and the norm of all gradients together.",
    CMD_OPTIONS(options),
    .example = "ttt init --preset tiny model\n"
               "ttt grads --model model --tokens 1,4,7,10,2 --out grads.safetensors",
    .json = "loss, gradient_norm and times as JSON",
    .plugin = CMD_PLUGIN,
    .run = grads_command,
};

static pjrt_status *save(const model_run *run, double *loss, double *norm)
{
    void *data;
    PJRT_TRY(model_run_result(run, 0, &data));
    *loss = value_get(ttt_pjrt_type(run->results[0]->shape.type), data, 0);
    free(data);
    return ttt_arrays_save(run->model->params, run->results + 1, run->options->out, HLO_F32, norm);
}

static int report(const cmd_common *common, const model_run *run, double loss, double norm)
{
    if (common->json) {
        json_t *json = model_run_json(run);
        json_object_set_new(json, "remat", json_string(program_remat(&run->options->program)));
        json_object_set_new(json, "loss", cmd_json_number(loss));
        json_object_set_new(json, "gradient_norm", cmd_json_number(norm));
        return cmd_print_json(json);
    }
    printf("loss %.9g, norm of the gradients %.9g\n", loss, norm);
    printf(
        "%s: gradients of %lld parameters, loaded in %.2f s, compiled in %.2f s, ran in %.4f s\n",
        run->options->out, (long long)run->model->params->elements, run->load_seconds,
        run->compile_seconds, run->run_seconds);
    return CMD_OK;
}

static int grads_command(int argc, char **argv)
{
    cmd_common common;
    cmd_operands operands;
    grads_options chosen = {.run.program = PROGRAM_DEFAULTS};
    int code = cmd_parse(&cmd_grads, argc, argv, &common, &chosen, &operands);
    if (code < 0)
        code = model_run_check(&cmd_grads, &operands, &chosen.run);
    if (code < 0) {
        model_run run = {.desc.kind = TTT_PROGRAM_GRADS};
        double loss, norm;
        pjrt_status *st = model_run_go(&run, &common, &chosen.run);
        if (st == NULL)
            st = save(&run, &loss, &norm);
        code = st == NULL ? report(&common, &run, loss, norm) : cmd_fail(&common, st);
        model_run_free(&run);
    }
    model_run_options_free(&chosen.run);
    return code;
}
