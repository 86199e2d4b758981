#include "dump/tensor.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <string_view>
#include <utility>

#include "hdf5/chunks.hpp"
#include "hdf5/structure_errors.hpp"
#include "system/error.hpp"

namespace kvbench {
namespace {

constexpr std::uint64_t kSlabBytes = std::uint64_t{1} << 20;

struct FloatLayout {
  std::size_t size, sign, exponent, exponent_bits, mantissa_bits, bias;
  ElementType type;
};
constexpr std::array<FloatLayout, 4> kFloatLayouts = {{
    {2, 15, 10, 5, 10, 15, ElementType::kFloat16},
    {2, 15, 7, 8, 7, 127, ElementType::kBfloat16},
    {4, 31, 23, 8, 23, 127, ElementType::kFloat32},
    {8, 63, 52, 11, 52, 1023, ElementType::kFloat64},
}};

bool is_swapped(hid_t type) {
  const H5T_order_t other =
      std::endian::native == std::endian::little ? H5T_ORDER_BE : H5T_ORDER_LE;
  return H5Tget_order(type) == other;
}

std::optional<ElementType> float_type(hid_t type) {
  std::size_t sign = 0, exponent = 0, exponent_bits = 0, mantissa = 0, mantissa_bits = 0;
  if (H5Tget_fields(type, &sign, &exponent, &exponent_bits, &mantissa, &mantissa_bits) < 0) {
    return std::nullopt;
  }
  const H5T_order_t order = H5Tget_order(type);
  if (order != H5T_ORDER_LE && order != H5T_ORDER_BE) return std::nullopt;
  if (H5Tget_norm(type) != H5T_NORM_IMPLIED || H5Tget_offset(type) != 0) return std::nullopt;
  for (const FloatLayout& l : kFloatLayouts) {
    if (H5Tget_size(type) == l.size && sign == l.sign && exponent == l.exponent &&
        exponent_bits == l.exponent_bits && mantissa == 0 && mantissa_bits == l.mantissa_bits &&
        H5Tget_ebias(type) == l.bias) {
      return l.type;
    }
  }
  return std::nullopt;
}

std::optional<std::string> dtype_attribute(hid_t dataset) {
  if (!hdf5::has_attribute(dataset, "dtype")) return std::nullopt;
  return hdf5::read_string(dataset, "dtype");
}

}  // namespace

std::variant<StoredType, std::string> stored_type(hid_t dataset) {
  const hdf5::Handle type(H5Dget_type(dataset));
  const std::optional<std::string> dtype = dtype_attribute(dataset);
  const H5T_class_t type_class = H5Tget_class(type.get());
  const std::size_t size = H5Tget_size(type.get());
  if (type_class == H5T_FLOAT) {
    const auto known = float_type(type.get());
    if (!known) {
      return fmt::format("{}-byte floating-point elements of an unknown layout", size);
    }
    if (size == 2 && dtype && *dtype != element_name(*known)) {
      return fmt::format("elements are {} but the attribute dtype is '{}'", element_name(*known),
                         *dtype);
    }
    return StoredType{*known, is_swapped(type.get())};
  }
  const bool bits = type_class == H5T_INTEGER || type_class == H5T_OPAQUE;
  if (bits && size == 2) {
    if (dtype == "bfloat16") {
      return StoredType{ElementType::kBfloat16,
                        type_class == H5T_INTEGER && is_swapped(type.get())};
    }
    return dtype ? fmt::format("16-bit integers with attribute dtype = '{}'", *dtype)
                 : std::string("16-bit integers without the attribute dtype = \"bfloat16\"");
  }
  if (hdf5::is_truth_type(type.get())) return "elements are truth values, as of a mask";
  return bits ? fmt::format("{}-byte non-floating-point elements", size)
              : std::string("non-floating-point elements");
}

Tensor::Tensor(hid_t file, const std::string& dataset_path, std::string location, Index row_token,
               const char* row_name)
    : location_(std::move(location)), row_token_(row_token), row_name_(row_name) {
  try {
    hdf5::Handle dataset = open_for_reading(file, dataset_path);
    const auto dims = hdf5::extent(hdf5::Handle(H5Dget_space(dataset.get())).get());
    const auto stored = stored_type(dataset.get());
    if (dims.size() != 3 || !std::holds_alternative<StoredType>(stored)) {
      throw hdf5::Error("not a tensor of a dump");
    }
    for (std::size_t i = 0; i < 3; ++i) dims_[i] = dims[i];
    stored_ = std::get<StoredType>(stored);

    const std::uint64_t row_bytes = dims[2] * element_bytes(stored_.type);
    slab_rows_ = std::max<std::uint64_t>(1, kSlabBytes / row_bytes);
    const Index of_chunk = chunk_rows(dataset.get());
    if (of_chunk > 0 && slab_rows_ > of_chunk) slab_rows_ -= slab_rows_ % of_chunk;
    elements_.emplace(std::move(dataset));
  } catch (const hdf5::Error& error) {
    throw InputError(location_ + ": " + cannot_open(error));
  }
}

void Tensor::read_rows(Index head, Index row, Index count, std::byte* out) const {
  const Block wanted{{static_cast<hsize_t>(head), static_cast<hsize_t>(row), 0},
                     {1, static_cast<hsize_t>(count), static_cast<hsize_t>(columns())}};
  elements_->read(wanted, out);
}

void Tensor::refuse_unreadable(Index head, Index row, Index count,
                               const std::string& reason) const {
  std::vector<std::byte> bytes(columns() * element_bytes(type()));
  Index bad = row;
  for (Index i = row; i < row + count; ++i) {
    try {
      read_rows(head, i, 1, bytes.data());
    } catch (const hdf5::Error&) {
      bad = i;
      break;
    }
  }
  throw InputError(fmt::format(
      "{}: head {}, {} {}: stored data cannot be read ({}); the file is truncated or damaged, "
      "copy or make it again",
      location_, head, row_name_, bad + row_token_, reason));
}

void Tensor::require_finite(Index head, Index row, const std::vector<std::byte>& native,
                            std::size_t count) const {
  const std::size_t bad = first_nonfinite(type(), native.data(), count);
  if (bad == count) return;
  double value = 0.0;
  to_doubles(type(), native.data() + bad * element_bytes(type()), 1, &value);
  const std::size_t width = columns();
  const bool overflowed = value == value && type() == ElementType::kFloat16;
  throw InputError(fmt::format(
      "{}: head {}, {} {}: element {} is {}; every element must be finite, {}", location_, head,
      row_name_, row + static_cast<Index>(bad / width) + row_token_, bad % width,
      value != value ? "NaN" : "infinite",
      overflowed ? "and float16 ends at 65504: store bfloat16 or float32" : "make the dump again"));
}

void Tensor::for_each_slab(Index head, Index first, Index last, const Visit& visit) const {
  std::vector<std::byte> bytes;
  std::vector<std::byte> native;
  Index row = first;
  while (row < last) {
    // Slabs end on multiples of their size, and so on the edges of chunks.
    const Index end = std::min(last, (row / slab_rows_ + 1) * slab_rows_);
    const std::size_t count = (end - row) * columns();
    bytes.resize(count * element_bytes(type()));
    try {
      read_rows(head, row, end - row, bytes.data());
    } catch (const hdf5::Error& error) {
      refuse_unreadable(head, row, end - row, error.what());
    }
    if (stored_.swapped) {
      native = bytes;
      swap_bytes(type(), native.data(), count);
    }
    require_finite(head, row, stored_.swapped ? native : bytes, count);
    visit(row, end - row, bytes);
    row = end;
  }
}

UnfilledDoubles Tensor::read(Index head, Index first, Index last, UnfilledDoubles room) const {
  const std::size_t size = (last - first) * columns();
  UnfilledDoubles values;
  if (size <= room.capacity()) values.swap(room);
  values.resize(size);
  for_each_slab(head, first, last,
                [&](Index row, Index count, const std::vector<std::byte>& bytes) {
                  double* out = values.data() + (row - first) * columns();
                  const std::size_t elements = count * columns();
                  if (!stored_.swapped) {
                    to_doubles(type(), bytes.data(), elements, out);
                    return;
                  }
                  std::vector<std::byte> native = bytes;
                  swap_bytes(type(), native.data(), elements);
                  to_doubles(type(), native.data(), elements, out);
                });
  return values;
}

}  // namespace kvbench
