/* ttt hlo example: StableHLO made by hlo_builder, to read, to run and to compile. */
#include "hlo_builder/hlo.h"
#include "tools/commands/hlo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct example_options {
    bool gspmd, portable;
} example_options;
/* ---- mlp ---------------------------------------------------------------------------------------
 */

static void build_mlp(hlo_graph *g)
{
    enum { BATCH = 64, INPUT = 32, HIDDEN = 128, CLASSES = 10 };
    hlo_val x = hlo_param(g, "x", HLO_SHAPE(HLO_F32, BATCH, INPUT));
    hlo_val labels = hlo_param(g, "labels", HLO_SHAPE(HLO_S32, BATCH));
    hlo_val w[4] = {
        hlo_param(g, "w1", HLO_SHAPE(HLO_F32, INPUT, HIDDEN)),
        hlo_param(g, "b1", HLO_SHAPE(HLO_F32, HIDDEN)),
        hlo_param(g, "w2", HLO_SHAPE(HLO_F32, HIDDEN, CLASSES)),
        hlo_param(g, "b2", HLO_SHAPE(HLO_F32, CLASSES)),
    };
    hlo_scope_push(g, "layer.1");
    hlo_val hidden = hlo_gelu(g, hlo_add(g, hlo_matmul(g, x, w[0]), w[1]));
    hlo_scope_pop(g);
    hlo_scope_push(g, "layer.2");
    hlo_val logits = hlo_add(g, hlo_matmul(g, hidden, w[2]), w[3]);
    hlo_scope_pop(g);
    hlo_scope_push(g, "loss");
    hlo_val loss = hlo_mean(g, hlo_cross_entropy(g, logits, labels), HLO_DIMS(0));
    hlo_scope_pop(g);
    hlo_val d[4];
    hlo_grad(g, loss, w, 4, d);
    hlo_result(g, "loss", loss);
    static const char *const names[] = {"d_w1", "d_b1", "d_w2", "d_b2"};
    for (int i = 0; i < 4; i++)
        hlo_result(g, names[i], d[i]);
}

/* ---- scan --------------------------------------------------------------------------------------
 */

enum { STEPS = 256, WIDTH = 64 };

static void rnn_step(hlo_graph *g, void *ctx, hlo_val step, const hlo_val *carry, const hlo_val *x,
                     hlo_val *next, hlo_val *y)
{
    const hlo_val *w = ctx; /* from outside the loop */
    (void)step;
    next[0] = hlo_tanh(g, hlo_add(g, hlo_matmul(g, carry[0], *w), x[0]));
    y[0] = next[0];
}

static void build_scan(hlo_graph *g)
{
    hlo_val x = hlo_param(g, "x", HLO_SHAPE(HLO_F32, STEPS, 8, WIDTH));
    hlo_val w = hlo_param(g, "w", HLO_SHAPE(HLO_F32, WIDTH, WIDTH));
    hlo_val small = hlo_mul(g, w, hlo_like(g, w, 1.0 / WIDTH)); /* or gradients would explode */
    hlo_val state = hlo_full(g, HLO_SHAPE(HLO_F32, 8, WIDTH), 0), states, d[2];
    hlo_scope_push(g, "rnn");
    hlo_scan(g, rnn_step, &small, &state, 1, &x, 1, &states, 1,
             &(hlo_scan_options){.checkpoint = {16}});
    hlo_scope_pop(g);
    hlo_val loss = hlo_mean(g, hlo_mul(g, states, states), HLO_DIMS(0, 1, 2));
    hlo_grad(g, loss, (hlo_val[]){w, x}, 2, d);
    hlo_result(g, "loss", loss);
    hlo_result(g, "d_w", d[0]);
    hlo_result(g, "d_x", d[1]);
}

/* ---- ttt ---------------------------------------------------------------------------------------
 */

enum { BATCHES = 16, TOKENS = 16, DIM = 32 };

/* One mini-batch: predict values from keys, step down the gradient, answer the queries. */
static void learn(hlo_graph *g, void *ctx, hlo_val step, const hlo_val *carry, const hlo_val *x,
                  hlo_val *next, hlo_val *y)
{
    const double *rate = ctx;
    hlo_val w = carry[0], keys = x[0], values = x[1], queries = x[2], dw;
    (void)step;
    hlo_val error = hlo_sub(g, hlo_matmul(g, keys, w), values);
    hlo_val inner = hlo_mean(g, hlo_mul(g, error, error), HLO_DIMS(0, 1));
    hlo_grad(g, inner, &w, 1, &dw);
    next[0] = hlo_sub(g, w, hlo_mul(g, dw, hlo_like(g, dw, *rate)));
    y[0] = hlo_matmul(g, queries, next[0]);
    y[1] = inner;
}

static void build_ttt(hlo_graph *g)
{
    static double rate = 0.5;
    hlo_val x[3], y[2], d;
    static const char *const names[] = {"keys", "values", "queries"};
    for (int i = 0; i < 3; i++)
        x[i] = hlo_param(g, names[i], HLO_SHAPE(HLO_F32, BATCHES, TOKENS, DIM));
    hlo_val w0 = hlo_param(g, "w0", HLO_SHAPE(HLO_F32, DIM, DIM)), w = w0;
    hlo_scope_push(g, "ttt");
    hlo_scan(g, learn, &rate, &w, 1, x, 3, y, 2, &(hlo_scan_options){.checkpoint = {4}});
    hlo_scope_pop(g);
    hlo_val loss = hlo_mean(g, hlo_mul(g, y[0], y[0]), HLO_DIMS(0, 1, 2));
    hlo_grad(g, loss, &w0, 1, &d);
    hlo_result(g, "loss", loss);
    hlo_result(g, "inner_losses", y[1]);
    hlo_result(g, "d_w0", d);
}

/* ---- sharded -----------------------------------------------------------------------------------
 */

static void build_sharded(hlo_graph *g)
{
    hlo_mesh(g, (const char *const[]){"data", "model"}, (const int64_t[]){16, 16}, 2);
    hlo_val x = hlo_param(g, "x", HLO_SHAPE(HLO_BF16, 8192, 4096));
    hlo_val w = hlo_param(g, "w", HLO_SHAPE(HLO_BF16, 4096, 4096));
    hlo_shard_param(g, x, HLO_SPEC("data", "model"));
    hlo_shard_param(g, w, HLO_SPEC("model", NULL));
    hlo_result(g, "y", hlo_matmul(g, x, w));
    hlo_shard_result(g, 0, HLO_SPEC("data", NULL));
}

static const struct {
    const char *name;
    void (*build)(hlo_graph *g);
} examples[] = {
    {"mlp", build_mlp},
    {"scan", build_scan},
    {"ttt", build_ttt},
    {"sharded", build_sharded},
};

static const char *example_name(int index)
{
    return (size_t)index < sizeof examples / sizeof *examples ? examples[index].name : NULL;
}

static const cmd_option operands_list[] = {
    {"NAME", NULL, CMD_TEXT, 0, "one of these; list prints their names", .choice = example_name,
     .open = true},
};
static const cmd_option options[] = {
    {"gspmd", NULL, CMD_FLAG, offsetof(example_options, gspmd),
     "shardings as GSPMD attributes instead of Shardy's"},
    {"portable", NULL, CMD_FLAG, offsetof(example_options, portable),
     "a portable artifact (MLIR bytecode of a fixed StableHLO version) instead of text"},
};
static int example_command(int argc, char **argv);
const cmd_spec hlo_example = {
    .name = "hlo example",
    .summary = "write a program that hlo_builder made",
    .usage = "NAME [--gspmd | --portable] > FILE\n"
             "list",
    .about = "Writes a StableHLO program built by hlo_builder.\n"
             "mlp\ttwo layers, cross-entropy, and the gradients of all weights\n"
             "scan\ta recurrent net over 256 steps and its gradient, checkpointed every 16 steps\n"
             "ttt\ta linear model that learns at test time: an inner gradient step each "
             "mini-batch, and the outer gradient through all of them\n"
             "sharded\ta matrix product over a 16 x 16 mesh (compile with --partitions 256)",
    CMD_OPERANDS(operands_list),
    CMD_OPTIONS(options),
    .example = "ttt hlo example scan > scan.mlir\n"
               "ttt hlo run scan.mlir\n"
               "ttt hlo compile scan.mlir --target tpu:v5e:2x2",
    .run = example_command,
};

static int write_example(const cmd_common *common, const char *name, void (*build)(hlo_graph *),
                         const example_options *chosen)
{
    size_t size = 0;
    pjrt_status *st = NULL;
    hlo_graph *g = hlo_graph_new(name);
    if (g == NULL)
        return cmd_fail(common, PJRT_NO_MEMORY("hlo example"));
    build(g);
    char *text = chosen->portable
                     ? hlo_write_portable(g, &(hlo_portable_options){.gspmd = chosen->gspmd}, &size)
                     : hlo_write_text(g, &(hlo_write_options){.gspmd = chosen->gspmd});
    if (text == NULL)
        st = PJRT_FAIL(INTERNAL, "hlo example", "%s", hlo_graph_error(g)->message);
    else if (common->json && !chosen->portable)
        cmd_print_json(json_pack("{s:s, s:i, s:s}", "name", name, "operations",
                                 (int)hlo_graph_num_ops(g), "text", text));
    else if (fwrite(text, 1, chosen->portable ? size : strlen(text), stdout) == 0 ||
             fflush(stdout) != 0)
        st = PJRT_FAIL(UNAVAILABLE, "hlo example", "the text could not be written");
    free(text);
    hlo_graph_free(g);
    return st == NULL ? CMD_OK : cmd_fail(common, st);
}

static int example_command(int argc, char **argv)
{
    cmd_common common;
    cmd_operands operands;
    example_options chosen = {0};
    int code = cmd_parse(&hlo_example, argc, argv, &common, &chosen, &operands);
    if (code >= 0)
        return code;
    if (operands.count != 1)
        return cmd_wrong_use(&hlo_example, operands.count == 0 ? "which one?" : "one at a time");
    bool list = strcmp(operands.items[0], "list") == 0;
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        if (list)
            puts(examples[i].name);
        else if (strcmp(operands.items[0], examples[i].name) == 0)
            return write_example(&common, examples[i].name, examples[i].build, &chosen);
    }
    return list ? CMD_OK
                : cmd_wrong_use(&hlo_example, "no example is called \"%s\"", operands.items[0]);
}
