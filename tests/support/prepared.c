/* A prepared folder for one test. */
#include "tests/support/prepared.h"
#include "tests/support/support.h"

#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

int32_t prepared_token(int64_t t)
{
    return t % 37 == 0 ? 256 : (int32_t)((uint64_t)t * UINT64_C(0x9e3779b97f4a7c15) >> 40) % 251;
}

static void write_shard(const char *folder, int width, int64_t first, ttt__shard *shard)
{
    unsigned char *bytes = malloc((size_t)shard->tokens * (size_t)width);
    assert_non_null(bytes);
    for (int64_t i = 0; i < shard->tokens; i++) {
        uint16_t narrow = htole16((uint16_t)prepared_token(first + i));
        uint32_t wide = htole32((uint32_t)prepared_token(first + i));
        memcpy(bytes + i * width, width == 2 ? (void *)&narrow : &wide, (size_t)width);
        shard->documents += (first + i) % 37 == 0;
    }
    XXH128_hash_t hash = XXH3_128bits(bytes, (size_t)shard->tokens * (size_t)width);
    shard->hash[0] = hash.low64;
    shard->hash[1] = hash.high64;
    support_write_file(support_path(folder, shard->name), bytes,
                       (size_t)shard->tokens * (size_t)width);
    free(bytes);
}

void prepared_write(const char *folder, int width, const int64_t *shards, int count)
{
    ttt__data_index index = {.kind = "bytes",
                             .hash = {1, 2},
                             .vocab = 258,
                             .bos = 256,
                             .eos = 257,
                             .width = width,
                             .n_splits = 1,
                             .made = json_object()};
    ttt__split *split = &index.splits[0];
    *split = (ttt__split){.name = "train", .count = count};
    split->shards = calloc((size_t)count, sizeof *split->shards);
    assert_non_null(split->shards);
    for (int i = 0; i < count; i++) {
        ttt__shard *shard = &split->shards[i];
        snprintf(shard->name, sizeof shard->name, "train-%05d.tokens", i);
        shard->tokens = shards[i];
        write_shard(folder, width, split->tokens, shard);
        split->tokens += shard->tokens;
        split->documents += shard->documents;
    }
    char *text = ttt__data_index_text(&index);
    assert_non_null(text);
    support_write_file(support_path(folder, "index.json"), text, strlen(text));
    free(text);
    free(split->shards);
    json_decref(index.made);
}
