/* Reads the text of one input file sequentially. */
#include "runtime/data/prepare.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
#include <zstd.h>

static const char where[] = "data";

enum { BLOCK = 1 << 17 };

struct ttt__text {
    const ttt__input *input;
    int fd;
    int64_t taken;
    bool end;          /* of the file */
    ZSTD_DStream *zst; /* NULL: not compressed */
    ZSTD_inBuffer in;
    bool in_frame; /* inside a frame: more input must follow */
    bool full;     /* the last call filled its output buffer, so the decoder may hold more */
    char *block;   /* compressed input */
};

pjrt_status *ttt__text_open(const ttt__input *input, ttt__text **out)
{
    *out = NULL;
    ttt__text *text = calloc(1, sizeof *text);
    if (text == NULL)
        return PJRT_NO_MEMORY(where);
    text->input = input;
    text->fd = open(input->path, O_RDONLY | O_CLOEXEC);
    text->block = malloc(BLOCK);
    text->zst = input->zst ? ZSTD_createDStream() : NULL;
    pjrt_status *st = NULL;
    if (text->fd < 0)
        st = ttt__io_failed(input->path, NULL);
    else if (text->block == NULL || (input->zst && text->zst == NULL))
        st = PJRT_NO_MEMORY(where);
    if (st != NULL) {
        ttt__text_free(text);
        return st;
    }
    posix_fadvise(text->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    text->in.src = text->block;
    *out = text;
    return NULL;
}

void ttt__text_free(ttt__text *text)
{
    if (text == NULL)
        return;
    if (text->fd >= 0)
        close(text->fd);
    ZSTD_freeDStream(text->zst);
    free(text->block);
    free(text);
}

int64_t ttt__text_taken(const ttt__text *text)
{
    return text->taken;
}

/* Reads from the file itself; 0 bytes only at its end. */
static pjrt_status *read_some(ttt__text *text, char *bytes, size_t room, size_t *count)
{
    ssize_t n;
    do
        n = read(text->fd, bytes, room);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return ttt__io_failed(text->input->path, NULL);
    *count = (size_t)n;
    text->taken += n;
    text->end = n == 0;
    if (text->taken > text->input->size || (text->end && text->taken < text->input->size))
        return PJRT_FAIL(ABORTED, where, "%s: the file changed while it was read",
                         text->input->path);
    return NULL;
}

/* Appends the output of the next block to `out`. */
static pjrt_status *decompress_some(ttt__text *text, ZSTD_outBuffer *out)
{
    if (text->in.pos == text->in.size && !(text->in_frame && text->full)) {
        text->in.pos = 0;
        PJRT_TRY(read_some(text, text->block, BLOCK, &text->in.size));
        if (text->end && text->in_frame)
            return PJRT_FAIL(DATA_LOSS, where, "%s: the compressed data is truncated",
                             text->input->path);
        if (text->end)
            return NULL;
    }
    size_t left = ZSTD_decompressStream(text->zst, out, &text->in);
    if (ZSTD_isError(left))
        return PJRT_FAIL(DATA_LOSS, where, "%s: decompression failed: %s", text->input->path,
                         ZSTD_getErrorName(left));
    text->in_frame = left != 0;
    text->full = out->pos == out->size;
    return NULL;
}

pjrt_status *ttt__text_read(ttt__text *text, char *bytes, size_t room, size_t *count)
{
    *count = 0;
    while (*count < room && !text->end) {
        if (text->zst == NULL) {
            size_t n = 0;
            PJRT_TRY(read_some(text, bytes + *count, room - *count, &n));
            *count += n;
        } else {
            ZSTD_outBuffer out = {bytes, room, *count};
            PJRT_TRY(decompress_some(text, &out));
            *count = out.pos;
        }
    }
    return NULL;
}

pjrt_status *ttt__text_skip(ttt__text *text, int64_t count)
{
    if (text->zst == NULL) {
        text->taken = lseek(text->fd, count, SEEK_SET);
        return text->taken < 0 ? ttt__io_failed(text->input->path, NULL) : NULL;
    }
    char *bytes = malloc(BLOCK);
    pjrt_status *st = bytes == NULL ? PJRT_NO_MEMORY(where) : NULL;
    while (st == NULL && count > 0) {
        size_t n = 0;
        st = ttt__text_read(text, bytes, count < BLOCK ? (size_t)count : BLOCK, &n);
        count -= (int64_t)n;
        if (st == NULL && n == 0)
            st = PJRT_FAIL(ABORTED, where, "%s: the file changed while it was read",
                           text->input->path);
    }
    free(bytes);
    return st;
}
