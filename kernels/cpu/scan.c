/* ttt_scan and its gradients: what they are given, read and checked; then every head of every
 * sequence by itself. */
#include "kernels/cpu/arrays.h"
#include "kernels/cpu/code.h"
#include "kernels/cpu/handlers.h"
#include "kernels/cpu/parallel.h"

#include <float.h>
#include <stdlib.h>

enum { GIVEN = 6 }; /* operands before the state */

typedef struct scan_call {
    scan_job job;
    int64_t batch;
    const cpu_code *code;
    float *scratch;
    size_t each;
} scan_call;

/* Either kind of array, from a place in a list. */
typedef ffi_array (*reader)(ffi_call *c, int64_t index, const char *name, int types, int rank,
                            int64_t *const *dims);

/* W1 (, W2), b1 (, b2) from place `at` on. */
static void read_state(ffi_call *c, scan_call *s, reader read, int64_t at, void *w[2], void *b[2])
{
    static const char *const weights[2] = {"W1", "W2"}, *const biases[2] = {"b1", "b2"};
    const learner_shape *l = &s->job.learner;
    for (int i = 0; i < l->layers; i++) {
        int64_t in = layer_in(l, i), out = layer_out(l, i), one = 1;
        w[i] = read(c, at + i, weights[i], FFI_F32, 4,
                    (int64_t *[]){&s->batch, &s->job.heads, &in, &out})
                   .data;
        b[i] = read(c, at + l->layers + i, biases[i], FFI_F32, 4,
                    (int64_t *[]){&s->batch, &s->job.heads, &one, &out})
                   .data;
    }
}

static void *read_tokens(ffi_call *c, scan_call *s, reader read, int64_t at, const char *name)
{
    scan_job *j = &s->job;
    int64_t *dims[5] = {&j->count, &s->batch, &j->heads, &j->size, &j->learner.d};
    return read(c, at, name, FFI_F32, 5, dims).data;
}

static void *read_eta(ffi_call *c, scan_call *s, reader read, int64_t at)
{
    scan_job *j = &s->job;
    int64_t *dims[5] = {&j->count, &s->batch, &j->heads, &j->size, &j->size};
    return read(c, at, "eta", FFI_F32, 5, dims).data;
}

static void *read_norm(ffi_call *c, scan_call *s, reader read, int64_t at, const char *name)
{
    return read(c, at, name, FFI_F32, 2, (int64_t *[]){&s->job.heads, &s->job.learner.d}).data;
}

/* Sizes that the code takes. */
static void check_sizes(ffi_call *c, scan_call *s)
{
    learner_shape *l = &s->job.learner;
    l->w = l->d;
    if (!c->failed && l->layers == 2) {
        l->w = -1;
        ffi_operand(c, GIVEN, "W1", FFI_F32, 4,
                    (int64_t *[]){&s->batch, &s->job.heads, &l->d, &l->w});
    }
    if (!c->failed && (l->d < 8 || l->d % 8 != 0 || l->w % 8 != 0))
        ffi_fail(c, XLA_FFI_Error_Code_UNIMPLEMENTED,
                 "heads of %lld lanes and a width of %lld: not multiples of 8", (long long)l->d,
                 (long long)l->w);
    if (!c->failed && s->job.size < 1)
        ffi_fail(c, XLA_FFI_Error_Code_INVALID_ARGUMENT, "mini-batches have no tokens");
}

/* What both handlers are given. */
static void read_given(ffi_call *c, scan_call *s)
{
    scan_job *j = &s->job;
    void *w[2] = {0}, *b[2] = {0};
    *s = (scan_call){.batch = -1};
    j->count = j->heads = j->size = j->learner.d = -1;
    j->group = 1;
    j->learner.layers = (int)ffi_int(c, "layers", 1, 2);
    j->learner.epsilon = ffi_float(c, "epsilon", 0, FLT_MAX);
    j->k = read_tokens(c, s, ffi_operand, 0, "k");
    j->target = read_tokens(c, s, ffi_operand, 1, "target");
    j->q = read_tokens(c, s, ffi_operand, 2, "q");
    j->eta = read_eta(c, s, ffi_operand, 3);
    j->scale = read_norm(c, s, ffi_operand, 4, "norm_scale");
    j->bias = read_norm(c, s, ffi_operand, 5, "norm_bias");
    check_sizes(c, s);
    read_state(c, s, ffi_operand, GIVEN, w, b);
    for (int i = 0; i < 2; i++) {
        j->w[i] = w[i];
        j->b[i] = b[i];
    }
    j->units = s->batch * j->heads;
}

static void one_unit(void *ctx, int64_t item, int worker)
{
    const scan_call *s = ctx;
    s->code->scan(&s->job, item, s->scratch + (size_t)worker * s->each);
}

static void one_unit_backward(void *ctx, int64_t item, int worker)
{
    const scan_call *s = ctx;
    s->code->scan_backward(&s->job, item, s->scratch + (size_t)worker * s->each);
}

static void run(ffi_call *c, scan_call *s, bool backward)
{
    int64_t units = s->job.units;
    int workers = parallel_workers(c, units);
    s->code = cpu_code_for(s->job.learner.d | s->job.learner.w);
    s->each = s->code->scan_scratch(&s->job, backward);
    s->scratch = arrays_scratch(c, workers, &s->each);
    if (c->failed)
        return;
    parallel_run(c, workers, units, backward ? one_unit_backward : one_unit, s);
    free(s->scratch);
}

XLA_FFI_Error *handle_scan(XLA_FFI_CallFrame *frame)
{
    ffi_call c;
    scan_call s;
    if (ffi_begin(&c, frame, "ttt_scan", false))
        return NULL;
    read_given(&c, &s);
    scan_job *j = &s.job;
    void *w[2] = {0}, *b[2] = {0};
    ffi_count(&c, GIVEN + 2 * j->learner.layers, 1 + 2 * j->learner.layers);
    j->answers = read_tokens(&c, &s, ffi_result, 0, "answers");
    read_state(&c, &s, ffi_result, 1, w, b);
    for (int i = 0; i < 2; i++) {
        j->w_end[i] = w[i];
        j->b_end[i] = b[i];
    }
    if (!c.failed)
        run(&c, &s, false);
    return ffi_end(&c);
}

/* [batch, heads, d] to [heads, d]. */
static void sum_over_batch(const scan_call *s, const float *from, float *to)
{
    int64_t row = s->job.heads * s->job.learner.d;
    memset(to, 0, (size_t)row * sizeof *to);
    for (int64_t i = 0; i < s->batch; i++) {
        for (int64_t l = 0; l < row; l++)
            to[l] += from[i * row + l];
    }
}

static void read_gradients(ffi_call *c, scan_call *s)
{
    scan_job *j = &s->job;
    int64_t layers = j->learner.layers, ends = GIVEN + 2 * layers;
    void *w[2] = {0}, *b[2] = {0};
    ffi_count(c, ends + 1 + 2 * layers, GIVEN + 2 * layers);
    j->group = ffi_int(c, "group", 1, INT64_MAX);
    if (j->group > j->count)
        j->group = j->count > 0 ? j->count : 1;
    j->d_answers = read_tokens(c, s, ffi_operand, ends, "the gradient of answers");
    read_state(c, s, ffi_operand, ends + 1, w, b);
    for (int i = 0; i < 2; i++) {
        j->d_w_end[i] = w[i];
        j->d_b_end[i] = b[i];
    }
    j->d_k = read_tokens(c, s, ffi_result, 0, "the gradient of k");
    j->d_target = read_tokens(c, s, ffi_result, 1, "the gradient of target");
    j->d_q = read_tokens(c, s, ffi_result, 2, "the gradient of q");
    j->d_eta = read_eta(c, s, ffi_result, 3);
    read_state(c, s, ffi_result, GIVEN, w, b);
    for (int i = 0; i < 2; i++) {
        j->d_w[i] = w[i];
        j->d_b[i] = b[i];
    }
}

XLA_FFI_Error *handle_scan_backward(XLA_FFI_CallFrame *frame)
{
    ffi_call c;
    scan_call s;
    if (ffi_begin(&c, frame, "ttt_scan_backward", false))
        return NULL;
    read_given(&c, &s);
    if (!c.failed)
        read_gradients(&c, &s);
    float *d_scale = read_norm(&c, &s, ffi_result, 4, "the gradient of norm_scale");
    float *d_bias = read_norm(&c, &s, ffi_result, 5, "the gradient of norm_bias");
    if (c.failed)
        return ffi_end(&c);
    size_t norms = (size_t)(2 * s.job.units * s.job.learner.d);
    float *sums = arrays_scratch(&c, 1, &norms);
    if (!c.failed) {
        s.job.d_scale = sums;
        s.job.d_bias = sums + s.job.units * s.job.learner.d;
        run(&c, &s, true);
    }
    if (!c.failed) {
        sum_over_batch(&s, s.job.d_scale, d_scale);
        sum_over_batch(&s, s.job.d_bias, d_bias);
    }
    free(sums);
    return ffi_end(&c);
}
