/* ttt reproduce: the paper's tables and figures, each by one command. */
#include "tools/reproduce.h"
#include "tools/stopping.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool set_dtype(const char *text, void *field)
{
    return program_set_dtype(text, field) && *(hlo_type *)field != HLO_F64;
}

#define AT(member) offsetof(reproduce_options, member)
static const cmd_option options[] = {
    {"scale", "", CMD_TEXT, AT(scale), 0, NULL},
    {"out", "", CMD_TEXT, AT(out), 0, NULL},
    {"data", "", CMD_TEXT, AT(data), 0, NULL},
    {"corpus", "possible: too many", CMD_CUSTOM, AT(corpus), 0, text_list_add},
    {"seeds", "1 to 16", CMD_NUMBER, AT(seeds), REPRODUCE_MOST_SEEDS, NULL},
    {"steps", "a number of steps", CMD_NUMBER, AT(steps), 1 << 24, NULL},
    {"rows", "", CMD_TEXT, AT(rows), 0, NULL},
    {"contexts", "a list of numbers", CMD_CUSTOM, AT(contexts), 0, int_list_parse},
    {"dtype", "f32 or bf16", CMD_CUSTOM, AT(dtype), 0, set_dtype},
    {"mesh", "", CMD_TEXT, AT(mesh), 0, NULL},
    {"cache", "", CMD_TEXT, AT(cache), 0, NULL},
    {"commands", "", CMD_FLAG, AT(commands), 0, NULL},
};
static const char help[] =
    "usage: ttt reproduce EXPERIMENT … [options]\n"
    "\n"
    "Tables and figures of the TTT paper, at a size that this machine finishes. Each experiment\n"
    "leaves EXPERIMENT.csv, .json, .svg and .md, a page that says what the paper shows, what was\n"
    "run, what came out and whether the order agrees. A run that was cut, by Ctrl-C or worse, goes\n"
    "on with the same command; experiments share runs, and what is there is not done again.\n"
    "\n"
    "  ladder             from linear attention to TTT-Linear, one change a row\n"
    "  minibatch          perplexity and forward time against the size of mini-batches\n"
    "  context            perplexity against context: Transformer, Mamba, TTT-Linear, TTT-MLP\n"
    "  position           perplexity by the index of the token, at the longest context\n"
    "  innerloop          the learners' own loss by token and layer: W0, before, after\n"
    "  latency            time of a token, read and made, against context and batch\n"
    "  dualprimal         training time of the dual form against the primal form\n"
    "  all                one after another\n"
    "\n"
    "  --scale S          tiny (default; the ladder takes half an hour on two cores), small (a\n"
    "                     night), paper (the recipe of 125M on a pod; needs --data)\n"
    "  --out DIR          where everything goes (reproduce/SCALE)\n"
    "  --corpus FILE      text to learn from, .txt or .jsonl; may be repeated. Default: the King\n"
    "                     James text of Debian's bible-kjv-text; a tokenizer is trained on it\n"
    "  --data DIR         tokens of ttt data prepare instead\n"
    "  --seeds N          runs of each network (1); results are means, ± their deviation\n"
    "  --steps N          steps of each run, instead of the scale's\n"
    "  --rows A,B         of the ladder: linear, improved, equal, w0, norm, mini, rate, mamba\n"
    "  --contexts L       of context and position, instead of the scale's: 128,512,2048\n"
    "  --commands         train nothing: print the commands that would, for machines with many\n"
    "                     devices; the same call without it then finds their runs\n"
    "  --mesh M           over several devices, as ttt train has it; --dtype T: f32 or bf16\n"
    "  --cache DIR        of compiled programs; none\n"
    "  --plugin P         cpu (default), tpu, cuda or a path\n"
    "\n"
    "example: ttt reproduce ladder --scale tiny --seeds 3\n";
static const cmd_spec spec = {"reproduce", help, options, sizeof options / sizeof *options};

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
        cmd_wrong_use(&spec, "which experiment?");
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
            cmd_wrong_use(&spec, "there is no experiment \"%s\"", operands->items[i]);
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
        return cmd_wrong_use(&spec, "--scale: \"%s\" is not %s", o->scale, names);
    r->scale = *scale;
    if (o->seeds == 0)
        o->seeds = 1;
    if (o->steps > 0)
        r->scale.steps = r->scale.context_steps = o->steps;
    if (o->contexts.count >= REPRODUCE_MOST)
        return cmd_wrong_use(&spec, "--contexts: at most %d", REPRODUCE_MOST - 1);
    for (int64_t i = 0; i < o->contexts.count; i++) {
        if (o->contexts.list[i] < 16)
            return cmd_wrong_use(&spec, "--contexts: %d is less than 16", o->contexts.list[i]);
        r->scale.contexts[i] = o->contexts.list[i];
        r->scale.contexts[i + 1] = 0;
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
    return cmd_print_json(json_pack("{s:s, s:s, s:o}", "scale", r->scale.name, "out", r->out,
                                    "experiments", files));
}

int cmd_reproduce(int argc, char **argv)
{
    cmd_common common;
    cmd_operands operands;
    reproduce_options o = {.dtype = HLO_F32};
    bool chosen[N_EXPERIMENTS] = {false};
    reproduce r = {.common = &common, .options = &o, .line = progress_begin()};
    int code = cmd_parse(&spec, argc, argv, &common, &o, &operands);
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
        ttt_place_free(r.place);
    }
    free(o.contexts.list);
    return code;
}
