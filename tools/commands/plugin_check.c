/*
 * ttt plugin-check: a matrix of what a plugin supports, lacks and breaks.
 *
 * The probes run in a child process that writes one line an answer into a pipe. When the child dies
 * in a probe, that probe is marked as a crash and another child takes up the rest.
 */
#include "tools/cli/cmd.h"
#include "tools/commands/plugin_probes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const cmd_option operands_list[] = {
    {"PLUGIN", NULL, CMD_FILE, 0, "cpu, tpu, cuda or a path", .choices = cmd_plugins, .open = true},
};
static int plugin_check_command(int argc, char **argv);
const cmd_spec cmd_plugin_check = {
    .name = "plugin-check",
    .summary = "what a plugin supports, lacks and breaks",
    .usage = "PLUGIN [--json] [-v]",
    .about = "Tries what a PJRT plugin can do and prints what it supports, lacks and breaks. A "
             "probe that crashes the plugin is reported, not fatal. Probes that need a device are "
             "skipped on a machine without it.",
    CMD_OPERANDS(operands_list),
    .notes = "The exit code is 1 when anything is broken.",
    .example = "ttt plugin-check cpu",
    .json = "one JSON object: probes, entries of the C API, extensions, versions",
    .verbose = "the entries and extensions too, and the plugin's own logs",
    .run = plugin_check_command,
};

enum { DETAIL = 400 };

typedef struct answer {
    bool given, crashed;
    probe_outcome outcome;
    char detail[DETAIL];
} answer;

/* One line a probe: index, outcome, detail. Written with one call, so never torn. */
static void tell(int pipe_end, size_t index, const pjrt_status *st)
{
    char line[DETAIL + 32];
    int n = snprintf(line, sizeof line, "%zu %d %.*s\n", index, (int)probe_judge(st), DETAIL - 1,
                     st == NULL ? "" : pjrt_status_text(st));
    if (n > (int)sizeof line - 1)
        line[(n = (int)sizeof line - 1) - 1] = '\n';
    ssize_t written = write(pipe_end, line, (size_t)n);
    (void)written; /* a parent that is gone needs no answer */
}

/* In the child: probes before `first` are only run for what the later ones need of them. */
static void run_probes(const char *name, size_t first, const answer *answers, int pipe_end)
{
    probe_context context = {.name = name};
    for (size_t i = 0; i < n_probes; i++) {
        if (i < first && (answers[i].crashed || answers[i].outcome != PROBE_OK))
            continue;
        pjrt_status *st = probes[i].run(&context);
        if (i >= first)
            tell(pipe_end, i, st);
        pjrt_status_free(st);
        if (i == 0 && context.plugin == NULL)
            break;
    }
    probe_context_free(&context);
}

/* Reads the child's lines; returns the index of the first probe without an answer. */
static size_t read_answers(FILE *from, answer *answers, size_t first)
{
    char line[DETAIL + 64];
    size_t next = first;
    while (fgets(line, sizeof line, from) != NULL) {
        size_t index;
        int outcome, used;
        if (sscanf(line, "%zu %d %n", &index, &outcome, &used) != 2 || index >= n_probes)
            continue;
        line[strcspn(line, "\n")] = '\0';
        answers[index].given = true;
        answers[index].outcome = (probe_outcome)outcome;
        snprintf(answers[index].detail, DETAIL, "%s", line + used);
        next = index + 1;
    }
    return next;
}

static pjrt_status *ask(const char *name, answer *answers)
{
    size_t first = 0;
    while (first < n_probes) {
        int ends[2];
        if (pipe(ends) != 0)
            return PJRT_FAIL(UNAVAILABLE, "plugin-check", "no pipe can be made");
        fflush(NULL);
        pid_t child = fork();
        if (child < 0)
            return PJRT_FAIL(UNAVAILABLE, "plugin-check", "no process can be started");
        if (child == 0) {
            close(ends[0]);
            run_probes(name, first, answers, ends[1]);
            _exit(0);
        }
        close(ends[1]);
        FILE *from = fdopen(ends[0], "r");
        size_t next = from == NULL ? n_probes : read_answers(from, answers, first);
        if (from != NULL)
            fclose(from);
        int status = 0;
        waitpid(child, &status, 0);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
            return NULL;
        if (next >= n_probes) /* it died while cleaning up */
            next = n_probes - 1;
        answers[next].given = answers[next].crashed = true;
        answers[next].outcome = PROBE_BROKEN;
        snprintf(answers[next].detail, DETAIL, "crashed the process (%s)",
                 WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "exit");
        first = next + 1;
    }
    return NULL;
}

static const char *const outcome_names[] = {"ok", "lacks", "broken", "skipped"};

static json_t *answers_json(const answer *answers)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n_probes; i++) {
        const char *outcome = answers[i].given ? outcome_names[answers[i].outcome] : "skipped";
        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:s*}", "probe", probes[i].name,
                                              "question", probes[i].question, "outcome", outcome,
                                              "detail", answers[i].detail));
    }
    return list;
}

static void add_function(const char *function, bool present, void *user)
{
    json_object_set_new(user, function, json_boolean(present));
}

static void add_extension(int type, const char *name, size_t size, void *user)
{
    json_array_append_new(
        user, json_pack("{s:i, s:s?, s:I}", "type", type, "name", name, "size", (json_int_t)size));
}

static json_t *plugin_json(const pjrt_plugin *plugin)
{
    int major, minor;
    size_t count;
    json_t *functions = json_object(), *extensions = json_array(), *attributes = json_object();
    pjrt_plugin_version(plugin, &major, &minor);
    pjrt_plugin_functions(plugin, add_function, functions);
    pjrt_plugin_extensions(plugin, add_extension, extensions);
    const pjrt_option *list = pjrt_plugin_attributes(plugin, &count);
    for (size_t i = 0; i < count; i++)
        json_object_set_new(attributes, list[i].name, cmd_json_option(&list[i]));
    return json_pack("{s:s, s:[i,i], s:o, s:o, s:o}", "path", pjrt_plugin_path(plugin),
                     "pjrt_version", major, minor, "attributes", attributes, "extensions",
                     extensions, "functions", functions);
}

static void count_function(const char *function, bool present, void *user)
{
    int *counts = user;
    (void)function;
    counts[present ? 0 : 1]++;
}

static void print_missing(const char *function, bool present, void *user)
{
    (void)user;
    if (!present)
        printf("  lacks    %s\n", function);
}

static void print_extension(int type, const char *name, size_t size, void *user)
{
    (void)user;
    printf("  extension %d %s, %zu bytes\n", type, name == NULL ? "(unknown)" : name, size);
}

static void print_text(const pjrt_plugin *plugin, const answer *answers, bool verbose)
{
    int major, minor, counts[2] = {0, 0};
    pjrt_plugin_version(plugin, &major, &minor);
    pjrt_plugin_functions(plugin, count_function, counts);
    printf("%s\nPJRT %d.%d, %d entries, %d lacking\n", pjrt_plugin_path(plugin), major, minor,
           counts[0], counts[1]);
    for (size_t i = 0; i < n_probes; i++) {
        const char *outcome = answers[i].given ? outcome_names[answers[i].outcome] : "skipped";
        printf("  %-8s %-18s %s\n", outcome, probes[i].name, probes[i].question);
        /* What holds for a whole row of probes is said once. */
        if (answers[i].detail[0] != '\0' &&
            (i == 0 || strcmp(answers[i].detail, answers[i - 1].detail) != 0))
            printf("           %s\n", answers[i].detail);
    }
    if (verbose) {
        pjrt_plugin_functions(plugin, print_missing, NULL);
        pjrt_plugin_extensions(plugin, print_extension, NULL);
    }
}

static int plugin_check_command(int argc, char **argv)
{
    cmd_common common;
    cmd_operands operands;
    int code = cmd_parse(&cmd_plugin_check, argc, argv, &common, NULL, &operands);
    if (code >= 0)
        return code;
    if (operands.count != 1)
        return cmd_wrong_use(&cmd_plugin_check,
                             operands.count == 0 ? "which plugin?" : "one plugin at a time");
    answer *answers = calloc(n_probes, sizeof *answers);
    pjrt_plugin *plugin = NULL;
    pjrt_status *st = answers == NULL ? PJRT_NO_MEMORY("plugin-check") : NULL;
    if (st == NULL)
        st = ask(operands.items[0],
                 answers); /* before the plugin is loaded here: it starts threads */
    if (st == NULL)
        st = pjrt_plugin_load(operands.items[0], &plugin);
    if (st != NULL) {
        free(answers);
        return cmd_fail(&common, st);
    }
    code = CMD_OK;
    if (common.json)
        code = cmd_print_json(json_pack("{s:o, s:o}", "plugin", plugin_json(plugin), "probes",
                                        answers_json(answers)));
    else
        print_text(plugin, answers, common.verbose);
    for (size_t i = 0; i < n_probes; i++) {
        if (answers[i].given && answers[i].outcome == PROBE_BROKEN)
            code = CMD_FAILED;
    }
    free(answers);
    return code;
}
