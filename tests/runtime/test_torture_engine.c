/*
 * Every allocation of an engine at work is made to fail, one run each: what failed says so, and
 * afterwards each slot either goes on bit for bit as if nothing had been asked, or says that its
 * sequence is lost and can be begun anew. Programs are compiled before; allocations of jansson do
 * not count, since its parser does not survive them.
 */
#include "runtime/generate/ttt_generator.h"
#include "tests/support/support.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

static int allocations, fail_at; /* 0: none fails */

static bool denied(void)
{
    return fail_at != 0 && ++allocations == fail_at;
}

#define WRAP(type, name, parameters, arguments)           \
    type __real_##name parameters;                        \
    type __wrap_##name parameters;                        \
    type __wrap_##name parameters                         \
    {                                                     \
        return denied() ? NULL : __real_##name arguments; \
    }
WRAP(void *, malloc, (size_t size), (size))
WRAP(void *, calloc, (size_t count, size_t size), (count, size))
WRAP(void *, realloc, (void *old, size_t size), (old, size))
WRAP(char *, strdup, (const char *text), (text))
WRAP(XXH3_state_t *, XXH3_createState, (void), ())

static void *json_malloc(size_t size)
{
    return __real_malloc(size);
}

enum { VOCAB = 32, MOST_SLOTS = 2, READ = 9 };
static char folder[PATH_MAX];
static ttt_engine *engine;
static int64_t slots;
static ttt_state *start[MOST_SLOTS]; /* where each slot is before every run */
static float expected[MOST_SLOTS][VOCAB], logits[MOST_SLOTS][VOCAB];
static const int32_t next[MOST_SLOTS] = {3, 17};
static const int32_t tokens[] = {5, 1, 30, 2, 2, 9, 31, 0, 4, 11, 12, 13, 14, 15, 16, 17, 18};

/* ---- what is tortured --------------------------------------------------------------------------
 */

static pjrt_status *reset(void)
{
    return ttt_engine_reset(engine, 0);
}

static pjrt_status *feed(void)
{
    return ttt_engine_feed(engine, 0, tokens, READ, logits[0]);
}

static pjrt_status *step(void)
{
    return ttt_engine_step(engine, next, logits[0]);
}

static pjrt_status *take(void)
{
    ttt_state *state;
    pjrt_status *st = ttt_engine_take(engine, 0, &state);
    ttt_state_free(state);
    return st;
}

static pjrt_status *put(void)
{
    return ttt_engine_put(engine, 0, start[slots - 1]);
}

/* ---- torture -----------------------------------------------------------------------------------
 */

static void begin(void)
{
    for (int64_t i = 0; i < slots; i++)
        ASSERT_OK(ttt_engine_put(engine, i, start[i]));
}

/* Slots that are where they were go on as they did; how many are lost. */
static int look_after(void)
{
    int32_t ids[MOST_SLOTS];
    int lost = 0;
    for (int64_t i = 0; i < slots; i++) {
        int64_t position = ttt_engine_position(engine, i);
        bool same = position == ttt_state_info(start[i])->position;
        assert_true(same || position == -1);
        ids[i] = same ? next[i] : -1;
        lost += !same;
    }
    if (lost < slots)
        ASSERT_OK(ttt_engine_step(engine, ids, logits[0]));
    for (int64_t i = 0; i < slots; i++) {
        if (ids[i] >= 0)
            assert_memory_equal(logits[i], expected[i], sizeof expected[i]);
    }
    return lost;
}

static void torture(const char *name, pjrt_status *(*run)(void))
{
    int lost = 0, n = 1;
    for (;; n++) {
        begin();
        allocations = 0;
        fail_at = n;
        pjrt_status *st = run();
        fail_at = 0;
        if (allocations < n) {
            ASSERT_OK(st);
            break;
        }
        if (st == NULL) /* it could do without */
            continue;
        assert_int_equal(pjrt_status_code(st), PJRT_CODE_RESOURCE_EXHAUSTED);
        pjrt_status_free(st);
        lost += look_after();
    }
    assert_true(n > 4);
    print_message("%s of %lld: %d failures, %d sequences lost\n", name, (long long)slots, n - 1,
                  lost);
}

static void open_engine(const ttt_devices *devices)
{
    ttt_engine_options options = {.batch = slots, .span = 8};
    ASSERT_OK(ttt_engine_open(devices, folder, &options, &engine));
    for (int64_t i = 0; i < slots; i++) {
        ASSERT_OK(ttt_engine_feed(engine, i, tokens, 8 + i, NULL)); /* a span, and tokens */
        ASSERT_OK(ttt_engine_take(engine, i, &start[i]));
        ASSERT_OK(ttt_engine_prepare(engine, i, READ));
    }
    ASSERT_OK(ttt_engine_step(engine, next, expected[0]));
}

static void write_model(const ttt_devices *devices)
{
    static const char *const small[][2] = {{"vocab_size", "32"},       {"hidden_size", "16"},
                                           {"n_layers", "1"},          {"n_heads", "2"},
                                           {"intermediate_size", "8"}, {"mini_batch_size", "8"}};
    ttt_config config;
    ttt_error error;
    ttt_model *model;
    assert_true(ttt_config_preset(&config, "tiny", "ttt_linear", "mamba", &error));
    for (size_t i = 0; i < sizeof small / sizeof *small; i++)
        assert_true(ttt_config_set(&config, small[i][0], small[i][1], &error));
    ASSERT_OK(ttt_model_start(devices, &config, TTT_SEPARATE, HLO_F32, 1, &model));
    assert_true(ttt_config_write(&config, support_path(folder, "config.json"), &error));
    ASSERT_OK(ttt_arrays_save(model->params, model->weights,
                              support_path(folder, "model.safetensors"), HLO_F32, NULL));
    ttt_model_free(model);
}

static void everything(void **state)
{
    (void)state;
    ttt_devices *devices;
    support_new_folder(folder);
    json_set_alloc_funcs(json_malloc, free);
    ASSERT_OK(ttt_devices_open("cpu", NULL, &devices));
    write_model(devices);
    for (slots = 1; slots <= MOST_SLOTS; slots++) {
        open_engine(devices);
        torture("reset", reset);
        torture("feed", feed);
        torture("step", step);
        torture("take", take);
        torture("put", put);
        for (int64_t i = 0; i < slots; i++)
            ttt_state_free(start[i]);
        ttt_engine_free(engine);
    }
    ttt_devices_free(devices);
    support_remove_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(everything)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
