#include "bench/algorithm_cell.hpp"

#include <utility>

#include "system/error.hpp"

namespace kvbench::bench {

Params params_of(const AlgorithmDescription& algorithm, const Given& given) {
  Params params;
  for (const Parameter& parameter : algorithm.parameters) {
    const auto found = given.find(parameter.name);
    if (found != given.end()) {
      params.set(parameter.name, found->second);
    } else if (parameter.default_value) {
      params.set(parameter.name, *parameter.default_value);
    }
  }
  return params;
}

std::vector<ReplayCell> cells_of(const AlgorithmDescription& algorithm, const Params& params,
                                 std::uint32_t first, std::uint32_t seeds) {
  std::vector<ReplayCell> cells;
  for (std::uint32_t seed = first; seed < first + seeds; ++seed) {
    cells.push_back({&algorithm, params, seed});
  }
  return cells;
}

CellResult last_cell(const Stream& stream, const ReplaySetting& setting,
                     const std::vector<ReplayCell>& cells, const Kernels& kernels) {
  CellResult last;
  replay(stream, setting, cells, kernels, [&](std::size_t index, CellResult&& result) {
    if (result.failed) throw CellError(result.reason);
    if (index + 1 == cells.size()) last = std::move(result);
  });
  return last;
}

}  // namespace kvbench::bench
