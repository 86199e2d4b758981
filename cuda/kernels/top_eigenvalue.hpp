// Largest eigenvalues of symmetric positive semidefinite matrices on a device, one block each:
// Householder's reduction to tridiagonal form, then sections of the interval that holds the largest
// eigenvalue by Sturm's test. Backward stable, so the relative error is a few d ulp; no start
// vector, no stopping rule.
#pragma once

#include "cuda/machine.hpp"

namespace kvbench::cuda {

struct TopEigenvalue {
  static constexpr int kThreads = 256;
  static constexpr int kRounds = 8;  // 257^8 > 2^63 parts of the interval

  Index d = 0;
  double* matrices = nullptr;    // [count, d, d], both triangles; overwritten
  double* scratch = nullptr;     // [count, 4, d]
  double* eigenvalue = nullptr;  // [count]
  double* trace = nullptr;       // [count]

  struct Shared {
    double partial[kThreads];
    double largest;  // diagonal element: the matrix is divided by it
    double alpha;
    double beta;
    double low;  // the largest eigenvalue is in [low, high]
    double high;
    bool reached[kThreads];  // whether an eigenvalue is at or above the thread's point
  };

  template <Block B>
  KVBENCH_DEVICE void operator()(B& block, Shared& shared) const {
    const Index place = block.x;
    double* a = matrices + place * d * d;
    block.each(1, [&](Index) {
      double sum = 0.0;
      double largest = 0.0;
      for (Index k = 0; k < d; ++k) {
        sum += a[k * d + k];
        largest = a[k * d + k] > largest ? a[k * d + k] : largest;
      }
      trace[place] = sum;
      shared.largest = largest;
      if (!(largest > 0.0)) eigenvalue[place] = 0.0;
    });
    if (!(block.uniform(shared.largest) > 0.0)) return;
    block.each(d * d, [&](Index i) { a[i] /= shared.largest; });
    tridiagonalize(block, shared, a);
    section(block, shared);
    block.each(1, [&](Index) {
      eigenvalue[place] = (shared.low + 0.5 * (shared.high - shared.low)) * shared.largest;
    });
  }

 private:
  // Vectors of one matrix, [d] each.
  KVBENCH_DEVICE double* diagonal(Index place) const { return scratch + place * 4 * d; }
  KVBENCH_DEVICE double* off_diagonal(Index place) const { return diagonal(place) + d; }

  // Sum of term(i) over [first, d), in a fixed order, into shared.partial[0].
  template <Block B, class Term>
  KVBENCH_DEVICE void sum_terms(B& block, Shared& shared, Index first, const Term& term) const {
    block.threads([&](int t) {
      double sum = 0.0;
      for (Index i = first + t; i < d; i += kThreads) sum += term(i);
      shared.partial[t] = sum;
    });
    for (int half = kThreads / 2; half > 0; half /= 2) {
      block.each(half, [&](Index t) { shared.partial[t] += shared.partial[t + half]; });
    }
  }

  template <Block B>
  KVBENCH_DEVICE void tridiagonalize(B& block, Shared& shared, double* a) const {
    double* const diag = diagonal(block.x);
    double* const off = off_diagonal(block.x);
    double* const v = off + d;
    double* const w = v + d;
    for (Index k = 0; k + 2 < d; ++k) {
      // The reflection I - beta v v^T takes column k below the diagonal to (alpha, 0, .., 0).
      const double* column = a + k * d;
      sum_terms(block, shared, k + 1, [&](Index i) { return column[i] * column[i]; });
      block.each(1, [&](Index) {
        const double norm = sqrt(shared.partial[0]);
        shared.alpha = column[k + 1] > 0.0 ? -norm : norm;
        const double head = column[k + 1] - shared.alpha;
        const double squares = shared.partial[0] - column[k + 1] * column[k + 1] + head * head;
        shared.beta = squares > 0.0 ? 2.0 / squares : 0.0;
      });
      block.each(d - k - 1, [&](Index i) {
        v[k + 1 + i] = column[k + 1 + i] - (i == 0 ? shared.alpha : 0.0);
      });
      block.each(d - k - 1, [&](Index i) {
        double product = 0.0;
        for (Index j = k + 1; j < d; ++j) {
          product = fused(a[j * d + k + 1 + i], v[j], product);
        }
        w[k + 1 + i] = shared.beta * product;
      });
      sum_terms(block, shared, k + 1, [&](Index i) { return v[i] * w[i]; });
      block.each(d - k - 1, [&](Index i) {
        w[k + 1 + i] -= 0.5 * shared.beta * shared.partial[0] * v[k + 1 + i];
      });
      block.each(d - k - 1, [&](Index place) {
        const Index i = k + 1 + place;
        for (Index j = k + 1; j < d; ++j) a[j * d + i] -= v[j] * w[i] + w[j] * v[i];
      });
      block.each(1, [&](Index) {
        diag[k] = a[k * d + k];
        off[k] = shared.alpha;
      });
    }
    block.each(1, [&](Index) {
      if (d >= 2) {
        diag[d - 2] = a[(d - 2) * d + d - 2];
        off[d - 2] = a[(d - 2) * d + d - 1];
      }
      diag[d - 1] = a[d * d - 1];
    });
  }

  template <Block B>
  KVBENCH_DEVICE void section(B& block, Shared& shared) const {
    const double* const diag = diagonal(block.x);
    const double* const off = off_diagonal(block.x);
    block.each(1, [&](Index) {
      double low = diag[0];
      double high = diag[0];
      for (Index k = 0; k < d; ++k) {
        const double reach = (k > 0 ? fabs(off[k - 1]) : 0.0) + (k + 1 < d ? fabs(off[k]) : 0.0);
        low = diag[k] > low ? diag[k] : low;
        high = diag[k] + reach > high ? diag[k] + reach : high;
      }
      shared.low = low;
      shared.high = high;
    });
    for (int round = 0; round < kRounds; ++round) {
      block.threads([&](int t) { shared.reached[t] = reaches(diag, off, point(shared, t)); });
      block.each(1, [&](Index) {
        int beyond = 0;
        while (beyond < kThreads && shared.reached[beyond]) ++beyond;
        const double low = beyond > 0 ? point(shared, beyond - 1) : shared.low;
        const double high = beyond < kThreads ? point(shared, beyond) : shared.high;
        shared.low = low;
        shared.high = high;
      });
    }
  }

  KVBENCH_DEVICE static double point(const Shared& shared, int t) {
    return shared.low + (shared.high - shared.low) * ((t + 1.0) / (kThreads + 1.0));
  }

  // Whether the tridiagonal matrix has an eigenvalue at or above x: T - x I is negative definite
  // exactly if it has none.
  KVBENCH_DEVICE bool reaches(const double* diag, const double* off, double x) const {
    double pivot = diag[0] - x;
    for (Index k = 1; k < d; ++k) {
      if (pivot >= 0.0) return true;
      pivot = (diag[k] - x) - off[k - 1] * off[k - 1] / pivot;
    }
    return pivot >= 0.0;
  }
};

}  // namespace kvbench::cuda
