/* Sums, products, least and greatest of two arrays, in every type that programs reduce. */
#include "collectives.h"

#include <complex>

#include "absl/strings/str_cat.h"
#include "xla/primitive_util.h"
#include "xla/types.h"

namespace pjrt_cpu
{

namespace
{

/* NaN wins: a reduction must not hide that a run has gone wrong. */
template <typename T> T Least(T a, T b)
{
    return a < b || a != a ? a : b;
}

template <typename T> T Greatest(T a, T b)
{
    return a > b || a != a ? a : b;
}

template <typename T, typename Op> void Each(size_t count, void *into, const void *from, Op op)
{
    T *to = static_cast<T *>(into);
    const T *values = static_cast<const T *>(from);
    for (size_t i = 0; i < count; i++)
        to[i] = static_cast<T>(op(to[i], values[i]));
}

/* Integers wrap around, as in programs: their sums are those of unsigned numbers. */
template <typename T> struct Arithmetic {
    using type = T;
};
template <> struct Arithmetic<int8_t> {
    using type = uint32_t;
};
template <> struct Arithmetic<int16_t> {
    using type = uint32_t;
};
template <> struct Arithmetic<uint16_t> { /* its product would be that of ints, and overflow */
    using type = uint32_t;
};
template <> struct Arithmetic<int32_t> {
    using type = uint32_t;
};
template <> struct Arithmetic<int64_t> {
    using type = uint64_t;
};

template <typename T>
absl::Status SumOrProduct(xla::ReductionKind kind, size_t count, void *into, const void *from)
{
    using U = typename Arithmetic<T>::type;
    if (kind == xla::ReductionKind::SUM)
        Each<T>(count, into, from, [](T a, T b) { return static_cast<U>(a) + static_cast<U>(b); });
    else if (kind == xla::ReductionKind::PRODUCT)
        Each<T>(count, into, from, [](T a, T b) { return static_cast<U>(a) * static_cast<U>(b); });
    else
        return absl::InvalidArgumentError("complex numbers have no least and no greatest");
    return absl::OkStatus();
}

template <typename T>
absl::Status Any(xla::ReductionKind kind, size_t count, void *into, const void *from)
{
    if (kind == xla::ReductionKind::MIN)
        Each<T>(count, into, from, Least<T>);
    else if (kind == xla::ReductionKind::MAX)
        Each<T>(count, into, from, Greatest<T>);
    else
        return SumOrProduct<T>(kind, count, into, from);
    return absl::OkStatus();
}

absl::Status Truth(xla::ReductionKind kind, size_t count, void *into, const void *from)
{
    if (kind == xla::ReductionKind::SUM || kind == xla::ReductionKind::MAX)
        Each<bool>(count, into, from, [](bool a, bool b) { return a || b; });
    else
        Each<bool>(count, into, from, [](bool a, bool b) { return a && b; });
    return absl::OkStatus();
}

} // namespace

absl::Status Reduce(xla::PrimitiveType type, xla::ReductionKind kind, size_t count, void *into,
                    const void *from)
{
    switch (type) {
    case xla::PRED:
        return Truth(kind, count, into, from);
    case xla::S8:
        return Any<int8_t>(kind, count, into, from);
    case xla::S16:
        return Any<int16_t>(kind, count, into, from);
    case xla::S32:
        return Any<int32_t>(kind, count, into, from);
    case xla::S64:
        return Any<int64_t>(kind, count, into, from);
    case xla::U8:
        return Any<uint8_t>(kind, count, into, from);
    case xla::U16:
        return Any<uint16_t>(kind, count, into, from);
    case xla::U32:
        return Any<uint32_t>(kind, count, into, from);
    case xla::U64:
        return Any<uint64_t>(kind, count, into, from);
    case xla::F16:
        return Any<xla::half>(kind, count, into, from);
    case xla::BF16:
        return Any<xla::bfloat16>(kind, count, into, from);
    case xla::F32:
        return Any<float>(kind, count, into, from);
    case xla::F64:
        return Any<double>(kind, count, into, from);
    case xla::C64:
        return SumOrProduct<std::complex<float>>(kind, count, into, from);
    case xla::C128:
        return SumOrProduct<std::complex<double>>(kind, count, into, from);
    default:
        return absl::UnimplementedError(absl::StrCat("numbers of type ",
                                                     xla::PrimitiveType_Name(type),
                                                     " are not reduced between processes"));
    }
}

} // namespace pjrt_cpu
