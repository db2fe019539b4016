/*
 * How often kernels and packed weights choose another token than the compiled graph in f32: both
 * are given the graph's own greedy tokens, so one difference does not make the next. One line each.
 *
 *     bench_agreement MODEL STEPS
 */
#include "runtime/generate/ttt_generator.h"
#include "tools/cli/cmd.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    ttt_engine_options options;
    bool rounds; /* its state to bf16 after every token */
} rivals[] = {
    {"kernels, f32 weights", {.weights = HLO_F32}},
    {"kernels, bf16 weights", {.weights = HLO_BF16}},
    {"kernels, s8 weights", {.weights = HLO_S8}},
    {"kernels, bf16 state", {.weights = HLO_F32}, true},
};
enum { RIVALS = sizeof rivals / sizeof *rivals };

typedef struct comparing {
    ttt_devices *devices;
    ttt_engine *engines[1 + RIVALS]; /* the first is the graph's */
    float *logits[1 + RIVALS];
    int64_t vocab, differ[RIVALS];
    double divergence[RIVALS], worst[RIVALS];
} comparing;

static int64_t likeliest(const float *logits, int64_t count)
{
    int64_t best = 0;
    for (int64_t i = 1; i < count; i++)
        best = logits[i] > logits[best] ? i : best;
    return best;
}

static double log_sum(const float *logits, int64_t count)
{
    double most = logits[likeliest(logits, count)], sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += exp(logits[i] - most);
    return most + log(sum);
}

/* Kullback-Leibler, of the graph's distribution against another's. */
static double divergence(const float *p, const float *q, int64_t count)
{
    double log_p = log_sum(p, count), log_q = log_sum(q, count), sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += exp(p[i] - log_p) * ((p[i] - log_p) - (q[i] - log_q));
    return sum;
}

static pjrt_status *open_all(comparing *c, const char *folder)
{
    PJRT_TRY(ttt_devices_open("cpu", NULL, &c->devices));
    for (int i = 0; i <= RIVALS; i++) {
        ttt_engine_options options = {.no_kernels = true};
        if (i > 0)
            options = rivals[i - 1].options;
        PJRT_TRY(ttt_engine_open(c->devices, folder, &options, &c->engines[i]));
        c->vocab = ttt_engine_config(c->engines[0])->vocab_size;
        c->logits[i] = malloc((size_t)c->vocab * sizeof *c->logits[i]);
        if (c->logits[i] == NULL)
            return PJRT_NO_MEMORY("bench_agreement");
    }
    return NULL;
}

/* As if the state had been kept in bf16 since the last token. */
static pjrt_status *round_state(ttt_engine *engine)
{
    ttt_state *state = NULL, *rounded = NULL;
    pjrt_status *st = ttt_engine_take(engine, 0, &state);
    if (st == NULL)
        st = ttt_state_rounded(state, &rounded);
    if (st == NULL)
        st = ttt_engine_put(engine, 0, rounded);
    ttt_state_free(rounded);
    ttt_state_free(state);
    return st;
}

static pjrt_status *compare(comparing *c, int64_t steps)
{
    int32_t token = 1;
    for (int64_t s = 0; s < steps; s++) {
        for (int i = 0; i <= RIVALS; i++)
            PJRT_TRY(ttt_engine_step(c->engines[i], &token, c->logits[i]));
        int64_t best = likeliest(c->logits[0], c->vocab);
        for (int i = 0; i < RIVALS; i++) {
            if (rivals[i].rounds)
                PJRT_TRY(round_state(c->engines[1 + i]));
            double apart = divergence(c->logits[0], c->logits[1 + i], c->vocab);
            c->differ[i] += likeliest(c->logits[1 + i], c->vocab) != best;
            c->divergence[i] += apart;
            c->worst[i] = apart > c->worst[i] ? apart : c->worst[i];
        }
        /* Now and then another token than the likeliest, or the text is soon one word for ever. */
        token = (int32_t)(s % 13 == 12 ? (s * 7919) % c->vocab : best);
    }
    for (int i = 0; i < RIVALS; i++)
        printf("%-22s %lld of %lld argmax tokens differ (%.3f%%), KL mean %.2e, worst %.2e\n",
               rivals[i].name, (long long)c->differ[i], (long long)steps,
               100.0 * (double)c->differ[i] / (double)steps, c->divergence[i] / (double)steps,
               c->worst[i]);
    return NULL;
}

int main(int argc, char **argv)
{
    comparing c = {0};
    int64_t steps = argc > 2 ? atoll(argv[2]) : 0;
    if (steps < 1) {
        fprintf(stderr, "usage: bench_agreement MODEL STEPS\n");
        return CMD_WRONG_USE;
    }
    pjrt_status *st = open_all(&c, argv[1]);
    if (st == NULL)
        st = compare(&c, steps);
    if (st != NULL)
        fprintf(stderr, "bench_agreement: %s\n", pjrt_status_message(st));
    int code = st == NULL ? CMD_OK : CMD_FAILED;
    pjrt_status_free(st);
    for (int i = 0; i <= RIVALS; i++) {
        ttt_engine_free(c.engines[i]);
        free(c.logits[i]);
    }
    ttt_devices_free(c.devices);
    return code;
}
