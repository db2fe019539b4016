/*
 * model: the TTT network and its baselines as graphs of hlo_builder.
 *
 *     #include "model/ttt_model.h"
 *
 *     ttt_error error;
 *     ttt_config config;
 *     ttt_params *params = NULL;
 *     hlo_graph *g = hlo_graph_new("logits");
 *     if (!ttt_config_preset(&config, "tiny", "ttt_linear", "transformer", &error) ||
 *         (params = ttt_params_new(&config, &error)) == NULL)
 *         fprintf(stderr, "%s\n", error.message);
 *     else {
 *         hlo_val tokens = hlo_param(g, "tokens", HLO_SHAPE(HLO_S32, 1, 64));
 *         hlo_val *values = calloc(params->count, sizeof *values);
 *         ttt_params_bind(g, params, values); // one graph parameter each
 *         ttt_net net = {&config, params, values};
 *         hlo_result(g, "logits", ttt_logits(g, &net, tokens));
 *         …
 *     }
 *
 * Numerics follow the public reference implementation to the letter; the paper's own forms, where
 * they differ, are options. Configurations and parameters are plain data; graphs are described,
 * never run here. Functions that can fail return false or NULL and fill in a ttt_error; graph
 * building fails as hlo_builder does, by the graph's sticky error.
 */
#ifndef MODEL_TTT_MODEL_H
#define MODEL_TTT_MODEL_H

#include "hlo_builder/hlo.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ttt_error {
    char message[512]; /* one line that says what to do */
} ttt_error;

/* ---- configuration -----------------------------------------------------------------------------
 */

typedef enum ttt_mixer {
    TTT_MIXER_LINEAR,           /* "ttt_linear" */
    TTT_MIXER_MLP,              /* "ttt_mlp" */
    TTT_MIXER_ATTENTION,        /* "attention" */
    TTT_MIXER_LINEAR_ATTENTION, /* "linear_attention" */
    TTT_MIXER_MAMBA,            /* "mamba" */
} ttt_mixer;

/* Everything that shapes the network. Names are those of --set and of JSON. */
typedef struct ttt_config {
    ttt_mixer mixer;
    int64_t vocab_size, hidden_size, intermediate_size, n_layers, n_heads;
    bool tie_embeddings;
    double norm_epsilon, initializer_range, rope_theta;
    /* the backbone: "mamba" sets the first three, "transformer" none */
    bool pre_conv, share_qk, use_gate;
    int64_t conv_width;
    /* the inner learner */
    int64_t mini_batch_size; /* 0: the whole sequence is one */
    double ttt_base_lr;
    int64_t checkpoint_group; /* mini-batches between kept states; 0: keep all */
} ttt_config;

/* Presets: 125m, 350m, 760m, 1.3b, small, tiny. `backbone` is "transformer" or "mamba". */
bool ttt_config_preset(ttt_config *config, const char *preset, const char *mixer,
                       const char *backbone, ttt_error *error);
/* One field by name: "n_layers", "12". Unknown fields and values out of range are refused by name.
 */
bool ttt_config_set(ttt_config *config, const char *field, const char *value, ttt_error *error);
/* Contradictions between fields, by name. */
bool ttt_config_check(const ttt_config *config, ttt_error *error);
const char *ttt_mixer_name(ttt_mixer mixer);
const char *const *ttt_config_presets(size_t *count);

/* ---- parameters --------------------------------------------------------------------------------
 */

typedef enum ttt_init {
    TTT_INIT_ZEROS,
    TTT_INIT_ONES,
    TTT_INIT_NORMAL,       /* standard deviation `scale` */
    TTT_INIT_LECUN_NORMAL, /* truncated at two deviations, variance 1 / fan-in; `scale` is the
                              fan-in */
} ttt_init;

/* One parameter: the only place that says what it is called, how large it is, how it starts, how it
 * is split over a mesh and whether it decays. Shapes are as the graph uses them: matrices are [in,
 * out]. */
typedef struct ttt_param {
    const char *name; /* of Hugging Face's state dict: "model.layers.0.mlp.up_proj.weight" */
    hlo_shape shape;  /* f32 */
    bool transposed;  /* stored [out, in] in files */
    ttt_init init;
    double scale;
    hlo_spec spec; /* mesh axes "fsdp" and "model" */
    bool decay;
} ttt_param;

typedef struct ttt_params {
    ttt_param *list;
    int count;
    int64_t elements;
} ttt_params;

ttt_params *ttt_params_new(const ttt_config *config, ttt_error *error);
void ttt_params_free(ttt_params *params);
/* Index of the parameter with that name; -1 when there is none. */
int ttt_params_find(const ttt_params *params, const char *name);

/* ---- graphs ------------------------------------------------------------------------------------
 */

/* A configuration, its parameters and the values that stand for them in a graph. */
typedef struct ttt_net {
    const ttt_config *config;
    const ttt_params *params;
    const hlo_val *values; /* one a parameter, in the table's order */
} ttt_net;

/* Adds a graph parameter, with its sharding, for each of the table; fills in `values`. */
void ttt_params_bind(hlo_graph *g, const ttt_params *params, hlo_val *values);

/* Logits [batch, time, vocab] of tokens [batch, time] (s32), whole mini-batches by the dual form.
 * Any length will do: what is left over forms a shorter mini-batch. */
hlo_val ttt_logits(hlo_graph *g, const ttt_net *net, hlo_val tokens);
/* Mean cross-entropy of tokens against labels, both [batch, time], in f32. */
hlo_val ttt_loss(hlo_graph *g, const ttt_net *net, hlo_val tokens, hlo_val labels);

#endif
