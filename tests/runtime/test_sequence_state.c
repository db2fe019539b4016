/* States in files: back as they were, or refused with the reason. No device is needed. */
#include "runtime/generate/sequence_state.h"
#include "tests/support/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static char folder[PATH_MAX];

static int set_up(void **state)
{
    (void)state;
    support_new_folder(folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    support_remove_folder(folder);
    return 0;
}

static ttt_state *make_state(void)
{
    const ttt_state_about about = {
        .position = 1021, .mb_offset = 13, .mixer = "ttt_mlp", .model = {0x0123456789abcdef, 7}};
    const ttt__state_array parts[] = {
        {.name = "layers.0.W1", .shape = HLO_SHAPE(HLO_F32, 1, 2, 3, 5)},
        {.name = "layers.0.b1_sum", .shape = HLO_SHAPE(HLO_F32, 1, 7)},
        {.name = "layers.1.keys", .shape = HLO_SHAPE(HLO_F32, 1, 0, 4)}};
    ttt_state *s;
    ASSERT_OK(ttt__sequence_state_new(&about, parts, 3, &s));
    for (int i = 0; i < 30; i++)
        ((float *)ttt__sequence_state_data(s, 0))[i] = (float)i / 3;
    ((float *)ttt__sequence_state_data(s, 1))[6] = -1;
    ttt__image_seal(s->image, s->size);
    return s;
}

static void assert_same(const ttt_state *a, const ttt_state *b)
{
    assert_int_equal(a->size, b->size);
    assert_memory_equal(a->image, b->image, a->size);
    assert_int_equal(a->count, b->count);
    assert_int_equal(a->about.position, b->about.position);
    assert_int_equal(a->about.mb_offset, b->about.mb_offset);
    assert_int_equal(a->about.bytes, b->about.bytes);
    assert_string_equal(a->about.mixer, b->about.mixer);
    assert_memory_equal(a->about.model, b->about.model, sizeof a->about.model);
    for (int i = 0; i < a->count; i++) {
        assert_string_equal(a->parts[i].name, b->parts[i].name);
        assert_true(hlo_shape_equal(&a->parts[i].shape, &b->parts[i].shape));
        assert_memory_equal(ttt__sequence_state_data(a, i), ttt__sequence_state_data(b, i),
                            a->parts[i].size);
    }
}

static pjrt_status *parse(const void *bytes, size_t size, ttt_state **out)
{
    unsigned char *copy = malloc(size + 1);
    assert_non_null(copy);
    if (size > 0)
        memcpy(copy, bytes, size);
    return ttt__sequence_state_parse("it", copy, size, out);
}

static void there_and_back(void **state)
{
    (void)state;
    const char *path = support_path(folder, "a.state");
    ttt_state *s = make_state(), *back;
    for (int i = 0; i < 2; i++) { /* the second takes the first one's place */
        ASSERT_OK(ttt_state_write(s, path));
        ASSERT_OK(ttt_state_read(path, &back));
        assert_same(s, back);
        ttt_state_free(back);
    }
    assert_int_equal(support_count_files(folder), 1);
    assert_int_equal(ttt__sequence_state_find(s, "layers.1.keys"), 2);
    assert_int_equal(ttt__sequence_state_find(s, "layers.9.keys"), -1);
    ASSERT_FAILS(ttt_state_write(s, support_path(folder, "no/a.state")), NOT_FOUND, "no/a.state");
    ASSERT_FAILS(ttt_state_read(support_path(folder, "b.state"), &back), NOT_FOUND, "b.state");
    assert_null(back);
    ASSERT_FAILS(ttt_state_read(folder, &back), DATA_LOSS, "not a file");
    ttt_state_free(s);
}

static void moved(void **state)
{
    (void)state;
    ttt_state *s = make_state(), *further;
    ASSERT_OK(ttt_state_moved(s, 100013, &further));
    assert_int_equal(further->about.position, 100013);
    assert_int_equal(further->parts[2].shape.dims[1], 100013);
    assert_memory_equal(ttt__sequence_state_data(s, 0), ttt__sequence_state_data(further, 0),
                        s->parts[0].size);
    ttt_state *back;
    ASSERT_OK(parse(further->image, further->size, &back));
    assert_same(further, back);
    ttt_state_free(back);
    ttt_state_free(further);
    ASSERT_FAILS(ttt_state_moved(s, -1, &further), INVALID_ARGUMENT, "-1");
    ttt_state_free(s);
}

/* To the nearest number of 8 bits, ties to the even one. */
static void rounded(void **state)
{
    static const float given[] = {1 + 0x1p-8f,  1 + 0x3p-8f, 1 + 0x1.02p-8f,
                                  -0x1.fep127f, 0,           INFINITY};
    static const float right[] = {1, 1 + 0x1p-6f, 1 + 0x1p-7f, -0x1.fep127f, 0, INFINITY};
    (void)state;
    ttt_state *s = make_state(), *less, *back;
    memcpy(ttt__sequence_state_data(s, 0), given, sizeof given);
    ASSERT_OK(ttt_state_rounded(s, &less));
    assert_memory_equal(ttt__sequence_state_data(less, 0), right, sizeof right);
    assert_true(((float *)ttt__sequence_state_data(less, 1))[6] == -1);
    ASSERT_OK(parse(less->image, less->size, &back));
    assert_same(less, back);
    ttt_state_free(back);
    ttt_state_free(less);
    ttt_state_free(s);
}

/* ---- damage ------------------------------------------------------------------------------------
 */

static void every_cut(void **state)
{
    (void)state;
    ttt_state *s = make_state(), *back;
    for (size_t size = 0; size < s->size; size++) {
        ASSERT_FAILS(parse(s->image, size, &back), DATA_LOSS, "cut");
        assert_null(back);
    }
    ttt_state_free(s);
}

static void every_bit(void **state)
{
    (void)state;
    ttt_state *s = make_state(), *back;
    for (size_t bit = 0; bit < 8 * s->size; bit++) {
        s->image[bit / 8] ^= (unsigned char)(1 << bit % 8);
        pjrt_status *st = parse(s->image, s->size, &back);
        assert_non_null(st);
        assert_null(back);
        bool version = bit / 8 >= 8 && bit / 8 < 12 && bit != 8 * 8; /* 1 becomes 0, or more */
        assert_int_equal(pjrt_status_code(st),
                         version ? PJRT_CODE_FAILED_PRECONDITION : PJRT_CODE_DATA_LOSS);
        pjrt_status_free(st);
        s->image[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    ttt_state_free(s);
}

static void newer_versions(void **state)
{
    (void)state;
    ttt_state *s = make_state(), *back;
    s->image[8] = 2;
    ASSERT_FAILS(parse(s->image, s->size, &back), FAILED_PRECONDITION, "version 2, newer");
    ttt_state_free(s);
}

/* A file with any header and the right hash, and `bytes` of data. */
static pjrt_status *with_header(const char *header, size_t bytes, ttt_state **out)
{
    size_t used = strlen(header) + 16, start = (used + 63) / 64 * 64, size = start + bytes + 16;
    unsigned char *image = calloc(size, 1);
    assert_non_null(image);
    memcpy(image, "TTTSTATE\1\0\0\0", 12);
    for (int i = 0; i < 4; i++)
        image[12 + i] = (unsigned char)((start - 16) >> 8 * i);
    memset(image + 16, ' ', start - 16);
    memcpy(image + 16, header, used - 16);
    ttt__image_seal(image, size);
    return ttt__sequence_state_parse("it", image, size, out);
}

#define MODEL "\"model\": \"00000000000000010000000000000002\""
#define ABOUT "\"mixer\": \"mamba\", " MODEL ", \"type\": \"f32\", \"position\": 5, \"place\": 0"
#define PART(shape) "{\"name\": \"x\", \"shape\": " shape "}"

static void hostile_headers(void **state)
{
    (void)state;
    static const struct {
        const char *header, *why;
        size_t bytes;
    } wrong[] = {
        {"", "no JSON object", 0},
        {"[]", "no JSON object", 0},
        {"{", "no JSON object", 0},
        {"{}", "mixer", 0},
        {"{\"mixer\": \"mamba\", \"mixer\": \"mamba\"}", "no JSON object", 0},
        {"{\"mixer\": \"none\"}", "mixer", 0},
        {"{\"mixer\": 3}", "mixer", 0},
        {"{\"mixer\": \"mamba\", \"model\": \"12\"}", "model", 0},
        {"{\"mixer\": \"mamba\", \"model\": \"0000000000000001000000000000000Z\"}", "model", 0},
        {"{\"mixer\": \"mamba\", " MODEL ", \"type\": \"f64\"}", "type", 0},
        {"{\"mixer\": \"mamba\", " MODEL ", \"type\": \"f32\", \"position\": -1}", "position", 0},
        {"{\"mixer\": \"mamba\", " MODEL ", \"type\": \"f32\", \"position\": 1e3}", "position", 0},
        {"{\"mixer\": \"mamba\", " MODEL ", \"type\": \"f32\", \"position\": 3000000000}",
         "position", 0},
        {"{\"mixer\": \"mamba\", " MODEL ", \"type\": \"f32\", \"position\": 5, \"place\": 6}",
         "place", 0},
        {"{" ABOUT "}", "parts", 0},
        {"{" ABOUT ", \"parts\": {}}", "parts", 0},
        {"{" ABOUT ", \"parts\": [1]}", "part 0", 0},
        {"{" ABOUT ", \"parts\": [{\"name\": \"x\"}]}", "part 0", 0},
        {"{" ABOUT ", \"parts\": [{\"shape\": [1]}]}", "part 0", 0},
        {"{" ABOUT ", \"parts\": [" PART("[-1]") "]}", "part 0", 0},
        {"{" ABOUT ", \"parts\": [" PART("[1.5]") "]}", "part 0", 0},
        {"{" ABOUT ", \"parts\": [" PART("[4611686018427387904, 8]") "]}", "part 0", 0},
        {"{" ABOUT ", \"parts\": [" PART("[4611686018427387904, 4]") "]}", "part 0", 0},
        {"{" ABOUT ", \"parts\": [" PART("[1152921504606846975]") "]}", "ends within x", 64},
        {"{" ABOUT ", \"parts\": [" PART("[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]") "]}", "part 0", 64},
        {"{" ABOUT ", \"parts\": [" PART("[17]") "]}", "ends within x", 64},
        {"{" ABOUT ", \"parts\": [" PART("[16]") "]}", "64 bytes", 128},
        {"{" ABOUT ", \"parts\": []}", "64 bytes", 64},
    };
    ttt_state *back;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        ASSERT_FAILS(with_header(wrong[i].header, wrong[i].bytes, &back), DATA_LOSS, wrong[i].why);
        assert_null(back);
    }
    ASSERT_OK(with_header("{" ABOUT ", \"parts\": [" PART("[16]") "]}", 64, &back));
    assert_int_equal(back->parts[0].size, 64);
    ttt_state_free(back);
}

/* A header that says it is longer than the file. */
static void long_headers(void **state)
{
    (void)state;
    ttt_state *s = make_state(), *back;
    static const unsigned char sizes[][4] = {
        {0xf0, 0xff, 0xff, 0xff}, {0x30, 0, 0, 1}, {0xf0, 0xff, 0, 0}, {0x31, 0, 0, 0}};
    for (int i = 0; i < 4; i++) {
        memcpy(s->image + 12, sizes[i], 4);
        ttt__image_seal(s->image, s->size);
        ASSERT_FAILS(parse(s->image, s->size, &back), DATA_LOSS, "header of");
    }
    ttt_state_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_and_back),  cmocka_unit_test(moved),
        cmocka_unit_test(rounded),         cmocka_unit_test(every_cut),
        cmocka_unit_test(every_bit),       cmocka_unit_test(newer_versions),
        cmocka_unit_test(hostile_headers), cmocka_unit_test(long_headers),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
