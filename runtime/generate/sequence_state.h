/* Private to the runtime room: states as they lie in memory and in files, which is the same. */
#ifndef RUNTIME_GENERATE_SEQUENCE_STATE_H
#define RUNTIME_GENERATE_SEQUENCE_STATE_H

#include "runtime/generate/ttt_generator.h"

enum { TTT__STATE_VERSION = 1 };

/* One array of a state, f32. */
typedef struct ttt__state_array {
    const char *name; /* as in ttt_state_table */
    hlo_shape shape;
    size_t offset, size; /* bytes in the image */
} ttt__state_array;

/* A file's bytes, and what is where in them. Position and place are in `about` alone; sums of
 * gradients on the boundary of a mini-batch are nowhere. */
struct ttt_state {
    ttt_state_about about;
    unsigned char *image;
    size_t size;
    ttt__state_array *parts;
    int count;
    void *header; /* JSON, which has the names */
};

/* A state whose parts are zero; of `parts` only names and shapes count. To be filled in, then
 * sealed. */
PJRT_MUST_CHECK pjrt_status *ttt__sequence_state_new(const ttt_state_about *about,
                                                     const ttt__state_array *parts, int count,
                                                     ttt_state **out);
static inline void *ttt__sequence_state_data(const ttt_state *state, int index)
{
    return state->image + state->parts[index].offset;
}
/* The hash at the end of an image becomes that of the rest. */
void ttt__image_seal(unsigned char *image, size_t size);
/* From a file's bytes, which it takes over, whatever happens; `name` is for messages. */
PJRT_MUST_CHECK pjrt_status *ttt__sequence_state_parse(const char *name, unsigned char *image,
                                                       size_t size, ttt_state **out);
/* -1: there is none of that name. */
int ttt__sequence_state_find(const ttt_state *state, const char *name);
/* Whether that part has a row for each token of the sequence, in dimension 1: attention's keys and
 * values. */
bool ttt__part_grows(const char *name);

/* XXH3-128 of the network and of the weights in a model's folder. */
PJRT_MUST_CHECK pjrt_status *ttt__model_hash(const char *folder, uint64_t hash[2]);

#endif
