/* How much arithmetic training is, and how much the devices could do. */
#include "runtime/base/threads.h"
#include "runtime/train/ttt_trainer.h"

#include <string.h>

static const char call[] = "runtime";

/* ---- arithmetic of a token ---------------------------------------------------------------------
 */

/* Muon's five steps on a matrix, each three products on its shorter side, the middle one small. */
static double orthogonal_products(double in, double out)
{
    double least = in < out ? in : out, most = in < out ? out : in;
    return 5 * least * least * (2 * most + least);
}

/* Of a learner in one head: keys and queries through its layers, gradients of what learns, back
 * through all of that but the first; scores, and answers from them. */
static double learner_products(const ttt_config *c, double b)
{
    double sum = 0;
    int first = ttt_learner_first(c), layers = ttt_learner_layers(c);
    bool halves = c->inner_activation == TTT_ACTIVATION_SWIGLU;
    for (int i = 0; i < layers; i++) {
        double in = (double)ttt_learner_in(c, i), out = (double)ttt_learner_out(c, i);
        if (i < first) {
            sum += 2 * in * out;
            continue;
        }
        sum += (i > first ? 4 : 3) * in * out;
        if (c->inner_optimizer == TTT_INNER_SGD)
            sum += b * (in + out) + (c->inner_momentum ? 2 * in * out : 0);
        else if (c->inner_optimizer == TTT_INNER_MUON && halves && i < layers - 1)
            sum += 2 * orthogonal_products(in, out / 2) / b;
        else if (c->inner_optimizer == TTT_INNER_MUON)
            sum += orthogonal_products(in, out) / b;
    }
    return sum;
}

/* Multiplications and additions of a mixer's own products in one layer, forward, a token. */
static double mixer_flops(const ttt_config *c, int64_t time)
{
    double hidden = (double)c->hidden_size, lanes = hidden / (double)c->n_heads;
    double b = (double)(c->mini_batch_size == 0 ? time : c->mini_batch_size);
    switch (c->mixer) {
    case TTT_MIXER_LINEAR:
    case TTT_MIXER_MLP:
        return 2 * (double)c->n_heads * learner_products(c, b);
    case TTT_MIXER_ATTENTION:
        return 2 * hidden * (double)time; /* half of a square, scores and answers */
    case TTT_MIXER_LINEAR_ATTENTION:
        return 2 * hidden * 2 * lanes;
    case TTT_MIXER_MAMBA:
        return 6 * hidden * (double)(c->mamba_expand * c->mamba_state);
    }
    return 0;
}

double ttt_flops_per_token(const ttt_config *config, const ttt_params *params, int64_t time)
{
    double embedding = (double)(config->vocab_size * config->hidden_size);
    double weights = (double)params->elements - (config->tie_embeddings ? 0 : embedding);
    return 3 * (2 * weights + (double)config->n_layers * mixer_flops(config, time));
}

/* ---- peaks -------------------------------------------------------------------------------------
 */

/* What devices call themselves, and how the table of targets begins. Longer names stand first. */
static const struct {
    const char *kind, *target;
} known[] = {
    {"TPU v6 lite", "tpu:v6e"}, {"TPU v5 lite", "tpu:v5e"}, {"TPU v5p", "tpu:v5p"},
    {"TPU v5", "tpu:v5p"},      {"TPU v4", "tpu:v4"},       {"A100", "cuda:a100"},
    {"H200", "cuda:h200"},      {"H100", "cuda:h100"},      {"B200", "cuda:b200"},
};

static double table_peak(const char *kind, hlo_type type)
{
    size_t count;
    const pjrt_target *targets = pjrt_targets(&count);
    for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
        if (strstr(kind, known[k].kind) == NULL)
            continue;
        for (size_t i = 0; i < count; i++) {
            if (strncmp(targets[i].name, known[k].target, strlen(known[k].target)) == 0)
                return type == HLO_BF16 || targets[i].f32_flops == 0 ? targets[i].bf16_flops
                                                                     : targets[i].f32_flops;
        }
    }
    return 0;
}

enum { EDGE = 1024, PRODUCTS = 4, TRIES = 3 }; /* a tenth of a second on two cores */

static void product(hlo_graph *g, void *ctx, hlo_val step, const hlo_val *carry, const hlo_val *in,
                    hlo_val *next, hlo_val *out)
{
    (void)step, (void)in, (void)out;
    next[0] = hlo_matmul(g, carry[0], *(const hlo_val *)ctx);
}

static pjrt_status *products_program(const ttt_devices *devices, ttt_program **out)
{
    ttt_graph graph;
    *out = NULL;
    PJRT_TRY(ttt_graph_new("peak", &devices->mesh, &graph));
    hlo_val x = ttt_graph_param(&graph, "x", HLO_SHAPE(HLO_F32, EDGE, EDGE), HLO_SPEC(NULL)), y = x;
    hlo_scan(graph.g, product, &x, &y, 1, NULL, 0, NULL, 0,
             &(hlo_scan_options){.length = PRODUCTS});
    ttt_graph_result(&graph, "y", y, HLO_SPEC(NULL));
    pjrt_status *st = ttt_program_compile(devices, &graph, out);
    ttt_graph_free(&graph);
    return st;
}

static pjrt_status *zeros(void *ctx, const ttt_block *block, void *out)
{
    (void)ctx, (void)block;
    memset(out, 0, (size_t)EDGE * EDGE * sizeof(float));
    return NULL;
}

static pjrt_status *time_products(const ttt_program *program, ttt_array *x, double *best)
{
    for (int i = 0; i <= TRIES; i++) {
        ttt_array *y;
        double start = ttt__seconds();
        PJRT_TRY(ttt_program_run(program, &x, 1, &y));
        pjrt_status *st = ttt_array_wait(y);
        double seconds = ttt__seconds() - start;
        ttt_array_free(y);
        PJRT_TRY(st);
        if (i == 1 || (i > 1 && seconds < *best)) /* the first one only warms up */
            *best = seconds;
    }
    return NULL;
}

/* Virtual devices share the processor's cores, and each does the same products here: together they
 * are as fast as one that has all cores. */
static pjrt_status *measured_peak(const ttt_devices *devices, double *flops)
{
    ttt_program *program;
    ttt_array *x = NULL;
    double seconds = 0;
    PJRT_TRY(products_program(devices, &program));
    pjrt_status *st =
        ttt_array_make(devices, HLO_SHAPE(HLO_F32, EDGE, EDGE), HLO_SPEC(NULL), zeros, NULL, &x);
    if (st == NULL)
        st = time_products(program, x, &seconds);
    if (st == NULL && seconds > 0)
        *flops = 2.0 * EDGE * EDGE * EDGE * PRODUCTS * devices->n_devices / seconds;
    ttt_array_free(x);
    ttt_program_free(program);
    return st;
}

pjrt_status *ttt_devices_peak(const ttt_devices *devices, hlo_type type, double *flops,
                              bool *measured)
{
    const pjrt_device *device = pjrt_client_device(devices->client, 0);
    *flops = 0;
    *measured = false;
    if (device == NULL)
        return PJRT_FAIL(INTERNAL, call, "the place has no device");
    if (strcmp(pjrt_client_platform(devices->client), "cpu") == 0) {
        *measured = true;
        return measured_peak(devices, flops);
    }
    *flops = table_peak(pjrt_device_kind(device), type) * devices->n_devices;
    return NULL;
}
