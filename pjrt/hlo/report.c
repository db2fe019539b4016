/*
 * The report: tables of the results of cost.c.
 *
 * Every table is made the same way: a row for each instruction that belongs in it, sorted by name,
 * rows of one name added up, sorted again with the costliest first. The rows' names point into the
 * program until the end, when the report gets copies of its own.
 */
#include "pjrt/hlo/internal.h"

#include <stdlib.h>
#include <string.h>

/* The report with what it owns. */
typedef struct report {
    pjrt_hlo_report public;
    pjrt_hlo_tally *tallies[4]; /* ops, fusions, custom calls, scopes */
    pjrt_hlo_loop *loops;
    pjrt_hlo_collective *collectives;
    char *strings;
} report;

/* A name inside the program. */
typedef struct span {
    const char *at;
    size_t length;
} span;

/* A row in the making: its name may be part of a longer one. */
typedef struct row {
    span name;
    pjrt_hlo_tally tally;
} row;

typedef enum table { TABLE_OPS, TABLE_FUSIONS, TABLE_CUSTOM_CALLS, TABLE_SCOPES, TABLES } table;

static span whole(const char *text)
{
    return (span){.at = text, .length = strlen(text)};
}

static int compare_spans(span a, span b)
{
    size_t shorter = a.length < b.length ? a.length : b.length;
    int order = memcmp(a.at, b.at, shorter);
    return order != 0 ? order : (a.length > b.length) - (a.length < b.length);
}

static int by_name(const void *a, const void *b)
{
    return compare_spans(((const row *)a)->name, ((const row *)b)->name);
}

static int descending(double a, double b)
{
    return (a < b) - (a > b);
}

static int by_cost(const void *a, const void *b)
{
    const pjrt_hlo_tally *x = &((const row *)a)->tally, *y = &((const row *)b)->tally;
    int order = descending(x->cost.cycles, y->cost.cycles);
    if (order == 0)
        order = descending(x->cost.flops, y->cost.flops);
    if (order == 0)
        order = descending(x->cost.bytes, y->cost.bytes);
    if (order == 0)
        order = descending(x->executed, y->executed);
    return order == 0 ? by_name(a, b) : order;
}

static bool does_work(const hlo_instruction *in)
{
    return in->class != HLO_CLASS_FREE && in->class != HLO_CLASS_CONTROL;
}

/* "a/b" of "a/b/dot". */
static span scope_of_name(const char *name)
{
    const char *slash = strrchr(name, '/');
    return (span){.at = name, .length = slash == NULL ? 0 : (size_t)(slash - name)};
}

/* Compilers forget to name some fusions; what they fused has names. */
static span scope(const hlo_instruction *in)
{
    const char *name = hlo_op_name(in);
    if (name[0] == '\0' && in->op == HLO_FUSION)
        name = in->called[0]->op_name;
    return scope_of_name(name);
}

/* Whether the instruction has a row in the table, and its name there. */
static bool row_name(table t, const hlo_instruction *in, span *name)
{
    switch (t) {
    case TABLE_OPS:
        *name = whole(in->proto->opcode);
        return true;
    case TABLE_FUSIONS:
        *name = whole(in->proto->fusion_kind);
        return in->op == HLO_FUSION;
    case TABLE_CUSTOM_CALLS:
        *name = whole(in->proto->custom_call_target);
        return in->op == HLO_CUSTOM_CALL;
    default:
        *name = scope(in);
        return does_work(in) && in->home->runs > 0;
    }
}

static size_t merge(row *rows, size_t count)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (kept > 0 && by_name(&rows[kept - 1], &rows[i]) == 0) {
            pjrt_hlo_tally *to = &rows[kept - 1].tally;
            to->count += rows[i].tally.count;
            to->fused += rows[i].tally.fused;
            to->executed += rows[i].tally.executed;
            hlo_cost_add(&to->cost, &rows[i].tally.cost, 1);
        } else {
            rows[kept++] = rows[i];
        }
    }
    return kept;
}

/* Fusions are made of instructions that stand in the table of opcodes themselves: there, each has
 * the arithmetic it does. */
static void own_arithmetic(const hlo_instruction *in, pjrt_hlo_cost *cost)
{
    double times = in->op == HLO_FUSION ? 0 : in->home->runs + in->home->fused_runs;
    cost->flops = in->cost.flops * times;
    cost->transcendentals = in->cost.transcendentals * times;
}

/* The rows of one table, merged and sorted. The caller frees them. */
static row *make_rows(const hlo_module *m, table t, size_t *count)
{
    row *rows = hlo_alloc(m->instruction_count, sizeof *rows);
    *count = 0;
    if (rows == NULL)
        return NULL;
    for (size_t i = 0; i < m->computation_count; i++) {
        const hlo_computation *c = &m->computations[i];
        for (size_t j = 0; j < c->instruction_count; j++) {
            const hlo_instruction *in = &c->instructions[j];
            span name;
            if (!row_name(t, in, &name))
                continue;
            row *r = &rows[(*count)++];
            r->name = name;
            r->tally.count = 1;
            r->tally.fused = c->fused_runs > 0;
            r->tally.executed = c->runs + c->fused_runs;
            hlo_cost_add(&r->tally.cost, &in->cost, c->runs);
            if (t == TABLE_OPS)
                own_arithmetic(in, &r->tally.cost);
        }
    }
    qsort(rows, *count, sizeof *rows, by_name);
    *count = merge(rows, *count);
    qsort(rows, *count, sizeof *rows, by_cost);
    return rows;
}

/* Copies a name into the report's own memory and returns the copy. */
static const char *keep(char **cursor, span name)
{
    char *copy = *cursor;
    memcpy(copy, name.at, name.length);
    copy[name.length] = '\0';
    *cursor += name.length + 1;
    return copy;
}

static pjrt_status *make_loops(hlo_module *m, report *r)
{
    size_t count = 0;
    for (size_t i = 0; i < m->computation_count; i++)
        for (size_t j = 0; m->computations[i].reached && j < m->computations[i].instruction_count;
             j++)
            count += m->computations[i].instructions[j].op == HLO_WHILE;
    r->loops = hlo_alloc(count, sizeof *r->loops);
    if (r->loops == NULL)
        return HLO_NO_MEMORY();
    r->public.loops = r->loops;
    for (size_t i = m->computation_count; i-- > 0;) { /* callers first: outer loops before inner */
        const hlo_computation *c = m->order[i];
        for (size_t j = 0; c->reached && j < c->instruction_count; j++) {
            const hlo_instruction *in = &c->instructions[j];
            ptrdiff_t inside = c->loop;
            if (in->op == HLO_WHILE) {
                inside = (ptrdiff_t)r->public.loop_count;
                pjrt_hlo_loop *loop = &r->loops[r->public.loop_count++];
                *loop = (pjrt_hlo_loop){
                    .name = in->proto->name,
                    .origin = hlo_op_name(in),
                    .trip_count = in->trip_count,
                    .depth = c->loop < 0 ? 0 : r->loops[c->loop].depth + 1,
                    .parent = c->loop,
                    .entered = c->runs,
                };
                double trips = in->trip_count < 0 ? 1 : (double)in->trip_count;
                hlo_cost_add(&loop->iteration, &in->called[0]->once, 1);
                hlo_cost_add(&loop->iteration, &in->called[1]->once, 1);
                hlo_cost_add(&loop->total, &loop->iteration, c->runs * trips);
                hlo_cost_add(&loop->total, &in->called[1]->once, c->runs);
                r->public.unknown_trip_counts += in->trip_count < 0;
            }
            for (size_t k = 0; k < in->called_count; k++)
                if (hlo_runs(in, k) && in->called[k]->loop < 0)
                    in->called[k]->loop = inside;
        }
    }
    return NULL;
}

static pjrt_status *fill_collectives(const hlo_module *m, pjrt_hlo_collective *rows, size_t *count)
{
    for (size_t i = 0; i < m->computation_count; i++) {
        const hlo_computation *c = &m->computations[i];
        for (size_t j = 0; c->reached && j < c->instruction_count; j++) {
            if (hlo_collective_kind(&c->instructions[j]) == NULL)
                continue;
            pjrt_hlo_collective *to = &rows[(*count)++];
            PJRT_TRY(hlo_collective(&c->instructions[j], to));
            to->executed = c->runs + c->fused_runs;
            to->total_bytes = to->bytes * to->executed;
        }
    }
    return NULL;
}

static int by_transfer(const void *a, const void *b)
{
    const pjrt_hlo_collective *x = a, *y = b;
    int order = strcmp(x->kind, y->kind);
    if (order == 0)
        order = descending(x->bytes, y->bytes);
    if (order == 0)
        order = x->asynchronous - y->asynchronous;
    return order == 0 ? (x->group_size > y->group_size) - (x->group_size < y->group_size) : order;
}

static int by_total_bytes(const void *a, const void *b)
{
    int order = descending(((const pjrt_hlo_collective *)a)->total_bytes,
                           ((const pjrt_hlo_collective *)b)->total_bytes);
    return order == 0 ? by_transfer(a, b) : order;
}

static pjrt_status *make_collectives(const hlo_module *m, report *r)
{
    size_t count = 0, kept = 0;
    for (size_t i = 0; i < m->computation_count; i++)
        for (size_t j = 0; j < m->computations[i].instruction_count; j++)
            count += hlo_collective_kind(&m->computations[i].instructions[j]) != NULL;
    pjrt_hlo_collective *rows = hlo_alloc(count, sizeof *rows);
    if (rows == NULL)
        return HLO_NO_MEMORY();
    r->collectives = rows;
    r->public.collectives = rows;
    count = 0;
    PJRT_TRY(fill_collectives(m, rows, &count));
    qsort(rows, count, sizeof *rows, by_transfer);
    for (size_t i = 0; i < count; i++) {
        r->public.collective_bytes += rows[i].total_bytes;
        if (kept > 0 && by_transfer(&rows[kept - 1], &rows[i]) == 0) {
            rows[kept - 1].count += rows[i].count;
            rows[kept - 1].executed += rows[i].executed;
            rows[kept - 1].total_bytes += rows[i].total_bytes;
        } else {
            rows[kept++] = rows[i];
        }
    }
    qsort(rows, kept, sizeof *rows, by_total_bytes);
    r->public.collective_count = kept;
    return NULL;
}

static void make_totals(const hlo_module *m, pjrt_hlo_report *out)
{
    out->computation_count = m->computation_count;
    out->instruction_count = m->instruction_count;
    out->unknown_types = m->unknown_types;
    out->total = m->entry->once;
    for (size_t i = 0; i < m->computation_count; i++) {
        const hlo_computation *c = &m->computations[i];
        for (size_t j = 0; j < c->instruction_count; j++) {
            const hlo_instruction *in = &c->instructions[j];
            out->cycles_in_loops += in->cost.cycles * c->runs_in_loops;
            out->conditionals += c->reached && in->op == HLO_CONDITIONAL;
            out->without_cycles += c->runs > 0 && does_work(in) && !in->has_cycles &&
                                   in->class != HLO_CLASS_DONE && in->size.elements > 1 &&
                                   in->cost.bytes > 0;
        }
    }
}

/* Gives the report its own copies of all names, and the tables their final form. */
static pjrt_status *finish(const hlo_module *m, report *r, row *const rows[TABLES],
                           const size_t counts[TABLES])
{
    size_t room = strlen(m->proto->name) + 1;
    for (table t = 0; t < TABLES; t++) {
        r->tallies[t] = hlo_alloc(counts[t], sizeof *r->tallies[t]);
        if (r->tallies[t] == NULL)
            return HLO_NO_MEMORY();
        for (size_t i = 0; i < counts[t]; i++)
            room += rows[t][i].name.length + 1;
    }
    for (size_t i = 0; i < r->public.loop_count; i++)
        room += strlen(r->loops[i].name) + strlen(r->loops[i].origin) + 2;
    for (size_t i = 0; i < r->public.collective_count; i++)
        room += strlen(r->collectives[i].kind) + 1;
    r->strings = malloc(room);
    if (r->strings == NULL)
        return HLO_NO_MEMORY();

    char *cursor = r->strings;
    r->public.module_name = keep(&cursor, whole(m->proto->name));
    for (table t = 0; t < TABLES; t++) {
        for (size_t i = 0; i < counts[t]; i++) {
            r->tallies[t][i] = rows[t][i].tally;
            r->tallies[t][i].name = keep(&cursor, rows[t][i].name);
        }
    }
    for (size_t i = 0; i < r->public.loop_count; i++) {
        r->loops[i].name = keep(&cursor, whole(r->loops[i].name));
        r->loops[i].origin = keep(&cursor, whole(r->loops[i].origin));
    }
    for (size_t i = 0; i < r->public.collective_count; i++)
        r->collectives[i].kind = keep(&cursor, whole(r->collectives[i].kind));

    r->public.ops = r->tallies[TABLE_OPS];
    r->public.op_count = counts[TABLE_OPS];
    r->public.fusions = r->tallies[TABLE_FUSIONS];
    r->public.fusion_count = counts[TABLE_FUSIONS];
    r->public.custom_calls = r->tallies[TABLE_CUSTOM_CALLS];
    r->public.custom_call_count = counts[TABLE_CUSTOM_CALLS];
    r->public.scopes = r->tallies[TABLE_SCOPES];
    r->public.scope_count = counts[TABLE_SCOPES];
    return NULL;
}

static pjrt_status *make_tallies(const hlo_module *m, report *r)
{
    row *rows[TABLES] = {0};
    size_t counts[TABLES] = {0};
    pjrt_status *st = NULL;
    for (table t = 0; st == NULL && t < TABLES; t++) {
        rows[t] = make_rows(m, t, &counts[t]);
        if (rows[t] == NULL)
            st = HLO_NO_MEMORY();
    }
    if (st == NULL)
        st = finish(m, r, rows, counts);
    for (table t = 0; t < TABLES; t++)
        free(rows[t]);
    return st;
}

static pjrt_status *fill(hlo_module *m, report *r, const char *format, const void *bytes,
                         size_t size)
{
    PJRT_TRY(hlo_module_decode(m, format, bytes, size));
    PJRT_TRY(hlo_module_cost(m));
    make_totals(m, &r->public);
    PJRT_TRY(make_loops(m, r));
    PJRT_TRY(make_collectives(m, r));
    return make_tallies(m, r);
}

pjrt_status *pjrt_hlo_report_create(const char *format, const void *bytes, size_t size,
                                    pjrt_hlo_report **out)
{
    *out = NULL;
    report *r = calloc(1, sizeof *r);
    if (r == NULL)
        return HLO_NO_MEMORY();
    hlo_module m = {0};
    pjrt_status *st = fill(&m, r, format, bytes, size);
    hlo_module_free(&m);
    if (st != NULL)
        pjrt_hlo_report_free(&r->public);
    else
        *out = &r->public;
    return st;
}

void pjrt_hlo_report_free(pjrt_hlo_report *out)
{
    report *r = (report *)out; /* public is its first member */
    if (r == NULL)
        return;
    for (table t = 0; t < TABLES; t++)
        free(r->tallies[t]);
    free(r->loops);
    free(r->collectives);
    free(r->strings);
    free(r);
}
