/* Topologies for ahead-of-time compilation. */
#include "pjrt/internal.h"

#include <stdlib.h>

static pjrt_status *describe(pjrt_topology *topology)
{
    pjrt_plugin *plugin = topology->plugin;
    ARGS(PJRT_TopologyDescription_PlatformName_Args, name, plugin);
    name.a.topology = topology->raw;
    PJRT_TRY(CALL(plugin, PJRT_TopologyDescription_PlatformName, name));
    topology->platform = pjrt__copy_text(name.a.platform_name, name.a.platform_name_size);

    ARGS(PJRT_TopologyDescription_PlatformVersion_Args, version, plugin);
    version.a.topology = topology->raw;
    PJRT_TRY(CALL(plugin, PJRT_TopologyDescription_PlatformVersion, version));
    topology->platform_version =
        pjrt__copy_text(version.a.platform_version, version.a.platform_version_size);

    ARGS(PJRT_TopologyDescription_GetDeviceDescriptions_Args, devices, plugin);
    devices.a.topology = topology->raw;
    PJRT_TRY(CALL(plugin, PJRT_TopologyDescription_GetDeviceDescriptions, devices));
    topology->n_devices = devices.a.num_descriptions;

    ARGS(PJRT_DeviceDescription_Kind_Args, kind, plugin);
    if (topology->n_devices > 0) {
        kind.a.device_description = devices.a.descriptions[0];
        PJRT_TRY(CALL(plugin, PJRT_DeviceDescription_Kind, kind));
    }
    topology->kind = pjrt__copy_text(kind.a.device_kind, kind.a.device_kind_size);
    if (topology->platform == NULL || topology->platform_version == NULL || topology->kind == NULL)
        return PJRT_NO_MEMORY("pjrt_topology_create");
    return NULL;
}

pjrt_status *pjrt_topology_create(pjrt_plugin *plugin, const char *name, const pjrt_option *options,
                                  size_t n_options, pjrt_topology **out)
{
    PJRT_NamedValue *raw;
    *out = NULL;
    PJRT_TRY(pjrt__options_to_raw(options, n_options, &raw));
    pjrt_topology *topology = calloc(1, sizeof *topology);
    if (topology == NULL) {
        free(raw);
        return PJRT_NO_MEMORY("pjrt_topology_create");
    }
    topology->plugin = plugin;
    ARGS(PJRT_TopologyDescription_Create_Args, create, plugin);
    create.a.topology_name = name;
    create.a.topology_name_size = strlen(name);
    create.a.create_options = raw;
    create.a.num_options = n_options;
    pjrt_status *st = CALL(plugin, PJRT_TopologyDescription_Create, create);
    free(raw);
    topology->raw = create.a.topology;
    if (st == NULL)
        st = describe(topology);
    if (st != NULL) {
        pjrt_topology_free(topology);
        return st;
    }
    *out = topology;
    return NULL;
}

void pjrt_topology_free(pjrt_topology *topology)
{
    if (topology == NULL)
        return;
    if (topology->raw != NULL) {
        ARGS(PJRT_TopologyDescription_Destroy_Args, destroy, topology->plugin);
        destroy.a.topology = topology->raw;
        CALL_VOID(topology->plugin, PJRT_TopologyDescription_Destroy, destroy);
    }
    free(topology->platform);
    free(topology->platform_version);
    free(topology->kind);
    free(topology);
}

size_t pjrt_topology_num_devices(const pjrt_topology *topology)
{
    return topology->n_devices;
}

const char *pjrt_topology_platform(const pjrt_topology *topology)
{
    return topology->platform;
}

const char *pjrt_topology_platform_version(const pjrt_topology *topology)
{
    return topology->platform_version;
}

const char *pjrt_topology_device_kind(const pjrt_topology *topology)
{
    return topology->kind;
}
