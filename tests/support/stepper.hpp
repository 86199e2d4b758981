// Drives one algorithm through a stream by its public interface alone, decode row by decode row.
// One that decides for a layer or a model decides from the streams of `scope`, or this one alone.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/algorithm.hpp"

namespace kvbench::test {

// All parameters of the algorithm: those given, the others at their defaults. Throws
// std::invalid_argument for a name the table lacks or a value it refuses.
Params params_for(const AlgorithmDescription& algorithm,
                  const std::vector<std::pair<std::string, Value>>& given);

class Stepper {
 public:
  // The prompt is fed in blocks of `block` tokens (0: all at once).
  Stepper(const Stream& stream, Index prompt, const AlgorithmDescription& algorithm,
          const Params& params, std::uint32_t seed = 0, Index block = 0,
          const std::vector<const Stream*>& scope = {});

  // Moves to the next decode row, up to where it would be answered; false after the last one.
  bool next();

  Index row() const { return row_; }
  const Sketch& sketch() const { return algorithm_->sketch(); }
  const Algorithm& algorithm() const { return *algorithm_; }

 private:
  RowLogits row_logits() const;

  const Stream& stream_;
  Params params_;
  std::vector<Index> scored_rows_;  // all decode rows
  Needs needs_;
  SharedResults shared_;
  std::unique_ptr<Algorithm> algorithm_;
  LogitBlock block_;
  Index row_;
};

// The decision of an algorithm for a layer or a model, from the streams of `scope`, or `stream`
// alone; empty for one that decides for a KV head.
SharedResults decided(const AlgorithmDescription& algorithm, const Params& params,
                      std::uint32_t seed, const Stream& stream, Index prompt,
                      const std::vector<const Stream*>& scope = {});

// The sketch at every decode row's answer.
std::vector<Sketch> sketches(const Stream& stream, Index prompt,
                             const AlgorithmDescription& algorithm, const Params& params,
                             std::uint32_t seed = 0, Index block = 0);

// Tokens kept, ascending, without repeats.
std::vector<Index> kept_tokens(const Sketch& sketch);
std::vector<std::vector<Index>> kept_sets(const std::vector<Sketch>& sketches);

// A number of `derived`; throws std::out_of_range if it is missing.
double derived_real(const Derived& derived, const std::string& name);

// Whether two rules for answers, or none, are equal.
bool same_rule(const AnswerRule* a, const AnswerRule* b);

// Whether two sketches hold the same rows with the same weights, in the same order, and as much to
// find them with; empty places do not count.
bool same_sketch(const Sketch& a, const Sketch& b);

}  // namespace kvbench::test
