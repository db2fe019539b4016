/*
 * Execution. The arguments are checked here, because XLA checks only their sizes and its C API has
 * no word for more. One device is the fast way: no threads, no copies of lists, and a cheap program
 * runs on the calling thread. Several devices are launched together, so collectives can meet.
 */
#include "plugin.h"

namespace pjrt_cpu
{

namespace
{

using ArgumentList = absl::InlinedVector<xla::PjRtBuffer *, 16>;

/* Dimensions of size one may stand anywhere in a layout. */
bool SameOrder(const xla::Shape &a, const xla::Shape &b)
{
    const auto order_a = a.layout().minor_to_major(), order_b = b.layout().minor_to_major();
    if (order_a == order_b)
        return true;
    absl::InlinedVector<int64_t, 8> real_a, real_b;
    for (int64_t dim : order_a) {
        if (a.dimensions(dim) != 1)
            real_a.push_back(dim);
    }
    for (int64_t dim : order_b) {
        if (b.dimensions(dim) != 1)
            real_b.push_back(dim);
    }
    return real_a == real_b || xla::ShapeUtil::IsZeroElementArray(a);
}

absl::Status WrongArgument(const PJRT_LoadedExecutable *executable, size_t index,
                           absl::string_view what)
{
    return absl::InvalidArgumentError(
        absl::StrCat("argument ", index, " of ", executable->executable->name(), ": ", what));
}

absl::Status CheckArgument(const PJRT_LoadedExecutable *executable, size_t index,
                           const PJRT_Buffer *argument, const xla::PjRtDevice *device)
{
    if (argument == nullptr)
        return WrongArgument(executable, index, "the buffer is NULL");
    if (argument->client != executable->client)
        return WrongArgument(executable, index, "the buffer belongs to another client");
    const xla::PjRtBuffer *buffer = argument->buffer.get();
    if (buffer->device() != device)
        return WrongArgument(executable, index,
                             absl::StrCat("the buffer is on ", buffer->device()->DebugString(),
                                          ", the program runs on ", device->DebugString()));
    const xla::Shape &wanted = executable->parameters[index];
    const xla::Shape &given = buffer->on_device_shape();
    if (!wanted.IsArray() || !wanted.is_static() || !given.IsArray())
        return absl::OkStatus();
    if (given.element_type() != wanted.element_type() || given.dimensions() != wanted.dimensions())
        return WrongArgument(executable, index,
                             absl::StrCat("the program wants ", wanted.ToString(),
                                          ", the buffer is ", given.ToString()));
    if (wanted.has_layout() && given.has_layout() && !SameOrder(wanted, given))
        return WrongArgument(executable, index,
                             absl::StrCat("the program wants layout ", wanted.ToString(true),
                                          ", the buffer has ", given.ToString(true)));
    return absl::OkStatus();
}

template <typename List>
absl::Status Collect(const PJRT_LoadedExecutable *executable, PJRT_Buffer *const *arguments,
                     size_t count, const xla::PjRtDevice *device, List *out)
{
    out->reserve(count);
    for (size_t i = 0; i < count; i++) {
        PJRT_CPU_RETURN(CheckArgument(executable, i, arguments[i], device));
        out->push_back(arguments[i]->buffer.get());
    }
    return absl::OkStatus();
}

absl::Status ReadOptions(const PJRT_ExecuteOptions *given, size_t num_args,
                         xla::ExecuteOptions *out)
{
    out->strict_shape_checking = false;
    if (given == nullptr)
        return absl::OkStatus();
    if (!PJRT_CPU_HAS(given, PJRT_ExecuteOptions, num_non_donatable_input_indices))
        return absl::InvalidArgumentError("PJRT_ExecuteOptions: struct_size is too small");
    if (given->num_send_ops != 0 || given->num_recv_ops != 0)
        return absl::UnimplementedError("XLA's CPU client has no send and receive callbacks; use "
                                        "an FFI custom call instead");
    out->launch_id = given->launch_id;
    if (given->num_non_donatable_input_indices != 0 &&
        given->non_donatable_input_indices == nullptr)
        return absl::InvalidArgumentError("non_donatable_input_indices is NULL");
    for (size_t i = 0; i < given->num_non_donatable_input_indices; i++) {
        int64_t index = given->non_donatable_input_indices[i];
        if (index < 0 || static_cast<uint64_t>(index) >= num_args)
            return absl::InvalidArgumentError(absl::StrCat("non_donatable_input_indices holds ",
                                                           index, ", the program has ", num_args,
                                                           " arguments"));
        out->non_donatable_input_indices.insert(static_cast<int>(index));
    }
    if (PJRT_CPU_HAS(given, PJRT_ExecuteOptions, context) && given->context != nullptr)
        out->context = given->context->context.get();
    return absl::OkStatus();
}

/* Writes one device's results. Nothing is written unless everything can be. */
absl::Status Deliver(std::vector<std::unique_ptr<xla::PjRtBuffer>> buffers,
                     const PJRT_LoadedExecutable *executable, PJRT_Buffer **out)
{
    if (buffers.size() != executable->num_outputs)
        return absl::InternalError(absl::StrCat("the program gave ", buffers.size(),
                                                " results, expected were ",
                                                executable->num_outputs));
    for (size_t i = 0; i < buffers.size(); i++) {
        out[i] = new (std::nothrow) PJRT_Buffer(std::move(buffers[i]), executable->client);
        if (out[i] == nullptr) {
            while (i > 0)
                delete out[--i];
            return absl::ResourceExhaustedError("out of host memory");
        }
    }
    return absl::OkStatus();
}

void DropOutputs(PJRT_Buffer **out, size_t count)
{
    for (size_t i = 0; i < count; i++)
        delete out[i];
}

/* One device, chosen by the caller or the only one of the program. */
absl::Status ExecuteOne(PJRT_LoadedExecutable_Execute_Args *args, xla::PjRtDevice *device,
                        const xla::ExecuteOptions &options)
{
    const PJRT_LoadedExecutable *executable = args->executable;
    ArgumentList arguments;
    PJRT_CPU_RETURN(Collect(executable, args->num_args != 0 ? args->argument_lists[0] : nullptr,
                            args->num_args, device, &arguments));
    const bool wants_event = args->device_complete_events != nullptr;
    std::optional<xla::Future<>> future;
    const xla::PjRtLoadedExecutable *program = executable->executable.get();
    auto results = executable->portable
                       ? program->ExecutePortable(arguments, device, options, future, wants_event)
                       : program->ExecuteSharded(arguments, device, options, future, wants_event);
    if (!results.ok())
        return results.status();
    std::unique_ptr<PJRT_Event> event;
    if (wants_event)
        event.reset(future.has_value() ? NewEvent(*std::move(future)) : NewReadyEvent());
    PJRT_CPU_RETURN(Deliver(*std::move(results), executable, args->output_lists[0]));
    if (wants_event)
        args->device_complete_events[0] = event.release();
    return absl::OkStatus();
}

absl::Status ExecuteAll(PJRT_LoadedExecutable_Execute_Args *args,
                        const xla::ExecuteOptions &options)
{
    const PJRT_LoadedExecutable *executable = args->executable;
    std::vector<std::vector<xla::PjRtBuffer *>> arguments(args->num_devices);
    for (size_t i = 0; i < args->num_devices; i++) {
        PJRT_CPU_RETURN(Collect(executable, args->num_args != 0 ? args->argument_lists[i] : nullptr,
                                args->num_args, executable->addressable_devices[i]->device,
                                &arguments[i]));
    }
    std::optional<std::vector<xla::Future<>>> futures;
    if (args->device_complete_events != nullptr)
        futures.emplace();
    PJRT_CPU_ASSIGN(auto results, executable->executable->Execute(arguments, options, futures));
    if (results.size() != args->num_devices ||
        (futures.has_value() && futures->size() != args->num_devices))
        return absl::InternalError("the program ran on another number of devices than asked");
    std::vector<std::unique_ptr<PJRT_Event>> events;
    if (futures.has_value()) {
        for (xla::Future<> &future : *futures)
            events.emplace_back(NewEvent(std::move(future)));
    }
    for (size_t i = 0; i < args->num_devices; i++) {
        absl::Status status = Deliver(std::move(results[i]), executable, args->output_lists[i]);
        if (!status.ok()) {
            while (i > 0)
                DropOutputs(args->output_lists[--i], executable->num_outputs);
            return status;
        }
    }
    for (size_t i = 0; i < events.size(); i++)
        args->device_complete_events[i] = events[i].release();
    return absl::OkStatus();
}

absl::Status CheckLists(const PJRT_LoadedExecutable_Execute_Args *args)
{
    const PJRT_LoadedExecutable *executable = args->executable;
    if (executable->deleted.load(std::memory_order_acquire))
        return absl::FailedPreconditionError("the executable was deleted");
    if (args->num_args != executable->parameters.size())
        return absl::InvalidArgumentError(absl::StrCat(executable->executable->name(), " takes ",
                                                       executable->parameters.size(),
                                                       " arguments, given were ", args->num_args));
    for (size_t i = 0; i < args->num_devices; i++) {
        if (args->num_args != 0 &&
            (args->argument_lists == nullptr || args->argument_lists[i] == nullptr))
            return absl::InvalidArgumentError("an argument list is NULL");
        if (executable->num_outputs != 0 &&
            (args->output_lists == nullptr || args->output_lists[i] == nullptr))
            return absl::InvalidArgumentError("an output list is NULL");
    }
    return absl::OkStatus();
}

/* Where a portable executable runs when the caller did not say: where its arguments are. */
PJRT_Device *PortableDevice(const PJRT_LoadedExecutable_Execute_Args *args)
{
    const PJRT_Client *client = args->executable->client;
    if (args->num_args != 0 && args->argument_lists[0][0] != nullptr) {
        const PJRT_Buffer *first = args->argument_lists[0][0];
        if (first->client == client)
            return client->Find(first->buffer->device());
    }
    return client->addressable_devices[0];
}

} // namespace

absl::Status LoadedExecutable_Execute(PJRT_LoadedExecutable_Execute_Args *args)
{
    PJRT_CPU_NEED(args, executable);
    const PJRT_LoadedExecutable *executable = args->executable;
    PJRT_Device *device = args->execute_device;
    const bool one = device != nullptr || executable->portable;
    const size_t expected = one ? 1 : executable->addressable_devices.size();
    if (args->num_devices != expected)
        return absl::InvalidArgumentError(
            absl::StrCat("num_devices is ", args->num_devices, ", the program runs on ", expected));
    PJRT_CPU_RETURN(CheckLists(args));
    xla::ExecuteOptions options;
    PJRT_CPU_RETURN(ReadOptions(args->options, args->num_args, &options));
    if (device == nullptr && !one && expected != 1)
        return ExecuteAll(args, options);
    if (device == nullptr)
        device = executable->portable ? PortableDevice(args) : executable->addressable_devices[0];
    if (device->client != executable->client)
        return absl::InvalidArgumentError("execute_device belongs to another client");
    if (device->default_memory == nullptr)
        return absl::InvalidArgumentError("execute_device belongs to another process");
    /* A program of several devices launched one by one: XLA may run it on this thread, where it
     * would wait for the others' launches that are still to come, or for another process. */
    if (executable->addressable_devices.size() > 1 || executable->spans_processes)
        options.execution_mode = xla::ExecuteOptions::ExecutionMode::kAsynchronous;
    return ExecuteOne(args, device->device, options);
}

absl::Status ExecuteContext_Create(PJRT_ExecuteContext_Create_Args *args)
{
    auto out = std::make_unique<PJRT_ExecuteContext>();
    out->context = std::make_unique<xla::CpuExecuteContext>();
    args->context = out.release();
    return absl::OkStatus();
}

absl::Status ExecuteContext_Destroy(PJRT_ExecuteContext_Destroy_Args *args)
{
    delete args->context;
    return absl::OkStatus();
}

} // namespace pjrt_cpu
