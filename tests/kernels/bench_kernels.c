/*
 * bench_kernels: the kernels against what XLA:CPU makes of the same operations, in one run.
 *
 *     bench_kernels [step | product | scan]...     all of them without a word
 *
 * Everything goes through the CPU plugin, so a call of a program is in every figure. The times are
 * the best of several rounds: the others were disturbed. Products are also measured against the
 * speed at which plain loops on all processors read memory.
 */
#include "kernels/ttt_kernels.h"
#include "tests/support/kernel_graphs.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* ---- programs ----------------------------------------------------------------------------------
 */

enum { MAX_ARRAYS = 24 };

/* A program and what it is run with. */
typedef struct program {
    pjrt_client *client;
    pjrt_executable *exe;
    pjrt_buffer *in[MAX_ARRAYS];
    int n_in, n_out, first_donated; /* arguments from there on are results 1 … of the run before */
} program;

static pjrt_status *compile(program *p, hlo_graph *g)
{
    char *text = hlo_write_text(g, NULL);
    pjrt_status *st = text == NULL
                          ? PJRT_FAIL(INTERNAL, "bench_kernels", "%s", hlo_graph_error(g)->message)
                          : pjrt_compile(p->client, pjrt_program_text(text), NULL, &p->exe);
    free(text);
    hlo_graph_free(g);
    return st;
}

/* One more argument: numbers between -scale and scale, or for integers zeros. */
static pjrt_status *give(program *p, pjrt_type type, const hlo_shape *shape, float scale)
{
    int64_t n = hlo_shape_elements(shape);
    float *data = malloc((size_t)n * sizeof *data + 1);
    if (data == NULL)
        return PJRT_NO_MEMORY("bench_kernels");
    memset(data, 0, (size_t)n * sizeof *data);
    for (int64_t i = 0; i < n && type == PJRT_F32; i++)
        data[i] = scale * sinf(0.7f * (float)(i % 10007) + (float)p->n_in);
    pjrt_status *st = pjrt_buffer_from_host(pjrt_client_device(p->client, 0), type, shape->dims,
                                            shape->rank, data, NULL, NULL, &p->in[p->n_in]);
    free(data);
    p->n_in += st == NULL;
    return st;
}

static pjrt_status *wait_for(pjrt_buffer *buffer)
{
    pjrt_event *ready;
    PJRT_TRY(pjrt_buffer_ready(buffer, &ready));
    pjrt_status *st = pjrt_event_wait(ready);
    pjrt_event_free(ready);
    return st;
}

static pjrt_status *run_once(program *p)
{
    pjrt_buffer *out[MAX_ARRAYS];
    PJRT_TRY(pjrt_execute(p->exe, p->in, (size_t)p->n_in, NULL, out, (size_t)p->n_out, NULL));
    pjrt_status *st = wait_for(out[0]);
    for (int i = 0; i < p->n_out; i++) {
        int to = p->first_donated + i - 1;
        if (p->first_donated > 0 && i > 0) {
            pjrt_buffer_free(p->in[to]);
            p->in[to] = out[i];
        } else {
            pjrt_buffer_free(out[i]);
        }
    }
    return st;
}

/* Seconds of a run: the best of rounds of at least 2 ms, for a second. */
static pjrt_status *measure(program *p, double *best)
{
    double until = seconds() + 1;
    *best = 1e9;
    PJRT_TRY(run_once(p));
    do {
        int runs = 0;
        double start = seconds(), now;
        do {
            PJRT_TRY(run_once(p));
            runs++;
            now = seconds();
        } while (now - start < 0.002);
        *best = fmin(*best, (now - start) / runs);
    } while (seconds() < until);
    return NULL;
}

static void program_free(program *p)
{
    for (int i = 0; i < p->n_in; i++)
        pjrt_buffer_free(p->in[i]);
    pjrt_executable_free(p->exe);
}

/* ---- steps -------------------------------------------------------------------------------------
 */

static pjrt_status *step_time(pjrt_client *client, const step_graph *s, bool kernels, double *time)
{
    program p = {.client = client, .first_donated = STEP_GIVEN};
    hlo_shape heads = HLO_SHAPE(HLO_F32, s->batch, s->heads, s->d);
    hlo_shape norm = HLO_SHAPE(HLO_F32, s->heads, s->d), line = HLO_SHAPE(HLO_S32, s->batch);
    hlo_shape given[STEP_GIVEN] = {heads,
                                   heads,
                                   heads,
                                   HLO_SHAPE(HLO_F32, s->batch, s->heads),
                                   line,
                                   line,
                                   HLO_SHAPE(HLO_F32, s->mini),
                                   norm,
                                   norm};
    hlo_shape state[STEP_MAX_STATE];
    int n = step_graph_state(s, state);
    p.n_out = 1 + n;
    hlo_graph *g = hlo_graph_new("step");
    step_graph_build(g, s, kernels);
    pjrt_status *st = compile(&p, g);
    for (int i = 0; i < STEP_GIVEN && st == NULL; i++)
        st = give(&p, i == 4 || i == 5 ? PJRT_S32 : PJRT_F32, &given[i], 1);
    for (int i = 0; i < n && st == NULL; i++)
        st = give(&p, PJRT_F32, &state[i], i < n / 2 ? 0.02f : 0);
    if (st == NULL)
        st = measure(&p, time);
    program_free(&p);
    return st;
}

static pjrt_status *steps(pjrt_client *client)
{
    static const struct {
        const char *name;
        step_graph s;
    } cases[] = {
        {"125m Linear", {1, 1, 12, 64, 64, 16, 10000, false}},
        {"125m Linear, 8 sequences", {1, 8, 12, 64, 64, 16, 10000, false}},
        {"125m MLP", {2, 1, 12, 64, 256, 16, 10000, false}},
        {"125m MLP, 8 sequences", {2, 8, 12, 64, 256, 16, 10000, false}},
        {"760m Linear", {1, 1, 16, 96, 96, 16, 10000, false}},
        {"1.3b Linear", {1, 1, 32, 64, 64, 16, 10000, false}},
        {"1.3b MLP", {2, 1, 32, 64, 256, 16, 10000, false}},
    };
    printf("| ttt_step, a layer | state | kernel | XLA | times |\n|---|---|---|---|---|\n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const step_graph *s = &cases[i].s;
        hlo_shape state[STEP_MAX_STATE];
        double time[2], bytes = 0;
        for (int j = step_graph_state(s, state); j-- > 0;)
            bytes += 4.0 * (double)hlo_shape_elements(&state[j]);
        PJRT_TRY(step_time(client, s, true, &time[0]));
        PJRT_TRY(step_time(client, s, false, &time[1]));
        printf("| %s | %.2f MB | %.1f µs, %.1f GB/s | %.1f µs | %.1f |\n", cases[i].name,
               1e-6 * bytes, 1e6 * time[0], 1e-9 * bytes / time[0], 1e6 * time[1],
               time[1] / time[0]);
        fflush(stdout);
    }
    return NULL;
}

/* ---- products ----------------------------------------------------------------------------------
 */

enum { READ_BYTES = 256 << 20, MAX_THREADS = 64 };

typedef struct reader {
    const uint64_t *data;
    size_t count;
    uint64_t sum; /* so that reading is not for nothing */
} reader;

static void *read_all(void *ctx)
{
    reader *r = ctx;
    uint64_t sum[8] = {0};
    for (size_t i = 0; i < r->count; i += 8) {
        for (int j = 0; j < 8; j++)
            sum[j] += r->data[i + (size_t)j];
    }
    for (int j = 0; j < 8; j++)
        r->sum += sum[j];
    return NULL;
}

/* Bytes a second that all processors read together. */
static pjrt_status *bandwidth(double *best)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    size_t threads = n < 1 ? 1 : (n > MAX_THREADS ? MAX_THREADS : (size_t)n);
    uint64_t *data = malloc(READ_BYTES);
    if (data == NULL)
        return PJRT_NO_MEMORY("bench_kernels");
    memset(data, 1, READ_BYTES);
    *best = 0;
    for (int round = 0; round < 30; round++) {
        pthread_t started[MAX_THREADS];
        reader readers[MAX_THREADS];
        size_t each = READ_BYTES / sizeof *data / threads / 8 * 8, running = 0;
        double start = seconds();
        for (size_t i = 0; i < threads; i++) {
            readers[i] = (reader){data + i * each, each, 0};
            running += pthread_create(&started[running], NULL, read_all, &readers[i]) == 0;
        }
        for (size_t i = 0; i < running; i++)
            pthread_join(started[i], NULL);
        *best = fmax(*best, (double)(running * each * sizeof *data) / (seconds() - start));
    }
    free(data);
    return NULL;
}

/* `layers` products with weights of their own one after another, so that no cache holds them. */
static char *product_text(int64_t batch, int64_t k, int64_t n, const char *type, int layers,
                          bool kernels)
{
    char *text = malloc(1 << 20), *at = text;
    if (text == NULL)
        return NULL;
    bool s8 = strcmp(type, "i8") == 0;
    at += sprintf(at, "func.func @main(%%x: tensor<%ldx%ldxf32>, %%s: tensor<%ldxf32>", (long)batch,
                  (long)k, (long)n);
    for (int i = 0; i < layers; i++)
        at += sprintf(at, ", %%w%d: tensor<%ldx%ldx%s>", i, (long)n, (long)k, type);
    at += sprintf(at, ") -> tensor<%ldx%ldxf32> {\n", (long)batch, (long)n);
    char x[64], w[64], wide[64], y[64];
    sprintf(x, "tensor<%ldx%ldxf32>", (long)batch, (long)k);
    sprintf(w, "tensor<%ldx%ldx%s>", (long)n, (long)k, type);
    sprintf(wide, "tensor<%ldx%ldxf32>", (long)n, (long)k);
    sprintf(y, "tensor<%ldx%ldxf32>", (long)batch, (long)n);
    at += sprintf(at,
                  "  %%b = stablehlo.broadcast_in_dim %%s, dims = [1] : (tensor<%ldxf32>) -> %s\n",
                  (long)n, y);
    for (int i = 0; i < layers; i++) {
        if (kernels) {
            at += sprintf(at,
                          "  %%y%d = stablehlo.custom_call @ttt_product(%%x, %%w%d%s) "
                          "{api_version = 4 : i32} : (%s, %s",
                          i, i, s8 ? ", %s" : "", x, w);
            at += s8 ? sprintf(at, ", tensor<%ldxf32>", (long)n) : 0;
            at += sprintf(at, ") -> %s\n", y);
        } else {
            at += sprintf(at, "  %%c%d = stablehlo.convert %%w%d : (%s) -> %s\n", i, i, w, wide);
            at +=
                sprintf(at,
                        "  %%d%d = stablehlo.dot_general %%x, %%c%d, contracting_dims = [1] x [1] "
                        ": (%s, %s) -> %s\n",
                        i, i, x, wide, y);
            at += s8 ? sprintf(at, "  %%y%d = stablehlo.multiply %%d%d, %%b : %s\n", i, i, y)
                     : sprintf(at, "  %%y%d = stablehlo.negate %%d%d : %s\n", i, i, y);
        }
        at += i == 0 ? sprintf(at, "  %%t0 = stablehlo.negate %%y0 : %s\n", y)
                     : sprintf(at, "  %%t%d = stablehlo.add %%t%d, %%y%d : %s\n", i, i - 1, i, y);
    }
    sprintf(at, "  return %%t%d : %s\n}", layers - 1, y);
    return text;
}

typedef struct product_case {
    const char *name;
    int64_t batch, k, n;
    const char *type;
    pjrt_type pjrt;
    int bytes;
} product_case;

enum { MAX_WEIGHTS = 20 };

static pjrt_status *product_time(pjrt_client *client, const product_case *c, int layers,
                                 bool kernels, double *time)
{
    program p = {.client = client, .n_out = 1};
    char *text = product_text(c->batch, c->k, c->n, c->type, layers, kernels);
    if (text == NULL)
        return PJRT_NO_MEMORY("bench_kernels");
    hlo_shape x = HLO_SHAPE(HLO_F32, c->batch, c->k), w = HLO_SHAPE(HLO_F32, c->n, c->k);
    hlo_shape scale = HLO_SHAPE(HLO_F32, c->n);
    pjrt_status *st = pjrt_compile(client, pjrt_program_text(text), NULL, &p.exe);
    free(text);
    if (st == NULL)
        st = give(&p, PJRT_F32, &x, 1);
    if (st == NULL)
        st = give(&p, PJRT_F32, &scale, 1);
    for (int i = 0; i < layers && st == NULL; i++)
        st = give(&p, c->pjrt, &w, 1);
    if (st == NULL)
        st = measure(&p, time);
    *time /= layers;
    program_free(&p);
    return st;
}

static pjrt_status *products(pjrt_client *client)
{
    static const product_case cases[] = {
        {"768 to 2048, f32", 1, 768, 2048, "f32", PJRT_F32, 4},
        {"768 to 2048, bf16", 1, 768, 2048, "bf16", PJRT_BF16, 2},
        {"768 to 2048, s8", 1, 768, 2048, "i8", PJRT_S8, 1},
        {"2048 to 5504, f32", 1, 2048, 5504, "f32", PJRT_F32, 4},
        {"2048 to 5504, bf16", 1, 2048, 5504, "bf16", PJRT_BF16, 2},
        {"2048 to 5504, s8", 1, 2048, 5504, "i8", PJRT_S8, 1},
        {"2048 to 5504, f32, 4 rows", 4, 2048, 5504, "f32", PJRT_F32, 4},
        {"2048 to 5504, bf16, 4 rows", 4, 2048, 5504, "bf16", PJRT_BF16, 2},
        {"2048 to 5504, s8, 4 rows", 4, 2048, 5504, "i8", PJRT_S8, 1},
        {"2048 to 5504, f32, 16 rows", 16, 2048, 5504, "f32", PJRT_F32, 4},
        {"2048 to 5504, bf16, 16 rows", 16, 2048, 5504, "bf16", PJRT_BF16, 2},
        {"2048 to 5504, s8, 16 rows", 16, 2048, 5504, "i8", PJRT_S8, 1},
    };
    printf("| ttt_product, weights not in a cache | kernel | of memory's | XLA | times |\n"
           "|---|---|---|---|---|\n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const product_case *c = &cases[i];
        double time[2], memory, bytes = (double)(c->n * c->k * c->bytes);
        int layers = (int)(256e6 / bytes) + 1;
        layers = layers > MAX_WEIGHTS ? MAX_WEIGHTS : layers;
        PJRT_TRY(product_time(client, c, layers, true, &time[0]));
        PJRT_TRY(bandwidth(&memory));
        PJRT_TRY(product_time(client, c, layers, false, &time[1]));
        printf("| %s | %.0f µs, %.1f GB/s | %.0f %% of %.1f GB/s | %.0f µs | %.2f |\n", c->name,
               1e6 * time[0], 1e-9 * bytes / time[0], 100 * bytes / time[0] / memory, 1e-9 * memory,
               1e6 * time[1], time[1] / time[0]);
        fflush(stdout);
    }
    return NULL;
}

/* ---- scans -------------------------------------------------------------------------------------
 */

static pjrt_status *scan_time(pjrt_client *client, const scan_graph *s, bool kernels,
                              bool gradients, double *time)
{
    program p = {.client = client};
    hlo_shape in[SCAN_MAX_IN], out[SCAN_MAX_OUT];
    int n_in = scan_graph_operands(s, in), n_out = scan_graph_results(s, out);
    p.n_out = n_out + (gradients ? n_in : 0);
    hlo_graph *g = hlo_graph_new("scan");
    scan_graph_build(g, s, kernels, gradients);
    pjrt_status *st = compile(&p, g);
    for (int i = 0; i < n_in && st == NULL; i++)
        st = give(&p, PJRT_F32, &in[i], i < 3 ? 1 : 0.02f);
    for (int i = 0; i < n_out && st == NULL && gradients; i++)
        st = give(&p, PJRT_F32, &out[i], 1);
    if (st == NULL)
        st = measure(&p, time);
    program_free(&p);
    return st;
}

static pjrt_status *scans(pjrt_client *client)
{
    static const struct {
        const char *name;
        int64_t heads;
    } presets[] = {{"tiny", 2}, {"small", 4}, {"125m", 12}};
    printf("| ttt_scan | forwards: kernel | XLA | times | and backwards: kernel | XLA | times |\n"
           "|---|---|---|---|---|---|---|\n");
    for (int i = 0; i < 12; i++) {
        int layers = 1 + i % 2;
        int64_t tokens = i / 2 % 2 == 0 ? 512 : 2048, count = tokens / 16;
        scan_graph s = {layers, count, 1, presets[i / 4].heads, 16, 64, layers == 1 ? 64 : 256, 1};
        double time[2][2];
        while (s.group * s.group < count)
            s.group++;
        for (int j = 0; j < 4; j++)
            PJRT_TRY(scan_time(client, &s, j % 2 == 0, j >= 2, &time[j / 2][j % 2]));
        printf("| %s %s, %d tokens | %.2f ms | %.2f ms | %.1f | %.2f ms | %.2f ms | %.1f |\n",
               presets[i / 4].name, layers == 1 ? "Linear" : "MLP", (int)tokens, 1e3 * time[0][0],
               1e3 * time[0][1], time[0][1] / time[0][0], 1e3 * time[1][0], 1e3 * time[1][1],
               time[1][1] / time[1][0]);
        fflush(stdout);
    }
    return NULL;
}

static bool asked(int argc, char **argv, const char *word)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], word) == 0)
            return true;
    }
    return argc < 2;
}

int main(int argc, char **argv)
{
    pjrt_plugin *plugin;
    pjrt_client *client = NULL;
    pjrt_status *st = pjrt_plugin_load("cpu", &plugin);
    if (st == NULL)
        st = kernel_graphs_register(plugin);
    if (st == NULL)
        st = pjrt_client_create(plugin, NULL, &client);
    if (st == NULL && asked(argc, argv, "step"))
        st = steps(client);
    if (st == NULL && asked(argc, argv, "product"))
        st = products(client);
    if (st == NULL && asked(argc, argv, "scan"))
        st = scans(client);
    if (st != NULL)
        fprintf(stderr, "bench_kernels: %s\n", pjrt_status_text(st));
    pjrt_client_free(client);
    int code = st != NULL;
    pjrt_status_free(st);
    return code;
}
