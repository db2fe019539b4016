/*
 * What `ttt reproduce` is made of: the paper's tables and figures, each an experiment over networks
 * that are trained, evaluated or timed at a scale. Everything lies in one folder:
 *
 *     data/               corpus, tokenizer, tokens
 *     runs/NAME-s0/       one training run a network and seed, with its result.json
 *     ladder.json .csv .svg .md   what came out of an experiment
 *     results.md          the pages of all experiments so far
 *
 * A run that was cut goes on where it was, and experiments share runs: what is there is not done
 * again. `reproduce_*.c` have the parts; the experiments are at the end.
 */
#ifndef TOOLS_REPRODUCE_REPRODUCE_H
#define TOOLS_REPRODUCE_REPRODUCE_H

#include "runtime/train/ttt_trainer.h"
#include "tools/cli/cmd.h"
#include "tools/cli/progress.h"
#include "tools/commands/generate_options.h"
#include "tools/commands/model_run.h"
#include "tools/report/chart.h"
#include "tools/report/markup.h"

#include <limits.h>

enum { REPRODUCE_MOST = 16, REPRODUCE_MOST_SEEDS = 16 };

/* ---- scales ---- */

/* A size at which all experiments are done. */
typedef struct reproduce_scale {
    const char *name, *preset;
    int64_t vocab; /* of the tokenizer that is trained; 0: there is none, --data is needed */
    int64_t context, batch_tokens, steps;
    double peak_lr;                    /* 0: the preset's */
    int64_t eval_tokens;               /* of the validation text, at most */
    int64_t sizes[REPRODUCE_MOST];     /* of mini-batches, besides whole sequences; 0: the end */
    int64_t contexts[REPRODUCE_MOST];  /* of the experiment over contexts; 0: the end */
    int64_t context_steps;             /* of its runs */
    double finetune_lr;                /* peak rate of the Transformer's fine-tuning */
    const char *latency_preset;        /* of the networks that are timed */
    int64_t latencies[REPRODUCE_MOST]; /* contexts at which they are; 0: the end */
    int64_t latency_batches[4];        /* sequences side by side; 0: the end */
} reproduce_scale;

/* NULL when there is none by that name; all names in `names`, for the message. */
const reproduce_scale *reproduce_scale_find(const char *name, const char **names);

typedef struct reproduce_options {
    const char *scale, *out, *data, *mesh, *cache;
    text_list corpus;
    const char *rows; /* "a,b": of the ladder */
    int_list contexts;
    int seeds, steps, context;
    hlo_type dtype;
    bool commands;
} reproduce_options;

/* One call of the command. */
typedef struct reproduce {
    const cmd_common *common;
    const reproduce_options *options;
    reproduce_scale scale; /* with what the options change */
    char out[PATH_MAX - 512], data[PATH_MAX - 512];
    int64_t vocab;
    ttt_devices *devices; /* where models are evaluated and timed; NULL until it is needed */
    /* How far the experiment is. */
    progress_line line;
    const char *experiment, *doing;
    int done, all; /* runs, or measurements */
    int fresh;     /* of those done, not found */
    double begun;
} reproduce;

/* ---- data: reproduce_data.c ---- */

/* The folder of tokens: that of --data, or made of the corpus. */
PJRT_MUST_CHECK pjrt_status *reproduce_data(reproduce *r);

/* ---- trained networks: reproduce_train.c ---- */

enum { REPRODUCE_NAME = 64 };

/* A network to train. */
typedef struct reproduce_job {
    char name[REPRODUCE_NAME];  /* of its folder, with the seed behind it */
    char label[REPRODUCE_NAME]; /* for people */
    const char *mixer, *backbone;
    const char *sets;           /* "field=value field=value", or NULL */
    int64_t mini;               /* mini_batch_size; 0: as it is, or as `sets` says */
    int64_t context;            /* 0: the scale's */
    int64_t steps;              /* 0: the scale's */
    double peak_lr;             /* 0: the scale's */
    bool matched;               /* its blocks are as wide as it takes for Mamba's arithmetic */
    char start[REPRODUCE_NAME]; /* the name of the run whose model it begins with, or "" */
    bool inner;                 /* the inner losses are asked for */
} reproduce_job;

/* What one seed of it is, and how it is trained. */
PJRT_MUST_CHECK pjrt_status *reproduce_settings(const reproduce *r, const reproduce_job *job,
                                                int seed, ttt_config *config, ttt_recipe *recipe);

/* A network's result over the seeds. */
typedef struct reproduce_result {
    json_t *runs; /* array of result.json, by seed; owned */
    int count;
    double loss, perplexity; /* means; NaN when a run diverged */
    double spread; /* of the perplexity: deviation over seeds, of one its own standard error */
} reproduce_result;

/* Trains, or finds, every seed, and says so in a line. */
PJRT_MUST_CHECK pjrt_status *reproduce_train(reproduce *r, const reproduce_job *job,
                                             reproduce_result *out);
void reproduce_result_free(reproduce_result *result);
/* "by_position" and the like of a run, the mean over seeds, into `values`; how many were there. */
size_t reproduce_series(const reproduce_result *result, const char *name, double *values,
                        size_t room);
/* The lines of a shell script that trains it, on standard output. */
PJRT_MUST_CHECK pjrt_status *reproduce_print(const reproduce *r, const reproduce_job *job);

/* ---- times: reproduce_time.c ---- */

/* A program of a network that starts from a seed, over random tokens. */
typedef struct reproduce_timing {
    ttt_config config;
    ttt_program_kind kind; /* TTT_PROGRAM_LOSS: forward; TTT_PROGRAM_GRADS: and backward */
    ttt_form form;
    int64_t batch, time;
    bool kernels; /* hand-written ones where there are some */
} reproduce_timing;

/* The median of some runs after one that does not count, in seconds. */
PJRT_MUST_CHECK pjrt_status *reproduce_time(reproduce *r, const reproduce_timing *timing,
                                            double *seconds);
/* The place of the session, opened. */
PJRT_MUST_CHECK pjrt_status *reproduce_place(reproduce *r);

/* ---- progress and results: reproduce_write.c ---- */

void reproduce_begin(reproduce *r, const char *experiment, int all);
/* A part of the current run is done, from 0 to 1, if it is time to say so. */
void reproduce_show(reproduce *r, double part, const char *words);
/* A line for a person, above the bar; nothing with --json. */
void reproduce_say(reproduce *r, const char *format, ...) __attribute__((format(printf, 2, 3)));

typedef struct reproduce_picture {
    const char *suffix; /* "" or "-time": EXPERIMENT-time.svg */
    char about[64];     /* for those who do not see it */
    text_buffer svg;    /* owned */
} reproduce_picture;

/* What came out of an experiment. */
typedef struct reproduce_report {
    const char *title;
    json_t *rows;        /* array of flat objects: the lines of the table; owned */
    const char *columns; /* "label:network,perplexity:perplexity": of the page's table */
    markup words;        /* paragraphs; owned */
    reproduce_picture pictures[4];
    int n_pictures;
} reproduce_report;

/* EXPERIMENT.json, .csv, .svg and .md, each whole or not at all. */
PJRT_MUST_CHECK pjrt_status *reproduce_write(reproduce *r, reproduce_report *report);
/* Text as OUT/NAME.ENDING, whole or not at all; the text is freed. */
PJRT_MUST_CHECK pjrt_status *reproduce_put(const reproduce *r, const char *name, const char *ending,
                                           markup *text);
void reproduce_report_free(reproduce_report *report);

/* ---- experiments ---- */

/* A table or figure of the paper. */
typedef struct reproduce_experiment {
    const char *name, *summary;
    /* The networks to train, at most REPRODUCE_MOST_JOBS; returns how many. NULL: none. */
    int (*jobs)(const reproduce *r, reproduce_job *jobs);
    /* How many measurements come after training; NULL: none. */
    int (*measurements)(const reproduce *r);
    /* What their results, one a job, and measurements say. */
    pjrt_status *(*conclude)(reproduce *r, const reproduce_job *jobs,
                             const reproduce_result *results, int count, reproduce_report *report);
} reproduce_experiment;

enum { REPRODUCE_MOST_JOBS = 64 };

/* The first of "a,b" that the ladder has no row for, or NULL; and all rows, "a, b, c". */
const char *reproduce_unknown_row(const char *rows);
const char *reproduce_rows(void);

extern const reproduce_experiment reproduce_ladder, reproduce_minibatch, reproduce_context,
    reproduce_position, reproduce_innerloop, reproduce_latency, reproduce_dualprimal;

#endif
