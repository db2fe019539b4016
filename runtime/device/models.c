/* Parameters between files, seeds and devices. */
#include "model/files/ttt_model_files.h"
#include "runtime/device/internal.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char call[] = "runtime";

/* f32 to doubles in the same memory, which has room for them: from the last on. */
static void widen(void *values, size_t count)
{
    for (size_t i = count; i-- > 0;) {
        float value;
        memcpy(&value, (char *)values + i * sizeof value, sizeof value);
        double wide = value;
        memcpy((char *)values + i * sizeof wide, &wide, sizeof wide);
    }
}

static size_t elements_of(const ttt_param *param)
{
    return (size_t)hlo_shape_elements(&param->shape);
}

static hlo_shape typed(const ttt_param *param, hlo_type type)
{
    hlo_shape shape = param->shape;
    if (!param->packed && !param->scales)
        shape.type = type;
    return shape;
}

/* ---- making models -----------------------------------------------------------------------------
 */

/* `products`: as ttt_params_packed takes it; none: nothing is packed. */
static pjrt_status *new_model(const ttt_devices *devices, const ttt_config *config,
                              ttt_layout layout, hlo_type type, hlo_type products, ttt_model **out)
{
    ttt_error error;
    ttt_model *model = calloc(1, sizeof *model);
    *out = model;
    if (model == NULL)
        return PJRT_NO_MEMORY(call);
    model->devices = devices;
    model->config = *config;
    if (type != HLO_F32 && type != HLO_F64)
        return PJRT_FAIL(INVALID_ARGUMENT, call, "parameters are f32 or f64, not %s",
                         hlo_type_name(type));
    model->params = products == HLO_TYPE_NONE ? ttt_params_new(config, layout, &error)
                                              : ttt_params_packed(config, products, &error);
    if (model->params == NULL)
        return ttt_failed(&error);
    model->weights = calloc((size_t)model->params->count, sizeof(ttt_array *));
    if (model->weights == NULL)
        return PJRT_NO_MEMORY(call);
    return ttt_mesh_check(&devices->mesh, model->params);
}

void ttt_model_free(ttt_model *model)
{
    if (model == NULL)
        return;
    for (int i = 0; model->weights != NULL && i < model->params->count; i++)
        ttt_array_free(model->weights[i]);
    free(model->weights);
    ttt_params_free(model->params);
    free(model);
}

/* Hands the model out, or takes it away again. */
static pjrt_status *finish(pjrt_status *st, ttt_model *model, ttt_model **out)
{
    *out = st == NULL ? model : NULL;
    if (st != NULL)
        ttt_model_free(model);
    return st;
}

/* Rows of f32 as whole numbers from -127 to 127 in the same memory, and what they are multiplied by
 * to be what they were. */
static void quantise(float *values, int64_t rows, int64_t columns, float *scale)
{
    int8_t *out = (int8_t *)values;
    for (int64_t r = 0; r < rows; r++) {
        const float *row = values + r * columns;
        float most = 0;
        for (int64_t i = 0; i < columns; i++)
            most = fabsf(row[i]) > most ? fabsf(row[i]) : most;
        scale[r] = most / 127;
        for (int64_t i = 0; i < columns; i++) /* never ahead of what is still to be read */
            out[r * columns + i] = most == 0 ? 0 : (int8_t)lrintf(row[i] / most * 127);
    }
}

/* As the device is to have it, in the same memory. */
static void pack(const ttt_param *p, float *values, float *scale)
{
    if (p->shape.type == HLO_S8)
        quantise(values, p->shape.dims[0], p->shape.dims[1], scale);
    else if (p->shape.type == HLO_BF16)
        ttt_from_f32(HLO_BF16, values, elements_of(p), values);
}

typedef struct reading {
    const ttt_params *params;
    int index;
    const ttt_tensors *tensors;
    hlo_type type;
} reading;

static pjrt_status *read_block(void *ctx, const ttt_block *block, void *out)
{
    const reading *r = ctx;
    ttt_error error;
    if (!ttt_params_load_block(r->params, r->index, r->tensors, block->start, block->limit, out,
                               &error))
        return ttt_failed(&error);
    if (r->type == HLO_F64)
        widen(out, (size_t)ttt__block_elements(block, r->params->list[r->index].shape.rank));
    return NULL;
}

/* Only the blocks of this process are read. */
static pjrt_status *load_one(ttt_model *model, int index, const ttt_tensors *tensors, hlo_type type)
{
    const ttt_param *p = &model->params->list[index];
    return ttt_array_make(model->devices, typed(p, type), p->spec, read_block,
                          &(reading){model->params, index, tensors, type}, &model->weights[index]);
}

/* What is packed is read whole: it is for one device. */
static pjrt_status *load_packed(ttt_model *model, int index, const ttt_tensors *tensors)
{
    const ttt_param *p = &model->params->list[index];
    bool scaled = p->packed && p->shape.type == HLO_S8;
    ttt_error error;
    pjrt_status *st = NULL;
    float *values = malloc(elements_of(p) * sizeof *values);
    float *scale = scaled ? malloc((size_t)p->shape.dims[0] * sizeof *scale) : NULL;
    if (values == NULL || (scaled && scale == NULL))
        st = PJRT_NO_MEMORY(call);
    else if (!ttt_params_load(model->params, index, tensors, values, &error))
        st = ttt_failed(&error);
    if (st == NULL) {
        pack(p, values, scale);
        st = ttt_array_upload(model->devices, p->shape, p->spec, values, &model->weights[index]);
    }
    if (st == NULL && scaled) /* the factors are the next parameter */
        st = ttt_array_upload(model->devices, p[1].shape, p[1].spec, scale,
                              &model->weights[index + 1]);
    free(scale);
    free(values);
    return st;
}

static pjrt_status *load_weights(ttt_model *model, const ttt_tensors *tensors, hlo_type type)
{
    ttt_error error;
    if (!ttt_params_match(model->params, tensors, &error))
        return ttt_failed(&error);
    for (int i = 0; i < model->params->count; i++) {
        const ttt_param *p = &model->params->list[i];
        if (!p->scales)
            PJRT_TRY(p->packed ? load_packed(model, i, tensors)
                               : load_one(model, i, tensors, type));
    }
    return NULL;
}

static pjrt_status *load(const ttt_devices *devices, const char *folder, ttt_layout layout,
                         hlo_type type, hlo_type products, ttt_model **out)
{
    char path[PATH_MAX];
    ttt_config config;
    ttt_error error;
    ttt_model *model;
    *out = NULL;
    if (snprintf(path, sizeof path, "%s/config.json", folder) >= (int)sizeof path)
        return PJRT_FAIL(INVALID_ARGUMENT, call, "the name of the folder is too long");
    if (!ttt_config_read(&config, path, &error))
        return ttt_failed(&error);
    ttt_tensors *tensors = ttt_tensors_open(folder, &error);
    if (tensors == NULL)
        return ttt_failed(&error);
    pjrt_status *st = new_model(devices, &config, layout, type, products, &model);
    if (st == NULL)
        st = load_weights(model, tensors, type);
    ttt_tensors_free(tensors);
    return finish(st, model, out);
}

pjrt_status *ttt_model_load(const ttt_devices *devices, const char *folder, ttt_layout layout,
                            hlo_type type, ttt_model **out)
{
    return load(devices, folder, layout, type, HLO_TYPE_NONE, out);
}

pjrt_status *ttt_model_load_packed(const ttt_devices *devices, const char *folder,
                                   hlo_type products, ttt_model **out)
{
    return load(devices, folder, TTT_SEPARATE, HLO_F32, products, out);
}

typedef struct start {
    const ttt_param *param;
    hlo_type type;
    uint64_t seed;
} start;

static pjrt_status *start_block(void *ctx, const ttt_block *block, void *out)
{
    const start *s = ctx;
    ttt_init_block(s->param, s->seed, block->start, block->limit, out);
    if (s->type == HLO_F64)
        widen(out, (size_t)ttt__block_elements(block, s->param->shape.rank));
    return NULL;
}

pjrt_status *ttt_model_start(const ttt_devices *devices, const ttt_config *config,
                             ttt_layout layout, hlo_type type, uint64_t seed, ttt_model **out)
{
    ttt_model *model;
    pjrt_status *st = new_model(devices, config, layout, type, HLO_TYPE_NONE, &model);
    for (int i = 0; st == NULL && i < model->params->count; i++) {
        const ttt_param *p = &model->params->list[i];
        start s = {p, type, seed};
        st = ttt_array_make(devices, typed(p, type), p->spec, start_block, &s, &model->weights[i]);
    }
    return finish(st, model, out);
}

pjrt_status *ttt_model_run(const ttt_model *model, const ttt_program *program,
                           ttt_array *const *inputs, int n_inputs, ttt_array **results)
{
    int count = model->params->count;
    ttt_array **args = calloc((size_t)(count + n_inputs), sizeof(ttt_array *));
    if (args == NULL) {
        memset(results, 0, (size_t)program->n_results * sizeof(ttt_array *));
        return PJRT_NO_MEMORY(call);
    }
    memcpy(args, model->weights, (size_t)count * sizeof(ttt_array *));
    for (int i = 0; i < n_inputs; i++)
        args[count + i] = inputs[i];
    pjrt_status *st = ttt_program_run(program, args, count + n_inputs, results);
    free(args);
    return st;
}

/* ---- saving ------------------------------------------------------------------------------------
 */

typedef struct saving {
    const ttt_params *params;
    ttt_array *const *arrays;
    double squares;
    pjrt_status *failed; /* why the download failed, when it did */
} saving;

/* The downloaded array goes through a room of its own when it is wider than f32. */
static pjrt_status *download(const ttt_array *array, size_t count, float *out)
{
    if (array->shape.type != HLO_F64)
        return ttt_array_download(array, out, count * sizeof *out);
    double *wide = malloc(count * sizeof *wide);
    if (wide == NULL)
        return PJRT_NO_MEMORY(call);
    pjrt_status *st = ttt_array_download(array, wide, count * sizeof *wide);
    for (size_t i = 0; i < count && st == NULL; i++)
        out[i] = (float)wide[i];
    free(wide);
    return st;
}

static bool save_one(void *ctx, int index, float *out, ttt_error *error)
{
    saving *s = ctx;
    size_t count = elements_of(&s->params->list[index]);
    s->failed = download(s->arrays[index], count, out);
    if (s->failed != NULL) {
        snprintf(error->message, sizeof error->message, "%s", pjrt_status_text(s->failed));
        return false;
    }
    for (size_t i = 0; i < count; i++)
        s->squares += (double)out[i] * out[i];
    return true;
}

pjrt_status *ttt_arrays_save(const ttt_params *params, ttt_array *const *arrays, const char *path,
                             hlo_type type, double *norm)
{
    ttt_error error;
    saving s = {.params = params, .arrays = arrays};
    bool ok = ttt_params_save(params, path, type, save_one, &s, &error);
    if (norm != NULL)
        *norm = sqrt(s.squares);
    if (s.failed != NULL)
        return s.failed;
    return ok ? NULL : ttt_failed(&error);
}
