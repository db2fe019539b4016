/* Which part of an array each device of a mesh has. */
#include "runtime/device/ttt_device.h"
#include "tests/support/support.h"

#include <stdlib.h>

static ttt_mesh mesh_of(const char *text)
{
    ttt_mesh mesh;
    ASSERT_OK(ttt_mesh_parse(text, &mesh));
    return mesh;
}

static void meshes_are_read(void **state)
{
    (void)state;
    ttt_mesh mesh = mesh_of("model=4,data=2");
    assert_int_equal(mesh.n, 4);
    assert_string_equal(mesh.names[0], "model");
    assert_string_equal(mesh.names[1], "data");
    assert_string_equal(mesh.names[2], "fsdp"); /* not given: there, of size 1 */
    assert_int_equal(ttt_mesh_devices(&mesh), 8);
    assert_int_equal(ttt_mesh_size(&mesh, "model"), 4);
    assert_int_equal(ttt_mesh_size(&mesh, "fsdp"), 1);
    assert_int_equal(ttt_mesh_size(&mesh, "time"), 1);
    assert_int_equal(ttt_mesh_size(&mesh, "rows"), 1); /* there is none */
    mesh = mesh_of("fsdp=2,time=8");
    assert_int_equal(ttt_mesh_devices(&mesh), 16);
    assert_int_equal(ttt_mesh_size(&mesh, "time"), 8);
    mesh = mesh_of(NULL);
    assert_int_equal(mesh.n, 0);
    assert_int_equal(ttt_mesh_devices(&mesh), 1);
    assert_int_equal(mesh_of("").n, 0);
}

static void bad_meshes_are_refused(void **state)
{
    (void)state;
    ttt_mesh mesh;
    ASSERT_FAILS(ttt_mesh_parse("data=2,rows=2", &mesh), INVALID_ARGUMENT, "\"rows=2\"");
    ASSERT_FAILS(ttt_mesh_parse("data=2,data=2", &mesh), INVALID_ARGUMENT, "twice");
    ASSERT_FAILS(ttt_mesh_parse("data", &mesh), INVALID_ARGUMENT, "\"data\"");
    ASSERT_FAILS(ttt_mesh_parse("data=", &mesh), INVALID_ARGUMENT, "\"data=\"");
    ASSERT_FAILS(ttt_mesh_parse("data=0", &mesh), INVALID_ARGUMENT, "\"data=0\"");
    ASSERT_FAILS(ttt_mesh_parse("data=2x", &mesh), INVALID_ARGUMENT, "\"data=2x\"");
    ASSERT_FAILS(ttt_mesh_parse("data=2,", &mesh), INVALID_ARGUMENT, "\"\"");
    ASSERT_FAILS(ttt_mesh_parse("=2", &mesh), INVALID_ARGUMENT, "\"=2\"");
    ASSERT_FAILS(ttt_mesh_parse("data=99999999999999999999", &mesh), INVALID_ARGUMENT, "data=9");
    ASSERT_FAILS(ttt_mesh_parse("data=1000000,model=1000000", &mesh), INVALID_ARGUMENT, "model=1");
    assert_int_equal(ttt_mesh_devices(&mesh), 1);
}

static void assert_block(const ttt_mesh *mesh, hlo_shape shape, hlo_spec spec, int64_t device,
                         hlo_dims start, hlo_dims limit)
{
    ttt_block block;
    ASSERT_OK(ttt_mesh_block(mesh, &shape, &spec, device, &block));
    for (int i = 0; i < shape.rank; i++) {
        assert_int_equal(block.start[i], start.d[i]);
        assert_int_equal(block.limit[i], limit.d[i]);
    }
}

static void blocks_follow_the_axes(void **state)
{
    (void)state;
    ttt_mesh mesh = mesh_of("data=2,fsdp=2,model=3"); /* device = 6 data + 3 fsdp + model */
    hlo_shape matrix = HLO_SHAPE(HLO_F32, 8, 6);
    hlo_spec in = HLO_SPEC("fsdp", "model");
    assert_block(&mesh, matrix, in, 0, HLO_DIMS(0, 0), HLO_DIMS(4, 2));
    assert_block(&mesh, matrix, in, 2, HLO_DIMS(0, 4), HLO_DIMS(4, 6));
    assert_block(&mesh, matrix, in, 4, HLO_DIMS(4, 2), HLO_DIMS(8, 4));
    assert_block(&mesh, matrix, in, 10, HLO_DIMS(4, 2), HLO_DIMS(8, 4)); /* the same, data = 1 */
    /* Of joined axes the first varies slowest, whatever their order on the mesh. */
    hlo_shape batch = HLO_SHAPE(HLO_S32, 4, 5);
    assert_block(&mesh, batch, HLO_SPEC("data+fsdp"), 3, HLO_DIMS(1, 0), HLO_DIMS(2, 5));
    assert_block(&mesh, batch, HLO_SPEC("data+fsdp"), 6, HLO_DIMS(2, 0), HLO_DIMS(3, 5));
    assert_block(&mesh, batch, HLO_SPEC("fsdp+data"), 3, HLO_DIMS(2, 0), HLO_DIMS(3, 5));
    assert_block(&mesh, batch, HLO_SPEC("fsdp+data"), 6, HLO_DIMS(1, 0), HLO_DIMS(2, 5));
    /* Not split: the whole on every device. Without a mesh specs mean nothing. */
    assert_block(&mesh, matrix, HLO_SPEC(NULL), 11, HLO_DIMS(0, 0), HLO_DIMS(8, 6));
    assert_block(&(ttt_mesh){0}, matrix, in, 0, HLO_DIMS(0, 0), HLO_DIMS(8, 6));
    assert_block(&mesh, HLO_SCALAR(HLO_F32), HLO_SPEC(NULL), 5, HLO_NO_DIMS, HLO_NO_DIMS);
}

/* Every element is on as many devices as there are copies. */
static void blocks_cover_the_array(void **state)
{
    (void)state;
    static const char *const meshes[] = {"data=2,fsdp=3,model=2", "model=2,fsdp=3,data=2",
                                         "fsdp=3,model=4",        "model=12",
                                         "data=2,time=6",         "time=3,fsdp=2,model=2"};
    static const hlo_spec specs[] = {{{"fsdp", "model"}},     {{"model", "fsdp"}},
                                     {{"data+fsdp"}},         {{NULL, "fsdp+model"}},
                                     {{"model+data"}},        {{NULL}},
                                     {{NULL, "data"}},        {{"data+fsdp+model"}},
                                     {{"data+fsdp", "time"}}, {{"data+fsdp+time+model"}}};
    hlo_shape shape = HLO_SHAPE(HLO_F32, 12, 24);
    for (size_t m = 0; m < sizeof meshes / sizeof *meshes; m++) {
        for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
            ttt_mesh mesh = mesh_of(meshes[m]);
            int seen[12][24] = {0};
            int64_t devices = ttt_mesh_devices(&mesh), size = 0;
            for (int64_t d = 0; d < devices; d++) {
                ttt_block b;
                ASSERT_OK(ttt_mesh_block(&mesh, &shape, &specs[s], d, &b));
                size = (b.limit[0] - b.start[0]) * (b.limit[1] - b.start[1]);
                for (int64_t i = b.start[0]; i < b.limit[0]; i++) {
                    for (int64_t j = b.start[1]; j < b.limit[1]; j++)
                        seen[i][j]++;
                }
            }
            for (int i = 0; i < 12 * 24; i++)
                assert_int_equal(seen[i / 24][i % 24], devices * size / (12 * 24));
        }
    }
}

static void what_does_not_divide_is_refused(void **state)
{
    (void)state;
    ttt_mesh mesh = mesh_of("fsdp=4,model=3");
    ttt_block block;
    hlo_shape shape = HLO_SHAPE(HLO_F32, 6, 9);
    ASSERT_FAILS(ttt_mesh_block(&mesh, &shape, &HLO_SPEC("fsdp"), 0, &block), INVALID_ARGUMENT,
                 "f32[6,9] cannot be split: dimension 0 of 6 does not divide by 4 (fsdp)");
    ASSERT_FAILS(ttt_mesh_block(&mesh, &shape, &HLO_SPEC(NULL, "fsdp+model"), 0, &block),
                 INVALID_ARGUMENT, "dimension 1 of 9 does not divide by 12 (fsdp+model)");
    ASSERT_FAILS(ttt_mesh_block(&mesh, &shape, &HLO_SPEC("model", "model"), 0, &block),
                 INVALID_ARGUMENT, "twice");
    ASSERT_FAILS(ttt_mesh_block(&mesh, &shape, &HLO_SPEC("model+rows"), 0, &block),
                 INVALID_ARGUMENT, "\"rows\"");
    ASSERT_FAILS(ttt_mesh_block(&mesh, &shape, &HLO_SPEC(NULL, NULL, "model"), 0, &block),
                 INVALID_ARGUMENT, "no dimension 2");
}

static void parameters_that_do_not_divide_are_named(void **state)
{
    (void)state;
    ttt_config config;
    ttt_error error;
    assert_true(ttt_config_preset(&config, "tiny", "ttt_linear", "transformer", &error));
    for (int layout = TTT_SEPARATE; layout <= TTT_STACKED; layout++) {
        ttt_params *params = ttt_params_new(&config, (ttt_layout)layout, &error);
        assert_non_null(params);
        ttt_mesh good = mesh_of("data=3,fsdp=2,model=2"), bad = mesh_of("fsdp=2,model=3");
        ASSERT_OK(ttt_mesh_check(&good, params));
        ASSERT_FAILS(ttt_mesh_check(&bad, params), INVALID_ARGUMENT, "model.");
        ttt_params_free(params);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(meshes_are_read),
        cmocka_unit_test(bad_meshes_are_refused),
        cmocka_unit_test(blocks_follow_the_axes),
        cmocka_unit_test(blocks_cover_the_array),
        cmocka_unit_test(what_does_not_divide_is_refused),
        cmocka_unit_test(parameters_that_do_not_divide_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
