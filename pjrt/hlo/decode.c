/*
 * From bytes to a program that can be walked: unpacks the messages, turns ids into pointers, checks
 * what the other files rely on, and orders the computations so that callees come first.
 */
#include "pjrt/hlo/internal.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    hlo_class class;
    size_t operands, called;
} ops[] = {[HLO_OTHER] = {"", HLO_CLASS_WORK, 0, 0},
#define HLO_OP_ROW(enumerator, name, class, operands, called) \
    [HLO_##enumerator] = {name, HLO_CLASS_##class, operands, called},
           HLO_OPS(HLO_OP_ROW)
#undef HLO_OP_ROW
};

static hlo_op op_named(const char *name)
{
    size_t low = HLO_OTHER + 1, high = sizeof ops / sizeof *ops;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(name, ops[middle].name);
        if (order == 0)
            return (hlo_op)middle;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return HLO_OTHER;
}

void *hlo_alloc(size_t count, size_t size)
{
    return calloc(count == 0 ? 1 : count, size);
}

/* A sorted list of ids, to look things up by. */
typedef struct id_entry {
    int64_t id;
    size_t index;
} id_entry;

static int by_id(const void *a, const void *b)
{
    int64_t x = ((const id_entry *)a)->id, y = ((const id_entry *)b)->id;
    return (x > y) - (x < y);
}

static pjrt_status *sort_ids(id_entry *ids, size_t count, const char *what)
{
    qsort(ids, count, sizeof *ids, by_id);
    for (size_t i = 1; i < count; i++)
        if (ids[i].id == ids[i - 1].id)
            return HLO_BAD("two %s have the id %lld", what, (long long)ids[i].id);
    return NULL;
}

static const id_entry *find_id(const id_entry *ids, size_t count, int64_t id)
{
    id_entry key = {.id = id};
    return bsearch(&key, ids, count, sizeof *ids, by_id);
}

bool hlo_runs(const hlo_instruction *in, size_t i)
{
    switch (in->op) {
    case HLO_WHILE:
        return i < 2; /* the body, then the condition */
    case HLO_CONDITIONAL:
        return true;
    case HLO_CALL:
    case HLO_ASYNC_START:
        return i == 0;
    case HLO_CUSTOM_CALL:
        return true;
    default:
        return false;
    }
}

static bool is_custom_call(const hlo_instruction *in, const char *target)
{
    return in->op == HLO_CUSTOM_CALL && strcmp(in->proto->custom_call_target, target) == 0;
}

const char *hlo_chain(const hlo_instruction *in)
{
    const TttXla__FrontendAttributes *attributes = in->proto->frontend_attributes;
    for (size_t i = 0; attributes != NULL && i < attributes->n_map; i++)
        if (strcmp(attributes->map[i]->key, "chain_id") == 0)
            return attributes->map[i]->value;
    return NULL;
}

bool hlo_is_echo(const hlo_instruction *in)
{
    if (is_custom_call(in, "AsyncCollectiveDone"))
        return true;
    return hlo_chain(in) != NULL && !in->home->starts_transfer && in->op != HLO_CUSTOM_CALL;
}

static pjrt_status *link_instruction(hlo_module *m, hlo_instruction *in, const id_entry *local,
                                     const id_entry *global)
{
    const TttXla__HloInstructionProto *proto = in->proto;
    hlo_computation *c = in->home;
    in->op = op_named(proto->opcode);
    in->class = ops[in->op].class;
    in->trip_count = -1;
    if (is_custom_call(in, "AsyncCollectiveStart"))
        c->starts_transfer = true;
    if (is_custom_call(in, "AsyncCollectiveDone"))
        c->ends_transfer = true;
    if (proto->n_operand_ids < ops[in->op].operands ||
        proto->n_called_computation_ids < ops[in->op].called)
        return HLO_BAD("%s with %zu operands and %zu called computations: " HLO_NAME,
                       ops[in->op].name, proto->n_operand_ids, proto->n_called_computation_ids,
                       proto->name);
    in->operands = hlo_alloc(proto->n_operand_ids, sizeof *in->operands);
    in->called = hlo_alloc(proto->n_called_computation_ids, sizeof *in->called);
    if (in->operands == NULL || in->called == NULL)
        return HLO_NO_MEMORY();
    for (size_t i = 0; i < proto->n_operand_ids; i++) {
        const id_entry *e = find_id(local, c->instruction_count, proto->operand_ids[i]);
        if (e == NULL)
            return HLO_BAD("no operand with the id %lld: " HLO_NAME,
                           (long long)proto->operand_ids[i], proto->name);
        in->operands[in->operand_count++] = &c->instructions[e->index];
    }
    for (size_t i = 0; i < proto->n_called_computation_ids; i++) {
        int64_t id = proto->called_computation_ids[i];
        const id_entry *e = find_id(global, m->computation_count, id);
        if (e == NULL)
            return HLO_BAD("no computation with the id %lld: " HLO_NAME, (long long)id,
                           proto->name);
        hlo_computation *callee = &m->computations[e->index];
        in->called[in->called_count++] = callee;
        if (hlo_runs(in, i))
            callee->caller = callee->caller_count++ == 0 ? in : NULL;
    }
    pjrt_status *st = hlo_shape_measure(proto->shape, -1, &in->size);
    m->unknown_types += in->size.unknown_types;
    return st;
}

/* Parameters are numbered from 0, each number once. */
static pjrt_status *number_parameters(const hlo_computation *c, bool *taken)
{
    for (size_t i = 0; i < c->instruction_count; i++) {
        const hlo_instruction *in = &c->instructions[i];
        if (in->op != HLO_PARAMETER)
            continue;
        int64_t number = in->proto->parameter_number;
        if (number < 0 || (uint64_t)number >= c->parameter_count || taken[number])
            return HLO_BAD("parameter %lld of %zu: " HLO_NAME, (long long)number,
                           c->parameter_count, in->proto->name);
        taken[number] = true;
    }
    return NULL;
}

static pjrt_status *link_parameters(hlo_computation *c)
{
    for (size_t i = 0; i < c->instruction_count; i++)
        c->parameter_count += c->instructions[i].op == HLO_PARAMETER;
    c->parameter_reads = hlo_alloc(c->parameter_count, sizeof *c->parameter_reads);
    bool *taken = hlo_alloc(c->parameter_count, sizeof *taken);
    pjrt_status *st =
        c->parameter_reads == NULL || taken == NULL ? HLO_NO_MEMORY() : number_parameters(c, taken);
    free(taken);
    return st;
}

const char *hlo_op_name(const hlo_instruction *in)
{
    return in->proto->metadata == NULL ? "" : in->proto->metadata->op_name;
}

static void name_origin(hlo_computation *c)
{
    c->op_name = hlo_op_name(c->root);
    for (size_t i = c->instruction_count; c->op_name[0] == '\0' && i-- > 0;)
        c->op_name = hlo_op_name(&c->instructions[i]);
}

static pjrt_status *link_instructions(hlo_module *m, hlo_computation *c, id_entry *local,
                                      const id_entry *global)
{
    for (size_t i = 0; i < c->instruction_count; i++) {
        hlo_instruction *in = &c->instructions[i];
        in->proto = c->proto->instructions[i];
        in->home = c;
        local[i] = (id_entry){.id = in->proto->id, .index = i};
    }
    PJRT_TRY(sort_ids(local, c->instruction_count, "instructions"));
    const id_entry *root = find_id(local, c->instruction_count, c->proto->root_id);
    if (root == NULL)
        return HLO_BAD("no root with the id %lld: " HLO_NAME, (long long)c->proto->root_id,
                       c->proto->name);
    c->root = &c->instructions[root->index];
    name_origin(c);
    for (size_t i = 0; i < c->instruction_count; i++)
        PJRT_TRY(link_instruction(m, &c->instructions[i], local, global));
    return link_parameters(c);
}

static pjrt_status *link_computation(hlo_module *m, hlo_computation *c, const id_entry *global)
{
    size_t count = c->proto->n_instructions;
    m->instruction_count += count;
    c->loop = -1;
    c->instructions = hlo_alloc(count, sizeof *c->instructions);
    id_entry *local = hlo_alloc(count, sizeof *local);
    pjrt_status *st = NULL;
    if (c->instructions == NULL || local == NULL) {
        st = HLO_NO_MEMORY();
    } else {
        c->instruction_count = count;
        st = link_instructions(m, c, local, global);
    }
    free(local);
    return st;
}

/* Operands given to a computation must be as many as it has parameters where a later step follows
 * them. Calls are checked here, when all computations are linked. */
static pjrt_status *check_arguments(const hlo_instruction *in)
{
    for (size_t i = 0; i < in->called_count; i++) {
        size_t takes = in->called[i]->parameter_count, gives = in->operand_count;
        bool fits = true;
        if (in->op == HLO_FUSION || in->op == HLO_CALL || in->op == HLO_ASYNC_START)
            fits = i > 0 || takes == gives;
        else if (in->op == HLO_WHILE)
            fits = takes == 1;
        else if (in->op == HLO_CONDITIONAL)
            fits = takes <= 1 && gives >= in->called_count + 1;
        if (!fits)
            return HLO_BAD("%s of %zu operands calls a computation of %zu parameters: " HLO_NAME,
                           ops[in->op].name, gives, takes, in->proto->name);
    }
    return NULL;
}

/* A computation on the way down, and how far its calls have been followed. */
typedef struct visit {
    hlo_computation *computation;
    size_t instruction, called;
} visit;

/* The next computation this one calls; NULL when there is none left. */
static hlo_computation *next_called(visit *v)
{
    for (; v->instruction < v->computation->instruction_count; v->instruction++, v->called = 0) {
        hlo_instruction *in = &v->computation->instructions[v->instruction];
        if (v->called < in->called_count)
            return in->called[v->called++];
    }
    return NULL;
}

enum visit_state { VISIT_NEW, VISIT_OPEN, VISIT_DONE };

/* Appends a computation to the order, after all it calls. Depth first, with a stack of our own: how
 * deep calls are nested is the program's choice. */
static pjrt_status *visit_computation(hlo_module *m, hlo_computation *first, visit *stack,
                                      unsigned char *state, size_t *ordered)
{
    size_t depth = 0;
    stack[depth++] = (visit){.computation = first};
    state[first - m->computations] = VISIT_OPEN;
    while (depth > 0) {
        hlo_computation *next = next_called(&stack[depth - 1]);
        if (next == NULL) {
            hlo_computation *finished = stack[--depth].computation;
            state[finished - m->computations] = VISIT_DONE;
            m->order[(*ordered)++] = finished;
        } else if (state[next - m->computations] == VISIT_OPEN) {
            return HLO_BAD("a computation calls itself: " HLO_NAME, next->proto->name);
        } else if (state[next - m->computations] == VISIT_NEW) {
            stack[depth++] = (visit){.computation = next};
            state[next - m->computations] = VISIT_OPEN;
        }
    }
    return NULL;
}

static pjrt_status *order_computations(hlo_module *m)
{
    size_t count = m->computation_count, ordered = 0;
    m->order = hlo_alloc(count, sizeof *m->order);
    visit *stack = hlo_alloc(count, sizeof *stack);
    unsigned char *state = hlo_alloc(count, sizeof *state);
    pjrt_status *st = NULL;
    if (m->order == NULL || stack == NULL || state == NULL) {
        st = HLO_NO_MEMORY();
    } else {
        for (size_t i = 0; st == NULL && i < count; i++)
            if (state[i] == VISIT_NEW)
                st = visit_computation(m, &m->computations[i], stack, state, &ordered);
    }
    free(stack);
    free(state);
    return st;
}

static pjrt_status *link_all(hlo_module *m, id_entry *ids)
{
    for (size_t i = 0; i < m->computation_count; i++) {
        m->computations[i].proto = m->proto->computations[i];
        ids[i] = (id_entry){.id = m->proto->computations[i]->id, .index = i};
    }
    PJRT_TRY(sort_ids(ids, m->computation_count, "computations"));
    const id_entry *entry = find_id(ids, m->computation_count, m->proto->entry_computation_id);
    if (entry == NULL)
        return HLO_BAD("no entry computation with the id %lld",
                       (long long)m->proto->entry_computation_id);
    m->entry = &m->computations[entry->index];
    for (size_t i = 0; i < m->computation_count; i++)
        PJRT_TRY(link_computation(m, &m->computations[i], ids));
    for (size_t i = 0; i < m->computation_count; i++)
        for (size_t j = 0; j < m->computations[i].instruction_count; j++)
            PJRT_TRY(check_arguments(&m->computations[i].instructions[j]));
    return order_computations(m);
}

static pjrt_status *unpack(hlo_module *m, const char *format, const void *bytes, size_t size)
{
    bool with_config = strcmp(format, "hlo_with_config") == 0;
    if (!with_config && strcmp(format, "hlo") != 0)
        return PJRT_FAIL(UNIMPLEMENTED, HLO_CREATE, "programs in the format '%s'", format);
    if (size > (size_t)2 << 30)
        return HLO_BAD("a program of %zu bytes; the limit is 2 GiB", size);
    hlo_budget budget;
    hlo_budget_init(&budget, size);
    if (with_config) {
        m->wrapper = ttt_xla__hlo_module_proto_with_config__unpack(&budget.allocator, size, bytes);
        m->proto = m->wrapper == NULL ? NULL : m->wrapper->hlo_module;
        if (m->wrapper != NULL && m->proto == NULL)
            return HLO_BAD("the program has no module");
    } else {
        m->proto = ttt_xla__hlo_module_proto__unpack(&budget.allocator, size, bytes);
    }
    return m->proto == NULL ? hlo_budget_status(&budget, "the program") : NULL;
}

pjrt_status *hlo_module_decode(hlo_module *m, const char *format, const void *bytes, size_t size)
{
    *m = (hlo_module){0};
    PJRT_TRY(unpack(m, format, bytes, size));
    size_t count = m->proto->n_computations;
    m->computations = hlo_alloc(count, sizeof *m->computations);
    id_entry *ids = hlo_alloc(count, sizeof *ids);
    pjrt_status *st = NULL;
    if (m->computations == NULL || ids == NULL) {
        st = HLO_NO_MEMORY();
    } else {
        m->computation_count = count;
        st = link_all(m, ids);
    }
    free(ids);
    return st;
}

void hlo_module_free(hlo_module *m)
{
    for (size_t i = 0; i < m->computation_count; i++) {
        hlo_computation *c = &m->computations[i];
        for (size_t j = 0; j < c->instruction_count; j++) {
            free(c->instructions[j].operands);
            free(c->instructions[j].called);
        }
        free(c->instructions);
        free(c->parameter_reads);
    }
    free(m->computations);
    free(m->order);
    if (m->wrapper != NULL)
        ttt_xla__hlo_module_proto_with_config__free_unpacked(m->wrapper, &hlo_free_only);
    else if (m->proto != NULL)
        ttt_xla__hlo_module_proto__free_unpacked(m->proto, &hlo_free_only);
}
