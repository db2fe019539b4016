/* Jobs of several processes, on the command line. */
#include "tools/cli/job_options.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

bool world_set_rank(const char *text, void *field)
{
    char *end;
    long value = strtol(text, &end, 10);
    if (end == text || *end != '\0' || value < 0 || value >= 1 << 16)
        return false;
    *(int *)field = (int)value;
    return true;
}

bool world_set_timeout(const char *text, void *field)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value > 0) || !isfinite(value))
        return false;
    *(double *)field = value;
    return true;
}

int world_check_use(const cmd_spec *spec, const world_options *o)
{
    int given = (o->processes > 0) + (o->rank >= 0) + (o->coordinator != NULL);
    if (given != 0 && given != 3)
        return cmd_wrong_use(spec, "--processes, --rank and --coordinator go together");
    if (given == 3 && o->rank >= o->processes)
        return cmd_wrong_use(spec, "--rank %d of --processes %d: it is from 0 to %d", o->rank,
                             o->processes, o->processes - 1);
    return -1;
}

pjrt_status *world_join(const world_options *o, cmd_common *common, ttt_world **world)
{
    ttt_world_options options = TTT_WORLD_DEFAULTS;
    if (o->processes > 0) {
        options.launch = TTT_LAUNCH_TCP;
        options.processes = o->processes;
        options.rank = o->rank;
        options.coordinator = o->coordinator;
    }
    if (o->timeout > 0)
        options.timeout = o->timeout;
    PJRT_TRY(ttt_world_open(&options, world));
    if (ttt_world_size(*world) > 1) {
        common->process = ttt_world_name(*world, ttt_world_rank(*world));
        common->json = common->json && ttt_world_rank(*world) == 0;
    }
    return NULL;
}

void world_abandon(ttt_world *world)
{
    if (ttt_world_size(world) == 1)
        return;
    fflush(NULL);
    _exit(CMD_FAILED);
}

void world_leave(ttt_world *world)
{
    pjrt_status *lost = ttt_world_check(world);
    if (lost != NULL)
        world_abandon(world);
    ttt_world_free(world);
}
