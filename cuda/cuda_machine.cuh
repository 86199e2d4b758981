// CUDA devices as cuda/machine.hpp wants them: a thin layer of owners over the CUDA runtime that
// turns its errors into messages.
#pragma once

#include <cuda_pipeline.h>
#include <cuda_runtime.h>

#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "core/error.hpp"
#include "cuda/cuda_kernels.hpp"
#include "cuda/held_copies.hpp"
#include "cuda/machine.hpp"
#include "cuda/memory_ledger.hpp"
#include "cuda/warp_product.cuh"

namespace kvbench {

// What the calls on one device share.
class CudaKernels::Device {
 public:
  explicit Device(int index);

  int index() const { return index_; }
  const std::string& name() const { return name_; }
  cuda::MemoryLedger& ledger() { return ledger_; }
  cuda::HeldCopies& copies() { return copies_; }
  std::string fault() const;

  // Returns where `error` is none. Out of memory throws CellError; anything else is remembered as
  // the device's fault and throws DeviceError.
  void check(cudaError_t error, const char* what);

 private:
  static constexpr Index kHeldPart = 4;  // a quarter of the memory is for what outlives a call

  Device(int index, Index usable);
  static Index usable_bytes(int index);

  const int index_;
  std::string name_;
  cuda::MemoryLedger ledger_;
  cuda::HeldCopies copies_;
  mutable std::mutex mutex_;
  std::string fault_;
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
  // Asynchronous from sm_80 on.
  template <int kColumns, int kRows, int kStride>
  __device__ __forceinline__ void fetch(double (&to)[kRows][kStride], const double* from,
                                        Index stride, Index rows, Index columns) const {
    static_assert(kColumns <= kStride && kThreads % kColumns == 0);
    constexpr int kStep = kThreads / kColumns;
    const int k = static_cast<int>(threadIdx.x) % kColumns;
    const int first = static_cast<int>(threadIdx.x) / kColumns;
    const int visible = k < columns ? static_cast<int>(smaller(rows, kRows)) : 0;
    const double* source = from + first * stride + k;
#pragma unroll 4
    for (int r = first; r < kRows; r += kStep, source += kStep * stride) {
      if (r < visible) {
        __pipeline_memcpy_async(&to[r][k], source, sizeof(double));
      } else {
        to[r][k] = 0.0;
      }
    }
  }
  __device__ __forceinline__ void fetched() const {
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
  }
  template <int kSteps, class Tiles, class A, class B>
  __device__ __forceinline__ void multiply(Own<Tiles>& own, const A& a, const B& b) const {
    constexpr int kDown = sizeof(Tiles::of) / sizeof(Tiles::of[0]);
    constexpr int kAcross = sizeof(Tiles::of[0]) / sizeof(Tiles::of[0][0]);
    const int t = static_cast<int>(threadIdx.x);
    Tiles& c = own[t];
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      double left[kDown];
#pragma unroll
      for (int i = 0; i < kDown; ++i) left[i] = a(t, i, s);
#pragma unroll
      for (int j = 0; j < kAcross; ++j) {
        const double right = b(t, j, s);
#pragma unroll
        for (int i = 0; i < kDown; i += 2) {
          warp_multiply_add(c.of[i][j], c.of[i + 1][j], left[i], left[i + 1], right);
        }
      }
    }
    fetched();
  }
};

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

  // Freed when the device is idle: a call that was cut short may still be at work on it.
  template <class T>
  class Held {
   public:
    Held(MemoryLedger::Reservation room, void* data, int device)
        : room_(std::move(room)), data_(static_cast<T*>(data)), device_(device) {}
    Held(Held&& other) noexcept
        : room_(std::move(other.room_)),
          data_(std::exchange(other.data_, nullptr)),
          device_(other.device_) {}
    Held& operator=(Held&&) = delete;
    ~Held() {
      if (data_ == nullptr || cudaSetDevice(device_) != cudaSuccess) return;
      cudaDeviceSynchronize();
      cudaFreeAsync(data_, nullptr);
    }
    T* data() const { return data_; }

   private:
    MemoryLedger::Reservation room_;
    T* data_;
    int device_;
  };

  explicit CudaMachine(CudaKernels::Device& device) : device_(device) {
    device_.check(cudaSetDevice(device_.index()), "choosing the device");
    device_.check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "opening a stream");
  }
  CudaMachine(const CudaMachine&) = delete;
  CudaMachine& operator=(const CudaMachine&) = delete;
  ~CudaMachine() { cudaStreamDestroy(stream_); }

  MemoryLedger::Reservation reserve(const MemoryNeed& need) {
    return device_.ledger().reserve(need);
  }

  template <class T>
  Memory<T> allocate(Index count) {
    return {allocate_bytes(static_cast<std::size_t>(count) * sizeof(T)), stream_};
  }

  template <class T>
  std::optional<Held<T>> hold(Index count) {
    const Index bytes = count * static_cast<Index>(sizeof(T));
    auto room = device_.ledger().hold(bytes);
    if (!room) return std::nullopt;
    try {
      void* data = allocate_bytes(static_cast<std::size_t>(bytes));
      return Held<T>(std::move(*room), data, device_.index());
    } catch (const CellError&) {  // another program has taken it
      return std::nullopt;
    }
  }

  HeldCopies& copies() { return device_.copies(); }

  void wait() { device_.check(cudaStreamSynchronize(stream_), "computing"); }

  // The host's memory may change as soon as upload has returned.
  template <class T>
  void upload(T* to, const T* from, Index count) {
    copy(to, from, static_cast<std::size_t>(count) * sizeof(T), cudaMemcpyHostToDevice);
  }
  template <class T>
  void download(T* to, const T* from, Index count) {
    copy(to, from, static_cast<std::size_t>(count) * sizeof(T), cudaMemcpyDeviceToHost);
  }
  void download_rows(double* to, Index stride, const double* from, Index columns, Index rows);

  template <class T>
  void clear(T* at, Index count) {
    device_.check(cudaMemsetAsync(at, 0, static_cast<std::size_t>(count) * sizeof(T), stream_),
                  "clearing memory");
  }

  template <class Body>
  void launch(const Body& body, Grid grid) {
    constexpr std::size_t kShared = sizeof(typename Body::Shared);
    constexpr std::size_t kWithoutAsking = std::size_t{48} << 10;
    static_assert(kShared <= std::size_t{64} << 10, "no more on compute capability 7.5");
    if constexpr (kShared > kWithoutAsking) {
      device_.check(
          cudaFuncSetAttribute(run_body<Body>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(kShared)),
          "asking for shared memory");
    }
    const dim3 blocks(static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y),
                      static_cast<unsigned>(grid.z));
    run_body<Body><<<blocks, Body::kThreads, kShared, stream_>>>(body);
    device_.check(cudaGetLastError(), "starting a kernel");
  }

 private:
  void* allocate_bytes(std::size_t bytes);
  void copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind);

  CudaKernels::Device& device_;
  cudaStream_t stream_ = nullptr;
};

}  // namespace cuda
}  // namespace kvbench
