// Who may use how much of a device's memory. Every kernel call reserves what it will allocate
// before it begins, once, so that calls of several threads never run out half-way. Data that
// outlive a call are resident in a part of their own, so that no call ever waits for it.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "numerics/matrix_view.hpp"
#include "system/error.hpp"

namespace kvbench::cuda {

// Memory that a call needs: `fixed_bytes` in any case, and `row_bytes` for each of `rows` rows that
// it would like to have on the device at once. It can do with fewer rows at a time, at least one.
struct MemoryNeed {
  std::string what;  // "exact attention"
  Index fixed_bytes = 0;
  Index row_bytes = 0;
  Index rows = 1;
};

class MemoryLedger {
 public:
  // Gives back on destruction.
  class Reservation {
   public:
    Reservation(MemoryLedger& ledger, Index& account, Index bytes, Index rows)
        : ledger_(&ledger), account_(account), bytes_(bytes), rows_(rows) {}
    Reservation(Reservation&& other) noexcept
        : ledger_(std::exchange(other.ledger_, nullptr)),
          account_(other.account_),
          bytes_(other.bytes_),
          rows_(other.rows_) {}
    Reservation& operator=(Reservation&&) = delete;
    ~Reservation() {
      if (ledger_ != nullptr) ledger_->give_back(account_, bytes_);
    }

    Index rows() const { return rows_; }  // at a time, in [1, max(1, need.rows)]

   private:
    MemoryLedger* ledger_;
    Index& account_;
    Index bytes_;
    Index rows_;
  };

  // For calls, and for what is resident between them.
  explicit MemoryLedger(Index calls_bytes, Index resident_bytes = 0)
      : capacity_(calls_bytes), resident_capacity_(resident_bytes) {}

  // Reserves as many rows as fit next to what others hold; waits while not even one fits. Throws
  // CellError if one row never fits.
  Reservation reserve(const MemoryNeed& need) {
    if (need.fixed_bytes + need.row_bytes > capacity_) {
      throw CellError(need.what + " needs " + mebibytes(need.fixed_bytes + need.row_bytes) +
                      " on the GPU for a single row, and it has " + mebibytes(capacity_) +
                      "; choose fewer tokens (select.tokens) or --device cpu");
    }
    std::unique_lock<std::mutex> lock(mutex_);
    returned_.wait(lock,
                   [&] { return reserved_ + need.fixed_bytes + need.row_bytes <= capacity_; });
    const Index room = capacity_ - reserved_ - need.fixed_bytes;
    const Index fitting = need.row_bytes > 0 ? room / need.row_bytes : need.rows;
    const Index rows = std::clamp<Index>(need.rows, 1, std::max<Index>(1, fitting));
    const Index bytes = need.fixed_bytes + rows * need.row_bytes;
    reserved_ += bytes;
    return Reservation(*this, reserved_, bytes, rows);
  }

  // Never waits: none if it does not fit next to what is resident.
  std::optional<Reservation> reserve_resident(Index bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (resident_ + bytes > resident_capacity_) return std::nullopt;
    resident_ += bytes;
    return Reservation(*this, resident_, bytes, 1);
  }

  Index reserved() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return reserved_;
  }
  Index resident_bytes() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return resident_;
  }

 private:
  static std::string mebibytes(Index bytes) {
    return std::to_string((bytes + (Index{1} << 20) - 1) >> 20) + " MiB";
  }

  void give_back(Index& account, Index bytes) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      account -= bytes;
    }
    returned_.notify_all();
  }

  const Index capacity_;
  const Index resident_capacity_;
  mutable std::mutex mutex_;
  std::condition_variable returned_;
  Index reserved_ = 0;  // by calls
  Index resident_ = 0;
};

}  // namespace kvbench::cuda
