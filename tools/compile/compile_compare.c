/* Two compile reports side by side. */
#include "tools/compile/compile_job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A figure of a report, by the names on the way to it. */
typedef struct figure {
    const char *title, *unit;
    const char *path[4];
} figure;

static const figure figures[] = {
    {"compile", "s", {"compile_seconds"}},
    {"program, serialized", "B", {"program_bytes"}},
    {"memory a chip", "B", {"memory", "needed_bytes"}},
    {"arguments", "B", {"memory", "argument_bytes"}},
    {"results", "B", {"memory", "result_bytes"}},
    {"temporaries", "B", {"memory", "temp_bytes"}},
    {"code", "B", {"memory", "code_bytes"}},
    {"free", "%", {"memory", "free_percent"}},
    {"arithmetic", "FLOP", {"program", "total", "flops"}},
    {"moved", "B", {"program", "total", "bytes"}},
    {"moved in main memory", "B", {"program", "total", "main_bytes"}},
    {"cycles, the compiler's", "cycles", {"program", "total", "cycles"}},
    {"cycles in mini-batches", "cycles", {"cycles_in_mini_batch_loops"}},
    {"in collectives", "B", {"program", "collective_bytes"}},
    {"links", "s", {"roofline", "link_seconds"}},
    {"links, exposed", "s", {"roofline", "exposed_link_seconds"}},
    {"step at least", "s", {"roofline", "step_seconds"}},
    {"tokens/s at most", "", {"roofline", "tokens_per_second_at_most"}},
    {"MFU at most", "", {"roofline", "mfu_at_most"}},
};

/* What tells two configurations apart. */
static const char *const facts[] = {
    "preset",  "mixer", "step", "target", "mesh",  "batch",
    "context", "dtype", "form", "layers", "remat",
};

static const json_t *find(const json_t *report, const figure *f)
{
    for (size_t i = 0; i < sizeof f->path / sizeof *f->path && f->path[i] != NULL; i++)
        report = json_object_get(report, f->path[i]);
    return json_is_number(report) ? report : NULL;
}

pjrt_status *compile_report_read(const char *path, json_t **report)
{
    char *bytes;
    size_t size;
    json_error_t error;
    PJRT_TRY(cmd_read_file(path, &bytes, &size));
    *report = json_loadb(bytes, size, 0, &error);
    free(bytes);
    if (*report == NULL)
        return PJRT_FAIL(INVALID_ARGUMENT, "ttt", "%s is no JSON: line %d: %s", path, error.line,
                         error.text);
    if (json_is_object(json_object_get(*report, "program")))
        return NULL;
    json_decref(*report);
    *report = NULL;
    return PJRT_FAIL(INVALID_ARGUMENT, "ttt", "%s is no report of ttt compile --json", path);
}

static json_t *number_or_null(const json_t *number)
{
    return number == NULL ? json_null() : json_real(json_number_value(number));
}

static json_t *facts_json(const json_t *report)
{
    json_t *json = json_object();
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
        json_object_set(json, facts[i], json_object_get(report, facts[i]));
    return json;
}

json_t *compile_compare_json(const json_t *a, const json_t *b)
{
    json_t *list = json_array();
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        const json_t *x = find(a, &figures[i]), *y = find(b, &figures[i]);
        bool both = x != NULL && y != NULL && json_number_value(x) != 0;
        json_array_append_new(
            list,
            json_pack("{s:s, s:s, s:o, s:o, s:o}", "figure", figures[i].title, "unit",
                      figures[i].unit, "a", number_or_null(x), "b", number_or_null(y), "ratio",
                      both ? json_real(json_number_value(y) / json_number_value(x)) : json_null()));
    }
    return json_pack("{s:o, s:o, s:o}", "a", facts_json(a), "b", facts_json(b), "figures", list);
}

/* A fact in one short line: text as it is, a mesh as it is written. */
static const char *fact_text(const json_t *report, const char *name, char *room, size_t size)
{
    json_t *fact = json_object_get(report, name), *value;
    const char *axis;
    size_t used = 0;
    room[0] = '\0';
    if (json_is_string(fact))
        snprintf(room, size, "%s", json_string_value(fact));
    else if (json_is_integer(fact))
        snprintf(room, size, "%lld", (long long)json_integer_value(fact));
    json_object_foreach(fact, axis, value)
    {
        int more = snprintf(room + used, size - used, "%s%s=%lld", used == 0 ? "" : ",", axis,
                            (long long)json_integer_value(value));
        if (more < 0 || (size_t)more >= size - used)
            break;
        used += (size_t)more;
    }
    return room[0] == '\0' ? "-" : room;
}

static const char *value_text(const json_t *number, const char *unit)
{
    if (number == NULL)
        return "-";
    double value = json_number_value(number);
    return strcmp(unit, "s") == 0 ? cmd_duration(value) : cmd_quantity(value, unit);
}

void compile_compare_print(const json_t *a, const json_t *b)
{
    char left[64], right[64];
    printf("%-24s %22s %22s %8s\n", "", "A", "B", "B / A");
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
        printf("%-24s %22s %22s\n", facts[i], fact_text(a, facts[i], left, sizeof left),
               fact_text(b, facts[i], right, sizeof right));
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        const json_t *x = find(a, &figures[i]), *y = find(b, &figures[i]);
        if (x == NULL && y == NULL)
            continue;
        printf("%-24s %22s %22s", figures[i].title, value_text(x, figures[i].unit),
               value_text(y, figures[i].unit));
        if (x != NULL && y != NULL && json_number_value(x) != 0)
            printf(" %8.3f", json_number_value(y) / json_number_value(x));
        putchar('\n');
    }
    puts("memory, arithmetic and bytes are of one chip; at least and at most are bounds by public "
         "peaks, not times");
}
