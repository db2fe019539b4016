/* safetensors: what is read and written, and every way in which a file can lie. */
#include "model/records.h"
#include "tests/support/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* A file with that header and `size` bytes of data, 0, 1, 2 …; the caller frees it. */
static unsigned char *file_of(const char *header, size_t size, size_t *total)
{
    size_t length = strlen(header);
    unsigned char *bytes = malloc(8 + length + size);
    assert_non_null(bytes);
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)((uint64_t)length >> 8 * i);
    memcpy(bytes + 8, header, length);
    for (size_t i = 0; i < size; i++)
        bytes[8 + length + i] = (unsigned char)i;
    *total = 8 + length + size;
    return bytes;
}

/* Parses it as an opened file would be; NULL when refused. */
static ttt_tensors *parse(const void *bytes, size_t size, ttt_error *error)
{
    ttt_tensors *tensors = ttt__tensors_new(error);
    assert_non_null(tensors);
    if (ttt__safetensors_parse(tensors, bytes, size, error) && ttt__tensors_sort(tensors, error))
        return tensors;
    ttt_tensors_free(tensors);
    return NULL;
}

static void refused(const char *header, size_t size, const char *part)
{
    size_t total;
    ttt_error error = {""};
    unsigned char *bytes = file_of(header, size, &total);
    ttt_tensors *tensors = parse(bytes, total, &error);
    if (tensors != NULL)
        fail_msg("accepted: %s", header);
    ASSERT_CONTAINS(error.message, part);
    assert_null(strchr(error.message, '\n'));
    free(bytes);
}

static ttt_tensors *accepted(const char *header, size_t size, unsigned char **bytes)
{
    size_t total;
    ttt_error error = {""};
    *bytes = file_of(header, size, &total);
    ttt_tensors *tensors = parse(*bytes, total, &error);
    if (tensors == NULL)
        fail_msg("%s: %s", header, error.message);
    return tensors;
}

#define F32(name, shape, start, end) \
    "\"" name "\":{\"dtype\":\"F32\",\"shape\":[" shape "],\"data_offsets\":[" start "," end "]}"

static void good_headers(void **state)
{
    unsigned char *bytes;
    char text[HLO_SHAPE_TEXT];
    (void)state;
    ttt_tensors *t =
        accepted("{" F32("b", "2,1", "4", "12") "," F32("a", "", "0", "4") "}  \n", 12, &bytes);
    assert_int_equal(ttt_tensors_count(t), 2);
    assert_string_equal(ttt_tensors_get(t, 0)->name, "a");
    assert_null(ttt_tensors_get(t, 2));
    assert_null(ttt_tensors_find(t, "c"));
    const ttt_tensor *b = ttt_tensors_find(t, "b");
    assert_string_equal(hlo_shape_text(&b->shape, text), "f32[2,1]");
    assert_int_equal(*(const unsigned char *)b->data, 4);
    assert_int_equal(b->size, 8);
    ttt_tensors_free(t);
    free(bytes);
    t = accepted("{ }", 0, &bytes);
    assert_int_equal(ttt_tensors_count(t), 0);
    ttt_tensors_free(t);
    free(bytes);
    /* Escapes, metadata, empty tensors at one place, properties in another order. */
    t = accepted(
        "{\"__metadata__\":{\"format\":\"pt\",\"\\u00e4\":\"\"}, \"\\u0061\\\"\\ud83d\\ude00"
        "\\/\" : { \"data_offsets\" : [0, 0], \"shape\" : [0, 7], \"dtype\" : \"I64\" }, " F32(
            "é", "0", "0", "0") "}",
        0, &bytes);
    assert_int_equal(ttt_tensors_count(t), 2);
    assert_non_null(ttt_tensors_find(t, "a\"\xf0\x9f\x98\x80/"));
    assert_non_null(ttt_tensors_find(t, "\xc3\xa9"));
    ttt_tensors_free(t);
    free(bytes);
}

static void bad_placement(void **state)
{
    (void)state;
    refused("{" F32("a", "1", "0", "4") "}", 3, "outside");
    refused("{" F32("a", "1", "0", "4") "}", 5, "belong to no tensor");
    refused("{" F32("a", "1", "4", "0") "}", 4, "outside");
    refused("{" F32("a", "1", "1", "5") "}", 5, "hole");
    refused("{" F32("a", "1", "0", "4") "," F32("b", "1", "8", "12") "}", 12, "hole");
    refused("{" F32("a", "1", "0", "4") "," F32("b", "1", "2", "6") "}", 6, "overlaps");
    refused("{" F32("a", "1", "0", "4") "," F32("b", "1", "0", "4") "}", 4, "overlaps");
    refused("{" F32("a", "2", "0", "8") "," F32("b", "0", "4", "4") "}", 8, "overlaps");
    refused("{" F32("a", "1", "0", "4") "," F32("a", "1", "4", "8") "}", 8, "twice");
    refused("{" F32("a", "1", "0", "4") "," F32("\\u0061", "1", "4", "8") "}", 8, "twice");
    refused("{" F32("a", "2", "0", "4") "}", 4, "another size");
    /* Products that wrap round to the right size. */
    refused("{" F32("a", "4611686018427387904,4", "0", "0") "}", 0, "another size");
    refused("{" F32("a", "9223372036854775807,2", "0", "4") "}", 4, "another size");
    refused("{" F32("a", "9223372036854775808", "0", "4") "}", 4, "too large");
    refused("{" F32("a", "1", "0", "18446744073709551620") "}", 4, "too large");
}

static void bad_json(void **state)
{
    (void)state;
    refused("", 0, "start with {");
    refused(" {}", 0, "start with {");
    refused("[]", 0, "start with {");
    refused("{", 0, "string is missing");
    refused("{}{}", 0, "follows");
    refused("{}x", 0, "follows");
    refused("{" F32("a", "1", "0", "4"), 4, "no end");
    refused("{" F32("a", "1", "0", "4") ",}", 4, "string is missing");
    refused("{\"a\" 1}", 0, "colon");
    refused("{\"a\":1}", 0, "not an object");
    refused("{\"a\":{}}", 0, "string is missing");
    refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[]}}", 0, "lacks");
    refused("{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}}", 0, "twice");
    refused("{\"a\":{\"dtype\":\"F32\",\"extra\":1}}", 0, "unknown");
    refused("{\"a\":{\"dtype\":\"F8_E4M3\"}}", 0, "F8_E4M3");
    refused("{\"a\":{\"dtype\":32}}", 0, "string is missing");
    refused("{" F32("a", "1.0", "0", "4") "}", 4, "list has no end");
    refused("{" F32("a", "-1", "0", "4") "}", 4, "whole number");
    refused("{" F32("a", "01", "0", "4") "}", 4, "whole number");
    refused("{" F32("a", "1,", "0", "4") "}", 4, "whole number");
    refused("{" F32("a", "1,1,1,1,1,1,1,1,1", "0", "4") "}", 4, "too long");
    refused("{\"a\":{\"data_offsets\":[0]}}", 0, "not two");
    refused("{\"a\":{\"data_offsets\":[0,1,2]}}", 0, "too long");
    refused("{\"__metadata__\":{\"a\":1}}", 0, "string is missing");
    refused("{\"__metadata__\":{},\"__metadata__\":{}}", 0, "twice");
    refused("{\"a", 0, "no end");
    refused("{\"a\\", 0, "no end");
    refused("{\"\\u12", 0, "escape");
    refused("{\"\\u12g4\"", 0, "escape");
    refused("{\"\\q\"", 0, "escape");
    refused("{\"\\u0000\":{}}", 0, "NUL");
    refused("{\"\\ud800\":{}}", 0, "surrogate");
    refused("{\"\\ud800\\u0041\":{}}", 0, "surrogate");
    refused("{\"\\udc00\":{}}", 0, "surrogate");
    refused("{\"\xff\":{}}", 0, "UTF-8");
    refused("{\"\xc0\x80\":{}}", 0, "UTF-8");
    refused("{\"\xed\xa0\x80\":{}}", 0, "UTF-8");
    refused("{\"\xf4\x90\x80\x80\":{}}", 0, "UTF-8");
    refused("{\"\xe2\x82", 0, "UTF-8");
    refused("{\"a\nb\":{}}", 0, "UTF-8");
}

static void bad_lengths(void **state)
{
    ttt_error error = {""};
    unsigned char head[16] = {0};
    (void)state;
    for (size_t size = 0; size < 8; size++)
        assert_null(parse(head, size, &error));
    assert_null(parse(head, 8, &error)); /* a header of 0 bytes */
    head[0] = 9;
    assert_null(parse(head, 16, &error));
    ASSERT_CONTAINS(error.message, "larger");
    memset(head, 0xff, 8);
    assert_null(parse(head, 16, &error));
    ASSERT_CONTAINS(error.message, "larger");
    /* 100,000,001 bytes of header, though the file has them. */
    size_t total;
    char *header = malloc(100000002);
    assert_non_null(header);
    memset(header, ' ', 100000001);
    header[0] = '{';
    header[1] = '}';
    header[100000001] = '\0';
    unsigned char *bytes = file_of(header, 0, &total);
    assert_null(parse(bytes, total, &error));
    ASSERT_CONTAINS(error.message, "100000000");
    bytes[0]--; /* one less is allowed, and the byte left over is then no tensor's */
    assert_null(parse(bytes, total, &error));
    ASSERT_CONTAINS(error.message, "no tensor");
    free(header);
    free(bytes);
}

/* Every prefix of a good file is refused, and none makes the reader look past its end. */
static void cut_short(void **state)
{
    size_t total;
    ttt_error error;
    unsigned char *bytes =
        file_of("{\"__metadata__\":{\"k\":\"v\"}," F32("a", "2", "0", "8") "}", 8, &total);
    (void)state;
    for (size_t size = 0; size < total; size++) {
        unsigned char *copy = malloc(size + 1); /* a block of its own, for the sanitizer */
        assert_non_null(copy);
        memcpy(copy, bytes, size);
        assert_null(parse(copy, size, &error));
        free(copy);
    }
    free(bytes);
}

/* ---- element types --------------------------------------------------------------------------- */

static void element_types(void **state)
{
    float out[6];
    (void)state;
    /* f16: 1, -2, largest, smallest denormal, infinity, -0 */
    static const uint16_t half[] = {0x3c00, 0xc000, 0x7bff, 0x0001, 0x7c00, 0x8000};
    assert_true(ttt_to_f32(HLO_F16, half, 6, out));
    assert_true(out[0] == 1 && out[1] == -2 && out[2] == 65504 && out[3] == 0x1p-24f &&
                isinf(out[4]) && out[5] == 0 && signbit(out[5]));
    static const uint16_t brain[] = {0x3f80, 0xc000, 0x7f80, 0x7fc0};
    assert_true(ttt_to_f32(HLO_BF16, brain, 4, out));
    assert_true(out[0] == 1 && out[1] == -2 && isinf(out[2]) && isnan(out[3]));
    assert_true(ttt_to_f32(HLO_F64, ((double[]){0.1, -3}), 2, out));
    assert_true(out[0] == 0.1f && out[1] == -3);
    assert_true(ttt_to_f32(HLO_S64, ((int64_t[]){-5}), 1, out) && out[0] == -5);
    assert_true(ttt_to_f32(HLO_S32, ((int32_t[]){-6}), 1, out) && out[0] == -6);
    assert_true(ttt_to_f32(HLO_U8, ((uint8_t[]){200}), 1, out) && out[0] == 200);
    assert_false(ttt_to_f32(HLO_PRED, ((uint8_t[]){1}), 1, out));
    /* To bf16: ties to even both ways, overflow to infinity, NaN with low bits only stays one. */
    float in[6] = {1.00390625f, 1.01171875f, 3.4e38f, -1.0f, 1.1f, 0};
    uint32_t nan_bits = 0x7f800001;
    memcpy(&in[5], &nan_bits, 4);
    uint16_t bits[6];
    ttt_from_f32(HLO_BF16, in, 6, bits);
    static const uint16_t wanted[] = {0x3f80, 0x3f82, 0x7f80, 0xbf80, 0x3f8d, 0x7fc0};
    assert_memory_equal(bits, wanted, sizeof wanted);
}

/* ---- files ----------------------------------------------------------------------------------- */

typedef struct model {
    ttt_config config;
    ttt_params *params;
} model;

static model model_of(const char *mixer, int64_t layers, ttt_layout layout)
{
    model m;
    ttt_error error;
    assert_true(ttt_config_preset(&m.config, "tiny", mixer, "mamba", &error));
    m.config.n_layers = layers;
    m.config.hidden_size = 8;
    m.config.intermediate_size = 12;
    m.config.vocab_size = 11;
    m.config.mini_batch_size = 4;
    m.params = ttt_params_new(&m.config, layout, &error);
    assert_non_null(m.params);
    return m;
}

static model small_model(const char *mixer)
{
    return model_of(mixer, 2, TTT_SEPARATE);
}

static bool start_one(void *ctx, int index, float *out, ttt_error *error)
{
    const model *m = ctx;
    (void)error;
    ttt_init_block(&m->params->list[index], 9, NULL, NULL, out);
    return true;
}

static void there_and_back(void **state)
{
    char folder[PATH_MAX];
    ttt_error error = {""};
    model m = small_model("ttt_mlp");
    (void)state;
    support_new_folder(folder);
    for (int pass = 0; pass < 2; pass++) {
        hlo_type type = pass == 0 ? HLO_F32 : HLO_BF16;
        if (!ttt_params_save(m.params, support_path(folder, "model.safetensors"), type, start_one,
                             &m, &error))
            fail_msg("%s", error.message);
        assert_int_equal(support_count_files(folder), 1);
        ttt_tensors *tensors = ttt_tensors_open(folder, &error);
        if (tensors == NULL || !ttt_params_match(m.params, tensors, &error))
            fail_msg("%s", error.message);
        assert_int_equal(ttt_tensors_count(tensors), m.params->count);
        for (int i = 0; i < m.params->count; i++) {
            float wanted[128], found[128], turned[128];
            const ttt_param *p = &m.params->list[i];
            size_t count = (size_t)hlo_shape_elements(&p->shape);
            assert_true(count <= 128);
            start_one(&m, i, wanted, &error);
            assert_true(ttt_params_load(m.params, i, tensors, found, &error));
            for (size_t k = 0; k < count; k++)
                assert_true(fabsf(found[k] - wanted[k]) <= pass * fabsf(wanted[k]) / 256);
            /* In the file, a matrix is the other way round. */
            const ttt_tensor *tensor = ttt_tensors_find(tensors, p->name);
            assert_int_equal(tensor->shape.type, type);
            assert_int_equal((uintptr_t)ttt_tensors_get(tensors, 0)->data % 4, 0);
            if (p->transposed && pass == 0) {
                assert_int_equal(tensor->shape.dims[0], p->shape.dims[1]);
                memcpy(turned, tensor->data, tensor->size);
                for (size_t k = 0; k < count; k++)
                    assert_true(turned[k] ==
                                wanted[k % (size_t)p->shape.dims[0] * (size_t)p->shape.dims[1] +
                                       k / (size_t)p->shape.dims[0]]);
            }
        }
        assert_false(ttt_params_load(m.params, m.params->count, tensors, NULL, &error));
        ttt_tensors_free(tensors);
    }
    ttt_params_free(m.params);
    support_remove_folder(folder);
}

/* ---- stacked parameters ---------------------------------------------------------------------- */

static void save(const model *m, const char *path, hlo_type type)
{
    ttt_error error = {""};
    if (!ttt_params_save(m->params, path, type, start_one, (void *)m, &error))
        fail_msg("%s", error.message);
}

static ttt_tensors *open_for(const model *m, const char *path)
{
    ttt_error error = {""};
    ttt_tensors *tensors = ttt_tensors_open(path, &error);
    if (tensors == NULL || !ttt_params_match(m->params, tensors, &error))
        fail_msg("%s", error.message);
    return tensors;
}

/* Each layer of a stacked array is what the layout of one array a layer loads. */
static void loads_alike(const model *stacked, const model *separate, const ttt_tensors *tensors)
{
    enum { LAYERS = 3, EACH = 1024 };
    int seen = 0;
    for (int i = 0; i < stacked->params->count; i++) {
        float all[LAYERS * EACH], one[EACH];
        const ttt_param *p = &stacked->params->list[i];
        int64_t layers = p->layers == 0 ? 1 : p->layers;
        size_t each = (size_t)(hlo_shape_elements(&p->shape) / layers);
        ttt_error error = {""};
        assert_true(layers <= LAYERS && each <= EACH);
        assert_true(ttt_params_load(stacked->params, i, tensors, all, &error));
        for (int64_t layer = 0; layer < layers; layer++) {
            char name[TTT__NAME];
            ttt_param file = ttt__param_layer(p, layer, name);
            int index = ttt_params_find(separate->params, file.name);
            assert_true(index >= 0);
            assert_true(ttt_params_load(separate->params, index, tensors, one, &error));
            assert_memory_equal(all + (size_t)layer * each, one, each * sizeof *one);
            seen++;
        }
    }
    assert_int_equal(seen, separate->params->count);
}

static void same_tensors(const ttt_tensors *a, const ttt_tensors *b)
{
    assert_int_equal(ttt_tensors_count(a), ttt_tensors_count(b));
    for (int i = 0; i < ttt_tensors_count(a); i++) {
        const ttt_tensor *x = ttt_tensors_get(a, i), *y = ttt_tensors_get(b, i);
        assert_string_equal(x->name, y->name);
        assert_true(hlo_shape_equal(&x->shape, &y->shape));
        assert_int_equal(x->size, y->size);
        assert_memory_equal(x->data, y->data, x->size);
    }
}

static void same_bytes(const char *a, const char *b)
{
    size_t n, m;
    unsigned char *x = support_read_file(a, &n), *y = support_read_file(b, &m);
    assert_int_equal(n, m);
    assert_memory_equal(x, y, n);
    free(x);
    free(y);
}

/* Files do not tell the layout: the same tensors, loaded alike. The order of several layers' data
 * is that of the table, so bytes are the same where there is only one. */
static void layouts_in_files(const char *mixer, int64_t layers, hlo_type type)
{
    char folder[PATH_MAX];
    model separate = model_of(mixer, layers, TTT_SEPARATE);
    model stacked = model_of(mixer, layers, TTT_STACKED);
    support_new_folder(folder);
    const char *one = support_path(folder, "separate"), *other = support_path(folder, "stacked");
    save(&separate, one, type);
    save(&stacked, other, type);
    ttt_tensors *a = open_for(&stacked, one), *b = open_for(&separate, other);
    loads_alike(&stacked, &separate, a);
    same_tensors(a, b);
    if (layers == 1)
        same_bytes(one, other);
    ttt_tensors_free(a);
    ttt_tensors_free(b);
    ttt_params_free(separate.params);
    ttt_params_free(stacked.params);
    support_remove_folder(folder);
}

static void stacked_as_separate(void **state)
{
    static const char *const mixers[] = {"ttt_linear", "ttt_mlp", "attention", "mamba"};
    (void)state;
    for (size_t i = 0; i < sizeof mixers / sizeof *mixers; i++) {
        layouts_in_files(mixers[i], 3, HLO_F32);
        layouts_in_files(mixers[i], 3, HLO_BF16);
        layouts_in_files(mixers[i], 1, HLO_F32);
    }
}

/* ---- writing --------------------------------------------------------------------------------- */

static bool fail_at_three(void *ctx, int index, float *out, ttt_error *error)
{
    if (index == 3)
        return ttt__fail(error, "no such luck");
    return start_one(ctx, index, out, error);
}

/* A write that fails leaves the old file, and nothing else. */
static void nothing_left_behind(void **state)
{
    char folder[PATH_MAX];
    ttt_error error = {""};
    model m = small_model("ttt_linear");
    size_t before, after;
    (void)state;
    support_new_folder(folder);
    const char *path = support_path(folder, "model.safetensors");
    assert_false(ttt_params_save(m.params, path, HLO_F32, fail_at_three, &m, &error));
    assert_string_equal(error.message, "no such luck");
    assert_int_equal(support_count_files(folder), 0);
    assert_true(ttt_params_save(m.params, path, HLO_F32, start_one, &m, &error));
    unsigned char *was = support_read_file(path, &before);
    assert_false(ttt_params_save(m.params, path, HLO_F32, fail_at_three, &m, &error));
    unsigned char *is = support_read_file(path, &after);
    assert_int_equal(before, after);
    assert_memory_equal(was, is, before);
    assert_int_equal(support_count_files(folder), 1);
    free(was);
    free(is);
    assert_false(
        ttt_params_save(m.params, support_path(folder, "no/such"), HLO_F32, start_one, &m, &error));
    ttt_params_free(m.params);
    support_remove_folder(folder);
}

static void writer_refuses(void **state)
{
    char folder[PATH_MAX];
    ttt_error error = {""};
    (void)state;
    support_new_folder(folder);
    const char *path = support_path(folder, "x.safetensors");
    ttt_tensor list[2] = {{"a", HLO_SHAPE(HLO_F32, 2)}, {"a", HLO_SHAPE(HLO_F32, 1)}};
    assert_null(ttt_writer_open(path, list, 2, &error));
    ASSERT_CONTAINS(error.message, "twice");
    list[1].name = "b";
    list[1].shape.type = HLO_S32;
    assert_null(ttt_writer_open(path, list, 2, &error));
    ASSERT_CONTAINS(error.message, "BF16");
    list[1].name = "\xff";
    list[1].shape.type = HLO_F32;
    assert_null(ttt_writer_open(path, list, 2, &error));
    list[1] = (ttt_tensor){"b", HLO_SHAPE(HLO_F32, INT64_MAX, INT64_MAX)};
    assert_null(ttt_writer_open(path, list, 2, &error));
    ASSERT_CONTAINS(error.message, "large");
    ttt_writer *writer = ttt_writer_open(path, list, 1, &error);
    assert_non_null(writer);
    assert_true(ttt_writer_put(writer, "abcd", 4, &error));
    assert_false(ttt_writer_put(writer, "abcdefgh", 8, &error));
    assert_false(ttt_writer_finish(writer, true, &error)); /* four bytes are missing */
    ASSERT_CONTAINS(error.message, "missing");
    assert_int_equal(support_count_files(folder), 0);
    support_remove_folder(folder);
}

/* ---- parameters that do not match ------------------------------------------------------------ */

static void write_tensors(const char *path, const ttt_tensor *list, int count)
{
    ttt_error error = {""};
    static const char zeros[4096];
    ttt_writer *writer = ttt_writer_open(path, list, count, &error);
    if (writer == NULL)
        fail_msg("%s", error.message);
    for (int i = 0; i < count; i++) {
        size_t bytes;
        assert_true(ttt__shape_bytes(&list[i].shape, &bytes) && bytes <= sizeof zeros);
        assert_true(ttt_writer_put(writer, zeros, bytes, &error));
    }
    assert_true(ttt_writer_finish(writer, true, &error));
}

static void matched(const model *m, const char *path, const char *part)
{
    ttt_error error = {""};
    ttt_tensors *tensors = ttt_tensors_open(path, &error);
    if (tensors == NULL)
        fail_msg("%s", error.message);
    bool ok = ttt_params_match(m->params, tensors, &error);
    if (ok != (part == NULL))
        fail_msg("%s", error.message);
    if (part != NULL)
        ASSERT_CONTAINS(error.message, part);
    ttt_tensors_free(tensors);
}

static void other_networks(void **state)
{
    char folder[PATH_MAX];
    model m = small_model("ttt_linear");
    ttt_tensor list[80];
    int n = m.params->count;
    (void)state;
    assert_true(n + 3 <= 80);
    support_new_folder(folder);
    const char *path = support_path(folder, "model.safetensors");
    for (int i = 0; i < n; i++) {
        list[i] = (ttt_tensor){m.params->list[i].name, m.params->list[i].shape};
        if (m.params->list[i].transposed) {
            list[i].shape.dims[0] = m.params->list[i].shape.dims[1];
            list[i].shape.dims[1] = m.params->list[i].shape.dims[0];
        }
    }
    write_tensors(path, list, n);
    matched(&m, path, NULL);
    list[n] = (ttt_tensor){"lm_head.weight", HLO_SHAPE(HLO_F32, 11, 8)};
    list[n + 1] = (ttt_tensor){"model.layers.0.seq_modeling_block.rotary_emb.inv_freq",
                               HLO_SHAPE(HLO_F32, 2)};
    write_tensors(path, list, n + 2); /* what others write and nobody needs */
    matched(&m, path, NULL);
    list[n + 2] = (ttt_tensor){"model.layers.2.seq_norm.weight", HLO_SHAPE(HLO_F32, 8)};
    write_tensors(path, list, n + 3);
    matched(&m, path, "model.layers.2.seq_norm.weight");
    write_tensors(path, list + 1, n - 1);
    matched(&m, path, "model.embed_tokens.weight");
    list[0].shape.dims[0] = 12;
    write_tensors(path, list, n);
    matched(&m, path, "f32[12,8]");
    ttt_params_free(m.params);
    support_remove_folder(folder);
}

static void shards(void **state)
{
    char folder[PATH_MAX];
    ttt_error error = {""};
    ttt_tensor list[2] = {{"a", HLO_SHAPE(HLO_F32, 2)}, {"b", HLO_SHAPE(HLO_BF16, 3)}};
    static const struct {
        const char *text, *part;
    } indices[] = {
        {"{\"metadata\":{\"total_size\":14},\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"2."
         "safetensors\"}}",
         NULL},
        {"{\"weight_map\":{\"a\":\"1.safetensors\"}}", NULL},
        {"{\"weight_map\":{\"a\":\"1.safetensors\",\"c\":\"2.safetensors\"}}", "\"c\""},
        {"{\"weight_map\":{\"a\":\"../1.safetensors\"}}", "beside"},
        {"{\"weight_map\":{\"a\":\"/etc/passwd\"}}", "beside"},
        {"{\"weight_map\":{\"a\":7}}", "no file"},
        {"{\"weight_map\":[]}", "weight_map"},
        {"{}", "weight_map"},
        {"{\"weight_map\":{\"a\":\"3.safetensors\"}}", "3.safetensors"},
        {"{\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"1b.safetensors\"}}", "twice"},
        {"{\"weight_map\":{\"b\":\"2.safetensors\",\"a\":\"1.safetensors\",\"z\":\"2.safetensors\"}"
         "}",
         "\"z\""},
    };
    (void)state;
    support_new_folder(folder);
    assert_null(ttt_tensors_open(folder, &error)); /* neither file nor index */
    write_tensors(support_path(folder, "1.safetensors"), list, 1);
    write_tensors(support_path(folder, "1b.safetensors"), list, 2);
    write_tensors(support_path(folder, "2.safetensors"), list + 1, 1);
    for (size_t i = 0; i < sizeof indices / sizeof *indices; i++) {
        support_write_file(support_path(folder, "model.safetensors.index.json"), indices[i].text,
                           strlen(indices[i].text));
        ttt_tensors *tensors = ttt_tensors_open(folder, &error);
        if (indices[i].part == NULL) {
            if (tensors == NULL)
                fail_msg("%s", error.message);
            assert_non_null(ttt_tensors_find(tensors, "a"));
        } else {
            assert_null(tensors);
            ASSERT_CONTAINS(error.message, indices[i].part);
        }
        ttt_tensors_free(tensors);
    }
    support_remove_folder(folder);
}

static void files_that_are_none(void **state)
{
    char folder[PATH_MAX];
    ttt_error error = {""};
    (void)state;
    support_new_folder(folder);
    const char *path = support_path(folder, "x.safetensors");
    assert_null(ttt_tensors_open(path, &error));
    ASSERT_CONTAINS(error.message, "x.safetensors");
    support_write_file(path, "", 0);
    assert_null(ttt_tensors_open(path, &error));
    ASSERT_CONTAINS(error.message, "empty");
    support_write_file(path, "12345678{}", 10);
    assert_null(ttt_tensors_open(path, &error));
    ASSERT_CONTAINS(error.message, "x.safetensors: a header");
    assert_null(ttt_tensors_open("/dev/zero", &error));
    support_remove_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_headers),
        cmocka_unit_test(bad_placement),
        cmocka_unit_test(bad_json),
        cmocka_unit_test(bad_lengths),
        cmocka_unit_test(cut_short),
        cmocka_unit_test(element_types),
        cmocka_unit_test(there_and_back),
        cmocka_unit_test(stacked_as_separate),
        cmocka_unit_test(nothing_left_behind),
        cmocka_unit_test(writer_refuses),
        cmocka_unit_test(other_networks),
        cmocka_unit_test(shards),
        cmocka_unit_test(files_that_are_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
