/* The plugin's own profiler, where it has one: start, stop, one trace file. */
#include "pjrt/internal.h"

#include "xla/pjrt/c/pjrt_c_api_profiler_extension.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

struct pjrt_profile {
    const PLUGIN_Profiler_Api *api;
    PLUGIN_Profiler *raw;
    bool running; /* one that did not start must not be stopped */
};

static pjrt_status *take_error(const PLUGIN_Profiler_Api *api, PLUGIN_Profiler_Error *error,
                               const char *call)
{
    if (error == NULL)
        return NULL;
    PLUGIN_Profiler_Error_Message_Args message = {
        .struct_size = PLUGIN_Profiler_Error_Message_Args_STRUCT_SIZE, .error = error};
    api->error_message(&message);
    PLUGIN_Profiler_Error_GetCode_Args code = {.struct_size =
                                                   PLUGIN_Profiler_Error_GetCode_Args_STRUCT_SIZE,
                                               .error = error,
                                               .code = PJRT_CODE_UNKNOWN};
    api->error_get_code(&code);
    int size = message.message_size > INT_MAX ? INT_MAX : (int)message.message_size;
    pjrt_status *st = pjrt_status_make((pjrt_code)code.code, call, __FILE__, __LINE__, "%.*s", size,
                                       message.message == NULL ? "" : message.message);
    PLUGIN_Profiler_Error_Destroy_Args destroy = {
        .struct_size = PLUGIN_Profiler_Error_Destroy_Args_STRUCT_SIZE, .error = error};
    api->error_destroy(&destroy);
    return st;
}

pjrt_status *pjrt_profile_start(pjrt_plugin *plugin, pjrt_profile **out)
{
    *out = NULL;
    PJRT_Profiler_Extension *extension = (PJRT_Profiler_Extension *)pjrt__extension(
        plugin, PJRT_Extension_Type_Profiler,
        offsetof(PJRT_Profiler_Extension, profiler_api) + sizeof(void *));
    if (extension == NULL || extension->profiler_api == NULL ||
        extension->profiler_api->struct_size < PLUGIN_Profiler_Api_STRUCT_SIZE)
        return PJRT_FAIL(UNIMPLEMENTED, "pjrt_profile_start", "%s has no profiler", plugin->path);
    pjrt_profile *profile = calloc(1, sizeof *profile);
    if (profile == NULL)
        return PJRT_NO_MEMORY("pjrt_profile_start");
    profile->api = extension->profiler_api;
    PLUGIN_Profiler_Create_Args create = {.struct_size = PLUGIN_Profiler_Create_Args_STRUCT_SIZE,
                                          .options = ""};
    pjrt_status *st =
        take_error(profile->api, profile->api->create(&create), "PLUGIN_Profiler_Create");
    profile->raw = create.profiler;
    if (st == NULL) {
        PLUGIN_Profiler_Start_Args start = {.struct_size = PLUGIN_Profiler_Start_Args_STRUCT_SIZE,
                                            .profiler = profile->raw};
        st = take_error(profile->api, profile->api->start(&start), "PLUGIN_Profiler_Start");
        profile->running = st == NULL;
    }
    if (st != NULL) {
        pjrt_status_free(pjrt_profile_stop(profile, NULL));
        return st;
    }
    *out = profile;
    return NULL;
}

static pjrt_status *write_trace(const char *path, const uint8_t *bytes, size_t size)
{
    FILE *file = fopen(path, "wb");
    if (file == NULL)
        return PJRT_FAIL(UNAVAILABLE, "pjrt_profile_stop", "%s: %s", path, strerror(errno));
    bool ok = fwrite(bytes, 1, size, file) == size;
    ok = fclose(file) == 0 && ok;
    return ok ? NULL : PJRT_FAIL(UNAVAILABLE, "pjrt_profile_stop", "%s: %s", path, strerror(errno));
}

static pjrt_status *collect(pjrt_profile *profile, const char *path)
{
    PLUGIN_Profiler_CollectData_Args data = {
        .struct_size = PLUGIN_Profiler_CollectData_Args_STRUCT_SIZE, .profiler = profile->raw};
    PJRT_TRY(take_error(profile->api, profile->api->collect_data(&data), /* tells the size */
                        "PLUGIN_Profiler_CollectData"));
    uint8_t *bytes = malloc(data.buffer_size_in_bytes + 1);
    if (bytes == NULL)
        return PJRT_NO_MEMORY("pjrt_profile_stop");
    data.buffer = bytes;
    pjrt_status *st =
        take_error(profile->api, profile->api->collect_data(&data), "PLUGIN_Profiler_CollectData");
    if (st == NULL)
        st = write_trace(path, bytes, data.buffer_size_in_bytes);
    free(bytes);
    return st;
}

pjrt_status *pjrt_profile_stop(pjrt_profile *profile, const char *path)
{
    pjrt_status *st = NULL;
    if (profile == NULL)
        return NULL;
    if (profile->raw != NULL) {
        PLUGIN_Profiler_Stop_Args stop = {.struct_size = PLUGIN_Profiler_Stop_Args_STRUCT_SIZE,
                                          .profiler = profile->raw};
        if (profile->running)
            st = take_error(profile->api, profile->api->stop(&stop), "PLUGIN_Profiler_Stop");
        if (st == NULL && path != NULL)
            st = collect(profile, path);
        PLUGIN_Profiler_Destroy_Args destroy = {
            .struct_size = PLUGIN_Profiler_Destroy_Args_STRUCT_SIZE, .profiler = profile->raw};
        pjrt_status_free(
            take_error(profile->api, profile->api->destroy(&destroy), "PLUGIN_Profiler_Destroy"));
    }
    free(profile);
    return st;
}
