/* Private to the fake plugin: its objects and how its entries begin. */
#ifndef TESTS_FAKE_INTERNAL_H
#define TESTS_FAKE_INTERNAL_H

#include "tests/fake/fake_plugin.h"

/* Objects stay in one list until reset, so that using a destroyed one is noticed for certain. */
typedef struct fake_object {
    fake_kind kind;
    bool destroyed;
    struct fake_object *next;
    PJRT_Client *client; /* that it belongs to, or NULL */
} fake_object;

struct PJRT_Error {
    fake_object base;
    PJRT_Error_Code code;
    char *message;
};

struct PJRT_Event {
    fake_object base;
    bool pending, transfer;
    PJRT_Error_Code code; /* how it ends */
    void *to;             /* what completing it writes, or NULL */
    const void *from;
    size_t size;
    char *copy; /* owns `from`, or NULL */
    PJRT_Event_OnReadyCallback callback;
    void *callback_user;
};

struct PJRT_Memory {
    const char *kind;
};

struct PJRT_DeviceDescription {
    int id, process;
    char text[32];
};

struct PJRT_Device {
    PJRT_DeviceDescription description;
    PJRT_Memory memories[2];
    PJRT_Memory *memory_list[2];
};

struct PJRT_Client {
    fake_object base;
    PJRT_Device devices[FAKE_MAX_DEVICES];
    PJRT_Device *list[FAKE_MAX_DEVICES];
    int n_devices, n_all;
};

struct PJRT_Buffer {
    fake_object base;
    fake_shape shape;
    size_t size;
    char *data; /* owned, unless it is the host's */
    bool zero_copy, deleted;
    PJRT_Device *device;
    PJRT_Event *host_done; /* of an upload that still reads the host's memory */
};

struct PJRT_Executable {
    fake_object base;
    fake_program program;
    PJRT_Buffer_Type types[FAKE_MAX_ARGS];
    int64_t dims[FAKE_MAX_ARGS * FAKE_MAX_RANK];
    size_t dim_sizes[FAKE_MAX_ARGS];
    char *optimized; /* made on first use */
    size_t optimized_size;
};

struct PJRT_LoadedExecutable {
    fake_object base;
    fake_program program;
};

struct PJRT_SerializedExecutable {
    fake_object base;
    char bytes[4 + sizeof(fake_program)];
};

struct PJRT_TopologyDescription {
    fake_object base;
    PJRT_DeviceDescription descriptions[FAKE_MAX_DEVICES];
    PJRT_DeviceDescription *list[FAKE_MAX_DEVICES];
};

extern fake_control fake;

int fake_lock(void);
void fake_unlock(int *locked);
/* Every entry runs alone, so the control block needs no care. */
#define FAKE_SCOPE __attribute__((cleanup(fake_unlock), unused)) int fake_locked = fake_lock()

/* Counts the call, checks its argument struct, and fails it when the script says so. */
PJRT_Error *fake_enter(const char *entry, const void *args, size_t size, size_t header_size,
                       bool has_extensions);
#define FAKE_TRY_ENTER(entry, args) \
    fake_enter(#entry, args, (args)->struct_size, entry##_Args_STRUCT_SIZE, true)
#define FAKE_ENTER(entry, args)                                \
    FAKE_SCOPE;                                                \
    do {                                                       \
        PJRT_Error *fake_error_ = FAKE_TRY_ENTER(entry, args); \
        if (fake_error_ != NULL)                               \
            return fake_error_;                                \
    } while (0)

PJRT_Error *fake_make_error(PJRT_Error_Code code, const char *message);
__attribute__((format(printf, 1, 2))) void fake_violation(const char *format, ...);

void *fake_new(fake_kind kind, size_t size, PJRT_Client *client);
/* Notes a violation unless `object` is alive and of that kind; false then. */
bool fake_use(const void *object, fake_kind kind, const char *entry);
/* Marks it destroyed; false when it was no such object any more. */
bool fake_destroy(void *object, fake_kind kind, const char *entry);
bool fake_alive(const PJRT_Client *client, fake_kind *kind);

PJRT_Event *fake_new_event(PJRT_Client *client, bool pending);
void fake_complete_event(PJRT_Event *event);

size_t fake_shape_bytes(const fake_shape *shape);
PJRT_Buffer *fake_new_buffer(PJRT_Client *client, PJRT_Device *device, const fake_shape *shape);
void fake_delete_buffer(PJRT_Buffer *buffer);
/* Appends "name=value;" of each to seen.create_options. */
void fake_see_options(const PJRT_NamedValue *options, size_t count);
/* Serialized HloModuleProto of the program. */
char *fake_write_module(const fake_program *program, bool with_config, size_t *size);

bool fake_ffi_registered(const char *name, size_t size);

/* Each file enters its own functions into the table. */
void fake_fill_events(PJRT_Api *api);
void fake_fill_clients(PJRT_Api *api);
void fake_fill_buffers(PJRT_Api *api);
void fake_fill_programs(PJRT_Api *api);
void fake_fill_extensions(PJRT_Api *api);

#endif
