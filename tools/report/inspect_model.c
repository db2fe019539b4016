/* Models, checkpoints, runs, tensors, states and prepared data. */
#include "tools/report/inspect.h"

#include "model/files/ttt_model_files.h"
#include "runtime/base/ttt_hash.h"
#include "runtime/data/ttt_data.h"
#include "runtime/generate/ttt_generator.h"
#include "runtime/train/ttt_trainer.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

static pjrt_status *join(const char *folder, const char *name, char path[PATH_MAX])
{
    if (snprintf(path, PATH_MAX, "%s/%s", folder, name) >= PATH_MAX)
        return PJRT_FAIL(INVALID_ARGUMENT, "ttt", "the name of the folder is too long");
    return NULL;
}

/* ---- the network ---- */

static int64_t elements(const hlo_shape *shape)
{
    int64_t n = 1;
    for (int i = 0; i < shape->rank; i++)
        n *= shape->dims[i];
    return n;
}

/* "seq_modeling_block" of "model.layers.*.seq_modeling_block.q_proj.weight", "embed_tokens" of
 * "model.embed_tokens.weight"; `*rest` is what follows. */
static size_t block_of(const char *name, const char **start, const char **rest)
{
    static const char layers[] = "model.layers.*.", model[] = "model.";
    if (strncmp(name, layers, strlen(layers)) == 0)
        name += strlen(layers);
    else if (strncmp(name, model, strlen(model)) == 0)
        name += strlen(model);
    size_t length = strcspn(name, ".");
    *start = name;
    *rest = name[length] == '.' ? name + length + 1 : name;
    return length;
}

static json_t *open_block(json_t *blocks, const ttt_param *param)
{
    const char *name, *rest;
    size_t length = block_of(param->name, &name, &rest);
    json_t *last = json_array_get(blocks, json_array_size(blocks) - 1);
    const char *before = json_string_value(json_object_get(last, "block"));
    if (before != NULL && strlen(before) == length && memcmp(before, name, length) == 0)
        return last;
    json_t *block = json_pack("{s:s%, s:I, s:I, s:[]}", "block", name, length, "times",
                              (json_int_t)(param->layers == 0 ? 1 : param->layers), "parameters",
                              (json_int_t)0, "tensors");
    json_array_append_new(blocks, block);
    return block;
}

static void add_to_block(json_t *blocks, const ttt_param *param)
{
    const char *name, *rest;
    char text[HLO_SHAPE_TEXT];
    hlo_shape shape = param->shape; /* of one layer */
    if (param->layers > 0) {
        shape.rank--;
        memmove(shape.dims, shape.dims + 1, (size_t)shape.rank * sizeof *shape.dims);
    }
    block_of(param->name, &name, &rest);
    json_t *block = open_block(blocks, param);
    json_int_t sum = json_integer_value(json_object_get(block, "parameters"));
    json_object_set_new(block, "parameters", json_integer(sum + elements(&param->shape)));
    json_array_append_new(
        json_object_get(block, "tensors"),
        json_pack("{s:s, s:s}", "name", rest, "shape", hlo_shape_text(&shape, text)));
}

static json_t *config_json(const ttt_config *c)
{
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:b, s:I}", "mixer", ttt_mixer_name(c->mixer),
                     "hidden_size", (json_int_t)c->hidden_size, "layers", (json_int_t)c->n_layers,
                     "heads", (json_int_t)c->n_heads, "intermediate_size",
                     (json_int_t)c->intermediate_size, "vocabulary", (json_int_t)c->vocab_size,
                     "tied_embeddings", (int)c->tie_embeddings, "mini_batch_size",
                     (json_int_t)c->mini_batch_size);
}

pjrt_status *inspect_network(const char *path, json_t *about)
{
    ttt_config config;
    ttt_error error;
    if (!ttt_config_read(&config, path, &error))
        return ttt_failed(&error);
    ttt_params *params = ttt_params_new(&config, TTT_STACKED, &error);
    if (params == NULL)
        return ttt_failed(&error);
    json_t *blocks = json_array();
    for (int i = 0; i < params->count; i++)
        add_to_block(blocks, &params->list[i]);
    json_object_set_new(about, "network", config_json(&config));
    json_object_set_new(about, "parameters", json_integer(params->elements));
    json_object_set_new(about, "blocks", blocks);
    ttt_params_free(params);
    return NULL;
}

/* ---- tensors ---- */

static json_t *tensor_list(const ttt_tensors *tensors, double *bytes, int64_t *count)
{
    json_t *list = json_array();
    for (int i = 0; i < ttt_tensors_count(tensors); i++) {
        const ttt_tensor *t = ttt_tensors_get(tensors, i);
        char text[HLO_SHAPE_TEXT];
        *bytes += (double)t->size;
        *count += elements(&t->shape);
        json_array_append_new(list, json_pack("{s:s, s:s, s:I}", "name", t->name, "shape",
                                              hlo_shape_text(&t->shape, text), "bytes",
                                              (json_int_t)t->size));
    }
    return list;
}

pjrt_status *inspect_tensors(const char *path, json_t *about)
{
    ttt_error error;
    ttt_tensors *tensors = ttt_tensors_open(path, &error);
    double bytes = 0;
    int64_t count = 0;
    if (tensors == NULL)
        return ttt_failed(&error);
    json_t *list = tensor_list(tensors, &bytes, &count);
    json_object_set_new(about, "tensor_count", json_integer(ttt_tensors_count(tensors)));
    json_object_set_new(about, "tensor_elements", json_integer(count));
    json_object_set_new(about, "tensor_bytes", json_integer((json_int_t)bytes));
    json_object_set_new(about, "tensors", list);
    ttt_tensors_free(tensors);
    return NULL;
}

/* Whether the tensors are those that the configuration asks for. */
static pjrt_status *compare_tensors(const char *folder, json_t *about)
{
    char path[PATH_MAX];
    ttt_config config;
    ttt_error error;
    PJRT_TRY(join(folder, "config.json", path));
    if (!ttt_config_read(&config, path, &error))
        return ttt_failed(&error);
    ttt_params *params = ttt_params_new(&config, TTT_STACKED, &error);
    ttt_tensors *tensors = params == NULL ? NULL : ttt_tensors_open(folder, &error);
    bool same = tensors != NULL && ttt_params_match(params, tensors, &error);
    json_object_set_new(about, "tensors_match_network",
                        same ? json_true() : json_string(error.message));
    ttt_tensors_free(tensors);
    ttt_params_free(params);
    return NULL;
}

/* ---- files that a manifest speaks of ---- */

static pjrt_status *hash_file(const char *path, char text[33])
{
    FILE *file = fopen(path, "rb");
    XXH3_state_t *state = XXH3_createState();
    char *block = malloc(1 << 20);
    pjrt_status *st = NULL;
    if (file == NULL)
        st = PJRT_FAIL(DATA_LOSS, "ttt", "cannot open %s: %s", path, strerror(errno));
    else if (state == NULL || block == NULL)
        st = PJRT_NO_MEMORY("ttt");
    if (st == NULL) {
        size_t size;
        XXH3_128bits_reset(state);
        while ((size = fread(block, 1, 1 << 20, file)) > 0)
            XXH3_128bits_update(state, block, size);
        XXH128_hash_t hash = XXH3_128bits_digest(state);
        ttt_hash_hex(hash.high64, hash.low64, text);
        if (ferror(file))
            st = PJRT_FAIL(DATA_LOSS, "ttt", "cannot read %s: %s", path, strerror(errno));
    }
    if (file != NULL)
        fclose(file);
    XXH3_freeState(state);
    free(block);
    return st;
}

pjrt_status *inspect_verify_files(const char *folder, const json_t *files)
{
    size_t i;
    const json_t *file;
    json_array_foreach(files, i, file)
    {
        char path[PATH_MAX], hash[33] = "";
        const char *name = json_string_value(json_object_get(file, "name"));
        const char *recorded = json_string_value(json_object_get(file, "xxh3_128"));
        if (name == NULL || recorded == NULL)
            continue;
        PJRT_TRY(join(folder, name, path));
        PJRT_TRY(hash_file(path, hash));
        if (strcmp(hash, recorded) != 0)
            return PJRT_FAIL(DATA_LOSS, "ttt", "%s is damaged: its hash is %s, not %s as recorded",
                             path, hash, recorded);
    }
    return NULL;
}

/* manifest.json of a checkpoint, as docs/formats.md has it. */
static pjrt_status *inspect_manifest(const char *folder, bool verify, json_t *about)
{
    char path[PATH_MAX];
    const char *name;
    json_error_t error;
    json_t *file, *list = json_array();
    PJRT_TRY(join(folder, "manifest.json", path));
    json_t *manifest = json_load_file(path, 0, &error);
    if (manifest == NULL || !json_is_object(json_object_get(manifest, "files"))) {
        json_decref(manifest);
        json_decref(list);
        return PJRT_FAIL(DATA_LOSS, "ttt", "%s is no manifest of a checkpoint", path);
    }
    json_object_foreach(json_object_get(manifest, "files"), name, file)
    {
        json_t *row = json_object();
        json_object_set_new(row, "name", json_string(name));
        json_object_set(row, "bytes", json_object_get(file, "size"));
        json_object_set(row, "xxh3_128", json_object_get(file, "xxh3_128"));
        json_array_append_new(list, row);
    }
    json_object_set(about, "format", json_object_get(manifest, "format"));
    json_object_set(about, "version", json_object_get(manifest, "version"));
    json_object_set(about, "step", json_object_get(manifest, "step"));
    json_object_set_new(about, "files", list);
    json_decref(manifest);
    json_object_set_new(about, "verified", json_boolean(verify));
    return verify ? inspect_verify_files(folder, list) : NULL;
}

pjrt_status *inspect_model(const char *folder, bool verify, json_t *about)
{
    char path[PATH_MAX];
    PJRT_TRY(join(folder, "config.json", path));
    PJRT_TRY(inspect_network(path, about));
    if (strcmp(json_string_value(json_object_get(about, "kind")), "model") != 0)
        PJRT_TRY(inspect_manifest(folder, verify, about));
    PJRT_TRY(inspect_tensors(folder, about));
    return compare_tensors(folder, about);
}

/* A run: its newest checkpoint stands for it. */
pjrt_status *inspect_run(const char *path, bool verify, json_t *about)
{
    char *folder;
    PJRT_TRY(ttt_model_folder(path, &folder));
    json_object_set_new(about, "checkpoint", json_string(folder));
    pjrt_status *st = inspect_model(folder, verify, about);
    free(folder);
    return st;
}

/* ---- states ---- */

pjrt_status *inspect_state(const char *path, json_t *about)
{
    ttt_state *state;
    char hash[33];
    PJRT_TRY(ttt_state_read(path, &state));
    const ttt_state_about *s = ttt_state_info(state);
    json_t *parts = json_array();
    for (int i = 0; i < ttt_state_arrays(state); i++) {
        hlo_shape shape;
        char text[HLO_SHAPE_TEXT];
        const char *name = ttt_state_array(state, i, &shape);
        json_array_append_new(parts, json_pack("{s:s, s:s, s:I}", "name", name, "shape",
                                               hlo_shape_text(&shape, text), "bytes",
                                               (json_int_t)(4 * elements(&shape))));
    }
    ttt_hash_hex(s->model[0], s->model[1], hash); /* [0] is the high word, as in a bundle */
    json_object_set_new(about, "mixer", json_string(s->mixer));
    json_object_set_new(about, "position", json_integer(s->position));
    json_object_set_new(about, "place_in_mini_batch", json_integer(s->mb_offset));
    json_object_set_new(about, "model_xxh3_128", json_string(hash));
    json_object_set_new(about, "parts", parts);
    ttt_state_free(state);
    return NULL;
}

/* ---- prepared data ---- */

static json_t *split_json(const char *name, const ttt_dataset_about *a)
{
    char hash[33];
    ttt_hash_hex(a->hash[1], a->hash[0], hash);
    return json_pack("{s:s, s:I, s:I, s:i, s:s}", "split", name, "documents",
                     (json_int_t)a->documents, "tokens", (json_int_t)a->tokens, "shards", a->shards,
                     "xxh3_128", hash);
}

static json_t *tokenizer_json(const ttt_dataset_about *a)
{
    return json_pack("{s:s, s:I, s:i, s:i}", "name", a->tokenizer, "vocabulary",
                     (json_int_t)a->vocab, "bos", (int)a->bos, "eos", (int)a->eos);
}

pjrt_status *inspect_data(const char *path, bool verify, json_t *about)
{
    static const char *const names[] = {"train", "validation"};
    json_t *splits = json_array();
    json_object_set_new(about, "splits", splits);
    json_object_set_new(about, "verified", json_boolean(verify));
    pjrt_status *missing = NULL;
    for (int i = 0; i < 2; i++) {
        ttt_dataset *data;
        pjrt_status *st = ttt_dataset_open(path, names[i], &data);
        if (pjrt_status_code(st) == PJRT_CODE_NOT_FOUND) {
            pjrt_status_free(missing);
            missing = st;
            continue;
        }
        if (st == NULL && verify)
            st = ttt_dataset_verify(data);
        if (st == NULL) {
            json_array_append_new(splits, split_json(names[i], ttt_dataset_info(data)));
            json_object_set_new(about, "tokenizer", tokenizer_json(ttt_dataset_info(data)));
        }
        ttt_dataset_free(data);
        if (st != NULL) {
            pjrt_status_free(missing);
            return st;
        }
    }
    if (json_array_size(splits) == 0)
        return missing;
    pjrt_status_free(missing);
    return NULL;
}
