/* A bundle is written: the model's files, its programs, the manifest, and then its name. */
#include "runtime/bundle/bundle_write.h"
#include "runtime/base/ttt_hash.h"
#include "runtime/device/internal.h"
#include "runtime/train/ttt_trainer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char call[] = "export";
enum { MOST_INDEX = 64 << 20 };

/* ---- what stays until the end ------------------------------------------------------------------
 */

static bool keep(ttt__exporting *x, void *memory)
{
    void **kept = realloc(x->kept, ((size_t)x->n_kept + 1) * sizeof *kept);
    if (kept != NULL)
        x->kept = kept;
    if (kept == NULL || memory == NULL) {
        free(memory);
        return false;
    }
    x->kept[x->n_kept++] = memory;
    return true;
}

void *ttt__export_keep(ttt__exporting *x, size_t count, size_t size)
{
    void *memory = calloc(count + 1, size);
    return keep(x, memory) ? memory : NULL;
}

const char *ttt__export_text(ttt__exporting *x, const char *format, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, format);
    int n = vasprintf(&text, format, args);
    va_end(args);
    return keep(x, n < 0 ? NULL : text) ? text : NULL;
}

void ttt__export_say(const ttt__exporting *x, const char *line)
{
    if (x->options->hear != NULL)
        x->options->hear(x->options->ctx, line);
}

/* ---- the model's own files ---------------------------------------------------------------------
 */

static pjrt_status *copy(const ttt__exporting *x, const char *folder, const char *name)
{
    char from[PATH_MAX], to[PATH_MAX];
    PJRT_TRY(ttt__path_join(folder, name, from));
    PJRT_TRY(ttt__path_join(x->folder, name, to));
    return ttt__file_copy(from, to);
}

/* Each shard that the index names, once. */
static pjrt_status *copy_shards(const ttt__exporting *x, const char *index)
{
    char *text;
    size_t size;
    const char *tensor;
    json_t *shard, *seen = json_object();
    pjrt_status *st = seen == NULL ? PJRT_NO_MEMORY(call) : NULL;
    text = NULL;
    if (st == NULL)
        st = ttt__file_read(index, MOST_INDEX, &text, &size);
    json_t *root = st == NULL ? json_loadb(text, size, 0, NULL) : NULL;
    json_object_foreach(json_object_get(root, "weight_map"), tensor, shard)
    {
        const char *name = json_string_value(shard);
        if (st != NULL || name == NULL || json_object_get(seen, name) != NULL)
            continue;
        st = json_object_set_new(seen, name, json_true()) != 0 ? PJRT_NO_MEMORY(call)
             : !ttt__plain_name(name)                          ? ttt__manifest_bad(name)
                                                               : copy(x, x->model, name);
    }
    json_decref(root);
    json_decref(seen);
    free(text);
    return st;
}

/* As the model has them: what they are packed into is made when they are loaded. */
static pjrt_status *copy_weights(const ttt__exporting *x)
{
    char path[PATH_MAX];
    PJRT_TRY(ttt__path_join(x->model, "model.safetensors", path));
    if (access(path, F_OK) == 0)
        return copy(x, x->model, "model.safetensors");
    PJRT_TRY(ttt__path_join(x->model, "model.safetensors.index.json", path));
    PJRT_TRY(copy_shards(x, path));
    return copy(x, x->model, "model.safetensors.index.json");
}

static pjrt_status *copy_tokenizer(ttt__exporting *x)
{
    char found[PATH_MAX], folder[PATH_MAX];
    ttt_tokenizer *tokenizer;
    const ttt_export_options *o = x->options;
    int64_t vocab = x->config.vocab_size;
    PJRT_TRY(ttt_model_tokenizer(o->model, o->tokenizer, vocab, &tokenizer)); /* it can be read */
    ttt_tokenizer_free(tokenizer);
    PJRT_TRY(ttt__model_tokenizer_name(o->model, o->tokenizer, vocab, found));
    const char *slash = strrchr(found, '/'), *name = slash == NULL ? found : slash + 1;
    x->about.tokenizer = ttt__export_text(x, "%s", name);
    if (x->about.tokenizer == NULL)
        return PJRT_NO_MEMORY(call);
    if (strcmp(found, "bytes") == 0)
        return NULL;
    if (!ttt__plain_name(name) || strcmp(name, "bytes") == 0)
        return PJRT_FAIL(INVALID_ARGUMENT, call, "%s: a tokenizer cannot be called so in a bundle",
                         found);
    PJRT_TRY(ttt__folder_of(found, folder));
    return copy(x, folder, name);
}

static pjrt_status *read_model(ttt__exporting *x)
{
    char path[PATH_MAX];
    ttt_error error;
    uint64_t hash[2];
    PJRT_TRY(ttt_model_folder(x->options->model, &x->model));
    PJRT_TRY(ttt__path_join(x->model, "config.json", path));
    if (!ttt_config_read(&x->config, path, &error))
        return ttt_failed(&error);
    PJRT_TRY(ttt__model_hash(x->model, hash));
    char hex[TTT_HASH_HEX];
    x->about.model = ttt__export_text(x, "%s", ttt_hash_hex(hash[0], hash[1], hex));
    return x->about.model == NULL ? PJRT_NO_MEMORY(call) : NULL;
}

static void describe(ttt__exporting *x)
{
    x->about.ttt = TTT_VERSION;
    x->about.mixer = ttt_mixer_name(x->config.mixer);
    x->about.vocab = x->config.vocab_size;
    x->about.batch = x->engine.batch;
    x->about.context = x->engine.context;
    x->about.span = x->engine.span;
    x->about.compute = x->engine.compute;
    x->about.weights = x->engine.weights;
}

/* ---- the folder --------------------------------------------------------------------------------
 */

static pjrt_status *write_manifest(const ttt__exporting *x)
{
    char path[PATH_MAX], *text = NULL;
    ttt__names names;
    ttt__manifest_files files = {0};
    PJRT_TRY(ttt__path_join(x->folder, "manifest.json", path));
    PJRT_TRY(ttt__folder_list(x->folder, &names));
    pjrt_status *st = ttt__manifest_digest(x->folder, &names, &files);
    if (st == NULL)
        st = ttt__bundle_text(&x->about, &files, &text);
    if (st == NULL)
        st = ttt__file_make(path, text, strlen(text));
    free(text);
    ttt__manifest_files_free(&files);
    ttt__names_free(&names);
    return st;
}

static pjrt_status *write_folder(ttt__exporting *x)
{
    PJRT_TRY(ttt__tree_remove(x->folder)); /* of one that was killed */
    PJRT_TRY(ttt__folder_make(x->folder));
    ttt__export_say(x, "copying the model");
    PJRT_TRY(copy(x, x->model, "config.json"));
    PJRT_TRY(copy_tokenizer(x));
    if (!x->options->no_weights)
        PJRT_TRY(copy_weights(x));
    describe(x);
    PJRT_TRY(ttt__export_programs(x));
    PJRT_TRY(ttt__export_targets(x));
    PJRT_TRY(write_manifest(x));
    return ttt__folder_sync(x->folder);
}

/* From here on it is a bundle. */
static pjrt_status *publish(const ttt__exporting *x, const char *path)
{
    char above[PATH_MAX];
    PJRT_TRY(ttt__folder_of(path, above));
    if (TEMP_FAILURE_RETRY(rename(x->folder, path)) != 0)
        return ttt__io_failed(path, "give it its name");
    pjrt_status *st = ttt__folder_sync(above);
    if (st != NULL) /* who knows whether it will be there: then it is not */
        pjrt_status_free(ttt__tree_remove(path));
    return st;
}

static pjrt_status *check_path(const char *path)
{
    struct stat info;
    if (lstat(path, &info) == 0)
        return PJRT_FAIL(ALREADY_EXISTS, call,
                         "%s is already there: choose another name, or "
                         "remove it",
                         path);
    return errno == ENOENT ? NULL : ttt__io_failed(path, "look for it");
}

static pjrt_status *export_to(ttt__exporting *x, const char *path)
{
    PJRT_TRY(check_path(path));
    if (snprintf(x->folder, sizeof x->folder, "%s.writing", path) >= (int)sizeof x->folder)
        return PJRT_FAIL(INVALID_ARGUMENT, call, "%.100s…: the path is too long", path);
    PJRT_TRY(ttt__engine_defaults(&x->options->engine, &x->engine));
    PJRT_TRY(read_model(x));
    pjrt_status *st = write_folder(x);
    if (st == NULL)
        st = publish(x, path);
    if (st != NULL)
        pjrt_status_free(ttt__tree_remove(x->folder));
    return st;
}

pjrt_status *ttt_bundle_write(const char *path, const ttt_export_options *options)
{
    ttt__exporting *x = calloc(1, sizeof *x);
    char *plain = strdup(path); /* without slashes at its end */
    pjrt_status *st = x == NULL || plain == NULL ? PJRT_NO_MEMORY(call) : NULL;
    if (st == NULL) {
        for (size_t n = strlen(plain); n > 1 && plain[n - 1] == '/'; n--)
            plain[n - 1] = '\0';
        x->options = options;
        st = export_to(x, plain);
        for (int i = 0; i < x->n_kept; i++)
            free(x->kept[i]);
        free(x->kept);
        free(x->model);
    }
    free(plain);
    free(x);
    return st;
}
