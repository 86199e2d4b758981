// triattention: tokens whose keys the mean query will meet at a favourable distance, by calibrated
// queries before their rotation; whenever `interval` tokens exceed the budget, it is restored.
//
// Source: TriAttention (Mao et al., arXiv 2604.04921) by its released code, WeianMao/triattention
// c3744ee, methods/triattention.py, methods/pruning_utils.py and scripts/calibrate.py; the paper's
// abstract and introduction were read, its other sections were not at hand.
//   q_f, k_f: pair f of a query or key before rotation, as complex numbers; w_f its frequency
//   E q_f, E |q_f| over calibrated queries         -> mean, length
//   delta = position - token + o, o = 1, 2, 4, ..  -> o up to future
//   S = sum_f |E q_f| |k_f| cos(w_f delta + phi_f) + sum_f (E |q_f| - |E q_f|) |k_f|
//   divide_length -> interval, offset_max_length -> future, score_aggregation -> aggregate,
//   normalize_scores -> normalize, layer_perhead_aggregation -> group, disable_trig -> series,
//   disable_mlr -> lengths, window_size (vLLM's part) -> recent,
//   per_head_pruning -> scope: model, per_layer_perhead_pruning -> scope: head
// The series is computed as an inner product: the mean query, turned to position + o, times the key
// as the cache has it. Scores of a query head are standardised over the tokens held; KV heads take
// the largest of their group, with scope: model its mean over the layers.
// Departures: the prompt is compressed at its end, where the release (allow_prefill_compression,
// count_prompt_tokens, slack trigger) waits for one decoded token; it may also keep the whole
// prompt whatever the budget. Its noise of 1e-6 against ties is left out: of equal scores the lower
// token is kept. Without a file the queries of the visible prompt calibrate. Not offered: the
// trigger by positions, one set for all heads (union of theirs).
#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "algorithms/mechanisms/expected_queries.hpp"
#include "algorithms/mechanisms/group_rule.hpp"
#include "algorithms/mechanisms/token_ranking.hpp"
#include "core/rotation.hpp"
#include "numerics/canonical.hpp"
#include "system/parallel.hpp"
#include "system/stop.hpp"

namespace kvbench::methods::triattention {
namespace {

constexpr double kMinDeviation = 1e-6;  // as released

enum class Aggregate { kMean, kMax };  // over later positions
enum class Lengths { kRest, kAll };    // E |q_f| - |E q_f|, or E |q_f|
enum class Scope { kHead, kModel };

struct Parameters {
  TokenCount budget;
  TokenCount recent = 0;
  Index interval = 128;
  Index future = 65536;
  Aggregate aggregate = Aggregate::kMean;
  bool series = true;
  Lengths lengths = Lengths::kRest;
  bool normalize = true;
  GroupRule group = GroupRule::kMax;
  Scope scope = Scope::kHead;
  OptionalCalibration calibration;

  auto operator<=>(const Parameters&) const = default;
};

bool whole_model(const Parameters& p) { return p.scope == Scope::kModel; }

using Vector = std::vector<double>;

// Two dimensions of a vector that RoPE turns together.
std::pair<Index, Index> pair_of(const Rope& rope, Index f) {
  const Index pairs = std::ssize(rope.inv_freq);
  return rope.interleaved ? std::pair{2 * f, 2 * f + 1} : std::pair{f, f + pairs};
}

Vector lengths_of(const Rope& rope, const double* vector) {
  Vector out;
  for (Index f = 0; f < std::ssize(rope.inv_freq); ++f) {
    const auto [a, b] = pair_of(rope, f);
    out.push_back(std::sqrt(vector[a] * vector[a] + vector[b] * vector[b]));
  }
  return out;
}

// By query head: means over calibrated queries.
struct Queries {
  std::vector<Vector> mean;    // [d], before rotation
  std::vector<Vector> length;  // [d / 2], of each pair
};

std::optional<std::string> lacks_series(const StreamShape& shape) {
  if (shape.rope == nullptr) {
    return "triattention scores by distances that RoPE turns, but the dump has no RoPE data for "
           "this layer";
  }
  const Index turned = 2 * std::ssize(shape.rope->inv_freq);
  if (turned == shape.d) return std::nullopt;
  return "triattention has a frequency for every pair of dimensions, but RoPE turns " +
         std::to_string(turned) + " of " + std::to_string(shape.d);
}

std::optional<std::string> lacks_queries_of(const StreamShape& shape, Index prompt) {
  if (auto reason = lacks_series(shape)) return reason;
  const PromptRange rows = visible_prompt(shape, prompt);
  if (rows.size() == 0) return "queries of the prompt calibrate, which has none";
  return lacks_prompt_queries(rows.first, shape, prompt);
}

Queries queries_of(const CalibrationTexts& texts) {
  const auto rows_of = [](const Stream& stream, Index prompt) {
    require_none(lacks_queries_of(stream.shape, prompt));
    return visible_prompt(stream.shape, prompt);
  };
  Queries out;
  out.mean = unrotated_queries(texts, rows_of, false).mean;
  out.length.assign(out.mean.size(), Vector(texts.d / 2, 0.0));
  Index total = 0;
  texts.for_each([&](const Stream& stream, Index prompt) {
    const PromptRange rows = rows_of(stream, prompt);
    total += rows.size();
    for (Index row = rows.first; row < rows.last; ++row) {
      for (std::size_t g = 0; g < out.length.size(); ++g) {
        const Vector own = lengths_of(*stream.shape.rope, stream.query(static_cast<int>(g), row));
        for (std::size_t f = 0; f < own.size(); ++f) out.length[g][f] += own[f];
      }
    }
  });
  for (Vector& length : out.length) {
    for (double& x : length) x /= total;
  }
  return out;
}

Queries read_queries(const OptionalCalibration& calibration, const Stream& stream, Index prompt) {
  if (!calibration) return queries_of(one_text(stream, prompt));
  require_none(lacks_series(stream.shape));
  const Index heads = stream.shape.heads_per_kv;
  const Index d = stream.shape.d;
  Queries out;
  const Vector mean = calibrated(*calibration, stream, "mean", {heads, d});
  const Vector length = calibrated(*calibration, stream, "length", {heads, d / 2});
  for (Index g = 0; g < heads; ++g) {
    out.mean.emplace_back(mean.begin() + g * d, mean.begin() + (g + 1) * d);
    out.length.emplace_back(length.begin() + g * (d / 2), length.begin() + (g + 1) * (d / 2));
  }
  return out;
}

// Shared work: calibrated queries of the KV head.
struct CalibratedQueries {
  OptionalCalibration calibration;

  using Result = Queries;
  Result compute(const SharedContext& context) const {
    return read_queries(calibration, context.stream, context.prompt);
  }
  auto operator<=>(const CalibratedQueries&) const = default;
};

// The mean query at each later position that counts; one vector, their mean, if means are taken.
std::vector<Vector> later_queries(const Parameters& p, const Rope& rope, const Vector& mean,
                                  Index position) {
  std::vector<Vector> out;
  for (Index offset = 1; offset <= p.future; offset *= 2) {
    Vector& turned = out.emplace_back(mean.size());
    Turn(rope, position + offset).apply(mean.data(), std::ssize(mean), turned.data());
  }
  if (p.aggregate == Aggregate::kMax) return out;
  for (std::size_t k = 0; k < mean.size(); ++k) {
    for (std::size_t o = 1; o < out.size(); ++o) out.front()[k] += out[o][k];
    out.front()[k] /= static_cast<double>(out.size());
  }
  out.resize(1);
  return out;
}

void standardise(Vector& scores) {
  const double count = scores.size();
  double mean = 0.0;
  for (const double x : scores) mean += x;
  mean /= count;
  double squares = 0.0;
  for (const double x : scores) squares += (x - mean) * (x - mean);
  const double deviation = std::max(std::sqrt(squares / count), kMinDeviation);
  for (double& x : scores) x = (x - mean) / deviation;
}

// Scores of the tokens held when the next token is at `position`, combined over the group.
Vector scores_of(const Parameters& p, const Stream& stream, const Queries& queries,
                 const std::vector<Index>& held, Index position) {
  const Rope& rope = *stream.shape.rope;
  std::vector<Vector> scores;
  for (std::size_t g = 0; g < queries.mean.size(); ++g) {
    const std::vector<Vector> later = later_queries(p, rope, queries.mean[g], position);
    Vector weights = queries.length[g];
    if (p.lengths == Lengths::kRest) {
      const Vector of_mean = lengths_of(rope, queries.mean[g].data());
      for (std::size_t f = 0; f < weights.size(); ++f) weights[f] -= of_mean[f];
    }
    Vector& own = scores.emplace_back(held.size());
    parallel_for(std::ssize(held), [&](Index i) {
      const double* key = stream.keys.row(held[i]);
      const Vector lengths = lengths_of(rope, key);
      double series = 0.0;
      for (std::size_t o = 0; p.series && o < later.size(); ++o) {
        const double product = canonical_dot(later[o].data(), key, stream.shape.d);
        series = o == 0 ? product : std::max(series, product);
      }
      own[i] = series + canonical_dot(weights.data(), lengths.data(), std::ssize(lengths));
    });
    if (p.normalize) standardise(own);
  }
  Vector out;
  combine(p.group, scores, held.size(), out);
  check_ranked(out);
  return out;
}

// Held tokens from which the budget is restored.
Index full(const Parameters& p, Index prompt) { return p.budget.of(prompt) + p.interval; }

BudgetParts parts_of(const Parameters& p, Index prompt) {
  return {p.budget.of(prompt), 0, p.recent.of(prompt)};
}

// Model work: tokens that stay when the budget is restored, by the position of the next token, then
// by KV head: the same in all layers.
struct SharedCuts {
  Parameters p;

  using Kept = std::map<int, std::vector<Index>>;
  using Result = std::map<Index, Kept>;

  Result compute(const ModelContext& context) const {
    std::map<std::pair<int, int>, Queries> queries;
    Kept held;
    context.for_each_stream([&](const Stream& stream) {
      std::vector<Index>& tokens = held[stream.id.kv_head];
      tokens.clear();
      for (Index j = 0; j < context.prompt; ++j) tokens.push_back(j);
    });
    Result out;
    for (Index next = context.prompt; next < context.tokens; ++next) {
      if (std::ssize(held.begin()->second) >= full(p, context.prompt)) {
        held = restored(context, held, next, queries);
        out[next] = held;
      }
      for (auto& [kv_head, tokens] : held) tokens.push_back(next);
    }
    return out;
  }
  double bytes(const ScopeSize& size) const {
    return 8.0 * size.streams * (2 * size.tokens + 2 * size.heads_per_kv * size.d);
  }
  auto operator<=>(const SharedCuts&) const = default;

 private:
  Kept restored(const ModelContext& context, const Kept& held, Index next,
                std::map<std::pair<int, int>, Queries>& queries) const {
    std::map<int, Vector> sums;
    context.for_each_stream([&](const Stream& stream) {
      throw_if_stopped();
      const auto key = std::pair{stream.id.layer, stream.id.kv_head};
      if (!queries.contains(key)) {
        queries[key] = read_queries(p.calibration, stream, context.prompt);
      }
      const std::vector<Index>& tokens = held.at(stream.id.kv_head);
      const Vector scores = scores_of(p, stream, queries.at(key), tokens, next);
      Vector& sum = sums[stream.id.kv_head];
      sum.resize(tokens.size(), 0.0);
      for (std::size_t j = 0; j < sum.size(); ++j) sum[j] += scores[j];
    });
    Kept out;
    for (const auto& [kv_head, tokens] : held) {
      out[kv_head] = within_budget(tokens, parts_of(p, context.prompt), sums.at(kv_head));
    }
    return out;
  }
};

class Triattention final : public Algorithm {
 public:
  Triattention(const Parameters& p, const CellContext& context)
      : p_(p), context_(context), full_(full(p, context.prompt)) {}

  void finish_prompt() override {
    const PromptRange visible = visible_prompt(context_.stream.shape, context_.prompt);
    sketch_.add_exact(visible.first, visible.last);
    restore(context_.prompt);
  }

  void extend(Index first, Index last) override {
    if (last <= context_.prompt) return;
    for (Index token = first; token < last; ++token) {
      restore(token);  // the row before is answered
      while (sketch_.size() > 0 && sketch_[0].token < context_.stream.shape.first_visible(token)) {
        sketch_.erase(0);
      }
      sketch_.add(SketchRow::exact(token));
    }
  }

  Derived derived() const override { return {{"compressions", compressions_}}; }

 private:
  void restore(Index next) {
    if (sketch_.size() < full_) return;
    std::vector<Index> held;
    for (const SketchRow& row : sketch_.rows()) held.push_back(row.token);
    const std::vector<Index> kept = chosen(held, next);
    sketch_.clear();
    for (const Index token : kept) sketch_.add(SketchRow::exact(token));
    ++compressions_;
  }

  std::vector<Index> chosen(const std::vector<Index>& held, Index next) const {
    if (whole_model(p_)) {
      return context_.shared.get(SharedCuts{p_}).at(next).at(context_.stream.id.kv_head);
    }
    const Queries& queries = context_.shared.get(CalibratedQueries{p_.calibration});
    return within_budget(held, parts_of(p_, context_.prompt),
                         scores_of(p_, context_.stream, queries, held, next));
  }

  const Parameters p_;
  const CellContext context_;
  const Index full_;
  Index compressions_ = 0;
};

// Whether the budget is restored at all.
bool compresses(const Parameters& p, const StreamShape& shape, Index prompt) {
  return std::min(shape.tokens - 1, shape.reach()) >= full(p, prompt);
}

std::optional<std::string> cannot_score(const Parameters& p, const StreamShape& shape,
                                        Index prompt) {
  if (auto reason = empty_budget(p.budget, prompt)) return reason;
  if (whole_model(p) && shape.slides()) {
    return "scope: model keeps one set in layers that see the whole prompt, and this one has a "
           "sliding window";
  }
  if (!compresses(p, shape, prompt)) return std::nullopt;
  const BudgetParts parts = parts_of(p, prompt);
  if (parts.budget < parts.recent) return smaller_budget(parts.budget, 0, parts.recent);
  return p.calibration ? lacks_series(shape) : lacks_queries_of(shape, prompt);
}

std::optional<KeptCounts> most_kept(const Parameters& p, const StreamShape& shape, Index prompt) {
  if (shape.slides()) return std::nullopt;
  const Index start = prompt >= full(p, prompt) ? p.budget.of(prompt) : prompt;
  return exact_tokens(std::min(start + shape.tokens - prompt, full(p, prompt)));
}

ParameterTable<Parameters> parameter_table() {
  using P = Parameters;
  return {
      budget_field(&P::budget).required(),
      recent_field(&P::recent),
      field("interval", &P::interval, "tokens beyond the budget at which it is restored")
          .at_least(1)
          .at_most(1e9),
      field("future", &P::future,
            "scores look 1, 2, 4, .. positions ahead of the next token, up to this many")
          .at_least(1)
          .at_most(1e9),
      field("aggregate", &P::aggregate, {{"mean", Aggregate::kMean}, {"max", Aggregate::kMax}},
            "how the scores of these positions are combined"),
      field("series", &P::series, "false: lengths of keys alone, not their distances"),
      field("lengths", &P::lengths, {{"rest", Lengths::kRest}, {"all", Lengths::kAll}},
            "weight of a key's length in a frequency: of the queries' mean length, the rest that "
            "their mean lacks, or all"),
      field("normalize", &P::normalize,
            "scores of a query head over the tokens held get mean 0 and deviation 1"),
      group_field(&P::group),
      field("scope", &P::scope, {{"head", Scope::kHead}, {"model", Scope::kModel}},
            "model: a KV head keeps the same tokens in all selected layers, by the mean of their "
            "scores"),
      calibration_field(&P::calibration)};
}

}  // namespace

AlgorithmDescription describe() {
  TypedAlgorithm<Parameters> d;
  d.id = "triattention";
  d.title = "tokens at distances that the mean query before rotation prefers, in intervals";
  d.source = "TriAttention (Mao et al.)";
  d.derived = {{"compressions", "times that tokens were evicted"}};
  d.parameters = parameter_table();
  d.limits.alibi = "triattention scores tokens by RoPE's distances alone";
  d.validate = [](const Parameters& p) -> std::optional<std::pair<std::string, std::string>> {
    if (!whole_model(p) || !p.budget.is_unsolved()) return std::nullopt;
    return std::pair{
        "budget",
        "cannot be given as memory with scope: model, whose layers share one set and may differ "
        "in memory; give a number of tokens"};
  };
  d.skip_reason = cannot_score;
  d.replay_scope = [](const Parameters& p) {
    return whole_model(p) ? ReplayScope::kModel : ReplayScope::kHead;
  };
  d.model_work = [](const Parameters& p, std::uint32_t) { return SharedCuts{p}; };
  d.shared_work = [](const Parameters& p, const StreamShape& shape, Index prompt, std::uint32_t) {
    if (whole_model(p) || !compresses(p, shape, prompt)) return std::vector<SharedWork>{};
    return std::vector<SharedWork>{CalibratedQueries{p.calibration}};
  };
  d.most_kept = most_kept;
  d.calibrate = [](const Parameters&, const CalibrationTexts& texts) {
    const Queries queries = queries_of(texts);
    const auto joined = [](const std::vector<Vector>& heads) {
      Vector out;
      for (const Vector& each : heads) out.insert(out.end(), each.begin(), each.end());
      return out;
    };
    const Index heads = texts.heads_per_kv;
    return CalibratedNumbers{{"mean", {{heads, texts.d}, joined(queries.mean)}},
                             {"length", {{heads, texts.d / 2}, joined(queries.length)}}};
  };
  d.create = [](const Parameters& p, const CellContext& context) {
    return std::make_unique<Triattention>(p, context);
  };
  return d;
}

}  // namespace kvbench::methods::triattention
