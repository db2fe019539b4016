/* Worlds over TCP: the processes are threads here, which is all the same to them and lets the
 * sanitizers see everything. */
#include "runtime/cluster/sockets.h"
#include "runtime/cluster/ttt_processes.h"
#include "tests/support/support.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PROCESSES = 3 };

typedef struct process process;
struct process {
    ttt_job_options options;
    pjrt_status *(*run)(process *p);
    ttt_job *job;
    pthread_barrier_t *gate;
    pjrt_status *status;
    pthread_t thread;
};

static void *run_process(void *arg)
{
    process *p = arg;
    p->status = ttt_job_open(&p->options, &p->job);
    if (p->status == NULL && p->run != NULL)
        p->status = p->run(p);
    ttt_job_free(p->job);
    return NULL;
}

static int free_port(void)
{
    int port = 0, fd;
    assert_null(ttt__socket_listen(&port, &fd));
    close(fd);
    return port;
}

/* Starts `count` of the job's processes; each leaves what it failed with in `status`. */
static void run_job(process *p, int count, pjrt_status *(*run)(process *))
{
    static char coordinator[64];
    pthread_barrier_t gate;
    snprintf(coordinator, sizeof coordinator, "localhost:%d", free_port());
    pthread_barrier_init(&gate, NULL, (unsigned)count);
    for (int i = 0; i < count; i++) {
        p[i].options.launch = TTT_LAUNCH_TCP;
        p[i].options.rank = i;
        p[i].options.processes = PROCESSES;
        p[i].options.coordinator = coordinator;
        if (p[i].options.token == NULL)
            p[i].options.token = "a secret of this test";
        if (p[i].options.timeout == 0)
            p[i].options.timeout = 60;
        p[i].options.silence = 20;
        p[i].run = run;
        p[i].gate = &gate;
        assert_int_equal(pthread_create(&p[i].thread, NULL, run_process, &p[i]), 0);
    }
    for (int i = 0; i < count; i++)
        pthread_join(p[i].thread, NULL);
    pthread_barrier_destroy(&gate);
}

static void expect_all_well(process *p)
{
    for (int i = 0; i < PROCESSES; i++)
        assert_null(p[i].status);
}

static void expect_failure(process *p, const char *text)
{
    assert_non_null(p->status);
    if (strstr(pjrt_status_message(p->status), text) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", pjrt_status_message(p->status), text);
    pjrt_status_free(p->status);
}

/* ---- one process -------------------------------------------------------------------------------
 */

static void one_process_needs_no_world(void **state)
{
    (void)state;
    ttt_job *job = (ttt_job *)1;
    ttt_job_options options = TTT_JOB_DEFAULTS;
    unsetenv("TPU_WORKER_HOSTNAMES");
    int number = 5;
    void *all;
    assert_null(ttt_job_open(&options, &job));
    assert_null(job);
    assert_int_equal(ttt_job_rank(job), 0);
    assert_int_equal(ttt_job_size(job), 1);
    assert_null(ttt_job_barrier(job, "a"));
    assert_null(ttt_job_gather(job, "b", &number, sizeof number, &all));
    assert_int_equal(*(int *)all, 5);
    free(all);
    assert_null(ttt_job_broadcast(job, "c", &number, sizeof number));
    assert_null(ttt_job_check(job));
    assert_null(ttt_job_kv(job));
    ttt_job_free(job);
}

static void expect_refused(ttt_job_options options, const char *text)
{
    ttt_job *job;
    process p = {.status = ttt_job_open(&options, &job)};
    assert_null(job);
    expect_failure(&p, text);
}

static void wrong_flags_are_explained(void **state)
{
    (void)state;
    ttt_job_options o = {.launch = TTT_LAUNCH_TCP, .rank = 4, .processes = 4, .token = "12345678"};
    expect_refused(o, "rank 4 of 4");
    o.rank = 1;
    expect_refused(o, "HOST:PORT");
    o.coordinator = "host";
    expect_refused(o, "HOST:PORT");
    o.coordinator = "host:70000";
    expect_refused(o, "HOST:PORT");
    o.coordinator = "localhost:1";
    o.token = "short";
    expect_refused(o, "TTT_TOKEN");
    setenv("TPU_WORKER_HOSTNAMES", "a,b", 1);
    setenv("TPU_WORKER_ID", "2", 1);
    expect_refused((ttt_job_options){.token = "12345678"}, "TPU_WORKER_ID");
    unsetenv("TPU_WORKER_HOSTNAMES");
    unsetenv("TPU_WORKER_ID");
    o.token = "12345678";
    o.timeout = 0.2;
    expect_refused(o, "process 0 cannot be reached at localhost:1");
}

/* ---- several -----------------------------------------------------------------------------------
 */

static pjrt_status *wrong(const char *what)
{
    return PJRT_FAIL(INTERNAL, "test", "%s is wrong", what);
}

static pjrt_status *meet(process *p)
{
    int rank = ttt_job_rank(p->job);
    char name[32], big[3000];
    for (int step = 0; step < 20; step++) {
        void *all;
        snprintf(name, sizeof name, "step %d", step);
        memset(big, 'a' + rank, sizeof big);
        PJRT_TRY(ttt_job_gather(p->job, name, big, sizeof big, &all));
        for (int i = 0; i < PROCESSES; i++) {
            if (((char *)all)[i * 3000 + 2999] != 'a' + i)
                return wrong("a gathering");
        }
        free(all);
        PJRT_TRY(ttt_job_broadcast(p->job, name, big, sizeof big));
        if (big[77] != 'a')
            return wrong("a broadcast");
        PJRT_TRY(ttt_job_check(p->job));
    }
    const pjrt_store *s = ttt_job_kv(p->job);
    char *value = NULL;
    size_t size;
    snprintf(name, sizeof name, "key of %d", rank);
    if (s->put(s->user, name, strlen(name), name, strlen(name)) != PJRT_CODE_OK ||
        s->put(s->user, name, strlen(name), "x", 1) != PJRT_CODE_ALREADY_EXISTS)
        return wrong("put");
    snprintf(name, sizeof name, "key of %d", (rank + 1) % PROCESSES);
    if (s->get(s->user, name, strlen(name), 20000, &value, &size) != PJRT_CODE_OK ||
        size != strlen(name) || memcmp(value, name, size) != 0)
        return wrong("get");
    free(value);
    if (s->try_get(s->user, "none", 4, &value, &size) != PJRT_CODE_NOT_FOUND)
        return wrong("try_get");
    return ttt_job_barrier(p->job, "end");
}

static void all_meet(void **state)
{
    (void)state;
    process p[PROCESSES] = {0};
    run_job(p, PROCESSES, meet);
    expect_all_well(p);
}

/* Everyone sends to everyone, more than any socket holds, under two tags from two threads. */
typedef struct exchange {
    process *p;
    int tag;
    bool failed;
} exchange;

static void *exchange_all(void *arg)
{
    enum { BIG = 3 << 20 };
    exchange *e = arg;
    const pjrt_messenger *m = ttt_job_messenger(e->p->job);
    int rank = ttt_job_rank(e->p->job);
    char error[PJRT_MESSENGER_ERROR];
    char *out = malloc(BIG), *in[PROCESSES];
    for (int round = 0; round < 4; round++) {
        pjrt_message sends[PROCESSES], receives[PROCESSES];
        size_t n = 0, size = round % 2 == 0 ? 5 : BIG;
        memset(out, rank * 16 + e->tag + round, size);
        for (int i = 0; i < PROCESSES; i++) {
            in[i] = calloc(1, size);
            if (i == rank)
                continue;
            sends[n] = (pjrt_message){i, out, size};
            receives[n++] = (pjrt_message){i, in[i], size};
        }
        e->failed |= m->exchange(m->user, e->tag, sends, n, receives, n, error) != 0;
        for (int i = 0; i < PROCESSES; i++) {
            char want = (char)(i * 16 + e->tag + round);
            e->failed |= i != rank && (in[i][0] != want || in[i][size - 1] != want);
            free(in[i]);
        }
    }
    free(out);
    return NULL;
}

static pjrt_status *exchange_twice(process *p)
{
    exchange e[2] = {{p, 1, false}, {p, 2, false}};
    pthread_t second;
    if (pthread_create(&second, NULL, exchange_all, &e[1]) != 0)
        return wrong("a thread");
    exchange_all(&e[0]);
    pthread_join(second, NULL);
    return e[0].failed || e[1].failed ? wrong("an exchange") : NULL;
}

static void messages_arrive(void **state)
{
    (void)state;
    process p[PROCESSES] = {0};
    run_job(p, PROCESSES, exchange_twice);
    expect_all_well(p);
}

/* Process 2 goes; 0 waits for a message of it and 1 at a barrier. */
static pjrt_status *leave_early(process *p)
{
    char error[PJRT_MESSENGER_ERROR] = "", byte;
    const pjrt_messenger *m = ttt_job_messenger(p->job);
    int rank = ttt_job_rank(p->job);
    if (rank == 2)
        return NULL;
    if (rank == 1)
        return ttt_job_barrier(p->job, "never");
    pjrt_message from = {2, &byte, 1};
    if (m->exchange(m->user, 3, NULL, 0, &from, 1, error) == 0)
        return wrong("a message");
    return PJRT_FAIL(UNAVAILABLE, "test", "%s", error);
}

static void waiting_ends(void **state)
{
    (void)state;
    process p[PROCESSES] = {0};
    for (int i = 0; i < PROCESSES; i++)
        p[i].options.timeout = 5;
    run_job(p, PROCESSES, leave_early);
    assert_null(p[2].status);
    expect_failure(&p[1], "process 2 (");
    expect_failure(&p[0], "process 2 (");
}

static void who_is_missing_is_named(void **state)
{
    (void)state;
    process p[PROCESSES] = {0};
    for (int i = 0; i < PROCESSES; i++)
        p[i].options.timeout = 1;
    run_job(p, 2, NULL);
    for (int i = 0; i < 2; i++)
        expect_failure(&p[i], "process 2 did not join within 1 s: there were 0, 1");
}

static void a_wrong_token_is_told(void **state)
{
    (void)state;
    process p[PROCESSES] = {0};
    p[0].options.timeout = p[1].options.timeout = p[2].options.timeout = 2;
    p[1].options.token = "not the secret of this test";
    run_job(p, PROCESSES, NULL);
    expect_failure(&p[1], "TTT_TOKEN");
    expect_failure(&p[0], "process 1 did not join");
    expect_failure(&p[2], "process 1 did not join");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_process_needs_no_world),
        cmocka_unit_test(wrong_flags_are_explained),
        cmocka_unit_test(all_meet),
        cmocka_unit_test(messages_arrive),
        cmocka_unit_test(waiting_ends),
        cmocka_unit_test(who_is_missing_is_named),
        cmocka_unit_test(a_wrong_token_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
