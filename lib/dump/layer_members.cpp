#include "dump/layer_members.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "dump/structure_errors.hpp"
#include "dump/tensor_shape.hpp"

namespace kvbench {
namespace {

// An evidence of more spans or rows than this is no list of facts.
constexpr hsize_t kMostEvidence = hsize_t{1} << 20;

// The one-dimensional dataset `name`, of floating-point numbers; none, and an error, where it is
// not one of `count` numbers (0: of any number).
hdf5::Handle numbers_dataset(ErrorList& errors, hid_t layer, const std::string& place,
                             const std::string& name, hsize_t count, const char* layout) {
  hdf5::Handle dataset = dataset_of(errors, layer, place, name);
  if (!dataset) return {};
  const hdf5::Handle space(H5Dget_space(dataset.get()));
  const auto dims = hdf5::extent(space.get());
  const hdf5::Handle type(H5Dget_type(dataset.get()));
  if (H5Tget_class(type.get()) != H5T_FLOAT || dims.size() != 1 || dims[0] == 0) {
    add(errors, place, "must be {}, of float16, float32 or float64", layout);
    return {};
  }
  if (count > 0 && dims[0] != count) {
    add(errors, place, "has {} numbers; it must be {}, and there are {}", dims[0], layout, count);
    return {};
  }
  return dataset;
}

std::vector<double> read_numbers(hid_t dataset) {
  const hdf5::Handle space(H5Dget_space(dataset));
  std::vector<double> numbers(hdf5::extent(space.get()).at(0));
  hdf5::check(H5Dread(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, numbers.data()));
  return numbers;
}

// One number per query head; empty without the dataset or with an error.
std::vector<double> by_head(ErrorList& errors, hid_t layer, const std::string& location,
                            const std::string& name, Index query_heads, double least) {
  if (!hdf5::has_link(layer, name)) return {};
  const std::string place = join(location, name);
  const hdf5::Handle dataset =
      numbers_dataset(errors, layer, place, name, static_cast<hsize_t>(query_heads), "[Hq]");
  if (!dataset) return {};
  std::vector<double> numbers;
  try {
    numbers = read_numbers(dataset.get());
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

bool is_integer(hid_t type) { return H5Tget_class(type) == H5T_INTEGER; }

// The attribute `rows` of an evidence.
std::vector<Index> asking_rows(ErrorList& errors, hid_t dataset, const std::string& place,
                               Index tokens) {
  if (!hdf5::has_attribute(dataset, "rows")) {
    add(errors, place, "attribute rows is missing; it lists the rows that ask");
    return {};
  }
  const hdf5::Handle attribute(H5Aopen(dataset, "rows", H5P_DEFAULT));
  const hdf5::Handle space(H5Aget_space(attribute.get()));
  const hdf5::Handle type(H5Aget_type(attribute.get()));
  const auto dims = hdf5::extent(space.get());
  const hsize_t count = dims.empty() ? 1 : dims[0];
  if (!is_integer(type.get()) || dims.size() > 1 || count == 0 || count > kMostEvidence) {
    add(errors, place, "attribute rows must be integers [r]");
    return {};
  }
  std::vector<std::int64_t> rows(count);
  hdf5::check(H5Aread(attribute.get(), H5T_NATIVE_INT64, rows.data()));
  for (const std::int64_t row : rows) {
    if (row >= 0 && row < tokens) continue;
    add(errors, place, "attribute rows has {}; rows are 0 to {}", row, tokens - 1);
    return {};
  }
  std::vector<Index> out(rows.begin(), rows.end());
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

}  // namespace

void check_mask(ErrorList& errors, Attributes& attributes, const std::string& location,
                LayerInfo& info) {
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  if (attributes.has("causal")) info.causal = attributes.integer("causal", 0, 1).value_or(1) == 1;
  if (attributes.has("chunk")) info.chunk = attributes.integer("chunk", 0, kMost).value_or(0);
  if (attributes.has("value_in_key")) {
    const auto columns = attributes.integer("value_in_key", 1, kMost);
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

void check_members(ErrorList& errors, hid_t layer, const std::string& location,
                   const MemberSizes& sizes, LayerInfo& info) {
  constexpr double kAny = -std::numeric_limits<double>::infinity();
  info.sinks = by_head(errors, layer, location, "sinks", sizes.query_heads, kAny);
  info.alibi_slopes = by_head(errors, layer, location, "alibi_slopes", sizes.query_heads, 0.0);
  if (!info.causal && !info.alibi_slopes.empty()) {
    add(errors, location,
        "has causal = 0 and alibi_slopes, and no rule for the bias of later tokens; remove one of "
        "them");
  }
  if (hdf5::has_link(layer, "wo")) {
    const std::string place = join(location, "wo");
    const auto wo = tensor_shape(errors, layer, place, "wo", "[Hq, dv, hidden]", nullptr);
    if (wo && (wo->heads != sizes.query_heads || wo->rows != sizes.dv)) {
      add(errors, place, "{} must be [{}, {}, hidden]", wo->text(), sizes.query_heads, sizes.dv);
    } else if (wo) {
      info.hidden = wo->columns;
    }
  }
  if (hdf5::has_link(layer, "residual_norm")) {
    const std::string place = join(location, "residual_norm");
    const hdf5::Handle dataset = numbers_dataset(errors, layer, place, "residual_norm", 0, "[Nr]");
    if (!dataset) return;
    const hdf5::Handle space(H5Dget_space(dataset.get()));
    const auto rows = static_cast<Index>(hdf5::extent(space.get()).at(0));
    if (rows > sizes.tokens) {
      add(errors, place, "has {} numbers, more than the {} tokens", rows, sizes.tokens);
    } else {
      info.residual_rows = rows;
    }
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

std::optional<Evidence> check_evidence(ErrorList& errors, hid_t sequence,
                                       const std::string& location, Index tokens) {
  if (!hdf5::has_link(sequence, "evidence")) return std::nullopt;
  const std::string place = join(location, "evidence");
  const hdf5::Handle dataset = dataset_of(errors, sequence, place, "evidence");
  if (!dataset || tokens == 0) return std::nullopt;
  const hdf5::Handle space(H5Dget_space(dataset.get()));
  const auto dims = hdf5::extent(space.get());
  const hdf5::Handle type(H5Dget_type(dataset.get()));
  if (!is_integer(type.get()) || dims.size() != 2 || dims[0] == 0 || dims[0] > kMostEvidence ||
      dims[1] != 2) {
    add(errors, place, "must be int32 [e, 2]: the first and the last token of each span");
    return std::nullopt;
  }
  Evidence evidence;
  try {
    std::vector<std::int64_t> ends(2 * dims[0]);
    hdf5::check(
        H5Dread(dataset.get(), H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, ends.data()));
    for (std::size_t e = 0; e < ends.size(); e += 2) {
      evidence.spans.push_back({ends[e], ends[e + 1]});
      if (ends[e] >= 0 && ends[e] <= ends[e + 1] && ends[e + 1] < tokens) continue;
      add(errors, place, "span {} is from {} to {}; tokens are 0 to {}, the first one first", e / 2,
          ends[e], ends[e + 1], tokens - 1);
    }
    evidence.rows = asking_rows(errors, dataset.get(), place, tokens);
  } catch (const hdf5::Error& error) {
    add(errors, place, "cannot be read ({})", error.what());
  }
  return evidence;
}

std::vector<double> read_residual_norms(hid_t layer, const std::string& place) {
  const hdf5::Handle dataset = hdf5::open_dataset(layer, "residual_norm");
  std::vector<double> norms = read_numbers(dataset.get());
  for (std::size_t r = 0; r < norms.size(); ++r) {
    if (std::isfinite(norms[r]) && norms[r] >= 0.0) continue;
    throw InputError(fmt::format(
        "{}/residual_norm: entry {} is {}; norms are finite and at least 0", place, r, norms[r]));
  }
  return norms;
}

}  // namespace kvbench
