/*
 * Programs and options in, executables out. StableHLO text, bytecode and portable artifacts go
 * through XLA's own MLIR import, which honours Shardy, layout modes and donation marks; a
 * serialized HloModuleProto goes in as it is.
 */
#include "plugin.h"

#include "absl/container/flat_hash_set.h"
#include "xla/hlo/builder/xla_computation.h"
#include "xla/pjrt/proto/compile_options.pb.h"
#include "xla/service/hlo.pb.h"

namespace xla
{

/* From xla/pjrt/mlir_to_hlo.h, whose other declarations need LLVM's headers. */
absl::StatusOr<mlir::OwningOpRef<mlir::ModuleOp>>
ParseMlirModuleString(absl::string_view mlir_module_str, mlir::MLIRContext &context);

} // namespace xla

namespace pjrt_cpu
{

namespace
{

absl::Status CheckAssignment(const xla::DeviceAssignmentProto &proto, int64_t replicas,
                             int64_t partitions)
{
    auto bad = [](absl::string_view what) {
        return absl::InvalidArgumentError(absl::StrCat("device_assignment: ", what));
    };
    if (proto.replica_count() != replicas || proto.computation_count() != partitions)
        return bad(absl::StrCat("it is for ", proto.replica_count(), " replicas and ",
                                proto.computation_count(), " partitions, the options for ",
                                replicas, " and ", partitions));
    if (proto.computation_devices_size() != partitions)
        return bad("it does not list the devices of every partition");
    absl::flat_hash_set<int64_t> seen;
    for (const auto &partition : proto.computation_devices()) {
        if (partition.replica_device_ids_size() != replicas)
            return bad("it does not list the devices of every replica");
        for (int64_t id : partition.replica_device_ids()) {
            if (!seen.insert(id).second)
                return bad(absl::StrCat("device ", id, " is used twice"));
        }
    }
    return absl::OkStatus();
}

/* Fills what a caller may leave out and refuses what XLA would only assert. */
absl::Status Sanitize(xla::CompileOptionsProto *proto, int device_count)
{
    xla::ExecutableBuildOptionsProto *build = proto->mutable_executable_build_options();
    if (build->num_replicas() == 0)
        build->set_num_replicas(1);
    if (build->num_partitions() == 0)
        build->set_num_partitions(1);
    int64_t replicas = build->num_replicas(), partitions = build->num_partitions();
    if (replicas < 1 || partitions < 1 || replicas > device_count || partitions > device_count ||
        replicas * partitions > device_count)
        return absl::InvalidArgumentError(
            absl::StrCat(replicas, " replicas of ", partitions, " partitions need ",
                         replicas * partitions, " devices, there are ", device_count,
                         "; create the client with cpu_device_count (or set TTT_CPU_DEVICES)"));
    if (build->device_ordinal() < -1 || build->device_ordinal() >= device_count)
        return absl::InvalidArgumentError(absl::StrCat("device_ordinal ", build->device_ordinal(),
                                                       " of ", device_count, " devices"));
    if (build->has_device_assignment())
        PJRT_CPU_RETURN(CheckAssignment(build->device_assignment(), replicas, partitions));
    if (proto->compile_portable_executable() &&
        (replicas != 1 || partitions != 1 || build->has_device_assignment()))
        return absl::InvalidArgumentError("a portable executable has one replica, one partition "
                                          "and no device_assignment");
    return absl::OkStatus();
}

absl::StatusOr<xla::HloModuleProto> ReadHlo(absl::string_view code)
{
    xla::HloModuleProto proto;
    if (code.size() > INT32_MAX ||
        !proto.ParseFromArray(code.data(), static_cast<int>(code.size())))
        return absl::InvalidArgumentError("the program is not a serialized HloModuleProto");
    if (proto.computations_size() == 0 || !proto.has_host_program_shape())
        return absl::InvalidArgumentError(
            "the HloModuleProto has no computation or no program shape");
    /* Building the module once checks it; the compiler itself trusts what it is given. */
    PJRT_CPU_ASSIGN(xla::HloModuleConfig config, xla::HloModule::CreateModuleConfigFromProto(
                                                     proto, xla::DebugOptions::default_instance()));
    auto module = xla::HloModule::CreateFromProto(proto, config);
    if (!module.ok())
        return module.status();
    return proto;
}

/* Compiles with `use(program)`, where program is an MLIR module or an XlaComputation. */
template <typename Use>
auto WithProgram(const PJRT_Program *program, Use use) -> decltype(use(mlir::ModuleOp()))
{
    if (program == nullptr || program->struct_size < PJRT_Program_STRUCT_SIZE)
        return absl::InvalidArgumentError("program is NULL or its struct_size is too small");
    if (program->code == nullptr || program->format == nullptr)
        return absl::InvalidArgumentError("the program has no code or no format");
    absl::string_view code(program->code, program->code_size);
    absl::string_view format(program->format, program->format_size);
    if (format == "mlir") {
        mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
        auto module = xla::ParseMlirModuleString(code, context);
        if (!module.ok()) /* XLA's code for it is UNKNOWN; the message has MLIR's diagnostics. */
            return absl::InvalidArgumentError(module.status().message());
        return use(module->get());
    }
    if (format == "hlo") {
        auto proto = ReadHlo(code);
        if (!proto.ok())
            return proto.status();
        return use(xla::XlaComputation(*std::move(proto)));
    }
    if (format == "hlo_with_config")
        return absl::UnimplementedError(
            "programs in format hlo_with_config are not taken; send its hlo_module as \"hlo\"");
    return absl::InvalidArgumentError(absl::StrCat(
        "program format \"", format, "\" is not known; the CPU plugin takes mlir and hlo"));
}

} // namespace

absl::StatusOr<xla::CompileOptions> ReadCompileOptions(const char *bytes, size_t size,
                                                       int device_count)
{
    xla::CompileOptionsProto proto;
    if (size != 0 && bytes == nullptr)
        return absl::InvalidArgumentError("compile_options is NULL");
    if (size > INT32_MAX || !proto.ParseFromArray(bytes, static_cast<int>(size)))
        return absl::InvalidArgumentError(
            "compile_options is not a serialized CompileOptionsProto");
    PJRT_CPU_RETURN(Sanitize(&proto, device_count));
    PJRT_CPU_ASSIGN(xla::CompileOptions options, xla::CompileOptions::FromProto(proto));
    /* XLA's default loses NaN in max and min, and with it every sign that a training run has gone
     * wrong. Whoever wants it faster can say so: overrides are applied after this. */
    if (!proto.executable_build_options().has_debug_options())
        options.executable_build_options.mutable_debug_options()
            ->set_xla_cpu_enable_fast_min_max(false);
    options.allow_in_place_mlir_modification = true;
    return options;
}

absl::Status Client_Compile(PJRT_Client_Compile_Args *args)
{
    PJRT_CPU_NEED(args, client);
    xla::PjRtClient *client = args->client->client.get();
    PJRT_CPU_ASSIGN(xla::CompileOptions options,
                    ReadCompileOptions(args->compile_options, args->compile_options_size,
                                       client->device_count()));
    PJRT_CPU_ASSIGN(std::unique_ptr<xla::PjRtLoadedExecutable> executable,
                    WithProgram(args->program, [&](auto &&program) {
                        return client->CompileAndLoad(program, std::move(options));
                    }));
    PJRT_CPU_ASSIGN(args->executable, NewLoadedExecutable(std::move(executable), args->client));
    return absl::OkStatus();
}

absl::Status Compile(PJRT_Compile_Args *args)
{
    PJRT_CPU_NEED(args, topology);
    const auto *topology =
        static_cast<const xla::CpuTopologyDescription *>(args->topology->topology);
    ClientOptions client_options;
    client_options.device_count = topology->cpu_topology().number_of_devices();
    for (const auto &device : topology->cpu_topology().devices()) {
        if (device.process_id != 0)
            return absl::UnimplementedError(
                "ahead-of-time compilation is for topologies of one process only");
    }
    PJRT_CPU_ASSIGN(xla::CompileOptions options,
                    ReadCompileOptions(args->compile_options, args->compile_options_size,
                                       client_options.device_count));
    /* The library registers no CPU compiler of its own; a client of the topology's size is one. */
    PJRT_CPU_ASSIGN(std::unique_ptr<xla::PjRtClient> client, NewXlaClient(client_options));
    PJRT_CPU_ASSIGN(std::unique_ptr<xla::PjRtExecutable> executable,
                    WithProgram(args->program, [&](auto &&program) {
                        return client->Compile(program, std::move(options));
                    }));
    auto out = std::make_unique<PJRT_Executable>();
    out->executable = std::move(executable);
    args->executable = out.release();
    return absl::OkStatus();
}

} // namespace pjrt_cpu
