/* The page of a report: one file that loads nothing, for phones, desks and paper. */
#include "tools/report/chart.h"
#include "tools/report/inspect.h"
#include "tools/report/report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { WORDS = 4000, SAMPLE = 20000 };

static const char style[] =
    "<style>\n"
    ":root{color-scheme:light dark;--ink:#1c2430;--soft:#55606f;--page:#fff;--card:#f4f6f9;"
    "--edge:#dce3ec}\n"
    "@media (prefers-color-scheme:dark){:root{--ink:#e6ebf2;--soft:#a9b4c4;--page:#10151b;"
    "--card:#1a212a;--edge:#2c3643}}\n"
    "*{box-sizing:border-box}\n"
    "body{margin:0 auto;max-width:72rem;padding:1rem;background:var(--page);color:var(--ink);"
    "font:16px/1.5 system-ui,-apple-system,'Segoe UI',sans-serif}\n"
    "h1{font-size:1.6rem;line-height:1.2;margin:.4rem 0 .2rem;overflow-wrap:anywhere}\n"
    "h2{font-size:1.2rem;margin:2.2rem 0 .6rem;padding-top:.6rem;border-top:1px solid "
    "var(--edge)}\n"
    "h3{font-size:1rem;margin:1.2rem 0 .3rem;overflow-wrap:anywhere}\n"
    "p{margin:.3rem 0}.soft,.lead,figcaption{color:var(--soft)}a{color:inherit}\n"
    "nav{display:flex;flex-wrap:wrap;gap:.1rem 1rem;margin:.6rem 0}\n"
    ".cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(9.5rem,46%),1fr));"
    "gap:.6rem;margin:1rem 0;padding:0;list-style:none}\n"
    ".cards li{background:var(--card);border-radius:.6rem;padding:.6rem .8rem}\n"
    ".cards b{display:block;font-size:1.2rem;font-weight:650;line-height:1.25;"
    "font-variant-numeric:tabular-nums}\n"
    ".cards small{font-size:.7em;font-weight:400;white-space:nowrap}\n"
    ".cards span{color:var(--soft);font-size:.85rem;display:block}\n"
    ".charts{display:grid;gap:.8rem 1.4rem;"
    "grid-template-columns:repeat(auto-fill,minmax(min(27rem,100%),1fr))}\n"
    ".small.charts{grid-template-columns:repeat(auto-fill,minmax(min(16rem,100%),1fr))}\n"
    "figure{margin:0;min-width:0;break-inside:avoid}figure svg{display:block}\n"
    ".notes{background:var(--card);border-left:4px solid #c47f00;border-radius:.3rem;"
    "padding:.5rem .9rem;margin:.8rem 0}.notes ul{margin:0;padding-left:1.1rem}\n"
    ".notes li{overflow-wrap:anywhere}\n"
    ".bar{display:flex;height:1.4rem;border-radius:.4rem;overflow:hidden;background:var(--card);"
    "margin:.3rem 0}.bar i{background:var(--k);min-width:1px}\n"
    ".key{display:flex;flex-wrap:wrap;gap:.1rem 1.1rem;list-style:none;margin:.2rem 0 .6rem;"
    "padding:0;font-size:.9rem;color:var(--soft)}\n"
    ".key i,th i{display:inline-block;width:.75rem;height:.75rem;border-radius:.2rem;"
    "margin-right:.4rem;background:var(--k)}\n"
    ".bar,.key i,th i{-webkit-print-color-adjust:exact;print-color-adjust:exact}\n"
    ".wide{overflow-x:auto}table{border-collapse:collapse;font-size:.9rem;"
    "font-variant-numeric:tabular-nums}\n"
    "th,td{text-align:left;padding:.3rem 1.2rem .3rem 0;border-bottom:1px solid var(--edge);"
    "vertical-align:top;max-width:22rem;overflow-wrap:anywhere}\n"
    "th{font-weight:600}tbody th{color:var(--soft);font-weight:400}.n{text-align:right}\n"
    "blockquote{margin:.5rem 0;padding:.7rem .9rem;background:var(--card);border-radius:.6rem;"
    "white-space:pre-wrap;overflow-wrap:anywhere;break-inside:avoid}\n"
    "blockquote .soft{font-style:normal}\n"
    "dl{display:grid;grid-template-columns:minmax(0,max-content) minmax(0,1fr);gap:.15rem 1rem;"
    "margin:.4rem 0;font-size:.9rem}\n"
    "dt{color:var(--soft);overflow-wrap:anywhere}dd{margin:0;overflow-wrap:anywhere}\n"
    ".columns{display:grid;gap:0 2.5rem;"
    "grid-template-columns:repeat(auto-fill,minmax(min(20rem,100%),1fr))}\n"
    "code{font:.85rem/1.5 ui-monospace,monospace;overflow-wrap:anywhere}\n"
    "details{margin:.6rem 0}summary{cursor:pointer;font-weight:600}\n"
    "footer{margin-top:2rem;font-size:.85rem;color:var(--soft)}\n"
    "@media print{body{max-width:none;padding:0;font-size:11pt}nav{display:none}"
    "details::details-content{content-visibility:visible;height:auto}}\n"
    "</style>\n";

static void add_all(markup *m, const char *text)
{
    m->failed = m->failed || !text_buffer_add(&m->buffer, text, strlen(text));
}

static void add_words(markup *m, const char *tag, const char *text)
{
    markup_add(m, "<%s>", tag);
    markup_words(m, text == NULL ? "–" : text, WORDS);
    markup_add(m, "</%.*s>", (int)strcspn(tag, " "), tag);
}

static const char *value_of(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text == NULL ? "" : text;
}

/* ---- figures in words ---- */

enum { TEXT = 96 };

/* "1 h 25 min", "2.3 d": for times that people wait. */
static void long_time(double seconds, char text[TEXT])
{
    if (seconds < 120)
        snprintf(text, TEXT, "%.0f s", seconds);
    else if (seconds < 7200)
        snprintf(text, TEXT, "%.0f min", seconds / 60);
    else if (seconds < 2 * 86400)
        snprintf(text, TEXT, "%.0f h %.0f min", floor(seconds / 3600),
                 floor(fmod(seconds, 3600) / 60));
    else
        snprintf(text, TEXT, "%.1f d", seconds / 86400);
}

static void with_error(double value, double error, int digits, char text[TEXT])
{
    if (isfinite(error))
        snprintf(text, TEXT, "%.*f ± %.*f", digits, value, digits, error);
    else
        snprintf(text, TEXT, "%.*f", digits, value);
}

typedef enum figure {
    LOSS,
    PERPLEXITY,
    BEST,
    TRAINING,
    STEPS,
    TOKENS,
    TIME,
    SPEED,
    MFU,
    GOODPUT,
    MEMORY,
    SKIPPED,
    PARAMETERS,
    FIGURES
} figure;

static const char *const figure_names[FIGURES] = {"validation loss",
                                                  "perplexity",
                                                  "best validation",
                                                  "training loss, late",
                                                  "steps",
                                                  "tokens seen",
                                                  "time",
                                                  "tokens/s",
                                                  "MFU",
                                                  "goodput",
                                                  "memory at most",
                                                  "skipped steps",
                                                  "parameters"};

/* One figure of a run: the figure itself, and a few words below it. Empty: it is not known. */
static void figure_words(const report_run *run, figure which, char value[TEXT], char more[TEXT])
{
    double ratio = exp(run->last.loss);
    const json_t *parameters = json_object_get(run->network, "parameters");
    bool evaluated = run->seen_evaluations > 0;
    value[0] = more[0] = '\0';
    switch (which) {
    case LOSS:
        if (evaluated)
            with_error(run->last.loss, run->last.error, 4, value);
        snprintf(more, TEXT, evaluated ? "nats a token, step %.0f" : "no evaluation yet",
                 run->last.step);
        break;
    case PERPLEXITY:
        if (evaluated)
            with_error(ratio, ratio * run->last.error, 3, value);
        break;
    case BEST:
        if (evaluated) {
            snprintf(value, TEXT, "%.4f", run->best.loss);
            snprintf(more, TEXT, "at step %.0f", run->best.step);
        }
        break;
    case TRAINING:
        if (isfinite(run->train_loss))
            snprintf(value, TEXT, "%.4f", run->train_loss);
        break;
    case STEPS:
        snprintf(value, TEXT, "%.0f", run->step);
        if (run->steps > 0)
            snprintf(more, TEXT, "of %.0f, %s", run->steps, report_state(run));
        break;
    case TOKENS:
        snprintf(value, TEXT, "%s", cmd_quantity(run->tokens, ""));
        break;
    case TIME:
        long_time(run->elapsed, value);
        if (run->n_restarts > 0)
            snprintf(more, TEXT, "%zu restart%s", run->n_restarts, run->n_restarts == 1 ? "" : "s");
        break;
    case SPEED:
        if (isfinite(report_tokens_per_second(run)))
            snprintf(value, TEXT, "%.0f", report_tokens_per_second(run));
        if (run->counted_steps > 0)
            snprintf(more, TEXT, "%s a step",
                     cmd_duration(run->step_ms / run->counted_steps / 1e3));
        break;
    case MFU:
        if (isfinite(report_mfu(run)))
            snprintf(value, TEXT, "%.1f%%", 100 * report_mfu(run));
        break;
    case GOODPUT:
        if (isfinite(report_goodput(run)))
            snprintf(value, TEXT, "%.1f%%", 100 * report_goodput(run));
        snprintf(more, TEXT, "computing steps");
        break;
    case MEMORY:
        if (run->memory > 0)
            snprintf(value, TEXT, "%s", cmd_quantity(run->memory, "B"));
        break;
    case SKIPPED:
        snprintf(value, TEXT, "%.0f", run->skipped);
        if (run->bad_steps > 0)
            snprintf(more, TEXT, "%.0f with a loss not finite", run->bad_steps);
        break;
    case PARAMETERS:
        if (parameters != NULL)
            snprintf(value, TEXT, "%s", cmd_quantity(json_number_value(parameters), ""));
        snprintf(more, TEXT, "%.60s", value_of(json_object_get(run->network, "network"), "mixer"));
        break;
    case FIGURES:
        break;
    }
}

/* What follows the ± is smaller, and stays together. */
static void add_value(markup *m, char value[TEXT])
{
    char *error = strstr(value, " ± ");
    if (error != NULL)
        *error = '\0';
    markup_add(m, "<b>");
    markup_words(m, value[0] == '\0' ? "–" : value, TEXT);
    if (error != NULL) {
        markup_add(m, " <small>± ");
        markup_words(m, error + strlen(" ± "), TEXT);
        markup_add(m, "</small>");
    }
    markup_add(m, "</b>");
}

static void add_cards(markup *m, const report_run *run)
{
    char value[TEXT], more[TEXT];
    markup_add(m, "<ul class=\"cards\">\n");
    for (figure which = 0; which < FIGURES; which++) {
        figure_words(run, which, value, more);
        bool last_is_best = which == BEST && run->best.step == run->last.step;
        if ((value[0] == '\0' && which != LOSS) || last_is_best)
            continue;
        markup_add(m, "<li>");
        add_words(m, "span", figure_names[which]);
        add_value(m, value);
        if (more[0] != '\0')
            add_words(m, "span", more);
        markup_add(m, "</li>\n");
    }
    markup_add(m, "</ul>\n");
}

static void add_run_heads(markup *m, const report *r, const char *first)
{
    markup_add(m, "<thead><tr>");
    add_words(m, "th scope=\"col\"", first);
    for (size_t i = 0; i < r->n_runs; i++) {
        markup_add(m, "<th scope=\"col\"><i class=\"%s\"></i>", chart_colour_class((int)i + 1));
        markup_words(m, r->runs[i]->name, WORDS);
        markup_add(m, "</th>");
    }
    markup_add(m, "</tr></thead><tbody>\n");
}

static void add_figure_table(markup *m, const report *r)
{
    char value[TEXT], more[TEXT];
    markup_add(m, "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"figures of all "
                  "runs\"><table>");
    add_run_heads(m, r, "");
    for (figure which = 0; which < FIGURES; which++) {
        markup_add(m, "<tr>");
        add_words(m, "th scope=\"row\"", figure_names[which]);
        for (size_t i = 0; i < r->n_runs; i++) {
            figure_words(r->runs[i], which, value, more);
            bool says = which == BEST || which == STEPS || which == SKIPPED || which == PARAMETERS;
            markup_add(m, "<td>");
            markup_words(m, value[0] == '\0' ? "–" : value, WORDS);
            if (says && value[0] != '\0' && more[0] != '\0') {
                markup_add(m, " <span class=\"soft\">");
                markup_words(m, more, WORDS);
                markup_add(m, "</span>");
            }
            markup_add(m, "</td>");
        }
        markup_add(m, "</tr>\n");
    }
    markup_add(m, "</tbody></table></div>\n");
}

static void add_differences(markup *m, const report *r)
{
    json_t *rows = report_differences(r);
    size_t i, k;
    const json_t *row, *value;
    markup_add(m, "<section><h2 id=\"differences\">What differs</h2>\n");
    if (json_array_size(rows) == 0) {
        markup_add(m, "<p>Nothing in the settings of these runs.</p></section>\n");
        json_decref(rows);
        return;
    }
    markup_add(m, "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"settings that "
                  "differ\"><table>");
    add_run_heads(m, r, "setting");
    json_array_foreach(rows, i, row)
    {
        markup_add(m, "<tr>");
        add_words(m, "th scope=\"row\"", value_of(row, "setting"));
        json_array_foreach(json_object_get(row, "values"), k, value)
        {
            add_words(m, "td", json_string_value(value));
        }
        markup_add(m, "</tr>\n");
    }
    markup_add(m, "</tbody></table></div></section>\n");
    json_decref(rows);
}

/* ---- where time went ---- */

/* Computing is blue, what was lost is red-brown, the rest as it comes. */
static int part_colour(size_t i)
{
    static const int colours[] = {1, 2, 6, 3, 5, 4, 8, 7};
    return colours[i % (sizeof colours / sizeof *colours)];
}

#define SEEN 5e-4 /* a share below this is not shown */

static void add_goodput(markup *m, const report *r, const report_run *run)
{
    const json_t *seconds = report_seconds(run);
    const char *name;
    json_t *value;
    double all = 0;
    char text[TEXT];
    size_t i = 0;
    if (seconds == NULL)
        return;
    json_object_foreach((json_t *)seconds, name, value)
    {
        all += json_number_value(value);
    }
    if (r->n_runs > 1)
        add_words(m, "h3", run->name);
    long_time(all, text);
    markup_add(m, "<p>%.1f%% of %s went into computing steps, by the newest checkpoint.</p>\n",
               100 * report_goodput(run), text);
    markup_add(m, "<div class=\"bar\" aria-hidden=\"true\">");
    json_object_foreach((json_t *)seconds, name, value)
    {
        if (all > 0 && json_number_value(value) >= SEEN * all)
            markup_add(m, "<i class=\"%s\" style=\"flex:%.4f\"></i>",
                       chart_colour_class(part_colour(i)), json_number_value(value) / all);
        i++;
    }
    markup_add(m, "</div>\n<ul class=\"key\">");
    i = 0;
    json_object_foreach((json_t *)seconds, name, value)
    {
        int colour = part_colour(i++);
        if (json_number_value(value) < SEEN * all)
            continue;
        markup_add(m, "<li><i class=\"%s\"></i>", chart_colour_class(colour));
        markup_words(m, name, WORDS);
        markup_add(m, " %s, %.1f%%</li>", cmd_duration(json_number_value(value)),
                   100 * json_number_value(value) / all);
    }
    markup_add(m, "</ul>\n");
}

/* ---- parts of the page ---- */

static void add_notes(markup *m, const report *r)
{
    size_t notes = 0;
    for (size_t i = 0; i < r->n_runs; i++)
        notes += r->runs[i]->n_notes;
    if (notes == 0)
        return;
    markup_add(m, "<aside class=\"notes\" aria-label=\"notes\"><ul>\n");
    for (size_t i = 0; i < r->n_runs; i++)
        for (size_t k = 0; k < r->runs[i]->n_notes; k++) {
            markup_add(m, "<li>");
            if (r->n_runs > 1) {
                markup_words(m, r->runs[i]->name, WORDS);
                markup_add(m, ": ");
            }
            markup_words(m, r->runs[i]->notes[k], WORDS);
            markup_add(m, "</li>\n");
        }
    markup_add(m, "</ul></aside>\n");
}

static bool any_inner(const report *r)
{
    for (size_t i = 0; i < r->n_runs; i++)
        if (r->runs[i]->n_inner_layers > 0)
            return true;
    return false;
}

static bool any_samples(const report *r)
{
    for (size_t i = 0; i < r->n_runs; i++)
        if (r->runs[i]->n_samples > 0)
            return true;
    return false;
}

static void add_curves(markup *m, const report *r)
{
    markup_add(m, "<section><h2 id=\"curves\">Curves</h2>\n<div class=\"charts\">\n");
    report_draw_losses(m, r);
    report_draw_positions(m, r);
    report_draw_steps(m, r);
    markup_add(m, "</div></section>\n");
}

static bool any_seconds(const report *r)
{
    for (size_t i = 0; i < r->n_runs; i++)
        if (report_seconds(r->runs[i]) != NULL)
            return true;
    return false;
}

static void add_time(markup *m, const report *r)
{
    if (!any_seconds(r))
        return;
    markup_add(m, "<section><h2 id=\"time\">Where time went</h2>\n");
    for (size_t i = 0; i < r->n_runs; i++)
        add_goodput(m, r, r->runs[i]);
    markup_add(m, "</section>\n");
}

static void add_inner(markup *m, const report *r)
{
    if (!any_inner(r))
        return;
    markup_add(m, "<section><h2 id=\"inner\">The inner loop</h2>\n"
                  "<p class=\"soft\">How well a layer's learner reconstructs a token: with the "
                  "weights a sequence starts with (W₀), with those at the start of the mini-batch, "
                  "just before it learns from the token, and just after. Where the last lies below "
                  "the others the layer learns within the sequence.</p>\n");
    for (size_t i = 0; i < r->n_runs; i++) {
        if (r->runs[i]->n_inner_layers == 0)
            continue;
        if (r->n_runs > 1)
            add_words(m, "h3", r->runs[i]->name);
        report_draw_inner(m, r->runs[i]);
    }
    markup_add(m, "</section>\n");
}

static void add_samples(markup *m, const report *r)
{
    if (!any_samples(r))
        return;
    markup_add(m, "<section><h2 id=\"samples\">Samples</h2>\n"
                  "<p class=\"soft\">The prompt is pale; what follows is the model's.</p>\n");
    for (size_t i = 0; i < r->n_runs; i++) {
        const report_run *run = r->runs[i];
        if (run->n_samples > 0)
            add_words(m, "h3", run->model);
        for (size_t k = 0; k < run->n_samples; k++) {
            markup_add(m, "<blockquote><span class=\"soft\">");
            markup_words(m, run->samples[k].prompt, SAMPLE);
            markup_add(m, "</span>");
            markup_words(m, run->samples[k].text, SAMPLE);
            markup_add(m, "</blockquote>\n");
        }
    }
    markup_add(m, "</section>\n");
}

/* ---- settings ---- */

static void add_object(markup *m, const char *name, const json_t *object)
{
    const char *key;
    json_t *value;
    if (json_object_size(object) == 0)
        return;
    markup_add(m, "<div>");
    add_words(m, "h3", name);
    markup_add(m, "<dl>\n");
    json_object_foreach((json_t *)object, key, value)
    {
        if (json_is_object(value) || strcmp(key, "command") == 0)
            continue;
        add_words(m, "dt", key);
        add_words(m, "dd", inspect_value_text(key, value));
        markup_add(m, "\n");
    }
    markup_add(m, "</dl></div>\n");
    json_object_foreach((json_t *)object, key, value)
    {
        if (json_is_object(value))
            add_object(m, key, value);
    }
}

static void add_network(markup *m, const report_run *run)
{
    const json_t *blocks = json_object_get(run->network, "blocks"), *block;
    double all = json_number_value(json_object_get(run->network, "parameters"));
    size_t i;
    if (json_array_size(blocks) == 0)
        return;
    markup_add(m,
               "<h3>Parameters, %s</h3>\n<div class=\"wide\"><table><thead><tr><th "
               "scope=\"col\">block</th><th scope=\"col\" class=\"n\">layers</th><th "
               "scope=\"col\" class=\"n\">parameters</th><th scope=\"col\" "
               "class=\"n\">share</th></tr></thead><tbody>\n",
               cmd_quantity(all, ""));
    json_array_foreach(blocks, i, block)
    {
        double parameters = json_number_value(json_object_get(block, "parameters"));
        markup_add(m, "<tr>");
        add_words(m, "th scope=\"row\"", value_of(block, "block"));
        markup_add(m,
                   "<td class=\"n\">%.0f</td><td class=\"n\">%.0f</td><td "
                   "class=\"n\">%.1f%%</td></tr>\n",
                   json_number_value(json_object_get(block, "times")), parameters,
                   all > 0 ? 100 * parameters / all : 0);
    }
    markup_add(m, "</tbody></table></div>\n");
}

static void add_command(markup *m, const json_t *environment)
{
    const char *first = value_of(json_object_get(environment, "first"), "command");
    const char *last = value_of(json_object_get(environment, "last"), "command");
    if (*first != '\0') {
        add_words(m, "h3", strcmp(first, last) == 0 ? "Command" : "First command");
        add_words(m, "code", first);
    }
    if (*last != '\0' && strcmp(first, last) != 0) {
        add_words(m, "h3", "Last command");
        add_words(m, "code", last);
    }
}

static void add_settings(markup *m, const report *r)
{
    markup_add(m, "<section><h2 id=\"settings\">Settings</h2>\n");
    for (size_t i = 0; i < r->n_runs; i++) {
        const report_run *run = r->runs[i];
        const json_t *first = json_object_get(run->environment, "first");
        const json_t *last = json_object_get(run->environment, "last");
        if (r->n_runs > 1) {
            markup_add(m, "<details><summary>");
            markup_words(m, run->name, WORDS);
            markup_add(m, "</summary>\n");
        }
        add_command(m, run->environment);
        add_network(m, run);
        markup_add(m, "<div class=\"columns\">\n");
        add_object(m, "Recipe", run->recipe);
        add_object(m, "Network", run->config);
        add_object(m, json_equal(first, last) ? "Environment" : "Environment, first start", first);
        if (!json_equal(first, last))
            add_object(m, "Environment, last start", last);
        markup_add(m, "</div>\n");
        if (r->n_runs > 1)
            markup_add(m, "</details>\n");
    }
    markup_add(m, "</section>\n");
}

/* ---- all of it ---- */

static void page_title(const report *r, char *title, size_t size)
{
    size_t used = 0;
    snprintf(title, size, "%s", r->title == NULL ? "" : r->title);
    for (size_t i = 0; r->title == NULL && i < r->n_runs; i++) {
        int more =
            snprintf(title + used, size - used, "%s%s", i == 0 ? "" : ", ", r->runs[i]->name);
        if (more < 0 || (size_t)more >= size - used)
            return;
        used += (size_t)more;
    }
}

/* "ttt_linear, 877 k parameters, on 1 × cpu; still going". */
static void add_lead(markup *m, const report_run *run)
{
    const json_t *last = json_object_get(run->environment, "last");
    const json_t *parameters = json_object_get(run->network, "parameters");
    const char *mixer = value_of(json_object_get(run->network, "network"), "mixer");
    double devices = json_number_value(json_object_get(last, "devices"));
    markup_add(m, "<p class=\"lead\">");
    if (parameters != NULL) {
        markup_words(m, mixer, WORDS);
        markup_add(m, ", %s parameters; ", cmd_quantity(json_number_value(parameters), ""));
    }
    if (devices > 0) {
        markup_add(m, "%.0f × ", devices);
        markup_words(m, value_of(last, "device"), WORDS);
        markup_add(m, "; ");
    }
    markup_add(m, "%s at step %.0f", report_state(run), run->step);
    if (run->steps > 0)
        markup_add(m, " of %.0f", run->steps);
    markup_add(m, "</p>\n");
}

static void add_navigation(markup *m, const report *r)
{
    const struct {
        const char *id, *name;
        bool shown;
    } parts[] = {{"differences", "What differs", r->n_runs > 1},
                 {"time", "Where time went", any_seconds(r)},
                 {"curves", "Curves", true},
                 {"inner", "The inner loop", any_inner(r)},
                 {"samples", "Samples", any_samples(r)},
                 {"settings", "Settings", true}};
    markup_add(m, "<nav aria-label=\"parts of the page\">");
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (parts[i].shown)
            markup_add(m, "<a href=\"#%s\">%s</a>", parts[i].id, parts[i].name);
    markup_add(m, "</nav>\n");
}

static void add_body(markup *m, const report *r, const char *title)
{
    char now[64];
    time_t seconds = time(NULL);
    struct tm utc;
    strftime(now, sizeof now, "%Y-%m-%d %H:%M UTC", gmtime_r(&seconds, &utc));
    markup_add(m, "<header>");
    add_words(m, "h1", title);
    if (r->n_runs == 1)
        add_lead(m, r->runs[0]);
    add_navigation(m, r);
    markup_add(m, "</header>\n<main>\n");
    add_notes(m, r);
    if (r->n_runs == 1) {
        add_cards(m, r->runs[0]);
    } else {
        add_figure_table(m, r);
        add_differences(m, r);
    }
    if (r->n_runs == 1)
        add_time(m, r);
    add_curves(m, r);
    if (r->n_runs > 1)
        add_time(m, r);
    add_inner(m, r);
    add_samples(m, r);
    add_settings(m, r);
    markup_add(m, "</main>\n<footer>Made by ttt " TTT_VERSION ", %s.</footer>\n", now);
}

pjrt_status *report_page(const report *r, text_buffer *out)
{
    markup m = {0};
    char title[512];
    *out = (text_buffer){0};
    page_title(r, title, sizeof title);
    markup_add(&m, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\n"
                   "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"/>\n");
    add_words(&m, "title", title);
    markup_add(&m, "\n");
    add_all(&m, style);
    add_all(&m, chart_style());
    markup_add(&m, "</head><body>\n");
    add_body(&m, r, title);
    markup_add(&m, "</body></html>\n");
    if (m.failed) {
        free(m.buffer.text);
        return PJRT_NO_MEMORY("ttt");
    }
    *out = m.buffer;
    return NULL;
}
