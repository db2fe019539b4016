/* The fake plugin's programs: compiled to whatever the control block says, run by adding one. */
#include "tests/fake/fake_internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- making them ---- */

static PJRT_Executable *new_executable(const fake_program *program, PJRT_Client *client)
{
    PJRT_Executable *executable = fake_new(FAKE_EXECUTABLE, sizeof *executable, client);
    int64_t *next = executable->dims;
    executable->program = *program;
    for (int i = 0; i < program->n_results; i++) {
        executable->types[i] = program->results[i].type;
        executable->dim_sizes[i] = (size_t)program->results[i].rank;
        for (int d = 0; d < program->results[i].rank; d++)
            *next++ = program->results[i].dims[d];
    }
    return executable;
}

static PJRT_LoadedExecutable *new_loaded(const fake_program *program, PJRT_Client *client)
{
    PJRT_LoadedExecutable *loaded = fake_new(FAKE_LOADED, sizeof *loaded, client);
    loaded->program = *program;
    return loaded;
}

/* Refuses what it is told to refuse, and custom calls that nobody registered. */
static PJRT_Error *check_program(const PJRT_Program *program, const char *options, size_t size)
{
    fake.seen.compile_options_size = size;
    if (size <= sizeof fake.seen.compile_options)
        memcpy(fake.seen.compile_options, options, size);
    if (program->struct_size != PJRT_Program_STRUCT_SIZE)
        fake_violation("PJRT_Program: struct_size %zu", program->struct_size);
    if (memmem(program->code, program->code_size, "fake.bad", 8) != NULL)
        return fake_make_error(PJRT_Error_Code_INVALID_ARGUMENT,
                               "3:7: error: unknown op fake.bad\n  see the second line");
    static const char call[] = "custom_call @\"";
    const char *at = memmem(program->code, program->code_size, call, sizeof call - 1);
    if (at == NULL)
        return NULL;
    at += sizeof call - 1;
    const char *end = memchr(at, '"', program->code_size - (size_t)(at - program->code));
    if (end != NULL && fake_ffi_registered(at, (size_t)(end - at)))
        return NULL;
    return fake_make_error(PJRT_Error_Code_UNIMPLEMENTED, "No FFI handler registered");
}

static PJRT_Error *client_compile(PJRT_Client_Compile_Args *args)
{
    FAKE_ENTER(PJRT_Client_Compile, args);
    fake_use(args->client, FAKE_CLIENT, "PJRT_Client_Compile");
    PJRT_Error *error =
        check_program(args->program, args->compile_options, args->compile_options_size);
    if (error == NULL)
        args->executable = new_loaded(&fake.program, args->client);
    return error;
}

static PJRT_Error *compile_ahead(PJRT_Compile_Args *args)
{
    FAKE_ENTER(PJRT_Compile, args);
    fake_use(args->topology, FAKE_TOPOLOGY, "PJRT_Compile");
    PJRT_Error *error =
        check_program(args->program, args->compile_options, args->compile_options_size);
    if (error == NULL)
        args->executable = new_executable(&fake.program, NULL);
    return error;
}

static void delete_serialized(PJRT_SerializedExecutable *serialized)
{
    FAKE_SCOPE;
    fake_destroy(serialized, FAKE_SERIALIZED, "serialized_executable_deleter");
}

static PJRT_Error *serialize(PJRT_Executable_Serialize_Args *args)
{
    FAKE_ENTER(PJRT_Executable_Serialize, args);
    fake_use(args->executable, FAKE_EXECUTABLE, "PJRT_Executable_Serialize");
    PJRT_SerializedExecutable *holder = fake_new(FAKE_SERIALIZED, sizeof *holder, NULL);
    memcpy(holder->bytes, "FAKE", 4);
    memcpy(holder->bytes + 4, &args->executable->program, sizeof(fake_program));
    args->serialized_bytes = holder->bytes;
    args->serialized_bytes_size = sizeof holder->bytes;
    args->serialized_executable = holder;
    args->serialized_executable_deleter = delete_serialized;
    return NULL;
}

static PJRT_Error *deserialize(PJRT_Executable_DeserializeAndLoad_Args *args)
{
    FAKE_ENTER(PJRT_Executable_DeserializeAndLoad, args);
    fake_use(args->client, FAKE_CLIENT, "PJRT_Executable_DeserializeAndLoad");
    fake_program program;
    if (args->serialized_executable_size != 4 + sizeof program ||
        memcmp(args->serialized_executable, "FAKE", 4) != 0)
        return fake_make_error(PJRT_Error_Code_INVALID_ARGUMENT, "no executable of this plugin");
    memcpy(&program, args->serialized_executable + 4, sizeof program);
    args->loaded_executable = new_loaded(&program, args->client);
    return NULL;
}

/* ---- questions ---- */

static PJRT_Error *get_executable(PJRT_LoadedExecutable_GetExecutable_Args *args)
{
    FAKE_ENTER(PJRT_LoadedExecutable_GetExecutable, args);
    fake_use(args->loaded_executable, FAKE_LOADED, "PJRT_LoadedExecutable_GetExecutable");
    args->executable =
        new_executable(&args->loaded_executable->program, args->loaded_executable->base.client);
    return NULL;
}

static PJRT_Error *executable_destroy(PJRT_Executable_Destroy_Args *args)
{
    FAKE_SCOPE;
    PJRT_Error *error = FAKE_TRY_ENTER(PJRT_Executable_Destroy, args);
    fake_destroy(args->executable, FAKE_EXECUTABLE, "PJRT_Executable_Destroy");
    return error;
}

static PJRT_Error *loaded_destroy(PJRT_LoadedExecutable_Destroy_Args *args)
{
    FAKE_SCOPE;
    PJRT_Error *error = FAKE_TRY_ENTER(PJRT_LoadedExecutable_Destroy, args);
    fake_destroy(args->executable, FAKE_LOADED, "PJRT_LoadedExecutable_Destroy");
    return error;
}

static PJRT_Error *executable_name(PJRT_Executable_Name_Args *args)
{
    FAKE_ENTER(PJRT_Executable_Name, args);
    fake_use(args->executable, FAKE_EXECUTABLE, "PJRT_Executable_Name");
    args->executable_name = "fake_module, cut here";
    args->executable_name_size = 11;
    return NULL;
}

static PJRT_Error *num_replicas(PJRT_Executable_NumReplicas_Args *args)
{
    FAKE_ENTER(PJRT_Executable_NumReplicas, args);
    args->num_replicas = (size_t)args->executable->program.replicas;
    return NULL;
}

static PJRT_Error *num_partitions(PJRT_Executable_NumPartitions_Args *args)
{
    FAKE_ENTER(PJRT_Executable_NumPartitions, args);
    args->num_partitions = (size_t)args->executable->program.partitions;
    return NULL;
}

static PJRT_Error *loaded_devices(PJRT_LoadedExecutable_AddressableDevices_Args *args)
{
    FAKE_ENTER(PJRT_LoadedExecutable_AddressableDevices, args);
    fake_use(args->executable, FAKE_LOADED, "PJRT_LoadedExecutable_AddressableDevices");
    const fake_program *p = &args->executable->program;
    args->addressable_devices = args->executable->base.client->list;
    args->num_addressable_devices = p->portable ? 0 : (size_t)(p->replicas * p->partitions);
    return NULL;
}

static PJRT_Error *output_types(PJRT_Executable_OutputElementTypes_Args *args)
{
    FAKE_ENTER(PJRT_Executable_OutputElementTypes, args);
    args->output_types = args->executable->types;
    args->num_output_types = (size_t)args->executable->program.n_results;
    return NULL;
}

static PJRT_Error *output_dimensions(PJRT_Executable_OutputDimensions_Args *args)
{
    FAKE_ENTER(PJRT_Executable_OutputDimensions, args);
    args->num_outputs = (size_t)args->executable->program.n_results;
    args->dims = args->executable->dims;
    args->dim_sizes = args->executable->dim_sizes;
    return NULL;
}

static PJRT_Error *optimized_program(PJRT_Executable_OptimizedProgram_Args *args)
{
    FAKE_ENTER(PJRT_Executable_OptimizedProgram, args);
    PJRT_Executable *executable = args->executable;
    fake_use(executable, FAKE_EXECUTABLE, "PJRT_Executable_OptimizedProgram");
    if (fake.hide_program)
        return fake_make_error(PJRT_Error_Code_UNIMPLEMENTED, "programs are secret");
    if (executable->optimized == NULL)
        executable->optimized =
            fake_write_module(&executable->program, fake.with_config, &executable->optimized_size);
    const char *bytes = fake.optimized != NULL ? fake.optimized : executable->optimized;
    size_t size = fake.optimized != NULL ? fake.optimized_size : executable->optimized_size;
    PJRT_Program *program = args->program;
    program->format = fake.with_config ? "hlo_with_config and more" : "hlo and more";
    program->format_size = fake.with_config ? 15 : 3;
    if (program->code == NULL)
        program->code_size = size;
    else
        memcpy(program->code, bytes, size);
    return NULL;
}

static PJRT_Error *memory_stats(PJRT_Executable_GetCompiledMemoryStats_Args *args)
{
    FAKE_ENTER(PJRT_Executable_GetCompiledMemoryStats, args);
    args->generated_code_size_in_bytes = 1;
    args->argument_size_in_bytes = 2;
    args->output_size_in_bytes = 3;
    args->alias_size_in_bytes = 4;
    args->temp_size_in_bytes = 5;
    args->host_argument_size_in_bytes = 6;
    args->host_output_size_in_bytes = 7;
    args->host_temp_size_in_bytes = 8;
    return NULL; /* the peak is left as it was, as plugins do that do not know it */
}

static PJRT_Error *cost_analysis(PJRT_Executable_GetCostAnalysis_Args *args)
{
    static const PJRT_NamedValue costs[] = {
        {.struct_size = PJRT_NamedValue_STRUCT_SIZE,
         .name = "flops",
         .name_size = 5,
         .type = PJRT_NamedValue_kFloat,
         .float_value = 8,
         .value_size = 1},
        {.struct_size = PJRT_NamedValue_STRUCT_SIZE,
         .name = "bytes accessed",
         .name_size = 14,
         .type = PJRT_NamedValue_kFloat,
         .float_value = 32,
         .value_size = 1},
    };
    FAKE_ENTER(PJRT_Executable_GetCostAnalysis, args);
    args->properties = costs;
    args->num_properties = 2;
    return NULL;
}

/* ---- running them ---- */

static void see_execute(const PJRT_LoadedExecutable_Execute_Args *args)
{
    fake_seen *seen = &fake.seen;
    const PJRT_ExecuteOptions *options = args->options;
    if (options->struct_size < PJRT_ExecuteOptions_STRUCT_SIZE + fake.newer)
        fake_violation("PJRT_ExecuteOptions: struct_size %zu", options->struct_size);
    seen->launch_id = options->launch_id;
    seen->n_keep = options->num_non_donatable_input_indices;
    for (size_t i = 0; i < seen->n_keep && i < FAKE_MAX_ARGS; i++)
        seen->keep[i] = options->non_donatable_input_indices[i];
    seen->events_wanted = args->device_complete_events != NULL;
    seen->execute_device =
        args->execute_device == NULL
            ? -1
            : (int)(args->execute_device - args->executable->base.client->devices);
    if (seen->events_wanted) {
        for (size_t d = 0; d < args->num_devices; d++) {
            if (args->device_complete_events[d] != NULL)
                fake_violation("PJRT_LoadedExecutable_Execute: events are not cleared");
        }
    }
}

static bool kept(const PJRT_ExecuteOptions *options, int index)
{
    for (size_t i = 0; i < options->num_non_donatable_input_indices; i++) {
        if (options->non_donatable_input_indices[i] == index)
            return true;
    }
    return false;
}

static void check_argument(PJRT_Buffer *buffer)
{
    if (!fake_use(buffer, FAKE_BUFFER, "PJRT_LoadedExecutable_Execute"))
        return;
    if (buffer->deleted)
        fake_violation("PJRT_LoadedExecutable_Execute: an argument is dead");
    else if (buffer->host_done != NULL && !buffer->zero_copy && !buffer->host_done->base.destroyed)
        fake_complete_event(buffer->host_done);
}

static PJRT_Buffer *make_result(const PJRT_LoadedExecutable_Execute_Args *args, size_t d, int index,
                                PJRT_Device *device)
{
    const fake_program *p = &args->executable->program;
    PJRT_Buffer *result =
        fake_new_buffer(args->executable->base.client, device, &p->results[index]);
    const PJRT_Buffer *from = p->n_args == 0 ? NULL : args->argument_lists[d][index % p->n_args];
    for (size_t i = 0; i < result->size; i++)
        result->data[i] = (char)((from != NULL && i < from->size ? from->data[i] : 0) + 1);
    return result;
}

static PJRT_Error *execute(PJRT_LoadedExecutable_Execute_Args *args)
{
    FAKE_ENTER(PJRT_LoadedExecutable_Execute, args);
    fake_use(args->executable, FAKE_LOADED, "PJRT_LoadedExecutable_Execute");
    const fake_program *p = &args->executable->program;
    PJRT_Client *client = args->executable->base.client;
    see_execute(args);
    for (size_t d = 0; d < args->num_devices; d++) {
        for (size_t i = 0; i < args->num_args; i++)
            check_argument(args->argument_lists[d][i]);
        PJRT_Device *device = args->execute_device != NULL ? args->execute_device : client->list[d];
        for (int i = 0; i < p->n_results && !fake.fail_after; i++)
            args->output_lists[d][i] = make_result(args, d, i, device);
        if (args->device_complete_events != NULL && !fake.fail_after)
            args->device_complete_events[d] = fake_new_event(client, fake.deferred);
    }
    for (size_t d = 0; d < args->num_devices; d++) {
        for (int i = 0; i < p->n_args; i++) {
            if (p->takes[i] && !kept(args->options, i))
                fake_delete_buffer(args->argument_lists[d][i]);
        }
    }
    return fake.fail_after ? fake_make_error(fake.fail_code, fake.fail_message) : NULL;
}

void fake_fill_programs(PJRT_Api *api)
{
    api->PJRT_Client_Compile = client_compile;
    api->PJRT_Compile = compile_ahead;
    api->PJRT_Executable_Serialize = serialize;
    api->PJRT_Executable_DeserializeAndLoad = deserialize;
    api->PJRT_LoadedExecutable_GetExecutable = get_executable;
    api->PJRT_Executable_Destroy = executable_destroy;
    api->PJRT_LoadedExecutable_Destroy = loaded_destroy;
    api->PJRT_Executable_Name = executable_name;
    api->PJRT_Executable_NumReplicas = num_replicas;
    api->PJRT_Executable_NumPartitions = num_partitions;
    api->PJRT_LoadedExecutable_AddressableDevices = loaded_devices;
    api->PJRT_Executable_OutputElementTypes = output_types;
    api->PJRT_Executable_OutputDimensions = output_dimensions;
    api->PJRT_Executable_OptimizedProgram = optimized_program;
    api->PJRT_Executable_GetCompiledMemoryStats = memory_stats;
    api->PJRT_Executable_GetCostAnalysis = cost_analysis;
    api->PJRT_LoadedExecutable_Execute = execute;
}
