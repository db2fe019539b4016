/*
 * Loops of known length over stacked arrays, and checkpointing through time.
 *
 * A checkpointed scan is a scan over groups whose body is a scan over the steps of a group; the
 * outer one keeps nothing but its carries for the backward pass, which therefore computes each
 * group again before it goes through it. Levels are nested the same way.
 */
#include "hlo_builder/ops/scan.h"

/* ---- the node ---- */

hlo_shape hlo__stacked_shape(hlo_graph *g, const hlo_shape *slice, int64_t length)
{
    if (slice->rank == HLO_MAX_RANK) {
        hlo_fail(g, HLO_ERROR_UNSUPPORTED, "scan: it would stack an array of %d dimensions",
                 HLO_MAX_RANK);
        return *slice;
    }
    hlo_shape stacked = {.type = slice->type, .rank = slice->rank + 1};
    stacked.dims[0] = length;
    memcpy(stacked.dims + 1, slice->dims, (size_t)slice->rank * sizeof *slice->dims);
    return stacked;
}

hlo_shape hlo__slice_shape(const hlo_shape *stacked)
{
    hlo_shape slice = {.type = stacked->type, .rank = stacked->rank - 1};
    memcpy(slice.dims, stacked->dims + 1, (size_t)slice.rank * sizeof *slice.dims);
    return slice;
}

hlo_node *hlo__make_scan(hlo_graph *g, hlo_block *body, const hlo_scan_attrs *attrs,
                         const hlo_val *in, int n_in)
{
    int n_carry = (int)attrs->n_carry, n_out = n_carry + (int)attrs->n_outputs;
    hlo_shape *shapes = hlo__alloc(g, (size_t)(n_out + 1) * sizeof *shapes);
    if (shapes == NULL)
        return NULL;
    for (int i = 0; i < n_out; i++)
        shapes[i] = i < n_carry ? body->results[i]->shape
                                : hlo__stacked_shape(g, &body->results[i]->shape, attrs->length);
    return hlo__add_region_op(g, HLO_OP_SCAN, in, n_in, shapes, n_out, attrs, sizeof *attrs, &body,
                              1);
}

/* ---- building ---- */

/* One hlo_scan, or one level of it. */
typedef struct scan_call {
    hlo_scan_body body;
    void *ctx;
    int n_carry, n_inputs, n_outputs;
    int64_t length;
    bool reverse;
    int unroll;
    hlo_save save;
    hlo_val base; /* of the step number, s32; null for 0 */
    int64_t levels[HLO_MAX_CHECKPOINT_LEVELS];
    int n_levels;
} scan_call;

static void build_scan(hlo_graph *g, const scan_call *c, hlo_val *carry, const hlo_val *inputs,
                       hlo_val *outputs);

static hlo_val step_number(hlo_graph *g, const scan_call *c, hlo_val step)
{
    return c->base.id == 0 ? step : hlo_add(g, c->base, step);
}

static bool check_carries(hlo_graph *g, const hlo_block *body, const hlo_val *carry, int n)
{
    for (int i = 0; i < n; i++) {
        const hlo_shape *in = hlo_shape_of(g, carry[i]), *out = &body->results[i]->shape;
        char before[HLO_SHAPE_TEXT], after[HLO_SHAPE_TEXT];
        if (hlo_shape_equal(in, out))
            continue;
        hlo_fail(g, HLO_ERROR_SHAPE, "scan: carry %d goes in as %s and comes out as %s", i,
                 hlo_shape_text(in, before), hlo_shape_text(out, after));
        return false;
    }
    return true;
}

/*
 * The body as a closed block over the step number, the carries and the slices. `*in` is what
 * follows the step number when it runs: the carries, the inputs, then what was captured, `*n_in` in
 * all.
 */
static hlo_block *build_body(hlo_graph *g, const scan_call *c, const hlo_val *carry,
                             const hlo_val *inputs, hlo_val **in, int *n_in)
{
    int n_results = c->n_carry + c->n_outputs, n_given = c->n_carry + c->n_inputs, n_captured = 0;
    hlo_val *params = hlo__alloc(g, (size_t)(n_given + n_results + 1) * sizeof *params);
    hlo_block *block = hlo__begin_block(g);
    if (block == NULL || params == NULL)
        return NULL;
    hlo_val *results = params + n_given;
    hlo_val step = hlo__block_param(g, HLO_SCALAR(HLO_S32));
    for (int i = 0; i < c->n_carry; i++)
        params[i] = hlo__block_param(g, *hlo_shape_of(g, carry[i]));
    for (int i = 0; i < c->n_inputs; i++)
        params[c->n_carry + i] = hlo__block_param(g, hlo__slice_shape(hlo_shape_of(g, inputs[i])));
    if (!hlo__failed(g))
        c->body(g, c->ctx, step_number(g, c, step), params, params + c->n_carry, results,
                results + c->n_carry);
    hlo__end_block(g, block, results, n_results);
    hlo_val *captured = hlo__close(g, block, &n_captured);
    *n_in = n_given + n_captured;
    *in = hlo__alloc(g, (size_t)(*n_in + 1) * sizeof **in);
    if (hlo__failed(g) || !check_carries(g, block, carry, c->n_carry))
        return NULL;
    for (int i = 0; i < *n_in; i++)
        (*in)[i] = i < c->n_carry ? carry[i]
                   : i < n_given  ? inputs[i - c->n_carry]
                                  : captured[i - n_given];
    return block;
}

/* A loop of at least two steps. */
static void build_loop(hlo_graph *g, const scan_call *c, hlo_val *carry, const hlo_val *inputs,
                       hlo_val *outputs)
{
    hlo_val *in;
    int n_in;
    hlo_block *block = build_body(g, c, carry, inputs, &in, &n_in);
    if (block == NULL)
        return;
    hlo_scan_attrs attrs = {.length = c->length,
                            .n_carry = c->n_carry,
                            .n_inputs = c->n_inputs,
                            .n_outputs = c->n_outputs,
                            .reverse = c->reverse,
                            .unroll = c->unroll,
                            .save = c->save};
    hlo_node *node = hlo__make_scan(g, block, &attrs, in, n_in);
    for (int i = 0; i < c->n_carry + c->n_outputs; i++)
        *(i < c->n_carry ? &carry[i] : &outputs[i - c->n_carry]) = hlo__out(node, i);
}

static hlo_val drop_first_dim(hlo_graph *g, hlo_val v)
{
    hlo_shape slice = hlo__slice_shape(hlo_shape_of(g, v));
    hlo_dims dims = {.n = slice.rank};
    memcpy(dims.d, slice.dims, (size_t)slice.rank * sizeof *slice.dims);
    return hlo_reshape(g, v, dims);
}

static hlo_val add_first_dim(hlo_graph *g, hlo_val v)
{
    hlo_shape stacked = hlo__stacked_shape(g, hlo_shape_of(g, v), 1);
    hlo_dims dims = {.n = stacked.rank};
    memcpy(dims.d, stacked.dims, (size_t)stacked.rank * sizeof *stacked.dims);
    return hlo_reshape(g, v, dims);
}

/*
 * One step, without a loop. The body is built as a block all the same, and copied from there: a
 * gradient that it asks for, by something captured, ends at its own parameters, however many steps
 * there are.
 */
static void build_step(hlo_graph *g, const scan_call *c, hlo_val *carry, const hlo_val *inputs,
                       hlo_val *outputs)
{
    hlo_val *in;
    int n_in;
    hlo_block *block = build_body(g, c, carry, inputs, &in, &n_in);
    if (block == NULL)
        return;
    hlo_val *args = hlo__alloc(g, (size_t)(1 + n_in + c->n_carry + c->n_outputs) * sizeof *args);
    hlo_val zero = hlo_scalar_int(g, HLO_S32, 0);
    if (hlo__failed(g))
        return;
    hlo_val *results = args + 1 + n_in;
    args[0] = zero;
    for (int i = 0; i < n_in; i++) {
        bool sliced = i >= c->n_carry && i < c->n_carry + c->n_inputs;
        args[1 + i] = sliced ? drop_first_dim(g, in[i]) : in[i];
    }
    if (!hlo__failed(g))
        hlo__inline(g, block, args, results);
    for (int i = 0; i < c->n_carry && !hlo__failed(g); i++)
        carry[i] = results[i];
    for (int i = 0; i < c->n_outputs && !hlo__failed(g); i++)
        outputs[i] = add_first_dim(g, results[c->n_carry + i]);
}

/* No step: the carries stay, and the outputs are empty. Their shapes come from a body built for
 * nobody. */
static void build_nothing(hlo_graph *g, const scan_call *c, hlo_val *carry, const hlo_val *inputs,
                          hlo_val *outputs)
{
    scan_call one = *c;
    one.length = 2;
    int n = c->n_inputs + c->n_carry + c->n_outputs;
    hlo_val *lists = hlo__alloc(g, (size_t)(n + 1) * sizeof *lists);
    if (lists == NULL)
        return;
    hlo_val *two = lists, *unused = two + c->n_inputs, *stacked = unused + c->n_carry;
    for (int i = 0; i < c->n_inputs; i++) {
        hlo_shape slice = hlo__slice_shape(hlo_shape_of(g, inputs[i]));
        two[i] = hlo_full(g, hlo__stacked_shape(g, &slice, 2), 0);
    }
    for (int i = 0; i < c->n_carry; i++)
        unused[i] = carry[i];
    build_loop(g, &one, unused, two, stacked);
    for (int i = 0; i < c->n_outputs && !hlo__failed(g); i++) {
        hlo_shape slice = hlo__slice_shape(hlo_shape_of(g, stacked[i]));
        outputs[i] = hlo_full(g, hlo__stacked_shape(g, &slice, 0), 0);
    }
}

/* ---- checkpoint levels ---- */

/* The body of the outer scan: one group. */
static void group_body(hlo_graph *g, void *ctx, hlo_val group, const hlo_val *carry,
                       const hlo_val *x, hlo_val *next_carry, hlo_val *y)
{
    const scan_call *inner = ctx;
    scan_call c = *inner;
    hlo_val offset = hlo_mul(g, group, hlo_scalar_int(g, HLO_S32, c.length));
    c.base = c.base.id == 0 ? offset : hlo_add(g, c.base, offset);
    for (int i = 0; i < c.n_carry; i++)
        next_carry[i] = carry[i];
    build_scan(g, &c, next_carry, x, y);
}

/* [n * size, …] as [n, size, …], or back. */
static hlo_val regroup(hlo_graph *g, hlo_val v, int64_t n, int64_t size, bool back)
{
    const hlo_shape *shape = hlo_shape_of(g, v);
    int skip = back ? 2 : 1;
    hlo_dims dims = {.n = shape->rank + (back ? -1 : 1)};
    dims.d[0] = back ? n * size : n;
    dims.d[1] = size;
    if (shape->rank - skip > 0)
        memcpy(dims.d + (back ? 1 : 2), shape->dims + skip,
               (size_t)(shape->rank - skip) * sizeof *dims.d);
    return hlo_reshape(g, v, dims);
}

/* The steps from `start` to `end` as one scan call over slices of the inputs. */
static void build_part(hlo_graph *g, const scan_call *c, int64_t start, int64_t end, int64_t group,
                       hlo_val *carry, const hlo_val *inputs, hlo_val *outputs)
{
    scan_call part = *c;
    hlo_val *slices = hlo__alloc(g, (size_t)(c->n_inputs + 1) * sizeof *slices);
    if (slices == NULL || start == end)
        return;
    int64_t n = (end - start) / (group == 0 ? 1 : group);
    for (int i = 0; i < c->n_inputs; i++) {
        slices[i] = hlo_slice_dim(g, inputs[i], 0, start, end);
        if (group != 0)
            slices[i] = regroup(g, slices[i], n, group, false);
    }
    part.length = end - start;
    part.n_levels--;
    if (start > 0) {
        hlo_val offset = hlo_scalar_int(g, HLO_S32, start);
        part.base = c->base.id == 0 ? offset : hlo_add(g, c->base, offset);
    }
    if (group == 0) { /* what is left over: less than a group */
        build_scan(g, &part, carry, slices, outputs);
        return;
    }
    scan_call inner = part, outer = part;
    inner.length = group;
    outer = (scan_call){.body = group_body,
                        .ctx = &inner,
                        .n_carry = c->n_carry,
                        .n_inputs = c->n_inputs,
                        .n_outputs = c->n_outputs,
                        .length = n,
                        .reverse = c->reverse,
                        .unroll = 1,
                        .save = HLO_SAVE_MARKED};
    build_loop(g, &outer, carry, slices, outputs);
    for (int i = 0; i < c->n_outputs && !hlo__failed(g); i++)
        outputs[i] = regroup(g, outputs[i], n, group, true);
}

/* Groups, and what is left over after them: at the end of the arrays, whichever way they are gone
 * through. */
static void build_groups(hlo_graph *g, const scan_call *c, int64_t group, hlo_val *carry,
                         const hlo_val *inputs, hlo_val *outputs)
{
    int64_t split = c->length / group * group;
    hlo_val *tail = hlo__alloc(g, (size_t)(c->n_outputs + 1) * sizeof *tail);
    if (tail == NULL)
        return;
    if (c->reverse)
        build_part(g, c, split, c->length, 0, carry, inputs, tail);
    build_part(g, c, 0, split, group, carry, inputs, outputs);
    if (!c->reverse)
        build_part(g, c, split, c->length, 0, carry, inputs, tail);
    for (int i = 0; i < c->n_outputs && split < c->length && !hlo__failed(g); i++)
        outputs[i] = hlo_concat(g, (hlo_val[]){outputs[i], tail[i]}, 2, 0);
}

static void build_scan(hlo_graph *g, const scan_call *c, hlo_val *carry, const hlo_val *inputs,
                       hlo_val *outputs)
{
    int64_t group = 1;
    for (int i = 0; i < c->n_levels; i++)
        group *= c->levels[i];
    if (c->length == 0) {
        build_nothing(g, c, carry, inputs, outputs);
    } else if (c->length == 1) {
        build_step(g, c, carry, inputs, outputs);
    } else if (c->n_levels == 0) {
        build_loop(g, c, carry, inputs, outputs);
    } else if (c->length / group < 2) { /* one group or less: this level has nothing to keep */
        scan_call lower = *c;
        lower.n_levels--;
        build_scan(g, &lower, carry, inputs, outputs);
    } else {
        build_groups(g, c, group, carry, inputs, outputs);
    }
}

/* ---- the public call ---- */

static bool find_length(hlo_graph *g, const hlo_val *inputs, int n, int64_t given, int64_t *length)
{
    *length = given;
    for (int i = 0; i < n; i++) {
        const hlo_shape *shape = hlo_shape_of(g, inputs[i]);
        char text[HLO_SHAPE_TEXT];
        if (shape->rank == 0) {
            hlo_fail(g, HLO_ERROR_SHAPE, "scan: input %d is a scalar: there is nothing to slice",
                     i);
            return false;
        }
        if ((i > 0 || given != 0) && shape->dims[0] != *length) {
            hlo_fail(g, HLO_ERROR_SHAPE, "scan: input %d is %s; the length is %lld", i,
                     hlo_shape_text(shape, text), (long long)*length);
            return false;
        }
        *length = shape->dims[0];
    }
    if (*length < 0 || *length > INT32_MAX) {
        hlo_fail(g, HLO_ERROR_SHAPE, "scan: a length of %lld", (long long)*length);
        return false;
    }
    return true;
}

static bool take_options(hlo_graph *g, const hlo_scan_options *o, scan_call *c)
{
    c->reverse = o->reverse;
    c->unroll = o->unroll < 1 ? 1 : o->unroll;
    c->save = o->save;
    while (c->n_levels < HLO_MAX_CHECKPOINT_LEVELS && o->checkpoint[c->n_levels] != 0) {
        int64_t level = o->checkpoint[c->n_levels];
        if (level < 1 || level > INT32_MAX) {
            hlo_fail(g, HLO_ERROR_SHAPE, "scan: a checkpoint group of %lld", (long long)level);
            return false;
        }
        c->levels[c->n_levels++] = level;
    }
    return true;
}

void hlo_scan(hlo_graph *g, hlo_scan_body body, void *ctx, hlo_val *carry, int n_carry,
              const hlo_val *inputs, int n_inputs, hlo_val *outputs, int n_outputs,
              const hlo_scan_options *options)
{
    static const hlo_scan_options defaults = {0};
    const hlo_scan_options *o = options == NULL ? &defaults : options;
    for (int i = 0; i < n_outputs; i++)
        outputs[i] = (hlo_val){0};
    hlo_value **values = hlo__alloc(g, (size_t)(n_carry + n_inputs + 1) * sizeof *values);
    scan_call c = {
        .body = body, .ctx = ctx, .n_carry = n_carry, .n_inputs = n_inputs, .n_outputs = n_outputs};
    if (values != NULL && hlo__values(g, HLO_OP_SCAN, carry, n_carry, values) &&
        hlo__values(g, HLO_OP_SCAN, inputs, n_inputs, values) &&
        find_length(g, inputs, n_inputs, o->length, &c.length) && take_options(g, o, &c))
        build_scan(g, &c, carry, inputs, outputs);
    for (int i = 0; i < n_carry && hlo__failed(g); i++)
        carry[i] = (hlo_val){0};
    for (int i = 0; i < n_outputs && hlo__failed(g); i++)
        outputs[i] = (hlo_val){0};
}
