/*
 * How fast a compiled program could be by the chip's public peaks: a bound, never a time. What is
 * summed over which operations is in pjrt/hlo/pjrt_hlo.h; here are the target's peaks, tokens a second,
 * and the words.
 */
#ifndef TOOLS_COMPILE_ROOFLINE_H
#define TOOLS_COMPILE_ROOFLINE_H

#include "pjrt/hlo/pjrt_hlo.h"
#include "tools/cli/cmd.h"

typedef struct roofline {
    bool known; /* false where the target's peaks are not */
    pjrt_hlo_peaks peaks;
    pjrt_hlo_times times;
    int chips; /* that the program runs on */
} roofline;

/* What a run is for; 0 tokens: not known. */
typedef struct roofline_work {
    double tokens;      /* of a run, all chips together */
    double model_flops; /* of a token: what the network needs, not what the program does */
} roofline_work;

PJRT_MUST_CHECK pjrt_status *roofline_make(const pjrt_target *target, int chips, const char *format,
                                           const void *program, size_t size, roofline *out);

/* At most. */
double roofline_tokens_per_second(const roofline *r, const roofline_work *work);
double roofline_mfu(const roofline *r, const roofline_work *work);

/* null where it is not known; `work` may be NULL. */
json_t *roofline_json(const roofline *r, const roofline_work *work);
void roofline_print(const roofline *r, const roofline_work *work);
/* Seconds of the links for all calls of a collective. */
double roofline_link_seconds(const roofline *r, const pjrt_hlo_collective *collective);

#endif
