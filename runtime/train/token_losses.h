/* Private to the runtime room: every token's loss of some sequences, by one of several ways that
 * must agree. */
#ifndef RUNTIME_TRAIN_TOKEN_LOSSES_H
#define RUNTIME_TRAIN_TOKEN_LOSSES_H

#include "runtime/train/ttt_trainer.h"

typedef struct ttt__losses ttt__losses;
PJRT_MUST_CHECK pjrt_status *ttt__losses_new(const ttt_devices *devices, const ttt_config *config,
                                             const ttt_params *params,
                                             const ttt_evaluator_options *options,
                                             ttt__losses **out);
void ttt__losses_free(ttt__losses *losses);
/* Layers that inner losses are told of; 0: none are. */
int64_t ttt__losses_layers(const ttt__losses *losses);
/* Of `tokens` and `labels` [batch, time] to `out` of that shape; `inner` [layers, 4, time]. */
PJRT_MUST_CHECK pjrt_status *ttt__losses_run(ttt__losses *losses, ttt_array *const *weights,
                                             const int32_t *tokens, const int32_t *labels,
                                             float *out, float *inner);

#endif
