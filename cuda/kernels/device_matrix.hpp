// The host's matrices in a device's memory: copies that are resident for many calls, or made for
// one.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/stream.hpp"
#include "cuda/machine.hpp"
#include "cuda/resident_copies.hpp"

namespace kvbench::cuda {

inline Index bytes_of_doubles(Index count) { return count * static_cast<Index>(sizeof(double)); }

inline ConstMatrix first_rows(ConstMatrix matrix, Index rows) {
  return {matrix.data, rows, matrix.cols, matrix.stride};
}

// Copies a matrix to the device without the gaps between its rows.
template <Machine M>
void upload_rows(M& machine, double* to, ConstMatrix from) {
  if (from.rows == 0 || from.cols == 0) return;
  if (from.stride == from.cols) {
    machine.upload(to, from.data, from.rows * from.cols);
    return;
  }
  std::vector<double> packed(static_cast<std::size_t>(from.rows * from.cols));
  for (Index i = 0; i < from.rows; ++i) {
    std::copy_n(from.row(i), from.cols, packed.begin() + i * from.cols);
  }
  machine.upload(to, packed.data(), static_cast<Index>(packed.size()));
}

// A matrix that a call reads: the copy that is resident, or one of the call's own.
template <Machine M>
class DeviceMatrix {
 public:
  DeviceMatrix(M& machine, ConstMatrix matrix)
      : machine_(machine), matrix_(matrix), resident_(machine.copies().find(matrix)) {}

  // Bytes that the call has to reserve for it.
  Index bytes() const { return resident_ ? 0 : bytes_of_doubles(matrix_.rows * matrix_.cols); }

  // [rows, cols] without gaps; to be called once, after the reservation.
  const double* bring() {
    if (resident_) return resident_.get();
    own_.emplace(machine_.template allocate<double>(matrix_.rows * matrix_.cols));
    upload_rows(machine_, own_->data(), matrix_);
    return own_->data();
  }

 private:
  using Memory = decltype(std::declval<M&>().template allocate<double>(1));

  M& machine_;
  ConstMatrix matrix_;
  ResidentCopies::Copy resident_;
  std::optional<Memory> own_;
};

// Kernels::make_resident: keys and values as far as there is room.
template <Machine M>
std::shared_ptr<const void> make_resident(M& machine, const Stream& stream) {
  auto copies = std::make_shared<std::vector<ResidentCopies::Copy>>();
  for (const ConstMatrix matrix : {stream.keys, stream.values}) {
    const Index count = matrix.rows * matrix.cols;
    if (count == 0) continue;
    auto memory = machine.template allocate_resident<double>(count);
    if (!memory) continue;
    upload_rows(machine, memory->data(), matrix);
    using Memory = typename decltype(memory)::value_type;
    const auto owner = std::make_shared<Memory>(std::move(*memory));
    copies->emplace_back(owner, owner->data());
    machine.copies().add(matrix, copies->back());
  }
  machine.wait();
  if (copies->empty()) return nullptr;
  return copies;
}

}  // namespace kvbench::cuda
