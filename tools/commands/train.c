/* ttt train: a trainer with its lines for people, its signals and its summary. */
#include "tools/cli/progress.h"
#include "tools/cli/stop_signals.h"
#include "tools/commands/train_options.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- lines -------------------------------------------------------------------------------------
 */

typedef struct showing {
    const train_choices *choices;
    bool json;
    progress_line *bar; /* on a terminal; in a log there are lines enough */
    FILE *log;          /* RUN/log.txt, or NULL */
    double begun;
    int64_t first; /* the step this process began with; -1: not known yet */
} showing;

/* A line on standard output, unless that is for JSON, and in the log. */
__attribute__((format(printf, 2, 3))) static void say(const showing *s, const char *format, ...)
{
    va_list args;
    progress_end(s->bar);
    if (!s->json) {
        va_start(args, format);
        vprintf(format, args);
        va_end(args);
        fflush(stdout);
    }
    if (s->log != NULL) {
        va_start(args, format);
        vfprintf(s->log, format, args);
        va_end(args);
        fflush(s->log);
    }
}

static void draw_bar(const showing *s, const ttt_event *e)
{
    enum { WIDTH = 30 };
    char bar[WIDTH + 1] = {0};
    double done = (double)e->step / (double)e->steps;
    double each = (cmd_seconds() - s->begun) / (double)(e->step - s->first);
    memset(bar, '.', WIDTH);
    memset(bar, '#', (size_t)(done * WIDTH));
    progress_show(s->bar, "[%s] %3.0f%%  %lld/%lld  loss %.4f  %s left", bar, 100 * done,
                  (long long)e->step, (long long)e->steps, e->figures->loss,
                  progress_time(each * (double)(e->steps - e->step)));
}

/* " (+0.52z)", or nothing while it is not known. */
static const char *deviation(double z, char text[24])
{
    text[0] = '\0';
    if (isfinite(z))
        snprintf(text, 24, " (%+.2fz)", z);
    return text;
}

static void show_step(showing *s, const ttt_event *e)
{
    const ttt_step_figures *f = e->figures;
    char loss_z[24], norm_z[24], mfu[32] = "";
    if (s->first < 0) {
        s->first = e->step - 1;
        s->begun = cmd_seconds() - f->seconds;
    }
    if (isfinite(f->mfu))
        snprintf(mfu, sizeof mfu, " | %.1f%% MFU", 100 * f->mfu);
    if (e->step % s->choices->log_every == 0 || e->step == e->steps || e->step == s->first + 1)
        say(s,
            "step %*lld/%lld | loss %.6f%s | norm %.4f%s | lr %.2e | %.2f ms | %.0f tok/s%s | "
            "%s%s\n",
            (int)snprintf(NULL, 0, "%lld", (long long)e->steps), (long long)e->step,
            (long long)e->steps, f->loss, deviation(f->loss_z, loss_z), f->norm,
            deviation(f->norm_z, norm_z), f->rate, 1e3 * f->seconds, f->tokens_per_second, mfu,
            cmd_quantity((double)f->memory, "B"), f->skipped ? " | skipped" : "");
    if (!s->json && s->bar->terminal && progress_due(s->bar))
        draw_bar(s, e);
}

static void show_evaluation(const showing *s, const ttt_event *e)
{
    const ttt_evaluation *v = e->evaluation;
    double before = 0, after = 0;
    say(s, "eval %lld/%lld | validation loss %.4f ± %.4f | perplexity %.3f | %lld tokens in %.1f s",
        (long long)e->step, (long long)e->steps, v->loss, v->error, exp(v->loss),
        (long long)v->tokens, e->seconds);
    for (int64_t l = 0; l < v->layers; l++) {
        for (int64_t k = 0; k < v->time; k++) {
            before += v->inner_loss[(l * 4 + 2) * v->time + k];
            after += v->inner_loss[(l * 4 + 3) * v->time + k];
        }
    }
    double count = (double)(v->layers * v->time);
    if (count > 0)
        say(s, " | inner loss %.4f -> %.4f", before / count, after / count);
    say(s, "\n");
}

static void hear(void *ctx, const ttt_event *e)
{
    showing *s = ctx;
    switch (e->kind) {
    case TTT_EVENT_NOTE:
        say(s, "%s\n", e->text);
        break;
    case TTT_EVENT_STEP:
        show_step(s, e);
        break;
    case TTT_EVENT_EVALUATED:
        show_evaluation(s, e);
        break;
    case TTT_EVENT_SAVED:
        say(s, "saved %s in %.2f s, training stood still for %.3f s\n", e->text, e->seconds,
            e->stall_seconds);
        break;
    }
}

/* ---- plan and summary --------------------------------------------------------------------------
 */

static void show_plan(const showing *s, const ttt_train_plan *p, const ttt_trainer_options *o)
{
    char several[40] = "";
    if (p->processes > 1)
        snprintf(several, sizeof several, " in %d processes", p->processes);
    say(s, "%s, %lld parameters, on %d x %s%s; %s a step of %lld x %lld tokens, %s\n",
        ttt_mixer_name(o->config.mixer), (long long)p->parameters, p->devices, p->device, several,
        cmd_quantity(p->flops_per_token * (double)o->recipe.batch_tokens, "FLOP"),
        (long long)p->batch, (long long)p->time, hlo_type_name(o->compute));
    say(s, "data: %lld samples, %.2f passes in %lld steps\n", (long long)p->samples, p->epochs,
        (long long)o->recipe.steps);
    say(s, "program %s in %.2f s; a device needs %s", p->cached ? "found in the cache" : "compiled",
        p->compile_seconds, cmd_quantity((double)p->needed, "B"));
    say(s, " (state and batch %s, temporaries %s)", cmd_quantity((double)p->memory.arguments, "B"),
        cmd_quantity((double)p->memory.temp, "B"));
    if (p->limit > 0)
        say(s, " of %s", cmd_quantity((double)p->limit, "B"));
    say(s, "\n");
    if (p->peak > 0)
        say(s, "peak %s (%s): at most %.0f tok/s\n", cmd_quantity(p->peak, "FLOP/s"),
            p->peak_measured ? "measured" : "by the maker", p->peak / p->flops_per_token);
}

static json_t *plan_json(const ttt_train_plan *p)
{
    return json_pack(
        "{s:I, s:I, s:I, s:I, s:f, s:I, s:i, s:i, s:s, s:I, s:I, s:I, s:I, s:f, s:o, s:o, "
        "s:f, s:b}",
        "parameters", (json_int_t)p->parameters, "batch", (json_int_t)p->batch, "context",
        (json_int_t)p->time, "samples", (json_int_t)p->samples, "epochs", p->epochs, "step",
        (json_int_t)p->step, "devices", p->devices, "processes", p->processes, "device", p->device,
        "argument_bytes", (json_int_t)p->memory.arguments, "temp_bytes", (json_int_t)p->memory.temp,
        "needed_bytes", (json_int_t)p->needed, "limit_bytes", (json_int_t)p->limit,
        "flops_per_token", p->flops_per_token, "peak_flops",
        p->peak > 0 ? json_real(p->peak) : json_null(), "most_tokens_per_second",
        p->peak > 0 ? json_real(p->peak / p->flops_per_token) : json_null(), "compile_seconds",
        p->compile_seconds, "cached", p->cached);
}

static int show_dry_run(const showing *s, const train_merged *m, const ttt_train_plan *plan)
{
    const char *name;
    json_t *pair;
    if (s->json)
        return cmd_print_json(
            json_pack("{s:O, s:o}", "settings", m->fields, "plan", plan_json(plan)));
    json_object_foreach(m->fields, name, pair)
    {
        char *value = json_dumps(json_array_get(pair, 0), JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
        say(s, "%-20s %-12s %s\n", name, value == NULL ? "?" : value,
            json_string_value(json_array_get(pair, 1)));
        free(value);
    }
    show_plan(s, plan, &m->options);
    return CMD_OK;
}

static json_t *goodput_json(const ttt_goodput *g)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "compute", g->compute, "compile",
                     g->compile, "data", g->data, "save", g->save, "restore", g->restore,
                     "evaluate", g->evaluate, "lost", g->lost, "other", g->other);
}

static int show_summary(const showing *s, const ttt_train_summary *u, const ttt_train_plan *plan)
{
    const ttt_goodput *g = &u->goodput;
    double all = ttt_goodput_total(g) / 100, rate = (double)(plan->batch * plan->time);
    say(s, "%s at step %lld of %lld in %s; %lld skipped\n", u->stopped ? "stopped" : "done",
        (long long)u->step, (long long)u->steps, progress_time(u->seconds), (long long)u->skipped);
    say(s,
        "goodput %.1f%% compute, %.1f%% compile, %.1f%% data wait, %.1f%% checkpoints, %.1f%% "
        "restore, %.1f%% evaluation, %.1f%% lost work, %.1f%% other\n",
        g->compute / all, g->compile / all, g->data / all, g->save / all, g->restore / all,
        g->evaluate / all, g->lost / all, g->other / all);
    if (u->checkpoint[0] != '\0')
        say(s, "model: %s\n", u->checkpoint);
    if (!s->json)
        return CMD_OK;
    return cmd_print_json(
        json_pack("{s:I, s:I, s:b, s:I, s:o, s:f, s:o, s:o, s:o, s:s, s:o}", "step",
                  (json_int_t)u->step, "steps", (json_int_t)u->steps, "stopped", u->stopped,
                  "skipped", (json_int_t)u->skipped, "loss", cmd_json_number(u->loss), "seconds",
                  u->seconds, "step_seconds", cmd_json_number(u->step_seconds), "tokens_per_second",
                  cmd_json_number(rate / u->step_seconds), "goodput", goodput_json(g), "checkpoint",
                  u->checkpoint, "plan", plan_json(plan)));
}

/* ---- the command -------------------------------------------------------------------------------
 */

static int check_use(const cmd_operands *operands, const train_choices *c)
{
    if (operands->count > 0)
        return cmd_wrong_use(&cmd_train, "what is \"%s\"?", operands->items[0]);
    if (c->data == NULL)
        return cmd_wrong_use(&cmd_train, "--data is missing: a folder of ttt data prepare");
    if (c->run == NULL)
        return cmd_wrong_use(&cmd_train, "--run is missing: the folder to train in");
    if (c->resume != NULL && strcmp(c->resume, "auto") != 0)
        return cmd_wrong_use(&cmd_train, "--resume is auto or not there");
    return -1;
}

/* The whole command, to be recorded: argv of a subcommand starts after "ttt". */
typedef struct recorded_command {
    char **argv;
    int argc;
} recorded_command;

static recorded_command copy_command(int argc, char **argv)
{
    static char name[] = "ttt";
    char **copy = calloc((size_t)argc + 2, sizeof *copy);
    if (copy == NULL)
        return (recorded_command){0};
    copy[0] = name;
    memcpy(copy + 1, argv, (size_t)argc * sizeof *copy);
    return (recorded_command){copy, argc + 1};
}

static FILE *open_log(const char *run)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/log.txt", run) >= (int)sizeof path)
        return NULL;
    return fopen(path, "a");
}

/* The first of several processes alone has anything to say. */
static int train(const train_choices *c, const cmd_common *common, train_merged *m)
{
    progress_line bar = progress_begin();
    bool speaks = ttt_job_rank(m->options.job) == 0;
    showing s = {.choices = c, .json = common->json, .bar = &bar, .first = -1};
    ttt_trainer *trainer;
    ttt_train_summary summary;
    char cache[PATH_MAX];
    m->options.hear = hear;
    m->options.ctx = &s;
    m->options.stop = &stopping;
    m->options.cache = cmd_program_cache(c->cache, cache);
    stopping_watch();
    pjrt_status *st = ttt_trainer_new(&m->options, &trainer);
    if (st != NULL)
        return cmd_fail(common, st);
    const ttt_train_plan *plan = ttt_trainer_plan(trainer);
    int code = CMD_OK;
    if (c->dry_run) {
        if (speaks)
            code = show_dry_run(&s, m, plan);
    } else {
        s.log = speaks ? open_log(c->run) : NULL;
        if (speaks)
            show_plan(&s, plan, &m->options);
        st = ttt_trainer_run(trainer, &summary);
        progress_end(&bar);
        if (st == NULL && speaks)
            code = show_summary(&s, &summary, plan);
        if (st != NULL && s.log != NULL)
            fprintf(s.log, "%s\n", pjrt_status_text(st));
        if (s.log != NULL)
            fclose(s.log);
    }
    if (st != NULL) {
        code = cmd_fail(common, st);
        world_abandon(m->options.job);
    }
    ttt_trainer_free(trainer);
    return code;
}

/* With all processes of the job there. */
static int join_and_train(const train_choices *c, cmd_common *common,
                          const recorded_command *command)
{
    train_merged merged = {0};
    ttt_job *job = NULL;
    pjrt_status *st = world_join(&c->job, common, &job);
    if (st == NULL)
        st = train_merge(c, common, &merged);
    merged.options.argv = command->argv;
    merged.options.argc = command->argc;
    merged.options.job = job;
    int code = st == NULL ? train(c, common, &merged) : cmd_fail(common, st);
    if (st != NULL)
        world_abandon(job);
    train_merged_free(&merged);
    world_leave(job);
    return code;
}

int train_command(int argc, char **argv)
{
    cmd_common common;
    cmd_operands operands;
    train_choices chosen = TRAIN_CHOICES;
    recorded_command command = copy_command(argc, argv);
    int code = cmd_parse(&cmd_train, argc, argv, &common, &chosen, &operands);
    if (code < 0)
        code = check_use(&operands, &chosen);
    if (code < 0)
        code = world_check_use(&cmd_train, &chosen.job);
    if (code < 0)
        code = join_and_train(&chosen, &common, &command);
    free(command.argv);
    return code;
}
