/*
 * Several processes with one training state: who has which blocks, checkpoints that they write
 * together and read again in other numbers, and what is left when one of them is killed. No plugin
 * takes part; processes are forked and find each other by TCP.
 */
#include "runtime/checkpoint/checkpoints.h"
#include "runtime/device/internal.h"
#include "runtime/train/train_arrays.h"
#include "tests/support/snapshot.h"
#include "tests/support/support.h"

#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char folder[PATH_MAX];
static support_snapshot state;

static int set_up(void **unused)
{
    (void)unused;
    support_new_folder(folder);
    return support_snapshot_new(&state, TTT_STACKED) ? 0 : -1;
}

static int tear_down(void **unused)
{
    (void)unused;
    support_snapshot_free(&state);
    support_remove_folder(folder);
    return 0;
}

/* A place without a client, as process `rank` of `processes` has it. */
static ttt_devices place_of(const char *mesh, ttt_job *job, int rank, int processes)
{
    ttt_devices devices = {.job = job};
    pjrt_status_free(ttt_mesh_parse(mesh, &devices.mesh));
    devices.n_devices = (int)ttt_mesh_devices(&devices.mesh);
    devices.n_mine = devices.n_devices / processes;
    devices.first = rank * devices.n_mine;
    return devices;
}

/* ---- blocks ------------------------------------------------------------------------------------
 */

static const char *const meshes[] = {"data=2,fsdp=4", "fsdp=2,data=4", "data=8", "fsdp=4,data=2",
                                     "fsdp=2"};

/* Every element once, whoever looks, and the work is not all one process's. */
static void pieces_cover_everything_once(void **unused)
{
    (void)unused;
    for (size_t m = 0; m < sizeof meshes / sizeof *meshes; m++) {
        ttt_devices one = place_of(meshes[m], NULL, 0, 2), other = place_of(meshes[m], NULL, 1, 2);
        ttt__checkpoint_shards pieces, again;
        int64_t had[2] = {0};
        ASSERT_OK(ttt__checkpoint_shards_new(&one, state.params, &pieces));
        ASSERT_OK(ttt__checkpoint_shards_new(&other, state.params, &again));
        assert_int_equal(pieces.count, again.count);
        assert_memory_equal(pieces.list, again.list, (size_t)pieces.count * sizeof *pieces.list);
        for (int i = 0; i < state.params->count; i++) {
            const hlo_shape *shape = &state.params->list[i].shape;
            size_t count = (size_t)hlo_shape_elements(shape);
            float *whole = calloc(count, sizeof *whole), *part = malloc(count * sizeof *part);
            for (size_t k = 0; k < count; k++)
                part[k] = 1;
            for (int k = 0; k < pieces.count; k++) {
                const ttt__checkpoint_shard *p = &pieces.list[k];
                if (p->set != 1 || p->param != i)
                    continue;
                float *seen = malloc(count * sizeof *seen);
                ttt__block_copy(shape, &p->block, whole, seen, true);
                for (int64_t e = 0; e < ttt__block_elements(&p->block, shape->rank); e++)
                    assert_true(seen[e] == 0);
                ttt__block_copy(shape, &p->block, whole, part, false);
                free(seen);
                had[p->process] += ttt__block_elements(&p->block, shape->rank);
            }
            for (size_t k = 0; k < count; k++)
                assert_true(whole[k] == 1);
            free(whole);
            free(part);
        }
        assert_int_equal(had[0] + had[1], state.params->elements);
        assert_true(had[0] > had[1] / 3 && had[1] > had[0] / 3);
        ttt__checkpoint_shards_free(&pieces);
        ttt__checkpoint_shards_free(&again);
    }
}

static ttt_tensors *saved_model(void)
{
    ttt__checkpoint_dir *store;
    ttt_error error;
    support_snapshot_step(&state, 7);
    ASSERT_OK(ttt__checkpoint_dir_open(folder, &(ttt__checkpoint_dir_options){0}, &store));
    ASSERT_OK(ttt__checkpoint_dir_write(store, &state.snapshot));
    ttt__checkpoint_dir_free(store);
    ttt_tensors *tensors = ttt_tensors_open(support_path(folder, "step-00000007"), &error);
    assert_non_null(tensors);
    return tensors;
}

/* A block read alone is the block of the whole. */
static void blocks_are_read_alone(void **unused)
{
    (void)unused;
    ttt_tensors *tensors = saved_model();
    for (size_t m = 0; m < sizeof meshes / sizeof *meshes; m++) {
        ttt_devices devices = place_of(meshes[m], NULL, 0, 1);
        for (int i = 0; i < state.params->count; i++) {
            const ttt_param *p = &state.params->list[i];
            size_t size = (size_t)hlo_shape_elements(&p->shape) * sizeof(float);
            float *wanted = malloc(size), *found = malloc(size);
            for (int d = 0; d < devices.n_devices; d++) {
                ttt_block block;
                ttt_error error;
                ASSERT_OK(ttt_mesh_block(&devices.mesh, &p->shape, &p->spec, d, &block));
                ttt__block_copy(&p->shape, &block, state.sets[0][i], wanted, true);
                assert_true(ttt_params_load_block(state.params, i, tensors, block.start,
                                                  block.limit, found, &error));
                assert_memory_equal(found, wanted,
                                    (size_t)ttt__block_elements(&block, p->shape.rank) *
                                        sizeof *found);
            }
            free(wanted);
            free(found);
        }
    }
    ttt_tensors_free(tensors);
}

/* ---- processes ---------------------------------------------------------------------------------
 */

/* A port that nobody has now. */
static int free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, size), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    close(fd);
    return ntohs(address.sin_port);
}

/* What a forked process does; 0 when all is well. Nothing in it asserts. */
typedef int (*part_of_job)(ttt_job *job, int rank, int processes);

static int failed(pjrt_status *st)
{
    if (st == NULL)
        return 0;
    if (getenv("TTT_TEST_SHOW") != NULL)
        fprintf(stderr, "%s\n", pjrt_status_text(st));
    pjrt_status_free(st);
    return 1;
}

static pid_t start(part_of_job part, int rank, int processes, int port)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid > 0)
        return pid;
    char coordinator[40];
    snprintf(coordinator, sizeof coordinator, "127.0.0.1:%d", port);
    ttt_job_options options = TTT_JOB_DEFAULTS;
    options.launch = TTT_LAUNCH_TCP;
    options.rank = rank;
    options.processes = processes;
    options.coordinator = coordinator;
    options.token = "a secret of this test";
    options.timeout = 30;
    ttt_job *job = NULL;
    int code = failed(ttt_job_open(&options, &job));
    if (code == 0)
        code = part(job, rank, processes);
    ttt_job_free(job);
    _exit(code);
}

enum { MOST = 8 };

/* All processes of a job; the status of each. */
static void run_job(part_of_job part, int processes, int codes[MOST])
{
    pid_t pids[MOST];
    int port = free_port();
    for (int r = 0; r < processes; r++)
        pids[r] = start(part, r, processes, port);
    for (int r = 0; r < processes; r++) {
        int status;
        assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
        codes[r] = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    }
}

static void run_well(part_of_job part, int processes)
{
    int codes[MOST];
    run_job(part, processes, codes);
    for (int r = 0; r < processes; r++)
        assert_int_equal(codes[r], 0);
}

static int64_t step_to_save;
static int told[2] = {-1, -1}; /* where processes tell that they begin to save, if anywhere */

/* The pieces of this process with the values of the step. */
static pjrt_status *cut_pieces(const ttt_devices *devices, int rank, ttt__checkpoint_shards *pieces)
{
    PJRT_TRY(ttt__checkpoint_shards_new(devices, state.params, pieces));
    for (int i = 0; i < pieces->count; i++) {
        ttt__checkpoint_shard *p = &pieces->list[i];
        const hlo_shape *shape = &state.params->list[p->param].shape;
        if (p->process != rank)
            continue;
        p->values = malloc((size_t)ttt__block_elements(&p->block, shape->rank) * sizeof(float));
        if (p->values == NULL)
            return PJRT_NO_MEMORY("test");
        ttt__block_copy(shape, &p->block, state.sets[p->set][p->param], p->values, true);
    }
    return NULL;
}

static int save(ttt_job *job, int rank, int processes)
{
    ttt_devices devices = place_of("data=2,fsdp=4", job, rank, processes);
    ttt__checkpoint_dir_options options = {.keep = 2, .shard_bytes = 3000, .job = job};
    ttt__checkpoint_dir *store;
    ttt__checkpoint_shards pieces;
    support_snapshot_step(&state, step_to_save);
    pjrt_status *st = cut_pieces(&devices, rank, &pieces);
    if (st == NULL)
        st = ttt__checkpoint_dir_open(folder, &options, &store);
    if (st == NULL)
        st = ttt_job_barrier(job, "open");
    if (st == NULL && told[1] >= 0 && write(told[1], "", 1) != 1)
        return 2;
    ttt__snapshot snapshot = state.snapshot;
    snapshot.pieces = pieces.list;
    snapshot.n_pieces = pieces.count;
    if (st == NULL)
        st = ttt__checkpoint_dir_write(store, &snapshot);
    return failed(st);
}

static void check_latest(int64_t step)
{
    ttt__checkpoint *found;
    ASSERT_OK(ttt__checkpoint_latest(folder, NULL, NULL, NULL, &found));
    assert_non_null(found);
    assert_int_equal(found->step, step);
    assert_true(support_snapshot_same(&state, found));
    ttt__checkpoint_free(found);
}

/* Also where one is there already, and with more processes than tensors to share. */
static void written_together(void **unused)
{
    (void)unused;
    static const int counts[] = {2, 4, 8, 8, 1};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        step_to_save = i == 3 ? 3 : (int64_t)i + 1;
        run_well(save, counts[i]);
        check_latest(step_to_save);
        assert_int_equal(support_count_files(folder), i == 0 ? 1 : 2);
        /* As a model of any folder. */
        char name[32];
        ttt_error error;
        snprintf(name, sizeof name, "step-%08lld", (long long)step_to_save);
        ttt_tensors *model = ttt_tensors_open(support_path(folder, name), &error);
        assert_non_null(model);
        assert_true(ttt_params_match(state.params, model, &error));
        ttt_tensors_free(model);
    }
}

static int64_t step_to_find;

/* What a process finds, and that all of it is read by someone. */
static int find(ttt_job *job, int rank, int processes)
{
    ttt__agreements all = {.job = job, .name = "find"};
    ttt__checkpoint *found = NULL;
    (void)rank, (void)processes;
    pjrt_status *st = ttt__checkpoint_latest(folder, &all, NULL, NULL, &found);
    if (st != NULL)
        return failed(st);
    int code = found == NULL || found->step != step_to_find ? 2 : 0;
    if (code == 0 && !support_snapshot_same(&state, found))
        code = 3;
    ttt__checkpoint_free(found);
    return code;
}

/* Damage that one process sees is known to all: they go back to the one before, together. */
static void damage_is_known_to_all(void **unused)
{
    (void)unused;
    for (step_to_save = 1; step_to_save <= 2; step_to_save++)
        run_well(save, 2);
    step_to_find = 2;
    run_well(find, 4);
    char path[PATH_MAX];
    size_t size;
    snprintf(path, sizeof path, "%s", support_path(folder, "step-00000002/config.json"));
    unsigned char *bytes = support_read_file(path, &size);
    bytes[size / 2] ^= 1;
    support_write_file(path, bytes, size);
    free(bytes);
    step_to_find = 1;
    run_well(find, 4);
}

static void pause_for(long nanoseconds)
{
    nanosleep(
        &(struct timespec){.tv_sec = nanoseconds / 1000000000, .tv_nsec = nanoseconds % 1000000000},
        NULL);
}

enum { SAVERS = 4 };

/* A job that saves, from the moment on at which all of it begin; then `after` nanoseconds pass. */
static void start_saving(pid_t pids[SAVERS], long after)
{
    int port = free_port();
    char byte;
    assert_int_equal(pipe(told), 0);
    for (int r = 0; r < SAVERS; r++)
        pids[r] = start(save, r, SAVERS, port);
    for (int r = 0; r < SAVERS; r++)
        assert_int_equal(read(told[0], &byte, 1), 1);
    close(told[0]);
    close(told[1]);
    told[0] = told[1] = -1;
    pause_for(after);
}

/* Whether all ended well. */
static bool finish_saving(const pid_t pids[SAVERS])
{
    bool well = true;
    for (int r = 0; r < SAVERS; r++) {
        int status;
        assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
        well = well && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    return well;
}

/* Nanoseconds that saving takes, here and today: kills come within that. */
static long time_of_saving(void)
{
    struct timespec from, to;
    pid_t pids[SAVERS];
    start_saving(pids, 0);
    clock_gettime(CLOCK_MONOTONIC, &from);
    assert_true(finish_saving(pids));
    clock_gettime(CLOCK_MONOTONIC, &to);
    return (to.tv_sec - from.tv_sec) * 1000000000 + to.tv_nsec - from.tv_nsec;
}

/* kill -9 of any process at any moment: what loads is whole, and is the new one when all went well;
 * and the next job saves again. */
static void killed_while_saving(void **unused)
{
    (void)unused;
    int rounds = getenv("TTT_LONG") != NULL ? 300 : 16, lost = 0;
    step_to_save = 1;
    long whole = time_of_saving();
    srand(5);
    for (int i = 0; i < rounds; i++) {
        pid_t pids[SAVERS];
        ttt__checkpoint *found;
        step_to_save = i + 2;
        start_saving(pids, (long)((double)rand() / RAND_MAX * (double)whole));
        kill(pids[i % SAVERS], SIGKILL);
        bool well = finish_saving(pids);
        ASSERT_OK(ttt__checkpoint_latest(folder, NULL, NULL, NULL, &found));
        assert_non_null(found);
        assert_true(support_snapshot_same(&state, found));
        assert_true(found->step == step_to_save || !well);
        lost += found->step != step_to_save;
        ttt__checkpoint_free(found);
    }
    assert_true(lost > 0);
    step_to_save = rounds + 2;
    run_well(save, 2);
    check_latest(step_to_save);
    assert_int_equal(support_count_files(folder), 2); /* and nothing is left behind */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(pieces_cover_everything_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(blocks_are_read_alone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(written_together, set_up, tear_down),
        cmocka_unit_test_setup_teardown(damage_is_known_to_all, set_up, tear_down),
        cmocka_unit_test_setup_teardown(killed_while_saving, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
