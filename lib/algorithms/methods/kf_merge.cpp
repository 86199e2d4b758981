// kf_merge: what another method keeps of the prompt. The key and the value of each token that it
// drops are merged into those of the kept token of the most similar key.
//
// Source: KVCache-Factory (after LOOK-M and KVMerger); code Zefan-Cai/KVCache-Factory c97f9d7,
// pyramidkv/pyramidkv_utils.py (merge_kv).
//   indices -> select, merge -> rule
// A kept vector t, with m dropped vectors e merged into it, becomes
//   pivot      the mean of t and of the m means (e + t) / 2
//   weighted   (t + sum w e) / (1 + sum w), w = max((cosine + 1) / 2, 1e-6)
// All that is dropped is merged, whatever its cosine. `select` runs at its own defaults with this
// budget. Departures: all in double precision; of equal cosines the lower token is taken.
#include <algorithm>
#include <cmath>

#include "algorithms/mechanisms/compress_once.hpp"
#include "algorithms/mechanisms/key_cosine.hpp"
#include "algorithms/mechanisms/selecting_method.hpp"

namespace kvbench::methods::kf_merge {
namespace {

constexpr double kMinWeight = 1e-6;

enum class Rule { kPivot, kWeighted };

struct Parameters {
  TokenCount budget;
  Describe select = selecting_methods().front().second;
  Rule rule = Rule::kPivot;
};

class KfMerge final : public CompressOnce {
 public:
  KfMerge(const Parameters& p, const CellContext& context)
      : CompressOnce(context, 0, 0, p.budget.of(context.prompt)), p_(p) {}

  Derived derived() const override { return {{"merged", merged_}}; }

 protected:
  void compress_middle(PromptRange middle) override {
    const std::vector<std::int32_t> kept = SelectingMethod(p_.select, p_.budget).tokens(context_);
    const std::vector<std::int32_t> dropped = tokens_without(middle, kept);
    merged_ = std::ssize(dropped);
    std::vector<Sources> into(kept.size());  // tokens merged into each
    for_each_nearest(context_.stream, dropped, kept,
                     [&](std::int32_t token, std::size_t target, double cosine) {
                       into[target].push_back({token, cosine});
                     });
    for (std::size_t t = 0; t < kept.size(); ++t) {
      SketchRow row = SketchRow::exact(kept[t]);
      if (!into[t].empty()) {
        row.own_key = row.own_value = static_cast<std::int32_t>(sketch_.own_keys.size());
        sketch_.own_keys.push_back(merged(context_.stream.keys, kept[t], into[t]));
        sketch_.own_values.push_back(merged(context_.stream.values, kept[t], into[t]));
      }
      sketch_.add(row);
    }
  }

 private:
  struct Source {
    std::int32_t token;
    double cosine;
  };
  using Sources = std::vector<Source>;

  std::vector<double> merged(ConstMatrix vectors, Index token, const Sources& sources) const {
    const double* own = vectors.row(token);
    std::vector<double> sum(own, own + vectors.cols);
    double weights = 1.0;
    for (const Source& source : sources) {
      const double* other = vectors.row(source.token);
      const double weight =
          p_.rule == Rule::kPivot ? 1.0 : std::max((source.cosine + 1.0) / 2.0, kMinWeight);
      weights += weight;
      for (std::size_t k = 0; k < sum.size(); ++k) {
        sum[k] += p_.rule == Rule::kPivot ? (other[k] + own[k]) / 2.0 : weight * other[k];
      }
    }
    for (double& x : sum) x /= weights;
    return sum;
  }

  const Parameters p_;
  Index merged_ = 0;
};

}  // namespace

AlgorithmDescription describe() {
  TypedAlgorithm<Parameters> d;
  d.id = "kf_merge";
  d.title = "another method's tokens; each dropped key and value is merged into the nearest key's";
  d.source = "KVCache-Factory, merge_kv (after LOOK-M)";
  d.derived = {merged_key()};
  d.limits.alibi = "kf_merge merges keys of several positions";
  d.limits.all_tokens = "kf_merge is for rows that are decoded after a prompt";
  using P = Parameters;
  d.parameters = {budget_field(&P::budget).required(),
                  field("select", &P::select, selecting_methods(),
                        "the method whose tokens are kept, with its defaults and this budget"),
                  field("rule", &P::rule, {{"pivot", Rule::kPivot}, {"weighted", Rule::kWeighted}},
                        "pivot: the mean of the kept vector and its means with each that is merged "
                        "into it; weighted: a mean weighted by cosines")};
  // Not `only_appends`: a codec that writes several tokens together could not write merged keys.
  describe_as_selection(d);
  d.makes_values = [](const Parameters&) { return true; };
  d.memory = [](const Parameters& p, const StreamShape& shape, Index prompt) {
    const Index kept = std::min(prompt, p.budget.of(prompt));
    return CellMemory{.working = cosines_bytes(prompt - kept, kept, shape.d)};
  };
  d.create = [](const Parameters& p, const CellContext& context) {
    return std::make_unique<KfMerge>(p, context);
  };
  return d;
}

}  // namespace kvbench::methods::kf_merge
