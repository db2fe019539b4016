/*
 * Making buffers: from host memory, over memory of somebody else, uninitialised, failed, promised.
 */
#include "plugin.h"

#include "xla/layout_util.h"
#include "xla/primitive_util.h"

namespace pjrt_cpu
{

absl::StatusOr<xla::PjRtMemorySpace *>
PickMemory(const PJRT_Client *client, const PJRT_Device *device, const PJRT_Memory *memory)
{
    if (memory != nullptr) {
        if (memory->client != client)
            return absl::InvalidArgumentError("the memory belongs to another client");
        return memory->memory;
    }
    if (device == nullptr)
        return absl::InvalidArgumentError("neither a device nor a memory was given");
    if (device->client != client)
        return absl::InvalidArgumentError("the device belongs to another client");
    if (device->default_memory == nullptr)
        return absl::InvalidArgumentError("the device belongs to another process");
    return device->default_memory->memory;
}

namespace
{

using Semantics = xla::PjRtClient::HostBufferSemantics;

absl::StatusOr<Semantics> ToSemantics(PJRT_HostBufferSemantics semantics)
{
    switch (semantics) {
    case PJRT_HostBufferSemantics_kImmutableOnlyDuringCall:
        return Semantics::kImmutableOnlyDuringCall;
    case PJRT_HostBufferSemantics_kImmutableUntilTransferCompletes:
        return Semantics::kImmutableUntilTransferCompletes;
    case PJRT_HostBufferSemantics_kImmutableZeroCopy:
        return Semantics::kImmutableZeroCopy;
    case PJRT_HostBufferSemantics_kMutableZeroCopy:
        return Semantics::kMutableZeroCopy;
    }
    return absl::InvalidArgumentError(
        absl::StrCat("host buffer semantics ", static_cast<int>(semantics), " are not known"));
}

bool IsRowMajor(const xla::Shape &shape)
{
    return xla::LayoutUtil::IsMonotonicWithDim0Major(shape.layout());
}

/* The host's elements in the order of the shape's layout. */
std::unique_ptr<std::string> Gather(const char *data, const xla::Shape &shape,
                                    std::optional<absl::Span<const int64_t>> byte_strides)
{
    const int64_t width = xla::primitive_util::ByteWidth(shape.element_type());
    const size_t rank = shape.dimensions().size();
    absl::InlinedVector<int64_t, 8> strides(rank), index(rank, 0);
    int64_t dense = width;
    for (size_t i = rank; i-- > 0;) {
        strides[i] = byte_strides.has_value() ? (*byte_strides)[i] : dense;
        dense *= shape.dimensions(i);
    }
    const int64_t count = xla::ShapeUtil::ElementsIn(shape);
    auto out = std::make_unique<std::string>(count * width, '\0');
    for (int64_t n = 0; n < count; n++) {
        int64_t offset = 0;
        for (size_t i = 0; i < rank; i++)
            offset += index[i] * strides[i];
        std::memcpy(out->data() + n * width, data + offset, width);
        for (int64_t dim : shape.layout().minor_to_major()) {
            if (++index[dim] < shape.dimensions(dim))
                break;
            index[dim] = 0;
        }
    }
    return out;
}

/* XLA's CPU client takes a device layout but writes row-major all the same. Any other order is made
 * here, and goes in as raw bytes. */
absl::StatusOr<std::unique_ptr<xla::PjRtBuffer>>
TransferReordered(xla::PjRtClient *client, const void *data, const xla::Shape &shape,
                  std::optional<absl::Span<const int64_t>> strides, xla::PjRtMemorySpace *memory)
{
    if (xla::primitive_util::IsSubByteNonPredType(shape.element_type()))
        return absl::UnimplementedError(
            "types smaller than a byte can be transferred in row-major order only");
    xla::PjRtClient::ShapeSpec spec{
        shape.element_type(),
        xla::DimensionVector(shape.dimensions().begin(), shape.dimensions().end())};
    std::vector<std::optional<xla::Layout>> layouts = {shape.layout()};
    PJRT_CPU_ASSIGN(auto manager,
                    client->CreateBuffersForAsyncHostToDevice(
                        {spec}, absl::Span<const std::optional<xla::Layout>>(layouts), memory));
    std::unique_ptr<xla::PjRtBuffer> buffer = manager->RetrieveBuffer(0);
    auto bytes = Gather(static_cast<const char *>(data), shape, strides);
    absl::string_view view(*bytes);
    PJRT_CPU_RETURN(
        manager->TransferRawDataToBuffer(0, view, [bytes = std::move(bytes)]() mutable {}));
    return buffer;
}

} // namespace

absl::Status Client_BufferFromHostBuffer(PJRT_Client_BufferFromHostBuffer_Args *args)
{
    PJRT_CPU_NEED(args, client);
    PJRT_CPU_ASSIGN(xla::Shape shape,
                    ToShape(args->type, args->dims, args->num_dims, args->device_layout));
    PJRT_CPU_ASSIGN(Semantics semantics, ToSemantics(args->host_buffer_semantics));
    PJRT_CPU_ASSIGN(xla::PjRtMemorySpace * memory,
                    PickMemory(args->client, args->device, args->memory));
    if (args->data == nullptr && !xla::ShapeUtil::IsZeroElementArray(shape))
        return absl::InvalidArgumentError("Client_BufferFromHostBuffer: data is NULL");
    std::optional<absl::Span<const int64_t>> strides;
    if (args->num_byte_strides != 0) {
        if (args->num_byte_strides != args->num_dims || args->byte_strides == nullptr)
            return absl::InvalidArgumentError(
                absl::StrCat("byte_strides has ", args->num_byte_strides,
                             " entries, the array has ", args->num_dims, " dimensions"));
        strides = absl::Span<const int64_t>(args->byte_strides, args->num_byte_strides);
    }
    if (!IsRowMajor(shape)) {
        PJRT_CPU_ASSIGN(
            std::unique_ptr<xla::PjRtBuffer> buffer,
            TransferReordered(args->client->client.get(), args->data, shape, strides, memory));
        std::unique_ptr<PJRT_Event> done(NewReadyEvent());
        args->buffer = NewBuffer(std::move(buffer), args->client);
        args->done_with_host_buffer = done.release();
        return absl::OkStatus();
    }

    /* During-call semantics are done when the call returns; everything else says so later. */
    std::unique_ptr<PJRT_Event> event;
    absl::AnyInvocable<void() &&> on_done;
    if (semantics == Semantics::kImmutableOnlyDuringCall) {
        event.reset(NewReadyEvent());
    } else {
        auto [promise, future] = xla::MakePromise<>();
        event.reset(NewEvent(std::move(future)));
        on_done = [promise = std::move(promise)]() mutable { promise.Set(); };
    }
    PJRT_CPU_ASSIGN(std::unique_ptr<xla::PjRtBuffer> buffer,
                    args->client->client->BufferFromHostBuffer(
                        args->data, shape.element_type(), shape.dimensions(), strides, semantics,
                        std::move(on_done), memory, nullptr));
    args->buffer = NewBuffer(std::move(buffer), args->client);
    args->done_with_host_buffer = event.release();
    return absl::OkStatus();
}

absl::Status Client_CreateViewOfDeviceBuffer(PJRT_Client_CreateViewOfDeviceBuffer_Args *args)
{
    PJRT_CPU_NEED(args, client);
    PJRT_CPU_ASSIGN(xla::Shape shape,
                    ToShape(args->element_type, args->dims, args->num_dims, args->layout));
    const PJRT_Memory *given = nullptr;
    if (PJRT_CPU_HAS(args, PJRT_Client_CreateViewOfDeviceBuffer_Args, memory))
        given = args->memory;
    PJRT_CPU_ASSIGN(xla::PjRtMemorySpace * memory, PickMemory(args->client, args->device, given));
    if (args->device_buffer_ptr == nullptr && !xla::ShapeUtil::IsZeroElementArray(shape))
        return absl::InvalidArgumentError("CreateViewOfDeviceBuffer: device_buffer_ptr is NULL");
    if (args->stream != 0)
        return absl::UnimplementedError("the CPU has no streams; pass 0");
    std::function<void()> on_delete;
    if (args->on_delete_callback != nullptr) {
        on_delete = [callback = args->on_delete_callback, pointer = args->device_buffer_ptr,
                     user_arg = args->on_delete_callback_arg] { callback(pointer, user_arg); };
    }
    PJRT_CPU_ASSIGN(std::unique_ptr<xla::PjRtBuffer> buffer,
                    args->client->client->CreateViewOfDeviceBuffer(args->device_buffer_ptr, shape,
                                                                   memory, std::move(on_delete),
                                                                   std::nullopt));
    args->buffer = NewBuffer(std::move(buffer), args->client);
    return absl::OkStatus();
}

absl::Status Client_CreateUninitializedBuffer(PJRT_Client_CreateUninitializedBuffer_Args *args)
{
    PJRT_CPU_NEED(args, client);
    PJRT_CPU_ASSIGN(xla::Shape shape, ToShape(args->shape_element_type, args->shape_dims,
                                              args->shape_num_dims, args->shape_layout));
    PJRT_CPU_ASSIGN(xla::PjRtMemorySpace * memory,
                    PickMemory(args->client, args->device, args->memory));
    PJRT_CPU_ASSIGN(std::unique_ptr<xla::PjRtBuffer> buffer,
                    args->client->client->CreateUninitializedBuffer(shape, memory));
    args->buffer = NewBuffer(std::move(buffer), args->client);
    return absl::OkStatus();
}

absl::Status Client_CreateErrorBuffer(PJRT_Client_CreateErrorBuffer_Args *args)
{
    PJRT_CPU_NEED(args, client);
    if (args->error_code == PJRT_Error_Code_OK)
        return absl::InvalidArgumentError("an error buffer needs an error, not OK");
    PJRT_CPU_ASSIGN(xla::Shape shape, ToShape(args->shape_element_type, args->shape_dims,
                                              args->shape_num_dims, args->shape_layout));
    PJRT_CPU_ASSIGN(xla::PjRtMemorySpace * memory, PickMemory(args->client, nullptr, args->memory));
    PJRT_CPU_ASSIGN(std::unique_ptr<xla::PjRtBuffer> buffer,
                    args->client->client->CreateErrorBuffer(
                        FromCode(args->error_code, args->error_message, args->error_message_size),
                        shape, memory));
    args->buffer = NewBuffer(std::move(buffer), args->client);
    return absl::OkStatus();
}

absl::Status Client_CreateAliasBuffer(PJRT_Client_CreateAliasBuffer_Args *args)
{
    PJRT_CPU_NEED(args, client);
    PJRT_CPU_ASSIGN(xla::Shape shape, ToShape(args->shape_element_type, args->shape_dims,
                                              args->shape_num_dims, args->shape_layout));
    PJRT_CPU_ASSIGN(xla::PjRtMemorySpace * memory, PickMemory(args->client, nullptr, args->memory));
    PJRT_CPU_ASSIGN(auto made, args->client->client->CreateAliasBuffer(shape, memory));
    auto callback = std::make_unique<PJRT_FulfillAliasBufferCallback>();
    callback->callback = std::move(made.second);
    args->alias_buffer = NewBuffer(std::move(made.first), args->client);
    args->fulfill_alias_buffer_cb = callback.release();
    return absl::OkStatus();
}

absl::Status Client_FulfillAliasBuffer(PJRT_Client_FulfillAliasBuffer_Args *args)
{
    PJRT_CPU_NEED(args, client);
    PJRT_CPU_NEED(args, fulfill_alias_buffer_cb);
    /* The promise can be kept once; the handle is gone after this call whatever it answers. */
    std::unique_ptr<PJRT_FulfillAliasBufferCallback> callback(args->fulfill_alias_buffer_cb);
    if (args->status_code != PJRT_Error_Code_OK) {
        /* XLA answers with the very error it was given; delivering it is a success. */
        callback
            ->callback(FromCode(args->status_code, args->error_message, args->error_message_size))
            .IgnoreError();
        return absl::OkStatus();
    }
    if (args->buffer == nullptr) {
        absl::Status missing = absl::InvalidArgumentError("FulfillAliasBuffer: buffer is NULL");
        callback->callback(missing).IgnoreError();
        return missing;
    }
    return callback->callback(args->buffer->buffer.get());
}

} // namespace pjrt_cpu
