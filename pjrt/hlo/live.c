/*
 * Memory over the step: which arrays are live while each instruction runs.
 *
 * A walk over the schedule of each computation, callees first. Every instruction either makes new
 * arrays or names ones that are there: elements of tuples, loops (whose state stays where it is),
 * updates in place, the ends of copies. An array lives from its maker to the last instruction that
 * takes it under any name. What a computation returns lies in its caller's arrays and costs nothing
 * inside; what it has beside that at its fullest is added while the caller's instruction runs.
 */
#include "pjrt/hlo/internal.h"

#include <stdlib.h>
#include <string.h>

#define WHOLE SIZE_MAX /* all elements of a value */

enum { TOP_ARRAYS = 16 };

/* One array of a value: which element of the tuple it is part of, 0 where there is no tuple. */
typedef struct ref {
    size_t element, array;
} ref;

typedef struct array {
    const hlo_instruction *maker;
    double bytes;
    size_t born, last; /* positions in the schedule */
} array;

/* One walk over a computation. */
typedef struct walk {
    const hlo_computation *c;
    const hlo_instruction **order;
    ref *refs; /* of all values, one value after the other */
    size_t ref_count, ref_room, ref_limit;
    size_t *first, *end; /* of each instruction's value in refs */
    array *arrays;
    size_t array_count, array_room;
    size_t position;
    double *live;  /* while the instruction at each position runs */
    double *dying; /* after it */
} walk;

typedef struct live {
    pjrt_hlo_live public;
    pjrt_hlo_live_point *points;
    pjrt_hlo_live_array arrays[TOP_ARRAYS];
    char *strings;
} live;

/* ---- values ---- */

static bool grow(void **list, size_t count, size_t *room, size_t size)
{
    if (count < *room)
        return true;
    size_t wanted = 2 * *room + 64;
    void *larger = realloc(*list, wanted * size);
    if (larger == NULL)
        return false;
    *list = larger;
    *room = wanted;
    return true;
}

static size_t index_of(const hlo_instruction *in)
{
    return (size_t)(in - in->home->instructions);
}

/* Tuples of tuples that name the same array over and over are no real program. */
static pjrt_status *add_ref(walk *w, size_t element, size_t id)
{
    if (w->ref_count >= w->ref_limit)
        return PJRT_FAIL(RESOURCE_EXHAUSTED, "pjrt_hlo_live_create",
                         "tuples name far more arrays than there are: " HLO_NAME,
                         w->c->proto->name);
    if (!grow((void **)&w->refs, w->ref_count, &w->ref_room, sizeof *w->refs))
        return HLO_NO_MEMORY();
    w->refs[w->ref_count++] = (ref){.element = element, .array = id};
    return NULL;
}

static pjrt_status *add_new(walk *w, const hlo_instruction *in, size_t element, double bytes)
{
    if (!grow((void **)&w->arrays, w->array_count, &w->array_room, sizeof *w->arrays))
        return HLO_NO_MEMORY();
    w->arrays[w->array_count] =
        (array){.maker = in, .bytes = bytes, .born = w->position, .last = w->position};
    return add_ref(w, element, w->array_count++);
}

/* The arrays of `from`, or of one element of it, as part of element `to` of the value in the
 * making; WHOLE: of the elements they were of. */
static pjrt_status *add_same(walk *w, const hlo_instruction *from, size_t element, size_t to)
{
    size_t i = w->first[index_of(from)], end = w->end[index_of(from)];
    for (; i < end; i++) {
        ref r = w->refs[i];
        if (element == WHOLE || r.element == element)
            PJRT_TRY(add_ref(w, to == WHOLE ? r.element : to, r.array));
    }
    return NULL;
}

static size_t elements_of(const hlo_instruction *in)
{
    const TttXla__ShapeProto *shape = in->proto->shape;
    return shape->n_tuple_shapes > 0 ? shape->n_tuple_shapes : 1;
}

static pjrt_status *add_new_element(walk *w, const hlo_instruction *in, size_t element)
{
    hlo_size size;
    PJRT_TRY(hlo_shape_measure(in->proto->shape, (int64_t)element, &size));
    return add_new(w, in, element, size.main_bytes);
}

/* ---- what is made in place ---- */

static const hlo_instruction *behind(const hlo_instruction *in, hlo_op op)
{
    for (size_t i = 0; in->op == op && i < in->home->instruction_count; i++)
        in = in->operands[0];
    return in;
}

/* The operand of a fusion that an update in place at its end updates; NULL for none. */
static const hlo_instruction *updated_operand(const hlo_instruction *fusion, size_t element)
{
    const hlo_instruction *root = fusion->called[0]->root;
    if (root->op == HLO_TUPLE && element < root->operand_count)
        root = root->operands[element];
    root = behind(root, HLO_BITCAST);
    if (root->op != HLO_DYNAMIC_UPDATE_SLICE && root->op != HLO_SCATTER)
        return NULL;
    const hlo_instruction *from = behind(root->operands[0], HLO_BITCAST);
    return from->op == HLO_PARAMETER ? fusion->operands[from->proto->parameter_number] : NULL;
}

static const TttXla__OutputOperandAliasing *find_aliasing(const hlo_instruction *in, size_t element)
{
    const TttXla__HloInstructionProto *proto = in->proto;
    for (size_t i = 0; i < proto->n_output_operand_aliasing; i++) {
        const TttXla__OutputOperandAliasing *a = proto->output_operand_aliasing[i];
        size_t output = a->n_output_shape_index > 0 ? (size_t)a->output_shape_index[0] : (size_t)0;
        if (output == element && a->operand_index >= 0 &&
            (uint64_t)a->operand_index < in->operand_count)
            return a;
    }
    return NULL;
}

static pjrt_status *make_element(walk *w, const hlo_instruction *in, size_t element)
{
    const TttXla__OutputOperandAliasing *told = find_aliasing(in, element);
    if (told != NULL)
        return add_same(w, in->operands[told->operand_index],
                        told->n_operand_shape_index > 0 ? (size_t)told->operand_shape_index[0]
                                                        : WHOLE,
                        element);
    const hlo_instruction *updated = NULL;
    if (in->op == HLO_FUSION)
        updated = updated_operand(in, element);
    else if (in->op == HLO_DYNAMIC_UPDATE_SLICE || in->op == HLO_SCATTER)
        updated = in->operands[element < in->operand_count ? element : 0];
    return updated != NULL ? add_same(w, updated, WHOLE, element) : add_new_element(w, in, element);
}

/* Starts give (new, operand, …) or (operands, new, …) or just what is new. */
static pjrt_status *make_start(walk *w, const hlo_instruction *in)
{
    size_t same = WHOLE;
    if (in->op == HLO_COPY_START)
        same = 1;
    else if (in->op != HLO_ALL_REDUCE_START && in->op != HLO_SEND)
        same = 0;
    for (size_t i = 0; i < elements_of(in); i++) {
        if (i != same) {
            PJRT_TRY(add_new_element(w, in, i));
            continue;
        }
        for (size_t j = 0; j < in->operand_count; j++)
            PJRT_TRY(add_same(w, in->operands[j], WHOLE, i));
    }
    return NULL;
}

static pjrt_status *make_done(walk *w, const hlo_instruction *in)
{
    const hlo_instruction *start = in->operands[0];
    if (in->op == HLO_ALL_REDUCE_DONE)
        return add_same(w, start, WHOLE, WHOLE);
    return add_same(w, start, in->op == HLO_COPY_DONE ? 0 : 1, 0);
}

static pjrt_status *make_value(walk *w, const hlo_instruction *in)
{
    switch (in->op) {
    case HLO_PARAMETER:
    case HLO_CONSTANT:
        for (size_t i = 0; i < elements_of(in); i++)
            PJRT_TRY(add_new(w, in, i, 0));
        return NULL;
    case HLO_TUPLE:
        for (size_t i = 0; i < in->operand_count; i++)
            PJRT_TRY(add_same(w, in->operands[i], WHOLE, i));
        return NULL;
    case HLO_GET_TUPLE_ELEMENT:
        return add_same(w, in->operands[0], (size_t)in->proto->tuple_index, 0);
    case HLO_BITCAST:
    case HLO_OPT_BARRIER:
    case HLO_ADD_DEPENDENCY:
    case HLO_DOMAIN:
    case HLO_WHILE:
    case HLO_ASYNC_UPDATE:
        return add_same(w, in->operands[0], WHOLE, WHOLE);
    case HLO_ASYNC_START:
        return make_start(w, in);
    case HLO_ASYNC_DONE:
        return make_done(w, in);
    default:
        break;
    }
    if (in->class == HLO_CLASS_START)
        return make_start(w, in);
    if (in->class == HLO_CLASS_DONE && in->op != HLO_RECV_DONE)
        return make_done(w, in);
    for (size_t i = 0; i < elements_of(in); i++)
        PJRT_TRY(make_element(w, in, i));
    return NULL;
}

/* ---- one computation ---- */

static pjrt_status *make_values(walk *w)
{
    for (w->position = 0; w->position < w->c->instruction_count; w->position++) {
        const hlo_instruction *in = w->order[w->position];
        w->first[index_of(in)] = w->ref_count;
        PJRT_TRY(make_value(w, in));
        w->end[index_of(in)] = w->ref_count;
        for (size_t i = 0; i < in->operand_count; i++) {
            size_t at = w->first[index_of(in->operands[i])];
            for (; at < w->end[index_of(in->operands[i])]; at++)
                w->arrays[w->refs[at].array].last = w->position;
        }
    }
    return NULL;
}

/* Which elements of the program's result lie in arguments that were donated. */
static bool *lent_elements(const hlo_module *m)
{
    const TttXla__HloInputOutputAliasProto *aliases = m->proto->input_output_alias;
    size_t count = elements_of(m->entry->root);
    bool *lent = hlo_alloc(count, sizeof *lent);
    for (size_t i = 0; lent != NULL && aliases != NULL && i < aliases->n_entries; i++) {
        const TttXla__HloInputOutputAliasProto__AliasEntryProto *e = aliases->entries[i];
        size_t element = e->n_output_shape_index == 0 ? 0 : (size_t)e->output_shape_index[0];
        if (element < count)
            lent[element] = true;
    }
    return lent;
}

/* What is returned is there to the end. Inside it lies in the arrays of others: those of the
 * caller, or of an argument that was donated. */
static pjrt_status *keep_results(walk *w, const hlo_module *m)
{
    size_t root = index_of(w->c->root), count = elements_of(m->entry->root);
    bool *lent = lent_elements(m);
    if (lent == NULL)
        return HLO_NO_MEMORY();
    for (size_t i = w->first[root]; i < w->end[root]; i++) {
        array *a = &w->arrays[w->refs[i].array];
        size_t element = w->refs[i].element;
        a->last = w->c->instruction_count - 1;
        if (w->c != m->entry || (element < count && lent[element]))
            a->bytes = 0;
    }
    free(lent);
    return NULL;
}

/* The most that one of the computations it runs adds. */
static double inside(const hlo_module *m, const double *fullest, const hlo_instruction *in)
{
    double most = 0;
    for (size_t i = 0; i < in->called_count; i++) {
        double one = hlo_runs(in, i) ? fullest[in->called[i] - m->computations] : 0;
        most = one > most ? one : most;
    }
    return most;
}

static double sweep(walk *w, const hlo_module *m, const double *fullest)
{
    double now = 0, most = 0;
    for (size_t i = 0; i < w->array_count; i++) {
        w->live[w->arrays[i].born] += w->arrays[i].bytes;
        w->dying[w->arrays[i].last] += w->arrays[i].bytes;
    }
    for (size_t i = 0; i < w->c->instruction_count; i++) {
        now += w->live[i];
        w->live[i] = now + inside(m, fullest, w->order[i]);
        most = w->live[i] > most ? w->live[i] : most;
        now -= w->dying[i];
    }
    return most;
}

static void free_walk(walk *w)
{
    free(w->order);
    free(w->refs);
    free(w->first);
    free(w->end);
    free(w->arrays);
    free(w->live);
    free(w->dying);
}

static pjrt_status *walk_computation(const hlo_module *m, const hlo_computation *c,
                                     const double *fullest, walk *w, double *most)
{
    size_t n = c->instruction_count;
    *w = (walk){.c = c, .ref_limit = (1 << 20) + 256 * n};
    PJRT_TRY(hlo_schedule(m, c, &w->order));
    w->first = hlo_alloc(n, sizeof *w->first);
    w->end = hlo_alloc(n, sizeof *w->end);
    w->live = hlo_alloc(n, sizeof *w->live);
    w->dying = hlo_alloc(n, sizeof *w->dying);
    if (w->first == NULL || w->end == NULL || w->live == NULL || w->dying == NULL)
        return HLO_NO_MEMORY();
    PJRT_TRY(make_values(w));
    PJRT_TRY(keep_results(w, m));
    *most = sweep(w, m, fullest);
    return NULL;
}

/* ---- the answer ---- */

static const char *keep(char **cursor, const char *text)
{
    size_t size = strlen(text) + 1;
    char *copy = *cursor;
    memcpy(copy, text, size);
    *cursor += size;
    return copy;
}

static int by_bytes(const void *a, const void *b)
{
    const array *x = a, *y = b;
    return x->bytes == y->bytes ? (x->born > y->born) - (x->born < y->born)
                                : (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

static double argument_bytes(const hlo_computation *entry)
{
    double bytes = 0;
    for (size_t i = 0; i < entry->instruction_count; i++)
        if (entry->instructions[i].op == HLO_PARAMETER)
            bytes += entry->instructions[i].size.main_bytes;
    return bytes;
}

static void fill_points(live *out, const walk *w, char **cursor)
{
    pjrt_hlo_live *p = &out->public;
    for (size_t i = 0; i < w->c->instruction_count; i++) {
        const hlo_instruction *in = w->order[i];
        if (in->class == HLO_CLASS_FREE)
            continue;
        out->points[p->point_count] = (pjrt_hlo_live_point){
            .name = keep(cursor, in->proto->name),
            .scope = keep(cursor, hlo_op_name(in)),
            .bytes = w->live[i] + p->argument_bytes,
        };
        if (out->points[p->point_count].bytes > out->points[p->peak].bytes)
            p->peak = p->point_count;
        p->point_count++;
    }
    p->peak_bytes = p->point_count == 0 ? p->argument_bytes : out->points[p->peak].bytes;
}

/* The largest arrays of the fullest moment; what a loop has inside counts as one. */
static void fill_arrays(live *out, walk *w, const hlo_module *m, const double *fullest,
                        char **cursor)
{
    size_t peak = 0;
    for (size_t i = 0; i < w->c->instruction_count; i++)
        if (w->order[i]->class != HLO_CLASS_FREE &&
            (w->order[peak]->class == HLO_CLASS_FREE || w->live[i] > w->live[peak]))
            peak = i;
    for (size_t i = 0; i < w->array_count; i++)
        if (w->arrays[i].born > peak || w->arrays[i].last < peak)
            w->arrays[i].bytes = 0;
    double loop = inside(m, fullest, w->order[peak]);
    qsort(w->arrays, w->array_count, sizeof *w->arrays, by_bytes);
    pjrt_hlo_live *p = &out->public;
    if (loop > 0)
        out->arrays[p->array_count++] = (pjrt_hlo_live_array){
            .name = keep(cursor, w->order[peak]->proto->name), .scope = "inside", .bytes = loop};
    for (size_t i = 0; i < w->array_count && p->array_count < TOP_ARRAYS; i++)
        if (w->arrays[i].bytes > 0)
            out->arrays[p->array_count++] = (pjrt_hlo_live_array){
                .name = keep(cursor, w->arrays[i].maker->proto->name),
                .scope = keep(cursor, hlo_op_name(w->arrays[i].maker)),
                .bytes = w->arrays[i].bytes,
            };
}

static pjrt_status *fill(live *out, walk *w, const hlo_module *m, const double *fullest)
{
    size_t room = 1, longest = 0;
    for (size_t i = 0; i < w->c->instruction_count; i++) {
        size_t names = strlen(w->order[i]->proto->name) + strlen(hlo_op_name(w->order[i])) + 2;
        room += names;
        longest = names > longest ? names : longest;
    }
    room += TOP_ARRAYS * longest;
    out->points = hlo_alloc(w->c->instruction_count, sizeof *out->points);
    out->strings = malloc(room);
    if (out->points == NULL || out->strings == NULL)
        return HLO_NO_MEMORY();
    char *cursor = out->strings;
    out->public.points = out->points;
    out->public.arrays = out->arrays;
    out->public.argument_bytes = argument_bytes(w->c);
    fill_points(out, w, &cursor);
    if (w->c->instruction_count > 0)
        fill_arrays(out, w, m, fullest, &cursor);
    return NULL;
}

static pjrt_status *walk_all(const hlo_module *m, double *fullest, live *out)
{
    pjrt_status *st = NULL;
    for (size_t i = 0; st == NULL && i < m->computation_count; i++) {
        const hlo_computation *c = m->order[i];
        walk w = {0};
        if (!c->reached || c->runs == 0)
            continue;
        st = walk_computation(m, c, fullest, &w, &fullest[c - m->computations]);
        if (st == NULL && c == m->entry)
            st = fill(out, &w, m, fullest);
        free_walk(&w);
    }
    return st;
}

pjrt_status *pjrt_hlo_live_create(const char *format, const void *bytes, size_t size,
                                  pjrt_hlo_live **out)
{
    *out = NULL;
    live *l = calloc(1, sizeof *l);
    if (l == NULL)
        return HLO_NO_MEMORY();
    hlo_module m = {0};
    double *fullest = NULL;
    pjrt_status *st = hlo_module_decode(&m, format, bytes, size);
    if (st == NULL)
        st = hlo_module_cost(&m);
    if (st == NULL) {
        fullest = hlo_alloc(m.computation_count, sizeof *fullest);
        st = fullest == NULL ? HLO_NO_MEMORY() : walk_all(&m, fullest, l);
    }
    free(fullest);
    hlo_module_free(&m);
    if (st != NULL)
        pjrt_hlo_live_free(&l->public);
    else
        *out = &l->public;
    return st;
}

void pjrt_hlo_live_free(pjrt_hlo_live *out)
{
    live *l = (live *)out; /* public is its first member */
    if (l == NULL)
        return;
    free(l->points);
    free(l->strings);
    free(l);
}
