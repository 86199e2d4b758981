#include "sketch/weights_by_token.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

namespace kvbench {
namespace {

Index groups_of(Index tokens) { return (tokens + Lanes::kCount - 1) / Lanes::kCount; }

std::vector<double> zeros(Index tokens) {
  return std::vector<double>(groups_of(tokens) * Lanes::kCount, 0.0);
}

// sum + low grows by x, low takes what rounding takes from the sum (Knuth's two-sum).
void add_exactly(double x, double& sum, double& low) {
  const double grown = sum + x;
  const double part = grown - sum;
  low += (sum - (grown - part)) + (x - part);
  sum = grown;
}

std::size_t group_of(std::size_t token) { return token / Lanes::kCount; }

// Less than any w ln(w).
constexpr double kNoLogarithm = -std::numeric_limits<double>::infinity();

bool is_own(const SketchRow& row) { return row.own_key >= 0 || row.own_value >= 0; }

}  // namespace

void WeightsByToken::Groups::settle() {
  if (!more_) return;
  list_.clear();
  for (std::size_t w = 0; w < bits_.size(); ++w) {
    for (std::uint64_t bits = bits_[w]; bits != 0; bits &= bits - 1) {
      list_.push_back(static_cast<std::int32_t>(64 * w) + std::countr_zero(bits));
    }
  }
  more_ = false;
}

void WeightsByToken::Groups::clear() {
  for (const std::int32_t g : list_) bits_[static_cast<std::size_t>(g) / 64] = 0;
  list_.clear();
  more_ = false;
}

WeightsByToken::WeightsByToken(Index tokens, int head)
    : head_(head),
      den_(zeros(tokens)),
      num_(den_),
      plain_(den_),
      scaled_(den_),
      scaled_low_(den_),
      log_(den_),
      kept_(den_),
      groups_(groups_of(tokens)),
      value_groups_(groups_of(tokens)),
      first_(tokens, -1) {}

void WeightsByToken::take(const Sketch& sketch) {
  const auto part_of_scale = [&] { return is_factored() ? 1.0 : sketch.numerator_scale; };
  if (sketch.changes().now() == taken_ && part_of_scale() == scale_) {
    factor_ = is_factored() ? sketch.numerator_scale : 1.0;
    return;
  }
  ++version_;
  const std::vector<std::int32_t>* changes = sketch.changes().since(taken_);
  const bool can_follow = changes != nullptr && own_rows_.empty();
  const bool was_linked = linked_;
  followed_ = can_follow && was_linked && sum_changed(sketch, *changes, taken_.length);
  if (!followed_) {
    linked_ = can_follow && !was_linked;
    if (linked_) link_all(sketch);
    sum_all(sketch);
  }
  groups_.settle();
  value_groups_.settle();
  rescaled_ = part_of_scale() != scale_;
  scale_ = part_of_scale();
  factor_ = is_factored() ? sketch.numerator_scale : 1.0;
  const auto scale = [&](std::size_t j) {
    num_[j] = std::fma(scaled_[j] + scaled_low_[j], scale_, plain_[j]);
  };
  if (!followed_ || rescaled_) {
    for (const std::int32_t g : value_groups_.list()) {
      const auto first = static_cast<std::size_t>(g) * Lanes::kCount;
      for (std::size_t j = first; j < first + Lanes::kCount; ++j) scale(j);
    }
  } else {
    for (const std::int32_t token : dirty_) scale(static_cast<std::size_t>(token));
  }
  taken_ = sketch.changes().now();
}

std::optional<WeightEntry> WeightsByToken::entry(std::int32_t token) const {
  const std::size_t j = token;
  if (den_[j] == 0.0 && num_[j] == 0.0 && kept_[j] == 0.0) return std::nullopt;
  return WeightEntry{num_[j], den_[j], log_[j], token, kept_[j] != 0.0};
}

void WeightsByToken::list(std::vector<WeightEntry>& out) const {
  out.clear();
  for (const std::int32_t g : groups_.list()) {
    const std::int32_t first = g * Lanes::kCount;
    for (std::int32_t token = first; token < first + Lanes::kCount; ++token) {
      if (const auto weight = entry(token)) out.push_back(*weight);
    }
  }
}

WeightsByToken::Common WeightsByToken::update(std::vector<WeightEntry>& list) const {
  Common common;
  const auto dropped = std::find_if(list.begin(), list.end(), [&](const WeightEntry& weight) {
    return entry(weight.token).has_value();
  });
  common.dropped = dropped - list.begin();
  list.erase(list.begin(), dropped);
  auto same = std::ssize(list);
  for (const std::int32_t token : dirty_) {
    const auto place = std::lower_bound(
        list.begin(), list.end(), token,
        [](const WeightEntry& weight, std::int32_t other) { return weight.token < other; });
    const bool is_listed = place != list.end() && place->token == token;
    const auto weight = entry(token);
    if (is_listed ? weight == *place : !weight) continue;
    same = std::min<Index>(same, place - list.begin());
    if (!weight) {
      list.erase(place);
    } else if (is_listed) {
      *place = *weight;
    } else {
      list.insert(place, *weight);
    }
  }
  if (rescaled_ && !rescale(list, same)) {
    this->list(list);
    return {};
  }
  common.same = same;
  return common;
}

// Numerators under the new scale; `same` is at most where the first one differs. Whether the same
// tokens weigh anything as before.
bool WeightsByToken::rescale(std::vector<WeightEntry>& list, Index& same) const {
  auto weighted = weighted_.begin();
  const auto appears_before = [&](std::int32_t token) {
    for (; weighted != weighted_.end() && *weighted < token; ++weighted) {
      if (entry(*weighted)) return true;
    }
    if (weighted != weighted_.end() && *weighted == token) ++weighted;
    return false;
  };
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (appears_before(list[i].token) || !entry(list[i].token)) return false;
    const double num = num_[list[i].token];
    if (list[i].num == num) continue;
    same = std::min(same, static_cast<Index>(i));
    list[i].num = num;
  }
  return !appears_before(std::numeric_limits<std::int32_t>::max());
}

void WeightsByToken::forget() {
  for (const std::int32_t g : groups_.list()) {
    const auto first = static_cast<std::ptrdiff_t>(g) * Lanes::kCount;
    for (auto* all : {&den_, &num_, &plain_, &scaled_, &scaled_low_, &log_, &kept_}) {
      std::fill_n(all->begin() + first, Lanes::kCount, 0.0);
    }
  }
  groups_.clear();
  value_groups_.clear();
  own_rows_.clear();
  weighted_.clear();
  plain_tokens_ = 0;
}

void WeightsByToken::add(const SketchRow& row) {
  const std::size_t token = row.token;
  groups_.add(group_of(token));
  den_[token] += row.w_den;
  if (row.own_value >= 0) return;
  if (row.w_num != 0.0 || row.keeps_value) value_groups_.add(group_of(token));
  if (row.scaled) {
    add_exactly(row.w_num, scaled_[token], scaled_low_[token]);
  } else {
    plain_[token] += row.w_num;
  }
  if (row.keeps_value) kept_[token] = 1.0;
}

void WeightsByToken::finish(std::size_t token) {
  const double w = den_[token];
  if (w != last_weight_) {
    last_weight_ = w;
    last_log_ = w > 0.0 ? w * std::log(w) : w == 0.0 ? 0.0 : kNoLogarithm;
  }
  log_[token] = last_log_;
}

void WeightsByToken::sum_all(const Sketch& sketch) {
  forget();
  for (const SketchRow& row : sketch.rows()) {
    if (row.is_empty() || !reads(row)) continue;
    if (row.own_key < 0) add(row);
    if (is_own(row)) {
      own_rows_.push_back({row.token, row.own_key, row.own_value,
                           row.scaled ? row.w_num * sketch.numerator_scale : row.w_num,
                           row.own_key < 0 ? 0.0 : row.w_den, row.feature});
    }
  }
  groups_.settle();
  for (const std::int32_t g : groups_.list()) {
    const auto first = static_cast<std::size_t>(g) * Lanes::kCount;
    for (std::size_t j = first; j < first + Lanes::kCount; ++j) {
      finish(j);
      if (is_weighted(j)) weighted_.push_back(static_cast<std::int32_t>(j));
      if (plain_[j] != 0.0) ++plain_tokens_;
    }
  }
}

void WeightsByToken::link_all(const Sketch& sketch) {
  std::fill(first_.begin(), first_.end(), -1);
  const std::vector<SketchRow>& rows = sketch.rows();
  ids_.resize(rows.size());
  std::iota(ids_.begin(), ids_.end(), 0);
  token_of_.assign(rows.size(), -1);
  next_.assign(rows.size(), -1);
  for (Index p = sketch.size() - 1; p >= 0; --p)
    link(static_cast<std::int32_t>(p), sketch[p].token);
  linked_ = true;
}

void WeightsByToken::link(std::int32_t id, std::int32_t token) {
  const std::size_t at = id;
  token_of_[at] = token;
  if (token < 0) return;
  std::int32_t* from = &first_[token];
  while (*from >= 0 && *from < id) from = &next_[*from];
  next_[at] = *from;
  *from = id;
}

void WeightsByToken::unlink(std::int32_t id) {
  const std::size_t at = id;
  if (token_of_[at] < 0) return;
  std::int32_t* from = &first_[token_of_[at]];
  while (*from != id) from = &next_[*from];
  *from = next_[at];
  token_of_[at] = -1;
}

Index WeightsByToken::position_of(std::int32_t id) const {
  if (ids_.empty() || id < ids_.front()) return -1;
  // The place is this one if rows were erased at the beginning alone.
  const std::size_t likely = id - ids_.front();
  if (likely < ids_.size() && ids_[likely] == id) return likely;
  const auto place = std::lower_bound(ids_.begin(), ids_.end(), id);
  return place != ids_.end() && *place == id ? place - ids_.begin() : -1;
}

// Numbers of rows, in the order of their arrival and removal.
void WeightsByToken::follow(const std::vector<std::int32_t>& positions, std::size_t first) {
  dirty_.clear();
  touched_.clear();
  for (std::size_t c = first; c < positions.size(); ++c) {
    if (positions[c] < 0) {
      const auto place = ids_.begin() + (-1 - positions[c]);
      const std::int32_t token = token_of_[*place];
      if (token >= 0) dirty_.push_back(token);
      unlink(*place);
      ids_.erase(place);
      continue;
    }
    const std::size_t p = positions[c];
    if (p == ids_.size()) {
      ids_.push_back(static_cast<std::int32_t>(token_of_.size()));
      token_of_.push_back(-1);
      next_.push_back(-1);
    }
    touched_.push_back(ids_[p]);
  }
}

bool WeightsByToken::sum_changed(const Sketch& sketch, const std::vector<std::int32_t>& positions,
                                 std::size_t first) {
  follow(positions, first);
  // Numbers of rows that went are not used again.
  constexpr std::size_t kSpare = 1024;
  if (token_of_.size() > 2 * ids_.size() + kSpare) return false;
  for (const std::int32_t id : touched_) {
    const Index p = position_of(id);
    if (p < 0) continue;
    const SketchRow& row = sketch[p];
    if (is_own(row)) return false;
    const std::int32_t before = token_of_[id];
    if (before != row.token) {
      if (before >= 0) dirty_.push_back(before);
      unlink(id);
      link(id, row.token);
    }
    if (row.token >= 0) dirty_.push_back(row.token);
  }
  for (const std::int32_t token : dirty_) {
    const std::size_t at = token;
    const bool was_weighted = is_weighted(at);
    if (plain_[at] != 0.0) --plain_tokens_;
    den_[at] = plain_[at] = scaled_[at] = scaled_low_[at] = num_[at] = kept_[at] = 0.0;
    for (std::int32_t id = first_[at]; id >= 0; id = next_[id]) {
      const SketchRow& row = sketch[position_of(id)];
      if (reads(row)) add(row);
    }
    finish(at);
    if (plain_[at] != 0.0) ++plain_tokens_;
    if (is_weighted(at) == was_weighted) continue;
    const auto place = std::lower_bound(weighted_.begin(), weighted_.end(), token);
    if (was_weighted) {
      weighted_.erase(place);
    } else {
      weighted_.insert(place, token);
    }
  }
  return true;
}

}  // namespace kvbench
