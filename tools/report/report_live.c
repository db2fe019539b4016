/* What only the model itself can tell: text that it makes, and how well its layers learn within a
 * sequence. */
#include "tools/report/report.h"

#include "runtime/train/ttt_trainer.h"
#include "tools/commands/generate_options.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PROMPT = 64,   /* tokens of a prompt from the validation text */
    SEARCH = 1024, /* tokens in which a line's beginning is looked for */
};

typedef struct live {
    report_run *run;
    const report_live_options *options;
    generator model;
    ttt_dataset *data;
    ttt_ids prompts[REPORT_SAMPLES];
    text_buffer texts[REPORT_SAMPLES];
    bool no_memory;
} live;

/* ---- prompts ---- */

static const char *data_folder(const live *l)
{
    if (l->options->data != NULL)
        return l->options->data;
    const json_t *last = json_object_get(l->run->environment, "last");
    const char *data = json_string_value(json_object_get(last, "data"));
    return data == NULL ? "" : data;
}

static pjrt_status *open_data(live *l)
{
    if (l->data != NULL)
        return NULL;
    PJRT_TRY(ttt_dataset_open(data_folder(l), "validation", &l->data));
    if (ttt_dataset_info(l->data)->vocab > l->model.config.vocab_size)
        return PJRT_FAIL(INVALID_ARGUMENT, "ttt", "%s is of another tokenizer", data_folder(l));
    return NULL;
}

/* The first token of these that begins a line; 0 when none does. */
static pjrt_status *line_start(const live *l, const int32_t *tokens, size_t count, size_t *start)
{
    *start = 0;
    for (size_t i = 0; i + PROMPT < count; i++) {
        char *text;
        size_t size;
        PJRT_TRY(ttt_decode(l->model.tokenizer, tokens + i, 1, 0, &text, &size));
        bool ends = size > 0 && text[size - 1] == '\n';
        free(text);
        if (ends) {
            *start = i + 1;
            return NULL;
        }
    }
    return NULL;
}

static bool put_id(ttt_ids *ids, int32_t id)
{
    if (ids->count == ids->room) {
        size_t room = ids->room == 0 ? PROMPT + 1 : 2 * ids->room;
        int32_t *larger = realloc(ids->list, room * sizeof *larger);
        if (larger == NULL)
            return false;
        ids->list = larger;
        ids->room = room;
    }
    ids->list[ids->count++] = id;
    return true;
}

/* A piece of the validation text, from the beginning of a line; its place is fixed by the number of
 * pieces alone. */
static pjrt_status *prompt_from_data(live *l, size_t index)
{
    int32_t tokens[SEARCH];
    size_t start;
    PJRT_TRY(open_data(l));
    int64_t all = ttt_dataset_info(l->data)->tokens, count = all < SEARCH ? all : SEARCH;
    int64_t from =
        (int64_t)((double)all * (2 * (double)index + 1) / (2 * (double)l->options->samples));
    if (from + count > all)
        from = all - count;
    if (count <= PROMPT)
        return PJRT_FAIL(NOT_FOUND, "ttt", "the validation text has %lld tokens, too few",
                         (long long)all);
    PJRT_TRY(ttt_dataset_read(l->data, from, count, tokens));
    PJRT_TRY(line_start(l, tokens, (size_t)count, &start));
    int32_t bos = ttt_tokenizer_info(l->model.tokenizer)->bos;
    bool ok = bos < 0 || put_id(&l->prompts[index], bos);
    for (size_t i = start; ok && i < start + PROMPT; i++)
        ok = put_id(&l->prompts[index], tokens[i]);
    return ok ? NULL : PJRT_NO_MEMORY("ttt");
}

static pjrt_status *make_prompts(live *l)
{
    const report_live_options *o = l->options;
    for (size_t i = 0; i < o->samples; i++) {
        const char *text = i < o->n_prompts ? o->prompts[i] : NULL;
        if (text == NULL)
            PJRT_TRY(prompt_from_data(l, i));
        else
            PJRT_TRY(generator_encode(&l->model, text, strlen(text), true, &l->prompts[i]));
    }
    return NULL;
}

/* ---- samples ---- */

static bool hear(void *ctx, const ttt_piece *piece)
{
    live *l = ctx;
    l->no_memory = !text_buffer_add(&l->texts[piece->sequence], piece->text, piece->size);
    return !l->no_memory;
}

/* Bytes of half characters become question marks. */
static void make_utf8(char *text, size_t size)
{
    for (size_t valid; (valid = ttt_utf8_valid(text, size)) < size;)
        text[valid] = '?';
}

static pjrt_status *keep_samples(live *l, const ttt_generated *made)
{
    for (size_t i = 0; i < l->options->samples; i++) {
        report_sample *sample = &l->run->samples[l->run->n_samples];
        size_t size;
        PJRT_TRY(ttt_decode(l->model.tokenizer, l->prompts[i].list, l->prompts[i].count,
                            TTT_SKIP_SPECIALS, &sample->prompt, &size));
        make_utf8(sample->prompt, size);
        sample->text = l->texts[i].text == NULL ? calloc(1, 1) : l->texts[i].text;
        sample->end = ttt_end_name(made[i].end);
        l->texts[i] = (text_buffer){0};
        l->run->n_samples++;
    }
    return NULL;
}

static pjrt_status *make_samples(live *l)
{
    const report_live_options *o = l->options;
    engine_choice choice = {.model = l->run->path, .cache = o->cache};
    ttt_prompt prompts[REPORT_SAMPLES];
    ttt_generated made[REPORT_SAMPLES];
    size_t longest = 0;
    PJRT_TRY(make_prompts(l));
    for (size_t i = 0; i < o->samples; i++) {
        prompts[i] = (ttt_prompt){l->prompts[i].list, (int64_t)l->prompts[i].count};
        longest = l->prompts[i].count > longest ? l->prompts[i].count : longest;
    }
    PJRT_TRY(generator_open(&l->model, o->common, &choice, (int64_t)o->samples,
                            (int64_t)longest + o->tokens));
    ttt_generate_options how = {.sampling = SAMPLING_DEFAULTS, .most = o->tokens};
    how.sampling.seed = o->seed;
    PJRT_TRY(ttt_generate(l->model.engine, l->model.tokenizer, prompts, (int)o->samples, &how, hear,
                          l, made));
    return l->no_memory ? PJRT_NO_MEMORY("ttt") : keep_samples(l, made);
}

/* ---- inner losses ---- */

static double float_at(void *list, size_t i)
{
    return ((const float *)list)[i];
}

static pjrt_status *keep_inner(report_run *run, const ttt_evaluation *e)
{
    size_t layers = (size_t)e->layers, time = (size_t)e->time;
    run->inner_curves = calloc(layers * REPORT_INNERS + 1, sizeof *run->inner_curves);
    if (run->inner_curves == NULL)
        return PJRT_NO_MEMORY("ttt");
    for (size_t i = 0; i < layers * REPORT_INNERS; i++)
        report_curve_fill(&run->inner_curves[i], time, float_at, e->inner_loss + i * time);
    run->n_inner_curves = layers;
    run->inner_sequences = (double)e->sequences;
    const char *step = strstr(run->model, "/step-");
    run->inner_curves_step = step == NULL ? NAN : strtod(step + strlen("/step-"), NULL);
    return NULL;
}

/* As the trainer evaluates, so that its compiled program is found again. */
static ttt_evaluator_options evaluator_options(const report_run *run)
{
    const json_t *recipe = run->recipe;
    json_int_t time = json_integer_value(json_object_get(recipe, "sequence_length"));
    json_int_t tokens = json_integer_value(json_object_get(recipe, "batch_tokens"));
    json_int_t parts = json_integer_value(json_object_get(run->training, "accumulation"));
    const json_t *mask = json_object_get(recipe, "masked_label");
    time = time < 1 ? 256 : time;
    json_int_t batch = tokens / time / (parts < 1 ? 1 : parts);
    return (ttt_evaluator_options){.batch = batch < 1 ? 1 : batch,
                                   .time = time,
                                   .compute = HLO_F32,
                                   .diagnostics = true,
                                   .masked_label =
                                       json_is_integer(mask) ? json_integer_value(mask) : -1};
}

static pjrt_status *run_evaluator(live *l, ttt_model *model)
{
    ttt_evaluator_options how = evaluator_options(l->run);
    ttt_evaluator *evaluator = NULL;
    ttt_evaluation result = {0};
    int64_t batches = (l->options->inner_sequences + how.batch - 1) / how.batch;
    PJRT_TRY(ttt_evaluator_new(l->model.devices, &model->config, model->params, &how, &evaluator));
    pjrt_status *st = ttt_evaluator_run(evaluator, model->weights, l->data, batches * how.batch,
                                        NULL, NULL, &result);
    if (st == NULL && result.layers > 0)
        st = keep_inner(l->run, &result);
    ttt_evaluation_free(&result);
    ttt_evaluator_free(evaluator);
    return st;
}

static pjrt_status *measure_inner(live *l)
{
    char cache[PATH_MAX];
    ttt_model *model = NULL;
    PJRT_TRY(open_data(l));
    if (l->model.devices == NULL) {
        PJRT_TRY(ttt_devices_open(l->options->common->plugin, NULL, &l->model.devices));
        const char *folder = cmd_program_cache(l->options->cache, cache);
        if (folder != NULL)
            PJRT_TRY(ttt_devices_cache(l->model.devices, folder));
    }
    PJRT_TRY(ttt_model_load(l->model.devices, l->model.folder, TTT_STACKED, HLO_F32, &model));
    pjrt_status *st = run_evaluator(l, model);
    ttt_model_free(model);
    return st;
}

/* ---- both ---- */

static void note_failure(report_run *run, const char *what, pjrt_status *st)
{
    if (st != NULL)
        report_note(run, "%s: %s", what, pjrt_status_text(st));
    pjrt_status_free(st);
}

void report_live(report_run *run, const report_live_options *options)
{
    live l = {.run = run, .options = options};
    engine_choice choice = {.model = run->path, .cache = options->cache};
    bool learns = run->n_inner_layers > 0 && options->inner_sequences > 0;
    if (run->model[0] == '\0' || (options->samples == 0 && !learns))
        return;
    pjrt_status *st = generator_tokenizer(&l.model, &choice);
    if (st != NULL) {
        note_failure(run, "nothing can be generated", st);
    } else {
        if (options->samples > 0)
            note_failure(run, "no samples", make_samples(&l));
        if (learns)
            note_failure(run, "inner losses by token were not measured", measure_inner(&l));
    }
    for (size_t i = 0; i < REPORT_SAMPLES; i++) {
        free(l.prompts[i].list);
        free(l.texts[i].text);
    }
    ttt_dataset_free(l.data);
    generator_free(&l.model);
}
