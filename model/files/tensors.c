/* Named arrays from files: mapping, opening files and folders of them, element types. */
#include "model/records.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_INDEX_BYTES = 64 << 20, MOST_INDEX_DEPTH = 8, MOST_SHARDS = 4096 };

/* ---- the container --------------------------------------------------------------------------- */

ttt_tensors *ttt__tensors_new(ttt_error *error)
{
    ttt_tensors *made = calloc(1, sizeof *made);
    if (made != NULL) {
        made->room = 16;
        made->list = calloc((size_t)made->room, sizeof *made->list);
        if (made->list != NULL)
            return made;
    }
    free(made);
    ttt__no_memory(error);
    return NULL;
}

void ttt_tensors_free(ttt_tensors *tensors)
{
    if (tensors == NULL)
        return;
    for (int i = 0; i < tensors->count; i++)
        free((char *)tensors->list[i].name);
    for (int i = 0; i < tensors->n_blocks; i++) {
        if (tensors->blocks[i].mapped)
            munmap(tensors->blocks[i].bytes, tensors->blocks[i].size);
        else
            free(tensors->blocks[i].bytes);
    }
    free(tensors->list);
    free(tensors->blocks);
    free(tensors);
}

/* Room for one block more, empty. */
static ttt__block *new_block(ttt_tensors *tensors, ttt_error *error)
{
    ttt__block *larger = realloc(tensors->blocks, ((size_t)tensors->n_blocks + 1) * sizeof *larger);
    if (larger == NULL) {
        ttt__no_memory(error);
        return NULL;
    }
    tensors->blocks = larger;
    larger[tensors->n_blocks] = (ttt__block){0};
    return &larger[tensors->n_blocks++];
}

const ttt__block *ttt__tensors_map(ttt_tensors *tensors, const char *path, ttt_error *error)
{
    ttt__block *block = new_block(tensors, error);
    struct stat info;
    if (block == NULL)
        return NULL;
    int fd = TEMP_FAILURE_RETRY(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (fd < 0 || fstat(fd, &info) != 0) {
        ttt__fail(error, "%s: %s", path, strerror(errno));
    } else if (!S_ISREG(info.st_mode) || info.st_size == 0) {
        ttt__fail(error, "%s: not a file, or an empty one", path);
    } else {
        void *bytes = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (bytes == MAP_FAILED)
            ttt__fail(error, "%s: %s", path, strerror(errno));
        else
            *block = (ttt__block){bytes, (size_t)info.st_size, true};
    }
    if (fd >= 0)
        close(fd);
    return block->mapped ? block : NULL;
}

void *ttt__tensors_block(ttt_tensors *tensors, size_t size, ttt_error *error)
{
    ttt__block *block = new_block(tensors, error);
    if (block == NULL)
        return NULL;
    block->bytes = calloc(size > 0 ? size : 1, 1);
    if (block->bytes == NULL)
        ttt__no_memory(error);
    block->size = size;
    return block->bytes;
}

bool ttt__tensors_add(ttt_tensors *tensors, const char *name, size_t length, hlo_shape shape,
                      const void *data, size_t size, ttt_error *error)
{
    if (tensors->count == tensors->room) {
        if (tensors->room > 1 << 24)
            return ttt__fail(error, "more than %d tensors", tensors->room);
        ttt_tensor *larger = realloc(tensors->list, 2 * (size_t)tensors->room * sizeof *larger);
        if (larger == NULL)
            return ttt__no_memory(error);
        tensors->list = larger;
        tensors->room *= 2;
    }
    char *copy = malloc(length + 1);
    if (copy == NULL)
        return ttt__no_memory(error);
    memcpy(copy, name, length);
    copy[length] = '\0';
    tensors->list[tensors->count++] = (ttt_tensor){copy, shape, data, size};
    return true;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const ttt_tensor *)a)->name, ((const ttt_tensor *)b)->name);
}

bool ttt__tensors_sort(ttt_tensors *tensors, ttt_error *error)
{
    qsort(tensors->list, (size_t)tensors->count, sizeof *tensors->list, by_name);
    for (int i = 1; i < tensors->count; i++) {
        if (by_name(&tensors->list[i - 1], &tensors->list[i]) == 0)
            return ttt__fail(error, "tensor \"%.100s\" comes twice", tensors->list[i].name);
    }
    return true;
}

int ttt_tensors_count(const ttt_tensors *tensors)
{
    return tensors->count;
}

const ttt_tensor *ttt_tensors_get(const ttt_tensors *tensors, int index)
{
    return index >= 0 && index < tensors->count ? &tensors->list[index] : NULL;
}

const ttt_tensor *ttt_tensors_find(const ttt_tensors *tensors, const char *name)
{
    ttt_tensor key = {.name = name};
    return bsearch(&key, tensors->list, (size_t)tensors->count, sizeof key, by_name);
}

/* ---- opening --------------------------------------------------------------------------------- */

/* The error so far, with the file's name in front. */
static bool in_file(const char *path, ttt_error *error)
{
    if (error == NULL || strncmp(error->message, path, strlen(path)) == 0)
        return false;
    ttt_error inner = *error;
    return ttt__fail(error, "%.200s: %.300s", path, inner.message);
}

static bool add_file(ttt_tensors *tensors, const char *path, ttt_error *error)
{
    const ttt__block *block = ttt__tensors_map(tensors, path, error);
    return (block != NULL && ttt__safetensors_parse(tensors, block->bytes, block->size, error)) ||
           in_file(path, error);
}

/* FOLDER/NAME; the caller frees it. */
static char *join(const char *folder, size_t length, const char *name, ttt_error *error)
{
    size_t name_size = strlen(name) + 1;
    char *path = malloc(length + 1 + name_size);
    if (path == NULL) {
        ttt__no_memory(error);
        return NULL;
    }
    memcpy(path, folder, length);
    path[length] = '/';
    memcpy(path + length + 1, name, name_size);
    return path;
}

static bool add_shard(ttt_tensors *tensors, const char *index, const char *name, ttt_error *error)
{
    const char *slash = strrchr(index, '/');
    if (name[0] == '\0' || name[0] == '.' || strchr(name, '/') != NULL)
        return ttt__fail(error, "%.200s: a shard must be beside its index, not \"%.100s\"", index,
                         name);
    char *path = slash == NULL ? strdup(name) : join(index, (size_t)(slash - index), name, error);
    bool ok = path != NULL ? add_file(tensors, path, error) : ttt__no_memory(error);
    free(path);
    return ok;
}

/* Every tensor that the index names is in the shard that it names, and there are no others. */
static bool check_index(const ttt_tensors *tensors, json_t *map, ttt_error *error)
{
    const char *name;
    json_t *shard;
    json_object_foreach(map, name, shard)
    {
        if (ttt_tensors_find(tensors, name) == NULL)
            return ttt__fail(error, "tensor \"%.100s\" is in the index and in no shard", name);
    }
    if (json_object_size(map) != (size_t)tensors->count)
        return ttt__fail(error, "the shards have %d tensors, the index %zu", tensors->count,
                         json_object_size(map));
    return true;
}

static bool read_index(ttt_tensors *tensors, const char *path, json_t *root, ttt_error *error)
{
    json_t *map = json_object_get(root, "weight_map"), *seen = json_object(), *shard;
    const char *name;
    bool ok = seen != NULL ? true : ttt__no_memory(error);
    if (ok && !json_is_object(map))
        ok = ttt__fail(error, "%.200s: there is no weight_map", path);
    if (ok) {
        json_object_foreach(map, name, shard)
        {
            const char *file = json_string_value(shard);
            if (file == NULL)
                ok = ttt__fail(error, "%.200s: \"%.100s\" has no file", path, name);
            else if (json_object_get(seen, file) != NULL)
                continue;
            else if (json_object_size(seen) == MOST_SHARDS)
                ok = ttt__fail(error, "%.200s: more than %d shards", path, MOST_SHARDS);
            else if (json_object_set_new(seen, file, json_true()) != 0)
                ok = ttt__no_memory(error);
            else
                ok = add_shard(tensors, path, file, error);
            if (!ok)
                break;
        }
    }
    ok = ok && ttt__tensors_sort(tensors, error) && check_index(tensors, map, error);
    json_decref(seen);
    return ok;
}

static bool add_index(ttt_tensors *tensors, const char *path, ttt_error *error)
{
    size_t size;
    char *text = ttt__read_file(path, MOST_INDEX_BYTES, &size, error);
    json_t *root =
        text == NULL ? NULL
                     : ttt__json_load(text, size, MOST_INDEX_BYTES, MOST_INDEX_DEPTH, path, error);
    bool ok = root != NULL && read_index(tensors, path, root, error);
    json_decref(root);
    free(text);
    return ok;
}

static bool add_path(ttt_tensors *tensors, const char *path, ttt_error *error)
{
    size_t length = strlen(path);
    struct stat info;
    if (stat(path, &info) != 0)
        return ttt__fail(error, "%s: %s", path, strerror(errno));
    if (!S_ISDIR(info.st_mode)) {
        if (length > 5 && strcmp(path + length - 5, ".json") == 0)
            return add_index(tensors, path, error);
        return add_file(tensors, path, error) && ttt__tensors_sort(tensors, error);
    }
    char *one = join(path, length, "model.safetensors", error);
    char *index = join(path, length, "model.safetensors.index.json", error);
    bool ok = false;
    if (one != NULL && index != NULL) {
        if (access(one, F_OK) != 0 && access(index, F_OK) == 0)
            ok = add_index(tensors, index, error);
        else
            ok = add_file(tensors, one, error) && ttt__tensors_sort(tensors, error);
    }
    free(one);
    free(index);
    return ok;
}

ttt_tensors *ttt_tensors_open(const char *path, ttt_error *error)
{
    ttt_tensors *tensors = ttt__tensors_new(error);
    if (tensors != NULL && !add_path(tensors, path, error)) {
        ttt_tensors_free(tensors);
        return NULL;
    }
    return tensors;
}

/* ---- element types --------------------------------------------------------------------------- */

static float float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static float float_of_half(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 31,
             fraction = half & 0x3ff;
    if (exponent == 31)
        return float_of_bits(sign | 0x7f800000 | fraction << 13);
    if (exponent > 0)
        return float_of_bits(sign | (exponent + 112) << 23 | fraction << 13);
    float value = (float)fraction * 0x1p-24f; /* exact */
    return sign != 0 ? -value : value;
}

/* X(type, its C type, as a float): `v` is the element. */
#define CONVERSIONS(X)                                      \
    X(HLO_F64, double, (float)v)                            \
    X(HLO_F32, float, v)                                    \
    X(HLO_BF16, uint16_t, float_of_bits((uint32_t)v << 16)) \
    X(HLO_F16, uint16_t, float_of_half(v))                  \
    X(HLO_S64, int64_t, (float)v)                           \
    X(HLO_S32, int32_t, (float)v)                           \
    X(HLO_U64, uint64_t, (float)v)                          \
    X(HLO_U32, uint32_t, (float)v)                          \
    X(HLO_U16, uint16_t, (float)v)                          \
    X(HLO_U8, uint8_t, (float)v)

bool ttt_to_f32(hlo_type type, const void *data, size_t count, float *out)
{
    const char *from = data;
    switch (type) {
#define CASE(hlo, c, expression)                       \
    case hlo:                                          \
        for (size_t i = 0; i < count; i++) {           \
            c v;                                       \
            memcpy(&v, from + i * sizeof v, sizeof v); \
            out[i] = expression;                       \
        }                                              \
        return true;
        CONVERSIONS(CASE)
#undef CASE
    default:
        return false;
    }
}

void ttt_from_f32(hlo_type type, const float *data, size_t count, void *out)
{
    if (type != HLO_BF16) {
        memcpy(out, data, count * sizeof *data);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &data[i], sizeof bits);
        bool nan = (bits & 0x7fffffff) > 0x7f800000;
        uint16_t half = nan ? (uint16_t)(bits >> 16 | 0x40)
                            : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
        memcpy((char *)out + i * sizeof half, &half, sizeof half);
    }
}
