/* Events: completion of asynchronous work. */
#include "pjrt/internal.h"

#include <stdlib.h>

static void destroy_raw(const pjrt_plugin *plugin, PJRT_Event *raw)
{
    if (raw == NULL)
        return;
    ARGS(PJRT_Event_Destroy_Args, destroy, plugin);
    destroy.a.event = raw;
    CALL_VOID(plugin, PJRT_Event_Destroy, destroy);
}

static pjrt_status *await_raw(const pjrt_plugin *plugin, PJRT_Event *raw)
{
    ARGS(PJRT_Event_Await_Args, await, plugin);
    await.a.event = raw;
    return CALL(plugin, PJRT_Event_Await, await);
}

pjrt_status *pjrt__event_finish(const pjrt_plugin *plugin, PJRT_Event *raw)
{
    if (raw == NULL)
        return NULL;
    pjrt_status *st = await_raw(plugin, raw);
    destroy_raw(plugin, raw);
    return st;
}

pjrt_status *pjrt__event_wrap(pjrt_client *client, PJRT_Event *raw, pjrt_event **out)
{
    pjrt_event *event = malloc(sizeof *event);
    *out = event;
    if (event == NULL) {
        destroy_raw(client->plugin, raw);
        return PJRT_NO_MEMORY("pjrt_event");
    }
    *event = (pjrt_event){.client = client, .raw = raw};
    pjrt__client_ref(client);
    return NULL;
}

pjrt_status *pjrt_event_wait(pjrt_event *event)
{
    return event->raw == NULL ? NULL : await_raw(event->client->plugin, event->raw);
}

pjrt_status *pjrt_event_is_ready(pjrt_event *event, bool *ready)
{
    *ready = true;
    if (event->raw == NULL)
        return NULL;
    ARGS(PJRT_Event_IsReady_Args, is_ready, event->client->plugin);
    is_ready.a.event = event->raw;
    PJRT_TRY(CALL(event->client->plugin, PJRT_Event_IsReady, is_ready));
    *ready = is_ready.a.is_ready;
    return NULL;
}

/* What the plugin's callback needs; lives from on_ready until the callback. */
typedef struct waiting {
    const pjrt_plugin *plugin;
    void (*done)(pjrt_status *st, void *user);
    void *user;
} waiting;

static void on_ready(PJRT_Error *error, void *user)
{
    waiting w = *(waiting *)user;
    free(user);
    w.done(pjrt__take_error(w.plugin, error, "PJRT_Event_OnReady", __FILE__, __LINE__), w.user);
}

pjrt_status *pjrt_event_on_ready(pjrt_event *event, void (*done)(pjrt_status *, void *), void *user)
{
    if (event->raw == NULL) {
        done(NULL, user);
        return NULL;
    }
    waiting *w = malloc(sizeof *w);
    if (w == NULL)
        return PJRT_NO_MEMORY("pjrt_event_on_ready");
    *w = (waiting){.plugin = event->client->plugin, .done = done, .user = user};
    ARGS(PJRT_Event_OnReady_Args, call, w->plugin);
    call.a.event = event->raw;
    call.a.callback = on_ready;
    call.a.user_arg = w;
    pjrt_status *st = CALL(event->client->plugin, PJRT_Event_OnReady, call);
    if (st != NULL)
        free(w);
    return st;
}

void pjrt_event_free(pjrt_event *event)
{
    if (event == NULL)
        return;
    destroy_raw(event->client->plugin, event->raw);
    pjrt__client_unref(event->client);
    free(event);
}
