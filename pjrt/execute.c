/*
 * Running an executable: checks first, because the plugins make none, then one call, then the
 * bookkeeping of donated arguments.
 */
#include "pjrt/internal.h"

#include <stdlib.h>

/* Lists for the C API: small runs, such as a decode step, need no allocation. */
enum { INLINE_ITEMS = 64 };

typedef struct launch {
    pjrt_executable *exe;
    pjrt_buffer *const *args;
    size_t n_args, n_results, n_devices;
    pjrt_device *portable_device;
    const pjrt_execute_options *options;

    void **heap;
    void *inline_items[INLINE_ITEMS];
    PJRT_Buffer **raw_args, **raw_results;
    PJRT_Buffer ***arg_lists, ***result_lists;
    PJRT_Event **events;
} launch;

static pjrt_device *device_of(const launch *l, size_t index)
{
    return l->exe->portable ? l->portable_device : l->exe->devices[index];
}

/* ---- checks ---- */

static pjrt_status *check_argument(const launch *l, size_t device, size_t index,
                                   const pjrt_shape *wanted)
{
    static const char where[] = "pjrt_execute";
    const pjrt_buffer *buffer = l->args[device * l->n_args + index];
    char have[PJRT_SHAPE_TEXT], want[PJRT_SHAPE_TEXT];
    if (buffer == NULL)
        return PJRT_FAIL(INVALID_ARGUMENT, where, "argument %zu for device %zu is NULL", index,
                         device);
    if (atomic_load_explicit(&buffer->dead, memory_order_acquire))
        return PJRT_FAIL(FAILED_PRECONDITION, where,
                         "argument %zu (%s) is dead: it was donated or deleted before", index,
                         pjrt_shape_text(&buffer->shape, have));
    if (buffer->device != device_of(l, device))
        return PJRT_FAIL(INVALID_ARGUMENT, where,
                         "argument %zu is on device %d, the program runs on device %d", index,
                         buffer->device->id, device_of(l, device)->id);
    if (wanted != NULL && wanted->type != PJRT_TYPE_INVALID &&
        !pjrt_shape_equal(wanted, &buffer->shape))
        return PJRT_FAIL(INVALID_ARGUMENT, where, "argument %zu is %s, the program takes %s", index,
                         pjrt_shape_text(&buffer->shape, have), pjrt_shape_text(wanted, want));
    return NULL;
}

static pjrt_status *check_launch(launch *l)
{
    static const char where[] = "pjrt_execute";
    pjrt_executable *exe = l->exe;
    if (exe->loaded == NULL)
        return PJRT_FAIL(FAILED_PRECONDITION, where,
                         "%s was compiled ahead of time: save it and load it on the machine that "
                         "has the device",
                         exe->name);
    if (l->n_results != (size_t)exe->n_results)
        return PJRT_FAIL(INVALID_ARGUMENT, where, "room for %zu results, the program has %d",
                         l->n_results, exe->n_results);
    if (l->n_devices != (size_t)exe->n_addressable)
        return PJRT_FAIL(INVALID_ARGUMENT, where,
                         "arguments for %zu devices, the executable runs on %d here", l->n_devices,
                         exe->n_addressable);
    if (exe->portable && l->portable_device == NULL)
        return PJRT_FAIL(INVALID_ARGUMENT, where,
                         "a portable executable needs options.device, to know where to run");

    const pjrt_shape *shapes = NULL;
    int n_shapes = 0;
    pjrt_status *st = pjrt_executable_arguments(exe, &shapes, &n_shapes);
    if (st == NULL && (size_t)n_shapes != l->n_args)
        return PJRT_FAIL(INVALID_ARGUMENT, where, "%zu arguments, the program takes %d", l->n_args,
                         n_shapes);
    pjrt_code code = pjrt_status_code(st);
    if (st != NULL && code != PJRT_CODE_UNIMPLEMENTED)
        return st;
    pjrt_status_free(st); /* a plugin that hides its programs: what is left can be checked */
    for (size_t d = 0; d < l->n_devices; d++) {
        for (size_t i = 0; i < l->n_args; i++)
            PJRT_TRY(check_argument(l, d, i, shapes == NULL ? NULL : &shapes[i]));
    }
    return NULL;
}

/* ---- the call ---- */

static pjrt_status *make_lists(launch *l)
{
    size_t d = l->n_devices;
    size_t count = d * (l->n_args + l->n_results + 3);
    void **items = l->inline_items;
    if (count > INLINE_ITEMS) {
        l->heap = calloc(count, sizeof *l->heap);
        if (l->heap == NULL)
            return PJRT_NO_MEMORY("pjrt_execute");
        items = l->heap;
    } else {
        memset(items, 0, count * sizeof *items);
    }
    l->arg_lists = (PJRT_Buffer ***)items;
    l->result_lists = (PJRT_Buffer ***)(items + d);
    l->events = (PJRT_Event **)(items + 2 * d);
    l->raw_args = (PJRT_Buffer **)(items + 3 * d);
    l->raw_results = l->raw_args + d * l->n_args;
    for (size_t i = 0; i < d; i++) {
        l->arg_lists[i] = l->raw_args + i * l->n_args;
        l->result_lists[i] = l->raw_results + i * l->n_results;
        for (size_t a = 0; a < l->n_args; a++)
            l->arg_lists[i][a] = l->args[i * l->n_args + a]->raw;
    }
    return NULL;
}

static pjrt_status *call_plugin(launch *l, bool want_events)
{
    pjrt_plugin *plugin = l->exe->plugin;
    ARGS(PJRT_ExecuteOptions, options, plugin);
    options.a.launch_id = l->options->launch_id;
    options.a.non_donatable_input_indices = l->options->keep;
    options.a.num_non_donatable_input_indices = l->options->n_keep;
    ARGS(PJRT_LoadedExecutable_Execute_Args, call, plugin);
    call.a.executable = l->exe->loaded;
    call.a.options = &options.a;
    call.a.argument_lists = (PJRT_Buffer *const *const *)l->arg_lists;
    call.a.num_devices = l->n_devices;
    call.a.num_args = l->n_args;
    call.a.output_lists = l->result_lists;
    call.a.device_complete_events = want_events ? l->events : NULL;
    call.a.execute_device = l->exe->portable ? l->portable_device->raw : NULL;
    return CALL(plugin, PJRT_LoadedExecutable_Execute, call);
}

/* ---- afterwards ---- */

static bool is_kept(const pjrt_execute_options *options, size_t index)
{
    for (size_t i = 0; i < options->n_keep; i++) {
        if (options->keep[i] == (int64_t)index)
            return true;
    }
    return false;
}

/* The compiler may decline a donation, so the plugin is asked what became of each. A run that
 * failed may have taken some as well: they are dead, but nothing was donated. */
static void settle_donations(launch *l, bool ran)
{
    pjrt_executable *exe = l->exe;
    for (size_t i = 0; i < l->n_args && exe->n_donated != 0; i++) {
        bool wished = (int)i < exe->n_donated && exe->donated[i];
        if (!wished && exe->n_donated > 0)
            continue;
        for (size_t d = 0; d < l->n_devices; d++) {
            pjrt_buffer *buffer = l->args[d * l->n_args + i];
            ARGS(PJRT_Buffer_IsDeleted_Args, deleted, exe->plugin);
            deleted.a.buffer = buffer->raw;
            pjrt_status_free(CALL(exe->plugin, PJRT_Buffer_IsDeleted, deleted));
            if (deleted.a.is_deleted) {
                atomic_store_explicit(&buffer->dead, true, memory_order_release);
                atomic_fetch_add(&exe->donations_taken, ran);
            } else if (ran && wished && !is_kept(l->options, i)) {
                atomic_fetch_add(&exe->donations_refused, 1);
            }
        }
    }
}

/* Wraps what the plugin made. On failure everything is released, wrapped or not. */
static pjrt_status *wrap_results(launch *l, pjrt_buffer **results, pjrt_event **done)
{
    size_t n = l->n_devices * l->n_results;
    pjrt_status *st = NULL;
    for (size_t i = 0; i < n && st == NULL; i++) {
        PJRT_Buffer *raw = l->raw_results[i];
        l->raw_results[i] = NULL;
        st = pjrt__buffer_wrap(device_of(l, i / l->n_results), raw,
                               &l->exe->results[i % l->n_results], &results[i]);
    }
    for (size_t d = 0; d < l->n_devices && done != NULL && st == NULL; d++) {
        PJRT_Event *raw = l->events[d];
        l->events[d] = NULL;
        st = pjrt__event_wrap(l->exe->client, raw, &done[d]);
    }
    if (st == NULL)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        pjrt__buffer_destroy_raw(l->exe->plugin, l->raw_results[i]);
        pjrt_buffer_free(results[i]);
        results[i] = NULL;
    }
    for (size_t d = 0; d < l->n_devices && done != NULL; d++) {
        pjrt_status_free(pjrt__event_finish(l->exe->plugin, l->events[d]));
        pjrt_event_free(done[d]);
        done[d] = NULL;
    }
    return st;
}

pjrt_status *pjrt_execute(pjrt_executable *exe, pjrt_buffer *const *args, size_t num_args,
                          const pjrt_execute_options *options, pjrt_buffer **results,
                          size_t num_results, pjrt_event **done)
{
    static const pjrt_execute_options defaults = {0};
    launch l;
    l.exe = exe;
    l.args = args;
    l.n_args = num_args;
    l.n_results = num_results;
    l.options = options == NULL ? &defaults : options;
    l.portable_device = l.options->device;
    l.heap = NULL;
    /* Compiled ahead of time it runs nowhere here, but the caller has room for one device. */
    int all = exe->loaded == NULL ? 1 : exe->n_addressable;
    int devices = l.options->num_devices == 0 ? all : l.options->num_devices;
    if (devices < 0)
        return PJRT_FAIL(INVALID_ARGUMENT, "pjrt_execute", "arguments for %d devices", devices);
    l.n_devices = (size_t)devices;
    memset(results, 0, l.n_devices * num_results * sizeof *results);
    if (done != NULL)
        memset(done, 0, l.n_devices * sizeof *done);
    PJRT_TRY(check_launch(&l));
    pjrt_status *st = make_lists(&l);
    if (st == NULL) {
        st = call_plugin(&l, done != NULL);
        settle_donations(&l, st == NULL);
        if (st == NULL)
            st = wrap_results(&l, results, done);
    }
    free(l.heap);
    return st;
}

void pjrt_executable_donations(const pjrt_executable *exe, int64_t *taken, int64_t *refused)
{
    *taken = atomic_load(&exe->donations_taken);
    *refused = atomic_load(&exe->donations_refused);
}
