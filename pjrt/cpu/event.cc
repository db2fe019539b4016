/*
 * Events: futures of XLA with a handle. An event never keeps its error to itself: each call that
 * reports it makes a new PJRT_Error.
 */
#include "plugin.h"

namespace pjrt_cpu
{

PJRT_Event *NewEvent(xla::Future<> future)
{
    return new PJRT_Event(std::move(future));
}

PJRT_Event *NewReadyEvent()
{
    return new PJRT_Event(xla::Future<>(absl::OkStatus()));
}

absl::Status Event_Destroy(PJRT_Event_Destroy_Args *args)
{
    PJRT_Event *event = args->event;
    if (event == nullptr)
        return absl::OkStatus();
    /* Whoever waits for a promise that can no longer be kept must not wait for ever. */
    if (event->promise.has_value() && !event->set.exchange(true))
        event->promise->Set(absl::CancelledError("the event was destroyed before it was set"));
    delete event;
    return absl::OkStatus();
}

absl::Status Event_IsReady(PJRT_Event_IsReady_Args *args)
{
    PJRT_CPU_NEED(args, event);
    args->is_ready = args->event->future.IsReady();
    return absl::OkStatus();
}

absl::Status Event_Error(PJRT_Event_Error_Args *args)
{
    PJRT_CPU_NEED(args, event);
    if (!args->event->future.IsReady())
        return absl::FailedPreconditionError(
            "PJRT_Event_Error was called before the event is ready; await it first");
    return args->event->future.Await();
}

absl::Status Event_Await(PJRT_Event_Await_Args *args)
{
    PJRT_CPU_NEED(args, event);
    return args->event->future.Await();
}

absl::Status Event_OnReady(PJRT_Event_OnReady_Args *args)
{
    PJRT_CPU_NEED(args, event);
    PJRT_CPU_NEED(args, callback);
    args->event->future.OnReady(
        [callback = args->callback, user_arg = args->user_arg](absl::Status status) {
            callback(ToError(std::move(status)), user_arg);
        });
    return absl::OkStatus();
}

absl::Status Event_Create(PJRT_Event_Create_Args *args)
{
    auto [promise, future] = xla::MakePromise<>();
    auto event = std::make_unique<PJRT_Event>(std::move(future));
    event->promise.emplace(std::move(promise));
    args->event = event.release();
    return absl::OkStatus();
}

absl::Status Event_Set(PJRT_Event_Set_Args *args)
{
    PJRT_CPU_NEED(args, event);
    PJRT_Event *event = args->event;
    if (!event->promise.has_value())
        return absl::FailedPreconditionError("only an event made by PJRT_Event_Create can be set");
    absl::Status status = FromCode(args->error_code, args->error_message, args->error_message_size);
    if (event->set.exchange(true))
        return absl::FailedPreconditionError("the event was already set");
    event->promise->Set(std::move(status));
    return absl::OkStatus();
}

} // namespace pjrt_cpu
