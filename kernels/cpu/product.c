/* ttt_product: rows of weights in pieces over the threads. */
#include "kernels/cpu/arrays.h"
#include "kernels/cpu/code.h"
#include "kernels/cpu/handlers.h"
#include "kernels/cpu/parallel.h"

#include <stdlib.h>

/* Bytes of weights that a thread takes at a time: enough to be worth it, few enough that threads
 * end together. */
enum { PIECE = 256 * 1024 };

typedef struct product_call {
    product_part whole;
    void (*code)(const product_part *part);
    int64_t rows; /* of a piece */
    ffi_array y;
} product_call;

static void one_piece(void *ctx, int64_t item, int worker)
{
    const product_call *p = ctx;
    product_part part = p->whole;
    (void)worker;
    part.first = item * p->rows;
    part.end = part.first + p->rows < part.n ? part.first + p->rows : part.n;
    p->code(&part);
}

static int bytes_of(ffi_type type)
{
    return type == FFI_F32 ? 4 : (type == FFI_BF16 ? 2 : 1);
}

/* x [batch, k] into panels; see product_part. */
static void fill_panels(const product_part *t, int64_t lanes, float *to)
{
    for (int64_t b = 0; b < t->batch; b += 4) {
        for (int64_t j = 0; j + lanes <= t->k; j += lanes) {
            for (int64_t i = b; i < b + 4; i++, to += lanes) {
                if (i < t->batch)
                    memcpy(to, t->x + i * t->k + j, (size_t)lanes * sizeof *to);
                else
                    memset(to, 0, (size_t)lanes * sizeof *to);
            }
        }
    }
}

/* Activations as floats, where they are not: x before, y after. */
static void run(ffi_call *c, product_call *p, ffi_array x, int64_t lanes)
{
    product_part *t = &p->whole;
    size_t inputs = x.type == FFI_F32 ? 0 : (size_t)(t->batch * t->k);
    size_t outputs = p->y.type == FFI_F32 ? 0 : (size_t)(t->batch * t->n);
    size_t panels = t->batch == 1 ? 0 : (size_t)((t->batch + 3) / 4 * 4 * t->k);
    size_t all = inputs + outputs + panels;
    float *scratch = all == 0 ? NULL : arrays_scratch(c, 1, &all);
    if (c->failed)
        return;
    if (inputs > 0)
        arrays_read(x, 0, t->batch * t->k, scratch);
    t->x = inputs > 0 ? scratch : x.data;
    t->y = outputs > 0 ? scratch + inputs : p->y.data;
    if (panels > 0) {
        t->panels = scratch + inputs + outputs;
        fill_panels(t, lanes, scratch + inputs + outputs);
    }
    int64_t pieces = (t->n + p->rows - 1) / p->rows;
    parallel_run(c, parallel_workers(c, pieces), pieces, one_piece, p);
    if (outputs > 0)
        arrays_write(t->y, t->batch * t->n, p->y, 0);
    free(scratch);
}

XLA_FFI_Error *handle_product(XLA_FFI_CallFrame *frame)
{
    ffi_call c;
    if (ffi_begin(&c, frame, "ttt_product", false))
        return NULL;
    product_call p = {.whole = {.batch = -1, .k = -1, .n = -1}};
    product_part *t = &p.whole;
    ffi_array x = ffi_operand(&c, 0, "x", FFI_ACT, 2, (int64_t *[]){&t->batch, &t->k});
    ffi_array w =
        ffi_operand(&c, 1, "w", FFI_F32 | FFI_BF16 | FFI_S8, 2, (int64_t *[]){&t->n, &t->k});
    ffi_count(&c, w.type == FFI_S8 ? 3 : 2, 1);
    if (w.type == FFI_S8)
        t->scale = ffi_operand(&c, 2, "scale", FFI_F32, 1, (int64_t *[]){&t->n}).data;
    p.y = ffi_result(&c, 0, "y", (int)x.type | FFI_F32, 2, (int64_t *[]){&t->batch, &t->n});
    if (c.failed || t->batch == 0 || t->n == 0)
        return ffi_end(&c);
    /* Any length of rows will do. One row of activations is faster by the path of 8 lanes, but for
     * bf16: a core reads f32, bf16 and s8 at 31, 24 and 25 GB/s with AVX2, 26, 31 and 16 with
     * AVX-512. */
    const cpu_code *code = cpu_code_for(t->batch == 1 && w.type != FFI_BF16 ? 8 : 16);
    p.code = w.type == FFI_F32 ? code->product_f32
                               : (w.type == FFI_BF16 ? code->product_bf16 : code->product_s8);
    t->w = w.data;
    int64_t row = t->k * bytes_of(w.type);
    p.rows = (row > 0 ? PIECE / row : 0) / 12 * 12; /* threes and fours */
    p.rows = p.rows < 12 ? 12 : p.rows;
    run(&c, &p, x, code->lanes);
    return ffi_end(&c);
}
