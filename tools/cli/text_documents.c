/* Files of text, document by document. */
#include "tools/cli/text_documents.h"

#include "tools/cli/cmd.h"

#include <stdlib.h>
#include <string.h>

static bool ends_with(const char *text, const char *end)
{
    size_t size = strlen(text), tail = strlen(end);
    return size >= tail && strcmp(text + size - tail, end) == 0;
}

static pjrt_status *take_line(const char *path, int number, const char *line, size_t size,
                              ttt_bpe_trainer *trainer)
{
    json_error_t error;
    if (size == 0)
        return NULL;
    json_t *root = json_loadb(line, size, JSON_REJECT_DUPLICATES, &error);
    const json_t *text = json_object_get(root, "text");
    pjrt_status *st =
        json_is_string(text)
            ? ttt_bpe_trainer_add(trainer, json_string_value(text), json_string_length(text))
            : PJRT_FAIL(INVALID_ARGUMENT, "ttt", "%s:%d is no JSON object with a \"text\"", path,
                        number);
    json_decref(root);
    return st;
}

pjrt_status *texts_learn(ttt_bpe_trainer *trainer, const char *path)
{
    char *bytes;
    size_t size;
    int number = 1;
    PJRT_TRY(cmd_read_file(path, &bytes, &size));
    pjrt_status *st = NULL;
    if (!ends_with(path, ".jsonl")) {
        st = ttt_bpe_trainer_add(trainer, bytes, size);
    } else {
        for (char *line = bytes, *end; st == NULL && line < bytes + size; line = end + 1) {
            end = memchr(line, '\n', size - (size_t)(line - bytes));
            end = end == NULL ? bytes + size : end;
            st = take_line(path, number++, line, (size_t)(end - line), trainer);
        }
    }
    free(bytes);
    return st;
}
