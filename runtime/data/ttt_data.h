/*
 * Data: prepares text files as token shards on disk, and reads the shards as batches.
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
 * Errors are returned as statuses. A prepared folder holds index.json and shards
 * SPLIT-00000.tokens …: raw little-endian u16 or u32 token ids without a header. index.json holds
 * the version, the tokenizer (kind, hash of its file, vocab, bos, eos), the token type, the splits
 * with their shards (name, tokens, documents, XXH3-128), and the inputs and options.
 */
#ifndef RUNTIME_DATA_TTT_DATA_H
#define RUNTIME_DATA_TTT_DATA_H

#include "pjrt/pjrt_status.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- prepare ---- */

/* Progress, reported a few times a second from one thread. */
typedef struct ttt_prepare_progress {
    int64_t bytes, total_bytes; /* of the input files on disk (compressed size) */
    int64_t documents, tokens, bad_lines;
    double seconds;
} ttt_prepare_progress;

typedef struct ttt_prepare_options {
    const char *const *inputs; /* files, or folders whose files are read in order of their names */
    int n_inputs;
    const char *tokenizer; /* as for ttt_tokenizer_open; its file is copied to `out` */
    const char *out;
    const char *field; /* JSONL field that holds the text; NULL: "text" */
    double validation; /* fraction of documents, 0 to 1; drawn per document from `seed` */
    uint64_t seed;
    int threads;          /* 0: all cores */
    int64_t shard_tokens; /* 0: 2^27 */
    bool strict;          /* fail at the first bad line; else bad lines are skipped and counted */
    /* In text files, a line equal to this ends a document and belongs to none; "": a blank line.
     * NULL: each file is one document. */
    const char *separator;
    void (*progress)(void *ctx, const ttt_prepare_progress *progress);
    void *ctx;
    const atomic_bool *stop; /* set it to stop with CANCELLED; the next run resumes */
} ttt_prepare_options;

typedef struct ttt_prepare_report {
    ttt_prepare_progress all;
    int64_t train_tokens, validation_tokens, train_documents, validation_documents;
    char first_bad[200];          /* "FILE:LINE: reason" */
    int64_t files, skipped_files; /* `skipped_files`: in folders, with an unknown suffix */
    char first_skipped[200];
    bool resumed; /* continued an interrupted run */
} ttt_prepare_report;

/*
 * Text files end in .txt, .text or .md, files of JSON lines in .jsonl or .json; each may be
 * compressed, with .zst appended. Folders: other files are counted as skipped, hidden ones ignored.
 * Other files given by name are refused.
 *
 * Documents become BOS … EOS (where the tokenizer has them), in the order of the inputs. The same
 * inputs and options give the same bytes for any number of threads. Empty documents are dropped. A
 * text document over 2 MB is encoded in chunks that end at line ends. Bad lines are not JSON, have
 * no string in the field, or are over 16 MB.
 *
 * A run that ends early, by `stop` (CANCELLED), a kill or a full disk, resumes when called again
 * with the same options and inputs; about one second of work is lost. index.json is written last
 * and makes the folder complete; preparing a complete folder again does nothing. A folder made with
 * other options or inputs is refused (ALREADY_EXISTS), and so is one that another process is
 * writing.
 *
 * Memory does not depend on the input size: about 30 MB plus 60 MB per thread plus the tokenizer.
 * JSONL lines of many megabytes need up to 40 times the longest line per thread.
 */
PJRT_MUST_CHECK pjrt_status *ttt_prepare(const ttt_prepare_options *options,
                                         ttt_prepare_report *report);

/* ---- prepared data ---- */

/* One memory-mapped split of a prepared folder. Safe to share between threads. */
typedef struct ttt_dataset ttt_dataset;

typedef struct ttt_dataset_about {
    int64_t tokens, documents;
    int shards;
    int64_t vocab;
    int32_t bos, eos;
    const char *tokenizer; /* "bytes", or the path of the tokenizer file in the folder */
    uint64_t hash[2];      /* of the shards' hashes: identifies the token stream */
} ttt_dataset_about;

/* Checks the shard sizes. ttt_dataset_verify checks the hashes and names the first broken shard.
 * NOT_FOUND if the folder has no such split; DATA_LOSS if it is damaged. Ids outside the
 * vocabulary are detected when read. Shards are memory-mapped: truncating one while it is open
 * crashes the process (SIGBUS). */
PJRT_MUST_CHECK pjrt_status *ttt_dataset_open(const char *folder, const char *split,
                                              ttt_dataset **out);
void ttt_dataset_free(ttt_dataset *data);
const ttt_dataset_about *ttt_dataset_info(const ttt_dataset *data);
PJRT_MUST_CHECK pjrt_status *ttt_dataset_verify(const ttt_dataset *data);
/* Tokens [start, start + count) of the stream. OUT_OF_RANGE beyond its end. */
PJRT_MUST_CHECK pjrt_status *ttt_dataset_read(const ttt_dataset *data, int64_t start, int64_t count,
                                              int32_t *out);

/* ---- batches ---- */

/*
 * Sample i is tokens [i * time, i * time + time + 1): inputs, and labels shifted by one. Row r of
 * the run is sample P(r mod n) of the n samples, where P is a permutation of epoch r / n computed
 * from seed and epoch. The order depends only on data, time and seed, not on the batch size, the
 * number of processes or interruptions. A position is the number of rows drawn by all processes
 * together.
 */
typedef struct ttt_loader_options {
    int64_t time;
    int64_t batch;           /* rows per batch, over all processes */
    int64_t first_row, rows; /* of this process: `rows` rows from first_row */
    const int64_t *which;    /* or these `rows` row numbers of a batch; NULL: consecutive rows */
    uint64_t seed;
    bool in_order; /* no permutation, for evaluation */
    bool resets;   /* fill in ttt_batch.resets */
    int ahead;     /* batches assembled ahead by a background thread; 0: 4 */
} ttt_loader_options;

typedef struct ttt_batch {
    int64_t position;               /* rows drawn before this batch */
    const int32_t *tokens, *labels; /* [rows, time] */
    const uint8_t *resets; /* [rows, time]: 1 where the token is BOS; NULL unless requested */
} ttt_batch;

typedef struct ttt_loader ttt_loader;
/* `position`: 0, or the position of an earlier loader. INVALID_ARGUMENT if the data is shorter
 * than one sample, or if resets are requested and the tokenizer has no BOS. */
PJRT_MUST_CHECK pjrt_status *ttt_loader_new(const ttt_dataset *data,
                                            const ttt_loader_options *options, int64_t position,
                                            ttt_loader **out);
void ttt_loader_free(ttt_loader *loader);
/* This process's rows of the next batch, endlessly. Valid until the next call. An error of the
 * background thread is returned after the batches before it, and on every later call. */
PJRT_MUST_CHECK pjrt_status *ttt_loader_next(ttt_loader *loader, ttt_batch *batch);
/* Samples per epoch, and seconds that ttt_loader_next has waited in total. */
int64_t ttt_loader_samples(const ttt_loader *loader);
double ttt_loader_waited(const ttt_loader *loader);
/* The sample of row `row` of the run. */
int64_t ttt_loader_sample(const ttt_loader *loader, int64_t row);

#endif
