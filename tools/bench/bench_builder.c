/*
 * bench_builder: how long it takes to describe, differentiate and write a large decoder.
 *
 * The decoder has unrolled layers of width 2048; each mixes time by a linear model trained at test
 * time, a scan over mini-batches of 16 tokens with an inner gradient step, checkpointed every four,
 * and has a gated MLP. tools/bench/bench_builder.py traces and lowers the same program with JAX. Prints
 * one JSON line for each number of layers given (default 48).
 */
#include "hlo_builder/hlo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { BATCH = 1, TIME = 2048, WIDTH = 2048, HEADS = 32, MINI = 16, HIDDEN = 5504, VOCAB = 32000 };
enum { HEAD = WIDTH / HEADS };

typedef struct layer {
    hlo_val norm1, q, k, v, o, w0, norm2, gate, up, down;
} layer;
enum { LAYER_PARAMS = sizeof(layer) / sizeof(hlo_val) };

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static layer make_layer(hlo_graph *g)
{
    return (layer){
        .norm1 = hlo_param(g, "norm1", HLO_SHAPE(HLO_F32, WIDTH)),
        .q = hlo_param(g, "q", HLO_SHAPE(HLO_F32, WIDTH, WIDTH)),
        .k = hlo_param(g, "k", HLO_SHAPE(HLO_F32, WIDTH, WIDTH)),
        .v = hlo_param(g, "v", HLO_SHAPE(HLO_F32, WIDTH, WIDTH)),
        .o = hlo_param(g, "o", HLO_SHAPE(HLO_F32, WIDTH, WIDTH)),
        .w0 = hlo_param(g, "w0", HLO_SHAPE(HLO_F32, HEADS, HEAD, HEAD)),
        .norm2 = hlo_param(g, "norm2", HLO_SHAPE(HLO_F32, WIDTH)),
        .gate = hlo_param(g, "gate", HLO_SHAPE(HLO_F32, WIDTH, HIDDEN)),
        .up = hlo_param(g, "up", HLO_SHAPE(HLO_F32, WIDTH, HIDDEN)),
        .down = hlo_param(g, "down", HLO_SHAPE(HLO_F32, HIDDEN, WIDTH)),
    };
}

/* One mini-batch for all heads: x are keys, values and queries [batch, heads, mini, head]. */
static void learn(hlo_graph *g, void *ctx, hlo_val step, const hlo_val *carry, const hlo_val *x,
                  hlo_val *next, hlo_val *y)
{
    hlo_val w = carry[0], dw;
    (void)ctx, (void)step;
    hlo_val error = hlo_sub(g, hlo_einsum(g, "bhtd,bhde->bhte", x[0], w), x[1]);
    hlo_val loss = hlo_sum(g, hlo_mul(g, error, error), HLO_DIMS(0, 1, 2, 3));
    hlo_grad(g, loss, &w, 1, &dw);
    next[0] = hlo_sub(g, w, hlo_mul(g, dw, hlo_like(g, dw, 1.0 / MINI)));
    y[0] = hlo_einsum(g, "bhtd,bhde->bhte", x[2], next[0]);
}

/* [batch, time, width] as [mini-batches, batch, heads, mini, head] */
static hlo_val split(hlo_graph *g, hlo_val x)
{
    hlo_val parts = hlo_reshape(g, x, HLO_DIMS(BATCH, TIME / MINI, MINI, HEADS, HEAD));
    return hlo_transpose(g, parts, HLO_DIMS(1, 0, 3, 2, 4));
}

static hlo_val mix(hlo_graph *g, const layer *l, hlo_val x)
{
    hlo_val parts[3] = {split(g, hlo_matmul(g, x, l->k)), split(g, hlo_matmul(g, x, l->v)),
                        split(g, hlo_matmul(g, x, l->q))};
    hlo_val w = hlo_broadcast(g, l->w0, HLO_DIMS(BATCH, HEADS, HEAD, HEAD), HLO_DIMS(1, 2, 3)), y;
    hlo_scan(g, learn, NULL, &w, 1, parts, 3, &y, 1, &(hlo_scan_options){.checkpoint = {4}});
    hlo_val whole = hlo_transpose(g, y, HLO_DIMS(1, 0, 3, 2, 4));
    return hlo_matmul(g, hlo_reshape(g, whole, HLO_DIMS(BATCH, TIME, WIDTH)), l->o);
}

static hlo_val block(hlo_graph *g, const layer *l, hlo_val x)
{
    hlo_scope_push(g, "ttt");
    x = hlo_add(g, x, mix(g, l, hlo_rms_norm(g, x, l->norm1, 1e-6)));
    hlo_scope_pop(g);
    hlo_scope_push(g, "mlp");
    hlo_val n = hlo_rms_norm(g, x, l->norm2, 1e-6);
    hlo_val gated = hlo_mul(g, hlo_silu(g, hlo_matmul(g, n, l->gate)), hlo_matmul(g, n, l->up));
    x = hlo_add(g, x, hlo_matmul(g, gated, l->down));
    hlo_scope_pop(g);
    return x;
}

static void build(hlo_graph *g, int n_layers, layer *layers, hlo_val *grads)
{
    hlo_val tokens = hlo_param(g, "tokens", HLO_SHAPE(HLO_S32, BATCH, TIME));
    hlo_val labels = hlo_param(g, "labels", HLO_SHAPE(HLO_S32, BATCH, TIME));
    hlo_val table = hlo_param(g, "embedding", HLO_SHAPE(HLO_F32, VOCAB, WIDTH));
    hlo_val x = hlo_take(g, table, tokens);
    for (int i = 0; i < n_layers; i++) {
        layers[i] = make_layer(g);
        hlo_scope_push(g, "block.%d", i);
        x = block(g, &layers[i], x);
        hlo_scope_pop(g);
    }
    hlo_val logits = hlo_einsum(g, "btd,vd->btv", x, table);
    hlo_val loss = hlo_mean(g, hlo_cross_entropy(g, logits, labels), HLO_DIMS(0, 1));
    int n = n_layers * LAYER_PARAMS;
    hlo_grad(g, loss, (const hlo_val *)layers, n, grads);
    hlo_result(g, "loss", loss);
    for (int i = 0; i < n; i++)
        hlo_result(g, "gradient", grads[i]);
}

static int run(int n_layers)
{
    layer *layers = calloc((size_t)n_layers, sizeof *layers);
    hlo_val *grads = calloc((size_t)n_layers * LAYER_PARAMS, sizeof *grads);
    double start = seconds();
    hlo_graph *g = hlo_graph_new("decoder");
    if (layers == NULL || grads == NULL || g == NULL)
        return 1;
    build(g, n_layers, layers, grads);
    double built = seconds();
    char *text = hlo_write_text(g, NULL);
    double written = seconds();
    if (text == NULL) {
        fprintf(stderr, "bench_builder: %s\n", hlo_graph_error(g)->message);
        return 1;
    }
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("{\"layers\": %d, \"operations\": %zu, \"text_bytes\": %zu, \"build_seconds\": %.4f, "
           "\"write_seconds\": %.4f, \"total_seconds\": %.4f, \"peak_mb\": %.1f}\n",
           n_layers, hlo_graph_num_ops(g), strlen(text), built - start, written - built,
           written - start, (double)usage.ru_maxrss / 1024);
    if (getenv("BENCH_BUILDER_TEXT") != NULL)
        fputs(text, stderr);
    free(text);
    hlo_graph_free(g);
    free(layers);
    free(grads);
    return 0;
}

int main(int argc, char **argv)
{
    int failed = argc < 2 ? run(48) : 0;
    for (int i = 1; i < argc && !failed; i++)
        failed = atoi(argv[i]) < 1 || run(atoi(argv[i]));
    return failed;
}
