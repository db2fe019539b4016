/*
 * What the subcommands of `ttt` share: one way to read options, to fail, and to print.
 *
 * Exit codes: 0 done, 1 the work failed, 2 wrong use. An error is one line on stderr; -v adds the
 * rest of the message and where it came from; with --json standard output holds one JSON object
 * whatever happens, {"error": …} when it failed.
 */
#ifndef TOOLS_CMD_H
#define TOOLS_CMD_H

#include "pjrt/pjrt.h"

#include <jansson.h>

enum { CMD_OK = 0, CMD_FAILED = 1, CMD_WRONG_USE = 2 };

typedef struct cmd_common {
    bool json, verbose;
    const char *plugin;  /* "cpu" unless --plugin */
    const char *process; /* of several: which this is; NULL: one alone */
} cmd_common;

/* An option of a subcommand beside the common ones, and where in its options struct it goes. */
typedef enum cmd_kind {
    CMD_FLAG,   /* bool */
    CMD_TEXT,   /* const char *: the word itself, which lives as long as argv */
    CMD_NUMBER, /* int from 1 to `most` */
    CMD_CUSTOM, /* whatever `set` makes of it; false for a bad value */
} cmd_kind;

typedef struct cmd_option {
    const char *name; /* without the dashes */
    const char *what; /* completes "… is not", for bad values */
    cmd_kind kind;
    size_t offset;
    long most;
    bool (*set)(const char *value, void *field);
} cmd_option;

/* For CMD_CUSTOM: a uint64_t. */
bool cmd_set_seed(const char *text, void *field);

typedef struct cmd_spec {
    const char *name; /* "hlo compile" */
    const char *help; /* the whole text of --help */
    const cmd_option *options;
    size_t n_options;
} cmd_spec;

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

int cmd_devices(int argc, char **argv);
int cmd_plugin_check(int argc, char **argv);
int cmd_hlo(int argc, char **argv);
int cmd_config(int argc, char **argv);
int cmd_convert(int argc, char **argv);
int cmd_init(int argc, char **argv);
int cmd_logits(int argc, char **argv);
int cmd_grads(int argc, char **argv);
int cmd_compile(int argc, char **argv);
int cmd_inspect(int argc, char **argv);
int cmd_report(int argc, char **argv);
int cmd_data(int argc, char **argv);
int cmd_train(int argc, char **argv);
int cmd_eval(int argc, char **argv);
int cmd_tokenizer(int argc, char **argv);
int cmd_generate(int argc, char **argv);
int cmd_chat(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_export(int argc, char **argv);
int cmd_run(int argc, char **argv);

#endif
