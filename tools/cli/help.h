/*
 * What a person reads about a command, made from its table: the text of --help, the reference page,
 * manual pages, and completion for shells.
 */
#ifndef TOOLS_CLI_HELP_H
#define TOOLS_CLI_HELP_H

#include "tools/cli/cmd.h"

#include <stdio.h>

/* All of these return false when the text could not be written. */
bool help_print(const cmd_spec *spec, FILE *to);
bool help_markdown(const cmd_spec *spec, FILE *to); /* the command, and all below it */
bool help_man(const cmd_spec *spec, FILE *to);
bool help_bash(const cmd_spec *root, FILE *to);
bool help_zsh(const cmd_spec *root, FILE *to);
bool help_fish(const cmd_spec *root, FILE *to);

/* ---- for those who render ----------------------------------------------------------------------
 */

enum { HELP_TEXT = 2048, HELP_MOST_ROWS = 96 };

#define HELP_COMMON "common options"
#define HELP_EXIT_CODES "0 done, 1 the work failed, 2 wrong use"

/* The options of a command with headings: its own first, then the common ones. */
size_t help_rows(const cmd_spec *spec, cmd_option rows[HELP_MOST_ROWS]);
/* Whether row `i` begins a list: its heading, also the one that nobody wrote; else NULL. */
const char *help_heading(const cmd_option *rows, size_t i);

/* "-v, --verbose", "--steps N"; of an operand "FILE …". */
void help_label(const cmd_option *option, char text[HELP_TEXT]);
void help_operand_label(const cmd_option *operand, char text[HELP_TEXT]);
/* All that is to be said of an option or operand. */
void help_sentence(const cmd_option *option, char text[HELP_TEXT]);
/* The same but for the default, for those who have a place for that. */
void help_sentence_alone(const cmd_option *option, char text[HELP_TEXT]);

/* A line of a text: a paragraph, or an item of a list. */
typedef struct help_line {
    const char *term; /* NULL: a paragraph */
    int term_size;
    const char *text;
    int size;
} help_line;
/* The next line of `*at`, which moves on; false at the end. */
bool help_next(const char **at, help_line *line);

/* Calls `visit` for the command and all below it, itself first. */
void help_each(const cmd_spec *spec, void (*visit)(const cmd_spec *spec, void *ctx), void *ctx);
/* "ttt train", and with other bytes between the words: "ttt-train". */
void help_name(const cmd_spec *spec, char between, char text[64]);

#endif
