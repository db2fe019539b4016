/* Private to the runtime: what preparing and reading data share. */
#ifndef RUNTIME_DATA_DATA_H
#define RUNTIME_DATA_DATA_H

#include "runtime/base/files.h"
#include "runtime/base/threads.h"
#include "runtime/data/ttt_data.h"

#include <jansson.h>

/* ---- sample order: permutation.c ---- */

/* The image of `i` (i < n) under the permutation of [0, n) given by `seed` and `epoch`. A test
 * pins the values: a resumed run depends on them. */
uint64_t ttt__permute(uint64_t seed, uint64_t epoch, uint64_t n, uint64_t i);
/* The i-th uniform number in [0, 1) of the stream `seed`. Pinned by a test as well. */
double ttt__draw(uint64_t seed, uint64_t i);

/* ---- index.json: data_index.c ---- */

enum { TTT__DATA_NAME = 64, TTT__DATA_SPLITS = 16 };

typedef struct ttt__shard {
    char name[TTT__DATA_NAME]; /* file name, beside index.json */
    int64_t tokens, documents; /* a document counts in the shard where it begins */
    uint64_t hash[2];          /* XXH3-128 of the file, low half first */
} ttt__shard;

typedef struct ttt__split {
    char name[TTT__DATA_NAME];
    ttt__shard *shards;
    int count;
    int64_t tokens, documents;
} ttt__split;

typedef struct ttt__data_index {
    char kind[TTT__DATA_NAME]; /* tokenizer kind */
    char file[TTT__DATA_NAME]; /* tokenizer file beside index.json; "" if it has none */
    uint64_t hash[2];          /* of the tokenizer file */
    int64_t vocab;
    int32_t bos, eos; /* -1: none */
    int width;        /* bytes per token: 2 or 4 */
    ttt__split splits[TTT__DATA_SPLITS];
    int n_splits;
    json_t *made; /* object with inputs and options, kept unchanged */
} ttt__data_index;

/* Parses an index.json and validates every number. `what` names the file in errors. */
PJRT_MUST_CHECK pjrt_status *ttt__data_index_parse(const char *what, const char *text, size_t size,
                                                   ttt__data_index **out);
/* Reads the file `name` in `folder`. NOT_FOUND if there is none. */
PJRT_MUST_CHECK pjrt_status *ttt__data_index_read(const char *folder, const char *name,
                                                  ttt__data_index **out);
/* Serializes the index; the caller frees the text. NULL when out of memory. */
char *ttt__data_index_text(const ttt__data_index *index);
void ttt__data_index_free(ttt__data_index *index);

/* 32 hex digits, most significant first. */
enum { TTT__HEX = 33 };
void ttt__hash_hex(const uint64_t hash[2], char hex[TTT__HEX]);
bool ttt__hash_parse(const char *hex, uint64_t hash[2]);

#endif
