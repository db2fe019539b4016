/* Tests of reading and making tokens, and of keeping states. */
#include "tools/bench/speed_test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- measuring ---- */

typedef struct measuring {
    const speed_tests *options;
    const cmd_common *common;
    generator model;
    int64_t batch;
    ttt_state *fresh, *deep; /* at 0, and at the depth of the test */
    char path[64];           /* of a state's file */
    speed_row *rows;
    int n_rows;
    int32_t *tokens;
    float *logits;
} measuring;

typedef pjrt_status *(*speed_body)(measuring *b, int64_t tokens);

static pjrt_status *body_read(measuring *b, int64_t tokens)
{
    return ttt_engine_feed(b->model.engine, 0, b->tokens, tokens, b->logits);
}

static pjrt_status *body_make(measuring *b, int64_t tokens)
{
    for (int64_t i = 0; i < tokens; i++)
        PJRT_TRY(ttt_engine_step(b->model.engine, b->tokens + i, b->logits));
    return NULL;
}

static pjrt_status *body_save(measuring *b, int64_t tokens)
{
    ttt_state *state;
    (void)tokens;
    PJRT_TRY(ttt_engine_take(b->model.engine, 0, &state));
    pjrt_status *st = ttt_state_write(state, b->path);
    ttt_state_free(state);
    return st;
}

static pjrt_status *body_restore(measuring *b, int64_t tokens)
{
    ttt_state *state;
    (void)tokens;
    PJRT_TRY(ttt_state_read(b->path, &state));
    pjrt_status *st = ttt_engine_put(b->model.engine, 0, state);
    ttt_state_free(state);
    return st;
}

/* Runs a body from the state at its depth, once to warm up and then for the count. Rates are over
 * `tokens`, of all sequences; with 0 it is seconds. */
static pjrt_status *measure(measuring *b, speed_row row, speed_body body, int64_t each)
{
    int n = b->options->repetitions;
    double sum = 0, squares = 0;
    for (int i = -1; i < n; i++) {
        for (int64_t slot = 0; slot < b->batch; slot++)
            PJRT_TRY(ttt_engine_put(b->model.engine, slot, b->deep));
        double start = cmd_seconds();
        PJRT_TRY(body(b, each));
        double seconds = cmd_seconds() - start;
        double value = row.tokens == 0 ? seconds : (double)row.tokens / seconds;
        sum += i < 0 ? 0 : value;
        squares += i < 0 ? 0 : value * value;
    }
    double mean = sum / n, variance = n < 2 ? 0 : (squares - n * mean * mean) / (n - 1);
    row.mean = mean;
    row.deviation = variance > 0 ? sqrt(variance) : 0;
    b->rows[b->n_rows++] = row;
    return NULL;
}

/* ---- the tests ---- */

static pjrt_status *at_depth(measuring *b, int64_t wanted)
{
    const ttt_config *c = ttt_engine_config(b->model.engine);
    int64_t mini = ttt_mixer_learns(c->mixer) && c->mini_batch_size > 0 ? c->mini_batch_size : 1;
    int64_t depth = wanted / mini * mini;
    const speed_tests *o = b->options;
    ttt_state_free(b->deep);
    b->deep = NULL;
    PJRT_TRY(ttt_state_moved(b->fresh, depth, &b->deep));
    for (int64_t i = 0; i < o->prompts.count && b->batch == o->batches.list[0]; i++)
        PJRT_TRY(measure(
            b,
            (speed_row){.test = "read", .batch = 1, .tokens = o->prompts.list[i], .depth = depth},
            body_read, o->prompts.list[i]));
    PJRT_TRY(measure(
        b,
        (speed_row){
            .test = "make", .batch = b->batch, .tokens = o->generate * b->batch, .depth = depth},
        body_make, o->generate));
    if (b->batch != o->batches.list[0])
        return NULL;
    speed_row row = {.batch = 1, .depth = depth, .bytes = ttt_state_info(b->deep)->bytes};
    row.test = "save";
    PJRT_TRY(measure(b, row, body_save, 0));
    row.test = "restore";
    return measure(b, row, body_restore, 0);
}

static int64_t largest(const int_list *list)
{
    int64_t most = 0;
    for (int64_t i = 0; i < list->count; i++)
        most = list->list[i] > most ? list->list[i] : most;
    return most;
}

/* Tokens that any test gives, all in the vocabulary. */
static pjrt_status *make_room(measuring *b)
{
    const speed_tests *o = b->options;
    int64_t vocab = ttt_engine_config(b->model.engine)->vocab_size, batch = largest(&o->batches);
    int64_t count = largest(&o->prompts) + o->generate + batch;
    if (b->tokens != NULL)
        return NULL;
    b->tokens = malloc((size_t)count * sizeof *b->tokens);
    b->logits = malloc((size_t)(batch * vocab) * sizeof *b->logits);
    b->rows = calloc((size_t)(o->depths.count * (o->prompts.count + o->batches.count + 2)),
                     sizeof *b->rows);
    if (b->tokens == NULL || b->logits == NULL || b->rows == NULL)
        return PJRT_NO_MEMORY("ttt");
    for (int64_t i = 0; i < count; i++)
        b->tokens[i] = (int32_t)(i * 7919 % vocab);
    return NULL;
}

static pjrt_status *one_batch(measuring *b, int64_t batch)
{
    const speed_tests *o = b->options;
    int64_t most = largest(&o->prompts);
    int64_t context = largest(&o->depths) + (most > o->generate ? most : o->generate);
    b->batch = batch;
    PJRT_TRY(generator_open(&b->model, b->common, &o->engine, batch, context));
    PJRT_TRY(make_room(b));
    PJRT_TRY(ttt_engine_take(b->model.engine, 0, &b->fresh));
    for (int64_t i = 0; i < o->depths.count; i++)
        PJRT_TRY(at_depth(b, o->depths.list[i]));
    return NULL;
}

static pjrt_status *measure_all(measuring *b)
{
    const char *folder = getenv("TMPDIR");
    int size = snprintf(b->path, sizeof b->path, "%s/ttt-speed.%ld.state",
                        folder == NULL ? "/tmp" : folder, (long)getpid());
    if (size >= (int)sizeof b->path)
        return PJRT_FAIL(INVALID_ARGUMENT, "ttt", "the path in TMPDIR is too long");
    pjrt_status *st = NULL;
    for (int64_t i = 0; i < b->options->batches.count && st == NULL; i++) {
        st = one_batch(b, b->options->batches.list[i]);
        ttt_state_free(b->fresh);
        ttt_state_free(b->deep);
        b->fresh = b->deep = NULL;
        generator_free(&b->model);
    }
    unlink(b->path);
    return st;
}

pjrt_status *speed_run(const speed_tests *tests, const cmd_common *common, speed_row **rows,
                       int *count)
{
    measuring b = {.options = tests, .common = common};
    pjrt_status *st = measure_all(&b);
    free(b.tokens);
    free(b.logits);
    if (st != NULL) {
        free(b.rows);
        b.rows = NULL;
    }
    *rows = b.rows;
    *count = b.n_rows;
    return st;
}
