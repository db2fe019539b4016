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

pjrt_status *world_join(const world_options *o, cmd_common *common, ttt_job **job)
{
    ttt_job_options options = TTT_JOB_DEFAULTS;
    if (o->processes > 0) {
        options.launch = TTT_LAUNCH_TCP;
        options.processes = o->processes;
        options.rank = o->rank;
        options.coordinator = o->coordinator;
    }
    if (o->timeout > 0)
        options.timeout = o->timeout;
    PJRT_TRY(ttt_job_open(&options, job));
    if (ttt_job_size(*job) > 1) {
        common->process = ttt_job_name(*job, ttt_job_rank(*job));
        common->json = common->json && ttt_job_rank(*job) == 0;
    }
    return NULL;
}

void world_abandon(ttt_job *job)
{
    if (ttt_job_size(job) == 1)
        return;
    fflush(NULL);
    _exit(CMD_FAILED);
}

void world_leave(ttt_job *job)
{
    pjrt_status *lost = ttt_job_check(job);
    if (lost != NULL)
        world_abandon(job);
    ttt_job_free(job);
}
