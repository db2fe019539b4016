/* Configurations: the table of fields, the presets, and what contradicts what. */
#include "model/records.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool ttt__fail(ttt_error *error, const char *format, ...)
{
    if (error == NULL)
        return false;
    va_list args;
    va_start(args, format);
    vsnprintf(error->message, sizeof error->message, format, args);
    va_end(args);
    /* Names come from files: what is no text must not reach a terminal, nor break the line. */
    for (char *c = error->message; *c != '\0'; c++) {
        if ((unsigned char)*c < ' ' || *c == 127)
            *c = '?';
    }
    return false;
}

bool ttt__no_memory(ttt_error *error)
{
    return ttt__fail(error, "out of memory");
}

/* ---- fields ---------------------------------------------------------------------------------- */

static const char *const mixers[] = {"ttt_linear",       "ttt_mlp", "attention",
                                     "linear_attention", "mamba",   NULL};
static const char *const feature_maps[] = {"identity", "elu", NULL};
static const char *const activations[] = {"gelu", "swiglu", NULL};
static const char *const inner_optimizers[] = {"sgd", "muon", "adam", NULL};
static const char *const inner_losses[] = {"l2", "dot", NULL};
_Static_assert(sizeof(ttt_mixer) == sizeof(int) && sizeof(ttt_features) == sizeof(int) &&
                   sizeof(ttt_activation) == sizeof(int) && sizeof(ttt_inner_loss) == sizeof(int) &&
                   sizeof(ttt_inner_optimizer) == sizeof(int),
               "as fields of words are");

/* The limits keep every product of sizes below 2^62. */
#define FIELD(kind, name, hf, low, high)                                    \
    {                                                                       \
#name, hf, kind, offsetof(ttt_config, name), low, high, NULL, false \
    }
#define WORD(name, words)                                                      \
    {                                                                          \
#name, NULL, TTT__WORD, offsetof(ttt_config, name), 0, 0, words, false \
    }
/* Of learners beyond the paper's: the files of all others stay what they are. */
#define BEYOND(kind, name, low, high)                                        \
    {                                                                        \
#name, NULL, kind, offsetof(ttt_config, name), low, high, NULL, true \
    }
#define BEYOND_WORD(name, words)                                              \
    {                                                                         \
#name, NULL, TTT__WORD, offsetof(ttt_config, name), 0, 0, words, true \
    }
static const ttt__field fields[] = {
    WORD(mixer, mixers),
    FIELD(TTT__INT, vocab_size, "vocab_size", 1, 1 << 30),
    FIELD(TTT__INT, hidden_size, "hidden_size", 1, 1 << 20),
    FIELD(TTT__INT, intermediate_size, "intermediate_size", 0, 1 << 22),
    FIELD(TTT__INT, n_layers, "num_hidden_layers", 1, 1 << 12),
    FIELD(TTT__INT, n_heads, "num_attention_heads", 1, 1 << 16),
    FIELD(TTT__BOOL, tie_embeddings, "tie_word_embeddings", 0, 1),
    FIELD(TTT__REAL, norm_epsilon, "rms_norm_eps", 0, 1),
    FIELD(TTT__REAL, initializer_range, "initializer_range", 0, 1e3),
    FIELD(TTT__REAL, rope_theta, "rope_theta", 0, 1e12),
    FIELD(TTT__BOOL, pre_conv, "pre_conv", 0, 1),
    FIELD(TTT__BOOL, share_qk, "share_qk", 0, 1),
    FIELD(TTT__BOOL, use_gate, "use_gate", 0, 1),
    FIELD(TTT__INT, conv_width, "conv_kernel", 1, 1 << 10),
    FIELD(TTT__BOOL, post_norm, NULL, 0, 1),
    FIELD(TTT__INT, n_kv_heads, NULL, 0, 1 << 16),
    WORD(features, feature_maps),
    FIELD(TTT__INT, mamba_state, NULL, 1, 1 << 12),
    FIELD(TTT__INT, mamba_expand, NULL, 1, 1 << 4),
    FIELD(TTT__INT, mini_batch_size, "mini_batch_size", 0, 1 << 24),
    FIELD(TTT__REAL, ttt_base_lr, "ttt_base_lr", 0, 1e6),
    FIELD(TTT__INT, checkpoint_group, NULL, 0, 1 << 24),
    FIELD(TTT__BOOL, learnable_w0, NULL, 0, 1),
    FIELD(TTT__BOOL, inner_bias, NULL, 0, 1),
    FIELD(TTT__BOOL, inner_norm, NULL, 0, 1),
    FIELD(TTT__BOOL, learnable_lr, NULL, 0, 1),
    FIELD(TTT__BOOL, learnable_token_idx, NULL, 0, 1),
    BEYOND(TTT__INT, inner_layers, 0, 4),
    BEYOND(TTT__INT, inner_width, 1, 1 << 6),
    BEYOND_WORD(inner_activation, activations),
    BEYOND_WORD(inner_loss, inner_losses),
    BEYOND(TTT__BOOL, key_norm, 0, 1),
    BEYOND(TTT__BOOL, inner_decay, 0, 1),
    BEYOND(TTT__BOOL, inner_momentum, 0, 1),
    BEYOND(TTT__BOOL, inner_last_only, 0, 1),
    BEYOND_WORD(inner_optimizer, inner_optimizers),
    BEYOND(TTT__REAL, inner_step, 0, 1e3),
    BEYOND(TTT__REAL, inner_range, 0, 1e3),
};
enum { N_FIELDS = sizeof fields / sizeof *fields };

const ttt__field *ttt__config_fields(size_t *count)
{
    *count = N_FIELDS;
    return fields;
}

bool ttt_mixer_learns(ttt_mixer mixer)
{
    return mixer == TTT_MIXER_LINEAR || mixer == TTT_MIXER_MLP;
}

const char *ttt_mixer_name(ttt_mixer mixer)
{
    int count = sizeof mixers / sizeof *mixers;
    return (int)mixer >= 0 && (int)mixer < count ? mixers[mixer] : NULL;
}

bool ttt_config_set(ttt_config *config, const char *field, const char *value, ttt_error *error)
{
    const ttt__field *found = ttt__field_find(fields, N_FIELDS, field);
    if (found == NULL)
        return ttt__fail(error, "a configuration has no field \"%.60s\"", field);
    return ttt__field_set(config, found, value, error);
}

/* ---- presets --------------------------------------------------------------------------------- */

typedef struct preset {
    int64_t layers, hidden, heads, intermediate, vocab;
} preset;

static const char *const preset_names[] = {"125m",         "350m",  "760m", "1.3b",
                                           "1.3b-matched", "small", "tiny"};
static const preset presets[] = {
    {12, 768, 12, 2048, 32000},  {24, 1024, 16, 2736, 32000}, {24, 1536, 16, 4096, 32000},
    {24, 2048, 32, 5504, 32000}, {24, 2048, 32, 5504, 32000}, {4, 256, 4, 688, 32000},
    {4, 128, 2, 344, 512},
};
enum { N_PRESETS = sizeof presets / sizeof *presets };
_Static_assert(sizeof preset_names / sizeof *preset_names == N_PRESETS, "a name for each");

const char *const *ttt_config_presets(size_t *count)
{
    *count = N_PRESETS;
    return preset_names;
}

void ttt__config_defaults(ttt_config *config, ttt_mixer mixer)
{
    bool ttt = ttt_mixer_learns(mixer);
    *config = (ttt_config){
        .mixer = mixer,
        .vocab_size = 32000,
        .hidden_size = 2048,
        .intermediate_size = 5504,
        .n_layers = 24,
        .n_heads = 32,
        .tie_embeddings = true,
        .norm_epsilon = 1e-6,
        .initializer_range = 0.02,
        .rope_theta = mixer == TTT_MIXER_LINEAR_ATTENTION ? 0 : 10000,
        .conv_width = 4,
        .post_norm = ttt,
        .features = TTT_FEATURES_ELU,
        .mamba_state = 16,
        .mamba_expand = 2,
        .mini_batch_size = 16,
        .ttt_base_lr = mixer == TTT_MIXER_MLP ? 0.1 : 1.0,
        .checkpoint_group = 4,
        .learnable_w0 = true,
        .inner_bias = true,
        .inner_norm = true,
        .learnable_lr = true,
        .learnable_token_idx = true,
        .inner_width = 4,
    };
}

/* The paper's changes for as much training arithmetic as Mamba 1.4B. */
static bool match_mamba(ttt_config *config, ttt_error *error)
{
    switch (config->mixer) {
    case TTT_MIXER_LINEAR:
        config->intermediate_size = 5808;
        return true;
    case TTT_MIXER_MLP:
        config->intermediate_size = 5248;
        return true;
    case TTT_MIXER_ATTENTION:
        config->n_layers = 19;
        return true;
    case TTT_MIXER_MAMBA:
        return true;
    case TTT_MIXER_LINEAR_ATTENTION:
        break;
    }
    return ttt__fail(error, "preset 1.3b-matched: the paper has no linear_attention of that size");
}

bool ttt_config_preset(ttt_config *config, const char *name, const char *mixer,
                       const char *backbone, ttt_error *error)
{
    ttt_config made = {0};
    int index = 0;
    if (!ttt__field_set(&made, &fields[0], mixer, error))
        return false;
    while (index < N_PRESETS && strcmp(name, preset_names[index]) != 0)
        index++;
    if (index == N_PRESETS)
        return ttt__fail(error, "there is no preset \"%.60s\" (see ttt config list)", name);
    bool mamba = strcmp(backbone, "mamba") == 0;
    if (!mamba && strcmp(backbone, "transformer") != 0)
        return ttt__fail(error, "backbone: there is no \"%.60s\"; there are transformer, mamba",
                         backbone);
    ttt__config_defaults(&made, made.mixer);
    const preset *p = &presets[index];
    made.vocab_size = p->vocab;
    made.hidden_size = p->hidden;
    made.intermediate_size = p->intermediate;
    made.n_layers = p->layers;
    made.n_heads = p->heads;
    if (strcmp(name, "1.3b-matched") == 0 && !match_mamba(&made, error))
        return false;
    if (made.mixer != TTT_MIXER_MAMBA) {
        made.pre_conv = made.share_qk = made.use_gate = mamba;
    } else if (mamba) {
        made.n_layers *= 2;
        made.intermediate_size = 0;
    }
    *config = made;
    return true;
}

/* ---- contradictions -------------------------------------------------------------------------- */

static bool check_heads(const ttt_config *c, ttt_error *error)
{
    long long hidden = c->hidden_size, heads = c->n_heads, kv = c->n_kv_heads;
    if (c->mixer == TTT_MIXER_MAMBA)
        return true; /* has none */
    if (hidden % heads != 0)
        return ttt__fail(error, "hidden_size %lld is not a multiple of n_heads %lld", hidden,
                         heads);
    if (c->rope_theta != 0 && c->rope_theta < 1)
        return ttt__fail(error, "rope_theta %g is neither 0, for no rotation, nor from 1 on",
                         c->rope_theta);
    if (c->rope_theta != 0 && hidden / heads % 2 != 0)
        return ttt__fail(error,
                         "hidden_size %lld and n_heads %lld make odd heads, which rotary "
                         "embedding cannot pair",
                         hidden, heads);
    if (kv == 0)
        return true;
    if (c->mixer != TTT_MIXER_ATTENTION)
        return ttt__fail(error, "n_kv_heads %lld: only mixer=attention groups its heads", kv);
    if (heads % kv != 0)
        return ttt__fail(error, "n_heads %lld is not a multiple of n_kv_heads %lld", heads, kv);
    if (c->share_qk && kv != heads)
        return ttt__fail(error, "share_qk needs as many keys as queries, but n_kv_heads is %lld",
                         kv);
    return true;
}

bool ttt_config_check(const ttt_config *config, ttt_error *error)
{
    if (!ttt__fields_check(config, fields, N_FIELDS, error))
        return false;
    if (config->mixer == TTT_MIXER_MAMBA &&
        (config->pre_conv || config->share_qk || config->use_gate || config->post_norm))
        return ttt__fail(error,
                         "mixer=mamba has its own convolution and gate: %s=true does not go "
                         "with it",
                         config->pre_conv   ? "pre_conv"
                         : config->share_qk ? "share_qk"
                         : config->use_gate ? "use_gate"
                                            : "post_norm");
    return check_heads(config, error) && ttt__learner_check(config, error);
}
