/* Figures and settings of runs, as JSON. */
#include "tools/report/report.h"

#include "tools/report/inspect.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char *report_state(const report_run *run)
{
    if (run->going)
        return "still going";
    return run->steps > 0 && run->step >= run->steps ? "finished" : "not finished";
}

double report_tokens_per_second(const report_run *run)
{
    double ms = run->step_ms, tokens = run->first_tokens;
    return ms > 0 && tokens > 0 ? tokens * run->counted_steps / (ms / 1e3) : NAN;
}

double report_mfu(const report_run *run)
{
    return run->mfu_steps_ms > 0 ? run->mfu_ms / run->mfu_steps_ms : NAN;
}

const json_t *report_seconds(const report_run *run)
{
    const json_t *seconds = json_object_get(run->training, "seconds");
    return json_object_size(seconds) == 0 ? NULL : seconds;
}

double report_goodput(const report_run *run)
{
    const json_t *seconds = report_seconds(run);
    double all = 0;
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)seconds, name, value)
    {
        all += json_number_value(value);
    }
    return all > 0 ? json_number_value(json_object_get(seconds, "compute")) / all : NAN;
}

/* ---- settings ---- */

static void flatten(json_t *all, const char *prefix, const json_t *object, int depth)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        char name[256];
        snprintf(name, sizeof name, "%s%s%s", prefix, *prefix == '\0' ? "" : ".", key);
        if (json_is_object(value) && depth < 4) {
            flatten(all, name, value, depth + 1);
            continue;
        }
        char digits[64];
        const char *text = inspect_value_text(key, value);
        if (json_is_real(value)) { /* all digits: what differs must show */
            snprintf(digits, sizeof digits, "%.9g", json_real_value(value));
            text = digits;
        }
        json_object_set_new(all, name, json_string(text));
    }
}

json_t *report_settings(const report_run *run)
{
    static const char *const of_training[] = {"mesh", "compute", "accumulation"};
    static const char *const of_environment[] = {"version",   "platform", "device",   "devices",
                                                 "processes", "data",     "tokenizer"};
    json_t *all = json_object(), *some = json_object();
    const json_t *last = json_object_get(run->environment, "last");
    const json_t *data = json_object_get(run->training, "data");
    flatten(all, "config", run->config, 0);
    flatten(all, "recipe", run->recipe, 0);
    for (size_t i = 0; i < sizeof of_training / sizeof *of_training; i++)
        json_object_set(some, of_training[i], json_object_get(run->training, of_training[i]));
    json_object_set(some, "resets", json_object_get(data, "resets"));
    for (size_t i = 0; i < sizeof of_environment / sizeof *of_environment; i++)
        json_object_set(some, of_environment[i], json_object_get(last, of_environment[i]));
    flatten(all, "run", some, 0);
    json_decref(some);
    return all;
}

static bool differs(json_t *const *settings, size_t count, const char *name)
{
    const json_t *first = json_object_get(settings[0], name);
    for (size_t i = 1; i < count; i++) {
        const json_t *other = json_object_get(settings[i], name);
        if ((first == NULL) != (other == NULL) || (first != NULL && !json_equal(first, other)))
            return true;
    }
    return false;
}

static void add_difference(json_t *rows, json_t *const *settings, size_t count, const char *name)
{
    json_t *values = json_array();
    for (size_t i = 0; i < count; i++) {
        json_t *value = json_object_get(settings[i], name);
        json_array_append_new(values, value == NULL ? json_null() : json_incref(value));
    }
    json_array_append_new(rows, json_pack("{s:s, s:o}", "setting", name, "values", values));
}

/* In the order of the first run that has the setting. */
json_t *report_differences(const report *r)
{
    json_t *settings[REPORT_RUNS], *rows = json_array();
    const char *name;
    json_t *value;
    for (size_t i = 0; i < r->n_runs; i++)
        settings[i] = report_settings(r->runs[i]);
    for (size_t i = 0; i < r->n_runs; i++)
        json_object_foreach(settings[i], name, value)
        {
            bool before = false;
            for (size_t k = 0; k < i; k++)
                before = before || json_object_get(settings[k], name) != NULL;
            if (!before && differs(settings, r->n_runs, name))
                add_difference(rows, settings, r->n_runs, name);
        }
    for (size_t i = 0; i < r->n_runs; i++)
        json_decref(settings[i]);
    return rows;
}

/* ---- figures ---- */

static json_t *words(const char *text)
{
    json_t *json = json_string(text); /* NULL for what is no UTF-8, as names of folders may be */
    return json == NULL ? json_null() : json;
}

static json_t *evaluation_json(const report_evaluation *e)
{
    double perplexity = exp(e->loss);
    return json_pack("{s:I, s:o, s:o, s:o, s:o}", "step", (json_int_t)e->step, "loss",
                     cmd_json_number(e->loss), "error", cmd_json_number(e->error), "perplexity",
                     cmd_json_number(perplexity), "perplexity_error",
                     cmd_json_number(perplexity * e->error));
}

static json_t *evaluations_json(const report_run *run)
{
    json_t *list = json_array();
    for (size_t i = 0; i < run->n_evaluations; i++)
        json_array_append_new(list, evaluation_json(&run->evaluations[i]));
    return list;
}

static json_t *inner_json(const report_run *run)
{
    static const char *const names[REPORT_INNERS] = {"w0", "mini_batch", "before", "after"};
    json_t *all = json_object();
    for (int which = 0; which < REPORT_INNERS && run->n_inner_layers > 0; which++) {
        json_t *list = json_array();
        for (size_t i = 0; i < run->n_inner_layers; i++)
            json_array_append_new(list, cmd_json_number(run->inner_layers[which][i]));
        json_object_set_new(all, names[which], list);
    }
    return all;
}

static json_t *samples_json(const report_run *run)
{
    json_t *list = json_array();
    for (size_t i = 0; i < run->n_samples; i++)
        json_array_append_new(
            list, json_pack("{s:o, s:o, s:s}", "prompt", words(run->samples[i].prompt), "text",
                            words(run->samples[i].text), "end", run->samples[i].end));
    return list;
}

static json_t *run_json(const report_run *run)
{
    json_t *restarts = json_array(), *notes = json_array();
    for (size_t i = 0; i < run->n_restarts; i++)
        json_array_append_new(restarts, json_integer((json_int_t)run->restarts[i]));
    for (size_t i = 0; i < run->n_notes; i++)
        json_array_append_new(notes, words(run->notes[i]));
    bool evaluated = run->seen_evaluations > 0;
    json_t *json = json_pack(
        "{s:o, s:o, s:s, s:I, s:I, s:I, s:f, s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:I, s:o, s:o}",
        "run", words(run->path), "name", words(run->name), "state", report_state(run), "step",
        (json_int_t)run->step, "steps", (json_int_t)run->steps, "tokens", (json_int_t)run->tokens,
        "seconds", run->elapsed, "training_loss", cmd_json_number(run->train_loss), "validation",
        evaluated ? evaluation_json(&run->last) : json_null(), "best_validation",
        evaluated ? evaluation_json(&run->best) : json_null(), "tokens_per_second",
        cmd_json_number(report_tokens_per_second(run)), "mfu", cmd_json_number(report_mfu(run)),
        "memory_bytes", (json_int_t)run->memory, "skipped_steps", (json_int_t)run->skipped,
        "steps_not_finite", (json_int_t)run->bad_steps, "restarts", restarts, "goodput",
        cmd_json_number(report_goodput(run)));
    const json_t *seconds = report_seconds(run);
    const json_t *parameters = json_object_get(run->network, "parameters");
    json_object_set(json, "seconds_by_part", (json_t *)seconds);
    json_object_set(json, "parameters", (json_t *)parameters);
    json_object_set_new(json, "evaluations", evaluations_json(run));
    json_object_set_new(json, "inner_loss", inner_json(run));
    json_object_set_new(json, "samples", samples_json(run));
    json_object_set_new(json, "notes", notes);
    return json;
}

json_t *report_figures(const report *r)
{
    json_t *runs = json_array();
    for (size_t i = 0; i < r->n_runs; i++)
        json_array_append_new(runs, run_json(r->runs[i]));
    return json_pack("{s:o, s:o}", "runs", runs, "differences", report_differences(r));
}
