/* Files of states. What is accepted has parts that lie within it, and comes back the same when its
 * bytes are read once more. */
#include "runtime/generate/sequence_state.h"

#include <stdlib.h>
#include <string.h>

static uint64_t look(const ttt_state *state)
{
    uint64_t sum = (uint64_t)state->about.position;
    if (state->about.bytes != (int64_t)state->size || state->about.mixer == NULL)
        abort();
    for (int i = 0; i < state->count; i++) {
        const unsigned char *data = ttt__sequence_state_data(state, i);
        sum += strlen(state->parts[i].name);
        for (size_t k = 0; k < state->parts[i].size; k++)
            sum += data[k];
    }
    return sum;
}

static void try_state(const uint8_t *data, size_t size, int seal)
{
    ttt_state *state, *back;
    unsigned char *copy = malloc(size + 1), *again = malloc(size + 1);
    if (copy == NULL || again == NULL)
        abort();
    memcpy(copy, data, size);
    if (seal)
        ttt__image_seal(copy, size);
    memcpy(again, copy, size);
    pjrt_status *st = ttt__sequence_state_parse("it", copy, size, &state);
    if (st != NULL) {
        if (pjrt_status_message(st)[0] == '\0' || state != NULL)
            abort();
        pjrt_status_free(st);
        free(again);
        return;
    }
    if (ttt__sequence_state_parse("it", again, size, &back) != NULL || look(state) != look(back))
        abort();
    ttt_state_free(back);
    ttt_state_free(state);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    try_state(data, size, 0);
    /* The same with the hash that it should have, which no input would come to have. */
    if (size >= 32)
        try_state(data, size, 1);
    return 0;
}
