// The element types of a dump's tensors, as bits and as doubles.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kvbench {

enum class ElementType { kFloat16, kBfloat16, kFloat32, kFloat64 };

std::size_t element_bytes(ElementType type);
std::string_view element_name(ElementType type);  // "float16", "bfloat16", "float32", "float64"
std::optional<ElementType> element_type_named(std::string_view name);

// Swaps the byte order of `count` elements in place.
void swap_bytes(ElementType type, std::byte* elements, std::size_t count);

// The position of the first NaN or infinity among `count` elements in the machine's byte order;
// `count` when there is none.
std::size_t first_nonfinite(ElementType type, const std::byte* elements, std::size_t count);

// Exact conversion of `count` elements in the machine's byte order.
void to_doubles(ElementType type, const std::byte* elements, std::size_t count, double* out);

// Rounds to nearest, ties to even, straight from double; too large values become infinite.
void from_doubles(ElementType type, const double* values, std::size_t count, std::byte* out);
// The double that `value` becomes when it is stored as `type`.
double rounded_to(ElementType type, double value);
// The largest finite value, and the relative rounding error of normal values.
double largest_finite(ElementType type);
double unit_roundoff(ElementType type);
double least_normal(ElementType type);
// The type of the larger unit roundoff.
ElementType coarser(ElementType a, ElementType b);

}  // namespace kvbench
