/* Private to the runtime room: a trainer, shared by the files that open it, run it and record it.
 */
#ifndef RUNTIME_TRAIN_TRAINER_INTERNAL_H
#define RUNTIME_TRAIN_TRAINER_INTERNAL_H

#include "runtime/train/loss_history.h"
#include "runtime/train/metrics.h"
#include "runtime/train/stop_and_save.h"
#include "runtime/train/train_arrays.h"
#include "runtime/train/ttt_trainer.h"

/* What is queued, and whose result is not read yet. */
typedef struct ttt__pending {
    int64_t step; /* 0: nothing */
    ttt_array *loss, *norm, *rate, *skipped;
    ttt_array *votes; /* of several processes */
} ttt__pending;

/* What a step takes beside the state, and which arguments they are. */
enum { TTT__INPUTS = 4 };
typedef struct ttt__step_inputs {
    ttt_array *list[TTT__INPUTS];
    int places[TTT__INPUTS], count;
} ttt__step_inputs;

enum { TTT__STEP_TIMES = 1024 }; /* of which the median is told */

struct ttt_trainer {
    ttt_trainer_options options;
    ttt_train_plan plan;
    double begun; /* on the clock */
    bool first;   /* of several processes the one that keeps the folder */
    ttt_devices *devices;
    ttt_params *params;
    ttt_dataset *train, *validation; /* validation: NULL when there is none */
    ttt_loader *loader;
    int64_t *row_at; /* [batch]: which row of the loader's it is; -1: another process's */
    ttt_train_args at;
    ttt_program *program;
    ttt_evaluator *evaluator; /* NULL: no evaluation */
    ttt__agreements meetings;
    ttt__stop_and_save *votes; /* of several processes */
    ttt__wishes decided;       /* by all, with the last step that was read */
    ttt__lock *lock;
    ttt__checkpoint_dir *store;
    ttt__saver *saver;
    ttt__metrics *metrics;
    char checkpoints[4096]; /* the folder */

    ttt__train_arrays state;
    ttt__loss_history history;
    int64_t step;     /* of `state`: steps queued */
    int64_t position; /* rows drawn */
    int64_t skipped, in_a_row;
    int64_t saved_step; /* -1: none of this run */
    double last_save;   /* on the clock */
    double last_stall;  /* seconds */
    double last_loss;

    ttt__pending pending;
    double mark;   /* on the clock: the last result, or the end of what interrupted */
    double waited; /* by the loader, when last looked at */
    ttt_goodput before, now;
    double times[TTT__STEP_TIMES];
    int64_t n_times;
};

/* Tells the one who listens. */
void ttt__trainer_emit(const ttt_trainer *t, const ttt_event *event);
void ttt__trainer_note(const ttt_trainer *t, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* All processes have the same options and data; the one that has not is named. */
PJRT_MUST_CHECK pjrt_status *ttt__trainer_compare(ttt_trainer *t);

/* The loader of this process's rows; then the inputs of one step after another, which are freed
 * also when that failed. */
PJRT_MUST_CHECK pjrt_status *ttt__trainer_load(ttt_trainer *t);
PJRT_MUST_CHECK pjrt_status *ttt__trainer_inputs(ttt_trainer *t, ttt__step_inputs *out);
void ttt__step_inputs_free(ttt__step_inputs *inputs);

/* Seconds of the run's whole life, and where they went. */
ttt_goodput ttt__trainer_goodput(const ttt_trainer *t);

/* What a checkpoint knows of the run beside its arrays; NULL when out of memory. And back: what the
 * run cannot go on with is refused by name. */
json_t *ttt__trainer_record(const ttt_trainer *t);
PJRT_MUST_CHECK pjrt_status *ttt__trainer_recall(ttt_trainer *t, const ttt__checkpoint *checkpoint);

/* The arguments as one command line for a POSIX shell; the caller frees it. NULL: no memory. */
char *ttt__shell_command(char *const *argv, int argc);
/* Writes config.json, recipe.json and environment.json to the run's folder. */
PJRT_MUST_CHECK pjrt_status *ttt__run_describe(const ttt_trainer *t);
/* The largest "elapsed" in metrics.jsonl, in seconds; 0 when there is none. */
double ttt__run_elapsed(const char *run);

/* Writes the three largest parameters as "NAME X.XX GB, …": bytes on one device of the mesh, with
 * both Adam moments. */
void ttt__largest_params(const ttt_params *params, const ttt_mesh *mesh, char *text, size_t size);

#endif
