/* ttt tokenizer: text to numbers and back, what a tokenizer is, and training one. */
#include "runtime/base/ttt_hash.h"
#include "runtime/tokenizer/ttt_tokenizer.h"
#include "tools/cli/cmd.h"
#include "tools/cli/text_documents.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OPERAND_TOKENIZER                                                                     \
    {                                                                                         \
        "TOKENIZER", NULL, CMD_FILE, 0,                                                       \
            "bytes, a tokenizer.json of Hugging Face, a sentencepiece .model or a .tiktoken " \
            "file, "                                                                          \
            "whose pattern and special tokens follow from its name (cl100k_base.tiktoken …)", \
            .choices = CMD_WORDS("bytes"), .open = true                                       \
    }

/* Opens the first of one or `most` operands, or says what is wrong; -1 to go on. */
static int open_tokenizer(const cmd_spec *spec, const cmd_common *common,
                          const cmd_operands *operands, int most, ttt_tokenizer **tokenizer)
{
    if (operands->count < 1)
        return cmd_wrong_use(spec, "which tokenizer?");
    if (operands->count > most)
        return cmd_wrong_use(spec, "\"%s\" is one too many", operands->items[operands->count - 1]);
    pjrt_status *st = ttt_tokenizer_open(operands->items[0], tokenizer);
    return st == NULL ? -1 : cmd_fail(common, st);
}

/* The file that is the second operand, else standard input. */
static pjrt_status *read_input(const cmd_operands *operands, char **bytes, size_t *size)
{
    return cmd_read_file(operands->count > 1 ? operands->items[1] : "-", bytes, size);
}

/* ---- encode ------------------------------------------------------------------------------------
 */

typedef struct encode_options {
    const char *text;
    bool bos, eos, specials;
} encode_options;

static const cmd_option encode_operands[] = {
    OPERAND_TOKENIZER,
    {"FILE", NULL, CMD_FILE, 0, "the text; without it and --text: standard input"},
};
static const cmd_option encode_list[] = {
    {"text", "T", CMD_TEXT, offsetof(encode_options, text), "the text itself"},
    {"bos", NULL, CMD_FLAG, offsetof(encode_options, bos),
     "put the token of a beginning before it"},
    {"eos", NULL, CMD_FLAG, offsetof(encode_options, eos), "put the token of an end after it"},
    {"specials", NULL, CMD_FLAG, offsetof(encode_options, specials),
     "texts like <s> become the tokens of these names"},
};
static int encode_command(int argc, char **argv);
static const cmd_spec tokenizer_encode = {
    .name = "tokenizer encode",
    .summary = "text, of a file or of standard input, to numbers",
    .usage = "TOKENIZER [FILE | --text T] [--bos] [--eos] [--specials]",
    .about = "Text, of a file or of standard input, to numbers.",
    CMD_OPERANDS(encode_operands),
    CMD_OPTIONS(encode_list),
    .example = "ttt tokenizer encode tokenizer.json --text \"Once upon a time\" --bos",
    .run = encode_command,
};

static int print_ids(const cmd_common *common, const ttt_ids *ids)
{
    if (common->json) {
        json_t *list = json_array();
        for (size_t i = 0; i < ids->count; i++)
            json_array_append_new(list, json_integer(ids->list[i]));
        return cmd_print_json(json_pack("{s:o}", "ids", list));
    }
    for (size_t i = 0; i < ids->count; i++)
        printf(i == 0 ? "%d" : " %d", ids->list[i]);
    puts("");
    return CMD_OK;
}

static pjrt_status *encode_input(const ttt_tokenizer *tokenizer, const encode_options *chosen,
                                 const cmd_operands *operands, ttt_ids *ids)
{
    ttt_encoder *encoder = NULL;
    char *bytes = NULL;
    const char *text = chosen->text;
    size_t size = text != NULL ? strlen(text) : 0;
    unsigned flags = (chosen->bos ? TTT_ADD_BOS : 0) | (chosen->eos ? TTT_ADD_EOS : 0) |
                     (chosen->specials ? TTT_SPECIALS : 0);
    pjrt_status *st = text != NULL ? NULL : read_input(operands, &bytes, &size);
    if (st == NULL)
        st = ttt_encoder_new(tokenizer, &encoder);
    if (st == NULL)
        st = ttt_encode(encoder, text != NULL ? text : bytes, size, flags, ids);
    ttt_encoder_free(encoder);
    free(bytes);
    return st;
}

static int encode_command(int argc, char **argv)
{
    cmd_common common;
    cmd_operands operands;
    encode_options chosen = {0};
    ttt_tokenizer *tokenizer = NULL;
    ttt_ids ids = {0};
    int code = cmd_parse(&tokenizer_encode, argc, argv, &common, &chosen, &operands);
    if (code < 0)
        code = open_tokenizer(&tokenizer_encode, &common, &operands, 2, &tokenizer);
    if (code >= 0)
        return code;
    pjrt_status *st = encode_input(tokenizer, &chosen, &operands, &ids);
    code = st != NULL ? cmd_fail(&common, st) : print_ids(&common, &ids);
    free(ids.list);
    ttt_tokenizer_free(tokenizer);
    return code;
}

/* ---- decode ------------------------------------------------------------------------------------
 */

typedef struct decode_options {
    const char *ids;
    bool skip;
} decode_options;

static const cmd_option decode_operands[] = {
    OPERAND_TOKENIZER,
    {"FILE", NULL, CMD_FILE, 0, "the numbers; without it and --ids: standard input"},
};
static const cmd_option decode_list[] = {
    {"ids", "1,2,3", CMD_TEXT, offsetof(decode_options, ids), "the numbers themselves"},
    {"skip-specials", NULL, CMD_FLAG, offsetof(decode_options, skip),
     "leave tokens like <s> out of the text"},
};
static int decode_command(int argc, char **argv);
static const cmd_spec tokenizer_decode = {
    .name = "tokenizer decode",
    .summary = "numbers to text",
    .usage = "TOKENIZER [FILE | --ids 1,2,3] [--skip-specials]",
    .about = "Numbers to text; spaces, commas or ends of lines are between them.",
    CMD_OPERANDS(decode_operands),
    CMD_OPTIONS(decode_list),
    .example = "ttt tokenizer decode tokenizer.json --ids 1,17,4",
    .run = decode_command,
};

/* Numbers with anything of ", \t\r\n" between them. */
static pjrt_status *parse_ids(const char *text, ttt_ids *ids)
{
    static const char between[] = ", \t\r\n";
    for (const char *at = text + strspn(text, between); *at != '\0'; at += strspn(at, between)) {
        char *end;
        errno = 0;
        long value = strtol(at, &end, 10);
        if (end == at || errno != 0 || value < 0 || value > INT32_MAX)
            return PJRT_FAIL(INVALID_ARGUMENT, "ttt", "\"%.20s\" is not the number of a token", at);
        if (ids->count == ids->room) {
            size_t room = ids->room * 2 + 1024;
            int32_t *list = realloc(ids->list, room * sizeof *list);
            if (list == NULL)
                return PJRT_NO_MEMORY("ttt");
            ids->list = list;
            ids->room = room;
        }
        ids->list[ids->count++] = (int32_t)value;
        at = end;
    }
    return NULL;
}

/* JSON is Unicode: there, what is broken is replaced, as whoever reads token by token sees it. */
static pjrt_status *decode_whole(const ttt_tokenizer *tokenizer, const ttt_ids *ids, unsigned flags,
                                 json_t **out)
{
    ttt_decoder *decoder = NULL;
    char *text = NULL;
    size_t size = 0, room = 0, part_size;
    const char *part;
    pjrt_status *st = ttt_decoder_new(tokenizer, flags, &decoder);
    for (size_t i = 0; st == NULL && i <= ids->count; i++) {
        st = i < ids->count ? ttt_decoder_next(decoder, ids->list[i], &part, &part_size)
                            : ttt_decoder_finish(decoder, &part, &part_size);
        if (st == NULL && size + part_size > room) {
            char *larger = realloc(text, room = 2 * (size + part_size));
            if (larger == NULL)
                st = PJRT_NO_MEMORY("ttt");
            else
                text = larger;
        }
        if (st == NULL && part_size > 0) {
            memcpy(text + size, part, part_size);
            size += part_size;
        }
    }
    if (st == NULL && (*out = json_stringn(size > 0 ? text : "", size)) == NULL)
        st = PJRT_NO_MEMORY("ttt");
    ttt_decoder_free(decoder);
    free(text);
    return st;
}

static int decode(const cmd_common *common, const ttt_tokenizer *tokenizer,
                  const decode_options *chosen, const cmd_operands *operands)
{
    ttt_ids ids = {0};
    char *input = NULL, *text = NULL;
    json_t *json = NULL;
    size_t size = 0;
    unsigned flags = chosen->skip ? TTT_SKIP_SPECIALS : 0;
    pjrt_status *st = chosen->ids != NULL ? NULL : read_input(operands, &input, &size);
    if (st == NULL)
        st = parse_ids(chosen->ids != NULL ? chosen->ids : input, &ids);
    if (st == NULL && common->json)
        st = decode_whole(tokenizer, &ids, flags, &json);
    else if (st == NULL)
        st = ttt_decode(tokenizer, ids.list, ids.count, flags, &text, &size);
    int code = CMD_OK;
    if (st != NULL)
        code = cmd_fail(common, st);
    else if (common->json)
        code = cmd_print_json(json_pack("{s:o}", "text", json));
    else if (fwrite(text, 1, size, stdout) != size || fflush(stdout) != 0)
        code =
            cmd_fail(common, PJRT_FAIL(UNAVAILABLE, "ttt", "standard output: %s", strerror(errno)));
    free(text);
    free(input);
    free(ids.list);
    return code;
}

static int decode_command(int argc, char **argv)
{
    cmd_common common;
    cmd_operands operands;
    decode_options chosen = {0};
    ttt_tokenizer *tokenizer = NULL;
    int code = cmd_parse(&tokenizer_decode, argc, argv, &common, &chosen, &operands);
    if (code < 0)
        code = open_tokenizer(&tokenizer_decode, &common, &operands, 2, &tokenizer);
    if (code >= 0)
        return code;
    code = decode(&common, tokenizer, &chosen, &operands);
    ttt_tokenizer_free(tokenizer);
    return code;
}

/* ---- info --------------------------------------------------------------------------------------
 */

static const cmd_option info_operands[] = {OPERAND_TOKENIZER};
static int info_command(int argc, char **argv);
static const cmd_spec tokenizer_info = {
    .name = "tokenizer info",
    .summary = "the kind of a tokenizer, its size and its special tokens",
    .usage = "TOKENIZER",
    .about = "The kind of a tokenizer, its size and its special tokens.",
    CMD_OPERANDS(info_operands),
    .example = "ttt tokenizer info bytes",
    .run = info_command,
};

static json_t *mark_json(int32_t id)
{
    return id < 0 ? json_null() : json_integer(id);
}

static void print_mark(const char *name, const ttt_tokenizer *tokenizer, int32_t id)
{
    size_t size = 0;
    const char *text = id < 0 ? NULL : ttt_tokenizer_token(tokenizer, id, &size);
    if (text == NULL)
        printf("%-9s none\n", name);
    else
        printf("%-9s %d %.*s\n", name, id, (int)size, text);
}

static int info(const cmd_common *common, const ttt_tokenizer *tokenizer)
{
    const ttt_tokenizer_about *about = ttt_tokenizer_info(tokenizer);
    char hash[33];
    ttt_hash_hex(about->hash[1], about->hash[0], hash);
    if (common->json)
        return cmd_print_json(json_pack(
            "{s:s, s:I, s:o, s:o, s:o, s:o, s:s}", "kind", about->kind, "vocab",
            (json_int_t)about->vocab, "bos", mark_json(about->bos), "eos", mark_json(about->eos),
            "unknown", mark_json(about->unknown), "pad", mark_json(about->pad), "hash", hash));
    printf("%-9s %s\n%-9s %lld\n", "kind", about->kind, "vocab", (long long)about->vocab);
    print_mark("bos", tokenizer, about->bos);
    print_mark("eos", tokenizer, about->eos);
    print_mark("unknown", tokenizer, about->unknown);
    print_mark("pad", tokenizer, about->pad);
    printf("%-9s %s\n", "hash", hash);
    return CMD_OK;
}

static int info_command(int argc, char **argv)
{
    cmd_common common;
    cmd_operands operands;
    ttt_tokenizer *tokenizer = NULL;
    int code = cmd_parse(&tokenizer_info, argc, argv, &common, NULL, &operands);
    if (code < 0)
        code = open_tokenizer(&tokenizer_info, &common, &operands, 1, &tokenizer);
    if (code >= 0)
        return code;
    code = info(&common, tokenizer);
    ttt_tokenizer_free(tokenizer);
    return code;
}

/* ---- train -------------------------------------------------------------------------------------
 */

typedef struct train_options {
    int vocab;
} train_options;

static const cmd_option train_operands[] = {
    {"OUT.json", NULL, CMD_FILE, 0, "the file to write"},
    {"FILE", NULL, CMD_FILE, 0, "the texts", .repeats = true},
};
static const cmd_option train_list[] = {
    {"vocab", "N", CMD_NUMBER, offsetof(train_options, vocab), "how many tokens it is to have",
     .most = 1 << 20},
};
static int train_command(int argc, char **argv);
static const cmd_spec tokenizer_train = {
    .name = "tokenizer train",
    .summary = "a byte-level BPE from texts, as a tokenizer.json",
    .usage = "OUT.json FILE … --vocab N",
    .about = "Learns a byte-level BPE of N tokens from texts, and writes it as a tokenizer.json.",
    CMD_OPERANDS(train_operands),
    CMD_OPTIONS(train_list),
    .example = "ttt tokenizer train tokenizer.json corpus/*.txt --vocab 4096",
    .run = train_command,
};

static void show_progress(void *ctx, int64_t done, int64_t all)
{
    (void)ctx;
    if (done % 1000 == 0 || done == all)
        fprintf(stderr, "\r%lld of %lld merges%s", (long long)done, (long long)all,
                done == all ? "\n" : "");
}

static int train(const cmd_common *common, int vocab, const cmd_operands *operands)
{
    ttt_bpe_trainer *trainer = NULL;
    double start = cmd_seconds();
    bool watched = !common->json && isatty(STDERR_FILENO);
    pjrt_status *st = ttt_bpe_trainer_new(&trainer);
    for (int i = 1; st == NULL && i < operands->count; i++)
        st = texts_learn(trainer, operands->items[i]);
    if (st == NULL)
        st = ttt_bpe_trainer_write(trainer, vocab, operands->items[0],
                                   watched ? show_progress : NULL, NULL);
    ttt_bpe_trainer_free(trainer);
    if (st != NULL)
        return cmd_fail(common, st);
    double seconds = cmd_seconds() - start;
    if (common->json)
        return cmd_print_json(json_pack("{s:s, s:i, s:f}", "file", operands->items[0], "vocab",
                                        vocab, "seconds", seconds));
    printf("%s: %d tokens in %.2f s\n", operands->items[0], vocab, seconds);
    return CMD_OK;
}

static int train_command(int argc, char **argv)
{
    cmd_common common;
    cmd_operands operands;
    train_options chosen = {0};
    int code = cmd_parse(&tokenizer_train, argc, argv, &common, &chosen, &operands);
    if (code >= 0)
        return code;
    if (operands.count < 2)
        return cmd_wrong_use(&tokenizer_train,
                             "it needs the file to write and at least one to read");
    if (chosen.vocab == 0)
        return cmd_wrong_use(&tokenizer_train, "it needs --vocab");
    return train(&common, chosen.vocab, &operands);
}

const cmd_spec cmd_tokenizer = {
    .name = "tokenizer",
    .summary = "text to numbers and back, and training for it",
    .usage = "encode TOKENIZER [FILE | --text T] [--bos] [--eos] [--specials]\n"
             "decode TOKENIZER [FILE | --ids 1,2,3] [--skip-specials]\n"
             "info TOKENIZER\n"
             "train OUT.json FILE … --vocab N",
    .about = "Text to numbers and back, what a tokenizer is, and training one.",
    .commands = (const cmd_spec *const[]){&tokenizer_encode, &tokenizer_decode, &tokenizer_info,
                                          &tokenizer_train, NULL},
};
