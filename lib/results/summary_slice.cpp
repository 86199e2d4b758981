#include "results/summary_slice.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <unordered_map>

#include "system/error.hpp"

namespace kvbench {
namespace {

// Bytes of sums in memory at one time, in each thread.
constexpr double kMaxBytes = 8.0 * 1024 * 1024;
constexpr double kSumBytes = sizeof(double) + sizeof(std::uint32_t);

struct RowHead {
  std::uint64_t seed = 0;  // in the order of seed_order()
  std::uint32_t unit = 0;
  std::uint32_t unused = 0;
};
constexpr std::size_t kHeadBytes = sizeof(RowHead);
static_assert(kHeadBytes == 16);

// Numbers that compare as the seeds' texts do: "1", "10", "2", .., "null".
std::uint64_t seed_order(std::optional<std::uint64_t> seed) {
  constexpr std::uint64_t kLargest = std::numeric_limits<std::uint32_t>::max();
  constexpr std::size_t kDigits = 10;  // digits of kLargest
  if (!seed) return std::numeric_limits<std::uint64_t>::max();
  if (*seed > kLargest) throw BugError("a seed above 2^32 - 1");
  const std::size_t digits = std::to_string(*seed).size();
  std::uint64_t order = *seed;
  for (std::size_t i = digits; i < kDigits; ++i) order *= 10;
  return order * 16 + digits;
}

RowHead head_of(std::string_view row) {
  RowHead head;
  std::memcpy(&head, row.data(), kHeadBytes);
  return head;
}

}  // namespace

std::uint32_t SummaryRows::add(std::uint32_t unit, std::optional<std::uint64_t> seed,
                               const std::vector<double>& values) {
  const RowHead head{seed_order(seed), unit, 0};
  row_.resize(kHeadBytes + sizeof(double) * metrics_);
  std::memcpy(row_.data(), &head, kHeadBytes);
  std::memcpy(row_.data() + kHeadBytes, values.data(), sizeof(double) * metrics_);
  return static_cast<std::uint32_t>(store_.add(row_));
}

void SummarySlice::Sums::reset(std::size_t things, std::size_t metrics) {
  width = metrics;
  sum.assign(things * metrics, 0.0);
  count.assign(things * metrics, 0);
}

std::optional<double> SummarySlice::Sums::mean(std::size_t thing, std::size_t metric) const {
  const std::size_t place = thing * width + metric;
  if (count[place] == 0) return std::nullopt;
  return sum[place] / count[place];
}

SummarySlice::SummarySlice(const SummaryRows& rows, const Layers& layers, std::optional<int> wanted,
                           const std::vector<UnitNesting>& units)
    : rows_(rows) {
  RecordStore::Reader reader(rows.store());
  std::unordered_map<std::uint32_t, std::uint32_t> first_row;  // by unit
  std::vector<std::uint64_t> seeds;
  std::size_t records = 0;
  for (const auto& [index, layer] : layers) records += layer.rows.size();
  seeds.reserve(records);
  for (const auto& [index, layer] : layers) {
    if (wanted && index != *wanted) continue;
    ok_ += layer.ok;
    failed_ += layer.failed;
    skipped_ += layer.skipped;
    lacking_.insert(lacking_.end(), layer.lacking.begin(), layer.lacking.end());
    std::vector<Row>& here = layers_.emplace_back();
    here.reserve(layer.rows.size());
    for (const std::uint32_t number : layer.rows) {
      const RowHead head = head_of(reader.at(number));
      first_row.try_emplace(head.unit, number);
      here.push_back({number, head.unit, 0});
      seeds.push_back(head.seed);
    }
  }
  std::vector<std::uint64_t> of_rows = seeds;
  std::sort(seeds.begin(), seeds.end());
  seeds.erase(std::unique(seeds.begin(), seeds.end()), seeds.end());
  seeds_ = seeds.size();

  std::vector<std::pair<std::uint32_t, std::uint32_t>> in_order;  // first row, unit
  for (const auto& [unit, row] : first_row) in_order.emplace_back(row, unit);
  std::sort(in_order.begin(), in_order.end());
  for (std::size_t u = 0; u < in_order.size(); ++u) {
    units_.push_back(units[in_order[u].second]);
    numbers_.push_back(in_order[u].second);
    first_row[in_order[u].second] = static_cast<std::uint32_t>(u);
  }
  std::erase_if(lacking_, [&](std::uint32_t unit) { return first_row.contains(unit); });
  std::sort(lacking_.begin(), lacking_.end());
  lacking_.erase(std::unique(lacking_.begin(), lacking_.end()), lacking_.end());
  std::size_t next = 0;
  for (std::vector<Row>& layer : layers_) {
    for (Row& row : layer) {
      row.unit = first_row[row.unit];
      row.seed = static_cast<std::uint32_t>(
          std::lower_bound(seeds.begin(), seeds.end(), of_rows[next++]) - seeds.begin());
    }
  }
}

// Makes the sums of a metric be there, with as many others as memory holds.
void SummarySlice::load(std::size_t metric, bool seeds) {
  if (metric >= first_ && metric < last_ && (seeds_are_loaded_ || !seeds)) return;
  const auto fits = [&](double things) {
    return static_cast<std::size_t>(
        std::max(1.0, std::floor(kMaxBytes / (kSumBytes * std::max(things, 1.0)))));
  };
  const auto units = static_cast<double>(units_.size());
  const std::size_t with_seeds = fits(units + 2.0 * static_cast<double>(seeds_));
  if (seeds && with_seeds >= rows_.metrics()) {
    first_ = 0;
    last_ = rows_.metrics();
  } else {
    const std::size_t width = seeds ? with_seeds : fits(units);
    first_ = metric;
    last_ = std::min(metric + width, seeds ? rows_.with_seeds() : rows_.metrics());
  }
  seeds_are_loaded_ = seeds;
  of_units_.reset(units_.size(), last_ - first_);
  of_seeds_.reset(seeds ? seeds_ : 0, last_ - first_);
  for (const std::vector<Row>& layer : layers_) add_layer(layer, true, seeds);
  const auto lacks_a_seed = [&](std::uint32_t count) { return count > 0 && count < seeds_; };
  if (!seeds || std::ranges::none_of(of_units_.count, lacks_a_seed)) return;
  // Seeds are compared over the units that have all of them.
  of_seeds_.reset(seeds_, last_ - first_);
  for (const std::vector<Row>& layer : layers_) add_layer(layer, false, true);
}

// Adds the numbers of a layer's rows to the sums of units, of seeds, or of both; to those of seeds
// alone, where the units' are known, without units that lack a seed.
void SummarySlice::add_layer(const std::vector<Row>& rows, bool to_units, bool to_seeds) {
  const std::size_t width = last_ - first_;
  RecordStore::Reader reader(rows_.store());
  std::vector<double> values(width);
  of_layer_.reset(to_seeds ? seeds_ : 0, width);
  for (const Row& row : rows) {
    std::memcpy(values.data(), reader.at(row.number).data() + kHeadBytes + sizeof(double) * first_,
                sizeof(double) * width);
    for (std::size_t m = 0; m < width; ++m) {
      if (std::isnan(values[m])) continue;
      const std::size_t place = row.unit * width + m;
      if (to_units) {
        of_units_.sum[place] += values[m];
        ++of_units_.count[place];
      }
      if (!to_seeds || (!to_units && of_units_.count[place] < seeds_)) continue;
      of_layer_.sum[row.seed * width + m] += values[m];
      ++of_layer_.count[row.seed * width + m];
    }
  }
  for (std::size_t i = 0; i < of_layer_.sum.size(); ++i) {
    of_seeds_.sum[i] += of_layer_.sum[i];
    of_seeds_.count[i] += of_layer_.count[i];
  }
}

std::vector<double> SummarySlice::unit_means(std::size_t metric) {
  load(metric, metric < rows_.with_seeds());
  std::vector<double> means;
  means.reserve(units_.size());
  for (std::size_t u = 0; u < units_.size(); ++u) {
    means.push_back(of_units_.mean(u, metric - first_).value_or(NAN));
  }
  return means;
}

std::optional<double> SummarySlice::deviation_over_seeds(std::size_t metric) {
  load(metric, true);
  std::vector<double> means;
  for (std::size_t s = 0; s < seeds_; ++s) {
    if (const auto mean = of_seeds_.mean(s, metric - first_)) means.push_back(*mean);
  }
  if (means.empty()) return std::nullopt;
  double center = 0.0;
  for (const double mean : means) center += mean;
  center /= means.size();
  double squares = 0.0;
  for (const double mean : means) squares += (mean - center) * (mean - center);
  return std::sqrt(squares / static_cast<double>(means.size()));
}

double SummarySlice::bytes(double metrics, double units, double seeds, double records) {
  const double per_metric = kSumBytes * (units + 2.0 * seeds);
  return std::max(per_metric, std::min(per_metric * metrics, kMaxBytes)) +
         (sizeof(Row) + 16.0) * records + 68.0 * units;
}

}  // namespace kvbench
