#include "bench/floor.hpp"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <vector>

#include "numerics/canonical.hpp"
#include "numerics/lanes.hpp"
#include "system/parallel.hpp"

namespace kvbench::bench {
namespace {

// Independent chains that keep the multiply-add units busy and still fit the registers.
#if defined(__AVX512F__)
constexpr int kChains = 12;
#else
constexpr int kChains = 5;
#endif

volatile double sink = 0.0;  // keeps the compiler from dropping the work

// Units of work per second: `work` does `units` on each of `threads` threads; best of ten.
template <class Work>
double rate(double units, int threads, const Work& work) {
  double best = 0.0;
  for (int attempt = 0; attempt < 10; ++attempt) {
    if (threads == 1) {
      const double start = thread_seconds();
      work(0);
      best = std::max(best, units / (thread_seconds() - start));
      continue;
    }
    const auto start = std::chrono::steady_clock::now();
    parallel_for(threads, [&](Index i) { work(i); });
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
    best = std::max(best, units * threads / passed.count());
  }
  return best;
}

void multiply_add(Index) {
  Lanes sums[kChains];
  for (int c = 0; c < kChains; ++c) sums[c] = Lanes::all(1e-3 * c);
  const Lanes factor = Lanes::all(0.999);
  const Lanes term = Lanes::all(1e-3);
  for (int i = 0; i < 4'000'000; ++i) {
    for (Lanes& sum : sums) sum = Lanes::fma(sum, factor, term);
  }
  double total = 0.0;
  for (const Lanes& sum : sums) total += sum.sum();
  sink = total;
}

void exponentials(Index) {
  std::vector<double> x(2048), e(x.size());
  std::iota(x.begin(), x.end(), -2000.0);
  for (int repeat = 0; repeat < 4000; ++repeat) {
    for (std::size_t j = 0; j < x.size(); j += Lanes::kCount) {
      canonical_exp(Lanes::load(x.data() + j)).store(e.data() + j);
    }
    x[0] = e[1];
  }
  sink = e[0];
}

Floor measure() {
  Floor floor;
  floor.threads = thread_count();
  const double flops = 4e6 * kChains * Lanes::kCount * 2;
  floor.fma_flops_one = rate(flops, 1, multiply_add);
  floor.fma_flops_all = rate(flops, floor.threads, multiply_add);
  floor.exps_all = rate(4000.0 * 2048.0, floor.threads, exponentials);

  std::vector<double> memory(std::size_t{32} << 20, 1.0);
  for (const int threads : {1, floor.threads}) {
    const std::size_t share = memory.size() / static_cast<std::size_t>(threads) / 64 * 64;
    const auto read = [&](Index part) {
      const double* data = memory.data() + static_cast<std::size_t>(part) * share;
      Lanes sums[4];
      for (Lanes& sum : sums) sum = Lanes::all(0.0);
      for (std::size_t j = 0; j < share; j += 4 * Lanes::kCount) {
        for (int c = 0; c < 4; ++c) sums[c] = sums[c] + Lanes::load(data + j + c * Lanes::kCount);
      }
      sink = sums[0].sum() + sums[1].sum() + sums[2].sum() + sums[3].sum();
    };
    const double bytes = rate(static_cast<double>(share * sizeof(double)), threads, read);
    if (threads == 1) floor.read_bytes_one = bytes;
    floor.read_bytes_all = bytes;
  }
  return floor;
}

}  // namespace

double thread_seconds() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

const Floor& machine_floor() {
  static const Floor floor = measure();
  return floor;
}

double exact_attention_floor(Index pairs, Index d, Index dv) {
  const Floor& floor = machine_floor();
  const auto count = static_cast<double>(pairs);
  return count * 2.0 * static_cast<double>(d + dv) / floor.fma_flops_all + count / floor.exps_all;
}

}  // namespace kvbench::bench
