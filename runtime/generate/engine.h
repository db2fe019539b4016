/* Private to the runtime room: what an engine is made of. */
#ifndef RUNTIME_GENERATE_ENGINE_H
#define RUNTIME_GENERATE_ENGINE_H

#include "runtime/generate/sequence_state.h"

enum { TTT__SPANS = 3 };

typedef struct ttt__span {
    int64_t size;
    ttt_program *program; /* NULL until it is needed */
} ttt__span;

typedef struct ttt__slot {
    int64_t position;
    bool lost; /* there is no sequence: reset, or put a state */
} ttt__slot;

/* Where an engine's weights and programs come from. */
typedef struct ttt__program_source {
    const char *folder;   /* of config.json and the weights; needed while it is opened */
    ttt_kernel_set calls; /* what programs call; with products, matrices are packed */
    /* Hands out the program of a task; NULL: it is built here and compiled for the place. */
    pjrt_status *(*program)(void *ctx, const ttt_program_desc *desc, ttt_program **out);
    void (*done)(void *ctx); /* nothing more will be asked for; NULL: nobody minds */
    void *ctx;
} ttt__program_source;

struct ttt_engine {
    const ttt_devices *devices;
    ttt__program_source source;
    ttt_model *model;
    uint64_t hash[2];
    int64_t batch, context;
    hlo_type compute, weights;
    hlo_spec spec;          /* of [batch, …] */
    ttt_state_table *parts; /* of one sequence */
    /* Several tokens at once are read from multiples of this position on: learners' mini-batches;
     * 0: never. */
    int64_t mini;
    ttt__span spans[TTT__SPANS]; /* from the longest on */
    int n_spans;
    /* Those of one sequence, and of all slots; with one slot they are the same and `step_one` is
     * NULL, and so are `put` and `take`. NULL until needed. */
    ttt_program *start, *step, *step_one, *put, *take;
    ttt_array **all; /* the states of all slots; NULL each: all are lost */
    ttt__slot *slots;
    ttt_array **args, **results; /* room for those of any program */
};

/* As ttt_engine_open, which opens a folder. `source.done` is called whatever happens. */
PJRT_MUST_CHECK pjrt_status *ttt__engine_open(const ttt_devices *devices,
                                              const ttt__program_source *source,
                                              const ttt_engine_options *options, ttt_engine **out);
/* What options stand for where they say nothing; those that cannot be are refused. */
PJRT_MUST_CHECK pjrt_status *ttt__engine_defaults(const ttt_engine_options *options,
                                                  ttt_engine_options *out);
/* How many tokens are read at once, from the longest on: up to `span`, a quarter of it, a
 * mini-batch. They start at multiples of `*mini`; 0: never. */
int ttt__engine_spans(const ttt_config *config, int64_t context, int64_t span,
                      int64_t sizes[TTT__SPANS], int64_t *mini);
/* Whether matrices are packed. */
bool ttt__engine_packs(ttt_kernel_set calls, hlo_type weights);

/* Compiles a program of one or of all slots, unless it is there. */
PJRT_MUST_CHECK pjrt_status *ttt__engine_need(ttt_engine *e, ttt_program **program,
                                              ttt_program_kind kind, int64_t batch, int64_t time);
/* There is such a slot, and with `alive` a sequence in it. */
PJRT_MUST_CHECK pjrt_status *ttt__engine_check(const ttt_engine *e, int64_t slot, bool alive);
/* The states of one sequence are an array each; a list of them is the caller's, all NULL first. */
PJRT_MUST_CHECK pjrt_status *ttt__engine_list(const ttt_engine *e, ttt_array ***out);
void ttt__engine_drop(const ttt_engine *e, ttt_array **list); /* the arrays, not the list */
/* A sequence into its slot, and a copy of it out of there. What `one` had is gone, or freed. */
PJRT_MUST_CHECK pjrt_status *ttt__engine_put(ttt_engine *e, int64_t slot, ttt_array **one);
PJRT_MUST_CHECK pjrt_status *ttt__engine_copy(ttt_engine *e, int64_t slot, ttt_array **one);

#endif
