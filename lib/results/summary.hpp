// `summary` of results.json: means of the cells per algorithm, label and parameters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "json/json.hpp"
#include "numerics/matrix_view.hpp"
#include "results/mean_interval.hpp"
#include "results/summary_slice.hpp"

namespace kvbench {

// A metric of one setting over the units that settings are compared over.
struct ComparedMean {
  std::optional<double> mean;        // none where a unit lacks the metric
  std::optional<Interval> interval;  // positive_mean_interval()
  Index undefined = 0;               // units that lack it
};

// One entry over all layers, held next to others.
struct SettingMeans {
  std::string algorithm;
  std::string label;
  std::string params;           // as a line of JSON
  std::optional<Index> tokens;  // number of tokens where that is an axis
  Index units = 0;              // with a cell that is ok
  Index asked = 0;              // with any cell
  bool is_compared = false;     // has all units of the comparison; else there are no means
  ComparedMean frobenius;       // relative_frobenius_error
  ComparedMean spectral;        // relative_spectral_error
  ComparedMean l2;              // relative_l2.mean
  std::optional<double> memory_fraction;
  std::optional<double> traffic_fraction;  // bytes read over those of exact attention

  std::string method() const;  // algorithm, label and tokens: settings of one line of a table
};

// Every setting over the same units: those that all settings with a cell that is ok have. Where
// these have none in common, those that every method has by one of its settings or another.
struct ComparedSettings {
  std::vector<SettingMeans> settings;  // in order of first appearance
  Index units = 0;                     // 0: nothing is compared
  Index asked = 0;                     // units of all settings together
  UnitLevel over = UnitLevel::kHead;   // the groups of the intervals, and how many there are
  Index groups = 0;
};

// Numbers of a cell's `trivial` whose means over units are in the summary; that z = 0 has
// relative_l2 1 needs no number.
const std::vector<std::string>& summarised_trivial_paths();

// Collects cell records one by one and gives one entry per (algorithm, label, params) over all
// layers (`layer` null) and per layer; with an axis of tokens also per number of them.
//
// In memory are a few numbers of each record; their metrics lie in a temporary file where they are
// many, and one entry per thread is summed up at a time, as many of its metrics as memory holds.
//
// Unit = (dump, sequence, layer, KV head). Per unit the mean over seeds, then the mean over units;
// `ci95` Student's t interval on the log scale over the groups of units that `ci95_over` names
// (positive_mean_interval()), null with one group; `std_over_seeds` population standard deviation
// over seeds of the mean over the units that have every seed. `units` have a cell that is ok,
// `units_asked` any cell. A metric that is null in a cell is left out there, with its own `units`
// where it has fewer; null everywhere: null. `memory.fraction` is the sum of peak_bytes over that
// of exact_bytes. Bits depend on the order of add() alone: call it in plan order.
class Summary {
 public:
  // `by_tokens`: select.tokens is an axis, so that entries are of one number of tokens each.
  // `folder`: of the temporary file, as RecordStore's.
  explicit Summary(bool by_tokens = false, const std::string& folder = "");
  ~Summary();
  Summary(const Summary&) = delete;
  Summary& operator=(const Summary&) = delete;

  // A record of any status; those that are not ok are counted. A setting, or a layer of it, whose
  // cells are all skipped has no entry.
  void add(const Json& record);
  // A record of a whole layer, after the cells of its setting. Unit = (dump, sequence, layer).
  void add_layer(const Json& record);

  // Calls `line` with each entry as a line of JSON, in order; few of them are in memory at a time.
  void each(const std::function<void(std::string_view line)>& line) const;
  Json json() const;
  // Every setting of which a cell was added.
  ComparedSettings compared() const;

  // Bytes that it takes: of a setting; of a record that is ok, or is not; of metrics in memory;
  // and, while an entry is made, of that.
  static double setting_bytes();
  static double record_bytes();
  static double lacking_bytes();
  static double rows_bytes(double cells, double layers);
  static double entry_bytes(double units, double seeds, double records);

 private:
  struct Entry;
  struct Job {  // one entry of the summary: all layers of a setting, or one
    const Entry* entry;
    std::optional<int> layer;
  };
  std::vector<Job> jobs() const;
  void collect(const Json& record, bool is_layer);
  std::uint32_t unit_of(const Json& key);

  bool by_tokens_;
  SummaryRows cells_;
  SummaryRows whole_layers_;
  std::vector<Entry> entries_;                    // in order of first appearance
  std::map<std::string, std::size_t> find_;       // identity -> entry
  std::vector<UnitNesting> units_;                // shared by all entries
  std::map<std::string, std::size_t> find_unit_;  // identity -> number
  std::map<std::string, Index> find_text_;        // dump and sequence -> number
};

}  // namespace kvbench
