/*
 * Bytes an instruction reads and writes, by the rules of XLA's cost analysis: operands and result,
 * a fusion being one instruction, except that slices touch only the slice.
 *
 * It departs from XLA in three places, on purpose. An asynchronous copy counts once, not at both of
 * its ends. Gathers and scatters touch only what they name inside fusions too. Tuples, which are
 * lists of addresses, cost nothing, nor does what a fusion only hands through.
 */
#include "pjrt/hlo/internal.h"

#include <stdlib.h>
#include <string.h>

/* Some bytes of an array, or of all arrays of a tuple: where they are is told by its layout. */
static hlo_moved touch(const hlo_instruction *in, double bytes)
{
    double share = in->size.bytes > 0 ? in->size.main_bytes / in->size.bytes : 0;
    return (hlo_moved){.bytes = bytes, .main = bytes * share};
}

static hlo_moved whole(const hlo_instruction *in)
{
    return (hlo_moved){.bytes = in->size.bytes, .main = in->size.main_bytes};
}

static void add(hlo_moved *sum, hlo_moved more)
{
    sum->bytes += more.bytes;
    sum->main += more.main;
}

static hlo_moved both(hlo_moved a, hlo_moved b)
{
    add(&a, b);
    return a;
}

static hlo_moved operand_bytes(const hlo_instruction *in)
{
    hlo_moved sum = {0};
    for (size_t i = 0; i < in->operand_count; i++)
        add(&sum, whole(in->operands[i]));
    return sum;
}

/* All updates of a scatter: n arrays, the indices, n updates. */
static double update_bytes(const hlo_instruction *scatter)
{
    double bytes = 0;
    for (size_t i = (scatter->operand_count - 1) / 2 + 1; i < scatter->operand_count; i++)
        bytes += scatter->operands[i]->size.bytes;
    return bytes;
}

/* Each update is read, and its place read and written. */
static hlo_moved scatter_bytes(const hlo_instruction *in)
{
    size_t arrays = (in->operand_count - 1) / 2;
    hlo_moved sum = touch(in->operands[0], 2 * update_bytes(in));
    for (size_t i = arrays; i < in->operand_count; i++)
        add(&sum, whole(in->operands[i]));
    return sum;
}

/* The parameter that an operand inside a fusion is, or is an element of; NULL for none. */
static const hlo_instruction *read_parameter(const hlo_instruction *operand)
{
    if (operand->op == HLO_GET_TUPLE_ELEMENT)
        operand = operand->operands[0];
    return operand->op == HLO_PARAMETER ? operand : NULL;
}

/* One output of a fusion. An update in place writes the update, not the array, and what is handed
 * through is not written. */
static hlo_moved written(const hlo_instruction *output)
{
    if (hlo_is_echo(output) || read_parameter(output) != NULL)
        return (hlo_moved){0};
    if (output->op == HLO_DYNAMIC_UPDATE_SLICE)
        return touch(output, output->operands[1]->size.bytes);
    if (output->op == HLO_SCATTER)
        return touch(output, update_bytes(output));
    return whole(output);
}

/* The TPU compiler's ways of naming a piece of memory: nothing is touched. */
static bool names_memory(const hlo_instruction *in)
{
    const char *target = in->proto->custom_call_target;
    return strcmp(target, "AllocateBuffer") == 0 || strcmp(target, "ConcatBitcast") == 0;
}

/* What a slice takes is read where the array is and written where the result is. */
static hlo_moved sliced(const hlo_instruction *in)
{
    return both(touch(in->operands[0], in->size.bytes), whole(in));
}

static hlo_moved updated_in_place(const hlo_instruction *in)
{
    const hlo_instruction *update = in->operands[1];
    hlo_moved sum = both(whole(update), touch(in, update->size.bytes));
    if (in->operand_count > 2)
        add(&sum, whole(in->operands[2]));
    return sum;
}

hlo_moved hlo_bytes(const hlo_instruction *in)
{
    switch (in->class) {
    case HLO_CLASS_FREE:
    case HLO_CLASS_CONTROL:
        return (hlo_moved){0};
    case HLO_CLASS_START:
        return operand_bytes(in);
    case HLO_CLASS_DONE:
        return whole(in);
    default:
        break;
    }
    switch (in->op) {
    case HLO_FUSION:
        return in->called[0]->fused_bytes;
    case HLO_SLICE:
        return sliced(in);
    case HLO_DYNAMIC_SLICE:
    case HLO_GATHER:
        return both(sliced(in), whole(in->operands[1]));
    case HLO_DYNAMIC_UPDATE_SLICE:
        return updated_in_place(in);
    case HLO_SCATTER:
        return scatter_bytes(in);
    case HLO_CUSTOM_CALL:
        if (names_memory(in))
            return (hlo_moved){0};
        break;
    default:
        break;
    }
    return both(operand_bytes(in), whole(in));
}

/* What one use of a parameter reads of it: the whole array counts once for all the uses that read
 * it whole, and `seen` remembers that. */
static hlo_moved use_bytes(const hlo_instruction *user, size_t position, bool *seen)
{
    const hlo_instruction *operand = user->operands[position];
    if (hlo_is_echo(user))
        return (hlo_moved){0};
    switch (user->op) {
    case HLO_GET_TUPLE_ELEMENT:
    case HLO_TUPLE:
        return (hlo_moved){0}; /* their users read, they do not */
    case HLO_FUSION:
        return user->called[0]->parameter_reads[position];
    case HLO_SLICE:
        return touch(operand, user->size.bytes);
    case HLO_DYNAMIC_SLICE:
    case HLO_GATHER:
        if (position == 0)
            return touch(operand, user->size.bytes);
        break;
    case HLO_SCATTER:
        if (position < (user->operand_count - 1) / 2)
            return touch(operand,
                         user->operands[position + (user->operand_count - 1) / 2 + 1]->size.bytes);
        break;
    case HLO_DYNAMIC_UPDATE_SLICE:
        if (position == 0)
            return (hlo_moved){0};
        break;
    case HLO_BROADCAST:
    case HLO_RESHAPE:
        return whole(operand);
    default:
        break;
    }
    if (*seen)
        return (hlo_moved){0};
    *seen = true;
    return whole(operand);
}

static pjrt_status *read_parameters(hlo_computation *c)
{
    bool *seen = hlo_alloc(c->instruction_count, sizeof *seen);
    if (seen == NULL)
        return HLO_NO_MEMORY();
    for (size_t i = 0; i < c->instruction_count; i++) {
        const hlo_instruction *user = &c->instructions[i];
        for (size_t j = 0; j < user->operand_count; j++) {
            const hlo_instruction *from = read_parameter(user->operands[j]);
            if (from != NULL)
                add(&c->parameter_reads[from->proto->parameter_number],
                    use_bytes(user, j, &seen[user->operands[j] - c->instructions]));
        }
    }
    free(seen);
    return NULL;
}

/* What a fusion costs depends on what it fuses alone, and many may fuse the same. */
pjrt_status *hlo_cost_as_fusion(hlo_computation *c)
{
    PJRT_TRY(read_parameters(c));
    for (size_t i = 0; i < c->parameter_count; i++)
        add(&c->fused_bytes, c->parameter_reads[i]);
    for (size_t i = 0; i < c->instruction_count; i++)
        if (c->instructions[i].op == HLO_CONSTANT && c->instructions[i].size.elements > 1)
            add(&c->fused_bytes, whole(&c->instructions[i]));
    if (c->root->op != HLO_TUPLE)
        add(&c->fused_bytes, written(c->root));
    for (size_t i = 0; c->root->op == HLO_TUPLE && i < c->root->operand_count; i++)
        add(&c->fused_bytes, written(c->root->operands[i]));
    return NULL;
}
