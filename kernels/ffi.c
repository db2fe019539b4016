/* Reading call frames. What XLA sends is what a program asked for, and programs can be wrong. */
#include "kernels/ffi.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* What the handlers need of XLA: the first FFI version that had metadata. */
enum { NEEDED_MAJOR = 0, NEEDED_MINOR = 1 };

static bool answer_metadata(XLA_FFI_CallFrame *frame, bool command_buffer)
{
    for (XLA_FFI_Extension_Base *e = frame->extension_start; e != NULL; e = e->next) {
        if (e->type != XLA_FFI_Extension_Metadata)
            continue;
        XLA_FFI_Metadata *metadata = ((XLA_FFI_Metadata_Extension *)e)->metadata;
        metadata->api_version.major_version = NEEDED_MAJOR;
        metadata->api_version.minor_version = NEEDED_MINOR;
        if (command_buffer)
            metadata->traits |= XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE;
        return true;
    }
    return false;
}

bool ffi_begin(ffi_call *c, XLA_FFI_CallFrame *frame, const char *name, bool command_buffer)
{
    *c = (ffi_call){.frame = frame, .name = name};
    return answer_metadata(frame, command_buffer) || frame->stage != XLA_FFI_ExecutionStage_EXECUTE;
}

XLA_FFI_Error *ffi_end(const ffi_call *c)
{
    if (!c->failed)
        return NULL;
    XLA_FFI_Error_Create_Args args = {.struct_size = XLA_FFI_Error_Create_Args_STRUCT_SIZE,
                                      .message = c->message,
                                      .errc = c->code};
    return c->frame->api->XLA_FFI_Error_Create(&args);
}

void ffi_fail(ffi_call *c, XLA_FFI_Error_Code code, const char *format, ...)
{
    va_list args;
    if (c->failed)
        return;
    c->failed = true;
    c->code = code;
    int start = snprintf(c->message, sizeof c->message, "%s: ", c->name);
    va_start(args, format);
    vsnprintf(c->message + start, sizeof c->message - (size_t)start, format, args);
    va_end(args);
}

int64_t ffi_num_operands(const ffi_call *c)
{
    return c->frame->args.size;
}

void ffi_count(ffi_call *c, int64_t operands, int64_t results)
{
    if (c->frame->args.size != operands || c->frame->rets.size != results)
        ffi_fail(c, XLA_FFI_Error_Code_INVALID_ARGUMENT,
                 "takes %lld operands and gives %lld results, not %lld and %lld",
                 (long long)operands, (long long)results, (long long)c->frame->args.size,
                 (long long)c->frame->rets.size);
}

/* ---- arrays ------------------------------------------------------------------------------------
 */

static const struct {
    ffi_type type;
    XLA_FFI_DataType xla;
    const char *name;
} types_known[] = {
    {FFI_F32, XLA_FFI_DataType_F32, "f32"},
    {FFI_BF16, XLA_FFI_DataType_BF16, "bf16"},
    {FFI_S8, XLA_FFI_DataType_S8, "s8"},
    {FFI_S32, XLA_FFI_DataType_S32, "s32"},
};
enum { N_TYPES = sizeof types_known / sizeof *types_known };

static ffi_type type_of(XLA_FFI_DataType xla)
{
    for (int i = 0; i < N_TYPES; i++) {
        if (types_known[i].xla == xla)
            return types_known[i].type;
    }
    return 0;
}

/* "f32 or bf16". */
static const char *type_list(int types, char text[32])
{
    text[0] = '\0';
    for (int i = 0; i < N_TYPES; i++) {
        if ((types & types_known[i].type) == 0)
            continue;
        if (text[0] != '\0')
            strcat(text, " or ");
        strcat(text, types_known[i].name);
    }
    return text;
}

/* "[2, ?, 64]": a size that any array may have is a question mark. */
static const char *shape_text(int64_t rank, const int64_t *dims, char text[128])
{
    size_t at = 0, room = 128;
    at += (size_t)snprintf(text, room, "[");
    for (int64_t i = 0; i < rank && at + 24 < room; i++) {
        const char *gap = i == 0 ? "" : ", ";
        at += dims[i] < 0
                  ? (size_t)snprintf(text + at, room - at, "%s?", gap)
                  : (size_t)snprintf(text + at, room - at, "%s%lld", gap, (long long)dims[i]);
    }
    snprintf(text + at, room - at, "]");
    return text;
}

static ffi_array take(ffi_call *c, const XLA_FFI_Buffer *buffer, const char *name, int types,
                      int rank, int64_t *const *dims)
{
    ffi_array none = {NULL, FFI_F32};
    char list[32], want[128], have[128];
    int64_t wanted[8];
    bool fits = buffer->rank == rank;
    for (int i = 0; i < rank; i++) {
        wanted[i] = *dims[i];
        fits = fits && (wanted[i] < 0 || wanted[i] == buffer->dims[i]);
    }
    if (!fits) {
        ffi_fail(c, XLA_FFI_Error_Code_INVALID_ARGUMENT, "%s has to be %s, not %s", name,
                 shape_text(rank, wanted, want), shape_text(buffer->rank, buffer->dims, have));
        return none;
    }
    ffi_type type = type_of(buffer->dtype);
    if ((type & types) == 0) {
        ffi_fail(c, XLA_FFI_Error_Code_INVALID_ARGUMENT, "%s has to be %s (XLA's type %d is not)",
                 name, type_list(types, list), (int)buffer->dtype);
        return none;
    }
    for (int i = 0; i < rank; i++)
        *dims[i] = buffer->dims[i];
    return (ffi_array){buffer->data, type};
}

ffi_array ffi_operand(ffi_call *c, int64_t index, const char *name, int types, int rank,
                      int64_t *const *dims)
{
    const XLA_FFI_Args *args = &c->frame->args;
    if (!c->failed && (index >= args->size || args->types[index] != XLA_FFI_ArgType_BUFFER))
        ffi_fail(c, XLA_FFI_Error_Code_INVALID_ARGUMENT, "operand %lld, %s, is no array",
                 (long long)index, name);
    if (c->failed)
        return (ffi_array){NULL, FFI_F32};
    return take(c, args->args[index], name, types, rank, dims);
}

ffi_array ffi_result(ffi_call *c, int64_t index, const char *name, int types, int rank,
                     int64_t *const *dims)
{
    const XLA_FFI_Rets *rets = &c->frame->rets;
    if (!c->failed && (index >= rets->size || rets->types[index] != XLA_FFI_RetType_BUFFER))
        ffi_fail(c, XLA_FFI_Error_Code_INVALID_ARGUMENT, "result %lld, %s, is no array",
                 (long long)index, name);
    if (c->failed)
        return (ffi_array){NULL, FFI_F32};
    return take(c, rets->rets[index], name, types, rank, dims);
}

/* ---- attributes --------------------------------------------------------------------------------
 */

/* The value of a scalar attribute of that type, or NULL, which has failed. */
static const void *scalar(ffi_call *c, const char *name, XLA_FFI_DataType type, const char *spelt)
{
    const XLA_FFI_Attrs *attrs = &c->frame->attrs;
    for (int64_t i = 0; i < attrs->size && !c->failed; i++) {
        const XLA_FFI_ByteSpan *span = attrs->names[i];
        if (span->len != strlen(name) || memcmp(span->ptr, name, span->len) != 0)
            continue;
        const XLA_FFI_Scalar *value = attrs->attrs[i];
        if (attrs->types[i] == XLA_FFI_AttrType_SCALAR && value->dtype == type)
            return value->value;
        ffi_fail(c, XLA_FFI_Error_Code_INVALID_ARGUMENT, "attribute %s has to be of type %s", name,
                 spelt);
    }
    ffi_fail(c, XLA_FFI_Error_Code_INVALID_ARGUMENT, "attribute %s (%s) is missing", name, spelt);
    return NULL;
}

int64_t ffi_int(ffi_call *c, const char *name, int64_t least, int64_t most)
{
    const int64_t *value = scalar(c, name, XLA_FFI_DataType_S64, "i64");
    if (value == NULL)
        return least;
    if (*value < least || *value > most)
        ffi_fail(c, XLA_FFI_Error_Code_INVALID_ARGUMENT,
                 "attribute %s has to be from %lld to %lld, not %lld", name, (long long)least,
                 (long long)most, (long long)*value);
    return *value;
}

float ffi_float(ffi_call *c, const char *name, float least, float most)
{
    const float *value = scalar(c, name, XLA_FFI_DataType_F32, "f32");
    if (value == NULL)
        return least;
    if (!(*value >= least && *value <= most))
        ffi_fail(c, XLA_FFI_Error_Code_INVALID_ARGUMENT,
                 "attribute %s has to be from %g to %g, not %g", name, (double)least, (double)most,
                 (double)*value);
    return *value;
}
