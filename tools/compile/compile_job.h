/*
 * One of a network's programs, compiled for a target: from the options of `ttt compile` to the
 * report on what came of it.
 *
 *     compile_job job = {.options = &options};
 *     pjrt_status *st = compile_job_run(&job);
 *     if (st == NULL)
 *         compile_job_print(&job);
 *     compile_job_free(&job);
 */
#ifndef TOOLS_COMPILE_COMPILE_JOB_H
#define TOOLS_COMPILE_COMPILE_JOB_H

#include "tools/cli/model_options.h"
#include "tools/commands/hlo.h"
#include "tools/compile/compile_report.h"

typedef struct compile_options {
    model_options model;
    program_options program;
    const char *step, *target, *emit, *save, *optimized, *compare;
    int batch, batch_tokens, context, accumulation, top, candidates;
    bool kernels;
    hlo_overrides overrides;
} compile_options;

/* What is being compiled, and what must be released at the end. */
typedef struct compile_job {
    const compile_options *options;
    ttt_config config;
    ttt_recipe recipe;
    ttt_mesh mesh;
    ttt_program_desc desc;
    ttt_params *params;
    char *text;
    compiled result;
    double build_seconds;
} compile_job;

/* The names of --step, for messages and one by one (NULL past the last). */
#define COMPILE_STEPS "train, eval, forward, prefill or decode"
const char *compile_step_name(int index);
bool compile_step_exists(const char *name);

/* What the options say, without compiling: network, mesh, parameters and task. */
PJRT_MUST_CHECK pjrt_status *compile_job_choose(compile_job *job);
/* All of it. */
PJRT_MUST_CHECK pjrt_status *compile_job_run(compile_job *job);
roofline_work compile_job_work(const compile_job *job);
json_t *compile_job_json(const compile_job *job);
void compile_job_print(const compile_job *job);
void compile_job_free(compile_job *job);

/* ---- several ----------------------------------------------------------------------------------
 */

/* Two reports side by side: a table of figures with their ratios, or the same as JSON. */
json_t *compile_compare_json(const json_t *a, const json_t *b);
void compile_compare_print(const json_t *a, const json_t *b);
/* A report that was saved by `ttt compile --json`. */
PJRT_MUST_CHECK pjrt_status *compile_report_read(const char *path, json_t **report);

/*
 * Tries the meshes that a target's chips can be, for --mesh auto: those that divide the network and
 * the batch, of which a formula picks `candidates` to compile. `best` is the job of the winner and
 * `*table` the ranking; both are the caller's to free.
 */
PJRT_MUST_CHECK pjrt_status *mesh_search(const compile_options *options, compile_job *best,
                                         json_t **table);
void mesh_search_print(const json_t *table);

#endif
