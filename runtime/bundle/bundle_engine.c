/* Engines from bundles: executables where they fit this machine, StableHLO where they do not. */
#include "runtime/bundle/bundle.h"
#include "runtime/device/internal.h"
#include "runtime/generate/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char call[] = "bundle";

/* Where an engine's programs come from: loaded ones, or the bundle's StableHLO. */
typedef struct programs {
    const ttt_bundle *bundle;
    const ttt_devices *devices;
    bool built;
    ttt_program **loaded; /* one a program of the bundle; NULL once it was handed out */
} programs;

static void drop_loaded(programs *p)
{
    for (int i = 0; i < p->bundle->about.n_programs; i++) {
        ttt_program_free(p->loaded[i]);
        p->loaded[i] = NULL;
    }
}

static void done(void *ctx)
{
    programs *p = ctx;
    drop_loaded(p);
    free(p->loaded);
    free(p);
}

/* ---- building ----------------------------------------------------------------------------------
 */

static pjrt_status *build(const programs *p, int index, ttt_program **out)
{
    pjrt_executable *exe;
    char *bytes;
    size_t size;
    bool cached;
    PJRT_TRY(ttt__bundle_read(p->bundle, p->bundle->about.programs[index].file, &bytes, &size));
    pjrt_program code = {.code = bytes, .size = size, .format = "mlir"};
    pjrt_status *st = ttt__devices_compile(p->devices, code, &exe, &cached);
    free(bytes);
    if (st != NULL)
        return st;
    PJRT_TRY(ttt__program_adopt(p->devices, exe, out));
    (*out)->cached = cached;
    return NULL;
}

static int find_program(const ttt_bundle_about *about, const ttt_program_desc *desc)
{
    const char *name = ttt__bundle_kind_name(desc->kind);
    for (int i = 0; name != NULL && i < about->n_programs; i++) {
        const ttt_bundle_program *p = &about->programs[i];
        if (strcmp(p->kind, name) == 0 && p->batch == desc->batch && p->time == desc->time)
            return i;
    }
    return -1;
}

static pjrt_status *get(void *ctx, const ttt_program_desc *desc, ttt_program **out)
{
    programs *p = ctx;
    int index = find_program(&p->bundle->about, desc);
    *out = NULL;
    if (index < 0) {
        char name[TTT__PROGRAM_NAME];
        ttt__bundle_program_name(desc, name);
        return PJRT_FAIL(NOT_FOUND, call, "%s has no program %s: export the model anew",
                         p->bundle->path, name);
    }
    if (p->built)
        return build(p, index, out);
    *out = p->loaded[index];
    p->loaded[index] = NULL;
    return *out != NULL ? NULL : PJRT_FAIL(INTERNAL, call, "a program is asked for once");
}

/* ---- loading -----------------------------------------------------------------------------------
 */

static pjrt_status *load_one(programs *p, const ttt_bundle_target *target, int index)
{
    char path[PATH_MAX];
    pjrt_executable *exe;
    pjrt_program any = {.format = "mlir"};
    PJRT_TRY(ttt__path_join(p->bundle->path, target->files[index], path));
    PJRT_TRY(pjrt_executable_load(p->devices->client, path, any,
                                  &(pjrt_compile_options){.partitions = 1}, &exe));
    return ttt__program_adopt(p->devices, exe, &p->loaded[index]);
}

/* All executables of a target, or none and why. */
static pjrt_status *load_target(programs *p, const ttt_bundle_target *target)
{
    pjrt_status *st = NULL;
    if (target->calls != TTT_KERNEL_NONE && strcmp(target->ttt, TTT_VERSION) != 0)
        return PJRT_FAIL(FAILED_PRECONDITION, call, "they call kernels of ttt %s, and this is %s",
                         target->ttt, TTT_VERSION);
    if ((target->calls & ~ttt_devices_kernels(p->devices)) != 0)
        return PJRT_FAIL(FAILED_PRECONDITION, call, "they call kernels that are not here");
    for (int i = 0; i < p->bundle->about.n_programs && st == NULL; i++)
        st = load_one(p, target, i);
    if (st != NULL)
        drop_loaded(p);
    return st;
}

/* Damage and want of memory are no reasons to build, but to stop. */
static bool is_reason(const pjrt_status *st)
{
    pjrt_code code = pjrt_status_code(st);
    return code != PJRT_CODE_OK && code != PJRT_CODE_DATA_LOSS &&
           code != PJRT_CODE_RESOURCE_EXHAUSTED;
}

/* The target whose executables run here; NULL in `use`, with the reason, when there is none. */
static pjrt_status *choose(programs *p, bool rebuild, ttt_bundle_use *use,
                           const ttt_bundle_target **out)
{
    const ttt_bundle_about *about = &p->bundle->about;
    const char *platform = pjrt_client_platform(p->devices->client);
    *out = NULL;
    snprintf(use->why, sizeof use->why, rebuild ? "it was asked for" : "there are none for %s",
             platform);
    for (int i = 0; i < about->n_targets && !rebuild; i++) {
        const ttt_bundle_target *target = &about->targets[i];
        if (strcmp(target->platform, platform) != 0)
            continue;
        pjrt_status *st = load_target(p, target);
        if (st == NULL) {
            *out = target;
            use->target = target->name;
            use->why[0] = '\0';
            return NULL;
        }
        if (!is_reason(st))
            return st;
        snprintf(use->why, sizeof use->why, "those for %s do not fit: %s", target->name,
                 pjrt_status_text(st));
        pjrt_status_free(st);
    }
    p->built = true;
    return NULL;
}

/* ---- engines -----------------------------------------------------------------------------------
 */

static pjrt_status *config_text(const char *folder, char **text)
{
    char path[PATH_MAX];
    ttt_config config;
    ttt_error error;
    *text = NULL;
    PJRT_TRY(ttt__path_join(folder, "config.json", path));
    if (!ttt_config_read(&config, path, &error))
        return ttt_failed(&error);
    *text = ttt_config_text(&config, &error);
    return *text == NULL ? ttt_failed(&error) : NULL;
}

/* The weights that somebody brings are of this network. */
static pjrt_status *check_model(const ttt_bundle *b, const char *folder)
{
    char *ours = NULL, *theirs = NULL;
    pjrt_status *st = config_text(b->path, &ours);
    if (st == NULL)
        st = config_text(folder, &theirs);
    if (st == NULL && strcmp(ours, theirs) != 0)
        st =
            PJRT_FAIL(FAILED_PRECONDITION, call, "%s has another network than %s", folder, b->path);
    free(ours);
    free(theirs);
    return st;
}

static pjrt_status *find_weights(const ttt_bundle *b, const ttt_bundle_options *options,
                                 const char **folder)
{
    const char *model = options == NULL ? NULL : options->model;
    *folder = b->path;
    if (b->about.has_weights)
        return model == NULL
                   ? NULL
                   : PJRT_FAIL(INVALID_ARGUMENT, call, "%s has weights of its own", b->path);
    if (model == NULL)
        return PJRT_FAIL(FAILED_PRECONDITION, call,
                         "%s has no weights: name the folder of a model that has them", b->path);
    *folder = model;
    return check_model(b, model);
}

static pjrt_status *new_programs(const ttt_bundle *b, const ttt_devices *devices, programs **out)
{
    programs *p = calloc(1, sizeof *p);
    *out = p;
    if (p == NULL)
        return PJRT_NO_MEMORY(call);
    *p = (programs){.bundle = b, .devices = devices};
    p->loaded = calloc((size_t)b->about.n_programs + 1, sizeof(ttt_program *));
    if (p->loaded != NULL)
        return NULL;
    free(p);
    return PJRT_NO_MEMORY(call);
}

pjrt_status *ttt_bundle_engine(ttt_bundle *b, const ttt_devices *devices,
                               const ttt_bundle_options *options, ttt_bundle_use *use,
                               ttt_engine **out)
{
    programs *p;
    const ttt_bundle_target *target;
    const ttt_bundle_about *about = &b->about;
    ttt_engine_options engine = {.batch = about->batch,
                                 .context = about->context,
                                 .span = about->span,
                                 .compute = about->compute,
                                 .weights = about->weights};
    ttt__program_source source = {.program = get, .done = done};
    *out = NULL;
    *use = (ttt_bundle_use){0};
    if (devices->n_devices != 1)
        return PJRT_FAIL(INVALID_ARGUMENT, call, "bundles run on one device, not on %d",
                         devices->n_devices);
    PJRT_TRY(ttt_bundle_verify(b));
    PJRT_TRY(find_weights(b, options, &source.folder));
    PJRT_TRY(new_programs(b, devices, &p));
    pjrt_status *st = choose(p, options != NULL && options->rebuild, use, &target);
    if (st != NULL) {
        done(p);
        return st;
    }
    source.calls = target == NULL ? TTT_KERNEL_NONE : target->calls;
    source.ctx = p;
    return ttt__engine_open(devices, &source, &engine, out);
}
