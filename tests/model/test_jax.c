/* Checkpoints of the JAX repository, written here as flax writes them: msgpack of [path, bytes]. */
#include "model/records.h"
#include "tests/support/support.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- a writer of msgpack, just large enough -------------------------------------------------- */

typedef struct text {
    unsigned char bytes[1 << 18];
    size_t size;
} text;

static void put(text *t, const void *bytes, size_t size)
{
    assert_true(size <= sizeof t->bytes - t->size);
    memcpy(t->bytes + t->size, bytes, size);
    t->size += size;
}

static void put_number(text *t, uint64_t value, int bytes)
{
    for (int i = bytes - 1; i >= 0; i--)
        put(t, &(unsigned char){(unsigned char)(value >> 8 * i)}, 1);
}

static void put_tag(text *t, unsigned char tag)
{
    put(t, &tag, 1);
}

static void put_string(text *t, const char *s)
{
    size_t length = strlen(s);
    if (length < 32) {
        put_tag(t, (unsigned char)(0xa0 | length));
    } else {
        put_tag(t, 0xd9);
        put_number(t, length, 1);
    }
    put(t, s, length);
}

/* Bytes after a 32-bit length: 0xc6 binary, 0xc9 extension of type 1. */
static void put_bytes(text *t, unsigned char tag, const text *inner)
{
    put_tag(t, tag);
    put_number(t, inner->size, 4);
    if (tag == 0xc9)
        put_tag(t, 1);
    put(t, inner->bytes, inner->size);
}

static void put_array(text *t, const hlo_shape *shape, const char *type, const void *data,
                      size_t size)
{
    static text inner, raw;
    inner.size = raw.size = 0;
    put_tag(&inner, 0x93);
    put_tag(&inner, (unsigned char)(0x90 | shape->rank));
    for (int i = 0; i < shape->rank; i++) {
        put_tag(&inner, 0xcd);
        put_number(&inner, (uint64_t)shape->dims[i], 2);
    }
    put_string(&inner, type);
    put(&raw, data, size);
    put_bytes(&inner, 0xc6, &raw);
    put_bytes(t, 0xc9, &inner);
}

/* "a/b/c" as a path; a bar in a name stands for a slash within one element. */
static void put_path(text *t, const char *path)
{
    char copy[160], *at = copy;
    int count = 1;
    snprintf(copy, sizeof copy, "%s", path);
    for (const char *c = path; *c != '\0'; c++)
        count += *c == '/';
    put_tag(t, (unsigned char)(0x90 | count));
    for (char *word = strsep(&at, "/"); word != NULL; word = strsep(&at, "/")) {
        for (char *bar = strchr(word, '|'); bar != NULL; bar = strchr(word, '|'))
            *bar = '/';
        put_string(t, word);
    }
}

static void put_record(text *t, const char *path, hlo_shape shape, const char *type,
                       const void *data, size_t size)
{
    static text value;
    value.size = 0;
    put_array(&value, &shape, type, data, size);
    put_tag(t, 0x92);
    put_path(t, path);
    put_bytes(t, 0xc6, &value);
}

/* The same in pieces of `piece` elements. */
static void put_chunked(text *t, const char *path, hlo_shape shape, const float *data,
                        int64_t piece)
{
    static text value;
    char index[24];
    int64_t count = hlo_shape_elements(&shape), n = (count + piece - 1) / piece;
    value.size = 0;
    put_tag(&value, 0x83);
    put_string(&value, "__msgpack_chunked_array__");
    put_tag(&value, 0xc3);
    put_string(&value, "shape");
    put_tag(&value, (unsigned char)(0x80 | shape.rank));
    for (int i = 0; i < shape.rank; i++) {
        snprintf(index, sizeof index, "%d", i);
        put_string(&value, index);
        put_tag(&value, (unsigned char)shape.dims[i]);
    }
    put_string(&value, "chunks");
    put_tag(&value, (unsigned char)(0x80 | n));
    for (int64_t i = 0; i < n; i++) {
        int64_t left = count - i * piece, size = left < piece ? left : piece;
        snprintf(index, sizeof index, "%d", (int)i);
        put_string(&value, index);
        put_array(&value, &HLO_SHAPE(HLO_F32, size), "float32", data + i * piece,
                  (size_t)size * sizeof *data);
    }
    put_tag(t, 0x92);
    put_path(t, path);
    put_bytes(t, 0xc6, &value);
}

static ttt_tensors *parse(const text *t, ttt_error *error)
{
    ttt_tensors *tensors = ttt__tensors_new(error);
    assert_non_null(tensors);
    if (ttt__jax_parse(tensors, t->bytes, t->size, error))
        return tensors;
    ttt_tensors_free(tensors);
    return NULL;
}

/* ---- a whole train state --------------------------------------------------------------------- */

enum { C = 8, I = 12, V = 11, NH = 2, D = 4, B = 4 };

/* Element m of the j-th tensor: a whole number that bf16 has. */
static float value_of(int j, int64_t m)
{
    return (float)((j * 7 + m) % 251);
}

static int written;

static void put_tensor(text *t, const char *path, hlo_shape shape, bool bf16)
{
    float values[256];
    uint16_t halves[256];
    char full[160];
    int64_t count = hlo_shape_elements(&shape);
    assert_true(count <= 256);
    for (int64_t m = 0; m < count; m++)
        values[m] = value_of(written, m);
    ttt_from_f32(HLO_BF16, values, (size_t)count, halves);
    snprintf(full, sizeof full, "params/params/%s", path);
    if (bf16)
        put_record(t, full, shape, "bfloat16", halves, (size_t)count * 2);
    else if (written % 2 == 0)
        put_record(t, full, shape, "float32", values, (size_t)count * 4);
    else
        put_chunked(t, full, shape, values, 20);
    written++;
}

#define S(...) HLO_SHAPE(HLO_F32, __VA_ARGS__)
static const struct {
    const char *path;
    hlo_shape shape;
} layer[] = {
    {"seq_norm/kernel", {HLO_F32, 1, {C}}},
    {"ffn_norm/kernel", {HLO_F32, 1, {C}}},
    {"conv/conv_norm/kernel", {HLO_F32, 1, {C}}},
    {"conv/conv1/kernel", {HLO_F32, 3, {4, 1, C}}},
    {"conv/conv1/bias", {HLO_F32, 1, {C}}},
    {"feed_forward/w1/kernel", {HLO_F32, 2, {C, I}}},
    {"feed_forward/w3/kernel", {HLO_F32, 2, {C, I}}},
    {"feed_forward/w2/kernel", {HLO_F32, 2, {I, C}}},
    {"seq_modeling_block/wq/kernel", {HLO_F32, 2, {C, C}}},
    {"seq_modeling_block/wv/kernel", {HLO_F32, 2, {C, C}}},
    {"seq_modeling_block/wo/kernel", {HLO_F32, 2, {C, C}}},
    {"seq_modeling_block/wg/kernel", {HLO_F32, 2, {C, C}}},
    {"seq_modeling_block/conv_q/kernel", {HLO_F32, 3, {4, 1, C}}},
    {"seq_modeling_block/conv_q/bias", {HLO_F32, 1, {C}}},
    {"seq_modeling_block/conv_k/kernel", {HLO_F32, 3, {4, 1, C}}},
    {"seq_modeling_block/conv_k/bias", {HLO_F32, 1, {C}}},
    {"seq_modeling_block/learnable_token_idx", {HLO_F32, 1, {B}}},
    {"seq_modeling_block/learnable_ttt_lr|kernel", {HLO_F32, 3, {NH, C, 1}}},
    {"seq_modeling_block/learnable_ttt_lr|bias", {HLO_F32, 2, {NH, 1}}},
    {"seq_modeling_block/ttt_norm|scale", {HLO_F32, 2, {NH, D}}},
    {"seq_modeling_block/ttt_norm|bias", {HLO_F32, 2, {NH, D}}},
    {"seq_modeling_block/post_norm/scale", {HLO_F32, 1, {C}}},
    {"seq_modeling_block/post_norm/bias", {HLO_F32, 1, {C}}},
    {"seq_modeling_block/ttt_dense_0", {HLO_F32, 3, {NH, D, 4 * D}}},
    {"seq_modeling_block/ttt_bias_0", {HLO_F32, 3, {NH, 1, 4 * D}}},
    {"seq_modeling_block/ttt_dense_1", {HLO_F32, 3, {NH, 4 * D, D}}},
    {"seq_modeling_block/ttt_bias_1", {HLO_F32, 3, {NH, 1, D}}},
};
enum { PER_LAYER = sizeof layer / sizeof *layer };

static void put_state(text *t, bool bf16)
{
    char path[128];
    t->size = 0;
    written = 0;
    put_record(t, "step", (hlo_shape){.type = HLO_S32}, "int32", &(int32_t){7}, 4);
    put_record(t, "opt_state/1/0/mu/params/model/wte/embedding", S(1), "float32", &(float){0}, 4);
    put_tensor(t, "model/wte/embedding", S(V, C), bf16);
    put_tensor(t, "model/ln_f/kernel", S(C), bf16);
    for (int l = 0; l < 2; l++) {
        for (int i = 0; i < PER_LAYER; i++) {
            snprintf(path, sizeof path, "model/h/%d/%s", l, layer[i].path);
            put_tensor(t, path, layer[i].shape, bf16);
        }
    }
}

/* Element (a, b) of the tensor as stored, [rows, columns]. */
static float stored(int j, int64_t columns, int64_t a, int64_t b)
{
    return value_of(j, a * columns + b);
}

static void check_values(const ttt_params *params, const ttt_tensors *tensors, const char *name,
                         int j, bool turned)
{
    float found[256];
    ttt_error error = {""};
    int index = ttt_params_find(params, name);
    assert_true(index >= 0);
    if (!ttt_params_load(params, index, tensors, found, &error))
        fail_msg("%s", error.message);
    const hlo_shape *s = &params->list[index].shape;
    int64_t count = hlo_shape_elements(s), last = s->dims[s->rank - 1];
    for (int64_t m = 0; m < count; m++) {
        float wanted = turned ? stored(j, count / last, m % last, m / last) : value_of(j, m);
        if (found[m] != wanted)
            fail_msg("%s: element %d is %g and not %g", name, (int)m, found[m], wanted);
    }
}

static void train_state(void **state)
{
    static text t;
    ttt_error error = {""};
    (void)state;
    for (int bf16 = 0; bf16 < 2; bf16++) {
        ttt_config config = {0};
        put_state(&t, bf16);
        ttt_tensors *tensors = parse(&t, &error);
        if (tensors == NULL || !ttt_jax_config(tensors, &config, &error))
            fail_msg("%s", error.message);
        assert_int_equal(config.mixer, TTT_MIXER_MLP);
        assert_int_equal(config.vocab_size, V);
        assert_int_equal(config.hidden_size, C);
        assert_int_equal(config.intermediate_size, I);
        assert_int_equal(config.n_layers, 2);
        assert_int_equal(config.n_heads, NH);
        assert_int_equal(config.mini_batch_size, B);
        assert_true(config.pre_conv && config.share_qk && config.use_gate);
        assert_true(config.tie_embeddings && config.ttt_base_lr == 0.1);
        ttt_params *params = ttt_params_new(&config, TTT_SEPARATE, &error);
        assert_non_null(params);
        if (!ttt_params_match(params, tensors, &error))
            fail_msg("%s", error.message);
        int j = 2 + PER_LAYER; /* the first of layer 1 */
        check_values(params, tensors, "model.embed_tokens.weight", 0, false);
        check_values(params, tensors, "model.layers.1.mlp.gate_proj.weight", j + 5, false);
        check_values(params, tensors, "model.layers.1.mlp.up_proj.weight", j + 6, false);
        check_values(params, tensors, "model.layers.1.conv.conv.weight", j + 3, true);
        check_values(params, tensors, "model.layers.1.seq_modeling_block.conv_k.weight", j + 14,
                     true);
        check_values(params, tensors, "model.layers.1.seq_modeling_block.learnable_ttt_lr_weight",
                     j + 17, false);
        check_values(params, tensors, "model.layers.1.seq_modeling_block.ttt_norm_bias", j + 20,
                     false);
        check_values(params, tensors, "model.layers.1.seq_modeling_block.W2", j + 25, false);
        ttt_params_free(params);
        ttt_tensors_free(tensors);
    }
}

/* No prefix and no changed byte makes the reader look past the end (the sanitizers' word), and a
 * prefix that ends within a record is refused. */
static void damaged(void **state)
{
    static text t;
    ttt_error error;
    (void)state;
    t.size = 0;
    float six[] = {1, 2, 3, 4, 5, 6};
    put_chunked(&t, "params/model/x", S(2, 3), six, 4);
    for (size_t size = 1; size < t.size; size++) {
        ttt_tensors *tensors = ttt__tensors_new(&error);
        unsigned char *copy = malloc(size);
        assert_true(copy != NULL && tensors != NULL);
        memcpy(copy, t.bytes, size);
        assert_false(ttt__jax_parse(tensors, copy, size, &error));
        ttt_tensors_free(tensors);
        free(copy);
    }
    for (size_t at = 0; at < t.size; at++) {
        static text changed;
        changed = t;
        changed.bytes[at] ^= 0xff;
        ttt_tensors *tensors = parse(&changed, &error);
        ttt_tensors_free(tensors);
    }
}

static void refused(const text *t, const char *part)
{
    ttt_error error = {""};
    assert_null(parse(t, &error));
    ASSERT_CONTAINS(error.message, part);
}

static void lies(void **state)
{
    static text t;
    ttt_error error = {""};
    float x[4] = {0};
    (void)state;
    t.size = 0;
    put_record(&t, "params/model/x", S(5), "float32", x, sizeof x);
    refused(&t, "model/x");
    t.size = 0;
    put_record(&t, "params/model/x", S(4), "complex64", x, sizeof x);
    refused(&t, "model/x");
    t.size = 0;
    put_record(&t, "params/model/x", S(4), "float32", x, sizeof x);
    put_record(&t, "params/model/x", S(4), "float32", x, sizeof x);
    refused(&t, "twice");
    t.size = 0;
    put_tag(&t, 0xc0);
    refused(&t, "msgpack");
    t.size = 0;
    ttt_tensors *tensors = parse(&t, &error); /* no parameters at all */
    ttt_config config = {.n_heads = 1};
    assert_non_null(tensors);
    assert_false(ttt_jax_config(tensors, &config, &error));
    ttt_tensors_free(tensors);
    assert_null(ttt_jax_open("/no/such/file", &error));
    ASSERT_CONTAINS(error.message, "/no/such/file");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(train_state),
        cmocka_unit_test(damaged),
        cmocka_unit_test(lies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
