/*
 * Random calls of the whole interface, right and wrong ones mixed: wrong shapes and types,
 * dimension lists that are none, null, foreign and dead handles, values from inside a body used
 * outside. Whatever happens is an error of the graph or a text, never a crash; under the sanitizers
 * that is a sharp test. It does not ask whether what was built is right.
 *
 *     test_hlo_builder_api_fuzz [SEEDS [FIRST]]     or SEEDS in $TTT_FUZZ_SEEDS; 2000 otherwise
 *
 * With $TTT_FUZZ_DUMP the texts of the graphs without an error are written into that folder, to be
 * given to a compiler.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "hlo_builder/hlo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POOL = 64, MAX_DEPTH = 4 };

/* One graph being filled. */
typedef struct fuzz {
    uint64_t random;
    hlo_graph *g;
    hlo_val pool[POOL]; /* of the graph, and some that are not */
    int n;
    int depth;      /* of bodies */
    int wrong;      /* one call in so many is wrong on purpose */
    bool returning; /* the last body was built with what its caller wants */
    hlo_shape shapes[4];
} fuzz;

static hlo_val dead[POOL]; /* handles of graphs that were freed */
static int n_dead;
static int64_t calls, errors, texts;

/* ---- chance ---- */

static uint32_t chance(fuzz *f, uint32_t below)
{
    f->random ^= f->random << 13;
    f->random ^= f->random >> 7;
    f->random ^= f->random << 17;
    return (uint32_t)(f->random >> 16) % (below == 0 ? 1 : below);
}

static bool wrong(fuzz *f)
{
    return chance(f, (uint32_t)f->wrong) == 0;
}

static int64_t odd_number(fuzz *f)
{
    static const int64_t odd[] = {-1, -2, INT64_MIN, INT64_MAX, 1 << 20, 0, 9, 100, INT32_MAX};
    return odd[chance(f, sizeof odd / sizeof *odd)];
}

static hlo_type any_type(fuzz *f)
{
    return wrong(f) ? (hlo_type)(int)chance(f, 40) : (hlo_type)(1 + chance(f, HLO_PRED));
}

static hlo_val any_value(fuzz *f)
{
    if (wrong(f)) {
        switch (chance(f, 4)) {
        case 0:
            return (hlo_val){0};
        case 1:
            return n_dead > 0 ? dead[chance(f, (uint32_t)n_dead)] : (hlo_val){1, 1};
        case 2:
            return (hlo_val){chance(f, UINT32_MAX), chance(f, 3) == 0 ? f->pool[0].graph : 7};
        default:
            return (hlo_val){f->pool[0].id + chance(f, 100), f->pool[0].graph};
        }
    }
    return f->n == 0 ? (hlo_val){0} : f->pool[chance(f, (uint32_t)f->n)];
}

/* One of that type, if chance finds it. */
static hlo_val value_of(fuzz *f, hlo_type type)
{
    hlo_val v = any_value(f);
    for (int i = 0; i < 12 && hlo_type_of(f->g, v) != type; i++)
        v = any_value(f);
    return v;
}

static hlo_val float_value(fuzz *f)
{
    hlo_val v = any_value(f);
    for (int i = 0; i < 12 && !hlo_type_is_float(hlo_type_of(f->g, v)); i++)
        v = any_value(f);
    return v;
}

static hlo_val like(fuzz *f, hlo_val x)
{
    hlo_val v = value_of(f, hlo_type_of(f->g, x));
    for (int i = 0; i < 12 && !wrong(f); i++) {
        v = value_of(f, hlo_type_of(f->g, x));
        if (hlo_shape_equal(hlo_shape_of(f->g, x), hlo_shape_of(f->g, v)))
            break;
    }
    return chance(f, 3) == 0 ? x : v;
}

static void keep(fuzz *f, hlo_val v)
{
    calls++;
    if (v.id == 0 || hlo_graph_error(f->g) != NULL)
        return;
    f->pool[f->n < POOL ? f->n++ : (int)chance(f, POOL)] = v;
}

/* `n` numbers below `below`; different ones, mostly. */
static hlo_dims some_dims(fuzz *f, int64_t n, int64_t below)
{
    hlo_dims d = {.n = n};
    for (int64_t i = 0; i < n && i < HLO_MAX_RANK; i++)
        d.d[i] = below > 0 ? (int64_t)chance(f, (uint32_t)below) : 0;
    if (below == n) { /* a permutation */
        for (int64_t i = 0; i < n && i < HLO_MAX_RANK; i++)
            d.d[i] = i;
        for (int64_t i = 0; i + 1 < n && i + 1 < HLO_MAX_RANK; i++) {
            int64_t k = i + chance(f, (uint32_t)(n - i)), t = d.d[i];
            d.d[i] = d.d[k];
            d.d[k] = t;
        }
    }
    if (wrong(f))
        d.n = odd_number(f);
    if (wrong(f))
        d.d[chance(f, HLO_MAX_RANK)] = odd_number(f);
    return d;
}

static hlo_shape some_shape(fuzz *f)
{
    hlo_shape s = {.type = any_type(f), .rank = (int)chance(f, 4)};
    for (int i = 0; i < s.rank; i++)
        s.dims[i] = chance(f, 5);
    if (wrong(f))
        s.rank = (int)odd_number(f);
    if (wrong(f))
        s.dims[chance(f, HLO_MAX_RANK)] = odd_number(f);
    return s;
}

static int some_dim(fuzz *f, hlo_val x)
{
    int rank = hlo_rank(f->g, x);
    return wrong(f) ? (int)odd_number(f) : (int)chance(f, (uint32_t)(rank < 1 ? 1 : rank));
}

/* ---- calls by family ---- */

static void unary(fuzz *f)
{
    static hlo_val (*const ops[])(hlo_graph *, hlo_val) = {
#define POINTER(name, spelling) hlo_##name,
        HLO_UNARY_OPS(POINTER) hlo_erf,
        hlo_gelu,
        hlo_silu,
        hlo_stop_gradient,
        hlo_keep,
        hlo_zeros_like,
    };
    hlo_val x = chance(f, 5) == 0 ? any_value(f) : float_value(f);
    keep(f, ops[chance(f, sizeof ops / sizeof *ops)](f->g, x));
}

static void binary(fuzz *f)
{
    static hlo_val (*const ops[])(hlo_graph *, hlo_val, hlo_val) = {
        HLO_BINARY_OPS(POINTER) hlo_matmul,
        hlo_take,
        hlo_cross_entropy,
        hlo_causal_conv,
#undef POINTER
    };
    hlo_val x = any_value(f);
    uint32_t n = chance(f, 2) ? 8 : sizeof ops / sizeof *ops; /* the first ones take all numbers */
    keep(f, ops[chance(f, n)](f->g, x, like(f, x)));
}

static void constants(fuzz *f)
{
    static const double data[64] = {1, 2, 3};
    hlo_shape s = some_shape(f);
    hlo_val x = any_value(f);
    switch (chance(f, 6)) {
    case 0:
        keep(f, hlo_scalar(f->g, any_type(f), (double)odd_number(f)));
        break;
    case 1:
        keep(f, hlo_scalar_int(f->g, any_type(f), odd_number(f)));
        break;
    case 2:
        keep(f, hlo_full(f->g, s, 0.5));
        break;
    case 3:
        keep(f, hlo_like(f->g, x, 2));
        break;
    case 4:
        if (hlo_shape_elements(&s) <= 64) /* there is no way to tell how long the data is */
            keep(f, hlo_constant(f->g, s, data));
        break;
    default:
        keep(f, hlo_iota(f->g, s, (int)chance(f, 4)));
    }
}

static void choosing(fuzz *f)
{
    hlo_val x = any_value(f), y = like(f, x), z = like(f, x);
    switch (chance(f, 5)) {
    case 0:
        keep(f, hlo_compare(f->g, (hlo_compare_kind)chance(f, wrong(f) ? 20 : 6), x, y));
        break;
    case 1:
        keep(f, hlo_select(f->g, value_of(f, HLO_PRED), x, y));
        break;
    case 2:
        keep(f, hlo_clamp(f->g, x, y, z));
        break;
    case 3:
        keep(f, hlo_convert(f->g, x, any_type(f)));
        break;
    default:
        keep(f, hlo_bitcast(f->g, x, any_type(f)));
    }
}

static void shaping(fuzz *f)
{
    hlo_val x = any_value(f), parts[4] = {x, like(f, x), like(f, x), like(f, x)};
    int rank = hlo_rank(f->g, x);
    const hlo_shape *shape = hlo_shape_of(f->g, x);
    hlo_dims own = {.n = rank}, start = own, stride = own;
    for (int i = 0; i < rank; i++) {
        start.d[i] = chance(f, (uint32_t)shape->dims[i] + 1);
        own.d[i] = start.d[i] + chance(f, (uint32_t)(shape->dims[i] - start.d[i]) + 1);
        stride.d[i] = 1 + chance(f, 2);
    }
    if (wrong(f))
        own = some_dims(f, chance(f, 5), 6);
    if (wrong(f))
        start = some_dims(f, chance(f, 5), 6);
    switch (chance(f, 11)) {
    case 0:
        keep(f, hlo_broadcast(f->g, x, some_dims(f, chance(f, 5), 5), some_dims(f, rank, rank)));
        break;
    case 1:
        keep(f, hlo_broadcast_to(f->g, x, some_dims(f, chance(f, 5), 5)));
        break;
    case 2:
        keep(f, hlo_reshape(f->g, x, chance(f, 2) ? HLO_DIMS(-1) : some_dims(f, chance(f, 4), 6)));
        break;
    case 3:
        keep(f, hlo_transpose(f->g, x, some_dims(f, rank, rank)));
        break;
    case 4:
        keep(f, hlo_reverse(f->g, x, some_dims(f, chance(f, 2), rank)));
        break;
    case 5:
        keep(f, hlo_slice(f->g, x, start, own, stride));
        break;
    case 6:
        keep(f, hlo_slice_dim(f->g, x, some_dim(f, x), wrong(f) ? odd_number(f) : 0,
                              wrong(f) ? odd_number(f) : -1));
        break;
    case 7:
        keep(f, hlo_pad(f->g, x, value_of(f, hlo_type_of(f->g, x)), some_dims(f, rank, 3),
                        some_dims(f, rank, 3), some_dims(f, rank, 2)));
        break;
    case 8:
        keep(f, hlo_concat(f->g, parts, wrong(f) ? (int)chance(f, 5) : 2, some_dim(f, x)));
        break;
    case 9:
        keep(f, hlo_stack(f->g, parts, wrong(f) ? (int)chance(f, 5) : 2, some_dim(f, x)));
        break;
    default:
        keep(f, hlo_shard(f->g, x, HLO_SPEC(chance(f, 2) ? "x" : NULL, chance(f, 3) ? NULL : "y")));
    }
}

static void moving(fuzz *f)
{
    hlo_val x = any_value(f), starts[HLO_MAX_RANK], i = value_of(f, HLO_S32);
    int rank = hlo_rank(f->g, x);
    hlo_dims sizes = {.n = rank};
    for (int d = 0; d < HLO_MAX_RANK; d++)
        starts[d] = wrong(f) ? any_value(f) : hlo_scalar_int(f->g, HLO_S32, d);
    for (int d = 0; d < rank; d++)
        sizes.d[d] = chance(f, (uint32_t)hlo_dim(f->g, x, d) + 1);
    if (wrong(f))
        sizes = some_dims(f, chance(f, 4), 5);
    switch (chance(f, 4)) {
    case 0:
        keep(f, hlo_dynamic_slice(f->g, x, starts, sizes));
        break;
    case 1:
        keep(f, hlo_dynamic_update(f->g, x, like(f, x), starts));
        break;
    case 2:
        keep(f, hlo_index(f->g, x, some_dim(f, x), wrong(f) ? i : starts[0]));
        break;
    default:
        keep(f, hlo_update_index(f->g, x, some_dim(f, x), wrong(f) ? i : starts[0], like(f, x)));
    }
}

static void reducing(fuzz *f)
{
    hlo_val x = chance(f, 2) ? float_value(f) : any_value(f);
    hlo_reduce_kind kind = (hlo_reduce_kind)chance(f, wrong(f) ? 20 : 6);
    hlo_dims dims = some_dims(f, chance(f, 2), hlo_rank(f->g, x));
    switch (chance(f, 8)) {
    case 0:
        keep(f, hlo_reduce(f->g, kind, x, dims));
        break;
    case 1:
        keep(f, hlo_sum(f->g, x, dims));
        break;
    case 2:
        keep(f, hlo_mean(f->g, x, dims));
        break;
    case 3:
        keep(f, hlo_reduce_keep(f->g, kind, x, dims));
        break;
    case 4:
        keep(f, hlo_cumsum(f->g, x, some_dim(f, x)));
        break;
    case 5:
        keep(f, hlo_argmax(f->g, x, some_dim(f, x)));
        break;
    case 6:
        keep(f, hlo_softmax(f->g, x, some_dim(f, x)));
        break;
    default:
        keep(f, hlo_log_softmax(f->g, x, some_dim(f, x)));
    }
}

static void products(fuzz *f)
{
    static const char *const specs[] = {
        "ij,jk->ik", "i,i->", "ij,kj->ki", "bij,bjk->bik", "i,j->ij",   "ii,i->i",  "ij,j->k",   "",
        "->",        "ij",    ",->",       "i,->i",        "Ab,bC->AC", "i j,j->i", "ij,jk->iik"};
    hlo_val x = float_value(f), w = like(f, x);
    hlo_dot_options o = {.lhs_batch = some_dims(f, chance(f, 2), hlo_rank(f->g, x)),
                         .rhs_batch = some_dims(f, chance(f, 2), hlo_rank(f->g, w)),
                         .lhs_contract = some_dims(f, chance(f, 2), hlo_rank(f->g, x)),
                         .rhs_contract = some_dims(f, chance(f, 2), hlo_rank(f->g, w)),
                         .precision = (hlo_precision)chance(f, wrong(f) ? 9 : 3),
                         .result = wrong(f) ? any_type(f) : HLO_TYPE_NONE};
    hlo_conv_options c = {chance(f, 3), chance(f, 3), chance(f, 3)};
    const char *spec = specs[chance(f, wrong(f) ? sizeof specs / sizeof *specs : 4)];
    if (wrong(f))
        c.groups = odd_number(f);
    switch (chance(f, 5)) {
    case 0:
        keep(f, hlo_dot(f->g, x, w, &o));
        break;
    case 1:
        keep(f, hlo_einsum(f->g, spec, x, w));
        break;
    case 2:
        keep(f, hlo_einsum_as(f->g, spec, x, w, any_type(f), HLO_PRECISION_DEFAULT));
        break;
    case 3:
        keep(f, hlo_conv1d(f->g, x, w, &c));
        break;
    default:
        keep(f, hlo_matmul(f->g, x, w));
    }
}

static void gathering(fuzz *f)
{
    hlo_val x = any_value(f), i = value_of(f, HLO_S32), arrays[3] = {x, like(f, x), i}, out[3];
    int rank = hlo_rank(f->g, x);
    hlo_gather_dims d = {.offset = some_dims(f, chance(f, 3), rank + 1),
                         .collapsed = some_dims(f, chance(f, 2), rank),
                         .start_map = some_dims(f, chance(f, 2), rank),
                         .index_vector_dim = chance(f, 3)};
    if (wrong(f))
        d.operand_batch = d.indices_batch = some_dims(f, 1, rank);
    if (wrong(f))
        d.index_vector_dim = odd_number(f);
    switch (chance(f, 6)) {
    case 0:
        keep(f, hlo_gather(f->g, x, i, &d, some_dims(f, rank, 3)));
        break;
    case 1:
        keep(f, hlo_scatter_add(f->g, x, i, like(f, x), &d));
        break;
    case 2:
        hlo_sort(f->g, arrays, 1 + (int)chance(f, 2), some_dim(f, x), chance(f, 2) == 0, out);
        keep(f, out[0]);
        break;
    case 3:
        hlo_top_k(f->g, x, wrong(f) ? odd_number(f) : chance(f, 3), &out[0], &out[1]);
        keep(f, out[0]);
        keep(f, out[1]);
        break;
    case 4:
        keep(f, hlo_random_bits(f->g, value_of(f, HLO_U64), some_shape(f), &out[0]));
        break;
    default:
        keep(f, hlo_random_uniform(f->g, value_of(f, HLO_U64), some_shape(f), &out[0]));
    }
}

static void networks(fuzz *f)
{
    hlo_val x = float_value(f);
    switch (chance(f, 3)) {
    case 0:
        keep(f, hlo_layer_norm(f->g, x, like(f, x), like(f, x), 1e-5));
        break;
    case 1:
        keep(f, hlo_rms_norm(f->g, x, like(f, x), wrong(f) ? -1.0 : 1e-5));
        break;
    default:
        keep(f, hlo_rope(f->g, x, any_value(f), wrong(f) ? -1 : 100, chance(f, 2) == 0));
    }
}

/* ---- bodies ---- */

static void step(fuzz *f);

/* Some calls inside a body that was given `in`; what it made is not to be seen after it, but now
 * and then it is tried. */
static void fill(fuzz *f, const hlo_val *in, int n_in, hlo_val *out, const hlo_shape *shapes,
                 int n_out)
{
    hlo_val before[POOL];
    int n = f->n;
    memcpy(before, f->pool, sizeof before);
    f->depth++;
    for (int i = 0; i < n_in; i++)
        keep(f, in[i]);
    for (uint32_t i = chance(f, 5); i > 0; i--)
        step(f);
    for (int i = 0; i < n_out; i++) {
        out[i] = any_value(f);
        for (int k = 0; k < 30 && !wrong(f); k++) {
            if (hlo_shape_equal(hlo_shape_of(f->g, out[i]), &shapes[i]))
                break;
            out[i] = any_value(f);
        }
        if (!hlo_shape_equal(hlo_shape_of(f->g, out[i]), &shapes[i]) && !wrong(f))
            out[i] = hlo_full(f->g, shapes[i], 1);
    }
    f->depth--;
    if (!wrong(f)) {
        memcpy(f->pool, before, sizeof before);
        f->n = n;
    }
}

static void body(hlo_graph *g, void *ctx, const hlo_val *in, hlo_val *out)
{
    fuzz *f = ctx;
    (void)g;
    hlo_shape shapes[2] = {f->shapes[0], f->shapes[1]}; /* bodies inside have shapes of their own */
    fill(f, in, in == NULL ? 0 : 2, out, shapes, 2);
    memcpy(f->shapes, shapes, sizeof shapes);
}

static hlo_val condition(hlo_graph *g, void *ctx, const hlo_val *in)
{
    fuzz *f = ctx;
    hlo_val out;
    hlo_shape keep_shapes[2] = {f->shapes[0], f->shapes[1]}, pred = HLO_SCALAR(HLO_PRED);
    (void)g;
    fill(f, in, 2, &out, &pred, 1);
    memcpy(f->shapes, keep_shapes, sizeof keep_shapes);
    return out;
}

static void scan_body(hlo_graph *g, void *ctx, hlo_val number, const hlo_val *carry,
                      const hlo_val *x, hlo_val *next_carry, hlo_val *y)
{
    fuzz *f = ctx;
    hlo_val in[3] = {number, carry[0], x == NULL ? number : x[0]}, out[2];
    hlo_shape shapes[2] = {f->shapes[0], f->shapes[1]};
    (void)g;
    fill(f, in, 3, out, shapes, 2);
    memcpy(f->shapes, shapes, sizeof shapes);
    next_carry[0] = out[0];
    y[0] = out[1];
}

static void rule(hlo_graph *g, void *ctx, const hlo_val *in, int n_in, const hlo_val *out,
                 const hlo_val *d_out, int n_out, hlo_val *d_in)
{
    (void)ctx, (void)n_out, (void)out;
    for (int i = 0; i < n_in; i++) {
        bool same = hlo_shape_equal(hlo_shape_of(g, in[i]), hlo_shape_of(g, d_out[0]));
        d_in[i] = same ? d_out[0] : (hlo_val){0};
    }
}

static void scans(fuzz *f, hlo_val *in, hlo_val *out)
{
    hlo_scan_options o = {.reverse = chance(f, 2) == 0,
                          .unroll = wrong(f) ? (int)odd_number(f) : (int)chance(f, 4),
                          .save = (hlo_save)chance(f, wrong(f) ? 7 : 3),
                          .checkpoint = {chance(f, 2) ? 0 : 1 + chance(f, 3), chance(f, 3)}};
    bool with_input = hlo_rank(f->g, in[1]) > 0;
    o.length = with_input ? 0 : chance(f, 6);
    if (o.unroll > 1000)
        o.unroll = 1000; /* asked for, and given: a body a thousand times */
    if (wrong(f))
        o.length = odd_number(f);
    if (wrong(f))
        o.checkpoint[chance(f, HLO_MAX_CHECKPOINT_LEVELS)] = odd_number(f);
    f->shapes[1] = HLO_SHAPE(HLO_F32, 2);
    hlo_scan(f->g, scan_body, f, in, 1, in + 1, with_input ? 1 : 0, out + 1, 1,
             chance(f, 8) == 0 ? NULL : &o);
    out[0] = in[0];
}

static void control(fuzz *f)
{
    static const char *const names[] = {"f", "ttt.f", "odd \"name\"", "", "a.b.c", "\n"};
    const char *name = names[chance(f, wrong(f) ? 6 : 2)];
    hlo_body branches[2] = {body, wrong(f) ? NULL : body};
    hlo_val in[2] = {float_value(f), any_value(f)}, out[2] = {{0}, {0}};
    if (f->depth >= MAX_DEPTH)
        return;
    f->shapes[0] = *hlo_shape_of(f->g, in[0]);
    f->shapes[1] = *hlo_shape_of(f->g, in[1]);
    if (hlo_graph_error(f->g) != NULL)
        return;
    switch (chance(f, 9)) {
    case 0:
        hlo_while(f->g, condition, body, f, in, 2);
        memcpy(out, in, sizeof out);
        break;
    case 1:
        hlo_if(f->g, value_of(f, HLO_PRED), body, branches[1], f, out, 2);
        break;
    case 2:
        hlo_case(f->g, value_of(f, HLO_S32), branches, wrong(f) ? (int)chance(f, 3) : 2, f, out, 2);
        break;
    case 3:
        hlo_call(f->g, name, body, f, in, 2, out, 2);
        break;
    case 4:
        hlo_composite(f->g, name, body, f, in, 2, out, 2);
        break;
    case 5:
        hlo_remat(f->g, body, f, (hlo_save)chance(f, wrong(f) ? 9 : 3), in, 2, out, 2);
        break;
    case 6:
        hlo_custom_vjp(f->g, body, rule, f, in, 2, out, 2);
        break;
    case 7:
        hlo_barrier(f->g, in, wrong(f) ? (int)chance(f, 3) : 2, out);
        break;
    default:
        scans(f, in, out);
    }
    keep(f, out[0]);
    keep(f, out[1]);
}

static void gradients(fuzz *f)
{
    hlo_val x = float_value(f), d[2] = {{0}, {0}}, wrt[2] = {float_value(f), float_value(f)};
    if (chance(f, 2) == 0) {
        hlo_dims all = {.n = hlo_rank(f->g, x)};
        for (int i = 0; i < all.n; i++)
            all.d[i] = i;
        hlo_val loss = wrong(f) ? any_value(f) : hlo_sum(f->g, x, all);
        hlo_grad(f->g, loss, wrt, 2, d);
    } else {
        hlo_val y = wrong(f) ? any_value(f) : like(f, x);
        hlo_vjp(f->g, &x, &y, 1, wrt, 2, d);
    }
    keep(f, d[0]);
    keep(f, d[1]);
}

static void devices(fuzz *f)
{
    static const int64_t ids[] = {0, 1, 2, 3, 3, -1};
    hlo_val x = any_value(f);
    hlo_groups groups = {ids, 1 + (int)chance(f, 2), wrong(f) ? (int)chance(f, 4) : 2};
    const int64_t pairs[2][2] = {{0, 1}, {wrong(f) ? 0 : 1, 0}};
    switch (chance(f, 6)) {
    case 0:
        keep(f, hlo_all_reduce(f->g, (hlo_reduce_kind)chance(f, 6), x, groups));
        break;
    case 1:
        keep(f, hlo_all_gather(f->g, x, some_dim(f, x), groups));
        break;
    case 2:
        keep(f, hlo_reduce_scatter(f->g, x, some_dim(f, x), groups));
        break;
    case 3:
        keep(f, hlo_collective_permute(f->g, x, pairs, wrong(f) ? (int)chance(f, 3) : 2));
        break;
    case 4:
        keep(f, hlo_partition_id(f->g));
        break;
    default:
        hlo_donate(f->g, x, (int)chance(f, 3));
    }
}

static void step(fuzz *f)
{
    static void (*const families[])(fuzz *) = {
        unary,  unary,    binary,   binary,    constants, choosing, shaping, shaping,
        moving, reducing, products, gathering, networks,  control,  control, gradients};
    if (chance(f, 40) == 0) {
        if (wrong(f))
            devices(f);
        if (chance(f, 2) == 0)
            hlo_scope_push(f->g, "scope%d", (int)chance(f, 3));
        else if (wrong(f))
            hlo_scope_pop(f->g);
        return;
    }
    /* Inside bodies mostly the simplest, for one error there undoes the whole body. */
    uint32_t n = f->depth > 0 && chance(f, 3) != 0 ? 4 : sizeof families / sizeof *families;
    families[chance(f, n)](f);
}

/* ---- a graph ---- */

static void start(fuzz *f)
{
    static const char *const names[] = {"x", "y"};
    const hlo_shape shapes[] = {
        HLO_SHAPE(HLO_F32, 2, 3),    HLO_SHAPE(HLO_F32, 3),    HLO_SHAPE(HLO_F64, 2, 2),
        HLO_SHAPE(HLO_S32, 3),       HLO_SCALAR(HLO_S32),      HLO_SCALAR(HLO_PRED),
        HLO_SHAPE(HLO_U64, 2),       HLO_SHAPE(HLO_F32, 3, 3), HLO_SHAPE(HLO_BF16, 2),
        HLO_SHAPE(HLO_F32, 2, 4, 2), HLO_SHAPE(HLO_F32, 0, 3), HLO_SCALAR(HLO_F32)};
    if (chance(f, 4) == 0)
        hlo_mesh(f->g, names, (int64_t[]){2, wrong(f) ? odd_number(f) : 2}, 2);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        keep(f, hlo_param(f->g, "p", shapes[i]));
    if (wrong(f) && wrong(f))
        keep(f, hlo_param(f->g, "q", some_shape(f)));
}

static void dump(const char *text, uint64_t seed)
{
    char path[1000];
    const char *folder = getenv("TTT_FUZZ_DUMP");
    if (folder == NULL)
        return;
    snprintf(path, sizeof path, "%s/%llu.mlir", folder, (unsigned long long)seed);
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    fputs(text, out);
    fclose(out);
}

static void finish(fuzz *f, uint64_t seed)
{
    hlo_write_options o = {.gspmd = chance(f, 4) == 0, .no_locations = chance(f, 2) == 0};
    size_t size = 0;
    hlo_portable_options portable = {0};
    for (int i = 0; i < 3 && f->n > 0; i++)
        hlo_result(f->g, "r", f->pool[f->n - 1 - (int)chance(f, (uint32_t)f->n)]);
    char *text = hlo_write_text(f->g, &o);
    const hlo_error *error = hlo_graph_error(f->g);
    if (error != NULL) {
        errors++;
        assert_null(text);
        if (getenv("TTT_FUZZ_TELL") != NULL)
            print_message("%s\n", error->message);
        assert_true(error->message[0] != '\0');
        assert_true(error->code >= HLO_ERROR_SHAPE && error->code < HLO_ERROR_MEMORY);
        assert_int_equal(hlo_scalar(f->g, HLO_F32, 1).id, 0); /* it sticks */
        assert_null(hlo_write_portable(f->g, NULL, &size));
        return;
    }
    texts++;
    assert_non_null(text);
    char *again = hlo_write_text(f->g, &o); /* writing changes nothing */
    assert_non_null(again);
    assert_string_equal(text, again);
    dump(text, seed);
    free(again);
    free(text);
    free(hlo_write_portable(f->g, &portable, &size));
}

/* The steps that went well so far, each by the number that chance starts from. */
enum { MAX_STEPS = 40 };
typedef struct history {
    uint64_t steps[MAX_STEPS];
    int n;
} history;

static void restart(fuzz *f, uint64_t seed, const history *h)
{
    hlo_graph_free(f->g);
    f->g = hlo_graph_new("fuzz");
    assert_non_null(f->g);
    f->n = 0;
    f->random = seed;
    start(f);
    hlo_set_f32_gradient_sums(f->g, chance(f, 2) == 0);
    for (int i = 0; i < h->n; i++) {
        f->random = h->steps[i];
        step(f);
    }
}

/*
 * Most random calls are wrong, and the first error is the last thing that happens to a graph. So
 * the graph is built again without the wrong call, and only sometimes left with its error.
 */
static void one_seed(uint64_t seed)
{
    static const int mistakes[] = {1000000, 300, 60, 15};
    uint64_t mixed = seed * 0x9e3779b97f4a7c15u + 1;
    fuzz f = {.wrong = mistakes[seed % 4]};
    history h = {.n = 0};
    restart(&f, mixed, &h);
    for (uint64_t i = 1; i < 80 && h.n < MAX_STEPS; i++) {
        f.random = mixed + i * 0xd1342543de82ef95u;
        h.steps[h.n] = f.random;
        step(&f);
        if (hlo_graph_error(f.g) == NULL) {
            h.n++;
        } else if (f.wrong < 1000 && chance(&f, 30) == 0) {
            step(&f); /* nothing more may happen */
            break;
        } else {
            restart(&f, mixed, &h);
        }
    }
    finish(&f, seed);
    for (int i = 0; i < f.n && chance(&f, 4) == 0; i++)
        dead[n_dead < POOL ? n_dead++ : (int)chance(&f, POOL)] = f.pool[i];
    hlo_graph_free(f.g);
}

static uint64_t seeds = 2000, first_seed = 1;

static void random_calls(void **state)
{
    (void)state;
    for (uint64_t seed = first_seed; seed < first_seed + seeds; seed++)
        one_seed(seed);
    print_message("%lld calls, %lld graphs with an error, %lld without\n", (long long)calls,
                  (long long)errors, (long long)texts);
    if (seeds >= 200) { /* both kinds, or it tests nothing */
        assert_true(errors > (int64_t)seeds / 20);
        assert_true(texts > (int64_t)seeds / 20);
    }
}

static void nested(hlo_graph *g, void *ctx, const hlo_val *in, hlo_val *out)
{
    int *depth = ctx;
    out[0] = hlo_sin(g, in[0]);
    if (--*depth > 0)
        hlo_remat(g, nested, depth, HLO_SAVE_ALL, out, 1, out, 1);
}

/* Bodies in bodies, far deeper than a model has them. */
static void deep_nesting(void **state)
{
    (void)state;
    for (int round = 0; round < 2; round++) {
        int depth = round == 0 ? 200 : 12; /* gradients of nested bodies nest too */
        hlo_graph *g = hlo_graph_new("deep");
        hlo_val x = hlo_param(g, "x", HLO_SCALAR(HLO_F32)), y, d;
        hlo_remat(g, nested, &depth, HLO_SAVE_ALL, &x, 1, &y, 1);
        if (round == 1) {
            hlo_grad(g, y, &x, 1, &d);
            hlo_result(g, "d", d);
        }
        hlo_result(g, "y", y);
        char *text = hlo_write_text(g, NULL);
        assert_non_null(text);
        assert_null(hlo_graph_error(g));
        free(text);
        hlo_graph_free(g);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_calls),
        cmocka_unit_test(deep_nesting),
    };
    if (getenv("TTT_FUZZ_SEEDS") != NULL)
        seeds = strtoull(getenv("TTT_FUZZ_SEEDS"), NULL, 10);
    if (argc > 1)
        seeds = strtoull(argv[1], NULL, 10);
    if (argc > 2)
        first_seed = strtoull(argv[2], NULL, 10);
    return cmocka_run_group_tests_name("hlo_builder api fuzz", tests, NULL, NULL);
}
