/* From options to a configuration. */
#include "tools/model_options.h"

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

static const char *const forms[] = {
    [TTT_FORM_DUAL] = "dual", [TTT_FORM_PRIMAL] = "primal", [TTT_FORM_MATRIX] = "matrix"};
static const char *const layouts[] = {[TTT_SEPARATE] = "separate", [TTT_STACKED] = "stacked"};
static const char *const remats[] = {
    [TTT_REMAT_SOME] = "some", [TTT_REMAT_NONE] = "none", [TTT_REMAT_ALL] = "all"};

/* The number of a word in a list; -1 when it is not there. */
static int find_word(const char *const *words, size_t count, const char *text)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(words[i], text) == 0)
            return (int)i;
    }
    return -1;
}
#define FIND_WORD(words, text) find_word(words, sizeof(words) / sizeof *(words), text)

bool program_set_form(const char *text, void *field)
{
    int form = FIND_WORD(forms, text);
    *(ttt_form *)field = (ttt_form)(form < 0 ? 0 : form);
    return form >= 0;
}

bool program_set_dtype(const char *text, void *field)
{
    static const hlo_type types[] = {HLO_F32, HLO_BF16, HLO_F64};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (strcmp(text, hlo_type_name(types[i])) == 0) {
            *(hlo_type *)field = types[i];
            return true;
        }
    }
    return false;
}

bool program_set_layers(const char *text, void *field)
{
    int layout = FIND_WORD(layouts, text);
    *(ttt_layout *)field = (ttt_layout)(layout < 0 ? 0 : layout);
    return layout >= 0;
}

bool program_set_remat(const char *text, void *field)
{
    int remat = FIND_WORD(remats, text);
    *(ttt_remat *)field = (ttt_remat)(remat < 0 ? 0 : remat);
    return remat >= 0;
}

const char *program_form(const program_options *options)
{
    return forms[options->form];
}

const char *program_layers(const program_options *options)
{
    return layouts[options->layout];
}

const char *program_remat(const program_options *options)
{
    return remats[options->remat];
}

void program_task(const program_options *options, ttt_task *task)
{
    task->form = options->form;
    task->compute = options->dtype;
    task->remat = options->remat;
}
