/* From the command line to a trainer's options. */
#include "tools/train_options.h"

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
#define COUNT(name, member, what)                           \
    {                                                       \
        name, what, CMD_NUMBER, AT(member), .most = 1 << 24 \
    }
const cmd_option train_option_list[] = {
    MODEL_OPTIONS(train_choices, model),
    {"dtype", "f32 or bf16", CMD_CUSTOM, AT(program.dtype), 0, program_set_dtype},
    {"mesh", "", CMD_TEXT, AT(program.mesh), 0, NULL},
    PROGRAM_OPTION_REMAT(train_choices, program),
    {"data", "", CMD_TEXT, AT(data), 0, NULL},
    {"run", "", CMD_TEXT, AT(run), 0, NULL},
    {"resume", "", CMD_TEXT, AT(resume), 0, NULL},
    {"cache", "", CMD_TEXT, AT(cache), 0, NULL},
    COUNT("steps", steps, "a number of steps"),
    {"batch-tokens", "a number of tokens", CMD_NUMBER, AT(batch_tokens), .most = 1 << 30},
    COUNT("context", context, "a number of tokens"),
    COUNT("accumulation", accumulation, "a number of parts"),
    COUNT("save-every", save_every, "a number of steps"),
    {"save-minutes", "a number of minutes", CMD_CUSTOM, AT(save_minutes), 0, set_number},
    COUNT("keep", keep, "a number of checkpoints"),
    COUNT("milestone", milestone, "a number of steps"),
    COUNT("eval-every", eval_every, "a number of steps"),
    COUNT("eval-sequences", eval_sequences, "a number of sequences"),
    COUNT("log-every", log_every, "a number of steps"),
    {"spike", "a number of deviations", CMD_CUSTOM, AT(spike), 0, set_number},
    {"window", "2 to 100000 steps", CMD_NUMBER, AT(window), .most = 100000},
    COUNT("abort-after", abort_after, "a number of steps"),
    {"dry-run", "", CMD_FLAG, AT(dry_run), 0, NULL},
    {"resets", "", CMD_FLAG, AT(resets), 0, NULL},
    {"no-eval", "", CMD_FLAG, AT(no_eval), 0, NULL},
    {"no-kernels", "", CMD_FLAG, AT(no_kernels), 0, NULL},
    WORLD_OPTIONS(train_choices, world),
};
const size_t train_option_count = sizeof train_option_list / sizeof *train_option_list;

const char train_help[] =
    "usage: ttt train --preset P --data DIR --run DIR [options]\n"
    "       ttt train --data DIR --run DIR --resume auto [options]\n"
    "\n"
    "Trains a network on data that ttt data prepare made, in the folder of a run, which may be\n"
    "killed at any moment and continued. A preset brings its whole recipe; vocab_size comes from\n"
    "the data. Ctrl-C or SIGTERM finish the step, save, and leave with 0; a second one leaves at\n"
    "once.\n"
    "\n" MODEL_OPTIONS_HELP
    "                     of the network (ttt config show) or of the recipe: steps, peak_lr,\n"
    "                     end_lr, warmup_steps, batch_tokens, sequence_length, clip_norm, decay,\n"
    "                     seed …; with --model training begins with that model's weights\n"
    "  --data DIR         what ttt data prepare wrote\n"
    "  --run DIR          the folder of the run: made, or continued with --resume\n"
    "  --resume auto      go on from the newest whole checkpoint, begin where there is none\n"
    "  --steps N          all steps of the run (warm-up shrinks with them, unless set)\n"
    "  --batch-tokens N   tokens of a step; --context N: of a sequence\n"
    "  --accumulation N   a batch in N parts, one after another, for less memory\n"
    "  --dtype T          of activations and products: f32 (default) or bf16\n" PROGRAM_REMAT_HELP
    "  --mesh M           over several devices, virtual ones of the CPU: data=2,fsdp=2,model=2;\n"
    "                     over all devices of all processes; time=2 cuts every sequence into\n"
    "                     spans: docs/pods.md\n"
    "  --resets           documents within a sequence do not see each other\n"
    "  --save-every N     a checkpoint every N steps (1000) and every --save-minutes M (10)\n"
    "  --keep K           the newest K stay (2); --milestone N: multiples of N stay for ever\n"
    "  --eval-every N     validation loss every N steps (250) over --eval-sequences N (64);\n"
    "                     --no-eval: never\n"
    "  --spike Z          skip steps whose loss or gradient norm is Z deviations above the last\n"
    "                     --window N (128); not finite ones are always skipped\n"
    "  --abort-after N    end with an error after N skipped steps in a row (10)\n"
    "  --log-every N      a line every N steps (10); metrics.jsonl has them all\n"
    "  --no-kernels       leave all to the compiler, also the learners' loops, which on one CPU\n"
    "                     device are written by hand\n"
    "  --cache DIR        of compiled programs; default: programs in the set-up's cache; none\n"
    "  --dry-run          the merged settings and where they come from, memory and speed to "
    "expect\n"
    "  --plugin P         cpu (default), tpu, cuda or a path\n" WORLD_OPTIONS_HELP "\n"
    "example: ttt train --preset tiny --data prepared --run run --steps 500 --resume auto\n";

/* ---- sources of values -------------------------------------------------------------------------
 */

/* All fields of both as one object; NULL when out of memory. */
static json_t *snapshot(const ttt_config *config, const ttt_recipe *recipe)
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
    json_t *now = snapshot(&m->options.config, &m->options.recipe), *value;
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

static bool recipe_has(const ttt_recipe *recipe, const char *name)
{
    ttt_error error;
    char *text = ttt_recipe_text(recipe, &error);
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
    bool ok = recipe_has(&m->options.recipe, name)
                  ? ttt_recipe_set(&m->options.recipe, name, equals + 1, &error)
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
