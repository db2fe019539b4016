/* Reads the folder of a run: its settings, and its newest checkpoint as a model. */
#include "runtime/base/files.h"
#include "runtime/checkpoint/checkpoints.h"
#include "runtime/train/ttt_trainer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char where[] = "train";

enum { MAX_TEXT = 1 << 20 }; /* bytes of recipe.json */

pjrt_status *ttt_run_read(const char *run, ttt_config *config, ttt_recipe *recipe)
{
    char path[PATH_MAX], *text;
    size_t size;
    ttt_error error;
    PJRT_TRY(ttt__path_join(run, "recipe.json", path));
    PJRT_TRY(ttt__file_read(path, MAX_TEXT, &text, &size));
    bool ok = ttt_recipe_preset(recipe, "tiny", ttt_mixer_name(TTT_MIXER_LINEAR), &error) &&
              ttt_recipe_parse(recipe, text, size, &error);
    free(text);
    if (!ok)
        return ttt_failed(&error);
    PJRT_TRY(ttt__path_join(run, "config.json", path));
    return ttt_config_read(config, path, &error) ? NULL : ttt_failed(&error);
}

pjrt_status *ttt_model_folder(const char *path, char **folder)
{
    char checkpoints[PATH_MAX], name[64];
    int64_t *steps;
    int count;
    *folder = NULL;
    PJRT_TRY(ttt__path_join(path, "checkpoints", checkpoints));
    if (access(checkpoints, F_OK) != 0) {
        *folder = strdup(path);
        return *folder == NULL ? PJRT_NO_MEMORY(where) : NULL;
    }
    PJRT_TRY(ttt__checkpoint_list(checkpoints, &steps, &count));
    if (count == 0) {
        free(steps);
        return PJRT_FAIL(NOT_FOUND, where, "%s has no checkpoint yet", path);
    }
    snprintf(name, sizeof name, "step-%08lld", (long long)steps[count - 1]);
    free(steps);
    char whole[PATH_MAX];
    PJRT_TRY(ttt__path_join(checkpoints, name, whole));
    *folder = strdup(whole);
    return *folder == NULL ? PJRT_NO_MEMORY(where) : NULL;
}
