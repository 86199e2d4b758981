#include "kernels/score_stripe.hpp"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "core/canonical.hpp"

namespace kvbench::cpu {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();
constexpr Index kCacheBytes = 768 << 10;  // of e
constexpr Index kLeastRows = 6;           // rows of e: a multiple of this
constexpr Index kMostRows = 24;
constexpr int kRowsAtOnce = 3;  // sums that stay in registers
constexpr Index kTokensAtOnce = 256;
static_assert(kLeastRows % kRowsAtOnce == 0);

Index rows_at_once(Index stride) {
  const Index rows = kCacheBytes / (stride * static_cast<Index>(sizeof(double)));
  return std::clamp(rows / kLeastRows * kLeastRows, kLeastRows, kMostRows);
}

struct TokenRange {
  Index first;
  Index last;
};

// parts[k][r][lane] += sum_j e_rj w_kj over the tokens j of that lane.
template <int Rules>
void add_rows(const double* e, Index stride, TokenRange tokens, const double* const* weights,
              Index first_row, double* const* parts) {
  Lanes sums[kRowsAtOnce][Rules];
  for (int r = 0; r < kRowsAtOnce; ++r) {
    for (int k = 0; k < Rules; ++k) {
      sums[r][k] = Lanes::load(parts[k] + (first_row + r) * Lanes::kCount);
    }
  }
  for (Index j = tokens.first; j < tokens.last; j += Lanes::kCount) {
    Lanes w[Rules];
    for (int k = 0; k < Rules; ++k) w[k] = Lanes::load(weights[k] + j);
    for (int r = 0; r < kRowsAtOnce; ++r) {
      const Lanes x = Lanes::load(e + (first_row + r) * stride + j);
      for (int k = 0; k < Rules; ++k) sums[r][k] = Lanes::fma(x, w[k], sums[r][k]);
    }
  }
  for (int r = 0; r < kRowsAtOnce; ++r) {
    for (int k = 0; k < Rules; ++k) {
      sums[r][k].store(parts[k] + (first_row + r) * Lanes::kCount);
    }
  }
}

// sums[k][j] += sum_r e_rj factors[k][r].
template <int Rules>
void add_columns(const double* e, Index stride, TokenRange tokens, Index rows,
                 double* const* factors, double* const* sums) {
  constexpr int kPanels = PackedKeys::kStep / Lanes::kCount;
  for (Index j = tokens.first; j < tokens.last; j += PackedKeys::kStep) {
    Lanes total[Rules][kPanels];
    for (int k = 0; k < Rules; ++k) {
      for (int p = 0; p < kPanels; ++p) total[k][p] = Lanes::load(sums[k] + j + p * Lanes::kCount);
    }
    for (Index r = 0; r < rows; ++r) {
      Lanes x[kPanels];
      for (int p = 0; p < kPanels; ++p) x[p] = Lanes::load(e + r * stride + j + p * Lanes::kCount);
      for (int k = 0; k < Rules; ++k) {
        const Lanes a = Lanes::all(factors[k][r]);
        for (int p = 0; p < kPanels; ++p) total[k][p] = Lanes::fma(x[p], a, total[k][p]);
      }
    }
    for (int k = 0; k < Rules; ++k) {
      for (int p = 0; p < kPanels; ++p) total[k][p].store(sums[k] + j + p * Lanes::kCount);
    }
  }
}

// visit(tokens, k, how many rules from k on) over all tokens and rules: a few tokens at a time, so
// that their exponentials stay in the first cache for all rules.
template <class Visit>
void by_tokens_and_rules(Index tokens, std::size_t rules, const Visit& visit) {
  for (Index j = 0; j < tokens; j += kTokensAtOnce) {
    const TokenRange range{j, std::min(j + kTokensAtOnce, tokens)};
    std::size_t k = 0;
    for (; k + 2 <= rules; k += 2) visit(range, k, std::integral_constant<int, 2>());
    if (k < rules) visit(range, k, std::integral_constant<int, 1>());
  }
}

}  // namespace

void ScoreStripe::gather(RowRange rows, int g) {
  const StreamShape& shape = stream_.shape;
  begin_ = shape.first_visible(rows.first) / PackedKeys::kStep * PackedKeys::kStep;
  width_ = PackedKeys::whole_steps(rows.last - begin_);
  stride_ = width_ + Lanes::kCount;  // no power of two: rows would share cache sets
  const Index at_once = rows_at_once(stride_);
  e_.resize(static_cast<std::size_t>(at_once * stride_));
  const std::size_t rules = family_.rules.size();
  sums_memory_.assign(rules * static_cast<std::size_t>(width_), 0.0);
  factors_memory_.resize(rules * static_cast<std::size_t>(at_once));
  parts_memory_.resize(factors_memory_.size() * Lanes::kCount);
  weights_.resize(rules);
  sums_.resize(rules);
  factors_.resize(rules);
  parts_.resize(rules);
  for (std::size_t k = 0; k < rules; ++k) {
    const auto head = k * static_cast<std::size_t>(shape.group) + static_cast<std::size_t>(g);
    weights_[k] = family_.weights[head].data() + begin_;
    sums_[k] = sums_memory_.data() + k * static_cast<std::size_t>(width_);
    factors_[k] = factors_memory_.data() + k * static_cast<std::size_t>(at_once);
    parts_[k] = parts_memory_.data() + k * static_cast<std::size_t>(at_once * Lanes::kCount);
  }

  std::vector<const double*> queries;
  for (Index first = rows.first; first < rows.last; first += at_once) {
    const Index last = std::min(first + at_once, rows.last);
    const Index width = PackedKeys::whole_steps(last - begin_);
    queries.clear();
    for (Index i = first; i < last; ++i) queries.push_back(stream_.query(g, i));
    const Index start = begin_ - keys_.first();
    keys_.logits(shape, queries, start, start + width, e_.data(), stride_);
    for (Index i = first; i < last; ++i) {
      exponentials(i, g, e_.data() + (i - first) * stride_, width);
    }
    coefficients({first, last}, rows.last, width);
    add(last - first, width);
  }
  AlignedDoubles().swap(e_);
}

// x -> exp((x + noise) / temperature - max), 0 where the row does not see the token.
void ScoreStripe::exponentials(Index row, int g, double* x, Index width) const {
  const Index lo = stream_.shape.first_visible(row) - begin_;
  const Index hi = row + 1 - begin_;
  if (family_.noise != nullptr) {
    for (Index j = lo; j < hi; ++j) x[j] += family_.noise->draw(g, row, begin_ + j);
  }
  std::fill(x, x + lo, kNever);
  std::fill(x + hi, x + width, kNever);
  if (family_.temperature != 1.0) {
    const Lanes temperature = Lanes::all(family_.temperature);
    for (Index j = 0; j < width; j += Lanes::kCount)
      (Lanes::load(x + j) / temperature).store(x + j);
  }
  Lanes largest[2] = {Lanes::all(kNever), Lanes::all(kNever)};
  for (Index j = 0; j < width; j += 2 * Lanes::kCount) {
    largest[0] = Lanes::max(largest[0], Lanes::load(x + j));
    largest[1] = Lanes::max(largest[1], Lanes::load(x + j + Lanes::kCount));
  }
  const Lanes max = Lanes::all(Lanes::max(largest[0], largest[1]).largest());
  for (Index j = 0; j < width; j += Lanes::kCount) {
    canonical_exp(Lanes::load(x + j) - max).store(x + j);
  }
}

// a_ki of some rows of a stripe.
void ScoreStripe::coefficients(RowRange rows, Index stripe_last, Index width) {
  const Index count = rows.last - rows.first;
  std::fill(parts_memory_.begin(), parts_memory_.end(), 0.0);
  by_tokens_and_rules(width, weights_.size(), [&](TokenRange tokens, std::size_t k, auto rules) {
    // Rows past the last hold what was there before: their sums are not used.
    for (Index r = 0; r < count; r += kRowsAtOnce) {
      add_rows<rules>(e_.data(), stride_, tokens, &weights_[k], r, &parts_[k]);
    }
  });
  for (std::size_t k = 0; k < weights_.size(); ++k) {
    const ScoreRule& rule = *family_.rules[k];
    double power = 1.0;
    for (Index i = stripe_last - 1; i >= rows.last; --i) power *= rule.decay;
    for (Index r = count - 1; r >= 0; --r, power *= rule.decay) {
      factors_[k][r] = rule.gain * power / Lanes::load(parts_[k] + r * Lanes::kCount).sum();
    }
  }
}

void ScoreStripe::add(Index rows, Index width) {
  by_tokens_and_rules(width, weights_.size(), [&](TokenRange tokens, std::size_t k, auto rules) {
    add_columns<rules>(e_.data(), stride_, tokens, rows, &factors_[k], &sums_[k]);
  });
}

}  // namespace kvbench::cpu
