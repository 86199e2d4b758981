#include "kernels/host_rows.hpp"

#include <algorithm>

#include "kernels/interleaved.hpp"
#include "kernels/weight_table.hpp"
#include "numerics/lanes.hpp"
#include "numerics/unrolled.hpp"
#include "system/parallel.hpp"

namespace kvbench {
namespace {

constexpr Index kAbreast = kQuestionsAbreast;
static_assert(kAbreast == Lanes::kCount);
constexpr Index kTiles = WeightTable::kPlaces / kAbreast;  // answered together
constexpr Index kTokensAtOnce = 32;  // value rows that stay in the first cache for all of them
// Tokens whose exponentials are fetched early: the next ones that stay, while these are summed.
// Half of them would come too late to cover memory's latency.
constexpr Index kAhead = kTokensAtOnce;
// Tiles and columns of the values whose sums stay in registers: what is loaded serves several.
#if defined(__AVX512F__)
constexpr int kMaxTiles = static_cast<int>(kTiles);
template <int kRun>
constexpr int kColumns = kRun == 1 ? 16 : 8;
#else
constexpr int kMaxTiles = 1;
template <int kRun>
constexpr int kColumns = 6;
#endif

// Some tokens' values and what they weigh times their exponentials. Tokens without a weight in the
// numerator are left out.
struct Part {
  Index first = 0;  // first of the table's tokens
  Index last = 0;
  const double* values[kTokensAtOnce];
  const double* soon[kTokensAtOnce];  // values that the next part sums, fetched meanwhile
  Index count = 0;
  alignas(64) double weighted[kTokensAtOnce][kTiles][kAbreast];
};

// The masses of eight questions, of tokens l, l + 8, .. in lane l, as Lanes are summed.
struct Masses {
  alignas(64) double sums[kWeightKinds][Lanes::kCount][kAbreast];
  alignas(64) double largest_den[kAbreast];
};

// sums[t][column + c][0..8) += sum over tokens of weighted[i][tile + t][0..8) v_i[column + c],
// ascending, of kRun tiles and kCount columns; `size` numbers of sums per tile.
template <int kRun, int kCount>
void add_columns(const Part& part, Index tile, Index column, double* sums, Index size) {
  Lanes sum[kRun][kCount];
  double* const begin = sums + column * kAbreast;
  unrolled<kRun>([&](auto t) {
    unrolled<kCount>([&](auto c) { sum[t][c] = Lanes::load(begin + t * size + c * kAbreast); });
  });
  for (Index i = 0; i < part.count; ++i) {
    const double* v = part.values[i] + column;
    __builtin_prefetch(part.soon[i] + column, 0, 2);
    Lanes weighted[kRun];
    unrolled<kRun>([&](auto t) { weighted[t] = Lanes::load(part.weighted[i][tile + t]); });
    unrolled<kCount>([&](auto c) {
      const Lanes value = Lanes::all(v[c]);
      unrolled<kRun>([&](auto t) { sum[t][c] = Lanes::fma(weighted[t], value, sum[t][c]); });
    });
  }
  unrolled<kRun>([&](auto t) {
    unrolled<kCount>([&](auto c) { sum[t][c].store(begin + t * size + c * kAbreast); });
  });
}

// All columns.
template <int kRun>
void add_values(const Part& part, Index tile, double* sums, Index size) {
  const Index columns = size / kAbreast;
  constexpr int kMaxColumns = kColumns<kRun>;
  Index column = 0;
  for (; column + kMaxColumns <= columns; column += kMaxColumns) {
    add_columns<kRun, kMaxColumns>(part, tile, column, sums, size);
  }
  for (; column + 4 <= columns; column += 4) add_columns<kRun, 4>(part, tile, column, sums, size);
  for (; column < columns; ++column) add_columns<kRun, 1>(part, tile, column, sums, size);
}

class HostRows final : public ResidentRows {
 public:
  HostRows(const Stream& stream, const LogitBlock& block, UnfilledDoubles& room)
      : ResidentRows(block.max_logit), stream_(stream), tokens_(block.tokens), exps_(room) {
    lay_out(block, room);
  }

  bool is_enough(const AnswerBatch& batch) const override;
  void answer(const AnswerBatch& batch, std::vector<double>& numerators,
              std::vector<AnswerMasses>& masses) const override;

 private:
  // Scratch memory of one call.
  struct Scratch {
    WeightTable table;
    std::vector<Index> places;
    AlignedDoubles sums;  // [kTiles, dv, 8]
    Masses masses[kTiles];
    Part part;
  };

  static Index group_of(const AnswerBatch::Question& question) {
    return question.query_index / WeightTable::kPlaces;
  }
  const double* exps_of(Index tile) const { return exps_.data() + tile * tokens_ * kAbreast; }

  void lay_out(const LogitBlock& block, UnfilledDoubles& room) const;
  static AnswerMasses masses_of(const Scratch& scratch, Index tile, Index lane);
  void answer_group(Index first_tile, Scratch& scratch) const;
  template <int kRun>
  void add_part(Index first_tile, Index tile, Scratch& scratch) const;
  template <int kRun>
  void weigh(const double* exps, Index tile, Scratch& scratch) const;

  const Stream& stream_;
  const Index tokens_;
  const UnfilledDoubles& exps_;
};

AnswerMasses HostRows::masses_of(const Scratch& scratch, Index tile, Index lane) {
  const Masses& masses = scratch.masses[tile];
  const auto sum = [&](WeightKind kind) {
    const bool is_numerator = scratch.table.is_numerator(kind);
    alignas(64) double x[Lanes::kCount];
    for (int l = 0; l < Lanes::kCount; ++l) {
      x[l] = masses.sums[is_numerator ? kNumerator : kind][l][lane];
    }
    return Lanes::load(x).sum();
  };
  return {{sum(kNumerator), sum(kDenominator), sum(kLogarithm), sum(kKept)},
          masses.largest_den[lane]};
}

void HostRows::lay_out(const LogitBlock& block, UnfilledDoubles& room) const {
  const auto queries = std::ssize(block.max_logit);
  const Index tiles = (queries + kAbreast - 1) / kAbreast;
  room.clear();  // nothing of it is to be copied where it grows
  room.resize(numbers_abreast(queries, tokens_));
  const StreamShape& shape = stream_.shape;
  parallel_for(tiles, [&](Index tile) {
    double* to = room.data() + tile * tokens_ * kAbreast;
    Index first[kAbreast];
    Index last[kAbreast];
    const double* from[kAbreast];
    for (Index q = 0; q < kAbreast; ++q) {
      const Index query = tile * kAbreast + q;
      const bool is_one = query < queries;
      const Index row = is_one ? block.rows[query / shape.heads_per_kv] : 0;
      first[q] = is_one ? shape.first_visible(row) : 0;
      last[q] = is_one ? shape.visible_end(row) : 0;
      from[q] = block.exps.data() + query * tokens_;
    }
    const Index all_first = *std::max_element(first, first + kAbreast);
    const Index all_last = *std::min_element(last, last + kAbreast);
    const auto copy_some = [&](Index begin, Index end) {
      for (Index j = begin; j < end; ++j) {
        for (Index q = 0; q < kAbreast; ++q) {
          to[j * kAbreast + q] = j >= first[q] && j < last[q] ? from[q][j] : 0.0;
        }
      }
    };
    copy_some(0, std::min(all_first, tokens_));
    if (all_first < all_last) {
      for (const double*& row : from) row += all_first;
      interleave(from, all_last - all_first, to + all_first * kAbreast, kAbreast);
      for (const double*& row : from) row -= all_first;
    }
    copy_some(std::max(all_first, all_last), tokens_);
  });
}

// Lists that go on from question to question are one; lists that do not fill the caches at some
// point, and so do the answers of many questions. A group that is answered in two parts takes
// longer.
bool HostRows::is_enough(const AnswerBatch& batch) const {
  constexpr Index kEnoughQuestions = 8 * WeightTable::kPlaces;
  constexpr std::size_t kEnoughWeights = std::size_t{1} << 15;
  if (batch.questions.empty()) return false;
  const auto questions = std::ssize(batch.questions);
  const bool is_much = batch.weights.size() >= kEnoughWeights || questions >= kEnoughQuestions;
  const bool is_more =
      batch.weights.size() >= 4 * kEnoughWeights || questions >= 2 * kEnoughQuestions;
  const bool ends_group = (batch.questions.back().query_index + 1) % WeightTable::kPlaces == 0;
  return is_much && (ends_group || is_more);
}

void HostRows::answer(const AnswerBatch& batch, std::vector<double>& numerators,
                      std::vector<AnswerMasses>& masses) const {
  const Index dv = stream_.shape.dv;
  const auto count = std::ssize(batch.questions);
  numerators.resize(count * dv);
  masses.resize(count);
  Scratch scratch;
  scratch.sums.resize(kTiles * dv * kAbreast);
  const auto place_of = [&](Index q) {
    return batch.questions[q].query_index % WeightTable::kPlaces;
  };
  for (Index first = 0; first < count;) {
    // One that is asked again begins another group.
    const Index group = group_of(batch.questions[first]);
    Index last = first;
    scratch.places.clear();
    while (last < count && group_of(batch.questions[last]) == group &&
           (last == first || place_of(last) > scratch.places.back())) {
      scratch.places.push_back(place_of(last++));
    }
    scratch.table.lay_out(batch, first, last, scratch.places);
    answer_group(group * kTiles, scratch);
    for (Index q = first; q < last; ++q) {
      const Index tile = place_of(q) / kAbreast;
      const Index lane = place_of(q) % kAbreast;
      for (Index k = 0; k < dv; ++k) {
        numerators[q * dv + k] = scratch.sums[(tile * dv + k) * kAbreast + lane];
      }
      masses[q] = masses_of(scratch, tile, lane);
    }
    first = last;
  }
}

// All of `scratch.places`, into sums and masses of their tiles.
void HostRows::answer_group(Index first_tile, Scratch& scratch) const {
  const Index tile_begin = scratch.places.front() / kAbreast;
  const Index tile_end = scratch.places.back() / kAbreast + 1;
  std::fill(scratch.sums.begin(), scratch.sums.end(), 0.0);
  for (Masses& masses : scratch.masses) masses = {};
  const std::vector<std::int32_t>& tokens = scratch.table.tokens();
  const auto count = std::ssize(tokens);
  Part& part = scratch.part;
  for (part.first = 0; part.first < count; part.first = part.last) {
    part.last = std::min(part.first + kTokensAtOnce, count);
    part.count = 0;
    for (Index i = part.first; i < part.last; ++i) {
      if (!scratch.table.sums_value(i)) continue;
      part.soon[part.count] = stream_.values.row(tokens[std::min(i + kTokensAtOnce, count - 1)]);
      part.values[part.count++] = stream_.values.row(tokens[i]);
    }
    for (Index tile = tile_begin; tile < tile_end;) {
      const Index run = std::min<Index>(tile_end - tile, kMaxTiles);
      if constexpr (kMaxTiles >= 3) {
        if (run == 3) add_part<3>(first_tile, tile, scratch);
      }
      if constexpr (kMaxTiles >= 2) {
        if (run == 2) add_part<2>(first_tile, tile, scratch);
      }
      if (run == 1) add_part<1>(first_tile, tile, scratch);
      tile += run;
    }
  }
}

// One part's tokens, of tiles [tile, tile + kRun).
template <int kRun>
void HostRows::add_part(Index first_tile, Index tile, Scratch& scratch) const {
  const Index size = stream_.shape.dv * kAbreast;
  weigh<kRun>(exps_of(first_tile + tile), tile, scratch);
  add_values<kRun>(scratch.part, tile, scratch.sums.data() + tile * size, size);
}

template <int kRun>
void HostRows::weigh(const double* exps, Index tile, Scratch& scratch) const {
  const WeightTable& table = scratch.table;
  const Index stride = tokens_ * kAbreast;
  const std::int32_t* const tokens = table.tokens().data();
  const auto end = std::ssize(table.tokens()) - 1;
  const bool has_own_sum[] = {true, table.has_own_sum(kDenominator), table.has_own_sum(kLogarithm),
                              table.has_own_sum(kKept)};
  Masses* const masses = scratch.masses + tile;
  Part& part = scratch.part;
  Lanes largest[kRun];
  unrolled<kRun>([&](auto t) { largest[t] = Lanes::load(masses[t].largest_den); });
  Index count = 0;
  for (Index i = part.first; i < part.last; ++i) {
    const Index token = tokens[i];
    const double* const soon = exps + tokens[std::min(i + kAhead, end)] * kAbreast;
    const double* const now = exps + token * kAbreast;
    const bool differs = table.differs(i);
    const bool sums_value = table.sums_value(i);
    unrolled<kRun>([&](auto t) {
      __builtin_prefetch(soon + t * stride);
      const Lanes e = Lanes::load(now + t * stride);
      const auto weight = [&](WeightKind kind) {
        return differs ? Lanes::load(table.own(kind, i) + (tile + t) * kAbreast)
                       : Lanes::all(table.all(kind, i));
      };
      const auto add = [&](WeightKind kind, Lanes w) {
        double* sum = masses[t].sums[kind][token % Lanes::kCount];
        Lanes::fma(w, e, Lanes::load(sum)).store(sum);
      };
      const Lanes num = weight(kNumerator);
      if (sums_value) (num * e).store(part.weighted[count][tile + t]);
      add(kNumerator, num);
      Lanes den = num;
      if (has_own_sum[kDenominator]) {
        den = weight(kDenominator);
        add(kDenominator, den);
      }
      largest[t] = Lanes::max(den * e, largest[t]);
      if (has_own_sum[kLogarithm]) add(kLogarithm, weight(kLogarithm));
      if (has_own_sum[kKept]) add(kKept, weight(kKept));
    });
    if (sums_value) ++count;
  }
  unrolled<kRun>([&](auto t) { largest[t].store(masses[t].largest_den); });
}

}  // namespace

std::shared_ptr<const ResidentRows> rows_on_host(const Stream& stream, const LogitBlock& block,
                                                 UnfilledDoubles& room) {
  return std::make_shared<const HostRows>(stream, block, room);
}

}  // namespace kvbench
