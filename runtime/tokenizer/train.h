/* Shared by the trainer and its writer. */
#ifndef RUNTIME_TOKENIZER_TRAIN_H
#define RUNTIME_TOKENIZER_TRAIN_H

#include "runtime/tokenizer/internal.h"

static const ttt__rule ttt__trained_rule = TTT__CL100K;

enum {
    TTT__TRAINED_SPECIALS = 2, /* "<s>", "</s>": ids 0 and 1; then bytes, then merges */
    TTT__LEAST_TRAINED = TTT__TRAINED_SPECIALS + 256,
};

/* Training result: token bytes by id, and pairs of ids in merge order. */
typedef struct ttt__trained {
    ttt__vocab vocab;
    ttt_ids merges;
} ttt__trained;

/* The id of a byte. Bytes are sorted by the characters that represent them. */
int32_t ttt__trained_byte(unsigned char byte);
/* Adds special tokens and bytes. */
PJRT_MUST_CHECK pjrt_status *ttt__trained_start(ttt__trained *trained);
/* Writes tokenizer.json atomically. */
PJRT_MUST_CHECK pjrt_status *ttt__trained_write(const ttt__trained *trained, const char *path);

#endif
