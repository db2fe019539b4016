/* The command line against the tables of the commands: options, operands, and which command is
 * meant. */
#include "tools/cli/cmd.h"
#include "tools/cli/help.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what every command has --------------------------------------------------------------------
 */

const char *const cmd_plugins[] = {"cpu", "tpu", "cuda", NULL};

const char *cmd_target_name(int index)
{
    size_t count;
    const pjrt_target *targets = pjrt_targets(&count);
    return (size_t)index < count ? targets[index].name : NULL;
}

/* In cmd_common; --help is for cmd_parse itself. */
static const cmd_option common_list[CMD_COMMON_OPTIONS] = {
    {"plugin", "P", CMD_FILE, offsetof(cmd_common, plugin), CMD_PLUGIN, .usual = "cpu",
     .choices = cmd_plugins, .open = true},
    {"json", NULL, CMD_FLAG, offsetof(cmd_common, json), "one JSON object on standard output"},
    {"verbose", NULL, CMD_FLAG, offsetof(cmd_common, verbose),
     "the rest of an error's message, and the plugins' own logs", .letter = 'v'},
    {"help", NULL, CMD_FLAG, 0, "this text", .letter = 'h'},
};

size_t cmd_common_options(const cmd_spec *spec, cmd_option common[CMD_COMMON_OPTIONS])
{
    size_t count = 0;
    for (size_t i = 0; i < CMD_COMMON_OPTIONS; i++) {
        const char *own[CMD_COMMON_OPTIONS] = {spec->plugin, spec->json, spec->verbose};
        if (i == 0 && own[0] == NULL)
            continue;
        common[count] = common_list[i];
        if (own[i] != NULL)
            common[count].help = own[i];
        count++;
    }
    return count;
}

/* ---- words -------------------------------------------------------------------------------------
 */

const char *cmd_word(const cmd_option *option, int index)
{
    if (option->choice != NULL)
        return option->choice(index);
    return option->choices == NULL ? NULL : option->choices[index];
}

void cmd_words_text(const cmd_option *option, char text[CMD_WORDS_TEXT])
{
    size_t size = 0;
    text[0] = '\0';
    for (int i = 0; cmd_word(option, i) != NULL && size < CMD_WORDS_TEXT; i++) {
        const char *between = i == 0 ? "" : cmd_word(option, i + 1) == NULL ? " or " : ", ";
        size += (size_t)snprintf(text + size, CMD_WORDS_TEXT - size, "%s%s", between,
                                 cmd_word(option, i));
    }
}

/* How many letters are added, left out, changed or swapped between two words. */
static int distance(const char *a, const char *b)
{
    enum { LONGEST = 40 };
    int rows[3][LONGEST + 1]; /* of the dynamic programme: the last two and this */
    int n = (int)strlen(a), m = (int)strlen(b);
    if (n > LONGEST || m > LONGEST)
        return INT_MAX;
    for (int j = 0; j <= m; j++)
        rows[0][j] = j;
    for (int i = 1; i <= n; i++) {
        int *now = rows[i % 3];
        const int *last = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];
        now[0] = i;
        for (int j = 1; j <= m; j++) {
            int best = last[j - 1] + (a[i - 1] != b[j - 1]);
            best = last[j] + 1 < best ? last[j] + 1 : best;
            best = now[j - 1] + 1 < best ? now[j - 1] + 1 : best;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                before[j - 2] + 1 < best)
                best = before[j - 2] + 1;
            now[j] = best;
        }
    }
    return rows[n % 3][m];
}

/* A word that may have been meant, the best so far; all zero: none. */
typedef struct guess {
    const char *name;
    int distance;
} guess;

static void weigh(guess *g, const char *word, const char *name)
{
    int d = distance(word, name), length = (int)strlen(word);
    if (length >= 3 && strncmp(word, name, (size_t)length) == 0)
        d = 1; /* the beginning of it */
    if (d <= 2 && d < length && (g->name == NULL || d < g->distance))
        *g = (guess){name, d};
}

/* ---- options -----------------------------------------------------------------------------------
 */

/* The options of a command: its own, and the common ones. */
typedef struct all_options {
    const cmd_spec *spec;
    cmd_option common[CMD_COMMON_OPTIONS];
    size_t n_common;
} all_options;

static const cmd_option *option_at(const all_options *all, size_t index)
{
    if (index < all->spec->n_options)
        return &all->spec->options[index];
    index -= all->spec->n_options;
    return index < all->n_common ? &all->common[index] : NULL;
}

/* `arg` up to `length`: "--name" or "-v". */
static const cmd_option *find_option(const all_options *all, const char *arg, size_t length)
{
    const cmd_option *option;
    for (size_t i = 0; (option = option_at(all, i)) != NULL; i++) {
        if (option->name == NULL)
            continue;
        if (length == 2 && option->letter != 0 && arg[1] == option->letter)
            return option;
        if (length > 2 && arg[1] == '-' && strlen(option->name) == length - 2 &&
            memcmp(option->name, arg + 2, length - 2) == 0)
            return option;
    }
    return NULL;
}

static int unknown_option(const all_options *all, const char *arg)
{
    guess g = {0};
    const cmd_option *option;
    for (size_t i = 0; (option = option_at(all, i)) != NULL; i++) {
        if (option->name != NULL)
            weigh(&g, arg + strspn(arg, "-"), option->name);
    }
    if (g.name == NULL)
        return cmd_wrong_use(all->spec, "unknown option %s", arg);
    return cmd_wrong_use(all->spec, "unknown option %s: did you mean --%s?", arg, g.name);
}

static bool parse_number(const char *text, long most, int *out)
{
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || value < 1 || value > most)
        return false;
    *out = (int)value;
    return true;
}

bool cmd_set_seed(const char *text, void *field)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    *(uint64_t *)field = value;
    return errno == 0 && text[0] >= '0' && text[0] <= '9' && *end == '\0';
}

static bool set_option(const cmd_option *option, const char *value, void *field)
{
    int index = 0;
    if (option->choices != NULL && !option->open) {
        while (option->choices[index] != NULL && strcmp(option->choices[index], value) != 0)
            index++;
        if (option->choices[index] == NULL)
            return false;
    }
    if (option->set != NULL)
        return option->set(value, field);
    switch (option->kind) {
    case CMD_FLAG:
        *(bool *)field = true;
        return true;
    case CMD_TEXT:
    case CMD_FILE:
    case CMD_FOLDER:
        *(const char **)field = value;
        return true;
    case CMD_NUMBER:
        return parse_number(value, option->most, field);
    case CMD_CHOICE:
        *(int *)field = index;
        return true;
    case CMD_CUSTOM:
        break;
    }
    return false;
}

static int bad_value(const cmd_spec *spec, const cmd_option *option, const char *value)
{
    char words[CMD_WORDS_TEXT];
    if (option->what != NULL)
        snprintf(words, sizeof words, "%s", option->what);
    else if (option->kind == CMD_NUMBER)
        snprintf(words, sizeof words, "a number from 1 to %ld", option->most);
    else
        cmd_words_text(option, words);
    return cmd_wrong_use(spec, "--%s: \"%s\" is not %s", option->name, value, words);
}

/* Handles argv[*index], an option, and its value. -1 to go on. */
static int parse_option(const all_options *all, int argc, char **argv, int *index,
                        cmd_common *common, void *chosen)
{
    const char *arg = argv[*index], *equals = strchr(arg, '='), *value = "";
    const cmd_option *option =
        find_option(all, arg, equals == NULL ? strlen(arg) : (size_t)(equals - arg));
    if (option == NULL)
        return unknown_option(all, arg);
    if (option->kind == CMD_FLAG && equals != NULL)
        return cmd_wrong_use(all->spec, "--%s takes no value", option->name);
    if (option->kind != CMD_FLAG && equals == NULL && *index + 1 == argc)
        return cmd_wrong_use(all->spec, "%s needs a value", arg);
    if (option->kind != CMD_FLAG)
        value = equals != NULL ? equals + 1 : argv[++*index];
    bool of_all = option >= all->common && option < all->common + all->n_common;
    if (of_all && strcmp(option->name, "help") == 0)
        return help_print(all->spec, stdout) ? CMD_OK : CMD_FAILED;
    char *base = of_all ? (char *)common : chosen;
    return set_option(option, value, base + option->offset) ? -1
                                                            : bad_value(all->spec, option, value);
}

int cmd_parse(const cmd_spec *spec, int argc, char **argv, cmd_common *common, void *chosen,
              cmd_operands *operands)
{
    bool only_operands = false;
    all_options all = {.spec = spec};
    all.n_common = cmd_common_options(spec, all.common);
    *common = (cmd_common){.plugin = "cpu"};
    operands->items = argv + 1;
    operands->count = 0;
    for (int i = 1; i < argc; i++) {
        char *arg = argv[i];
        if (only_operands || arg[0] != '-' || arg[1] == '\0') {
            operands->items[operands->count++] = arg;
        } else if (strcmp(arg, "--") == 0) {
            only_operands = true;
        } else {
            int code = parse_option(&all, argc, argv, &i, common, chosen);
            if (code >= 0)
                return code;
        }
    }
    return -1;
}

/* ---- commands ----------------------------------------------------------------------------------
 */

const char *cmd_last_word(const cmd_spec *spec)
{
    const char *space = strrchr(spec->name, ' ');
    return space == NULL ? spec->name : space + 1;
}

const cmd_spec *cmd_find(const cmd_spec *spec, const char *word)
{
    for (size_t i = 0; spec->commands != NULL && spec->commands[i] != NULL; i++) {
        if (strcmp(cmd_last_word(spec->commands[i]), word) == 0)
            return spec->commands[i];
    }
    return NULL;
}

int cmd_unknown(const cmd_spec *spec, const char *word)
{
    guess g = {0};
    for (size_t i = 0; spec->commands[i] != NULL; i++)
        weigh(&g, word, cmd_last_word(spec->commands[i]));
    if (g.name == NULL)
        return cmd_wrong_use(spec, "no command is called \"%s\"", word);
    return cmd_wrong_use(spec, "no command is called \"%s\": did you mean %s?", word, g.name);
}

/* Of a command that is made of others, without one of them. */
static int ask_which(const cmd_spec *spec, int argc, char **argv)
{
    cmd_common common;
    cmd_operands operands;
    cmd_option words = {0};
    char text[CMD_WORDS_TEXT];
    const char *names[16] = {0};
    int code = cmd_parse(spec, argc, argv, &common, NULL, &operands);
    if (code >= 0)
        return code;
    for (size_t i = 0; spec->commands[i] != NULL && i + 1 < sizeof names / sizeof *names; i++)
        names[i] = cmd_last_word(spec->commands[i]);
    words.choices = names;
    cmd_words_text(&words, text);
    return cmd_wrong_use(spec, "which command: %s?", text);
}

int cmd_dispatch(const cmd_spec *spec, int argc, char **argv)
{
    if (spec->commands != NULL && argc > 1 && argv[1][0] != '-') {
        const cmd_spec *command = cmd_find(spec, argv[1]);
        return command == NULL ? cmd_unknown(spec, argv[1])
                               : cmd_dispatch(command, argc - 1, argv + 1);
    }
    return spec->run != NULL ? spec->run(argc, argv) : ask_which(spec, argc, argv);
}
