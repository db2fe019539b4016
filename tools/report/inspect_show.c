/* What was found, as text: facts line by line, lists of things as tables. */
#include "tools/report/inspect.h"

#include <stdio.h>
#include <string.h>

enum { COLUMNS = 32, WIDEST = 44, JOINED = 240 };

static bool ends(const char *name, const char *tail)
{
    size_t length = strlen(name), more = strlen(tail);
    return length >= more && strcmp(name + length - more, tail) == 0;
}

/* Lists of words and numbers on one line. */
static const char *join(const json_t *list, char *room, size_t size)
{
    size_t used = 0, i;
    const json_t *item;
    room[0] = '\0';
    json_array_foreach(list, i, item)
    {
        const char *text = inspect_value_text("", item);
        int more = snprintf(room + used, size - used, "%s%s", i == 0 ? "" : ", ", text);
        if (more < 0 || (size_t)more >= size - used)
            break;
        used += (size_t)more;
    }
    return room;
}

const char *inspect_value_text(const char *name, const json_t *value)
{
    static char places[8][JOINED];
    static unsigned next;
    if (json_is_string(value))
        return json_string_value(value);
    if (json_is_true(value) || json_is_false(value))
        return json_is_true(value) ? "yes" : "no";
    if (json_is_number(value) && (ends(name, "bytes") || strcmp(name, "size") == 0))
        return cmd_quantity(json_number_value(value), "B");
    char *room = places[next++ % 8];
    if (json_is_integer(value))
        snprintf(room, sizeof places[0], "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        snprintf(room, sizeof places[0], "%.4g", json_real_value(value));
    else if (json_is_array(value))
        return join(value, room, sizeof places[0]);
    else
        snprintf(room, sizeof places[0], "-");
    return room;
}

static bool is_table(const json_t *value)
{
    return json_is_array(value) && json_is_object(json_array_get(value, 0));
}

/* A table's columns: what its first row has, but objects and tables inside it. */
static bool is_column(const json_t *value)
{
    return !json_is_object(value) && !is_table(value);
}

/* How wide each column must be for the rows that are shown. */
static void measure_columns(const json_t *rows, int top, int widths[COLUMNS])
{
    size_t i;
    const json_t *row;
    const char *key;
    json_t *value;
    json_array_foreach(rows, i, row)
    {
        size_t column = 0;
        json_object_foreach((json_t *)row, key, value)
        {
            if (!is_column(value) || column == COLUMNS || (int)i >= top)
                continue;
            int name = (int)strlen(key), width = (int)strlen(inspect_value_text(key, value));
            width = width > name ? width : name;
            width = width > WIDEST ? WIDEST : width;
            widths[column] = widths[column] > width ? widths[column] : width;
            column++;
        }
    }
}

/* A row's values, or their names. */
static void print_row(const json_t *row, bool names, const int widths[COLUMNS], int indent)
{
    const char *key;
    json_t *value;
    size_t column = 0;
    printf("%*s", indent, "");
    json_object_foreach((json_t *)row, key, value)
    {
        if (!is_column(value) || column == COLUMNS)
            continue;
        printf("%-*.*s ", widths[column], WIDEST, names ? key : inspect_value_text(key, value));
        column++;
    }
    putchar('\n');
}

static void print_table(const char *name, const json_t *rows, int top, int indent)
{
    size_t count = json_array_size(rows);
    int widths[COLUMNS] = {0};
    measure_columns(rows, top, widths);
    printf("%*s%s, %zu:\n", indent, "", name, count);
    print_row(json_array_get(rows, 0), true, widths, indent + 2);
    for (size_t i = 0; i < count && (int)i < top; i++)
        print_row(json_array_get(rows, i), false, widths, indent + 2);
    if (count > (size_t)top)
        printf("%*s… %zu more\n", indent + 2, "", count - (size_t)top);
}

static void print_object(const json_t *about, int top, int indent)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)about, key, value)
    {
        if (json_is_object(value) || is_table(value) || strcmp(key, "points") == 0)
            continue;
        printf("%*s%-*s %s\n", indent, "", 26 - indent, key, inspect_value_text(key, value));
    }
    json_object_foreach((json_t *)about, key, value)
    {
        if (json_is_object(value) && json_object_size(value) > 0) {
            printf("%*s%s:\n", indent, "", key);
            print_object(value, top, indent + 2);
        } else if (is_table(value)) {
            print_table(key, value, top, indent);
        }
    }
}

void inspect_print(const json_t *about, int top)
{
    print_object(about, top, 0);
}
