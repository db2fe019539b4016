/* From options to a configuration. */
#include "tools/cli/model_options.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

bool model_sets_add(const char *text, void *field)
{
    model_sets *sets = field;
    const char *equals = strchr(text, '=');
    if (equals == NULL || equals == text || sets->count == MODEL_MAX_SETS)
        return false;
    sets->list[sets->count++] = text;
    return true;
}

const char *model_preset_name(int index)
{
    size_t count;
    const char *const *presets = ttt_config_presets(&count);
    return (size_t)index < count ? presets[index] : NULL;
}

const char *model_mixer_word(int index)
{
    return ttt_mixer_name((ttt_mixer)index);
}

pjrt_status *model_sets_apply(const model_sets *sets, ttt_config *config)
{
    ttt_error error;
    for (int i = 0; i < sets->count; i++) {
        char name[64];
        const char *equals = strchr(sets->list[i], '=');
        size_t length = (size_t)(equals - sets->list[i]);
        if (length >= sizeof name)
            length = sizeof name - 1; /* no field is that long: it will be refused */
        memcpy(name, sets->list[i], length);
        name[length] = '\0';
        if (!ttt_config_set(config, name, equals + 1, &error))
            return ttt_failed(&error);
    }
    return ttt_config_check(config, &error) ? NULL : ttt_failed(&error);
}

pjrt_status *model_options_config(const model_options *options, ttt_config *config)
{
    ttt_error error;
    if (options->model != NULL) {
        char path[PATH_MAX];
        if (options->preset != NULL || options->mixer != NULL || options->backbone != NULL)
            return PJRT_FAIL(INVALID_ARGUMENT, "ttt",
                             "--model says all: no --preset, --mixer, --backbone with it");
        if (snprintf(path, sizeof path, "%s/config.json", options->model) >= (int)sizeof path)
            return PJRT_FAIL(INVALID_ARGUMENT, "ttt", "the name of the folder is too long");
        if (!ttt_config_read(config, path, &error))
            return ttt_failed(&error);
    } else if (options->preset == NULL) {
        return PJRT_FAIL(INVALID_ARGUMENT, "ttt", "--preset or --model is missing");
    } else if (!ttt_config_preset(
                   config, options->preset, options->mixer == NULL ? "ttt_linear" : options->mixer,
                   options->backbone == NULL ? "mamba" : options->backbone, &error)) {
        return ttt_failed(&error);
    }
    return model_sets_apply(&options->sets, config);
}

/* ---- programs ----------------------------------------------------------------------------------
 */

const char *const program_forms[] = {
    [TTT_FORM_DUAL] = "dual", [TTT_FORM_PRIMAL] = "primal", [TTT_FORM_MATRIX] = "matrix", NULL};
const char *const program_layouts[] = {
    [TTT_SEPARATE] = "separate", [TTT_STACKED] = "stacked", NULL};
const char *const program_remats[] = {
    [TTT_REMAT_SOME] = "some", [TTT_REMAT_NONE] = "none", [TTT_REMAT_ALL] = "all", NULL};

bool model_set_type(const char *text, void *field)
{
    static const struct {
        const char *name;
        hlo_type type;
    } types[] = {{"f32", HLO_F32}, {"bf16", HLO_BF16}, {"f64", HLO_F64}, {"s8", HLO_S8}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (strcmp(text, types[i].name) == 0) {
            *(hlo_type *)field = types[i].type;
            return true;
        }
    }
    return false;
}

const char *program_form(const program_options *options)
{
    return program_forms[options->form];
}

const char *program_layers(const program_options *options)
{
    return program_layouts[options->layout];
}

const char *program_remat(const program_options *options)
{
    return program_remats[options->remat];
}

void program_task(const program_options *options, ttt_program_desc *desc)
{
    desc->form = options->form;
    desc->compute = options->dtype;
    desc->remat = options->remat;
}
