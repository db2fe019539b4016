/* The largest of what all processes give, by a program of its own. */
#include "runtime/train/stop_and_save.h"

#include <stdlib.h>
#include <string.h>

struct ttt__stop_and_save {
    ttt_program *program;
    ttt_sharded wishes; /* a row a device */
};

static pjrt_status *compile(const ttt_devices *devices, ttt__stop_and_save *v)
{
    ttt_graph graph;
    PJRT_TRY(ttt_graph_new("votes", &devices->mesh, &graph));
    hlo_val x = ttt_graph_param(&graph, "wishes", v->wishes.shape, v->wishes.spec);
    ttt_graph_result(&graph, "all", hlo_reduce(graph.g, HLO_REDUCE_MAX, x, HLO_DIMS(0)),
                     HLO_SPEC(NULL));
    pjrt_status *st = ttt_program_compile(devices, &graph, &v->program);
    ttt_graph_free(&graph);
    return st;
}

pjrt_status *ttt__stop_and_save_new(const ttt_devices *devices, ttt__stop_and_save **out)
{
    *out = NULL;
    ttt__stop_and_save *v = calloc(1, sizeof *v);
    if (v == NULL)
        return PJRT_NO_MEMORY("train");
    v->wishes = (ttt_sharded){HLO_SHAPE(HLO_S32, devices->n_devices, TTT__AGREE_COUNT),
                              HLO_SPEC("data+fsdp+time+model")};
    pjrt_status *st = compile(devices, v);
    if (st != NULL) {
        ttt__stop_and_save_free(v);
        return st;
    }
    *out = v;
    return NULL;
}

void ttt__stop_and_save_free(ttt__stop_and_save *votes)
{
    if (votes == NULL)
        return;
    ttt_program_free(votes->program);
    free(votes);
}

/* Every device has one row, which is the process's. */
static pjrt_status *fill(void *ctx, const ttt_block *block, void *out)
{
    (void)block;
    memcpy(out, ctx, sizeof(ttt__wishes));
    return NULL;
}

pjrt_status *ttt__stop_and_save_cast(const ttt__stop_and_save *votes, const ttt__wishes *mine,
                                     ttt_array **cast)
{
    ttt__wishes wishes = *mine;
    ttt_array *array;
    *cast = NULL;
    PJRT_TRY(ttt_array_make(votes->program->devices, votes->wishes.shape, votes->wishes.spec, fill,
                            &wishes, &array));
    pjrt_status *st = ttt_program_run(votes->program, &array, 1, cast);
    ttt_array_free(array);
    return st;
}

pjrt_status *ttt__stop_and_save_read(const ttt_array *cast, ttt__wishes *all)
{
    return ttt_array_download(cast, all, sizeof *all);
}
