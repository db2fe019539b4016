/* Private to the runtime room. */
#ifndef RUNTIME_INTERNAL_H
#define RUNTIME_INTERNAL_H

#include "runtime/ttt_runtime.h"

/* An array without parts; NULL when out of memory. */
ttt_array *ttt__array_new(const ttt_place *place, const hlo_shape *shape, const hlo_spec *spec);

#endif
