/* ttt hlo: programs by themselves, without a model. */
#include "tools/hlo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: ttt hlo run FILE [INPUT.npy …] [--plugin P] [options]\n"
    "       ttt hlo compile FILE --target T [options]\n"
    "       ttt hlo example NAME\n"
    "\n"
    "  run       compile a StableHLO program on a plugin of this machine and run it\n"
    "  compile   compile it for a target, present or not, and report on the result\n"
    "  example   write one that hlo_builder made\n"
    "\n"
    "ttt hlo run --help and so on tell the rest.\n";
static const cmd_spec spec = {"hlo", help, NULL, 0};

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

int cmd_hlo(int argc, char **argv)
{
    if (argc >= 2 && strcmp(argv[1], "run") == 0)
        return hlo_run(argc - 1, argv + 1);
    if (argc >= 2 && strcmp(argv[1], "compile") == 0)
        return hlo_compile(argc - 1, argv + 1);
    if (argc >= 2 && strcmp(argv[1], "example") == 0)
        return hlo_example(argc - 1, argv + 1);
    if (argc >= 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        fputs(help, stdout);
        return CMD_OK;
    }
    if (argc < 2)
        return cmd_wrong_use(&spec, "run, compile or example?");
    return cmd_wrong_use(&spec, "\"%s\" is none of run, compile and example", argv[1]);
}
