// Mark of functions compiled for the host and, by nvcc, for CUDA devices.
#pragma once

#ifdef __CUDACC__
#define KVBENCH_HOST_DEVICE __host__ __device__
#else
#define KVBENCH_HOST_DEVICE
#endif
