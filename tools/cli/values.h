/* Elements of any type as doubles, for printing and for filling. */
#ifndef TOOLS_CLI_VALUES_H
#define TOOLS_CLI_VALUES_H

#include "pjrt/pjrt.h"

/* Element `index` of an array of `type`; complex numbers give their real part. */
double value_get(pjrt_type type, const void *data, size_t index);
/* Rounds to the type; out of range values are the caller's affair. */
void value_set(pjrt_type type, void *data, size_t index, double value);

#endif
