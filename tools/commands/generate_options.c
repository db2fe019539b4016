/* From options to a model that reads and makes text. */
#include "tools/commands/generate_options.h"

#include "runtime/train/ttt_trainer.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool text_list_add(const char *text, void *field)
{
    text_list *texts = field;
    if (texts->count == GENERATE_MOST_TEXTS)
        return false;
    texts->list[texts->count++] = text;
    return true;
}

bool sampling_set_real(const char *text, void *field)
{
    char *end;
    double value = strtod(text, &end);
    *(double *)field = value;
    return end != text && *end == '\0' && isfinite(value);
}

bool sampling_set_count(const char *text, void *field)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    *(int64_t *)field = value;
    return errno == 0 && end != text && *end == '\0' && value >= 0;
}

pjrt_status *generator_tokenizer(generator *g, const engine_choice *choice)
{
    char path[PATH_MAX];
    ttt_error error;
    PJRT_TRY(ttt_model_folder(choice->model, &g->folder));
    if (snprintf(path, sizeof path, "%s/config.json", g->folder) >= (int)sizeof path)
        return PJRT_FAIL(INVALID_ARGUMENT, "ttt", "the name of the folder is too long");
    if (!ttt_config_read(&g->config, path, &error))
        return ttt_failed(&error);
    PJRT_TRY(
        ttt_model_tokenizer(choice->model, choice->tokenizer, g->config.vocab_size, &g->tokenizer));
    return ttt_encoder_new(g->tokenizer, &g->encoder);
}

/* Programs of attention are for one context: a few lengths serve all. */
static int64_t usual_context(int64_t needed)
{
    int64_t context = 2048;
    while (context < needed)
        context *= 2;
    return context;
}

pjrt_status *generator_open(generator *g, const cmd_common *common, const engine_choice *choice,
                            int64_t batch, int64_t context)
{
    char path[PATH_MAX];
    if (g->folder == NULL)
        PJRT_TRY(ttt_model_folder(choice->model, &g->folder));
    PJRT_TRY(ttt_devices_open(common->plugin, NULL, &g->devices));
    const char *cache = cmd_program_cache(choice->cache, path);
    if (cache != NULL)
        PJRT_TRY(ttt_devices_cache(g->devices, cache));
    if (choice->context > context)
        context = choice->context;
    ttt_engine_options options = {.batch = batch,
                                  .context = usual_context(context),
                                  .span = choice->span,
                                  .compute = choice->dtype,
                                  .weights = choice->weights,
                                  .no_kernels = choice->no_kernels};
    return ttt_engine_open(g->devices, g->folder, &options, &g->engine);
}

void generator_free(generator *g)
{
    ttt_engine_free(g->engine);
    ttt_encoder_free(g->encoder);
    ttt_tokenizer_free(g->tokenizer);
    ttt_devices_free(g->devices);
    ttt_bundle_free(g->bundle);
    free(g->folder);
    *g = (generator){0};
}

pjrt_status *generator_encode(generator *g, const char *text, size_t size, bool start, ttt_ids *ids)
{
    bool bos = start && ttt_tokenizer_info(g->tokenizer)->bos >= 0;
    size_t valid = ttt_utf8_valid(text, size);
    if (valid < size)
        return PJRT_FAIL(INVALID_ARGUMENT, "ttt", "the text is not UTF-8 at byte %zu", valid);
    return ttt_encode(g->encoder, text, size, bos ? TTT_ADD_BOS : 0, ids);
}
