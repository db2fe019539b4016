/* JSON with limits, small files whole, and files that appear whole or not at all. */
#include "model/records.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The parser is recursive: depth is counted before it sees the text. */
static bool too_deep(const char *text, size_t size, int most)
{
    int depth = 0;
    bool string = false;
    for (size_t i = 0; i < size; i++) {
        char c = text[i];
        if (string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                string = false;
        } else if (c == '"') {
            string = true;
        } else if (c == '{' || c == '[') {
            if (++depth > most)
                return true;
        } else if (c == '}' || c == ']') {
            depth--;
        }
    }
    return false;
}

json_t *ttt__json_load(const char *text, size_t size, size_t most_bytes, int most_depth,
                       const char *what, ttt_error *error)
{
    json_error_t bad;
    if (size > most_bytes || too_deep(text, size, most_depth)) {
        ttt__fail(error, "%s: larger than %zu bytes or nested deeper than %d", what, most_bytes,
                  most_depth);
        return NULL;
    }
    json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &bad);
    if (root == NULL)
        ttt__fail(error, "%s: line %d: %s", what, bad.line, bad.text);
    return root;
}

char *ttt__read_file(const char *path, size_t most_bytes, size_t *size, ttt_error *error)
{
    FILE *file = fopen(path, "rb");
    struct stat info;
    char *bytes = NULL;
    *size = 0;
    if (file == NULL) {
        ttt__fail(error, "%s: %s", path, strerror(errno));
        return NULL;
    }
    if (fstat(fileno(file), &info) != 0 || !S_ISREG(info.st_mode) ||
        (uint64_t)info.st_size > most_bytes) {
        ttt__fail(error, "%s: not a file of at most %zu bytes", path, most_bytes);
    } else if ((bytes = malloc((size_t)info.st_size + 1)) == NULL) {
        ttt__no_memory(error);
    } else {
        *size = fread(bytes, 1, (size_t)info.st_size, file);
        bytes[*size] = '\0';
        if (ferror(file)) {
            ttt__fail(error, "%s: cannot be read", path);
            free(bytes);
            bytes = NULL;
        }
    }
    fclose(file);
    return bytes;
}

/* ---- new files ------------------------------------------------------------------------------- */

/* A name beside the file that nobody has: the process and a number of tries make it so. */
static bool open_temporary(ttt__new_file *file)
{
    size_t room = strlen(file->path) + 40;
    file->temporary = malloc(room);
    if (file->temporary == NULL) {
        errno = ENOMEM;
        return false;
    }
    for (int i = 0; i < 1000; i++) {
        snprintf(file->temporary, room, "%s.%ld-%d.tmp", file->path, (long)getpid(), i);
        file->fd = TEMP_FAILURE_RETRY(
            open(file->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
        if (file->fd >= 0 || errno != EEXIST)
            break;
    }
    return file->fd >= 0;
}

bool ttt__file_create(ttt__new_file *file, const char *path, ttt_error *error)
{
    *file = (ttt__new_file){.fd = -1};
    file->path = strdup(path);
    if (file->path == NULL)
        return ttt__no_memory(error);
    if (open_temporary(file))
        return true;
    ttt__fail(error, "%s: %s", path, strerror(errno));
    ttt__file_close(file, false, NULL);
    return false;
}

bool ttt__file_write(ttt__new_file *file, const void *bytes, size_t size, ttt_error *error)
{
    const char *at = bytes;
    while (size > 0) {
        ssize_t n = TEMP_FAILURE_RETRY(write(file->fd, at, size));
        if (n < 0)
            return ttt__fail(error, "%s: %s", file->path, strerror(errno));
        at += n;
        size -= (size_t)n;
    }
    return true;
}

/* The new name is on the disk only when the folder is. Not every file system can say so. */
static void sync_folder(char *path)
{
    int fd = TEMP_FAILURE_RETRY(open(dirname(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (fd < 0)
        return;
    fsync(fd);
    close(fd);
}

bool ttt__file_close(ttt__new_file *file, bool keep, ttt_error *error)
{
    bool ok = keep;
    if (file->fd >= 0) {
        ok = ok && TEMP_FAILURE_RETRY(fsync(file->fd)) == 0;
        ok = (close(file->fd) == 0 || errno == EINTR) && ok; /* closed all the same */
        ok = ok && TEMP_FAILURE_RETRY(rename(file->temporary, file->path)) == 0;
        if (keep && !ok)
            ttt__fail(error, "%s: %s", file->path, strerror(errno));
        if (!ok)
            unlink(file->temporary);
    }
    if (ok)
        sync_folder(file->temporary); /* beside it; the text is not needed any more */
    free(file->path);
    free(file->temporary);
    *file = (ttt__new_file){.fd = -1};
    return ok;
}
