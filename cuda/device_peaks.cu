#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

#include "cuda/device_peaks.hpp"
#include "cuda/warp_product.cuh"

namespace kvbench {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocksPerProcessor = 8;
constexpr int kSteps = 4096;
constexpr int kChains = 8;                             // independent ones per thread, or per warp
constexpr std::size_t kCopied = std::size_t{1} << 26;  // doubles: far more than any cache holds

void check(cudaError_t error) {
  if (error == cudaSuccess) return;
  throw std::runtime_error(std::string("measuring the device: ") + cudaGetErrorString(error));
}

__global__ void multiply_add(double* out, double factor, double term) {
  double x[kChains];
  for (int c = 0; c < kChains; ++c) x[c] = threadIdx.x + c;
  for (int i = 0; i < kSteps; ++i) {
#pragma unroll
    for (int c = 0; c < kChains; ++c) x[c] = __fma_rn(x[c], factor, term);
  }
  double sum = 0.0;
  for (int c = 0; c < kChains; ++c) sum += x[c];
  if (sum == -1.0) *out = sum;  // never, which the compiler cannot know
}

__global__ void tensor_products(double* out, double factor) {
  double upper[kChains][2];
  double lower[kChains][2];
  for (int c = 0; c < kChains; ++c) {
    for (int e = 0; e < 2; ++e) upper[c][e] = lower[c][e] = c;
  }
  for (int i = 0; i < kSteps; ++i) {
#pragma unroll
    for (int c = 0; c < kChains; ++c) {
      cuda::warp_multiply_add<1>(upper[c], lower[c], {factor}, {factor}, {factor});
    }
  }
  double sum = 0.0;
  for (int c = 0; c < kChains; ++c) sum += upper[c][0] + lower[c][0];
  if (sum == -1.0) *out = sum;
}

__global__ void copy(const double2* from, double2* to, std::size_t count) {
  const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < count; i += step) {
    to[i] = from[i];
  }
}

struct DeviceMemory {
  explicit DeviceMemory(std::size_t doubles) { check(cudaMalloc(&data, doubles * sizeof(double))); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory() { cudaFree(data); }
  double* data = nullptr;
};

// Units of work per second; `work` does `units`. Best of ten.
template <class Work>
double rate(double units, const Work& work) {
  double best = 0.0;
  for (int attempt = 0; attempt < 10; ++attempt) {
    check(cudaDeviceSynchronize());
    const auto start = std::chrono::steady_clock::now();
    work();
    check(cudaGetLastError());
    check(cudaDeviceSynchronize());
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
    best = std::max(best, units / passed.count());
  }
  return best;
}

}  // namespace

DevicePeaks measure_device_peaks(int index) {
  check(cudaSetDevice(index));
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, index));
  const int blocks = kBlocksPerProcessor * properties.multiProcessorCount;
  const double chains = static_cast<double>(blocks) * kThreads * kChains;
  DevicePeaks peaks;
  const DeviceMemory from(kCopied);
  const DeviceMemory to(kCopied);
  check(cudaMemset(from.data, 0, kCopied * sizeof(double)));
  peaks.fma_flops = rate(2.0 * chains * kSteps,
                         [&] { multiply_add<<<blocks, kThreads>>>(to.data, 0.999, 1e-3); });
  if (properties.major >= 8) {
    const double products = chains / properties.warpSize * kSteps;
    peaks.tensor_flops = rate(2.0 * 16 * 8 * 4 * products,
                              [&] { tensor_products<<<blocks, kThreads>>>(to.data, 1e-3); });
  }
  constexpr double kBytes = static_cast<double>(kCopied * sizeof(double));
  peaks.memory_bytes = rate(2.0 * kBytes, [&] {
    copy<<<blocks, kThreads>>>(reinterpret_cast<const double2*>(from.data),
                               reinterpret_cast<double2*>(to.data), kCopied / 2);
  });
  std::vector<double> host(kCopied, 1.0);
  const std::size_t bytes = kCopied * sizeof(double);
  peaks.upload_bytes =
      rate(kBytes, [&] { check(cudaMemcpy(to.data, host.data(), bytes, cudaMemcpyHostToDevice)); });
  peaks.download_bytes =
      rate(kBytes, [&] { check(cudaMemcpy(host.data(), to.data, bytes, cudaMemcpyDeviceToHost)); });
  return peaks;
}

}  // namespace kvbench
