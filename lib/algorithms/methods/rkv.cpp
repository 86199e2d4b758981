// rkv: tokens that the last rows attend to and whose keys no later key resembles: attention minus
// redundancy. It evicts at the end of the prompt, or after every `interval` decode rows as well.
//
// Source: R-KV (Cai et al.) and its released code, Zefan-Cai/R-KV d15c976, rkv/compression/r1_kv.py
// (update_kv) and rkv/utils.py (cal_similarity).
//   budget -> budget, window_size -> window, kernel_size -> kernel, mix_lambda -> lambda,
//   retain threshold -> threshold, divide_length -> interval
// As released: the largest logit of a KV head's query heads is taken before the softmax, which runs
// over the tokens before the window alone, while the softmax of the similarities runs over all; of
// the keys that resemble a key, the newest is not counted against it, and key 0 where there is none
// (retain_direction last).
// Departures: all in double precision; of equal scores the lower token is kept. Not offered:
// compression at a newline, and the retain directions first and percent. The newest queries, which
// streaming stores, count as bookkeeping, 4 bytes a number whatever the cache's width is.
#include <algorithm>
#include <numeric>

#include "algorithms/mechanisms/key_cosine.hpp"
#include "algorithms/mechanisms/observation_window.hpp"
#include "algorithms/mechanisms/softmax.hpp"
#include "kernels/packed_keys.hpp"

namespace kvbench::methods::rkv {
namespace {

enum class Semantics { kOnce, kStreaming };

struct Parameters {
  TokenCount budget;
  Index window = 8;
  Index kernel = 7;
  double lambda = 0.07;
  double threshold = 0.5;
  Index interval = 128;
  Semantics semantics = Semantics::kOnce;
};

using Tokens = std::vector<std::int32_t>;

// The mean over rows [first, last) of the softmax over `tokens` of the largest logit of the query
// heads.
std::vector<double> attention(const Stream& stream, Index first, Index last, const Tokens& tokens) {
  const PackedKeys keys(stream.keys, tokens);
  const std::size_t stride = keys.padded();
  const int heads_per_kv = stream.shape.heads_per_kv;
  std::vector<double> x(heads_per_kv * stride);
  std::vector<double> mean(tokens.size(), 0.0);
  for (Index row = first; row < last; ++row) {
    std::vector<const double*> queries;
    for (int g = 0; g < heads_per_kv; ++g) queries.push_back(stream.query(g, row));
    keys.logits(stream.shape, queries, 0, keys.padded(), x.data(), keys.padded());
    for (int g = 0; g < heads_per_kv; ++g) {
      add_alibi(stream, g, row, tokens, x.data() + g * stride);
    }
    for (std::size_t j = 0; j < tokens.size(); ++j) {
      for (std::size_t g = 1; g < queries.size(); ++g) {
        if (!(x[g * stride + j] <= x[j])) x[j] = x[g * stride + j];  // or what is not a number
      }
    }
    softmax(x.data(), tokens.size());
    for (std::size_t j = 0; j < tokens.size(); ++j) mean[j] += x[j];
  }
  for (double& share : mean) share /= last - first;
  return mean;
}

// The softmax over `tokens` of their keys' mean cosine to the others, each key's row without the
// newest one above the threshold.
std::vector<double> redundancy(const Stream& stream, const Tokens& tokens, double threshold) {
  const std::vector<double> units = unit_keys(keys_of(stream, tokens), stream.shape.d,
                                              [](double length) { return length + 1e-8; });
  std::vector<double> mean(tokens.size(), 0.0);
  for_each_cosine(units, units, stream.shape.d, [&](Index i, double* row) {
    row[i] = 0.0;
    Index newest = std::ssize(tokens) - 1;
    while (newest > 0 && row[newest] <= threshold) --newest;
    row[newest] = 0.0;
    for (std::size_t j = 0; j < mean.size(); ++j) mean[j] += row[j];
  });
  for (double& cosine : mean) cosine /= static_cast<double>(tokens.size());
  softmax(mean.data(), mean.size());
  return mean;
}

Tokens tokens_between(Index first, Index last) {
  Tokens out(last - first);
  std::iota(out.begin(), out.end(), static_cast<std::int32_t>(first));
  return out;
}

// Shared work: both terms over the visible prompt.
struct PromptAttention {
  Index window = 0;

  using Result = std::vector<double>;
  Result compute(const SharedContext& context) const {
    const PromptRange visible = visible_prompt(context.stream.shape, context.prompt);
    return attention(context.stream, visible.last - window, visible.last,
                     tokens_between(visible.first, visible.last - window));
  }
  auto operator<=>(const PromptAttention&) const = default;
};

struct PromptRedundancy {
  double threshold = 0.0;

  using Result = std::vector<double>;
  Result compute(const SharedContext& context) const {
    const PromptRange visible = visible_prompt(context.stream.shape, context.prompt);
    return redundancy(context.stream, tokens_between(visible.first, visible.last), threshold);
  }
  double scratch(const StreamShape& shape, Index prompt) const {
    return cosines_bytes(0, visible_prompt(shape, prompt).size(), shape.d);
  }
  auto operator<=>(const PromptRedundancy&) const = default;
};

bool compresses_prompt(const Parameters& p, const StreamShape& shape, Index prompt) {
  return !keeps_whole_prompt(p.budget.of(prompt), shape, prompt);
}

// Token before which the cache is compressed first where a prompt is kept whole; none if never.
std::optional<Index> first_compression(const Parameters& p, const StreamShape& shape,
                                       Index prompt) {
  if (p.semantics == Semantics::kOnce) return std::nullopt;
  for (Index token = prompt + p.interval; token < shape.tokens; token += p.interval) {
    if (token - shape.first_visible(token - 1) > p.budget.of(prompt)) return token;
  }
  return std::nullopt;
}

class Rkv final : public Algorithm {
 public:
  Rkv(const Parameters& p, const CellContext& context)
      : p_(p), context_(context), budget_(p.budget.of(context.prompt)) {
    const StreamShape& shape = context.stream.shape;
    if (p.semantics == Semantics::kStreaming) {
      sketch_.bookkeeping = p.window * shape.heads_per_kv * shape.d;  // the newest queries
    }
  }

  void finish_prompt() override {
    const StreamShape& shape = context_.stream.shape;
    const PromptRange visible = visible_prompt(shape, context_.prompt);
    sketch_.add_exact(visible.first, visible.last);
    if (!compresses_prompt(p_, shape, context_.prompt)) return;
    keep_best(context_.shared.get(PromptAttention{p_.window}),
              context_.shared.get(PromptRedundancy{p_.threshold}));
  }

  void extend(Index first, Index last) override {
    if (last <= context_.prompt) return;
    for (Index token = first; token < last; ++token) {
      compress_before(token);
      while (sketch_.size() > 0 && sketch_[0].token < context_.stream.shape.first_visible(token)) {
        sketch_.erase(0);
      }
      sketch_.add(SketchRow::exact(token));
    }
  }

  Derived derived() const override { return {{"compressions", compressions_}}; }

 private:
  // After the answer of row token - 1, if it is time.
  void compress_before(Index token) {
    const Index decoded = token - context_.prompt;
    const bool due =
        p_.semantics == Semantics::kStreaming && decoded > 0 && decoded % p_.interval == 0;
    if (!due || sketch_.size() <= budget_) return;
    Tokens kept;
    for (const SketchRow& row : sketch_.rows()) kept.push_back(row.token);
    const Tokens before(kept.begin(), kept.end() - p_.window);
    keep_best(attention(context_.stream, token - p_.window, token, before),
              redundancy(context_.stream, kept, p_.threshold));
  }

  // Keeps the best rows before the window, by attention, and by redundancy, which the window has
  // too.
  void keep_best(const std::vector<double>& attention_shares,
                 const std::vector<double>& similarities) {
    std::vector<double> scores = pooled(attention_shares, p_.kernel, Pool::kMax);
    for (std::size_t j = 0; j < scores.size(); ++j) {
      scores[j] = p_.lambda * scores[j] - (1.0 - p_.lambda) * similarities[j];
    }
    const std::vector<SketchRow> rows = sketch_.rows();
    sketch_.clear();
    for (const Index place : best_tokens(scores, 0, budget_ - p_.window)) {
      sketch_.add(rows[place]);
    }
    for (auto row = rows.end() - p_.window; row != rows.end(); ++row) sketch_.add(*row);
    ++compressions_;
  }

  const Parameters p_;
  const CellContext context_;
  const Index budget_;
  Index compressions_ = 0;
};

std::optional<std::string> skip_reason(const Parameters& p, const StreamShape& shape,
                                       Index prompt) {
  if (auto reason = empty_budget(p.budget, prompt)) return reason;
  const bool at_once = compresses_prompt(p, shape, prompt);
  const std::optional<Index> later = first_compression(p, shape, prompt);
  if (!at_once && !later) return std::nullopt;
  if (auto reason = within_window(p.budget.of(prompt), p.window)) return reason;
  if (at_once) return lacks_prompt_queries(prompt - p.window, shape, prompt);
  return lacks_queries(*later - p.window, shape);
}

std::optional<KeptCounts> most_kept(const Parameters& p, const StreamShape& shape, Index prompt) {
  const Index budget = p.budget.of(prompt);
  if (p.semantics == Semantics::kOnce) return most_kept_once(budget, 0, shape, prompt);
  if (shape.slides()) return std::nullopt;
  Index kept = std::min(prompt, budget);
  Index most = 0;
  for (Index row = prompt; row < shape.tokens; ++row) {
    if (row > prompt && (row - prompt) % p.interval == 0) kept = std::min(kept, budget);
    most = std::max(most, ++kept);
  }
  return exact_tokens(most, p.window * shape.heads_per_kv * shape.d);
}

}  // namespace

AlgorithmDescription describe() {
  TypedAlgorithm<Parameters> d;
  d.id = "rkv";
  d.title = "tokens that the last rows attend to, less those whose keys later keys repeat";
  d.source = "R-KV (Cai et al.) and its released code";
  d.derived = {{"compressions", "times that tokens were evicted"}};
  using P = Parameters;
  d.parameters = {
      budget_field(&P::budget).required(),
      field("window", &P::window,
            "newest rows whose attention ranks the other tokens; they are kept")
          .at_least(1)
          .at_most(1e9),
      field("kernel", &P::kernel, "width of the max pooling along tokens, odd")
          .at_least(1)
          .at_most(1e6),
      field("lambda", &P::lambda, "weight of attention; 1 - lambda is that of redundancy")
          .at_most(1),
      field("threshold", &P::threshold, "cosine above which a key repeats another")
          .at_least(-1)
          .at_most(1),
      field("interval", &P::interval, "decode rows between two compressions, of streaming")
          .at_least(1)
          .at_most(1e9),
      field("semantics", &P::semantics,
            {{"once", Semantics::kOnce}, {"streaming", Semantics::kStreaming}},
            "once: at the end of the prompt; streaming: while decoding as well")};
  d.validate = [](const Parameters& p) { return even_kernel(p.kernel); };
  d.skip_reason = skip_reason;
  d.shared_work = [](const Parameters& p, const StreamShape& shape, Index prompt, std::uint32_t) {
    std::vector<SharedWork> work;
    if (!compresses_prompt(p, shape, prompt)) return work;
    return std::vector<SharedWork>{PromptAttention{p.window}, PromptRedundancy{p.threshold}};
  };
  d.most_kept = most_kept;
  d.only_appends = [](const Parameters& p) { return p.semantics == Semantics::kOnce; };
  d.memory = [](const Parameters& p, const StreamShape& shape, Index prompt) {
    if (p.semantics == Semantics::kOnce) return CellMemory{};
    const Index tokens = std::min(shape.reach(), p.budget.of(prompt) + p.interval);
    return CellMemory{.working = cosines_bytes(0, tokens, shape.d)};
  };
  d.create = [](const Parameters& p, const CellContext& context) {
    return std::make_unique<Rkv>(p, context);
  };
  return d;
}

}  // namespace kvbench::methods::rkv
