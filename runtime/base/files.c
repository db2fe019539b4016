/* Files and folders: made, listed, synced, removed, grown by whole records. */
#include "runtime/base/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char call[] = "files";

enum { MOST_DEPTH = 32, MOST_NAMES = 1 << 20 };

static pjrt_code code_of(int error)
{
    switch (error) {
    case ENOENT:
    case ENOTDIR:
        return PJRT_CODE_NOT_FOUND;
    case EACCES:
    case EPERM:
    case EROFS:
        return PJRT_CODE_PERMISSION_DENIED;
    case EEXIST:
        return PJRT_CODE_ALREADY_EXISTS;
    case ENOSPC:
    case EDQUOT:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
        return PJRT_CODE_RESOURCE_EXHAUSTED;
    default:
        return PJRT_CODE_UNAVAILABLE;
    }
}

pjrt_status *ttt__io_failed(const char *path, const char *what)
{
    int error = errno;
    const char *hint = error == ENOSPC || error == EDQUOT ? ": make room and run it again" : "";
    if (what == NULL)
        return pjrt_status_make(code_of(error), call, __FILE__, __LINE__, "%s: %s%s", path,
                                strerror(error), hint);
    return pjrt_status_make(code_of(error), call, __FILE__, __LINE__, "%s: cannot %s: %s%s", path,
                            what, strerror(error), hint);
}

char *ttt__path_new(const char *folder, const char *name)
{
    size_t room = strlen(folder) + strlen(name) + 2;
    char *path = malloc(room);
    if (path != NULL)
        snprintf(path, room, "%s/%s", folder, name);
    return path;
}

pjrt_status *ttt__path_join(const char *folder, const char *name, char path[PATH_MAX])
{
    if (snprintf(path, PATH_MAX, "%s/%s", folder, name) >= PATH_MAX)
        return PJRT_FAIL(INVALID_ARGUMENT, call, "%.100s…: the path is too long", folder);
    return NULL;
}

pjrt_status *ttt__folder_of(const char *path, char folder[PATH_MAX])
{
    const char *slash = strrchr(path, '/');
    size_t length = slash == NULL ? 0 : slash == path ? 1 : (size_t)(slash - path);
    if (length >= PATH_MAX)
        return PJRT_FAIL(INVALID_ARGUMENT, call, "%.100s…: the path is too long", path);
    memcpy(folder, length == 0 ? "." : path, length == 0 ? 1 : length);
    folder[length == 0 ? 1 : length] = '\0';
    return NULL;
}

/* ---- folders -----------------------------------------------------------------------------------
 */

pjrt_status *ttt__folder_sync(const char *path)
{
    int fd = TEMP_FAILURE_RETRY(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (fd < 0)
        return ttt__io_failed(path, "open it");
    /* EINVAL: a file system that cannot sync folders, and needs not. */
    pjrt_status *st = TEMP_FAILURE_RETRY(fsync(fd)) == 0 || errno == EINVAL
                          ? NULL
                          : ttt__io_failed(path, "sync it");
    close(fd);
    return st;
}

/* The folder that a path's last name is in, with `path` cut in place. */
static const char *parent_of(char *path)
{
    char *slash = strrchr(path, '/');
    if (slash == NULL)
        return ".";
    if (slash == path)
        return "/";
    *slash = '\0';
    return path;
}

/* One folder, whose parent is there. */
static pjrt_status *make_one(const char *path)
{
    struct stat info;
    char above[PATH_MAX];
    if (TEMP_FAILURE_RETRY(mkdir(path, 0777)) != 0) {
        int error = errno; /* whatever it is: a folder that is there will do */
        if (stat(path, &info) == 0 && S_ISDIR(info.st_mode))
            return NULL;
        errno = error;
        return ttt__io_failed(path, "make the folder");
    }
    snprintf(above, sizeof above, "%s", path);
    return ttt__folder_sync(parent_of(above));
}

pjrt_status *ttt__folder_make(const char *path)
{
    char part[PATH_MAX];
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    if (length == 0 || length >= sizeof part)
        return PJRT_FAIL(INVALID_ARGUMENT, call, "\"%.100s\": the path is empty or too long", path);
    for (size_t i = 1; i <= length; i++) {
        if (i < length && (path[i] != '/' || path[i - 1] == '/'))
            continue;
        memcpy(part, path, i);
        part[i] = '\0';
        PJRT_TRY(make_one(part));
    }
    return NULL;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static pjrt_status *add_name(ttt__names *names, const char *name)
{
    if (names->count == MOST_NAMES)
        return PJRT_FAIL(RESOURCE_EXHAUSTED, call, "a folder of more than %d files", MOST_NAMES);
    if ((names->count & (names->count - 1)) == 0) { /* full at 0, 1, 2, 4, 8 … */
        size_t room = names->count == 0 ? 1 : 2 * (size_t)names->count;
        char **larger = realloc(names->list, room * sizeof *larger);
        if (larger == NULL)
            return PJRT_NO_MEMORY(call);
        names->list = larger;
    }
    char *copy = strdup(name);
    if (copy == NULL)
        return PJRT_NO_MEMORY(call);
    names->list[names->count++] = copy;
    return NULL;
}

/* All names of an open folder, which is closed. */
static pjrt_status *read_names(DIR *folder, const char *path, ttt__names *out)
{
    pjrt_status *st = NULL;
    while (st == NULL) {
        errno = 0;
        const struct dirent *entry = readdir(folder);
        if (entry == NULL) {
            if (errno != 0)
                st = ttt__io_failed(path, "list it");
            break;
        }
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            st = add_name(out, entry->d_name);
    }
    closedir(folder);
    if (st == NULL && out->count > 0)
        qsort(out->list, (size_t)out->count, sizeof *out->list, by_text);
    if (st != NULL)
        ttt__names_free(out);
    return st;
}

pjrt_status *ttt__folder_list(const char *path, ttt__names *out)
{
    *out = (ttt__names){0};
    DIR *folder = opendir(path);
    if (folder == NULL)
        return errno == ENOENT ? NULL : ttt__io_failed(path, "list it");
    return read_names(folder, path, out);
}

void ttt__names_free(ttt__names *names)
{
    for (int i = 0; i < names->count; i++)
        free(names->list[i]);
    free(names->list);
    *names = (ttt__names){0};
}

static pjrt_status *remove_entry(int above, const char *name, const char *path, int depth);

/* All that is in a folder, which is not followed when it is a link. */
static pjrt_status *remove_inside(int above, const char *name, const char *path, int depth)
{
    ttt__names names = {0};
    int fd =
        TEMP_FAILURE_RETRY(openat(above, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    int again = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0); /* the stream takes one */
    DIR *folder = again < 0 ? NULL : fdopendir(again);
    pjrt_status *st =
        folder == NULL ? ttt__io_failed(path, "open it") : read_names(folder, path, &names);
    if (folder == NULL && again >= 0)
        close(again);
    for (int i = 0; st == NULL && i < names.count; i++)
        st = remove_entry(fd, names.list[i], path, depth + 1);
    ttt__names_free(&names);
    if (fd >= 0)
        close(fd);
    return st;
}

static pjrt_status *remove_entry(int above, const char *name, const char *path, int depth)
{
    if (depth > MOST_DEPTH)
        return PJRT_FAIL(FAILED_PRECONDITION, call, "%s: folders nested too deep to remove", path);
    if (TEMP_FAILURE_RETRY(unlinkat(above, name, 0)) == 0 || errno == ENOENT)
        return NULL;
    if (errno != EISDIR && errno != EPERM) /* what unlinking a folder gives, here and by POSIX */
        return ttt__io_failed(path, "remove it");
    PJRT_TRY(remove_inside(above, name, path, depth));
    if (TEMP_FAILURE_RETRY(unlinkat(above, name, AT_REMOVEDIR)) == 0 || errno == ENOENT)
        return NULL;
    return ttt__io_failed(path, "remove it");
}

pjrt_status *ttt__tree_remove(const char *path)
{
    return remove_entry(AT_FDCWD, path, path, 0);
}

/* ---- files -------------------------------------------------------------------------------------
 */

bool ttt__write_all(int fd, const void *bytes, size_t size)
{
    const char *at = bytes;
    while (size > 0) {
        ssize_t n = TEMP_FAILURE_RETRY(write(fd, at, size));
        if (n < 0)
            return false;
        at += n;
        size -= (size_t)n;
    }
    return true;
}

/* On the disk, and closed; what failed before or does here takes the file away. */
static pjrt_status *finish_file(int fd, const char *path, pjrt_status *st)
{
    if (st == NULL && TEMP_FAILURE_RETRY(fsync(fd)) != 0)
        st = ttt__io_failed(path, "sync it");
    if (close(fd) != 0 && st == NULL && errno != EINTR) /* interrupted, it is closed all the same */
        st = ttt__io_failed(path, "close it");
    if (st != NULL)
        unlink(path);
    return st;
}

pjrt_status *ttt__file_make(const char *path, const void *bytes, size_t size)
{
    int fd = TEMP_FAILURE_RETRY(open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (fd < 0)
        return ttt__io_failed(path, "make it");
    pjrt_status *st = ttt__write_all(fd, bytes, size) ? NULL : ttt__io_failed(path, "write it");
    return finish_file(fd, path, st);
}

static pjrt_status *copy_bytes(int from, const char *from_path, int to, const char *to_path)
{
    enum { ROOM = 1 << 20 };
    char *room = malloc(ROOM);
    pjrt_status *st = room == NULL ? PJRT_NO_MEMORY(call) : NULL;
    for (ssize_t n = 1; n > 0 && st == NULL;) {
        n = TEMP_FAILURE_RETRY(read(from, room, ROOM));
        if (n < 0)
            st = ttt__io_failed(from_path, "read it");
        else if (!ttt__write_all(to, room, (size_t)n))
            st = ttt__io_failed(to_path, "write it");
    }
    free(room);
    return st;
}

pjrt_status *ttt__file_copy(const char *from, const char *to)
{
    int in = TEMP_FAILURE_RETRY(open(from, O_RDONLY | O_CLOEXEC));
    if (in < 0)
        return ttt__io_failed(from, "open it");
    int out = TEMP_FAILURE_RETRY(open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    pjrt_status *st = out < 0 ? ttt__io_failed(to, "make it") : copy_bytes(in, from, out, to);
    close(in);
    return out < 0 ? st : finish_file(out, to, st);
}

pjrt_status *ttt__file_replace(const char *folder, const char *name, const void *bytes, size_t size)
{
    char path[PATH_MAX], fresh[PATH_MAX], fresh_name[NAME_MAX];
    if (snprintf(fresh_name, sizeof fresh_name, "%s.tmp", name) >= (int)sizeof fresh_name)
        return PJRT_FAIL(INVALID_ARGUMENT, call, "%.100s…: the name is too long", name);
    PJRT_TRY(ttt__path_join(folder, name, path));
    PJRT_TRY(ttt__path_join(folder, fresh_name, fresh));
    PJRT_TRY(ttt__tree_remove(fresh)); /* of one that was killed */
    PJRT_TRY(ttt__file_make(fresh, bytes, size));
    if (TEMP_FAILURE_RETRY(rename(fresh, path)) != 0) {
        pjrt_status *st = ttt__io_failed(path, "replace it");
        unlink(fresh);
        return st;
    }
    return ttt__folder_sync(folder);
}

static pjrt_status *read_all(int fd, const char *path, size_t most, char **bytes, size_t *size)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return ttt__io_failed(path, "read it");
    if (!S_ISREG(info.st_mode) || (uint64_t)info.st_size > most)
        return PJRT_FAIL(DATA_LOSS, call, "%s: not a file of at most %zu bytes", path, most);
    *bytes = malloc((size_t)info.st_size + 1);
    if (*bytes == NULL)
        return PJRT_NO_MEMORY(call);
    for (*size = 0; *size < (size_t)info.st_size;) {
        ssize_t n = TEMP_FAILURE_RETRY(read(fd, *bytes + *size, (size_t)info.st_size - *size));
        if (n < 0)
            return ttt__io_failed(path, "read it");
        if (n == 0)
            break;
        *size += (size_t)n;
    }
    (*bytes)[*size] = '\0';
    return NULL;
}

pjrt_status *ttt__file_read(const char *path, size_t most, char **bytes, size_t *size)
{
    *bytes = NULL;
    int fd = TEMP_FAILURE_RETRY(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (fd < 0)
        return ttt__io_failed(path, "open it");
    pjrt_status *st = read_all(fd, path, most, bytes, size);
    close(fd);
    if (st != NULL) {
        free(*bytes);
        *bytes = NULL;
    }
    return st;
}

/* ---- files that grow ---------------------------------------------------------------------------
 */

pjrt_status *ttt__log_open(const char *path, ttt__log *log)
{
    struct stat info;
    log->fd = -1;
    if (snprintf(log->path, sizeof log->path, "%s", path) >= (int)sizeof log->path)
        return PJRT_FAIL(INVALID_ARGUMENT, call, "%.100s…: the path is too long", path);
    log->fd = TEMP_FAILURE_RETRY(open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
    if (log->fd < 0)
        return ttt__io_failed(path, "open it");
    if (fstat(log->fd, &info) == 0) {
        log->size = info.st_size;
        return NULL;
    }
    pjrt_status *st = ttt__io_failed(path, "open it");
    ttt__log_close(log);
    return st;
}

pjrt_status *ttt__log_put(ttt__log *log, const void *bytes, size_t size)
{
    if (ttt__write_all(log->fd, bytes, size)) {
        log->size += (int64_t)size;
        return NULL;
    }
    pjrt_status *st = ttt__io_failed(log->path, "write to it");
    if (TEMP_FAILURE_RETRY(ftruncate(log->fd, log->size)) != 0) {
        pjrt_status_free(st);
        st = ttt__io_failed(log->path, "take back half a record");
    }
    return st;
}

pjrt_status *ttt__log_sync(ttt__log *log)
{
    return TEMP_FAILURE_RETRY(fdatasync(log->fd)) == 0 ? NULL
                                                       : ttt__io_failed(log->path, "sync it");
}

void ttt__log_close(ttt__log *log)
{
    if (log->fd >= 0)
        close(log->fd);
    log->fd = -1;
}
