/*
 * Data: text on disk to token shards on disk, and those to batches.
 *
 *     #include "runtime/data/ttt_data.h"
 *
 *     ttt_dataset *data = NULL;
 *     ttt_loader *loader = NULL;
 *     pjrt_status *st = ttt_dataset_open("prepared", "train", &data);
 *     ttt_loader_options options = {.time = 2048, .batch = 8, .rows = 8, .seed = 1};
 *     if (!st) st = ttt_loader_new(data, &options, 0, &loader);
 *     for (ttt_batch batch; !st && !(st = ttt_loader_next(loader, &batch));)
 *         … batch.tokens [rows, time], batch.labels [rows, time] …
 *     ttt_loader_free(loader);
 *     ttt_dataset_free(data);
 *
 * Failures are statuses as everywhere in this room. A prepared folder holds index.json and shards
 * SPLIT-00000.tokens …: little-endian u16 or u32 numbers and nothing else. index.json has version,
 * tokenizer (kind, file's hash, vocab, bos, eos), type, splits with their shards (name, tokens,
 * documents, XXH3-128), and how it was made.
 */
#ifndef RUNTIME_DATA_TTT_DATA_H
#define RUNTIME_DATA_TTT_DATA_H

#include "pjrt/pjrt_status.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- preparing ---------------------------------------------------------------------------------
 */

/* How far it is, told a few times a second from one thread. */
typedef struct ttt_prepare_progress {
    int64_t bytes, total_bytes; /* of the input files as they lie on disk */
    int64_t documents, tokens, bad_lines;
    double seconds;
} ttt_prepare_progress;

typedef struct ttt_prepare_options {
    const char *const *inputs; /* files, or folders whose files are all taken in order of names */
    int n_inputs;
    const char *tokenizer; /* as ttt_tokenizer_open takes it; its file is copied to `out` */
    const char *out;
    const char *field; /* of JSONL; NULL: "text" */
    double validation; /* share of documents, 0 to 1; each falls by its number and the seed */
    uint64_t seed;
    int threads;          /* 0: all cores */
    int64_t shard_tokens; /* 0: 2^27 */
    bool strict;          /* the first bad line is an error; else they are counted */
    /* A line that is this ends a document of a text file, and belongs to none; "": a blank line.
     * NULL: a file is one document. */
    const char *separator;
    void (*progress)(void *ctx, const ttt_prepare_progress *progress);
    void *ctx;
    const atomic_bool *stop; /* when true: leave in good order, to be continued */
} ttt_prepare_options;

typedef struct ttt_prepare_report {
    ttt_prepare_progress all;
    int64_t train_tokens, validation_tokens, train_documents, validation_documents;
    char first_bad[200];          /* "FILE:LINE: reason" */
    int64_t files, skipped_files; /* `skipped_files`: of folders, with endings that tell nothing */
    char first_skipped[200];
    bool resumed; /* parts of an earlier, cut run were taken over */
} ttt_prepare_report;

/*
 * Text files end with .txt .text .md, files of JSON lines with .jsonl .json; each may be compressed
 * and end with .zst after that. Other files of folders are passed over, hidden ones silently; named
 * by the caller they are refused.
 *
 * Documents become BOS … EOS (where the tokenizer has them), in the order of the inputs whatever
 * the number of threads: the same inputs and options give the same bytes. Empty documents are none.
 * A document of a text file that is longer than 2 MB is encoded in pieces cut at ends of lines. Bad
 * lines are those that are not JSON, are no object with a text in the field, or have more than
 * 16 MB.
 *
 * A run that was cut, by `stop` (CANCELLED), a kill or a full disk, is continued by the next one
 * with the same options and inputs; it loses about a second. index.json comes last, and with it the
 * folder is whole; doing the same again then does nothing. A folder of other options or inputs is
 * refused (ALREADY_EXISTS), not overwritten, and so is one in which another process is at work.
 *
 * Memory does not depend on the size of the input: about 30 MB and 60 MB a thread, and while lines
 * of many megabytes are read up to some 40 times the longest of them a thread, beside the
 * tokenizer.
 */
PJRT_MUST_CHECK pjrt_status *ttt_prepare(const ttt_prepare_options *options,
                                         ttt_prepare_report *report);

/* ---- prepared data -----------------------------------------------------------------------------
 */

/* One split of a prepared folder, mapped. May be shared by threads. */
typedef struct ttt_dataset ttt_dataset;

typedef struct ttt_dataset_about {
    int64_t tokens, documents;
    int shards;
    int64_t vocab;
    int32_t bos, eos;
    const char *tokenizer; /* "bytes", or the path of the file in the folder */
    uint64_t hash[2];      /* of the split's shards' hashes: what identifies the token stream */
} ttt_dataset_about;

/* Sizes are checked; hashes by ttt_dataset_verify, which names the first broken shard. NOT_FOUND
 * when the folder has no such split; what is broken is DATA_LOSS. Numbers that are no token of the
 * vocabulary show when they are read. A file that shrinks while it is open is beyond all that: it
 * is mapped, and reading what is gone ends the process. */
PJRT_MUST_CHECK pjrt_status *ttt_dataset_open(const char *folder, const char *split,
                                              ttt_dataset **out);
void ttt_dataset_free(ttt_dataset *data);
const ttt_dataset_about *ttt_dataset_info(const ttt_dataset *data);
PJRT_MUST_CHECK pjrt_status *ttt_dataset_verify(const ttt_dataset *data);
/* Tokens [start, start + count) of the stream; what lies outside is refused. */
PJRT_MUST_CHECK pjrt_status *ttt_dataset_read(const ttt_dataset *data, int64_t start, int64_t count,
                                              int32_t *out);

/* ---- batches -----------------------------------------------------------------------------------
 */

/*
 * Sample i is tokens [i time, i time + time + 1): tokens, and labels one further. Rows are drawn
 * one after another: row r of the whole run is sample P(r mod n) of the n there are, where P is a
 * permutation of its epoch, r / n, computed from seed and epoch alone. So the order depends on
 * nothing but data, time and seed: not on the batch, the number of processes, or where a run was
 * cut. A position is the number of rows drawn by all processes.
 */
typedef struct ttt_loader_options {
    int64_t time;
    int64_t batch;           /* rows of a batch, of all processes */
    int64_t first_row, rows; /* those of this process: `rows` from first_row on */
    const int64_t *which;    /* or these `rows`, by their numbers in a batch; NULL: as above */
    uint64_t seed;
    bool in_order; /* no permutation: for evaluation */
    bool resets;   /* fill in ttt_batch.resets */
    int ahead;     /* batches made ahead by a thread of its own; 0: 4 */
} ttt_loader_options;

typedef struct ttt_batch {
    int64_t position;               /* before it: rows drawn */
    const int32_t *tokens, *labels; /* [rows, time] */
    const uint8_t *resets; /* [rows, time]: 1 where a token is BOS; NULL unless asked for */
} ttt_batch;

typedef struct ttt_loader ttt_loader;
/* `position`: 0, or where an earlier loader was. Data of less than one sample is refused, and so
 * are tokenizers without BOS when resets are asked for. */
PJRT_MUST_CHECK pjrt_status *ttt_loader_new(const ttt_dataset *data,
                                            const ttt_loader_options *options, int64_t position,
                                            ttt_loader **out);
void ttt_loader_free(ttt_loader *loader);
/* The next batch, without end; it lives until the next call, and is this process's rows of it. A
 * failure of the thread shows once the batches before it are taken, and then for ever. */
PJRT_MUST_CHECK pjrt_status *ttt_loader_next(ttt_loader *loader, ttt_batch *batch);
/* Samples of an epoch, and the seconds that ttt_loader_next waited for the thread so far. */
int64_t ttt_loader_samples(const ttt_loader *loader);
double ttt_loader_waited(const ttt_loader *loader);
/* The sample that row `row` of the run is. */
int64_t ttt_loader_sample(const ttt_loader *loader, int64_t row);

#endif
