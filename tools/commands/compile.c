/* ttt compile: a network's programs for a target that need not be here, without any weights. */
#include "tools/compile/compile_job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AT(field) offsetof(compile_options, field)
static const cmd_option options[] = {
    {"step", "S", CMD_TEXT, AT(step),
     "train (loss, gradients, update), eval (the loss), forward (logits), prefill (a prompt into "
     "states, the last logits), decode (one token of each sequence)",
     .choice = compile_step_name},
    {"target", "T", CMD_TEXT, AT(target),
     "cpu, or ahead of time: tpu:GENERATION:TOPOLOGY (tpu:v5e:2x2), cuda:CHIP[:GPUS] "
     "(cuda:a100-sxm-40gb); ttt hlo compile --target list prints them",
     .choice = cmd_target_name, .open = true},
    PROGRAM_OPTION_MESH(
        compile_options, program,
        "all chips of the target as a grid: data=2,fsdp=2 splits sequences over both axes and "
        "parameters over fsdp; time=4 splits every sequence into spans, and parameters; model=4 "
        "splits heads and widths. Without it the program is for one chip. auto: weigh all that "
        "divide, compile the best few, rank them and report on the first"),
    {"candidates", "N", CMD_NUMBER, AT(candidates), "of --mesh auto: how many to compile",
     .usual = "4", .most = 512},
    {"batch", "N", CMD_NUMBER, AT(batch),
     "sequences a step; default: one for each of data x fsdp; of --mesh auto one for each chip",
     .most = 1 << 24},
    {"batch-tokens", "N", CMD_NUMBER, AT(batch_tokens), "the same in tokens: N / context sequences",
     .most = 0x7fffffff},
    {"context", "N", CMD_NUMBER, AT(context), "tokens of each; of decode what attention remembers",
     .usual = "2048", .most = 1 << 30},
    {"accumulation", "N", CMD_NUMBER, AT(accumulation),
     "train: the batch goes through the network in N parts", .most = 1 << 24},
    MODEL_OPTIONS(compile_options, model),
    CMD_GROUP("the program"),
    PROGRAM_OPTIONS(compile_options, program),
    PROGRAM_OPTION_REMAT(compile_options, program),
    {"kernels", NULL, CMD_FLAG, AT(kernels),
     "operations written by hand as custom calls, where there are some: cuda, cpu"},
    HLO_OPTION_XLA(compile_options, overrides),
    CMD_GROUP("what comes of it"),
    {"compare", "A B", CMD_TEXT, AT(compare),
     "two configurations side by side. Each is a file NAME.json that --json wrote, or further "
     "options in one word: \"mesh=fsdp=4 remat=all\""},
    {"emit", "FILE", CMD_FILE, AT(emit), "write the program, StableHLO text"},
    {"save", "FILE", CMD_FILE, AT(save),
     "write the executable, with a stamp that ttt checks when it loads it"},
    {"optimized", "FILE", CMD_FILE, AT(optimized),
     "write the optimized program, a serialized HloModuleProto, for ttt inspect"},
    {"top", "N", CMD_NUMBER, AT(top), "how many rows of each table to print", .usual = "8",
     .most = 1000000},
};
static int compile_command(int argc, char **argv);
const cmd_spec cmd_compile = {
    .name = "compile",
    .summary = "a network's programs for a target, and what they cost there",
    .usage = "--preset P --step S --target T [options]\n"
             "[options] --compare A B",
    .about = "Builds one of a network's programs, compiles it with the target's own compiler, "
             "whether its chips are here or not, and reports memory, cost, loops and collectives, "
             "per chip, and how fast it could be by the chip's public peaks.",
    CMD_OPTIONS(options),
    .notes = "Flops and bytes count a loop's body as often as it runs. Cycles are the TPU "
             "compiler's own estimates: good for comparing programs, not a time. "
             "cycles_in_mini_batch_loops are those of the learners' loops over mini-batches, "
             "forward and backward. The roofline is a bound by public peaks, not a time either; "
             "its formulas are printed with it and in docs/ahead_of_time.md.",
    .example =
        "ttt compile --preset 1.3b --step train --target tpu:v5e:16x16 --mesh data=16,fsdp=16 \\\n"
        "    --batch-tokens 524288 --context 2048 --dtype bf16 --json\n"
        "ttt compile --preset 125m --step train --target tpu:v5e:2x2 --dtype bf16 \\\n"
        "    --compare mesh=data=4 mesh=fsdp=4",
    .json = "everything as JSON",
    .run = compile_command,
};

static bool is_auto(const compile_options *o)
{
    return o->program.mesh != NULL && strcmp(o->program.mesh, "auto") == 0;
}

static int check_use(const compile_options *o)
{
    if (!compile_step_exists(o->step))
        return cmd_wrong_use(&cmd_compile, "--step must be " COMPILE_STEPS);
    if (o->target == NULL)
        return cmd_wrong_use(&cmd_compile,
                             "--target is missing; ttt hlo compile --target list shows them");
    ttt_mesh mesh;
    pjrt_status *st = is_auto(o) ? NULL : ttt_mesh_parse(o->program.mesh, &mesh);
    int code = st == NULL ? -1 : cmd_wrong_use(&cmd_compile, "--mesh: %s", pjrt_status_message(st));
    pjrt_status_free(st);
    return code;
}

/* Compiles what the options say; `*table` is the ranking of --mesh auto, else NULL. */
static pjrt_status *run(const compile_options *o, compile_job *job, json_t **table)
{
    *table = NULL;
    return is_auto(o) ? mesh_search(o, job, table) : compile_job_run(job);
}

static json_t *job_json(const compile_job *job, json_t *table)
{
    json_t *report = compile_job_json(job);
    if (report != NULL && table != NULL)
        json_object_set(report, "mesh_search", table);
    return report;
}

static int compile_one(const cmd_common *common, const compile_options *o)
{
    compile_job job = {.options = o};
    json_t *table;
    pjrt_status *st = run(o, &job, &table);
    int code = CMD_OK;
    if (st != NULL) {
        code = cmd_fail(common, st);
    } else if (common->json) {
        code = cmd_print_json(job_json(&job, table));
    } else {
        if (table != NULL)
            mesh_search_print(table);
        compile_job_print(&job);
    }
    json_decref(table);
    compile_job_free(&job);
    return code;
}

/* ---- two of them -------------------------------------------------------------------------------
 */

enum { MAX_WORDS = 64 };

/* The options in `text`, which is cut into words; dashes in front may be left out. The words are
 * written into `room`, which has 3 bytes for each of the text. */
static int split_words(const char *text, char *room, char *words[MAX_WORDS])
{
    int count = 1;
    words[0] = "compile";
    while (*(text += strspn(text, " ")) != '\0' && count < MAX_WORDS) {
        size_t length = strcspn(text, " ");
        words[count++] = room;
        if (*text != '-') {
            memcpy(room, "--", 2);
            room += 2;
        }
        memcpy(room, text, length);
        room[length] = '\0';
        room += length + 1;
        text += length;
    }
    return count;
}

/* Adds what a configuration says to a copy of the options. */
static int add_options(const char *text, char *room, compile_options *mine)
{
    char *words[MAX_WORDS];
    cmd_common ignored;
    cmd_operands operands;
    int count = split_words(text, room, words);
    int code = cmd_parse(&cmd_compile, count, words, &ignored, mine, &operands);
    if (code < 0 && operands.count > 0)
        code = cmd_wrong_use(&cmd_compile, "what is \"%s\" in --compare?", operands.items[0]);
    return code < 0 ? check_use(mine) : code;
}

static int compile_report(const cmd_common *common, const compile_options *o, json_t **report)
{
    compile_job job = {.options = o};
    json_t *table;
    pjrt_status *st = run(o, &job, &table);
    if (st == NULL)
        *report = job_json(&job, table);
    json_decref(table);
    compile_job_free(&job);
    return st == NULL ? CMD_OK : cmd_fail(common, st);
}

/* The report of a configuration: read, or compiled with the options it adds to the others. */
static int get_report(const cmd_common *common, const compile_options *o, const char *configuration,
                      json_t **report)
{
    size_t length = strlen(configuration);
    if (length > 5 && strcmp(configuration + length - 5, ".json") == 0) {
        pjrt_status *st = compile_report_read(configuration, report);
        return st == NULL ? CMD_OK : cmd_fail(common, st);
    }
    compile_options mine = *o; /* XLA options of `o` stay its own */
    char *room = malloc(3 * length + 1);
    if (room == NULL)
        return cmd_fail(common, PJRT_NO_MEMORY("ttt"));
    int code = add_options(configuration, room, &mine);
    if (code < 0)
        code = compile_report(common, &mine, report);
    for (size_t i = o->overrides.count; i < mine.overrides.count; i++)
        free(mine.overrides.texts[i]);
    free(room);
    return code;
}

static int compare(const cmd_common *common, const compile_options *o, const char *other)
{
    json_t *a = NULL, *b = NULL;
    int code = get_report(common, o, o->compare, &a);
    if (code == CMD_OK)
        code = get_report(common, o, other, &b);
    if (code == CMD_OK && common->json)
        code = cmd_print_json(compile_compare_json(a, b));
    else if (code == CMD_OK)
        compile_compare_print(a, b);
    json_decref(a);
    json_decref(b);
    return code;
}

static int compile_command(int argc, char **argv)
{
    cmd_common common;
    cmd_operands operands;
    compile_options chosen = {.program = PROGRAM_DEFAULTS};
    int code = cmd_parse(&cmd_compile, argc, argv, &common, &chosen, &operands);
    int taken = chosen.compare == NULL ? 0 : 1;
    if (code < 0 && operands.count < taken)
        code = cmd_wrong_use(&cmd_compile, "--compare needs two configurations");
    if (code < 0 && operands.count > taken)
        code = cmd_wrong_use(&cmd_compile, "what is \"%s\"?", operands.items[taken]);
    if (code < 0 && chosen.compare != NULL)
        code = compare(&common, &chosen, operands.items[0]);
    if (code < 0)
        code = check_use(&chosen);
    if (code < 0)
        code = compile_one(&common, &chosen);
    hlo_overrides_free(&chosen.overrides);
    return code;
}
