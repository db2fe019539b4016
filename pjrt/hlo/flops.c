/*
 * Arithmetic of an instruction, by the rules of XLA's cost analysis: 2 flops per multiply-add,
 * 1 per element of an elementwise result, and a reduction's function as often as it is applied.
 */
#include "pjrt/hlo/internal.h"

#include <stdlib.h>
#include <string.h>

static double elements(const hlo_instruction *in)
{
    return in->size.elements;
}

/* Elements of the first array, where a variadic reduction has several. */
static pjrt_status *first_elements(const hlo_instruction *in, double *out)
{
    hlo_size size;
    PJRT_TRY(hlo_shape_measure(in->proto->shape, 0, &size));
    *out = size.elements;
    return NULL;
}

/* Applies a callee's arithmetic so many times. */
static void apply(pjrt_hlo_cost *cost, const hlo_computation *function, double times)
{
    cost->flops += function->once.flops * times;
    cost->transcendentals += function->once.transcendentals * times;
}

static double log2_ceiling(double n)
{
    double power = 1, bits = 0;
    for (; power < n && bits < 1100; bits++)
        power *= 2;
    return bits;
}

static pjrt_status *product_of(const TttXla__ShapeProto *shape, const int64_t *dims, size_t count,
                               double *out)
{
    *out = 1;
    for (size_t i = 0; i < count; i++) {
        int64_t side;
        PJRT_TRY(hlo_shape_dimension(shape, dims[i], &side));
        *out *= (double)side;
    }
    return NULL;
}

static pjrt_status *dot_flops(const hlo_instruction *in, const TttXla__DotDimensionNumbers *dims,
                              double *flops)
{
    double contracted = 1;
    if (dims != NULL)
        PJRT_TRY(product_of(in->operands[0]->proto->shape, dims->lhs_contracting_dimensions,
                            dims->n_lhs_contracting_dimensions, &contracted));
    *flops = 2 * contracted * elements(in);
    return NULL;
}

/* cuBLAS products keep a dot's dimension numbers in their configuration. */
static pjrt_status *gemm_flops(const hlo_instruction *in, double *flops)
{
    hlo_json dims;
    double contracted = 1, result;
    int64_t dim, side;
    if (in->operand_count == 0 ||
        !hlo_json_find(hlo_backend_config(in), "lhs_contracting_dimensions", &dims))
        return NULL;
    while (hlo_json_next_integer(&dims, &dim)) {
        PJRT_TRY(hlo_shape_dimension(in->operands[0]->proto->shape, dim, &side));
        contracted *= (double)side;
    }
    PJRT_TRY(first_elements(in, &result));
    *flops = 2 * contracted * result;
    return NULL;
}

static int64_t positive_modulo(int64_t a, int64_t b)
{
    int64_t r = a % b;
    return r < 0 ? r + b : r;
}

static int64_t floor_divide(int64_t a, int64_t b)
{
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

/* The inverse of a modulo m, and their greatest common divisor. */
static int64_t inverse(int64_t a, int64_t m, int64_t *divisor)
{
    int64_t r = m, next_r = positive_modulo(a, m), t = 0, next_t = 1;
    while (next_r != 0) {
        int64_t q = r / next_r, keep = next_r;
        next_r = r - q * next_r;
        r = keep;
        keep = next_t;
        next_t = t - q * next_t;
        t = keep;
    }
    *divisor = r;
    return positive_modulo(t, m);
}

/* A window along one dimension, its numbers checked to be small enough to multiply. */
typedef struct window {
    int64_t kernel, input, output, stride, pad, kernel_dilation, input_dilation;
} window;

/* For one point of the kernel: output positions o in [0, output) for which o * stride + offset
 * meets an element of the input, that is a multiple of input_dilation in [0, input *
 * input_dilation). */
static int64_t meets(const window *w, int64_t offset)
{
    int64_t last = (w->input - 1) * w->input_dilation;
    int64_t low = -floor_divide(offset, w->stride); /* the first o with o * stride + offset >= 0 */
    int64_t high = floor_divide(last - offset, w->stride);
    if (low < 0)
        low = 0;
    if (high > w->output - 1)
        high = w->output - 1;
    if (w->input == 0 || low > high)
        return 0;
    int64_t divisor;
    int64_t unit = inverse(w->stride, w->input_dilation, &divisor);
    if (positive_modulo(offset, divisor) != 0)
        return 0;
    /* o = first + k * period solves o * stride + offset = 0 modulo input_dilation. */
    int64_t period = w->input_dilation / divisor;
    int64_t first =
        positive_modulo(unit, period) * (positive_modulo(-offset, w->input_dilation) / divisor);
    first = positive_modulo(first, period);
    int64_t from = low + positive_modulo(first - low, period);
    return from > high ? 0 : (high - from) / period + 1;
}

/* Pairs of kernel and output positions that meet the input, padding left out. */
static double valid_positions(const window *w)
{
    enum { MOST = 1 << 16 };
    if (w->kernel > MOST)
        return (double)w->kernel * (double)w->output; /* no such kernel: an upper bound will do */
    double count = 0;
    for (int64_t k = 0; k < w->kernel; k++)
        count += (double)meets(w, k * w->kernel_dilation - w->pad);
    return count;
}

/* The shapes a convolution works on; for its derivatives the roles are exchanged. */
typedef struct roles {
    const TttXla__ShapeProto *input, *kernel, *output;
} roles;

static pjrt_status *window_of(const TttXla__WindowDimension *dim,
                              const TttXla__ConvolutionDimensionNumbers *numbers, size_t i,
                              const roles *r, window *w)
{
    const int64_t most = 1 << 30;
    if (i >= numbers->n_kernel_spatial_dimensions || i >= numbers->n_input_spatial_dimensions ||
        i >= numbers->n_output_spatial_dimensions)
        return HLO_BAD("a convolution has more window than spatial dimensions");
    *w = (window){.stride = dim->stride == 0 ? 1 : dim->stride,
                  .pad = dim->padding_low,
                  .kernel_dilation = dim->window_dilation == 0 ? 1 : dim->window_dilation,
                  .input_dilation = dim->base_dilation == 0 ? 1 : dim->base_dilation};
    PJRT_TRY(hlo_shape_dimension(r->kernel, numbers->kernel_spatial_dimensions[i], &w->kernel));
    PJRT_TRY(hlo_shape_dimension(r->input, numbers->input_spatial_dimensions[i], &w->input));
    PJRT_TRY(hlo_shape_dimension(r->output, numbers->output_spatial_dimensions[i], &w->output));
    if (w->stride < 1 || w->stride > most || w->kernel_dilation < 1 || w->kernel_dilation > most ||
        w->input_dilation < 1 || w->input_dilation > most || w->pad < -most || w->pad > most ||
        w->kernel > most || w->input > most || w->output > most)
        return HLO_BAD("a convolution's window is out of range");
    return NULL;
}

static pjrt_status *convolution_flops(const hlo_instruction *in, const roles *r, double *flops)
{
    const TttXla__ConvolutionDimensionNumbers *numbers = in->proto->convolution_dimension_numbers;
    const TttXla__Window *windows = in->proto->window;
    if (numbers == NULL)
        return HLO_BAD("a convolution without dimension numbers: " HLO_NAME, in->proto->name);
    int64_t batch, features, out_features;
    PJRT_TRY(hlo_shape_dimension(r->input, numbers->input_batch_dimension, &batch));
    PJRT_TRY(hlo_shape_dimension(r->input, numbers->input_feature_dimension, &features));
    PJRT_TRY(hlo_shape_dimension(r->output, numbers->output_feature_dimension, &out_features));
    double positions = 1;
    for (size_t i = 0; windows != NULL && i < windows->n_dimensions; i++) {
        window w;
        PJRT_TRY(window_of(windows->dimensions[i], numbers, i, r, &w));
        positions *= valid_positions(&w);
    }
    double groups = in->proto->feature_group_count > 0 ? (double)in->proto->feature_group_count : 1;
    double batches = in->proto->batch_group_count > 0 ? (double)in->proto->batch_group_count : 1;
    *flops = 2 * ((double)features / groups) * (double)out_features * ((double)batch / batches) *
             positions;
    return NULL;
}

/* cuDNN convolutions return (result, scratch), and their derivatives are described by the dimension
 * numbers of the convolution they derive. */
static pjrt_status *cudnn_flops(const hlo_instruction *in, double *flops)
{
    const ProtobufCBinaryData *first = in->proto->shape->tuple_shapes;
    if (in->operand_count < 2 || in->proto->shape->n_tuple_shapes == 0)
        return NULL;
    hlo_budget budget;
    hlo_budget_init(&budget, first->len);
    TttXla__ShapeProto *result =
        ttt_xla__shape_proto__unpack(&budget.allocator, first->len, first->data);
    if (result == NULL)
        return hlo_budget_status(&budget, "a tuple's shape");
    const TttXla__ShapeProto *a = in->operands[0]->proto->shape, *b = in->operands[1]->proto->shape;
    roles r = {.input = a, .kernel = b, .output = result};
    if (strcmp(in->proto->custom_call_target, "__cudnn$convBackwardInput") == 0)
        r = (roles){.input = result, .kernel = b, .output = a};
    else if (strcmp(in->proto->custom_call_target, "__cudnn$convBackwardFilter") == 0)
        r = (roles){.input = a, .kernel = result, .output = b};
    pjrt_status *st = convolution_flops(in, &r, flops);
    ttt_xla__shape_proto__free_unpacked(result, &hlo_free_only);
    return st;
}

static pjrt_status *custom_call_flops(const hlo_instruction *in, double *flops)
{
    const char *target = in->proto->custom_call_target;
    if (strncmp(target, "__cublas$", 9) == 0)
        return gemm_flops(in, flops);
    if (strncmp(target, "__cudnn$conv", 12) == 0)
        return cudnn_flops(in, flops);
    return NULL;
}

static double window_elements(const hlo_instruction *in)
{
    double count = 1;
    for (size_t i = 0; in->proto->window != NULL && i < in->proto->window->n_dimensions; i++)
        count *= (double)in->proto->window->dimensions[i]->size;
    return count < 1 ? 1 : count;
}

static pjrt_status *reduction_flops(const hlo_instruction *in, pjrt_hlo_cost *cost)
{
    double from, to;
    PJRT_TRY(first_elements(in->operands[0], &from));
    PJRT_TRY(first_elements(in, &to));
    if (in->op == HLO_REDUCE)
        apply(cost, in->called[0], from > to ? from - to : 0);
    else
        apply(cost, in->called[0], (window_elements(in) - 1) * to);
    return NULL;
}

/* The last dimension of a square matrix, or of a stack of them. */
static double matrix_side(const hlo_instruction *in)
{
    const TttXla__ShapeProto *shape = in->proto->shape;
    return shape->n_dimensions == 0 ? 1 : (double)shape->dimensions[shape->n_dimensions - 1];
}

static double fft_flops(const hlo_instruction *in)
{
    double factors = 1;
    for (size_t i = 0; i < in->proto->n_fft_length; i++) {
        double bits = 0;
        for (int64_t n = in->proto->fft_length[i]; n > 1; n /= 2)
            bits++;
        factors *= bits;
    }
    return 8 * factors * elements(in->operands[0]); /* 4 multiply-adds a complex product */
}

pjrt_status *hlo_flops(const hlo_instruction *in, pjrt_hlo_cost *cost)
{
    if (in->class == HLO_CLASS_ELEMENTWISE)
        cost->flops = elements(in);
    else if (in->class == HLO_CLASS_TRANSCENDENTAL)
        cost->transcendentals = elements(in);
    switch (in->op) {
    case HLO_DOT:
        return dot_flops(in, in->proto->dot_dimension_numbers, &cost->flops);
    case HLO_RAGGED_DOT: {
        const TttXla__RaggedDotDimensionNumbers *r = in->proto->ragged_dot_dimension_numbers;
        return dot_flops(in, r == NULL ? NULL : r->dot_dimension_numbers, &cost->flops);
    }
    case HLO_CONVOLUTION: {
        roles r = {.input = in->operands[0]->proto->shape,
                   .kernel = in->operands[1]->proto->shape,
                   .output = in->proto->shape};
        return convolution_flops(in, &r, &cost->flops);
    }
    case HLO_CUSTOM_CALL:
        return custom_call_flops(in, &cost->flops);
    case HLO_FUSION:
        apply(cost, in->called[0], 1);
        return NULL;
    case HLO_MAP:
        apply(cost, in->called[0], elements(in));
        return NULL;
    case HLO_REDUCE:
    case HLO_REDUCE_WINDOW:
        return reduction_flops(in, cost);
    case HLO_SCATTER:
        apply(cost, in->called[0], elements(in->operands[(in->operand_count - 1) / 2 + 1]));
        return NULL;
    case HLO_SELECT_AND_SCATTER:
        apply(cost, in->called[0], elements(in->operands[1]) * (window_elements(in) - 1));
        apply(cost, in->called[1], elements(in->operands[1]));
        return NULL;
    case HLO_SORT: {
        double n = elements(in->operands[0]);
        cost->flops = n * log2_ceiling(n);
        return NULL;
    }
    case HLO_ALL_REDUCE:
    case HLO_ALL_REDUCE_START:
        cost->flops = elements(in); /* as if two devices met */
        return NULL;
    case HLO_FFT:
        cost->flops = fft_flops(in);
        return NULL;
    case HLO_TRIANGULAR_SOLVE:
        cost->flops = 2 * matrix_side(in->operands[0]) * elements(in->operands[1]);
        return NULL;
    case HLO_CHOLESKY:
        cost->flops = matrix_side(in->operands[0]) * elements(in->operands[0]) / 3;
        return NULL;
    default:
        return NULL;
    }
}
