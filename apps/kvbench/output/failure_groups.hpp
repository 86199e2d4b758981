// Groups failures of one cause: how many there are and which is the first.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "json/json.hpp"

namespace kvbench {

struct FailureGroup {
  std::string reason;     // the first one's; " (and similar)" if the numbers of others differ
  std::size_t first = 0;  // index
  std::size_t count = 0;
};

// Reasons that differ in their numbers alone (rows, heads, tokens, bytes) are of one cause.
class FailureGroups {
 public:
  // `index`: what the first one of a cause is found by.
  void add(const std::string& reason, std::size_t index, std::size_t count = 1);
  // The groups in the order in which their causes came.
  std::vector<FailureGroup> all() const;

 private:
  std::vector<FailureGroup> groups_;
  std::vector<bool> differ_;
  std::map<std::string, std::size_t> find_;  // by the reason without its numbers
};

// A line per cause of cells that have a `reason`, per cell for the others: "CELL", "CELL: REASON"
// or "12 cells: REASON; the first: CELL".
std::vector<std::string> cell_lines(const std::vector<Json>& cells);

}  // namespace kvbench
