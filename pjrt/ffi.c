/*
 * XLA FFI: C functions that compiled programs call.
 *
 * XLA asks a handler what it is by calling it with a metadata extension on the frame, without
 * arguments or context; a handler that runs its kernel then crashes. And a plugin may drop the
 * error of a registration that failed. Hence the metadata helper for handlers, the same question
 * asked here before registering, and the probe that asks the compiler.
 */
#include "pjrt/internal.h"

#include "xla/ffi/api/c_api.h"
#include "xla/pjrt/c/pjrt_c_api_ffi_extension.h"

#include <stdio.h>
#include <stdlib.h>

/* What our handlers need of XLA: the first FFI version that had metadata. */
enum { NEEDED_MAJOR = 0, NEEDED_MINOR = 1 };

bool pjrt_ffi_answer_metadata(void *call_frame, bool command_buffer_compatible)
{
    XLA_FFI_CallFrame *frame = call_frame;
    for (XLA_FFI_Extension_Base *e = frame->extension_start; e != NULL; e = e->next) {
        if (e->type != XLA_FFI_Extension_Metadata)
            continue;
        XLA_FFI_Metadata *metadata = ((XLA_FFI_Metadata_Extension *)e)->metadata;
        metadata->api_version.major_version = NEEDED_MAJOR;
        metadata->api_version.minor_version = NEEDED_MINOR;
        if (command_buffer_compatible)
            metadata->traits |= XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE;
        return true;
    }
    return false;
}

/* Asks as XLA will; a handler that ignores the question fails here, with its name. */
static pjrt_status *ask_metadata(XLA_FFI_Handler *handler, const char *target)
{
    static const char where[] = "pjrt_ffi_register";
    XLA_FFI_Metadata metadata = {.struct_size = XLA_FFI_Metadata_STRUCT_SIZE};
    metadata.api_version.struct_size = XLA_FFI_Api_Version_STRUCT_SIZE;
    metadata.api_version.major_version = -1;
    XLA_FFI_Metadata_Extension extension = {.metadata = &metadata};
    extension.extension_base.struct_size = XLA_FFI_Metadata_Extension_STRUCT_SIZE;
    extension.extension_base.type = XLA_FFI_Extension_Metadata;
    XLA_FFI_CallFrame frame = {.struct_size = XLA_FFI_CallFrame_STRUCT_SIZE,
                               .extension_start = &extension.extension_base,
                               .stage = XLA_FFI_ExecutionStage_EXECUTE};
    if (handler(&frame) != NULL)
        return PJRT_FAIL(INVALID_ARGUMENT, where, "the handler of %s failed to tell its metadata",
                         target);
    if (metadata.api_version.major_version != NEEDED_MAJOR)
        return PJRT_FAIL(INVALID_ARGUMENT, where,
                         "the handler of %s does not answer the metadata question: it must begin "
                         "with pjrt_ffi_answer_metadata",
                         target);
    return NULL;
}

pjrt_status *pjrt_ffi_register(pjrt_plugin *plugin, const char *target, const char *platform,
                               void *handler, bool command_buffer_compatible)
{
    XLA_FFI_Handler *function;
    memcpy(&function, &handler, sizeof function);
    PJRT_TRY(ask_metadata(function, target));
    PJRT_FFI_Extension *extension = (PJRT_FFI_Extension *)pjrt__extension(
        plugin, PJRT_Extension_Type_FFI, PJRT_FFI_Extension_STRUCT_SIZE);
    if (extension == NULL || extension->register_handler == NULL)
        return PJRT_FAIL(UNIMPLEMENTED, "pjrt_ffi_register",
                         "%s has no FFI extension that registers handlers", plugin->path);
    ARGS(PJRT_FFI_Register_Handler_Args, call, plugin);
    call.a.target_name = target;
    call.a.target_name_size = strlen(target);
    call.a.handler = handler;
    call.a.platform_name = platform;
    call.a.platform_name_size = strlen(platform);
    if (command_buffer_compatible)
        call.a.traits = PJRT_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE;
    return pjrt__take_error(plugin, extension->register_handler(&call.a),
                            "PJRT_FFI_Register_Handler", __FILE__, __LINE__);
}

pjrt_status *pjrt_ffi_probe(pjrt_client *client, pjrt_topology *topology, const char *target)
{
    static const char format[] =
        "module @ffi_probe {\n"
        "  func.func public @main(%%arg0: tensor<1xf32>) -> tensor<1xf32> {\n"
        "    %%0 = stablehlo.custom_call @\"%s\"(%%arg0) {api_version = 4 : i32, "
        "has_side_effect = true, backend_config = {}} : (tensor<1xf32>) -> tensor<1xf32>\n"
        "    return %%0 : tensor<1xf32>\n"
        "  }\n"
        "}\n";
    size_t size = sizeof format + strlen(target);
    pjrt_executable *exe;
    char *program = malloc(size);
    if (program == NULL)
        return PJRT_NO_MEMORY("pjrt_ffi_probe");
    snprintf(program, size, format, target);
    pjrt_status *st = client != NULL
                          ? pjrt_compile(client, pjrt_program_text(program), NULL, &exe)
                          : pjrt_compile_ahead(topology, pjrt_program_text(program), NULL, &exe);
    free(program);
    if (st == NULL)
        pjrt_executable_free(exe);
    return st;
}
