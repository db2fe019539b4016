#include "tests/support/kernels.h"
#include "tests/support/support.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- XLA's side --------------------------------------------------------------------------------
 */

struct XLA_FFI_Error {
    char message[512];
};

/* Every task has a thread of its own, which the end of the call waits for. */
struct XLA_FFI_ExecutionContext {
    int64_t threads;
    pthread_t started[64];
    atomic_int n_started;
};

static XLA_FFI_Error *error_create(XLA_FFI_Error_Create_Args *args)
{
    XLA_FFI_Error *made = malloc(sizeof *made);
    if (made != NULL)
        snprintf(made->message, sizeof made->message, "%d: %s", (int)args->errc, args->message);
    return made;
}

static void error_destroy(XLA_FFI_Error_Destroy_Args *args)
{
    free(args->error);
}

static XLA_FFI_Error *no_pool(void)
{
    XLA_FFI_Error_Create_Args args = {.message = "there is no pool"};
    return error_create(&args);
}

typedef struct errand {
    XLA_FFI_Task *task;
    void *data;
} errand;

static void *run_errand(void *data)
{
    errand mine = *(errand *)data;
    free(data);
    mine.task(mine.data);
    return NULL;
}

static XLA_FFI_Error *schedule(XLA_FFI_ThreadPool_Schedule_Args *args)
{
    errand *made = malloc(sizeof *made);
    if (args->ctx->threads == 0 || made == NULL || args->ctx->n_started == 64) {
        free(made);
        return no_pool();
    }
    *made = (errand){args->task, args->data};
    if (pthread_create(&args->ctx->started[args->ctx->n_started], NULL, run_errand, made) != 0) {
        free(made);
        return no_pool();
    }
    args->ctx->n_started++;
    return NULL;
}

static XLA_FFI_Error *num_threads(XLA_FFI_ThreadPool_NumThreads_Args *args)
{
    if (args->ctx->threads == 0)
        return no_pool();
    *args->num_threads = args->ctx->threads;
    return NULL;
}

XLA_FFI_Handler *kernels_handler(const char *target)
{
    size_t count;
    const ttt_kernel *list = ttt_kernels_cpu(&count);
    for (size_t i = 0; i < count; i++) {
        XLA_FFI_Handler *handler;
        memcpy(&handler, &list[i].handler, sizeof handler);
        if (strcmp(list[i].target, target) == 0)
            return handler;
    }
    fail_msg("there is no kernel %s", target);
    return NULL;
}

/* A side of the call as XLA has it: buffers, kinds, pointers. */
typedef struct side {
    XLA_FFI_Buffer buffers[KERNELS_MAX];
    void *pointers[KERNELS_MAX];
    XLA_FFI_ArgType arg_types[KERNELS_MAX];
    XLA_FFI_RetType ret_types[KERNELS_MAX];
} side;

static void fill_side(side *s, const kernels_array *arrays, int n)
{
    for (int i = 0; i < n; i++) {
        s->buffers[i] = (XLA_FFI_Buffer){.struct_size = XLA_FFI_Buffer_STRUCT_SIZE,
                                         .dtype = arrays[i].type,
                                         .data = arrays[i].data,
                                         .rank = arrays[i].rank,
                                         .dims = (int64_t *)arrays[i].dims};
        s->pointers[i] = &s->buffers[i];
        s->arg_types[i] = XLA_FFI_ArgType_BUFFER;
        s->ret_types[i] = XLA_FFI_RetType_BUFFER;
    }
}

typedef struct attr_side {
    XLA_FFI_AttrType types[KERNELS_MAX];
    XLA_FFI_ByteSpan names[KERNELS_MAX], *name_pointers[KERNELS_MAX];
    XLA_FFI_Scalar values[KERNELS_MAX];
    void *pointers[KERNELS_MAX];
} attr_side;

static void fill_attrs(attr_side *s, const kernels_call *call)
{
    for (int i = 0; i < call->n_attrs; i++) {
        const kernels_attr *a = &call->attrs[i];
        s->types[i] = XLA_FFI_AttrType_SCALAR;
        s->names[i] = (XLA_FFI_ByteSpan){a->name, strlen(a->name)};
        s->name_pointers[i] = &s->names[i];
        s->values[i] = (XLA_FFI_Scalar){
            a->type, a->type == XLA_FFI_DataType_F32 ? (void *)&a->real : (void *)&a->integer};
        s->pointers[i] = &s->values[i];
    }
}

const char *kernels_run(const kernels_call *call)
{
    static char said[sizeof(XLA_FFI_Error)];
    struct XLA_FFI_ExecutionContext ctx = {.threads = call->threads};
    XLA_FFI_Api api = {.struct_size = XLA_FFI_Api_STRUCT_SIZE,
                       .XLA_FFI_Error_Create = error_create,
                       .XLA_FFI_Error_Destroy = error_destroy,
                       .XLA_FFI_ThreadPool_Schedule = schedule,
                       .XLA_FFI_ThreadPool_NumThreads = num_threads};
    if (call->threads < 0)
        api.struct_size = offsetof(XLA_FFI_Api, XLA_FFI_ThreadPool_Schedule);
    side in, out;
    attr_side attrs;
    fill_side(&in, call->in, call->n_in);
    fill_side(&out, call->out, call->n_out);
    fill_attrs(&attrs, call);
    XLA_FFI_CallFrame frame = {
        .struct_size = XLA_FFI_CallFrame_STRUCT_SIZE,
        .api = &api,
        .ctx = &ctx,
        .stage = XLA_FFI_ExecutionStage_EXECUTE,
        .args = {XLA_FFI_Args_STRUCT_SIZE, NULL, call->n_in, in.arg_types, in.pointers},
        .rets = {XLA_FFI_Rets_STRUCT_SIZE, NULL, call->n_out, out.ret_types, out.pointers},
        .attrs = {XLA_FFI_Attrs_STRUCT_SIZE, NULL, call->n_attrs, attrs.types, attrs.name_pointers,
                  attrs.pointers}};
    XLA_FFI_Error *error = kernels_handler(call->target)(&frame);
    for (int i = 0; i < ctx.n_started; i++)
        pthread_join(ctx.started[i], NULL);
    if (error == NULL)
        return NULL;
    memcpy(said, error->message, sizeof said);
    free(error);
    return said;
}

void kernels_numbers(float *to, int64_t n, float scale, uint64_t *seed)
{
    for (int64_t i = 0; i < n; i++) {
        *seed = *seed * 6364136223846793005u + 1442695040888963407u;
        to[i] = scale * ((float)(*seed >> 40) / 8388608.0f - 1.0f);
    }
}

float *kernels_floats(int64_t n)
{
    float *made = calloc((size_t)n, sizeof *made);
    assert_non_null(made);
    return made;
}

/* ---- in double precision -----------------------------------------------------------------------
 */

static int64_t in_of(const double_learner *l, int i)
{
    return i == 0 ? l->d : l->w;
}

static int64_t out_of(const double_learner *l, int i)
{
    return i == l->layers - 1 ? l->d : l->w;
}

static double *doubles(int64_t n)
{
    double *made = calloc((size_t)n, sizeof *made);
    assert_non_null(made);
    return made;
}

double_learner *double_learner_new(int layers, int64_t d, int64_t w, double epsilon)
{
    double_learner *l = calloc(1, sizeof *l);
    assert_non_null(l);
    *l = (double_learner){.layers = layers, .d = d, .w = w, .epsilon = epsilon};
    l->scale = doubles(d);
    l->bias = doubles(d);
    for (int i = 0; i < layers; i++) {
        l->weights[i] = doubles(in_of(l, i) * out_of(l, i));
        l->weight_sums[i] = doubles(in_of(l, i) * out_of(l, i));
        l->biases[i] = doubles(out_of(l, i));
        l->bias_sums[i] = doubles(out_of(l, i));
    }
    return l;
}

void double_learner_free(double_learner *l)
{
    for (int i = 0; i < l->layers; i++) {
        free(l->weights[i]);
        free(l->weight_sums[i]);
        free(l->biases[i]);
        free(l->bias_sums[i]);
    }
    free(l->scale);
    free(l->bias);
    free(l);
}

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}

static double gelu_slope(double x)
{
    double t = tanh(0.79788456 * x * (1 + 0.044715 * x * x));
    return 0.5 * x * (1 - t * t) * (0.79788456 + 0.1070322243 * x * x) + 0.5 * (1 + t);
}

static void layer(const double *w, const double *b, int64_t in, int64_t out, const double *x,
                  double *y)
{
    for (int64_t o = 0; o < out; o++) {
        y[o] = b[o];
        for (int64_t i = 0; i < in; i++)
            y[o] += x[i] * w[i * out + o];
    }
}

static double normal(const double_learner *l, const double *z, double *h)
{
    double mean = 0, variance = 0;
    for (int64_t i = 0; i < l->d; i++)
        mean += z[i] / (double)l->d;
    for (int64_t i = 0; i < l->d; i++)
        variance += (z[i] - mean) * (z[i] - mean) / (double)l->d;
    for (int64_t i = 0; i < l->d; i++)
        h[i] = (z[i] - mean) / sqrt(variance + l->epsilon);
    return sqrt(variance + l->epsilon);
}

static void loss_slope(const double_learner *l, const double *z, const double *target, double *g)
{
    double *h = doubles(l->d), *u = doubles(l->d), sum = 0, along = 0, deviation = normal(l, z, h);
    for (int64_t i = 0; i < l->d; i++) {
        u[i] = (l->scale[i] * h[i] + l->bias[i] - target[i]) * l->scale[i];
        sum += u[i];
        along += u[i] * h[i];
    }
    for (int64_t i = 0; i < l->d; i++)
        g[i] = ((double)l->d * u[i] - sum - h[i] * along) / ((double)l->d * deviation);
    free(h);
    free(u);
}

/* What a key is to both layers: x2 and g1 [w], g2 [d]; with one layer g1 alone, [d]. */
static void train(const double_learner *l, const double *k, const double *target, double *x2,
                  double *g1, double *g2)
{
    double *z1 = doubles(out_of(l, 0)), *z2 = doubles(l->d);
    layer(l->weights[0], l->biases[0], l->d, out_of(l, 0), k, z1);
    if (l->layers == 1) {
        loss_slope(l, z1, target, g1);
    } else {
        for (int64_t i = 0; i < l->w; i++)
            x2[i] = gelu(z1[i]);
        layer(l->weights[1], l->biases[1], l->w, l->d, x2, z2);
        loss_slope(l, z2, target, g2);
        for (int64_t i = 0; i < l->w; i++) {
            g1[i] = 0;
            for (int64_t o = 0; o < l->d; o++)
                g1[i] += g2[o] * l->weights[1][i * l->d + o];
            g1[i] *= gelu_slope(z1[i]);
        }
    }
    free(z1);
    free(z2);
}

/* to - by x^T g, for weights; x NULL is 1, for biases. */
static void descend(double *to, int64_t in, int64_t out, double by, const double *x,
                    const double *g)
{
    for (int64_t i = 0; i < in; i++) {
        for (int64_t o = 0; o < out; o++)
            to[i * out + o] -= by * (x == NULL ? 1 : x[i]) * g[o];
    }
}

/* res(q) with the learner's own weights. */
static void ask(const double_learner *l, const double *q, double *res)
{
    double *z = doubles(out_of(l, 0));
    layer(l->weights[0], l->biases[0], l->d, out_of(l, 0), q, z);
    if (l->layers == 1) {
        memcpy(res, z, (size_t)l->d * sizeof *res);
    } else {
        for (int64_t i = 0; i < l->w; i++)
            z[i] = gelu(z[i]);
        layer(l->weights[1], l->biases[1], l->w, l->d, z, res);
    }
    free(z);
}

/* to += by what. */
static void add(int64_t n, double by, const double *what, double *to)
{
    for (int64_t i = 0; i < n; i++)
        to[i] += by * what[i];
}

/* Moves the weights along the sums, or back. */
static void move_along(double_learner *l, double by)
{
    for (int i = 0; i < l->layers; i++) {
        add(in_of(l, i) * out_of(l, i), by, l->weight_sums[i], l->weights[i]);
        add(out_of(l, i), by, l->bias_sums[i], l->biases[i]);
    }
}

void double_step(double_learner *l, const double *k, const double *q, const double *target,
                 double rate, double move, int last, double *answer)
{
    double *x2 = doubles(l->w), *g1 = doubles(out_of(l, 0)), *g2 = doubles(l->d);
    double *res = doubles(l->d), *h = doubles(l->d);
    train(l, k, target, x2, g1, g2);
    for (int i = 0; i < l->layers; i++) {
        const double *x = i == 0 ? k : x2, *g = i == 0 ? g1 : g2;
        descend(l->weight_sums[i], in_of(l, i), out_of(l, i), -rate, x, g);
        descend(l->bias_sums[i], 1, out_of(l, i), -rate, NULL, g);
    }
    move_along(l, -move);
    ask(l, q, res);
    normal(l, res, h);
    for (int64_t i = 0; i < l->d; i++)
        answer[i] = q[i] + l->scale[i] * h[i] + l->bias[i];
    if (!last)
        move_along(l, move);
    for (int i = 0; i < l->layers && last; i++) {
        memset(l->weight_sums[i], 0, (size_t)(in_of(l, i) * out_of(l, i)) * sizeof(double));
        memset(l->bias_sums[i], 0, (size_t)out_of(l, i) * sizeof(double));
    }
    free(x2);
    free(g1);
    free(g2);
    free(res);
    free(h);
}

/* The weights that answer i sees exist here: no dual form, no rearrangement. */
void double_mini_batch(double_learner *l, int64_t b, const double *k, const double *q,
                       const double *target, const double *eta, double *answers)
{
    int64_t n = out_of(l, 0);
    double *x2 = doubles(b * l->w), *g1 = doubles(b * n), *g2 = doubles(b * l->d);
    double_learner *moved = double_learner_new(l->layers, l->d, l->w, l->epsilon);
    for (int64_t t = 0; t < b; t++)
        train(l, k + t * l->d, target + t * l->d, x2 + t * l->w, g1 + t * n, g2 + t * l->d);
    for (int64_t t = 0; t < b; t++) {
        for (int i = 0; i < l->layers; i++) {
            int64_t in = in_of(l, i), out = out_of(l, i);
            memcpy(moved->weights[i], l->weights[i], (size_t)(in * out) * sizeof(double));
            memcpy(moved->biases[i], l->biases[i], (size_t)out * sizeof(double));
            for (int64_t s = 0; s < b; s++) {
                const double *x = i == 0 ? k + s * l->d : x2 + s * l->w;
                const double *g = i == 0 ? g1 + s * n : g2 + s * l->d;
                descend(moved->weights[i], in, out, eta[t * b + s], x, g);
                descend(moved->biases[i], 1, out, eta[t * b + s], NULL, g);
            }
        }
        ask(moved, q + t * l->d, answers + t * l->d);
    }
    for (int i = 0; i < l->layers; i++) { /* eta's last row is the last answer's */
        memcpy(l->weights[i], moved->weights[i],
               (size_t)(in_of(l, i) * out_of(l, i)) * sizeof(double));
        memcpy(l->biases[i], moved->biases[i], (size_t)out_of(l, i) * sizeof(double));
    }
    double_learner_free(moved);
    free(x2);
    free(g1);
    free(g2);
}
