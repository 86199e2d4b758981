#include "sketch/weighted_values.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "core/lanes.hpp"

namespace kvbench {
namespace {

constexpr Index kQuestionsAtOnce = 6;  // accumulators that fit into the registers of AVX2
constexpr Index kTokensAtOnce = 256;   // value rows that stay in cache for all questions

// out[q][0..8) += sum over `count` tokens of c[i][q] v[i][0..8), ascending.
void add_lane(ConstMatrix values, const std::int32_t* tokens, Index count, Index column,
              const double* c, Index stride, double* out, Index out_stride) {
  Lanes sums[kQuestionsAtOnce];
  for (int q = 0; q < kQuestionsAtOnce; ++q) sums[q] = Lanes::load(out + q * out_stride);
  for (Index i = 0; i < count; ++i) {
    const Lanes v = Lanes::load(values.row(tokens[i]) + column);
    for (int q = 0; q < kQuestionsAtOnce; ++q) {
      sums[q] = Lanes::fma(Lanes::all(c[i * stride + q]), v, sums[q]);
    }
  }
  for (int q = 0; q < kQuestionsAtOnce; ++q) sums[q].store(out + q * out_stride);
}

// The same for columns too few for a whole lane.
void add_tail(ConstMatrix values, const std::int32_t* tokens, Index count, Index column,
              const double* c, Index stride, double* out, Index out_stride) {
  for (Index k = column; k < values.cols; ++k) {
    for (Index q = 0; q < kQuestionsAtOnce; ++q) {
      double sum = out[q * out_stride + k - column];
      for (Index i = 0; i < count; ++i) {
        sum = std::fma(c[i * stride + q], values(tokens[i], k), sum);
      }
      out[q * out_stride + k - column] = sum;
    }
  }
}

}  // namespace

WeightedValues::WeightedValues(ConstMatrix values)
    : values_(values), place_of_(static_cast<std::size_t>(values.rows), -1) {}

void WeightedValues::add(const std::int32_t* tokens, const double* c, Index count) {
  std::vector<Entry> entries;
  if (!spare_.empty()) {
    entries = std::move(spare_.back());
    spare_.pop_back();
    entries.clear();
  }
  entries.reserve(static_cast<std::size_t>(count));
  for (Index i = 0; i < count; ++i) {
    if (c[i] != 0.0) entries.push_back({tokens[i], c[i]});
  }
  entries_.push_back(std::move(entries));
}

void WeightedValues::collect_tokens() {
  tokens_.clear();
  for (const auto& entries : entries_) {
    for (const Entry& entry : entries) {
      std::int32_t& place = place_of_[static_cast<std::size_t>(entry.token)];
      if (place >= 0) continue;
      place = 0;
      tokens_.push_back(entry.token);
    }
  }
  std::sort(tokens_.begin(), tokens_.end());
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    place_of_[static_cast<std::size_t>(tokens_[i])] = static_cast<std::int32_t>(i);
  }
}

void WeightedValues::sums(std::vector<double>& out) {
  collect_tokens();
  const Index count = static_cast<Index>(tokens_.size());
  const Index asked = questions();
  const Index stride = (asked + kQuestionsAtOnce - 1) / kQuestionsAtOnce * kQuestionsAtOnce;
  coefficients_.assign(static_cast<std::size_t>(count * stride), 0.0);
  for (Index q = 0; q < asked; ++q) {
    for (const Entry& entry : entries_[static_cast<std::size_t>(q)]) {
      const Index place = place_of_[static_cast<std::size_t>(entry.token)];
      coefficients_[static_cast<std::size_t>(place * stride + q)] = entry.c;
    }
  }
  for (const std::int32_t token : tokens_) place_of_[static_cast<std::size_t>(token)] = -1;

  const Index dv = values_.cols;
  sums_.assign(static_cast<std::size_t>(stride * dv), 0.0);
  for (Index first = 0; first < count; first += kTokensAtOnce) {
    const Index some = std::min(kTokensAtOnce, count - first);
    for (Index q = 0; q < stride; q += kQuestionsAtOnce) {
      const double* c = coefficients_.data() + first * stride + q;
      double* sums = sums_.data() + q * dv;
      Index k = 0;
      for (; k + Lanes::kCount <= dv; k += Lanes::kCount) {
        add_lane(values_, tokens_.data() + first, some, k, c, stride, sums + k, dv);
      }
      add_tail(values_, tokens_.data() + first, some, k, c, stride, sums + k, dv);
    }
  }
  out.assign(sums_.begin(), sums_.begin() + asked * dv);
  spare_.insert(spare_.end(), std::make_move_iterator(entries_.begin()),
                std::make_move_iterator(entries_.end()));
  entries_.clear();
}

}  // namespace kvbench
