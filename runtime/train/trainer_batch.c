/* What a step takes beside the state: the rows of this process, and limits. */
#include "runtime/device/internal.h"
#include "runtime/train/trainer_internal.h"

#include <stdlib.h>
#include <string.h>

static const char call[] = "train";

/* The batch as the program takes it: parts one after another, the rows of each split. */
static ttt_sharded batch_array(const ttt_trainer *t, hlo_type type)
{
    int64_t parts = t->options.accumulation;
    return (ttt_sharded){HLO_SHAPE(type, parts, t->plan.batch / parts, t->plan.time),
                         HLO_SPEC(NULL, "data+fsdp", "time")};
}

/* ---- which rows --------------------------------------------------------------------------------
 */

/* Marks those that a device of this process has. */
static pjrt_status *mark_rows(ttt_trainer *t)
{
    ttt_sharded ids = batch_array(t, HLO_S32);
    for (int64_t i = 0; i < t->plan.batch; i++)
        t->row_at[i] = -1;
    for (int d = t->devices->first; d < t->devices->first + t->devices->n_mine; d++) {
        ttt_block block;
        PJRT_TRY(ttt_mesh_block(&t->devices->mesh, &ids.shape, &ids.spec, d, &block));
        for (int64_t p = block.start[0]; p < block.limit[0]; p++) {
            for (int64_t r = block.start[1]; r < block.limit[1]; r++)
                t->row_at[p * ids.shape.dims[1] + r] = 0;
        }
    }
    return NULL;
}

pjrt_status *ttt__trainer_load(ttt_trainer *t)
{
    const ttt_trainer_options *o = &t->options;
    int64_t *which = calloc((size_t)t->plan.batch, sizeof *which), rows = 0;
    t->row_at = calloc((size_t)t->plan.batch, sizeof *t->row_at);
    pjrt_status *st = which == NULL || t->row_at == NULL ? PJRT_NO_MEMORY(call) : mark_rows(t);
    for (int64_t i = 0; st == NULL && i < t->plan.batch; i++) {
        if (t->row_at[i] < 0)
            continue;
        t->row_at[i] = rows;
        which[rows++] = i;
    }
    ttt_loader_options options = {.time = t->plan.time,
                                  .batch = t->plan.batch,
                                  .rows = rows,
                                  .which = which,
                                  .seed = (uint64_t)o->recipe.seed,
                                  .resets = o->resets};
    if (st == NULL)
        st = ttt_loader_new(t->train, &options, t->position, &t->loader);
    free(which);
    return st;
}

/* ---- on their way to the devices ---------------------------------------------------------------
 */

/* The rows that were loaded, of an element's size. */
typedef struct loaded {
    const ttt_trainer *t;
    const void *data;
    size_t element;
} loaded;

static pjrt_status *copy_rows(void *ctx, const ttt_block *block, void *out)
{
    const loaded *l = ctx;
    const ttt_trainer *t = l->t;
    int64_t each = t->plan.batch / t->options.accumulation;
    size_t row = (size_t)t->plan.time * l->element, skip = (size_t)block->start[2] * l->element;
    size_t size = (size_t)(block->limit[2] - block->start[2]) * l->element; /* of its times */
    char *to = out;
    for (int64_t p = block->start[0]; p < block->limit[0]; p++) {
        for (int64_t r = block->start[1]; r < block->limit[1]; r++, to += size)
            memcpy(to, (const char *)l->data + (size_t)t->row_at[p * each + r] * row + skip, size);
    }
    return NULL;
}

static pjrt_status *put_rows(ttt_trainer *t, int devices, hlo_type type, const void *data,
                             ttt__step_inputs *out)
{
    ttt_sharded array = batch_array(t, type);
    loaded from = {t, data, (size_t)hlo_type_bits(type) / 8};
    if (devices < 0)
        return NULL;
    PJRT_TRY(ttt_array_make(t->devices, array.shape, array.spec, copy_rows, &from,
                            &out->list[out->count]));
    out->places[out->count++] = devices;
    return NULL;
}

/* Steps up to the one before the last: the last one's result is not known yet. */
static pjrt_status *put_limits(ttt_trainer *t, ttt__step_inputs *out)
{
    float limits[TTT__FIGURES];
    ttt__loss_history_limits(&t->history, t->step - 1, t->options.spike, limits);
    if (t->at.limits < 0)
        return NULL;
    PJRT_TRY(ttt_array_upload(t->devices, HLO_SHAPE(HLO_F32, TTT__FIGURES), HLO_SPEC(NULL), limits,
                              &out->list[out->count]));
    out->places[out->count++] = t->at.limits;
    return NULL;
}

pjrt_status *ttt__trainer_inputs(ttt_trainer *t, ttt__step_inputs *out)
{
    ttt_batch batch;
    *out = (ttt__step_inputs){0};
    PJRT_TRY(ttt_loader_next(t->loader, &batch));
    PJRT_TRY(put_rows(t, t->at.tokens, HLO_S32, batch.tokens, out));
    PJRT_TRY(put_rows(t, t->at.labels, HLO_S32, batch.labels, out));
    PJRT_TRY(put_rows(t, t->at.resets, HLO_PRED, batch.resets, out));
    return put_limits(t, out);
}

void ttt__step_inputs_free(ttt__step_inputs *inputs)
{
    for (int i = 0; i < inputs->count; i++)
        ttt_array_free(inputs->list[i]);
    *inputs = (ttt__step_inputs){0};
}
