#!/usr/bin/env bash
# tests/cuda/run.sh [OPTIONS]: the CUDA side's tests: its kernels' bodies on the CPU; where there is a GPU, also on it, and
# under compute-sanitizer if that is found. OPTIONS are ctest's. --benchmarks: device-benchmarks, on the GPU.
. "$(dirname "${BASH_SOURCE[0]}")/../../environment.sh"
deps
cuda/toolkit.sh || { say "SKIPPED: the CUDA side's tests" && exit; }
has_gpu() { nvidia-smi -L >/dev/null 2>&1; }
architectures='80;90'
if has_gpu; then architectures=native; fi
cmake --preset cuda -DCMAKE_CUDA_ARCHITECTURES="$architectures" >&2
if [[ ${1:-} == --benchmarks ]]; then
  cmake --build --preset cuda --target device-benchmarks >&2
  exec build-cuda/bin/device-benchmarks
fi
cmake --build --preset cuda --target kvbench test-cuda test-cuda_devices test-cuda_device >&2
ctest --test-dir build-cuda --output-on-failure --tests-regex '^cuda' "$@"
has_gpu || { say "SKIPPED: compute-sanitizer's tools: there is no GPU" && exit; }
sanitizer=$(PATH=$PATH:/usr/local/cuda/bin:.venv-tools/toolkit/bin command -v compute-sanitizer) ||
  { say "SKIPPED: compute-sanitizer's tools: it is not found" && exit; }
for tool in memcheck racecheck initcheck synccheck; do
  say "compute-sanitizer --tool $tool"
  "$sanitizer" --tool "$tool" --error-exitcode 1 build-cuda/bin/test-cuda_device
done
