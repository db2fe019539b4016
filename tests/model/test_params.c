/* The table of parameters and their initial values. */
#include "model/ttt_model.h"
#include "tests/support/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static ttt_params *params_of(const char *preset, const char *mixer, const char *backbone)
{
    ttt_config config;
    ttt_error error;
    if (!ttt_config_preset(&config, preset, mixer, backbone, &error))
        fail_msg("%s", error.message);
    ttt_params *params = ttt_params_new(&config, TTT_SEPARATE, &error);
    if (params == NULL)
        fail_msg("%s", error.message);
    return params;
}

static const ttt_param *find(const ttt_params *params, const char *name)
{
    int index = ttt_params_find(params, name);
    if (index < 0)
        fail_msg("there is no %s", name);
    return &params->list[index];
}

static void shape_is(const ttt_params *params, const char *name, const char *wanted)
{
    char text[HLO_SHAPE_TEXT], full[128];
    snprintf(full, sizeof full, "model.layers.3.%s", name);
    assert_string_equal(hlo_shape_text(&find(params, full)->shape, text), wanted);
}

/* A layer of the 125m MLP on the Mamba backbone, as the PyTorch implementation has it; matrices are
 * turned round here. */
static void names_and_shapes(void **state)
{
    static const char *const layer[][2] = {
        {"seq_norm.weight", "f32[768]"},
        {"ffn_norm.weight", "f32[768]"},
        {"conv.norm.weight", "f32[768]"},
        {"conv.conv.weight", "f32[768,1,4]"},
        {"conv.conv.bias", "f32[768]"},
        {"mlp.gate_proj.weight", "f32[768,2048]"},
        {"mlp.up_proj.weight", "f32[768,2048]"},
        {"mlp.down_proj.weight", "f32[2048,768]"},
        {"seq_modeling_block.q_proj.weight", "f32[768,768]"},
        {"seq_modeling_block.v_proj.weight", "f32[768,768]"},
        {"seq_modeling_block.o_proj.weight", "f32[768,768]"},
        {"seq_modeling_block.g_proj.weight", "f32[768,768]"},
        {"seq_modeling_block.conv_q.weight", "f32[768,1,4]"},
        {"seq_modeling_block.conv_q.bias", "f32[768]"},
        {"seq_modeling_block.conv_k.weight", "f32[768,1,4]"},
        {"seq_modeling_block.conv_k.bias", "f32[768]"},
        {"seq_modeling_block.learnable_token_idx", "f32[16]"},
        {"seq_modeling_block.learnable_ttt_lr_weight", "f32[12,1,768]"},
        {"seq_modeling_block.learnable_ttt_lr_bias", "f32[12,1]"},
        {"seq_modeling_block.ttt_norm_weight", "f32[12,64]"},
        {"seq_modeling_block.ttt_norm_bias", "f32[12,64]"},
        {"seq_modeling_block.post_norm.weight", "f32[768]"},
        {"seq_modeling_block.post_norm.bias", "f32[768]"},
        {"seq_modeling_block.W1", "f32[12,64,256]"},
        {"seq_modeling_block.b1", "f32[12,1,256]"},
        {"seq_modeling_block.W2", "f32[12,256,64]"},
        {"seq_modeling_block.b2", "f32[12,1,64]"},
    };
    ttt_params *params = params_of("125m", "ttt_mlp", "mamba");
    (void)state;
    for (size_t i = 0; i < sizeof layer / sizeof *layer; i++)
        shape_is(params, layer[i][0], layer[i][1]);
    assert_int_equal(params->count, 12 * 27 + 2);
    assert_int_equal(ttt_params_find(params, "lm_head.weight"), -1);
    for (int i = 0; i < params->count; i++) {
        const ttt_param *p = &params->list[i];
        bool matrix = p->shape.rank == 2 && strstr(p->name, "_proj.weight") != NULL;
        assert_int_equal(p->transposed, matrix);
        assert_true(p->decay);
        assert_int_equal(ttt_params_find(params, p->name), i); /* no name twice */
    }
    ttt_params_free(params);
}

static void tensors_per_layer(void **state)
{
    static const struct {
        const char *mixer, *backbone;
        int count;
    } table[] = {
        {"ttt_linear", "mamba", 25},       {"ttt_mlp", "mamba", 27},
        {"ttt_linear", "transformer", 18}, {"ttt_mlp", "transformer", 20},
        {"attention", "transformer", 9},   {"mamba", "mamba", 10},
    };
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        ttt_params *params = params_of("125m", table[i].mixer, table[i].backbone);
        int layers = strcmp(table[i].mixer, "mamba") == 0 ? 24 : 12;
        assert_int_equal(params->count, layers * table[i].count + 2);
        ttt_params_free(params);
    }
}

static void untied(void **state)
{
    ttt_config config;
    ttt_error error;
    (void)state;
    assert_true(ttt_config_preset(&config, "tiny", "attention", "transformer", &error));
    config.tie_embeddings = false;
    config.n_kv_heads = 1;
    ttt_params *params = ttt_params_new(&config, TTT_SEPARATE, &error);
    assert_non_null(params);
    const ttt_param *head = find(params, "lm_head.weight");
    assert_true(head->transposed);
    assert_int_equal(head->shape.dims[0], 128);
    assert_int_equal(head->shape.dims[1], 512);
    shape_is(params, "seq_modeling_block.k_proj.weight", "f32[128,64]");
    shape_is(params, "seq_modeling_block.q_proj.weight", "f32[128,128]");
    ttt_params_free(params);
}

static void axes_are(const ttt_params *params, const char *name, const char *first,
                     const char *second)
{
    const ttt_param *p = find(params, name);
    const char *wanted[2] = {first, second};
    for (int i = 0; i < 2; i++) {
        if (wanted[i] == NULL)
            assert_null(p->spec.axes[i]);
        else
            assert_string_equal(p->spec.axes[i], wanted[i]);
    }
}

static void shardings(void **state)
{
    ttt_params *params = params_of("tiny", "ttt_linear", "mamba");
    (void)state;
    axes_are(params, "model.embed_tokens.weight", "model", "fsdp+time");
    axes_are(params, "model.layers.0.seq_modeling_block.q_proj.weight", "fsdp+time", "model");
    axes_are(params, "model.layers.0.seq_modeling_block.g_proj.weight", "fsdp+time", "model");
    axes_are(params, "model.layers.0.seq_modeling_block.o_proj.weight", "model", "fsdp+time");
    axes_are(params, "model.layers.0.mlp.down_proj.weight", "model", "fsdp+time");
    axes_are(params, "model.layers.0.seq_modeling_block.W1", "model", NULL);
    axes_are(params, "model.layers.0.seq_norm.weight", NULL, NULL);
    ttt_params_free(params);
}

/* ---- initial values -------------------------------------------------------------------------- */

static void moments(const float *x, size_t count, double *mean, double *deviation, double *most)
{
    double sum = 0, squares = 0;
    *most = 0;
    for (size_t i = 0; i < count; i++) {
        sum += x[i];
        squares += (double)x[i] * x[i];
        *most = fmax(*most, fabs(x[i]));
    }
    *mean = sum / (double)count;
    *deviation = sqrt(squares / (double)count - *mean * *mean);
}

/* Bits that must never change: a seed in a paper would mean another model. From NumPy, by threefry
 * written anew there, its own logarithm and cosine, rounded to f32. */
static void golden_values(void **state)
{
    static const ttt_param normal = {.name = "model.embed_tokens.weight",
                                     .shape = {HLO_F32, 1, {4}},
                                     .init = TTT_INIT_NORMAL,
                                     .scale = 0.02};
    static const ttt_param conv = {.name = "conv.weight",
                                   .shape = {HLO_F32, 1, {4}},
                                   .init = TTT_INIT_LECUN_NORMAL,
                                   .scale = 4};
    static const ttt_param step = {
        .name = "dt", .shape = {HLO_F32, 1, {2}}, .init = TTT_INIT_STEP_BIAS};
    static const ttt_param count = {
        .name = "A", .shape = {HLO_F32, 2, {2, 3}}, .init = TTT_INIT_LOG_COUNT};
    float out[6];
    (void)state;
    ttt_init_block(&normal, 0, NULL, NULL, out);
    assert_memory_equal(out, ((float[]){0.0139967473f, 0.0174239986f, 0.0300687533f, 0.025072664f}),
                        16);
    ttt_init_block(&normal, 0x123456789abcdef, NULL, NULL, out);
    assert_memory_equal(
        out, ((float[]){-0.00585030485f, 0.0118238553f, 0.00538996095f, 0.0138065405f}), 16);
    ttt_init_block(&conv, 7, NULL, NULL, out);
    assert_memory_equal(out, ((float[]){-0.167838946f, -0.0790424198f, 0.335424602f, -0.17767565f}),
                        16);
    ttt_init_block(&step, 7, NULL, NULL, out);
    assert_memory_equal(out, ((float[]){-6.4976182f, -6.46632719f}), 8);
    ttt_init_block(&count, 7, NULL, NULL, out);
    for (int i = 0; i < 6; i++)
        assert_true(out[i] == (float)log(i % 3 + 1));
}

/* Whatever mesh: pieces put together are the whole. */
static void pieces(void **state)
{
    static const ttt_param p = {
        .name = "x", .shape = {HLO_F32, 3, {4, 6, 5}}, .init = TTT_INIT_LECUN_NORMAL, .scale = 4};
    float whole[120], piece[2 * 3 * 2];
    (void)state;
    ttt_init_block(&p, 42, NULL, NULL, whole);
    for (int64_t a = 0; a < 4; a += 2) {
        for (int64_t b = 0; b < 6; b += 3) {
            for (int64_t c = 1; c < 5; c += 2) {
                ttt_init_block(&p, 42, (int64_t[]){a, b, c}, (int64_t[]){a + 2, b + 3, c + 2},
                               piece);
                for (int64_t i = 0; i < 12; i++) {
                    int64_t at = ((a + i / 6) * 6 + b + i / 2 % 3) * 5 + c + i % 2;
                    assert_memory_equal(&piece[i], &whole[at], sizeof *piece);
                }
            }
        }
    }
    piece[0] = -1;
    ttt_init_block(&p, 42, (int64_t[]){1, 1, 1}, (int64_t[]){2, 1, 2}, piece);
    assert_true(piece[0] == -1); /* an empty piece writes nothing */
}

/* A million draws: five deviations of each moment's own error. */
static void distributions(void **state)
{
    enum { N = 1 << 20 };
    ttt_param p = {
        .name = "x", .shape = HLO_SHAPE(HLO_F32, N), .init = TTT_INIT_NORMAL, .scale = 0.02};
    float *x = malloc(N * sizeof *x), *y = malloc(N * sizeof *y);
    double mean, deviation, most, sum = 0;
    (void)state;
    assert_true(x != NULL && y != NULL);
    ttt_init_block(&p, 1, NULL, NULL, x);
    moments(x, N, &mean, &deviation, &most);
    assert_true(fabs(mean) < 5 * 0.02 / 1024 && fabs(deviation - 0.02) < 5 * 0.02 / 1448);
    assert_true(most > 0.02 * 4.2 && most < 0.02 * 6.8);
    p.name = "y"; /* another stream */
    ttt_init_block(&p, 1, NULL, NULL, y);
    for (int i = 0; i < N; i++)
        sum += (double)x[i] * y[i];
    assert_true(fabs(sum / N) < 5 * 0.02 * 0.02 / 1024);
    p.init = TTT_INIT_LECUN_NORMAL;
    p.scale = 4;
    ttt_init_block(&p, 1, NULL, NULL, x);
    moments(x, N, &mean, &deviation, &most);
    assert_true(fabs(mean) < 0.003 && fabs(deviation - 0.5) < 0.003);
    assert_true(most > 1.13 && most <= 1.1369); /* 2 * 0.5 / 0.8796 */
    p.init = TTT_INIT_UNIFORM;
    p.scale = 3;
    ttt_init_block(&p, 1, NULL, NULL, x);
    moments(x, N, &mean, &deviation, &most);
    assert_true(fabs(mean) < 0.01 && fabs(deviation - sqrt(3)) < 0.01 && most <= 3);
    p.init = TTT_INIT_STEP_BIAS;
    ttt_init_block(&p, 1, NULL, NULL, x);
    for (int i = 0; i < N; i++) {
        double step = log1p(exp(x[i]));
        assert_true(step > 0.000999 && step < 0.1001);
    }
    free(x);
    free(y);
}

/* Every parameter of a network starts as the reference has it start. */
static void starts_of_a_network(void **state)
{
    ttt_params *params = params_of("tiny", "ttt_mlp", "mamba");
    (void)state;
    for (int i = 0; i < params->count; i++) {
        const ttt_param *p = &params->list[i];
        size_t count = (size_t)hlo_shape_elements(&p->shape);
        float *x = malloc(count * sizeof *x);
        double mean, deviation, most;
        assert_non_null(x);
        ttt_init_block(p, 3, NULL, NULL, x);
        moments(x, count, &mean, &deviation, &most);
        bool scale = strstr(p->name, "norm.weight") != NULL || strstr(p->name, "norm_weight");
        bool zero = strstr(p->name, "bias") != NULL || strstr(p->name, "token_idx") != NULL ||
                    strstr(p->name, "block.b") != NULL;
        bool conv = strstr(p->name, "conv") != NULL;
        if (scale || zero)
            assert_true(most == (scale ? 1 : 0) && mean == most);
        else
            assert_true(fabs(deviation / (conv ? 0.5 : 0.02) - 1) < 0.2);
        free(x);
    }
    ttt_params_free(params);
}

/* ---- stacked layers -------------------------------------------------------------------------- */

/* That layer's parameter in a table of separate ones. */
static const ttt_param *layer_of(const ttt_params *separate, const ttt_param *stacked, int layer)
{
    char name[128];
    const char *star = strchr(stacked->name, '*');
    if (star == NULL)
        return find(separate, stacked->name);
    snprintf(name, sizeof name, "%.*s%d%s", (int)(star - stacked->name), stacked->name, layer,
             star + 1);
    return find(separate, name);
}

/* A block over layers has the bits of one layer's block after another; outside the layers there is
 * but one. */
static void same_starts(const ttt_params *separate, const ttt_param *p, const int64_t *start,
                        const int64_t *limit)
{
    enum { ROOM = 4096 };
    float all[ROOM], one[ROOM];
    int skip = p->layers == 0 ? 0 : 1;
    int first = skip == 0 ? 0 : (int)start[0], end = skip == 0 ? 1 : (int)limit[0];
    int64_t each = 1;
    for (int i = skip; i < p->shape.rank; i++)
        each *= limit[i] - start[i];
    assert_true(each > 0 && end > first && each * (end - first) <= ROOM);
    ttt_init_block(p, 5, start, limit, all);
    for (int layer = first; layer < end; layer++) {
        ttt_init_block(layer_of(separate, p, layer), 5, start + skip, limit + skip, one);
        assert_memory_equal(all + each * (layer - first), one, (size_t)each * sizeof *one);
    }
}

static void starts_alike(const ttt_params *separate, const ttt_param *p)
{
    int64_t start[HLO_MAX_RANK] = {0}, limit[HLO_MAX_RANK] = {0};
    float whole[4096], pieces[4096];
    for (int i = 0; i < p->shape.rank; i++)
        limit[i] = p->shape.dims[i];
    same_starts(separate, p, start, limit);
    /* The whole by NULL is the block of all. */
    size_t bytes = (size_t)hlo_shape_elements(&p->shape) * sizeof *whole;
    assert_true(bytes <= sizeof whole);
    ttt_init_block(p, 5, NULL, NULL, whole);
    ttt_init_block(p, 5, start, limit, pieces);
    assert_memory_equal(whole, pieces, bytes);
    /* Two layers of three, and of each a part that ends before the edge. */
    for (int i = 0; i < p->shape.rank; i++) {
        start[i] = p->shape.dims[i] / 3;
        limit[i] = p->shape.dims[i] - p->shape.dims[i] / 4;
    }
    same_starts(separate, p, start, limit);
}

static void stacked_as_separate(void **state)
{
    static const char *const mixers[] = {"ttt_linear", "ttt_mlp", "attention", "mamba"};
    (void)state;
    for (size_t m = 0; m < sizeof mixers / sizeof *mixers; m++) {
        ttt_config config;
        ttt_error error;
        assert_true(ttt_config_preset(&config, "tiny", mixers[m], "mamba", &error));
        config.n_layers = 3;
        config.hidden_size = 8;
        config.intermediate_size = 12;
        config.vocab_size = 11;
        ttt_params *separate = ttt_params_new(&config, TTT_SEPARATE, &error);
        ttt_params *stacked = ttt_params_new(&config, TTT_STACKED, &error);
        assert_true(separate != NULL && stacked != NULL);
        assert_int_equal(stacked->elements, separate->elements);
        for (int i = 0; i < stacked->count; i++)
            starts_alike(separate, &stacked->list[i]);
        ttt_params_free(separate);
        ttt_params_free(stacked);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_shapes),
        cmocka_unit_test(tensors_per_layer),
        cmocka_unit_test(untied),
        cmocka_unit_test(shardings),
        cmocka_unit_test(golden_values),
        cmocka_unit_test(pieces),
        cmocka_unit_test(distributions),
        cmocka_unit_test(starts_of_a_network),
        cmocka_unit_test(stacked_as_separate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
