/* Private to kernels: the CPU's handlers, one a file. */
#ifndef KERNELS_CPU_HANDLERS_H
#define KERNELS_CPU_HANDLERS_H

#include "kernels/ffi.h"

XLA_FFI_Error *handle_step(XLA_FFI_CallFrame *frame);
XLA_FFI_Error *handle_product(XLA_FFI_CallFrame *frame);
XLA_FFI_Error *handle_scan(XLA_FFI_CallFrame *frame);
XLA_FFI_Error *handle_scan_backward(XLA_FFI_CallFrame *frame);

#endif
