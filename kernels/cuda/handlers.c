/*
 * The handlers that XLA calls: operands checked, a kernel chosen, its launch queued on XLA's
 * stream. They wait for nothing and allocate nothing, and what they queue depends on shapes and
 * attributes alone, so XLA may capture them in a graph.
 */
#include "kernels/cuda/frame.h"
#include "kernels/cuda/kernels.h"
#include "kernels/ttt_kernels.h"

#include <limits.h>
#include <string.h>

static int bytes_of(int type)
{
    return type == FRAME_BF16 ? 2 : 4;
}

/* Queues it for `blocks` heads or rows; none is nothing to do. */
static void launch(frame_reader *f, const cuda_kernel *kernel, int64_t blocks, void *args)
{
    void *stream = frame_stream(f);
    if (f->error[0] != 0 || blocks == 0)
        return;
    if (kernel->parts * blocks > INT_MAX) {
        frame_fail(f, "%lld heads are too many", (long long)blocks);
        return;
    }
    const char *why = cuda_launch(kernel, stream, (size_t)blocks, args);
    if (why != NULL)
        frame_fail(f, "%s", why);
}

/* The kernel for these shapes on the current device, or a message. */
static const cuda_kernel *choose(frame_reader *f, cuda_operation operation, int64_t layers,
                                 int64_t lanes, int size, int64_t tokens)
{
    bool clusters;
    if (f->error[0] != 0)
        return NULL;
    const char *why = cuda_has_clusters(&clusters);
    if (why != NULL) {
        frame_fail(f, "%s", why);
        return NULL;
    }
    const cuda_kernel *kernel =
        tokens > INT_MAX
            ? NULL
            : cuda_kernel_for(operation, (int)layers, (int)lanes, size, (int)tokens, clusters);
    if (kernel == NULL)
        frame_fail(f,
                   "there is no kernel for %lld layers, heads of %lld lanes and mini-batches of "
                   "%lld tokens on this device: heads of 64, 96 and 128 lanes have one",
                   (long long)layers, (long long)lanes, (long long)tokens);
    return kernel;
}

/* ---- ttt_step ----------------------------------------------------------------------------------
 */

enum { STEP_OPERANDS = 9 }; /* before the state */

/* A part of the state: operand `index`, updated in place, which XLA must have been told. */
static void *state_part(frame_reader *f, int64_t index, const char *name, int type,
                        frame_shape shape)
{
    void *in = frame_array(f, FRAME_OPERAND, index, name, type, shape, NULL);
    void *out = frame_array(f, FRAME_RESULT, index - STEP_OPERANDS + 1, name, type, shape, NULL);
    if (in != out)
        frame_fail(f, "the result %s does not alias its operand", name);
    return out;
}

static void take_state(frame_reader *f, ttt_step_args *a, int64_t layers, int64_t batch,
                       int64_t heads, int64_t lanes, int type)
{
    static const char *const names[] = {"W1",     "W2",     "b1",     "b2",
                                        "W1_sum", "W2_sum", "b1_sum", "b2_sum"};
    void **const parts[] = {a->w, a->b, a->w_sum, a->b_sum};
    for (int64_t i = 0; i < 4 * layers; i++) {
        int64_t kind = i / layers, layer = i % layers;
        int64_t in = layer == 0 ? lanes : 4 * lanes, out = layer == layers - 1 ? lanes : 4 * lanes;
        frame_shape shape = FRAME_SHAPE(batch, heads, kind % 2 == 0 ? in : 1, out);
        parts[kind][layer] = state_part(f, STEP_OPERANDS + i, names[2 * kind + layer], type, shape);
    }
}

static XLA_FFI_Error *step(XLA_FFI_CallFrame *frame)
{
    if (frame_is_question(frame))
        return NULL;
    frame_reader f = {.frame = frame, .target = "ttt_step"};
    int64_t layers = frame_i64(&f, "layers"), mini_batch = frame_i64(&f, "mini_batch");
    if (layers != 1 && layers != 2)
        frame_fail(&f, "learners have 1 or 2 layers, not %lld", (long long)layers);
    if (mini_batch < 0 || mini_batch > INT_MAX)
        frame_fail(&f, "a mini-batch of %lld tokens", (long long)mini_batch);
    frame_counts(&f, STEP_OPERANDS + 4 * layers, 1 + 4 * layers);
    int64_t batch = frame_dim(&f, 0, 0), heads = frame_dim(&f, 0, 1), lanes = frame_dim(&f, 0, 2);
    int64_t moves = frame_dim(&f, 6, 0);
    int act, state = 0;
    frame_shape tokens = FRAME_SHAPE(batch, heads, lanes), norm = FRAME_SHAPE(heads, lanes);
    ttt_step_args a = {
        .theta = frame_f32(&f, "theta"),
        .epsilon = frame_f32(&f, "epsilon"),
        .rate = frame_f32(&f, "rate"),
        .mini_batch = (int32_t)mini_batch,
        .heads = (int32_t)heads,
        .moves_count = (int32_t)moves,
    };
    a.q = frame_array(&f, FRAME_OPERAND, 0, "q", FRAME_F32 | FRAME_BF16, tokens, &act);
    a.k = frame_array(&f, FRAME_OPERAND, 1, "k", act, tokens, NULL);
    a.v = frame_array(&f, FRAME_OPERAND, 2, "v", act, tokens, NULL);
    a.gate = frame_array(&f, FRAME_OPERAND, 3, "gate", FRAME_F32, FRAME_SHAPE(batch, heads), NULL);
    a.position = frame_array(&f, FRAME_OPERAND, 4, "position", FRAME_S32, FRAME_SHAPE(batch), NULL);
    a.place = frame_array(&f, FRAME_OPERAND, 5, "place", FRAME_S32, FRAME_SHAPE(batch), NULL);
    a.moves = frame_array(&f, FRAME_OPERAND, 6, "moves", FRAME_F32, FRAME_SHAPE(moves), NULL);
    a.norm_scale = frame_array(&f, FRAME_OPERAND, 7, "norm_scale", FRAME_F32, norm, NULL);
    a.norm_bias = frame_array(&f, FRAME_OPERAND, 8, "norm_bias", FRAME_F32, norm, NULL);
    a.z = frame_array(&f, FRAME_RESULT, 0, "z", act, FRAME_SHAPE(batch, heads * lanes), NULL);
    a.act_bf16 = act == FRAME_BF16;
    if (f.error[0] == 0 && (moves < 1 || moves < mini_batch || moves > INT_MAX))
        frame_fail(&f, "%lld moves for a mini-batch of %lld", (long long)moves,
                   (long long)mini_batch);
    frame_array(&f, FRAME_OPERAND, STEP_OPERANDS, "W1", FRAME_F32 | FRAME_BF16,
                FRAME_SHAPE(-1, -1, -1, -1), &state);
    take_state(&f, &a, layers, batch, heads, lanes, state);
    const cuda_kernel *kernel = choose(&f, CUDA_STEP, layers, lanes, bytes_of(state), 0);
    launch(&f, kernel, batch * heads, &a);
    return frame_result(&f);
}

/* ---- the list ----------------------------------------------------------------------------------
 */

const ttt_kernel *ttt_kernels_cuda(size_t *count, const char **why)
{
    static ttt_kernel list[1];
    static XLA_FFI_Handler *const handlers[] = {step};
    static const char *const targets[] = {"ttt_step"};
    *count = sizeof list / sizeof *list;
    *why = NULL;
    for (size_t i = 0; i < *count; i++) {
        XLA_FFI_Handler *handler = handlers[i];
        void *pointer;
        memcpy(&pointer, &handler, sizeof pointer);
        list[i] = (ttt_kernel){targets[i], pointer, true};
    }
    return list;
}

const char *ttt_kernels_cuda_driver(void)
{
    return cuda_open();
}
