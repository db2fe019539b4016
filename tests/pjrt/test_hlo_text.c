/* What is told of programs by their text. */
#include "pjrt/hlo/pjrt_hlo.h"
#include "tests/support/support.h"

#include <stdlib.h>

static const char program[] =
    "module @step attributes {mhlo.num_partitions = 4 : i32} {\n"
    "  sdy.mesh @mesh = <[\"data\"=4]>\n"
    "  func.func public @main(%arg0: tensor<4x8xf32> {sdy.sharding = #sdy.sharding<@mesh, "
    "[{\"data\"}, {}]>} loc(\"weights, (first)\"),\n"
    "      %arg1: tensor<bf16>) -> (tensor<4x8xf32> {mhlo.layout_mode = \"default\"}, tensor<i1>) "
    "{\n"
    "    // stablehlo.sine does not count, nor does \"stablehlo.cosine\"(\n"
    "    %0 = stablehlo.constant dense<0> : tensor<i32>\n"
    "    %1:2 = stablehlo.while(%2 = %0, %3 = %arg0) : tensor<i32>, tensor<4x8xf32>\n"
    "    cond {\n"
    "      %4 = stablehlo.constant dense<9> : tensor<i32>\n"
    "      %5 = stablehlo.compare LT, %2, %4 : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
    "      stablehlo.return %5 : tensor<i1>\n"
    "    } do {\n"
    "      %6:1 = \"stablehlo.while\"(%2) ({\n"
    "        stablehlo.return %5 : tensor<i1>\n"
    "      }, {\n"
    "        %7 = stablehlo.add %2, %2 {note = \"stablehlo.tanh in words\"} : tensor<i32>\n"
    "        stablehlo.return %7 : tensor<i32>\n"
    "      }) : (tensor<i32>) -> tensor<i32>\n"
    "      stablehlo.return %6, %3 : tensor<i32>, tensor<4x8xf32>\n"
    "    }\n"
    "    %8 = stablehlo.add %1#1, %1#1 : tensor<4x8xf32>\n"
    "    return %8, %5 : tensor<4x8xf32>, tensor<i1>\n"
    "  }\n"
    "}\n";

static int64_t count_of(const pjrt_hlo_text *t, const char *op)
{
    for (size_t i = 0; i < t->op_count; i++)
        if (strcmp(t->ops[i].name, op) == 0)
            return t->ops[i].count;
    return 0;
}

static void operations_loops_and_arguments_are_told(void **state)
{
    (void)state;
    pjrt_hlo_text *t;
    ASSERT_OK(pjrt_hlo_text_create(program, strlen(program), &t));
    assert_string_equal(t->module, "step");
    assert_int_equal(t->functions, 1);
    assert_int_equal(count_of(t, "stablehlo.add"), 2);
    assert_int_equal(count_of(t, "stablehlo.while"), 2);
    assert_int_equal(count_of(t, "stablehlo.constant"), 2);
    assert_int_equal(count_of(t, "stablehlo.return"), 4);
    assert_int_equal(count_of(t, "sdy.mesh"), 1);
    assert_int_equal(count_of(t, "stablehlo.sine") + count_of(t, "stablehlo.cosine"), 0);
    assert_int_equal(count_of(t, "stablehlo.tanh") + count_of(t, "mhlo.num_partitions"), 0);
    assert_int_equal(count_of(t, "sdy.sharding") + count_of(t, "mhlo.layout_mode"), 0);
    assert_int_equal(t->operations, 13);

    assert_int_equal(t->argument_count, 2);
    assert_string_equal(t->arguments[0].name, "weights, (first)");
    assert_string_equal(t->arguments[0].type, "tensor<4x8xf32>");
    assert_true(t->arguments[0].bytes == 128);
    assert_string_equal(t->arguments[1].name, "arg1");
    assert_true(t->arguments[1].bytes == 2);
    assert_int_equal(t->result_count, 2);
    assert_string_equal(t->results[1].type, "tensor<i1>");

    assert_int_equal(t->loop_count, 2);
    assert_int_equal(t->loops[0].line, 7);
    assert_int_equal(t->loops[0].below, 9);
    assert_int_equal(t->loops[0].operations, 8); /* 3 in the condition, 5 in the body */
    assert_int_equal(t->loops[1].parent, 0);
    assert_int_equal(t->loops[1].depth, 1);
    assert_int_equal(t->loops[1].below, -1);
    assert_int_equal(t->loops[1].operations, 3);
    pjrt_hlo_text_free(t);
}

static void other_texts_are_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {"",
                                        "hello",
                                        "{\"a.b\": 1}",
                                        "module @empty {}",
                                        "#include <stdio.h>",
                                        "// stablehlo.add only in words"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        pjrt_hlo_text *t;
        pjrt_status *st = pjrt_hlo_text_create(texts[i], strlen(texts[i]), &t);
        assert_int_equal(pjrt_status_code(st), PJRT_CODE_INVALID_ARGUMENT);
        assert_null(t);
        pjrt_status_free(st);
    }
}

/* Every beginning of the program, and every byte replaced: an answer or an error. */
static void cut_and_damaged_texts_do_no_harm(void **state)
{
    (void)state;
    size_t size = strlen(program);
    for (size_t i = 0; i < size; i++) {
        static const char bad[] = "\"{}()<\\%";
        for (size_t j = 0; j <= strlen(bad); j++) {
            size_t length = j == strlen(bad) ? i : size;
            char *copy = malloc(length + 1); /* exact, so that a sanitizer sees a step too far */
            assert_non_null(copy);
            memcpy(copy, program, length);
            if (length == size)
                copy[i] = bad[j];
            pjrt_hlo_text *t;
            char *exact = realloc(copy, length == 0 ? 1 : length);
            pjrt_status_free(pjrt_hlo_text_create(exact, length, &t));
            pjrt_hlo_text_free(t);
            free(exact);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operations_loops_and_arguments_are_told),
        cmocka_unit_test(other_texts_are_refused),
        cmocka_unit_test(cut_and_damaged_texts_do_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
