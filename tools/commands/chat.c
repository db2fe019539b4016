/*
 * ttt chat: turns over one state that goes on. The state is that of the plain transcript: what a
 * reply says beyond its end, when it begins to speak for the user, is taken back.
 */
#include "tools/cli/text_buffer.h"
#include "tools/commands/generate_options.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct chat_options {
    engine_choice engine;
    ttt_sampling sampling;
    text_list stops;
    const char *user, *reply, *state_in;
    int most;
} chat_options;

#define AT(member) offsetof(chat_options, member)
static const cmd_option options[] = {
    CMD_GROUP("the conversation"),
    {"user-prefix", "TEXT", CMD_TEXT, AT(user), "what stands before a turn of yours",
     .usual = "\"User: \""},
    {"reply-prefix", "TEXT", CMD_TEXT, AT(reply), "what stands before a reply",
     .usual = "\"Assistant:\""},
    {"max-tokens", "N", CMD_NUMBER, AT(most), "of a reply, at most", .usual = "256",
     .most = 1 << 30},
    {"stop", "TEXT", CMD_CUSTOM, AT(stops), "ends a reply too, beside the prefix of yours",
     .repeats = true, .set = text_list_add, .what = "one of at most 63"},
    {"state-in", "FILE", CMD_FILE, AT(state_in), "begin with a state instead of nothing"},
    ENGINE_OPTIONS(chat_options, engine),
    SAMPLING_OPTIONS(chat_options, sampling),
};
static int chat_command(int argc, char **argv);
const cmd_spec cmd_chat = {
    .name = "chat",
    .summary = "turns of a conversation over one state",
    .usage = "--model DIR [options]",
    .about = "A conversation: every line from standard input is a turn, and the model's reply the "
             "next. The model reads it as \"User: …\", then \"Assistant: …\", a line each.",
    CMD_OPTIONS(options),
    .notes = "In the chat:\n"
             "/save F, /load F\tthe state, to a file and from it\n"
             "/fork NAME, /back NAME\tremember the state, and return to it\n"
             "/reset, /help, /quit\tbegin anew, these lines, the end",
    .example = "ttt chat --model run --temperature 0.7 --seed 1",
    .json = "what was said, as one JSON object at the end",
    .plugin = CMD_PLUGIN,
    .run = chat_command,
};

enum { MOST_FORKS = 32 };

typedef struct chatting {
    const chat_options *options;
    const cmd_common *common;
    generator model;
    char *stop; /* how a turn of the user's begins: "\nUser:" */
    text_buffer reply;
    struct {
        char *name;
        ttt_state *state;
    } forks[MOST_FORKS];
    int n_forks;
    uint64_t turns;
    json_t *log; /* with --json: what was said */
} chatting;

static volatile sig_atomic_t interrupted;

static void on_interrupt(int number)
{
    (void)number;
    interrupted = 1;
}

static const char *user_prefix(const chatting *c)
{
    return c->options->user == NULL ? "User: " : c->options->user;
}

static const char *reply_prefix(const chatting *c)
{
    return c->options->reply == NULL ? "Assistant:" : c->options->reply;
}

/* ---- one turn ----------------------------------------------------------------------------------
 */

static bool hear(void *ctx, const ttt_piece *piece)
{
    chatting *c = ctx;
    if (!text_buffer_add(&c->reply, piece->text, piece->size))
        return false;
    return c->common->json ||
           (fwrite(piece->text, 1, piece->size, stdout) == piece->size && fflush(stdout) == 0);
}

static bool turn_text(const chatting *c, const char *line, bool first, text_buffer *turn)
{
    const char *parts[] = {first ? "" : "\n", user_prefix(c), line, "\n", reply_prefix(c)};
    bool ok = true;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        ok = ok && text_buffer_add(turn, parts[i], strlen(parts[i]));
    return ok;
}

/* Makes the reply that follows `turn`. */
static pjrt_status *reply(chatting *c, const text_buffer *turn, bool first, ttt_generated *made)
{
    const chat_options *o = c->options;
    const char *stops[GENERATE_MOST_TEXTS + 1] = {c->stop};
    ttt_ids ids = {0};
    ttt_generate_options how = {.sampling = o->sampling,
                                .most = o->most,
                                .stops = stops,
                                .n_stops = 1 + o->stops.count,
                                .stop = &interrupted};
    memcpy(stops + 1, o->stops.list, sizeof o->stops.list);
    how.sampling.seed += c->turns++;
    pjrt_status *st = generator_encode(&c->model, turn->text, turn->size, first, &ids);
    ttt_prompt prompt = {ids.list, (int64_t)ids.count};
    if (st == NULL)
        st = ttt_generate(c->model.engine, c->model.tokenizer, &prompt, 1, &how, hear, c, made);
    free(ids.list);
    return st;
}

/* Back to before the turn, and the turn with its reply once more, without what came after. */
static pjrt_status *read_again(chatting *c, const ttt_state *before, text_buffer *turn, bool first)
{
    ttt_ids ids = {0};
    if (!text_buffer_add(turn, c->reply.text, c->reply.size))
        return PJRT_NO_MEMORY("ttt");
    pjrt_status *st = ttt_engine_put(c->model.engine, 0, before);
    if (st == NULL)
        st = generator_encode(&c->model, turn->text, turn->size, first, &ids);
    if (st == NULL)
        st = ttt_engine_feed(c->model.engine, 0, ids.list, (int64_t)ids.count, NULL);
    free(ids.list);
    return st;
}

/* A turn that fails is as if it had not been. */
static pjrt_status *take_turn(chatting *c, const char *line)
{
    bool first = ttt_engine_position(c->model.engine, 0) <= 0;
    text_buffer turn = {0};
    ttt_state *before = NULL;
    ttt_generated made;
    c->reply.size = 0;
    interrupted = 0;
    pjrt_status *st = ttt_engine_take(c->model.engine, 0, &before);
    if (st == NULL && !(turn_text(c, line, first, &turn) && text_buffer_add(&c->reply, "", 0)))
        st = PJRT_NO_MEMORY("ttt");
    if (st == NULL)
        st = reply(c, &turn, first, &made);
    if (st == NULL && made.end == TTT_END_STOP)
        st = read_again(c, before, &turn, first);
    if (st == NULL && c->common->json)
        json_array_append_new(
            c->log, json_pack("{s:s, s:s#, s:s, s:I, s:I}", "you", line, "reply", c->reply.text,
                              (int)c->reply.size, "end", ttt_end_name(made.end), "read",
                              (json_int_t)made.prompt_tokens, "made", (json_int_t)made.tokens));
    else if (st == NULL)
        putchar('\n');
    else if (before != NULL)
        pjrt_status_free(ttt_engine_put(c->model.engine, 0, before));
    ttt_state_free(before);
    free(turn.text);
    return st;
}

/* ---- commands ----------------------------------------------------------------------------------
 */

static pjrt_status *save(chatting *c, const char *path)
{
    ttt_state *state;
    PJRT_TRY(ttt_engine_take(c->model.engine, 0, &state));
    pjrt_status *st = ttt_state_write(state, path);
    ttt_state_free(state);
    return st;
}

static pjrt_status *load(chatting *c, const char *path)
{
    ttt_state *state;
    PJRT_TRY(ttt_state_read(path, &state));
    pjrt_status *st = ttt_engine_put(c->model.engine, 0, state);
    ttt_state_free(state);
    return st;
}

static int find_fork(const chatting *c, const char *name)
{
    int i = 0;
    while (i < c->n_forks && strcmp(c->forks[i].name, name) != 0)
        i++;
    return i;
}

/* A name that is taken gets the new state. */
static pjrt_status *remember(chatting *c, const char *name)
{
    int at = find_fork(c, name);
    ttt_state *state;
    if (at == MOST_FORKS)
        return PJRT_FAIL(RESOURCE_EXHAUSTED, "ttt", "there are %d forks already", MOST_FORKS);
    PJRT_TRY(ttt_engine_take(c->model.engine, 0, &state));
    char *copy = at < c->n_forks ? c->forks[at].name : strdup(name);
    if (copy == NULL) {
        ttt_state_free(state);
        return PJRT_NO_MEMORY("ttt");
    }
    ttt_state_free(c->forks[at].state);
    c->forks[at].name = copy;
    c->forks[at].state = state;
    c->n_forks += at == c->n_forks;
    return NULL;
}

static pjrt_status *go_back(chatting *c, const char *name)
{
    int at = find_fork(c, name);
    if (at == c->n_forks)
        return PJRT_FAIL(NOT_FOUND, "ttt", "there is no fork called \"%.60s\"", name);
    return ttt_engine_put(c->model.engine, 0, c->forks[at].state);
}

static pjrt_status *start_anew(chatting *c, const char *nothing)
{
    (void)nothing;
    return ttt_engine_reset(c->model.engine, 0);
}

static pjrt_status *show_help(chatting *c, const char *nothing)
{
    (void)c, (void)nothing;
    fputs("/save F  /load F  /fork NAME  /back NAME  /reset  /help  /quit\n", stderr);
    return NULL;
}

static const struct {
    const char *name;
    bool takes; /* a word behind it */
    pjrt_status *(*run)(chatting *c, const char *word);
} commands[] = {
    {"/save", true, save},    {"/load", true, load},         {"/fork", true, remember},
    {"/back", true, go_back}, {"/reset", false, start_anew}, {"/help", false, show_help},
};

static pjrt_status *command(chatting *c, char *line)
{
    char *word = strchr(line, ' ');
    if (word != NULL)
        *word++ = '\0';
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (strcmp(line, commands[i].name) != 0)
            continue;
        if (commands[i].takes != (word != NULL && *word != '\0'))
            return PJRT_FAIL(INVALID_ARGUMENT, "ttt", "%s takes %s", line,
                             commands[i].takes ? "a name" : "nothing");
        return commands[i].run(c, word);
    }
    return PJRT_FAIL(INVALID_ARGUMENT, "ttt", "there is no %.40s (see /help)", line);
}

/* ---- the conversation --------------------------------------------------------------------------
 */

/* What fails in a turn is said, and the chat goes on. */
static void say(const cmd_common *common, pjrt_status *st)
{
    if (st == NULL)
        return;
    fprintf(stderr, "ttt: %s\n", pjrt_status_text(st));
    if (common->verbose)
        fprintf(stderr, "(noticed at %s)\n", pjrt_status_where(st));
    pjrt_status_free(st);
}

static void talk(chatting *c)
{
    bool terminal = isatty(STDIN_FILENO);
    char *line = NULL;
    size_t room = 0;
    ssize_t size;
    for (;;) {
        if (terminal)
            fputs("> ", stderr);
        size = getline(&line, &room, stdin);
        if (size < 0)
            break;
        while (size > 0 && (line[size - 1] == '\n' || line[size - 1] == '\r'))
            line[--size] = '\0';
        if (strcmp(line, "/quit") == 0)
            break;
        if (strlen(line) != (size_t)size)
            say(c->common, PJRT_FAIL(INVALID_ARGUMENT, "ttt", "a line with a NUL is no text"));
        else if (line[0] == '/')
            say(c->common, command(c, line));
        else if (line[0] != '\0')
            say(c->common, take_turn(c, line));
    }
    free(line);
}

/* "\n" and the prefix without the blanks at its end: how a model that goes on would write it. */
static pjrt_status *choose_stop(chatting *c)
{
    const char *prefix = user_prefix(c);
    size_t size = strlen(prefix);
    while (size > 0 && prefix[size - 1] == ' ')
        size--;
    if (asprintf(&c->stop, "\n%.*s", (int)size, prefix) < 0) {
        c->stop = NULL;
        return PJRT_NO_MEMORY("ttt");
    }
    return NULL;
}

static pjrt_status *chat(chatting *c)
{
    const chat_options *o = c->options;
    PJRT_TRY(ttt_sampling_check(&o->sampling));
    PJRT_TRY(choose_stop(c));
    PJRT_TRY(generator_tokenizer(&c->model, &o->engine));
    PJRT_TRY(generator_open(&c->model, c->common, &o->engine, 1, 4096));
    if (o->state_in != NULL)
        PJRT_TRY(load(c, o->state_in));
    signal(SIGINT, on_interrupt);
    talk(c);
    return NULL;
}

static int chat_command(int argc, char **argv)
{
    cmd_common common;
    cmd_operands operands;
    chat_options chosen = {.sampling = SAMPLING_DEFAULTS};
    int code = cmd_parse(&cmd_chat, argc, argv, &common, &chosen, &operands);
    if (code >= 0)
        return code;
    if (operands.count > 0)
        return cmd_wrong_use(&cmd_chat, "what is \"%s\"?", operands.items[0]);
    if (chosen.engine.model == NULL)
        return cmd_wrong_use(&cmd_chat, "--model is missing");
    chatting c = {.options = &chosen, .common = &common, .log = json_array()};
    pjrt_status *st = chat(&c);
    code = st != NULL ? cmd_fail(&common, st) : CMD_OK;
    if (st == NULL && common.json)
        code = cmd_print_json(json_pack("{s:O}", "turns", c.log));
    json_decref(c.log);
    for (int i = 0; i < c.n_forks; i++) {
        free(c.forks[i].name);
        ttt_state_free(c.forks[i].state);
    }
    free(c.stop);
    free(c.reply.text);
    generator_free(&c.model);
    return code;
}
