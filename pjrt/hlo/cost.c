/*
 * What each instruction and computation costs, and how often each runs.
 *
 * Two walks, both linear in the program: callees first, to add up what one execution of each
 * computation costs, trip counts multiplied in; then callers first, to hand every computation the
 * number of its executions. A computation that is called from many places is walked once.
 */
#include "pjrt/hlo/internal.h"

/* Dimensions and trip counts are the program's word. Larger ones are invalid, and numbers
 * that are not finite would spread into every sum. */
#define MOST 1e100

void hlo_cost_add(pjrt_hlo_cost *sum, const pjrt_hlo_cost *cost, double times)
{
    sum->flops += cost->flops * times;
    sum->transcendentals += cost->transcendentals * times;
    sum->bytes += cost->bytes * times;
    sum->main_bytes += cost->main_bytes * times;
    sum->cycles += cost->cycles * times;
}

/* How often an execution of the instruction runs its called computation number i. The condition of
 * a loop is asked once more than the body runs; an unknown loop runs once. */
double hlo_runs_per_call(const hlo_instruction *in, size_t i)
{
    if (in->op == HLO_WHILE) {
        double trips = in->trip_count < 0 ? 1 : (double)in->trip_count;
        return i == 0 ? trips : trips + 1;
    }
    if (in->op == HLO_CONDITIONAL)
        return i == in->branch ? 1 : 0;
    return 1;
}

static bool costlier(const pjrt_hlo_cost *a, const pjrt_hlo_cost *b)
{
    if (a->cycles != b->cycles)
        return a->cycles > b->cycles;
    if (a->flops != b->flops)
        return a->flops > b->flops;
    return a->bytes > b->bytes;
}

static pjrt_status *cost_instruction(hlo_instruction *in)
{
    hlo_json value;
    int64_t cycles;
    PJRT_TRY(hlo_flops(in, &in->cost));
    hlo_moved moved = hlo_bytes(in);
    in->cost.bytes = moved.bytes;
    in->cost.main_bytes = moved.main;
    if (in->class != HLO_CLASS_CONTROL &&
        hlo_json_find(hlo_backend_config(in), "estimated_cycles", &value) &&
        hlo_json_integer(value, &cycles) && cycles >= 0) {
        in->cost.cycles = (double)cycles;
        in->has_cycles = true;
    }
    if (in->op == HLO_WHILE)
        in->trip_count = hlo_trip_count(in);
    if (in->op == HLO_CONDITIONAL)
        for (size_t i = 1; i < in->called_count; i++)
            if (costlier(&in->called[i]->once, &in->called[in->branch]->once))
                in->branch = i;
    return NULL;
}

static pjrt_status *cost_computation(hlo_computation *c)
{
    for (size_t i = 0; i < c->instruction_count; i++) {
        hlo_instruction *in = &c->instructions[i];
        PJRT_TRY(cost_instruction(in));
        hlo_cost_add(&c->once, &in->cost, 1);
        for (size_t j = 0; j < in->called_count; j++)
            if (hlo_runs(in, j))
                hlo_cost_add(&c->once, &in->called[j]->once, hlo_runs_per_call(in, j));
    }
    PJRT_TRY(hlo_cost_as_fusion(c));
    if (!(c->once.flops < MOST && c->once.transcendentals < MOST && c->once.bytes < MOST &&
          c->once.cycles < MOST))
        return HLO_BAD("costs beyond all measure: " HLO_NAME, c->proto->name);
    return NULL;
}

/* Hands on the runs of a computation to those it calls. */
static void spread_runs(const hlo_computation *c)
{
    for (size_t i = 0; i < c->instruction_count; i++) {
        const hlo_instruction *in = &c->instructions[i];
        for (size_t j = 0; j < in->called_count; j++) {
            hlo_computation *callee = in->called[j];
            if (in->op == HLO_FUSION && j == 0) {
                callee->fused_runs += c->runs + c->fused_runs;
            } else if (hlo_runs(in, j)) {
                double times = hlo_runs_per_call(in, j);
                callee->runs += c->runs * times;
                callee->runs_in_loops += (in->op == HLO_WHILE ? c->runs : c->runs_in_loops) * times;
                callee->fused_runs += c->fused_runs * times;
            } else {
                continue; /* a function applied to elements is not a run */
            }
            callee->reached |= c->reached;
        }
    }
}

pjrt_status *hlo_module_cost(hlo_module *m)
{
    for (size_t i = 0; i < m->computation_count; i++)
        PJRT_TRY(cost_computation(m->order[i]));
    m->entry->runs = 1;
    m->entry->reached = true;
    for (size_t i = m->computation_count; i-- > 0;) {
        hlo_computation *c = m->order[i];
        if (!(c->runs < MOST && c->fused_runs < MOST))
            return HLO_BAD("runs more often than can be counted: " HLO_NAME, c->proto->name);
        spread_runs(c);
    }
    return NULL;
}
