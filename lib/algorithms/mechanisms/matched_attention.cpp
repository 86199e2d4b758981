#include "algorithms/mechanisms/matched_attention.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "kernels/least_squares.hpp"
#include "kernels/row_exponentials.hpp"
#include "numerics/canonical.hpp"
#include "numerics/lanes.hpp"
#include "numerics/unrolled.hpp"
#include "system/error.hpp"
#include "system/parallel.hpp"

namespace kvbench {
namespace {

constexpr Index kReferencesAtOnce = 128;
constexpr Index kReferencesPerTask = 6;
constexpr Index kTokensPerTask = 512;
constexpr double kUnseen = -std::numeric_limits<double>::infinity();

Index tasks_of(Index references) {
  return (references + kReferencesPerTask - 1) / kReferencesPerTask;
}

double sum_of(const double* x, Index count) { return std::accumulate(x, x + count, 0.0); }

// answers[q] += sum over j of shares[q][j] values(j), j ascending, for kCount references.
template <int kCount>
void add_values(ConstMatrix values, const double* const* shares, double* const* answers) {
  Index k = 0;
  for (; k + Lanes::kCount <= values.cols; k += Lanes::kCount) {
    Lanes sums[kCount];
    unrolled<kCount>([&](auto q) { sums[q] = Lanes::load(answers[q] + k); });
    for (Index j = 0; j < values.rows; ++j) {
      const Lanes value = Lanes::load(values.row(j) + k);
      unrolled<kCount>(
          [&](auto q) { sums[q] = Lanes::fma(Lanes::all(shares[q][j]), value, sums[q]); });
    }
    unrolled<kCount>([&](auto q) { sums[q].store(answers[q] + k); });
  }
  for (; k < values.cols; ++k) {
    for (int q = 0; q < kCount; ++q) {
      for (Index j = 0; j < values.rows; ++j) {
        answers[q][k] = std::fma(shares[q][j], values(j, k), answers[q][k]);
      }
    }
  }
}

// A design matrix, block by block: `fill(first, last, x)` writes its rows [first, last), `columns`
// apart.
template <class Fill>
struct Design {
  Index rows;
  Index columns;
  Fill fill;

  // visit(first, block) for all blocks, in order.
  template <class Visit>
  void each(const Visit& visit) const {
    AlignedDoubles block(kReferencesAtOnce * columns);
    for (Index first = 0; first < rows; first += kReferencesAtOnce) {
      const Index last = std::min(rows, first + kReferencesAtOnce);
      fill(first, last, block.data());
      visit(first, ConstMatrix(block.data(), last - first, columns));
    }
  }
};

// argmin |X C - Y|^2 + ridge (|X|_F^2 / t) |C|^2, and X^T X and X^T Y if they were asked for.
struct Solved {
  AlignedDoubles solution;  // [t, m]
  AlignedDoubles gram;      // [t, t], upper triangle
  AlignedDoubles moments;   // [t, m]
};

// sum of squares of each column, rows ascending.
template <class Fill>
AlignedDoubles column_squares(const Design<Fill>& design) {
  AlignedDoubles squares(design.columns, 0.0);
  design.each([&](Index, ConstMatrix x) {
    for (Index r = 0; r < x.rows; ++r) {
      for (Index j = 0; j < x.cols; ++j) {
        double& sum = squares[j];
        sum = std::fma(x(r, j), x(r, j), sum);
      }
    }
  });
  return squares;
}

// Solves by X X^T, for fewer rows than columns.
template <class Fill>
void solve_dual(const Design<Fill>& design, ConstMatrix y, double shift, MutableMatrix out) {
  const Index n = design.rows;
  AlignedDoubles transposed(design.columns * n);
  design.each([&](Index first, ConstMatrix x) {
    for (Index r = 0; r < x.rows; ++r) {
      for (Index j = 0; j < x.cols; ++j) {
        transposed[j * n + first + r] = x(r, j);
      }
    }
  });
  const ConstMatrix xt(transposed.data(), design.columns, n);
  AlignedDoubles gram(n * n, 0.0);
  add_gram(xt, {gram.data(), n, n});
  const std::optional<Cholesky> factor = Cholesky::of({gram.data(), n, n}, shift);
  if (!factor) fail_singular_fit();
  AlignedDoubles dual(n * y.cols);
  for (Index r = 0; r < n; ++r) std::copy(y.row(r), y.row(r) + y.cols, dual.data() + r * y.cols);
  factor->solve({dual.data(), n, y.cols});
  multiply(xt, {dual.data(), n, y.cols}, out);
}

// With fewer rows than columns X^T X is only made if it is asked for.
template <class Fill>
Solved solve_ridge(const Design<Fill>& design, ConstMatrix y, double ridge, bool with_products) {
  const Index t = design.columns;
  const bool by_dual = design.rows < t;
  Solved out;
  out.solution.assign(t * y.cols, 0.0);
  const MutableMatrix solution(out.solution.data(), t, y.cols);
  if (with_products || !by_dual) {
    out.gram.assign(t * t, 0.0);
    design.each([&](Index first, ConstMatrix x) {
      add_gram(x, {out.gram.data(), t, t});
      add_product(x, {y.row(first), x.rows, y.cols, y.stride}, solution);
    });
    out.moments = out.solution;
  }
  const ConstMatrix gram(out.gram.data(), t, t);
  const AlignedDoubles squares = out.gram.empty() ? column_squares(design) : AlignedDoubles();
  double trace = 0.0;
  for (Index i = 0; i < t; ++i) {
    trace += out.gram.empty() ? squares[i] : gram(i, i);
  }
  if (trace == 0.0) return out;  // X is 0: the least solution
  const double shift = ridge * trace / t;
  if (by_dual) {
    solve_dual(design, y, shift, solution);
    return out;
  }
  const std::optional<Cholesky> factor = Cholesky::of(gram, shift);
  if (!factor) fail_singular_fit();
  factor->solve(solution);
  return out;
}

// |design solution - y|_F / |y|_F
template <class Fill>
double residual(const Design<Fill>& design, ConstMatrix solution, ConstMatrix y) {
  double error = 0.0;
  double whole = 0.0;
  AlignedDoubles fitted(kReferencesAtOnce * y.cols);
  design.each([&](Index first, ConstMatrix x) {
    multiply(x, solution, {fitted.data(), x.rows, y.cols});
    for (Index r = 0; r < x.rows; ++r) {
      for (Index k = 0; k < y.cols; ++k) {
        const double target = y(first + r, k);
        const double off = fitted[r * y.cols + k] - target;
        error = std::fma(off, off, error);
        whole = std::fma(target, target, whole);
      }
    }
  });
  return whole > 0.0 ? std::sqrt(error / whole) : 0.0;
}

// w <- clamp(w - M^T (M w - y) / |M|_2^2).
void descend(const Solved& solved, const FitRule& rule, std::vector<double>& weights) {
  if (rule.steps == 0) return;
  const auto t = std::ssize(weights);
  AlignedDoubles full = solved.gram;
  mirror_upper({full.data(), t, t});
  const double smoothness = largest_eigenvalue({solved.gram.data(), t, t});
  if (!(smoothness > 0.0)) return;
  std::vector<double> gradient(weights.size());
  for (Index step = 0; step < rule.steps; ++step) {
    multiply({full.data(), t, t}, {weights.data(), t, 1}, {gradient.data(), t, 1});
    for (std::size_t i = 0; i < weights.size(); ++i) {
      weights[i] = std::clamp(weights[i] - (gradient[i] - solved.moments[i]) / smoothness,
                              rule.lowest, rule.highest);
    }
  }
}

class Fit {
 public:
  Fit(const Stream& stream, const References& references,
      const ReferenceAttention::Result& attention, const std::vector<std::int32_t>& tokens,
      const FitRule& rule)
      : stream_(stream),
        attention_(attention),
        tokens_(tokens),
        rule_(rule),
        logits_(stream, references, tokens),
        t_(logits_.tokens()) {}

  void set_weights(std::vector<double> found) {
    const ConstMatrix sums(attention_.sum.data(), logits_.count(), 1);
    const Design design{logits_.count(), t_, [this](Index first, Index last, double* m) {
                          exponentials(first, last, m);
                        }};
    out_.weights = std::move(found);
    if (!rule_.weights) {
      out_.weights.assign(tokens_.size(), 1.0);
    } else if (out_.weights.empty()) {
      const Solved solved = solve_ridge(design, sums, rule_.ridge, rule_.steps > 0);
      for (const double w : solved.solution) {
        out_.weights.push_back(std::clamp(w, rule_.lowest, rule_.highest));
      }
      descend(solved, rule_, out_.weights);
    }
    out_.sum_residual = residual(design, {out_.weights.data(), t_, 1}, sums);
  }

  void set_values() {
    const Index dv = stream_.shape.dv;
    const ConstMatrix outputs(attention_.outputs.data(), logits_.count(), dv);
    const Design design{logits_.count(), t_,
                        [this](Index first, Index last, double* x) { softmax(first, last, x); }};
    AlignedDoubles values;
    if (rule_.values) {
      values = solve_ridge(design, outputs, rule_.ridge, false).solution;
      for (Index j = 0; j < t_; ++j) {
        out_.values.emplace_back(values.data() + j * dv, values.data() + (j + 1) * dv);
      }
    } else {
      for (const std::int32_t token : tokens_) {
        const double* own = stream_.values.row(token);
        values.insert(values.end(), own, own + dv);
      }
    }
    out_.output_residual = residual(design, {values.data(), t_, dv}, outputs);
  }

  FittedRows rows() { return std::move(out_); }

 private:
  // take(q, x) for references q in [first, last): their logits to the tokens.
  template <class Take>
  void each_row(Index first, Index last, const Take& take) const {
    parallel_for(tasks_of(last - first), [&](Index task) {
      const Index from = first + task * kReferencesPerTask;
      const Index to = std::min(last, from + kReferencesPerTask);
      AlignedDoubles x(kReferencesPerTask * logits_.stride());
      logits_.block(from, to, x.data());
      for (Index q = from; q < to; ++q) take(q, x.data() + (q - from) * logits_.stride());
    });
  }

  // M: under the reference's largest logit over all its tokens.
  void exponentials(Index first, Index last, double* m) const {
    each_row(first, last, [&](Index q, const double* x) {
      const double shift = attention_.largest[q];
      double* row = m + (q - first) * t_;
      for (Index j = 0; j < t_; ++j) row[j] = shift == kUnseen ? 0.0 : canonical_exp(x[j] - shift);
    });
  }

  // X: softmax over the chosen tokens alone, by their weights.
  void softmax(Index first, Index last, double* to) const {
    each_row(first, last, [&](Index q, double* x) {
      exponentiate(x, t_);
      double* row = to + (q - first) * t_;
      for (Index j = 0; j < t_; ++j) row[j] = out_.weights[j] * x[j];
      const double sum = sum_of(row, t_);
      if (sum == 0.0) return;
      for (Index j = 0; j < t_; ++j) row[j] /= sum;
    });
  }

  const Stream& stream_;
  const ReferenceAttention::Result& attention_;
  const std::vector<std::int32_t>& tokens_;
  const FitRule& rule_;
  const ReferenceLogits logits_;
  const Index t_;
  FittedRows out_;
};

}  // namespace

ReferenceLogits::ReferenceLogits(const Stream& stream, const References& references,
                                 std::vector<std::int32_t> tokens)
    : stream_(stream),
      references_(references),
      tokens_(std::move(tokens)),
      keys_(stream.keys, tokens_) {}

void ReferenceLogits::block(Index first, Index last, double* x) const {
  std::vector<const double*> queries;
  for (Index q = first; q < last; ++q) {
    queries.push_back(stream_.query(static_cast<int>(q / references_.rows()),
                                    references_.first_row + q % references_.rows()));
  }
  keys_.logits(stream_.shape, queries, 0, keys_.padded(), x, stride());
  for (Index q = first; stream_.shape.alibi && q < last; ++q) {
    add_alibi(stream_, static_cast<int>(q / references_.rows()),
              references_.first_row + q % references_.rows(), tokens_, x + (q - first) * stride());
  }
  if (!references_.masked) return;
  for (Index q = first; q < last; ++q) {
    const Index row = references_.first_row + q % references_.rows();
    const auto seen_from =
        std::lower_bound(tokens_.begin(), tokens_.end(), stream_.shape.first_visible(row));
    const auto seen_to =
        std::lower_bound(tokens_.begin(), tokens_.end(), stream_.shape.visible_end(row));
    double* logits = x + (q - first) * stride();
    std::fill(logits, logits + (seen_from - tokens_.begin()), kUnseen);
    std::fill(logits + (seen_to - tokens_.begin()), logits + tokens(), kUnseen);
  }
}

ReferenceAttention reference_attention(const References& references, const StreamShape& shape) {
  const double count = references.rows() * shape.heads_per_kv;
  const double tokens = references.tokens();
  return {references, 8.0 * (count * (shape.dv + 2) + tokens * (kReferencesAtOnce + shape.d + 8))};
}

// Logits of reference q become its softmax `a`; false if it sees no token.
bool ReferenceAttention::normalise(Index q, double* a, Result& out) const {
  const std::size_t at = q;
  const Index tokens = references.tokens();
  out.largest[at] = exponentiate(a, tokens);
  out.sum[at] = sum_of(a, tokens);
  if (out.sum[at] == 0.0) return false;
  for (Index j = 0; j < tokens; ++j) a[j] /= out.sum[at];
  return true;
}

// By token: references in order.
void ReferenceAttention::add_scores(const double* block, Index count, Index stride,
                                    Result& out) const {
  parallel_for((references.tokens() + kTokensPerTask - 1) / kTokensPerTask, [&](Index task) {
    const Index end = std::min(references.tokens(), (task + 1) * kTokensPerTask);
    for (Index r = 0; r < count; ++r) {
      const double* a = block + r * stride;
      for (Index j = task * kTokensPerTask; j < end; ++j) {
        const std::size_t at = j;
        out.rms[at] = std::fma(a[j], a[j], out.rms[at]);
        out.max[at] = std::max(out.max[at], a[j]);
        out.mean[at] += a[j];
      }
    }
  });
}

ReferenceAttention::Result ReferenceAttention::compute(const SharedContext& context) const {
  const Stream& stream = context.stream;
  const Index dv = stream.shape.dv;
  const Index tokens = references.tokens();
  std::vector<std::int32_t> all(tokens);
  std::iota(all.begin(), all.end(), static_cast<std::int32_t>(references.first_token));
  const ReferenceLogits logits(stream, references, std::move(all));
  const Index count = logits.count();
  Result out;
  for (auto* scores : {&out.rms, &out.max, &out.mean}) {
    scores->assign(tokens, 0.0);
  }
  out.largest.resize(count);
  out.sum.resize(count);
  out.outputs.assign(count * dv, 0.0);
  AlignedDoubles block(kReferencesAtOnce * logits.stride());
  for (Index first = 0; first < count; first += kReferencesAtOnce) {
    const Index last = std::min(count, first + kReferencesAtOnce);
    parallel_for(tasks_of(last - first), [&](Index task) {
      const Index from = first + task * kReferencesPerTask;
      const Index to = std::min(last, from + kReferencesPerTask);
      double* a = block.data() + (from - first) * logits.stride();
      logits.block(from, to, a);
      std::vector<const double*> shares;
      std::vector<double*> answers;
      for (Index q = from; q < to; ++q, a += logits.stride()) {
        if (!normalise(q, a, out)) continue;
        shares.push_back(a);
        answers.push_back(out.outputs.data() + q * dv);
      }
      const ConstMatrix values(stream.values.row(references.first_token), tokens, dv,
                               stream.values.stride);
      if (shares.size() == kReferencesPerTask) {
        add_values<kReferencesPerTask>(values, shares.data(), answers.data());
        return;
      }
      for (std::size_t q = 0; q < shares.size(); ++q) {
        add_values<1>(values, &shares[q], &answers[q]);
      }
    });
    add_scores(block.data(), last - first, logits.stride(), out);
  }
  out.seeing = std::count_if(out.sum.begin(), out.sum.end(), [](double s) { return s > 0.0; });
  const double seeing = std::max<Index>(1, out.seeing);
  for (double& score : out.rms) score = std::sqrt(score / seeing);
  for (double& score : out.mean) score /= seeing;
  return out;
}

double exponentiate(double* x, Index count) {
  double largest = kUnseen;
  for (Index j = 0; j < count; ++j) largest = std::max(largest, x[j]);
  if (largest == kUnseen) {
    std::fill(x, x + count, 0.0);
    return largest;
  }
  if (!std::isfinite(largest)) throw CellError("logits of the prompt overflow");
  return exponentiate(x, x, 0, count, kUnseen);
}

void fail_singular_fit() {
  throw CellError(
      "the least squares of the fit are singular: more tokens than independent reference queries; "
      "set `ridge` above 0");
}

double fit_bytes(Index references, Index tokens, const StreamShape& shape, const FitRule& rule) {
  const double r = references;
  const double t = tokens;
  const double dv = shape.dv;
  // X X^T with its factor, and X^T; else X^T X with its factor.
  const double solved = references < tokens ? r * (t + 2.0 * r + dv) : 2.0 * t * t;
  double weights = 0.0;
  if (rule.weights) weights = solved;
  // To descend, X^T X is kept, and needed twice more.
  if (rule.weights && rule.steps > 0) weights = t * t + std::max(solved, 2.0 * t * t);
  const double values = (rule.values ? solved + 2.0 * t * dv : 0.0) + t * dv;
  const double blocks = kReferencesAtOnce * (t + dv);
  return 8.0 * (std::max(weights, values) + blocks + t * (shape.d + 16));
}

FittedRows fit_rows(const Stream& stream, const References& references,
                    const ReferenceAttention::Result& attention,
                    const std::vector<std::int32_t>& tokens, const FitRule& rule,
                    std::vector<double> weights) {
  Fit fit(stream, references, attention, tokens, rule);
  fit.set_weights(std::move(weights));
  fit.set_values();
  return fit.rows();
}

}  // namespace kvbench
