/*
 * The table itself: GetPjrtApi, errors, and what the plugin says about itself. The only symbol that
 * leaves this library is defined here.
 */
#include "plugin.h"

namespace pjrt_cpu
{

namespace
{

/* Returned when there is no memory for an error; never freed. */
PJRT_Error *OutOfMemoryError()
{
    static PJRT_Error *const error =
        new (std::nothrow) PJRT_Error{absl::Status(absl::StatusCode::kResourceExhausted, "")};
    return error;
}

void Error_Destroy(PJRT_Error_Destroy_Args *args) noexcept
{
    if (args != nullptr && args->error != OutOfMemoryError())
        delete args->error;
}

void Error_Message(PJRT_Error_Message_Args *args) noexcept
{
    if (args == nullptr || args->struct_size < PJRT_Error_Message_Args_STRUCT_SIZE)
        return;
    absl::string_view message;
    if (args->error != nullptr)
        message = args->error->status.message();
    args->message = message.empty() ? "" : message.data();
    args->message_size = message.size();
}

} // namespace

PJRT_Error *ToError(absl::Status status) noexcept
{
    if (status.ok())
        return nullptr;
    PJRT_Error *error = new (std::nothrow) PJRT_Error{std::move(status)};
    return error != nullptr ? error : OutOfMemoryError();
}

absl::Status FromCode(PJRT_Error_Code code, const char *message, size_t message_size)
{
    if (code < PJRT_Error_Code_OK || code > PJRT_Error_Code_UNAUTHENTICATED)
        return absl::InvalidArgumentError(
            absl::StrCat("error code ", static_cast<int>(code), " is not one of the API's codes"));
    absl::string_view text =
        message != nullptr ? absl::string_view(message, message_size) : absl::string_view();
    return absl::Status(static_cast<absl::StatusCode>(code), text);
}

absl::Status CheckStruct(const char *name, const void *args, size_t actual, size_t wanted)
{
    if (args == nullptr)
        return absl::InvalidArgumentError(absl::StrCat(name, ": the argument struct is NULL"));
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": struct_size is ", actual, ", at least ", wanted,
                     " is needed; the caller's PJRT header is too old for this plugin (API ",
                     PJRT_API_MAJOR, ".", PJRT_API_MINOR, ")"));
}

void NamedValues::Add(absl::string_view name, xla::PjRtValueType value)
{
    storage_.emplace_back(std::string(name), std::move(value));
    const auto &[stored_name, stored] = storage_.back();
    PJRT_NamedValue out = {};
    out.struct_size = PJRT_NamedValue_STRUCT_SIZE;
    out.name = stored_name.data();
    out.name_size = stored_name.size();
    out.value_size = 1;
    if (const auto *text = std::get_if<std::string>(&stored)) {
        out.type = PJRT_NamedValue_kString;
        out.string_value = text->data();
        out.value_size = text->size();
    } else if (const auto *flag = std::get_if<bool>(&stored)) {
        out.type = PJRT_NamedValue_kBool;
        out.bool_value = *flag;
    } else if (const auto *number = std::get_if<int64_t>(&stored)) {
        out.type = PJRT_NamedValue_kInt64;
        out.int64_value = *number;
    } else if (const auto *list = std::get_if<std::vector<int64_t>>(&stored)) {
        out.type = PJRT_NamedValue_kInt64List;
        out.int64_array_value = list->data();
        out.value_size = list->size();
    } else {
        out.type = PJRT_NamedValue_kFloat;
        out.float_value = std::get<float>(stored);
    }
    values_.push_back(out);
}

absl::Status Error_GetCode(PJRT_Error_GetCode_Args *args)
{
    args->code = args->error == nullptr ? PJRT_Error_Code_OK
                                        : static_cast<PJRT_Error_Code>(args->error->status.code());
    return absl::OkStatus();
}

absl::Status Plugin_Initialize(PJRT_Plugin_Initialize_Args *)
{
    return absl::OkStatus();
}

absl::Status Plugin_Attributes(PJRT_Plugin_Attributes_Args *args)
{
    /* The StableHLO versions are read from the wheel's own header by CMake: they say which
     * portable artifacts the library behind us can read. */
    static const NamedValues *const attributes = [] {
        auto *values = new NamedValues();
        values->Add("xla_version", int64_t{2});
        values->Add("stablehlo_current_version", std::vector<int64_t>{PJRT_CPU_STABLEHLO_CURRENT});
        values->Add("stablehlo_minimum_version", std::vector<int64_t>{PJRT_CPU_STABLEHLO_MINIMUM});
        return values;
    }();
    args->attributes = attributes->data();
    args->num_attributes = attributes->size();
    return absl::OkStatus();
}

namespace
{

PJRT_Api MakeApi()
{
    PJRT_Api api = {};
    api.struct_size = PJRT_Api_STRUCT_SIZE;
    api.pjrt_api_version.struct_size = PJRT_Api_Version_STRUCT_SIZE;
    api.pjrt_api_version.major_version = PJRT_API_MAJOR;
    api.pjrt_api_version.minor_version = PJRT_API_MINOR;
    api.extension_start =
        ProfilerExtension(MemoryDescriptionsExtension(FfiExtension(LayoutsExtension(nullptr))));
    api.PJRT_Error_Destroy = Error_Destroy;
    api.PJRT_Error_Message = Error_Message;
#define PJRT_CPU_FILL(name) \
    api.PJRT_##name = Entry<PJRT_##name##_Args, name, k##name, PJRT_##name##_Args_STRUCT_SIZE>;
#define PJRT_CPU_FILL_UPTO(name, field) \
    api.PJRT_##name =                   \
        Entry<PJRT_##name##_Args, name, k##name, PJRT_STRUCT_SIZE(PJRT_##name##_Args, field)>;
    PJRT_CPU_ENTRIES(PJRT_CPU_FILL, PJRT_CPU_FILL_UPTO)
#undef PJRT_CPU_FILL
#undef PJRT_CPU_FILL_UPTO
    return api;
}

} // namespace

} // namespace pjrt_cpu

extern "C" __attribute__((visibility("default"))) const PJRT_Api *GetPjrtApi()
{
    static const PJRT_Api api = pjrt_cpu::MakeApi();
    return &api;
}
