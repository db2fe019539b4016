/*
 * The figures of a run: lines that are JSON, lines that are dropped when a run goes on from before,
 * what is not finite, records that are whole or not there.
 *
 * With a folder as its argument it writes a run that was resumed there instead, for test_events.py
 * to read.
 */
#include "runtime/base/files.h"
#include "runtime/train/metrics.h"
#include "tests/support/support.h"

#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

static char folder[PATH_MAX];

static int set_up(void **state)
{
    (void)state;
    support_new_folder(folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    support_remove_folder(folder);
    return 0;
}

static ttt__metrics *open_at(int64_t step)
{
    ttt__metrics *metrics;
    ASSERT_OK(ttt__metrics_open(folder, step, &metrics));
    return metrics;
}

static void put(ttt__metrics *metrics, const char *kind, int64_t step, double loss)
{
    ttt__figure figures[] = {{.name = "loss", .value = loss},
                             {.name = "tokens", .value = 1e15 + (double)step, .whole = true}};
    ASSERT_OK(ttt__metrics_put(metrics, kind, step, figures, 2));
}

static char *lines(void)
{
    size_t size;
    return (char *)support_read_file(support_path(folder, "metrics.jsonl"), &size);
}

static void check_lines(const char *wanted)
{
    char *text = lines();
    assert_string_equal(text, wanted);
    free(text);
}

#define LINE(kind, step, loss, tokens) \
    "{\"kind\": \"" kind "\", \"step\": " step ", \"loss\": " loss ", \"tokens\": " tokens "}\n"

static void writes_lines(void **state)
{
    float list[] = {0.1f, INFINITY, -2};
    ttt__figure figures[] = {{.name = "a\"b", .value = 0.1f},
                             {.name = "nan", .value = NAN},
                             {.name = "list", .list = list, .count = 3},
                             {.name = "whole", .value = -3, .whole = true},
                             {.name = "huge", .value = 1e300, .whole = true},
                             {.name = "none", .list = list}};
    (void)state;
    ttt__metrics *metrics = open_at(0);
    ASSERT_OK(ttt__metrics_put(metrics, "train", 1, figures, 6));
    check_lines("{\"kind\": \"train\", \"step\": 1, \"a\\\"b\": 0.100000001, \"nan\": null, "
                "\"list\": [0.100000001, null, -2.0], \"whole\": -3, \"huge\": "
                "1e300, \"none\": []}\n");
    ASSERT_FAILS(ttt__metrics_put(metrics, "train", 2, (ttt__figure[]){{.name = "step"}}, 1),
                 INVALID_ARGUMENT, "\"step\" comes twice");
    ASSERT_OK(ttt__metrics_sync(metrics));
    ttt__metrics_free(metrics);
}

/* Nine digits bring every float back. */
static void brings_floats_back(void **state)
{
    enum { COUNT = 2000 };
    float list[COUNT];
    (void)state;
    for (uint32_t i = 0; i < COUNT; i++) {
        uint32_t bits = i * UINT32_C(2654435761) & UINT32_C(0xff7fffff);
        memcpy(&list[i], &bits, sizeof bits);
    }
    ttt__metrics *metrics = open_at(0);
    ASSERT_OK(
        ttt__metrics_put(metrics, "x", 0, (ttt__figure[]){{"f", .list = list, .count = COUNT}}, 1));
    ttt__metrics_free(metrics);
    char *text = lines();
    json_t *line = json_loads(text, 0, NULL), *found = json_object_get(line, "f");
    assert_int_equal(json_array_size(found), COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        float back = (float)json_real_value(json_array_get(found, i));
        assert_memory_equal(&back, &list[i], sizeof back);
    }
    json_decref(line);
    free(text);
}

/* Steps that will be done again go, and so does a half line; what is not ours stays. */
static void goes_on(void **state)
{
    (void)state;
    ttt__metrics *metrics = open_at(0);
    put(metrics, "train", 1, 3);
    put(metrics, "train", 2, 2);
    put(metrics, "eval", 2, 2.5);
    put(metrics, "train", 3, 1);
    ttt__metrics_free(metrics);
    ttt__log log;
    ASSERT_OK(ttt__log_open(support_path(folder, "metrics.jsonl"), &log));
    ASSERT_OK(ttt__log_put(&log, "not ours\n{\"kind\": \"tr", 21));
    ttt__log_close(&log);
    metrics = open_at(2);
    put(metrics, "train", 3, 1.5);
    ttt__metrics_free(metrics);
    check_lines(
        LINE("train", "1", "3.0", "1000000000000001") LINE("train", "2", "2.0", "1000000000000002")
            LINE("eval", "2", "2.5", "1000000000000002") "not ours\n" LINE("train", "3", "1.5",
                                                                           "1000000000000003"));
    /* Nothing to drop: the file is the same one. */
    ttt__metrics_free(open_at(3));
    assert_int_equal(support_count_files(folder), 2);
    assert_int_equal(support_count_files(support_path(folder, "tensorboard")), 3);
}

/* Where the disk ends, nothing of the record stays, and later ones are whole. */
static void no_room(void **state)
{
    struct rlimit limit, old;
    (void)state;
    ttt__metrics *metrics = open_at(0);
    put(metrics, "train", 1, 1);
    char *before = lines();
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    limit = old;
    limit.rlim_cur = strlen(before) + 10; /* the line begins to fit */
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    ttt__figure figure = {.name = "loss", .value = 2};
    pjrt_status *st = ttt__metrics_put(metrics, "train", 2, &figure, 1);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    ASSERT_FAILS(st, UNAVAILABLE, "metrics.jsonl: cannot write to it");
    check_lines(before);
    put(metrics, "train", 2, 2);
    ttt__metrics_free(metrics);
    char *after = lines();
    assert_memory_equal(before, after, strlen(before));
    ASSERT_CONTAINS(after, LINE("train", "2", "2.0", "1000000000000002"));
    free(before);
    free(after);
}

static void no_folder(void **state)
{
    ttt__metrics *metrics;
    (void)state;
    support_write_file(support_path(folder, "file"), "", 0);
    ASSERT_FAILS(ttt__metrics_open(support_path(folder, "file"), 0, &metrics), ALREADY_EXISTS,
                 "file");
    assert_null(metrics);
}

/* Steps 1 to 6, and from 4 on once more, with other numbers. */
static int write_run(const char *run)
{
    for (int part = 0; part < 2; part++) {
        ttt__metrics *metrics = NULL;
        pjrt_status *st = ttt__metrics_open(run, part == 0 ? 0 : 4, &metrics);
        for (int step = part == 0 ? 1 : 5; st == NULL && step <= (part == 0 ? 6 : 5); step++) {
            float list[] = {1, 2};
            ttt__figure figures[] = {
                {.name = "loss", .value = step == 2 ? 0 : 10 * part + 1.0 / step},
                {.name = "list", .list = list, .count = 2},
                {.name = "bad", .value = NAN}};
            st = ttt__metrics_put(metrics, "train", step, figures, 3);
        }
        ttt__metrics_free(metrics);
        if (st != NULL) {
            fprintf(stderr, "%s\n", pjrt_status_text(st));
            pjrt_status_free(st);
            return 1;
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(writes_lines, set_up, tear_down),
        cmocka_unit_test_setup_teardown(brings_floats_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(goes_on, set_up, tear_down),
        cmocka_unit_test_setup_teardown(no_room, set_up, tear_down),
        cmocka_unit_test_setup_teardown(no_folder, set_up, tear_down),
    };
    return argc == 2 ? write_run(argv[1]) : cmocka_run_group_tests(tests, NULL, NULL);
}
