/*
 * Optimized programs built message by message, small enough to work out their cost by hand.
 *
 *     module *m = new_module();
 *     computation *c = compute(m, "entry");
 *     instruction *x = parameter(c, 0, array(F32, 1, 64));
 *     add(c, "negate", array(F32, 1, 64), x, NULL);
 *     const uint8_t *bytes = packed(m, &size);
 *
 * Everything lives until drop_all, a test's teardown.
 */
#ifndef TESTS_SUPPORT_HLO_PROGRAM_H
#define TESTS_SUPPORT_HLO_PROGRAM_H

#include "hlo.pb-c.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { PRED = 1, S32 = 4, U8 = 6, F32 = 11, TUPLE = 13, BF16 = 16 }; /* xla.PrimitiveType */

typedef TttXla__ShapeProto shape;
typedef TttXla__HloInstructionProto instruction;
typedef TttXla__HloComputationProto computation;
typedef TttXla__HloModuleProto module;

/* Everything a test builds lives until its end. */
typedef struct block {
    struct block *next;
    max_align_t data[];
} block;

static block *blocks;
static int64_t last_id;

static inline void *make(size_t size)
{
    block *b = calloc(1, sizeof *b + size);
    assert_non_null(b);
    b->next = blocks;
    blocks = b;
    return b->data;
}

static inline int drop_all(void **state)
{
    (void)state;
    while (blocks != NULL) {
        block *next = blocks->next;
        free(blocks);
        blocks = next;
    }
    return 0;
}

#define MAKE(type, init, name)       \
    type *name = make(sizeof *name); \
    init(name)

/* A list with room for one more. */
static inline void *grown(const void *list, size_t count, size_t size)
{
    char *copy = make((count + 1) * size);
    if (count > 0)
        memcpy(copy, list, count * size);
    return copy;
}

static inline shape *array(int type, int rank, ...)
{
    MAKE(shape, ttt_xla__shape_proto__init, s);
    s->element_type = type;
    s->n_dimensions = (size_t)rank;
    s->dimensions = make((size_t)rank * sizeof(int64_t));
    va_list dims;
    va_start(dims, rank);
    for (int i = 0; i < rank; i++)
        s->dimensions[i] = va_arg(dims, int);
    va_end(dims);
    return s;
}

static inline shape *scalar(int type)
{
    return array(type, 0);
}

static inline void add_element(shape *tuple, const shape *element)
{
    size_t n = tuple->n_tuple_shapes++;
    tuple->tuple_shapes = grown(tuple->tuple_shapes, n, sizeof *tuple->tuple_shapes);
    size_t size = ttt_xla__shape_proto__get_packed_size(element);
    tuple->tuple_shapes[n].len = size;
    tuple->tuple_shapes[n].data = make(size + 1);
    ttt_xla__shape_proto__pack(element, tuple->tuple_shapes[n].data);
}

/* A tuple of the shapes of instructions, or of the given ones up to NULL. */
static inline shape *tuple_of(const shape *first, ...)
{
    MAKE(shape, ttt_xla__shape_proto__init, s);
    s->element_type = TUPLE;
    va_list rest;
    va_start(rest, first);
    for (const shape *next = first; next != NULL; next = va_arg(rest, const shape *))
        add_element(s, next);
    va_end(rest);
    return s;
}

static inline computation *compute(module *m, const char *name)
{
    MAKE(computation, ttt_xla__hlo_computation_proto__init, c);
    c->name = (char *)name;
    c->id = ++last_id;
    m->computations = grown(m->computations, m->n_computations, sizeof *m->computations);
    m->computations[m->n_computations++] = c;
    m->entry_computation_id = c->id; /* the last one made is the entry */
    return c;
}

/* Adds an instruction with the operands up to NULL; the last one added is the root. */
static inline instruction *add(computation *c, const char *opcode, shape *s, ...)
{
    MAKE(instruction, ttt_xla__hlo_instruction_proto__init, in);
    in->name = in->opcode = (char *)opcode;
    in->shape = s;
    in->id = ++last_id;
    va_list operands;
    va_start(operands, s);
    for (instruction *o; (o = va_arg(operands, instruction *)) != NULL;) {
        in->operand_ids = grown(in->operand_ids, in->n_operand_ids, sizeof(int64_t));
        in->operand_ids[in->n_operand_ids++] = o->id;
    }
    va_end(operands);
    c->instructions = grown(c->instructions, c->n_instructions, sizeof *c->instructions);
    c->instructions[c->n_instructions++] = in;
    c->root_id = in->id;
    return in;
}

static inline instruction *parameter(computation *c, int number, shape *s)
{
    instruction *in = add(c, "parameter", s, NULL);
    in->parameter_number = number;
    return in;
}

static inline instruction *element(computation *c, instruction *tuple, int index, shape *s)
{
    instruction *in = add(c, "get-tuple-element", s, tuple, NULL);
    in->tuple_index = index;
    return in;
}

static inline instruction *constant(computation *c, int32_t value)
{
    MAKE(TttXla__LiteralProto, ttt_xla__literal_proto__init, literal);
    literal->n_s32s = 1;
    literal->s32s = make(sizeof value);
    literal->s32s[0] = value;
    instruction *in = add(c, "constant", scalar(S32), NULL);
    in->literal = literal;
    return in;
}

static inline instruction *calls(instruction *in, const computation *callee)
{
    size_t n = in->n_called_computation_ids++;
    in->called_computation_ids = grown(in->called_computation_ids, n, sizeof(int64_t));
    in->called_computation_ids[n] = callee->id;
    return in;
}

static inline instruction *configure(instruction *in, const char *json)
{
    in->backend_config.len = strlen(json);
    in->backend_config.data = (uint8_t *)json;
    return in;
}

static inline instruction *named(instruction *in, const char *op_name)
{
    MAKE(TttXla__OpMetadata, ttt_xla__op_metadata__init, metadata);
    metadata->op_name = (char *)op_name;
    in->metadata = metadata;
    return in;
}

static inline module *new_module(void)
{
    MAKE(module, ttt_xla__hlo_module_proto__init, m);
    m->name = "test";
    return m;
}

static inline void group_by_iota(instruction *in, int64_t size)
{
    MAKE(TttXla__IotaReplicaGroupListProto, ttt_xla__iota_replica_group_list_proto__init, iota);
    iota->num_devices_per_group = size;
    in->iota_collective_device_list = iota;
}

static inline const uint8_t *packed(const module *m, size_t *size)
{
    *size = ttt_xla__hlo_module_proto__get_packed_size(m);
    uint8_t *bytes = make(*size + 1);
    ttt_xla__hlo_module_proto__pack(m, bytes);
    return bytes;
}

/* A program of a real compiler. */
static inline uint8_t *read_data(const char *name, size_t *size)
{
    const char *folder = getenv("TTT_TEST_DATA");
    char path[4096];
    snprintf(path, sizeof path, "%s/hlo/%s", folder == NULL ? "tests/data" : folder, name);
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        fail_msg("cannot open %s", path);
    enum { MOST = 1 << 16 };
    uint8_t *bytes = make(MOST);
    *size = fread(bytes, 1, MOST, file);
    fclose(file);
    assert_in_range(*size, 1, MOST - 1);
    return bytes;
}

/* All figures in these tests are whole numbers that a double holds exactly. */
#define assert_number(got, expected)                                                              \
    do {                                                                                          \
        double got_ = (got), expected_ = (expected);                                              \
        if (got_ != expected_)                                                                    \
            fail_msg("%s:%d: %s is %.17g, not %.17g", __FILE__, __LINE__, #got, got_, expected_); \
    } while (0)

#endif
