/*
 * Private to hlo_builder: how a graph is held.
 *
 * A graph is a tree of blocks; @main's is the first. A block is a list of nodes in order, each with
 * operands, results, attributes and, for control, regions: blocks of their own. A region is closed:
 * it refers to nothing outside; what its builder used from outside has become an operand of the
 * node and a parameter of the region (hlo__close). So regions can be shared between nodes, and
 * copying a node never copies its regions. Once closed a block does not change.
 *
 * Everything lives in the graph's arena until the graph is freed. Every function that adds to the
 * graph returns null values, and does nothing else, once the graph has an error.
 */
#ifndef HLO_BUILDER_INTERNAL_H
#define HLO_BUILDER_INTERNAL_H

#include "hlo_builder/hlo.h"

#include <string.h>

/*
 * Every operation: X(ID, name). The elementwise ones come first, in the order of hlo.h, so that a
 * unary op is HLO_OP_neg … and a binary one HLO_OP_add … . The name is StableHLO's where there is
 * one.
 */
#define HLO_OTHER_OPS(X)                        \
    X(PARAM, "param")                           \
    X(CONSTANT, "constant")                     \
    X(IOTA, "iota")                             \
    X(ERF, "erf")                               \
    X(COMPARE, "compare")                       \
    X(SELECT, "select")                         \
    X(CLAMP, "clamp")                           \
    X(CONVERT, "convert")                       \
    X(BITCAST, "bitcast_convert")               \
    X(BROADCAST, "broadcast_in_dim")            \
    X(RESHAPE, "reshape")                       \
    X(TRANSPOSE, "transpose")                   \
    X(REVERSE, "reverse")                       \
    X(SLICE, "slice")                           \
    X(DYNAMIC_SLICE, "dynamic_slice")           \
    X(DYNAMIC_UPDATE, "dynamic_update_slice")   \
    X(PAD, "pad")                               \
    X(CONCAT, "concatenate")                    \
    X(REDUCE, "reduce")                         \
    X(DOT, "dot_general")                       \
    X(CONV, "convolution")                      \
    X(GATHER, "gather")                         \
    X(SCATTER_ADD, "scatter")                   \
    X(SORT, "sort")                             \
    X(RANDOM_BITS, "rng_bit_generator")         \
    X(WHILE, "while")                           \
    X(CASE, "case")                             \
    X(CALL, "call")                             \
    X(CUSTOM_CALL, "custom_call")               \
    X(BARRIER, "optimization_barrier")          \
    X(ALL_REDUCE, "all_reduce")                 \
    X(ALL_GATHER, "all_gather")                 \
    X(REDUCE_SCATTER, "reduce_scatter")         \
    X(COLLECTIVE_PERMUTE, "collective_permute") \
    X(PARTITION_ID, "partition_id")             \
    X(STOP_GRADIENT, "stop_gradient")           \
    X(KEEP, "keep")                             \
    X(CUSTOM_VJP, "custom_vjp")                 \
    X(SCAN, "scan")                             \
    X(REMAT, "remat")                           \
    X(SHARD, "sharding_constraint")             \
    X(ROW_MAJOR, "row_major")                   \
    X(MANUAL, "manual_computation")

typedef enum hlo_op {
    HLO_OP_NONE = 0,
#define HLO_OP_ENUM(name, spelling) HLO_OP_##name,
    HLO_UNARY_OPS(HLO_OP_ENUM) HLO_BINARY_OPS(HLO_OP_ENUM) HLO_OTHER_OPS(HLO_OP_ENUM)
#undef HLO_OP_ENUM
        HLO_NUM_OPS,
} hlo_op;

typedef struct hlo_node hlo_node;
typedef struct hlo_block hlo_block;
typedef struct hlo_value hlo_value;

struct hlo_value {
    hlo_node *node;
    int index; /* among the node's results */
    uint32_t id;
    hlo_shape shape;
};

struct hlo_node {
    hlo_op op;
    int n_in, n_out, n_regions;
    hlo_value **in, **out;
    hlo_block **regions;
    /* An op's own struct, below; without padding surprises, for it is compared byte by byte. */
    const void *attrs;
    size_t attrs_size;
    hlo_block *block;
    int position;      /* in its block's list */
    const char *scope; /* "block.3/ttt"; interned, "" at the top */
    uint32_t mark;     /* scratch of walks: see hlo__new_mark */
};

struct hlo_block {
    hlo_graph *graph;
    hlo_block *parent; /* the block it was built in; NULL for @main and once it is closed */
    hlo_value **params;
    int n_params;
    hlo_value **results;
    int n_results;
    hlo_node **nodes; /* parameters are not among them */
    int n_nodes, cap_nodes;
    hlo_block *next_in_graph;
};

/* ---- attributes ---- */

typedef struct hlo_constant_attrs {
    int64_t splat; /* one number for all elements: `integer` for integer types, else `real` */
    double real;
    int64_t integer;
    const void *data; /* dense, row-major, when not a splat */
} hlo_constant_attrs;
typedef struct hlo_param_attrs {
    const char *name;
    int index;
} hlo_param_attrs;
typedef struct hlo_dim_attrs { /* IOTA, CONCAT, ALL_GATHER … */
    int64_t dim;
} hlo_dim_attrs;
typedef struct hlo_dims_attrs { /* BROADCAST, TRANSPOSE, REVERSE; sizes of DYNAMIC_SLICE */
    hlo_dims dims;
} hlo_dims_attrs;
typedef struct hlo_compare_attrs {
    int64_t kind;
} hlo_compare_attrs;
typedef struct hlo_slice_attrs {
    hlo_dims start, limit, stride;
} hlo_slice_attrs;
typedef struct hlo_pad_attrs {
    hlo_dims low, high, interior;
} hlo_pad_attrs;
typedef struct hlo_reduce_attrs {
    int64_t kind;
    hlo_dims dims;
} hlo_reduce_attrs;
typedef struct hlo_gather_attrs { /* SCATTER_ADD too, without the window */
    hlo_gather_dims dims;
    hlo_dims window;
} hlo_gather_attrs;
typedef struct hlo_sort_attrs {
    int64_t dim;
    int64_t descending;
} hlo_sort_attrs;
typedef struct hlo_collective_attrs {
    int64_t kind; /* of an all_reduce */
    int64_t dim;
    const int64_t *ids; /* groups, or source-target pairs */
    int64_t rows, columns;
} hlo_collective_attrs;
typedef struct hlo_call_attrs {
    const char *name;
    int64_t composite;
} hlo_call_attrs;
typedef struct hlo_rule_attrs { /* CUSTOM_VJP; operands behind the first n_in were captured */
    hlo_vjp_rule rule;
    void *ctx;
    int64_t n_in;
} hlo_rule_attrs;
typedef struct hlo_scan_attrs {
    int64_t length;
    int64_t n_carry, n_inputs, n_outputs; /* operands: carries, inputs, then captured values */
    int64_t reverse, unroll, save;
} hlo_scan_attrs;
typedef struct hlo_remat_attrs {
    int64_t save;
} hlo_remat_attrs;
typedef struct hlo_manual_attrs {
    const hlo_spec *in_specs, *out_specs;
} hlo_manual_attrs;
/* DOT: hlo_dot_options. CONV: hlo_conv_options. CUSTOM_CALL: hlo_custom_call_options, all of whose
 * pointers are to copies in the arena. SHARD: hlo_spec, its names interned. */

/* A type, a rank in range, no negative dimension, and no more elements than fit an int64. */
bool hlo__shape_ok(const hlo_shape *shape);

/* ---- memory, errors, identity ---- */

/* Zeroed memory of the graph; NULL, and an error, when there is none. */
void *hlo__alloc(hlo_graph *g, size_t size);
void *hlo__copy(hlo_graph *g, const void *bytes, size_t size);
/* `list`, or a larger copy of it in the graph's memory, with room for one item behind the first n;
 * NULL, and an error, when there is none. */
void *hlo__room(hlo_graph *g, void *list, int n, int *capacity, size_t item_size);
/* The one copy of that text in the graph: equal texts, equal pointers. */
const char *hlo__intern(hlo_graph *g, const char *text);

bool hlo__failed(const hlo_graph *g);
/* An error about an operation: "scope: name: words (shapes of the operands)". */
void hlo__fail_op(hlo_graph *g, hlo_op op, const hlo_val *in, int n_in, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
const char *hlo__op_name(hlo_op op);

/* The value behind a handle, NULL and an error when it is null, foreign, or not visible from the
 * current block. */
hlo_value *hlo__value(hlo_graph *g, hlo_val v);
/* The same for n handles, with the error naming `op` and the operand. */
bool hlo__values(hlo_graph *g, hlo_op op, const hlo_val *v, int n, hlo_value **out);
hlo_val hlo__handle(const hlo_graph *g, const hlo_value *v); /* null for NULL */

/* A number no node is marked with yet. */
uint32_t hlo__new_mark(hlo_graph *g);

/* ---- adding nodes ---- */

/*
 * Adds a node to the current block. An equal one there already (same operation, operands and
 * attributes, no regions, no side effect) is returned instead. `in` are checked; `shapes` are the
 * results'. Returns NULL once the graph has an error.
 */
hlo_node *hlo__add(hlo_graph *g, hlo_op op, const hlo_val *in, int n_in, const hlo_shape *shapes,
                   int n_out, const void *attrs, size_t attrs_size);
/* The common case of one result. */
hlo_val hlo__add1(hlo_graph *g, hlo_op op, const hlo_val *in, int n_in, hlo_shape shape,
                  const void *attrs, size_t attrs_size);
/* One with regions; never merged. */
hlo_node *hlo__add_region_op(hlo_graph *g, hlo_op op, const hlo_val *in, int n_in,
                             const hlo_shape *shapes, int n_out, const void *attrs,
                             size_t attrs_size, hlo_block **regions, int n_regions);
hlo_val hlo__out(const hlo_node *node, int index); /* null for NULL */

/* The constant that v is everywhere, if it is one (a splat, also through broadcasts). */
bool hlo__is_splat(const hlo_graph *g, hlo_val v, double *value);

/* ---- blocks ---- */

/* Opens a block inside the current one and makes it current; then parameters are added and the body
 * built. hlo__end_block makes the previous one current again and sets the results. */
hlo_block *hlo__begin_block(hlo_graph *g);
hlo_val hlo__block_param(hlo_graph *g, hlo_shape shape);
void hlo__end_block(hlo_graph *g, hlo_block *block, const hlo_val *results, int n_results);
/*
 * Closes an ended block: values from outside become parameters behind the existing ones, and the
 * list of them is returned (arena), as operands for the node that will own the block. Constants are
 * copied into the block instead. `*n` is their number.
 */
hlo_val *hlo__close(hlo_graph *g, hlo_block *block, int *n);
/* Builds `body` as a closed block over values like `in`. `*all` are the operands for the node that
 * will own it, `*n_all` of them: `in`, then what was captured. NULL on error. */
hlo_block *hlo__build_body(hlo_graph *g, hlo_body body, void *ctx, const hlo_val *in, int n_in,
                           int n_out, hlo_val **all, int *n_all);
/* Builds the nodes of a closed block into the current one, its parameters being `args`. */
void hlo__inline(hlo_graph *g, const hlo_block *block, const hlo_val *args, hlo_val *results);
/* A copy of `node` in the current block with other operands: regions are shared. */
hlo_node *hlo__clone_node(hlo_graph *g, const hlo_node *node, const hlo_val *in);

hlo_block *hlo__main_block(const hlo_graph *g);
hlo_block *hlo__current_block(const hlo_graph *g);

/* From values of one block to values of another while copying. A set that runs out of memory is an
 * error of the graph. */
typedef struct hlo_map {
    hlo_graph *graph;
    uint32_t *keys, *ids;
    size_t size, count;
} hlo_map;
bool hlo__map_init(hlo_graph *g, hlo_map *map);
void hlo__map_free(hlo_map *map);
void hlo__map_set(hlo_map *map, const hlo_value *from, hlo_val to);
hlo_val hlo__map_get(const hlo_map *map, const hlo_value *from); /* null when not there */
/* Copies a node, its operands found in the map and its results put there. */
bool hlo__clone_mapped(hlo_graph *g, const hlo_node *node, hlo_map *map);
/* hlo__inline that leaves what became of each value in the map. */
void hlo__inline_mapped(hlo_graph *g, const hlo_block *block, const hlo_val *args, hlo_map *map,
                        hlo_val *results);

/* ---- gradients ---- */

/*
 * The rule of an op: given the node and the gradients of its results (null: zero), fills in those
 * of its operands. `wanted[i]` tells whether operand i's is asked for; d_in starts null.
 */
typedef void hlo_vjp_fn(hlo_graph *g, const hlo_node *node, const hlo_val *d_out,
                        const bool *wanted, hlo_val *d_in);
/* The op's rule; NULL when no gradient flows through it (comparisons, stop_gradient …), or, with
 * `*refused`, when asking for one is an error. The table is in vjp.c. */
hlo_vjp_fn *hlo__vjp_of(hlo_op op, bool *refused);

/* Rules by family; each is defined beside its operation. */
hlo_vjp_fn hlo__vjp_unary, hlo__vjp_binary, hlo__vjp_erf, hlo__vjp_select, hlo__vjp_clamp,
    hlo__vjp_convert;
hlo_vjp_fn hlo__vjp_broadcast, hlo__vjp_reshape, hlo__vjp_transpose, hlo__vjp_reverse,
    hlo__vjp_slice, hlo__vjp_dynamic_slice, hlo__vjp_dynamic_update, hlo__vjp_pad, hlo__vjp_concat;
hlo_vjp_fn hlo__vjp_reduce, hlo__vjp_dot, hlo__vjp_conv, hlo__vjp_gather, hlo__vjp_scatter_add,
    hlo__vjp_sort;
hlo_vjp_fn hlo__vjp_case, hlo__vjp_call, hlo__vjp_custom_call, hlo__vjp_barrier,
    hlo__vjp_all_reduce, hlo__vjp_all_gather, hlo__vjp_reduce_scatter, hlo__vjp_collective_permute,
    hlo__vjp_keep, hlo__vjp_custom_vjp, hlo__vjp_scan, hlo__vjp_remat, hlo__vjp_shard,
    hlo__vjp_row_major;

/* A float operand's gradient exists; others' do not. */
bool hlo__differentiable(const hlo_value *v);
/* Marks, with the returned mark, the nodes of `block` from position `first` to before `end` through
 * which a gradient flows from any of `from`. */
uint32_t hlo__mark_active(hlo_graph *g, hlo_block *block, int first, int end,
                          hlo_value *const *from, int n_from, hlo_map *is_from);
/* Whether gradients flow into `v`, after hlo__mark_active. */
bool hlo__is_active(const hlo_value *v, uint32_t mark, const hlo_map *is_from);

/* Adds results to a node that has them stacked at the end: a scan's or remat's residuals. */
bool hlo__append_outs(hlo_graph *g, hlo_node *node, const hlo_shape *shapes, int n);
/* Sums of gradients of that type are kept in this one. */
hlo_type hlo__gradient_sum_type(const hlo_graph *g, hlo_type type);

/* ---- lowering and writing ---- */

/*
 * A copy of @main and the functions it calls in terms of what StableHLO has: scans are whiles,
 * remat and custom gradients are inlined, a REDUCE has the value it starts from as second operand,
 * dead nodes are gone. A WHILE's and CASE's regions belong to it alone; CALL nodes share theirs.
 * NULL on error.
 */
hlo_block *hlo__lower(hlo_graph *g, bool layouts);
/* What a copy of `node` with operands `in` can be had from without it (a transpose of a transpose,
 * a reshape of a reshape …); null when it cannot. For lowering alone: it looks through values that
 * a gradient might be asked for. */
hlo_val hlo__simplify(hlo_graph *g, const hlo_node *node, const hlo_val *in);

typedef struct hlo_mesh_info {
    int n;
    const char *names[HLO_MAX_AXES];
    int64_t sizes[HLO_MAX_AXES];
} hlo_mesh_info;
const hlo_mesh_info *hlo__mesh(const hlo_graph *g);

/* What hlo_param, hlo_result, hlo_donate and hlo_shard_* were told. */
typedef struct hlo_io {
    const char *name;
    hlo_value *value;
    bool sharded;
    hlo_spec spec;
    int alias; /* of a param: the result it may become; -1 */
} hlo_io;
const hlo_io *hlo__io_params(const hlo_graph *g, int *n);
const hlo_io *hlo__io_results(const hlo_graph *g, int *n);
const char *hlo__graph_name(const hlo_graph *g);

#endif
