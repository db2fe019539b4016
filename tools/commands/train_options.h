/* What `ttt train` is told, and how it becomes a trainer's options: presets, data and the command
 * line laid over each other, with the source of every value kept. */
#ifndef TOOLS_COMMANDS_TRAIN_OPTIONS_H
#define TOOLS_COMMANDS_TRAIN_OPTIONS_H

#include "runtime/train/ttt_trainer.h"
#include "tools/cli/job_options.h"
#include "tools/cli/model_options.h"

typedef struct train_choices {
    model_options model;
    program_options program;
    world_options job;
    const char *data, *run, *resume, *cache;
    int steps, batch_tokens, context, accumulation;
    int save_every, keep, milestone, eval_every, eval_sequences, log_every, window, abort_after;
    double save_minutes, spike; /* below 0: not given */
    bool dry_run, resets, no_eval, no_kernels;
} train_choices;

#define TRAIN_CHOICES                             \
    ((train_choices){.program = PROGRAM_DEFAULTS, \
                     .job = WORLD_DEFAULTS,       \
                     .save_minutes = -1,          \
                     .spike = -1,                 \
                     .log_every = 10})

/* What cmd_train runs. */
int train_command(int argc, char **argv);

/* The fields of network and recipe in the order of their tables: {"field": [value, "source"]}. */
typedef struct train_merged {
    ttt_trainer_options options;
    json_t *fields; /* owned */
    char *start;    /* owned: the folder behind --model */
} train_merged;

/* All fields of both by the names of --set, as one object; NULL when out of memory. */
json_t *train_fields(const ttt_config *config, const ttt_recipe *recipe);

PJRT_MUST_CHECK pjrt_status *train_merge(const train_choices *choices, const cmd_common *common,
                                         train_merged *out);
void train_merged_free(train_merged *merged);

#endif
