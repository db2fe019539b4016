/* Failures, files and output, the same for every subcommand. */
#include "tools/cli/cmd.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int cmd_wrong_use(const cmd_spec *spec, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const char *space = spec->name[0] == '\0' ? "" : " ";
    fprintf(stderr, "ttt%s%s: ", space, spec->name);
    vfprintf(stderr, format, args);
    fprintf(stderr, " (see ttt%s%s --help)\n", space, spec->name);
    va_end(args);
    return CMD_WRONG_USE;
}

int cmd_fail(const cmd_common *common, pjrt_status *st)
{
    fprintf(stderr, "ttt: %s%s%s\n", common->process == NULL ? "" : common->process,
            common->process == NULL ? "" : ": ", pjrt_status_text(st));
    if (common->verbose) {
        const char *rest = strchr(pjrt_status_message(st), '\n');
        fprintf(stderr, "%s%s(noticed at %s)\n", rest == NULL ? "" : rest + 1,
                rest == NULL ? "" : "\n", pjrt_status_where(st));
    }
    if (common->json)
        cmd_print_json(json_pack("{s:{s:s, s:s, s:s*}}", "error", "code",
                                 pjrt_code_name(pjrt_status_code(st)), "call", pjrt_status_call(st),
                                 "message", pjrt_status_message(st)));
    pjrt_status_free(st);
    return CMD_FAILED;
}

int cmd_print_json(json_t *json)
{
    int failed = json == NULL || json_dumpf(json, stdout, JSON_INDENT(2)) != 0 ||
                 putchar('\n') == EOF || fflush(stdout) != 0;
    json_decref(json);
    if (!failed)
        return CMD_OK;
    fputs("ttt: the JSON could not be written\n", stderr);
    return CMD_FAILED;
}

pjrt_status *cmd_read_file(const char *path, char **bytes, size_t *size)
{
    static const char call[] = "ttt";
    size_t room = 1 << 16, n = 0;
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
    *bytes = NULL;
    *size = 0;
    if (file == NULL)
        return PJRT_FAIL(NOT_FOUND, call, "%s: %s", path, strerror(errno));
    char *buffer = malloc(room);
    while (buffer != NULL && (n = fread(buffer + *size, 1, room - *size - 1, file)) > 0) {
        *size += n;
        if (room - *size > 1)
            continue;
        room *= 2;
        char *larger = realloc(buffer, room);
        if (larger == NULL)
            free(buffer);
        buffer = larger;
    }
    bool bad = ferror(file) != 0;
    if (file != stdin)
        fclose(file);
    if (buffer == NULL)
        return PJRT_NO_MEMORY(call);
    if (bad) {
        free(buffer);
        return PJRT_FAIL(UNAVAILABLE, call, "%s: %s", path, strerror(errno));
    }
    buffer[*size] = '\0';
    *bytes = buffer;
    return NULL;
}

pjrt_status *cmd_write_file(const char *path, const char *bytes, size_t size)
{
    FILE *file = fopen(path, "wb");
    bool ok = file != NULL && fwrite(bytes, 1, size, file) == size;
    if (file != NULL)
        ok = fclose(file) == 0 && ok;
    return ok ? NULL : PJRT_FAIL(UNAVAILABLE, "ttt", "%s: %s", path, strerror(errno));
}

const char *cmd_program_cache(const char *option, char *path)
{
    const char *own = getenv("TTT_CACHE"), *user = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int size = -1;
    if (option != NULL)
        return strcmp(option, "none") == 0 ? NULL : option;
    if (own != NULL && own[0] != '\0')
        size = snprintf(path, PATH_MAX, "%s/programs", own);
    else if (user != NULL && user[0] != '\0')
        size = snprintf(path, PATH_MAX, "%s/ttt/programs", user);
    else if (home != NULL)
        size = snprintf(path, PATH_MAX, "%s/.cache/ttt/programs", home);
    return size < 0 || size >= PATH_MAX ? NULL : path;
}

double cmd_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

json_t *cmd_json_option(const pjrt_option *option)
{
    json_t *list;
    switch (option->kind) {
    case PJRT_OPTION_STRING:
        return json_string(option->string);
    case PJRT_OPTION_INT:
        return json_integer(option->integer);
    case PJRT_OPTION_INTS:
        list = json_array();
        for (size_t i = 0; i < option->n_integers; i++)
            json_array_append_new(list, json_integer(option->integers[i]));
        return list;
    case PJRT_OPTION_FLOAT:
        return json_real(option->real);
    case PJRT_OPTION_BOOL:
        return json_boolean(option->boolean);
    }
    return json_null();
}

json_t *cmd_json_number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

const char *cmd_quantity(double value, const char *unit)
{
    static const char prefixes[][2] = {"", "k", "M", "G", "T", "P", "E"};
    static char places[8][48];
    static unsigned next;
    char *text = places[next++ % 8];
    size_t prefix = 0;
    while (value >= 1000 && prefix + 1 < sizeof prefixes / sizeof *prefixes) {
        value /= 1000;
        prefix++;
    }
    snprintf(text, sizeof places[0], "%.3g %s%s", value, prefixes[prefix], unit);
    return text;
}

const char *cmd_duration(double seconds)
{
    if (seconds >= 1 || seconds <= 0)
        return cmd_quantity(seconds, "s");
    if (seconds >= 1e-3)
        return cmd_quantity(seconds * 1e3, "ms");
    return seconds >= 1e-6 ? cmd_quantity(seconds * 1e6, "us") : cmd_quantity(seconds * 1e9, "ns");
}
