/*
 * Argument shapes and donated arguments of a program.
 *
 * The C API tells the shapes of results but not of arguments, and plugins run what they are given.
 * So the argument shapes are read from the compiled program: its serialized module has them in one
 * field, found by a shallow walk over the wire format that never decodes the rest. Which arguments
 * the author wants donated only the source says, as attributes of @main's arguments.
 */
#include "pjrt/internal.h"

#include "hlo.pb-c.h"

#include <ctype.h>
#include <stdlib.h>

/* ---- argument shapes of a compiled module ---- */

enum {
    MODULE_WITH_CONFIG_MODULE = 1, /* HloModuleProtoWithConfig.hlo_module */
    MODULE_PROGRAM_SHAPE = 4,      /* HloModuleProto.host_program_shape */
    PROGRAM_SHAPE_PARAMETERS = 1,  /* ProgramShapeProto.parameters */
};

typedef struct wire {
    const unsigned char *at, *end;
} wire;

static bool read_varint(wire *w, uint64_t *value)
{
    *value = 0;
    for (int shift = 0; shift < 64 && w->at < w->end; shift += 7) {
        unsigned char byte = *w->at++;
        *value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return true;
    }
    return false;
}

/* Moves to the next length-delimited field with that number. False at the end or on bad bytes. */
static bool next_field(wire *w, unsigned number, wire *inside)
{
    uint64_t key, length;
    while (w->at < w->end && read_varint(w, &key)) {
        switch (key & 7) {
        case 0:
            if (!read_varint(w, &length))
                return false;
            continue;
        case 1:
            length = 8;
            break;
        case 2:
            if (!read_varint(w, &length))
                return false;
            break;
        case 5:
            length = 4;
            break;
        default:
            return false;
        }
        if (length > (uint64_t)(w->end - w->at))
            return false;
        *inside = (wire){w->at, w->at + length};
        w->at += length;
        if (key == ((uint64_t)number << 3 | 2))
            return true;
    }
    return false;
}

static pjrt_type type_of_primitive(int primitive)
{
#define SAME_NUMBER(name, number, bits, mlir)                                       \
    if (pjrt_type_ffi(PJRT_##name) == primitive) /* XLA's own numbering is FFI's */ \
        return PJRT_##name;
    PJRT_TYPES(SAME_NUMBER)
#undef SAME_NUMBER
    return PJRT_TYPE_INVALID;
}

/* The decoder does not say whether the bytes are bad or the memory is out: its allocator does. */
static void *note_failure(void *out_of_memory, size_t size)
{
    void *memory = malloc(size);
    if (memory == NULL)
        *(bool *)out_of_memory = true;
    return memory;
}

static void plain_free(void *out_of_memory, void *memory)
{
    (void)out_of_memory;
    free(memory);
}

/* An argument whose type or rank we have no name for is left INVALID: it is not checked. */
static bool read_shape(wire bytes, pjrt_shape *shape, bool *out_of_memory)
{
    ProtobufCAllocator allocator = {note_failure, plain_free, out_of_memory};
    TttXla__ShapeProto *message =
        ttt_xla__shape_proto__unpack(&allocator, (size_t)(bytes.end - bytes.at), bytes.at);
    if (message == NULL)
        return false;
    *shape = (pjrt_shape){.type = type_of_primitive((int)message->element_type)};
    if (message->n_dimensions > PJRT_MAX_RANK)
        shape->type = PJRT_TYPE_INVALID;
    else
        shape->rank = (int)message->n_dimensions;
    for (int i = 0; i < shape->rank; i++)
        shape->dims[i] = message->dimensions[i];
    ttt_xla__shape_proto__free_unpacked(message, &allocator);
    return true;
}

pjrt_status *pjrt__arguments_of_module(const char *bytes, size_t size, bool with_config,
                                       pjrt_shape **shapes, int *count)
{
    static const char where[] = "pjrt_executable_arguments";
    const unsigned char *start = (const unsigned char *)bytes;
    wire module = {start, start + size}, program_shape, field;
    *shapes = NULL;
    *count = 0;
    if (with_config) {
        wire whole = module;
        if (!next_field(&whole, MODULE_WITH_CONFIG_MODULE, &module))
            return PJRT_FAIL(DATA_LOSS, where, "the compiled program has no module");
    }
    if (!next_field(&module, MODULE_PROGRAM_SHAPE, &program_shape))
        return PJRT_FAIL(DATA_LOSS, where, "the compiled program does not tell its arguments");

    size_t n = 0;
    for (wire w = program_shape; next_field(&w, PROGRAM_SHAPE_PARAMETERS, &field);)
        n++;
    pjrt_shape *list = calloc(n + 1, sizeof *list);
    if (list == NULL)
        return PJRT_NO_MEMORY(where);
    wire w = program_shape;
    for (size_t i = 0; i < n && next_field(&w, PROGRAM_SHAPE_PARAMETERS, &field); i++) {
        bool out_of_memory = false;
        if (!read_shape(field, &list[i], &out_of_memory)) {
            free(list);
            if (out_of_memory)
                return PJRT_NO_MEMORY(where);
            return PJRT_FAIL(DATA_LOSS, where, "argument %zu of the compiled program is damaged",
                             i);
        }
    }
    *shapes = list;
    *count = (int)n;
    return NULL;
}

/* ---- donation wishes of StableHLO text ---- */

/* What follows the string literal or comment that begins at `at`; `at` itself when none does. */
static const char *skip_opaque(const char *at, const char *end)
{
    if (*at == '/' && at + 1 < end && at[1] == '/') {
        const char *line = memchr(at, '\n', (size_t)(end - at));
        return line == NULL ? end : line;
    }
    if (*at != '"')
        return at;
    for (at++; at < end && *at != '"'; at++) {
        if (*at == '\\' && at + 1 < end)
            at++;
    }
    return at < end ? at + 1 : end;
}

static const char *skip_space(const char *at, const char *end)
{
    while (at < end && isspace((unsigned char)*at))
        at++;
    return at;
}

/* The parenthesis that opens @main's argument list, or NULL. */
static const char *find_main(const char *at, const char *end)
{
    while (at < end) {
        const char *next = skip_opaque(at, end);
        if (next == at && (size_t)(end - at) > 5 && memcmp(at, "@main", 5) == 0) {
            const char *open = skip_space(at + 5, end);
            if (open < end && *open == '(')
                return open;
        }
        at = next == at ? at + 1 : next;
    }
    return NULL;
}

static bool mentions_donation(const char *text, size_t size)
{
    return memmem(text, size, "tf.aliasing_output", 18) != NULL ||
           memmem(text, size, "jax.buffer_donor", 16) != NULL;
}

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '.' || c == '$';
}

/* Is [name, end of name) a wish, and is it set to something that is not false? */
static bool is_wish(const char *name, size_t size, const char *after, const char *end)
{
    if (!(size == 18 && memcmp(name, "tf.aliasing_output", 18) == 0) &&
        !(size == 16 && memcmp(name, "jax.buffer_donor", 16) == 0))
        return false;
    after = skip_space(after, end);
    if (after == end || *after != '=')
        return false;
    after = skip_space(after + 1, end);
    return (size_t)(end - after) < 5 || memcmp(after, "false", 5) != 0;
}

/* Looks for an attribute, its name quoted or not, not for words in strings or comments. */
static bool asks_for_donation(const char *at, const char *end)
{
    while (at < end) {
        const char *next = skip_opaque(at, end);
        if (next != at) {
            if (*at == '"' && next - at > 2 && is_wish(at + 1, (size_t)(next - at) - 2, next, end))
                return true;
        } else if (is_word(*at)) {
            while (next < end && is_word(*next))
                next++;
            if (is_wish(at, (size_t)(next - at), next, end))
                return true;
        } else {
            next++;
        }
        at = next;
    }
    return false;
}

/* Calls for each argument between the parentheses: [text, text + size). Returns how many. */
static int visit_arguments(const char *at, const char *end,
                           void (*visit)(int index, const char *text, size_t size, void *user),
                           void *user)
{
    int depth = 0, index = 0;
    const char *start = at + 1;
    while (at < end) {
        char c = *at;
        const char *next = skip_opaque(at, end);
        if (next != at) {
            at = next;
            continue;
        }
        if (c == '(' || c == '{' || c == '[' || c == '<')
            depth++;
        else if (c == ')' || c == '}' || c == ']' || (c == '>' && at[-1] != '-'))
            depth--;
        if ((c == ',' && depth == 1) || depth == 0) {
            if (memchr(start, '%', (size_t)(at - start)) != NULL)
                visit(index++, start, (size_t)(at - start), user);
            start = at + 1;
        }
        if (depth == 0)
            return index;
        at++;
    }
    return index;
}

static void mark_donated(int index, const char *text, size_t size, void *user)
{
    unsigned char *flags = user;
    flags[index] = asks_for_donation(text, text + size);
}

static void only_count(int index, const char *text, size_t size, void *user)
{
    (void)index, (void)text, (void)size, (void)user;
}

pjrt_status *pjrt__donations_of_text(const pjrt_program *program, unsigned char **flags, int *count)
{
    *flags = NULL;
    *count = -1;
    if (strcmp(program->format, "mlir") != 0)
        return NULL;
    *count = 0;
    if (!mentions_donation(program->code, program->size))
        return NULL;
    const char *end = program->code + program->size;
    const char *open = find_main(program->code, end);
    *count = -1;
    if (open == NULL) /* bytecode */
        return NULL;
    int n = visit_arguments(open, end, only_count, NULL);
    unsigned char *list = calloc((size_t)n + 1, 1);
    if (list == NULL)
        return PJRT_NO_MEMORY("pjrt_compile");
    visit_arguments(open, end, mark_donated, list);
    *flags = list;
    *count = n;
    return NULL;
}
