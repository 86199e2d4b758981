// `summary` of results.json: means of the cells per algorithm, label and parameters.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/matrix_view.hpp"
#include "json/json.hpp"

namespace kvbench {

// Collects cell records one by one (so that a results file larger than memory can be summarised)
// and gives one entry per (algorithm, label, params) over all layers (`layer` null) and per layer.
//
// Unit = (dump, sequence, layer, KV head). Per unit the mean over seeds, then the mean over units;
// `ci95` Student's t interval over the groups of units that `ci95_over` names (mean_interval.hpp),
// null with one group; `std_over_seeds` population standard deviation over seeds of the mean over
// units. A metric that is null in a cell is left out there,
// null everywhere: null. Bits depend on the order of add() alone: call it in plan order.
class Summary {
 public:
  Summary();
  ~Summary();
  Summary(const Summary&) = delete;
  Summary& operator=(const Summary&) = delete;

  // A record of any status; skipped ones change nothing, failed ones are counted.
  void add(const Json& record);
  Json json() const;

 private:
  struct Entry;
  std::vector<Entry> entries_;               // in order of first appearance
  std::map<std::string, std::size_t> find_;  // identity -> entry
  std::map<std::string, Index> find_text_;   // dump and sequence -> number
};

}  // namespace kvbench
