/* ttt_step: what it is given, read and checked; then every head of every sequence by itself. */
#include "kernels/cpu/arrays.h"
#include "kernels/cpu/code.h"
#include "kernels/cpu/handlers.h"
#include "kernels/cpu/parallel.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

enum { GIVEN = 9, MAX_STATE = 8 }; /* operands before the state; arrays of the state */

typedef struct step_call {
    learner_shape learner;
    int64_t batch, heads, mini_batch, n_moves;
    float theta, rate;
    ffi_array q, k, v, z;
    const float *gate, *moves, *scale, *bias;
    const int32_t *position, *place;
    const float *from[MAX_STATE]; /* the state as it came, and where it goes: mostly the same */
    float *state[MAX_STATE];
    int64_t sizes[MAX_STATE]; /* of one head */
    int n_state;
    const cpu_code *code;
    float *scratch, *turns; /* turns: cosine and sine of each pair, [batch, d / 2, 2] */
    size_t each;
} step_call;

size_t step_scratch(const learner_shape *l)
{
    return (size_t)(l->layers == 1 ? 6 * l->d : 6 * l->w + 4 * l->d);
}

/* Weights, biases, then the sums of both: operands GIVEN … and results 1 …. */
static void read_state(ffi_call *c, step_call *s)
{
    static const char *const names[2][MAX_STATE] = {
        {"W1", "b1", "W1_sum", "b1_sum"},
        {"W1", "W2", "b1", "b2", "W1_sum", "W2_sum", "b1_sum", "b2_sum"}};
    int layers = s->learner.layers;
    s->n_state = 4 * layers;
    ffi_count(c, GIVEN + s->n_state, 1 + s->n_state);
    for (int i = 0; i < s->n_state; i++) {
        int layer = i % layers;
        bool bias = i / layers % 2 == 1;
        int64_t in = bias ? 1 : layer_in(&s->learner, layer), out = layer_out(&s->learner, layer);
        int64_t *dims[4] = {&s->batch, &s->heads, &in, &out};
        const char *name = names[layers - 1][i];
        s->from[i] = ffi_operand(c, GIVEN + i, name, FFI_F32, 4, dims).data;
        s->state[i] = ffi_result(c, 1 + i, name, FFI_F32, 4, dims).data;
        s->sizes[i] = in * out;
    }
}

/* The width between two layers is free, but for vectors. */
static void read_width(ffi_call *c, step_call *s)
{
    s->learner.w = s->learner.d;
    if (s->learner.layers == 1)
        return;
    s->learner.w = -1;
    ffi_operand(c, GIVEN, "W1", FFI_F32, 4,
                (int64_t *[]){&s->batch, &s->heads, &s->learner.d, &s->learner.w});
    if (s->learner.w % 8 != 0)
        ffi_fail(c, XLA_FFI_Error_Code_UNIMPLEMENTED, "a width of %lld is no multiple of 8",
                 (long long)s->learner.w);
}

static void read_call(ffi_call *c, step_call *s)
{
    *s = (step_call){.batch = -1, .heads = -1, .n_moves = -1};
    s->learner.layers = (int)ffi_int(c, "layers", 1, 2);
    s->mini_batch = ffi_int(c, "mini_batch", 0, INT32_MAX);
    s->theta = ffi_float(c, "theta", 0, FLT_MAX);
    s->rate = ffi_float(c, "rate", -FLT_MAX, FLT_MAX);
    s->learner.epsilon = ffi_float(c, "epsilon", 0, FLT_MAX);
    int64_t d = -1;
    int64_t *heads[3] = {&s->batch, &s->heads, &d}, *norm[2] = {&s->heads, &d};
    s->q = ffi_operand(c, 0, "q", FFI_ACT, 3, heads);
    s->k = ffi_operand(c, 1, "k", (int)s->q.type, 3, heads);
    s->v = ffi_operand(c, 2, "v", (int)s->q.type, 3, heads);
    s->gate = ffi_operand(c, 3, "gate", FFI_F32, 2, heads).data;
    s->position = ffi_operand(c, 4, "position", FFI_S32, 1, heads).data;
    s->place = ffi_operand(c, 5, "place", FFI_S32, 1, heads).data;
    s->moves = ffi_operand(c, 6, "moves", FFI_F32, 1, (int64_t *[]){&s->n_moves}).data;
    s->scale = ffi_operand(c, 7, "norm_scale", FFI_F32, 2, norm).data;
    s->bias = ffi_operand(c, 8, "norm_bias", FFI_F32, 2, norm).data;
    if (!c->failed && (d < 8 || d % 8 != 0))
        ffi_fail(c, XLA_FFI_Error_Code_UNIMPLEMENTED, "heads of %lld lanes: no multiple of 8",
                 (long long)d);
    int64_t expected = s->mini_batch > 0 ? s->mini_batch : 1;
    if (!c->failed && s->n_moves != expected)
        ffi_fail(c, XLA_FFI_Error_Code_INVALID_ARGUMENT,
                 "moves has to be [%lld] for mini-batches of %lld, not [%lld]", (long long)expected,
                 (long long)s->mini_batch, (long long)s->n_moves);
    s->learner.d = d;
    int64_t width = s->heads * d;
    s->z = ffi_result(c, 0, "z", (int)s->q.type, 2, (int64_t *[]){&s->batch, &width});
    if (c->failed)
        return;
    read_width(c, s);
    read_state(c, s);
}

/* Angles are the same for all heads of a sequence. */
static void find_turns(const step_call *s)
{
    int64_t pairs = s->learner.d / 2;
    for (int64_t i = 0; i < pairs; i++) {
        float slower = powf(s->theta, -2.0f * (float)i / (float)s->learner.d);
        for (int64_t b = 0; b < s->batch; b++) {
            float angle = (float)s->place[b] * slower;
            float *turn = s->turns + 2 * (b * pairs + i);
            sincosf(angle, &turn[1], &turn[0]);
        }
    }
}

static void rotate(int64_t d, const float *turns, float *x)
{
    for (int64_t i = 0; i < d; i += 2) {
        float cosine = turns[i], sine = turns[i + 1], a = x[i], b = x[i + 1];
        x[i] = a * cosine - b * sine;
        x[i + 1] = b * cosine + a * sine;
    }
}

/* The network's own answer to a place that is none: the nearest. */
static float move_at(const step_call *s, int64_t sequence)
{
    int64_t place = s->mini_batch > 0 ? s->place[sequence] : 0;
    return s->moves[place < 0 ? 0 : (place < s->n_moves ? place : s->n_moves - 1)];
}

static void one_head(void *ctx, int64_t item, int worker)
{
    const step_call *s = ctx;
    int64_t d = s->learner.d, sequence = item / s->heads, head = item % s->heads;
    int layers = s->learner.layers;
    float *memory = s->scratch + (size_t)worker * s->each, *target = memory + 2 * d;
    step_head t = {.learner = s->learner,
                   .scale = s->scale + head * d,
                   .bias = s->bias + head * d,
                   .kq = memory,
                   .target = target,
                   .rate = s->rate / (1 + expf(-s->gate[item])),
                   .move = move_at(s, sequence),
                   .answer = memory + 3 * d,
                   .scratch = memory + 4 * d};
    if (s->mini_batch > 0)
        t.last = s->position[sequence] % s->mini_batch == s->mini_batch - 1;
    float **parts[4] = {t.w, t.b, t.w_sum, t.b_sum};
    for (int i = 0; i < s->n_state; i++) {
        float *here = s->state[i] + item * s->sizes[i];
        if (s->from[i] != s->state[i])
            memcpy(here, s->from[i] + item * s->sizes[i], (size_t)s->sizes[i] * sizeof *here);
        parts[i / layers][i % layers] = here;
    }
    arrays_read(s->k, item * d, d, t.kq);
    arrays_read(s->q, item * d, d, t.kq + d);
    arrays_read(s->v, item * d, d, target);
    if (s->theta > 0) {
        rotate(d, s->turns + sequence * d, t.kq);
        rotate(d, s->turns + sequence * d, t.kq + d);
    }
    for (int64_t i = 0; i < d; i++)
        target[i] -= t.kq[i];
    s->code->step(&t);
    arrays_write(t.answer, d, s->z, item * d);
}

XLA_FFI_Error *handle_step(XLA_FFI_CallFrame *frame)
{
    ffi_call c;
    step_call s;
    if (ffi_begin(&c, frame, "ttt_step", false))
        return NULL;
    read_call(&c, &s);
    if (c.failed)
        return ffi_end(&c);
    int64_t items = s.batch * s.heads;
    int workers = parallel_workers(&c, items);
    s.code = cpu_code_for(s.learner.d | s.learner.w);
    s.each = 4 * (size_t)s.learner.d + step_scratch(&s.learner);
    size_t turns = (size_t)(s.batch * s.learner.d);
    s.turns = arrays_scratch(&c, 1, &turns);
    if (!c.failed)
        s.scratch = arrays_scratch(&c, workers, &s.each);
    if (!c.failed) {
        if (s.theta > 0)
            find_turns(&s);
        parallel_run(&c, workers, items, one_head, &s);
    }
    free(s.turns);
    free(s.scratch);
    return ffi_end(&c);
}
