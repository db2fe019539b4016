/* Device arrays and host transfers. */
#include "pjrt/internal.h"

#include <stdlib.h>

void pjrt__buffer_destroy_raw(const pjrt_plugin *plugin, PJRT_Buffer *raw)
{
    if (raw == NULL)
        return;
    ARGS(PJRT_Buffer_Destroy_Args, destroy, plugin);
    destroy.a.buffer = raw;
    CALL_VOID(plugin, PJRT_Buffer_Destroy, destroy);
}

pjrt_status *pjrt__buffer_wrap(pjrt_device *device, PJRT_Buffer *raw, const pjrt_shape *shape,
                               pjrt_buffer **out)
{
    pjrt_buffer *buffer = malloc(sizeof *buffer);
    *out = buffer;
    if (buffer == NULL) {
        pjrt__buffer_destroy_raw(device->client->plugin, raw);
        return PJRT_NO_MEMORY("pjrt_buffer");
    }
    buffer->client = device->client;
    buffer->device = device;
    buffer->raw = raw;
    buffer->shape = *shape;
    atomic_init(&buffer->dead, false);
    pjrt__client_ref(buffer->client);
    return NULL;
}

static pjrt_status *check_shape(const char *call, pjrt_type type, const int64_t *dims, int rank,
                                pjrt_shape *shape)
{
    *shape = (pjrt_shape){.type = type, .rank = rank};
    if (rank < 0 || rank > PJRT_MAX_RANK)
        return PJRT_FAIL(INVALID_ARGUMENT, call, "rank %d: at most %d dimensions are supported",
                         rank, PJRT_MAX_RANK);
    for (int i = 0; i < rank; i++)
        shape->dims[i] = dims[i];
    char text[PJRT_SHAPE_TEXT];
    if (pjrt_shape_bytes(shape) < 0)
        return PJRT_FAIL(INVALID_ARGUMENT, call, "%s is not the shape of an array",
                         pjrt_shape_text(shape, text));
    return NULL;
}

static pjrt_status *check_alive(const pjrt_buffer *buffer, const char *call)
{
    char text[PJRT_SHAPE_TEXT];
    if (!atomic_load_explicit(&buffer->dead, memory_order_acquire))
        return NULL;
    return PJRT_FAIL(FAILED_PRECONDITION, call, "the buffer (%s) was donated or deleted before",
                     pjrt_shape_text(&buffer->shape, text));
}

static pjrt_status *memory_of(const pjrt_device *device, int index, PJRT_Memory **memory)
{
    *memory = NULL;
    if (index == 0)
        return NULL;
    if (index < 0 || (size_t)index >= device->n_memories)
        return PJRT_FAIL(INVALID_ARGUMENT, "pjrt_buffer_from_host", "memory %d: the device has %zu",
                         index, device->n_memories);
    *memory = device->memories[index];
    return NULL;
}

pjrt_status *pjrt_buffer_from_host(pjrt_device *device, pjrt_type type, const int64_t *dims,
                                   int rank, const void *data, const pjrt_upload_options *options,
                                   pjrt_event **done, pjrt_buffer **out)
{
    static const PJRT_HostBufferSemantics semantics[] = {
        [PJRT_HOST_COPIED] = PJRT_HostBufferSemantics_kImmutableOnlyDuringCall,
        [PJRT_HOST_UNTIL_DONE] = PJRT_HostBufferSemantics_kImmutableUntilTransferCompletes,
        [PJRT_HOST_ZERO_COPY] = PJRT_HostBufferSemantics_kImmutableZeroCopy,
    };
    static const pjrt_upload_options defaults = {0};
    pjrt_plugin *plugin = device->client->plugin;
    pjrt_shape shape;
    PJRT_Memory *memory;
    *out = NULL;
    if (done != NULL)
        *done = NULL;
    if (options == NULL)
        options = &defaults;
    PJRT_TRY(check_shape("pjrt_buffer_from_host", type, dims, rank, &shape));
    PJRT_TRY(memory_of(device, options->memory, &memory));
    if (options->host_memory == PJRT_HOST_ZERO_COPY && done == NULL)
        return PJRT_FAIL(INVALID_ARGUMENT, "pjrt_buffer_from_host",
                         "a zero-copy buffer needs `done`, to tell when the data may go");

    /* The event's handle comes first: once the plugin reads `data`, somebody must wait for it. */
    pjrt_event *event = NULL;
    if (done != NULL)
        PJRT_TRY(pjrt__event_wrap(device->client, NULL, &event));
    ARGS(PJRT_Client_BufferFromHostBuffer_Args, call, plugin);
    call.a.client = device->client->raw;
    call.a.data = data;
    call.a.type = (PJRT_Buffer_Type)type;
    call.a.dims = shape.dims;
    call.a.num_dims = (size_t)rank;
    call.a.byte_strides = options->byte_strides;
    call.a.num_byte_strides = options->byte_strides == NULL ? 0 : (size_t)rank;
    call.a.host_buffer_semantics = semantics[options->host_memory];
    call.a.device = device->raw;
    call.a.memory = memory;
    pjrt_status *st = CALL(plugin, PJRT_Client_BufferFromHostBuffer, call);
    if (st == NULL && event != NULL) {
        event->raw = call.a.done_with_host_buffer;
    } else if (st == NULL) {
        st = pjrt__event_finish(plugin, call.a.done_with_host_buffer);
        if (st != NULL)
            pjrt__buffer_destroy_raw(plugin, call.a.buffer);
    }
    if (st == NULL) {
        st = pjrt__buffer_wrap(device, call.a.buffer, &shape, out);
        if (st != NULL && event != NULL) /* only then is the host memory the caller's again */
            pjrt_status_free(pjrt_event_wait(event));
    }
    if (st != NULL)
        pjrt_event_free(event);
    else if (done != NULL)
        *done = event;
    return st;
}

pjrt_status *pjrt_buffer_uninitialized(pjrt_device *device, const pjrt_shape *shape,
                                       pjrt_buffer **out)
{
    pjrt_shape checked;
    *out = NULL;
    PJRT_TRY(
        check_shape("pjrt_buffer_uninitialized", shape->type, shape->dims, shape->rank, &checked));
    ARGS(PJRT_Client_CreateUninitializedBuffer_Args, call, device->client->plugin);
    call.a.client = device->client->raw;
    call.a.shape_dims = checked.dims;
    call.a.shape_num_dims = (size_t)checked.rank;
    call.a.shape_element_type = (PJRT_Buffer_Type)checked.type;
    call.a.device = device->raw;
    PJRT_TRY(CALL(device->client->plugin, PJRT_Client_CreateUninitializedBuffer, call));
    return pjrt__buffer_wrap(device, call.a.buffer, &checked, out);
}

pjrt_status *pjrt_buffer_to_host(pjrt_buffer *buffer, void *data, size_t size, pjrt_event **done)
{
    pjrt_plugin *plugin = buffer->client->plugin;
    int rank = buffer->shape.rank;
    if (done != NULL)
        *done = NULL;
    PJRT_TRY(check_alive(buffer, "pjrt_buffer_to_host"));
    char text[PJRT_SHAPE_TEXT];
    if ((int64_t)size != pjrt_shape_bytes(&buffer->shape))
        return PJRT_FAIL(INVALID_ARGUMENT, "pjrt_buffer_to_host", "%s has %lld bytes, not %zu",
                         pjrt_shape_text(&buffer->shape, text),
                         (long long)pjrt_shape_bytes(&buffer->shape), size);
    /* Without a layout the plugin answers in the order the device happens to use. */
    int64_t minor_to_major[PJRT_MAX_RANK];
    for (int i = 0; i < rank; i++)
        minor_to_major[i] = rank - 1 - i;
    PJRT_Buffer_MemoryLayout layout = {.struct_size = PJRT_Buffer_MemoryLayout_STRUCT_SIZE,
                                       .type = PJRT_Buffer_MemoryLayout_Type_Tiled};
    layout.tiled.struct_size = PJRT_Buffer_MemoryLayout_Tiled_STRUCT_SIZE;
    layout.tiled.minor_to_major = minor_to_major;
    layout.tiled.minor_to_major_size = (size_t)rank;

    /* As above: no event may get lost while the plugin writes to `data`. */
    pjrt_event *event = NULL;
    if (done != NULL)
        PJRT_TRY(pjrt__event_wrap(buffer->client, NULL, &event));
    char nothing;
    ARGS(PJRT_Buffer_ToHostBuffer_Args, call, plugin);
    call.a.src = buffer->raw;
    call.a.host_layout = &layout;
    call.a.dst = size == 0 ? &nothing : data; /* NULL would mean: only tell the size */
    call.a.dst_size = size;
    pjrt_status *st = CALL(plugin, PJRT_Buffer_ToHostBuffer, call);
    if (st != NULL) {
        pjrt_event_free(event);
        return st;
    }
    if (event == NULL)
        return pjrt__event_finish(plugin, call.a.event);
    event->raw = call.a.event;
    *done = event;
    return NULL;
}

pjrt_status *pjrt_buffer_copy_to(pjrt_buffer *buffer, pjrt_device *device, pjrt_buffer **out)
{
    *out = NULL;
    PJRT_TRY(check_alive(buffer, "pjrt_buffer_copy_to"));
    if (device->client != buffer->client)
        return PJRT_FAIL(INVALID_ARGUMENT, "pjrt_buffer_copy_to",
                         "the device belongs to another client: copy through the host");
    ARGS(PJRT_Buffer_CopyToDevice_Args, call, buffer->client->plugin);
    call.a.buffer = buffer->raw;
    call.a.dst_device = device->raw;
    PJRT_TRY(CALL(buffer->client->plugin, PJRT_Buffer_CopyToDevice, call));
    return pjrt__buffer_wrap(device, call.a.dst_buffer, &buffer->shape, out);
}

pjrt_status *pjrt_buffer_ready(pjrt_buffer *buffer, pjrt_event **out)
{
    *out = NULL;
    PJRT_TRY(check_alive(buffer, "pjrt_buffer_ready"));
    ARGS(PJRT_Buffer_ReadyEvent_Args, call, buffer->client->plugin);
    call.a.buffer = buffer->raw;
    PJRT_TRY(CALL(buffer->client->plugin, PJRT_Buffer_ReadyEvent, call));
    return pjrt__event_wrap(buffer->client, call.a.event, out);
}

const pjrt_shape *pjrt_buffer_shape(const pjrt_buffer *buffer)
{
    return &buffer->shape;
}

pjrt_device *pjrt_buffer_device(const pjrt_buffer *buffer)
{
    return buffer->device;
}

pjrt_status *pjrt_buffer_device_bytes(const pjrt_buffer *buffer, size_t *out)
{
    *out = 0;
    PJRT_TRY(check_alive(buffer, "pjrt_buffer_device_bytes"));
    ARGS(PJRT_Buffer_OnDeviceSizeInBytes_Args, call, buffer->client->plugin);
    call.a.buffer = buffer->raw;
    PJRT_TRY(CALL(buffer->client->plugin, PJRT_Buffer_OnDeviceSizeInBytes, call));
    *out = call.a.on_device_size_in_bytes;
    return NULL;
}

bool pjrt_buffer_is_dead(const pjrt_buffer *buffer)
{
    return atomic_load_explicit(&buffer->dead, memory_order_acquire);
}

pjrt_status *pjrt_buffer_delete(pjrt_buffer *buffer)
{
    if (atomic_exchange(&buffer->dead, true))
        return NULL;
    ARGS(PJRT_Buffer_Delete_Args, call, buffer->client->plugin);
    call.a.buffer = buffer->raw;
    return CALL(buffer->client->plugin, PJRT_Buffer_Delete, call);
}

void pjrt_buffer_free(pjrt_buffer *buffer)
{
    if (buffer == NULL)
        return;
    pjrt__buffer_destroy_raw(buffer->client->plugin, buffer->raw);
    pjrt__client_unref(buffer->client);
    free(buffer);
}
