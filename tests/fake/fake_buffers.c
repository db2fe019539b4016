/* The fake plugin's arrays: bytes on the heap, or the host's own when copying is not wanted. */
#include "tests/fake/fake_internal.h"

#include <stdlib.h>
#include <string.h>

size_t fake_shape_bytes(const fake_shape *shape)
{
    static const unsigned char sizes[] = {0, 1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 4, 8, 2, 8, 16};
    size_t bytes = sizes[shape->type];
    for (int i = 0; i < shape->rank; i++)
        bytes *= (size_t)shape->dims[i];
    return bytes;
}

PJRT_Buffer *fake_new_buffer(PJRT_Client *client, PJRT_Device *device, const fake_shape *shape)
{
    PJRT_Buffer *buffer = fake_new(FAKE_BUFFER, sizeof *buffer, client);
    buffer->shape = *shape;
    buffer->size = fake_shape_bytes(shape);
    buffer->device = device;
    buffer->data = calloc(buffer->size + 1, 1);
    if (buffer->data == NULL)
        abort();
    return buffer;
}

/* The memory goes, and with it the plugin's hold on the host's. */
void fake_delete_buffer(PJRT_Buffer *buffer)
{
    if (!buffer->zero_copy)
        free(buffer->data);
    buffer->data = NULL;
    buffer->deleted = true;
    if (buffer->host_done != NULL) {
        buffer->host_done->to = NULL; /* a transfer under way has nowhere to go any more */
        if (buffer->zero_copy)
            fake_complete_event(buffer->host_done);
    }
    buffer->host_done = NULL;
}

/* A dead buffer may be destroyed and asked whether it is dead, no more. */
static bool usable(PJRT_Buffer *buffer, const char *entry)
{
    if (!fake_use(buffer, FAKE_BUFFER, entry))
        return false;
    if (buffer->deleted)
        fake_violation("%s: the buffer was donated or deleted", entry);
    return !buffer->deleted;
}

static fake_shape shape_of(PJRT_Buffer_Type type, const int64_t *dims, size_t rank)
{
    fake_shape shape = {.type = type, .rank = (int)rank};
    for (size_t i = 0; i < rank && i < FAKE_MAX_RANK; i++)
        shape.dims[i] = dims[i];
    return shape;
}

/* Gathers a strided host array; dense when there are no strides. */
static void gather(char *to, const char *from, const fake_shape *shape, const int64_t *strides,
                   int dim, size_t element, size_t *offset)
{
    if (dim == shape->rank) {
        memcpy(to + *offset, from, element);
        *offset += element;
        return;
    }
    for (int64_t i = 0; i < shape->dims[dim]; i++)
        gather(to, from + i * strides[dim], shape, strides, dim + 1, element, offset);
}

static void see_upload(const PJRT_Client_BufferFromHostBuffer_Args *args)
{
    fake_seen *seen = &fake.seen;
    seen->semantics = args->host_buffer_semantics;
    seen->n_byte_strides = args->num_byte_strides;
    for (size_t i = 0; i < args->num_byte_strides; i++)
        seen->byte_strides[i] = args->byte_strides[i];
    seen->memory = args->memory == NULL ? -1 : (int)(args->memory - args->device->memories);
}

static PJRT_Error *from_host(PJRT_Client_BufferFromHostBuffer_Args *args)
{
    FAKE_ENTER(PJRT_Client_BufferFromHostBuffer, args);
    fake_use(args->client, FAKE_CLIENT, "PJRT_Client_BufferFromHostBuffer");
    see_upload(args);
    fake_shape shape = shape_of(args->type, args->dims, args->num_dims);
    PJRT_Buffer *buffer = fake_new_buffer(args->client, args->device, &shape);
    bool only_now =
        args->host_buffer_semantics == PJRT_HostBufferSemantics_kImmutableOnlyDuringCall;
    bool zero_copy = args->host_buffer_semantics == PJRT_HostBufferSemantics_kImmutableZeroCopy;
    PJRT_Event *event = fake_new_event(args->client, zero_copy || (fake.deferred && !only_now));
    event->transfer = !only_now;
    buffer->host_done = event->pending ? event : NULL;
    if (zero_copy) {
        free(buffer->data);
        buffer->data = (char *)args->data; /* never written to */
        buffer->zero_copy = true;
    } else if (args->num_byte_strides > 0) {
        fake_shape one = {.type = shape.type};
        size_t offset = 0;
        gather(buffer->data, args->data, &shape, args->byte_strides, 0, fake_shape_bytes(&one),
               &offset);
    } else if (event->pending) {
        event->to = buffer->data;
        event->from = args->data;
        event->size = buffer->size;
    } else if (buffer->size > 0) {
        memcpy(buffer->data, args->data, buffer->size);
    }
    args->buffer = buffer;
    args->done_with_host_buffer = event;
    return NULL;
}

static PJRT_Error *uninitialized(PJRT_Client_CreateUninitializedBuffer_Args *args)
{
    FAKE_ENTER(PJRT_Client_CreateUninitializedBuffer, args);
    fake_use(args->client, FAKE_CLIENT, "PJRT_Client_CreateUninitializedBuffer");
    fake_shape shape = shape_of(args->shape_element_type, args->shape_dims, args->shape_num_dims);
    args->buffer = fake_new_buffer(args->client, args->device, &shape);
    return NULL;
}

static PJRT_Error *to_host(PJRT_Buffer_ToHostBuffer_Args *args)
{
    FAKE_ENTER(PJRT_Buffer_ToHostBuffer, args);
    if (!usable(args->src, "PJRT_Buffer_ToHostBuffer"))
        return fake_make_error(PJRT_Error_Code_INVALID_ARGUMENT, "the buffer is deleted");
    fake_seen *seen = &fake.seen;
    seen->host_layout_given = args->host_layout != NULL;
    if (args->host_layout != NULL) {
        const PJRT_Buffer_MemoryLayout_Tiled *tiled = &args->host_layout->tiled;
        if (args->host_layout->struct_size != PJRT_Buffer_MemoryLayout_STRUCT_SIZE ||
            args->host_layout->type != PJRT_Buffer_MemoryLayout_Type_Tiled)
            fake_violation("PJRT_Buffer_ToHostBuffer: not a tiled layout");
        seen->n_minor_to_major = tiled->minor_to_major_size;
        seen->n_tiles = tiled->num_tiles;
        for (size_t i = 0; i < tiled->minor_to_major_size; i++)
            seen->minor_to_major[i] = tiled->minor_to_major[i];
    }
    if (args->dst == NULL) { /* only the size is asked for, and there is no event then */
        args->dst_size = args->src->size;
        return NULL;
    }
    if (args->dst_size < args->src->size)
        return fake_make_error(PJRT_Error_Code_INVALID_ARGUMENT, "dst_size is too small");
    PJRT_Event *event = fake_new_event(args->src->base.client, fake.deferred);
    event->transfer = true;
    event->copy = malloc(args->src->size + 1);
    if (event->copy == NULL)
        abort();
    memcpy(event->copy, args->src->data, args->src->size);
    event->from = event->copy;
    event->to = args->dst;
    event->size = args->src->size;
    if (!fake.deferred && event->size > 0)
        memcpy(event->to, event->from, event->size);
    args->event = event;
    return NULL;
}

static PJRT_Error *copy_to_device(PJRT_Buffer_CopyToDevice_Args *args)
{
    FAKE_ENTER(PJRT_Buffer_CopyToDevice, args);
    if (!usable(args->buffer, "PJRT_Buffer_CopyToDevice"))
        return fake_make_error(PJRT_Error_Code_INVALID_ARGUMENT, "the buffer is deleted");
    PJRT_Buffer *from = args->buffer;
    args->dst_buffer = fake_new_buffer(from->base.client, args->dst_device, &from->shape);
    memcpy(args->dst_buffer->data, from->data, from->size);
    return NULL;
}

static PJRT_Error *ready_event(PJRT_Buffer_ReadyEvent_Args *args)
{
    FAKE_ENTER(PJRT_Buffer_ReadyEvent, args);
    if (usable(args->buffer, "PJRT_Buffer_ReadyEvent"))
        args->event = fake_new_event(args->buffer->base.client, fake.deferred);
    return NULL;
}

static PJRT_Error *device_size(PJRT_Buffer_OnDeviceSizeInBytes_Args *args)
{
    FAKE_ENTER(PJRT_Buffer_OnDeviceSizeInBytes, args);
    if (usable(args->buffer, "PJRT_Buffer_OnDeviceSizeInBytes"))
        args->on_device_size_in_bytes = (args->buffer->size + 511) / 512 * 512;
    return NULL;
}

static PJRT_Error *delete (PJRT_Buffer_Delete_Args *args)
{
    FAKE_ENTER(PJRT_Buffer_Delete, args);
    if (usable(args->buffer, "PJRT_Buffer_Delete"))
        fake_delete_buffer(args->buffer);
    return NULL;
}

static PJRT_Error *is_deleted(PJRT_Buffer_IsDeleted_Args *args)
{
    FAKE_ENTER(PJRT_Buffer_IsDeleted, args);
    if (fake_use(args->buffer, FAKE_BUFFER, "PJRT_Buffer_IsDeleted"))
        args->is_deleted = args->buffer->deleted;
    return NULL;
}

static PJRT_Error *destroy(PJRT_Buffer_Destroy_Args *args)
{
    FAKE_SCOPE;
    PJRT_Error *error = FAKE_TRY_ENTER(PJRT_Buffer_Destroy, args);
    if (fake_destroy(args->buffer, FAKE_BUFFER, "PJRT_Buffer_Destroy") && !args->buffer->deleted)
        fake_delete_buffer(args->buffer);
    return error;
}

void fake_fill_buffers(PJRT_Api *api)
{
    api->PJRT_Client_BufferFromHostBuffer = from_host;
    api->PJRT_Client_CreateUninitializedBuffer = uninitialized;
    api->PJRT_Buffer_ToHostBuffer = to_host;
    api->PJRT_Buffer_CopyToDevice = copy_to_device;
    api->PJRT_Buffer_ReadyEvent = ready_event;
    api->PJRT_Buffer_OnDeviceSizeInBytes = device_size;
    api->PJRT_Buffer_Delete = delete;
    api->PJRT_Buffer_IsDeleted = is_deleted;
    api->PJRT_Buffer_Destroy = destroy;
}
