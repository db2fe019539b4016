/* What tells one model from another: its network and every byte of its weights, however they are
 * cut into files. */
#include "model/files/ttt_model_files.h"
#include "runtime/base/files.h"
#include "runtime/generate/sequence_state.h"

#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

static void add_tensors(XXH3_state_t *state, const ttt_tensors *tensors)
{
    for (int i = 0; i < ttt_tensors_count(tensors); i++) {
        const ttt_tensor *t = ttt_tensors_get(tensors, i);
        const char *type = hlo_type_name(t->shape.type);
        XXH3_128bits_update(state, t->name, strlen(t->name) + 1);
        XXH3_128bits_update(state, type, strlen(type) + 1);
        XXH3_128bits_update(state, t->data, t->size); /* mapped: no copy is made */
    }
}

pjrt_status *ttt__model_hash(const char *folder, uint64_t hash[2])
{
    char path[PATH_MAX];
    ttt_config config;
    ttt_error error;
    PJRT_TRY(ttt__path_join(folder, "config.json", path));
    if (!ttt_config_read(&config, path, &error))
        return ttt_failed(&error);
    char *text = ttt_config_text(&config, &error);
    ttt_tensors *tensors = text == NULL ? NULL : ttt_tensors_open(folder, &error);
    XXH3_state_t *state = XXH3_createState();
    pjrt_status *st = NULL;
    if (text == NULL || tensors == NULL)
        st = ttt_failed(&error);
    else if (state == NULL)
        st = PJRT_NO_MEMORY("runtime");
    if (st == NULL) {
        XXH3_128bits_reset(state);
        XXH3_128bits_update(state, text, strlen(text) + 1);
        add_tensors(state, tensors);
        XXH128_hash_t whole = XXH3_128bits_digest(state);
        hash[0] = whole.high64;
        hash[1] = whole.low64;
    }
    XXH3_freeState(state);
    ttt_tensors_free(tensors);
    free(text);
    return st;
}
