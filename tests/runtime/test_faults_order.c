/*
 * What must be on the disk before what, so that a machine that loses its power at any moment finds
 * whole checkpoints: all calls of a save and of a prune are recorded, and their order is judged.
 */
#include "runtime/checkpoint/checkpoints.h"
#include "tests/support/snapshot.h"
#include "tests/support/support.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- the record --------------------------------------------------------------------------------
 */

typedef enum kind { MAKE, WRITE, SYNC, RENAME, UNLINK } kind;

typedef struct call {
    kind what;
    char path[512]; /* below the folder; "" is the folder itself */
} call;

enum { MOST = 4096 };
static call calls[MOST];
static int count;
static bool recording;
static char folder[PATH_MAX];

static bool below(char out[512], const char *path)
{
    size_t length = strlen(folder);
    snprintf(out, 512, "%s", strlen(path) > length ? path + length + 1 : "");
    return strncmp(path, folder, length) == 0;
}

static void record(kind what, const char *path)
{
    if (!recording)
        return;
    assert_true(count < MOST);
    calls[count].what = what;
    if (below(calls[count].path, path))
        count++;
}

static void record_fd(kind what, int fd, const char *name)
{
    char link[64], path[PATH_MAX] = "", whole[2 * PATH_MAX];
    if (!recording)
        return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    assert_true(readlink(link, path, sizeof path - 1) > 0);
    snprintf(whole, sizeof whole, "%s%s%s", path, name[0] == '\0' ? "" : "/", name);
    record(what, whole);
}

#define WRAP(type, name, parameters, arguments, note) \
    type __real_##name parameters;                    \
    type __wrap_##name parameters;                    \
    type __wrap_##name parameters                     \
    {                                                 \
        note;                                         \
        return __real_##name arguments;               \
    }
WRAP(int, fsync, (int fd), (fd), record_fd(SYNC, fd, ""))
WRAP(int, fdatasync, (int fd), (fd), record_fd(SYNC, fd, ""))
WRAP(ssize_t, write, (int fd, const void *bytes, size_t size), (fd, bytes, size),
     record_fd(WRITE, fd, ""))
WRAP(int, rename, (const char *from, const char *to), (from, to), record(RENAME, from))
WRAP(int, mkdir, (const char *path, mode_t mode), (path, mode), record(MAKE, path))
WRAP(int, unlink, (const char *path), (path), record(UNLINK, path))
WRAP(int, close, (int fd), (fd), (void)0)
WRAP(int, flock, (int fd, int operation), (fd, operation), (void)0)
WRAP(int, ftruncate, (int fd, off_t size), (fd, size), fail())
WRAP(ssize_t, pwrite, (int fd, const void *bytes, size_t size, off_t at), (fd, bytes, size, at),
     fail())
WRAP(ssize_t, read, (int fd, void *to, size_t size), (fd, to, size), (void)0)
WRAP(ssize_t, pread, (int fd, void *to, size_t size, off_t at), (fd, to, size, at), (void)0)
WRAP(DIR *, opendir, (const char *path), (path), (void)0)
WRAP(DIR *, fdopendir, (int fd), (fd), (void)0)
WRAP(struct dirent *, readdir, (DIR * entries), (entries), (void)0)
WRAP(FILE *, fopen, (const char *path, const char *mode), (path, mode), (void)0)

/* Those of one path alone are a folder above's, or AT_FDCWD's with a whole path. */
int __real_unlinkat(int fd, const char *path, int flags);
int __wrap_unlinkat(int fd, const char *path, int flags);
int __wrap_unlinkat(int fd, const char *path, int flags)
{
    if (fd == AT_FDCWD)
        record(UNLINK, path);
    else
        record_fd(UNLINK, fd, path);
    return __real_unlinkat(fd, path, flags);
}

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, mode_t mode);
int __wrap_open(const char *path, int flags, mode_t mode)
{
    if ((flags & O_CREAT) != 0)
        record(MAKE, path);
    return __real_open(path, flags, mode);
}

int __real_openat(int fd, const char *path, int flags, ...);
int __wrap_openat(int fd, const char *path, int flags, mode_t mode);
int __wrap_openat(int fd, const char *path, int flags, mode_t mode)
{
    return __real_openat(fd, path, flags, mode);
}

/* ---- the judge ---------------------------------------------------------------------------------
 */

static bool inside(const char *path, const char *above)
{
    size_t length = strlen(above);
    return strncmp(path, above, length) == 0 && path[length] == '/';
}

/* A sync of `path` in [from, to). */
static bool synced(const char *path, int from, int to)
{
    for (int i = from; i < to; i++) {
        if (calls[i].what == SYNC && strcmp(calls[i].path, path) == 0)
            return true;
    }
    return false;
}

static int find_rename(const char *from)
{
    for (int i = 0; i < count; i++) {
        if (calls[i].what == RENAME && strcmp(calls[i].path, from) == 0)
            return i;
    }
    fail_msg("%s was not renamed", from);
    return -1;
}

static void save(ttt__checkpoint_dir *store, support_snapshot *state, int64_t step)
{
    support_snapshot_step(state, step);
    ASSERT_OK(ttt__checkpoint_dir_write(store, &state->snapshot));
    assert_null(ttt__checkpoint_dir_trouble(store));
}

/* Before the name: all bytes of all files, and all names within. */
static void check_written(int publish)
{
    int writes = 0, names = 0;
    for (int i = 0; i < publish; i++) {
        if (!inside(calls[i].path, "step-00000002.writing"))
            continue;
        if (calls[i].what == WRITE) {
            writes++;
            assert_true(synced(calls[i].path, i, publish));
        } else if (calls[i].what == RENAME || calls[i].what == MAKE) {
            names++;
            assert_true(synced("step-00000002.writing", i, publish));
        }
    }
    assert_true(writes > 0 && names > 0);
}

/* Before an old one loses its name, the new one has it; before a file of it goes, the name has. */
static void check_removed(int publish)
{
    int aside = find_rename("step-00000001"), unlinks = 0;
    assert_true(publish < aside && synced("", publish, aside));
    for (int i = 0; i < count; i++) {
        if (calls[i].what != UNLINK || !inside(calls[i].path, "step-00000001.removing"))
            continue;
        unlinks++;
        assert_true(i > aside && synced("", aside, i));
    }
    assert_true(unlinks > 0);
    for (int i = 0; i < count; i++) /* nothing is changed under a checkpoint's name */
        assert_true(calls[i].what == RENAME || (!inside(calls[i].path, "step-00000001") &&
                                                !inside(calls[i].path, "step-00000002")));
}

static void order(void **unused)
{
    support_snapshot state;
    ttt__checkpoint_dir *store;
    (void)unused;
    support_new_folder(folder);
    assert_true(support_snapshot_new(&state, TTT_STACKED));
    ASSERT_OK(ttt__checkpoint_dir_open(
        folder, &(ttt__checkpoint_dir_options){.keep = 1, .shard_bytes = 6000}, &store));
    save(store, &state, 1);
    recording = true;
    save(store, &state, 2);
    recording = false;
    int publish = find_rename("step-00000002.writing");
    check_written(publish);
    check_removed(publish);
    print_message("order: %d calls recorded, 0 out of order\n", count);
    ttt__checkpoint_dir_free(store);
    support_snapshot_free(&state);
    support_remove_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(order)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
