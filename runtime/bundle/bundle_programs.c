/* The programs of a bundle: as StableHLO for anyone, and compiled for its targets. */
#include "runtime/bundle/bundle_write.h"
#include "runtime/device/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char call[] = "export";
static const ttt_mesh one_device;

/* ---- which programs ----------------------------------------------------------------------------
 */

static void add_task(ttt__exporting *x, ttt_program_kind kind, int64_t batch, int64_t time)
{
    x->tasks[x->n_tasks++] = (ttt_program_desc){.kind = kind,
                                                .batch = batch,
                                                .time = time,
                                                .context = x->engine.context,
                                                .compute = x->engine.compute};
}

/* All that an engine may ask for. */
static void list_tasks(ttt__exporting *x)
{
    int64_t sizes[TTT__SPANS], mini, batch = x->engine.batch;
    int spans = ttt__engine_spans(&x->config, x->engine.context, x->engine.span, sizes, &mini);
    add_task(x, TTT_PROGRAM_START, 1, 1);
    add_task(x, TTT_PROGRAM_DECODE, 1, 1);
    for (int i = 0; i < spans; i++)
        add_task(x, TTT_PROGRAM_EXTEND, 1, sizes[i]);
    if (batch == 1)
        return;
    add_task(x, TTT_PROGRAM_DECODE, batch, 1);
    add_task(x, TTT_PROGRAM_PUT, batch, 1);
    add_task(x, TTT_PROGRAM_TAKE, batch, 1);
}

static pjrt_status *new_params(const ttt__exporting *x, ttt_kernel_set calls, ttt_params **out)
{
    ttt_error error;
    *out = ttt__engine_packs(calls, x->engine.weights)
               ? ttt_params_packed(&x->config, x->engine.weights, &error)
               : ttt_params_new(&x->config, TTT_SEPARATE, &error);
    return *out == NULL ? ttt_failed(&error) : NULL;
}

/* ---- what the manifest says of them ------------------------------------------------------------
 */

static const char *shape_text(ttt__exporting *x, const hlo_shape *shape)
{
    char text[HLO_SHAPE_TEXT];
    return ttt__export_text(x, "%s", hlo_shape_text(shape, text));
}

static pjrt_status *list_parameters(ttt__exporting *x, const ttt_params *params)
{
    ttt_bundle_array *list = ttt__export_keep(x, (size_t)params->count, sizeof *list);
    if (list == NULL)
        return PJRT_NO_MEMORY(call);
    for (int i = 0; i < params->count; i++) {
        list[i].name = ttt__export_text(x, "%s", params->list[i].name);
        list[i].shape = shape_text(x, &params->list[i].shape);
        if (list[i].name == NULL || list[i].shape == NULL)
            return PJRT_NO_MEMORY(call);
    }
    x->about.parameter_list = list;
    x->about.n_parameters = params->count;
    x->about.parameters = params->elements;
    return NULL;
}

static pjrt_status *list_states(ttt__exporting *x)
{
    ttt_error error;
    ttt_state_table *states =
        ttt_state_table_new(&x->config, TTT_SEPARATE, 1, x->engine.context, HLO_F32, &error);
    if (states == NULL)
        return ttt_failed(&error);
    ttt_bundle_array *list = ttt__export_keep(x, (size_t)states->count, sizeof *list);
    bool ok = list != NULL;
    for (int i = 0; i < states->count && ok; i++) {
        list[i].name = ttt__export_text(x, "%s", states->list[i].name);
        list[i].shape = shape_text(x, &states->list[i].shape);
        ok = list[i].name != NULL && list[i].shape != NULL;
    }
    x->about.state_list = list;
    x->about.n_states = states->count;
    ttt_state_table_free(states);
    return ok ? NULL : PJRT_NO_MEMORY(call);
}

/* Lists of at most three names; a name that is NULL is left out. */
static bool set_values(ttt__exporting *x, ttt_bundle_values *out, const char *a, const char *b,
                       const char *c)
{
    const char *given[] = {a, b, c}, **list = ttt__export_keep(x, 3, sizeof *list);
    if (list == NULL)
        return false;
    *out = (ttt_bundle_values){.list = list};
    for (int i = 0; i < 3; i++) {
        if (given[i] != NULL)
            list[out->count++] = given[i];
    }
    return true;
}

static bool set_signature(ttt__exporting *x, const ttt_program_desc *desc, ttt_bundle_program *p)
{
    static const char slot[] = "slot i32[]";
    hlo_shape rows = HLO_SHAPE(HLO_S32, desc->batch, desc->time);
    if (desc->kind == TTT_PROGRAM_START)
        return set_values(x, &p->takes, "weights", NULL, NULL) &&
               set_values(x, &p->gives, "states", NULL, NULL);
    if (desc->kind == TTT_PROGRAM_PUT)
        return set_values(x, &p->takes, "states", "one", slot) &&
               set_values(x, &p->gives, "states", NULL, NULL);
    if (desc->kind == TTT_PROGRAM_TAKE)
        return set_values(x, &p->takes, "states", slot, NULL) &&
               set_values(x, &p->gives, "one", NULL, NULL);
    if (desc->kind == TTT_PROGRAM_DECODE)
        rows.rank = 1;
    const char *shape = shape_text(x, &rows);
    const char *tokens = shape == NULL ? NULL : ttt__export_text(x, "tokens %s", shape);
    const char *logits = ttt__export_text(x, "logits f32[%lld,%lld]", (long long)desc->batch,
                                          (long long)x->config.vocab_size);
    return tokens != NULL && logits != NULL &&
           set_values(x, &p->takes, "weights", "states", tokens) &&
           set_values(x, &p->gives, logits, "states", NULL);
}

/* "1.3.0": what a portable artifact calls its producer stands behind magic and format version. */
static const char *stablehlo_version(ttt__exporting *x, const char *bytes, size_t size)
{
    static const char before[] = "StableHLO_v";
    const char *start = size < 64 ? NULL : memmem(bytes, 64, before, sizeof before - 1);
    const char *version = start == NULL ? "" : start + sizeof before - 1;
    return ttt__export_text(x, "%.*s", (int)strspn(version, "0123456789."), version);
}

/* ---- StableHLO ---------------------------------------------------------------------------------
 */

static pjrt_status *write_portable(ttt__exporting *x, const ttt_program_desc *desc,
                                   const ttt_params *params, ttt_bundle_program *p)
{
    char path[PATH_MAX];
    ttt_graph graph;
    size_t size;
    PJRT_TRY(ttt__path_join(x->folder, p->file, path));
    PJRT_TRY(ttt_build_graph(desc, &x->config, params, &one_device, &graph));
    char *bytes = hlo_write_portable(graph.g, NULL, &size);
    pjrt_status *st = bytes == NULL ? ttt_graph_failed(graph.g) : ttt__file_make(path, bytes, size);
    if (st == NULL) {
        p->stablehlo = stablehlo_version(x, bytes, size);
        st = p->stablehlo == NULL ? PJRT_NO_MEMORY(call) : NULL;
    }
    free(bytes);
    ttt_graph_free(&graph);
    return st;
}

static pjrt_status *write_program(ttt__exporting *x, int index, const ttt_params *params)
{
    const ttt_program_desc *desc = &x->tasks[index];
    ttt_bundle_program *p = &x->programs[index];
    char name[TTT__PROGRAM_NAME];
    ttt__bundle_program_name(desc, name);
    *p = (ttt_bundle_program){.name = ttt__export_text(x, "%s", name),
                              .kind = ttt__bundle_kind_name(desc->kind),
                              .batch = desc->batch,
                              .time = desc->time,
                              .file = ttt__export_text(x, "%s.mlirbc", name)};
    if (p->name == NULL || p->file == NULL || !set_signature(x, desc, p))
        return PJRT_NO_MEMORY(call);
    PJRT_TRY(write_portable(x, desc, params, p));
    if (x->about.stablehlo == NULL || strverscmp(x->about.stablehlo, p->stablehlo) < 0)
        x->about.stablehlo = p->stablehlo;
    return NULL;
}

pjrt_status *ttt__export_programs(ttt__exporting *x)
{
    ttt_params *params;
    ttt__export_say(x, "writing StableHLO");
    list_tasks(x);
    PJRT_TRY(new_params(x, TTT_KERNEL_NONE, &params));
    pjrt_status *st = list_parameters(x, params);
    if (st == NULL)
        st = list_states(x);
    for (int i = 0; i < x->n_tasks && st == NULL; i++)
        st = write_program(x, i, params);
    ttt_params_free(params);
    x->about.programs = x->programs;
    x->about.n_programs = x->n_tasks;
    return st;
}

/* ---- executables -------------------------------------------------------------------------------
 */

/* What compiles for a target: a place here, or a description of one elsewhere. */
typedef struct compiler {
    const pjrt_target *target;
    pjrt_topology *topology;
    ttt_devices *devices;
    ttt_kernel_set calls;
    ttt_params *params;
} compiler;

static pjrt_status *open_compiler(const ttt__exporting *x, const char *name, compiler *c)
{
    pjrt_plugin *plugin;
    PJRT_TRY(pjrt_target_open(name, &c->target, &c->topology));
    if (c->topology == NULL) {
        const char *cpu = x->options->cpu_plugin;
        PJRT_TRY(ttt_devices_open(cpu == NULL ? c->target->plugin : cpu, NULL, &c->devices));
        const char *platform = pjrt_client_platform(c->devices->client);
        if (strcmp(platform, c->target->plugin) != 0)
            return PJRT_FAIL(INVALID_ARGUMENT, call, "%s is the plugin of %s, not of the target %s",
                             cpu, platform, name);
        c->calls = ttt_devices_kernels(c->devices);
    } else {
        PJRT_TRY(pjrt_plugin_load(c->target->plugin, &plugin));
        PJRT_TRY(ttt_kernels_register(plugin, c->target->plugin, &c->calls));
    }
    c->calls = x->engine.no_kernels ? TTT_KERNEL_NONE : c->calls & ~TTT_KERNEL_GRADIENT;
    return new_params(x, c->calls, &c->params);
}

static void close_compiler(compiler *c)
{
    ttt_params_free(c->params);
    ttt_devices_free(c->devices);
    pjrt_topology_free(c->topology);
}

static pjrt_status *compile(const ttt__exporting *x, const compiler *c, int index, const char *path)
{
    ttt_graph graph;
    char *text;
    pjrt_executable *exe = NULL;
    pjrt_compile_options how = {.partitions = 1};
    ttt_program_desc desc = x->tasks[index];
    desc.calls = c->calls;
    ttt_program_desc_fit(&desc, c->target->plugin);
    PJRT_TRY(ttt_build_graph(&desc, &x->config, c->params, &one_device, &graph));
    pjrt_status *st = ttt_graph_text(&graph, &text);
    ttt_graph_free(&graph);
    if (st != NULL)
        return st;
    pjrt_program code = pjrt_program_text(text);
    st = c->devices != NULL ? pjrt_compile(c->devices->client, code, &how, &exe)
                            : pjrt_compile_ahead(c->topology, code, &how, &exe);
    if (st == NULL)
        st = pjrt_executable_save(exe, path);
    pjrt_executable_free(exe);
    free(text);
    return st;
}

/* The stamp's fields into the target's. */
typedef struct stamping {
    ttt__exporting *x;
    ttt_bundle_target *target;
    bool no_memory;
} stamping;

static void take_field(const char *field, const char *value, void *user)
{
    stamping *s = user;
    const struct {
        const char *name;
        const char **to;
    } fields[] = {
        {"plugin_hash", &s->target->plugin_hash},
        {"api_version", &s->target->api_version},
        {"platform", &s->target->platform},
        {"platform_version", &s->target->platform_version},
        {"device_kind", &s->target->device_kind},
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (strcmp(fields[i].name, field) != 0)
            continue;
        *fields[i].to = ttt__export_text(s->x, "%s", value);
        s->no_memory |= *fields[i].to == NULL;
    }
}

static pjrt_status *read_stamp(ttt__exporting *x, ttt_bundle_target *t, const char *path)
{
    stamping s = {.x = x, .target = t};
    t->plugin_hash = t->api_version = t->platform = t->platform_version = t->device_kind = "";
    PJRT_TRY(pjrt_stamp_read(path, take_field, &s));
    return s.no_memory ? PJRT_NO_MEMORY(call) : NULL;
}

/* "tpu_v5e_2x2.decode-1.exe" */
static const char *file_name(ttt__exporting *x, const char *target, int index)
{
    char *name = (char *)ttt__export_text(x, "%s.%s.exe", target, x->programs[index].name);
    for (char *at = name; at != NULL && *at != '\0'; at++) {
        if (*at == ':' || *at == '/')
            *at = '_';
    }
    return name;
}

static pjrt_status *compile_all(ttt__exporting *x, const compiler *c, ttt_bundle_target *t)
{
    char path[PATH_MAX], line[128];
    const char **files = ttt__export_keep(x, (size_t)x->n_tasks, sizeof *files);
    t->files = files;
    for (int i = 0; i < x->n_tasks; i++) {
        if (files == NULL || (files[i] = file_name(x, t->name, i)) == NULL)
            return PJRT_NO_MEMORY(call);
        snprintf(line, sizeof line, "compiling %.40s for %.40s", x->programs[i].name, t->name);
        ttt__export_say(x, line);
        PJRT_TRY(ttt__path_join(x->folder, files[i], path));
        PJRT_TRY(compile(x, c, i, path));
    }
    return read_stamp(x, t, path);
}

static pjrt_status *export_target(ttt__exporting *x, const char *name, ttt_bundle_target *t)
{
    compiler c = {0};
    pjrt_status *st = open_compiler(x, name, &c);
    if (st == NULL) {
        *t = (ttt_bundle_target){
            .name = name, .plugin = c.target->plugin, .ttt = TTT_VERSION, .calls = c.calls};
        st = compile_all(x, &c, t);
    }
    close_compiler(&c);
    return st;
}

pjrt_status *ttt__export_targets(ttt__exporting *x)
{
    const ttt_export_options *o = x->options;
    x->targets = ttt__export_keep(x, (size_t)o->n_targets, sizeof *x->targets);
    if (x->targets == NULL)
        return PJRT_NO_MEMORY(call);
    for (int i = 0; i < o->n_targets; i++) {
        for (int k = 0; k < i; k++) {
            if (strcmp(o->targets[i], o->targets[k]) == 0)
                return PJRT_FAIL(INVALID_ARGUMENT, call, "the target %s is named twice",
                                 o->targets[i]);
        }
        PJRT_TRY(export_target(x, o->targets[i], &x->targets[i]));
    }
    x->about.targets = x->targets;
    x->about.n_targets = o->n_targets;
    return NULL;
}
