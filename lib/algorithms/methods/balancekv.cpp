// balancekv: a streaming sketch of both softmax sums. Tokens are sorted into buckets by the norm of
// their values; each bucket, and the keys alone for the denominator, go through a merge-and-reduce
// tree whose reductions are SoftmaxBalance.
//
// Source: BalanceKV Algorithms 1 to 3.
//   t (batch) -> t, T (levels) -> T, epsilon -> epsilon, delta -> fail_prob, r -> r,
//   C^0 .. C^T -> MergeAndReduce::cells, P_i (bucket) -> buckets_, v_max -> largest_value_
// Departures and resolutions: bucket i holds 2^(i-1) <= ||v|| < 2^i (the paper's inequality is
// reversed), ||v|| = 0 is in none; an instance counts its own tokens; the erase rule as printed is
// too weak by e^(-beta r^2), `strict` has the proof's; FAIL is counted and p clamped.
#include <algorithm>
#include <cmath>
#include <deque>
#include <map>

#include "algorithms/mechanisms/budget.hpp"
#include "algorithms/mechanisms/softmax_balancer.hpp"
#include "kernels/balance_walk.hpp"
#include "numerics/canonical.hpp"

namespace kvbench::methods::balancekv {
namespace {

// The matrix of each first reduction of a tree, by the norm of its instance and its first token.
using FirstMatrices = std::map<std::pair<double, Index>, std::shared_ptr<const WalkMatrices>>;

// Algorithm 3. Cell C^l has weight 2^l; C^T is never reduced.
class MergeAndReduce {
 public:
  // `first`: of this stream's first reductions, null: none.
  MergeAndReduce(SoftmaxBalancer::Instance instance, Index batch, Index levels,
                 const FirstMatrices* first)
      : cells(static_cast<std::size_t>(levels) + 1),
        instance_(std::move(instance)),
        batch_(batch),
        levels_(levels),
        first_(first) {}

  // True if anything but the append to C^0 changed.
  bool add(Index token, SoftmaxBalancer& balancer) {
    cells[0].push_back(token);
    ++count_;
    if (levels_ == 0 || count_ % batch_ != 0) return false;
    reduce(0, balancer);
    Index halved = count_ / batch_;
    for (Index level = 1; level < levels_ && halved % 2 == 0; ++level, halved /= 2) {
      reduce(level, balancer);
    }
    return true;
  }

  std::vector<std::vector<Index>> cells;

 private:
  void reduce(Index level, SoftmaxBalancer& balancer) {
    auto& from = cells[level];
    auto& to = cells[level + 1];
    const std::vector<Index> kept = balancer.halve(
        instance_, from, static_cast<std::uint32_t>(level), level == 0 ? matrix(from) : nullptr);
    to.insert(to.end(), kept.begin(), kept.end());
    from.clear();
  }

  const WalkMatrices* matrix(const std::vector<Index>& tokens) const {
    if (first_ == nullptr) return nullptr;
    return first_->at({instance_.value_norm, tokens.front()}).get();
  }

  SoftmaxBalancer::Instance instance_;
  Index batch_;
  Index levels_;
  const FirstMatrices* first_;
  Index count_ = 0;
};

// How many tokens each cell of a tree holds, or of several trees together, now and at most.
struct CellSizes {
  explicit CellSizes(Index levels)
      : now(static_cast<std::size_t>(levels) + 1), largest(now.size()) {}

  void forget() { std::fill(now.begin(), now.end(), 0.0); }
  void add(const MergeAndReduce& tree) {
    for (std::size_t level = 0; level < now.size(); ++level) {
      now[level] += static_cast<double>(tree.cells[level].size());
    }
  }
  void note() {
    for (std::size_t level = 0; level < now.size(); ++level) {
      largest[level] = std::max(largest[level], now[level]);
    }
  }

  std::vector<double> now;
  std::vector<double> largest;
};

enum class Erase { kPaper, kStrict, kOff };

struct Parameters : BalancerParameters {
  Index t = 0;
  std::optional<Index> T;  // none: as many as n tokens fill
  double epsilon = 0.1;
  bool buckets = true;
  Erase erase = Erase::kPaper;
  TokenCount sinks = 0;
  TokenCount recent = 0;
};

Index resolved_levels(const Parameters& p, Index tokens) {
  if (p.T) return *p.T;
  const double batches = tokens / static_cast<double>(p.t);
  return std::max<Index>(0, static_cast<Index>(std::ceil(std::log2(batches))));
}

// r of the theorems: that of the parameters, or the largest norm of keys and stored queries.
double norm_bound(const std::optional<double>& r, const StreamNorms::Result& norms) {
  return r ? *r : std::max(norms.largest_key, norms.largest_query);
}

// Which buckets' values are too small to matter.
class EraseRule {
 public:
  EraseRule(Erase erase, double epsilon, const StreamShape& shape, double norm_bound)
      : erase_(erase),
        log_threshold_(std::log(epsilon / (2.0 * shape.tokens)) -
                       (erase == Erase::kStrict ? 2.0 : 1.0) * shape.scale * norm_bound *
                           norm_bound) {}

  // `largest`: norm of the values so far, v_max.
  bool erases(int exponent, double largest) const {
    if (erase_ == Erase::kOff) return false;
    const double log_bound = exponent * std::log(2.0);
    return !(log_bound > log_threshold_ + std::log(largest));
  }

 private:
  Erase erase_;
  double log_threshold_;  // ln of what 2^i / v_max must exceed for bucket i to stay
};

// Shared work: the matrices of every tree's first reductions, the same for every seed, T, c and
// side: what enters C^0 depends on no coin.
struct FirstReductions {
  std::optional<double> r;
  Index t = 0;
  double epsilon = 0.1;
  bool buckets = true;
  Erase erase = Erase::kPaper;
  Index first = 0;  // first of the tokens that enter
  Index last = 0;

  using Result = FirstMatrices;
  Result compute(const SharedContext& context) const {
    const StreamNorms::Result norms = StreamNorms().compute(context);
    const EraseRule rule(erase, epsilon, context.stream.shape, norm_bound(r, norms));
    const double r_key = r ? *r : norms.largest_key;
    Result matrices;
    const auto enter = [&](double norm, std::vector<Index>& batch, Index token) {
      batch.push_back(token);
      if (std::ssize(batch) < t) return;
      matrices[{norm, batch.front()}] = softmax_walk_matrix(context, r_key, norm, batch);
      batch.clear();
    };
    std::vector<Index> denominator;
    std::map<int, std::vector<Index>> numerator;  // by bucket
    double largest = 0.0;
    for (Index token = first; token < last; ++token) {
      enter(0.0, denominator, token);
      const double norm = buckets ? norms.values[token] : norms.largest_value;
      if (norm == 0.0) continue;
      int exponent = 0;
      if (buckets) std::frexp(norm, &exponent);
      enter(buckets ? std::ldexp(1.0, exponent) : norm, numerator[exponent], token);
      largest = std::max(largest, norm);
      while (buckets && !numerator.empty() && rule.erases(numerator.begin()->first, largest)) {
        numerator.erase(numerator.begin());
      }
    }
    return matrices;
  }
  double bytes() const {
    const Index blocks = (last - first) / t;
    return 2.0 * blocks * WalkMatrices::bytes(t);
  }
  double scratch(const StreamShape& shape, Index) const { return walk_bytes(t, shape.d, shape.dv); }
  auto operator<=>(const FirstReductions&) const = default;
};

// The first reductions; nullopt if nothing is reduced, or if they would take more memory than they
// are worth.
std::optional<FirstReductions> first_reductions(const Parameters& p, const StreamShape& shape,
                                                Index prompt) {
  const FirstReductions first{p.r,
                              p.t,
                              p.epsilon,
                              p.buckets,
                              p.erase,
                              p.sinks.of(prompt),
                              shape.tokens - p.recent.of(prompt)};
  const bool none = resolved_levels(p, shape.tokens) == 0 || first.last - first.first < p.t;
  if (none || first.bytes() > kSharedWalkBytes) return std::nullopt;
  return first;
}

class BalanceKv final : public Algorithm {
 public:
  BalanceKv(const Parameters& p, const CellContext& context)
      : p_(p),
        context_(context),
        norms_(context.shared.get(StreamNorms())),
        first_(first_matrices(p, context)),
        balancer_(p, context),
        sinks_(p.sinks.of(context.prompt)),
        recent_(p.recent.of(context.prompt)),
        levels_(resolved_levels(p, context.stream.shape.tokens)),
        norm_bound_(norm_bound(p.r, norms_)),
        denominator_({"balancekv/denominator", 0.0}, p.t, levels_, first_),
        denominator_sizes_(levels_),
        numerator_sizes_(levels_),
        erase_rule_(p.erase, p.epsilon, context.stream.shape, norm_bound_) {}

  void extend(Index first, Index last) override {
    Index settled = first;  // the first token after the last reduction
    for (Index token = first; token < last; ++token) {
      if (token - recent_ < sinks_) continue;
      if (enter(token - recent_)) settled = token + 1;
      note_sizes();
    }
    if (settled > first) rebuild(settled);
    for (Index token = settled; token < last; ++token) grow(token);
  }

  Derived derived() const override {
    Derived out = {{"T", levels_},
                   {"buckets", std::ssize(buckets_)},
                   {"erased_buckets", erased_},
                   {"denominator_cells", denominator_sizes_.largest},
                   {"numerator_cells", numerator_sizes_.largest}};
    balancer_.describe(out);
    const double log_size = log_batch_times_epsilon();
    const double epsilon = levels_ == 0 ? 0.0 : std::exp(log_size) / p_.t;  // nothing is reduced
    out.emplace_back("norm_bound", norm_bound_);
    out.emplace_back("theorem_epsilon", epsilon);
    out.emplace_back("theorem_t", std::ceil(std::exp(log_size - std::log(p_.epsilon))));
    return out;
  }

  Counters counters() const override { return {.clamped = balancer_.statistics().clamped}; }

 private:
  static const FirstMatrices* first_matrices(const Parameters& p, const CellContext& context) {
    const auto first = first_reductions(p, context.stream.shape, context.prompt);
    return first ? &context.shared.get(*first) : nullptr;
  }

  // ln of (batch t) epsilon as the proof of Theorem 3.3 has it, t = O(T sqrt(dv) ln(dv n)
  // e^(2 beta r^2) / epsilon), with 1 for the constant that O hides and no paper prints.
  double log_batch_times_epsilon() const {
    const StreamShape& shape = context_.stream.shape;
    const double dv = shape.dv;
    const double logarithm = std::log(dv * shape.tokens);
    return std::log(std::max<Index>(1, levels_) * std::sqrt(dv) * std::max(1.0, logarithm)) +
           2.0 * shape.scale * norm_bound_ * norm_bound_;
  }

  // The norm that the token's instance of the numerator goes by; 0: it is in none.
  double value_norm(Index token) const {
    return p_.buckets ? norms_.values[token] : balancer_.largest_value_norm();
  }

  // True if anything but the append to both sums changed.
  bool enter(Index token) {
    bool is_reduced = denominator_.add(token, balancer_);
    const double norm = value_norm(token);
    if (norm == 0.0) return is_reduced;
    if (!p_.buckets) return bucket(0, norm).add(token, balancer_) || is_reduced;
    int exponent = 0;
    std::frexp(norm, &exponent);
    is_reduced |= bucket(exponent, std::ldexp(1.0, exponent)).add(token, balancer_);
    largest_value_ = std::max(largest_value_, norm);
    return erase_low_buckets() || is_reduced;
  }

  // After every token, whatever the blocks in which tokens come.
  void note_sizes() {
    denominator_sizes_.forget();
    denominator_sizes_.add(denominator_);
    denominator_sizes_.note();
    numerator_sizes_.forget();
    for (const auto& [exponent, instance] : buckets_) numerator_sizes_.add(instance);
    numerator_sizes_.note();
  }

  MergeAndReduce& bucket(int exponent, double value_norm) {
    const auto found = buckets_.find(exponent);
    if (found != buckets_.end()) return found->second;
    const SoftmaxBalancer::Instance instance{"balancekv/numerator/" + std::to_string(exponent),
                                             value_norm};
    return buckets_.emplace(exponent, MergeAndReduce(instance, p_.t, levels_, first_))
        .first->second;
  }

  bool erase_low_buckets() {
    const Index before = erased_;
    while (!buckets_.empty() && erase_rule_.erases(buckets_.begin()->first, largest_value_)) {
      buckets_.erase(buckets_.begin());
      ++erased_;
    }
    return erased_ > before;
  }

  // The sketch as of `last` tokens, though later ones have entered.
  void rebuild(Index last) {
    sketch_.clear();
    window_.clear();
    sketch_.add_exact(0, std::min(sinks_, last));
    for (const auto& [exponent, instance] : buckets_) add_cells(instance, last - recent_, true);
    add_cells(denominator_, last - recent_, false);
    for (Index token = std::max(sinks_, last - recent_); token < last; ++token) add_window(token);
  }

  // The same with one token more, which has reduced nothing.
  void grow(Index token) {
    const Index entered = token - recent_;
    if (token < sinks_) {
      sketch_.add(SketchRow::exact(token));
    } else if (recent_ > 0) {
      add_window(token);
    }
    if (entered < sinks_) return;
    const SketchRow row = half_row(entered, 1.0, false);
    if (recent_ > 0) {
      sketch_.replace(window_.front(), row);
      window_.pop_front();
    } else {
      sketch_.add(row);
    }
    if (value_norm(entered) > 0.0) sketch_.add(half_row(entered, 1.0, true));
  }

  void add_window(Index token) { window_.push_back(sketch_.add(SketchRow::exact(token))); }

  // Tokens before `end`.
  void add_cells(const MergeAndReduce& instance, Index end, bool numerator) {
    double weight = 1.0;
    for (const auto& cell : instance.cells) {
      for (const Index token : cell) {
        if (token < end) sketch_.add(half_row(token, weight, numerator));
      }
      weight *= 2.0;
    }
  }

  const Parameters p_;
  const CellContext context_;
  const StreamNorms::Result& norms_;
  const FirstMatrices* const first_;
  SoftmaxBalancer balancer_;
  Index sinks_;
  Index recent_;
  Index levels_;
  double norm_bound_;                      // r
  std::map<int, MergeAndReduce> buckets_;  // by i, 2^(i-1) <= ||v|| < 2^i
  MergeAndReduce denominator_;
  CellSizes denominator_sizes_;
  CellSizes numerator_sizes_;  // sizes of all buckets together
  std::deque<Index> window_;   // positions of the last `recent_` tokens
  double largest_value_ = 0.0;
  EraseRule erase_rule_;
  Index erased_ = 0;
};

}  // namespace

AlgorithmDescription describe() {
  TypedAlgorithm<Parameters> d;
  d.id = "balancekv";
  d.title = "streaming merge-and-reduce of balanced halves, by value-norm buckets";
  d.source = "BalanceKV Algorithms 1 to 3";
  d.for_less_memory =
      "the norms of the values decide what balancekv's buckets keep; for "
      "less memory lower t";
  d.limits.alibi = "balancekv approximates a kernel of inner products alone";
  d.derived = SoftmaxBalancer::derived_keys();
  d.derived.insert(
      d.derived.begin(),
      {{"T", "levels of merge-and-reduce"},
       {"buckets", "value-norm buckets that have tokens"},
       {"erased_buckets", "value-norm buckets that were erased"},
       {"denominator_cells",
        "the most tokens that each of the cells C^0 to C^T of the denominator's tree "
        "held after a token"},
       {"numerator_cells", "the same for the numerator's trees, the cells of all buckets together"},
       {"norm_bound",
        "r of the theorems: the parameter, or the largest norm of "
        "keys and stored queries"},
       {"theorem_epsilon",
        "T sqrt(dv) ln(dv n) e^(2 beta r^2) / t: what Theorem 3.3's "
        "proof promises for t, the constant of its O taken as 1"},
       {"theorem_t", "the t that the same formula requires for epsilon"}});
  using P = Parameters;
  d.parameters.add(
      {field("t", &P::t, "batch: tokens collected before a reduction")
           .at_least(2)
           .at_most(1e9)
           .required(),
       field("T", &P::T, "levels of the tree; auto: max(0, ceil(log2(n / t)))")
           .at_most(62)
           .or_word("auto")
           .required(),
       field("epsilon", &P::epsilon, "accuracy that the erase rule is made for").above(0)});
  d.parameters.add(balancer_fields());
  d.parameters.add(
      {field("buckets", &P::buckets,
             "true: one instance for the values with norms in [2^(i-1), 2^i), for each i"),
       field("erase", &P::erase,
             {{"paper", Erase::kPaper}, {"strict", Erase::kStrict}, {"off", Erase::kOff}},
             "when buckets of small values are dropped: by the paper's rule as printed, by the "
             "stricter one of its proof, or never"),
       sinks_field(&P::sinks), recent_field(&P::recent)});
  d.randomised = [](const Parameters&) { return true; };
  d.skip_reason = [](const Parameters&, const StreamShape& shape, Index) {
    return cannot_forget("balancekv", shape);
  };
  d.shared_work = [](const Parameters& p, const StreamShape& shape, Index prompt, std::uint32_t) {
    std::vector<SharedWork> work = {StreamNorms()};
    if (const auto first = first_reductions(p, shape, prompt)) work.push_back(*first);
    return work;
  };
  d.memory = [](const Parameters& p, const StreamShape& shape, Index) {
    const Index batch = std::min(shape.tokens, 2 * p.t);  // a cell overflows at t tokens or more
    // A token has a row in the numerator and one in the denominator.
    return CellMemory{.held = kSketchRowBytes * shape.tokens,
                      .working = walk_bytes(batch, shape.d, shape.dv)};
  };
  d.create = [](const Parameters& p, const CellContext& context) {
    return std::make_unique<BalanceKv>(p, context);
  };
  return d;
}

}  // namespace kvbench::methods::balancekv
