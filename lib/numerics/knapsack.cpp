#include "numerics/knapsack.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace kvbench {
namespace {

using Items = std::vector<std::vector<KnapsackChoice>>;

constexpr double kRounding = 1e-9;  // relative room for rounding in bounds

// The choice of least loss + price size, of equals the smallest.
const KnapsackChoice& best_at(const std::vector<KnapsackChoice>& choices, double price) {
  const auto cost = [price](const KnapsackChoice& c) { return c.loss + price * c.size; };
  return *std::min_element(choices.begin(), choices.end(), [&](const auto& a, const auto& b) {
    return cost(a) != cost(b) ? cost(a) < cost(b) : a.size < b.size;
  });
}

struct Priced {
  double price = 0.0;
  double loss = std::numeric_limits<double>::infinity();  // loss of a solution that fits
};

// A solution by one price of bytes for all items, as low as fits.
Priced priced(const Items& items, Index capacity) {
  Priced best;
  const auto fits = [&](double price) {
    Index size = 0;
    double loss = 0.0;
    for (const auto& choices : items) {
      const KnapsackChoice& choice = best_at(choices, price);
      size += choice.size;
      loss += choice.loss;
    }
    if (size <= capacity && loss < best.loss) best.loss = loss;
    return size <= capacity;
  };
  if (fits(0.0)) return best;
  double low = 0.0;
  double high = 1e-12;
  while (!fits(high) && high < 1e300) low = high, high *= 16.0;
  for (int step = 0; step < 100; ++step) {
    const double middle = 0.5 * (low + high);
    (fits(middle) ? high : low) = middle;
  }
  best.price = high;
  return best;
}

// A sum of the first items' choices.
struct Partial {
  Index size = 0;
  double loss = 0.0;
  std::uint32_t before = 0;  // place among the sums of one item less
  std::uint32_t choice = 0;
};

// Without those that another beats; ascending sizes, falling losses.
void drop_beaten(std::vector<Partial>& sums) {
  std::stable_sort(sums.begin(), sums.end(), [](const Partial& a, const Partial& b) {
    return a.size != b.size ? a.size < b.size : a.loss < b.loss;
  });
  std::size_t kept = 0;
  for (const Partial& sum : sums) {
    if (kept == 0 || sum.loss < sums[kept - 1].loss) sums[kept++] = sum;
  }
  sums.resize(kept);
}

}  // namespace

std::optional<std::vector<std::size_t>> least_loss(const Items& items, Index capacity) {
  const Priced known = priced(items, capacity);
  // Sums over the items from one on: of their least sizes, and of their least loss + price size.
  std::vector<Index> size_left(items.size() + 1, 0);
  std::vector<double> cost_left(items.size() + 1, 0.0);
  double scale = 0.0;
  for (std::size_t i = items.size(); i-- > 0;) {
    const auto smaller = [](const auto& a, const auto& b) { return a.size < b.size; };
    size_left[i] =
        size_left[i + 1] + std::min_element(items[i].begin(), items[i].end(), smaller)->size;
    const KnapsackChoice& best = best_at(items[i], known.price);
    cost_left[i] = cost_left[i + 1] + best.loss + known.price * best.size;
    for (const KnapsackChoice& choice : items[i]) scale += std::fabs(choice.loss);
  }
  if (size_left[0] > capacity) return std::nullopt;
  const double room = kRounding * (scale + known.price * capacity);
  std::vector<std::vector<Partial>> sums = {{Partial{}}};
  for (std::size_t i = 0; i < items.size(); ++i) {
    std::vector<Partial>& next = sums.emplace_back();
    const std::vector<Partial>& last = sums[i];
    for (std::size_t p = 0; p < last.size(); ++p) {
      for (std::size_t c = 0; c < items[i].size(); ++c) {
        const Partial sum{last[p].size + items[i][c].size, last[p].loss + items[i][c].loss,
                          static_cast<std::uint32_t>(p), static_cast<std::uint32_t>(c)};
        if (sum.size + size_left[i + 1] > capacity) continue;
        const double bound = sum.loss + cost_left[i + 1] - known.price * (capacity - sum.size);
        if (!(bound > known.loss + room)) next.push_back(sum);
      }
    }
    drop_beaten(next);
  }
  std::vector<std::size_t> chosen(items.size());
  std::size_t at = sums.back().size() - 1;  // the largest size that is not beaten
  for (std::size_t i = items.size(); i-- > 0;) {
    const Partial& sum = sums[i + 1][at];
    chosen[i] = sum.choice;
    at = sum.before;
  }
  return chosen;
}

}  // namespace kvbench
