/*
 * The program replayed on a chip of given peaks: a clock that operations move on, and links that
 * are taken for as long as a transfer lasts. Callees first, one walk over each computation; a
 * loop's body is replayed once and counts as often as it runs.
 */
#include "pjrt/hlo/internal.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_OPEN = 64 }; /* transfers spread over fusions that are looked back to */

/* One execution of a computation. */
typedef struct span {
    double seconds;    /* waiting for links included */
    double operations; /* without */
    double transfer;   /* seconds of links of the collectives that stand in it */
} span;

typedef struct replay {
    const hlo_module *m;
    const pjrt_hlo_peaks *peaks;
    span *spans; /* one a computation */
} replay;

/* Within one computation. */
typedef struct clock {
    double now, links_free, operations;
    double *ends; /* of the transfer that an instruction began; one an instruction */
    const hlo_instruction *open[MAX_OPEN];
    size_t opened;
} clock;

static double most(double a, double b)
{
    return a > b ? a : b;
}

static span *span_of(const replay *r, const hlo_computation *c)
{
    return &r->spans[c - r->m->computations];
}

static double operation_seconds(const replay *r, const hlo_instruction *in)
{
    return most(in->cost.flops / r->peaks->flops, in->cost.main_bytes / r->peaks->bytes);
}

static pjrt_status *link_seconds(const replay *r, const hlo_instruction *in, double *seconds,
                                 bool *asynchronous)
{
    pjrt_hlo_collective c;
    PJRT_TRY(hlo_collective(in, &c));
    *asynchronous = c.asynchronous;
    *seconds = r->peaks->link_bytes > 0 ? pjrt_hlo_link_bytes(&c) / r->peaks->link_bytes : 0;
    return NULL;
}

/* ---- transfers ---- */

/* Takes the links as soon as they are free; returns when they are free again. */
static double take_links(clock *k, double seconds)
{
    k->links_free = most(k->now, k->links_free) + seconds;
    return k->links_free;
}

static void begin(clock *k, const hlo_instruction *in, double seconds)
{
    k->ends[in - in->home->instructions] = take_links(k, seconds);
}

static void finish(clock *k, const hlo_instruction *start)
{
    if (start != NULL)
        k->now = most(k->now, k->ends[start - start->home->instructions]);
}

static const char *chain_of(const hlo_computation *c)
{
    const char *chain = NULL;
    for (size_t i = 0; chain == NULL && i < c->instruction_count; i++)
        chain = hlo_chain(&c->instructions[i]);
    return chain == NULL ? "" : chain;
}

/* The fusion before that began what this one ends. */
static const hlo_instruction *find_open(const clock *k, const hlo_instruction *end)
{
    const char *chain = chain_of(end->called[0]);
    for (size_t i = k->opened; i-- > 0 && k->opened - i <= MAX_OPEN;) {
        const hlo_instruction *start = k->open[i % MAX_OPEN];
        if (strcmp(chain_of(start->called[0]), chain) == 0)
            return start;
    }
    return NULL;
}

/* A fusion that holds a collective, or a part of one. False when it is ordinary work. */
static bool replay_fused_transfer(const replay *r, clock *k, const hlo_instruction *in)
{
    const hlo_computation *c = in->called[0];
    double seconds = span_of(r, c)->transfer;
    if (c->starts_transfer) {
        begin(k, in, seconds);
        k->open[k->opened++ % MAX_OPEN] = in;
        return true;
    }
    if (c->ends_transfer)
        finish(k, find_open(k, in));
    else if (seconds > 0)
        k->now = take_links(k, seconds);
    return c->ends_transfer || seconds > 0;
}

static pjrt_status *replay_collective(const replay *r, clock *k, const hlo_instruction *in)
{
    double seconds;
    bool asynchronous;
    PJRT_TRY(link_seconds(r, in, &seconds, &asynchronous));
    begin(k, in, seconds);
    if (!asynchronous)
        finish(k, in);
    return NULL;
}

/* ---- computations ---- */

static void replay_calls(const replay *r, clock *k, const hlo_instruction *in)
{
    for (size_t i = 0; i < in->called_count; i++) {
        if (!hlo_runs(in, i))
            continue;
        const span *callee = span_of(r, in->called[i]);
        double times = hlo_runs_per_call(in, i);
        k->now += callee->seconds * times;
        k->operations += callee->operations * times;
    }
}

static pjrt_status *replay_instruction(const replay *r, clock *k, const hlo_instruction *in)
{
    if (hlo_collective_kind(in) != NULL)
        return replay_collective(r, k, in);
    if (in->op == HLO_FUSION && replay_fused_transfer(r, k, in))
        return NULL;
    if (in->op == HLO_ASYNC_START && span_of(r, in->called[0])->transfer > 0) {
        begin(k, in, span_of(r, in->called[0])->transfer);
    } else if (in->class == HLO_CLASS_DONE || in->op == HLO_ASYNC_DONE) {
        finish(k, hlo_start_of(in));
    } else if (in->class != HLO_CLASS_START) {
        double seconds = operation_seconds(r, in);
        k->now += seconds;
        k->operations += seconds;
        replay_calls(r, k, in);
    }
    return NULL;
}

/* What stands in a computation that is fused, or started as a whole. */
static pjrt_status *add_transfers(const replay *r, const hlo_computation *c)
{
    for (size_t i = 0; i < c->instruction_count; i++) {
        double seconds = 0;
        bool asynchronous;
        if (hlo_collective_kind(&c->instructions[i]) != NULL)
            PJRT_TRY(link_seconds(r, &c->instructions[i], &seconds, &asynchronous));
        span_of(r, c)->transfer += seconds;
    }
    return NULL;
}

static pjrt_status *replay_computation(const replay *r, const hlo_computation *c)
{
    const hlo_instruction **order;
    clock k = {0};
    PJRT_TRY(add_transfers(r, c));
    PJRT_TRY(hlo_schedule(r->m, c, &order));
    k.ends = hlo_alloc(c->instruction_count, sizeof *k.ends);
    pjrt_status *st = k.ends == NULL ? HLO_NO_MEMORY() : NULL;
    for (size_t i = 0; st == NULL && i < c->instruction_count; i++)
        st = replay_instruction(r, &k, order[i]);
    span_of(r, c)->seconds = k.now;
    span_of(r, c)->operations = k.operations;
    free(k.ends);
    free(order);
    return st;
}

static pjrt_status *sum_links(const replay *r, pjrt_hlo_times *out)
{
    for (size_t i = 0; i < r->m->computation_count; i++) {
        const hlo_computation *c = &r->m->computations[i];
        for (size_t j = 0; c->reached && j < c->instruction_count; j++) {
            double seconds;
            bool asynchronous;
            if (hlo_collective_kind(&c->instructions[j]) == NULL)
                continue;
            PJRT_TRY(link_seconds(r, &c->instructions[j], &seconds, &asynchronous));
            seconds *= c->runs + c->fused_runs;
            out->links += seconds;
            out->links_async += asynchronous ? seconds : 0;
        }
    }
    return NULL;
}

static pjrt_status *run(const replay *r, pjrt_hlo_times *out)
{
    for (size_t i = 0; i < r->m->computation_count; i++)
        PJRT_TRY(replay_computation(r, r->m->order[i]));
    PJRT_TRY(sum_links(r, out));
    const span *all = span_of(r, r->m->entry);
    out->arithmetic = r->m->entry->once.flops / r->peaks->flops;
    out->memory = r->m->entry->once.main_bytes / r->peaks->bytes;
    out->operations = all->operations;
    out->exposed = most(0, all->seconds - all->operations); /* below 0 by rounding alone */
    out->step = most(out->operations + out->exposed, out->memory);
    return NULL;
}

pjrt_status *pjrt_hlo_replay(const char *format, const void *bytes, size_t size,
                             const pjrt_hlo_peaks *peaks, pjrt_hlo_times *out)
{
    hlo_module m = {0};
    *out = (pjrt_hlo_times){0};
    pjrt_status *st = hlo_module_decode(&m, format, bytes, size);
    if (st == NULL)
        st = hlo_module_cost(&m);
    if (st == NULL) {
        replay r = {.m = &m, .peaks = peaks};
        r.spans = hlo_alloc(m.computation_count, sizeof *r.spans);
        st = r.spans == NULL ? HLO_NO_MEMORY() : run(&r, out);
        free(r.spans);
    }
    hlo_module_free(&m);
    if (st != NULL)
        *out = (pjrt_hlo_times){0};
    return st;
}
