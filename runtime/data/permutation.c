/*
 * Permutations without a table: a Feistel network over the bits that n needs, repeated until the
 * result is below n (cycle walking). A Feistel round XORs one half with a function of the other, so
 * it is invertible and the network is a bijection; cycle walking restricts it to a bijection of [0,
 * n). It takes fewer than two passes on average.
 */
#include "runtime/data/data.h"

#include <Random123/threefry.h>

/* Small n needs many rounds: with one or two bits per half, a round has only a few possible
 * functions. */
enum { ROUNDS = 12 };

static uint64_t feistel(threefry2x64_key_t key, int low_bits, int high_bits, uint64_t x)
{
    uint64_t low_mask = (UINT64_C(1) << low_bits) - 1, high_mask = (UINT64_C(1) << high_bits) - 1;
    uint64_t low = x & low_mask, high = x >> low_bits;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        threefry2x64_ctr_t counter = {{round % 2 == 0 ? high : low, round}};
        uint64_t random = threefry2x64(counter, key).v[0];
        if (round % 2 == 0)
            low ^= random & low_mask;
        else
            high ^= random & high_mask;
    }
    return high << low_bits | low;
}

uint64_t ttt__permute(uint64_t seed, uint64_t epoch, uint64_t n, uint64_t i)
{
    threefry2x64_key_t key = {{seed, epoch}};
    int bits = n <= 1 ? 0 : 64 - __builtin_clzll(n - 1);
    do
        i = feistel(key, bits - bits / 2, bits / 2, i);
    while (i >= n && n > 0);
    return i;
}

double ttt__draw(uint64_t seed, uint64_t i)
{
    /* Epochs never reach UINT64_MAX, so this key differs from every permutation's. */
    threefry2x64_ctr_t counter = {{i, 0}};
    threefry2x64_key_t key = {{seed, UINT64_MAX}};
    return (double)(threefry2x64(counter, key).v[0] >> 11) * 0x1p-53;
}
