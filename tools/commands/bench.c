/* ttt bench: how fast a model reads and makes tokens, at several depths and batch sizes, and what
 * keeping a state costs beside reading again. */
#include "tools/bench/speed_test.h"

#include <stdio.h>
#include <stdlib.h>

typedef enum bench_output { OUTPUT_MD, OUTPUT_CSV, OUTPUT_JSON } bench_output;

typedef struct bench_options {
    speed_tests tests;
    bench_output output;
} bench_options;

#define AT(member) offsetof(bench_options, member)
static const cmd_option options[] = {
    CMD_GROUP("the tests"),
    {"prompt-lengths", "LIST", CMD_CUSTOM, AT(tests.prompts), "lengths to read, one test each",
     .usual = "512,2048", .set = int_list_parse, .what = "a list of numbers"},
    {"generate", "N", CMD_NUMBER, AT(tests.generate), "tokens of each test of making",
     .usual = "64", .most = 1 << 20},
    {"depths", "LIST", CMD_CUSTOM, AT(tests.depths),
     "tokens before, rounded down to whole mini-batches", .usual = "0", .set = int_list_parse,
     .what = "a list of numbers"},
    {"batches", "LIST", CMD_CUSTOM, AT(tests.batches), "sequences side by side", .usual = "1",
     .set = int_list_parse, .what = "a list of numbers"},
    {"repetitions", "N", CMD_NUMBER, AT(tests.repetitions), "how often each test is made",
     .usual = "5", .most = 1000},
    {"output", "F", CMD_CHOICE, AT(output), "the form of the report", .usual = "md",
     .choices = CMD_WORDS("md", "csv", "json")},
    ENGINE_OPTIONS(bench_options, tests.engine),
};
static int bench_command(int argc, char **argv);
const cmd_spec cmd_bench = {
    .name = "bench",
    .summary = "how fast a model reads and makes tokens",
    .usage = "--model DIR [options]",
    .about = "Tokens a second: reading prompts (one sequence at a time), and making tokens one by "
             "one in batches, each after so many tokens before. Those before are not read: a fresh "
             "state is set to that position, which costs the same from there on. Then what it "
             "takes to save a state to a file and to restore it. Mean and deviation over "
             "repetitions, after one that does not count.",
    CMD_OPTIONS(options),
    .example = "ttt bench --model run --prompt-lengths 512 --depths 0,1024,8192 --batches 1,8",
    .json = "the report as JSON, as --output json",
    .plugin = CMD_PLUGIN,
    .run = bench_command,
};

typedef struct benching {
    const bench_options *options;
    const cmd_common *common;
    speed_row *rows; /* owned */
    int n_rows;
} benching;

/* ---- telling -----------------------------------------------------------------------------------
 */

static json_t *row_json(const speed_row *r)
{
    const char *unit = r->bytes > 0 ? "seconds" : "tokens_per_second";
    json_t *json =
        json_pack("{s:s, s:I, s:I, s:f, s:f}", "test", r->test, "batch", (json_int_t)r->batch,
                  "depth", (json_int_t)r->depth, unit, r->mean, "deviation", r->deviation);
    if (r->bytes > 0)
        json_object_set_new(json, "bytes", json_integer(r->bytes));
    else
        json_object_set_new(json, "tokens", json_integer(r->tokens / r->batch));
    return json;
}

static int show_json(const benching *b)
{
    json_t *list = json_array();
    for (int i = 0; i < b->n_rows; i++)
        json_array_append_new(list, row_json(&b->rows[i]));
    return cmd_print_json(json_pack(
        "{s:s, s:s, s:s, s:i, s:b, s:o}", "model", b->options->tests.engine.model, "plugin",
        b->common->plugin, "dtype", hlo_type_name(b->options->tests.engine.dtype), "repetitions",
        b->options->tests.repetitions, "depths_are_set_not_read", 1, "results", list));
}

static void show_row(const speed_row *r, bool csv)
{
    const char *unit = r->bytes > 0 ? "ms" : "tok/s";
    double by = r->bytes > 0 ? 1e3 : 1;
    char what[48];
    if (r->bytes > 0)
        snprintf(what, sizeof what, "%s (%s)", r->test, cmd_quantity((double)r->bytes, "B"));
    else
        snprintf(what, sizeof what, "%s %lld", r->test, (long long)(r->tokens / r->batch));
    if (csv)
        printf("%s,%lld,%lld,%lld,%lld,%.6g,%.6g,%s\n", r->test, (long long)r->batch,
               (long long)(r->bytes > 0 ? 0 : r->tokens / r->batch), (long long)r->depth,
               (long long)r->bytes, r->mean * by, r->deviation * by, unit);
    else
        printf("| %-20s | %5lld | %8lld | %10.2f ± %-8.2f | %-5s |\n", what, (long long)r->batch,
               (long long)r->depth, r->mean * by, r->deviation * by, unit);
}

static int show(const benching *b)
{
    bool csv = b->options->output == OUTPUT_CSV;
    if (b->options->output == OUTPUT_JSON)
        return show_json(b);
    if (csv)
        puts("test,batch,tokens,depth,bytes,mean,deviation,unit");
    else
        puts("| test                 | batch |    depth |       mean ± deviation | unit  |\n"
             "|---|--:|--:|--:|---|");
    for (int i = 0; i < b->n_rows; i++)
        show_row(&b->rows[i], csv);
    if (!csv)
        puts("\nDepths are set, not read.");
    return fflush(stdout) == 0 ? CMD_OK : CMD_FAILED;
}

/* Lists that were not given, and numbers that make no sense. */
static int complete(bench_options *o)
{
    if (o->tests.engine.model == NULL)
        return cmd_wrong_use(&cmd_bench, "--model is missing");
    struct {
        int_list *list;
        const char *name, *usual;
        int32_t least;
    } lists[] = {{&o->tests.prompts, "prompt-lengths", "512,2048", 1},
                 {&o->tests.depths, "depths", "0", 0},
                 {&o->tests.batches, "batches", "1", 1}};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        int_list *list = lists[i].list;
        if (list->count == 0 && !int_list_parse(lists[i].usual, list))
            return CMD_FAILED;
        for (int64_t k = 0; k < list->count; k++) {
            if (list->list[k] < lists[i].least || list->list[k] > 1 << 28)
                return cmd_wrong_use(&cmd_bench, "--%s: %d makes no sense", lists[i].name,
                                     list->list[k]);
        }
    }
    speed_tests *t = &o->tests;
    t->generate = t->generate == 0 ? 64 : t->generate;
    t->repetitions = t->repetitions == 0 ? 5 : t->repetitions;
    return -1;
}

static int bench_command(int argc, char **argv)
{
    cmd_common common;
    cmd_operands operands;
    bench_options chosen = {.tests.engine.dtype = HLO_F32};
    int code = cmd_parse(&cmd_bench, argc, argv, &common, &chosen, &operands);
    if (code < 0 && operands.count > 0)
        code = cmd_wrong_use(&cmd_bench, "what is \"%s\"?", operands.items[0]);
    if (code < 0)
        code = complete(&chosen);
    if (code < 0) {
        benching b = {.options = &chosen, .common = &common};
        if (common.json)
            chosen.output = OUTPUT_JSON;
        pjrt_status *st = speed_run(&chosen.tests, &common, &b.rows, &b.n_rows);
        code = st == NULL ? show(&b) : cmd_fail(&common, st);
        free(b.rows);
    }
    free(chosen.tests.prompts.list);
    free(chosen.tests.depths.list);
    free(chosen.tests.batches.list);
    return code;
}
