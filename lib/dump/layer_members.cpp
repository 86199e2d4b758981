#include "dump/layer_members.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "hdf5/stored_elements.hpp"
#include "hdf5/structure_errors.hpp"

namespace kvbench {
namespace {

// Content of a dataset of finite numbers.
struct Expected {
  std::vector<std::uint64_t> shape;
  const char* what;  // as "a number per query head"
  const char* head;  // name of an element of the first dimension
  double least = -std::numeric_limits<double>::infinity();
};

// Empty without the dataset or with an error.
std::vector<double> numbers_of(ErrorList& errors, hid_t layer, const std::string& location,
                               const std::string& name, const Expected& expected) {
  if (!hdf5::has_link(layer, name)) return {};
  const std::string place = join(location, name);
  hdf5::Handle dataset = small_dataset_of(errors, layer, place, name);
  if (!dataset) return {};
  const hdf5::Handle space(H5Dget_space(dataset.get()));
  const hdf5::Handle type(H5Dget_type(dataset.get()));
  if (H5Tget_class(type.get()) != H5T_FLOAT || hdf5::extent(space.get()) != expected.shape) {
    add(errors, place, "must be floating-point [{}]: {}", fmt::join(expected.shape, ", "),
        expected.what);
    return {};
  }
  std::vector<double> numbers;
  try {
    numbers = all_doubles(std::move(dataset));
  } catch (const hdf5::Error& error) {
    add(errors, place, "cannot be read ({})", error.what());
    return {};
  }
  const std::size_t columns = numbers.size() / expected.shape.front();
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (std::isfinite(numbers[i]) && numbers[i] >= expected.least) continue;
    const std::string column = columns > 1 ? fmt::format(", column {},", i % columns) : "";
    add(errors, place, "{} {}{} is {}; it must be finite{}", expected.head, i / columns, column,
        numbers[i], std::isfinite(expected.least) ? " and at least 0" : "");
    i += columns - 1 - i % columns;  // one per head
  }
  return numbers;
}

}  // namespace

void check_mask(ErrorList& errors, Attributes& attributes, const std::string& location,
                LayerInfo& info) {
  constexpr auto kMaxInteger = std::numeric_limits<std::int64_t>::max();
  if (attributes.has("causal")) info.causal = attributes.integer("causal", 0, 1).value_or(1) == 1;
  if (attributes.has("chunk")) info.chunk = attributes.integer("chunk", 0, kMaxInteger).value_or(0);
  if (attributes.has("value_in_key")) {
    const auto columns = attributes.integer("value_in_key", 1, kMaxInteger);
    info.value_in_key = columns.has_value();
    info.dv = columns.value_or(0);
  }
  if (info.chunk > 0 && info.window > 0) {
    add(errors, location, "has a chunk of {} and a sliding_window of {}; set one of them to 0",
        info.chunk, info.window);
  }
  if (info.causal) return;
  if (info.chunk > 0) add(errors, location, "has causal = 0 and a chunk; set one of them to 0");
  if (info.window > 0) {
    add(errors, location, "has causal = 0 and a sliding_window; set one of them to 0");
  }
}

void check_members(ErrorList& errors, hid_t layer, const std::string& location, Index query_heads,
                   LayerInfo& info) {
  Expected by_head{
      {static_cast<std::uint64_t>(query_heads)}, "a number per query head", "query head"};
  info.sinks = numbers_of(errors, layer, location, "sinks", by_head);
  by_head.least = 0.0;
  info.alibi_slopes = numbers_of(errors, layer, location, "alibi_slopes", by_head);
  if (!info.causal && !info.alibi_slopes.empty()) {
    add(errors, location,
        "has causal = 0 and alibi_slopes, and no rule for the bias of later tokens; remove one of "
        "them");
  }
}

void check_key_bias(ErrorList& errors, hid_t layer, const std::string& location, Index kv_heads,
                    Index d, LayerInfo& info) {
  info.key_bias = numbers_of(errors, layer, location, "key_bias",
                             {{static_cast<std::uint64_t>(kv_heads), static_cast<std::uint64_t>(d)},
                              "a number per KV head and column of k",
                              "KV head"});
}

void require_version(ErrorList& errors, hid_t layer, const std::string& location, int version) {
  if (version >= 2) return;
  const auto refuse = [&](const char* what, const char* name) {
    add(errors, location,
        "has the {} {}, which files of format_version 1 do not have; write format_version = 2",
        what, name);
  };
  for (const char* name : {"sinks", "alibi_slopes"}) {
    if (hdf5::has_link(layer, name)) refuse("dataset", name);
  }
  for (const char* name : {"causal", "chunk", "value_in_key"}) {
    if (hdf5::has_attribute(layer, name)) refuse("attribute", name);
  }
}

}  // namespace kvbench
