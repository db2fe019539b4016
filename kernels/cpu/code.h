/*
 * Private to kernels: the code that computes, compiled once for each kind of processor from the
 * same sources (code_*.c), and the choice between them. A path is a set of such functions. They
 * check nothing: the handlers have.
 */
#ifndef KERNELS_CPU_CODE_H
#define KERNELS_CPU_CODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A learner of one head: up to two layers, d lanes in and out, w between them. */
typedef struct learner_shape {
    int layers;
    int64_t d, w;
    float epsilon;
} learner_shape;

/* What layer i takes in and gives out. */
static inline int64_t layer_in(const learner_shape *l, int i)
{
    return i == 0 ? l->d : l->w;
}

static inline int64_t layer_out(const learner_shape *l, int i)
{
    return i == l->layers - 1 ? l->d : l->w;
}

/* One token of one head of one sequence. */
typedef struct step_head {
    learner_shape learner;
    const float *scale, *bias; /* of the norm: [d] */
    float *kq;                 /* [2, d]: key, then query, rotated */
    const float *target;       /* [d] */
    float rate, move;
    bool last; /* the mini-batch ends here */
    float *w[2], *b[2], *w_sum[2], *b_sum[2];
    float *answer;  /* [d] */
    float *scratch; /* step_scratch floats */
} step_head;

/* Rows [first, end) of weights times all rows of x. */
typedef struct product_part {
    int64_t batch, k, n; /* of the whole */
    int64_t first, end;
    const float *x; /* [batch, k] */
    /* The same for more than one row, but for what is left over of k: [batch / 4, rounded up;
     * k / lanes; 4; lanes], zeros for rows that are not there. */
    const float *panels;
    const void *w;      /* [n, k] */
    const float *scale; /* [n], with s8 */
    float *y;           /* [batch, n] */
} product_part;

/* A learner over mini-batches, for all sequences and heads; as ttt_kernels.h has the arrays. */
typedef struct scan_job {
    learner_shape learner;
    int64_t count, heads, units; /* mini-batches; heads; sequences times heads */
    int64_t size, group;         /* tokens of a mini-batch; mini-batches between kept states */
    const float *k, *target, *q, *eta, *scale, *bias, *w[2], *b[2];
    float *answers, *w_end[2], *b_end[2];
    /* Backwards, the gradients of the results, and of the operands; those of the norm for each
     * unit by itself, [units, d]. */
    const float *d_answers, *d_w_end[2], *d_b_end[2];
    float *d_k, *d_target, *d_q, *d_eta, *d_scale, *d_bias, *d_w[2], *d_b[2];
} scan_job;

typedef struct cpu_code {
    const char *name;
    int64_t lanes; /* of a vector; sizes of heads are multiples of it */
    void (*step)(const step_head *head);
    void (*product_f32)(const product_part *part);
    void (*product_bf16)(const product_part *part);
    void (*product_s8)(const product_part *part);
    /* Floats that one unit needs to work in, and the unit itself. */
    size_t (*scan_scratch)(const scan_job *job, bool backward);
    void (*scan)(const scan_job *job, int64_t unit, float *scratch);
    void (*scan_backward)(const scan_job *job, int64_t unit, float *scratch);
} cpu_code;

size_t step_scratch(const learner_shape *l);

extern const cpu_code cpu_code_portable;
#if defined(__x86_64__)
extern const cpu_code cpu_code_avx2, cpu_code_avx512;
#endif

/* The fastest that this processor runs and that takes heads of `lanes`, a multiple of 8. The
 * variable TTT_KERNELS names the best to take: portable, avx2, avx512. */
const cpu_code *cpu_code_for(int64_t lanes);
/* The same as the variable, for tests: NULL gives the choice back. False when the processor does
 * not run that path. */
bool cpu_code_force(const char *name);

#endif
