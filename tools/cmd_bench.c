/* ttt bench: how fast a model reads and makes tokens, at several depths and batch sizes, and what
 * keeping a state costs beside reading again. */
#include "tools/generate_options.h"
#include "tools/model_run.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef enum bench_output { OUTPUT_MD, OUTPUT_CSV, OUTPUT_JSON } bench_output;

typedef struct bench_options {
    engine_choice engine;
    int_list prompts, depths, batches;
    int generate, repetitions;
    bench_output output;
} bench_options;

#define AT(member) offsetof(bench_options, member)
static const cmd_option options[] = {
    CMD_GROUP("the tests"),
    {"prompt-lengths", "LIST", CMD_CUSTOM, AT(prompts), "lengths to read, one test each",
     .usual = "512,2048", .set = int_list_parse, .what = "a list of numbers"},
    {"generate", "N", CMD_NUMBER, AT(generate), "tokens of each test of making", .usual = "64",
     .most = 1 << 20},
    {"depths", "LIST", CMD_CUSTOM, AT(depths), "tokens before, rounded down to whole mini-batches",
     .usual = "0", .set = int_list_parse, .what = "a list of numbers"},
    {"batches", "LIST", CMD_CUSTOM, AT(batches), "sequences side by side", .usual = "1",
     .set = int_list_parse, .what = "a list of numbers"},
    {"repetitions", "N", CMD_NUMBER, AT(repetitions), "how often each test is made", .usual = "5",
     .most = 1000},
    {"output", "F", CMD_CHOICE, AT(output), "the form of the report", .usual = "md",
     .choices = CMD_WORDS("md", "csv", "json")},
    ENGINE_OPTIONS(bench_options, engine),
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

/* ---- measuring ---------------------------------------------------------------------------------
 */

/* One line of the report. */
typedef struct bench_row {
    const char *test; /* "read", "make", "save", "restore" */
    int64_t batch, tokens, depth;
    double mean, deviation; /* tokens a second; seconds of a state */
    int64_t bytes;          /* of a state */
} bench_row;

typedef struct benching {
    const bench_options *options;
    const cmd_common *common;
    generator model;
    int64_t batch;
    ttt_state *fresh, *deep; /* at 0, and at the depth of the test */
    char path[64];           /* of a state's file */
    bench_row *rows;
    int n_rows;
    int32_t *tokens;
    float *logits;
} benching;

typedef pjrt_status *(*bench_body)(benching *b, int64_t tokens);

static pjrt_status *body_read(benching *b, int64_t tokens)
{
    return ttt_engine_feed(b->model.engine, 0, b->tokens, tokens, b->logits);
}

static pjrt_status *body_make(benching *b, int64_t tokens)
{
    for (int64_t i = 0; i < tokens; i++)
        PJRT_TRY(ttt_engine_step(b->model.engine, b->tokens + i, b->logits));
    return NULL;
}

static pjrt_status *body_save(benching *b, int64_t tokens)
{
    ttt_state *state;
    (void)tokens;
    PJRT_TRY(ttt_engine_take(b->model.engine, 0, &state));
    pjrt_status *st = ttt_state_write(state, b->path);
    ttt_state_free(state);
    return st;
}

static pjrt_status *body_restore(benching *b, int64_t tokens)
{
    ttt_state *state;
    (void)tokens;
    PJRT_TRY(ttt_state_read(b->path, &state));
    pjrt_status *st = ttt_engine_put(b->model.engine, 0, state);
    ttt_state_free(state);
    return st;
}

/* Runs a body from the state at its depth, once to warm up and then for the count. Rates are over
 * `tokens`, of all sequences; with 0 it is seconds. */
static pjrt_status *measure(benching *b, bench_row row, bench_body body, int64_t each)
{
    int n = b->options->repetitions;
    double sum = 0, squares = 0;
    for (int i = -1; i < n; i++) {
        for (int64_t slot = 0; slot < b->batch; slot++)
            PJRT_TRY(ttt_engine_put(b->model.engine, slot, b->deep));
        double start = cmd_seconds();
        PJRT_TRY(body(b, each));
        double seconds = cmd_seconds() - start;
        double value = row.tokens == 0 ? seconds : (double)row.tokens / seconds;
        sum += i < 0 ? 0 : value;
        squares += i < 0 ? 0 : value * value;
    }
    double mean = sum / n, variance = n < 2 ? 0 : (squares - n * mean * mean) / (n - 1);
    row.mean = mean;
    row.deviation = variance > 0 ? sqrt(variance) : 0;
    b->rows[b->n_rows++] = row;
    return NULL;
}

/* ---- the tests ---------------------------------------------------------------------------------
 */

static pjrt_status *at_depth(benching *b, int64_t wanted)
{
    const ttt_config *c = ttt_engine_config(b->model.engine);
    int64_t mini = ttt_mixer_learns(c->mixer) && c->mini_batch_size > 0 ? c->mini_batch_size : 1;
    int64_t depth = wanted / mini * mini;
    const bench_options *o = b->options;
    ttt_state_free(b->deep);
    b->deep = NULL;
    PJRT_TRY(ttt_state_moved(b->fresh, depth, &b->deep));
    for (int64_t i = 0; i < o->prompts.count && b->batch == o->batches.list[0]; i++)
        PJRT_TRY(measure(
            b,
            (bench_row){.test = "read", .batch = 1, .tokens = o->prompts.list[i], .depth = depth},
            body_read, o->prompts.list[i]));
    PJRT_TRY(measure(
        b,
        (bench_row){
            .test = "make", .batch = b->batch, .tokens = o->generate * b->batch, .depth = depth},
        body_make, o->generate));
    if (b->batch != o->batches.list[0])
        return NULL;
    bench_row row = {.batch = 1, .depth = depth, .bytes = ttt_state_info(b->deep)->bytes};
    row.test = "save";
    PJRT_TRY(measure(b, row, body_save, 0));
    row.test = "restore";
    return measure(b, row, body_restore, 0);
}

static int64_t largest(const int_list *list)
{
    int64_t most = 0;
    for (int64_t i = 0; i < list->count; i++)
        most = list->list[i] > most ? list->list[i] : most;
    return most;
}

/* Tokens that any test gives, all in the vocabulary. */
static pjrt_status *make_room(benching *b)
{
    const bench_options *o = b->options;
    int64_t vocab = ttt_engine_config(b->model.engine)->vocab_size, batch = largest(&o->batches);
    int64_t count = largest(&o->prompts) + o->generate + batch;
    if (b->tokens != NULL)
        return NULL;
    b->tokens = malloc((size_t)count * sizeof *b->tokens);
    b->logits = malloc((size_t)(batch * vocab) * sizeof *b->logits);
    b->rows = calloc((size_t)(o->depths.count * (o->prompts.count + o->batches.count + 2)),
                     sizeof *b->rows);
    if (b->tokens == NULL || b->logits == NULL || b->rows == NULL)
        return PJRT_NO_MEMORY("ttt");
    for (int64_t i = 0; i < count; i++)
        b->tokens[i] = (int32_t)(i * 7919 % vocab);
    return NULL;
}

static pjrt_status *one_batch(benching *b, int64_t batch)
{
    const bench_options *o = b->options;
    int64_t most = largest(&o->prompts);
    int64_t context = largest(&o->depths) + (most > o->generate ? most : o->generate);
    b->batch = batch;
    PJRT_TRY(generator_open(&b->model, b->common, &o->engine, batch, context));
    PJRT_TRY(make_room(b));
    PJRT_TRY(ttt_engine_take(b->model.engine, 0, &b->fresh));
    for (int64_t i = 0; i < o->depths.count; i++)
        PJRT_TRY(at_depth(b, o->depths.list[i]));
    return NULL;
}

static pjrt_status *bench(benching *b)
{
    const char *folder = getenv("TMPDIR");
    int size = snprintf(b->path, sizeof b->path, "%s/ttt-bench.%ld.state",
                        folder == NULL ? "/tmp" : folder, (long)getpid());
    if (size >= (int)sizeof b->path)
        return PJRT_FAIL(INVALID_ARGUMENT, "ttt", "the path in TMPDIR is too long");
    pjrt_status *st = NULL;
    for (int64_t i = 0; i < b->options->batches.count && st == NULL; i++) {
        st = one_batch(b, b->options->batches.list[i]);
        ttt_state_free(b->fresh);
        ttt_state_free(b->deep);
        b->fresh = b->deep = NULL;
        generator_free(&b->model);
    }
    unlink(b->path);
    return st;
}

/* ---- telling -----------------------------------------------------------------------------------
 */

static json_t *row_json(const bench_row *r)
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
        "{s:s, s:s, s:s, s:i, s:b, s:o}", "model", b->options->engine.model, "plugin",
        b->common->plugin, "dtype", hlo_type_name(b->options->engine.dtype), "repetitions",
        b->options->repetitions, "depths_are_set_not_read", 1, "results", list));
}

static void show_row(const bench_row *r, bool csv)
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
    if (o->engine.model == NULL)
        return cmd_wrong_use(&cmd_bench, "--model is missing");
    struct {
        int_list *list;
        const char *name, *usual;
        int32_t least;
    } lists[] = {{&o->prompts, "prompt-lengths", "512,2048", 1},
                 {&o->depths, "depths", "0", 0},
                 {&o->batches, "batches", "1", 1}};
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
    o->generate = o->generate == 0 ? 64 : o->generate;
    o->repetitions = o->repetitions == 0 ? 5 : o->repetitions;
    return -1;
}

static int bench_command(int argc, char **argv)
{
    cmd_common common;
    cmd_operands operands;
    bench_options chosen = {.engine.dtype = HLO_F32};
    int code = cmd_parse(&cmd_bench, argc, argv, &common, &chosen, &operands);
    if (code < 0 && operands.count > 0)
        code = cmd_wrong_use(&cmd_bench, "what is \"%s\"?", operands.items[0]);
    if (code < 0)
        code = complete(&chosen);
    if (code < 0) {
        benching b = {.options = &chosen, .common = &common};
        if (common.json)
            chosen.output = OUTPUT_JSON;
        pjrt_status *st = bench(&b);
        code = st == NULL ? show(&b) : cmd_fail(&common, st);
        free(b.tokens);
        free(b.logits);
        free(b.rows);
    }
    free(chosen.prompts.list);
    free(chosen.depths.list);
    free(chosen.batches.list);
    return code;
}
