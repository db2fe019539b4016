/*
 * Trip count of a loop.
 *
 * Some compilers record it (known_trip_count in the backend config). Otherwise it is derived if the
 * condition compares a counter with a constant, where the counter is a state element to which the
 * body adds a constant. Constants may come through the states of this loop and of enclosing loops;
 * all of it may be inside fusions and calls.
 *
 * A loop whose end depends on data has an unknown trip count (-1).
 */
#include "pjrt/hlo/internal.h"

#include <string.h>

enum {
    MAX_DEPTH = 64,   /* of the recursion */
    MAX_STEPS = 4096, /* instructions looked at for one loop: sums may share their operands */
    MAX_PATH = 4,     /* of tuples in tuples */
};

/* Which element of a tuple, in which tuple …: the outermost index is the last. */
typedef struct path {
    int length;
    int64_t index[MAX_PATH];
} path;

typedef struct value {
    enum {
        UNKNOWN,
        INTEGER, /* the number itself */
        STATE,   /* an element of the loop's state as the iteration began, plus the number */
        COMPARE, /* the outcome of search.left direction search.right */
    } kind;
    int64_t number;
    path element;
} value;

typedef struct search {
    int steps;
    value left, right;
    const char *direction;
} search;

/* How to resolve parameters. Inside a fusion or call they are the operands of `call`; at the top of
 * a loop's body or condition they are the loop state; elsewhere they are the arguments passed by
 * the computation's only caller. */
typedef struct call_frame {
    const hlo_instruction *call; /* NULL at the top */
    const struct call_frame *outer;
    bool state;
} call_frame;

static value evaluate(search *s, const call_frame *p, const hlo_instruction *in, path element,
                      int depth);

static const value unknown = {.kind = UNKNOWN};

static bool same_path(const path *a, const path *b)
{
    if (a->length != b->length)
        return false;
    for (int i = 0; i < a->length; i++)
        if (a->index[i] != b->index[i])
            return false;
    return true;
}

static value integer(int64_t number)
{
    return (value){.kind = INTEGER, .number = number};
}

/* Little-endian bytes of a 16-bit element. */
static int64_t half_word(const ProtobufCBinaryData *bytes)
{
    return bytes->data[0] | bytes->data[1] << 8;
}

static value constant(const hlo_instruction *in)
{
    const TttXla__LiteralProto *literal = in->proto->literal;
    if (literal == NULL || in->size.elements != 1)
        return unknown;
    if (literal->n_s32s == 1)
        return integer(literal->s32s[0]);
    if (literal->n_s64s == 1)
        return integer(literal->s64s[0]);
    if (literal->n_u32s == 1)
        return integer(literal->u32s[0]);
    if (literal->n_u64s == 1 && literal->u64s[0] <= INT64_MAX)
        return integer((int64_t)literal->u64s[0]);
    if (literal->s8s.len == 1)
        return integer((int8_t)literal->s8s.data[0]);
    if (literal->u8s.len == 1)
        return integer(literal->u8s.data[0]);
    if (literal->s16s.len == 2)
        return integer((int16_t)half_word(&literal->s16s));
    if (literal->u16s.len == 2)
        return integer(half_word(&literal->u16s));
    return unknown;
}

/* Value of a state element after one iteration. */
static value next_state(search *s, const hlo_instruction *loop, path element, int depth)
{
    call_frame body = {.state = true};
    return evaluate(s, &body, loop->called[0]->root, element, depth);
}

static bool is_invariant(search *s, const hlo_instruction *loop, path element, int depth)
{
    value next = next_state(s, loop, element, depth);
    return next.kind == STATE && next.number == 0 && same_path(&next.element, &element);
}

/* Argument that the computation's only caller passes for `parameter`. */
static value caller_argument(search *s, const hlo_computation *c, int64_t parameter, path element,
                             int depth)
{
    const hlo_instruction *caller = c->caller;
    call_frame top = {.state = false};
    if (caller == NULL)
        return unknown;
    switch (caller->op) {
    case HLO_CALL:
    case HLO_ASYNC_START:
        return evaluate(s, &top, caller->operands[parameter], element, depth);
    case HLO_CONDITIONAL:
        for (size_t i = 0; i < caller->called_count; i++)
            if (caller->called[i] == c)
                return evaluate(s, &top, caller->operands[i + 1], element, depth);
        return unknown;
    case HLO_WHILE:
        if (!is_invariant(s, caller, element, depth))
            return unknown;
        return evaluate(s, &top, caller->operands[0], element, depth);
    default:
        return unknown;
    }
}

static value parameter(search *s, const call_frame *p, const hlo_instruction *in, path element,
                       int depth)
{
    int64_t number = in->proto->parameter_number;
    if (p->call != NULL)
        return evaluate(s, p->outer, p->call->operands[number], element, depth);
    if (p->state)
        return (value){.kind = STATE, .element = element};
    return caller_argument(s, in->home, number, element, depth);
}

static value sum(search *s, const call_frame *p, const hlo_instruction *in, path element, int depth)
{
    value a = evaluate(s, p, in->operands[0], element, depth);
    value b = evaluate(s, p, in->operands[1], element, depth);
    bool minus = in->op == HLO_SUBTRACT;
    if (a.kind == INTEGER && b.kind == STATE && !minus) {
        value swap = a;
        a = b;
        b = swap;
    }
    if ((a.kind != INTEGER && a.kind != STATE) || b.kind != INTEGER)
        return unknown;
    if (minus ? __builtin_sub_overflow(a.number, b.number, &a.number)
              : __builtin_add_overflow(a.number, b.number, &a.number))
        return unknown;
    return a;
}

static value evaluate(search *s, const call_frame *p, const hlo_instruction *in, path element,
                      int depth)
{
    if (depth >= MAX_DEPTH || s->steps++ >= MAX_STEPS)
        return unknown;
    depth++;
    switch (in->op) {
    case HLO_CONSTANT:
        return element.length == 0 ? constant(in) : unknown;
    case HLO_PARAMETER:
        return parameter(s, p, in, element, depth);
    case HLO_GET_TUPLE_ELEMENT:
        if (element.length == MAX_PATH)
            return unknown;
        element.index[element.length++] = in->proto->tuple_index;
        return evaluate(s, p, in->operands[0], element, depth);
    case HLO_TUPLE: {
        int64_t i = element.length == 0 ? -1 : element.index[--element.length];
        if (i < 0 || (uint64_t)i >= in->operand_count)
            return unknown;
        return evaluate(s, p, in->operands[i], element, depth);
    }
    case HLO_BITCAST:
    case HLO_CONVERT:
    case HLO_COPY:
    case HLO_COPY_DONE:
    case HLO_COPY_START:
    case HLO_OPT_BARRIER:
    case HLO_RESHAPE:
        return evaluate(s, p, in->operands[0], element, depth);
    case HLO_ADD:
    case HLO_SUBTRACT:
        return sum(s, p, in, element, depth);
    case HLO_CALL:
    case HLO_FUSION: {
        call_frame inside = {.call = in, .outer = p};
        return evaluate(s, &inside, in->called[0]->root, element, depth);
    }
    case HLO_WHILE:
        if (!is_invariant(s, in, element, depth))
            return unknown;
        return evaluate(s, p, in->operands[0], element, depth);
    case HLO_COMPARE: {
        value left = evaluate(s, p, in->operands[0], element, depth);
        value right = evaluate(s, p, in->operands[1], element, depth);
        s->left = left;
        s->right = right;
        s->direction = in->proto->comparison_direction;
        return (value){.kind = COMPARE};
    }
    default:
        return unknown;
    }
}

/* One side of the condition's comparison: start, start + step, start + 2 step … */
typedef struct progression {
    int64_t start, step;
} progression;

static bool follow(search *s, const hlo_instruction *loop, value side, progression *out)
{
    *out = (progression){.start = side.number};
    if (side.kind == INTEGER)
        return true;
    if (side.kind != STATE)
        return false;
    value next = next_state(s, loop, side.element, 0);
    if (next.kind != STATE || !same_path(&next.element, &side.element))
        return false;
    call_frame top = {.state = false};
    value first = evaluate(s, &top, loop->operands[0], side.element, 0);
    out->step = next.number;
    return first.kind == INTEGER && !__builtin_add_overflow(first.number, side.number, &out->start);
}

/* How often (left + k step) < right holds, for k = 0, 1 …; -1 when for ever. */
static int64_t count_below(int64_t left, int64_t step, int64_t right)
{
    int64_t distance;
    if (left >= right)
        return 0;
    if (step <= 0 || __builtin_sub_overflow(right, left, &distance))
        return -1;
    return distance / step + (distance % step != 0);
}

static int64_t count_trips(progression left, progression right, const char *direction)
{
    const int64_t big = INT64_MAX / 4;
    if (left.step != 0 && right.step != 0)
        return -1;
    /* All numbers stay far from the ends of the range, so that the steps below cannot overflow. */
    const int64_t numbers[] = {left.start, left.step, right.start, right.step};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i] > big || numbers[i] < -big)
            return -1;
    /* left < right, as far as steps go: only the difference matters. */
    int64_t gap = right.start - left.start, step = left.step - right.step;
    if (strcmp(direction, "LT") == 0)
        return count_below(0, step, gap);
    if (strcmp(direction, "LE") == 0)
        return count_below(0, step, gap + 1);
    if (strcmp(direction, "GT") == 0)
        return count_below(0, -step, -gap);
    if (strcmp(direction, "GE") == 0)
        return count_below(0, -step, -gap + 1);
    if (strcmp(direction, "NE") == 0) {
        if (gap == 0)
            return 0;
        return step != 0 && gap % step == 0 && gap / step > 0 ? gap / step : -1;
    }
    if (strcmp(direction, "EQ") == 0)
        return gap != 0 ? 0 : step != 0 ? 1 : -1;
    return -1;
}

int64_t hlo_trip_count(const hlo_instruction *loop)
{
    hlo_json config = hlo_backend_config(loop), known;
    int64_t count;
    if (hlo_json_find(config, "known_trip_count", &known) && hlo_json_find(known, "n", &known) &&
        hlo_json_integer(known, &count) && count >= 0)
        return count;
    search s = {0};
    call_frame condition = {.state = true};
    value outcome = evaluate(&s, &condition, loop->called[1]->root, (path){0}, 0);
    if (outcome.kind != COMPARE)
        return -1;
    value left = s.left, right = s.right;
    progression from, to;
    const char *direction = s.direction;
    if (!follow(&s, loop, left, &from) || !follow(&s, loop, right, &to))
        return -1;
    return count_trips(from, to, direction);
}
