/* The fake plugin's clients, devices, topologies and what initialisation tells. */
#include "tests/fake/fake_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t stablehlo_version[] = {1, 13, 0};
static const PJRT_NamedValue attributes[] = {
    {.struct_size = PJRT_NamedValue_STRUCT_SIZE,
     .name = "name",
     .name_size = 4,
     .type = PJRT_NamedValue_kString,
     .string_value = "fake and more",
     .value_size = 4},
    {.struct_size = PJRT_NamedValue_STRUCT_SIZE,
     .name = "stablehlo_current_version",
     .name_size = 25,
     .type = PJRT_NamedValue_kInt64List,
     .int64_array_value = stablehlo_version,
     .value_size = 3},
    {.struct_size = PJRT_NamedValue_STRUCT_SIZE,
     .name = "cores",
     .name_size = 5,
     .type = PJRT_NamedValue_kInt64,
     .int64_value = -7,
     .value_size = 1},
    {.struct_size = PJRT_NamedValue_STRUCT_SIZE,
     .name = "clock",
     .name_size = 5,
     .type = PJRT_NamedValue_kFloat,
     .float_value = 1.5F,
     .value_size = 1},
    {.struct_size = PJRT_NamedValue_STRUCT_SIZE,
     .name = "fast",
     .name_size = 4,
     .type = PJRT_NamedValue_kBool,
     .bool_value = true,
     .value_size = 1},
    {.struct_size = PJRT_NamedValue_STRUCT_SIZE,
     .name = "new",
     .name_size = 3,
     .type = (PJRT_NamedValue_Type)42, /* a kind that the header does not know */
     .value_size = 1},
};
enum { N_ATTRIBUTES = sizeof attributes / sizeof *attributes };

static PJRT_Error *initialize(PJRT_Plugin_Initialize_Args *args)
{
    FAKE_ENTER(PJRT_Plugin_Initialize, args);
    return NULL;
}

static PJRT_Error *plugin_attributes(PJRT_Plugin_Attributes_Args *args)
{
    FAKE_ENTER(PJRT_Plugin_Attributes, args);
    args->attributes = attributes;
    args->num_attributes = N_ATTRIBUTES;
    return NULL;
}

/* ---- clients ---- */

void fake_see_options(const PJRT_NamedValue *options, size_t count)
{
    char *text = fake.seen.create_options;
    size_t room = sizeof fake.seen.create_options, n = strlen(text);
    for (size_t i = 0; i < count && n < room; i++) {
        const PJRT_NamedValue *o = &options[i];
        n += (size_t)snprintf(text + n, room - n, "%.*s=", (int)o->name_size, o->name);
        if (n >= room)
            return;
        switch (o->type) {
        case PJRT_NamedValue_kString:
            n += (size_t)snprintf(text + n, room - n, "%.*s;", (int)o->value_size, o->string_value);
            break;
        case PJRT_NamedValue_kInt64:
            n += (size_t)snprintf(text + n, room - n, "%lld;", (long long)o->int64_value);
            break;
        case PJRT_NamedValue_kInt64List:
            n += (size_t)snprintf(text + n, room - n, "%zu integers;", o->value_size);
            break;
        case PJRT_NamedValue_kFloat:
            n += (size_t)snprintf(text + n, room - n, "%g;", (double)o->float_value);
            break;
        case PJRT_NamedValue_kBool:
            n += (size_t)snprintf(text + n, room - n, "%s;", o->bool_value ? "true" : "false");
            break;
        }
    }
}

static void describe(PJRT_DeviceDescription *description, int id, int process)
{
    description->id = id;
    description->process = process;
    snprintf(description->text, sizeof description->text, "FakeDevice(id=%d)", id);
}

static PJRT_Error *callback_error(PJRT_Error_Code code, const char *message, size_t size)
{
    char text[256];
    snprintf(text, sizeof text, "%.*s", (int)size, message);
    return fake_make_error(code, text);
}

static void see_store(const char *what, PJRT_Error *error, const char *value, size_t size)
{
    size_t n = strlen(fake.seen.store), room = sizeof fake.seen.store;
    snprintf(fake.seen.store + n, room - n, "%s %d %.*s;", what,
             error == NULL ? 0 : (int)error->code, (int)size, value == NULL ? "" : value);
    if (error != NULL)
        fake_destroy(error, FAKE_ERROR, what);
}

/* As XLA does it: the value is copied and then given to the deleter; struct_size is not set. */
static void try_store(const PJRT_Client_Create_Args *args)
{
    PJRT_CallbackError make = callback_error;
    if (args->kv_get_callback == NULL || args->kv_put_callback == NULL ||
        args->kv_try_get_callback == NULL) {
        fake_violation("PJRT_Client_Create: the store needs all three callbacks");
        return;
    }
    for (int i = 0; i < 2; i++) {
        PJRT_KeyValuePutCallback_Args put = {.key = "key+",
                                             .key_size = 3,
                                             .value = "value+",
                                             .value_size = 5,
                                             .callback_error = &make,
                                             .user_arg = args->kv_put_user_arg};
        see_store("put", args->kv_put_callback(&put), NULL, 0);
    }
    PJRT_KeyValueGetCallback_Args get = {.key = "key+",
                                         .key_size = 3,
                                         .timeout_in_ms = 10,
                                         .callback_error = &make,
                                         .user_arg = args->kv_get_user_arg};
    PJRT_Error *error = args->kv_get_callback(&get);
    see_store("get", error, get.value, get.value_size);
    if (get.value != NULL)
        get.value_deleter_callback(get.value);
    PJRT_KeyValueTryGetCallback_Args missing = {.key = "nobody",
                                                .key_size = 6,
                                                .callback_error = &make,
                                                .user_arg = args->kv_try_get_user_arg};
    see_store("try", args->kv_try_get_callback(&missing), missing.value, missing.value_size);
}

static PJRT_Error *client_create(PJRT_Client_Create_Args *args)
{
    FAKE_ENTER(PJRT_Client_Create, args);
    fake_see_options(args->create_options, args->num_options);
    if (fake.use_store)
        try_store(args);
    PJRT_Client *client = fake_new(FAKE_CLIENT, sizeof *client, NULL);
    client->n_devices = fake.devices;
    client->n_all = fake.devices + fake.remote_devices;
    for (int i = 0; i < client->n_all; i++) {
        PJRT_Device *device = &client->devices[i];
        describe(&device->description, i, i < fake.devices ? 0 : 1);
        /* The default memory stands last, to see that it is asked for. */
        device->memories[0].kind = "pinned_host";
        device->memories[1].kind = "device";
        device->memory_list[0] = &device->memories[0];
        device->memory_list[1] = &device->memories[1];
        client->list[i] = device;
    }
    args->client = client;
    return NULL;
}

static PJRT_Error *client_destroy(PJRT_Client_Destroy_Args *args)
{
    FAKE_SCOPE;
    PJRT_Error *error = FAKE_TRY_ENTER(PJRT_Client_Destroy, args);
    fake_kind kind;
    if (fake_destroy(args->client, FAKE_CLIENT, "PJRT_Client_Destroy") &&
        fake_alive(args->client, &kind))
        fake_violation("PJRT_Client_Destroy: an object of kind %d outlives its client", (int)kind);
    return error;
}

static PJRT_Error *platform_name(PJRT_Client_PlatformName_Args *args)
{
    FAKE_ENTER(PJRT_Client_PlatformName, args);
    fake_use(args->client, FAKE_CLIENT, "PJRT_Client_PlatformName");
    args->platform_name = "fake, cut here";
    args->platform_name_size = 4;
    return NULL;
}

static PJRT_Error *platform_version(PJRT_Client_PlatformVersion_Args *args)
{
    FAKE_ENTER(PJRT_Client_PlatformVersion, args);
    fake_use(args->client, FAKE_CLIENT, "PJRT_Client_PlatformVersion");
    args->platform_version = "fake 1.0";
    args->platform_version_size = 8;
    return NULL;
}

static PJRT_Error *process_index(PJRT_Client_ProcessIndex_Args *args)
{
    FAKE_ENTER(PJRT_Client_ProcessIndex, args);
    fake_use(args->client, FAKE_CLIENT, "PJRT_Client_ProcessIndex");
    args->process_index = 0;
    return NULL;
}

static PJRT_Error *devices(PJRT_Client_Devices_Args *args)
{
    FAKE_ENTER(PJRT_Client_Devices, args);
    fake_use(args->client, FAKE_CLIENT, "PJRT_Client_Devices");
    args->devices = args->client->list;
    args->num_devices = (size_t)args->client->n_all;
    return NULL;
}

static PJRT_Error *addressable_devices(PJRT_Client_AddressableDevices_Args *args)
{
    FAKE_ENTER(PJRT_Client_AddressableDevices, args);
    fake_use(args->client, FAKE_CLIENT, "PJRT_Client_AddressableDevices");
    args->addressable_devices = args->client->list;
    args->num_addressable_devices = (size_t)args->client->n_devices;
    return NULL;
}

/* ---- devices ---- */

static PJRT_Error *get_description(PJRT_Device_GetDescription_Args *args)
{
    FAKE_ENTER(PJRT_Device_GetDescription, args);
    args->device_description = &args->device->description;
    return NULL;
}

static PJRT_Error *description_id(PJRT_DeviceDescription_Id_Args *args)
{
    FAKE_ENTER(PJRT_DeviceDescription_Id, args);
    args->id = args->device_description->id;
    return NULL;
}

static PJRT_Error *description_process(PJRT_DeviceDescription_ProcessIndex_Args *args)
{
    FAKE_ENTER(PJRT_DeviceDescription_ProcessIndex, args);
    args->process_index = args->device_description->process;
    return NULL;
}

static PJRT_Error *description_kind(PJRT_DeviceDescription_Kind_Args *args)
{
    FAKE_ENTER(PJRT_DeviceDescription_Kind, args);
    args->device_kind = "fake chip, cut here";
    args->device_kind_size = 9;
    return NULL;
}

static PJRT_Error *description_text(PJRT_DeviceDescription_ToString_Args *args)
{
    FAKE_ENTER(PJRT_DeviceDescription_ToString, args);
    args->to_string = args->device_description->text;
    args->to_string_size = strlen(args->to_string);
    return NULL;
}

static PJRT_Error *description_attributes(PJRT_DeviceDescription_Attributes_Args *args)
{
    FAKE_ENTER(PJRT_DeviceDescription_Attributes, args);
    args->attributes = attributes;
    args->num_attributes = N_ATTRIBUTES;
    return NULL;
}

static PJRT_Error *local_hardware_id(PJRT_Device_LocalHardwareId_Args *args)
{
    FAKE_ENTER(PJRT_Device_LocalHardwareId, args);
    args->local_hardware_id = args->device->description.id + 100;
    return NULL;
}

static PJRT_Error *addressable_memories(PJRT_Device_AddressableMemories_Args *args)
{
    FAKE_ENTER(PJRT_Device_AddressableMemories, args);
    args->memories = args->device->memory_list;
    args->num_memories = 2;
    return NULL;
}

static PJRT_Error *default_memory(PJRT_Device_DefaultMemory_Args *args)
{
    FAKE_ENTER(PJRT_Device_DefaultMemory, args);
    args->memory = &args->device->memories[1];
    return NULL;
}

static PJRT_Error *memory_kind(PJRT_Memory_Kind_Args *args)
{
    FAKE_ENTER(PJRT_Memory_Kind, args);
    args->kind = args->memory->kind;
    args->kind_size = strlen(args->kind);
    return NULL;
}

static PJRT_Error *memory_stats(PJRT_Device_MemoryStats_Args *args)
{
    FAKE_ENTER(PJRT_Device_MemoryStats, args);
    args->bytes_in_use = 1000;
    args->bytes_limit = 5000;
    args->bytes_limit_is_set = true;
    args->peak_bytes_in_use = 77; /* not set: not to be believed */
    return NULL;
}

/* ---- topologies ---- */

static PJRT_Error *topology_create(PJRT_TopologyDescription_Create_Args *args)
{
    FAKE_ENTER(PJRT_TopologyDescription_Create, args);
    snprintf(fake.seen.topology, sizeof fake.seen.topology, "%.*s", (int)args->topology_name_size,
             args->topology_name);
    fake_see_options(args->create_options, args->num_options);
    PJRT_TopologyDescription *topology = fake_new(FAKE_TOPOLOGY, sizeof *topology, NULL);
    for (int i = 0; i < fake.devices; i++) {
        describe(&topology->descriptions[i], i, 0);
        topology->list[i] = &topology->descriptions[i];
    }
    args->topology = topology;
    return NULL;
}

static PJRT_Error *topology_destroy(PJRT_TopologyDescription_Destroy_Args *args)
{
    FAKE_SCOPE;
    PJRT_Error *error = FAKE_TRY_ENTER(PJRT_TopologyDescription_Destroy, args);
    fake_destroy(args->topology, FAKE_TOPOLOGY, "PJRT_TopologyDescription_Destroy");
    return error;
}

static PJRT_Error *topology_name(PJRT_TopologyDescription_PlatformName_Args *args)
{
    FAKE_ENTER(PJRT_TopologyDescription_PlatformName, args);
    fake_use(args->topology, FAKE_TOPOLOGY, "PJRT_TopologyDescription_PlatformName");
    args->platform_name = "fake";
    args->platform_name_size = 4;
    return NULL;
}

static PJRT_Error *topology_version(PJRT_TopologyDescription_PlatformVersion_Args *args)
{
    FAKE_ENTER(PJRT_TopologyDescription_PlatformVersion, args);
    fake_use(args->topology, FAKE_TOPOLOGY, "PJRT_TopologyDescription_PlatformVersion");
    args->platform_version = "ahead 1.0";
    args->platform_version_size = 9;
    return NULL;
}

static PJRT_Error *topology_devices(PJRT_TopologyDescription_GetDeviceDescriptions_Args *args)
{
    FAKE_ENTER(PJRT_TopologyDescription_GetDeviceDescriptions, args);
    fake_use(args->topology, FAKE_TOPOLOGY, "PJRT_TopologyDescription_GetDeviceDescriptions");
    args->descriptions = args->topology->list;
    args->num_descriptions = (size_t)fake.devices;
    return NULL;
}

void fake_fill_clients(PJRT_Api *api)
{
    api->PJRT_Plugin_Initialize = initialize;
    api->PJRT_Plugin_Attributes = plugin_attributes;
    api->PJRT_Client_Create = client_create;
    api->PJRT_Client_Destroy = client_destroy;
    api->PJRT_Client_PlatformName = platform_name;
    api->PJRT_Client_PlatformVersion = platform_version;
    api->PJRT_Client_ProcessIndex = process_index;
    api->PJRT_Client_Devices = devices;
    api->PJRT_Client_AddressableDevices = addressable_devices;
    api->PJRT_Device_GetDescription = get_description;
    api->PJRT_DeviceDescription_Id = description_id;
    api->PJRT_DeviceDescription_ProcessIndex = description_process;
    api->PJRT_DeviceDescription_Kind = description_kind;
    api->PJRT_DeviceDescription_ToString = description_text;
    api->PJRT_DeviceDescription_Attributes = description_attributes;
    api->PJRT_Device_LocalHardwareId = local_hardware_id;
    api->PJRT_Device_AddressableMemories = addressable_memories;
    api->PJRT_Device_DefaultMemory = default_memory;
    api->PJRT_Memory_Kind = memory_kind;
    api->PJRT_Device_MemoryStats = memory_stats;
    api->PJRT_TopologyDescription_Create = topology_create;
    api->PJRT_TopologyDescription_Destroy = topology_destroy;
    api->PJRT_TopologyDescription_PlatformName = topology_name;
    api->PJRT_TopologyDescription_PlatformVersion = topology_version;
    api->PJRT_TopologyDescription_GetDeviceDescriptions = topology_devices;
}
