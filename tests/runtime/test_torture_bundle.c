/*
 * Allocations of bundles and of libttt are made to fail, one run each: what failed says so, leaves
 * nothing behind, and works when it is done again. Allocations of jansson do not count, since its
 * parser does not survive them. Where there are thousands, later ones are tried at growing
 * distances.
 */
#include "runtime/ttt.h"
#include "tests/support/small_model.h"
#include "tests/support/support.h"
#include "tests/support/torture.h"

#include <jansson.h>
#include <stdio.h>

static char folder[PATH_MAX];
static ttt_devices *devices;
static ttt_lm *lm;
static const char *const cpu[] = {"cpu"};
static float expected[SMALL_VOCAB];

static void *json_malloc(size_t size)
{
    return __real_malloc(size);
}

static const char *at(const char *name)
{
    return support_path(folder, name);
}

static int setup(void **unused)
{
    (void)unused;
    json_set_alloc_funcs(json_malloc, free);
    support_new_folder(folder);
    ASSERT_OK(ttt_devices_open("cpu", NULL, &devices));
    small_model_write(devices, at("model"), "ttt_linear", 1);
    ttt_export_options o = {
        .model = at("model"), .targets = cpu, .n_targets = 1, .engine = {.span = 8, .batch = 2}};
    ASSERT_OK(ttt_bundle_write(at("bundle"), &o));
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    ttt_lm_free(lm);
    ttt_devices_free(devices);
    support_remove_folder(folder);
    return 0;
}

/* Runs it until no allocation fails any more; `pace` 0 tries each. */
static void torture(const char *name, int pace, pjrt_status *(*run)(void), void (*after)(void))
{
    int n = 1, tried = 0;
    for (;; n += 1 + (pace == 0 ? 0 : n / pace), tried++) {
        atomic_store(&allocations, 0);
        fail_at = n;
        pjrt_status *st = run();
        fail_at = 0;
        bool reached = atomic_load(&allocations) >= n;
        if (!reached)
            ASSERT_OK(st);
        else if (st != NULL)
            ASSERT_CONTAINS(pjrt_status_message(st), "memory");
        pjrt_status_free(reached ? st : NULL);
        if (!reached)
            break;
        after();
    }
    assert_true(tried > 4);
    print_message("%s: %d of %d allocations failed\n", name, tried, n - 1);
}

/* ---- bundles -----------------------------------------------------------------------------------
 */

static pjrt_status *read_bundle(void)
{
    ttt_bundle *bundle;
    ttt_tokenizer *tokenizer = NULL;
    pjrt_status *st = ttt_bundle_open(at("bundle"), &bundle);
    if (st == NULL)
        st = ttt_bundle_verify(bundle);
    if (st == NULL)
        st = ttt_bundle_tokenizer(bundle, &tokenizer);
    ttt_tokenizer_free(tokenizer);
    ttt_bundle_free(bundle);
    return st;
}

static void nothing(void)
{
}

static void reading(void **unused)
{
    (void)unused;
    torture("reading", 0, read_bundle, nothing);
}

static pjrt_status *write_bundle(void)
{
    ttt_export_options o = {.model = at("model"), .engine = {.span = 8}};
    return ttt_bundle_write(at("new"), &o);
}

/* Whole or not there; two: model and bundle. */
static void look_for_leavings(void)
{
    ttt_bundle *bundle;
    if (support_count_files(folder) == 2)
        return;
    ASSERT_OK(ttt_bundle_open(at("new"), &bundle));
    ASSERT_OK(ttt_bundle_verify(bundle));
    ttt_bundle_free(bundle);
    support_remove_folder(at("new"));
    assert_int_equal(support_count_files(folder), 2);
}

static void writing(void **unused)
{
    (void)unused;
    torture("writing", 12, write_bundle, look_for_leavings);
    look_for_leavings();
}

static pjrt_status *open_engine(void)
{
    ttt_bundle *bundle;
    ttt_bundle_use use;
    ttt_engine *engine = NULL;
    pjrt_status *st = ttt_bundle_open(at("bundle"), &bundle);
    if (st == NULL)
        st = ttt_bundle_engine(bundle, devices, NULL, &use, &engine);
    if (st == NULL)
        assert_string_equal(use.target, "cpu");
    ttt_engine_free(engine);
    ttt_bundle_free(bundle);
    return st;
}

static void running(void **unused)
{
    (void)unused;
    torture("running", 12, open_engine, nothing);
}

/* ---- the library -------------------------------------------------------------------------------
 */

static pjrt_status *open_lm(void)
{
    ttt_lm *opened;
    ttt_failure *f = ttt_lm_open(at("bundle"), NULL, &opened);
    ttt_lm_free(opened);
    return (pjrt_status *)f;
}

static void opening(void **unused)
{
    (void)unused;
    torture("opening", 8, open_lm, nothing);
    assert_null(ttt_lm_open(at("bundle"), NULL, &lm));
}

/* Three sequences in two slots: one is put aside, one is copied, one is restored. */
static ttt_failure *use_sequences(ttt_sequence **s, void **bytes)
{
    size_t size;
    int32_t token;
    ttt_failure *f = ttt_sequence_new(lm, &s[0]);
    if (f == NULL)
        f = ttt_sequence_feed_text(s[0], "some words", 10);
    if (f == NULL)
        f = ttt_sequence_save(s[0], bytes, &size);
    if (f == NULL)
        f = ttt_sequence_copy(s[0], &s[1]);
    if (f == NULL)
        f = ttt_sequence_new(lm, &s[2]);
    if (f == NULL)
        f = ttt_sequence_restore(s[2], *bytes, size);
    for (int i = 0; i < 3 && f == NULL; i++)
        f = ttt_sequence_feed(s[i], (int32_t[]){9}, 1);
    if (f == NULL)
        f = ttt_sequence_sample(s[2], &token);
    return f;
}

static pjrt_status *sequences(void)
{
    ttt_sequence *s[3] = {NULL};
    void *bytes = NULL;
    ttt_failure *f = use_sequences(s, &bytes);
    for (int i = 0; i < 3 && f == NULL; i++)
        assert_memory_equal(ttt_sequence_logits(s[i]), expected, sizeof expected);
    for (int i = 0; i < 3; i++)
        ttt_sequence_free(s[i]);
    ttt_free(bytes);
    return (pjrt_status *)f;
}

static void using(void **unused)
{
    ttt_sequence *s;
    (void)unused;
    assert_null(ttt_sequence_new(lm, &s));
    assert_null(ttt_sequence_feed_text(s, "some words", 10));
    assert_null(ttt_sequence_feed(s, (int32_t[]){9}, 1));
    memcpy(expected, ttt_sequence_logits(s), sizeof expected);
    ttt_sequence_free(s);
    torture("sequences", 12, sequences, nothing);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reading), cmocka_unit_test(writing), cmocka_unit_test(running),
        cmocka_unit_test(opening), cmocka_unit_test(using),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
