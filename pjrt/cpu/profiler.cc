/*
 * The Profiler extension over the library's own tracers: what runs between start and stop comes
 * back as a serialized XSpace, which TensorBoard and xprof read.
 */
#include "plugin.h"

#include "tsl/profiler/lib/profiler_collection.h"
#include "tsl/profiler/lib/profiler_factory.h"
#include "tsl/profiler/lib/profiler_session.h"
#include "tsl/profiler/protobuf/profiler_options.pb.h"
#include "tsl/profiler/protobuf/xplane.pb.h"

struct PLUGIN_Profiler_Error {
    absl::Status status;
};

struct PLUGIN_Profiler {
    tensorflow::ProfileOptions options;
    std::unique_ptr<tsl::profiler::ProfilerCollection> tracers;
    std::string data;
    bool stopped = false;
};

namespace pjrt_cpu
{

namespace
{

PLUGIN_Profiler_Error *ProfilerError(absl::Status status)
{
    return status.ok() ? nullptr : new (std::nothrow) PLUGIN_Profiler_Error{std::move(status)};
}

/* The same care as Entry<> for the profiler's own table. */
template <typename Args, absl::Status (*Function)(Args *)>
PLUGIN_Profiler_Error *ProfilerEntry(Args *args) noexcept
{
    try {
        if (args == nullptr)
            return ProfilerError(absl::InvalidArgumentError("the argument struct is NULL"));
        return ProfilerError(Function(args));
    } catch (const std::exception &error) {
        return ProfilerError(absl::InternalError(error.what()));
    } catch (...) {
        return ProfilerError(absl::InternalError("unknown C++ exception"));
    }
}

void ProfilerErrorDestroy(PLUGIN_Profiler_Error_Destroy_Args *args) noexcept
{
    if (args != nullptr)
        delete args->error;
}

void ProfilerErrorMessage(PLUGIN_Profiler_Error_Message_Args *args) noexcept
{
    if (args == nullptr || args->error == nullptr)
        return;
    args->message = args->error->status.message().data();
    args->message_size = args->error->status.message().size();
}

absl::Status ProfilerErrorCode(PLUGIN_Profiler_Error_GetCode_Args *args)
{
    args->code = args->error == nullptr ? 0 : static_cast<int>(args->error->status.code());
    return absl::OkStatus();
}

absl::Status ProfilerCreate(PLUGIN_Profiler_Create_Args *args)
{
    auto profiler = std::make_unique<PLUGIN_Profiler>();
    profiler->options = tsl::ProfilerSession::DefaultOptions();
    if (args->options_size != 0) {
        if (args->options == nullptr || args->options_size > INT32_MAX ||
            !profiler->options.ParseFromArray(args->options, static_cast<int>(args->options_size)))
            return absl::InvalidArgumentError("options is not a serialized ProfileOptions");
    }
    args->profiler = profiler.release();
    return absl::OkStatus();
}

absl::Status ProfilerDestroy(PLUGIN_Profiler_Destroy_Args *args)
{
    delete args->profiler;
    return absl::OkStatus();
}

absl::Status ProfilerStart(PLUGIN_Profiler_Start_Args *args)
{
    PJRT_CPU_NEED(args, profiler);
    if (args->profiler->tracers != nullptr)
        return absl::FailedPreconditionError("the profiler was already started");
    auto tracers = std::make_unique<tsl::profiler::ProfilerCollection>(
        tsl::profiler::CreateProfilers(args->profiler->options));
    PJRT_CPU_RETURN(tracers->Start());
    args->profiler->tracers = std::move(tracers);
    args->profiler->stopped = false;
    args->profiler->data.clear();
    return absl::OkStatus();
}

absl::Status ProfilerStop(PLUGIN_Profiler_Stop_Args *args)
{
    PJRT_CPU_NEED(args, profiler);
    if (args->profiler->tracers == nullptr)
        return absl::FailedPreconditionError("the profiler was not started");
    auto tracers = std::move(args->profiler->tracers);
    PJRT_CPU_RETURN(tracers->Stop());
    tensorflow::profiler::XSpace space;
    PJRT_CPU_RETURN(tracers->CollectData(&space));
    if (!space.SerializeToString(&args->profiler->data))
        return absl::InternalError("the trace is too large for a protobuf");
    args->profiler->stopped = true;
    return absl::OkStatus();
}

absl::Status ProfilerCollect(PLUGIN_Profiler_CollectData_Args *args)
{
    PJRT_CPU_NEED(args, profiler);
    if (!args->profiler->stopped)
        return absl::FailedPreconditionError("stop the profiler before collecting its data");
    /* The header wants two calls and a buffer of the caller's; XLA's own plugins answer the first
     * call with a buffer of theirs, and JAX reads that one. Both ways are served. */
    std::string &data = args->profiler->data;
    if (args->buffer != nullptr)
        std::memcpy(args->buffer, data.data(), data.size());
    else
        args->buffer = reinterpret_cast<uint8_t *>(data.data());
    args->buffer_size_in_bytes = data.size();
    return absl::OkStatus();
}

} // namespace

PJRT_Extension_Base *ProfilerExtension(PJRT_Extension_Base *next)
{
    static PLUGIN_Profiler_Api api = {
        PLUGIN_Profiler_Api_STRUCT_SIZE,
        nullptr,
        ProfilerErrorDestroy,
        ProfilerErrorMessage,
        ProfilerEntry<PLUGIN_Profiler_Error_GetCode_Args, ProfilerErrorCode>,
        ProfilerEntry<PLUGIN_Profiler_Create_Args, ProfilerCreate>,
        ProfilerEntry<PLUGIN_Profiler_Destroy_Args, ProfilerDestroy>,
        ProfilerEntry<PLUGIN_Profiler_Start_Args, ProfilerStart>,
        ProfilerEntry<PLUGIN_Profiler_Stop_Args, ProfilerStop>,
        ProfilerEntry<PLUGIN_Profiler_CollectData_Args, ProfilerCollect>,
    };
    static PJRT_Profiler_Extension extension = {
        {PJRT_Profiler_Extension_STRUCT_SIZE, PJRT_Extension_Type_Profiler, next},
        &api,
        0,
    };
    return &extension.base;
}

} // namespace pjrt_cpu
