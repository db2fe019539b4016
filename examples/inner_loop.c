/*
 * The inner rooms as a library: a graph with gradients inside gradients, compiled and run.
 *
 * Every sequence has a matrix of its own, y = x A, and A is a part that all have in common and a
 * part of its own. A linear model W learns A at test time, by one step down the gradient for each
 * token: the inner loop, a scan whose carry is W. The outer loop learns, through all those steps,
 * where W starts and how large steps are. The start becomes what sequences have in common; the
 * error of the first token falls to what no start can know, 0.09 x 8 = 0.72.
 *
 * hlo_builder and pjrt are not installed: this one is built inside the tree alone.
 *
 *     cmake --build build --target inner_loop && build/inner_loop 400
 */
#include "hlo_builder/hlo.h"
#include "pjrt/pjrt.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { SEQUENCES = 64, TOKENS = 32, LANES = 8 };
static const double outer_rate = 0.3;

/* One token: how far off W is, and W one step further. `ctx` is the size of steps. */
static void learn(hlo_graph *g, void *ctx, hlo_val time, const hlo_val *carry, const hlo_val *in,
                  hlo_val *next, hlo_val *out)
{
    hlo_val *rate = ctx, w = carry[0], x = in[0], y = in[1], slope;
    hlo_val error = hlo_sub(g, hlo_einsum(g, "bi,bio->bo", x, w), y);
    hlo_val squares = hlo_mul(g, error, error);
    hlo_val inner = hlo_mul(g, hlo_sum(g, squares, HLO_DIMS(0, 1)), hlo_like(g, squares, 0.5));
    hlo_grad(g, inner, &w, 1, &slope);
    next[0] = hlo_sub(g, w, hlo_mul(g, slope, *rate));
    out[0] = hlo_mean(g, squares, HLO_DIMS(0, 1));
    (void)time;
}

/* Numbers of mean 0 and that deviation; the generator's state moves on. */
static hlo_val noise(hlo_graph *g, hlo_val *state, hlo_shape shape, double deviation)
{
    hlo_val u = hlo_random_uniform(g, *state, shape, state);
    return hlo_mul(g, hlo_sub(g, u, hlo_like(g, u, 0.5)), hlo_like(g, u, deviation * sqrt(12)));
}

/* (start, log of the rate, random state) to the next of each, and the losses by token. */
static char *outer_step(void)
{
    static const char *const names[] = {"start", "log_rate", "random"};
    const uint64_t seed[2] = {1, 2};
    hlo_graph *g = hlo_graph_new("outer_step");
    hlo_val in[3] = {hlo_param(g, names[0], HLO_SHAPE(HLO_F32, LANES, LANES)),
                     hlo_param(g, names[1], HLO_SCALAR(HLO_F32)),
                     hlo_param(g, names[2], HLO_SHAPE(HLO_U64, 2))};
    hlo_val random = in[2], same = hlo_constant(g, HLO_SHAPE(HLO_U64, 2), seed);
    hlo_val own = noise(g, &random, HLO_SHAPE(HLO_F32, SEQUENCES, LANES, LANES), 0.3);
    hlo_val a = hlo_add(g, noise(g, &same, HLO_SHAPE(HLO_F32, LANES, LANES), 1), own);
    hlo_val x = noise(g, &random, HLO_SHAPE(HLO_F32, TOKENS, SEQUENCES, LANES), 1);
    hlo_val y = hlo_einsum(g, "tbi,bio->tbo", x, a), rate = hlo_exp(g, in[1]), losses, slopes[2];
    hlo_val w = hlo_broadcast_to(g, in[0], HLO_DIMS(SEQUENCES, LANES, LANES));
    hlo_scan(g, learn, &rate, &w, 1, (hlo_val[]){x, y}, 2, &losses, 1,
             &(hlo_scan_options){.checkpoint = {6}}); /* W is kept every 6 tokens */
    hlo_grad(g, hlo_mean(g, losses, HLO_DIMS(0)), in, 2, slopes);
    for (int i = 0; i < 2; i++)
        in[i] = hlo_sub(g, in[i], hlo_mul(g, slopes[i], hlo_like(g, slopes[i], outer_rate)));
    in[2] = random;
    for (int i = 0; i < 3; i++)
        hlo_result(g, names[i], in[i]);
    hlo_result(g, "losses", losses);
    char *text = hlo_write_text(g, NULL);
    if (text == NULL) /* whatever went wrong above is known here */
        fprintf(stderr, "%s\n", hlo_graph_error(g)->message);
    hlo_graph_free(g);
    return text;
}

/* What a failure leaves behind goes with the process. */
static pjrt_status *train(pjrt_executable *exe, pjrt_device *device, int steps)
{
    const float start[LANES][LANES] = {0};
    float log_rate = logf(0.01f), losses[TOKENS];
    pjrt_buffer *args[3], *results[4];
    PJRT_TRY(pjrt_buffer_from_host(device, PJRT_F32, (int64_t[]){LANES, LANES}, 2, start, NULL,
                                   NULL, &args[0]));
    PJRT_TRY(pjrt_buffer_from_host(device, PJRT_F32, NULL, 0, &log_rate, NULL, NULL, &args[1]));
    PJRT_TRY(pjrt_buffer_from_host(device, PJRT_U64, (int64_t[]){2}, 1, (uint64_t[]){3, 4}, NULL,
                                   NULL, &args[2]));
    for (int step = 0; step < steps; step++) {
        PJRT_TRY(pjrt_execute(exe, args, 3, NULL, results, 4, NULL));
        for (int i = 0; i < 3; i++) {
            pjrt_buffer_free(args[i]);
            args[i] = results[i];
        }
        PJRT_TRY(pjrt_buffer_to_host(results[3], losses, sizeof losses, NULL));
        PJRT_TRY(pjrt_buffer_to_host(args[1], &log_rate, sizeof log_rate, NULL));
        pjrt_buffer_free(results[3]);
        if (step % 100 == 0 || step == steps - 1)
            printf("step %3d: error of token 1 %.3f, of token %d %.3f; inner rate %.3f\n", step,
                   losses[0], TOKENS, losses[TOKENS - 1], expf(log_rate));
    }
    for (int i = 0; i < 3; i++)
        pjrt_buffer_free(args[i]);
    return NULL;
}

int main(int argc, char **argv)
{
    pjrt_plugin *plugin;
    pjrt_client *client = NULL;
    pjrt_executable *exe = NULL;
    char *program = outer_step();
    if (program == NULL)
        return 1;
    pjrt_status *st = pjrt_plugin_load("cpu", &plugin);
    if (st == NULL)
        st = pjrt_client_create(plugin, NULL, &client);
    if (st == NULL)
        st = pjrt_compile(client, pjrt_program_text(program), NULL, &exe);
    if (st == NULL)
        st = train(exe, pjrt_client_device(client, 0), argc > 1 ? atoi(argv[1]) : 400);
    int failed = st != NULL;
    if (failed)
        fprintf(stderr, "%s\n", pjrt_status_text(st));
    pjrt_status_free(st);
    pjrt_executable_free(exe);
    pjrt_client_free(client);
    free(program);
    return failed;
}
