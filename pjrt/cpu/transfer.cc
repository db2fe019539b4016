/*
 * Asynchronous transfers from the host: buffers that can be handed on before their data is there.
 * The transfer manager of XLA trusts its caller; this one counts what was asked of each buffer and
 * refuses what XLA would answer by ending the process.
 */
#include "plugin.h"

#include "xla/literal.h"

struct PJRT_AsyncHostToDeviceTransferManager {
    struct Slot {
        xla::Shape shape;
        bool retrieved = false;
        bool finished = false;
    };
    std::unique_ptr<xla::PjRtClient::AsyncHostToDeviceTransferManager> manager;
    PJRT_Client *client = nullptr;
    std::mutex mutex;
    std::vector<Slot> slots;
};

namespace pjrt_cpu
{

namespace
{

using Manager = PJRT_AsyncHostToDeviceTransferManager;

absl::Status CheckIndex(const Manager *manager, int index)
{
    if (index >= 0 && static_cast<size_t>(index) < manager->slots.size())
        return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("buffer index ", index, " of a manager with ",
                                                   manager->slots.size(), " buffers"));
}

/* Marks the slot as finished when this is its last transfer. */
absl::Status Claim(Manager *manager, int index, bool last)
{
    std::lock_guard<std::mutex> lock(manager->mutex);
    Manager::Slot &slot = manager->slots[index];
    if (slot.finished)
        return absl::FailedPreconditionError(
            absl::StrCat("buffer ", index, " has already had its last transfer or its error"));
    slot.finished = last;
    return absl::OkStatus();
}

} // namespace

absl::Status
Client_CreateBuffersForAsyncHostToDevice(PJRT_Client_CreateBuffersForAsyncHostToDevice_Args *args)
{
    PJRT_CPU_NEED(args, client);
    PJRT_CPU_NEED(args, memory);
    if (args->num_shape_specs == 0 || args->shape_specs == nullptr)
        return absl::InvalidArgumentError("no shapes were given");
    if (args->num_device_layouts != 0 &&
        (args->num_device_layouts != args->num_shape_specs || args->device_layouts == nullptr))
        return absl::InvalidArgumentError(absl::StrCat(args->num_device_layouts, " layouts for ",
                                                       args->num_shape_specs, " shapes"));
    PJRT_CPU_ASSIGN(xla::PjRtMemorySpace * memory, PickMemory(args->client, nullptr, args->memory));
    auto out = std::make_unique<Manager>();
    out->client = args->client;
    std::vector<xla::PjRtClient::ShapeSpec> specs;
    std::vector<std::optional<xla::Layout>> layouts;
    for (size_t i = 0; i < args->num_shape_specs; i++) {
        const PJRT_ShapeSpec &spec = args->shape_specs[i];
        const PJRT_Buffer_MemoryLayout *layout =
            args->num_device_layouts != 0 ? args->device_layouts[i] : nullptr;
        PJRT_CPU_ASSIGN(xla::Shape shape,
                        ToShape(spec.element_type, spec.dims, spec.num_dims, layout));
        specs.push_back({shape.element_type(), xla::DimensionVector(shape.dimensions().begin(),
                                                                    shape.dimensions().end())});
        layouts.push_back(layout != nullptr ? std::optional<xla::Layout>(shape.layout())
                                            : std::nullopt);
        out->slots.push_back({std::move(shape)});
    }
    std::optional<absl::Span<const std::optional<xla::Layout>>> layout_span;
    if (args->num_device_layouts != 0)
        layout_span = absl::MakeConstSpan(layouts);
    PJRT_CPU_ASSIGN(out->manager, args->client->client->CreateBuffersForAsyncHostToDevice(
                                      specs, layout_span, memory));
    args->transfer_manager = out.release();
    return absl::OkStatus();
}

absl::Status
AsyncHostToDeviceTransferManager_Destroy(PJRT_AsyncHostToDeviceTransferManager_Destroy_Args *args)
{
    Manager *manager = args->transfer_manager;
    if (manager == nullptr)
        return absl::OkStatus();
    /* A buffer that was handed out and never filled would be waited for without end. */
    for (size_t i = 0; i < manager->slots.size(); i++) {
        if (!manager->slots[i].finished)
            manager->manager->SetBufferError(
                static_cast<int>(i),
                absl::CancelledError(
                    "the transfer manager was destroyed before the last transfer"));
    }
    delete manager;
    return absl::OkStatus();
}

absl::Status AsyncHostToDeviceTransferManager_TransferData(
    PJRT_AsyncHostToDeviceTransferManager_TransferData_Args *args)
{
    PJRT_CPU_NEED(args, transfer_manager);
    Manager *manager = args->transfer_manager;
    PJRT_CPU_RETURN(CheckIndex(manager, args->buffer_index));
    uint64_t size = manager->manager->buffer_size(args->buffer_index);
    if (args->offset < 0 || args->transfer_size < 0 || static_cast<uint64_t>(args->offset) > size ||
        static_cast<uint64_t>(args->transfer_size) > size - static_cast<uint64_t>(args->offset))
        return absl::InvalidArgumentError(absl::StrCat("a transfer of ", args->transfer_size,
                                                       " bytes at ", args->offset,
                                                       " does not fit a buffer of ", size));
    if (args->data == nullptr && args->transfer_size > 0)
        return absl::InvalidArgumentError("TransferData: data is NULL");
    PJRT_CPU_RETURN(Claim(manager, args->buffer_index, args->is_last_transfer));
    auto [promise, future] = xla::MakePromise<>();
    std::unique_ptr<PJRT_Event> event(NewEvent(std::move(future)));
    PJRT_CPU_RETURN(manager->manager->TransferRawDataToSubBuffer(
        args->buffer_index, args->data, args->offset, args->transfer_size, args->is_last_transfer,
        [promise = std::move(promise)]() mutable { promise.Set(); }));
    args->done_with_h2d_transfer = event.release();
    return absl::OkStatus();
}

absl::Status AsyncHostToDeviceTransferManager_TransferLiteral(
    PJRT_AsyncHostToDeviceTransferManager_TransferLiteral_Args *args)
{
    PJRT_CPU_NEED(args, transfer_manager);
    Manager *manager = args->transfer_manager;
    PJRT_CPU_RETURN(CheckIndex(manager, args->buffer_index));
    PJRT_CPU_ASSIGN(xla::Shape shape, ToShape(args->shape_element_type, args->shape_dims,
                                              args->shape_num_dims, args->shape_layout));
    const xla::Shape &wanted = manager->slots[args->buffer_index].shape;
    if (!xla::ShapeUtil::Compatible(shape, wanted))
        return absl::InvalidArgumentError(
            absl::StrCat("the literal is ", shape.ToString(), ", the buffer ", wanted.ToString()));
    if (args->data == nullptr && !xla::ShapeUtil::IsZeroElementArray(shape))
        return absl::InvalidArgumentError("TransferLiteral: data is NULL");
    PJRT_CPU_RETURN(Claim(manager, args->buffer_index, true));
    /* XLA copies the literal as it lies; it must lie as the buffer wants it. */
    xla::BorrowingLiteral given(static_cast<const char *>(args->data), shape);
    auto literal = std::make_unique<xla::Literal>(wanted);
    PJRT_CPU_RETURN(literal->CopyFrom(given));
    xla::LiteralSlice slice(*literal);
    auto [promise, future] = xla::MakePromise<>();
    std::unique_ptr<PJRT_Event> event(NewEvent(std::move(future)));
    PJRT_CPU_RETURN(manager->manager->TransferLiteralToBuffer(
        args->buffer_index, slice,
        [promise = std::move(promise), literal = std::move(literal)]() mutable { promise.Set(); }));
    args->done_with_h2d_transfer = event.release();
    return absl::OkStatus();
}

absl::Status AsyncHostToDeviceTransferManager_RetrieveBuffer(
    PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args *args)
{
    PJRT_CPU_NEED(args, transfer_manager);
    Manager *manager = args->transfer_manager;
    PJRT_CPU_RETURN(CheckIndex(manager, args->buffer_index));
    {
        std::lock_guard<std::mutex> lock(manager->mutex);
        if (manager->slots[args->buffer_index].retrieved)
            return absl::FailedPreconditionError(
                absl::StrCat("buffer ", args->buffer_index, " was already retrieved"));
        manager->slots[args->buffer_index].retrieved = true;
    }
    args->buffer_out =
        NewBuffer(manager->manager->RetrieveBuffer(args->buffer_index), manager->client);
    return absl::OkStatus();
}

absl::Status
AsyncHostToDeviceTransferManager_Device(PJRT_AsyncHostToDeviceTransferManager_Device_Args *args)
{
    PJRT_CPU_NEED(args, transfer_manager);
    Manager *manager = args->transfer_manager;
    args->device_out = manager->client->Find(manager->manager->device());
    return absl::OkStatus();
}

absl::Status AsyncHostToDeviceTransferManager_BufferCount(
    PJRT_AsyncHostToDeviceTransferManager_BufferCount_Args *args)
{
    PJRT_CPU_NEED(args, transfer_manager);
    args->buffer_count = args->transfer_manager->slots.size();
    return absl::OkStatus();
}

absl::Status AsyncHostToDeviceTransferManager_BufferSize(
    PJRT_AsyncHostToDeviceTransferManager_BufferSize_Args *args)
{
    PJRT_CPU_NEED(args, transfer_manager);
    PJRT_CPU_RETURN(CheckIndex(args->transfer_manager, args->buffer_index));
    args->buffer_size = args->transfer_manager->manager->buffer_size(args->buffer_index);
    return absl::OkStatus();
}

absl::Status AsyncHostToDeviceTransferManager_SetBufferError(
    PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args *args)
{
    PJRT_CPU_NEED(args, transfer_manager);
    PJRT_CPU_RETURN(CheckIndex(args->transfer_manager, args->buffer_index));
    if (args->error_code == PJRT_Error_Code_OK)
        return absl::InvalidArgumentError("SetBufferError needs an error, not OK");
    absl::Status error = FromCode(args->error_code, args->error_message, args->error_message_size);
    PJRT_CPU_RETURN(Claim(args->transfer_manager, args->buffer_index, true));
    args->transfer_manager->manager->SetBufferError(args->buffer_index, std::move(error));
    return absl::OkStatus();
}

absl::Status AsyncHostToDeviceTransferManager_AddMetadata(
    PJRT_AsyncHostToDeviceTransferManager_AddMetadata_Args *args)
{
    PJRT_CPU_NEED(args, transfer_manager);
    return absl::UnimplementedError("XLA's CPU transfers keep no metadata; log it on your side");
}

/* Streams into a running program belong to Recv callbacks, which the CPU has not. */
namespace
{

absl::Status NoStreams()
{
    return absl::UnimplementedError(
        "XLA's CPU client has no send and receive callbacks, so there are no device streams");
}

} // namespace

absl::Status CopyToDeviceStream_Destroy(PJRT_CopyToDeviceStream_Destroy_Args *args)
{
    return args->stream == nullptr ? absl::OkStatus() : NoStreams();
}

absl::Status CopyToDeviceStream_AddChunk(PJRT_CopyToDeviceStream_AddChunk_Args *)
{
    return NoStreams();
}

absl::Status CopyToDeviceStream_TotalBytes(PJRT_CopyToDeviceStream_TotalBytes_Args *)
{
    return NoStreams();
}

absl::Status CopyToDeviceStream_GranuleSize(PJRT_CopyToDeviceStream_GranuleSize_Args *)
{
    return NoStreams();
}

absl::Status CopyToDeviceStream_CurrentBytes(PJRT_CopyToDeviceStream_CurrentBytes_Args *)
{
    return NoStreams();
}

} // namespace pjrt_cpu
