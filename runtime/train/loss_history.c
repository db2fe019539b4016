/* Rolling figures of the last steps. */
#include "runtime/train/loss_history.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char call[] = "history";

static int64_t room(const ttt__loss_history *h)
{
    return h->window + 2;
}

static float *at(const ttt__loss_history *h, int64_t step)
{
    return h->values + step % room(h) * TTT__FIGURES;
}

pjrt_status *ttt__loss_history_new(int64_t window, ttt__loss_history *out)
{
    *out = (ttt__loss_history){.window = window};
    out->values = calloc((size_t)room(out) * TTT__FIGURES, sizeof *out->values);
    return out->values == NULL ? PJRT_NO_MEMORY(call) : NULL;
}

void ttt__loss_history_free(ttt__loss_history *history)
{
    free(history->values);
    *history = (ttt__loss_history){0};
}

void ttt__loss_history_add(ttt__loss_history *h, float loss, float norm, bool skipped)
{
    float *values = at(h, ++h->last);
    values[TTT__LOSS] = skipped ? NAN : loss;
    values[TTT__NORM] = skipped ? NAN : norm;
    if (h->kept < room(h))
        h->kept++;
}

bool ttt__loss_history_about(const ttt__loss_history *h, int64_t step, int which, double *mean,
                             double *deviation)
{
    double sum = 0, squares = 0;
    int64_t n = 0, first = step - h->window + 1;
    if (step > h->last || first <= h->last - h->kept || h->window < 2)
        return false;
    for (int64_t s = first; s <= step; s++) {
        double value = at(h, s)[which];
        if (!isfinite(value))
            continue;
        sum += value;
        n++;
    }
    if (n < 2 || n < h->window / 2)
        return false;
    *mean = sum / (double)n;
    for (int64_t s = first; s <= step; s++) {
        double value = at(h, s)[which];
        if (isfinite(value))
            squares += (value - *mean) * (value - *mean);
    }
    *deviation = sqrt(squares / (double)(n - 1));
    return true;
}

void ttt__loss_history_limits(const ttt__loss_history *h, int64_t step, double spike,
                              float limits[TTT__FIGURES])
{
    for (int i = 0; i < TTT__FIGURES; i++) {
        double mean, deviation;
        limits[i] = INFINITY;
        if (spike > 0 && ttt__loss_history_about(h, step, i, &mean, &deviation))
            limits[i] = (float)(mean + spike * deviation);
    }
}

double ttt__loss_history_z(const ttt__loss_history *h, int64_t step, int which, double value)
{
    double mean, deviation;
    if (!ttt__loss_history_about(h, step, which, &mean, &deviation) || deviation == 0)
        return NAN;
    return (value - mean) / deviation;
}

/* ---- on disk: bits of floats, so that infinities and NaN come back too -------------------------
 */

json_t *ttt__loss_history_json(const ttt__loss_history *h)
{
    json_t *list = json_array();
    for (int64_t s = h->last - h->kept + 1; s <= h->last; s++) {
        for (int i = 0; i < TTT__FIGURES; i++) {
            uint32_t bits;
            memcpy(&bits, &at(h, s)[i], sizeof bits);
            json_array_append_new(list, json_integer(bits));
        }
    }
    return json_pack("{s:I, s:I, s:o}", "window", (json_int_t)h->window, "last",
                     (json_int_t)h->last, "bits", list);
}

pjrt_status *ttt__loss_history_parse(ttt__loss_history *h, const json_t *json)
{
    const json_t *bits = json_object_get(json, "bits");
    int64_t last = json_integer_value(json_object_get(json, "last"));
    int64_t kept = (int64_t)json_array_size(bits) / TTT__FIGURES;
    if (json_integer_value(json_object_get(json, "window")) != h->window)
        return PJRT_FAIL(FAILED_PRECONDITION, call,
                         "the run kept its losses for windows of %lld steps, not %lld",
                         (long long)json_integer_value(json_object_get(json, "window")),
                         (long long)h->window);
    if (kept > room(h) || last < kept || !json_is_array(bits))
        return PJRT_FAIL(DATA_LOSS, call, "the losses of earlier steps are not well formed");
    h->last = last - kept;
    h->kept = 0;
    for (int64_t s = 0; s < kept; s++) {
        float values[TTT__FIGURES];
        for (int i = 0; i < TTT__FIGURES; i++) {
            uint32_t word =
                (uint32_t)json_integer_value(json_array_get(bits, (size_t)(s * TTT__FIGURES + i)));
            memcpy(&values[i], &word, sizeof word);
        }
        ttt__loss_history_add(h, values[TTT__LOSS], values[TTT__NORM], false);
    }
    return NULL;
}
