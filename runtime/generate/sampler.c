/* The next token from logits. No list is sorted: what a rule leaves is found by partial selection,
 * and the draw goes over it in the order of the vocabulary. */
#include "runtime/generate/ttt_generator.h"

#include <Random123/threefry.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char call[] = "sampler";
enum { WINDOW = 64 };

/* A token that may be chosen. */
typedef struct choice {
    double weight; /* in proportion to its probability; the likeliest has 1 */
    int32_t token;
} choice;

struct ttt_sampler {
    ttt_sampling rules;
    int64_t vocab;
    uint64_t draws;
    int32_t *seen; /* a ring of the last tokens */
    int64_t n_seen;
    float *logits; /* after the penalty */
    choice *choices;
    double *weights; /* of those that are left, by token; 0 of all others */
};

pjrt_status *ttt_sampling_check(const ttt_sampling *s)
{
    if (!(s->temperature >= 0 && s->temperature <= 100))
        return PJRT_FAIL(INVALID_ARGUMENT, call, "temperature %g is not from 0 to 100",
                         s->temperature);
    if (s->top_k < 0)
        return PJRT_FAIL(INVALID_ARGUMENT, call, "top_k %lld is negative", (long long)s->top_k);
    if (!(s->top_p >= 0 && s->top_p <= 1))
        return PJRT_FAIL(INVALID_ARGUMENT, call, "top_p %g is not from 0 to 1", s->top_p);
    if (!(s->min_p >= 0 && s->min_p <= 1))
        return PJRT_FAIL(INVALID_ARGUMENT, call, "min_p %g is not from 0 to 1", s->min_p);
    if (s->repetition != 0 && !(s->repetition >= 0.01 && s->repetition <= 100))
        return PJRT_FAIL(INVALID_ARGUMENT, call,
                         "a repetition penalty of %g is not from 0.01 to 100", s->repetition);
    if (s->window < 0 || s->window > 1 << 24)
        return PJRT_FAIL(INVALID_ARGUMENT, call, "a window of %lld tokens is not from 0 to %d",
                         (long long)s->window, 1 << 24);
    return NULL;
}

pjrt_status *ttt_sampler_new(const ttt_sampling *sampling, int64_t vocab, ttt_sampler **out)
{
    *out = NULL;
    PJRT_TRY(ttt_sampling_check(sampling));
    if (vocab < 1 || vocab > INT32_MAX)
        return PJRT_FAIL(INVALID_ARGUMENT, call, "a vocabulary of %lld tokens", (long long)vocab);
    ttt_sampler *s = calloc(1, sizeof *s);
    if (s == NULL)
        return PJRT_NO_MEMORY(call);
    s->rules = *sampling;
    s->vocab = vocab;
    if (s->rules.window == 0)
        s->rules.window = WINDOW;
    s->seen = calloc((size_t)s->rules.window, sizeof *s->seen);
    s->logits = calloc((size_t)vocab, sizeof *s->logits);
    s->choices = calloc((size_t)vocab, sizeof *s->choices);
    s->weights = calloc((size_t)vocab, sizeof *s->weights);
    if (s->seen == NULL || s->logits == NULL || s->choices == NULL || s->weights == NULL) {
        ttt_sampler_free(s);
        return PJRT_NO_MEMORY(call);
    }
    *out = s;
    return NULL;
}

void ttt_sampler_free(ttt_sampler *s)
{
    if (s == NULL)
        return;
    free(s->seen);
    free(s->logits);
    free(s->choices);
    free(s->weights);
    free(s);
}

void ttt_sampler_see(ttt_sampler *s, const int32_t *tokens, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        if (tokens[i] >= 0 && tokens[i] < s->vocab)
            s->seen[s->n_seen++ % s->rules.window] = tokens[i];
    }
}

/* ---- the rules ---------------------------------------------------------------------------------
 */

/* Each token of the window once: what is already different has been seen in it before. */
static void penalize(const ttt_sampler *s, const float *before)
{
    int64_t count = s->n_seen < s->rules.window ? s->n_seen : s->rules.window;
    float by = (float)s->rules.repetition;
    if (by == 0 || by == 1)
        return;
    for (int64_t i = 0; i < count; i++) {
        float logit = before[s->seen[i]];
        s->logits[s->seen[i]] = logit > 0 ? logit / by : logit * by;
    }
}

static bool comes_before(const choice *a, const choice *b)
{
    return a->weight > b->weight || (a->weight == b->weight && a->token < b->token);
}

static void swap(choice *a, choice *b)
{
    choice c = *a;
    *a = *b;
    *b = c;
}

/* Puts what comes before a middling one of [from, to) in front of it; where that one is then. */
static int64_t part(choice *list, int64_t from, int64_t to)
{
    choice *a = &list[from], *b = &list[from + (to - from) / 2], *last = &list[to - 1];
    if (comes_before(b, a))
        swap(a, b);
    if (comes_before(last, b))
        swap(b, last);
    if (comes_before(b, a))
        swap(a, b);
    swap(b, last);
    int64_t middle = from;
    for (int64_t i = from; i < to - 1; i++) {
        if (comes_before(&list[i], last))
            swap(&list[i], &list[middle++]);
    }
    swap(&list[middle], last);
    return middle;
}

/* The smallest head of the list, were it sorted, that adds up to `need`: by weights, or by count.
 * Returns how many they are; they stand in front then. */
static int64_t head(choice *list, int64_t count, double need, bool by_count)
{
    int64_t from = 0, to = count; /* all before `from` are in it, none from `to` on */
    while (to > from && need > 0) {
        int64_t middle = part(list, from, to);
        double sum = 0;
        for (int64_t i = from; i < middle; i++)
            sum += by_count ? 1 : list[i].weight;
        if (sum >= need) {
            to = middle;
        } else {
            need -= sum + (by_count ? 1 : list[middle].weight);
            from = middle + 1;
        }
    }
    return from;
}

static double sum_of(const choice *list, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += list[i].weight;
    return sum;
}

static int64_t likeliest(const float *logits, int64_t count)
{
    int64_t best = 0;
    for (int64_t i = 1; i < count; i++)
        best = logits[i] > logits[best] ? i : best;
    return best;
}

/* All tokens, then what the rules leave of them. */
static int64_t choose_from(const ttt_sampler *s)
{
    const ttt_sampling *r = &s->rules;
    int64_t count = s->vocab;
    double most = s->logits[likeliest(s->logits, s->vocab)];
    for (int64_t i = 0; i < count; i++)
        s->choices[i] = (choice){exp((s->logits[i] - most) / r->temperature), (int32_t)i};
    if (r->top_k > 0 && r->top_k < count)
        count = head(s->choices, count, (double)r->top_k, true);
    if (r->top_p > 0 && r->top_p < 1)
        count = head(s->choices, count, r->top_p * sum_of(s->choices, count), false);
    int64_t kept = 0;
    for (int64_t i = 0; i < count; i++) {
        if (s->choices[i].weight >= r->min_p)
            s->choices[kept++] = s->choices[i];
    }
    return kept;
}

/* In the order of the vocabulary, the first at which the sum of weights is above a share of the
 * whole. */
static int32_t draw(const ttt_sampler *s)
{
    int64_t count = choose_from(s);
    threefry2x64_ctr_t number = {{s->draws, 0}};
    threefry2x64_key_t key = {{s->rules.seed, 0}};
    double share = (double)(threefry2x64(number, key).v[0] >> 11) * 0x1p-53;
    double left = share * sum_of(s->choices, count);
    memset(s->weights, 0, (size_t)s->vocab * sizeof *s->weights);
    for (int64_t i = 0; i < count; i++)
        s->weights[s->choices[i].token] = s->choices[i].weight;
    int32_t last = 0; /* for a share that rounding leaves nothing of */
    for (int64_t i = 0; i < s->vocab; i++) {
        if (s->weights[i] == 0)
            continue;
        last = (int32_t)i;
        left -= s->weights[i];
        if (left < 0)
            break;
    }
    return last;
}

/* log(softmax(logits)[token]) */
static double log_share(const float *logits, int64_t count, int32_t token)
{
    double most = logits[likeliest(logits, count)], sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += exp(logits[i] - most);
    return logits[token] - most - log(sum);
}

pjrt_status *ttt_sampler_next(ttt_sampler *s, const float *logits, int32_t *token, double *logprob)
{
    for (int64_t i = 0; i < s->vocab; i++) {
        if (!isfinite(logits[i]))
            return PJRT_FAIL(DATA_LOSS, call,
                             "the logit of token %lld is %g: the model's numbers are broken",
                             (long long)i, (double)logits[i]);
    }
    memcpy(s->logits, logits, (size_t)s->vocab * sizeof *logits);
    penalize(s, logits);
    *token = s->rules.temperature == 0 ? (int32_t)likeliest(s->logits, s->vocab) : draw(s);
    s->draws++;
    if (logprob != NULL)
        *logprob = log_share(logits, s->vocab, *token);
    ttt_sampler_see(s, token, 1);
    return NULL;
}
