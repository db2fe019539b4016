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

/* Sanitizers make everything ten times slower: long runs are then shorter. */
#ifdef __SANITIZE_ADDRESS__
static constexpr int LONG_RUN = 1;
#else
static constexpr int LONG_RUN = 10;
#endif

#endif
