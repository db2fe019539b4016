/* Configurations as JSON: Hugging Face's config.json both ways, and all fields for people. */
#include "model/records.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_BYTES = 1 << 20, MOST_DEPTH = 16 };

/* ---- reading --------------------------------------------------------------------------------- */

/* Fields of the Hugging Face class, or of the library around it, that shape no network. */
static const char *const passed_over[] = {
    "_name_or_path",
    "architectures",
    "auto_map",
    "bos_token_id",
    "dtype",
    "eos_token_id",
    "pad_token_id",
    "max_position_embeddings",
    "scan_checkpoint_group_size",
    "torch_dtype",
    "transformers_version",
    "use_cache",
};
/* Fields that must have the one value we have. */
static const struct {
    const char *name, *value;
} fixed[] = {{"model_type", "ttt"}, {"hidden_act", "silu"}};

static bool set_json(ttt_config *config, const ttt__field *field, const char *key,
                     const json_t *value, ttt_error *error)
{
    const char *wanted = ttt__field_wants(field, value);
    if (wanted != NULL)
        return ttt__fail(error, "config.json: %s is not %s", key, wanted);
    return ttt__field_set_json(config, field, value, error);
}

/* One field of the file, which is at the top or in our own object. */
static bool read_field(ttt_config *config, bool top, const char *key, const json_t *value,
                       ttt_error *error)
{
    size_t count;
    const ttt__field *fields = ttt__config_fields(&count);
    for (size_t i = 0; i < count; i++) {
        const char *name = top ? fields[i].hf : fields[i].hf == NULL ? fields[i].name : NULL;
        if (name != NULL && strcmp(name, key) == 0)
            return set_json(config, &fields[i], key, value, error);
    }
    if (!top)
        return ttt__fail(error, "config.json: ttt_c has no field \"%.60s\"", key);
    for (size_t i = 0; i < sizeof passed_over / sizeof *passed_over; i++) {
        if (strcmp(key, passed_over[i]) == 0)
            return true;
    }
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) {
        if (strcmp(key, fixed[i].name) != 0)
            continue;
        if (json_is_string(value) && strcmp(json_string_value(value), fixed[i].value) == 0)
            return true;
        return ttt__fail(error, "config.json: %s is not \"%s\"", key, fixed[i].value);
    }
    if (strcmp(key, "pretraining_tp") == 0)
        return json_is_integer(value) && json_integer_value(value) == 1
                   ? true
                   : ttt__fail(error, "config.json: pretraining_tp is not 1");
    if (strcmp(key, "ttt_layer_type") == 0 || strcmp(key, "ttt_c") == 0)
        return true; /* read by the callers */
    return ttt__fail(error, "config.json: unknown field \"%.60s\"", key);
}

/* The mixer is needed first: defaults depend on it. */
static bool read_mixer(const json_t *root, const json_t *ours, ttt_mixer *mixer, ttt_error *error)
{
    const json_t *type = json_object_get(root, "ttt_layer_type");
    const json_t *named = json_object_get(ours, "mixer");
    const char *word = json_string_value(type);
    ttt_config scratch = {.mixer = TTT_MIXER_LINEAR};
    size_t count;
    if (word != NULL && strcmp(word, "mlp") == 0)
        scratch.mixer = TTT_MIXER_MLP;
    else if (type != NULL && (word == NULL || strcmp(word, "linear") != 0))
        return ttt__fail(error, "config.json: ttt_layer_type is not \"linear\" or \"mlp\"");
    *mixer = scratch.mixer;
    if (named == NULL)
        return true;
    if (!set_json(&scratch, &ttt__config_fields(&count)[0], "mixer", named, error))
        return false;
    if (type != NULL && scratch.mixer != *mixer)
        return ttt__fail(error, "config.json: ttt_layer_type \"%s\" contradicts mixer \"%s\"", word,
                         ttt_mixer_name(scratch.mixer));
    *mixer = scratch.mixer;
    return true;
}

static bool read_root(ttt_config *config, json_t *root, ttt_error *error)
{
    json_t *ours = json_object_get(root, "ttt_c"), *value;
    const char *key;
    ttt_mixer mixer = TTT_MIXER_LINEAR;
    if (!json_is_object(root))
        return ttt__fail(error, "config.json: not an object");
    if (ours != NULL && !json_is_object(ours))
        return ttt__fail(error, "config.json: ttt_c is not an object");
    if (!read_mixer(root, ours, &mixer, error))
        return false;
    ttt__config_defaults(config, mixer);
    config->ttt_base_lr = 1.0; /* what the Hugging Face class takes when a file does not say */
    json_object_foreach(root, key, value)
    {
        if (!read_field(config, true, key, value, error))
            return false;
    }
    json_object_foreach(ours, key, value)
    {
        if (!read_field(config, false, key, value, error))
            return false;
    }
    return ttt_config_check(config, error);
}

bool ttt_config_parse(ttt_config *config, const char *json, size_t size, ttt_error *error)
{
    ttt_config made;
    json_t *root = ttt__json_load(json, size, MOST_BYTES, MOST_DEPTH, "config.json", error);
    bool ok = root != NULL && read_root(&made, root, error);
    json_decref(root);
    if (ok)
        *config = made;
    return ok;
}

bool ttt_config_read(ttt_config *config, const char *path, ttt_error *error)
{
    size_t size;
    char *text = ttt__read_file(path, MOST_BYTES, &size, error);
    bool ok = text != NULL && ttt_config_parse(config, text, size, error);
    free(text);
    return ok;
}

/* ---- writing --------------------------------------------------------------------------------- */

static bool put(json_t *object, const char *key, json_t *value)
{
    return json_object_set_new(object, key, value) == 0;
}

char *ttt_config_show(const ttt_config *config, ttt_error *error)
{
    if (!ttt_config_check(config, error))
        return NULL;
    ttt_params *params = ttt_params_new(config, TTT_SEPARATE, error);
    if (params == NULL)
        return NULL;
    size_t count;
    const ttt__field *fields = ttt__config_fields(&count);
    json_t *root = json_object();
    bool ok = ttt__fields_put(config, fields, count, root) &&
              put(root, "parameters", json_integer(params->elements));
    ttt_params_free(params);
    return ttt__fields_dump(config, fields, count, root, ok, error);
}

/* A quiet field that says what would be so without it. */
static bool left_out(const ttt_config *config, const ttt__field *field)
{
    ttt_config usual;
    ttt__config_defaults(&usual, config->mixer);
    return field->quiet && ttt__field_same(config, &usual, field);
}

char *ttt_config_text(const ttt_config *config, ttt_error *error)
{
    if (!ttt_config_check(config, error))
        return NULL;
    size_t count;
    const ttt__field *fields = ttt__config_fields(&count);
    json_t *root = json_object(), *ours = json_object();
    bool ok = root != NULL && ours != NULL;
    ok = ok && put(root, "model_type", json_string("ttt"));
    ok = ok && put(root, "architectures", json_pack("[s]", "TTTForCausalLM"));
    ok = ok && put(root, "hidden_act", json_string("silu"));
    ok = ok && put(root, "bos_token_id", json_integer(1));
    ok = ok && put(root, "eos_token_id", json_integer(2));
    if (ttt_mixer_learns(config->mixer))
        ok = ok && put(root, "ttt_layer_type",
                       json_string(config->mixer == TTT_MIXER_MLP ? "mlp" : "linear"));
    for (size_t i = 0; ok && i < count; i++) {
        bool top = fields[i].hf != NULL;
        if (left_out(config, &fields[i]))
            continue;
        ok = put(top ? root : ours, top ? fields[i].hf : fields[i].name,
                 ttt__field_json(config, &fields[i]));
    }
    ok = ok && json_object_set(root, "ttt_c", ours) == 0;
    json_decref(ours);
    return ttt__fields_dump(config, fields, count, root, ok, error);
}

bool ttt_config_write(const ttt_config *config, const char *path, ttt_error *error)
{
    ttt__new_file file;
    char *text = ttt_config_text(config, error);
    if (text == NULL || !ttt__file_create(&file, path, error)) {
        free(text);
        return false;
    }
    bool ok =
        ttt__file_write(&file, text, strlen(text), error) && ttt__file_write(&file, "\n", 1, error);
    free(text);
    return ttt__file_close(&file, ok, error) && ok;
}
