/* Places: a plugin's client, and which of the mesh's devices are whose. */
#include "runtime/device/ttt_device.h"

#include <stdlib.h>
#include <string.h>

static const char call[] = "runtime";

static bool is_cpu(pjrt_plugin *plugin)
{
    const char *path = pjrt_plugin_path(plugin), *slash = strrchr(path, '/');
    return strstr(slash == NULL ? path : slash, "cpu") != NULL;
}

static bool is_tpu(pjrt_plugin *plugin)
{
    const char *path = pjrt_plugin_path(plugin), *slash = strrchr(path, '/');
    return strstr(slash == NULL ? path : slash, "tpu") != NULL;
}

/* Plugins know that a key did not come, the world whose fault that is. */
static pjrt_status *explain_loss(ttt_world *world, pjrt_status *st)
{
    pjrt_status *lost = st == NULL ? NULL : ttt_world_check(world);
    if (lost == NULL)
        return st;
    pjrt_status_free(st);
    return lost;
}

static pjrt_status *open_client(const char *name, ttt_place *place)
{
    pjrt_plugin *plugin;
    PJRT_TRY(pjrt_plugin_load(name, &plugin));
    int processes = ttt_world_size(place->world);
    pjrt_client_options options = {0};
    if (is_cpu(plugin) && place->n_devices % processes != 0)
        return PJRT_FAIL(INVALID_ARGUMENT, call,
                         "a mesh of %d devices cannot be shared by %d processes", place->n_devices,
                         processes);
    /* Only the CPU plugin can be as many devices as one likes. */
    if (is_cpu(plugin) && place->n_devices > 1)
        options.cpu_devices = place->n_devices / processes;
    if (processes > 1 && !is_tpu(plugin)) { /* those of a TPU find each other */
        options.node_id = ttt_world_rank(place->world);
        options.num_nodes = processes;
        options.store = ttt_world_store(place->world);
        options.messenger = is_cpu(plugin) ? ttt_world_messenger(place->world) : NULL;
    }
    PJRT_TRY(explain_loss(place->world, pjrt_client_create(plugin, &options, &place->client)));
    return ttt_calls_register(plugin, pjrt_client_platform(place->client), &place->calls);
}

/* ---- which devices are whose -------------------------------------------------------------------
 */

typedef struct global_device {
    int process, id;
} global_device;

static int by_process(const void *a, const void *b)
{
    const global_device *x = a, *y = b;
    if (x->process != y->process)
        return x->process < y->process ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

static pjrt_status *order_all(ttt_place *place, global_device *all, size_t count)
{
    for (size_t i = 0; i < count; i++)
        all[i] = (global_device){pjrt_client_global_device_process(place->client, i),
                                 pjrt_client_global_device_id(place->client, i)};
    qsort(all, count, sizeof *all, by_process);
    place->first = -1;
    for (size_t i = 0; i < count; i++) {
        place->ids[i] = all[i].id;
        if (all[i].process == pjrt_client_process(place->client)) {
            place->first = place->first < 0 ? (int)i : place->first;
            place->n_mine++;
        }
    }
    if ((size_t)place->n_mine != pjrt_client_num_devices(place->client))
        return PJRT_FAIL(INTERNAL, call, "this process has %zu devices, the job knows of %d",
                         pjrt_client_num_devices(place->client), place->n_mine);
    for (int i = 0; i < place->n_mine; i++) {
        const pjrt_device *mine = pjrt_client_device(place->client, (size_t)i);
        if (pjrt_device_id(mine) != place->ids[place->first + i])
            return PJRT_FAIL(INTERNAL, call, "the plugin's devices are not in order");
    }
    return NULL;
}

/* The devices of a job: all of them, or some would wait for programs that never come. */
static pjrt_status *share_all(ttt_place *place, const char *name)
{
    size_t there = pjrt_client_num_global_devices(place->client);
    if (there != (size_t)place->n_devices)
        return PJRT_FAIL(FAILED_PRECONDITION, call,
                         "the mesh has %d devices, %s has %zu in %d processes: a mesh has all",
                         place->n_devices, name, there, ttt_world_size(place->world));
    global_device *all = calloc(there, sizeof *all);
    pjrt_status *st = all == NULL ? PJRT_NO_MEMORY(call) : order_all(place, all, there);
    free(all);
    return st;
}

static pjrt_status *take_first(ttt_place *place, const char *name)
{
    size_t there = pjrt_client_num_devices(place->client);
    if (there < (size_t)place->n_devices)
        return PJRT_FAIL(FAILED_PRECONDITION, call, "the mesh needs %d devices, %s has %zu",
                         place->n_devices, name, there);
    place->n_mine = place->n_devices;
    for (int i = 0; i < place->n_devices; i++)
        place->ids[i] = pjrt_device_id(pjrt_client_device(place->client, (size_t)i));
    return NULL;
}

/* ---- opening and closing -----------------------------------------------------------------------
 */

static pjrt_status *open_place(ttt_place *place, const char *plugin)
{
    place->n_devices = (int)ttt_mesh_devices(&place->mesh);
    place->ids = calloc((size_t)place->n_devices, sizeof *place->ids);
    if (place->ids == NULL)
        return PJRT_NO_MEMORY(call);
    PJRT_TRY(open_client(plugin, place));
    return place->world == NULL ? take_first(place, plugin) : share_all(place, plugin);
}

pjrt_status *ttt_place_open_world(const char *plugin, const ttt_mesh *mesh, ttt_world *world,
                                  ttt_place **out)
{
    *out = NULL;
    ttt_place *place = calloc(1, sizeof *place);
    if (place == NULL)
        return PJRT_NO_MEMORY(call);
    if (mesh != NULL)
        place->mesh = *mesh;
    place->world = world;
    pjrt_status *st = open_place(place, plugin);
    if (st != NULL) {
        ttt_place_free(place);
        return st;
    }
    *out = place;
    return NULL;
}

pjrt_status *ttt_place_open(const char *plugin, const ttt_mesh *mesh, ttt_place **out)
{
    return ttt_place_open_world(plugin, mesh, NULL, out);
}

void ttt_place_free(ttt_place *place)
{
    if (place == NULL)
        return;
    pjrt_client_free(place->client);
    free(place->ids);
    free(place->cache);
    free(place);
}

ttt_calls ttt_place_calls(const ttt_place *place)
{
    return place->n_devices == 1 ? place->calls : TTT_CALL_NONE;
}

pjrt_status *ttt_place_cache(ttt_place *place, const char *folder)
{
    char *copy = strdup(folder);
    if (copy == NULL)
        return PJRT_NO_MEMORY(call);
    free(place->cache);
    place->cache = copy;
    return NULL;
}
