/*
 * Bytes an instruction reads and writes, by the rules of XLA's cost analysis: operands and result,
 * a fusion being one instruction, except that slices touch only the slice.
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

/* One output of a fusion. An update in place writes the update, not the array. */
static double written(const hlo_instruction *output)
{
    if (output->op == HLO_DYNAMIC_UPDATE_SLICE)
        return output->operands[1]->size.bytes;
    return output->size.bytes;
}

static double fusion_bytes(const hlo_instruction *in)
{
    const hlo_computation *c = in->called[0];
    double bytes = 0;
    for (size_t i = 0; i < c->parameter_count; i++)
        bytes += c->parameter_reads[i];
    for (size_t i = 0; i < c->instruction_count; i++)
        if (c->instructions[i].op == HLO_CONSTANT && c->instructions[i].size.elements > 1)
            bytes += c->instructions[i].size.bytes;
    if (c->root->op != HLO_TUPLE)
        return bytes + written(c->root);
    for (size_t i = 0; i < c->root->operand_count; i++)
        bytes += written(c->root->operands[i]);
    return bytes;
}

static double scatter_bytes(const hlo_instruction *in)
{
    /* n arrays, the indices, n updates. Each update is read, and its place read and written. */
    size_t n = (in->operand_count - 1) / 2;
    double bytes = in->operands[n]->size.bytes;
    for (size_t i = n + 1; i < in->operand_count; i++)
        bytes += 3 * in->operands[i]->size.bytes;
    return bytes;
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
        return fusion_bytes(in);
    case HLO_SLICE:
        return 2 * in->size.bytes;
    case HLO_DYNAMIC_SLICE:
    case HLO_GATHER:
        return 2 * in->size.bytes + in->operands[1]->size.bytes;
    case HLO_DYNAMIC_UPDATE_SLICE:
        return 2 * in->operands[1]->size.bytes +
               (in->operand_count > 2 ? in->operands[2]->size.bytes : 0);
    case HLO_SCATTER:
        return scatter_bytes(in);
    case HLO_CUSTOM_CALL:
        /* The TPU compiler's way of naming a piece of memory: nothing is touched. */
        if (strcmp(in->proto->custom_call_target, "AllocateBuffer") == 0)
            return 0;
        break;
    default:
        break;
    }
    return operand_bytes(in) + in->size.bytes;
}

/* The parameter that an operand inside a fusion is, or is an element of; NULL for none. */
static const hlo_instruction *read_parameter(const hlo_instruction *operand)
{
    if (operand->op == HLO_GET_TUPLE_ELEMENT)
        operand = operand->operands[0];
    return operand->op == HLO_PARAMETER ? operand : NULL;
}

/* What one use of a parameter reads of it: the whole array counts once for all the uses that read
 * it whole, and `seen` remembers that. */
static double use_bytes(const hlo_instruction *user, size_t position, bool *seen)
{
    const hlo_instruction *operand = user->operands[position];
    switch (user->op) {
    case HLO_GET_TUPLE_ELEMENT:
        return 0; /* its users read, it does not */
    case HLO_FUSION:
        return user->called[0]->parameter_reads[position];
    case HLO_SLICE:
        return user->size.bytes;
    case HLO_DYNAMIC_SLICE:
        if (position == 0)
            return user->size.bytes;
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

pjrt_status *hlo_read_parameters(hlo_computation *c)
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
