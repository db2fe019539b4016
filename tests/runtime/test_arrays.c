/* Arrays on the devices of a mesh, programs that take and give them, models made of them: on four
 * virtual devices of the CPU plugin. */
#include "model/files/ttt_model_files.h"
#include "runtime/device/ttt_device.h"
#include "runtime/train/stop_and_save.h"
#include "tests/support/support.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>

static ttt_devices *place_of(const char *text)
{
    ttt_mesh mesh;
    ttt_devices *devices;
    ASSERT_OK(ttt_mesh_parse(text, &mesh));
    ASSERT_OK(ttt_devices_open("cpu", &mesh, &devices));
    return devices;
}

static void parts_are_where_they_belong(void **state)
{
    (void)state;
    ttt_devices *devices = place_of("fsdp=2,model=2");
    int32_t whole[4][6], part[2][3], back[4][6];
    for (int i = 0; i < 24; i++)
        whole[i / 6][i % 6] = i;
    ttt_array *array;
    ASSERT_OK(ttt_array_upload(devices, HLO_SHAPE(HLO_S32, 4, 6), HLO_SPEC("fsdp", "model"), whole,
                               &array));
    for (int d = 0; d < 4; d++) {
        assert_ptr_equal(pjrt_buffer_device(array->parts[d]),
                         pjrt_client_device(devices->client, (size_t)d));
        ASSERT_OK(pjrt_buffer_to_host(array->parts[d], part, sizeof part, NULL));
        for (int i = 0; i < 6; i++)
            assert_int_equal(part[i / 3][i % 3], whole[2 * (d / 2) + i / 3][3 * (d % 2) + i % 3]);
    }
    memset(back, 0, sizeof back);
    ASSERT_OK(ttt_array_wait(array));
    ASSERT_OK(ttt_array_download(array, back, sizeof back));
    assert_memory_equal(back, whole, sizeof whole);
    ASSERT_FAILS(ttt_array_download(array, back, 4), INVALID_ARGUMENT, "96");
    ttt_array_free(array);
    ttt_devices_free(devices);
}

static void every_way_there_and_back(void **state)
{
    (void)state;
    static const hlo_spec specs[] = {
        {{NULL}},         {{"data"}},         {{NULL, NULL, "model"}},
        {{"data+model"}}, {{NULL, "data"}},   {{"model", NULL, "data"}},
        {{"fsdp"}},       {{"model", "data"}}};
    ttt_devices *devices = place_of("model=2,data=2");
    double whole[4 * 2 * 6], back[4 * 2 * 6];
    for (int i = 0; i < 48; i++)
        whole[i] = i / 7.0;
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
        ttt_array *array;
        ASSERT_OK(ttt_array_upload(devices, HLO_SHAPE(HLO_F64, 4, 2, 6), specs[s], whole, &array));
        memset(back, 0, sizeof back);
        ASSERT_OK(ttt_array_download(array, back, sizeof back));
        assert_memory_equal(back, whole, sizeof whole);
        ttt_array_free(array);
    }
    ttt_devices *over_time = place_of("time=2,fsdp=2");
    ttt_array *rows;
    hlo_spec by_time = HLO_SPEC("fsdp", NULL, "time");
    ASSERT_OK(ttt_array_upload(over_time, HLO_SHAPE(HLO_F64, 4, 2, 6), by_time, whole, &rows));
    memset(back, 0, sizeof back);
    ASSERT_OK(ttt_array_download(rows, back, sizeof back));
    assert_memory_equal(back, whole, sizeof whole);
    ttt_array_free(rows);
    ttt_devices_free(over_time);
    ttt_array *scalar, *uneven;
    ASSERT_OK(ttt_array_upload(devices, HLO_SCALAR(HLO_F64), HLO_SPEC(NULL), whole + 5, &scalar));
    ASSERT_OK(ttt_array_download(scalar, back, sizeof *back));
    assert_true(back[0] == whole[5]);
    ttt_array_free(scalar);
    ASSERT_FAILS(
        ttt_array_upload(devices, HLO_SHAPE(HLO_F64, 3, 2), HLO_SPEC("data"), whole, &uneven),
        INVALID_ARGUMENT, "does not divide");
    assert_null(uneven);
    ttt_devices_free(devices);
}

/* As a process has it whose devices are the second half of the mesh. */
static void parts_of_one_process(void **state)
{
    (void)state;
    ttt_devices *devices = place_of("fsdp=2,model=2");
    float whole[16], back[16], part[4];
    for (int i = 0; i < 16; i++)
        whole[i] = (float)i;
    devices->first = devices->n_mine = 2;
    ttt_array *split, *half, *same;
    hlo_shape shape = HLO_SHAPE(HLO_F32, 4, 4);
    ASSERT_OK(ttt_array_upload(devices, shape, HLO_SPEC("fsdp", "model"), whole, &split));
    ASSERT_OK(ttt_array_upload(devices, shape, HLO_SPEC("model"), whole, &half));
    ASSERT_OK(ttt_array_upload(devices, shape, HLO_SPEC(NULL), whole, &same));
    assert_null(split->parts[0]);
    assert_null(split->parts[1]);
    ASSERT_OK(pjrt_buffer_to_host(split->parts[3], part, sizeof part, NULL));
    assert_true(part[0] == 10 && part[3] == 15);
    ASSERT_OK(ttt_array_wait(split));
    ASSERT_FAILS(ttt_array_download(split, back, sizeof back), FAILED_PRECONDITION,
                 "not all of it");
    ASSERT_OK(ttt_array_download(half, back, sizeof back)); /* both halves are here */
    assert_memory_equal(back, whole, sizeof whole);
    memset(back, 0, sizeof back);
    ASSERT_OK(ttt_array_download(same, back, sizeof back));
    assert_memory_equal(back, whole, sizeof whole);
    ttt_array_free(split);
    ttt_array_free(half);
    ttt_array_free(same);
    ttt_devices_free(devices);
}

/*
 * Stop and save requests are the maximum over all devices of the mesh, whatever its axes. malloc
 * fills memory with nonzero bytes, so a row that no one writes shows as a request nobody made.
 */
static void requests_are_agreed_on_every_mesh(void **state)
{
    (void)state;
    static const char *const meshes[] = {"model=2,data=2", "time=2", "fsdp=2,time=2", "time=4"};
    mallopt(M_PERTURB, 0xa5);
    for (size_t m = 0; m < sizeof meshes / sizeof *meshes; m++) {
        ttt_devices *devices = place_of(meshes[m]);
        ttt__stop_and_save *votes;
        ttt_array *cast;
        ttt__wishes none = {{0}}, stop = {{0}}, all;
        stop.of[TTT__AGREE_STOP] = 1;
        ASSERT_OK(ttt__stop_and_save_new(devices, &votes));
        for (int i = 0; i < 2; i++) {
            ASSERT_OK(ttt__stop_and_save_cast(votes, i == 0 ? &none : &stop, &cast));
            ASSERT_OK(ttt__stop_and_save_read(cast, &all));
            assert_int_equal(all.of[TTT__AGREE_STOP], i);
            assert_int_equal(all.of[TTT__AGREE_SAVE], 0);
            ttt_array_free(cast);
        }
        ttt__stop_and_save_free(votes);
        ttt_devices_free(devices);
    }
    mallopt(M_PERTURB, 0);
}

/* y = 2 x, and the sum of x; x is split by rows, y by columns. */
static ttt_program *twice_and_sum(const ttt_devices *devices, bool donate)
{
    ttt_graph graph;
    ttt_program *program;
    ASSERT_OK(ttt_graph_new("twice", &devices->mesh, &graph));
    hlo_graph *g = graph.g;
    hlo_spec in = HLO_SPEC("data"), out = donate ? in : HLO_SPEC(NULL, "data+model");
    hlo_val x = ttt_graph_param(&graph, "x", HLO_SHAPE(HLO_F32, 4, 8), in);
    ttt_graph_result(&graph, "y", hlo_add(g, x, x), out);
    ttt_graph_result(&graph, "sum", hlo_sum(g, x, HLO_DIMS(0, 1)), HLO_SPEC(NULL));
    if (donate)
        hlo_donate(g, x, 0);
    ASSERT_OK(ttt_program_compile(devices, &graph, &program));
    ttt_graph_free(&graph);
    return program;
}

static void check_run(const ttt_devices *devices, bool donate)
{
    ttt_program *program = twice_and_sum(devices, donate);
    float values[32], back[32], sum;
    for (int i = 0; i < 32; i++)
        values[i] = (float)i;
    ttt_array *x, *results[2];
    ASSERT_OK(ttt_array_upload(devices, HLO_SHAPE(HLO_F32, 4, 8), HLO_SPEC("data"), values, &x));
    ASSERT_OK(ttt_program_run(program, &x, 1, results));
    ASSERT_OK(ttt_array_download(results[0], back, sizeof back));
    ASSERT_OK(ttt_array_download(results[1], &sum, sizeof sum));
    for (int i = 0; i < 32; i++)
        assert_true(back[i] == 2 * values[i]);
    assert_true(sum == 31 * 32 / 2);
    assert_int_equal(results[0]->shape.dims[1], 8);
    assert_int_equal(pjrt_buffer_is_dead(x->parts[0]), donate);
    for (int i = 0; i < 2; i++)
        ttt_array_free(results[i]);
    if (donate)
        ASSERT_FAILS(ttt_program_run(program, &x, 1, results), FAILED_PRECONDITION, "donated");
    else
        ASSERT_FAILS(ttt_program_run(program, &x, 0, results), INVALID_ARGUMENT, "");
    assert_null(results[0]);
    assert_null(results[1]);
    ttt_array_free(x);
    ttt_program_free(program);
}

static void programs_take_and_give_arrays(void **state)
{
    (void)state;
    static const char *const meshes[] = {NULL, "data=4", "data=2,model=2"};
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
        ttt_devices *devices = place_of(meshes[i]);
        check_run(devices, false);
        check_run(devices, true);
        ttt_devices_free(devices);
    }
}

static void bad_graphs_say_why(void **state)
{
    (void)state;
    ttt_devices *devices = place_of(NULL);
    ttt_graph graph;
    ttt_program *program;
    ASSERT_OK(ttt_graph_new("bad", &devices->mesh, &graph));
    hlo_val x = ttt_graph_param(&graph, "x", HLO_SHAPE(HLO_F32, 4, 8), HLO_SPEC(NULL));
    ttt_graph_result(&graph, "y", hlo_matmul(graph.g, x, x), HLO_SPEC(NULL));
    ASSERT_FAILS(ttt_program_compile(devices, &graph, &program), INVALID_ARGUMENT, "f32[4,8]");
    assert_null(program);
    ttt_graph_free(&graph);
    ttt_devices_free(devices);
}

/* ---- models ------------------------------------------------------------------------------------
 */

static ttt_config small_config(void)
{
    ttt_config config;
    ttt_error error;
    assert_true(ttt_config_preset(&config, "tiny", "ttt_linear", "mamba", &error));
    assert_true(ttt_config_set(&config, "n_layers", "2", &error));
    assert_true(ttt_config_set(&config, "vocab_size", "32", &error));
    return config;
}

/* What the model has on its devices is what the seed says, to the bit. */
static void check_weights(const ttt_model *model, uint64_t seed)
{
    for (int i = 0; i < model->params->count; i++) {
        const ttt_param *p = &model->params->list[i];
        size_t count = (size_t)hlo_shape_elements(&p->shape);
        float *right = calloc(count, sizeof *right);
        void *found = calloc(count, sizeof(double));
        ttt_init_block(p, seed, NULL, NULL, right);
        ASSERT_OK(ttt_array_download(model->weights[i], found, ttt_array_bytes(model->weights[i])));
        if (model->weights[i]->shape.type == HLO_F64) {
            for (size_t k = 0; k < count; k++)
                assert_true(((double *)found)[k] == (double)right[k]);
        } else {
            assert_memory_equal(found, right, count * sizeof *right);
        }
        free(right);
        free(found);
    }
}

static void models_come_from_seeds_and_folders(void **state)
{
    (void)state;
    char folder[PATH_MAX];
    ttt_config config = small_config();
    ttt_error error;
    ttt_devices *four = place_of("fsdp=2,model=2"), *one = place_of(NULL);
    ttt_model *model, *loaded;
    support_new_folder(folder);
    ASSERT_OK(ttt_model_start(four, &config, TTT_STACKED, HLO_F32, 7, &model));
    check_weights(model, 7);
    assert_true(ttt_config_write(&config, support_path(folder, "config.json"), &error));
    ASSERT_OK(ttt_arrays_save(model->params, model->weights,
                              support_path(folder, "model.safetensors"), HLO_F32, NULL));
    ttt_model_free(model);
    ASSERT_OK(ttt_model_load(four, folder, TTT_STACKED, HLO_F64, &loaded));
    check_weights(loaded, 7);
    ttt_model_free(loaded);
    ASSERT_OK(ttt_model_load(one, folder, TTT_SEPARATE, HLO_F32, &loaded));
    assert_int_equal(loaded->config.n_layers, 2);
    ttt_model_free(loaded);
    ASSERT_OK(ttt_model_start(one, &config, TTT_SEPARATE, HLO_F64, 8, &model));
    check_weights(model, 8);
    ttt_model_free(model);
    ASSERT_FAILS(ttt_model_load(one, folder, TTT_STACKED, HLO_BF16, &loaded), INVALID_ARGUMENT,
                 "bf16");
    assert_int_equal(remove(support_path(folder, "model.safetensors")), 0);
    ASSERT_FAILS(ttt_model_load(one, folder, TTT_STACKED, HLO_F32, &loaded), INVALID_ARGUMENT,
                 "model.safetensors");
    assert_null(loaded);
    support_remove_folder(folder);
    ttt_devices_free(four);
    ttt_devices_free(one);
}

static void norms_are_of_all_arrays(void **state)
{
    (void)state;
    char folder[PATH_MAX];
    ttt_config config = small_config();
    ttt_devices *devices = place_of(NULL);
    ttt_model *model;
    double norm, right = 0;
    support_new_folder(folder);
    ASSERT_OK(ttt_model_start(devices, &config, TTT_SEPARATE, HLO_F32, 7, &model));
    ASSERT_OK(ttt_arrays_save(model->params, model->weights, support_path(folder, "w.safetensors"),
                              HLO_F32, &norm));
    for (int i = 0; i < model->params->count; i++) {
        size_t bytes = ttt_array_bytes(model->weights[i]);
        float *values = malloc(bytes);
        ASSERT_OK(ttt_array_download(model->weights[i], values, bytes));
        for (size_t k = 0; k < bytes / sizeof *values; k++)
            right += (double)values[k] * values[k];
        free(values);
    }
    assert_true(norm * norm > right * (1 - 1e-12) && norm * norm < right * (1 + 1e-12));
    ASSERT_FAILS(ttt_arrays_save(model->params, model->weights,
                                 support_path(folder, "none/w.safetensors"), HLO_F32, NULL),
                 INVALID_ARGUMENT, "none");
    ttt_model_free(model);
    support_remove_folder(folder);
    ttt_devices_free(devices);
}

/* A plugin with fewer devices than the mesh. */
static void too_few_devices(void **state)
{
    (void)state;
    support_fake fake;
    ttt_mesh mesh;
    ttt_devices *devices;
    support_fake_open(&fake);
    ASSERT_OK(ttt_mesh_parse("data=64", &mesh));
    ASSERT_FAILS(ttt_devices_open(fake.path, &mesh, &devices), FAILED_PRECONDITION, "64 devices");
    assert_null(devices);
    support_assert_balanced(fake.control);
    support_fake_remove(&fake);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_are_where_they_belong),
        cmocka_unit_test(every_way_there_and_back),
        cmocka_unit_test(parts_of_one_process),
        cmocka_unit_test(requests_are_agreed_on_every_mesh),
        cmocka_unit_test(programs_take_and_give_arrays),
        cmocka_unit_test(bad_graphs_say_why),
        cmocka_unit_test(models_come_from_seeds_and_folders),
        cmocka_unit_test(norms_are_of_all_arrays),
        cmocka_unit_test(too_few_devices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
