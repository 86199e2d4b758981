// Optional data of a layer's output: its projection W_O by head, and the residual stream that the
// layer adds to. Checked with the structure, read later.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dump/tensor_shape.hpp"
#include "hdf5/hdf5.hpp"
#include "system/error.hpp"

namespace kvbench {

// The tensors that these agree with; none: has errors of its own.
struct LayerTensors {
  const std::optional<TensorShape>& q;
  const std::optional<TensorShape>& k;
  const std::optional<TensorShape>& v;
};

// Shape of `wo` [Hq, dv, hidden]; none without it, or with errors.
std::optional<TensorShape> check_wo(ErrorList& errors, hid_t layer, const std::string& location,
                                    const LayerTensors& tensors);

// The number of residual norms, Nr; 0 without the dataset, or with errors.
Index check_residual_norm(ErrorList& errors, hid_t layer, const std::string& location,
                          const LayerTensors& tensors);

// residual_norm [Nr], of the last Nr positions. `place`: "FILE: /path/of/dataset". Throws
// InputError if a number is not finite or below 0.
std::vector<double> read_residual_norm(hid_t file, const std::string& path,
                                       const std::string& place);

}  // namespace kvbench
