/* Handles used from several threads at once, for the thread sanitizer. */
#include "tests/support/support.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { THREADS = 4, ROUNDS = 50 };

static support_fake fake;
static pjrt_executable *shared_exe;
static pjrt_buffer *shared_in;
static atomic_int failures;
static const char text[] =
    "module { func.func @main(%a: tensor<4xf32> {jax.buffer_donor = true}) }";

/* cmocka's assertions are for the main thread alone. */
static void check(bool ok)
{
    if (!ok)
        atomic_fetch_add(&failures, 1);
}

static void check_ok(pjrt_status *st)
{
    check(st == NULL);
    pjrt_status_free(st);
}

static void note_end(pjrt_status *st, void *user)
{
    check_ok(st);
    atomic_fetch_add((atomic_int *)user, 1);
}

static void one_round(pjrt_device *device)
{
    float values[4] = {1, 2, 3, 4}, back[4];
    pjrt_buffer *in = NULL, *out = NULL, *again = NULL;
    pjrt_event *done = NULL;
    atomic_int ends = 0;
    const pjrt_shape *shapes;
    const pjrt_option *costs;
    size_t n_costs;
    int count;
    int64_t taken, refused, keep[] = {0};
    pjrt_execute_options kept = {.keep = keep, .n_keep = 1};
    check_ok(pjrt_executable_arguments(shared_exe, &shapes, &count));
    check(count == 1);
    check_ok(pjrt_executable_costs(shared_exe, &costs, &n_costs));
    check_ok(pjrt_buffer_from_host(device, PJRT_F32, (int64_t[]){4}, 1, values, NULL, NULL, &in));
    check_ok(pjrt_execute(shared_exe, &in, 1, NULL, &out, 1, &done));
    check(pjrt_buffer_is_dead(in));
    check_ok(pjrt_event_on_ready(done, note_end, &ends));
    check_ok(pjrt_event_wait(done));
    check(ends == 1);
    check_ok(pjrt_buffer_to_host(out, back, sizeof back, NULL));
    check_ok(pjrt_execute(shared_exe, &shared_in, 1, &kept, &again, 1, NULL));
    check_ok(pjrt_buffer_to_host(shared_in, back, sizeof back, NULL));
    check(back[3] == 8);
    pjrt_executable_donations(shared_exe, &taken, &refused);
    check(taken >= 1 && refused == 0);
    pjrt_event_free(done);
    pjrt_buffer_free(in);
    pjrt_buffer_free(out);
    pjrt_buffer_free(again);
}

static void *work(void *unused)
{
    (void)unused;
    for (int i = 0; i < ROUNDS; i++)
        one_round(pjrt_client_device(fake.client, 0));
    return NULL;
}

static void run_threads(void *(*function)(void *))
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, function, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(failures, 0);
}

static void one_executable_and_one_buffer_for_all(void **state)
{
    (void)state;
    int64_t taken, refused;
    support_fake_client(&fake);
    fake.control->program.takes[0] = true;
    ASSERT_OK(pjrt_compile(fake.client, pjrt_program_text(text), NULL, &shared_exe));
    shared_in = support_upload4(pjrt_client_device(fake.client, 0), 5, 6, 7, 8);
    run_threads(work);
    pjrt_executable_donations(shared_exe, &taken, &refused);
    assert_int_equal(taken, THREADS * ROUNDS);
    assert_int_equal(refused, 0);
    /* Asked for by all at once, and learnt once. */
    assert_int_equal(fake.control->calls("PJRT_Executable_OptimizedProgram"), 2);
    assert_int_equal(fake.control->calls("PJRT_Executable_GetCostAnalysis"), 1);
    pjrt_buffer_free(shared_in);
    pjrt_executable_free(shared_exe);
    support_fake_finish(&fake);
}

/* The last of many threads to let go destroys the client, and only that one. */
static pjrt_buffer *last_buffers[THREADS];
static atomic_int next_buffer;

static void *free_one(void *unused)
{
    (void)unused;
    pjrt_buffer_free(last_buffers[atomic_fetch_add(&next_buffer, 1)]);
    return NULL;
}

static void the_last_reference_destroys_the_client(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        support_fake_client(&fake);
        for (int i = 0; i < THREADS; i++)
            last_buffers[i] = support_upload4(pjrt_client_device(fake.client, 0), 1, 2, 3, 4);
        next_buffer = 0;
        pjrt_client_free(fake.client);
        fake.client = NULL;
        run_threads(free_one);
        assert_int_equal(fake.control->destroyed[FAKE_CLIENT], 1);
        support_assert_balanced(fake.control);
    }
}

static support_fake fresh;

static void *load_and_hash(void *unused)
{
    (void)unused;
    pjrt_plugin *plugin = NULL;
    const char *hash = NULL;
    check_ok(pjrt_plugin_load(fresh.path, &plugin));
    check_ok(pjrt_plugin_hash(plugin, &hash));
    check(hash != NULL && strlen(hash) == 32);
    return NULL;
}

static void a_plugin_is_loaded_once_by_all(void **state)
{
    (void)state;
    support_fake_open(&fresh);
    run_threads(load_and_hash);
    assert_int_equal(fresh.control->calls("PJRT_Plugin_Initialize"), 1);
    support_fake_remove(&fresh);
}

static int open_fake(void **state)
{
    (void)state;
    support_fake_open(&fake);
    return 0;
}

static int close_fake(void **state)
{
    (void)state;
    support_fake_remove(&fake);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_executable_and_one_buffer_for_all),
        cmocka_unit_test(the_last_reference_destroys_the_client),
        cmocka_unit_test(a_plugin_is_loaded_once_by_all),
    };
    return cmocka_run_group_tests_name("pjrt threads", tests, open_fake, close_fake);
}
