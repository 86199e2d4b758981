// The numbers of some records that an entry of the summary is made of, a few metrics at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "results/mean_interval.hpp"
#include "system/record_store.hpp"

namespace kvbench {

// Metrics of records as bytes, with the unit and the seed of each.
class SummaryRows {
 public:
  // The first `with_seeds` of `metrics` are summarised over seeds, too.
  SummaryRows(std::size_t metrics, std::size_t with_seeds, std::string folder)
      : metrics_(metrics), with_seeds_(with_seeds), store_(std::move(folder)) {}

  // `unit`: its number. `seed`: none of a deterministic record. Returns the number of the row.
  std::uint32_t add(std::uint32_t unit, std::optional<std::uint64_t> seed,
                    const std::vector<double>& values);

  std::size_t metrics() const { return metrics_; }
  std::size_t with_seeds() const { return with_seeds_; }
  const RecordStore& store() const { return store_; }

  // Bytes of a row; what of it is in memory is RecordStore's.
  static double bytes(std::size_t metrics) { return 16.0 + 8.0 * static_cast<double>(metrics); }

 private:
  std::size_t metrics_;
  std::size_t with_seeds_;
  RecordStore store_;
  std::string row_;
};

// The records of one setting and layer.
struct SummaryLayer {
  Index ok = 0;
  Index failed = 0;
  Index skipped = 0;
  std::vector<std::uint32_t> rows;     // rows of those that are ok, in the order in which they came
  std::vector<std::uint32_t> lacking;  // units of the others; cells of one unit that follow, once
};

// Content of one entry: the units and seeds of one layer, or of all.
class SummarySlice {
 public:
  using Layers = std::map<int, SummaryLayer>;

  // Slice of layer `wanted` of `layers`, or of all. `units`: the nesting of each number of a unit.
  SummarySlice(const SummaryRows& rows, const Layers& layers, std::optional<int> wanted,
               const std::vector<UnitNesting>& units);

  Index ok() const { return ok_; }
  Index failed() const { return failed_; }
  Index skipped() const { return skipped_; }
  // Units with a record that is ok, in the order in which they came: nesting and number.
  const std::vector<UnitNesting>& units() const { return units_; }
  const std::vector<std::uint32_t>& numbers() const { return numbers_; }
  // Numbers of the units with records none of which is ok, ascending.
  const std::vector<std::uint32_t>& lacking() const { return lacking_; }
  Index asked() const { return static_cast<Index>(numbers_.size() + lacking_.size()); }

  // The mean over seeds of each unit, in the order in which units came; NaN where it has none.
  std::vector<double> unit_means(std::size_t metric);
  // Population standard deviation over seeds of the mean over the records of a seed, of the units
  // that have every seed; none where no unit has. Only the first metrics have one.
  std::optional<double> deviation_over_seeds(std::size_t metric);

  // Bytes that it takes at most, of so many units, seeds and records.
  static double bytes(double metrics, double units, double seeds, double records);

 private:
  // Sums of `width` metrics of many things, and how many numbers they are of.
  struct Sums {
    std::size_t width = 0;
    std::vector<double> sum;
    std::vector<std::uint32_t> count;

    void reset(std::size_t things, std::size_t metrics);
    std::optional<double> mean(std::size_t thing, std::size_t metric) const;
  };
  struct Row {
    std::uint32_t number;
    std::uint32_t unit;  // index into units_
    std::uint32_t seed;  // index of it
  };

  void load(std::size_t metric, bool seeds);
  void add_layer(const std::vector<Row>& rows, bool to_units, bool to_seeds);

  const SummaryRows& rows_;
  Index ok_ = 0;
  Index failed_ = 0;
  Index skipped_ = 0;
  std::vector<UnitNesting> units_;
  std::vector<std::uint32_t> numbers_;
  std::vector<std::uint32_t> lacking_;
  std::vector<std::vector<Row>> layers_;
  std::size_t seeds_ = 0;
  std::size_t first_ = 0;  // metrics that are loaded
  std::size_t last_ = 0;
  bool seeds_are_loaded_ = false;
  Sums of_units_, of_seeds_, of_layer_;  // of_layer_: seeds of the layer that is being added
};

}  // namespace kvbench
