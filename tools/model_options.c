/* From options to a configuration. */
#include "tools/model_options.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

pjrt_status *model_failed(const ttt_error *error)
{
    return PJRT_FAIL(INVALID_ARGUMENT, "ttt", "%s", error->message);
}

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
            return model_failed(&error);
    }
    return ttt_config_check(config, &error) ? NULL : model_failed(&error);
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
            return model_failed(&error);
    } else if (options->preset == NULL) {
        return PJRT_FAIL(INVALID_ARGUMENT, "ttt", "--preset or --model is missing");
    } else if (!ttt_config_preset(
                   config, options->preset, options->mixer == NULL ? "ttt_linear" : options->mixer,
                   options->backbone == NULL ? "mamba" : options->backbone, &error)) {
        return model_failed(&error);
    }
    return model_sets_apply(&options->sets, config);
}
