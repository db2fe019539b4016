/*
 * Questions to a buffer, and copies out of it. Buffers are made in buffer_create.cc, by transfers
 * (transfer.cc) and by executions (execute.cc).
 */
#include "plugin.h"

#include "xla/literal.h"

namespace pjrt_cpu
{

namespace
{

/* Up to this size a copy of a ready buffer is made at once by the calling thread: it costs less
 * than handing it to another one. */
constexpr size_t kInlineCopyBytes = 64 * 1024;

/* The shape the host sees: static, with the layout it asked for. */
absl::StatusOr<xla::Shape> HostShape(PJRT_Buffer *src, const PJRT_Buffer_MemoryLayout *layout)
{
    const xla::Shape &device_shape = src->buffer->on_device_shape();
    if (!device_shape.IsArray())
        return absl::InvalidArgumentError("only array buffers can be copied to the host");
    xla::Shape shape = device_shape;
    if (device_shape.is_dynamic()) {
        PJRT_CPU_ASSIGN(shape, src->buffer->logical_on_device_shape());
    }
    /* The literal is dense: XLA widens types below a byte to a byte an element. */
    xla::Layout host = shape.layout();
    host.set_element_size_in_bits(0);
    host.set_memory_space(xla::Layout::kDefaultMemorySpace);
    if (layout != nullptr) {
        PJRT_CPU_ASSIGN(host, ToLayout(*layout, shape.dimensions().size()));
    }
    *shape.mutable_layout() = host;
    return shape;
}

/* Copies a small buffer that is ready and laid out as wanted. False: take the general way. */
bool CopyInline(PJRT_Buffer *src, const xla::Shape &host, size_t size, void *dst)
{
    const xla::Shape &device = src->buffer->on_device_shape();
    if (size > kInlineCopyBytes || device.is_dynamic() ||
        host.layout().minor_to_major() != device.layout().minor_to_major() ||
        device.layout().element_size_in_bits() != 0)
        return false;
    xla::Future<> ready = src->buffer->GetReadyFuture();
    if (!ready.IsReady() || !ready.Await().ok())
        return false;
    auto reference = src->buffer->AcquireExternalReference();
    if (!reference.ok() || (*reference)->OpaqueDeviceMemoryDataPointer() == nullptr)
        return false;
    std::memcpy(dst, (*reference)->OpaqueDeviceMemoryDataPointer(), size);
    return true;
}

/* XLA's CPU buffers are copied as they lie, whatever layout the literal has. Another order of the
 * dimensions is therefore made here, in a second step. */
xla::Future<> CopyReordered(PJRT_Buffer *src,
                            std::unique_ptr<xla::MutableBorrowingLiteral> destination,
                            const xla::Layout &device_layout)
{
    xla::Shape shape = destination->shape();
    *shape.mutable_layout() = xla::Layout(device_layout.minor_to_major());
    auto staged = std::make_unique<xla::Literal>(shape);
    xla::Future<> copied = src->buffer->ToLiteral(staged.get());
    auto [promise, future] = xla::MakePromise<>();
    copied.OnReady([promise = std::move(promise), staged = std::move(staged),
                    destination = std::move(destination)](absl::Status status) mutable {
        promise.Set(status.ok() ? destination->CopyFrom(*staged) : std::move(status));
    });
    return future;
}

} // namespace

PJRT_Buffer *NewBuffer(std::unique_ptr<xla::PjRtBuffer> buffer, PJRT_Client *client)
{
    return new PJRT_Buffer(std::move(buffer), client);
}

absl::Status Buffer_Destroy(PJRT_Buffer_Destroy_Args *args)
{
    delete args->buffer;
    return absl::OkStatus();
}

absl::Status Buffer_ElementType(PJRT_Buffer_ElementType_Args *args)
{
    PJRT_CPU_NEED(args, buffer);
    args->type = FromPrimitiveType(args->buffer->buffer->element_type());
    return absl::OkStatus();
}

absl::Status Buffer_Dimensions(PJRT_Buffer_Dimensions_Args *args)
{
    PJRT_CPU_NEED(args, buffer);
    absl::Span<const int64_t> dims = args->buffer->buffer->dimensions();
    args->dims = dims.data();
    args->num_dims = dims.size();
    return absl::OkStatus();
}

absl::Status Buffer_UnpaddedDimensions(PJRT_Buffer_UnpaddedDimensions_Args *args)
{
    PJRT_CPU_NEED(args, buffer);
    PJRT_Buffer *buffer = args->buffer;
    if (!buffer->buffer->has_dynamic_dimensions()) {
        absl::Span<const int64_t> dims = buffer->buffer->dimensions();
        args->unpadded_dims = dims.data();
        args->num_dims = dims.size();
        return absl::OkStatus();
    }
    std::lock_guard<std::mutex> lock(buffer->mutex);
    PJRT_Buffer::Cached &cache = buffer->Cache();
    if (!cache.has_unpadded_dims) {
        PJRT_CPU_ASSIGN(cache.unpadded_dims, buffer->buffer->logical_dimensions());
        cache.has_unpadded_dims = true;
    }
    args->unpadded_dims = cache.unpadded_dims.data();
    args->num_dims = cache.unpadded_dims.size();
    return absl::OkStatus();
}

absl::Status Buffer_DynamicDimensionIndices(PJRT_Buffer_DynamicDimensionIndices_Args *args)
{
    PJRT_CPU_NEED(args, buffer);
    PJRT_Buffer *buffer = args->buffer;
    std::lock_guard<std::mutex> lock(buffer->mutex);
    PJRT_Buffer::Cached &cache = buffer->Cache();
    if (!cache.has_dynamic_dims) {
        absl::Span<const bool> dynamic = buffer->buffer->is_dynamic_dimension();
        for (size_t i = 0; i < dynamic.size(); i++) {
            if (dynamic[i])
                cache.dynamic_dims.push_back(i);
        }
        cache.has_dynamic_dims = true;
    }
    args->dynamic_dim_indices = cache.dynamic_dims.data();
    args->num_dynamic_dims = cache.dynamic_dims.size();
    return absl::OkStatus();
}

absl::Status Buffer_GetMemoryLayout(PJRT_Buffer_GetMemoryLayout_Args *args)
{
    PJRT_CPU_NEED(args, buffer);
    PJRT_Buffer *buffer = args->buffer;
    if (!buffer->buffer->on_device_shape().has_layout())
        return absl::InvalidArgumentError("the buffer is not an array and has no layout");
    std::lock_guard<std::mutex> lock(buffer->mutex);
    PJRT_Buffer::Cached &cache = buffer->Cache();
    if (!cache.has_layout) {
        const auto order = buffer->buffer->on_device_shape().layout().minor_to_major();
        cache.minor_to_major.assign(order.begin(), order.end());
        cache.has_layout = true;
    }
    args->layout = PJRT_Buffer_MemoryLayout{};
    args->layout.struct_size = PJRT_Buffer_MemoryLayout_STRUCT_SIZE;
    args->layout.type = PJRT_Buffer_MemoryLayout_Type_Tiled;
    args->layout.tiled.struct_size = PJRT_Buffer_MemoryLayout_Tiled_STRUCT_SIZE;
    args->layout.tiled.minor_to_major = cache.minor_to_major.data();
    args->layout.tiled.minor_to_major_size = cache.minor_to_major.size();
    return absl::OkStatus();
}

absl::Status Buffer_OnDeviceSizeInBytes(PJRT_Buffer_OnDeviceSizeInBytes_Args *args)
{
    PJRT_CPU_NEED(args, buffer);
    PJRT_CPU_ASSIGN(args->on_device_size_in_bytes, args->buffer->buffer->GetOnDeviceSizeInBytes());
    return absl::OkStatus();
}

absl::Status Buffer_Device(PJRT_Buffer_Device_Args *args)
{
    PJRT_CPU_NEED(args, buffer);
    args->device = args->buffer->client->Find(args->buffer->buffer->device());
    return args->device != nullptr ? absl::OkStatus()
                                   : absl::InternalError("the buffer's device is not its client's");
}

absl::Status Buffer_Memory(PJRT_Buffer_Memory_Args *args)
{
    PJRT_CPU_NEED(args, buffer);
    args->memory = args->buffer->client->Find(args->buffer->buffer->memory_space());
    return args->memory != nullptr ? absl::OkStatus()
                                   : absl::InternalError("the buffer's memory is not its client's");
}

absl::Status Buffer_Delete(PJRT_Buffer_Delete_Args *args)
{
    PJRT_CPU_NEED(args, buffer);
    args->buffer->buffer->Delete();
    return absl::OkStatus();
}

absl::Status Buffer_IsDeleted(PJRT_Buffer_IsDeleted_Args *args)
{
    PJRT_CPU_NEED(args, buffer);
    args->is_deleted = args->buffer->buffer->IsDeleted();
    return absl::OkStatus();
}

namespace
{

absl::Status CheckRawRange(PJRT_Buffer *buffer, int64_t offset, int64_t size)
{
    if (buffer->buffer->IsDeleted())
        return absl::InvalidArgumentError("the buffer was deleted or donated");
    PJRT_CPU_ASSIGN(size_t total, buffer->buffer->GetOnDeviceSizeInBytes());
    if (offset < 0 || size < 0 || static_cast<uint64_t>(offset) > total ||
        static_cast<uint64_t>(size) > total - static_cast<uint64_t>(offset))
        return absl::InvalidArgumentError(absl::StrCat("bytes ", offset, " to ", offset, " + ",
                                                       size, " lie outside a buffer of ", total,
                                                       " bytes"));
    return absl::OkStatus();
}

} // namespace

absl::Status Buffer_CopyRawToHost(PJRT_Buffer_CopyRawToHost_Args *args)
{
    PJRT_CPU_NEED(args, buffer);
    if (args->dst == nullptr && args->transfer_size > 0)
        return absl::InvalidArgumentError("Buffer_CopyRawToHost: dst is NULL");
    PJRT_CPU_RETURN(CheckRawRange(args->buffer, args->offset, args->transfer_size));
    args->event =
        NewEvent(args->buffer->buffer->CopyRawToHost(args->dst, args->offset, args->transfer_size));
    return absl::OkStatus();
}

namespace
{

void RawDestinationReady(PJRT_Buffer_CopyRawToHostFuture_Callback_Args *args)
{
    std::unique_ptr<xla::Promise<void *>> promise(
        static_cast<xla::Promise<void *> *>(args->callback_data));
    absl::Status status = FromCode(args->error_code, args->error_message, args->error_message_size);
    if (status.ok())
        promise->Set(args->dst);
    else
        promise->Set(std::move(status));
}

} // namespace

absl::Status Buffer_CopyRawToHostFuture(PJRT_Buffer_CopyRawToHostFuture_Args *args)
{
    PJRT_CPU_NEED(args, buffer);
    PJRT_CPU_RETURN(CheckRawRange(args->buffer, args->offset, args->transfer_size));
    auto [promise, future] = xla::MakePromise<void *>();
    auto holder = std::make_unique<xla::Promise<void *>>(std::move(promise));
    args->event = NewEvent(args->buffer->buffer->CopyRawToHostFuture(
        std::move(future), args->offset, args->transfer_size));
    args->callback_data = holder.release();
    args->future_ready_callback = RawDestinationReady;
    return absl::OkStatus();
}

absl::Status Buffer_CopyToDevice(PJRT_Buffer_CopyToDevice_Args *args)
{
    PJRT_CPU_NEED(args, buffer);
    PJRT_CPU_NEED(args, dst_device);
    if (args->dst_device->default_memory == nullptr)
        return absl::InvalidArgumentError("the destination device belongs to another process");
    if (args->buffer->buffer->device() == args->dst_device->device)
        return absl::InvalidArgumentError("the buffer is already on that device");
    PJRT_CPU_ASSIGN(
        std::unique_ptr<xla::PjRtBuffer> copy,
        args->buffer->buffer->CopyToMemorySpace(args->dst_device->default_memory->memory));
    args->dst_buffer = NewBuffer(std::move(copy), args->dst_device->client);
    return absl::OkStatus();
}

absl::Status Buffer_CopyToMemory(PJRT_Buffer_CopyToMemory_Args *args)
{
    PJRT_CPU_NEED(args, buffer);
    PJRT_CPU_NEED(args, dst_memory);
    if (args->buffer->buffer->memory_space() == args->dst_memory->memory)
        return absl::InvalidArgumentError("the buffer is already in that memory");
    PJRT_CPU_ASSIGN(std::unique_ptr<xla::PjRtBuffer> copy,
                    args->buffer->buffer->CopyToMemorySpace(args->dst_memory->memory));
    args->dst_buffer = NewBuffer(std::move(copy), args->dst_memory->client);
    return absl::OkStatus();
}

absl::Status Buffer_ToHostBuffer(PJRT_Buffer_ToHostBuffer_Args *args)
{
    PJRT_CPU_NEED(args, src);
    PJRT_CPU_ASSIGN(xla::Shape shape, HostShape(args->src, args->host_layout));
    size_t needed = xla::ShapeUtil::ByteSizeOf(shape);
    if (args->dst == nullptr) {
        args->dst_size = needed;
        args->event = nullptr;
        return absl::OkStatus();
    }
    if (args->dst_size < needed)
        return absl::InvalidArgumentError(
            absl::StrCat("dst_size is ", args->dst_size, " bytes, the buffer has ", needed));
    if (args->src->buffer->IsDeleted())
        return absl::InvalidArgumentError("the buffer was deleted or donated");
    if (CopyInline(args->src, shape, needed, args->dst)) {
        args->event = NewReadyEvent();
        return absl::OkStatus();
    }
    auto literal =
        std::make_unique<xla::MutableBorrowingLiteral>(static_cast<char *>(args->dst), shape);
    const xla::Layout &device_layout = args->src->buffer->on_device_shape().layout();
    if (shape.layout().minor_to_major() != device_layout.minor_to_major()) {
        args->event = NewEvent(CopyReordered(args->src, std::move(literal), device_layout));
        return absl::OkStatus();
    }
    xla::Future<> future = args->src->buffer->ToLiteral(literal.get());
    /* The literal describes the destination; it must live until the copy is done. */
    future.OnReady([literal = std::move(literal)](absl::Status) {});
    args->event = NewEvent(std::move(future));
    return absl::OkStatus();
}

absl::Status Buffer_IsOnCpu(PJRT_Buffer_IsOnCpu_Args *args)
{
    PJRT_CPU_NEED(args, buffer);
    args->is_on_cpu = args->buffer->buffer->IsOnCpu();
    return absl::OkStatus();
}

absl::Status Buffer_ReadyEvent(PJRT_Buffer_ReadyEvent_Args *args)
{
    PJRT_CPU_NEED(args, buffer);
    args->event = NewEvent(args->buffer->buffer->GetReadyFuture());
    return absl::OkStatus();
}

namespace
{

absl::StatusOr<void *> DataPointer(PJRT_Buffer *buffer)
{
    PJRT_CPU_ASSIGN(std::unique_ptr<xla::PjRtBuffer::ExternalReference> reference,
                    buffer->buffer->AcquireExternalReference());
    return reference->OpaqueDeviceMemoryDataPointer();
}

} // namespace

absl::Status Buffer_UnsafePointer(PJRT_Buffer_UnsafePointer_Args *args)
{
    PJRT_CPU_NEED(args, buffer);
    PJRT_CPU_ASSIGN(void *pointer, DataPointer(args->buffer));
    args->buffer_pointer = reinterpret_cast<uintptr_t>(pointer);
    return absl::OkStatus();
}

absl::Status
Buffer_OpaqueDeviceMemoryDataPointer(PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args *args)
{
    PJRT_CPU_NEED(args, buffer);
    PJRT_CPU_ASSIGN(args->device_memory_ptr, DataPointer(args->buffer));
    return absl::OkStatus();
}

absl::Status
Buffer_IncreaseExternalReferenceCount(PJRT_Buffer_IncreaseExternalReferenceCount_Args *args)
{
    PJRT_CPU_NEED(args, buffer);
    PJRT_CPU_ASSIGN(std::unique_ptr<xla::PjRtBuffer::ExternalReference> reference,
                    args->buffer->buffer->AcquireExternalReference());
    std::lock_guard<std::mutex> lock(args->buffer->mutex);
    args->buffer->Cache().references.push_back(std::move(reference));
    return absl::OkStatus();
}

absl::Status
Buffer_DecreaseExternalReferenceCount(PJRT_Buffer_DecreaseExternalReferenceCount_Args *args)
{
    PJRT_CPU_NEED(args, buffer);
    std::lock_guard<std::mutex> lock(args->buffer->mutex);
    auto &references = args->buffer->Cache().references;
    if (references.empty())
        return absl::InvalidArgumentError("the buffer's external reference count is already zero");
    references.pop_back();
    return absl::OkStatus();
}

namespace
{

void DependencyReady(PJRT_Buffer_DonateWithControlDependency_Callback_Args *args)
{
    std::unique_ptr<xla::Promise<>> promise(static_cast<xla::Promise<> *>(args->callback_data));
    promise->Set(FromCode(args->error_code, args->error_message, args->error_message_size));
}

} // namespace

absl::Status Buffer_DonateWithControlDependency(PJRT_Buffer_DonateWithControlDependency_Args *args)
{
    PJRT_CPU_NEED(args, buffer);
    auto [promise, future] = xla::MakePromise<>();
    auto holder = std::make_unique<xla::Promise<>>(std::move(promise));
    auto donated = args->buffer->buffer->DonateWithControlDependency(std::move(future));
    if (!donated.ok()) {
        holder->Set(donated.status());
        return donated.status();
    }
    args->out_buffer = NewBuffer(*std::move(donated), args->buffer->client);
    args->callback_data = holder.release();
    args->dependency_ready_callback = DependencyReady;
    return absl::OkStatus();
}

} // namespace pjrt_cpu
