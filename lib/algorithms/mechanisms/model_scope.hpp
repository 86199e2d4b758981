// Accumulated scores shared by all layers and heads of a scope: one set of tokens is kept in all of
// them (Keyformer's shared score over a model, TOVA's over a layer).
#pragma once

#include <functional>
#include <vector>

#include "algorithms/mechanisms/accumulated_scores.hpp"

namespace kvbench {

// Which tokens are kept, decided once for the whole scope.
struct ModelTrace {
  std::vector<Index> prompt_kept;  // ascending
  std::vector<Index> evicted;      // after decode row P + m: the token that goes, or -1
};

// Logits of all layers and heads that are in memory at one time: the streams are read once for as
// many decode rows.
inline constexpr double kModelLogitBytes = 512.0 * 1024 * 1024;

// f_j = sum over layers, query heads and rows of s; every stream answers row i, then one token
// goes. All streams have one sliding window or none: tokens that leave it are dropped before the
// row. The trace does not depend on `logit_bytes`. Throws Stopped (system/stop.hpp).
ModelTrace trace_model(const ModelContext& context, const Scoring& scoring, Index budget,
                       Index recent, std::uint32_t seed, double logit_bytes = kModelLogitBytes);

// The same as far as the prompt: `evicted` stays empty.
ModelTrace trace_prompt(const ModelContext& context, const Scoring& scoring, Index budget,
                        Index recent, std::uint32_t seed);

// Memory that trace_model needs at most; what a stream takes is not counted.
double trace_bytes(const ScopeSize& size, Index budget, double logit_bytes = kModelLogitBytes);

// Follows a trace on one stream.
class TraceFollower final : public Algorithm {
 public:
  TraceFollower(const CellContext& context, const ModelTrace& trace, Index numbers_per_head,
                Derived derived = {});

  void extend(Index first, Index last) override;
  void finish_prompt() override;
  Derived derived() const override { return derived_; }

 private:
  void count_scores();

  const CellContext context_;
  const ModelTrace& trace_;
  Index numbers_per_token_;
  Derived derived_;
};

}  // namespace kvbench
