/*
 * The Layouts extension: how arrays lie in memory, as XLA's own text form of a layout.
 */
#include "plugin.h"

namespace pjrt_cpu
{

namespace
{

absl::Status MemoryLayout_Destroy(PJRT_Layouts_MemoryLayout_Destroy_Args *args)
{
    delete args->layout;
    return absl::OkStatus();
}

absl::Status MemoryLayout_Serialize(PJRT_Layouts_MemoryLayout_Serialize_Args *args)
{
    PJRT_CPU_NEED(args, layout);
    auto text = std::make_unique<std::string>(args->layout->layout->Serialize());
    args->serialized_bytes = text->data();
    args->serialized_bytes_size = text->size();
    args->serialized_layout = reinterpret_cast<PJRT_Layouts_SerializedLayout *>(text.release());
    args->serialized_layout_deleter = [](PJRT_Layouts_SerializedLayout *holder) {
        delete reinterpret_cast<std::string *>(holder);
    };
    return absl::OkStatus();
}

PJRT_Layouts_MemoryLayout *NewLayout(std::shared_ptr<const xla::PjRtLayout> layout)
{
    return new PJRT_Layouts_MemoryLayout{std::move(layout)};
}

absl::Status Buffer_MemoryLayout(PJRT_Layouts_PJRT_Buffer_MemoryLayout_Args *args)
{
    PJRT_CPU_NEED(args, buffer);
    if (!args->buffer->buffer->on_device_shape().has_layout())
        return absl::InvalidArgumentError("the buffer is not an array and has no layout");
    args->layout = NewLayout(args->buffer->buffer->layout());
    return absl::OkStatus();
}

absl::Status Client_GetDefaultLayout(PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args *args)
{
    PJRT_CPU_NEED(args, client);
    PJRT_CPU_ASSIGN(xla::Shape shape, ToShape(args->type, args->dims, args->num_dims, nullptr));
    PJRT_CPU_ASSIGN(xla::Layout layout, args->client->client->GetDefaultLayout(shape.element_type(),
                                                                               shape.dimensions()));
    args->layout = NewLayout(std::make_shared<xla::PjRtLayout>(std::move(layout)));
    return absl::OkStatus();
}

absl::Status Topology_GetDefaultLayout(PJRT_Layouts_PJRT_Topology_GetDefaultLayout_Args *args)
{
    PJRT_CPU_NEED(args, topology_description);
    PJRT_CPU_ASSIGN(xla::Shape shape, ToShape(args->type, args->dims, args->num_dims, nullptr));
    PJRT_CPU_ASSIGN(xla::Layout layout, args->topology_description->topology->GetDefaultLayout(
                                            shape.element_type(), shape.dimensions()));
    args->layout = NewLayout(std::make_shared<xla::PjRtLayout>(std::move(layout)));
    return absl::OkStatus();
}

absl::Status Executable_GetOutputLayouts(PJRT_Layouts_PJRT_Executable_GetOutputLayouts_Args *args)
{
    PJRT_CPU_NEED(args, executable);
    PJRT_Executable *handle = args->executable;
    std::lock_guard<std::mutex> lock(handle->mutex);
    if (!handle->has_output_layouts) {
        PJRT_CPU_ASSIGN(auto layouts, handle->executable->GetOutputLayouts());
        for (auto &layout : layouts) {
            handle->output_layouts.push_back({std::move(layout)});
            handle->output_layout_list.push_back(&handle->output_layouts.back());
        }
        handle->has_output_layouts = true;
    }
    args->num_outputs = handle->output_layout_list.size();
    args->layouts = handle->output_layout_list.data();
    return absl::OkStatus();
}

constexpr char kLayoutDestroy[] = "PJRT_Layouts_MemoryLayout_Destroy";
constexpr char kLayoutSerialize[] = "PJRT_Layouts_MemoryLayout_Serialize";
constexpr char kLayoutOfClient[] = "PJRT_Layouts_PJRT_Client_GetDefaultLayout";
constexpr char kLayoutOfBuffer[] = "PJRT_Layouts_PJRT_Buffer_MemoryLayout";
constexpr char kLayoutOfTopology[] = "PJRT_Layouts_PJRT_Topology_GetDefaultLayout";
constexpr char kLayoutsOfOutputs[] = "PJRT_Layouts_PJRT_Executable_GetOutputLayouts";

} // namespace

PJRT_Extension_Base *LayoutsExtension(PJRT_Extension_Base *next)
{
    static PJRT_Layouts_Extension extension = {
        {PJRT_Layouts_Extension_STRUCT_SIZE, PJRT_Extension_Type_Layouts, next},
        Entry<PJRT_Layouts_MemoryLayout_Destroy_Args, MemoryLayout_Destroy, kLayoutDestroy,
              PJRT_Layouts_MemoryLayout_Destroy_Args_STRUCT_SIZE>,
        Entry<PJRT_Layouts_MemoryLayout_Serialize_Args, MemoryLayout_Serialize, kLayoutSerialize,
              PJRT_Layouts_MemoryLayout_Serialize_Args_STRUCT_SIZE>,
        Entry<PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args, Client_GetDefaultLayout,
              kLayoutOfClient, PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args_STRUCT_SIZE>,
        Entry<PJRT_Layouts_PJRT_Buffer_MemoryLayout_Args, Buffer_MemoryLayout, kLayoutOfBuffer,
              PJRT_Layouts_PJRT_Buffer_MemoryLayout_Args_STRUCT_SIZE>,
        Entry<PJRT_Layouts_PJRT_Topology_GetDefaultLayout_Args, Topology_GetDefaultLayout,
              kLayoutOfTopology, PJRT_Layouts_PJRT_Topology_GetDefaultLayout_Args_STRUCT_SIZE>,
        Entry<PJRT_Layouts_PJRT_Executable_GetOutputLayouts_Args, Executable_GetOutputLayouts,
              kLayoutsOfOutputs, PJRT_Layouts_PJRT_Executable_GetOutputLayouts_Args_STRUCT_SIZE>,
    };
    return &extension.base;
}

} // namespace pjrt_cpu
