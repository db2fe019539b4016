/* Call frames: what XLA hands over, looked at before it is believed. */
#include "kernels/cuda/frame.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* The first FFI version that had metadata. */
enum { NEEDED_MAJOR = 0, NEEDED_MINOR = 1 };

bool frame_is_question(XLA_FFI_CallFrame *frame)
{
    for (XLA_FFI_Extension_Base *e = frame->extension_start; e != NULL; e = e->next) {
        if (e->type != XLA_FFI_Extension_Metadata)
            continue;
        XLA_FFI_Metadata *metadata = ((XLA_FFI_Metadata_Extension *)e)->metadata;
        metadata->api_version.major_version = NEEDED_MAJOR;
        metadata->api_version.minor_version = NEEDED_MINOR;
        metadata->traits |= XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE;
        return true;
    }
    return frame->stage != XLA_FFI_ExecutionStage_EXECUTE;
}

void frame_fail(frame_reader *f, const char *format, ...)
{
    va_list args;
    if (f->error[0] != 0)
        return;
    int length = snprintf(f->error, sizeof f->error, "%s: ", f->target);
    va_start(args, format);
    vsnprintf(f->error + length, sizeof f->error - (size_t)length, format, args);
    va_end(args);
}

void frame_counts(frame_reader *f, int64_t operands, int64_t results)
{
    const XLA_FFI_CallFrame *frame = f->frame;
    if (frame->args.size != operands || frame->rets.size != results)
        frame_fail(f, "%lld operands and %lld results instead of %lld and %lld",
                   (long long)frame->args.size, (long long)frame->rets.size, (long long)operands,
                   (long long)results);
}

static const XLA_FFI_Buffer *buffer_at(const frame_reader *f, frame_side side, int64_t index)
{
    const XLA_FFI_CallFrame *frame = f->frame;
    int64_t size = side == FRAME_OPERAND ? frame->args.size : frame->rets.size;
    if (f->error[0] != 0 || index < 0 || index >= size)
        return NULL;
    return side == FRAME_OPERAND ? frame->args.args[index] : frame->rets.rets[index];
}

static int type_of(const XLA_FFI_Buffer *b)
{
    switch (b->dtype) {
    case XLA_FFI_DataType_F32:
        return FRAME_F32;
    case XLA_FFI_DataType_BF16:
        return FRAME_BF16;
    case XLA_FFI_DataType_S32:
        return FRAME_S32;
    default:
        return 0;
    }
}

static bool has_shape(const XLA_FFI_Buffer *b, const frame_shape *shape)
{
    if (b->rank != shape->rank)
        return false;
    for (int i = 0; i < shape->rank; i++) {
        if (shape->dims[i] >= 0 && b->dims[i] != shape->dims[i])
            return false;
    }
    return true;
}

void *frame_array(frame_reader *f, frame_side side, int64_t index, const char *name, int types,
                  frame_shape shape, int *type)
{
    const XLA_FFI_Buffer *b = buffer_at(f, side, index);
    if (type != NULL)
        *type = 0;
    if (b == NULL) {
        frame_fail(f, "%s is missing", name);
        return NULL;
    }
    if ((type_of(b) & types) == 0)
        frame_fail(f, "the type of %s (XLA's number %d) is not one that it may have", name,
                   (int)b->dtype);
    else if (!has_shape(b, &shape))
        frame_fail(f, "the shape of %s does not fit the other operands", name);
    else if ((uintptr_t)b->data % 16 != 0)
        frame_fail(f, "%s is not aligned to 16 bytes", name);
    if (f->error[0] != 0)
        return NULL;
    if (type != NULL)
        *type = type_of(b);
    return b->data;
}

int64_t frame_dim(frame_reader *f, int64_t operand, int dim)
{
    const XLA_FFI_Buffer *b = buffer_at(f, FRAME_OPERAND, operand);
    return b == NULL || dim >= b->rank ? 0 : b->dims[dim];
}

/* The value of an attribute; NULL if there is none, or (and that is wrong) one of another type. */
static const void *attribute(frame_reader *f, const char *name, XLA_FFI_DataType type)
{
    const XLA_FFI_Attrs *attrs = &f->frame->attrs;
    for (int64_t i = 0; i < attrs->size; i++) {
        const XLA_FFI_ByteSpan *span = attrs->names[i];
        if (span->len != strlen(name) || memcmp(span->ptr, name, span->len) != 0)
            continue;
        const XLA_FFI_Scalar *scalar = attrs->attrs[i];
        if (attrs->types[i] == XLA_FFI_AttrType_SCALAR && scalar->dtype == type)
            return scalar->value;
        frame_fail(f, "the attribute %s has another type", name);
        return NULL;
    }
    return NULL;
}

int64_t frame_i64_or(frame_reader *f, const char *name, int64_t otherwise)
{
    const void *value = attribute(f, name, XLA_FFI_DataType_S64);
    if (value != NULL)
        memcpy(&otherwise, value, sizeof otherwise);
    return otherwise;
}

int64_t frame_i64(frame_reader *f, const char *name)
{
    if (attribute(f, name, XLA_FFI_DataType_S64) == NULL)
        frame_fail(f, "the attribute %s is missing", name);
    return frame_i64_or(f, name, 0);
}

float frame_f32(frame_reader *f, const char *name)
{
    const void *value = attribute(f, name, XLA_FFI_DataType_F32);
    float out = 0;
    if (value == NULL)
        frame_fail(f, "the attribute %s is missing", name);
    else
        memcpy(&out, value, sizeof out);
    return out;
}

void *frame_stream(frame_reader *f)
{
    XLA_FFI_Stream_Get_Args get = {.struct_size = XLA_FFI_Stream_Get_Args_STRUCT_SIZE,
                                   .ctx = f->frame->ctx};
    if (f->error[0] != 0)
        return NULL;
    XLA_FFI_Error *error = f->frame->api->XLA_FFI_Stream_Get(&get);
    if (error == NULL)
        return get.stream;
    XLA_FFI_Error_Destroy_Args destroy = {.struct_size = XLA_FFI_Error_Destroy_Args_STRUCT_SIZE,
                                          .error = error};
    f->frame->api->XLA_FFI_Error_Destroy(&destroy);
    frame_fail(f, "XLA has no stream for it: it is a kernel for the CUDA plugin");
    return NULL;
}

XLA_FFI_Error *frame_result(frame_reader *f)
{
    XLA_FFI_Error_Create_Args create = {.struct_size = XLA_FFI_Error_Create_Args_STRUCT_SIZE,
                                        .message = f->error,
                                        .errc = XLA_FFI_Error_Code_INVALID_ARGUMENT};
    return f->error[0] == 0 ? NULL : f->frame->api->XLA_FFI_Error_Create(&create);
}
