// Kernels::value_norms on a device: Gram matrices V^T V of the values that each row sees, grown
// from row to row as sums of squares (nothing is ever subtracted), then their largest eigenvalues.
#pragma once

#include <cmath>
#include <vector>

#include "cuda/kernels/device_stream.hpp"
#include "cuda/kernels/top_eigenvalue.hpp"
#include "cuda/machine.hpp"
#include "kernels/kernels.hpp"

namespace kvbench::cuda {

// A row's Gram matrix: that of tokens [first, last), added to the row's before where `grows`.
struct GramStep {
  Index first;
  Index last;
  bool grows;
};

// One block per row (x) and pair of 64 x 64 dimensions (y): the Gram matrix of the step's tokens.
struct StepGrams {
  static constexpr int kSide = 64;
  static constexpr int kThreads = 256;  // a warp for 16 x 32 of them
  static constexpr int kTokens = 16;    // in shared memory at a time
  using Tiles = WarpTiles<16, kSide / 2>;

  const double* values = nullptr;  // [n, dv]
  Index dv = 0;
  const GramStep* steps = nullptr;  // [rows]
  double* grams = nullptr;          // [rows, dv, dv]

  // Rows are so long that half a warp finds its numbers in 16 different banks.
  struct Part {
    double left[kTokens][kSide + 4];
    double right[kTokens][kSide + 4];
  };
  struct Shared {
    Part parts[2];  // one is multiplied while the other is fetched
  };

  template <Block B>
  KVBENCH_DEVICE void operator()(B& block, Shared& shared) const {
    const Index tiles = blocks_of(kSide, dv);
    const Index left = block.y / tiles * kSide;
    const Index right = block.y % tiles * kSide;
    if (left > right) return;  // written as the other's mirror image
    const GramStep step = steps[block.x];
    const auto fetch = [&](Part& part, Index token) {
      const double* from = values + token * dv;
      block.template fetch<kSide>(part.left, from + left, dv, step.last - token, dv - left);
      block.template fetch<kSide>(part.right, from + right, dv, step.last - token, dv - right);
    };
    typename B::template Own<Tiles> own(block);
    block.threads([&](int t) { own[t] = Tiles{}; });
    int at = 0;
    if (step.first < step.last) fetch(shared.parts[at], step.first);
    block.fetched();
    for (Index start = step.first; start < step.last; start += kTokens) {
      const Part& part = shared.parts[at];
      at = 1 - at;
      if (start + kTokens < step.last) fetch(shared.parts[at], start + kTokens);
      block.template multiply<kTokens / 4>(
          own,
          [&](int t, int i, int s) {
            return part.left[4 * s + t % 4][first_row(t) + Tiles::row(t, i)];
          },
          [&](int t, int j, int s) {
            return part.right[4 * s + t % 4][first_column(t) + 8 * j + t % 32 / 4];
          });
    }
    double* gram = grams + block.x * dv * dv;
    block.threads([&](int t) {
      KVBENCH_UNROLL
      for (int i = 0; i < 2; ++i) {
        const Index a = left + first_row(t) + Tiles::row(t, i);
        KVBENCH_UNROLL
        for (int j = 0; j < kSide / 16; ++j) {
          KVBENCH_UNROLL
          for (int e = 0; e < 2; ++e) {
            const Index b = right + first_column(t) + Tiles::column(t, j, e);
            if (a > b || b >= dv) continue;
            gram[a * dv + b] = own[t].of[i][j][e];
            gram[b * dv + a] = own[t].of[i][j][e];
          }
        }
      }
    });
  }

 private:
  KVBENCH_DEVICE static int first_row(int t) { return t / 64 * 16; }
  KVBENCH_DEVICE static int first_column(int t) { return t / 32 % 2 * (kSide / 2); }
};

// Adds up the steps: one index per matrix element.
struct GrowGrams {
  static constexpr int kThreads = 256;

  const GramStep* steps = nullptr;  // [rows]
  Index rows = 0;
  Index elements = 0;       // dv dv
  double* carry = nullptr;  // [elements] the Gram matrix of the row before, then of the last row
  double* grams = nullptr;  // [rows, elements]

  struct Shared {};

  template <Block B>
  KVBENCH_DEVICE void operator()(B& block, Shared&) const {
    block.threads([&](int t) {
      const Index e = block.x * kThreads + t;
      if (e >= elements) return;
      double sum = carry[e];
      for (Index r = 0; r < rows; ++r) {
        const double step = grams[r * elements + e];
        sum = steps[r].grows ? sum + step : step;
        grams[r * elements + e] = sum;
      }
      carry[e] = sum;
    });
  }
};

template <Machine M>
void value_norms(M& machine, const Stream& stream, const std::vector<Index>& rows,
                 std::vector<double>& spectral, std::vector<double>& frobenius) {
  const StreamShape& shape = stream.shape;
  const Index count = static_cast<Index>(rows.size());
  const Index dv = shape.dv;
  spectral.assign(rows.size(), 0.0);
  frobenius.assign(rows.size(), 0.0);
  if (count == 0) return;

  Index tokens = 0;
  std::vector<GramStep> plan;
  for (const Index row : rows) {
    const Index lo = shape.first_visible(row);
    const bool grows = !plan.empty() && lo == shape.first_visible(rows[plan.size() - 1]) &&
                       plan.back().last <= row + 1;
    plan.push_back({grows ? plan.back().last : lo, row + 1, grows});
    tokens = larger(tokens, row + 1);
  }

  const Index elements = dv * dv;
  DeviceMatrix values(machine, first_rows(stream.values, tokens));
  const auto room = machine.reserve(
      {.what = "value norms",
       .fixed_bytes = values.bytes() + bytes_of_doubles(elements),
       .row_bytes = bytes_of_doubles(elements + 4 * dv + 2) + static_cast<Index>(sizeof(GramStep)),
       .rows = count});
  const double* device_values = values.bring();
  auto carry = machine.template allocate<double>(elements);
  auto steps = machine.template allocate<GramStep>(room.rows());
  auto grams = machine.template allocate<double>(room.rows() * elements);
  auto scratch = machine.template allocate<double>(room.rows() * 4 * dv);
  auto eigenvalues = machine.template allocate<double>(room.rows());
  auto traces = machine.template allocate<double>(room.rows());
  machine.clear(carry.data(), elements);
  for (Index first = 0; first < count; first += room.rows()) {
    const Index batch = smaller(room.rows(), count - first);
    machine.upload(steps.data(), plan.data() + first, batch);
    StepGrams step;
    step.values = device_values;
    step.dv = dv;
    step.steps = steps.data();
    step.grams = grams.data();
    const Index tiles = blocks_of(StepGrams::kSide, dv);
    machine.launch(step, {.x = batch, .y = tiles * tiles});
    GrowGrams grow;
    grow.steps = steps.data();
    grow.rows = batch;
    grow.elements = elements;
    grow.carry = carry.data();
    grow.grams = grams.data();
    machine.launch(grow, {.x = blocks_of(GrowGrams::kThreads, elements)});
    TopEigenvalue top;
    top.d = dv;
    top.matrices = grams.data();
    top.scratch = scratch.data();
    top.eigenvalue = eigenvalues.data();
    top.trace = traces.data();
    machine.launch(top, {.x = batch});
    machine.download(spectral.data() + first, eigenvalues.data(), batch);
    machine.download(frobenius.data() + first, traces.data(), batch);
  }
  for (double& each : spectral) each = std::sqrt(each);
  for (double& each : frobenius) each = std::sqrt(each);
}

}  // namespace kvbench::cuda
