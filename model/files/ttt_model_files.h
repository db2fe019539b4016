/*
 * Checkpoint files: safetensors both ways, JAX checkpoints in.
 *
 *     ttt_tensors *tensors = ttt_tensors_open("folder-of-a-model", &error);
 *     if (tensors == NULL || !ttt_params_match(params, tensors, &error))
 *         fprintf(stderr, "%s\n", error.message);
 *     for (int i = 0; i < params->count; i++)
 *         ttt_params_load(params, i, tensors, values[i], &error);
 *     ttt_tensors_free(tensors);
 *
 * Files are hostile until proved otherwise: every number in them is checked before it is used, and
 * what is refused is refused with a one-line reason. A file that shrinks while it is open is beyond
 * that: it is mapped, and reading what is gone ends the process.
 */
#ifndef MODEL_FILES_TTT_MODEL_FILES_H
#define MODEL_FILES_TTT_MODEL_FILES_H

#include "model/ttt_model.h"

typedef struct ttt_tensor {
    const char *name;
    hlo_shape shape;
    const void *data; /* dense, row-major, little-endian; not aligned */
    size_t size;      /* bytes */
} ttt_tensor;

typedef struct ttt_tensors ttt_tensors;

/*
 * A .safetensors file, an index of several (NAME.index.json), or a folder with a model.safetensors
 * or its index. The types F64, F32, BF16, F16, I64, I32, U64, U32, U16, U8 and BOOL are read.
 */
ttt_tensors *ttt_tensors_open(const char *path, ttt_error *error);
/*
 * A streaming checkpoint of the JAX repository: a train state, of which the parameters are taken,
 * or parameters alone. Names are its own, joined by slashes, from "model/" on.
 */
ttt_tensors *ttt_jax_open(const char *path, ttt_error *error);
void ttt_tensors_free(ttt_tensors *tensors);
int ttt_tensors_count(const ttt_tensors *tensors);
const ttt_tensor *ttt_tensors_get(const ttt_tensors *tensors, int index); /* in order of names */
const ttt_tensor *ttt_tensors_find(const ttt_tensors *tensors, const char *name); /* or NULL */

/* Any type to f32; false for a type that is no number. */
bool ttt_to_f32(hlo_type type, const void *data, size_t count, float *out);
/* f32 to F32 or BF16 (to nearest, ties to even; NaN stays one). */
void ttt_from_f32(hlo_type type, const float *data, size_t count, void *out);

/*
 * Writes F32 and BF16 tensors: all names and shapes first, then the data of each, in that order.
 * The file is in its place, whole, only after ttt_writer_finish said true.
 */
typedef struct ttt_writer ttt_writer;
ttt_writer *ttt_writer_open(const char *path, const ttt_tensor *list, int count, ttt_error *error);
/* Further bytes; tensors follow each other without gaps. */
bool ttt_writer_put(ttt_writer *writer, const void *bytes, size_t size, ttt_error *error);
/* Closes and frees it; with `keep` false or data missing nothing is left behind. */
bool ttt_writer_finish(ttt_writer *writer, bool keep, ttt_error *error);

/* Every parameter is there with its shape, and nothing else is; copies of the tied embedding and
 * tables that others store are passed over. */
bool ttt_params_match(const ttt_params *params, const ttt_tensors *tensors, ttt_error *error);
/* Parameter `index` as the graph wants it: f32, in param.shape. */
bool ttt_params_load(const ttt_params *params, int index, const ttt_tensors *tensors, float *out,
                     ttt_error *error);
/* The block [start, limit) of it, dense and row-major: of the file only what is in it is read. */
bool ttt_params_load_block(const ttt_params *params, int index, const ttt_tensors *tensors,
                           const int64_t *start, const int64_t *limit, float *out,
                           ttt_error *error);
/* From the graph's order of elements to the files'. */
void ttt_param_to_file(const ttt_param *param, const float *in, float *out);
/* All parameters into one file, of type F32 or BF16. `get` fills in parameter `index` in the
 * graph's order. */
typedef bool (*ttt_param_source)(void *ctx, int index, float *out, ttt_error *error);
bool ttt_params_save(const ttt_params *params, const char *path, hlo_type type,
                     ttt_param_source get, void *ctx, ttt_error *error);
/* The same, and when that is more than `shard_bytes` of data, cut between tensors into files beside
 * `path` that its index names: for x/model.safetensors, x/model-00001-of-00002.safetensors and
 * x/model.safetensors.index.json. None of them may be there before. */
bool ttt_params_save_shards(const ttt_params *params, const char *path, hlo_type type,
                            size_t shard_bytes, ttt_param_source get, void *ctx, ttt_error *error);
/* The same by several writers, `part` of `parts`: each writes every parts-th file, is asked only
 * for parameters that are in one of them, and the first one writes the index. */
bool ttt_params_save_part(const ttt_params *params, const char *path, hlo_type type,
                          size_t shard_bytes, int part, int parts, ttt_param_source get, void *ctx,
                          ttt_error *error);

/* What shapes tell about the network of a JAX checkpoint. Rates and the like are the presets';
 * n_heads of attention is not told and stays what it is in `config`. */
bool ttt_jax_config(const ttt_tensors *tensors, ttt_config *config, ttt_error *error);

#endif
