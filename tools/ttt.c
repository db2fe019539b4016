/* The `ttt` command: the table of its commands, and which of them is meant. */
#include "hlo_builder/hlo.h"
#include "tools/cli/help.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

typedef struct ttt_options {
    bool version;
} ttt_options;

static const cmd_option options[] = {
    {"version", NULL, CMD_FLAG, offsetof(ttt_options, version),
     "the version; with --json those of PJRT and StableHLO that it knows too", .letter = 'V'},
};
static int ttt_command(int argc, char **argv);
const cmd_spec cmd_ttt = {
    .name = "",
    .summary = "test-time-training language models on TPUs, GPUs and CPUs",
    .usage = "COMMAND [options]",
    .about =
        "Test-time-training language models on TPUs, GPUs and CPUs, from C through PJRT plugins.",
    CMD_OPTIONS(options),
    .notes = "Every command takes --help, --json (one JSON object on standard output) and -v "
             "(details, and the plugins' own logs); those that use devices take --plugin "
             "cpu|tpu|cuda|PATH. ttt help COMMAND tells of one.\n"
             "In the environment:\n"
             "TTT_CACHE\tthe folder of what was set up and of compiled programs, else "
             "$XDG_CACHE_HOME/ttt or ~/.cache/ttt\n"
             "TTT_PLUGIN_CPU\tthe path of the plugin cpu; TTT_PLUGIN_TPU and TTT_PLUGIN_CUDA of "
             "the others; ttt devices -v shows where else they are looked for\n"
             "TTT_TOKEN\tthe secret that the processes of a job have in common",
    .commands =
        (const cmd_spec *const[]){
            &cmd_devices,   &cmd_plugin_check, &cmd_hlo,   &cmd_config,    &cmd_init,
            &cmd_convert,   &cmd_logits,       &cmd_grads, &cmd_data,      &cmd_train,
            &cmd_eval,      &cmd_generate,     &cmd_chat,  &cmd_bench,     &cmd_compile,
            &cmd_inspect,   &cmd_export,       &cmd_run,   &cmd_tokenizer, &cmd_report,
            &cmd_reproduce, &cmd_help,         NULL,
        },
    .run = ttt_command,
};

static int print_version(const cmd_common *common)
{
    if (!common->json)
        return puts("ttt " TTT_VERSION) >= 0 && fflush(stdout) == 0 ? CMD_OK : CMD_FAILED;
    int major, minor, oldest_minor, oldest[3], newest[3];
    pjrt_api_version(&major, &minor, &oldest_minor);
    hlo_portable_versions(oldest, newest);
    return cmd_print_json(json_pack("{s:s, s:s, s:{s:[i,i], s:[i,i]}, s:{s:[i,i,i], s:[i,i,i]}}",
                                    "version", TTT_VERSION, "released", TTT_RELEASED, "pjrt_api",
                                    "built_with", major, minor, "oldest_plugin", major,
                                    oldest_minor, "stablehlo", "oldest", oldest[0], oldest[1],
                                    oldest[2], "newest", newest[0], newest[1], newest[2]));
}

/* `ttt` without a command. */
static int ttt_command(int argc, char **argv)
{
    cmd_common common;
    cmd_operands operands;
    ttt_options chosen = {0};
    int code = cmd_parse(&cmd_ttt, argc, argv, &common, &chosen, &operands);
    if (code >= 0)
        return code;
    if (operands.count > 0)
        return cmd_wrong_use(&cmd_ttt, "the command comes first: ttt %s …", operands.items[0]);
    if (chosen.version)
        return print_version(&common);
    help_print(&cmd_ttt, stderr);
    return CMD_WRONG_USE;
}

/* The plugins log to stderr as they please; only those who ask want to read it. */
static void quiet_plugins(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "-v") == 0 || strcmp(argv[i], "--verbose") == 0)
            return;
    }
    setenv("TF_CPP_MIN_LOG_LEVEL", "3", 0);
    /* Announced while the library is being loaded, whatever the level; XLA's programs use none. */
    setenv("TF_ENABLE_ONEDNN_OPTS", "0", 0);
    setenv("TPU_MIN_LOG_LEVEL", "3", 0);
    setenv("TPU_STDERR_LOG_LEVEL", "3", 0);
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN); /* a closed pipe is a write error like any other */
    quiet_plugins(argc, argv);
    return cmd_dispatch(&cmd_ttt, argc, argv);
}
