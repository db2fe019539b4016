/* The grid of devices, and which part of an array each of them has. */
#include "runtime/device/ttt_device.h"

#include <stdlib.h>
#include <string.h>

static const char call[] = "mesh";

/* All axes that specs speak of. */
static const char *const axis_names[] = {"data", "fsdp", "time", "model"};
enum { AXES = sizeof axis_names / sizeof *axis_names, MOST_DEVICES = 1 << 20 };

static int find_axis(const ttt_mesh *mesh, const char *name, size_t length)
{
    for (int i = 0; i < mesh->n; i++) {
        if (strlen(mesh->names[i]) == length && memcmp(mesh->names[i], name, length) == 0)
            return i;
    }
    return -1;
}

static void add_axis(ttt_mesh *mesh, const char *name, int64_t size)
{
    mesh->names[mesh->n] = name;
    mesh->sizes[mesh->n++] = size;
}

/* "model=4", as far as the next comma. */
static pjrt_status *parse_axis(const char *text, size_t length, ttt_mesh *mesh)
{
    const char *equals = memchr(text, '=', length);
    size_t name = equals == NULL ? length : (size_t)(equals - text);
    const char *known = NULL;
    for (int i = 0; i < AXES; i++) {
        if (strlen(axis_names[i]) == name && memcmp(axis_names[i], text, name) == 0)
            known = axis_names[i];
    }
    if (known == NULL)
        return PJRT_FAIL(
            INVALID_ARGUMENT, call,
            "a mesh has the axes data, fsdp, time and model, as in data=2,model=4: not "
            "\"%.*s\"",
            (int)length, text);
    if (find_axis(mesh, known, name) >= 0)
        return PJRT_FAIL(INVALID_ARGUMENT, call, "the mesh has the axis %s twice", known);
    char *end = NULL;
    long long size = equals == NULL ? 0 : strtoll(equals + 1, &end, 10);
    if (equals == NULL || end != text + length || size < 1 ||
        size > MOST_DEVICES / ttt_mesh_devices(mesh))
        return PJRT_FAIL(INVALID_ARGUMENT, call,
                         "the mesh's axis \"%.*s\" needs a number of devices: %s=2", (int)length,
                         text, known);
    add_axis(mesh, known, size);
    return NULL;
}

pjrt_status *ttt_mesh_parse(const char *text, ttt_mesh *mesh)
{
    *mesh = (ttt_mesh){0};
    if (text == NULL || *text == '\0')
        return NULL;
    ttt_mesh parsed = {0};
    for (const char *at = text; at != NULL;) {
        size_t length = strcspn(at, ",");
        PJRT_TRY(parse_axis(at, length, &parsed));
        at = at[length] == ',' ? at + length + 1 : NULL;
    }
    for (int i = 0; i < AXES; i++) {
        if (find_axis(&parsed, axis_names[i], strlen(axis_names[i])) < 0)
            add_axis(&parsed, axis_names[i], 1);
    }
    *mesh = parsed;
    return NULL;
}

int64_t ttt_mesh_devices(const ttt_mesh *mesh)
{
    int64_t devices = 1;
    for (int i = 0; i < mesh->n; i++)
        devices *= mesh->sizes[i];
    return devices;
}

int64_t ttt_mesh_size(const ttt_mesh *mesh, const char *axis)
{
    int at = find_axis(mesh, axis, strlen(axis));
    return at < 0 ? 1 : mesh->sizes[at];
}

void ttt_mesh_apply(const ttt_mesh *mesh, hlo_graph *g)
{
    if (ttt_mesh_devices(mesh) > 1)
        hlo_mesh(g, mesh->names, mesh->sizes, mesh->n);
}

/* Where a device stands along an axis. */
static int64_t coordinate(const ttt_mesh *mesh, int axis, int64_t device)
{
    for (int i = mesh->n - 1; i > axis; i--)
        device /= mesh->sizes[i];
    return device % mesh->sizes[axis];
}

/* Into how many pieces "data+fsdp" cuts a dimension, and which of them is the device's: of the axes
 * the first varies slowest. */
static pjrt_status *piece(const ttt_mesh *mesh, const char *names, int64_t device, int64_t *pieces,
                          int64_t *index, unsigned *used)
{
    *pieces = 1;
    *index = 0;
    for (const char *at = names; at != NULL;) {
        size_t length = strcspn(at, "+");
        int axis = find_axis(mesh, at, length);
        if (axis < 0)
            return PJRT_FAIL(INVALID_ARGUMENT, call,
                             "the spec \"%s\" names the axis \"%.*s\", which the mesh has not",
                             names, (int)length, at);
        if ((*used & 1u << axis) != 0)
            return PJRT_FAIL(INVALID_ARGUMENT, call, "the axis \"%s\" stands twice in a spec",
                             mesh->names[axis]);
        *used |= 1u << axis;
        *pieces *= mesh->sizes[axis];
        *index = *index * mesh->sizes[axis] + coordinate(mesh, axis, device);
        at = at[length] == '+' ? at + length + 1 : NULL;
    }
    return NULL;
}

pjrt_status *ttt_mesh_block(const ttt_mesh *mesh, const hlo_shape *shape, const hlo_spec *spec,
                            int64_t device, ttt_block *block)
{
    unsigned used = 0;
    char text[HLO_SHAPE_TEXT];
    *block = (ttt_block){0};
    for (int i = 0; i < HLO_MAX_RANK; i++) {
        int64_t pieces = 1, index = 0, size = i < shape->rank ? shape->dims[i] : 0;
        if (spec->axes[i] != NULL && i >= shape->rank)
            return PJRT_FAIL(INVALID_ARGUMENT, call, "%s has no dimension %d to split over \"%s\"",
                             hlo_shape_text(shape, text), i, spec->axes[i]);
        if (spec->axes[i] != NULL && mesh->n > 0)
            PJRT_TRY(piece(mesh, spec->axes[i], device, &pieces, &index, &used));
        if (size % pieces != 0)
            return PJRT_FAIL(INVALID_ARGUMENT, call,
                             "%s cannot be split: dimension %d of %lld does not divide by %lld "
                             "(%s); choose another mesh",
                             hlo_shape_text(shape, text), i, (long long)size, (long long)pieces,
                             spec->axes[i]);
        block->start[i] = size / pieces * index;
        block->limit[i] = size / pieces * (index + 1);
    }
    return NULL;
}

pjrt_status *ttt_mesh_check(const ttt_mesh *mesh, const ttt_params *params)
{
    for (int i = 0; i < params->count; i++) {
        const ttt_param *p = &params->list[i];
        ttt_block block;
        pjrt_status *st = ttt_mesh_block(mesh, &p->shape, &p->spec, 0, &block);
        if (st != NULL) {
            pjrt_status *named =
                PJRT_FAIL(INVALID_ARGUMENT, call, "%s: %s", p->name, pjrt_status_message(st));
            pjrt_status_free(st);
            return named;
        }
    }
    return NULL;
}
