// compactor: tokens whose keys stand out from the others' before rotation (leverage scores of a
// random sketch). This score is blended with the attention that queries of the same chunk pay them,
// without a causal mask. No question is looked at.
//
// Source: Compactor (Chari and Van Durme, arXiv 2507.08143) as kvpress 0.5.5 has it
// (CompactorPress; `score` leverage and attention are its LeverageScorePress and
// NonCausalAttnPress).
//   sink_size_start, sink_size_end -> sinks, recent; chunk_size -> chunk; sketch_dimension ->
//   sketch, Phi -> a Gaussian [d, sketch] matrix of each KV head over sqrt(sketch); blending ->
//   blend
// Over the tokens between sinks and recent ones, X their keys before rotation less the mean key,
// times Phi: leverage_j = x_j^T (X^T X + 1e-2 I)^-1 x_j. attention_j: column sums of the softmax of
// <q, k>, without the model's scale, within chunks, mean over the group, times |v_j|, averaged over
// three tokens. Both are brought to mean 0 and deviation 1 over all KV heads of the layer, and
// blend leverage + attention ranks. blend auto: 1 - budget / P, as kvpress takes the part that
// goes. As in kvpress the last chunk is filled up with keys and queries of zeros, which take part:
// its mask of keys is a logit of -1e-9. Departures: `sketch` 0 takes the keys themselves, exact
// leverage scores; sinks and recent tokens are kept by rule (kvpress gives them the largest score).
// The paper's own leverage scores are by singular vectors, and its blend is another. No calibration
// file is taken: leverage is a token's part in the Gram matrix of its own prompt, and attention is
// the prompt's own; with other texts' numbers neither would be what the paper names. Compared on
// the shipped dump in double precision by `tests/peers/run.sh`: kvpress 0.5.5 keeps the same
// tokens, its random sketch replaced by none.
#include <algorithm>
#include <cmath>
#include <optional>

#include "algorithms/mechanisms/layer_scores.hpp"
#include "algorithms/mechanisms/observation_window.hpp"
#include "core/rotation.hpp"
#include "kernels/least_squares.hpp"
#include "kernels/packed_keys.hpp"
#include "numerics/canonical.hpp"
#include "numerics/counter_rng.hpp"
#include "numerics/random_matrix.hpp"
#include "system/error.hpp"
#include "system/parallel.hpp"
#include "system/stop.hpp"

namespace kvbench::methods::compactor {
namespace {

constexpr double kRidge = 1e-2;         // ridge of X^T X
constexpr double kMinDeviation = 1e-6;  // deviation of scores
constexpr double kPaddedLogit = -1e-9;

enum class Score { kBoth, kLeverage, kAttention };

struct Parameters {
  TokenCount budget;
  TokenCount sinks = 8;
  TokenCount recent = 4;
  Index chunk = 256;
  Index sketch = 48;
  std::optional<double> blend;  // none: 1 - budget / P
  Score score = Score::kBoth;
};

bool has_leverage(const Parameters& p) { return p.score != Score::kAttention; }
bool has_attention(const Parameters& p) { return p.score != Score::kLeverage; }

using Vector = std::vector<double>;

// Keys before rotation less their mean, [tokens, d].
Vector centred_keys(const Stream& stream, PromptRange tokens) {
  const Index d = stream.shape.d;
  Vector keys(tokens.size() * d);
  Vector mean(d, 0.0);
  for (Index j = 0; j < tokens.size(); ++j) {
    const Index token = tokens.first + j;
    double* key = keys.data() + j * d;
    Turn(*stream.shape.rope, -static_cast<double>(token)).apply(stream.keys.row(token), d, key);
    for (Index c = 0; c < d; ++c) mean[c] += key[c];
  }
  for (double& each : mean) each /= static_cast<double>(tokens.size());
  for (std::size_t k = 0; k < keys.size(); ++k) keys[k] -= mean[k % mean.size()];
  return keys;
}

Vector leverages(const Stream& stream, PromptRange tokens, Index sketch, std::uint32_t seed) {
  const Index d = stream.shape.d;
  Vector x = centred_keys(stream, tokens);
  Index columns = d;
  if (sketch > 0) {
    const CounterRng random(seed, stream.id.hash(), "compactor/sketch");
    const double size = 1.0 / std::sqrt(static_cast<double>(sketch));
    const Vector rows = normal_matrix(random, sketch, d);
    Vector phi;
    for (Index c = 0; c < d; ++c) {
      for (Index k = 0; k < sketch; ++k) {
        phi.push_back(size * rows[k * d + c]);
      }
    }
    columns = sketch;
    Vector sketched(tokens.size() * columns);
    multiply({x.data(), tokens.size(), d}, {phi.data(), d, columns},
             {sketched.data(), tokens.size(), columns});
    x = std::move(sketched);
  }
  const ConstMatrix rows(x.data(), tokens.size(), columns);
  Vector gram(columns * columns, 0.0);
  add_gram(rows, {gram.data(), columns, columns});
  const auto factor = Cholesky::of({gram.data(), columns, columns}, kRidge);
  if (!factor) {
    throw CellError(
        "the Gram matrix of the sketched keys is not positive definite in double "
        "precision: keys too large for its ridge of 0.01, or sums that overflow");
  }
  return quadratic_forms(*factor, rows);
}

constexpr Index kRowsAtOnce = 6;

// Adds to `sums` [chunk] what the queries of one chunk and query head pay each of its tokens.
void add_chunk(const Stream& stream, int g, PromptRange chunk, Index padded, double* sums) {
  const PackedKeys keys(stream.keys, chunk.first, chunk.last);
  StreamShape plain;  // scale 1, no cap
  plain.d = stream.shape.d;
  const std::size_t count = chunk.size();
  Vector block(kRowsAtOnce * keys.padded());
  const double others = padded;
  for (Index row = chunk.first; row < chunk.last; ++row) {
    const Index place = (row - chunk.first) % kRowsAtOnce;
    if (place == 0) {
      std::vector<const double*> queries;
      for (Index each = row; each < std::min(row + kRowsAtOnce, chunk.last); ++each) {
        queries.push_back(stream.query(g, each));
      }
      keys.logits(plain, queries, 0, keys.padded(), block.data(), keys.padded());
    }
    double* x = block.data() + place * keys.padded();
    double most = padded > 0 ? kPaddedLogit : x[0];
    for (std::size_t j = 0; j < count; ++j) {
      if (!std::isfinite(x[j])) throw CellError("logits of the prompt overflow");
      most = std::max(most, x[j]);
    }
    double sum = others * canonical_exp(kPaddedLogit - most);
    for (std::size_t j = 0; j < count; ++j) sum += x[j] = canonical_exp(x[j] - most);
    for (std::size_t j = 0; j < count; ++j) sums[j] += x[j] / sum;
  }
  const double of_padded = 1.0 / (count + others * canonical_exp(kPaddedLogit));
  for (std::size_t j = 0; j < count; ++j) sums[j] += others * of_padded;
}

Vector attention(const Stream& stream, PromptRange tokens, Index chunk) {
  const Index chunks = (tokens.size() + chunk - 1) / chunk;
  const Index padded = chunks * chunk - tokens.size();
  Vector scores(tokens.size(), 0.0);
  parallel_for(chunks, [&](Index c) {
    const Index first = tokens.first + c * chunk;
    const PromptRange part{first, std::min(first + chunk, tokens.last)};
    double* sums = scores.data() + c * chunk;
    for (int g = 0; g < stream.shape.heads_per_kv; ++g) {
      add_chunk(stream, g, part, part.size() < chunk ? padded : 0, sums);
    }
    for (Index j = 0; j < part.size(); ++j) {
      const double* value = stream.values.row(first + j);
      sums[j] = sums[j] / stream.shape.heads_per_kv *
                std::sqrt(canonical_dot(value, value, stream.shape.dv));
    }
  });
  return pooled(scores, 3, Pool::kAverage);
}

// Less the mean, over the unbiased deviation, of the numbers of all KV heads together.
void standardise(const std::vector<Vector*>& heads) {
  double count = 0.0;
  double sum = 0.0;
  for (const Vector* head : heads) {
    count += head->size();
    for (const double x : *head) sum += x;
  }
  const double mean = sum / count;
  double squares = 0.0;
  for (const Vector* head : heads) {
    for (const double x : *head) squares += (x - mean) * (x - mean);
  }
  const double deviation = std::max(kMinDeviation, std::sqrt(squares / std::max(1.0, count - 1.0)));
  for (Vector* head : heads) {
    for (double& x : *head) x = (x - mean) / deviation;
  }
}

// Scores of the tokens between sinks and recent ones; empty where the cell is skipped.
struct BothScores {
  int kv_head = 0;
  Vector leverage;
  Vector attention;
};

// Model work: serves every budget and blend.
struct LayerBothScores {
  TokenCount sinks;
  TokenCount recent;
  Index chunk = 0;   // 0: no attention
  Index sketch = 0;  // -1: no leverage
  std::uint32_t seed = 0;

  using Result = std::vector<BothScores>;
  Result compute(const ModelContext& context) const {
    Result heads;
    std::vector<Vector*> all_leverages;
    std::vector<Vector*> all_attention;
    context.for_each_stream([&](const Stream& stream) {
      throw_if_stopped();
      BothScores& head = heads.emplace_back();
      head.kv_head = stream.id.kv_head;
      const PromptRange tokens =
          compressed_prompt(stream.shape, context.prompt, sinks.of(context.prompt),
                            recent.of(context.prompt))
              .middle;
      if (tokens.size() == 0) return;
      if (sketch >= 0 && stream.shape.rope) head.leverage = leverages(stream, tokens, sketch, seed);
      if (chunk > 0 && stream.shape.first_query <= tokens.first) {
        head.attention = methods::compactor::attention(stream, tokens, chunk);
      }
    });
    for (BothScores& head : heads) {
      all_leverages.push_back(&head.leverage);
      all_attention.push_back(&head.attention);
    }
    standardise(all_leverages);
    standardise(all_attention);
    return heads;
  }
  // Both scores of every KV head; of one at a time, its keys, or its chunks' keys, and sketched
  // ones, the projection twice, and a Gram matrix with its factor.
  double bytes(const ScopeSize& size) const {
    const double columns = sketch > 0 ? sketch : size.d;
    const double d = size.d;
    const double of_token = (2 * size.streams + 3) + d + columns;
    return 8.0 * (size.prompt * of_token + 2.0 * columns * (d + columns));
  }
  auto operator<=>(const LayerBothScores&) const = default;
};

LayerBothScores work_of(const Parameters& p, std::uint32_t seed) {
  const bool is_random = has_leverage(p) && p.sketch > 0;
  return {p.sinks, p.recent, has_attention(p) ? p.chunk : 0, has_leverage(p) ? p.sketch : -1,
          is_random ? seed : 0};
}

double blend_of(const Parameters& p, Index prompt) {
  if (p.blend) return *p.blend;
  return 1.0 - p.budget.of(prompt) / static_cast<double>(prompt);
}

Vector blended(const Parameters& p, const BothScores& head, Index prompt) {
  if (!has_leverage(p)) return head.attention;
  if (!has_attention(p)) return head.leverage;
  const double blend = blend_of(p, prompt);
  Vector scores = head.attention;
  for (std::size_t j = 0; j < scores.size(); ++j) {
    scores[j] = fused(blend, head.leverage[j], scores[j]);
  }
  return scores;
}

std::unique_ptr<Algorithm> create_compactor(const Parameters& p, const CellContext& context) {
  const Index prompt = context.prompt;
  const Index budget = p.budget.of(prompt);
  const Index sinks = p.sinks.of(prompt);
  const Index recent = p.recent.of(prompt);
  const CompressedPrompt parts = compressed_prompt(context.stream.shape, prompt, sinks, recent);
  Vector scores;
  Index selected = parts.middle.size();
  if (parts.visible.size() > budget) {
    const auto& heads = context.shared.get(work_of(p, context.seed));
    const auto own = std::find_if(heads.begin(), heads.end(), [&](const BothScores& head) {
      return head.kv_head == context.stream.id.kv_head;
    });
    if (own == heads.end()) throw CellError("its KV head is not part of the scope");
    const Index exact = parts.visible.size() - parts.middle.size();
    scores = blended(p, *own, prompt);
    selected = std::clamp<Index>(budget - exact, 0, std::ssize(scores));
  }
  return std::make_unique<ChosenOnce>(context, sinks, recent, budget, scores, selected,
                                      Derived{{"kept", selected}});
}

std::optional<std::string> cannot_compact(const Parameters& p, const StreamShape& shape,
                                          Index prompt) {
  const Index recent = p.recent.of(prompt);
  if (auto reason = cannot_compress(p.budget, p.sinks, recent, shape, prompt)) return reason;
  if (keeps_whole_prompt(p.budget.of(prompt), shape, prompt)) return std::nullopt;
  if (has_leverage(p) && shape.rope == nullptr) {
    return "keys are taken back to before their rotation, but the dump has no RoPE data for this "
           "layer; score: attention needs none";
  }
  if (!has_attention(p)) return std::nullopt;
  const Index first = compressed_prompt(shape, prompt, p.sinks.of(prompt), recent).middle.first;
  return lacks_prompt_queries(first, shape, prompt);
}

}  // namespace

AlgorithmDescription describe() {
  using P = Parameters;
  TypedAlgorithm<P> d;
  d.id = "compactor";
  d.title = "tokens of outlying keys, and those that queries of the same chunk attend to";
  d.source = "Compactor (Chari and Van Durme) as kvpress has it";
  d.derived = {kept_of_middle_key()};
  d.limits.alibi = "compactor scores tokens by inner products alone";
  d.parameters = {
      budget_field(&P::budget).required(),
      sinks_field(&P::sinks),
      recent_field(&P::recent, "last tokens of the prompt; always kept"),
      field("chunk", &P::chunk, "tokens of a chunk, whose queries attend to it alone")
          .at_least(1)
          .at_most(1e6),
      field("sketch", &P::sketch, "columns of the random sketch of keys; 0: keys themselves")
          .at_most(1e5),
      field("blend", &P::blend, "weight of leverage relative to attention; auto: 1 - budget / P")
          .or_word("auto"),
      field("score", &P::score,
            {{"both", Score::kBoth},
             {"leverage", Score::kLeverage},
             {"attention", Score::kAttention}},
            "score that ranks: both parts, or only one")};
  d.randomised = [](const P& p) { return has_leverage(p) && p.sketch > 0; };
  d.skip_reason = cannot_compact;
  d.replay_scope = [](const P&) { return ReplayScope::kLayer; };
  d.model_work = [](const P& p, std::uint32_t seed) { return work_of(p, seed); };
  d.most_kept = [](const P& p, const StreamShape& shape, Index prompt) {
    return most_kept_once(p.budget.of(prompt), 0, shape, prompt);
  };
  d.ranks = [](const P& p, const StreamShape&, Index prompt) {
    return BudgetParts{p.budget.of(prompt), p.sinks.of(prompt), p.recent.of(prompt)};
  };
  d.equal_budgets = ReplayScope::kHead;  // its scope is the layer as it is
  d.only_appends = [](const P&) { return true; };
  d.create = create_compactor;
  return d;
}

}  // namespace kvbench::methods::compactor
