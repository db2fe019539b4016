/* Which tokenizer a model was made with: beside its weights, beside its run, or in the data. */
#include "runtime/base/files.h"
#include "runtime/device/internal.h"
#include "runtime/generate/ttt_generator.h"
#include "runtime/train/ttt_trainer.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char call[] = "tokenizer";
enum { MOST_TEXT = 1 << 20, LEAST_BYTES = 258, MOST_BYTES = 320 };

static bool is_tokenizer(const char *name)
{
    static const char end[] = ".tiktoken";
    size_t length = strlen(name), tail = sizeof end - 1;
    return strcmp(name, "tokenizer.json") == 0 ||
           (length > 6 && strcmp(name + length - 6, ".model") == 0) ||
           (length > tail && strcmp(name + length - tail, end) == 0);
}

/* The tokenizer's file in a folder; "" when there is none. tokenizer.json goes before others. */
static pjrt_status *find_file(const char *folder, char path[PATH_MAX])
{
    ttt__names names;
    const char *found = NULL;
    path[0] = '\0';
    PJRT_TRY(ttt__folder_list(folder, &names));
    for (int i = 0; i < names.count; i++) {
        if (is_tokenizer(names.list[i]) &&
            (found == NULL || strcmp(names.list[i], "tokenizer.json") == 0))
            found = names.list[i];
    }
    pjrt_status *st = found == NULL ? NULL : ttt__path_join(folder, found, path);
    ttt__names_free(&names);
    return st;
}

/* What environment.json of a run says of its last start; NULL when there is no such file. */
static json_t *last_start(const char *run)
{
    char path[PATH_MAX], *text = NULL;
    size_t size;
    pjrt_status *st = ttt__path_join(run, "environment.json", path);
    if (st == NULL)
        st = ttt__file_read(path, MOST_TEXT, &text, &size);
    json_t *all = st == NULL ? json_loads(text, 0, NULL) : NULL;
    json_t *last = json_incref(json_object_get(all, "last"));
    json_decref(all);
    pjrt_status_free(st);
    free(text);
    return last;
}

/* That of the run's data: bytes, which have no file, or a file that is still in the data's folder.
 * "" when nothing is known of it. */
static void find_in_data(const char *run, char path[PATH_MAX])
{
    json_t *last = last_start(run);
    const char *name = json_string_value(json_object_get(last, "tokenizer"));
    const char *folder = json_string_value(json_object_get(last, "data"));
    ttt_dataset *data = NULL;
    path[0] = '\0';
    if (name != NULL && strcmp(name, "bytes") == 0) {
        snprintf(path, PATH_MAX, "bytes");
    } else if (folder != NULL) {
        pjrt_status_free(ttt_dataset_open(folder, "train", &data));
        if (data != NULL)
            snprintf(path, PATH_MAX, "%s", ttt_dataset_info(data)->tokenizer);
        ttt_dataset_free(data);
    }
    json_decref(last);
}

/* The folders that may have it: what was named, the newest checkpoint in it, and the run that a
 * checkpoint is of. */
static pjrt_status *search(const char *path, char found[PATH_MAX])
{
    char *folder, run[PATH_MAX];
    PJRT_TRY(ttt_model_folder(path, &folder));
    pjrt_status *st = find_file(folder, found);
    if (st == NULL && found[0] == '\0')
        st = find_file(path, found);
    if (st == NULL && found[0] == '\0')
        find_in_data(path, found);
    if (st == NULL && found[0] == '\0')
        st = ttt__path_join(path, "../../recipe.json", run);
    if (st == NULL && found[0] == '\0' && access(run, F_OK) == 0) {
        *strrchr(run, '/') = '\0';
        st = find_file(run, found);
        if (st == NULL && found[0] == '\0')
            find_in_data(run, found);
    }
    free(folder);
    return st;
}

pjrt_status *ttt__model_tokenizer_name(const char *path, const char *chosen, int64_t vocab,
                                       char found[PATH_MAX])
{
    found[0] = '\0';
    if (chosen == NULL)
        PJRT_TRY(search(path, found));
    else if (snprintf(found, PATH_MAX, "%s", chosen) >= PATH_MAX)
        return PJRT_FAIL(INVALID_ARGUMENT, call, "%.100s…: the path is too long", chosen);
    if (found[0] == '\0' && vocab >= LEAST_BYTES && vocab <= MOST_BYTES)
        snprintf(found, PATH_MAX, "bytes");
    if (found[0] == '\0')
        return PJRT_FAIL(NOT_FOUND, call,
                         "%s: there is no tokenizer beside it: name one with --tokenizer", path);
    return NULL;
}

pjrt_status *ttt_model_tokenizer(const char *path, const char *chosen, int64_t vocab,
                                 ttt_tokenizer **out)
{
    char found[PATH_MAX];
    *out = NULL;
    PJRT_TRY(ttt__model_tokenizer_name(path, chosen, vocab, found));
    PJRT_TRY(ttt_tokenizer_open(found, out));
    int64_t tokens = ttt_tokenizer_info(*out)->vocab;
    if (tokens <= vocab)
        return NULL;
    ttt_tokenizer_free(*out);
    *out = NULL;
    return PJRT_FAIL(INVALID_ARGUMENT, call,
                     "%s has %lld tokens, the model knows %lld: it is another model's", found,
                     (long long)tokens, (long long)vocab);
}
