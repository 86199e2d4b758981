#include "python/arrays.hpp"

#include <fmt/format.h>

#include <cstring>
#include <optional>

#include "hdf5/element_type.hpp"
#include "system/error.hpp"

namespace nb = nanobind;

namespace kvbench::python {
namespace {

std::optional<ElementType> element_type_of(const nb::dlpack::dtype& type) {
  if (type.lanes != 1) return std::nullopt;
  const auto code = static_cast<nb::dlpack::dtype_code>(type.code);
  if (code == nb::dlpack::dtype_code::Bfloat && type.bits == 16) return ElementType::kBfloat16;
  if (code != nb::dlpack::dtype_code::Float) return std::nullopt;
  if (type.bits == 16) return ElementType::kFloat16;
  if (type.bits == 32) return ElementType::kFloat32;
  if (type.bits == 64) return ElementType::kFloat64;
  return std::nullopt;
}

struct Strides {
  Index head, row, column;  // in elements
};

bool is_contiguous(const Strides& strides, Index heads, Index rows, Index columns) {
  return (strides.column == 1 || columns <= 1) && (strides.row == columns || rows <= 1) &&
         (strides.head == rows * columns || heads <= 1);
}

// Row by row: gathered as they are stored, then converted.
void copy_rows(ElementType type, const std::byte* data, const Strides& strides, Index heads,
               Index rows, Index columns, double* out) {
  const auto size = static_cast<Index>(element_bytes(type));
  std::vector<std::byte> row_bytes(columns * size);
  for (Index head = 0; head < heads; ++head) {
    for (Index row = 0; row < rows; ++row) {
      const std::byte* begin = data + (head * strides.head + row * strides.row) * size;
      for (Index column = 0; column < columns; ++column) {
        std::memcpy(row_bytes.data() + column * size, begin + column * strides.column * size,
                    static_cast<std::size_t>(size));
      }
      to_doubles(type, row_bytes.data(), static_cast<std::size_t>(columns), out);
      out += columns;
    }
  }
}

}  // namespace

DoubleStack::DoubleStack(std::string name, const AnyArray& given) : name_(std::move(name)) {
  if (given.device_type() != nb::device::cpu::value) {
    throw InputError(
        fmt::format("{}: is not in the memory of the CPU; give {}.cpu()", name_, name_));
  }
  if (given.ndim() != 2 && given.ndim() != 3) {
    throw InputError(fmt::format("{}: must have 2 or 3 dimensions, got {}", name_, given.ndim()));
  }
  const auto type = element_type_of(given.dtype());
  if (!type) {
    throw InputError(fmt::format(
        "{}: must be float64, float32, float16 or bfloat16; convert it to one of them", name_));
  }
  const std::size_t first = given.ndim() - 2;
  heads_ = first == 0 ? 1 : static_cast<Index>(given.shape(0));
  rows_ = static_cast<Index>(given.shape(first));
  columns_ = static_cast<Index>(given.shape(first + 1));
  if (heads_ == 0 || rows_ == 0 || columns_ == 0) {
    throw InputError(fmt::format("{}: has no elements, its shape is [{}, {}, {}]", name_, heads_,
                                 rows_, columns_));
  }
  const Strides strides{first == 0 ? 0 : given.stride(0), given.stride(first),
                        given.stride(first + 1)};
  const auto* bytes = static_cast<const std::byte*>(given.data());
  const bool is_aligned = reinterpret_cast<std::uintptr_t>(bytes) % alignof(double) == 0;
  if (*type == ElementType::kFloat64 && is_aligned &&
      is_contiguous(strides, heads_, rows_, columns_)) {
    data_ = reinterpret_cast<const double*>(bytes);
    return;
  }
  own_.resize(heads_ * rows_ * columns_);
  copy_rows(*type, bytes, strides, heads_, rows_, columns_, own_.data());
  data_ = own_.data();
}

void DoubleStack::require_finite() const {
  const auto count = static_cast<std::size_t>(heads_ * rows_ * columns_);
  const std::size_t bad =
      first_nonfinite(ElementType::kFloat64, reinterpret_cast<const std::byte*>(data_), count);
  if (bad == count) return;
  const auto at = static_cast<Index>(bad);
  throw InputError(fmt::format("{}: element [{}, {}, {}] is {}; every element must be finite",
                               name_, at / (rows_ * columns_), at / columns_ % rows_, at % columns_,
                               data_[bad] != data_[bad] ? "NaN" : "infinite"));
}

}  // namespace kvbench::python
