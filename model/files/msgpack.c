/* msgpack, read item by item; it never looks past the end, and never allocates. */
#include "model/files/msgpack.h"

/* A big-endian number of n bytes. */
static bool number(msgpack *m, int n, uint64_t *value)
{
    *value = 0;
    if (m->end - m->at < n)
        return false;
    for (int i = 0; i < n; i++)
        *value = *value << 8 | *m->at++;
    return true;
}

/* `size` bytes of an item. */
static msgpack_item bytes_of(msgpack *m, msgpack_kind kind, uint64_t size)
{
    msgpack_item item = {.kind = kind, .size = (size_t)size};
    if (size > (uint64_t)(m->end - m->at))
        return (msgpack_item){MSGPACK_BAD};
    item.bytes = m->at;
    m->at += size;
    return item;
}

/* Bytes, with their length in n bytes in front; an extension has its type between. */
static msgpack_item long_bytes(msgpack *m, msgpack_kind kind, int n)
{
    uint64_t size, type = 0;
    if (!number(m, n, &size) || (kind == MSGPACK_EXT && !number(m, 1, &type)))
        return (msgpack_item){MSGPACK_BAD};
    msgpack_item item = bytes_of(m, kind, size);
    item.ext = (int)type;
    return item;
}

/* A count of items to follow. Each has a byte at least: a larger count is a lie. */
static msgpack_item counted(msgpack *m, msgpack_kind kind, uint64_t count)
{
    if (count > (uint64_t)(m->end - m->at))
        return (msgpack_item){MSGPACK_BAD};
    return (msgpack_item){.kind = kind, .size = (size_t)count};
}

static msgpack_item integer(msgpack *m, int n)
{
    msgpack_item item = {MSGPACK_INT};
    return number(m, n, &item.integer) ? item : (msgpack_item){MSGPACK_BAD};
}

msgpack_item msgpack_next(msgpack *m)
{
    uint64_t tag, size;
    if (!number(m, 1, &tag))
        return (msgpack_item){MSGPACK_BAD};
    if (tag < 0x80)
        return (msgpack_item){.kind = MSGPACK_INT, .integer = tag};
    if (tag < 0x90)
        return counted(m, MSGPACK_MAP, tag & 15);
    if (tag < 0xa0)
        return counted(m, MSGPACK_ARRAY, tag & 15);
    if (tag < 0xc0)
        return bytes_of(m, MSGPACK_STR, tag & 31);
    switch (tag) {
    case 0xc2:
    case 0xc3:
        return (msgpack_item){.kind = MSGPACK_INT, .integer = tag - 0xc2};
    case 0xc4:
    case 0xc5:
    case 0xc6:
        return long_bytes(m, MSGPACK_BIN, 1 << (tag - 0xc4));
    case 0xc7:
    case 0xc8:
    case 0xc9:
        return long_bytes(m, MSGPACK_EXT, 1 << (tag - 0xc7));
    case 0xcc:
    case 0xcd:
    case 0xce:
    case 0xcf:
        return integer(m, 1 << (tag - 0xcc));
    case 0xd4:
    case 0xd5:
    case 0xd6:
    case 0xd7:
    case 0xd8: {
        uint64_t type;
        if (!number(m, 1, &type))
            break;
        msgpack_item item = bytes_of(m, MSGPACK_EXT, 1u << (tag - 0xd4));
        item.ext = (int)type;
        return item;
    }
    case 0xd9:
    case 0xda:
    case 0xdb:
        return long_bytes(m, MSGPACK_STR, 1 << (tag - 0xd9));
    case 0xdc:
    case 0xdd:
        if (number(m, tag == 0xdc ? 2 : 4, &size))
            return counted(m, MSGPACK_ARRAY, size);
        break;
    case 0xde:
    case 0xdf:
        if (number(m, tag == 0xde ? 2 : 4, &size))
            return counted(m, MSGPACK_MAP, size);
        break;
    default:
        break;
    }
    return (msgpack_item){MSGPACK_BAD};
}

bool msgpack_expect(msgpack *m, msgpack_kind kind, int64_t size, msgpack_item *item)
{
    *item = msgpack_next(m);
    return item->kind == kind && (size < 0 || item->size == (size_t)size);
}
