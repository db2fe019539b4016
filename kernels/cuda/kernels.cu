/* All kernels of the CUDA handlers, by the names that plan.c lists. */
#include "kernels/cuda/step_linear.h"

#define STEP_LINEAR(d, name, type)                                                              \
    KERNEL(TTT_STEP_LINEAR_THREADS(d, sizeof(type)), TTT_STEP_LINEAR_BLOCKS(d))                                         \
    ttt_step_linear_##name##_##d(const ttt_step_args a)                                         \
    {                                                                                           \
        step_linear<d, type>().run(a);                                                          \
    }
STEP_LINEAR(64, f32, float)
STEP_LINEAR(96, f32, float)
STEP_LINEAR(128, f32, float)
STEP_LINEAR(64, bf16, bf16)
STEP_LINEAR(96, bf16, bf16)
STEP_LINEAR(128, bf16, bf16)
