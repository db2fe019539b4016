/* manifest.json of a bundle. What is accepted names only files that the bundle has, by plain names,
 * and comes back the same when it is written and read once more. */
#include "runtime/bundle/bundle.h"

#include <stdlib.h>
#include <string.h>

static void check_file(const ttt_bundle *bundle, const char *name)
{
    if (name == NULL || strchr(name, '/') != NULL || name[0] == '.' || name[0] == '\0' ||
        ttt__manifest_find(&bundle->files, name) < 0)
        abort();
}

/* Every text is there to be read. */
static size_t check_values(ttt_bundle_values values)
{
    size_t sum = 0;
    for (int i = 0; i < values.count; i++)
        sum += strlen(values.list[i]);
    return sum;
}

static size_t look(const ttt_bundle *bundle)
{
    const ttt_bundle_about *about = ttt_bundle_info(bundle);
    size_t sum = strlen(about->ttt) + strlen(about->stablehlo) + strlen(about->mixer) +
                 strlen(about->model) + (size_t)about->has_weights;
    if (about->batch < 1 || about->context < 1 || about->span < 1 || about->vocab < 1)
        abort();
    if (strcmp(about->tokenizer, "bytes") != 0)
        check_file(bundle, about->tokenizer);
    for (int i = 0; i < about->n_files; i++)
        check_file(bundle, about->files[i].name);
    for (int i = 0; i < about->n_parameters; i++)
        sum += strlen(about->parameter_list[i].name) + strlen(about->parameter_list[i].shape);
    for (int i = 0; i < about->n_states; i++)
        sum += strlen(about->state_list[i].name) + strlen(about->state_list[i].shape);
    for (int i = 0; i < about->n_programs; i++) {
        check_file(bundle, about->programs[i].file);
        sum += strlen(about->programs[i].name) + check_values(about->programs[i].takes) +
               check_values(about->programs[i].gives);
    }
    for (int i = 0; i < about->n_targets; i++) {
        sum += strlen(about->targets[i].plugin_hash) + (size_t)about->targets[i].calls;
        for (int k = 0; k < about->n_programs; k++)
            check_file(bundle, about->targets[i].files[k]);
    }
    return sum;
}

static void try_manifest(const char *text, size_t size)
{
    ttt_bundle *bundle, *back;
    char *again = NULL;
    pjrt_status *st = ttt__bundle_parse(text, size, &bundle);
    if (st != NULL) {
        if (bundle != NULL || pjrt_status_message(st)[0] == '\0')
            abort();
        pjrt_status_free(st);
        return;
    }
    size_t sum = look(bundle);
    if (ttt__bundle_text(&bundle->about, &bundle->files, &again) != NULL ||
        ttt__bundle_parse(again, strlen(again), &back) != NULL || look(back) != sum)
        abort();
    free(again);
    ttt_bundle_free(back);
    ttt_bundle_free(bundle);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    try_manifest((const char *)data, size);
    /* The same with the hash that it should have, which no input would come to have. */
    char *text = ttt__manifest_seal((const char *)data, size);
    if (text == NULL)
        return 0;
    try_manifest(text, strlen(text));
    free(text);
    return 0;
}
