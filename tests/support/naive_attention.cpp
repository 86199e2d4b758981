#include "support/naive_attention.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace kvbench::test {
namespace {

// -slope (i - j) of row i and token j.
Real bias(const Stream& stream, int g, Index row, Index j) {
  if (stream.alibi_slopes.empty()) return 0;
  return -static_cast<Real>(stream.alibi_slopes[g]) * static_cast<Real>(row - j);
}

}  // namespace

Real naive_sink(const Stream& stream, int g) {
  if (stream.sinks.empty()) return -std::numeric_limits<Real>::infinity();
  return stream.sinks[g];
}

Visible naive_visible(const StreamShape& shape, Index row) {
  if (!shape.causal) return {0, shape.tokens - 1};
  Index first = row;
  while (first > 0) {
    const bool in_window = shape.window == 0 || row - (first - 1) < shape.window;
    const bool in_chunk = shape.chunk == 0 || (first - 1) / shape.chunk == row / shape.chunk;
    if (!in_window || !in_chunk) break;
    --first;
  }
  return {first, row};
}

Real naive_logit(const Stream& stream, int g, Index row, Index j) {
  Real x = 0;
  for (Index k = 0; k < stream.shape.d; ++k) {
    x += static_cast<Real>(stream.query(g, row)[k]) * static_cast<Real>(stream.keys(j, k));
  }
  x *= stream.shape.scale;
  const Real cap = stream.shape.softcap;
  return (cap > 0 ? cap * std::tanh(x / cap) : x) + bias(stream, g, row, j);
}

Real naive_feature_logit(const Stream& stream, int g, Index row, const std::vector<double>& key) {
  Real product = 0;
  Real square = 0;
  for (std::size_t k = 0; k < key.size(); ++k) {
    const Real q = stream.query(g, row)[k];
    product += q * static_cast<Real>(key[k]);
    square += q * q;
  }
  return static_cast<Real>(stream.shape.scale) * (product - square / 2);
}

Real naive_own_logit(const Stream& stream, int g, Index row, const std::vector<double>& key,
                     Index j) {
  Real x = 0;
  for (std::size_t k = 0; k < key.size(); ++k) {
    x += static_cast<Real>(stream.query(g, row)[k]) * static_cast<Real>(key[k]);
  }
  x *= stream.shape.scale;
  const Real cap = stream.shape.softcap;
  return (cap > 0 ? cap * std::tanh(x / cap) : x) + (j >= 0 ? bias(stream, g, row, j) : 0);
}

Real naive_turned_logit(const Stream& stream, int g, Index row, Index j, Index turn) {
  const Rope& rope = *stream.shape.rope;
  std::vector<Real> key(stream.keys.row(j), stream.keys.row(j) + stream.shape.d);
  const std::size_t pairs = rope.inv_freq.size();
  for (std::size_t p = 0; p < pairs; ++p) {
    Real& a = key[rope.interleaved ? 2 * p : p];
    Real& b = key[rope.interleaved ? 2 * p + 1 : p + pairs];
    const Real angle = static_cast<Real>(turn) * static_cast<Real>(rope.inv_freq[p]);
    const Real x = a * std::cos(angle) - b * std::sin(angle);
    const Real y = a * std::sin(angle) + b * std::cos(angle);
    a = x;
    b = y;
  }
  Real x = 0;
  for (std::size_t k = 0; k < key.size(); ++k) x += stream.query(g, row)[k] * key[k];
  x *= stream.shape.scale;
  const Real cap = stream.shape.softcap;
  return cap > 0 ? cap * std::tanh(x / cap) : x;
}

NaiveRow naive_row(const Stream& stream, int g, Index row) {
  const Visible visible = naive_visible(stream.shape, row);
  NaiveRow out;
  out.lo = visible.first;
  const bool has_sink = !stream.sinks.empty();
  out.max = has_sink ? static_cast<Real>(stream.sinks[g]) : -std::numeric_limits<Real>::infinity();
  for (Index j = out.lo; j <= visible.last; ++j) {
    out.x.push_back(naive_logit(stream, g, row, j));
    out.max = std::max(out.max, out.x.back());
  }
  if (has_sink) out.sink = std::exp(stream.sinks[g] - out.max);
  out.z = out.sink;
  for (const Real x : out.x) {
    out.p.push_back(std::exp(x - out.max));
    out.z += out.p.back();
  }
  out.a.assign(stream.shape.dv, 0);
  for (std::size_t j = 0; j < out.p.size(); ++j) {
    out.p[j] /= out.z;
    for (std::size_t k = 0; k < out.a.size(); ++k) {
      out.a[k] += out.p[j] * stream.values(out.lo + static_cast<Index>(j), static_cast<Index>(k));
    }
  }
  return out;
}

NaiveAnswer naive_answer(const Stream& stream, int g, Index row, const Sketch& sketch) {
  const NaiveRow exact = naive_row(stream, g, row);
  const std::size_t dv = static_cast<std::size_t>(stream.shape.dv);
  NaiveAnswer out;
  out.numerator.assign(dv, 0);
  Real shift = -std::numeric_limits<Real>::infinity();  // the largest logit of both sums
  if (!stream.sinks.empty()) {
    shift = stream.sinks[g];
    out.numerator_mass = out.denominator = exact.sink;
  }
  Index slot = 0;  // with cache positions: kept tokens are numbered, the current one last
  for (const SketchRow& kept : sketch.rows()) {
    if (kept.is_empty() || (kept.head >= 0 && kept.head != g)) continue;
    const Real x =
        kept.feature ? naive_feature_logit(stream, g, row, sketch.own_keys[kept.own_key]) +
                           static_cast<Real>(sketch.feature_shift)
        : kept.own_key >= 0
            ? naive_own_logit(stream, g, row, sketch.own_keys[kept.own_key], kept.token)
        : sketch.cache_positions ? naive_turned_logit(stream, g, row, kept.token,
                                                      row - (sketch.size() - 1) + slot - kept.token)
                                 : naive_logit(stream, g, row, kept.token);
    ++slot;
    const Real e = std::exp(x - exact.max);
    if (kept.w_num != 0.0) {
      shift = std::max(shift, x);
      const Real w = kept.w_num * (kept.scaled ? static_cast<Real>(sketch.numerator_scale) : 1) * e;
      out.numerator_mass += w;
      for (std::size_t k = 0; k < dv; ++k) {
        out.numerator[k] +=
            w * (kept.own_value >= 0 ? sketch.own_values[kept.own_value][k]
                                     : stream.values(kept.token, static_cast<Index>(k)));
      }
    }
    if (kept.w_den != 0.0) {
      shift = std::max(shift, x);
      out.denominator += static_cast<Real>(kept.w_den) * e;
    }
  }
  if (sketch.exact_numerator) {
    out.numerator_mass = exact.z;
    for (std::size_t k = 0; k < dv; ++k) out.numerator[k] = exact.a[k] * exact.z;
    shift = exact.max;
  }
  if (sketch.exact_denominator) {
    out.denominator = exact.z;
    shift = exact.max;
  }
  // Under the common shift a double denominator below exp(-708) has vanished.
  out.empty_denominator =
      out.denominator == 0 || std::log(out.denominator) + exact.max - shift < -700;
  const AnswerRule* rule = sketch.answer_rule.get();
  if (rule != nullptr) {
    out.empty_denominator =
        out.empty_denominator || out.denominator <= rule->least_denominator * out.numerator_mass;
  }
  out.empty_denominator = out.empty_denominator || out.denominator < 0;
  out.z.assign(dv, 0);
  for (std::size_t k = 0; k < dv; ++k) {
    if (!out.empty_denominator) out.z[k] = out.numerator[k] / out.denominator;
    if (std::fabs(out.z[k]) < 4e-308L) out.z[k] = 0;  // below the doubles
    if (rule == nullptr || rule->low.empty()) continue;
    const Real inside = std::clamp<Real>(out.z[k], rule->low[k], rule->high[k]);
    out.clamped = out.clamped || inside != out.z[k];
    out.z[k] = inside;
  }
  return out;
}

}  // namespace kvbench::test
