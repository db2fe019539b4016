/* Private to the runtime room: proof that two processes know the same secret. */
#ifndef RUNTIME_CLUSTER_HMAC_H
#define RUNTIME_CLUSTER_HMAC_H

#include <stdbool.h>
#include <stddef.h>

enum { TTT_NONCE = 32, TTT_PROOF = 32 };

/* SHA-256, and HMAC over it (RFC 2104). */
void ttt__sha256(const void *bytes, size_t size, unsigned char out[TTT_PROOF]);
void ttt__hmac(const void *key, size_t key_size, const void *bytes, size_t size,
               unsigned char out[TTT_PROOF]);
/* Takes as long whatever the bytes are. */
bool ttt__same_proof(const unsigned char a[TTT_PROOF], const unsigned char b[TTT_PROOF]);
/* From the system; false when it has none to give. */
bool ttt__random(void *bytes, size_t size);

#endif
