/*
 * Questions put to a plugin, each answered by trying. A probe may crash in the plugin, so whoever
 * runs them does so in a process that may die.
 */
#ifndef TOOLS_COMMANDS_PLUGIN_PROBES_H
#define TOOLS_COMMANDS_PLUGIN_PROBES_H

#include "pjrt/pjrt.h"

typedef enum probe_outcome {
    PROBE_OK,
    PROBE_LACKS,  /* the plugin says that it does not have it, or has no such entry */
    PROBE_BROKEN, /* it failed, or gave a wrong answer */
    PROBE_SKIPPED /* what it builds on is not there, or the machine has no such device */
} probe_outcome;

/* What probes share; made by the first ones and used by the rest. */
typedef struct probe_context {
    const char *name; /* as the user gave it */
    pjrt_plugin *plugin;
    pjrt_client *client;
    pjrt_topology *topology;
    pjrt_executable *exe, *ahead;
} probe_context;

typedef struct probe {
    const char *name;
    const char *question;
    /* NULL when it is there and right; UNIMPLEMENTED and UNAVAILABLE are told apart from failure.
     */
    pjrt_status *(*run)(probe_context *context);
} probe;

extern const probe probes[];
extern const size_t n_probes;

probe_outcome probe_judge(const pjrt_status *st);
void probe_context_free(probe_context *context);

#endif
