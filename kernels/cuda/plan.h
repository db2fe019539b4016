/*
 * How kernels are launched: threads and bytes of shared memory of a block, blocks of a cluster, as
 * functions of the lanes of a head (d) and the bytes of an element of the state (size). Kernels
 * check at compile time that they mean the same.
 */
#ifndef KERNELS_CUDA_PLAN_H
#define KERNELS_CUDA_PLAN_H

/* 16 bytes a thread, 16 rows at a time (32 of bf16, where rows are short: as many threads). */
#define TTT_STEP_LINEAR_THREADS(d, size) (4 * (d))
#define TTT_STEP_LINEAR_ROWS(size) ((size) == 4 ? 16 : 32)
#define TTT_STEP_LINEAR_SHARED(d, size) (4 * ((d) * (7 + 3 * TTT_STEP_LINEAR_ROWS(size))))
/* Blocks that an SM's registers are shared out among: as many as the state in them allows. */
#define TTT_STEP_LINEAR_BLOCKS(d) ((d) == 64 ? 4 : (d) == 96 ? 2 : 1)

#endif
