/*
 * Bundles of a small model, on the CPU plugin: they run as the model does, by their executables bit
 * for bit and rebuilt from StableHLO as a model without kernels; and whatever was done to one since
 * it was written is noticed before anything of it is used.
 */
#include "model/files/ttt_model_files.h"
#include "tests/support/small_model.h"
#include "tests/support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TOKENS = 21 };

static char folder[PATH_MAX];
static ttt_devices *devices;
static int32_t tokens[TOKENS];
static const char *const cpu[] = {"cpu"};

static const char *at(const char *name)
{
    return support_path(folder, name);
}

static const char *in(const char *bundle, const char *name)
{
    return support_path(at(bundle), name);
}

static ttt_export_options options_of(const char *model)
{
    return (ttt_export_options){
        .model = at(model), .targets = cpu, .n_targets = 1, .engine = {.span = 16}};
}

static void copy_bundle(const char *from, const char *to)
{
    char command[3 * PATH_MAX];
    snprintf(command, sizeof command, "rm -rf '%s' && cp -r '%s' '%s'", at(to), at(from), at(to));
    assert_int_equal(system(command), 0);
}

static void flip(const char *path, size_t offset)
{
    size_t size;
    unsigned char *bytes = support_read_file(path, &size);
    bytes[offset % size] ^= 1;
    support_write_file(path, bytes, size);
    free(bytes);
}

static int setup(void **unused)
{
    (void)unused;
    support_new_folder(folder);
    ASSERT_OK(ttt_devices_open("cpu", NULL, &devices));
    ASSERT_OK(
        ttt_devices_cache(devices, at("programs"))); /* what is built twice is compiled once */
    for (int i = 0; i < TOKENS; i++)
        tokens[i] = (i * 37 + 11) % 256;
    small_model_write(devices, at("model"), "ttt_linear", 1);
    ttt_export_options o = options_of("model");
    ASSERT_OK(ttt_bundle_write(at("whole"), &o));
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    ttt_devices_free(devices);
    support_remove_folder(folder);
    return 0;
}

/* ---- running -----------------------------------------------------------------------------------
 */

/* Logits of a whole text and of one token more. */
static void run(ttt_engine *engine, float *logits)
{
    int32_t next[4] = {5, -1, -1, -1};
    float *all = malloc(4 * SMALL_VOCAB * sizeof *all);
    assert_non_null(all);
    ASSERT_OK(ttt_engine_feed(engine, 0, tokens, TOKENS, logits));
    ASSERT_OK(ttt_engine_step(engine, next, all));
    memcpy(logits + SMALL_VOCAB, all, SMALL_VOCAB * sizeof *all);
    free(all);
}

static void of_model(const ttt_engine_options *options, float *logits)
{
    ttt_engine *engine;
    ASSERT_OK(ttt_engine_open(devices, at("model"), options, &engine));
    run(engine, logits);
    ttt_engine_free(engine);
}

static void of_bundle(const char *name, const ttt_bundle_options *options, bool built,
                      const char *why, float *logits)
{
    ttt_bundle *bundle;
    ttt_engine *engine;
    ttt_bundle_use use;
    ASSERT_OK(ttt_bundle_open(at(name), &bundle));
    ASSERT_OK(ttt_bundle_engine(bundle, devices, options, &use, &engine));
    assert_int_equal(use.target == NULL, built);
    ASSERT_CONTAINS(use.why, why);
    run(engine, logits);
    ttt_engine_free(engine);
    ttt_bundle_free(bundle);
}

static void runs_as_the_model(void **unused)
{
    static const hlo_type types[] = {HLO_F32, HLO_S8};
    float expected[2 * SMALL_VOCAB], plain[2 * SMALL_VOCAB], found[2 * SMALL_VOCAB];
    (void)unused;
    for (int i = 0; i < 2; i++) {
        ttt_export_options o = options_of("model");
        o.engine.batch = i == 0 ? 1 : 4;
        o.engine.span = 8;
        o.engine.weights = types[i];
        char name[16];
        snprintf(name, sizeof name, "run-%d", i);
        ASSERT_OK(ttt_bundle_write(at(name), &o));
        of_model(&o.engine, expected);
        o.engine.no_kernels = true;
        of_model(&o.engine, plain);
        of_bundle(name, NULL, false, "", found);
        assert_memory_equal(found, expected, sizeof found);
        of_bundle(name, &(ttt_bundle_options){.rebuild = true}, true, "asked for", found);
        assert_memory_equal(found, plain, sizeof found);
    }
}

static void executables_of_others(void **unused)
{
    float logits[2 * SMALL_VOCAB];
    (void)unused;
    copy_bundle("whole", "other");
    small_manifest_edit(at("other"), "\"ttt\": \"" TTT_VERSION "\",\n   \"stamp\"",
                        "\"ttt\": \"0.0.1\",\n   \"stamp\"");
    of_bundle("other", NULL, true, "kernels of ttt 0.0.1", logits);
    copy_bundle("whole", "other");
    small_manifest_edit(at("other"), "\"platform\": \"cpu\"", "\"platform\": \"abacus\"");
    of_bundle("other", NULL, true, "none for cpu", logits);
    ttt_export_options o = options_of("model");
    o.n_targets = 0;
    ASSERT_OK(ttt_bundle_write(at("no targets"), &o));
    of_bundle("no targets", NULL, true, "none for cpu", logits);
}

/* An executable that was changed is no reason to build, but to stop. */
static void damaged_executable(void **unused)
{
    ttt_bundle *bundle;
    ttt_engine *engine;
    ttt_bundle_use use;
    (void)unused;
    copy_bundle("whole", "other");
    flip(in("other", "cpu.decode-1.exe"), 200);
    ASSERT_OK(ttt_bundle_open(at("other"), &bundle));
    ASSERT_FAILS(ttt_bundle_engine(bundle, devices, NULL, &use, &engine), DATA_LOSS,
                 "cpu.decode-1.exe");
    assert_null(engine);
    ttt_bundle_free(bundle);
}

/* Programs that give something else than their names say. */
static void swapped_programs(void **unused)
{
    ttt_bundle *bundle;
    ttt_engine *engine;
    ttt_bundle_use use;
    (void)unused;
    copy_bundle("whole", "other");
    small_manifest_edit(at("other"), "\"file\": \"decode-1.mlirbc\"",
                        "\"file\": \"start-1.mlirbc\"");
    ASSERT_OK(ttt_bundle_open(at("other"), &bundle));
    ASSERT_FAILS(
        ttt_bundle_engine(bundle, devices, &(ttt_bundle_options){.rebuild = true}, &use, &engine),
        FAILED_PRECONDITION, "does not give what its network should");
    assert_null(engine);
    ttt_bundle_free(bundle);
    copy_bundle("whole", "other");
    small_manifest_edit(at("other"), "\"cpu.decode-1.exe\",\n", "\"cpu.start-1.exe\",\n");
    ASSERT_OK(ttt_bundle_open(at("other"), &bundle));
    ASSERT_FAILS(ttt_bundle_engine(bundle, devices, NULL, &use, &engine), FAILED_PRECONDITION,
                 "does not give");
    ttt_bundle_free(bundle);
    copy_bundle("whole", "other");
    small_manifest_edit(at("other"), "\"task\": \"decode\"", "\"task\": \"extend\"");
    ASSERT_OK(ttt_bundle_open(at("other"), &bundle));
    ASSERT_FAILS(ttt_bundle_engine(bundle, devices, NULL, &use, &engine), NOT_FOUND, "decode-1");
    ttt_bundle_free(bundle);
}

static void without_weights(void **unused)
{
    ttt_export_options o = options_of("model");
    float expected[2 * SMALL_VOCAB], found[2 * SMALL_VOCAB];
    ttt_bundle *bundle;
    ttt_engine *engine;
    ttt_bundle_use use;
    (void)unused;
    o.no_weights = true;
    ASSERT_OK(ttt_bundle_write(at("light"), &o));
    ASSERT_OK(ttt_bundle_open(at("light"), &bundle));
    assert_false(ttt_bundle_info(bundle)->has_weights);
    ASSERT_FAILS(ttt_bundle_engine(bundle, devices, NULL, &use, &engine), FAILED_PRECONDITION,
                 "no weights");
    small_model_write(devices, at("mlp"), "ttt_mlp", 1);
    ASSERT_FAILS(ttt_bundle_engine(bundle, devices, &(ttt_bundle_options){.model = at("mlp")}, &use,
                                   &engine),
                 FAILED_PRECONDITION, "another network");
    ttt_bundle_free(bundle);
    of_model(&o.engine, expected);
    of_bundle("light", &(ttt_bundle_options){.model = at("model")}, false, "", found);
    assert_memory_equal(found, expected, sizeof found);
    ASSERT_OK(ttt_bundle_open(at("whole"), &bundle));
    ASSERT_FAILS(ttt_bundle_engine(bundle, devices, &(ttt_bundle_options){.model = at("model")},
                                   &use, &engine),
                 INVALID_ARGUMENT, "weights of its own");
    ttt_bundle_free(bundle);
}

/* Another form of the same files. */
static bool load_one(void *ctx, int index, float *out, ttt_error *error)
{
    void **both = ctx;
    return ttt_params_load(both[0], index, both[1], out, error);
}

static void sharded_weights(void **unused)
{
    ttt_export_options o = options_of("shards");
    float expected[2 * SMALL_VOCAB], found[2 * SMALL_VOCAB];
    ttt_config config;
    ttt_error error;
    (void)unused;
    assert_int_equal(mkdir(at("shards"), 0777), 0);
    support_copy_file(in("model", "config.json"), in("shards", "config.json"));
    assert_true(ttt_config_read(&config, in("shards", "config.json"), &error));
    ttt_params *params = ttt_params_new(&config, TTT_SEPARATE, &error);
    ttt_tensors *tensors = ttt_tensors_open(at("model"), &error);
    assert_true(params != NULL && tensors != NULL);
    assert_true(ttt_params_save_shards(params, in("shards", "model.safetensors"), HLO_F32, 9000,
                                       load_one, (void *[]){params, tensors}, &error));
    ttt_tensors_free(tensors);
    ttt_params_free(params);
    assert_true(support_count_files(at("shards")) > 3);
    o.n_targets = 0;
    ASSERT_OK(ttt_bundle_write(at("of shards"), &o));
    o.engine.no_kernels = true;
    of_model(&o.engine, expected);
    of_bundle("of shards", NULL, true, "none for cpu", found);
    assert_memory_equal(found, expected, sizeof found);
}

/* ---- what it says of itself --------------------------------------------------------------------
 */

static void says_what_it_is(void **unused)
{
    ttt_bundle *bundle;
    int64_t weights = 0;
    (void)unused;
    ASSERT_OK(ttt_bundle_open(at("whole"), &bundle));
    const ttt_bundle_about *about = ttt_bundle_info(bundle);
    assert_string_equal(ttt_bundle_path(bundle), at("whole"));
    assert_string_equal(about->ttt, TTT_VERSION);
    assert_string_equal(about->mixer, "ttt_linear");
    assert_string_equal(about->tokenizer, "bytes");
    assert_int_equal(about->vocab, SMALL_VOCAB);
    assert_int_equal(about->span, 16);
    assert_true(about->has_weights);
    assert_int_equal(about->n_targets, 1);
    assert_string_equal(about->targets[0].platform, "cpu");
    assert_int_equal(strlen(about->targets[0].plugin_hash), 32);
    assert_int_equal(about->n_programs, 4); /* start, decode, 16 and 8 tokens */
    assert_int_equal(about->n_files, 2 + 4 + 4);
    for (int i = 0; i < about->n_programs; i++)
        ASSERT_CONTAINS(about->programs[i].stablehlo, "1.");
    for (int i = 0; i < about->n_files; i++) {
        struct stat info;
        assert_int_equal(stat(support_path(ttt_bundle_path(bundle), about->files[i].name), &info),
                         0);
        assert_int_equal(info.st_size, about->files[i].size);
        assert_int_equal(strlen(about->files[i].hash), 32);
        weights += strcmp(about->files[i].name, "model.safetensors") == 0;
    }
    assert_int_equal(weights, 1);
    ASSERT_OK(ttt_bundle_verify(bundle));
    ttt_bundle_free(bundle);
    assert_true(ttt_bundle_is(at("whole")));
    assert_false(ttt_bundle_is(at("model")));
    assert_false(ttt_bundle_is(at("nothing")));
}

/* ---- what was done to it -----------------------------------------------------------------------
 */

/* Opened, and all of it read. */
static pjrt_status *look(const char *name)
{
    ttt_bundle *bundle;
    pjrt_status *st = ttt_bundle_open(at(name), &bundle);
    if (st == NULL)
        st = ttt_bundle_verify(bundle);
    ttt_bundle_free(bundle);
    return st;
}

static void every_file_counts(void **unused)
{
    ttt_bundle *whole;
    (void)unused;
    ASSERT_OK(ttt_bundle_open(at("whole"), &whole));
    const ttt_bundle_about *about = ttt_bundle_info(whole);
    copy_bundle("whole", "hurt");
    for (int i = 0; i < about->n_files; i++) {
        const char *name = about->files[i].name, *path = in("hurt", name);
        size_t middle = (size_t)about->files[i].size / 2;
        flip(path, middle);
        ASSERT_FAILS(look("hurt"), DATA_LOSS, name);
        flip(path, middle);
        assert_int_equal(truncate(path, about->files[i].size - 1), 0);
        ASSERT_FAILS(look("hurt"), DATA_LOSS, name);
        unlink(path);
        ASSERT_FAILS(look("hurt"), DATA_LOSS, name);
        support_copy_file(in("whole", name), path);
        ASSERT_OK(look("hurt"));
    }
    ttt_bundle_free(whole);
    support_write_file(in("hurt", "tokenizer.json"), "{}", 2);
    ASSERT_FAILS(look("hurt"), DATA_LOSS, "tokenizer.json is not in the manifest");
}

static void every_byte_of_the_manifest_counts(void **unused)
{
    size_t size;
    (void)unused;
    copy_bundle("whole", "hurt");
    free(support_read_file(in("hurt", "manifest.json"), &size));
    for (size_t i = 0; i < size; i += 1 + size / 97) {
        flip(in("hurt", "manifest.json"), i);
        ASSERT_FAILS(look("hurt"), DATA_LOSS, "manifest.json");
        flip(in("hurt", "manifest.json"), i);
    }
    flip(in("hurt", "manifest.json"), size - 1);
    ASSERT_FAILS(look("hurt"), DATA_LOSS, "changed or cut");
    unlink(in("hurt", "manifest.json"));
    ASSERT_FAILS(look("hurt"), NOT_FOUND, "no bundle");
    ASSERT_FAILS(look("nothing"), NOT_FOUND, "no bundle");
}

/* Manifests that are sealed as they should be, and lie. */
static void tricks(void **unused)
{
    static const struct {
        const char *from, *to, *part;
    } edits[] = {
        {"\"config.json\"", "\"../model/config.json\"", "not plain"},
        {"\"config.json\"", "\"/etc/passwd\"", "not plain"},
        {"\"config.json\"", "\"..\"", "not plain"},
        {"\"config.json\"", "\".hidden\"", "not plain"},
        {"\"file\": \"decode-1.mlirbc\"", "\"file\": \"../decode-1.mlirbc\"", "\"file\""},
        {"\"cpu.decode-1.exe\",\n", "\"../cpu.decode-1.exe\",\n", "\"files\""},
        {"\"cpu.decode-1.exe\",\n", "", "\"files\""},
        {"\"tokenizer\": \"bytes\"", "\"tokenizer\": \"../tokenizer.json\"", "\"tokenizer\""},
        {"\"format\": \"ttt-bundle\"", "\"format\": \"ttt-checkpoint\"", "ttt-bundle"},
        {"\"version\": 1", "\"version\": 0", "version"},
        {"\"batch\": 1", "\"batch\": -1", "\"batch\""},
        {"\"compute\": \"f32\"", "\"compute\": \"f8\"", "\"compute\""},
        {"\"ttt_step\"", "\"rm -rf\"", "\"kernels\""},
        {"\"programs\"", "\"other\"", "\"programs\""},
        {"\"size\": ", "\"size\": -", "size"},
    };
    (void)unused;
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        copy_bundle("whole", "hurt");
        small_manifest_edit(at("hurt"), edits[i].from, edits[i].to);
        ASSERT_FAILS(look("hurt"), DATA_LOSS, edits[i].part);
    }
    copy_bundle("whole", "hurt");
    small_manifest_edit(at("hurt"), "\"version\": 1", "\"version\": 2");
    ASSERT_FAILS(look("hurt"), UNIMPLEMENTED, "version 2 is newer");
}

/* ---- writing -----------------------------------------------------------------------------------
 */

static void nothing_is_left_behind(void **unused)
{
    ttt_export_options o = options_of("model");
    static const char *const unknown[] = {"cpu", "abacus:3"}, *const twice[] = {"cpu", "cpu"};
    (void)unused;
    int before = support_count_files(folder);
    ASSERT_FAILS(ttt_bundle_write(at("whole"), &o), ALREADY_EXISTS, "already there");
    ASSERT_OK(look("whole"));
    o.targets = unknown;
    o.n_targets = 2;
    ASSERT_FAILS(ttt_bundle_write(at("new"), &o), NOT_FOUND, "abacus");
    o.targets = twice;
    ASSERT_FAILS(ttt_bundle_write(at("new"), &o), INVALID_ARGUMENT, "twice");
    o = options_of("model");
    o.cpu_plugin = getenv("TTT_FAKE_PLUGIN");
    assert_non_null(o.cpu_plugin);
    ASSERT_FAILS(ttt_bundle_write(at("new"), &o), INVALID_ARGUMENT, "the plugin of fake");
    o = options_of("nothing");
    pjrt_status *st = ttt_bundle_write(at("new"), &o);
    assert_non_null(st);
    pjrt_status_free(st);
    o = options_of("model");
    o.tokenizer = at("nothing");
    st = ttt_bundle_write(at("new"), &o);
    assert_non_null(st);
    pjrt_status_free(st);
    assert_int_equal(support_count_files(folder), before);
    /* What a writer that was killed left is no bundle, and in nobody's way. */
    o = options_of("model");
    o.n_targets = 0;
    assert_int_equal(mkdir(at("new.writing"), 0777), 0);
    support_write_file(in("new.writing", "config.json"), "half", 4);
    ASSERT_FAILS(look("new.writing"), NOT_FOUND, "no bundle");
    ASSERT_OK(ttt_bundle_write(at("new/"), &o));
    ASSERT_OK(look("new"));
    assert_int_equal(support_count_files(folder), before + 1);
}

static void same_bytes(void **unused)
{
    ttt_export_options o = options_of("model");
    size_t sizes[2];
    (void)unused;
    o.n_targets = 0;
    ASSERT_OK(ttt_bundle_write(at("same-a"), &o));
    ASSERT_OK(ttt_bundle_write(at("same-b"), &o));
    unsigned char *a = support_read_file(in("same-a", "manifest.json"), &sizes[0]);
    unsigned char *b = support_read_file(in("same-b", "manifest.json"), &sizes[1]);
    assert_int_equal(sizes[0], sizes[1]);
    assert_memory_equal(a, b, sizes[0]);
    free(a);
    free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(says_what_it_is),
        cmocka_unit_test(runs_as_the_model),
        cmocka_unit_test(executables_of_others),
        cmocka_unit_test(damaged_executable),
        cmocka_unit_test(swapped_programs),
        cmocka_unit_test(without_weights),
        cmocka_unit_test(sharded_weights),
        cmocka_unit_test(every_file_counts),
        cmocka_unit_test(every_byte_of_the_manifest_counts),
        cmocka_unit_test(tricks),
        cmocka_unit_test(nothing_is_left_behind),
        cmocka_unit_test(same_bytes),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
