/*
 * Private to the runtime room: what the processes of a job say to the keeper of the keys, byte by
 * byte. A frame is the length of the rest (u32, little endian as all numbers), its kind (u8), the
 * number of the request it belongs to (u32) and a body:
 *
 *     to the keeper                                       from the keeper
 *     HELLO    "ttt1", nonce                              CHALLENGE  nonce
 *     PROOF    proof, rank, processes, host               ACCEPTED   proof
 *     PUT      size of the key, key, value                WELCOME    hosts, each with a NUL behind
 * it GET      milliseconds (0: now), key                 REPLY      code, value or a sentence
 *     GATHER   milliseconds, size of name, name, bytes    LOST       rank, a sentence
 *     BEAT                                                BEAT
 *     BYE
 *
 * A proof is HMAC-SHA256 by the token, over who proves, both nonces, rank, processes and host: the
 * token does not cross the wire, and an old proof is worth nothing. The process proves first; the
 * keeper's answer shows that it knows the token as well. What follows is not encrypted.
 */
#ifndef RUNTIME_CLUSTER_COORDINATOR_WIRE_H
#define RUNTIME_CLUSTER_COORDINATOR_WIRE_H

#include "runtime/cluster/hmac.h"

#include <stdint.h>

typedef enum store_kind {
    STORE_HELLO = 1,
    STORE_CHALLENGE,
    STORE_PROOF,
    STORE_ACCEPTED,
    STORE_WELCOME,
    STORE_PUT,
    STORE_GET,
    STORE_GATHER,
    STORE_REPLY,
    STORE_LOST,
    STORE_BEAT,
    STORE_BYE,
} store_kind;

enum {
    STORE_HEAD = 9,               /* bytes before the body, the length among them */
    STORE_STRANGER_FRAME = 512,   /* the longest body of one who has not proved anything */
    STORE_FRAME = 64 << 20,       /* and of the others */
    STORE_KEY = 4096,             /* the longest key */
    STORE_HOST = 255,             /* the longest name of a host */
    STORE_MOST_PROCESSES = 65536, /* of a job */
};

/* Bytes that grow. `failed` once there was no memory: then nothing is added any more. */
typedef struct store_bytes {
    char *data;
    size_t size, room;
    bool failed;
} store_bytes;

void ttt__bytes_add(store_bytes *b, const void *bytes, size_t size);
void ttt__bytes_add_u32(store_bytes *b, uint32_t value);
void ttt__bytes_drop(store_bytes *b, size_t size); /* from the front */
void ttt__bytes_free(store_bytes *b);

typedef struct store_frame {
    store_kind kind;
    uint32_t id;
    const char *body; /* within the bytes it was read from */
    size_t size;
} store_frame;

/* 1: there is one, `*used` bytes long; 0: more bytes are needed; -1: this is no frame. */
int ttt__frame_read(const char *bytes, size_t size, size_t longest, store_frame *frame,
                    size_t *used);
/* Starts a frame, whose body is added next; the end tells how long it became. */
size_t ttt__frame_start(store_bytes *b, store_kind kind, uint32_t id);
void ttt__frame_end(store_bytes *b, size_t start);
/* A whole one. */
void ttt__frame_add(store_bytes *b, store_kind kind, uint32_t id, const void *body, size_t size);

/* Takes from the front of a body; false when it is shorter. */
bool ttt__take_u32(store_frame *frame, uint32_t *value);
bool ttt__take(store_frame *frame, size_t size, const char **bytes);

/* Who proves what: `who` is "process" or "keeper". */
void ttt__job_kv_proof(const char *token, const char *who, const unsigned char process[TTT_NONCE],
                       const unsigned char keeper[TTT_NONCE], uint32_t rank, uint32_t processes,
                       const char *host, size_t host_size, unsigned char out[TTT_PROOF]);

#endif
