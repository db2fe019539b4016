/* Plugin loading, version check, and queries. */
#include "pjrt/functions.h"
#include "pjrt/internal.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

/* Plugins below this minor version lack entries that nothing here can do without. */
enum { OLDEST_MINOR = 29 };

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static pjrt_plugin *registry; /* every plugin ever loaded; they are never unloaded */

char *pjrt__copy_text(const char *text, size_t size)
{
    char *copy = malloc(size + 1);
    if (copy != NULL) {
        if (size > 0)
            memcpy(copy, text, size);
        copy[size] = '\0';
    }
    return copy;
}

static void digest_hex(XXH128_hash_t hash, char hex[33])
{
    snprintf(hex, 33, "%016llx%016llx", (unsigned long long)hash.high64,
             (unsigned long long)hash.low64);
}

void pjrt__hash_hex(const void *bytes, size_t size, char hex[33])
{
    digest_hex(XXH3_128bits(bytes, size), hex);
}

pjrt_status *pjrt__take_error(const pjrt_plugin *plugin, PJRT_Error *error, const char *call,
                              const char *file, int line)
{
    if (error == NULL)
        return NULL;
    ARGS(PJRT_Error_Message_Args, message, plugin);
    message.a.error = error;
    if (HAS(plugin, PJRT_Error_Message))
        plugin->api->PJRT_Error_Message(&message.a);
    ARGS(PJRT_Error_GetCode_Args, code, plugin);
    code.a.error = error;
    code.a.code = PJRT_Error_Code_UNKNOWN;
    PJRT_Error *second = NULL;
    if (HAS(plugin, PJRT_Error_GetCode))
        second = plugin->api->PJRT_Error_GetCode(&code.a);
    if (code.a.code == PJRT_Error_Code_OK) /* an error that says it is none stays an error */
        code.a.code = PJRT_Error_Code_UNKNOWN;
    int size = message.a.message_size > INT_MAX ? INT_MAX : (int)message.a.message_size;
    pjrt_status *st = pjrt_status_make((pjrt_code)code.a.code, call, file, line, "%.*s", size,
                                       message.a.message == NULL ? "" : message.a.message);
    PJRT_Error *errors[] = {error, second};
    for (int i = 0; i < 2 && HAS(plugin, PJRT_Error_Destroy); i++) {
        ARGS(PJRT_Error_Destroy_Args, destroy, plugin);
        destroy.a.error = errors[i];
        if (errors[i] != NULL)
            plugin->api->PJRT_Error_Destroy(&destroy.a);
    }
    return st;
}

pjrt_status *pjrt__missing(const pjrt_plugin *plugin, const char *call, const char *file, int line)
{
    return pjrt_status_make(PJRT_CODE_UNIMPLEMENTED, call, file, line,
                            "%s (PJRT %d.%d) does not have this entry", plugin->path,
                            plugin->api->pjrt_api_version.major_version,
                            plugin->api->pjrt_api_version.minor_version);
}

PJRT_Extension_Base *pjrt__extension(const pjrt_plugin *plugin, PJRT_Extension_Type type,
                                     size_t size)
{
    for (PJRT_Extension_Base *e = plugin->api->extension_start; e != NULL; e = e->next) {
        if (e->type == type && e->struct_size >= size)
            return e;
    }
    return NULL;
}

/* ---- loading ---- */

static pjrt_status *check_version(const pjrt_plugin *plugin)
{
    const PJRT_Api *api = plugin->api;
    if (api->struct_size < offsetof(PJRT_Api, PJRT_Error_Destroy))
        return PJRT_FAIL(FAILED_PRECONDITION, "pjrt_plugin_load",
                         "%s: its function table has no version (%zu bytes)", plugin->path,
                         api->struct_size);
    int major = api->pjrt_api_version.major_version;
    int minor = api->pjrt_api_version.minor_version;
    if (major != PJRT_API_MAJOR || minor < OLDEST_MINOR)
        return PJRT_FAIL(FAILED_PRECONDITION, "pjrt_plugin_load",
                         "%s speaks PJRT %d.%d; this program speaks %d.%d up to %d.x: take a %s "
                         "plugin",
                         plugin->path, major, minor, PJRT_API_MAJOR, OLDEST_MINOR, PJRT_API_MAJOR,
                         major > PJRT_API_MAJOR ? "less recent" : "more recent");
    return NULL;
}

static pjrt_status *initialise(pjrt_plugin *plugin)
{
    PJRT_TRY(check_version(plugin));
    plugin->tail = plugin->api->pjrt_api_version.minor_version > PJRT_API_MINOR ? ABI_TAIL : 0;
    if (HAS(plugin, PJRT_Plugin_Initialize)) {
        ARGS(PJRT_Plugin_Initialize_Args, init, plugin);
        PJRT_TRY(CALL(plugin, PJRT_Plugin_Initialize, init));
    }
    if (HAS(plugin, PJRT_Plugin_Attributes)) {
        ARGS(PJRT_Plugin_Attributes_Args, attributes, plugin);
        PJRT_TRY(CALL(plugin, PJRT_Plugin_Attributes, attributes));
        PJRT_TRY(pjrt__options_from_raw(attributes.a.attributes, attributes.a.num_attributes,
                                        &plugin->attributes));
        plugin->n_attributes = attributes.a.num_attributes;
    }
    return NULL;
}

/*
 * Without chips libtpu can only compile ahead of time. It would still ask the metadata server for
 * the machine's topology, for minutes, so a topology is given to it. With chips the environment
 * stays untouched: libtpu must see the real machine.
 */
static pjrt_status *fake_topology_without_chips(const char *path)
{
    static const char *const settings[][2] = {
        {"TPU_SKIP_MDS_QUERY", "1"},           {"TPU_ACCELERATOR_TYPE", "v5litepod-256"},
        {"TPU_WORKER_HOSTNAMES", "localhost"}, {"TPU_WORKER_ID", "0"},
        {"ALLOW_MULTIPLE_LIBTPU_LOAD", "1"},
    };
    if (strstr(path, "libtpu") == NULL || pjrt__on_tpu_machine())
        return NULL;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        if (setenv(settings[i][0], settings[i][1], 0) != 0)
            return PJRT_NO_MEMORY("setenv");
    }
    return NULL;
}

static pjrt_status *open_library(const char *path, const PJRT_Api **api)
{
    PJRT_TRY(fake_topology_without_chips(path));
    /* Lazily: binding all of XLA at once takes longer than a whole `ttt devices` (0.40 against
     * 0.24 s for the CPU plugin). Never closed: registries in there outlive any user. */
    void *library = dlopen(path, RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
    if (library == NULL)
        return PJRT_FAIL(UNAVAILABLE, "dlopen", "%s", dlerror());
    const PJRT_Api *(*get_api)(void);
    /* dlsym forces this conversion from object to function pointer. */
    *(void **)&get_api = dlsym(library, "GetPjrtApi");
    if (get_api == NULL)
        return PJRT_FAIL(FAILED_PRECONDITION, "dlsym",
                         "%s is no PJRT plugin: it does not export GetPjrtApi", path);
    *api = get_api();
    if (*api == NULL)
        return PJRT_FAIL(UNAVAILABLE, "GetPjrtApi", "%s gave no function table", path);
    return NULL;
}

/* Called with the registry locked. `path` is taken over. */
static pjrt_status *load_locked(char *path, pjrt_plugin **out)
{
    for (pjrt_plugin *p = registry; p != NULL; p = p->next) {
        if (strcmp(p->path, path) == 0) {
            free(path);
            *out = p;
            return NULL;
        }
    }
    const PJRT_Api *api = NULL;
    pjrt_status *st = open_library(path, &api);
    pjrt_plugin *plugin = st == NULL ? calloc(1, sizeof *plugin) : NULL;
    if (plugin == NULL) {
        free(path);
        return st != NULL ? st : PJRT_NO_MEMORY("pjrt_plugin_load");
    }
    plugin->api = api;
    plugin->path = path;
    pthread_mutex_init(&plugin->lock, NULL);
    plugin->failure = initialise(plugin);
    plugin->next = registry;
    registry = plugin;
    *out = plugin;
    return NULL;
}

pjrt_status *pjrt_plugin_load(const char *name_or_path, pjrt_plugin **out)
{
    char *found = NULL;
    pjrt_plugin *plugin = NULL;
    *out = NULL;
    PJRT_TRY(pjrt__find(name_or_path, &found));
    char *path = realpath(found, NULL);
    if (path == NULL) {
        pjrt_status *st = errno == ENOMEM ? PJRT_NO_MEMORY("pjrt_plugin_load")
                                          : PJRT_FAIL(NOT_FOUND, "pjrt_plugin_load", "%s: %s",
                                                      found, strerror(errno));
        free(found);
        return st;
    }
    free(found);
    pthread_mutex_lock(&registry_lock);
    pjrt_status *st = load_locked(path, &plugin);
    pthread_mutex_unlock(&registry_lock);
    if (st != NULL)
        return st;
    if (plugin->failure != NULL)
        return pjrt_status_copy(plugin->failure);
    *out = plugin;
    return NULL;
}

/* ---- queries ---- */

const char *pjrt_plugin_path(const pjrt_plugin *plugin)
{
    return plugin->path;
}

void pjrt_plugin_version(const pjrt_plugin *plugin, int *major, int *minor)
{
    *major = plugin->api->pjrt_api_version.major_version;
    *minor = plugin->api->pjrt_api_version.minor_version;
}

void pjrt_api_version(int *major, int *minor, int *oldest_minor)
{
    *major = PJRT_API_MAJOR;
    *minor = PJRT_API_MINOR;
    *oldest_minor = OLDEST_MINOR;
}

const pjrt_option *pjrt_plugin_attributes(const pjrt_plugin *plugin, size_t *count)
{
    *count = plugin->n_attributes;
    return plugin->attributes;
}

static pjrt_status *hash_file(const char *path, char hex[33])
{
    struct stat info;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0 || fstat(file, &info) != 0 || info.st_size == 0) {
        if (file >= 0)
            close(file);
        return PJRT_FAIL(UNAVAILABLE, "pjrt_plugin_hash", "%s cannot be read", path);
    }
    void *bytes = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    close(file);
    if (bytes == MAP_FAILED)
        return PJRT_FAIL(UNAVAILABLE, "mmap", "%s cannot be mapped", path);
    pjrt__hash_hex(bytes, (size_t)info.st_size, hex);
    munmap(bytes, (size_t)info.st_size);
    return NULL;
}

pjrt_status *pjrt_plugin_hash(pjrt_plugin *plugin, const char **hex)
{
    pjrt_status *st = NULL;
    pthread_mutex_lock(&plugin->lock);
    if (plugin->hash[0] == '\0')
        st = hash_file(plugin->path, plugin->hash);
    pthread_mutex_unlock(&plugin->lock);
    *hex = st == NULL ? plugin->hash : NULL;
    return st;
}

typedef struct function_entry {
    const char *name;
    size_t offset;
} function_entry;

static const function_entry functions[] = {
#define FUNCTION_ENTRY(name) {#name, offsetof(PJRT_Api, name)},
    PJRT_FUNCTIONS(FUNCTION_ENTRY)
#undef FUNCTION_ENTRY
};
_Static_assert(offsetof(PJRT_Api, PJRT_Error_Destroy) +
                       sizeof functions / sizeof *functions * sizeof(void *) ==
                   sizeof(PJRT_Api),
               "pjrt/functions.h lists every entry of the header");

static bool has_entry(const pjrt_plugin *plugin, const function_entry *entry)
{
    void *pointer;
    if (plugin->api->struct_size < entry->offset + sizeof pointer)
        return false;
    memcpy(&pointer, (const char *)plugin->api + entry->offset, sizeof pointer);
    return pointer != NULL;
}

bool pjrt_plugin_has(const pjrt_plugin *plugin, const char *function)
{
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        if (strcmp(functions[i].name, function) == 0)
            return has_entry(plugin, &functions[i]);
    }
    return false;
}

void pjrt_plugin_functions(const pjrt_plugin *plugin, void (*visit)(const char *, bool, void *),
                           void *user)
{
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        visit(functions[i].name, has_entry(plugin, &functions[i]), user);
}

void pjrt_plugin_extensions(const pjrt_plugin *plugin,
                            void (*visit)(int, const char *, size_t, void *), void *user)
{
    /* Names by number; the numbers past the header's own enum are those of newer plugins. */
    static const char *const names[] = {
        "Gpu_Custom_Call",
        "Profiler",
        "Custom_Partitioner",
        "Stream",
        "Layouts",
        "FFI",
        "MemoryDescriptions",
        "Triton",
        "RawBuffer",
        "PhaseCompile",
        "Example",
        "Unknown",
        "CrossHostTransfers",
        "ExecutableMetadata",
        "Callback",
        "HostAllocator",
        "TpuTopology",
        "TpuExecutable",
        "Megascale",
    };
    for (PJRT_Extension_Base *e = plugin->api->extension_start; e != NULL; e = e->next) {
        size_t type = (size_t)e->type;
        visit((int)e->type, type < sizeof names / sizeof *names ? names[type] : NULL,
              e->struct_size, user);
    }
}
