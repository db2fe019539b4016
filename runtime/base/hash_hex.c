/* 128-bit hashes as text. */
#include "runtime/base/ttt_hash.h"

#include <stdio.h>

char *ttt_hash_hex(uint64_t high, uint64_t low, char hex[TTT_HASH_HEX])
{
    snprintf(hex, TTT_HASH_HEX, "%016llx%016llx", (unsigned long long)high,
             (unsigned long long)low);
    return hex;
}
