/*
 * Private to the portable writer: vhlo.c has the module, functions and regions, vhlo_attrs.c types
 * and attributes, vhlo_ops.c each operation.
 *
 * VHLO is StableHLO with a version for every operation and attribute, which then never change. An
 * operation's attributes are written as its properties: their numbers in the alphabetical order of
 * their names, all of them, defaults too. What StableHLO has not, shardings and erf, stays in its
 * own dialect between casts, as StableHLO since 1.11 allows.
 */
#ifndef HLO_BUILDER_WRITE_VHLO_H
#define HLO_BUILDER_WRITE_VHLO_H

#include "hlo_builder/write/bytecode.h"
#include "hlo_builder/write/write.h"

typedef struct hlo_portable {
    hlo_graph *g;
    hlo_portable_options options;
    int minor; /* of the version 1.x.y that is written */
    hlo_bytecode bytecode;
    hlo_writer texts;   /* names functions and spells shardings */
    hlo_text scratch;   /* of one encoding */
    hlo_text ir;        /* operations so far */
    uint32_t *numbers;  /* by value id */
    uint32_t next, end; /* number of the next value in this region; behind its last */
    const char *scope;  /* the last, and its location */
    uint32_t scope_location;
    uint32_t unknown_location;
    uint32_t *list; /* types or operands of one operation */
    size_t cap_list;
} hlo_portable;

/* ---- types and attributes, by their numbers ---- */

uint32_t hlo__vhlo_element(hlo_portable *p, hlo_type type);
uint32_t hlo__vhlo_type(hlo_portable *p, const hlo_shape *shape);
uint32_t hlo__builtin_type(hlo_portable *p, const hlo_shape *shape);
uint32_t hlo__vhlo_function_type(hlo_portable *p, const hlo_block *block);
uint32_t hlo__vhlo_no_type(hlo_portable *p);

uint32_t hlo__vhlo_string(hlo_portable *p, const char *string);
uint32_t hlo__vhlo_int(hlo_portable *p, hlo_type type, int64_t value);
uint32_t hlo__vhlo_float(hlo_portable *p, float value);
uint32_t hlo__vhlo_bool(hlo_portable *p, bool value);
uint32_t hlo__vhlo_type_attr(hlo_portable *p, uint32_t type);
uint32_t hlo__vhlo_array(hlo_portable *p, const uint32_t *attrs, size_t n);
uint32_t hlo__vhlo_dict(hlo_portable *p, const uint32_t (*pairs)[2], size_t n);
uint32_t hlo__vhlo_ints(hlo_portable *p, const int64_t *numbers, int64_t n); /* tensor<n x i64> */
uint32_t hlo__vhlo_dims(hlo_portable *p, const hlo_dims *dims);
/* tensor<rank x index>: the dimensions from minor to major */
uint32_t hlo__vhlo_row_major(hlo_portable *p, int rank);
uint32_t hlo__vhlo_rows(hlo_portable *p, const int64_t *numbers, int64_t rows, int64_t columns);
uint32_t hlo__vhlo_constant(hlo_portable *p, const hlo_shape *shape, const hlo_constant_attrs *a);
uint32_t hlo__vhlo_number(hlo_portable *p, hlo_type type, double value); /* a scalar constant */
uint32_t hlo__vhlo_alias(hlo_portable *p, int result, int operand); /* result -1: the only one */
/* Enumerations: which one, and the value. */
enum {
    HLO_VHLO_DIRECTION = 3,
    HLO_VHLO_COMPARISON = 4,
    HLO_VHLO_API_VERSION = 5,
    HLO_VHLO_PRECISION = 11,
    HLO_VHLO_RNG = 12,
};
uint32_t hlo__vhlo_enum(hlo_portable *p, int which, int value);
uint32_t hlo__vhlo_accuracy(hlo_portable *p); /* the default one of an elementwise function */

uint32_t hlo__builtin_string(hlo_portable *p, const char *string);
uint32_t hlo__builtin_int(hlo_portable *p, hlo_type type, int64_t value);
uint32_t hlo__builtin_dict(hlo_portable *p, const uint32_t (*pairs)[2], size_t n);
/* What has been written to p->texts.text since it was empty, as one of Shardy's attributes; it is
 * emptied again. */
uint32_t hlo__sdy_attr(hlo_portable *p);
uint32_t hlo__sdy_sharding(hlo_portable *p, const hlo_spec *spec, int rank);
uint32_t hlo__gspmd_sharding(hlo_portable *p, const hlo_spec *spec, int rank); /* a VHLO string */

uint32_t hlo__unknown_location(hlo_portable *p);
uint32_t hlo__named_location(hlo_portable *p, const char *name);

/* ---- operations ---- */

typedef struct hlo_portable_op {
    const char *dialect, *name;
    uint32_t location;
    const uint32_t *attrs; /* properties */
    int n_attrs;
    uint32_t dictionary;   /* of what are no properties, plus one; 0: none */
    const uint32_t *types; /* of the results */
    int n_results;
    const uint32_t *operands;
    int n_operands;
    int n_regions;
    bool isolated; /* the regions follow as a section */
} hlo_portable_op;

/* Writes all of it but the regions, which the caller writes next. Results take the next numbers. */
void hlo__put_op(hlo_portable *p, const hlo_portable_op *op);
/* One of VHLO's for a node: with its results, location and the first op.n_operands operands. */
void hlo__put_node_op(hlo_portable *p, const hlo_node *node, hlo_portable_op op);
/* The same with all operands, these properties and nothing else. */
void hlo__put_node(hlo_portable *p, const hlo_node *node, const char *name, const uint32_t *attrs,
                   int n_attrs);
uint32_t hlo__node_location(hlo_portable *p, const hlo_node *node);

typedef struct hlo_portable_region {
    uint32_t next, end;
} hlo_portable_region;

/* A region of one block with so many operations and values, the arguments among them. Values from
 * around it stay in reach, unless it is isolated. */
hlo_portable_region hlo__begin_region(hlo_portable *p, const uint32_t *arg_types, int n_args,
                                      const uint32_t *arg_locations, size_t n_ops, size_t n_values,
                                      bool isolated);
void hlo__end_region(hlo_portable *p, hlo_portable_region around);
/* A lowered block as a region. `args` are what its parameters stand for; NULL: its own. */
void hlo__put_region(hlo_portable *p, const hlo_block *block, hlo_value *const *args);
void hlo__put_nodes(hlo_portable *p, const hlo_block *block);
void hlo__put_return(hlo_portable *p, const char *dialect, const char *name,
                     const uint32_t *operands, int n);
/* Room for n numbers in p->list; NULL on error. */
uint32_t *hlo__list(hlo_portable *p, size_t n);

/* How many operations and values a node is written as, besides those in its regions. */
void hlo__measure_node(const hlo_portable *p, const hlo_node *node, size_t *ops, size_t *values);
void hlo__measure_block(const hlo_portable *p, const hlo_block *block, size_t *ops, size_t *values);
void hlo__put_portable_op(hlo_portable *p, const hlo_node *node);

/* The minor version of StableHLO that has what a node needs. */
int hlo__version_of(const hlo_node *node, bool gspmd);

#endif
