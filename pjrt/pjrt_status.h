/*
 * pjrt_status: how every pjrt call reports failure.
 *
 * A call returns NULL when it succeeded and a pjrt_status when it did not. The caller owns it:
 *
 *     pjrt_status *st = pjrt_client_create(plugin, NULL, &client);
 *     if (st != NULL) {
 *         fprintf(stderr, "%s\n", pjrt_status_text(st));
 *         pjrt_status_free(st);
 *     }
 *
 * Nothing here prints, exits or aborts. Running out of memory while making a status gives a static
 * one, so a failure is never lost, and freeing that static one is harmless.
 */
#ifndef PJRT_STATUS_H
#define PJRT_STATUS_H

#include <stdarg.h>
#include <stddef.h>

/* The codes of the PJRT C API, number for number; never renumbered. */
#define PJRT_CODES(X)         \
    X(OK, 0)                  \
    X(CANCELLED, 1)           \
    X(UNKNOWN, 2)             \
    X(INVALID_ARGUMENT, 3)    \
    X(DEADLINE_EXCEEDED, 4)   \
    X(NOT_FOUND, 5)           \
    X(ALREADY_EXISTS, 6)      \
    X(PERMISSION_DENIED, 7)   \
    X(RESOURCE_EXHAUSTED, 8)  \
    X(FAILED_PRECONDITION, 9) \
    X(ABORTED, 10)            \
    X(OUT_OF_RANGE, 11)       \
    X(UNIMPLEMENTED, 12)      \
    X(INTERNAL, 13)           \
    X(UNAVAILABLE, 14)        \
    X(DATA_LOSS, 15)          \
    X(UNAUTHENTICATED, 16)

typedef enum pjrt_code {
#define PJRT_CODE_ENUM(name, number) PJRT_CODE_##name = number,
    PJRT_CODES(PJRT_CODE_ENUM)
#undef PJRT_CODE_ENUM
} pjrt_code;

typedef struct pjrt_status pjrt_status;

#define PJRT_MUST_CHECK __attribute__((warn_unused_result))

/* PJRT_CODE_OK for NULL. */
pjrt_code pjrt_status_code(const pjrt_status *st);
/* "INVALID_ARGUMENT" and so on; "UNKNOWN" for a number that is no code. */
const char *pjrt_code_name(pjrt_code code);

/* The message alone, the call that failed ("PJRT_Client_Compile", or one of ours), and where in
 * this library it was noticed ("client.c:120"). All live as long as the status; "" for NULL. */
const char *pjrt_status_message(const pjrt_status *st);
const char *pjrt_status_call(const pjrt_status *st);
const char *pjrt_status_where(const pjrt_status *st);

/* One line for a person: the first line of the message, and before it, when it is the plugin's own,
 * call and code: "PJRT_Client_Compile: INVALID_ARGUMENT: …". "ok" for NULL. */
const char *pjrt_status_text(const pjrt_status *st);

void pjrt_status_free(pjrt_status *st);
/* A copy, for a status that is stored and returned more than once. */
pjrt_status *pjrt_status_copy(const pjrt_status *st);

/* Makes a status; never returns NULL. Use PJRT_FAIL, which fills in file and line. */
pjrt_status *pjrt_status_make(pjrt_code code, const char *call, const char *file, int line,
                              const char *format, ...)
    __attribute__((format(printf, 5, 6), returns_nonnull));
#define PJRT_FAIL(code, call, ...) \
    pjrt_status_make(PJRT_CODE_##code, call, __FILE__, __LINE__, __VA_ARGS__)
#define PJRT_NO_MEMORY(call) PJRT_FAIL(RESOURCE_EXHAUSTED, call, "out of memory")

/* Hands a failure on to the caller. Only for functions with nothing to release. */
#define PJRT_TRY(expression)                          \
    do {                                              \
        pjrt_status *pjrt_try_status_ = (expression); \
        if (pjrt_try_status_ != NULL)                 \
            return pjrt_try_status_;                  \
    } while (0)

#endif
