/* The two readers of what a program takes: donation wishes in text, argument shapes in a module. */
#include "pjrt/internal.h"

#include <stdlib.h>

static void read_text(const uint8_t *data, size_t size)
{
    pjrt_program program = {(const char *)data, size, "mlir"};
    unsigned char *flags;
    int count;
    pjrt_status *st = pjrt__donations_of_text(&program, &flags, &count);
    if (st != NULL || count < -1 || (count > 0 && flags == NULL))
        abort();
    free(flags);
}

static void read_module(const uint8_t *data, size_t size, bool with_config)
{
    pjrt_shape *shapes;
    int count;
    pjrt_status *st =
        pjrt__arguments_of_module((const char *)data, size, with_config, &shapes, &count);
    if (st != NULL && (shapes != NULL || count != 0))
        abort();
    for (int i = 0; i < count; i++) {
        char text[PJRT_SHAPE_TEXT];
        pjrt_shape_text(&shapes[i], text);
        if (pjrt_shape_bytes(&shapes[i]) < -1)
            abort();
    }
    free(shapes);
    pjrt_status_free(st);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char head[] = "func.func @main(%a: f32 {jax.buffer_donor = true}, ";
    read_module(data, size, false);
    read_module(data, size, true);
    read_text(data, size);
    /* And as the rest of an argument list, which few inputs would come to have. */
    uint8_t *text = malloc(sizeof head - 1 + size);
    if (text == NULL)
        return 0;
    memcpy(text, head, sizeof head - 1);
    if (size > 0)
        memcpy(text + sizeof head - 1, data, size);
    read_text(text, sizeof head - 1 + size);
    free(text);
    return 0;
}
