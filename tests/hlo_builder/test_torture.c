/*
 * Every allocation of hlo_builder is made to fail, one run of the scenario each: gradients, scans
 * with checkpointing, remat, branches, calls, rules, shardings, and both writers. The graph then
 * has an error that says so, and nothing is lost (which the address sanitizer counts).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "hlo_builder/hlo.h"
#include "tests/support/torture.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- the scenario ---- */

typedef struct weights {
    hlo_val w, scale, labels;
} weights;

static void block(hlo_graph *g, void *ctx, const hlo_val *in, hlo_val *out)
{
    const weights *p = ctx;
    hlo_val h = hlo_rms_norm(g, in[0], p->scale, 1e-5);
    out[0] = hlo_add(g, in[0], hlo_gelu(g, hlo_keep(g, hlo_matmul(g, h, p->w))));
}

static void other(hlo_graph *g, void *ctx, const hlo_val *in, hlo_val *out)
{
    const weights *p = ctx;
    (void)in;
    out[0] = hlo_softmax(g, p->w, -1);
}

static void same(hlo_graph *g, void *ctx, const hlo_val *in, hlo_val *out)
{
    const weights *p = ctx;
    (void)in;
    out[0] = hlo_mul(g, p->w, hlo_like(g, p->w, 2));
}

/* A step of descent on a weight: a gradient inside the body. */
static void learn(hlo_graph *g, void *ctx, hlo_val number, const hlo_val *carry, const hlo_val *x,
                  hlo_val *next, hlo_val *y)
{
    weights inner = *(const weights *)ctx;
    hlo_val d, error;
    (void)number;
    inner.w = carry[0];
    hlo_remat(g, block, &inner, HLO_SAVE_DOTS, x, 1, &error, 1);
    hlo_grad(g, hlo_mean(g, hlo_mul(g, error, error), HLO_DIMS(0, 1)), carry, 1, &d);
    next[0] = hlo_sub(g, carry[0], hlo_mul(g, d, hlo_like(g, d, 0.1)));
    y[0] = error;
}

static hlo_val goes_on(hlo_graph *g, void *ctx, const hlo_val *in)
{
    (void)ctx;
    return hlo_compare(g, HLO_LT, in[0], hlo_like(g, in[0], 9));
}

static void doubles(hlo_graph *g, void *ctx, const hlo_val *in, hlo_val *out)
{
    (void)ctx;
    out[0] = hlo_add(g, in[0], in[0]);
}

static hlo_val loss_of(hlo_graph *g, hlo_val x, weights *p)
{
    static const hlo_body branches[] = {same, other};
    static const float table[6] = {1, 2, 3, 4, 5, 6};
    hlo_val carry, y, mixed, called, pair[2];
    hlo_scan_options o = {.checkpoint = {2, 2}, .unroll = 2, .save = HLO_SAVE_DOTS};
    hlo_scope_push(g, "model");
    hlo_case(g, hlo_scalar_int(g, HLO_S32, 1), branches, 2, p, &mixed, 1);
    carry = mixed;
    hlo_scan(g, learn, p, &carry, 1, &x, 1, &y, 1, &o);
    y = hlo_reshape(g, y, HLO_DIMS(-1, 4));
    weights last = {carry, p->scale, p->labels};
    hlo_composite(g, "ttt.block", block, &last, &y, 1, &called, 1);
    hlo_sort(g, &called, 1, 0, false, &pair[0]);
    pair[1] = hlo_take(g, called, hlo_iota(g, HLO_SHAPE(HLO_S32, 18), 0));
    hlo_barrier(g, pair, 2, pair);
    hlo_val logits = hlo_add(g, pair[0], hlo_shard(g, pair[1], HLO_SPEC("data", NULL)));
    hlo_val bias = hlo_constant(g, HLO_SHAPE(HLO_F32, 6), table);
    hlo_val loss = hlo_sum(g, hlo_cross_entropy(g, logits, p->labels), HLO_DIMS(0));
    hlo_scope_pop(g);
    return hlo_add(g, loss, hlo_sum(g, bias, HLO_DIMS(0)));
}

/* Both writers' results, or NULL. */
typedef struct written {
    hlo_error_code code; /* 0: no error */
    bool graph, text, portable;
} written;

static void run(written *out)
{
    static const char *const axes[] = {"data"};
    size_t size;
    memset(out, 0, sizeof *out);
    hlo_graph *g = hlo_graph_new("torture");
    out->graph = g != NULL;
    if (g == NULL)
        return;
    hlo_mesh(g, axes, (int64_t[]){2}, 1);
    hlo_val x = hlo_param(g, "x", HLO_SHAPE(HLO_F32, 9, 2, 4));
    weights p = {hlo_param(g, "w", HLO_SHAPE(HLO_F32, 4, 4)),
                 hlo_param(g, "scale", HLO_SHAPE(HLO_F32, 4)),
                 hlo_param(g, "labels", HLO_SHAPE(HLO_S32, 18))};
    hlo_val n = hlo_scalar(g, HLO_F32, 1), d[2], bent[1];
    hlo_while(g, goes_on, doubles, NULL, &n, 1);
    hlo_val loss = loss_of(g, x, &p);
    hlo_grad(g, loss, (hlo_val[]){p.w, p.scale}, 2, d);
    hlo_grad(g, hlo_sum(g, hlo_mul(g, d[0], d[0]), HLO_DIMS(0, 1)), &p.scale, 1, bent);
    hlo_result(g, "loss", hlo_mul(g, loss, n));
    hlo_result(g, "dw", d[0]);
    hlo_result(g, "bent", bent[0]);
    hlo_donate(g, p.w, 1);
    hlo_shard_result(g, 1, HLO_SPEC(NULL, "data"));
    char *text = hlo_write_text(g, NULL), *portable = hlo_write_portable(g, NULL, &size);
    out->text = text != NULL;
    out->portable = portable != NULL;
    out->code = hlo_graph_error(g) == NULL ? 0 : hlo_graph_error(g)->code;
    if (out->code == HLO_ERROR_MEMORY &&
        strstr(hlo_graph_error(g)->message, "out of memory") == NULL)
        out->code = HLO_ERROR_VALUE; /* an error about something else */
    free(text);
    free(portable);
    hlo_graph_free(g);
}

/* With the sanitizers the arena is not there, and allocations are some 60000 (all of them were seen
 * to be survived): of those one in so many, a prime number. */
enum { ALL_OF = 1500, STRIDE = 211 };

static void each_allocation_fails_once(void **state)
{
    written w;
    int n = 1;
    (void)state;
    for (bool hit = true; hit; n += n < ALL_OF ? 1 : STRIDE) {
        allocations = 0;
        fail_at = n;
        run(&w);
        hit = allocations >= n;
        fail_at = 0;
        if (!hit) {
            assert_true(w.graph && w.text && w.portable);
            assert_int_equal(w.code, 0);
        } else if (w.graph && w.code != HLO_ERROR_MEMORY) {
            fail_msg("allocation %d failed, and the graph has error %d", n, (int)w.code);
        } else if (w.portable) {
            fail_msg("allocation %d failed, and there is an artifact all the same", n);
        }
    }
    print_message("up to allocation %d\n", n);
    assert_in_range(n, 100, 1000000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_allocation_fails_once),
    };
    return cmocka_run_group_tests_name("hlo_builder torture", tests, NULL, NULL);
}
