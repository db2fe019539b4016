/* ttt data prepare and ttt data info: text to prepared folders, and what is in them. */
#include "runtime/ttt_data.h"
#include "tools/cmd.h"
#include "tools/progress.h"

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

static const cmd_option prepare_list[] = {
    {"input", "possible: no memory", CMD_CUSTOM, offsetof(prepare_options, inputs), 0, add_name},
    {"tokenizer", "", CMD_TEXT, offsetof(prepare_options, tokenizer), 0, NULL},
    {"out", "", CMD_TEXT, offsetof(prepare_options, out), 0, NULL},
    {"field", "", CMD_TEXT, offsetof(prepare_options, field), 0, NULL},
    {"separator", "", CMD_TEXT, offsetof(prepare_options, separator), 0, NULL},
    {"validation", "a share from 0 to 1", CMD_CUSTOM, offsetof(prepare_options, validation), 0,
     set_share},
    {"seed", "a whole number from 0", CMD_CUSTOM, offsetof(prepare_options, seed), 0, cmd_set_seed},
    {"threads", "a number from 1 to 256", CMD_NUMBER, offsetof(prepare_options, threads), 256,
     NULL},
    {"shard-tokens", "a number from 1 to 2^40", CMD_CUSTOM, offsetof(prepare_options, shard_tokens),
     0, set_tokens},
    {"strict", "", CMD_FLAG, offsetof(prepare_options, strict), 0, NULL},
};
static const char prepare_help[] =
    "usage: ttt data prepare --tokenizer T --out DIR [options] INPUT …\n"
    "\n"
    "Writes the folder DIR with the inputs' documents as tokens, for training. An input is a "
    "file,\n"
    "or a folder whose files are taken in order of names: .txt .text .md (text), .jsonl .json "
    "(one\n"
    "document a line), and each of these compressed, with .zst behind.\n"
    "  --input F          an input too; may come again\n"
    "  --tokenizer T      bytes, or a file: tokenizer.json, a sentencepiece model, a .tiktoken\n"
    "                     table; it is copied into DIR\n"
    "  --out DIR          what a stopped or killed run left there is taken up again by the same\n"
    "                     command; data of other inputs or options is never overwritten\n"
    "  --field NAME       of JSON lines, that has the text (text)\n"
    "  --separator LINE   such a line ends a document of a text file (else a file is one); \"\" "
    "is\n"
    "                     a blank line\n"
    "  --validation X     share of documents for the split \"validation\" (0)\n"
    "  --seed N           which documents those are (0)\n"
    "  --threads N        that encode (all cores)\n"
    "  --shard-tokens N   tokens of a file (134217728)\n"
    "  --strict           fail at the first bad line, instead of counting them\n";
static const cmd_spec prepare_spec = {"data prepare", prepare_help, prepare_list,
                                      sizeof prepare_list / sizeof *prepare_list};

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

static int cmd_prepare(int argc, char **argv)
{
    cmd_common common;
    cmd_operands operands;
    prepare_options chosen = {0};
    int code = cmd_parse(&prepare_spec, argc, argv, &common, &chosen, &operands);
    bool memory = true;
    for (int i = 0; code < 0 && i < operands.count; i++)
        memory = add_name(operands.items[i], &chosen.inputs) && memory;
    if (code < 0 && chosen.inputs.count == 0)
        code = cmd_wrong_use(&prepare_spec, "which inputs?");
    else if (code < 0 && chosen.tokenizer == NULL)
        code = cmd_wrong_use(&prepare_spec, "--tokenizer is missing: bytes, or a file");
    else if (code < 0 && chosen.out == NULL)
        code = cmd_wrong_use(&prepare_spec, "--out is missing: the folder to write");
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

static const cmd_option info_list[] = {
    {"verify", "", CMD_FLAG, offsetof(info_options, verify), 0, NULL},
};
static const char info_help[] =
    "usage: ttt data info DIR [--verify]\n"
    "\n"
    "What a prepared folder holds. That all files are there in their sizes is always checked.\n"
    "  --verify   read every file and check its hash\n";
static const cmd_spec info_spec = {"data info", info_help, info_list,
                                   sizeof info_list / sizeof *info_list};

static const char *hash_text(const uint64_t hash[2], char text[33])
{
    snprintf(text, 33, "%016llx%016llx", (unsigned long long)hash[1], (unsigned long long)hash[0]);
    return text;
}

static void print_split(const char *name, const ttt_dataset_about *about)
{
    char hash[33];
    printf("%s: %lld documents, %lld tokens in %d files, hash %s; tokenizer %s (vocabulary %lld, "
           "BOS %d, EOS %d)\n",
           name, (long long)about->documents, (long long)about->tokens, about->shards,
           hash_text(about->hash, hash), about->tokenizer, (long long)about->vocab, (int)about->bos,
           (int)about->eos);
}

static json_t *about_json(const ttt_dataset_about *about)
{
    char hash[33];
    return json_pack("{s:I, s:I, s:i, s:s}", "documents", (json_int_t)about->documents, "tokens",
                     (json_int_t)about->tokens, "shards", about->shards, "xxh3_128",
                     hash_text(about->hash, hash));
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

static int cmd_info(int argc, char **argv)
{
    cmd_common common;
    cmd_operands operands;
    info_options chosen = {0};
    int code = cmd_parse(&info_spec, argc, argv, &common, &chosen, &operands);
    if (code >= 0)
        return code;
    if (operands.count != 1)
        return cmd_wrong_use(&info_spec, "which folder?");
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

static const char help[] = "usage: ttt data prepare --tokenizer T --out DIR [options] INPUT …\n"
                           "       ttt data info DIR [--verify]\n"
                           "\n"
                           "  prepare   text to a folder of tokens\n"
                           "  info      what such a folder holds\n"
                           "\n"
                           "ttt data prepare --help and so on tell the rest.\n";
static const cmd_spec spec = {"data", help, NULL, 0};

int cmd_data(int argc, char **argv)
{
    cmd_common common;
    cmd_operands operands;
    if (argc > 1 && strcmp(argv[1], "prepare") == 0)
        return cmd_prepare(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "info") == 0)
        return cmd_info(argc - 1, argv + 1);
    int code = cmd_parse(&spec, argc, argv, &common, NULL, &operands);
    return code >= 0 ? code : cmd_wrong_use(&spec, "what is to be done: prepare or info?");
}
