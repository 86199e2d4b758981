#include "kernels/least_squares.hpp"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "numerics/lanes.hpp"
#include "numerics/unrolled.hpp"
#include "system/parallel.hpp"

namespace kvbench {
namespace {

constexpr Index kRowsAtOnce = 4;    // rows of X, whose multiples are added to a row of the result
constexpr Index kRowsPerTask = 16;  // rows of the result
constexpr Index kMaxBisections = 128;

// y[j] += sum over r of a[r] x[r][j], r ascending, j in [first, last).
void add_multiples(const double* const* x, const double* a, Index rows, Index first, Index last,
                   double* y) {
  if (rows == kRowsAtOnce) {
    const double* x0 = x[0];
    const double* x1 = x[1];
    const double* x2 = x[2];
    const double* x3 = x[3];
    for (Index j = first; j < last; ++j) {
      y[j] = std::fma(a[3], x3[j],
                      std::fma(a[2], x2[j], std::fma(a[1], x1[j], std::fma(a[0], x0[j], y[j]))));
    }
    return;
  }
  for (Index r = 0; r < rows; ++r) {
    for (Index j = first; j < last; ++j) y[j] = std::fma(a[r], x[r][j], y[j]);
  }
}

// y -= factor x
void subtract(double factor, const double* x, Index count, double* y) {
  for (Index j = 0; j < count; ++j) y[j] = std::fma(-factor, x[j], y[j]);
}

void divide(double* y, Index count, double by) {
  for (Index j = 0; j < count; ++j) y[j] /= by;
}

// out[i][j] += sum over rows r of x(r, i) y(r, j), for j >= (upper ? i : 0).
void add_transposed_product(ConstMatrix x, ConstMatrix y, bool upper, MutableMatrix out) {
  const Index tasks = (x.cols + kRowsPerTask - 1) / kRowsPerTask;
  parallel_for(tasks, [&](Index task) {
    const Index end = std::min(x.cols, (task + 1) * kRowsPerTask);
    for (Index r = 0; r < x.rows; r += kRowsAtOnce) {
      const Index count = std::min(kRowsAtOnce, x.rows - r);
      const double* rows[kRowsAtOnce] = {};
      for (Index k = 0; k < count; ++k) rows[k] = y.row(r + k);
      for (Index i = task * kRowsPerTask; i < end; ++i) {
        double a[kRowsAtOnce] = {};
        for (Index k = 0; k < count; ++k) a[k] = x(r + k, i);
        add_multiples(rows, a, count, upper ? i : 0, y.cols, out.row(i));
      }
    }
  });
}

// Symmetric A to tridiagonal form: diagonal, and the squares of what is next to it. A is scaled by
// a power of 2 to numbers of at most 2, so that no square overflows; what rounding leaves of a
// column that depends on others (below 2^-53) is taken for 0, before its squares vanish.
class Tridiagonal {
 public:
  explicit Tridiagonal(ConstMatrix a)
      : n_(a.rows),
        stride_((n_ + Lanes::kCount - 1) / Lanes::kCount * Lanes::kCount),
        a_(n_ * stride_, 0.0) {
    double most = 0.0;
    for (Index i = 0; i < n_; ++i) {
      for (Index j = i; j < n_; ++j) most = std::max(most, std::abs(at(i, j) = at(j, i) = a(i, j)));
    }
    if (most > 0.0 && std::isfinite(most)) exponent_ = std::ilogb(most);
    for (double& x : a_) x = std::ldexp(x, -exponent_);
    for (Index k = 0; k + 1 < n_; ++k) reflect(k);
    if (n_ > 0) diagonal_.push_back(at(n_ - 1, n_ - 1));
  }

  double largest() const {
    double low = 0.0;
    double high = 0.0;
    for (Index i = 0; i < n_; ++i) high = std::max(high, reach(i));
    for (Index step = 0; step < kMaxBisections; ++step) {
      const double middle = low + 0.5 * (high - low);
      if (!(middle > low && middle < high)) break;
      (all_below(middle) ? high : low) = middle;
    }
    return std::ldexp(high, exponent_);
  }

 private:
  // A <- A - v w^T - w v^T, by rows and columns from the first one that v and w are not 0 at.
  struct Update {
    AlignedDoubles v;
    AlignedDoubles w;
  };

  double& at(Index i, Index j) { return a_[i * stride_ + j]; }

  // Makes column k zero below k + 1. Its changes to later columns wait for the next step, which
  // reads them anyway.
  void reflect(Index k) {
    if (last_) update_column(k);
    diagonal_.push_back(at(k, k));
    double squares = 0.0;
    for (Index i = k + 2; i < n_; ++i) squares = std::fma(at(i, k), at(i, k), squares);
    const double head = at(k + 1, k);
    beside_.push_back(std::fma(head, head, squares));
    if (beside_.back() <= kNothing) beside_.back() = 0.0;
    if (squares == 0.0 || beside_.back() == 0.0) {
      if (last_) pass<true, false>(k + 1, nullptr);
      last_.reset();
      return;
    }
    const double length = std::sqrt(beside_.back());
    Update next{AlignedDoubles(stride_, 0.0), AlignedDoubles(stride_, 0.0)};
    AlignedDoubles& v = next.v;
    for (Index i = k + 1; i < n_; ++i) v[i] = at(i, k);
    v[k + 1] += std::copysign(length, head);
    const double beta = 1.0 / std::fma(length, std::abs(head), beside_.back());  // 2 / v^T v
    AlignedDoubles& w = next.w;
    last_ ? pass<true, true>(k + 1, &next) : pass<false, true>(k + 1, &next);
    double overlap = 0.0;
    for (Index i = k + 1; i < n_; ++i) {
      const std::size_t c = i;
      w[c] *= beta;
      overlap = std::fma(v[c], w[c], overlap);
    }
    const double half = 0.5 * beta * overlap;
    for (Index i = k + 1; i < n_; ++i) {
      const std::size_t c = i;
      w[c] = std::fma(-half, v[c], w[c]);
    }
    last_ = std::move(next);
  }

  // The last update, of column k from row k on alone.
  void update_column(Index k) {
    const std::size_t c = k;
    for (Index i = k; i < n_; ++i) {
      const std::size_t r = i;
      at(i, k) = std::fma(-last_->v[r], last_->w[c], std::fma(-last_->w[r], last_->v[c], at(i, k)));
    }
  }

  // The last update of rows and columns from `first` on, and next.w = A next.v, in one reading.
  // Columns before `first`, which nobody reads again, are changed as well.
  template <bool kUpdates, bool kMultiplies>
  void pass(Index first, Update* next) {
    for (Index i = first; i < n_; i += kRowsAtOnce) {
      if (i + kRowsAtOnce <= n_) {
        pass_rows<kUpdates, kMultiplies, kRowsAtOnce>(first, i, next);
      } else {
        for (Index rest = i; rest < n_; ++rest) {
          pass_rows<kUpdates, kMultiplies, 1>(first, rest, next);
        }
      }
    }
  }

  template <bool kUpdates, bool kMultiplies, int kRows>
  void pass_rows(Index first, Index i, Update* next) {
    Lanes minus_v[kRows], minus_w[kRows], of_next[kRows];
    unrolled<kRows>([&](auto r) {
      const std::size_t at = i + r;
      if constexpr (kUpdates) {
        minus_v[r] = Lanes::all(-last_->v[at]);
        minus_w[r] = Lanes::all(-last_->w[at]);
      }
      if constexpr (kMultiplies) of_next[r] = Lanes::all(next->v[at]);
    });
    double* rows = a_.data() + i * stride_;
    for (Index j = first / Lanes::kCount * Lanes::kCount; j < stride_; j += Lanes::kCount) {
      Lanes v, w, sum;
      if constexpr (kUpdates) {
        v = Lanes::load(last_->v.data() + j);
        w = Lanes::load(last_->w.data() + j);
      }
      if constexpr (kMultiplies) sum = Lanes::load(next->w.data() + j);
      unrolled<kRows>([&](auto r) {
        double* x = rows + r * stride_ + j;
        Lanes a = Lanes::load(x);
        if constexpr (kUpdates) {
          a = Lanes::fma(minus_v[r], w, Lanes::fma(minus_w[r], v, a));
          a.store(x);
        }
        if constexpr (kMultiplies) sum = Lanes::fma(of_next[r], a, sum);
      });
      if constexpr (kMultiplies) sum.store(next->w.data() + j);
    }
  }

  // Gershgorin's bound from row i.
  double reach(Index i) const {
    const std::size_t at = i;
    double out = diagonal_[at];
    if (i > 0) out += std::sqrt(beside_[at - 1]);
    if (i + 1 < n_) out += std::sqrt(beside_[at]);
    return out;
  }

  // Whether all eigenvalues are below x: all pivots of T - x I are negative.
  bool all_below(double x) const {
    double pivot = 1.0;
    for (std::size_t i = 0; i < diagonal_.size(); ++i) {
      pivot = diagonal_[i] - x - (i == 0 ? 0.0 : beside_[i - 1] / pivot);
      if (!(pivot < 0.0)) return false;
    }
    return true;
  }

  static constexpr double kNothing = 0x1p-106;

  const Index n_;
  const Index stride_;
  int exponent_ = 0;            // exponent of the scale
  AlignedDoubles a_;            // [n, stride]
  std::optional<Update> last_;  // update of the last step, still to be done
  std::vector<double> diagonal_;
  std::vector<double> beside_;
};

}  // namespace

void add_gram(ConstMatrix x, MutableMatrix gram) { add_transposed_product(x, x, true, gram); }

void mirror_upper(MutableMatrix a) {
  for (Index i = 0; i < a.rows; ++i) {
    for (Index j = 0; j < i; ++j) a(i, j) = a(j, i);
  }
}

void add_product(ConstMatrix x, ConstMatrix y, MutableMatrix out) {
  add_transposed_product(x, y, false, out);
}

void multiply(ConstMatrix x, ConstMatrix c, MutableMatrix out) {
  parallel_for(x.rows, [&](Index r) {
    double* row = out.row(r);
    std::fill(row, row + c.cols, 0.0);
    for (Index k = 0; k < x.cols; ++k) {
      for (Index j = 0; j < c.cols; ++j) row[j] = std::fma(x(r, k), c(k, j), row[j]);
    }
  });
}

std::optional<Cholesky> Cholesky::of(ConstMatrix a, double shift) {
  Cholesky out(a.rows);
  for (Index i = 0; i < a.rows; ++i) {
    std::copy(a.row(i) + i, a.row(i) + a.rows, out.row(i) + i);
    out.row(i)[i] += shift;
  }
  if (!out.factorise()) return std::nullopt;
  return out;
}

bool Cholesky::factorise() {
  for (Index i = 0; i < n_; ++i) {
    for (Index k = 0; k < i; k += kRowsAtOnce) {
      const Index count = std::min(kRowsAtOnce, i - k);
      const double* rows[kRowsAtOnce] = {};
      double minus[kRowsAtOnce] = {};
      for (Index r = 0; r < count; ++r) {
        rows[r] = row(k + r);
        minus[r] = -rows[r][i];
      }
      add_multiples(rows, minus, count, i, n_, row(i));
    }
    const double pivot = row(i)[i];
    if (!(pivot > 0.0) || !std::isfinite(pivot)) return false;
    const double root = std::sqrt(pivot);
    row(i)[i] = root;
    for (Index j = i + 1; j < n_; ++j) row(i)[j] /= root;
  }
  return true;
}

void Cholesky::solve_half(MutableMatrix b) const {
  for (Index i = 0; i < n_; ++i) {
    for (Index k = 0; k < i; ++k) subtract(row(k)[i], b.row(k), b.cols, b.row(i));
    divide(b.row(i), b.cols, row(i)[i]);
  }
}

void Cholesky::solve(MutableMatrix b) const {
  solve_half(b);
  for (Index i = n_ - 1; i >= 0; --i) {
    for (Index k = i + 1; k < n_; ++k) subtract(row(i)[k], b.row(k), b.cols, b.row(i));
    divide(b.row(i), b.cols, row(i)[i]);
  }
}

std::vector<double> quadratic_forms(const Cholesky& a, ConstMatrix x) {
  constexpr Index kAtOnce = 64;
  std::vector<double> out(x.rows, 0.0);
  parallel_for((x.rows + kAtOnce - 1) / kAtOnce, [&](Index task) {
    const Index first = task * kAtOnce;
    const Index count = std::min(kAtOnce, x.rows - first);
    std::vector<double> columns(x.cols * count);
    const MutableMatrix b(columns.data(), x.cols, count);
    for (Index r = 0; r < count; ++r) {
      for (Index k = 0; k < x.cols; ++k) b(k, r) = x(first + r, k);
    }
    a.solve_half(b);
    for (Index k = 0; k < x.cols; ++k) {
      for (Index r = 0; r < count; ++r) {
        double& sum = out[first + r];
        sum = std::fma(b(k, r), b(k, r), sum);
      }
    }
  });
  return out;
}

double largest_eigenvalue(ConstMatrix a) { return Tridiagonal(a).largest(); }

}  // namespace kvbench
