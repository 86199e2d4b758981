// Runs the bodies of cuda/kernels on the CPU, phase by phase. The order of blocks and of the
// indices within a phase is drawn again each time, fresh memory is filled with NaN, and writes
// beyond an allocation are found: a body that depends on any of these does not give the CPU's
// values.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <stdexcept>
#include <utility>
#include <vector>

#include "cuda/machine.hpp"
#include "cuda/memory_ledger.hpp"
#include "cuda/resident_copies.hpp"

namespace kvbench::test {

class HostBlock {
 public:
  template <class T>
  class Own {
   public:
    explicit Own(const HostBlock& block) : values_(static_cast<std::size_t>(block.threads_)) {
      std::memset(static_cast<void*>(values_.data()), 0xff, values_.size() * sizeof(T));
    }
    T& operator[](int t) { return values_[t]; }

   private:
    std::vector<T> values_;
  };

  HostBlock(Index x_, Index y_, Index z_, int threads, std::mt19937_64& rng)
      : x(x_), y(y_), z(z_), threads_(threads), rng_(rng) {}

  const Index x;
  const Index y;
  const Index z;

  template <class Phase>
  void each(Index count, const Phase& phase) {
    if (count <= 0) return;
    // i -> (start + step i) mod count visits all when step and count share no divisor.
    const auto size = static_cast<std::uint64_t>(count);
    std::uint64_t step = 1 + rng_() % size;
    while (std::gcd(step, size) != 1) ++step;
    std::uint64_t at = rng_() % size;
    for (std::uint64_t i = 0; i < size; ++i, at = (at + step) % size) phase(static_cast<Index>(at));
  }
  template <class Phase>
  void threads(const Phase& phase) {
    each(threads_, [&](Index t) { phase(static_cast<int>(t)); });
  }
  template <class T>
  T uniform(const T& shared) const {
    return shared;
  }
  // Copies nothing before it has to, and leaves NaN until then.
  template <int kColumns, int kRows, int kStride>
  void fetch(double (&to)[kRows][kStride], const double* from, Index stride, Index rows,
             Index columns) {
    static_assert(kColumns <= kStride);
    for (int r = 0; r < kRows; ++r) {
      double* row = to[r];
      std::fill_n(row, kColumns, std::numeric_limits<double>::quiet_NaN());
      fetches_.push_back([row, source = from + r * stride,
                          count = r < rows ? std::min<Index>(columns, kColumns) : 0] {
        std::fill_n(std::copy_n(source, count, row), kColumns - count, 0.0);
      });
    }
  }
  template <int kColumns, int kRows, int kStride>
  void fetch_pairs(double (&to)[kRows][kStride], const double* from, int stride, int rows,
                   int columns) {
    const auto address = [](const double* at) { return reinterpret_cast<std::uintptr_t>(at); };
    if (columns % 2 != 0 || stride % 2 != 0 || kStride % 2 != 0 || address(from) % 16 != 0) {
      throw std::logic_error("a fetch of pairs that do not lie at multiples of 16 bytes");
    }
    fetch<kColumns>(to, from, stride, rows, columns);
  }
  void fetched() {
    for (const auto& copy : fetches_) copy();
    fetches_.clear();
  }
  // Gathers each warp's matrices from its lanes, multiplies them, hands the sums out.
  template <int kSteps, int kRows, int kColumns, class A, class B,
            class Fetches = cuda::any::Fetches>
  void multiply(Own<cuda::WarpTiles<kRows, kColumns>>& own, const A& a, const B& b,
                const Fetches& fetches = {}) {
    fetches();
    if (threads_ % 32 != 0) throw std::logic_error("a product by a part of a warp");
    each(threads_ / 32, [&](Index warp) {
      for (int s = 0; s < kSteps; ++s) {
        double left[kRows][4];
        double right[4][kColumns];
        for (int lane = 0; lane < 32; ++lane) {
          const int t = static_cast<int>(warp) * 32 + lane;
          for (int i = 0; i < kRows / 8; ++i) left[8 * i + lane / 4][lane % 4] = a(t, i, s);
          for (int j = 0; j < kColumns / 8; ++j) right[lane % 4][8 * j + lane / 4] = b(t, j, s);
        }
        for (int lane = 0; lane < 32; ++lane) {
          auto& sums = own[static_cast<int>(warp) * 32 + lane].of;
          for (int i = 0; i < kRows / 8; ++i) {
            for (int j = 0; j < kColumns / 8; ++j) {
              for (int e = 0; e < 2; ++e) {
                for (int k = 0; k < 4; ++k) {
                  sums[i][j][e] = std::fma(left[8 * i + lane / 4][k],
                                           right[k][8 * j + lane % 4 * 2 + e], sums[i][j][e]);
                }
              }
            }
          }
        }
      }
    });
    fetched();
  }

 private:
  int threads_;
  std::mt19937_64& rng_;
  std::vector<std::function<void()>> fetches_;  // not yet done
};

static_assert(cuda::Block<HostBlock>);

class HostMachine {
 public:
  template <class T>
  class Memory {
   public:
    Memory(Index count, std::shared_ptr<Index> unused)
        : count_(static_cast<std::size_t>(count)), bytes_(size()), unused_(std::move(unused)) {
      *unused_ -= count * static_cast<Index>(sizeof(T));
      if (*unused_ < 0) throw std::logic_error("a kernel allocates more than it reserved");
      std::memset(bytes_.data(), 0xff, bytes_.size());
      std::memset(bytes_.data() + count_ * sizeof(T), kGuard, kGuardBytes);
    }
    Memory(Memory&&) = default;
    ~Memory() noexcept(false) {
      if (!unused_) return;
      *unused_ += static_cast<Index>(count_ * sizeof(T));
      for (std::size_t i = count_ * sizeof(T); i < bytes_.size(); ++i) {
        if (bytes_[i] != kGuard && std::uncaught_exceptions() == 0) {
          throw std::logic_error("a kernel wrote beyond its memory");
        }
      }
    }
    T* data() { return reinterpret_cast<T*>(bytes_.data()); }

   private:
    static constexpr unsigned char kGuard = 0xab;
    static constexpr std::size_t kGuardBytes = 64;
    std::size_t size() const { return count_ * sizeof(T) + kGuardBytes; }

    std::size_t count_;
    std::vector<unsigned char> bytes_;
    std::shared_ptr<Index> unused_;
  };

  template <class T>
  class Resident {
   public:
    Resident(cuda::MemoryLedger::Reservation room, Index count)
        : room_(std::move(room)),
          memory_(count, std::make_shared<Index>(count * static_cast<Index>(sizeof(T)))) {}
    Resident(Resident&&) = default;
    ~Resident() noexcept {}  // owners may not throw: writing beyond it ends the program
    T* data() const { return memory_.data(); }

   private:
    cuda::MemoryLedger::Reservation room_;
    mutable Memory<T> memory_;
  };

  // `copies`: those that calls share; null if nothing is resident.
  HostMachine(cuda::MemoryLedger& ledger, std::uint64_t seed,
              cuda::ResidentCopies* copies = nullptr)
      : ledger_(ledger), rng_(seed), few_shared_(seed % 2 == 0), copies_(copies) {}

  cuda::MemoryLedger::Reservation reserve(const cuda::MemoryNeed& need) {
    const Index before = ledger_.reserved();
    cuda::MemoryLedger::Reservation reservation = ledger_.reserve(need);
    *unused_ += ledger_.reserved() - before;
    return reservation;
  }
  template <class T>
  Memory<T> allocate(Index count) {
    return Memory<T>(count, unused_);
  }
  template <class T>
  std::optional<Resident<T>> allocate_resident(Index count) {
    auto room = ledger_.reserve_resident(count * static_cast<Index>(sizeof(T)));
    if (!room) return std::nullopt;
    return Resident<T>(std::move(*room), count);
  }
  struct Urgent {
    ~Urgent() {}
  };
  Urgent urgent() { return {}; }
  // Every other machine is one of few.
  Index shared_bytes() const { return Index{few_shared_ ? 64 : 227} << 10; }
  cuda::ResidentCopies& copies() { return copies_ != nullptr ? *copies_ : none_; }
  void wait() {}
  template <class T>
  void upload(T* to, const T* from, Index count) {
    std::copy_n(from, count, to);
  }
  template <class T>
  void download(T* to, const T* from, Index count) {
    std::copy_n(from, count, to);
  }
  void download_rows(double* to, Index stride, const double* from, Index columns, Index rows) {
    for (Index i = 0; i < rows; ++i) std::copy_n(from + i * columns, columns, to + i * stride);
  }
  template <class T>
  void clear(T* at, Index count) {
    std::fill_n(at, count, T{});
  }
  template <cuda::BodyOn<HostBlock> Body>
  void launch(const Body& body, cuda::Grid grid) {
    if (static_cast<Index>(sizeof(typename Body::Shared)) > shared_bytes()) {
      throw std::logic_error("more shared memory than the device has");
    }
    if (grid.y > 65535 || grid.z > 65535) throw std::logic_error("a grid no device takes");
    std::vector<Index> order(grid.x * grid.y * grid.z);
    std::iota(order.begin(), order.end(), Index{0});
    std::shuffle(order.begin(), order.end(), rng_);
    const auto shared = std::make_unique<typename Body::Shared>();
    for (const Index place : order) {
      std::memset(static_cast<void*>(shared.get()), 0xff, sizeof(typename Body::Shared));
      HostBlock block(place % grid.x, place / grid.x % grid.y, place / grid.x / grid.y,
                      Body::kThreads, rng_);
      body(block, *shared);
    }
  }

 private:
  cuda::MemoryLedger& ledger_;
  std::mt19937_64 rng_;
  bool few_shared_;
  cuda::ResidentCopies* copies_;
  cuda::ResidentCopies none_;
  std::shared_ptr<Index> unused_ = std::make_shared<Index>(0);  // bytes reserved, not allocated
};

static_assert(cuda::Machine<HostMachine>);

}  // namespace kvbench::test
