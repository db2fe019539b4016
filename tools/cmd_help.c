/* ttt help: what there is to know about the commands, in the form that is asked for. */
#include "tools/help.h"

#include <string.h>

static int help_command(int argc, char **argv);
const cmd_spec cmd_help = {
    .name = "help",
    .summary = "what there is to know about the commands",
    .usage = "[COMMAND …]",
    .about = "Tells of a command as its --help does.",
    .run = help_command,
};

static int help_command(int argc, char **argv)
{
    cmd_common common;
    cmd_operands operands;
    const cmd_spec *about = &cmd_ttt;
    int code = cmd_parse(&cmd_help, argc, argv, &common, NULL, &operands);
    for (int i = 0; code < 0 && i < operands.count; i++) {
        const cmd_spec *below = cmd_find(about, operands.items[i]);
        if (below == NULL)
            return cmd_unknown(about, operands.items[i]);
        about = below;
    }
    return code < 0 ? (help_print(about, stdout) ? CMD_OK : CMD_FAILED) : code;
}
