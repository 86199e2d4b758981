// Which of the host's matrices a device keeps copies of, for the calls on them.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "numerics/matrix_view.hpp"

namespace kvbench::cuda {

// A copy is valid as long as it has an owner, which must not change the matrix meanwhile.
// Once it is gone, a matrix at the same place is another one. Safe from several threads.
class ResidentCopies {
 public:
  using Copy = std::shared_ptr<const double>;  // rows without gaps, on the device

  void add(ConstMatrix matrix, const Copy& copy) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::erase_if(entries_, [](const Entry& entry) { return entry.copy.expired(); });
    entries_.push_back({matrix, copy});
  }

  // The copy of a matrix, or of some rows of one; null if there is none.
  Copy find(ConstMatrix rows) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const Entry& entry : entries_) {
      const ConstMatrix& whole = entry.matrix;
      if (rows.cols != whole.cols || rows.stride != whole.stride) continue;
      const auto begin = reinterpret_cast<std::uintptr_t>(whole.data);
      const auto at = reinterpret_cast<std::uintptr_t>(rows.data);
      const auto row_bytes = static_cast<std::uintptr_t>(whole.stride) * sizeof(double);
      if (at < begin || (at - begin) % row_bytes != 0) continue;
      const Index first = static_cast<Index>((at - begin) / row_bytes);
      if (first + rows.rows > whole.rows) continue;
      if (const Copy copy = entry.copy.lock()) return Copy(copy, copy.get() + first * whole.cols);
    }
    return nullptr;
  }

 private:
  struct Entry {
    ConstMatrix matrix;
    std::weak_ptr<const double> copy;
  };

  mutable std::mutex mutex_;
  std::vector<Entry> entries_;
};

}  // namespace kvbench::cuda
