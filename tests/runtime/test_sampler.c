/* Every rule of sampling against a plain reference that sorts, and the draws against chance. */
#include "runtime/generate/ttt_generator.h"
#include "tests/support/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { VOCAB = 400 };

static uint64_t noise = 1;

static double uniform(void)
{
    noise = noise * 6364136223846793005u + 1442695040888963407u;
    return (double)(noise >> 11) * 0x1p-53;
}

/* Logits of many shapes: flat, steep, and with many that are equal. */
static void make_logits(float *logits, int n)
{
    double scale = n % 3 == 0 ? 0.01 : n % 3 == 1 ? 3 : 1;
    for (int i = 0; i < VOCAB; i++) {
        double value = (uniform() + uniform() + uniform() - 1.5) * 4 * scale;
        logits[i] = (float)(n % 4 == 0 ? round(value * 4) / 4 : value);
    }
}

typedef struct ranked {
    double p;
    int token;
} ranked;

static int by_rank(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    if (x->p != y->p)
        return x->p > y->p ? -1 : 1;
    return x->token - y->token;
}

/* Probabilities of all tokens under the rules, by sorting; 0 for those left out. */
static void reference(const ttt_sampling *r, const float *logits, const int32_t *seen, int n_seen,
                      double *out)
{
    ranked list[VOCAB];
    double changed[VOCAB], most = -INFINITY, sum = 0;
    for (int i = 0; i < VOCAB; i++) {
        bool before = false;
        for (int k = 0; k < n_seen; k++)
            before |= seen[k] == i;
        float by = before && r->repetition != 0 ? (float)r->repetition : 1;
        changed[i] = logits[i] > 0 ? logits[i] / by : logits[i] * by;
        most = fmax(most, changed[i]);
    }
    for (int i = 0; i < VOCAB; i++)
        list[i] = (ranked){exp((changed[i] - most) / r->temperature), i};
    qsort(list, VOCAB, sizeof *list, by_rank);
    int count = r->top_k > 0 && r->top_k < VOCAB ? (int)r->top_k : VOCAB;
    for (int i = 0; i < count; i++)
        sum += list[i].p;
    if (r->top_p > 0 && r->top_p < 1) {
        double need = r->top_p * sum, have = 0;
        int kept = 0;
        while (kept < count && have < need - 1e-9)
            have += list[kept++].p;
        count = kept;
    }
    while (count > 1 && list[count - 1].p < r->min_p)
        count--;
    sum = 0;
    for (int i = 0; i < count; i++)
        sum += list[i].p;
    memset(out, 0, VOCAB * sizeof *out);
    for (int i = 0; i < count; i++)
        out[list[i].token] = list[i].p / sum;
}

/* ---- the rules ---------------------------------------------------------------------------------
 */

/* All that is drawn may be drawn, and all that may be is drawn, about as often as it should. */
static void assert_draws(const ttt_sampling *rules, const float *logits, int n)
{
    enum { DRAWS = 2000 };
    double expected[VOCAB], chi = 0;
    int counts[VOCAB] = {0}, cells = 0;
    ttt_sampler *sampler;
    ttt_sampling once = *rules;
    once.repetition = 0; /* so that all draws are alike */
    reference(&once, logits, NULL, 0, expected);
    ASSERT_OK(ttt_sampler_new(&once, VOCAB, &sampler));
    for (int i = 0; i < DRAWS; i++) {
        int32_t token;
        double logprob;
        ASSERT_OK(ttt_sampler_next(sampler, logits, &token, &logprob));
        assert_in_range(token, 0, VOCAB - 1);
        if (expected[token] == 0)
            fail_msg("case %d: token %d was to be left out", n, token);
        counts[token]++;
    }
    double rest = 0, rest_count = 0;
    for (int i = 0; i < VOCAB; i++) {
        double mean = expected[i] * DRAWS;
        if (mean < 5) { /* too few for a cell of their own */
            rest += mean;
            rest_count += counts[i];
            continue;
        }
        chi += (counts[i] - mean) * (counts[i] - mean) / mean;
        cells++;
    }
    if (rest >= 5) {
        chi += (rest_count - rest) * (rest_count - rest) / rest;
        cells++;
    }
    /* Of a chi-square with k degrees: the mean is k, the deviation the root of 2 k. */
    if (cells > 1 && chi > cells - 1 + 5 * sqrt(2.0 * (cells - 1)) + 5)
        fail_msg("case %d: chi-square %g of %d cells", n, chi, cells);
    ttt_sampler_free(sampler);
}

static void draws_follow_the_rules(void **state)
{
    (void)state;
    static const ttt_sampling cases[] = {
        {.temperature = 1},
        {.temperature = 0.5},
        {.temperature = 2},
        {.temperature = 1, .top_k = 1},
        {.temperature = 1, .top_k = 7},
        {.temperature = 1, .top_k = VOCAB + 5},
        {.temperature = 1, .top_p = 0.5},
        {.temperature = 0.8, .top_p = 0.95},
        {.temperature = 1, .top_p = 1e-9},
        {.temperature = 1, .min_p = 0.2},
        {.temperature = 1, .min_p = 1},
        {.temperature = 1.5, .top_k = 40, .top_p = 0.9, .min_p = 0.05},
    };
    float logits[VOCAB];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int n = 0; n < 12; n++) {
            ttt_sampling rules = cases[i];
            rules.seed = (uint64_t)n;
            make_logits(logits, n);
            assert_draws(&rules, logits, (int)i * 100 + n);
        }
    }
}

/* The set that is left, exactly: 400 tokens, every k. */
static void every_top_k(void **state)
{
    (void)state;
    float logits[VOCAB];
    double expected[VOCAB];
    for (int k = 1; k <= VOCAB; k += k < 20 ? 1 : 37) {
        ttt_sampling rules = {.temperature = 100, .top_k = k, .seed = 5};
        ttt_sampler *sampler;
        int found = 0;
        bool drawn[VOCAB] = {false};
        make_logits(logits, k);
        reference(&rules, logits, NULL, 0, expected);
        ASSERT_OK(ttt_sampler_new(&rules, VOCAB, &sampler));
        for (int i = 0; i < 40 * k; i++) {
            int32_t token;
            ASSERT_OK(ttt_sampler_next(sampler, logits, &token, NULL));
            assert_true(expected[token] > 0);
            found += !drawn[token];
            drawn[token] = true;
        }
        assert_int_equal(found, k);
        ttt_sampler_free(sampler);
    }
}

static void greedy_and_repetition(void **state)
{
    (void)state;
    float logits[VOCAB];
    for (int n = 0; n < 60; n++) {
        ttt_sampling rules = {.repetition = n % 2 ? 1.7 : 0.5, .window = 5}, one = rules;
        ttt_sampler *sampler;
        int32_t seen[64];
        int n_seen = 0;
        make_logits(logits, n);
        one.temperature = 1; /* for the reference, whose largest is the likeliest */
        ASSERT_OK(ttt_sampler_new(&rules, VOCAB, &sampler));
        for (int i = 0; i < 8; i++) {
            seen[n_seen++] = (int32_t)(uniform() * VOCAB);
            ttt_sampler_see(sampler, &seen[n_seen - 1], 1);
        }
        for (int i = 0; i < 20; i++) {
            double p[VOCAB], logprob, sum = 0;
            int32_t token, best = 0;
            reference(&one, logits, seen + n_seen - 5, 5, p);
            for (int k = 1; k < VOCAB; k++)
                best = p[k] > p[best] ? k : best;
            ASSERT_OK(ttt_sampler_next(sampler, logits, &token, &logprob));
            assert_int_equal(token, best);
            for (int k = 0; k < VOCAB; k++)
                sum += exp(logits[k]);
            assert_true(fabs(logprob - (logits[token] - log(sum))) < 1e-9);
            seen[n_seen++] = token;
        }
        ttt_sampler_free(sampler);
    }
}

/* ---- chance ------------------------------------------------------------------------------------
 */

static void the_seed_decides(void **state)
{
    (void)state;
    float logits[VOCAB];
    int same = 0;
    ttt_sampling rules = {.temperature = 1, .top_p = 0.9, .seed = 11};
    ttt_sampler *a, *b, *c;
    ASSERT_OK(ttt_sampler_new(&rules, VOCAB, &a));
    ASSERT_OK(ttt_sampler_new(&rules, VOCAB, &b));
    rules.seed = 12;
    ASSERT_OK(ttt_sampler_new(&rules, VOCAB, &c));
    for (int i = 0; i < 500; i++) {
        int32_t x, y, z;
        make_logits(logits, i);
        ASSERT_OK(ttt_sampler_next(a, logits, &x, NULL));
        ASSERT_OK(ttt_sampler_next(b, logits, &y, NULL));
        ASSERT_OK(ttt_sampler_next(c, logits, &z, NULL));
        assert_int_equal(x, y);
        same += x == z;
    }
    assert_true(same < 250);
    ttt_sampler_free(a);
    ttt_sampler_free(b);
    ttt_sampler_free(c);
}

static void bad_numbers_are_refused(void **state)
{
    (void)state;
    static const struct {
        ttt_sampling rules;
        const char *what;
    } wrong[] = {
        {{.temperature = -1}, "temperature"},
        {{.temperature = NAN}, "temperature"},
        {{.top_k = -1}, "top_k"},
        {{.top_p = 1.5}, "top_p"},
        {{.top_p = NAN}, "top_p"},
        {{.min_p = -0.1}, "min_p"},
        {{.repetition = -2}, "repetition"},
        {{.repetition = INFINITY}, "repetition"},
        {{.window = -1}, "window"},
    };
    ttt_sampler *sampler;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        ASSERT_FAILS(ttt_sampler_new(&wrong[i].rules, 4, &sampler), INVALID_ARGUMENT,
                     wrong[i].what);
        assert_null(sampler);
    }
    ASSERT_FAILS(ttt_sampler_new(&(ttt_sampling){0}, 0, &sampler), INVALID_ARGUMENT, "vocabulary");
    static const float broken[] = {NAN, INFINITY, -INFINITY};
    ASSERT_OK(ttt_sampler_new(&(ttt_sampling){.temperature = 1}, 4, &sampler));
    for (int i = 0; i < 3; i++) {
        float logits[4] = {0, 1, 2, 3};
        int32_t token;
        logits[i + 1] = broken[i];
        ASSERT_FAILS(ttt_sampler_next(sampler, logits, &token, NULL), DATA_LOSS, "broken");
    }
    ttt_sampler_free(sampler);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_follow_the_rules),  cmocka_unit_test(every_top_k),
        cmocka_unit_test(greedy_and_repetition),   cmocka_unit_test(the_seed_decides),
        cmocka_unit_test(bad_numbers_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
