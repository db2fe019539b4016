/* Places: a plugin's client, and which of the mesh's devices are whose. */
#include "runtime/device/ttt_device.h"

#include <stdlib.h>
#include <string.h>

static const char where[] = "runtime";

/* Plugins know that a key did not come, the world whose fault that is. */
static pjrt_status *explain_loss(ttt_job *job, pjrt_status *st)
{
    pjrt_status *lost = st == NULL ? NULL : ttt_job_check(job);
    if (lost == NULL)
        return st;
    pjrt_status_free(st);
    return lost;
}

static bool is_platform(const ttt_devices *devices, const char *platform)
{
    return strcmp(pjrt_client_platform(devices->client), platform) == 0;
}

static pjrt_status *create_client(pjrt_plugin *plugin, const pjrt_client_options *options,
                                  ttt_devices *devices)
{
    return explain_loss(devices->job, pjrt_client_create(plugin, options, &devices->client));
}

/*
 * Only a client can tell its platform, so the first one is created without options. It is kept
 * unless the platform needs options: the CPU the number of virtual devices, and all but the TPU
 * (whose hosts find each other) the other processes.
 */
static pjrt_status *open_client(const char *name, ttt_devices *devices)
{
    pjrt_plugin *plugin;
    PJRT_TRY(pjrt_plugin_load(name, &plugin));
    int processes = ttt_job_size(devices->job);
    pjrt_client_options options = {0};
    PJRT_TRY(create_client(plugin, &options, devices));
    bool is_cpu = is_platform(devices, "cpu");
    if (is_cpu && devices->n_devices % processes != 0)
        return PJRT_FAIL(INVALID_ARGUMENT, where,
                         "a mesh of %d devices cannot be split evenly over %d processes",
                         devices->n_devices, processes);
    if (is_cpu && devices->n_devices > 1)
        options.cpu_devices = devices->n_devices / processes;
    if (processes > 1 && !is_platform(devices, "tpu")) {
        options.node_id = ttt_job_rank(devices->job);
        options.num_nodes = processes;
        options.store = ttt_job_kv(devices->job);
        options.messenger = is_cpu ? ttt_job_messenger(devices->job) : NULL;
    }
    if (options.cpu_devices != 0 || options.num_nodes != 0) {
        pjrt_client_free(devices->client);
        devices->client = NULL;
        PJRT_TRY(create_client(plugin, &options, devices));
    }
    return ttt_kernels_register(plugin, pjrt_client_platform(devices->client), &devices->calls);
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

static pjrt_status *order_all(ttt_devices *devices, global_device *all, size_t count)
{
    for (size_t i = 0; i < count; i++)
        all[i] = (global_device){pjrt_client_global_device_process(devices->client, i),
                                 pjrt_client_global_device_id(devices->client, i)};
    qsort(all, count, sizeof *all, by_process);
    devices->first = -1;
    for (size_t i = 0; i < count; i++) {
        devices->ids[i] = all[i].id;
        if (all[i].process == pjrt_client_process(devices->client)) {
            devices->first = devices->first < 0 ? (int)i : devices->first;
            devices->n_mine++;
        }
    }
    if ((size_t)devices->n_mine != pjrt_client_num_devices(devices->client))
        return PJRT_FAIL(INTERNAL, where, "this process has %zu devices, the job knows of %d",
                         pjrt_client_num_devices(devices->client), devices->n_mine);
    for (int i = 0; i < devices->n_mine; i++) {
        const pjrt_device *mine = pjrt_client_device(devices->client, (size_t)i);
        if (pjrt_device_id(mine) != devices->ids[devices->first + i])
            return PJRT_FAIL(INTERNAL, where, "the plugin's devices are not in order");
    }
    return NULL;
}

/* The devices of a job: all of them, or some would wait for programs that never come. */
static pjrt_status *share_all(ttt_devices *devices, const char *name)
{
    size_t there = pjrt_client_num_global_devices(devices->client);
    if (there != (size_t)devices->n_devices)
        return PJRT_FAIL(FAILED_PRECONDITION, where,
                         "the mesh has %d devices, %s has %zu in %d processes: a mesh has all",
                         devices->n_devices, name, there, ttt_job_size(devices->job));
    global_device *all = calloc(there, sizeof *all);
    pjrt_status *st = all == NULL ? PJRT_NO_MEMORY(where) : order_all(devices, all, there);
    free(all);
    return st;
}

static pjrt_status *take_first(ttt_devices *devices, const char *name)
{
    size_t there = pjrt_client_num_devices(devices->client);
    if (there < (size_t)devices->n_devices)
        return PJRT_FAIL(FAILED_PRECONDITION, where, "the mesh needs %d devices, %s has %zu",
                         devices->n_devices, name, there);
    devices->n_mine = devices->n_devices;
    for (int i = 0; i < devices->n_devices; i++)
        devices->ids[i] = pjrt_device_id(pjrt_client_device(devices->client, (size_t)i));
    return NULL;
}

/* ---- opening and closing -----------------------------------------------------------------------
 */

static pjrt_status *open_place(ttt_devices *devices, const char *plugin)
{
    devices->n_devices = (int)ttt_mesh_devices(&devices->mesh);
    devices->ids = calloc((size_t)devices->n_devices, sizeof *devices->ids);
    if (devices->ids == NULL)
        return PJRT_NO_MEMORY(where);
    PJRT_TRY(open_client(plugin, devices));
    return devices->job == NULL ? take_first(devices, plugin) : share_all(devices, plugin);
}

pjrt_status *ttt_devices_open_job(const char *plugin, const ttt_mesh *mesh, ttt_job *job,
                                  ttt_devices **out)
{
    *out = NULL;
    ttt_devices *devices = calloc(1, sizeof *devices);
    if (devices == NULL)
        return PJRT_NO_MEMORY(where);
    if (mesh != NULL)
        devices->mesh = *mesh;
    devices->job = job;
    pjrt_status *st = open_place(devices, plugin);
    if (st != NULL) {
        ttt_devices_free(devices);
        return st;
    }
    *out = devices;
    return NULL;
}

pjrt_status *ttt_devices_open(const char *plugin, const ttt_mesh *mesh, ttt_devices **out)
{
    return ttt_devices_open_job(plugin, mesh, NULL, out);
}

void ttt_devices_free(ttt_devices *devices)
{
    if (devices == NULL)
        return;
    pjrt_client_free(devices->client);
    free(devices->ids);
    free(devices->cache);
    free(devices);
}

ttt_kernel_set ttt_devices_kernels(const ttt_devices *devices)
{
    return devices->n_devices == 1 ? devices->calls : TTT_KERNEL_NONE;
}

pjrt_status *ttt_devices_cache(ttt_devices *devices, const char *folder)
{
    char *copy = strdup(folder);
    if (copy == NULL)
        return PJRT_NO_MEMORY(where);
    free(devices->cache);
    devices->cache = copy;
    return NULL;
}
