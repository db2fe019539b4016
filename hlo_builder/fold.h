/*
 * Private to the operations of hlo_builder: splat constants and their arithmetic.
 *
 * A splat is a constant with one number for all its elements. It is held in its element type
 * exactly: floats are rounded to it, integers wrapped to it; u64 above 2^63 is the int64 of the
 * same bits. Integers and predicates are in both fields, floats in `real` alone, so that equal
 * numbers are equal bytes.
 */
#ifndef HLO_BUILDER_FOLD_H
#define HLO_BUILDER_FOLD_H

#include "hlo_builder/internal.h"

typedef struct hlo_number {
    double real;
    int64_t integer;
} hlo_number;

char hlo__type_kind(hlo_type type); /* 'f', 's', 'u', 'p' as in HLO_TYPES; '?' for none */

/* A number of that type: rounded to nearest even, or wrapped. */
hlo_number hlo__float_number(hlo_type type, double value);
hlo_number hlo__int_number(hlo_type type, uint64_t bits);
/* The element at `bytes`, which is of that type. */
hlo_number hlo__read_number(hlo_type type, const void *bytes);

/*
 * The operation on numbers of `type`. False when it is better left to the backend: what the result
 * is depends on it (integer division by zero, a float too large for the integer), or it is not
 * worth it.
 */
bool hlo__fold_unary(hlo_op op, hlo_type type, hlo_number x, hlo_number *out);
bool hlo__fold_binary(hlo_op op, hlo_type type, hlo_number a, hlo_number b, hlo_number *out);
bool hlo__fold_compare(hlo_compare_kind kind, hlo_type type, hlo_number a, hlo_number b);
bool hlo__fold_convert(hlo_type from, hlo_number x, hlo_type to, hlo_number *out);

/* Whether v is a splat, and of what. */
bool hlo__splat_of(const hlo_graph *g, hlo_val v, hlo_number *number);
hlo_val hlo__splat(hlo_graph *g, hlo_shape shape, hlo_number number);

#endif
