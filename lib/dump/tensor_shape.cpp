#include "dump/tensor_shape.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <variant>
#include <vector>

#include "hdf5/chunks.hpp"
#include "hdf5/structure_errors.hpp"

namespace kvbench {
namespace {

// Tokens are counted in 32 bits wherever random draws and clusters name them.
constexpr std::uint64_t kMaxTokens = std::numeric_limits<std::int32_t>::max();

void check_type(ErrorList& errors, const std::string& place,
                const std::variant<StoredType, std::string>& stored) {
  if (const auto* why = std::get_if<std::string>(&stored)) {
    add(errors, place,
        "{}; store float16, float32, float64, or bfloat16 as uint16 with the attribute "
        "dtype = \"bfloat16\"",
        *why);
  }
}

void check_sizes(ErrorList& errors, const std::string& place, hid_t dataset,
                 const std::vector<std::uint64_t>& dims, bool has_elements) {
  const std::string shape = fmt::format("shape [{}]", fmt::join(dims, ", "));
  if (std::count(dims.begin(), dims.end(), 0U) > 0) {
    add(errors, place, "{} has a dimension of size 0", shape);
  } else if (std::any_of(dims.begin(), dims.end(), [](auto d) { return d > kMaxTokens; })) {
    add(errors, place, "{} has a dimension above {}", shape, kMaxTokens);
  } else if (has_elements) {
    if (const auto why = unreadable_storage(dataset)) add(errors, place, "{}", *why);
  }
}

}  // namespace

std::string TensorShape::text() const { return fmt::format("[{}, {}, {}]", heads, rows, columns); }

std::optional<TensorShape> tensor_shape(ErrorList& errors, hid_t layer, const std::string& place,
                                        const std::string& name, const char* layout,
                                        bool has_elements) {
  if (!hdf5::has_link(layer, name)) {
    add(errors, place, "dataset is missing; a layer has q, k and v");
    return std::nullopt;
  }
  const hdf5::Handle dataset = dataset_of(errors, layer, place, name);
  if (!dataset) return std::nullopt;
  try {
    const hdf5::Handle space(H5Dget_space(dataset.get()));
    const auto dims = hdf5::extent(space.get());
    if (dims.size() != 3) {
      add(errors, place, "has {} dimensions; it must be {}", dims.size(), layout);
      return std::nullopt;
    }
    const std::size_t before = errors.count();
    const auto stored = stored_type(dataset.get());
    check_type(errors, place, stored);
    check_sizes(errors, place, dataset.get(), dims, has_elements);
    if (errors.count() > before) return std::nullopt;
    return TensorShape{static_cast<Index>(dims[0]), static_cast<Index>(dims[1]),
                       static_cast<Index>(dims[2]), std::get<StoredType>(stored),
                       chunk_bytes(dataset.get())};
  } catch (const hdf5::Error& error) {
    add(errors, place, "{}", cannot_open(error));
    return std::nullopt;
  }
}

}  // namespace kvbench
