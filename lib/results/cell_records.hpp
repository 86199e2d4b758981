// The finished cells of a plan, wherever they are kept: what results.json is made from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "json/json.hpp"

namespace kvbench {

enum class CellState : std::uint8_t { kMissing, kOk, kFailed, kSkipped };

// The state that the `status` of a cell's record gives.
CellState state_of(const Json& record);

struct StoredRecord {
  Json record;
  std::string line;  // its text; empty where the stored text has more than the record
};

// Cells are known by their place in the plan.
class CellRecords {
 public:
  virtual ~CellRecords() = default;

  virtual CellState state(std::size_t cell) const = 0;
  virtual std::size_t count(CellState state) const = 0;
  // The record of a cell whose state is not kMissing.
  virtual StoredRecord stored(std::size_t cell) const = 0;
  Json read(std::size_t cell) const { return stored(cell).record; }
  // The same of the plan's records of whole layers, by their place there.
  virtual CellState layer_state(std::size_t layer) const = 0;
  virtual std::size_t count_layers(CellState state) const = 0;
  virtual StoredRecord stored_layer(std::size_t layer) const = 0;
  Json read_layer(std::size_t layer) const { return stored_layer(layer).record; }
  // Provenance of every run that added to them.
  virtual const std::vector<Json>& provenance() const = 0;
  // Whether results leave out host, command-line folders and scheduler.
  virtual bool is_anonymous() const { return false; }
};

}  // namespace kvbench
