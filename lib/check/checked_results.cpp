#include "check/checked_results.hpp"

#include <variant>

#include "results/cell_metric.hpp"
#include "results/read_results.hpp"
#include "system/error.hpp"

namespace kvbench {

Json needed_part(const BoundsFile& bounds, const Json& record) {
  if (!record.is_object()) return record;
  Json part = Json::object();
  for (const char* name : {"id", "status", "reason", "label", "key", "derived"}) {
    if (const auto found = record.find(name); found != record.end()) part[name] = *found;
  }
  const auto take = [&](const Json::json_pointer& place) {
    if (record.contains(place) && !part.contains(place)) part[place] = record.at(place);
  };
  for (const Bound& bound : bounds.bounds) {
    take(bound.metric_place);
    if (!std::holds_alternative<TrivialRule>(bound.rule)) continue;
    for (const Json::json_pointer& place : trivial_places(bound.metric)) take(place);
  }
  return part;
}

void CheckedRecords::add(const BoundsFile& bounds, const Json& record) {
  store_.add(to_line(needed_part(bounds, record)));
  if (trouble_) return;
  try {
    distinct_.add(record);
  } catch (const InputError&) {
    trouble_ = std::current_exception();
  }
}

void CheckedRecords::require_distinct() const {
  if (trouble_) std::rethrow_exception(trouble_);
}

std::vector<Places> CheckedRecords::select(const std::vector<CellSelector>& selectors) const {
  std::vector<Places> places(selectors.size());
  if (selectors.empty()) return places;
  Reader reader(*this);
  for (std::size_t i = 0; i < size(); ++i) {
    const Json record = reader.at(i);
    for (std::size_t s = 0; s < selectors.size(); ++s) {
      if (selectors[s].matches(record)) places[s].push_back(static_cast<std::uint32_t>(i));
    }
  }
  return places;
}

CheckedResults::CheckedResults(const BoundsFile& bounds, const std::string& path)
    : path_(path), cells_(path, "cells"), layers_(path, "layers") {
  rest_ = read_results(path, {.cell = [&](Json&& cell) { cells_.add(bounds, cell); },
                              .layer = [&](Json&& layer) { layers_.add(bounds, layer); }});
}

CheckedResults::CheckedResults(const BoundsFile& bounds, const Json& results,
                               const std::string& path)
    : path_(path), cells_(path, "cells"), layers_(path, "layers") {
  for (const auto& [name, value] : results.items()) {
    if (name == "cells" || name == "layers") {
      for (const Json& record : value) (name == "cells" ? cells_ : layers_).add(bounds, record);
    } else {
      rest_[name] = value;
    }
  }
}

void CheckedResults::require_distinct() const {
  cells_.require_distinct();
  layers_.require_distinct();
}

}  // namespace kvbench
