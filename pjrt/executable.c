/* Compilation, for a client and ahead of time, and queries on executables. */
#include "pjrt/internal.h"

#include <stdlib.h>

pjrt_program pjrt_program_text(const char *mlir)
{
    return (pjrt_program){.code = mlir, .size = strlen(mlir), .format = "mlir"};
}

/* ---- wrapping a new executable ---- */

static pjrt_status *learn_name(pjrt_executable *exe)
{
    ARGS(PJRT_Executable_Name_Args, name, exe->plugin);
    name.a.executable = exe->raw;
    PJRT_TRY(CALL(exe->plugin, PJRT_Executable_Name, name));
    exe->name = pjrt__copy_text(name.a.executable_name, name.a.executable_name_size);
    return exe->name == NULL ? PJRT_NO_MEMORY("pjrt_compile") : NULL;
}

static pjrt_status *learn_devices(pjrt_executable *exe)
{
    ARGS(PJRT_Executable_NumReplicas_Args, replicas, exe->plugin);
    replicas.a.executable = exe->raw;
    PJRT_TRY(CALL(exe->plugin, PJRT_Executable_NumReplicas, replicas));
    ARGS(PJRT_Executable_NumPartitions_Args, partitions, exe->plugin);
    partitions.a.executable = exe->raw;
    PJRT_TRY(CALL(exe->plugin, PJRT_Executable_NumPartitions, partitions));
    exe->n_devices = (int)(replicas.a.num_replicas * partitions.a.num_partitions);
    if (exe->loaded == NULL)
        return NULL;

    ARGS(PJRT_LoadedExecutable_AddressableDevices_Args, list, exe->plugin);
    list.a.executable = exe->loaded;
    PJRT_TRY(CALL(exe->plugin, PJRT_LoadedExecutable_AddressableDevices, list));
    size_t count = list.a.num_addressable_devices;
    exe->portable = count == 0;
    exe->n_addressable = exe->portable ? 1 : (int)count;
    exe->devices = calloc(count + 1, sizeof *exe->devices);
    if (exe->devices == NULL)
        return PJRT_NO_MEMORY("pjrt_compile");
    for (size_t i = 0; i < count; i++) {
        exe->devices[i] = pjrt__client_find_device(exe->client, list.a.addressable_devices[i]);
        if (exe->devices[i] == NULL)
            return PJRT_FAIL(INTERNAL, "pjrt_compile",
                             "the executable names a device that the client does not have");
    }
    return NULL;
}

static pjrt_status *learn_results(pjrt_executable *exe)
{
    ARGS(PJRT_Executable_OutputElementTypes_Args, types, exe->plugin);
    types.a.executable = exe->raw;
    PJRT_TRY(CALL(exe->plugin, PJRT_Executable_OutputElementTypes, types));
    ARGS(PJRT_Executable_OutputDimensions_Args, dims, exe->plugin);
    dims.a.executable = exe->raw;
    PJRT_TRY(CALL(exe->plugin, PJRT_Executable_OutputDimensions, dims));
    if (types.a.num_output_types != dims.a.num_outputs)
        return PJRT_FAIL(INTERNAL, "pjrt_compile", "%zu result types but %zu result shapes",
                         types.a.num_output_types, dims.a.num_outputs);
    size_t count = dims.a.num_outputs;
    const int64_t *next = dims.a.dims;
    exe->results = calloc(count + 1, sizeof *exe->results);
    if (exe->results == NULL)
        return PJRT_NO_MEMORY("pjrt_compile");
    exe->n_results = (int)count;
    for (size_t i = 0; i < count; i++) {
        size_t rank = dims.a.dim_sizes[i];
        if (rank > PJRT_MAX_RANK)
            return PJRT_FAIL(UNIMPLEMENTED, "pjrt_compile",
                             "result %zu has %zu dimensions; at most %d are supported", i, rank,
                             PJRT_MAX_RANK);
        exe->results[i].type = (pjrt_type)types.a.output_types[i];
        exe->results[i].rank = (int)rank;
        for (size_t d = 0; d < rank; d++)
            exe->results[i].dims[d] = *next++;
    }
    return NULL;
}

static void destroy_raw(const pjrt_plugin *plugin, PJRT_LoadedExecutable *loaded,
                        PJRT_Executable *raw)
{
    if (raw != NULL) {
        ARGS(PJRT_Executable_Destroy_Args, destroy, plugin);
        destroy.a.executable = raw;
        CALL_VOID(plugin, PJRT_Executable_Destroy, destroy);
    }
    if (loaded != NULL) {
        ARGS(PJRT_LoadedExecutable_Destroy_Args, destroy, plugin);
        destroy.a.executable = loaded;
        CALL_VOID(plugin, PJRT_LoadedExecutable_Destroy, destroy);
    }
}

static pjrt_status *learn(pjrt_executable *exe)
{
    if (exe->loaded != NULL) {
        ARGS(PJRT_LoadedExecutable_GetExecutable_Args, get, exe->plugin);
        get.a.loaded_executable = exe->loaded;
        PJRT_TRY(CALL(exe->plugin, PJRT_LoadedExecutable_GetExecutable, get));
        exe->raw = get.a.executable; /* ours to destroy, unlike most of what getters return */
    }
    PJRT_TRY(learn_name(exe));
    PJRT_TRY(learn_devices(exe));
    return learn_results(exe);
}

pjrt_status *pjrt__executable_wrap(pjrt_plugin *plugin, pjrt_client *client,
                                   PJRT_LoadedExecutable *loaded, PJRT_Executable *raw,
                                   pjrt_executable **out)
{
    *out = NULL;
    pjrt_executable *exe = calloc(1, sizeof *exe);
    if (exe == NULL) {
        destroy_raw(plugin, loaded, raw);
        return PJRT_NO_MEMORY("pjrt_compile");
    }
    exe->plugin = plugin;
    exe->loaded = loaded;
    exe->raw = raw;
    exe->client = client;
    if (client != NULL)
        pjrt__client_ref(client);
    pthread_mutex_init(&exe->lock, NULL);
    pjrt_status *st = learn(exe);
    if (st != NULL) {
        pjrt_executable_free(exe);
        return st;
    }
    *out = exe;
    return NULL;
}

void pjrt_executable_free(pjrt_executable *exe)
{
    if (exe == NULL)
        return;
    destroy_raw(exe->plugin, exe->loaded, exe->raw);
    if (exe->client != NULL)
        pjrt__client_unref(exe->client);
    pthread_mutex_destroy(&exe->lock);
    pjrt_status_free(exe->arguments_failure);
    pjrt__options_free(exe->costs, exe->n_costs);
    free(exe->name);
    free(exe->devices);
    free(exe->results);
    free(exe->arguments);
    free(exe->donated);
    free(exe->platform);
    free(exe->platform_version);
    free(exe->kind);
    free(exe);
}

/* ---- compiling ---- */

static PJRT_Program raw_program(const pjrt_program *program)
{
    return (PJRT_Program){
        .struct_size = PJRT_Program_STRUCT_SIZE,
        .code = (char *)program->code, /* read only here, though the API's field is not const */
        .code_size = program->size,
        .format = program->format,
        .format_size = strlen(program->format),
    };
}

pjrt_status *pjrt__executable_stamp(pjrt_executable *exe, const char *options_hash,
                                    const char *program_hash, const char *platform,
                                    const char *platform_version, const char *kind)
{
    memcpy(exe->options_hash, options_hash, sizeof exe->options_hash);
    memcpy(exe->program_hash, program_hash, sizeof exe->program_hash);
    exe->platform = pjrt__copy_text(platform, strlen(platform));
    exe->platform_version = pjrt__copy_text(platform_version, strlen(platform_version));
    exe->kind = pjrt__copy_text(kind, strlen(kind));
    if (exe->platform == NULL || exe->platform_version == NULL || exe->kind == NULL)
        return PJRT_NO_MEMORY("pjrt_compile");
    return NULL;
}

/* Either for `client` or, when that is NULL, ahead of time for `topology`. */
static pjrt_status *compile_raw(pjrt_client *client, pjrt_topology *topology,
                                const pjrt_program *program, const char *options, size_t size,
                                pjrt_executable **out)
{
    PJRT_Program raw = raw_program(program);
    if (client != NULL) {
        ARGS(PJRT_Client_Compile_Args, call, client->plugin);
        call.a.client = client->raw;
        call.a.program = &raw;
        call.a.compile_options = options;
        call.a.compile_options_size = size;
        PJRT_TRY(CALL(client->plugin, PJRT_Client_Compile, call));
        return pjrt__executable_wrap(client->plugin, client, call.a.executable, NULL, out);
    }
    ARGS(PJRT_Compile_Args, call, topology->plugin);
    call.a.topology = topology->raw;
    call.a.program = &raw;
    call.a.compile_options = options;
    call.a.compile_options_size = size;
    PJRT_TRY(CALL(topology->plugin, PJRT_Compile, call));
    return pjrt__executable_wrap(topology->plugin, NULL, NULL, call.a.executable, out);
}

static pjrt_status *compile(pjrt_client *client, pjrt_topology *topology,
                            const pjrt_program *program, const pjrt_compile_options *options,
                            pjrt_executable **out)
{
    char *encoded, program_hash[33], options_hash[33];
    size_t size;
    *out = NULL;
    PJRT_TRY(pjrt_compile_options_encode(options, program, &encoded, &size));
    pjrt_status *st = compile_raw(client, topology, program, encoded, size, out);
    pjrt__hash_hex(program->code, program->size, program_hash);
    pjrt__hash_hex(encoded, size, options_hash);
    free(encoded);
    if (st == NULL)
        st = client != NULL
                 ? pjrt__executable_stamp(*out, options_hash, program_hash, client->platform,
                                          client->platform_version, pjrt__client_kind(client))
                 : pjrt__executable_stamp(*out, options_hash, program_hash, topology->platform,
                                          topology->platform_version, topology->kind);
    if (st == NULL)
        st = pjrt__donations_of_text(program, &(*out)->donated, &(*out)->n_donated);
    if (st != NULL) {
        pjrt_executable_free(*out);
        *out = NULL;
    }
    return st;
}

pjrt_status *pjrt_compile(pjrt_client *client, pjrt_program program,
                          const pjrt_compile_options *options, pjrt_executable **out)
{
    return compile(client, NULL, &program, options, out);
}

pjrt_status *pjrt_compile_ahead(pjrt_topology *topology, pjrt_program program,
                                const pjrt_compile_options *options, pjrt_executable **out)
{
    return compile(NULL, topology, &program, options, out);
}

/* ---- queries ---- */

int pjrt_executable_num_devices(const pjrt_executable *exe)
{
    return exe->n_devices;
}

int pjrt_executable_num_results(const pjrt_executable *exe)
{
    return exe->n_results;
}

const pjrt_shape *pjrt_executable_result(const pjrt_executable *exe, int index)
{
    return index >= 0 && index < exe->n_results ? &exe->results[index] : NULL;
}

const char *pjrt_executable_name(const pjrt_executable *exe)
{
    return exe->name;
}

pjrt_status *pjrt_executable_optimized(const pjrt_executable *exe, char **bytes, size_t *size,
                                       const char **format)
{
    *bytes = NULL;
    *size = 0;
    *format = "hlo";
    PJRT_Program program = {.struct_size = PJRT_Program_STRUCT_SIZE};
    ARGS(PJRT_Executable_OptimizedProgram_Args, call, exe->plugin);
    call.a.executable = exe->raw;
    call.a.program = &program;
    PJRT_TRY(CALL(exe->plugin, PJRT_Executable_OptimizedProgram, call)); /* tells the size */
    program.code = malloc(program.code_size + 1);
    if (program.code == NULL)
        return PJRT_NO_MEMORY("pjrt_executable_optimized");
    pjrt_status *st = CALL(exe->plugin, PJRT_Executable_OptimizedProgram, call);
    if (st != NULL) {
        free(program.code);
        return st;
    }
    if (program.format_size == strlen("hlo_with_config") &&
        memcmp(program.format, "hlo_with_config", program.format_size) == 0)
        *format = "hlo_with_config";
    *bytes = program.code;
    *size = program.code_size;
    return NULL;
}

static pjrt_status *learn_arguments(pjrt_executable *exe)
{
    char *bytes;
    size_t size;
    const char *format;
    PJRT_TRY(pjrt_executable_optimized(exe, &bytes, &size, &format));
    pjrt_status *st = pjrt__arguments_of_module(bytes, size, strcmp(format, "hlo") != 0,
                                                &exe->arguments, &exe->n_arguments);
    free(bytes);
    return st;
}

pjrt_status *pjrt_executable_arguments(pjrt_executable *exe, const pjrt_shape **shapes, int *count)
{
    *shapes = NULL;
    *count = 0;
    if (!atomic_load_explicit(&exe->arguments_known, memory_order_acquire)) {
        pjrt_status *passing = NULL; /* a failure that may be gone next time */
        pthread_mutex_lock(&exe->lock);
        if (!exe->arguments_known) {
            pjrt_status *st = learn_arguments(exe);
            if (pjrt_status_code(st) == PJRT_CODE_RESOURCE_EXHAUSTED) {
                passing = st;
            } else {
                exe->arguments_failure = st;
                atomic_store_explicit(&exe->arguments_known, true, memory_order_release);
            }
        }
        pthread_mutex_unlock(&exe->lock);
        if (passing != NULL)
            return passing;
    }
    if (exe->arguments_failure != NULL)
        return pjrt_status_copy(exe->arguments_failure);
    *shapes = exe->arguments;
    *count = exe->n_arguments;
    return NULL;
}

pjrt_status *pjrt_executable_memory(const pjrt_executable *exe, pjrt_memory_stats *out)
{
    *out = (pjrt_memory_stats){.peak = -1};
    ARGS(PJRT_Executable_GetCompiledMemoryStats_Args, call, exe->plugin);
    call.a.executable = exe->raw;
    call.a.peak_memory_in_bytes = -1; /* plugins before it existed leave it as it is */
    PJRT_TRY(CALL(exe->plugin, PJRT_Executable_GetCompiledMemoryStats, call));
    *out = (pjrt_memory_stats){
        .code = call.a.generated_code_size_in_bytes,
        .arguments = call.a.argument_size_in_bytes,
        .results = call.a.output_size_in_bytes,
        .alias = call.a.alias_size_in_bytes,
        .temp = call.a.temp_size_in_bytes,
        .host_arguments = call.a.host_argument_size_in_bytes,
        .host_results = call.a.host_output_size_in_bytes,
        .host_temp = call.a.host_temp_size_in_bytes,
        .peak = call.a.peak_memory_in_bytes,
    };
    return NULL;
}

pjrt_status *pjrt_executable_costs(pjrt_executable *exe, const pjrt_option **costs, size_t *count)
{
    pjrt_status *st = NULL;
    *costs = NULL;
    *count = 0;
    pthread_mutex_lock(&exe->lock);
    if (exe->costs == NULL) {
        ARGS(PJRT_Executable_GetCostAnalysis_Args, call, exe->plugin);
        call.a.executable = exe->raw;
        st = CALL(exe->plugin, PJRT_Executable_GetCostAnalysis, call);
        if (st == NULL)
            st = pjrt__options_from_raw(call.a.properties, call.a.num_properties, &exe->costs);
        exe->n_costs = exe->costs == NULL ? 0 : call.a.num_properties;
    }
    *costs = exe->costs;
    *count = exe->n_costs;
    pthread_mutex_unlock(&exe->lock);
    return st;
}
