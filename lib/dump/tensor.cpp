#include "dump/tensor.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <string_view>
#include <utility>

#include "core/error.hpp"

namespace kvbench {
namespace {

constexpr std::uint64_t kSlabBytes = std::uint64_t{1} << 20;
// Chunks that span several heads are kept for the next head up to this much.
constexpr std::uint64_t kLargestCache = std::uint64_t{32} << 20;

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

struct Chunk {
  std::array<std::uint64_t, 3> dims{};
  std::uint64_t bytes = 0;
};

std::optional<Chunk> chunk_of(hid_t dataset) {
  const hdf5::Handle properties(H5Dget_create_plist(dataset));
  if (H5Pget_layout(properties.get()) != H5D_CHUNKED) return std::nullopt;
  std::array<hsize_t, 3> dims{};
  if (H5Pget_chunk(properties.get(), 3, dims.data()) != 3) return std::nullopt;
  if (std::count(dims.begin(), dims.end(), hsize_t{0}) > 0) throw hdf5::Error("chunks of size 0");
  const hdf5::Handle type(H5Dget_type(dataset));
  Chunk chunk;
  std::copy(dims.begin(), dims.end(), chunk.dims.begin());
  // The library keeps chunks below 4 GiB, so that this cannot overflow.
  chunk.bytes = dims[0] * dims[1] * dims[2] * H5Tget_size(type.get());
  return chunk;
}

std::uint64_t ceil_div(std::uint64_t a, std::uint64_t b) { return (a + b - 1) / b; }

// Holds the chunks that a slab touches, and those of the whole head where the next head will want
// them again: a chunk that falls out of the cache is decoded anew.
std::uint64_t cache_bytes(const Chunk& chunk, const std::vector<std::uint64_t>& dims) {
  const std::uint64_t across = ceil_div(dims[2], chunk.dims[2]);
  const std::uint64_t cache = std::max(kSlabBytes, across * chunk.bytes);
  const std::uint64_t whole_head = across * ceil_div(dims[1], chunk.dims[1]) * chunk.bytes;
  return chunk.dims[0] > 1 && whole_head <= kLargestCache ? std::max(cache, whole_head) : cache;
}

// Whether nothing was compressed: an optional filter leaves alone what it cannot make smaller.
bool is_stored_whole(hid_t dataset) {
  const hdf5::Handle space(H5Dget_space(dataset));
  const hdf5::Handle type(H5Dget_type(dataset));
  const hssize_t elements = H5Sget_simple_extent_npoints(space.get());
  return elements >= 0 && H5Dget_storage_size(dataset) / H5Tget_size(type.get()) >=
                              static_cast<std::uint64_t>(elements);
}

// A filter that the chunks were written with and the library does not have.
std::optional<std::string> missing_filter(hid_t dataset) {
  const hdf5::Handle properties(H5Dget_create_plist(dataset));
  const int count = H5Pget_nfilters(properties.get());
  for (int i = 0; i < count; ++i) {
    unsigned flags = 0, config = 0;
    std::size_t values = 0;
    std::array<char, 64> name{};
    const H5Z_filter_t id = H5Pget_filter2(properties.get(), static_cast<unsigned>(i), &flags,
                                           &values, nullptr, name.size() - 1, name.data(), &config);
    if (id < 0) throw hdf5::Error(hdf5::last_error());
    if (H5Zfilter_avail(id) > 0) continue;
    if ((flags & H5Z_FLAG_OPTIONAL) != 0 && is_stored_whole(dataset)) continue;
    const std::string_view text(name.data());
    return text.empty() ? fmt::format("filter {}", id) : fmt::format("{} (filter {})", text, id);
  }
  return std::nullopt;
}

}  // namespace

std::uint64_t chunk_bytes(hid_t dataset) {
  const auto chunk = chunk_of(dataset);
  if (!chunk) return 0;
  const hdf5::Handle space(H5Dget_space(dataset));
  const auto dims = hdf5::extent(space.get());
  // Its bytes as stored, and as filters make them, which double a buffer until they fit.
  return cache_bytes(*chunk, dims) + 2 * chunk->bytes;
}

std::optional<std::string> unreadable_chunks(hid_t dataset) {
  if (const auto filter = missing_filter(dataset)) {
    return fmt::format(
        "is compressed with {}, which the HDF5 library of this machine does not have; store it "
        "with gzip, e.g. h5repack -f GZIP=4 OLD NEW where that filter is installed",
        *filter);
  }
  const auto chunk = chunk_of(dataset);
  if (!chunk || chunk->bytes <= kLargestCache) return std::nullopt;
  const hdf5::Handle space(H5Dget_space(dataset));
  const hdf5::Handle type(H5Dget_type(dataset));
  const auto dims = hdf5::extent(space.get());
  auto tensor = static_cast<double>(H5Tget_size(type.get()));
  for (const auto size : dims) tensor *= static_cast<double>(size);
  if (static_cast<double>(chunk->bytes) <= 4.0 * tensor) return std::nullopt;
  return fmt::format(
      "has chunks [{}] of {:.3g} MiB, far larger than itself; store it in chunks of one head, e.g. "
      "h5repack -l CHUNK=1x{}x{} OLD NEW",
      fmt::join(chunk->dims, ", "), static_cast<double>(chunk->bytes) / 0x1p20,
      std::min<std::uint64_t>(dims[1], 1024), dims[2]);
}

std::uint64_t lacking_bytes(hid_t dataset) {
  const hdf5::Handle properties(H5Dget_create_plist(dataset));
  const H5D_layout_t layout = H5Pget_layout(properties.get());
  if (layout != H5D_COMPACT && layout != H5D_CONTIGUOUS) return 0;
  const std::uint64_t stored = H5Dget_storage_size(dataset);
  if (layout == H5D_CONTIGUOUS && stored == 0) return 0;
  const hdf5::Handle type(H5Dget_type(dataset));
  const hdf5::Handle space(H5Dget_space(dataset));
  std::uint64_t wanted = H5Tget_size(type.get());
  for (const auto size : hdf5::extent(space.get())) {
    if (__builtin_mul_overflow(wanted, std::uint64_t{size}, &wanted)) return UINT64_MAX;
  }
  return wanted > stored ? wanted - stored : 0;
}

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
  return bits ? fmt::format("{}-byte non-floating-point elements", size)
              : std::string("non-floating-point elements");
}

Tensor::Tensor(hid_t file, const std::string& dataset_path, std::string location, Index row_token)
    : location_(std::move(location)), row_token_(row_token) {
  try {
    dataset_ = hdf5::open_dataset(file, dataset_path);
    const auto chunk = chunk_of(dataset_.get());
    file_space_ = hdf5::Handle(H5Dget_space(dataset_.get()));
    memory_type_ = hdf5::Handle(H5Dget_type(dataset_.get()));
    const auto dims = hdf5::extent(file_space_.get());
    const auto stored = stored_type(dataset_.get());
    if (dims.size() != 3 || !std::holds_alternative<StoredType>(stored)) {
      throw hdf5::Error("not a tensor of a dump");
    }
    for (std::size_t i = 0; i < 3; ++i) dims_[i] = static_cast<Index>(dims[i]);
    stored_ = std::get<StoredType>(stored);

    const std::uint64_t row_bytes = dims[2] * element_bytes(stored_.type);
    slab_rows_ = static_cast<Index>(std::max<std::uint64_t>(1, kSlabBytes / row_bytes));
    if (!chunk) return;
    const auto chunk_rows = static_cast<Index>(chunk->dims[1]);
    if (slab_rows_ > chunk_rows) slab_rows_ -= slab_rows_ % chunk_rows;
    dataset_ = hdf5::Handle();
    dataset_ = hdf5::open_dataset(file, dataset_path, cache_bytes(*chunk, dims));
  } catch (const hdf5::Error& error) {
    throw InputError(
        fmt::format("{}: cannot be opened ({}); make the dump again", location_, error.what()));
  }
}

void Tensor::read_rows(Index head, Index row, Index count, std::byte* out) const {
  const std::array<hsize_t, 3> start = {static_cast<hsize_t>(head), static_cast<hsize_t>(row), 0};
  const std::array<hsize_t, 3> size = {1, static_cast<hsize_t>(count),
                                       static_cast<hsize_t>(columns())};
  const hdf5::Handle memory_space(H5Screate_simple(3, size.data(), nullptr));
  hdf5::check(H5Sselect_hyperslab(file_space_.get(), H5S_SELECT_SET, start.data(), nullptr,
                                  size.data(), nullptr));
  hdf5::check(H5Dread(dataset_.get(), memory_type_.get(), memory_space.get(), file_space_.get(),
                      H5P_DEFAULT, out));
}

void Tensor::refuse_unreadable(Index head, Index row, Index count,
                               const std::string& reason) const {
  std::vector<std::byte> bytes(static_cast<std::size_t>(columns()) * element_bytes(type()));
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
      "{}: head {}, token {}: stored data cannot be read ({}); the file is truncated or damaged, "
      "copy or make it again",
      location_, head, bad + row_token_, reason));
}

void Tensor::require_finite(Index head, Index row, const std::vector<std::byte>& native,
                            std::size_t count) const {
  const std::size_t bad = first_nonfinite(type(), native.data(), count);
  if (bad == count) return;
  double value = 0.0;
  to_doubles(type(), native.data() + bad * element_bytes(type()), 1, &value);
  const auto width = static_cast<std::size_t>(columns());
  throw InputError(fmt::format(
      "{}: head {}, token {}: element {} is {}; every element must be finite, make the dump again",
      location_, head, row + static_cast<Index>(bad / width) + row_token_, bad % width,
      value != value ? "NaN" : "infinite"));
}

void Tensor::for_each_slab(Index head, Index first, Index last, const Visit& visit) const {
  std::vector<std::byte> bytes;
  std::vector<std::byte> native;
  Index row = first;
  while (row < last) {
    // Slabs end on multiples of their size, and so on the edges of chunks.
    const Index end = std::min(last, (row / slab_rows_ + 1) * slab_rows_);
    const auto count = static_cast<std::size_t>((end - row) * columns());
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

std::vector<double> Tensor::read(Index head, Index first, Index last) const {
  std::vector<double> values(static_cast<std::size_t>((last - first) * columns()));
  for_each_slab(head, first, last,
                [&](Index row, Index count, const std::vector<std::byte>& bytes) {
                  double* out = values.data() + (row - first) * columns();
                  const auto elements = static_cast<std::size_t>(count * columns());
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
