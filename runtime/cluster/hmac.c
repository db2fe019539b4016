/* SHA-256 and HMAC: a secret is proved, and never crosses the wire. */
#include "runtime/cluster/hmac.h"

#include <stdint.h>
#include <string.h>
#include <sys/random.h>

typedef struct sha256 {
    uint32_t state[8];
    uint64_t size;
    unsigned char block[64];
} sha256;

/* The first 32 bits of the fractions of the cube roots of the first 64 primes. */
static const uint32_t round_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotate(uint32_t x, int by)
{
    return x >> by | x << (32 - by);
}

static void mix(sha256 *s)
{
    uint32_t w[64], v[8];
    for (int i = 0; i < 16; i++) {
        const unsigned char *b = s->block + 4 * i;
        w[i] = (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
    }
    for (int i = 16; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + w[i - 7] + (rotate(a, 7) ^ rotate(a, 18) ^ a >> 3) +
               (rotate(b, 17) ^ rotate(b, 19) ^ b >> 10);
    }
    memcpy(v, s->state, sizeof v);
    for (int i = 0; i < 64; i++) {
        uint32_t e = v[4], a = v[0];
        uint32_t t = v[7] + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) +
                     ((e & v[5]) ^ (~e & v[6])) + round_constants[i] + w[i];
        uint32_t u = (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) +
                     ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += t;
        v[0] = t + u;
    }
    for (int i = 0; i < 8; i++)
        s->state[i] += v[i];
}

static void start(sha256 *s)
{
    *s = (sha256){.state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c,
                            0x1f83d9ab, 0x5be0cd19}};
}

static void add(sha256 *s, const void *bytes, size_t size)
{
    const unsigned char *from = bytes;
    for (size_t i = 0; i < size; i++) {
        s->block[s->size++ % 64] = from[i];
        if (s->size % 64 == 0)
            mix(s);
    }
}

static void finish(sha256 *s, unsigned char out[TTT_PROOF])
{
    uint64_t bits = s->size * 8;
    add(s, "\x80", 1);
    while (s->size % 64 != 56)
        add(s, "", 1);
    unsigned char length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)(bits >> (56 - 8 * i));
    add(s, length, sizeof length);
    for (int i = 0; i < TTT_PROOF; i++)
        out[i] = (unsigned char)(s->state[i / 4] >> (24 - 8 * (i % 4)));
}

void ttt__sha256(const void *bytes, size_t size, unsigned char out[TTT_PROOF])
{
    sha256 s;
    start(&s);
    add(&s, bytes, size);
    finish(&s, out);
}

void ttt__hmac(const void *key, size_t key_size, const void *bytes, size_t size,
               unsigned char out[TTT_PROOF])
{
    unsigned char padded[64] = {0}, inner[TTT_PROOF], pad[64];
    sha256 s;
    if (key_size > sizeof padded)
        ttt__sha256(key, key_size, padded);
    else if (key_size > 0)
        memcpy(padded, key, key_size);
    for (int i = 0; i < 64; i++)
        pad[i] = padded[i] ^ 0x36;
    start(&s);
    add(&s, pad, sizeof pad);
    add(&s, bytes, size);
    finish(&s, inner);
    for (int i = 0; i < 64; i++)
        pad[i] = padded[i] ^ 0x5c;
    start(&s);
    add(&s, pad, sizeof pad);
    add(&s, inner, sizeof inner);
    finish(&s, out);
}

bool ttt__same_proof(const unsigned char a[TTT_PROOF], const unsigned char b[TTT_PROOF])
{
    volatile unsigned char differ = 0;
    for (int i = 0; i < TTT_PROOF; i++)
        differ |= (unsigned char)(a[i] ^ b[i]);
    return differ == 0;
}

bool ttt__random(void *bytes, size_t size)
{
    return getrandom(bytes, size, 0) == (ssize_t)size;
}
