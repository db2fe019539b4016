/*
 * bench_dispatch: what one call of a compiled program costs when there is nothing to compute.
 *
 * Runs a program that adds one to a scalar, feeding each result to the next call, and prints the
 * time per call: queued (the host's share, waiting only at the end) and waited for (a round trip
 * each). tools/bench/bench_dispatch.sh runs JAX's jitted call beside it. Prints one JSON object.
 */
#include "pjrt/pjrt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char program[] = "module @tiny {\n"
                              "  func.func public @main(%x: tensor<f32>) -> tensor<f32> {\n"
                              "    %one = stablehlo.constant dense<1.0> : tensor<f32>\n"
                              "    %0 = stablehlo.add %x, %one : tensor<f32>\n"
                              "    return %0 : tensor<f32>\n"
                              "  }\n"
                              "}\n";

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static pjrt_status *wait_for(pjrt_buffer *buffer)
{
    pjrt_event *ready;
    PJRT_TRY(pjrt_buffer_ready(buffer, &ready));
    pjrt_status *st = pjrt_event_wait(ready);
    pjrt_event_free(ready);
    return st;
}

/* `calls` runs in a row, each fed by the one before. */
static pjrt_status *chain(pjrt_executable *exe, pjrt_buffer **x, int calls, bool wait_each)
{
    for (int i = 0; i < calls; i++) {
        pjrt_buffer *next;
        PJRT_TRY(pjrt_execute(exe, x, 1, NULL, &next, 1, NULL));
        pjrt_buffer_free(*x);
        *x = next;
        if (wait_each)
            PJRT_TRY(wait_for(*x));
    }
    return wait_for(*x);
}

/* Best of several rounds: the others were disturbed. */
static pjrt_status *measure(pjrt_executable *exe, pjrt_buffer **x, int calls, bool wait_each,
                            double *best)
{
    *best = 1e9;
    for (int round = 0; round < 7; round++) {
        double start = seconds();
        PJRT_TRY(chain(exe, x, calls, wait_each));
        double each = (seconds() - start) / calls;
        *best = each < *best ? each : *best;
    }
    return NULL;
}

static pjrt_status *run(const char *name, int calls)
{
    pjrt_plugin *plugin;
    pjrt_client *client = NULL;
    pjrt_executable *exe = NULL;
    pjrt_buffer *x = NULL;
    float zero = 0, end = 0;
    double queued = 0, waited = 0;
    pjrt_status *st = pjrt_plugin_load(name, &plugin);
    if (st == NULL)
        st = pjrt_client_create(plugin, NULL, &client);
    if (st == NULL)
        st = pjrt_compile(client, pjrt_program_text(program), NULL, &exe);
    if (st == NULL)
        st = pjrt_buffer_from_host(pjrt_client_device(client, 0), PJRT_F32, NULL, 0, &zero, NULL,
                                   NULL, &x);
    if (st == NULL)
        st = measure(exe, &x, calls, false, &queued);
    if (st == NULL)
        st = measure(exe, &x, calls, true, &waited);
    if (st == NULL)
        st = pjrt_buffer_to_host(x, &end, sizeof end, NULL);
    if (st == NULL && end != (float)(14 * calls))
        st = PJRT_FAIL(INTERNAL, "bench_dispatch", "%d calls counted to %g", 14 * calls, end);
    if (st == NULL)
        printf("{\"calls\": %d, \"queued_us\": %.3f, \"waited_us\": %.3f}\n", calls, 1e6 * queued,
               1e6 * waited);
    pjrt_buffer_free(x);
    pjrt_executable_free(exe);
    pjrt_client_free(client);
    return st;
}

int main(int argc, char **argv)
{
    pjrt_status *st = run(argc > 1 ? argv[1] : "cpu", argc > 2 ? atoi(argv[2]) : 20000);
    if (st != NULL)
        fprintf(stderr, "bench_dispatch: %s\n", pjrt_status_text(st));
    int code = st != NULL;
    pjrt_status_free(st);
    return code;
}
