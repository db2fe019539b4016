/*
 * The driver of the correctness tests: a graph described in JSON becomes one of hlo_builder's.
 *
 * The description is neutral (tests/hlo_builder/neutral.py writes it and says what it means): the
 * same one is given to JAX and to NumPy. Only the public functions of hlo.h build; the private
 * header is read for the table of operations.
 */
#ifndef TESTS_HLO_DRIVER_H
#define TESTS_HLO_DRIVER_H

#include "hlo_builder/hlo.h"
#include "hlo_builder/internal.h"

#include <jansson.h>

typedef struct driver_body driver_body;

typedef struct driver_graph {
    hlo_graph *g;
    hlo_val *values; /* by the description's numbers */
    size_t n_values;
    driver_body *bodies; /* contexts of callbacks; they live as long as the graph */
    bool ops_taken;
    bool ops[HLO_NUM_OPS]; /* what there was before the first gradient was asked for */
} driver_graph;

/* Builds the graph of a document. An error of the graph stays in it; a document that makes no sense
 * ends the program. */
void driver_build(driver_graph *d, json_t *document);
void driver_free(driver_graph *d);

/* Ends the program: the description is at fault, not what it describes. */
_Noreturn void driver_die(const char *format, ...) __attribute__((format(printf, 1, 2)));

hlo_type driver_type(const char *name);
hlo_dims driver_dims(json_t *list);
/* Bytes from base64; `*size` of them, the caller's to free. And back. */
unsigned char *driver_decode(const char *text, size_t *size);
char *driver_encode(const unsigned char *bytes, size_t size);

#endif
