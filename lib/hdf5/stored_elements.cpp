#include "hdf5/stored_elements.hpp"

#include <utility>

namespace kvbench {
namespace {

template <class T>
std::vector<T> all_of(hdf5::Handle dataset, hid_t memory_type) {
  const StoredElements elements(std::move(dataset));
  std::vector<T> values(elements.all().elements());
  elements.read_as(memory_type, elements.all(), values.data());
  return values;
}

}  // namespace

StoredElements::StoredElements(hdf5::Handle dataset)
    : dataset_(std::move(dataset)),
      space_(H5Dget_space(dataset_.get())),
      type_(H5Dget_type(dataset_.get())) {
  const auto dims = hdf5::extent(space_.get());
  if (dims.size() > size_.size()) throw hdf5::Error("has more than three dimensions");
  rank_ = dims.size();
  size_ = sizes_of(dims);
}

void StoredElements::read_as(hid_t memory_type, const Block& wanted, void* out) const {
  if (wanted.elements() == 0) return;
  if (rank_ == 0) {
    return hdf5::check(H5Dread(dataset_.get(), memory_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, out));
  }
  const std::size_t first = wanted.size.size() - rank_;
  const hdf5::Handle memory(
      H5Screate_simple(static_cast<int>(rank_), wanted.size.data() + first, nullptr));
  hdf5::check(H5Sselect_hyperslab(space_.get(), H5S_SELECT_SET, wanted.start.data() + first,
                                  nullptr, wanted.size.data() + first, nullptr));
  hdf5::check(H5Dread(dataset_.get(), memory_type, memory.get(), space_.get(), H5P_DEFAULT, out));
}

std::vector<double> all_doubles(hdf5::Handle dataset) {
  return all_of<double>(std::move(dataset), H5T_NATIVE_DOUBLE);
}

std::vector<std::int64_t> all_integers(hdf5::Handle dataset) {
  return all_of<std::int64_t>(std::move(dataset), H5T_NATIVE_INT64);
}

}  // namespace kvbench
