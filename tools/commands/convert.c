/* ttt convert and ttt init: folders with config.json and model.safetensors, from other files or
 * from a seed. */
#include "model/files/ttt_model_files.h"
#include "tools/cli/model_options.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- what both share ---------------------------------------------------------------------------
 */

static pjrt_status *path_in(const char *folder, const char *name, char path[PATH_MAX])
{
    if (snprintf(path, PATH_MAX, "%s/%s", folder, name) >= PATH_MAX)
        return PJRT_FAIL(INVALID_ARGUMENT, "ttt", "the name of the folder is too long");
    return NULL;
}

/* Makes the folder if it is not there. The configuration comes last: with it the model is whole. */
static pjrt_status *save(const char *folder, const ttt_config *config, const ttt_params *params,
                         hlo_type type, ttt_param_source get, void *ctx)
{
    char weights[PATH_MAX], description[PATH_MAX];
    ttt_error error;
    PJRT_TRY(path_in(folder, "model.safetensors", weights));
    PJRT_TRY(path_in(folder, "config.json", description));
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return PJRT_FAIL(UNAVAILABLE, "ttt", "%s: %s", folder, strerror(errno));
    if (!ttt_params_save(params, weights, type, get, ctx, &error) ||
        !ttt_config_write(config, description, &error))
        return ttt_failed(&error);
    return NULL;
}

static int report(const cmd_common *common, const char *folder, const ttt_params *params)
{
    if (common->json)
        return cmd_print_json(json_pack("{s:s, s:i, s:I}", "folder", folder, "tensors",
                                        params->count, "parameters", (json_int_t)params->elements));
    printf("%s: %d tensors, %lld parameters\n", folder, params->count, (long long)params->elements);
    return CMD_OK;
}

/* ---- convert -----------------------------------------------------------------------------------
 */

typedef struct convert_options {
    const char *from, *to;
    hlo_type type;
    model_sets sets;
} convert_options;

static const cmd_option convert_operands[] = {
    {"IN", NULL, CMD_FILE, 0, "the file or folder to read"},
    {"OUT", NULL, CMD_FOLDER, 0, "the folder to write"},
};
static const cmd_option convert_list[] = {
    {"from", "F", CMD_TEXT, offsetof(convert_options, from), "what IN is, see below",
     .choices = CMD_WORDS("jax", "hf")},
    {"to", "F", CMD_TEXT, offsetof(convert_options, to), "what OUT is to be",
     .choices = CMD_WORDS("hf")},
    {"dtype", "T", CMD_CUSTOM, offsetof(convert_options, type), "of the tensors written",
     .usual = "f32", .choices = CMD_WORDS("f32", "bf16"), .set = model_set_type},
    MODEL_OPTION_SETS(convert_options, sets,
                      "what shapes do not tell (rope_theta, ttt_base_lr; n_heads of attention)"),
};
static int convert_command(int argc, char **argv);
const cmd_spec cmd_convert = {
    .name = "convert",
    .summary = "a folder of files from other checkpoints",
    .usage = "--from jax|hf --to hf IN OUT [options]",
    .about =
        "Writes the folder OUT with config.json and model.safetensors, under Hugging Face's names.",
    CMD_OPERANDS(convert_operands),
    CMD_OPTIONS(convert_list),
    .notes =
        "--from jax\tIN is a streaming_train_state or streaming_params file of the JAX repository; "
        "the network is told from its shapes, and --set adds what they do not tell\n"
        "--from hf\tIN is a folder with config.json and model.safetensors, in shards or not",
    .example = "ttt convert --from jax --to hf streaming_train_state model --set rope_theta=10000",
    .run = convert_command,
};

typedef struct loading {
    const ttt_params *params;
    const ttt_tensors *tensors;
} loading;

static bool load_one(void *ctx, int index, float *out, ttt_error *error)
{
    const loading *l = ctx;
    return ttt_params_load(l->params, index, l->tensors, out, error);
}

/* The number of heads of attention is in no shape: what the user says comes first, then the rest of
 * what is told, then the user again. */
static pjrt_status *jax_config(const convert_options *chosen, const ttt_tensors *tensors,
                               ttt_config *config)
{
    ttt_error error;
    config->n_heads = 1;
    for (int i = 0; i < chosen->sets.count; i++) {
        if (strncmp(chosen->sets.list[i], "n_heads=", 8) == 0 &&
            !ttt_config_set(config, "n_heads", chosen->sets.list[i] + 8, &error))
            return ttt_failed(&error);
    }
    return ttt_jax_config(tensors, config, &error) ? NULL : ttt_failed(&error);
}

static pjrt_status *open_input(const convert_options *chosen, const char *in, ttt_config *config,
                               ttt_tensors **tensors)
{
    ttt_error error;
    if (strcmp(chosen->from, "jax") == 0) {
        *tensors = ttt_jax_open(in, &error);
        if (*tensors == NULL)
            return ttt_failed(&error);
        PJRT_TRY(jax_config(chosen, *tensors, config));
    } else {
        char path[PATH_MAX];
        PJRT_TRY(path_in(in, "config.json", path));
        if (!ttt_config_read(config, path, &error) ||
            (*tensors = ttt_tensors_open(in, &error)) == NULL)
            return ttt_failed(&error);
    }
    return model_sets_apply(&chosen->sets, config);
}

static pjrt_status *convert(const convert_options *chosen, const char *out,
                            const ttt_config *config, const ttt_tensors *tensors,
                            const ttt_params *params)
{
    ttt_error error;
    if (!ttt_params_match(params, tensors, &error))
        return ttt_failed(&error);
    return save(out, config, params, chosen->type, load_one, &(loading){params, tensors});
}

static int convert_command(int argc, char **argv)
{
    cmd_common common;
    cmd_operands operands;
    convert_options chosen = {.type = HLO_F32};
    ttt_tensors *tensors = NULL;
    ttt_params *params = NULL;
    ttt_config config;
    ttt_error error;
    int code = cmd_parse(&cmd_convert, argc, argv, &common, &chosen, &operands);
    if (code >= 0)
        return code;
    if (operands.count != 2)
        return cmd_wrong_use(&cmd_convert, "what from, what to?");
    if (chosen.from == NULL || (strcmp(chosen.from, "jax") != 0 && strcmp(chosen.from, "hf") != 0))
        return cmd_wrong_use(&cmd_convert, "--from must be jax or hf");
    if (chosen.to == NULL || strcmp(chosen.to, "hf") != 0)
        return cmd_wrong_use(&cmd_convert, "--to must be hf");
    pjrt_status *st = open_input(&chosen, operands.items[0], &config, &tensors);
    if (st == NULL && (params = ttt_params_new(&config, TTT_SEPARATE, &error)) == NULL)
        st = ttt_failed(&error);
    if (st == NULL)
        st = convert(&chosen, operands.items[1], &config, tensors, params);
    code = st == NULL ? report(&common, operands.items[1], params) : cmd_fail(&common, st);
    ttt_params_free(params);
    ttt_tensors_free(tensors);
    return code;
}

/* ---- init --------------------------------------------------------------------------------------
 */

typedef struct init_options {
    model_options model;
    hlo_type type;
    uint64_t seed;
} init_options;

static const cmd_option init_operands[] = {
    {"OUT", NULL, CMD_FOLDER, 0, "the folder to write"},
};
static const cmd_option init_list[] = {
    MODEL_OPTIONS(init_options, model),
    CMD_GROUP("the weights"),
    {"seed", "N", CMD_CUSTOM, offsetof(init_options, seed),
     "the same seed gives the same bits everywhere", .usual = "0", .set = cmd_set_seed,
     .what = "a whole number from 0"},
    {"dtype", "T", CMD_CUSTOM, offsetof(init_options, type), "of the tensors written",
     .usual = "f32", .choices = CMD_WORDS("f32", "bf16"), .set = model_set_type},
};
static int init_command(int argc, char **argv);
const cmd_spec cmd_init = {
    .name = "init",
    .summary = "a network before training, as a folder of files",
    .usage = "--preset P [--mixer M] [--backbone B] [--set FIELD=VALUE …] OUT",
    .about =
        "Writes the folder OUT with config.json and model.safetensors: a network before training.",
    CMD_OPERANDS(init_operands),
    CMD_OPTIONS(init_list),
    .example = "ttt init --preset tiny --mixer ttt_mlp --seed 5 model",
    .run = init_command,
};

typedef struct starting {
    const ttt_params *params;
    uint64_t seed;
} starting;

static bool start_one(void *ctx, int index, float *out, ttt_error *error)
{
    const starting *s = ctx;
    (void)error;
    ttt_init_block(&s->params->list[index], s->seed, NULL, NULL, out);
    return true;
}

static int init_command(int argc, char **argv)
{
    cmd_common common;
    cmd_operands operands;
    init_options chosen = {.type = HLO_F32};
    ttt_params *params = NULL;
    ttt_config config;
    ttt_error error;
    int code = cmd_parse(&cmd_init, argc, argv, &common, &chosen, &operands);
    if (code >= 0)
        return code;
    if (operands.count != 1)
        return cmd_wrong_use(&cmd_init, "which folder?");
    pjrt_status *st = model_options_config(&chosen.model, &config);
    if (st == NULL && (params = ttt_params_new(&config, TTT_SEPARATE, &error)) == NULL)
        st = ttt_failed(&error);
    if (st == NULL)
        st = save(operands.items[0], &config, params, chosen.type, start_one,
                  &(starting){params, chosen.seed});
    code = st == NULL ? report(&common, operands.items[0], params) : cmd_fail(&common, st);
    ttt_params_free(params);
    return code;
}
