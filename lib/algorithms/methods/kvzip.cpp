// kvzip: the tokens that the model attends to most while it repeats its prompt. It asks no later
// query: what is kept serves whatever is asked.
//
// Source: KVzip (Kim et al., arXiv 2505.23416; code snu-mllab/KVzip 5d84729, attention/score.py,
// attention/kvcache.py, model/wrapper.py).
//   ctx_ids in parts of 2000 -> RepeatPass::parts, sys_prompt_ids -> tokens before the first part,
//   sink -> their number, ratio -> budget, level pair -> scope: model, pair-uniform -> scope: head
// Each part [s, e) of the prompt is read once more, behind a request to repeat it (and the last
// tokens of the part before it), with the cache of the whole prompt. The rows of that reading give
//   A = softmax over: tokens before the first part, [s, e), the rows' own keys up to each
//   score_j = max over rows and the group's query heads of A_j, j in [s, e)
// so that what other parts get is left out of the softmax. Tokens before the first part have no
// score and are always kept. `scope` is over what the best scores are taken: a KV head, all of a
// layer (kvpress's layerwise), or all selected layers (`budget` is then the mean over KV heads).
// Departures: logits are the model's, with its scale, soft-cap and sink (the release: 1 / sqrt(d)
// alone); the release keeps what lies above the N-th best score of all heads, a token less (and
// with ties more) than the N that are kept here, of equal scores those of the lower layer, head and
// token; layers with a sliding window are skipped, as the release leaves them whole. In kvpress
// (KVzipPress) the first n_sink tokens are kept and in the softmax in place of those before the
// first part: the same where these are as many.
// Left out: KVzip+ (its norms of hidden states and values behind W_O) and budgets by head from a
// file.
// Compared in double precision by `tests/peers/run.sh`: kvpress 0.5.5, which has a tiny model
// repeat its prompt, keeps the same tokens as `scope: model` and `layer` (3 budgets each, one part
// and several, with and without tokens before them; 6 heads).
#include <algorithm>
#include <cmath>
#include <numeric>

#include "algorithms/mechanisms/layer_scores.hpp"
#include "numerics/canonical.hpp"
#include "system/error.hpp"
#include "system/stop.hpp"

namespace kvbench::methods::kvzip {
namespace {

enum class Scope { kHead, kLayer, kModel };

struct Parameters {
  TokenCount budget;
  Scope scope = Scope::kModel;
};

constexpr Index kRowsAtOnce = 32;

// One part of the pass as a stream of its own: tokens before the first part, the part's, and the
// keys of the rows that repeat it.
class RepeatedPart {
 public:
  RepeatedPart(const Stream& stream, const RepeatPass::Part& part, Index rows_before) {
    const RepeatPass& pass = *stream.shape.repeat;
    sinks_ = pass.first();
    tokens_ = part.end - part.first;
    const auto add = [&](const ConstMatrix& keys, Index first, Index last) {
      for (Index j = first; j < last; ++j) {
        keys_.insert(keys_.end(), keys.row(j), keys.row(j) + keys.cols);
      }
    };
    add(stream.keys, 0, sinks_);
    add(stream.keys, part.first, part.end);
    add(stream.repeat_keys, rows_before, rows_before + part.rows);
    StreamShape& shape = stream_.shape;
    shape = stream.shape;
    shape.tokens = sinks_ + tokens_ + part.rows;
    shape.first_query = sinks_ + tokens_;
    shape.dv = shape.d;
    shape.wo_v_l1 = false;
    shape.hidden = 0;
    shape.repeat = nullptr;
    stream_.id = stream.id;
    stream_.sinks = stream.sinks;
    stream_.keys = {keys_.data(), shape.tokens, shape.d};
    stream_.values = stream_.keys;  // no answer is asked for
    for (const ConstMatrix& queries : stream.repeat_queries) {
      stream_.queries.emplace_back(queries.row(rows_before), part.rows, shape.d, queries.stride);
    }
  }
  RepeatedPart(const RepeatedPart&) = delete;
  RepeatedPart& operator=(const RepeatedPart&) = delete;

  std::vector<double> scores(const Kernels& kernels) const {
    std::vector<double> best(tokens_, 0.0);
    LogitBlock block;
    const StreamShape& shape = stream_.shape;
    for (Index first = shape.first_query; first < shape.tokens; first += kRowsAtOnce) {
      throw_if_stopped();
      std::vector<Index> rows(std::min(kRowsAtOnce, shape.tokens - first));
      std::iota(rows.begin(), rows.end(), first);
      kernels.logits(stream_, std::move(rows), block);
      for (std::size_t r = 0; r < block.rows.size(); ++r) {
        for (int g = 0; g < shape.heads_per_kv; ++g) raise(best, block, r, g);
      }
    }
    return best;
  }

 private:
  void raise(std::vector<double>& best, const LogitBlock& block, std::size_t r, int g) const {
    const std::size_t query = r * stream_.shape.heads_per_kv + g;
    const double* e = block.exps.data() + query * block.tokens;
    double sum = 0.0;
    for (Index j = 0; j <= block.rows[r]; ++j) sum += e[j];
    sum += canonical_exp(stream_.sink(g) - block.max_logit[query]);
    if (!std::isfinite(sum) || !std::isfinite(block.max_logit[query])) {
      throw CellError("logits of the pass that repeats the prompt overflow");
    }
    const double inverse = 1.0 / sum;
    for (Index j = 0; j < tokens_; ++j) {
      double& score = best[j];
      score = std::max(score, e[sinks_ + j] * inverse);
    }
  }

  Index sinks_ = 0;
  Index tokens_ = 0;
  std::vector<double> keys_;
  Stream stream_;
};

// Scores of a KV head's tokens behind those before the first part.
HeadScores repeat_scores(const Stream& stream, const Kernels& kernels) {
  const RepeatPass& pass = *stream.shape.repeat;
  HeadScores out;
  out.kv_head = stream.id.kv_head;
  out.middle = {pass.first(), pass.prompt()};
  Index rows = 0;
  for (const RepeatPass::Part& part : pass.parts) {
    const std::vector<double> scores = RepeatedPart(stream, part, rows).scores(kernels);
    out.scores.insert(out.scores.end(), scores.begin(), scores.end());
    rows += part.rows;
  }
  return out;
}

// Shared work of one KV head; serves every budget.
struct HeadRepeat {
  using Result = HeadScores;
  Result compute(const SharedContext& context) const {
    return repeat_scores(context.stream, context.kernels);
  }
  auto operator<=>(const HeadRepeat&) const = default;
};

// Model work, of a layer or of all of them: by layer, then KV head.
struct ScopeRepeat {
  struct Result {
    std::vector<HeadScores> heads;
    std::vector<int> layers;  // layer of each head
  };
  Result compute(const ModelContext& context) const {
    Result result;
    context.for_each_stream([&](const Stream& stream) {
      if (!stream.shape.repeat) throw CellError("a layer of the scope lacks q_repeat");
      result.heads.push_back(repeat_scores(stream, context.kernels));
      result.layers.push_back(stream.id.layer);
    });
    return result;
  }
  // Every KV head's scores; of one at a time keys, logits and exponentials of some rows. A part and
  // the rows that repeat it are at most about twice the prompt.
  double bytes(const ScopeSize& size) const {
    const Index of_token = size.streams + 2 * (size.d + 2 * kRowsAtOnce * size.heads_per_kv);
    return 8.0 * size.prompt * of_token;
  }
  auto operator<=>(const ScopeRepeat&) const = default;
};

std::size_t place_of(const ScopeRepeat::Result& scope, const StreamId& id) {
  for (std::size_t s = 0; s < scope.heads.size(); ++s) {
    if (scope.layers[s] == id.layer && scope.heads[s].kv_head == id.kv_head) return s;
  }
  throw CellError("its KV head is not part of the scope");
}

std::unique_ptr<Algorithm> create_kvzip(const Parameters& p, const CellContext& context) {
  const Index budget = p.budget.of(context.prompt);
  const Index exact = context.stream.shape.repeat->first();
  const Index middle = context.prompt - exact;
  std::vector<double> scores;
  Index kept = middle;
  if (budget < context.prompt) {
    const HeadScores* own = nullptr;
    kept = budget - exact;
    if (p.scope == Scope::kHead) {
      own = &context.shared.get(HeadRepeat{});
    } else {
      const ScopeRepeat::Result& scope = context.shared.get(ScopeRepeat{});
      const std::size_t place = place_of(scope, context.stream.id);
      own = &scope.heads[place];
      kept = counts_of_best(scope.heads, std::ssize(scope.heads) * kept, 0)[place];
    }
    scores = own->scores;
  }
  return std::make_unique<ChosenOnce>(context, exact, 0, budget, scores, kept,
                                      Derived{{"kept", kept}});
}

std::optional<std::string> reason_to_skip_kvzip(const Parameters& p, const StreamShape& shape,
                                                Index prompt) {
  if (!shape.repeat) {
    return "kvzip needs the datasets q_repeat and k_repeat of the layer, of a pass in which the "
           "model repeats the prompt, which the dump does not hold; export_transformers.py writes "
           "them with --repeat";
  }
  if (shape.repeat->prompt() != prompt) {
    return "q_repeat is of a pass that repeats the first " +
           std::to_string(shape.repeat->prompt()) + " tokens, and the prompt has " +
           std::to_string(prompt) + "; set prompt_tokens to " +
           std::to_string(shape.repeat->prompt());
  }
  if (shape.slides()) {
    return "kvzip scores layers that see the whole prompt, and this one has a sliding window";
  }
  if (auto reason = empty_budget(p.budget, prompt)) return reason;
  const Index budget = p.budget.of(prompt);
  const Index exact = shape.repeat->first();
  if (budget < prompt && budget < exact) {
    return "budget of " + std::to_string(budget) + " tokens is smaller than the " +
           std::to_string(exact) + " before the first part that is repeated; give it more";
  }
  return std::nullopt;
}

}  // namespace

AlgorithmDescription describe() {
  using P = Parameters;
  TypedAlgorithm<P> d;
  d.id = "kvzip";
  d.title = "tokens that the model attends to while it repeats the prompt";
  d.source = "KVzip (Kim et al.)";
  d.derived = {kept_of_middle_key()};
  d.limits.alibi =
      "kvzip leaves other parts of the prompt out of a softmax whose bias goes by "
      "distance";
  d.limits.all_tokens = "kvzip has a model repeat its prompt";
  d.parameters = {
      budget_field(&P::budget).required(),
      field("scope", &P::scope,
            {{"model", Scope::kModel}, {"layer", Scope::kLayer}, {"head", Scope::kHead}},
            "heads that share a budget: those of all selected layers, those of a layer, or each KV "
            "head alone")};
  d.validate = [](const P& p) -> std::optional<std::pair<std::string, std::string>> {
    if (p.scope == Scope::kHead || !p.budget.is_unsolved()) return std::nullopt;
    return std::pair{"budget",
                     "cannot be given as memory with scope: model or layer, where what a KV head "
                     "keeps follows from the data; give a number of tokens"};
  };
  d.skip_reason = reason_to_skip_kvzip;
  d.shared_work = [](const P& p, const StreamShape&, Index prompt, std::uint32_t) {
    if (p.scope != Scope::kHead || p.budget.of(prompt) >= prompt) return std::vector<SharedWork>{};
    return std::vector<SharedWork>{HeadRepeat{}};
  };
  d.replay_scope = [](const P& p) {
    if (p.scope == Scope::kHead) return ReplayScope::kHead;
    return p.scope == Scope::kLayer ? ReplayScope::kLayer : ReplayScope::kModel;
  };
  d.model_work = [](const P&, std::uint32_t) { return ScopeRepeat{}; };
  d.most_kept = [](const P& p, const StreamShape& shape,
                   Index prompt) -> std::optional<KeptCounts> {
    if (p.scope != Scope::kHead) return std::nullopt;
    return most_kept_once(p.budget.of(prompt), 0, shape, prompt);
  };
  d.ranks = [](const P& p, const StreamShape& shape, Index prompt) {
    return BudgetParts{p.budget.of(prompt), shape.repeat ? shape.repeat->first() : 0, 0};
  };
  d.only_appends = [](const P&) { return true; };
  d.for_less_memory =
      "its budget is a mean over the KV heads that share it; give it as a number of tokens";
  d.create = create_kvzip;
  return d;
}

}  // namespace kvbench::methods::kvzip
