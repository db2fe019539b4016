/*
 * Sizes of shapes, and the allocator that keeps decoding within bounds.
 *
 * A shape says how many elements an array has; its layout says how they lie. TPU layouts are tiled:
 * f32[64,64] in tiles of (8,128) occupies 64 x 128 elements.
 */
#include "pjrt/hlo/internal.h"

#include <stdlib.h>

enum {
    MAX_TUPLE_DEPTH = 32, /* of tuples in tuples; compilers flatten them */
    MAX_RANK = 64,        /* tile dimensions included */
    TYPE_TUPLE = 13,      /* xla.PrimitiveType */
};

/* Bits of an element, by xla.PrimitiveType: 0 for those that are no array (invalid, tuple, opaque,
 * token, buffer). */
static const unsigned char type_bits[] = {
    0,  8,   8,  16, 32, 64, 8,  16, 32, 64, /* invalid pred s8 s16 s32 s64 u8 u16 u32 u64 */
    16, 32,  64, 0,  0,  64, 16,             /* f16 f32 f64 tuple opaque c64 bf16 */
    0,  128,                                 /* token c128 */
    8,  8,   4,  4,  8,  8,  8, /* f8e5m2 f8e4m3fn s4 u4 f8e4m3b11fnuz f8e5m2fnuz ... */
    2,  2,   8,  8,  1,  1,     /* s2 u2 f8e4m3 f8e3m4 s1 u1 */
    4,  8,   0,                 /* f4e2m1fn f8e8m0fnu buffer */
};

static void *budget_alloc(void *data, size_t size)
{
    hlo_budget *budget = data;
    size_t cost = size + 16; /* what malloc adds, so that many tiny ones do not slip through */
    if (size > budget->left || cost > budget->left) {
        budget->exhausted = true;
        return NULL;
    }
    budget->left -= cost;
    void *p = malloc(size);
    if (p == NULL)
        budget->out_of_memory = true;
    return p;
}

static void budget_free(void *data, void *p)
{
    (void)data;
    free(p);
}

ProtobufCAllocator hlo_free_only = {.alloc = NULL, .free = budget_free, .allocator_data = NULL};

void hlo_budget_init(hlo_budget *budget, size_t message_size)
{
    /* Programs of the three compilers unpack into 2 to 12 times their size. Messages of two bytes
     * unpack into hundreds, which is the reason for the limit. */
    const size_t base = (size_t)1 << 20, factor = 32, most = (size_t)8 << 30;
    size_t wanted = message_size > most / factor ? most : message_size * factor;
    *budget = (hlo_budget){
        .allocator = {.alloc = budget_alloc, .free = budget_free, .allocator_data = budget},
        .left = base + wanted,
    };
}

pjrt_status *hlo_budget_status(const hlo_budget *budget, const char *what)
{
    if (budget->out_of_memory)
        return HLO_NO_MEMORY();
    if (budget->exhausted)
        return PJRT_FAIL(RESOURCE_EXHAUSTED, HLO_CREATE, "%s needs far more memory than its size",
                         what);
    return HLO_BAD("%s is not a valid protobuf message", what);
}

/* The dimensions from the slowest to the fastest varying one. */
static pjrt_status *physical_dimensions(const TttXla__ShapeProto *shape, int64_t *dims)
{
    size_t rank = shape->n_dimensions;
    const TttXla__LayoutProto *layout = shape->layout;
    bool ordered = layout != NULL && layout->n_minor_to_major == rank;
    for (size_t i = 0; i < rank; i++) {
        size_t from = i;
        if (ordered) {
            int64_t minor = layout->minor_to_major[rank - 1 - i];
            if (minor < 0 || (uint64_t)minor >= rank)
                return HLO_BAD("a layout orders dimension %lld of %zu", (long long)minor, rank);
            from = (size_t)minor;
        }
        dims[i] = shape->dimensions[from];
    }
    return NULL;
}

/* The number of elements as laid out. Each tile splits the fastest dimensions that the tile before
 * left into whole tiles and the inside of one. */
static pjrt_status *tiled_elements(const TttXla__ShapeProto *shape, double *out)
{
    int64_t dims[MAX_RANK];
    size_t rank = shape->n_dimensions;
    PJRT_TRY(physical_dimensions(shape, dims));
    for (size_t t = 0; shape->layout != NULL && t < shape->layout->n_tiles; t++) {
        const TttXla__TileProto *tile = shape->layout->tiles[t];
        size_t width = tile->n_dimensions;
        size_t missing = width > rank ? width - rank : 0;
        if (width > MAX_RANK || rank + missing + width > MAX_RANK)
            return HLO_BAD("a layout tiles into more than %d dimensions", MAX_RANK);
        for (size_t i = rank; missing > 0 && i-- > 0;)
            dims[i + missing] = dims[i];
        for (size_t i = 0; i < missing; i++)
            dims[i] = 1;
        rank += missing;
        for (size_t i = 0; i < width; i++) {
            int64_t *dim = &dims[rank - width + i];
            int64_t side = tile->dimensions[i];
            /* XLA writes a huge negative number for "joined with the next dimension": that pads
             * nothing, and no compiler met so far uses it for arrays. */
            if (side < 1)
                side = 1;
            *dim = *dim / side + (*dim % side != 0);
            dims[rank + i] = side;
        }
        rank += width;
    }
    *out = 1;
    for (size_t i = 0; i < rank; i++)
        *out *= (double)dims[i];
    return NULL;
}

static pjrt_status *measure_array(const TttXla__ShapeProto *shape, hlo_size *out)
{
    if (shape->element_type < 0)
        return HLO_BAD("an array has element type %d", shape->element_type);
    if (shape->n_dimensions > MAX_RANK / 2)
        return HLO_BAD("an array has %zu dimensions", shape->n_dimensions);
    double elements = 1, laid_out;
    for (size_t i = 0; i < shape->n_dimensions; i++) {
        if (shape->dimensions[i] < 0)
            return HLO_BAD("an array has a dimension of %lld", (long long)shape->dimensions[i]);
        elements *= (double)shape->dimensions[i];
    }
    double bits = 0;
    if ((size_t)shape->element_type >= sizeof type_bits)
        out->unknown_types++;
    else
        bits = type_bits[shape->element_type];
    if (bits == 0)
        return NULL;
    if (shape->layout != NULL && shape->layout->element_size_in_bits > 0)
        bits = (double)shape->layout->element_size_in_bits;
    else if (bits < 8)
        bits = 8; /* small types lie one to a byte unless the layout packs them */
    PJRT_TRY(tiled_elements(shape, &laid_out));
    out->elements += elements;
    out->data_bytes += elements * bits / 8;
    out->bytes += laid_out * bits / 8;
    if (shape->layout == NULL || shape->layout->memory_space == 0)
        out->main_bytes += laid_out * bits / 8;
    return NULL;
}

static pjrt_status *measure(const TttXla__ShapeProto *shape, int depth, hlo_size *out);

static pjrt_status *measure_element(const ProtobufCBinaryData *bytes, int depth, hlo_size *out)
{
    hlo_budget budget;
    hlo_budget_init(&budget, bytes->len);
    TttXla__ShapeProto *element =
        ttt_xla__shape_proto__unpack(&budget.allocator, bytes->len, bytes->data);
    if (element == NULL)
        return hlo_budget_status(&budget, "a tuple's shape");
    pjrt_status *st = measure(element, depth + 1, out);
    ttt_xla__shape_proto__free_unpacked(element, &hlo_free_only);
    return st;
}

static pjrt_status *measure(const TttXla__ShapeProto *shape, int depth, hlo_size *out)
{
    if (shape->element_type != TYPE_TUPLE)
        return measure_array(shape, out);
    if (depth > MAX_TUPLE_DEPTH)
        return HLO_BAD("tuples are nested more than %d deep", MAX_TUPLE_DEPTH);
    for (size_t i = 0; i < shape->n_tuple_shapes; i++)
        PJRT_TRY(measure_element(&shape->tuple_shapes[i], depth, out));
    return NULL;
}

pjrt_status *hlo_shape_measure(const TttXla__ShapeProto *shape, int64_t index, hlo_size *out)
{
    *out = (hlo_size){0};
    if (shape == NULL)
        return HLO_BAD("an instruction has no shape");
    if (index < 0 || shape->element_type != TYPE_TUPLE)
        return measure(shape, 0, out);
    if ((uint64_t)index >= shape->n_tuple_shapes)
        return HLO_BAD("a tuple of %zu has no element %lld", shape->n_tuple_shapes,
                       (long long)index);
    return measure_element(&shape->tuple_shapes[index], 0, out);
}

pjrt_status *hlo_shape_dimension(const TttXla__ShapeProto *shape, int64_t dimension, int64_t *out)
{
    if (dimension < 0 || (uint64_t)dimension >= shape->n_dimensions)
        return HLO_BAD("an array of %zu dimensions has no dimension %lld", shape->n_dimensions,
                       (long long)dimension);
    *out = shape->dimensions[dimension];
    return NULL;
}
