/*
 * Rooflines, links and memory over the step, on programs small enough to work them out by hand, and
 * on those of real compilers.
 */
#include "pjrt/hlo/pjrt_hlo.h"
#include "tests/support/hlo_program.h"

/* Peaks that make figures whole: a flop, a byte and a byte on links each take a second. */
static const pjrt_hlo_peaks ones = {.flops = 1, .bytes = 1, .link_bytes = 1};

static pjrt_hlo_times replay(const module *m, const pjrt_hlo_peaks *peaks)
{
    size_t size;
    pjrt_hlo_times t;
    const uint8_t *bytes = packed(m, &size);
    pjrt_status *st = pjrt_hlo_replay("hlo", bytes, size, peaks, &t);
    if (st != NULL)
        fail_msg("%s", pjrt_status_text(st));
    return t;
}

static pjrt_hlo_live *live_of(const module *m)
{
    size_t size;
    pjrt_hlo_live *live;
    const uint8_t *bytes = packed(m, &size);
    pjrt_status *st = pjrt_hlo_live_create("hlo", bytes, size, &live);
    if (st != NULL)
        fail_msg("%s", pjrt_status_text(st));
    return live;
}

/* The same shape in on-chip memory. */
static shape *near(shape *s)
{
    MAKE(TttXla__LayoutProto, ttt_xla__layout_proto__init, layout);
    layout->memory_space = 1;
    s->layout = layout;
    return s;
}

/* Executes the instructions of a computation in another order than they stand in. */
static void schedule(module *m, const computation *c, instruction *const *order, size_t count)
{
    typedef TttXla__HloScheduleProto__InstructionSequence sequence_proto;
    if (m->schedule == NULL) {
        MAKE(TttXla__HloScheduleProto, ttt_xla__hlo_schedule_proto__init, all);
        m->schedule = all;
    }
    MAKE(sequence_proto, ttt_xla__hlo_schedule_proto__instruction_sequence__init, sequence);
    sequence->n_instruction_ids = count;
    sequence->instruction_ids = make(count * sizeof(int64_t));
    for (size_t i = 0; i < count; i++)
        sequence->instruction_ids[i] = order[i]->id;
    MAKE(TttXla__HloScheduleProto__Entry, ttt_xla__hlo_schedule_proto__entry__init, entry);
    entry->key = c->id;
    entry->value = sequence;
    TttXla__HloScheduleProto *all = m->schedule;
    all->sequences = grown(all->sequences, all->n_sequences, sizeof *all->sequences);
    all->sequences[all->n_sequences++] = entry;
}

/* ---- operations ---- */

static void each_operation_takes_the_slower_of_two(void **state)
{
    (void)state;
    /* 2 x 16 x 16 x 16 flops on 3 KiB; then 256 flops on 2 KiB. */
    module *m = new_module();
    computation *c = compute(m, "entry");
    instruction *a = parameter(c, 0, array(F32, 2, 16, 16));
    MAKE(TttXla__DotDimensionNumbers, ttt_xla__dot_dimension_numbers__init, numbers);
    numbers->n_lhs_contracting_dimensions = 1;
    numbers->lhs_contracting_dimensions = (int64_t[]){1};
    instruction *product = add(c, "dot", array(F32, 2, 16, 16), a, a, NULL);
    product->dot_dimension_numbers = numbers;
    add(c, "negate", array(F32, 2, 16, 16), product, NULL);
    pjrt_hlo_times t = replay(m, &ones);
    assert_number(t.arithmetic, 8192 + 256);
    assert_number(t.memory, 3072 + 2048);
    assert_number(t.operations, 8192 + 2048);
    assert_number(t.exposed, 0);
    assert_number(t.step, 8192 + 2048);
    /* With slow arithmetic the flops decide everywhere. */
    t = replay(m, &(pjrt_hlo_peaks){.flops = 0.125, .bytes = 1});
    assert_number(t.operations, 8 * (8192 + 256));
}

static void on_chip_memory_is_free(void **state)
{
    (void)state;
    module *m = new_module();
    computation *c = compute(m, "entry");
    instruction *x = parameter(c, 0, array(F32, 1, 64));
    instruction *y = add(c, "negate", near(array(F32, 1, 64)), x, NULL);
    add(c, "negate", near(array(F32, 1, 64)), y, NULL);
    pjrt_hlo_times t = replay(m, &(pjrt_hlo_peaks){.flops = 1e9, .bytes = 1});
    assert_number(t.memory, 256); /* x is read, and nothing else is in main memory */
    size_t size;
    pjrt_hlo_report *r;
    const uint8_t *bytes = packed(m, &size);
    assert_null(pjrt_hlo_report_create("hlo", bytes, size, &r));
    assert_number(r->total.bytes, 4 * 256);
    assert_number(r->total.main_bytes, 256);
    pjrt_hlo_report_free(r);
    pjrt_hlo_live *live = live_of(m);
    assert_number(live->peak_bytes, 256);
    pjrt_hlo_live_free(live);
}

/* A loop of five iterations of a negate of f32[64], with that array as its state. */
static instruction *add_loop(module *m, computation **body)
{
    shape *state = tuple_of(array(F32, 1, 64), NULL);
    computation *b = compute(m, "body");
    instruction *p = parameter(b, 0, state);
    instruction *x = element(b, p, 0, array(F32, 1, 64));
    instruction *y = add(b, "negate", array(F32, 1, 64), x, NULL);
    add(b, "tuple", state, y, NULL);
    computation *condition = compute(m, "condition");
    parameter(condition, 0, state);
    add(condition, "constant", scalar(PRED), NULL);
    computation *c = compute(m, "entry");
    instruction *start = parameter(c, 0, array(F32, 1, 64));
    instruction *copy = add(c, "copy", array(F32, 1, 64), start, NULL);
    instruction *init = add(c, "tuple", state, copy, NULL);
    instruction *loop = calls(calls(add(c, "while", state, init, NULL), b), condition);
    configure(loop, "{\"known_trip_count\":{\"n\":\"5\"}}");
    *body = b;
    return loop;
}

static void loops_count_as_often_as_they_run(void **state)
{
    (void)state;
    module *m = new_module();
    computation *body;
    add_loop(m, &body);
    pjrt_hlo_times t = replay(m, &ones);
    assert_number(t.operations, 512 + 5 * 512);
    assert_number(t.step, t.operations);
}

/* ---- links ---- */

static void rings_send_all_but_their_own_part(void **state)
{
    (void)state;
    const struct {
        const char *kind;
        int64_t group;
        double sent;
    } cases[] = {
        {"all-gather", 4, 768},  {"reduce-scatter", 4, 768},      {"all-reduce", 4, 1536},
        {"all-to-all", 2, 512},  {"collective-permute", 4, 1024}, {"all-gather", 1, 0},
        {"all-reduce", 0, 2048}, /* a group of unknown size */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pjrt_hlo_collective c = {
            .kind = cases[i].kind, .bytes = 1024, .group_size = cases[i].group};
        assert_number(pjrt_hlo_link_bytes(&c), cases[i].sent);
    }
}

/* An all-gather of f32[64] over 4 devices, 192 bytes sent, and a negate beside it. */
typedef struct overlap {
    module *m;
    computation *c;
    instruction *x, *start, *done, *work;
} overlap;

static overlap make_overlap(int elements, const char *config)
{
    overlap o = {.m = new_module()};
    o.c = compute(o.m, "entry");
    o.x = parameter(o.c, 0, array(F32, 1, 16));
    shape *both = tuple_of(array(F32, 1, 16), array(F32, 1, 64), NULL);
    o.start = add(o.c, "all-gather-start", both, o.x, NULL);
    group_by_iota(o.start, 4);
    if (config != NULL)
        configure(o.start, config);
    instruction *y = parameter(o.c, 1, array(F32, 1, elements));
    o.work = add(o.c, "negate", array(F32, 1, elements), y, NULL);
    o.done = add(o.c, "all-gather-done", array(F32, 1, 64), o.start, NULL);
    return o;
}

static void asynchronous_transfers_hide_behind_work(void **state)
{
    (void)state;
    overlap o = make_overlap(100, NULL); /* 800 bytes moved meanwhile */
    pjrt_hlo_times t = replay(o.m, &ones);
    assert_number(t.links, 192);
    assert_number(t.links_async, 192);
    assert_number(t.operations, 800);
    assert_number(t.exposed, 0);
    o = make_overlap(4, NULL); /* 32 bytes: most of the transfer is waited for */
    t = replay(o.m, &ones);
    assert_number(t.operations, 32);
    assert_number(t.exposed, 192 - 32);
    /* All bytes pass through memory: 32 of work, 64 read and 256 written by the transfer. */
    assert_number(t.memory, 32 + 64 + 256);
    assert_number(t.step, 352);
    t = replay(o.m, &(pjrt_hlo_peaks){.flops = 1, .bytes = 1});
    assert_number(t.links, 0); /* no figure for links: not counted */
    assert_number(t.exposed, 0);
}

static void the_schedule_decides_what_hides(void **state)
{
    (void)state;
    overlap o = make_overlap(100, NULL);
    instruction *order[] = {o.x, o.start, o.done, NULL, o.work};
    for (size_t i = 0; i < o.c->n_instructions; i++)
        if (strcmp(o.c->instructions[i]->opcode, "parameter") == 0)
            order[3] = o.c->instructions[i]; /* the second one is the last */
    schedule(o.m, o.c, order, 5);
    pjrt_hlo_times t = replay(o.m, &ones);
    assert_number(t.exposed, 192);
    assert_number(t.step, 800 + 64 + 256); /* operations and waiting are 992, memory is slower */
}

static void synchronous_transfers_are_waited_for(void **state)
{
    (void)state;
    overlap o = make_overlap(100, "{\"collective_backend_config\":{\"is_sync\":true}}");
    pjrt_hlo_times t = replay(o.m, &ones);
    assert_number(t.links_async, 0);
    assert_number(t.exposed, 192);
    size_t size;
    pjrt_hlo_report *r;
    const uint8_t *bytes = packed(o.m, &size);
    assert_null(pjrt_hlo_report_create("hlo", bytes, size, &r));
    assert_int_equal(r->collective_count, 1);
    assert_false(r->collectives[0].asynchronous);
    pjrt_hlo_report_free(r);

    module *m = new_module();
    computation *c = compute(m, "entry");
    instruction *x = parameter(c, 0, array(F32, 1, 64));
    group_by_iota(add(c, "all-reduce", array(F32, 1, 64), x, NULL), 4);
    t = replay(m, &ones);
    assert_number(t.operations, 0); /* its bytes are part of the transfer */
    assert_number(t.links, 2 * 192);
    assert_number(t.exposed, 2 * 192);
}

/* The TPU compiler's fusions that start, carry and end one transfer. */
static void transfers_spread_over_fusions_hide_too(void **state)
{
    (void)state;
    module *m = new_module();
    MAKE(TttXla__FrontendAttributes__Entry, ttt_xla__frontend_attributes__entry__init, chain);
    chain->key = "chain_id";
    chain->value = "7";
    MAKE(TttXla__FrontendAttributes, ttt_xla__frontend_attributes__init, attributes);
    attributes->n_map = 1;
    attributes->map = make(sizeof chain);
    attributes->map[0] = chain;
    const char *targets[] = {"AsyncCollectiveStart", "AsyncCollectiveDone"};
    computation *fused[2];
    for (int i = 0; i < 2; i++) {
        fused[i] = compute(m, "fused");
        instruction *p = parameter(fused[i], 0, array(F32, 1, 16));
        instruction *gather = add(fused[i], "all-gather", array(F32, 1, 64), p, NULL);
        gather->frontend_attributes = attributes;
        group_by_iota(gather, 4);
        add(fused[i], "custom-call", array(F32, 1, 64), p, gather, NULL)->custom_call_target =
            (char *)targets[i];
    }
    computation *c = compute(m, "entry");
    instruction *x = parameter(c, 0, array(F32, 1, 16));
    calls(add(c, "fusion", array(F32, 1, 64), x, NULL), fused[0]);
    add(c, "negate", array(F32, 1, 16), x, NULL);
    calls(add(c, "fusion", array(F32, 1, 64), x, NULL), fused[1]);
    pjrt_hlo_times t = replay(m, &ones);
    assert_number(t.links_async, 192);
    assert_number(t.operations, 128);
    assert_number(t.exposed, 192 - 128);
}

static void bad_schedules_are_refused(void **state)
{
    (void)state;
    overlap o = make_overlap(4, NULL);
    instruction *twice[] = {o.x, o.x};
    schedule(o.m, o.c, twice, 2);
    size_t size;
    pjrt_hlo_times t;
    pjrt_hlo_live *live;
    const uint8_t *bytes = packed(o.m, &size);
    pjrt_status *st = pjrt_hlo_replay("hlo", bytes, size, &ones, &t);
    assert_int_equal(pjrt_status_code(st), PJRT_CODE_INVALID_ARGUMENT);
    pjrt_status_free(st);
    st = pjrt_hlo_live_create("hlo", bytes, size, &live);
    assert_int_equal(pjrt_status_code(st), PJRT_CODE_INVALID_ARGUMENT);
    assert_null(live);
    pjrt_status_free(st);
}

/* ---- memory ---- */

static void arrays_live_to_their_last_use(void **state)
{
    (void)state;
    /* x -> a -> b -> c, each of 256 bytes: two at a time beside the argument. */
    module *m = new_module();
    computation *c = compute(m, "entry");
    instruction *v = parameter(c, 0, array(F32, 1, 64));
    const char *names[] = {"a", "b", "c"};
    for (int i = 0; i < 3; i++) {
        v = add(c, "negate", array(F32, 1, 64), v, NULL);
        v->name = (char *)names[i];
    }
    pjrt_hlo_live *live = live_of(m);
    assert_number(live->argument_bytes, 256);
    assert_int_equal(live->point_count, 3);
    assert_number(live->points[0].bytes, 2 * 256);
    assert_number(live->points[1].bytes, 3 * 256);
    assert_number(live->points[2].bytes, 3 * 256);
    assert_number(live->peak_bytes, 3 * 256);
    assert_string_equal(live->points[live->peak].name, "b");
    assert_int_equal(live->array_count, 2);
    assert_string_equal(live->arrays[0].name, "a");
    pjrt_hlo_live_free(live);
}

static void tuples_and_updates_make_nothing_new(void **state)
{
    (void)state;
    module *m = new_module();
    computation *c = compute(m, "entry");
    instruction *x = parameter(c, 0, array(F32, 1, 64)), *at = parameter(c, 1, scalar(S32));
    instruction *a = add(c, "negate", array(F32, 1, 64), x, NULL);
    instruction *t = add(c, "tuple", tuple_of(array(F32, 1, 64), NULL), a, NULL);
    instruction *e = element(c, t, 0, array(F32, 1, 64));
    instruction *small = add(c, "slice", array(F32, 1, 2), x, NULL);
    instruction *updated = add(c, "dynamic-update-slice", array(F32, 1, 64), e, small, at, NULL);
    add(c, "bitcast", array(F32, 2, 8, 8), updated, NULL);
    pjrt_hlo_live *live = live_of(m);
    assert_number(live->peak_bytes, 256 + 4 + 256 + 8); /* arguments, a, the slice */
    pjrt_hlo_live_free(live);
}

static void donated_arguments_hold_results(void **state)
{
    (void)state;
    for (int donated = 0; donated < 2; donated++) {
        module *m = new_module();
        computation *c = compute(m, "entry");
        instruction *x = parameter(c, 0, array(F32, 1, 64));
        instruction *y = add(c, "negate", array(F32, 1, 64), x, NULL);
        add(c, "tuple", tuple_of(array(F32, 1, 64), NULL), y, NULL);
        MAKE(TttXla__HloInputOutputAliasProto__AliasEntryProto,
             ttt_xla__hlo_input_output_alias_proto__alias_entry_proto__init, entry);
        entry->n_output_shape_index = 1;
        entry->output_shape_index = (int64_t[]){0};
        MAKE(TttXla__HloInputOutputAliasProto, ttt_xla__hlo_input_output_alias_proto__init,
             aliases);
        aliases->n_entries = 1;
        aliases->entries = make(sizeof entry);
        aliases->entries[0] = entry;
        m->input_output_alias = donated ? aliases : NULL;
        pjrt_hlo_live *live = live_of(m);
        assert_number(live->peak_bytes, donated ? 256 : 512);
        pjrt_hlo_live_free(live);
    }
}

static void loops_add_what_an_iteration_has(void **state)
{
    (void)state;
    module *m = new_module();
    computation *body;
    instruction *loop = add_loop(m, &body);
    loop->name = "loop";
    pjrt_hlo_live *live = live_of(m);
    /* The argument and the state; what the body makes is the state again. */
    assert_number(live->peak_bytes, 2 * 256);
    pjrt_hlo_live_free(live);
    /* A second array that the body makes on the way. */
    instruction *x = body->instructions[1];
    instruction *extra = add(body, "negate", array(F32, 1, 64), x, NULL);
    body->root_id = body->instructions[3]->id;
    instruction *order[] = {body->instructions[0], x, extra, body->instructions[2],
                            body->instructions[3]};
    schedule(m, body, order, 5);
    live = live_of(m);
    assert_number(live->peak_bytes, 3 * 256);
    assert_string_equal(live->points[live->peak].name, "loop");
    assert_string_equal(live->arrays[0].scope, "inside");
    assert_number(live->arrays[0].bytes, 256);
    pjrt_hlo_live_free(live);
}

static void tuples_that_swell_are_refused(void **state)
{
    (void)state;
    /* Each tuple holds the one before twice: 2^40 arrays by name. */
    module *m = new_module();
    computation *c = compute(m, "entry");
    instruction *v = parameter(c, 0, scalar(F32));
    for (int i = 0; i < 40; i++)
        v = add(c, "tuple", tuple_of(scalar(F32), NULL), v, v, NULL);
    size_t size;
    pjrt_hlo_live *live;
    const uint8_t *bytes = packed(m, &size);
    pjrt_status *st = pjrt_hlo_live_create("hlo", bytes, size, &live);
    assert_int_equal(pjrt_status_code(st), PJRT_CODE_RESOURCE_EXHAUSTED);
    assert_null(live);
    pjrt_status_free(st);
}

/* ---- real programs ---- */

static void real_programs_have_times_and_memory(void **state)
{
    (void)state;
    static const char *const names[] = {"tpu_matmul.pb", "tpu_scan_psum.pb", "cuda_scan_psum.pb"};
    const pjrt_hlo_peaks v5e = {.flops = 197e12, .bytes = 819e9, .link_bytes = 200e9};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t size;
        pjrt_hlo_times t;
        pjrt_hlo_live *live;
        pjrt_hlo_report *r;
        const uint8_t *bytes = read_data(names[i], &size);
        assert_null(pjrt_hlo_replay("hlo_with_config", bytes, size, &v5e, &t));
        assert_null(pjrt_hlo_report_create("hlo_with_config", bytes, size, &r));
        assert_number(t.arithmetic, r->total.flops / v5e.flops);
        assert_true(t.step >= t.arithmetic && t.step >= t.memory && t.step >= t.operations);
        assert_true(t.exposed <= t.links * (1 + 1e-9) && t.links_async <= t.links);
        assert_true((t.links > 0) == (r->collective_count > 0));
        assert_null(pjrt_hlo_live_create("hlo_with_config", bytes, size, &live));
        assert_true(live->argument_bytes > 0 && live->peak_bytes >= live->argument_bytes);
        assert_true(live->peak < live->point_count);
        pjrt_hlo_live_free(live);
        pjrt_hlo_report_free(r);
    }
}

/* Every truncation and many changed bytes: an answer or an error. */
static void damaged_programs_do_no_harm(void **state)
{
    (void)state;
    size_t size;
    uint8_t *bytes = read_data("tpu_scan_psum.pb", &size);
    for (size_t i = 0; i < size; i++) {
        uint8_t kept = bytes[i];
        for (int change = 0; change < 3; change++) {
            static const uint8_t flips[] = {0x01, 0xff};
            size_t length = change < 2 ? size : i;
            pjrt_hlo_times t;
            pjrt_hlo_live *live;
            if (change < 2)
                bytes[i] = kept ^ flips[change];
            pjrt_status_free(pjrt_hlo_replay("hlo_with_config", bytes, length, &ones, &t));
            pjrt_status *st = pjrt_hlo_live_create("hlo_with_config", bytes, length, &live);
            assert_true((st == NULL) == (live != NULL));
            pjrt_hlo_live_free(live);
            pjrt_status_free(st);
            bytes[i] = kept;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(each_operation_takes_the_slower_of_two, drop_all),
        cmocka_unit_test_teardown(on_chip_memory_is_free, drop_all),
        cmocka_unit_test_teardown(loops_count_as_often_as_they_run, drop_all),
        cmocka_unit_test_teardown(rings_send_all_but_their_own_part, drop_all),
        cmocka_unit_test_teardown(asynchronous_transfers_hide_behind_work, drop_all),
        cmocka_unit_test_teardown(the_schedule_decides_what_hides, drop_all),
        cmocka_unit_test_teardown(synchronous_transfers_are_waited_for, drop_all),
        cmocka_unit_test_teardown(transfers_spread_over_fusions_hide_too, drop_all),
        cmocka_unit_test_teardown(bad_schedules_are_refused, drop_all),
        cmocka_unit_test_teardown(arrays_live_to_their_last_use, drop_all),
        cmocka_unit_test_teardown(tuples_and_updates_make_nothing_new, drop_all),
        cmocka_unit_test_teardown(donated_arguments_hold_results, drop_all),
        cmocka_unit_test_teardown(loops_add_what_an_iteration_has, drop_all),
        cmocka_unit_test_teardown(tuples_that_swell_are_refused, drop_all),
        cmocka_unit_test_teardown(real_programs_have_times_and_memory, drop_all),
        cmocka_unit_test_teardown(damaged_programs_do_no_harm, drop_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
