/* ttt report: one page about training runs, or their figures as JSON. */
#include "tools/report.h"

#include "tools/generate_options.h"

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
static const cmd_option options[] = {
    {"out", "", CMD_TEXT, AT(out), 0, NULL},
    {"title", "", CMD_TEXT, AT(title), 0, NULL},
    {"data", "", CMD_TEXT, AT(data), 0, NULL},
    {"cache", "", CMD_TEXT, AT(cache), 0, NULL},
    {"prompt", "one of at most 64", CMD_CUSTOM, AT(prompts), 0, text_list_add},
    {"samples", "0 to 8", CMD_CUSTOM, AT(samples), 0, sampling_set_count},
    {"inner", "a number of sequences", CMD_CUSTOM, AT(inner), 0, sampling_set_count},
    {"max-tokens", "a number of tokens", CMD_NUMBER, AT(tokens), 1 << 16, NULL},
    {"seed", "a number", CMD_CUSTOM, AT(seed), 0, cmd_set_seed},
};
static const char help[] =
    "usage: ttt report RUN… [-o report.html] [options]\n"
    "\n"
    "One page about a training run, or about several over each other: losses, what differs\n"
    "between their settings, speed, where time went, loss by position, how the layers learn\n"
    "within a sequence, and text that the newest checkpoint makes. The page needs nothing else.\n"
    "Runs may still be going or have been cut; what is missing or damaged is said on the page.\n"
    "  -o, --out F        where the page goes (report.html); with --json there is none unless\n"
    "                     this is given\n"
    "  --title T          of the page; default: the names of the runs\n"
    "  --samples N        texts of the newest checkpoint (2); 0: none\n"
    "  --prompt TEXT      that a sample goes on from; may be repeated. Default: lines of the\n"
    "                     validation text\n"
    "  --max-tokens N     of a sample (200)\n"
    "  --seed N           the same seed gives the same text (0)\n"
    "  --inner N          sequences on which the newest checkpoint's inner losses are measured by\n"
    "                     token (16), for mixers that learn; 0: not\n"
    "  --data DIR         the prepared data; default: where the run had it\n"
    "  --cache DIR        of compiled programs; none\n"
    "  --plugin P         cpu (default), tpu, cuda or a path; for samples and inner losses\n"
    "\n"
    "example: ttt report run other-run -o report.html --prompt \"Once upon a time\"\n";
static const cmd_spec spec = {"report", help, options, sizeof options / sizeof *options};

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

int cmd_report(int argc, char **argv)
{
    static char out[] = "--out";
    cmd_common common;
    cmd_operands operands;
    report_options chosen = {.samples = 2, .inner = 16};
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "-o") == 0)
            argv[i] = out;
    int code = cmd_parse(&spec, argc, argv, &common, &chosen, &operands);
    if (code >= 0)
        return code;
    if (operands.count == 0)
        return cmd_wrong_use(&spec, "a run is missing");
    if (operands.count > REPORT_RUNS)
        return cmd_wrong_use(&spec, "at most %d runs go on a page", REPORT_RUNS);
    if (chosen.samples > REPORT_SAMPLES || chosen.prompts.count > REPORT_SAMPLES)
        return cmd_wrong_use(&spec, "at most %d samples go on a page", REPORT_SAMPLES);
    return run_report(&chosen, &common, &operands);
}
