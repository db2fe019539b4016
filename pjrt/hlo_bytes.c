/*
 * Bytes an instruction reads and writes, by the rules of XLA's cost analysis: operands and result,
 * a fusion being one instruction, except that slices touch only the slice.
 *
 * It departs from XLA in three places, on purpose. An asynchronous copy counts once, not at both of
 * its ends. Gathers and scatters touch only what they name inside fusions too. Tuples, which are
 * lists of addresses, cost nothing, nor does what a fusion only hands through.
 */
#include "pjrt/hlo_internal.h"

#include <stdlib.h>
#include <string.h>

static double operand_bytes(const hlo_instruction *in)
{
    double bytes = 0;
    for (size_t i = 0; i < in->operand_count; i++)
        bytes += in->operands[i]->size.bytes;
    return bytes;
}

/* All updates of a scatter: n arrays, the indices, n updates. */
static double update_bytes(const hlo_instruction *scatter)
{
    double bytes = 0;
    for (size_t i = (scatter->operand_count - 1) / 2 + 1; i < scatter->operand_count; i++)
        bytes += scatter->operands[i]->size.bytes;
    return bytes;
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
static double written(const hlo_instruction *output)
{
    if (hlo_is_echo(output) || read_parameter(output) != NULL)
        return 0;
    if (output->op == HLO_DYNAMIC_UPDATE_SLICE)
        return output->operands[1]->size.bytes;
    if (output->op == HLO_SCATTER)
        return update_bytes(output);
    return output->size.bytes;
}

/* The TPU compiler's ways of naming a piece of memory: nothing is touched. */
static bool names_memory(const hlo_instruction *in)
{
    const char *target = in->proto->custom_call_target;
    return strcmp(target, "AllocateBuffer") == 0 || strcmp(target, "ConcatBitcast") == 0;
}

double hlo_bytes(const hlo_instruction *in)
{
    switch (in->class) {
    case HLO_CLASS_FREE:
    case HLO_CLASS_CONTROL:
        return 0;
    case HLO_CLASS_START:
        return operand_bytes(in);
    case HLO_CLASS_DONE:
        return in->size.bytes;
    default:
        break;
    }
    switch (in->op) {
    case HLO_FUSION:
        return in->called[0]->fused_bytes;
    case HLO_SLICE:
        return 2 * in->size.bytes;
    case HLO_DYNAMIC_SLICE:
    case HLO_GATHER:
        return 2 * in->size.bytes + in->operands[1]->size.bytes;
    case HLO_DYNAMIC_UPDATE_SLICE:
        return 2 * in->operands[1]->size.bytes +
               (in->operand_count > 2 ? in->operands[2]->size.bytes : 0);
    case HLO_SCATTER:
        /* Each update is read, and its place read and written. */
        return 3 * update_bytes(in) + in->operands[(in->operand_count - 1) / 2]->size.bytes;
    case HLO_CUSTOM_CALL:
        if (names_memory(in))
            return 0;
        break;
    default:
        break;
    }
    return operand_bytes(in) + in->size.bytes;
}

/* What one use of a parameter reads of it: the whole array counts once for all the uses that read
 * it whole, and `seen` remembers that. */
static double use_bytes(const hlo_instruction *user, size_t position, bool *seen)
{
    const hlo_instruction *operand = user->operands[position];
    if (hlo_is_echo(user))
        return 0;
    switch (user->op) {
    case HLO_GET_TUPLE_ELEMENT:
    case HLO_TUPLE:
        return 0; /* their users read, they do not */
    case HLO_FUSION:
        return user->called[0]->parameter_reads[position];
    case HLO_SLICE:
        return user->size.bytes;
    case HLO_DYNAMIC_SLICE:
    case HLO_GATHER:
        if (position == 0)
            return user->size.bytes;
        break;
    case HLO_SCATTER:
        if (position < (user->operand_count - 1) / 2)
            return user->operands[position + (user->operand_count - 1) / 2 + 1]->size.bytes;
        break;
    case HLO_DYNAMIC_UPDATE_SLICE:
        if (position == 0)
            return 0;
        break;
    case HLO_BROADCAST:
    case HLO_RESHAPE:
        return operand->size.bytes;
    default:
        break;
    }
    if (*seen)
        return 0;
    *seen = true;
    return operand->size.bytes;
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
                c->parameter_reads[from->proto->parameter_number] +=
                    use_bytes(user, j, &seen[user->operands[j] - c->instructions]);
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
        c->fused_bytes += c->parameter_reads[i];
    for (size_t i = 0; i < c->instruction_count; i++)
        if (c->instructions[i].op == HLO_CONSTANT && c->instructions[i].size.elements > 1)
            c->fused_bytes += c->instructions[i].size.bytes;
    if (c->root->op != HLO_TUPLE)
        c->fused_bytes += written(c->root);
    for (size_t i = 0; c->root->op == HLO_TUPLE && i < c->root->operand_count; i++)
        c->fused_bytes += written(c->root->operands[i]);
    return NULL;
}
