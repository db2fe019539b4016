/* Kernels made known to plugins. */
#include "kernels/ttt_kernels.h"
#include "runtime/device/ttt_device.h"

#include <pthread.h>
#include <string.h>

/* Plugins are loaded once a process and stay, and so do handlers. */
enum { MOST_PLUGINS = 8 };
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static const pjrt_plugin *done[MOST_PLUGINS];
static int n_done;

static bool is_done(const pjrt_plugin *plugin)
{
    for (int i = 0; i < n_done; i++) {
        if (done[i] == plugin)
            return true;
    }
    return false;
}

static pjrt_status *register_all(pjrt_plugin *plugin, const char *platform, const ttt_kernel *list,
                                 size_t count)
{
    for (size_t i = 0; i < count; i++)
        PJRT_TRY(pjrt_ffi_register(plugin, list[i].target, platform, list[i].handler,
                                   list[i].command_buffer));
    if (n_done < MOST_PLUGINS)
        done[n_done++] = plugin;
    return NULL;
}

static ttt_kernel_set call_of(const char *target)
{
    static const struct {
        const char *target;
        ttt_kernel_set call;
    } known[] = {
        {"ttt_step", TTT_KERNEL_STEP},
        {"ttt_scan", TTT_KERNEL_SCAN},
        {"ttt_scan_backward", TTT_KERNEL_GRADIENT},
        {"ttt_product", TTT_KERNEL_PRODUCT},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(known[i].target, target) == 0)
            return known[i].call;
    }
    return TTT_KERNEL_NONE;
}

pjrt_status *ttt_kernels_register(pjrt_plugin *plugin, const char *platform, ttt_kernel_set *calls)
{
    size_t count = 0;
    const char *why;
    const ttt_kernel *list = NULL;
    *calls = TTT_KERNEL_NONE;
    if (strcmp(platform, "cpu") == 0)
        list = ttt_kernels_cpu(&count);
    else if (strcmp(platform, "cuda") == 0)
        list = ttt_kernels_cuda(&count, &why);
    if (list == NULL)
        return NULL;
    pthread_mutex_lock(&mutex);
    pjrt_status *st = is_done(plugin) ? NULL : register_all(plugin, platform, list, count);
    pthread_mutex_unlock(&mutex);
    if (pjrt_status_code(st) == PJRT_CODE_UNIMPLEMENTED) { /* a plugin without custom calls */
        pjrt_status_free(st);
        return NULL;
    }
    for (size_t i = 0; st == NULL && i < count; i++)
        *calls |= call_of(list[i].target);
    return st;
}
