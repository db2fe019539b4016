/*
 * Private to pjrt/: the handles' structs, and the macros that call the C API.
 *
 * Versions. The header compiled in is the one of the pinned wheel; plugins may be older or newer.
 *  - An older plugin may lack entries: CALL looks whether the table reaches that far.
 *  - A newer plugin refuses argument structs shorter than its own. Every ARGS struct therefore ends
 *    in a zeroed tail, and its struct_size covers that tail when the plugin is newer than the
 *    header. Zero is "not given" for every field that was ever appended to such a struct.
 */
#ifndef PJRT_INTERNAL_H
#define PJRT_INTERNAL_H

#include "pjrt/pjrt.h"

#include "xla/pjrt/c/pjrt_c_api.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum { ABI_TAIL = 128 };

#define HAS(plugin, function)                                                       \
    ((plugin)->api->struct_size >= offsetof(PJRT_Api, function) + sizeof(void *) && \
     (plugin)->api->function != NULL)

/* Declares `name.a`, a zeroed argument struct whose size suits `plugin`. */
#define ARGS(type, name, plugin)      \
    struct {                          \
        type a;                       \
        unsigned char tail[ABI_TAIL]; \
    } name;                           \
    memset(&(name), 0, sizeof(name)); \
    (name).a.struct_size = type##_STRUCT_SIZE + (plugin)->tail

/* Calls an entry of the C API; a status when the plugin lacks it or it fails. */
#define CALL(plugin, function, args)                                                      \
    (HAS(plugin, function) ? pjrt__take_error(plugin, (plugin)->api->function(&(args).a), \
                                              #function, __FILE__, __LINE__)              \
                           : pjrt__missing(plugin, #function, __FILE__, __LINE__))

/* Calls an entry and ignores failure: destructors. */
#define CALL_VOID(plugin, function, args) pjrt_status_free(CALL(plugin, function, args))

struct pjrt_plugin {
    const PJRT_Api *api;
    size_t tail; /* what struct_size says beyond the header's own: 0 or ABI_TAIL */
    char *path;
    pjrt_option *attributes;
    size_t n_attributes;
    pthread_mutex_t lock; /* guards hash */
    char hash[33];
    pjrt_status *failure; /* of initialisation; final */
    struct pjrt_plugin *next;
};

struct pjrt_device {
    pjrt_client *client;
    PJRT_Device *raw;
    int id, local_id, process;
    char *kind, *text;
    pjrt_option *attributes;
    size_t n_attributes;
    PJRT_Memory **memories;
    char **memory_kinds;
    size_t n_memories;
};

struct pjrt_client {
    atomic_int references;
    pjrt_plugin *plugin;
    PJRT_Client *raw;
    char *platform, *platform_version;
    int process;
    pjrt_device *devices;
    size_t n_devices, n_global_devices;
    int *global_ids, *global_processes;
    pjrt_store store;
    bool has_store;
};

struct pjrt_event {
    pjrt_client *client;
    PJRT_Event *raw;
};

struct pjrt_buffer {
    pjrt_client *client;
    pjrt_device *device;
    PJRT_Buffer *raw;
    pjrt_shape shape;
    atomic_bool dead;
};

struct pjrt_topology {
    pjrt_plugin *plugin;
    PJRT_TopologyDescription *raw;
    char *platform, *platform_version, *kind;
    size_t n_devices;
};

struct pjrt_executable {
    pjrt_plugin *plugin;
    pjrt_client *client;           /* NULL when compiled ahead of time */
    PJRT_LoadedExecutable *loaded; /* likewise */
    PJRT_Executable *raw;
    char *name;
    int n_devices;
    pjrt_device **devices; /* where it runs, addressable ones, in order; NULL when portable */
    int n_addressable;
    bool portable;
    pjrt_shape *results;
    int n_results;

    pthread_mutex_t lock; /* guards what is learnt on first use: arguments, costs */
    atomic_bool arguments_known;
    pjrt_status *arguments_failure;
    pjrt_shape *arguments;
    int n_arguments;
    pjrt_option *costs;
    size_t n_costs;

    unsigned char *donated; /* per argument: the program asks for donation */
    int n_donated;          /* 0: none does; -1: not known, each argument is looked at */
    atomic_llong donations_taken, donations_refused;

    char options_hash[33], program_hash[33];  /* for the stamp */
    char *platform, *platform_version, *kind; /* of what it was compiled for */
};

/* status of a plugin's error, which is consumed; NULL for NULL */
pjrt_status *pjrt__take_error(const pjrt_plugin *plugin, PJRT_Error *error, const char *call,
                              const char *file, int line);
pjrt_status *pjrt__missing(const pjrt_plugin *plugin, const char *call, const char *file, int line);

/* The first extension of that type whose struct reaches `size` bytes, or NULL. */
PJRT_Extension_Base *pjrt__extension(const pjrt_plugin *plugin, PJRT_Extension_Type type,
                                     size_t size);

/* Path of the plugin that `name` stands for; the caller frees it. find_plugin.c */
pjrt_status *pjrt__find(const char *name, char **path);
/* True if TPU chips are attached to this machine: by PCI id, else by device node. Looks below
 * $TTT_SYSFS_ROOT instead of / if that is set (tests). find_plugin.c */
bool pjrt__on_tpu_machine(void);

/* Copies between our options and the API's named values. options.c */
pjrt_status *pjrt__options_to_raw(const pjrt_option *options, size_t count, PJRT_NamedValue **raw);
pjrt_status *pjrt__options_from_raw(const PJRT_NamedValue *raw, size_t count, pjrt_option **out);
void pjrt__options_free(pjrt_option *options, size_t count);

void pjrt__client_ref(pjrt_client *client);
void pjrt__client_unref(pjrt_client *client);
/* The device of `client` with that raw pointer, or NULL. */
pjrt_device *pjrt__client_find_device(const pjrt_client *client, const PJRT_Device *raw);

/* Wraps `raw`, taking it over; on failure it is destroyed. */
pjrt_status *pjrt__event_wrap(pjrt_client *client, PJRT_Event *raw, pjrt_event **out);
/* Waits for `raw` and destroys it. */
pjrt_status *pjrt__event_finish(const pjrt_plugin *plugin, PJRT_Event *raw);
/* Wraps `raw`, taking it over; on failure it is destroyed. */
pjrt_status *pjrt__buffer_wrap(pjrt_device *device, PJRT_Buffer *raw, const pjrt_shape *shape,
                               pjrt_buffer **out);
void pjrt__buffer_destroy_raw(const pjrt_plugin *plugin, PJRT_Buffer *raw);

/* Takes over `loaded` (or `raw`, ahead of time) and learns its results; consumed on failure too. */
pjrt_status *pjrt__executable_wrap(pjrt_plugin *plugin, pjrt_client *client,
                                   PJRT_LoadedExecutable *loaded, PJRT_Executable *raw,
                                   pjrt_executable **out);

/* Keeps what the stamp of a saved executable will say. */
pjrt_status *pjrt__executable_stamp(pjrt_executable *exe, const char *options_hash,
                                    const char *program_hash, const char *platform,
                                    const char *platform_version, const char *kind);
/* Kind of the client's devices; "" when it has none. */
const char *pjrt__client_kind(const pjrt_client *client);

/* A malloc'ed copy with a NUL behind it; NULL when out of memory. */
char *pjrt__copy_text(const char *text, size_t size);
void pjrt__hash_hex(const void *bytes, size_t size, char hex[33]);

/* Which arguments of @main ask for donation in StableHLO text; `*count` is 0 when none does and -1
 * when the program is no text that could be read. signature.c */
pjrt_status *pjrt__donations_of_text(const pjrt_program *program, unsigned char **flags,
                                     int *count);
/* Argument shapes of a serialized HloModuleProto (or one with configuration). signature.c */
pjrt_status *pjrt__arguments_of_module(const char *bytes, size_t size, bool with_config,
                                       pjrt_shape **shapes, int *count);

#endif
