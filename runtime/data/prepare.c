/* ttt_prepare: the thread that takes units in their order and writes them. */
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

static const char call[] = "data";

enum { TRAIN, VALIDATION, MOST_THREADS = 256, MOST_TOKENIZER = 1 << 30 };
#define SHARD_TOKENS (INT64_C(1) << 27)

typedef struct run {
    const ttt_prepare_options *options;
    ttt__inputs inputs;
    ttt_tokenizer *tokenizer;
    ttt__data_index *index; /* until the output has it */
    ttt__journal journal;
    ttt__output *output;
    int lock;
    double began, told, next_journal;
    bool resumed;
} run;

/* ---- what is asked for -------------------------------------------------------------------------
 */

static pjrt_status *check(const ttt_prepare_options *o)
{
    if (o->n_inputs < 1 || o->tokenizer == NULL || o->out == NULL)
        return PJRT_FAIL(INVALID_ARGUMENT, call, "inputs, a tokenizer and a folder are needed");
    if (!(o->validation >= 0 && o->validation <= 1))
        return PJRT_FAIL(INVALID_ARGUMENT, call, "a share for validation is from 0 to 1, not %g",
                         o->validation);
    if (o->threads < 0 || o->threads > MOST_THREADS)
        return PJRT_FAIL(INVALID_ARGUMENT, call, "threads are 1 to %d, not %d", MOST_THREADS,
                         o->threads);
    if (o->shard_tokens < 0 || o->shard_tokens > INT64_C(1) << 40)
        return PJRT_FAIL(INVALID_ARGUMENT, call, "a shard has 1 to 2^40 tokens, not %lld",
                         (long long)o->shard_tokens);
    if (o->separator != NULL && strchr(o->separator, '\n') != NULL)
        return PJRT_FAIL(INVALID_ARGUMENT, call, "a separator is one line");
    if (o->separator != NULL && strlen(o->separator) > 1000)
        return PJRT_FAIL(INVALID_ARGUMENT, call, "a separator has at most 1000 bytes");
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

/* All that the tokens depend on. Whether bad lines are fatal and how many work at it is not. */
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
               ? PJRT_FAIL(INVALID_ARGUMENT, call,
                           "no memory, or the field or the separator is not UTF-8")
               : NULL;
}

/* The name that the tokenizer's file will have in the folder. */
static pjrt_status *tokenizer_name(const run *r, char name[TTT__DATA_NAME])
{
    if (strcmp(r->options->tokenizer, "bytes") == 0)
        return NULL;
    char *copy = strdup(r->options->tokenizer);
    if (copy == NULL)
        return PJRT_NO_MEMORY(call);
    const char *base = basename(copy);
    bool good = strlen(base) < TTT__DATA_NAME && base[0] != '.' && base[0] != '/' &&
                strcmp(base, "index.json") != 0 && strncmp(base, "journal.json", 12) != 0;
    if (good)
        snprintf(name, TTT__DATA_NAME, "%s", base);
    free(copy);
    return good ? NULL
                : PJRT_FAIL(INVALID_ARGUMENT, call,
                            "%s: it would be copied under this name, which is hidden, longer than "
                            "%d bytes or taken: give it another",
                            r->options->tokenizer, TTT__DATA_NAME - 1);
}

static pjrt_status *begin_index(run *r)
{
    const ttt_tokenizer_about *about = ttt_tokenizer_info(r->tokenizer);
    ttt__data_index *index = r->index = calloc(1, sizeof *index);
    if (index == NULL)
        return PJRT_NO_MEMORY(call);
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

/* ---- the folder --------------------------------------------------------------------------------
 */

/* The lock is the folder's own and goes with the process, however it ends. */
static pjrt_status *lock_folder(run *r)
{
    const char *out = r->options->out;
    if (mkdir(out, 0777) != 0 && errno != EEXIST)
        return ttt__io_failed(out, NULL);
    r->lock = open(out, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (r->lock < 0)
        return ttt__io_failed(out, NULL);
    if (flock(r->lock, LOCK_EX | LOCK_NB) != 0)
        return errno == EWOULDBLOCK ? PJRT_FAIL(ALREADY_EXISTS, call,
                                                "%s: another process is preparing data in it", out)
                                    : ttt__io_failed(out, NULL);
    return NULL;
}

/* Shards found become those of our splits. */
static void take_over(run *r, ttt__data_index *found)
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

/* A folder that is whole is left as it is, after a look at whether all of it is there. */
static pjrt_status *check_whole(run *r)
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
    pjrt_status *st = ttt__folder_look(r->options->out, r->index, &r->journal, state, &found);
    if (st == NULL && *state != TTT__FRESH) {
        take_over(r, found);
        r->resumed = true;
    }
    ttt__data_index_free(found);
    return st;
}

/* ---- the loop ----------------------------------------------------------------------------------
 */

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

static void tell(run *r, bool now)
{
    double time = ttt__seconds();
    if (r->options->progress == NULL || (!now && time - r->told < 0.2))
        return;
    r->told = time;
    ttt_prepare_progress progress = progress_of(r);
    r->options->progress(r->options->ctx, &progress);
}

/* What was written so far is kept, whatever happens next. Seldom enough to cost a tenth at most. */
static pjrt_status *keep(run *r)
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
        return PJRT_FAIL(INVALID_ARGUMENT, call, "%s:%lld: %s", unit->input->path, line,
                         unit->reason);
    if (unit->bad_lines > 0 && r->journal.bad_lines == 0) {
        size_t length = strlen(unit->input->path); /* its end tells more than its beginning */
        snprintf(first, sizeof r->journal.first_bad, "%s:%lld: %.80s",
                 unit->input->path + (length > 90 ? length - 90 : 0), line, unit->reason);
    }
    r->journal.bad_lines += unit->bad_lines;
    return NULL;
}

/* Documents one after another that fall into the same split go out together. */
static pjrt_status *write_runs(run *r, const ttt__unit *unit)
{
    const unsigned char *at = unit->tokens;
    int width = ttt__output_index(r->output)->width;
    for (size_t i = 0; i < unit->n_runs;) {
        int64_t tokens = 0, documents = 0;
        int64_t first = r->journal.documents - (unit->runs[i].begins ? 0 : 1);
        int split = split_of(r, first);
        for (; i < unit->n_runs; i++) {
            bool begins = unit->runs[i].begins;
            if (begins && split_of(r, r->journal.documents) != split)
                break;
            r->journal.documents += begins;
            documents += begins;
            tokens += unit->runs[i].tokens;
        }
        PJRT_TRY(ttt__output_put(r->output, split, at, tokens, documents));
        at += tokens * width;
    }
    return NULL;
}

static pjrt_status *write_unit(run *r, const ttt__unit *unit)
{
    PJRT_TRY(write_runs(r, unit));
    r->journal.line = unit->next.file == r->journal.at.file ? r->journal.line + unit->lines : 0;
    r->journal.at = unit->next;
    r->journal.taken = unit->taken;
    return NULL;
}

/* Takes units until there are no more. `torn`: a unit is on the disk in part. */
static pjrt_status *take_units(run *r, ttt__line *line, bool *torn)
{
    for (bool end = false; !end;) {
        if (r->options->stop != NULL && atomic_load(r->options->stop))
            return PJRT_FAIL(CANCELLED, call, "stopped: the same command will go on from here");
        ttt__unit *unit = ttt__line_next(line);
        if (unit != NULL) {
            pjrt_status *st = unit->failed;
            unit->failed = NULL;
            end = unit->end;
            if (st == NULL && !end && (st = count_bad_lines(r, unit)) == NULL) {
                st = write_unit(r, unit);
                *torn = st != NULL;
            }
            ttt__line_done(line);
            PJRT_TRY(st);
        }
        tell(r, false);
        if (ttt__seconds() >= r->next_journal)
            PJRT_TRY(keep(r));
    }
    return NULL;
}

static int threads_of(const run *r)
{
    cpu_set_t set;
    int count = r->options->threads;
    if (count == 0)
        count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return count > MOST_THREADS ? MOST_THREADS : count;
}

static pjrt_status *prepare_rest(run *r)
{
    ttt__cutter *cutter = NULL;
    ttt__line *line = NULL;
    ttt__encoding how = {r->tokenizer, field(r), ttt__output_index(r->output)->width};
    bool torn = false;
    PJRT_TRY(keep(r)); /* the first word in the folder: from here on it is ours */
    pjrt_status *st = ttt__cutter_new(&r->inputs, r->options->separator, r->journal.at, &cutter);
    if (st == NULL)
        st = ttt__line_new(cutter, &how, threads_of(r), &line);
    if (st == NULL)
        st = take_units(r, line, &torn);
    if (st != NULL && !torn)
        pjrt_status_free(keep(r)); /* the failure before is the one to tell */
    ttt__line_free(line);
    ttt__cutter_free(cutter);
    return st;
}

/* ---- the end -----------------------------------------------------------------------------------
 */

static pjrt_status *copy_tokenizer(const run *r)
{
    char *bytes;
    size_t size;
    const ttt__data_index *index = ttt__output_index(r->output);
    if (index->file[0] == '\0')
        return NULL;
    PJRT_TRY(ttt__file_read(r->options->tokenizer, MOST_TOKENIZER, &bytes, &size));
    XXH128_hash_t hash = XXH3_128bits(bytes, size);
    pjrt_status *st = hash.low64 == index->hash[0] && hash.high64 == index->hash[1]
                          ? ttt__file_replace(r->options->out, index->file, bytes, size)
                          : PJRT_FAIL(ABORTED, call, "%s: it was changed while it was used",
                                      r->options->tokenizer);
    free(bytes);
    return st;
}

static pjrt_status *finish(run *r)
{
    if (progress_of(r).tokens == 0) {
        remove_file(r, "journal.json");
        rmdir(r->options->out);
        return PJRT_FAIL(INVALID_ARGUMENT, call, "no document was found in the inputs%s%s",
                         r->journal.bad_lines > 0 ? "; the first bad line: " : "",
                         r->journal.first_bad);
    }
    PJRT_TRY(ttt__output_sync(r->output));
    PJRT_TRY(copy_tokenizer(r));
    PJRT_TRY(ttt__folder_write(r->options->out, ttt__output_index(r->output), &r->journal, true));
    remove_file(r, "journal.json");
    r->journal.taken = r->inputs.bytes;
    tell(r, true);
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
    if (state == TTT__WHOLE) {
        r->journal.taken = r->inputs.bytes;
        return check_whole(r);
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
