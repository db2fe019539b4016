/*
 * Training: from prepared data and a recipe to checkpoints, in a folder that a run lives in.
 *
 *     #include "runtime/train/ttt_trainer.h"
 *
 *     ttt_trainer_options options = TTT_TRAINER_DEFAULTS;
 *     options.config = config;  // model/ttt_model.h
 *     options.recipe = recipe;  // model/ttt_train.h
 *     options.data = "prepared";
 *     options.run = "run";
 *     options.resume = true;
 *     ttt_trainer *trainer = NULL;
 *     ttt_train_summary summary;
 *     pjrt_status *st = ttt_trainer_new(&options, &trainer);
 *     if (!st) st = ttt_trainer_run(trainer, &summary);
 *     ttt_trainer_free(trainer);
 *
 * The folder of a run:
 *
 *     config.json, recipe.json    the network and how it is trained
 *     environment.json            what it runs on; the first start and the last
 *     tokenizer.json              or by another name: that of the data, where it is a file
 *     metrics.jsonl, tensorboard/ figures of every step and evaluation
 *     checkpoints/step-00001000/  each a model in Hugging Face's form with the optimiser beside it
 *     lock                        held by the one process that may write here
 *
 * With several processes (runtime/cluster/ttt_processes.h) each has a trainer with the same options and its
 * own devices' share of the state, the rows and the checkpoints; the first one alone keeps the
 * folder and speaks to `hear`. They stop at the same step, whoever of them was told to, and when
 * one is lost the others end with an error that names it. The folder must be the same for all.
 *
 * A run may be killed at any moment. The next one with `resume` goes on from the newest whole
 * checkpoint, and on the same mesh does bit for bit what the first would have done. Nothing here
 * prints: what there is to say is handed to `hear`.
 */
#ifndef RUNTIME_TRAIN_TTT_TRAINER_H
#define RUNTIME_TRAIN_TTT_TRAINER_H

#include "runtime/data/ttt_data.h"
#include "runtime/device/ttt_device.h"

#include <math.h>

/* ---- evaluation --------------------------------------------------------------------------------
 */

/* What a model makes of text that it was not trained on. */
typedef struct ttt_evaluation {
    int64_t sequences, tokens; /* tokens that counted */
    double loss;               /* nats a token */
    double error; /* standard error of it, sequences taken as independent; NaN of one */
    int64_t time;
    double *by_position; /* [time]: the mean loss of tokens at that index */
    int64_t layers;      /* 0: the mixer does not learn, or it was not asked for */
    /* [layers, 4, time], as ttt_diagnostics has it: reconstruction at W0, at the start of the
     * mini-batch, just before learning from the token, just after. */
    float *inner_loss;
} ttt_evaluation;

void ttt_evaluation_free(ttt_evaluation *evaluation); /* what it holds, not the struct */

/* How sequences go through the network; all give the same but for rounding. */
typedef enum ttt_eval_path {
    TTT_EVAL_DUAL,   /* whole sequences at once */
    TTT_EVAL_PRIMAL, /* the same program, token by token */
    TTT_EVAL_STREAM, /* spans, with the state between: memory does not grow with length */
    TTT_EVAL_DECODE, /* the first half by spans, the rest as text is generated */
} ttt_eval_path;

typedef struct ttt_evaluator_options {
    int64_t batch, time; /* sequences at once, and their length */
    ttt_eval_path path;
    int64_t span; /* tokens of one; 0: half a sequence */
    hlo_type compute;
    bool diagnostics;     /* inner losses too; of mixers that do not learn there are none */
    int64_t masked_label; /* labels that do not count; -1: all do */
} ttt_evaluator_options;

/* A program that gives every token's loss, and the bookkeeping around it. */
typedef struct ttt_evaluator ttt_evaluator;
PJRT_MUST_CHECK pjrt_status *ttt_evaluator_new(const ttt_devices *devs, const ttt_config *config,
                                               const ttt_params *params,
                                               const ttt_evaluator_options *options,
                                               ttt_evaluator **out);
void ttt_evaluator_free(ttt_evaluator *evaluator);
/*
 * Sequences of the data in their order, from the first on; at most `sequences`, 0: all that are
 * whole. `progress`, when not NULL, hears of those done and may return false to end it there; what
 * was seen until then is the result.
 */
PJRT_MUST_CHECK pjrt_status *
ttt_evaluator_run(ttt_evaluator *evaluator, ttt_array *const *weights, const ttt_dataset *data,
                  int64_t sequences, bool (*progress)(void *ctx, int64_t done, int64_t all),
                  void *ctx, ttt_evaluation *out);

/* ---- what a run says while it goes -------------------------------------------------------------
 */

typedef struct ttt_step_figures {
    double loss, norm, rate;
    double loss_z, norm_z; /* deviations from the last steps' mean; NaN while there are too few */
    bool skipped;          /* nothing was updated: not finite, or a spike */
    double seconds, tokens_per_second;
    double mfu;       /* share of the peak; NaN where that is not known */
    double data_wait; /* share of the time so far spent waiting for data */
    int64_t memory;   /* bytes: of a device, or of this process where devices do not tell */
} ttt_step_figures;

typedef enum ttt_event_kind {
    TTT_EVENT_NOTE, /* a line for a person */
    TTT_EVENT_STEP,
    TTT_EVENT_EVALUATED,
    TTT_EVENT_SAVED, /* a checkpoint is whole, on disk */
} ttt_event_kind;

typedef struct ttt_event {
    ttt_event_kind kind;
    int64_t step, steps;
    const char *text;                 /* note; the folder of what was saved */
    const ttt_step_figures *figures;  /* step */
    const ttt_evaluation *evaluation; /* evaluated */
    double seconds; /* evaluated, saved: how long it took, beside training in the latter case */
    double stall_seconds; /* saved: how long training stood still for it */
} ttt_event;

/* ---- training ----------------------------------------------------------------------------------
 */

typedef struct ttt_trainer_options {
    ttt_config config;
    ttt_recipe recipe;
    const char *data, *run;
    const char *start; /* folder of a model whose weights a new run begins with; NULL: the seed's */
    const char *plugin; /* NULL: "cpu" */
    ttt_mesh mesh;
    ttt_job *job;      /* NULL: one process; outlives the trainer */
    const char *cache; /* folder of compiled programs; NULL: none */
    hlo_type compute;  /* f32 or bf16; parameters and moments are f32 */
    ttt_remat remat;
    bool no_kernels;      /* all is left to the compiler, also what is written by hand */
    int64_t accumulation; /* parts of a batch, one after another */
    bool resets;          /* documents within a sequence do not see each other */
    bool resume;          /* go on from the newest whole checkpoint, if there is any */
    bool dry;             /* plan alone: nothing is written, ttt_trainer_run is refused */
    char *const *argv;    /* [argc]: the command, recorded in environment.json; NULL: none */
    int argc;
    /* Checkpoints: after so many steps, and after so many seconds, whichever is first; 0: not by
     * that. There is one at the end in any case. */
    int64_t save_every;
    double save_seconds;
    int keep;          /* the newest so many stay; 0: all */
    int64_t milestone; /* multiples of it stay for ever; 0: none */
    /* Evaluation on the validation split: every so many steps and at the end; 0: never. */
    int64_t eval_every, eval_sequences;
    /* Steps whose loss or norm is not finite are skipped. So are those more than `spike` standard
     * deviations above the mean of `window` steps; 0: none are. After `abort_after` skipped steps
     * in a row the run ends with an error; 0: it never does. */
    double spike;
    int64_t window;
    int64_t abort_after;
    const atomic_int *stop; /* not 0: finish the step, save, return */
    void (*hear)(void *ctx, const ttt_event *event);
    void *ctx;
} ttt_trainer_options;

#define TTT_TRAINER_DEFAULTS                     \
    ((ttt_trainer_options){.compute = HLO_F32,   \
                           .accumulation = 1,    \
                           .save_every = 1000,   \
                           .save_seconds = 600,  \
                           .keep = 2,            \
                           .eval_every = 250,    \
                           .eval_sequences = 64, \
                           .window = 128,        \
                           .abort_after = 10})

/* Known before the first step. */
typedef struct ttt_train_plan {
    int64_t parameters;
    int64_t batch, time; /* sequences of a step, tokens of each */
    int64_t samples;     /* of one pass over the data */
    double epochs;       /* passes that all steps need */
    int64_t step;        /* done already, by the checkpoint that is resumed */
    int devices, processes;
    const char *device;       /* its kind */
    pjrt_memory_stats memory; /* of the step's program on one device, by the compiler */
    int64_t needed, limit;    /* bytes of a device; limit 0: not known */
    double flops_per_token;   /* forward and backward, without what is computed again */
    double peak;              /* FLOP/s of all devices; 0: not known */
    bool peak_measured;       /* here and now; else it is the maker's figure */
    double compile_seconds;
    bool cached; /* the program was found, not compiled */
} ttt_train_plan;

/* Where a run's time went: over its whole life, restarts included. */
typedef struct ttt_goodput {
    double compute, compile, data, save, restore, evaluate, lost, other;
} ttt_goodput;
double ttt_goodput_total(const ttt_goodput *goodput);

typedef struct ttt_train_summary {
    int64_t step, steps;
    int64_t skipped; /* steps of the whole run */
    bool stopped;    /* by `stop`, before the last step */
    double loss;     /* of the last step; NaN when there was none */
    ttt_goodput goodput;
    double seconds;      /* of this process, from ttt_trainer_new on */
    double step_seconds; /* the median of this process's steps, from one result to the next */
    char checkpoint[4096 + 32]; /* the folder of the newest; "": there is none */
} ttt_train_summary;

typedef struct ttt_trainer ttt_trainer;
/* Takes the folder, restores, compiles. A program that will not fit in memory is refused with what
 * is largest and what would help. */
PJRT_MUST_CHECK pjrt_status *ttt_trainer_new(const ttt_trainer_options *options, ttt_trainer **out);
const ttt_train_plan *ttt_trainer_plan(const ttt_trainer *trainer);
PJRT_MUST_CHECK pjrt_status *ttt_trainer_run(ttt_trainer *trainer, ttt_train_summary *summary);
void ttt_trainer_free(ttt_trainer *trainer);

/* ---- runs from outside -------------------------------------------------------------------------
 */

/* The network and the recipe of a run that was begun; NOT_FOUND when there is none. */
PJRT_MUST_CHECK pjrt_status *ttt_run_read(const char *run, ttt_config *config, ttt_recipe *recipe);
/* The folder of a model: `path` itself, or the newest checkpoint of the run that it is; the caller
 * frees it. Of a checkpoint only what a model needs is looked at. */
PJRT_MUST_CHECK pjrt_status *ttt_model_folder(const char *path, char **folder);

/* ---- how fast it can be ------------------------------------------------------------------------
 */

/* Arithmetic of one token in training: three times that of the forward pass, in which every
 * parameter of a product counts 2 and the mixer what its own products need. */
double ttt_flops_per_token(const ttt_config *config, const ttt_params *params, int64_t time);
/* FLOP/s of all devices of a place in products of that type: the maker's figure where the device is
 * known, measured on the CPU, else 0. */
PJRT_MUST_CHECK pjrt_status *ttt_devices_peak(const ttt_devices *devs, hlo_type type, double *flops,
                                              bool *measured);

#endif
