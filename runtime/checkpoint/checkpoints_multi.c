/*
 * A checkpoint by several processes. Each writes the blocks it has into a file of its own. When all
 * have, each puts some of the checkpoint's files together from these, in a folder of its own, with
 * a manifest of them. When all have done that, process 0 moves the files to where they belong,
 * writes the manifest of all, and renames the folder: until then there is no checkpoint, whoever is
 * lost.
 */
#include "runtime/checkpoint/checkpoints_internal.h"
#include "runtime/device/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char call[] = "checkpoint";

typedef struct joint {
    ttt__checkpoint_dir *store;
    const ttt__snapshot *snapshot;
    int rank, size;
    char path[PATH_MAX], writing[PATH_MAX];
    struct {
        bool there, whole; /* of an older one of that step */
    } old;
} joint;

static pjrt_status *blocks_path(const joint *j, int process, char path[PATH_MAX])
{
    char name[32];
    snprintf(name, sizeof name, "blocks-%05d", process);
    return ttt__path_join(j->writing, name, path);
}

static pjrt_status *part_path(const joint *j, int process, char path[PATH_MAX])
{
    char name[32];
    snprintf(name, sizeof name, "part-%05d", process);
    return ttt__path_join(j->writing, name, path);
}

/* ---- 1: room -----------------------------------------------------------------------------------
 */

static pjrt_status *make_room(joint *j)
{
    if (j->rank != 0)
        return NULL;
    PJRT_TRY(ttt__checkpoint_look(j->path, &j->old.there, &j->old.whole));
    if (j->old.whole)
        return NULL;
    PJRT_TRY(ttt__tree_remove(j->writing));
    return ttt__folder_make(j->writing);
}

/* ---- 2: what this process has ------------------------------------------------------------------
 */

static size_t piece_bytes(const joint *j, const ttt__checkpoint_shard *p)
{
    int rank = j->snapshot->params->list[p->param].shape.rank;
    return (size_t)ttt__block_elements(&p->block, rank) * sizeof(float);
}

static pjrt_status *put_pieces(const joint *j, int fd, const char *path)
{
    for (int i = 0; i < j->snapshot->n_pieces; i++) {
        const ttt__checkpoint_shard *p = &j->snapshot->pieces[i];
        if (p->process == j->rank && !ttt__write_all(fd, p->values, piece_bytes(j, p)))
            return ttt__io_failed(path, "write to it");
    }
    return TEMP_FAILURE_RETRY(fsync(fd)) == 0 ? NULL : ttt__io_failed(path, "sync it");
}

static pjrt_status *write_blocks(const joint *j)
{
    char path[PATH_MAX];
    PJRT_TRY(blocks_path(j, j->rank, path));
    int fd = TEMP_FAILURE_RETRY(open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (fd < 0)
        return ttt__io_failed(path, "make it");
    pjrt_status *st = put_pieces(j, fd, path);
    if (close(fd) != 0 && st == NULL)
        st = ttt__io_failed(path, "close it");
    return st;
}

/* ---- 3: some of the files ----------------------------------------------------------------------
 */

typedef struct collecting {
    const joint *j;
    int set;
    pjrt_status *failed;
} collecting;

static pjrt_status *read_all(int fd, const char *path, int64_t offset, void *bytes, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t n = TEMP_FAILURE_RETRY(
            pread(fd, (char *)bytes + done, size - done, offset + (int64_t)done));
        if (n < 0)
            return ttt__io_failed(path, "read it");
        if (n == 0)
            return PJRT_FAIL(DATA_LOSS, call, "%s: it is shorter than what was written", path);
        done += (size_t)n;
    }
    return NULL;
}

static pjrt_status *read_piece(const joint *j, const ttt__checkpoint_shard *p, float *out)
{
    char path[PATH_MAX];
    PJRT_TRY(blocks_path(j, p->process, path));
    int fd = TEMP_FAILURE_RETRY(open(path, O_RDONLY | O_CLOEXEC));
    if (fd < 0)
        return ttt__io_failed(path, "read it");
    pjrt_status *st = read_all(fd, path, p->offset * (int64_t)sizeof *out, out, piece_bytes(j, p));
    close(fd);
    return st;
}

static pjrt_status *collect_piece(const joint *j, const ttt__checkpoint_shard *p, float *whole)
{
    const hlo_shape *shape = &j->snapshot->params->list[p->param].shape;
    float *values = p->process == j->rank ? p->values : malloc(piece_bytes(j, p) + 1);
    pjrt_status *st = values == NULL        ? PJRT_NO_MEMORY(call)
                      : values == p->values ? NULL
                                            : read_piece(j, p, values);
    if (st == NULL)
        ttt__block_copy(shape, &p->block, whole, values, false);
    if (values != p->values)
        free(values);
    return st;
}

/* A parameter from the blocks of all. */
static bool collect(void *ctx, int index, float *out, ttt_error *error)
{
    collecting *c = ctx;
    const ttt__snapshot *s = c->j->snapshot;
    for (int i = 0; i < s->n_pieces && c->failed == NULL; i++) {
        if (s->pieces[i].set == c->set && s->pieces[i].param == index)
            c->failed = collect_piece(c->j, &s->pieces[i], out);
    }
    if (c->failed != NULL)
        snprintf(error->message, sizeof error->message, "%s", pjrt_status_message(c->failed));
    return c->failed == NULL;
}

/* As many files as there are processes, or more, where they would be too large. */
static size_t file_bytes(const joint *j)
{
    int64_t all = j->snapshot->params->elements * (int64_t)sizeof(float);
    int64_t each = (all + j->size - 1) / j->size, most = j->store->options.shard_bytes;
    return (size_t)(each < most ? each : most);
}

static pjrt_status *write_set(const joint *j, const char *folder, int set)
{
    char path[PATH_MAX], name[32];
    ttt_error error;
    collecting c = {.j = j, .set = set};
    snprintf(name, sizeof name, "%s.safetensors", ttt__set_names[set]);
    PJRT_TRY(ttt__path_join(folder, name, path));
    bool ok = ttt_params_save_part(j->snapshot->params, path, HLO_F32, file_bytes(j), j->rank,
                                   j->size, collect, &c, &error);
    if (c.failed != NULL)
        return c.failed;
    return ok ? NULL : PJRT_FAIL(UNAVAILABLE, call, "%s", error.message);
}

static pjrt_status *write_part(const joint *j)
{
    char folder[PATH_MAX], path[PATH_MAX];
    ttt_error error;
    PJRT_TRY(part_path(j, j->rank, folder));
    PJRT_TRY(ttt__folder_make(folder));
    for (int set = 0; set < TTT__SETS; set++)
        PJRT_TRY(write_set(j, folder, set));
    if (j->rank == 0) {
        PJRT_TRY(ttt__path_join(folder, "config.json", path));
        if (!ttt_config_write(j->snapshot->config, path, &error))
            return PJRT_FAIL(UNAVAILABLE, call, "%s", error.message);
    }
    PJRT_TRY(ttt__checkpoint_describe(folder, j->snapshot));
    return ttt__folder_sync(folder);
}

/* ---- 4: the checkpoint -------------------------------------------------------------------------
 */

/* The hash of a part's manifest, which has those of its files. */
typedef struct seal {
    uint64_t hash[2];
} seal;

static pjrt_status *part_seal(const joint *j, int process, seal *out)
{
    char folder[PATH_MAX], path[PATH_MAX];
    ttt__digest digest;
    PJRT_TRY(part_path(j, process, folder));
    PJRT_TRY(ttt__path_join(folder, "manifest.json", path));
    PJRT_TRY(ttt__digest_file(path, NULL, &digest));
    memcpy(out->hash, digest.whole, sizeof out->hash);
    ttt__digest_free(&digest);
    return NULL;
}

/* Files of a part to where they belong, and what is known of them to the manifest of all. */
static pjrt_status *move_files(const joint *j, const char *folder, ttt__manifest *part,
                               ttt__manifest *all)
{
    char from[PATH_MAX], to[PATH_MAX];
    size_t room = (size_t)(all->files.count + part->files.count) + 1;
    ttt__manifest_file *files = realloc(all->files.list, room * sizeof *files);
    if (files == NULL)
        return PJRT_NO_MEMORY(call);
    all->files.list = files;
    for (int i = 0; i < part->files.count; i++) {
        PJRT_TRY(ttt__path_join(folder, part->files.list[i].name, from));
        PJRT_TRY(ttt__path_join(j->writing, part->files.list[i].name, to));
        if (TEMP_FAILURE_RETRY(rename(from, to)) != 0)
            return ttt__io_failed(from, "rename it");
        files[all->files.count++] = part->files.list[i];
        part->files.list[i] = (ttt__manifest_file){0};
    }
    return NULL;
}

static pjrt_status *take_part(const joint *j, int process, const seal *told, ttt__manifest *all)
{
    char folder[PATH_MAX], blocks[PATH_MAX];
    ttt__manifest part;
    seal found;
    PJRT_TRY(part_path(j, process, folder));
    PJRT_TRY(blocks_path(j, process, blocks));
    PJRT_TRY(part_seal(j, process, &found));
    if (memcmp(&found, told, sizeof found) != 0)
        return PJRT_FAIL(DATA_LOSS, call,
                         "%s/manifest.json is not what %s wrote: do all processes see the same "
                         "folder?",
                         folder, ttt_job_name(j->store->options.job, process));
    PJRT_TRY(ttt__checkpoint_manifest(folder, &part));
    pjrt_status *st = move_files(j, folder, &part, all);
    ttt__manifest_free(&part);
    if (st == NULL)
        st = ttt__tree_remove(folder);
    return st == NULL ? ttt__tree_remove(blocks) : st;
}

static pjrt_status *commit(const joint *j, const seal *seals)
{
    ttt__manifest all = {.step = j->snapshot->step};
    all.training = json_deep_copy(j->snapshot->training);
    pjrt_status *st = all.training == NULL ? PJRT_NO_MEMORY(call) : NULL;
    for (int r = 0; st == NULL && r < j->size; r++)
        st = take_part(j, r, &seals[r], &all);
    if (st == NULL)
        st = ttt__checkpoint_declare(j->writing, &all);
    if (st == NULL)
        st = ttt__folder_sync(j->writing);
    if (st == NULL)
        st = ttt__checkpoint_dir_publish(j->store, j->snapshot->step, j->old.there);
    ttt__manifest_free(&all);
    return st;
}

/* What each has written is told to the first, who believes nothing else. */
static pjrt_status *gather_seals(const joint *j, seal **seals)
{
    seal mine = {{0}};
    char name[48];
    void *all = NULL;
    pjrt_status *st = ttt__agree(&j->store->meetings, part_seal(j, j->rank, &mine));
    snprintf(name, sizeof name, "store.%lld.seals", (long long)j->store->meetings.count);
    if (st == NULL)
        st = ttt_job_gather(j->store->options.job, name, &mine, sizeof mine, &all);
    *seals = all;
    return st;
}

/* ---- all of it ---------------------------------------------------------------------------------
 */

static pjrt_status *write_together(joint *j)
{
    ttt__agreements *all = &j->store->meetings;
    seal *seals;
    PJRT_TRY(ttt__agree_reported(all, make_room(j), &j->old, sizeof j->old));
    if (j->old.whole)
        return NULL;
    PJRT_TRY(ttt__agree(all, write_blocks(j)));
    PJRT_TRY(ttt__agree(all, write_part(j)));
    PJRT_TRY(gather_seals(j, &seals));
    pjrt_status *st = j->rank == 0 ? commit(j, seals) : NULL;
    free(seals);
    return ttt__agree(all, st);
}

pjrt_status *ttt__checkpoint_dir_write_multi(ttt__checkpoint_dir *store,
                                             const ttt__snapshot *snapshot)
{
    joint j = {.store = store,
               .snapshot = snapshot,
               .rank = ttt_job_rank(store->options.job),
               .size = ttt_job_size(store->options.job)};
    PJRT_TRY(ttt__step_path(store->folder, snapshot->step, "", j.path));
    PJRT_TRY(ttt__step_path(store->folder, snapshot->step, ".writing", j.writing));
    pjrt_status *st = write_together(&j);
    if (st != NULL && j.rank == 0)
        pjrt_status_free(ttt__tree_remove(j.writing));
    return st;
}
