// Two results files compared: their cells and, if both have them, records of whole layers.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "compare/compare.hpp"
#include "json/json.hpp"
#include "system/error.hpp"

namespace kvbench {

struct ComparedFiles {
  std::optional<Comparison> cells;  // none: no metric is of cells
  std::optional<Comparison> layers;
  std::string layers_only_in;  // the file that alone has records of whole layers; empty: neither

  bool passed() const { return (!cells || cells->passed()) && (!layers || layers->passed()); }
};

// The rules of one kind of record: with the metrics of that kind alone.
CompareRules rules_of(const CompareRules& rules, bool layers);

// Both files are read, whatever is wrong with one of them or with the rules: `errors` has what was
// found before. `read_one` is called with the members of each file that are not records. Throws
// InputError with all errors, and where only layers are asked for and a file has none.
ComparedFiles compare_files(
    const std::string& path_a, const std::string& path_b, const CompareRules& rules,
    ErrorList& errors,
    const std::function<void(const Json& rest, const std::string& path)>& read_one);

}  // namespace kvbench
