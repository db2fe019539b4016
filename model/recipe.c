/* Recipes: the table of fields, the paper's presets, JSON both ways. */
#include "model/ttt_train.h"

#include "model/records.h"

#include <string.h>

/* ---- fields ---------------------------------------------------------------------------------- */

/* Steps are counted in s32 and rates computed from them in f32, which counts to 2^24 exactly. */
#define MOST_STEPS ((double)(1 << 24))
#define WHOLE(name, low, high)                                             \
    {                                                                      \
#name, NULL, TTT__INT, offsetof(ttt_recipe, name), low, high, NULL \
    }
#define REAL(name, low, high)                                               \
    {                                                                       \
#name, NULL, TTT__REAL, offsetof(ttt_recipe, name), low, high, NULL \
    }
static const ttt__field fields[] = {
    WHOLE(steps, 1, MOST_STEPS),
    WHOLE(warmup_steps, 0, MOST_STEPS),
    REAL(peak_lr, 0, 1e3),
    REAL(end_lr, 0, 1e3),
    REAL(b1, 0, 1),
    REAL(b2, 0, 1),
    REAL(epsilon, 0, 1),
    REAL(decay, 0, 1e3),
    REAL(clip_norm, 0, 1e9),
    WHOLE(batch_tokens, 1, (double)(1ll << 40)),
    WHOLE(sequence_length, 1, (double)(1ll << 30)),
    REAL(ttt_base_lr_init, 0, 1e6),
    WHOLE(ttt_base_lr_warmup, 0, MOST_STEPS),
    REAL(z_loss, 0, 1e3),
    WHOLE(masked_label, -1, (double)(1 << 30)),
    WHOLE(seed, 0, (double)(1ll << 53)),
};
enum { N_FIELDS = sizeof fields / sizeof *fields };

/* NULL on error. */
static const ttt__field *find(const char *name, ttt_error *error)
{
    const ttt__field *field = ttt__field_find(fields, N_FIELDS, name);
    if (field == NULL)
        ttt__fail(error, "a recipe has no field \"%.60s\"", name);
    return field;
}

bool ttt_recipe_set(ttt_recipe *recipe, const char *name, const char *value, ttt_error *error)
{
    const ttt__field *field = find(name, error);
    return field != NULL && ttt__field_set(recipe, field, value, error);
}

bool ttt_recipe_check(const ttt_recipe *recipe, ttt_error *error)
{
    if (!ttt__fields_check(recipe, fields, N_FIELDS, error))
        return false;
    if (recipe->warmup_steps >= recipe->steps)
        return ttt__fail(error, "warmup_steps %lld leaves nothing of steps %lld",
                         (long long)recipe->warmup_steps, (long long)recipe->steps);
    if (recipe->end_lr > recipe->peak_lr)
        return ttt__fail(error, "end_lr %g is above peak_lr %g", recipe->end_lr, recipe->peak_lr);
    if (recipe->b1 == 1 || recipe->b2 == 1)
        return ttt__fail(error, "%s: 1 is a mean that nothing enters",
                         recipe->b1 == 1 ? "b1" : "b2");
    if (recipe->batch_tokens % recipe->sequence_length != 0)
        return ttt__fail(error, "batch_tokens %lld is not a multiple of sequence_length %lld",
                         (long long)recipe->batch_tokens, (long long)recipe->sequence_length);
    return true;
}

/* ---- presets --------------------------------------------------------------------------------- */

typedef struct preset {
    const char *name;
    int64_t steps, warmup;
    double peak;
    int64_t batch_tokens, sequence_length, masked_label;
} preset;

static const preset presets[] = {
    {"125m", 4800, 480, 3e-3, 1 << 19, 2048, 1},
    {"350m", 13500, 1350, 1.5e-3, 1 << 19, 2048, 1},
    {"760m", 29000, 2900, 1.25e-3, 1 << 19, 2048, 1},
    {"1.3b", 50000, 5000, 1e-3, 1 << 19, 2048, 1},
    {"1.3b-matched", 50000, 5000, 1e-3, 1 << 19, 2048, 1},
    {"small", 1000, 100, 3e-3, 1 << 14, 512, -1},
    {"tiny", 1000, 100, 3e-3, 1 << 12, 256, -1},
};
enum { N_PRESETS = sizeof presets / sizeof *presets };

static bool is_mixer(const char *name)
{
    const char *known;
    for (int i = 0; (known = ttt_mixer_name((ttt_mixer)i)) != NULL; i++) {
        if (strcmp(known, name) == 0)
            return true;
    }
    return false;
}

bool ttt_recipe_preset(ttt_recipe *recipe, const char *name, const char *mixer, ttt_error *error)
{
    int index = 0;
    while (index < N_PRESETS && strcmp(name, presets[index].name) != 0)
        index++;
    if (index == N_PRESETS)
        return ttt__fail(error, "there is no recipe for a preset \"%.60s\" (see ttt config list)",
                         name);
    if (!is_mixer(mixer))
        return ttt__fail(error, "mixer: there is no \"%.60s\"", mixer);
    const preset *p = &presets[index];
    bool mlp = strcmp(mixer, ttt_mixer_name(TTT_MIXER_MLP)) == 0;
    *recipe = (ttt_recipe){
        .steps = p->steps,
        .warmup_steps = p->warmup,
        .peak_lr = p->peak,
        .end_lr = 1e-5,
        .b1 = 0.9,
        .b2 = 0.95,
        .epsilon = 1e-8,
        .decay = 0.1,
        .clip_norm = 1,
        .batch_tokens = p->batch_tokens,
        .sequence_length = p->sequence_length,
        .ttt_base_lr_init = mlp ? 0.01 : 0,
        .ttt_base_lr_warmup = mlp ? p->warmup : 0,
        .masked_label = p->masked_label,
    };
    return true;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

char *ttt_recipe_text(const ttt_recipe *recipe, ttt_error *error)
{
    if (!ttt_recipe_check(recipe, error))
        return NULL;
    json_t *root = json_object();
    bool ok = ttt__fields_put(recipe, fields, N_FIELDS, root);
    return ttt__fields_dump(recipe, fields, N_FIELDS, root, ok, error);
}

static bool set_json(ttt_recipe *recipe, const char *name, const json_t *value, ttt_error *error)
{
    const ttt__field *field = find(name, error);
    if (field == NULL)
        return false;
    const char *wanted = ttt__field_wants(field, value);
    if (wanted != NULL)
        return ttt__fail(error, "%s: not %s", name, wanted);
    return ttt__field_set_json(recipe, field, value, error);
}

bool ttt_recipe_parse(ttt_recipe *recipe, const char *json, size_t size, ttt_error *error)
{
    ttt_recipe made = *recipe;
    json_t *root = ttt__json_load(json, size, 1 << 16, 4, "a recipe", error), *value;
    const char *name;
    bool ok = root != NULL;
    if (ok && !json_is_object(root))
        ok = ttt__fail(error, "a recipe: not an object");
    json_object_foreach(root, name, value)
    {
        ok = ok && set_json(&made, name, value, error);
    }
    json_decref(root);
    ok = ok && ttt_recipe_check(&made, error);
    if (ok)
        *recipe = made;
    return ok;
}
