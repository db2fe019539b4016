/* From options to results: tokens, the model on its devices, the program, one run. */
#include "tools/commands/model_run.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- lists of numbers --------------------------------------------------------------------------
 */

static const char *skip_separators(const char *at)
{
    while (*at == ',' || isspace((unsigned char)*at))
        at++;
    return at;
}

bool int_list_parse(const char *text, void *field)
{
    int_list *out = field;
    size_t most = 1; /* numbers, at most: each has a digit and something behind it */
    for (const char *at = text; *at != '\0'; at++)
        most += *at == ',' || isspace((unsigned char)*at);
    free(out->list);
    *out = (int_list){.list = malloc(most * sizeof *out->list)};
    for (const char *at = skip_separators(text); out->list != NULL && *at != '\0';) {
        char *end;
        errno = 0;
        long value = strtol(at, &end, 10);
        bool separated = *end == '\0' || *end == ',' || isspace((unsigned char)*end);
        if (errno != 0 || end == at || !separated || value < INT32_MIN || value > INT32_MAX)
            return false;
        out->list[out->count++] = (int32_t)value;
        at = skip_separators(end);
    }
    return out->count > 0;
}

static pjrt_status *read_tokens(const char *path, int_list *tokens)
{
    char *bytes;
    size_t size;
    PJRT_TRY(cmd_read_file(path, &bytes, &size));
    bool ok = strlen(bytes) == size && int_list_parse(bytes, tokens);
    free(bytes);
    if (!ok)
        return PJRT_FAIL(INVALID_ARGUMENT, "ttt",
                         "%s is no list of token numbers with commas or blanks between them", path);
    return NULL;
}

/* ---- what can be said before weights are loaded ------------------------------------------------
 */

static pjrt_status *check_tokens(const int_list *tokens, int64_t least, int64_t vocabulary)
{
    for (int64_t i = 0; i < tokens->count; i++) {
        if (tokens->list[i] < 0 || tokens->list[i] >= vocabulary)
            return PJRT_FAIL(
                INVALID_ARGUMENT, "ttt",
                "token %d at position %lld is not in the vocabulary of %lld: 0 to %lld",
                tokens->list[i], (long long)i, (long long)vocabulary, (long long)vocabulary - 1);
    }
    if (tokens->count < least)
        return PJRT_FAIL(INVALID_ARGUMENT, "ttt",
                         "two tokens or more, please: the loss is that of saying the next");
    return NULL;
}

static pjrt_status *check_resets(const int_list *resets, int64_t tokens)
{
    for (int64_t i = 0; i < resets->count; i++) {
        if (resets->list[i] < 0 || resets->list[i] >= tokens)
            return PJRT_FAIL(INVALID_ARGUMENT, "ttt",
                             "--resets: %d is no position of the %lld tokens: 0 to %lld",
                             resets->list[i], (long long)tokens, (long long)tokens - 1);
    }
    return NULL;
}

/* The folder that a file will be in takes files. */
static pjrt_status *check_out(const char *path)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    int length = slash == NULL ? 0 : slash == path ? 1 : (int)(slash - path);
    snprintf(folder, sizeof folder, "%.*s", length == 0 ? 1 : length, length == 0 ? "." : path);
    if (access(folder, W_OK | X_OK) != 0)
        return PJRT_FAIL(UNAVAILABLE, "ttt", "%s: %s", path, strerror(errno));
    return NULL;
}

/* ---- one run -----------------------------------------------------------------------------------
 */

int model_run_check(const cmd_spec *spec, const cmd_operands *operands,
                    const model_run_options *options)
{
    if (operands->count > 0)
        return cmd_wrong_use(spec, "what is \"%s\"?", operands->items[0]);
    if (options->model == NULL)
        return cmd_wrong_use(spec, "--model is missing");
    if ((options->tokens.count == 0) == (options->tokens_file == NULL))
        return cmd_wrong_use(spec, options->tokens.count == 0
                                       ? "--tokens or --tokens-file is missing"
                                       : "--tokens or --tokens-file, not both");
    if (options->out == NULL)
        return cmd_wrong_use(spec, "--out is missing");
    ttt_mesh mesh;
    pjrt_status *st = ttt_mesh_parse(options->program.mesh, &mesh);
    int code = st == NULL ? -1 : cmd_wrong_use(spec, "--mesh: %s", pjrt_status_message(st));
    pjrt_status_free(st);
    return code;
}

static pjrt_status *add_input(model_run *run, hlo_type type, const void *data)
{
    hlo_spec spec;
    PJRT_TRY(ttt_program_batch_spec(&run->desc, &run->devices->mesh, &spec));
    return ttt_array_upload(run->devices, HLO_SHAPE(type, run->desc.batch, run->desc.time), spec,
                            data, &run->inputs[run->n_inputs++]);
}

static pjrt_status *add_resets(model_run *run, int64_t tokens)
{
    const int_list *resets = &run->options->resets;
    unsigned char *mask = calloc((size_t)tokens, 1);
    if (mask == NULL)
        return PJRT_NO_MEMORY("ttt");
    for (int64_t i = 0; i < resets->count; i++)
        mask[resets->list[i]] = 1;
    pjrt_status *st = add_input(run, HLO_PRED, mask);
    free(mask);
    return st;
}

/* In the order of ttt_program_desc. With labels, every token but the last is to say the next. */
static pjrt_status *add_inputs(model_run *run, const int_list *tokens)
{
    bool labels = run->desc.kind != TTT_PROGRAM_LOGITS;
    run->desc.batch = 1;
    run->desc.time = tokens->count - labels;
    PJRT_TRY(add_input(run, HLO_S32, tokens->list));
    if (labels)
        PJRT_TRY(add_input(run, HLO_S32, tokens->list + 1));
    run->desc.resets = run->options->resets.count > 0;
    return run->desc.resets ? add_resets(run, tokens->count) : NULL;
}

static pjrt_status *load(model_run *run, const cmd_common *common)
{
    const program_options *o = &run->options->program;
    ttt_mesh mesh;
    double start = cmd_seconds();
    PJRT_TRY(ttt_mesh_parse(o->mesh, &mesh));
    PJRT_TRY(ttt_devices_open(common->plugin, &mesh, &run->devices));
    PJRT_TRY(ttt_model_load(run->devices, run->options->model, o->layout, ttt_wide_type(o->dtype),
                            &run->model));
    run->load_seconds = cmd_seconds() - start;
    return NULL;
}

static pjrt_status *run_once(model_run *run)
{
    double start = cmd_seconds();
    PJRT_TRY(ttt_compile_program(&run->desc, run->model, &run->program));
    run->compile_seconds = cmd_seconds() - start;
    run->results = calloc((size_t)run->program->n_results, sizeof(ttt_array *));
    if (run->results == NULL)
        return PJRT_NO_MEMORY("ttt");
    start = cmd_seconds();
    PJRT_TRY(ttt_model_run(run->model, run->program, run->inputs, run->n_inputs, run->results));
    for (int i = 0; i < run->program->n_results; i++)
        PJRT_TRY(ttt_array_wait(run->results[i]));
    run->run_seconds = cmd_seconds() - start;
    return NULL;
}

static pjrt_status *check_and_run(model_run *run, const cmd_common *common, int_list *tokens)
{
    ttt_config config;
    model_options folder = {.model = run->options->model};
    PJRT_TRY(model_options_config(&folder, &config));
    PJRT_TRY(check_tokens(tokens, run->desc.kind == TTT_PROGRAM_LOGITS ? 1 : 2, config.vocab_size));
    PJRT_TRY(check_resets(&run->options->resets, tokens->count));
    PJRT_TRY(check_out(run->options->out));
    PJRT_TRY(load(run, common));
    PJRT_TRY(add_inputs(run, tokens));
    return run_once(run);
}

pjrt_status *model_run_go(model_run *run, const cmd_common *common,
                          const model_run_options *options)
{
    int_list from_file = {0};
    pjrt_status *st = NULL;
    run->options = options;
    program_task(&options->program, &run->desc);
    if (options->tokens_file != NULL)
        st = read_tokens(options->tokens_file, &from_file);
    int_list tokens = options->tokens_file != NULL ? from_file : options->tokens;
    if (st == NULL)
        st = check_and_run(run, common, &tokens);
    free(from_file.list);
    return st;
}

void model_run_free(model_run *run)
{
    for (int i = 0; run->results != NULL && i < run->program->n_results; i++)
        ttt_array_free(run->results[i]);
    free(run->results);
    for (int i = 0; i < run->n_inputs; i++)
        ttt_array_free(run->inputs[i]);
    ttt_program_free(run->program);
    ttt_model_free(run->model);
    ttt_devices_free(run->devices);
}

void model_run_options_free(model_run_options *options)
{
    free(options->tokens.list);
    free(options->resets.list);
}

pjrt_status *model_run_result(const model_run *run, int index, void **data)
{
    const ttt_array *array = run->results[index];
    *data = malloc(ttt_array_bytes(array) + 1);
    if (*data == NULL)
        return PJRT_NO_MEMORY("ttt");
    pjrt_status *st = ttt_array_download(array, *data, ttt_array_bytes(array));
    if (st != NULL) {
        free(*data);
        *data = NULL;
    }
    return st;
}

json_t *model_run_json(const model_run *run)
{
    return json_pack(
        "{s:s, s:I, s:s, s:s, s:s, s:i, s:f, s:f, s:f}", "out", run->options->out, "tokens",
        (json_int_t)(run->desc.time + (run->desc.kind != TTT_PROGRAM_LOGITS)), "form",
        program_form(&run->options->program), "dtype", hlo_type_name(run->options->program.dtype),
        "layers", program_layers(&run->options->program), "devices", run->devices->n_devices,
        "load_seconds", run->load_seconds, "compile_seconds", run->compile_seconds, "seconds",
        run->run_seconds);
}
