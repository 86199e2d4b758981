// Results verified: a random sample of their cells is computed again, and their summary made anew.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "compare/record_differences.hpp"
#include "compare/summary_differences.hpp"
#include "json/json.hpp"
#include "run/run_device.hpp"
#include "run/run_observer.hpp"
#include "verify/cell_verdict.hpp"
#include "verify/sample.hpp"

namespace kvbench {

struct VerifyRequest {
  std::string results = {};             // path of a results.json
  std::vector<std::string> dumps = {};  // where its dumps are; empty: where it says
  std::size_t sample = 20;              // cells to draw
  std::uint32_t seed = 0;               // seed of the draw
  std::uint64_t memory_limit = 0;       // bytes; 0: what the process may use
};

struct Verification {
  Sample sample;
  CellVerdict verdict;
  SummaryCheck summary;
  NumberTolerance tolerance;      // 0 if this program and the results' have one build
  std::set<std::string> unknown;  // methods written in Python, whose cells are not drawn

  bool agrees() const { return verdict.equal == verdict.computed && summary.differences.empty(); }
  // Whether every drawn cell was computed again.
  bool complete() const { return verdict.computed == sample.cells.size(); }
};

// Nothing is written, except for a temporary folder that is removed. Ends early once `stop` is set.
// Throws InputError where the file is not results, no cell of it can be drawn, or a dump is
// missing; else as execute().
Verification verify(const VerifyRequest& request, RunDevice& device, RunObserver& observer,
                    std::atomic<bool>& stop);

// The whole verdict as a JSON document: `kvbench verify --json`.
Json verification_json(const VerifyRequest& request, const Verification& verification);

}  // namespace kvbench
