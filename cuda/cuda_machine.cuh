// CUDA devices as cuda/machine.hpp requires them: a thin layer of owners over the CUDA runtime that
// turns its errors into messages.
#pragma once

#include <cuda_pipeline.h>
#include <cuda_runtime.h>

#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "cuda/cuda_kernels.hpp"
#include "cuda/machine.hpp"
#include "cuda/memory_ledger.hpp"
#include "cuda/resident_copies.hpp"
#include "cuda/warp_product.cuh"
#include "system/error.hpp"

namespace kvbench {
namespace cuda {

// Two CUDA streams, of which one is used at a time, and some pinned memory of the host, through
// which small copies go without waiting; large ones are the driver's, which is faster then. Kept
// from call to call: both are expensive to make.
class Lane {
 public:
  Lane() = default;
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;
  ~Lane();

  cudaError_t open();
  cudaStream_t stream() const { return stream_; }
  // From now on on its stream of high priority or the one of low, behind what it has begun.
  cudaError_t prefer(bool urgent);

  // The host's memory may change as soon as this has returned.
  cudaError_t upload(void* to, const void* from, std::size_t bytes);
  // Rows that lie without gaps on the device and `stride` bytes apart on the host; returns when
  // they are there.
  cudaError_t download(void* to, std::size_t stride, const void* from, std::size_t row_bytes,
                       std::size_t rows);

 private:
  static constexpr int kSlots = 4;
  static constexpr std::size_t kSlotBytes = std::size_t{1} << 20;

  // Reserves `bytes` of a slot; waits until earlier copies through that slot have finished.
  cudaError_t place(std::size_t bytes, char*& at);

  cudaStream_t streams_[2] = {};     // low priority and high
  cudaStream_t stream_ = nullptr;    // one of these
  cudaEvent_t turn_ = nullptr;       // where the one went on behind the other
  char* memory_ = nullptr;           // [kSlots, kSlotBytes]
  std::vector<char> unpinned_;       // instead, if the system pins no more
  cudaEvent_t copied_[kSlots] = {};  // after the last upload through a slot
  int at_ = 0;                       // the current slot
  std::size_t used_ = 0;             // bytes of it
};

}  // namespace cuda

// State that the calls on one device share.
class CudaKernels::Device {
 public:
  explicit Device(int index);

  int index() const { return index_; }
  const std::string& name() const { return name_; }
  Index shared_bytes() const { return shared_bytes_; }
  cuda::MemoryLedger& ledger() { return ledger_; }
  cuda::ResidentCopies& copies() { return copies_; }
  std::string error() const;

  // An unused lane, for one call at a time.
  std::unique_ptr<cuda::Lane> take_lane();
  void give_back(std::unique_ptr<cuda::Lane> lane);

  // Returns if `error` is none. Out of memory throws CellError; anything else is remembered as
  // the device's error and throws DeviceError.
  void check(cudaError_t error, const char* what);

 private:
  static constexpr Index kHeldPart = 4;  // a quarter of the memory is for what outlives a call

  Device(int index, Index usable);
  static Index usable_bytes(int index);

  const int index_;
  std::string name_;
  Index shared_bytes_ = 0;  // that a block can have
  cuda::MemoryLedger ledger_;
  cuda::ResidentCopies copies_;
  mutable std::mutex mutex_;
  std::string error_;
  std::vector<std::unique_ptr<cuda::Lane>> lanes_;  // the unused ones
};

namespace cuda {

template <int kThreads>
class CudaBlock {
 public:
  template <class T>
  class Own {
   public:
    __device__ __forceinline__ explicit Own(const CudaBlock&) {}
    __device__ __forceinline__ T& operator[](int) { return value_; }

   private:
    T value_;
  };

  const Index x = blockIdx.x;
  const Index y = blockIdx.y;
  const Index z = blockIdx.z;

  template <class Phase>
  __device__ __forceinline__ void each(Index count, const Phase& phase) const {
    for (Index i = threadIdx.x; i < count; i += blockDim.x) phase(i);
    __syncthreads();
  }
  template <class Phase>
  __device__ __forceinline__ void threads(const Phase& phase) const {
    phase(static_cast<int>(threadIdx.x));
    __syncthreads();
  }
  template <class T>
  __device__ __forceinline__ T uniform(const T& shared) const {
    const T value = shared;
    __syncthreads();
    return value;
  }
  // Asynchronous from sm_80 on; by 16 bytes where rows begin at multiples of them.
  template <int kColumns, int kRows, int kStride>
  __device__ __forceinline__ void fetch(double (&to)[kRows][kStride], const double* from,
                                        Index stride, Index rows, Index columns) const {
    const auto bits = reinterpret_cast<std::uintptr_t>(from) |
                      static_cast<std::uintptr_t>(stride * 8) |
                      static_cast<std::uintptr_t>(columns * 8);
    if (kColumns % 2 == 0 && kStride % 2 == 0 && bits % 16 == 0) {
      fetch_by<2, kColumns>(to, from, stride, rows, columns);
    } else {
      fetch_by<1, kColumns>(to, from, stride, rows, columns);
    }
  }
  template <int kColumns, int kRows, int kStride>
  __device__ __forceinline__ void fetch_pairs(double (&to)[kRows][kStride], const double* from,
                                              int stride, int rows, int columns) const {
    constexpr int kAcross = kColumns / 2;
    constexpr int kStep = kThreads / kAcross;
    static_assert(kColumns <= kStride && kStride % 2 == 0);
    static_assert(kThreads % kAcross == 0 && kRows % kStep == 0);
    const int k = static_cast<int>(threadIdx.x) % kAcross * 2;
    const int first = static_cast<int>(threadIdx.x) / kAcross;
    const int visible = k < columns ? rows - first : 0;
    const double* source = from + first * stride + k;
#pragma unroll
    for (int r = 0; r < kRows; r += kStep) {
      __pipeline_memcpy_async(&to[r + first][k], source + r * stride, 16, r < visible ? 0 : 16);
    }
  }
  __device__ __forceinline__ void fetched() const {
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
  }
  template <int kSteps, class Tiles, class A, class B, class Fetches = any::Fetches>
  __device__ __forceinline__ void multiply(Own<Tiles>& own, const A& a, const B& b,
                                           const Fetches& fetches = {}) const {
    constexpr int kDown = Tiles::kDown;
    constexpr int kAcross = Tiles::kAcross;
    const int t = static_cast<int>(threadIdx.x);
    Tiles& c = own[t];
    constexpr int kBy = kSteps % 2 == 0 ? 2 : 1;  // steps of one instruction; 4 need more registers
#pragma unroll
    for (int first = 0; first < kSteps; first += kBy) {
      double left[kDown][kBy];
#pragma unroll
      for (int s = 0; s < kBy; ++s) {
#pragma unroll
        for (int i = 0; i < kDown; ++i) left[i][s] = a(t, i, first + s);
      }
#pragma unroll
      for (int j = 0; j < kAcross; ++j) {
        double right[kBy];
#pragma unroll
        for (int s = 0; s < kBy; ++s) right[s] = b(t, j, first + s);
#pragma unroll
        for (int i = 0; i < kDown; i += 2) {
          warp_multiply_add(c.of[i][j], c.of[i + 1][j], left[i], left[i + 1], right);
        }
      }
      if (first == 0) fetches();  // in the pauses of the first products
    }
    fetched();
  }

 private:
  template <int kNumbers, int kColumns, int kRows, int kStride>
  __device__ __forceinline__ void fetch_by(double (&to)[kRows][kStride], const double* from,
                                           Index stride, Index rows, Index columns) const {
    constexpr int kAcross = kColumns / kNumbers;
    constexpr int kStep = kThreads / kAcross;
    constexpr int kBytes = kNumbers * static_cast<int>(sizeof(double));
    static_assert(kColumns <= kStride && kThreads % kAcross == 0);
    const int k = static_cast<int>(threadIdx.x) % kAcross * kNumbers;
    const int first = static_cast<int>(threadIdx.x) / kAcross;
    const int visible = k < columns ? static_cast<int>(smaller(rows, kRows)) : 0;
    const double* source = from + first * stride + k;
    const Index step = kStep * stride;
    constexpr int kUnrolled = kNumbers == 1 ? 1 : kRows / kStep;  // the usual way
#pragma unroll kUnrolled
    for (int r = 0; r < kRows; r += kStep, source += step) {
      if (kRows % kStep != 0 && r + first >= kRows) break;
      __pipeline_memcpy_async(&to[r + first][k], source, kBytes, r + first < visible ? 0 : kBytes);
    }
  }
};

static_assert(Block<CudaBlock<32>>);

template <class Body>
__global__ void __launch_bounds__(Body::kThreads) run_body(const __grid_constant__ Body body) {
  extern __shared__ __align__(16) unsigned char shared_memory[];
  CudaBlock<Body::kThreads> block;
  body(block, *reinterpret_cast<typename Body::Shared*>(shared_memory));
}

// One call's machine: a stream of its own, so that calls of several host threads overlap.
class CudaMachine {
 public:
  template <class T>
  class Memory {
   public:
    Memory(void* data, cudaStream_t stream) : data_(static_cast<T*>(data)), stream_(stream) {}
    Memory(Memory&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)), stream_(other.stream_) {}
    Memory& operator=(Memory&&) = delete;
    ~Memory() {
      if (data_ != nullptr) cudaFreeAsync(data_, stream_);
    }
    T* data() { return data_; }

   private:
    T* data_;
    cudaStream_t stream_;
  };

  // Calls that work on it have ended: a machine's work is done when the machine is gone.
  template <class T>
  class Resident {
   public:
    Resident(MemoryLedger::Reservation room, void* data, int device)
        : room_(std::move(room)), data_(static_cast<T*>(data)), device_(device) {}
    Resident(Resident&& other) noexcept
        : room_(std::move(other.room_)),
          data_(std::exchange(other.data_, nullptr)),
          device_(other.device_) {}
    Resident& operator=(Resident&&) = delete;
    ~Resident() {
      if (data_ == nullptr || cudaSetDevice(device_) != cudaSuccess) return;
      cudaFreeAsync(data_, nullptr);
    }
    T* data() const { return data_; }

   private:
    MemoryLedger::Reservation room_;
    T* data_;
    int device_;
  };

  class Urgent {
   public:
    explicit Urgent(cuda::Lane& lane) : lane_(lane) {}
    Urgent(const Urgent&) = delete;
    Urgent& operator=(const Urgent&) = delete;
    ~Urgent() { lane_.prefer(false); }

   private:
    cuda::Lane& lane_;
  };

  explicit CudaMachine(CudaKernels::Device& device) : device_(device), lane_(device.take_lane()) {}
  CudaMachine(const CudaMachine&) = delete;
  CudaMachine& operator=(const CudaMachine&) = delete;
  // Waits: what a call that was cut short has begun must not outlive what it works on.
  ~CudaMachine() {
    cudaStreamSynchronize(lane_->stream());
    device_.give_back(std::move(lane_));
  }

  MemoryLedger::Reservation reserve(const MemoryNeed& need) {
    return device_.ledger().reserve(need);
  }

  template <class T>
  Memory<T> allocate(Index count) {
    return {allocate_bytes(static_cast<std::size_t>(count) * sizeof(T)), lane_->stream()};
  }

  template <class T>
  std::optional<Resident<T>> allocate_resident(Index count) {
    const Index bytes = count * static_cast<Index>(sizeof(T));
    auto room = device_.ledger().reserve_resident(bytes);
    if (!room) return std::nullopt;
    try {
      void* data = allocate_bytes(static_cast<std::size_t>(bytes));
      return Resident<T>(std::move(*room), data, device_.index());
    } catch (const CellError&) {  // another program has taken it
      return std::nullopt;
    }
  }

  [[nodiscard]] Urgent urgent() {
    device_.check(lane_->prefer(true), "changing to the urgent stream");
    return Urgent(*lane_);
  }
  Index shared_bytes() const { return device_.shared_bytes(); }
  ResidentCopies& copies() { return device_.copies(); }

  void wait() { device_.check(cudaStreamSynchronize(lane_->stream()), "computing"); }

  // The host's memory may change as soon as upload has returned.
  template <class T>
  void upload(T* to, const T* from, Index count) {
    device_.check(lane_->upload(to, from, static_cast<std::size_t>(count) * sizeof(T)), "copying");
  }
  template <class T>
  void download(T* to, const T* from, Index count) {
    const auto bytes = static_cast<std::size_t>(count) * sizeof(T);
    device_.check(lane_->download(to, bytes, from, bytes, 1), "computing");
  }
  void download_rows(double* to, Index stride, const double* from, Index columns, Index rows) {
    const auto bytes = [](Index n) { return static_cast<std::size_t>(n) * sizeof(double); };
    device_.check(
        lane_->download(to, bytes(stride), from, bytes(columns), static_cast<std::size_t>(rows)),
        "computing");
  }

  template <class T>
  void clear(T* at, Index count) {
    device_.check(
        cudaMemsetAsync(at, 0, static_cast<std::size_t>(count) * sizeof(T), lane_->stream()),
        "clearing memory");
  }

  template <class Body>
    requires BodyOn<Body, CudaBlock<Body::kThreads>>
  void launch(const Body& body, Grid grid) {
    constexpr std::size_t kShared = sizeof(typename Body::Shared);
    constexpr std::size_t kWithoutAsking = std::size_t{48} << 10;
    if (static_cast<Index>(kShared) > shared_bytes()) {
      throw std::logic_error("a kernel wants more shared memory than the device has");
    }
    if constexpr (kShared > kWithoutAsking) {
      device_.check(
          cudaFuncSetAttribute(run_body<Body>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(kShared)),
          "asking for shared memory");
    }
    const dim3 blocks(static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y),
                      static_cast<unsigned>(grid.z));
    run_body<Body><<<blocks, Body::kThreads, kShared, lane_->stream()>>>(body);
    device_.check(cudaGetLastError(), "starting a kernel");
  }

 private:
  void* allocate_bytes(std::size_t bytes);

  CudaKernels::Device& device_;
  std::unique_ptr<Lane> lane_;
};

static_assert(Machine<CudaMachine>);

}  // namespace cuda
}  // namespace kvbench
