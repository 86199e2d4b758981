// thinformer: kernel thinning of the prompt's middle. In rounds, one token of each pair stays, so
// that the kept half has nearly the sums of the whole for a kernel of keys and values.
//
// Source: Thinformer (Carrell et al.), KH-Compress(g), and its released code, microsoft/thinformer
// f5b1f26, thinformer/thinformer.py (exp_kernel, halve_K, khcompress).
//   n_out = 2^g sqrt(n) -> g, failure probability -> delta, oversampling's strided points ->
//   points, alpha -> sums, a_max -> threshold
// As released: the points are each stride-th token, what lies beyond them is never looked at
// (`tail: spread` takes them from all of the middle); rounds go bottom up, where the paper's
// Compress is recursive with a delta of its own per call; a round's picks are all replaced by their
// partners where its one coin, common to the KV heads of a layer, says so (`symmetrize`).
// Departures: one coreset per KV head, besides exact tokens: `weights: middle` makes n_out rows
// stand for all M tokens, where the release attends to the coreset alone. The kernel knows no
// soft-cap. The streaming form (Express) is not offered.
#include <algorithm>
#include <cmath>

#include "algorithms/mechanisms/compress_once.hpp"
#include "kernels/packed_keys.hpp"
#include "numerics/aligned.hpp"
#include "numerics/canonical.hpp"
#include "numerics/counter_rng.hpp"
#include "numerics/lanes.hpp"
#include "system/error.hpp"

namespace kvbench::methods::thinformer {
namespace {

enum class Tail { kDrop, kSpread };
enum class Weights { kMiddle, kNone };

struct Parameters {
  TokenCount sinks = 0;
  TokenCount recent = 0;
  Index g = 2;
  double delta = 0.5;
  Tail tail = Tail::kDrop;
  Weights weights = Weights::kMiddle;
  bool symmetrize = true;
};

// The largest power of 4 that is at most `tokens`, which is at least 1.
Index power_of_four(Index tokens) {
  Index power = 1;
  while (power <= tokens / 4) power *= 4;
  return power;
}

// n0 points of the middle, ascending.
std::vector<Index> points_of(PromptRange middle, Tail tail) {
  const Index n0 = power_of_four(middle.size());
  const Index stride = middle.size() / n0;
  std::vector<Index> points;
  for (Index j = 0; j < n0; ++j) {
    points.push_back(middle.first + (tail == Tail::kDrop ? j * stride : j * middle.size() / n0));
  }
  return points;
}

// exp(s <k_a, k_b> - s R^2) (<v_a, v_b> + B^2), R the largest key and B the largest entry of a
// value among the points.
struct PointKernel {
  PointKernel(const Stream& of, const std::vector<Index>& points) : stream(of) {
    for (const Index token : points) {
      const double* key = stream.keys.row(token);
      squared_radius = std::max(squared_radius, canonical_dot(key, key, stream.shape.d));
      for (Index c = 0; c < stream.shape.dv; ++c) {
        largest_value = std::max(largest_value, std::fabs(stream.values(token, c)));
      }
    }
    if (!std::isfinite(squared_radius) || !std::isfinite(largest_value * largest_value)) {
      throw CellError("keys or values of the prompt overflow");
    }
  }

  const Stream& stream;
  double squared_radius = 0.0;
  double largest_value = 0.0;
};

// The kernel between the points of one bucket, some rows at a time.
class BucketKernel {
 public:
  static constexpr Index kRows = 6;

  BucketKernel(const PointKernel& kernel, const std::vector<Index>& bucket)
      : kernel_(kernel),
        tokens_(bucket.begin(), bucket.end()),
        keys_(kernel.stream.keys, tokens_),
        values_(kernel.stream.values, tokens_),
        rows_(kRows * keys_.padded()),
        products_(rows_.size()) {}

  // Computes rows [first, first + kRows), as far as there are some, in columns from `first` on.
  void compute(Index first) {
    first_ = first;
    const Index last = std::min(first + kRows, std::ssize(tokens_));
    std::vector<const double*> keys, values;
    for (Index a = first; a < last; ++a) {
      keys.push_back(kernel_.stream.keys.row(tokens_[a]));
      values.push_back(kernel_.stream.values.row(tokens_[a]));
    }
    const StreamShape products;
    const Index stride = keys_.padded();
    const Index begin = first / PackedKeys::kStep * PackedKeys::kStep;
    keys_.logits(products, keys, begin, stride, rows_.data() + begin, stride);
    values_.logits(products, values, begin, stride, products_.data() + begin, stride);
    const Lanes scale = Lanes::all(kernel_.stream.shape.scale);
    const Lanes radius = Lanes::all(kernel_.squared_radius);
    const Lanes offset = Lanes::all(kernel_.largest_value * kernel_.largest_value);
    for (Index r = 0; r < last - first; ++r) {
      for (Index j = r * stride + begin; j < (r + 1) * stride; j += Lanes::kCount) {
        const Lanes exponential = canonical_exp(scale * (Lanes::load(rows_.data() + j) - radius));
        (exponential * (Lanes::load(products_.data() + j) + offset)).store(rows_.data() + j);
      }
    }
  }
  // Kernel of point `a`, one of the last call's, with each point.
  const double* row(Index a) const { return rows_.data() + (a - first_) * keys_.padded(); }

 private:
  const PointKernel& kernel_;
  const std::vector<std::int32_t> tokens_;
  const PackedKeys keys_;
  const PackedKeys values_;
  AlignedDoubles rows_;
  AlignedDoubles products_;
  Index first_ = 0;
};

class Thinformer final : public CompressOnce {
 public:
  Thinformer(const Parameters& p, const CellContext& context)
      : CompressOnce(context, p.sinks.of(context.prompt), p.recent.of(context.prompt)),
        p_(p),
        draw_(context.seed, context.stream.id.hash(), "thinformer/swap"),
        coin_(context.seed, layer_of(context.stream.id).hash(), "thinformer/coin") {}

  void extend(Index first, Index last) override {
    CompressOnce::extend(first, last);
    if (sketch_.bookkeeping > 0) count_weight();  // some may have left the sliding window
  }

  Derived derived() const override {
    return {{"sinks", prompt_.sinks},
            {"recent", prompt_.recent},
            {"middle", prompt_.middle.size()},
            {"points", points_},
            {"kept", kept_}};
  }

 protected:
  void compress_middle(PromptRange middle) override {
    std::vector<Index> tokens = points_of(middle, p_.tail);
    points_ = std::ssize(tokens);
    tokens = thinned(std::move(tokens));
    kept_ = std::ssize(tokens);
    std::sort(tokens.begin(), tokens.end());
    const double weight =
        p_.weights == Weights::kNone ? 1.0 : middle.size() / static_cast<double>(kept_);
    for (const Index token : tokens) {
      SketchRow row = SketchRow::exact(token);
      row.w_num = row.w_den = weight;
      sketch_.add(row);
    }
    count_weight();
  }

 private:
  // One number, common to all rows.
  void count_weight() {
    const bool weighted = std::any_of(sketch_.rows().begin(), sketch_.rows().end(),
                                      [](const SketchRow& row) { return row.w_den != 1.0; });
    sketch_.bookkeeping = weighted ? 1 : 0;
  }

  // Identity of a layer, whose KV heads share a round's coin.
  static StreamId layer_of(StreamId id) {
    id.kv_head = 0;
    return id;
  }

  std::vector<Index> thinned(std::vector<Index> tokens) const {
    const auto n0 = std::ssize(tokens);
    if (p_.g >= 30 || n0 < (Index{1} << (2 * p_.g + 2))) return tokens;
    Index rounds = -p_.g;
    for (Index n = n0; n > 1; n /= 4) ++rounds;
    Index size = Index{1} << (2 * p_.g + 2);
    const double share = p_.delta / (size * static_cast<double>(rounds) * n0);
    const PointKernel kernel(context_.stream, tokens);
    for (Index round = 0; round < rounds; ++round, size *= 2) {
      std::vector<Index> left;
      for (std::size_t first = 0; first < tokens.size(); first += size) {
        const std::vector<Index> bucket(tokens.begin() + first, tokens.begin() + first + size);
        const std::vector<Index> half =
            halved(bucket, kernel, share, left.size() / (size / 2), round);
        left.insert(left.end(), half.begin(), half.end());
      }
      tokens = std::move(left);
    }
    return tokens;
  }

  // One token of each pair, in order.
  std::vector<Index> halved(const std::vector<Index>& bucket, const PointKernel& kernel,
                            double share, std::size_t number, Index round) const {
    const double size = bucket.size();
    const double length = 0.5 + canonical_log(2.0 * size / (share * size * size));
    const bool partners =
        p_.symmetrize && coin_.uniform(0, 0, static_cast<std::uint32_t>(round)) < 0.5;
    const std::size_t pairs = bucket.size() / 2;
    BucketKernel of_bucket(kernel, bucket);
    std::vector<double> sums(pairs, 0.0);  // signed differences of earlier pairs to each
    std::vector<Index> kept;
    double largest = 0.0;
    for (std::size_t i = 0; i < pairs; ++i) {
      const Index first_of_pair = 2 * i;
      if (first_of_pair % BucketKernel::kRows == 0) of_bucket.compute(first_of_pair);
      const double* a = of_bucket.row(first_of_pair);
      const double* b = of_bucket.row(first_of_pair + 1);
      const auto difference = [&](std::size_t j) {
        return a[2 * j] - a[2 * j + 1] - b[2 * j] + b[2 * j + 1];
      };
      const double length_of_pair = std::sqrt(std::max(0.0, difference(i)));
      largest = std::max(largest, length_of_pair);
      bool swap = false;
      if (i > 0) {
        const double u =
            2.0 * draw_.uniform53(static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(number),
                                  static_cast<std::uint32_t>(round)) -
            1.0;
        swap = u * length * length_of_pair * largest <= sums[i];
      }
      kept.push_back(bucket[2 * i + (swap != partners ? 1 : 0)]);
      for (std::size_t j = i + 1; j < pairs; ++j) {
        sums[j] += swap ? -difference(j) : difference(j);
      }
    }
    return kept;
  }

  const Parameters p_;
  const CounterRng draw_;
  const CounterRng coin_;
  Index points_ = 0;
  Index kept_ = 0;
};

}  // namespace

AlgorithmDescription describe() {
  TypedAlgorithm<Parameters> d;
  d.id = "thinformer";
  d.title = "kernel thinning of the prompt: of each pair of tokens one stays, in rounds";
  d.source = "Thinformer (Carrell et al.), KH-Compress, and its released code";
  d.for_less_memory = "thinformer keeps 2^g sqrt(n) tokens of the middle; for less memory lower g";
  d.limits.alibi = "thinformer approximates a kernel of inner products alone";
  d.derived = {sinks_key(),
               recent_key(),
               middle_key(),
               {"points", "tokens of the middle that thinning starts from"},
               {"kept", "tokens of the middle that are kept"}};
  using P = Parameters;
  d.parameters = {
      sinks_field(&P::sinks),
      recent_field(&P::recent),
      field("g", &P::g, "2^g sqrt(points) tokens of the middle are kept").at_most(30),
      field("delta", &P::delta, "failure probability of the guarantee").above(0).at_most(1),
      field(
          "tail", &P::tail, {{"drop", Tail::kDrop}, {"spread", Tail::kSpread}},
          "drop: points are each stride-th token and end before the middle does; spread: they are "
          "spread over it"),
      field("weights", &P::weights, {{"middle", Weights::kMiddle}, {"none", Weights::kNone}},
            "middle: the kept stand for all tokens of the middle; none: weight 1"),
      field("symmetrize", &P::symmetrize,
            "a fair coin per round replaces what is kept by the other half")};
  d.randomised = [](const Parameters&) { return true; };
  d.only_appends = [](const Parameters&) { return true; };
  d.weighs = [](const Parameters& p) { return p.weights == Weights::kMiddle; };
  d.create = [](const Parameters& p, const CellContext& context) {
    return std::make_unique<Thinformer>(p, context);
  };
  return d;
}

}  // namespace kvbench::methods::thinformer
