#include <algorithm>
#include <cstdint>
#include <cstring>

#include "cuda/cuda_machine.cuh"
#include "system/error.hpp"

namespace kvbench {

CudaKernels::Device::Device(int index) : Device(index, usable_bytes(index)) {}

CudaKernels::Device::Device(int index, Index usable)
    : index_(index), ledger_(usable - usable / kHeldPart, usable / kHeldPart) {
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, index), "asking for the device's properties");
  name_ = properties.name;
  shared_bytes_ = static_cast<Index>(properties.sharedMemPerBlockOptin);
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

std::unique_ptr<cuda::Lane> CudaKernels::Device::take_lane() {
  check(cudaSetDevice(index_), "choosing the device");
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!lanes_.empty()) {
      auto lane = std::move(lanes_.back());
      lanes_.pop_back();
      return lane;
    }
  }
  auto lane = std::make_unique<cuda::Lane>();
  check(lane->open(), "opening a stream");
  return lane;
}

void CudaKernels::Device::give_back(std::unique_ptr<cuda::Lane> lane) {
  const std::lock_guard<std::mutex> lock(mutex_);
  lanes_.push_back(std::move(lane));
}

std::string CudaKernels::Device::error() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return error_;
}

void CudaKernels::Device::check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  const std::string reason =
      std::string(what) + ": " + cudaGetErrorName(error) + ", " + cudaGetErrorString(error);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // clears the non-sticky error
    throw CellError("the GPU is out of memory (" + reason +
                    "); is another program using it? Choose fewer tokens (select.tokens), fewer "
                    "threads (--threads) or --device cpu");
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  if (error_.empty()) {
    error_ = "device " + std::to_string(index_) + " (" + name_ + ") failed while " + reason;
  }
  throw DeviceError(error_);
}

std::unique_ptr<const DeviceKernels> cuda_kernels(int index) {
  return std::make_unique<CudaKernels>(index);
}

CudaKernels::CudaKernels(int index) : device_(std::make_unique<Device>(index)) {}
CudaKernels::~CudaKernels() = default;
std::string CudaKernels::name() const { return device_->name(); }
std::string CudaKernels::error() const { return device_->error(); }

namespace cuda {

void* CudaMachine::allocate_bytes(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  void* data = nullptr;
  cudaError_t error = cudaMallocAsync(&data, bytes, lane_->stream());
  if (error == cudaErrorMemoryAllocation) {
    // Memory of other calls may be given back but not yet be available.
    cudaGetLastError();
    device_.check(cudaDeviceSynchronize(), "waiting for memory");
    cudaMemPool_t pool;
    device_.check(cudaDeviceGetDefaultMemPool(&pool, device_.index()), "opening the memory pool");
    device_.check(cudaMemPoolTrimTo(pool, 0), "emptying the memory pool");
    error = cudaMallocAsync(&data, bytes, lane_->stream());
  }
  device_.check(error, "allocating memory");
  return data;
}

Lane::~Lane() {
  for (cudaEvent_t event : copied_) {
    if (event != nullptr) cudaEventDestroy(event);
  }
  if (turn_ != nullptr) cudaEventDestroy(turn_);
  for (cudaStream_t stream : streams_) {
    if (stream != nullptr) cudaStreamDestroy(stream);
  }
  if (memory_ != nullptr && unpinned_.empty()) cudaFreeHost(memory_);
}

cudaError_t Lane::open() {
  int low = 0;
  int high = 0;
  if (const auto error = cudaDeviceGetStreamPriorityRange(&low, &high)) return error;
  for (const int urgent : {0, 1}) {
    const auto error = cudaStreamCreateWithPriority(&streams_[urgent], cudaStreamNonBlocking,
                                                    urgent != 0 ? high : low);
    if (error != cudaSuccess) return error;
  }
  stream_ = streams_[0];
  if (const auto error = cudaEventCreateWithFlags(&turn_, cudaEventDisableTiming)) return error;
  for (cudaEvent_t& event : copied_) {
    if (const auto error = cudaEventCreateWithFlags(&event, cudaEventDisableTiming)) return error;
  }
  void* pinned = nullptr;
  if (cudaMallocHost(&pinned, kSlots * kSlotBytes) == cudaSuccess) {
    memory_ = static_cast<char*>(pinned);
  } else {
    cudaGetLastError();  // forgotten: copies take longer
    unpinned_.resize(kSlots * kSlotBytes);
    memory_ = unpinned_.data();
  }
  return cudaSuccess;
}

cudaError_t Lane::prefer(bool urgent) {
  if (const auto error = cudaEventRecord(turn_, stream_)) return error;
  const cudaStream_t next = streams_[urgent ? 1 : 0];
  if (const auto error = cudaStreamWaitEvent(next, turn_)) return error;
  stream_ = next;
  return cudaSuccess;
}

cudaError_t Lane::place(std::size_t bytes, char*& at) {
  constexpr std::size_t kAlignment = 256;
  if (used_ + bytes > kSlotBytes) {
    at_ = (at_ + 1) % kSlots;
    used_ = 0;
    if (const auto error = cudaEventSynchronize(copied_[at_])) return error;
  }
  at = memory_ + static_cast<std::size_t>(at_) * kSlotBytes + used_;
  used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return cudaSuccess;
}

cudaError_t Lane::upload(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return cudaSuccess;
  if (bytes > kSlotBytes) return cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_);
  char* at = nullptr;
  if (const auto error = place(bytes, at)) return error;
  std::memcpy(at, from, bytes);
  if (const auto error = cudaMemcpyAsync(to, at, bytes, cudaMemcpyHostToDevice, stream_)) {
    return error;
  }
  return cudaEventRecord(copied_[at_], stream_);
}

cudaError_t Lane::download(void* to, std::size_t stride, const void* from, std::size_t row_bytes,
                           std::size_t rows) {
  const std::size_t bytes = row_bytes * rows;
  if (bytes == 0) return cudaSuccess;
  if (bytes > kSlotBytes) {
    const auto error = rows == 1 ? cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_)
                                 : cudaMemcpy2DAsync(to, stride, from, row_bytes, row_bytes, rows,
                                                     cudaMemcpyDeviceToHost, stream_);
    return error != cudaSuccess ? error : cudaStreamSynchronize(stream_);
  }
  char* at = nullptr;
  if (const auto error = place(bytes, at)) return error;
  if (const auto error = cudaMemcpyAsync(at, from, bytes, cudaMemcpyDeviceToHost, stream_)) {
    return error;
  }
  if (const auto error = cudaStreamSynchronize(stream_)) return error;
  for (std::size_t row = 0; row < rows; ++row) {
    std::memcpy(static_cast<char*>(to) + row * stride, at + row * row_bytes, row_bytes);
  }
  return cudaSuccess;
}

}  // namespace cuda
}  // namespace kvbench
