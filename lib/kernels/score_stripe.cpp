#include "kernels/score_stripe.hpp"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "numerics/canonical.hpp"
#include "numerics/lanes.hpp"

namespace kvbench {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();
constexpr Index kTileTokens = 256;
constexpr Index kStride = kTileTokens + Lanes::kCount;  // else rows would share cache sets
constexpr int kRowsAtOnce = 3;                          // sums that stay in registers
constexpr Index kMinRows = 6;                           // rows of e: a multiple of this
constexpr Index kMaxRows = 24;                          // where e stays in the second cache
constexpr std::size_t kQueriesAtOnce = 12;              // that stay in the first cache besides keys
constexpr Index kSecondCache = 768 << 10;               // bytes for e
constexpr Index kLastCache = 8 << 20;                   // bytes for keys, where others use it too
constexpr Index kAllTiles = 128 << 20;                  // bytes for e on all threads
static_assert(kTileTokens % PackedKeys::kStep == 0 && kMinRows % kRowsAtOnce == 0);
static_assert(kScoreStripeRows % kMinRows == 0);

Index tiles_of(Index tokens) { return (tokens + kTileTokens - 1) / kTileTokens; }

// parts[k][r][lane] += sum_j e_rj w_kj over the tokens j of that lane.
template <int Rules>
void add_rows(const double* e, Index tokens, const double* const* weights, Index first,
              Index first_row, double* const* parts) {
  Lanes sums[kRowsAtOnce][Rules];
  for (int r = 0; r < kRowsAtOnce; ++r) {
    for (int k = 0; k < Rules; ++k) {
      sums[r][k] = Lanes::load(parts[k] + (first_row + r) * Lanes::kCount);
    }
  }
  for (Index j = 0; j < tokens; j += Lanes::kCount) {
    Lanes w[Rules];
    for (int k = 0; k < Rules; ++k) w[k] = Lanes::load(weights[k] + first + j);
    for (int r = 0; r < kRowsAtOnce; ++r) {
      const Lanes x = Lanes::load(e + (first_row + r) * kStride + j);
      for (int k = 0; k < Rules; ++k) sums[r][k] = Lanes::fma(x, w[k], sums[r][k]);
    }
  }
  for (int r = 0; r < kRowsAtOnce; ++r) {
    for (int k = 0; k < Rules; ++k) {
      sums[r][k].store(parts[k] + (first_row + r) * Lanes::kCount);
    }
  }
}

// sums[k][first + j] += sum_r e_rj factors[k][r].
template <int Rules>
void add_columns(const double* e, Index tokens, Index rows, double* const* factors, Index first,
                 double* const* sums) {
  constexpr int kPanels = PackedKeys::kStep / Lanes::kCount;
  for (Index j = 0; j < tokens; j += PackedKeys::kStep) {
    Lanes total[Rules][kPanels];
    for (int k = 0; k < Rules; ++k) {
      for (int p = 0; p < kPanels; ++p) {
        total[k][p] = Lanes::load(sums[k] + first + j + p * Lanes::kCount);
      }
    }
    for (Index r = 0; r < rows; ++r) {
      Lanes x[kPanels];
      for (int p = 0; p < kPanels; ++p) x[p] = Lanes::load(e + r * kStride + j + p * Lanes::kCount);
      for (int k = 0; k < Rules; ++k) {
        const Lanes a = Lanes::all(factors[k][r]);
        for (int p = 0; p < kPanels; ++p) total[k][p] = Lanes::fma(x[p], a, total[k][p]);
      }
    }
    for (int k = 0; k < Rules; ++k) {
      for (int p = 0; p < kPanels; ++p) {
        total[k][p].store(sums[k] + first + j + p * Lanes::kCount);
      }
    }
  }
}

// visit(k, how many rules from k on) over all rules.
template <class Visit>
void by_rules(std::size_t rules, const Visit& visit) {
  std::size_t k = 0;
  for (; k + 2 <= rules; k += 2) visit(k, std::integral_constant<int, 2>());
  if (k < rules) visit(k, std::integral_constant<int, 1>());
}

Index first_token(const StreamShape& shape, RowRange rows) {
  return shape.first_visible(rows.first) / PackedKeys::kStep * PackedKeys::kStep;
}

}  // namespace

ScoreTiles::ScoreTiles(const StreamShape& shape, Index tokens, int threads)
    : key_bytes_(shape.d * static_cast<Index>(sizeof(double))), threads_(threads) {
  // Half as many tokens may need more rows.
  Index most = 0;
  for (Index t = PackedKeys::kStep; t <= tokens; t += PackedKeys::kStep) {
    most = std::max(most, tiles_of(t) * rows(t));
  }
  e_.resize(most * kStride);
}

Index ScoreTiles::rows(Index tokens) const {
  const Index row_bytes = tiles_of(tokens) * kStride * sizeof(double);
  const auto within = [&](Index bytes, Index most) {
    return std::clamp(bytes / row_bytes / kMinRows * kMinRows, kMinRows, most);
  };
  if (tokens * key_bytes_ <= kLastCache) return within(kSecondCache, kMaxRows);
  return within(kAllTiles / threads_, kScoreStripeRows);
}

struct ScoreStripe::Rows {
  Index first;
  Index last;
  Index width;      // tokens, whole steps
  Index tile_size;  // numbers
  double* e;

  Index count() const { return last - first; }
  // visit(first token of a tile, tokens, e) from the first tile on.
  template <class Visit>
  void each_tile(const Visit& visit) const {
    double* tile = e;
    for (Index j = 0; j < width; j += kTileTokens, tile += tile_size) {
      visit(j, std::min(kTileTokens, width - j), tile);
    }
  }
};

Index ScoreStripe::tokens(const StreamShape& shape, RowRange rows) {
  return PackedKeys::whole_steps(shape.visible_end(rows.last - 1) - first_token(shape, rows));
}

void ScoreStripe::gather(RowRange rows, int g, ScoreTiles& tiles) {
  const StreamShape& shape = stream_.shape;
  begin_ = first_token(shape, rows);
  sink_ = stream_.sink(g) / family_.temperature;
  const Index width = tokens(shape, rows);
  const Index at_once = tiles.rows(width);
  const std::size_t rules = family_.rules.size();
  sums_memory_.assign(rules * width, 0.0);
  factors_memory_.resize(rules * at_once);
  parts_memory_.resize(factors_memory_.size() * Lanes::kCount);
  largest_.resize(at_once * 2 * Lanes::kCount);
  weights_.resize(rules);
  sums_.resize(rules);
  factors_.resize(rules);
  parts_.resize(rules);
  for (std::size_t k = 0; k < rules; ++k) {
    const auto head = k * shape.heads_per_kv + g;
    weights_[k] = family_.weights[head].data() + begin_;
    sums_[k] = sums_memory_.data() + k * width;
    factors_[k] = factors_memory_.data() + k * at_once;
    parts_[k] = parts_memory_.data() + k * (at_once * Lanes::kCount);
  }
  for (Index first = rows.first; first < rows.last; first += at_once) {
    const Index last = std::min(first + at_once, rows.last);
    const Index width_of_rows = PackedKeys::whole_steps(shape.visible_end(last - 1) - begin_);
    const Rows at{first, last, width_of_rows, at_once * kStride, tiles.e()};
    logits(at, g);
    exponentials(at);
    coefficients(at, rows.last);
    add(at);
  }
}

// y = (x + noise) / temperature, -inf if the row does not see the token; its maxima.
void ScoreStripe::logits(const Rows& at, int g) {
  std::vector<std::vector<const double*>> queries;
  for (Index i = at.first; i < at.last; ++i) {
    if (queries.empty() || queries.back().size() == kQueriesAtOnce) queries.emplace_back();
    queries.back().push_back(stream_.query(g, i));
  }
  const Index start = begin_ - keys_.first();
  const Lanes temperature = Lanes::all(family_.temperature);
  std::fill(largest_.begin(), largest_.end(), sink_);
  at.each_tile([&](Index first, Index tokens, double* tile) {
    double* out = tile;
    for (const std::vector<const double*>& some : queries) {
      keys_.logits(stream_.shape, some, start + first, start + first + tokens, out, kStride);
      out += std::ssize(some) * kStride;
    }
    for (Index i = at.first; i < at.last; ++i) {
      double* y = tile + (i - at.first) * kStride;
      const Index lo =
          std::clamp<Index>(stream_.shape.first_visible(i) - begin_ - first, 0, tokens);
      const Index hi = std::clamp<Index>(stream_.shape.visible_end(i) - begin_ - first, 0, tokens);
      add_alibi(stream_, g, i, begin_ + first + lo, begin_ + first + hi, y + lo);
      if (family_.noise != nullptr) {
        for (Index j = lo; j < hi; ++j) {
          y[j] += family_.noise->draw(g, i, begin_ + first + j);
        }
      }
      std::fill(y, y + lo, kNever);
      std::fill(y + hi, y + tokens, kNever);
      if (family_.temperature != 1.0) {
        for (Index j = 0; j < tokens; j += Lanes::kCount) {
          (Lanes::load(y + j) / temperature).store(y + j);
        }
      }
      double* largest = largest_.data() + (i - at.first) * 2 * Lanes::kCount;
      Lanes max[2] = {Lanes::load(largest), Lanes::load(largest + Lanes::kCount)};
      for (Index j = 0; j < tokens; j += 2 * Lanes::kCount) {
        max[0] = Lanes::max(max[0], Lanes::load(y + j));
        max[1] = Lanes::max(max[1], Lanes::load(y + j + Lanes::kCount));
      }
      max[0].store(largest);
      max[1].store(largest + Lanes::kCount);
    }
  });
  for (Index r = 0; r < at.count(); ++r) {
    double* largest = largest_.data() + r * 2 * Lanes::kCount;
    largest[0] = Lanes::max(Lanes::load(largest), Lanes::load(largest + Lanes::kCount)).largest();
  }
}

// y -> exp(y - max), and the parts of the normalisers.
void ScoreStripe::exponentials(const Rows& at) {
  std::fill(parts_memory_.begin(), parts_memory_.end(), 0.0);
  at.each_tile([&](Index first, Index tokens, double* tile) {
    for (Index r = 0; r < at.count(); r += kRowsAtOnce) {
      // Rows past the last hold what was there before: their sums are not used.
      for (Index s = r; s < std::min(r + kRowsAtOnce, at.count()); ++s) {
        double* y = tile + s * kStride;
        const Lanes max = Lanes::all(largest_[s * 2 * Lanes::kCount]);
        for (Index j = 0; j < tokens; j += Lanes::kCount) {
          canonical_exp(Lanes::load(y + j) - max).store(y + j);
        }
      }
      by_rules(weights_.size(), [&](std::size_t k, auto rules) {
        add_rows<rules>(tile, tokens, &weights_[k], first, r, &parts_[k]);
      });
    }
  });
}

// a_ki of some rows of a stripe.
void ScoreStripe::coefficients(const Rows& at, Index stripe_last) {
  for (std::size_t k = 0; k < weights_.size(); ++k) {
    const ScoreRule& rule = *family_.rules[k];
    double power = 1.0;
    for (Index i = stripe_last - 1; i >= at.last; --i) power *= rule.decay;
    for (Index r = at.count() - 1; r >= 0; --r, power *= rule.decay) {
      double sum = Lanes::load(parts_[k] + r * Lanes::kCount).sum();
      if (stream_.shape.sinks) {
        sum += canonical_exp(sink_ - largest_[r * 2 * Lanes::kCount]);
      }
      factors_[k][r] = rule.gain * power / sum;
    }
  }
}

void ScoreStripe::add(const Rows& at) {
  at.each_tile([&](Index first, Index tokens, const double* tile) {
    by_rules(weights_.size(), [&](std::size_t k, auto rules) {
      add_columns<rules>(tile, tokens, at.count(), &factors_[k], first, &sums_[k]);
    });
  });
}

}  // namespace kvbench
