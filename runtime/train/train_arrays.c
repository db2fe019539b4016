/* Parameters, moments and the count of steps, on the devices of a place. */
#include "runtime/train/train_arrays.h"
#include "runtime/device/internal.h"

#include <stdlib.h>
#include <string.h>

static const char call[] = "train";

static pjrt_status *new_state(const ttt_devices *devices, const ttt_params *params,
                              ttt__train_arrays *out)
{
    *out = (ttt__train_arrays){devices, params, NULL, TTT__SETS * params->count + 1};
    out->arrays = calloc((size_t)out->n, sizeof(ttt_array *));
    if (out->arrays == NULL)
        return PJRT_NO_MEMORY(call);
    return ttt_mesh_check(&devices->mesh, params);
}

void ttt__train_arrays_free(ttt__train_arrays *state)
{
    for (int i = 0; state->arrays != NULL && i < state->n; i++)
        ttt_array_free(state->arrays[i]);
    free(state->arrays);
    *state = (ttt__train_arrays){0};
}

static pjrt_status *put_step(ttt__train_arrays *state, int64_t step)
{
    int32_t count = (int32_t)step;
    return ttt_array_upload(state->devices, HLO_SCALAR(HLO_S32), HLO_SPEC(NULL), &count,
                            &state->arrays[state->n - 1]);
}

typedef struct filling {
    const ttt_param *param;
    bool zero;
    uint64_t seed;
} filling;

static pjrt_status *fill(void *ctx, const ttt_block *block, void *out)
{
    const filling *f = ctx;
    int64_t count = ttt__block_elements(block, f->param->shape.rank);
    if (f->zero)
        memset(out, 0, (size_t)count * sizeof(float));
    else
        ttt_init_block(f->param, f->seed, block->start, block->limit, out);
    return NULL;
}

typedef struct reading {
    const ttt_params *params;
    int index;
    const ttt_tensors *tensors;
} reading;

static pjrt_status *read_block(void *ctx, const ttt_block *block, void *out)
{
    const reading *r = ctx;
    ttt_error error;
    return ttt_params_load_block(r->params, r->index, r->tensors, block->start, block->limit, out,
                                 &error)
               ? NULL
               : ttt_failed(&error);
}

/* Only the blocks of this process are read. */
static pjrt_status *load_one(ttt__train_arrays *state, int index, const ttt_tensors *tensors)
{
    int i = index % state->params->count;
    const ttt_param *p = &state->params->list[i];
    return ttt_array_make(state->devices, p->shape, p->spec, read_block,
                          &(reading){state->params, i, tensors}, &state->arrays[index]);
}

static pjrt_status *load_set(ttt__train_arrays *state, int set, const ttt_tensors *tensors)
{
    ttt_error error;
    if (!ttt_params_match(state->params, tensors, &error))
        return ttt_failed(&error);
    for (int i = 0; i < state->params->count; i++)
        PJRT_TRY(load_one(state, set * state->params->count + i, tensors));
    return NULL;
}

pjrt_status *ttt__train_arrays_start(const ttt_devices *devices, const ttt_params *params,
                                     uint64_t seed, const ttt_tensors *weights,
                                     ttt__train_arrays *out)
{
    pjrt_status *st = new_state(devices, params, out);
    if (st == NULL && weights != NULL)
        st = load_set(out, 0, weights);
    for (int i = 0; st == NULL && i < TTT__SETS * params->count; i++) {
        const ttt_param *p = &params->list[i % params->count];
        if (out->arrays[i] == NULL)
            st = ttt_array_make(devices, p->shape, p->spec, fill,
                                &(filling){p, i >= params->count, seed}, &out->arrays[i]);
    }
    if (st == NULL)
        st = put_step(out, 0);
    if (st != NULL)
        ttt__train_arrays_free(out);
    return st;
}

pjrt_status *ttt__train_arrays_load(const ttt_devices *devices, const ttt_params *params,
                                    const ttt__checkpoint *checkpoint, ttt__train_arrays *out)
{
    pjrt_status *st = new_state(devices, params, out);
    for (int set = 0; st == NULL && set < TTT__SETS; set++)
        st = load_set(out, set, checkpoint->sets[set]);
    if (st == NULL)
        st = put_step(out, checkpoint->step);
    if (st != NULL)
        ttt__train_arrays_free(out);
    return st;
}
