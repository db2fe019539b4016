/*
 * The FFI extension: handlers, types and user data for XLA's custom calls. A handler that XLA
 * refuses is an error here, at registration, not a riddle at compilation.
 */
#include "plugin.h"

#include "xla/ffi/api/c_api.h"
#include "xla/ffi/type_registry.h"

namespace xla::ffi
{

/* From xla/ffi/ffi_api.h, whose other declarations need more of MLIR's headers. */
const XLA_FFI_Api *GetXlaFfiApi();
absl::Status TakeStatus(XLA_FFI_Error *error);

} // namespace xla::ffi

namespace pjrt_cpu
{

namespace
{

using xla::ffi::TypeRegistry;

absl::Status FfiTypeRegister(PJRT_FFI_Type_Register_Args *args)
{
    PJRT_CPU_NEED(args, type_name);
    absl::string_view name(args->type_name, args->type_name_size);
    TypeRegistry::TypeInfo info;
    if (args->type_info != nullptr)
        info.deleter = args->type_info->deleter;
    if (args->type_id == TypeRegistry::kUnknownTypeId.value()) {
        PJRT_CPU_ASSIGN(TypeRegistry::TypeId id, TypeRegistry::AssignExternalTypeId(name, info));
        args->type_id = id.value();
        return absl::OkStatus();
    }
    return TypeRegistry::RegisterExternalTypeId(name, TypeRegistry::TypeId(args->type_id), info);
}

absl::Status FfiUserDataAdd(PJRT_FFI_UserData_Add_Args *args)
{
    PJRT_CPU_NEED(args, context);
    TypeRegistry::TypeId id(args->user_data.type_id);
    return args->context->context->ffi_context().Insert(id, args->user_data.data);
}

absl::Status FfiRegisterHandler(PJRT_FFI_Register_Handler_Args *args)
{
    PJRT_CPU_NEED(args, target_name);
    PJRT_CPU_NEED(args, handler);
    PJRT_CPU_NEED(args, platform_name);
    const XLA_FFI_Api *api = xla::ffi::GetXlaFfiApi();
    XLA_FFI_Handler_Register_Args call = {};
    call.struct_size = XLA_FFI_Handler_Register_Args_STRUCT_SIZE;
    call.name = {args->target_name, args->target_name_size};
    call.platform = {args->platform_name, args->platform_name_size};
    call.bundle.execute = reinterpret_cast<XLA_FFI_Handler *>(args->handler);
    call.traits = static_cast<XLA_FFI_Handler_Traits>(args->traits);
    return xla::ffi::TakeStatus(api->XLA_FFI_Handler_Register(&call));
}

constexpr char kTypeRegister[] = "PJRT_FFI_Type_Register";
constexpr char kUserDataAdd[] = "PJRT_FFI_UserData_Add";
constexpr char kRegisterHandler[] = "PJRT_FFI_Register_Handler";

} // namespace

PJRT_Extension_Base *FfiExtension(PJRT_Extension_Base *next)
{
    static PJRT_FFI_Extension extension = {
        {PJRT_FFI_Extension_STRUCT_SIZE, PJRT_Extension_Type_FFI, next},
        Entry<PJRT_FFI_Type_Register_Args, FfiTypeRegister, kTypeRegister,
              PJRT_FFI_Type_Register_Args_STRUCT_SIZE>,
        Entry<PJRT_FFI_UserData_Add_Args, FfiUserDataAdd, kUserDataAdd,
              PJRT_FFI_UserData_Add_Args_STRUCT_SIZE>,
        Entry<PJRT_FFI_Register_Handler_Args, FfiRegisterHandler, kRegisterHandler,
              PJRT_FFI_Register_Handler_Args_STRUCT_SIZE>,
    };
    return &extension.base;
}

} // namespace pjrt_cpu
