#include <cstdint>

#include "core/error.hpp"
#include "cuda/cuda_machine.cuh"

namespace kvbench {

CudaKernels::Device::Device(int index) : Device(index, usable_bytes(index)) {}

CudaKernels::Device::Device(int index, Index usable)
    : index_(index), ledger_(usable - usable / kHeldPart, usable / kHeldPart) {
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, index), "asking for the device's properties");
  name_ = properties.name;
  // Memory that a call gave back stays with the program for the next one.
  cudaMemPool_t pool;
  check(cudaDeviceGetDefaultMemPool(&pool, index), "opening the memory pool");
  std::uint64_t keep = UINT64_MAX;
  check(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep),
        "setting up the memory pool");
}

// Nine tenths of what is free: the rest is for what the runtime takes itself and for gaps.
Index CudaKernels::Device::usable_bytes(int index) {
  std::size_t free = 0;
  std::size_t total = 0;
  cudaError_t error = cudaSetDevice(index);
  if (error == cudaSuccess) error = cudaMemGetInfo(&free, &total);
  if (error != cudaSuccess) {
    throw InputError("--device cuda: device " + std::to_string(index) +
                     " cannot be used: " + cudaGetErrorString(error) + "; use --device cpu");
  }
  return static_cast<Index>(free / 10 * 9);
}

std::string CudaKernels::Device::fault() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return fault_;
}

void CudaKernels::Device::check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  const std::string reason =
      std::string(what) + ": " + cudaGetErrorName(error) + ", " + cudaGetErrorString(error);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // forgotten: the device goes on
    throw CellError("the GPU is out of memory (" + reason +
                    "); does another program use it? Choose fewer tokens (select.tokens), fewer "
                    "threads (--threads) or --device cpu");
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  if (fault_.empty()) {
    fault_ = "device " + std::to_string(index_) + " (" + name_ + ") failed while " + reason;
  }
  throw DeviceError(fault_);
}

CudaKernels::CudaKernels(int index) : device_(std::make_unique<Device>(index)) {}
CudaKernels::~CudaKernels() = default;
std::string CudaKernels::name() const { return device_->name(); }
std::string CudaKernels::fault() const { return device_->fault(); }

namespace cuda {

void* CudaMachine::allocate_bytes(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  void* data = nullptr;
  cudaError_t error = cudaMallocAsync(&data, bytes, stream_);
  if (error == cudaErrorMemoryAllocation) {
    // Memory of other calls may be given back but not yet be at hand.
    cudaGetLastError();
    device_.check(cudaDeviceSynchronize(), "waiting for memory");
    cudaMemPool_t pool;
    device_.check(cudaDeviceGetDefaultMemPool(&pool, device_.index()), "opening the memory pool");
    device_.check(cudaMemPoolTrimTo(pool, 0), "emptying the memory pool");
    error = cudaMallocAsync(&data, bytes, stream_);
  }
  device_.check(error, "allocating memory");
  return data;
}

void CudaMachine::copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  if (bytes == 0) return;
  device_.check(cudaMemcpyAsync(to, from, bytes, kind, stream_), "copying");
  device_.check(cudaStreamSynchronize(stream_), "computing");
}

void CudaMachine::download_rows(double* to, Index stride, const double* from, Index columns,
                                Index rows) {
  if (columns == 0 || rows == 0) return;
  const auto bytes = [](Index count) { return static_cast<std::size_t>(count) * sizeof(double); };
  device_.check(cudaMemcpy2DAsync(to, bytes(stride), from, bytes(columns), bytes(columns),
                                  static_cast<std::size_t>(rows), cudaMemcpyDeviceToHost, stream_),
                "copying");
  device_.check(cudaStreamSynchronize(stream_), "computing");
}

}  // namespace cuda
}  // namespace kvbench
