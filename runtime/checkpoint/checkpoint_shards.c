/* A training state as pieces: every block once, each by one of the processes that have it. */
#include "runtime/device/internal.h"
#include "runtime/train/train_arrays.h"

#include <stdlib.h>

static const char call[] = "checkpoint";

static pjrt_status *add(ttt__checkpoint_shards *pieces, const ttt_devices *devs, const ttt_param *p,
                        int set, int param, int64_t *offsets)
{
    ttt__owned_block *shares;
    int count;
    PJRT_TRY(ttt__devices_shares(devs, &p->shape, &p->spec, param, &shares, &count));
    for (int i = 0; i < count; i++) {
        int64_t *offset = &offsets[shares[i].process];
        pieces->list[pieces->count] =
            (ttt__checkpoint_shard){set, param, shares[i].process, shares[i].block, *offset, NULL};
        pieces->devices[pieces->count++] = shares[i].device;
        *offset += ttt__block_elements(&shares[i].block, p->shape.rank);
    }
    free(shares);
    return NULL;
}

pjrt_status *ttt__checkpoint_shards_new(const ttt_devices *devs, const ttt_params *params,
                                        ttt__checkpoint_shards *out)
{
    size_t most = (size_t)(TTT__SETS * params->count) * (size_t)devs->n_devices;
    int64_t *offsets = calloc((size_t)(devs->n_devices / devs->n_mine), sizeof *offsets);
    *out = (ttt__checkpoint_shards){calloc(most, sizeof *out->list),
                                    calloc(most, sizeof *out->devices), 0};
    pjrt_status *st =
        offsets == NULL || out->list == NULL || out->devices == NULL ? PJRT_NO_MEMORY(call) : NULL;
    for (int i = 0; st == NULL && i < TTT__SETS * params->count; i++) {
        int param = i % params->count;
        st = add(out, devs, &params->list[param], i / params->count, param, offsets);
    }
    free(offsets);
    if (st != NULL)
        ttt__checkpoint_shards_free(out);
    return st;
}

void ttt__checkpoint_shards_free(ttt__checkpoint_shards *pieces)
{
    free(pieces->list);
    free(pieces->devices);
    *pieces = (ttt__checkpoint_shards){0};
}
