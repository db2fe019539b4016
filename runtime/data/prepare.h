/*
 * Private to ttt_prepare.
 *
 * Input text is split into units of about 2 MB: whole lines, whole documents, or a chunk of a long
 * document. One reader thread produces units, workers encode them in parallel, and the caller's
 * thread takes them in order and writes. Unit boundaries depend only on the input, so the output
 * does not depend on the number of threads or on where a run was interrupted.
 */
#ifndef RUNTIME_DATA_PREPARE_H
#define RUNTIME_DATA_PREPARE_H

#include "runtime/data/data.h"
#include "runtime/tokenizer/ttt_tokenizer.h"

enum {
    TTT__UNIT = 2 << 20,      /* bytes of text */
    TTT__MAX_LINE = 16 << 20, /* of JSONL; longer lines are bad lines */
};

/* ---- input files: prepare_inputs.c ---- */

typedef struct ttt__input {
    char *path;
    int64_t size; /* on disk */
    bool jsonl, zst;
} ttt__input;

typedef struct ttt__inputs {
    ttt__input *list;
    int count, room;
    int64_t bytes, skipped; /* `skipped`: files in folders with an unknown suffix */
    char first_skipped[200];
    uint64_t hash[2]; /* of names, sizes and modification times: detects changed inputs on resume */
} ttt__inputs;

PJRT_MUST_CHECK pjrt_status *ttt__inputs_find(const char *const *names, int count,
                                              ttt__inputs *out);
void ttt__inputs_free(ttt__inputs *inputs);

/* ---- input text: prepare_text.c ---- */

/* Sequential reader of one input file; decompresses .zst. */
typedef struct ttt__text ttt__text;
PJRT_MUST_CHECK pjrt_status *ttt__text_open(const ttt__input *input, ttt__text **out);
void ttt__text_free(ttt__text *text);
/* Reads up to `room` bytes; fewer only at the end of the file. Fails if the file's size differs
 * from the one found at the start. */
PJRT_MUST_CHECK pjrt_status *ttt__text_read(ttt__text *text, char *bytes, size_t room,
                                            size_t *count);
/* Skips the first `count` bytes of text. */
PJRT_MUST_CHECK pjrt_status *ttt__text_skip(ttt__text *text, int64_t count);
int64_t ttt__text_taken(const ttt__text *text); /* bytes of the file read so far */

/* ---- units: prepare_split.c ---- */

/* The start of a unit. */
typedef struct ttt__cursor {
    int file;
    int64_t offset; /* in the file's text */
    bool inside;    /* inside a document */
} ttt__cursor;

/* A document of a text file, or part of a long one. */
typedef struct ttt__text_chunk {
    size_t start, size;
    bool begins, ends;
} ttt__text_chunk;

/* The tokens of one document or chunk. */
typedef struct ttt__token_span {
    int64_t tokens;
    bool begins;
} ttt__token_span;

typedef struct ttt__unit {
    /* Filled by the reader. */
    const ttt__input *input;
    ttt__cursor next; /* start of the next unit */
    int64_t taken;    /* bytes of all input files up to `next` */
    char *text;
    size_t size, text_room;
    ttt__text_chunk *chunks; /* of text files */
    size_t n_chunks, chunks_room;
    bool too_long; /* a JSONL line over TTT__MAX_LINE; its text was dropped */
    bool end;      /* end of input; the unit is empty */
    /* Filled by a worker. */
    unsigned char *tokens; /* little-endian */
    size_t tokens_size, tokens_room;
    ttt__token_span *spans;
    size_t n_spans, spans_room;
    int64_t lines, bad_lines, first_bad; /* `first_bad`: line number within the unit, from 1 */
    char reason[120];
    /* Set by the reader or the worker. */
    pjrt_status *failed;
} ttt__unit;

void ttt__unit_clear(ttt__unit *unit); /* for reuse; frees unusually large buffers */
void ttt__unit_free(ttt__unit *unit);  /* frees its buffers, not the unit */
/* Grows `list` to hold `count` elements of `size` bytes. False when out of memory. */
bool ttt__grow(void **list, size_t *room, size_t count, size_t size);

typedef struct ttt__splitter ttt__splitter;
PJRT_MUST_CHECK pjrt_status *ttt__splitter_new(const ttt__inputs *inputs, const char *separator,
                                               ttt__cursor start, ttt__splitter **out);
void ttt__splitter_free(ttt__splitter *splitter);
PJRT_MUST_CHECK pjrt_status *ttt__splitter_next(ttt__splitter *splitter, ttt__unit *unit);

/* ---- encoding: prepare_encode.c ---- */

/* Shared by all workers, read-only. */
typedef struct ttt__encoding {
    const ttt_tokenizer *tokenizer;
    const char *field;
    int width;
} ttt__encoding;

PJRT_MUST_CHECK pjrt_status *ttt__unit_encode(const ttt__encoding *how, ttt_encoder *encoder,
                                              ttt_ids *ids, ttt__unit *unit);

/* ---- threads: prepare_pipeline.c ---- */

/* The reader, the workers and the ring of units between them. */
typedef struct ttt__pipeline ttt__pipeline;
PJRT_MUST_CHECK pjrt_status *ttt__pipeline_new(ttt__splitter *splitter, const ttt__encoding *how,
                                               int threads, ttt__pipeline **out);
/* The next unit in order, or NULL if none is ready within a few tenths of a second. The caller
 * owns it until ttt__pipeline_release. */
ttt__unit *ttt__pipeline_next(ttt__pipeline *pipeline);
void ttt__pipeline_release(ttt__pipeline *pipeline);
void ttt__pipeline_free(ttt__pipeline *pipeline); /* stops the threads at any time */

/* ---- output: prepare_write.c ---- */

/* The shards of a folder while they grow. The last shard of each split stays open until it is
 * full. */
typedef struct ttt__output ttt__output;

/* `index` lists the shards already present, from a journal: each is truncated to its journalled
 * size, and the last of each split is read again to restore its hash state. Takes ownership of
 * `index`. Splits are "train", then "validation". */
PJRT_MUST_CHECK pjrt_status *ttt__output_new(const char *folder, ttt__data_index *index,
                                             int64_t shard_tokens, ttt__output **out);
void ttt__output_free(ttt__output *output);
/* Appends tokens to a split. `documents`: how many documents begin in them. */
PJRT_MUST_CHECK pjrt_status *ttt__output_put(ttt__output *output, int split, const void *tokens,
                                             int64_t count, int64_t documents);
/* Syncs all shards; ttt__output_index then describes what is on disk. */
PJRT_MUST_CHECK pjrt_status *ttt__output_sync(ttt__output *output);
ttt__data_index *ttt__output_index(ttt__output *output);

/* ---- folder state: prepare_folder.c ---- */

/* Progress of a run. journal.json has the form of index.json and holds this in `made`. */
typedef struct ttt__journal {
    json_t *options; /* must match to resume */
    ttt__cursor at;
    int64_t line, documents, bad_lines; /* `line`: lines of the file before `at` */
    int64_t taken;                      /* bytes of input */
    double seconds;                     /* of earlier runs */
    char first_bad[200];
} ttt__journal;

typedef enum ttt__folder_state { TTT__FRESH, TTT__INTERRUPTED, TTT__COMPLETE } ttt__folder_state;

/* Finds out what the folder holds and fills `found` and the journal. Refuses folders made with
 * other options or another tokenizer. */
PJRT_MUST_CHECK pjrt_status *ttt__folder_inspect(const char *folder, const ttt__data_index *wanted,
                                                 ttt__journal *journal, ttt__folder_state *state,
                                                 ttt__data_index **found);
/* Writes `index` as journal.json, or as index.json when `whole`. */
PJRT_MUST_CHECK pjrt_status *ttt__folder_write(const char *folder, ttt__data_index *index,
                                               const ttt__journal *journal, bool whole);

#endif
