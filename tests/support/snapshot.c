/* Training states made from steps. */
#include "tests/support/snapshot.h"

#include <stdlib.h>
#include <string.h>

static size_t elements(const support_snapshot *s, int index)
{
    return (size_t)hlo_shape_elements(&s->params->list[index].shape);
}

bool support_snapshot_new(support_snapshot *s, ttt_layout layout)
{
    ttt_error error;
    bool ok = true;
    memset(s, 0, sizeof *s);
    if (!ttt_config_preset(&s->config, "tiny", "ttt_linear", "mamba", &error))
        return false;
    s->config.n_layers = 2;
    s->config.hidden_size = 8;
    s->config.intermediate_size = 12;
    s->config.vocab_size = 11;
    s->config.mini_batch_size = 4;
    s->params = ttt_params_new(&s->config, layout, &error);
    s->training = json_pack("{s:i}", "step", 0);
    ok = s->params != NULL && s->training != NULL;
    for (int set = 0; ok && set < TTT__SETS; set++) {
        s->sets[set] = calloc((size_t)s->params->count, sizeof(float *));
        ok = s->sets[set] != NULL;
        for (int i = 0; ok && i < s->params->count; i++)
            ok = (s->sets[set][i] = calloc(elements(s, i), sizeof(float))) != NULL;
    }
    if (!ok) {
        support_snapshot_free(s);
        return false;
    }
    s->snapshot =
        (ttt__snapshot){.config = &s->config, .params = s->params, .training = s->training};
    for (int set = 0; set < TTT__SETS; set++)
        s->snapshot.sets[set] = (const float *const *)s->sets[set];
    return true;
}

void support_snapshot_free(support_snapshot *s)
{
    for (int set = 0; set < TTT__SETS; set++) {
        for (int i = 0; s->sets[set] != NULL && i < s->params->count; i++)
            free(s->sets[set][i]);
        free(s->sets[set]);
    }
    ttt_params_free(s->params);
    json_decref(s->training);
}

/* Any function of the four will do, as long as it tells them apart. */
static float value(int64_t step, int set, int index, size_t k)
{
    uint64_t x = (uint64_t)step * 1000003 + (uint64_t)set * 7919 + (uint64_t)index * 104729 + k;
    x = (x ^ x >> 31) * UINT64_C(0x9e3779b97f4a7c15);
    return (float)(int64_t)(x >> 40) / 1024.0f;
}

void support_snapshot_step(support_snapshot *s, int64_t step)
{
    s->snapshot.step = step;
    json_integer_set(json_object_get(s->training, "step"), step);
    for (int set = 0; set < TTT__SETS; set++) {
        for (int i = 0; i < s->params->count; i++) {
            for (size_t k = 0; k < elements(s, i); k++)
                s->sets[set][i][k] = value(step, set, i, k);
        }
    }
}

bool support_snapshot_same(support_snapshot *s, const ttt__checkpoint *checkpoint)
{
    ttt_error error;
    int64_t step = checkpoint->step;
    bool same = json_integer_value(json_object_get(checkpoint->training, "step")) == step;
    for (int set = 0; same && set < TTT__SETS; set++) {
        same = ttt_params_match(s->params, checkpoint->sets[set], &error);
        for (int i = 0; same && i < s->params->count; i++) {
            float *found = calloc(elements(s, i), sizeof *found);
            same = found != NULL &&
                   ttt_params_load(s->params, i, checkpoint->sets[set], found, &error);
            for (size_t k = 0; same && k < elements(s, i); k++)
                same = found[k] == value(step, set, i, k);
            free(found);
        }
    }
    return same;
}
