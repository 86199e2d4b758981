#include "algorithms/mechanisms/cluster_samples.hpp"

#include <cstdint>
#include <limits>
#include <random>

#include "algorithms/mechanisms/reservoir.hpp"

namespace kvbench {
namespace {

// The words of one counter-based stream, as the standard library's distributions expect them.
class Words {
 public:
  using result_type = std::uint32_t;
  Words(const CounterRng& random, Index token, Index member)
      : random_(random),
        token_(static_cast<std::uint32_t>(token)),
        member_(static_cast<std::uint32_t>(member)) {}

  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return std::numeric_limits<result_type>::max(); }
  result_type operator()() { return random_.words(token_, member_, ++round_)[0]; }

 private:
  const CounterRng& random_;
  std::uint32_t token_;
  std::uint32_t member_;
  std::uint32_t round_ = 0;
};

}  // namespace

SketchRow ClusterSamples::sample(Index token, Index copies, Index n) const {
  SketchRow row;
  row.token = copies > 0 ? static_cast<std::int32_t>(token) : -1;
  row.keeps_value = false;
  row.copies = static_cast<std::int32_t>(copies);
  row.w_den = n / static_cast<double>(t_) * copies;
  return row;
}

Index ClusterSamples::replaced_at(Index token, Index entry, Index n) const {
  return next_uniform(
      n, draw_.uniform53(static_cast<std::uint32_t>(token), static_cast<std::uint32_t>(entry)));
}

void ClusterSamples::open(Index token) {
  counts_.push_back(1);
  if (t_ > kOneByOne) {
    rows_.push_back({sketch_.add(sample(token, t_, 1))});
    return;
  }
  first_row_.push_back(sketch_.size());
  for (Index i = 0; i < t_; ++i) {
    sketch_.add(sample(token, 1, 1));
    replaced_at_.push_back(replaced_at(token, i, 1));
  }
}

void ClusterSamples::join(std::size_t cluster, Index token) {
  const Index n = ++counts_[cluster];
  if (t_ > kOneByOne) {
    join_thinning(cluster, token, n);
  } else {
    join_one_by_one(cluster, token, n);
  }
}

void ClusterSamples::join_one_by_one(std::size_t cluster, Index token, Index n) {
  for (Index i = 0; i < t_; ++i) {
    const Index place = first_row_[cluster] + i;
    Index& next = replaced_at_[cluster * t_ + i];
    if (next == n) {
      sketch_.replace(place, sample(token, 1, n));
      next = replaced_at(token, i, n);
    } else {
      sketch_.set_weights(place, 0.0, n / static_cast<double>(t_));
    }
  }
}

void ClusterSamples::join_thinning(std::size_t cluster, Index token, Index n) {
  Index replaced = 0;
  for (const Index place : rows_[cluster]) {
    const SketchRow& row = sketch_[place];
    if (row.token < 0) continue;
    Words words(draw_, token, row.token);
    const Index gone = std::binomial_distribution<Index>(row.copies, 1.0 / n)(words);
    replaced += gone;
    sketch_.replace(place, sample(row.token, row.copies - gone, n));
  }
  rows_[cluster].push_back(sketch_.add(sample(token, replaced, n)));
}

}  // namespace kvbench
