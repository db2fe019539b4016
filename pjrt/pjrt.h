/*
 * pjrt: load any PJRT plugin (TPU, GPU, CPU), compile StableHLO on it, run it, keep the result.
 *
 *     #include "pjrt/pjrt.h"
 *
 *     static pjrt_status *square(const char *program, float x[4])
 *     {
 *         pjrt_plugin *plugin;
 *         pjrt_client *client = NULL;
 *         pjrt_executable *exe = NULL;
 *         pjrt_buffer *in = NULL, *out = NULL;
 *         pjrt_status *st = pjrt_plugin_load("cpu", &plugin);
 *         if (!st) st = pjrt_client_create(plugin, NULL, &client);
 *         if (!st) st = pjrt_compile(client, pjrt_program_text(program), NULL, &exe);
 *         if (!st) st = pjrt_buffer_from_host(pjrt_client_device(client, 0), PJRT_F32,
 *                                             (int64_t[]){4}, 1, x, NULL, NULL, &in);
 *         if (!st) st = pjrt_execute(exe, &in, 1, NULL, &out, 1, NULL);
 *         if (!st) st = pjrt_buffer_to_host(out, x, 4 * sizeof(float), NULL);
 *         pjrt_buffer_free(out);
 *         pjrt_buffer_free(in);
 *         pjrt_executable_free(exe);
 *         pjrt_client_free(client);
 *         return st;
 *     }
 *
 * Contracts that hold for every function below:
 *  - It returns NULL, or a status that the caller frees (pjrt_status.h). On failure the results
 *    are set to NULL. Nothing prints, exits or aborts.
 *  - Handles from _create, _load, _compile and _from_ calls are released by the matching _free,
 *    which accepts NULL. Free in any order: a client stays alive until its last buffer, executable
 *    and event is gone.
 *  - Pointers returned as `const` belong to the handle they came from.
 *  - Handles may be used from several threads; freeing one while another thread uses it may not.
 *  - Plugins are never unloaded (their registries are static), so a pjrt_plugin has no _free.
 *
 * Independent of models and graphs. Covers the part of PJRT that training, inference and
 * ahead-of-time compilation need.
 */
#ifndef PJRT_PJRT_H
#define PJRT_PJRT_H

#include "pjrt/pjrt_messenger.h"
#include "pjrt/pjrt_status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- types ---- */

typedef struct pjrt_plugin pjrt_plugin;
typedef struct pjrt_client pjrt_client;
typedef struct pjrt_device pjrt_device;
typedef struct pjrt_buffer pjrt_buffer;
typedef struct pjrt_executable pjrt_executable;
typedef struct pjrt_topology pjrt_topology;
typedef struct pjrt_event pjrt_event;
typedef struct pjrt_profile pjrt_profile;

/* Element types, numbered as PJRT numbers them: X(name, number, bits, StableHLO spelling). */
#define PJRT_TYPES(X)              \
    X(PRED, 1, 8, "i1")            \
    X(S8, 2, 8, "i8")              \
    X(S16, 3, 16, "i16")           \
    X(S32, 4, 32, "i32")           \
    X(S64, 5, 64, "i64")           \
    X(U8, 6, 8, "ui8")             \
    X(U16, 7, 16, "ui16")          \
    X(U32, 8, 32, "ui32")          \
    X(U64, 9, 64, "ui64")          \
    X(F16, 10, 16, "f16")          \
    X(F32, 11, 32, "f32")          \
    X(F64, 12, 64, "f64")          \
    X(BF16, 13, 16, "bf16")        \
    X(C64, 14, 64, "complex<f32>") \
    X(C128, 15, 128, "complex<f64>")

typedef enum pjrt_type {
    PJRT_TYPE_INVALID = 0,
#define PJRT_TYPE_ENUM(name, number, bits, mlir) PJRT_##name = number,
    PJRT_TYPES(PJRT_TYPE_ENUM)
#undef PJRT_TYPE_ENUM
} pjrt_type;

/* Bytes of one element, and its StableHLO spelling; 0 and "?" for a type not listed above. */
size_t pjrt_type_size(pjrt_type type);
const char *pjrt_type_name(pjrt_type type);
/* The type with that StableHLO spelling ("f32"), or PJRT_TYPE_INVALID. */
pjrt_type pjrt_type_parse(const char *name, size_t length);
/* The number that XLA FFI gives the type: another numbering (BF16 is 13 here and 16 there). */
int pjrt_type_ffi(pjrt_type type);

enum { PJRT_MAX_RANK = 8 };

typedef struct pjrt_shape {
    pjrt_type type;
    int rank;
    int64_t dims[PJRT_MAX_RANK];
} pjrt_shape;

/* Bytes of a dense array; -1 when that does not fit an int64 or the shape is not a valid one. */
int64_t pjrt_shape_bytes(const pjrt_shape *shape);
bool pjrt_shape_equal(const pjrt_shape *a, const pjrt_shape *b);
/* "f32[2,3]" into `text`; returns `text`. */
enum { PJRT_SHAPE_TEXT = 192 };
char *pjrt_shape_text(const pjrt_shape *shape, char text[PJRT_SHAPE_TEXT]);

/* A named value: client options, topology options, XLA overrides, attributes of devices. */
typedef enum pjrt_option_kind {
    PJRT_OPTION_STRING,
    PJRT_OPTION_INT,
    PJRT_OPTION_INTS,
    PJRT_OPTION_FLOAT,
    PJRT_OPTION_BOOL,
} pjrt_option_kind;

typedef struct pjrt_option {
    const char *name;
    pjrt_option_kind kind;
    const char *string;
    int64_t integer;
    const int64_t *integers;
    size_t n_integers;
    double real;
    bool boolean;
} pjrt_option;

#define PJRT_OPT_STRING(n, v) \
    ((pjrt_option){.name = (n), .kind = PJRT_OPTION_STRING, .string = (v)})
#define PJRT_OPT_INT(n, v) ((pjrt_option){.name = (n), .kind = PJRT_OPTION_INT, .integer = (v)})
#define PJRT_OPT_FLOAT(n, v) ((pjrt_option){.name = (n), .kind = PJRT_OPTION_FLOAT, .real = (v)})
#define PJRT_OPT_BOOL(n, v) ((pjrt_option){.name = (n), .kind = PJRT_OPTION_BOOL, .boolean = (v)})
#define PJRT_OPT_INTS(n, v, count) \
    ((pjrt_option){.name = (n), .kind = PJRT_OPTION_INTS, .integers = (v), .n_integers = (count)})

/* ---- plugin ---- */

/*
 * Loads a plugin by name ("cpu", "tpu", "cuda") or by path (anything with a '/'), checks its
 * version and initialises it. A second load of the same file gives the same handle. A failed
 * initialisation is final: the same failure is returned again, because some plugins abort the
 * process when they are called after it.
 *
 * Search order for a name; the first existing file is loaded:
 *   1. $TTT_PLUGIN_CPU, $TTT_PLUGIN_TPU, $TTT_PLUGIN_CUDA (for tpu also $TPU_LIBRARY_PATH)
 *   2. the folder of the shared library with this code (if any) and its subfolder ttt; the folder
 *      of the running program, and ../lib/ttt from there
 *   3. $TTT_CACHE, filled by tools/dev/setup.sh (default: ttt in the user's cache directory); of
 *      several versions the newest
 *   4. site-packages of $VIRTUAL_ENV, of the user and of the system
 *
 * On a machine without TPU chips, libtpu would spend minutes asking for instance metadata. Before
 * it is loaded there, TPU_SKIP_MDS_QUERY, TPU_ACCELERATOR_TYPE, TPU_WORKER_HOSTNAMES,
 * TPU_WORKER_ID and ALLOW_MULTIPLE_LIBTPU_LOAD are set in the environment unless the user set
 * them. That uses setenv: load "tpu" before starting threads that read the environment.
 */
PJRT_MUST_CHECK pjrt_status *pjrt_plugin_load(const char *name_or_path, pjrt_plugin **out);

/* Calls `visit` for each path searched for `name`, in order. */
PJRT_MUST_CHECK pjrt_status *pjrt_plugin_search(const char *name,
                                                void (*visit)(const char *path, bool exists,
                                                              const char *why, void *user),
                                                void *user);

const char *pjrt_plugin_path(const pjrt_plugin *plugin);
void pjrt_plugin_version(const pjrt_plugin *plugin, int *major, int *minor);
/* C API version of this build, and the oldest minor version accepted from a plugin. */
void pjrt_api_version(int *major, int *minor, int *oldest_minor);
/* Attributes such as stablehlo_current_version; `*count` of them. */
const pjrt_option *pjrt_plugin_attributes(const pjrt_plugin *plugin, size_t *count);
/* True when the plugin has that entry of the C API, by name: "PJRT_Client_Compile". */
bool pjrt_plugin_has(const pjrt_plugin *plugin, const char *function);
/* Visits every entry of the C API that this library knows of. */
void pjrt_plugin_functions(const pjrt_plugin *plugin,
                           void (*visit)(const char *function, bool present, void *user),
                           void *user);
/* Visits the plugin's extensions, unknown ones too (name NULL). */
void pjrt_plugin_extensions(const pjrt_plugin *plugin,
                            void (*visit)(int type, const char *name, size_t size, void *user),
                            void *user);
/* XXH3 of the plugin's file, 32 hex digits, read once on first use. */
PJRT_MUST_CHECK pjrt_status *pjrt_plugin_hash(pjrt_plugin *plugin, const char **hex);

/* ---- client ---- */

/*
 * A key-value store shared by the processes of a job. All three calls are made from several
 * threads. `get` waits for the key; `try_get` returns PJRT_CODE_NOT_FOUND if it is
 * missing; `put` returns PJRT_CODE_ALREADY_EXISTS for an existing key. Values are malloc'ed and
 * freed by this library.
 */
typedef struct pjrt_store {
    pjrt_code (*get)(void *user, const char *key, size_t key_size, int timeout_ms, char **value,
                     size_t *value_size);
    pjrt_code (*try_get)(void *user, const char *key, size_t key_size, char **value,
                         size_t *value_size);
    pjrt_code (*put)(void *user, const char *key, size_t key_size, const char *value,
                     size_t value_size);
    void *user;
} pjrt_store;

/* Zero-initialize for the plugin's defaults. */
typedef struct pjrt_client_options {
    int cpu_devices;                 /* cpu: number of virtual devices */
    double gpu_memory_fraction;      /* cuda: share of the device memory, 0 < f <= 1 */
    bool gpu_no_preallocate;         /* cuda: grow instead of taking it all at once */
    const char *gpu_allocator;       /* cuda: "default", "platform", "bfc", "cuda_async", "vmm" */
    int node_id, num_nodes;          /* this process and how many there are; num_nodes 0: one */
    const pjrt_store *store;         /* needed when num_nodes > 1; must outlive the client */
    const pjrt_messenger *messenger; /* cpu: likewise */
    const pjrt_option *extra;        /* anything else, passed on as it is */
    size_t n_extra;
} pjrt_client_options;

PJRT_MUST_CHECK pjrt_status *
pjrt_client_create(pjrt_plugin *plugin, const pjrt_client_options *options, pjrt_client **out);
void pjrt_client_free(pjrt_client *client);
pjrt_plugin *pjrt_client_plugin(const pjrt_client *client);
const char *pjrt_client_platform(const pjrt_client *client);         /* "cpu", "tpu", "cuda" */
const char *pjrt_client_platform_version(const pjrt_client *client); /* free text */
int pjrt_client_process(const pjrt_client *client);

/* Devices this process can reach, by index; NULL past the end. They live as long as the client. */
size_t pjrt_client_num_devices(const pjrt_client *client);
pjrt_device *pjrt_client_device(const pjrt_client *client, size_t index);
/* Devices of the whole job, this process's and the others'. */
size_t pjrt_client_num_global_devices(const pjrt_client *client);
/* Number and process of one of them; -1 past the end. */
int pjrt_client_global_device_id(const pjrt_client *client, size_t index);
int pjrt_client_global_device_process(const pjrt_client *client, size_t index);

int pjrt_device_id(const pjrt_device *device);       /* global */
int pjrt_device_local_id(const pjrt_device *device); /* of its process; -1 unknown */
int pjrt_device_process(const pjrt_device *device);
const char *pjrt_device_kind(const pjrt_device *device);
const char *pjrt_device_text(const pjrt_device *device); /* as the plugin prints it */
const pjrt_option *pjrt_device_attributes(const pjrt_device *device, size_t *count);
/* Memories the device can address: kinds such as "device", "pinned_host"; the default is first. */
size_t pjrt_device_num_memories(const pjrt_device *device);
const char *pjrt_device_memory_kind(const pjrt_device *device, size_t index);

typedef struct pjrt_device_memory {
    int64_t in_use, peak, limit, largest_free_block; /* bytes; -1: the plugin does not say */
} pjrt_device_memory;
PJRT_MUST_CHECK pjrt_status *pjrt_device_memory_stats(const pjrt_device *device,
                                                      pjrt_device_memory *out);

/* ---- event ---- */

/* Waits and returns the result of the work. Repeated calls return the same result. */
PJRT_MUST_CHECK pjrt_status *pjrt_event_wait(pjrt_event *event);
PJRT_MUST_CHECK pjrt_status *pjrt_event_is_ready(pjrt_event *event, bool *ready);
/* Calls `done` once, from a thread of the plugin or from this call. `st` is `done`'s to free. */
PJRT_MUST_CHECK pjrt_status *
pjrt_event_on_ready(pjrt_event *event, void (*done)(pjrt_status *st, void *user), void *user);
void pjrt_event_free(pjrt_event *event);

/* ---- buffer ---- */

typedef enum pjrt_host_memory {
    PJRT_HOST_COPIED,     /* the data may change or go as soon as the call returns (default) */
    PJRT_HOST_UNTIL_DONE, /* the data stays as it is until `done` fires: asynchronous */
    PJRT_HOST_ZERO_COPY,  /* the buffer may be the data itself, on CPU: keep it until `done` fires,
                             which is when the buffer is freed; never written to */
} pjrt_host_memory;

typedef struct pjrt_upload_options {
    pjrt_host_memory host_memory;
    const int64_t *byte_strides; /* of the host data, one a dimension; NULL: dense row-major */
    int memory;                  /* index of the device's memory, 0 the default */
} pjrt_upload_options;

/*
 * Starts a copy to the device. With `done` NULL the call returns when the data is no longer
 * needed (except for ZERO_COPY, which needs `done`); otherwise `*done` fires then and the caller
 * frees it. The buffer can be used at once.
 */
PJRT_MUST_CHECK pjrt_status *pjrt_buffer_from_host(pjrt_device *device, pjrt_type type,
                                                   const int64_t *dims, int rank, const void *data,
                                                   const pjrt_upload_options *options,
                                                   pjrt_event **done, pjrt_buffer **out);

/* Device memory with undefined contents. UNIMPLEMENTED where the plugin has none. */
PJRT_MUST_CHECK pjrt_status *pjrt_buffer_uninitialized(pjrt_device *device, const pjrt_shape *shape,
                                                       pjrt_buffer **out);

/* Copies to the host as a dense row-major array, whatever the device's own layout. `size` must be
 * the array's size. With `done` NULL the call waits. */
PJRT_MUST_CHECK pjrt_status *pjrt_buffer_to_host(pjrt_buffer *buffer, void *data, size_t size,
                                                 pjrt_event **done);

PJRT_MUST_CHECK pjrt_status *pjrt_buffer_copy_to(pjrt_buffer *buffer, pjrt_device *device,
                                                 pjrt_buffer **out);
/* Fires when the contents are ready, or with the error that prevented it. */
PJRT_MUST_CHECK pjrt_status *pjrt_buffer_ready(pjrt_buffer *buffer, pjrt_event **out);

const pjrt_shape *pjrt_buffer_shape(const pjrt_buffer *buffer);
pjrt_device *pjrt_buffer_device(const pjrt_buffer *buffer);
/* Bytes on the device: more than the array's own where layouts are padded. */
PJRT_MUST_CHECK pjrt_status *pjrt_buffer_device_bytes(const pjrt_buffer *buffer, size_t *out);
/* True after the buffer was donated or deleted: only pjrt_buffer_free may follow. */
bool pjrt_buffer_is_dead(const pjrt_buffer *buffer);
/* Frees the device memory now; the handle stays valid only for pjrt_buffer_free. */
PJRT_MUST_CHECK pjrt_status *pjrt_buffer_delete(pjrt_buffer *buffer);
void pjrt_buffer_free(pjrt_buffer *buffer);

/* ---- compile ---- */

/* StableHLO text or MLIR bytecode, or a serialized HloModuleProto. Borrowed. */
typedef struct pjrt_program {
    const char *code;
    size_t size;
    const char *format; /* "mlir" or "hlo" */
} pjrt_program;
pjrt_program pjrt_program_text(const char *mlir);

typedef enum pjrt_partitioner {
    PJRT_PARTITIONER_AUTO, /* Shardy if the program uses the sdy dialect, else GSPMD */
    PJRT_PARTITIONER_SHARDY,
    PJRT_PARTITIONER_GSPMD,
} pjrt_partitioner;

typedef struct pjrt_compile_options {
    int replicas, partitions; /* 0: one */
    pjrt_partitioner partitioner;
    const int *devices;           /* global ids, replicas * partitions of them: replica-major. NULL:
                                     0, 1, 2 … (ahead of time: the compiler's choice) */
    bool portable;                /* one device, chosen anew at each execute */
    const pjrt_option *overrides; /* XLA debug options by name, for this compile alone */
    size_t n_overrides;
    int process, num_processes; /* of a job with several; 0 processes: one */
} pjrt_compile_options;

/* The CompileOptionsProto that these options become; `*bytes` is the caller's to free(). */
PJRT_MUST_CHECK pjrt_status *pjrt_compile_options_encode(const pjrt_compile_options *options,
                                                         const pjrt_program *program, char **bytes,
                                                         size_t *size);

PJRT_MUST_CHECK pjrt_status *pjrt_compile(pjrt_client *client, pjrt_program program,
                                          const pjrt_compile_options *options,
                                          pjrt_executable **out);
void pjrt_executable_free(pjrt_executable *exe);

/* ---- ahead of time ---- */

/* "v5e:16x16" on libtpu; on CUDA the name is free and the options say what chip it is. */
PJRT_MUST_CHECK pjrt_status *pjrt_topology_create(pjrt_plugin *plugin, const char *name,
                                                  const pjrt_option *options, size_t n_options,
                                                  pjrt_topology **out);
void pjrt_topology_free(pjrt_topology *topology);
size_t pjrt_topology_num_devices(const pjrt_topology *topology);
const char *pjrt_topology_platform(const pjrt_topology *topology);
const char *pjrt_topology_platform_version(const pjrt_topology *topology);
/* Kind of its devices, such as "TPU v5 lite"; "" when it has none. */
const char *pjrt_topology_device_kind(const pjrt_topology *topology);

/* Compiles for hardware that is not attached. The result can be inspected and saved, not run. */
PJRT_MUST_CHECK pjrt_status *pjrt_compile_ahead(pjrt_topology *topology, pjrt_program program,
                                                const pjrt_compile_options *options,
                                                pjrt_executable **out);

/* A chip or pod that programs are compiled for: "tpu:v5e:16x16", "cuda:h100-sxm", "cpu". */
typedef struct pjrt_target {
    const char *name; /* as a user writes it */
    const char *description;
    const char *plugin; /* "tpu", "cuda", "cpu" */
    double bf16_flops;  /* peak of one chip a second, dense, public figure; 0 unknown */
    double f32_flops;
    double bytes_per_second; /* of its memory */
    int64_t memory_bytes;
    double link_bytes_per_second; /* to other chips of its pod or host: all links, one way */
} pjrt_target;

/* All targets. For TPUs one row a generation, its name ending in a small topology: any other that
 * libtpu knows may stand there. A GPU's name may end in a number of them, ":8" or ":2x8" (hosts x
 * GPUs). */
const pjrt_target *pjrt_targets(size_t *count);
/* Finds the row for `name` and makes its topology. For "cpu" there is no topology but a client:
 * `*topology` is NULL and the caller compiles for a client. */
PJRT_MUST_CHECK pjrt_status *pjrt_target_open(const char *name, const pjrt_target **target,
                                              pjrt_topology **topology);

/* ---- executable ---- */

int pjrt_executable_num_devices(const pjrt_executable *exe); /* replicas * partitions */
int pjrt_executable_num_results(const pjrt_executable *exe);
const pjrt_shape *pjrt_executable_result(const pjrt_executable *exe, int index);
/* What the program takes, per device; learnt from the compiled program on first use. A plugin that
 * does not return its optimized program gives UNIMPLEMENTED. */
PJRT_MUST_CHECK pjrt_status *pjrt_executable_arguments(pjrt_executable *exe,
                                                       const pjrt_shape **shapes, int *count);
const char *pjrt_executable_name(const pjrt_executable *exe);

typedef struct pjrt_memory_stats {
    int64_t code, arguments, results, alias, temp; /* bytes a device */
    int64_t host_arguments, host_results, host_temp;
    int64_t peak; /* -1: not told */
} pjrt_memory_stats;
PJRT_MUST_CHECK pjrt_status *pjrt_executable_memory(const pjrt_executable *exe,
                                                    pjrt_memory_stats *out);

/* Bytes of the executable as the plugin serializes it. */
PJRT_MUST_CHECK pjrt_status *pjrt_executable_size(pjrt_executable *exe, size_t *bytes);

/* XLA's own cost analysis: named figures ("flops", "bytes accessed"). It counts a loop's body once;
 * pjrt_hlo.h counts it as often as it runs. The array and its names live as long as `exe`. */
PJRT_MUST_CHECK pjrt_status *pjrt_executable_costs(pjrt_executable *exe, const pjrt_option **costs,
                                                   size_t *count);

/* The optimized program, a serialized HloModuleProto ("hlo") or that and its configuration
 * ("hlo_with_config"); `*bytes` is the caller's to free(), `*format` is static. */
PJRT_MUST_CHECK pjrt_status *pjrt_executable_optimized(const pjrt_executable *exe, char **bytes,
                                                       size_t *size, const char **format);

/* ---- execute ---- */

typedef struct pjrt_execute_options {
    const int64_t *keep; /* arguments that must not be donated in this call, by index */
    size_t n_keep;
    int launch_id;       /* the same on every process of a job for the same launch */
    pjrt_device *device; /* for portable executables: where to run */
    int num_devices;     /* how many of the executable's devices this process feeds; 0: all */
} pjrt_execute_options;

/*
 * Queues one run and returns. `args` holds num_devices lists of num_args buffers one after the
 * other, `results` room for num_devices lists of num_results. `done`, when not NULL, has room for
 * num_devices events, which fire when a device is finished.
 *
 * The plugins do not check what they are given, so this call does: number, shape, type and device
 * of every argument, and that none is dead. On failure `results` and `done` are all NULL.
 *
 * Arguments that the program declares as donated are dead after the call, if the plugin took them;
 * pjrt_executable_donations counts those it took and those it refused.
 */
PJRT_MUST_CHECK pjrt_status *pjrt_execute(pjrt_executable *exe, pjrt_buffer *const *args,
                                          size_t num_args, const pjrt_execute_options *options,
                                          pjrt_buffer **results, size_t num_results,
                                          pjrt_event **done);

void pjrt_executable_donations(const pjrt_executable *exe, int64_t *taken, int64_t *refused);

/* ---- on disk ---- */

/*
 * An executable on disk carries a stamp: plugin file hash, platform, its version, device kind, API
 * version, compile options and program hash. Loading compares all of it and the payload's hash; a
 * mismatch is FAILED_PRECONDITION, damage is DATA_LOSS, each with the reason. Files are written
 * under another name and renamed: a crash never leaves half of one.
 */
PJRT_MUST_CHECK pjrt_status *pjrt_executable_save(pjrt_executable *exe, const char *path);
/* `program` and `options` as they would be compiled; program.code NULL: whatever the file holds. */
PJRT_MUST_CHECK pjrt_status *pjrt_executable_load(pjrt_client *client, const char *path,
                                                  pjrt_program program,
                                                  const pjrt_compile_options *options,
                                                  pjrt_executable **out);
/* Loads the program from `dir` or compiles it and saves it there. `*why`, when not NULL, receives
 * NULL for a hit, else the reason why it was compiled, which the caller frees. A cache that
 * cannot be written is not an error. */
PJRT_MUST_CHECK pjrt_status *pjrt_compile_cached(pjrt_client *client, pjrt_program program,
                                                 const pjrt_compile_options *options,
                                                 const char *dir, pjrt_executable **out,
                                                 pjrt_status **why);

/* The stamp's fields of a saved executable, in the order they are compared. */
PJRT_MUST_CHECK pjrt_status *
pjrt_stamp_read(const char *path, void (*visit)(const char *field, const char *value, void *user),
                void *user);

/* ---- FFI ---- */

/*
 * Registers `handler`, an XLA_FFI_Handler of xla/ffi/api/c_api.h, for custom calls named `target`.
 * `platform` is "cpu" or "cuda". Some plugins drop registration errors, so this call then proves
 * the registration by asking the handler for its metadata as XLA does; pjrt_ffi_probe proves it
 * with the compiler.
 */
PJRT_MUST_CHECK pjrt_status *pjrt_ffi_register(pjrt_plugin *plugin, const char *target,
                                               const char *platform, void *handler,
                                               bool command_buffer_compatible);
/* Compiles a program that calls `target`, for `client` or ahead of time for `topology`. */
PJRT_MUST_CHECK pjrt_status *pjrt_ffi_probe(pjrt_client *client, pjrt_topology *topology,
                                            const char *target);
/* First statement of a handler: for a metadata query, fills in the metadata and returns true; the
 * handler then returns NULL. `call_frame` is the handler's XLA_FFI_CallFrame. */
bool pjrt_ffi_answer_metadata(void *call_frame, bool command_buffer_compatible);

/* ---- profiler ---- */

PJRT_MUST_CHECK pjrt_status *pjrt_profile_start(pjrt_plugin *plugin, pjrt_profile **out);
/* Stops and writes an XSpace protobuf (TensorBoard's and xprof's .xplane.pb) to `path`. The handle
 * is gone afterwards, whatever happens; with `path` NULL it is only dropped. */
PJRT_MUST_CHECK pjrt_status *pjrt_profile_stop(pjrt_profile *profile, const char *path);

#endif
