// The shape of one tensor of a layer, and what is wrong with it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "dump/tensor.hpp"
#include "hdf5/hdf5.hpp"
#include "system/error.hpp"

namespace kvbench {

struct TensorShape {
  Index heads = 0;
  Index rows = 0;
  Index columns = 0;
  StoredType stored;
  std::uint64_t chunk_bytes = 0;  // held to decode its chunks

  std::string text() const;  // "[heads, rows, columns]"
};

// Shape of the dataset `name` of a layer; nullopt, with the errors, where it is not a tensor.
// `place`: its own; `layout`: what its shape should be. `has_elements`:
// they are stored, as in all dumps except outlines.
std::optional<TensorShape> tensor_shape(ErrorList& errors, hid_t layer, const std::string& place,
                                        const std::string& name, const char* layout,
                                        bool has_elements = true);

}  // namespace kvbench
