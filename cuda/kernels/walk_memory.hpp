// State of walks on the device: the tokens of a batch, its state, and matrices that are resident.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "cuda/kernels/device_matrix.hpp"
#include "cuda/kernels/walk_bodies.hpp"
#include "cuda/machine.hpp"
#include "kernels/kernels.hpp"

namespace kvbench::cuda {

// Room on the device for the keys and values of up to `walks` walks over up to `most` tokens, and
// for what makes them panels.
template <Machine M>
class WalkInputs {
 public:
  // Per walk.
  static Index bytes(const WalkTokens& any, Index most) {
    const Index factors = has_values(any) ? WalkView::panel_size(most) : 0;
    return bytes_of_doubles(most * length(any) + factors);
  }

  WalkInputs(M& machine, const WalkTokens& any, Index walks, Index most)
      : machine_(machine),
        length_(length(any)),
        most_(most),
        numbers_(machine.template allocate<double>(walks * most * length_)),
        factors_(machine.template allocate<double>(
            has_values(any) ? walks * WalkView::panel_size(most) : 0)) {}

  // Brings the tokens of walks [first, first + views.size()).
  void bring(const WalkSource& tokens, Index first, std::vector<WalkView>& views) {
    for (std::size_t w = 0; w < views.size(); ++w) {
      const WalkTokens walk = tokens(first + static_cast<Index>(w));
      const auto key_numbers = static_cast<Index>(walk.keys.data.size());
      double* keys = numbers_.data() + static_cast<Index>(w) * most_ * length_;
      machine_.upload(keys, walk.keys.data.data(), key_numbers);
      WalkView& view = views[w];
      view.kernel = walk.kernel;
      view.d = walk.keys.view.cols;
      view.keys = keys;
      if (!has_values(walk)) continue;
      machine_.upload(keys + key_numbers, walk.values.data.data(),
                      static_cast<Index>(walk.values.data.size()));
      view.dv = walk.values.view.cols;
      view.values = keys + key_numbers;
      view.factors = factors_.data() + static_cast<Index>(w) * WalkView::panel_size(most_);
    }
  }

 private:
  static bool has_values(const WalkTokens& walk) { return walk.values.view.rows > 0; }
  static Index length(const WalkTokens& walk) {
    return walk.keys.view.cols + (has_values(walk) ? walk.values.view.cols : 0);
  }

  template <class T>
  using Memory = decltype(std::declval<M&>().template allocate<T>(1));

  M& machine_;
  Index length_;  // numbers per token
  Index most_;
  Memory<double> numbers_;
  Memory<double> factors_;
};

// Room on the device for what up to `walks` walks over up to `most` tokens keep on their way.
template <Machine M>
class WalkStates {
 public:
  static Index bytes(Index most) {  // per walk
    return bytes_of_doubles(3 * most + kWalkPanel * kWalkLanes);
  }

  WalkStates(M& machine, Index walks, Index most)
      : machine_(machine),
        most_(most),
        uniforms_(machine.template allocate<double>(walks * most)),
        eta_(machine.template allocate<double>(walks * most)),
        wanted_(machine.template allocate<double>(walks * most)),
        sums_(machine.template allocate<double>(walks * kWalkPanel * kWalkLanes)) {}

  // Brings the coins of walks [first, first + views.size()).
  void bring(const std::vector<std::vector<double>>& uniforms, Index first,
             std::vector<WalkView>& views) {
    packed_.assign(views.size() * static_cast<std::size_t>(most_), 0.0);
    for (std::size_t w = 0; w < views.size(); ++w) {
      const std::vector<double>& coins = uniforms[static_cast<std::size_t>(first) + w];
      const Index at = static_cast<Index>(w) * most_;
      std::copy(coins.begin(), coins.end(), packed_.begin() + at);
      views[w].uniforms = uniforms_.data() + at;
      views[w].eta = eta_.data() + at;
      views[w].wanted = wanted_.data() + at;
      views[w].sums = sums_.data() + static_cast<Index>(w) * kWalkPanel * kWalkLanes;
    }
    machine_.upload(uniforms_.data(), packed_.data(), static_cast<Index>(packed_.size()));
    // Shorter walks leave gaps, which come back with the others'.
    machine_.clear(wanted_.data(), static_cast<Index>(packed_.size()));
  }

  // The walks' results; every sign is drawn again from the p that the device found.
  void take(const WalkRule& rule, const std::vector<std::vector<double>>& uniforms, Index first,
            std::size_t count, std::vector<WalkResult>& out) {
    packed_.resize(count * static_cast<std::size_t>(most_));
    machine_.download(packed_.data(), wanted_.data(), static_cast<Index>(packed_.size()));
    for (std::size_t w = 0; w < count; ++w) {
      const std::vector<double>& coins = uniforms[static_cast<std::size_t>(first) + w];
      const double* wanted = packed_.data() + static_cast<Index>(w) * most_;
      WalkResult& walk = out[static_cast<std::size_t>(first) + w];
      walk.signs.reserve(coins.size());
      for (std::size_t j = 0; j < coins.size(); ++j) walk.draw(rule, wanted[j], coins[j]);
    }
  }

 private:
  template <class T>
  using Memory = decltype(std::declval<M&>().template allocate<T>(1));

  M& machine_;
  Index most_;
  Memory<double> uniforms_;
  Memory<double> eta_;
  Memory<double> wanted_;
  Memory<double> sums_;
  std::vector<double> packed_;
};

// Walks of a batch that are at work together, as bodies see them.
template <Machine M>
class WalkBatch {
 public:
  WalkBatch(M& machine, Index walks)
      : machine_(machine), device_views_(machine.template allocate<WalkView>(walks)) {}

  void bring(const std::vector<WalkView>& views) {
    walks_ = static_cast<Index>(views.size());
    panels_ = 0;
    for (const WalkView& view : views) panels_ = larger(panels_, blocks_of(kWalkPanel, view.size));
    machine_.upload(device_views_.data(), views.data(), walks_);
  }
  Index panels() const { return panels_; }

  void fill(Index panel) {
    FillPanel fill;
    fill.walks = device_views_.data();
    fill.panel = panel;
    machine_.launch(fill, {.x = panel + 1, .y = walks_});
    FinishRows finish;
    finish.walks = device_views_.data();
    finish.panel = panel;
    machine_.launch(finish, {.x = kWalkPanel, .y = walks_});
  }

  void walk(const WalkRule& rule, Index panel) {
    SumBefore before;
    before.walks = device_views_.data();
    before.panel = panel;
    machine_.launch(before, {.x = kWalkPanel / SumBefore::kRows, .y = walks_});
    ThrowCoins coins;
    coins.walks = device_views_.data();
    coins.panel = panel;
    coins.rule = rule;
    machine_.launch(coins, {.x = 1, .y = walks_});
  }

 private:
  template <class T>
  using Memory = decltype(std::declval<M&>().template allocate<T>(1));

  M& machine_;
  Memory<WalkView> device_views_;
  Index walks_ = 0;
  Index panels_ = 0;
};

// All panels of all walks of a batch, and their scales, in one piece of the device's memory.
template <Machine M>
class DeviceMatrices final : public WalkMatrices {
 public:
  using Memory =
      typename decltype(std::declval<M&>().template allocate_resident<double>(1))::value_type;

  DeviceMatrices(const std::vector<Index>& sizes, Memory memory)
      : sizes_(sizes), memory_(std::move(memory)) {}

  static Index numbers(Index size) { return WalkView::panels_size(size) + size; }
  static Index numbers(const std::vector<Index>& sizes) {
    Index sum = 0;
    for (const Index size : sizes) sum += numbers(size);
    return sum;
  }

  // Bytes of walks [first, first + count).
  std::vector<WalkView> views(Index first, Index count) const {
    std::vector<WalkView> views(static_cast<std::size_t>(count));
    double* at = memory_.data();
    for (Index w = 0; w < first + count; ++w) {
      const Index size = sizes_[static_cast<std::size_t>(w)];
      if (w >= first) {
        WalkView& view = views[static_cast<std::size_t>(w - first)];
        view.size = size;
        view.holds_all_panels = true;
        view.panels = at;
        view.scale = at + WalkView::panels_size(size);
      }
      at += numbers(size);
    }
    return views;
  }

 private:
  std::vector<Index> sizes_;
  Memory memory_;
};

}  // namespace kvbench::cuda
