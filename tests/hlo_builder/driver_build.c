/* The driver's other half: from nodes of the neutral description to calls of hlo.h. */
#include "tests/hlo_builder/driver.h"

#include "hlo_builder/graph.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_VALUES = 64, MAX_BRANCHES = 4 };

struct driver_body {
    driver_graph *d;
    json_t *blocks[MAX_BRANCHES]; /* which is which is the operation's own affair */
    driver_body *next;
};

typedef struct call {
    driver_graph *d;
    hlo_graph *g;
    json_t *node;
    hlo_val in[MAX_VALUES], out[MAX_VALUES];
    int n_in, n_out;
} call;

_Noreturn void driver_die(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("driver: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(3);
}

/* ---- reading ---- */

hlo_type driver_type(const char *name)
{
    for (int type = 1; type <= HLO_PRED; type++) {
        if (name != NULL && strcmp(hlo_type_name((hlo_type)type), name) == 0)
            return (hlo_type)type;
    }
    driver_die("no type \"%s\"", name == NULL ? "" : name);
}

hlo_dims driver_dims(json_t *list)
{
    hlo_dims dims = {.n = (int64_t)json_array_size(list)};
    if (dims.n > HLO_MAX_RANK)
        driver_die("%lld dimensions", (long long)dims.n);
    for (int64_t i = 0; i < dims.n; i++)
        dims.d[i] = json_integer_value(json_array_get(list, (size_t)i));
    return dims;
}

static json_t *attr(const call *c, const char *name)
{
    json_t *value = json_object_get(c->node, name);
    if (value == NULL)
        driver_die("%s: no \"%s\"", json_string_value(json_object_get(c->node, "op")), name);
    return value;
}

static hlo_dims dims(const call *c, const char *name)
{
    return driver_dims(attr(c, name));
}

static int64_t integer(const call *c, const char *name)
{
    return json_integer_value(attr(c, name));
}

static int small(const call *c, const char *name)
{
    return (int)integer(c, name);
}

static bool flag(const call *c, const char *name)
{
    return json_is_true(json_object_get(c->node, name));
}

static const char *word(const call *c, const char *name)
{
    return json_string_value(attr(c, name));
}

/* JSON has no infinities: these are words. */
static double real(const call *c, const char *name)
{
    json_t *value = attr(c, name);
    return json_is_string(value) ? strtod(json_string_value(value), NULL)
                                 : json_number_value(value);
}

static hlo_type type(const call *c)
{
    return driver_type(word(c, "type"));
}

static hlo_shape shape(const call *c)
{
    hlo_dims d = dims(c, "dims");
    hlo_shape s = {.type = type(c), .rank = (int)d.n};
    memcpy(s.dims, d.d, sizeof s.dims);
    return s;
}

/* The place of a word in a list. */
static int choice(const call *c, const char *name, const char *const *words, int n)
{
    for (int i = 0; i < n; i++) {
        if (strcmp(words[i], word(c, name)) == 0)
            return i;
    }
    driver_die("no %s \"%s\"", name, word(c, name));
}

static hlo_reduce_kind reduce_kind(const call *c)
{
    static const char *const kinds[] = {"add", "mul", "max", "min", "and", "or"};
    return (hlo_reduce_kind)choice(c, "kind", kinds, 6);
}

static hlo_save save(const call *c)
{
    static const char *const policies[] = {"all", "dots", "marked", "loops"};
    return json_object_get(c->node, "save") == NULL ? HLO_SAVE_ALL
                                                    : (hlo_save)choice(c, "save", policies, 4);
}

static hlo_spec spec(json_t *list)
{
    hlo_spec s = {0};
    for (size_t i = 0; i < json_array_size(list) && i < HLO_MAX_RANK; i++)
        s.axes[i] = json_string_value(json_array_get(list, i)); /* NULL for null */
    return s;
}

/* ---- blocks ---- */

static hlo_val *slot(driver_graph *d, json_t *number)
{
    json_int_t n = json_integer_value(number);
    if (!json_is_integer(number) || n < 0 || (size_t)n >= d->n_values)
        driver_die("no value %lld", (long long)n);
    return &d->values[n];
}

static int fetch(driver_graph *d, json_t *numbers, hlo_val *out)
{
    size_t n = json_array_size(numbers);
    if (n > MAX_VALUES)
        driver_die("%zu values", n);
    for (size_t i = 0; i < n; i++) { /* -1 is the null value */
        json_t *number = json_array_get(numbers, i);
        out[i] = json_integer_value(number) < 0 ? (hlo_val){0} : *slot(d, number);
    }
    return (int)n;
}

static void bind(driver_graph *d, json_t *numbers, const hlo_val *values)
{
    for (size_t i = 0; i < json_array_size(numbers); i++)
        *slot(d, json_array_get(numbers, i)) = values[i];
}

static void build_node(driver_graph *d, json_t *node);

static void build_nodes(driver_graph *d, json_t *block)
{
    size_t i;
    json_t *node;
    json_array_foreach(json_object_get(block, "nodes"), i, node)
    {
        build_node(d, node);
    }
}

/* Results go to `out`, which the description may not overrun: builders count what they are given.
 */
static void build_block(driver_graph *d, json_t *block, const hlo_val *in, hlo_val *out)
{
    bind(d, json_object_get(block, "params"), in);
    build_nodes(d, block);
    fetch(d, json_object_get(block, "results"), out);
}

static driver_body *new_body(const call *c, const char *names)
{
    driver_body *body = calloc(1, sizeof *body);
    if (body == NULL)
        driver_die("out of memory");
    body->d = c->d;
    body->next = c->d->bodies;
    c->d->bodies = body;
    json_t *blocks = attr(c, names);
    if (!json_is_array(blocks) || json_array_size(blocks) > MAX_BRANCHES)
        driver_die("\"%s\" is no list of a few blocks", names);
    for (size_t i = 0; i < json_array_size(blocks); i++)
        body->blocks[i] = json_array_get(blocks, i);
    return body;
}

static void body_0(hlo_graph *g, void *ctx, const hlo_val *in, hlo_val *out)
{
    driver_body *body = ctx;
    (void)g;
    build_block(body->d, body->blocks[0], in, out);
}

static void body_1(hlo_graph *g, void *ctx, const hlo_val *in, hlo_val *out)
{
    driver_body *body = ctx;
    (void)g;
    build_block(body->d, body->blocks[1], in, out);
}

static void body_2(hlo_graph *g, void *ctx, const hlo_val *in, hlo_val *out)
{
    driver_body *body = ctx;
    (void)g;
    build_block(body->d, body->blocks[2], in, out);
}

static void body_3(hlo_graph *g, void *ctx, const hlo_val *in, hlo_val *out)
{
    driver_body *body = ctx;
    (void)g;
    build_block(body->d, body->blocks[3], in, out);
}

static const hlo_body bodies[MAX_BRANCHES] = {body_0, body_1, body_2, body_3};

static hlo_val condition(hlo_graph *g, void *ctx, const hlo_val *in)
{
    hlo_val go_on = {0};
    body_0(g, ctx, in, &go_on);
    return go_on;
}

static void scan_step(hlo_graph *g, void *ctx, hlo_val step, const hlo_val *carry, const hlo_val *x,
                      hlo_val *next_carry, hlo_val *y)
{
    driver_body *body = ctx;
    json_t *block = body->blocks[0];
    int n_carry = (int)json_integer_value(json_object_get(block, "n_carry"));
    int n_x = (int)json_array_size(json_object_get(block, "params")) - 1 - n_carry;
    hlo_val in[1 + 2 * MAX_VALUES], out[MAX_VALUES];
    (void)g;
    in[0] = step;
    if (n_carry > 0)
        memcpy(in + 1, carry, (size_t)n_carry * sizeof *in);
    if (n_x > 0)
        memcpy(in + 1 + n_carry, x, (size_t)n_x * sizeof *in);
    bind(body->d, json_object_get(block, "params"), in);
    build_nodes(body->d, block);
    int n = fetch(body->d, json_object_get(block, "results"), out);
    for (int i = 0; i < n; i++)
        *(i < n_carry ? &next_carry[i] : &y[i - n_carry]) = out[i];
}

/* The rule's block takes the inputs, the outputs and the outputs' gradients. */
static void rule(hlo_graph *g, void *ctx, const hlo_val *in, int n_in, const hlo_val *out,
                 const hlo_val *d_out, int n_out, hlo_val *d_in)
{
    driver_body *body = ctx;
    hlo_val all[3 * MAX_VALUES];
    (void)g;
    memcpy(all, in, (size_t)n_in * sizeof *all);
    memcpy(all + n_in, out, (size_t)n_out * sizeof *all);
    memcpy(all + n_in + n_out, d_out, (size_t)n_out * sizeof *all);
    build_block(body->d, body->blocks[1], all, d_in);
}

/* ---- operations: one small function each ---- */

#define UNARY(name, spelling)                   \
    static void do_##name(call *c)              \
    {                                           \
        c->out[0] = hlo_##name(c->g, c->in[0]); \
    }
HLO_UNARY_OPS(UNARY)
UNARY(erf, "")
UNARY(gelu, "")
UNARY(silu, "")
UNARY(stop_gradient, "")
UNARY(keep, "")
UNARY(row_major, "")
UNARY(zeros_like, "")
#define BINARY(name, spelling)                            \
    static void do_##name(call *c)                        \
    {                                                     \
        c->out[0] = hlo_##name(c->g, c->in[0], c->in[1]); \
    }
HLO_BINARY_OPS(BINARY)
BINARY(matmul, "")
BINARY(take, "")
BINARY(cross_entropy, "")
BINARY(causal_conv, "")
#define TERNARY(name)                                               \
    static void do_##name(call *c)                                  \
    {                                                               \
        c->out[0] = hlo_##name(c->g, c->in[0], c->in[1], c->in[2]); \
    }
TERNARY(select)
TERNARY(clamp)

/* Those whose attributes fit in a line. */
#define SIMPLE(name, ...)          \
    static void do_##name(call *c) \
    {                              \
        hlo_graph *g = c->g;       \
        const hlo_val *in = c->in; \
        (void)in;                  \
        c->out[0] = (__VA_ARGS__); \
    }
SIMPLE(scalar, hlo_scalar(g, type(c), real(c, "value")))
SIMPLE(scalar_int, hlo_scalar_int(g, type(c), integer(c, "value")))
SIMPLE(full, hlo_full(g, shape(c), real(c, "value")))
SIMPLE(like, hlo_like(g, in[0], real(c, "value")))
SIMPLE(iota, hlo_iota(g, shape(c), small(c, "dim")))
SIMPLE(convert, hlo_convert(g, in[0], type(c)))
SIMPLE(bitcast, hlo_bitcast(g, in[0], type(c)))
SIMPLE(broadcast, hlo_broadcast(g, in[0], dims(c, "result"), dims(c, "dims")))
SIMPLE(broadcast_to, hlo_broadcast_to(g, in[0], dims(c, "result")))
SIMPLE(reshape, hlo_reshape(g, in[0], dims(c, "dims")))
SIMPLE(transpose, hlo_transpose(g, in[0], dims(c, "dims")))
SIMPLE(reverse, hlo_reverse(g, in[0], dims(c, "dims")))
SIMPLE(slice, hlo_slice(g, in[0], dims(c, "start"), dims(c, "limit"), dims(c, "stride")))
SIMPLE(slice_dim,
       hlo_slice_dim(g, in[0], small(c, "dim"), integer(c, "start"), integer(c, "limit")))
SIMPLE(dynamic_slice, hlo_dynamic_slice(g, in[0], in + 1, dims(c, "sizes")))
SIMPLE(dynamic_update, hlo_dynamic_update(g, in[0], in[1], in + 2))
SIMPLE(index, hlo_index(g, in[0], small(c, "dim"), in[1]))
SIMPLE(update_index, hlo_update_index(g, in[0], small(c, "dim"), in[1], in[2]))
SIMPLE(pad, hlo_pad(g, in[0], in[1], dims(c, "low"), dims(c, "high"), dims(c, "interior")))
SIMPLE(shift, hlo_shift(g, in[0], small(c, "dim"), integer(c, "by")))
SIMPLE(concat, hlo_concat(g, in, c->n_in, small(c, "dim")))
SIMPLE(stack, hlo_stack(g, in, c->n_in, small(c, "dim")))
SIMPLE(reduce, hlo_reduce(g, reduce_kind(c), in[0], dims(c, "dims")))
SIMPLE(reduce_keep, hlo_reduce_keep(g, reduce_kind(c), in[0], dims(c, "dims")))
SIMPLE(sum, hlo_sum(g, in[0], dims(c, "dims")))
SIMPLE(mean, hlo_mean(g, in[0], dims(c, "dims")))
SIMPLE(cumsum, hlo_cumsum(g, in[0], small(c, "dim")))
SIMPLE(argmax, hlo_argmax(g, in[0], small(c, "dim")))
SIMPLE(einsum, hlo_einsum(g, word(c, "spec"), in[0], in[1]))
SIMPLE(einsum_as, hlo_einsum_as(g, word(c, "spec"), in[0], in[1], type(c),
                                (hlo_precision)small(c, "precision")))
SIMPLE(softmax, hlo_softmax(g, in[0], small(c, "dim")))
SIMPLE(log_softmax, hlo_log_softmax(g, in[0], small(c, "dim")))
SIMPLE(layer_norm, hlo_layer_norm(g, in[0], in[1], in[2], real(c, "epsilon")))
SIMPLE(rms_norm, hlo_rms_norm(g, in[0], in[1], real(c, "epsilon")))
SIMPLE(rope, hlo_rope(g, in[0], in[1], real(c, "theta"), flag(c, "interleaved")))
SIMPLE(random_bits, hlo_random_bits(g, in[0], shape(c), &c->out[1]))
SIMPLE(random_uniform, hlo_random_uniform(g, in[0], shape(c), &c->out[1]))
SIMPLE(partition_id, hlo_partition_id(g))
SIMPLE(shard, hlo_shard(g, in[0], spec(attr(c, "spec"))))
SIMPLE(conv1d, hlo_conv1d(g, in[0], in[1],
                          &(hlo_conv_options){integer(c, "pad_low"), integer(c, "pad_high"),
                                              integer(c, "groups")}))

static void do_compare(call *c)
{
    static const char *const kinds[] = {"eq", "ne", "lt", "le", "gt", "ge"};
    c->out[0] =
        hlo_compare(c->g, (hlo_compare_kind)choice(c, "kind", kinds, 6), c->in[0], c->in[1]);
}

static void do_constant(call *c)
{
    size_t size;
    unsigned char *data = driver_decode(word(c, "data"), &size);
    hlo_shape s = shape(c);
    if (hlo_shape_elements(&s) * hlo_type_bits(s.type) / 8 != (int64_t)size)
        driver_die("constant: %zu bytes", size);
    c->out[0] = hlo_constant(c->g, s, data);
    free(data);
}

static void do_dot(call *c)
{
    hlo_dot_options o = {.lhs_batch = dims(c, "lhs_batch"),
                         .rhs_batch = dims(c, "rhs_batch"),
                         .lhs_contract = dims(c, "lhs_contract"),
                         .rhs_contract = dims(c, "rhs_contract")};
    if (json_object_get(c->node, "type") != NULL)
        o.result = type(c);
    if (json_object_get(c->node, "precision") != NULL)
        o.precision = (hlo_precision)small(c, "precision");
    c->out[0] = hlo_dot(c->g, c->in[0], c->in[1], &o);
}

static hlo_gather_dims gather_dims(const call *c)
{
    return (hlo_gather_dims){.offset = dims(c, "offset"),
                             .collapsed = dims(c, "collapsed"),
                             .operand_batch = dims(c, "operand_batch"),
                             .indices_batch = dims(c, "indices_batch"),
                             .start_map = dims(c, "start_map"),
                             .index_vector_dim = integer(c, "index_vector_dim")};
}

static void do_gather(call *c)
{
    hlo_gather_dims d = gather_dims(c);
    c->out[0] = hlo_gather(c->g, c->in[0], c->in[1], &d, dims(c, "window"));
}

static void do_scatter_add(call *c)
{
    hlo_gather_dims d = gather_dims(c);
    c->out[0] = hlo_scatter_add(c->g, c->in[0], c->in[1], c->in[2], &d);
}

static void do_sort(call *c)
{
    hlo_sort(c->g, c->in, c->n_in, small(c, "dim"), flag(c, "descending"), c->out);
}

static void do_top_k(call *c)
{
    hlo_top_k(c->g, c->in[0], integer(c, "k"), &c->out[0], &c->out[1]);
}

static void do_barrier(call *c)
{
    hlo_barrier(c->g, c->in, c->n_in, c->out);
}

/* ---- control ---- */

static void do_while(call *c)
{
    memcpy(c->out, c->in, (size_t)c->n_in * sizeof *c->out);
    hlo_while(c->g, condition, body_1, new_body(c, "blocks"), c->out, c->n_in);
}

static void do_if(call *c)
{
    hlo_if(c->g, c->in[0], body_0, body_1, new_body(c, "blocks"), c->out, c->n_out);
}

static void do_case(call *c)
{
    hlo_case(c->g, c->in[0], bodies, (int)json_array_size(attr(c, "blocks")), new_body(c, "blocks"),
             c->out, c->n_out);
}

static void do_call(call *c)
{
    hlo_call(c->g, word(c, "name"), body_0, new_body(c, "blocks"), c->in, c->n_in, c->out,
             c->n_out);
}

static void do_composite(call *c)
{
    hlo_composite(c->g, word(c, "name"), body_0, new_body(c, "blocks"), c->in, c->n_in, c->out,
                  c->n_out);
}

static void do_custom_vjp(call *c)
{
    hlo_custom_vjp(c->g, body_0, rule, new_body(c, "blocks"), c->in, c->n_in, c->out, c->n_out);
}

static void do_remat(call *c)
{
    hlo_remat(c->g, body_0, new_body(c, "blocks"), save(c), c->in, c->n_in, c->out, c->n_out);
}

static void do_scan(call *c)
{
    hlo_scan_options o = {.length = integer(c, "length"),
                          .reverse = flag(c, "reverse"),
                          .unroll = small(c, "unroll"),
                          .save = save(c)};
    hlo_dims levels = dims(c, "checkpoint");
    for (int64_t i = 0; i < levels.n && i < HLO_MAX_CHECKPOINT_LEVELS; i++)
        o.checkpoint[i] = levels.d[i];
    driver_body *body = new_body(c, "blocks");
    int n_carry = (int)json_integer_value(json_object_get(body->blocks[0], "n_carry"));
    memcpy(c->out, c->in, (size_t)n_carry * sizeof *c->out);
    hlo_scan(c->g, scan_step, body, c->out, n_carry, c->in + n_carry, c->n_in - n_carry,
             c->out + n_carry, c->n_out - n_carry, &o);
}

static void do_manual(call *c)
{
    hlo_spec in[MAX_VALUES], out[MAX_VALUES];
    for (int i = 0; i < c->n_in; i++)
        in[i] = spec(json_array_get(attr(c, "in_specs"), (size_t)i));
    for (int i = 0; i < c->n_out; i++)
        out[i] = spec(json_array_get(attr(c, "out_specs"), (size_t)i));
    hlo_manual(c->g, body_0, new_body(c, "blocks"), c->in, in, c->n_in, c->out, out, c->n_out);
}

/* The handler that driver.c registers multiplies by an attribute; so does its gradient. */
static void scale(hlo_graph *g, double by, bool in_place, bool has_side_effect, hlo_val x,
                  hlo_val *y);

static void scale_rule(hlo_graph *g, void *ctx, const hlo_val *in, int n_in, const hlo_val *out,
                       const hlo_val *d_out, int n_out, hlo_val *d_in)
{
    (void)in, (void)n_in, (void)out, (void)n_out;
    scale(g, *(const float *)ctx, false, false, d_out[0], d_in);
}

static void scale(hlo_graph *g, double by, bool in_place, bool has_side_effect, hlo_val x,
                  hlo_val *y)
{
    static float three = 3;
    static const int same[][2] = {{0, 0}};
    hlo_attr attrs[] = {{.name = "factor", .kind = HLO_ATTR_FLOAT, .real = by},
                        {.name = "comment", .kind = HLO_ATTR_STRING, .string = "\"quoted\""}};
    hlo_custom_call_options o = {.target = "ttt_test_scale",
                                 .attrs = attrs,
                                 .n_attrs = 2,
                                 .aliases = same,
                                 .n_aliases = in_place,
                                 .has_side_effect = has_side_effect,
                                 .vjp = scale_rule,
                                 .vjp_ctx = &three};
    hlo_shape s = *hlo_shape_of(g, x);
    hlo_custom_call(g, &o, &x, 1, &s, y, 1);
}

static void do_custom_call(call *c)
{
    scale(c->g, 3, flag(c, "in_place"), flag(c, "has_side_effect"), c->in[0], c->out);
}

/* ---- collectives ---- */

static hlo_groups groups(const call *c, int64_t ids[MAX_VALUES])
{
    json_t *rows = attr(c, "groups");
    int n = (int)json_array_size(rows), size = (int)json_array_size(json_array_get(rows, 0));
    for (int i = 0; i < n * size && i < MAX_VALUES; i++)
        ids[i] = json_integer_value(
            json_array_get(json_array_get(rows, (size_t)(i / size)), (size_t)(i % size)));
    return (hlo_groups){ids, n, size};
}

static void do_all_reduce(call *c)
{
    int64_t ids[MAX_VALUES];
    c->out[0] = hlo_all_reduce(c->g, reduce_kind(c), c->in[0], groups(c, ids));
}

static void do_all_gather(call *c)
{
    int64_t ids[MAX_VALUES];
    c->out[0] = hlo_all_gather(c->g, c->in[0], small(c, "dim"), groups(c, ids));
}

static void do_reduce_scatter(call *c)
{
    int64_t ids[MAX_VALUES];
    c->out[0] = hlo_reduce_scatter(c->g, c->in[0], small(c, "dim"), groups(c, ids));
}

static void do_collective_permute(call *c)
{
    int64_t ids[MAX_VALUES];
    hlo_groups pairs = groups(c, ids);
    c->out[0] = hlo_collective_permute(c->g, c->in[0], (const int64_t(*)[2])(const void *)ids,
                                       pairs.n_groups);
}

/* ---- gradients ---- */

static void take_block_ops(driver_graph *d, const hlo_block *block)
{
    for (int i = 0; i < block->n_nodes; i++) {
        d->ops[block->nodes[i]->op] = true;
        for (int r = 0; r < block->nodes[i]->n_regions; r++)
            take_block_ops(d, block->nodes[i]->regions[r]);
    }
}

static void take_ops(driver_graph *d)
{
    if (!d->ops_taken && d->g->params != NULL)
        d->ops[HLO_OP_PARAM] = true;
    for (const hlo_block *b = d->g->current; b != NULL && !d->ops_taken; b = b->parent)
        take_block_ops(d, b);
    d->ops_taken = true;
}

static void do_grad(call *c)
{
    take_ops(c->d);
    hlo_grad(c->g, c->in[0], c->in + 1, c->n_in - 1, c->out);
}

static void do_vjp(call *c)
{
    int n = small(c, "n_outputs");
    take_ops(c->d);
    hlo_vjp(c->g, c->in, c->in + n, n, c->in + 2 * n, c->n_in - 2 * n, c->out);
}

/* ---- the table ---- */

typedef struct op_entry {
    const char *name;
    void (*build)(call *c);
} op_entry;

/* clang-format off */
#define ENTRY(name, spelling) {#name, do_##name},
#define OTHERS(X) \
    X(erf, "") X(gelu, "") X(silu, "") X(stop_gradient, "") X(keep, "") X(row_major, "") X(zeros_like, "")         \
    X(matmul, "") X(take, "") X(cross_entropy, "") X(causal_conv, "") X(select, "") X(clamp, "")  \
    X(scalar, "") X(scalar_int, "") X(full, "") X(like, "") X(iota, "") X(convert, "")            \
    X(bitcast, "") X(broadcast, "") X(broadcast_to, "") X(reshape, "") X(transpose, "")           \
    X(reverse, "") X(slice, "") X(slice_dim, "") X(shift, "") X(dynamic_slice, "") X(dynamic_update, "")       \
    X(index, "") X(update_index, "") X(pad, "") X(concat, "") X(stack, "") X(reduce, "")          \
    X(reduce_keep, "") X(sum, "") X(mean, "") X(cumsum, "") X(argmax, "") X(einsum, "")           \
    X(einsum_as, "") X(softmax, "") X(log_softmax, "") X(layer_norm, "") X(rms_norm, "")          \
    X(rope, "") X(random_bits, "") X(random_uniform, "") X(partition_id, "") X(shard, "")         \
    X(conv1d, "") X(compare, "") X(constant, "") X(dot, "") X(gather, "") X(scatter_add, "")      \
    X(sort, "") X(top_k, "") X(barrier, "") X(while, "") X(if, "") X(case, "") X(call, "")        \
    X(composite, "") X(custom_vjp, "") X(remat, "") X(scan, "") X(manual, "") X(custom_call, "")  \
    X(all_reduce, "") X(all_gather, "") X(reduce_scatter, "") X(collective_permute, "")           \
    X(grad, "") X(vjp, "")
static const op_entry table[] = {HLO_UNARY_OPS(ENTRY) HLO_BINARY_OPS(ENTRY) OTHERS(ENTRY)};
/* clang-format on */

static const op_entry *find_op(const char *name)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (name != NULL && strcmp(table[i].name, name) == 0)
            return &table[i];
    }
    driver_die("no operation \"%s\"", name == NULL ? "" : name);
}

static void build_node(driver_graph *d, json_t *node)
{
    call c = {.d = d, .g = d->g, .node = node};
    const char *scope = json_string_value(json_object_get(node, "scope"));
    json_t *out = json_object_get(node, "out");
    c.n_in = fetch(d, json_object_get(node, "in"), c.in);
    c.n_out = (int)json_array_size(out);
    if (c.n_out > MAX_VALUES)
        driver_die("%d results", c.n_out);
    if (scope != NULL)
        hlo_scope_push(d->g, "%s", scope);
    find_op(json_string_value(json_object_get(node, "op")))->build(&c);
    if (scope != NULL)
        hlo_scope_pop(d->g);
    bind(d, out, c.out);
}

/* ---- documents ---- */

static void build_mesh(driver_graph *d, json_t *mesh)
{
    const char *names[HLO_MAX_AXES], *name;
    int64_t sizes[HLO_MAX_AXES];
    int n = 0;
    json_t *size;
    json_object_foreach(mesh, name, size)
    {
        if (n == HLO_MAX_AXES)
            driver_die("too many axes");
        names[n] = name;
        sizes[n++] = json_integer_value(size);
    }
    hlo_mesh(d->g, names, sizes, n);
}

static void build_params(driver_graph *d, json_t *params)
{
    size_t i;
    json_t *param;
    json_array_foreach(params, i, param)
    {
        char name[32];
        call c = {.d = d, .g = d->g, .node = param};
        snprintf(name, sizeof name, "p%zu", i);
        hlo_val v = hlo_param(d->g, name, shape(&c));
        if (json_object_get(param, "spec") != NULL)
            hlo_shard_param(d->g, v, spec(attr(&c, "spec")));
        *slot(d, attr(&c, "out")) = v;
    }
}

static void build_results(driver_graph *d, json_t *document)
{
    hlo_val v;
    size_t i;
    json_t *number, *results = json_object_get(document, "results"), *pair;
    json_array_foreach(results, i, number)
    {
        char name[32];
        snprintf(name, sizeof name, "r%zu", i);
        v = *slot(d, number);
        hlo_result(d->g, name, v);
    }
    json_array_foreach(json_object_get(document, "result_specs"), i, number)
    {
        hlo_shard_result(d->g, (int)i, spec(number));
    }
    json_array_foreach(json_object_get(document, "donate"), i, pair)
    {
        hlo_donate(d->g, *slot(d, json_array_get(pair, 0)),
                   (int)json_integer_value(json_array_get(pair, 1)));
    }
}

void driver_build(driver_graph *d, json_t *document)
{
    const char *name = json_string_value(json_object_get(document, "name"));
    memset(d, 0, sizeof *d);
    d->n_values = (size_t)json_integer_value(json_object_get(document, "n_values"));
    d->values = calloc(d->n_values + 1, sizeof *d->values);
    d->g = hlo_graph_new(name == NULL ? "test" : name);
    if (d->values == NULL || d->g == NULL)
        driver_die("out of memory");
    if (json_object_get(document, "mesh") != NULL)
        build_mesh(d, json_object_get(document, "mesh"));
    hlo_set_f32_gradient_sums(d->g, json_is_true(json_object_get(document, "f32_sums")));
    build_params(d, json_object_get(document, "params"));
    build_nodes(d, document);
    build_results(d, document);
    if (hlo_graph_error(d->g) == NULL)
        take_ops(d);
}

void driver_free(driver_graph *d)
{
    hlo_graph_free(d->g);
    free(d->values);
    while (d->bodies != NULL) {
        driver_body *body = d->bodies;
        d->bodies = body->next;
        free(body);
    }
}
