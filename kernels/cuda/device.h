/*
 * The words that kernels are written in. Compiled by nvcc they are CUDA's own; compiled by a C++
 * compiler for the host (host/device.h) they are checked, counted and run on fibers. A kernel uses
 * nothing of CUDA that is not here, so that the source that is tested is the source that ships.
 */
#ifndef KERNELS_CUDA_DEVICE_H
#define KERNELS_CUDA_DEVICE_H

#include <stdint.h>

/* 16 bytes: what one load, store or copy moves. */
struct alignas(16) vec16 {
    uint32_t w[4];
};

/* bf16 as it is stored. */
struct bf16 {
    uint16_t bits;
};

#ifndef __CUDACC__
#include "kernels/cuda/host/device.h"
#else

#define DEVICE __device__ __forceinline__
#define KERNEL(threads, blocks) extern "C" __global__ void __launch_bounds__(threads, blocks)

DEVICE int thread_index()
{
    return (int)threadIdx.x;
}
DEVICE int block_index()
{
    return (int)blockIdx.x;
}
DEVICE void sync_block()
{
    __syncthreads();
}
DEVICE float shuffle_xor(float v, int mask)
{
    return __shfl_xor_sync(0xffffffffu, v, mask);
}

/* ---- memory ------------------------------------------------------------------------------------
 */

/* Shared memory of type T. */
template <class T> struct shared {
    T *p;
    DEVICE T &operator[](int i) const
    {
        return p[i];
    }
    DEVICE shared operator+(int i) const
    {
        return shared{p + i};
    }
};

/* All shared memory of a block is one arena, given at launch. */
DEVICE char *arena()
{
    extern __shared__ __align__(16) char bytes[];
    return bytes;
}

template <class T> DEVICE T load(const T *p)
{
    return *p;
}
template <class T> DEVICE void store(T *p, T v)
{
    *p = v;
}
DEVICE vec16 load16(const void *p)
{
    uint4 v = *static_cast<const uint4 *>(p);
    return vec16{{v.x, v.y, v.z, v.w}};
}
DEVICE void store16(void *p, vec16 v)
{
    *static_cast<uint4 *>(p) = make_uint4(v.w[0], v.w[1], v.w[2], v.w[3]);
}
/* The same in shared memory, s[i] on. */
template <class T> DEVICE vec16 get16(shared<T> s, int i)
{
    return load16(s.p + i);
}
template <class T> DEVICE void put16(shared<T> s, int i, vec16 v)
{
    store16(s.p + i, v);
}
DEVICE float2 get8(shared<float> s, int i)
{
    return *reinterpret_cast<const float2 *>(s.p + i);
}
DEVICE void store8(float *p, float x, float y)
{
    *reinterpret_cast<float2 *>(p) = make_float2(x, y);
}
/* The line at p will be read soon. */
DEVICE void expect(const void *p)
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}

/* Copies from global to shared memory that go on beside the thread. What was begun before a close
 * is there, for this thread, when a wait has left at most the `open` closed sets after it. */
template <int BYTES> DEVICE void copy_begin(void *to, const void *from)
{
    uint32_t address = (uint32_t)__cvta_generic_to_shared(to);
    if (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from)
                     : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(address), "l"(from)
                     : "memory");
}
DEVICE void copy_close()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int OPEN> DEVICE void copy_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(OPEN) : "memory");
}

/* ---- clusters, from sm_90 on -------------------------------------------------------------------
 */

#if __CUDA_ARCH__ >= 900
DEVICE void sync_cluster()
{
    asm volatile("barrier.cluster.arrive.aligned;\n\tbarrier.cluster.wait.aligned;" ::: "memory");
}
/* The same place in the shared memory of another block of the cluster. */
template <class T> DEVICE shared<T> of_block(shared<T> s, int rank)
{
    T *p;
    asm("mapa.u64 %0, %1, %2;" : "=l"(p) : "l"(s.p), "r"(rank));
    return shared<T>{p};
}
#else
DEVICE void sync_cluster()
{
    __trap();
}
template <class T> DEVICE shared<T> of_block(shared<T> s, int)
{
    return s;
}
#endif

/* ---- arithmetic --------------------------------------------------------------------------------
 */

DEVICE float mad(float a, float b, float c)
{
    return fmaf(a, b, c);
}
DEVICE float inverse_root(float x)
{
    return rsqrtf(x);
}
/* Sine and cosine of half turns: no table in local memory is needed to reduce their range. */
DEVICE void sin_cos_pi(float half_turns, float *s, float *c)
{
    sincospif(half_turns, s, c);
}
DEVICE float from_bits(uint32_t bits)
{
    return __uint_as_float(bits);
}
DEVICE uint32_t to_bits(float x)
{
    return __float_as_uint(x);
}
/* Two floats as bf16, rounded to nearest even, the first in the low half. */
DEVICE uint32_t pack_bf16(float low, float high)
{
    uint32_t out;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
    return out;
}
/* c += a b on the tensor cores: a 16 x 16 by rows, b 16 x 8 by columns, bf16; c f32. */
DEVICE void mma(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

#endif

/* ---- the same for both ------------------------------------------------------------------------
 */

/* How the elements of a type lie in 16 bytes. */
template <class T> struct packed;

template <> struct packed<float> {
    static constexpr int N = 4;
    static DEVICE void open(vec16 v, float *x)
    {
        for (int i = 0; i < 4; i++)
            x[i] = from_bits(v.w[i]);
    }
    static DEVICE vec16 close(const float *x)
    {
        return vec16{{to_bits(x[0]), to_bits(x[1]), to_bits(x[2]), to_bits(x[3])}};
    }
    static DEVICE float get(const float *p)
    {
        return load(p);
    }
    static DEVICE void put(float *p, float x)
    {
        store(p, x);
    }
};

template <> struct packed<bf16> {
    static constexpr int N = 8;
    static DEVICE void open(vec16 v, float *x)
    {
        for (int i = 0; i < 4; i++) {
            x[2 * i] = from_bits(v.w[i] << 16);
            x[2 * i + 1] = from_bits(v.w[i] & 0xffff0000u);
        }
    }
    static DEVICE vec16 close(const float *x)
    {
        vec16 v;
        for (int i = 0; i < 4; i++)
            v.w[i] = pack_bf16(x[2 * i], x[2 * i + 1]);
        return v;
    }
    static DEVICE float get(const bf16 *p)
    {
        return from_bits((uint32_t)load(p).bits << 16);
    }
    static DEVICE void put(bf16 *p, float x)
    {
        store(p, bf16{(uint16_t)pack_bf16(x, 0)});
    }
};

/* N floats from s[i] on, and to there. */
template <int N> DEVICE void get_floats(shared<float> s, int i, float *x)
{
#pragma unroll
    for (int j = 0; j < N; j += 4)
        packed<float>::open(get16(s, i + j), x + j);
}
template <int N> DEVICE void put_floats(shared<float> s, int i, const float *x)
{
#pragma unroll
    for (int j = 0; j < N; j += 4)
        put16(s, i + j, packed<float>::close(x + j));
}

/* An activation: f32 or bf16, as the call says. */
DEVICE float get_act(const void *p, int i, bool is_bf16)
{
    return is_bf16 ? packed<bf16>::get(static_cast<const bf16 *>(p) + i)
                   : packed<float>::get(static_cast<const float *>(p) + i);
}
DEVICE void put_act(void *p, int i, bool is_bf16, float x)
{
    if (is_bf16)
        packed<bf16>::put(static_cast<bf16 *>(p) + i, x);
    else
        packed<float>::put(static_cast<float *>(p) + i, x);
}

#endif
