#include "dump/evidence.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "hdf5/stored_elements.hpp"
#include "hdf5/structure_errors.hpp"

namespace kvbench {
namespace {

constexpr std::uint64_t kMaxEntries = 65536;  // spans, and rows: read whole

// The attribute `rows`: one or more integers; empty with errors.
std::vector<std::int64_t> evidence_rows(ErrorList& errors, hid_t dataset,
                                        const std::string& place) {
  if (!hdf5::has_attribute(dataset, "rows")) {
    add(errors, place, "attribute rows is missing; list the rows that use the evidence");
    return {};
  }
  const hdf5::Handle attribute(H5Aopen(dataset, "rows", H5P_DEFAULT));
  const hdf5::Handle type(H5Aget_type(attribute.get()));
  const hdf5::Handle space(H5Aget_space(attribute.get()));
  const auto dims = hdf5::extent(space.get());
  if (H5Tget_class(type.get()) != H5T_INTEGER || dims.size() > 1 ||
      (dims.size() == 1 && (dims[0] == 0 || dims[0] > kMaxEntries))) {
    add(errors, place, "attribute rows must be 1 to {} integers", kMaxEntries);
    return {};
  }
  std::vector<std::int64_t> rows(dims.empty() ? 1 : dims[0]);
  hdf5::check(H5Aread(attribute.get(), H5T_NATIVE_INT64, rows.data()));
  return rows;
}

}  // namespace

std::shared_ptr<const Evidence> check_evidence(ErrorList& errors, hid_t sequence,
                                               const std::string& location, Index tokens) {
  if (!hdf5::has_link(sequence, "evidence")) return nullptr;
  const std::string place = join(location, "evidence");
  const hdf5::Handle dataset = small_dataset_of(errors, sequence, place, "evidence");
  if (!dataset) return nullptr;
  const std::size_t before = errors.count();
  const hdf5::Handle space(H5Dget_space(dataset.get()));
  const auto dims = hdf5::extent(space.get());
  const hdf5::Handle type(H5Dget_type(dataset.get()));
  if (H5Tget_class(type.get()) != H5T_INTEGER || dims.size() != 2 || dims[1] != 2 || dims[0] == 0 ||
      dims[0] > kMaxEntries) {
    add(errors, place, "must be int32 [e, 2], e at most {}: first and last token of each span",
        kMaxEntries);
    return nullptr;
  }
  const std::vector<std::int64_t> spans = all_integers(hdf5::open_dataset(sequence, "evidence"));
  Evidence evidence;
  for (std::size_t i = 0; i < spans.size(); i += 2) {
    if (spans[i] < 0 || spans[i] > spans[i + 1] || (tokens > 0 && spans[i + 1] >= tokens)) {
      add(errors, place, "span {} is [{}, {}]; it must lie in the {} tokens, the first token first",
          i / 2, spans[i], spans[i + 1], tokens);
    }
    evidence.spans.emplace_back(spans[i], spans[i + 1]);
  }
  std::sort(evidence.spans.begin(), evidence.spans.end());
  for (std::size_t i = 1; i < evidence.spans.size(); ++i) {
    if (evidence.spans[i].first > evidence.spans[i - 1].second) continue;
    add(errors, place, "spans [{}, {}] and [{}, {}] overlap; write each token once",
        evidence.spans[i - 1].first, evidence.spans[i - 1].second, evidence.spans[i].first,
        evidence.spans[i].second);
    break;
  }
  for (const std::int64_t row : evidence_rows(errors, dataset.get(), place)) {
    if (row < 0 || (tokens > 0 && row >= tokens)) {
      add(errors, place, "attribute rows has row {}; rows are 0 to {}", row, tokens - 1);
    }
    evidence.rows.push_back(row);
  }
  std::sort(evidence.rows.begin(), evidence.rows.end());
  evidence.rows.erase(std::unique(evidence.rows.begin(), evidence.rows.end()), evidence.rows.end());
  if (errors.count() > before) return nullptr;
  return std::make_shared<const Evidence>(std::move(evidence));
}

void check_token_ids(ErrorList& errors, hid_t sequence, const std::string& location, Index tokens) {
  if (!hdf5::has_link(sequence, "token_ids")) return;
  const std::string ids = join(location, "token_ids");
  const hdf5::Handle dataset = small_dataset_of(errors, sequence, ids, "token_ids");
  if (!dataset) return;
  const hdf5::Handle space(H5Dget_space(dataset.get()));
  const auto dims = hdf5::extent(space.get());
  const hdf5::Handle type(H5Dget_type(dataset.get()));
  if (H5Tget_class(type.get()) != H5T_INTEGER || dims.size() != 1) {
    add(errors, ids, "must be int32 [n]");
  } else if (tokens > 0 && dims[0] != static_cast<std::uint64_t>(tokens)) {
    add(errors, ids, "has {} entries and the layers have {} tokens", dims[0], tokens);
  }
}

}  // namespace kvbench
