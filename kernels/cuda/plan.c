/* The kernels of kernels.cu, and how each is launched. */
#include "kernels/cuda/plan.h"
#include "kernels/cuda/kernels.h"

#define STEP_LINEAR(d, type, bytes)                                                               \
    {                                                                                             \
        .name = "ttt_step_linear_" #type "_" #d, .operation = CUDA_STEP, .layers = 1, .lanes = d, \
        .size = bytes, .threads = TTT_STEP_LINEAR_THREADS(d, bytes), .parts = 1,                  \
        .shared = TTT_STEP_LINEAR_SHARED(d, bytes),                                               \
    }
#define STEP_MLP(d, type, bytes, kind, blocks)                                               \
    {                                                                                        \
        .name = "ttt_step_mlp_" #kind "_" #type "_" #d, .operation = CUDA_STEP, .layers = 2, \
        .lanes = d, .size = bytes, .threads = TTT_STEP_MLP_THREADS(d, bytes, blocks),        \
        .parts = blocks, .shared = TTT_STEP_MLP_SHARED(d, bytes, blocks),                    \
    }
#define STEPS(d, type, bytes)                                        \
    STEP_LINEAR(d, type, bytes), STEP_MLP(d, type, bytes, block, 1), \
        STEP_MLP(d, type, bytes, cluster, TTT_STEP_MLP_PARTS(d))

#define SCAN_LINEAR(d, t, kind, terms)                                                           \
    {                                                                                            \
        .name = "ttt_scan_linear_" #kind "_" #d "_" #t, .operation = CUDA_SCAN, .layers = 1,     \
        .lanes = d, .size = terms, .most = t, .threads = TTT_SCAN_LINEAR_THREADS(d), .parts = 1, \
        .shared = TTT_SCAN_LINEAR_SHARED(d, t),                                                  \
    }
#define SCANS(d)                                                                            \
    SCAN_LINEAR(d, 16, bf16, 1), SCAN_LINEAR(d, 16, exact, 3), SCAN_LINEAR(d, 64, bf16, 1), \
        SCAN_LINEAR(d, 64, exact, 3)
#define SCAN_MLP(d, t, kind, terms, where, blocks)                                      \
    {                                                                                   \
        .name = "ttt_scan_mlp_" #where "_" #kind "_" #d "_" #t, .operation = CUDA_SCAN, \
        .layers = 2, .lanes = d, .size = terms, .most = t,                              \
        .threads = TTT_SCAN_MLP_THREADS(d, blocks), .parts = blocks,                    \
        .shared = TTT_SCAN_MLP_SHARED(d, t, blocks),                                    \
    }
#define SCAN_MLPS(d, t, where, blocks) \
    SCAN_MLP(d, t, bf16, 1, where, blocks), SCAN_MLP(d, t, exact, 3, where, blocks)

/* clang-format off: a line for each size */
static const cuda_kernel kernels[] = {
    STEPS(64, f32, 4),
    STEPS(96, f32, 4),
    STEPS(128, f32, 4),
    STEPS(64, bf16, 2),
    STEPS(96, bf16, 2),
    STEPS(128, bf16, 2),
    SCANS(64),
    SCANS(96),
    SCANS(128),
    SCAN_MLPS(64, 16, block, 1),
    SCAN_MLPS(64, 16, cluster, TTT_SCAN_MLP_PARTS),
    SCAN_MLPS(96, 16, cluster, TTT_SCAN_MLP_PARTS),
    SCAN_MLPS(128, 16, cluster, TTT_SCAN_MLP_PARTS),
    SCAN_MLPS(64, 64, cluster, TTT_SCAN_MLP_PARTS),
};
/* clang-format on */

const cuda_kernel *cuda_kernels(size_t *count)
{
    *count = sizeof kernels / sizeof *kernels;
    return kernels;
}

const cuda_kernel *cuda_kernel_for(cuda_operation operation, int layers, int lanes, int size,
                                   int amount, bool clusters)
{
    const cuda_kernel *found = NULL;
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
        const cuda_kernel *k = &kernels[i];
        bool fits = k->operation == operation && k->layers == layers && k->lanes == lanes &&
                    k->size == size && (k->most == 0 || amount <= k->most) &&
                    (k->parts == 1 || clusters);
        if (!fits)
            continue;
        bool better = found == NULL || k->most < found->most ||
                      (k->most == found->most && k->parts > found->parts);
        if (better)
            found = k;
    }
    return found;
}
