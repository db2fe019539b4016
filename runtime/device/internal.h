/* Private to the runtime room. */
#ifndef RUNTIME_DEVICE_INTERNAL_H
#define RUNTIME_DEVICE_INTERNAL_H

#include "runtime/cluster/agree.h"
#include "runtime/device/ttt_device.h"

#include <limits.h>

/* An array without parts; NULL when out of memory. */
ttt_array *ttt__array_new(const ttt_devices *devices, const hlo_shape *shape, const hlo_spec *spec);

/* Code for a place: out of its cache when it has one, where it is put otherwise. */
PJRT_MUST_CHECK pjrt_status *ttt__devices_compile(const ttt_devices *devices, pjrt_program code,
                                                  pjrt_executable **out, bool *cached);
/* A program of one device whose results are what its executable says; takes it over, whatever
 * happens. */
PJRT_MUST_CHECK pjrt_status *ttt__program_adopt(const ttt_devices *devices, pjrt_executable *exe,
                                                ttt_program **out);

/* What ttt_model_tokenizer opens: "bytes", or the path of a file. */
PJRT_MUST_CHECK pjrt_status *ttt__model_tokenizer_name(const char *path, const char *chosen,
                                                       int64_t vocab, char found[PATH_MAX]);

/* Whether a device of the mesh is this process's. */
bool ttt__devices_has(const ttt_devices *devices, int device);

/* A block of an array, and the device that gives it when the array is collected. */
typedef struct ttt__owned_block {
    ttt_block block;
    int device, process;
} ttt__owned_block;

/* All blocks of an array, each once: the same list in every process. Of several devices that have a
 * block `turn` chooses, so that not always the first has the work. The caller frees the list. */
PJRT_MUST_CHECK pjrt_status *ttt__devices_shares(const ttt_devices *devices, const hlo_shape *shape,
                                                 const hlo_spec *spec, int turn,
                                                 ttt__owned_block **out, int *count);
/* Elements of a block. */
int64_t ttt__block_elements(const ttt_block *block, int rank);
/* The part of a device of this process, dense. */
PJRT_MUST_CHECK pjrt_status *ttt__array_part(const ttt_array *array, int device, void *data,
                                             size_t size);
/* Copies a block between its dense form and its place in the whole. */
void ttt__block_copy(const hlo_shape *shape, const ttt_block *block, void *whole, void *part,
                     bool to_part);

#endif
