/* Small things about files that preparing data and reading it share. */
#include "runtime/data.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char call[] = "data";

char *ttt__data_path(const char *folder, const char *name)
{
    size_t room = strlen(folder) + strlen(name) + 2;
    char *path = malloc(room);
    if (path != NULL)
        snprintf(path, room, "%s/%s", folder, name);
    return path;
}

pjrt_status *ttt__data_io_failed(const char *path)
{
    int error = errno;
    switch (error) {
    case ENOENT:
        return PJRT_FAIL(NOT_FOUND, call, "%s: %s", path, strerror(error));
    case EACCES:
    case EPERM:
    case EROFS:
        return PJRT_FAIL(PERMISSION_DENIED, call, "%s: %s", path, strerror(error));
    case ENOSPC:
    case EDQUOT:
        return PJRT_FAIL(RESOURCE_EXHAUSTED, call,
                         "%s: %s: make room and run it again, it will go on", path,
                         strerror(error));
    case ENOMEM:
        return PJRT_NO_MEMORY(call);
    default:
        return PJRT_FAIL(UNAVAILABLE, call, "%s: %s", path, strerror(error));
    }
}

pjrt_status *ttt__data_read_file(const char *path, size_t most, char **bytes, size_t *size)
{
    struct stat info;
    pjrt_status *st = NULL;
    *bytes = NULL;
    *size = 0;
    FILE *file = fopen(path, "rbe");
    if (file == NULL)
        return ttt__data_io_failed(path);
    if (fstat(fileno(file), &info) != 0 || !S_ISREG(info.st_mode) ||
        (uint64_t)info.st_size > most) {
        st = PJRT_FAIL(INVALID_ARGUMENT, call, "%s: not a file of at most %zu bytes", path, most);
    } else if ((*bytes = malloc((size_t)info.st_size + 1)) == NULL) {
        st = PJRT_NO_MEMORY(call);
    } else {
        *size = fread(*bytes, 1, (size_t)info.st_size, file);
        (*bytes)[*size] = '\0';
        if (ferror(file))
            st = PJRT_FAIL(UNAVAILABLE, call, "%s: it cannot be read", path);
    }
    fclose(file);
    if (st != NULL) {
        free(*bytes);
        *bytes = NULL;
    }
    return st;
}

bool ttt__data_write(int fd, const void *bytes, size_t size)
{
    const char *at = bytes;
    while (size > 0) {
        ssize_t n = write(fd, at, size);
        if (n < 0 && errno != EINTR)
            return false;
        if (n > 0) {
            at += n;
            size -= (size_t)n;
        }
    }
    return true;
}

/* A new name is on the disk only when its folder is. Not every file system can say so. */
static void sync_folder(const char *folder)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    fsync(fd);
    close(fd);
}

static bool write_new(const char *path, const void *bytes, size_t size)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return false;
    bool ok = ttt__data_write(fd, bytes, size) && fsync(fd) == 0;
    int error = errno;
    if (close(fd) != 0 && ok) {
        error = errno;
        ok = false;
    }
    errno = error;
    return ok;
}

pjrt_status *ttt__data_write_file(const char *folder, const char *name, const void *bytes,
                                  size_t size)
{
    pjrt_status *st = NULL;
    char *path = ttt__data_path(folder, name), *temporary = NULL;
    if (path == NULL || asprintf(&temporary, "%s.tmp", path) < 0) {
        free(path);
        return PJRT_NO_MEMORY(call);
    }
    if (!write_new(temporary, bytes, size) || rename(temporary, path) != 0) {
        st = ttt__data_io_failed(path);
        unlink(temporary);
    } else {
        sync_folder(folder);
    }
    free(temporary);
    free(path);
    return st;
}
