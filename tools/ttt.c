/* The `ttt` command: finds the subcommand and leaves the rest to it. */
#include "tools/cmd.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *what;
} commands[] = {
    {"devices", cmd_devices, "the devices that a plugin offers"},
    {"plugin-check", cmd_plugin_check, "what a plugin supports, lacks and breaks"},
    {"hlo", cmd_hlo, "run and compile StableHLO programs"},
    {"config", cmd_config, "the networks there are, and one of them in full"},
    {"init", cmd_init, "a network before training, as a folder of files"},
    {"convert", cmd_convert, "a folder of files from other checkpoints"},
    {"logits", cmd_logits, "what a model says of some tokens"},
    {"grads", cmd_grads, "how its loss on them depends on each parameter"},
    {"data", cmd_data, "text to tokens for training"},
    {"train", cmd_train, "a network from a recipe and prepared data"},
    {"eval", cmd_eval, "the loss and perplexity of a model on prepared data"},
    {"generate", cmd_generate, "text that goes on from a prompt"},
    {"chat", cmd_chat, "turns of a conversation over one state"},
    {"bench", cmd_bench, "how fast a model reads and makes tokens"},
    {"compile", cmd_compile, "a network's programs for a target, and what they cost there"},
    {"inspect", cmd_inspect, "what a file or folder of ttt holds, in words and pictures"},
    {"report", cmd_report, "a page about training runs: curves, settings, samples"},
    {"export", cmd_export, "a model as a bundle that runs elsewhere"},
    {"run", cmd_run, "text that goes on from a prompt, by a bundle"},
    {"tokenizer", cmd_tokenizer, "text to numbers and back, and training for it"},
};

static void print_help(FILE *to)
{
    fputs(
        "usage: ttt COMMAND [options]\n"
        "\n"
        "Test-time-training language models on TPUs, GPUs and CPUs, from C through PJRT plugins.\n"
        "\n",
        to);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        fprintf(to, "  %-14s %s\n", commands[i].name, commands[i].what);
    fputs("\n"
          "Every command takes --help, --json (one JSON object on standard output), -v (details,\n"
          "and the plugins' own logs) and --plugin cpu|tpu|cuda|PATH.\n"
          "Exit codes: 0 done, 1 the work failed, 2 wrong use.\n",
          to);
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
    if (argc < 2) {
        print_help(stderr);
        return CMD_WRONG_USE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        print_help(stdout);
        return CMD_OK;
    }
    if (strcmp(argv[1], "--version") == 0) {
        puts("ttt " TTT_VERSION);
        return CMD_OK;
    }
    quiet_plugins(argc, argv);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    }
    fprintf(stderr, "ttt: no command is called \"%s\" (see ttt --help)\n", argv[1]);
    return CMD_WRONG_USE;
}
