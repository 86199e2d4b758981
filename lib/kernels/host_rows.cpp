#include "kernels/host_rows.hpp"

#include <algorithm>

#include "core/lanes.hpp"
#include "core/parallel.hpp"
#include "kernels/weight_table.hpp"

namespace kvbench {
namespace {

constexpr Index kAbreast = kQuestionsAbreast;
static_assert(kAbreast == Lanes::kCount);
constexpr Index kTiles = WeightTable::kPlaces / kAbreast;  // answered together
constexpr Index kTokensAtOnce = 32;  // value rows that stay in the first cache for all of them
// Tokens whose exponentials are fetched early: the next ones that stay, while these are summed.
// Half of them would come too late to cover memory's latency.
constexpr Index kAhead = kTokensAtOnce;
#if defined(__AVX512F__)
constexpr int kColumns = 12;  // of the values, whose sums stay in registers
#else
constexpr int kColumns = 6;
#endif

// Some tokens' values and what they weigh times their exponentials, of eight questions. Tokens
// without a weight in the numerator are left out.
struct Part {
  Index first = 0;  // of the table's tokens
  Index last = 0;
  const double* values[kTokensAtOnce];
  Index count = 0;
  alignas(64) double weighted[kTiles][kTokensAtOnce * kAbreast];
};

// The masses of eight questions, of tokens l, l + 8, .. in lane l, as Lanes are summed.
struct Masses {
  alignas(64) double sums[kWeightKinds][Lanes::kCount][kAbreast];
  alignas(64) double largest_den[kAbreast];
};

// sums[c][0..8) += sum over tokens of weighted[i][0..8) v_i[column + c], ascending.
template <int kCount>
void add_columns(const Part& part, Index tile, Index column, double* sums) {
  Lanes sum[kCount];
#pragma GCC unroll 16
  for (int c = 0; c < kCount; ++c) sum[c] = Lanes::load(sums + (column + c) * kAbreast);
  for (Index i = 0; i < part.count; ++i) {
    const Lanes weighted = Lanes::load(part.weighted[tile] + i * kAbreast);
    const double* v = part.values[i] + column;
#pragma GCC unroll 16
    for (int c = 0; c < kCount; ++c) sum[c] = Lanes::fma(weighted, Lanes::all(v[c]), sum[c]);
  }
#pragma GCC unroll 16
  for (int c = 0; c < kCount; ++c) sum[c].store(sums + (column + c) * kAbreast);
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
  // What one call needs besides its results.
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
  template <int kCount>
  static void add_to_tiles(Index begin, Index end, Index column, Scratch& scratch);
  static AnswerMasses masses_of(const Scratch& scratch, Index tile, Index lane);
  void answer_group(Index first_tile, Scratch& scratch) const;
  void weigh(const double* exps, Index tile, Scratch& scratch) const;

  const Stream& stream_;
  const Index tokens_;
  const UnfilledDoubles& exps_;
};

template <int kCount>
void HostRows::add_to_tiles(Index begin, Index end, Index column, Scratch& scratch) {
  const auto size = static_cast<Index>(scratch.sums.size()) / kTiles;
  for (Index tile = begin; tile < end; ++tile) {
    add_columns<kCount>(scratch.part, tile, column, scratch.sums.data() + tile * size);
  }
}

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
  const auto queries = static_cast<Index>(block.max_logit.size());
  const Index tiles = (queries + kAbreast - 1) / kAbreast;
  room.clear();  // nothing of it is to be copied where it grows
  room.resize(static_cast<std::size_t>(numbers_abreast(queries, tokens_)));
  const StreamShape& shape = stream_.shape;
  parallel_for(tiles, [&](Index tile) {
    double* to = room.data() + tile * tokens_ * kAbreast;
    Index first[kAbreast];
    Index last[kAbreast];
    const double* from[kAbreast];
    for (Index q = 0; q < kAbreast; ++q) {
      const Index query = tile * kAbreast + q;
      const bool is_one = query < queries;
      const Index row =
          is_one ? block.rows[static_cast<std::size_t>(query / shape.heads_per_kv)] : 0;
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
    for (Index j = all_first; j < all_last; ++j) {
      for (Index q = 0; q < kAbreast; ++q) to[j * kAbreast + q] = from[q][j];
    }
    copy_some(std::max(all_first, all_last), tokens_);
  });
}

// Lists that go on from question to question are one; lists that do not fill the caches at some
// point. A group that is answered in two halves takes as long as two.
bool HostRows::is_enough(const AnswerBatch& batch) const {
  constexpr Index kEnoughQuestions = 1024;
  constexpr std::size_t kEnoughWeights = std::size_t{1} << 15;
  if (batch.questions.empty()) return false;
  const bool is_much = batch.weights.size() >= kEnoughWeights ||
                       static_cast<Index>(batch.questions.size()) >= kEnoughQuestions;
  return is_much && ((batch.questions.back().query_index + 1) % kAbreast == 0 ||
                     batch.weights.size() >= 4 * kEnoughWeights);
}

void HostRows::answer(const AnswerBatch& batch, std::vector<double>& numerators,
                      std::vector<AnswerMasses>& masses) const {
  const Index dv = stream_.shape.dv;
  const auto count = static_cast<Index>(batch.questions.size());
  numerators.resize(static_cast<std::size_t>(count * dv));
  masses.resize(static_cast<std::size_t>(count));
  Scratch scratch;
  scratch.sums.resize(static_cast<std::size_t>(kTiles * dv * kAbreast));
  const auto place_of = [&](Index q) {
    return batch.questions[static_cast<std::size_t>(q)].query_index % WeightTable::kPlaces;
  };
  for (Index first = 0; first < count;) {
    // One that is asked again begins another group.
    const Index group = group_of(batch.questions[static_cast<std::size_t>(first)]);
    Index last = first;
    scratch.places.clear();
    while (last < count && group_of(batch.questions[static_cast<std::size_t>(last)]) == group &&
           (last == first || place_of(last) > scratch.places.back())) {
      scratch.places.push_back(place_of(last++));
    }
    scratch.table.lay_out(batch, first, last, scratch.places);
    answer_group(group * kTiles, scratch);
    for (Index q = first; q < last; ++q) {
      const Index tile = place_of(q) / kAbreast;
      const Index lane = place_of(q) % kAbreast;
      for (Index k = 0; k < dv; ++k) {
        numerators[static_cast<std::size_t>(q * dv + k)] =
            scratch.sums[static_cast<std::size_t>((tile * dv + k) * kAbreast + lane)];
      }
      masses[static_cast<std::size_t>(q)] = masses_of(scratch, tile, lane);
    }
    first = last;
  }
}

// All of `scratch.places`, into sums and masses of their tiles.
void HostRows::answer_group(Index first_tile, Scratch& scratch) const {
  const Index dv = stream_.shape.dv;
  const Index tile_begin = scratch.places.front() / kAbreast;
  const Index tile_end = scratch.places.back() / kAbreast + 1;
  std::fill(scratch.sums.begin(), scratch.sums.end(), 0.0);
  for (Masses& masses : scratch.masses) masses = {};
  const std::vector<std::int32_t>& tokens = scratch.table.tokens();
  const auto count = static_cast<Index>(tokens.size());
  Part& part = scratch.part;
  for (part.first = 0; part.first < count; part.first = part.last) {
    part.last = std::min(part.first + kTokensAtOnce, count);
    part.count = 0;
    for (Index i = part.first; i < part.last; ++i) {
      if (!scratch.table.sums_value(i)) continue;
      part.values[part.count++] = stream_.values.row(tokens[static_cast<std::size_t>(i)]);
    }
    for (Index tile = tile_begin; tile < tile_end; ++tile) {
      weigh(exps_of(first_tile + tile), tile, scratch);
    }
    Index column = 0;
    for (; column + kColumns <= dv; column += kColumns) {
      add_to_tiles<kColumns>(tile_begin, tile_end, column, scratch);
    }
    for (; column + 4 <= dv; column += 4) {
      add_to_tiles<4>(tile_begin, tile_end, column, scratch);
    }
    for (; column < dv; ++column) add_to_tiles<1>(tile_begin, tile_end, column, scratch);
  }
}

void HostRows::weigh(const double* exps, Index tile, Scratch& scratch) const {
  const WeightTable& table = scratch.table;
  const std::vector<std::int32_t>& tokens = table.tokens();
  const auto end = static_cast<Index>(tokens.size()) - 1;
  Masses& masses = scratch.masses[tile];
  const Part& part = scratch.part;
  double* weighted = scratch.part.weighted[tile];
  for (Index i = part.first; i < part.last; ++i) {
    const Index token = tokens[static_cast<std::size_t>(i)];
    __builtin_prefetch(exps +
                       tokens[static_cast<std::size_t>(std::min(i + kAhead, end))] * kAbreast);
    const Lanes e = Lanes::load(exps + token * kAbreast);
    const bool differs = table.differs(i);
    const auto weight = [&](WeightKind kind) {
      return differs ? Lanes::load(table.own(kind, i) + tile * kAbreast)
                     : Lanes::all(table.all(kind, i));
    };
    const auto add = [&](WeightKind kind, Lanes w) {
      double* sum = masses.sums[kind][token % Lanes::kCount];
      Lanes::fma(w, e, Lanes::load(sum)).store(sum);
    };
    const Lanes num = weight(kNumerator);
    if (table.sums_value(i)) {
      (num * e).store(weighted);
      weighted += kAbreast;
    }
    add(kNumerator, num);
    Lanes den = num;
    if (table.has_own_sum(kDenominator)) {
      den = weight(kDenominator);
      add(kDenominator, den);
    }
    Lanes::max(den * e, Lanes::load(masses.largest_den)).store(masses.largest_den);
    for (const WeightKind kind : {kLogarithm, kKept}) {
      if (table.has_own_sum(kind)) add(kind, weight(kind));
    }
  }
}

}  // namespace

std::shared_ptr<const ResidentRows> rows_on_host(const Stream& stream, const LogitBlock& block,
                                                 UnfilledDoubles& room) {
  return std::make_shared<const HostRows>(stream, block, room);
}

}  // namespace kvbench
