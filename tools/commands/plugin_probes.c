/* The probes of ttt plugin-check: real work, checked results. */
#include "tools/commands/plugin_probes.h"

#include "pjrt/hlo/pjrt_hlo.h"
#include "tools/cli/values.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char call[] = "plugin-check";

/* x * 2 + y with x donated: small enough to check by hand, rich enough for every probe. */
static const char program_text[] =
    "module @probe {\n"
    "  func.func public @main(%x: tensor<2x3xf32> {tf.aliasing_output = 0 : i32},\n"
    "                         %y: tensor<2x3xf32>) -> tensor<2x3xf32> {\n"
    "    %0 = stablehlo.add %x, %x : tensor<2x3xf32>\n"
    "    %1 = stablehlo.add %0, %y : tensor<2x3xf32>\n"
    "    return %1 : tensor<2x3xf32>\n"
    "  }\n"
    "}\n";

static pjrt_status *need_client(const probe_context *c)
{
    return c->client != NULL ? NULL
                             : PJRT_FAIL(UNAVAILABLE, call, "there is no client to try it with");
}

static pjrt_status *need_executable(const probe_context *c)
{
    return c->exe != NULL ? NULL : PJRT_FAIL(UNAVAILABLE, call, "there is no program to try it on");
}

/* ---- loading -----------------------------------------------------------------------------------
 */

static pjrt_status *probe_load(probe_context *c)
{
    return pjrt_plugin_load(c->name, &c->plugin);
}

static pjrt_status *probe_client(probe_context *c)
{
    if (c->plugin == NULL)
        return PJRT_FAIL(UNAVAILABLE, call, "the plugin is not loaded");
    pjrt_status *st = pjrt_client_create(c->plugin, NULL, &c->client);
    if (st == NULL)
        return NULL;
    /* A machine without the device is not the plugin's fault. */
    pjrt_status *absent =
        PJRT_FAIL(UNAVAILABLE, call, "no device here: %s", pjrt_status_message(st));
    pjrt_status_free(st);
    return absent;
}

static pjrt_status *probe_bad_option(probe_context *c)
{
    pjrt_client *client;
    PJRT_TRY(need_client(c));
    const pjrt_option nonsense = PJRT_OPT_INT("no_such_option", 1);
    pjrt_client_options options = {.extra = &nonsense, .n_extra = 1};
    pjrt_status *st = pjrt_client_create(c->plugin, &options, &client);
    if (st == NULL) {
        pjrt_client_free(client);
        return PJRT_FAIL(INTERNAL, call, "an unknown client option was accepted in silence");
    }
    pjrt_status_free(st);
    return NULL;
}

static pjrt_status *probe_memory_stats(probe_context *c)
{
    pjrt_device_memory stats;
    PJRT_TRY(need_client(c));
    return pjrt_device_memory_stats(pjrt_client_device(c->client, 0), &stats);
}

/* ---- transfers ---------------------------------------------------------------------------------
 */

static pjrt_status *round_trip(pjrt_device *device, pjrt_type type, const int64_t *dims, int rank)
{
    pjrt_shape shape = {.type = type, .rank = rank};
    memcpy(shape.dims, dims, (size_t)rank * sizeof *dims);
    size_t size = (size_t)pjrt_shape_bytes(&shape), count = size / pjrt_type_size(type);
    char *there = calloc(size + 1, 1), *back = calloc(size + 1, 1);
    pjrt_buffer *buffer = NULL;
    pjrt_status *st = there == NULL || back == NULL ? PJRT_NO_MEMORY(call) : NULL;
    for (size_t i = 0; i < count && st == NULL; i++)
        value_set(type, there, i, (double)(i % 7));
    if (st == NULL)
        st = pjrt_buffer_from_host(device, type, dims, rank, there, NULL, NULL, &buffer);
    if (st == NULL)
        st = pjrt_buffer_to_host(buffer, back, size, NULL);
    if (st == NULL && memcmp(there, back, size) != 0)
        st = PJRT_FAIL(INTERNAL, call, "%s comes back with other contents", pjrt_type_name(type));
    pjrt_buffer_free(buffer);
    free(there);
    free(back);
    return st;
}

static pjrt_status *probe_types(probe_context *c)
{
    static const int64_t dims[2] = {3, 5};
    PJRT_TRY(need_client(c));
    pjrt_device *device = pjrt_client_device(c->client, 0);
#define ROUND_TRIP(name, number, bits, mlir) PJRT_TRY(round_trip(device, PJRT_##name, dims, 2));
    PJRT_TYPES(ROUND_TRIP)
#undef ROUND_TRIP
    return NULL;
}

static pjrt_status *probe_edge_shapes(probe_context *c)
{
    static const int64_t empty[2] = {4, 0};
    PJRT_TRY(need_client(c));
    PJRT_TRY(round_trip(pjrt_client_device(c->client, 0), PJRT_F32, empty, 2));
    return round_trip(pjrt_client_device(c->client, 0), PJRT_F32, empty, 0);
}

static pjrt_status *probe_strides(probe_context *c)
{
    static const float columns[6] = {0, 3, 1, 4, 2, 5};
    static const int64_t dims[2] = {2, 3}, strides[2] = {4, 8};
    float back[6];
    pjrt_buffer *buffer;
    PJRT_TRY(need_client(c));
    pjrt_upload_options options = {.byte_strides = strides};
    PJRT_TRY(pjrt_buffer_from_host(pjrt_client_device(c->client, 0), PJRT_F32, dims, 2, columns,
                                   &options, NULL, &buffer));
    pjrt_status *st = pjrt_buffer_to_host(buffer, back, sizeof back, NULL);
    pjrt_buffer_free(buffer);
    for (int i = 0; i < 6 && st == NULL; i++) {
        if (back[i] != (float)i)
            st = PJRT_FAIL(INTERNAL, call, "column-major data comes back in another order");
    }
    return st;
}

static pjrt_status *probe_zero_copy(probe_context *c)
{
    static const int64_t dims[1] = {1024};
    pjrt_buffer *buffer;
    pjrt_event *done;
    PJRT_TRY(need_client(c));
    float *data = aligned_alloc(64, 1024 * sizeof *data);
    if (data == NULL)
        return PJRT_NO_MEMORY(call);
    for (int i = 0; i < 1024; i++)
        data[i] = (float)i;
    pjrt_upload_options options = {.host_memory = PJRT_HOST_ZERO_COPY};
    pjrt_status *st = pjrt_buffer_from_host(pjrt_client_device(c->client, 0), PJRT_F32, dims, 1,
                                            data, &options, &done, &buffer);
    if (st == NULL) {
        pjrt_buffer_free(buffer);
        st = pjrt_event_wait(done); /* hangs never: the buffer is gone */
        pjrt_event_free(done);
    }
    free(data);
    return st;
}

static pjrt_status *probe_uninitialized(probe_context *c)
{
    pjrt_shape shape = {.type = PJRT_F32, .rank = 1, .dims = {16}};
    pjrt_buffer *buffer;
    PJRT_TRY(need_client(c));
    PJRT_TRY(pjrt_buffer_uninitialized(pjrt_client_device(c->client, 0), &shape, &buffer));
    pjrt_buffer_free(buffer);
    return NULL;
}

/* ---- programs ----------------------------------------------------------------------------------
 */

static pjrt_status *probe_compile(probe_context *c)
{
    PJRT_TRY(need_client(c));
    return pjrt_compile(c->client, pjrt_program_text(program_text), NULL, &c->exe);
}

static pjrt_status *probe_bad_program(probe_context *c)
{
    pjrt_executable *exe;
    PJRT_TRY(need_client(c));
    pjrt_status *st = pjrt_compile(c->client, pjrt_program_text("not a program"), NULL, &exe);
    if (st == NULL) {
        pjrt_executable_free(exe);
        return PJRT_FAIL(INTERNAL, call, "it compiles what is no program");
    }
    bool silent = pjrt_status_message(st)[0] == '\0';
    pjrt_status_free(st);
    return silent ? PJRT_FAIL(INTERNAL, call, "its error has no message") : NULL;
}

static pjrt_status *run_and_check(probe_context *c, pjrt_executable *exe, bool *donated)
{
    static const int64_t dims[2] = {2, 3};
    const float x[6] = {0, 1, 2, 3, 4, 5}, y[6] = {1, 1, 1, 1, 1, 1};
    float out[6] = {0};
    pjrt_buffer *args[2] = {NULL, NULL}, *result = NULL;
    pjrt_event *done = NULL;
    pjrt_device *device = pjrt_client_device(c->client, 0);
    pjrt_status *st = pjrt_buffer_from_host(device, PJRT_F32, dims, 2, x, NULL, NULL, &args[0]);
    if (st == NULL)
        st = pjrt_buffer_from_host(device, PJRT_F32, dims, 2, y, NULL, NULL, &args[1]);
    if (st == NULL)
        st = pjrt_execute(exe, args, 2, NULL, &result, 1, &done);
    if (st == NULL)
        st = pjrt_event_wait(done);
    if (st == NULL)
        st = pjrt_buffer_to_host(result, out, sizeof out, NULL);
    for (int i = 0; i < 6 && st == NULL; i++) {
        if (out[i] != 2 * x[i] + y[i])
            st = PJRT_FAIL(INTERNAL, call, "2 * %g + %g gave %g", x[i], y[i], out[i]);
    }
    if (donated != NULL)
        *donated = args[0] != NULL && pjrt_buffer_is_dead(args[0]);
    pjrt_event_free(done);
    pjrt_buffer_free(result);
    pjrt_buffer_free(args[0]);
    pjrt_buffer_free(args[1]);
    return st;
}

static pjrt_status *probe_execute(probe_context *c)
{
    PJRT_TRY(need_executable(c));
    return run_and_check(c, c->exe, NULL);
}

static pjrt_status *probe_donation(probe_context *c)
{
    bool donated;
    PJRT_TRY(need_executable(c));
    PJRT_TRY(run_and_check(c, c->exe, &donated));
    return donated ? NULL : PJRT_FAIL(UNIMPLEMENTED, call, "a donated argument was not taken");
}

static pjrt_status *probe_save(probe_context *c)
{
    char path[] = "/tmp/ttt-plugin-check-XXXXXX";
    pjrt_executable *again = NULL;
    PJRT_TRY(need_executable(c));
    int file = mkstemp(path);
    if (file < 0)
        return PJRT_FAIL(UNAVAILABLE, call, "no temporary file can be made");
    close(file);
    pjrt_status *st = pjrt_executable_save(c->exe, path);
    if (st == NULL)
        st = pjrt_executable_load(c->client, path, pjrt_program_text(program_text), NULL, &again);
    if (st == NULL)
        st = run_and_check(c, again, NULL);
    pjrt_executable_free(again);
    unlink(path);
    return st;
}

static pjrt_status *probe_memory_figures(probe_context *c)
{
    pjrt_memory_stats stats;
    pjrt_executable *exe = c->exe != NULL ? c->exe : c->ahead;
    if (exe == NULL)
        return need_executable(c);
    return pjrt_executable_memory(exe, &stats);
}

static pjrt_status *probe_costs(probe_context *c)
{
    const pjrt_option *costs;
    size_t count;
    pjrt_executable *exe = c->exe != NULL ? c->exe : c->ahead;
    if (exe == NULL)
        return need_executable(c);
    return pjrt_executable_costs(exe, &costs, &count);
}

static pjrt_status *probe_optimized(probe_context *c)
{
    char *bytes;
    size_t size;
    const char *format;
    pjrt_hlo_report *report;
    pjrt_executable *exe = c->exe != NULL ? c->exe : c->ahead;
    if (exe == NULL)
        return need_executable(c);
    PJRT_TRY(pjrt_executable_optimized(exe, &bytes, &size, &format));
    pjrt_status *st = pjrt_hlo_report_create(format, bytes, size, &report);
    free(bytes);
    if (st == NULL)
        pjrt_hlo_report_free(report);
    return st;
}

/* ---- ahead of time and extensions --------------------------------------------------------------
 */

static pjrt_status *probe_topology(probe_context *c)
{
    const pjrt_target *target;
    const char *name = strstr(c->name, "tpu") != NULL    ? "tpu:v5e:2x2"
                       : strstr(c->name, "cuda") != NULL ? "cuda:a100-sxm-40gb"
                                                         : NULL;
    if (name != NULL && strchr(c->name, '/') == NULL)
        return pjrt_target_open(name, &target, &c->topology);
    return pjrt_topology_create(c->plugin, "", NULL, 0, &c->topology);
}

static pjrt_status *probe_compile_ahead(probe_context *c)
{
    if (c->topology == NULL)
        return PJRT_FAIL(UNAVAILABLE, call, "there is no topology to compile for");
    return pjrt_compile_ahead(c->topology, pjrt_program_text(program_text), NULL, &c->ahead);
}

static void *probe_handler(void *call_frame)
{
    pjrt_ffi_answer_metadata(call_frame, false);
    return NULL;
}

static pjrt_status *probe_ffi(probe_context *c)
{
    void *handler;
    void *(*function)(void *) = probe_handler;
    memcpy(&handler, &function, sizeof handler);
    if (c->plugin == NULL || (c->client == NULL && c->topology == NULL))
        return PJRT_FAIL(UNAVAILABLE, call, "there is nothing to compile for");
    const char *platform =
        c->client != NULL ? pjrt_client_platform(c->client) : pjrt_topology_platform(c->topology);
    if (strcmp(platform, "tpu") == 0) /* its registry is the host's; programs are elsewhere */
        return PJRT_FAIL(UNIMPLEMENTED, call, "programs on a TPU cannot call handlers");
    bool cuda = strcmp(platform, "cuda") == 0;
    PJRT_TRY(
        pjrt_ffi_register(c->plugin, "ttt_plugin_check", cuda ? "CUDA" : "Host", handler, false));
    return pjrt_ffi_probe(c->client, c->client == NULL ? c->topology : NULL, "ttt_plugin_check");
}

static pjrt_status *probe_profiler(probe_context *c)
{
    pjrt_profile *profile;
    PJRT_TRY(pjrt_profile_start(c->plugin, &profile));
    return pjrt_profile_stop(profile, NULL);
}

const probe probes[] = {
    {"load", "loads, versions agree, initialises", probe_load},
    {"client", "makes a client on this machine", probe_client},
    {"client-options", "refuses a client option it does not know", probe_bad_option},
    {"memory-stats", "tells how much device memory is in use", probe_memory_stats},
    {"types", "carries every element type there and back", probe_types},
    {"edge-shapes", "carries empty and rank-0 arrays", probe_edge_shapes},
    {"strides", "reads strided host data", probe_strides},
    {"zero-copy", "takes host memory without copying, and tells when it is done", probe_zero_copy},
    {"uninitialized", "makes uninitialised buffers", probe_uninitialized},
    {"compile", "compiles StableHLO text", probe_compile},
    {"bad-program", "explains what is wrong with a bad program", probe_bad_program},
    {"execute", "runs it, and the result is right", probe_execute},
    {"donation", "takes donated arguments", probe_donation},
    {"serialize", "saves and loads executables that still run", probe_save},
    {"topology", "describes hardware that is not here", probe_topology},
    {"compile-ahead", "compiles for it", probe_compile_ahead},
    {"memory-figures", "tells the memory a program needs", probe_memory_figures},
    {"cost-analysis", "tells a program's cost", probe_costs},
    {"optimized-program", "gives the optimized program", probe_optimized},
    {"ffi", "registers custom-call handlers, and the compiler finds them", probe_ffi},
    {"profiler", "profiles", probe_profiler},
};
const size_t n_probes = sizeof probes / sizeof *probes;

probe_outcome probe_judge(const pjrt_status *st)
{
    switch (pjrt_status_code(st)) {
    case PJRT_CODE_OK:
        return PROBE_OK;
    case PJRT_CODE_UNIMPLEMENTED:
        return PROBE_LACKS;
    case PJRT_CODE_UNAVAILABLE:
        return PROBE_SKIPPED;
    default:
        return PROBE_BROKEN;
    }
}

void probe_context_free(probe_context *c)
{
    pjrt_executable_free(c->exe);
    pjrt_executable_free(c->ahead);
    pjrt_topology_free(c->topology);
    pjrt_client_free(c->client);
}
