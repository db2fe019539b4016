/* The fake plugin's core: the control block, the list of objects, errors and events. */
#include "tests/fake/fake_internal.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

fake_control fake;

static pthread_mutex_t lock;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static PJRT_Api table;
static fake_object *objects;

enum { MAX_ENTRIES = 160 };
static struct {
    const char *entry;
    int calls;
} counts[MAX_ENTRIES];
static int all_calls, all_events;

/* ---- locking and counting ---- */

int fake_lock(void)
{
    pthread_mutex_lock(&lock);
    return 1;
}

void fake_unlock(int *locked)
{
    (void)locked;
    pthread_mutex_unlock(&lock);
}

static int count_call(const char *entry)
{
    for (int i = 0; i < MAX_ENTRIES; i++) {
        if (counts[i].entry == NULL)
            counts[i].entry = entry;
        if (strcmp(counts[i].entry, entry) == 0)
            return ++counts[i].calls;
    }
    abort();
}

static int calls(const char *entry)
{
    FAKE_SCOPE;
    for (int i = 0; i < MAX_ENTRIES && counts[i].entry != NULL; i++) {
        if (strcmp(counts[i].entry, entry) == 0)
            return counts[i].calls;
    }
    return 0;
}

void fake_violation(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (fake.violations++ == 0)
        vsnprintf(fake.violation, sizeof fake.violation, format, args);
    va_end(args);
}

PJRT_Error *fake_enter(const char *entry, const void *args, size_t size, size_t header_size,
                       bool has_extensions)
{
    int call = count_call(entry);
    all_calls++;
    if (size < header_size + fake.newer) {
        char message[128];
        snprintf(message, sizeof message, "Unexpected %s args size: expected %zu, got %zu", entry,
                 header_size + fake.newer, size);
        return fake_make_error(PJRT_Error_Code_INVALID_ARGUMENT, message);
    }
    if (fake.newer == 0 && size != header_size)
        fake_violation("%s: struct_size %zu instead of %zu", entry, size, header_size);
    for (size_t i = header_size; i < size; i++) {
        if (((const char *)args)[i] != 0) {
            fake_violation("%s: byte %zu of the tail is not zero", entry, i);
            break;
        }
    }
    if (has_extensions && ((void *const *)args)[1] != NULL)
        fake_violation("%s: extension_start is not NULL", entry);
    bool chosen = fake.fail == NULL ? all_calls == fake.fail_at
                                    : strcmp(fake.fail, entry) == 0 && call == fake.fail_at;
    if (fake.fail_at == 0 || !chosen)
        return NULL;
    fake.failed = entry;
    return fake_make_error(fake.fail_code, fake.fail_message);
}

/* ---- objects ---- */

void *fake_new(fake_kind kind, size_t size, PJRT_Client *client)
{
    fake_object *object = calloc(1, size);
    if (object == NULL)
        abort();
    object->kind = kind;
    object->client = client;
    object->next = objects;
    objects = object;
    fake.created[kind]++;
    return object;
}

bool fake_use(const void *object, fake_kind kind, const char *entry)
{
    const fake_object *o = object;
    if (o == NULL || o->kind != kind)
        fake_violation("%s: no object of kind %d", entry, (int)kind);
    else if (o->destroyed)
        fake_violation("%s: an object of kind %d was used after its end", entry, (int)kind);
    else
        return true;
    return false;
}

bool fake_destroy(void *object, fake_kind kind, const char *entry)
{
    if (!fake_use(object, kind, entry))
        return false;
    ((fake_object *)object)->destroyed = true;
    fake.destroyed[kind]++;
    return true;
}

bool fake_alive(const PJRT_Client *client, fake_kind *kind)
{
    for (fake_object *o = objects; o != NULL; o = o->next) {
        if (o->client == client && !o->destroyed) {
            *kind = o->kind;
            return true;
        }
    }
    return false;
}

static void free_contents(fake_object *object)
{
    switch (object->kind) {
    case FAKE_ERROR:
        free(((PJRT_Error *)object)->message);
        break;
    case FAKE_EVENT:
        free(((PJRT_Event *)object)->copy);
        break;
    case FAKE_BUFFER:
        fake_delete_buffer((PJRT_Buffer *)object);
        break;
    case FAKE_EXECUTABLE:
        free(((PJRT_Executable *)object)->optimized);
        break;
    default:
        break;
    }
}

/* ---- errors ---- */

PJRT_Error *fake_make_error(PJRT_Error_Code code, const char *message)
{
    PJRT_Error *error = fake_new(FAKE_ERROR, sizeof *error, NULL);
    error->code = code;
    error->message = strdup(message);
    return error;
}

static void error_destroy(PJRT_Error_Destroy_Args *args)
{
    FAKE_SCOPE;
    fake_destroy(args->error, FAKE_ERROR, "PJRT_Error_Destroy");
}

static void error_message(PJRT_Error_Message_Args *args)
{
    FAKE_SCOPE;
    if (fake_use(args->error, FAKE_ERROR, "PJRT_Error_Message")) {
        args->message = args->error->message;
        args->message_size = strlen(args->error->message);
    }
}

static PJRT_Error *error_get_code(PJRT_Error_GetCode_Args *args)
{
    FAKE_SCOPE;
    if (fake_use(args->error, FAKE_ERROR, "PJRT_Error_GetCode"))
        args->code = args->error->code;
    return NULL;
}

/* ---- events ---- */

PJRT_Event *fake_new_event(PJRT_Client *client, bool pending)
{
    PJRT_Event *event = fake_new(FAKE_EVENT, sizeof *event, client);
    event->pending = pending;
    if (++all_events == fake.fail_event_at)
        event->code = fake.fail_code;
    return event;
}

static PJRT_Error *outcome(const PJRT_Event *event)
{
    return event->code == PJRT_Error_Code_OK ? NULL
                                             : fake_make_error(event->code, fake.fail_message);
}

void fake_complete_event(PJRT_Event *event)
{
    if (!event->pending)
        return;
    event->pending = false;
    if (event->to != NULL && event->size > 0)
        memcpy(event->to, event->from, event->size);
    if (event->callback != NULL)
        event->callback(outcome(event), event->callback_user);
    event->callback = NULL;
}

static void complete(void)
{
    FAKE_SCOPE;
    for (fake_object *o = objects; o != NULL; o = o->next) {
        PJRT_Event *event = (PJRT_Event *)o;
        if (o->kind == FAKE_EVENT && (!o->destroyed || event->callback != NULL))
            fake_complete_event(event);
    }
}

static PJRT_Error *event_destroy(PJRT_Event_Destroy_Args *args)
{
    FAKE_SCOPE;
    PJRT_Error *error = FAKE_TRY_ENTER(PJRT_Event_Destroy, args);
    if (fake_destroy(args->event, FAKE_EVENT, "PJRT_Event_Destroy") && args->event->pending &&
        args->event->transfer)
        fake.abandoned++;
    return error;
}

static PJRT_Error *event_is_ready(PJRT_Event_IsReady_Args *args)
{
    FAKE_ENTER(PJRT_Event_IsReady, args);
    if (fake_use(args->event, FAKE_EVENT, "PJRT_Event_IsReady"))
        args->is_ready = !args->event->pending;
    return NULL;
}

static PJRT_Error *event_await(PJRT_Event_Await_Args *args)
{
    FAKE_SCOPE;
    /* Whether the call fails or the work did, the waiting is over. */
    PJRT_Error *error = FAKE_TRY_ENTER(PJRT_Event_Await, args);
    if (!fake_use(args->event, FAKE_EVENT, "PJRT_Event_Await"))
        return error;
    fake_complete_event(args->event);
    return error != NULL ? error : outcome(args->event);
}

static PJRT_Error *event_on_ready(PJRT_Event_OnReady_Args *args)
{
    FAKE_ENTER(PJRT_Event_OnReady, args);
    if (!fake_use(args->event, FAKE_EVENT, "PJRT_Event_OnReady"))
        return NULL;
    if (args->event->pending) {
        args->event->callback = args->callback;
        args->event->callback_user = args->user_arg;
    } else {
        args->callback(outcome(args->event), args->user_arg);
    }
    return NULL;
}

void fake_fill_events(PJRT_Api *api)
{
    api->PJRT_Error_Destroy = error_destroy;
    api->PJRT_Error_Message = error_message;
    api->PJRT_Error_GetCode = error_get_code;
    api->PJRT_Event_Destroy = event_destroy;
    api->PJRT_Event_IsReady = event_is_ready;
    api->PJRT_Event_Await = event_await;
    api->PJRT_Event_OnReady = event_on_ready;
}

/* ---- the control block ---- */

static void fill_table(void)
{
    memset(&table, 0, sizeof table);
    table.struct_size = PJRT_Api_STRUCT_SIZE;
    table.pjrt_api_version.struct_size = PJRT_Api_Version_STRUCT_SIZE;
    table.pjrt_api_version.major_version = PJRT_API_MAJOR;
    table.pjrt_api_version.minor_version = PJRT_API_MINOR;
    fake_fill_events(&table);
    fake_fill_clients(&table);
    fake_fill_buffers(&table);
    fake_fill_programs(&table);
    fake_fill_extensions(&table);
}

static void reset(void)
{
    FAKE_SCOPE;
    for (fake_object *o = objects; o != NULL; o = o->next)
        free_contents(o);
    while (objects != NULL) {
        fake_object *next = objects->next;
        free(objects);
        objects = next;
    }
    memset(counts, 0, sizeof counts);
    all_calls = all_events = 0;
    memset(&fake, 0, sizeof fake);
    fake.api = &table;
    fake.fail_code = PJRT_Error_Code_INTERNAL;
    fake.fail_message = "scripted failure";
    fake.devices = 4;
    fake.reset = reset;
    fake.complete = complete;
    fake.calls = calls;
    fake_shape shape = {PJRT_Buffer_Type_F32, 1, {4}};
    fake.program = (fake_program){.n_args = 1,
                                  .n_results = 1,
                                  .replicas = 1,
                                  .partitions = 1,
                                  .args = {shape},
                                  .results = {shape}};
    fill_table();
}

static void start(void)
{
    pthread_mutexattr_t recursive; /* callbacks come back in */
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&lock, &recursive);
    pthread_mutexattr_destroy(&recursive);
    reset();
}

__attribute__((visibility("default"))) fake_control *fake_plugin_control(void)
{
    pthread_once(&once, start);
    return &fake;
}

__attribute__((visibility("default"))) const PJRT_Api *GetPjrtApi(void);
const PJRT_Api *GetPjrtApi(void)
{
    return fake_plugin_control()->api;
}
