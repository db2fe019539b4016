/* Private to the runtime room. */
#ifndef RUNTIME_INTERNAL_H
#define RUNTIME_INTERNAL_H

#include "runtime/ttt_runtime.h"

/* An array without parts; NULL when out of memory. */
ttt_array *ttt__array_new(const ttt_place *place, const hlo_shape *shape, const hlo_spec *spec);

/* Makes a plugin know the kernels of its platform, once a process. `known`: there are some; without
 * a driver, or for platforms that have none, that is false and no error. */
PJRT_MUST_CHECK pjrt_status *ttt__register_kernels(pjrt_plugin *plugin, const char *platform,
                                                   bool *known);

#endif
