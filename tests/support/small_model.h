/* A small model in a folder, and bundles of it, for tests that run them. */
#ifndef TESTS_SUPPORT_SMALL_MODEL_H
#define TESTS_SUPPORT_SMALL_MODEL_H

#include "runtime/bundle/ttt_bundle.h"

enum { SMALL_VOCAB = 260 }; /* bytes, their two specials, and tokens that nothing stands for */

/* Makes the folder; mini-batches of 8. */
void small_model_write(const ttt_devices *devices, const char *folder, const char *mixer,
                       uint64_t seed);
/* A manifest whose text is edited, `from` to `to` once, and sealed anew. */
void small_manifest_edit(const char *bundle, const char *from, const char *to);

#endif
