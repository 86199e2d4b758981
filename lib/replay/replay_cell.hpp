// A cell to replay: its method, parameters, seed and storage; and what cells of one stream share.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "core/evidence.hpp"
#include "sketch/answer.hpp"
#include "sketch/sketch.hpp"
#include "storage/storage.hpp"

namespace kvbench {

// Sees what one cell keeps and answers, besides its metrics. Called by one thread at a time; what
// it throws is an exception of the cell.
class ReplayWatch {
 public:
  virtual ~ReplayWatch() = default;

  // The sketch that answers decode row `row`: every row of [P, n) once, ascending, scored or not.
  virtual void kept(Index row, bool scored, const Sketch& sketch) = 0;
  // The answer of query head `g` at scored row number `r`, in ascending order of both.
  virtual void answered(Index r, Index g, const Answer& answer) {
    static_cast<void>(r), static_cast<void>(g), static_cast<void>(answer);
  }
};

// The parameters of a cell, which are those of many: a sweep may have half a million seeds of one
// setting on a KV head.
class CellParams {
 public:
  CellParams() : CellParams(Params{}) {}
  CellParams(Params params)  // NOLINT(google-explicit-constructor)
      : params_(std::make_shared<const Params>(std::move(params))) {}
  CellParams(std::shared_ptr<const Params> params)  // NOLINT(google-explicit-constructor)
      : params_(std::move(params)) {}

  operator const Params&() const { return *params_; }  // NOLINT(google-explicit-constructor)
  const Params* operator->() const { return params_.get(); }

 private:
  std::shared_ptr<const Params> params_;  // not null
};

struct ReplayCell {
  const AlgorithmDescription* algorithm = nullptr;
  CellParams params;
  std::uint32_t seed = 0;
  // Results of model work, for an algorithm that decides for a layer or the model.
  const SharedResults* model_results = nullptr;
  ReplayWatch* watch = nullptr;                      // nullptr: no observer
  std::shared_ptr<const Storage> storage = nullptr;  // null: held unquantised
};

// Logits and exponentials in memory at one time, of so many cells; those of one row are, whatever
// they take. A further block of rows costs every cell the same again, and few cells less than it
// takes to fill memory that no cache holds.
inline constexpr std::size_t kFewCells = 8;
constexpr Index most_logit_bytes(std::size_t cells) {
  return Index{cells <= kFewCells ? 64 : 256} << 20;
}

struct ReplaySetting {
  Index prompt = 0;  // P
  // Scored rows, ascending: decode rows [P, n), and of cells without a storage, of algorithms that
  // answer them, rows of the prompt.
  std::vector<Index> rows;
  int element_bytes = 2;  // bytes per number of a key or value in the memory report
  bool keep_row_values = false;
  bool keep_outputs = false;                              // whether results have `outputs`
  std::shared_ptr<const Evidence> evidence = nullptr;     // null: none
  Index logit_bytes = std::numeric_limits<Index>::max();  // less than most_logit_bytes()
};

}  // namespace kvbench
