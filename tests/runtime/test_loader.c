/* The order of samples, and batches that do not depend on how they are cut. */
#include "tests/support/prepared.h"
#include "tests/support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- permutations ---- */

static void every_number_once(void **state)
{
    static const uint64_t large[] = {997, 1000, 1023, 1024, 1025, 4099, 65536, 100003};
    static bool seen[100003];
    (void)state;
    for (uint64_t k = 1; k < 300 + sizeof large / sizeof *large; k++) {
        uint64_t n = k < 300 ? k : large[k - 300];
        for (uint64_t epoch = 0; epoch < 3; epoch++) {
            memset(seen, 0, n * sizeof *seen);
            for (uint64_t i = 0; i < n; i++) {
                uint64_t to = ttt__permute(7, epoch, n, i);
                assert_true(to < n);
                assert_false(seen[to]);
                seen[to] = true;
            }
        }
    }
}

/* Of large n a sample: within, no two alike, and spread evenly over sixteen parts. */
static void large_numbers(void **state)
{
    static const uint64_t list[] = {UINT64_C(1) << 40, (UINT64_C(1) << 40) + 1,
                                    (UINT64_C(1) << 62) - 57, UINT64_C(1) << 62};
    enum { COUNT = 4096 };
    static uint64_t values[COUNT];
    (void)state;
    for (size_t k = 0; k < sizeof list / sizeof *list; k++) {
        int parts[16] = {0};
        for (uint64_t i = 0; i < COUNT; i++) {
            values[i] = ttt__permute(1, 0, list[k], i);
            assert_true(values[i] < list[k]);
            parts[values[i] / (list[k] / 16 + 1)]++;
            for (uint64_t j = 0; j < i; j++)
                assert_true(values[j] != values[i]);
        }
        for (int i = 0; i < 16; i++)
            assert_in_range(parts[i], 256 - 80, 256 + 80); /* five deviations */
    }
}

/* Each of few numbers comes to each place about as often. */
static void places_are_fair(void **state)
{
    (void)state;
    for (uint64_t n = 2; n <= 12; n++) {
        enum { EPOCHS = 6000 };
        int count[12][12] = {{0}};
        for (uint64_t epoch = 0; epoch < EPOCHS; epoch++) {
            for (uint64_t i = 0; i < n; i++)
                count[i][ttt__permute(3, epoch, n, i)]++;
        }
        double chi = 0, wanted = EPOCHS / (double)n;
        for (uint64_t i = 0; i < n * n; i++) {
            double off = count[i / n][i % n] - wanted;
            chi += off * off / wanted;
        }
        /* (n - 1)^2 degrees of freedom; six deviations. */
        double freedom = (double)((n - 1) * (n - 1));
        if (chi > freedom + 6 * __builtin_sqrt(2 * freedom) + 20)
            fail_msg("n = %d: chi squared %g", (int)n, chi);
    }
}

static void not_the_same(void **state)
{
    int same = 0, epochs = 0, seeds = 0;
    (void)state;
    for (uint64_t i = 0; i < 1000; i++) {
        same += ttt__permute(0, 0, 1000, i) == i;
        epochs += ttt__permute(0, 0, 1000, i) == ttt__permute(0, 1, 1000, i);
        seeds += ttt__permute(0, 0, 1000, i) == ttt__permute(1, 0, 1000, i);
    }
    assert_true(same < 10 && epochs < 10 && seeds < 10);
}

/* These may never change: runs that are continued depend on them. */
static void pinned_for_ever(void **state)
{
    static const uint64_t small[] = {4, 8, 1, 7, 2, 3, 9, 0, 5, 6};
    static const uint64_t large[] = {817216, 922037, 66063, 344321};
    (void)state;
    for (uint64_t i = 0; i < 10; i++)
        assert_int_equal(ttt__permute(1, 0, 10, i), small[i]);
    for (uint64_t i = 0; i < 4; i++)
        assert_int_equal(ttt__permute(42, i, 1000003, i * 333333), large[i]);
}

/* ---- batches ---- */

typedef struct prepared {
    char folder[PATH_MAX];
    ttt_dataset *data;
} prepared;

enum { TIME = 5, TOKENS = 71, SAMPLES = 14 };

static int set_up(void **state)
{
    static const int64_t sizes[] = {30, 30, 11};
    static prepared p;
    support_new_folder(p.folder);
    prepared_write(p.folder, 2, sizes, 3);
    ASSERT_OK(ttt_dataset_open(p.folder, "train", &p.data));
    *state = &p;
    return 0;
}

static int tear_down(void **state)
{
    prepared *p = *state;
    ttt_dataset_free(p->data);
    support_remove_folder(p->folder);
    return 0;
}

/* The row is sample `s`. */
static void check_row(const ttt_batch *batch, int64_t row, int64_t s)
{
    for (int64_t i = 0; i < TIME; i++) {
        assert_int_equal(batch->tokens[row * TIME + i], prepared_token(s * TIME + i));
        assert_int_equal(batch->labels[row * TIME + i], prepared_token(s * TIME + i + 1));
        if (batch->resets != NULL)
            assert_int_equal(batch->resets[row * TIME + i], prepared_token(s * TIME + i) == 256);
    }
}

/* Rows [position, …) by batches of that many, as `processes` see them, are what they should be. */
static void check_stream(const prepared *p, int64_t batch, int processes, int64_t position)
{
    for (int process = 0; process < processes; process++) {
        ttt_loader_options options = {.time = TIME,
                                      .batch = batch,
                                      .first_row = process * batch / processes,
                                      .rows = batch / processes,
                                      .seed = 9,
                                      .resets = process == 0,
                                      .ahead = process};
        ttt_loader *loader;
        ASSERT_OK(ttt_loader_new(p->data, &options, position, &loader));
        assert_int_equal(ttt_loader_samples(loader), SAMPLES);
        for (int64_t at = position; at < position + 3 * SAMPLES; at += batch) {
            ttt_batch got;
            ASSERT_OK(ttt_loader_next(loader, &got));
            assert_int_equal(got.position, at);
            assert_int_equal(got.resets != NULL, options.resets);
            for (int64_t r = 0; r < options.rows; r++) {
                int64_t row = at + options.first_row + r;
                uint64_t sample =
                    ttt__permute(9, (uint64_t)(row / SAMPLES), SAMPLES, (uint64_t)(row % SAMPLES));
                assert_int_equal(ttt_loader_sample(loader, row), sample);
                check_row(&got, r, (int64_t)sample);
            }
        }
        assert_true(ttt_loader_waited(loader) >= 0);
        ttt_loader_free(loader);
    }
}

static void any_cut_is_the_same_stream(void **state)
{
    const prepared *p = *state;
    for (int64_t position = 0; position <= 2 * SAMPLES + 1; position++) {
        check_stream(p, 8, 1, position);
        check_stream(p, 8, 2, position);
        check_stream(p, 2, 1, position);
        check_stream(p, 1, 1, position);
    }
    check_stream(p, 3 * SAMPLES, 1, 0); /* a batch of several epochs */
    check_stream(p, 12, 4, 5);
}

/* Rows that do not lie side by side, as a mesh deals them out. */
static void rows_by_their_numbers(void **state)
{
    static const int64_t which[] = {1, 2, 5, 7};
    const prepared *p = *state;
    ttt_loader_options options = {.time = TIME, .batch = 8, .rows = 4, .which = which, .seed = 9};
    ttt_loader *loader;
    ttt_batch batch;
    ASSERT_OK(ttt_loader_new(p->data, &options, 3, &loader));
    for (int64_t at = 3; at < 60; at += 8) {
        ASSERT_OK(ttt_loader_next(loader, &batch));
        assert_int_equal(batch.position, at);
        for (int64_t r = 0; r < 4; r++)
            check_row(&batch, r, ttt_loader_sample(loader, at + which[r]));
    }
    ttt_loader_free(loader);
    options.which = (const int64_t[]){1, 2, 5, 8};
    ASSERT_FAILS(ttt_loader_new(p->data, &options, 3, &loader), INVALID_ARGUMENT, "no row 8");
}

static void in_order(void **state)
{
    const prepared *p = *state;
    ttt_loader_options options = {.time = TIME, .batch = 4, .rows = 4, .in_order = true};
    ttt_loader *loader;
    ttt_batch batch;
    ASSERT_OK(ttt_loader_new(p->data, &options, 0, &loader));
    for (int64_t row = 0; row < 40; row++) {
        if (row % 4 == 0)
            ASSERT_OK(ttt_loader_next(loader, &batch));
        check_row(&batch, row % 4, row % SAMPLES);
    }
    ttt_loader_free(loader);
}

/* A batch stays as it is while those after it are made. */
static void held_while_others_are_made(void **state)
{
    const prepared *p = *state;
    ttt_loader_options options = {
        .time = TIME, .batch = 2, .rows = 2, .in_order = true, .ahead = 1};
    ttt_loader *loader;
    ttt_batch batch;
    ASSERT_OK(ttt_loader_new(p->data, &options, 0, &loader));
    for (int64_t k = 0; k < 50; k++) {
        ASSERT_OK(ttt_loader_next(loader, &batch));
        for (int i = 0; i < 20; i++) {
            check_row(&batch, 0, 2 * k % SAMPLES);
            check_row(&batch, 1, (2 * k + 1) % SAMPLES);
            usleep(10);
        }
    }
    ttt_loader_free(loader);
}

static void freed_at_any_time(void **state)
{
    const prepared *p = *state;
    ttt_loader_options options = {.time = TIME, .batch = 64, .rows = 64, .ahead = 3};
    for (int i = 0; i < 200; i++) {
        ttt_loader *loader;
        ttt_batch batch;
        ASSERT_OK(ttt_loader_new(p->data, &options, i, &loader));
        for (int k = 0; k < i % 7; k++)
            ASSERT_OK(ttt_loader_next(loader, &batch));
        ttt_loader_free(loader);
    }
    ttt_loader_free(NULL);
}

static void wrong_options(void **state)
{
    const prepared *p = *state;
    static const struct {
        ttt_loader_options options;
        int64_t position;
        const char *part;
    } cases[] = {
        {{.time = 0, .batch = 1, .rows = 1}, 0, "0 tokens"},
        {{.time = 1, .batch = 0, .rows = 0}, 0, "batch of 0"},
        {{.time = 1, .batch = 4, .rows = 0}, 0, "outside a batch"},
        {{.time = 1, .batch = 4, .rows = 3, .first_row = 2}, 0, "rows = 3 from first_row = 2"},
        {{.time = 1, .batch = 4, .rows = 1, .first_row = -1}, 0, "outside a batch"},
        {{.time = 1, .batch = 4, .rows = INT64_MAX, .first_row = 1}, 0, "outside a batch"},
        {{.time = TOKENS, .batch = 1, .rows = 1}, 0, "71 tokens"},
        {{.time = INT64_MAX, .batch = 1, .rows = 1}, 0, "71 tokens"},
        {{.time = 1, .batch = 1, .rows = 1, .ahead = -1}, 0, "ahead"},
        {{.time = 1, .batch = 1, .rows = 1}, -1, "position"},
    };
    ttt_loader *loader;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ASSERT_FAILS(ttt_loader_new(p->data, &cases[i].options, cases[i].position, &loader),
                     INVALID_ARGUMENT, cases[i].part);
        assert_null(loader);
    }
    ttt_loader_options huge = {.time = 2, .batch = INT64_MAX, .rows = INT64_MAX};
    ASSERT_FAILS(ttt_loader_new(p->data, &huge, 0, &loader), RESOURCE_EXHAUSTED, "too large");
}

static void resets_need_bos(void **state)
{
    const int64_t sizes[] = {30};
    char folder[PATH_MAX];
    size_t size;
    ttt_dataset *data;
    ttt_loader *loader;
    ttt_loader_options options = {.time = TIME, .batch = 1, .rows = 1, .resets = true};
    (void)state;
    support_new_folder(folder);
    prepared_write(folder, 2, sizes, 1);
    const char *path = support_path(folder, "index.json");
    char *text = (char *)support_read_file(path, &size);
    char *bos = strstr(text, "\"bos\": 256");
    assert_non_null(bos);
    memcpy(bos, "\"bos\": -1 ", 10);
    support_write_file(path, text, size);
    free(text);
    ASSERT_OK(ttt_dataset_open(folder, "train", &data));
    ASSERT_FAILS(ttt_loader_new(data, &options, 0, &loader), INVALID_ARGUMENT, "BOS token");
    options.resets = false;
    ASSERT_OK(ttt_loader_new(data, &options, 0, &loader));
    ttt_loader_free(loader);
    ttt_dataset_free(data);
    support_remove_folder(folder);
}

/* One sample is the least there can be; it comes again and again. */
static void one_sample(void **state)
{
    const prepared *p = *state;
    ttt_loader_options options = {.time = TOKENS - 1, .batch = 3, .rows = 3};
    ttt_loader *loader;
    ttt_batch batch;
    ASSERT_OK(ttt_loader_new(p->data, &options, 0, &loader));
    assert_int_equal(ttt_loader_samples(loader), 1);
    ASSERT_OK(ttt_loader_next(loader, &batch));
    for (int64_t i = 0; i < 3 * (TOKENS - 1); i++)
        assert_int_equal(batch.labels[i], prepared_token(i % (TOKENS - 1) + 1));
    ttt_loader_free(loader);
}

/* What the thread meets is told after the batches before it, and told again. */
static void failures_of_the_thread(void **state)
{
    const int64_t sizes[] = {30, 30, 11};
    char folder[PATH_MAX];
    size_t size;
    ttt_loader *loader;
    ttt_dataset *data;
    ttt_batch batch;
    (void)state;
    support_new_folder(folder);
    prepared_write(folder, 2, sizes, 3);
    const char *path = support_path(folder, "train-00001.tokens");
    unsigned char *bytes = support_read_file(path, &size);
    bytes[1] = 0xff;
    support_write_file(path, bytes, size);
    free(bytes);
    ASSERT_OK(ttt_dataset_open(folder, "train", &data));
    ttt_loader_options options = {.time = TIME, .batch = 1, .rows = 1, .in_order = true};
    ASSERT_OK(ttt_loader_new(data, &options, 0, &loader));
    for (int i = 0; i < 5; i++) {
        ASSERT_OK(ttt_loader_next(loader, &batch));
        check_row(&batch, 0, i);
    }
    for (int i = 0; i < 3; i++)
        ASSERT_FAILS(ttt_loader_next(loader, &batch), DATA_LOSS, "train-00001.tokens");
    ttt_loader_free(loader);

    ASSERT_OK(ttt_loader_new(data, &options, INT64_MAX, &loader));
    ASSERT_FAILS(ttt_loader_next(loader, &batch), OUT_OF_RANGE, "overflow");
    ttt_loader_free(loader);
    ttt_dataset_free(data);
    support_remove_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_number_once),
        cmocka_unit_test(large_numbers),
        cmocka_unit_test(places_are_fair),
        cmocka_unit_test(not_the_same),
        cmocka_unit_test(pinned_for_ever),
        cmocka_unit_test(any_cut_is_the_same_stream),
        cmocka_unit_test(rows_by_their_numbers),
        cmocka_unit_test(in_order),
        cmocka_unit_test(held_while_others_are_made),
        cmocka_unit_test(freed_at_any_time),
        cmocka_unit_test(wrong_options),
        cmocka_unit_test(resets_need_bos),
        cmocka_unit_test(one_sample),
        cmocka_unit_test(failures_of_the_thread),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
