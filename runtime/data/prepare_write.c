/* Writes shards: starts a new one every shard_tokens tokens, hashes while writing, and resumes
 * partly written ones. */
#include "runtime/data/prepare.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

static const char where[] = "data";

enum { BLOCK = 1 << 20 };

/* The open shard of a split, always the last in its list. */
typedef struct writer {
    int fd; /* -1: none is open */
    XXH3_state_t *state;
    size_t room; /* capacity of the split's list */
} writer;

struct ttt__output {
    char *folder;
    ttt__data_index *index;
    int64_t shard_tokens;
    writer writers[2];
};

static ttt__shard *last_shard(ttt__output *output, int split)
{
    ttt__split *s = &output->index->splits[split];
    return &s->shards[s->count - 1];
}

/* Opens the last shard in the list. */
static pjrt_status *open_shard(ttt__output *output, int split, int flags)
{
    writer *w = &output->writers[split];
    ttt__shard *shard = last_shard(output, split);
    char *path = ttt__path_new(output->folder, shard->name);
    if (path == NULL)
        return PJRT_NO_MEMORY(where);
    XXH3_128bits_reset(w->state);
    w->fd = open(path, O_RDWR | O_CLOEXEC | flags, 0666);
    pjrt_status *st = w->fd < 0 ? ttt__io_failed(path, NULL) : NULL;
    free(path);
    return st;
}

static pjrt_status *new_shard(ttt__output *output, int split)
{
    ttt__split *s = &output->index->splits[split];
    writer *w = &output->writers[split];
    if (!ttt__grow((void **)&s->shards, &w->room, (size_t)s->count + 1, sizeof *s->shards))
        return PJRT_NO_MEMORY(where);
    ttt__shard *shard = &s->shards[s->count++];
    *shard = (ttt__shard){0};
    snprintf(shard->name, sizeof shard->name, "%.32s-%05d.tokens", s->name, s->count - 1);
    return open_shard(output, split, O_CREAT | O_TRUNC);
}

static void store_hash(ttt__output *output, int split)
{
    XXH128_hash_t hash = XXH3_128bits_digest(output->writers[split].state);
    ttt__shard *shard = last_shard(output, split);
    shard->hash[0] = hash.low64;
    shard->hash[1] = hash.high64;
}

static pjrt_status *sync_shard(ttt__output *output, int split)
{
    if (output->writers[split].fd < 0)
        return NULL;
    store_hash(output, split);
    if (fdatasync(output->writers[split].fd) != 0)
        return ttt__io_failed(last_shard(output, split)->name, NULL);
    return NULL;
}

static pjrt_status *close_shard(ttt__output *output, int split)
{
    writer *w = &output->writers[split];
    PJRT_TRY(sync_shard(output, split));
    int failed = close(w->fd);
    w->fd = -1;
    return failed == 0 ? NULL : ttt__io_failed(last_shard(output, split)->name, NULL);
}

pjrt_status *ttt__output_put(ttt__output *output, int split, const void *tokens, int64_t count,
                             int64_t documents)
{
    ttt__split *s = &output->index->splits[split];
    writer *w = &output->writers[split];
    const char *at = tokens;
    while (count > 0) {
        if (w->fd < 0)
            PJRT_TRY(new_shard(output, split));
        ttt__shard *shard = last_shard(output, split);
        int64_t left = output->shard_tokens - shard->tokens, n = count < left ? count : left;
        size_t bytes = (size_t)n * (size_t)output->index->width;
        if (!ttt__write_all(w->fd, at, bytes))
            return ttt__io_failed(shard->name, NULL);
        XXH3_128bits_update(w->state, at, bytes);
        shard->tokens += n;
        shard->documents += documents;
        s->tokens += n;
        s->documents += documents;
        documents = 0;
        at += bytes;
        count -= n;
        if (shard->tokens == output->shard_tokens)
            PJRT_TRY(close_shard(output, split));
    }
    return NULL;
}

pjrt_status *ttt__output_sync(ttt__output *output)
{
    for (int i = 0; i < 2; i++)
        PJRT_TRY(sync_shard(output, i));
    return NULL;
}

ttt__data_index *ttt__output_index(ttt__output *output)
{
    return output->index;
}

/* ---- resuming ---- */

static pjrt_status *changed(const ttt__output *output, const char *name)
{
    return PJRT_FAIL(DATA_LOSS, where,
                     "%s/%s does not match the journal: remove the folder and prepare again",
                     output->folder, name);
}

/* Checks the sizes of all shards. The last may be longer than journalled; it is truncated on
 * resume. */
static pjrt_status *check_sizes(const ttt__output *output, const ttt__split *split)
{
    for (int i = 0; i < split->count; i++) {
        struct stat info;
        const ttt__shard *shard = &split->shards[i];
        int64_t size = shard->tokens * output->index->width;
        bool full = shard->tokens == output->shard_tokens;
        char *path = ttt__path_new(output->folder, shard->name);
        if (path == NULL)
            return PJRT_NO_MEMORY(where);
        bool good = stat(path, &info) == 0 && S_ISREG(info.st_mode) &&
                    (full ? info.st_size == size : info.st_size >= size) &&
                    (full || i == split->count - 1);
        free(path);
        if (!good)
            return changed(output, shard->name);
    }
    return NULL;
}

static pjrt_status *rehash_last_shard(ttt__output *output, int split, char *block)
{
    writer *w = &output->writers[split];
    ttt__shard *shard = last_shard(output, split);
    uint64_t hash[2] = {shard->hash[0], shard->hash[1]};
    int64_t left = shard->tokens * output->index->width;
    if (ftruncate(w->fd, left) != 0)
        return ttt__io_failed(shard->name, NULL);
    while (left > 0) {
        ssize_t n = read(w->fd, block, left < BLOCK ? (size_t)left : BLOCK);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? ttt__io_failed(shard->name, NULL) : changed(output, shard->name);
        XXH3_128bits_update(w->state, block, (size_t)n);
        left -= n;
    }
    store_hash(output, split);
    return shard->hash[0] == hash[0] && shard->hash[1] == hash[1] ? NULL
                                                                  : changed(output, shard->name);
}

static pjrt_status *resume_split(ttt__output *output, int split)
{
    const ttt__split *s = &output->index->splits[split];
    output->writers[split].room = (size_t)s->count;
    PJRT_TRY(check_sizes(output, s));
    if (s->count == 0 || last_shard(output, split)->tokens == output->shard_tokens)
        return NULL;
    char *block = malloc(BLOCK);
    if (block == NULL)
        return PJRT_NO_MEMORY(where);
    pjrt_status *st = open_shard(output, split, 0);
    if (st == NULL)
        st = rehash_last_shard(output, split, block);
    free(block);
    return st;
}

pjrt_status *ttt__output_new(const char *folder, ttt__data_index *index, int64_t shard_tokens,
                             ttt__output **out)
{
    *out = NULL;
    ttt__output *output = calloc(1, sizeof *output);
    if (output == NULL) {
        ttt__data_index_free(index);
        return PJRT_NO_MEMORY(where);
    }
    output->index = index;
    output->shard_tokens = shard_tokens;
    output->folder = strdup(folder);
    output->writers[0].fd = output->writers[1].fd = -1;
    pjrt_status *st = output->folder == NULL ? PJRT_NO_MEMORY(where) : NULL;
    for (int i = 0; st == NULL && i < 2; i++) {
        output->writers[i].state = XXH3_createState();
        st = output->writers[i].state == NULL ? PJRT_NO_MEMORY(where) : resume_split(output, i);
    }
    if (st != NULL)
        ttt__output_free(output);
    else
        *out = output;
    return st;
}

void ttt__output_free(ttt__output *output)
{
    if (output == NULL)
        return;
    for (int i = 0; i < 2; i++) {
        if (output->writers[i].fd >= 0)
            close(output->writers[i].fd);
        XXH3_freeState(output->writers[i].state);
    }
    ttt__data_index_free(output->index);
    free(output->folder);
    free(output);
}
