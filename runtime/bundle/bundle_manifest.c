/* manifest.json of a bundle, both ways. */
#include "runtime/base/ttt_hash.h"
#include "runtime/bundle/bundle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char call[] = "bundle";
static const char format[] = "ttt-bundle";

enum { VERSION = 1, MOST_PROGRAMS = 256, MOST_TARGETS = 256, MOST_ARRAYS = 1 << 20 };

/* ---- names -------------------------------------------------------------------------------------
 */

static const struct {
    const char *name;
    ttt_program_kind kind;
} task_names[] = {
    {"start", TTT_PROGRAM_START}, {"decode", TTT_PROGRAM_DECODE}, {"extend", TTT_PROGRAM_EXTEND},
    {"put", TTT_PROGRAM_PUT},     {"take", TTT_PROGRAM_TAKE},
};

static const struct {
    const char *name;
    ttt_kernel_set call;
} call_names[] = {
    {"ttt_step", TTT_KERNEL_STEP},
    {"ttt_scan", TTT_KERNEL_SCAN},
    {"ttt_scan_backward", TTT_KERNEL_GRADIENT},
    {"ttt_product", TTT_KERNEL_PRODUCT},
};

static const struct {
    const char *name;
    hlo_type type;
} type_names[] = {{"f32", HLO_F32}, {"bf16", HLO_BF16}, {"s8", HLO_S8}};

#define COUNT(array) (sizeof(array) / sizeof *(array))

const char *ttt__bundle_kind_name(ttt_program_kind kind)
{
    for (size_t i = 0; i < COUNT(task_names); i++) {
        if (task_names[i].kind == kind)
            return task_names[i].name;
    }
    return NULL;
}

void ttt__bundle_program_name(const ttt_program_desc *desc, char name[TTT__PROGRAM_NAME])
{
    const char *what = ttt__bundle_kind_name(desc->kind);
    int64_t number = desc->kind == TTT_PROGRAM_EXTEND ? desc->time : desc->batch;
    snprintf(name, TTT__PROGRAM_NAME, "%s-%lld", what == NULL ? "other" : what, (long long)number);
}

static const char *type_name(hlo_type type)
{
    for (size_t i = 0; i < COUNT(type_names); i++) {
        if (type_names[i].type == type)
            return type_names[i].name;
    }
    return "";
}

/* ---- reading: single values --------------------------------------------------------------------
 */

/* The first thing that is wrong is remembered; what is read after it means nothing. */
typedef struct reading {
    ttt_bundle *b;
    const char *wrong;
    bool no_memory;
} reading;

static void wrong(reading *r, const char *what)
{
    if (r->wrong == NULL)
        r->wrong = what;
}

/* Memory that goes with the bundle; NULL when there is none, or something was wrong before. */
static void *keep(reading *r, size_t count, size_t size)
{
    ttt_bundle *b = r->b;
    if (r->wrong != NULL || r->no_memory)
        return NULL;
    void **kept = realloc(b->kept, ((size_t)b->n_kept + 1) * sizeof *kept);
    if (kept != NULL)
        b->kept = kept;
    void *memory = kept == NULL ? NULL : calloc(count + 1, size);
    r->no_memory = memory == NULL;
    if (memory != NULL)
        b->kept[b->n_kept++] = memory;
    return memory;
}

static const char *text(reading *r, const json_t *object, const char *key)
{
    const char *value = json_string_value(json_object_get(object, key));
    if (value == NULL)
        wrong(r, key);
    return value == NULL ? "" : value;
}

static int64_t number(reading *r, const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value) || json_integer_value(value) < 1)
        wrong(r, key);
    return json_integer_value(value);
}

static hlo_type type(reading *r, const json_t *object, const char *key)
{
    const char *name = text(r, object, key);
    for (size_t i = 0; i < COUNT(type_names); i++) {
        if (strcmp(type_names[i].name, name) == 0)
            return type_names[i].type;
    }
    wrong(r, key);
    return HLO_F32;
}

/* The name of a file that the bundle has. */
static const char *file(reading *r, const char *name, const char *key)
{
    if (name == NULL || ttt__manifest_find(&r->b->files, name) < 0)
        wrong(r, key);
    return name;
}

/* A list of at most so many; 0 when it is none. */
static int list(reading *r, const json_t *object, const char *key, size_t most, const json_t **out)
{
    *out = json_object_get(object, key);
    if (json_is_array(*out) && json_array_size(*out) <= most)
        return (int)json_array_size(*out);
    wrong(r, key);
    return 0;
}

/* ---- reading: what is made of them -------------------------------------------------------------
 */

static ttt_bundle_values values(reading *r, const json_t *object, const char *key)
{
    const json_t *from;
    ttt_bundle_values out = {.count = list(r, object, key, MOST_ARRAYS, &from)};
    const char **names = keep(r, (size_t)out.count, sizeof *names);
    if (names == NULL)
        return (ttt_bundle_values){0};
    for (int i = 0; i < out.count; i++) {
        names[i] = json_string_value(json_array_get(from, (size_t)i));
        if (names[i] == NULL)
            wrong(r, key);
    }
    out.list = names;
    return out;
}

static const ttt_bundle_array *arrays(reading *r, const char *key, int *count)
{
    const json_t *from;
    *count = list(r, r->b->root, key, MOST_ARRAYS, &from);
    ttt_bundle_array *out = keep(r, (size_t)*count, sizeof *out);
    for (int i = 0; out != NULL && i < *count; i++) {
        const json_t *item = json_array_get(from, (size_t)i);
        out[i] = (ttt_bundle_array){text(r, item, "name"), text(r, item, "shape")};
    }
    return out;
}

static void read_programs(reading *r)
{
    const json_t *from;
    int count = list(r, r->b->root, "programs", MOST_PROGRAMS, &from);
    ttt_bundle_program *out = keep(r, (size_t)count, sizeof *out);
    for (int i = 0; out != NULL && i < count; i++) {
        const json_t *item = json_array_get(from, (size_t)i);
        out[i] = (ttt_bundle_program){.name = text(r, item, "name"),
                                      .kind = text(r, item, "task"),
                                      .batch = number(r, item, "batch"),
                                      .time = number(r, item, "time"),
                                      .file = file(r, text(r, item, "file"), "file"),
                                      .stablehlo = text(r, item, "stablehlo"),
                                      .takes = values(r, item, "takes"),
                                      .gives = values(r, item, "gives")};
    }
    r->b->about.programs = out;
    r->b->about.n_programs = count;
}

static ttt_kernel_set read_calls(reading *r, const json_t *item)
{
    const json_t *from;
    int count = list(r, item, "kernels", COUNT(call_names), &from);
    ttt_kernel_set calls = TTT_KERNEL_NONE;
    for (int i = 0; i < count; i++) {
        const char *name = json_string_value(json_array_get(from, (size_t)i));
        size_t k = 0;
        while (k < COUNT(call_names) && (name == NULL || strcmp(call_names[k].name, name) != 0))
            k++;
        if (k == COUNT(call_names))
            wrong(r, "kernels");
        else
            calls |= call_names[k].call;
    }
    return calls;
}

static const char *const *read_executables(reading *r, const json_t *item)
{
    const json_t *from;
    int count = list(r, item, "files", MOST_PROGRAMS, &from);
    const char **out = keep(r, (size_t)count, sizeof *out);
    if (count != r->b->about.n_programs)
        wrong(r, "files");
    for (int i = 0; out != NULL && i < count; i++)
        out[i] = file(r, json_string_value(json_array_get(from, (size_t)i)), "files");
    return out;
}

static void read_targets(reading *r)
{
    const json_t *from;
    int count = list(r, r->b->root, "targets", MOST_TARGETS, &from);
    ttt_bundle_target *out = keep(r, (size_t)count, sizeof *out);
    for (int i = 0; out != NULL && i < count; i++) {
        const json_t *item = json_array_get(from, (size_t)i);
        const json_t *stamp = json_object_get(item, "stamp");
        out[i] = (ttt_bundle_target){.name = text(r, item, "name"),
                                     .plugin = text(r, item, "plugin"),
                                     .ttt = text(r, item, "ttt"),
                                     .calls = read_calls(r, item),
                                     .plugin_hash = text(r, stamp, "plugin_hash"),
                                     .api_version = text(r, stamp, "api_version"),
                                     .platform = text(r, stamp, "platform"),
                                     .platform_version = text(r, stamp, "platform_version"),
                                     .device_kind = text(r, stamp, "device_kind"),
                                     .files = read_executables(r, item)};
    }
    r->b->about.targets = out;
    r->b->about.n_targets = count;
}

static void read_files(reading *r)
{
    const ttt__manifest_files *files = &r->b->files;
    ttt_bundle_file *out = keep(r, (size_t)files->count, sizeof *out);
    for (int i = 0; out != NULL && i < files->count; i++) {
        const ttt__digest *digest = &files->list[i].digest;
        out[i] = (ttt_bundle_file){.name = files->list[i].name, .size = digest->size};
        ttt_hash_hex(digest->whole[0], digest->whole[1], out[i].hash);
    }
    r->b->about.files = out;
    r->b->about.n_files = files->count;
}

static void read_about(reading *r)
{
    ttt_bundle *b = r->b;
    const json_t *model = json_object_get(b->root, "model");
    const json_t *engine = json_object_get(b->root, "engine");
    b->about = (ttt_bundle_about){.version = number(r, b->root, "version"),
                                  .ttt = text(r, b->root, "ttt"),
                                  .stablehlo = text(r, b->root, "stablehlo"),
                                  .mixer = text(r, model, "mixer"),
                                  .parameters = number(r, model, "parameters"),
                                  .vocab = number(r, model, "vocab"),
                                  .model = text(r, model, "hash"),
                                  .tokenizer = text(r, b->root, "tokenizer"),
                                  .batch = number(r, engine, "batch"),
                                  .context = number(r, engine, "context"),
                                  .span = number(r, engine, "span"),
                                  .compute = type(r, engine, "compute"),
                                  .weights = type(r, engine, "weights")};
    b->about.has_weights = ttt__manifest_find(&b->files, "model.safetensors") >= 0 ||
                           ttt__manifest_find(&b->files, "model.safetensors.index.json") >= 0;
    if (strcmp(b->about.tokenizer, "bytes") != 0)
        file(r, b->about.tokenizer, "tokenizer");
    file(r, "config.json", "files");
    read_files(r);
    b->about.parameter_list = arrays(r, "parameters", &b->about.n_parameters);
    b->about.state_list = arrays(r, "states", &b->about.n_states);
    read_programs(r);
    read_targets(r);
}

static pjrt_status *read_bundle(ttt_bundle *b, const char *bytes, size_t size)
{
    PJRT_TRY(ttt__manifest_root(bytes, size, format, VERSION, &b->root));
    PJRT_TRY(ttt__manifest_files_parse(json_object_get(b->root, "files"), &b->files));
    reading r = {.b = b};
    read_about(&r);
    if (r.no_memory)
        return PJRT_NO_MEMORY(call);
    if (r.wrong != NULL)
        return PJRT_FAIL(DATA_LOSS, call, "\"%s\" is missing, or not as it should be", r.wrong);
    return NULL;
}

pjrt_status *ttt__bundle_parse(const char *bytes, size_t size, ttt_bundle **out)
{
    *out = NULL;
    ttt_bundle *b = calloc(1, sizeof *b);
    if (b == NULL)
        return PJRT_NO_MEMORY(call);
    pjrt_status *st = read_bundle(b, bytes, size);
    if (st != NULL)
        ttt_bundle_free(b);
    else
        *out = b;
    return st;
}

/* ---- writing -----------------------------------------------------------------------------------
 */

/* Adds to an array or an object, which is dropped when that fails: NULL in, NULL out. */
static json_t *added(json_t *to, const char *key, json_t *value)
{
    int failed =
        key == NULL ? json_array_append_new(to, value) : json_object_set_new(to, key, value);
    if (failed == 0)
        return to;
    json_decref(to);
    return NULL;
}

static json_t *values_json(const char *const *names, int count)
{
    json_t *out = json_array();
    for (int i = 0; i < count; i++)
        out = added(out, NULL, json_string(names[i]));
    return out;
}

static json_t *arrays_json(const ttt_bundle_array *from, int count)
{
    json_t *out = json_array();
    for (int i = 0; i < count; i++)
        out =
            added(out, NULL, json_pack("{s:s, s:s}", "name", from[i].name, "shape", from[i].shape));
    return out;
}

static json_t *program_json(const ttt_bundle_program *p)
{
    json_t *out = json_pack("{s:s, s:s, s:I, s:I, s:s, s:s}", "name", p->name, "task", p->kind,
                            "batch", (json_int_t)p->batch, "time", (json_int_t)p->time, "file",
                            p->file, "stablehlo", p->stablehlo);
    out = added(out, "takes", values_json(p->takes.list, p->takes.count));
    return added(out, "gives", values_json(p->gives.list, p->gives.count));
}

static json_t *calls_json(ttt_kernel_set calls)
{
    json_t *out = json_array();
    for (size_t i = 0; i < COUNT(call_names); i++) {
        if ((calls & call_names[i].call) != 0)
            out = added(out, NULL, json_string(call_names[i].name));
    }
    return out;
}

static json_t *target_json(const ttt_bundle_target *t, int n_programs)
{
    json_t *out = json_pack("{s:s, s:s, s:s, s:{s:s, s:s, s:s, s:s, s:s}}", "name", t->name,
                            "plugin", t->plugin, "ttt", t->ttt, "stamp", "plugin_hash",
                            t->plugin_hash, "api_version", t->api_version, "platform", t->platform,
                            "platform_version", t->platform_version, "device_kind", t->device_kind);
    out = added(out, "kernels", calls_json(t->calls));
    return added(out, "files", values_json(t->files, n_programs));
}

static json_t *bundle_json(const ttt_bundle_about *about, const ttt__manifest_files *files)
{
    json_t *programs = json_array(), *targets = json_array();
    for (int i = 0; i < about->n_programs; i++)
        programs = added(programs, NULL, program_json(&about->programs[i]));
    for (int i = 0; i < about->n_targets; i++)
        targets = added(targets, NULL, target_json(&about->targets[i], about->n_programs));
    json_t *root = json_pack(
        "{s:s, s:i, s:s, s:s, s:{s:s, s:I, s:I, s:s}, s:s, s:{s:I, s:I, s:I, s:s, s:s}}", "format",
        format, "version", VERSION, "ttt", about->ttt, "stablehlo", about->stablehlo, "model",
        "mixer", about->mixer, "parameters", (json_int_t)about->parameters, "vocab",
        (json_int_t)about->vocab, "hash", about->model, "tokenizer", about->tokenizer, "engine",
        "batch", (json_int_t)about->batch, "context", (json_int_t)about->context, "span",
        (json_int_t)about->span, "compute", type_name(about->compute), "weights",
        type_name(about->weights));
    root = added(root, "parameters", arrays_json(about->parameter_list, about->n_parameters));
    root = added(root, "states", arrays_json(about->state_list, about->n_states));
    root = added(root, "programs", programs);
    root = added(root, "targets", targets);
    return added(root, "files", ttt__manifest_files_json(files));
}

pjrt_status *ttt__bundle_text(const ttt_bundle_about *about, const ttt__manifest_files *files,
                              char **out)
{
    return ttt__manifest_text(bundle_json(about, files), out);
}
