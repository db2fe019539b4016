/* Names and layouts of the JAX repository's checkpoints. */
#ifndef MODEL_FILES_JAX_CHECKPOINT_H
#define MODEL_FILES_JAX_CHECKPOINT_H

#include "model/records.h"

enum { TTT__JAX_NAME = 128 };

typedef struct ttt__jax_layout {
    hlo_shape shape;       /* f32, as stored there */
    bool turn;             /* stored [rows, columns], and wanted the other way round */
    int64_t rows, columns; /* without dimensions of 1 */
} ttt__jax_layout;

/* Where a parameter is found there; false: nowhere. */
bool ttt__jax_layout_of(const ttt_param *param, char name[TTT__JAX_NAME], ttt__jax_layout *layout);

#endif
