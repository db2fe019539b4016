/* Frames of the key-value store, written and read. */
#include "runtime/cluster/coordinator_wire.h"

#include <stdlib.h>
#include <string.h>

void ttt__bytes_add(store_bytes *b, const void *bytes, size_t size)
{
    if (b->failed || size == 0)
        return;
    if (size > b->room - b->size) {
        size_t room = (b->size + size) * 2;
        char *data = size > SIZE_MAX / 4 ? NULL : realloc(b->data, room);
        if (data == NULL) {
            b->failed = true;
            return;
        }
        b->data = data;
        b->room = room;
    }
    memcpy(b->data + b->size, bytes, size);
    b->size += size;
}

static void write_u32(unsigned char out[4], uint32_t value)
{
    for (int i = 0; i < 4; i++)
        out[i] = (unsigned char)(value >> 8 * i);
}

static uint32_t read_u32(const char *bytes)
{
    uint32_t value = 0;
    for (int i = 0; i < 4; i++)
        value |= (uint32_t)(unsigned char)bytes[i] << 8 * i;
    return value;
}

void ttt__bytes_add_u32(store_bytes *b, uint32_t value)
{
    unsigned char bytes[4];
    write_u32(bytes, value);
    ttt__bytes_add(b, bytes, sizeof bytes);
}

void ttt__bytes_drop(store_bytes *b, size_t size)
{
    b->size -= size;
    if (b->size > 0)
        memmove(b->data, b->data + size, b->size);
}

void ttt__bytes_free(store_bytes *b)
{
    free(b->data);
    *b = (store_bytes){0};
}

int ttt__frame_read(const char *bytes, size_t size, size_t longest, store_frame *frame,
                    size_t *used)
{
    if (size < STORE_HEAD)
        return 0;
    size_t length = read_u32(bytes);
    if (length < STORE_HEAD - 4 || length - (STORE_HEAD - 4) > longest)
        return -1;
    unsigned char kind = (unsigned char)bytes[4];
    if (kind < STORE_HELLO || kind > STORE_BYE)
        return -1;
    if (size - 4 < length)
        return 0;
    *frame = (store_frame){(store_kind)kind, read_u32(bytes + 5), bytes + STORE_HEAD,
                           length - (STORE_HEAD - 4)};
    *used = length + 4;
    return 1;
}

size_t ttt__frame_start(store_bytes *b, store_kind kind, uint32_t id)
{
    size_t start = b->size;
    unsigned char byte = (unsigned char)kind;
    ttt__bytes_add_u32(b, 0);
    ttt__bytes_add(b, &byte, 1);
    ttt__bytes_add_u32(b, id);
    return start;
}

void ttt__frame_end(store_bytes *b, size_t start)
{
    if (!b->failed)
        write_u32((unsigned char *)b->data + start, (uint32_t)(b->size - start - 4));
}

void ttt__frame_add(store_bytes *b, store_kind kind, uint32_t id, const void *body, size_t size)
{
    size_t start = ttt__frame_start(b, kind, id);
    ttt__bytes_add(b, body, size);
    ttt__frame_end(b, start);
}

bool ttt__take(store_frame *frame, size_t size, const char **bytes)
{
    if (frame->size < size)
        return false;
    *bytes = frame->body;
    frame->body += size;
    frame->size -= size;
    return true;
}

bool ttt__take_u32(store_frame *frame, uint32_t *value)
{
    const char *bytes;
    if (!ttt__take(frame, 4, &bytes))
        return false;
    *value = read_u32(bytes);
    return true;
}

void ttt__job_kv_proof(const char *token, const char *who, const unsigned char process[TTT_NONCE],
                       const unsigned char keeper[TTT_NONCE], uint32_t rank, uint32_t processes,
                       const char *host, size_t host_size, unsigned char out[TTT_PROOF])
{
    unsigned char text[16 + 2 * TTT_NONCE + 8 + STORE_HOST] = {0};
    unsigned char *at = text + 16;
    strncpy((char *)text, who, 16);
    memcpy(at, process, TTT_NONCE);
    memcpy(at + TTT_NONCE, keeper, TTT_NONCE);
    at += 2 * TTT_NONCE;
    write_u32(at, rank);
    write_u32(at + 4, processes);
    at += 8;
    if (host_size > STORE_HOST)
        host_size = STORE_HOST;
    memcpy(at, host, host_size);
    ttt__hmac(token, strlen(token), text, (size_t)(at - text) + host_size, out);
}
