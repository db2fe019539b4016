/* Resolves inputs to files: a named file, or the files of a folder sorted by name. */
#include "runtime/data/prepare.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

static const char where[] = "data";

enum { MAX_DEPTH = 32 }; /* of folders; a symbolic link may form a loop */

static bool ends_with(const char *name, size_t length, const char *ending)
{
    size_t n = strlen(ending);
    return length > n && memcmp(name + length - n, ending, n) == 0;
}

/* Determines the format by the suffix. False if it is unknown. */
static bool known_suffix(const char *name, ttt__input *input)
{
    static const char *const text[] = {".txt", ".text", ".md"}, *const lines[] = {".jsonl",
                                                                                  ".json"};
    size_t length = strlen(name);
    input->zst = ends_with(name, length, ".zst");
    length -= input->zst ? 4 : 0;
    for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
        if (ends_with(name, length, text[i]))
            return true;
    }
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        input->jsonl = input->jsonl || ends_with(name, length, lines[i]);
    return input->jsonl;
}

bool ttt__grow(void **list, size_t *room, size_t count, size_t size)
{
    if (count <= *room)
        return true;
    size_t larger = *room + *room / 2 > count ? *room + *room / 2 : count;
    void *grown = larger > PTRDIFF_MAX / size ? NULL : realloc(*list, larger * size);
    if (grown == NULL)
        return false;
    *list = grown;
    *room = larger;
    return true;
}

static pjrt_status *add_file(ttt__inputs *inputs, const char *path, const struct stat *info,
                             bool named)
{
    ttt__input input = {.size = info->st_size};
    size_t room = (size_t)inputs->room;
    if (!known_suffix(path, &input)) {
        if (named)
            return PJRT_FAIL(INVALID_ARGUMENT, where,
                             "%s: unknown suffix: use .txt .text .md (text), "
                             ".jsonl .json (a document a line), each also with .zst",
                             path);
        if (inputs->skipped++ == 0)
            snprintf(inputs->first_skipped, sizeof inputs->first_skipped, "%s", path);
        return NULL;
    }
    if (inputs->count == INT_MAX)
        return PJRT_FAIL(OUT_OF_RANGE, where, "too many input files");
    input.path = strdup(path);
    if (input.path == NULL || !ttt__grow((void **)&inputs->list, &room, (size_t)inputs->count + 1,
                                         sizeof *inputs->list)) {
        free(input.path);
        return PJRT_NO_MEMORY(where);
    }
    inputs->room = room > INT_MAX ? INT_MAX : (int)room;
    inputs->list[inputs->count++] = input;
    inputs->bytes += input.size;
    /* Chains the hash so far with this file: order matters. */
    struct {
        uint64_t before[2], size, seconds, nanoseconds;
        XXH64_hash_t path;
    } all = {{inputs->hash[0], inputs->hash[1]},
             (uint64_t)info->st_size,
             (uint64_t)info->st_mtim.tv_sec,
             (uint64_t)info->st_mtim.tv_nsec,
             XXH3_64bits(path, strlen(path))};
    XXH128_hash_t hash = XXH3_128bits(&all, sizeof all);
    inputs->hash[0] = hash.low64;
    inputs->hash[1] = hash.high64;
    return NULL;
}

static pjrt_status *add(ttt__inputs *inputs, const char *path, int depth);

static int visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static pjrt_status *add_folder(ttt__inputs *inputs, const char *folder, int depth)
{
    struct dirent **entries;
    pjrt_status *st = NULL;
    if (depth > MAX_DEPTH)
        return PJRT_FAIL(INVALID_ARGUMENT, where, "%s: folders nested more than %d deep", folder,
                         MAX_DEPTH);
    int count = scandir(folder, &entries, visible, by_name);
    if (count < 0)
        return ttt__io_failed(folder, NULL);
    for (int i = 0; i < count; i++) {
        char *path = st == NULL ? ttt__path_new(folder, entries[i]->d_name) : NULL;
        if (st == NULL)
            st = path == NULL ? PJRT_NO_MEMORY(where) : add(inputs, path, depth + 1);
        free(path);
        free(entries[i]);
    }
    free(entries);
    return st;
}

static pjrt_status *add(ttt__inputs *inputs, const char *path, int depth)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return ttt__io_failed(path, NULL);
    if (S_ISDIR(info.st_mode))
        return add_folder(inputs, path, depth);
    if (S_ISREG(info.st_mode))
        return add_file(inputs, path, &info, depth == 0);
    return depth > 0 ? NULL
                     : PJRT_FAIL(INVALID_ARGUMENT, where, "%s: not a file or a folder", path);
}

pjrt_status *ttt__inputs_find(const char *const *names, int count, ttt__inputs *out)
{
    *out = (ttt__inputs){0};
    for (int i = 0; i < count; i++)
        PJRT_TRY(add(out, names[i], 0));
    if (out->count == 0)
        return PJRT_FAIL(INVALID_ARGUMENT, where,
                         "the inputs contain no file that ends in .txt .text .md .jsonl .json or "
                         "one of these and .zst");
    return NULL;
}

void ttt__inputs_free(ttt__inputs *inputs)
{
    for (int i = 0; i < inputs->count; i++)
        free(inputs->list[i].path);
    free(inputs->list);
    *inputs = (ttt__inputs){0};
}
