/*
 * Private to the preparing of data.
 *
 * Input is cut into units of about 2 MB of text: whole lines, whole documents, or a piece of a long
 * one. A reader makes them one after another, workers encode them side by side, and the caller's
 * thread takes them in their order and writes. How input is cut depends on the input alone, so the
 * output does not depend on the number of threads, nor on where a run was cut.
 */
#ifndef RUNTIME_DATA_PREPARE_H
#define RUNTIME_DATA_PREPARE_H

#include "runtime/data/data.h"
#include "runtime/tokenizer/ttt_tokenizer.h"

enum {
    TTT__UNIT = 2 << 20,       /* bytes of text */
    TTT__MOST_LINE = 16 << 20, /* of JSONL; a longer one is a bad line */
};

/* ---- which files: prepare_inputs.c -------------------------------------------------------------
 */

typedef struct ttt__input {
    char *path;
    int64_t size; /* on the disk */
    bool jsonl, zst;
} ttt__input;

typedef struct ttt__inputs {
    ttt__input *list;
    int count, room;
    int64_t bytes, skipped; /* `skipped`: files of folders that have other endings */
    char first_skipped[200];
    uint64_t hash[2]; /* of names, sizes and times: whether these are the files of another run */
} ttt__inputs;

PJRT_MUST_CHECK pjrt_status *ttt__inputs_find(const char *const *names, int count,
                                              ttt__inputs *out);
void ttt__inputs_free(ttt__inputs *inputs);

/* ---- the text of one: prepare_text.c -----------------------------------------------------------
 */

/* A file read forward, decompressed where it must be. */
typedef struct ttt__text ttt__text;
PJRT_MUST_CHECK pjrt_status *ttt__text_open(const ttt__input *input, ttt__text **out);
void ttt__text_free(ttt__text *text);
/* Up to `room` bytes; fewer at the end alone, where the file must be whole and as large as it was
 * when it was found. */
PJRT_MUST_CHECK pjrt_status *ttt__text_read(ttt__text *text, char *bytes, size_t room,
                                            size_t *count);
/* Leaves out the first bytes of the text. */
PJRT_MUST_CHECK pjrt_status *ttt__text_skip(ttt__text *text, int64_t count);
int64_t ttt__text_taken(const ttt__text *text); /* bytes of the file so far */

/* ---- units: prepare_cut.c ----------------------------------------------------------------------
 */

/* Where a unit begins. */
typedef struct ttt__cursor {
    int file;
    int64_t offset; /* in its text */
    bool inside;    /* within a document */
} ttt__cursor;

/* A document of a text file, or a part of one. */
typedef struct ttt__checkpoint_shard {
    size_t start, size;
    bool begins, ends;
} ttt__checkpoint_shard;

/* The tokens of one. */
typedef struct ttt__run {
    int64_t tokens;
    bool begins;
} ttt__run;

typedef struct ttt__unit {
    /* What the reader fills in. */
    const ttt__input *input;
    ttt__cursor next; /* where the unit after it begins */
    int64_t taken;    /* bytes of all input files up to there */
    char *text;
    size_t size, text_room;
    ttt__checkpoint_shard *pieces; /* of text files */
    size_t n_pieces, pieces_room;
    bool too_long; /* it was a line that is not even kept */
    bool end;      /* there is no more */
    /* What a worker does. */
    unsigned char *tokens; /* little-endian */
    size_t tokens_size, tokens_room;
    ttt__run *runs;
    size_t n_runs, runs_room;
    int64_t lines, bad_lines, first_bad; /* `first_bad`: counted from 1 within the unit */
    char reason[120];
    /* Either's. */
    pjrt_status *failed;
} ttt__unit;

void ttt__unit_clear(ttt__unit *unit); /* for another use; large memory is given back */
void ttt__unit_free(ttt__unit *unit);  /* what it holds */
/* `list` gets room for `count` elements of `size`; false when out of memory. */
bool ttt__grow(void **list, size_t *room, size_t count, size_t size);

typedef struct ttt__cutter ttt__cutter;
PJRT_MUST_CHECK pjrt_status *ttt__cutter_new(const ttt__inputs *inputs, const char *separator,
                                             ttt__cursor start, ttt__cutter **out);
void ttt__cutter_free(ttt__cutter *cutter);
PJRT_MUST_CHECK pjrt_status *ttt__cutter_next(ttt__cutter *cutter, ttt__unit *unit);

/* ---- encoding: prepare_encode.c ----------------------------------------------------------------
 */

/* How; the same for all workers. */
typedef struct ttt__encoding {
    const ttt_tokenizer *tokenizer;
    const char *field;
    int width;
} ttt__encoding;

PJRT_MUST_CHECK pjrt_status *ttt__unit_encode(const ttt__encoding *how, ttt_encoder *encoder,
                                              ttt_ids *ids, ttt__unit *unit);

/* ---- threads: prepare_line.c -------------------------------------------------------------------
 */

/* Reader and workers, and the units between them. */
typedef struct ttt__line ttt__line;
PJRT_MUST_CHECK pjrt_status *ttt__line_new(ttt__cutter *cutter, const ttt__encoding *how,
                                           int threads, ttt__line **out);
/* The next unit in order, or NULL when it is not there within some tenths of a second. It is the
 * caller's until ttt__line_done. */
ttt__unit *ttt__line_next(ttt__line *line);
void ttt__line_done(ttt__line *line);
void ttt__line_free(ttt__line *line); /* whatever it is doing */

/* ---- output: prepare_write.c -------------------------------------------------------------------
 */

/* The shards of a folder as they grow. The last of a split is open until it is full. */
typedef struct ttt__output ttt__output;

/* `index` says what is there already: the shards of a journal, which are cut to what it says and of
 * which the last is read again for its hash. Taken over; splits are "train", then "validation". */
PJRT_MUST_CHECK pjrt_status *ttt__output_new(const char *folder, ttt__data_index *index,
                                             int64_t shard_tokens, ttt__output **out);
void ttt__output_free(ttt__output *output);
/* Tokens of a document that begins here, or goes on. */
PJRT_MUST_CHECK pjrt_status *ttt__output_put(ttt__output *output, int split, const void *tokens,
                                             int64_t count, int64_t documents);
/* All of it is on the disk, and ttt__output_index tells what it is. */
PJRT_MUST_CHECK pjrt_status *ttt__output_sync(ttt__output *output);
ttt__data_index *ttt__output_index(ttt__output *output);

/* ---- the folder: prepare_folder.c --------------------------------------------------------------
 */

/* How far a run is. journal.json is an index.json of what is on the disk, with this in `made`. */
typedef struct ttt__journal {
    json_t *options; /* what must be the same to go on */
    ttt__cursor at;
    int64_t line, documents, bad_lines; /* `line`: lines of the file before `at` */
    int64_t taken;                      /* bytes of input */
    double seconds;                     /* of the runs before */
    char first_bad[200];
} ttt__journal;

typedef enum ttt__folder_state { TTT__FRESH, TTT__CUT, TTT__WHOLE } ttt__folder_state;

/* What the folder holds, with its index in `found` and its journal filled in. Refuses what is not
 * of these options and this tokenizer. */
PJRT_MUST_CHECK pjrt_status *ttt__folder_look(const char *folder, const ttt__data_index *wanted,
                                              ttt__journal *journal, ttt__folder_state *state,
                                              ttt__data_index **found);
/* Writes `index` as journal.json, or as index.json when the run is through. */
PJRT_MUST_CHECK pjrt_status *ttt__folder_write(const char *folder, ttt__data_index *index,
                                               const ttt__journal *journal, bool whole);

#endif
