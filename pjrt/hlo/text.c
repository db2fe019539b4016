/*
 * What stands in the text of a program: one pass from its beginning to its end, over names, strings
 * and braces. Everything it keeps points into a copy of the text until the end.
 */
#include "pjrt/hlo/pjrt_hlo.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define CALL "pjrt_hlo_text_create"

enum { MAX_LOOP_DEPTH = 64 };

/* A loop that is open: it has a condition and a body, each in braces. */
typedef struct open_loop {
    size_t index;
    int braces, closed; /* how deep it stands; regions that are through */
    bool inside;        /* one of its regions is open */
    int64_t constant;   /* the last whole number in its condition */
} open_loop;

typedef struct span {
    const char *at;
    size_t length;
} span;

typedef struct value {
    span name, type;
} value;

typedef struct list {
    void *items;
    size_t count, room;
} list;

typedef struct scan {
    const char *start, *at, *end;
    size_t line;
    int braces;
    span module;
    list ops; /* spans */
    list loops, arguments, results;
    size_t functions;
    open_loop open[MAX_LOOP_DEPTH];
    int open_count;
    bool stablehlo; /* one of its operations was met */
    bool out_of_memory;
} scan;

typedef struct summary {
    pjrt_hlo_text public;
    pjrt_hlo_tally *ops;
    pjrt_hlo_text_value *values;
    pjrt_hlo_text_loop *loops;
    char *strings;
} summary;

/* ---- text ---- */

static void *push(scan *s, list *l, size_t size)
{
    if (l->count == l->room) {
        size_t room = 2 * l->room + 32;
        void *larger = realloc(l->items, room * size);
        if (larger == NULL) {
            s->out_of_memory = true;
            return NULL;
        }
        l->items = larger;
        l->room = room;
    }
    return memset((char *)l->items + size * l->count++, 0, size);
}

static bool is_name(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '.' || c == '$';
}

static void step(scan *s)
{
    s->line += *s->at == '\n';
    s->at++;
}

static void skip_space(scan *s)
{
    while (s->at < s->end && isspace((unsigned char)*s->at))
        step(s);
}

/* What stands between the quotes at s->at, which moves behind them. */
static span take_string(scan *s)
{
    span text = {.at = ++s->at};
    while (s->at < s->end && *s->at != '"') {
        if (*s->at == '\\' && s->end - s->at > 1)
            s->at++;
        step(s);
    }
    text.length = (size_t)(s->at - text.at);
    if (s->at < s->end)
        s->at++;
    return text;
}

static span take_name(scan *s)
{
    span name = {.at = s->at};
    while (s->at < s->end && is_name(*s->at))
        s->at++;
    name.length = (size_t)(s->at - name.at);
    return name;
}

static bool is(span name, const char *text)
{
    return name.length == strlen(text) && memcmp(name.at, text, name.length) == 0;
}

static bool begins(const scan *s, const char *text)
{
    size_t length = strlen(text);
    return (size_t)(s->end - s->at) >= length && memcmp(s->at, text, length) == 0;
}

/* ---- operations ---- */

/* The whole number of "dense<4>" behind a constant; -1 for others. */
static int64_t constant_behind(const scan *s)
{
    scan ahead = *s;
    int64_t number = 0;
    skip_space(&ahead);
    if (!begins(&ahead, "dense<"))
        return -1;
    const char *digit = ahead.at += 6;
    for (; ahead.at < s->end && *ahead.at >= '0' && *ahead.at <= '9'; ahead.at++)
        if (__builtin_mul_overflow(number, 10, &number) ||
            __builtin_add_overflow(number, *ahead.at - '0', &number))
            return -1;
    return ahead.at > digit && ahead.at < s->end && *ahead.at == '>' ? number : -1;
}

static pjrt_hlo_text_loop *loop_at(const scan *s, size_t index)
{
    return (pjrt_hlo_text_loop *)s->loops.items + index;
}

static void open_a_loop(scan *s)
{
    pjrt_hlo_text_loop *loop = push(s, &s->loops, sizeof *loop);
    if (loop == NULL)
        return;
    loop->line = s->line;
    loop->depth = s->open_count;
    loop->parent = s->open_count == 0 ? -1 : (ptrdiff_t)s->open[s->open_count - 1].index;
    loop->below = -1;
    if (s->open_count < MAX_LOOP_DEPTH)
        s->open[s->open_count++] =
            (open_loop){.index = s->loops.count - 1, .braces = s->braces, .constant = -1};
}

static void note_operation(scan *s, span name)
{
    span *op = push(s, &s->ops, sizeof *op);
    if (op == NULL)
        return;
    *op = name;
    s->stablehlo |= name.length > 10 && memcmp(name.at, "stablehlo.", 10) == 0;
    for (int i = 0; i < s->open_count; i++)
        loop_at(s, s->open[i].index)->operations += s->open[i].inside;
    open_loop *inner = s->open_count > 0 ? &s->open[s->open_count - 1] : NULL;
    bool condition = inner != NULL && inner->inside && inner->closed == 0;
    if (condition && is(name, "stablehlo.constant"))
        inner->constant = constant_behind(s);
    skip_space(s);
    if (condition && is(name, "stablehlo.compare") && begins(s, "LT"))
        loop_at(s, inner->index)->below = inner->constant;
    if (is(name, "stablehlo.while"))
        open_a_loop(s);
    s->functions += is(name, "func.func");
}

/* ---- braces ---- */

/* Whether the brace at s->at opens a region of an operation, not a list of attributes. */
static bool opens_region(const scan *s)
{
    const char *before = s->at;
    while (before > s->start && isspace((unsigned char)before[-1]))
        before--;
    size_t length = (size_t)(before - s->start);
    return (length >= 4 && memcmp(before - 4, "cond", 4) == 0) ||
           (length >= 2 && memcmp(before - 2, "do", 2) == 0) ||
           (length >= 1 && (before[-1] == '(' || before[-1] == ','));
}

static void open_brace(scan *s)
{
    open_loop *inner = s->open_count > 0 ? &s->open[s->open_count - 1] : NULL;
    if (inner != NULL && !inner->inside && inner->braces == s->braces && opens_region(s))
        inner->inside = true;
    s->braces++;
}

static void close_brace(scan *s)
{
    s->braces--;
    open_loop *inner = s->open_count > 0 ? &s->open[s->open_count - 1] : NULL;
    if (inner == NULL || s->braces > inner->braces)
        return;
    if (inner->inside) {
        inner->inside = false;
        inner->closed++;
    }
    if (inner->closed == 2 || s->braces < inner->braces)
        s->open_count--;
}

/* ---- the signature of @main ---- */

/* A type: a name and what stands in its brackets. */
static span take_type(scan *s)
{
    span type = {.at = s->at};
    int angles = 0;
    while (s->at < s->end) {
        if (*s->at == '<')
            angles++;
        else if (*s->at == '>')
            angles--;
        else if (angles <= 0 && !is_name(*s->at) && *s->at != '!')
            break;
        step(s);
        if (angles == 0 && s->at[-1] == '>')
            break;
    }
    type.length = (size_t)(s->at - type.at);
    return type;
}

/* To the comma or the parenthesis behind a value; a location on the way may name it. */
static void finish_value(scan *s, value *v)
{
    int depth = 0;
    while (s->at < s->end) {
        bool location = begins(s, "loc(\"");
        if (location)
            s->at += 4;
        if (*s->at == '"') {
            span text = take_string(s);
            if (location)
                v->name = text;
            depth += location; /* its closing parenthesis comes next */
            continue;
        }
        if (depth == 0 && (*s->at == ',' || *s->at == ')'))
            return;
        depth += strchr("([{<", *s->at) != NULL && *s->at != '\0';
        depth -= strchr(")]}>", *s->at) != NULL && *s->at != '\0';
        if (depth < 0)
            return;
        step(s);
    }
}

/* "%a: tensor<4xf32> {…} loc("x"), …)" or types alone, up to the closing parenthesis. */
static void take_values(scan *s, list *to)
{
    while (s->at < s->end && *s->at != ')') {
        value v = {{0}};
        skip_space(s);
        if (s->at < s->end && *s->at == '%') {
            s->at++;
            v.name = take_name(s);
            skip_space(s);
            if (s->at < s->end && *s->at == ':')
                s->at++;
            skip_space(s);
        }
        v.type = take_type(s);
        finish_value(s, &v);
        value *kept = v.type.length == 0 ? NULL : push(s, to, sizeof *kept);
        if (kept != NULL)
            *kept = v;
        if (s->at < s->end && *s->at == ',')
            s->at++;
        else if (s->at < s->end && *s->at != ')')
            return;
    }
    if (s->at < s->end)
        s->at++;
}

static void take_signature(scan *s)
{
    if (s->arguments.count > 0 || s->results.count > 0)
        return; /* a second one of the name is not looked at */
    s->at++;    /* the parenthesis */
    take_values(s, &s->arguments);
    skip_space(s);
    if (!begins(s, "->"))
        return;
    s->at += 2;
    skip_space(s);
    if (s->at < s->end && *s->at == '(') {
        s->at++;
        take_values(s, &s->results);
        return;
    }
    value *v = push(s, &s->results, sizeof *v);
    if (v != NULL)
        v->type = take_type(s);
}

/* ---- the pass ---- */

static void skip_comment(scan *s)
{
    while (s->at < s->end && *s->at != '\n')
        s->at++;
}

/* A name with a dot is an operation, unless it names an attribute (an equals sign follows) or a
 * type (brackets do). */
static void note_name(scan *s)
{
    bool marked = s->at > s->start && strchr("#!@%^", s->at[-1]) != NULL && s->at[-1] != '\0';
    char mark = marked ? s->at[-1] : '\0';
    span name = take_name(s);
    scan ahead = *s;
    skip_space(&ahead);
    char next = ahead.at < s->end ? *ahead.at : '\0';
    if (mark == '@' && is(name, "main") && next == '(') {
        s->at = ahead.at;
        s->line = ahead.line;
        take_signature(s);
    } else if (!marked && memchr(name.at, '.', name.length) != NULL &&
               !isdigit((unsigned char)name.at[0]) && next != '=' && next != '<') {
        note_operation(s, name);
    } else if (is(name, "module") && next == '@' && s->module.at == NULL) {
        *s = ahead;
        s->at++;
        s->module = take_name(s);
    }
}

static void note_string(scan *s)
{
    span text = take_string(s);
    bool quoted_op = s->at < s->end && *s->at == '(' && text.length > 0 &&
                     memchr(text.at, '.', text.length) != NULL;
    for (size_t i = 0; quoted_op && i < text.length; i++)
        quoted_op = is_name(text.at[i]);
    if (quoted_op)
        note_operation(s, text);
}

static void pass(scan *s)
{
    while (s->at < s->end && !s->out_of_memory) {
        if (begins(s, "//"))
            skip_comment(s);
        else if (*s->at == '"')
            note_string(s);
        else if (is_name(*s->at))
            note_name(s);
        else if (*s->at == '{')
            open_brace(s), s->at++;
        else if (*s->at == '}')
            close_brace(s), s->at++;
        else
            step(s);
    }
}

/* ---- the answer ---- */

/* "tensor<4x128xbf16>"; 0 for what is no array of known size. */
static double type_bytes(span type)
{
    static const struct {
        const char *name;
        double bytes;
    } types[] = {{"f64", 8},  {"f32", 4}, {"bf16", 2}, {"f16", 2}, {"i64", 8},
                 {"ui64", 8}, {"i32", 4}, {"ui32", 4}, {"i16", 2}, {"ui16", 2},
                 {"i8", 1},   {"ui8", 1}, {"i1", 1}};
    const char *at = type.at, *end = type.at + type.length;
    double elements = 1;
    if (type.length < 9 || memcmp(at, "tensor<", 7) != 0 || end[-1] != '>')
        return 0;
    at += 7;
    end--;
    while (at < end && isdigit((unsigned char)*at)) {
        double side = 0;
        for (; at < end && isdigit((unsigned char)*at); at++)
            side = 10 * side + (*at - '0');
        if (at == end || *at++ != 'x')
            return 0;
        elements *= side;
    }
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (is((span){.at = at, .length = (size_t)(end - at)}, types[i].name))
            return elements < 1e100 ? elements * types[i].bytes : 0;
    return 0;
}

static int by_name(const void *a, const void *b)
{
    const span *x = a, *y = b;
    size_t shorter = x->length < y->length ? x->length : y->length;
    int order = memcmp(x->at, y->at, shorter);
    return order != 0 ? order : (x->length > y->length) - (x->length < y->length);
}

static int by_count(const void *a, const void *b)
{
    const pjrt_hlo_tally *x = a, *y = b;
    return x->count == y->count ? strcmp(x->name, y->name)
                                : (x->count < y->count) - (x->count > y->count);
}

static const char *keep(char **cursor, span text)
{
    char *copy = *cursor;
    if (text.length > 0)
        memcpy(copy, text.at, text.length);
    copy[text.length] = '\0';
    *cursor += text.length + 1;
    return copy;
}

static void fill_ops(scan *s, summary *out, char **cursor)
{
    span *names = s->ops.items;
    qsort(names, s->ops.count, sizeof *names, by_name);
    for (size_t i = 0; i < s->ops.count; i++) {
        if (i == 0 || by_name(&names[i - 1], &names[i]) != 0)
            out->ops[out->public.op_count++].name = keep(cursor, names[i]);
        out->ops[out->public.op_count - 1].count++;
    }
    qsort(out->ops, out->public.op_count, sizeof *out->ops, by_count);
}

static void fill_values(const list *from, pjrt_hlo_text_value *to, char **cursor)
{
    const value *values = from->items;
    for (size_t i = 0; i < from->count; i++)
        to[i] = (pjrt_hlo_text_value){.name = keep(cursor, values[i].name),
                                      .type = keep(cursor, values[i].type),
                                      .bytes = type_bytes(values[i].type)};
}

static pjrt_status *fill(scan *s, summary *out)
{
    size_t values = s->arguments.count + s->results.count;
    /* Names are distinct stretches of the text: all of them and their ends fit in this. */
    size_t room = (size_t)(s->end - s->start) + s->ops.count + 2 * values + 2;
    out->strings = malloc(room);
    out->ops = calloc(s->ops.count + 1, sizeof *out->ops);
    out->values = calloc(values + 1, sizeof *out->values);
    if (out->strings == NULL || out->ops == NULL || out->values == NULL || s->out_of_memory)
        return PJRT_NO_MEMORY(CALL);
    char *cursor = out->strings;
    pjrt_hlo_text *p = &out->public;
    out->loops = s->loops.items; /* taken over */
    s->loops.items = NULL;
    p->module = keep(&cursor, s->module);
    p->lines = s->line;
    p->functions = s->functions;
    p->operations = s->ops.count;
    p->loops = out->loops;
    p->loop_count = s->loops.count;
    fill_ops(s, out, &cursor);
    p->ops = out->ops;
    fill_values(&s->arguments, out->values, &cursor);
    fill_values(&s->results, out->values + s->arguments.count, &cursor);
    p->arguments = out->values;
    p->argument_count = s->arguments.count;
    p->results = out->values + s->arguments.count;
    p->result_count = s->results.count;
    return NULL;
}

pjrt_status *pjrt_hlo_text_create(const char *text, size_t size, pjrt_hlo_text **out)
{
    *out = NULL;
    scan s = {.start = text, .at = text, .end = text + size, .line = 1};
    summary *result = calloc(1, sizeof *result);
    pjrt_status *st = NULL;
    if (result == NULL)
        return PJRT_NO_MEMORY(CALL);
    pass(&s);
    if (!s.stablehlo && !s.out_of_memory)
        st = PJRT_FAIL(INVALID_ARGUMENT, CALL, "no operation of StableHLO stands in the text");
    else
        st = fill(&s, result);
    free(s.ops.items);
    free(s.loops.items);
    free(s.arguments.items);
    free(s.results.items);
    if (st != NULL)
        pjrt_hlo_text_free(&result->public);
    else
        *out = &result->public;
    return st;
}

void pjrt_hlo_text_free(pjrt_hlo_text *out)
{
    summary *s = (summary *)out; /* public is its first member */
    if (s == NULL)
        return;
    free(s->ops);
    free(s->values);
    free(s->loops);
    free(s->strings);
    free(s);
}
