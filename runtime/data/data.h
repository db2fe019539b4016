/* Private to the runtime room: what preparing data and reading it share. */
#ifndef RUNTIME_DATA_DATA_H
#define RUNTIME_DATA_DATA_H

#include "runtime/base/files.h"
#include "runtime/base/threads.h"
#include "runtime/data/ttt_data.h"

#include <jansson.h>

/* ---- order: permutation.c ----------------------------------------------------------------------
 */

/* Where `i` goes in the permutation of [0, n) that `seed` and `epoch` name; `i` is below `n`. The
 * values are pinned by a test: a run that is continued depends on them. */
uint64_t ttt__permute(uint64_t seed, uint64_t epoch, uint64_t n, uint64_t i);
/* Number `i` of the even numbers in [0, 1) that `seed` names; pinned likewise. */
double ttt__draw(uint64_t seed, uint64_t i);

/* ---- index.json: data_index.c ------------------------------------------------------------------
 */

enum { TTT__DATA_NAME = 64, TTT__DATA_SPLITS = 16 };

typedef struct ttt__shard {
    char name[TTT__DATA_NAME]; /* of the file, beside index.json */
    int64_t tokens, documents; /* a document counts where it begins */
    uint64_t hash[2];          /* XXH3-128 of the file, the low half first */
} ttt__shard;

typedef struct ttt__split {
    char name[TTT__DATA_NAME];
    ttt__shard *shards;
    int count;
    int64_t tokens, documents;
} ttt__split;

typedef struct ttt__data_index {
    char kind[TTT__DATA_NAME]; /* of the tokenizer */
    char file[TTT__DATA_NAME]; /* its file beside index.json; "": it has none */
    uint64_t hash[2];          /* of the tokenizer's file */
    int64_t vocab;
    int32_t bos, eos; /* -1: there is none */
    int width;        /* bytes of a token: 2 or 4 */
    ttt__split splits[TTT__DATA_SPLITS];
    int n_splits;
    json_t *made; /* an object: inputs and options, kept as it is */
} ttt__data_index;

/* Reads the text of an index.json, of which every number is checked; `what` names it. */
PJRT_MUST_CHECK pjrt_status *ttt__data_index_parse(const char *what, const char *text, size_t size,
                                                   ttt__data_index **out);
/* The one of a folder, under that name. NOT_FOUND when it has none. */
PJRT_MUST_CHECK pjrt_status *ttt__data_index_read(const char *folder, const char *name,
                                                  ttt__data_index **out);
/* The text that brings it back; the caller frees it. NULL when out of memory. */
char *ttt__data_index_text(const ttt__data_index *index);
void ttt__data_index_free(ttt__data_index *index);

/* Thirty-two digits, the highest first. */
enum { TTT__HEX = 33 };
void ttt__hash_hex(const uint64_t hash[2], char hex[TTT__HEX]);
bool ttt__hash_parse(const char *hex, uint64_t hash[2]);

#endif
