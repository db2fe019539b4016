/* ttt reproduce: the paper's tables and figures, each by one command. */
#include "tools/reproduce/reproduce.h"
#include "tools/cli/stop_signals.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define AT(member) offsetof(reproduce_options, member)
static const cmd_option operands_list[] = {
    {"EXPERIMENT", NULL, CMD_TEXT, .help = "one or more of those below, or all",
     .choices = CMD_WORDS("ladder", "minibatch", "context", "position", "innerloop", "latency",
                          "dualprimal", "all"),
     .repeats = true},
};
static const cmd_option options[] = {
    {"scale", "S", CMD_TEXT, AT(scale),
     "tiny: the ladder takes half an hour on two cores; small: a night; paper: the recipe of 125M "
     "on a pod, which needs --data",
     .usual = "tiny", .choices = CMD_WORDS("tiny", "small", "paper")},
    {"out", "DIR", CMD_FOLDER, AT(out), "where everything goes", .usual = "reproduce/SCALE"},
    {"corpus", "FILE", CMD_CUSTOM, AT(corpus),
     "text to learn from, .txt or .jsonl; default: the King James text of Debian's "
     "bible-kjv-text. A tokenizer is trained on it",
     .repeats = true, .set = text_list_add, .what = "possible: too many"},
    {"data", "DIR", CMD_FOLDER, AT(data), "tokens of ttt data prepare instead"},
    {"seeds", "N", CMD_NUMBER, AT(seeds),
     "runs of each network; results are means, ± their deviation", .usual = "1",
     .most = REPRODUCE_MOST_SEEDS},
    {"steps", "N", CMD_NUMBER, AT(steps), "steps of each run, instead of the scale's",
     .most = 1 << 24},
    {"context", "N", CMD_NUMBER, AT(context), "tokens of a sequence, instead of the scale's",
     .most = 1 << 20},
    {"rows", "LIST", CMD_TEXT, AT(rows),
     "of the ladder: paper, later (learners of later papers, beside TTT-Linear and TTT-MLP), all, "
     "or names, as in norm,mini,rate",
     .usual = "paper"},
    {"contexts", "LIST", CMD_CUSTOM, AT(contexts),
     "of context, position and latency, instead of the scale's, as in 128,512,2048",
     .set = int_list_parse, .what = "a list of numbers"},
    {"commands", NULL, CMD_FLAG, AT(commands),
     "train nothing: print the commands that would, for machines with many devices; the same call "
     "without it then finds their runs"},
    {"mesh", "M", CMD_TEXT, AT(mesh), "train over several devices, as ttt train has it"},
    {"dtype", "T", CMD_CUSTOM, AT(dtype), "of activations and products", .usual = "f32",
     .choices = CMD_WORDS("f32", "bf16"), .set = model_set_type},
    CMD_OPTION_CACHE(reproduce_options, cache),
};
static int reproduce_command(int argc, char **argv);
const cmd_spec cmd_reproduce = {
    .name = "reproduce",
    .summary = "the paper's tables and figures, at a size that this machine finishes",
    .usage = "EXPERIMENT … [options]",
    .about = "Tables and figures of the TTT paper. Each experiment leaves EXPERIMENT.csv, .json, "
             ".svg and .md, a page that says what the paper shows, what was run, what came out and "
             "whether the order agrees. A run that was cut, by Ctrl-C or worse, goes on with the "
             "same command; experiments share runs, and what is there is not done again."
             "\n\n"
             "ladder\tfrom linear attention to TTT-Linear, one change a row, and learners of later "
             "papers beside it\n"
             "minibatch\tperplexity and forward time against the size of mini-batches\n"
             "context\tperplexity against context: Transformer, Mamba, TTT-Linear, TTT-MLP\n"
             "position\tperplexity by the index of the token, at the longest context\n"
             "innerloop\tthe learners' own loss by token and layer: W0, before, after\n"
             "latency\ttime of a token, read and made, against context and batch\n"
             "dualprimal\ttraining time of the dual form against the primal form\n"
             "all\tone after another",
    CMD_OPERANDS(operands_list),
    CMD_OPTIONS(options),
    .example = "ttt reproduce ladder --scale tiny --seeds 3",
    .plugin = CMD_PLUGIN,
    .run = reproduce_command,
};

static const reproduce_experiment *const experiments[] = {
    &reproduce_ladder,    &reproduce_minibatch, &reproduce_context,    &reproduce_position,
    &reproduce_innerloop, &reproduce_latency,   &reproduce_dualprimal,
};
enum { N_EXPERIMENTS = sizeof experiments / sizeof *experiments };

/* ---- one experiment ----------------------------------------------------------------------------
 */

static pjrt_status *print_all(const reproduce *r, const reproduce_job *jobs, int count)
{
    for (int i = 0; i < count; i++)
        PJRT_TRY(reproduce_print(r, &jobs[i]));
    return NULL;
}

static pjrt_status *train_all(reproduce *r, const reproduce_job *jobs, int count,
                              reproduce_result *results)
{
    for (int i = 0; i < count; i++)
        PJRT_TRY(reproduce_train(r, &jobs[i], &results[i]));
    return NULL;
}

/* results.md: the pages that are there, one after another. */
static pjrt_status *join_pages(const reproduce *r)
{
    char path[PATH_MAX];
    markup all = {0};
    markup_add(&all, "# Results of ttt reproduce --scale %s\n", r->scale.name);
    for (int i = 0; i < N_EXPERIMENTS; i++) {
        char *page;
        size_t size;
        snprintf(path, sizeof path, "%s/%s.md", r->out, experiments[i]->name);
        if (access(path, R_OK) != 0)
            continue;
        pjrt_status *st = cmd_read_file(path, &page, &size);
        if (st != NULL) {
            free(all.buffer.text);
            return st;
        }
        markup_add(&all, "\n%s", page);
        free(page);
    }
    return reproduce_put(r, "results", ".md", &all);
}

static pjrt_status *run_experiment(reproduce *r, const reproduce_experiment *e)
{
    reproduce_job *jobs = calloc(REPRODUCE_MOST_JOBS, sizeof *jobs);
    reproduce_result *results = calloc(REPRODUCE_MOST_JOBS, sizeof *results);
    reproduce_report report = {0};
    if (jobs == NULL || results == NULL) {
        free(jobs);
        free(results);
        return PJRT_NO_MEMORY("ttt");
    }
    int count = e->jobs == NULL ? 0 : e->jobs(r, jobs);
    int measured = e->measurements == NULL ? 0 : e->measurements(r);
    reproduce_begin(r, e->name, count * r->options->seeds + measured);
    pjrt_status *st = NULL;
    if (r->options->commands) {
        st = print_all(r, jobs, count);
    } else {
        reproduce_say(r, "%s: %s\n", e->name, e->summary);
        st = train_all(r, jobs, count, results);
        if (st == NULL)
            st = e->conclude(r, jobs, results, count, &report);
        if (st == NULL)
            st = reproduce_write(r, &report);
        if (st == NULL)
            st = join_pages(r);
        if (st == NULL)
            reproduce_say(r, "\n%s\n%s/%s.md, .svg, .csv, .json in %s\n\n",
                          report.words.buffer.text == NULL ? "" : report.words.buffer.text, r->out,
                          e->name, progress_time(cmd_seconds() - r->begun));
    }
    for (int i = 0; i < count; i++)
        reproduce_result_free(&results[i]);
    reproduce_report_free(&report);
    free(jobs);
    free(results);
    return st;
}

/* ---- the command -------------------------------------------------------------------------------
 */

/* Which were asked for, in the order of the table; false after saying what is wrong. */
static bool choose(const cmd_operands *operands, bool chosen[N_EXPERIMENTS])
{
    if (operands->count == 0) {
        cmd_wrong_use(&cmd_reproduce, "which experiment?");
        return false;
    }
    for (int i = 0; i < operands->count; i++) {
        bool all = strcmp(operands->items[i], "all") == 0, found = all;
        for (int k = 0; k < N_EXPERIMENTS; k++) {
            bool this = strcmp(operands->items[i], experiments[k]->name) == 0;
            chosen[k] = chosen[k] || all || this;
            found = found || this;
        }
        if (!found) {
            cmd_wrong_use(&cmd_reproduce, "there is no experiment \"%s\"", operands->items[i]);
            return false;
        }
    }
    return true;
}

static int complete(reproduce_options *o, reproduce *r)
{
    const char *names;
    const reproduce_scale *scale =
        reproduce_scale_find(o->scale == NULL ? "tiny" : o->scale, &names);
    if (scale == NULL)
        return cmd_wrong_use(&cmd_reproduce, "--scale: \"%s\" is not %s", o->scale, names);
    r->scale = *scale;
    if (o->seeds == 0)
        o->seeds = 1;
    const char *unknown = reproduce_unknown_row(o->rows);
    if (unknown != NULL)
        return cmd_wrong_use(&cmd_reproduce, "--rows: the ladder has no row \"%.*s\"; it has %s",
                             (int)strcspn(unknown, ","), unknown, reproduce_rows());
    if (o->steps > 0)
        r->scale.steps = r->scale.context_steps = o->steps;
    if (o->context > 0)
        r->scale.context = o->context;
    if (o->contexts.count >= REPRODUCE_MOST)
        return cmd_wrong_use(&cmd_reproduce, "--contexts: at most %d", REPRODUCE_MOST - 1);
    for (int64_t i = 0; i < o->contexts.count; i++) {
        if (o->contexts.list[i] < 16)
            return cmd_wrong_use(&cmd_reproduce, "--contexts: %d is less than 16",
                                 o->contexts.list[i]);
        r->scale.contexts[i] = r->scale.latencies[i] = o->contexts.list[i];
        r->scale.contexts[i + 1] = r->scale.latencies[i + 1] = 0;
    }
    return -1;
}

static int finish(const reproduce *r, const bool *chosen)
{
    json_t *files = json_object();
    for (int i = 0; i < N_EXPERIMENTS; i++) {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s/%s.json", r->out, experiments[i]->name);
        if (chosen[i])
            json_object_set_new(files, experiments[i]->name, json_load_file(path, 0, NULL));
    }
    return cmd_print_json(
        json_pack("{s:s, s:s, s:o}", "scale", r->scale.name, "out", r->out, "experiments", files));
}

static int reproduce_command(int argc, char **argv)
{
    cmd_common common;
    cmd_operands operands;
    reproduce_options o = {.dtype = HLO_F32};
    bool chosen[N_EXPERIMENTS] = {false};
    reproduce r = {.common = &common, .options = &o, .line = progress_begin()};
    int code = cmd_parse(&cmd_reproduce, argc, argv, &common, &o, &operands);
    if (code < 0 && !choose(&operands, chosen))
        code = CMD_WRONG_USE;
    if (code < 0)
        code = complete(&o, &r);
    if (code < 0) {
        stopping_watch();
        pjrt_status *st = reproduce_data(&r);
        for (int i = 0; st == NULL && i < N_EXPERIMENTS; i++) {
            if (chosen[i])
                st = run_experiment(&r, experiments[i]);
        }
        progress_end(&r.line);
        code = st != NULL ? cmd_fail(&common, st) : CMD_OK;
        if (code == CMD_OK && common.json && !o.commands)
            code = finish(&r, chosen);
        ttt_devices_free(r.devices);
    }
    free(o.contexts.list);
    return code;
}
