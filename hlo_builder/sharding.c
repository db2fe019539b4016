/*
 * The mesh, where arrays live on it, and regions written for one device. It only checks and
 * records; placing things is the partitioner's work, and the spelling is write_sharding.c's.
 */
#include "hlo_builder/graph.h"
#include "hlo_builder/ops/joint.h"
#include "hlo_builder/write/write.h"

#include <ctype.h>

const hlo_mesh_info *hlo__mesh(const hlo_graph *g)
{
    return &g->mesh;
}

/* An axis name: letters, digits and '_', so that '+' can join several. */
static bool good_name(const char *name)
{
    if (name == NULL || name[0] == '\0')
        return false;
    for (; *name != '\0'; name++) {
        if (!isalnum((unsigned char)*name) && *name != '_')
            return false;
    }
    return true;
}

static bool check_mesh(hlo_graph *g, const char *const *names, const int64_t *sizes, int n)
{
    enum { MOST_DEVICES = 1 << 30 };
    int64_t devices = 1;
    if (n < 1 || n > HLO_MAX_AXES)
        hlo_fail(g, HLO_ERROR_SHAPE, "mesh: %d axes; 1 to %d are possible", n, HLO_MAX_AXES);
    else if (g->mesh.n != 0)
        hlo_fail(g, HLO_ERROR_VALUE, "mesh: there is one already");
    else if (g->spec_ignored)
        hlo_fail(g, HLO_ERROR_VALUE, "mesh: it must be set before the first spec");
    for (int i = 0; i < n && !hlo__failed(g); i++) {
        if (!good_name(names[i]))
            hlo_fail(g, HLO_ERROR_VALUE,
                     "mesh: axis %d needs a name of letters, digits and underscores", i);
        else if (sizes[i] < 1 || sizes[i] > MOST_DEVICES / devices)
            hlo_fail(g, HLO_ERROR_SHAPE, "mesh: axis \"%s\" of size %lld", names[i],
                     (long long)sizes[i]);
        for (int k = 0; k < i && !hlo__failed(g); k++) {
            if (strcmp(names[i], names[k]) == 0)
                hlo_fail(g, HLO_ERROR_VALUE, "mesh: two axes are called \"%s\"", names[i]);
        }
        devices *= hlo__failed(g) ? 1 : sizes[i];
    }
    return !hlo__failed(g);
}

void hlo_mesh(hlo_graph *g, const char *const *names, const int64_t *sizes, int n)
{
    if (hlo__failed(g) || !check_mesh(g, names, sizes, n))
        return;
    hlo_mesh_info mesh = {.n = n};
    for (int i = 0; i < n; i++) {
        mesh.names[i] = hlo__intern(g, names[i]);
        mesh.sizes[i] = sizes[i];
    }
    if (!hlo__failed(g))
        g->mesh = mesh;
}

int hlo__spec_axes(const hlo_mesh_info *mesh, const char *names, int axes[HLO_MAX_AXES])
{
    int n = 0;
    while (names != NULL) {
        size_t length = strcspn(names, "+");
        int axis = 0;
        while (axis < mesh->n && (strlen(mesh->names[axis]) != length ||
                                  memcmp(mesh->names[axis], names, length) != 0))
            axis++;
        if (axis == mesh->n || n == HLO_MAX_AXES)
            return -1;
        axes[n++] = axis;
        names = names[length] == '+' ? names + length + 1 : NULL;
    }
    return n;
}

/* How many pieces dimension `dim` is cut into; 0, and an error, when the spec is wrong there. */
static int64_t pieces(hlo_graph *g, const char *what, const char *names, int64_t size, int dim,
                      unsigned *used)
{
    int axes[HLO_MAX_AXES];
    int64_t parts = 1;
    int n = hlo__spec_axes(&g->mesh, names, axes);
    if (n < 0)
        hlo_fail(g, HLO_ERROR_VALUE, "%s: \"%s\" names an axis that the mesh does not have", what,
                 names);
    for (int i = 0; i < n && !hlo__failed(g); i++) {
        if (*used & 1u << axes[i])
            hlo_fail(g, HLO_ERROR_VALUE, "%s: axis \"%s\" is used twice", what,
                     g->mesh.names[axes[i]]);
        *used |= 1u << axes[i];
        parts *= g->mesh.sizes[axes[i]];
    }
    if (!hlo__failed(g) && size % parts != 0)
        hlo_fail(g, HLO_ERROR_SHAPE, "%s: dimension %d of %lld does not divide by %lld (\"%s\")",
                 what, dim, (long long)size, (long long)parts, names);
    return hlo__failed(g) ? 0 : parts;
}

int64_t hlo_axes_size(hlo_graph *g, const char *axes)
{
    unsigned used = 0;
    int64_t parts = g->mesh.n == 0 ? 1 : pieces(g, "axes_size", axes, 0, 0, &used);
    return parts == 0 ? 1 : parts;
}

/* The spec with its names interned, and the pieces of each dimension. False without a mesh too. */
static bool check_spec(hlo_graph *g, const char *what, const hlo_shape *shape, bool whole,
                       const hlo_spec *spec, hlo_spec *clean, int64_t parts[HLO_MAX_RANK])
{
    unsigned used = 0;
    memset(clean, 0, sizeof *clean);
    if (hlo__failed(g))
        return false;
    if (g->mesh.n == 0) {
        g->spec_ignored = true;
        return false;
    }
    for (int i = 0; i < HLO_MAX_RANK && !hlo__failed(g); i++) {
        const char *names = spec->axes[i];
        parts[i] = 1;
        if (names == NULL)
            continue;
        if (i >= shape->rank) {
            hlo_fail(g, HLO_ERROR_SHAPE, "%s: the spec has \"%s\" for dimension %d of a rank of %d",
                     what, names, i, shape->rank);
            continue;
        }
        parts[i] = pieces(g, what, names, whole ? shape->dims[i] : 0, i, &used);
        clean->axes[i] = hlo__intern(g, names);
    }
    return !hlo__failed(g);
}

void hlo_shard_param(hlo_graph *g, hlo_val param, hlo_spec spec)
{
    hlo_spec clean;
    int64_t parts[HLO_MAX_RANK];
    if (check_spec(g, "shard_param", hlo_shape_of(g, param), true, &spec, &clean, parts))
        hlo__set_param_spec(g, param, &clean);
}

void hlo_shard_result(hlo_graph *g, int result, hlo_spec spec)
{
    hlo_spec clean;
    int64_t parts[HLO_MAX_RANK];
    static const hlo_shape none = {0};
    bool there = result >= 0 && (size_t)result < g->n_results;
    if (!there && !hlo__failed(g)) {
        hlo_fail(g, HLO_ERROR_VALUE, "shard_result: there is no result %d yet", result);
        return;
    }
    const hlo_shape *shape = there ? &g->results[result].value->shape : &none;
    if (check_spec(g, "shard_result", shape, true, &spec, &clean, parts))
        hlo__set_result_spec(g, result, &clean);
}

hlo_val hlo_shard(hlo_graph *g, hlo_val x, hlo_spec spec)
{
    hlo_spec clean;
    hlo_value *value;
    int64_t parts[HLO_MAX_RANK];
    if (!hlo__values(g, HLO_OP_SHARD, &x, 1, &value))
        return (hlo_val){0};
    if (!check_spec(g, "shard", &value->shape, true, &spec, &clean, parts))
        return hlo__failed(g) ? (hlo_val){0} : x;
    return hlo__add1(g, HLO_OP_SHARD, &x, 1, value->shape, &clean, sizeof clean);
}

void hlo__vjp_shard(hlo_graph *g, const hlo_node *node, const hlo_val *d_out, const bool *wanted,
                    hlo_val *d_in)
{
    if (wanted[0] && d_out[0].id != 0)
        d_in[0] = hlo_shard(g, d_out[0], *(const hlo_spec *)node->attrs);
}

/* ---- regions written for one device ---- */

/* The shape of one device's piece, or of the whole that such pieces make up. */
static bool resize(hlo_graph *g, const hlo_spec *spec, bool cut, hlo_shape *shape, hlo_spec *clean)
{
    int64_t parts[HLO_MAX_RANK];
    if (!check_spec(g, "manual", shape, cut, spec, clean, parts))
        return false;
    for (int i = 0; i < shape->rank; i++)
        shape->dims[i] = cut ? shape->dims[i] / parts[i] : shape->dims[i] * parts[i];
    if (!hlo__shape_ok(shape))
        hlo_fail(g, HLO_ERROR_SHAPE, "manual: a result of that many pieces is too large");
    return !hlo__failed(g);
}

/* The body as a block over one device's pieces; the specs are put into `clean`. */
static hlo_block *build_pieces(hlo_graph *g, hlo_body body, void *ctx, hlo_value *const *in,
                               const hlo_spec *specs, int n_in, hlo_spec *clean, int n_out)
{
    hlo_val *params = hlo__alloc(g, (size_t)(n_in + n_out + 1) * sizeof *params);
    hlo_value **values = hlo__alloc(g, (size_t)(n_out + 1) * sizeof *values);
    hlo_block *block = hlo__begin_block(g);
    if (hlo__failed(g))
        return NULL;
    for (int i = 0; i < n_in && !hlo__failed(g); i++) {
        hlo_shape piece = in[i]->shape;
        if (resize(g, &specs[i], true, &piece, &clean[i]))
            params[i] = hlo__block_param(g, piece);
    }
    if (!hlo__failed(g))
        body(g, ctx, params, params + n_in);
    if (!hlo__failed(g))
        hlo__values(g, HLO_OP_MANUAL, params + n_in, n_out, values);
    hlo__end_block(g, block, params + n_in, n_out);
    return block;
}

static hlo_node *add_manual(hlo_graph *g, hlo_body body, void *ctx, const hlo_val *in,
                            const hlo_spec *in_specs, int n_in, const hlo_spec *out_specs,
                            int n_out)
{
    hlo_value **values = hlo__alloc(g, (size_t)(n_in + 1) * sizeof *values);
    hlo_spec *clean = hlo__alloc(g, (size_t)(n_in + 1) * sizeof *clean);
    hlo_spec *clean_out = hlo__alloc(g, (size_t)n_out * sizeof *clean_out);
    hlo_shape *shapes = hlo__alloc(g, (size_t)n_out * sizeof *shapes);
    if (shapes == NULL || !hlo__values(g, HLO_OP_MANUAL, in, n_in, values))
        return NULL;
    hlo_block *block = build_pieces(g, body, ctx, values, in_specs, n_in, clean, n_out);
    for (int i = 0; i < n_out && !hlo__failed(g); i++) {
        shapes[i] = block->results[i]->shape;
        resize(g, &out_specs[i], false, &shapes[i], &clean_out[i]);
    }
    int n_captured;
    hlo_val *captured = hlo__failed(g) ? NULL : hlo__close(g, block, &n_captured);
    if (hlo__failed(g))
        return NULL;
    /* What the body took from outside is the same on every device: specs without axes. */
    hlo_spec *all_specs = hlo__alloc(g, (size_t)(n_in + n_captured + 1) * sizeof *all_specs);
    hlo_val *all = hlo__alloc(g, (size_t)(n_in + n_captured + 1) * sizeof *all);
    if (all == NULL || all_specs == NULL)
        return NULL;
    memcpy(all_specs, clean, (size_t)n_in * sizeof *clean);
    if (n_in > 0)
        memcpy(all, in, (size_t)n_in * sizeof *in);
    if (n_captured > 0)
        memcpy(all + n_in, captured, (size_t)n_captured * sizeof *captured);
    hlo_manual_attrs attrs = {all_specs, clean_out};
    return hlo__add_region_op(g, HLO_OP_MANUAL, all, n_in + n_captured, shapes, n_out, &attrs,
                              sizeof attrs, &block, 1);
}

/* Without a mesh there is one device, whose pieces are the whole: the body is built in place. */
static void build_whole(hlo_graph *g, hlo_body body, void *ctx, const hlo_val *in, int n_in,
                        hlo_val *out, int n_out)
{
    hlo_value **values = hlo__alloc(g, (size_t)(n_in + n_out) * sizeof *values);
    hlo_val *given = hlo__alloc(g, (size_t)(n_in + 1) * sizeof *given);
    if (values == NULL || given == NULL || !hlo__values(g, HLO_OP_MANUAL, in, n_in, values))
        return;
    if (n_in > 0)
        memcpy(given, in, (size_t)n_in * sizeof *in); /* `out` may be `in` */
    for (int i = 0; i < n_out; i++)
        out[i] = (hlo_val){0};
    body(g, ctx, given, out);
    hlo__values(g, HLO_OP_MANUAL, out, n_out, values);
}

void hlo_manual(hlo_graph *g, hlo_body body, void *ctx, const hlo_val *in, const hlo_spec *in_specs,
                int n_in, hlo_val *out, const hlo_spec *out_specs, int n_out)
{
    if (!hlo__failed(g) && (n_in < 0 || n_out < 1 || body == NULL))
        hlo_fail(g, HLO_ERROR_VALUE, "manual: %d inputs, %d results%s", n_in, n_out,
                 body == NULL ? ", no body" : "");
    if (!hlo__failed(g) && g->mesh.n == 0) {
        g->spec_ignored = true;
        build_whole(g, body, ctx, in, n_in, out, n_out);
    } else if (!hlo__failed(g)) {
        hlo_node *node = add_manual(g, body, ctx, in, in_specs, n_in, out_specs, n_out);
        for (int i = 0; i < n_out; i++)
            out[i] = hlo__out(node, i);
    }
    for (int i = 0; i < n_out && hlo__failed(g); i++)
        out[i] = (hlo_val){0};
}
