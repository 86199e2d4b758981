#include "results/bootstrap.hpp"

#include <array>

#include "core/quantile.hpp"
#include "core/random.hpp"

namespace kvbench {
namespace {

constexpr std::uint32_t kSeed = 20240607;
constexpr Index kBlock = 200;  // resamples at a time; divides kResamples
static_assert(kResamples % kBlock == 0);

}  // namespace

ResampleCounts::ResampleCounts(Index units)
    : units_(units), counts_(static_cast<std::size_t>(units * kResamples), 0) {
  const Random random(kSeed, 0, "summary/bootstrap");
  for (Index resample = 0; resample < kResamples; ++resample) {
    for (Index draw = 0; draw < units; draw += 4) {
      const auto words =
          random.words(static_cast<std::uint32_t>(draw / 4), static_cast<std::uint32_t>(resample));
      for (Index i = 0; i < 4 && draw + i < units; ++i) {
        const std::uint64_t word = words[static_cast<std::size_t>(i)];
        const auto unit = static_cast<Index>((word * static_cast<std::uint64_t>(units)) >> 32U);
        ++counts_[static_cast<std::size_t>(unit * kResamples + resample)];
      }
    }
  }
}

std::vector<std::pair<double, double>> bootstrap_intervals(
    const ResampleCounts& counts, const std::vector<std::vector<double>>& values) {
  const Index units = counts.units();
  std::vector<std::vector<double>> means(values.size(),
                                         std::vector<double>(static_cast<std::size_t>(kResamples)));
  std::array<double, kBlock> weight;
  for (Index first = 0; first < kResamples; first += kBlock) {
    for (Index unit = 0; unit < units; ++unit) {
      const std::uint16_t* count = counts.of_unit(unit) + first;
      for (std::size_t r = 0; r < kBlock; ++r) weight[r] = count[r];
      for (std::size_t column = 0; column < values.size(); ++column) {
        const double value = values[column][static_cast<std::size_t>(unit)];
        double* sum = means[column].data() + first;
        for (std::size_t r = 0; r < kBlock; ++r) sum[r] += weight[r] * value;
      }
    }
  }
  std::vector<std::pair<double, double>> intervals;
  for (std::vector<double>& column : means) {
    for (double& mean : column) mean /= static_cast<double>(units);
    const double low = reordering_quantile(column, 0.025);
    intervals.emplace_back(low, reordering_quantile(column, 0.975));
  }
  return intervals;
}

}  // namespace kvbench
