/* The steps of a run: each is queued before the result of the one before is read. */
#include "runtime/base/threads.h"
#include "runtime/train/trainer_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char call[] = "train";

static bool told_to_stop(const ttt_trainer *t)
{
    return t->options.stop != NULL && atomic_load(t->options.stop) != 0;
}

/* Several processes stop when all know of it. */
static bool stopping(const ttt_trainer *t)
{
    return t->votes == NULL ? told_to_stop(t) : t->decided.of[TTT__AGREE_STOP] != 0;
}

static bool save_is_late(const ttt_trainer *t)
{
    double after = t->options.save_seconds;
    return after > 0 && ttt__seconds() - t->last_save >= after;
}

/* ---- figures -----------------------------------------------------------------------------------
 */

/* Bytes in use: of a device, or of this process where devices do not tell. */
static int64_t memory_in_use(const ttt_trainer *t)
{
    pjrt_device_memory memory;
    pjrt_status *st = pjrt_device_memory_stats(pjrt_client_device(t->devices->client, 0), &memory);
    bool told = st == NULL && memory.in_use > 0;
    pjrt_status_free(st);
    if (told)
        return memory.peak > memory.in_use ? memory.peak : memory.in_use;
    long long pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file != NULL) {
        if (fscanf(file, "%lld %lld", &pages, &resident) != 2)
            resident = 0;
        fclose(file);
    }
    return resident * sysconf(_SC_PAGESIZE);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_time(ttt_trainer *t)
{
    int64_t n = t->n_times < TTT__STEP_TIMES ? t->n_times : TTT__STEP_TIMES;
    if (n == 0)
        return NAN;
    qsort(t->times, (size_t)n, sizeof *t->times, compare);
    return t->times[n / 2];
}

/* Time since the last result goes to data as far as it was waited for, the rest is computing. */
static double lap(ttt_trainer *t)
{
    double now = ttt__seconds(), seconds = now - t->mark, waited = ttt_loader_waited(t->loader);
    double data = waited - t->waited < seconds ? waited - t->waited : seconds;
    t->now.data += data;
    t->now.compute += seconds - data;
    t->waited = waited;
    t->mark = now;
    return seconds;
}

static pjrt_status *record_step(ttt_trainer *t, const ttt_step_figures *f)
{
    ttt_goodput all = ttt__trainer_goodput(t);
    int64_t step = t->history.last;
    ttt__figure figures[] = {
        {.name = "loss", .value = f->loss},
        {.name = "grad_norm", .value = f->norm},
        {.name = "lr", .value = f->rate},
        {.name = "ms", .value = 1e3 * f->seconds},
        {.name = "tokens_per_second", .value = f->tokens_per_second},
        {.name = "mfu", .value = f->mfu},
        {.name = "memory", .value = (double)f->memory, .whole = true},
        {.name = "data_wait", .value = f->data_wait},
        {.name = "skipped", .value = (double)t->skipped, .whole = true},
        {.name = "tokens", .value = (double)(step * t->options.recipe.batch_tokens), .whole = true},
        {.name = "elapsed", .value = ttt_goodput_total(&all)},
    };
    PJRT_TRY(
        ttt__metrics_put(t->metrics, "train", step, figures, sizeof figures / sizeof *figures));
    ttt__trainer_emit(t, &(ttt_event){.kind = TTT_EVENT_STEP,
                                      .step = step,
                                      .steps = t->options.recipe.steps,
                                      .figures = f});
    return NULL;
}

/* ---- a step ------------------------------------------------------------------------------------
 */

static pjrt_status *read_figures(const ttt__pending *p, ttt_step_figures *f, ttt__wishes *decided)
{
    float values[3];
    ttt_array *const arrays[3] = {p->loss, p->norm, p->rate};
    uint8_t skipped;
    for (int i = 0; i < 3; i++)
        PJRT_TRY(ttt_array_download(arrays[i], &values[i], sizeof values[i]));
    PJRT_TRY(ttt_array_download(p->skipped, &skipped, sizeof skipped));
    if (p->votes != NULL)
        PJRT_TRY(ttt__stop_and_save_read(p->votes, decided));
    *f = (ttt_step_figures){
        .loss = values[0], .norm = values[1], .rate = values[2], .skipped = skipped != 0};
    return NULL;
}

static void forget_pending(ttt_trainer *t)
{
    ttt_array_free(t->pending.loss);
    ttt_array_free(t->pending.norm);
    ttt_array_free(t->pending.rate);
    ttt_array_free(t->pending.skipped);
    ttt_array_free(t->pending.votes);
    t->pending = (ttt__pending){0};
}

static pjrt_status *tell_skips(const ttt_trainer *t, const ttt_step_figures *f)
{
    if (f->skipped)
        ttt__trainer_note(t, "step %lld skipped: loss %g, gradient norm %g",
                          (long long)t->history.last, f->loss, f->norm);
    if (t->options.abort_after > 0 && t->in_a_row >= t->options.abort_after)
        return PJRT_FAIL(
            ABORTED, call,
            "%lld steps in a row were skipped, the last with loss %g and gradient norm "
            "%g: lower peak_lr, or go on from an earlier checkpoint with another seed",
            (long long)t->in_a_row, f->loss, f->norm);
    return NULL;
}

/* Waits for the queued step and tells of it. */
static pjrt_status *settle(ttt_trainer *t)
{
    ttt_step_figures f;
    if (t->pending.step == 0)
        return NULL;
    PJRT_TRY(read_figures(&t->pending, &f, &t->decided));
    forget_pending(t);
    f.seconds = lap(t);
    t->times[t->n_times++ % TTT__STEP_TIMES] = f.seconds;
    f.tokens_per_second = (double)t->options.recipe.batch_tokens / f.seconds;
    f.mfu = t->plan.peak > 0 ? f.tokens_per_second * t->plan.flops_per_token / t->plan.peak : NAN;
    f.data_wait = t->now.data / (t->now.data + t->now.compute);
    f.memory = memory_in_use(t);
    f.loss_z = ttt__loss_history_z(&t->history, t->history.last, TTT__LOSS, f.loss);
    f.norm_z = ttt__loss_history_z(&t->history, t->history.last, TTT__NORM, f.norm);
    ttt__loss_history_add(&t->history, (float)f.loss, (float)f.norm, f.skipped);
    t->last_loss = f.loss;
    t->skipped += f.skipped;
    t->in_a_row = f.skipped ? t->in_a_row + 1 : 0;
    PJRT_TRY(record_step(t, &f));
    return tell_skips(t, &f);
}

/* The new state takes the old one's place; what else came of the step is read later. */
static void take_results(ttt_trainer *t, ttt_array **results)
{
    for (int i = 0; i < t->state.n; i++) {
        ttt_array_free(t->state.arrays[i]);
        t->state.arrays[i] = results[i];
    }
    t->pending = (ttt__pending){.step = ++t->step,
                                .loss = results[t->at.loss],
                                .norm = results[t->at.norm],
                                .rate = results[t->at.rate],
                                .skipped = results[t->at.skipped]};
}

static pjrt_status *launch(ttt_trainer *t, const ttt__step_inputs *inputs)
{
    size_t room = (size_t)(t->at.n_arguments + t->at.n_results);
    ttt_array **args = calloc(room, sizeof(ttt_array *));
    if (args == NULL)
        return PJRT_NO_MEMORY(call);
    ttt_array **results = args + t->at.n_arguments;
    memcpy(args, t->state.arrays, (size_t)t->state.n * sizeof(ttt_array *));
    for (int i = 0; i < inputs->count; i++)
        args[inputs->places[i]] = inputs->list[i];
    pjrt_status *st = ttt_program_run(t->program, args, t->at.n_arguments, results);
    if (st == NULL)
        take_results(t, results);
    free(args);
    return st;
}

/* What this process wishes; when to save by the clock is the first one's to say. */
static pjrt_status *vote(ttt_trainer *t)
{
    ttt__wishes mine = {{0}};
    if (t->votes == NULL)
        return NULL;
    mine.of[TTT__AGREE_STOP] = told_to_stop(t);
    mine.of[TTT__AGREE_SAVE] = t->first && save_is_late(t);
    return ttt__stop_and_save_cast(t->votes, &mine, &t->pending.votes);
}

/* Queues a step, then reads the one before. */
static pjrt_status *one_step(ttt_trainer *t)
{
    ttt__step_inputs inputs;
    ttt__pending before;
    pjrt_status *st = ttt__trainer_inputs(t, &inputs);
    before = t->pending;
    if (st == NULL)
        st = launch(t, &inputs);
    ttt__step_inputs_free(&inputs);
    PJRT_TRY(st);
    t->position += t->plan.batch;
    st = vote(t);
    ttt__pending queued = t->pending;
    t->pending = before;
    if (st == NULL)
        st = settle(t);
    forget_pending(t); /* of a step that failed */
    t->pending = queued;
    return st;
}

/* ---- what interrupts ---------------------------------------------------------------------------
 */

enum { CHECKPOINT_PATH = sizeof((ttt_train_summary *)NULL)->checkpoint };

static void checkpoint_path(const ttt_trainer *t, int64_t step, char path[CHECKPOINT_PATH])
{
    snprintf(path, CHECKPOINT_PATH, "%s/step-%08lld", t->checkpoints, (long long)step);
}

static pjrt_status *report_saved(ttt_trainer *t, ttt__saved *saved)
{
    char path[CHECKPOINT_PATH];
    if (saved->trouble != NULL)
        ttt__trainer_note(t, "an old checkpoint was not removed: %s",
                          pjrt_status_message(saved->trouble));
    pjrt_status_free(saved->trouble);
    saved->trouble = NULL;
    checkpoint_path(t, saved->step, path);
    if (saved->failed == NULL) {
        t->saved_step = saved->step;
        ttt__trainer_emit(t, &(ttt_event){.kind = TTT_EVENT_SAVED,
                                          .step = saved->step,
                                          .steps = t->options.recipe.steps,
                                          .text = path,
                                          .seconds = saved->seconds,
                                          .stall_seconds = t->last_stall});
        ttt__figure figures[] = {{.name = "seconds", .value = saved->seconds},
                                 {.name = "stall_seconds", .value = t->last_stall}};
        return ttt__metrics_put(t->metrics, "checkpoint", saved->step, figures, 2);
    }
    ttt__trainer_note(t, "step %lld was not saved: %s", (long long)saved->step,
                      pjrt_status_message(saved->failed));
    return NULL;
}

/* Reports a finished checkpoint, if there is one. `*failed` receives the error of a checkpoint that
 * could not be written, else NULL; the caller frees it. */
static pjrt_status *collect_saved(ttt_trainer *t, bool wait, pjrt_status **failed)
{
    ttt__saved saved = {0};
    *failed = NULL;
    if (!ttt__saver_done(t->saver, wait, &saved))
        return NULL;
    *failed = saved.failed;
    return report_saved(t, &saved);
}

/* Training continues after a failed checkpoint; report_saved has emitted a note. */
static pjrt_status *poll_saver(ttt_trainer *t, bool wait)
{
    pjrt_status *failed;
    pjrt_status *st = collect_saved(t, wait, &failed);
    pjrt_status_free(failed);
    return st;
}

static pjrt_status *save(ttt_trainer *t)
{
    double start = ttt__seconds();
    PJRT_TRY(poll_saver(t, true));
    PJRT_TRY(ttt__metrics_sync(t->metrics));
    PJRT_TRY(ttt__saver_put(t->saver, &t->state, t->step, ttt__trainer_record(t)));
    t->decided.of[TTT__AGREE_SAVE] = 0;
    t->last_save = t->mark = ttt__seconds();
    t->last_stall = t->mark - start;
    t->now.save += t->last_stall;
    return NULL;
}

/* Means over time of the inner losses of each layer: [4, layers]. */
static void inner_means(const ttt_evaluation *e, float *means)
{
    for (int64_t i = 0; i < e->layers * 4; i++) {
        double sum = 0;
        for (int64_t k = 0; k < e->time; k++)
            sum += e->inner_loss[i * e->time + k];
        means[i % 4 * e->layers + i / 4] = (float)(sum / (double)e->time);
    }
}

static pjrt_status *record_evaluation(ttt_trainer *t, const ttt_evaluation *e, double seconds)
{
    static const char *const inner_names[] = {"inner_loss_w0", "inner_loss_mini_batch",
                                              "inner_loss_before", "inner_loss_after"};
    float *room = malloc((size_t)(e->time + 4 * e->layers) * sizeof *room);
    if (room == NULL)
        return PJRT_NO_MEMORY(call);
    float *means = room + e->time;
    for (int64_t i = 0; i < e->time; i++)
        room[i] = (float)e->by_position[i];
    inner_means(e, means);
    ttt__figure figures[16] = {
        {.name = "loss", .value = e->loss},
        {.name = "perplexity", .value = exp(e->loss)},
        {.name = "error", .value = e->error},
        {.name = "tokens", .value = (double)e->tokens, .whole = true},
        {.name = "seconds", .value = seconds},
        {.name = "loss_by_position", .list = room, .count = e->time},
    };
    int n = 6;
    for (int i = 0; i < 4 && e->layers > 0; i++)
        figures[n++] = (ttt__figure){
            .name = inner_names[i], .list = means + i * e->layers, .count = e->layers};
    pjrt_status *st = ttt__metrics_put(t->metrics, "eval", t->step, figures, n);
    free(room);
    return st;
}

static bool go_on(void *ctx, int64_t done, int64_t all)
{
    (void)done, (void)all;
    return !stopping(ctx);
}

static pjrt_status *evaluate(ttt_trainer *t)
{
    ttt_evaluation e;
    double start = ttt__seconds();
    PJRT_TRY(ttt_evaluator_run(t->evaluator, t->state.arrays, t->validation,
                               t->options.eval_sequences, go_on, t, &e));
    double seconds = ttt__seconds() - start;
    pjrt_status *st = NULL;
    if (!stopping(t)) { /* half of one would be another figure under the same name */
        st = record_evaluation(t, &e, seconds);
        ttt__trainer_emit(t, &(ttt_event){.kind = TTT_EVENT_EVALUATED,
                                          .step = t->step,
                                          .steps = t->options.recipe.steps,
                                          .evaluation = &e,
                                          .seconds = seconds});
    }
    ttt_evaluation_free(&e);
    t->mark = ttt__seconds();
    t->now.evaluate += t->mark - start;
    return st;
}

/* ---- the run -----------------------------------------------------------------------------------
 */

static bool save_is_due(const ttt_trainer *t)
{
    bool late = t->votes == NULL ? save_is_late(t) : t->decided.of[TTT__AGREE_SAVE] != 0;
    return late || (t->options.save_every > 0 && t->step % t->options.save_every == 0);
}

static bool evaluation_is_due(const ttt_trainer *t)
{
    return t->evaluator != NULL &&
           (t->step % t->options.eval_every == 0 || t->step == t->options.recipe.steps);
}

static pjrt_status *run(ttt_trainer *t)
{
    int64_t steps = t->options.recipe.steps;
    t->mark = ttt__seconds();
    if (t->step == 0 && t->evaluator != NULL && !stopping(t))
        PJRT_TRY(evaluate(t));
    while (t->step < steps && !stopping(t)) {
        PJRT_TRY(one_step(t));
        bool saves = save_is_due(t), evaluates = evaluation_is_due(t);
        if (saves || evaluates)
            PJRT_TRY(settle(t));
        if (evaluates)
            PJRT_TRY(evaluate(t));
        if (saves)
            PJRT_TRY(save(t));
        PJRT_TRY(poll_saver(t, false));
    }
    return settle(t);
}

/* Saves the steps since the last checkpoint and waits until they are on disk. */
static pjrt_status *finish(ttt_trainer *t)
{
    double start = ttt__seconds();
    pjrt_status *failed;
    PJRT_TRY(poll_saver(t, true));
    if (t->saved_step == t->step)
        return NULL;
    PJRT_TRY(save(t));
    pjrt_status *st = collect_saved(t, true, &failed);
    t->now.save += ttt__seconds() - start - t->last_stall;
    if (st != NULL) {
        pjrt_status_free(failed);
        return st;
    }
    if (failed == NULL && t->saved_step != t->step)
        return PJRT_FAIL(INTERNAL, call, "the checkpoint of step %lld was not written",
                         (long long)t->step);
    return failed;
}

static void summarize(ttt_trainer *t, ttt_train_summary *summary)
{
    *summary = (ttt_train_summary){.step = t->step,
                                   .steps = t->options.recipe.steps,
                                   .skipped = t->skipped,
                                   .stopped = stopping(t) && t->step < t->options.recipe.steps,
                                   .loss = t->last_loss,
                                   .goodput = ttt__trainer_goodput(t),
                                   .seconds = ttt__seconds() - t->begun,
                                   .step_seconds = median_time(t)};
    if (t->saved_step >= 0)
        checkpoint_path(t, t->saved_step, summary->checkpoint);
}

pjrt_status *ttt_trainer_run(ttt_trainer *trainer, ttt_train_summary *summary)
{
    *summary = (ttt_train_summary){.loss = NAN};
    if (trainer->options.dry)
        return PJRT_FAIL(FAILED_PRECONDITION, call, "this trainer only plans");
    pjrt_status *st = run(trainer);
    if (st == NULL)
        st = finish(trainer);
    pjrt_status *synced = ttt__metrics_sync(trainer->metrics);
    if (st == NULL)
        st = synced;
    else
        pjrt_status_free(synced);
    summarize(trainer, summary);
    return st;
}
