/* ttt devices: what a plugin offers here. */
#include "tools/cli/cmd.h"

#include <stdio.h>

typedef struct devices_options {
    int cpu_devices;
} devices_options;

static const cmd_option options[] = {
    {"cpu-devices", "N", CMD_NUMBER, offsetof(devices_options, cpu_devices),
     "as how many devices the CPU plugin should show itself", .usual = "1", .most = 4096},
};
static int devices_command(int argc, char **argv);
const cmd_spec cmd_devices = {
    .name = "devices",
    .summary = "the devices that a plugin offers",
    .usage = "[--plugin cpu|tpu|cuda|PATH] [--cpu-devices N] [--json] [-v]",
    .about = "Lists the devices that a plugin offers on this machine.",
    CMD_OPTIONS(options),
    .example = "ttt devices --plugin cpu --json",
    .verbose = "where the plugin was looked for, its attributes and its own logs",
    .plugin = CMD_PLUGIN,
    .run = devices_command,
};

static void print_place(const char *path, bool exists, const char *why, void *user)
{
    (void)user;
    fprintf(stderr, "  %s %s (%s)\n", exists ? "found " : "absent", path, why);
}

static void print_search(const cmd_common *common)
{
    fprintf(stderr, "plugin %s, in this order:\n", common->plugin);
    pjrt_status_free(pjrt_plugin_search(common->plugin, print_place, NULL));
}

static json_t *device_json(const pjrt_device *device)
{
    json_t *memories = json_array(), *attributes = json_object();
    size_t count;
    const pjrt_option *list = pjrt_device_attributes(device, &count);
    for (size_t i = 0; i < count; i++)
        json_object_set_new(attributes, list[i].name, cmd_json_option(&list[i]));
    for (size_t i = 0; i < pjrt_device_num_memories(device); i++)
        json_array_append_new(memories, json_string(pjrt_device_memory_kind(device, i)));
    json_t *json =
        json_pack("{s:i, s:i, s:i, s:s, s:s, s:o, s:o}", "id", pjrt_device_id(device), "local_id",
                  pjrt_device_local_id(device), "process", pjrt_device_process(device), "kind",
                  pjrt_device_kind(device), "text", pjrt_device_text(device), "memories", memories,
                  "attributes", attributes);
    pjrt_device_memory stats;
    pjrt_status *st = pjrt_device_memory_stats(device, &stats);
    if (st == NULL)
        json_object_set_new(json, "memory",
                            json_pack("{s:I, s:I, s:I}", "in_use", (json_int_t)stats.in_use, "peak",
                                      (json_int_t)stats.peak, "limit", (json_int_t)stats.limit));
    pjrt_status_free(st);
    return json;
}

static json_t *client_json(const pjrt_client *client)
{
    int major, minor;
    const pjrt_plugin *plugin = pjrt_client_plugin(client);
    pjrt_plugin_version(plugin, &major, &minor);
    json_t *devices = json_array(), *attributes = json_object();
    size_t count;
    const pjrt_option *list = pjrt_plugin_attributes(plugin, &count);
    for (size_t i = 0; i < count; i++)
        json_object_set_new(attributes, list[i].name, cmd_json_option(&list[i]));
    for (size_t i = 0; i < pjrt_client_num_devices(client); i++)
        json_array_append_new(devices, device_json(pjrt_client_device(client, i)));
    return json_pack("{s:s, s:[i,i], s:s, s:s, s:i, s:I, s:o, s:o}", "plugin",
                     pjrt_plugin_path(plugin), "pjrt_version", major, minor, "platform",
                     pjrt_client_platform(client), "platform_version",
                     pjrt_client_platform_version(client), "process", pjrt_client_process(client),
                     "global_devices", (json_int_t)pjrt_client_num_global_devices(client),
                     "attributes", attributes, "devices", devices);
}

static void print_client(const pjrt_client *client)
{
    int major, minor;
    pjrt_plugin_version(pjrt_client_plugin(client), &major, &minor);
    printf("%s, PJRT %d.%d, %zu device%s\n", pjrt_client_platform(client), major, minor,
           pjrt_client_num_devices(client), pjrt_client_num_devices(client) == 1 ? "" : "s");
    for (size_t i = 0; i < pjrt_client_num_devices(client); i++) {
        const pjrt_device *device = pjrt_client_device(client, i);
        printf("  %d  %s  %s", pjrt_device_id(device), pjrt_device_kind(device),
               pjrt_device_text(device));
        pjrt_device_memory stats;
        pjrt_status *st = pjrt_device_memory_stats(device, &stats);
        if (st == NULL && stats.limit > 0)
            printf("  %s of %s in use", cmd_quantity((double)stats.in_use, "B"),
                   cmd_quantity((double)stats.limit, "B"));
        pjrt_status_free(st);
        putchar('\n');
    }
}

static int devices_command(int argc, char **argv)
{
    cmd_common common;
    cmd_operands operands;
    devices_options chosen = {0};
    int code = cmd_parse(&cmd_devices, argc, argv, &common, &chosen, &operands);
    if (code >= 0)
        return code;
    if (operands.count > 0)
        return cmd_wrong_use(&cmd_devices, "\"%s\" is one word too many", operands.items[0]);
    if (common.verbose)
        print_search(&common);
    pjrt_plugin *plugin;
    pjrt_client *client = NULL;
    pjrt_client_options client_options = {.cpu_devices = chosen.cpu_devices};
    pjrt_status *st = pjrt_plugin_load(common.plugin, &plugin);
    if (st == NULL)
        st = pjrt_client_create(plugin, &client_options, &client);
    if (st != NULL)
        return cmd_fail(&common, st);
    if (common.json)
        code = cmd_print_json(client_json(client));
    else
        print_client(client);
    pjrt_client_free(client);
    return code < 0 ? CMD_OK : code;
}
