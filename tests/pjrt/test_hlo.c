/*
 * Reading optimized programs. Most programs here are built message by message, small enough to work
 * out their cost by hand; three come from real compilers (tests/data/hlo).
 */
#include "pjrt/hlo/pjrt_hlo.h"
#include "tests/support/hlo_program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static pjrt_status *try_report(const module *m, pjrt_hlo_report **out)
{
    size_t size;
    const uint8_t *bytes = packed(m, &size);
    return pjrt_hlo_report_create("hlo", bytes, size, out);
}

static pjrt_hlo_report *report_of(const module *m)
{
    pjrt_hlo_report *r;
    pjrt_status *st = try_report(m, &r);
    if (st != NULL)
        fail_msg("%s", pjrt_status_text(st));
    return r;
}

static void assert_refused(const module *m, const char *why)
{
    pjrt_hlo_report *r;
    pjrt_status *st = try_report(m, &r);
    assert_null(r);
    assert_int_equal(pjrt_status_code(st), PJRT_CODE_INVALID_ARGUMENT);
    if (strstr(pjrt_status_message(st), why) == NULL)
        fail_msg("'%s' is not in: %s", why, pjrt_status_message(st));
    pjrt_status_free(st);
}

static const pjrt_hlo_tally *find(const pjrt_hlo_tally *tallies, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(tallies[i].name, name) == 0)
            return &tallies[i];
    fail_msg("no row '%s'", name);
    return NULL;
}

/* ---- loops ---- */

/* A loop over (counter, limit, step), whose condition and body may look at any of the three. */
typedef struct loop_plan {
    int start, step, limit;
    const char *direction;
    bool limit_first;  /* limit compared with counter, not counter with limit */
    bool state_limit;  /* the limit comes in through the loop's state */
    bool state_step;   /* so does the step */
    bool fused;        /* the comparison and the addition stand inside fusions */
    bool minus;        /* the body subtracts */
    bool moving_limit; /* the body changes the limit as well */
    const char *config;
} loop_plan;

/* from, step, limit, direction, and whatever else. */
#define PLAN(from, by, to, how, ...)                                          \
    (loop_plan)                                                               \
    {                                                                         \
        .start = from, .step = by, .limit = to, .direction = how, __VA_ARGS__ \
    }

static shape *state_shape(void)
{
    return tuple_of(scalar(S32), scalar(S32), scalar(S32), NULL);
}

/* op(a, b), or a fusion that does it. */
static instruction *maybe_fused(module *m, computation *c, bool fused, const char *op, shape *s,
                                instruction *a, instruction *b, const char *direction)
{
    computation *f = fused ? compute(m, "fused") : NULL;
    instruction *x = fused ? parameter(f, 0, scalar(S32)) : a;
    instruction *y = fused ? parameter(f, 1, scalar(S32)) : b;
    instruction *result = add(fused ? f : c, op, s, x, y, NULL);
    if (direction != NULL)
        result->comparison_direction = (char *)direction;
    return fused ? calls(add(c, "fusion", s, a, b, NULL), f) : result;
}

static computation *loop_condition(module *m, const loop_plan *plan)
{
    computation *c = compute(m, "condition");
    instruction *state = parameter(c, 0, state_shape());
    instruction *counter = element(c, state, 0, scalar(S32));
    instruction *limit =
        plan->state_limit ? element(c, state, 1, scalar(S32)) : constant(c, plan->limit);
    instruction *a = plan->limit_first ? limit : counter, *b = plan->limit_first ? counter : limit;
    maybe_fused(m, c, plan->fused, "compare", scalar(PRED), a, b, plan->direction);
    return c;
}

static computation *loop_body(module *m, const loop_plan *plan)
{
    computation *c = compute(m, "body");
    instruction *state = parameter(c, 0, state_shape());
    instruction *counter = element(c, state, 0, scalar(S32));
    instruction *limit = element(c, state, 1, scalar(S32));
    instruction *state_step = element(c, state, 2, scalar(S32));
    instruction *step = plan->state_step ? state_step : constant(c, plan->step);
    const char *op = plan->minus ? "subtract" : "add";
    instruction *next = maybe_fused(m, c, plan->fused, op, scalar(S32), counter, step, NULL);
    if (plan->moving_limit)
        limit = add(c, "multiply", scalar(S32), limit, step, NULL);
    add(c, "tuple", state_shape(), next, limit, state_step, NULL);
    return c;
}

static instruction *enter_loop(computation *c, const loop_plan *plan, computation *body,
                               computation *condition)
{
    instruction *start = add(c, "copy", scalar(S32), constant(c, plan->start), NULL);
    instruction *state = add(c, "tuple", state_shape(), start, constant(c, plan->limit),
                             constant(c, plan->step), NULL);
    instruction *loop = calls(add(c, "while", state_shape(), state, NULL), body);
    calls(loop, condition);
    if (plan->config != NULL)
        configure(loop, plan->config);
    return loop;
}

static int64_t trips(loop_plan plan)
{
    module *m = new_module();
    computation *body = loop_body(m, &plan), *condition = loop_condition(m, &plan);
    computation *entry = compute(m, "entry");
    enter_loop(entry, &plan, body, condition);
    pjrt_hlo_report *r = report_of(m);
    assert_int_equal(r->loop_count, 1);
    int64_t count = r->loops[0].trip_count;
    assert_int_equal(r->unknown_trip_counts, count < 0);
    /* The body's addition runs as often as the loop. */
    assert_number(find(r->ops, r->op_count, plan.minus ? "subtract" : "add")->executed,
                  count < 0 ? 1 : (double)count);
    pjrt_hlo_report_free(r);
    return count;
}

static void loops_are_counted(void **state)
{
    (void)state;
    assert_int_equal(trips(PLAN(0, 1, 9, "LT")), 9);
    assert_int_equal(trips(PLAN(2, 7, 100, "LT")), 14);
    assert_int_equal(trips(PLAN(2, 7, 100, "LE")), 15); /* 2 + 14 * 7 = 100 */
    assert_int_equal(trips(PLAN(20, -3, 0, "GT")), 7);
    assert_int_equal(trips(PLAN(20, -5, 0, "GE")), 5);
    assert_int_equal(trips(PLAN(0, 4, 12, "NE")), 3);
    assert_int_equal(trips(PLAN(5, 1, 5, "EQ")), 1);
    assert_int_equal(trips(PLAN(5, 1, 5, "LT")), 0);
    assert_int_equal(trips(PLAN(20, 3, 0, "GT", .minus = true)), 7);
    assert_int_equal(trips(PLAN(0, 1, 9, "GT", .limit_first = true)), 9);
    assert_int_equal(trips(PLAN(0, 1, 9, "GE", .limit_first = true)), 10);
    assert_int_equal(trips(PLAN(0, 1, 9, "LT", .state_limit = true)), 9);
    assert_int_equal(trips(PLAN(0, 3, 9, "LT", .fused = true)), 3);
}

static void loops_that_cannot_be_counted_are_unknown(void **state)
{
    (void)state;
    assert_int_equal(trips(PLAN(0, 0, 9, "LT")), -1);                     /* for ever */
    assert_int_equal(trips(PLAN(0, -1, 9, "LT")), -1);                    /* until it wraps */
    assert_int_equal(trips(PLAN(0, 5, 12, "NE")), -1);                    /* steps over its end */
    assert_int_equal(trips(PLAN(0, 1, 9, "LT", .state_step = true)), -1); /* not looked for there */
    assert_int_equal(trips(PLAN(0, 1, 9, "LT", .state_limit = true, .moving_limit = true)), -1);
    assert_int_equal(trips(PLAN(0, 1, 9, "??")), -1);
}

static void what_the_compiler_says_of_a_loop_wins(void **state)
{
    (void)state;
    const char *config =
        "{\"text\":\"\\\"known_trip_count\\\":\",\"known_trip_count\":{\"n\":\"31\"}}";
    assert_int_equal(trips(PLAN(0, 1, 9, "LT", .config = config)), 31);
    assert_int_equal(trips((loop_plan){0, 1, 9, "LT", .config = "{\"known_trip_count\":{}}"}), 9);
    assert_int_equal(trips((loop_plan){0, 1, 9, "LT", .config = "{\"known_trip_count"}), 9);
}

static void loops_in_loops_multiply(void **state)
{
    (void)state;
    /* The inner loop's limit is carried in by the outer one: (counter, limit, step). */
    module *m = new_module();
    loop_plan inner = PLAN(0, 1, 7, "LT", .state_limit = true), outer = PLAN(0, 1, 5, "LT");
    computation *inner_body = loop_body(m, &inner), *inner_condition = loop_condition(m, &inner);

    computation *body = compute(m, "outer_body");
    instruction *outer_state = parameter(body, 0, state_shape());
    instruction *counter = element(body, outer_state, 0, scalar(S32));
    instruction *limit = element(body, outer_state, 1, scalar(S32));
    instruction *step = element(body, outer_state, 2, scalar(S32));
    instruction *inner_state =
        add(body, "tuple", state_shape(), constant(body, 0), limit, step, NULL);
    instruction *loop = calls(add(body, "while", state_shape(), inner_state, NULL), inner_body);
    calls(loop, inner_condition)->name = "inner";
    instruction *work = add(body, "iota", array(F32, 1, 100), NULL);
    configure(work, "{\"window_config\":{\"estimated_cycles\":\"1000\"}}");
    instruction *kept = element(body, loop, 1, scalar(S32)); /* through the inner loop, unchanged */
    instruction *next = add(body, "add", scalar(S32), counter, constant(body, 1), NULL);
    add(body, "tuple", state_shape(), next, kept, step, NULL);

    computation *condition = loop_condition(m, &outer);
    computation *entry = compute(m, "entry");
    instruction *start = add(entry, "tuple", state_shape(), constant(entry, 0), constant(entry, 7),
                             constant(entry, 1), NULL);
    instruction *whole = calls(add(entry, "while", state_shape(), start, NULL), body);
    calls(whole, condition)->name = "outer";
    named(whole, "step/layers");

    pjrt_hlo_report *r = report_of(m);
    assert_int_equal(r->loop_count, 2);
    assert_string_equal(r->loops[0].name, "outer");
    assert_string_equal(r->loops[0].origin, "step/layers");
    assert_string_equal(r->loops[1].origin, "");
    assert_int_equal(r->loops[0].trip_count, 5);
    assert_int_equal(r->loops[0].parent, -1);
    assert_number(r->loops[0].iteration.cycles, 1000);
    assert_number(r->loops[0].total.cycles, 5000);
    assert_string_equal(r->loops[1].name, "inner");
    assert_int_equal(r->loops[1].trip_count, 7);
    assert_int_equal(r->loops[1].parent, 0);
    assert_int_equal(r->loops[1].depth, 1);
    assert_number(r->loops[1].entered, 5);
    assert_number(r->total.cycles, 5000);
    assert_number(r->cycles_in_loops, 5000);
    /* Additions: 5 outer, 35 inner. Comparisons: one more per entry, 6 and 5 * 8. */
    assert_number(find(r->ops, r->op_count, "add")->executed, 40);
    assert_number(find(r->ops, r->op_count, "compare")->executed, 46);
    assert_number(r->total.flops, 40 + 46);
    pjrt_hlo_report_free(r);
}

/* ---- costs ---- */

static void arithmetic_is_counted(void **state)
{
    (void)state;
    module *m = new_module();
    computation *sum = compute(m, "sum");
    instruction *x = parameter(sum, 0, scalar(F32)), *y = parameter(sum, 1, scalar(F32));
    add(sum, "add", scalar(F32), x, y, NULL);
    computation *c = compute(m, "entry");
    instruction *a = parameter(c, 0, array(F32, 3, 4, 32, 64));
    instruction *b = parameter(c, 1, array(F32, 3, 4, 64, 16));
    instruction *dot = add(c, "dot", array(F32, 3, 4, 32, 16), a, b, NULL);
    MAKE(TttXla__DotDimensionNumbers, ttt_xla__dot_dimension_numbers__init, dims);
    dims->n_lhs_contracting_dimensions = 1;
    dims->lhs_contracting_dimensions = (int64_t[]){2};
    dot->dot_dimension_numbers = dims;
    instruction *t = add(c, "tanh", array(F32, 3, 4, 32, 16), dot, NULL);
    instruction *zero = parameter(c, 2, scalar(F32));
    calls(add(c, "reduce", array(F32, 1, 4), t, zero, NULL), sum);

    pjrt_hlo_report *r = report_of(m);
    const double dot_flops = 2.0 * 4 * 32 * 64 * 16, elements = 4 * 32 * 16;
    assert_number(find(r->ops, r->op_count, "dot")->cost.flops, dot_flops);
    assert_number(find(r->ops, r->op_count, "reduce")->cost.flops, elements - 4);
    assert_number(r->total.flops, dot_flops + elements - 4);
    assert_number(r->total.transcendentals, elements);
    const double a_bytes = 4 * 32 * 64 * 4, b_bytes = 4 * 64 * 16 * 4, t_bytes = elements * 4;
    /* The dot reads two and writes one, tanh reads and writes, the reduction reads t and 0. */
    assert_number(r->total.bytes, a_bytes + b_bytes + t_bytes + 2 * t_bytes + t_bytes + 4 + 4 * 4);
    /* The function of a reduction is part of the program, and is not executed by itself. */
    assert_number(find(r->ops, r->op_count, "add")->executed, 0);
    assert_int_equal(r->without_cycles, 3);
    pjrt_hlo_report_free(r);
}

typedef struct conv_plan {
    int batch, in, features, kernel, out, out_features; /* sizes along one spatial dimension */
    int stride, pad, kernel_dilation, input_dilation, groups;
} conv_plan;

/* NWC input, WIO kernel. */
static double convolution_flops(conv_plan p)
{
    module *m = new_module();
    computation *c = compute(m, "entry");
    instruction *x = parameter(c, 0, array(F32, 3, p.batch, p.in, p.features));
    instruction *k =
        parameter(c, 1, array(F32, 3, p.kernel, p.features / p.groups, p.out_features));
    instruction *conv =
        add(c, "convolution", array(F32, 3, p.batch, p.out, p.out_features), x, k, NULL);
    MAKE(TttXla__ConvolutionDimensionNumbers, ttt_xla__convolution_dimension_numbers__init, n);
    n->n_input_spatial_dimensions = n->n_output_spatial_dimensions = 1;
    n->n_kernel_spatial_dimensions = 1;
    n->input_spatial_dimensions = n->output_spatial_dimensions = (int64_t[]){1};
    n->kernel_spatial_dimensions = (int64_t[]){0};
    n->input_feature_dimension = n->output_feature_dimension = 2;
    conv->convolution_dimension_numbers = n;
    MAKE(TttXla__WindowDimension, ttt_xla__window_dimension__init, w);
    w->size = p.kernel;
    w->stride = p.stride;
    w->padding_low = p.pad;
    w->window_dilation = p.kernel_dilation;
    w->base_dilation = p.input_dilation;
    MAKE(TttXla__Window, ttt_xla__window__init, window);
    window->n_dimensions = 1;
    window->dimensions = make(sizeof *window->dimensions);
    window->dimensions[0] = w;
    conv->window = window;
    conv->feature_group_count = p.groups;
    pjrt_hlo_report *r = report_of(m);
    double flops = r->total.flops;
    pjrt_hlo_report_free(r);
    return flops;
}

/* The same by looking at every position. */
static double convolution_flops_by_hand(conv_plan p)
{
    double pairs = 0;
    for (int k = 0; k < p.kernel; k++)
        for (int o = 0; o < p.out; o++) {
            int at = o * p.stride - p.pad + k * p.kernel_dilation;
            pairs += at >= 0 && at % p.input_dilation == 0 && at / p.input_dilation < p.in;
        }
    return 2.0 * pairs * p.batch * p.features / p.groups * p.out_features;
}

static void convolutions_count_what_meets_the_input(void **state)
{
    (void)state;
    /* A 1 x 1 kernel is a matrix product. */
    assert_number(convolution_flops((conv_plan){8, 1, 16, 1, 1, 32, 1, 0, 1, 1, 1}),
                  2 * 8 * 16 * 32);
    const conv_plan plans[] = {
        {2, 28, 16, 3, 28, 32, 1, 1, 1, 1, 1}, /* padded to the same size */
        {2, 28, 16, 3, 13, 32, 2, 0, 1, 1, 4}, /* strided, grouped */
        {1, 10, 4, 4, 30, 4, 1, 3, 2, 3, 1},   /* dilated both ways */
        {1, 7, 4, 5, 9, 4, 3, -2, 1, 4, 1},    /* negative padding */
        {1, 9, 4, 5, 11, 4, 6, 5, 3, 4, 1},    /* strides that share factors with dilations */
        {1, 8, 4, 8, 8, 4, 7, 0, 1, 8, 1},     /* how the TPU compiler writes a batched product */
        {1, 0, 4, 3, 5, 4, 1, 1, 1, 1, 1},     /* no input at all */
    };
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++)
        assert_number(convolution_flops(plans[i]), convolution_flops_by_hand(plans[i]));
}

static void tiles_pad(void **state)
{
    (void)state;
    static const struct {
        int type, rows, columns;
        int64_t tiles[2][2];
        size_t tile_count;
        double bytes;
    } cases[] = {
        {F32, 64, 64, {{8, 128}}, 1, 64 * 128 * 4},
        {F32, 65, 129, {{8, 128}}, 1, 72 * 256 * 4},
        {BF16, 1, 128, {{1, 128}, {2, 1}}, 2, 2 * 128 * 2},
        {BF16, 8, 128, {{8, 128}, {2, 1}}, 2, 8 * 128 * 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        shape *s = array(cases[i].type, 2, cases[i].rows, cases[i].columns);
        MAKE(TttXla__LayoutProto, ttt_xla__layout_proto__init, layout);
        layout->n_minor_to_major = 2;
        layout->minor_to_major = (int64_t[]){1, 0};
        layout->n_tiles = cases[i].tile_count;
        layout->tiles = make(2 * sizeof *layout->tiles);
        for (size_t t = 0; t < cases[i].tile_count; t++) {
            MAKE(TttXla__TileProto, ttt_xla__tile_proto__init, tile);
            tile->n_dimensions = 2;
            tile->dimensions = (int64_t *)cases[i].tiles[t];
            layout->tiles[t] = tile;
        }
        s->layout = layout;
        module *m = new_module();
        add(compute(m, "entry"), "iota", s, NULL);
        pjrt_hlo_report *r = report_of(m);
        assert_number(r->total.bytes, cases[i].bytes);
        pjrt_hlo_report_free(r);
    }
}

static void fusions_touch_what_they_slice(void **state)
{
    (void)state;
    /* f32[1000] updated in place with a slice of another f32[1000], 10 elements long. */
    module *m = new_module();
    computation *f = compute(m, "fused");
    instruction *to = parameter(f, 0, array(F32, 1, 1000));
    instruction *from = parameter(f, 1, array(F32, 1, 1000));
    instruction *at = parameter(f, 2, scalar(S32));
    instruction *slice = add(f, "dynamic-slice", array(F32, 1, 10), from, at, NULL);
    instruction *twice = add(f, "add", array(F32, 1, 10), slice, slice, NULL);
    add(f, "dynamic-update-slice", array(F32, 1, 1000), to, twice, at, NULL);
    computation *c = compute(m, "entry");
    instruction *p0 = parameter(c, 0, array(F32, 1, 1000)),
                *p1 = parameter(c, 1, array(F32, 1, 1000));
    instruction *p2 = parameter(c, 2, scalar(S32));
    instruction *fusion = calls(add(c, "fusion", array(F32, 1, 1000), p0, p1, p2, NULL), f);
    fusion->fusion_kind = "kLoop";
    configure(named(fusion, "step/block/update"), "{\"estimated_cycles\":\"77\"}");

    pjrt_hlo_report *r = report_of(m);
    assert_number(r->total.bytes, 40 + 40 + 4); /* read 10, write 10, read the index once */
    assert_number(r->total.flops, 10);
    assert_number(r->total.cycles, 77);
    assert_number(r->cycles_in_loops, 0);
    assert_int_equal(r->without_cycles, 0);
    assert_number(find(r->fusions, r->fusion_count, "kLoop")->cost.flops, 10);
    const pjrt_hlo_tally *adds = find(r->ops, r->op_count, "add");
    assert_int_equal(adds->fused, 1);
    assert_number(adds->cost.flops, 10);
    assert_number(adds->cost.bytes, 0);
    assert_int_equal(r->scope_count, 1);
    assert_string_equal(r->scopes[0].name, "step/block");
    assert_number(r->scopes[0].cost.cycles, 77);
    pjrt_hlo_report_free(r);
}

static void the_costliest_branch_is_taken(void **state)
{
    (void)state;
    module *m = new_module();
    computation *cheap = compute(m, "cheap");
    add(cheap, "negate", array(F32, 1, 10), parameter(cheap, 0, array(F32, 1, 10)), NULL);
    computation *costly = compute(m, "costly");
    instruction *p = parameter(costly, 0, array(F32, 1, 10));
    instruction *once = add(costly, "floor", array(F32, 1, 10), p, NULL);
    add(costly, "floor", array(F32, 1, 10), once, NULL);
    computation *c = compute(m, "entry");
    instruction *which = parameter(c, 0, scalar(S32)), *x = parameter(c, 1, array(F32, 1, 10));
    instruction *choice = add(c, "conditional", array(F32, 1, 10), which, x, x, x, NULL);
    calls(calls(calls(choice, cheap), costly), cheap);
    pjrt_hlo_report *r = report_of(m);
    assert_int_equal(r->conditionals, 1);
    assert_number(r->total.flops, 20);
    assert_number(find(r->ops, r->op_count, "floor")->executed, 2);
    assert_number(find(r->ops, r->op_count, "negate")->executed, 0);
    assert_int_equal(find(r->ops, r->op_count, "negate")->count, 1);
    pjrt_hlo_report_free(r);
}

static void gpu_library_calls_have_flops(void **state)
{
    (void)state;
    module *m = new_module();
    computation *c = compute(m, "entry");
    instruction *a = parameter(c, 0, array(F32, 2, 32, 64)),
                *b = parameter(c, 1, array(F32, 2, 64, 16));
    shape *result = tuple_of(array(F32, 2, 32, 16), array(U8, 1, 4096), NULL);
    instruction *gemm = add(c, "custom-call", result, a, b, NULL);
    gemm->custom_call_target = "__cublas$gemm";
    configure(gemm,
              "{\"gemm_backend_config\":{\"dot_dimension_numbers\":"
              "{\"lhs_contracting_dimensions\":[\"1\"],\"rhs_contracting_dimensions\":[\"0\"]}}}");
    add(c, "custom-call", scalar(F32), NULL)->custom_call_target = "mine";
    pjrt_hlo_report *r = report_of(m);
    assert_number(r->total.flops, 2 * 32 * 64 * 16);
    assert_int_equal(r->custom_call_count, 2);
    assert_string_equal(r->custom_calls[0].name, "__cublas$gemm");
    assert_string_equal(r->custom_calls[1].name, "mine");
    pjrt_hlo_report_free(r);
}

/* ---- collectives ---- */

static void group_by_mesh(instruction *in)
{
    MAKE(TttXla__MeshProto__MeshAxis, ttt_xla__mesh_proto__mesh_axis__init, axis);
    axis->size = 8;
    MAKE(TttXla__MeshProto, ttt_xla__mesh_proto__init, mesh);
    mesh->n_axes = 1;
    mesh->axes = make(sizeof axis);
    mesh->axes[0] = axis;
    MAKE(TttXla__AxisRefProto, ttt_xla__axis_ref_proto__init, reference);
    MAKE(TttXla__MeshAxesReplicaGroupListProto, ttt_xla__mesh_axes_replica_group_list_proto__init,
         list);
    list->mesh = mesh;
    list->n_axes = 1;
    list->axes = make(sizeof reference);
    list->axes[0] = reference;
    in->mesh_axes_replica_group_list = list;
}

static void collectives_are_listed(void **state)
{
    (void)state;
    module *m = new_module();
    computation *wrapped = compute(m, "wrapped");
    add(wrapped, "all-to-all", array(F32, 1, 64), parameter(wrapped, 0, array(F32, 1, 64)), NULL);
    computation *c = compute(m, "entry");
    instruction *x = parameter(c, 0, array(F32, 1, 64));
    shape *gathered = tuple_of(array(F32, 1, 64), array(F32, 1, 512), NULL);
    instruction *start = add(c, "all-gather-start", gathered, x, NULL);
    group_by_mesh(start);
    add(c, "all-gather-done", array(F32, 1, 512), start, NULL);
    for (int i = 0; i < 3; i++)
        group_by_iota(add(c, "all-reduce", array(F32, 1, 64), x, NULL), 4);
    group_by_iota(add(c, "all-reduce", array(F32, 1, 64), x, NULL), 2);
    instruction *begun =
        calls(add(c, "async-start", tuple_of(array(F32, 1, 64), NULL), x, NULL), wrapped);
    add(c, "async-done", array(F32, 1, 64), begun, NULL);

    pjrt_hlo_report *r = report_of(m);
    assert_int_equal(r->collective_count, 4);
    assert_string_equal(r->collectives[0].kind, "all-gather");
    assert_number(r->collectives[0].bytes, 2048); /* the result is the larger side */
    assert_int_equal(r->collectives[0].group_size, 8);
    assert_string_equal(r->collectives[1].kind, "all-reduce");
    assert_int_equal(r->collectives[1].group_size, 4);
    assert_int_equal(r->collectives[1].count, 3);
    assert_number(r->collectives[1].total_bytes, 3 * 256);
    assert_int_equal(r->collectives[2].group_size, 2);
    assert_string_equal(r->collectives[3].kind, "all-to-all");
    assert_int_equal(r->collectives[3].count, 1);
    assert_number(r->collective_bytes, 2048 + 4 * 256 + 256);
    pjrt_hlo_report_free(r);
}

/* The TPU compiler copies a collective into each fusion that runs beside it. */
static void a_collective_spread_over_fusions_counts_once(void **state)
{
    (void)state;
    module *m = new_module();
    MAKE(TttXla__FrontendAttributes__Entry, ttt_xla__frontend_attributes__entry__init, chain);
    chain->key = "chain_id";
    MAKE(TttXla__FrontendAttributes, ttt_xla__frontend_attributes__init, attributes);
    attributes->n_map = 1;
    attributes->map = make(sizeof chain);
    attributes->map[0] = chain;
    const char *targets[] = {"AsyncCollectiveStart", NULL, "AsyncCollectiveDone"};
    computation *fused[3];
    for (int i = 0; i < 3; i++) {
        fused[i] = compute(m, "fused");
        instruction *p = parameter(fused[i], 0, array(F32, 1, 64));
        instruction *gather = add(fused[i], "all-gather", array(F32, 1, 256), p, NULL);
        gather->frontend_attributes = attributes;
        if (targets[i] != NULL)
            add(fused[i], "custom-call", array(F32, 1, 256), p, gather, NULL)->custom_call_target =
                (char *)targets[i];
    }
    computation *c = compute(m, "entry");
    instruction *x = parameter(c, 0, array(F32, 1, 64));
    for (int i = 0; i < 3; i++)
        calls(add(c, "fusion", array(F32, 1, 256), x, NULL), fused[i]);
    pjrt_hlo_report *r = report_of(m);
    assert_int_equal(r->collective_count, 1);
    assert_int_equal(r->collectives[0].count, 1);
    assert_number(r->collective_bytes, 1024);
    pjrt_hlo_report_free(r);
}

/* ---- programs of strangers ---- */

static module *small_module(computation **entry)
{
    module *m = new_module();
    *entry = compute(m, "entry");
    instruction *p = parameter(*entry, 0, array(F32, 1, 4));
    add(*entry, "negate", array(F32, 1, 4), p, NULL);
    return m;
}

static void broken_links_are_refused(void **state)
{
    (void)state;
    computation *c;
    assert_refused(new_module(), "no entry computation");
    module *m = small_module(&c);
    c->root_id = 12345;
    assert_refused(m, "no root");
    m = small_module(&c);
    c->instructions[1]->operand_ids[0] = 12345;
    assert_refused(m, "no operand");
    c->instructions[1]->name = "\nan error is told even so";
    pjrt_hlo_report *r;
    pjrt_status *st = try_report(m, &r);
    assert_non_null(strstr(pjrt_status_text(st), "no operand"));
    pjrt_status_free(st);
    m = small_module(&c);
    c->instructions[1]->n_operand_ids = 0;
    assert_refused(m, "0 operands");
    m = small_module(&c);
    c->instructions[0]->id = c->instructions[1]->id;
    assert_refused(m, "two instructions");
    m = small_module(&c);
    c->instructions[0]->parameter_number = 1;
    assert_refused(m, "parameter 1 of 1");
    m = small_module(&c);
    c->instructions[0]->shape = NULL;
    assert_refused(m, "no shape");
    m = small_module(&c);
    c->instructions[0]->shape->dimensions[0] = -1;
    assert_refused(m, "dimension of -1");
    m = small_module(&c);
    calls(add(c, "call", array(F32, 1, 4), c->instructions[0], NULL), c);
    assert_refused(m, "calls itself");
    m = small_module(&c);
    computation *d = compute(m, "other");
    calls(add(d, "call", array(F32, 1, 4), parameter(d, 0, array(F32, 1, 4)), NULL), c);
    calls(add(c, "call", array(F32, 1, 4), c->instructions[0], NULL), d);
    assert_refused(m, "calls itself");
    m = small_module(&c);
    d = compute(m, "other");
    calls(add(d, "fusion", array(F32, 1, 4), NULL), c);
    assert_refused(m, "fusion of 0 operands");
}

static void deep_and_wide_calls_are_walked_once(void **state)
{
    (void)state;
    /* Each computation calls the one before twice: 2^30 executions, and 3,000 calls deep. */
    module *m = new_module();
    computation *previous = compute(m, "leaf");
    add(previous, "negate", array(F32, 1, 4), parameter(previous, 0, array(F32, 1, 4)), NULL);
    for (int i = 0; i < 3000; i++) {
        computation *c = compute(m, "caller");
        instruction *p = parameter(c, 0, array(F32, 1, 4));
        instruction *first = calls(add(c, "call", array(F32, 1, 4), p, NULL), previous);
        if (i < 30)
            calls(add(c, "call", array(F32, 1, 4), first, NULL), previous);
        previous = c;
    }
    pjrt_hlo_report *r = report_of(m);
    assert_number(find(r->ops, r->op_count, "negate")->executed, 1 << 30);
    assert_number(r->total.flops, 4.0 * (1 << 30));
    pjrt_hlo_report_free(r);
}

static void absurd_trip_counts_are_refused(void **state)
{
    (void)state;
    module *m = new_module();
    computation *previous = compute(m, "leaf");
    add(previous, "negate", array(F32, 1, 4), parameter(previous, 0, array(F32, 1, 4)), NULL);
    computation *condition = compute(m, "condition");
    parameter(condition, 0, array(F32, 1, 4));
    for (int i = 0; i < 40; i++) {
        computation *c = compute(m, "caller");
        instruction *p = parameter(c, 0, array(F32, 1, 4));
        instruction *loop = calls(add(c, "while", array(F32, 1, 4), p, NULL), previous);
        configure(calls(loop, condition), "{\"known_trip_count\":{\"n\":\"9000000000000000000\"}}");
        previous = c;
    }
    assert_refused(m, "beyond all measure");
}

static void deep_tuples_are_refused(void **state)
{
    (void)state;
    computation *c;
    module *m = small_module(&c);
    shape *s = scalar(F32);
    for (int i = 0; i < 1000; i++)
        s = tuple_of(s, NULL);
    c->instructions[0]->shape = s;
    assert_refused(m, "nested");
}

static void bytes_that_swell_are_refused(void **state)
{
    (void)state;
    /* Computations without a single field: two bytes each, a hundred in memory. */
    size_t size = 2 << 20;
    uint8_t *bytes = make(size);
    for (size_t i = 0; i < size; i += 2)
        bytes[i] = 0x1a;
    pjrt_hlo_report *r;
    pjrt_status *st = pjrt_hlo_report_create("hlo", bytes, size, &r);
    assert_int_equal(pjrt_status_code(st), PJRT_CODE_RESOURCE_EXHAUSTED);
    assert_null(r);
    pjrt_status_free(st);
}

static void other_formats_are_refused(void **state)
{
    (void)state;
    pjrt_hlo_report *r;
    pjrt_status *st = pjrt_hlo_report_create("mlir", "", 0, &r);
    assert_int_equal(pjrt_status_code(st), PJRT_CODE_UNIMPLEMENTED);
    assert_non_null(strstr(pjrt_status_text(st), "mlir"));
    pjrt_status_free(st);
    st = pjrt_hlo_report_create("hlo_with_config", "", 0, &r);
    assert_int_equal(pjrt_status_code(st), PJRT_CODE_INVALID_ARGUMENT);
    pjrt_status_free(st);
    st = pjrt_hlo_report_create("hlo", "\xff", 1, &r);
    assert_int_equal(pjrt_status_code(st), PJRT_CODE_INVALID_ARGUMENT);
    pjrt_status_free(st);
    pjrt_hlo_report_free(NULL);
}

/* ---- programs of real compilers ---- */

static pjrt_hlo_report *report_on(const char *name)
{
    size_t size;
    uint8_t *bytes = read_data(name, &size);
    pjrt_hlo_report *r;
    pjrt_status *st = pjrt_hlo_report_create("hlo_with_config", bytes, size, &r);
    if (st != NULL)
        fail_msg("%s: %s", name, pjrt_status_text(st));
    return r;
}

static void a_tpu_matrix_product(void **state)
{
    (void)state;
    /* The compiler writes it as a convolution in a fusion. 9,557,312 is its estimate; XLA's own
     * cost analysis of this executable says 1099511627776 flops and 402653184 bytes. */
    pjrt_hlo_report *r = report_on("tpu_matmul.pb");
    assert_number(r->total.flops, 2.0 * 8192 * 8192 * 8192);
    assert_number(r->total.bytes, 3.0 * 8192 * 8192 * 2);
    assert_number(r->total.cycles, 9557312);
    assert_int_equal(r->without_cycles, 0);
    assert_int_equal(r->loop_count, 0);
    assert_number(find(r->ops, r->op_count, "convolution")->cost.flops, r->total.flops);
    pjrt_hlo_report_free(r);
}

/* Nine times: sin of f32[64,512], an all-reduce, a product; and the loop's own counting. */
static void check_scan_psum(const char *name)
{
    const double elements = 64 * 512;
    pjrt_hlo_report *r = report_on(name);
    assert_int_equal(r->loop_count, 1);
    assert_int_equal(r->loops[0].trip_count, 9);
    assert_number(r->total.flops, 9 * 2 * elements + 9 + 10);
    assert_number(r->total.transcendentals, 9 * elements);
    assert_int_equal(r->collective_count, 1);
    assert_string_equal(r->collectives[0].kind, "all-reduce");
    assert_number(r->collectives[0].bytes, elements * 4);
    assert_int_equal(r->collectives[0].group_size, 4);
    assert_number(r->collectives[0].executed, 9);
    assert_number(r->collective_bytes, 9 * elements * 4);
    pjrt_hlo_report_free(r);
}

static void a_scan_with_collectives(void **state)
{
    (void)state;
    check_scan_psum("tpu_scan_psum.pb"); /* says nothing of the trip count */
    check_scan_psum("cuda_scan_psum.pb");
    pjrt_hlo_report *r = report_on("tpu_scan_psum.pb");
    assert_number(r->total.cycles, 9 * (2098 + 2106)); /* the sine and the product */
    assert_number(r->cycles_in_loops, r->total.cycles);
    pjrt_hlo_report_free(r);
}

/* Every truncation, and every byte changed three ways: a report or an error. Under the sanitizers
 * this is where a careless length would show. */
static void damaged_programs_do_no_harm(void **state)
{
    (void)state;
    size_t size, refused = 0;
    uint8_t *bytes = read_data("cuda_scan_psum.pb", &size);
    for (size_t i = 0; i < size; i++) {
        uint8_t kept = bytes[i];
        for (int change = 0; change < 4; change++) {
            pjrt_hlo_report *r;
            static const uint8_t flips[] = {0x01, 0x80, 0xff};
            if (change < 3)
                bytes[i] = kept ^ flips[change];
            pjrt_status *st =
                pjrt_hlo_report_create("hlo_with_config", bytes, change < 3 ? size : i, &r);
            refused += st != NULL;
            assert_true((st == NULL) == (r != NULL));
            pjrt_hlo_report_free(r);
            pjrt_status_free(st);
            bytes[i] = kept;
        }
    }
    assert_true(refused > size);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(loops_are_counted, drop_all),
        cmocka_unit_test_teardown(loops_that_cannot_be_counted_are_unknown, drop_all),
        cmocka_unit_test_teardown(what_the_compiler_says_of_a_loop_wins, drop_all),
        cmocka_unit_test_teardown(loops_in_loops_multiply, drop_all),
        cmocka_unit_test_teardown(arithmetic_is_counted, drop_all),
        cmocka_unit_test_teardown(convolutions_count_what_meets_the_input, drop_all),
        cmocka_unit_test_teardown(tiles_pad, drop_all),
        cmocka_unit_test_teardown(fusions_touch_what_they_slice, drop_all),
        cmocka_unit_test_teardown(the_costliest_branch_is_taken, drop_all),
        cmocka_unit_test_teardown(gpu_library_calls_have_flops, drop_all),
        cmocka_unit_test_teardown(collectives_are_listed, drop_all),
        cmocka_unit_test_teardown(a_collective_spread_over_fusions_counts_once, drop_all),
        cmocka_unit_test_teardown(broken_links_are_refused, drop_all),
        cmocka_unit_test_teardown(deep_and_wide_calls_are_walked_once, drop_all),
        cmocka_unit_test_teardown(absurd_trip_counts_are_refused, drop_all),
        cmocka_unit_test_teardown(deep_tuples_are_refused, drop_all),
        cmocka_unit_test_teardown(bytes_that_swell_are_refused, drop_all),
        cmocka_unit_test_teardown(other_formats_are_refused, drop_all),
        cmocka_unit_test_teardown(a_tpu_matrix_product, drop_all),
        cmocka_unit_test_teardown(a_scan_with_collectives, drop_all),
        cmocka_unit_test_teardown(damaged_programs_do_no_harm, drop_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
