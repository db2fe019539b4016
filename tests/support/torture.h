/*
 * For tests that make allocations fail: the build wraps the allocating functions of the program
 * (tests/CMakeLists.txt), and the n-th call of all threads says no. Included by one file a program.
 *
 *     for (fail_at = 1;; fail_at++) {
 *         allocations = 0;
 *         … what is tested; as long as fail_at <= allocations, one of its allocations failed …
 *     }
 */
#ifndef TESTS_SUPPORT_TORTURE_H
#define TESTS_SUPPORT_TORTURE_H

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

static atomic_int allocations;
static int fail_at; /* 0: none fails */

static bool denied(void)
{
    if (fail_at == 0 || atomic_fetch_add(&allocations, 1) + 1 != fail_at)
        return false;
    errno = ENOMEM;
    return true;
}

#define TORTURE_WRAP(type, name, parameters, arguments, failure) \
    type __real_##name parameters;                               \
    type __wrap_##name parameters;                               \
    type __wrap_##name parameters                                \
    {                                                            \
        return denied() ? (failure) : __real_##name arguments;   \
    }
TORTURE_WRAP(void *, malloc, (size_t size), (size), NULL)
TORTURE_WRAP(void *, calloc, (size_t count, size_t size), (count, size), NULL)
TORTURE_WRAP(void *, realloc, (void *old, size_t size), (old, size), NULL)
TORTURE_WRAP(char *, strdup, (const char *text), (text), NULL)
TORTURE_WRAP(XXH3_state_t *, XXH3_createState, (void), (), NULL)

#endif
