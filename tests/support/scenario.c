/* Everything the pjrt room can do, once. */
#include "tests/support/scenario.h"

#include "pjrt/hlo/pjrt_hlo.h"
#include "xla/ffi/api/c_api.h"

#include <stdlib.h>

enum { DEVICES = 16, MAX_THINGS = 128 };

typedef enum thing { CLIENT, BUFFER, EXECUTABLE, EVENT, TOPOLOGY } thing;

typedef struct things {
    struct {
        thing kind;
        void *handle;
    } list[MAX_THINGS];
    int count;
} things;

static void *keep(things *t, thing kind, void *handle)
{
    if (handle != NULL) {
        assert_in_range(t->count, 0, MAX_THINGS - 1);
        t->list[t->count].kind = kind;
        t->list[t->count++].handle = handle;
    }
    return handle;
}

static void release(things *t, bool backwards)
{
    for (int i = 0; i < t->count; i++) {
        int at = backwards ? i : t->count - 1 - i;
        void *handle = t->list[at].handle;
        switch (t->list[at].kind) {
        case CLIENT:
            pjrt_client_free(handle);
            break;
        case BUFFER:
            pjrt_buffer_free(handle);
            break;
        case EXECUTABLE:
            pjrt_executable_free(handle);
            break;
        case EVENT:
            pjrt_event_free(handle);
            break;
        case TOPOLOGY:
            pjrt_topology_free(handle);
            break;
        }
    }
}

static char garbage;

/* Makes a call that hands out a thing: NULL on failure, whatever stood there before. */
#define MAKE(things, kind, variable, call)  \
    do {                                    \
        (variable) = (void *)&garbage;      \
        pjrt_status *make_status_ = (call); \
        if (make_status_ != NULL) {         \
            assert_null(variable);          \
            return make_status_;            \
        }                                   \
        keep(things, kind, variable);       \
    } while (0)

#define TRY(call)                          \
    do {                                   \
        pjrt_status *try_status_ = (call); \
        if (try_status_ != NULL)           \
            return try_status_;            \
    } while (0)

static XLA_FFI_Error *handler(XLA_FFI_CallFrame *frame)
{
    return pjrt_ffi_answer_metadata(frame, false) ? NULL : (XLA_FFI_Error *)frame;
}

static void note_outcome(pjrt_status *st, void *user)
{
    *(pjrt_code *)user = pjrt_status_code(st);
    pjrt_status_free(st);
}

static const char text[] =
    "module { func.func @main(%a: tensor<4xf32> {jax.buffer_donor = true}) }";
static float values[4] = {1, 2, 3, 4}, back[4];

static pjrt_status *transfers(scenario *s, things *t, pjrt_client *client)
{
    static const int64_t dims[] = {4};
    pjrt_device *device = pjrt_client_device(client, 0), *other = pjrt_client_device(client, 1);
    pjrt_buffer *buffer, *copy, *fresh;
    pjrt_event *done;
    pjrt_shape shape = {PJRT_F32, 1, {4}};
    pjrt_device_memory memory;
    size_t bytes;
    bool ready;
    for (int kind = PJRT_HOST_COPIED; kind <= PJRT_HOST_ZERO_COPY; kind++) {
        pjrt_upload_options options = {.host_memory = (pjrt_host_memory)kind};
        done = (void *)&garbage;
        pjrt_status *st =
            pjrt_buffer_from_host(device, PJRT_F32, dims, 1, values, &options, &done, &buffer);
        if (st != NULL) {
            assert_null(done);
            assert_null(buffer);
            return st;
        }
        keep(t, BUFFER, buffer);
        keep(t, EVENT, done);
        if (kind != PJRT_HOST_ZERO_COPY) /* whose event waits for the buffer's end */
            TRY(pjrt_event_wait(done));
    }
    MAKE(t, BUFFER, buffer,
         pjrt_buffer_from_host(device, PJRT_F32, dims, 1, values, NULL, NULL, &buffer));
    MAKE(t, EVENT, done, pjrt_buffer_ready(buffer, &done));
    TRY(pjrt_event_on_ready(done, note_outcome, &s->outcome));
    TRY(pjrt_event_is_ready(done, &ready));
    MAKE(t, BUFFER, copy, pjrt_buffer_copy_to(buffer, other, &copy));
    MAKE(t, BUFFER, fresh, pjrt_buffer_uninitialized(other, &shape, &fresh));
    TRY(pjrt_buffer_to_host(copy, back, sizeof back, NULL));
    MAKE(t, EVENT, done, pjrt_buffer_to_host(copy, back, sizeof back, &done));
    TRY(pjrt_event_wait(done));
    TRY(pjrt_buffer_device_bytes(copy, &bytes));
    TRY(pjrt_buffer_delete(copy));
    return pjrt_device_memory_stats(device, &memory);
}

/* One run on every device that `exe` has. */
static pjrt_status *run(things *t, pjrt_client *client, pjrt_executable *exe, bool events)
{
    pjrt_buffer *in[DEVICES], *out[DEVICES];
    pjrt_event *done[DEVICES];
    int n = pjrt_executable_num_devices(exe);
    for (int i = 0; i < n; i++)
        MAKE(t, BUFFER, in[i],
             pjrt_buffer_from_host(pjrt_client_device(client, (size_t)i), PJRT_F32, (int64_t[]){4},
                                   1, values, NULL, NULL, &in[i]));
    for (int i = 0; i < n; i++) {
        out[i] = (void *)&garbage;
        done[i] = (void *)&garbage;
    }
    pjrt_status *st = pjrt_execute(exe, in, 1, NULL, out, 1, events ? done : NULL);
    for (int i = 0; i < n; i++) {
        if (st != NULL) {
            assert_null(out[i]);
            assert_true(!events || done[i] == NULL);
        } else {
            keep(t, BUFFER, out[i]);
            keep(t, EVENT, events ? done[i] : NULL);
        }
    }
    TRY(st);
    for (int i = 0; i < n && events; i++)
        TRY(pjrt_event_wait(done[i]));
    return pjrt_buffer_to_host(out[n - 1], back, sizeof back, NULL);
}

static pjrt_status *report(const pjrt_executable *exe)
{
    char *bytes;
    size_t size;
    const char *format;
    pjrt_hlo_report *hlo;
    TRY(pjrt_executable_optimized(exe, &bytes, &size, &format));
    pjrt_status *st = pjrt_hlo_report_create(format, bytes, size, &hlo);
    free(bytes);
    TRY(st);
    pjrt_hlo_report_free(hlo);
    return NULL;
}

static pjrt_status *programs(scenario *s, things *t, pjrt_client *client)
{
    static const int64_t list[] = {1, 2};
    static const int one[] = {0};
    pjrt_option overrides[] = {PJRT_OPT_INTS("list", list, 2), PJRT_OPT_STRING("text", "x")};
    pjrt_compile_options options = {.devices = one, .overrides = overrides, .n_overrides = 2};
    pjrt_program program = pjrt_program_text(text);
    pjrt_executable *exe, *wide;
    const pjrt_option *costs;
    pjrt_memory_stats memory;
    size_t count;
    s->fake->control->program.takes[0] = true;
    MAKE(t, EXECUTABLE, exe, pjrt_compile(client, program, &options, &exe));
    TRY(run(t, client, exe, true));
    TRY(run(t, client, exe, false));
    TRY(pjrt_executable_costs(exe, &costs, &count));
    TRY(pjrt_executable_memory(exe, &memory));
    TRY(report(exe));

    const char *path = support_path(s->folder, "a.exe");
    TRY(pjrt_executable_save(exe, path));
    MAKE(t, EXECUTABLE, exe, pjrt_executable_load(client, path, program, &options, &exe));
    TRY(run(t, client, exe, false));
    for (int i = 0; i < 2; i++) {
        MAKE(t, EXECUTABLE, exe,
             pjrt_compile_cached(client, program, NULL, s->folder, &exe, &s->why[i]));
    }
    s->fake->control->program.replicas = DEVICES; /* more than the lists on the stack hold */
    MAKE(t, EXECUTABLE, wide,
         pjrt_compile(client, program, &(pjrt_compile_options){.replicas = DEVICES}, &wide));
    TRY(run(t, client, wide, true));
    s->fake->control->program.replicas = 1;
    return NULL;
}

static pjrt_status *ahead(scenario *s, things *t, pjrt_client *client)
{
    pjrt_option option = PJRT_OPT_STRING("target_config", "chip");
    pjrt_plugin *plugin = s->fake->plugin;
    pjrt_topology *topology;
    pjrt_executable *exe;
    pjrt_profile *profile;
    MAKE(t, TOPOLOGY, topology, pjrt_topology_create(plugin, "chip", &option, 1, &topology));
    MAKE(t, EXECUTABLE, exe, pjrt_compile_ahead(topology, pjrt_program_text(text), NULL, &exe));
    TRY(pjrt_executable_save(exe, support_path(s->folder, "ahead.exe")));
    XLA_FFI_Handler *function = handler;
    void *pointer;
    memcpy(&pointer, &function, sizeof pointer);
    TRY(pjrt_ffi_register(plugin, "ttt_scenario", "cpu", pointer, false));
    TRY(pjrt_ffi_probe(client, NULL, "ttt_scenario"));
    TRY(pjrt_ffi_probe(NULL, topology, "ttt_scenario"));
    profile = (void *)&garbage;
    pjrt_status *st = pjrt_profile_start(plugin, &profile);
    if (st != NULL) {
        assert_null(profile);
        return st;
    }
    return pjrt_profile_stop(profile, support_path(s->folder, "trace.pb"));
}

static pjrt_status *all(scenario *s, things *t)
{
    pjrt_client *client;
    pjrt_option extra = PJRT_OPT_STRING("extra", "x");
    pjrt_client_options options = {.cpu_devices = DEVICES, .extra = &extra, .n_extra = 1};
    const char *hash;
    TRY(pjrt_plugin_hash(s->fake->plugin, &hash));
    MAKE(t, CLIENT, client, pjrt_client_create(s->fake->plugin, &options, &client));
    TRY(transfers(s, t, client));
    TRY(programs(s, t, client));
    return ahead(s, t, client);
}

bool scenario_tells(scenario *s, const char *call, pjrt_code code)
{
    bool told = false;
    for (int i = 0; i < 2; i++) {
        const pjrt_status *why = s->why[i];
        told = told || (pjrt_status_code(why) == code &&
                        (call == NULL || strcmp(pjrt_status_call(why), call) == 0));
    }
    return told;
}

void scenario_forget(scenario *s)
{
    pjrt_status_free(s->why[0]);
    pjrt_status_free(s->why[1]);
}

pjrt_status *scenario_run(scenario *s)
{
    things t = {.count = 0};
    s->why[0] = s->why[1] = NULL;
    s->outcome = PJRT_CODE_OK;
    s->fake->control->devices = DEVICES;
    support_new_folder(s->folder);
    pjrt_status *st = all(s, &t);
    s->abandoned = s->fake->control->abandoned; /* what is freed now is the caller's doing */
    release(&t, s->backwards);
    support_remove_folder(s->folder);
    return st;
}
