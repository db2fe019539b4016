/*
 * A program compiled for a target, present or not, and the report on what came of it. What `ttt hlo
 * compile` and `ttt compile` share.
 */
#ifndef TOOLS_COMPILE_COMPILE_REPORT_H
#define TOOLS_COMPILE_COMPILE_REPORT_H

#include "pjrt/hlo/pjrt_hlo.h"
#include "tools/cli/cmd.h"
#include "tools/compile/roofline.h"

/* Zero before compiled_open. */
typedef struct compiled {
    const char *name; /* of the target, as the user wrote it */
    const pjrt_target *target;
    pjrt_plugin *plugin;
    pjrt_topology *topology;
    pjrt_client *client; /* for the CPU, which compiles for itself */
    pjrt_executable *exe;
    pjrt_hlo_report *report;
    roofline roofline;
    size_t program_bytes; /* serialized; 0 when the plugin cannot */
    int partitions, replicas;
    double open_seconds, compile_seconds;
} compiled;

PJRT_MUST_CHECK pjrt_status *compiled_open(compiled *c, const char *target);
/* Compiles and reads the result. The executable goes to the file `save`, the optimized program to
 * `optimized`; NULL for neither. */
PJRT_MUST_CHECK pjrt_status *compiled_make(compiled *c, pjrt_program program,
                                           const pjrt_compile_options *options, const char *save,
                                           const char *optimized);
void compiled_free(compiled *c);

/* Everything as a JSON object, to which the caller may add; and as text, `top` rows a table. `work`
 * is what a run is for, or NULL. */
json_t *compiled_json(const compiled *c, const roofline_work *work);
void compiled_print(const compiled *c, const roofline_work *work, int top);
/* The report of an optimized program alone. */
json_t *compiled_program_json(const pjrt_hlo_report *report, const roofline *roofline);

/* Memory of one chip that the program needs, and whether that is there; false when the plugin does
 * not tell. `limit` is 0 where the target's memory is not known. */
bool compiled_needs(const compiled *c, int64_t *bytes, int64_t *limit);
/* Cycles in loops that stem from the scope: a part between slashes of what the source called them.
 * Of nested ones the outermost counts. */
double compiled_cycles_under(const compiled *c, const char *scope);

#endif
