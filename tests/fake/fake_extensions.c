/* The fake plugin's extensions (one of them unknown to any header) and its optimized programs. */
#include "tests/fake/fake_internal.h"

#include "xla/ffi/api/c_api.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- FFI ---- */

enum { MAX_HANDLERS = 8 };
static struct {
    char name[64];
    XLA_FFI_Handler *handler;
} handlers[MAX_HANDLERS];
static int n_handlers;

bool fake_ffi_registered(const char *name, size_t size)
{
    for (int i = 0; i < n_handlers; i++) {
        if (strlen(handlers[i].name) == size && memcmp(handlers[i].name, name, size) == 0)
            return true;
    }
    return false;
}

/* XLA asks a handler at registration what it is, with no arguments and no context. */
static bool answers(XLA_FFI_Handler *handler)
{
    XLA_FFI_Metadata metadata = {.struct_size = XLA_FFI_Metadata_STRUCT_SIZE};
    XLA_FFI_Metadata_Extension extension = {.metadata = &metadata};
    extension.extension_base.struct_size = XLA_FFI_Metadata_Extension_STRUCT_SIZE;
    extension.extension_base.type = XLA_FFI_Extension_Metadata;
    XLA_FFI_CallFrame frame = {.struct_size = XLA_FFI_CallFrame_STRUCT_SIZE,
                               .extension_start = &extension.extension_base,
                               .stage = XLA_FFI_ExecutionStage_EXECUTE};
    metadata.api_version.minor_version = -1;
    return handler(&frame) == NULL && metadata.api_version.major_version == 0 &&
           metadata.api_version.minor_version >= 1;
}

/* Like XLA's own, it drops the error of a registration that fails. */
static PJRT_Error *register_handler(PJRT_FFI_Register_Handler_Args *args)
{
    FAKE_SCOPE;
    PJRT_Error *error = fake_enter("PJRT_FFI_Register_Handler", args, args->struct_size,
                                   PJRT_FFI_Register_Handler_Args_STRUCT_SIZE, false);
    if (error != NULL)
        return error;
    XLA_FFI_Handler *handler;
    memcpy(&handler, &args->handler, sizeof handler);
    fake.seen.ffi_traits = (unsigned)args->traits;
    snprintf(fake.seen.ffi_platform, sizeof fake.seen.ffi_platform, "%.*s",
             (int)args->platform_name_size, args->platform_name);
    if (fake.drop_register || n_handlers == MAX_HANDLERS || !answers(handler) ||
        fake_ffi_registered(args->target_name, args->target_name_size))
        return NULL;
    snprintf(handlers[n_handlers].name, sizeof handlers->name, "%.*s", (int)args->target_name_size,
             args->target_name);
    handlers[n_handlers++].handler = handler;
    return NULL;
}

/* ---- profiler ---- */

struct PLUGIN_Profiler {
    fake_object base;
    bool running;
};

static void profiler_error_destroy(PLUGIN_Profiler_Error_Destroy_Args *args)
{
    FAKE_SCOPE;
    fake_destroy(args->error, FAKE_ERROR, "PLUGIN_Profiler_Error_Destroy");
}

static void profiler_error_message(PLUGIN_Profiler_Error_Message_Args *args)
{
    const PJRT_Error *error = (const PJRT_Error *)args->error;
    args->message = error->message;
    args->message_size = strlen(error->message);
}

static PLUGIN_Profiler_Error *profiler_error_code(PLUGIN_Profiler_Error_GetCode_Args *args)
{
    args->code = (int)((const PJRT_Error *)args->error)->code;
    return NULL;
}

#define PROFILER_ENTER(entry, args)                                     \
    FAKE_SCOPE;                                                         \
    PLUGIN_Profiler_Error *error = (PLUGIN_Profiler_Error *)fake_enter( \
        #entry, args, (args)->struct_size, entry##_Args_STRUCT_SIZE, false)

static PLUGIN_Profiler_Error *profiler_create(PLUGIN_Profiler_Create_Args *args)
{
    PROFILER_ENTER(PLUGIN_Profiler_Create, args);
    if (error == NULL)
        args->profiler = fake_new(FAKE_PROFILER, sizeof *args->profiler, NULL);
    return error;
}

static PLUGIN_Profiler_Error *profiler_destroy(PLUGIN_Profiler_Destroy_Args *args)
{
    PROFILER_ENTER(PLUGIN_Profiler_Destroy, args);
    fake_destroy(args->profiler, FAKE_PROFILER, "PLUGIN_Profiler_Destroy");
    return error;
}

static PLUGIN_Profiler_Error *profiler_start(PLUGIN_Profiler_Start_Args *args)
{
    PROFILER_ENTER(PLUGIN_Profiler_Start, args);
    args->profiler->running = error == NULL;
    return error;
}

static PLUGIN_Profiler_Error *profiler_stop(PLUGIN_Profiler_Stop_Args *args)
{
    PROFILER_ENTER(PLUGIN_Profiler_Stop, args);
    if (!args->profiler->running)
        fake_violation("PLUGIN_Profiler_Stop: it does not run");
    args->profiler->running = false;
    return error;
}

static PLUGIN_Profiler_Error *profiler_collect(PLUGIN_Profiler_CollectData_Args *args)
{
    static const char trace[] = "trace of nothing";
    PROFILER_ENTER(PLUGIN_Profiler_CollectData, args);
    if (error != NULL)
        return error;
    if (args->profiler->running)
        fake_violation("PLUGIN_Profiler_CollectData: it still runs");
    if (args->buffer != NULL)
        memcpy(args->buffer, trace, sizeof trace - 1);
    args->buffer_size_in_bytes = sizeof trace - 1;
    return NULL;
}

/* ---- the chain ---- */

void fake_fill_extensions(PJRT_Api *api)
{
    static PLUGIN_Profiler_Api profiler_api;
    static PJRT_Profiler_Extension profiler;
    static PJRT_FFI_Extension ffi;
    static PJRT_Extension_Base unknown;
    profiler_api = (PLUGIN_Profiler_Api){.struct_size = PLUGIN_Profiler_Api_STRUCT_SIZE,
                                         .error_destroy = profiler_error_destroy,
                                         .error_message = profiler_error_message,
                                         .error_get_code = profiler_error_code,
                                         .create = profiler_create,
                                         .destroy = profiler_destroy,
                                         .start = profiler_start,
                                         .stop = profiler_stop,
                                         .collect_data = profiler_collect};
    profiler = (PJRT_Profiler_Extension){
        .base = {PJRT_Profiler_Extension_STRUCT_SIZE, PJRT_Extension_Type_Profiler, NULL},
        .profiler_api = &profiler_api};
    ffi = (PJRT_FFI_Extension){
        .base = {PJRT_FFI_Extension_STRUCT_SIZE, PJRT_Extension_Type_FFI, &profiler.base},
        .register_handler = register_handler};
    unknown = (PJRT_Extension_Base){sizeof unknown, (PJRT_Extension_Type)7777, &ffi.base};
    fake.unknown = &unknown;
    fake.ffi = &ffi;
    fake.profiler = &profiler;
    api->extension_start = &unknown;
}

/* ---- optimized programs ---- */

typedef struct writer {
    char bytes[2048];
    size_t size;
} writer;

static void put_varint(writer *w, uint64_t value)
{
    do {
        w->bytes[w->size++] = (char)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
        value >>= 7;
    } while (value > 0);
}

static void put_number(writer *w, unsigned field, uint64_t value)
{
    put_varint(w, field << 3);
    put_varint(w, value);
}

static void put_bytes(writer *w, unsigned field, const void *bytes, size_t size)
{
    put_varint(w, field << 3 | 2);
    put_varint(w, size);
    if (w->size + size > sizeof w->bytes)
        abort();
    memcpy(w->bytes + w->size, bytes, size);
    w->size += size;
}

static void put_shape(writer *w, unsigned field, const fake_shape *shape)
{
    /* PJRT's numbers to XLA's: the same but for the last three. */
    static const int primitive[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 16, 15, 18};
    writer dims = {.size = 0}, inner = {.size = 0};
    for (int i = 0; i < shape->rank; i++)
        put_varint(&dims, (uint64_t)shape->dims[i]);
    put_number(&inner, 2, (uint64_t)primitive[shape->type]);
    put_bytes(&inner, 3, dims.bytes, dims.size);
    put_bytes(w, field, inner.bytes, inner.size);
}

static void put_instruction(writer *w, const char *name, const char *opcode,
                            const fake_shape *shape, int id)
{
    writer inner = {.size = 0};
    put_bytes(&inner, 1, name, strlen(name));
    put_bytes(&inner, 2, opcode, strlen(opcode));
    put_shape(&inner, 3, shape);
    put_number(&inner, 9, (uint64_t)(id - 1));
    put_number(&inner, 35, (uint64_t)id);
    put_bytes(w, 2, inner.bytes, inner.size);
}

char *fake_write_module(const fake_program *program, bool with_config, size_t *size)
{
    static const fake_shape nothing = {.type = PJRT_Buffer_Type_F32};
    writer shape = {.size = 0}, entry = {.size = 0}, module = {.size = 0}, whole = {.size = 0};
    for (int i = 0; i < program->n_args; i++)
        put_shape(&shape, 1, &program->args[i]);
    put_shape(&shape, 2, program->n_results > 0 ? &program->results[0] : &nothing);
    put_bytes(&entry, 1, "main", 4);
    for (int i = 0; i < program->n_args; i++)
        put_instruction(&entry, "argument", "parameter", &program->args[i], i + 1);
    put_instruction(&entry, "root", "constant", &nothing, program->n_args + 1);
    put_number(&entry, 5, 1);
    put_number(&entry, 6, (uint64_t)program->n_args + 1);
    put_bytes(&module, 1, "fake_module", 11);
    put_bytes(&module, 2, "main", 4);
    put_bytes(&module, 3, entry.bytes, entry.size);
    put_bytes(&module, 4, shape.bytes, shape.size);
    put_number(&module, 6, 1);
    if (with_config)
        put_bytes(&whole, 1, module.bytes, module.size);
    const writer *chosen = with_config ? &whole : &module;
    char *bytes = malloc(chosen->size);
    if (bytes == NULL)
        abort();
    memcpy(bytes, chosen->bytes, chosen->size);
    *size = chosen->size;
    return bytes;
}
