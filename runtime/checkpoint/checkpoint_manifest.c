/* manifest.json of a checkpoint. */
#include "runtime/checkpoint/checkpoint_manifest.h"

static const char format[] = "ttt-checkpoint";

enum { VERSION = 1 };

pjrt_status *ttt__manifest_write(const ttt__manifest *manifest, char **text)
{
    json_t *root = json_pack("{s:s, s:i, s:I}", "format", format, "version", VERSION, "step",
                             (json_int_t)manifest->step);
    if (root != NULL &&
        (json_object_set_new(root, "files", ttt__manifest_files_json(&manifest->files)) != 0 ||
         json_object_set_new(root, "training", json_deep_copy(manifest->training)) != 0)) {
        json_decref(root);
        root = NULL;
    }
    return ttt__manifest_text(root, text);
}

static pjrt_status *parse_object(json_t *root, ttt__manifest *out)
{
    const json_t *step = json_object_get(root, "step");
    json_t *training = json_object_get(root, "training");
    if (!json_is_integer(step) || json_integer_value(step) < 0)
        return ttt__manifest_bad("it has no step");
    if (!json_is_object(training))
        return ttt__manifest_bad("it has no training");
    out->step = json_integer_value(step);
    out->training = json_incref(training);
    return ttt__manifest_files_parse(json_object_get(root, "files"), &out->files);
}

pjrt_status *ttt__manifest_parse(const char *text, size_t size, ttt__manifest *out)
{
    json_t *root;
    *out = (ttt__manifest){0};
    PJRT_TRY(ttt__manifest_root(text, size, format, VERSION, &root));
    pjrt_status *st = parse_object(root, out);
    json_decref(root);
    if (st != NULL)
        ttt__manifest_free(out);
    return st;
}

void ttt__manifest_free(ttt__manifest *manifest)
{
    ttt__manifest_files_free(&manifest->files);
    json_decref(manifest->training);
    *manifest = (ttt__manifest){0};
}
