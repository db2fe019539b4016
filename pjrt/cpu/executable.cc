/*
 * Questions to an executable, its bytes, and its life. Answers that the API wants to live as long
 * as the handle are made when first asked for and kept in it.
 */
#include "plugin.h"

#include "tsl/platform/fingerprint.h"
#include "xla/pjrt/host_memory_spaces.h"
#include "xla/pjrt/proto/compile_options.pb.h"
#include "xla/service/hlo.pb.h"
#include "xla/service/hlo_cost_analysis.h"

namespace pjrt_cpu
{

namespace
{

/* In front of XLA's bytes when an executable is written. Native code is behind them: damaged bytes
 * must be refused, not run. */
struct Envelope {
    char magic[8];
    uint64_t size;
    uint64_t fingerprint;
};
constexpr char kMagic[8] = {'T', 'T', 'T', 'C', 'P', 'U', '0', '1'};

template <typename Holder> void DeleteString(Holder *holder)
{
    delete reinterpret_cast<std::string *>(holder);
}

/* Hands out a string through one of the API's holder + deleter triples. */
template <typename Holder>
void Lend(std::unique_ptr<std::string> text, const char **bytes, size_t *size, Holder **holder,
          void (**deleter)(Holder *))
{
    *bytes = text->data();
    *size = text->size();
    *holder = reinterpret_cast<Holder *>(text.release());
    *deleter = DeleteString<Holder>;
}

absl::StatusOr<std::shared_ptr<xla::HloModule>> OnlyModule(const xla::PjRtExecutable &executable)
{
    PJRT_CPU_ASSIGN(auto modules, executable.GetHloModules());
    if (modules.size() != 1 || modules[0] == nullptr)
        return absl::UnimplementedError(
            absl::StrCat("the executable has ", modules.size(), " programs, not one"));
    return modules[0];
}

absl::Status CheckLoaded(const PJRT_LoadedExecutable *executable)
{
    if (executable->deleted.load(std::memory_order_acquire))
        return absl::FailedPreconditionError("the executable was deleted");
    return absl::OkStatus();
}

absl::Status FillOutputs(PJRT_Executable *handle)
{
    if (handle->output_types.has_value())
        return absl::OkStatus();
    PJRT_CPU_ASSIGN(std::vector<xla::Shape> shapes, OutputShapes(*handle->executable));
    std::vector<PJRT_Buffer_Type> types;
    for (const xla::Shape &shape : shapes) {
        types.push_back(FromPrimitiveType(shape.element_type()));
        absl::Span<const int64_t> dims;
        if (shape.IsArray())
            dims = shape.dimensions();
        handle->output_dims.insert(handle->output_dims.end(), dims.begin(), dims.end());
        handle->output_dim_counts.push_back(dims.size());
    }
    handle->output_types = std::move(types);
    return absl::OkStatus();
}

} // namespace

absl::StatusOr<std::vector<xla::Shape>> OutputShapes(const xla::PjRtExecutable &executable)
{
    PJRT_CPU_ASSIGN(std::shared_ptr<xla::HloModule> module, OnlyModule(executable));
    const xla::Shape &result = module->entry_computation_layout().result_shape();
    if (result.IsTuple())
        return result.tuple_shapes();
    return std::vector<xla::Shape>{result};
}

absl::StatusOr<PJRT_LoadedExecutable *>
NewLoadedExecutable(std::unique_ptr<xla::PjRtLoadedExecutable> executable, PJRT_Client *client)
{
    auto out = std::make_unique<PJRT_LoadedExecutable>();
    out->executable = std::move(executable);
    out->client = client;
    for (xla::PjRtDevice *device : out->executable->addressable_devices())
        out->addressable_devices.push_back(client->Find(device));
    PJRT_CPU_ASSIGN(xla::CompileOptions options, out->executable->GetCompileOptions());
    out->portable = options.compile_portable_executable;
    PJRT_CPU_ASSIGN(std::vector<xla::Shape> outputs,
                    OutputShapes(*out->executable->GetExecutable()));
    out->num_outputs = outputs.size();
    PJRT_CPU_ASSIGN(std::shared_ptr<xla::HloModule> module,
                    OnlyModule(*out->executable->GetExecutable()));
    const xla::ComputationLayout &layout = module->entry_computation_layout();
    for (const xla::ShapeLayout &parameter : layout.parameter_layouts())
        out->parameters.push_back(parameter.shape());
    if (options.parameter_is_tupled_arguments && out->parameters.size() == 1 &&
        out->parameters[0].IsTuple()) {
        std::vector<xla::Shape> elements = out->parameters[0].tuple_shapes();
        out->parameters = std::move(elements);
    }
    if (!out->portable) {
        const size_t total = static_cast<size_t>(out->executable->num_replicas()) *
                             static_cast<size_t>(out->executable->num_partitions());
        out->spans_processes = out->addressable_devices.size() != total;
        if (out->spans_processes && !client->has_collectives)
            return absl::UnimplementedError(
                "the program spans devices of other processes; a client needs a messenger for "
                "that");
    }
    return out.release();
}

absl::Status Executable_Destroy(PJRT_Executable_Destroy_Args *args)
{
    delete args->executable;
    return absl::OkStatus();
}

absl::Status Executable_Name(PJRT_Executable_Name_Args *args)
{
    PJRT_CPU_NEED(args, executable);
    absl::string_view name = args->executable->executable->name();
    args->executable_name = name.data();
    args->executable_name_size = name.size();
    return absl::OkStatus();
}

absl::Status Executable_NumReplicas(PJRT_Executable_NumReplicas_Args *args)
{
    PJRT_CPU_NEED(args, executable);
    args->num_replicas = args->executable->executable->num_replicas();
    return absl::OkStatus();
}

absl::Status Executable_NumPartitions(PJRT_Executable_NumPartitions_Args *args)
{
    PJRT_CPU_NEED(args, executable);
    args->num_partitions = args->executable->executable->num_partitions();
    return absl::OkStatus();
}

absl::Status Executable_NumOutputs(PJRT_Executable_NumOutputs_Args *args)
{
    PJRT_CPU_NEED(args, executable);
    std::lock_guard<std::mutex> lock(args->executable->mutex);
    PJRT_CPU_RETURN(FillOutputs(args->executable));
    args->num_outputs = args->executable->output_types->size();
    return absl::OkStatus();
}

absl::Status
Executable_SizeOfGeneratedCodeInBytes(PJRT_Executable_SizeOfGeneratedCodeInBytes_Args *args)
{
    PJRT_CPU_NEED(args, executable);
    args->size_in_bytes = args->executable->executable->SizeOfGeneratedCodeInBytes();
    return absl::OkStatus();
}

absl::Status Executable_OutputElementTypes(PJRT_Executable_OutputElementTypes_Args *args)
{
    PJRT_CPU_NEED(args, executable);
    std::lock_guard<std::mutex> lock(args->executable->mutex);
    PJRT_CPU_RETURN(FillOutputs(args->executable));
    args->output_types = args->executable->output_types->data();
    args->num_output_types = args->executable->output_types->size();
    return absl::OkStatus();
}

absl::Status Executable_OutputDimensions(PJRT_Executable_OutputDimensions_Args *args)
{
    PJRT_CPU_NEED(args, executable);
    std::lock_guard<std::mutex> lock(args->executable->mutex);
    PJRT_CPU_RETURN(FillOutputs(args->executable));
    args->num_outputs = args->executable->output_dim_counts.size();
    args->dims = args->executable->output_dims.data();
    args->dim_sizes = args->executable->output_dim_counts.data();
    return absl::OkStatus();
}

absl::Status Executable_OutputMemoryKinds(PJRT_Executable_OutputMemoryKinds_Args *args)
{
    PJRT_CPU_NEED(args, executable);
    PJRT_Executable *handle = args->executable;
    std::lock_guard<std::mutex> lock(handle->mutex);
    if (!handle->memory_kinds.has_value()) {
        /* XLA's CPU executable does not answer this, but its outputs' layouts do. */
        PJRT_CPU_ASSIGN(std::vector<xla::Shape> shapes, OutputShapes(*handle->executable));
        std::vector<std::string> kinds;
        for (const xla::Shape &shape : shapes) {
            bool host = shape.has_layout() &&
                        shape.layout().memory_space() == xla::Layout::kHostMemorySpace;
            kinds.emplace_back(host ? xla::PinnedHostMemorySpace::kKind
                                    : xla::CpuDeviceMemorySpace::kKind);
        }
        handle->memory_kinds = std::move(kinds);
        for (const std::string &kind : *handle->memory_kinds) {
            handle->memory_kind_pointers.push_back(kind.data());
            handle->memory_kind_sizes.push_back(kind.size());
        }
    }
    args->num_outputs = handle->memory_kinds->size();
    args->memory_kinds = handle->memory_kind_pointers.data();
    args->memory_kind_sizes = handle->memory_kind_sizes.data();
    return absl::OkStatus();
}

absl::Status Executable_GetCostAnalysis(PJRT_Executable_GetCostAnalysis_Args *args)
{
    PJRT_CPU_NEED(args, executable);
    PJRT_Executable *handle = args->executable;
    std::lock_guard<std::mutex> lock(handle->mutex);
    if (!handle->costs.has_value()) {
        PJRT_CPU_ASSIGN(std::shared_ptr<xla::HloModule> module, OnlyModule(*handle->executable));
        xla::HloCostAnalysis analysis([](const xla::Shape &shape) {
            return xla::ShapeUtil::ByteSizeOf(shape, sizeof(void *));
        });
        PJRT_CPU_ASSIGN(auto costs,
                        xla::PjRtExecutableUtil::RunHloCostAnalysis({module}, &analysis));
        handle->costs.emplace();
        handle->costs->AddAll(costs);
    }
    args->properties = handle->costs->data();
    args->num_properties = handle->costs->size();
    return absl::OkStatus();
}

absl::Status Executable_OptimizedProgram(PJRT_Executable_OptimizedProgram_Args *args)
{
    PJRT_CPU_NEED(args, executable);
    PJRT_CPU_NEED(args, program);
    PJRT_Executable *handle = args->executable;
    PJRT_Program *program = args->program;
    /* The format that the caller asks for is not read: jaxlib leaves the field uninitialised. */
    static constexpr absl::string_view kFormat = "hlo_with_config";
    std::lock_guard<std::mutex> lock(handle->mutex);
    if (handle->optimized_program.empty()) {
        PJRT_CPU_ASSIGN(std::shared_ptr<xla::HloModule> module, OnlyModule(*handle->executable));
        std::string bytes;
        if (!module->ToProtoWithConfig().SerializeToString(&bytes))
            return absl::InternalError("the optimized program is too large for a protobuf");
        handle->optimized_program = std::move(bytes);
    }
    program->format = kFormat.data();
    program->format_size = kFormat.size();
    const std::string &bytes = handle->optimized_program;
    if (program->code != nullptr) {
        if (program->code_size < bytes.size())
            return absl::InvalidArgumentError(absl::StrCat(
                "code_size is ", program->code_size, " bytes, the program has ", bytes.size()));
        std::memcpy(program->code, bytes.data(), bytes.size());
    }
    program->code_size = bytes.size();
    return absl::OkStatus();
}

absl::Status Executable_Fingerprint(PJRT_Executable_Fingerprint_Args *args)
{
    PJRT_CPU_NEED(args, executable);
    PJRT_Executable *handle = args->executable;
    std::lock_guard<std::mutex> lock(handle->mutex);
    if (!handle->fingerprint.has_value()) {
        PJRT_CPU_ASSIGN(handle->fingerprint, handle->executable->FingerprintExecutable());
    }
    args->executable_fingerprint = handle->fingerprint->data();
    args->executable_fingerprint_size = handle->fingerprint->size();
    return absl::OkStatus();
}

absl::Status Executable_GetCompiledMemoryStats(PJRT_Executable_GetCompiledMemoryStats_Args *args)
{
    PJRT_CPU_NEED(args, executable);
    PJRT_CPU_ASSIGN(xla::CompiledMemoryStats stats,
                    args->executable->executable->GetCompiledMemoryStats());
    args->generated_code_size_in_bytes = stats.generated_code_size_in_bytes;
    args->argument_size_in_bytes = stats.argument_size_in_bytes;
    args->output_size_in_bytes = stats.output_size_in_bytes;
    args->alias_size_in_bytes = stats.alias_size_in_bytes;
    args->temp_size_in_bytes = stats.temp_size_in_bytes;
    args->host_generated_code_size_in_bytes = stats.host_generated_code_size_in_bytes;
    args->host_argument_size_in_bytes = stats.host_argument_size_in_bytes;
    args->host_output_size_in_bytes = stats.host_output_size_in_bytes;
    args->host_alias_size_in_bytes = stats.host_alias_size_in_bytes;
    args->host_temp_size_in_bytes = stats.host_temp_size_in_bytes;
    if (PJRT_CPU_HAS(args, PJRT_Executable_GetCompiledMemoryStats_Args, peak_memory_in_bytes))
        args->peak_memory_in_bytes = stats.peak_memory_in_bytes;
    if (PJRT_CPU_HAS(args, PJRT_Executable_GetCompiledMemoryStats_Args, total_size_in_bytes))
        args->total_size_in_bytes = stats.total_size_in_bytes;
    return absl::OkStatus();
}

absl::Status Executable_GetCompileOptions(PJRT_Executable_GetCompileOptions_Args *args)
{
    PJRT_CPU_NEED(args, executable);
    PJRT_CPU_ASSIGN(xla::CompileOptions options, args->executable->executable->GetCompileOptions());
    PJRT_CPU_ASSIGN(xla::CompileOptionsProto proto, options.ToProto());
    auto bytes = std::make_unique<std::string>();
    if (!proto.SerializeToString(bytes.get()))
        return absl::InternalError("the compile options could not be serialized");
    Lend(std::move(bytes), &args->serialized_bytes, &args->serialized_bytes_size,
         &args->serialized_compile_options, &args->serialized_compile_options_deleter);
    return absl::OkStatus();
}

absl::Status Executable_Serialize(PJRT_Executable_Serialize_Args *args)
{
    PJRT_CPU_NEED(args, executable);
    PJRT_CPU_ASSIGN(std::string payload, args->executable->executable->SerializeExecutable());
    Envelope envelope;
    std::memcpy(envelope.magic, kMagic, sizeof kMagic);
    envelope.size = payload.size();
    envelope.fingerprint = tsl::Fingerprint64(payload);
    auto bytes = std::make_unique<std::string>();
    bytes->reserve(sizeof envelope + payload.size());
    bytes->append(reinterpret_cast<const char *>(&envelope), sizeof envelope);
    bytes->append(payload);
    Lend(std::move(bytes), &args->serialized_bytes, &args->serialized_bytes_size,
         &args->serialized_executable, &args->serialized_executable_deleter);
    return absl::OkStatus();
}

absl::Status Executable_DeserializeAndLoad(PJRT_Executable_DeserializeAndLoad_Args *args)
{
    PJRT_CPU_NEED(args, client);
    PJRT_CPU_NEED(args, serialized_executable);
    xla::PjRtClient *client = args->client->client.get();
    absl::string_view bytes(args->serialized_executable, args->serialized_executable_size);
    Envelope envelope;
    if (bytes.size() < sizeof envelope)
        return absl::InvalidArgumentError("the bytes are too few to be a serialized executable");
    std::memcpy(&envelope, bytes.data(), sizeof envelope);
    bytes.remove_prefix(sizeof envelope);
    if (std::memcmp(envelope.magic, kMagic, sizeof kMagic) != 0)
        return absl::InvalidArgumentError("the bytes are not an executable of this plugin");
    if (envelope.size != bytes.size() || envelope.fingerprint != tsl::Fingerprint64(bytes))
        return absl::DataLossError("the serialized executable is damaged or cut short");
    std::optional<xla::CompileOptions> options;
    if (PJRT_CPU_HAS(args, PJRT_Executable_DeserializeAndLoad_Args,
                     overridden_serialized_compile_options_size) &&
        args->overridden_serialized_compile_options != nullptr) {
        PJRT_CPU_ASSIGN(options,
                        ReadCompileOptions(args->overridden_serialized_compile_options,
                                           args->overridden_serialized_compile_options_size,
                                           client->device_count()));
    }
    PJRT_CPU_ASSIGN(
        std::unique_ptr<xla::PjRtLoadedExecutable> executable,
        client->LoadSerializedExecutable(bytes, std::move(options), xla::LoadOptions()));
    PJRT_CPU_ASSIGN(args->loaded_executable,
                    NewLoadedExecutable(std::move(executable), args->client));
    return absl::OkStatus();
}

absl::Status LoadedExecutable_Destroy(PJRT_LoadedExecutable_Destroy_Args *args)
{
    delete args->executable;
    return absl::OkStatus();
}

absl::Status LoadedExecutable_GetExecutable(PJRT_LoadedExecutable_GetExecutable_Args *args)
{
    PJRT_CPU_NEED(args, loaded_executable);
    PJRT_CPU_RETURN(CheckLoaded(args->loaded_executable));
    auto out = std::make_unique<PJRT_Executable>();
    out->executable = std::shared_ptr<xla::PjRtExecutable>(
        args->loaded_executable->executable, args->loaded_executable->executable->GetExecutable());
    args->executable = out.release();
    return absl::OkStatus();
}

absl::Status
LoadedExecutable_AddressableDevices(PJRT_LoadedExecutable_AddressableDevices_Args *args)
{
    PJRT_CPU_NEED(args, executable);
    args->addressable_devices = args->executable->addressable_devices.data();
    args->num_addressable_devices = args->executable->addressable_devices.size();
    return absl::OkStatus();
}

absl::Status
LoadedExecutable_GetDeviceAssignment(PJRT_LoadedExecutable_GetDeviceAssignment_Args *args)
{
    PJRT_CPU_NEED(args, executable);
    PJRT_CPU_RETURN(CheckLoaded(args->executable));
    if (args->executable->portable)
        return absl::FailedPreconditionError(
            "a portable executable is assigned to no device; it runs where execute_device says");
    xla::DeviceAssignmentProto proto;
    args->executable->executable->device_assignment().Serialize(&proto);
    auto bytes = std::make_unique<std::string>();
    if (!proto.SerializeToString(bytes.get()))
        return absl::InternalError("the device assignment could not be serialized");
    Lend(std::move(bytes), &args->serialized_bytes, &args->serialized_bytes_size,
         &args->serialized_device_assignment, &args->serialized_device_assignment_deleter);
    return absl::OkStatus();
}

absl::Status LoadedExecutable_Delete(PJRT_LoadedExecutable_Delete_Args *args)
{
    PJRT_CPU_NEED(args, executable);
    /* XLA's CPU executable ignores Delete, so the handle remembers it. The program itself goes
     * with the handle: another thread may be launching it at this moment. */
    args->executable->deleted.store(true, std::memory_order_release);
    return absl::OkStatus();
}

absl::Status LoadedExecutable_IsDeleted(PJRT_LoadedExecutable_IsDeleted_Args *args)
{
    PJRT_CPU_NEED(args, executable);
    args->is_deleted = args->executable->deleted.load(std::memory_order_acquire);
    return absl::OkStatus();
}

absl::Status LoadedExecutable_Fingerprint(PJRT_LoadedExecutable_Fingerprint_Args *)
{
    return absl::UnimplementedError(
        "PJRT_LoadedExecutable_Fingerprint is deprecated; use PJRT_Executable_Fingerprint");
}

} // namespace pjrt_cpu
