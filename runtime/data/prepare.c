/* ttt_prepare: the caller's thread takes encoded units in input order and writes them. */
#include "runtime/data/prepare.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

static const char where[] = "data";

enum { TRAIN, VALIDATION, MAX_THREADS = 256, MAX_TOKENIZER_BYTES = 1 << 30 };
#define SHARD_TOKENS (INT64_C(1) << 27)

typedef struct run {
    const ttt_prepare_options *options;
    ttt__inputs inputs;
    ttt_tokenizer *tokenizer;
    ttt__data_index *index; /* owned here until `output` takes it */
    ttt__journal journal;
    ttt__output *output;
    int lock;
    double began, last_progress, next_journal;
    bool resumed;
} run;

/* ---- options ---- */

static pjrt_status *check(const ttt_prepare_options *o)
{
    if (o->n_inputs < 1 || o->tokenizer == NULL || o->out == NULL)
        return PJRT_FAIL(INVALID_ARGUMENT, where, "inputs, a tokenizer and a folder are needed");
    if (!(o->validation >= 0 && o->validation <= 1))
        return PJRT_FAIL(INVALID_ARGUMENT, where, "the validation fraction must be 0 to 1, not %g",
                         o->validation);
    if (o->threads < 0 || o->threads > MAX_THREADS)
        return PJRT_FAIL(INVALID_ARGUMENT, where, "threads must be 1 to %d, not %d", MAX_THREADS,
                         o->threads);
    if (o->shard_tokens < 0 || o->shard_tokens > INT64_C(1) << 40)
        return PJRT_FAIL(INVALID_ARGUMENT, where, "shard_tokens must be 1 to 2^40, not %lld",
                         (long long)o->shard_tokens);
    if (o->separator != NULL && strchr(o->separator, '\n') != NULL)
        return PJRT_FAIL(INVALID_ARGUMENT, where, "the separator must be one line");
    if (o->separator != NULL && strlen(o->separator) > 1000)
        return PJRT_FAIL(INVALID_ARGUMENT, where, "the separator must be at most 1000 bytes");
    return NULL;
}

static int64_t shard_tokens(const run *r)
{
    return r->options->shard_tokens == 0 ? SHARD_TOKENS : r->options->shard_tokens;
}

static const char *field(const run *r)
{
    return r->options->field == NULL ? "text" : r->options->field;
}

/* Everything the tokens depend on. `strict` and `threads` are left out: they do not change the
 * tokens. */
static pjrt_status *describe(run *r)
{
    char files[TTT__HEX], seed[24];
    ttt__hash_hex(r->inputs.hash, files);
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)r->options->seed);
    r->journal.options =
        json_pack("{s:i, s:I, s:s, s:s, s:f, s:s, s:I, s:s*}", "files", r->inputs.count, "bytes",
                  (json_int_t)r->inputs.bytes, "files_xxh3_128", files, "field", field(r),
                  "validation", r->options->validation, "seed", seed, "shard_tokens",
                  (json_int_t)shard_tokens(r), "separator", r->options->separator);
    return r->journal.options == NULL
               ? PJRT_FAIL(INVALID_ARGUMENT, where,
                           "no memory, or the field or the separator is not UTF-8")
               : NULL;
}

/* File name of the tokenizer's copy in the output folder. */
static pjrt_status *tokenizer_name(const run *r, char name[TTT__DATA_NAME])
{
    if (strcmp(r->options->tokenizer, "bytes") == 0)
        return NULL;
    char *copy = strdup(r->options->tokenizer);
    if (copy == NULL)
        return PJRT_NO_MEMORY(where);
    const char *base = basename(copy);
    bool good = strlen(base) < TTT__DATA_NAME && base[0] != '.' && base[0] != '/' &&
                strcmp(base, "index.json") != 0 && strncmp(base, "journal.json", 12) != 0;
    if (good)
        snprintf(name, TTT__DATA_NAME, "%s", base);
    free(copy);
    return good ? NULL
                : PJRT_FAIL(INVALID_ARGUMENT, where,
                            "%s: cannot be copied under this name: it is hidden, longer than "
                            "%d bytes or reserved: rename the file",
                            r->options->tokenizer, TTT__DATA_NAME - 1);
}

static pjrt_status *begin_index(run *r)
{
    const ttt_tokenizer_about *about = ttt_tokenizer_info(r->tokenizer);
    ttt__data_index *index = r->index = calloc(1, sizeof *index);
    if (index == NULL)
        return PJRT_NO_MEMORY(where);
    snprintf(index->kind, sizeof index->kind, "%s", about->kind);
    memcpy(index->hash, about->hash, sizeof index->hash);
    index->vocab = about->vocab;
    index->bos = about->bos;
    index->eos = about->eos;
    index->width = about->vocab <= 65536 ? 2 : 4;
    index->n_splits = 2;
    strcpy(index->splits[TRAIN].name, "train");
    strcpy(index->splits[VALIDATION].name, "validation");
    PJRT_TRY(tokenizer_name(r, index->file));
    return describe(r);
}

/* ---- output folder ---- */

/* The lock is on the folder itself. The kernel releases it when the process ends. */
static pjrt_status *lock_folder(run *r)
{
    const char *out = r->options->out;
    if (mkdir(out, 0777) != 0 && errno != EEXIST)
        return ttt__io_failed(out, NULL);
    r->lock = open(out, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (r->lock < 0)
        return ttt__io_failed(out, NULL);
    if (flock(r->lock, LOCK_EX | LOCK_NB) != 0)
        return errno == EWOULDBLOCK ? PJRT_FAIL(ALREADY_EXISTS, where,
                                                "%s: another process is preparing data in it", out)
                                    : ttt__io_failed(out, NULL);
    return NULL;
}

/* Moves the shards found in the folder into our splits. */
static void adopt_shards(run *r, ttt__data_index *found)
{
    for (int i = 0; i < found->n_splits; i++) {
        for (int k = TRAIN; k <= VALIDATION; k++) {
            if (strcmp(found->splits[i].name, r->index->splits[k].name) != 0)
                continue;
            free(r->index->splits[k].shards);
            r->index->splits[k] = found->splits[i];
            found->splits[i].shards = NULL;
        }
    }
}

static void remove_file(const run *r, const char *name)
{
    char *path = ttt__path_new(r->options->out, name);
    if (path != NULL)
        unlink(path);
    free(path);
}

/* A complete folder stays as it is; this only checks that all its shards are there. */
static pjrt_status *check_complete(run *r)
{
    for (int i = TRAIN; i <= VALIDATION; i++) {
        ttt_dataset *data;
        if (r->index->splits[i].count > 0)
            PJRT_TRY(ttt_dataset_open(r->options->out, r->index->splits[i].name, &data));
        else
            data = NULL;
        ttt_dataset_free(data);
    }
    remove_file(r, "journal.json");
    return NULL;
}

static pjrt_status *open_folder(run *r, ttt__folder_state *state)
{
    ttt__data_index *found = NULL;
    PJRT_TRY(lock_folder(r));
    pjrt_status *st = ttt__folder_inspect(r->options->out, r->index, &r->journal, state, &found);
    if (st == NULL && *state != TTT__FRESH) {
        adopt_shards(r, found);
        r->resumed = true;
    }
    ttt__data_index_free(found);
    return st;
}

/* ---- main loop ---- */

static ttt_prepare_progress progress_of(const run *r)
{
    const ttt__data_index *index = r->output == NULL ? r->index : ttt__output_index(r->output);
    return (ttt_prepare_progress){
        .bytes = r->journal.taken,
        .total_bytes = r->inputs.bytes,
        .documents = index->splits[TRAIN].documents + index->splits[VALIDATION].documents,
        .tokens = index->splits[TRAIN].tokens + index->splits[VALIDATION].tokens,
        .bad_lines = r->journal.bad_lines,
        .seconds = r->journal.seconds + ttt__seconds() - r->began,
    };
}

static void report_progress(run *r, bool now)
{
    double time = ttt__seconds();
    if (r->options->progress == NULL || (!now && time - r->last_progress < 0.2))
        return;
    r->last_progress = time;
    ttt_prepare_progress progress = progress_of(r);
    r->options->progress(r->options->ctx, &progress);
}

/* Makes everything written so far durable. The interval limits the cost to a tenth of the time. */
static pjrt_status *write_journal(run *r)
{
    double began = ttt__seconds();
    ttt__journal journal = r->journal;
    journal.seconds += began - r->began;
    PJRT_TRY(ttt__output_sync(r->output));
    PJRT_TRY(ttt__folder_write(r->options->out, ttt__output_index(r->output), &journal, false));
    double now = ttt__seconds();
    r->next_journal = now + fmax(0.25, 10 * (now - began));
    return NULL;
}

static int split_of(const run *r, int64_t document)
{
    return ttt__draw(r->options->seed, (uint64_t)document) < r->options->validation ? VALIDATION
                                                                                    : TRAIN;
}

static pjrt_status *count_bad_lines(run *r, const ttt__unit *unit)
{
    char *first = r->journal.first_bad;
    long long line = r->journal.line + unit->first_bad;
    if (unit->bad_lines > 0 && r->options->strict)
        return PJRT_FAIL(INVALID_ARGUMENT, where, "%s:%lld: %s", unit->input->path, line,
                         unit->reason);
    if (unit->bad_lines > 0 && r->journal.bad_lines == 0) {
        size_t length = strlen(unit->input->path); /* keep the end of a long path */
        snprintf(first, sizeof r->journal.first_bad, "%s:%lld: %.80s",
                 unit->input->path + (length > 90 ? length - 90 : 0), line, unit->reason);
    }
    r->journal.bad_lines += unit->bad_lines;
    return NULL;
}

/* Consecutive documents of one split are written with one call. */
static pjrt_status *write_spans(run *r, const ttt__unit *unit)
{
    const unsigned char *at = unit->tokens;
    int width = ttt__output_index(r->output)->width;
    for (size_t i = 0; i < unit->n_spans;) {
        int64_t tokens = 0, documents = 0;
        int64_t first = r->journal.documents - (unit->spans[i].begins ? 0 : 1);
        int split = split_of(r, first);
        for (; i < unit->n_spans; i++) {
            bool begins = unit->spans[i].begins;
            if (begins && split_of(r, r->journal.documents) != split)
                break;
            r->journal.documents += begins;
            documents += begins;
            tokens += unit->spans[i].tokens;
        }
        PJRT_TRY(ttt__output_put(r->output, split, at, tokens, documents));
        at += tokens * width;
    }
    return NULL;
}

static pjrt_status *write_unit(run *r, const ttt__unit *unit)
{
    PJRT_TRY(write_spans(r, unit));
    r->journal.line = unit->next.file == r->journal.at.file ? r->journal.line + unit->lines : 0;
    r->journal.at = unit->next;
    r->journal.taken = unit->taken;
    return NULL;
}

/* Takes units until the input ends. Sets `torn` if only part of a unit was written. */
static pjrt_status *take_units(run *r, ttt__pipeline *pipeline, bool *torn)
{
    for (bool end = false; !end;) {
        if (r->options->stop != NULL && atomic_load(r->options->stop))
            return PJRT_FAIL(CANCELLED, where, "stopped: run the same command to resume");
        ttt__unit *unit = ttt__pipeline_next(pipeline);
        if (unit != NULL) {
            pjrt_status *st = unit->failed;
            unit->failed = NULL;
            end = unit->end;
            if (st == NULL && !end && (st = count_bad_lines(r, unit)) == NULL) {
                st = write_unit(r, unit);
                *torn = st != NULL;
            }
            ttt__pipeline_release(pipeline);
            PJRT_TRY(st);
        }
        report_progress(r, false);
        if (ttt__seconds() >= r->next_journal)
            PJRT_TRY(write_journal(r));
    }
    return NULL;
}

static int threads_of(const run *r)
{
    cpu_set_t set;
    int count = r->options->threads;
    if (count == 0)
        count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return count > MAX_THREADS ? MAX_THREADS : count;
}

static pjrt_status *prepare_rest(run *r)
{
    ttt__splitter *splitter = NULL;
    ttt__pipeline *pipeline = NULL;
    ttt__encoding how = {r->tokenizer, field(r), ttt__output_index(r->output)->width};
    bool torn = false;
    PJRT_TRY(write_journal(r)); /* from here on the folder carries our journal */
    pjrt_status *st =
        ttt__splitter_new(&r->inputs, r->options->separator, r->journal.at, &splitter);
    if (st == NULL)
        st = ttt__pipeline_new(splitter, &how, threads_of(r), &pipeline);
    if (st == NULL)
        st = take_units(r, pipeline, &torn);
    if (st != NULL && !torn)
        pjrt_status_free(write_journal(r)); /* report the first failure, not this one */
    ttt__pipeline_free(pipeline);
    ttt__splitter_free(splitter);
    return st;
}

/* ---- completion ---- */

static pjrt_status *copy_tokenizer(const run *r)
{
    char *bytes;
    size_t size;
    const ttt__data_index *index = ttt__output_index(r->output);
    if (index->file[0] == '\0')
        return NULL;
    PJRT_TRY(ttt__file_read(r->options->tokenizer, MAX_TOKENIZER_BYTES, &bytes, &size));
    XXH128_hash_t hash = XXH3_128bits(bytes, size);
    pjrt_status *st = hash.low64 == index->hash[0] && hash.high64 == index->hash[1]
                          ? ttt__file_replace(r->options->out, index->file, bytes, size)
                          : PJRT_FAIL(ABORTED, where, "%s: the file changed while it was used",
                                      r->options->tokenizer);
    free(bytes);
    return st;
}

static pjrt_status *finish(run *r)
{
    if (progress_of(r).tokens == 0) {
        remove_file(r, "journal.json");
        rmdir(r->options->out);
        return PJRT_FAIL(INVALID_ARGUMENT, where, "the inputs contain no document%s%s",
                         r->journal.bad_lines > 0 ? "; the first bad line: " : "",
                         r->journal.first_bad);
    }
    PJRT_TRY(ttt__output_sync(r->output));
    PJRT_TRY(copy_tokenizer(r));
    PJRT_TRY(ttt__folder_write(r->options->out, ttt__output_index(r->output), &r->journal, true));
    remove_file(r, "journal.json");
    r->journal.taken = r->inputs.bytes;
    report_progress(r, true);
    return NULL;
}

static pjrt_status *prepare(run *r)
{
    ttt__folder_state state;
    PJRT_TRY(check(r->options));
    PJRT_TRY(ttt__inputs_find(r->options->inputs, r->options->n_inputs, &r->inputs));
    PJRT_TRY(ttt_tokenizer_open(r->options->tokenizer, &r->tokenizer));
    PJRT_TRY(begin_index(r));
    PJRT_TRY(open_folder(r, &state));
    if (state == TTT__COMPLETE) {
        r->journal.taken = r->inputs.bytes;
        return check_complete(r);
    }
    ttt__data_index *index = r->index;
    r->index = NULL;
    PJRT_TRY(ttt__output_new(r->options->out, index, shard_tokens(r), &r->output));
    PJRT_TRY(prepare_rest(r));
    return finish(r);
}

static void fill_report(const run *r, ttt_prepare_report *report)
{
    const ttt__data_index *index = r->output == NULL ? r->index : ttt__output_index(r->output);
    report->all = progress_of(r);
    report->train_tokens = index->splits[TRAIN].tokens;
    report->validation_tokens = index->splits[VALIDATION].tokens;
    report->train_documents = index->splits[TRAIN].documents;
    report->validation_documents = index->splits[VALIDATION].documents;
    memcpy(report->first_bad, r->journal.first_bad, sizeof report->first_bad);
    report->files = r->inputs.count;
    report->skipped_files = r->inputs.skipped;
    memcpy(report->first_skipped, r->inputs.first_skipped, sizeof report->first_skipped);
    report->resumed = r->resumed;
}

pjrt_status *ttt_prepare(const ttt_prepare_options *options, ttt_prepare_report *report)
{
    run r = {.options = options, .lock = -1, .began = ttt__seconds()};
    *report = (ttt_prepare_report){0};
    pjrt_status *st = prepare(&r);
    if (r.index != NULL || r.output != NULL)
        fill_report(&r, report);
    ttt__output_free(r.output);
    ttt__data_index_free(r.index);
    json_decref(r.journal.options);
    if (r.lock >= 0)
        close(r.lock);
    ttt_tokenizer_free(r.tokenizer);
    ttt__inputs_free(&r.inputs);
    return st;
}
