/* ttt report: one page about training runs, or their figures as JSON. */
#include "tools/report/report.h"

#include "tools/commands/generate_options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct report_options {
    const char *out, *title, *data, *cache;
    text_list prompts;
    int64_t samples, inner;
    int tokens;
    uint64_t seed;
} report_options;

#define AT(member) offsetof(report_options, member)
static const cmd_option operands_list[] = {
    {"RUN", NULL, CMD_FOLDER, .help = "folders of ttt train", .repeats = true},
};
static const cmd_option options[] = {
    {"out", "FILE", CMD_FILE, AT(out),
     "where the page goes; with --json there is none unless this is given", .usual = "report.html",
     .letter = 'o'},
    {"title", "TEXT", CMD_TEXT, AT(title), "of the page; default: the names of the runs"},
    {"samples", "N", CMD_CUSTOM, AT(samples), "texts of the newest checkpoint; 0: none",
     .usual = "2", .set = sampling_set_count, .what = "0 to 8"},
    {"prompt", "TEXT", CMD_CUSTOM, AT(prompts),
     "that a sample goes on from; default: lines of the validation text", .repeats = true,
     .set = text_list_add, .what = "one of at most 64"},
    {"max-tokens", "N", CMD_NUMBER, AT(tokens), "tokens of a sample", .usual = "200",
     .most = 1 << 16},
    {"seed", "N", CMD_CUSTOM, AT(seed), "the same seed gives the same text", .usual = "0",
     .set = cmd_set_seed, .what = "a number"},
    {"inner", "N", CMD_CUSTOM, AT(inner),
     "sequences on which the newest checkpoint's inner losses are measured by token, for mixers "
     "that learn; 0: not",
     .usual = "16", .set = sampling_set_count, .what = "a number of sequences"},
    {"data", "DIR", CMD_FOLDER, AT(data), "the prepared data; default: where the run had it"},
    CMD_OPTION_CACHE(report_options, cache),
};
static int report_command(int argc, char **argv);
const cmd_spec cmd_report = {
    .name = "report",
    .summary = "one page about training runs, with curves, samples and settings",
    .usage = "RUN … [-o report.html] [options]",
    .about = "One page about a training run, or about several over each other: losses, what "
             "differs between their settings, speed, where time went, loss by position, how the "
             "layers learn within a sequence, and text that the newest checkpoint makes. The page "
             "needs nothing else. Runs may still be going or have been cut; what is missing or "
             "damaged is said on the page.",
    CMD_OPERANDS(operands_list),
    CMD_OPTIONS(options),
    .example = "ttt report run other-run -o report.html --prompt \"Once upon a time\"",
    .json = "the figures of the page as JSON",
    .plugin = "for samples and inner losses",
    .run = report_command,
};

/* The page takes its name when it is whole. */
static pjrt_status *write_page(const char *path, const text_buffer *page)
{
    char other[PATH_MAX];
    if (snprintf(other, sizeof other, "%s.%ld.writing", path, (long)getpid()) >= (int)sizeof other)
        return PJRT_FAIL(INVALID_ARGUMENT, "ttt", "the name of the page is too long");
    pjrt_status *st = cmd_write_file(other, page->text, page->size);
    if (st == NULL && rename(other, path) != 0)
        st = PJRT_FAIL(UNAVAILABLE, "ttt", "%s: %s", path, strerror(errno));
    if (st != NULL)
        unlink(other);
    return st;
}

/* Runs whose folders have the same name are told apart by their paths. */
static void name_apart(report *r)
{
    bool same[REPORT_RUNS] = {false};
    for (size_t i = 0; i < r->n_runs; i++)
        for (size_t k = 0; k < r->n_runs; k++)
            same[i] = same[i] || (i != k && strcmp(r->runs[i]->name, r->runs[k]->name) == 0);
    for (size_t i = 0; i < r->n_runs; i++)
        if (same[i])
            snprintf(r->runs[i]->name, sizeof r->runs[i]->name, "%.127s", r->runs[i]->path);
}

static pjrt_status *read_runs(const cmd_operands *operands, report *r)
{
    for (int i = 0; i < operands->count; i++) {
        PJRT_TRY(report_read(operands->items[i], &r->runs[r->n_runs]));
        r->n_runs++;
    }
    name_apart(r);
    return NULL;
}

static void look_into_models(const report_options *o, const cmd_common *common, report *r)
{
    size_t samples = (size_t)o->samples;
    report_live_options live = {.common = common,
                                .data = o->data,
                                .cache = o->cache,
                                .prompts = o->prompts.list,
                                .n_prompts = (size_t)o->prompts.count,
                                .samples = samples,
                                .tokens = o->tokens == 0 ? 200 : o->tokens,
                                .inner_sequences = o->inner,
                                .seed = o->seed};
    if (samples > 0 && live.n_prompts > samples)
        live.samples = live.n_prompts;
    for (size_t i = 0; i < r->n_runs; i++)
        report_live(r->runs[i], &live);
}

static pjrt_status *make_page(const report *r, const char *path, size_t *size)
{
    text_buffer page;
    PJRT_TRY(report_page(r, &page));
    *size = page.size;
    pjrt_status *st = write_page(path, &page);
    free(page.text);
    return st;
}

static void tell_notes(const report *r)
{
    for (size_t i = 0; i < r->n_runs; i++)
        for (size_t k = 0; k < r->runs[i]->n_notes; k++)
            fprintf(stderr, "ttt: %s: %s\n", r->runs[i]->path, r->runs[i]->notes[k]);
}

static int run_report(const report_options *o, const cmd_common *common,
                      const cmd_operands *operands)
{
    report r = {.title = o->title};
    const char *path = o->out != NULL ? o->out : common->json ? NULL : "report.html";
    size_t size = 0;
    pjrt_status *st = read_runs(operands, &r);
    if (st == NULL) {
        look_into_models(o, common, &r);
        tell_notes(&r);
        st = path == NULL ? NULL : make_page(&r, path, &size);
    }
    int code = CMD_OK;
    if (st != NULL)
        code = cmd_fail(common, st);
    else if (common->json)
        code = cmd_print_json(report_figures(&r));
    else
        printf("%s: %zu run%s, %s\n", path, r.n_runs, r.n_runs == 1 ? "" : "s",
               cmd_quantity((double)size, "B"));
    for (size_t i = 0; i < r.n_runs; i++)
        report_run_free(r.runs[i]);
    return code;
}

static int report_command(int argc, char **argv)
{
    cmd_common common;
    cmd_operands operands;
    report_options chosen = {.samples = 2, .inner = 16};
    int code = cmd_parse(&cmd_report, argc, argv, &common, &chosen, &operands);
    if (code >= 0)
        return code;
    if (operands.count == 0)
        return cmd_wrong_use(&cmd_report, "a run is missing");
    if (operands.count > REPORT_RUNS)
        return cmd_wrong_use(&cmd_report, "at most %d runs go on a page", REPORT_RUNS);
    if (chosen.samples > REPORT_SAMPLES || chosen.prompts.count > REPORT_SAMPLES)
        return cmd_wrong_use(&cmd_report, "at most %d samples go on a page", REPORT_SAMPLES);
    return run_report(&chosen, &common, &operands);
}
