/* The options of a job of several processes, the same for every subcommand that may be one. */
#ifndef TOOLS_CLI_JOB_OPTIONS_H
#define TOOLS_CLI_JOB_OPTIONS_H

#include "runtime/cluster/ttt_processes.h"
#include "tools/cli/cmd.h"

typedef struct world_options {
    int processes, rank; /* 0, -1: not given */
    const char *coordinator;
    double timeout; /* below 0: not given */
} world_options;
#define WORLD_DEFAULTS ((world_options){.rank = -1, .timeout = -1})

bool world_set_rank(const char *text, void *field);
bool world_set_timeout(const char *text, void *field);

/* The rows for cmd_spec.options; `member` is the world_options in the options struct. */
#define JOB_OPTIONS(type, member)                                                               \
    CMD_GROUP("several processes"),                                                             \
        {"processes",                                                                           \
         "N",                                                                                   \
         CMD_NUMBER,                                                                            \
         offsetof(type, member.processes),                                                      \
         "one of N processes, a host each; mpirun, srun and TPU pods tell that by themselves, " \
         "others say --rank and --coordinator too, and all have the same secret in $TTT_TOKEN", \
         .most = 1 << 16},                                                                      \
        {"rank",                                                                                \
         "R",                                                                                   \
         CMD_CUSTOM,                                                                            \
         offsetof(type, member.rank),                                                           \
         "which of them this is, from 0 on",                                                    \
         .set = world_set_rank,                                                                 \
         .what = "a number from 0 on"},                                                         \
        {"coordinator", "HOST:PORT", CMD_TEXT, offsetof(type, member.coordinator),              \
         "where process 0 is to be found"},                                                     \
    {                                                                                           \
        "timeout", "S", CMD_CUSTOM, offsetof(type, member.timeout),                             \
            "seconds to wait for other processes", .usual = "300", .set = world_set_timeout,    \
                                                   .what = "a number of seconds"                \
    }

/* -1 to go on, else the exit code after saying what is wrong. */
int world_check_use(const cmd_spec *spec, const world_options *options);
/* Joins the others. From then on failures begin with who this is, and JSON is for the first one. */
PJRT_MUST_CHECK pjrt_status *world_join(const world_options *options, cmd_common *common,
                                        ttt_job **job);
/* Ends this process with CMD_FAILED, at once, when it is one of several: the others hear of it. For
 * failures that are not theirs too. Devices may wait for others for good: nothing is freed. */
void world_abandon(ttt_job *job);
/* The same where another process is lost; else says goodbye. */
void world_leave(ttt_job *job);

#endif
