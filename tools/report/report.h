/*
 * What `ttt report` gathers from the folders of training runs, and the page that shows it.
 *
 * A run may still be going, may have been cut, and its files may be damaged: what can be read is
 * shown, and what is wrong with the rest is said in a line. metrics.jsonl is read once from front
 * to back and may have any length: curves are kept as a bounded number of pieces, each with its
 * lowest, its highest and its mean.
 */
#ifndef TOOLS_REPORT_REPORT_H
#define TOOLS_REPORT_REPORT_H

#include "tools/cli/cmd.h"
#include "tools/report/markup.h"

#include <limits.h>

enum {
    REPORT_PIECES = 1024,     /* of a curve */
    REPORT_EVALUATIONS = 256, /* that are kept */
    REPORT_CURVES = 4,        /* losses by position, over the run */
    REPORT_BINS = 48,         /* of a curve over token indices */
    REPORT_LAYERS = 256,
    REPORT_RESTARTS = 64,
    REPORT_NOTES = 12,
    REPORT_SAMPLES = 8,
    REPORT_RUNS = 8,
};

/* ---- curves of any length ---- */

typedef struct report_piece {
    double x, mean; /* of all its points */
    double low_x, low, high_x, high;
    double points;
} report_piece;

/* All zero: empty. When it is full, every two pieces become one. */
typedef struct report_track {
    report_piece list[REPORT_PIECES];
    size_t count;
    double each; /* points of a piece */
} report_track;

/* What is not finite is passed over. */
void report_track_add(report_track *track, double x, double y);

/* A curve over token indices, thinned to bins that grow with the index. */
typedef struct report_curve {
    double step;
    double x[REPORT_BINS], y[REPORT_BINS];
    size_t count;
} report_curve;

/* `value(ctx, i)` for i below `count`, as means of bins; index 0 has the place 1. */
void report_curve_fill(report_curve *curve, size_t count, double (*value)(void *ctx, size_t i),
                       void *ctx);

/* ---- a run ---- */

typedef enum report_inner {
    REPORT_INNER_W0,
    REPORT_INNER_BATCH,
    REPORT_INNER_BEFORE,
    REPORT_INNER_AFTER,
    REPORT_INNERS
} report_inner;
const char *report_inner_name(int which); /* for readers: "before the token" */

typedef struct report_evaluation {
    double step, tokens, loss, error;
} report_evaluation;

typedef struct report_sample {
    char *prompt, *text; /* UTF-8 */
    const char *end;     /* why it ended */
} report_sample;

typedef struct report_run {
    char path[PATH_MAX], name[128];
    json_t *config, *recipe, *environment, *training; /* NULL: not there. The last is that of the
                                                         newest checkpoint's manifest */
    json_t *network;                                  /* as inspect_network has it, or NULL */
    char notes[REPORT_NOTES][256];                    /* what is wrong with it */
    size_t n_notes;

    double steps, step, tokens, elapsed; /* planned; done, by the last line */
    double first_tokens;                 /* of a step: what steps are turned into tokens with */
    double train_loss;                   /* mean of the last twentieth */
    double skipped, bad_steps;           /* `bad_steps`: their loss was not finite */
    double step_ms, counted_steps, mfu_ms, mfu_steps_ms; /* sums for means */
    double memory;
    double lines, bad_lines, first_bad_line;
    bool going; /* a process holds its lock */
    double restarts[REPORT_RESTARTS], restart_times[REPORT_RESTARTS];
    size_t n_restarts;

    report_track loss, norm, rate, speed; /* over steps; `speed` over seconds */
    report_evaluation evaluations[REPORT_EVALUATIONS], last, best;
    size_t n_evaluations, seen_evaluations, evaluation_stride;
    report_curve positions[REPORT_CURVES];
    size_t n_positions;
    report_track inner[REPORT_INNERS];                 /* mean over layers, over steps */
    double inner_layers[REPORT_INNERS][REPORT_LAYERS]; /* of the last evaluation */
    size_t n_inner_layers;

    report_curve *inner_curves; /* [layers][REPORT_INNERS] from the newest checkpoint, or NULL */
    size_t n_inner_curves;      /* layers */
    double inner_curves_step, inner_sequences;
    report_sample samples[REPORT_SAMPLES];
    size_t n_samples;
    char model[PATH_MAX]; /* what the samples are from */
} report_run;

/* Adds a line to the notes. */
void report_note(report_run *run, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A folder without metrics.jsonl and config.json is no run: that alone is a failure. */
PJRT_MUST_CHECK pjrt_status *report_read(const char *path, report_run **out);
void report_run_free(report_run *run);

/* ---- from the newest checkpoint ---- */

typedef struct report_live_options {
    const cmd_common *common;
    const char *data; /* NULL: what the run was trained on */
    const char *cache;
    const char *const *prompts; /* none: beginnings of lines of the validation text */
    size_t n_prompts;
    size_t samples;
    int tokens;              /* of a sample */
    int64_t inner_sequences; /* that inner losses are measured on; 0: not */
    uint64_t seed;
} report_live_options;

/* Samples and inner losses; what cannot be made is a note of the run. */
void report_live(report_run *run, const report_live_options *options);

/* ---- showing ---- */

typedef struct report {
    const char *title;
    report_run *runs[REPORT_RUNS];
    size_t n_runs;
} report;

/* Means over the steps; NaN when they are not known. */
double report_tokens_per_second(const report_run *run);
double report_mfu(const report_run *run);
/* Seconds of the run's life by what they went to, in order: {"compute": …}; NULL before the first
 * checkpoint. */
const json_t *report_seconds(const report_run *run);
/* The share of them that was computing; NaN. */
double report_goodput(const report_run *run);
/* What differs between the runs' settings: [{"setting", "values": [text or null …]}]. */
json_t *report_differences(const report *r);
/* "finished", "still going", "not finished". */
const char *report_state(const report_run *run);
/* Every setting by a path of names: "recipe.peak_lr", "config.ttt_c.mixer"; in words. */
json_t *report_settings(const report_run *run);
/* The figures of the page. */
json_t *report_figures(const report *r);
/* Figures drawn: each adds <figure>s, or nothing when there is nothing to draw. */
void report_draw_losses(markup *m, const report *r);
void report_draw_steps(markup *m, const report *r);
void report_draw_positions(markup *m, const report *r);
void report_draw_inner(markup *m, const report_run *run);
PJRT_MUST_CHECK pjrt_status *report_page(const report *r, text_buffer *out);

#endif
