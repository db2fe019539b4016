/* A call frame as XLA would make one, for handlers that are called without XLA. */
#ifndef TESTS_KERNELS_CUDA_FRAME_H
#define TESTS_KERNELS_CUDA_FRAME_H

#include "xla/ffi/api/c_api.h"

#include <deque>
#include <string>
#include <vector>

struct test_frame {
    struct array {
        XLA_FFI_Buffer buffer;
        std::vector<int64_t> dims;
    };
    struct attribute {
        std::string name;
        XLA_FFI_ByteSpan span;
        XLA_FFI_Scalar scalar;
        int64_t whole;
        float real;
    };
    std::deque<array> operands, results;
    std::deque<attribute> attributes;
    std::string error; /* what the handler said */
    void *stream = &stream;
    bool has_stream = true;

    static void add(std::deque<array> &to, XLA_FFI_DataType type, void *data,
                    std::vector<int64_t> dims)
    {
        to.push_back(array());
        array &a = to.back();
        a.dims = dims;
        a.buffer = XLA_FFI_Buffer();
        a.buffer.struct_size = XLA_FFI_Buffer_STRUCT_SIZE;
        a.buffer.dtype = type;
        a.buffer.data = data;
        a.buffer.rank = (int64_t)dims.size();
    }
    void operand(XLA_FFI_DataType type, void *data, std::vector<int64_t> dims)
    {
        add(operands, type, data, dims);
    }
    void result(XLA_FFI_DataType type, void *data, std::vector<int64_t> dims)
    {
        add(results, type, data, dims);
    }
    void attr(const char *name, int64_t value)
    {
        attributes.push_back(attribute{name, {}, {XLA_FFI_DataType_S64, nullptr}, value, 0});
    }
    void attr(const char *name, float value)
    {
        attributes.push_back(attribute{name, {}, {XLA_FFI_DataType_F32, nullptr}, 0, value});
    }

    static test_frame *&running()
    {
        static test_frame *f;
        return f;
    }
    static XLA_FFI_Error *create_error(XLA_FFI_Error_Create_Args *args)
    {
        running()->error = args->message;
        return reinterpret_cast<XLA_FFI_Error *>(running());
    }
    static void destroy_error(XLA_FFI_Error_Destroy_Args *)
    {
        running()->error.clear();
    }
    static XLA_FFI_Error *get_stream(XLA_FFI_Stream_Get_Args *args)
    {
        args->stream = running()->stream;
        return running()->has_stream ? nullptr : reinterpret_cast<XLA_FFI_Error *>(running());
    }

    /* Calls the handler; its message, empty when all went well. */
    std::string call(void *handler)
    {
        XLA_FFI_Api api = {};
        api.XLA_FFI_Error_Create = create_error;
        api.XLA_FFI_Error_Destroy = destroy_error;
        api.XLA_FFI_Stream_Get = get_stream;
        std::vector<void *> args, rets, attrs;
        std::vector<XLA_FFI_ByteSpan *> names;
        std::vector<XLA_FFI_AttrType> types(attributes.size(), XLA_FFI_AttrType_SCALAR);
        for (array &a : operands)
            args.push_back(&a.buffer);
        for (array &a : results)
            rets.push_back(&a.buffer);
        for (std::deque<array> *side : {&operands, &results})
            for (array &a : *side)
                a.buffer.dims = a.dims.data();
        for (attribute &a : attributes) {
            a.span = {a.name.data(), a.name.size()};
            a.scalar.value = a.scalar.dtype == XLA_FFI_DataType_S64 ? (void *)&a.whole : &a.real;
            names.push_back(&a.span);
            attrs.push_back(&a.scalar);
        }
        XLA_FFI_CallFrame frame = {};
        frame.struct_size = XLA_FFI_CallFrame_STRUCT_SIZE;
        frame.api = &api;
        frame.stage = XLA_FFI_ExecutionStage_EXECUTE;
        frame.args.size = (int64_t)args.size();
        frame.args.args = args.data();
        frame.rets.size = (int64_t)rets.size();
        frame.rets.rets = rets.data();
        frame.attrs.size = (int64_t)attrs.size();
        frame.attrs.types = types.data();
        frame.attrs.names = names.data();
        frame.attrs.attrs = attrs.data();
        running() = this;
        error.clear();
        reinterpret_cast<XLA_FFI_Handler *>(handler)(&frame);
        return error;
    }
};

#endif
