/*
 * Execution order of instructions: the module's schedule if it has one, else the order in which
 * the computation lists them (operands before users).
 */
#include "pjrt/hlo/internal.h"

#include <stdlib.h>

static const TttXla__HloScheduleProto__InstructionSequence *find_sequence(const hlo_module *m,
                                                                          const hlo_computation *c)
{
    const TttXla__HloScheduleProto *schedule = m->proto->schedule;
    for (size_t i = 0; schedule != NULL && i < schedule->n_sequences; i++)
        if (schedule->sequences[i]->key == c->proto->id)
            return schedule->sequences[i]->value;
    return NULL;
}

typedef struct schedule_entry {
    int64_t id;
    const hlo_instruction *instruction;
    bool taken;
} schedule_entry;

static int by_id(const void *a, const void *b)
{
    int64_t x = ((const schedule_entry *)a)->id, y = ((const schedule_entry *)b)->id;
    return (x > y) - (x < y);
}

static schedule_entry *find_entry(schedule_entry *entries, size_t count, int64_t id)
{
    schedule_entry key = {.id = id};
    return bsearch(&key, entries, count, sizeof *entries, by_id);
}

/* Fails unless the schedule lists every instruction exactly once. */
static pjrt_status *apply_schedule(const TttXla__HloScheduleProto__InstructionSequence *sequence,
                                   const hlo_computation *c, schedule_entry *entries,
                                   const hlo_instruction **order)
{
    for (size_t i = 0; i < c->instruction_count; i++)
        entries[i] = (schedule_entry){.id = c->instructions[i].proto->id,
                                      .instruction = &c->instructions[i]};
    qsort(entries, c->instruction_count, sizeof *entries, by_id);
    for (size_t i = 0; i < sequence->n_instruction_ids; i++) {
        schedule_entry *p = find_entry(entries, c->instruction_count, sequence->instruction_ids[i]);
        if (p == NULL || p->taken || i >= c->instruction_count)
            return HLO_BAD("the schedule lists an unknown instruction, or one twice: " HLO_NAME,
                           c->proto->name);
        p->taken = true;
        order[i] = p->instruction;
    }
    if (sequence->n_instruction_ids != c->instruction_count)
        return HLO_BAD("the schedule has %zu of %zu instructions: " HLO_NAME,
                       sequence->n_instruction_ids, c->instruction_count, c->proto->name);
    return NULL;
}

pjrt_status *hlo_schedule(const hlo_module *m, const hlo_computation *c,
                          const hlo_instruction ***out)
{
    const TttXla__HloScheduleProto__InstructionSequence *sequence = find_sequence(m, c);
    const hlo_instruction **order = hlo_alloc(c->instruction_count, sizeof *order);
    pjrt_status *st = NULL;
    *out = NULL;
    if (order == NULL)
        return HLO_NO_MEMORY();
    if (sequence == NULL) {
        for (size_t i = 0; i < c->instruction_count; i++)
            order[i] = &c->instructions[i];
    } else {
        schedule_entry *entries = hlo_alloc(c->instruction_count, sizeof *entries);
        st = entries == NULL ? HLO_NO_MEMORY() : apply_schedule(sequence, c, entries, order);
        free(entries);
    }
    if (st == NULL)
        *out = order;
    else
        free(order);
    return st;
}

const hlo_instruction *hlo_start_of(const hlo_instruction *done)
{
    const hlo_instruction *start = done->operands[0];
    /* Bounded by the instruction count: operands may form a cycle in an invalid program. */
    for (size_t i = 0; start->op == HLO_ASYNC_UPDATE && i < done->home->instruction_count; i++)
        start = start->operands[0];
    return start;
}
