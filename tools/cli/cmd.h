/*
 * What the subcommands of `ttt` share: one way to read options, to fail, and to print.
 *
 * Exit codes: 0 done, 1 the work failed, 2 wrong use. An error is one line on stderr; -v adds the
 * rest of the message and where it came from; with --json standard output holds one JSON object
 * whatever happens, {"error": …} when it failed.
 */
#ifndef TOOLS_CLI_CMD_H
#define TOOLS_CLI_CMD_H

#include "pjrt/pjrt.h"

#include <jansson.h>

enum { CMD_OK = 0, CMD_FAILED = 1, CMD_WRONG_USE = 2 };

typedef struct cmd_common {
    bool json, verbose;
    const char *plugin;  /* "cpu" unless --plugin */
    const char *process; /* of several: which this is; NULL: one alone */
} cmd_common;

/* ---- the table of a command ---------------------------------------------------------------------
 *
 * A command is one cmd_spec. --help, docs/reference.md, the manual pages and the completion of
 * shells are made from it, so what is said of a command is said here once.
 *
 * Texts are plain: who shows them breaks the lines. A line is a paragraph, however long it is, and
 * "term\ttext" an item of a list.
 */

/* What a value is, and where in the options struct it goes. */
typedef enum cmd_kind {
    CMD_FLAG,   /* bool */
    CMD_TEXT,   /* const char *: the word itself, which lives as long as argv */
    CMD_FILE,   /* the same, that names a file */
    CMD_FOLDER, /* the same, that names a folder */
    CMD_NUMBER, /* int from 1 to `most` */
    CMD_CHOICE, /* int or enum: the index in `choices` */
    CMD_CUSTOM, /* whatever `set` makes of it */
} cmd_kind;

typedef struct cmd_option {
    const char *name;  /* without the dashes; NULL: a heading, `help`, of those that follow */
    const char *value; /* the word for its value, "DIR"; NULL for flags */
    cmd_kind kind;
    size_t offset;
    const char *help;                            /* what it does; choices that it does not name and
                                                    the default are told behind it */
    const char *usual;                           /* the default, as it would be given */
    const char *const *choices;                  /* the words that it takes, NULL behind the last */
    const char *(*choice)(int index);            /* the same from a list of others, who judge it */
    bool open;                                   /* other words will do too */
    bool repeats;                                /* may be given several times */
    bool (*set)(const char *value, void *field); /* stores it; false for a bad value */
    long most;
    const char *what; /* of `set`: completes "… is not", for bad values */
    char letter;      /* "-v" for short; 0: none */
} cmd_option;

#define CMD_WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})
/* A row of cmd_spec.options that is a heading. */
#define CMD_GROUP(title) \
    {                    \
        .help = title    \
    }

/* A row for --cache, see cmd_program_cache. */
#define CMD_OPTION_CACHE(type, member)                                                          \
    {                                                                                           \
        "cache", "DIR", CMD_FOLDER, offsetof(type, member),                                     \
            "of compiled programs; default: programs in the set-up's cache; none: without one", \
            .choices = CMD_WORDS("none"), .open = true                                          \
    }

/* For .choice: names of targets, and for .choices: of plugins. */
const char *cmd_target_name(int index);
extern const char *const cmd_plugins[];

/* For CMD_CUSTOM: a uint64_t. */
bool cmd_set_seed(const char *text, void *field);

typedef struct cmd_spec cmd_spec;
struct cmd_spec {
    const char *name;           /* "hlo compile" */
    const char *summary;        /* what it is or gives, for lists */
    const char *usage;          /* what follows the name, a line for each way of use */
    const char *about;          /* what it does */
    const cmd_option *operands; /* of each: name, kind, help, choices */
    size_t n_operands;
    const cmd_option *options;
    size_t n_options;
    const char *notes;                   /* what is to be known beyond the options */
    const char *example;                 /* lines to try */
    const char *json, *verbose, *plugin; /* what these options do, where more than usual is to be
                                            said; without `plugin` a command has no such option */
    const cmd_spec *const *commands;     /* in place of all below `about`: those it is made of, NULL
                                            behind the last */
    int (*run)(int argc, char **argv);
};
#define CMD_OPERANDS(list) .operands = (list), .n_operands = sizeof(list) / sizeof *(list)
#define CMD_OPTIONS(list) .options = (list), .n_options = sizeof(list) / sizeof *(list)
/* For .plugin, where there is nothing more to say. */
#define CMD_PLUGIN "which plugin: cpu, tpu, cuda or a path"

/* ---- reading the command line -------------------------------------------------------------------
 */

typedef struct cmd_operands {
    char **items;
    int count;
} cmd_operands;

/*
 * Reads argv[1..] of a subcommand: the common options (--help, --json, -v, --plugin), its own, and
 * operands, which may stand anywhere. Returns -1 to go on, else the exit code to leave with (after
 * --help, or after saying what is wrong). `chosen` is the options struct; argv is reordered: the
 * operands end up in `operands`.
 */
int cmd_parse(const cmd_spec *spec, int argc, char **argv, cmd_common *common, void *chosen,
              cmd_operands *operands);
/* Runs the command, or that of its commands which argv[1] names; returns the exit code. */
int cmd_dispatch(const cmd_spec *spec, int argc, char **argv);

/* Says that `spec` has no such command, and which may have been meant; returns CMD_WRONG_USE. */
int cmd_unknown(const cmd_spec *spec, const char *word);

/* The last word of a command's name. */
const char *cmd_last_word(const cmd_spec *spec);
/* The command of `spec` that is called so, or NULL. */
const cmd_spec *cmd_find(const cmd_spec *spec, const char *word);
/* The options that come with every command as `spec` has them, in `common`; returns how many. */
enum { CMD_COMMON_OPTIONS = 4 };
size_t cmd_common_options(const cmd_spec *spec, cmd_option common[CMD_COMMON_OPTIONS]);
/* The words of an option with choices: number `index`, NULL past the last. */
const char *cmd_word(const cmd_option *option, int index);
/* All of them, "a, b or c", cut where they do not fit. */
enum { CMD_WORDS_TEXT = 512 };
void cmd_words_text(const cmd_option *option, char text[CMD_WORDS_TEXT]);

/* Prints the failure and frees `st`; returns CMD_FAILED. */
int cmd_fail(const cmd_common *common, pjrt_status *st);
/* Says what is wrong with the call, points to --help; returns CMD_WRONG_USE. */
int cmd_wrong_use(const cmd_spec *spec, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Prints `json` on stdout, takes it over; CMD_OK, or CMD_FAILED when that was not possible. */
int cmd_print_json(json_t *json);

/* A whole file in memory, with a NUL behind it; the caller frees it. */
pjrt_status *cmd_read_file(const char *path, char **bytes, size_t *size);
PJRT_MUST_CHECK pjrt_status *cmd_write_file(const char *path, const char *bytes, size_t size);

/* Where compiled programs are kept: what --cache says, "none" being NULL, or "programs" in the
 * set-up's cache folder. `path` has room for PATH_MAX. */
const char *cmd_program_cache(const char *option, char *path);

double cmd_seconds(void);
json_t *cmd_json_option(const pjrt_option *option);
json_t *cmd_json_number(double value); /* null for what JSON has not: infinities and NaN */

/* "1.5 GB", "312 TFLOP/s": three digits and a decimal prefix, into one of a few static places. */
const char *cmd_quantity(double value, const char *unit);
/* "12.5 ms": three digits, down to nanoseconds; the same places. */
const char *cmd_duration(double seconds);

/* `ttt` itself, and its commands. */
extern const cmd_spec cmd_ttt;
extern const cmd_spec cmd_devices, cmd_plugin_check, cmd_hlo, cmd_config, cmd_init, cmd_convert,
    cmd_logits, cmd_grads, cmd_data, cmd_train, cmd_eval, cmd_generate, cmd_chat, cmd_bench,
    cmd_compile, cmd_inspect, cmd_export, cmd_run, cmd_tokenizer, cmd_help, cmd_reproduce,
    cmd_report;

#endif
