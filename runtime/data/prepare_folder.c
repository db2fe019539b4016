/* Reads and writes index.json and journal.json of a prepared folder. */
#include "runtime/data/prepare.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char where[] = "data";

/* Encodes text that may not be UTF-8, such as file names. */
static json_t *text_json(const char *text)
{
    json_t *value = json_string(text);
    if (value != NULL)
        return value;
    char *copy = strdup(text);
    for (char *at = copy; copy != NULL && *at != '\0'; at++)
        *at = (unsigned char)*at < 0x80 ? *at : '?';
    value = copy == NULL ? NULL : json_string(copy);
    free(copy);
    return value;
}

/* ---- writing ---- */

/* A complete index does not record interruptions, so its bytes do not depend on them. */
static json_t *made_json(const ttt__journal *journal, bool whole)
{
    json_t *made =
        json_pack("{s:O, s:I, s:o}", "options", journal->options, "bad_lines",
                  (json_int_t)journal->bad_lines, "first_bad", text_json(journal->first_bad));
    if (whole || made == NULL)
        return made;
    json_t *position =
        json_pack("{s:i, s:I, s:b, s:I, s:I, s:I, s:f}", "file", journal->at.file, "offset",
                  (json_int_t)journal->at.offset, "inside", (int)journal->at.inside, "line",
                  (json_int_t)journal->line, "documents", (json_int_t)journal->documents, "taken",
                  (json_int_t)journal->taken, "seconds", journal->seconds);
    if (json_object_set_new(made, "position", position) == 0)
        return made;
    json_decref(made);
    return NULL;
}

pjrt_status *ttt__folder_write(const char *folder, ttt__data_index *index,
                               const ttt__journal *journal, bool whole)
{
    json_decref(index->made);
    index->made = made_json(journal, whole);
    char *text = index->made == NULL ? NULL : ttt__data_index_text(index);
    if (text == NULL)
        return PJRT_NO_MEMORY(where);
    pjrt_status *st =
        ttt__file_replace(folder, whole ? "index.json" : "journal.json", text, strlen(text));
    free(text);
    return st;
}

/* ---- reading ---- */

static bool get(const json_t *object, const char *key, int64_t most, int64_t *out)
{
    const json_t *value = json_object_get(object, key);
    *out = json_integer_value(value);
    return json_is_integer(value) && *out >= 0 && *out <= most;
}

static bool read_journal(const ttt__data_index *index, bool whole, ttt__journal *journal)
{
    int64_t file = 0;
    const char *bad = json_string_value(json_object_get(index->made, "first_bad"));
    if (bad == NULL || strlen(bad) >= sizeof journal->first_bad ||
        !get(index->made, "bad_lines", INT64_MAX, &journal->bad_lines))
        return false;
    strcpy(journal->first_bad, bad);
    if (whole)
        return true;
    const json_t *position = json_object_get(index->made, "position");
    int64_t files = json_integer_value(json_object_get(journal->options, "files"));
    bool ok = get(position, "file", files, &file) &&
              get(position, "offset", INT64_MAX, &journal->at.offset) &&
              get(position, "line", INT64_MAX, &journal->line) &&
              get(position, "documents", INT64_MAX, &journal->documents) &&
              get(position, "taken", INT64_MAX, &journal->taken);
    journal->at.file = (int)file;
    journal->at.inside = json_is_true(json_object_get(position, "inside"));
    journal->seconds = json_number_value(json_object_get(position, "seconds"));
    return ok;
}

static bool same(const ttt__data_index *a, const ttt__data_index *b, const json_t *options)
{
    return json_equal(json_object_get(b->made, "options"), options) &&
           strcmp(a->kind, b->kind) == 0 && strcmp(a->file, b->file) == 0 &&
           a->hash[0] == b->hash[0] && a->hash[1] == b->hash[1] && a->width == b->width;
}

/* The folder may hold only what a run killed before its first journal leaves behind. */
static pjrt_status *check_empty(const char *folder)
{
    pjrt_status *st = NULL;
    DIR *entries = opendir(folder);
    if (entries == NULL)
        return ttt__io_failed(folder, NULL);
    for (struct dirent *entry; st == NULL && (entry = readdir(entries)) != NULL;) {
        const char *name = entry->d_name;
        if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0 &&
            strcmp(name, "journal.json.tmp") != 0)
            st =
                PJRT_FAIL(ALREADY_EXISTS, where,
                          "%s is not empty and holds no prepared data: use another folder", folder);
    }
    closedir(entries);
    return st;
}

pjrt_status *ttt__folder_inspect(const char *folder, const ttt__data_index *wanted,
                                 ttt__journal *journal, ttt__folder_state *state,
                                 ttt__data_index **found)
{
    *state = TTT__COMPLETE;
    pjrt_status *st = ttt__data_index_read(folder, "index.json", found);
    if (pjrt_status_code(st) == PJRT_CODE_NOT_FOUND) {
        pjrt_status_free(st);
        *state = TTT__INTERRUPTED;
        st = ttt__data_index_read(folder, "journal.json", found);
    }
    if (pjrt_status_code(st) == PJRT_CODE_NOT_FOUND) {
        pjrt_status_free(st);
        *state = TTT__FRESH;
        return check_empty(folder);
    }
    PJRT_TRY(st);
    if (!same(wanted, *found, journal->options))
        return PJRT_FAIL(ALREADY_EXISTS, where,
                         "%s holds data of other inputs or options%s: use another folder, or "
                         "remove this one",
                         folder, *state == TTT__INTERRUPTED ? ", incomplete" : "");
    if (!read_journal(*found, *state == TTT__COMPLETE, journal))
        return PJRT_FAIL(DATA_LOSS, where, "%s: invalid %s: remove the folder and start again",
                         folder, *state == TTT__COMPLETE ? "index.json" : "journal.json");
    return NULL;
}
