#include "algorithms/mechanisms/softmax_balancer.hpp"

#include <algorithm>
#include <cmath>

#include "algorithms/mechanisms/budget.hpp"
#include "numerics/canonical.hpp"
#include "numerics/counter_rng.hpp"

namespace kvbench {
namespace {

double largest_norm(ConstMatrix rows) {
  double largest = 0.0;
  for (Index j = 0; j < rows.rows; ++j) {
    largest = std::max(largest, canonical_dot(rows.row(j), rows.row(j), rows.cols));
  }
  return std::sqrt(largest);
}

WalkTokens walk_tokens(const Stream& stream, double r_key, double value_norm,
                       const std::vector<Index>& tokens) {
  WalkTokens walk;
  walk.kernel.beta = stream.shape.scale;
  walk.kernel.offset = stream.shape.scale * r_key * r_key;
  walk.keys = Gathered(stream.keys, tokens);
  if (value_norm != 0.0) {
    walk.kernel.value_scale = 1.0 / (value_norm * value_norm);
    walk.values = Gathered(stream.values, tokens);
  }
  return walk;
}

}  // namespace

StreamNorms::Result StreamNorms::compute(const SharedContext& context) const {
  const Stream& stream = context.stream;
  Result norms;
  norms.largest_key = largest_norm(stream.keys);
  for (const ConstMatrix& head : stream.queries) {
    norms.largest_query = std::max(norms.largest_query, largest_norm(head));
  }
  norms.largest_value = largest_norm(stream.values);
  for (Index j = 0; j < stream.values.rows; ++j) {
    const double* v = stream.values.row(j);
    norms.values.push_back(std::sqrt(canonical_dot(v, v, stream.values.cols)));
  }
  return norms;
}

std::shared_ptr<const WalkMatrices> softmax_walk_matrix(const SharedContext& context, double r_key,
                                                        double value_norm,
                                                        const std::vector<Index>& tokens) {
  return context.kernels.walk_matrices({std::ssize(tokens)}, [&](Index) {
    return walk_tokens(context.stream, r_key, value_norm, tokens);
  });
}

SoftmaxBalancer::SoftmaxBalancer(const BalancerParameters& p, const CellContext& context)
    : context_(context), side_(p.side) {
  const StreamNorms::Result& norms = context.shared.get(StreamNorms());
  r_key_ = p.r ? *p.r : norms.largest_key;
  largest_value_norm_ = norms.largest_value;
  const double tokens = context.stream.shape.tokens;
  c_ = p.c ? *p.c : 30.0 * std::log(tokens / p.fail_prob);
}

std::vector<Index> SoftmaxBalancer::halve(const Instance& instance,
                                          const std::vector<Index>& tokens, std::uint32_t level,
                                          const WalkMatrices* matrix) {
  if (tokens.empty()) return {};
  const CounterRng draw(context_.seed, context_.stream.id.hash(), instance.purpose);
  std::vector<double> uniforms;
  for (const Index token : tokens) {
    uniforms.push_back(draw.uniform(static_cast<std::uint32_t>(token), 0, level));
  }
  const WalkRule rule{.gain = 0.5 / c_};
  const auto walks = matrix != nullptr ? context_.kernels.balance_walks(rule, *matrix, {uniforms})
                                       : context_.kernels.balance_walks(
                                             rule,
                                             [&](Index) {
                                               return walk_tokens(context_.stream, r_key_,
                                                                  instance.value_norm, tokens);
                                             },
                                             {uniforms});
  const WalkResult& walk = walks.front();
  statistics_.add(walk);

  std::vector<Index> plus;
  std::vector<Index> minus;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    (walk.signs[i] > 0 ? plus : minus).push_back(tokens[i]);
  }
  const auto first = static_cast<std::uint32_t>(tokens.front());
  if (side_ == Side::kRandom) return draw.uniform(first, 1, level) < 0.5 ? plus : minus;
  const bool plus_is_smaller = plus.size() <= minus.size();
  std::vector<Index> kept = plus_is_smaller ? plus : minus;
  if (side_ == Side::kExactHalf) {
    std::vector<Index>& other = plus_is_smaller ? minus : plus;
    const std::size_t missing = tokens.size() / 2 - kept.size();
    std::sort(other.begin(), other.end(), [&](Index a, Index b) {
      const double x = draw.uniform53(static_cast<std::uint32_t>(a), 2, level);
      const double y = draw.uniform53(static_cast<std::uint32_t>(b), 2, level);
      return x != y ? x < y : a < b;
    });
    kept.insert(kept.end(), other.begin(), other.begin() + missing);
    std::sort(kept.begin(), kept.end());
  }
  return kept;
}

std::vector<DerivedKey> SoftmaxBalancer::derived_keys() {
  std::vector<DerivedKey> keys = {
      {"c",
       "the walk's constant: a sign is + with probability p = 1/2 - y / (2 c), y the kernel summed "
       "over earlier tokens with their signs"},
      {"r", "bound on the norms of keys; without the parameter, the largest of the stream"},
      {"kernel_mismatch", BalanceStatistics::kMismatch}};
  for (DerivedKey& key : BalanceStatistics::derived_keys()) keys.push_back(std::move(key));
  return keys;
}

void SoftmaxBalancer::describe(Derived& derived) const {
  derived.emplace_back("c", c_);
  derived.emplace_back("r", r_key_);
  derived.emplace_back("kernel_mismatch", context_.stream.shape.softcap > 0.0);
  statistics_.describe(derived);
}

SketchRow half_row(Index token, double weight, bool numerator) {
  SketchRow row = SketchRow::exact(token);
  (numerator ? row.w_num : row.w_den) = weight;
  (numerator ? row.w_den : row.w_num) = 0.0;
  row.keeps_value = numerator;
  row.weight_numbers = 1;
  return row;
}

std::vector<Field<BalancerParameters>> balancer_fields() {
  using P = BalancerParameters;
  return {field("r", &P::r, "bound on key norms; oracle: the stream's largest")
              .above(0)
              .or_word("oracle"),
          field("fail_prob", &P::fail_prob, "failure probability of a walk (the papers' delta)")
              .above(0)
              .at_most(1),
          field("c", &P::c,
                "constant of the walk: a sign is + with probability 1/2 - y / (2 c), y the "
                "kernel summed over earlier tokens with their signs; theory: "
                "30 ln(n / fail_prob)")
              .above(0)
              .or_word("theory"),
          field("side", &P::side,
                {{"smaller", Side::kSmaller},
                 {"random", Side::kRandom},
                 {"exact_half", Side::kExactHalf}},
                "which half is kept: the smaller (paper), either by a fair coin, or the smaller "
                "filled up to half")};
}

}  // namespace kvbench
