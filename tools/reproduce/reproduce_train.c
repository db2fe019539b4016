/* Networks of experiments: trained, or found as an earlier call left them, and evaluated. */
#include "tools/cli/stop_signals.h"
#include "tools/commands/train_options.h"
#include "tools/reproduce/reproduce.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_WORD = 96 };

/* ---- settings ---- */

/* "field=value field=value" over a configuration. */
static pjrt_status *set_fields(ttt_config *config, const char *sets)
{
    ttt_error error;
    for (const char *at = sets == NULL ? "" : sets; *at != '\0';) {
        char word[MOST_WORD];
        size_t size = strcspn(at, " ");
        snprintf(word, sizeof word, "%.*s", (int)size, at);
        char *equals = strchr(word, '=');
        *equals = '\0';
        if (!ttt_config_set(config, word, equals + 1, &error))
            return ttt_failed(&error);
        at += size + (at[size] == ' ');
    }
    return NULL;
}

static pjrt_status *arithmetic(const ttt_config *config, int64_t time, double *flops,
                               int64_t *parameters)
{
    ttt_error error;
    ttt_params *params = ttt_params_new(config, TTT_STACKED, &error);
    if (params == NULL)
        return ttt_failed(&error);
    *flops = ttt_flops_per_token(config, params, time);
    *parameters = params->elements;
    ttt_params_free(params);
    return NULL;
}

/* As much arithmetic a token as Mamba of the same preset has, by the width of the blocks. */
static pjrt_status *match_mamba(const reproduce *r, ttt_config *config)
{
    enum { STEP = 8 };
    ttt_config mamba;
    ttt_error error;
    double target = 0, flops = 0;
    int64_t parameters;
    if (!ttt_config_preset(&mamba, r->scale.preset, "mamba", "mamba", &error))
        return ttt_failed(&error);
    mamba.vocab_size = r->vocab;
    PJRT_TRY(arithmetic(&mamba, r->scale.context, &target, &parameters));
    int64_t low = 1, high = 4 * config->hidden_size; /* in steps: what is searched lies between */
    while (low < high) {
        int64_t middle = (low + high) / 2;
        config->intermediate_size = middle * STEP;
        PJRT_TRY(arithmetic(config, r->scale.context, &flops, &parameters));
        if (flops < target)
            low = middle + 1;
        else
            high = middle;
    }
    config->intermediate_size = low * STEP;
    return NULL;
}

/* The scale's recipe with what the job changes; the warm-up keeps its share of the steps. */
static void set_recipe(const reproduce *r, const reproduce_job *job, int seed, ttt_recipe *recipe)
{
    const reproduce_scale *s = &r->scale;
    int64_t steps = recipe->steps, warmup = recipe->ttt_base_lr_warmup;
    recipe->steps = job->steps > 0 ? job->steps : s->steps;
    recipe->warmup_steps = recipe->warmup_steps * recipe->steps / steps;
    recipe->ttt_base_lr_warmup = warmup * recipe->steps / steps;
    recipe->sequence_length = job->context > 0 ? job->context : s->context;
    recipe->batch_tokens =
        s->batch_tokens > recipe->sequence_length ? s->batch_tokens : recipe->sequence_length;
    if (s->peak_lr > 0)
        recipe->peak_lr = s->peak_lr;
    if (job->peak_lr > 0)
        recipe->peak_lr = job->peak_lr;
    recipe->seed = seed;
}

pjrt_status *reproduce_settings(const reproduce *r, const reproduce_job *job, int seed,
                                ttt_config *config, ttt_recipe *recipe)
{
    ttt_error error;
    if (!ttt_config_preset(config, r->scale.preset, job->mixer, job->backbone, &error) ||
        !ttt_recipe_preset(recipe, r->scale.preset, job->mixer, &error))
        return ttt_failed(&error);
    config->vocab_size = r->vocab;
    PJRT_TRY(set_fields(config, job->sets));
    if (job->mini > 0)
        config->mini_batch_size = job->mini;
    if (job->matched && config->mixer != TTT_MIXER_MAMBA)
        PJRT_TRY(match_mamba(r, config));
    set_recipe(r, job, seed, recipe);
    if (!ttt_config_check(config, &error) || !ttt_recipe_check(recipe, &error))
        return ttt_failed(&error);
    return NULL;
}

/* Both as JSON, which tells one run from another; the network as in its config.json, which is the
 * same from version to version. */
static pjrt_status *settings_json(const ttt_config *config, const ttt_recipe *recipe, json_t **out)
{
    ttt_error error;
    char *network = ttt_config_text(config, &error), *training = ttt_recipe_text(recipe, &error);
    *out = json_object();
    json_object_set_new(*out, "network", network == NULL ? NULL : json_loads(network, 0, NULL));
    json_object_set_new(*out, "recipe", training == NULL ? NULL : json_loads(training, 0, NULL));
    free(network);
    free(training);
    return json_object_size(*out) == 2 ? NULL : PJRT_NO_MEMORY("ttt");
}

/* ---- one run ---- */

typedef struct job_run {
    reproduce *r;
    const reproduce_job *job;
    int seed;
    ttt_config config;
    ttt_recipe recipe;
    char folder[PATH_MAX], result[PATH_MAX], start[PATH_MAX];
    json_t *settings; /* owned */
    ttt_train_summary summary;
    ttt_evaluation found;
} job_run;

static pjrt_status *name_files(job_run *j)
{
    const char *out = j->r->out;
    int size = snprintf(j->folder, sizeof j->folder, "%s/runs/%s-s%d", out, j->job->name, j->seed);
    if (size + 16 >= (int)sizeof j->folder)
        return PJRT_FAIL(INVALID_ARGUMENT, "ttt", "the path of --out is too long");
    snprintf(j->result, sizeof j->result, "%.*s/result.json", size, j->folder);
    if (j->job->start[0] != '\0')
        snprintf(j->start, sizeof j->start, "%s/runs/%s-s%d", out, j->job->start, j->seed);
    return NULL;
}

/* The result that an earlier call wrote, or NULL. One of other settings is refused. */
static pjrt_status *find_result(const job_run *j, json_t **out)
{
    json_error_t error;
    *out = NULL;
    if (access(j->result, F_OK) != 0)
        return NULL;
    json_t *found = json_load_file(j->result, JSON_REJECT_DUPLICATES, &error);
    if (!json_equal(json_object_get(found, "settings"), j->settings)) {
        json_decref(found);
        return PJRT_FAIL(FAILED_PRECONDITION, "ttt",
                         "%s is of other settings than those asked for: take another --out, or "
                         "remove that run",
                         j->result);
    }
    if (j->job->inner && json_object_get(found, "inner_loss") == NULL) {
        json_decref(found);
        return NULL;
    }
    *out = found;
    return NULL;
}

static void hear(void *ctx, const ttt_event *e)
{
    job_run *j = ctx;
    char words[80];
    if (e->kind != TTT_EVENT_STEP)
        return;
    snprintf(words, sizeof words, "step %lld/%lld  loss %.3f", (long long)e->step,
             (long long)e->steps, e->figures->loss);
    reproduce_show(j->r, (double)e->step / (double)e->steps, words);
}

static pjrt_status *train(job_run *j)
{
    ttt_trainer *trainer;
    ttt_trainer_options o = TTT_TRAINER_DEFAULTS;
    char cache[PATH_MAX], *start = NULL;
    o.config = j->config;
    o.recipe = j->recipe;
    o.data = j->r->data;
    o.run = j->folder;
    o.plugin = j->r->common->plugin;
    o.compute = j->r->options->dtype;
    o.cache = cmd_program_cache(j->r->options->cache, cache);
    o.resume = true;
    o.keep = 1;
    o.save_seconds = 60;
    o.eval_every = 0;
    o.stop = &stopping;
    o.hear = hear;
    o.ctx = j;
    PJRT_TRY(ttt_mesh_parse(j->r->options->mesh, &o.mesh));
    if (j->job->start[0] != '\0')
        PJRT_TRY(ttt_model_folder(j->start, &start));
    o.start = start;
    pjrt_status *st = ttt_trainer_new(&o, &trainer);
    free(start);
    PJRT_TRY(st);
    st = ttt_trainer_run(trainer, &j->summary);
    ttt_trainer_free(trainer);
    if (st == NULL && j->summary.stopped)
        st = PJRT_FAIL(CANCELLED, "ttt", "stopped: the same command goes on from here");
    return st;
}

static bool go_on(void *ctx, int64_t done, int64_t all)
{
    job_run *j = ctx;
    char words[80];
    snprintf(words, sizeof words, "evaluating, %lld/%lld sequences", (long long)done,
             (long long)all);
    reproduce_show(j->r, 1, words);
    return stopping == 0;
}

static pjrt_status *evaluate_with(job_run *j, const ttt_dataset *data, const ttt_model *model)
{
    ttt_evaluator *evaluator;
    int64_t time = j->recipe.sequence_length, tokens = j->r->scale.eval_tokens;
    int64_t most = ttt_dataset_info(data)->tokens / (time + 1);
    int64_t sequences = tokens / time < most ? tokens / time : most;
    ttt_evaluator_options how = {.batch = sequences < 4 ? 1 : 4,
                                 .time = time,
                                 .compute = HLO_F32,
                                 .diagnostics = j->job->inner,
                                 .masked_label = ttt_dataset_info(data)->bos};
    PJRT_TRY(ttt_evaluator_new(model->devices, &model->config, model->params, &how, &evaluator));
    pjrt_status *st = ttt_evaluator_run(evaluator, model->weights, data,
                                        sequences < 1 ? 1 : sequences, go_on, j, &j->found);
    ttt_evaluator_free(evaluator);
    if (st == NULL && stopping != 0)
        st = PJRT_FAIL(CANCELLED, "ttt", "stopped: the same command goes on from here");
    return st;
}

static pjrt_status *evaluate(job_run *j)
{
    ttt_dataset *data;
    ttt_model *model = NULL;
    char *folder = NULL;
    PJRT_TRY(reproduce_place(j->r));
    PJRT_TRY(ttt_dataset_open(j->r->data, "validation", &data));
    pjrt_status *st = ttt_model_folder(j->folder, &folder);
    if (st == NULL)
        st = ttt_model_load(j->r->devices, folder, TTT_STACKED, HLO_F32, &model);
    if (st == NULL)
        st = evaluate_with(j, data, model);
    ttt_model_free(model);
    ttt_dataset_free(data);
    free(folder);
    return st;
}

/* ---- its result ---- */

static json_t *numbers(const double *values, int64_t count)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < count; i++)
        json_array_append_new(list, cmd_json_number(values[i]));
    return list;
}

/* [layers][4][time] */
static json_t *inner_json(const ttt_evaluation *e)
{
    json_t *all = json_array();
    for (int64_t l = 0; l < e->layers; l++) {
        json_t *layer = json_array();
        for (int64_t k = 0; k < 4; k++) {
            json_t *line = json_array();
            for (int64_t t = 0; t < e->time; t++)
                json_array_append_new(
                    line, cmd_json_number((double)e->inner_loss[(l * 4 + k) * e->time + t]));
            json_array_append_new(layer, line);
        }
        json_array_append_new(all, layer);
    }
    return all;
}

static pjrt_status *write_result(job_run *j, json_t **out)
{
    char part[PATH_MAX + 8];
    double flops = 0, tokens = (double)(j->recipe.steps * j->recipe.batch_tokens);
    const ttt_evaluation *e = &j->found;
    int64_t parameters = 0;
    PJRT_TRY(arithmetic(&j->config, j->recipe.sequence_length, &flops, &parameters));
    *out = json_pack(
        "{s:s, s:I, s:I, s:s, s:i, s:O, s:f, s:o, s:o, s:o, s:f, s:f, s:f, s:I, s:s, s:o}", "name",
        j->job->name, "parameters", (json_int_t)parameters, "width",
        (json_int_t)j->config.intermediate_size, "label", j->job->label, "seed", j->seed,
        "settings", j->settings, "loss", isfinite(e->loss) ? e->loss : 1e9, "loss_error",
        cmd_json_number(e->error), "perplexity", cmd_json_number(exp(e->loss)), "by_position",
        numbers(e->by_position, e->time), "tokens", tokens, "flops_per_token", flops, "seconds",
        ttt_goodput_total(&j->summary.goodput), "skipped", (json_int_t)j->summary.skipped,
        "version", TTT_VERSION, "tokens_per_second",
        cmd_json_number((double)j->recipe.batch_tokens / j->summary.step_seconds));
    if (*out == NULL)
        return PJRT_NO_MEMORY("ttt");
    if (e->layers > 0)
        json_object_set_new(*out, "inner_loss", inner_json(e));
    snprintf(part, sizeof part, "%s.part", j->result);
    if (json_dump_file(*out, part, JSON_COMPACT | JSON_REAL_PRECISION(8)) != 0 ||
        rename(part, j->result) != 0) {
        json_decref(*out);
        *out = NULL;
        return PJRT_FAIL(UNAVAILABLE, "ttt", "%s: %s", j->result, strerror(errno));
    }
    return NULL;
}

static pjrt_status *run_job(job_run *j, json_t **out)
{
    PJRT_TRY(reproduce_settings(j->r, j->job, j->seed, &j->config, &j->recipe));
    PJRT_TRY(name_files(j));
    PJRT_TRY(settings_json(&j->config, &j->recipe, &j->settings));
    PJRT_TRY(find_result(j, out));
    if (*out != NULL)
        return NULL;
    PJRT_TRY(train(j));
    PJRT_TRY(evaluate(j));
    PJRT_TRY(write_result(j, out));
    j->r->fresh++;
    return NULL;
}

/* ---- all seeds ---- */

static double of_run(const reproduce_result *result, int run, const char *name)
{
    const json_t *value = json_object_get(json_array_get(result->runs, (size_t)run), name);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static void sum_up(reproduce_result *result)
{
    double sum = 0, squares = 0, loss = 0;
    int n = result->count;
    for (int i = 0; i < n; i++) {
        double value = of_run(result, i, "perplexity");
        loss += of_run(result, i, "loss");
        sum += value;
        squares += value * value;
    }
    result->loss = loss / n;
    result->perplexity = sum / n;
    double variance = n < 2 ? 0 : (squares - sum * sum / n) / (n - 1);
    result->spread =
        n < 2 ? result->perplexity * of_run(result, 0, "loss_error") : sqrt(fmax(variance, 0));
}

static void tell(reproduce *r, const reproduce_job *job, const reproduce_result *result)
{
    double seconds = 0;
    for (int i = 0; i < result->count; i++)
        seconds += of_run(result, i, "seconds");
    reproduce_say(r, "  %-34s perplexity %8.3f ± %-7.3f %s\n", job->label, result->perplexity,
                  result->spread, progress_time(seconds));
}

pjrt_status *reproduce_train(reproduce *r, const reproduce_job *job, reproduce_result *out)
{
    *out = (reproduce_result){.runs = json_array(), .count = r->options->seeds};
    r->doing = job->label;
    for (int seed = 0; seed < out->count; seed++) {
        job_run j = {.r = r, .job = job, .seed = seed};
        json_t *result = NULL;
        pjrt_status *st = run_job(&j, &result);
        ttt_evaluation_free(&j.found);
        json_decref(j.settings);
        PJRT_TRY(st);
        json_array_append_new(out->runs, result);
        r->done++;
    }
    sum_up(out);
    tell(r, job, out);
    return NULL;
}

void reproduce_result_free(reproduce_result *result)
{
    json_decref(result->runs);
    *result = (reproduce_result){0};
}

size_t reproduce_series(const reproduce_result *result, const char *name, double *values,
                        size_t room)
{
    size_t count = 0;
    for (int i = 0; i < result->count; i++) {
        const json_t *list = json_object_get(json_array_get(result->runs, (size_t)i), name);
        size_t size = json_array_size(list);
        count = size < room ? size : room;
        for (size_t k = 0; k < count; k++)
            values[k] = (i == 0 ? 0 : values[k]) +
                        json_number_value(json_array_get(list, k)) / result->count;
    }
    return count;
}

/* ---- as a script ---- */

/* Every field that is not the preset's, as --set. */
static void print_sets(const json_t *wanted, const json_t *usual)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)wanted, name, value)
    {
        if (json_equal(value, json_object_get(usual, name)))
            continue;
        char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
        bool quoted = json_is_string(value);
        printf(" --set %s=%s", name, quoted ? json_string_value(value) : text);
        free(text);
    }
}

static pjrt_status *print_seed(const reproduce *r, const reproduce_job *job, int seed)
{
    ttt_config config, usual;
    ttt_recipe recipe, usual_recipe;
    ttt_error error;
    const char *mesh = r->options->mesh;
    PJRT_TRY(reproduce_settings(r, job, seed, &config, &recipe));
    if (!ttt_config_preset(&usual, r->scale.preset, job->mixer, job->backbone, &error) ||
        !ttt_recipe_preset(&usual_recipe, r->scale.preset, job->mixer, &error))
        return ttt_failed(&error);
    usual.vocab_size = r->vocab;
    json_t *wanted = train_fields(&config, &recipe), *given = train_fields(&usual, &usual_recipe);
    pjrt_status *st = wanted == NULL || given == NULL ? PJRT_NO_MEMORY("ttt") : NULL;
    if (st == NULL) {
        printf("ttt train --preset %s --mixer %s --backbone %s", r->scale.preset, job->mixer,
               job->backbone);
        if (job->start[0] != '\0')
            printf(" --model '%s/runs/%s-s%d'", r->out, job->start, seed);
        print_sets(wanted, given);
        printf(" --dtype %s%s%s --no-eval --keep 1 --resume auto --data '%s' --run "
               "'%s/runs/%s-s%d'\n",
               hlo_type_name(r->options->dtype), mesh == NULL ? "" : " --mesh ",
               mesh == NULL ? "" : mesh, r->data, r->out, job->name, seed);
    }
    json_decref(given);
    json_decref(wanted);
    return st;
}

pjrt_status *reproduce_print(const reproduce *r, const reproduce_job *job)
{
    printf("# %s\n", job->label);
    for (int seed = 0; seed < r->options->seeds; seed++)
        PJRT_TRY(print_seed(r, job, seed));
    return NULL;
}
