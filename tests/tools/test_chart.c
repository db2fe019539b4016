/*
 * Charts: ticks are round and not too many, numbers are short, and whatever the values and names
 * are the picture is whole, small and without a coordinate that is no number.
 */
#include "tests/support/support.h"
#include "tools/report/chart.h"
#include "tools/report/markup.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static text_buffer svg;

static int tear_down(void **state)
{
    (void)state;
    free(svg.text);
    svg = (text_buffer){0};
    return 0;
}

/* Tags are closed in order, and there is nothing in them that no viewer could draw. */
static void check_picture(void)
{
    int depth = 0;
    assert_non_null(svg.text);
    assert_int_equal(strlen(svg.text), svg.size);
    for (const char *at = svg.text; (at = strchr(at, '<')) != NULL; at++) {
        const char *end = strchr(at, '>');
        assert_non_null(end);
        depth += at[1] == '/' ? -1 : end[-1] == '/' ? 0 : 1;
        assert_true(depth >= 0);
    }
    assert_int_equal(depth, 0);
    assert_null(strstr(svg.text, "nan"));
    assert_null(strstr(svg.text, "inf"));
    assert_null(strstr(svg.text, "http:") == strstr(svg.text, "http://www.w3.org/2000/svg")
                    ? NULL
                    : svg.text);
}

static void draw(const chart *c)
{
    free(svg.text);
    ASSERT_OK(chart_lines(c, &svg));
    check_picture();
}

/* ---- ticks ---- */

static void check_ticks(double low, double high, bool logarithmic, bool twos, size_t most,
                        const char *expected)
{
    double at[CHART_MOST_TICKS];
    char all[512] = "", one[64];
    size_t count = chart_ticks(low, high, logarithmic, twos, most, at);
    for (size_t i = 0; i < count; i++) {
        snprintf(one, sizeof one, "%s%g", i == 0 ? "" : " ", at[i]);
        strcat(all, one);
    }
    assert_string_equal(all, expected);
}

static void test_ticks(void **state)
{
    (void)state;
    check_ticks(0, 1, false, false, 6, "0 0.2 0.4 0.6 0.8 1");
    check_ticks(2.13, 5.61, false, false, 5, "3 4 5");
    check_ticks(-3, 7, false, false, 6, "-2 0 2 4 6");
    check_ticks(0, 150, false, false, 9, "0 20 40 60 80 100 120 140");
    check_ticks(1, 1000, true, false, 9, "1 10 100 1000");
    check_ticks(1e-5, 0.3, true, false, 9, "1e-05 0.0001 0.001 0.01 0.1");
    check_ticks(3, 80, true, false, 9, "5 10 20 50");
    check_ticks(2.1, 3.9, true, false, 6, "2.5 3 3.5"); /* within a decade: as if linear */
    check_ticks(128, 32768, true, true, 9, "128 256 512 1024 2048 4096 8192 16384 32768");
    check_ticks(128, 32768, true, true, 5, "128 512 2048 8192 32768");
    check_ticks(1, 1, false, false, 5, "");
    check_ticks(2, 1, false, false, 5, "");
    check_ticks(0, 1, true, false, 5, "");
    check_ticks(NAN, 1, false, false, 5, "");
    check_ticks(-1e308, 1e308, false, false, 5, "");
}

/* Any range gives at most as many as were asked for, in order and within it. */
static void test_ticks_of_all_ranges(void **state)
{
    (void)state;
    double at[CHART_MOST_TICKS];
    srand(1);
    for (int i = 0; i < 20000; i++) {
        double low = ldexp(rand() - RAND_MAX / 2.0, rand() % 200 - 130);
        double high = low + ldexp(rand() + 1.0, rand() % 200 - 130);
        bool logarithmic = rand() % 2 == 0, twos = rand() % 2 == 0;
        low = logarithmic ? fabs(low) : low;
        size_t most = (size_t)rand() % 30;
        size_t count = chart_ticks(low, high, logarithmic, twos, most, at);
        assert_true(count <= most && count <= CHART_MOST_TICKS);
        for (size_t j = 0; j < count; j++) {
            double slack = 1e-6 * (fabs(high - low) + fabs(at[j]));
            assert_true(at[j] >= low - slack && at[j] <= high + slack);
            assert_true(j == 0 || at[j] >= at[j - 1]);
        }
    }
}

static void check_number(double value, double step, double largest, bool twos, const char *expected)
{
    char text[CHART_NUMBER];
    chart_number(value, step, largest, twos, text);
    assert_string_equal(text, expected);
}

static void test_numbers(void **state)
{
    (void)state;
    check_number(0, 0, 0, false, "0");
    check_number(2.5, 0.5, 4, false, "2.5");
    check_number(3, 0.5, 4, false, "3.0");
    check_number(-0.25, 0.25, 1, false, "−0.25");
    check_number(2000, 2000, 8000, false, "2000");
    check_number(2000, 2000, 12000, false, "2k");
    check_number(2500, 2500, 12500, false, "2.5k");
    check_number(15e6, 5e6, 20e6, false, "15M");
    check_number(1e-5, 0, 0, false, "10⁻⁵");
    check_number(3e-5, 1e-5, 5e-5, false, "3×10⁻⁵");
    check_number(0.1, 0, CHART_POWERS, false, "10⁻¹");
    check_number(1e20, 0, 0, false, "10²⁰");
    check_number(128, 0, 0, true, "128");
    check_number(32768, 0, 0, true, "32k");
    check_number(1048576, 0, 0, true, "1M");
    check_number(999.9, 0, 0, false, "999.9");
    check_number(NAN, 0, 0, false, "–");
}

/* ---- lines ---- */

static void test_gaps(void **state)
{
    (void)state;
    double x[] = {0, 1, 2, 3, 4, 5}, y[] = {1, 2, NAN, 3, INFINITY, 4};
    double spread[] = {0.1, NAN, 1, INFINITY, 0, -1};
    chart_series s = {.name = "s", .x = x, .y = y, .spread = spread, .count = 6};
    chart c = {.title = "gaps", .series = &s, .n_series = 1};
    draw(&c);
    const char *line = strstr(svg.text, "class=\"cn k1\" d=\"");
    assert_non_null(line);
    assert_non_null(strstr(line, "h0")); /* what stands alone between gaps is a dot */
    double not_positive[] = {-1, 0, 1, 10, 100, 1000};
    s.y = not_positive;
    c.log_y = c.log_x = true;
    draw(&c);
}

static void test_few(void **state)
{
    (void)state;
    double x = 3, y = 4, none = NAN;
    chart_series s = {.name = "one", .x = &x, .y = &y, .count = 1};
    chart c = {.series = &s, .n_series = 1};
    draw(&c);
    assert_null(strstr(svg.text, "nothing to show"));
    c.log_x = c.log_y = true;
    draw(&c);
    s.y = &none;
    draw(&c);
    assert_non_null(strstr(svg.text, "nothing to show"));
    s.count = 0;
    draw(&c);
    c.n_series = 0;
    draw(&c);
    assert_non_null(strstr(svg.text, "nothing to show"));
}

static void test_extremes(void **state)
{
    (void)state;
    double x[] = {0, 1, 2}, huge[] = {-1e308, 0, 1e308}, tiny[] = {1e-320, 2e-320, 3e-320};
    double close[] = {1e16, 1e16 + 2, 1e16 + 4}, *ys[] = {huge, tiny, close};
    for (size_t i = 0; i < 3; i++)
        for (int logarithmic = 0; logarithmic < 2; logarithmic++) {
            chart_series s = {.name = "s", .x = x, .y = ys[i], .count = 3};
            chart c = {.series = &s, .n_series = 1, .log_y = logarithmic == 1};
            draw(&c);
        }
}

/* A million points are a few kilobytes, and the highest of them is still there. */
static void test_many(void **state)
{
    (void)state;
    enum { MANY = 1000000 };
    double *x = malloc(2 * MANY * sizeof *x), *y = x + MANY;
    for (int i = 0; i < MANY; i++) {
        x[i] = i;
        y[i] = i == 777777 ? 9 : 1 + (i % 1000 * 7919 % 1000) / 1000.0;
    }
    chart_series s[3] = {{.name = "a", .x = x, .y = y, .count = MANY, .faint = true},
                         {.name = "b", .x = x, .y = y, .spread = y, .count = MANY},
                         {.name = "c", .x = x, .y = y, .count = MANY}};
    chart c = {.title = "many", .series = s, .n_series = 3, .y_low = 0, .y_high = 9};
    draw(&c);
    assert_in_range(svg.size, 2000, 15000);
    c.log_x = true;
    draw(&c);
    assert_in_range(svg.size, 2000, 15000);
    free(x);
}

static void test_hostile_names(void **state)
{
    (void)state;
    static const char *const names[] = {
        "</text><script>alert(1)</script>",
        "a\"b'c&amp;\x01\x7f",
        "\xff\xfe half \xc3",
        "\xed\xa0\x80 surrogate, overlong \xc0\xaf, \xef\xbf\xbf",
        "%s%n%d",
        "",
        ("a name that goes on and on and on and on, far longer than any place there is for it in a "
         "picture, whatever its width may be, and then some more"),
        "名前 имя",
    };
    enum { COUNT = sizeof names / sizeof *names };
    double x[] = {1, 2}, y[] = {1, 2};
    chart_series s[COUNT];
    chart_bar bars[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        s[i] = (chart_series){.name = names[i], .x = x, .y = y, .count = 2};
        bars[i] = (chart_bar){.name = names[i], .value = (double)i, .words = names[i]};
        chart c = {names[i], names[i], names[i], .series = s, .n_series = i + 1};
        draw(&c);
        assert_null(strstr(svg.text, "<script"));
        assert_null(strchr(svg.text, '\x01'));
        chart_bars_data b = {.title = names[i], .label = names[i], .bars = bars, .count = i + 1};
        b.marks_name = names[i];
        free(svg.text);
        ASSERT_OK(chart_bars(&b, &svg));
        check_picture();
        assert_null(strchr(svg.text, '\xff'));
        assert_null(strstr(svg.text, "\xc0\xaf"));
        assert_null(strstr(svg.text, "\xed\xa0\x80"));
    }
}

/* ---- bars ---- */

static void test_bars(void **state)
{
    (void)state;
    chart_bar bars[] = {{.name = "a", .value = 15.234, .spread = 0.5, .mark = 15.2},
                        {.name = "b", .value = NAN},
                        {.name = "c", .value = -3, .spread = INFINITY},
                        {.name = NULL, .value = 0, .mark = NAN}};
    chart_bars_data b = {.title = "bars", .bars = bars, .count = 4, .digits = 2};
    ASSERT_OK(chart_bars(&b, &svg));
    check_picture();
    ASSERT_CONTAINS(svg.text, ">15.23 ± 0.50<");
    ASSERT_CONTAINS(svg.text, ">–<");
    free(svg.text);
    b.count = 0;
    ASSERT_OK(chart_bars(&b, &svg));
    check_picture();
    ASSERT_CONTAINS(svg.text, "nothing to show");
}

static void test_style(void **state)
{
    (void)state;
    chart c = {.title = "t"};
    draw(&c);
    ASSERT_CONTAINS(svg.text, chart_style());
    ASSERT_CONTAINS(svg.text, "prefers-color-scheme:dark");
    ASSERT_CONTAINS(svg.text, "<title>t</title>");
    c.bare = true;
    draw(&c);
    assert_null(strstr(svg.text, "<style"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ticks),
        cmocka_unit_test(test_ticks_of_all_ranges),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test_teardown(test_gaps, tear_down),
        cmocka_unit_test_teardown(test_few, tear_down),
        cmocka_unit_test_teardown(test_extremes, tear_down),
        cmocka_unit_test_teardown(test_many, tear_down),
        cmocka_unit_test_teardown(test_hostile_names, tear_down),
        cmocka_unit_test_teardown(test_bars, tear_down),
        cmocka_unit_test_teardown(test_style, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
