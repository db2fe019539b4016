/* How fast a compiled program could be, in numbers and words. */
#include "tools/compile/roofline.h"

#include <stdio.h>

#define OPERATIONS_FORMULA                                                        \
    "sum over operations, as often as each runs, of max(flops / peak flops, HBM " \
    "bytes / bandwidth)"
#define LINKS_FORMULA                                                                 \
    "sum over collectives of sent bytes / link bandwidth; a ring of n sends bytes x " \
    "(n-1)/n, an all-reduce twice that, a permutation all bytes"
#define EXPOSED_FORMULA                                                                   \
    "waiting when the schedule is replayed with these times: synchronous collectives at " \
    "once, asynchronous ones at their end"
#define STEP_FORMULA "max(operations + exposed links, all HBM bytes / bandwidth)"
#define MFU_FORMULA "model flops of a token x tokens / (step x chips x peak flops)"

pjrt_status *roofline_make(const pjrt_target *target, int chips, const char *format,
                           const void *program, size_t size, roofline *out)
{
    *out = (roofline){
        .known = target->bf16_flops > 0 && target->bytes_per_second > 0,
        .peaks = {.flops = target->bf16_flops,
                  .bytes = target->bytes_per_second,
                  .link_bytes = target->link_bytes_per_second},
        .chips = chips,
    };
    return out->known ? pjrt_hlo_replay(format, program, size, &out->peaks, &out->times) : NULL;
}

double roofline_tokens_per_second(const roofline *r, const roofline_work *work)
{
    return r->times.step > 0 ? work->tokens / r->times.step : 0;
}

double roofline_mfu(const roofline *r, const roofline_work *work)
{
    return roofline_tokens_per_second(r, work) * work->model_flops / (r->peaks.flops * r->chips);
}

double roofline_link_seconds(const roofline *r, const pjrt_hlo_collective *c)
{
    return r->peaks.link_bytes > 0 ? c->executed * pjrt_hlo_link_bytes(c) / r->peaks.link_bytes : 0;
}

json_t *roofline_json(const roofline *r, const roofline_work *work)
{
    const pjrt_hlo_times *t = &r->times;
    if (!r->known)
        return json_null();
    json_t *json = json_pack(
        "{s:{s:f, s:f, s:f}, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:{s:s, s:s, s:s, s:s, s:s}}",
        "peaks", "flops_per_second", r->peaks.flops, "bytes_per_second", r->peaks.bytes,
        "link_bytes_per_second", r->peaks.link_bytes, "arithmetic_seconds", t->arithmetic,
        "memory_seconds", t->memory, "operations_seconds", t->operations, "link_seconds", t->links,
        "link_seconds_asynchronous", t->links_async, "exposed_link_seconds", t->exposed,
        "step_seconds", t->step, "formulas", "operations_seconds", OPERATIONS_FORMULA,
        "link_seconds", LINKS_FORMULA, "exposed_link_seconds", EXPOSED_FORMULA, "step_seconds",
        STEP_FORMULA, "mfu", MFU_FORMULA);
    if (work == NULL || work->tokens == 0)
        return json;
    json_object_set_new(json, "tokens", json_real(work->tokens));
    json_object_set_new(json, "model_flops_per_token", json_real(work->model_flops));
    json_object_set_new(json, "tokens_per_second_at_most",
                        json_real(roofline_tokens_per_second(r, work)));
    json_object_set_new(json, "mfu_at_most", json_real(roofline_mfu(r, work)));
    return json;
}

void roofline_print(const roofline *r, const roofline_work *work)
{
    const pjrt_hlo_times *t = &r->times;
    if (!r->known)
        return;
    printf("roofline, a bound by public peaks and no time: %s, %s of memory, %s of links one way\n",
           cmd_quantity(r->peaks.flops, "FLOP/s"), cmd_quantity(r->peaks.bytes, "B/s"),
           cmd_quantity(r->peaks.link_bytes, "B/s"));
    printf("  operations      %9s  " OPERATIONS_FORMULA "\n", cmd_duration(t->operations));
    printf("    arithmetic    %9s  all flops / peak flops\n", cmd_duration(t->arithmetic));
    printf("    memory        %9s  all HBM bytes / bandwidth\n", cmd_duration(t->memory));
    if (t->links > 0) {
        printf("  links           %9s  " LINKS_FORMULA "\n", cmd_duration(t->links));
        printf("    asynchronous  %9s  of these, in pairs of start and end\n",
               cmd_duration(t->links_async));
        printf("    exposed       %9s  " EXPOSED_FORMULA "\n", cmd_duration(t->exposed));
    }
    printf("  step at least   %9s  " STEP_FORMULA "\n", cmd_duration(t->step));
    if (work != NULL && work->tokens > 0)
        printf("  so at most %s on %d chip%s, MFU at most %.1f%%: " MFU_FORMULA "\n",
               cmd_quantity(roofline_tokens_per_second(r, work), "tokens/s"), r->chips,
               r->chips == 1 ? "" : "s", 100 * roofline_mfu(r, work));
}
