#include "support/replayed.hpp"

#include <optional>
#include <stdexcept>

#include "support/stepper.hpp"

namespace kvbench::test {

std::vector<Index> decode_rows(const Stream& stream, Index prompt) {
  std::vector<Index> rows;
  const Index first = stream.shape.causal ? prompt : stream.shape.first_query;
  for (Index i = first; i < stream.shape.tokens; ++i) rows.push_back(i);
  return rows;
}

CellResult replay_one(const Stream& stream, Index prompt, const AlgorithmDescription& algorithm,
                      const Params& params, std::uint32_t seed, std::vector<Index> rows) {
  ReplaySetting setting;
  setting.prompt = prompt;
  setting.rows = rows.empty() ? decode_rows(stream, prompt) : std::move(rows);
  setting.keep_row_values = true;
  std::optional<CellResult> out;
  const SharedResults scope = decided(algorithm, params, seed, stream, prompt);
  const bool of_head = algorithm.replay_scope(params) == ReplayScope::kHead;
  replay(stream, setting, {{&algorithm, params, seed, of_head ? nullptr : &scope}}, cpu_kernels(),
         [&](std::size_t, CellResult&& result) { out = std::move(result); });
  if (!out) throw std::runtime_error("the cell was never reported");
  if (out->failed) throw std::runtime_error(out->reason);
  return *out;
}

}  // namespace kvbench::test
