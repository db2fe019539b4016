/*
 * Device descriptions and topologies. A CPU topology is a number of virtual devices of this very
 * kind of machine: "cpu:4" is four of them. It can be made without a client, written to bytes and
 * read back, and compiled for (compile.cc).
 */
#include "plugin.h"

#include "absl/strings/numbers.h"
#include "xla/pjrt/cpu/cpu_client.h"
#include "xla/pjrt/host_memory_spaces.h"
#include "xla/pjrt/proto/topology_description.pb.h"

namespace pjrt_cpu
{

namespace
{

/* Every CPU device has the same three memories, the first being its default one. XLA's CPU
 * descriptions do not list them, only its devices do. */
const std::vector<const PJRT_MemoryDescription *> &CpuMemories()
{
    static const auto *const memories = new std::vector<const PJRT_MemoryDescription *>{
        new PJRT_MemoryDescription{std::string(xla::CpuDeviceMemorySpace::kKind),
                                   xla::CpuDeviceMemorySpace::kKindId},
        new PJRT_MemoryDescription{std::string(xla::PinnedHostMemorySpace::kKind),
                                   xla::PinnedHostMemorySpace::kKindId},
        new PJRT_MemoryDescription{std::string(xla::UnpinnedHostMemorySpace::kKind),
                                   xla::UnpinnedHostMemorySpace::kKindId},
    };
    return *memories;
}

absl::StatusOr<int64_t> DeviceCountOfName(absl::string_view name)
{
    if (name.empty() || name == "cpu")
        return 0;
    int64_t count = 0;
    if (name.substr(0, 4) != "cpu:" || !absl::SimpleAtoi(name.substr(4), &count) || count < 1)
        return absl::InvalidArgumentError(
            absl::StrCat("topology \"", name, "\" is not one of a CPU; use \"cpu\" or \"cpu:N\""));
    return count;
}

absl::Status DescriptionOf(const PJRT_DeviceDescription *handle)
{
    if (handle == nullptr)
        return absl::InvalidArgumentError("device_description is NULL");
    return absl::OkStatus();
}

} // namespace

void FillDescription(PJRT_DeviceDescription *out, const xla::PjRtDeviceDescription *description)
{
    out->description = description;
    out->attributes.AddAll(description->Attributes());
    out->memories = &CpuMemories();
}

std::unique_ptr<PJRT_TopologyDescription>
WrapTopology(const xla::PjRtTopologyDescription *topology,
             std::unique_ptr<xla::PjRtTopologyDescription> owned)
{
    auto out = std::make_unique<PJRT_TopologyDescription>();
    out->topology = topology;
    out->owned = std::move(owned);
    out->attributes.AddAll(topology->Attributes());
    for (auto &description : topology->DeviceDescriptions()) {
        PJRT_DeviceDescription &handle = out->descriptions.emplace_back();
        FillDescription(&handle, description.get());
        handle.owned = std::move(description);
        out->description_list.push_back(&handle);
    }
    return out;
}

absl::Status TopologyDescription_Create(PJRT_TopologyDescription_Create_Args *args)
{
    absl::string_view name;
    if (args->topology_name != nullptr)
        name = absl::string_view(args->topology_name, args->topology_name_size);
    PJRT_CPU_ASSIGN(int64_t named, DeviceCountOfName(name));
    PJRT_CPU_ASSIGN(ClientOptions options,
                    ReadClientOptions(args->create_options, args->num_options));
    if (named > xla::kMaxCpuDevicesPerProcess)
        return absl::InvalidArgumentError(
            absl::StrCat("a CPU topology has at most ", xla::kMaxCpuDevicesPerProcess, " devices"));
    if (named > 0)
        options.device_count = static_cast<int>(named);
    /* The machine's features are part of a topology, and a client is what finds them out. */
    PJRT_CPU_ASSIGN(std::unique_ptr<xla::PjRtClient> client, NewXlaClient(options));
    PJRT_CPU_ASSIGN(const xla::PjRtTopologyDescription *topology, client->GetTopologyDescription());
    auto copy = std::make_unique<xla::CpuTopologyDescription>(
        static_cast<const xla::CpuTopologyDescription &>(*topology));
    const xla::PjRtTopologyDescription *borrowed = copy.get();
    args->topology = WrapTopology(borrowed, std::move(copy)).release();
    return absl::OkStatus();
}

absl::Status TopologyDescription_Destroy(PJRT_TopologyDescription_Destroy_Args *args)
{
    /* The one of a client belongs to it; a caller that destroys it all the same does no harm. */
    if (args->topology != nullptr && args->topology->owned != nullptr)
        delete args->topology;
    return absl::OkStatus();
}

absl::Status TopologyDescription_PlatformName(PJRT_TopologyDescription_PlatformName_Args *args)
{
    PJRT_CPU_NEED(args, topology);
    absl::string_view name = args->topology->topology->platform_name();
    args->platform_name = name.data();
    args->platform_name_size = name.size();
    return absl::OkStatus();
}

absl::Status
TopologyDescription_PlatformVersion(PJRT_TopologyDescription_PlatformVersion_Args *args)
{
    PJRT_CPU_NEED(args, topology);
    absl::string_view version = args->topology->topology->platform_version();
    args->platform_version = version.data();
    args->platform_version_size = version.size();
    return absl::OkStatus();
}

absl::Status
TopologyDescription_GetDeviceDescriptions(PJRT_TopologyDescription_GetDeviceDescriptions_Args *args)
{
    PJRT_CPU_NEED(args, topology);
    args->descriptions = args->topology->description_list.data();
    args->num_descriptions = args->topology->description_list.size();
    return absl::OkStatus();
}

absl::Status TopologyDescription_Serialize(PJRT_TopologyDescription_Serialize_Args *args)
{
    PJRT_CPU_NEED(args, topology);
    PJRT_CPU_ASSIGN(xla::PjRtTopologyDescriptionProto proto, args->topology->topology->ToProto());
    auto bytes = std::make_unique<std::string>();
    if (!proto.SerializeToString(bytes.get()))
        return absl::InternalError("the topology could not be serialized");
    args->serialized_bytes = bytes->data();
    args->serialized_bytes_size = bytes->size();
    args->serialized_topology = reinterpret_cast<PJRT_SerializedTopology *>(bytes.release());
    args->serialized_topology_deleter = [](PJRT_SerializedTopology *holder) {
        delete reinterpret_cast<std::string *>(holder);
    };
    return absl::OkStatus();
}

absl::Status TopologyDescription_Deserialize(PJRT_TopologyDescription_Deserialize_Args *args)
{
    PJRT_CPU_NEED(args, serialized_topology);
    xla::PjRtTopologyDescriptionProto proto;
    if (args->serialized_topology_size > INT32_MAX ||
        !proto.ParseFromArray(args->serialized_topology,
                              static_cast<int>(args->serialized_topology_size)))
        return absl::InvalidArgumentError("the bytes are not a serialized topology");
    if (proto.platform_name() != xla::CpuName())
        return absl::InvalidArgumentError(absl::StrCat("the topology is one of platform \"",
                                                       proto.platform_name(), "\", not of cpu"));
    PJRT_CPU_ASSIGN(std::unique_ptr<xla::CpuTopologyDescription> topology,
                    xla::CpuTopologyDescription::FromProto(proto));
    const xla::PjRtTopologyDescription *borrowed = topology.get();
    args->topology = WrapTopology(borrowed, std::move(topology)).release();
    return absl::OkStatus();
}

absl::Status TopologyDescription_Attributes(PJRT_TopologyDescription_Attributes_Args *args)
{
    PJRT_CPU_NEED(args, topology);
    args->attributes = args->topology->attributes.data();
    args->num_attributes = args->topology->attributes.size();
    return absl::OkStatus();
}

absl::Status DeviceDescription_Id(PJRT_DeviceDescription_Id_Args *args)
{
    PJRT_CPU_RETURN(DescriptionOf(args->device_description));
    args->id = args->device_description->description->id();
    return absl::OkStatus();
}

absl::Status DeviceDescription_ProcessIndex(PJRT_DeviceDescription_ProcessIndex_Args *args)
{
    PJRT_CPU_RETURN(DescriptionOf(args->device_description));
    args->process_index = args->device_description->description->process_index();
    return absl::OkStatus();
}

absl::Status DeviceDescription_Attributes(PJRT_DeviceDescription_Attributes_Args *args)
{
    PJRT_CPU_RETURN(DescriptionOf(args->device_description));
    args->attributes = args->device_description->attributes.data();
    args->num_attributes = args->device_description->attributes.size();
    return absl::OkStatus();
}

absl::Status DeviceDescription_Kind(PJRT_DeviceDescription_Kind_Args *args)
{
    PJRT_CPU_RETURN(DescriptionOf(args->device_description));
    absl::string_view kind = args->device_description->description->device_kind();
    args->device_kind = kind.data();
    args->device_kind_size = kind.size();
    return absl::OkStatus();
}

absl::Status DeviceDescription_DebugString(PJRT_DeviceDescription_DebugString_Args *args)
{
    PJRT_CPU_RETURN(DescriptionOf(args->device_description));
    absl::string_view text = args->device_description->description->DebugString();
    args->debug_string = text.data();
    args->debug_string_size = text.size();
    return absl::OkStatus();
}

absl::Status DeviceDescription_ToString(PJRT_DeviceDescription_ToString_Args *args)
{
    PJRT_CPU_RETURN(DescriptionOf(args->device_description));
    absl::string_view text = args->device_description->description->ToString();
    args->to_string = text.data();
    args->to_string_size = text.size();
    return absl::OkStatus();
}

namespace
{

absl::Status MemoryDescriptions(PJRT_DeviceDescription_MemoryDescriptions_Args *args)
{
    PJRT_CPU_RETURN(DescriptionOf(args->device_description));
    args->memory_descriptions = args->device_description->memories->data();
    args->num_memory_descriptions = args->device_description->memories->size();
    args->default_memory_index = 0;
    return absl::OkStatus();
}

absl::Status MemoryDescriptionKind(PJRT_MemoryDescription_Kind_Args *args)
{
    PJRT_CPU_NEED(args, memory_description);
    args->kind = args->memory_description->kind.data();
    args->kind_size = args->memory_description->kind.size();
    args->kind_id = args->memory_description->kind_id;
    return absl::OkStatus();
}

constexpr char kMemoryDescriptions[] = "PJRT_DeviceDescription_MemoryDescriptions";
constexpr char kMemoryDescriptionKind[] = "PJRT_MemoryDescription_Kind";

} // namespace

PJRT_Extension_Base *MemoryDescriptionsExtension(PJRT_Extension_Base *next)
{
    static PJRT_MemoryDescriptions_Extension extension = {
        {PJRT_MemoryDescriptions_Extension_STRUCT_SIZE, PJRT_Extension_Type_MemoryDescriptions,
         next},
        Entry<PJRT_DeviceDescription_MemoryDescriptions_Args, MemoryDescriptions,
              kMemoryDescriptions, PJRT_DeviceDescription_MemoryDescriptions_Args_STRUCT_SIZE>,
        Entry<PJRT_MemoryDescription_Kind_Args, MemoryDescriptionKind, kMemoryDescriptionKind,
              PJRT_MemoryDescription_Kind_Args_STRUCT_SIZE>,
    };
    return &extension.base;
}

} // namespace pjrt_cpu
