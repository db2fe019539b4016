/* The readers of checkpoints and configurations: safetensors, JAX's msgpack, config.json. What is
 * accepted must lie within the input, and be readable. */
#include "model/records.h"

#include <stdlib.h>
#include <string.h>

typedef bool (*parser)(ttt_tensors *tensors, const void *bytes, size_t size, ttt_error *error);

/* Every tensor is within the input, unless it was put together elsewhere. */
static void read_all(const ttt_tensors *tensors, const uint8_t *data, size_t size)
{
    for (int i = 0; i < ttt_tensors_count(tensors); i++) {
        const ttt_tensor *t = ttt_tensors_get(tensors, i);
        size_t bytes;
        const uint8_t *at = t->data;
        if (!ttt__shape_bytes(&t->shape, &bytes) || bytes != t->size ||
            ttt_tensors_find(tensors, t->name) != t)
            abort();
        if (!tensors->jax &&
            (at < data || at > data + size || t->size > (size_t)(data + size - at)))
            abort();
        size_t count = (size_t)hlo_shape_elements(&t->shape);
        float *values = malloc(count > 0 ? count * sizeof *values : 1);
        if (values != NULL && t->size > 0)
            ttt_to_f32(t->shape.type, t->data, count, values);
        free(values);
    }
}

static void try_parser(parser parse, const uint8_t *data, size_t size)
{
    ttt_error error = {""};
    ttt_config config = {.n_heads = 1};
    ttt_tensors *tensors = ttt__tensors_new(&error);
    if (tensors == NULL)
        return;
    if (parse(tensors, data, size, &error) && ttt__tensors_sort(tensors, &error)) {
        read_all(tensors, data, size);
        if (tensors->jax)
            ttt_jax_config(tensors, &config, &error);
    } else if (error.message[0] == '\0' || strchr(error.message, '\n') != NULL) {
        abort();
    }
    ttt_tensors_free(tensors);
}

static void try_config(const uint8_t *data, size_t size)
{
    ttt_config config, back;
    ttt_error error = {""};
    if (!ttt_config_parse(&config, (const char *)data, size, &error))
        return;
    char *text = ttt_config_text(&config, &error);
    if (text == NULL || !ttt_config_parse(&back, text, strlen(text), &error))
        abort();
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    try_parser(ttt__safetensors_parse, data, size);
    try_parser(ttt__jax_parse, data, size);
    try_config(data, size);
    /* The same as a header whose length is right, which few inputs would come to have; the last
     * eight bytes are data. */
    if (size < 8)
        return 0;
    uint8_t *file = malloc(size + 8);
    if (file == NULL)
        return 0;
    for (int i = 0; i < 8; i++)
        file[i] = (uint8_t)((uint64_t)(size - 8) >> 8 * i);
    memcpy(file + 8, data, size);
    try_parser(ttt__safetensors_parse, file, size + 8);
    free(file);
    return 0;
}
