/* Private to the runtime room: files and folders that survive crashes, and what tells whether they
 * did. Paths are at most PATH_MAX long; longer ones are refused. */
#ifndef RUNTIME_BASE_FILES_H
#define RUNTIME_BASE_FILES_H

#include "pjrt/pjrt_status.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

/* "PATH: cannot DO: reason", with the code that errno stands for; "PATH: reason" when `what` is
 * NULL. */
PJRT_MUST_CHECK pjrt_status *ttt__io_failed(const char *path, const char *what);
/* FOLDER/NAME. */
PJRT_MUST_CHECK pjrt_status *ttt__path_join(const char *folder, const char *name,
                                            char path[PATH_MAX]);

/* The same for any length, or NULL when out of memory; the caller frees it. */
char *ttt__path_new(const char *folder, const char *name);

/* The folder that a path's last name is in. */
PJRT_MUST_CHECK pjrt_status *ttt__folder_of(const char *path, char folder[PATH_MAX]);

/* ---- folders -----------------------------------------------------------------------------------
 */

/* Makes it, and what is above it, unless it is there; on the disk when this returns. */
PJRT_MUST_CHECK pjrt_status *ttt__folder_make(const char *path);
/* Names that were added, changed and removed in it are on the disk. */
PJRT_MUST_CHECK pjrt_status *ttt__folder_sync(const char *path);
/* Names in it but for "." and "..", sorted. None when there is no such folder. */
typedef struct ttt__names {
    char **list;
    int count;
} ttt__names;
PJRT_MUST_CHECK pjrt_status *ttt__folder_list(const char *path, ttt__names *out);
void ttt__names_free(ttt__names *names);
/* Removes a file or a folder with all that is in it; links are removed, not followed. It is a
 * success when nothing is there. */
PJRT_MUST_CHECK pjrt_status *ttt__tree_remove(const char *path);

/* ---- files -------------------------------------------------------------------------------------
 */

/* A file that must not be there yet; on the disk when this returns, but for its name. */
PJRT_MUST_CHECK pjrt_status *ttt__file_make(const char *path, const void *bytes, size_t size);
/* The same with the bytes of another file. */
PJRT_MUST_CHECK pjrt_status *ttt__file_copy(const char *from, const char *to);
/* A file of a folder in which nobody else writes: in place of an older one, whole or not at all,
 * and on the disk when this returns. */
PJRT_MUST_CHECK pjrt_status *ttt__file_replace(const char *folder, const char *name,
                                               const void *bytes, size_t size);
/* Writes all of it, however often it takes. False: errno says why. */
bool ttt__write_all(int fd, const void *bytes, size_t size);
/* A whole file with a NUL behind it; the caller frees it. */
PJRT_MUST_CHECK pjrt_status *ttt__file_read(const char *path, size_t most, char **bytes,
                                            size_t *size);

/* A file that grows by whole records: when one cannot be written, none of it stays. */
typedef struct ttt__log {
    char path[PATH_MAX];
    int fd;
    int64_t size;
} ttt__log;
/* Opens or makes it, to add at the end. */
PJRT_MUST_CHECK pjrt_status *ttt__log_open(const char *path, ttt__log *log);
PJRT_MUST_CHECK pjrt_status *ttt__log_put(ttt__log *log, const void *bytes, size_t size);
PJRT_MUST_CHECK pjrt_status *ttt__log_sync(ttt__log *log);
void ttt__log_close(ttt__log *log); /* once or more often */

/* ---- hashes ------------------------------------------------------------------------------------
 */

enum { TTT__CHECKPOINT_SHARD = 1 << 20 };

/* What is known of a file's content. */
typedef struct ttt__digest {
    int64_t size;
    uint64_t whole[2]; /* XXH3-128: high, low */
    uint64_t *pieces;  /* XXH3-64 of each MiB; the last may be shorter */
} ttt__digest;

/* How many pieces a file of that size has. */
int64_t ttt__digest_chunks(int64_t size);
/* Reads the file. With `known`, which may be NULL, it stops at the first difference with DATA_LOSS
 * and its offset, and so it does when the file is missing, cut or cannot be read. */
PJRT_MUST_CHECK pjrt_status *ttt__digest_file(const char *path, const ttt__digest *known,
                                              ttt__digest *out);
void ttt__digest_free(ttt__digest *digest);

#endif
