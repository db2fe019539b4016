/* Ctrl-C and SIGTERM for commands that finish what they are at and leave in good order. */
#ifndef TOOLS_CLI_STOP_SIGNALS_H
#define TOOLS_CLI_STOP_SIGNALS_H

#include <stdatomic.h>

/* How often the process was told to stop. */
extern atomic_int stopping;

/* From now on signals are counted. A second one ends the process at once, unless it is the same
 * again within half a second. */
void stopping_watch(void);

#endif
