/*
 * Fuzzes the reader of programs' text: any bytes give a summary or an error, never a crash. Seeds
 * worth starting from are tools/examples.
 */
#include "pjrt/hlo/pjrt_hlo.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static void check(int promise)
{
    if (!promise)
        abort();
}

static void check_values(const pjrt_hlo_text_value *values, size_t count, size_t size)
{
    for (size_t i = 0; i < count; i++) {
        check(strlen(values[i].name) + strlen(values[i].type) <= size);
        check(isfinite(values[i].bytes) && values[i].bytes >= 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pjrt_hlo_text *text;
    pjrt_status *st = pjrt_hlo_text_create((const char *)data, size, &text);
    check((st == NULL) == (text != NULL));
    if (text != NULL) {
        int64_t total = 0;
        for (size_t i = 0; i < text->op_count; i++)
            total += text->ops[i].count;
        check(total > 0 && (size_t)total == text->operations);
        for (size_t i = 0; i < text->loop_count; i++)
            check(text->loops[i].parent < (ptrdiff_t)i && text->loops[i].below >= -1);
        check_values(text->arguments, text->argument_count, size);
        check_values(text->results, text->result_count, size);
    }
    pjrt_hlo_text_free(text);
    pjrt_status_free(st);
    return 0;
}
