#include "algorithms/mechanisms/subgen_variances.hpp"

#include <algorithm>
#include <numeric>

#include "kernels/weight_table.hpp"
#include "numerics/canonical.hpp"
#include "numerics/lanes.hpp"
#include "system/parallel.hpp"

namespace kvbench {
namespace {

constexpr Index kAbreast = Lanes::kCount;  // queries whose clusters are summed side by side
constexpr Index kTokensAtOnce = 64;        // that are laid out for them
constexpr Index kPartsPerThread = 2;

// One query head at scored row number r: e = exp(x - max) over the tokens that row `row` sees.
struct Query {
  std::size_t r = 0;
  Index row = 0;
  Index query_index = 0;  // in the block
  const double* e = nullptr;
  double sink = 0.0;  // the exponential of the query head's sink
};

std::vector<Query> scored_queries(const SharedContext& context, const RowBlock& block) {
  const std::vector<Index> scored = scored_rows(context);
  const LogitBlock& logits = block.logits();
  const int heads = context.stream.shape.heads_per_kv;
  std::vector<Query> queries;
  auto next = scored.begin();
  for (std::size_t at = 0; at < block.rows().size(); ++at) {
    const Index row = block.rows()[at];
    next = std::lower_bound(next, scored.end(), row);
    if (next == scored.end() || *next != row) continue;
    for (int g = 0; g < heads; ++g) {
      const Index query_index = static_cast<Index>(at) * heads + g;
      const double shift = logits.max_logit[query_index];
      queries.push_back({static_cast<std::size_t>(next - scored.begin()), row, query_index,
                         logits.exps.data() + query_index * logits.tokens,
                         canonical_exp(context.stream.sink(g) - shift)});
    }
  }
  return queries;
}

// Adds terms(first, count, terms of these queries) of all of them in order. Parts of the queries
// are worked on at the same time; they begin at multiples of `step`.
template <class Terms>
void add_in_parts(const std::vector<Query>& queries, Index step, const Terms& terms,
                  QueryMean& mean) {
  const auto count = std::ssize(queries);
  const Index parts = kPartsPerThread * thread_count();
  const Index size = std::max<Index>(1, (count + parts * step - 1) / (parts * step)) * step;
  std::vector<double> found(queries.size(), 0.0);
  parallel_for((count + size - 1) / size, [&](Index p) {
    const Index first = p * size;
    terms(queries.data() + first, std::min(size, count - first), found.data() + first);
  });
  for (const double term : found) mean.add(term);
}

// sum over [0, last) of e and of e^2.
struct Sums {
  double e = 0.0;
  double squares = 0.0;
};

Sums sums_of(const double* e, Index last) {
  Lanes sum = Lanes::all(0.0);
  Lanes squares = Lanes::all(0.0);
  Index j = 0;
  for (; j + Lanes::kCount <= last; j += Lanes::kCount) {
    const Lanes x = Lanes::load(e + j);
    sum = sum + x;
    squares = Lanes::fma(x, x, squares);
  }
  Sums out{sum.sum(), squares.sum()};
  for (; j < last; ++j) {
    out.e += e[j];
    out.squares += e[j] * e[j];
  }
  return out;
}

// sum over [first, last) of e^2 weight.
double weighted_squares(const double* e, const double* weight, Index first, Index last) {
  Lanes sum = Lanes::all(0.0);
  Index j = first;
  for (; j + Lanes::kCount <= last; j += Lanes::kCount) {
    const Lanes x = Lanes::load(e + j);
    sum = Lanes::fma(x * x, Lanes::load(weight + j), sum);
  }
  double total = sum.sum();
  for (; j < last; ++j) total += e[j] * e[j] * weight[j];
  return total;
}

// Tokens [first, entered) are in the state at a row: sinks and recent ones are not.
Index entered_at(Index first, Index row, Index recent) { return std::max(first, row + 1 - recent); }

// Sums over a cluster's tokens, for each of eight queries.
struct ClusterSums {
  alignas(64) double e[kAbreast];
  alignas(64) double squares[kAbreast];
};

// Sums over the clusters' tokens of ascending queries.
class ClustersOfQueries {
 public:
  ClustersOfQueries(const Clustering& clustering, Index recent)
      : clustering_(clustering),
        recent_(recent),
        sums_(clustering.opened_by.size()),
        tokens_(sums_.size(), 0.0),
        counted_(clustering.first) {}

  // t Var(tau) / Z^2 of up to eight queries.
  void variances(const Query* queries, Index count, double* out) {
    add_up(queries, count);
    for (Index q = 0; q < count;) {
      const Index row = queries[q].row;
      count_until(entered(row));
      Lanes variance = Lanes::all(0.0);
      for (std::size_t c = 0; c < sums_.size(); ++c) {
        // n^2 Var = n sum e^2 - (sum e)^2, which rounding may take below 0.
        const Lanes sum = Lanes::load(sums_[c].e);
        const Lanes squares = Lanes::load(sums_[c].squares);
        variance =
            variance + Lanes::max(Lanes::all(tokens_[c]) * squares - sum * sum, Lanes::all(0.0));
      }
      alignas(64) double of_query[kAbreast];
      variance.store(of_query);
      for (; q < count && queries[q].row == row; ++q) {
        const double z = sums_of(queries[q].e, row + 1).e + queries[q].sink;
        out[q] = of_query[q] / (z * z);
      }
    }
  }

 private:
  std::size_t cluster_of(Index token) const {
    return clustering_.assignment[token - clustering_.first];
  }
  Index entered(Index row) const { return entered_at(clustering_.first, row, recent_); }

  void count_until(Index last) {
    for (; counted_ < last; ++counted_) tokens_[cluster_of(counted_)] += 1.0;
  }

  void add_up(const Query* queries, Index count) {
    std::fill(sums_.begin(), sums_.end(), ClusterSums{});
    const Index last = entered(queries[count - 1].row);
    alignas(64) double some[kTokensAtOnce * kAbreast] = {};
    for (Index begin = clustering_.first; begin < last; begin += kTokensAtOnce) {
      const Index end = std::min(begin + kTokensAtOnce, last);
      for (Index q = 0; q < count; ++q) {
        const Index of_query = std::clamp(entered(queries[q].row), begin, end);
        double* to = some + q;
        for (Index j = begin; j < of_query; ++j) to[(j - begin) * kAbreast] = queries[q].e[j];
        for (Index j = of_query; j < end; ++j) to[(j - begin) * kAbreast] = 0.0;
      }
      for (Index j = begin; j < end; ++j) {
        ClusterSums& cluster = sums_[cluster_of(j)];
        const Lanes e = Lanes::load(some + (j - begin) * kAbreast);
        (Lanes::load(cluster.e) + e).store(cluster.e);
        (Lanes::load(cluster.squares) + e * e).store(cluster.squares);
      }
    }
  }

  const Clustering& clustering_;
  const Index recent_;
  std::vector<ClusterSums> sums_;
  std::vector<double> tokens_;  // by cluster, of those that entered
  Index counted_;
};

}  // namespace

std::vector<Index> scored_rows(const SharedContext& context) {
  if (context.scored_rows != nullptr) return *context.scored_rows;
  const StreamShape& shape = context.stream.shape;
  std::vector<Index> rows(shape.tokens - shape.first_query);
  std::iota(rows.begin(), rows.end(), shape.first_query);
  return rows;
}

void add_normalizer_variances(const SharedContext& context, const RowBlock& block,
                              const Clustering& clustering, Index recent, QueryMean& mean) {
  const auto terms = [&](const Query* queries, Index count, double* out) {
    ClustersOfQueries clusters(clustering, recent);
    for (Index q = 0; q < count; q += kAbreast) {
      clusters.variances(queries + q, std::min(kAbreast, count - q), out + q);
    }
  };
  add_in_parts(scored_queries(context, block), kAbreast, terms, mean);
}

void add_numerator_variances(const SharedContext& context, const RowBlock& block,
                             const SlotTokens& tokens, const std::vector<double>& value_spectral,
                             QueryMean& mean) {
  const Index dv = context.stream.shape.dv;
  const auto terms = [&](const Query* queries, Index count, double* out) {
    const auto entered = [&](const Query& query) {
      return entered_at(tokens.first, query.row, tokens.recent);
    };
    AnswerBatch batch;
    for (Index j = tokens.first; j < entered(queries[count - 1]); ++j) {
      batch.weights.push_back({1.0, 1.0, 0.0, static_cast<std::int32_t>(j), 0});
    }
    for (Index q = 0; q < count; ++q) {
      batch.questions.push_back({queries[q].query_index, 0, entered(queries[q]) - tokens.first});
    }
    std::vector<double> numerators;  // N of each
    std::vector<AnswerMasses> masses;
    block.resident().answer(batch, numerators, masses);
    for (Index q = 0; q < count; ++q) {
      const Query& query = queries[q];
      const Index last = entered(query);
      const double mu = last > tokens.first ? tokens.mu[last - tokens.first - 1] : 0.0;
      const double norm = value_spectral[query.r];
      const double second_moment =
          mu * weighted_squares(query.e, tokens.share.data(), tokens.first, last);
      const double scale = sums_of(query.e, query.row + 1).squares * norm * norm;
      const double* numerator = numerators.data() + q * dv;
      double squares = 0.0;
      for (Index k = 0; k < dv; ++k) squares += numerator[k] * numerator[k];
      if (scale > 0.0) out[q] = std::max(0.0, second_moment - squares) / scale;
    }
  };
  add_in_parts(scored_queries(context, block), WeightTable::kPlaces, terms, mean);
}

}  // namespace kvbench
