// merge_cosine: what another method keeps of the prompt, with each token that it drops merged into
// the value of the kept token of the most similar key.
//
// Source: kvpress, MergingPress (after Token Merging and D2O); code NVIDIA/kvpress 8bb29b9,
// presses/merging_press.py.
//   press -> select, similarity_threshold -> threshold, weight_accum -> weights
// `select` runs at its own defaults with this budget. Keys stay; a merged value is convex: its
// length is at most the largest one's. Departures: all in double precision; of equal cosines the
// lower token is taken. Not offered: merge_fraction.
#include <algorithm>
#include <cmath>

#include "algorithms/mechanisms/compress_once.hpp"
#include "algorithms/mechanisms/key_cosine.hpp"
#include "algorithms/mechanisms/selecting_method.hpp"
#include "numerics/canonical.hpp"

namespace kvbench::methods::merge_cosine {

namespace {

constexpr double kMinLength = 1e-6;  // length of the values that weigh a merge

struct Parameters {
  TokenCount budget;
  Describe select = selecting_methods().front().second;
  double threshold = 0.0;
};

class MergeCosine final : public CompressOnce {
 public:
  MergeCosine(const Parameters& p, const CellContext& context)
      : CompressOnce(context, 0, 0, p.budget.of(context.prompt)), p_(p) {}

  Derived derived() const override { return {{"merged", merged_}}; }

 protected:
  void compress_middle(PromptRange middle) override {
    const Tokens kept = SelectingMethod(p_.select, p_.budget).tokens(context_);
    const Tokens dropped = tokens_without(middle, kept);
    const std::vector<double> weights = merge(kept, dropped);
    for (std::size_t t = 0; t < kept.size(); ++t) {
      SketchRow row = SketchRow::exact(kept[t]);
      if (weights[t] > 0.0) row.own_value = static_cast<std::int32_t>(t);
      sketch_.add(row);
    }
  }

 private:
  using Tokens = std::vector<std::int32_t>;

  // own_values become those of `kept`; the weight that each was given.
  std::vector<double> merge(const Tokens& kept, const Tokens& dropped) {
    const Stream& stream = context_.stream;
    const std::size_t dv = stream.shape.dv;
    std::vector<double> weights(kept.size(), 0.0);
    sketch_.own_values.assign(kept.size(), std::vector<double>(dv, 0.0));
    const auto visit = [&](std::int32_t token, std::size_t target, double cosine) {
      if (cosine < p_.threshold || cosine <= 0.0) return;
      const double of_dropped = value_length(token);
      const double weight =
          cosine * of_dropped / (of_dropped + value_length(kept[target]) + kMinLength);
      weights[target] += weight;
      merged_ += weight > 0.0 ? 1 : 0;
      std::vector<double>& sum = sketch_.own_values[target];
      for (std::size_t k = 0; k < dv; ++k) sum[k] += weight * stream.values.row(token)[k];
    };
    for_each_nearest(stream, dropped, kept, visit);
    for (std::size_t t = 0; t < kept.size(); ++t) {
      for (std::size_t k = 0; k < dv; ++k) {
        double& value = sketch_.own_values[t][k];
        value = (stream.values.row(kept[t])[k] + value) / (1.0 + weights[t]);
      }
    }
    return weights;
  }

  double value_length(Index token) const {
    const ConstMatrix values = context_.stream.values;
    return std::sqrt(canonical_dot(values.row(token), values.row(token), values.cols));
  }

  const Parameters p_;
  Index merged_ = 0;
};

}  // namespace

AlgorithmDescription describe() {
  TypedAlgorithm<Parameters> d;
  d.id = "merge_cosine";
  d.title = "another method's tokens; each dropped value is merged into that of the nearest key";
  d.source = "kvpress, MergingPress";
  d.derived = {merged_key()};
  using P = Parameters;
  d.parameters = {
      budget_field(&P::budget).required(),
      field("select", &P::select, selecting_methods(),
            "the method whose tokens are kept, with its defaults and this budget"),
      field("threshold", &P::threshold, "least cosine of two keys whose values are merged")
          .at_most(1)};
  describe_as_selection(d);
  d.only_appends = [](const Parameters&) { return true; };
  d.makes_values = [](const Parameters&) { return true; };
  d.memory = [](const Parameters& p, const StreamShape& shape, Index prompt) {
    const Index kept = std::min(prompt, p.budget.of(prompt));
    return CellMemory{.working = cosines_bytes(prompt - kept, kept, shape.d)};
  };
  d.create = [](const Parameters& p, const CellContext& context) {
    return std::make_unique<MergeCosine>(p, context);
  };
  return d;
}

}  // namespace kvbench::methods::merge_cosine
