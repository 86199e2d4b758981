// lagkv: tokens whose key and value stand out from those of the next `lag` tokens, partition by
// partition; sinks and the last partition stay. No query is looked at.
//
// Source: LagKV (Liang et al., arXiv 2504.04704). `semantics: kvpress` is kvpress 8bb29b9,
// lagkv_press.py, once at the end of the prompt; `semantics: released` is the authors' lag_kv.py
// (2a9d19e), which compresses what decoding appends as well.
//   S (sinks) -> sinks, L (lag) -> lag, r (share kept of a partition) -> ratio
// Departures: a channel that is constant in the reference partition is left out (the codes divide
// by 0). kvpress: a budget below sinks + tail is refused, where equal scores would decide. In a
// partition, the lower token of equal scores ranks higher. On a sliding layer the partitions begin
// at the first visible token after the sinks, and what leaves the window leaves its place to
// others.
// Compared on the shipped dump in double precision: kvpress 0.5.5 (LagKVPress; by
// tests/peers) keeps the same tokens, errors per row equal to 9 digits at least, where the budget
// takes the same number of every partition: of equal ranks torch's topk keeps any, this code the
// oldest.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "algorithms/mechanisms/group_rule.hpp"
#include "algorithms/mechanisms/softmax.hpp"
#include "algorithms/mechanisms/token_ranking.hpp"
#include "numerics/canonical.hpp"

namespace kvbench::methods::lagkv {
namespace {

enum class Semantics { kKvpress, kReleased };

struct Parameters {
  std::optional<TokenCount> budget;  // kvpress only
  double ratio = 0.5;                // released only
  Semantics semantics = Semantics::kKvpress;
  std::optional<TokenCount> sinks;  // none: as the code has it
  Index lag = 128;
  double value_weight = 1.0;  // released only
  bool cross = false;         // kvpress only
};

bool released(const Parameters& p) { return p.semantics == Semantics::kReleased; }

Index sinks_of(const Parameters& p, Index prompt) {
  return p.sinks ? p.sinks->of(prompt) : released(p) ? 16 : 4;
}

// Range that one channel is measured by: the smallest and largest number of the reference.
struct Channel {
  Index c;
  double lo;
  double hi;
};

std::vector<Channel> varying_channels(ConstMatrix rows, const std::vector<Index>& reference) {
  std::vector<Channel> channels;
  for (Index c = 0; c < rows.cols; ++c) {
    Channel channel{c, rows(reference.front(), c), rows(reference.front(), c)};
    for (const Index token : reference) {
      channel.lo = std::min(channel.lo, rows(token, c));
      channel.hi = std::max(channel.hi, rows(token, c));
    }
    if (channel.hi > channel.lo) channels.push_back(channel);
  }
  return channels;
}

// Over the channels, each mapped so that the reference spans [0, 1]; divisor: channels - 1.
double deviation(const double* x, const std::vector<Channel>& channels) {
  const double count = channels.size();
  if (count < 2.0) return 0.0;
  const auto place = [x](const Channel& channel) {
    return (x[channel.c] - channel.lo) / (channel.hi - channel.lo);
  };
  double sum = 0.0;
  for (const Channel& channel : channels) sum += place(channel);
  const double mean = sum / count;
  double squares = 0.0;
  for (const Channel& channel : channels) {
    const double off = place(channel) - mean;
    squares = fused(off, off, squares);
  }
  return std::sqrt(squares / (count - 1.0));
}

// Softmax over a partition's tokens of their deviations.
std::vector<double> lag_scores(ConstMatrix rows, const std::vector<Index>& partition,
                               const std::vector<Index>& reference) {
  const std::vector<Channel> channels = varying_channels(rows, reference);
  std::vector<double> scores;
  for (const Index token : partition) scores.push_back(deviation(rows.row(token), channels));
  softmax(scores.data(), scores.size(), "scores of tokens");
  return scores;
}

std::vector<Index> tokens_from(Index first, Index count) {
  std::vector<Index> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// The rank of each score over their number, 0 the lowest; of equal ones the first ranks higher.
std::vector<double> relative_ranks(const std::vector<double>& scores) {
  std::vector<std::size_t> order(scores.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return scores[a] != scores[b] ? scores[a] < scores[b] : a > b;
  });
  std::vector<double> ranks(scores.size());
  for (std::size_t r = 0; r < order.size(); ++r) {
    ranks[order[r]] = r / static_cast<double>(order.size());
  }
  return ranks;
}

// kvpress: scores of the tokens behind the sinks.
std::vector<double> prompt_scores(const Parameters& p, const Stream& stream, PromptRange range) {
  const Index count = range.size();
  std::vector<double> out;
  if (count < 2 * p.lag) {
    for (Index j = 0; j < count; ++j) {
      out.push_back(j / static_cast<double>(count));
    }
    return out;
  }
  for (Index first = range.first; first + 2 * p.lag <= range.last; first += p.lag) {
    const std::vector<Index> partition = tokens_from(first, p.lag);
    const std::vector<Index> reference = tokens_from(first + p.lag, p.lag);
    std::vector<double> scores = lag_scores(stream.keys, partition, reference);
    const std::vector<double> of_values = lag_scores(stream.values, partition, reference);
    for (std::size_t j = 0; j < scores.size(); ++j) scores[j] = (scores[j] + of_values[j]) / 2.0;
    if (!p.cross) scores = relative_ranks(scores);
    out.insert(out.end(), scores.begin(), scores.end());
  }
  out.resize(count, 1.0);
  return out;
}

class ReleasedLagKv final : public Algorithm {
 public:
  ReleasedLagKv(const Parameters& p, const CellContext& context)
      : context_(context), p_(p), settled_(sinks_of(p, context.prompt)) {}

  void extend(Index first, Index last) override {
    if (last <= context_.prompt) return;
    for (Index token = first; token < last; ++token) {
      compress();  // the row before is answered
      drop_invisible(token);
      sketch_.add(SketchRow::exact(token));
    }
  }

  void finish_prompt() override {
    const PromptRange visible = visible_prompt(context_.stream.shape, context_.prompt);
    settled_ = std::max<Index>(0, settled_ - visible.first);
    sketch_.add_exact(visible.first, visible.last);
    compress();
  }

 private:
  void drop_invisible(Index row) {
    const Index lo = context_.stream.shape.first_visible(row);
    Index gone = 0;
    while (gone < sketch_.size() && sketch_[gone].token < lo) ++gone;
    sketch_.erase(0, gone);
    settled_ = std::max<Index>(0, settled_ - gone);
  }

  // Keeps the best of every partition that has a whole one behind it, for good.
  void compress() {
    if (sketch_.size() < settled_ + 2 * p_.lag) return;
    std::vector<Index> held;
    for (const SketchRow& row : sketch_.rows()) held.push_back(row.token);
    std::vector<Index> kept(held.begin(), held.begin() + settled_);
    auto next = held.begin() + settled_;
    for (; held.end() - next >= 2 * p_.lag; next += p_.lag) {
      for (const Index token : best_of({next, next + p_.lag}, {next + p_.lag, next + 2 * p_.lag})) {
        kept.push_back(token);
      }
    }
    settled_ = std::ssize(kept);
    kept.insert(kept.end(), next, held.end());
    sketch_.clear();
    for (const Index token : kept) sketch_.add(SketchRow::exact(token));
  }

  std::vector<Index> best_of(const std::vector<Index>& partition,
                             const std::vector<Index>& reference) const {
    std::vector<double> scores = lag_scores(context_.stream.keys, partition, reference);
    const std::vector<double> of_values = lag_scores(context_.stream.values, partition, reference);
    for (std::size_t j = 0; j < scores.size(); ++j) {
      scores[j] = fused(p_.value_weight, of_values[j], scores[j]);
    }
    const auto count = static_cast<Index>(p_.ratio * static_cast<double>(p_.lag));
    return within_budget(partition, {.budget = count}, scores);
  }

  const CellContext context_;
  Parameters p_;
  Index settled_;  // rows of the sketch that are not compressed again: sinks, and what was kept
};

std::optional<std::string> cannot_lag(const Parameters& p, const StreamShape& shape, Index prompt) {
  if (released(p)) return std::nullopt;
  const Index sinks = sinks_of(p, prompt);
  if (auto reason = cannot_compress(*p.budget, sinks, 0, shape, prompt)) return reason;
  const Index budget = p.budget->of(prompt);
  const CompressedPrompt parts = compressed_prompt(shape, prompt, sinks, 0);
  const Index behind = parts.middle.size();
  const Index tail = behind < 2 * p.lag ? 0 : p.lag + behind % p.lag;
  const Index exact = parts.visible.size() - behind + tail;
  if (keeps_whole_prompt(budget, shape, prompt) || budget >= exact) return std::nullopt;
  return "budget of " + std::to_string(budget) +
         " tokens is smaller than sinks + tail = " + std::to_string(exact) +
         "; the tail is the last whole partition and what is behind it";
}

std::optional<std::pair<std::string, std::string>> invalid(const Parameters& p) {
  const auto of_released = [](const char* what) {
    return std::string(what) + " semantics: released";
  };
  if (released(p)) {
    if (p.budget) return std::pair{"budget", "is of semantics: kvpress; give ratio"};
    if (p.cross) return std::pair{"cross", "is of semantics: kvpress; leave it out"};
    return std::nullopt;
  }
  if (!p.budget) {
    return std::pair{"budget", "semantics: kvpress needs one; " + of_released("ratio is of")};
  }
  if (p.value_weight != 1.0) return std::pair{"value_weight", of_released("is of")};
  return std::nullopt;
}

std::unique_ptr<Algorithm> create(const Parameters& p, const CellContext& context) {
  if (released(p)) return std::make_unique<ReleasedLagKv>(p, context);
  const BudgetParts parts{p.budget->of(context.prompt), sinks_of(p, context.prompt), 0};
  return std::make_unique<RankedPrompt>(context, parts,
                                        [p, &stream = context.stream](PromptRange middle) {
                                          return prompt_scores(p, stream, middle);
                                        });
}

}  // namespace

AlgorithmDescription describe() {
  TypedAlgorithm<Parameters> d;
  d.id = "lagkv";
  d.title = "tokens that stand out from the next tokens' keys and values";
  d.source = "LagKV (Liang et al.)";
  d.derived = RankedPrompt::derived_keys();
  using P = Parameters;
  d.parameters = {
      field("semantics", &P::semantics,
            {{"kvpress", Semantics::kKvpress}, {"released", Semantics::kReleased}},
            "kvpress: once, to a budget; released: the authors' code, which also evicts decoded "
            "tokens"),
      budget_field(&P::budget),
      field("ratio", &P::ratio, "released: fraction of each partition that is kept").at_most(1),
      field("sinks", &P::sinks,
            "first tokens of the sequence; always kept; auto: 4 in kvpress, 16 as released")
          .or_word("auto"),
      field("lag", &P::lag, "tokens of a partition; the next one is its reference").at_least(1),
      field("value_weight", &P::value_weight, "released: weight of the values' score"),
      field("cross", &P::cross,
            "kvpress: scores themselves are compared, not their ranks in the partitions")};
  d.exactly_one_of = {{{{"budget"}, {"ratio"}}}};
  d.validate = invalid;
  d.skip_reason = cannot_lag;
  d.most_kept = [](const Parameters& p, const StreamShape& shape,
                   Index prompt) -> std::optional<KeptCounts> {
    if (!p.budget) return std::nullopt;
    return most_kept_once(p.budget->of(prompt), 0, shape, prompt);
  };
  d.ranks = [](const P& p, const StreamShape&, Index prompt) {
    return BudgetParts{p.budget ? p.budget->of(prompt) : 0, sinks_of(p, prompt), 0};
  };
  d.only_appends = [](const Parameters& p) { return !released(p); };
  d.create = create;
  return d;
}

}  // namespace kvbench::methods::lagkv
