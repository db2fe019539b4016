/*
 * Everything the pjrt room can do, once, on a fake plugin: for tests that make the n-th call or the
 * n-th allocation of it fail. It stops at the first failure, checks that failed calls set their
 * results to NULL, and frees all it made, forwards or backwards.
 */
#ifndef TESTS_SCENARIO_H
#define TESTS_SCENARIO_H

#include "tests/support/support.h"

typedef struct scenario {
    support_fake *fake; /* loaded and reset */
    char folder[PATH_MAX];
    bool backwards;      /* frees the client first */
    pjrt_status *why[2]; /* why the cached compiles were compiles; for scenario_forget */
    int abandoned;       /* transfers that the room itself let go of */
    pjrt_code outcome;   /* what the callback of an event was told */
} scenario;

pjrt_status *scenario_run(scenario *s);
/* A cached compile gave such a failure as its reason to compile; `call` NULL: any call's. */
bool scenario_tells(scenario *s, const char *call, pjrt_code code);
void scenario_forget(scenario *s);

#endif
