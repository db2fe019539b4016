/* What the `ttt hlo` family of commands shares; `ttt compile` takes its XLA options too. */
#ifndef TOOLS_COMMANDS_HLO_H
#define TOOLS_COMMANDS_HLO_H

#include "tools/cli/cmd.h"

enum { HLO_MAX_OVERRIDES = 64 };

/* XLA options given as --xla NAME=VALUE. */
typedef struct hlo_overrides {
    pjrt_option list[HLO_MAX_OVERRIDES];
    size_t count;
    char *texts[HLO_MAX_OVERRIDES];
} hlo_overrides;

/* Adds "name=value" to an hlo_overrides; false when it has no '=' or there are too many. */
bool hlo_overrides_add(const char *text, void *overrides);
void hlo_overrides_free(hlo_overrides *overrides);

/* Program file as pjrt_program; `*bytes` backs it and is the caller's to free. Text, bytecode and
 * serialized HloModuleProto files (.pb) are told apart by name. */
pjrt_status *hlo_read_program(const char *path, char **bytes, pjrt_program *program);

#define HLO_OPTION_XLA(type, member)                                                               \
    {                                                                                              \
        "xla", "NAME=VALUE", CMD_CUSTOM, offsetof(type, member), "an XLA option for this compile", \
            .repeats = true, .set = hlo_overrides_add, .what = "NAME=VALUE"                        \
    }

extern const cmd_spec hlo_run, hlo_compile, hlo_example;

#endif
