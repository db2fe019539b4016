/* From the command line to a trainer's options. */
#include "tools/commands/train_options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the command line --------------------------------------------------------------------------
 */

/* A number from 0 on; what else strtod takes is refused. */
static bool set_number(const char *text, void *field)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value >= 0) || !isfinite(value))
        return false;
    *(double *)field = value;
    return true;
}

#define AT(member) offsetof(train_choices, member)
#define COUNT(name, member, text, value)                                         \
    {                                                                            \
        name, "N", CMD_NUMBER, AT(member), text, .usual = value, .most = 1 << 24 \
    }
static const cmd_option option_list[] = {
    CMD_GROUP("the run"),
    {"data", "DIR", CMD_FOLDER, AT(data), "what ttt data prepare wrote"},
    {"run", "DIR", CMD_FOLDER, AT(run), "the folder of the run: made, or continued with --resume"},
    {"resume", "auto", CMD_TEXT, AT(resume),
     "go on from the newest whole checkpoint, begin where there is none",
     .choices = CMD_WORDS("auto"), .open = true},
    {"dry-run", NULL, CMD_FLAG, AT(dry_run),
     "the merged settings and where they come from, memory and speed to expect"},
    CMD_GROUP("the network"),
    MODEL_OPTIONS_NAMED(train_choices, model),
    MODEL_OPTION_FOLDER(train_choices, model,
                        "the config.json of a folder instead of a preset; training begins with "
                        "that model's weights"),
    MODEL_OPTION_SETS(
        train_choices, model.sets,
        "change a field of the network (ttt config show) or of the recipe: steps, peak_lr, end_lr, "
        "warmup_steps, batch_tokens, sequence_length, clip_norm, decay, seed …"),
    CMD_GROUP("the steps"),
    COUNT("steps", steps, "all steps of the run (warm-up shrinks with them, unless set)", NULL),
    {"batch-tokens", "N", CMD_NUMBER, AT(batch_tokens), "tokens of a step", .most = 1 << 30},
    COUNT("context", context, "tokens of a sequence", NULL),
    COUNT("accumulation", accumulation, "a batch in N parts, one after another, for less memory",
          NULL),
    {"resets", NULL, CMD_FLAG, AT(resets), "documents within a sequence do not see each other"},
    {"spike", "Z", CMD_CUSTOM, AT(spike),
     "skip steps whose loss or gradient norm is Z deviations above those of the last --window; not "
     "finite ones are always skipped",
     .set = set_number, .what = "a number of deviations"},
    {"window", "N", CMD_NUMBER, AT(window), "the steps that --spike looks back to", .usual = "128",
     .most = 100000, .what = "2 to 100000 steps"},
    COUNT("abort-after", abort_after, "end with an error after N skipped steps in a row", "10"),
    CMD_GROUP("what is kept and told"),
    COUNT("save-every", save_every, "a checkpoint every N steps", "1000"),
    {"save-minutes", "M", CMD_CUSTOM, AT(save_minutes), "a checkpoint every M minutes too",
     .usual = "10", .set = set_number, .what = "a number of minutes"},
    COUNT("keep", keep, "the newest N checkpoints stay", "2"),
    COUNT("milestone", milestone, "checkpoints of multiples of N steps stay for ever", NULL),
    COUNT("eval-every", eval_every, "validation loss every N steps", "250"),
    COUNT("eval-sequences", eval_sequences, "sequences of a validation", "64"),
    {"no-eval", NULL, CMD_FLAG, AT(no_eval), "no validation"},
    COUNT("log-every", log_every, "a line every N steps; metrics.jsonl has them all", "10"),
    CMD_GROUP("the program"),
    PROGRAM_OPTION_DTYPE(train_choices, program, "of activations and products", "f32", "bf16"),
    PROGRAM_OPTION_REMAT(train_choices, program),
    PROGRAM_OPTION_MESH(
        train_choices, program,
        "over several devices, virtual ones of the CPU: data=2,fsdp=2,model=2; over all devices of "
        "all processes; time=2 cuts every sequence into spans: docs/pods.md"),
    {"no-kernels", NULL, CMD_FLAG, AT(no_kernels),
     "leave all to the compiler, also the learners' loops, which on one CPU device are written by "
     "hand"},
    CMD_OPTION_CACHE(train_choices, cache),
    JOB_OPTIONS(train_choices, job),
};

const cmd_spec cmd_train = {
    .name = "train",
    .summary = "a network from a recipe and prepared data",
    .usage = "--preset P --data DIR --run DIR [options]\n"
             "--data DIR --run DIR --resume auto [options]",
    .about = "Trains a network on data that ttt data prepare made, in the folder of a run, which "
             "may be killed at any moment and continued. A preset brings its whole recipe; "
             "vocab_size comes from the data. Ctrl-C or SIGTERM finish the step, save, and leave "
             "with 0; a second one leaves at once.",
    CMD_OPTIONS(option_list),
    .example = "ttt train --preset tiny --data prepared --run run --steps 500 --resume auto",
    .plugin = CMD_PLUGIN,
    .run = train_command,
};

/* ---- sources of values -------------------------------------------------------------------------
 */

json_t *train_fields(const ttt_config *config, const ttt_recipe *recipe)
{
    ttt_error error;
    char *network = ttt_config_show(config, &error), *training = ttt_recipe_text(recipe, &error);
    json_t *all = network == NULL ? NULL : json_loads(network, 0, NULL);
    json_t *rest = training == NULL ? NULL : json_loads(training, 0, NULL);
    free(network);
    free(training);
    json_object_del(all, "parameters");
    if (all == NULL || rest == NULL || json_object_update(all, rest) != 0) {
        json_decref(all);
        all = NULL;
    }
    json_decref(rest);
    return all;
}

/* Values that changed have `source` from here on. */
static pjrt_status *note_source(train_merged *m, const char *source)
{
    json_t *now = train_fields(&m->options.config, &m->options.recipe), *value;
    const char *name;
    if (now == NULL)
        return PJRT_NO_MEMORY("ttt");
    json_object_foreach(now, name, value)
    {
        const json_t *before = json_object_get(m->fields, name);
        if (before == NULL || !json_equal(json_array_get(before, 0), value))
            json_object_set_new(m->fields, name, json_pack("[O, s]", value, source));
    }
    json_decref(now);
    return NULL;
}

/* ---- layers, one over the other ----------------------------------------------------------------
 */

static pjrt_status *from_preset(const train_choices *c, train_merged *m, char source[80])
{
    ttt_error error;
    model_options model = c->model;
    model.sets.count = 0; /* the command line comes last */
    PJRT_TRY(model_options_config(&model, &m->options.config));
    const char *preset = model.preset == NULL ? "small" : model.preset;
    if (!ttt_recipe_preset(&m->options.recipe, preset, ttt_mixer_name(m->options.config.mixer),
                           &error))
        return ttt_failed(&error);
    snprintf(source, 80, "preset %s", preset);
    if (model.model == NULL)
        return NULL;
    PJRT_TRY(ttt_model_folder(model.model, &m->start));
    m->options.start = m->start;
    snprintf(source, 80, "model, recipe of preset %s", preset);
    return NULL;
}

/* The network of a preset takes the data's vocabulary, in a size that divides well. */
static pjrt_status *from_data(const train_choices *c, train_merged *m)
{
    ttt_dataset *data;
    PJRT_TRY(ttt_dataset_open(c->data, "train", &data));
    const ttt_dataset_about *about = ttt_dataset_info(data);
    if (m->options.start == NULL)
        m->options.config.vocab_size = (about->vocab + 63) / 64 * 64;
    if (m->options.recipe.masked_label >= 0)
        m->options.recipe.masked_label = about->bos;
    ttt_dataset_free(data);
    return NULL;
}

/* By any recipe that is well formed: one that --set is in the middle of changing may not be. */
static bool recipe_has(const char *name)
{
    ttt_error error;
    ttt_recipe recipe;
    bool made = ttt_recipe_preset(&recipe, "tiny", ttt_mixer_name(TTT_MIXER_LINEAR), &error);
    char *text = made ? ttt_recipe_text(&recipe, &error) : NULL;
    json_t *fields = text == NULL ? NULL : json_loads(text, 0, NULL);
    bool has = json_object_get(fields, name) != NULL;
    json_decref(fields);
    free(text);
    return has;
}

/* --set, of the recipe if it has such a field, else of the network. */
static pjrt_status *set_field(train_merged *m, const char *text, bool *warmup)
{
    char name[64];
    ttt_error error;
    const char *equals = strchr(text, '=');
    snprintf(name, sizeof name, "%.*s", (int)(equals - text), text);
    *warmup |= strcmp(name, "warmup_steps") == 0;
    bool ok = recipe_has(name) ? ttt_recipe_set(&m->options.recipe, name, equals + 1, &error)
                               : ttt_config_set(&m->options.config, name, equals + 1, &error);
    return ok ? NULL : ttt_failed(&error);
}

static pjrt_status *from_command_line(const train_choices *c, train_merged *m)
{
    ttt_recipe *recipe = &m->options.recipe;
    ttt_error error;
    bool warmup = false;
    int64_t steps = recipe->steps;
    for (int i = 0; i < c->model.sets.count; i++)
        PJRT_TRY(set_field(m, c->model.sets.list[i], &warmup));
    if (c->steps > 0)
        recipe->steps = c->steps;
    if (c->context > 0)
        recipe->sequence_length = c->context;
    if (c->batch_tokens > 0)
        recipe->batch_tokens = c->batch_tokens;
    if (!warmup && recipe->steps != steps) /* the same share of the run */
        recipe->warmup_steps = recipe->warmup_steps * recipe->steps / steps;
    if (!ttt_config_check(&m->options.config, &error) || !ttt_recipe_check(recipe, &error))
        return ttt_failed(&error);
    return NULL;
}

/* A run that is continued without a preset has all it needs in its folder. */
static pjrt_status *from_run(const train_choices *c, train_merged *m, char source[80])
{
    pjrt_status *st = ttt_run_read(c->run, &m->options.config, &m->options.recipe);
    if (pjrt_status_code(st) == PJRT_CODE_NOT_FOUND) {
        pjrt_status_free(st);
        return PJRT_FAIL(INVALID_ARGUMENT, "ttt",
                         "%s has no run to go on with: begin one with --preset", c->run);
    }
    snprintf(source, 80, "run");
    return st;
}

static pjrt_status *merge_fields(const train_choices *c, train_merged *m)
{
    char source[80];
    bool continued = c->model.preset == NULL && c->model.model == NULL && c->resume != NULL;
    PJRT_TRY(continued ? from_run(c, m, source) : from_preset(c, m, source));
    PJRT_TRY(note_source(m, source));
    if (!continued) {
        PJRT_TRY(from_data(c, m));
        PJRT_TRY(note_source(m, "data"));
    }
    PJRT_TRY(from_command_line(c, m));
    return note_source(m, "command line");
}

static void merge_counts(const train_choices *c, ttt_trainer_options *o)
{
    const struct {
        int given;
        int64_t *field;
    } counts[] = {
        {c->accumulation, &o->accumulation},     {c->save_every, &o->save_every},
        {c->milestone, &o->milestone},           {c->eval_every, &o->eval_every},
        {c->eval_sequences, &o->eval_sequences}, {c->window, &o->window},
        {c->abort_after, &o->abort_after},
    };
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        if (counts[i].given > 0)
            *counts[i].field = counts[i].given;
    }
    if (c->keep > 0)
        o->keep = c->keep;
    if (c->save_minutes >= 0)
        o->save_seconds = 60 * c->save_minutes;
    if (c->spike >= 0)
        o->spike = c->spike;
    if (c->no_eval)
        o->eval_every = 0;
}

pjrt_status *train_merge(const train_choices *c, const cmd_common *common, train_merged *out)
{
    *out = (train_merged){.options = TTT_TRAINER_DEFAULTS, .fields = json_object()};
    if (out->fields == NULL)
        return PJRT_NO_MEMORY("ttt");
    PJRT_TRY(merge_fields(c, out));
    ttt_trainer_options *o = &out->options;
    PJRT_TRY(ttt_mesh_parse(c->program.mesh, &o->mesh));
    o->data = c->data;
    o->run = c->run;
    o->plugin = common->plugin;
    o->compute = c->program.dtype;
    o->remat = c->program.remat;
    o->resets = c->resets;
    o->no_kernels = c->no_kernels;
    o->resume = c->resume != NULL;
    o->dry = c->dry_run;
    merge_counts(c, o);
    return NULL;
}

void train_merged_free(train_merged *merged)
{
    json_decref(merged->fields);
    free(merged->start);
}
