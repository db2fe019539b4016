/*
 * Private to the portable writer: MLIR's bytecode as a container.
 *
 * Format version 6, which every portable artifact since StableHLO 0.15 has. It knows strings,
 * dialects, names of operations, attributes, types and properties as tables of encodings, and how
 * they and the operations are put into a file; what the encodings mean is vhlo.c's business. There
 * are no resources, no use-list orders and no aligned sections: nothing written here needs them.
 */
#ifndef HLO_BUILDER_WRITE_BYTECODE_H
#define HLO_BUILDER_WRITE_BYTECODE_H

#include "hlo_builder/internal.h"
#include "hlo_builder/write/text.h"

typedef struct hlo_pool_entry {
    size_t at, size; /* of its bytes */
    uint64_t hash;
    uint32_t dialect;
    bool is_text; /* of an attribute: MLIR's text instead of the dialect's own encoding */
} hlo_pool_entry;

/* Distinct byte strings, numbered in the order of their first use. */
typedef struct hlo_pool {
    hlo_text bytes;
    hlo_pool_entry *entries;
    size_t n, capacity;
    uint32_t *slots; /* number plus one, by hash */
    size_t n_slots;
} hlo_pool;

typedef struct hlo_bytecode {
    hlo_graph *g; /* gets the errors */
    hlo_pool strings, dialects, ops, attrs, types, properties;
} hlo_bytecode;

/* ---- encodings ---- */

void hlo__put_byte(hlo_text *t, unsigned char byte);
void hlo__put_varint(hlo_text *t, uint64_t value);
void hlo__put_signed(hlo_text *t, int64_t value);         /* small when close to zero */
void hlo__put_text(hlo_text *t, const hlo_text *content); /* fails with it */
void hlo__put_section(hlo_text *t, unsigned char id, const hlo_text *content);
enum { HLO_SECTION_IR = 4 };

/* ---- tables ---- */

/* Numbers of what is put into the tables, or was there already. */
uint32_t hlo__bytecode_string(hlo_bytecode *b, const char *string);
uint32_t hlo__bytecode_dialect(hlo_bytecode *b, const char *name);
uint32_t hlo__bytecode_op(hlo_bytecode *b, const char *dialect, const char *name);
uint32_t hlo__bytecode_attr(hlo_bytecode *b, const char *dialect, const hlo_text *encoding);
/* An attribute in MLIR's text, for dialects that promise no encoding. */
uint32_t hlo__bytecode_text_attr(hlo_bytecode *b, const char *dialect, const hlo_text *text);
uint32_t hlo__bytecode_type(hlo_bytecode *b, const char *dialect, const hlo_text *encoding);
uint32_t hlo__bytecode_properties(hlo_bytecode *b, const hlo_text *encoding);

/* The file: `op` is the encoding of the only operation at the top. NULL on error. */
char *hlo__bytecode_file(hlo_bytecode *b, const char *producer, const hlo_text *op, size_t *size);
void hlo__bytecode_free(hlo_bytecode *b);

#endif
