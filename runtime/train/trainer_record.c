/* What a run remembers of itself: in its checkpoints, in its folder, and to whoever listens. */
#include "runtime/base/files.h"
#include "runtime/base/threads.h"
#include "runtime/base/ttt_hash.h"
#include "runtime/train/trainer_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <xxhash.h>

static const char call[] = "train";

/* ---- listeners ---------------------------------------------------------------------------------
 */

void ttt__trainer_emit(const ttt_trainer *t, const ttt_event *event)
{
    if (t->options.hear != NULL && t->first)
        t->options.hear(t->options.ctx, event);
}

void ttt__trainer_note(const ttt_trainer *t, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    ttt__trainer_emit(t, &(ttt_event){.kind = TTT_EVENT_NOTE,
                                      .step = t->step,
                                      .steps = t->options.recipe.steps,
                                      .text = text});
}

/* ---- where time went ---------------------------------------------------------------------------
 */

static const struct {
    const char *name;
    size_t offset;
} parts[] = {
#define PART(name)                         \
    {                                      \
#name, offsetof(ttt_goodput, name) \
    }
    PART(compute), PART(compile),  PART(data), PART(save),
    PART(restore), PART(evaluate), PART(lost), PART(other),
#undef PART
};
enum { N_PARTS = sizeof parts / sizeof *parts };

static double *part_of(const ttt_goodput *goodput, int index)
{
    return (double *)((char *)goodput + parts[index].offset);
}

double ttt_goodput_total(const ttt_goodput *goodput)
{
    double sum = 0;
    for (int i = 0; i < N_PARTS; i++)
        sum += *part_of(goodput, i);
    return sum;
}

ttt_goodput ttt__trainer_goodput(const ttt_trainer *t)
{
    ttt_goodput all = t->now;
    double other = ttt__seconds() - t->begun - ttt_goodput_total(&t->now);
    all.other += other > 0 ? other : 0;
    for (int i = 0; i < N_PARTS; i++)
        *part_of(&all, i) += *part_of(&t->before, i);
    return all;
}

/* ---- in checkpoints ----------------------------------------------------------------------------
 */

/* Checkpoints store the data's hash low word first, unlike index.json: their format is fixed. */
static void data_hash(const ttt_trainer *t, char hex[TTT_HASH_HEX])
{
    const uint64_t *hash = ttt_dataset_info(t->train)->hash;
    ttt_hash_hex(hash[0], hash[1], hex);
}

static json_t *recipe_json(const ttt_recipe *recipe)
{
    ttt_error error;
    char *text = ttt_recipe_text(recipe, &error);
    json_t *json = text == NULL ? NULL : json_loads(text, 0, NULL);
    free(text);
    return json;
}

static json_t *mesh_json(const ttt_mesh *mesh)
{
    json_t *json = json_object();
    for (int i = 0; i < mesh->n; i++)
        json_object_set_new(json, mesh->names[i], json_integer(mesh->sizes[i]));
    return json;
}

json_t *ttt__trainer_record(const ttt_trainer *t)
{
    const ttt_trainer_options *o = &t->options;
    ttt_goodput goodput = ttt__trainer_goodput(t);
    char hash[TTT_HASH_HEX];
    json_t *seconds = json_object();
    for (int i = 0; i < N_PARTS; i++)
        json_object_set_new(seconds, parts[i].name, json_real(*part_of(&goodput, i)));
    data_hash(t, hash);
    return json_pack("{s:o, s:{s:s, s:s, s:I, s:b}, s:o, s:s, s:I, s:o, s:I, s:I, s:o}", "recipe",
                     recipe_json(&o->recipe), "data", "folder", o->data, "hash", hash, "position",
                     (json_int_t)t->position, "resets", o->resets, "mesh", mesh_json(&o->mesh),
                     "compute", hlo_type_name(o->compute), "accumulation",
                     (json_int_t)o->accumulation, "history", ttt__loss_history_json(&t->history),
                     "skipped", (json_int_t)t->skipped, "in_a_row", (json_int_t)t->in_a_row,
                     "seconds", seconds);
}

/* What decides which tokens a step sees must be as it was. */
static pjrt_status *check_data(const ttt_trainer *t, const json_t *training)
{
    const ttt_trainer_options *o = &t->options;
    const json_t *data = json_object_get(training, "data");
    const json_t *recipe = json_object_get(training, "recipe");
    const char *was = json_string_value(json_object_get(data, "hash"));
    char now[TTT_HASH_HEX];
    data_hash(t, now);
    if (was == NULL || strcmp(was, now) != 0)
        return PJRT_FAIL(FAILED_PRECONDITION, call,
                         "the run was begun with other data than that of %s", o->data);
    const struct {
        const char *name;
        int64_t value;
    } fixed[] = {{"sequence_length", o->recipe.sequence_length}, {"seed", o->recipe.seed}};
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) {
        int64_t before = json_integer_value(json_object_get(recipe, fixed[i].name));
        if (before != fixed[i].value)
            return PJRT_FAIL(FAILED_PRECONDITION, call,
                             "the run was begun with %s %lld: %lld would change which tokens it "
                             "sees",
                             fixed[i].name, (long long)before, (long long)fixed[i].value);
    }
    return NULL;
}

static pjrt_status *check_network(const ttt_trainer *t, const ttt_config *was)
{
    ttt_error error;
    char *before = ttt_config_text(was, &error), *now = ttt_config_text(&t->options.config, &error);
    bool same = before != NULL && now != NULL && strcmp(before, now) == 0;
    free(before);
    free(now);
    if (!same)
        return PJRT_FAIL(FAILED_PRECONDITION, call,
                         "the checkpoint is of another network than the one asked for");
    return NULL;
}

pjrt_status *ttt__trainer_recall(ttt_trainer *t, const ttt__checkpoint *checkpoint)
{
    const json_t *training = checkpoint->training;
    const json_t *seconds = json_object_get(training, "seconds");
    const json_t *position = json_object_get(json_object_get(training, "data"), "position");
    PJRT_TRY(check_network(t, &checkpoint->config));
    PJRT_TRY(check_data(t, training));
    PJRT_TRY(ttt__loss_history_parse(&t->history, json_object_get(training, "history")));
    if (!json_is_integer(position) || json_integer_value(position) < 0 ||
        t->history.last != checkpoint->step)
        return PJRT_FAIL(DATA_LOSS, call, "%s: its record of the run is not well formed",
                         checkpoint->path);
    t->position = json_integer_value(position);
    t->skipped = json_integer_value(json_object_get(training, "skipped"));
    t->in_a_row = json_integer_value(json_object_get(training, "in_a_row"));
    for (int i = 0; i < N_PARTS; i++)
        *part_of(&t->before, i) = json_number_value(json_object_get(seconds, parts[i].name));
    json_t *mesh = mesh_json(&t->options.mesh);
    if (!json_equal(mesh, json_object_get(training, "mesh")))
        ttt__trainer_note(t, "the mesh is another one: losses will agree but for rounding");
    json_decref(mesh);
    return NULL;
}

/* ---- in other processes -----------------------------------------------------------------------
 */

/* What must be the same everywhere, as text; NULL when out of memory. */
static char *settings(const ttt_trainer *t)
{
    const ttt_trainer_options *o = &t->options;
    ttt_error error;
    char hash[TTT_HASH_HEX], *config = ttt_config_text(&o->config, &error);
    data_hash(t, hash);
    json_t *all = json_pack(
        "{s:s, s:s, s:o, s:s, s:o, s:s, s:i, s:b, s:b, s:b, s:b, s:I, s:I, s:I, s:I, s:f, s:I, "
        "s:I}",
        "version", TTT_VERSION, "config", config == NULL ? "" : config, "recipe",
        recipe_json(&o->recipe), "data", hash, "mesh", mesh_json(&o->mesh), "compute",
        hlo_type_name(o->compute), "remat", (int)o->remat, "no_kernels", o->no_kernels, "resets",
        o->resets, "resume", o->resume, "validation", t->validation != NULL, "accumulation",
        (json_int_t)o->accumulation, "save_every", (json_int_t)o->save_every, "eval_every",
        (json_int_t)o->eval_every, "eval_sequences", (json_int_t)o->eval_sequences, "spike",
        o->spike, "window", (json_int_t)o->window, "abort_after", (json_int_t)o->abort_after);
    char *text = json_dumps(all, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(all);
    free(config);
    return text;
}

pjrt_status *ttt__trainer_compare(ttt_trainer *t)
{
    char *text = settings(t);
    XXH128_canonical_t mine = {{0}}, first;
    pjrt_status *st = text == NULL ? PJRT_NO_MEMORY(call) : NULL;
    if (text != NULL)
        XXH128_canonicalFromHash(&mine, XXH3_128bits(text, strlen(text)));
    free(text);
    first = mine;
    PJRT_TRY(ttt__agree_reported(&t->meetings, st, &first, sizeof first));
    if (memcmp(&mine, &first, sizeof mine) != 0)
        st = PJRT_FAIL(INVALID_ARGUMENT, call,
                       "started with other options or other data than the first process: all need "
                       "the same");
    return ttt__agree(&t->meetings, st);
}

/* ---- in the folder -----------------------------------------------------------------------------
 */

enum { MAX_TEXT = 1 << 20, MAX_TOKENIZER = 1 << 28 };

/* The name of the data's tokenizer: "bytes", or that of its file. */
static const char *tokenizer_name(const ttt_trainer *t)
{
    const char *path = ttt_dataset_info(t->train)->tokenizer, *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

/* What the model is read and written with goes where the model is. */
static pjrt_status *copy_tokenizer(const ttt_trainer *t)
{
    const char *path = ttt_dataset_info(t->train)->tokenizer;
    char *bytes;
    size_t size;
    if (strcmp(path, "bytes") == 0)
        return NULL;
    PJRT_TRY(ttt__file_read(path, MAX_TOKENIZER, &bytes, &size));
    pjrt_status *st = ttt__file_replace(t->options.run, tokenizer_name(t), bytes, size);
    free(bytes);
    return st;
}

/* Appends one argument as a POSIX shell reads it back: plain, or in single quotes. */
static bool add_quoted(FILE *out, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "@%+=:,./_-";
    if (word[0] != '\0' && word[strspn(word, plain)] == '\0')
        return fputs(word, out) >= 0;
    fputc('\'', out);
    for (const char *c = word; *c != '\0'; c++) {
        if (*c == '\'')
            fputs("'\\''", out);
        else
            fputc(*c, out);
    }
    return fputc('\'', out) != EOF;
}

char *ttt__shell_command(char *const *argv, int argc)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    bool ok = out != NULL;
    for (int i = 0; i < argc && ok; i++)
        ok = (i == 0 || fputc(' ', out) != EOF) && add_quoted(out, argv[i]);
    if (out != NULL && fclose(out) != 0)
        ok = false;
    if (ok)
        return text;
    free(text);
    return NULL;
}

/* json_stringn_nocheck would keep bytes that are not UTF-8, and then the file could not be
 * written; such an argument becomes null. */
static json_t *text_json(const char *text)
{
    json_t *json = text == NULL ? NULL : json_string(text);
    return json == NULL ? json_null() : json;
}

/* "command": one line for a shell; "arguments": the same as a list. */
static void add_command(const ttt_trainer *t, json_t *environment)
{
    const ttt_trainer_options *o = &t->options;
    char *line = o->argv == NULL ? NULL : ttt__shell_command(o->argv, o->argc);
    json_t *list = o->argv == NULL ? json_null() : json_array();
    for (int i = 0; o->argv != NULL && i < o->argc; i++)
        json_array_append_new(list, text_json(o->argv[i]));
    json_object_set_new(environment, "command", text_json(line));
    json_object_set_new(environment, "arguments", list);
    free(line);
}

static json_t *environment(const ttt_trainer *t)
{
    char host[256] = "", now[32];
    time_t seconds = time(NULL);
    struct tm utc;
    gethostname(host, sizeof host - 1);
    strftime(now, sizeof now, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&seconds, &utc));
    const pjrt_client *client = t->devices->client;
    json_t *json = json_pack(
        "{s:s, s:s, s:s, s:I, s:s, s:s, s:s, s:i, s:i, s:I, s:s, s:s}", "time", now, "host", host,
        "version", TTT_VERSION, "processors", (json_int_t)sysconf(_SC_NPROCESSORS_ONLN), "platform",
        pjrt_client_platform(client), "platform_version", pjrt_client_platform_version(client),
        "device", t->plan.device, "devices", t->plan.devices, "processes", t->plan.processes,
        "step", (json_int_t)t->step, "data", t->options.data, "tokenizer", tokenizer_name(t));
    if (json != NULL)
        add_command(t, json);
    return json;
}

static pjrt_status *write_environment(const ttt_trainer *t)
{
    char path[PATH_MAX], *text = NULL;
    size_t size;
    PJRT_TRY(ttt__path_join(t->options.run, "environment.json", path));
    pjrt_status *st = ttt__file_read(path, MAX_TEXT, &text, &size);
    json_t *all = st == NULL ? json_loads(text, 0, NULL) : NULL; /* a broken one is begun anew */
    pjrt_status_free(st);
    free(text);
    if (!json_is_object(all)) {
        json_decref(all);
        all = json_object();
        json_object_set_new(all, "first", environment(t));
    }
    json_object_set_new(all, "last", environment(t));
    text = json_dumps(all, JSON_INDENT(2));
    json_decref(all);
    st = text == NULL ? PJRT_NO_MEMORY(call)
                      : ttt__file_replace(t->options.run, "environment.json", text, strlen(text));
    free(text);
    return st;
}

pjrt_status *ttt__run_describe(const ttt_trainer *t)
{
    ttt_error error;
    char *config = ttt_config_text(&t->options.config, &error);
    char *recipe = ttt_recipe_text(&t->options.recipe, &error);
    pjrt_status *st = config == NULL || recipe == NULL ? ttt_failed(&error) : NULL;
    if (st == NULL)
        st = ttt__file_replace(t->options.run, "config.json", config, strlen(config));
    if (st == NULL)
        st = ttt__file_replace(t->options.run, "recipe.json", recipe, strlen(recipe));
    if (st == NULL)
        st = copy_tokenizer(t);
    free(config);
    free(recipe);
    return st == NULL ? write_environment(t) : st;
}

double ttt__run_elapsed(const char *run)
{
    char path[PATH_MAX], *line = NULL;
    size_t room = 0;
    ssize_t length;
    double elapsed = 0;
    pjrt_status *st = ttt__path_join(run, "metrics.jsonl", path);
    FILE *file = st == NULL ? fopen(path, "re") : NULL;
    pjrt_status_free(st);
    /* Every line is read: one evaluation of a long context may be longer than any fixed tail. */
    while (file != NULL && (length = getline(&line, &room, file)) >= 0) {
        if (strstr(line, "\"elapsed\"") == NULL) /* evaluations and checkpoints have none */
            continue;
        json_t *json = json_loadb(line, (size_t)length, 0, NULL); /* NULL: a half line */
        double value = json_number_value(json_object_get(json, "elapsed"));
        elapsed = value > elapsed ? value : elapsed;
        json_decref(json);
    }
    free(line);
    if (file != NULL)
        fclose(file);
    return elapsed;
}
