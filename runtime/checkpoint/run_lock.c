/* One process a run: a lock that goes with the process, and a file that says whose it is. */
#include "runtime/base/files.h"
#include "runtime/checkpoint/checkpoints.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static const char call[] = "lock";

enum { OWNER = 320 }; /* "process PID on HOST" */

struct ttt__lock {
    int fd;
};

/* What the holder wrote; it may not have come to it yet. */
static void read_owner(int fd, char owner[OWNER])
{
    ssize_t size = TEMP_FAILURE_RETRY(pread(fd, owner, OWNER - 1, 0));
    owner[size < 0 ? 0 : size] = '\0';
    owner[strcspn(owner, "\n")] = '\0';
    if (strncmp(owner, "process ", 8) != 0)
        snprintf(owner, OWNER, "another process");
}

static bool write_owner(int fd)
{
    char host[256] = "", owner[OWNER];
    gethostname(host, sizeof host - 1);
    int size = snprintf(owner, sizeof owner, "process %ld on %s\n", (long)getpid(), host);
    return TEMP_FAILURE_RETRY(ftruncate(fd, 0)) == 0 &&
           TEMP_FAILURE_RETRY(pwrite(fd, owner, (size_t)size, 0)) == size;
}

static pjrt_status *take(int fd, const char *folder, const char *path)
{
    char owner[OWNER];
    if (TEMP_FAILURE_RETRY(flock(fd, LOCK_EX | LOCK_NB)) != 0) {
        if (errno != EWOULDBLOCK)
            return ttt__io_failed(path, "lock it");
        read_owner(fd, owner);
        return PJRT_FAIL(FAILED_PRECONDITION, call,
                         "%s is in use by %s: stop it or choose another folder", folder, owner);
    }
    return write_owner(fd) ? NULL : ttt__io_failed(path, "write to it");
}

pjrt_status *ttt__lock_take(const char *folder, ttt__lock **out)
{
    char path[PATH_MAX];
    *out = NULL;
    PJRT_TRY(ttt__folder_make(folder));
    PJRT_TRY(ttt__path_join(folder, "lock", path));
    ttt__lock *lock = calloc(1, sizeof *lock);
    if (lock == NULL)
        return PJRT_NO_MEMORY(call);
    lock->fd = TEMP_FAILURE_RETRY(open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    pjrt_status *st = lock->fd < 0 ? ttt__io_failed(path, "open it") : take(lock->fd, folder, path);
    if (st != NULL)
        ttt__lock_free(lock);
    else
        *out = lock;
    return st;
}

/* The file stays: another that waits for it must not find itself with a lock on a file that is
 * gone. */
void ttt__lock_free(ttt__lock *lock)
{
    if (lock == NULL)
        return;
    if (lock->fd >= 0)
        close(lock->fd);
    free(lock);
}
