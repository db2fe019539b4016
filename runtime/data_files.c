/* Small things about files that preparing data and reading it share. */
#include "runtime/data.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char call[] = "data";

char *ttt__data_path(const char *folder, const char *name)
{
    size_t room = strlen(folder) + strlen(name) + 2;
    char *path = malloc(room);
    if (path != NULL)
        snprintf(path, room, "%s/%s", folder, name);
    return path;
}

pjrt_status *ttt__data_read_file(const char *path, size_t most, char **bytes, size_t *size)
{
    struct stat info;
    pjrt_status *st = NULL;
    *bytes = NULL;
    *size = 0;
    FILE *file = fopen(path, "rbe");
    if (file == NULL)
        return errno == ENOENT ? PJRT_FAIL(NOT_FOUND, call, "%s: there is no such file", path)
                               : PJRT_FAIL(UNAVAILABLE, call, "%s: %s", path, strerror(errno));
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
