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
  static constexpr int kThreads = 256;
  static constexpr int kTokens = 16;  // in shared memory at a time

  const double* values = nullptr;  // [n, dv]
  Index dv = 0;
  const GramStep* steps = nullptr;  // [rows]
  double* grams = nullptr;          // [rows, dv, dv]

  struct Shared {
    double left[kTokens][kSide];
    double right[kTokens][kSide];
  };
  struct Sums {
    double of[4][4];
  };

  template <class Block>
  KVBENCH_DEVICE void operator()(Block& block, Shared& shared) const {
    const Index tiles = blocks_of(kSide, dv);
    const Index left = block.y / tiles * kSide;
    const Index right = block.y % tiles * kSide;
    if (left > right) return;  // written as the other's mirror image
    const GramStep step = steps[block.x];
    typename Block::template Own<Sums> own(block);
    block.threads([&](int t) { own[t] = Sums{}; });
    for (Index start = step.first; start < step.last; start += kTokens) {
      const int depth = static_cast<int>(smaller(kTokens, step.last - start));
      block.each(2 * kTokens * kSide, [&](Index i) {
        const Index k = i / kSide % kTokens;
        const bool is_left = i < kTokens * kSide;
        const Index column = (is_left ? left : right) + i % kSide;
        const double value = k < depth && column < dv ? values[(start + k) * dv + column] : 0.0;
        (is_left ? shared.left : shared.right)[k][i % kSide] = value;
      });
      block.threads([&](int t) {
        Sums& sums = own[t];
        for (int k = 0; k < depth; ++k) {
          for (int r = 0; r < 4; ++r) {
            for (int c = 0; c < 4; ++c) {
              sums.of[r][c] = scalar::fused(shared.left[k][t / 16 * 4 + r],
                                            shared.right[k][t % 16 + 16 * c], sums.of[r][c]);
            }
          }
        }
      });
    }
    double* gram = grams + block.x * dv * dv;
    block.threads([&](int t) {
      for (int r = 0; r < 4; ++r) {
        const Index a = left + t / 16 * 4 + r;
        for (int c = 0; c < 4; ++c) {
          const Index b = right + t % 16 + 16 * c;
          // On the diagonal both halves are computed, from equal products in equal order.
          if (a >= dv || b >= dv) continue;
          gram[a * dv + b] = own[t].of[r][c];
          if (left != right) gram[b * dv + a] = own[t].of[r][c];
        }
      }
    });
  }
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

  template <class Block>
  KVBENCH_DEVICE void operator()(Block& block, Shared&) const {
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

template <class Machine>
void value_norms(Machine& machine, const Stream& stream, const std::vector<Index>& rows,
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
