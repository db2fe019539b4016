/* Private to the runtime room: what handles of ttt.h are. A failure is a pjrt_status. */
#ifndef RUNTIME_LIBRARY_H
#define RUNTIME_LIBRARY_H

#include "runtime/bundle/ttt_bundle.h"
#include "runtime/ttt.h"

struct ttt_lm {
    ttt_devices *devices;
    ttt_bundle *bundle; /* NULL: a model's folder */
    ttt_bundle_use use;
    ttt_tokenizer *tokenizer; /* NULL: the model has none beside it */
    ttt_encoder *encoder;
    ttt_engine *engine;
    ttt_sequence **slots; /* whose each slot of the engine is */
    uint64_t clock;       /* how often slots were used */
};

struct ttt_sequence {
    ttt_lm *lm;
    int64_t slot;      /* -1: it waits */
    ttt_state *parked; /* while it waits; NULL: it is at its start */
    bool lost;         /* while it waits */
    uint64_t used;     /* when it was used last */
    float *logits;
    bool has_logits;
    ttt_sampler *sampler;
    int32_t chosen; /* the last one sampled, which the sampler has seen; -1 once it was fed */
    ttt_decoder *decoder;
};

static inline ttt_failure *ttt__failure(pjrt_status *st)
{
    return (ttt_failure *)st;
}

/* There is a tokenizer. */
PJRT_MUST_CHECK pjrt_status *ttt__lm_needs_tokenizer(const ttt_lm *lm);
/* Text as tokens, which the caller frees. */
PJRT_MUST_CHECK pjrt_status *ttt__lm_encode(ttt_lm *lm, const char *text, size_t size, bool start,
                                            ttt_ids *ids);

#endif
