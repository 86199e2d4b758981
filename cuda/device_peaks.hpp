// The highest rates of a CUDA device, measured by small kernels of their own: no program that does
// the same arithmetic, or moves the same memory, is faster. Plain C++: callers need no CUDA header.
#pragma once

namespace kvbench {

struct DevicePeaks {
  double fma_flops = 0.0;       // fused multiply-adds in double, 2 flops each, per second
  double tensor_flops = 0.0;    // products of 8 x 4 and 4 x 8 matrices in double; 0 if it has none
  double memory_bytes = 0.0;    // read and written by a copy within its memory, per second
  double upload_bytes = 0.0;    // from ordinary memory of the host, per second
  double download_bytes = 0.0;  // to it

  double flops() const { return tensor_flops > fma_flops ? tensor_flops : fma_flops; }
};

// Best of ten runs each. Throws std::runtime_error if the device fails.
DevicePeaks measure_device_peaks(int index = 0);

}  // namespace kvbench
