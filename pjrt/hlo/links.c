/*
 * Collectives: what goes between devices, whether the program waits for it, and how many bytes pass
 * over a device's links.
 */
#include "pjrt/hlo/internal.h"

#include <string.h>

/* The TPU compiler writes a reduce-scatter as a fusion of an all-reduce and the slice that stays.
 */
static bool is_reduce_scatter(const hlo_instruction *all_reduce)
{
    const hlo_computation *c = all_reduce->home;
    return c->fused_runs > 0 && c->root->op == HLO_DYNAMIC_SLICE &&
           c->root->operands[0] == all_reduce;
}

const char *hlo_collective_kind(const hlo_instruction *in)
{
    if (hlo_is_echo(in))
        return NULL;
    switch (in->op) {
    case HLO_ALL_GATHER:
    case HLO_ALL_GATHER_START:
        return "all-gather";
    case HLO_ALL_REDUCE:
        return is_reduce_scatter(in) ? "reduce-scatter" : "all-reduce";
    case HLO_ALL_REDUCE_START:
        return "all-reduce";
    case HLO_COLLECTIVE_PERMUTE:
    case HLO_COLLECTIVE_PERMUTE_START:
        return "collective-permute";
    case HLO_ALL_TO_ALL:
    case HLO_COLLECTIVE_BROADCAST:
    case HLO_RAGGED_ALL_TO_ALL:
    case HLO_REDUCE_SCATTER:
        return in->proto->opcode;
    default:
        return NULL;
    }
}

static pjrt_status *collective_bytes(const hlo_instruction *in, double *out)
{
    hlo_size result = in->size;
    double operands = 0;
    for (size_t i = 0; i < in->operand_count; i++)
        operands += in->operands[i]->size.data_bytes;
    /* These two return (operands, results, …). */
    if (in->op == HLO_ALL_GATHER_START || in->op == HLO_COLLECTIVE_PERMUTE_START)
        PJRT_TRY(hlo_shape_measure(in->proto->shape, 1, &result));
    *out = result.data_bytes > operands ? result.data_bytes : operands;
    return NULL;
}

static int64_t mesh_group_size(const TttXla__MeshAxesReplicaGroupListProto *list)
{
    int64_t size = 1;
    for (size_t i = 0; i < list->n_axes; i++) {
        const TttXla__AxisRefProto *axis = list->axes[i];
        int64_t side = 0;
        if (axis->sub_axis_info != NULL)
            side = axis->sub_axis_info->size;
        else if (list->mesh != NULL && axis->mesh_axis_index >= 0 &&
                 (uint64_t)axis->mesh_axis_index < list->mesh->n_axes)
            side = list->mesh->axes[axis->mesh_axis_index]->size;
        if (side < 0 || __builtin_mul_overflow(size, side, &size))
            return 0;
    }
    return size;
}

/* XLA has had four ways to write it; a program uses one. */
static int64_t group_size(const TttXla__HloInstructionProto *proto)
{
    const TttXla__CollectiveDeviceListProto *list = proto->collective_device_list;
    const TttXla__IotaReplicaGroupListProto *iota = proto->iota_collective_device_list;
    if (iota == NULL && list != NULL)
        iota = list->iota_replica_group_list;
    if (iota != NULL)
        return iota->num_devices_per_group;
    if (proto->mesh_axes_replica_group_list != NULL)
        return mesh_group_size(proto->mesh_axes_replica_group_list);
    if (list != NULL && list->n_replica_groups > 0)
        return (int64_t)list->replica_groups[0]->n_replica_ids;
    if (proto->n_replica_groups > 0)
        return (int64_t)proto->replica_groups[0]->n_replica_ids;
    return 0;
}

/* The CUDA compiler writes pairs even where it does not use them as such, and says so. */
static bool is_waited_for(const hlo_instruction *in)
{
    hlo_json value;
    return hlo_json_find(hlo_backend_config(in), "is_sync", &value) && value.end - value.at >= 4 &&
           memcmp(value.at, "true", 4) == 0;
}

/* It starts at one instruction and ends at another: by an opcode of its own, as what an async-start
 * runs, or spread over fusions. */
static bool is_asynchronous(const hlo_instruction *in)
{
    const hlo_instruction *caller = in->home->caller;
    if (in->class == HLO_CLASS_START)
        return !is_waited_for(in);
    if (caller != NULL && caller->op == HLO_ASYNC_START)
        return !is_waited_for(caller);
    return in->home->starts_transfer;
}

pjrt_status *hlo_collective(const hlo_instruction *in, pjrt_hlo_collective *out)
{
    *out = (pjrt_hlo_collective){
        .kind = hlo_collective_kind(in),
        .group_size = group_size(in->proto),
        .asynchronous = is_asynchronous(in),
        .count = 1,
    };
    return collective_bytes(in, &out->bytes);
}

double pjrt_hlo_link_bytes(const pjrt_hlo_collective *c)
{
    double n = (double)c->group_size;
    double others = n > 1 ? (n - 1) / n : n == 1 ? 0 : 1;
    if (strcmp(c->kind, "all-reduce") == 0)
        return 2 * c->bytes * others; /* a reduce-scatter and an all-gather */
    if (strcmp(c->kind, "collective-permute") == 0 || strcmp(c->kind, "collective-broadcast") == 0)
        return c->bytes;
    return c->bytes * others;
}
