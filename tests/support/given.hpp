// Parameters as a test writes them down.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "support/algorithm_named.hpp"
#include "support/naive_rules.hpp"
#include "support/stepper.hpp"

namespace kvbench::test {

using Given = std::vector<std::pair<std::string, Value>>;

inline Value count_of(Index value) { return Value{static_cast<std::int64_t>(value)}; }
inline Value number(double value) { return Value{value}; }
inline Value word_of(const std::string& value) { return Value{value}; }

// The sketch at each decode row of a registered algorithm.
inline std::vector<Sketch> sketches_of(const std::string& id, const Stream& stream, Index prompt,
                                       const Given& given, std::uint32_t seed = 0) {
  const AlgorithmDescription& algorithm = algorithm_named(id);
  return sketches(stream, prompt, algorithm, params_for(algorithm, given), seed);
}

inline KeptSets kept_by(const std::string& id, const Stream& stream, Index prompt,
                        const Given& given, std::uint32_t seed = 0) {
  return kept_sets(sketches_of(id, stream, prompt, given, seed));
}

// The same of each of several streams, which one that decides for a layer or a model decides for
// together.
inline std::vector<KeptSets> kept_in_scope(const std::string& id,
                                           const std::vector<const Stream*>& streams, Index prompt,
                                           const Given& given, std::uint32_t seed = 0) {
  const AlgorithmDescription& algorithm = algorithm_named(id);
  std::vector<KeptSets> out;
  for (const Stream* stream : streams) {
    Stepper stepper(*stream, prompt, algorithm, params_for(algorithm, given), seed, 0, streams);
    KeptSets& kept = out.emplace_back();
    while (stepper.next()) kept.push_back(kept_tokens(stepper.sketch()));
  }
  return out;
}

// Why a registered algorithm does not run; empty if it does.
inline std::string skip_of(const std::string& id, const StreamShape& shape, Index prompt,
                           const Given& given) {
  const AlgorithmDescription& algorithm = algorithm_named(id);
  return reason_to_skip(algorithm, params_for(algorithm, given), shape, prompt).value_or("");
}

}  // namespace kvbench::test
