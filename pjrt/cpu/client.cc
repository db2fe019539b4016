/*
 * Clients, devices and memories. A client of this plugin has N virtual devices, all of them threads
 * of this process over the same memory.
 */
#include "plugin.h"

#include <cstdlib>
#include <limits>

#include "absl/strings/numbers.h"
#include "xla/pjrt/plugin/xla_cpu/xla_cpu_pjrt_client.h"

/* From tensorflow/c/c_api.h, the only thing of TensorFlow proper that is used here. */
extern "C" const char *TF_Version(void);

PJRT_Device *PJRT_Client::Find(const xla::PjRtDevice *device) const
{
    for (PJRT_Device *handle : device_list) {
        if (handle->device == device)
            return handle;
    }
    return nullptr;
}

PJRT_Memory *PJRT_Client::Find(const xla::PjRtMemorySpace *memory) const
{
    for (PJRT_Memory *handle : memory_list) {
        if (handle->memory == memory)
            return handle;
    }
    return nullptr;
}

namespace pjrt_cpu
{

namespace
{

constexpr char kDeviceCountVariable[] = "TTT_CPU_DEVICES";

absl::Status CheckRange(absl::string_view name, int64_t value, int64_t low, int64_t high)
{
    if (value >= low && value <= high)
        return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("option \"", name, "\" is ", value,
                                                   ", it must lie between ", low, " and ", high));
}

absl::Status ReadOption(const PJRT_NamedValue &option, ClientOptions *out)
{
    if (option.struct_size < PJRT_NamedValue_STRUCT_SIZE || option.name == nullptr)
        return absl::InvalidArgumentError("a create option has no name or a wrong struct_size");
    absl::string_view name(option.name, option.name_size);
    if (name == "asynchronous") {
        PJRT_CPU_RETURN(CheckOption(option, PJRT_NamedValue_kBool));
        out->asynchronous = option.bool_value;
        return absl::OkStatus();
    }
    if (name == "messenger") {
        PJRT_CPU_RETURN(CheckOption(option, PJRT_NamedValue_kInt64));
        out->messenger =
            reinterpret_cast<const pjrt_messenger *>(static_cast<intptr_t>(option.int64_value));
        return absl::OkStatus();
    }
    int *target = nullptr;
    int64_t low = 0, high = 0;
    if (name == "cpu_device_count") {
        target = &out->device_count, low = 1, high = xla::kMaxCpuDevicesPerProcess;
    } else if (name == "node_id") {
        target = &out->process_id, low = 0, high = 65535;
    } else if (name == "num_nodes") {
        target = &out->num_processes, low = 1, high = 65536;
    } else {
        return absl::InvalidArgumentError(
            absl::StrCat("option \"", name,
                         "\" is not known; the CPU plugin takes cpu_device_count, asynchronous, "
                         "node_id, num_nodes and messenger"));
    }
    PJRT_CPU_RETURN(CheckOption(option, PJRT_NamedValue_kInt64));
    PJRT_CPU_RETURN(CheckRange(name, option.int64_value, low, high));
    *target = static_cast<int>(option.int64_value);
    return absl::OkStatus();
}

} // namespace

absl::StatusOr<ClientOptions> ReadClientOptions(const PJRT_NamedValue *options, size_t count)
{
    ClientOptions out;
    if (const char *text = std::getenv(kDeviceCountVariable)) {
        if (!absl::SimpleAtoi(text, &out.device_count))
            return absl::InvalidArgumentError(
                absl::StrCat(kDeviceCountVariable, " is \"", text, "\", not a number"));
        PJRT_CPU_RETURN(
            CheckRange(kDeviceCountVariable, out.device_count, 1, xla::kMaxCpuDevicesPerProcess));
    }
    if (count != 0 && options == nullptr)
        return absl::InvalidArgumentError("create_options is NULL");
    for (size_t i = 0; i < count; i++)
        PJRT_CPU_RETURN(ReadOption(options[i], &out));
    if (out.process_id >= out.num_processes)
        return absl::InvalidArgumentError(absl::StrCat("option \"node_id\" is ", out.process_id,
                                                       ", but \"num_nodes\" is ",
                                                       out.num_processes));
    return out;
}

absl::StatusOr<std::unique_ptr<xla::PjRtClient>> NewXlaClient(const ClientOptions &options)
{
    xla::CpuClientOptions out;
    out.asynchronous = options.asynchronous;
    out.process_id = options.process_id;
    out.collectives = options.collectives;
    if (options.num_processes == 1) {
        out.cpu_device_count = options.device_count;
        return xla::GetXlaPjrtCpuClient(std::move(out));
    }

    /* The other processes' devices are made known; machine features are taken to be the same. */
    ClientOptions alone = options;
    alone.num_processes = 1;
    alone.process_id = 0;
    alone.device_count = 1;
    alone.collectives = nullptr;
    PJRT_CPU_ASSIGN(std::unique_ptr<xla::PjRtClient> probe, NewXlaClient(alone));
    PJRT_CPU_ASSIGN(const xla::PjRtTopologyDescription *local, probe->GetTopologyDescription());
    std::vector<xla::CpuTopology::CpuDevice> devices;
    for (int process = 0; process < options.num_processes; process++) {
        int count = options.counts.empty() ? options.device_count : options.counts[process];
        for (int device = 0; device < count; device++)
            devices.push_back({process, device});
    }
    xla::CpuTopologyDescription topology(local->platform_id(), local->platform_name(),
                                         local->platform_version(), devices,
                                         static_cast<const xla::CpuTopologyDescription *>(local)
                                             ->cpu_topology()
                                             .machine_attributes());
    out.topology = &topology;
    out.cpu_device_count = static_cast<int>(devices.size());
    return xla::GetXlaPjrtCpuClient(std::move(out));
}

namespace
{

/* What every process says of itself: "2 2.21.0". */
absl::StatusOr<int> ReadIntroduction(int process, const std::string &theirs,
                                     const std::string &mine)
{
    auto version = [](const std::string &text) { return text.substr(text.find(' ') + 1); };
    int count = 0;
    if (!absl::SimpleAtoi(theirs.substr(0, theirs.find(' ')), &count) || count < 1 ||
        count > xla::kMaxCpuDevicesPerProcess)
        return absl::InternalError(
            absl::StrCat("process ", process, " says it has \"", theirs, "\" devices"));
    if (version(theirs) != version(mine))
        return absl::FailedPreconditionError(
            absl::StrCat("process ", process, " has XLA of TensorFlow ", version(theirs),
                         ", this one of ", version(mine), ": they must be the same"));
    return count;
}

/* Learns how many devices the others have, and makes the collectives. */
absl::Status MeetOthers(const PJRT_Client_Create_Args *args, ClientOptions *options)
{
    PJRT_CPU_ASSIGN(std::shared_ptr<KeyValueStore> store, KeyValueStore::From(args));
    const std::string mine = absl::StrCat(options->device_count, " ", TF_Version());
    auto key = [](int process) { return absl::StrCat("cpu/devices/", process); };
    PJRT_CPU_ASSIGN(std::string kept, store->PutOnce(key(options->process_id), mine));
    if (kept != mine)
        return absl::FailedPreconditionError(
            absl::StrCat("process ", options->process_id, " had a client of \"", kept,
                         "\" devices before, and cannot have one of \"", mine, "\" now"));
    for (int process = 0; process < options->num_processes; process++) {
        /* The store has its own idea of how long to wait at most. */
        PJRT_CPU_ASSIGN(std::string theirs,
                        store->Get(key(process), std::numeric_limits<int>::max()));
        PJRT_CPU_ASSIGN(int count, ReadIntroduction(process, theirs, mine));
        options->counts.push_back(count);
    }
    options->collectives = NewCollectives(options->messenger, store, options->process_id);
    return absl::OkStatus();
}

} // namespace

/* A number for the set of features that code was compiled for: FNV-1a, the same in every build. */
absl::StatusOr<uint64_t> MachineFeatures(xla::PjRtClient *client)
{
    PJRT_CPU_ASSIGN(const xla::PjRtTopologyDescription *topology, client->GetTopologyDescription());
    uint64_t hash = 0xcbf29ce484222325;
    for (const std::string &feature : static_cast<const xla::CpuTopologyDescription *>(topology)
                                          ->cpu_topology()
                                          .machine_attributes()) {
        for (char c : feature + ",")
            hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    }
    return hash;
}

absl::Status Client_Create(PJRT_Client_Create_Args *args)
{
    PJRT_CPU_ASSIGN(ClientOptions options,
                    ReadClientOptions(args->create_options, args->num_options));
    if (options.num_processes > 1 && options.messenger != nullptr)
        PJRT_CPU_RETURN(MeetOthers(args, &options));
    auto out = std::make_unique<PJRT_Client>();
    PJRT_CPU_ASSIGN(out->client, NewXlaClient(options));
    out->has_collectives = options.collectives != nullptr;
    out->platform_name = std::string(out->client->platform_name());
    /* XLA's own answer is just "cpu". Serialized executables are tied to the library and to the
     * machine's features, so name both. */
    PJRT_CPU_ASSIGN(uint64_t features, MachineFeatures(out->client.get()));
    out->platform_version = absl::StrCat("XLA:CPU of tensorflow ", TF_Version(),
                                         ", machine features ", absl::Hex(features));
    for (xla::PjRtDevice *device : out->client->devices()) {
        PJRT_Device &handle = out->devices.emplace_back();
        handle.device = device;
        handle.client = out.get();
        FillDescription(&handle.description, &device->description());
        out->device_list.push_back(&handle);
    }
    for (xla::PjRtDevice *device : out->client->addressable_devices())
        out->addressable_devices.push_back(out->Find(device));
    for (xla::PjRtMemorySpace *memory : out->client->memory_spaces()) {
        PJRT_Memory &handle = out->memories.emplace_back();
        handle.memory = memory;
        handle.client = out.get();
        for (xla::PjRtDevice *device : memory->devices())
            handle.devices.push_back(out->Find(device));
        out->memory_list.push_back(&handle);
    }
    for (PJRT_Device *handle : out->addressable_devices) {
        for (xla::PjRtMemorySpace *memory : handle->device->memory_spaces())
            handle->memories.push_back(out->Find(memory));
        PJRT_CPU_ASSIGN(xla::PjRtMemorySpace * memory, handle->device->default_memory_space());
        handle->default_memory = out->Find(memory);
    }
    PJRT_CPU_ASSIGN(const xla::PjRtTopologyDescription *topology,
                    out->client->GetTopologyDescription());
    out->topology = WrapTopology(topology, nullptr);
    args->client = out.release();
    return absl::OkStatus();
}

absl::Status Client_Destroy(PJRT_Client_Destroy_Args *args)
{
    delete args->client;
    return absl::OkStatus();
}

absl::Status Client_PlatformName(PJRT_Client_PlatformName_Args *args)
{
    PJRT_CPU_NEED(args, client);
    args->platform_name = args->client->platform_name.data();
    args->platform_name_size = args->client->platform_name.size();
    return absl::OkStatus();
}

absl::Status Client_ProcessIndex(PJRT_Client_ProcessIndex_Args *args)
{
    PJRT_CPU_NEED(args, client);
    args->process_index = args->client->client->process_index();
    return absl::OkStatus();
}

absl::Status Client_PlatformVersion(PJRT_Client_PlatformVersion_Args *args)
{
    PJRT_CPU_NEED(args, client);
    args->platform_version = args->client->platform_version.data();
    args->platform_version_size = args->client->platform_version.size();
    return absl::OkStatus();
}

absl::Status Client_TopologyDescription(PJRT_Client_TopologyDescription_Args *args)
{
    PJRT_CPU_NEED(args, client);
    args->topology = args->client->topology.get();
    return absl::OkStatus();
}

absl::Status Client_Devices(PJRT_Client_Devices_Args *args)
{
    PJRT_CPU_NEED(args, client);
    args->devices = args->client->device_list.data();
    args->num_devices = args->client->device_list.size();
    return absl::OkStatus();
}

absl::Status Client_AddressableDevices(PJRT_Client_AddressableDevices_Args *args)
{
    PJRT_CPU_NEED(args, client);
    args->addressable_devices = args->client->addressable_devices.data();
    args->num_addressable_devices = args->client->addressable_devices.size();
    return absl::OkStatus();
}

absl::Status Client_LookupDevice(PJRT_Client_LookupDevice_Args *args)
{
    PJRT_CPU_NEED(args, client);
    for (PJRT_Device *device : args->client->device_list) {
        if (device->description.description->id() == args->id) {
            args->device = device;
            return absl::OkStatus();
        }
    }
    return absl::InvalidArgumentError(absl::StrCat("no device has the id ", args->id));
}

absl::Status Client_LookupAddressableDevice(PJRT_Client_LookupAddressableDevice_Args *args)
{
    PJRT_CPU_NEED(args, client);
    for (PJRT_Device *device : args->client->addressable_devices) {
        if (device->device->local_hardware_id().value() == args->local_hardware_id) {
            args->addressable_device = device;
            return absl::OkStatus();
        }
    }
    return absl::InvalidArgumentError(
        absl::StrCat("no addressable device has the local hardware id ", args->local_hardware_id));
}

absl::Status Client_AddressableMemories(PJRT_Client_AddressableMemories_Args *args)
{
    PJRT_CPU_NEED(args, client);
    args->addressable_memories = args->client->memory_list.data();
    args->num_addressable_memories = args->client->memory_list.size();
    return absl::OkStatus();
}

absl::Status Client_UpdateGlobalProcessInfo(PJRT_Client_UpdateGlobalProcessInfo_Args *)
{
    return absl::UnimplementedError(
        "XLA's CPU client keeps no state of other processes; there is nothing to update");
}

absl::Status Client_DefaultDeviceAssignment(PJRT_Client_DefaultDeviceAssignment_Args *args)
{
    PJRT_CPU_NEED(args, client);
    PJRT_CPU_NEED(args, default_assignment);
    int64_t devices = args->client->client->device_count();
    if (args->num_replicas < 1 || args->num_partitions < 1 ||
        int64_t{args->num_replicas} * args->num_partitions > devices)
        return absl::InvalidArgumentError(
            absl::StrCat(args->num_replicas, " replicas of ", args->num_partitions,
                         " partitions do not fit on ", devices, " devices"));
    size_t needed = static_cast<size_t>(args->num_replicas) * args->num_partitions;
    if (args->default_assignment_size < needed)
        return absl::InvalidArgumentError(absl::StrCat("default_assignment has room for ",
                                                       args->default_assignment_size,
                                                       " ids, needed are ", needed));
    PJRT_CPU_ASSIGN(
        xla::DeviceAssignment assignment,
        args->client->client->GetDefaultDeviceAssignment(args->num_replicas, args->num_partitions));
    int *out = args->default_assignment;
    for (int replica = 0; replica < args->num_replicas; replica++) {
        for (int partition = 0; partition < args->num_partitions; partition++)
            *out++ = static_cast<int>(assignment(replica, partition));
    }
    return absl::OkStatus();
}

absl::Status Client_DmaMap(PJRT_Client_DmaMap_Args *)
{
    return absl::UnimplementedError("the CPU copies without DMA; there is no memory to map");
}

absl::Status Client_DmaUnmap(PJRT_Client_DmaUnmap_Args *)
{
    return absl::UnimplementedError("the CPU copies without DMA; there is no memory to unmap");
}

absl::Status Device_GetDescription(PJRT_Device_GetDescription_Args *args)
{
    PJRT_CPU_NEED(args, device);
    args->device_description = &args->device->description;
    return absl::OkStatus();
}

absl::Status Device_IsAddressable(PJRT_Device_IsAddressable_Args *args)
{
    PJRT_CPU_NEED(args, device);
    args->is_addressable = args->device->device->IsAddressable();
    return absl::OkStatus();
}

absl::Status Device_LocalHardwareId(PJRT_Device_LocalHardwareId_Args *args)
{
    PJRT_CPU_NEED(args, device);
    args->local_hardware_id = args->device->device->local_hardware_id().value();
    return absl::OkStatus();
}

absl::Status Device_AddressableMemories(PJRT_Device_AddressableMemories_Args *args)
{
    PJRT_CPU_NEED(args, device);
    args->memories = args->device->memories.data();
    args->num_memories = args->device->memories.size();
    return absl::OkStatus();
}

absl::Status Device_DefaultMemory(PJRT_Device_DefaultMemory_Args *args)
{
    PJRT_CPU_NEED(args, device);
    if (args->device->default_memory == nullptr)
        return absl::InvalidArgumentError(
            "the device belongs to another process; its memory cannot be addressed");
    args->memory = args->device->default_memory;
    return absl::OkStatus();
}

absl::Status Device_MemoryStats(PJRT_Device_MemoryStats_Args *)
{
    return absl::UnimplementedError("XLA's CPU client counts no allocations; ask the operating "
                                    "system for the process's memory instead");
}

absl::Status Device_PoisonExecution(PJRT_Device_PoisonExecution_Args *)
{
    return absl::UnimplementedError("XLA's CPU client cannot poison a running execution");
}

absl::Status Device_CreateAsyncTrackingEvent(PJRT_Device_CreateAsyncTrackingEvent_Args *)
{
    return absl::UnimplementedError("XLA's CPU client has no tracking events; use "
                                    "PJRT_Event_Create for work of your own");
}

absl::Status AsyncTrackingEvent_Destroy(PJRT_AsyncTrackingEvent_Destroy_Args *args)
{
    if (args->event == nullptr)
        return absl::OkStatus();
    return absl::InvalidArgumentError("this plugin never made a tracking event");
}

absl::Status Memory_Id(PJRT_Memory_Id_Args *args)
{
    PJRT_CPU_NEED(args, memory);
    args->id = args->memory->memory->id();
    return absl::OkStatus();
}

absl::Status Memory_Kind(PJRT_Memory_Kind_Args *args)
{
    PJRT_CPU_NEED(args, memory);
    absl::string_view kind = args->memory->memory->kind();
    args->kind = kind.data();
    args->kind_size = kind.size();
    return absl::OkStatus();
}

absl::Status Memory_Kind_Id(PJRT_Memory_Kind_Id_Args *args)
{
    PJRT_CPU_NEED(args, memory);
    args->kind_id = args->memory->memory->kind_id();
    return absl::OkStatus();
}

absl::Status Memory_DebugString(PJRT_Memory_DebugString_Args *args)
{
    PJRT_CPU_NEED(args, memory);
    absl::string_view text = args->memory->memory->DebugString();
    args->debug_string = text.data();
    args->debug_string_size = text.size();
    return absl::OkStatus();
}

absl::Status Memory_ToString(PJRT_Memory_ToString_Args *args)
{
    PJRT_CPU_NEED(args, memory);
    absl::string_view text = args->memory->memory->ToString();
    args->to_string = text.data();
    args->to_string_size = text.size();
    return absl::OkStatus();
}

absl::Status Memory_AddressableByDevices(PJRT_Memory_AddressableByDevices_Args *args)
{
    PJRT_CPU_NEED(args, memory);
    args->devices = args->memory->devices.data();
    args->num_devices = args->memory->devices.size();
    return absl::OkStatus();
}

} // namespace pjrt_cpu
