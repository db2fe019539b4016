/*
 * --mesh auto: which grid of a target's chips suits a network best.
 *
 * All ways to write the number of chips as data x fsdp x model that divide batch and parameters are
 * weighed by a formula of memory and of bytes on links, which is quick and rough; the best few are
 * compiled, and then what the compiler made of them decides.
 */
#include "tools/cli/progress.h"
#include "tools/compile/compile_job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_MESHES = 512, CANDIDATES = 4 };

#define RULE                                                                                  \
    "what fits in memory first, then the least step_seconds of the roofline: operations and " \
    "exposed links"
#define ESTIMATE                                                                            \
    "memory: 16 bytes a parameter in training, else 4, over fsdp x model, and 16 values a " \
    "token, width and layer, over all chips; links: parameters gathered over fsdp forward " \
    "and backward and their gradients scattered, gradients summed over data, two sums of "  \
    "activations a layer over model forward and two backward"

typedef struct candidate {
    int64_t data, fsdp, model;
    char mesh[96];
    double memory, links; /* bytes a chip, by the formula */
    bool compiled, fits;
    double needed, free_percent, compile_seconds;
    roofline roofline;
    roofline_work work;
    char *failure; /* why it could not be compiled */
} candidate;

/* ---- the formula -------------------------------------------------------------------------------
 */

static double others(int64_t n)
{
    return (double)(n - 1) / (double)n;
}

static void estimate(const compile_job *job, candidate *c)
{
    bool train = job->desc.kind == TTT_PROGRAM_TRAIN;
    double passes = train ? 2 : 1, bytes = job->desc.compute == HLO_BF16 ? 2 : 4;
    double mine = (double)job->params->elements / (double)c->model;
    double tokens = (double)job->desc.batch *
                    (job->desc.kind == TTT_PROGRAM_DECODE ? 1 : (double)job->desc.time) /
                    (double)(c->data * c->fsdp);
    double activations = tokens * (double)job->config.hidden_size * bytes;
    double layers = (double)job->config.n_layers;
    c->memory =
        (train ? 16 : 4) * mine / (double)c->fsdp + 16 * activations * layers / (double)c->model;
    c->links = passes * bytes * mine * others(c->fsdp);
    c->links += passes * 4 * layers * activations * others(c->model);
    if (train)
        c->links += 4 * mine * others(c->fsdp) + 8 * mine / (double)c->fsdp * others(c->data);
}

static int by_estimate(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    return (x->links > y->links) - (x->links < y->links);
}

/* ---- which there are ---------------------------------------------------------------------------
 */

static bool divides(const compile_job *job, const candidate *c)
{
    ttt_mesh mesh;
    bool one = job->desc.batch == 1 && job->desc.kind != TTT_PROGRAM_TRAIN;
    if (!one && job->desc.batch % (c->data * c->fsdp) != 0)
        return false;
    if (job->config.n_heads % c->model != 0)
        return false;
    pjrt_status *st = ttt_mesh_parse(c->mesh, &mesh);
    if (st == NULL)
        st = ttt_mesh_check(&mesh, job->params);
    bool fits = st == NULL;
    pjrt_status_free(st);
    return fits;
}

static int list_meshes(const compile_job *job, int64_t chips, candidate *list)
{
    int count = 0;
    for (int64_t model = 1; model <= chips; model++) {
        for (int64_t fsdp = 1; chips % model == 0 && fsdp <= chips / model; fsdp++) {
            if (chips / model % fsdp != 0 || count == MAX_MESHES)
                continue;
            candidate *c = &list[count];
            *c = (candidate){.data = chips / model / fsdp, .fsdp = fsdp, .model = model};
            snprintf(c->mesh, sizeof c->mesh, "data=%lld,fsdp=%lld,model=%lld", (long long)c->data,
                     (long long)c->fsdp, (long long)c->model);
            if (divides(job, c)) {
                estimate(job, c);
                count++;
            }
        }
    }
    return count;
}

/* Those that may fit come first, each group with the least on its links first. */
static void prune(candidate *list, int count, double limit)
{
    int fitting = 0;
    qsort(list, (size_t)count, sizeof *list, by_estimate);
    for (int i = 0; limit > 0 && i < count; i++) {
        if (list[i].memory > limit)
            continue;
        candidate c = list[i];
        memmove(&list[fitting + 1], &list[fitting], (size_t)(i - fitting) * sizeof *list);
        list[fitting++] = c;
    }
}

/* ---- compiling ---------------------------------------------------------------------------------
 */

static void measure(const compile_job *job, candidate *c)
{
    int64_t needed = 0, limit = 0;
    c->compiled = true;
    c->compile_seconds = job->result.compile_seconds;
    c->roofline = job->result.roofline;
    c->work = compile_job_work(job);
    c->fits = compiled_needs(&job->result, &needed, &limit) && (limit == 0 || needed <= limit);
    c->needed = (double)needed;
    c->free_percent = limit == 0 ? 0 : 100 * (double)(limit - needed) / (double)limit;
}

static bool better(const candidate *a, const candidate *b)
{
    if (a->compiled != b->compiled)
        return a->compiled;
    if (a->fits != b->fits)
        return a->fits;
    return a->roofline.times.step < b->roofline.times.step;
}

static int by_result(const void *a, const void *b)
{
    return better(a, b) ? -1 : better(b, a) ? 1 : 0;
}

/* Compiles one; the job becomes `best` when it is better than `*leader`. */
static void try_one(const compile_options *options, int64_t batch, candidate *c, compile_job *best,
                    candidate *leader)
{
    compile_options mine = *options;
    mine.program.mesh = c->mesh;
    if (mine.batch_tokens == 0)
        mine.batch = (int)batch;
    compile_job job = {.options = &mine};
    pjrt_status *st = compile_job_run(&job);
    if (st != NULL) {
        c->failure = strdup(pjrt_status_text(st));
        pjrt_status_free(st);
    } else {
        measure(&job, c);
    }
    if (c->compiled && (!leader->compiled || better(c, leader))) {
        compile_job_free(best);
        *best = job;
        best->options = options;
        *leader = *c;
    } else {
        compile_job_free(&job);
    }
}

static void try_all(const compile_options *options, int64_t batch, candidate *list, int count,
                    compile_job *best)
{
    candidate leader = {0};
    double start = cmd_seconds();
    progress_line line = progress_begin();
    for (int i = 0; i < count; i++) {
        double left = i == 0 ? 0 : (cmd_seconds() - start) / i * (count - i);
        progress_show(&line, "mesh %d of %d: %s%s%s", i + 1, count, list[i].mesh,
                      i == 0 ? "" : ", left: ", i == 0 ? "" : progress_time(left));
        try_one(options, batch, &list[i], best, &leader);
    }
    progress_end(&line);
    qsort(list, (size_t)count, sizeof *list, by_result);
}

/* ---- telling -----------------------------------------------------------------------------------
 */

static json_t *row_json(const candidate *c)
{
    json_t *row = json_pack(
        "{s:s, s:f, s:f, s:o}", "mesh", c->mesh, "estimated_bytes", c->memory,
        "estimated_link_bytes", c->links, "failure",
        c->compiled ? json_null() : json_string(c->failure == NULL ? "no memory" : c->failure));
    if (!c->compiled)
        return row;
    json_t *figures = json_pack(
        "{s:f, s:b, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "compile_seconds", c->compile_seconds,
        "fits", (int)c->fits, "needed_bytes", c->needed, "free_percent", c->free_percent,
        "operations_seconds", c->roofline.times.operations, "exposed_link_seconds",
        c->roofline.times.exposed, "step_seconds", c->roofline.times.step,
        "tokens_per_second_at_most", roofline_tokens_per_second(&c->roofline, &c->work),
        "mfu_at_most", roofline_mfu(&c->roofline, &c->work));
    json_object_update(row, figures);
    json_decref(figures);
    return row;
}

static json_t *table_json(const candidate *list, int tried, int possible)
{
    json_t *rows = json_array();
    for (int i = 0; i < tried; i++)
        json_array_append_new(rows, row_json(&list[i]));
    return json_pack("{s:s, s:s, s:i, s:o}", "rule", RULE, "estimate", ESTIMATE, "possible",
                     possible, "candidates", rows);
}

static double number(const json_t *row, const char *name)
{
    return json_number_value(json_object_get(row, name));
}

void mesh_search_print(const json_t *table)
{
    const json_t *rows = json_object_get(table, "candidates"), *row;
    size_t i;
    printf("%zu of %lld possible meshes compiled, best first: " RULE "\n", json_array_size(rows),
           (long long)json_integer_value(json_object_get(table, "possible")));
    printf("  %-32s %9s %9s %11s %11s %11s %7s\n", "mesh", "compile", "memory", "operations",
           "exposed", "step", "MFU");
    json_array_foreach(rows, i, row)
    {
        const char *mesh = json_string_value(json_object_get(row, "mesh"));
        const char *failure = json_string_value(json_object_get(row, "failure"));
        if (failure != NULL) {
            printf("  %-32s %s\n", mesh, failure);
            continue;
        }
        printf("  %-32s %9s %9s %11s %11s %11s %6.1f%%%s\n", mesh,
               cmd_duration(number(row, "compile_seconds")),
               cmd_quantity(number(row, "needed_bytes"), "B"),
               cmd_duration(number(row, "operations_seconds")),
               cmd_duration(number(row, "exposed_link_seconds")),
               cmd_duration(number(row, "step_seconds")), 100 * number(row, "mfu_at_most"),
               json_is_true(json_object_get(row, "fits")) ? "" : "  TOO MUCH");
    }
}

/* ---- searching ---------------------------------------------------------------------------------
 */

/* Step, network and batch as all meshes share them, and how many chips there are. */
static pjrt_status *prepare(const compile_options *plain, compile_job *job)
{
    PJRT_TRY(compiled_open(&job->result, plain->target));
    if (job->result.topology == NULL || job->result.target->bf16_flops == 0)
        return PJRT_FAIL(INVALID_ARGUMENT, "ttt",
                         "--mesh auto needs a target with known peaks, ahead of time: %s has none",
                         plain->target);
    if (plain->emit != NULL || plain->save != NULL || plain->optimized != NULL)
        return PJRT_FAIL(INVALID_ARGUMENT, "ttt",
                         "--mesh auto writes no files: compile the mesh it finds once more with "
                         "--emit, --save or --optimized");
    return compile_job_choose(job);
}

static pjrt_status *search(const compile_options *options, compile_job *shared, candidate *list,
                           compile_job *best, json_t **table)
{
    int64_t chips = (int64_t)pjrt_topology_num_devices(shared->result.topology);
    if (options->batch == 0 && options->batch_tokens == 0)
        shared->desc.batch = chips;
    int possible = list_meshes(shared, chips, list);
    if (possible == 0)
        return PJRT_FAIL(INVALID_ARGUMENT, "ttt",
                         "no mesh of %lld chips divides %lld sequences and this network's "
                         "parameters: give another --batch or target",
                         (long long)chips, (long long)shared->desc.batch);
    int wanted = options->candidates == 0 ? CANDIDATES : options->candidates;
    int tried = possible < wanted ? possible : wanted;
    prune(list, possible, (double)shared->result.target->memory_bytes);
    try_all(options, shared->desc.batch, list, tried, best);
    pjrt_status *st = NULL;
    if (!list[0].compiled)
        st = PJRT_FAIL(FAILED_PRECONDITION, "ttt", "none of %d meshes compiles; %s: %s", tried,
                       list[0].mesh, list[0].failure == NULL ? "no memory" : list[0].failure);
    else
        *table = table_json(list, tried, possible);
    for (int i = 0; i < tried; i++)
        free(list[i].failure);
    return st;
}

pjrt_status *mesh_search(const compile_options *options, compile_job *best, json_t **table)
{
    compile_options plain = *options;
    plain.program.mesh = NULL;
    compile_job shared = {.options = &plain};
    *table = NULL;
    candidate *list = calloc(MAX_MESHES, sizeof *list);
    pjrt_status *st = list == NULL ? PJRT_NO_MEMORY("ttt") : prepare(&plain, &shared);
    if (st == NULL)
        st = search(options, &shared, list, best, table);
    compile_job_free(&shared);
    free(list);
    return st;
}
