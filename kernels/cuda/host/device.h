/*
 * The words of kernels/cuda/device.h on the host. Every access to shared and global memory goes
 * through host::machine, which counts it and looks for what a GPU would let pass silently: races,
 * copies read before they were waited for, memory never written, places outside of every array,
 * threads that meet at different barriers.
 */
#ifndef KERNELS_CUDA_HOST_DEVICE_H
#define KERNELS_CUDA_HOST_DEVICE_H

#include "kernels/cuda/host/machine.h"

#include <math.h>
#include <string.h>

#define DEVICE inline
#define KERNEL(threads, blocks) extern "C" void

DEVICE int thread_index()
{
    return host::current().thread;
}
DEVICE int block_index()
{
    return host::current().block;
}
DEVICE void sync_block()
{
    host::meet_block();
}
DEVICE void sync_cluster()
{
    host::meet_cluster();
}

/* ---- memory ------------------------------------------------------------------------------------
 */

/* What an index into shared memory gives: it knows when it is read and when it is written. */
template <class T> struct shared_place {
    T *p;
    operator T() const
    {
        host::shared_read(p, sizeof(T));
        return *p;
    }
    shared_place &operator=(T v)
    {
        host::shared_write(p, sizeof(T));
        *p = v;
        return *this;
    }
    shared_place &operator=(const shared_place &other)
    {
        return *this = static_cast<T>(other);
    }
};

template <class T> struct shared {
    T *p;
    shared_place<T> operator[](int i) const
    {
        return shared_place<T>{p + i};
    }
    shared operator+(int i) const
    {
        return shared{p + i};
    }
};

struct float2 {
    float x, y;
};

DEVICE char *arena()
{
    return host::current_arena();
}

template <class T> DEVICE T load(const T *p)
{
    host::global_read(p, sizeof(T));
    return *p;
}
template <class T> DEVICE void store(T *p, T v)
{
    host::global_write(p, sizeof(T));
    *p = v;
}
DEVICE vec16 load16(const void *p)
{
    vec16 v;
    host::global_read(p, sizeof v);
    memcpy(&v, p, sizeof v);
    return v;
}
DEVICE void store16(void *p, vec16 v)
{
    host::global_write(p, sizeof v);
    memcpy(p, &v, sizeof v);
}
template <class T> DEVICE vec16 get16(shared<T> s, int i)
{
    vec16 v;
    host::shared_read(s.p + i, sizeof v);
    memcpy(&v, s.p + i, sizeof v);
    return v;
}
template <class T> DEVICE void put16(shared<T> s, int i, vec16 v)
{
    host::shared_write(s.p + i, sizeof v);
    memcpy(s.p + i, &v, sizeof v);
}
DEVICE float2 get8(shared<float> s, int i)
{
    float2 v;
    host::shared_read(s.p + i, sizeof v);
    memcpy(&v, s.p + i, sizeof v);
    return v;
}
DEVICE void store8(float *p, float x, float y)
{
    host::global_write(p, 2 * sizeof(float));
    p[0] = x;
    p[1] = y;
}
DEVICE void expect(const void *)
{
}

template <int BYTES> DEVICE void copy_begin(void *to, const void *from)
{
    static_assert(BYTES == 4 || BYTES == 16, "what cp.async copies");
    host::copy_begin(to, from, BYTES);
}
DEVICE void copy_close()
{
    host::copy_close();
}
template <int OPEN> DEVICE void copy_wait()
{
    host::copy_wait(OPEN);
}

template <class T> DEVICE shared<T> of_block(shared<T> s, int rank)
{
    return shared<T>{static_cast<T *>(host::of_block(s.p, rank))};
}

/* ---- arithmetic --------------------------------------------------------------------------------
 */

DEVICE float from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
DEVICE uint32_t to_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
DEVICE float shuffle_xor(float v, int mask)
{
    return from_bits(host::exchange(to_bits(v), mask));
}
DEVICE float mad(float a, float b, float c)
{
    host::count_flops(2);
    return fmaf(a, b, c);
}
DEVICE float inverse_root(float x)
{
    return 1 / sqrtf(x);
}
DEVICE void sin_cos_pi(float half_turns, float *s, float *c)
{
    double angle = 3.14159265358979323846 * (double)half_turns;
    *s = (float)sin(angle);
    *c = (float)cos(angle);
}
DEVICE uint32_t round_bf16(float x)
{
    uint32_t bits = to_bits(x);
    if (x != x)
        return 0x7fff;
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
DEVICE uint32_t pack_bf16(float low, float high)
{
    return round_bf16(high) << 16 | round_bf16(low);
}
DEVICE void mma(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    host::matrix_product(c, a, b);
}

#endif
