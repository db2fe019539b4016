/* ttt hlo: programs by themselves, without a model. */
#include "tools/commands/hlo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const cmd_spec cmd_hlo = {
    .name = "hlo",
    .summary = "run and compile StableHLO programs",
    .usage = "run FILE [INPUT.npy …] [--plugin P] [options]\n"
             "compile FILE --target T [options]\n"
             "example NAME",
    .about = "Programs by themselves, without a model.",
    .commands = (const cmd_spec *const[]){&hlo_run, &hlo_compile, &hlo_example, NULL},
};

bool hlo_overrides_add(const char *text, void *field)
{
    hlo_overrides *overrides = field;
    const char *equals = strchr(text, '=');
    if (equals == NULL || equals == text || overrides->count == HLO_MAX_OVERRIDES)
        return false;
    char *copy = strdup(text);
    if (copy == NULL)
        return false;
    copy[equals - text] = '\0';
    overrides->texts[overrides->count] = copy;
    /* As a string it fits every kind of XLA option, but booleans must be spelt as Python does. */
    const char *value = copy + (equals - text) + 1;
    value = strcmp(value, "true") == 0 ? "True" : strcmp(value, "false") == 0 ? "False" : value;
    overrides->list[overrides->count++] = PJRT_OPT_STRING(copy, value);
    return true;
}

void hlo_overrides_free(hlo_overrides *overrides)
{
    for (size_t i = 0; i < overrides->count; i++)
        free(overrides->texts[i]);
    overrides->count = 0;
}

pjrt_status *hlo_read_program(const char *path, char **bytes, pjrt_program *program)
{
    PJRT_TRY(cmd_read_file(path, bytes, &program->size));
    const char *dot = strrchr(path, '.');
    program->code = *bytes;
    program->format = dot != NULL && strcmp(dot, ".pb") == 0 ? "hlo" : "mlir";
    return NULL;
}
