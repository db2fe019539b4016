/*
 * kernels: operations written by hand, which compiled programs call through XLA's FFI.
 *
 *     #include "kernels/ttt_kernels.h"
 *
 *     size_t count;
 *     const ttt_kernel *list = ttt_kernels_cpu(&count);
 *     for (size_t i = 0; i < count; i++)
 *         st = pjrt_ffi_register(plugin, list[i].target, "cpu", list[i].handler, false);
 *
 * An operation is described once, here; the CPU's and CUDA's handlers take the same operands, and
 * the network without kernels computes the same. Arrays are dense and row-major. Letters: B
 * sequences, H heads, d lanes of a head, C = H d, w width of a learner's layer in the middle (4 d),
 * b tokens of a mini-batch, n mini-batches. "act" is the type of activations: f32 or bf16; all
 * that is not marked so is f32. Results that alias operands are updated in place. d and w are
 * multiples of 8. What does not fit is an error that names the array or attribute.
 *
 * ttt_step: one token of a TTT layer, from heads to the learner's answers.
 *   operands   q, k, v      act [B, H, d]   not rotated yet
 *              gate         [B, H]          the rate before its logistic function
 *              position     s32 [B]         tokens before this one; the mini-batch ends where
 *                                           (position + 1) mod mini_batch = 0
 *              place        s32 [B]         tokens of this mini-batch before this one: what RoPE
 *                                           turns by, and the index into moves, clamped to it
 *              moves        [b]             how far an answer at each place moves
 *              norm_scale, norm_bias [H, d] of the learner's norm
 *              W1           [B, H, d, d]    learners of one layer (TTT-Linear), or
 *              W1, W2       [B, H, d, w], [B, H, w, d]   of two (TTT-MLP)
 *              b1 (, b2)    [B, H, 1, ·]
 *              and the sums of their gradients, in the same order: W1_sum (, W2_sum), b1_sum …
 *              (CUDA takes a state of bf16 too, all of it)
 *   results    z            act [B, C]      q + norm(res(q)), q rotated; rotated queries and keys
 *                                           are not rounded to act
 *              the state and its sums, in the operands' order, each aliasing its operand
 *   attributes layers i64 (1, 2), mini_batch i64 (0: it never ends, and moves is [1], for every
 *              place), theta f32 (0: no rotation), epsilon f32 (of the norm), rate f32 (what the
 *              logistic function is multiplied by)
 *   computes   with k, q rotated by place in interleaved pairs (2i, 2i + 1), angle
 *              place theta^(-2i / d); target = v - k; res(x) = W1 x + b1, or
 *              W2 gelu(W1 x + b1) + b2 (gelu by tanh); g = gradient of half the squared error of
 *              norm(res(k)) against target in each layer's output, at W; sums += rate k^T g …;
 *              weights that answer = W - moves[place] sums; at the end of a mini-batch W becomes
 *              those and the sums 0.
 *
 * ttt_conv_step: one token of causal convolutions, one filter a channel, that look back on the
 * same. operands   x            act [B, C] tail         act or f32 [B, width - 1, C]   the inputs
 * before, the oldest first weight, bias [C, 1, width], [C]             once, or twice for two
 * filters; the last tap multiplies x results    y            act [B, C]      once for each filter:
 * bias + sum over the window tail         the window without its oldest, aliasing its operand no
 * attributes
 *
 * ttt_gate_step: what becomes of a layer's answers before its last projection.
 *   operands   z, gate      act [B, C]      the answers, and the gate's projection
 *              scale, bias  [C]             of the norm
 *   results    y            act [B, C]      norm(z) gelu(gate), the norm over C
 *   attributes epsilon f32
 *
 * ttt_product: x W for one or a few rows, with weights as they are stored.
 *   operands   x            act [B, K]
 *              w            f32, bf16 or s8 [N, K]
 *              scale        [N]             with s8 alone: w[i, :] times scale[i] is the weight
 *   results    y            act or f32 [B, N]; sums are f32, and so are activations with s8
 *
 * ttt_scan: a learner over n whole mini-batches, the dual form.
 *   operands   k, target    [n, B, H, b, d]
 *              q            [n, B, H, b, d]
 *              eta          [n, B, H, b, b] how far answer i moves by token j, 0 for j > i
 *              norm_scale, norm_bias [H, d]
 *              W1 (, W2), b1 (, b2)         as above: where the first mini-batch starts
 *   results    answers      [n, B, H, b, d] res of the queries
 *              the state after the last, not aliased; the weights that go on are moved by eta's
 *              last row
 *   attributes layers i64, epsilon f32, and for CUDA exact i64 (if it is there and 0, tensor cores
 *              multiply bf16; else products are as good as f32's, to about 1e-5)
 *
 * ttt_scan_backward: the gradients of ttt_scan.
 *   operands   those of ttt_scan, then the gradients of its results
 *   results    the gradients of its operands, in their order
 *   attributes those of ttt_scan, and group i64: states are kept every so many mini-batches and
 *              computed again between
 */
#ifndef KERNELS_TTT_KERNELS_H
#define KERNELS_TTT_KERNELS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct ttt_kernel {
    const char *target;  /* the name in custom calls */
    void *handler;       /* an XLA_FFI_Handler */
    bool command_buffer; /* it may be part of a CUDA graph */
} ttt_kernel;

/* Handlers for the CPU plugin. The fastest code that the processor runs is chosen at first use; the
 * variable TTT_KERNELS (portable, avx2, avx512) names the best to take. */
const ttt_kernel *ttt_kernels_cpu(size_t *count);
/* Handlers for the CUDA plugin. NULL, with `*why` a static line, when this build has none. CUDA's
 * driver is looked for when one of them first runs, so programs are compiled ahead of time without
 * it; a run without it fails with a line that says so. */
const ttt_kernel *ttt_kernels_cuda(size_t *count, const char **why);
/* Whether they could run: NULL, or why there is no driver for them, in a line that stays until the
 * thread asks again. */
const char *ttt_kernels_cuda_driver(void);

#endif
