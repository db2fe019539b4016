/* All kernels of the CUDA handlers, by the names that plan.c lists. */
#include "kernels/cuda/scan_linear.h"
#include "kernels/cuda/scan_mlp.h"
#include "kernels/cuda/step_linear.h"
#include "kernels/cuda/step_mlp.h"

#define STEP_LINEAR(d, name, type)                                              \
    KERNEL(TTT_STEP_LINEAR_THREADS(d, sizeof(type)), TTT_STEP_LINEAR_BLOCKS(d)) \
    ttt_step_linear_##name##_##d(const ttt_step_args a)                         \
    {                                                                           \
        step_linear<d, type>().run(a);                                          \
    }
STEP_LINEAR(64, f32, float)
STEP_LINEAR(96, f32, float)
STEP_LINEAR(128, f32, float)
STEP_LINEAR(64, bf16, bf16)
STEP_LINEAR(96, bf16, bf16)
STEP_LINEAR(128, bf16, bf16)

#define STEP_MLP(d, name, type, kind, parts)                  \
    KERNEL(TTT_STEP_MLP_THREADS(d, sizeof(type), parts), 1)   \
    ttt_step_mlp_##kind##_##name##_##d(const ttt_step_args a) \
    {                                                         \
        step_mlp<d, type, parts>(a).run();                    \
    }
#define STEP_MLP_BOTH(d, name, type)  \
    STEP_MLP(d, name, type, block, 1) \
    STEP_MLP(d, name, type, cluster, TTT_STEP_MLP_PARTS(d))
STEP_MLP_BOTH(64, f32, float)
STEP_MLP_BOTH(96, f32, float)
STEP_MLP_BOTH(128, f32, float)
STEP_MLP_BOTH(64, bf16, bf16)
STEP_MLP_BOTH(96, bf16, bf16)
STEP_MLP_BOTH(128, bf16, bf16)

#define SCAN_LINEAR(d, t, name, terms)                        \
    KERNEL(TTT_SCAN_LINEAR_THREADS(d), 1)                     \
    ttt_scan_linear_##name##_##d##_##t(const ttt_scan_args a) \
    {                                                         \
        scan_linear<d, t, terms>(a).run();                    \
    }
#define SCAN_LINEARS(d)          \
    SCAN_LINEAR(d, 16, bf16, 1)  \
    SCAN_LINEAR(d, 16, exact, 3) \
    SCAN_LINEAR(d, 64, bf16, 1)  \
    SCAN_LINEAR(d, 64, exact, 3)
SCAN_LINEARS(64)
SCAN_LINEARS(96)
SCAN_LINEARS(128)

#define SCAN_MLP(d, t, name, terms, kind, parts)                    \
    KERNEL(TTT_SCAN_MLP_THREADS(d, parts), 1)                       \
    ttt_scan_mlp_##kind##_##name##_##d##_##t(const ttt_scan_args a) \
    {                                                               \
        scan_mlp<d, t, terms, parts>(a).run();                      \
    }
#define SCAN_MLPS(d, t, kind, parts)     \
    SCAN_MLP(d, t, bf16, 1, kind, parts) \
    SCAN_MLP(d, t, exact, 3, kind, parts)
SCAN_MLPS(64, 16, block, 1)
SCAN_MLPS(64, 16, cluster, TTT_SCAN_MLP_PARTS)
SCAN_MLPS(96, 16, cluster, TTT_SCAN_MLP_PARTS)
SCAN_MLPS(128, 16, cluster, TTT_SCAN_MLP_PARTS)
SCAN_MLPS(64, 64, cluster, TTT_SCAN_MLP_PARTS)
