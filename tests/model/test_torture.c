/*
 * Every allocation of the data side is made to fail, one run each: nothing crashes, nothing leaks
 * (the sanitizers' word), no file is left behind, and what failed says so. Allocations of jansson
 * count where JSON is written; its parser does not survive them (2.14 reads through a null
 * pointer), which is not ours to test.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model/records.h"
#include "model/ttt_train.h"
#include "tests/support/torture.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool writing;

static void *json_malloc(size_t size)
{
    return writing ? malloc(size) : __real_malloc(size);
}

static char folder[] = "/tmp/ttt_torture.XXXXXX";

static const char *path_of(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static int files(void)
{
    int count = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir))
        count += e->d_name[0] != '.';
    closedir(dir);
    return count;
}

static bool ones(void *ctx, int index, float *out, ttt_error *error)
{
    const ttt_params *params = ctx;
    (void)error;
    ttt_init_block(&params->list[index], 0, NULL, NULL, out);
    return true;
}

/* ---- what is tortured ------------------------------------------------------------------------ */

static ttt_layout layout; /* of the parameters that are saved and loaded */

static bool save_all(ttt_error *error)
{
    ttt_config config;
    bool stacked = layout == TTT_STACKED; /* two layers, of a mixer with few parameters */
    bool ok = ttt_config_preset(&config, "tiny", stacked ? "attention" : "ttt_linear",
                                stacked ? "transformer" : "mamba", error);
    config.n_layers = stacked ? 2 : 1;
    config.vocab_size = config.hidden_size = 8;
    config.n_heads = 2;
    ttt_params *params = ok ? ttt_params_new(&config, layout, error) : NULL;
    ok = params != NULL && ttt_config_write(&config, path_of("config.json"), error) &&
         ttt_params_save(params, path_of("model.safetensors"), HLO_BF16, ones, params, error);
    ttt_params_free(params);
    return ok;
}

static bool load_all(ttt_error *error)
{
    ttt_config config;
    float values[8192];
    if (!ttt_config_read(&config, path_of("config.json"), error))
        return false;
    ttt_params *params = ttt_params_new(&config, layout, error);
    ttt_tensors *tensors = params == NULL ? NULL : ttt_tensors_open(folder, error);
    bool ok = tensors != NULL && ttt_params_match(params, tensors, error);
    for (int i = 0; ok && i < params->count; i++)
        ok = ttt_params_load(params, i, tensors, values, error);
    ttt_tensors_free(tensors);
    ttt_params_free(params);
    return ok;
}

static bool show(ttt_error *error)
{
    ttt_config config;
    if (!ttt_config_preset(&config, "tiny", "mamba", "mamba", error))
        return false;
    char *text = ttt_config_show(&config, error);
    free(text);
    return text != NULL;
}

/* Written with failures, read without: all that reading allocates is the parser's. */
static bool recipe_there_and_back(ttt_error *error)
{
    ttt_recipe recipe, back;
    if (!ttt_recipe_preset(&recipe, "125m", "ttt_mlp", error))
        return false;
    back = recipe;
    recipe.peak_lr = 1.0 / 333;
    writing = true;
    char *text = ttt_recipe_text(&recipe, error);
    writing = false;
    bool ok = text != NULL && ttt_recipe_parse(&back, text, strlen(text), error);
    free(text);
    return ok && back.peak_lr == recipe.peak_lr;
}

static bool load_shards(ttt_error *error)
{
    ttt_tensors *tensors = ttt_tensors_open(path_of("m.index.json"), error);
    ttt_tensors_free(tensors);
    return tensors != NULL;
}

/* [["params", "x"], two float16 in two pieces], as flax writes it. */
static bool load_jax(ttt_error *error)
{
    static const unsigned char bytes[] = {
        0x92, 0x92, 0xa6, 0x70, 0x61, 0x72, 0x61, 0x6d, 0x73, 0xa1, 0x78, 0xc4, 0x56, 0x83, 0xb9,
        0x5f, 0x5f, 0x6d, 0x73, 0x67, 0x70, 0x61, 0x63, 0x6b, 0x5f, 0x63, 0x68, 0x75, 0x6e, 0x6b,
        0x65, 0x64, 0x5f, 0x61, 0x72, 0x72, 0x61, 0x79, 0x5f, 0x5f, 0xc3, 0xa5, 0x73, 0x68, 0x61,
        0x70, 0x65, 0x81, 0xa1, 0x30, 0x02, 0xa6, 0x63, 0x68, 0x75, 0x6e, 0x6b, 0x73, 0x82, 0xa1,
        0x30, 0xc7, 0x0f, 0x01, 0x93, 0x91, 0x01, 0xa7, 0x66, 0x6c, 0x6f, 0x61, 0x74, 0x31, 0x36,
        0xc4, 0x02, 0x00, 0x3c, 0xa1, 0x31, 0xc7, 0x0f, 0x01, 0x93, 0x91, 0x01, 0xa7, 0x66, 0x6c,
        0x6f, 0x61, 0x74, 0x31, 0x36, 0xc4, 0x02, 0x00, 0x40,
    };
    ttt_tensors *tensors = ttt__tensors_new(error);
    bool ok = tensors != NULL && ttt__jax_parse(tensors, bytes, sizeof bytes, error);
    ttt_tensors_free(tensors);
    return ok;
}

static void torture(bool (*run)(ttt_error *error), int left)
{
    int n = 1;
    for (bool hit = true; hit; n++) {
        ttt_error error = {""};
        allocations = 0;
        fail_at = n;
        bool ok = run(&error);
        hit = allocations >= n;
        fail_at = 0;
        if (!ok && hit)
            assert_true(error.message[0] != '\0');
        if (!hit && !ok)
            fail_msg("with all its memory: %s", error.message);
        if (left >= 0 && !ok)
            assert_true(files() <= left);
    }
    assert_true(n > 2); /* something was there to fail */
}

static void everything(void **state)
{
    ttt_error error;
    static const char index[] = "{\"weight_map\":{\"a\":\"s\"}}";
    (void)state;
    assert_non_null(mkdtemp(folder));
    json_set_alloc_funcs(json_malloc, free);
    for (layout = TTT_SEPARATE; layout <= TTT_STACKED; layout++) {
        writing = true;
        torture(save_all, 2);
        assert_int_equal(files(), 2);
        writing = false;
        torture(load_all, -1);
    }
    writing = true;
    torture(show, -1);
    writing = false;
    torture(recipe_there_and_back, -1);
    FILE *file = fopen(path_of("m.index.json"), "w");
    assert_non_null(file);
    fputs(index, file);
    fclose(file);
    ttt_tensor a = {"a", HLO_SHAPE(HLO_F32, 0)};
    ttt_writer *writer = ttt_writer_open(path_of("s"), &a, 1, &error);
    assert_non_null(writer);
    assert_true(ttt_writer_finish(writer, true, &error));
    torture(load_shards, -1);
    torture(load_jax, -1);
    static const char *const made[] = {"config.json", "model.safetensors", "m.index.json", "s"};
    for (int i = 0; i < 4; i++)
        unlink(path_of(made[i]));
    assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(everything)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
