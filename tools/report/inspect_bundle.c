/* Bundles: everything that a manifest says. */
#include "tools/report/inspect.h"

#include "runtime/bundle/ttt_bundle.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

static json_t *joined(const ttt_bundle_values *values)
{
    json_t *list = json_array();
    for (int i = 0; i < values->count; i++)
        json_array_append_new(list, json_string(values->list[i]));
    return list;
}

static json_t *files_json(const ttt_bundle_about *b)
{
    json_t *list = json_array();
    for (int i = 0; i < b->n_files; i++)
        json_array_append_new(list, json_pack("{s:s, s:I, s:s}", "name", b->files[i].name, "bytes",
                                              (json_int_t)b->files[i].size, "xxh3_128",
                                              b->files[i].hash));
    return list;
}

static json_t *programs_json(const ttt_bundle_about *b)
{
    json_t *list = json_array();
    for (int i = 0; i < b->n_programs; i++) {
        const ttt_bundle_program *p = &b->programs[i];
        json_array_append_new(list, json_pack("{s:s, s:s, s:I, s:I, s:s, s:s, s:o, s:o}", "name",
                                              p->name, "task", p->kind, "batch",
                                              (json_int_t)p->batch, "time", (json_int_t)p->time,
                                              "file", p->file, "stablehlo", p->stablehlo, "takes",
                                              joined(&p->takes), "gives", joined(&p->gives)));
    }
    return list;
}

static json_t *targets_json(const ttt_bundle_about *b)
{
    json_t *list = json_array();
    for (int i = 0; i < b->n_targets; i++) {
        const ttt_bundle_target *t = &b->targets[i];
        json_array_append_new(
            list, json_pack("{s:s, s:s, s:s, s:b, s:s, s:s, s:s, s:s, s:s}", "name", t->name,
                            "plugin", t->plugin, "ttt", t->ttt, "kernels",
                            (int)(t->calls != TTT_KERNEL_NONE), "platform", t->platform,
                            "platform_version", t->platform_version, "device_kind", t->device_kind,
                            "api_version", t->api_version, "plugin_hash", t->plugin_hash));
    }
    return list;
}

static json_t *arrays_json(const ttt_bundle_array *arrays, int count)
{
    json_t *list = json_array();
    for (int i = 0; i < count; i++)
        json_array_append_new(
            list, json_pack("{s:s, s:s}", "name", arrays[i].name, "shape", arrays[i].shape));
    return list;
}

static void describe(const ttt_bundle_about *b, json_t *about)
{
    double bytes = 0;
    for (int i = 0; i < b->n_files; i++)
        bytes += (double)b->files[i].size;
    json_t *more = json_pack("{s:I, s:s, s:s, s:I, s:s, s:s, s:b, s:s, s:I, s:I, s:I, s:s, s:s}",
                             "format_version", (json_int_t)b->version, "ttt", b->ttt, "stablehlo",
                             b->stablehlo, "bytes", (json_int_t)bytes, "mixer", b->mixer,
                             "model_xxh3_128", b->model, "has_weights", (int)b->has_weights,
                             "tokenizer", b->tokenizer, "batch", (json_int_t)b->batch, "context",
                             (json_int_t)b->context, "span", (json_int_t)b->span, "compute",
                             hlo_type_name(b->compute), "weights", hlo_type_name(b->weights));
    json_object_update(about, more);
    json_decref(more);
    json_object_set_new(about, "files", files_json(b));
    json_object_set_new(about, "programs", programs_json(b));
    json_object_set_new(about, "targets", targets_json(b));
    json_object_set_new(about, "states", arrays_json(b->state_list, b->n_states));
    json_object_set_new(about, "arguments", arrays_json(b->parameter_list, b->n_parameters));
}

pjrt_status *inspect_bundle(const char *path, bool verify, json_t *about)
{
    ttt_bundle *bundle;
    char config[PATH_MAX];
    PJRT_TRY(ttt_bundle_open(path, &bundle));
    describe(ttt_bundle_info(bundle), about);
    json_object_set_new(about, "verified", json_boolean(verify));
    pjrt_status *st = verify ? ttt_bundle_verify(bundle) : NULL;
    ttt_bundle_free(bundle);
    if (st == NULL && snprintf(config, sizeof config, "%s/config.json", path) >= (int)sizeof config)
        st = PJRT_FAIL(INVALID_ARGUMENT, "ttt", "the name of the folder is too long");
    return st != NULL ? st : inspect_network(config, about);
}
