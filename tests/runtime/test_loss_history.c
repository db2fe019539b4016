/* Rolling figures: what they say of a step depends on earlier steps alone, also after a restart. */
#include "runtime/train/loss_history.h"
#include "tests/support/support.h"

#include <math.h>
#include <stdlib.h>

static float loss_at(int64_t step)
{
    return step % 5 == 3 ? NAN : 2 + (float)(step * 37 % 11) / 8;
}

static void fill(ttt__loss_history *h, int64_t window, int64_t steps)
{
    assert_null(ttt__loss_history_new(window, h));
    for (int64_t s = 1; s <= steps; s++)
        ttt__loss_history_add(h, loss_at(s), (float)s, false);
}

/* Against sums over the window written out. */
static void test_mean_and_deviation(void **state)
{
    (void)state;
    enum { WINDOW = 7, STEPS = 40 };
    ttt__loss_history h;
    fill(&h, WINDOW, STEPS);
    for (int64_t step = STEPS - 2; step <= STEPS; step++) {
        double sum = 0, squares = 0, n = 0, mean, deviation;
        for (int64_t s = step - WINDOW + 1; s <= step; s++) {
            double value = loss_at(s);
            if (isfinite(value)) {
                sum += value;
                squares += value * value;
                n++;
            }
        }
        assert_true(ttt__loss_history_about(&h, step, TTT__LOSS, &mean, &deviation));
        assert_true(fabs(mean - sum / n) < 1e-12);
        assert_true(fabs(deviation - sqrt((squares - sum * sum / n) / (n - 1))) < 1e-7);
    }
    ttt__loss_history_free(&h);
}

/* A step that is not known, or whose window is not, has no mean, and nothing is a spike then. */
static void test_too_few(void **state)
{
    (void)state;
    ttt__loss_history h;
    double mean, deviation;
    float limits[TTT__FIGURES];
    fill(&h, 4, 3);
    assert_false(ttt__loss_history_about(&h, 3, TTT__NORM, &mean, &deviation));
    ttt__loss_history_limits(&h, 3, 2, limits);
    assert_true(isinf(limits[TTT__LOSS]) && isinf(limits[TTT__NORM]));
    ttt__loss_history_add(&h, 1, 4, false);
    assert_true(ttt__loss_history_about(&h, 4, TTT__NORM, &mean, &deviation));
    assert_true(mean == 2.5);
    assert_false(ttt__loss_history_about(&h, 5, TTT__NORM, &mean, &deviation));
    ttt__loss_history_limits(&h, 4, 2, limits);
    assert_true(limits[TTT__NORM] > 5 && limits[TTT__NORM] < 5.1f);
    ttt__loss_history_limits(&h, 4, 0, limits);
    assert_true(isinf(limits[TTT__NORM]));
    ttt__loss_history_free(&h);
}

/* A run that was saved after any step has the limits of the one that went on, for the next step and
 * the one after it. */
static void test_restarts(void **state)
{
    (void)state;
    enum { WINDOW = 6 };
    for (int64_t cut = 0; cut < 30; cut++) {
        ttt__loss_history whole, again;
        fill(&whole, WINDOW, cut);
        assert_null(ttt__loss_history_new(WINDOW, &again));
        json_t *json = ttt__loss_history_json(&whole);
        assert_non_null(json);
        assert_null(ttt__loss_history_parse(&again, json));
        json_decref(json);
        for (int64_t step = cut; step < cut + 3; step++) {
            float a[TTT__FIGURES], b[TTT__FIGURES];
            ttt__loss_history_limits(&whole, step - 1, 1.5, a);
            ttt__loss_history_limits(&again, step - 1, 1.5, b);
            assert_memory_equal(a, b, sizeof a);
            ttt__loss_history_add(&whole, loss_at(step + 1), (float)step, step % 4 == 0);
            ttt__loss_history_add(&again, loss_at(step + 1), (float)step, step % 4 == 0);
        }
        ttt__loss_history_free(&whole);
        ttt__loss_history_free(&again);
    }
}

/* Skipped spikes do not raise the limit for the spikes after them, also in a resumed run. */
static void test_skipped_steps(void **state)
{
    (void)state;
    enum { WINDOW = 8 };
    ttt__loss_history h, again;
    float before[TTT__FIGURES], after[TTT__FIGURES], resumed[TTT__FIGURES];
    assert_null(ttt__loss_history_new(WINDOW, &h));
    for (int64_t s = 1; s <= WINDOW; s++)
        ttt__loss_history_add(&h, 2 + (float)(s % 2), 1 + (float)(s % 2), false);
    ttt__loss_history_limits(&h, h.last, 3, before);
    for (int i = 0; i < 3; i++)
        ttt__loss_history_add(&h, 1000, 1000, true);
    ttt__loss_history_limits(&h, h.last, 3, after);
    assert_true(isfinite(after[TTT__LOSS]) && isfinite(after[TTT__NORM]));
    assert_true(after[TTT__LOSS] < before[TTT__LOSS] + 1);
    assert_true(after[TTT__NORM] < before[TTT__NORM] + 1);
    assert_null(ttt__loss_history_new(WINDOW, &again));
    json_t *json = ttt__loss_history_json(&h);
    assert_null(ttt__loss_history_parse(&again, json));
    json_decref(json);
    ttt__loss_history_limits(&again, again.last, 3, resumed);
    assert_memory_equal(after, resumed, sizeof after);
    ttt__loss_history_free(&h);
    ttt__loss_history_free(&again);
}

static void test_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{\"window\": 5, \"last\": 1, \"bits\": [1, 2]}", /* another window */
        "{\"window\": 4, \"last\": 0, \"bits\": [1, 2]}", /* more steps than there were */
        "{\"window\": 4, \"last\": 99, \"bits\": 3}",
        "{\"window\": 4, \"last\": 99, \"bits\": [1,2,3,4,5,6,7,8,9,10,11,12,13,14]}",
        "{}",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        ttt__loss_history h;
        assert_null(ttt__loss_history_new(4, &h));
        json_t *json = json_loads(texts[i], 0, NULL);
        pjrt_status *st = ttt__loss_history_parse(&h, json);
        assert_non_null(st);
        pjrt_status_free(st);
        json_decref(json);
        ttt__loss_history_free(&h);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mean_and_deviation),
        cmocka_unit_test(test_too_few),
        cmocka_unit_test(test_restarts),
        cmocka_unit_test(test_skipped_steps),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
