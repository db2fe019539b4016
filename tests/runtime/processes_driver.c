/*
 * One process of a job, for tests/scripts/test_processes.py.
 *
 *     processes_driver MODE [--plugin P] [--mesh M] [--out FILE] [--steps N] [--die RANK]
 *                      [--stop RANK] [--fail RANK] [job flags]
 *
 *     meet         gathers and keys, all checked
 *     collectives  one program with every collective over 8 devices, for any number of processes;
 *                  the results of this process's devices go to FILE.RANK
 *     sharded      the same for a program that the compiler partitions over a mesh
 *     agree        stop and save requests on mesh M: the last process's request reaches all
 *     steps        N collectives; before the third, process RANK of --die kills itself, of --stop
 *                  stops, of --fail fails
 *
 * Exit: 0 done, 3 with the failure on stderr.
 */
#include "runtime/device/ttt_device.h"
#include "runtime/train/stop_and_save.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct driver {
    const char *mode, *out, *plugin, *mesh;
    int steps, die, stop, fail;
    ttt_job_options job_options;
    ttt_job *job;
    ttt_devices *devices;
} driver;

/* ---- meet --------------------------------------------------------------------------------------
 */

static pjrt_status *wrong(const char *what)
{
    return PJRT_FAIL(INTERNAL, "driver", "%s is wrong", what);
}

/* Keys answer by a code alone; if somebody is lost, that is why. */
static pjrt_status *wrong_key(driver *d, const char *what)
{
    pjrt_status *st = ttt_job_check(d->job);
    return st != NULL ? st : wrong(what);
}

static pjrt_status *meet_once(driver *d, int step)
{
    int rank = ttt_job_rank(d->job), size = ttt_job_size(d->job), told = rank == 0 ? 77 : 0;
    char name[64], *value = NULL;
    void *all;
    size_t n;
    snprintf(name, sizeof name, "numbers %d", step);
    PJRT_TRY(ttt_job_gather(d->job, name, &(int){rank * 10 + step}, sizeof(int), &all));
    for (int i = 0; i < size; i++) {
        if (((int *)all)[i] != i * 10 + step)
            return wrong("a gathering");
    }
    free(all);
    PJRT_TRY(ttt_job_broadcast(d->job, name, &told, sizeof told));
    if (told != 77)
        return wrong("a broadcast");
    const pjrt_store *store = ttt_job_kv(d->job);
    if (store == NULL)
        return NULL;
    char key[64];
    snprintf(key, sizeof key, "key %d of %d", step, rank);
    if (store->try_get(store->user, key, strlen(key), &value, &n) != PJRT_CODE_NOT_FOUND ||
        store->put(store->user, key, strlen(key), "old", 3) != PJRT_CODE_OK ||
        store->put(store->user, key, strlen(key), "new", 3) != PJRT_CODE_ALREADY_EXISTS)
        return wrong_key(d, "a key of its own");
    snprintf(key, sizeof key, "key %d of %d", step, (rank + 1) % size);
    if (store->get(store->user, key, strlen(key), 10000, &value, &n) != PJRT_CODE_OK || n != 3 ||
        memcmp(value, "old", 3) != 0)
        return wrong_key(d, "a key of another");
    free(value);
    return ttt_job_check(d->job);
}

static pjrt_status *meet(driver *d)
{
    for (int i = 0; i < d->steps; i++) {
        if (i == 2 && ttt_job_rank(d->job) == d->die)
            raise(SIGKILL);
        if (i == 2 && ttt_job_rank(d->job) == d->stop)
            raise(SIGSTOP);
        PJRT_TRY(meet_once(d, i));
    }
    return ttt_job_barrier(d->job, "end");
}

/* ---- collectives -------------------------------------------------------------------------------
 */

#define ADD                                                                               \
    "({^bb0(%a: tensor<f32>, %b: tensor<f32>): %s = stablehlo.add %a, %b : tensor<f32>\n" \
    "stablehlo.return %s : tensor<f32>})"
#define MAX                                                                                   \
    "({^bb0(%a: tensor<f32>, %b: tensor<f32>): %s = stablehlo.maximum %a, %b : tensor<f32>\n" \
    "stablehlo.return %s : tensor<f32>})"
#define ALL "dense<[[0,1,2,3,4,5,6,7]]> : tensor<1x8xi64>"
#define PAIRS "dense<[[0,2],[1,3],[4,6],[5,7]]> : tensor<4x2xi64>" /* never of one process */
#define NEIGHBOURS "dense<[[0,1],[2,3],[4,5],[6,7]]> : tensor<4x2xi64>"
#define MIXED "dense<[[7,0,3],[5,2,1],[4,6,-1]]> : tensor<3x3xi64>"

/* x: f32 [8, 16] of each device. */
static const char collectives_program[] =
    "module @collectives attributes {mhlo.num_replicas = 8 : i32} {\n"
    "func.func @main(%x: tensor<8x16xf32>) -> (tensor<8x16xf32>, tensor<8x16xf32>,\n"
    "    tensor<64x16xf32>, tensor<1x16xf32>, tensor<8x16xf32>, tensor<8x16xf32>,\n"
    "    tensor<8x16xf32>, tensor<8x16xf32>, tensor<64x8x16xf32>, tensor<8x16xi32>,\n"
    "    tensor<8x16xbf16>) {\n"
    "%0 = \"stablehlo.all_reduce\"(%x) " ADD " {replica_groups = " ALL "}\n"
    "    : (tensor<8x16xf32>) -> tensor<8x16xf32>\n"
    "%1 = \"stablehlo.all_reduce\"(%x) " MAX " {replica_groups = " PAIRS "}\n"
    "    : (tensor<8x16xf32>) -> tensor<8x16xf32>\n"
    "%2 = \"stablehlo.all_gather\"(%x) {all_gather_dim = 0 : i64, replica_groups = " ALL "}\n"
    "    : (tensor<8x16xf32>) -> tensor<64x16xf32>\n"
    "%3 = \"stablehlo.reduce_scatter\"(%x) " ADD " {scatter_dimension = 0 : i64,\n"
    "    replica_groups = " ALL "} : (tensor<8x16xf32>) -> tensor<1x16xf32>\n"
    "%4 = \"stablehlo.collective_permute\"(%x) {source_target_pairs =\n"
    "    dense<[[0,1],[1,2],[2,5],[5,0],[3,7],[7,4]]> : tensor<6x2xi64>}\n"
    "    : (tensor<8x16xf32>) -> tensor<8x16xf32>\n"
    "%5 = \"stablehlo.all_to_all\"(%x) {split_dimension = 0 : i64, concat_dimension = 0 : i64,\n"
    "    split_count = 8 : i64, replica_groups = " ALL "}\n"
    "    : (tensor<8x16xf32>) -> tensor<8x16xf32>\n"
    "%6 = \"stablehlo.all_reduce\"(%1) " ADD " {replica_groups = " NEIGHBOURS "}\n"
    "    : (tensor<8x16xf32>) -> tensor<8x16xf32>\n"
    "%7 = \"stablehlo.all_reduce\"(%6) " ADD " {replica_groups = " MIXED "}\n"
    "    : (tensor<8x16xf32>) -> tensor<8x16xf32>\n"
    "%w = stablehlo.broadcast_in_dim %x, dims = [1, 2] : (tensor<8x16xf32>)\n"
    "    -> tensor<64x8x16xf32>\n"
    "%8 = \"stablehlo.all_reduce\"(%w) " ADD " {replica_groups = " ALL "}\n"
    "    : (tensor<64x8x16xf32>) -> tensor<64x8x16xf32>\n"
    "%i = stablehlo.convert %x : (tensor<8x16xf32>) -> tensor<8x16xi32>\n"
    "%9 = \"stablehlo.all_reduce\"(%i) ({^bb0(%a: tensor<i32>, %b: tensor<i32>):\n"
    "    %s = stablehlo.multiply %a, %b : tensor<i32>\n stablehlo.return %s : tensor<i32>})\n"
    "    {replica_groups = " PAIRS "} : (tensor<8x16xi32>) -> tensor<8x16xi32>\n"
    "%h = stablehlo.convert %x : (tensor<8x16xf32>) -> tensor<8x16xbf16>\n"
    "%10 = \"stablehlo.all_gather\"(%h) {all_gather_dim = 0 : i64, replica_groups = " NEIGHBOURS
    "}\n"
    "    : (tensor<8x16xbf16>) -> tensor<16x16xbf16>\n"
    "%11 = stablehlo.slice %10 [4:12, 0:16] : (tensor<16x16xbf16>) -> tensor<8x16xbf16>\n"
    "return %0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %11 : tensor<8x16xf32>, tensor<8x16xf32>,\n"
    "    tensor<64x16xf32>, tensor<1x16xf32>, tensor<8x16xf32>, tensor<8x16xf32>,\n"
    "    tensor<8x16xf32>, tensor<8x16xf32>, tensor<64x8x16xf32>, tensor<8x16xi32>,\n"
    "    tensor<8x16xbf16>\n}}\n";

/* Runs an executable that takes one array of `dims` on each device, made from the device's place in
 * the job, and writes all results of this process's devices. */
static pjrt_status *run(driver *d, pjrt_executable *exe, const int64_t *dims, int rank)
{
    enum { MOST = 16 };
    int n = d->devices->n_mine, results = pjrt_executable_num_results(exe);
    int64_t size = 1;
    pjrt_buffer *in[MOST] = {0}, *out[MOST * MOST] = {0};
    char path[4096];
    pjrt_status *st = NULL;
    for (int i = 0; i < rank; i++)
        size *= dims[i];
    float *x = calloc((size_t)size, sizeof *x);
    for (int i = 0; i < n && st == NULL; i++) {
        for (int64_t j = 0; j < size; j++) /* sums of these are exact */
            x[j] = (float)((d->devices->first + i) * 31 % 8 + j % 61 - 30);
        st = pjrt_buffer_from_host(pjrt_client_device(d->devices->client, (size_t)i), PJRT_F32,
                                   dims, rank, x, NULL, NULL, &in[i]);
    }
    free(x);
    if (st == NULL)
        st = pjrt_execute(exe, in, 1, &(pjrt_execute_options){.launch_id = 1}, out, (size_t)results,
                          NULL);
    FILE *file = NULL;
    if (d->out != NULL) {
        snprintf(path, sizeof path, "%s.%d", d->out, ttt_job_rank(d->job));
        file = fopen(path, "wb");
    }
    for (int i = 0; i < n * results && st == NULL; i++) {
        size_t bytes = (size_t)pjrt_shape_bytes(pjrt_executable_result(exe, i % results));
        void *data = malloc(bytes);
        st = pjrt_buffer_to_host(out[i], data, bytes, NULL);
        if (st == NULL && file != NULL && fwrite(data, bytes, 1, file) != 1)
            st = wrong("a file");
        free(data);
    }
    if (file != NULL)
        fclose(file);
    for (int i = 0; i < n; i++)
        pjrt_buffer_free(in[i]);
    for (int i = 0; i < n * results; i++)
        pjrt_buffer_free(out[i]);
    return st;
}

static pjrt_status *compile(driver *d, const char *text, pjrt_executable **exe)
{
    pjrt_compile_options options = {.replicas = 8,
                                    .devices = d->devices->ids,
                                    .process = ttt_job_rank(d->job),
                                    .num_processes = ttt_job_size(d->job)};
    return pjrt_compile(d->devices->client, pjrt_program_text(text), &options, exe);
}

static pjrt_status *open_devices(driver *d, const char *text)
{
    ttt_mesh mesh;
    PJRT_TRY(ttt_mesh_parse(text, &mesh));
    return ttt_devices_open_job(d->plugin, &mesh, d->job, &d->devices);
}

static pjrt_status *collectives(driver *d)
{
    pjrt_executable *exe = NULL;
    PJRT_TRY(open_devices(d, "data=8"));
    pjrt_status *st = compile(d, collectives_program, &exe);
    for (int i = 0; i < d->steps && st == NULL; i++)
        st = run(d, exe, (int64_t[]){8, 16}, 2);
    pjrt_executable_free(exe);
    return st;
}

static pjrt_status *steps(driver *d)
{
    pjrt_executable *exe = NULL;
    PJRT_TRY(open_devices(d, "data=8"));
    pjrt_status *st = compile(d, collectives_program, &exe);
    for (int i = 0; i < d->steps && st == NULL; i++) {
        if (i == 2 && ttt_job_rank(d->job) == d->die)
            raise(SIGKILL);
        if (i == 2 && ttt_job_rank(d->job) == d->stop)
            raise(SIGSTOP);
        if (i == 2 && ttt_job_rank(d->job) == d->fail)
            st = wrong("nothing, but this process");
        else
            st = run(d, exe, (int64_t[]){8, 16}, 2);
    }
    pjrt_executable_free(exe);
    return st;
}

/* ---- sharded -----------------------------------------------------------------------------------
 */

/* x [32, 16] split by rows and columns; its product with itself, turned, and what all of it sums
 * to.
 */
static pjrt_status *sharded(driver *d)
{
    ttt_graph graph;
    ttt_program *program = NULL;
    PJRT_TRY(open_devices(d, "data=2,fsdp=2,model=2"));
    PJRT_TRY(ttt_graph_new("sharded", &d->devices->mesh, &graph));
    hlo_val x =
        ttt_graph_param(&graph, "x", HLO_SHAPE(HLO_F32, 32, 16), HLO_SPEC("data+fsdp", "model"));
    hlo_val turned = hlo_transpose(graph.g, x, HLO_DIMS(1, 0));
    ttt_graph_result(&graph, "small", hlo_matmul(graph.g, turned, x), HLO_SPEC("model", "data"));
    ttt_graph_result(&graph, "large", hlo_matmul(graph.g, x, turned), HLO_SPEC("fsdp", "model"));
    pjrt_status *st = ttt_program_compile(d->devices, &graph, &program);
    for (int i = 0; i < d->steps && st == NULL; i++)
        st = run(d, program->exe, (int64_t[]){8, 8}, 2);
    ttt_program_free(program);
    ttt_graph_free(&graph);
    return st;
}

/* ---- agree -------------------------------------------------------------------------------------- */

/* Only the last process asks to stop; every process must read that, on any mesh. */
static pjrt_status *agree(driver *d)
{
    ttt__stop_and_save *requests = NULL;
    ttt_array *cast = NULL;
    PJRT_TRY(open_devices(d, d->mesh));
    PJRT_TRY(ttt__stop_and_save_new(d->devices, &requests));
    pjrt_status *st = NULL;
    for (int step = 0; step < 2 && st == NULL; step++) {
        ttt__wishes mine = {{0}}, all = {{0}};
        if (step == 1 && ttt_job_rank(d->job) == ttt_job_size(d->job) - 1)
            mine.of[TTT__AGREE_STOP] = 1;
        st = ttt__stop_and_save_cast(requests, &mine, &cast);
        if (st == NULL)
            st = ttt__stop_and_save_read(cast, &all);
        ttt_array_free(cast);
        cast = NULL;
        if (st == NULL && (all.of[TTT__AGREE_STOP] != step || all.of[TTT__AGREE_SAVE] != 0))
            st = wrong("the agreement");
    }
    ttt__stop_and_save_free(requests);
    return st;
}

/* ---- all modes ---------------------------------------------------------------------------------
 */

static void read_flags(driver *d, int argc, char **argv)
{
    for (int i = 2; i + 1 < argc; i += 2) {
        const char *flag = argv[i], *value = argv[i + 1];
        if (strcmp(flag, "--out") == 0)
            d->out = value;
        else if (strcmp(flag, "--plugin") == 0)
            d->plugin = value;
        else if (strcmp(flag, "--mesh") == 0)
            d->mesh = value;
        else if (strcmp(flag, "--steps") == 0)
            d->steps = atoi(value);
        else if (strcmp(flag, "--die") == 0)
            d->die = atoi(value);
        else if (strcmp(flag, "--stop") == 0)
            d->stop = atoi(value);
        else if (strcmp(flag, "--fail") == 0)
            d->fail = atoi(value);
        else if (strcmp(flag, "--rank") == 0)
            d->job_options.rank = atoi(value);
        else if (strcmp(flag, "--processes") == 0)
            d->job_options.processes = atoi(value);
        else if (strcmp(flag, "--coordinator") == 0)
            d->job_options.coordinator = value;
        else if (strcmp(flag, "--timeout") == 0)
            d->job_options.timeout = atof(value);
        else if (strcmp(flag, "--silence") == 0)
            d->job_options.silence = atof(value);
    }
}

int main(int argc, char **argv)
{
    driver d = {.mode = argc > 1 ? argv[1] : "",
                .plugin = "cpu",
                .mesh = "time=2",
                .steps = 1,
                .die = -1,
                .stop = -1,
                .fail = -1,
                .job_options = TTT_JOB_DEFAULTS};
    read_flags(&d, argc, argv);
    pjrt_status *st = ttt_job_open(&d.job_options, &d.job);
    if (st == NULL) {
        if (strcmp(d.mode, "meet") == 0)
            st = meet(&d);
        else if (strcmp(d.mode, "collectives") == 0)
            st = collectives(&d);
        else if (strcmp(d.mode, "sharded") == 0)
            st = sharded(&d);
        else if (strcmp(d.mode, "agree") == 0)
            st = agree(&d);
        else
            st = steps(&d);
    }
    if (st != NULL)
        fprintf(stderr, "failed: %s\n", pjrt_status_text(st));
    ttt_devices_free(d.devices);
    ttt_job_free(d.job);
    pjrt_status_free(st);
    return st == NULL ? 0 : 3;
}
