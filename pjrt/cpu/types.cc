/*
 * Element types, shapes and layouts between the C API and XLA. Everything a caller can get wrong is
 * refused here, because XLA checks some of it only with assertions that end the process.
 */
#include "plugin.h"

#include "xla/layout_util.h"
#include "xla/primitive_util.h"

namespace pjrt_cpu
{

namespace
{

struct TypePair {
    PJRT_Buffer_Type c;
    xla::PrimitiveType xla;
};

constexpr TypePair kTypes[] = {
    {PJRT_Buffer_Type_PRED, xla::PRED},
    {PJRT_Buffer_Type_S2, xla::S2},
    {PJRT_Buffer_Type_S4, xla::S4},
    {PJRT_Buffer_Type_S8, xla::S8},
    {PJRT_Buffer_Type_S16, xla::S16},
    {PJRT_Buffer_Type_S32, xla::S32},
    {PJRT_Buffer_Type_S64, xla::S64},
    {PJRT_Buffer_Type_U2, xla::U2},
    {PJRT_Buffer_Type_U4, xla::U4},
    {PJRT_Buffer_Type_U8, xla::U8},
    {PJRT_Buffer_Type_U16, xla::U16},
    {PJRT_Buffer_Type_U32, xla::U32},
    {PJRT_Buffer_Type_U64, xla::U64},
    {PJRT_Buffer_Type_F16, xla::F16},
    {PJRT_Buffer_Type_F32, xla::F32},
    {PJRT_Buffer_Type_F64, xla::F64},
    {PJRT_Buffer_Type_BF16, xla::BF16},
    {PJRT_Buffer_Type_C64, xla::C64},
    {PJRT_Buffer_Type_C128, xla::C128},
    {PJRT_Buffer_Type_F4E2M1FN, xla::F4E2M1FN},
    {PJRT_Buffer_Type_F8E3M4, xla::F8E3M4},
    {PJRT_Buffer_Type_F8E4M3, xla::F8E4M3},
    {PJRT_Buffer_Type_F8E4M3FN, xla::F8E4M3FN},
    {PJRT_Buffer_Type_F8E4M3B11FNUZ, xla::F8E4M3B11FNUZ},
    {PJRT_Buffer_Type_F8E4M3FNUZ, xla::F8E4M3FNUZ},
    {PJRT_Buffer_Type_F8E5M2, xla::F8E5M2},
    {PJRT_Buffer_Type_F8E5M2FNUZ, xla::F8E5M2FNUZ},
    {PJRT_Buffer_Type_F8E8M0FNU, xla::F8E8M0FNU},
    {PJRT_Buffer_Type_TOKEN, xla::TOKEN},
};

} // namespace

absl::StatusOr<xla::PrimitiveType> ToPrimitiveType(PJRT_Buffer_Type type)
{
    for (const TypePair &pair : kTypes) {
        if (pair.c == type)
            return pair.xla;
    }
    return absl::InvalidArgumentError(
        absl::StrCat("buffer type ", static_cast<int>(type), " is not known to this plugin"));
}

PJRT_Buffer_Type FromPrimitiveType(xla::PrimitiveType type)
{
    for (const TypePair &pair : kTypes) {
        if (pair.xla == type)
            return pair.c;
    }
    return PJRT_Buffer_Type_INVALID;
}

absl::StatusOr<xla::Layout> ToLayout(const PJRT_Buffer_MemoryLayout &layout, size_t rank)
{
    if (layout.type != PJRT_Buffer_MemoryLayout_Type_Tiled)
        return absl::UnimplementedError(
            "a layout given as strides is not supported here; give minor_to_major (tiled layout "
            "without tiles) instead");
    const PJRT_Buffer_MemoryLayout_Tiled &tiled = layout.tiled;
    if (tiled.num_tiles != 0)
        return absl::UnimplementedError("CPU buffers have no tiles; send num_tiles = 0");
    if (tiled.minor_to_major_size != rank || (rank != 0 && tiled.minor_to_major == nullptr))
        return absl::InvalidArgumentError(
            absl::StrCat("minor_to_major has ", tiled.minor_to_major_size,
                         " entries, the array has ", rank, " dimensions"));
    absl::Span<const int64_t> order(tiled.minor_to_major, rank);
    absl::InlinedVector<bool, 8> seen(rank, false);
    for (int64_t dim : order) {
        if (dim < 0 || static_cast<size_t>(dim) >= rank || seen[dim])
            return absl::InvalidArgumentError("minor_to_major is not a permutation");
        seen[dim] = true;
    }
    return xla::LayoutUtil::MakeLayout(order);
}

absl::StatusOr<xla::Shape> ToShape(PJRT_Buffer_Type type, const int64_t *dims, size_t num_dims,
                                   const PJRT_Buffer_MemoryLayout *layout)
{
    PJRT_CPU_ASSIGN(xla::PrimitiveType primitive, ToPrimitiveType(type));
    if (!xla::primitive_util::IsArrayType(primitive))
        return absl::InvalidArgumentError("the element type is not one of an array");
    if (num_dims != 0 && dims == nullptr)
        return absl::InvalidArgumentError("dims is NULL although the array has dimensions");
    absl::Span<const int64_t> span(dims, num_dims);
    for (int64_t dim : span) {
        if (dim < 0)
            return absl::InvalidArgumentError(absl::StrCat("dimension ", dim, " is negative"));
    }
    PJRT_CPU_ASSIGN(xla::Shape shape, xla::ShapeUtil::MakeValidatedShape(primitive, span));
    if (layout != nullptr) {
        PJRT_CPU_ASSIGN(*shape.mutable_layout(), ToLayout(*layout, num_dims));
    } else {
        xla::LayoutUtil::SetToDefaultLayout(&shape);
    }
    return shape;
}

absl::Status CheckOption(const PJRT_NamedValue &option, PJRT_NamedValue_Type type)
{
    static constexpr const char *kNames[] = {"string", "int64", "int64 list", "float", "bool"};
    if (option.type == type)
        return absl::OkStatus();
    size_t given = static_cast<size_t>(option.type);
    return absl::InvalidArgumentError(absl::StrCat(
        "option \"", absl::string_view(option.name, option.name_size), "\" must be a ",
        kNames[type], ", not a ", given < 5 ? kNames[given] : "value of unknown type"));
}

} // namespace pjrt_cpu
