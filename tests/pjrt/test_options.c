/* Compile options, byte for byte as XLA's protobuf has them. */
#include "tests/support/support.h"

#include <stdlib.h>

/* device_ordinal = -1: left out it would mean device 0. */
#define ORDINAL "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"

static void check(const pjrt_compile_options *options, const char *program, const char *bytes,
                  size_t size)
{
    pjrt_program text = pjrt_program_text(program == NULL ? "module {}" : program);
    char *encoded;
    size_t encoded_size;
    ASSERT_OK(pjrt_compile_options_encode(options, &text, &encoded, &encoded_size));
    assert_int_equal(encoded_size, size);
    assert_memory_equal(encoded, bytes, size);
    free(encoded);
}
#define CHECK(options, program, literal) check(options, program, literal, sizeof(literal) - 1)

/* T24: without replicas and partitions XLA aborts the process. */
static void defaults_name_replicas_partitions_and_no_ordinal(void **state)
{
    (void)state;
    CHECK(NULL, NULL, "\x1a\x0f" ORDINAL "\x20\x01\x28\x01");
    CHECK(&(pjrt_compile_options){0}, NULL, "\x1a\x0f" ORDINAL "\x20\x01\x28\x01");
}

/* Rows of the message are partitions; our list is replica-major: 0 1 | 2 3 becomes 0 2 | 1 3. */
static void an_assignment_is_transposed(void **state)
{
    (void)state;
    pjrt_compile_options o = {.replicas = 2, .partitions = 2, .devices = (int[]){0, 1, 2, 3}};
    CHECK(&o, NULL,
          "\x1a\x23" ORDINAL "\x20\x02\x28\x02\x30\x01\x4a\x10\x08\x02\x10\x02"
          "\x1a\x04\x0a\x02\x00\x02\x1a\x04\x0a\x02\x01\x03");
}

/* T25 */
static void portable_means_one_device_and_no_assignment(void **state)
{
    (void)state;
    char *bytes = (char *)state;
    size_t size = 7;
    CHECK(&(pjrt_compile_options){.portable = true}, NULL,
          "\x1a\x0f" ORDINAL "\x20\x01\x28\x01\x20\x01");
    const pjrt_compile_options bad[] = {
        {.portable = true, .replicas = 2},
        {.portable = true, .partitions = 2},
        {.portable = true, .devices = (int[]){0}},
        {.portable = true, .replicas = 65536, .partitions = 65536}, /* whose product overflows */
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ASSERT_FAILS(pjrt_compile_options_encode(&bad[i], NULL, &bytes, &size), INVALID_ARGUMENT,
                     "portable");
        assert_null(bytes);
        assert_int_equal(size, 0);
    }
}

static void counts_must_be_positive(void **state)
{
    (void)state;
    char *bytes;
    size_t size;
    pjrt_compile_options replicas = {.replicas = -1}, partitions = {.partitions = -3};
    ASSERT_FAILS(pjrt_compile_options_encode(&replicas, NULL, &bytes, &size), INVALID_ARGUMENT,
                 "-1 replicas");
    ASSERT_FAILS(pjrt_compile_options_encode(&partitions, NULL, &bytes, &size), INVALID_ARGUMENT,
                 "-3 partitions");
}

/* T26: what kind an override has decides how XLA reads it. */
static void overrides_of_every_kind(void **state)
{
    (void)state;
#define HEAD "\x1a\x0f" ORDINAL "\x20\x01\x28\x01"
    pjrt_option o = PJRT_OPT_STRING("a", "x");
    pjrt_compile_options c = {.overrides = &o, .n_overrides = 1};
    CHECK(&c, NULL, HEAD "\x3a\x08\x0a\x01\x61\x12\x03\x0a\x01x");
    o = PJRT_OPT_BOOL("a", false); /* false is said too: the default may be true */
    CHECK(&c, NULL, HEAD "\x3a\x07\x0a\x01\x61\x12\x02\x10\x00");
    o = PJRT_OPT_BOOL("a", true);
    CHECK(&c, NULL, HEAD "\x3a\x07\x0a\x01\x61\x12\x02\x10\x01");
    o = PJRT_OPT_INT("a", 300);
    CHECK(&c, NULL, HEAD "\x3a\x08\x0a\x01\x61\x12\x03\x18\xac\x02");
    o = PJRT_OPT_FLOAT("a", 1.0);
    CHECK(&c, NULL, HEAD "\x3a\x0e\x0a\x01\x61\x12\x09\x21\0\0\0\0\0\0\xf0\x3f");
    int64_t list[] = {1, INT64_MIN};
    o = PJRT_OPT_INTS("a", list, 2); /* repeated fields are read from text, split at commas */
    CHECK(&c, NULL,
          HEAD "\x3a\x1d\x0a\x01\x61\x12\x18\x0a\x16"
               "1,-9223372036854775808");
    o = PJRT_OPT_INTS("a", list, 0);
    CHECK(&c, NULL, HEAD "\x3a\x07\x0a\x01\x61\x12\x02\x0a\x00");
}

static void several_overrides_keep_their_order(void **state)
{
    (void)state;
    int64_t ones[] = {1, 1}, twos[] = {2};
    pjrt_option list[] = {PJRT_OPT_INTS("b", ones, 2), PJRT_OPT_INT("a", 1),
                          PJRT_OPT_INTS("c", twos, 1)};
    pjrt_compile_options c = {.overrides = list, .n_overrides = 3};
    CHECK(&c, NULL,
          HEAD "\x3a\x0a\x0a\x01"
               "b\x12\x05\x0a\x03"
               "1,1"
               "\x3a\x07\x0a\x01"
               "a\x12\x02\x18\x01"
               "\x3a\x08\x0a\x01"
               "c\x12\x03\x0a\x01"
               "2");
}

/* Both partitioners are there, and XLA's default is not the one that programs with sdy need. */
static void shardy_is_chosen_by_the_program(void **state)
{
    (void)state;
#define SHARDY "\x1a\x12" ORDINAL "\x20\x01\x28\x01\x98\x01\x01"
    pjrt_compile_options c = {0};
    CHECK(&c, "module { sdy.mesh @mesh = <[\"x\"=2]> }", SHARDY);
    CHECK(&c, "module @fsdyn { func.func @sdy() }", HEAD); /* a name is no dialect */
    c.partitioner = PJRT_PARTITIONER_SHARDY;
    CHECK(&c, NULL, SHARDY);
    c.partitioner = PJRT_PARTITIONER_GSPMD;
    CHECK(&c, "module { sdy.mesh @mesh = <[\"x\"=2]> }", HEAD);
    c.partitioner = PJRT_PARTITIONER_AUTO;
    char *bytes;
    size_t size;
    pjrt_program bytecode = {"ML\xefR\x01\0sdy\0mesh", 14, "mlir"};
    ASSERT_OK(pjrt_compile_options_encode(&c, &bytecode, &bytes, &size));
    assert_int_equal(size, sizeof SHARDY - 1);
    free(bytes);
}

static void a_job_of_several_processes(void **state)
{
    (void)state;
    pjrt_compile_options c = {.process = 1, .num_processes = 2};
    CHECK(&c, NULL, "\x1a\x15" ORDINAL "\x20\x01\x28\x01\xb0\x01\x01\xb8\x01\x02");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_name_replicas_partitions_and_no_ordinal),
        cmocka_unit_test(an_assignment_is_transposed),
        cmocka_unit_test(portable_means_one_device_and_no_assignment),
        cmocka_unit_test(counts_must_be_positive),
        cmocka_unit_test(overrides_of_every_kind),
        cmocka_unit_test(several_overrides_keep_their_order),
        cmocka_unit_test(shardy_is_chosen_by_the_program),
        cmocka_unit_test(a_job_of_several_processes),
    };
    return cmocka_run_group_tests_name("pjrt options", tests, NULL, NULL);
}
