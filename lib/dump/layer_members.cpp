#include "dump/layer_members.hpp"

#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "hdf5/stored_elements.hpp"
#include "hdf5/structure_errors.hpp"

namespace kvbench {
namespace {

// One number per query head; empty without the dataset or with an error.
std::vector<double> by_head(ErrorList& errors, hid_t layer, const std::string& location,
                            const std::string& name, Index query_heads, double least) {
  if (!hdf5::has_link(layer, name)) return {};
  const std::string place = join(location, name);
  hdf5::Handle dataset = small_dataset_of(errors, layer, place, name);
  if (!dataset) return {};
  const hdf5::Handle space(H5Dget_space(dataset.get()));
  const auto dims = hdf5::extent(space.get());
  const hdf5::Handle type(H5Dget_type(dataset.get()));
  const auto heads = static_cast<std::uint64_t>(query_heads);
  if (H5Tget_class(type.get()) != H5T_FLOAT || dims.size() != 1 || dims[0] != heads) {
    add(errors, place, "must be floating-point [{}]: a number per query head", query_heads);
    return {};
  }
  std::vector<double> numbers;
  try {
    numbers = all_doubles(std::move(dataset));
  } catch (const hdf5::Error& error) {
    add(errors, place, "cannot be read ({})", error.what());
    return {};
  }
  for (std::size_t h = 0; h < numbers.size(); ++h) {
    if (std::isfinite(numbers[h]) && numbers[h] >= least) continue;
    add(errors, place, "query head {} is {}; it must be finite{}", h, numbers[h],
        std::isfinite(least) ? " and at least 0" : "");
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
  constexpr double kAny = -std::numeric_limits<double>::infinity();
  info.sinks = by_head(errors, layer, location, "sinks", query_heads, kAny);
  info.alibi_slopes = by_head(errors, layer, location, "alibi_slopes", query_heads, 0.0);
  if (!info.causal && !info.alibi_slopes.empty()) {
    add(errors, location,
        "has causal = 0 and alibi_slopes, and no rule for the bias of later tokens; remove one of "
        "them");
  }
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
