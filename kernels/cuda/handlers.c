/*
 * The handlers that XLA calls: operands checked, a kernel chosen, its launch queued on XLA's
 * stream. They wait for nothing and allocate nothing, and what they queue depends on shapes and
 * attributes alone, so XLA may capture them in a graph.
 */
#include "kernels/cuda/frame.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/plan.h"
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

/* The kernel for these shapes on the current device; `what` says what there are kernels for. */
static const cuda_kernel *choose(frame_reader *f, cuda_operation operation, int64_t layers,
                                 int64_t lanes, int size, int64_t amount, const char *what)
{
    bool clusters;
    const cuda_kernel *kernel = NULL;
    if (f->error[0] != 0)
        return NULL;
    const char *why = cuda_has_clusters(&clusters);
    if (why != NULL) {
        frame_fail(f, "%s", why);
        return NULL;
    }
    if (lanes <= INT_MAX && amount <= INT_MAX)
        kernel = cuda_kernel_for(operation, (int)layers, (int)lanes, size, (int)amount, clusters);
    if (kernel == NULL)
        frame_fail(f, "for this device there are kernels for %s alone", what);
    return kernel;
}

/* 1 or 2; 1 where it is wrong, so that what follows stays within bounds. */
static int64_t layers_of(frame_reader *f)
{
    int64_t layers = frame_i64(f, "layers");
    if (layers == 1 || layers == 2)
        return layers;
    frame_fail(f, "learners have 1 or 2 layers, not %lld", (long long)layers);
    return 1;
}

/* What layer i of a learner takes in and gives out. */
static int64_t width_in(int64_t lanes, int64_t i)
{
    return i == 0 ? lanes : 4 * lanes;
}

static int64_t width_out(int64_t lanes, int64_t layers, int64_t i)
{
    return i == layers - 1 ? lanes : 4 * lanes;
}

/* XLA must have been told that a result takes the place of an operand. */
static void *in_place(frame_reader *f, int64_t operand, int64_t result, const char *name, int types,
                      frame_shape shape, int *type)
{
    void *in = frame_array(f, FRAME_OPERAND, operand, name, types, shape, type);
    void *out = frame_array(f, FRAME_RESULT, result, name, types, shape, NULL);
    if (in != out)
        frame_fail(f, "the result %s does not alias its operand", name);
    return out;
}

/* ---- ttt_step ----------------------------------------------------------------------------------
 */

enum { STEP_OPERANDS = 9 }; /* before the state */

static void take_state(frame_reader *f, ttt_step_args *a, int64_t layers, int64_t batch,
                       int64_t heads, int64_t lanes, int type)
{
    static const char *const names[] = {"W1",     "W2",     "b1",     "b2",
                                        "W1_sum", "W2_sum", "b1_sum", "b2_sum"};
    void **const parts[] = {a->w, a->b, a->w_sum, a->b_sum};
    for (int64_t i = 0; i < 4 * layers; i++) {
        int64_t kind = i / layers, layer = i % layers;
        int64_t rows = kind % 2 == 0 ? width_in(lanes, layer) : 1;
        frame_shape shape = FRAME_SHAPE(batch, heads, rows, width_out(lanes, layers, layer));
        parts[kind][layer] =
            in_place(f, STEP_OPERANDS + i, 1 + i, names[2 * kind + layer], type, shape, NULL);
    }
}

static XLA_FFI_Error *step(XLA_FFI_CallFrame *frame)
{
    if (frame_is_question(frame))
        return NULL;
    frame_reader f = {.frame = frame, .target = "ttt_step"};
    int64_t layers = layers_of(&f), mini_batch = frame_i64(&f, "mini_batch");
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
    const cuda_kernel *kernel =
        choose(&f, CUDA_STEP, layers, lanes, bytes_of(state), 0, "heads of 64, 96 and 128 lanes");
    launch(&f, kernel, batch * heads, &a);
    return frame_result(&f);
}

/* ---- ttt_scan ----------------------------------------------------------------------------------
 */

enum { SCAN_OPERANDS = 6 }; /* before the state */

static XLA_FFI_Error *scan(XLA_FFI_CallFrame *frame)
{
    if (frame_is_question(frame))
        return NULL;
    frame_reader f = {.frame = frame, .target = "ttt_scan"};
    int64_t layers = layers_of(&f), exact = frame_i64_or(&f, "exact", 1);
    frame_counts(&f, SCAN_OPERANDS + 2 * layers, 1 + 2 * layers);
    int64_t count = frame_dim(&f, 0, 0), batch = frame_dim(&f, 0, 1), heads = frame_dim(&f, 0, 2);
    int64_t tokens = frame_dim(&f, 0, 3), lanes = frame_dim(&f, 0, 4);
    frame_shape rows = FRAME_SHAPE(count, batch, heads, tokens, lanes);
    frame_shape rates = FRAME_SHAPE(count, batch, heads, tokens, tokens);
    frame_shape norm = FRAME_SHAPE(heads, lanes);
    ttt_scan_args a = {.epsilon = frame_f32(&f, "epsilon")};
    a.k = frame_array(&f, FRAME_OPERAND, 0, "k", FRAME_F32, rows, NULL);
    a.target = frame_array(&f, FRAME_OPERAND, 1, "target", FRAME_F32, rows, NULL);
    a.q = frame_array(&f, FRAME_OPERAND, 2, "q", FRAME_F32, rows, NULL);
    a.eta = frame_array(&f, FRAME_OPERAND, 3, "eta", FRAME_F32, rates, NULL);
    a.norm_scale = frame_array(&f, FRAME_OPERAND, 4, "norm_scale", FRAME_F32, norm, NULL);
    a.norm_bias = frame_array(&f, FRAME_OPERAND, 5, "norm_bias", FRAME_F32, norm, NULL);
    a.answers = frame_array(&f, FRAME_RESULT, 0, "answers", FRAME_F32, rows, NULL);
    for (int64_t i = 0; i < layers; i++) {
        int64_t out = width_out(lanes, layers, i);
        frame_shape weight = FRAME_SHAPE(batch, heads, width_in(lanes, i), out);
        frame_shape bias = FRAME_SHAPE(batch, heads, 1, out);
        int64_t w = SCAN_OPERANDS + i, b = w + layers;
        a.w[i] = frame_array(&f, FRAME_OPERAND, w, "W", FRAME_F32, weight, NULL);
        a.b[i] = frame_array(&f, FRAME_OPERAND, b, "b", FRAME_F32, bias, NULL);
        a.w_out[i] = frame_array(&f, FRAME_RESULT, 1 + i, "W", FRAME_F32, weight, NULL);
        a.b_out[i] = frame_array(&f, FRAME_RESULT, 1 + layers + i, "b", FRAME_F32, bias, NULL);
    }
    if (count > INT_MAX || batch * heads > INT_MAX)
        frame_fail(&f, "%lld mini-batches of %lld heads are too many", (long long)count,
                   (long long)(batch * heads));
    a.count = (int32_t)count;
    a.batch = (int32_t)batch;
    a.heads = (int32_t)heads;
    a.tokens = (int32_t)tokens;
    const cuda_kernel *kernel =
        choose(&f, CUDA_SCAN, layers, lanes, exact != 0 ? 3 : 1, tokens,
               layers == 1 ? "heads of 64, 96 and 128 lanes and mini-batches of up to 64 tokens"
                           : "heads of 64 lanes and mini-batches of up to 16 tokens (from sm_90 on "
                             "also 96 and 128 lanes, and 64 tokens of 64 lanes)");
    launch(&f, kernel, batch * heads, &a);
    return frame_result(&f);
}

/* ---- the list ----------------------------------------------------------------------------------
 */

const ttt_kernel *ttt_kernels_cuda(size_t *count, const char **why)
{
    static XLA_FFI_Handler *const handlers[] = {step, scan};
    static const char *const targets[] = {"ttt_step", "ttt_scan"};
    static ttt_kernel list[sizeof targets / sizeof *targets];
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
