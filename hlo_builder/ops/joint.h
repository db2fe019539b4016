/*
 * Private to scan.c and remat.c: a body and its gradient side by side, and what the gradient needs
 * of the body.
 *
 * The joint block is scratch: the body inlined, then its gradient built behind it. What the
 * gradient uses of the forward part is either saved by the forward pass (a residual) or computed
 * again, as the policy says. From this the two real bodies are made: the forward one, which also
 * returns the residuals, and the backward one, which is given them.
 */
#ifndef HLO_BUILDER_OPS_JOINT_H
#define HLO_BUILDER_OPS_JOINT_H

#include "hlo_builder/internal.h"

typedef struct hlo_joint {
    hlo_graph *g;
    hlo_block *block;
    int n_params;  /* of the body; the gradients of its results follow */
    hlo_val *outs; /* the body's results, in the joint block */
    int n_outs;
    hlo_val *d_outs;    /* parameters that stand for their gradients; null where there is none */
    const bool *wanted; /* which parameters' gradients are wanted */
    hlo_val *d_params;  /* those gradients; null where not wanted or zero */
    int n_forward;      /* nodes of the block that are the body's */

    unsigned char *needed; /* by node position: the backward body computes it */
    bool *param_needed;    /* of the body's parameters, by the backward body */
    hlo_value **residuals; /* values of the joint block that the forward pass saves */
    int n_residuals, cap_residuals;
} hlo_joint;

/* Builds the joint block: `has_d_out[i]` tells which results get a gradient. */
void hlo__joint_build(hlo_graph *g, hlo_joint *j, const hlo_block *body, const bool *has_d_out,
                      const bool *wanted);
/* Decides what is saved and what is computed again. Values that depend only on parameters from
 * `first_invariant` on are never saved: they are the same in every step of a loop. */
void hlo__joint_split(hlo_joint *j, hlo_save save, int first_invariant);
/* The forward body: what `body` was, its results followed by the residuals and the parameters that
 * `extra` names. Closed. */
hlo_block *hlo__joint_forward(hlo_joint *j, const bool *extra, int n_extra);
/* Builds the backward part into the current block. The map has the parameters, the gradients of the
 * results and the residuals; it receives the rest. d_params[i] is then found in it. */
void hlo__joint_backward(hlo_joint *j, hlo_map *map);
void hlo__joint_free(hlo_joint *j);

/* The value behind a handle that is known to be good. */
hlo_value *hlo__known(const hlo_graph *g, hlo_val v);

#endif
