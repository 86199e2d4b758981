#include "dump/layer_output.hpp"

#include <fmt/format.h>

#include <cmath>

#include "hdf5/stored_elements.hpp"
#include "hdf5/structure_errors.hpp"

namespace kvbench {

std::optional<TensorShape> check_wo(ErrorList& errors, hid_t layer, const std::string& location,
                                    const LayerTensors& tensors) {
  if (!hdf5::has_link(layer, "wo")) return std::nullopt;
  const auto wo = tensor_shape(errors, layer, join(location, "wo"), "wo", "[Hq, dv, hidden]");
  if (!wo || !tensors.q || !tensors.v) return wo;
  if (wo->heads == tensors.q->heads && wo->rows == tensors.v->columns) return wo;
  add(errors, location, "wo {} must be [{}, {}, hidden]: a matrix per query head", wo->text(),
      tensors.q->heads, tensors.v->columns);
  return std::nullopt;
}

Index check_residual_norm(ErrorList& errors, hid_t layer, const std::string& location,
                          const LayerTensors& tensors) {
  if (!hdf5::has_link(layer, "residual_norm")) return 0;
  const std::string place = join(location, "residual_norm");
  const hdf5::Handle dataset = small_dataset_of(errors, layer, place, "residual_norm");
  if (!dataset) return 0;
  const hdf5::Handle space(H5Dget_space(dataset.get()));
  const auto dims = hdf5::extent(space.get());
  const hdf5::Handle type(H5Dget_type(dataset.get()));
  if (H5Tget_class(type.get()) != H5T_FLOAT || dims.size() != 1 || dims[0] == 0) {
    add(errors, place, "must be floating-point [Nr]: a norm for each of the last Nr positions");
    return 0;
  }
  if (tensors.k && dims[0] > static_cast<std::uint64_t>(tensors.k->rows)) {
    add(errors, place, "has {} norms and k {} has fewer tokens; write at most one per token",
        dims[0], tensors.k->text());
    return 0;
  }
  return dims[0];
}

std::vector<double> read_residual_norm(hid_t file, const std::string& path,
                                       const std::string& place) {
  try {
    std::vector<double> norms = all_doubles(hdf5::open_dataset(file, path));
    for (std::size_t i = 0; i < norms.size(); ++i) {
      if (std::isfinite(norms[i]) && norms[i] >= 0.0) continue;
      throw InputError(fmt::format(
          "{}: element {} is {}; a norm must be finite and at least 0, make the dump again", place,
          i, norms[i]));
    }
    return norms;
  } catch (const hdf5::Error& error) {
    throw InputError(fmt::format(
        "{}: cannot be read ({}); the file is truncated or damaged, copy or make it again", place,
        error.what()));
  }
}

}  // namespace kvbench
