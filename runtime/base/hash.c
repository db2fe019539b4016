/* What tells whether a file is what was written: one function for saving and for verifying. */
#include "runtime/base/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

static const char call[] = "checkpoint";

int64_t ttt__digest_chunks(int64_t size)
{
    return size / TTT__CHECKPOINT_SHARD + (size % TTT__CHECKPOINT_SHARD != 0);
}

void ttt__digest_free(ttt__digest *digest)
{
    free(digest->pieces);
    *digest = (ttt__digest){0};
}

/* A file that is not there, or that the disk does not give back, is lost as a changed one is. */
static pjrt_status *cannot_read(const char *path, int64_t offset)
{
    int error = errno;
    if (error == ENOENT || error == ENOTDIR)
        return PJRT_FAIL(DATA_LOSS, call, "%s is missing", path);
    if (error == EIO)
        return PJRT_FAIL(DATA_LOSS, call, "%s: cannot be read at %lld: %s", path, (long long)offset,
                         strerror(error));
    return ttt__io_failed(path, "read it");
}

/* `size` bytes at `offset`. */
static pjrt_status *read_piece(int fd, const char *path, int64_t offset, void *piece, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t n = TEMP_FAILURE_RETRY(
            pread(fd, (char *)piece + done, size - done, offset + (int64_t)done));
        if (n < 0)
            return cannot_read(path, offset + (int64_t)done);
        if (n == 0)
            return PJRT_FAIL(DATA_LOSS, call, "%s: it was cut while it was read", path);
        done += (size_t)n;
    }
    return NULL;
}

/* Bytes of the piece at `offset`. */
static size_t piece_size(int64_t size, int64_t offset)
{
    return (size_t)(size - offset < TTT__CHECKPOINT_SHARD ? size - offset : TTT__CHECKPOINT_SHARD);
}

typedef struct hashing {
    const char *path;
    int fd;
    const ttt__digest *known;
    ttt__digest *out;
    void *piece;
    XXH3_state_t *state;
} hashing;

static pjrt_status *hash_pieces(hashing *h)
{
    int64_t count = ttt__digest_chunks(h->out->size);
    for (int64_t i = 0; i < count; i++) {
        int64_t offset = i * TTT__CHECKPOINT_SHARD;
        size_t size = piece_size(h->out->size, offset);
        PJRT_TRY(read_piece(h->fd, h->path, offset, h->piece, size));
        h->out->pieces[i] = XXH3_64bits(h->piece, size);
        if (h->known != NULL && h->out->pieces[i] != h->known->pieces[i])
            return PJRT_FAIL(DATA_LOSS, call,
                             "%s: changed since it was written, in the MiB at offset %lld", h->path,
                             (long long)offset);
        XXH3_128bits_update(h->state, h->piece, size);
    }
    XXH128_hash_t whole = XXH3_128bits_digest(h->state);
    h->out->whole[0] = whole.high64;
    h->out->whole[1] = whole.low64;
    if (h->known != NULL && memcmp(h->out->whole, h->known->whole, sizeof h->known->whole) != 0)
        return PJRT_FAIL(DATA_LOSS, call, "%s: its hash is not the manifest's", h->path);
    return NULL;
}

static pjrt_status *hash_open(hashing *h)
{
    struct stat info;
    if (fstat(h->fd, &info) != 0)
        return cannot_read(h->path, 0);
    if (!S_ISREG(info.st_mode))
        return PJRT_FAIL(DATA_LOSS, call, "%s: not a file", h->path);
    if (h->known != NULL && info.st_size != h->known->size)
        return PJRT_FAIL(DATA_LOSS, call, "%s: %lld bytes, and there should be %lld", h->path,
                         (long long)info.st_size, (long long)h->known->size);
    h->out->size = info.st_size;
    h->out->pieces = calloc((size_t)ttt__digest_chunks(info.st_size) + 1, sizeof(uint64_t));
    h->piece = malloc(piece_size(info.st_size, 0) + 1);
    h->state = XXH3_createState();
    if (h->out->pieces == NULL || h->piece == NULL || h->state == NULL)
        return PJRT_NO_MEMORY(call);
    XXH3_128bits_reset(h->state);
    return hash_pieces(h);
}

pjrt_status *ttt__digest_file(const char *path, const ttt__digest *known, ttt__digest *out)
{
    hashing h = {.path = path, .known = known, .out = out};
    *out = (ttt__digest){0};
    h.fd = TEMP_FAILURE_RETRY(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    pjrt_status *st = h.fd < 0 ? cannot_read(path, 0) : hash_open(&h);
    if (h.fd >= 0)
        close(h.fd);
    free(h.piece);
    XXH3_freeState(h.state);
    if (st != NULL)
        ttt__digest_free(out);
    return st;
}
