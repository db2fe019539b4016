/* A prepared folder for one test, written by hand and not by ttt_prepare. */
#ifndef TESTS_PREPARED_H
#define TESTS_PREPARED_H

#include "runtime/data/data.h"

/* Token t of the stream is prepared_token(t): below 251, with documents of 37 tokens, each begun by
 * BOS, 256. */
int32_t prepared_token(int64_t t);
/* "train" with shards of those sizes, `width` bytes a token; the vocabulary has 258. */
void prepared_write(const char *folder, int width, const int64_t *shards, int count);

#endif
