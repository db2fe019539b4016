/*
 * For tests that make calls of the system fail: the build wraps them (tests/CMakeLists.txt), and
 * from the moment it is armed the n-th of them fails as `fault_now` says. Included by one file a
 * program.
 *
 *     for (size_t i = 0; i < N_FAULTS; i++) {
 *         fault_now = &faults[i];
 *         for (fail_at = 1;; fail_at++) {
 *             calls = 0;
 *             armed = true;
 *             … what is tested …
 *             armed = false;
 *             if (calls < fail_at) break;
 *         }
 *     }
 */
#ifndef TESTS_SUPPORT_FAULTS_H
#define TESTS_SUPPORT_FAULTS_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct fault {
    const char *name;
    int error;
    bool forever; /* that call and all after it */
    bool partly;  /* a write takes half of what it is given, and is no failure */
} fault;

static const fault faults[] = {
    {"EIO", EIO, false, false},
    {"ENOSPC", ENOSPC, false, false},
    {"EINTR", EINTR, false, false},
    {"a short write", 0, false, true},
    {"EIO from then on", EIO, true, false},
    {"ENOSPC from then on", ENOSPC, true, false},
};

static const fault *fault_now; /* the kind that is tried */
static bool armed;
static int calls, fail_at;

/* A call that only looks or listens is not interrupted by what libc does inside, and does not run
 * out of room. */
typedef enum kind { LOOKS, READS, CHANGES, WRITES } kind;

static bool fails(kind which)
{
    if (!armed || ++calls < fail_at || (calls > fail_at && !fault_now->forever))
        return false;
    if ((fault_now->partly && which != WRITES) || (fault_now->error == EINTR && which == LOOKS) ||
        (fault_now->error == ENOSPC && which < CHANGES))
        return false;
    errno = fault_now->error;
    return true;
}

#define FAULT_WRAP(kind, type, failed, name, parameters, arguments) \
    type __real_##name parameters;                                  \
    type __wrap_##name parameters;                                  \
    type __wrap_##name parameters                                   \
    {                                                               \
        return fails(kind) ? failed : __real_##name arguments;      \
    }
FAULT_WRAP(CHANGES, int, -1, fsync, (int fd), (fd))
FAULT_WRAP(CHANGES, int, -1, fdatasync, (int fd), (fd))
FAULT_WRAP(CHANGES, int, -1, ftruncate, (int fd, off_t size), (fd, size))
FAULT_WRAP(CHANGES, int, -1, rename, (const char *from, const char *to), (from, to))
FAULT_WRAP(CHANGES, int, -1, mkdir, (const char *path, mode_t mode), (path, mode))
FAULT_WRAP(CHANGES, int, -1, unlink, (const char *path), (path))
FAULT_WRAP(CHANGES, int, -1, unlinkat, (int fd, const char *path, int flags), (fd, path, flags))
FAULT_WRAP(READS, int, -1, flock, (int fd, int operation), (fd, operation))
FAULT_WRAP(READS, ssize_t, -1, read, (int fd, void *to, size_t size), (fd, to, size))
FAULT_WRAP(READS, ssize_t, -1, pread, (int fd, void *to, size_t size, off_t at), (fd, to, size, at))
FAULT_WRAP(LOOKS, DIR *, NULL, opendir, (const char *path), (path))
FAULT_WRAP(LOOKS, DIR *, NULL, fdopendir, (int fd), (fd))
FAULT_WRAP(LOOKS, struct dirent *, NULL, readdir, (DIR * folder), (folder))
FAULT_WRAP(LOOKS, FILE *, NULL, fopen, (const char *path, const char *mode), (path, mode))

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, mode_t mode);
int __wrap_open(const char *path, int flags, mode_t mode)
{
    return fails((flags & O_CREAT) != 0 ? CHANGES : READS) ? -1 : __real_open(path, flags, mode);
}

int __real_openat(int fd, const char *path, int flags, ...);
int __wrap_openat(int fd, const char *path, int flags, mode_t mode);
int __wrap_openat(int fd, const char *path, int flags, mode_t mode)
{
    return fails(READS) ? -1 : __real_openat(fd, path, flags, mode);
}

/* One that fails has closed it. */
int __real_close(int fd);
int __wrap_close(int fd);
int __wrap_close(int fd)
{
    bool bad = fails(CHANGES);
    int error = errno, result = __real_close(fd);
    errno = bad ? error : errno;
    return bad ? -1 : result;
}

ssize_t __real_write(int fd, const void *bytes, size_t size);
ssize_t __wrap_write(int fd, const void *bytes, size_t size);
ssize_t __wrap_write(int fd, const void *bytes, size_t size)
{
    if (!fails(WRITES))
        return __real_write(fd, bytes, size);
    return fault_now->partly ? __real_write(fd, bytes, (size + 1) / 2) : -1;
}

ssize_t __real_pwrite(int fd, const void *bytes, size_t size, off_t at);
ssize_t __wrap_pwrite(int fd, const void *bytes, size_t size, off_t at);
ssize_t __wrap_pwrite(int fd, const void *bytes, size_t size, off_t at)
{
    return fails(CHANGES) ? -1 : __real_pwrite(fd, bytes, size, at);
}

enum { N_FAULTS = sizeof faults / sizeof *faults };

#endif
