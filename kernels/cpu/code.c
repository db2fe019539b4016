/* Which path runs. */
#include "kernels/cpu/code.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* The best first. */
static const cpu_code *const paths[] = {
#if defined(__x86_64__)
    &cpu_code_avx512,
    &cpu_code_avx2,
#endif
    &cpu_code_portable,
};
enum { N_PATHS = sizeof paths / sizeof *paths, UNKNOWN = -1 };

/* Index of the best path to take; the others after it are taken for sizes that it does not. */
static atomic_int best = UNKNOWN;

static bool runs(const cpu_code *code)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (code == &cpu_code_avx2)
        return avx2;
    if (code == &cpu_code_avx512)
        return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
#endif
    return code == &cpu_code_portable;
}

static int find(const char *name)
{
    for (int i = 0; i < N_PATHS; i++) {
        if (runs(paths[i]) && (name == NULL || strcmp(name, paths[i]->name) == 0))
            return i;
    }
    return UNKNOWN;
}

/* A name that means nothing here is no reason to fail: the best runs. */
static int chosen(void)
{
    int index = atomic_load_explicit(&best, memory_order_relaxed);
    if (index != UNKNOWN)
        return index;
    index = find(getenv("TTT_KERNELS"));
    if (index == UNKNOWN)
        index = find(NULL);
    atomic_store_explicit(&best, index, memory_order_relaxed);
    return index;
}

bool cpu_code_force(const char *name)
{
    int index = find(name);
    if (index != UNKNOWN)
        atomic_store_explicit(&best, index, memory_order_relaxed);
    return index != UNKNOWN;
}

const cpu_code *cpu_code_for(int64_t lanes)
{
    int i = chosen();
    while (i < N_PATHS - 1 && (!runs(paths[i]) || lanes % paths[i]->lanes != 0))
        i++;
    return paths[i];
}
