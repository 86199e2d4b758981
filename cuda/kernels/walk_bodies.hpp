// The bodies of cuda/kernels/balance_walk.hpp. Sums have the order of lib/kernels/balance_walk.cpp:
// y_j is made of eight parts, part i % 8 gathers eta_i K_ij / scale_j in ascending order of i.
#pragma once

#include "cuda/kernels/block_largest.hpp"
#include "cuda/kernels/product_tile.hpp"
#include "cuda/machine.hpp"
#include "kernels/kernels.hpp"

namespace kvbench::cuda {

inline constexpr int kWalkPanel = 64;  // rows whose matrix is made at once
inline constexpr int kWalkLanes = 8;   // parts of a sum

// One walk on the device. Panel p: rows [64 p, 64 (p + 1)) of K / scale, columns [0, 64 (p + 1)).
struct WalkView {
  Index size = 0;                 // m
  bool holds_all_panels = false;  // else the current panel
  double* panels = nullptr;       // K_ij / scale_j at i < j, else 0
  double* scale = nullptr;        // [m]
  WalkKernel kernel = {};         // to make panels:
  Index d = 0;
  Index dv = 0;
  const double* keys = nullptr;      // [m, d]
  const double* values = nullptr;    // [m, dv]; null: <v_i, v_j> = 1
  double* factors = nullptr;         // the current panel's: <v_i, v_j> value_scale + value_offset
  const double* uniforms = nullptr;  // [m], to walk:
  double* eta = nullptr;             // [m]
  double* wanted = nullptr;          // [m] p before the clamp
  double* sums = nullptr;            // [64, 8] parts of y_j over the tokens before the panel

  KVBENCH_HOST_DEVICE static Index width(Index panel) { return kWalkPanel * (panel + 1); }
  // Numbers of the panels before panel p.
  KVBENCH_HOST_DEVICE static Index before(Index panel) {
    return Index{kWalkPanel} * kWalkPanel * (panel * (panel + 1) / 2);
  }
  // Numbers of all panels, and of the largest one, of a walk over `size` tokens.
  KVBENCH_HOST_DEVICE static Index panels_size(Index size) {
    return before(blocks_of(kWalkPanel, size));
  }
  KVBENCH_HOST_DEVICE static Index panel_size(Index size) {
    return kWalkPanel * kWalkPanel * blocks_of(kWalkPanel, size);
  }

  KVBENCH_DEVICE double* panel(Index p) const {
    return panels + (holds_all_panels ? before(p) : 0);
  }
  KVBENCH_DEVICE const double* key(Index j) const { return j < size ? keys + j * d : nullptr; }
  KVBENCH_DEVICE const double* value(Index j) const { return j < size ? values + j * dv : nullptr; }
};

// Exponents and factors of 64 columns of a panel.
struct FillPanel {
  using Tile = ProductTile<kWalkPanel, 64>;
  static constexpr int kThreads = Tile::kThreads;

  const WalkView* walks = nullptr;
  Index panel = 0;

  struct Shared {
    Tile::Shared tile;
  };

  template <Block B>
  KVBENCH_DEVICE void operator()(B& block, Shared& shared) const {
    const WalkView& walk = walks[block.y];
    const Index row = panel * kWalkPanel;
    const Index column = block.x * 64;
    if (row >= walk.size) return;
    const Index width = WalkView::width(panel);
    double* exponents = walk.panel(panel);
    const WalkKernel kernel = walk.kernel;
    typename B::template Own<Tile::Values> own(block);
    Tile::template compute<DotStep>(
        block, own, shared.tile, walk.d, [&](int j) { return walk.key(row + j); },
        [&](int i) { return walk.key(column + i); });
    block.threads([&](int t) {
      for (int r = 0; r < 4; ++r) {
        for (int c = 0; c < 4; ++c) {
          const double x = fused(kernel.beta, own[t].of[r][c], -kernel.offset);
          exponents[Tile::left_of(t, r) * width + column + Tile::right_of(t, c)] =
              kernel.cap < x ? kernel.cap : x;
        }
      }
    });
    if (walk.values == nullptr) return;
    Tile::template compute<DotStep>(
        block, own, shared.tile, walk.dv, [&](int j) { return walk.value(row + j); },
        [&](int i) { return walk.value(column + i); });
    block.threads([&](int t) {
      for (int r = 0; r < 4; ++r) {
        for (int c = 0; c < 4; ++c) {
          walk.factors[Tile::left_of(t, r) * width + column + Tile::right_of(t, c)] =
              fused(own[t].of[r][c], kernel.value_scale, kernel.value_offset);
        }
      }
    });
  }
};

// One block per row of a panel: its scale, and K / scale.
struct FinishRows {
  static constexpr int kThreads = 256;

  const WalkView* walks = nullptr;
  Index panel = 0;

  struct Shared {
    double largest[kThreads];
  };

  template <Block B>
  KVBENCH_DEVICE void operator()(B& block, Shared& shared) const {
    const WalkView& walk = walks[block.y];
    const Index j = panel * kWalkPanel + block.x;
    if (j >= walk.size) return;
    const Index width = WalkView::width(panel);
    double* row = walk.panel(panel) + block.x * width;
    const double* factors = walk.values == nullptr ? nullptr : walk.factors + block.x * width;
    block.threads([&](int t) {
      double largest = -infinity();
      for (Index i = t; i < j; i += kThreads) largest = largest < row[i] ? row[i] : largest;
      shared.largest[t] = largest;
    });
    gather_largest(block, shared.largest);
    block.threads([&](int t) {
      const double largest = shared.largest[0];
      const bool finite = largest > -infinity() && largest < infinity();
      for (Index i = t; i < width; i += kThreads) {
        double k = finite && i < j ? canonical_exp(row[i] - largest) : 0.0;
        if (finite && i < j && factors != nullptr) k *= factors[i];
        row[i] = k;
      }
      if (t != 0) return;
      const double bounded = largest < -708.0 ? -708.0 : 700.0 < largest ? 700.0 : largest;
      walk.scale[j] = finite ? canonical_exp(bounded) : 0.0;
    });
  }
};

// The parts of a panel's sums over the tokens before it.
struct SumBefore {
  static constexpr int kRows = 4;
  static constexpr int kThreads = kRows * kWalkLanes;

  const WalkView* walks = nullptr;
  Index panel = 0;

  struct Shared {};

  template <Block B>
  KVBENCH_DEVICE void operator()(B& block, Shared&) const {
    const WalkView& walk = walks[block.y];
    const Index before = panel * kWalkPanel;
    const Index first = block.x * kRows;
    if (before + first >= walk.size) return;
    const double* rows = walk.panel(panel);
    block.threads([&](int t) {
      const Index r = first + t / kWalkLanes;
      if (before + r >= walk.size) return;
      const double* row = rows + r * WalkView::width(panel);
      double sum = 0.0;
      for (Index i = t % kWalkLanes; i < before; i += kWalkLanes) {
        sum = fused(row[i], walk.eta[i], sum);
      }
      walk.sums[r * kWalkLanes + t % kWalkLanes] = sum;
    });
  }
};

// One block per walk: a panel's coins, one after the other.
struct ThrowCoins {
  static constexpr int kThreads = kWalkPanel;

  const WalkView* walks = nullptr;
  Index panel = 0;
  WalkRule rule = {};

  struct Shared {
    double k[kWalkPanel][kWalkPanel + 1];  // the panel's last 64 columns
    double sums[kWalkPanel][kWalkLanes];
    double scale[kWalkPanel];
    double uniforms[kWalkPanel];
  };

  template <Block B>
  KVBENCH_DEVICE void operator()(B& block, Shared& shared) const {
    const WalkView& walk = walks[block.y];
    const Index first = panel * kWalkPanel;
    const Index count = smaller(kWalkPanel, walk.size - first);
    if (count <= 0) return;
    const Index width = WalkView::width(panel);
    const double* diagonal = walk.panel(panel) + first;
    block.each(count * kWalkPanel, [&](Index e) {
      shared.k[e / kWalkPanel][e % kWalkPanel] = diagonal[e / kWalkPanel * width + e % kWalkPanel];
    });
    block.each(count * kWalkLanes,
               [&](Index e) { shared.sums[e / kWalkLanes][e % kWalkLanes] = walk.sums[e]; });
    block.each(count, [&](Index j) {
      shared.scale[j] = walk.scale[first + j];
      shared.uniforms[j] = walk.uniforms[first + j];
    });
    // Every thread finds token j's sign for itself; the rows after j add it, row j reports it.
    for (Index j = 0; j < count; ++j) {
      block.each(count - j, [&](Index after) {
        const double sum = lanes_sum(shared.sums[j]);
        const double wanted = 0.5 - rule.gain * sum * shared.scale[j];
        const double p = wanted < 0.0 ? 0.0 : 1.0 < wanted ? 1.0 : wanted;
        const bool forced = first + j == 0 && rule.first_is_plus;
        const double eta = forced || shared.uniforms[j] < p ? 1.0 : -1.0;
        if (after == 0) {
          walk.wanted[first + j] = wanted;
          walk.eta[first + j] = eta;
          return;
        }
        double& part = shared.sums[j + after][j % kWalkLanes];
        part = fused(shared.k[j + after][j], eta, part);
      });
    }
  }
};

}  // namespace kvbench::cuda
