/* The options of a job of several processes, the same for every subcommand that may be one. */
#ifndef TOOLS_WORLD_OPTIONS_H
#define TOOLS_WORLD_OPTIONS_H

#include "runtime/ttt_processes.h"
#include "tools/cmd.h"

typedef struct world_options {
    int processes, rank; /* 0, -1: not given */
    const char *coordinator;
    double timeout; /* below 0: not given */
} world_options;
#define WORLD_DEFAULTS ((world_options){.rank = -1, .timeout = -1})

bool world_set_rank(const char *text, void *field);
bool world_set_timeout(const char *text, void *field);

/* The rows for cmd_spec.options; `member` is the world_options in the options struct. */
#define WORLD_OPTIONS(type, member)                                                                 \
    {"processes", "a number of processes", CMD_NUMBER, offsetof(type, member.processes),            \
     .most = 1 << 16},                                                                              \
        {"rank", "a number from 0 on", CMD_CUSTOM, offsetof(type, member.rank), 0, world_set_rank}, \
        {"coordinator", "", CMD_TEXT, offsetof(type, member.coordinator), 0, NULL},                 \
    {                                                                                               \
        "timeout", "a number of seconds", CMD_CUSTOM, offsetof(type, member.timeout), 0,            \
            world_set_timeout                                                                       \
    }
/* What --help says of them. */
#define WORLD_OPTIONS_HELP                                                                         \
    "  --processes N      one of N processes, a host each; mpirun, srun and TPU pods tell that\n"  \
    "                     by themselves, else: --rank R, from 0 on, and --coordinator HOST:PORT\n" \
    "                     of process 0, with a secret in $TTT_TOKEN that all have\n"               \
    "  --timeout S        seconds to wait for other processes (300)\n"

/* -1 to go on, else the exit code after saying what is wrong. */
int world_check_use(const cmd_spec *spec, const world_options *options);
/* Joins the others. From then on failures begin with who this is, and JSON is for the first one. */
PJRT_MUST_CHECK pjrt_status *world_join(const world_options *options, cmd_common *common,
                                        ttt_world **world);
/* Ends this process with CMD_FAILED, at once, when it is one of several: the others hear of it. For
 * failures that are not theirs too. Devices may wait for others for good: nothing is freed. */
void world_abandon(ttt_world *world);
/* The same where another process is lost; else says goodbye. */
void world_leave(ttt_world *world);

#endif
