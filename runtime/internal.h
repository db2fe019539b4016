/* Private to the runtime room. */
#ifndef RUNTIME_INTERNAL_H
#define RUNTIME_INTERNAL_H

#include "runtime/ttt_runtime.h"

#include <limits.h>

/* An array without parts; NULL when out of memory. */
ttt_array *ttt__array_new(const ttt_place *place, const hlo_shape *shape, const hlo_spec *spec);

/* Code for a place: out of its cache when it has one, where it is put otherwise. */
PJRT_MUST_CHECK pjrt_status *ttt__place_compile(const ttt_place *place, pjrt_program code,
                                                pjrt_executable **out, bool *cached);
/* A program of one device whose results are what its executable says; takes it over, whatever
 * happens. */
PJRT_MUST_CHECK pjrt_status *ttt__program_adopt(const ttt_place *place, pjrt_executable *exe,
                                                ttt_program **out);

/* What ttt_model_tokenizer opens: "bytes", or the path of a file. */
PJRT_MUST_CHECK pjrt_status *ttt__model_tokenizer_name(const char *path, const char *chosen,
                                                       int64_t vocab, char found[PATH_MAX]);

#endif
