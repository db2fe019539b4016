/*
 * Every operation's text, compared with the golden files of tests/data/hlo_builder and compiled by
 * the three compilers, XLA:CPU, libtpu and XLA:CUDA, as are portable artifacts of the same
 * programs. A new operation that no program here contains fails the coverage test.
 * TTT_UPDATE_GOLDEN=1 writes the golden files anew; read the difference.
 */
#include "hlo.pb-c.h"
#include "hlo_builder/internal.h"
#include "tests/support/support.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- programs ---- */

static void build_elementwise(hlo_graph *g)
{
    hlo_val x = hlo_param(g, "x", HLO_SHAPE(HLO_F32, 2, 3));
    hlo_val y = hlo_param(g, "y", HLO_SHAPE(HLO_F32, 2, 3));
    hlo_val i = hlo_param(g, "i", HLO_SHAPE(HLO_S32, 2, 3));
    hlo_val p = hlo_compare(g, HLO_LT, x, y);
#define UNARY(name, spelling) \
    hlo_result(g, #name, hlo_##name(g, strcmp(#name, "not") == 0 ? p : x));
    HLO_UNARY_OPS(UNARY)
#undef UNARY
#define BINARY(name, spelling)                                                                    \
    {                                                                                             \
        hlo_val a = HLO_OP_##name >= HLO_OP_and ? i : x, b = HLO_OP_##name >= HLO_OP_and ? i : y; \
        hlo_result(g, #name, hlo_##name(g, a, b));                                                \
    }
    HLO_BINARY_OPS(BINARY)
#undef BINARY
    for (hlo_compare_kind kind = HLO_EQ; kind <= HLO_GE; kind++) {
        hlo_result(g, "compare", hlo_compare(g, kind, x, y));
        hlo_result(g, "compare_int", hlo_compare(g, kind, i, hlo_scalar_int(g, HLO_S32, 1)));
    }
    hlo_result(g, "erf", hlo_erf(g, x));
    hlo_result(g, "select", hlo_select(g, p, x, y));
    hlo_result(g, "clamp", hlo_clamp(g, hlo_like(g, x, -1), x, hlo_like(g, x, 1)));
    hlo_result(g, "bitcast", hlo_bitcast(g, x, HLO_U32));
    for (hlo_type type = HLO_F64; type <= HLO_PRED; type++) {
        if (type != HLO_F32)
            hlo_result(g, "convert", hlo_convert(g, x, type));
    }
}

static void build_shapes(hlo_graph *g)
{
    hlo_val x = hlo_param(g, "x", HLO_SHAPE(HLO_F32, 4, 6));
    hlo_val at = hlo_param(g, "at", HLO_SCALAR(HLO_S32));
    const hlo_val starts[2] = {at, at};
    const float numbers[6] = {1, -0.0f, 0.1f, 1e30f, -2.5f, 3};
    hlo_result(g, "iota", hlo_iota(g, HLO_SHAPE(HLO_S32, 4, 6), 1));
    hlo_result(g, "constant", hlo_constant(g, HLO_SHAPE(HLO_F32, 2, 3), numbers));
    hlo_result(g, "broadcast", hlo_broadcast(g, x, HLO_DIMS(4, 2, 6), HLO_DIMS(0, 2)));
    hlo_result(g, "reshape", hlo_reshape(g, x, HLO_DIMS(2, 12)));
    hlo_result(g, "transpose", hlo_transpose(g, x, HLO_DIMS(1, 0)));
    hlo_result(g, "reverse", hlo_reverse(g, x, HLO_DIMS(0)));
    hlo_result(g, "slice", hlo_slice(g, x, HLO_DIMS(1, 0), HLO_DIMS(4, 6), HLO_DIMS(1, 2)));
    hlo_result(g, "dynamic_slice", hlo_dynamic_slice(g, x, starts, HLO_DIMS(2, 2)));
    hlo_val small = hlo_slice_dim(g, x, 0, 0, 2);
    hlo_result(g, "dynamic_update", hlo_dynamic_update(g, x, small, starts));
    hlo_result(g, "pad",
               hlo_pad(g, x, hlo_like(g, x, 0), HLO_DIMS(1, -1), HLO_DIMS(0, 2), HLO_DIMS(1, 0)));
    hlo_result(g, "concat", hlo_concat(g, (hlo_val[]){x, small}, 2, 0));
}

static void build_products(hlo_graph *g)
{
    hlo_val x = hlo_param(g, "x", HLO_SHAPE(HLO_F32, 2, 4, 8));
    hlo_val b = hlo_param(g, "b", HLO_SHAPE(HLO_BF16, 2, 4, 8));
    hlo_val ids = hlo_param(g, "ids", HLO_SHAPE(HLO_S32, 5));
    hlo_val w = hlo_param(g, "w", HLO_SHAPE(HLO_F32, 3, 8, 6));
    hlo_val seed = hlo_param(g, "seed", HLO_SHAPE(HLO_U64, 2)), next, values, indices;
    for (hlo_reduce_kind kind = HLO_REDUCE_ADD; kind <= HLO_REDUCE_MIN; kind++)
        hlo_result(g, "reduce", hlo_reduce(g, kind, x, HLO_DIMS(0, 2)));
    hlo_val p = hlo_compare(g, HLO_GT, x, hlo_like(g, x, 0));
    hlo_result(g, "and", hlo_reduce(g, HLO_REDUCE_AND, p, HLO_DIMS(1)));
    hlo_result(g, "or", hlo_reduce(g, HLO_REDUCE_OR, p, HLO_DIMS(1)));
    hlo_result(g, "dot", hlo_einsum(g, "bij,bkj->bik", x, x));
    hlo_result(g, "dot_highest",
               hlo_einsum_as(g, "bij,bkj->bik", x, x, HLO_F32, HLO_PRECISION_HIGHEST));
    hlo_result(g, "dot_bf16",
               hlo_einsum_as(g, "bij,bkj->bik", b, b, HLO_F32, HLO_PRECISION_DEFAULT));
    hlo_result(g, "conv", hlo_conv1d(g, x, w, &(hlo_conv_options){.pad_low = 2}));
    hlo_val table = hlo_reshape(g, x, HLO_DIMS(8, 8)), rows = hlo_take(g, table, ids), d;
    hlo_result(g, "take", rows);
    hlo_grad(g, hlo_sum(g, hlo_mul(g, rows, rows), HLO_DIMS(0, 1)), &table, 1, &d); /* scatter */
    hlo_result(g, "d_take", d);
    hlo_top_k(g, table, 3, &values, &indices); /* sort */
    hlo_result(g, "top", values);
    hlo_result(g, "places", indices);
    hlo_result(g, "random", hlo_random_uniform(g, seed, HLO_SHAPE(HLO_F32, 7), &next));
    hlo_result(g, "next", next);
}

static hlo_val below_ten(hlo_graph *g, void *ctx, const hlo_val *in)
{
    (void)ctx;
    return hlo_compare(g, HLO_LT, in[0], hlo_scalar(g, HLO_F32, 10));
}

static void doubled(hlo_graph *g, void *ctx, const hlo_val *in, hlo_val *out)
{
    const hlo_val *outside = ctx;
    hlo_val x = in == NULL ? *outside : in[0];
    out[0] = hlo_add(g, x, x);
}

static void squared(hlo_graph *g, void *ctx, const hlo_val *in, hlo_val *out)
{
    const hlo_val *outside = ctx;
    hlo_val x = in == NULL ? *outside : in[0];
    out[0] = hlo_mul(g, x, x);
}

static void step(hlo_graph *g, void *ctx, hlo_val number, const hlo_val *carry, const hlo_val *x,
                 hlo_val *next, hlo_val *y)
{
    const hlo_val *w = ctx;
    (void)number;
    next[0] = hlo_tanh(g, hlo_add(g, hlo_mul(g, carry[0], *w), x[0]));
    y[0] = next[0];
}

static void build_control(hlo_graph *g)
{
    hlo_val x = hlo_param(g, "x", HLO_SCALAR(HLO_F32)), out, pair[2];
    hlo_val at = hlo_param(g, "at", HLO_SCALAR(HLO_S32));
    hlo_val many = hlo_param(g, "many", HLO_SHAPE(HLO_F32, 7)), carry = x, ys, d[2];
    hlo_val loop = x;
    hlo_while(g, below_ten, doubled, &x, &loop, 1);
    hlo_result(g, "while", loop);
    hlo_if(g, hlo_compare(g, HLO_GT, x, hlo_like(g, x, 0)), doubled, squared, &x, &out, 1);
    hlo_result(g, "if", out);
    hlo_case(g, at, (const hlo_body[]){doubled, squared, doubled}, 3, &x, &out, 1);
    hlo_result(g, "case", out);
    hlo_call(g, "square", squared, NULL, &x, 1, &out, 1);
    hlo_result(g, "call", out);
    hlo_composite(g, "ttt.square", squared, NULL, &x, 1, &out, 1);
    hlo_result(g, "composite", out);
    hlo_barrier(g, (hlo_val[]){x, out}, 2, pair);
    hlo_result(g, "barrier", pair[1]);
    hlo_remat(g, squared, NULL, HLO_SAVE_MARKED, &x, 1, &out, 1);
    hlo_scan(g, step, &x, &carry, 1, &many, 1, &ys, 1, &(hlo_scan_options){.checkpoint = {2}});
    hlo_val loss = hlo_add(g, hlo_sum(g, hlo_mul(g, ys, ys), HLO_DIMS(0)), out);
    hlo_grad(g, loss, (hlo_val[]){x, many}, 2, d);
    hlo_result(g, "d_x", d[0]);
    hlo_result(g, "d_many", d[1]);
}

static const int64_t all_devices[4] = {0, 1, 2, 3};
static const hlo_groups everyone = {all_devices, 1, 4};

static void collectives(hlo_graph *g, void *ctx, const hlo_val *in, hlo_val *out)
{
    static const int64_t ring[4][2] = {{0, 1}, {1, 2}, {2, 3}, {3, 0}};
    (void)ctx;
    hlo_val sum = hlo_all_reduce(g, HLO_REDUCE_ADD, in[0], everyone);
    hlo_val moved = hlo_collective_permute(g, in[0], ring, 4);
    hlo_val whole = hlo_all_gather(g, in[0], 0, everyone);
    hlo_val part = hlo_reduce_scatter(g, whole, 0, everyone);
    hlo_val id = hlo_convert(g, hlo_partition_id(g), HLO_F32);
    out[0] = hlo_add(g, hlo_add(g, hlo_add(g, sum, moved), part), id);
}

static void build_sharded(hlo_graph *g)
{
    hlo_mesh(g, (const char *const[]){"x"}, (const int64_t[]){4}, 1);
    hlo_val a = hlo_param(g, "a", HLO_SHAPE(HLO_F32, 16, 8)), out;
    hlo_val w = hlo_param(g, "w", HLO_SHAPE(HLO_F32, 8, 8));
    hlo_shard_param(g, a, HLO_SPEC("x", NULL));
    hlo_shard_param(g, w, HLO_SPEC(NULL, "x"));
    hlo_val product = hlo_shard(g, hlo_matmul(g, a, w), HLO_SPEC("x", NULL));
    hlo_spec rows = HLO_SPEC("x", NULL);
    hlo_manual(g, collectives, NULL, &product, &rows, 1, &out, &rows, 1);
    hlo_result(g, "out", out);
    hlo_shard_result(g, 0, rows);
    hlo_donate(g, a, 0);
}

static void build_custom_call(hlo_graph *g)
{
    hlo_val x = hlo_param(g, "x", HLO_SHAPE(HLO_F32, 16)), out;
    const hlo_attr attrs[] = {{.name = "scale", .kind = HLO_ATTR_FLOAT, .real = 2},
                              {.name = "mode", .kind = HLO_ATTR_STRING, .string = "fast"},
                              {.name = "rounds", .kind = HLO_ATTR_INT, .integer = 3},
                              {.name = "exact", .kind = HLO_ATTR_BOOL, .integer = 1}};
    hlo_custom_call_options options = {.target = "ttt_accept",
                                       .attrs = attrs,
                                       .n_attrs = 4,
                                       .aliases = (const int[][2]){{0, 0}},
                                       .n_aliases = 1};
    hlo_shape shape = HLO_SHAPE(HLO_F32, 16);
    hlo_custom_call(g, &options, &x, 1, &shape, &out, 1);
    hlo_result(g, "out", out);
}

static const struct {
    const char *name;
    void (*build)(hlo_graph *g);
    int partitions;
} programs[] = {
    {"elementwise", build_elementwise, 1}, {"shapes", build_shapes, 1},
    {"products", build_products, 1},       {"control", build_control, 1},
    {"sharded", build_sharded, 4},         {"custom_call", build_custom_call, 1},
};
enum { N_PROGRAMS = sizeof programs / sizeof *programs };

static hlo_graph *build_program(size_t index)
{
    hlo_graph *g = hlo_graph_new(programs[index].name);
    assert_non_null(g);
    programs[index].build(g);
    return g;
}

static char *written(hlo_graph *g, size_t index, char *bytes)
{
    if (bytes == NULL)
        fail_msg("%s: %s", programs[index].name, hlo_graph_error(g)->message);
    hlo_graph_free(g);
    return bytes;
}

static char *write_program(size_t index)
{
    hlo_graph *g = build_program(index);
    return written(g, index, hlo_write_text(g, NULL));
}

static char *write_artifact(size_t index, int minor, size_t *size)
{
    hlo_graph *g = build_program(index);
    hlo_portable_options options = {.version = {minor == 0 ? 0 : 1, minor, 0}};
    return written(g, index, hlo_write_portable(g, &options, size));
}

/* ---- tests ---- */

static void text_is_as_the_golden_files_have_it(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_PROGRAMS; i++) {
        char path[PATH_MAX];
        size_t size;
        snprintf(path, sizeof path, "%s/hlo_builder/%s.mlir", getenv("TTT_TEST_DATA"),
                 programs[i].name);
        char *text = write_program(i);
        if (getenv("TTT_UPDATE_GOLDEN") != NULL)
            support_write_file(path, text, strlen(text));
        char *golden = (char *)support_read_file(path, &size);
        assert_int_equal(size, strlen(text));
        assert_memory_equal(golden, text, size);
        free(golden);
        free(text);
    }
}

static void every_operation_is_in_a_program(void **state)
{
    /* These leave no operation of their name in the text. */
    static const hlo_op silent[] = {HLO_OP_PARAM,     HLO_OP_STOP_GRADIENT, HLO_OP_KEEP,
                                    HLO_OP_ROW_MAJOR, HLO_OP_CUSTOM_VJP,    HLO_OP_SCAN,
                                    HLO_OP_REMAT};
    char *texts[N_PROGRAMS];
    (void)state;
    for (size_t i = 0; i < N_PROGRAMS; i++)
        texts[i] = write_program(i);
    for (hlo_op op = HLO_OP_NONE + 1; op < HLO_NUM_OPS; op++) {
        char needle[64];
        bool found = false;
        snprintf(needle, sizeof needle, ".%s", hlo__op_name(op)); /* stablehlo.add, chlo.erf … */
        for (size_t i = 0; i < sizeof silent / sizeof *silent; i++)
            found = found || silent[i] == op;
        for (size_t i = 0; i < N_PROGRAMS; i++)
            found = found || strstr(texts[i], needle) != NULL ||
                    (op == HLO_OP_CALL && strstr(texts[i], " call @") != NULL);
        if (!found)
            fail_msg("no program contains %s", hlo__op_name(op));
    }
    for (size_t i = 0; i < N_PROGRAMS; i++)
        free(texts[i]);
}

static void *stand_in(void *call_frame)
{
    pjrt_ffi_answer_metadata(call_frame, false);
    return NULL;
}

typedef struct compiler {
    const char *target;
    pjrt_client *client; /* or ahead of time */
    pjrt_topology *topology;
} compiler;

static void compile(const compiler *c, size_t index, const char *form, pjrt_program program)
{
    pjrt_executable *exe = NULL;
    pjrt_compile_options options = {.partitions = programs[index].partitions};
    pjrt_status *st = c->client != NULL ? pjrt_compile(c->client, program, &options, &exe)
                                        : pjrt_compile_ahead(c->topology, program, &options, &exe);
    if (st != NULL)
        fail_msg("%s as %s for %s: %s", programs[index].name, form, c->target,
                 pjrt_status_message(st));
    pjrt_executable_free(exe);
}

/* As text, as the oldest artifact that there is, and as one of the newest version that the compiler
 * has of those that are written. */
static void compile_all(const char *target_name, int newest_minor)
{
    const pjrt_target *target;
    pjrt_plugin *plugin;
    compiler c = {.target = target_name};
    void *handler, *(*function)(void *) = stand_in;
    memcpy(&handler, &function, sizeof handler);
    ASSERT_OK(pjrt_target_open(target_name, &target, &c.topology));
    ASSERT_OK(pjrt_plugin_load(target->plugin, &plugin));
    bool tpu = strcmp(target->plugin, "tpu") == 0;
    if (c.topology == NULL)
        ASSERT_OK(pjrt_client_create(plugin, &(pjrt_client_options){.cpu_devices = 4}, &c.client));
    if (!tpu)
        ASSERT_OK(pjrt_ffi_register(plugin, "ttt_accept",
                                    strcmp(target->plugin, "cuda") == 0 ? "CUDA" : "Host", handler,
                                    false));
    for (size_t i = 0; i < N_PROGRAMS; i++) {
        size_t sizes[2];
        if (tpu && strcmp(programs[i].name, "custom_call") == 0)
            continue; /* programs on a TPU cannot call handlers */
        char *text = write_program(i);
        char *oldest = write_artifact(i, 0, &sizes[0]);
        char *newest = write_artifact(i, newest_minor, &sizes[1]);
        compile(&c, i, "text", pjrt_program_text(text));
        compile(&c, i, "its oldest artifact", (pjrt_program){oldest, sizes[0], "mlir"});
        compile(&c, i, "its newest artifact", (pjrt_program){newest, sizes[1], "mlir"});
        free(text);
        free(oldest);
        free(newest);
    }
    pjrt_client_free(c.client);
    pjrt_topology_free(c.topology);
}

static void cpu_compiles_every_operation(void **state)
{
    (void)state;
    compile_all("cpu", 13);
}

static void tpu_compiles_every_operation(void **state)
{
    (void)state;
    compile_all("tpu:v5e:2x2", 17);
}

static void cuda_compiles_every_operation(void **state)
{
    (void)state;
    compile_all("cuda:a100-sxm-40gb:4", 17);
}

static void assert_row_major(const char *form, const TttXla__ShapeProto *shape)
{
    for (size_t i = 0; i < shape->n_tuple_shapes; i++) {
        const ProtobufCBinaryData *bytes = &shape->tuple_shapes[i];
        TttXla__ShapeProto *element = ttt_xla__shape_proto__unpack(NULL, bytes->len, bytes->data);
        assert_non_null(element);
        assert_row_major(form, element);
        ttt_xla__shape_proto__free_unpacked(element, NULL);
    }
    size_t rank = shape->n_dimensions;
    for (size_t i = 0; i < rank; i++) {
        assert_non_null(shape->layout);
        assert_int_equal(shape->layout->n_minor_to_major, rank);
        if (shape->layout->minor_to_major[i] != (int64_t)(rank - 1 - i))
            fail_msg("%s: an array of rank %zu at a custom call is not row-major", form, rank);
    }
}

static const TttXla__HloInstructionProto *find_operand(const TttXla__HloComputationProto *c,
                                                       int64_t id)
{
    for (size_t i = 0; i < c->n_instructions; i++) {
        if (c->instructions[i]->id == id)
            return c->instructions[i];
    }
    fail_msg("operand %lld is not in its computation", (long long)id);
    return NULL;
}

/* Calls of ttt_accept in the optimized program, all of whose arrays must be row-major. */
static int check_layouts(const char *form, const pjrt_executable *exe)
{
    char *bytes;
    size_t size;
    const char *format;
    int calls = 0;
    ASSERT_OK(pjrt_executable_optimized(exe, &bytes, &size, &format));
    assert_string_equal(format, "hlo_with_config");
    TttXla__HloModuleProtoWithConfig *program =
        ttt_xla__hlo_module_proto_with_config__unpack(NULL, size, (const uint8_t *)bytes);
    assert_non_null(program);
    const TttXla__HloModuleProto *module = program->hlo_module;
    for (size_t i = 0; i < module->n_computations; i++) {
        const TttXla__HloComputationProto *c = module->computations[i];
        for (size_t k = 0; k < c->n_instructions; k++) {
            const TttXla__HloInstructionProto *in = c->instructions[k];
            if (strcmp(in->custom_call_target, "ttt_accept") != 0)
                continue;
            calls++;
            assert_row_major(form, in->shape);
            for (size_t n = 0; n < in->n_operand_ids; n++)
                assert_row_major(form, find_operand(c, in->operand_ids[n])->shape);
        }
    }
    ttt_xla__hlo_module_proto_with_config__free_unpacked(program, NULL);
    free(bytes);
    return calls;
}

/* Without explicit layouts XLA:CUDA folds both transposes into layouts of the call's arrays. */
static hlo_graph *transposed_call_graph(void)
{
    hlo_graph *g = hlo_graph_new("layouts");
    hlo_val x = hlo_param(g, "x", HLO_SHAPE(HLO_F32, 4, 8, 16, 32)), out[2];
    hlo_val in[2] = {hlo_transpose(g, x, HLO_DIMS(1, 2, 0, 3)),
                     hlo_param(g, "n", HLO_SCALAR(HLO_S32))};
    hlo_shape shapes[2] = {HLO_SHAPE(HLO_F32, 8, 16, 4, 32), HLO_SCALAR(HLO_F32)};
    hlo_custom_call(g, &(hlo_custom_call_options){.target = "ttt_accept"}, in, 2, shapes, out, 2);
    hlo_result(g, "y", hlo_transpose(g, out[0], HLO_DIMS(2, 0, 1, 3)));
    hlo_result(g, "z", out[1]);
    return g;
}

static void custom_calls_see_row_major_arrays_on_cuda(void **state)
{
    (void)state;
    const pjrt_target *target;
    pjrt_topology *topology;
    pjrt_plugin *plugin;
    pjrt_executable *exe;
    void *handler, *(*function)(void *) = stand_in;
    memcpy(&handler, &function, sizeof handler);
    ASSERT_OK(pjrt_target_open("cuda:a100-sxm-40gb", &target, &topology));
    ASSERT_OK(pjrt_plugin_load(target->plugin, &plugin));
    ASSERT_OK(pjrt_ffi_register(plugin, "ttt_accept", "CUDA", handler, false));
    hlo_graph *g = transposed_call_graph();
    size_t size;
    char *text = hlo_write_text(g, NULL), *artifact = hlo_write_portable(g, NULL, &size);
    assert_non_null(text);
    assert_non_null(artifact);
    ASSERT_OK(pjrt_compile_ahead(topology, pjrt_program_text(text), NULL, &exe));
    assert_int_equal(check_layouts("text", exe), 1);
    pjrt_executable_free(exe);
    ASSERT_OK(pjrt_compile_ahead(topology, (pjrt_program){artifact, size, "mlir"}, NULL, &exe));
    assert_int_equal(check_layouts("artifact", exe), 1);
    pjrt_executable_free(exe);
    free(text);
    free(artifact);
    hlo_graph_free(g);
    pjrt_topology_free(topology);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_as_the_golden_files_have_it),
        cmocka_unit_test(every_operation_is_in_a_program),
        cmocka_unit_test(cpu_compiles_every_operation),
        cmocka_unit_test(tpu_compiles_every_operation),
        cmocka_unit_test(cuda_compiles_every_operation),
        cmocka_unit_test(custom_calls_see_row_major_arrays_on_cuda),
    };
    return cmocka_run_group_tests_name("hlo_builder_accept", tests, NULL, NULL);
}
