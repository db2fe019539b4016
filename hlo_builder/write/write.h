/*
 * Private to the writer's files: write.c has modules, functions and regions, write_ops.c the text
 * of each operation, write_constant.c numbers, write_sharding.c where arrays live. The portable
 * writer borrows the names of functions and the spelling of shardings.
 */
#ifndef HLO_BUILDER_WRITE_WRITE_H
#define HLO_BUILDER_WRITE_WRITE_H

#include "hlo_builder/internal.h"
#include "hlo_builder/write/text.h"

/* How a value is spelled: %12, %12#1 or %arg3. */
typedef struct hlo_name {
    uint32_t number;
    int32_t result; /* -1: the only one */
    bool is_arg;
} hlo_name;

typedef struct hlo_scope_table {
    const char **scopes; /* in the order of their first use; #loc1 is the first */
    size_t n, capacity;
    uint32_t *slots; /* place in `scopes` plus one, by address */
    size_t size;
    size_t last; /* what was asked for last */
} hlo_scope_table;

typedef struct hlo_writer {
    hlo_graph *g;
    hlo_write_options options;
    hlo_text text;
    hlo_name *names; /* by value id */
    uint32_t next;   /* number of the next value in this function */
    int depth;
    const char *scope; /* what the last comment said */
    hlo_scope_table scopes;
    hlo_block **functions; /* in the order of their first call */
    const char **function_names;
    size_t n_functions, cap_functions, cap_names;
    hlo_map function_of; /* from a function's first result to its place here plus one */
} hlo_writer;

/* ---- pieces, write.c ---- */

#define PUT(w, literal) hlo__text_put(&(w)->text, literal, sizeof(literal) - 1)
static inline void hlo__put_str(hlo_writer *w, const char *words)
{
    hlo__text_str(&w->text, words);
}
static inline void hlo__put_int(hlo_writer *w, int64_t value)
{
    hlo__text_int(&w->text, value);
}
void hlo__put_value(hlo_writer *w, const hlo_value *v);
/* "%1, %2" for operands from `first` on. */
void hlo__put_values(hlo_writer *w, hlo_value *const *values, int first, int n);
void hlo__put_type(hlo_writer *w, const hlo_shape *shape);
void hlo__put_types(hlo_writer *w, hlo_value *const *values, int n);
/* " : (…) -> …" */
void hlo__put_signature(hlo_writer *w, const hlo_node *node);
void hlo__put_list(hlo_writer *w, const int64_t *numbers, int64_t n); /* "1, 2" */
void hlo__put_dims(hlo_writer *w, const hlo_dims *dims);              /* "[1, 2]" */
void hlo__put_quoted(hlo_writer *w, const char *text);                /* "\"…\"" */
void hlo__put_symbol(hlo_writer *w, const char *name);                /* @name or @"a name" */
void hlo__new_line(hlo_writer *w);                                    /* and its indentation */
/* Names the results and begins the line: "%3 = " or "%3:2 = ". */
void hlo__begin_op(hlo_writer *w, const hlo_node *node);
/* The name for a value that only the text has. */
hlo_name hlo__new_name(hlo_writer *w);
/* The operations of a region, and `keyword` with its results. */
void hlo__write_region(hlo_writer *w, const hlo_block *block, const char *keyword);
/* The function that a CALL's lowered block is written as; put into line on its first use. */
const char *hlo__function_name(hlo_writer *w, const hlo_node *node);
/* A result can take the memory of one argument only, and lives where that one does. */
bool hlo__check_donations(hlo_graph *g);

/* ---- the parts ---- */

/* One operation, without location and line end. */
void hlo__write_op(hlo_writer *w, const hlo_node *node);
/* "dense<…>" */
void hlo__write_dense(hlo_writer *w, const hlo_shape *shape, const hlo_constant_attrs *attrs);
/* A float of that type as MLIR reads it back exactly. */
void hlo__put_float(hlo_writer *w, hlo_type type, double value);

/* "<["data"=2, "model"=4]>" */
void hlo__put_mesh(hlo_writer *w);
/* "<@mesh, [{"data"}, {}]>" */
void hlo__put_sharding(hlo_writer *w, const hlo_spec *spec, int rank);
/* The same for several values, with commas between. */
void hlo__put_shardings(hlo_writer *w, const hlo_spec *specs, hlo_value *const *values, int n);
void hlo__put_manual_axes(hlo_writer *w); /* "{"data", "model"}" */
/* "\"{devices=[2,1]<=[2]}\"" */
void hlo__put_gspmd(hlo_writer *w, const hlo_spec *spec, int rank);
/* Which axes of the mesh a dimension is split along, in order; -1 for a name that is none. */
int hlo__spec_axes(const hlo_mesh_info *mesh, const char *names, int axes[HLO_MAX_AXES]);

#endif
