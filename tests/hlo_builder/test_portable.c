/*
 * Portable artifacts without a reader of them: which version is written and which refused, the same
 * bytes each time, and errors. That they read back as the text does is portable_check.py's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "hlo_builder/hlo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The artifact's heading and the name of its producer, "StableHLO_v1.0.0". */
static const char *producer(const char *artifact)
{
    assert_memory_equal(artifact, "ML\xefR\x0d", 5); /* bytecode, format version 6 */
    return artifact + 5;
}

static hlo_val vector(hlo_graph *g)
{
    return hlo_param(g, "x", HLO_SHAPE(HLO_F32, 4));
}

static void assert_producer(hlo_graph *g, const hlo_portable_options *options, const char *expected)
{
    size_t size = 0;
    char *artifact = hlo_write_portable(g, options, &size);
    if (artifact == NULL)
        fail_msg("%s", hlo_graph_error(g)->message);
    assert_string_equal(producer(artifact), expected);
    assert_true(size > strlen(expected) + 6);
    free(artifact);
    hlo_graph_free(g);
}

static void assert_refused(hlo_graph *g, const hlo_portable_options *options, const char *words)
{
    size_t size = 7;
    assert_null(hlo_write_portable(g, options, &size));
    assert_int_equal(hlo_graph_error(g)->code, HLO_ERROR_UNSUPPORTED);
    if (strstr(hlo_graph_error(g)->message, words) == NULL)
        fail_msg("\"%s\" is not in: %s", words, hlo_graph_error(g)->message);
    assert_int_equal(size, 7);
    hlo_graph_free(g);
}

static hlo_graph *tanh_graph(void)
{
    hlo_graph *g = hlo_graph_new("t");
    hlo_result(g, "y", hlo_tanh(g, vector(g)));
    return g;
}

static hlo_graph *erf_graph(void)
{
    hlo_graph *g = hlo_graph_new("t");
    hlo_val x = vector(g);
    hlo_scope_push(g, "gate");
    hlo_result(g, "y", hlo_erf(g, x));
    hlo_scope_pop(g);
    return g;
}

static hlo_graph *sharded_graph(void)
{
    hlo_graph *g = hlo_graph_new("t");
    hlo_mesh(g, (const char *const[]){"data"}, (int64_t[]){4}, 1);
    hlo_val x = vector(g);
    hlo_shard_param(g, x, HLO_SPEC("data"));
    hlo_result(g, "y", hlo_neg(g, x));
    return g;
}

/* Batch dimensions came with 1.1. */
static hlo_graph *gather_graph(void)
{
    hlo_graph *g = hlo_graph_new("t");
    hlo_val x = hlo_param(g, "x", HLO_SHAPE(HLO_F32, 2, 4));
    hlo_val at = hlo_param(g, "at", HLO_SHAPE(HLO_S32, 2, 3, 1));
    hlo_gather_dims dims = {.collapsed = HLO_DIMS(1),
                            .operand_batch = HLO_DIMS(0),
                            .indices_batch = HLO_DIMS(0),
                            .start_map = HLO_DIMS(1),
                            .index_vector_dim = 2};
    hlo_result(g, "y", hlo_gather(g, x, at, &dims, HLO_DIMS(1, 1)));
    return g;
}

static hlo_graph *custom_call_graph(void)
{
    hlo_graph *g = hlo_graph_new("t");
    hlo_val x = vector(g), y;
    hlo_custom_call_options o = {.target = "call"};
    hlo_custom_call(g, &o, &x, 1, hlo_shape_of(g, x), &y, 1);
    hlo_result(g, "y", y);
    return g;
}

static void square(hlo_graph *g, void *ctx, const hlo_val *in, hlo_val *out)
{
    (void)ctx;
    out[0] = hlo_erf(g, hlo_mul(g, in[0], in[0]));
}

/* What a function needs counts too. */
static hlo_graph *call_graph(void)
{
    hlo_graph *g = hlo_graph_new("t");
    hlo_val x = vector(g), y;
    hlo_call(g, "square", square, NULL, &x, 1, &y, 1);
    hlo_call(g, "square", square, NULL, &y, 1, &x, 1);
    hlo_result(g, "y", x);
    return g;
}

static void test_oldest(void **state)
{
    (void)state;
    hlo_portable_options gspmd = {.gspmd = true};
    assert_producer(tanh_graph(), NULL, "StableHLO_v1.0.0");
    assert_producer(gather_graph(), NULL, "StableHLO_v1.1.0");
    assert_producer(custom_call_graph(), NULL, "StableHLO_v1.3.0");
    assert_producer(erf_graph(), NULL, "StableHLO_v1.11.0");
    assert_producer(call_graph(), NULL, "StableHLO_v1.11.0");
    assert_producer(sharded_graph(), NULL, "StableHLO_v1.11.0");
    assert_producer(sharded_graph(), &gspmd, "StableHLO_v1.0.0");
}

static void test_asked_for(void **state)
{
    (void)state;
    assert_producer(tanh_graph(), &(hlo_portable_options){.version = {1, 0, 0}},
                    "StableHLO_v1.0.0");
    assert_producer(tanh_graph(), &(hlo_portable_options){.version = {1, 13, 7}},
                    "StableHLO_v1.13.7");
    assert_producer(erf_graph(), &(hlo_portable_options){.version = {1, 11, 0}},
                    "StableHLO_v1.11.0");
}

static void test_refused(void **state)
{
    (void)state;
    static const int unknown[][3] = {{0, 9, 0}, {1, 999, 0}, {2, 0, 0}, {1, -1, 0}, {1, 2, -3}};
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
        hlo_portable_options o = {0};
        memcpy(o.version, unknown[i], sizeof o.version);
        assert_refused(tanh_graph(), &o, "no portable form of StableHLO");
    }
    hlo_portable_options old = {.version = {1, 10, 2}};
    assert_refused(erf_graph(), &old,
                   "gate: erf has no portable form before StableHLO 1.11.0, asked for was 1.10.2");
    assert_refused(sharded_graph(), &old, "a sharding has no portable form before");
    old.version[1] = 2;
    assert_refused(custom_call_graph(), &old, "custom_call has no portable form before");
    old.version[1] = 0;
    assert_refused(gather_graph(), &old, "gather has no portable form before");
}

/* Versions differ in the operations' forms: tanh has an accuracy since 1.10. */
static bool has_op(int minor, const char *name)
{
    size_t size, length = strlen(name) + 1;
    hlo_graph *g = tanh_graph();
    char *artifact =
        hlo_write_portable(g, &(hlo_portable_options){.version = {1, minor, 0}}, &size);
    assert_non_null(artifact);
    bool found = false;
    for (size_t i = 0; i + length <= size; i++)
        found = found || memcmp(artifact + i, name, length) == 0;
    free(artifact);
    hlo_graph_free(g);
    return found;
}

static void test_forms(void **state)
{
    (void)state;
    assert_true(has_op(9, "tanh_v1"));
    assert_false(has_op(9, "tanh_v2"));
    assert_true(has_op(10, "tanh_v2"));
    assert_false(has_op(10, "tanh_v1"));
}

/* Neither what was written before nor a second graph changes a byte. */
static void test_same_bytes(void **state)
{
    (void)state;
    size_t sizes[3];
    char *artifacts[3];
    hlo_graph *first = call_graph(), *second = call_graph();
    artifacts[0] = hlo_write_portable(first, NULL, &sizes[0]);
    char *text = hlo_write_text(first, NULL);
    artifacts[1] = hlo_write_portable(first, NULL, &sizes[1]);
    artifacts[2] = hlo_write_portable(second, NULL, &sizes[2]);
    for (int i = 0; i < 3; i++) {
        assert_non_null(artifacts[i]);
        assert_int_equal(sizes[i], sizes[0]);
        assert_memory_equal(artifacts[i], artifacts[0], sizes[0]);
    }
    for (int i = 0; i < 3; i++)
        free(artifacts[i]);
    free(text);
    hlo_graph_free(first);
    hlo_graph_free(second);
}

/* An error from before stays, and nothing is written. */
static void test_failed_graph(void **state)
{
    (void)state;
    size_t size = 7;
    hlo_graph *g = tanh_graph();
    hlo_fail(g, HLO_ERROR_VALUE, "from before");
    assert_null(hlo_write_portable(g, NULL, &size));
    assert_string_equal(hlo_graph_error(g)->message, "from before");
    assert_int_equal(size, 7);
    hlo_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_oldest),     cmocka_unit_test(test_asked_for),
        cmocka_unit_test(test_refused),    cmocka_unit_test(test_forms),
        cmocka_unit_test(test_same_bytes), cmocka_unit_test(test_failed_graph),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
