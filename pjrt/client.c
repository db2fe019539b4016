/* Clients, their devices and memories, and the key-value store that several processes share. */
#include "pjrt/internal.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- the shared store ---- */

static void free_value(char *value)
{
    free(value);
}

/* The plugin does not fill struct_size in callback arguments, so there is nothing to check. */
static PJRT_Error *store_error(PJRT_CallbackError *make, pjrt_code code, const char *key,
                               size_t key_size)
{
    char message[256];
    int n = snprintf(message, sizeof message, "key-value store: %s: %.*s", pjrt_code_name(code),
                     key_size > 160 ? 160 : (int)key_size, key);
    return (*make)((PJRT_Error_Code)code, message, (size_t)n);
}

static PJRT_Error *on_get(PJRT_KeyValueGetCallback_Args *args)
{
    const pjrt_store *store = args->user_arg;
    pjrt_code code = store->get(store->user, args->key, args->key_size, args->timeout_in_ms,
                                &args->value, &args->value_size);
    args->value_deleter_callback = free_value;
    return code == PJRT_CODE_OK
               ? NULL
               : store_error(args->callback_error, code, args->key, args->key_size);
}

static PJRT_Error *on_try_get(PJRT_KeyValueTryGetCallback_Args *args)
{
    const pjrt_store *store = args->user_arg;
    pjrt_code code =
        store->try_get(store->user, args->key, args->key_size, &args->value, &args->value_size);
    args->value_deleter_callback = free_value;
    return code == PJRT_CODE_OK
               ? NULL
               : store_error(args->callback_error, code, args->key, args->key_size);
}

static PJRT_Error *on_put(PJRT_KeyValuePutCallback_Args *args)
{
    const pjrt_store *store = args->user_arg;
    pjrt_code code =
        store->put(store->user, args->key, args->key_size, args->value, args->value_size);
    return code == PJRT_CODE_OK
               ? NULL
               : store_error(args->callback_error, code, args->key, args->key_size);
}

/* ---- devices ---- */

static pjrt_status *describe_memories(pjrt_device *device)
{
    pjrt_plugin *plugin = device->client->plugin;
    if (!HAS(plugin, PJRT_Device_AddressableMemories) || !HAS(plugin, PJRT_Memory_Kind))
        return NULL;
    ARGS(PJRT_Device_AddressableMemories_Args, list, plugin);
    list.a.device = device->raw;
    PJRT_TRY(CALL(plugin, PJRT_Device_AddressableMemories, list));
    ARGS(PJRT_Device_DefaultMemory_Args, first, plugin);
    first.a.device = device->raw;
    PJRT_TRY(CALL(plugin, PJRT_Device_DefaultMemory, first));
    size_t count = list.a.num_memories;
    device->memories = calloc(count + 1, sizeof *device->memories);
    device->memory_kinds = calloc(count + 1, sizeof *device->memory_kinds);
    if (device->memories == NULL || device->memory_kinds == NULL)
        return PJRT_NO_MEMORY("pjrt_client_create");
    if (first.a.memory != NULL)
        device->memories[device->n_memories++] = first.a.memory;
    for (size_t i = 0; i < count; i++) {
        if (list.a.memories[i] != first.a.memory)
            device->memories[device->n_memories++] = list.a.memories[i];
    }
    for (size_t i = 0; i < device->n_memories; i++) {
        ARGS(PJRT_Memory_Kind_Args, kind, plugin);
        kind.a.memory = device->memories[i];
        PJRT_TRY(CALL(plugin, PJRT_Memory_Kind, kind));
        device->memory_kinds[i] = pjrt__copy_text(kind.a.kind, kind.a.kind_size);
        if (device->memory_kinds[i] == NULL)
            return PJRT_NO_MEMORY("pjrt_client_create");
    }
    return NULL;
}

/* What a device is called and whose it is: all there is to know of other processes' devices. */
static pjrt_status *identify(pjrt_plugin *plugin, PJRT_Device *raw,
                             PJRT_DeviceDescription **description, int *number, int *owner)
{
    ARGS(PJRT_Device_GetDescription_Args, get, plugin);
    get.a.device = raw;
    PJRT_TRY(CALL(plugin, PJRT_Device_GetDescription, get));
    *description = get.a.device_description;

    ARGS(PJRT_DeviceDescription_Id_Args, id, plugin);
    id.a.device_description = *description;
    PJRT_TRY(CALL(plugin, PJRT_DeviceDescription_Id, id));
    *number = id.a.id;

    ARGS(PJRT_DeviceDescription_ProcessIndex_Args, process, plugin);
    process.a.device_description = *description;
    PJRT_TRY(CALL(plugin, PJRT_DeviceDescription_ProcessIndex, process));
    *owner = process.a.process_index;
    return NULL;
}

static pjrt_status *describe_device(pjrt_client *client, PJRT_Device *raw, pjrt_device *device)
{
    pjrt_plugin *plugin = client->plugin;
    PJRT_DeviceDescription *description;
    device->client = client;
    device->raw = raw;
    PJRT_TRY(identify(plugin, raw, &description, &device->id, &device->process));

    device->local_id = -1;
    if (HAS(plugin, PJRT_Device_LocalHardwareId)) {
        ARGS(PJRT_Device_LocalHardwareId_Args, local, plugin);
        local.a.device = raw;
        PJRT_TRY(CALL(plugin, PJRT_Device_LocalHardwareId, local));
        device->local_id = local.a.local_hardware_id;
    }

    ARGS(PJRT_DeviceDescription_Kind_Args, kind, plugin);
    kind.a.device_description = description;
    PJRT_TRY(CALL(plugin, PJRT_DeviceDescription_Kind, kind));
    device->kind = pjrt__copy_text(kind.a.device_kind, kind.a.device_kind_size);

    ARGS(PJRT_DeviceDescription_ToString_Args, text, plugin);
    text.a.device_description = description;
    PJRT_TRY(CALL(plugin, PJRT_DeviceDescription_ToString, text));
    device->text = pjrt__copy_text(text.a.to_string, text.a.to_string_size);
    if (device->kind == NULL || device->text == NULL)
        return PJRT_NO_MEMORY("pjrt_client_create");

    ARGS(PJRT_DeviceDescription_Attributes_Args, attributes, plugin);
    attributes.a.device_description = description;
    PJRT_TRY(CALL(plugin, PJRT_DeviceDescription_Attributes, attributes));
    PJRT_TRY(pjrt__options_from_raw(attributes.a.attributes, attributes.a.num_attributes,
                                    &device->attributes));
    device->n_attributes = attributes.a.num_attributes;
    return describe_memories(device);
}

static void free_device(pjrt_device *device)
{
    free(device->kind);
    free(device->text);
    pjrt__options_free(device->attributes, device->n_attributes);
    free(device->memories);
    for (size_t i = 0; i < device->n_memories; i++)
        free(device->memory_kinds[i]);
    free(device->memory_kinds);
}

static pjrt_status *describe_devices(pjrt_client *client)
{
    pjrt_plugin *plugin = client->plugin;
    ARGS(PJRT_Client_Devices_Args, all, plugin);
    all.a.client = client->raw;
    PJRT_TRY(CALL(plugin, PJRT_Client_Devices, all));
    client->global_ids = calloc(all.a.num_devices + 1, sizeof *client->global_ids);
    client->global_processes = calloc(all.a.num_devices + 1, sizeof *client->global_processes);
    if (client->global_ids == NULL || client->global_processes == NULL)
        return PJRT_NO_MEMORY("pjrt_client_create");
    client->n_global_devices = all.a.num_devices;
    for (size_t i = 0; i < all.a.num_devices; i++) {
        PJRT_DeviceDescription *description;
        PJRT_TRY(identify(plugin, all.a.devices[i], &description, &client->global_ids[i],
                          &client->global_processes[i]));
    }

    ARGS(PJRT_Client_AddressableDevices_Args, mine, plugin);
    mine.a.client = client->raw;
    PJRT_TRY(CALL(plugin, PJRT_Client_AddressableDevices, mine));
    client->devices = calloc(mine.a.num_addressable_devices + 1, sizeof *client->devices);
    if (client->devices == NULL)
        return PJRT_NO_MEMORY("pjrt_client_create");
    for (size_t i = 0; i < mine.a.num_addressable_devices; i++) {
        client->n_devices = i + 1;
        PJRT_TRY(describe_device(client, mine.a.addressable_devices[i], &client->devices[i]));
    }
    return NULL;
}

/* ---- the client ---- */

static pjrt_status *describe_client(pjrt_client *client)
{
    pjrt_plugin *plugin = client->plugin;
    ARGS(PJRT_Client_PlatformName_Args, name, plugin);
    name.a.client = client->raw;
    PJRT_TRY(CALL(plugin, PJRT_Client_PlatformName, name));
    client->platform = pjrt__copy_text(name.a.platform_name, name.a.platform_name_size);

    ARGS(PJRT_Client_PlatformVersion_Args, version, plugin);
    version.a.client = client->raw;
    PJRT_TRY(CALL(plugin, PJRT_Client_PlatformVersion, version));
    client->platform_version =
        pjrt__copy_text(version.a.platform_version, version.a.platform_version_size);
    if (client->platform == NULL || client->platform_version == NULL)
        return PJRT_NO_MEMORY("pjrt_client_create");

    ARGS(PJRT_Client_ProcessIndex_Args, process, plugin);
    process.a.client = client->raw;
    PJRT_TRY(CALL(plugin, PJRT_Client_ProcessIndex, process));
    client->process = process.a.process_index;
    return describe_devices(client);
}

enum { OWN_OPTIONS = 7 };

/* Our options under the names that the plugins know; returns how many were set. */
static size_t name_options(const pjrt_client_options *o, pjrt_option named[OWN_OPTIONS])
{
    size_t n = 0;
    if (o->cpu_devices != 0)
        named[n++] = PJRT_OPT_INT("cpu_device_count", o->cpu_devices);
    if (o->gpu_memory_fraction != 0)
        named[n++] = PJRT_OPT_FLOAT("memory_fraction", o->gpu_memory_fraction);
    if (o->gpu_no_preallocate)
        named[n++] = PJRT_OPT_BOOL("preallocate", false);
    if (o->gpu_allocator != NULL)
        named[n++] = PJRT_OPT_STRING("allocator", o->gpu_allocator);
    if (o->num_nodes > 1) {
        named[n++] = PJRT_OPT_INT("node_id", o->node_id);
        named[n++] = PJRT_OPT_INT("num_nodes", o->num_nodes);
    }
    if (o->messenger != NULL) /* an address: options are numbers and text alone */
        named[n++] = PJRT_OPT_INT("messenger", (int64_t)(intptr_t)o->messenger);
    return n;
}

static pjrt_status *create_raw(pjrt_client *client, const pjrt_client_options *o)
{
    pjrt_plugin *plugin = client->plugin;
    PJRT_NamedValue *raw = NULL;
    pjrt_option *all = calloc(OWN_OPTIONS + o->n_extra, sizeof *all);
    if (all == NULL)
        return PJRT_NO_MEMORY("pjrt_client_create");
    size_t count = name_options(o, all);
    for (size_t i = 0; i < o->n_extra; i++)
        all[count++] = o->extra[i];
    pjrt_status *st = pjrt__options_to_raw(all, count, &raw);
    if (st == NULL) {
        ARGS(PJRT_Client_Create_Args, create, plugin);
        create.a.create_options = raw;
        create.a.num_options = count;
        if (client->has_store) { /* the plugin has a store only if it gets all three */
            create.a.kv_get_callback = on_get;
            create.a.kv_get_user_arg = &client->store;
            create.a.kv_put_callback = on_put;
            create.a.kv_put_user_arg = &client->store;
            create.a.kv_try_get_callback = on_try_get;
            create.a.kv_try_get_user_arg = &client->store;
        }
        st = CALL(plugin, PJRT_Client_Create, create);
        client->raw = create.a.client;
    }
    free(raw);
    free(all);
    return st;
}

pjrt_status *pjrt_client_create(pjrt_plugin *plugin, const pjrt_client_options *options,
                                pjrt_client **out)
{
    static const pjrt_client_options defaults = {0};
    *out = NULL;
    pjrt_client *client = calloc(1, sizeof *client);
    if (client == NULL)
        return PJRT_NO_MEMORY("pjrt_client_create");
    if (options == NULL)
        options = &defaults;
    client->plugin = plugin;
    client->references = 1;
    if (options->store != NULL) {
        client->store = *options->store;
        client->has_store = true;
    }
    pjrt_status *st = create_raw(client, options);
    if (st == NULL)
        st = describe_client(client);
    if (st != NULL) {
        pjrt_client_free(client);
        return st;
    }
    *out = client;
    return NULL;
}

void pjrt__client_ref(pjrt_client *client)
{
    atomic_fetch_add_explicit(&client->references, 1, memory_order_relaxed);
}

void pjrt__client_unref(pjrt_client *client)
{
    if (atomic_fetch_sub_explicit(&client->references, 1, memory_order_acq_rel) != 1)
        return;
    for (size_t i = 0; i < client->n_devices; i++)
        free_device(&client->devices[i]);
    free(client->devices);
    free(client->global_ids);
    free(client->global_processes);
    free(client->platform);
    free(client->platform_version);
    if (client->raw != NULL) {
        ARGS(PJRT_Client_Destroy_Args, destroy, client->plugin);
        destroy.a.client = client->raw;
        CALL_VOID(client->plugin, PJRT_Client_Destroy, destroy);
    }
    free(client);
}

void pjrt_client_free(pjrt_client *client)
{
    if (client != NULL)
        pjrt__client_unref(client);
}

pjrt_device *pjrt__client_find_device(const pjrt_client *client, const PJRT_Device *raw)
{
    for (size_t i = 0; i < client->n_devices; i++) {
        if (client->devices[i].raw == raw)
            return &client->devices[i];
    }
    return NULL;
}

const char *pjrt__client_kind(const pjrt_client *client)
{
    return client->n_devices > 0 ? client->devices[0].kind : "";
}

pjrt_plugin *pjrt_client_plugin(const pjrt_client *client)
{
    return client->plugin;
}

const char *pjrt_client_platform(const pjrt_client *client)
{
    return client->platform;
}

const char *pjrt_client_platform_version(const pjrt_client *client)
{
    return client->platform_version;
}

int pjrt_client_process(const pjrt_client *client)
{
    return client->process;
}

size_t pjrt_client_num_devices(const pjrt_client *client)
{
    return client->n_devices;
}

pjrt_device *pjrt_client_device(const pjrt_client *client, size_t index)
{
    return index < client->n_devices ? &client->devices[index] : NULL;
}

size_t pjrt_client_num_global_devices(const pjrt_client *client)
{
    return client->n_global_devices;
}

int pjrt_client_global_device_id(const pjrt_client *client, size_t index)
{
    return index < client->n_global_devices ? client->global_ids[index] : -1;
}

int pjrt_client_global_device_process(const pjrt_client *client, size_t index)
{
    return index < client->n_global_devices ? client->global_processes[index] : -1;
}

int pjrt_device_id(const pjrt_device *device)
{
    return device->id;
}

int pjrt_device_local_id(const pjrt_device *device)
{
    return device->local_id;
}

int pjrt_device_process(const pjrt_device *device)
{
    return device->process;
}

const char *pjrt_device_kind(const pjrt_device *device)
{
    return device->kind;
}

const char *pjrt_device_text(const pjrt_device *device)
{
    return device->text;
}

const pjrt_option *pjrt_device_attributes(const pjrt_device *device, size_t *count)
{
    *count = device->n_attributes;
    return device->attributes;
}

size_t pjrt_device_num_memories(const pjrt_device *device)
{
    return device->n_memories;
}

const char *pjrt_device_memory_kind(const pjrt_device *device, size_t index)
{
    return index < device->n_memories ? device->memory_kinds[index] : NULL;
}

pjrt_status *pjrt_device_memory_stats(const pjrt_device *device, pjrt_device_memory *out)
{
    *out = (pjrt_device_memory){-1, -1, -1, -1};
    ARGS(PJRT_Device_MemoryStats_Args, stats, device->client->plugin);
    stats.a.device = device->raw;
    PJRT_TRY(CALL(device->client->plugin, PJRT_Device_MemoryStats, stats));
    out->in_use = stats.a.bytes_in_use;
    if (stats.a.peak_bytes_in_use_is_set)
        out->peak = stats.a.peak_bytes_in_use;
    if (stats.a.bytes_limit_is_set)
        out->limit = stats.a.bytes_limit;
    if (stats.a.largest_free_block_bytes_is_set)
        out->largest_free_block = stats.a.largest_free_block_bytes;
    return NULL;
}
