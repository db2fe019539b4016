/* Private to scan.c and scan_vjp.c. */
#ifndef HLO_BUILDER_OPS_SCAN_H
#define HLO_BUILDER_OPS_SCAN_H

#include "hlo_builder/internal.h"

/* Shape of `length` such arrays stacked along a new first dimension; an error of the graph when
 * that would be one dimension too many. And the shape of one of them. */
hlo_shape hlo__stacked_shape(hlo_graph *g, const hlo_shape *slice, int64_t length);
hlo_shape hlo__slice_shape(const hlo_shape *stacked);
/* A SCAN node over a closed body: operands are carries, inputs and captured values. */
hlo_node *hlo__make_scan(hlo_graph *g, hlo_block *body, const hlo_scan_attrs *attrs,
                         const hlo_val *in, int n_in);

#endif
