// grkv: criticalkv's tokens, budgets shared out over the KV heads of a layer. Their values, then
// their keys, are fitted so that queries of the prompt, turned to its end, get the answers that all
// tokens give them.
//
// Source: GRKV (Peng et al., arXiv 2605.31105) by its released code, pjunjie/GRKV 04a9e397 (grkv/:
// press.py, queries.py, operators.py, solver.py, config.py); the paper's abstract alone was read.
//   window_size -> window, kernel_size -> kernel, critical_* -> share and epsilon
//   grkv_guard -> guard, query_count -> queries, their total weight 6 -> weight, ridge
//   relative_cap -> value_cap, key_relative_cap -> key_cap, max_iterations -> steps
// The queries are those of the middle row of each of `queries` equal parts of the prompt. Fixed are
// the window and the trunc(guard count) other kept tokens of the best scores. A is the
// attention of the queries to the kept tokens, F its columns of the fitted ones, O the answers over
// all tokens, and w = weight / queries. The fit of keys K and values V takes
//   V1 = V + cut(F^T (F F^T + ridge / w I)^-1 (O - A V), value_cap)
//   K1 = K + cut(the same regression with the answers' derivative by K in place of F, key_cap)
// where cut shortens a step to value_cap or key_cap of the norm of what it changes, by KV head.
// Conjugate gradients over all heads of the layer find the second, by `steps` steps or to 1e-6. The
// layer keeps the one of (K, V), (K, V1) and (K1, V1) of the least
//   w |O - answers|^2 + ridge (|K - K'|^2 + |V - V'|^2)
// and the first of equal ones.
// Departures: double precision, where the release fits in single precision and rounds keys and
// values to bfloat16, shortening steps that leave their bound by that; of equal scores the lower
// token is kept; a learnt sink takes part in the softmax.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "algorithms/mechanisms/two_stages.hpp"
#include "core/rotation.hpp"
#include "kernels/least_squares.hpp"
#include "numerics/canonical.hpp"
#include "system/error.hpp"
#include "system/stop.hpp"

namespace kvbench::methods::grkv {
namespace {

constexpr double kTolerance = 1e-6;  // where conjugate gradients end, as released
constexpr double kLeastNorm = 1e-30;

struct Parameters : StagedParameters {
  double guard = 0.1;
  Index queries = 32;
  double weight = 6.0;
  double ridge = 0.01;
  double value_cap = 0.1;
  double key_cap = 0.025;
  Index steps = 16;

  Parameters() {
    kernel = 5;
    pool = Pool::kAverage;
  }
  auto operator<=>(const Parameters&) const = default;
};

// A matrix with its numbers.
struct Matrix {
  AlignedDoubles data;
  Index rows = 0;
  Index cols = 0;

  Matrix() = default;
  Matrix(Index rows_, Index cols_) : data(rows_ * cols_, 0.0), rows(rows_), cols(cols_) {}

  double* row(Index i) { return data.data() + i * cols; }
  const double* row(Index i) const { return data.data() + i * cols; }
  ConstMatrix view() const { return {data.data(), rows, cols}; }
  MutableMatrix room() { return {data.data(), rows, cols}; }
};

Matrix transposed(const Matrix& a) {
  Matrix out(a.cols, a.rows);
  for (Index i = 0; i < a.rows; ++i) {
    for (Index j = 0; j < a.cols; ++j) out.row(j)[i] = a.row(i)[j];
  }
  return out;
}

Matrix product(const Matrix& a, const Matrix& b) {
  Matrix out(a.rows, b.cols);
  multiply(a.view(), b.view(), out.room());
  return out;
}

double square(const Matrix& a) {
  return canonical_dot(a.data.data(), a.data.data(), std::ssize(a.data));
}

// The middle rows of `count` equal parts of a prompt; all rows of a shorter one.
std::vector<Index> source_rows(Index prompt, Index count) {
  std::vector<Index> rows(std::min(prompt, count));
  for (Index k = 0; k < std::ssize(rows); ++k) {
    const Index first = k * prompt / std::ssize(rows);
    const Index last = (k + 1) * prompt / std::ssize(rows);
    rows[k] = (first + last - 1) / 2;
  }
  return rows;
}

// Attention of the queries, and their answers.
struct Attention {
  Matrix shares;   // [queries, tokens]
  Matrix answers;  // [queries, dv]
};

// A KV head of the layer during the fit: its kept tokens, and queries of all query heads.
struct Head {
  int kv_head = 0;
  StagedChoice choice;
  std::vector<Index> tokens;    // kept, ascending, those of the window among them
  std::vector<double> changes;  // by kept token: 1 where it is fitted, else 0
  double scale = 1.0;
  std::vector<double> sinks;  // by query head
  Index rows = 0;             // queries of a query head
  Matrix queries;             // [queries, d], by query head, then row
  Matrix keys, values;        // [tokens, d], [tokens, dv]
  Matrix target;              // [queries, dv]

  // Weights of a query's softmax over keys [count, d] and its sink.
  void attend(Index query, ConstMatrix over, std::vector<double>& shares) const {
    double largest = sinks[query / rows];
    shares.resize(over.rows);
    for (Index s = 0; s < over.rows; ++s) {
      shares[s] = scale * canonical_dot(queries.row(query), over.row(s), queries.cols);
      if (!std::isfinite(shares[s])) throw CellError("logits of the prompt overflow");
      largest = std::max(largest, shares[s]);
    }
    double sum = canonical_exp(sinks[query / rows] - largest);
    for (double& share : shares) sum += share = canonical_exp(share - largest);
    for (double& share : shares) share /= sum;
  }

  Attention attention(const Matrix& with_keys, const Matrix& with_values) const {
    Attention out{Matrix(queries.rows, std::ssize(tokens)), {}};
    std::vector<double> shares;
    for (Index query = 0; query < queries.rows; ++query) {
      attend(query, with_keys.view(), shares);
      std::ranges::copy(shares, out.shares.row(query));
    }
    out.answers = product(out.shares, with_values);
    return out;
  }

  // O - answers.
  Matrix residual(const Matrix& answers) const {
    Matrix out = target;
    for (std::size_t i = 0; i < out.data.size(); ++i) out.data[i] -= answers.data[i];
    return out;
  }

  double changed_norm(const Matrix& a) const {
    double sum = 0.0;
    for (Index s = 0; s < a.rows; ++s) {
      if (changes[s] > 0.0) sum += canonical_dot(a.row(s), a.row(s), a.cols);
    }
    return std::sqrt(sum);
  }

  // `base` and a step, shortened to `cap` of the norm of what it changes.
  Matrix moved(const Matrix& base, const Matrix& step, double cap) const {
    const double limit = cap * changed_norm(base);
    const double part = std::min(1.0, limit / std::max(kLeastNorm, changed_norm(step)));
    Matrix out = base;
    for (Index s = 0; s < out.rows; ++s) {
      for (Index k = 0; changes[s] > 0.0 && k < out.cols; ++k) {
        out.row(s)[k] += part * step.row(s)[k];
      }
    }
    return out;
  }
};

// V1 of a head.
Matrix fitted_values(const Head& head, const Parameters& p, double root) {
  const Attention now = head.attention(head.keys, head.values);
  Matrix a = transposed(now.shares);  // [tokens, queries]
  for (Index s = 0; s < a.rows; ++s) {
    for (Index q = 0; q < a.cols; ++q) a.row(s)[q] *= head.changes[s] * root;
  }
  Matrix gram(a.cols, a.cols);
  add_gram(a.view(), gram.room());
  const auto factor = Cholesky::of(gram.view(), p.ridge);
  if (!factor) throw CellError("the ridge regression of the values is singular; raise ridge");
  Matrix dual = head.residual(now.answers);
  for (double& x : dual.data) x *= root;
  factor->solve(dual.room());
  return head.moved(head.values, product(a, dual), p.value_cap);
}

// The derivative of a head's answers by its keys, times the root of a query's weight.
class KeyDerivative {
 public:
  KeyDerivative(const Head& head, Attention at, const Matrix& values, double root)
      : head_(head),
        at_(std::move(at)),
        values_(values),
        values_by_column_(transposed(values)),
        root_(root) {
    for (Index q = 0; q < at_.shares.rows; ++q) {
      for (Index s = 0; s < at_.shares.cols; ++s) at_.shares.row(q)[s] *= head.changes[s];
    }
  }

  // [queries, dv] of a step of the keys [tokens, d].
  Matrix forward(const Matrix& step) const {
    Matrix logits = product(head_.queries, transposed(step));
    for (std::size_t i = 0; i < logits.data.size(); ++i) {
      logits.data[i] *= head_.scale * at_.shares.data[i];
    }
    Matrix out = product(logits, values_);
    for (Index q = 0; q < out.rows; ++q) {
      const double* row = logits.row(q);
      const double sum = std::accumulate(row, row + logits.cols, 0.0);
      for (Index k = 0; k < out.cols; ++k) {
        out.row(q)[k] = root_ * (out.row(q)[k] - sum * at_.answers.row(q)[k]);
      }
    }
    return out;
  }

  // [tokens, d] of `dual` [queries, dv].
  Matrix adjoint(const Matrix& dual) const {
    Matrix shares = product(dual, values_by_column_);
    for (Index q = 0; q < shares.rows; ++q) {
      const double own = canonical_dot(dual.row(q), at_.answers.row(q), dual.cols);
      for (Index s = 0; s < shares.cols; ++s) {
        shares.row(q)[s] = root_ * head_.scale * at_.shares.row(q)[s] * (shares.row(q)[s] - own);
      }
    }
    Matrix out(shares.cols, head_.queries.cols);
    add_product(shares.view(), head_.queries.view(), out.room());
    return out;
  }

 private:
  const Head& head_;
  Attention at_;  // shares of tokens that are fitted; of the others 0
  const Matrix& values_;
  const Matrix values_by_column_;
  const double root_;
};

using Matrices = std::vector<Matrix>;  // by head

double dot(const Matrices& a, const Matrices& b) {
  double sum = 0.0;
  for (std::size_t h = 0; h < a.size(); ++h) {
    sum += canonical_dot(a[h].data.data(), b[h].data.data(), std::ssize(a[h].data));
  }
  return sum;
}

// a += factor b
void add_to(Matrices& a, double factor, const Matrices& b) {
  for (std::size_t h = 0; h < a.size(); ++h) {
    for (std::size_t i = 0; i < a[h].data.size(); ++i) a[h].data[i] += factor * b[h].data[i];
  }
}

// The dual x of the ridge regression of the answers on the keys, (J J^T + ridge I) x = `residual`,
// by conjugate gradients from 0.
Matrices key_dual(const std::vector<KeyDerivative>& by_head, const Matrices& residual,
                  const Parameters& p) {
  Matrices rest = residual;
  Matrices direction = residual;
  Matrices x = residual;
  for (Matrix& part : x) std::ranges::fill(part.data, 0.0);
  double square = dot(rest, rest);
  const double norm = std::sqrt(square);
  for (Index step = 0; step < p.steps && norm > 0.0; ++step) {
    throw_if_stopped();
    Matrices image;
    for (std::size_t h = 0; h < by_head.size(); ++h) {
      image.push_back(by_head[h].forward(by_head[h].adjoint(direction[h])));
    }
    add_to(image, p.ridge, direction);
    const double along = square / dot(direction, image);
    if (!std::isfinite(along)) throw CellError("the ridge regression of the keys overflows");
    add_to(x, along, direction);
    add_to(rest, -along, image);
    const double next = dot(rest, rest);
    if (std::sqrt(next) / norm <= kTolerance) break;
    Matrices turned = rest;
    add_to(turned, next / square, direction);
    direction = std::move(turned);
    square = next;
  }
  return x;
}

// Model work: the fit of a layer.
struct LayerFit {
  Parameters p;

  struct Result {
    std::vector<Head> heads;  // with fitted keys and values
    Index changed = 0;        // 0: neither, 1: values, 2: keys and values
    double objective = 1.0;   // relative to that of the tokens' own keys and values
  };

  Result compute(const ModelContext& context) const {
    Result out;
    if (context.prompt <= p.budget.of(context.prompt)) return out;  // kept whole
    const LayerScores::Result scores = LayerScores(p).compute(context);
    context.for_each_stream([&](const Stream& stream) {
      throw_if_stopped();
      out.heads.push_back(head_of(stream, context.prompt, scores, out.heads.size()));
    });
    fit(out);
    return out;
  }

  // Copies of what is kept, of the residual space several times, and two sets of scores.
  double bytes(const ScopeSize& size) const {
    const double kept = static_cast<double>(std::min(size.prompt, p.budget.of(size.prompt)));
    const double queries =
        static_cast<double>(std::min(size.prompt, p.queries) * size.heads_per_kv);
    const double numbers = 6.0 * kept * size.d + 4.0 * kept * queries + 12.0 * queries * size.d;
    return 8.0 * size.streams * numbers + LayerScores::bytes(size) + 16.0 * size.prompt;
  }

  auto operator<=>(const LayerFit&) const = default;

 private:
  Head head_of(const Stream& stream, Index prompt, const LayerScores::Result& scores,
               std::size_t place) const;
  void fit(Result& layer) const;
  double objective(const Result& layer, const Matrices& keys, const Matrices& values) const;
  double query_weight(const Result& layer) const {
    return p.weight / static_cast<double>(layer.heads.front().rows);
  }
};

Head LayerFit::head_of(const Stream& stream, Index prompt, const LayerScores::Result& scores,
                       std::size_t place) const {
  const StreamShape& shape = stream.shape;
  const PromptRange middle = scores[place].middle;
  Head head;
  head.kv_head = stream.id.kv_head;
  head.scale = shape.scale;
  head.choice = choose_in_stages_of_layer(p, stream, prompt, scores, place);
  head.tokens = head.choice.kept;
  std::vector<double> kept_scores;
  for (const Index token : head.tokens) {
    kept_scores.push_back(scores[place].scores[token - middle.first]);
  }
  head.changes.assign(head.tokens.size(), 1.0);
  const auto guarded = static_cast<Index>(static_cast<double>(kept_scores.size()) * p.guard);
  for (const Index at : best_tokens(kept_scores, 0, guarded)) head.changes[at] = 0.0;
  for (Index token = middle.last; token < prompt; ++token) head.tokens.push_back(token);
  head.changes.resize(head.tokens.size(), 0.0);

  head.keys = Matrix(std::ssize(head.tokens), shape.d);
  head.values = Matrix(std::ssize(head.tokens), shape.dv);
  for (Index s = 0; s < std::ssize(head.tokens); ++s) {
    std::copy_n(stream.keys.row(head.tokens[s]), shape.d, head.keys.row(s));
    std::copy_n(stream.values.row(head.tokens[s]), shape.dv, head.values.row(s));
  }
  const std::vector<Index> rows = source_rows(prompt, p.queries);
  head.rows = std::ssize(rows);
  head.queries = Matrix(head.rows * shape.heads_per_kv, shape.d);
  Turn turn(*shape.rope);
  Index query = 0;
  for (int g = 0; g < shape.heads_per_kv; ++g) {
    head.sinks.push_back(stream.sink(g));
    for (const Index row : rows) {
      turn.set(static_cast<double>(prompt - 1 - row));
      turn.apply(stream.query(g, row), shape.d, head.queries.row(query++));
    }
  }
  head.target = Matrix(head.queries.rows, shape.dv);
  std::vector<double> shares;
  for (query = 0; query < head.queries.rows; ++query) {
    head.attend(query, {stream.keys.data, prompt, shape.d, stream.keys.stride}, shares);
    double* answer = head.target.row(query);
    for (Index j = 0; j < prompt; ++j) {
      const double* value = stream.values.row(j);
      for (Index k = 0; k < shape.dv; ++k) answer[k] = fused(shares[j], value[k], answer[k]);
    }
  }
  return head;
}

double LayerFit::objective(const Result& layer, const Matrices& keys,
                           const Matrices& values) const {
  double residuals = 0.0;
  double changes = 0.0;
  const auto distance = [](const Matrix& a, const Matrix& b) {
    return squared_distance(a.data.data(), b.data.data(), std::ssize(a.data));
  };
  for (std::size_t h = 0; h < layer.heads.size(); ++h) {
    const Head& head = layer.heads[h];
    residuals += square(head.residual(head.attention(keys[h], values[h]).answers));
    changes += distance(keys[h], head.keys) + distance(values[h], head.values);
  }
  const double sum = query_weight(layer) * residuals + p.ridge * changes;
  return std::isfinite(sum) ? sum : std::numeric_limits<double>::infinity();
}

void LayerFit::fit(Result& layer) const {
  const double root = std::sqrt(query_weight(layer));
  Matrices keys, values, new_keys, new_values, residual;
  for (const Head& head : layer.heads) {
    keys.push_back(head.keys);
    values.push_back(head.values);
    new_values.push_back(fitted_values(head, p, root));
  }
  std::vector<KeyDerivative> by_head;
  for (std::size_t h = 0; h < keys.size(); ++h) {
    const Head& head = layer.heads[h];
    Attention at = head.attention(keys[h], new_values[h]);
    residual.push_back(head.residual(at.answers));
    for (double& x : residual.back().data) x *= root;
    by_head.emplace_back(head, std::move(at), new_values[h], root);
  }
  const Matrices dual = key_dual(by_head, residual, p);
  for (std::size_t h = 0; h < keys.size(); ++h) {
    const Head& head = layer.heads[h];
    new_keys.push_back(head.moved(keys[h], by_head[h].adjoint(dual[h]), p.key_cap));
  }
  const double own = objective(layer, keys, values);
  double least = own;
  if (const double of_values = objective(layer, keys, new_values); of_values < least) {
    least = of_values;
    layer.changed = 1;
  }
  if (const double of_both = objective(layer, new_keys, new_values); of_both < least) {
    least = of_both;
    layer.changed = 2;
  }
  layer.objective = own > 0.0 ? least / own : 1.0;
  for (std::size_t h = 0; h < keys.size(); ++h) {
    if (layer.changed >= 1) layer.heads[h].values = std::move(new_values[h]);
    if (layer.changed == 2) layer.heads[h].keys = std::move(new_keys[h]);
  }
}

class Grkv final : public CompressOnce {
 public:
  Grkv(const Parameters& p, const CellContext& context)
      : CompressOnce(context, 0, p.window, p.budget.of(context.prompt)), p_(p) {
    if (keeps_whole()) return;
    layer_ = &context.shared.get(LayerFit{p});
    const auto own = std::ranges::find(layer_->heads, context.stream.id.kv_head, &Head::kv_head);
    if (own == layer_->heads.end()) throw CellError("its KV head is not part of the scope");
    head_ = &*own;
  }

  Derived derived() const override {
    if (head_ == nullptr) return {{"selected", prompt().middle.size()}, {"changed", Index{0}}};
    const auto fitted = std::ranges::count(head_->changes, 1.0);
    return {{"selected", std::ssize(head_->choice.kept)},
            {"by_score", head_->choice.by_score},
            {"changed", static_cast<std::int64_t>(layer_->changed > 0 ? fitted : 0)},
            {"keys_fitted", layer_->changed == 2},
            {"objective", layer_->objective}};
  }

 protected:
  void compress_middle(PromptRange) override {
    for (std::size_t s = 0; s < head_->choice.kept.size(); ++s) {
      SketchRow row = SketchRow::exact(head_->tokens[s]);
      const auto at = static_cast<Index>(s);
      if (head_->changes[s] > 0.0 && layer_->changed >= 1) {
        row.own_value = add(head_->values, at, sketch_.own_values);
        if (layer_->changed == 2) row.own_key = add(head_->keys, at, sketch_.own_keys);
      }
      sketch_.add(row);
    }
  }

 private:
  static std::int32_t add(const Matrix& from, Index row, std::vector<std::vector<double>>& to) {
    to.emplace_back(from.row(row), from.row(row) + from.cols);
    return static_cast<std::int32_t>(to.size()) - 1;
  }

  const Parameters p_;
  const LayerFit::Result* layer_ = nullptr;  // null where the prompt is kept whole
  const Head* head_ = nullptr;
};

std::optional<std::string> reason_to_skip_grkv(const Parameters& p, const StreamShape& shape,
                                               Index prompt) {
  if (auto reason = cannot_stage(p, shape, prompt)) return reason;
  if (!shape.rope) {
    return "grkv turns queries to the end of the prompt, and the dump holds no RoPE data";
  }
  if (shape.slides()) return "grkv fits tokens that every later row sees, and the layer slides";
  if (shape.softcap > 0.0) return "grkv's fit knows no soft-cap, which the layer has";
  if (shape.value_in_key) return "grkv fits values apart from keys, and the layer's lie in them";
  return std::nullopt;
}

}  // namespace

AlgorithmDescription describe() {
  using P = Parameters;
  TypedAlgorithm<P> d;
  d.id = "grkv";
  d.title =
      "criticalkv's tokens over a layer, their values and keys fitted to the prompt's queries";
  d.source = "GRKV (Peng et al.)";
  d.derived = {{"selected", "tokens of the prompt before the window that are kept"},
               {"by_score", "selected tokens that their scores alone keep"},
               {"changed", "selected tokens with fitted values, and fitted keys if `keys_fitted`"},
               {"keys_fitted", "whether the layer keeps fitted keys"},
               {"objective", "what the fit lessens, over the layer, relative to the tokens' own"}};
  d.limits.alibi = "grkv fits keys for queries at the end of the prompt";
  d.limits.all_tokens = "grkv is for rows that are decoded after a prompt";
  d.parameters.add(observation_fields());
  d.parameters.add({group_field(&P::group)});
  d.parameters.add(staged_fields());
  d.parameters.add(
      {field("guard", &P::guard,
             "fraction of a KV head's selected tokens, of the best scores, that are not fitted")
           .at_most(1),
       field("queries", &P::queries, "prompt rows whose queries the fit is made for")
           .at_least(1)
           .at_most(1e6),
       field("weight", &P::weight, "weight of the queries' squared errors, all together").above(0),
       field("ridge", &P::ridge, "weight of the squared changes of keys and values").above(0),
       field("value_cap", &P::value_cap,
             "largest change of a KV head's fitted values, relative to their norm"),
       field("key_cap", &P::key_cap, "the same of its keys"),
       field("steps", &P::steps, "conjugate gradient steps of the keys at most").at_most(1e6)});
  d.needs = [](const P&) { return Needs{.prompt_queries = true}; };
  d.validate = [](const P& p) -> std::optional<std::pair<std::string, std::string>> {
    if (p.budget.is_unsolved()) {
      return std::pair{"budget",
                       "cannot be given as memory: what a KV head keeps follows from the data; "
                       "give a number of tokens"};
    }
    return even_kernel(p.kernel);
  };
  d.skip_reason = reason_to_skip_grkv;
  d.replay_scope = [](const P&) { return ReplayScope::kLayer; };
  d.model_work = [](const P& p, std::uint32_t) { return LayerFit{p}; };
  d.for_less_memory =
      "its budget is a mean over the layer's KV heads; give it as a number of tokens";
  // Not `only_appends`: a codec that writes several tokens together could not write fitted keys.
  d.makes_values = [](const P&) { return true; };
  d.create = [](const P& p, const CellContext& context) -> std::unique_ptr<Algorithm> {
    return std::make_unique<Grkv>(p, context);
  };
  return d;
}

}  // namespace kvbench::methods::grkv
