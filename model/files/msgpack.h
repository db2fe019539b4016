/* A cursor over msgpack: only what the checkpoints of flax are made of. */
#ifndef MODEL_FILES_MSGPACK_H
#define MODEL_FILES_MSGPACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum msgpack_kind {
    MSGPACK_BAD, /* nothing that this reads, or the end in its middle */
    MSGPACK_INT, /* 0 and up; true and false are 1 and 0 */
    MSGPACK_STR,
    MSGPACK_BIN,
    MSGPACK_EXT,
    MSGPACK_ARRAY, /* `size` items follow */
    MSGPACK_MAP,   /* `size` pairs follow */
} msgpack_kind;

typedef struct msgpack_item {
    msgpack_kind kind;
    uint64_t integer;
    const unsigned char *bytes; /* of STR, BIN, EXT */
    size_t size;
    int ext; /* type of EXT */
} msgpack_item;

typedef struct msgpack {
    const unsigned char *at, *end;
} msgpack;

msgpack_item msgpack_next(msgpack *m);
/* The next item if it is of that kind and, unless `size` is negative, of that size. */
bool msgpack_expect(msgpack *m, msgpack_kind kind, int64_t size, msgpack_item *item);

#endif
