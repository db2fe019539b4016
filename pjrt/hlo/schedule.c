/*
 * In which order instructions are executed. Compilers that decide it write it down beside the
 * program; where they do not, instructions stand after their operands, and that order is taken.
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

typedef struct place {
    int64_t id;
    const hlo_instruction *instruction;
    bool taken;
} place;

static int by_id(const void *a, const void *b)
{
    int64_t x = ((const place *)a)->id, y = ((const place *)b)->id;
    return (x > y) - (x < y);
}

static place *find_place(place *places, size_t count, int64_t id)
{
    place key = {.id = id};
    return bsearch(&key, places, count, sizeof *places, by_id);
}

/* Every instruction once, or the schedule is not that of this program. */
static pjrt_status *follow(const TttXla__HloScheduleProto__InstructionSequence *sequence,
                           const hlo_computation *c, place *places, const hlo_instruction **order)
{
    for (size_t i = 0; i < c->instruction_count; i++)
        places[i] = (place){.id = c->instructions[i].proto->id, .instruction = &c->instructions[i]};
    qsort(places, c->instruction_count, sizeof *places, by_id);
    for (size_t i = 0; i < sequence->n_instruction_ids; i++) {
        place *p = find_place(places, c->instruction_count, sequence->instruction_ids[i]);
        if (p == NULL || p->taken || i >= c->instruction_count)
            return HLO_BAD(
                "the schedule has an instruction that is not there, or one twice: " HLO_NAME,
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
        place *places = hlo_alloc(c->instruction_count, sizeof *places);
        st = places == NULL ? HLO_NO_MEMORY() : follow(sequence, c, places, order);
        free(places);
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
    /* At most as many steps as there are instructions: operands may go round in a bad program. */
    for (size_t i = 0; start->op == HLO_ASYNC_UPDATE && i < done->home->instruction_count; i++)
        start = start->operands[0];
    return start;
}
