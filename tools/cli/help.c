/* Tables of commands as text for a terminal, and what every other form of it needs too. */
#include "tools/cli/help.h"

#include <string.h>
#include <sys/ioctl.h>

/* ---- the table, read ---------------------------------------------------------------------------
 */

size_t help_rows(const cmd_spec *spec, cmd_option rows[HELP_MOST_ROWS])
{
    cmd_option common[CMD_COMMON_OPTIONS];
    size_t n_common = cmd_common_options(spec, common), count = 0;
    for (size_t i = 0; i < spec->n_options && count + n_common + 1 < HELP_MOST_ROWS; i++)
        rows[count++] = spec->options[i];
    rows[count++] = (cmd_option)CMD_GROUP(HELP_COMMON);
    for (size_t i = 0; i < n_common; i++)
        rows[count++] = common[i];
    return count;
}

const char *help_heading(const cmd_option *rows, size_t i)
{
    if (rows[i].name == NULL)
        return rows[i].help;
    return i == 0 ? "options" : NULL;
}

void help_label(const cmd_option *option, char text[HELP_TEXT])
{
    char letter[8] = "";
    if (option->letter != 0)
        snprintf(letter, sizeof letter, "-%c, ", option->letter);
    snprintf(text, HELP_TEXT, "%s--%s%s%s", letter, option->name, option->value == NULL ? "" : " ",
             option->value == NULL ? "" : option->value);
}

void help_operand_label(const cmd_option *operand, char text[HELP_TEXT])
{
    snprintf(text, HELP_TEXT, "%s%s", operand->name, operand->repeats ? " …" : "");
}

/* Whether the text has the word, by itself. */
static bool has_word(const char *text, const char *word)
{
    size_t size = strlen(word);
    for (const char *at = text; (at = strstr(at, word)) != NULL; at++) {
        bool begins = at == text || strchr(" (\"", at[-1]) != NULL;
        if (begins && strchr(" ,.;:)\"", at[size]) != NULL)
            return true;
    }
    return false;
}

static bool names_all(const cmd_option *option)
{
    for (int i = 0; cmd_word(option, i) != NULL; i++) {
        if (!has_word(option->help, cmd_word(option, i)))
            return false;
    }
    return true;
}

void help_sentence_alone(const cmd_option *option, char text[HELP_TEXT])
{
    char words[CMD_WORDS_TEXT] = "";
    bool list = !option->open && !names_all(option);
    if (list)
        cmd_words_text(option, words);
    snprintf(text, HELP_TEXT, "%s%s%s%s", option->help, list ? ": " : "", words,
             option->repeats && option->value != NULL ? "; may be repeated" : "");
}

void help_sentence(const cmd_option *option, char text[HELP_TEXT])
{
    help_sentence_alone(option, text);
    size_t size = strlen(text);
    if (option->usual != NULL)
        snprintf(text + size, HELP_TEXT - size, " (default %s)", option->usual);
}

bool help_next(const char **at, help_line *line)
{
    if (*at == NULL || **at == '\0')
        return false;
    int size = (int)strcspn(*at, "\n"), term = (int)strcspn(*at, "\t\n");
    *line = (help_line){.text = *at, .size = size};
    if (term < size)
        *line = (help_line){*at, term, *at + term + 1, size - term - 1};
    *at += size + ((*at)[size] == '\n');
    return true;
}

void help_each(const cmd_spec *spec, void (*visit)(const cmd_spec *, void *), void *ctx)
{
    visit(spec, ctx);
    for (size_t i = 0; spec->commands != NULL && spec->commands[i] != NULL; i++)
        help_each(spec->commands[i], visit, ctx);
}

void help_name(const cmd_spec *spec, char between, char text[64])
{
    snprintf(text, 64, "ttt%s%s", spec->name[0] == '\0' ? "" : " ", spec->name);
    for (char *at = text; *at != '\0'; at++)
        *at = *at == ' ' ? between : *at;
}

/* ---- lines for a terminal ----------------------------------------------------------------------
 */

/* Where a text goes, and how. */
typedef struct page {
    FILE *to;
    int width;  /* of a line */
    int column; /* where texts of lists begin */
} page;

static int page_width(FILE *to)
{
    enum { USUAL = 80, LEAST = 60, MOST = 100 };
    struct winsize size;
    if (ioctl(fileno(to), TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
        return USUAL;
    return size.ws_col < LEAST ? LEAST : size.ws_col > MOST ? MOST : size.ws_col;
}

/* Columns of UTF-8: all bytes but those that continue a character. */
static int columns(const char *text, int size)
{
    int count = 0;
    for (int i = 0; i < size; i++)
        count += ((unsigned char)text[i] & 0xc0) != 0x80;
    return count;
}

/* The length of the word that begins there; "(default X)" counts as one. */
static int word_length(const char *text, int size)
{
    static const char together[] = "(default ";
    int length = 0;
    if (size >= (int)sizeof together && memcmp(text, together, sizeof together - 1) == 0)
        length = (int)sizeof together - 1;
    while (length < size && text[length] != ' ')
        length++;
    return length;
}

/* Words from column `at` on, and from `indent` on in the lines that follow; ends the line. */
static void put_words(const page *p, int at, int indent, const char *text, int size)
{
    bool first = true;
    for (int i = 0, length; i < size; i += length + 1) {
        length = word_length(text + i, size - i);
        int wide = columns(text + i, length);
        if (!first && at + 1 + wide > p->width) {
            fprintf(p->to, "\n%*s", indent, "");
            at = indent;
        } else if (!first) {
            fputc(' ', p->to);
            at++;
        }
        fwrite(text + i, 1, (size_t)length, p->to);
        at += wide;
        first = false;
    }
    fputc('\n', p->to);
}

/* "  label     text", the text below a label that is too long. */
static void put_item(const page *p, const char *label, int size, const char *text, int text_size)
{
    int at = 2 + columns(label, size);
    fprintf(p->to, "  %.*s", size, label);
    if (at + 2 > p->column)
        fprintf(p->to, "\n%*s", p->column, "");
    else
        fprintf(p->to, "%*s", p->column - at, "");
    put_words(p, p->column, p->column, text, text_size);
}

/* Paragraphs have a blank line before them; the items of a list stand together. */
static void put_text(page *p, const char *text)
{
    help_line line;
    bool in_list = false;
    int column = 0;
    for (const char *at = text; help_next(&at, &line);) {
        int wide = line.term == NULL ? 0 : columns(line.term, line.term_size) + 4;
        column = wide > column ? wide : column;
    }
    for (const char *at = text; help_next(&at, &line); in_list = line.term != NULL) {
        page list = {p->to, p->width, column};
        if (!in_list || line.term == NULL)
            fputc('\n', p->to);
        if (line.term == NULL)
            put_words(p, 0, 0, line.text, line.size);
        else
            put_item(&list, line.term, line.term_size, line.text, line.size);
    }
}

/* ---- the parts of --help -----------------------------------------------------------------------
 */

static void put_usage(const page *p, const cmd_spec *spec)
{
    char name[64];
    help_line line;
    help_name(spec, ' ', name);
    const char *before = "usage:";
    for (const char *at = spec->usage; help_next(&at, &line); before = "")
        fprintf(p->to, "%-6s %s %.*s\n", before, name, line.size, line.text);
}

/* The column of the texts: behind the longest label, but for very long ones. */
static void choose_column(page *p, const cmd_option *rows, size_t count)
{
    enum { LEAST = 17, MOST = 23 };
    char label[HELP_TEXT];
    p->column = LEAST;
    for (size_t i = 0; i < count; i++) {
        if (rows[i].name == NULL)
            continue;
        help_label(&rows[i], label);
        int wide = columns(label, (int)strlen(label)) + 4;
        if (wide <= MOST && wide > p->column)
            p->column = wide;
    }
}

static void put_operands(const page *p, const cmd_spec *spec)
{
    char label[HELP_TEXT], text[HELP_TEXT];
    if (spec->n_operands > 0)
        fputc('\n', p->to);
    for (size_t i = 0; i < spec->n_operands; i++) {
        help_operand_label(&spec->operands[i], label);
        help_sentence(&spec->operands[i], text);
        put_item(p, label, (int)strlen(label), text, (int)strlen(text));
    }
}

static void put_options(const page *p, const cmd_option *rows, size_t count)
{
    char label[HELP_TEXT], text[HELP_TEXT];
    for (size_t i = 0; i < count; i++) {
        const char *heading = help_heading(rows, i);
        if (heading != NULL)
            fprintf(p->to, "\n%s:\n", heading);
        if (rows[i].name == NULL)
            continue;
        help_label(&rows[i], label);
        help_sentence(&rows[i], text);
        put_item(p, label, (int)strlen(label), text, (int)strlen(text));
    }
}

static void put_commands(page *p, const cmd_spec *spec)
{
    p->column = 17;
    fputs("\ncommands:\n", p->to);
    for (size_t i = 0; spec->commands[i] != NULL; i++) {
        const char *word = cmd_last_word(spec->commands[i]), *text = spec->commands[i]->summary;
        put_item(p, word, (int)strlen(word), text, (int)strlen(text));
    }
}

bool help_print(const cmd_spec *spec, FILE *to)
{
    cmd_option rows[HELP_MOST_ROWS];
    size_t count = help_rows(spec, rows);
    page p = {.to = to, .width = page_width(to)};
    put_usage(&p, spec);
    put_text(&p, spec->about);
    if (spec->commands != NULL)
        put_commands(&p, spec);
    choose_column(&p, rows, count);
    put_operands(&p, spec);
    put_options(&p, rows, count);
    put_text(&p, spec->notes);
    if (spec->example != NULL)
        fputs("\nexample:\n", to);
    help_line line;
    for (const char *at = spec->example; help_next(&at, &line);)
        fprintf(to, "  %.*s\n", line.size, line.text);
    fputs("\nexit codes: " HELP_EXIT_CODES "\n", to);
    return fflush(to) == 0 && !ferror(to);
}
