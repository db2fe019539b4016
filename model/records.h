/* What the data side of the room shares: failures, records of named fields, JSON, whole files. */
#ifndef MODEL_RECORDS_H
#define MODEL_RECORDS_H

#include "model/files/ttt_model_files.h"
#include "model/ttt_model.h"

#include <jansson.h>

/* Fills in `error`, which may be NULL; returns false. */
bool ttt__fail(ttt_error *error, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool ttt__no_memory(ttt_error *error);

/* ---- records of named fields: fields.c ------------------------------------------------------- */

typedef enum ttt__kind {
    TTT__INT,  /* int64_t */
    TTT__REAL, /* double */
    TTT__BOOL, /* bool */
    TTT__WORD, /* an enum from 0 on, of the size of an int */
} ttt__kind;

typedef struct ttt__field {
    const char *name; /* of --set */
    const char *hf;   /* of config.json at the top; NULL: there in the object "ttt_c" */
    ttt__kind kind;
    size_t offset;            /* into the record */
    double low, high;         /* of numbers */
    const char *const *words; /* of an enum, NULL behind the last */
    bool quiet;               /* config.json does not have it where it is the default */
} ttt__field;

/* NULL when there is none. */
const ttt__field *ttt__field_find(const ttt__field *fields, size_t count, const char *name);
/* By text or by JSON, which must be of the field's kind; what is out of range is refused. */
bool ttt__field_set(void *record, const ttt__field *field, const char *value, ttt_error *error);
bool ttt__field_set_json(void *record, const ttt__field *field, const json_t *value,
                         ttt_error *error);
/* What the JSON is not though the field's kind wants it, "a number"; NULL when all is well. */
const char *ttt__field_wants(const ttt__field *field, const json_t *value);
/* All numbers are in their ranges, and all enums have words. */
bool ttt__fields_check(const void *record, const ttt__field *fields, size_t count,
                       ttt_error *error);
bool ttt__field_same(const void *record, const void *other, const ttt__field *field);
/* One field's value, NULL when out of memory; all of them by name into an object. The record must
 * be good by ttt__fields_check. */
json_t *ttt__field_json(const void *record, const ttt__field *field);
bool ttt__fields_put(const void *record, const ttt__field *fields, size_t count, json_t *object);
/* The text of an object with the fields' values, with as few digits as bring them back; the caller
 * frees it. Takes the object over; when it is not `ok`, there was no memory for all of it. */
char *ttt__fields_dump(const void *record, const ttt__field *fields, size_t count, json_t *object,
                       bool ok, ttt_error *error);

/* ---- configurations: config.c ---------------------------------------------------------------- */

/* The mixer is the first. */
const ttt__field *ttt__config_fields(size_t *count);
/* What a configuration file may leave out. */
void ttt__config_defaults(ttt_config *config, ttt_mixer mixer);
/* Contradictions between the fields of a learner, and whether it is the paper's but for its
 * ablations: config_learner.c. */
bool ttt__learner_check(const ttt_config *config, ttt_error *error);
bool ttt__learner_is_paper_form(const ttt_config *config);

/* ---- parameters: params.c -------------------------------------------------------------------- */

enum { TTT__NAME = 96 };
/* The parameter as files have it: of a stacked one, layer `layer` alone, whose name goes into
 * `name`; any other is itself. */
ttt_param ttt__param_layer(const ttt_param *param, int64_t layer, char name[TTT__NAME]);

/* ---- JSON and files: json.c ------------------------------------------------------------------ */

/* Strict JSON of limited size and depth; `what` names it in errors. NULL on error. */
json_t *ttt__json_load(const char *text, size_t size, size_t most_bytes, int most_depth,
                       const char *what, ttt_error *error);
/* A whole small file with a NUL behind it; the caller frees it. */
char *ttt__read_file(const char *path, size_t most_bytes, size_t *size, ttt_error *error);

/* A file that is there whole or not at all: written beside its place, then moved. */
typedef struct ttt__new_file {
    char *path, *temporary;
    int fd;
} ttt__new_file;
bool ttt__file_create(ttt__new_file *file, const char *path, ttt_error *error);
bool ttt__file_write(ttt__new_file *file, const void *bytes, size_t size, ttt_error *error);
/* Moves it into place when `keep`, else removes it; frees what it holds either way. */
bool ttt__file_close(ttt__new_file *file, bool keep, ttt_error *error);

/* ---- tensors: safetensors.c ------------------------------------------------------------------ */

/* A file in memory, or a block of ours. */
typedef struct ttt__block {
    void *bytes;
    size_t size;
    bool mapped;
} ttt__block;

struct ttt_tensors {
    ttt_tensor *list; /* sorted by name */
    int count, room;
    ttt__block *blocks;
    int n_blocks;
    bool jax; /* names and layouts of the JAX repository */
};

ttt_tensors *ttt__tensors_new(ttt_error *error);
/* Maps the file into memory; the tensors own the mapping. NULL on error. */
const ttt__block *ttt__tensors_map(ttt_tensors *tensors, const char *path, ttt_error *error);
/* A zeroed block of ours. */
void *ttt__tensors_block(ttt_tensors *tensors, size_t size, ttt_error *error);
/* A tensor with a copy of `name`. */
bool ttt__tensors_add(ttt_tensors *tensors, const char *name, size_t length, hlo_shape shape,
                      const void *data, size_t size, ttt_error *error);
/* Sorts by name; refuses names that come twice. */
bool ttt__tensors_sort(ttt_tensors *tensors, ttt_error *error);
/* Bytes of an array of that shape, with checks for overflow; false: too large or negative. */
bool ttt__shape_bytes(const hlo_shape *shape, size_t *bytes);
/* The reader proper, for tests and fuzzing: a file's bytes, which stay the caller's. */
bool ttt__safetensors_parse(ttt_tensors *tensors, const void *bytes, size_t size, ttt_error *error);
/* The same for a JAX checkpoint: jax.c. */
bool ttt__jax_parse(ttt_tensors *tensors, const void *bytes, size_t size, ttt_error *error);

#endif
