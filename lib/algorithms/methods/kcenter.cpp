// kcenter: the most recent tokens of the prompt and k centres of the rest, chosen once by greedy
// farthest-first on the keys. This is what the SubGen and ClusterGen experiments ran.
//
// Source: SubGen section 3.2 = ClusterGen section 4 (as evaluated); greedy rule of Gonzalez and of
// Dyer and Frieze.
//   recent window r (ClusterGen: l) -> recent, k centres -> budget - sinks - recent
// Departures, where the papers are silent: post-RoPE keys per KV head; the first centre is the
// oldest candidate (option `first`); ties go to the lowest index; unweighted softmax over centres
// with their own values (options `weights`, `value`). A centre whose key repeats an earlier
// centre's has an empty cluster: weight 0 with `weights: size`, its own value with `value: mean`.
#include <algorithm>
#include <numeric>

#include "algorithms/mechanisms/compress_once.hpp"
#include "numerics/canonical.hpp"
#include "numerics/counter_rng.hpp"

namespace kvbench::methods::kcenter {
namespace {

enum class First { kOldest, kRandom, kFarthestFromMean };
enum class Weights { kNone, kSize };
enum class CenterValue { kOwn, kMean };

struct Parameters {
  TokenCount budget;
  std::optional<TokenCount> recent;  // none: half of the budget
  TokenCount sinks = 0;
  First first = First::kOldest;
  Weights weights = Weights::kNone;
  CenterValue value = CenterValue::kOwn;
};

Index recent_of_budget(Index budget) { return budget / 2; }

Index resolved_recent(const Parameters& p, Index prompt) {
  return p.recent ? p.recent->of(prompt) : recent_of_budget(p.budget.of(prompt));
}

class KCenter final : public CompressOnce {
 public:
  KCenter(const Parameters& p, const CellContext& context)
      : CompressOnce(context, p.sinks.of(context.prompt), resolved_recent(p, context.prompt),
                     p.budget.of(context.prompt)),
        p_(p) {}

  Derived derived() const override {
    return {{"sinks", prompt_.sinks},
            {"recent", prompt_.recent},
            {"centers", centers_},
            {"covering_radius", covering_radius_}};
  }

  std::optional<Clusters> clusters() const override {
    const Index last = context_.stream.shape.tokens - 1;
    Clusters out;
    out.final_count = centers_;
    out.trajectory.emplace_back(context_.prompt, centers_);
    if (last > context_.prompt) out.trajectory.emplace_back(last, centers_);
    return out;
  }

 protected:
  void compress_middle(PromptRange middle) override {
    const Index count = p_.budget.of(context_.prompt) - prompt_.sinks - prompt_.recent;
    const Centers centers = context_.kernels.farthest_first(
        context_.stream.keys, middle.first, middle.last, first_center(middle), count);
    centers_ = std::ssize(centers.tokens);
    if (centers_ == 0) return;
    covering_radius_ = centers.radius.back();

    const bool by_size = p_.weights == Weights::kSize;
    const bool mean_value = p_.value == CenterValue::kMean;
    std::vector<Index> sizes(centers.tokens.size(), 0);
    for (const std::int32_t nearest : centers.nearest) ++sizes[nearest];
    if (mean_value) sketch_.own_values = mean_values(middle, centers, sizes);

    std::vector<std::size_t> order(centers.tokens.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return centers.tokens[a] < centers.tokens[b]; });
    for (const std::size_t c : order) {
      SketchRow row = SketchRow::exact(centers.tokens[c]);
      if (by_size) {
        row.w_num = row.w_den = sizes[c];
        row.weight_numbers = 1;
      }
      if (mean_value) row.own_value = static_cast<std::int32_t>(c);
      sketch_.add(row);
    }
  }

 private:
  Index first_center(PromptRange middle) const {
    if (p_.first == First::kRandom) {
      const CounterRng draw(context_.seed, context_.stream.id.hash(), "kcenter/first");
      const auto offset =
          static_cast<Index>(draw.uniform53(0) * static_cast<double>(middle.size()));
      return middle.first + std::min(offset, middle.size() - 1);
    }
    if (p_.first == First::kFarthestFromMean) return farthest_from_mean(middle);
    return middle.first;
  }

  Index farthest_from_mean(PromptRange middle) const {
    const ConstMatrix keys = context_.stream.keys;
    std::vector<double> mean(keys.cols, 0.0);
    for (Index j = middle.first; j < middle.last; ++j) {
      for (Index k = 0; k < keys.cols; ++k) mean[k] += keys(j, k);
    }
    for (double& x : mean) x /= static_cast<double>(middle.size());
    Index farthest = middle.first;
    double distance = -1.0;
    for (Index j = middle.first; j < middle.last; ++j) {
      const double candidate = squared_distance(keys.row(j), mean.data(), keys.cols);
      if (candidate > distance) {
        distance = candidate;
        farthest = j;
      }
    }
    return farthest;
  }

  // [centres][dv]; an empty cluster keeps its centre's own value.
  std::vector<std::vector<double>> mean_values(PromptRange middle, const Centers& centers,
                                               const std::vector<Index>& sizes) const {
    const ConstMatrix values = context_.stream.values;
    std::vector<std::vector<double>> means(centers.tokens.size(),
                                           std::vector<double>(values.cols, 0.0));
    for (Index j = middle.first; j < middle.last; ++j) {
      auto& mean = means[centers.nearest[j - middle.first]];
      for (Index k = 0; k < values.cols; ++k) mean[k] += values(j, k);
    }
    for (std::size_t c = 0; c < means.size(); ++c) {
      if (sizes[c] == 0) {
        const double* own = values.row(centers.tokens[c]);
        means[c].assign(own, own + values.cols);
      } else {
        for (double& x : means[c]) x /= static_cast<double>(sizes[c]);
      }
    }
    return means;
  }

  Parameters p_;
  Index centers_ = 0;
  double covering_radius_ = 0.0;
};

}  // namespace

AlgorithmDescription describe() {
  TypedAlgorithm<Parameters> d;
  d.id = "kcenter";
  d.title = "recent tokens and farthest-first centres of the other keys";
  d.source = "SubGen 3.2 = ClusterGen 4, as evaluated";
  d.limits.alibi = "kcenter lets one token stand for others at other positions";
  d.derived = {sinks_key(),
               recent_key(),
               {"centers", "keys of the middle that were chosen as centres"},
               {"covering_radius",
                "largest distance of a key of the middle to its nearest centre, in key units"}};
  using P = Parameters;
  d.parameters = {
      budget_field(&P::budget).required(),
      recent_field(&P::recent,
                   "last tokens of the prompt; always kept; half: floor of half the budget")
          .or_word("half"),
      sinks_field(&P::sinks),
      field("first", &P::first,
            {{"oldest", First::kOldest},
             {"random", First::kRandom},
             {"farthest_from_mean", First::kFarthestFromMean}},
            "the first centre"),
      field("weights", &P::weights, {{"none", Weights::kNone}, {"size", Weights::kSize}},
            "weight of a centre in both sums"),
      field("value", &P::value, {{"own", CenterValue::kOwn}, {"mean", CenterValue::kMean}},
            "a centre's value: its own or its cluster's")};
  d.randomised = [](const Parameters& p) { return p.first == First::kRandom; };
  d.skip_reason = [](const Parameters& p, const StreamShape& shape, Index prompt) {
    if (!p.recent) return cannot_compress(p.budget, p.sinks, recent_of_budget, shape, prompt);
    return cannot_compress(p.budget, p.sinks, p.recent->of(prompt), shape, prompt);
  };
  d.most_kept = [](const Parameters& p, const StreamShape& shape, Index prompt) {
    const Index budget = p.budget.of(prompt);
    const bool stores = p.weights == Weights::kSize;
    const Index exact = p.sinks.of(prompt) + resolved_recent(p, prompt);
    return most_kept_once(budget, stores ? budget - exact : 0, shape, prompt);
  };
  d.only_appends = [](const Parameters&) { return true; };
  d.weighs = [](const Parameters& p) { return p.weights == Weights::kSize; };
  d.makes_values = [](const Parameters& p) { return p.value == CenterValue::kMean; };
  d.create = [](const Parameters& p, const CellContext& context) {
    return std::make_unique<KCenter>(p, context);
  };
  return d;
}

}  // namespace kvbench::methods::kcenter
