/*
 * ttt_step: against the learner in double precision over thousands of tokens, called directly; and
 * against the network's own form, both compiled and run by the CPU plugin.
 */
#include "kernels/cpu/code.h"
#include "tests/support/kernel_graphs.h"
#include "tests/support/kernels.h"
#include "tests/support/support.h"

#include <math.h>
#include <stdlib.h>

enum { MAX_STATE = STEP_MAX_STATE, GIVEN = STEP_GIVEN, MAX_BATCH = 4 };

typedef step_graph variant;

/* Everything ttt_step is given, and what it gives; bf16 activations beside the floats. */
typedef struct step_data {
    variant v;
    float *q, *k, *value, *gate, *moves, *scale, *bias, *z;
    uint16_t *q16, *k16, *value16, *z16;
    int32_t position[MAX_BATCH], place[MAX_BATCH];
    float *state[MAX_STATE];
    int64_t in[MAX_STATE], out[MAX_STATE];
    int n_state;
    uint64_t seed;
} step_data;

static float rounded(float x, uint16_t *bits)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    u = (u + 0x7fff + ((u >> 16) & 1)) & 0xffff0000u;
    *bits = (uint16_t)(u >> 16);
    memcpy(&x, &u, sizeof x);
    return x;
}

static void state_sizes(step_data *s)
{
    hlo_shape shapes[MAX_STATE];
    s->n_state = step_graph_state(&s->v, shapes);
    for (int i = 0; i < s->n_state; i++) {
        s->in[i] = shapes[i].dims[2];
        s->out[i] = shapes[i].dims[3];
    }
}

static step_data *data_new(variant v)
{
    step_data *s = calloc(1, sizeof *s);
    assert_non_null(s);
    int64_t n = v.batch * v.heads * v.d;
    *s = (step_data){.v = v, .seed = 7};
    float **arrays[] = {&s->q, &s->k, &s->value, &s->z};
    uint16_t **halves[] = {&s->q16, &s->k16, &s->value16, &s->z16};
    for (int i = 0; i < 4; i++) {
        *arrays[i] = kernels_floats(n);
        *halves[i] = (uint16_t *)kernels_floats(n);
    }
    s->gate = kernels_floats(v.batch * v.heads);
    s->moves = kernels_floats(v.mini > 0 ? v.mini : 1);
    for (int64_t i = 0; i < (v.mini > 0 ? v.mini : 1); i++)
        s->moves[i] = 1 / (float)(i + 1);
    s->scale = kernels_floats(v.heads * v.d);
    s->bias = kernels_floats(v.heads * v.d);
    kernels_numbers(s->scale, v.heads * v.d, 0.2f, &s->seed);
    kernels_numbers(s->bias, v.heads * v.d, 0.2f, &s->seed);
    for (int64_t i = 0; i < v.heads * v.d; i++)
        s->scale[i] += 1;
    state_sizes(s);
    for (int i = 0; i < s->n_state; i++) {
        int64_t all = v.batch * v.heads * s->in[i] * s->out[i];
        s->state[i] = kernels_floats(all);
        if (i < s->n_state / 2)
            kernels_numbers(s->state[i], all, 0.05f, &s->seed);
    }
    for (int64_t i = 0; i < v.batch; i++) { /* boundaries at different times */
        s->position[i] = (int32_t)(3 * i);
        s->place[i] = v.mini > 0 ? (int32_t)((3 * i) % v.mini) : s->position[i];
    }
    return s;
}

static void data_free(step_data *s)
{
    float *arrays[] = {s->q, s->k, s->value, s->z, s->gate, s->moves, s->scale, s->bias};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        free(arrays[i]);
    free(s->q16);
    free(s->k16);
    free(s->value16);
    free(s->z16);
    for (int i = 0; i < s->n_state; i++)
        free(s->state[i]);
    free(s);
}

static void next_token(step_data *s)
{
    int64_t n = s->v.batch * s->v.heads * s->v.d;
    float *arrays[3] = {s->q, s->k, s->value};
    uint16_t *halves[3] = {s->q16, s->k16, s->value16};
    for (int i = 0; i < 3; i++) {
        kernels_numbers(arrays[i], n, 1, &s->seed);
        for (int64_t j = 0; j < n && s->v.bf16; j++)
            arrays[i][j] = rounded(arrays[i][j], &halves[i][j]);
    }
    kernels_numbers(s->gate, s->v.batch * s->v.heads, 2, &s->seed);
}

static bool ends(const step_data *s, int64_t sequence)
{
    return s->v.mini > 0 && s->position[sequence] % s->v.mini == s->v.mini - 1;
}

/* After a token. In the last sequence a document starts now and then: its place begins anew in the
 * middle of a mini-batch, which ends where it would have. */
static void advance(step_data *s, int64_t t)
{
    for (int64_t i = 0; i < s->v.batch; i++) {
        bool last = ends(s, i);
        s->position[i]++;
        s->place[i] = last ? 0 : s->place[i] + 1;
        if (i == s->v.batch - 1 && t % 7 == 6)
            s->place[i] = 0;
    }
}

static kernels_call call_of(step_data *s)
{
    const variant *v = &s->v;
    int64_t b = v->batch, h = v->heads, d = v->d, moves = v->mini > 0 ? v->mini : 1;
    kernels_call c = {.target = "ttt_step", .n_in = GIVEN + s->n_state, .n_out = 1 + s->n_state};
    XLA_FFI_DataType act = v->bf16 ? XLA_FFI_DataType_BF16 : XLA_FFI_DataType_F32;
    void *heads[3] = {s->q, s->k, s->value}, *halves[3] = {s->q16, s->k16, s->value16};
    for (int i = 0; i < 3; i++)
        c.in[i] = (kernels_array){act, 3, {b, h, d}, v->bf16 ? halves[i] : heads[i]};
    c.in[3] = KERNELS_ARRAY(F32, s->gate, b, h);
    c.in[4] = KERNELS_ARRAY(S32, s->position, b);
    c.in[5] = KERNELS_ARRAY(S32, s->place, b);
    c.in[6] = KERNELS_ARRAY(F32, s->moves, moves);
    c.in[7] = KERNELS_ARRAY(F32, s->scale, h, d);
    c.in[8] = KERNELS_ARRAY(F32, s->bias, h, d);
    c.out[0] = (kernels_array){act, 2, {b, h * d}, v->bf16 ? (void *)s->z16 : (void *)s->z};
    for (int i = 0; i < s->n_state; i++) {
        c.in[GIVEN + i] = KERNELS_ARRAY(F32, s->state[i], b, h, s->in[i], s->out[i]);
        c.out[1 + i] = c.in[GIVEN + i];
    }
    const kernels_attr attrs[] = {KERNELS_INT("layers", v->layers),
                                  KERNELS_INT("mini_batch", v->mini),
                                  KERNELS_REAL("theta", v->theta), KERNELS_REAL("epsilon", 1e-6f),
                                  KERNELS_REAL("rate", 1.0f / (float)d)};
    memcpy(c.attrs, attrs, sizeof attrs);
    c.n_attrs = sizeof attrs / sizeof *attrs;
    return c;
}

/* ---- against double precision ------------------------------------------------------------------
 */

static double_learner *learner_at(const step_data *s, int64_t item)
{
    const variant *v = &s->v;
    double_learner *l = double_learner_new(v->layers, v->d, v->w, 1e-6);
    for (int64_t i = 0; i < v->d; i++) {
        l->scale[i] = s->scale[item % v->heads * v->d + i];
        l->bias[i] = s->bias[item % v->heads * v->d + i];
    }
    for (int i = 0; i < 2 * v->layers; i++) {
        double *to = i < v->layers ? l->weights[i] : l->biases[i - v->layers];
        int64_t n = s->in[i] * s->out[i];
        for (int64_t j = 0; j < n; j++)
            to[j] = s->state[i][item * n + j];
    }
    return l;
}

static void rotated(const variant *v, const float *x, int32_t place, double *y)
{
    for (int64_t i = 0; i < v->d; i += 2) {
        double angle = v->theta > 0 ? place * pow((double)v->theta, -(double)i / (double)v->d) : 0;
        y[i] = x[i] * cos(angle) - x[i + 1] * sin(angle);
        y[i + 1] = x[i + 1] * cos(angle) + x[i] * sin(angle);
    }
}

/* The largest distance of any answer of this token. */
static double token_distance(step_data *s, double_learner **learners)
{
    const variant *v = &s->v;
    double k[256], q[256], target[256], answer[256], worst = 0;
    for (int64_t item = 0; item < v->batch * v->heads; item++) {
        int64_t sequence = item / v->heads;
        rotated(v, s->k + item * v->d, s->place[sequence], k);
        rotated(v, s->q + item * v->d, s->place[sequence], q);
        for (int64_t i = 0; i < v->d; i++)
            target[i] = s->value[item * v->d + i] - k[i];
        double rate = 1.0 / (double)v->d / (1 + exp(-s->gate[item]));
        double move = s->moves[v->mini > 0 ? s->place[sequence] : 0];
        double_step(learners[item], k, q, target, rate, move, ends(s, sequence), answer);
        for (int64_t i = 0; i < v->d; i++) {
            float z = s->z[item * v->d + i];
            if (v->bf16) {
                uint32_t bits = (uint32_t)s->z16[item * v->d + i] << 16;
                memcpy(&z, &bits, sizeof z);
            }
            worst = fmax(worst, fabs(z - answer[i]));
        }
    }
    return worst;
}

static double run_against_double(variant v, int64_t tokens, int threads)
{
    step_data *s = data_new(v);
    double_learner *learners[16];
    double worst = 0;
    int64_t items = v.batch * v.heads;
    assert_in_range(items, 1, 16);
    for (int64_t i = 0; i < items; i++)
        learners[i] = learner_at(s, i);
    kernels_call c = call_of(s);
    c.threads = threads;
    for (int64_t t = 0; t < tokens; t++) {
        next_token(s);
        const char *error = kernels_run(&c);
        if (error != NULL)
            fail_msg("token %lld: %s", (long long)t, error);
        worst = fmax(worst, token_distance(s, learners));
        advance(s, t);
    }
    for (int64_t i = 0; i < items; i++)
        double_learner_free(learners[i]);
    data_free(s);
    return worst;
}

static void every_path(void (*check)(void))
{
    static const char *const paths[] = {"portable", "avx2", "avx512"};
    for (int i = 0; i < 3; i++) {
        if (cpu_code_force(paths[i]))
            check();
        else
            print_message("this processor does not run %s\n", paths[i]);
    }
    cpu_code_force(NULL);
}

static void check_sizes(void)
{
    static const struct {
        variant v;
        int64_t tokens;
        double near;
    } cases[] = {
        /* 9e-6 was seen for mini-batches of 5, else 4e-6; half a bf16 of 2 is 0.0078 */
        {{1, 2, 2, 64, 64, 16, 10000, false}, 1500, 1e-5},
        {{2, 1, 1, 64, 256, 16, 10000, false}, 300, 1e-5},
        {{1, 3, 1, 8, 8, 5, 10000, false}, 3000, 5e-5},
        {{2, 3, 2, 8, 32, 5, 10000, false}, 2000, 5e-5},
        {{1, 2, 1, 96, 96, 7, 0, false}, 200, 1e-5},
        {{2, 1, 1, 96, 384, 1, 500, false}, 20, 1e-5},
        {{1, 1, 2, 128, 128, 16, 10000, false}, 100, 1e-5},
        {{2, 1, 1, 128, 512, 16, 10000, false}, 20, 1e-5},
        {{2, 2, 1, 24, 40, 3, 10000, false}, 300, 1e-5}, /* any width, no vectors of 16 */
        {{1, 2, 1, 64, 64, 0, 10000, false}, 200, 1e-5}, /* a mini-batch without end */
        {{1, 2, 2, 64, 64, 16, 10000, true}, 300, 1e-2}, /* answers are rounded to bf16 */
        {{2, 2, 1, 16, 64, 16, 10000, true}, 300, 1e-2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double off = run_against_double(cases[i].v, cases[i].tokens, i % 2 == 0 ? 3 : 0);
        if (getenv("TTT_TEST_SHOW") != NULL)
            print_message("case %zu, %s: %g\n", i, cpu_code_for(64)->name, off);
        if (!(off < cases[i].near))
            fail_msg("case %zu, %s: %g from double precision", i, cpu_code_for(64)->name, off);
    }
}

static void steps_agree_with_double_precision(void **state)
{
    (void)state;
    every_path(check_sizes);
}

/* A result that does not alias its operand gets the state, and the operand keeps it. */
static void state_may_go_elsewhere(void **state)
{
    variant v = {1, 2, 2, 16, 16, 4, 100, false};
    step_data *s = data_new(v), *other = data_new(v);
    (void)state;
    next_token(s);
    next_token(other);
    int64_t n = v.batch * v.heads * v.d * v.d;
    float *before = kernels_floats(n);
    memcpy(before, s->state[0], (size_t)n * sizeof *before);
    s->position[0] = other->position[0] = 3;
    kernels_call c = call_of(s), alone = call_of(other);
    for (int i = 0; i < s->n_state; i++)
        c.out[1 + i].data = kernels_floats(v.batch * v.heads * s->in[i] * s->out[i]);
    assert_null(kernels_run(&c));
    assert_null(kernels_run(&alone));
    assert_memory_equal(before, s->state[0], (size_t)n * sizeof *before);
    for (int i = 0; i < s->n_state; i++) {
        size_t size = (size_t)(v.batch * v.heads * s->in[i] * s->out[i]) * sizeof(float);
        assert_memory_equal(c.out[1 + i].data, other->state[i], size);
        free(c.out[1 + i].data);
    }
    assert_memory_not_equal(before, other->state[0], (size_t)n * sizeof *before);
    free(before);
    data_free(s);
    data_free(other);
}

/* With one thread or many, with a pool or without, the bits are the same. */
static void threads_change_nothing(void **state)
{
    variant v = {2, 4, 3, 16, 64, 4, 100, false};
    (void)state;
    float *first = NULL;
    static const int pools[] = {0, -1, 1, 2, 7};
    for (int i = 0; i < 5; i++) {
        step_data *s = data_new(v);
        kernels_call c = call_of(s);
        int64_t n = v.batch * v.heads * v.d * v.w;
        c.threads = pools[i];
        for (int64_t t = 0; t < 9; t++) {
            next_token(s);
            assert_null(kernels_run(&c));
            advance(s, t);
        }
        if (first == NULL) {
            first = kernels_floats(n);
            memcpy(first, s->state[0], (size_t)n * sizeof *first);
        }
        assert_memory_equal(first, s->state[0], (size_t)n * sizeof *first);
        data_free(s);
    }
    free(first);
}

/* ---- what is refused ---------------------------------------------------------------------------
 */

static void assert_refused(const kernels_call *c, const char *part)
{
    const char *error = kernels_run(c);
    if (error == NULL)
        fail_msg("accepted, though: %s", part);
    ASSERT_CONTAINS(error, part);
}

static void wrong_calls_are_refused(void **state)
{
    step_data *s = data_new((variant){2, 2, 3, 16, 64, 4, 100, false});
    const kernels_call good = call_of(s);
    kernels_call c;
    (void)state;
    next_token(s);
    assert_null(kernels_run(&good));
    c = good, c.n_in--;
    assert_refused(&c, "ttt_step: takes 17 operands and gives 9 results, not 16 and 9");
    c = good, c.n_in = 2;
    assert_refused(&c, "operand 2, v, is no array");
    c = good, c.in[1].rank = 2;
    assert_refused(&c, "k has to be [2, 3, 16], not [2, 3]");
    c = good, c.in[2].dims[2] = 8;
    assert_refused(&c, "v has to be [2, 3, 16], not [2, 3, 8]");
    c = good, c.in[3].type = XLA_FFI_DataType_BF16;
    assert_refused(&c, "gate has to be f32");
    c = good, c.in[1].type = XLA_FFI_DataType_BF16;
    assert_refused(&c, "k has to be f32");
    c = good, c.in[0].type = XLA_FFI_DataType_F64;
    assert_refused(&c, "q has to be f32 or bf16");
    c = good, c.in[4].type = XLA_FFI_DataType_S64;
    assert_refused(&c, "position has to be s32");
    c = good, c.in[6].dims[0] = 5;
    assert_refused(&c, "moves has to be [4] for mini-batches of 4, not [5]");
    c = good, c.in[GIVEN + 1].dims[2] = 65;
    assert_refused(&c, "W2 has to be [2, 3, 64, 16], not [2, 3, 65, 16]");
    c = good, c.out[0].dims[1] = 47;
    assert_refused(&c, "z has to be [2, 48], not [2, 47]");
    c = good, c.out[2].dims[3] = 1;
    assert_refused(&c, "W2 has to be");
    c = good, c.attrs[0].integer = 3;
    assert_refused(&c, "attribute layers has to be from 1 to 2, not 3");
    c = good, c.attrs[1].integer = -1;
    assert_refused(&c, "attribute mini_batch has to be from 0");
    c = good, c.attrs[2].real = NAN;
    assert_refused(&c, "attribute theta has to be from 0");
    c = good, c.attrs[3].type = XLA_FFI_DataType_S64;
    assert_refused(&c, "attribute epsilon has to be of type f32");
    c = good, c.n_attrs = 4;
    assert_refused(&c, "attribute rate (f32) is missing");
    data_free(s);
    s = data_new((variant){1, 1, 1, 12, 12, 4, 100, false});
    c = call_of(s);
    assert_refused(&c, "heads of 12 lanes: no multiple of 8");
    data_free(s);
}

/* A place beyond moves is the nearest, as the network's own gather has it; memory stays whole. */
static void places_are_clamped(void **state)
{
    step_data *s = data_new((variant){1, 3, 1, 8, 8, 4, 0, false});
    kernels_call c = call_of(s);
    (void)state;
    next_token(s);
    s->place[0] = -5;
    s->place[1] = 2000000000;
    s->place[2] = 3;
    for (int64_t i = 0; i < 8; i++) { /* the same token for the last two */
        s->q[16 + i] = s->q[8 + i];
        s->k[16 + i] = s->k[8 + i];
        s->value[16 + i] = s->value[8 + i];
    }
    s->gate[2] = s->gate[1];
    for (int i = 0; i < s->n_state; i++) {
        int64_t n = s->in[i] * s->out[i];
        memcpy(s->state[i] + 2 * n, s->state[i] + n, (size_t)n * sizeof(float));
    }
    assert_null(kernels_run(&c));
    assert_memory_equal(s->z + 16, s->z + 8, 8 * sizeof(float));
    data_free(s);
}

/* ---- against the network's form, through the plugin ---------------------------------------------
 */

static pjrt_executable *compiled(pjrt_client *client, const step_data *s, bool kernels)
{
    hlo_graph *g = hlo_graph_new("step");
    step_graph_build(g, &s->v, kernels);
    char *text = hlo_write_text(g, NULL);
    if (text == NULL)
        fail_msg("%s", hlo_graph_error(g)->message);
    pjrt_executable *exe;
    ASSERT_OK(pjrt_compile(client, pjrt_program_text(text), NULL, &exe));
    free(text);
    hlo_graph_free(g);
    return exe;
}

static pjrt_buffer *sent(pjrt_client *client, const kernels_array *a)
{
    pjrt_buffer *made;
    pjrt_type type = a->type == XLA_FFI_DataType_F32
                         ? PJRT_F32
                         : (a->type == XLA_FFI_DataType_BF16 ? PJRT_BF16 : PJRT_S32);
    ASSERT_OK(pjrt_buffer_from_host(pjrt_client_device(client, 0), type, a->dims, (int)a->rank,
                                    a->data, NULL, NULL, &made));
    return made;
}

/* One token; the state is given and comes back. z goes to the host, as floats. */
static void plugin_step(pjrt_client *client, pjrt_executable *exe, step_data *s,
                        pjrt_buffer **state, float *z)
{
    kernels_call c = call_of(s);
    pjrt_buffer *in[GIVEN + MAX_STATE], *out[1 + MAX_STATE];
    for (int i = 0; i < GIVEN; i++)
        in[i] = sent(client, &c.in[i]);
    memcpy(in + GIVEN, state, (size_t)s->n_state * sizeof *state);
    ASSERT_OK(pjrt_execute(exe, in, (size_t)(GIVEN + s->n_state), NULL, out,
                           (size_t)(1 + s->n_state), NULL));
    int64_t n = s->v.batch * s->v.heads * s->v.d;
    if (s->v.bf16) {
        ASSERT_OK(pjrt_buffer_to_host(out[0], s->z16, (size_t)n * 2, NULL));
        for (int64_t i = 0; i < n; i++) {
            uint32_t bits = (uint32_t)s->z16[i] << 16;
            memcpy(&z[i], &bits, sizeof *z);
        }
    } else {
        ASSERT_OK(pjrt_buffer_to_host(out[0], z, (size_t)n * sizeof *z, NULL));
    }
    for (int i = 0; i < GIVEN + s->n_state; i++)
        pjrt_buffer_free(in[i]);
    pjrt_buffer_free(out[0]);
    memcpy(state, out + 1, (size_t)s->n_state * sizeof *state);
}

static double plugin_distance(pjrt_client *client, variant v, int64_t tokens)
{
    step_data *s = data_new(v);
    pjrt_executable *exe[2] = {compiled(client, s, true), compiled(client, s, false)};
    pjrt_buffer *state[2][MAX_STATE];
    kernels_call c = call_of(s);
    int64_t n = v.batch * v.heads * v.d;
    float *z[2] = {kernels_floats(n), kernels_floats(n)};
    double worst = 0;
    for (int i = 0; i < s->n_state; i++) {
        state[0][i] = sent(client, &c.in[GIVEN + i]);
        state[1][i] = sent(client, &c.in[GIVEN + i]);
    }
    for (int64_t t = 0; t < tokens; t++) {
        next_token(s);
        for (int i = 0; i < 2; i++)
            plugin_step(client, exe[i], s, state[i], z[i]);
        for (int64_t i = 0; i < n; i++)
            worst = fmax(worst, fabsf(z[0][i] - z[1][i]));
        advance(s, t);
    }
    int64_t taken, refused;
    pjrt_executable_donations(exe[0], &taken, &refused);
    assert_int_equal(taken, tokens * s->n_state); /* in place */
    for (int i = 0; i < 2; i++) {
        for (int j = 0; j < s->n_state; j++)
            pjrt_buffer_free(state[i][j]);
        pjrt_executable_free(exe[i]);
        free(z[i]);
    }
    data_free(s);
    return worst;
}

static void steps_agree_with_the_network(void **state)
{
    static const struct {
        variant v;
        int64_t tokens;
        double near;
    } cases[] = {
        /* 2.3e-6 was seen; in bf16 0.0156, the distance of two neighbours above 2 */
        {{1, 2, 2, 64, 64, 16, 10000, false}, 100, 1e-5},
        {{2, 2, 2, 64, 256, 16, 10000, false}, 60, 1e-5},
        {{1, 1, 2, 96, 96, 5, 10000, false}, 30, 1e-5},
        {{2, 1, 1, 128, 512, 3, 0, false}, 20, 1e-5},
        {{1, 2, 2, 64, 64, 16, 10000, true}, 40, 3.2e-2},
    };
    pjrt_plugin *plugin;
    pjrt_client *client;
    (void)state;
    ASSERT_OK(pjrt_plugin_load("cpu", &plugin));
    ASSERT_OK(kernel_graphs_register(plugin));
    ASSERT_OK(pjrt_client_create(plugin, NULL, &client));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double off = plugin_distance(client, cases[i].v, cases[i].tokens);
        if (getenv("TTT_TEST_SHOW") != NULL)
            print_message("case %zu: %g from the network\n", i, off);
        if (!(off < cases[i].near))
            fail_msg("case %zu: %g from the network", i, off);
    }
    pjrt_client_free(client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_agree_with_double_precision),
        cmocka_unit_test(state_may_go_elsewhere),
        cmocka_unit_test(threads_change_nothing),
        cmocka_unit_test(wrong_calls_are_refused),
        cmocka_unit_test(places_are_clamped),
        cmocka_unit_test(steps_agree_with_the_network),
    };
#if defined(__SANITIZE_THREAD__) /* the plugin's library is not built for it */
    size_t count = sizeof tests / sizeof *tests - 1;
#else
    size_t count = sizeof tests / sizeof *tests;
#endif
    return _cmocka_run_group_tests("kernels_step", tests, count, NULL, NULL);
}
