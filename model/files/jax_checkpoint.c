/*
 * Checkpoints of the JAX repository: a stream of [path, bytes] pairs in msgpack, where the bytes
 * are one array as flax packs it. Optimiser state is passed over. Reads what those files are made
 * of and nothing else.
 */
#include "model/files/jax_checkpoint.h"
#include "model/files/msgpack.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- arrays of flax -------------------------------------------------------------------------- */

enum { ARRAY_EXT = 1, MOST_PATH = 16 };

static const struct {
    const char *name;
    hlo_type type;
} types[] = {
    {"bfloat16", HLO_BF16}, {"float32", HLO_F32}, {"float16", HLO_F16}, {"float64", HLO_F64},
    {"int32", HLO_S32},     {"int64", HLO_S64},   {"uint32", HLO_U32},
};

static bool item_is(const msgpack_item *item, const char *text)
{
    return item->kind == MSGPACK_STR && item->size == strlen(text) &&
           memcmp(item->bytes, text, item->size) == 0;
}

/* The (shape, type, bytes) that an extension holds. */
static bool read_array(const msgpack_item *ext, hlo_shape *shape, msgpack_item *data)
{
    msgpack_item item;
    size_t bytes;
    *shape = (hlo_shape){0};
    if (ext->kind != MSGPACK_EXT || ext->ext != ARRAY_EXT)
        return false;
    msgpack m = {ext->bytes, ext->bytes + ext->size};
    if (!msgpack_expect(&m, MSGPACK_ARRAY, 3, &item) ||
        !msgpack_expect(&m, MSGPACK_ARRAY, -1, &item) || item.size > HLO_MAX_RANK)
        return false;
    shape->rank = (int)item.size;
    for (int i = 0; i < shape->rank; i++) {
        if (!msgpack_expect(&m, MSGPACK_INT, -1, &item) || item.integer > INT64_MAX)
            return false;
        shape->dims[i] = (int64_t)item.integer;
    }
    if (!msgpack_expect(&m, MSGPACK_STR, -1, &item))
        return false;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (item_is(&item, types[i].name))
            shape->type = types[i].type;
    }
    return shape->type != HLO_TYPE_NONE && msgpack_expect(&m, MSGPACK_BIN, -1, data) &&
           m.at == m.end && ttt__shape_bytes(shape, &bytes) && bytes == data->size;
}

/* A key of a map, which must be the decimal spelling of `index`. */
static bool expect_index(msgpack *m, size_t index)
{
    char text[24];
    msgpack_item item = msgpack_next(m);
    snprintf(text, sizeof text, "%zu", index);
    return item_is(&item, text);
}

/* {"__msgpack_chunked_array__": true, "shape": {"0": …}, "chunks": {"0": array, …}} up to the
 * chunks' count. */
static bool read_chunk_head(msgpack *m, hlo_shape *shape, size_t *n_chunks)
{
    msgpack_item item = msgpack_next(m);
    *shape = (hlo_shape){0};
    if (!item_is(&item, "__msgpack_chunked_array__") || !msgpack_expect(m, MSGPACK_INT, -1, &item))
        return false;
    item = msgpack_next(m);
    if (!item_is(&item, "shape") || !msgpack_expect(m, MSGPACK_MAP, -1, &item) ||
        item.size > HLO_MAX_RANK)
        return false;
    shape->rank = (int)item.size;
    for (int i = 0; i < shape->rank; i++) {
        if (!expect_index(m, (size_t)i) || !msgpack_expect(m, MSGPACK_INT, -1, &item) ||
            item.integer > INT64_MAX)
            return false;
        shape->dims[i] = (int64_t)item.integer;
    }
    item = msgpack_next(m);
    if (!item_is(&item, "chunks") || !msgpack_expect(m, MSGPACK_MAP, -1, &item))
        return false;
    *n_chunks = item.size;
    return true;
}

/* An array in pieces, put together in a block of the tensors. The first walk over the chunks adds
 * up what is really there, so that nothing is allocated on the word of a shape. */
static bool join_chunks(ttt_tensors *tensors, msgpack m, hlo_shape *shape, const void **data,
                        size_t *size, ttt_error *error)
{
    static const char what[] = "an array in chunks is not as flax writes it";
    size_t n_chunks, bytes, total = 0;
    char *to = NULL;
    if (!read_chunk_head(&m, shape, &n_chunks))
        return ttt__fail(error, what);
    for (int pass = 0; pass < 2; pass++) {
        msgpack walk = m;
        size_t at = 0;
        for (size_t i = 0; i < n_chunks; i++) {
            hlo_shape part;
            msgpack_item item;
            if (!expect_index(&walk, i))
                return ttt__fail(error, what);
            msgpack_item ext = msgpack_next(&walk);
            if (!read_array(&ext, &part, &item) || part.rank != 1 ||
                (i > 0 && part.type != shape->type))
                return ttt__fail(error, what);
            shape->type = part.type;
            if (pass == 1 && item.size > 0)
                memcpy(to + at, item.bytes, item.size);
            at += item.size;
        }
        if (pass == 1)
            break;
        total = at;
        if (walk.at != walk.end || n_chunks == 0 || !ttt__shape_bytes(shape, &bytes) ||
            bytes != total)
            return ttt__fail(error, what);
        if ((to = ttt__tensors_block(tensors, total, error)) == NULL)
            return false;
    }
    *data = to;
    *size = total;
    return true;
}

/* ---- the stream ------------------------------------------------------------------------------ */

/* The path joined by slashes, without leading "params". `wanted` is false for what is no
 * parameter. */
static bool read_path(msgpack *m, char name[TTT__JAX_NAME], size_t *length, bool *wanted)
{
    msgpack_item list, item;
    *length = 0;
    *wanted = true;
    if (!msgpack_expect(m, MSGPACK_ARRAY, -1, &list) || list.size == 0 || list.size > MOST_PATH)
        return false;
    for (size_t i = 0; i < list.size; i++) {
        if (!msgpack_expect(m, MSGPACK_STR, -1, &item) || memchr(item.bytes, 0, item.size) != NULL)
            return false;
        if (i == 0 && (item_is(&item, "opt_state") || item_is(&item, "step")))
            *wanted = false;
        if (!*wanted || (*length == 0 && item_is(&item, "params")))
            continue;
        if (item.size + 2 > TTT__JAX_NAME - *length)
            return false;
        if (*length > 0)
            name[(*length)++] = '/';
        memcpy(name + *length, item.bytes, item.size);
        *length += item.size;
    }
    return true;
}

static bool read_record(ttt_tensors *tensors, msgpack *m, ttt_error *error)
{
    char name[TTT__JAX_NAME];
    size_t length, size = 0;
    bool wanted;
    msgpack_item item, data;
    hlo_shape shape;
    const void *bytes = NULL;
    if (!msgpack_expect(m, MSGPACK_ARRAY, 2, &item) || !read_path(m, name, &length, &wanted))
        return ttt__fail(error, "not a stream of [path, bytes] in msgpack");
    item = msgpack_next(m);
    if (item.kind != MSGPACK_BIN && item.kind != MSGPACK_STR) /* the latter by old writers */
        return ttt__fail(error, "not a stream of [path, bytes] in msgpack");
    if (!wanted)
        return true;
    msgpack inner = {item.bytes, item.bytes + item.size};
    msgpack_item first = msgpack_next(&inner);
    if (first.kind == MSGPACK_MAP && first.size == 3) {
        if (!join_chunks(tensors, inner, &shape, &bytes, &size, error))
            return false;
    } else if (read_array(&first, &shape, &data) && inner.at == inner.end) {
        bytes = data.bytes;
        size = data.size;
    } else {
        return ttt__fail(error, "\"%.*s\" is not an array as flax writes it", (int)length, name);
    }
    return ttt__tensors_add(tensors, name, length, shape, bytes, size, error);
}

bool ttt__jax_parse(ttt_tensors *tensors, const void *bytes, size_t size, ttt_error *error)
{
    msgpack m = {bytes, (const unsigned char *)bytes + size};
    tensors->jax = true;
    while (m.at < m.end) {
        if (!read_record(tensors, &m, error))
            return false;
    }
    return ttt__tensors_sort(tensors, error);
}

ttt_tensors *ttt_jax_open(const char *path, ttt_error *error)
{
    ttt_tensors *tensors = ttt__tensors_new(error);
    if (tensors == NULL)
        return NULL;
    ttt_error inner;
    const ttt__block *block = ttt__tensors_map(tensors, path, error);
    if (block != NULL) {
        const ttt__block file = *block; /* further blocks may move the list */
        if (ttt__jax_parse(tensors, file.bytes, file.size, &inner))
            return tensors;
        ttt__fail(error, "%.200s: %.300s", path, inner.message);
    }
    ttt_tensors_free(tensors);
    return NULL;
}

/* ---- names and layouts ----------------------------------------------------------------------- */

static const struct {
    const char *ours, *theirs;
} top_names[] =
    {
        {"model.embed_tokens.weight", "model/wte/embedding"},
        {"model.norm.weight", "model/ln_f/kernel"},
        {"lm_head.weight", "lm_head/kernel"},
},
  layer_names[] = {
      {"seq_norm.weight", "seq_norm/kernel"},
      {"ffn_norm.weight", "ffn_norm/kernel"},
      {"conv.norm.weight", "conv/conv_norm/kernel"},
      {"conv.conv.weight", "conv/conv1/kernel"},
      {"conv.conv.bias", "conv/conv1/bias"},
      {"mlp.gate_proj.weight", "feed_forward/w1/kernel"},
      {"mlp.up_proj.weight", "feed_forward/w3/kernel"},
      {"mlp.down_proj.weight", "feed_forward/w2/kernel"},
      {"seq_modeling_block.q_proj.weight", "seq_modeling_block/wq/kernel"},
      {"seq_modeling_block.k_proj.weight", "seq_modeling_block/wk/kernel"},
      {"seq_modeling_block.v_proj.weight", "seq_modeling_block/wv/kernel"},
      {"seq_modeling_block.o_proj.weight", "seq_modeling_block/wo/kernel"},
      {"seq_modeling_block.g_proj.weight", "seq_modeling_block/wg/kernel"},
      {"seq_modeling_block.conv_q.weight", "seq_modeling_block/conv_q/kernel"},
      {"seq_modeling_block.conv_q.bias", "seq_modeling_block/conv_q/bias"},
      {"seq_modeling_block.conv_k.weight", "seq_modeling_block/conv_k/kernel"},
      {"seq_modeling_block.conv_k.bias", "seq_modeling_block/conv_k/bias"},
      {"seq_modeling_block.learnable_token_idx", "seq_modeling_block/learnable_token_idx"},
      {"seq_modeling_block.learnable_ttt_lr_weight", "seq_modeling_block/learnable_ttt_lr/kernel"},
      {"seq_modeling_block.learnable_ttt_lr_bias", "seq_modeling_block/learnable_ttt_lr/bias"},
      {"seq_modeling_block.ttt_norm_weight", "seq_modeling_block/ttt_norm/scale"},
      {"seq_modeling_block.ttt_norm_bias", "seq_modeling_block/ttt_norm/bias"},
      {"seq_modeling_block.post_norm.weight", "seq_modeling_block/post_norm/scale"},
      {"seq_modeling_block.post_norm.bias", "seq_modeling_block/post_norm/bias"},
      {"seq_modeling_block.W1", "seq_modeling_block/ttt_dense_0"},
      {"seq_modeling_block.b1", "seq_modeling_block/ttt_bias_0"},
      {"seq_modeling_block.W2", "seq_modeling_block/ttt_dense_1"},
      {"seq_modeling_block.b2", "seq_modeling_block/ttt_bias_1"},
};

static bool jax_name(const char *ours, char name[TTT__JAX_NAME])
{
    static const char layers[] = "model.layers.";
    for (size_t i = 0; i < sizeof top_names / sizeof *top_names; i++) {
        if (strcmp(ours, top_names[i].ours) == 0)
            return snprintf(name, TTT__JAX_NAME, "%s", top_names[i].theirs) > 0;
    }
    if (strncmp(ours, layers, sizeof layers - 1) != 0)
        return false;
    char *rest;
    long layer = strtol(ours + sizeof layers - 1, &rest, 10);
    for (size_t i = 0; *rest == '.' && i < sizeof layer_names / sizeof *layer_names; i++) {
        if (strcmp(rest + 1, layer_names[i].ours) == 0)
            return snprintf(name, TTT__JAX_NAME, "model/h/%ld/%s", layer, layer_names[i].theirs) >
                   0;
    }
    return false;
}

bool ttt__jax_layout_of(const ttt_param *param, char name[TTT__JAX_NAME], ttt__jax_layout *layout)
{
    *layout = (ttt__jax_layout){.shape = param->shape};
    if (!jax_name(param->name, name))
        return false;
    if (param->init == TTT_INIT_LECUN_NORMAL) { /* a convolution: [channels, 1, width] here */
        layout->turn = true;
        layout->rows = layout->shape.dims[0] = param->shape.dims[2];
        layout->columns = layout->shape.dims[2] = param->shape.dims[0];
    } else if (strstr(name, "learnable_ttt_lr/kernel") != NULL) { /* [heads, 1, width] here */
        layout->shape.dims[1] = param->shape.dims[2];
        layout->shape.dims[2] = 1;
    }
    return true;
}

/* ---- configuration from shapes --------------------------------------------------------------- */

/* Dimension `dim` of a tensor of that rank; 0 when there is no such tensor. */
static int64_t dim_of(const ttt_tensors *tensors, const char *name, int rank, int dim)
{
    const ttt_tensor *found = ttt_tensors_find(tensors, name);
    return found == NULL || found->shape.rank != rank ? 0 : found->shape.dims[dim];
}

#define LAYER0 "model/h/0/"

bool ttt_jax_config(const ttt_tensors *tensors, ttt_config *config, ttt_error *error)
{
    ttt_config made;
    char name[64];
    bool mlp = ttt_tensors_find(tensors, LAYER0 "seq_modeling_block/ttt_dense_1") != NULL;
    int64_t heads = dim_of(tensors, LAYER0 "seq_modeling_block/ttt_dense_0", 3, 0);
    ttt__config_defaults(&made, mlp         ? TTT_MIXER_MLP
                                : heads > 0 ? TTT_MIXER_LINEAR
                                            : TTT_MIXER_ATTENTION);
    made.n_heads = heads > 0 ? heads : config->n_heads;
    made.vocab_size = dim_of(tensors, "model/wte/embedding", 2, 0);
    made.hidden_size = dim_of(tensors, "model/wte/embedding", 2, 1);
    made.intermediate_size = dim_of(tensors, LAYER0 "feed_forward/w1/kernel", 2, 1);
    made.tie_embeddings = ttt_tensors_find(tensors, "lm_head/kernel") == NULL;
    made.pre_conv = ttt_tensors_find(tensors, LAYER0 "conv/conv1/kernel") != NULL;
    made.share_qk = ttt_tensors_find(tensors, LAYER0 "seq_modeling_block/conv_q/kernel") != NULL;
    made.use_gate = ttt_tensors_find(tensors, LAYER0 "seq_modeling_block/wg/kernel") != NULL;
    if (made.pre_conv)
        made.conv_width = dim_of(tensors, LAYER0 "conv/conv1/kernel", 3, 0);
    else if (made.share_qk)
        made.conv_width = dim_of(tensors, LAYER0 "seq_modeling_block/conv_q/kernel", 3, 0);
    if (heads > 0)
        made.mini_batch_size =
            dim_of(tensors, LAYER0 "seq_modeling_block/learnable_token_idx", 1, 0);
    made.n_layers = 0;
    do
        snprintf(name, sizeof name, "model/h/%lld/seq_norm/kernel", (long long)made.n_layers);
    while (ttt_tensors_find(tensors, name) != NULL && ++made.n_layers <= 1 << 12);
    if (made.n_layers == 0 || made.hidden_size == 0)
        return ttt__fail(error, "there are no parameters of a TTT model in the checkpoint");
    if (!ttt_config_check(&made, error))
        return false;
    *config = made;
    return true;
}
