/* ttt data prepare and ttt data info: text to prepared folders, and what is in them. */
#include "runtime/base/ttt_hash.h"
#include "runtime/data/ttt_data.h"
#include "tools/cli/cmd.h"
#include "tools/cli/progress.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- prepare -----------------------------------------------------------------------------------
 */

typedef struct names {
    const char **list;
    int count;
} names;

typedef struct prepare_options {
    names inputs;
    const char *tokenizer, *out, *field, *separator;
    double validation;
    uint64_t seed;
    int threads;
    int64_t shard_tokens;
    bool strict;
} prepare_options;

static bool add_name(const char *text, void *field)
{
    names *all = field;
    const char **list = realloc(all->list, ((size_t)all->count + 1) * sizeof *list);
    if (list == NULL)
        return false;
    list[all->count++] = text;
    all->list = list;
    return true;
}

static bool set_share(const char *text, void *field)
{
    char *end;
    double value = strtod(text, &end);
    *(double *)field = value;
    return end != text && *end == '\0' && value >= 0 && value <= 1;
}

static bool set_tokens(const char *text, void *field)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    *(int64_t *)field = value;
    return errno == 0 && end != text && *end == '\0' && value >= 1 && value <= 1LL << 40;
}

static const cmd_option prepare_operands[] = {
    {"INPUT", NULL, CMD_FILE, 0,
     "a file, or a folder whose files are taken in order of names: .txt .text .md (text), .jsonl "
     ".json (one document a line), and each of these compressed, with .zst behind",
     .repeats = true},
};
#define AT(member) offsetof(prepare_options, member)
static const cmd_option prepare_list[] = {
    {"input", "FILE", CMD_FILE, AT(inputs), "an input too", .repeats = true, .set = add_name,
     .what = "possible: no memory"},
    {"tokenizer", "T", CMD_FILE, AT(tokenizer),
     "bytes, or a file: tokenizer.json, a sentencepiece model, a .tiktoken table; it is copied "
     "into DIR",
     .choices = CMD_WORDS("bytes"), .open = true},
    {"out", "DIR", CMD_FOLDER, AT(out),
     "the folder to write; what a stopped or killed run left there is taken up again by the same "
     "command; data of other inputs or options is never overwritten"},
    {"field", "NAME", CMD_TEXT, AT(field), "of JSON lines, that has the text", .usual = "text"},
    {"separator", "LINE", CMD_TEXT, AT(separator),
     "such a line ends a document of a text file (else a file is one); \"\" is a blank line"},
    {"validation", "X", CMD_CUSTOM, AT(validation),
     "share of documents for the split \"validation\"", .usual = "0", .set = set_share,
     .what = "a share from 0 to 1"},
    {"seed", "N", CMD_CUSTOM, AT(seed), "which documents those are", .usual = "0",
     .set = cmd_set_seed, .what = "a whole number from 0"},
    {"threads", "N", CMD_NUMBER, AT(threads), "threads that encode", .usual = "all cores",
     .most = 256},
    {"shard-tokens", "N", CMD_CUSTOM, AT(shard_tokens), "tokens of a file", .usual = "134217728",
     .set = set_tokens, .what = "a number from 1 to 2^40"},
    {"strict", NULL, CMD_FLAG, AT(strict), "fail at the first bad line, instead of counting them"},
};
static int prepare_command(int argc, char **argv);
static const cmd_spec data_prepare = {
    .name = "data prepare",
    .summary = "text to a folder of tokens",
    .usage = "--tokenizer T --out DIR [options] INPUT …",
    .about = "Writes the folder DIR with the inputs' documents as tokens, for training.",
    CMD_OPERANDS(prepare_operands),
    CMD_OPTIONS(prepare_list),
    .example = "ttt data prepare --tokenizer bytes --out prepared --validation 0.05 corpus",
    .run = prepare_command,
};

static atomic_bool stop;

static void ask_to_stop(int number)
{
    (void)number;
    atomic_store(&stop, true);
}

/* The first signal leaves in good order; the second is one as always. */
static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = ask_to_stop, .sa_flags = (int)SA_RESETHAND};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

/* The speed is of this run: what an earlier one did took no time now. */
typedef struct watch {
    progress_line line;
    double began;
    int64_t bytes, tokens; /* when it began */
    bool started;
} watch;

static void show(void *ctx, const ttt_prepare_progress *p)
{
    watch *w = ctx;
    if (!w->started) {
        w->started = true;
        w->began = cmd_seconds();
        w->bytes = p->bytes;
        w->tokens = p->tokens;
    }
    double seconds = cmd_seconds() - w->began;
    if (!progress_due(&w->line) || seconds <= 0)
        return;
    double bytes = (double)(p->bytes - w->bytes) / seconds;
    double tokens = (double)(p->tokens - w->tokens) / seconds;
    double share = p->total_bytes == 0 ? 1 : (double)p->bytes / (double)p->total_bytes;
    progress_show(&w->line, "%5.1f%%  %s  %s  %s left", 100 * share, cmd_quantity(bytes, "B/s"),
                  cmd_quantity(tokens, "tokens/s"),
                  progress_time((double)(p->total_bytes - p->bytes) / bytes));
}

static json_t *split_json(int64_t tokens, int64_t documents)
{
    return json_pack("{s:I, s:I}", "tokens", (json_int_t)tokens, "documents",
                     (json_int_t)documents);
}

static int print_report(const cmd_common *common, const char *out, const ttt_prepare_report *r)
{
    if (common->json)
        return cmd_print_json(json_pack(
            "{s:s, s:I, s:I, s:s*, s:I, s:I, s:I, s:s*, s:b, s:f, s:o, s:o}", "folder", out,
            "files", (json_int_t)r->files, "skipped_files", (json_int_t)r->skipped_files,
            "first_skipped", r->skipped_files > 0 ? r->first_skipped : NULL, "bytes",
            (json_int_t)r->all.total_bytes, "tokens", (json_int_t)r->all.tokens, "bad_lines",
            (json_int_t)r->all.bad_lines, "first_bad", r->all.bad_lines > 0 ? r->first_bad : NULL,
            "resumed", (int)r->resumed, "seconds", r->all.seconds, "train",
            split_json(r->train_tokens, r->train_documents), "validation",
            split_json(r->validation_tokens, r->validation_documents)));
    printf("%s: %lld %s, %s, in %s%s\n", out, (long long)r->files, r->files == 1 ? "file" : "files",
           cmd_quantity((double)r->all.total_bytes, "B"), progress_time(r->all.seconds),
           r->resumed ? " (an earlier run was taken up)" : "");
    printf("train:      %lld documents, %lld tokens\n", (long long)r->train_documents,
           (long long)r->train_tokens);
    printf("validation: %lld documents, %lld tokens\n", (long long)r->validation_documents,
           (long long)r->validation_tokens);
    if (r->all.bad_lines > 0)
        printf("bad lines:  %lld, the first: %s\n", (long long)r->all.bad_lines, r->first_bad);
    if (r->skipped_files > 0)
        printf("passed over: %lld files that are neither text nor JSON lines, the first: %s\n",
               (long long)r->skipped_files, r->first_skipped);
    return CMD_OK;
}

static int prepare(const cmd_common *common, const prepare_options *chosen)
{
    ttt_prepare_report report;
    watch w = {.line = progress_begin()};
    const ttt_prepare_options options = {
        .inputs = chosen->inputs.list,
        .n_inputs = chosen->inputs.count,
        .tokenizer = chosen->tokenizer,
        .out = chosen->out,
        .field = chosen->field,
        .validation = chosen->validation,
        .seed = chosen->seed,
        .threads = chosen->threads,
        .shard_tokens = chosen->shard_tokens,
        .strict = chosen->strict,
        .separator = chosen->separator,
        .progress = show,
        .ctx = &w,
        .stop = &stop,
    };
    catch_signals();
    pjrt_status *st = ttt_prepare(&options, &report);
    progress_end(&w.line);
    return st == NULL ? print_report(common, chosen->out, &report) : cmd_fail(common, st);
}

static int prepare_command(int argc, char **argv)
{
    cmd_common common;
    cmd_operands operands;
    prepare_options chosen = {0};
    int code = cmd_parse(&data_prepare, argc, argv, &common, &chosen, &operands);
    bool memory = true;
    for (int i = 0; code < 0 && i < operands.count; i++)
        memory = add_name(operands.items[i], &chosen.inputs) && memory;
    if (code < 0 && chosen.inputs.count == 0)
        code = cmd_wrong_use(&data_prepare, "which inputs?");
    else if (code < 0 && chosen.tokenizer == NULL)
        code = cmd_wrong_use(&data_prepare, "--tokenizer is missing: bytes, or a file");
    else if (code < 0 && chosen.out == NULL)
        code = cmd_wrong_use(&data_prepare, "--out is missing: the folder to write");
    else if (code < 0)
        code = memory ? prepare(&common, &chosen) : cmd_fail(&common, PJRT_NO_MEMORY("ttt"));
    free(chosen.inputs.list);
    return code;
}

/* ---- info --------------------------------------------------------------------------------------
 */

typedef struct info_options {
    bool verify;
} info_options;

static const cmd_option info_operands[] = {
    {"DIR", NULL, CMD_FOLDER, 0, "what ttt data prepare wrote"},
};
static const cmd_option info_list[] = {
    {"verify", NULL, CMD_FLAG, offsetof(info_options, verify),
     "read every file and check its hash"},
};
static int info_command(int argc, char **argv);
static const cmd_spec data_info = {
    .name = "data info",
    .summary = "what a prepared folder holds",
    .usage = "DIR [--verify]",
    .about =
        "What a prepared folder holds. That all files are there in their sizes is always checked.",
    CMD_OPERANDS(info_operands),
    CMD_OPTIONS(info_list),
    .example = "ttt data info prepared --verify",
    .run = info_command,
};

static void print_split(const char *name, const ttt_dataset_about *about)
{
    char hash[33];
    printf("%s: %lld documents, %lld tokens in %d files, hash %s; tokenizer %s (vocabulary %lld, "
           "BOS %d, EOS %d)\n",
           name, (long long)about->documents, (long long)about->tokens, about->shards,
           ttt_hash_hex(about->hash[1], about->hash[0], hash), about->tokenizer,
           (long long)about->vocab, (int)about->bos, (int)about->eos);
}

static json_t *about_json(const ttt_dataset_about *about)
{
    char hash[33];
    return json_pack("{s:I, s:I, s:i, s:s}", "documents", (json_int_t)about->documents, "tokens",
                     (json_int_t)about->tokens, "shards", about->shards, "xxh3_128",
                     ttt_hash_hex(about->hash[1], about->hash[0], hash));
}

static json_t *tokenizer_json(const ttt_dataset_about *about)
{
    return json_pack("{s:s, s:I, s:i, s:i}", "name", about->tokenizer, "vocab",
                     (json_int_t)about->vocab, "bos", (int)about->bos, "eos", (int)about->eos);
}

/* One split; into `all` when it is JSON that is asked for. */
static pjrt_status *describe(const char *folder, const char *split, bool verify, json_t *all)
{
    ttt_dataset *data;
    PJRT_TRY(ttt_dataset_open(folder, split, &data));
    const ttt_dataset_about *about = ttt_dataset_info(data);
    pjrt_status *st = verify ? ttt_dataset_verify(data) : NULL;
    if (st == NULL && all != NULL) {
        json_object_set_new(all, "tokenizer", tokenizer_json(about));
        json_object_set_new(all, split, about_json(about));
    } else if (st == NULL) {
        print_split(split, about);
    }
    ttt_dataset_free(data);
    return st;
}

/* Either split may be missing, when no document fell into it; not both. */
static pjrt_status *describe_all(const char *folder, bool verify, json_t *all)
{
    static const char *const splits[] = {"train", "validation"};
    pjrt_status *st = NULL, *missing = NULL;
    int found = 0;
    for (int i = 0; st == NULL && i < 2; i++) {
        st = describe(folder, splits[i], verify, all);
        found += st == NULL;
        if (pjrt_status_code(st) == PJRT_CODE_NOT_FOUND) {
            pjrt_status_free(missing);
            missing = st;
            st = NULL;
        }
    }
    if (st == NULL && found == 0)
        return missing;
    pjrt_status_free(missing);
    return st;
}

static int info_command(int argc, char **argv)
{
    cmd_common common;
    cmd_operands operands;
    info_options chosen = {0};
    int code = cmd_parse(&data_info, argc, argv, &common, &chosen, &operands);
    if (code >= 0)
        return code;
    if (operands.count != 1)
        return cmd_wrong_use(&data_info, "which folder?");
    json_t *all = common.json ? json_pack("{s:s, s:b}", "folder", operands.items[0], "verified",
                                          (int)chosen.verify)
                              : NULL;
    pjrt_status *st = describe_all(operands.items[0], chosen.verify, all);
    if (st != NULL) {
        json_decref(all);
        return cmd_fail(&common, st);
    }
    if (common.json)
        return cmd_print_json(all);
    if (chosen.verify)
        puts("every file has its hash");
    return CMD_OK;
}

/* ---- the command -------------------------------------------------------------------------------
 */

const cmd_spec cmd_data = {
    .name = "data",
    .summary = "text to tokens for training",
    .usage = "prepare --tokenizer T --out DIR [options] INPUT …\n"
             "info DIR [--verify]",
    .about = "Data for training: made, and looked at.",
    .commands = (const cmd_spec *const[]){&data_prepare, &data_info, NULL},
};
