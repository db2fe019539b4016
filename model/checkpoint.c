/* Parameters to and from files of tensors: layouts, names of both worlds, and the writer. */
#include "model/jax.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the writer --------------------------------------------------------------------------------
 */

struct ttt_writer {
    ttt__new_file file;
    size_t left; /* bytes of data still to come */
};

/* [numbers]; NULL when out of memory. */
static json_t *list_of(const int64_t *numbers, int count)
{
    json_t *list = json_array();
    for (int i = 0; list != NULL && i < count; i++) {
        if (json_array_append_new(list, json_integer(numbers[i])) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static json_t *entry_of(const hlo_shape *shape, size_t start, size_t end)
{
    json_t *entry = json_object();
    int64_t offsets[2] = {(int64_t)start, (int64_t)end};
    const char *type = shape->type == HLO_BF16 ? "BF16" : "F32";
    if (json_object_set_new(entry, "dtype", json_string(type)) == 0 &&
        json_object_set_new(entry, "shape", list_of(shape->dims, shape->rank)) == 0 &&
        json_object_set_new(entry, "data_offsets", list_of(offsets, 2)) == 0)
        return entry;
    json_decref(entry);
    return NULL;
}

/* The header's text; NULL on error. */
static char *header_of(const ttt_tensor *list, int count, size_t *total, ttt_error *error)
{
    json_t *root = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    bool ok = root != NULL ? true : ttt__no_memory(error);
    *total = 0;
    for (int i = 0; ok && i < count; i++) {
        size_t bytes, end;
        hlo_type type = list[i].shape.type;
        if (type != HLO_F32 && type != HLO_BF16)
            ok = ttt__fail(error, "\"%.100s\": only F32 and BF16 are written", list[i].name);
        else if (json_object_get(root, list[i].name) != NULL)
            ok = ttt__fail(error, "\"%.100s\" comes twice", list[i].name);
        else if (!ttt__shape_bytes(&list[i].shape, &bytes) ||
                 __builtin_add_overflow(*total, bytes, &end))
            ok = ttt__fail(error, "\"%.100s\" is too large", list[i].name);
        else if (json_object_set_new(root, list[i].name, entry_of(&list[i].shape, *total, end)) !=
                 0)
            ok = ttt__fail(error, "\"%.100s\": not a name, or out of memory", list[i].name);
        else
            *total = end;
    }
    char *text = ok ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    if (ok && text == NULL)
        ttt__no_memory(error);
    return text;
}

/* Length, header, and spaces up to a multiple of eight, so that the data is aligned. */
static bool put_header(ttt_writer *writer, const char *text, ttt_error *error)
{
    size_t length = strlen(text), padded = (length + 7) / 8 * 8;
    unsigned char head[8];
    for (int i = 0; i < 8; i++)
        head[i] = (unsigned char)(padded >> 8 * i);
    return ttt__file_write(&writer->file, head, sizeof head, error) &&
           ttt__file_write(&writer->file, text, length, error) &&
           ttt__file_write(&writer->file, "        ", padded - length, error);
}

ttt_writer *ttt_writer_open(const char *path, const ttt_tensor *list, int count, ttt_error *error)
{
    ttt_writer *writer = calloc(1, sizeof *writer);
    if (writer == NULL) {
        ttt__no_memory(error);
        return NULL;
    }
    char *text = header_of(list, count, &writer->left, error);
    if (text != NULL && ttt__file_create(&writer->file, path, error)) {
        bool ok = put_header(writer, text, error);
        free(text);
        if (ok)
            return writer;
        ttt_writer_finish(writer, false, NULL);
        return NULL;
    }
    free(text);
    free(writer);
    return NULL;
}

bool ttt_writer_put(ttt_writer *writer, const void *bytes, size_t size, ttt_error *error)
{
    if (size > writer->left)
        return ttt__fail(error, "%s: more data than the tensors have", writer->file.path);
    if (!ttt__file_write(&writer->file, bytes, size, error))
        return false;
    writer->left -= size;
    return true;
}

bool ttt_writer_finish(ttt_writer *writer, bool keep, ttt_error *error)
{
    if (keep && writer->left > 0)
        keep =
            ttt__fail(error, "%s: %zu bytes of data are missing", writer->file.path, writer->left);
    bool ok = ttt__file_close(&writer->file, keep, error);
    free(writer);
    return ok;
}

/* ---- layouts -----------------------------------------------------------------------------------
 */

/* [rows, columns] to [columns, rows], in tiles that stay in the cache. */
static void transpose(const float *in, int64_t rows, int64_t columns, float *out)
{
    enum { TILE = 32 };
    for (int64_t r0 = 0; r0 < rows; r0 += TILE) {
        for (int64_t c0 = 0; c0 < columns; c0 += TILE) {
            int64_t r1 = r0 + TILE < rows ? r0 + TILE : rows;
            int64_t c1 = c0 + TILE < columns ? c0 + TILE : columns;
            for (int64_t c = c0; c < c1; c++) {
                for (int64_t r = r0; r < r1; r++)
                    out[c * rows + r] = in[r * columns + c];
            }
        }
    }
}

static hlo_shape stored_shape(const ttt_param *param, hlo_type type)
{
    hlo_shape shape = param->shape;
    shape.type = type;
    if (param->transposed) {
        shape.dims[0] = param->shape.dims[1];
        shape.dims[1] = param->shape.dims[0];
    }
    return shape;
}

static int64_t layers_of(const ttt_param *param)
{
    return param->layers == 0 ? 1 : param->layers;
}

/* Elements of one layer's. */
static int64_t layer_elements(const ttt_param *param)
{
    return hlo_shape_elements(&param->shape) / layers_of(param);
}

void ttt_param_to_file(const ttt_param *param, const float *in, float *out)
{
    const int64_t *dims = param->shape.dims + (param->layers == 0 ? 0 : 1);
    int64_t each = layer_elements(param);
    for (int64_t layer = 0; layer < layers_of(param); layer++) {
        if (param->transposed)
            transpose(in + layer * each, dims[0], dims[1], out + layer * each);
        else
            memcpy(out + layer * each, in + layer * each, (size_t)each * sizeof *out);
    }
}

/* ---- reading parameters ------------------------------------------------------------------------
 */

/* What is in the file for a parameter. */
typedef struct source {
    const ttt_tensor *tensor;
    bool turn; /* [rows, columns] there, the other way round here */
    int64_t rows, columns;
} source;

static bool find_source(const ttt_param *param, const ttt_tensors *tensors, source *found,
                        ttt_error *error)
{
    char text[HLO_SHAPE_TEXT], wanted_text[HLO_SHAPE_TEXT], name[TTT__JAX_NAME];
    hlo_shape wanted = stored_shape(param, HLO_F32);
    *found = (source){.turn = param->transposed};
    found->rows = wanted.dims[0];
    found->columns = wanted.dims[1];
    const char *stored_name = param->name;
    if (tensors->jax) {
        ttt__jax_layout layout;
        if (!ttt__jax_layout_of(param, name, &layout))
            return ttt__fail(error, "the JAX repository has no \"%s\"", param->name);
        stored_name = name;
        wanted = layout.shape;
        found->turn = layout.turn;
        found->rows = layout.rows;
        found->columns = layout.columns;
    }
    found->tensor = ttt_tensors_find(tensors, stored_name);
    if (found->tensor == NULL)
        return ttt__fail(error, "tensor \"%s\" is missing", stored_name);
    hlo_shape shape = found->tensor->shape;
    shape.type = HLO_F32;
    if (!hlo_type_is_float(found->tensor->shape.type) || !hlo_shape_equal(&shape, &wanted))
        return ttt__fail(error, "tensor \"%s\" is %s and should be %s", stored_name,
                         hlo_shape_text(&found->tensor->shape, text),
                         hlo_shape_text(&wanted, wanted_text));
    return true;
}

/* Tensors that others write though they are computed or stored already. */
static bool superfluous(const ttt_params *params, const char *name)
{
    size_t length = strlen(name);
    static const char table[] = ".rotary_emb.inv_freq", index[] = ".token_idx";
    return (strcmp(name, "lm_head.weight") == 0 && ttt_params_find(params, name) < 0) ||
           (length > sizeof table && strcmp(name + length - sizeof table + 1, table) == 0) ||
           (length > sizeof index && strcmp(name + length - sizeof index + 1, index) == 0);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The tensors of a file that are a parameter's; `used` receives their names. */
static bool match_param(const ttt_param *param, const ttt_tensors *tensors, const char **used,
                        ttt_error *error)
{
    for (int64_t layer = 0; layer < layers_of(param); layer++) {
        char name[TTT__NAME];
        source found;
        ttt_param one = ttt__param_layer(param, layer, name);
        if (!find_source(&one, tensors, &found, error))
            return false;
        used[layer] = found.tensor->name;
    }
    return true;
}

static size_t count_tensors(const ttt_params *params)
{
    size_t count = 0;
    for (int i = 0; i < params->count; i++)
        count += (size_t)layers_of(&params->list[i]);
    return count;
}

bool ttt_params_match(const ttt_params *params, const ttt_tensors *tensors, ttt_error *error)
{
    size_t count = count_tensors(params), n = 0;
    const char **used = calloc(count, sizeof *used);
    bool ok = used != NULL ? true : ttt__no_memory(error);
    for (int i = 0; ok && i < params->count; i++) {
        ok = match_param(&params->list[i], tensors, used + n, error);
        n += (size_t)layers_of(&params->list[i]);
    }
    if (ok)
        qsort(used, count, sizeof *used, compare_names);
    for (int i = 0; ok && i < tensors->count; i++) {
        const char *name = tensors->list[i].name;
        if (bsearch(&name, used, count, sizeof *used, compare_names) == NULL &&
            !superfluous(params, name))
            ok = ttt__fail(error, "tensor \"%.100s\" belongs to no parameter", name);
    }
    free(used);
    return ok;
}

static bool load_one(const ttt_param *param, const ttt_tensors *tensors, float *out,
                     ttt_error *error)
{
    source found;
    if (!find_source(param, tensors, &found, error))
        return false;
    const ttt_tensor *tensor = found.tensor;
    size_t count = (size_t)hlo_shape_elements(&tensor->shape);
    if (!found.turn)
        return ttt_to_f32(tensor->shape.type, tensor->data, count, out);
    float *values = malloc(count > 0 ? count * sizeof *values : 1);
    if (values == NULL)
        return ttt__no_memory(error);
    bool ok = ttt_to_f32(tensor->shape.type, tensor->data, count, values);
    if (ok)
        transpose(values, found.rows, found.columns, out);
    free(values);
    return ok;
}

bool ttt_params_load(const ttt_params *params, int index, const ttt_tensors *tensors, float *out,
                     ttt_error *error)
{
    if (index < 0 || index >= params->count)
        return ttt__fail(error, "there is no parameter %d", index);
    const ttt_param *param = &params->list[index];
    for (int64_t layer = 0; layer < layers_of(param); layer++) {
        char name[TTT__NAME];
        ttt_param one = ttt__param_layer(param, layer, name);
        if (!load_one(&one, tensors, out + layer * layer_elements(param), error))
            return false;
    }
    return true;
}

/* ---- writing parameters ------------------------------------------------------------------------
 */

static bool put_param(ttt_writer *writer, const ttt_param *param, hlo_type type, float *values,
                      float *turned, ttt_error *error)
{
    size_t count = (size_t)hlo_shape_elements(&param->shape);
    ttt_param_to_file(param, values, turned);
    ttt_from_f32(type, turned, count, values);
    return ttt_writer_put(writer, values, count * (size_t)hlo_type_bits(type) / 8, error);
}

/* What the file has of a parameter, a tensor for each layer; their names go into `names`. */
static void list_tensors(const ttt_param *param, hlo_type type, ttt_tensor *list,
                         char (*names)[TTT__NAME])
{
    for (int64_t layer = 0; layer < layers_of(param); layer++) {
        ttt_param one = ttt__param_layer(param, layer, names[layer]);
        list[layer].name = one.name;
        list[layer].shape = stored_shape(&one, type);
    }
}

bool ttt_params_save(const ttt_params *params, const char *path, hlo_type type,
                     ttt_param_source get, void *ctx, ttt_error *error)
{
    size_t count = count_tensors(params), largest = 0, n = 0;
    ttt_tensor *list = calloc(count, sizeof *list);
    char(*names)[TTT__NAME] = calloc(count, sizeof *names);
    for (int i = 0; i < params->count && list != NULL && names != NULL; i++) {
        size_t elements = (size_t)hlo_shape_elements(&params->list[i].shape);
        list_tensors(&params->list[i], type, list + n, names + n);
        n += (size_t)layers_of(&params->list[i]);
        largest = elements > largest ? elements : largest;
    }
    float *values = malloc(largest * sizeof *values), *turned = malloc(largest * sizeof *turned);
    ttt_writer *writer = NULL;
    bool ok = list != NULL && names != NULL && values != NULL && turned != NULL
                  ? true
                  : ttt__no_memory(error);
    if (ok)
        ok = (writer = ttt_writer_open(path, list, (int)count, error)) != NULL;
    for (int i = 0; ok && i < params->count; i++)
        ok = get(ctx, i, values, error) &&
             put_param(writer, &params->list[i], type, values, turned, error);
    if (writer != NULL)
        ok = ttt_writer_finish(writer, ok, error) && ok;
    free(list);
    free(names);
    free(values);
    free(turned);
    return ok;
}
