// grkv: the fit of values and keys against its normal equations, solved directly with a derivative
// by differences; the tokens are criticalkv's, which has a test of its own.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "support/layer_of_streams.hpp"
#include "support/naive_observation_window.hpp"
#include "support/naive_positions.hpp"

namespace kvbench::test {
namespace grkv_test {

using Vectors = std::vector<std::vector<Real>>;

constexpr Index kPrompt = 40;
constexpr Index kWindow = 4;

struct Rule {
  Index budget = 10;
  double guard = 0.0;
  Index queries = 6;
  double ridge = 0.5;
  double value_cap = 1e9;
  double key_cap = 1e9;
  Index steps = 200;
};

Given given(const Rule& rule) {
  return {{"budget", count_of(rule.budget)},     {"window", count_of(kWindow)},
          {"norm", word_of("value_l1")},         {"guard", number(rule.guard)},
          {"queries", count_of(rule.queries)},   {"ridge", number(rule.ridge)},
          {"value_cap", number(rule.value_cap)}, {"key_cap", number(rule.key_cap)},
          {"steps", count_of(rule.steps)}};
}

// x of A x = b, [n, m], by elimination.
Vectors solved(Vectors a, Vectors b) {
  const std::size_t n = a.size();
  for (std::size_t i = 0; i < n; ++i) {
    std::size_t pivot = i;
    for (std::size_t r = i; r < n; ++r) {
      if (std::fabs(a[r][i]) > std::fabs(a[pivot][i])) pivot = r;
    }
    std::swap(a[i], a[pivot]);
    std::swap(b[i], b[pivot]);
    for (std::size_t r = 0; r < n; ++r) {
      if (r == i) continue;
      const Real factor = a[r][i] / a[i][i];
      for (std::size_t k = 0; k < n; ++k) a[r][k] -= factor * a[i][k];
      for (std::size_t k = 0; k < b[r].size(); ++k) b[r][k] -= factor * b[i][k];
    }
  }
  for (std::size_t i = 0; i < n; ++i) {
    for (Real& x : b[i]) x /= a[i][i];
  }
  return b;
}

// The ridge solution d of least |J d - r|^2 + ridge |d|^2 for J [rows, n] and r [rows, m].
Vectors ridge_solution(const Vectors& j, const Vectors& r, Real ridge) {
  const std::size_t n = j.front().size();
  Vectors a(n, std::vector<Real>(n, 0));
  Vectors b(n, std::vector<Real>(r.front().size(), 0));
  for (std::size_t row = 0; row < j.size(); ++row) {
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t k = 0; k < n; ++k) a[i][k] += j[row][i] * j[row][k];
      for (std::size_t k = 0; k < b[i].size(); ++k) b[i][k] += j[row][i] * r[row][k];
    }
  }
  for (std::size_t i = 0; i < n; ++i) a[i][i] += ridge;
  return solved(a, b);
}

struct NaiveHead {
  std::vector<Index> tokens;  // kept before the window, then the window
  std::vector<bool> fitted;   // by kept token
  Vectors queries;
  std::vector<Real> sinks;  // by query
  Vectors keys, values, target;
  Real scale = 1;

  std::vector<Real> shares(std::size_t query, const Vectors& over) const {
    std::vector<Real> out;
    Real sum = std::exp(sinks[query]);
    for (const std::vector<Real>& key : over) {
      Real x = 0;
      for (std::size_t k = 0; k < key.size(); ++k) x += scale * queries[query][k] * key[k];
      out.push_back(std::exp(x));
      sum += out.back();
    }
    for (Real& share : out) share /= sum;
    return out;
  }

  Vectors answers(const Vectors& over, const Vectors& of) const {
    Vectors out;
    for (std::size_t query = 0; query < queries.size(); ++query) {
      const std::vector<Real> weights = shares(query, over);
      out.emplace_back(of.front().size(), 0);
      for (std::size_t s = 0; s < over.size(); ++s) {
        for (std::size_t k = 0; k < of[s].size(); ++k) out.back()[k] += weights[s] * of[s][k];
      }
    }
    return out;
  }

  // `base` moved by `step` [fitted tokens], cut to `cap` of the norm of what is fitted.
  Vectors moved(Vectors base, const Vectors& step, Real cap) const {
    Real of_base = 0;
    Real of_step = 0;
    std::size_t at = 0;
    for (std::size_t s = 0; s < base.size(); ++s) {
      if (!fitted[s]) continue;
      for (const Real x : base[s]) of_base += x * x;
      for (const Real x : step[at]) of_step += x * x;
      ++at;
    }
    const Real part = std::min(Real{1}, cap * std::sqrt(of_base / of_step));
    at = 0;
    for (std::size_t s = 0; s < base.size(); ++s) {
      if (!fitted[s]) continue;
      for (std::size_t k = 0; k < base[s].size(); ++k) base[s][k] += part * step[at][k];
      ++at;
    }
    return base;
  }

  Vectors fitted_values(const Rule& rule, Real weight) const {
    Vectors shares_of_fitted;
    Vectors residual = answers(keys, values);
    for (std::size_t query = 0; query < queries.size(); ++query) {
      const std::vector<Real> all = shares(query, keys);
      shares_of_fitted.emplace_back();
      for (std::size_t s = 0; s < all.size(); ++s) {
        if (fitted[s]) shares_of_fitted.back().push_back(std::sqrt(weight) * all[s]);
      }
      for (std::size_t k = 0; k < residual[query].size(); ++k) {
        residual[query][k] = std::sqrt(weight) * (target[query][k] - residual[query][k]);
      }
    }
    const Vectors step = ridge_solution(shares_of_fitted, residual, rule.ridge);
    return moved(values, step, rule.value_cap);
  }

  // By central differences of the answers with `new_values`.
  Vectors fitted_keys(const Vectors& new_values, const Rule& rule, Real weight) const {
    constexpr Real kStep = 1e-5L;
    const std::size_t d = keys.front().size();
    Vectors derivative(queries.size() * new_values.front().size());
    for (std::size_t s = 0; s < keys.size(); ++s) {
      for (std::size_t k = 0; fitted[s] && k < d; ++k) {
        Vectors up = keys;
        Vectors down = keys;
        up[s][k] += kStep;
        down[s][k] -= kStep;
        const Vectors above = answers(up, new_values);
        const Vectors below = answers(down, new_values);
        std::size_t row = 0;
        for (std::size_t query = 0; query < above.size(); ++query) {
          for (std::size_t c = 0; c < above[query].size(); ++c) {
            derivative[row++].push_back(std::sqrt(weight) * (above[query][c] - below[query][c]) /
                                        (2 * kStep));
          }
        }
      }
    }
    const Vectors now = answers(keys, new_values);
    Vectors residual;
    for (std::size_t query = 0; query < now.size(); ++query) {
      for (std::size_t c = 0; c < now[query].size(); ++c) {
        residual.push_back({std::sqrt(weight) * (target[query][c] - now[query][c])});
      }
    }
    const Vectors flat = ridge_solution(derivative, residual, rule.ridge);
    Vectors step;
    for (const std::vector<Real>& number : flat) {
      if (step.empty() || step.back().size() == d) step.emplace_back();
      step.back().push_back(number[0]);
    }
    return moved(keys, step, rule.key_cap);
  }

  Real objective(const Vectors& k1, const Vectors& v1, Real weight, Real ridge) const {
    const auto distance = [](const Vectors& a, const Vectors& b) {
      Real sum = 0;
      for (std::size_t i = 0; i < a.size(); ++i) {
        for (std::size_t k = 0; k < a[i].size(); ++k) {
          sum += (a[i][k] - b[i][k]) * (a[i][k] - b[i][k]);
        }
      }
      return sum;
    };
    return weight * distance(answers(k1, v1), target) +
           ridge * (distance(k1, keys) + distance(v1, values));
  }
};

std::vector<Real> row_of(ConstMatrix matrix, Index row) {
  return {matrix.row(row), matrix.row(row) + matrix.cols};
}

NaiveHead naive_head(const Stream& stream, const std::vector<Index>& kept, const Rule& rule) {
  NaiveHead head;
  head.tokens = kept;
  head.scale = stream.shape.scale;
  const auto before = std::ssize(kept) - kWindow;
  const NaiveObservation seen{.window = kWindow, .kernel = 5, .average = true};
  const std::vector<Real> scores = naive_observed(stream, kPrompt, seen);
  std::vector<Index> order(before);
  for (Index s = 0; s < before; ++s) order[s] = s;
  std::ranges::stable_sort(order, std::ranges::greater{}, [&](Index s) { return scores[kept[s]]; });
  head.fitted.assign(kept.size(), false);
  const auto guarded = static_cast<Index>(static_cast<double>(before) * rule.guard);
  for (Index s = guarded; s < before; ++s) head.fitted[order[s]] = true;
  for (const Index token : kept) {
    head.keys.push_back(row_of(stream.keys, token));
    head.values.push_back(row_of(stream.values, token));
  }
  Vectors keys, values;
  for (Index token = 0; token < kPrompt; ++token) {
    keys.push_back(row_of(stream.keys, token));
    values.push_back(row_of(stream.values, token));
  }
  for (int g = 0; g < stream.shape.heads_per_kv; ++g) {
    for (Index k = 0; k < rule.queries; ++k) {
      const Index first = k * kPrompt / rule.queries;
      const Index row = (first + (k + 1) * kPrompt / rule.queries - 1) / 2;
      const std::vector<Real> query(stream.query(g, row), stream.query(g, row) + stream.shape.d);
      head.queries.push_back(naive_rotated(*stream.shape.rope, query, kPrompt - 1 - row));
      head.sinks.push_back(stream.sink(g));
    }
  }
  head.target = head.answers(keys, values);
  return head;
}

struct Fit {
  std::vector<NaiveHead> heads;
  std::vector<Vectors> keys, values;  // by head
  int changed = 0;
};

Fit naive(const LayerOfStreams& layer, const Rule& rule) {
  Given selection = given(rule);
  selection.resize(3);  // budget, window, norm
  selection.emplace_back("kernel", count_of(5));
  selection.emplace_back("pool", word_of("avg"));
  selection.emplace_back("heads", word_of("adaptive"));
  const auto kept = layer.kept("criticalkv", kPrompt, selection);
  const Real weight = Real{6} / static_cast<Real>(rule.queries);
  Fit out;
  Real own = 0, of_values = 0, of_both = 0;
  std::vector<Vectors> keys, values;
  for (std::size_t h = 0; h < kept.size(); ++h) {
    const NaiveHead& head = out.heads.emplace_back(naive_head(*layer.streams[h], kept[h], rule));
    values.push_back(head.fitted_values(rule, weight));
    keys.push_back(rule.steps > 0 ? head.fitted_keys(values[h], rule, weight) : head.keys);
    own += head.objective(head.keys, head.values, weight, rule.ridge);
    of_values += head.objective(head.keys, values[h], weight, rule.ridge);
    of_both += head.objective(keys[h], values[h], weight, rule.ridge);
  }
  out.changed = of_values < own ? 1 : 0;
  if (of_both < std::min(own, of_values)) out.changed = 2;
  for (std::size_t h = 0; h < kept.size(); ++h) {
    out.keys.push_back(out.changed == 2 ? keys[h] : out.heads[h].keys);
    out.values.push_back(out.changed >= 1 ? values[h] : out.heads[h].values);
  }
  return out;
}

Real distance(const Vectors& a, const Vectors& b) {
  Real largest = 0;
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t k = 0; k < a[i].size(); ++k) {
      largest = std::max(largest, std::fabs(a[i][k] - b[i][k]));
    }
  }
  return largest;
}

// The prompt's rows in a cell's sketch, at the first decoded row.
struct Held {
  std::vector<Index> tokens;
  Vectors keys, values;
};

Held held(const LayerOfStreams& layer, std::size_t h, const Rule& rule) {
  const AlgorithmDescription& grkv = algorithm_named("grkv");
  const Stream& stream = *layer.streams[h];
  const Stepper stepper(stream, kPrompt, grkv, params_for(grkv, given(rule)), 0, 0, layer.streams);
  const Sketch& sketch = stepper.sketch();
  Held out;
  for (const SketchRow& row : sketch.rows()) {
    if (row.token >= kPrompt) continue;
    CHECK(row.w_num == 1.0);
    CHECK(row.w_den == 1.0);
    out.tokens.push_back(row.token);
    out.keys.push_back(row_of(stream.keys, row.token));
    out.values.push_back(row_of(stream.values, row.token));
    if (row.own_key >= 0) {
      out.keys.back().assign(sketch.own_keys[row.own_key].begin(),
                             sketch.own_keys[row.own_key].end());
    }
    if (row.own_value >= 0) {
      out.values.back().assign(sketch.own_values[row.own_value].begin(),
                               sketch.own_values[row.own_value].end());
    }
  }
  return out;
}

std::vector<StreamSpec> specs() {
  return {{.tokens = 44, .d = 4, .dv = 3, .heads_per_kv = 2, .rope_pairs = 2},
          {.tokens = 44, .d = 5, .dv = 2, .rope_pairs = 1, .rope_interleaved = true},
          {.tokens = 44,
           .d = 4,
           .dv = 4,
           .heads_per_kv = 2,
           .query_size = 0.7,
           .rope_pairs = 2,
           .sinks = true}};
}

TEST_CASE("grkv keeps criticalkv's tokens with the values and keys of its ridge regressions") {
  std::vector<int> seen(3, 0);
  for (const StreamSpec& spec : specs()) {
    const LayerOfStreams layer(spec, 2);
    for (const Rule& rule :
         {Rule{}, Rule{.budget = 16}, Rule{.guard = 0.4}, Rule{.ridge = 3.0}, Rule{.steps = 0},
          Rule{.queries = 13, .value_cap = 0.05}, Rule{.value_cap = 0.2, .key_cap = 0.03},
          Rule{.value_cap = 0.0, .key_cap = 0.02}, Rule{.value_cap = 0.0, .key_cap = 50.0}}) {
      const Fit expected = naive(layer, rule);
      CAPTURE(spec.d);
      CAPTURE(rule.budget);
      CAPTURE(rule.value_cap);
      ++seen[expected.changed];
      for (std::size_t h = 0; h < layer.streams.size(); ++h) {
        const Held ours = held(layer, h, rule);
        CHECK(ours.tokens == expected.heads[h].tokens);
        CHECK(distance(ours.values, expected.values[h]) < 1e-9);
        CHECK(distance(ours.keys, expected.keys[h]) < 2e-5);  // as far as the gradients go
      }
      const Derived derived = layer.derived("grkv", kPrompt, given(rule), 0);
      CHECK(derived_real(derived, "objective") <= 1.0);
    }
  }
  CHECK(seen[1] > 0);
  CHECK(seen[2] > 0);
}

TEST_CASE("grkv's tokens of the best scores and of the window are as they were") {
  const LayerOfStreams layer(specs().front(), 2);
  const Held ours = held(layer, 0, {.budget = 16, .guard = 0.5});
  const Fit expected = naive(layer, {.budget = 16, .guard = 0.5});
  const NaiveHead& head = expected.heads[0];
  Index changed = 0;
  for (std::size_t s = 0; s < ours.tokens.size(); ++s) {
    const bool moved = distance({ours.values[s]}, {head.values[s]}) > 0;
    CHECK(moved == head.fitted[s]);
    changed += moved ? 1 : 0;
  }
  CHECK(changed > 0);
  CHECK(changed < std::ssize(ours.tokens) - kWindow);
  const auto whole = held(layer, 0, {.budget = kPrompt});
  CHECK(std::ssize(whole.tokens) == kPrompt);
}

TEST_CASE("grkv is skipped where its fit does not know the layer's attention") {
  const auto why = [](StreamSpec spec) {
    return skip_of("grkv", make_stream(spec)->stream.shape, kPrompt, given({}));
  };
  StreamSpec spec = specs().front();
  CHECK(why(spec).empty());
  spec.softcap = 20.0;
  CHECK(why(spec).find("soft-cap") != std::string::npos);
  spec.softcap = 0.0;
  spec.window = 20;
  CHECK(why(spec).find("slides") != std::string::npos);
  spec.window = 0;
  spec.value_in_key = true;
  CHECK(why(spec).find("lie in them") != std::string::npos);
  spec.value_in_key = false;
  spec.rope_pairs = 0;
  CHECK(why(spec).find("RoPE") != std::string::npos);
}

}  // namespace grkv_test
}  // namespace kvbench::test
