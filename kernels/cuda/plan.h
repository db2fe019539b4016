/*
 * How kernels are launched: threads and bytes of shared memory of a block, as functions of the
 * lanes of a head (d), the bytes of an element of the state (size) and the blocks of a cluster
 * (parts). Kernels lay their memory out by the same words.
 */
#ifndef KERNELS_CUDA_PLAN_H
#define KERNELS_CUDA_PLAN_H

#define TTT_LEAST(a, b) ((a) < (b) ? (a) : (b))

/* ---- ttt_step, one layer -----------------------------------------------------------------------
 * 16 bytes a thread, 16 rows at a time (32 of bf16, where rows are short: as many threads). */
#define TTT_STEP_LINEAR_THREADS(d, size) (4 * (d))
#define TTT_STEP_LINEAR_ROWS(size) ((size) == 4 ? 16 : 32)
#define TTT_STEP_LINEAR_SHARED(d, size) (4 * (4 + (d) * (7 + 3 * TTT_STEP_LINEAR_ROWS(size))))
/* Blocks that an SM's registers are shared out among: as many as the state in them allows. */
#define TTT_STEP_LINEAR_BLOCKS(d) ((d) == 64 ? 4 : (d) == 96 ? 2 : 1)

/* ---- ttt_step, two layers ----------------------------------------------------------------------
 * The parts are blocks of a cluster, which sm_90 has; before, one block has a head to itself. */
#define TTT_STEP_MLP_PARTS(d) ((d) == 128 ? 8 : 4)
#define TTT_STEP_MLP_OWN(d, parts) (4 * (d) / (parts))
#define TTT_STEP_MLP_THREADS(d, size, parts) \
    ((parts) > 1 ? 16 * (d) / (parts) : (d) == 128 && (size) == 4 ? 256 : 2 * (d) * (size))
/* Floats: partial sums; q, k, target, g2 and two to exchange; three of a part. */
#define TTT_STEP_MLP_FIXED(d, size, parts)                                 \
    (4 * (4 + 16 / (size)*TTT_STEP_MLP_THREADS(d, size, parts) + 6 * (d) + \
          3 * TTT_STEP_MLP_OWN(d, parts)))
/* What an A100 and an H100 let a block have. */
#define TTT_STEP_MLP_LIMIT(parts) (((parts) == 1 ? 163 : 227) * 1024)
/* Rows of W2 and then of W1 that stay in shared memory; all of them, except for large heads in one
 * block. */
#define TTT_STEP_MLP_HELD2(d, size, parts) \
    TTT_LEAST(TTT_STEP_MLP_OWN(d, parts),  \
              (TTT_STEP_MLP_LIMIT(parts) - TTT_STEP_MLP_FIXED(d, size, parts)) / (d) / (size))
#define TTT_STEP_MLP_BYTES2(d, size, parts) (TTT_STEP_MLP_HELD2(d, size, parts) * (d) * (size))
#define TTT_STEP_MLP_HELD1(d, size, parts)                                         \
    TTT_LEAST(d, (TTT_STEP_MLP_LIMIT(parts) - TTT_STEP_MLP_FIXED(d, size, parts) - \
                  TTT_STEP_MLP_BYTES2(d, size, parts)) /                           \
                     TTT_STEP_MLP_OWN(d, parts) / (size))
#define TTT_STEP_MLP_SHARED(d, size, parts)                                     \
    (TTT_STEP_MLP_FIXED(d, size, parts) + TTT_STEP_MLP_BYTES2(d, size, parts) + \
     TTT_STEP_MLP_HELD1(d, size, parts) * TTT_STEP_MLP_OWN(d, parts) * (size))

/* ---- ttt_scan ----------------------------------------------------------------------------------
 * Mini-batches of up to t tokens, whole tiles of 16. Rows are 8 floats longer than their contents:
 * the rows of a tile then lie in different banks. */
#define TTT_SCAN_STRIDE(n) ((n) + 8)
/* Floats of a mini-batch: k, q, target, eta. Two lie in shared memory where an A100 has room. */
#define TTT_SCAN_STAGE(d, t) (3 * (t)*TTT_SCAN_STRIDE(d) + (t)*TTT_SCAN_STRIDE(t))
#define TTT_SCAN_STAGES(d, t) ((t) == 16 || (d) == 64 ? 2 : 1)
#define TTT_SCAN_LINEAR_THREADS(d) (2 * (d))
#define TTT_SCAN_LINEAR_SHARED(d, t) \
    (4 * (TTT_SCAN_STAGES(d, t) * TTT_SCAN_STAGE(d, t) + (t)*TTT_SCAN_STRIDE(d) + (d) + (t)))

/* Two layers. A part has `own` outputs of W1, a warp for 16 of them. */
#define TTT_SCAN_MLP_PARTS 4
#define TTT_SCAN_MLP_OWN(d, parts) (4 * (d) / (parts))
#define TTT_SCAN_MLP_THREADS(d, parts) (2 * TTT_SCAN_MLP_OWN(d, parts))
#define TTT_SCAN_MLP_STAGES(t, parts) ((t) == 16 && (parts) > 1 ? 2 : 1)
#define TTT_SCAN_MLP_SHARED(d, t, parts)                                                 \
    (4 * (TTT_SCAN_MLP_STAGES(t, parts) * TTT_SCAN_STAGE(d, t) +                         \
          TTT_SCAN_MLP_OWN(d, parts) * TTT_SCAN_STRIDE(d) +                              \
          3 * (t) * (TTT_SCAN_STRIDE(TTT_SCAN_MLP_OWN(d, parts)) + TTT_SCAN_STRIDE(d)) + \
          (t)*TTT_SCAN_STRIDE(t) + (t) + TTT_SCAN_MLP_OWN(d, parts) + (d)))

#endif
