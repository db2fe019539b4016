/* Arrays on the devices of a place: cut on the way there, put together on the way back. */
#include "runtime/device/internal.h"

#include <stdlib.h>
#include <string.h>

static const char call[] = "runtime";

pjrt_status *ttt_failed(const ttt_error *error)
{
    return PJRT_FAIL(INVALID_ARGUMENT, "ttt", "%s", error->message);
}

/* ---- arrays ------------------------------------------------------------------------------------
 */

bool ttt__devices_has(const ttt_devices *devices, int device)
{
    return device >= devices->first && device < devices->first + devices->n_mine;
}

static pjrt_device *own_device(const ttt_devices *devices, int device)
{
    return pjrt_client_device(devices->client, (size_t)(device - devices->first));
}

pjrt_type ttt_pjrt_type(hlo_type type)
{
    const char *name = hlo_type_name(type); /* both rooms spell types as StableHLO does */
    return pjrt_type_parse(name, strlen(name));
}

static size_t element_bytes(const hlo_shape *shape)
{
    return (size_t)hlo_type_bits(shape->type) / 8;
}

size_t ttt_array_bytes(const ttt_array *array)
{
    return (size_t)hlo_shape_elements(&array->shape) * element_bytes(&array->shape);
}

ttt_array *ttt__array_new(const ttt_devices *devices, const hlo_shape *shape, const hlo_spec *spec)
{
    ttt_array *array =
        calloc(1, sizeof *array + (size_t)devices->n_devices * sizeof array->parts[0]);
    if (array != NULL) {
        array->devices = devices;
        array->shape = *shape;
        array->spec = *spec;
    }
    return array;
}

void ttt_array_free(ttt_array *array)
{
    if (array == NULL)
        return;
    for (int i = 0; i < array->devices->n_devices; i++)
        pjrt_buffer_free(array->parts[i]);
    free(array);
}

static void block_dims(const ttt_block *block, int rank, int64_t dims[HLO_MAX_RANK])
{
    for (int i = 0; i < rank; i++)
        dims[i] = block->limit[i] - block->start[i];
}

/* The blocks of all devices; the caller frees them. */
static pjrt_status *all_blocks(const ttt_devices *devices, const hlo_shape *shape,
                               const hlo_spec *spec, ttt_block **out)
{
    int n = devices->n_devices;
    ttt_block *blocks = calloc((size_t)n, sizeof *blocks);
    pjrt_status *st = blocks == NULL ? PJRT_NO_MEMORY(call) : NULL;
    for (int i = 0; i < n && st == NULL; i++)
        st = ttt_mesh_block(&devices->mesh, shape, spec, i, &blocks[i]);
    if (st != NULL) {
        free(blocks);
        blocks = NULL;
    }
    *out = blocks;
    return st;
}

static bool same_block(const ttt_block *a, const ttt_block *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

/* The block of device `first` to it and to all others that have the same. */
static pjrt_status *upload_block(ttt_array *array, const ttt_block *blocks, int first,
                                 const void *data)
{
    int64_t dims[HLO_MAX_RANK];
    block_dims(&blocks[first], array->shape.rank, dims);
    for (int d = first; d < array->devices->n_devices; d++) {
        if (!ttt__devices_has(array->devices, d) || !same_block(&blocks[d], &blocks[first]))
            continue;
        PJRT_TRY(pjrt_buffer_from_host(own_device(array->devices, d),
                                       ttt_pjrt_type(array->shape.type), dims, array->shape.rank,
                                       data, NULL, NULL, &array->parts[d]));
    }
    return NULL;
}

static pjrt_status *make_parts(ttt_array *array, ttt_array_source get, void *ctx)
{
    ttt_block *blocks;
    PJRT_TRY(all_blocks(array->devices, &array->shape, &array->spec, &blocks));
    /* All blocks are of one size. */
    int64_t size =
        ttt__block_elements(&blocks[0], array->shape.rank) * (int64_t)element_bytes(&array->shape);
    void *data = malloc((size_t)size + 1);
    pjrt_status *st = data == NULL ? PJRT_NO_MEMORY(call) : NULL;
    for (int d = 0; d < array->devices->n_devices && st == NULL; d++) {
        if (array->parts[d] != NULL || !ttt__devices_has(array->devices, d))
            continue;
        st = get(ctx, &blocks[d], data);
        if (st == NULL)
            st = upload_block(array, blocks, d, data);
    }
    free(data);
    free(blocks);
    return st;
}

pjrt_status *ttt_array_make(const ttt_devices *devices, hlo_shape shape, hlo_spec spec,
                            ttt_array_source get, void *ctx, ttt_array **out)
{
    *out = NULL;
    ttt_array *array = ttt__array_new(devices, &shape, &spec);
    if (array == NULL)
        return PJRT_NO_MEMORY(call);
    pjrt_status *st = make_parts(array, get, ctx);
    if (st != NULL) {
        ttt_array_free(array);
        return st;
    }
    *out = array;
    return NULL;
}

pjrt_status *ttt_array_wait(const ttt_array *array)
{
    pjrt_status *first = NULL;
    for (int d = 0; d < array->devices->n_devices; d++) {
        if (!ttt__devices_has(array->devices, d))
            continue;
        pjrt_status *st = ttt__wait_for(array->devices->job, array->parts[d]);
        if (first == NULL)
            first = st;
        else
            pjrt_status_free(st);
    }
    return first;
}

/* ---- the whole on the host ---------------------------------------------------------------------
 */

/* Copies a block between its dense form and its place in the whole, run by run of what is
 * contiguous in both: the last dimension. */
void ttt__block_copy(const hlo_shape *shape, const ttt_block *block, void *whole, void *part,
                     bool to_part)
{
    int rank = shape->rank;
    size_t element = element_bytes(shape), run = element;
    int64_t runs = 1, dims[HLO_MAX_RANK];
    block_dims(block, rank, dims);
    if (rank > 0)
        run *= (size_t)dims[rank - 1];
    for (int i = 0; i < rank - 1; i++)
        runs *= dims[i];
    for (int64_t r = 0; r < runs; r++) {
        int64_t rest = r, stride = rank > 0 ? shape->dims[rank - 1] : 1;
        int64_t at = rank > 0 ? block->start[rank - 1] : 0;
        for (int i = rank - 2; i >= 0; i--) {
            at += (block->start[i] + rest % dims[i]) * stride;
            rest /= dims[i];
            stride *= shape->dims[i];
        }
        char *there = (char *)whole + (size_t)at * element, *here = (char *)part + (size_t)r * run;
        memcpy(to_part ? here : there, to_part ? there : here, run);
    }
}

typedef struct whole {
    const hlo_shape *shape;
    const void *data;
} whole;

static pjrt_status *cut(void *ctx, const ttt_block *block, void *out)
{
    const whole *w = ctx;
    ttt__block_copy(w->shape, block, (void *)w->data, out, true);
    return NULL;
}

pjrt_status *ttt_array_upload(const ttt_devices *devices, hlo_shape shape, hlo_spec spec,
                              const void *data, ttt_array **out)
{
    return ttt_array_make(devices, shape, spec, cut, &(whole){&shape, data}, out);
}

/* ---- blocks, one by one ------------------------------------------------------------------------
 */

int64_t ttt__block_elements(const ttt_block *block, int rank)
{
    int64_t elements = 1;
    for (int i = 0; i < rank; i++)
        elements *= block->limit[i] - block->start[i];
    return elements;
}

static bool seen_before(const ttt_block *blocks, int device)
{
    for (int d = 0; d < device; d++) {
        if (same_block(&blocks[d], &blocks[device]))
            return true;
    }
    return false;
}

/* Of the devices that have the same as `first`, number `turn`, counted round. */
static int choose_device(const ttt_block *blocks, int n, int first, int turn)
{
    int holders = 0;
    for (int d = first; d < n; d++)
        holders += same_block(&blocks[d], &blocks[first]);
    turn %= holders;
    for (int d = first; d < n; d++) {
        if (same_block(&blocks[d], &blocks[first]) && turn-- == 0)
            return d;
    }
    return first;
}

pjrt_status *ttt__devices_shares(const ttt_devices *devices, const hlo_shape *shape,
                                 const hlo_spec *spec, int turn, ttt__owned_block **out, int *count)
{
    ttt_block *blocks;
    *out = NULL;
    *count = 0;
    PJRT_TRY(all_blocks(devices, shape, spec, &blocks));
    ttt__owned_block *list = calloc((size_t)devices->n_devices, sizeof *list);
    for (int d = 0; list != NULL && d < devices->n_devices; d++) {
        if (seen_before(blocks, d))
            continue;
        int giver = choose_device(blocks, devices->n_devices, d, turn);
        list[(*count)++] = (ttt__owned_block){blocks[d], giver, giver / devices->n_mine};
    }
    free(blocks);
    *out = list;
    return list == NULL ? PJRT_NO_MEMORY(call) : NULL;
}

pjrt_status *ttt__array_part(const ttt_array *array, int device, void *data, size_t size)
{
    if (array->devices->job != NULL)
        PJRT_TRY(ttt__wait_for(array->devices->job, array->parts[device]));
    return pjrt_buffer_to_host(array->parts[device], data, size, NULL);
}

/* ---- the whole, back on the host ---------------------------------------------------------------
 */

/* A device of this process that has what `device` has; -1: there is none. */
static int own_holder(const ttt_devices *devices, const ttt_block *blocks, int device)
{
    for (int d = 0; d < devices->n_devices; d++) {
        if (ttt__devices_has(devices, d) && same_block(&blocks[d], &blocks[device]))
            return d;
    }
    return -1;
}

/* Of several devices with the same block the first is asked. */
static pjrt_status *put_together(const ttt_array *array, const ttt_block *blocks, void *data,
                                 size_t part_size)
{
    void *part = malloc(part_size + 1);
    pjrt_status *st = part == NULL ? PJRT_NO_MEMORY(call) : NULL;
    for (int d = 0; d < array->devices->n_devices && st == NULL; d++) {
        if (seen_before(blocks, d))
            continue;
        int own = own_holder(array->devices, blocks, d);
        if (own < 0)
            st = PJRT_FAIL(FAILED_PRECONDITION, call,
                           "the array is split over processes, and this one has not all of it");
        else
            st = ttt__array_part(array, own, part, part_size);
        if (st == NULL)
            ttt__block_copy(&array->shape, &blocks[d], data, part, false);
    }
    free(part);
    return st;
}

pjrt_status *ttt_array_download(const ttt_array *array, void *data, size_t size)
{
    if (size != ttt_array_bytes(array))
        return PJRT_FAIL(INVALID_ARGUMENT, call, "the array has %zu bytes, there is room for %zu",
                         ttt_array_bytes(array), size);
    ttt_block *blocks;
    PJRT_TRY(all_blocks(array->devices, &array->shape, &array->spec, &blocks));
    size_t part =
        (size_t)ttt__block_elements(&blocks[0], array->shape.rank) * element_bytes(&array->shape);
    pjrt_status *st = part == size ? ttt__array_part(array, own_holder(array->devices, blocks, 0),
                                                     data, size) /* every device has all of it */
                                   : put_together(array, blocks, data, part);
    free(blocks);
    return st;
}
