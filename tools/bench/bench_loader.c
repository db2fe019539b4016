/* How fast batches come: bench_loader DIR TIME BATCH [SECONDS]. */
#include "runtime/data/ttt_data.h"
#include "tools/cli/cmd.h"

#include <stdio.h>
#include <stdlib.h>

static pjrt_status *run(const char *folder, int64_t time, int64_t batch, double seconds)
{
    ttt_dataset *data;
    ttt_loader *loader = NULL;
    ttt_batch next;
    int64_t count = 0;
    ttt_loader_options options = {
        .time = time, .batch = batch, .rows = batch, .seed = 1, .resets = true};
    PJRT_TRY(ttt_dataset_open(folder, "train", &data));
    pjrt_status *st = ttt_loader_new(data, &options, 0, &loader);
    double began = cmd_seconds();
    for (; st == NULL && cmd_seconds() - began < seconds; count++)
        st = ttt_loader_next(loader, &next);
    double rate = (double)count / (cmd_seconds() - began);
    if (st == NULL)
        printf("%lld x %lld: %s, %s\n", (long long)batch, (long long)time,
               cmd_quantity(rate, "batches/s"),
               cmd_quantity(rate * (double)(batch * time), "tokens/s"));
    ttt_loader_free(loader);
    ttt_dataset_free(data);
    return st;
}

int main(int argc, char **argv)
{
    if (argc < 4 || argc > 5) {
        fputs("usage: bench_loader DIR TIME BATCH [SECONDS]\n", stderr);
        return CMD_WRONG_USE;
    }
    pjrt_status *st = run(argv[1], atoll(argv[2]), atoll(argv[3]), argc == 5 ? atof(argv[4]) : 2);
    return st == NULL ? CMD_OK : cmd_fail(&(cmd_common){0}, st);
}
