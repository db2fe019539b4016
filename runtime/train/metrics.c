/* metrics.jsonl, and the same figures for TensorBoard. */
#include "runtime/train/metrics.h"
#include "runtime/base/files.h"
#include "runtime/train/tensorboard.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

static const char call[] = "metrics";

struct ttt__metrics {
    ttt__log lines;
    ttt__events *events;
};

/* ---- going on after a step ---------------------------------------------------------------------
 */

/* Whether a line stays: it has an end, and no step above that one. What is no line of ours is not
 * ours to drop. */
static bool stays(const char *line, size_t length, int64_t step)
{
    if (length == 0 || line[length - 1] != '\n')
        return false;
    json_t *object = json_loadb(line, length, 0, NULL);
    const json_t *of = json_object_get(object, "step");
    bool later = json_is_integer(of) && json_integer_value(of) > step;
    json_decref(object);
    return !later;
}

/* Copies the lines that stay; `out` NULL: counts alone. */
static bool copy_lines(FILE *in, FILE *out, int64_t step, bool *dropped)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t length;
    bool ok = true;
    rewind(in);
    errno = 0;
    while (ok && (length = getline(&line, &room, in)) >= 0) {
        if (!stays(line, (size_t)length, step))
            *dropped = true;
        else if (out != NULL)
            ok = fwrite(line, 1, (size_t)length, out) == (size_t)length;
        errno = ok ? 0 : errno;
    }
    free(line);
    return ok && !ferror(in) && errno != ENOMEM;
}

/* The file without them, beside it and then in its place. */
static pjrt_status *rewrite(FILE *in, const char *path, int64_t step)
{
    char other[PATH_MAX];
    bool dropped;
    if (snprintf(other, sizeof other, "%s.writing", path) >= (int)sizeof other)
        return PJRT_FAIL(INVALID_ARGUMENT, call, "%.100s…: the path is too long", path);
    FILE *out = fopen(other, "we");
    if (out == NULL)
        return ttt__io_failed(other, "make it");
    bool ok = copy_lines(in, out, step, &dropped) && fflush(out) == 0 &&
              TEMP_FAILURE_RETRY(fsync(fileno(out))) == 0;
    pjrt_status *st = ok ? NULL : ttt__io_failed(other, "write it");
    if (fclose(out) != 0 && st == NULL)
        st = ttt__io_failed(other, "close it");
    if (st == NULL && TEMP_FAILURE_RETRY(rename(other, path)) != 0)
        st = ttt__io_failed(other, "rename it");
    if (st != NULL)
        unlink(other);
    return st;
}

static pjrt_status *drop_later(const char *path, int64_t step)
{
    bool dropped = false;
    FILE *in = fopen(path, "re");
    if (in == NULL)
        return errno == ENOENT ? NULL : ttt__io_failed(path, "open it");
    pjrt_status *st = NULL;
    if (!copy_lines(in, NULL, step, &dropped))
        st = ttt__io_failed(path, "read it");
    else if (dropped)
        st = rewrite(in, path, step);
    fclose(in);
    return st;
}

/* ---- the file ----------------------------------------------------------------------------------
 */

static pjrt_status *open_all(const char *run, int64_t step, ttt__metrics *metrics)
{
    char path[PATH_MAX];
    metrics->lines.fd = -1;
    PJRT_TRY(ttt__folder_make(run));
    PJRT_TRY(ttt__path_join(run, "metrics.jsonl", path));
    PJRT_TRY(drop_later(path, step));
    PJRT_TRY(ttt__log_open(path, &metrics->lines));
    PJRT_TRY(ttt__folder_sync(run));
    PJRT_TRY(ttt__path_join(run, "tensorboard", path));
    return ttt__events_open(path, step, &metrics->events);
}

pjrt_status *ttt__metrics_open(const char *run, int64_t step, ttt__metrics **out)
{
    *out = NULL;
    ttt__metrics *metrics = calloc(1, sizeof *metrics);
    if (metrics == NULL)
        return PJRT_NO_MEMORY(call);
    pjrt_status *st = open_all(run, step, metrics);
    if (st == NULL)
        *out = metrics;
    else
        ttt__metrics_free(metrics);
    return st;
}

pjrt_status *ttt__metrics_sync(ttt__metrics *metrics)
{
    if (metrics == NULL)
        return NULL;
    pjrt_status *st = ttt__log_sync(&metrics->lines);
    return st != NULL ? st : ttt__events_sync(metrics->events);
}

void ttt__metrics_free(ttt__metrics *metrics)
{
    if (metrics == NULL)
        return;
    if (metrics->events != NULL)
        pjrt_status_free(ttt__metrics_sync(metrics));
    ttt__events_free(metrics->events);
    ttt__log_close(&metrics->lines);
    free(metrics);
}

/* ---- figures -----------------------------------------------------------------------------------
 */

static json_t *number(double value, bool whole)
{
    if (!isfinite(value))
        return json_null();
    if (whole && fabs(value) < 0x1p63)
        return json_integer((json_int_t)value);
    return json_real(value);
}

static json_t *figure_json(const ttt__figure *figure)
{
    if (figure->list == NULL)
        return number(figure->value, figure->whole);
    json_t *list = json_array();
    for (int64_t i = 0; list != NULL && i < figure->count; i++) {
        if (json_array_append_new(list, number(figure->list[i], figure->whole)) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

/* One line with its end, and no NUL behind it; the caller frees it. */
static pjrt_status *line_of(const char *kind, int64_t step, const ttt__figure *figures, int count,
                            char **line, size_t *size)
{
    json_t *object = json_pack("{s:s, s:I}", "kind", kind, "step", (json_int_t)step);
    pjrt_status *st = object != NULL ? NULL : PJRT_NO_MEMORY(call);
    for (int i = 0; st == NULL && i < count; i++) {
        if (json_object_get(object, figures[i].name) != NULL)
            st = PJRT_FAIL(INVALID_ARGUMENT, call, "the figure \"%s\" comes twice in a line",
                           figures[i].name);
        else if (json_object_set_new(object, figures[i].name, figure_json(&figures[i])) != 0)
            st = PJRT_NO_MEMORY(call);
    }
    *line = st == NULL ? json_dumps(object, JSON_REAL_PRECISION(9)) : NULL;
    if (st == NULL && *line == NULL)
        st = PJRT_NO_MEMORY(call);
    json_decref(object);
    if (st != NULL)
        return st;
    size_t length = strlen(*line);
    (*line)[length] = '\n'; /* in the NUL's place */
    *size = length + 1;
    return NULL;
}

pjrt_status *ttt__metrics_put(ttt__metrics *metrics, const char *kind, int64_t step,
                              const ttt__figure *figures, int count)
{
    char *line;
    size_t size;
    if (metrics == NULL)
        return NULL;
    PJRT_TRY(line_of(kind, step, figures, count, &line, &size));
    pjrt_status *st = ttt__log_put(&metrics->lines, line, size);
    free(line);
    return st != NULL ? st : ttt__events_put(metrics->events, kind, step, figures, count);
}
