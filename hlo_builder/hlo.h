/*
 * hlo_builder: describe a computation once in C; get StableHLO, gradients, loops with checkpointing
 * through time, and shardings from it.
 *
 *     #include "hlo_builder/hlo.h"
 *
 *     // loss = mean((tanh(x w) - y)^2), and its gradient with respect to w
 *     hlo_graph *g = hlo_graph_new("fit");
 *     hlo_val x = hlo_param(g, "x", HLO_SHAPE(HLO_F32, 32, 8));
 *     hlo_val w = hlo_param(g, "w", HLO_SHAPE(HLO_F32, 8, 4));
 *     hlo_val y = hlo_param(g, "y", HLO_SHAPE(HLO_F32, 32, 4));
 *     hlo_val error = hlo_sub(g, hlo_tanh(g, hlo_matmul(g, x, w)), y);
 *     hlo_val loss = hlo_mean(g, hlo_mul(g, error, error), HLO_DIMS(0, 1));
 *     hlo_val dw;
 *     hlo_grad(g, loss, &w, 1, &dw);
 *     hlo_result(g, "loss", loss);
 *     hlo_result(g, "dw", dw);
 *     char *text = hlo_write_text(g, NULL);      // NULL when anything above went wrong
 *     if (text == NULL)
 *         fprintf(stderr, "%s\n", hlo_graph_error(g)->message);
 *     free(text);
 *     hlo_graph_free(g);
 *
 * Contracts that hold for every function below:
 *  - Shapes and types are checked when an operation is added. The first error sticks to the graph,
 *    with the scope, the operation and its operands; every later call does nothing and returns the
 *    null value, so the caller checks once, at the end. Running out of memory is such an error.
 *  - A hlo_val is a small handle into one graph, good as long as the graph. A null or foreign one
 *    is an error of the graph it is given to, never a crash.
 *  - Element types are never converted in silence: operands of one operation have one type.
 *  - Elementwise operations on arrays of different shapes broadcast as NumPy does: trailing
 *    dimensions are lined up, and a dimension of 1, or one that is not there, is repeated.
 *  - Nothing prints, exits or aborts. A graph is used by one thread at a time.
 *
 * It does not evaluate programs, and it is not a compiler: XLA fuses and schedules.
 *
 * "Library surface" below marks functions that no graph of model/ uses. They are supported and
 * tested like the rest.
 */
#ifndef HLO_BUILDER_HLO_H
#define HLO_BUILDER_HLO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- types, shapes, values ---- */

/* X(name, StableHLO spelling, bits, kind): f float, s signed, u unsigned, p predicate. */
#define HLO_TYPES(X)         \
    X(F64, "f64", 64, 'f')   \
    X(F32, "f32", 32, 'f')   \
    X(BF16, "bf16", 16, 'f') \
    X(F16, "f16", 16, 'f')   \
    X(S64, "i64", 64, 's')   \
    X(S32, "i32", 32, 's')   \
    X(S8, "i8", 8, 's')      \
    X(U64, "ui64", 64, 'u')  \
    X(U32, "ui32", 32, 'u')  \
    X(U16, "ui16", 16, 'u')  \
    X(U8, "ui8", 8, 'u')     \
    X(PRED, "i1", 8, 'p')

typedef enum hlo_type {
    HLO_TYPE_NONE = 0,
#define HLO_TYPE_ENUM(name, spelling, bits, kind) HLO_##name,
    HLO_TYPES(HLO_TYPE_ENUM)
#undef HLO_TYPE_ENUM
} hlo_type;

const char *hlo_type_name(hlo_type type); /* the StableHLO spelling; "?" for none */
int hlo_type_bits(hlo_type type);
bool hlo_type_is_float(hlo_type type);

enum { HLO_MAX_RANK = 8 };

/* A list of dimensions or of dimension numbers. */
typedef struct hlo_dims {
    int64_t n;
    int64_t d[HLO_MAX_RANK];
} hlo_dims;
#define HLO_DIMS(...) \
    ((hlo_dims){sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), {__VA_ARGS__}})
#define HLO_NO_DIMS ((hlo_dims){0})

typedef struct hlo_shape {
    hlo_type type;
    int rank;
    int64_t dims[HLO_MAX_RANK];
} hlo_shape;
#define HLO_SHAPE(t, ...) \
    ((hlo_shape){(t), (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), {__VA_ARGS__}})
#define HLO_SCALAR(t) ((hlo_shape){.type = (t)})

int64_t hlo_shape_elements(const hlo_shape *shape); /* -1 when they cannot be counted */
bool hlo_shape_equal(const hlo_shape *a, const hlo_shape *b);
enum { HLO_SHAPE_TEXT = 192 };
char *hlo_shape_text(const hlo_shape *shape, char text[HLO_SHAPE_TEXT]); /* "f32[2,3]" */

typedef struct hlo_val {
    uint32_t id;    /* 0: null */
    uint32_t graph; /* serial number of the graph it belongs to */
} hlo_val;

/* ---- the graph ---- */

typedef struct hlo_graph hlo_graph;

typedef enum hlo_error_code {
    HLO_ERROR_SHAPE = 1,   /* shapes, dimension numbers, element types */
    HLO_ERROR_VALUE,       /* a handle that is null, foreign or out of reach here */
    HLO_ERROR_UNSUPPORTED, /* no gradient, no such form */
    HLO_ERROR_MEMORY,
} hlo_error_code;

typedef struct hlo_error {
    hlo_error_code code;
    /* "block.3/ttt: dot_general: contracting 64 and 32 (f32[2,64], f32[32,4])" */
    char message[512];
} hlo_error;

hlo_graph *hlo_graph_new(const char *name); /* NULL when out of memory */
void hlo_graph_free(hlo_graph *g);
const hlo_error *hlo_graph_error(const hlo_graph *g); /* NULL if there is none */
/* Lets code built on this one fail in the same way. The first error wins. */
void hlo_fail(hlo_graph *g, hlo_error_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
size_t hlo_graph_num_ops(const hlo_graph *g);

/* Names the part of the model that is being built: "block.3", "ttt" … Scopes nest. They name the
 * operations in the text, in XLA's errors and in profiles. */
void hlo_scope_push(hlo_graph *g, const char *format, ...) __attribute__((format(printf, 2, 3)));
void hlo_scope_pop(hlo_graph *g);

const hlo_shape *hlo_shape_of(const hlo_graph *g, hlo_val v); /* an empty shape for a bad one */
hlo_type hlo_type_of(const hlo_graph *g, hlo_val v);
int hlo_rank(const hlo_graph *g, hlo_val v);
int64_t hlo_dim(const hlo_graph *g, hlo_val v, int dim); /* -1 counts from the end */

/* Arguments and results of @main, in the order of these calls. */
hlo_val hlo_param(hlo_graph *g, const char *name, hlo_shape shape);
void hlo_result(hlo_graph *g, const char *name, hlo_val v);
/* The argument's memory may hold result number `result`: the argument is dead after a run. */
void hlo_donate(hlo_graph *g, hlo_val param, int result);

/* ---- constants ---- */

/* Library surface: constant. */

hlo_val hlo_scalar(hlo_graph *g, hlo_type type, double value);
hlo_val hlo_scalar_int(hlo_graph *g, hlo_type type, int64_t value); /* exact above 2^53 */
hlo_val hlo_full(hlo_graph *g, hlo_shape shape, double value);
/* A scalar of v's type, to write hlo_mul(g, v, hlo_like(g, v, 0.5)). */
hlo_val hlo_like(hlo_graph *g, hlo_val v, double value);
hlo_val hlo_zeros_like(hlo_graph *g, hlo_val v);
/* An array from host data, dense and row-major; copied. */
hlo_val hlo_constant(hlo_graph *g, hlo_shape shape, const void *data);
hlo_val hlo_iota(hlo_graph *g, hlo_shape shape, int dim);

/* ---- elementwise ---- */

/* Library surface: sign, ceil, pow, or, shift_left, erf, clamp. */

/* X(function, StableHLO name) */
#define HLO_UNARY_OPS(X)              \
    X(neg, "negate")                  \
    X(abs, "abs")                     \
    X(sign, "sign")                   \
    X(floor, "floor")                 \
    X(ceil, "ceil")                   \
    X(exp, "exponential")             \
    X(expm1, "exponential_minus_one") \
    X(log, "log")                     \
    X(log1p, "log_plus_one")          \
    X(tanh, "tanh")                   \
    X(logistic, "logistic")           \
    X(sqrt, "sqrt")                   \
    X(rsqrt, "rsqrt")                 \
    X(sin, "sine")                    \
    X(cos, "cosine")                  \
    X(not, "not")
#define HLO_BINARY_OPS(X)       \
    X(add, "add")               \
    X(sub, "subtract")          \
    X(mul, "multiply")          \
    X(div, "divide")            \
    X(rem, "remainder")         \
    X(pow, "power")             \
    X(max, "maximum")           \
    X(min, "minimum")           \
    X(and, "and")               \
    X(or, "or")                 \
    X(xor, "xor")               \
    X(shift_left, "shift_left") \
    X(shift_right, "shift_right_logical")

#define HLO_DECLARE_UNARY(name, spelling) hlo_val hlo_##name(hlo_graph *g, hlo_val x);
HLO_UNARY_OPS(HLO_DECLARE_UNARY)
#undef HLO_DECLARE_UNARY
#define HLO_DECLARE_BINARY(name, spelling) hlo_val hlo_##name(hlo_graph *g, hlo_val a, hlo_val b);
HLO_BINARY_OPS(HLO_DECLARE_BINARY)
#undef HLO_DECLARE_BINARY

hlo_val hlo_erf(hlo_graph *g, hlo_val x);

typedef enum hlo_compare_kind { HLO_EQ, HLO_NE, HLO_LT, HLO_LE, HLO_GT, HLO_GE } hlo_compare_kind;
hlo_val hlo_compare(hlo_graph *g, hlo_compare_kind kind, hlo_val a, hlo_val b);
/* on_true where pred, else on_false; all three broadcast. */
hlo_val hlo_select(hlo_graph *g, hlo_val pred, hlo_val on_true, hlo_val on_false);
hlo_val hlo_clamp(hlo_graph *g, hlo_val low, hlo_val x, hlo_val high);
hlo_val hlo_convert(hlo_graph *g, hlo_val x, hlo_type type); /* x itself when it has that type */
hlo_val hlo_bitcast(hlo_graph *g, hlo_val x, hlo_type type); /* same number of bits */

/* ---- shape ---- */

/* Library surface: reverse, slice (graphs use slice_dim). */

/* Dimension i of x becomes dimension dims.d[i] of the result; the others are repeated. */
hlo_val hlo_broadcast(hlo_graph *g, hlo_val x, hlo_dims result, hlo_dims dims);
hlo_val hlo_broadcast_to(hlo_graph *g, hlo_val x, hlo_dims result); /* as NumPy does */
hlo_val hlo_reshape(hlo_graph *g, hlo_val x, hlo_dims dims);        /* one may be -1 */
hlo_val hlo_transpose(hlo_graph *g, hlo_val x, hlo_dims permutation);
hlo_val hlo_reverse(hlo_graph *g, hlo_val x, hlo_dims dims);
/* [start, limit) with a stride of 1 or more along every dimension. */
hlo_val hlo_slice(hlo_graph *g, hlo_val x, hlo_dims start, hlo_dims limit, hlo_dims stride);
/* [start, limit) along one dimension; the others whole. Negative numbers count from the end. */
hlo_val hlo_slice_dim(hlo_graph *g, hlo_val x, int dim, int64_t start, int64_t limit);
/* `starts` are integer scalars, one a dimension; they are clamped so that the slice fits. */
hlo_val hlo_dynamic_slice(hlo_graph *g, hlo_val x, const hlo_val *starts, hlo_dims sizes);
hlo_val hlo_dynamic_update(hlo_graph *g, hlo_val x, hlo_val update, const hlo_val *starts);
/* Element `index` (an integer scalar) along `dim`, which goes away; and its opposite. */
hlo_val hlo_index(hlo_graph *g, hlo_val x, int dim, hlo_val index);
hlo_val hlo_update_index(hlo_graph *g, hlo_val x, int dim, hlo_val index, hlo_val update);
/* Negative padding cuts off; `interior` goes between elements. */
hlo_val hlo_pad(hlo_graph *g, hlo_val x, hlo_val value, hlo_dims low, hlo_dims high,
                hlo_dims interior);
/* x shifted by `by` positions along `dim`: to higher indices, or to lower ones if negative. Filled
 * with zeros. */
hlo_val hlo_shift(hlo_graph *g, hlo_val x, int dim, int64_t by);
hlo_val hlo_concat(hlo_graph *g, const hlo_val *parts, int n, int dim);
hlo_val hlo_stack(hlo_graph *g, const hlo_val *parts, int n, int dim); /* along a new dimension */

/* ---- reductions ---- */

/* Library surface: argmax. */

typedef enum hlo_reduce_kind {
    HLO_REDUCE_ADD,
    HLO_REDUCE_MUL,
    HLO_REDUCE_MAX,
    HLO_REDUCE_MIN,
    HLO_REDUCE_AND,
    HLO_REDUCE_OR,
} hlo_reduce_kind;

/* The reduced dimensions go away. Sums of bf16 and f16 are accumulated in f32. */
hlo_val hlo_reduce(hlo_graph *g, hlo_reduce_kind kind, hlo_val x, hlo_dims dims);
hlo_val hlo_sum(hlo_graph *g, hlo_val x, hlo_dims dims);
hlo_val hlo_mean(hlo_graph *g, hlo_val x, hlo_dims dims);
/* The same with the reduced dimensions kept, of size 1, ready to broadcast against x. */
hlo_val hlo_reduce_keep(hlo_graph *g, hlo_reduce_kind kind, hlo_val x, hlo_dims dims);
hlo_val hlo_cumsum(hlo_graph *g, hlo_val x, int dim);
hlo_val hlo_argmax(hlo_graph *g, hlo_val x, int dim); /* s32; the first of equals */

/* ---- products ---- */

/* Library surface: conv1d (graphs use causal_conv). */

typedef enum hlo_precision {
    HLO_PRECISION_DEFAULT,
    HLO_PRECISION_HIGH,
    HLO_PRECISION_HIGHEST
} hlo_precision;

typedef struct hlo_dot_options {
    hlo_dims lhs_batch, rhs_batch, lhs_contract, rhs_contract;
    hlo_precision precision;
    hlo_type result; /* of the accumulation and the result; none: the operands' */
} hlo_dot_options;

/* Result dimensions: batch, then what is left of the left operand, then of the right. */
hlo_val hlo_dot(hlo_graph *g, hlo_val a, hlo_val b, const hlo_dot_options *options);
/* [..., m, k] x [..., k, n], the leading dimensions being equal, or b having only two. */
hlo_val hlo_matmul(hlo_graph *g, hlo_val a, hlo_val b);
/* "bqhd,bkhd->bhqk": letters in both inputs and the output are batch dimensions, in both inputs
 * alone are contracted, in one alone are kept; any order out. */
hlo_val hlo_einsum(hlo_graph *g, const char *spec, hlo_val a, hlo_val b);
hlo_val hlo_einsum_as(hlo_graph *g, const char *spec, hlo_val a, hlo_val b, hlo_type result,
                      hlo_precision precision);

/* x [batch, time, channels], w [width, channels / groups, out], the result [batch, time', out]. */
typedef struct hlo_conv_options {
    int64_t pad_low, pad_high;
    int64_t groups; /* channels for a depthwise one; 0: 1 */
} hlo_conv_options;
hlo_val hlo_conv1d(hlo_graph *g, hlo_val x, hlo_val w, const hlo_conv_options *options);
/* Each channel by itself, each time from itself and the width - 1 before; w [width, channels]. */
hlo_val hlo_causal_conv(hlo_graph *g, hlo_val x, hlo_val w);

/* ---- gather, scatter, sort, random ---- */

/* Library surface: all but take. */

typedef struct hlo_gather_dims {
    hlo_dims offset;    /* of the result: where the window's dimensions are */
    hlo_dims collapsed; /* of the operand: window dimensions of size 1 that go away */
    hlo_dims operand_batch, indices_batch;
    hlo_dims start_map;       /* operand dimension that each component of an index selects */
    int64_t index_vector_dim; /* of the indices */
} hlo_gather_dims;

hlo_val hlo_gather(hlo_graph *g, hlo_val x, hlo_val indices, const hlo_gather_dims *dims,
                   hlo_dims window);
/* x with the updates added at `indices`; updates of the same element add up. */
hlo_val hlo_scatter_add(hlo_graph *g, hlo_val x, hlo_val indices, hlo_val updates,
                        const hlo_gather_dims *dims);
/* Rows of `table` [rows, …] by integer indices of any shape: an embedding. */
hlo_val hlo_take(hlo_graph *g, hlo_val table, hlo_val indices);

/* Sorts along `dim` by the first key; the other arrays follow it. Stable. NaN sorts as largest. */
void hlo_sort(hlo_graph *g, const hlo_val *arrays, int n, int dim, bool descending, hlo_val *out);
/* The k largest along the last dimension, and their indices (s32). */
void hlo_top_k(hlo_graph *g, hlo_val x, int64_t k, hlo_val *values, hlo_val *indices);
/* Random bits of an unsigned type by threefry; state is u64[2], and the next state is returned. */
hlo_val hlo_random_bits(hlo_graph *g, hlo_val state, hlo_shape shape, hlo_val *next_state);
/* Uniform in [0, 1), of a float shape, made from random bits. */
hlo_val hlo_random_uniform(hlo_graph *g, hlo_val state, hlo_shape shape, hlo_val *next_state);

/* ---- control ---- */

/* Library surface: while, case, call, composite, barrier. */

/*
 * Bodies are built by callbacks, which add operations as usual. They may use values from outside.
 * What they build is checked against what the operation needs when they return.
 */
typedef void (*hlo_body)(hlo_graph *g, void *ctx, const hlo_val *in, hlo_val *out);
typedef hlo_val (*hlo_condition)(hlo_graph *g, void *ctx, const hlo_val *in);

/* Runs `body` on `carry` while `condition` holds; `carry` receives the end. Has no gradient: a loop
 * of known length is a scan. */
void hlo_while(hlo_graph *g, hlo_condition condition, hlo_body body, void *ctx, hlo_val *carry,
               int n);
/* One of the branches; each fills in n_out values of equal shapes. `in` of a branch is NULL. */
void hlo_if(hlo_graph *g, hlo_val pred, hlo_body on_true, hlo_body on_false, void *ctx,
            hlo_val *out, int n_out);
void hlo_case(hlo_graph *g, hlo_val index, const hlo_body *branches, int n_branches, void *ctx,
              hlo_val *out, int n_out);
/* A function of its own in the text, `name`, called here. Calls whose bodies come out equal share
 * one function. */
void hlo_call(hlo_graph *g, const char *name, hlo_body body, void *ctx, const hlo_val *in, int n_in,
              hlo_val *out, int n_out);
/* The same as a stablehlo.composite, which a backend may replace by its own by that name, which is
 * of the form "namespace.name". */
void hlo_composite(hlo_graph *g, const char *name, hlo_body body, void *ctx, const hlo_val *in,
                   int n_in, hlo_val *out, int n_out);

typedef enum hlo_attr_kind {
    HLO_ATTR_STRING,
    HLO_ATTR_INT,
    HLO_ATTR_FLOAT,
    HLO_ATTR_BOOL
} hlo_attr_kind;
typedef struct hlo_attr {
    const char *name;
    hlo_attr_kind kind;
    const char *string;
    int64_t integer; /* s64, and BOOL */
    double real;     /* f32 */
} hlo_attr;

/* Gradients of a custom call or custom gradient: given all inputs, all outputs and the gradients of
 * the outputs, fill in those of the inputs; a null value where there is none. */
typedef void (*hlo_vjp_rule)(hlo_graph *g, void *ctx, const hlo_val *in, int n_in,
                             const hlo_val *out, const hlo_val *d_out, int n_out, hlo_val *d_in);

typedef struct hlo_custom_call_options {
    const char *target;
    const hlo_attr *attrs;
    int n_attrs;
    const int (*aliases)[2]; /* {result, operand} pairs that share memory */
    int n_aliases;
    bool has_side_effect;
    hlo_vjp_rule vjp; /* NULL: asking for a gradient is an error */
    void *vjp_ctx;    /* must live as long as the graph */
} hlo_custom_call_options;
/* An XLA FFI call (API version 4). All operands and results are row-major: FFI handlers receive
 * dimensions but no layouts. */
void hlo_custom_call(hlo_graph *g, const hlo_custom_call_options *options, const hlo_val *in,
                     int n_in, const hlo_shape *shapes, hlo_val *out, int n_out);

/* x with a row-major layout constraint: layouts chosen by the compiler do not propagate past it.
 * Rank 1 or more. Left out of portable artifacts. */
hlo_val hlo_row_major(hlo_graph *g, hlo_val x);
/* stablehlo.optimization_barrier: the compiler moves or merges no computation across it. */
void hlo_barrier(hlo_graph *g, const hlo_val *in, int n, hlo_val *out);

/* ---- collectives for explicit SPMD, inside hlo_manual ---- */

/* Library surface: all of them. */

/* Groups of device numbers, n_groups rows of group_size. */
typedef struct hlo_groups {
    const int64_t *ids;
    int n_groups, group_size;
} hlo_groups;
hlo_val hlo_all_reduce(hlo_graph *g, hlo_reduce_kind kind, hlo_val x, hlo_groups groups);
hlo_val hlo_all_gather(hlo_graph *g, hlo_val x, int dim, hlo_groups groups);
hlo_val hlo_reduce_scatter(hlo_graph *g, hlo_val x, int dim, hlo_groups groups);
/* pairs: {source, target} rows. Devices that are no target receive zeros. */
hlo_val hlo_collective_permute(hlo_graph *g, hlo_val x, const int64_t (*pairs)[2], int n_pairs);
hlo_val hlo_partition_id(hlo_graph *g); /* u32 */

/* ---- gradients ---- */

/* d loss / d wrt[i] into out[i], each of wrt[i]'s shape. `loss` is a float scalar. Works through
 * everything with a gradient, its own results included: gradients of gradients. Constants cannot be
 * asked for; hlo_keep of one can. */
void hlo_grad(hlo_graph *g, hlo_val loss, const hlo_val *wrt, int n, hlo_val *out);
/* The same for any outputs with given gradients of theirs. A null one counts as zero. */
void hlo_vjp(hlo_graph *g, const hlo_val *outputs, const hlo_val *d_outputs, int n_outputs,
             const hlo_val *wrt, int n_wrt, hlo_val *d_wrt);
/* x, through which no gradient flows. */
hlo_val hlo_stop_gradient(hlo_graph *g, hlo_val x);
/* What `body` computes, with `rule` as its gradient instead of the derived one. */
void hlo_custom_vjp(hlo_graph *g, hlo_body body, hlo_vjp_rule rule, void *ctx, const hlo_val *in,
                    int n_in, hlo_val *out, int n_out);
/* Sums of gradients are made in f32 when they are of a shorter type; off by default. */
void hlo_set_f32_gradient_sums(hlo_graph *g, bool on);

/* ---- scan and rematerialisation ---- */

/* What the backward pass keeps of the forward pass; the rest it computes again. */
typedef enum hlo_save {
    HLO_SAVE_ALL,    /* all it needs, except what is free to compute again (default) */
    HLO_SAVE_DOTS,   /* products and what hlo_keep marks */
    HLO_SAVE_MARKED, /* what hlo_keep marks */
    HLO_SAVE_LOOPS,  /* the same, and what scans hand to their gradients: no loop runs again */
} hlo_save;

/* Marks x, inside a scan or remat body, as worth keeping for the backward pass. */
hlo_val hlo_keep(hlo_graph *g, hlo_val x);

enum { HLO_MAX_CHECKPOINT_LEVELS = 4 };

typedef struct hlo_scan_options {
    int64_t length; /* needed without inputs; otherwise theirs */
    bool reverse;   /* from the last input to the first; outputs stay in the inputs' order */
    int unroll;     /* steps in one iteration of the loop; 0: 1 */
    hlo_save save;
    /*
     * Checkpointing through time: the carry is kept only every checkpoint[0] steps, and the
     * backward pass computes a group again before going through it. Further levels nest: {4, 16}
     * keeps every 64th, then within such a group every 4th. 0 ends the list; all 0: no
     * checkpointing. Any length will do: what is left over forms a shorter group.
     */
    int64_t checkpoint[HLO_MAX_CHECKPOINT_LEVELS];
} hlo_scan_options;

/* One step: from the step number (s32 scalar, 0-based, in the inputs' order), the carries and the
 * inputs' slices to the next carries and the slices of the outputs. */
typedef void (*hlo_scan_body)(hlo_graph *g, void *ctx, hlo_val step, const hlo_val *carry,
                              const hlo_val *x, hlo_val *next_carry, hlo_val *y);

/* `carry` receives the last carries. Inputs are sliced and outputs stacked along dimension 0. */
void hlo_scan(hlo_graph *g, hlo_scan_body body, void *ctx, hlo_val *carry, int n_carry,
              const hlo_val *inputs, int n_inputs, hlo_val *outputs, int n_outputs,
              const hlo_scan_options *options);

/* What `body` computes; the backward pass computes it again from `in` instead of keeping its
 * values, except those that `save` names. */
void hlo_remat(hlo_graph *g, hlo_body body, void *ctx, hlo_save save, const hlo_val *in, int n_in,
               hlo_val *out, int n_out);

/* ---- sharding ---- */

enum { HLO_MAX_AXES = 6 };

/* The devices as a grid with named axes; the first varies slowest. Set before the first spec. */
void hlo_mesh(hlo_graph *g, const char *const *names, const int64_t *sizes, int n);
/*
 * Where the dimensions of an array go: for each an axis name, several joined by '+', or NULL for
 * "not split". {"data+fsdp", NULL, "model"}. With no mesh, specs are ignored: the same graph is
 * then a single-device program.
 */
typedef struct hlo_spec {
    const char *axes[HLO_MAX_RANK];
} hlo_spec;
#define HLO_SPEC(...) ((hlo_spec){{__VA_ARGS__}})

void hlo_shard_param(hlo_graph *g, hlo_val param, hlo_spec spec);
void hlo_shard_result(hlo_graph *g, int result, hlo_spec spec);
/* Number of shards of a dimension split over axes such as "data+fsdp": 1 for NULL or no mesh. */
int64_t hlo_axes_size(hlo_graph *g, const char *axes);
/* x with a sharding constraint. */
hlo_val hlo_shard(hlo_graph *g, hlo_val x, hlo_spec spec);
/* Like JAX's shard_map: `body` is written for one device. It sees that device's shards, as the
 * specs split them, and moves data only by collectives. Shardy only. Library surface. */
void hlo_manual(hlo_graph *g, hlo_body body, void *ctx, const hlo_val *in, const hlo_spec *in_specs,
                int n_in, hlo_val *out, const hlo_spec *out_specs, int n_out);

/* ---- networks ---- */

/* Library surface: log_softmax. */

/* Norms are over the last dimension and computed in f32 whatever x is; the result is x's type. */
hlo_val hlo_layer_norm(hlo_graph *g, hlo_val x, hlo_val scale, hlo_val bias, double epsilon);
hlo_val hlo_rms_norm(hlo_graph *g, hlo_val x, hlo_val scale, double epsilon);
hlo_val hlo_softmax(hlo_graph *g, hlo_val x, int dim);
hlo_val hlo_log_softmax(hlo_graph *g, hlo_val x, int dim);
/* -log softmax(logits)[label] for each row of logits [..., classes], in f32; labels are integers.
 * No array of logits' size is made but the logits themselves and, backwards, their gradient. */
hlo_val hlo_cross_entropy(hlo_graph *g, hlo_val logits, hlo_val labels);
hlo_val hlo_gelu(hlo_graph *g, hlo_val x); /* the tanh form */
hlo_val hlo_silu(hlo_graph *g, hlo_val x);
/* Rotary embedding of x [..., time, heads, dim] at positions [time] or [..., time]: the pairs are
 * (i, i + dim / 2), or with `interleaved` (2 i, 2 i + 1). */
hlo_val hlo_rope(hlo_graph *g, hlo_val x, hlo_val positions, double theta, bool interleaved);

/* ---- writing ---- */

typedef struct hlo_write_options {
    bool gspmd;        /* shardings as mhlo.sharding attributes instead of Shardy's */
    bool no_locations; /* leave out which scope an operation came from */
} hlo_write_options;

/* StableHLO text, the same bytes for the same calls. NULL on error; the caller frees it. */
char *hlo_write_text(hlo_graph *g, const hlo_write_options *options);

typedef struct hlo_portable_options {
    int version[3]; /* of StableHLO, {1, 13, 7}; all 0: the oldest that has all that is used */
    bool gspmd, no_locations; /* as above */
} hlo_portable_options;

/*
 * A portable artifact of that version: MLIR bytecode of `*size` bytes that plugins accept for
 * years, the same bytes for the same calls. Shardy's shardings and erf are not part of StableHLO
 * and go along in their own dialects, which needs 1.11 and makes no such promise; a graph without
 * a mesh, or written with `gspmd`, has the first not. NULL on error; the caller frees it.
 */
char *hlo_write_portable(hlo_graph *g, const hlo_portable_options *options, size_t *size);
/* The versions that there are to choose from: the oldest and the newest, whose last number may be
 * any. */
void hlo_portable_versions(int oldest[3], int newest[3]);

#endif
