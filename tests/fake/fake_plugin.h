/*
 * The fake plugin, as tests see it: a PJRT plugin without a compiler or a device, whose every
 * answer is scripted and which counts what is made and what is given back.
 *
 * Besides GetPjrtApi it exports fake_plugin_control. A test opens the file first, sets the control
 * block, and then loads it through pjrt.h. The function table is live: entries may be set to NULL
 * and its size be cut at any time.
 *
 * It does not compute: a program's results are its arguments' bytes, each one greater.
 */
#ifndef TESTS_FAKE_PLUGIN_H
#define TESTS_FAKE_PLUGIN_H

#include "xla/pjrt/c/pjrt_c_api.h"
#include "xla/pjrt/c/pjrt_c_api_ffi_extension.h"
#include "xla/pjrt/c/pjrt_c_api_profiler_extension.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum fake_kind {
    FAKE_ERROR,
    FAKE_EVENT,
    FAKE_CLIENT,
    FAKE_BUFFER,
    FAKE_LOADED,
    FAKE_EXECUTABLE,
    FAKE_SERIALIZED,
    FAKE_TOPOLOGY,
    FAKE_PROFILER,
    FAKE_KINDS,
} fake_kind;

enum { FAKE_MAX_ARGS = 4, FAKE_MAX_RANK = 9, FAKE_MAX_DEVICES = 16 };

typedef struct fake_shape {
    PJRT_Buffer_Type type;
    int rank;
    int64_t dims[FAKE_MAX_RANK];
} fake_shape;

/* What the next compilation makes. */
typedef struct fake_program {
    int n_args, n_results, replicas, partitions;
    bool portable;
    bool takes[FAKE_MAX_ARGS]; /* arguments whose memory a run takes, unless told to keep them */
    fake_shape args[FAKE_MAX_ARGS], results[FAKE_MAX_ARGS];
} fake_program;

/* What the plugin was given last. */
typedef struct fake_seen {
    PJRT_HostBufferSemantics semantics;
    int64_t byte_strides[FAKE_MAX_RANK];
    size_t n_byte_strides;
    int memory; /* index in the device's own order; -1: none given */
    bool host_layout_given;
    int64_t minor_to_major[FAKE_MAX_RANK];
    size_t n_minor_to_major, n_tiles;
    int64_t keep[FAKE_MAX_ARGS];
    size_t n_keep;
    int launch_id;
    bool events_wanted;
    int execute_device; /* index; -1: none given */
    char compile_options[512];
    size_t compile_options_size;
    char create_options[1024]; /* "name=value;" each, of clients and topologies */
    char topology[64];
    unsigned ffi_traits;
    char ffi_platform[32];
    char store[256]; /* how the key-value store answered */
} fake_seen;

typedef struct fake_control {
    PJRT_Api *api;
    PJRT_Extension_Base *unknown; /* of a type that no header knows */
    PJRT_FFI_Extension *ffi;
    PJRT_Profiler_Extension *profiler;

    /* ---- what it does ---- */
    size_t newer;     /* its argument structs are that much longer than the header's */
    const char *fail; /* the fail_at-th call of this entry fails; NULL: of any entry */
    int fail_at;      /* 0: none fails */
    PJRT_Error_Code fail_code;
    const char *fail_message;
    int fail_event_at;     /* the that-many-th event from now on tells of a failure */
    bool deferred;         /* transfers and runs are done when somebody waits for them */
    bool fail_after;       /* a run takes its donations and then fails */
    bool drop_register;    /* FFI registrations are lost without an error */
    bool use_store;        /* a new client tries its key-value store */
    bool hide_program;     /* it does not tell optimized programs */
    bool with_config;      /* and calls them "hlo_with_config" */
    const char *optimized; /* told instead of the real one */
    size_t optimized_size;
    int devices, remote_devices;
    fake_program program;

    /* ---- what it saw ---- */
    int created[FAKE_KINDS], destroyed[FAKE_KINDS];
    const char *failed; /* the entry that fail_at made fail */
    int abandoned;      /* transfers whose event went before anybody waited */
    int violations;     /* of the C API's rules; the first one in words: */
    char violation[256];
    fake_seen seen;

    /* Forgets all objects and settings, not the FFI registrations. */
    void (*reset)(void);
    /* Finishes what was deferred. */
    void (*complete)(void);
    /* Calls of an entry since the last reset. */
    int (*calls)(const char *entry);
} fake_control;

fake_control *fake_plugin_control(void);

#endif
