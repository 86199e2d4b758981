// Kernels::walk_matrices and balance_walks on a device. A walk's matrix is made 64 rows at a time,
// a panel: the whole device computes the products and exponentials of a panel for all walks of a
// batch, and the sums over the tokens before it; then one block per walk throws the panel's coins
// one after the other. The host never waits within a batch.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "cuda/kernels/walk_memory.hpp"
#include "cuda/machine.hpp"
#include "kernels/kernels.hpp"

namespace kvbench::cuda {

// Walks that are at work together take no more than this on the device.
inline constexpr Index kWalkBytes = Index{64} << 20;

// The longest walk of a batch that is not empty.
inline Index longest(const std::vector<Index>& sizes) {
  return std::max_element(sizes.begin(), sizes.end()) - sizes.begin();
}

inline std::vector<Index> sizes_of(const std::vector<std::vector<double>>& uniforms) {
  std::vector<Index> sizes;
  for (const std::vector<double>& coins : uniforms) {
    sizes.push_back(static_cast<Index>(coins.size()));
  }
  return sizes;
}

// How many walks of `bytes` each are at work together at most.
inline Index walks_together(Index walks, Index bytes) {
  return smaller(smaller(walks, 65535), larger(1, kWalkBytes / larger(1, bytes)));
}

template <Machine M>
std::shared_ptr<const WalkMatrices> walk_matrices(M& machine, const std::vector<Index>& sizes,
                                                  const WalkSource& tokens) {
  using Matrices = DeviceMatrices<M>;
  auto memory = machine.template allocate_resident<double>(Matrices::numbers(sizes));
  if (!memory) return nullptr;
  const auto matrices = std::make_shared<Matrices>(sizes, std::move(*memory));
  const Index count = static_cast<Index>(sizes.size());
  if (count == 0) return matrices;

  const Index most = sizes[static_cast<std::size_t>(longest(sizes))];
  const WalkTokens any = tokens(longest(sizes));
  const Index bytes = WalkInputs<M>::bytes(any, most);
  const auto room = machine.reserve({.what = "walk matrices",
                                     .row_bytes = bytes + static_cast<Index>(sizeof(WalkView)),
                                     .rows = walks_together(count, bytes)});
  WalkInputs<M> inputs(machine, any, room.rows(), most);
  WalkBatch<M> batch(machine, room.rows());
  for (Index first = 0; first < count; first += room.rows()) {
    std::vector<WalkView> views = matrices->views(first, smaller(room.rows(), count - first));
    inputs.bring(tokens, first, views);
    batch.bring(views);
    for (Index panel = 0; panel < batch.panels(); ++panel) batch.fill(panel);
  }
  machine.wait();
  return matrices;
}

template <Machine M>
std::vector<WalkResult> balance_walks(M& machine, const WalkRule& rule,
                                      const WalkMatrices& matrices,
                                      const std::vector<std::vector<double>>& uniforms) {
  const auto& resident = dynamic_cast<const DeviceMatrices<M>&>(matrices);
  const Index count = static_cast<Index>(uniforms.size());
  std::vector<WalkResult> out(uniforms.size());
  if (count == 0) return out;

  const std::vector<Index> sizes = sizes_of(uniforms);
  const Index most = sizes[static_cast<std::size_t>(longest(sizes))];
  const Index bytes = WalkStates<M>::bytes(most);
  const auto room = machine.reserve({.what = "walks",
                                     .row_bytes = bytes + static_cast<Index>(sizeof(WalkView)),
                                     .rows = walks_together(count, bytes)});
  WalkStates<M> states(machine, room.rows(), most);
  WalkBatch<M> batch(machine, room.rows());
  for (Index first = 0; first < count; first += room.rows()) {
    std::vector<WalkView> views = resident.views(first, smaller(room.rows(), count - first));
    states.bring(uniforms, first, views);
    batch.bring(views);
    for (Index panel = 0; panel < batch.panels(); ++panel) batch.walk(rule, panel);
    states.take(rule, uniforms, first, views.size(), out);
  }
  return out;
}

template <Machine M>
std::vector<WalkResult> balance_walks(M& machine, const WalkRule& rule, const WalkSource& tokens,
                                      const std::vector<std::vector<double>>& uniforms) {
  const Index count = static_cast<Index>(uniforms.size());
  std::vector<WalkResult> out(uniforms.size());
  if (count == 0) return out;

  const std::vector<Index> sizes = sizes_of(uniforms);
  const Index most = sizes[static_cast<std::size_t>(longest(sizes))];
  const WalkTokens any = tokens(longest(sizes));
  const Index panel_size = WalkView::panel_size(most);
  const Index bytes = WalkInputs<M>::bytes(any, most) + WalkStates<M>::bytes(most) +
                      bytes_of_doubles(panel_size + most);
  const auto room = machine.reserve({.what = "walks",
                                     .row_bytes = bytes + static_cast<Index>(sizeof(WalkView)),
                                     .rows = walks_together(count, bytes)});
  WalkInputs<M> inputs(machine, any, room.rows(), most);
  WalkStates<M> states(machine, room.rows(), most);
  WalkBatch<M> batch(machine, room.rows());
  auto panels = machine.template allocate<double>(room.rows() * panel_size);
  auto scales = machine.template allocate<double>(room.rows() * most);
  for (Index first = 0; first < count; first += room.rows()) {
    std::vector<WalkView> views(static_cast<std::size_t>(smaller(room.rows(), count - first)));
    for (std::size_t w = 0; w < views.size(); ++w) {
      views[w].size = sizes[static_cast<std::size_t>(first) + w];
      views[w].panels = panels.data() + static_cast<Index>(w) * panel_size;
      views[w].scale = scales.data() + static_cast<Index>(w) * most;
    }
    inputs.bring(tokens, first, views);
    states.bring(uniforms, first, views);
    batch.bring(views);
    for (Index panel = 0; panel < batch.panels(); ++panel) {
      batch.fill(panel);
      batch.walk(rule, panel);
    }
    states.take(rule, uniforms, first, views.size(), out);
  }
  return out;
}

}  // namespace kvbench::cuda
