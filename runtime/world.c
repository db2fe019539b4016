/* The processes of a job as one world: who they are and what they tell each other. */
#include "runtime/ttt_processes.h"

#include <stdlib.h>
#include <string.h>

static const char call[] = "processes";

pjrt_status *ttt_world_open(const ttt_world_options *options, ttt_world **out)
{
    *out = NULL;
    if (options->launch != TTT_LAUNCH_AUTO && options->launch != TTT_LAUNCH_NONE)
        return PJRT_FAIL(UNIMPLEMENTED, call, "jobs of several processes are not built in yet");
    return NULL;
}

void ttt_world_free(ttt_world *world)
{
    (void)world;
}

int ttt_world_rank(const ttt_world *world)
{
    (void)world;
    return 0;
}

int ttt_world_size(const ttt_world *world)
{
    (void)world;
    return 1;
}

const char *ttt_world_name(const ttt_world *world, int rank)
{
    (void)world, (void)rank;
    return "process 0";
}

pjrt_status *ttt_world_barrier(ttt_world *world, const char *name)
{
    (void)world, (void)name;
    return NULL;
}

pjrt_status *ttt_world_gather(ttt_world *world, const char *name, const void *mine, size_t size,
                              void **all)
{
    (void)world, (void)name;
    *all = malloc(size + 1);
    if (*all == NULL)
        return PJRT_NO_MEMORY(call);
    memcpy(*all, mine, size);
    return NULL;
}

pjrt_status *ttt_world_broadcast(ttt_world *world, const char *name, void *bytes, size_t size)
{
    (void)world, (void)name, (void)bytes, (void)size;
    return NULL;
}

pjrt_status *ttt_world_check(ttt_world *world)
{
    (void)world;
    return NULL;
}

const pjrt_store *ttt_world_store(ttt_world *world)
{
    (void)world;
    return NULL;
}

const pjrt_messenger *ttt_world_messenger(ttt_world *world)
{
    (void)world;
    return NULL;
}
