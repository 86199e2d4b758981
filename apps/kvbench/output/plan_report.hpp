// The output of `kvbench plan`, as a document and as tables.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "estimate/cost_estimate.hpp"
#include "json/json.hpp"
#include "run/shard_selection.hpp"
#include "sweep/plan.hpp"

namespace kvbench {

class PlanReport {
 public:
  // All must outlive the report. `threads`: that a run would use.
  PlanReport(const Plan& plan, const ShardSelection& selection, const CostEstimate& cost,
             int threads);

  // Cells that are skipped for one reason, and the labels that they have, in the order of the plan.
  struct Skip {
    std::string reason;
    std::size_t cells = 0;
    std::vector<std::string> labels;
  };

  // One JSON document, in parts: its list of cells may be longer than memory.
  void write_json(const std::function<void(std::string_view)>& write) const;
  std::string table(std::size_t columns) const;  // as Table::text() has it

 private:
  Json json_without_cells() const;

  struct Group {            // as far as it is selected
    std::size_t index = 0;  // into the plan's groups
    std::size_t cells = 0;
    std::size_t skipped = 0;
    double bytes = 0.0;
    double multiply_adds = 0.0;
  };

  const Plan& plan_;
  const ShardSelection& selection_;
  const CostEstimate& cost_;
  int threads_;
  std::vector<Group> groups_;  // groups of the selection
  double bytes_ = 0.0;         // the step that needs most: a group, or writing results.json
  double multiply_adds_ = 0.0;
  std::size_t skipped_ = 0;
  std::size_t layer_records_ = 0;  // records of whole layers
  std::vector<Skip> skips_;        // most frequent reason first
};

}  // namespace kvbench
