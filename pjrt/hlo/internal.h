/*
 * The optimized program shared by pjrt/hlo: the decoded protobuf messages with ids resolved to
 * pointers. decode.c validates it (ids exist, operands
 * and called computations are there in the number each opcode needs, nothing calls itself), so
 * the other files follow pointers without checks.
 */
#ifndef PJRT_HLO_INTERNAL_H
#define PJRT_HLO_INTERNAL_H

#include "pjrt/hlo/pjrt_hlo.h"

#include "hlo.pb-c.h"

#include <stdbool.h>

/* How an opcode is costed when nothing more is said about it. */
typedef enum hlo_class {
    HLO_CLASS_WORK,        /* reads its operands and writes its result */
    HLO_CLASS_ELEMENTWISE, /* and does a flop per element */
    HLO_CLASS_TRANSCENDENTAL,
    HLO_CLASS_FREE,    /* moves pointers only */
    HLO_CLASS_CONTROL, /* its cost is that of what it calls */
    HLO_CLASS_START,   /* begins an asynchronous operation: reads the operands */
    HLO_CLASS_DONE,    /* ends it: writes the result */
} hlo_class;

/* The opcodes this code knows, sorted by name: enumerator, name, class, least number of operands,
 * least number of called computations. Others are HLO_OTHER, of class WORK. */
#define HLO_OPS(X)                                                          \
    X(ABS, "abs", ELEMENTWISE, 1, 0)                                        \
    X(ACOS, "acos", TRANSCENDENTAL, 1, 0)                                   \
    X(ACOSH, "acosh", TRANSCENDENTAL, 1, 0)                                 \
    X(ADD, "add", ELEMENTWISE, 2, 0)                                        \
    X(ADD_DEPENDENCY, "add-dependency", FREE, 1, 0)                         \
    X(AFTER_ALL, "after-all", FREE, 0, 0)                                   \
    X(ALL_GATHER, "all-gather", WORK, 1, 0)                                 \
    X(ALL_GATHER_DONE, "all-gather-done", DONE, 1, 0)                       \
    X(ALL_GATHER_START, "all-gather-start", START, 1, 0)                    \
    X(ALL_REDUCE, "all-reduce", WORK, 1, 0)                                 \
    X(ALL_REDUCE_DONE, "all-reduce-done", DONE, 1, 0)                       \
    X(ALL_REDUCE_START, "all-reduce-start", START, 1, 0)                    \
    X(ALL_TO_ALL, "all-to-all", WORK, 1, 0)                                 \
    X(AND, "and", ELEMENTWISE, 2, 0)                                        \
    X(ASIN, "asin", TRANSCENDENTAL, 1, 0)                                   \
    X(ASINH, "asinh", TRANSCENDENTAL, 1, 0)                                 \
    X(ASYNC_DONE, "async-done", FREE, 1, 0)                                 \
    X(ASYNC_START, "async-start", CONTROL, 0, 1)                            \
    X(ASYNC_UPDATE, "async-update", FREE, 1, 0)                             \
    X(ATAN2, "atan2", TRANSCENDENTAL, 2, 0)                                 \
    X(ATANH, "atanh", TRANSCENDENTAL, 1, 0)                                 \
    X(BITCAST, "bitcast", FREE, 1, 0)                                       \
    X(BITCAST_CONVERT, "bitcast-convert", ELEMENTWISE, 1, 0)                \
    X(BROADCAST, "broadcast", WORK, 1, 0)                                   \
    X(CALL, "call", CONTROL, 0, 1)                                          \
    X(CBRT, "cbrt", TRANSCENDENTAL, 1, 0)                                   \
    X(CEIL, "ceil", ELEMENTWISE, 1, 0)                                      \
    X(CHOLESKY, "cholesky", WORK, 1, 0)                                     \
    X(CLAMP, "clamp", ELEMENTWISE, 3, 0)                                    \
    X(COLLECTIVE_BROADCAST, "collective-broadcast", WORK, 1, 0)             \
    X(COLLECTIVE_PERMUTE, "collective-permute", WORK, 1, 0)                 \
    X(COLLECTIVE_PERMUTE_DONE, "collective-permute-done", DONE, 1, 0)       \
    X(COLLECTIVE_PERMUTE_START, "collective-permute-start", START, 1, 0)    \
    X(COMPARE, "compare", ELEMENTWISE, 2, 0)                                \
    X(COMPLEX, "complex", ELEMENTWISE, 2, 0)                                \
    X(CONDITIONAL, "conditional", CONTROL, 1, 1)                            \
    X(CONSTANT, "constant", FREE, 0, 0)                                     \
    X(CONVERT, "convert", ELEMENTWISE, 1, 0)                                \
    X(CONVOLUTION, "convolution", WORK, 2, 0)                               \
    X(COPY, "copy", WORK, 1, 0)                                             \
    X(COPY_DONE, "copy-done", DONE, 1, 0)                                   \
    X(COPY_START, "copy-start", START, 1, 0)                                \
    X(COSH, "cosh", TRANSCENDENTAL, 1, 0)                                   \
    X(COSINE, "cosine", TRANSCENDENTAL, 1, 0)                               \
    X(COUNT_LEADING_ZEROS, "count-leading-zeros", ELEMENTWISE, 1, 0)        \
    X(CUSTOM_CALL, "custom-call", WORK, 0, 0)                               \
    X(DIVIDE, "divide", ELEMENTWISE, 2, 0)                                  \
    X(DOMAIN, "domain", FREE, 1, 0)                                         \
    X(DOT, "dot", WORK, 2, 0)                                               \
    X(DYNAMIC_SLICE, "dynamic-slice", WORK, 2, 0)                           \
    X(DYNAMIC_UPDATE_SLICE, "dynamic-update-slice", WORK, 2, 0)             \
    X(ERF, "erf", TRANSCENDENTAL, 1, 0)                                     \
    X(EXPONENTIAL, "exponential", TRANSCENDENTAL, 1, 0)                     \
    X(EXPONENTIAL_MINUS_ONE, "exponential-minus-one", TRANSCENDENTAL, 1, 0) \
    X(FFT, "fft", WORK, 1, 0)                                               \
    X(FLOOR, "floor", ELEMENTWISE, 1, 0)                                    \
    X(FUSION, "fusion", WORK, 0, 1)                                         \
    X(GATHER, "gather", WORK, 2, 0)                                         \
    X(GET_DIMENSION_SIZE, "get-dimension-size", FREE, 1, 0)                 \
    X(GET_TUPLE_ELEMENT, "get-tuple-element", FREE, 1, 0)                   \
    X(IMAG, "imag", ELEMENTWISE, 1, 0)                                      \
    X(IS_FINITE, "is-finite", ELEMENTWISE, 1, 0)                            \
    X(LOG, "log", TRANSCENDENTAL, 1, 0)                                     \
    X(LOG_PLUS_ONE, "log-plus-one", TRANSCENDENTAL, 1, 0)                   \
    X(LOGISTIC, "logistic", TRANSCENDENTAL, 1, 0)                           \
    X(MAP, "map", WORK, 1, 1)                                               \
    X(MAXIMUM, "maximum", ELEMENTWISE, 2, 0)                                \
    X(MINIMUM, "minimum", ELEMENTWISE, 2, 0)                                \
    X(MULTIPLY, "multiply", ELEMENTWISE, 2, 0)                              \
    X(NEGATE, "negate", ELEMENTWISE, 1, 0)                                  \
    X(NOT, "not", ELEMENTWISE, 1, 0)                                        \
    X(OPT_BARRIER, "opt-barrier", FREE, 1, 0)                               \
    X(OR, "or", ELEMENTWISE, 2, 0)                                          \
    X(PARAMETER, "parameter", FREE, 0, 0)                                   \
    X(PARTITION_ID, "partition-id", FREE, 0, 0)                             \
    X(POPCNT, "popcnt", ELEMENTWISE, 1, 0)                                  \
    X(POWER, "power", TRANSCENDENTAL, 2, 0)                                 \
    X(RAGGED_ALL_TO_ALL, "ragged-all-to-all", WORK, 1, 0)                   \
    X(RAGGED_DOT, "ragged-dot", WORK, 2, 0)                                 \
    X(REAL, "real", ELEMENTWISE, 1, 0)                                      \
    X(RECV_DONE, "recv-done", DONE, 1, 0)                                   \
    X(REDUCE, "reduce", WORK, 2, 1)                                         \
    X(REDUCE_PRECISION, "reduce-precision", ELEMENTWISE, 1, 0)              \
    X(REDUCE_SCATTER, "reduce-scatter", WORK, 1, 0)                         \
    X(REDUCE_WINDOW, "reduce-window", WORK, 2, 1)                           \
    X(REMAINDER, "remainder", ELEMENTWISE, 2, 0)                            \
    X(REPLICA_ID, "replica-id", FREE, 0, 0)                                 \
    X(RESHAPE, "reshape", WORK, 1, 0)                                       \
    X(RNG, "rng", TRANSCENDENTAL, 0, 0)                                     \
    X(RNG_BIT_GENERATOR, "rng-bit-generator", TRANSCENDENTAL, 0, 0)         \
    X(ROUND_NEAREST_AFZ, "round-nearest-afz", ELEMENTWISE, 1, 0)            \
    X(ROUND_NEAREST_EVEN, "round-nearest-even", ELEMENTWISE, 1, 0)          \
    X(RSQRT, "rsqrt", TRANSCENDENTAL, 1, 0)                                 \
    X(SCATTER, "scatter", WORK, 3, 1)                                       \
    X(SELECT, "select", ELEMENTWISE, 3, 0)                                  \
    X(SELECT_AND_SCATTER, "select-and-scatter", WORK, 3, 2)                 \
    X(SEND, "send", START, 1, 0)                                            \
    X(SEND_DONE, "send-done", FREE, 1, 0)                                   \
    X(SHIFT_LEFT, "shift-left", ELEMENTWISE, 2, 0)                          \
    X(SHIFT_RIGHT_ARITHMETIC, "shift-right-arithmetic", ELEMENTWISE, 2, 0)  \
    X(SHIFT_RIGHT_LOGICAL, "shift-right-logical", ELEMENTWISE, 2, 0)        \
    X(SIGN, "sign", ELEMENTWISE, 1, 0)                                      \
    X(SINE, "sine", TRANSCENDENTAL, 1, 0)                                   \
    X(SINH, "sinh", TRANSCENDENTAL, 1, 0)                                   \
    X(SLICE, "slice", WORK, 1, 0)                                           \
    X(SORT, "sort", WORK, 1, 1)                                             \
    X(SQRT, "sqrt", TRANSCENDENTAL, 1, 0)                                   \
    X(STOCHASTIC_CONVERT, "stochastic-convert", ELEMENTWISE, 2, 0)          \
    X(SUBTRACT, "subtract", ELEMENTWISE, 2, 0)                              \
    X(TAN, "tan", TRANSCENDENTAL, 1, 0)                                     \
    X(TANH, "tanh", TRANSCENDENTAL, 1, 0)                                   \
    X(TRIANGULAR_SOLVE, "triangular-solve", WORK, 2, 0)                     \
    X(TUPLE, "tuple", FREE, 0, 0)                                           \
    X(WHILE, "while", CONTROL, 1, 2)                                        \
    X(XOR, "xor", ELEMENTWISE, 2, 0)

typedef enum hlo_op {
    HLO_OTHER,
#define HLO_OP_ENUM(enumerator, name, class, operands, called) HLO_##enumerator,
    HLO_OPS(HLO_OP_ENUM)
#undef HLO_OP_ENUM
} hlo_op;

/* The size of a shape, summed over the arrays of a tuple. Doubles, because the dimensions are the
 * program's word and their product may be anything. */
typedef struct hlo_size {
    double elements;
    double data_bytes; /* unpadded */
    double bytes;      /* as laid out */
    double main_bytes; /* of these, in the chip's main memory (HBM): memory space 0 */
    size_t unknown_types;
} hlo_size;

/* Bytes read and written, and those of them that are in the chip's main memory. */
typedef struct hlo_moved {
    double bytes, main;
} hlo_moved;

typedef struct hlo_instruction hlo_instruction;
typedef struct hlo_computation hlo_computation;

struct hlo_instruction {
    const TttXla__HloInstructionProto *proto;
    hlo_computation *home;
    hlo_op op;
    hlo_class class;
    hlo_instruction **operands;
    hlo_computation **called;
    size_t operand_count, called_count;
    hlo_size size;
    /* Filled in while costing. */
    pjrt_hlo_cost cost; /* one execution, without what it calls when it is of class CONTROL */
    bool has_cycles;
    int64_t trip_count; /* of a while; -1 unknown */
    size_t branch;      /* of a conditional: the one that is taken */
};

struct hlo_computation {
    const TttXla__HloComputationProto *proto;
    hlo_instruction *instructions;
    size_t instruction_count;
    hlo_instruction *root;
    size_t parameter_count;
    const char
        *op_name; /* where it comes from: the name in the metadata of its root, or the last */
    /* The one instruction that runs this computation; NULL when there is none or there are more. */
    hlo_instruction *caller;
    size_t caller_count;
    bool starts_transfer; /* it holds the start of a collective that the TPU compiler spread out */
    bool ends_transfer;   /* it holds the end of one */
    /* Filled in while costing. */
    hlo_moved *parameter_reads; /* what a fusion of this computation reads of each operand */
    hlo_moved fused_bytes;      /* what a fusion of this computation reads and writes */
    pjrt_hlo_cost once;         /* one execution, everything called included */
    bool reached;               /* from the entry */
    double runs;                /* executions in one run of the program, outside fusions */
    double runs_in_loops;       /* of these, inside loops */
    double fused_runs;          /* executions as a part of a fusion */
    ptrdiff_t loop;             /* the innermost loop it belongs to; -1 for none */
};

typedef struct hlo_module {
    TttXla__HloModuleProtoWithConfig *wrapper; /* owns proto when not NULL */
    TttXla__HloModuleProto *proto;
    hlo_computation *computations;
    hlo_computation **order; /* callees before callers */
    size_t computation_count, instruction_count;
    hlo_computation *entry;
    size_t unknown_types;
} hlo_module;

#define HLO_CREATE "pjrt_hlo_report_create"
#define HLO_BAD(...) PJRT_FAIL(INVALID_ARGUMENT, HLO_CREATE, __VA_ARGS__)
/* How a message ends with a name out of the program. Names come last and cut short: they may be of
 * any length, and a line break in one ends what pjrt_status_text shows. */
#define HLO_NAME "%.100s"
#define HLO_NO_MEMORY() PJRT_NO_MEMORY(HLO_CREATE)

/* An array that a table in the making, or the module, owns: zeroed, never of size 0. */
void *hlo_alloc(size_t count, size_t size);

/* decode.c. The module holds what it got even after a failure: free it always. */
pjrt_status *hlo_module_decode(hlo_module *m, const char *format, const void *bytes, size_t size);
void hlo_module_free(hlo_module *m);
/* True when the instruction runs its called computation number i, rather than applying it to
 * elements (a reduction's function) or fusing it. */
bool hlo_runs(const hlo_instruction *in, size_t i);

/* The TPU compiler spreads a collective over fusions, so that it runs beside their work: one starts
 * it, others carry it along, one ends it, and each holds a copy of the collective. True for the
 * copies that are not at the start, and for the end itself: nothing is to be counted for them. */
bool hlo_is_echo(const hlo_instruction *in);
/* The name of such a transfer, the same in all its parts; NULL for other instructions. */
const char *hlo_chain(const hlo_instruction *in);

/* shape.c. Index -1 measures the whole shape, others one element of a tuple (or, when the shape
 * is no tuple, the shape itself for index 0). */
pjrt_status *hlo_shape_measure(const TttXla__ShapeProto *shape, int64_t index, hlo_size *out);
/* One dimension of an array shape. */
pjrt_status *hlo_shape_dimension(const TttXla__ShapeProto *shape, int64_t dimension, int64_t *out);
/* A ProtobufCAllocator that stops when a message of this many bytes unpacks into absurdly much. */
typedef struct hlo_budget {
    ProtobufCAllocator allocator;
    size_t left;
    bool exhausted, out_of_memory;
} hlo_budget;
void hlo_budget_init(hlo_budget *budget, size_t message_size);
pjrt_status *hlo_budget_status(const hlo_budget *budget, const char *what);
extern ProtobufCAllocator hlo_free_only;

/* json.c: just enough to pick a number out of a backend configuration. */
typedef struct hlo_json {
    const char *at, *end;
} hlo_json;
/* The value of the first key of that name at any depth. */
bool hlo_json_find(hlo_json text, const char *key, hlo_json *value);
/* A number, or a string that holds one, at the beginning. */
bool hlo_json_integer(hlo_json text, int64_t *out);
/* The next element of an array that holds numbers; *array moves behind it. */
bool hlo_json_next_integer(hlo_json *array, int64_t *out);
hlo_json hlo_backend_config(const hlo_instruction *in);

/* loop.c. -1 when it cannot be known. */
int64_t hlo_trip_count(const hlo_instruction *loop);

/* flops.c and bytes.c: one execution; for what is called, the callee's `once` is used. */
pjrt_status *hlo_flops(const hlo_instruction *in, pjrt_hlo_cost *cost);
hlo_moved hlo_bytes(const hlo_instruction *in);
/* Fills in parameter_reads and fused_bytes; callees first. */
pjrt_status *hlo_cost_as_fusion(hlo_computation *c);
const char *hlo_op_name(const hlo_instruction *in);

/* links.c. The name a collective goes by; NULL for other instructions. Of asynchronous pairs
 * only the start is one. `out` is one call; how often it runs is not filled in. */
const char *hlo_collective_kind(const hlo_instruction *in);
pjrt_status *hlo_collective(const hlo_instruction *in, pjrt_hlo_collective *out);

/* schedule.c. The instructions of a computation in the order they are executed, as the
 * program's schedule says or, where it says nothing, as they stand. The caller frees the list,
 * which has instruction_count entries. */
pjrt_status *hlo_schedule(const hlo_module *m, const hlo_computation *c,
                          const hlo_instruction ***out);
/* The instruction that began what this one, of class DONE or an async-done, ends. */
const hlo_instruction *hlo_start_of(const hlo_instruction *done);

/* cost.c: fills in every cost and every number of runs. */
pjrt_status *hlo_module_cost(hlo_module *m);
/* How often an execution of the instruction runs its called computation number i. */
double hlo_runs_per_call(const hlo_instruction *in, size_t i);
void hlo_cost_add(pjrt_hlo_cost *sum, const pjrt_hlo_cost *cost, double times);

#endif
