/* What training and the file that it writes share. */
#ifndef RUNTIME_TOKENIZER_TRAIN_H
#define RUNTIME_TOKENIZER_TRAIN_H

#include "runtime/tokenizer/internal.h"

static const ttt__rule ttt__trained_rule = TTT__CL100K;

enum {
    TTT__TRAINED_SPECIALS = 2, /* "<s>", "</s>": 0 and 1; bytes follow, then merges */
    TTT__LEAST_TRAINED = TTT__TRAINED_SPECIALS + 256,
};

/* What was learned: bytes of tokens by number, and pairs of numbers in the order of merging. */
typedef struct ttt__trained {
    ttt__vocab vocab;
    ttt_ids merges;
} ttt__trained;

/* The number of a byte: bytes are in the order of the characters that stand for them. */
int32_t ttt__trained_byte(unsigned char byte);
/* Special tokens and bytes. */
PJRT_MUST_CHECK pjrt_status *ttt__trained_start(ttt__trained *trained);
/* A tokenizer.json, whole or not at all. */
PJRT_MUST_CHECK pjrt_status *ttt__trained_write(const ttt__trained *trained, const char *path);

#endif
