#include "results/cell_records.hpp"

#include <string>

namespace kvbench {

CellState state_of(const Json& record) {
  const auto& status = record.at("status").get_ref<const std::string&>();
  if (status == "ok") return CellState::kOk;
  return status == "skipped" ? CellState::kSkipped : CellState::kFailed;
}

}  // namespace kvbench
