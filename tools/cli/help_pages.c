/* Tables of commands as pages: the reference in Markdown, and manual pages. */
#include "tools/cli/help.h"

#include <ctype.h>
#include <string.h>

/* ---- Markdown ----------------------------------------------------------------------------------
 */

/* Text as it is; words that begin with "--" as code. */
static void put_markdown(FILE *to, const char *text, int size)
{
    for (int i = 0; i < size;) {
        bool begins = i == 0 || text[i - 1] == ' ' || text[i - 1] == '(';
        int length = begins && strncmp(text + i, "--", 2) == 0
                         ? 2 + (int)strspn(text + i + 2, "abcdefghijklmnopqrstuvwxyz-")
                         : 0;
        if (length > 2 && i + length <= size) {
            fprintf(to, "`%.*s`", length, text + i);
            i += length;
            continue;
        }
        if (strchr("|*<[`\\", text[i]) != NULL)
            fputc('\\', to);
        fputc(text[i++], to);
    }
}

static void markdown_text(FILE *to, const char *text)
{
    help_line line;
    bool in_list = false;
    for (const char *at = text; help_next(&at, &line); in_list = line.term != NULL) {
        if (!in_list || line.term == NULL)
            fputc('\n', to);
        if (line.term != NULL)
            fprintf(to, "- `%.*s`: ", line.term_size, line.term);
        put_markdown(to, line.text, line.size);
        fputc('\n', to);
    }
}

static void markdown_operands(FILE *to, const cmd_spec *spec)
{
    char text[HELP_TEXT];
    if (spec->n_operands > 0)
        fputs("\n| operand | what it is |\n|---|---|\n", to);
    for (size_t i = 0; i < spec->n_operands; i++) {
        help_operand_label(&spec->operands[i], text);
        fprintf(to, "| `%s` | ", text);
        help_sentence(&spec->operands[i], text);
        put_markdown(to, text, (int)strlen(text));
        fputs(" |\n", to);
    }
}

static void markdown_option(FILE *to, const char *command, const cmd_option *option)
{
    char text[HELP_TEXT];
    help_label(option, text);
    fprintf(to, "| <a id=\"%s--%s\"></a>`%s` | ", command, option->name, text);
    help_sentence_alone(option, text);
    put_markdown(to, text, (int)strlen(text));
    if (option->usual != NULL)
        fprintf(to, " | `%s` |\n", option->usual);
    else
        fputs(" | |\n", to);
}

/* Of the common options those stay that are of this command more than of every other. */
static bool says_more(const cmd_spec *spec, const cmd_option *option)
{
    return spec == &cmd_ttt || strcmp(option->name, "plugin") == 0 ||
           (strcmp(option->name, "json") == 0 && spec->json != NULL) ||
           (strcmp(option->name, "verbose") == 0 && spec->verbose != NULL);
}

static void markdown_options(FILE *to, const cmd_spec *spec)
{
    char name[64];
    cmd_option rows[HELP_MOST_ROWS];
    size_t count = help_rows(spec, rows);
    const char *heading = NULL;
    bool common = false;
    help_name(spec, '-', name);
    for (size_t i = 0; i < count; i++) {
        if (help_heading(rows, i) != NULL)
            heading = help_heading(rows, i);
        common = common || i + CMD_COMMON_OPTIONS >= count;
        if (rows[i].name == NULL || (common && !says_more(spec, &rows[i])))
            continue;
        if (heading != NULL)
            fprintf(to, "\n| %s | what it does | default |\n|---|---|---|\n", heading);
        heading = NULL;
        markdown_option(to, name, &rows[i]);
    }
}

static void markdown_lines(FILE *to, const cmd_spec *spec, const char *text, bool usage)
{
    char name[64];
    help_line line;
    help_name(spec, ' ', name);
    fputs("\n```\n", to);
    for (const char *at = text; help_next(&at, &line);)
        fprintf(to, "%s%s%.*s\n", usage ? name : "", usage ? " " : "", line.size, line.text);
    fputs("```\n", to);
}

static void markdown_section(const cmd_spec *spec, void *ctx)
{
    FILE *to = ctx;
    char name[64], anchor[64];
    help_name(spec, ' ', name);
    fprintf(to, "\n##%s %s\n", strchr(spec->name, ' ') == NULL ? "" : "#", name);
    markdown_lines(to, spec, spec->usage, true);
    markdown_text(to, spec->about);
    if (spec->commands != NULL && spec != &cmd_ttt)
        fputs("\n| command | what it is |\n|---|---|\n", to);
    for (size_t i = 0; spec->commands != NULL && spec != &cmd_ttt && spec->commands[i] != NULL;
         i++) {
        help_name(spec->commands[i], '-', anchor);
        fprintf(to, "| [%s](#%s) | %s |\n", cmd_last_word(spec->commands[i]), anchor,
                spec->commands[i]->summary);
    }
    markdown_operands(to, spec);
    markdown_options(to, spec);
    markdown_text(to, spec->notes);
    if (spec->example != NULL)
        markdown_lines(to, spec, spec->example, false);
}

static void markdown_entry(const cmd_spec *spec, void *ctx)
{
    char name[64], anchor[64];
    help_name(spec, ' ', name);
    help_name(spec, '-', anchor);
    fprintf(ctx, "%s- [%s](#%s): ", strchr(spec->name, ' ') == NULL ? "" : "  ", name, anchor);
    put_markdown(ctx, spec->summary, (int)strlen(spec->summary));
    fputc('\n', ctx);
}

bool help_markdown(const cmd_spec *spec, FILE *to)
{
    fputs(
        "# Reference of the `ttt` command\n\n"
        "Every command and every option. `ttt help --format markdown` makes this page from the "
        "tables that the command\nitself reads; `ttt COMMAND --help` and the manual pages say the "
        "same.\n\n",
        to);
    help_each(spec, markdown_entry, to);
    fputs("\nExit codes: " HELP_EXIT_CODES ". Every command takes `--help`, `--json` and `-v`, "
          "which are listed below\nwhere there is more to say of them.\n",
          to);
    help_each(spec, markdown_section, to);
    return fflush(to) == 0 && !ferror(to);
}

/* ---- manual pages ------------------------------------------------------------------------------
 */

/* The code point at `*i`, which moves behind it; the bytes are UTF-8. */
static unsigned code_point(const char *text, int *i)
{
    unsigned char first = (unsigned char)text[(*i)++];
    if (first < 0x80)
        return first;
    unsigned code = first & (first < 0xe0 ? 0x1f : first < 0xf0 ? 0x0f : 0x07);
    while (((unsigned char)text[*i] & 0xc0) == 0x80)
        code = code << 6 | ((unsigned char)text[(*i)++] & 0x3f);
    return code;
}

/* Text for roff: nothing in it is a request or an escape. Where `fill`, its lines are short. */
static void put_roff_lines(FILE *to, const char *text, int size, bool fill)
{
    enum { SHORT = 60 };
    for (int i = 0, start = 0; i < size;) {
        if (i == start && strchr(".'", text[i]) != NULL)
            fputs("\\&", to);
        unsigned code = code_point(text, &i);
        if (code == ' ' && fill && i - start > SHORT) {
            fputc('\n', to);
            start = i;
        } else if (code == '\\')
            fputs("\\e", to);
        else if (code == '-')
            fputs("\\-", to);
        else if (code == '\'')
            fputs("\\(aq", to);
        else if (code == '`')
            fputs("\\(ga", to);
        else if (code == '^')
            fputs("\\(ha", to);
        else if (code == '~')
            fputs("\\(ti", to);
        else if (code < 0x80)
            fputc((int)code, to);
        else
            fprintf(to, "\\[u%04X]", code);
    }
}

static void put_roff(FILE *to, const char *text, int size)
{
    put_roff_lines(to, text, size, false);
}

static void roff_item(FILE *to, const char *term, int term_size, const char *text, int size)
{
    fputs(".TP\n.B ", to);
    put_roff(to, term, term_size);
    fputc('\n', to);
    put_roff_lines(to, text, size, true);
    fputc('\n', to);
}

static void roff_text(FILE *to, const char *text)
{
    help_line line;
    bool first = true;
    for (const char *at = text; help_next(&at, &line); first = false) {
        if (line.term != NULL) {
            roff_item(to, line.term, line.term_size, line.text, line.size);
            continue;
        }
        if (!first)
            fputs(".PP\n", to);
        put_roff_lines(to, line.text, line.size, true);
        fputc('\n', to);
    }
}

/* "--steps N" with the name in bold and the value in italics. */
static void roff_option(FILE *to, const cmd_option *option)
{
    char text[HELP_TEXT];
    fputs(".TP\n", to);
    if (option->letter != 0)
        fprintf(to, "\\fB\\-%c\\fR, ", option->letter);
    fputs("\\fB\\-\\-", to);
    put_roff(to, option->name, (int)strlen(option->name));
    fputs("\\fR", to);
    if (option->value != NULL) {
        fputs(" \\fI", to);
        put_roff(to, option->value, (int)strlen(option->value));
        fputs("\\fR", to);
    }
    fputc('\n', to);
    help_sentence(option, text);
    put_roff_lines(to, text, (int)strlen(text), true);
    fputc('\n', to);
}

static void roff_options(FILE *to, const cmd_spec *spec)
{
    cmd_option rows[HELP_MOST_ROWS];
    size_t count = help_rows(spec, rows);
    fputs(".SH OPTIONS\n", to);
    for (size_t i = 0; i < count; i++) {
        if (rows[i].name != NULL) {
            roff_option(to, &rows[i]);
            continue;
        }
        fputs(".SS ", to);
        put_roff(to, rows[i].help, (int)strlen(rows[i].help));
        fputc('\n', to);
    }
}

/* Lines that stay as they are. */
static void roff_lines(FILE *to, const char *before, const char *text)
{
    help_line line;
    fputs(".nf\n", to);
    for (const char *at = text; help_next(&at, &line);) {
        fprintf(to, "%s", before);
        put_roff(to, line.text, line.size);
        fputc('\n', to);
    }
    fputs(".fi\n", to);
}

static void roff_lists(FILE *to, const cmd_spec *spec)
{
    char label[HELP_TEXT], text[HELP_TEXT];
    if (spec->commands != NULL)
        fputs(".SH COMMANDS\n", to);
    for (size_t i = 0; spec->commands != NULL && spec->commands[i] != NULL; i++) {
        const char *word = cmd_last_word(spec->commands[i]), *what = spec->commands[i]->summary;
        roff_item(to, word, (int)strlen(word), what, (int)strlen(what));
    }
    if (spec->n_operands > 0)
        fputs(".SH OPERANDS\n", to);
    for (size_t i = 0; i < spec->n_operands; i++) {
        help_operand_label(&spec->operands[i], label);
        help_sentence(&spec->operands[i], text);
        roff_item(to, label, (int)strlen(label), text, (int)strlen(text));
    }
    roff_options(to, spec);
}

/* The pages above and below this one. */
static void roff_see_also(FILE *to, const cmd_spec *spec)
{
    char page[64];
    const char *after = "";
    fputs(".SH SEE ALSO\n", to);
    if (spec != &cmd_ttt) {
        fputs(".BR ttt (1)", to);
        after = " ,\n";
    }
    for (size_t i = 0; spec->commands != NULL && spec->commands[i] != NULL; i++, after = " ,\n") {
        help_name(spec->commands[i], '-', page);
        fprintf(to, "%s.BR ", after);
        put_roff(to, page, (int)strlen(page));
        fputs(" (1)", to);
    }
    fputc('\n', to);
}

bool help_man(const cmd_spec *spec, FILE *to)
{
    char name[64], page[64];
    help_name(spec, ' ', name);
    help_name(spec, '-', page);
    fputs(".\\\" Made by ttt help --format man.\n.TH ", to);
    for (const char *at = page; *at != '\0'; at++)
        fputc(toupper((unsigned char)*at), to);
    fputs(" 1 " TTT_RELEASED " \"ttt " TTT_VERSION "\"\n", to);
    fputs(".SH NAME\n", to);
    put_roff(to, page, (int)strlen(page));
    fputs(" \\- ", to);
    put_roff(to, spec->summary, (int)strlen(spec->summary));
    fputs("\n.SH SYNOPSIS\n", to);
    char before[80];
    snprintf(before, sizeof before, "\\fB%s\\fR ", name);
    roff_lines(to, before, spec->usage);
    fputs(".SH DESCRIPTION\n", to);
    roff_text(to, spec->about);
    roff_lists(to, spec);
    if (spec->notes != NULL) {
        fputs(".SH NOTES\n", to);
        roff_text(to, spec->notes);
    }
    if (spec->example != NULL) {
        fputs(".SH EXAMPLES\n", to);
        roff_lines(to, "", spec->example);
    }
    fputs(".SH EXIT STATUS\n" HELP_EXIT_CODES ".\n", to);
    roff_see_also(to, spec);
    return fflush(to) == 0 && !ferror(to);
}
