/* Private to the runtime room: what the processes of a job do so that none is left waiting. */
#ifndef RUNTIME_CLUSTER_AGREE_H
#define RUNTIME_CLUSTER_AGREE_H

#include "runtime/cluster/ttt_processes.h"

/* Things that processes come together for, counted: `name` and the count make a name that is new.
 * Each thread that meets those of other processes has a count of its own. */
typedef struct ttt__agreements {
    ttt_job *job;
    const char *name;
    int64_t count;
} ttt__agreements;

/*
 * Everyone comes here with how it went, which is taken over. NULL when all went well; else every
 * process gets a failure of the same code, its own or that of the first that has one, by name. Of
 * one process, or NULL, it is `mine`.
 */
PJRT_MUST_CHECK pjrt_status *ttt__agree(ttt__agreements *meetings, pjrt_status *mine);
/* The same, and all get what process 0 has in `bytes`. */
PJRT_MUST_CHECK pjrt_status *ttt__agree_reported(ttt__agreements *meetings, pjrt_status *mine,
                                                 void *bytes, size_t size);

/* Until a buffer's contents are there, or a process is lost without which they may never be. */
PJRT_MUST_CHECK pjrt_status *ttt__wait_for(ttt_job *job, pjrt_buffer *buffer);

#endif
