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
 *         (params = ttt_params_new(&config, TTT_STACKED, &error)) == NULL)
 *         fprintf(stderr, "%s\n", error.message);
 *     else {
 *         hlo_val tokens = hlo_param(g, "tokens", HLO_SHAPE(HLO_S32, 1, 64));
 *         hlo_val *values = calloc(params->count, sizeof *values);
 *         ttt_params_bind(g, params, HLO_F32, values); // one graph parameter each
 *         ttt_net net = {.config = &config, .params = params, .values = values};
 *         hlo_result(g, "logits", ttt_logits(g, &net, &(ttt_input){.tokens = tokens}, NULL));
 *         …
 *     }
 *
 * Numerics follow the public reference implementation to the letter; the paper's own forms, where
 * they differ, and learners that came after it are options. Configurations and parameters are plain
 * data; graphs are described, never run here. Functions that can fail return false or NULL and fill
 * in a ttt_error; graph building fails as hlo_builder does, by the graph's sticky error.
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

/* ---- configuration --------------------------------------------------------------------------- */

typedef enum ttt_mixer {
    TTT_MIXER_LINEAR,           /* "ttt_linear" */
    TTT_MIXER_MLP,              /* "ttt_mlp" */
    TTT_MIXER_ATTENTION,        /* "attention" */
    TTT_MIXER_LINEAR_ATTENTION, /* "linear_attention" */
    TTT_MIXER_MAMBA,            /* "mamba" */
} ttt_mixer;

/* What linear attention makes of queries and keys. */
typedef enum ttt_features {
    TTT_FEATURES_IDENTITY, /* "identity" */
    TTT_FEATURES_ELU,      /* "elu": elu(x) + 1 */
} ttt_features;

/* What stands between the layers of a learner. */
typedef enum ttt_activation {
    TTT_ACTIVATION_GELU,   /* "gelu" */
    TTT_ACTIVATION_SWIGLU, /* "swiglu": hidden layers are made twice as wide, gate and value */
} ttt_activation;

/* What a learner descends on. */
typedef enum ttt_inner_loss {
    TTT_LOSS_L2,  /* "l2": half the squared error of f(key) against the value */
    TTT_LOSS_DOT, /* "dot": minus the product of f(key) with the value */
} ttt_inner_loss;

/* How a learner goes from gradients to weights. */
typedef enum ttt_inner_optimizer {
    TTT_INNER_SGD,  /* "sgd": token by token, as the paper has it */
    TTT_INNER_MUON, /* "muon": once a mini-batch, orthogonal; norms of columns stay */
    TTT_INNER_ADAM, /* "adam": once a mini-batch */
} ttt_inner_optimizer;

/* Everything that shapes the network. Names are those of --set and of JSON. */
typedef struct ttt_config {
    ttt_mixer mixer;
    int64_t vocab_size, hidden_size, n_layers, n_heads;
    int64_t intermediate_size; /* of the SwiGLU block; 0: there is no such block, as in Mamba */
    bool tie_embeddings;
    double norm_epsilon, initializer_range;
    double rope_theta; /* 0: queries and keys are not rotated */
    /* the backbone: "mamba" sets the first three, "transformer" none */
    bool pre_conv, share_qk, use_gate;
    int64_t conv_width;
    bool post_norm; /* layer norm before the output projection: TTT, "improved" linear attention */
    /* attention */
    int64_t n_kv_heads; /* 0: n_heads */
    ttt_features features;
    /* Mamba */
    int64_t mamba_state, mamba_expand;
    /* the inner learner */
    int64_t mini_batch_size; /* 0: the whole sequence is one */
    /* Of the rates, which are this times a gate, a number for each place and 1 / lanes of a head;
     * without learnable_lr this is the rate. The loss is half the squared error, so 1 here is the
     * paper's 1/2. */
    double ttt_base_lr;
    /* Mini-batches between states that are kept for the backward pass: this, or the square root of
     * their number if that is more, and from 2048 on groups of groups of the cube root; 0: all. */
    int64_t checkpoint_group;
    /* The paper's ladder; all true but for ablations, and what is false has no parameters: weights
     * that learn start at 0; no biases; f(x) = res(x) instead of x + LN(res(x)); every rate is
     * ttt_base_lr; every place counts as 1, so that weights are a sum over tokens, not about their
     * mean. */
    bool learnable_w0, inner_bias, inner_norm, learnable_lr, learnable_token_idx;
    /* Learners beyond the paper's. config.json has these only where they are not what they start
     * as: 0, false, the first word; the width starts as 4. */
    int64_t inner_layers; /* of f; 0: the mixer's own, 1 of ttt_linear and 2 of ttt_mlp */
    int64_t inner_width;  /* of its hidden layers, in widths of a head */
    ttt_activation inner_activation;
    ttt_inner_loss inner_loss;
    bool key_norm; /* queries and keys have length 1, over the lanes of a head */
    /* Gates of each head and token, from what goes into the layer: weights are multiplied by one
     * before a token is learnt from, as in the gated delta rule; and what gradients pull at goes on
     * pulling, less by another, from mini-batch to mini-batch. */
    bool inner_decay, inner_momentum;
    /* Of f's layers only the last learns at test time; those before are features, trained as all
     * parameters are. With the product as loss, learnable_lr=false and inner_norm=false that is
     * linear attention over these. */
    bool inner_last_only;
    /* Muon and Adam move weights when a mini-batch ends: all its tokens see those it starts with.
     * With inner_momentum Muon has the mean of a mini-batch's gates. */
    ttt_inner_optimizer inner_optimizer;
    double inner_step;  /* what a step of these is multiplied by; 0: 1 of Muon, 0.01 of Adam */
    double inner_range; /* the deviation of f's first weights; 0: initializer_range */
} ttt_config;

/*
 * Presets: 125m, 350m, 760m and 1.3b of the paper; 1.3b-matched, with as much arithmetic as Mamba
 * 1.4B (the paper's widths 5808 for ttt_linear and 5248 for ttt_mlp, 19 blocks of attention); small
 * (about 10 million parameters, of which 8 are the embedding of 32000 words; the benchmark sets
 * vocab_size to 512) and tiny (about 1 million). `backbone` is "transformer" or "mamba". The mamba
 * mixer brings its own convolution and gate: its "mamba" backbone is the original network, twice as
 * many layers without SwiGLU blocks, and "transformer" puts it where attention is.
 */
bool ttt_config_preset(ttt_config *config, const char *preset, const char *mixer,
                       const char *backbone, ttt_error *error);
/* One field by name: "n_layers", "12". Unknown fields and values out of range are refused by name.
 */
bool ttt_config_set(ttt_config *config, const char *field, const char *value, ttt_error *error);
/* Contradictions between fields, by name. */
bool ttt_config_check(const ttt_config *config, ttt_error *error);
const char *ttt_mixer_name(ttt_mixer mixer); /* NULL past the last */
bool ttt_mixer_learns(ttt_mixer mixer);      /* it is a TTT layer */
/* The learner's f: the number of its layers, the first that learns, and what layer i from 0 on
 * takes in and gives out. */
int ttt_learner_layers(const ttt_config *config);
int ttt_learner_first(const ttt_config *config);
int64_t ttt_learner_in(const ttt_config *config, int i);
int64_t ttt_learner_out(const ttt_config *config, int i);
const char *const *ttt_config_presets(size_t *count);
/* All fields by their names, and the number of "parameters", as JSON; the caller frees it. */
char *ttt_config_show(const ttt_config *config, ttt_error *error);

/*
 * Hugging Face's config.json of model type "ttt", both ways. What that type does not know is in an
 * object "ttt_c" of ours. Fields that shape no network (token ids, caches) are passed over; unknown
 * ones are refused by name, and so are settings that we do not have.
 */
bool ttt_config_parse(ttt_config *config, const char *json, size_t size, ttt_error *error);
char *ttt_config_text(const ttt_config *config, ttt_error *error); /* the caller frees it */
bool ttt_config_read(ttt_config *config, const char *path, ttt_error *error);
bool ttt_config_write(const ttt_config *config, const char *path, ttt_error *error);

/* ---- parameters ------------------------------------------------------------------------------ */

typedef enum ttt_init {
    TTT_INIT_ZEROS,
    TTT_INIT_ONES,
    TTT_INIT_NORMAL,       /* standard deviation `scale` */
    TTT_INIT_LECUN_NORMAL, /* truncated at two deviations, variance 1 / fan-in; `scale` is the
                              fan-in */
    TTT_INIT_UNIFORM,      /* from -scale to scale */
    TTT_INIT_LOG_COUNT,    /* log(1 + index along the last dimension): Mamba's A */
    TTT_INIT_STEP_BIAS,    /* softplus of it is log-uniform from 0.001 to 0.1: Mamba's step */
} ttt_init;

/* How the parameters of the layers come. */
typedef enum ttt_layout {
    TTT_SEPARATE, /* one by one, as in files: a network of one block after another */
    TTT_STACKED,  /* all layers' in one array: a network that is a loop over its layers */
} ttt_layout;

/* One parameter: the only place that says what it is called, how large it is, how it starts, how it
 * is split over a mesh and whether it decays. Shapes are as the graph uses them: matrices are [in,
 * out]; all others are as in the files. */
typedef struct ttt_param {
    /* Of Hugging Face's state dict: "model.layers.0.mlp.up_proj.weight"; of stacked ones
     * "model.layers.*.mlp.up_proj.weight". */
    const char *name;
    int64_t layers;  /* stacked: dimension 0 of the shape, which files do not have; else 0 */
    hlo_shape shape; /* f32 */
    bool transposed; /* stored [out, in] in files */
    ttt_init init;
    double scale;
    hlo_spec spec; /* mesh axes "fsdp+time" and "model" */
    bool decay;    /* true for all, as in the reference */
    bool packed;   /* a matrix as products written by hand take it: [out, in], of its own type */
    bool scales;   /* [out] of the s8 matrix before it, "NAME_scale": not in files */
} ttt_param;

typedef struct ttt_params {
    ttt_param *list;
    int count;
    int64_t elements;
    ttt_layout layout;
    hlo_type weight_dtype; /* the type of packed matrices; none: they are not packed */
} ttt_params;

ttt_params *ttt_params_new(const ttt_config *config, ttt_layout layout, ttt_error *error);
/*
 * Separate, for one token at a time: matrices are [out, in] as files have them, of type f32, bf16
 * or s8, the latter with a factor for each row. They are a network's weights as it runs, not as it
 * is trained.
 */
ttt_params *ttt_params_packed(const ttt_config *config, hlo_type weight_dtype, ttt_error *error);
void ttt_params_free(ttt_params *params);
/* Index of the parameter with that name; -1 when there is none. */
int ttt_params_find(const ttt_params *params, const char *name);

/*
 * Initial values, by counter: what an element is depends on the seed, the parameter's name and the
 * element's place alone, so any piece can be made anywhere. The bits are the same on every machine
 * with IEEE arithmetic: threefry (2x32, 20 rounds), and logarithms and cosines of our own.
 *
 * The block [start, limit) of the parameter, dense and row-major; NULL for the whole.
 */
void ttt_init_block(const ttt_param *param, uint64_t seed, const int64_t *start,
                    const int64_t *limit, float *out);

/* ---- graphs ---------------------------------------------------------------------------------- */

/* What the backward pass keeps of a block; the rest it computes again. */
typedef enum ttt_remat {
    TTT_REMAT_SOME, /* keeps the dear products and the learner's states (default) */
    TTT_REMAT_NONE, /* keeps all */
    TTT_REMAT_ALL,  /* keeps what goes into a block and no more */
} ttt_remat;

/* A configuration, its parameters and the values that stand for them in a graph. What else is here
 * changes memory, time and rounding, not what is computed. */
typedef struct ttt_net {
    const ttt_config *config;
    const ttt_params *params;
    const hlo_val *values; /* one a parameter, in the table's order */
    /*
     * Type of activations and products: none is f32. With bf16 the parameters, the learners' state,
     * norms, rates, softmax and logits stay f32. With f64, for tests, all is f64.
     */
    hlo_type compute;
    ttt_remat remat;
    /* Sums over the lanes of a head as products with a matrix of ones: on a TPU, where products
     * cost next to nothing and sums along a row do not. */
    bool row_sums_as_matmul;
    /* Operations written by hand in place of parts of the graph, by the names and contracts of
     * kernels/ttt_kernels.h: for programs that run where their handlers are registered. */
    bool use_step_kernel;    /* "ttt_step", where the learner is the paper's */
    bool use_scan_kernel;    /* "ttt_scan" and its gradient, the same */
    bool use_product_kernel; /* "ttt_product", of packed matrices and one token a sequence */
    /* On a mesh: the axes that sequences are split over, "data+fsdp"; NULL: they are not. */
    const char *batch_axes;
    /* The axis that times are split over, "time"; NULL: they are not. Learners then work as a
     * pipeline of sequences, and take whole mini-batches on every device of it. */
    const char *time_axis;
} ttt_net;

/* The type of what is not rounded in a network that computes in that one: f64 of f64, else f32. */
hlo_type ttt_wide_type(hlo_type compute);
/* Adds a graph parameter, with its sharding, for each of the table; fills in `values`. `type` is
 * f32, or f64 for networks that compute in it; what is packed has its own. */
void ttt_params_bind(hlo_graph *g, const ttt_params *params, hlo_type type, hlo_val *values);

/* What a network is given. */
typedef struct ttt_input {
    hlo_val tokens; /* s32 [batch, time] */
    /*
     * True where a document starts: pred [batch, time]; null: nowhere but at the start. Nothing
     * before is seen from there on: learners start anew (a mini-batch ends early, and the next one
     * ends where it would have), and so do convolutions, attention and scans.
     */
    hlo_val resets;
    hlo_val rate_scale; /* a scalar that the learners' rates are multiplied by; null: 1 */
} ttt_input;

/* What TTT layers did, as means over sequences and heads; f32. */
typedef struct ttt_diagnostics {
    /*
     * [layers, 4, time]: the mean squared error of a token's reconstruction by the learner as it
     * started (W0), as it was at the start of the mini-batch, just before learning from that token,
     * and just after: l(W0; x_t), …, l(W_{t-1}; x_t), l(W_t; x_t). With decay the second is of what
     * is left of those weights; with Muon or Adam the last three are one. With inner_loss=dot it is
     * minus the mean product of res, normed, with the value.
     */
    hlo_val inner_loss;
    hlo_val rate;       /* [layers, 3]: mean, least and largest of the rates */
    hlo_val state_norm; /* [layers, 2]: of all weights as they start, and of how far they moved */
} ttt_diagnostics;

/*
 * Logits [batch, time, vocab] in f32, whole mini-batches by the dual form. Any length will do: what
 * is left over forms a shorter mini-batch. `diagnostics`, when not NULL, is filled in; the mixer
 * must be a TTT layer.
 */
hlo_val ttt_logits(hlo_graph *g, const ttt_net *net, const ttt_input *in,
                   ttt_diagnostics *diagnostics);

typedef struct ttt_target {
    hlo_val labels;  /* s32 [batch, time] */
    hlo_val weights; /* f32 [batch, time], 0 for what does not count; null: all 1 */
    double z_loss;   /* times the square of the logarithm of the softmax's sum; 0: none */
} ttt_target;

/* Cross-entropy: the weighted mean over each sequence, then the mean over sequences. The logits of
 * all tokens are never held at once. */
hlo_val ttt_loss(hlo_graph *g, const ttt_net *net, const ttt_input *in, const ttt_target *target,
                 ttt_diagnostics *diagnostics);

/* The cross-entropy of each token, f32 [batch, time]: for evaluation, without a gradient rule of
 * its own. The logits of all tokens are never held at once here either. */
hlo_val ttt_losses(hlo_graph *g, const ttt_net *net, const ttt_input *in, hlo_val labels,
                   ttt_diagnostics *diagnostics);

/* ---- one token at a time --------------------------------------------------------------------- */

/* One array of what a sequence carries from token to token. */
typedef struct ttt_state_entry {
    /*
     * "position" s32 [batch], the number of tokens so far; for learners "place", those of this
     * mini-batch so far; then for each layer "layers.3.W1", stacked "layers.*.W1", what learners
     * keep beside weights, "layers.3.W1_momentum", and sums of gradients, "layers.3.W1_sum". A
     * document that starts within a sequence starts all but the position anew.
     */
    const char *name;
    hlo_shape shape; /* [batch, …], stacked [layers, batch, …] */
} ttt_state_entry;

/* All of them, for sequences that go on side by side, each at its own position. */
typedef struct ttt_state_table {
    ttt_state_entry *list;
    int count;
    int64_t batch;
    ttt_layout layout;
} ttt_state_table;

/* `context` is the longest sequence that attention is to remember; the others need none. */
ttt_state_table *ttt_state_table_new(const ttt_config *config, ttt_layout layout, int64_t batch,
                                     int64_t context, hlo_type type, ttt_error *error);
void ttt_state_table_free(ttt_state_table *states);
/* Adds a graph parameter for each part; fills in `values`. */
void ttt_state_table_bind(hlo_graph *g, const ttt_state_table *states, hlo_val *values);
/* What sequences start with. */
void ttt_state_table_start(hlo_graph *g, const ttt_net *net, const ttt_state_table *states,
                           hlo_val *values);
/* The primal form: one token of each sequence, s32 [batch], to the logits of the next, [batch,
 * vocab]; `values` move on. */
hlo_val ttt_decode_step(hlo_graph *g, const ttt_net *net, const ttt_state_table *states,
                        hlo_val tokens, hlo_val *values);
/*
 * The dual form from where sequences are: s32 [batch, time] tokens of each, to the logits that
 * follow the last, [batch, vocab]; `values` move on. Learners take whole mini-batches, from the
 * start of one: "place" is 0 before and after.
 */
hlo_val ttt_prefill(hlo_graph *g, const ttt_net *net, const ttt_state_table *states, hlo_val tokens,
                    hlo_val *values);
/* The same, to the loss of each token, f32 [batch, time]. */
hlo_val ttt_prefill_losses(hlo_graph *g, const ttt_net *net, const ttt_state_table *states,
                           hlo_val tokens, hlo_val labels, hlo_val *values);

#endif
