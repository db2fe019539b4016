/* ttt help: what there is to know about the commands, in the form that is asked for. */
#include "tools/cli/help.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

typedef struct help_options {
    int format;
    const char *out;
} help_options;

enum { TEXT, MARKDOWN, MAN, BASH, ZSH, FISH };
static const char *const format_names[] = {"text", "markdown", "man", "bash", "zsh", "fish", NULL};
static const struct {
    bool (*write)(const cmd_spec *spec, FILE *to);
    bool whole; /* of all commands or none */
} formats[] = {
    [TEXT] = {help_print, false}, [MARKDOWN] = {help_markdown, true}, [MAN] = {help_man, false},
    [BASH] = {help_bash, true},   [ZSH] = {help_zsh, true},           [FISH] = {help_fish, true},
};

static const char *command_name(int index)
{
    return cmd_ttt.commands[index] == NULL ? NULL : cmd_ttt.commands[index]->name;
}

static const cmd_option operands_list[] = {
    {"COMMAND", NULL, CMD_TEXT, 0, "which one, ttt itself without it", .choice = command_name,
     .open = true, .repeats = true},
};
static const cmd_option options[] = {
    {"format", "F", CMD_CHOICE, offsetof(help_options, format),
     "text, man (a manual page); of all commands: markdown (docs/reference.md), or the completion "
     "of the shells bash, zsh and fish",
     .usual = "text", .choices = format_names},
    {"out", "DIR", CMD_FOLDER, offsetof(help_options, out),
     "write the manual pages of all commands into this folder"},
};
static int help_command(int argc, char **argv);
const cmd_spec cmd_help = {
    .name = "help",
    .summary = "what there is to know about the commands",
    .usage = "[COMMAND …] [--format F]\n"
             "--format man --out DIR",
    .about = "Tells of a command as its --help does, or writes what is told of the commands in "
             "another form. All forms are made from the tables that the commands themselves read.",
    CMD_OPERANDS(operands_list),
    CMD_OPTIONS(options),
    .notes = "Where ttt was installed, manual pages and completion are already there.",
    .example = "ttt help hlo run\n"
               "source <(ttt help --format bash)\n"
               "ttt help train --format man | man -l -",
    .json = "the tables as JSON: of the command and all below it",
    .run = help_command,
};

/* ---- JSON --------------------------------------------------------------------------------------
 */

static json_t *option_json(const cmd_option *option, const char *group)
{
    static const char *const kinds[] = {
        [CMD_FLAG] = "flag",     [CMD_TEXT] = "text",     [CMD_FILE] = "file",
        [CMD_FOLDER] = "folder", [CMD_NUMBER] = "number", [CMD_CHOICE] = "choice",
        [CMD_CUSTOM] = "text"};
    json_t *words = json_array();
    for (int i = 0; cmd_word(option, i) != NULL; i++)
        json_array_append_new(words, json_string(cmd_word(option, i)));
    json_t *json = json_pack(
        "{s:s, s:s, s:s*, s:s*, s:s*, s:s*, s:o, s:b, s:b}", "name", option->name, "kind",
        kinds[option->kind], "value", option->value, "help", option->help, "default", option->usual,
        "group", group, "choices", words, "others_too", option->open, "repeats", option->repeats);
    if (option->kind == CMD_NUMBER)
        json_object_set_new(json, "most", json_integer(option->most));
    if (option->letter != 0)
        json_object_set_new(json, "letter", json_stringn(&option->letter, 1));
    return json;
}

static json_t *lines_json(const char *text)
{
    help_line line;
    json_t *list = json_array();
    for (const char *at = text; help_next(&at, &line);) {
        const char *start = line.term == NULL ? line.text : line.term;
        json_array_append_new(list, json_stringn(start, (size_t)(line.text + line.size - start)));
    }
    return list;
}

static void add_json(const cmd_spec *spec, void *ctx)
{
    cmd_option rows[HELP_MOST_ROWS];
    size_t count = help_rows(spec, rows);
    const char *group = NULL;
    json_t *operands = json_array(), *list = json_array(), *below = json_array();
    for (size_t i = 0; i < spec->n_operands; i++)
        json_array_append_new(operands, option_json(&spec->operands[i], NULL));
    for (size_t i = 0; i < count; i++) {
        if (help_heading(rows, i) != NULL)
            group = help_heading(rows, i);
        if (rows[i].name != NULL)
            json_array_append_new(list, option_json(&rows[i], group));
    }
    for (size_t i = 0; spec->commands != NULL && spec->commands[i] != NULL; i++)
        json_array_append_new(below, json_string(spec->commands[i]->name));
    json_array_append_new(ctx, json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "name",
                                         spec->name, "summary", spec->summary, "usage",
                                         lines_json(spec->usage), "about", lines_json(spec->about),
                                         "operands", operands, "options", list, "commands", below,
                                         "notes", lines_json(spec->notes), "example",
                                         lines_json(spec->example)));
}

static int print_tables(const cmd_spec *about)
{
    json_t *list = json_array();
    help_each(about, add_json, list);
    return cmd_print_json(json_pack("{s:s, s:s, s:o}", "version", TTT_VERSION, "exit_codes",
                                    HELP_EXIT_CODES, "commands", list));
}

/* ---- files and text ----------------------------------------------------------------------------
 */

typedef struct pages {
    const char *folder;
    pjrt_status *st;
} pages;

static void write_page(const cmd_spec *spec, void *ctx)
{
    pages *p = ctx;
    char path[PATH_MAX], name[64];
    help_name(spec, '-', name);
    if (p->st != NULL || snprintf(path, sizeof path, "%s/%s.1", p->folder, name) >= PATH_MAX)
        return;
    FILE *file = fopen(path, "w");
    bool ok = file != NULL && help_man(spec, file);
    if (file != NULL)
        ok = fclose(file) == 0 && ok;
    if (!ok)
        p->st = PJRT_FAIL(UNAVAILABLE, "ttt", "%s: %s", path, strerror(errno));
}

static int write_pages(const cmd_common *common, const cmd_spec *about, const char *folder)
{
    pages p = {.folder = folder};
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        p.st = PJRT_FAIL(UNAVAILABLE, "ttt", "%s: %s", folder, strerror(errno));
    help_each(about, write_page, &p);
    return p.st == NULL ? CMD_OK : cmd_fail(common, p.st);
}

static int help_command(int argc, char **argv)
{
    cmd_common common;
    cmd_operands operands;
    help_options chosen = {0};
    const cmd_spec *about = &cmd_ttt;
    int code = cmd_parse(&cmd_help, argc, argv, &common, &chosen, &operands);
    for (int i = 0; code < 0 && i < operands.count; i++) {
        const cmd_spec *below = cmd_find(about, operands.items[i]);
        if (below == NULL)
            return about->commands == NULL
                       ? cmd_wrong_use(about, "it is not made of commands such as \"%s\"",
                                       operands.items[i])
                       : cmd_unknown(about, operands.items[i]);
        about = below;
    }
    if (code >= 0)
        return code;
    if (chosen.out != NULL && chosen.format != MAN)
        return cmd_wrong_use(&cmd_help, "--out is for --format man");
    if (common.json)
        return print_tables(about);
    if (chosen.out != NULL)
        return write_pages(&common, about, chosen.out);
    if (formats[chosen.format].whole && about != &cmd_ttt)
        return cmd_wrong_use(&cmd_help, "--format %s is of all commands",
                             format_names[chosen.format]);
    return formats[chosen.format].write(about, stdout) ? CMD_OK : CMD_FAILED;
}
