/*
 * Fuzzes the reader of optimized programs: any bytes give a report or an error, never a crash, and
 * a report keeps its promises. Seeds worth starting from are the programs in tests/data/hlo.
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

static void check_cost(const pjrt_hlo_cost *cost)
{
    check(isfinite(cost->flops) && cost->flops >= 0);
    check(isfinite(cost->transcendentals) && cost->transcendentals >= 0);
    check(isfinite(cost->bytes) && cost->bytes >= 0);
    check(isfinite(cost->cycles) && cost->cycles >= 0);
}

static size_t check_tallies(const pjrt_hlo_tally *tallies, size_t count)
{
    size_t letters = 0;
    for (size_t i = 0; i < count; i++) {
        letters += strlen(tallies[i].name);
        check(tallies[i].count > 0 && tallies[i].fused <= tallies[i].count);
        check_cost(&tallies[i].cost);
    }
    return letters;
}

static size_t check_report(const pjrt_hlo_report *r)
{
    size_t letters = strlen(r->module_name);
    check_cost(&r->total);
    letters += check_tallies(r->ops, r->op_count);
    letters += check_tallies(r->fusions, r->fusion_count);
    letters += check_tallies(r->custom_calls, r->custom_call_count);
    letters += check_tallies(r->scopes, r->scope_count);
    for (size_t i = 0; i < r->loop_count; i++) {
        letters += strlen(r->loops[i].name) + strlen(r->loops[i].origin);
        check(r->loops[i].parent >= -1 && r->loops[i].parent < (ptrdiff_t)i);
        check(r->loops[i].trip_count >= -1);
        check_cost(&r->loops[i].total);
    }
    for (size_t i = 0; i < r->collective_count; i++)
        letters += strlen(r->collectives[i].kind);
    return letters;
}

/* Times and memory over the step of the same bytes. */
static void check_step(const char *format, const uint8_t *data, size_t size)
{
    const pjrt_hlo_peaks peaks = {.flops = 1e12, .bytes = 1e12, .link_bytes = 1e11};
    pjrt_hlo_times t;
    pjrt_hlo_live *live;
    pjrt_status *st = pjrt_hlo_replay(format, data, size, &peaks, &t);
    check(isfinite(t.step) && t.step >= 0 && t.exposed >= 0 && t.links_async <= t.links);
    pjrt_status_free(st);
    st = pjrt_hlo_live_create(format, data, size, &live);
    check((st == NULL) == (live != NULL));
    if (live != NULL) {
        check(isfinite(live->peak_bytes) && live->peak_bytes >= live->argument_bytes);
        check(live->point_count == 0 || live->peak < live->point_count);
        for (size_t i = 0; i < live->point_count; i++)
            check(live->points[i].bytes <= live->peak_bytes && live->points[i].name != NULL);
        for (size_t i = 0; i < live->array_count; i++)
            check(strlen(live->arrays[i].name) + strlen(live->arrays[i].scope) < size);
    }
    pjrt_hlo_live_free(live);
    pjrt_status_free(st);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const formats[] = {"hlo", "hlo_with_config"};
    for (size_t i = 0; i < 2; i++) {
        pjrt_hlo_report *report;
        pjrt_status *st = pjrt_hlo_report_create(formats[i], data, size, &report);
        if (st == NULL)
            check(check_report(report) > 0 || report->instruction_count > 0);
        else
            check(report == NULL && pjrt_status_text(st)[0] != '\0');
        pjrt_hlo_report_free(report);
        pjrt_status_free(st);
        check_step(formats[i], data, size);
    }
    return 0;
}
