/* Checkpoints: written under another name and renamed when whole; verified before they are used. */
#include "runtime/checkpoint/checkpoints_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char call[] = "checkpoint";
const char *const ttt__set_names[TTT__SETS] = {"model", "first", "second"};
static const int64_t default_shard = INT64_C(4000000000);

enum { STEP_NAME = 48 };

/* ---- names -------------------------------------------------------------------------------------
 */

/* Folders that are no checkpoints yet, or no longer. */
static const char *const unfinished[] = {".writing", ".removing"};

static void step_name(int64_t step, const char *end, char name[STEP_NAME])
{
    snprintf(name, STEP_NAME, "step-%08lld%s", (long long)step, end);
}

/* The step of a name that step_name gives with that end; -1 of any other. */
static int64_t step_of(const char *name, const char *end)
{
    char again[STEP_NAME];
    long long step;
    if (strncmp(name, "step-", 5) != 0 || name[5] < '0' || name[5] > '9')
        return -1;
    errno = 0;
    step = strtoll(name + 5, NULL, 10);
    if (errno != 0)
        return -1;
    step_name(step, end, again);
    return strcmp(name, again) == 0 ? step : -1;
}

pjrt_status *ttt__step_path(const char *folder, int64_t step, const char *end, char path[PATH_MAX])
{
    char name[STEP_NAME];
    step_name(step, end, name);
    return ttt__path_join(folder, name, path);
}

pjrt_status *ttt__checkpoint_list(const char *folder, int64_t **steps, int *count)
{
    ttt__names names;
    *steps = NULL;
    *count = 0;
    PJRT_TRY(ttt__folder_list(folder, &names));
    int64_t *list = calloc((size_t)names.count + 1, sizeof *list);
    for (int i = 0; list != NULL && i < names.count; i++) {
        int64_t step = step_of(names.list[i], "");
        int at = *count;
        if (step < 0)
            continue;
        for (; at > 0 && list[at - 1] > step; at--) /* almost sorted: names are */
            list[at] = list[at - 1];
        list[at] = step;
        ++*count;
    }
    ttt__names_free(&names);
    *steps = list;
    return list != NULL ? NULL : PJRT_NO_MEMORY(call);
}

/* ---- writing -----------------------------------------------------------------------------------
 */

typedef struct source {
    const ttt_params *params;
    const float *const *arrays;
} source;

static bool copy_one(void *ctx, int index, float *out, ttt_error *error)
{
    const source *s = ctx;
    (void)error;
    memcpy(out, s->arrays[index],
           (size_t)hlo_shape_elements(&s->params->list[index].shape) * sizeof *out);
    return true;
}

static pjrt_status *write_sets(const char *folder, const ttt__snapshot *snapshot,
                               int64_t shard_bytes)
{
    char path[PATH_MAX], name[32];
    ttt_error error;
    for (int i = 0; i < TTT__SETS; i++) {
        source from = {snapshot->params, snapshot->sets[i]};
        snprintf(name, sizeof name, "%s.safetensors", ttt__set_names[i]);
        PJRT_TRY(ttt__path_join(folder, name, path));
        if (!ttt_params_save_shards(snapshot->params, path, HLO_F32, (size_t)shard_bytes, copy_one,
                                    &from, &error))
            return PJRT_FAIL(UNAVAILABLE, call, "%s", error.message);
    }
    PJRT_TRY(ttt__path_join(folder, "config.json", path));
    if (!ttt_config_write(snapshot->config, path, &error))
        return PJRT_FAIL(UNAVAILABLE, call, "%s", error.message);
    return NULL;
}

/* Digests of all files that are in the folder now, as they are read back. */
pjrt_status *ttt__checkpoint_declare(const char *folder, const ttt__manifest *manifest)
{
    char path[PATH_MAX], *text = NULL;
    PJRT_TRY(ttt__path_join(folder, "manifest.json", path));
    pjrt_status *st = ttt__manifest_write(manifest, &text);
    if (st == NULL)
        st = ttt__file_make(path, text, strlen(text));
    free(text);
    return st;
}

pjrt_status *ttt__checkpoint_describe(const char *folder, const ttt__snapshot *snapshot)
{
    ttt__names names;
    ttt__manifest manifest = {.step = snapshot->step};
    PJRT_TRY(ttt__folder_list(folder, &names));
    manifest.training = json_deep_copy(snapshot->training);
    pjrt_status *st = manifest.training == NULL
                          ? PJRT_NO_MEMORY(call)
                          : ttt__manifest_digest(folder, &names, &manifest.files);
    if (st == NULL)
        st = ttt__checkpoint_declare(folder, &manifest);
    ttt__manifest_free(&manifest);
    ttt__names_free(&names);
    return st;
}

/* All of a checkpoint in a folder that is made for it, on the disk but for the folder's name. */
static pjrt_status *write_folder(const char *folder, const ttt__snapshot *snapshot,
                                 int64_t shard_bytes)
{
    PJRT_TRY(ttt__tree_remove(folder)); /* what an earlier failure could not take away */
    PJRT_TRY(ttt__folder_make(folder));
    PJRT_TRY(write_sets(folder, snapshot, shard_bytes));
    PJRT_TRY(ttt__checkpoint_describe(folder, snapshot));
    return ttt__folder_sync(folder);
}

static pjrt_status *move(const char *from, const char *to)
{
    return TEMP_FAILURE_RETRY(rename(from, to)) == 0 ? NULL : ttt__io_failed(from, "rename it");
}

/* Takes a checkpoint away. It loses its name first, and on the disk too: half of one is never seen
 * under it. */
static pjrt_status *remove_step(const char *folder, int64_t step)
{
    char path[PATH_MAX], aside[PATH_MAX];
    PJRT_TRY(ttt__step_path(folder, step, "", path));
    PJRT_TRY(ttt__step_path(folder, step, ".removing", aside));
    PJRT_TRY(ttt__tree_remove(aside));
    PJRT_TRY(move(path, aside));
    PJRT_TRY(ttt__folder_sync(folder));
    return ttt__tree_remove(aside);
}

/* From here on it is a checkpoint. */
static pjrt_status *publish(const char *folder, int64_t step, bool replace)
{
    char from[PATH_MAX], to[PATH_MAX];
    PJRT_TRY(ttt__step_path(folder, step, ".writing", from));
    PJRT_TRY(ttt__step_path(folder, step, "", to));
    if (replace)
        PJRT_TRY(remove_step(folder, step));
    PJRT_TRY(move(from, to));
    pjrt_status *st = ttt__folder_sync(folder);
    if (st != NULL) /* who knows whether it will be there: then it is not */
        pjrt_status_free(remove_step(folder, step));
    return st;
}

/* ---- pruning -----------------------------------------------------------------------------------
 */

/* What a writer that was killed, or that failed, left behind. */
static pjrt_status *remove_leavings(const char *folder)
{
    char path[PATH_MAX];
    ttt__names names;
    PJRT_TRY(ttt__folder_list(folder, &names));
    pjrt_status *st = NULL;
    for (int i = 0; st == NULL && i < names.count; i++) {
        bool ours = step_of(names.list[i], unfinished[0]) >= 0 ||
                    step_of(names.list[i], unfinished[1]) >= 0;
        if (ours)
            st = ttt__path_join(folder, names.list[i], path);
        if (ours && st == NULL)
            st = ttt__tree_remove(path);
    }
    ttt__names_free(&names);
    return st;
}

/* Removes what is no longer kept of the steps up to that one, which was just written. Later ones
 * are of a training that was gone back on, or broken: they are not counted, so that they do not
 * push out the ones that are in use. */
static pjrt_status *prune(const ttt__checkpoint_dir *store, int64_t newest)
{
    const ttt__checkpoint_dir_options *o = &store->options;
    int64_t *steps;
    int count, kept = 0;
    pjrt_status *st = remove_leavings(store->folder);
    if (st != NULL || o->keep == 0)
        return st;
    PJRT_TRY(ttt__checkpoint_list(store->folder, &steps, &count));
    for (int i = count - 1; i >= 0; i--) {
        if (steps[i] > newest || kept++ < o->keep ||
            (o->milestone > 0 && steps[i] % o->milestone == 0))
            continue;
        pjrt_status *failed = remove_step(store->folder, steps[i]);
        if (st == NULL)
            st = failed;
        else
            pjrt_status_free(failed);
    }
    free(steps);
    return st;
}

/* ---- the store ---------------------------------------------------------------------------------
 */

pjrt_status *ttt__checkpoint_dir_open(const char *folder,
                                      const ttt__checkpoint_dir_options *options,
                                      ttt__checkpoint_dir **out)
{
    *out = NULL;
    if (options->keep < 0 || options->milestone < 0 || options->shard_bytes < 0)
        return PJRT_FAIL(INVALID_ARGUMENT, call,
                         "how many checkpoints are kept, and how large files get, is 0 or more");
    if (ttt_job_rank(options->job) == 0) {
        PJRT_TRY(ttt__folder_make(folder));
        PJRT_TRY(remove_leavings(folder));
    }
    ttt__checkpoint_dir *store = calloc(1, sizeof *store);
    if (store == NULL)
        return PJRT_NO_MEMORY(call);
    snprintf(store->folder, sizeof store->folder, "%s", folder);
    store->options = *options;
    store->meetings = (ttt__agreements){.job = options->job, .name = "store"};
    if (store->options.shard_bytes == 0)
        store->options.shard_bytes = default_shard;
    *out = store;
    return NULL;
}

void ttt__checkpoint_dir_free(ttt__checkpoint_dir *store)
{
    if (store == NULL)
        return;
    pjrt_status_free(store->trouble);
    free(store);
}

const pjrt_status *ttt__checkpoint_dir_trouble(const ttt__checkpoint_dir *store)
{
    return store->trouble;
}

pjrt_status *ttt__checkpoint_look(const char *path, bool *there, bool *whole)
{
    ttt__checkpoint *checkpoint = NULL;
    *there = access(path, F_OK) == 0;
    *whole = false;
    if (!*there)
        return errno == ENOENT ? NULL : ttt__io_failed(path, "look for it");
    pjrt_status *st = ttt__checkpoint_open(path, &checkpoint);
    *whole = st == NULL;
    ttt__checkpoint_free(checkpoint);
    if (pjrt_status_code(st) != PJRT_CODE_DATA_LOSS)
        return st;
    pjrt_status_free(st);
    return NULL;
}

pjrt_status *ttt__checkpoint_dir_publish(ttt__checkpoint_dir *store, int64_t step, bool replace)
{
    PJRT_TRY(publish(store->folder, step, replace));
    pjrt_status_free(store->trouble);
    store->trouble = prune(store, step);
    return NULL;
}

static pjrt_status *write_alone(ttt__checkpoint_dir *store, const ttt__snapshot *snapshot)
{
    char path[PATH_MAX], writing[PATH_MAX];
    bool there, whole;
    PJRT_TRY(ttt__step_path(store->folder, snapshot->step, "", path));
    PJRT_TRY(ttt__step_path(store->folder, snapshot->step, ".writing", writing));
    PJRT_TRY(ttt__checkpoint_look(path, &there, &whole));
    if (whole) {
        pjrt_status_free(store->trouble);
        store->trouble = prune(store, snapshot->step);
        return NULL;
    }
    pjrt_status *st = write_folder(writing, snapshot, store->options.shard_bytes);
    if (st == NULL)
        st = ttt__checkpoint_dir_publish(store, snapshot->step, there);
    if (st != NULL)
        pjrt_status_free(ttt__tree_remove(writing));
    return st;
}

pjrt_status *ttt__checkpoint_dir_write(ttt__checkpoint_dir *store, const ttt__snapshot *snapshot)
{
    if (snapshot->step < 0 || !json_is_object(snapshot->training))
        return PJRT_FAIL(INVALID_ARGUMENT, call, "a step from 0 on and an object are saved");
    return snapshot->pieces == NULL ? write_alone(store, snapshot)
                                    : ttt__checkpoint_dir_write_multi(store, snapshot);
}

/* ---- reading -----------------------------------------------------------------------------------
 */

pjrt_status *ttt__checkpoint_manifest(const char *folder, ttt__manifest *out)
{
    char path[PATH_MAX], *text;
    size_t size;
    *out = (ttt__manifest){0};
    PJRT_TRY(ttt__path_join(folder, "manifest.json", path));
    pjrt_status *st = ttt__file_read(path, TTT__MOST_MANIFEST, &text, &size);
    if (st == NULL)
        st = ttt__manifest_parse(text, size, out);
    free(text);
    return ttt__manifest_in(st, path);
}

/* A folder that has a step in its name has that step. */
static pjrt_status *check_step(const char *folder, int64_t step)
{
    const char *slash = strrchr(folder, '/');
    int64_t named = step_of(slash == NULL ? folder : slash + 1, "");
    if (named >= 0 && named != step)
        return PJRT_FAIL(DATA_LOSS, call, "%s/manifest.json: it is of step %lld", folder,
                         (long long)step);
    return NULL;
}

static bool has_file(const ttt__manifest *manifest, const char *name)
{
    return ttt__manifest_find(&manifest->files, name) >= 0;
}

static pjrt_status *open_set(const char *folder, const ttt__manifest *manifest, int set,
                             const ttt_params *params, ttt_tensors **out)
{
    char path[PATH_MAX], name[64];
    ttt_error error;
    snprintf(name, sizeof name, "%s.safetensors", ttt__set_names[set]);
    if (!has_file(manifest, name))
        snprintf(name, sizeof name, "%s.safetensors.index.json", ttt__set_names[set]);
    if (!has_file(manifest, name))
        return PJRT_FAIL(DATA_LOSS, call, "%s/manifest.json: it has no %s.safetensors", folder,
                         ttt__set_names[set]);
    PJRT_TRY(ttt__path_join(folder, name, path));
    *out = ttt_tensors_open(path, &error);
    if (*out == NULL)
        return ttt_failed(&error);
    if (!ttt_params_match(params, *out, &error))
        return PJRT_FAIL(INVALID_ARGUMENT, call, "%s: %s", path, error.message);
    return NULL;
}

static pjrt_status *open_sets(ttt__checkpoint *checkpoint, const ttt__manifest *manifest)
{
    char path[PATH_MAX];
    ttt_error error;
    if (!has_file(manifest, "config.json"))
        return PJRT_FAIL(DATA_LOSS, call, "%s/manifest.json: it has no config.json",
                         checkpoint->path);
    PJRT_TRY(ttt__path_join(checkpoint->path, "config.json", path));
    if (!ttt_config_read(&checkpoint->config, path, &error))
        return ttt_failed(&error);
    ttt_params *params = ttt_params_new(&checkpoint->config, TTT_SEPARATE, &error);
    pjrt_status *st = params == NULL ? ttt_failed(&error) : NULL;
    for (int i = 0; st == NULL && i < TTT__SETS; i++)
        st = open_set(checkpoint->path, manifest, i, params, &checkpoint->sets[i]);
    ttt_params_free(params);
    return st;
}

static pjrt_status *open_checkpoint(const char *folder, const ttt_job *all, ttt__checkpoint **out)
{
    ttt__manifest manifest;
    *out = NULL;
    ttt__checkpoint *checkpoint = calloc(1, sizeof *checkpoint);
    if (checkpoint == NULL || (checkpoint->path = strdup(folder)) == NULL) {
        free(checkpoint);
        return PJRT_NO_MEMORY(call);
    }
    pjrt_status *st = ttt__checkpoint_manifest(folder, &manifest);
    if (st == NULL)
        st = check_step(folder, manifest.step);
    if (st == NULL)
        st = ttt__manifest_verify(folder, &manifest.files, ttt_job_rank(all), ttt_job_size(all));
    if (st == NULL)
        st = open_sets(checkpoint, &manifest);
    checkpoint->step = manifest.step;
    checkpoint->training = json_incref(manifest.training);
    ttt__manifest_free(&manifest);
    if (st == NULL)
        *out = checkpoint;
    else
        ttt__checkpoint_free(checkpoint);
    return st;
}

pjrt_status *ttt__checkpoint_open(const char *folder, ttt__checkpoint **out)
{
    return open_checkpoint(folder, NULL, out);
}

void ttt__checkpoint_free(ttt__checkpoint *checkpoint)
{
    if (checkpoint == NULL)
        return;
    for (int i = 0; i < TTT__SETS; i++)
        ttt_tensors_free(checkpoint->sets[i]);
    json_decref(checkpoint->training);
    free(checkpoint->path);
    free(checkpoint);
}

/* The same in all processes, each of which has looked at some of it. */
static pjrt_status *open_together(const char *folder, int64_t step, ttt__agreements *all,
                                  ttt__checkpoint **out)
{
    char path[PATH_MAX];
    pjrt_status *st = ttt__step_path(folder, step, "", path);
    if (st == NULL)
        st = open_checkpoint(path, all == NULL ? NULL : all->job, out);
    st = ttt__agree(all, st);
    if (st != NULL) {
        ttt__checkpoint_free(*out);
        *out = NULL;
    }
    return st;
}

/* Tries them from the newest on. Only what is lost is passed over: what fails for another reason,
 * as for want of memory or of rights, may be whole, and going back behind it would lose work. */
static pjrt_status *open_newest(const char *folder, const int64_t *steps, int count,
                                ttt__agreements *all,
                                void (*broken)(void *ctx, const pjrt_status *why), void *ctx,
                                ttt__checkpoint **out)
{
    pjrt_status *first = NULL;
    for (int i = count - 1; i >= 0; i--) {
        pjrt_status *st = open_together(folder, steps[i], all, out);
        if (pjrt_status_code(st) != PJRT_CODE_DATA_LOSS) {
            pjrt_status_free(first);
            return st;
        }
        if (broken != NULL)
            broken(ctx, st);
        if (first == NULL)
            first = st;
        else
            pjrt_status_free(st);
    }
    if (first == NULL)
        return NULL;
    pjrt_status *st = PJRT_FAIL(DATA_LOSS, call, "no checkpoint of %s is whole; the newest: %s",
                                folder, pjrt_status_message(first));
    pjrt_status_free(first);
    return st;
}

/* The steps that process 0 sees. */
static pjrt_status *list_together(const char *folder, ttt__agreements *all, int64_t **steps,
                                  int *count)
{
    bool first = all == NULL || ttt_job_rank(all->job) == 0;
    *steps = NULL;
    *count = 0;
    pjrt_status *st = first ? ttt__checkpoint_list(folder, steps, count) : NULL;
    st = ttt__agree_reported(all, st, count, sizeof *count);
    if (st == NULL && !first && (*steps = calloc((size_t)*count + 1, sizeof **steps)) == NULL)
        st = PJRT_NO_MEMORY(call);
    return ttt__agree_reported(all, st, *steps, (size_t)*count * sizeof **steps);
}

pjrt_status *ttt__checkpoint_latest(const char *folder, ttt__agreements *all,
                                    void (*broken)(void *ctx, const pjrt_status *why), void *ctx,
                                    ttt__checkpoint **out)
{
    int64_t *steps;
    int count;
    *out = NULL;
    pjrt_status *st = list_together(folder, all, &steps, &count);
    if (st == NULL)
        st = open_newest(folder, steps, count, all, broken, ctx, out);
    free(steps);
    return st;
}
