/* Plugin search, in the order documented at pjrt_plugin_load, and detection of TPU chips. */
#include "pjrt/internal.h"

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct plugin_location {
    const char *name;
    const char *environment[2];
    const char *beside_program; /* file name next to the executable */
    const char *in_cache;       /* below a versioned folder of the cache */
    const char *in_site_packages;
} plugin_location;

static const plugin_location locations[] = {
    {"cpu", {"TTT_PLUGIN_CPU", NULL}, "pjrt_cpu_plugin.so", "pjrt-cpu-*/pjrt_cpu_plugin.so", NULL},
    {"tpu",
     {"TTT_PLUGIN_TPU", "TPU_LIBRARY_PATH"},
     "libtpu.so",
     "libtpu-*/libtpu/libtpu.so",
     "libtpu/libtpu.so"},
    {"cuda",
     {"TTT_PLUGIN_CUDA", NULL},
     "xla_cuda_plugin.so",
     "jax-cuda*-pjrt-*/jax_plugins/xla_cuda*/xla_cuda_plugin.so",
     "jax_plugins/xla_cuda*/xla_cuda_plugin.so"},
};

typedef struct search {
    void (*visit)(const char *path, bool exists, const char *why, void *user);
    void *user;
    bool out_of_memory;
} search;

static bool is_file(const char *path)
{
    return access(path, R_OK) == 0;
}

/* Visits all matches, newest version first; without a match visits `shown` as missing. */
static void visit_pattern(search *s, const char *pattern, const char *shown, const char *why)
{
    glob_t found;
    int code = glob(pattern, 0, NULL, &found);
    if (code == GLOB_NOSPACE) {
        s->out_of_memory = true;
        return;
    }
    if (code != 0) {
        s->visit(shown, false, why, s->user);
        return;
    }
    /* glob sorts bytewise; sort by version number instead. */
    for (size_t i = 1; i < found.gl_pathc; i++) {
        for (size_t j = i; j > 0 && strverscmp(found.gl_pathv[j - 1], found.gl_pathv[j]) < 0; j--) {
            char *swap = found.gl_pathv[j];
            found.gl_pathv[j] = found.gl_pathv[j - 1];
            found.gl_pathv[j - 1] = swap;
        }
    }
    for (size_t i = 0; i < found.gl_pathc; i++)
        s->visit(found.gl_pathv[i], is_file(found.gl_pathv[i]), why, s->user);
    globfree(&found);
}

/* `folder` is literal (glob characters are escaped); `format` gives a glob pattern below it. */
__attribute__((format(printf, 4, 5))) static void
visit_format(search *s, const char *why, const char *folder, const char *format, ...)
{
    char below[PATH_MAX], shown[PATH_MAX], pattern[2 * PATH_MAX];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(below, sizeof below, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof below)
        return;
    n = snprintf(shown, sizeof shown, "%s/%s", folder, below);
    if (n < 0 || (size_t)n >= sizeof shown) /* too long for any file */
        return;
    char *at = pattern;
    for (; *folder != '\0'; folder++) {
        if (strchr("*?[\\", *folder) != NULL)
            *at++ = '\\';
        *at++ = *folder;
    }
    snprintf(at, sizeof pattern - (size_t)(at - pattern), "/%s", below);
    visit_pattern(s, pattern, shown, why);
}

static void search_environment(search *s, const plugin_location *location)
{
    for (size_t i = 0; i < 2 && location->environment[i] != NULL; i++) {
        const char *value = getenv(location->environment[i]);
        if (value != NULL && *value != '\0')
            s->visit(value, is_file(value), location->environment[i], s->user);
    }
}

/* Path of the running program; false if unknown. */
static bool find_program(char program[PATH_MAX])
{
    ssize_t n = readlink("/proc/self/exe", program, PATH_MAX - 1);
    program[n < 0 ? 0 : n] = '\0';
    return strrchr(program, '/') != NULL;
}

/* If this code is in a shared library: its folder and the subfolder "ttt". */
static void search_beside_library(search *s, const plugin_location *location)
{
    static const char here;
    char program[PATH_MAX], library[PATH_MAX];
    Dl_info info;
    if (dladdr(&here, &info) == 0 || info.dli_fname == NULL ||
        realpath(info.dli_fname, library) == NULL || strrchr(library, '/') == NULL)
        return;
    if (find_program(program) && strcmp(program, library) == 0)
        return;
    *strrchr(library, '/') = '\0';
    visit_format(s, "beside the library", library, "%s", location->beside_program);
    visit_format(s, "beside the library", library, "ttt/%s", location->beside_program);
}

static void search_beside_program(search *s, const plugin_location *location)
{
    char program[PATH_MAX];
    if (!find_program(program))
        return;
    *strrchr(program, '/') = '\0';
    visit_format(s, "beside the program", program, "%s", location->beside_program);
    visit_format(s, "beside the program", program, "../lib/ttt/%s", location->beside_program);
}

static void search_cache(search *s, const plugin_location *location)
{
    const char *cache = getenv("TTT_CACHE");
    const char *user_cache = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    if (cache != NULL && *cache != '\0')
        visit_format(s, "TTT_CACHE", cache, "%s", location->in_cache);
    else if (user_cache != NULL && *user_cache != '\0')
        visit_format(s, "cache", user_cache, "ttt/%s", location->in_cache);
    else if (home != NULL)
        visit_format(s, "cache", home, ".cache/ttt/%s", location->in_cache);
}

static void search_site_packages(search *s, const plugin_location *location)
{
    const char *why = "site-packages";
    const char *file = location->in_site_packages;
    if (file == NULL)
        return;
    const char *venv = getenv("VIRTUAL_ENV");
    const char *home = getenv("HOME");
    if (venv != NULL && *venv != '\0')
        visit_format(s, why, venv, "lib/python3*/site-packages/%s", file);
    if (home != NULL)
        visit_format(s, why, home, ".local/lib/python3*/site-packages/%s", file);
    visit_format(s, why, "/usr/local", "lib/python3*/*-packages/%s", file);
    visit_format(s, why, "/usr", "lib/python3*/*-packages/%s", file);
}

pjrt_status *pjrt_plugin_search(const char *name,
                                void (*visit)(const char *, bool, const char *, void *), void *user)
{
    search s = {.visit = visit, .user = user};
    for (size_t i = 0; i < sizeof locations / sizeof *locations; i++) {
        if (strcmp(locations[i].name, name) != 0)
            continue;
        search_environment(&s, &locations[i]);
        search_beside_library(&s, &locations[i]);
        search_beside_program(&s, &locations[i]);
        search_cache(&s, &locations[i]);
        search_site_packages(&s, &locations[i]);
        return s.out_of_memory ? PJRT_NO_MEMORY("pjrt_plugin_search") : NULL;
    }
    return PJRT_FAIL(NOT_FOUND, "pjrt_plugin_search",
                     "no plugin is called \"%s\": use cpu, tpu, cuda, or a path with a '/'", name);
}

typedef struct first_match {
    char *path;
    bool found, out_of_memory;
} first_match;

static void on_candidate(const char *path, bool exists, const char *why, void *user)
{
    first_match *c = user;
    (void)why;
    if (!exists || c->found)
        return;
    c->found = true;
    c->path = strdup(path);
    c->out_of_memory = c->path == NULL;
}

pjrt_status *pjrt__find(const char *name, char **path)
{
    first_match c = {0};
    *path = NULL;
    if (strchr(name, '/') != NULL) {
        on_candidate(name, true, "path", &c);
    } else {
        pjrt_status *st = pjrt_plugin_search(name, on_candidate, &c);
        if (st != NULL) {
            free(c.path);
            return st;
        }
    }
    if (c.out_of_memory)
        return PJRT_NO_MEMORY("pjrt_plugin_load");
    if (!c.found)
        return PJRT_FAIL(NOT_FOUND, "pjrt_plugin_load",
                         "%s plugin not found: run tools/dev/setup.sh, or give its path "
                         "(ttt devices -v lists the searched paths)",
                         name);
    *path = c.path;
    return NULL;
}

/* ---- TPU chips ---- */

/* Google's PCI vendor also makes network cards and disks of GCE machines: the device id decides. */
static const unsigned long google_pci_vendor = 0x1ae0;
static const unsigned long tpu_pci_devices[] = {
    0x0027, /* v2, v3 */
    0x0056, /* no public name */
    0x005e, /* v4 */
    0x0062, /* v5p */
    0x0063, /* v5e */
    0x006f, /* v6e */
    0x0076, /* TPU7x */
};

/* Reads a number such as "0x1ae0" from `folder`/`name`; 0 if there is none. */
static unsigned long read_pci_id(const char *folder, const char *name)
{
    char path[PATH_MAX], text[32] = "";
    int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = n > 0 && (size_t)n < sizeof path ? fopen(path, "re") : NULL;
    if (file == NULL)
        return 0;
    if (fgets(text, sizeof text, file) == NULL)
        text[0] = '\0';
    fclose(file);
    return strtoul(text, NULL, 16);
}

static bool is_tpu_chip(const char *pci_device)
{
    if (read_pci_id(pci_device, "vendor") != google_pci_vendor)
        return false;
    unsigned long id = read_pci_id(pci_device, "device");
    for (size_t i = 0; i < sizeof tpu_pci_devices / sizeof *tpu_pci_devices; i++) {
        if (id == tpu_pci_devices[i])
            return true;
    }
    return false;
}

/* Paths below `root` that match; the caller frees `found` if the count is not 0. */
static size_t glob_below(const char *root, const char *pattern, glob_t *found)
{
    char whole[PATH_MAX];
    int n = snprintf(whole, sizeof whole, "%s/%s", root, pattern);
    if (n < 0 || (size_t)n >= sizeof whole || glob(whole, 0, NULL, found) != 0)
        return 0;
    return found->gl_pathc;
}

static bool exists_below(const char *root, const char *pattern)
{
    glob_t found;
    if (glob_below(root, pattern, &found) == 0)
        return false;
    globfree(&found);
    return true;
}

bool pjrt__on_tpu_machine(void)
{
    const char *set = getenv("TTT_SYSFS_ROOT");
    const char *root = set == NULL ? "" : set;
    glob_t pci;
    size_t n_pci = glob_below(root, "sys/bus/pci/devices/*", &pci);
    bool has_chip = false;
    for (size_t i = 0; i < n_pci && !has_chip; i++)
        has_chip = is_tpu_chip(pci.gl_pathv[i]);
    if (n_pci > 0)
        globfree(&pci);
    /* v4 and older chips have /dev/accelN, which only the TPU driver creates. */
    if (has_chip || exists_below(root, "dev/accel[0-9]*"))
        return true;
    /* Newer chips have /dev/vfio/N, as has any device passed through to a guest. Where the PCI bus
     * is visible and lists no TPU, they belong to another vendor unless the user set TPU_NAME. */
    return (n_pci == 0 || getenv("TPU_NAME") != NULL) && exists_below(root, "dev/vfio/[0-9]*");
}
