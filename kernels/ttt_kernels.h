/*
 * kernels: hand-written operations that compiled programs call through XLA's FFI.
 *
 *     #include "kernels/ttt_kernels.h"
 *
 *     size_t count;
 *     const ttt_kernel *list = ttt_kernels_cpu(&count);
 *     for (size_t i = 0; i < count; i++)
 *         st = pjrt_ffi_register(plugin, list[i].target, "cpu", list[i].handler, false);
 *
 * This header defines each operation once. The CPU and CUDA handlers take the same operands and
 * compute what the compiled network computes without kernels. CUDA has ttt_step and ttt_scan.
 *
 * Arrays are dense and row-major. Symbols:
 *     B  sequences                  b  tokens of a mini-batch
 *     H  heads                      n  mini-batches
 *     d  head_dim                   w  hidden width of TTT-MLP (4 d for CUDA)
 * d and w are multiples of 8. The type is f32 unless stated; "act" is the activation type, f32 or
 * bf16. A call that does not fit fails with an error that names the array or attribute; nothing
 * is written then.
 *
 * ---- ttt_step: one token of a TTT layer (primal form) ----
 *   operands
 *     q, k, v               act [B, H, d]     before RoPE
 *     gate                  [B, H]            learning-rate logit
 *     position              s32 [B]           index of the token in its sequence; the mini-batch
 *                                             ends where (position + 1) mod mini_batch = 0
 *     place                 s32 [B]           offset in the mini-batch (mb_offset below): the RoPE
 *                                             position and the index into moves, clamped to it
 *     moves                 [b]               learning-rate factor of each mb_offset
 *     norm_scale, norm_bias [H, d]            layer norm of the learner
 *     W1                    [B, H, d, d]      TTT-Linear (layers = 1)
 *     b1                    [B, H, 1, d]
 *     or
 *     W1, W2                [B, H, d, w], [B, H, w, d]    TTT-MLP (layers = 2)
 *     b1, b2                [B, H, 1, w], [B, H, 1, d]
 *     W1_sum (, W2_sum), b1_sum (, b2_sum)    gradient sums, shaped as the weights and biases
 *                                             (CUDA also takes weights, biases and sums in bf16)
 *   results
 *     z                     act [B, H d]      q + norm(f(q)), with q after RoPE
 *     weights, biases, sums                   in operand order; each aliases its operand (the CPU
 *                                             copies the state first if it does not)
 *   attributes
 *     layers      i64   1 or 2
 *     mini_batch  i64   0: the mini-batch never ends and moves is [1]
 *     theta       f32   RoPE base; 0: no rotation
 *     epsilon     f32   of the norm
 *     rate        f32   base learning rate
 *   computes
 *     q, k rotated by mb_offset in interleaved pairs (2i, 2i + 1): angle mb_offset theta^(-2i / d).
 *     q and k stay f32 after the rotation.
 *     f(x)       = x W1 + b1                   or  gelu(x W1 + b1) W2 + b2  (tanh form of GELU)
 *     target     = v - k
 *     grad_z     = d/dz of |norm(f(k)) - target|^2 / 2, z the output of each layer
 *     eta        = rate sigmoid(gate)
 *     W_sum     += eta x^T grad_z,  b_sum += eta grad_z     x the input of the layer
 *     z          = q + norm(f(q; W - moves[mb_offset] W_sum))
 *     At the end of a mini-batch W becomes W - moves[mb_offset] W_sum, and W_sum becomes 0.
 *
 * ---- ttt_product: y = x w^T for few rows, weights in their stored type (CPU) ----
 *   operands
 *     x                     act [B, K]
 *     w                     f32, bf16 or s8 [N, K]
 *     scale                 [N]               only with s8: the weight is scale[i] w[i, :]
 *   results
 *     y                     act or f32 [B, N] accumulated in f32; x is not quantized
 *   attributes              none
 *
 * ---- ttt_scan: n whole mini-batches (dual form) ----
 *   operands
 *     k, target, q          [n, B, H, b, d]   after RoPE
 *     eta                   [n, B, H, b, b]   eta[i, j]: rate of token j for output i; 0 for j > i
 *     norm_scale, norm_bias [H, d]
 *     W1 (, W2), b1 (, b2)                    before the first mini-batch; shaped as in ttt_step
 *   results
 *     answers               [n, B, H, b, d]   f(q_i; W - sum_j eta[i, j] x_j^T grad_z_j)
 *     W1 (, W2), b1 (, b2)                    after the last mini-batch, not aliased. Each
 *                                             mini-batch updates them by the last row of eta.
 *   attributes
 *     layers      i64   1 or 2
 *     epsilon     f32
 *     exact       i64   CUDA only, default 1: f32 products as three bf16 tensor-core products
 *                       (relative error about 1e-5); 0: one bf16 product
 *
 * ---- ttt_scan_backward: vector-Jacobian product of ttt_scan (CPU) ----
 *   operands    those of ttt_scan, then one gradient for each of its results
 *   results     one gradient for each operand of ttt_scan, in order
 *   attributes  layers, epsilon, and
 *     group       i64   checkpoint interval: states are stored every `group` mini-batches and
 *                       recomputed in between
 */
#ifndef KERNELS_TTT_KERNELS_H
#define KERNELS_TTT_KERNELS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct ttt_kernel {
    const char *target;  /* name of the custom call */
    void *handler;       /* an XLA_FFI_Handler */
    bool command_buffer; /* may be captured in a CUDA graph */
} ttt_kernel;

/* Handlers for the CPU plugin. The first call picks the fastest code path that the processor
 * supports; the environment variable TTT_KERNELS (portable, avx2, avx512) limits the choice. */
const ttt_kernel *ttt_kernels_cpu(size_t *count);
/* Handlers for the CUDA plugin, or NULL with the reason in `*why` (static) if this build has none.
 * The CUDA driver is loaded when a handler first runs, so programs compile ahead of time without
 * it; running without it fails with an error. */
const ttt_kernel *ttt_kernels_cuda(size_t *count, const char **why);
/* NULL if the CUDA driver loads, else the reason. Valid until the thread's next call. */
const char *ttt_kernels_cuda_driver(void);

#endif
