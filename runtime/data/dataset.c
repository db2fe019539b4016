/* One split of a prepared folder: maps its shards and reads tokens across them. */
#include "runtime/data/data.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

static const char where[] = "data";

typedef struct mapped {
    const void *bytes;
    size_t size;
    int64_t first; /* stream index of the shard's first token */
} mapped;

struct ttt_dataset {
    ttt_dataset_about about;
    ttt__data_index *index;
    const ttt__split *split;
    char *folder, *tokenizer;
    mapped *shards; /* count + 1 entries; the last holds the end of the stream */
};

/* ---- opening ---- */

static pjrt_status *map_fd(int fd, const char *path, const ttt__shard *shard, int width,
                           mapped *out)
{
    struct stat info;
    int64_t size = shard->tokens * width;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))
        return PJRT_FAIL(DATA_LOSS, where, "%s: not a file", path);
    if (info.st_size != size)
        return PJRT_FAIL(DATA_LOSS, where, "%s: %lld bytes, but index.json says %lld", path,
                         (long long)info.st_size, (long long)size);
    void *bytes = mmap(NULL, (size_t)size, PROT_READ, MAP_SHARED, fd, 0);
    if (bytes == MAP_FAILED)
        return PJRT_FAIL(RESOURCE_EXHAUSTED, where, "%s: mmap failed: %s", path, strerror(errno));
    out->bytes = bytes;
    out->size = (size_t)size;
    return NULL;
}

static pjrt_status *map_shard(const ttt_dataset *data, const ttt__shard *shard, mapped *out)
{
    char *path = ttt__path_new(data->folder, shard->name);
    if (path == NULL)
        return PJRT_NO_MEMORY(where);
    pjrt_status *st = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        st = PJRT_FAIL(DATA_LOSS, where, "%s: %s", path, strerror(errno));
    else
        st = map_fd(fd, path, shard, data->index->width, out);
    if (fd >= 0)
        close(fd);
    free(path);
    return st;
}

static pjrt_status *map_shards(ttt_dataset *data)
{
    int count = data->split->count;
    data->shards = calloc((size_t)count + 1, sizeof *data->shards);
    if (data->shards == NULL)
        return PJRT_NO_MEMORY(where);
    for (int i = 0; i < count; i++) {
        PJRT_TRY(map_shard(data, &data->split->shards[i], &data->shards[i]));
        data->shards[i + 1].first = data->shards[i].first + data->split->shards[i].tokens;
    }
    return NULL;
}

static pjrt_status *find_split(ttt_dataset *data, const char *name)
{
    const ttt__data_index *index = data->index;
    for (int i = 0; i < index->n_splits; i++) {
        if (strcmp(index->splits[i].name, name) == 0)
            data->split = &index->splits[i];
    }
    if (data->split == NULL)
        return PJRT_FAIL(NOT_FOUND, where, "%s has no split \"%s\": no document fell into it",
                         data->folder, name);
    return NULL;
}

/* Identifies the token stream: the hash of the shards' hashes, in order. */
static pjrt_status *hash_of_hashes(const ttt__split *split, uint64_t hash[2])
{
    XXH128_canonical_t *list = malloc((size_t)split->count * sizeof *list);
    if (list == NULL)
        return PJRT_NO_MEMORY(where);
    for (int i = 0; i < split->count; i++) {
        const uint64_t *part = split->shards[i].hash;
        XXH128_canonicalFromHash(&list[i], (XXH128_hash_t){.low64 = part[0], .high64 = part[1]});
    }
    XXH128_hash_t all = XXH3_128bits(list, (size_t)split->count * sizeof *list);
    hash[0] = all.low64;
    hash[1] = all.high64;
    free(list);
    return NULL;
}

static pjrt_status *fill(ttt_dataset *data, const char *folder, const char *split)
{
    data->folder = strdup(folder);
    if (data->folder == NULL)
        return PJRT_NO_MEMORY(where);
    PJRT_TRY(ttt__data_index_read(folder, "index.json", &data->index));
    const ttt__data_index *index = data->index;
    PJRT_TRY(find_split(data, split));
    data->tokenizer =
        index->file[0] == '\0' ? strdup(index->kind) : ttt__path_new(folder, index->file);
    if (data->tokenizer == NULL)
        return PJRT_NO_MEMORY(where);
    data->about = (ttt_dataset_about){
        .tokens = data->split->tokens,
        .documents = data->split->documents,
        .shards = data->split->count,
        .vocab = index->vocab,
        .bos = index->bos,
        .eos = index->eos,
        .tokenizer = data->tokenizer,
    };
    PJRT_TRY(hash_of_hashes(data->split, data->about.hash));
    return map_shards(data);
}

pjrt_status *ttt_dataset_open(const char *folder, const char *split, ttt_dataset **out)
{
    *out = NULL;
    ttt_dataset *data = calloc(1, sizeof *data);
    if (data == NULL)
        return PJRT_NO_MEMORY(where);
    pjrt_status *st = fill(data, folder, split);
    if (st != NULL)
        ttt_dataset_free(data);
    else
        *out = data;
    return st;
}

void ttt_dataset_free(ttt_dataset *data)
{
    if (data == NULL)
        return;
    for (int i = 0; data->shards != NULL && i < data->split->count; i++) {
        if (data->shards[i].bytes != NULL)
            munmap((void *)data->shards[i].bytes, data->shards[i].size);
    }
    free(data->shards);
    ttt__data_index_free(data->index);
    free(data->tokenizer);
    free(data->folder);
    free(data);
}

const ttt_dataset_about *ttt_dataset_info(const ttt_dataset *data)
{
    return &data->about;
}

/* ---- reading ---- */

pjrt_status *ttt_dataset_verify(const ttt_dataset *data)
{
    for (int i = 0; i < data->split->count; i++) {
        const ttt__shard *shard = &data->split->shards[i];
        XXH128_hash_t hash = XXH3_128bits(data->shards[i].bytes, data->shards[i].size);
        if (hash.low64 != shard->hash[0] || hash.high64 != shard->hash[1])
            return PJRT_FAIL(DATA_LOSS, where,
                             "%s/%s: hash differs from index.json: prepare the data again",
                             data->folder, shard->name);
    }
    return NULL;
}

/* The shard that holds `token`. */
static int find_shard(const ttt_dataset *data, int64_t token)
{
    int low = 0, high = data->split->count - 1;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (token < data->shards[middle + 1].first)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Widens tokens to s32. Returns the largest, so that one comparison validates them all. */
static uint32_t widen(const void *bytes, int width, int64_t at, int64_t count, int32_t *out)
{
    uint32_t most = 0;
    if (width == 2) {
        const uint16_t *from = (const uint16_t *)bytes + at;
        for (int64_t i = 0; i < count; i++) {
            uint32_t token = le16toh(from[i]);
            most = token > most ? token : most;
            out[i] = (int32_t)token;
        }
    } else {
        const uint32_t *from = (const uint32_t *)bytes + at;
        for (int64_t i = 0; i < count; i++) {
            uint32_t token = le32toh(from[i]);
            most = token > most ? token : most;
            out[i] = (int32_t)token;
        }
    }
    return most;
}

pjrt_status *ttt_dataset_read(const ttt_dataset *data, int64_t start, int64_t count, int32_t *out)
{
    if (start < 0 || count < 0 || start > data->about.tokens || count > data->about.tokens - start)
        return PJRT_FAIL(OUT_OF_RANGE, where, "start %lld, count %lld: the stream has %lld tokens",
                         (long long)start, (long long)count, (long long)data->about.tokens);
    for (int i = count == 0 ? 0 : find_shard(data, start); count > 0; i++) {
        int64_t at = start - data->shards[i].first, left = data->shards[i + 1].first - start;
        int64_t n = count < left ? count : left;
        uint32_t most = widen(data->shards[i].bytes, data->index->width, at, n, out);
        if (most >= data->about.vocab)
            return PJRT_FAIL(DATA_LOSS, where, "%s/%s: token %u, but the vocabulary has %lld",
                             data->folder, data->split->shards[i].name, most,
                             (long long)data->about.vocab);
        start += n;
        count -= n;
        out += n;
    }
    return NULL;
}
