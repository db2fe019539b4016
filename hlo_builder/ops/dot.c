/* Products: dot_general, matmul and einsum. */
#include "hlo_builder/dims.h"

#include <stdio.h>

/* ---- dot_general ---- */

static bool number_wider_or_equal(hlo_type to, hlo_type from)
{
    return to != HLO_PRED && hlo_type_is_float(to) == hlo_type_is_float(from) &&
           hlo_type_bits(to) >= hlo_type_bits(from) &&
           (hlo_type_bits(to) > hlo_type_bits(from) || to == from);
}

static bool check_types(hlo_graph *g, const hlo_val in[2], hlo_dot_options *o)
{
    hlo_type a = hlo_type_of(g, in[0]), b = hlo_type_of(g, in[1]);
    if (o->result == HLO_TYPE_NONE)
        o->result = a;
    if (a != b || a == HLO_PRED)
        hlo__fail_op(g, HLO_OP_DOT, in, 2, "operands are numbers of one type, not %s and %s",
                     hlo_type_name(a), hlo_type_name(b));
    else if (!number_wider_or_equal(o->result, a))
        hlo__fail_op(g, HLO_OP_DOT, in, 2, "a product of %s cannot be accumulated in %s",
                     hlo_type_name(a), hlo_type_name(o->result));
    else if ((unsigned)o->precision > HLO_PRECISION_HIGHEST)
        hlo__fail_op(g, HLO_OP_DOT, in, 2, "no such precision: %d", (int)o->precision);
    return !hlo__failed(g);
}

/* Dimensions that batch or contract: as many on both sides, of equal sizes, none used twice. */
static bool check_dims(hlo_graph *g, const hlo_val in[2], hlo_dot_options *o)
{
    const hlo_shape *a = hlo_shape_of(g, in[0]), *b = hlo_shape_of(g, in[1]);
    hlo_dims *lists[2][2] = {{&o->lhs_batch, &o->rhs_batch}, {&o->lhs_contract, &o->rhs_contract}};
    static const char *const names[2] = {"batching", "contracting"};
    for (int k = 0; k < 2; k++) {
        hlo_dims *l = lists[k][0], *r = lists[k][1];
        if (l->n != r->n || !hlo__dims_distinct(l, a->rank) || !hlo__dims_distinct(r, b->rank)) {
            hlo__fail_op(g, HLO_OP_DOT, in, 2,
                         "%s dimensions are as many different dimensions on both sides", names[k]);
            return false;
        }
        for (int64_t i = 0; i < l->n; i++) {
            if (a->dims[l->d[i]] != b->dims[r->d[i]]) {
                hlo__fail_op(g, HLO_OP_DOT, in, 2, "%s %lld and %lld", names[k],
                             (long long)a->dims[l->d[i]], (long long)b->dims[r->d[i]]);
                return false;
            }
        }
    }
    for (int side = 0; side < 2; side++) {
        for (int64_t i = 0; i < lists[0][side]->n; i++) {
            if (hlo__dims_have(lists[1][side], lists[0][side]->d[i])) {
                hlo__fail_op(g, HLO_OP_DOT, in, 2,
                             "dimension %lld of operand %d is both batching and contracting",
                             (long long)lists[0][side]->d[i], side);
                return false;
            }
        }
    }
    return true;
}

/* The dimensions of an operand that are neither batching nor contracting. */
static hlo_dims free_dims(int rank, const hlo_dims *batch, const hlo_dims *contract)
{
    hlo_dims used = *batch;
    for (int64_t i = 0; i < contract->n; i++)
        hlo__dims_push(&used, contract->d[i]);
    return hlo__dims_others(&used, rank);
}

hlo_val hlo_dot(hlo_graph *g, hlo_val a, hlo_val b, const hlo_dot_options *options)
{
    const hlo_val in[2] = {a, b};
    hlo_value *values[2];
    if (hlo__failed(g) || !hlo__values(g, HLO_OP_DOT, in, 2, values))
        return (hlo_val){0};
    hlo_dot_options o;
    memset(&o, 0, sizeof o);
    if (options != NULL)
        o = *options;
    if (!check_types(g, in, &o) || !check_dims(g, in, &o))
        return (hlo_val){0};
    const hlo_shape *left = &values[0]->shape, *right = &values[1]->shape;
    hlo_dims left_free = free_dims(left->rank, &o.lhs_batch, &o.lhs_contract);
    hlo_dims right_free = free_dims(right->rank, &o.rhs_batch, &o.rhs_contract);
    hlo_dims result = {0};
    for (int64_t i = 0; i < o.lhs_batch.n; i++)
        hlo__dims_push(&result, left->dims[o.lhs_batch.d[i]]);
    for (int64_t i = 0; i < left_free.n; i++)
        hlo__dims_push(&result, left->dims[left_free.d[i]]);
    for (int64_t i = 0; i < right_free.n; i++)
        hlo__dims_push(&result, right->dims[right_free.d[i]]);
    hlo_shape shape = hlo__shape_with(o.result, &result);
    if (!hlo__shape_ok(&shape)) {
        hlo__fail_op(g, HLO_OP_DOT, in, 2, "the result has %d dimensions or too many elements",
                     shape.rank);
        return (hlo_val){0};
    }
    return hlo__add1(g, HLO_OP_DOT, in, 2, shape, &o, sizeof o);
}

/* x transposed, unless that would change nothing. */
static hlo_val arrange(hlo_graph *g, hlo_val x, const hlo_dims *permutation)
{
    return hlo__dims_sorted(permutation) ? x : hlo_transpose(g, x, *permutation);
}

/*
 * The gradient by one operand is the product of d with the other one, over the other's free
 * dimensions. d comes as batch, left free, right free. What the other operand has left over are its
 * contracting dimensions, in its own order; each stands for its partner in this operand.
 *
 * The multiplication is in the operands' type, whatever the forward one accumulated in: units that
 * multiply short floats accumulate in f32 inside, and would be left idle by f32 operands.
 */
static hlo_val vjp_side(hlo_graph *g, const hlo_node *node, hlo_val d, bool left)
{
    const hlo_dot_options *o = node->attrs;
    const hlo_value *mine = node->in[left ? 0 : 1], *other = node->in[left ? 1 : 0];
    const hlo_dims *my_batch = left ? &o->lhs_batch : &o->rhs_batch;
    const hlo_dims *other_batch = left ? &o->rhs_batch : &o->lhs_batch;
    const hlo_dims *my_contract = left ? &o->lhs_contract : &o->rhs_contract;
    const hlo_dims *other_contract = left ? &o->rhs_contract : &o->lhs_contract;
    hlo_dims my_free = free_dims(mine->shape.rank, my_batch, my_contract);
    hlo_dims other_free = free_dims(other->shape.rank, other_batch, other_contract);

    hlo_dims d_batch = {0}, d_contract = {0};
    for (int64_t i = 0; i < my_batch->n; i++)
        hlo__dims_push(&d_batch, i);
    for (int64_t i = 0; i < other_free.n; i++)
        hlo__dims_push(&d_contract, my_batch->n + (left ? my_free.n : 0) + i);

    /* Which dimension of this operand each dimension of the product is. */
    hlo_dims is = *my_batch, rest = {0}, permutation = {.n = mine->shape.rank};
    for (int i = 0; i < other->shape.rank; i++) {
        for (int64_t k = 0; k < other_contract->n; k++) {
            if (other_contract->d[k] == i)
                hlo__dims_push(&rest, my_contract->d[k]);
        }
    }
    const hlo_dims *first = left ? &my_free : &rest, *second = left ? &rest : &my_free;
    for (int64_t i = 0; i < first->n; i++)
        hlo__dims_push(&is, first->d[i]);
    for (int64_t i = 0; i < second->n; i++)
        hlo__dims_push(&is, second->d[i]);
    for (int64_t i = 0; i < is.n; i++)
        permutation.d[is.d[i]] = i;

    /* The left gradient is d times right and the right one left times d: then that of a matmul
     * needs no transpose. */
    hlo_dot_options options;
    memset(&options, 0, sizeof options);
    options.lhs_batch = left ? d_batch : *other_batch;
    options.rhs_batch = left ? *other_batch : d_batch;
    options.lhs_contract = left ? d_contract : other_free;
    options.rhs_contract = left ? other_free : d_contract;
    options.precision = o->precision;
    hlo_val other_value = hlo__handle(g, other);
    d = hlo_convert(g, d, mine->shape.type);
    hlo_val product =
        left ? hlo_dot(g, d, other_value, &options) : hlo_dot(g, other_value, d, &options);
    return arrange(g, product, &permutation);
}

void hlo__vjp_dot(hlo_graph *g, const hlo_node *node, const hlo_val *d_out, const bool *wanted,
                  hlo_val *d_in)
{
    if (d_out[0].id == 0)
        return;
    for (int i = 0; i < 2; i++) {
        if (wanted[i])
            d_in[i] = vjp_side(g, node, d_out[0], i == 0);
    }
}

/*
 * [..., k] x [k, n] with all rows of the left operand in one dimension. The product is the same;
 * its gradient by the right operand then contracts one dimension instead of several, which
 * compilers do without copying an operand the other way round first.
 */
static hlo_val matmul_of_rows(hlo_graph *g, hlo_val a, hlo_val b)
{
    const hlo_shape *s = hlo_shape_of(g, a);
    hlo_dims result = {.n = s->rank};
    int64_t rows = 1;
    for (int i = 0; i < s->rank - 1; i++) {
        result.d[i] = s->dims[i];
        rows *= s->dims[i];
    }
    result.d[s->rank - 1] = hlo_dim(g, b, 1);
    hlo_val flat = hlo_reshape(g, a, HLO_DIMS(rows, s->dims[s->rank - 1]));
    return hlo_reshape(g, hlo_matmul(g, flat, b), result);
}

hlo_val hlo_matmul(hlo_graph *g, hlo_val a, hlo_val b)
{
    const hlo_val in[2] = {a, b};
    hlo_value *values[2];
    if (hlo__failed(g) || !hlo__values(g, HLO_OP_DOT, in, 2, values))
        return (hlo_val){0};
    int ra = values[0]->shape.rank, rb = values[1]->shape.rank;
    hlo_dot_options o;
    memset(&o, 0, sizeof o);
    if (ra < 1 || rb < 2 || (rb > 2 && ra != rb)) {
        hlo__fail_op(g, HLO_OP_DOT, in, 2,
                     "matmul of ranks %d and %d; the second is 2 or both are the same", ra, rb);
        return (hlo_val){0};
    }
    if (rb == 2 && ra > 2 && values[0]->shape.dims[ra - 1] == values[1]->shape.dims[0] &&
        values[0]->shape.type == values[1]->shape.type)
        return matmul_of_rows(g, a, b);
    for (int i = 0; i < rb - 2; i++) {
        hlo__dims_push(&o.lhs_batch, i);
        hlo__dims_push(&o.rhs_batch, i);
    }
    o.lhs_contract = HLO_DIMS(ra - 1);
    o.rhs_contract = HLO_DIMS(rb - 2);
    return hlo_dot(g, a, b, &o);
}

/* ---- einsum ---- */

/* One dimension list of a spec: a letter a dimension. */
typedef struct letters {
    int n;
    char at[HLO_MAX_RANK + 1];
} letters;

static int find_letter(const letters *list, char letter)
{
    for (int i = 0; i < list->n; i++) {
        if (list->at[i] == letter)
            return i;
    }
    return -1;
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Reads letters up to the end of a list; what is wrong, or NULL. */
static const char *read_letters(const char **at, letters *out)
{
    for (; is_letter(**at) || **at == ' '; (*at)++) {
        if (**at == ' ')
            continue;
        if (find_letter(out, **at) >= 0)
            return "has a letter twice in one list";
        if (out->n == HLO_MAX_RANK)
            return "has a list of more letters than arrays have dimensions";
        out->at[out->n++] = **at;
    }
    return NULL;
}

/* "ab,bc->ac" into its three lists; what is wrong, or NULL. */
static const char *parse(const char *spec, letters list[3])
{
    const char *at = spec, *wrong = read_letters(&at, &list[0]);
    if (wrong != NULL)
        return wrong;
    if (*at != ',')
        return "has no comma after the letters of the first input";
    at++;
    wrong = read_letters(&at, &list[1]);
    if (wrong != NULL)
        return wrong;
    if (strncmp(at, "->", 2) != 0)
        return "has no \"->\" after the letters of the second input";
    at += 2;
    wrong = read_letters(&at, &list[2]);
    if (wrong == NULL && *at != '\0')
        return "has something behind the letters of the output";
    return wrong;
}

static void fail_spec(hlo_graph *g, const hlo_val in[2], const char *spec, const char *wrong)
{
    hlo__fail_op(g, HLO_OP_DOT, in, 2, "einsum \"%.80s\" %s", spec, wrong);
}

/* Whether the lists fit the operands and each other. */
static bool check_letters(hlo_graph *g, const hlo_val in[2], const char *spec,
                          const letters list[3])
{
    char wrong[160];
    for (int side = 0; side < 2; side++) {
        if (list[side].n != hlo_rank(g, in[side])) {
            snprintf(wrong, sizeof wrong, "names %d dimensions of input %d, which has %d",
                     list[side].n, side, hlo_rank(g, in[side]));
            fail_spec(g, in, spec, wrong);
            return false;
        }
    }
    for (int i = 0; i < list[0].n; i++) {
        int k = find_letter(&list[1], list[0].at[i]);
        if (k >= 0 && hlo_dim(g, in[0], i) != hlo_dim(g, in[1], k)) {
            snprintf(wrong, sizeof wrong, "gives '%c' the sizes %lld and %lld", list[0].at[i],
                     (long long)hlo_dim(g, in[0], i), (long long)hlo_dim(g, in[1], k));
            fail_spec(g, in, spec, wrong);
            return false;
        }
    }
    for (int i = 0; i < list[2].n; i++) {
        if (find_letter(&list[0], list[2].at[i]) < 0 && find_letter(&list[1], list[2].at[i]) < 0) {
            snprintf(wrong, sizeof wrong, "has '%c' in the output only", list[2].at[i]);
            fail_spec(g, in, spec, wrong);
            return false;
        }
    }
    return true;
}

/* Sums x over the letters that nobody else has. */
static hlo_val sum_lonely(hlo_graph *g, hlo_val x, letters *mine, const letters *other,
                          const letters *output)
{
    hlo_dims lonely = {0};
    letters left = {0};
    for (int i = 0; i < mine->n; i++) {
        if (find_letter(other, mine->at[i]) < 0 && find_letter(output, mine->at[i]) < 0)
            hlo__dims_push(&lonely, i);
        else
            left.at[left.n++] = mine->at[i];
    }
    *mine = left;
    return lonely.n == 0 ? x : hlo_sum(g, x, lonely);
}

/* The dot_general of two lists, and the letters of what it gives, up to twice the rank of one. */
typedef struct product {
    hlo_dot_options options;
    int n;
    char at[2 * HLO_MAX_RANK];
} product;

static product plan(const letters *a, const letters *b, const letters *output)
{
    product p;
    memset(&p, 0, sizeof p);
    for (int i = 0; i < output->n; i++) { /* batch dimensions in the order of the output */
        int l = find_letter(a, output->at[i]), r = find_letter(b, output->at[i]);
        if (l >= 0 && r >= 0) {
            hlo__dims_push(&p.options.lhs_batch, l);
            hlo__dims_push(&p.options.rhs_batch, r);
            p.at[p.n++] = output->at[i];
        }
    }
    for (int i = 0; i < a->n; i++) {
        int r = find_letter(b, a->at[i]);
        if (r < 0) {
            p.at[p.n++] = a->at[i];
        } else if (find_letter(output, a->at[i]) < 0) {
            hlo__dims_push(&p.options.lhs_contract, i);
            hlo__dims_push(&p.options.rhs_contract, r);
        }
    }
    for (int i = 0; i < b->n; i++) {
        if (find_letter(a, b->at[i]) < 0)
            p.at[p.n++] = b->at[i];
    }
    return p;
}

hlo_val hlo_einsum_as(hlo_graph *g, const char *spec, hlo_val a, hlo_val b, hlo_type result,
                      hlo_precision precision)
{
    hlo_val in[2] = {a, b};
    hlo_value *values[2];
    letters list[3] = {0};
    if (hlo__failed(g) || !hlo__values(g, HLO_OP_DOT, in, 2, values))
        return (hlo_val){0};
    const char *wrong = spec == NULL ? "is NULL" : parse(spec, list);
    if (wrong != NULL) {
        fail_spec(g, in, spec == NULL ? "" : spec, wrong);
        return (hlo_val){0};
    }
    if (!check_letters(g, in, spec, list))
        return (hlo_val){0};
    in[0] = sum_lonely(g, in[0], &list[0], &list[1], &list[2]);
    in[1] = sum_lonely(g, in[1], &list[1], &list[0], &list[2]);

    /* Either order of the operands may give the output's order at once. */
    product p = plan(&list[0], &list[1], &list[2]), q = plan(&list[1], &list[0], &list[2]);
    bool swap =
        memcmp(p.at, list[2].at, (size_t)p.n) != 0 && memcmp(q.at, list[2].at, (size_t)q.n) == 0;
    if (swap)
        p = q;
    p.options.result = result;
    p.options.precision = precision;
    hlo_val x = hlo_dot(g, in[swap ? 1 : 0], in[swap ? 0 : 1], &p.options);
    hlo_dims permutation = {0};
    for (int i = 0; i < list[2].n; i++) {
        for (int k = 0; k < p.n; k++) {
            if (p.at[k] == list[2].at[i])
                hlo__dims_push(&permutation, k);
        }
    }
    return arrange(g, x, &permutation);
}

hlo_val hlo_einsum(hlo_graph *g, const char *spec, hlo_val a, hlo_val b)
{
    return hlo_einsum_as(g, spec, a, b, HLO_TYPE_NONE, HLO_PRECISION_DEFAULT);
}
