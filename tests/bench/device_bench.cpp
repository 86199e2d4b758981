// `device-benchmarks`: the CUDA side on this machine's GPU, its bars and every kernel next to what
// the device can do at best. Prints a Markdown table. Exit codes: 0 both bars are met, 1 one is
// missed, 2 no device works. `device-benchmarks WORD..`: each kernel row whose name
// contains one of the words is called once, for a profiler; 0.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "bench/bench_stream.hpp"
#include "bench/device_sweep.hpp"
#include "cuda/device_peaks.hpp"
#include "cuda/devices.hpp"
#include "cuda/self_test.hpp"
#include "numerics/counter_rng.hpp"

namespace kvbench::bench {
namespace {

constexpr double kAttentionBar = 2.0;  // times the time of its operations at the device's peak
constexpr double kSweepBar = 20.0;     // times as fast as two cores

constexpr Index kTokens = 32768;
constexpr Index kDimension = 128;
constexpr Index kRows = 256;

// Seconds of one call: the median of five after one that is not counted.
double seconds_of(const std::function<void()>& call) {
  std::vector<double> all;
  for (int round = 0; round < 6; ++round) {
    const auto start = std::chrono::steady_clock::now();
    call();
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
    if (round > 0) all.push_back(passed.count());
  }
  std::nth_element(all.begin(), all.begin() + 2, all.end());
  return all[2];
}

std::vector<Index> rows_from(Index first) {
  std::vector<Index> rows(kTokens - first);
  std::iota(rows.begin(), rows.end(), first);
  return rows;
}

std::vector<double> coins(Index count) {
  const CounterRng random(1, 0, "bench/coins");
  std::vector<double> out;
  for (Index j = 0; j < count; ++j) out.push_back(random.uniform(static_cast<std::uint32_t>(j)));
  return out;
}

// Calls on one stream that is held, as a user of the table sees them, copies of results included.
class KernelTimes {
 public:
  // Each row whose name contains one of `words`, if there are any, is called once.
  KernelTimes(const Kernels& kernels, const DevicePeaks& peaks,
              const std::vector<std::string>& words)
      : kernels_(kernels),
        peaks_(peaks),
        words_(words),
        stream_(bench_stream(kTokens, kDimension)),
        held_(kernels.make_resident(stream_)) {}

  // How many times its floor the full causal reference takes.
  double exact_attention() {
    return row("exact attention, every row", 4.0 * pairs(0) * kDimension / peaks_.flops(),
               [&] { kernels_.exact_attention(stream_, rows_from(0)); });
  }

  void others() {
    const double last = 2.0 * pairs(kTokens - kRows) * kDimension / peaks_.flops();
    row("exact attention, 256 rows", 2.0 * last,
        [&] { kernels_.exact_attention(stream_, rows_from(kTokens - kRows)); });
    LogitBlock block;
    row("logits and exponentials, 256 rows",
        std::max(last, 16.0 * kRows * kTokens / peaks_.download_bytes),
        [&] { kernels_.logits(stream_, rows_from(kTokens - kRows), block); });
    row("score sums, every row", 2.0 * pairs(0) * kDimension / peaks_.flops(),
        [&] { kernels_.score_sums(stream_, 0, kTokens); });
    // Two operations per dimension and pair, neither of which a tensor core does.
    const double delta = 0.65 * std::sqrt(2.0 * kDimension);
    const Clustering net = kernels_.cluster(stream_.keys, 0, delta);
    const double operations =
        2.0 * kDimension * kTokens * static_cast<double>(net.opened_by.size()) / 2.0;
    row(fmt::format("clustering, {} clusters", net.opened_by.size()),
        2.0 * operations / peaks_.fma_flops, [&] { kernels_.cluster(stream_.keys, 0, delta); });
    row("512 centres", 512.0 * kTokens * kDimension * 8.0 / peaks_.memory_bytes,
        [&] { kernels_.farthest_first(stream_.keys, 0, kTokens, 0, 512); });
    std::vector<double> spectral;
    std::vector<double> frobenius;
    row("value norms, 256 rows", 2.0 * kTokens * kDimension * kDimension / peaks_.flops(),
        [&] { kernels_.value_norms(stream_, rows_from(kTokens - kRows), spectral, frobenius); });
    walks(256);
    walks(8192);
    answers();
    resident_answers();
  }

 private:
  static double pairs(Index first) {
    const auto n = static_cast<double>(kTokens);
    const auto f = static_cast<double>(first);
    return (n * (n + 1.0) - f * (f + 1.0)) / 2.0;
  }

  double row(const std::string& name, double floor, const std::function<void()>& call) {
    if (!words_.empty()) {
      const bool named = std::any_of(words_.begin(), words_.end(), [&](const std::string& word) {
        return name.find(word) != std::string::npos;
      });
      if (named) call();
      return 0.0;
    }
    const double seconds = seconds_of(call);
    fmt::print("| {} | {:.3f} | {:.3f} | {:.2f} |\n", name, 1e3 * seconds, 1e3 * floor,
               seconds / floor);
    std::fflush(stdout);
    return seconds / floor;
  }

  // All tokens in walks of `size`. Floor: two products per pair.
  void walks(Index size) {
    const Index count = kTokens / size;
    const WalkSource tokens = [&](Index w) {
      std::vector<Index> list(size);
      std::iota(list.begin(), list.end(), w * size);
      WalkTokens walk;
      walk.kernel = {.beta = 0.1 * stream_.shape.scale, .value_offset = 0.025};
      walk.keys = Gathered(stream_.keys, list);
      walk.values = Gathered(stream_.values, list);
      return walk;
    };
    const std::vector<std::vector<double>> uniforms(static_cast<std::size_t>(count), coins(size));
    const auto m = static_cast<double>(size);
    const double products = static_cast<double>(count) * m * (m - 1.0) / 2.0;
    row(fmt::format("{} walks of {}", count, size), 4.0 * products * kDimension / peaks_.flops(),
        [&] { kernels_.balance_walks({.gain = 4.0}, tokens, uniforms); });
    const auto matrices =
        kernels_.walk_matrices(std::vector<Index>(static_cast<std::size_t>(count), size), tokens);
    if (!matrices) return;
    row(fmt::format("{} walks of {}, matrices held", count, size),
        8.0 * products / peaks_.memory_bytes,
        [&] { kernels_.balance_walks({.gain = 4.0}, *matrices, uniforms); });
  }

  // Floor: weights on their way to the device; all questions are about the same tokens.
  void answers() {
    constexpr Index kQuestions = 1024;
    constexpr Index kEntries = 2048;
    std::vector<std::int32_t> tokens;
    for (Index i = 0; i < kEntries; ++i) {
      tokens.push_back(static_cast<std::int32_t>(i * (kTokens / kEntries)));
    }
    const std::vector<double> weights = coins(kEntries);
    const auto weighted = kernels_.weighted_values(stream_.values);
    std::vector<double> sums;
    row("1024 answers from 2048 tokens", 8.0 * kQuestions * kEntries / peaks_.upload_bytes, [&] {
      for (Index q = 0; q < kQuestions; ++q) {
        std::copy(weights.begin(), weights.end(), weighted->ask(tokens));
      }
      weighted->sums(sums);
    });
  }

  // The same from rows that are held, by weights that grow by a token at every row. Floor: the
  // operations of their sums.
  void resident_answers() {
    constexpr Index kEntries = 2048;
    const auto held = kernels_.make_rows_resident(stream_, rows_from(kTokens - kRows));
    if (!held) return;
    AnswerBatch batch;
    for (Index i = 0; i < kEntries; ++i) {
      const Index token = i * ((kTokens - kRows) / kEntries);
      batch.weights.push_back({1.0, 1.0, 0.0, static_cast<std::int32_t>(token), 1});
    }
    for (Index place = 0; place < kRows; ++place) {
      const Index token = kTokens - kRows + place;
      batch.weights.push_back({1.0, 1.0, 0.0, static_cast<std::int32_t>(token), 1});
      batch.questions.push_back({place, 0, std::ssize(batch.weights)});
    }
    std::vector<double> numerators;
    std::vector<AnswerMasses> masses;
    row(fmt::format("{} answers of held rows from 2048 tokens and more", kRows),
        2.0 * static_cast<double>(kRows * (kEntries + kRows / 2) * kDimension) / peaks_.fma_flops,
        [&] { held->answer(batch, numerators, masses); });
  }

  const Kernels& kernels_;
  const DevicePeaks peaks_;
  const std::vector<std::string> words_;
  const Stream& stream_;
  const std::shared_ptr<const void> held_;
};

int measure(const std::vector<std::string>& words) {
  const CudaDevices found = cuda_devices();
  if (found.devices.empty()) {
    fmt::print(stderr, "device-benchmarks: no CUDA device: {}\n", found.reason);
    return 2;
  }
  const auto device = cuda_kernels();
  const DeviceKernels& kernels = *device;
  if (!words.empty()) {
    KernelTimes named(kernels, {}, words);
    named.exact_attention();
    named.others();
    return 0;
  }
  if (const std::string which = cuda::kernel_that_differs(kernels); !which.empty()) {
    fmt::print(stderr, "device-benchmarks: {} {} differ from the CPU's\n", kernels.name(), which);
    return 2;
  }
  const DevicePeaks peaks = measure_device_peaks();
  fmt::print(
      "{}, CUDA {}; measured on it, per second: {:.2f} Tflop multiply-add, {:.2f} Tflop in "
      "tensor cores (double), memory {:.0f} GB, to the device {:.1f} GB, from it {:.1f} GB\n",
      kernels.name(), found.runtime, 1e-12 * peaks.fma_flops, 1e-12 * peaks.tensor_flops,
      1e-9 * peaks.memory_bytes, 1e-9 * peaks.upload_bytes, 1e-9 * peaks.download_bytes);
  fmt::print(
      "\nOne stream, n = {}, d = {}, one query head:\n\n| call | ms | floor, ms | times its "
      "floor |\n|---|---:|---:|---:|\n",
      kTokens, kDimension);
  KernelTimes times(kernels, peaks, {});
  const double attention = times.exact_attention();
  times.others();
  const DeviceSweep sweep = time_device_sweep(kernels);
  fmt::print(
      "\n{} cells over {} heads of n = {}: {:.2f} s with {} host threads; {} heads on two "
      "cores {:.2f} s, which makes {:.1f} s for all: {:.1f} times\n",
      sweep.cells, sweep.heads, sweep.tokens, sweep.device_seconds, sweep.host_threads,
      sweep.cpu_heads, sweep.cpu_seconds, sweep.cpu_seconds_for_all(), sweep.ratio());
  fmt::print("\n| calls of the sweep | calls | seconds, all threads |\n|---|---:|---:|\n");
  for (const auto& [name, calls] : sweep.calls) {
    fmt::print("| {} | {} | {:.2f} |\n", name, calls.count, calls.seconds);
  }
  const bool fast = attention <= kAttentionBar && sweep.ratio() >= kSweepBar;
  fmt::print(
      "\nbars: exact attention within {} times its floor {}; the sweep at least {} times two "
      "cores {}\n",
      kAttentionBar, attention <= kAttentionBar ? "met" : "MISSED", kSweepBar,
      sweep.ratio() >= kSweepBar ? "met" : "MISSED");
  return fast ? 0 : 1;
}

}  // namespace
}  // namespace kvbench::bench

int main(int argc, char** argv) {
  try {
    return kvbench::bench::measure({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    fmt::print(stderr, "device-benchmarks: {}\n", error.what());
    return 2;
  }
}
