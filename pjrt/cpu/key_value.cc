/* The caller's key-value callbacks, as C++ has it. */
#include "collectives.h"
#include "plugin.h"

namespace pjrt_cpu
{

namespace
{

/* Callbacks make their errors by this one, and hand them to this plugin to destroy. */
PJRT_Error *MakeError(PJRT_Error_Code code, const char *message, size_t size)
{
    return new PJRT_Error{
        absl::Status(static_cast<absl::StatusCode>(code), absl::string_view(message, size))};
}

absl::Status Take(PJRT_Error *error)
{
    std::unique_ptr<PJRT_Error> owned(error);
    return owned == nullptr ? absl::OkStatus() : owned->status;
}

template <typename Args> absl::StatusOr<std::string> TakeValue(PJRT_Error *error, Args &args)
{
    absl::Status status = Take(error);
    if (!status.ok())
        return status;
    std::string value(args.value, args.value_size);
    args.value_deleter_callback(args.value);
    return value;
}

} // namespace

absl::StatusOr<std::shared_ptr<KeyValueStore>>
KeyValueStore::From(const PJRT_Client_Create_Args *args)
{
    if (!PJRT_CPU_HAS(args, PJRT_Client_Create_Args, kv_try_get_user_arg) ||
        args->kv_get_callback == nullptr || args->kv_put_callback == nullptr ||
        args->kv_try_get_callback == nullptr)
        return absl::InvalidArgumentError(
            "a client of several processes needs all three key-value callbacks");
    auto store = std::make_shared<KeyValueStore>();
    store->get_ = args->kv_get_callback;
    store->get_user_ = args->kv_get_user_arg;
    store->try_get_ = args->kv_try_get_callback;
    store->try_get_user_ = args->kv_try_get_user_arg;
    store->put_ = args->kv_put_callback;
    store->put_user_ = args->kv_put_user_arg;
    return store;
}

absl::StatusOr<std::string> KeyValueStore::Get(const std::string &key, int timeout_ms) const
{
    PJRT_CallbackError make = MakeError;
    PJRT_KeyValueGetCallback_Args args = {};
    args.struct_size = PJRT_KeyValueGetCallback_Args_STRUCT_SIZE;
    args.key = key.data();
    args.key_size = key.size();
    args.timeout_in_ms = timeout_ms;
    args.callback_error = &make;
    args.user_arg = get_user_;
    PJRT_Error *error = get_(&args);
    return TakeValue(error, args);
}

absl::StatusOr<std::string> KeyValueStore::PutOnce(const std::string &key,
                                                   const std::string &value) const
{
    PJRT_CallbackError make = MakeError;
    PJRT_KeyValuePutCallback_Args put = {};
    put.struct_size = PJRT_KeyValuePutCallback_Args_STRUCT_SIZE;
    put.key = key.data();
    put.key_size = key.size();
    put.value = value.data();
    put.value_size = value.size();
    put.callback_error = &make;
    put.user_arg = put_user_;
    absl::Status status = Take(put_(&put));
    if (status.ok())
        return value;
    if (!absl::IsAlreadyExists(status))
        return status;
    PJRT_KeyValueTryGetCallback_Args get = {};
    get.struct_size = PJRT_KeyValueTryGetCallback_Args_STRUCT_SIZE;
    get.key = key.data();
    get.key_size = key.size();
    get.callback_error = &make;
    get.user_arg = try_get_user_;
    PJRT_Error *error = try_get_(&get);
    return TakeValue(error, get);
}

} // namespace pjrt_cpu
