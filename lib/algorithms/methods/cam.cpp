// cam: the first `sinks` tokens and the last budget - sinks, as streaming_llm. A token that leaves
// them gives its value to the next `merge` ones, with a probability that grows with its attention.
//
// Source: CaM (Zhang et al., ICML 2024) and its released code, zyxxmu/cam fc80e64,
// generate_task/streaming_llm/kv_cache_cam.py.
//   start_size -> sinks, recent_size -> budget - sinks, merge budget -> merge,
//   accumulated attention -> CamProbabilities (which tokens leave does not depend on the draws, so
//   neither do attention and probabilities), Bernoulli mask -> draw
// Departures: one draw per KV head, of scores that `group` combines row by row before they are
// added up (the release has one KV head per query head; with group mean the order is the same to
// it); draw expected adds the share that bernoulli adds on average. On a sliding layer what leaves
// the layer's window is dropped, whatever the budget. As released: the row is answered over budget
// + 1 tokens, the sum of the shares is not normalised, and where fewer than `merge` tokens follow,
// each takes v / merge all the same. Not offered: the variants cam_hf (current attention, over the
// recent window's mean) and lm_eval (over its maximum). Compared on the shipped dump: kvpress 0.5.5
// (CAMPress around StreamingLLMPress, one token at a time, its mask replaced by the mask's mean; by
// `tests/peers/run.sh`) has the tokens and, to 12 digits of the largest, the values of draw
// expected. It divides by the tokens that follow, not by `merge`, which is the same as long as
// `merge` of them do.
#include <algorithm>

#include "algorithms/mechanisms/compress_once.hpp"
#include "algorithms/mechanisms/group_rule.hpp"
#include "algorithms/mechanisms/softmax.hpp"
#include "algorithms/typed_algorithm.hpp"
#include "kernels/packed_keys.hpp"
#include "numerics/counter_rng.hpp"

namespace kvbench::methods::cam {
namespace {

constexpr Index kRowsAtOnce = 60;  // rows of logits in memory

enum class Draw { kBernoulli, kExpected, kNone };

struct Parameters {
  TokenCount budget;
  TokenCount sinks = 4;
  Index merge = 16;
  Draw draw = Draw::kBernoulli;
  GroupRule group = GroupRule::kMean;
};

// Tokens at row i's answer: [lo, sinks) and [oldest, i].
struct Held {
  Index sinks;
  Index recent;

  Index oldest(const StreamShape& shape, Index row) const {
    return std::max({shape.first_visible(row), sinks, row - recent});
  }
  std::vector<std::int32_t> tokens(const StreamShape& shape, Index first_row, Index last) const {
    std::vector<std::int32_t> out;
    const auto add = [&](Index from, Index to) {
      for (Index j = from; j < to; ++j) out.push_back(static_cast<std::int32_t>(j));
    };
    add(shape.first_visible(first_row), std::min(sinks, last));
    add(oldest(shape, first_row), last);
    return out;
  }
};

Held held(const Parameters& p, Index prompt) {
  const Index sinks = p.sinks.of(prompt);
  return {sinks, p.budget.of(prompt) - sinks};
}

// Shared work: the probability that a token's value is merged when it leaves, by token; 0 for one
// that does not leave by the budget. It serves every seed and way to draw.
struct CamProbabilities {
  Index sinks = 0;
  Index recent = 0;
  Index merge = 0;
  GroupRule group = GroupRule::kMean;

  using Result = std::vector<double>;
  Result compute(const SharedContext& context) const {
    const Stream& stream = context.stream;
    std::vector<double> accumulated(stream.shape.tokens, 0.0);
    Result probabilities(accumulated.size(), 0.0);
    for (Index first = 0; first < stream.shape.tokens; first += kRowsAtOnce) {
      const Index last = std::min(first + kRowsAtOnce, stream.shape.tokens);
      add_rows(stream, first, last, accumulated, probabilities);
    }
    return probabilities;
  }
  auto operator<=>(const CamProbabilities&) const = default;

 private:
  void add_rows(const Stream& stream, Index first, Index last, std::vector<double>& accumulated,
                std::vector<double>& probabilities) const {
    const int heads_per_kv = stream.shape.heads_per_kv;
    const Held rule{sinks, recent};
    const std::vector<std::int32_t> tokens = rule.tokens(stream.shape, first, last);
    const PackedKeys keys(stream.keys, tokens);
    std::vector<double> x(heads_per_kv * keys.padded());
    for (Index row = first; row < last; ++row) {
      std::vector<const double*> queries;
      for (int g = 0; g < heads_per_kv; ++g) queries.push_back(stream.query(g, row));
      keys.logits(stream.shape, queries, 0, keys.padded(), x.data(), keys.padded());
      for (int g = 0; g < heads_per_kv; ++g) {
        add_alibi(stream, g, row, tokens, x.data() + g * keys.padded());
      }
      const Index lo = stream.shape.first_visible(row);
      const Index oldest = rule.oldest(stream.shape, row);
      const auto kept = [&](Index token) {
        return token <= row && token >= lo && (token < sinks || token >= oldest);
      };
      std::vector<std::size_t> places;  // places of `tokens` that are kept, ascending
      for (std::size_t p = 0; p < tokens.size(); ++p) {
        if (kept(tokens[p])) places.push_back(p);
      }
      std::vector<std::vector<double>> shares;  // [G][kept]
      for (int g = 0; g < heads_per_kv; ++g) {
        std::vector<double>& head = shares.emplace_back();
        for (const std::size_t p : places) {
          head.push_back(x[(g * keys.padded()) + p]);
        }
        softmax_with_sink(head.data(), head.size(), stream.sink(g));
      }
      std::vector<double> combined;
      combine(group, shares, places.size(), combined);
      for (std::size_t k = 0; k < places.size(); ++k) {
        accumulated[tokens[places[k]]] += combined[k];
      }
      const Index leaves = row - recent;
      if (leaves >= sinks && leaves >= lo) {
        probabilities[leaves] = probability(accumulated, leaves, row);
      }
    }
  }

  // Its score over the mean of the tokens that take its value, in [0, 1]; 0 where both are 0.
  double probability(const std::vector<double>& accumulated, Index token, Index row) const {
    const Index last = std::min(token + merge, row);
    double sum = 0.0;
    for (Index j = token + 1; j <= last; ++j) sum += accumulated[j];
    const double mean = sum / (last - token);
    const double score = accumulated[token];
    if (score == 0.0) return 0.0;
    return score >= mean ? 1.0 : score / mean;
  }
};

CamProbabilities probabilities(const Parameters& p, Index prompt) {
  const Held rule = held(p, prompt);
  return {rule.sinks, rule.recent, p.merge, p.group};
}

class Cam final : public Algorithm {
 public:
  Cam(const Parameters& p, const CellContext& context)
      : p_(p),
        context_(context),
        shape_(context.stream.shape),
        rule_(held(p, context.prompt)),
        random_(context.seed, context.stream.id.hash(), "cam/merge"),
        slots_(std::min(rule_.recent + 1, shape_.tokens)),
        merged_(slots_, 0) {
    sketch_.own_values.resize(merged_.size());
    if (p.draw != Draw::kNone) {
      probabilities_ = &context.shared.get(probabilities(p, context.prompt));
    }
  }

  void extend(Index first, Index last) override {
    for (Index token = first; token < last; ++token) {
      if (token > 0) drop_after(token - 1);
      if (token >= rule_.sinks) merged_[slot(token)] = 0;
    }
    if (last > context_.prompt) write_rows(last - 1);
  }

  Derived derived() const override { return {{"merged", merges_}}; }

 private:
  std::size_t slot(Index token) const { return (token - rule_.sinks) % slots_; }

  // The token that row `row` was the last to be answered with.
  void drop_after(Index row) {
    const Index token = row - rule_.recent;
    if (token < rule_.sinks || token < shape_.first_visible(row)) return;
    const double share = share_of(token);
    if (share == 0.0) return;
    ++merges_;
    const double* value =
        merged_[slot(token)] != 0 ? sketch_.own_values[slot(token)].data() : own(token);
    const Index last = std::min(token + p_.merge, row);
    for (Index j = token + 1; j <= last; ++j) {
      std::vector<double>& sum = sketch_.own_values[slot(j)];
      if (merged_[slot(j)] == 0) sum.assign(own(j), own(j) + shape_.dv);
      merged_[slot(j)] = 1;
      for (Index k = 0; k < shape_.dv; ++k) sum[k] += share * value[k];
    }
  }

  const double* own(Index token) const { return context_.stream.values.row(token); }

  // Share of a token's value that each of the next tokens gets.
  double share_of(Index token) const {
    if (p_.draw == Draw::kNone) return 0.0;
    const double probability = (*probabilities_)[token];
    double part = probability;
    if (p_.draw == Draw::kBernoulli) {
      part = random_.uniform53(static_cast<std::uint32_t>(token)) < probability ? 1.0 : 0.0;
    }
    return part / p_.merge;
  }

  void write_rows(Index row) {
    sketch_.clear();
    for (const std::int32_t token : rule_.tokens(shape_, row, row + 1)) {
      SketchRow kept = SketchRow::exact(token);
      if (token >= rule_.sinks && merged_[slot(token)] != 0) {
        kept.own_value = static_cast<std::int32_t>(slot(token));
      }
      sketch_.add(kept);
    }
    sketch_.bookkeeping = p_.draw == Draw::kNone ? 0 : sketch_.size();
  }

  const Parameters p_;
  const CellContext context_;
  const StreamShape shape_;
  const Held rule_;
  const CounterRng random_;
  const std::vector<double>* probabilities_ = nullptr;  // null: nothing is merged
  const Index slots_;                                   // recent tokens take turns
  std::vector<char> merged_;  // by slot: its token's value is the sketch's own
  Index merges_ = 0;
};

KeptCounts most_kept(const Parameters& p, const StreamShape& shape, Index prompt) {
  const Held rule = held(p, prompt);
  Index most = 0;
  for (Index row = prompt; row < shape.tokens; ++row) {
    const Index sinks =
        std::max<Index>(0, std::min(rule.sinks, row + 1) - shape.first_visible(row));
    most = std::max(most, sinks + std::max<Index>(0, row + 1 - rule.oldest(shape, row)));
  }
  return exact_tokens(most, p.draw == Draw::kNone ? 0 : most);
}

}  // namespace

AlgorithmDescription describe() {
  TypedAlgorithm<Parameters> d;
  d.id = "cam";
  d.title = "attention sinks and the last tokens, into whose values the others are merged";
  d.source = "CaM (Zhang et al.) and its released code";
  d.derived = {merged_key()};
  using P = Parameters;
  d.parameters = {
      budget_field(&P::budget).required(), sinks_field(&P::sinks),
      field("merge", &P::merge,
            "tokens after an evicted one that take its value, each the fraction 1 / merge")
          .at_least(1)
          .at_most(1e9),
      field("draw", &P::draw,
            {{"bernoulli", Draw::kBernoulli}, {"expected", Draw::kExpected}, {"none", Draw::kNone}},
            "bernoulli: all or nothing; expected: its mean; none: no merging"),
      group_field(&P::group)};
  d.randomised = [](const Parameters& p) { return p.draw == Draw::kBernoulli; };
  d.needs = [](const Parameters& p) { return Needs{.prompt_queries = p.draw != Draw::kNone}; };
  d.skip_reason = [](const Parameters& p, const StreamShape&,
                     Index prompt) -> std::optional<std::string> {
    if (auto reason = empty_budget(p.budget, prompt)) return reason;
    return no_rolling_token(p.budget.of(prompt), p.sinks.of(prompt));
  };
  d.shared_work = [](const Parameters& p, const StreamShape&, Index prompt, std::uint32_t) {
    std::vector<SharedWork> work;
    if (p.draw != Draw::kNone) work.emplace_back(probabilities(p, prompt));
    return work;
  };
  d.most_kept = most_kept;
  d.makes_values = [](const Parameters& p) { return p.draw != Draw::kNone; };
  d.create = [](const Parameters& p, const CellContext& context) {
    return std::make_unique<Cam>(p, context);
  };
  return d;
}

}  // namespace kvbench::methods::cam
