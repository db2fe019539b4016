/* A training state as pieces: every block once, each by one of the processes that have it. */
#include "runtime/device/internal.h"
#include "runtime/train/train_arrays.h"

#include <stdlib.h>

static const char call[] = "checkpoint";

static pjrt_status *add(ttt__pieces *pieces, const ttt_place *place, const ttt_param *p, int set,
                        int param, int64_t *offsets)
{
    ttt__share *shares;
    int count;
    PJRT_TRY(ttt__place_shares(place, &p->shape, &p->spec, param, &shares, &count));
    for (int i = 0; i < count; i++) {
        int64_t *offset = &offsets[shares[i].process];
        pieces->list[pieces->count] =
            (ttt__piece){set, param, shares[i].process, shares[i].block, *offset, NULL};
        pieces->devices[pieces->count++] = shares[i].device;
        *offset += ttt__block_elements(&shares[i].block, p->shape.rank);
    }
    free(shares);
    return NULL;
}

pjrt_status *ttt__pieces_new(const ttt_place *place, const ttt_params *params, ttt__pieces *out)
{
    size_t most = (size_t)(TTT__SETS * params->count) * (size_t)place->n_devices;
    int64_t *offsets = calloc((size_t)(place->n_devices / place->n_mine), sizeof *offsets);
    *out = (ttt__pieces){calloc(most, sizeof *out->list), calloc(most, sizeof *out->devices), 0};
    pjrt_status *st =
        offsets == NULL || out->list == NULL || out->devices == NULL ? PJRT_NO_MEMORY(call) : NULL;
    for (int i = 0; st == NULL && i < TTT__SETS * params->count; i++) {
        int param = i % params->count;
        st = add(out, place, &params->list[param], i / params->count, param, offsets);
    }
    free(offsets);
    if (st != NULL)
        ttt__pieces_free(out);
    return st;
}

void ttt__pieces_free(ttt__pieces *pieces)
{
    free(pieces->list);
    free(pieces->devices);
    *pieces = (ttt__pieces){0};
}
