/*
 * ttt_product: against plain sums in double precision, for every type of weights and activations
 * and any number of rows; and through the CPU plugin against XLA's own product.
 */
#include "kernels/cpu/code.h"
#include "tests/support/kernel_graphs.h"
#include "tests/support/kernels.h"
#include "tests/support/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct variant {
    int64_t batch, k, n;
    XLA_FFI_DataType act, weight, result;
} variant;

typedef struct product_data {
    variant v;
    float *x, *w, *scale, *y; /* what the numbers are, whatever their type */
    void *x_as, *w_as, *y_as; /* and as they are given */
    kernels_call call;
} product_data;

static float from_bf16(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float y;
    memcpy(&y, &bits, sizeof y);
    return y;
}

/* Rounds the numbers to the type and writes them so. */
static void *as_type(XLA_FFI_DataType type, float *x, int64_t n)
{
    void *made = kernels_floats(n);
    for (int64_t i = 0; i < n; i++) {
        if (type == XLA_FFI_DataType_F32) {
            ((float *)made)[i] = x[i];
        } else if (type == XLA_FFI_DataType_S8) {
            int8_t whole = (int8_t)lrintf(x[i] * 127);
            ((int8_t *)made)[i] = whole;
            x[i] = whole;
        } else {
            uint32_t bits;
            memcpy(&bits, &x[i], sizeof bits);
            uint16_t half = (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
            ((uint16_t *)made)[i] = half;
            x[i] = from_bf16(half);
        }
    }
    return made;
}

static void data_open(product_data *p, variant v)
{
    uint64_t seed = 3;
    *p = (product_data){.v = v,
                        .x = kernels_floats(v.batch * v.k + 1),
                        .w = kernels_floats(v.n * v.k + 1),
                        .scale = kernels_floats(v.n + 1),
                        .y = kernels_floats(v.batch * v.n + 1)};
    kernels_numbers(p->x, v.batch * v.k, 1, &seed);
    kernels_numbers(p->w, v.n * v.k, 1, &seed);
    for (int64_t i = 0; i < v.n; i++)
        p->scale[i] = 0.01f + 0.001f * (float)(i % 7);
    p->x_as = as_type(v.act, p->x, v.batch * v.k + 1);
    p->w_as = as_type(v.weight, p->w, v.n * v.k + 1);
    p->y_as = kernels_floats(v.batch * v.n + 1);
    p->call = (kernels_call){.target = "ttt_product", .n_in = 2, .n_out = 1};
    p->call.in[0] = (kernels_array){v.act, 2, {v.batch, v.k}, p->x_as};
    p->call.in[1] = (kernels_array){v.weight, 2, {v.n, v.k}, p->w_as};
    p->call.out[0] = (kernels_array){v.result, 2, {v.batch, v.n}, p->y_as};
    if (v.weight == XLA_FFI_DataType_S8)
        p->call.in[p->call.n_in++] = KERNELS_ARRAY(F32, p->scale, v.n);
}

static void data_close(product_data *p)
{
    void *all[] = {p->x, p->w, p->scale, p->y, p->x_as, p->w_as, p->y_as};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

/* The largest distance, as a part of the sum of what was added up. */
static double distance(const product_data *p, const void *y)
{
    const variant *v = &p->v;
    double worst = 0;
    for (int64_t b = 0; b < v->batch; b++) {
        for (int64_t n = 0; n < v->n; n++) {
            double sum = 0, size = 1e-30, by = v->weight == XLA_FFI_DataType_S8 ? p->scale[n] : 1;
            for (int64_t i = 0; i < v->k; i++) {
                double one = (double)p->x[b * v->k + i] * p->w[n * v->k + i] * by;
                sum += one;
                size += fabs(one);
            }
            int64_t at = b * v->n + n;
            double made = v->result == XLA_FFI_DataType_F32 ? ((const float *)y)[at]
                                                            : from_bf16(((const uint16_t *)y)[at]);
            worst = fmax(worst, fabs(made - sum) / size);
        }
    }
    return worst;
}

static void check_sizes(void)
{
    static const struct {
        int64_t batch, k, n;
    } sizes[] = {{1, 64, 64},   {1, 768, 301}, {2, 100, 33}, {3, 17, 9},    {4, 2048, 18},
                 {5, 96, 1025}, {7, 8, 8},     {16, 333, 7}, {17, 64, 130}, {1, 1, 1},
                 {1, 5, 3},     {0, 8, 8},     {2, 0, 3},    {2, 8, 0}};
    static const XLA_FFI_DataType f32 = XLA_FFI_DataType_F32, bf16 = XLA_FFI_DataType_BF16,
                                  weights[] = {XLA_FFI_DataType_F32, XLA_FFI_DataType_BF16,
                                               XLA_FFI_DataType_S8};
    const XLA_FFI_DataType acts[3][2] = {{f32, f32}, {bf16, bf16}, {bf16, f32}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes * 9; i++) {
        const XLA_FFI_DataType *act = acts[i % 3];
        variant v = {sizes[i / 9].batch, sizes[i / 9].k, sizes[i / 9].n, act[0],
                     weights[i / 3 % 3], act[1]};
        product_data p;
        data_open(&p, v);
        p.call.threads = (int)(i % 4);
        const char *error = kernels_run(&p.call);
        if (error != NULL)
            fail_msg("case %zu: %s", i, error);
        double off = distance(&p, p.y_as), near = act[1] == f32 ? 1e-6 : 4e-3;
        if (getenv("TTT_TEST_SHOW") != NULL && off > near / 5)
            print_message("case %zu, %s: %g\n", i, cpu_code_for(64)->name, off);
        if (!(off < near)) /* 2e-7 was seen for f32; bf16 rounds by 2^-8 at most */
            fail_msg("case %zu, %s: off by %g", i, cpu_code_for(64)->name, off);
        data_close(&p);
    }
}

static void products_agree_with_double_precision(void **state)
{
    static const char *const paths[] = {"portable", "avx2", "avx512"};
    (void)state;
    for (int i = 0; i < 3; i++) {
        if (cpu_code_force(paths[i]))
            check_sizes();
    }
    cpu_code_force(NULL);
}

static void assert_refused(const kernels_call *c, const char *part)
{
    const char *error = kernels_run(c);
    if (error == NULL)
        fail_msg("accepted, though: %s", part);
    ASSERT_CONTAINS(error, part);
}

static void wrong_calls_are_refused(void **state)
{
    product_data p;
    kernels_call c;
    (void)state;
    data_open(&p,
              (variant){2, 16, 8, XLA_FFI_DataType_F32, XLA_FFI_DataType_S8, XLA_FFI_DataType_F32});
    assert_null(kernels_run(&p.call));
    c = p.call, c.n_in = 2;
    assert_refused(&c, "ttt_product: takes 3 operands and gives 1 results, not 2 and 1");
    c = p.call, c.in[1].type = XLA_FFI_DataType_F32;
    assert_refused(&c, "takes 2 operands");
    c = p.call, c.in[1].dims[1] = 17;
    assert_refused(&c, "w has to be [?, 16], not [8, 17]");
    c = p.call, c.in[2].dims[0] = 2;
    assert_refused(&c, "scale has to be [8], not [2]");
    c = p.call, c.in[1].type = XLA_FFI_DataType_F16;
    assert_refused(&c, "w has to be f32 or bf16 or s8");
    c = p.call, c.out[0].type = XLA_FFI_DataType_BF16;
    assert_refused(&c, "y has to be f32");
    c = p.call, c.out[0].dims[0] = 3;
    assert_refused(&c, "y has to be [2, 8], not [3, 8]");
    data_close(&p);
}

/* More than there is of memory is told, not tried. */
static void too_much_is_refused(void **state)
{
    kernels_call c = {.target = "ttt_product", .n_in = 2, .n_out = 1};
    int64_t huge = (int64_t)1 << 31;
    (void)state;
    c.in[0] = KERNELS_ARRAY(BF16, NULL, huge, huge);
    c.in[1] = KERNELS_ARRAY(F32, NULL, 1, huge);
    c.out[0] = KERNELS_ARRAY(F32, NULL, huge, 1);
    assert_refused(&c, "ttt_product: out of memory");
}

/* The same program with XLA's own product beside it. */
static const char program[] =
    "func.func @main(%%x: tensor<3x96xf32>, %%w: tensor<200x96x%s>, %%s: tensor<200xf32>)\n"
    "    -> (tensor<3x200xf32>, tensor<3x200xf32>) {\n"
    "  %%0 = stablehlo.custom_call @ttt_product(%%x, %%w%s) {api_version = 4 : i32}\n"
    "       : (tensor<3x96xf32>, tensor<200x96x%s>%s) -> tensor<3x200xf32>\n"
    "  %%1 = stablehlo.convert %%w : (tensor<200x96x%s>) -> tensor<200x96xf32>\n"
    "  %%2 = stablehlo.dot_general %%x, %%1, contracting_dims = [1] x [1]\n"
    "       : (tensor<3x96xf32>, tensor<200x96xf32>) -> tensor<3x200xf32>\n"
    "  %%3 = stablehlo.broadcast_in_dim %%s, dims = [1]\n"
    "       : (tensor<200xf32>) -> tensor<3x200xf32>\n"
    "  %%4 = stablehlo.multiply %%2, %%3 : tensor<3x200xf32>\n"
    "  return %%0, %%4 : tensor<3x200xf32>, tensor<3x200xf32>\n}";

static void plugin_case(pjrt_client *client, XLA_FFI_DataType weight, pjrt_type type,
                        const char *name)
{
    product_data p;
    char text[2048];
    bool quantised = weight == XLA_FFI_DataType_S8;
    data_open(&p, (variant){3, 96, 200, XLA_FFI_DataType_F32, weight, XLA_FFI_DataType_F32});
    for (int64_t i = 0; i < 200 && !quantised; i++)
        p.scale[i] = 1;
    snprintf(text, sizeof text, program, name, quantised ? ", %s" : "", name,
             quantised ? ", tensor<200xf32>" : "", name);
    pjrt_executable *exe;
    pjrt_buffer *in[3], *out[2];
    pjrt_device *device = pjrt_client_device(client, 0);
    float y[2][600];
    ASSERT_OK(pjrt_compile(client, pjrt_program_text(text), NULL, &exe));
    ASSERT_OK(
        pjrt_buffer_from_host(device, PJRT_F32, (int64_t[]){3, 96}, 2, p.x_as, NULL, NULL, &in[0]));
    ASSERT_OK(
        pjrt_buffer_from_host(device, type, (int64_t[]){200, 96}, 2, p.w_as, NULL, NULL, &in[1]));
    ASSERT_OK(
        pjrt_buffer_from_host(device, PJRT_F32, (int64_t[]){200}, 1, p.scale, NULL, NULL, &in[2]));
    ASSERT_OK(pjrt_execute(exe, in, 3, NULL, out, 2, NULL));
    for (int i = 0; i < 2; i++)
        ASSERT_OK(pjrt_buffer_to_host(out[i], y[i], sizeof y[i], NULL));
    for (int i = 0; i < 600; i++) { /* 4e-6 was seen of numbers up to 20 */
        if (!(fabsf(y[0][i] - y[1][i]) < 2e-5f))
            fail_msg("%s: number %d is %g, and %g by XLA", name, i, (double)y[0][i],
                     (double)y[1][i]);
    }
    assert_true(distance(&p, y[0]) < 1e-6);
    for (int i = 0; i < 3; i++)
        pjrt_buffer_free(in[i]);
    pjrt_buffer_free(out[0]);
    pjrt_buffer_free(out[1]);
    pjrt_executable_free(exe);
    data_close(&p);
}

static void products_agree_with_xla(void **state)
{
    pjrt_plugin *plugin;
    pjrt_client *client;
    (void)state;
    ASSERT_OK(pjrt_plugin_load("cpu", &plugin));
    ASSERT_OK(kernel_graphs_register(plugin));
    ASSERT_OK(pjrt_client_create(plugin, NULL, &client));
    plugin_case(client, XLA_FFI_DataType_F32, PJRT_F32, "f32");
    plugin_case(client, XLA_FFI_DataType_BF16, PJRT_BF16, "bf16");
    plugin_case(client, XLA_FFI_DataType_S8, PJRT_S8, "i8");
    pjrt_client_free(client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_agree_with_double_precision),
        cmocka_unit_test(wrong_calls_are_refused),
        cmocka_unit_test(too_much_is_refused),
        cmocka_unit_test(products_agree_with_xla),
    };
#if defined(__SANITIZE_THREAD__) /* the plugin's library is not built for it */
    size_t count = sizeof tests / sizeof *tests - 1;
#else
    size_t count = sizeof tests / sizeof *tests;
#endif
    return _cmocka_run_group_tests("kernels_product", tests, count, NULL, NULL);
}
