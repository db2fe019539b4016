/* Parameters to and from files of tensors: layouts, names of both worlds, and the writer. */
#include "model/files/jax_checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the writer ------------------------------------------------------------------------------ */

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

/* ---- layouts --------------------------------------------------------------------------------- */

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

/* ---- reading parameters ---------------------------------------------------------------------- */

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
        count += params->list[i].scales ? 0 : (size_t)layers_of(&params->list[i]);
    return count;
}

bool ttt_params_match(const ttt_params *params, const ttt_tensors *tensors, ttt_error *error)
{
    size_t count = count_tensors(params), n = 0;
    const char **used = calloc(count, sizeof *used);
    bool ok = used != NULL ? true : ttt__no_memory(error);
    for (int i = 0; ok && i < params->count; i++) {
        if (params->list[i].scales)
            continue;
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

/* The block [start, limit) of a tensor as f32, run by run along the last dimension. */
static bool cut(const ttt_tensor *tensor, const int64_t *start, const int64_t *limit, float *out)
{
    const hlo_shape *shape = &tensor->shape;
    size_t element = (size_t)hlo_type_bits(shape->type) / 8;
    int last = shape->rank - 1;
    int64_t runs = 1, run = limit[last] - start[last];
    for (int i = 0; i < last; i++)
        runs *= limit[i] - start[i];
    for (int64_t r = 0; r < runs; r++) {
        int64_t rest = r, at = start[last], stride = shape->dims[last];
        for (int i = last - 1; i >= 0; i--) {
            at += (start[i] + rest % (limit[i] - start[i])) * stride;
            rest /= limit[i] - start[i];
            stride *= shape->dims[i];
        }
        if (!ttt_to_f32(shape->type, (const char *)tensor->data + (size_t)at * element, (size_t)run,
                        out + r * run))
            return false;
    }
    return true;
}

/* A block of what one layer has; nothing else of the file is read. */
static bool load_block(const ttt_param *param, const ttt_tensors *tensors, const int64_t *start,
                       const int64_t *limit, float *out, ttt_error *error)
{
    source found;
    if (tensors->jax)
        return ttt__fail(error, "files of the JAX repository are read whole: convert them first");
    if (!find_source(param, tensors, &found, error))
        return false;
    if (!found.turn)
        return cut(found.tensor, start, limit, out);
    int64_t from[2] = {start[1], start[0]}, to[2] = {limit[1], limit[0]};
    int64_t rows = to[0] - from[0], columns = to[1] - from[1];
    float *values = malloc((size_t)(rows * columns) * sizeof *values + 1);
    if (values == NULL)
        return ttt__no_memory(error);
    bool ok = cut(found.tensor, from, to, values);
    if (ok)
        transpose(values, rows, columns, out);
    free(values);
    return ok;
}

static bool is_whole(const ttt_param *param, const int64_t *start, const int64_t *limit)
{
    for (int i = 0; i < param->shape.rank; i++) {
        if (start[i] != 0 || limit[i] != param->shape.dims[i])
            return false;
    }
    return true;
}

bool ttt_params_load_block(const ttt_params *params, int index, const ttt_tensors *tensors,
                           const int64_t *start, const int64_t *limit, float *out, ttt_error *error)
{
    if (index < 0 || index >= params->count)
        return ttt__fail(error, "there is no parameter %d", index);
    const ttt_param *param = &params->list[index];
    int stacked = param->layers == 0 ? 0 : 1;
    int64_t first = stacked ? start[0] : 0, last = stacked ? limit[0] : 1, each = 1;
    for (int i = stacked; i < param->shape.rank; i++)
        each *= limit[i] - start[i];
    for (int64_t layer = first; layer < last; layer++) {
        char name[TTT__NAME];
        ttt_param one = ttt__param_layer(param, layer, name);
        float *to = out + (layer - first) * each;
        bool ok = is_whole(&one, start + stacked, limit + stacked)
                      ? load_one(&one, tensors, to, error)
                      : load_block(&one, tensors, start + stacked, limit + stacked, to, error);
        if (!ok)
            return false;
    }
    return true;
}

bool ttt_params_load(const ttt_params *params, int index, const ttt_tensors *tensors, float *out,
                     ttt_error *error)
{
    static const int64_t start[HLO_MAX_RANK] = {0};
    if (index < 0 || index >= params->count)
        return ttt__fail(error, "there is no parameter %d", index);
    return ttt_params_load_block(params, index, tensors, start, params->list[index].shape.dims, out,
                                 error);
}

/* ---- writing parameters ---------------------------------------------------------------------- */

enum { MOST_SHARDS = 4096 };

/* A set of parameters on its way into files. */
typedef struct saving {
    const char *path;
    hlo_type type;
    ttt_tensor *list; /* as the files have them, in order */
    char (*names)[TTT__NAME];
    int *shards; /* which file each is in, ascending from 0 */
    int count, n_shards;
    int part, parts; /* of the files this one writes those whose number is `part` modulo `parts` */
    size_t total;
    float *values, *turned; /* room for the largest parameter */
    ttt_writer *writer;
    int next; /* tensors that were put */
} saving;

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

/* A file takes tensors while they fit; one that is larger than that has a file of its own. */
static bool plan_shards(saving *s, size_t shard_bytes, ttt_error *error)
{
    size_t filled = 0, bytes;
    s->n_shards = 1;
    for (int i = 0; i < s->count; i++) {
        if (!ttt__shape_bytes(&s->list[i].shape, &bytes) ||
            __builtin_add_overflow(s->total, bytes, &s->total))
            return ttt__fail(error, "\"%.100s\" is too large", s->list[i].name);
        if (filled > 0 && (filled > shard_bytes || bytes > shard_bytes - filled)) {
            s->n_shards++;
            filled = 0;
        }
        filled += bytes;
        s->shards[i] = s->n_shards - 1;
    }
    if (s->n_shards > MOST_SHARDS)
        return ttt__fail(error, "%s: more than %d shards; let them be larger", s->path,
                         MOST_SHARDS);
    return true;
}

static bool start_saving(saving *s, const ttt_params *params, size_t shard_bytes, ttt_error *error)
{
    size_t count = count_tensors(params), largest = 1, n = 0;
    s->count = (int)count;
    s->list = calloc(count, sizeof *s->list);
    s->names = calloc(count, sizeof *s->names);
    s->shards = calloc(count, sizeof *s->shards);
    if (s->list == NULL || s->names == NULL || s->shards == NULL)
        return ttt__no_memory(error);
    for (int i = 0; i < params->count; i++) {
        size_t elements = (size_t)hlo_shape_elements(&params->list[i].shape);
        list_tensors(&params->list[i], s->type, s->list + n, s->names + n);
        n += (size_t)layers_of(&params->list[i]);
        largest = elements > largest ? elements : largest;
    }
    s->values = malloc(largest * sizeof *s->values);
    s->turned = malloc(largest * sizeof *s->turned);
    if (s->values == NULL || s->turned == NULL)
        return ttt__no_memory(error);
    return plan_shards(s, shard_bytes, error);
}

/* NAME.safetensors, or NAME-00002-of-00003.safetensors; the caller frees it. */
static char *shard_path(const saving *s, int shard, ttt_error *error)
{
    static const char end[] = ".safetensors";
    size_t length = strlen(s->path), room = length + 64, stem = length;
    char *path = malloc(room);
    if (path == NULL) {
        ttt__no_memory(error);
        return NULL;
    }
    if (length >= sizeof end && strcmp(s->path + length - (sizeof end - 1), end) == 0)
        stem -= sizeof end - 1;
    if (s->n_shards == 1)
        memcpy(path, s->path, length + 1);
    else
        snprintf(path, room, "%.*s-%05d-of-%05d%s", (int)stem, s->path, shard + 1, s->n_shards,
                 end);
    return path;
}

static bool open_shard(saving *s, ttt_error *error)
{
    int first = s->next, last = first;
    while (last < s->count && s->shards[last] == s->shards[first])
        last++;
    char *path = shard_path(s, s->shards[first], error);
    if (path != NULL)
        s->writer = ttt_writer_open(path, s->list + first, last - first, error);
    free(path);
    return s->writer != NULL;
}

static bool close_shard(saving *s, bool keep, ttt_error *error)
{
    ttt_writer *writer = s->writer;
    s->writer = NULL;
    return writer == NULL || ttt_writer_finish(writer, keep, error);
}

/* Whether a tensor is in a file that is written here. */
static bool is_ours(const saving *s, int tensor)
{
    return s->shards[tensor] % s->parts == s->part;
}

/* The next tensor. */
static bool put_tensor(saving *s, const void *bytes, size_t size, ttt_error *error)
{
    int next = s->next;
    bool new_shard = next == 0 || s->shards[next] != s->shards[next - 1];
    if (new_shard && !close_shard(s, true, error))
        return false;
    if (new_shard && is_ours(s, next) && !open_shard(s, error))
        return false;
    s->next++;
    return !is_ours(s, next) || ttt_writer_put(s->writer, bytes, size, error);
}

/* Whether one of the next tensors is in a file that is written here. */
static bool any_ours(const saving *s, int64_t tensors)
{
    for (int64_t i = 0; i < tensors; i++) {
        if (is_ours(s, s->next + (int)i))
            return true;
    }
    return false;
}

/* The next parameter. */
static bool put_param(saving *s, const ttt_param *param, int index, ttt_param_source get, void *ctx,
                      ttt_error *error)
{
    if (!any_ours(s, layers_of(param))) {
        s->next += (int)layers_of(param);
        return true;
    }
    if (!get(ctx, index, s->values, error))
        return false;
    size_t count = (size_t)hlo_shape_elements(&param->shape);
    size_t each = (size_t)layer_elements(param) * (size_t)hlo_type_bits(s->type) / 8;
    ttt_param_to_file(param, s->values, s->turned);
    ttt_from_f32(s->type, s->turned, count, s->values);
    for (int64_t layer = 0; layer < layers_of(param); layer++) {
        if (!put_tensor(s, (const char *)s->values + (size_t)layer * each, each, error))
            return false;
    }
    return true;
}

/* Which tensor is in which file, as Hugging Face has it. */
static char *index_text(const saving *s, ttt_error *error)
{
    json_t *root =
        json_pack("{s:{s:I}, s:{}}", "metadata", "total_size", (json_int_t)s->total, "weight_map");
    json_t *map = json_object_get(root, "weight_map");
    bool ok = map != NULL;
    for (int i = 0; ok && i < s->count; i++) {
        char *path = shard_path(s, s->shards[i], NULL);
        const char *slash = path == NULL ? NULL : strrchr(path, '/');
        ok =
            path != NULL && json_object_set_new(map, s->list[i].name,
                                                json_string(slash == NULL ? path : slash + 1)) == 0;
        free(path);
    }
    char *text = ok ? json_dumps(root, JSON_INDENT(2)) : NULL;
    json_decref(root);
    if (text == NULL)
        ttt__no_memory(error);
    return text;
}

static bool write_index(const saving *s, ttt_error *error)
{
    static const char end[] = ".index.json";
    size_t length = strlen(s->path);
    char *text = index_text(s, error), *path = malloc(length + sizeof end);
    ttt__new_file file;
    bool ok = text != NULL && path != NULL ? true : ttt__no_memory(error);
    if (ok) {
        memcpy(path, s->path, length);
        memcpy(path + length, end, sizeof end);
        ok = ttt__file_create(&file, path, error);
        if (ok)
            ok = ttt__file_close(&file, ttt__file_write(&file, text, strlen(text), error), error);
    }
    free(text);
    free(path);
    return ok;
}

/* Closes the last file. A set in several is whole with its index; without it, none of them stays.
 */
static bool finish_saving(saving *s, bool ok, ttt_error *error)
{
    ok = close_shard(s, ok, error) && ok;
    if (ok && s->n_shards > 1 && s->part == 0)
        ok = write_index(s, error);
    for (int i = 0; !ok && s->n_shards > 1 && i < s->next; i++) {
        bool first = i == 0 || s->shards[i] != s->shards[i - 1];
        char *path = first && is_ours(s, i) ? shard_path(s, s->shards[i], NULL) : NULL;
        if (path != NULL)
            unlink(path);
        free(path);
    }
    free(s->list);
    free(s->names);
    free(s->shards);
    free(s->values);
    free(s->turned);
    return ok;
}

bool ttt_params_save_part(const ttt_params *params, const char *path, hlo_type type,
                          size_t shard_bytes, int part, int parts, ttt_param_source get, void *ctx,
                          ttt_error *error)
{
    saving s = {.path = path, .type = type, .part = part, .parts = parts};
    bool ok = start_saving(&s, params, shard_bytes, error);
    for (int i = 0; ok && i < params->count; i++)
        ok = put_param(&s, &params->list[i], i, get, ctx, error);
    return finish_saving(&s, ok, error);
}

bool ttt_params_save_shards(const ttt_params *params, const char *path, hlo_type type,
                            size_t shard_bytes, ttt_param_source get, void *ctx, ttt_error *error)
{
    return ttt_params_save_part(params, path, type, shard_bytes, 0, 1, get, ctx, error);
}

bool ttt_params_save(const ttt_params *params, const char *path, hlo_type type,
                     ttt_param_source get, void *ctx, ttt_error *error)
{
    return ttt_params_save_shards(params, path, type, SIZE_MAX, get, ctx, error);
}
