/*
 * Reductions, products, convolution, gather and scatter, sort, random numbers, collectives and the
 * pieces of networks as they are added: shape rules, types, the words of errors, the form of some
 * gradients, bad handles. What they compute is tested elsewhere.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "hlo_builder/internal.h"

static int open_graph(void **state)
{
    *state = hlo_graph_new("test");
    return *state == NULL;
}

static int close_graph(void **state)
{
    hlo_graph_free(*state);
    return 0;
}

static void check_shape(hlo_graph *g, hlo_val v, const char *shape, int line)
{
    char text[HLO_SHAPE_TEXT];
    const hlo_error *error = hlo_graph_error(g);
    if (error != NULL || strcmp(hlo_shape_text(hlo_shape_of(g, v), text), shape) != 0)
        fail_msg("line %d: %s", line, error != NULL ? error->message : text);
}
#define ASSERT_SHAPE(v, shape) check_shape(g, v, shape, __LINE__)

/* Each wrong call has a graph of its own, for errors stick. These values are in it. */
static struct {
    hlo_graph *g;
    hlo_val x, y, z, b, h, p, i, scalar, state;
} w;

static void open_wrong(void)
{
    w.g = hlo_graph_new("wrong");
    hlo_scope_push(w.g, "here");
    w.x = hlo_param(w.g, "x", HLO_SHAPE(HLO_F32, 2, 3));
    w.y = hlo_param(w.g, "y", HLO_SHAPE(HLO_F32, 3, 4));
    w.z = hlo_param(w.g, "z", HLO_SHAPE(HLO_F32, 2, 5, 6));
    w.b = hlo_param(w.g, "b", HLO_SHAPE(HLO_F32, 3));
    w.h = hlo_param(w.g, "h", HLO_SHAPE(HLO_BF16, 2, 3));
    w.p = hlo_param(w.g, "p", HLO_SHAPE(HLO_PRED, 2, 3));
    w.i = hlo_param(w.g, "i", HLO_SHAPE(HLO_S32, 2));
    w.scalar = hlo_param(w.g, "scalar", HLO_SCALAR(HLO_F32));
    w.state = hlo_param(w.g, "state", HLO_SHAPE(HLO_U64, 2));
}

static void check_refused(hlo_val made, const char *words, int line)
{
    const hlo_error *error = hlo_graph_error(w.g);
    if (error == NULL || error->code != HLO_ERROR_SHAPE ||
        strncmp(error->message, "here", 4) != 0 || strstr(error->message, words) == NULL)
        fail_msg("line %d: %s", line, error == NULL ? "no error" : error->message);
    assert_int_equal(made.id, 0);
    hlo_graph_free(w.g);
}
#define ASSERT_REFUSED(call, words) (open_wrong(), check_refused(call, words, __LINE__))

/* How many nodes of @main, from number `from` on, are of that operation. */
static int count(hlo_graph *g, hlo_op op, int from)
{
    const hlo_block *block = hlo__main_block(g);
    int n = 0;
    for (int i = from; i < block->n_nodes; i++)
        n += block->nodes[i]->op == op;
    return n;
}

static int num_nodes(hlo_graph *g)
{
    return hlo__main_block(g)->n_nodes;
}

static const hlo_node *node_of(hlo_graph *g, hlo_val v)
{
    const hlo_value *value = hlo__value(g, v);
    assert_non_null(value);
    return value->node;
}

/* The gradient of the sum of v. */
static void grad_sum(hlo_graph *g, hlo_val v, const hlo_val *wrt, int n, hlo_val *out)
{
    hlo_dims all = {.n = hlo_rank(g, v)};
    for (int i = 0; i < all.n; i++)
        all.d[i] = i;
    hlo_grad(g, hlo_sum(g, v, all), wrt, n, out);
}

/* ---- reductions ---- */

static void reductions(void **state)
{
    hlo_graph *g = *state;
    hlo_val x = hlo_param(g, "x", HLO_SHAPE(HLO_F32, 2, 3, 4));
    ASSERT_SHAPE(hlo_sum(g, x, HLO_DIMS(1)), "f32[2,4]");
    ASSERT_SHAPE(hlo_sum(g, x, HLO_DIMS(2, 0, 1)), "f32[]");
    ASSERT_SHAPE(hlo_reduce_keep(g, HLO_REDUCE_MAX, x, HLO_DIMS(-1, 0)), "f32[1,3,1]");
    ASSERT_SHAPE(hlo_mean(g, x, HLO_DIMS(-1)), "f32[2,3]");
    assert_int_equal(hlo_sum(g, x, HLO_NO_DIMS).id, x.id);
    /* One form for one meaning. */
    assert_int_equal(hlo_sum(g, x, HLO_DIMS(0, 2)).id, hlo_sum(g, x, HLO_DIMS(-1, 0)).id);
    hlo_val p = hlo_compare(g, HLO_LT, x, hlo_like(g, x, 0));
    ASSERT_SHAPE(hlo_reduce(g, HLO_REDUCE_AND, p, HLO_DIMS(0, 1, 2)), "i1[]");
    ASSERT_SHAPE(hlo_cumsum(g, x, -2), "f32[2,3,4]");
    ASSERT_SHAPE(hlo_argmax(g, x, 1), "i32[2,4]");
    hlo_val empty = hlo_param(g, "empty", HLO_SHAPE(HLO_F32, 2, 0));
    ASSERT_SHAPE(hlo_sum(g, empty, HLO_DIMS(1)), "f32[2]");
    assert_int_equal(hlo_cumsum(g, empty, 1).id, empty.id);

    ASSERT_REFUSED(hlo_sum(w.g, w.x, HLO_DIMS(2)), "here: reduce: the reduced dimensions are not");
    ASSERT_REFUSED(hlo_sum(w.g, w.x, HLO_DIMS(0, -2)), "of a rank 2 array (f32[2,3])");
    ASSERT_REFUSED(hlo_sum(w.g, w.x, ((hlo_dims){.n = 99})), "reduced dimensions");
    ASSERT_REFUSED(hlo_sum(w.g, w.p, HLO_DIMS(0)), "\"add\" does not go with i1");
    ASSERT_REFUSED(hlo_reduce(w.g, HLO_REDUCE_AND, w.x, HLO_DIMS(0)),
                   "\"and\" does not go with f32");
    ASSERT_REFUSED(hlo_reduce(w.g, (hlo_reduce_kind)77, w.x, HLO_DIMS(0)), "no such kind");
    ASSERT_REFUSED(hlo_mean(w.g, w.i, HLO_DIMS(0)), "a mean is of floats, not of i32");
    ASSERT_REFUSED(hlo_cumsum(w.g, w.x, 2), "reduced dimensions");
    ASSERT_REFUSED(hlo_argmax(w.g, hlo_slice_dim(w.g, w.x, 0, 1, 1), 0), "argmax over 0 elements");
}

static void short_floats_are_summed_in_f32(void **state)
{
    hlo_graph *g = *state;
    hlo_val x = hlo_param(g, "x", HLO_SHAPE(HLO_BF16, 2, 300));
    hlo_val sum = hlo_sum(g, x, HLO_DIMS(1));
    ASSERT_SHAPE(sum, "bf16[2]");
    const hlo_node *convert = node_of(g, sum);
    assert_int_equal(convert->op, HLO_OP_CONVERT);
    assert_int_equal(convert->in[0]->shape.type, HLO_F32);
    assert_int_equal(convert->in[0]->node->op, HLO_OP_REDUCE);
    /* A maximum needs none of that. */
    assert_int_equal(node_of(g, hlo_reduce(g, HLO_REDUCE_MAX, x, HLO_DIMS(1)))->op, HLO_OP_REDUCE);
    ASSERT_SHAPE(hlo_cumsum(g, x, 1), "bf16[2,300]");
    ASSERT_SHAPE(hlo_mean(g, x, HLO_DIMS(0)), "bf16[300]");
}

/* ---- products ---- */

static hlo_val dot_wrong(hlo_dims lb, hlo_dims rb, hlo_dims lc, hlo_dims rc, hlo_type result)
{
    hlo_dot_options o = {lb, rb, lc, rc, HLO_PRECISION_DEFAULT, result};
    return hlo_dot(w.g, w.x, w.y, &o);
}

static void products(void **state)
{
    hlo_graph *g = *state;
    hlo_val a = hlo_param(g, "a", HLO_SHAPE(HLO_BF16, 2, 3, 4, 5));
    hlo_val b = hlo_param(g, "b", HLO_SHAPE(HLO_BF16, 5, 4, 2, 7));
    hlo_dot_options o = {.lhs_batch = HLO_DIMS(2, 0),
                         .rhs_batch = HLO_DIMS(1, 2),
                         .lhs_contract = HLO_DIMS(3),
                         .rhs_contract = HLO_DIMS(0),
                         .result = HLO_F32};
    ASSERT_SHAPE(hlo_dot(g, a, b, &o), "f32[4,2,3,7]");
    o.result = HLO_TYPE_NONE;
    ASSERT_SHAPE(hlo_dot(g, a, b, &o), "bf16[4,2,3,7]");
    ASSERT_SHAPE(hlo_dot(g, hlo_like(g, a, 2), hlo_like(g, a, 3), NULL), "bf16[]");
    hlo_val m = hlo_param(g, "m", HLO_SHAPE(HLO_BF16, 5, 6));
    ASSERT_SHAPE(hlo_matmul(g, a, m), "bf16[2,3,4,6]");
    hlo_val c = hlo_param(g, "c", HLO_SHAPE(HLO_BF16, 2, 3, 5, 0));
    ASSERT_SHAPE(hlo_matmul(g, a, c), "bf16[2,3,4,0]");

    ASSERT_REFUSED(hlo_matmul(w.g, w.y, w.x),
                   "here: dot_general: contracting 4 and 2 (f32[3,4], f32[2,3])");
    ASSERT_REFUSED(hlo_matmul(w.g, w.x, w.b), "matmul of ranks 2 and 1");
    ASSERT_REFUSED(hlo_matmul(w.g, w.x, w.z), "matmul of ranks 2 and 3");
    ASSERT_REFUSED(hlo_matmul(w.g, w.x, w.h), "not f32 and bf16");
    hlo_dims none = HLO_NO_DIMS;
    ASSERT_REFUSED(dot_wrong(none, none, HLO_DIMS(1), none, 0), "contracting dimensions are");
    ASSERT_REFUSED(dot_wrong(none, none, HLO_DIMS(2), HLO_DIMS(0), 0),
                   "contracting dimensions are");
    ASSERT_REFUSED(dot_wrong(HLO_DIMS(0, 0), HLO_DIMS(0, 1), none, none, 0), "batching dimensions");
    ASSERT_REFUSED(dot_wrong(HLO_DIMS(0), HLO_DIMS(0), none, none, 0), "batching 2 and 3");
    ASSERT_REFUSED(dot_wrong(HLO_DIMS(1), HLO_DIMS(0), HLO_DIMS(1), HLO_DIMS(0), 0),
                   "dimension 1 of operand 0 is both");
    ASSERT_REFUSED(dot_wrong(none, none, HLO_DIMS(1), HLO_DIMS(0), HLO_BF16),
                   "f32 cannot be accumulated in bf16");
    ASSERT_REFUSED(dot_wrong(none, none, HLO_DIMS(1), HLO_DIMS(0), HLO_S64), "in i64");
}

/* A matmul of short floats into f32 goes backwards as two products of short floats, and nothing is
 * transposed. */
static void gradients_of_products_are_products(void **state)
{
    hlo_graph *g = *state;
    hlo_val in[2] = {hlo_param(g, "a", HLO_SHAPE(HLO_BF16, 2, 3, 4)),
                     hlo_param(g, "b", HLO_SHAPE(HLO_BF16, 4, 5))};
    hlo_dot_options o = {.lhs_contract = HLO_DIMS(2),
                         .rhs_contract = HLO_DIMS(0),
                         .precision = HLO_PRECISION_HIGH,
                         .result = HLO_F32};
    hlo_val y = hlo_dot(g, in[0], in[1], &o), d[2];
    int before = num_nodes(g);
    grad_sum(g, y, in, 2, d);
    ASSERT_SHAPE(d[0], "bf16[2,3,4]");
    ASSERT_SHAPE(d[1], "bf16[4,5]");
    assert_int_equal(count(g, HLO_OP_DOT, before), 2);
    assert_int_equal(count(g, HLO_OP_TRANSPOSE, before), 0);
    for (int i = 0; i < 2; i++) {
        const hlo_node *node = node_of(g, d[i]);
        assert_int_equal(node->op, HLO_OP_DOT);
        assert_int_equal(node->in[0]->shape.type, HLO_BF16);
        assert_int_equal(node->in[1]->shape.type, HLO_BF16);
        assert_int_equal(((const hlo_dot_options *)node->attrs)->precision, HLO_PRECISION_HIGH);
    }
}

static void einsums(void **state)
{
    hlo_graph *g = *state;
    hlo_val q = hlo_param(g, "q", HLO_SHAPE(HLO_F32, 2, 3, 4, 5));
    hlo_val k = hlo_param(g, "k", HLO_SHAPE(HLO_F32, 2, 7, 4, 5));
    ASSERT_SHAPE(hlo_einsum(g, "bqhd,bkhd->bhqk", q, k), "f32[2,4,3,7]");
    ASSERT_SHAPE(hlo_einsum(g, " bqhd , bkhd -> bhkq ", q, k), "f32[2,4,7,3]");
    assert_int_equal(count(g, HLO_OP_TRANSPOSE, 0), 0); /* the operands changed places */
    ASSERT_SHAPE(hlo_einsum(g, "bqhd,bkhd->kbqh", q, k), "f32[7,2,3,4]");
    assert_int_equal(count(g, HLO_OP_TRANSPOSE, 0), 1);
    ASSERT_SHAPE(hlo_einsum(g, "bqhd,bkhd->bhqdk", q, k), "f32[2,4,3,5,7]");
    ASSERT_SHAPE(hlo_einsum(g, "bqhd,bkhd->", q, k), "f32[]");
    int before = num_nodes(g);
    ASSERT_SHAPE(hlo_einsum(g, "bqhd,bkXd->qk", q, k), "f32[3,7]"); /* h and X are summed first */
    assert_int_equal(count(g, HLO_OP_REDUCE, before), 2);
    ASSERT_SHAPE(hlo_einsum(g, ",->", hlo_like(g, q, 1), hlo_like(g, q, 2)), "f32[]");
    hlo_val h = hlo_param(g, "h", HLO_SHAPE(HLO_BF16, 2, 3));
    ASSERT_SHAPE(hlo_einsum_as(g, "ab,cb->ca", h, h, HLO_F32, HLO_PRECISION_HIGHEST), "f32[2,2]");

    ASSERT_REFUSED(hlo_einsum(w.g, "abbc->ac", w.x, w.y), "has a letter twice");
    ASSERT_REFUSED(hlo_einsum(w.g, "ab->ab", w.x, w.y), "has no comma");
    ASSERT_REFUSED(hlo_einsum(w.g, "ab,bc", w.x, w.y), "has no \"->\"");
    ASSERT_REFUSED(hlo_einsum(w.g, "ab,bc-ac", w.x, w.y), "has no \"->\"");
    ASSERT_REFUSED(hlo_einsum(w.g, "ab,bc->ac,", w.x, w.y), "behind the letters of the output");
    ASSERT_REFUSED(hlo_einsum(w.g, "a1,bc->ac", w.x, w.y), "has no comma");
    ASSERT_REFUSED(hlo_einsum(w.g, "ab,bc->aa", w.x, w.y), "has a letter twice");
    ASSERT_REFUSED(hlo_einsum(w.g, "abcdefghi,bc->a", w.x, w.y), "more letters than arrays have");
    ASSERT_REFUSED(hlo_einsum(w.g, "ab,bcd->ac", w.x, w.y),
                   "names 3 dimensions of input 1, which has 2");
    ASSERT_REFUSED(hlo_einsum(w.g, "ab,ca->bc", w.x, w.y), "gives 'a' the sizes 2 and 4");
    ASSERT_REFUSED(hlo_einsum(w.g, "ab,bc->ad", w.x, w.y),
                   "here: dot_general: einsum \"ab,bc->ad\" has 'd' in the output only");
    ASSERT_REFUSED(hlo_einsum(w.g, NULL, w.x, w.y), "is NULL");
    ASSERT_REFUSED(hlo_einsum(w.g, "ab,ab->", w.x, w.h), "not f32 and bf16");
}

static hlo_val conv_wrong(hlo_shape weights, int64_t low, int64_t groups)
{
    hlo_conv_options o = {low, 0, groups};
    return hlo_conv1d(w.g, w.z, hlo_param(w.g, "w", weights), &o);
}

static void convolutions(void **state)
{
    hlo_graph *g = *state;
    hlo_val x = hlo_param(g, "x", HLO_SHAPE(HLO_F32, 2, 9, 4));
    hlo_val k = hlo_param(g, "k", HLO_SHAPE(HLO_F32, 3, 2, 6));
    hlo_conv_options o = {2, 1, 2};
    ASSERT_SHAPE(hlo_conv1d(g, x, k, &o), "f32[2,10,6]");
    hlo_val wide = hlo_param(g, "wide", HLO_SHAPE(HLO_F32, 20, 4, 6));
    ASSERT_SHAPE(hlo_conv1d(g, x, wide, NULL), "f32[2,0,6]");
    hlo_val d;
    grad_sum(g, hlo_conv1d(g, x, wide, NULL), &x, 1, &d); /* nothing came out of x */
    ASSERT_SHAPE(d, "f32[2,9,4]");
    hlo_val causal = hlo_param(g, "causal", HLO_SHAPE(HLO_F32, 4, 4));
    ASSERT_SHAPE(hlo_causal_conv(g, x, causal), "f32[2,9,4]");

    hlo_shape good = HLO_SHAPE(HLO_F32, 3, 6, 4);
    ASSERT_REFUSED(conv_wrong(good, -1, 1), "here: convolution: padding -1 and 0, 1 groups");
    ASSERT_REFUSED(conv_wrong(good, 0, -1), "-1 groups");
    ASSERT_REFUSED(conv_wrong(good, 0, 2), "6 channels in and 4 out in 2 groups, but w takes 6");
    ASSERT_REFUSED(conv_wrong(good, 0, 4), "in 4 groups");
    ASSERT_REFUSED(conv_wrong(HLO_SHAPE(HLO_F32, 0, 6, 4), 0, 1), "the width is 0");
    ASSERT_REFUSED(conv_wrong(HLO_SHAPE(HLO_F32, 6, 4), 0, 1), "x is [batch, time, channels]");
    ASSERT_REFUSED(conv_wrong(HLO_SHAPE(HLO_F16, 3, 6, 4), 0, 1), "not f32 and f16");
    ASSERT_REFUSED(conv_wrong(good, INT64_MAX, 1), "too many elements");
    ASSERT_REFUSED(hlo_causal_conv(w.g, w.z, w.x), "x is [..., time, channels]");
    ASSERT_REFUSED(hlo_causal_conv(w.g, w.x, w.h), "not f32 and bf16");
}

/* ---- gather and scatter ---- */

static void gathers(void **state)
{
    hlo_graph *g = *state;
    hlo_val x = hlo_param(g, "x", HLO_SHAPE(HLO_F32, 3, 5, 7, 2));
    hlo_val i = hlo_param(g, "i", HLO_SHAPE(HLO_S32, 6, 2, 3));
    hlo_gather_dims d = {.offset = HLO_DIMS(0, 2),
                         .collapsed = HLO_DIMS(1),
                         .operand_batch = HLO_DIMS(0),
                         .indices_batch = HLO_DIMS(2),
                         .start_map = HLO_DIMS(2, 1),
                         .index_vector_dim = 1};
    hlo_val y = hlo_gather(g, x, i, &d, HLO_DIMS(1, 1, 4, 2));
    ASSERT_SHAPE(y, "f32[4,6,2,3]");
    ASSERT_SHAPE(hlo_scatter_add(g, x, i, y, &d), "f32[3,5,7,2]");
    hlo_val table = hlo_param(g, "table", HLO_SHAPE(HLO_BF16, 10, 4));
    hlo_val tokens = hlo_param(g, "tokens", HLO_SHAPE(HLO_U16, 2, 3));
    hlo_val rows = hlo_take(g, table, tokens), dt;
    ASSERT_SHAPE(rows, "bf16[2,3,4]");
    grad_sum(g, rows, &table, 1, &dt); /* added up in f32 */
    ASSERT_SHAPE(dt, "bf16[10,4]");
    assert_int_equal(node_of(g, dt)->in[0]->node->op, HLO_OP_SCATTER_ADD);
    assert_int_equal(node_of(g, dt)->in[0]->shape.type, HLO_F32);
    hlo_val none = hlo_param(g, "none", HLO_SHAPE(HLO_F32, 0, 4));
    hlo_val nobody = hlo_param(g, "nobody", HLO_SHAPE(HLO_S32, 0));
    ASSERT_SHAPE(hlo_take(g, none, nobody), "f32[0,4]");
    ASSERT_SHAPE(hlo_take(g, table, nobody), "bf16[0,4]");

    ASSERT_REFUSED(hlo_take(w.g, w.x, w.b), "here: gather: take is of a table");
    ASSERT_REFUSED(hlo_take(w.g, w.scalar, w.i), "take is of a table");
    ASSERT_REFUSED(hlo_take(w.g, hlo_slice_dim(w.g, w.x, 0, 1, 1), w.i), "does not fit");
}

/* Each rule of the dimension numbers, broken alone: rows of x [2, 3] by i [2]. */
static void gather_numbers_are_checked(void **state)
{
    (void)state;
    const hlo_gather_dims good = {.offset = HLO_DIMS(1),
                                  .collapsed = HLO_DIMS(0),
                                  .start_map = HLO_DIMS(0),
                                  .index_vector_dim = 1};
    hlo_dims window = HLO_DIMS(1, 3);
    hlo_gather_dims d = good;
    open_wrong();
    assert_int_not_equal(hlo_gather(w.g, w.x, w.i, &d, window).id, 0);
    hlo_graph_free(w.g);
    ASSERT_REFUSED(hlo_gather(w.g, w.x, w.b, &d, window), "indices are integers");
    ASSERT_REFUSED(hlo_gather(w.g, w.x, w.i, &d, HLO_DIMS(1, 4)), "does not fit into the operand");
    ASSERT_REFUSED(hlo_gather(w.g, w.x, w.i, &d, HLO_DIMS(2, 3)), "the window is 1 along");
    ASSERT_REFUSED(hlo_gather(w.g, w.x, w.i, &d, HLO_DIMS(1)), "as many dimensions as the operand");
    d.index_vector_dim = 2;
    ASSERT_REFUSED(hlo_gather(w.g, w.x, w.i, &d, window), "index_vector_dim is no dimension");
    d = good;
    d.offset = HLO_DIMS(2);
    ASSERT_REFUSED(hlo_gather(w.g, w.x, w.i, &d, window), "offset dimensions are");
    d = good;
    d.offset.n = INT64_MAX;
    ASSERT_REFUSED(hlo_gather(w.g, w.x, w.i, &d, window), "offset dimensions are");
    d = good;
    d.collapsed = HLO_DIMS(2);
    ASSERT_REFUSED(hlo_gather(w.g, w.x, w.i, &d, window), "collapsed dimensions are");
    d = good;
    d.collapsed = HLO_NO_DIMS;
    ASSERT_REFUSED(hlo_gather(w.g, w.x, w.i, &d, window), "are as many as the operand has");
    d = good;
    d.start_map = HLO_DIMS(-1);
    ASSERT_REFUSED(hlo_gather(w.g, w.x, w.i, &d, window), "the start map names");
    d = good;
    d.start_map = HLO_DIMS(0, 1);
    ASSERT_REFUSED(hlo_gather(w.g, w.x, w.i, &d, window), "as an index has components");
    d = good;
    d.operand_batch = HLO_DIMS(1);
    ASSERT_REFUSED(hlo_gather(w.g, w.x, w.i, &d, window), "batching dimensions of the indices");
    d = good;
    d.operand_batch = HLO_DIMS(0);
    d.indices_batch = HLO_DIMS(0);
    ASSERT_REFUSED(hlo_gather(w.g, w.x, w.i, &d, window), "neither collapsed nor in the start map");
    d = good;
    d.operand_batch = HLO_DIMS(1);
    d.indices_batch = HLO_DIMS(0);
    ASSERT_REFUSED(hlo_gather(w.g, w.x, w.i, &d, window), "batching dimensions have equal sizes");
    d = good;
    ASSERT_REFUSED(hlo_scatter_add(w.g, w.x, w.i, w.h, &d), "numbers of one type");
    ASSERT_REFUSED(hlo_scatter_add(w.g, w.x, w.i, w.b, &d), "dimensions of the indices and of");
    ASSERT_REFUSED(hlo_scatter_add(w.g, w.x, w.i, w.y, &d), "window does not fit");
    ASSERT_REFUSED(hlo_scatter_add(w.g, w.y, w.i, w.y, &d), "sizes of the indices");
}

/* ---- sort and random ---- */

static hlo_val sort_wrong(hlo_val key, hlo_val other, int dim)
{
    hlo_val in[2] = {key, other}, out[2];
    hlo_sort(w.g, in, 2, dim, false, out);
    assert_int_equal(out[0].id, 0);
    return out[1];
}

static hlo_val top_wrong(hlo_val x, int64_t k)
{
    hlo_val values, indices;
    hlo_top_k(w.g, x, k, &values, &indices);
    assert_int_equal(indices.id, 0);
    return values;
}

static void sorts(void **state)
{
    hlo_graph *g = *state;
    hlo_val x = hlo_param(g, "x", HLO_SHAPE(HLO_F32, 4, 9)), values, indices, d;
    hlo_val in[2] = {x, hlo_compare(g, HLO_LT, x, hlo_like(g, x, 0))}, out[2];
    hlo_sort(g, in, 2, -1, true, out);
    ASSERT_SHAPE(out[0], "f32[4,9]");
    ASSERT_SHAPE(out[1], "i1[4,9]");
    hlo_top_k(g, x, 3, &values, &indices);
    ASSERT_SHAPE(values, "f32[4,3]");
    ASSERT_SHAPE(indices, "i32[4,3]");
    int before = num_nodes(g); /* the places sorted along serve the gradient: one more sort */
    grad_sum(g, values, &x, 1, &d);
    ASSERT_SHAPE(d, "f32[4,9]");
    assert_int_equal(count(g, HLO_OP_SORT, before), 1);

    ASSERT_REFUSED(sort_wrong(w.x, w.h, 2), "here: sort: the key has no dimension 2");
    ASSERT_REFUSED(sort_wrong(w.x, w.y, 0), "array 1 differs from the key in shape");
    ASSERT_REFUSED(sort_wrong(w.p, w.x, 0), "the key is numbers");
    ASSERT_REFUSED(top_wrong(w.x, 4), "top_k: the 4 largest of 3");
    ASSERT_REFUSED(top_wrong(w.scalar, 0), "top_k: the 0 largest of 0");
}

static void random_numbers(void **state)
{
    hlo_graph *g = *state;
    hlo_val seed = hlo_param(g, "seed", HLO_SHAPE(HLO_U64, 2)), next, other;
    hlo_val bits = hlo_random_bits(g, seed, HLO_SHAPE(HLO_U32, 2, 3), &next);
    ASSERT_SHAPE(bits, "ui32[2,3]");
    ASSERT_SHAPE(next, "ui64[2]");
    /* The same bits are one node; others from the same state are not mistaken for it. */
    assert_int_equal(hlo_random_bits(g, seed, HLO_SHAPE(HLO_U32, 2, 3), &other).id, bits.id);
    ASSERT_SHAPE(hlo_random_bits(g, seed, HLO_SHAPE(HLO_U8, 7), &other), "ui8[7]");
    ASSERT_SHAPE(hlo_random_uniform(g, next, HLO_SHAPE(HLO_BF16, 5), &next), "bf16[5]");
    ASSERT_SHAPE(hlo_random_uniform(g, next, HLO_SHAPE(HLO_F64, 5), &next), "f64[5]");
    ASSERT_SHAPE(hlo_random_bits(g, seed, HLO_SHAPE(HLO_U32, 2, 0), &other), "ui32[2,0]");
    assert_int_equal(other.id, seed.id); /* nothing was used up */

    ASSERT_REFUSED(hlo_random_bits(w.g, w.i, HLO_SHAPE(HLO_U32, 2), &other),
                   "the state is ui64[2]");
    ASSERT_REFUSED(hlo_random_bits(w.g, w.state, HLO_SHAPE(HLO_S32, 2), &other), "not i32");
    ASSERT_REFUSED(hlo_random_bits(w.g, w.state, HLO_SHAPE(HLO_U32, -2), &other), "unsigned");
    ASSERT_REFUSED(hlo_random_uniform(w.g, w.state, HLO_SHAPE(HLO_U32, 2), &other), "not ui32");
}

/* ---- collectives ---- */

static void collectives(void **state)
{
    hlo_graph *g = *state;
    int64_t ids[4] = {0, 2, 1, 3}, twice[2] = {1, 1}, negative[1] = {-1};
    const int64_t ring[2][2] = {{0, 1}, {1, 2}}, clash[2][2] = {{0, 1}, {2, 1}};
    hlo_groups groups = {ids, 2, 2};
    hlo_val x = hlo_param(g, "x", HLO_SHAPE(HLO_F32, 4, 6)), d;
    hlo_val gathered = hlo_all_gather(g, x, -1, groups);
    ASSERT_SHAPE(gathered, "f32[4,12]");
    hlo_val scattered = hlo_reduce_scatter(g, x, 0, groups);
    ASSERT_SHAPE(scattered, "f32[2,6]");
    hlo_val sum = hlo_all_reduce(g, HLO_REDUCE_ADD, x, groups);
    ASSERT_SHAPE(sum, "f32[4,6]");
    hlo_val moved = hlo_collective_permute(g, x, ring, 2);
    ASSERT_SHAPE(moved, "f32[4,6]");
    ASSERT_SHAPE(hlo_partition_id(g), "ui32[]");
    /* The groups belong to the node, not to the caller. */
    ids[0] = 99;
    assert_int_equal(((const hlo_collective_attrs *)node_of(g, sum)->attrs)->ids[0], 0);

    grad_sum(g, gathered, &x, 1, &d);
    assert_int_equal(node_of(g, d)->op, HLO_OP_REDUCE_SCATTER);
    assert_int_equal(((const hlo_collective_attrs *)node_of(g, d)->attrs)->dim, 1);
    grad_sum(g, scattered, &x, 1, &d);
    assert_int_equal(node_of(g, d)->op, HLO_OP_ALL_GATHER);
    grad_sum(g, sum, &x, 1, &d);
    assert_int_equal(node_of(g, d)->op, HLO_OP_ALL_REDUCE);
    grad_sum(g, moved, &x, 1, &d);
    const hlo_collective_attrs *back = node_of(g, d)->attrs;
    assert_int_equal(node_of(g, d)->op, HLO_OP_COLLECTIVE_PERMUTE);
    const int64_t turned[4] = {1, 0, 2, 1};
    assert_memory_equal(back->ids, turned, sizeof turned);

    groups.ids = twice;
    groups.n_groups = 1;
    ASSERT_REFUSED(hlo_all_reduce(w.g, HLO_REDUCE_ADD, w.x, groups),
                   "device 1 is in the groups twice");
    groups = (hlo_groups){negative, 1, 1};
    ASSERT_REFUSED(hlo_all_gather(w.g, w.x, 0, groups), "here: all_gather: device -1 is no device");
    ASSERT_REFUSED(hlo_all_gather(w.g, w.x, 0, (hlo_groups){0}), "0 groups of 0 devices");
    ids[0] = 0;
    groups = (hlo_groups){ids, 1, 4};
    ASSERT_REFUSED(hlo_all_gather(w.g, w.x, 2, groups), "there is no dimension 2");
    ASSERT_REFUSED(hlo_reduce_scatter(w.g, w.x, 0, groups),
                   "dimension 0 is divided among 4 devices");
    ASSERT_REFUSED(hlo_all_reduce(w.g, HLO_REDUCE_ADD, w.p, groups), "does not go with i1");
    ASSERT_REFUSED(hlo_all_reduce(w.g, HLO_REDUCE_OR, w.x, groups), "does not go with f32");
    ASSERT_REFUSED(hlo_collective_permute(w.g, w.x, clash, 2), "each source and each target");
    ASSERT_REFUSED(hlo_collective_permute(w.g, w.x, NULL, 0), "of the 0 pairs");
}

static void a_product_over_devices_has_no_gradient(void **state)
{
    hlo_graph *g = *state;
    const int64_t ids[2] = {0, 1};
    hlo_val x = hlo_param(g, "x", HLO_SHAPE(HLO_F32, 4)), d;
    hlo_val y = hlo_all_reduce(g, HLO_REDUCE_MUL, x, (hlo_groups){ids, 1, 2});
    ASSERT_SHAPE(y, "f32[4]");
    grad_sum(g, y, &x, 1, &d);
    assert_non_null(hlo_graph_error(g));
    assert_int_equal(hlo_graph_error(g)->code, HLO_ERROR_UNSUPPORTED);
}

/* ---- networks ---- */

static void pieces_of_networks(void **state)
{
    hlo_graph *g = *state;
    hlo_val x = hlo_param(g, "x", HLO_SHAPE(HLO_BF16, 2, 5, 3, 8));
    hlo_val scale = hlo_param(g, "scale", HLO_SHAPE(HLO_F32, 8));
    hlo_val per_head = hlo_param(g, "per_head", HLO_SHAPE(HLO_BF16, 3, 8));
    ASSERT_SHAPE(hlo_layer_norm(g, x, scale, per_head, 1e-5), "bf16[2,5,3,8]");
    ASSERT_SHAPE(hlo_rms_norm(g, x, per_head, 1e-5), "bf16[2,5,3,8]");
    ASSERT_SHAPE(hlo_softmax(g, x, 1), "bf16[2,5,3,8]");
    ASSERT_SHAPE(hlo_log_softmax(g, x, -1), "bf16[2,5,3,8]");
    ASSERT_SHAPE(hlo_gelu(g, x), "bf16[2,5,3,8]");
    ASSERT_SHAPE(hlo_silu(g, x), "bf16[2,5,3,8]");
    hlo_val labels = hlo_param(g, "labels", HLO_SHAPE(HLO_U8, 2, 5, 3));
    ASSERT_SHAPE(hlo_cross_entropy(g, x, labels), "f32[2,5,3]");
    hlo_val time = hlo_iota(g, HLO_SHAPE(HLO_S32, 5), 0);
    ASSERT_SHAPE(hlo_rope(g, x, time, 1e4, false), "bf16[2,5,3,8]");
    hlo_val each = hlo_param(g, "each", HLO_SHAPE(HLO_F32, 2, 5));
    ASSERT_SHAPE(hlo_rope(g, x, each, 1e4, true), "bf16[2,5,3,8]");
    ASSERT_SHAPE(hlo_silu(g, hlo_param(g, "f64", HLO_SCALAR(HLO_F64))), "f64[]");

    ASSERT_REFUSED(hlo_rms_norm(w.g, w.x, w.i, 1e-5),
                   "here/rms_norm: scale i32[2] does not go with f32[2,3]");
    ASSERT_REFUSED(hlo_layer_norm(w.g, w.x, w.b, w.y, 1e-5), "bias f32[3,4] does not go with");
    ASSERT_REFUSED(hlo_layer_norm(w.g, w.b, w.x, w.b, 1e-5), "scale f32[2,3] does not go with");
    ASSERT_REFUSED(hlo_rms_norm(w.g, w.scalar, w.scalar, 1e-5), "a norm of a scalar");
    ASSERT_REFUSED(hlo_softmax(w.g, w.x, 2), "here/softmax: f32[2,3] has no dimension 2");
    ASSERT_REFUSED(hlo_softmax(w.g, w.i, 0), "i32[2] is not of floats");
    ASSERT_REFUSED(hlo_cross_entropy(w.g, w.x, w.b), "f32[3] does not go with f32[2,3]");
    ASSERT_REFUSED(hlo_cross_entropy(w.g, w.y, w.i), "i32[2] does not go with f32[3,4]");
    ASSERT_REFUSED(hlo_rope(w.g, w.x, w.i, 1e4, false), "x is [..., time, heads, dim]");
    ASSERT_REFUSED(hlo_rope(w.g, w.z, w.b, 1e4, false), "not f32[2,5,6] and f32[3]");
    ASSERT_REFUSED(hlo_rope(w.g, w.z, w.i, -1, false), "theta -1");
}

/* From the loss back to the logits everything is elementwise, so that it can be one fusion with no
 * array of the logits' size but their gradient. */
static void cross_entropy_goes_back_elementwise(void **state)
{
    hlo_graph *g = *state;
    hlo_val logits = hlo_param(g, "logits", HLO_SHAPE(HLO_BF16, 6, 100));
    hlo_val labels = hlo_param(g, "labels", HLO_SHAPE(HLO_S32, 6)), d;
    hlo_val loss = hlo_cross_entropy(g, logits, labels);
    int before = num_nodes(g);
    grad_sum(g, loss, &logits, 1, &d);
    ASSERT_SHAPE(d, "bf16[6,100]");
    assert_int_equal(count(g, HLO_OP_GATHER, before), 0);
    assert_int_equal(count(g, HLO_OP_SCATTER_ADD, before), 0);
    assert_int_equal(count(g, HLO_OP_REDUCE, before), 1); /* the test's own sum */
}

/* ---- bad handles ---- */

/* Makes call number `which` with `v` for one operand; false behind the last. */
static bool call_with(hlo_graph *g, int which, hlo_val v, hlo_val good)
{
    static const int64_t ids[1] = {0};
    static const int64_t pairs[1][2] = {{0, 1}};
    hlo_groups groups = {ids, 1, 1};
    hlo_gather_dims dims = {0};
    hlo_val two[2] = {good, v}, out[2];
    switch (which) {
    case 0:
        hlo_sum(g, v, HLO_DIMS(0));
        return true;
    case 1:
        hlo_mean(g, v, HLO_DIMS(0));
        return true;
    case 2:
        hlo_reduce_keep(g, HLO_REDUCE_MAX, v, HLO_DIMS(0));
        return true;
    case 3:
        hlo_cumsum(g, v, 0);
        return true;
    case 4:
        hlo_argmax(g, v, 0);
        return true;
    case 5:
        hlo_dot(g, good, v, NULL);
        return true;
    case 6:
        hlo_matmul(g, v, good);
        return true;
    case 7:
        hlo_einsum(g, "ab,bc->ac", good, v);
        return true;
    case 8:
        hlo_conv1d(g, v, good, NULL);
        return true;
    case 9:
        hlo_causal_conv(g, good, v);
        return true;
    case 10:
        hlo_gather(g, good, v, &dims, HLO_DIMS(1));
        return true;
    case 11:
        hlo_scatter_add(g, good, good, v, &dims);
        return true;
    case 12:
        hlo_take(g, v, good);
        return true;
    case 13:
        hlo_sort(g, two, 2, 0, false, out);
        return true;
    case 14:
        hlo_top_k(g, v, 1, &out[0], &out[1]);
        return true;
    case 15:
        hlo_random_bits(g, v, HLO_SHAPE(HLO_U32, 1), out);
        return true;
    case 16:
        hlo_random_uniform(g, v, HLO_SHAPE(HLO_F32, 1), out);
        return true;
    case 17:
        hlo_all_reduce(g, HLO_REDUCE_ADD, v, groups);
        return true;
    case 18:
        hlo_all_gather(g, v, 0, groups);
        return true;
    case 19:
        hlo_reduce_scatter(g, v, 0, groups);
        return true;
    case 20:
        hlo_collective_permute(g, v, pairs, 1);
        return true;
    case 21:
        hlo_layer_norm(g, good, good, v, 1);
        return true;
    case 22:
        hlo_rms_norm(g, good, v, 1);
        return true;
    case 23:
        hlo_softmax(g, v, 0);
        return true;
    case 24:
        hlo_log_softmax(g, v, 0);
        return true;
    case 25:
        hlo_cross_entropy(g, good, v);
        return true;
    case 26:
        hlo_gelu(g, v);
        return true;
    case 27:
        hlo_silu(g, v);
        return true;
    case 28:
        hlo_rope(g, good, v, 1e4, true);
        return true;
    default:
        return false;
    }
}

static void bad_handles_are_errors(void **state)
{
    hlo_val foreign = hlo_param(*state, "x", HLO_SHAPE(HLO_F32, 2, 2));
    const hlo_val bad[2] = {{0}, foreign};
    int calls = 0;
    for (int kind = 0; kind < 2; kind++) {
        for (int which = 0;; which++, calls++) {
            hlo_graph *g = hlo_graph_new("bad");
            assert_non_null(g);
            hlo_val good = hlo_param(g, "good", HLO_SHAPE(HLO_F32, 2, 2));
            bool called = call_with(g, which, bad[kind], good);
            const hlo_error *error = hlo_graph_error(g);
            if (called && (error == NULL || error->code != HLO_ERROR_VALUE))
                fail_msg("call %d: %s", which, error == NULL ? "no error" : error->message);
            if (called) /* and once there is an error, nothing happens */
                call_with(g, which, good, good);
            hlo_graph_free(g);
            if (!called)
                break;
        }
    }
    assert_int_equal(calls, 2 * 29);
}

static void hand_on(hlo_graph *g, void *ctx, hlo_val step, const hlo_val *carry, const hlo_val *x,
                    hlo_val *next, hlo_val *y)
{
    (void)g, (void)ctx, (void)step, (void)x;
    next[0] = y[0] = carry[0];
}

/* Stacked, they would have nine; a loop, a single step and no step at all make them in turn. */
static void a_scan_does_not_stack_eight_dimensions(void **state)
{
    (void)state;
    for (int64_t length = 0; length < 3; length++) {
        hlo_graph *g = hlo_graph_new("rank");
        hlo_val carry = hlo_param(g, "x", HLO_SHAPE(HLO_F32, 1, 1, 1, 1, 1, 1, 1, 1)), out;
        hlo_scan(g, hand_on, NULL, &carry, 1, NULL, 0, &out, 1,
                 &(hlo_scan_options){.length = length});
        assert_non_null(hlo_graph_error(g));
        assert_int_equal(out.id, 0);
        hlo_graph_free(g);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_graph, close_graph)
    const struct CMUnitTest tests[] = {
        TEST(reductions),
        TEST(short_floats_are_summed_in_f32),
        TEST(products),
        TEST(gradients_of_products_are_products),
        TEST(einsums),
        TEST(convolutions),
        TEST(gathers),
        TEST(gather_numbers_are_checked),
        TEST(sorts),
        TEST(random_numbers),
        TEST(collectives),
        TEST(a_product_over_devices_has_no_gradient),
        TEST(pieces_of_networks),
        TEST(cross_entropy_goes_back_elementwise),
        TEST(bad_handles_are_errors),
        cmocka_unit_test(a_scan_does_not_stack_eight_dimensions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
