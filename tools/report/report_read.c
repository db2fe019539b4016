/* A run from its folder: settings, and metrics.jsonl from front to back in bounded memory. */
#include "tools/report/report.h"

#include "runtime/train/ttt_trainer.h"
#include "tools/report/inspect.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum { LONGEST_LINE = 1 << 26 };

/* ---- curves ---- */

static void merge(report_piece *into, const report_piece *other)
{
    double points = into->points + other->points;
    into->x += (other->x - into->x) * other->points / points;
    into->mean += (other->mean - into->mean) * other->points / points;
    into->points = points;
    if (other->low < into->low) {
        into->low = other->low;
        into->low_x = other->low_x;
    }
    if (other->high > into->high) {
        into->high = other->high;
        into->high_x = other->high_x;
    }
}

void report_track_add(report_track *track, double x, double y)
{
    report_piece point = {x, y, x, y, x, y, 1};
    if (!isfinite(x) || !isfinite(y))
        return;
    if (track->each == 0)
        track->each = 1;
    if (track->count > 0 && track->list[track->count - 1].points < track->each) {
        merge(&track->list[track->count - 1], &point);
        return;
    }
    if (track->count == REPORT_PIECES) {
        for (size_t i = 0; i < REPORT_PIECES / 2; i++) {
            report_piece pair = track->list[2 * i];
            merge(&pair, &track->list[2 * i + 1]);
            track->list[i] = pair;
        }
        track->count = REPORT_PIECES / 2;
        track->each *= 2;
    }
    track->list[track->count++] = point;
}

void report_curve_fill(report_curve *curve, size_t count, double (*value)(void *ctx, size_t i),
                       void *ctx)
{
    double growth = pow((double)count + 1, 1.0 / REPORT_BINS), edge = 1;
    curve->count = 0;
    for (size_t i = 0; i < count && curve->count < REPORT_BINS;) {
        double sum = 0, places = 0, n = 0;
        edge = fmax(edge * growth, (double)i + 1.999);
        for (; i < count && ((double)i + 1 < edge || curve->count + 1 == REPORT_BINS); i++) {
            double v = value(ctx, i);
            if (!isfinite(v))
                continue;
            sum += v;
            places += (double)i + 1;
            n++;
        }
        curve->x[curve->count] = n > 0 ? places / n : NAN;
        curve->y[curve->count++] = n > 0 ? sum / n : NAN;
    }
}

const char *report_inner_name(int which)
{
    static const char *const names[] = {"at W₀", "at the mini-batch's start", "before the token",
                                        "after the token"};
    return names[which];
}

/* ---- lines ---- */

/* NaN for what is no number. */
static double number(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static void take_step(report_run *run, const json_t *line, double step)
{
    double loss = number(line, "loss"), ms = number(line, "ms"), mfu = number(line, "mfu");
    double elapsed = number(line, "elapsed"), tokens = number(line, "tokens");
    double skipped = number(line, "skipped");
    run->step = step;
    run->elapsed = isfinite(elapsed) ? elapsed : run->elapsed;
    run->tokens = isfinite(tokens) ? tokens : run->tokens;
    run->skipped = isfinite(skipped) ? skipped : run->skipped;
    run->memory = fmax(run->memory, number(line, "memory"));
    run->bad_steps += isfinite(loss) ? 0 : 1;
    report_track_add(&run->loss, step, loss);
    report_track_add(&run->norm, step, number(line, "grad_norm"));
    report_track_add(&run->rate, step, number(line, "lr"));
    report_track_add(&run->speed, elapsed, number(line, "tokens_per_second"));
    if (isfinite(ms) && ms > 0) {
        run->step_ms += ms;
        run->counted_steps++;
        if (isfinite(mfu)) {
            run->mfu_ms += mfu * ms;
            run->mfu_steps_ms += ms;
        }
    }
    for (size_t i = 0; i < run->n_restarts; i++)
        if (isnan(run->restart_times[i]) && step > run->restarts[i])
            run->restart_times[i] = elapsed - (isfinite(ms) ? ms / 1e3 : 0);
}

static double list_value(void *list, size_t i)
{
    const json_t *value = json_array_get(list, i);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

/* The losses by position of the last evaluation, and of one in each quarter of the run before. */
static void take_positions(report_run *run, const json_t *list, double step)
{
    size_t n = run->n_positions;
    if (json_array_size(list) == 0)
        return;
    double quarter = run->steps > 0 ? run->steps / REPORT_CURVES : 1;
    bool same = n > 0 && ceil(run->positions[n - 1].step / quarter) == ceil(step / quarter);
    if (n > 0 && (same || n == REPORT_CURVES))
        n--;
    run->positions[n].step = step;
    report_curve_fill(&run->positions[n], json_array_size(list), list_value, (void *)list);
    run->n_positions = n + 1;
}

static void take_inner(report_run *run, const json_t *line, double step)
{
    static const char *const names[REPORT_INNERS] = {"inner_loss_w0", "inner_loss_mini_batch",
                                                     "inner_loss_before", "inner_loss_after"};
    for (int which = 0; which < REPORT_INNERS; which++) {
        json_t *list = json_object_get(line, names[which]);
        size_t layers = json_array_size(list);
        double sum = 0;
        if (layers == 0)
            return;
        for (size_t i = 0; i < layers; i++) {
            sum += list_value(list, i);
            if (i < REPORT_LAYERS)
                run->inner_layers[which][i] = list_value(list, i);
        }
        run->n_inner_layers = layers < REPORT_LAYERS ? layers : REPORT_LAYERS;
        report_track_add(&run->inner[which], step, sum / (double)layers);
    }
}

static void take_evaluation(report_run *run, const json_t *line, double step)
{
    report_evaluation e = {step, number(line, "tokens"), number(line, "loss"),
                           number(line, "error")};
    if (isfinite(e.loss)) {
        run->last = e;
        if (run->seen_evaluations == 0 || e.loss < run->best.loss)
            run->best = e;
        if (run->n_evaluations == REPORT_EVALUATIONS) { /* every second one stays */
            for (size_t i = 0; i < REPORT_EVALUATIONS / 2; i++)
                run->evaluations[i] = run->evaluations[2 * i];
            run->n_evaluations /= 2;
            run->evaluation_stride *= 2;
        }
        if (run->seen_evaluations % run->evaluation_stride == 0)
            run->evaluations[run->n_evaluations++] = e;
        run->seen_evaluations++;
    }
    take_positions(run, json_object_get(line, "loss_by_position"), step);
    take_inner(run, line, step);
}

static bool take_line(report_run *run, const char *text, size_t size)
{
    json_t *line = json_loadb(text, size, 0, NULL);
    const char *kind = json_string_value(json_object_get(line, "kind"));
    double step = number(line, "step");
    bool good = kind != NULL && isfinite(step) && step >= 0;
    if (good && strcmp(kind, "train") == 0)
        take_step(run, line, step);
    else if (good && strcmp(kind, "eval") == 0)
        take_evaluation(run, line, step);
    json_decref(line);
    return good;
}

/* One line without its end, at most LONGEST_LINE of it; false at the end of the file. */
static bool next_line(FILE *file, char **line, size_t *room, size_t *size, bool *cut)
{
    int c = 0;
    *size = 0;
    *cut = false;
    while ((c = getc_unlocked(file)) != EOF && c != '\n') {
        if (*size == *room && *room < LONGEST_LINE) {
            size_t larger = *room == 0 ? 4096 : 2 * *room;
            char *bigger = realloc(*line, larger);
            if (bigger != NULL) {
                *line = bigger;
                *room = larger;
            }
        }
        if (*size < *room)
            (*line)[(*size)++] = (char)c;
        else
            *cut = true;
    }
    return c != EOF || *size > 0;
}

static void read_metrics(report_run *run, FILE *file)
{
    char *line = NULL;
    size_t room = 0, size = 0;
    bool cut = false;
    while (next_line(file, &line, &room, &size, &cut)) {
        bool last = feof(file); /* of a run that is going: half a line is no damage */
        run->lines++;
        if (size == 0 || (!cut && take_line(run, line, size)) || last)
            continue;
        run->bad_lines++;
        if (run->bad_lines == 1)
            run->first_bad_line = run->lines;
    }
    if (ferror(file))
        report_note(run, "metrics.jsonl: %s", strerror(errno));
    free(line);
    if (run->bad_lines > 0)
        report_note(run, "metrics.jsonl: %.0f of %.0f lines are damaged, the first is line %.0f",
                    run->bad_lines, run->lines, run->first_bad_line);
}

/* ---- the rest of the folder ---- */

void report_note(report_run *run, const char *format, ...)
{
    va_list args;
    if (run->n_notes == REPORT_NOTES)
        return;
    va_start(args, format);
    vsnprintf(run->notes[run->n_notes++], sizeof run->notes[0], format, args);
    va_end(args);
}

static bool join(const char *folder, const char *name, char path[PATH_MAX])
{
    return snprintf(path, PATH_MAX, "%s/%s", folder, name) < PATH_MAX;
}

static json_t *read_json(report_run *run, const char *folder, const char *name)
{
    char path[PATH_MAX];
    json_error_t error;
    if (!join(folder, name, path) || access(path, F_OK) != 0) {
        report_note(run, "%s is not there", name);
        return NULL;
    }
    json_t *json = json_load_file(path, 0, &error);
    if (!json_is_object(json)) {
        report_note(run, "%s: line %d: %s", name, error.line, error.text);
        json_decref(json);
        return NULL;
    }
    return json;
}

/* A number of a protocol buffer, seven bits a byte; `*at` goes behind it. */
static uint64_t varint(const unsigned char *data, size_t size, size_t *at)
{
    uint64_t value = 0;
    for (int shift = 0; *at < size && shift < 64; shift += 7) {
        unsigned char byte = data[(*at)++];
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            break;
    }
    return value;
}

/* The step of an event that says when it was, then its step: docs/formats.md. 0: it says none. */
static double event_step(const unsigned char *data, size_t size)
{
    enum { TIME = 0x09, STEP = 0x10 };
    size_t at = size > 9 && data[0] == TIME ? 9 : 0;
    if (at >= size || data[at++] != STEP)
        return 0;
    return (double)varint(data, size, &at);
}

/* The first step that a process did: it is in the second record of its event file. */
static double first_step(const char *path)
{
    unsigned char head[12], data[256];
    double step = 0;
    FILE *file = fopen(path, "re");
    for (int record = 0; file != NULL && record < 2; record++) {
        uint64_t size = 0;
        if (fread(head, 1, sizeof head, file) != sizeof head)
            break;
        for (int i = 0; i < 8; i++)
            size |= (uint64_t)head[i] << (8 * i);
        if (size > sizeof data || fread(data, 1, size, file) != size ||
            fseek(file, 4, SEEK_CUR) != 0)
            break;
        step = record == 1 ? event_step(data, size) : 0;
    }
    if (file != NULL)
        fclose(file);
    return step;
}

static int is_event_file(const struct dirent *entry)
{
    static const char start[] = "events.out.tfevents.";
    return strncmp(entry->d_name, start, strlen(start)) == 0;
}

/* Every start of the run has an event file; all but those of the first step went on from before. */
static void read_restarts(report_run *run)
{
    char folder[PATH_MAX], path[PATH_MAX];
    struct dirent **list = NULL;
    int count = join(run->path, "tensorboard", folder)
                    ? scandir(folder, &list, is_event_file, alphasort)
                    : 0;
    for (int i = 0; i < count; i++) {
        double step = join(folder, list[i]->d_name, path) ? first_step(path) : 0;
        if (step > 1 && run->n_restarts < REPORT_RESTARTS) {
            run->restarts[run->n_restarts] = step - 1;
            run->restart_times[run->n_restarts++] = NAN;
        }
        free(list[i]);
    }
    free(list);
}

/* Whether a process of this machine holds the run's lock; it is not touched. */
static bool is_locked(const char *run)
{
    char path[PATH_MAX], line[256], id[64];
    struct stat about;
    bool found = false;
    if (!join(run, "lock", path) || stat(path, &about) != 0)
        return false;
    snprintf(id, sizeof id, " %02x:%02x:%llu ", major(about.st_dev), minor(about.st_dev),
             (unsigned long long)about.st_ino);
    FILE *locks = fopen("/proc/locks", "re");
    while (locks != NULL && fgets(line, sizeof line, locks) != NULL)
        found = found || (strstr(line, "FLOCK") != NULL && strstr(line, id) != NULL);
    if (locks != NULL)
        fclose(locks);
    return found;
}

static void read_checkpoint(report_run *run)
{
    char *folder = NULL, path[PATH_MAX];
    pjrt_status *st = ttt_model_folder(run->path, &folder);
    bool none = st != NULL || strcmp(folder, run->path) == 0; /* itself, where it has none */
    pjrt_status_free(st);
    if (none) {
        report_note(run, "no checkpoint yet");
        free(folder);
        return;
    }
    snprintf(run->model, sizeof run->model, "%s", folder);
    if (join(folder, "manifest.json", path) && access(path, F_OK) == 0) {
        json_t *manifest = read_json(run, folder, "manifest.json");
        run->training = json_incref(json_object_get(manifest, "training"));
        json_decref(manifest);
    }
    free(folder);
}

static void read_network(report_run *run)
{
    char path[PATH_MAX];
    run->network = json_object();
    pjrt_status *st =
        join(run->path, "config.json", path) ? inspect_network(path, run->network) : NULL;
    if (st != NULL && run->config != NULL)
        report_note(run, "config.json: %s", pjrt_status_text(st));
    if (st != NULL) {
        json_decref(run->network);
        run->network = NULL;
    }
    pjrt_status_free(st);
}

static void read_settings(report_run *run)
{
    run->config = read_json(run, run->path, "config.json");
    run->recipe = read_json(run, run->path, "recipe.json");
    run->environment = read_json(run, run->path, "environment.json");
    double steps = number(run->recipe, "steps"), tokens = number(run->recipe, "batch_tokens");
    run->steps = isfinite(steps) ? steps : 0;
    run->first_tokens = isfinite(tokens) ? tokens : 0;
    read_network(run);
    read_checkpoint(run);
    read_restarts(run);
    run->going = is_locked(run->path);
}

/* The mean of the last twentieth, of at least five pieces. */
static double late_mean(const report_track *track)
{
    size_t n = track->count / 20 < 5 ? 5 : track->count / 20;
    double sum = 0, points = 0;
    for (size_t i = track->count < n ? 0 : track->count - n; i < track->count; i++) {
        sum += track->list[i].mean * track->list[i].points;
        points += track->list[i].points;
    }
    return points > 0 ? sum / points : NAN;
}

static void name_run(report_run *run)
{
    char whole[PATH_MAX];
    const char *path = realpath(run->path, whole) == NULL ? run->path : whole;
    const char *slash = strrchr(path, '/');
    snprintf(run->name, sizeof run->name, "%.127s", slash == NULL || !slash[1] ? path : slash + 1);
}

static pjrt_status *read_all(report_run *run)
{
    char metrics[PATH_MAX], config[PATH_MAX];
    if (!join(run->path, "metrics.jsonl", metrics) || !join(run->path, "config.json", config))
        return PJRT_FAIL(INVALID_ARGUMENT, "ttt", "the name of the folder is too long");
    FILE *file = fopen(metrics, "re");
    if (file == NULL && access(config, F_OK) != 0)
        return PJRT_FAIL(NOT_FOUND, "ttt",
                         "%s is no training run: it has neither metrics.jsonl nor config.json",
                         run->path);
    name_run(run);
    read_settings(run);
    if (file == NULL) {
        report_note(run, "metrics.jsonl: %s", strerror(errno));
        return NULL;
    }
    read_metrics(run, file);
    fclose(file);
    run->train_loss = late_mean(&run->loss);
    if (run->seen_evaluations > 0 &&
        run->last.step != run->evaluations[run->n_evaluations - 1].step) {
        if (run->n_evaluations == REPORT_EVALUATIONS)
            run->n_evaluations--;
        run->evaluations[run->n_evaluations++] = run->last;
    }
    return NULL;
}

pjrt_status *report_read(const char *path, report_run **out)
{
    *out = NULL;
    report_run *run = calloc(1, sizeof *run);
    if (run == NULL)
        return PJRT_NO_MEMORY("ttt");
    run->train_loss = NAN;
    run->evaluation_stride = 1;
    pjrt_status *st = NULL;
    if (snprintf(run->path, sizeof run->path, "%s", path) >= (int)sizeof run->path)
        st = PJRT_FAIL(INVALID_ARGUMENT, "ttt", "the name of the folder is too long");
    else
        st = read_all(run);
    if (st == NULL)
        *out = run;
    else
        report_run_free(run);
    return st;
}

void report_run_free(report_run *run)
{
    if (run == NULL)
        return;
    json_decref(run->config);
    json_decref(run->recipe);
    json_decref(run->environment);
    json_decref(run->training);
    json_decref(run->network);
    for (size_t i = 0; i < run->n_samples; i++) {
        free(run->samples[i].prompt);
        free(run->samples[i].text);
    }
    free(run->inner_curves);
    free(run);
}
