#include "algorithms/mechanisms/hashed_keys.hpp"

#include <algorithm>

#include "numerics/canonical.hpp"
#include "numerics/counter_rng.hpp"
#include "numerics/random_matrix.hpp"

namespace kvbench {

HashedKeys::HashedKeys(const CellContext& context, Index bits, std::string_view purpose)
    : stream_(context.stream),
      planes_(normal_matrix(CounterRng(context.seed, context.stream.id.hash(), purpose), bits,
                            context.stream.shape.d)) {}

std::uint32_t HashedKeys::number_of(const double* vector) const {
  const Index d = stream_.shape.d;
  std::uint32_t code = 0;
  for (Index bit = 0; bit * d < std::ssize(planes_); ++bit) {
    const bool above = canonical_dot(vector, planes_.data() + bit * d, d) > 0.0;
    code |= static_cast<std::uint32_t>(above) << bit;
  }
  return code ^ (code >> 1);
}

void HashedKeys::add(Index first, Index last) {
  const Index before = tokens();
  for (Index token = first; token < last; ++token) {
    sorted_.emplace_back(number_of(stream_.keys.row(token)), static_cast<std::int32_t>(token));
  }
  std::sort(sorted_.begin() + before, sorted_.end());
  std::inplace_merge(sorted_.begin(), sorted_.begin() + before, sorted_.end());
}

std::vector<Index> HashedKeys::around(const double* query, Index block) const {
  const std::uint32_t number = number_of(query);
  const auto below = [](const auto& entry, std::uint32_t of) { return entry.first < of; };
  const Index from =
      std::lower_bound(sorted_.begin(), sorted_.end(), number, below) - sorted_.begin();
  const Index to =
      std::lower_bound(sorted_.begin(), sorted_.end(), number + 1, below) - sorted_.begin();
  const Index count = std::min(block, tokens());
  const Index place = from + (to - from) / 2;
  const Index first = std::clamp<Index>(place - count / 2, 0, tokens() - count);
  std::vector<Index> out;
  for (Index k = first; k < first + count; ++k) {
    out.push_back(sorted_[k].second);
  }
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace kvbench
