// vattention: holds every token. A row reads attention sinks, recent tokens, those of the largest
// logits, and a uniform sample of the others. The sample is as large as a bound on the error of the
// softmax sum requires.
//
// Source: vAttention (2510.05688) by the code xAlg-ai/sparse-attention-hub 1a048c9
// (adaptive_sampling.py, its bound on the denominator).
//   init_offset, local_offset -> sinks, recent; a top-k mask before it -> top
//   sampling range, N tokens [sinks, n - recent) of a row's n -> range
//   base_rate_sampling -> base: draws from the range, whose e^x have mean m and deviation sd
//   budget = (z sd N / (epsilon D))^2, D = sum of e^x over what is read anyway + N m,
//   z the quantile of the normal distribution at 1 - delta
// The sample is a second one, of as many draws with replacement: at least those of the base and at
// most N; each weighs N / budget, in both sums. A token of the largest logits that is drawn as well
// keeps weight 1, so that both sums are unbiased. z is that of one side: the sum is too large by
// epsilon D with probability delta, and too small likewise.
// Departures: a sample of N draws reads the range whole instead, which makes epsilon -> 0 exact; a
// token counts as often as it is drawn, where the release's masks keep one of equal draws. As in
// its experiments the tokens of the largest logits are known without a search, which traffic does
// not count; it counts the keys of the base's draws.
// Run next to that code in double precision, each with 400 draws of its own, 64 sinks, recent and
// top tokens, base 0.02, epsilon and delta 0.1, the last row of two heads of the shipped dump: mean
// relative errors of 0.351 (standard error 0.005) and 0.0200 (0.0002) here, 0.342 (0.004) and
// 0.0199 (0.0002) there.
#include <algorithm>
#include <cmath>
#include <vector>

#include "algorithms/mechanisms/budget.hpp"
#include "algorithms/mechanisms/drawn_places.hpp"
#include "algorithms/mechanisms/group_rule.hpp"
#include "algorithms/mechanisms/read_share.hpp"
#include "algorithms/typed_algorithm.hpp"
#include "numerics/logit_noise.hpp"
#include "system/error.hpp"

namespace kvbench::methods::vattention {
namespace {

constexpr double kMinDeviation = 1e-8;  // the release's floors
constexpr double kMinError = 1e-8;

struct Parameters {
  TokenCount sinks = 128;
  TokenCount recent = 128;
  TokenCount top = TokenCount::fraction(0.05);
  double base = 0.02;
  double epsilon = 0.1;
  double delta = 0.1;
};

class VAttention final : public Algorithm {
 public:
  VAttention(const Parameters& p, const CellContext& context)
      : context_(context),
        p_(p),
        sinks_(p.sinks.of(context.prompt)),
        recent_(p.recent.of(context.prompt)),
        top_(p.top.of(context.prompt)),
        base_random_(context.seed, context.stream.id.hash(), "vattention/base"),
        random_(context.seed, context.stream.id.hash(), "vattention/sample") {}

  void extend(Index, Index) override {}

  void prepare(const RowLogits& row) override {
    const Index tokens = row.row + 1;
    sketch_.clear();
    sketch_.lookup = {};
    ++rows_;
    const PromptRange range{sinks_, tokens - recent_};
    if (range.size() < 2) {
      sketch_.add_exact(0, tokens);
      return;
    }
    sketch_.add_exact(0, range.first);
    sketch_.add_exact(range.last, tokens);
    sketch_.lookup.read_key_numbers =
        row.heads_per_kv * base_draws(range.size()) * context_.stream.shape.d;
    for (int g = 0; g < row.heads_per_kv; ++g) read_range(row, g, range);
  }

  Derived derived() const override {
    const double answers =
        std::max(1.0, static_cast<double>(rows_ * context_.stream.shape.heads_per_kv));
    return {{"draws", draws_ / answers}, {"read_whole", whole_ / answers}};
  }

 private:
  Index base_draws(Index size) const {
    const double draws = p_.base < 1.0 ? p_.base * size : p_.base;
    return std::max<Index>(2, static_cast<Index>(std::min(draws, static_cast<double>(size))));
  }

  void read_range(const RowLogits& row, int g, PromptRange range) {
    const std::int16_t head = reading_head(g, row.heads_per_kv);
    const double* x = row.x + g * row.stride;
    const std::vector<Index> best =
        best_tokens({x + range.first, x + range.last}, range.first, top_);
    const Index draws = sample_size(row, g, range, best);
    draws_ += draws;
    if (draws == range.size()) {
      ++whole_;
      std::vector<Index> all;
      for (Index token = range.first; token < range.last; ++token) all.push_back(token);
      read_exactly(all, head, sketch_);
      return;
    }
    read_exactly(best, head, sketch_);
    const double weight = range.size() / static_cast<double>(draws);
    const auto places = uniform_places(random_, row.row, g, draws, range.size());
    for (const auto& [place, times] : counted(places)) {
      const Index token = range.first + place;
      if (std::binary_search(best.begin(), best.end(), token)) continue;
      SketchRow read = SketchRow::exact(token);
      read.head = head;
      read.w_num = read.w_den = weight * times;
      sketch_.add(read);
    }
  }

  Index sample_size(const RowLogits& row, int g, PromptRange range,
                    const std::vector<Index>& best) const {
    const double size = range.size();
    const double* e = row.exps(g);
    const Index base = base_draws(range.size());
    std::vector<double> drawn;
    for (const Index place : uniform_places(base_random_, row.row, g, base, range.size())) {
      drawn.push_back(e[range.first + place]);
    }
    double sum = 0.0;
    for (const double each : drawn) sum += each;
    const double mean = sum / base;
    double squares = 0.0;
    for (const double each : drawn) squares += (each - mean) * (each - mean);
    const double deviation = std::max(kMinDeviation, std::sqrt(squares / (base - 1)));
    double known = 0.0;
    for (Index token = 0; token < range.first; ++token) known += e[token];
    for (Index token = range.last; token <= row.row; ++token) known += e[token];
    for (const Index token : best) known += e[token];
    const double allowed = std::max(kMinError, p_.epsilon * (known + size * mean));
    const double root = normal_quantile(1.0 - p_.delta) * deviation * size / allowed;
    const auto wanted = static_cast<Index>(std::clamp(root * root, 1.0, size));
    return std::clamp(wanted, std::min(base, range.size()), range.size());
  }

  const CellContext context_;
  const Parameters p_;
  const Index sinks_;
  const Index recent_;
  const Index top_;
  const CounterRng base_random_;
  const CounterRng random_;
  Index rows_ = 0;   // prepared
  Index draws_ = 0;  // over rows and query heads
  Index whole_ = 0;
};

}  // namespace

AlgorithmDescription describe() {
  TypedAlgorithm<Parameters> d;
  d.id = "vattention";
  d.title = "reads the largest logits, and of the others a sample as large as a bound asks for";
  d.source = "vAttention (2510.05688)";
  d.for_less_memory = kKeepsEveryToken;
  d.answers_prompt_rows = true;
  d.reads = true;
  d.derived = {{"draws", "draws that an answer's sample has, mean over rows and heads"},
               {"read_whole",
                "fraction of the answers that read all tokens, because their sample would have as "
                "many draws"}};
  using P = Parameters;
  d.limits.all_tokens = "vattention reads tokens up to the row's own";
  d.parameters = {
      field("sinks", &P::sinks, "first tokens of the sequence; always read"),
      field("recent", &P::recent, "last tokens; always read"),
      field("top", &P::top, "tokens of the largest logits between them; always read"),
      field("base", &P::base,
            "draws that estimate the variance of the others, at least 2; a number below 1 is a "
            "fraction of the tokens")
          .at_most(1e9),
      field("epsilon", &P::epsilon, "error of the softmax sum that the sample is made for")
          .above(0)
          .at_most(1),
      field("delta", &P::delta, "probability that the sum exceeds it, and that it falls short")
          .above(0)
          .at_most(0.5)};
  d.randomised = [](const Parameters&) { return true; };
  d.never_evicts = [](const Parameters&) { return true; };
  d.needs = [](const Parameters&) { return Needs{.row_logits = true}; };
  d.skip_reason = [](const Parameters&, const StreamShape& shape, Index) {
    return cannot_forget("vattention", shape);
  };
  d.create = [](const Parameters& p, const CellContext& context) {
    return std::make_unique<VAttention>(p, context);
  };
  return d;
}

}  // namespace kvbench::methods::vattention
