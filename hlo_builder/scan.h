/* Private to scan.c and scan_vjp.c. */
#ifndef HLO_BUILDER_SCAN_H
#define HLO_BUILDER_SCAN_H

#include "hlo_builder/internal.h"

/* A SCAN node over a closed body: operands are carries, inputs and captured values. */
hlo_node *hlo__make_scan(hlo_graph *g, hlo_block *body, const hlo_scan_attrs *attrs,
                         const hlo_val *in, int n_in);

#endif
