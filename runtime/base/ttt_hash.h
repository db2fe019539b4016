/* 128-bit hashes as text: one function for every page, message and file. */
#ifndef RUNTIME_BASE_TTT_HASH_H
#define RUNTIME_BASE_TTT_HASH_H

#include <stdint.h>

enum { TTT_HASH_HEX = 33 }; /* 32 digits and a NUL */

/* Writes 32 hexadecimal digits, the high word first; returns `hex`. */
char *ttt_hash_hex(uint64_t high, uint64_t low, char hex[TTT_HASH_HEX]);

#endif
