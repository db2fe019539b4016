/* cmocka for C++, which its header does not think of. */
#ifndef TESTS_KERNELS_CUDA_TEST_H
#define TESTS_KERNELS_CUDA_TEST_H

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
}

#endif
