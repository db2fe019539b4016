/* Private to the runtime room: a bundle in the making. */
#ifndef RUNTIME_BUNDLE_BUNDLE_WRITE_H
#define RUNTIME_BUNDLE_BUNDLE_WRITE_H

#include "runtime/bundle/bundle.h"
#include "runtime/generate/engine.h"

enum { TTT__BUNDLE_TASKS = 5 + TTT__SPANS };

typedef struct ttt__exporting {
    const ttt_export_options *options;
    char folder[PATH_MAX]; /* where it is made */
    char *model;           /* folder of the model */
    ttt_config config;
    ttt_engine_options engine; /* with nothing left out */
    ttt_program_desc tasks[TTT__BUNDLE_TASKS];
    int n_tasks;
    ttt_bundle_about about; /* grows; what it points to is kept below */
    ttt_bundle_program programs[TTT__BUNDLE_TASKS];
    ttt_bundle_target *targets;
    void **kept;
    int n_kept;
} ttt__exporting;

/* A text, and memory of zeros, that stay until the end; NULL when out of memory. */
const char *ttt__export_text(ttt__exporting *x, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void *ttt__export_keep(ttt__exporting *x, size_t count, size_t size);
void ttt__export_say(const ttt__exporting *x, const char *line);

/* The programs as portable StableHLO, and compiled for each target: files, and what the manifest
 * says of them. */
PJRT_MUST_CHECK pjrt_status *ttt__export_programs(ttt__exporting *x);
PJRT_MUST_CHECK pjrt_status *ttt__export_targets(ttt__exporting *x);

#endif
