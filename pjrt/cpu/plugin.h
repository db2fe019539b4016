/*
 * Private header of the CPU plugin: the handles behind the PJRT C API's opaque types, and the few
 * helpers that every source file shares. It is also the precompiled header: XLA's headers take
 * most of a minute to read, so they are named here and read once.
 *
 * Every entry point of the API is a function of namespace pjrt_cpu named as in the C API without
 * its PJRT_ prefix; it takes the argument struct and returns a Status. Entry<> wraps it into the C
 * function of the table: it checks the struct's size, keeps exceptions inside, and turns the
 * Status into a PJRT_Error.
 */
#ifndef TTT_PJRT_CPU_PLUGIN_H
#define TTT_PJRT_CPU_PLUGIN_H

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "collectives.h"
#include "mlir/IR/BuiltinOps.h"
#include "xla/future.h"
#include "xla/hlo/ir/hlo_module.h"
#include "xla/layout.h"
#include "xla/pjrt/c/pjrt_c_api.h"
#include "xla/pjrt/c/pjrt_c_api_ffi_extension.h"
#include "xla/pjrt/c/pjrt_c_api_layouts_extension.h"
#include "xla/pjrt/c/pjrt_c_api_memory_descriptions_extension.h"
#include "xla/pjrt/c/pjrt_c_api_profiler_extension.h"
#include "xla/pjrt/pjrt_client.h"
#include "xla/pjrt/pjrt_executable.h"
#include "xla/pjrt/plugin/xla_cpu/cpu_client_options.h"
#include "xla/pjrt/plugin/xla_cpu/cpu_execute_options.h"
#include "xla/pjrt/plugin/xla_cpu/cpu_topology_description.h"
#include "xla/shape.h"
#include "xla/shape_util.h"

/* Every entry of the table that returns an error, in one place: it declares the functions below
 * and fills the table in api.cc. The second form names the last field that a caller must have; what
 * comes after it in the struct was added to the API later and is optional. */
#define PJRT_CPU_ENTRIES(FULL, UPTO)                                 \
    FULL(Error_GetCode)                                              \
    FULL(Plugin_Initialize)                                          \
    FULL(Plugin_Attributes)                                          \
    FULL(Event_Destroy)                                              \
    FULL(Event_IsReady)                                              \
    FULL(Event_Error)                                                \
    FULL(Event_Await)                                                \
    FULL(Event_OnReady)                                              \
    FULL(Event_Create)                                               \
    FULL(Event_Set)                                                  \
    UPTO(Client_Create, client)                                      \
    FULL(Client_Destroy)                                             \
    FULL(Client_PlatformName)                                        \
    FULL(Client_ProcessIndex)                                        \
    FULL(Client_PlatformVersion)                                     \
    FULL(Client_TopologyDescription)                                 \
    FULL(Client_Devices)                                             \
    FULL(Client_AddressableDevices)                                  \
    FULL(Client_LookupDevice)                                        \
    FULL(Client_LookupAddressableDevice)                             \
    FULL(Client_AddressableMemories)                                 \
    FULL(Client_UpdateGlobalProcessInfo)                             \
    FULL(Client_DefaultDeviceAssignment)                             \
    FULL(Client_DmaMap)                                              \
    FULL(Client_DmaUnmap)                                            \
    FULL(Client_Compile)                                             \
    FULL(Client_BufferFromHostBuffer)                                \
    UPTO(Client_CreateViewOfDeviceBuffer, buffer)                    \
    FULL(Client_CreateUninitializedBuffer)                           \
    FULL(Client_CreateErrorBuffer)                                   \
    FULL(Client_CreateAliasBuffer)                                   \
    FULL(Client_FulfillAliasBuffer)                                  \
    FULL(Client_CreateBuffersForAsyncHostToDevice)                   \
    FULL(AsyncHostToDeviceTransferManager_Destroy)                   \
    FULL(AsyncHostToDeviceTransferManager_TransferData)              \
    FULL(AsyncHostToDeviceTransferManager_TransferLiteral)           \
    FULL(AsyncHostToDeviceTransferManager_RetrieveBuffer)            \
    FULL(AsyncHostToDeviceTransferManager_Device)                    \
    FULL(AsyncHostToDeviceTransferManager_BufferCount)               \
    FULL(AsyncHostToDeviceTransferManager_BufferSize)                \
    FULL(AsyncHostToDeviceTransferManager_SetBufferError)            \
    FULL(AsyncHostToDeviceTransferManager_AddMetadata)               \
    FULL(DeviceDescription_Id)                                       \
    FULL(DeviceDescription_ProcessIndex)                             \
    FULL(DeviceDescription_Attributes)                               \
    FULL(DeviceDescription_Kind)                                     \
    FULL(DeviceDescription_DebugString)                              \
    FULL(DeviceDescription_ToString)                                 \
    FULL(Device_GetDescription)                                      \
    FULL(Device_IsAddressable)                                       \
    FULL(Device_LocalHardwareId)                                     \
    FULL(Device_AddressableMemories)                                 \
    FULL(Device_DefaultMemory)                                       \
    FULL(Device_MemoryStats)                                         \
    FULL(Device_PoisonExecution)                                     \
    FULL(Device_CreateAsyncTrackingEvent)                            \
    FULL(AsyncTrackingEvent_Destroy)                                 \
    FULL(Memory_Id)                                                  \
    FULL(Memory_Kind)                                                \
    FULL(Memory_Kind_Id)                                             \
    FULL(Memory_DebugString)                                         \
    FULL(Memory_ToString)                                            \
    FULL(Memory_AddressableByDevices)                                \
    FULL(ExecuteContext_Create)                                      \
    FULL(ExecuteContext_Destroy)                                     \
    FULL(Executable_Destroy)                                         \
    FULL(Executable_Name)                                            \
    FULL(Executable_NumReplicas)                                     \
    FULL(Executable_NumPartitions)                                   \
    FULL(Executable_NumOutputs)                                      \
    FULL(Executable_SizeOfGeneratedCodeInBytes)                      \
    FULL(Executable_GetCostAnalysis)                                 \
    FULL(Executable_OutputElementTypes)                              \
    FULL(Executable_OutputDimensions)                                \
    FULL(Executable_OutputMemoryKinds)                               \
    FULL(Executable_OptimizedProgram)                                \
    FULL(Executable_Serialize)                                       \
    UPTO(Executable_DeserializeAndLoad, loaded_executable)           \
    FULL(Executable_Fingerprint)                                     \
    UPTO(Executable_GetCompiledMemoryStats, host_temp_size_in_bytes) \
    FULL(Executable_GetCompileOptions)                               \
    FULL(LoadedExecutable_Destroy)                                   \
    FULL(LoadedExecutable_GetExecutable)                             \
    FULL(LoadedExecutable_AddressableDevices)                        \
    FULL(LoadedExecutable_GetDeviceAssignment)                       \
    FULL(LoadedExecutable_Delete)                                    \
    FULL(LoadedExecutable_IsDeleted)                                 \
    FULL(LoadedExecutable_Execute)                                   \
    FULL(LoadedExecutable_Fingerprint)                               \
    FULL(Buffer_Destroy)                                             \
    FULL(Buffer_ElementType)                                         \
    FULL(Buffer_Dimensions)                                          \
    FULL(Buffer_UnpaddedDimensions)                                  \
    FULL(Buffer_DynamicDimensionIndices)                             \
    FULL(Buffer_GetMemoryLayout)                                     \
    FULL(Buffer_OnDeviceSizeInBytes)                                 \
    FULL(Buffer_Device)                                              \
    FULL(Buffer_Memory)                                              \
    FULL(Buffer_Delete)                                              \
    FULL(Buffer_IsDeleted)                                           \
    FULL(Buffer_CopyRawToHost)                                       \
    FULL(Buffer_CopyRawToHostFuture)                                 \
    FULL(Buffer_CopyToDevice)                                        \
    FULL(Buffer_CopyToMemory)                                        \
    FULL(Buffer_ToHostBuffer)                                        \
    FULL(Buffer_IsOnCpu)                                             \
    FULL(Buffer_ReadyEvent)                                          \
    FULL(Buffer_UnsafePointer)                                       \
    FULL(Buffer_IncreaseExternalReferenceCount)                      \
    FULL(Buffer_DecreaseExternalReferenceCount)                      \
    FULL(Buffer_OpaqueDeviceMemoryDataPointer)                       \
    FULL(Buffer_DonateWithControlDependency)                         \
    FULL(CopyToDeviceStream_Destroy)                                 \
    FULL(CopyToDeviceStream_AddChunk)                                \
    FULL(CopyToDeviceStream_TotalBytes)                              \
    FULL(CopyToDeviceStream_GranuleSize)                             \
    FULL(CopyToDeviceStream_CurrentBytes)                            \
    FULL(TopologyDescription_Create)                                 \
    FULL(TopologyDescription_Destroy)                                \
    FULL(TopologyDescription_PlatformName)                           \
    FULL(TopologyDescription_PlatformVersion)                        \
    FULL(TopologyDescription_GetDeviceDescriptions)                  \
    FULL(TopologyDescription_Serialize)                              \
    FULL(TopologyDescription_Deserialize)                            \
    FULL(TopologyDescription_Attributes)                             \
    FULL(Compile)

namespace pjrt_cpu
{

/* A list of named values with its own storage: what the API hands out as attributes. */
class NamedValues
{
  public:
    NamedValues() = default;
    NamedValues(const NamedValues &) = delete;
    NamedValues &operator=(const NamedValues &) = delete;
    void Add(absl::string_view name, xla::PjRtValueType value);
    template <typename Map> void AddAll(const Map &map)
    {
        for (const auto &[name, value] : map)
            Add(name, value);
    }
    const PJRT_NamedValue *data() const
    {
        return values_.data();
    }
    size_t size() const
    {
        return values_.size();
    }

  private:
    std::deque<std::pair<std::string, xla::PjRtValueType>> storage_;
    std::vector<PJRT_NamedValue> values_;
};

} // namespace pjrt_cpu

struct PJRT_Error {
    absl::Status status;
};

struct PJRT_Event {
    explicit PJRT_Event(xla::Future<> f) : future(std::move(f))
    {
    }
    xla::Future<> future;
    /* Only an event made by PJRT_Event_Create has a promise; `set` says that it was kept. */
    std::optional<xla::Promise<>> promise;
    std::atomic<bool> set{false};
};

struct PJRT_MemoryDescription {
    std::string kind;
    int kind_id;
};

struct PJRT_DeviceDescription {
    const xla::PjRtDeviceDescription *description = nullptr;
    std::unique_ptr<const xla::PjRtDeviceDescription> owned;
    pjrt_cpu::NamedValues attributes;
    /* The process's own list, the same for every CPU device. */
    const std::vector<const PJRT_MemoryDescription *> *memories = nullptr;
};

struct PJRT_Memory {
    xla::PjRtMemorySpace *memory = nullptr;
    PJRT_Client *client = nullptr;
    std::vector<PJRT_Device *> devices;
};

struct PJRT_Device {
    xla::PjRtDevice *device = nullptr;
    PJRT_Client *client = nullptr;
    PJRT_DeviceDescription description;
    std::vector<PJRT_Memory *> memories;
    PJRT_Memory *default_memory = nullptr;
};

struct PJRT_TopologyDescription {
    const xla::PjRtTopologyDescription *topology = nullptr;
    std::unique_ptr<xla::PjRtTopologyDescription> owned;
    std::deque<PJRT_DeviceDescription> descriptions;
    std::vector<PJRT_DeviceDescription *> description_list;
    pjrt_cpu::NamedValues attributes;
};

struct PJRT_Client {
    std::unique_ptr<xla::PjRtClient> client;
    std::deque<PJRT_Device> devices;
    std::deque<PJRT_Memory> memories;
    std::vector<PJRT_Device *> device_list;
    std::vector<PJRT_Device *> addressable_devices;
    std::vector<PJRT_Memory *> memory_list;
    std::unique_ptr<PJRT_TopologyDescription> topology;
    std::string platform_name;
    std::string platform_version;
    bool has_collectives = false; /* between processes */

    PJRT_Device *Find(const xla::PjRtDevice *device) const;
    PJRT_Memory *Find(const xla::PjRtMemorySpace *memory) const;
};

struct PJRT_Buffer {
    PJRT_Buffer(std::unique_ptr<xla::PjRtBuffer> b, PJRT_Client *c)
        : buffer(std::move(b)), client(c)
    {
    }
    std::unique_ptr<xla::PjRtBuffer> buffer;
    PJRT_Client *client;

    /* Answers that the API wants to live as long as the buffer; made when first asked for. */
    struct Cached {
        std::vector<int64_t> unpadded_dims;
        std::vector<size_t> dynamic_dims;
        std::vector<int64_t> minor_to_major;
        bool has_unpadded_dims = false;
        bool has_dynamic_dims = false;
        bool has_layout = false;
        std::vector<std::unique_ptr<xla::PjRtBuffer::ExternalReference>> references;
    };
    std::mutex mutex;
    std::unique_ptr<Cached> cached;
    Cached &Cache()
    {
        if (!cached)
            cached = std::make_unique<Cached>();
        return *cached;
    }
};

struct PJRT_FulfillAliasBufferCallback {
    xla::PjRtFulfillAliasBufferCallback callback;
};

struct PJRT_Layouts_MemoryLayout {
    std::shared_ptr<const xla::PjRtLayout> layout;
};

struct PJRT_Executable {
    std::shared_ptr<xla::PjRtExecutable> executable;

    std::mutex mutex;
    std::optional<std::vector<PJRT_Buffer_Type>> output_types;
    std::vector<int64_t> output_dims;
    std::vector<size_t> output_dim_counts;
    std::optional<std::vector<std::string>> memory_kinds;
    std::vector<const char *> memory_kind_pointers;
    std::vector<size_t> memory_kind_sizes;
    std::optional<std::string> fingerprint;
    std::optional<pjrt_cpu::NamedValues> costs;
    std::string optimized_program;
    std::deque<PJRT_Layouts_MemoryLayout> output_layouts;
    std::vector<PJRT_Layouts_MemoryLayout *> output_layout_list;
    bool has_output_layouts = false;
};

struct PJRT_LoadedExecutable {
    std::shared_ptr<xla::PjRtLoadedExecutable> executable;
    PJRT_Client *client = nullptr;
    std::vector<PJRT_Device *> addressable_devices;
    /* What Execute needs at every call, worked out once. A parameter that is not a static array
     * (a token, a bounded shape) is not checked by us. */
    std::vector<xla::Shape> parameters;
    size_t num_outputs = 0;
    bool portable = false;
    bool spans_processes = false;
    std::atomic<bool> deleted{false};
};

struct PJRT_ExecuteContext {
    std::unique_ptr<xla::ExecuteContext> context;
};

namespace pjrt_cpu
{

/* errors (api.cc) */
PJRT_Error *ToError(absl::Status status) noexcept;
absl::Status FromCode(PJRT_Error_Code code, const char *message, size_t message_size);
absl::Status CheckStruct(const char *name, const void *args, size_t actual, size_t wanted);

/* types, shapes and layouts (types.cc) */
absl::StatusOr<xla::PrimitiveType> ToPrimitiveType(PJRT_Buffer_Type type);
PJRT_Buffer_Type FromPrimitiveType(xla::PrimitiveType type);
absl::StatusOr<xla::Layout> ToLayout(const PJRT_Buffer_MemoryLayout &layout, size_t rank);
absl::StatusOr<xla::Shape> ToShape(PJRT_Buffer_Type type, const int64_t *dims, size_t num_dims,
                                   const PJRT_Buffer_MemoryLayout *layout);
absl::Status CheckOption(const PJRT_NamedValue &option, PJRT_NamedValue_Type type);

/* events (event.cc) */
PJRT_Event *NewEvent(xla::Future<> future);
PJRT_Event *NewReadyEvent();

/* buffers (buffer.cc) */
PJRT_Buffer *NewBuffer(std::unique_ptr<xla::PjRtBuffer> buffer, PJRT_Client *client);
absl::StatusOr<xla::PjRtMemorySpace *>
PickMemory(const PJRT_Client *client, const PJRT_Device *device, const PJRT_Memory *memory);

/* descriptions (topology.cc) */
void FillDescription(PJRT_DeviceDescription *out, const xla::PjRtDeviceDescription *description);
std::unique_ptr<PJRT_TopologyDescription>
WrapTopology(const xla::PjRtTopologyDescription *topology,
             std::unique_ptr<xla::PjRtTopologyDescription> owned);

/* clients (client.cc) */
struct ClientOptions {
    int device_count = 1;
    int process_id = 0;
    int num_processes = 1;
    bool asynchronous = true;
    const pjrt_messenger *messenger = nullptr;
    std::vector<int> counts; /* devices of every process; empty: all have as many as this one */
    std::shared_ptr<xla::cpu::CpuCollectives> collectives;
};
absl::StatusOr<std::unique_ptr<xla::PjRtClient>> NewXlaClient(const ClientOptions &options);
absl::StatusOr<ClientOptions> ReadClientOptions(const PJRT_NamedValue *options, size_t count);

/* executables (compile.cc, executable.cc) */
absl::StatusOr<xla::CompileOptions> ReadCompileOptions(const char *bytes, size_t size,
                                                       int device_count);
absl::StatusOr<PJRT_LoadedExecutable *>
NewLoadedExecutable(std::unique_ptr<xla::PjRtLoadedExecutable> executable, PJRT_Client *client);
absl::StatusOr<std::vector<xla::Shape>> OutputShapes(const xla::PjRtExecutable &executable);

/* extensions: each file makes its own and links the next one behind it */
PJRT_Extension_Base *LayoutsExtension(PJRT_Extension_Base *next);
PJRT_Extension_Base *FfiExtension(PJRT_Extension_Base *next);
PJRT_Extension_Base *MemoryDescriptionsExtension(PJRT_Extension_Base *next);
PJRT_Extension_Base *ProfilerExtension(PJRT_Extension_Base *next);

/* The C function around an entry point. */
template <typename Args, absl::Status (*Function)(Args *), const char *Name, size_t Wanted>
PJRT_Error *Entry(Args *args) noexcept
{
    try {
        if (args == nullptr || args->struct_size < Wanted)
            return ToError(CheckStruct(Name, args, args ? args->struct_size : 0, Wanted));
        absl::Status status = Function(args);
        return status.ok() ? nullptr : ToError(std::move(status));
    } catch (const std::bad_alloc &) {
        return ToError(absl::ResourceExhaustedError("out of host memory"));
    } catch (const std::exception &error) {
        return ToError(absl::InternalError(error.what()));
    } catch (...) {
        return ToError(absl::InternalError("unknown C++ exception"));
    }
}

#define PJRT_CPU_DECLARE(name)                   \
    absl::Status name(PJRT_##name##_Args *args); \
    inline constexpr char k##name[] = "PJRT_" #name;
#define PJRT_CPU_DECLARE_UPTO(name, field) PJRT_CPU_DECLARE(name)
PJRT_CPU_ENTRIES(PJRT_CPU_DECLARE, PJRT_CPU_DECLARE_UPTO)
#undef PJRT_CPU_DECLARE
#undef PJRT_CPU_DECLARE_UPTO

} // namespace pjrt_cpu

/* True when the caller's struct is new enough to hold `field`. */
#define PJRT_CPU_HAS(args, type, field) ((args)->struct_size >= (PJRT_STRUCT_SIZE(type, field)))

/* Refuses a NULL that the API does not allow, naming the field. */
#define PJRT_CPU_NEED(args, field)                                                             \
    do {                                                                                       \
        if ((args)->field == nullptr)                                                          \
            return absl::InvalidArgumentError(absl::StrCat(__func__, ": " #field " is NULL")); \
    } while (0)

#define PJRT_CPU_RETURN(expression)          \
    do {                                     \
        absl::Status status_ = (expression); \
        if (!status_.ok())                   \
            return status_;                  \
    } while (0)

#define PJRT_CPU_JOIN_(a, b) a##b
#define PJRT_CPU_JOIN(a, b) PJRT_CPU_JOIN_(a, b)
#define PJRT_CPU_ASSIGN_(holder, target, expression) \
    auto holder = (expression);                      \
    if (!holder.ok())                                \
        return holder.status();                      \
    target = *std::move(holder)
#define PJRT_CPU_ASSIGN(target, expression) \
    PJRT_CPU_ASSIGN_(PJRT_CPU_JOIN(holder_, __LINE__), target, expression)

#endif
