// A tile of canonical values of all pairs of rows of two matrices: dot products (Step = DotStep) or
// squared distances (DistanceStep), each a chain from dimension 0 up whatever the tile.
#pragma once

#include "cuda/machine.hpp"

namespace kvbench::cuda {

// kLeft x kRight pairs by kLeft * kRight / 16 threads of 4 x 4 pairs each.
template <int kLeft, int kRight>
struct ProductTile {
  static constexpr int kThreads = kLeft * kRight / 16;
  static constexpr int kDepth = 16;           // dimensions in shared memory at a time
  static constexpr int kAcross = kRight / 4;  // threads along the right side

  struct Shared {
    double left[kDepth][kLeft + 1];
    double right[kDepth][kRight + 1];
  };
  struct Values {
    double of[4][4];
  };

  // The pair that thread t holds as of[r][c].
  KVBENCH_DEVICE static int left_of(int t, int r) { return t / kAcross * 4 + r; }
  KVBENCH_DEVICE static int right_of(int t, int c) { return t % kAcross + kAcross * c; }

  // to[i][j] = the value of rows i and j.
  template <Block B, int kStride>
  KVBENCH_DEVICE static void store(B& block, typename B::template Own<Values>& own,
                                   double (&to)[kLeft][kStride]) {
    block.threads([&](int t) {
      for (int r = 0; r < 4; ++r) {
        for (int c = 0; c < 4; ++c) to[left_of(t, r)][right_of(t, c)] = own[t].of[r][c];
      }
    });
  }

  // left(i), right(j): the row's d numbers, or null if there is none (its values are undefined).
  template <class Step, Block B, class Left, class Right>
  KVBENCH_DEVICE static void compute(B& block, typename B::template Own<Values>& own,
                                     Shared& shared, Index d, const Left& left,
                                     const Right& right) {
    block.threads([&](int t) {
      for (int r = 0; r < 4; ++r) {
        for (int c = 0; c < 4; ++c) own[t].of[r][c] = 0.0;
      }
    });
    for (Index start = 0; start < d; start += kDepth) {
      const int depth = static_cast<int>(smaller(kDepth, d - start));
      block.each((kLeft + kRight) * kDepth, [&](Index i) {
        const int k = static_cast<int>(i % kDepth);
        const int row = static_cast<int>(i / kDepth);
        const double* source = row < kLeft ? left(row) : right(row - kLeft);
        const double value = source != nullptr && k < depth ? source[start + k] : 0.0;
        if (row < kLeft) {
          shared.left[k][row] = value;
        } else {
          shared.right[k][row - kLeft] = value;
        }
      });
      block.threads([&](int t) {
        Values& values = own[t];
        const auto step = [&](int k) {
          double a[4];
          double b[4];
          for (int r = 0; r < 4; ++r) a[r] = shared.left[k][left_of(t, r)];
          for (int c = 0; c < 4; ++c) b[c] = shared.right[k][right_of(t, c)];
          for (int r = 0; r < 4; ++r) {
            for (int c = 0; c < 4; ++c) {
              values.of[r][c] = Step::next(a[r], b[c], values.of[r][c]);
            }
          }
        };
        if (depth == kDepth) {  // unrolled
          for (int k = 0; k < kDepth; ++k) step(k);
        } else {
          for (int k = 0; k < depth; ++k) step(k);
        }
      });
    }
  }
};

}  // namespace kvbench::cuda
