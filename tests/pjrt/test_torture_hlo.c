/*
 * Every allocation of the readers of programs is made to fail, one run each: what comes back is the
 * failure and nothing else, and under the sanitizers nothing is left behind.
 */
#include "pjrt/hlo/pjrt_hlo.h"
#include "tests/support/support.h"
#include "tests/support/torture.h"

#include <stdio.h>

typedef pjrt_status *(*reader)(const char *bytes, size_t size);

static pjrt_status *read_report(const char *bytes, size_t size)
{
    pjrt_hlo_report *report;
    pjrt_status *st = pjrt_hlo_report_create("hlo_with_config", bytes, size, &report);
    assert_true((st == NULL) == (report != NULL));
    pjrt_hlo_report_free(report);
    return st;
}

static pjrt_status *read_times(const char *bytes, size_t size)
{
    pjrt_hlo_times times;
    const pjrt_hlo_peaks peaks = {.flops = 1e12, .bytes = 1e12, .link_bytes = 1e11};
    pjrt_status *st = pjrt_hlo_replay("hlo_with_config", bytes, size, &peaks, &times);
    assert_true((st == NULL) == (times.step > 0));
    return st;
}

static pjrt_status *read_live(const char *bytes, size_t size)
{
    pjrt_hlo_live *live;
    pjrt_status *st = pjrt_hlo_live_create("hlo_with_config", bytes, size, &live);
    assert_true((st == NULL) == (live != NULL));
    pjrt_hlo_live_free(live);
    return st;
}

static pjrt_status *read_text(const char *bytes, size_t size)
{
    pjrt_hlo_text *text;
    pjrt_status *st = pjrt_hlo_text_create(bytes, size, &text);
    assert_true((st == NULL) == (text != NULL));
    pjrt_hlo_text_free(text);
    return st;
}

static void torture(reader read, const char *bytes, size_t size)
{
    int n = 1;
    for (bool hit = true; hit; n++) {
        allocations = 0;
        fail_at = n;
        pjrt_status *st = read(bytes, size);
        hit = allocations >= n;
        fail_at = 0;
        if (hit)
            assert_int_equal(pjrt_status_code(st), PJRT_CODE_RESOURCE_EXHAUSTED);
        else
            ASSERT_OK(st);
        if (hit)
            pjrt_status_free(st);
    }
    assert_in_range(n, 4, 100000);
}

static void each_allocation_fails_once(void **state)
{
    (void)state;
    size_t size;
    char path[PATH_MAX];
    const char *folder = getenv("TTT_TEST_DATA");
    snprintf(path, sizeof path, "%s/hlo/tpu_scan_psum.pb", folder == NULL ? "tests/data" : folder);
    unsigned char *bytes = support_read_file(path, &size);
    torture(read_report, (const char *)bytes, size);
    torture(read_times, (const char *)bytes, size);
    torture(read_live, (const char *)bytes, size);
    free(bytes);
    static const char program[] = "module @m { func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> "
                                  "{ %0 = stablehlo.while(%a) cond { stablehlo.return } do { "
                                  "stablehlo.return } return %0 : tensor<4xf32> } }";
    torture(read_text, program, strlen(program));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_allocation_fails_once),
    };
    return cmocka_run_group_tests_name("pjrt torture of programs", tests, NULL, NULL);
}
