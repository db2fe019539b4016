/* Round numbers for axes, and how they are written. */
#include "tools/report/chart.h"

#include <math.h>
#include <stdio.h>

/* The least of 1, 2, 5, 10, 20 … (and 0.5, 0.2 …) that is not below `step`. */
static double round_step(double step)
{
    double power = pow(10, floor(log10(step)));
    static const double leads[] = {1, 2, 5, 10};
    for (size_t i = 0; i < sizeof leads / sizeof *leads; i++)
        if (leads[i] * power >= step * (1 - 1e-9))
            return leads[i] * power;
    return 10 * power;
}

static size_t even_ticks(double low, double high, size_t most, double *at)
{
    size_t count = 0;
    double slack = 1e-9 * (high - low);
    double step = round_step((high - low) / (double)most);
    while (floor((high + slack) / step) - ceil((low - slack) / step) + 1 > (double)most)
        step = round_step(1.5 * step);
    double first = ceil((low - slack) / step), last = floor((high + slack) / step);
    for (double i = first; i <= last && count < most; i++)
        at[count++] = i == 0 ? 0 : i * step;
    return count;
}

/* Every so many powers of `base`. */
static size_t power_ticks(double low, double high, double base, size_t most, double *at)
{
    size_t count = 0;
    double first = ceil(log(low) / log(base) - 1e-9), last = floor(log(high) / log(base) + 1e-9);
    double stride = ceil((last - first + 1) / (double)most);
    for (double i = first; i <= last && count < most; i += stride < 1 ? 1 : stride)
        at[count++] = pow(base, i);
    return count;
}

/* 1, 2, 5, 10, 20 …; none when they are too many. */
static size_t lead_ticks(double low, double high, size_t most, double *at)
{
    static const double leads[] = {1, 2, 5};
    size_t count = 0;
    for (double power = floor(log10(low)); power <= ceil(log10(high)); power++)
        for (size_t i = 0; i < sizeof leads / sizeof *leads; i++) {
            double value = leads[i] * pow(10, power);
            if (value < low * (1 - 1e-9) || value > high * (1 + 1e-9))
                continue;
            if (count == most)
                return 0;
            at[count++] = value;
        }
    return count;
}

size_t chart_ticks(double low, double high, bool logarithmic, bool twos, size_t most, double *at)
{
    most = most > CHART_MOST_TICKS ? CHART_MOST_TICKS : most;
    if (most < 2 || !(high > low) || !isfinite(high - low) || (logarithmic && !(low > 0)))
        return 0;
    if (!logarithmic)
        return even_ticks(low, high, most, at);
    if (twos)
        return power_ticks(low, high, 2, most, at);
    size_t count = log10(high / low) > 4 ? 0 : lead_ticks(low, high, most, at);
    if (count < 3 && log10(high / low) >= 2)
        count = power_ticks(low, high, 10, most, at);
    return count < 3 ? even_ticks(low, high, most, at) : count;
}

/* ---- in words ---- */

/* "3×10⁻⁵", and "10⁻⁵" alone where the digit is one. */
static void scientific(double value, char text[CHART_NUMBER])
{
    static const char *const digits[] = {"⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹"};
    int power = (int)floor(log10(fabs(value)) + 1e-12);
    double lead = value / pow(10, power);
    int used = 0;
    if (fabs(fabs(lead) - 1) < 1e-6)
        used = snprintf(text, CHART_NUMBER, "%s10", value < 0 ? "−" : "");
    else
        used = snprintf(text, CHART_NUMBER, "%s%.3g×10", value < 0 ? "−" : "", fabs(lead));
    if (power < 0)
        used += snprintf(text + used, CHART_NUMBER - (size_t)used, "⁻");
    power = power < 0 ? -power : power;
    for (int unit = power >= 100 ? 100 : power >= 10 ? 10 : 1; unit > 0; unit /= 10)
        used += snprintf(text + used, CHART_NUMBER - (size_t)used, "%s", digits[power / unit % 10]);
}

static int decimals(double step)
{
    int digits = 0;
    for (; digits < 6 && fabs(step - round(step)) > 1e-6 * step; digits++)
        step *= 10;
    return digits;
}

void chart_number(double value, double step, double largest, bool twos, char text[CHART_NUMBER])
{
    static const char units[] = " kMGT";
    double thousand = twos ? 1024 : 1000, unit = 1, size = fabs(value);
    bool alone = step == 0;
    int prefix = 0;
    largest = largest == 0 ? size : largest;
    if (value == 0) {
        snprintf(text, CHART_NUMBER, "0");
        return;
    }
    if (!isfinite(value)) {
        snprintf(text, CHART_NUMBER, "–");
        return;
    }
    if (largest >= 1e15 || largest < 0.9e-3) {
        scientific(value, text);
        return;
    }
    /* 2000 and 5000 stay as they are among themselves; 12000 is 12k, and beside it 2000 is 2k. */
    while (prefix < 4 && largest >= unit * thousand * (alone || prefix > 0 ? 1 : 10)) {
        unit *= thousand;
        prefix++;
    }
    if (alone)
        snprintf(text, CHART_NUMBER, "%s%.*g", value < 0 ? "−" : "", size / unit < 999.5 ? 3 : 4,
                 size / unit);
    else
        snprintf(text, CHART_NUMBER, "%s%.*f", value < 0 ? "−" : "", decimals(step / unit),
                 size / unit);
    if (prefix > 0) {
        size_t used = 0;
        while (text[used] != '\0')
            used++;
        snprintf(text + used, CHART_NUMBER - used, "%c", units[prefix]);
    }
}
