#include <algorithm>
#include <cmath>
#include <memory>
#include <mutex>
#include <utility>

#include "kernels/cpu_kernels.hpp"
#include "kernels/score_stripe.hpp"
#include "numerics/canonical.hpp"
#include "system/parallel.hpp"

namespace kvbench {
namespace {

constexpr Index kTasksPerThread = 8;       // between two joins, fewer where their sums take more
constexpr Index kWaitingBytes = 16 << 20;  // than this
constexpr std::size_t kRulesAtOnce = 64;

// w_j = exp(noise / temperature) per query head, 1 if the rule has no such weights.
std::vector<AlignedDoubles> noise_factors(const StreamShape& shape, RowRange tokens, Index end,
                                          const ScoreRule& rule) {
  std::vector<AlignedDoubles> weights;
  for (int g = 0; g < shape.heads_per_kv; ++g) {
    AlignedDoubles& head = weights.emplace_back(static_cast<std::size_t>(end), 1.0);
    if (!weighs_tokens(rule)) continue;
    for (Index j = tokens.first; j < tokens.last; ++j) {
      head[j] = canonical_exp(rule.noise.draw(g, 0, j) / rule.temperature);
    }
  }
  return weights;
}

// A pool with as many tiles as threads ask for at the same time.
class TilesPool {
 public:
  TilesPool(const StreamShape& shape, Index tokens) : shape_(shape), tokens_(tokens) {}

  std::unique_ptr<ScoreTiles> take() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!free_.empty()) {
        std::unique_ptr<ScoreTiles> tiles = std::move(free_.back());
        free_.pop_back();
        return tiles;
      }
    }
    return std::make_unique<ScoreTiles>(shape_, tokens_, thread_count());
  }
  void give_back(std::unique_ptr<ScoreTiles> tiles) {
    const std::lock_guard<std::mutex> lock(mutex_);
    free_.push_back(std::move(tiles));
  }

 private:
  const StreamShape& shape_;
  Index tokens_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<ScoreTiles>> free_;
};

// One family of rules over all rows.
class FamilySums {
 public:
  FamilySums(const Stream& stream, const PackedKeys& keys, RowRange range, RuleFamily family)
      : stream_(stream), keys_(keys), range_(range), family_(std::move(family)) {
    const StreamShape& shape = stream.shape;
    const RowRange tokens{shape.first_visible(range.first), shape.visible_end(range.last - 1)};
    for (const ScoreRule* rule : family_.rules) {
      for (auto& head : noise_factors(shape, tokens, keys.first() + keys.padded(), *rule)) {
        family_.weights.push_back(std::move(head));
      }
      sums_.emplace_back(static_cast<std::size_t>(shape.heads_per_kv),
                         std::vector<double>(shape.tokens, 0.0));
    }
  }

  // Stripes in order, some at a time; each joins the sums after those before it.
  std::vector<ScoreSums> gather() {
    const Index heads_per_kv = stream_.shape.heads_per_kv;
    const Index first_stripe = range_.first / kScoreStripeRows;
    const Index stripes = (range_.last + kScoreStripeRows - 1) / kScoreStripeRows - first_stripe;
    const Index tasks = stripes * heads_per_kv;
    const Index bytes =
        (family_.rules.size() * sizeof(double)) * stream_.shape.visible_end(range_.last - 1);
    const Index at_once =
        thread_count() *
        std::clamp<Index>(kWaitingBytes / (bytes * thread_count()), 1, kTasksPerThread);
    const auto rows_of = [&](Index task) {
      const Index first = (first_stripe + task / heads_per_kv) * kScoreStripeRows;
      return RowRange{std::max(first, range_.first),
                      std::min(first + kScoreStripeRows, range_.last)};
    };
    Index widest = 0;
    for (Index task = 0; task < tasks; task += heads_per_kv) {
      widest = std::max(widest, ScoreStripe::tokens(stream_.shape, rows_of(task)));
    }
    TilesPool pool(stream_.shape, widest);
    std::vector<ScoreStripe> done(std::min(at_once, tasks), ScoreStripe(stream_, keys_, family_));
    for (Index from = 0; from < tasks; from += at_once) {
      const Index count = std::min(at_once, tasks - from);
      parallel_for(count, [&](Index i) {
        const Index task = from + count - 1 - i;  // longest first
        std::unique_ptr<ScoreTiles> tiles = pool.take();
        done[count - 1 - i].gather(rows_of(task), static_cast<int>(task % heads_per_kv), *tiles);
        pool.give_back(std::move(tiles));
      });
      for (Index i = 0; i < count; ++i) {
        join(done[i], rows_of(from + i), (from + i) % heads_per_kv);
      }
    }
    weigh();
    for (ScoreSums& sums : sums_) spread_overflow(sums);
    return std::move(sums_);
  }

 private:
  void join(const ScoreStripe& stripe, RowRange rows, std::size_t g) {
    const Index first_token = stream_.shape.first_visible(rows.first);
    for (std::size_t k = 0; k < family_.rules.size(); ++k) {
      double decay = 1.0;
      for (Index i = rows.first; i < rows.last; ++i) decay *= family_.rules[k]->decay;
      const double* p = stripe.sums(k) + (first_token - stripe.begin());
      double* f = sums_[k][g].data() + first_token;
      const Index seen = stream_.shape.visible_end(rows.last - 1) - first_token;
      for (Index j = 0; j < seen; ++j) f[j] = std::fma(decay, f[j], p[j]);
    }
  }

  void weigh() {
    const std::size_t heads_per_kv = sums_.empty() ? 0 : sums_.front().size();
    const Index end = stream_.shape.visible_end(range_.last - 1);
    for (std::size_t k = 0; k < family_.rules.size(); ++k) {
      if (!weighs_tokens(*family_.rules[k])) continue;
      for (std::size_t g = 0; g < heads_per_kv; ++g) {
        for (Index j = 0; j < end; ++j) {
          const std::size_t at = j;
          sums_[k][g][at] *= family_.weights[k * heads_per_kv + g][at];
        }
      }
    }
  }

  const Stream& stream_;
  const PackedKeys& keys_;
  RowRange range_;
  RuleFamily family_;
  std::vector<ScoreSums> sums_;  // [K]
};

// The rules that share y with rules[first], which is not done yet.
RuleFamily family_of(const std::vector<ScoreRule>& rules, std::size_t first,
                     std::vector<std::size_t>& members) {
  const auto joins_none = [](const ScoreRule& rule) {
    return !rule.noise.is_none() && !weighs_tokens(rule);
  };
  RuleFamily family;
  family.temperature = rules[first].temperature;
  if (joins_none(rules[first])) family.noise = &rules[first].noise;
  for (std::size_t k = first; k < rules.size(); ++k) {
    const bool together = rules[k].temperature == family.temperature && family.noise == nullptr &&
                          !joins_none(rules[k]);
    if (k != first && !together) continue;
    if (members.size() == kRulesAtOnce) break;
    members.push_back(k);
    family.rules.push_back(&rules[k]);
  }
  return family;
}

}  // namespace

std::vector<ScoreSums> CpuKernels::score_sums_by(const Stream& stream, Index first, Index last,
                                                 const std::vector<ScoreRule>& rules) const {
  const std::size_t heads_per_kv = stream.shape.heads_per_kv;
  std::vector<ScoreSums> out(rules.size());
  if (last <= first) {
    const std::vector<double> zeros(stream.shape.tokens, 0.0);
    for (ScoreSums& sums : out) sums.assign(heads_per_kv, zeros);
    return out;
  }
  const Index begin = stream.shape.first_visible(first) / PackedKeys::kStep * PackedKeys::kStep;
  const PackedKeys keys(stream.keys, begin, stream.shape.visible_end(last - 1));
  for (std::size_t k = 0; k < rules.size(); ++k) {
    if (!out[k].empty()) continue;
    std::vector<std::size_t> members;
    FamilySums family(stream, keys, {first, last}, family_of(rules, k, members));
    std::vector<ScoreSums> sums = family.gather();
    for (std::size_t m = 0; m < members.size(); ++m) out[members[m]] = std::move(sums[m]);
  }
  return out;
}

}  // namespace kvbench
