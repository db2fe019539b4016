/* ttt convert and ttt init: folders with config.json and model.safetensors, from other files or
 * from a seed. */
#include "model/ttt_model_files.h"
#include "tools/model_options.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- what both share ---------------------------------------------------------------------------
 */

static bool set_type(const char *text, void *field)
{
    hlo_type *type = field;
    *type = strcmp(text, "f32") == 0 ? HLO_F32 : strcmp(text, "bf16") == 0 ? HLO_BF16 : *type;
    return strcmp(text, hlo_type_name(*type)) == 0;
}

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

static const cmd_option convert_list[] = {
    {"from", "", CMD_TEXT, offsetof(convert_options, from), 0, NULL},
    {"to", "", CMD_TEXT, offsetof(convert_options, to), 0, NULL},
    {"dtype", "f32 or bf16", CMD_CUSTOM, offsetof(convert_options, type), 0, set_type},
    MODEL_OPTION_SETS(convert_options, sets),
};
static const char convert_help[] =
    "usage: ttt convert --from jax|hf --to hf IN OUT [options]\n"
    "\n"
    "Writes the folder OUT with config.json and model.safetensors, under Hugging Face's names.\n"
    "  --from jax   IN is a streaming_train_state or streaming_params file of the JAX repository;\n"
    "               the network is told from its shapes, and --set adds what they do not tell\n"
    "               (rope_theta, ttt_base_lr; n_heads of attention)\n"
    "  --from hf    IN is a folder with config.json and model.safetensors, in shards or not\n"
    "  --dtype T    f32 (default) or bf16\n"
    "  --set FIELD=VALUE\n";
static const cmd_spec convert_spec = {"convert", convert_help, convert_list,
                                      sizeof convert_list / sizeof *convert_list};

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

int cmd_convert(int argc, char **argv)
{
    cmd_common common;
    cmd_operands operands;
    convert_options chosen = {.type = HLO_F32};
    ttt_tensors *tensors = NULL;
    ttt_params *params = NULL;
    ttt_config config;
    ttt_error error;
    int code = cmd_parse(&convert_spec, argc, argv, &common, &chosen, &operands);
    if (code >= 0)
        return code;
    if (operands.count != 2)
        return cmd_wrong_use(&convert_spec, "what from, what to?");
    if (chosen.from == NULL || (strcmp(chosen.from, "jax") != 0 && strcmp(chosen.from, "hf") != 0))
        return cmd_wrong_use(&convert_spec, "--from must be jax or hf");
    if (chosen.to == NULL || strcmp(chosen.to, "hf") != 0)
        return cmd_wrong_use(&convert_spec, "--to must be hf");
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

static const cmd_option init_list[] = {
    MODEL_OPTIONS(init_options, model),
    {"dtype", "f32 or bf16", CMD_CUSTOM, offsetof(init_options, type), 0, set_type},
    {"seed", "a whole number from 0", CMD_CUSTOM, offsetof(init_options, seed), 0, cmd_set_seed},
};
static const char init_help[] =
    "usage: ttt init --preset P [--mixer M] [--backbone B] [--set FIELD=VALUE …] OUT\n"
    "\n"
    "Writes the folder OUT with config.json and model.safetensors: a network before training.\n"
    "\n" MODEL_OPTIONS_HELP
    "  --seed N           0 by default; the same seed gives the same bits everywhere\n"
    "  --dtype T          f32 (default) or bf16\n";
static const cmd_spec init_spec = {"init", init_help, init_list,
                                   sizeof init_list / sizeof *init_list};

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

int cmd_init(int argc, char **argv)
{
    cmd_common common;
    cmd_operands operands;
    init_options chosen = {.type = HLO_F32};
    ttt_params *params = NULL;
    ttt_config config;
    ttt_error error;
    int code = cmd_parse(&init_spec, argc, argv, &common, &chosen, &operands);
    if (code >= 0)
        return code;
    if (operands.count != 1)
        return cmd_wrong_use(&init_spec, "which folder?");
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
